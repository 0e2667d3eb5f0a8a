//! A mount in a process of its own.
//!
//! 1. The server makes a number for the new client and says where it listens.
//! 2. This process connects, mounts, and tells its parent.
//! 3. It serves until somebody unmounts, or a signal comes. While the server is away, calls wait, fail with EIO after
//!    their deadline, and work again when it is back.
//! 4. It writes back what it holds back and ends its session, so that its open references, locks and leases go at once.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use braid_admin::Access;
use braid_base::attr::Time;
use braid_base::ids::{ClientId, FsId, Guid, Ino};
use braid_base::{Error, ErrorKind, Result};
use braid_client::fs::Background;
use braid_client::wire::BoxFuture;
use braid_client::{Fs, Session};
use braid_cluster::view::{ClientSpec, ClientView};
use braid_fuse::{CacheMode, Mount, Mounts};
use braid_wire::{Address, Find, Finder, RemoteWire, Target, Who};
use tokio::runtime::Handle;

use crate::client::Client;
use crate::detach::Ready;
use crate::exit::Failure;
use crate::mount_options::MountOptions;
use crate::node::WRITE_BEHIND_BYTES;
use crate::serve::Signals;

/// How often it is looked whether the mount is still there.
const LOOK: Duration = Duration::from_millis(200);
/// Time to write back what programs wrote: longer than a request waits for a server.
const WRITE_BACK_MAX: Duration = Duration::from_secs(40);
/// Time for the end of the session; a server that is away hears of it otherwise.
const END_MAX: Duration = Duration::from_secs(3);

/// What to mount.
pub struct Order {
    /// The cluster's directory.
    pub dir: PathBuf,
    /// The file system.
    pub filesystem: String,
    /// Where; checked.
    pub path: PathBuf,
    /// How.
    pub options: MountOptions,
    /// The source in the table of mounts, if not the usual one.
    pub source: Option<String>,
}

/// Where mounts in processes of their own say what they have to say.
pub fn log_path(dir: &Path) -> PathBuf {
    dir.join("mount.log")
}

/// Mounts and serves until the end. `ready` hears that the mount answers; an error of it ends the mount again.
pub fn run(order: &Order, ready: impl FnOnce(Ready) -> io::Result<()>) -> std::result::Result<(), Failure> {
    let client = Client::at(&order.dir)?;
    let spec = ClientSpec { filesystem: order.filesystem.clone() };
    let view: ClientView = client.send("POST", "/clients", &spec)?;
    let words = Ready {
        pid: std::process::id(),
        dir: order.dir.clone(),
        admin: client.access.url.clone(),
        state: "ok".to_owned(),
        problems: Vec::new(),
        filesystem: Some(order.filesystem.clone()),
        mount: Some(order.path.clone()),
    };
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build();
    let runtime = runtime.map_err(|error| Error::os("starting threads", &error))?;
    let done = runtime.block_on(serve(order, &view, || ready(words)));
    runtime.shutdown_timeout(Duration::from_millis(200));
    Ok(done?)
}

async fn serve(order: &Order, view: &ClientView, ready: impl FnOnce() -> io::Result<()>) -> Result<()> {
    let mut signals = Signals::new()?;
    let (fs, mount) = attach(order, view).await?;
    let up = ready().map_err(|error| Error::os("telling that the mount answers", &error));
    while up.is_ok() && mount.is_mounted() {
        tokio::select! {
            () = tokio::time::sleep(LOOK) => {}
            name = signals.next() => {
                tracing::info!("{name}: unmounting {}", mount.point().display());
                break;
            }
        }
    }
    let leaving = tokio::task::spawn_blocking(move || leave(&mount));
    let left = leaving.await.map_err(|error| Error::new(ErrorKind::Stopped, format!("unmounting: {error}")));
    match tokio::time::timeout(WRITE_BACK_MAX, fs.flush_all()).await {
        Ok(Ok(())) => {}
        Ok(Err(error)) => tracing::error!("{}: what was not written back is lost: {error}", order.path.display()),
        Err(_) => tracing::error!("{}: what was not written back is lost: the server is away", order.path.display()),
    }
    match tokio::time::timeout(END_MAX, fs.end_session()).await {
        Ok(Ok(())) => {}
        Ok(Err(error)) => tracing::warn!("the session was not ended: {error}"),
        Err(_) => tracing::warn!("the session was not ended: the server is away"),
    }
    up.and(left)
}

async fn attach(order: &Order, view: &ClientView) -> Result<(Fs, Arc<Mount>)> {
    let strange = || Error::new(ErrorKind::Corrupt, format!("the server calls its cluster {:?}", view.cluster));
    let cluster = Guid::parse(&view.cluster).ok_or_else(strange)?;
    let who = Who {
        client: ClientId(view.client),
        pid: std::process::id(),
        fs: FsId(view.fs),
        filesystem: order.filesystem.clone(),
        point: order.path.to_string_lossy().into_owned(),
        since_s: u64::try_from(braid_io::clock::now().wall.sec).unwrap_or(0),
    };
    let socket = PathBuf::from(&view.socket);
    let finder: Finder = {
        let (dir, socket) = (order.dir.clone(), socket.clone());
        Box::new(move |_, _| find(dir.clone(), socket.clone(), cluster))
    };
    let wire = RemoteWire::connect(find(order.dir.clone(), socket, cluster), finder, who).await?;
    let session = Session::new(Arc::new(wire), ClientId(view.client));
    // The server serves nobody without a session.
    tokio::spawn(session.keep_leases(None));
    let (id, root) = (FsId(view.fs), Ino(view.root));
    let fs = match order.options.cache {
        CacheMode::Write => {
            Fs::with_write_behind(session, id, root, Arc::new(Work(Handle::current())), WRITE_BEHIND_BYTES)
        }
        CacheMode::Read | CacheMode::Direct => Fs::new(session, id, root),
    };
    fs.set_total_bytes(view.total_bytes);
    let mounts = Mounts::new(fs.clone(), Handle::current());
    let (path, options) = (order.path.clone(), order.options.of(&order.filesystem, order.source.clone()));
    let mounting = tokio::task::spawn_blocking(move || mounts.mount(&path, &options));
    let mount = mounting.await.map_err(|error| Error::new(ErrorKind::Stopped, format!("mounting: {error}")))??;
    Ok((fs, Arc::new(mount)))
}

/// Work that goes on after a call returned.
struct Work(Handle);

impl Background for Work {
    fn spawn(&self, work: BoxFuture<()>) {
        self.0.spawn(work);
    }

    fn wall(&self) -> Time {
        braid_io::clock::now().wall
    }
}

/// The server that runs in `dir` now: each start has another secret.
fn find(dir: PathBuf, socket: PathBuf, cluster: Guid) -> Find {
    Box::new(move || {
        let away = || Error::new(ErrorKind::Stopped, format!("no cluster runs in {}", dir.display()));
        let access = Access::read(&dir)?.ok_or_else(away)?;
        Ok(Target { address: Address::Unix(socket.clone()), cluster, secret: access.token })
    })
}

/// Unmounts, if that is still to be done; by force where programs use it.
fn leave(mount: &Mount) {
    let Err(busy) = mount.unmount() else { return };
    tracing::warn!("{busy}; it is taken away all the same");
    if let Err(error) = mount.sync() {
        tracing::error!("{}: what was not written back is lost: {error}", mount.point().display());
    }
    mount.detach();
}
