//! A mount in a process of its own.
//!
//! 1. The server makes a number for the new client and says where it listens; or a host in the network does.
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
use braid_base::msg::host::{Attached, HostOp, HostReply};
use braid_base::{Error, ErrorKind, Result};
use braid_client::fs::{Background, GATHER_MS};
use braid_client::wire::BoxFuture;
use braid_client::{Fs, Session};
use braid_cluster::view::{ClientSpec, ClientView};
use braid_fuse::{CacheMode, Mount, Mounts};
use braid_wire::{Address, Find, Finder, RemoteWire, Target, Visit, Who};
use tokio::runtime::Handle;

use crate::client::Client;
use crate::detach::Ready;
use crate::exit::Failure;
use crate::mount_guard;
use crate::mount_options::MountOptions;
use crate::node::WRITE_BEHIND_BYTES;
use crate::reach::{self, Reach, TOKEN};
use crate::serve::Signals;
use crate::workers;

/// How often it is looked whether the mount is still there; an unmount is heard of at once.
const LOOK: Duration = Duration::from_millis(200);
/// Time to write back what programs wrote: longer than a request waits for a server.
const WRITE_BACK_MAX: Duration = Duration::from_secs(40);
/// Time for the end of the session; a server that is away hears of it otherwise.
const END_MAX: Duration = Duration::from_secs(3);

/// Where the cluster is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Server {
    /// A process on this machine that runs in this directory.
    Dir(PathBuf),
    /// Hosts in the network, any of which will do.
    Hosts(Vec<String>),
}

impl Server {
    /// What stands before the last slash of `SERVER/FS`: a directory begins with a slash or a dot.
    pub fn parse(text: &str) -> Self {
        match text {
            "" => Self::Dir("/".into()),
            _ if text.starts_with(['/', '.']) => Self::Dir(text.into()),
            _ => Self::Hosts(text.split(',').map(str::to_owned).collect()),
        }
    }

    /// Where a mount in a process of its own says what it has to say.
    pub fn log_path(&self) -> PathBuf {
        match self {
            Self::Dir(dir) => dir.join("mount.log"),
            Self::Hosts(_) if rustix::process::geteuid().is_root() => LOG.into(),
            Self::Hosts(_) => {
                std::env::temp_dir().join(format!("braid-mount-{}.log", rustix::process::geteuid().as_raw()))
            }
        }
    }

    /// The directory that must not be mounted over.
    pub fn dir(&self) -> &Path {
        match self {
            Self::Dir(dir) => dir,
            Self::Hosts(_) => Path::new(""),
        }
    }
}

/// The log of mounts over the network.
const LOG: &str = "/var/log/braid-mount.log";

/// What to mount.
pub struct Order {
    /// Of which cluster.
    pub server: Server,
    /// The file system.
    pub filesystem: String,
    /// Where; checked.
    pub path: PathBuf,
    /// How.
    pub options: MountOptions,
    /// The source in the table of mounts, if not the usual one.
    pub source: Option<String>,
}

/// How a client comes in.
struct Ticket {
    attached: Attached,
    entry: Find,
    finder: Finder,
}

/// Mounts and serves until the end. `ready` hears that the mount answers; an error of it ends the mount again.
pub fn run(order: &Order, ready: impl FnOnce(Ready) -> io::Result<()>) -> std::result::Result<(), Failure> {
    let runtime = workers::runtime(order.options.num_cores)?;
    let (ticket, admin) = match &order.server {
        Server::Dir(dir) => by_admin(dir, &order.filesystem)?,
        Server::Hosts(hosts) => (runtime.block_on(by_network(hosts, order))?, hosts.join(",")),
    };
    let words = Ready {
        pid: std::process::id(),
        dir: order.server.dir().to_owned(),
        admin,
        state: "ok".to_owned(),
        problems: Vec::new(),
        filesystem: Some(order.filesystem.clone()),
        mount: Some(order.path.clone()),
    };
    let done = runtime.block_on(serve(order, ticket, || ready(words)));
    runtime.shutdown_timeout(Duration::from_millis(200));
    Ok(done?)
}

/// The process that runs in `dir` says over REST how to come in.
fn by_admin(dir: &Path, filesystem: &str) -> std::result::Result<(Ticket, String), Failure> {
    let client = Client::at(dir)?;
    let view: ClientView = client.send("POST", "/clients", &ClientSpec { filesystem: filesystem.to_owned() })?;
    let strange = || Error::new(ErrorKind::Corrupt, format!("the server calls its cluster {:?}", view.cluster));
    let cluster = Guid::parse(&view.cluster).ok_or_else(strange)?;
    let attached = Attached {
        cluster,
        client: ClientId(view.client),
        fs: FsId(view.fs),
        root: Ino(view.root),
        total_bytes: view.total_bytes,
    };
    let (entry, finder): (Find, Finder) = if view.socket.is_empty() {
        let reach = Arc::new(Reach::new(cluster, view.secret.clone(), &view.ca, None)?);
        (reach.find(None, view.addresses.clone()), reach.finder())
    } else {
        let (dir, socket) = (dir.to_owned(), PathBuf::from(&view.socket));
        let again = (dir.clone(), socket.clone());
        (find(dir, socket, cluster), Box::new(move |_, _| find(again.0.clone(), again.1.clone(), cluster)))
    };
    Ok((Ticket { attached, entry, finder }, client.access.url.clone()))
}

/// One of `hosts` says how to come in.
async fn by_network(hosts: &[String], order: &Order) -> Result<Ticket> {
    let token = order.options.auth_token_path.clone().unwrap_or_else(|| TOKEN.into());
    let reach = Arc::new(Reach::read(&token)?);
    let mut why = Vec::new();
    for host in hosts {
        let visited = async {
            let address = reach::resolve(host)?.to_string();
            let visit = Visit::begin(reach.find(None, vec![address.clone()])).await?;
            let answer = visit.ask(HostOp::Attach { filesystem: order.filesystem.clone() }).await?;
            Ok::<_, Error>((address, answer))
        };
        match visited.await {
            Ok((address, HostReply::Attached(attached))) => {
                let (entry, finder) = (reach.find(None, vec![address]), Arc::clone(&reach).finder());
                return Ok(Ticket { attached, entry, finder });
            }
            Ok((_, other)) => why.push(Error::new(ErrorKind::Corrupt, format!("{host} answered {other:?}"))),
            Err(error) => why.push(error.within(host)),
        }
    }
    let (kind, all): (_, Vec<&str>) =
        (why.first().map_or(ErrorKind::Invalid, Error::kind), why.iter().map(Error::message).collect());
    Err(Error::new(kind, all.join("; ")))
}

async fn serve(order: &Order, ticket: Ticket, ready: impl FnOnce() -> io::Result<()>) -> Result<()> {
    let mut signals = Signals::new()?;
    let (fs, mount) = attach(order, ticket).await?;
    let up = ready().map_err(|error| Error::os("telling that the mount answers", &error));
    let mut is_closed = false;
    while up.is_ok() && mount.is_mounted() {
        tokio::select! {
            () = mount.closed(), if !is_closed => is_closed = true,
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

async fn attach(order: &Order, ticket: Ticket) -> Result<(Fs, Arc<Mount>)> {
    let Ticket { attached: Attached { client, fs: id, root, total_bytes, .. }, entry, finder } = ticket;
    let who = Who {
        client,
        pid: std::process::id(),
        fs: id,
        filesystem: order.filesystem.clone(),
        point: order.path.to_string_lossy().into_owned(),
        since_s: u64::try_from(braid_io::clock::now().wall.sec).unwrap_or(0),
    };
    let wire = RemoteWire::connect(entry, finder, who).await?;
    let session = Session::new(Arc::new(wire), client);
    // The server serves nobody without a session.
    tokio::spawn(session.keep_leases(None));
    let fs = match order.options.cache {
        CacheMode::Write => {
            let fs = Fs::with_write_behind(session, id, root, Arc::new(Work(Handle::current())), WRITE_BEHIND_BYTES);
            if !order.options.dirsync {
                fs.promise_names(GATHER_MS);
            }
            fs
        }
        CacheMode::Read | CacheMode::Direct => {
            let fs = Fs::new(session, id, root);
            fs.go_on_in(Arc::new(Work(Handle::current())));
            fs
        }
    };
    fs.set_total_bytes(total_bytes);
    let mounts = Mounts::new(fs.clone(), Handle::current()).alone().guarded(mount_guard::program);
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
        Ok(Target { address: Address::Unix(socket.clone()), cluster, secret: access.token, tls: None })
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
