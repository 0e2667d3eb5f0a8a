//! A whole cluster in this process, from start to stop. The order is the point:
//!
//! 1. Refuse what can be refused by looking: running already, foreign directory, mount point, FUSE, port.
//! 2. Start the host ([`node::start`]); one among others listens before its replicas start.
//! 3. Serve REST, write `DIR/admin.json`, enter the registry.
//! 4. Make the first file system if there is none, mount.
//! 5. Say that all is ready; wait for a signal or for `POST /shutdown`.
//! 6. Stop: mounts and host first, then REST, then the files that said it runs.

use std::fs;
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use braid_admin::{Access, Control, Server, registry};
use braid_base::{Error, ErrorKind, Result};
use braid_cluster::view::{FsSpec, MountSpec};
use braid_wire::{Handler, Listener};
use rustix::process::{Resource, Rlimit};
use tokio::net::TcpListener;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

use crate::detach::{Ready, WAITING};
use crate::mountpoint;
use crate::node::backend::{self, Enlisted, Follow};
use crate::node::control::{Node, socket};
use crate::node::{self, Options, Say};
use crate::systemd;
use crate::workers;

/// The coordinator's file; a directory that has it holds a cluster.
const COORDINATOR: &str = "cluster.redb";
/// Most time for a clean stop; the promise is 5 s, the rest of it is for leaving.
const STOP_MAX: Duration = Duration::from_millis(4_500);
/// How often a host that waits looks whether it was taken into a cluster.
const LOOK: Duration = Duration::from_millis(300);
/// Time for answers under way when REST stops.
const ANSWERS_MAX: Duration = Duration::from_millis(300);

/// Most time to wait for a killed process of the same cluster to be gone, milliseconds.
const END_MAX_MS: u64 = 5_000;

/// What to run.
pub struct Order {
    /// What to start.
    pub what: What,
    /// Where to mount, if anywhere.
    pub mount: Option<PathBuf>,
    /// Which file system; made if the cluster has none.
    pub filesystem: String,
    /// Port of REST.
    pub port: u16,
}

/// What a process runs.
pub enum What {
    /// A whole cluster.
    Up(Options),
    /// One host of several.
    Backend(backend::Options),
}

impl What {
    /// Its directory.
    pub fn dir(&self) -> &Path {
        match self {
            Self::Up(options) => &options.dir,
            Self::Backend(options) => &options.dir,
        }
    }

    /// How many processors' worth of workers it is to have, if that was said.
    fn cores(&self) -> Option<u16> {
        match self {
            Self::Up(_) => None,
            Self::Backend(options) => options.cores,
        }
    }
}

/// Step 1, as far as it leaves no trace; also for the parent of a detached process.
pub fn check(order: &Order) -> Result<()> {
    let dir = order.what.dir();
    await_end(dir);
    if let Some(access) = Access::read(dir)? {
        let (pid, dir) = (access.pid, dir.display());
        let message = format!(
            "the cluster in {dir} runs already (pid {pid}): see `braid status --dir {dir}`, stop it with `braid down {dir}`"
        );
        return Err(Error::new(ErrorKind::Refused, message));
    }
    check_directory(&order.what, order.mount.as_deref())?;
    if let Some(mount) = &order.mount {
        mountpoint::check(mount, dir)?;
    }
    // Taken again when it is used; here only to know early.
    Server::bind(order.port).map(|_| ())
}

/// A killed process holds its files for a moment longer; whoever starts the next one at once should not have to know.
fn await_end(dir: &Path) {
    let until_ms = braid_io::clock::mono_ms() + END_MAX_MS;
    while Access::is_ending(dir) && braid_io::clock::mono_ms() < until_ms {
        thread::park_timeout(Duration::from_millis(10));
    }
}

/// Runs until it is told to stop. `say` hears the steps, `ready` that all is up; an error of `ready` stops it again.
pub fn run(order: Order, say: Say, ready: impl FnOnce(Ready) -> io::Result<()>) -> Result<()> {
    raise_open_files();
    let runtime = workers::runtime(order.what.cores())?;
    let ready = move |words| {
        ready(words)?;
        systemd::ready();
        Ok(())
    };
    let done = runtime.block_on(serve(order, say, ready));
    // Blocking tasks that hang must not keep the process: what was synced is durable.
    runtime.shutdown_timeout(Duration::from_millis(200));
    done
}

/// As many open files as this process may have: each client takes some, and the usual 1,024 are soon gone.
fn raise_open_files() {
    let limit = rustix::process::getrlimit(Resource::Nofile);
    let raised = Rlimit { current: limit.maximum, maximum: limit.maximum };
    if let Err(error) = rustix::process::setrlimit(Resource::Nofile, raised) {
        tracing::warn!("no more than {:?} open files: {error}", limit.current);
    }
}

/// Names, attributes and file contents lie in the directory's files: nobody but the owner may read what is made from
/// now on, nor the view, which earlier versions made readable.
fn close_to_others(dir: &Path) -> Result<()> {
    rustix::process::umask(rustix::fs::Mode::from_raw_mode(0o077));
    for name in [COORDINATOR, "cluster.redb.backup", "kv"] {
        let path = dir.join(name);
        let Ok(known) = fs::metadata(&path) else { continue };
        let mode = if known.is_dir() { 0o700 } else { 0o600 };
        fs::set_permissions(&path, fs::Permissions::from_mode(mode))
            .map_err(|error| Error::os(format_args!("closing {} to others", path.display()), &error))?;
    }
    Ok(())
}

async fn serve(order: Order, say: Say, ready: impl FnOnce(Ready) -> io::Result<()>) -> Result<()> {
    let mut signals = Signals::new()?;
    check(&order)?;
    let dir = order.what.dir().to_owned();
    close_to_others(&dir)?;
    for path in mountpoint::sweep(&dir)? {
        tracing::info!("took away the dead mount {} of an earlier process", path.display());
    }
    let server = Server::bind(order.port)?;
    let mut ready = Some(ready);
    let (control, listener, follow): (Arc<Node>, Listener, Option<Follow>) = match &order.what {
        What::Up(options) => {
            let (options, report) = (options.clone(), say.clone());
            let control = blocking(&mut signals, move || node::start(options, report)).await?;
            (control, Listener::unix(&socket(&dir))?, None)
        }
        What::Backend(options) => {
            let listener = listen(options).await?;
            let (enlisted, listener) = enlist(options, listener, &mut signals, &say, &mut ready).await?;
            let report = say.clone();
            let (control, follow) = blocking(&mut signals, move || backend::start(enlisted, &report)).await?;
            let listener = match control.tls() {
                Some(tls) => Listener::Tls(listener, tls.clone()),
                None => Listener::Tcp(listener),
            };
            (control, listener, Some(follow))
        }
    };
    let stop_asked = server.stop_asked();
    let access = Access::new(server.port())?;
    let clients: Arc<dyn Handler> = control.clients(access.token.clone())?;
    let doors = tokio::spawn(braid_wire::serve(listener, clients));
    // Whatever comes of it, what runs by then is stopped in order.
    let begun = match follow {
        Some(follow) => blocking(&mut signals, follow).await,
        None => Ok(()),
    };
    let control: Arc<dyn Control> = control;
    let (hush, hushed) = oneshot::channel::<()>();
    let until = async {
        // A sender that is gone means the same.
        let _ = hushed.await;
    };
    let rest = tokio::spawn(server.run(control.clone(), access.token.clone(), until));
    let opened = match begun {
        Ok(()) => open(&order, &*control, &access, &say).await,
        Err(error) => Err(error),
    };
    let up = match opened {
        Ok(words) => match ready.take() {
            Some(ready) => ready(words).map_err(|error| Error::os("telling that all is ready", &error)),
            None => Ok(()),
        },
        Err(error) => Err(error),
    };
    if up.is_ok() {
        tokio::select! {
            name = signals.next() => tracing::info!("{name}: stopping"),
            () = stop_asked => tracing::info!("asked to stop over REST"),
        }
    }
    let stopped = tokio::select! {
        stopped = tokio::time::timeout(STOP_MAX, control.shutdown()) => stopped,
        name = signals.next() => leave_at_once(&dir, name),
    };
    drop(hush);
    doors.abort();
    // It would be replaced by the next start; until then it says that there is none.
    let _ = fs::remove_file(socket(&dir));
    // What a client of REST may still be owed is worth no more than this.
    let _ = tokio::time::timeout(ANSWERS_MAX, rest).await;
    registry::leave(&dir);
    Access::remove(&dir)?;
    match stopped {
        Ok(stopped) => up.and(stopped),
        Err(_) => leave_at_once(&dir, "the time to stop ran out"),
    }
}

/// Runs `work` on a thread that may wait, unless a signal comes first.
async fn blocking<T: Send + 'static>(
    signals: &mut Signals,
    work: impl FnOnce() -> Result<T> + Send + 'static,
) -> Result<T> {
    tokio::select! {
        done = tokio::task::spawn_blocking(work) => {
            done.map_err(|error| Error::new(ErrorKind::Stopped, format!("starting: {error}")))?
        }
        name = signals.next() => Err(Error::new(ErrorKind::Stopped, format!("stopped by {name} while starting"))),
    }
}

async fn listen(options: &backend::Options) -> Result<TcpListener> {
    let what = format_args!("listening at {} (another address or port: --listen)", options.listen);
    TcpListener::bind(&options.listen).await.map_err(|error| Error::os(what, &error))
}

/// Waits until the host is in a cluster, and until etcd was recovered if that has gone back: then it tells what it knows
/// to whoever recovers it. Whoever started this process hears that it waits.
async fn enlist<F: FnOnce(Ready) -> io::Result<()>>(
    options: &backend::Options,
    listener: TcpListener,
    signals: &mut Signals,
    say: &Say,
    ready: &mut Option<F>,
) -> Result<(Enlisted, TcpListener)> {
    say("looking for the cluster");
    let first = options.clone();
    let mut enlisted = blocking(signals, move || Enlisted::begin(first)).await?;
    let (mut listener, mut telling) = (Some(listener), None);
    loop {
        let (seen, is_in) = blocking(signals, move || {
            let is_in = enlisted.look();
            Ok((enlisted, is_in))
        })
        .await?;
        enlisted = seen;
        let mut problems = Vec::new();
        match is_in {
            Ok(true) => {
                if let Some(task) = telling.take() {
                    let task: JoinHandle<()> = task;
                    task.abort();
                    // Its end is what matters: the port is free then.
                    let _ = task.await;
                    tracing::info!("etcd was recovered");
                }
                let listener = match listener.take() {
                    Some(listener) => listener,
                    None => listen(options).await?,
                };
                return Ok((enlisted, listener));
            }
            Ok(false) => {}
            Err(error) if telling.is_some() => tracing::debug!("still waiting: {error}"),
            Err(error) => match (enlisted.stranded()?, listener.take()) {
                (Some((stranded, tls)), Some(at)) => {
                    tracing::error!("{error}");
                    problems.push(error.message().to_owned());
                    let at = match tls {
                        Some(tls) => Listener::Tls(at, tls),
                        None => Listener::Tcp(at),
                    };
                    telling = Some(tokio::spawn(braid_wire::serve(at, Arc::new(stranded))));
                }
                // One that waits goes on waiting; one that was just started says why it does not work.
                (_, at) if ready.is_none() => {
                    listener = at;
                    tracing::warn!("still waiting: {error}");
                }
                _ => return Err(error),
            },
        }
        if let Some(ready) = ready.take() {
            tracing::info!("host {} waits", options.name);
            let words = Ready {
                pid: process::id(),
                dir: options.dir.clone(),
                admin: String::new(),
                state: WAITING.to_owned(),
                problems,
                filesystem: None,
                mount: None,
            };
            ready(words).map_err(|error| Error::os("telling that it waits", &error))?;
        }
        tokio::select! {
            () = tokio::time::sleep(LOOK) => {}
            name = signals.next() => return Err(Error::new(ErrorKind::Stopped, format!("stopped by {name}"))),
        }
    }
}

/// Steps 3 and 4.
async fn open(order: &Order, control: &dyn Control, access: &Access, say: &Say) -> Result<Ready> {
    let dir = order.what.dir();
    access.write(dir)?;
    if let Err(error) = registry::enter(dir) {
        tracing::warn!("other commands have to be told --dir {}: {error}", dir.display());
    }
    if matches!(order.what, What::Up(_)) && control.filesystems().await?.is_empty() {
        let spec = FsSpec { name: order.filesystem.clone(), ..FsSpec::default() };
        control.fs_add(spec).await?;
    }
    if let Some(path) = &order.mount {
        say("mounting");
        let path = mountpoint::check(path, dir)?;
        mountpoint::remember(dir, &path)?;
        let path = path.to_string_lossy().into_owned();
        let spec = MountSpec { filesystem: order.filesystem.clone(), path, io_uring: false };
        control.mount(spec).await?;
    }
    let status = control.status().await?;
    Ok(Ready {
        pid: access.pid,
        dir: dir.to_owned(),
        admin: access.url.clone(),
        state: status.state.word().to_owned(),
        problems: status.problems,
        filesystem: order.mount.as_ref().map(|_| order.filesystem.clone()),
        mount: order.mount.clone(),
    })
}

/// The last resort: mounts are taken out of the tree so that nothing hangs on them, then the process ends.
fn leave_at_once(dir: &Path, why: &str) -> ! {
    tracing::warn!("{why}: leaving at once; what was synced is durable");
    registry::leave(dir);
    let swept = mountpoint::detach_all(dir).and_then(|()| Access::remove(dir));
    if let Err(error) = swept {
        tracing::warn!("{error}");
    }
    process::exit(1)
}

/// Refuses a directory that holds something else than a cluster; makes it if it is not there.
fn check_directory(what: &What, mount: Option<&Path>) -> Result<()> {
    let dir = what.dir();
    let shown = dir.display();
    fs::create_dir_all(dir).map_err(|error| match error.kind() {
        io::ErrorKind::AlreadyExists | io::ErrorKind::NotADirectory => {
            Error::new(ErrorKind::Refused, format!("{shown}: a directory expected, found a file: choose another"))
        }
        _ => Error::os(dir.display(), &error),
    })?;
    let entries = fs::read_dir(dir).map_err(|error| Error::os(dir.display(), &error))?;
    let mut names: Vec<String> =
        entries.flatten().map(|entry| entry.file_name().to_string_lossy().into_owned()).collect();
    names.sort();
    let holds = |mark: &str| names.iter().any(|name| name.starts_with(mark));
    match what {
        What::Up(_) if holds(backend::MARK) => {
            let message = format!("{shown} is that of one host of a cluster: `braid backend {shown}` runs it");
            return Err(Error::new(ErrorKind::Refused, message));
        }
        What::Backend(_) if holds(COORDINATOR) => {
            let message = format!("{shown} holds a cluster of one machine: `braid up {shown}` runs it");
            return Err(Error::new(ErrorKind::Refused, message));
        }
        What::Up(_) if holds(COORDINATOR) => return Ok(()),
        What::Backend(_) if holds(backend::MARK) => return Ok(()),
        _ => {}
    }
    let mount_name = mount.filter(|path| path.parent() == Some(dir)).and_then(Path::file_name);
    let own = |name: &str| {
        ["braid.log", "braid.log.1", "mounts.json", "admin.json", "braid.sock", "mount.log", "lost+found"]
            .contains(&name)
            || mount_name.is_some_and(|mount| mount == name)
    };
    match names.iter().find(|name| !own(name)) {
        Some(name) => {
            let message =
                format!("{shown} holds no cluster but other things ({name}): use an empty directory for a new cluster");
            Err(Error::new(ErrorKind::Refused, message))
        }
        None => Ok(()),
    }
}

/// The signals that mean the end.
pub struct Signals {
    terminate: Signal,
    interrupt: Signal,
    hangup: Signal,
}

impl Signals {
    /// Listens from now on.
    pub fn new() -> Result<Self> {
        let listen = |kind| signal(kind).map_err(|error| Error::os("listening for signals", &error));
        Ok(Self {
            terminate: listen(SignalKind::terminate())?,
            interrupt: listen(SignalKind::interrupt())?,
            hangup: listen(SignalKind::hangup())?,
        })
    }

    /// The name of the next signal that means the end.
    pub async fn next(&mut self) -> &'static str {
        tokio::select! {
            _ = self.terminate.recv() => "SIGTERM",
            _ = self.interrupt.recv() => "SIGINT",
            _ = self.hangup.recv() => "SIGHUP",
        }
    }
}
