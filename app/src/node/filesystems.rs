//! The file systems of a running cluster and their mounts in this process.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use braid_base::attr::FileType;
use braid_base::ids::{ClientId, FsId, HostId, Ino};
use braid_base::{Error, ErrorKind, Result};
use braid_client::{Fs, Session};
use braid_cluster::Etcd;
use braid_cluster::coordinator::Coordinator;
use braid_cluster::facts::Filesystem;
use braid_cluster::filesystems;
use braid_cluster::guard::Guard;
use braid_cluster::view::MountView;
use braid_fuse::{Mount, Mounts, Options};
use braid_host::run::Host;
use braid_wire::{RemoteWire, Who, tls};

use super::certificate::Certificate;
use super::{WRITE_BEHIND_BYTES, views};
use crate::mount_guard;
use crate::reach::Reach;

/// Entries taken from a directory at a time while a file system is emptied.
const ENTRIES: u32 = 1024;

/// A file system that is in use here.
pub struct Open {
    pub fs: Fs,
    pub mounts: Mounts,
    pub client: ClientId,
    /// For one thing only.
    passing: bool,
}

/// A mount and what is said about it.
struct Mounted {
    mount: Arc<Mount>,
    fs: FsId,
    view: MountView,
}

/// How clients in this process reach partitions and drives.
pub enum Way {
    /// All of them are in this process.
    Here,
    /// Like any other client.
    Network(Network),
}

/// A host among others, for clients.
pub struct Network {
    /// Its number.
    pub host: HostId,
    /// Its name.
    pub name: String,
    /// etcd, for hosts that cannot reach it.
    pub etcd: Etcd,
    /// What it has seen of etcd.
    pub guard: Arc<Guard>,
    /// What the hosts want to hear.
    pub reach: Arc<Reach>,
    /// Where this one listens.
    pub addresses: Vec<String>,
    /// How it secures connections, if it does.
    pub tls: Option<tls::Server>,
    /// What it shows on them.
    pub certificate: Option<Arc<Certificate>>,
}

impl Way {
    async fn session(&self, host: &Host, client: ClientId, record: &Filesystem) -> Result<Arc<Session>> {
        let Self::Network(network) = self else { return Ok(host.session(client)) };
        let who = Who {
            client,
            pid: std::process::id(),
            fs: record.id,
            filesystem: record.name.clone(),
            point: String::new(),
            since_s: views::now_s(),
        };
        let (entry, finder) =
            (network.reach.find(None, network.addresses.clone()), Arc::clone(&network.reach).finder());
        let session = Session::new(Arc::new(RemoteWire::connect(entry, finder, who).await?), client);
        tokio::spawn(session.keep_leases(None));
        Ok(session)
    }
}

/// The record of a file system that may be mounted.
pub fn usable(coordinator: &dyn Coordinator, name: &str) -> Result<Filesystem> {
    let record = filesystems::find(coordinator, name)?.value;
    if record.removing {
        let words = format!("file system {} is being removed", record.name);
        return Err(Error::new(ErrorKind::Refused, words));
    }
    Ok(record)
}

/// File systems in use, one client each: all mounts of one share what it caches.
#[derive(Default)]
pub struct Filesystems {
    open: Mutex<BTreeMap<FsId, Arc<Open>>>,
    mounted: Mutex<Vec<Mounted>>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Filesystems {
    /// The client of a file system; its root is made if it is new. On a host among others it is there for one thing and
    /// then to be [left](Self::leave), unless it is to `stay` for a mount: whoever takes over a partition waits for the
    /// clients that it had, and this one goes with its host.
    pub async fn open(
        &self,
        coordinator: &dyn Coordinator,
        host: &Host,
        record: &Filesystem,
        (way, stay): (&Way, bool),
    ) -> Result<Arc<Open>> {
        let capacity_bytes = host.capacity();
        let total = record.room_bytes(capacity_bytes);
        host.set_limit(record.id, record.total_bytes);
        if let Some(open) = lock(&self.open).get(&record.id) {
            open.fs.set_total_bytes(total);
            return Ok(Arc::clone(open));
        }
        let client = ClientId(tokio::task::block_in_place(|| coordinator.counter("client"))?);
        let (session, root) = (way.session(host, client, record).await?, Ino::new(record.root_vp, 1));
        let fs = Fs::with_write_behind(session, record.id, root, host.background(), WRITE_BEHIND_BYTES);
        fs.set_total_bytes(total);
        fs.make_root(0o755).await?;
        let mounts = Mounts::new(fs.clone(), tokio::runtime::Handle::current()).guarded(mount_guard::program);
        let passing = !stay && matches!(way, Way::Network(_));
        let open = Arc::new(Open { fs, mounts, client, passing });
        if passing {
            return Ok(open);
        }
        Ok(Arc::clone(lock(&self.open).entry(record.id).or_insert(open)))
    }

    /// What was opened for one thing is not needed any more.
    pub async fn leave(open: &Open) {
        if open.passing
            && let Err(error) = open.fs.end_session().await
        {
            tracing::debug!("a client of this host did not leave: {error}");
        }
    }

    /// Mounts an open file system.
    pub async fn mount(&self, open: Arc<Open>, record: &Filesystem, path: String, io_uring: bool) -> Result<MountView> {
        let (client, point) = (open.client.0, path.clone());
        let options = Options { io_uring, ..Options::new(record.name.clone()) };
        let task = tokio::task::spawn_blocking(move || open.mounts.mount(Path::new(&point), &options));
        let mount = Arc::new(joined(task.await)?);
        let path = mount.point().display().to_string();
        let view = MountView {
            filesystem: record.name.clone(),
            path,
            client,
            since_s: views::now_s(),
            pid: std::process::id(),
        };
        lock(&self.mounted).push(Mounted { mount, fs: record.id, view: view.clone() });
        Ok(view)
    }

    /// The mounts that are there, ordered by path.
    pub fn mounts(&self) -> Vec<MountView> {
        let mut mounted = lock(&self.mounted);
        mounted.retain(|mounted| mounted.mount.is_mounted());
        let mut views: Vec<MountView> = mounted.iter().map(|mounted| mounted.view.clone()).collect();
        views.sort_by(|a, b| a.path.cmp(&b.path));
        views
    }

    /// True if a mount of `fs` is there.
    pub fn is_mounted(&self, fs: FsId) -> bool {
        lock(&self.mounted).iter().any(|mounted| mounted.fs == fs && mounted.mount.is_mounted())
    }

    /// Takes the mount at `path` away.
    pub async fn umount(&self, path: &str) -> Result<()> {
        let point = std::fs::canonicalize(path).unwrap_or_else(|_| path.into());
        let found = lock(&self.mounted).iter().find(|m| m.mount.point() == point).map(|m| Arc::clone(&m.mount));
        let Some(mount) = found else {
            let words = format!("{path} is no mount of this cluster: `braid status` lists the mounts");
            return Err(Error::new(ErrorKind::NotFound, words));
        };
        joined(tokio::task::spawn_blocking(move || mount.unmount()).await)?;
        self.mounts();
        self.write_back().await;
        Ok(())
    }

    /// Takes all mounts away, by force where they are in use.
    pub async fn detach_all(&self) {
        let mounts: Vec<Arc<Mount>> = lock(&self.mounted).drain(..).map(|mounted| mounted.mount).collect();
        let work = move || {
            for mount in mounts {
                let Err(busy) = mount.unmount() else { continue };
                // Programs keep it: what they wrote through maps is still with the kernel.
                tracing::warn!("{busy}; it is taken away all the same");
                if let Err(error) = mount.sync() {
                    tracing::error!("{}: what was not written back is lost: {error}", mount.point().display());
                }
                mount.detach();
            }
        };
        if let Err(error) = tokio::task::spawn_blocking(work).await {
            tracing::warn!("taking mounts away: {error}");
        }
        self.write_back().await;
        // Nobody waits for a client then that is gone.
        let open: Vec<Arc<Open>> = std::mem::take(&mut *lock(&self.open)).into_values().collect();
        for open in open {
            let _ = open.fs.end_session().await;
        }
    }

    /// Waits until what programs wrote has reached the cluster. What could not be written was logged.
    async fn write_back(&self) {
        let open: Vec<Arc<Open>> = lock(&self.open).values().map(Arc::clone).collect();
        for open in open {
            let _ = open.fs.flush_all().await;
        }
    }

    /// Forgets a file system that is gone.
    pub fn forget(&self, fs: FsId) {
        lock(&self.open).remove(&fs);
    }
}

fn joined<T>(done: std::result::Result<Result<T>, tokio::task::JoinError>) -> Result<T> {
    done.unwrap_or_else(|error| Err(Error::new(ErrorKind::Stopped, format!("the task died: {error}"))))
}

/// Removes everything below the root, depth first, without recursion: a tree may be deeper than a stack.
pub async fn empty(fs: &Fs) -> Result<()> {
    let mut path: Vec<(Ino, Option<Vec<u8>>)> = vec![(fs.root(), None)];
    while let Some((dir, name)) = path.last().cloned() {
        let (entries, _) = fs.readdir(dir, 0, ENTRIES, false).await?;
        if entries.is_empty() {
            path.pop();
            if let (Some((above, _)), Some(name)) = (path.last(), name) {
                fs.rmdir(*above, &name).await?;
            }
            continue;
        }
        for entry in entries {
            if entry.kind == FileType::Directory {
                path.push((entry.ino, Some(entry.name)));
                break;
            }
            fs.unlink(dir, &entry.name).await?;
        }
    }
    Ok(())
}
