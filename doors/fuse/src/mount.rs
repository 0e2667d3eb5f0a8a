//! Mounting and unmounting, and telling people in one line why it did not work.

use std::ffi::{CStr, CString};
use std::fs::{self, File};
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, sync_channel};
use std::sync::{Arc, Mutex, Weak};
use std::time::{Duration, Instant};

use braid_base::{Error, ErrorKind, Result};
use braid_client::Fs;
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use rustix::mount::{MountFlags, UnmountFlags};
use tokio::runtime::Handle;
use tokio::sync::watch;

use crate::attrs::Numbers;
use crate::calls::{Calls, Writes};
use crate::door::{Door, SETTINGS};
use crate::guard::Guard;
use crate::holders;
use crate::hub::{Hub, Member};
use crate::options::Options;
use crate::wire::abi::feature;
use crate::wire::encode::Settings;
use crate::wire::session::Session;
use crate::wire::uring;

/// Type of our mounts in the mount table.
const FSTYPE: &str = "fuse.braid";
/// How long an unmount waits for the request threads, which end as soon as the kernel lets go.
const THREADS_END: Duration = Duration::from_secs(5);
/// How long written-back pages may be on their way, and how long none must come for them to be all.
const WRITE_BACK_MAX: Duration = Duration::from_secs(2);
const WRITE_BACK_REST: Duration = Duration::from_millis(50);
/// How long an unmount waits for those who still use it, and how often it looks. A program that ends is gone a little
/// later; one that starts has the open files of its parent until its own code is read.
const BUSY_MAX: Duration = Duration::from_secs(1);
const BUSY_REST: Duration = Duration::from_millis(10);

/// All mounts of one file system in this process. What one changes, the others see at once.
pub struct Mounts {
    fs: Fs,
    runtime: Handle,
    hub: Arc<Hub>,
    next: AtomicU64,
    /// See [`Self::alone`].
    alone: bool,
    /// See [`Self::guarded`].
    guard: Option<fn() -> Command>,
}

/// A mount. Dropped, it goes away by force.
pub struct Mount {
    point: PathBuf,
    /// `major:minor` of the mount, to tell it from another one that came over it.
    device: String,
    gone: AtomicBool,
    /// Requests are taken; false once the kernel has closed the connection.
    serving: watch::Receiver<bool>,
    /// Says when the request threads have ended.
    ended: Mutex<Receiver<()>>,
    writes: Arc<Writes>,
    _member: Member,
}

impl Mounts {
    /// The mounts of `fs`; requests run as tasks on `runtime`.
    pub fn new(fs: Fs, runtime: Handle) -> Self {
        let hub: Arc<Hub> = Arc::default();
        let watcher: Weak<Hub> = Arc::downgrade(&hub);
        fs.watch(watcher);
        Self { fs, runtime, hub, next: AtomicU64::new(1), alone: false, guard: None }
    }

    /// This process and `runtime` do nothing else. Replies then wait for what else is ready there (decision 49), and
    /// requests are taken there, too, if it has one worker (decision 45): nothing there may use one of these mounts as a
    /// program does, it would wait for itself.
    pub fn alone(mut self) -> Self {
        self.alone = true;
        self
    }

    /// Beside each mount a program is started that calls [`crate::guard()`] with the number that is its last word: if this process is
    /// killed, programs that use the mount do not hang.
    pub fn guarded(mut self, program: fn() -> Command) -> Self {
        self.guard = Some(program);
        self
    }

    /// Mounts the file system on the directory `point`. Blocks for the handshake with the kernel. Errors:
    /// `Refused`, with what is in the way and what to do about it.
    pub fn mount(&self, point: &Path, options: &Options) -> Result<Mount> {
        let point = check_point(point, options.over_content)?;
        let device = open_fuse()?;
        let me = self.next.fetch_add(1, Ordering::Relaxed);
        let calls = Calls::new(self.fs.clone(), Arc::clone(&self.hub), me, options);
        let door = Door { calls: Arc::new(calls), runtime: self.runtime.clone() };
        attach(&device, &point, options)?;
        // From here on every failure has to take the mount away again.
        self.serve(me, door, device, &point, options).inspect_err(|_| {
            let _ = rustix::mount::unmount(&point, UnmountFlags::DETACH);
        })
    }

    fn serve(&self, me: u64, door: Door, device: OwnedFd, point: &Path, options: &Options) -> Result<Mount> {
        let writes = Arc::clone(&door.calls.writes);
        let refused = |what: &str, error: &io::Error| {
            Error::new(ErrorKind::Refused, format!("cannot mount on {}: {what}: {error}", point.display()))
        };
        let features = SETTINGS.features | if options.io_uring { feature::OVER_IO_URING } else { 0 };
        // A lone worker takes the requests as well as what answers them: in each of its turns it finds more (decision 45).
        let on_runtime =
            self.alone && self.runtime.metrics().num_workers() == 1 && options.threads == 0 && !options.io_uring;
        let readers = if on_runtime { 1 } else { readers(options.threads) };
        let session = Session::start(device, &Settings { features, ..SETTINGS }, readers, self.alone)
            .map_err(|e| refused("the handshake with the kernel failed", &e))?;
        door.calls.reaches(session.notifier());
        let numbers = Numbers { root: self.fs.root() };
        let joined = self.hub.join(me, numbers, (options.name_age(), options.negative_age), session.notifier());
        let member = joined.map_err(|e| refused("no thread for notices", &e))?;
        let (end, ended) = sync_channel(1);
        let (serves, serving) = watch::channel(true);
        let (door, runtime) = (Arc::new(door), self.runtime.clone());
        let device = holders::mount_on(point).map(|line| line.device).unwrap_or_default();
        let guard = self.guard.map(|program| Guard::start(program(), &device));
        if let Some(Err(error)) = &guard {
            tracing::warn!(point = %point.display(), %error, "if this process is killed, programs may hang until umount -f");
        }
        let (here, mine) = (point.to_owned(), device.clone());
        let run = move || {
            if let Err(error) = session.run(&door, Some(&runtime).filter(|_| on_runtime)) {
                tracing::error!(%error, "a mount ended with an error: it is taken away");
                // Nobody answers any more: whoever asks would hang.
                if holders::mount_on(&here).is_some_and(|line| line.device == mine) {
                    let _ = rustix::mount::unmount(&here, UnmountFlags::FORCE | UnmountFlags::DETACH);
                }
            }
            drop(guard);
            door.calls.let_all_go(&runtime);
            serves.send_replace(false);
            // Nobody listens if the mount was given up already.
            let _ = end.send(());
        };
        std::thread::Builder::new()
            .name(format!("fuse-{me}"))
            .spawn(run)
            .map_err(|e| refused("no thread for requests", &e))?;
        set_readahead(&device, options.readahead_kib);
        tracing::info!(point = %point.display(), name = options.name, "mounted");
        Ok(Mount {
            point: point.to_owned(),
            device,
            gone: AtomicBool::new(false),
            serving,
            ended: Mutex::new(ended),
            writes,
            _member: member,
        })
    }
}

impl Mount {
    /// Where it is mounted.
    pub fn point(&self) -> &Path {
        &self.point
    }

    /// Whether it is still there, dead or alive: someone may have called `umount`.
    pub fn is_mounted(&self) -> bool {
        let here = || holders::mount_table().iter().any(|line| line.point == self.point && line.device == self.device);
        // The number of a mount that went may already be another one's, which is then alive while ours is not.
        let is_ours = || *self.serving.borrow() || is_dead(&self.point);
        !self.gone.load(Ordering::Acquire) && here() && is_ours()
    }

    /// Ready when the kernel has closed the connection, as it does at once when someone unmounts.
    pub async fn closed(&self) {
        // Without a sender nothing is served either.
        let _ = self.serving.clone().wait_for(|serving| !serving).await;
    }

    /// Unmounts; blocks until the kernel has let go, so do not call it on a thread of the runtime. Errors:
    /// `Refused` while programs use it for longer than [`BUSY_MAX`], with their names; it then stays as it is.
    pub fn unmount(&self) -> Result<()> {
        if !self.is_mounted() {
            return Ok(());
        }
        self.check_on_top()?;
        match unmount_idle(&self.point) {
            Ok(()) => {
                self.gone.store(true, Ordering::Release);
                self.wait_for_threads();
                Ok(())
            }
            // Someone else was faster.
            Err(Errno::INVAL) => Ok(()),
            Err(Errno::BUSY) => Err(busy(&self.point)),
            Err(error) => Err(Error::new(
                ErrorKind::Refused,
                format!("cannot unmount {}: {error}; are you root?", self.point.display()),
            )),
        }
    }

    /// Has the kernel write back all that it holds dirty; blocks until that has come here and is durable, at most
    /// [`WRITE_BACK_MAX`] after the kernel has sent it. Errors: `Io`.
    #[allow(clippy::disallowed_methods)] // It blocks its caller, which asked for that, and no thread of the runtime.
    pub fn sync(&self) -> Result<()> {
        let os = |error: Errno| Error::os(format_args!("writing back {}", self.point.display()), &error.into());
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let root = rustix::fs::open(&self.point, flags, Mode::empty()).map_err(os)?;
        rustix::fs::syncfs(&root).map_err(os)?;
        // The kernel has sent the pages and does not wait for the answers: they have come when writing rests.
        let until = Instant::now() + WRITE_BACK_MAX;
        let mut before = self.writes.settled();
        while Instant::now() < until {
            std::thread::sleep(WRITE_BACK_REST);
            let now = self.writes.settled();
            if now.is_some() && now == before {
                return Ok(());
            }
            before = now;
        }
        let late = format!("{}: writes were still coming after {WRITE_BACK_MAX:?}", self.point.display());
        Err(Error::new(ErrorKind::TimedOut, late))
    }

    /// Takes the mount away even if programs use it; what they have open fails from now on. For the end of the
    /// process and for servers that are gone.
    pub fn detach(&self) {
        if !self.is_mounted() || self.gone.swap(true, Ordering::AcqRel) {
            return;
        }
        if self.check_on_top().is_ok()
            && let Err(error) = rustix::mount::unmount(&self.point, UnmountFlags::FORCE | UnmountFlags::DETACH)
        {
            tracing::warn!(point = %self.point.display(), %error, "the mount could not be taken away");
        }
        self.wait_for_threads();
    }

    fn check_on_top(&self) -> Result<()> {
        match holders::mount_on(&self.point) {
            Some(line) if line.device != self.device => Err(Error::new(
                ErrorKind::Refused,
                format!(
                    "cannot unmount {}: {} ({}) is mounted over it; unmount that first",
                    self.point.display(),
                    line.source,
                    line.fstype
                ),
            )),
            _ => Ok(()),
        }
    }

    fn wait_for_threads(&self) {
        let ended = self.ended.lock().expect("nothing panics while it waits for the threads");
        if ended.recv_timeout(THREADS_END).is_err() {
            tracing::debug!(point = %self.point.display(), "request threads outlive their mount: a program keeps it");
        }
    }
}

impl Drop for Mount {
    fn drop(&mut self) {
        self.detach();
    }
}

/// One reader per processor, at least two: one may be taking a first step of some length.
fn readers(threads: usize) -> usize {
    let processors = std::thread::available_parallelism().map_or(2, usize::from);
    if threads > 0 { threads } else { processors.clamp(2, 8) }
}

/// The canonical form of `point` if it may be mounted on. A dead mount of ours is cleared away.
fn check_point(point: &Path, over_content: bool) -> Result<PathBuf> {
    let refused = |text: String| Error::new(ErrorKind::Refused, format!("cannot mount on {}: {text}", point.display()));
    let mut point = canonical(point).map_err(|e| match e.kind() {
        io::ErrorKind::NotFound => refused("there is no such directory; create it or name another".to_owned()),
        _ => refused(e.to_string()),
    })?;
    if is_dead(&point) {
        match holders::mount_on(&point) {
            Some(line) if line.fstype == FSTYPE => {
                tracing::info!(point = %point.display(), "clearing away a mount whose process is gone");
                let _ = rustix::mount::unmount(&point, UnmountFlags::DETACH);
            }
            _ => {
                let text = format!("a dead mount is in the way; run: umount -l {}", point.display());
                return Err(refused(text));
            }
        }
    }
    point = point.canonicalize().map_err(|e| refused(e.to_string()))?;
    let found = fs::metadata(&point).map_err(|e| refused(e.to_string()))?;
    if !found.is_dir() {
        return Err(refused("it is not a directory; name one".to_owned()));
    }
    if let Some(line) = holders::mount_on(&point) {
        let (source, fstype) = (line.source, line.fstype);
        return Err(refused(format!("{source} ({fstype}) is mounted there; unmount it or name another directory")));
    }
    let mut entries = fs::read_dir(&point).map_err(|e| refused(e.to_string()))?;
    if !over_content && entries.next().is_some() {
        return Err(refused("the directory is not empty; name an empty one".to_owned()));
    }
    Ok(point)
}

/// Unmounts `point` once nobody uses it; gives up after [`BUSY_MAX`].
#[allow(clippy::disallowed_methods)] // It blocks its caller, which asked for that, and no thread of the runtime.
fn unmount_idle(point: &Path) -> rustix::io::Result<()> {
    let until = Instant::now() + BUSY_MAX;
    loop {
        match rustix::mount::unmount(point, UnmountFlags::empty()) {
            Err(Errno::BUSY) if Instant::now() < until => std::thread::sleep(BUSY_REST),
            result => return result,
        }
    }
}

fn busy(point: &Path) -> Error {
    let who = holders::describe(point);
    let who = if who.is_empty() { "a process that cannot be seen from here".to_owned() } else { who };
    Error::new(ErrorKind::Refused, format!("{} is in use by {who}; end that and try again", point.display()))
}

/// Unmounts `point`, which another process of Braid serves. Errors: `Refused` while programs use it for longer than
/// [`BUSY_MAX`], with their names, and if it is no mount of Braid.
pub fn unmount(point: &Path) -> Result<()> {
    let refused = |text: String| Error::new(ErrorKind::Refused, format!("cannot unmount {}: {text}", point.display()));
    match holders::mount_on(point) {
        Some(line) if line.fstype == FSTYPE => {}
        _ => return Err(refused("it is no mount of Braid".to_owned())),
    }
    match unmount_idle(point) {
        Ok(()) | Err(Errno::INVAL) => Ok(()),
        Err(Errno::BUSY) => Err(busy(point)),
        Err(error) => Err(refused(format!("{error}; are you root?"))),
    }
}

/// Why a mount of this host cannot take its requests over io_uring, and what to do; `None` if it can. A mount that is
/// asked to all the same goes on over `/dev/fuse`.
pub fn io_uring_refused() -> Option<String> {
    uring::open().err()
}

/// Whether a FUSE mount without a process is on `point`. The kernel may still know the attributes of a dead mount,
/// but never how full it is. Aborted: its process died while it was asked.
pub fn is_dead(point: &Path) -> bool {
    rustix::fs::statfs(point).is_err_and(|error| matches!(error, Errno::NOTCONN | Errno::CONNABORTED))
}

/// Like `canonicalize`, but does not touch the last component, which may be a dead mount.
fn canonical(point: &Path) -> io::Result<PathBuf> {
    match point.canonicalize() {
        Err(error) if error.raw_os_error() == Some(libc::ENOTCONN) => {
            let name = point.file_name().ok_or(error)?;
            let parent = point.parent().filter(|p| !p.as_os_str().is_empty()).unwrap_or(Path::new("."));
            Ok(parent.canonicalize()?.join(name))
        }
        result => result,
    }
}

fn open_fuse() -> Result<OwnedFd> {
    let opened = File::options().read(true).write(true).open("/dev/fuse");
    opened.map(OwnedFd::from).map_err(|error| {
        let text = match error.raw_os_error() {
            Some(libc::ENOENT | libc::ENODEV | libc::ENXIO) => {
                "/dev/fuse is missing: load the kernel module with `modprobe fuse`, or give the container the device \
                 (--device /dev/fuse --cap-add SYS_ADMIN)"
                    .to_owned()
            }
            Some(libc::EACCES | libc::EPERM) => "/dev/fuse may not be opened: run as root".to_owned(),
            _ => format!("/dev/fuse cannot be opened: {error}"),
        };
        Error::new(ErrorKind::Refused, text)
    })
}

/// The mount itself.
fn attach(device: &OwnedFd, point: &Path, options: &Options) -> Result<()> {
    let (uid, gid) = (rustix::process::getuid().as_raw(), rustix::process::getgid().as_raw());
    let fd = device.as_raw_fd();
    let data = format!("fd={fd},rootmode=40000,user_id={uid},group_id={gid},allow_other,default_permissions");
    let data = CString::new(data).expect("numbers and words have no NUL");
    let mut flags = MountFlags::empty();
    flags.set(MountFlags::RDONLY, options.read_only);
    flags.set(MountFlags::NOSUID, options.ignore.suid);
    flags.set(MountFlags::NODEV, options.ignore.dev);
    flags.set(MountFlags::NOEXEC, options.ignore.exec);
    let source = options.source.clone().unwrap_or_else(|| format!("braid:{}", options.name));
    rustix::mount::mount(source, point, FSTYPE, flags, Some(data.as_c_str()) as Option<&CStr>).map_err(|error| {
        let point = point.display();
        let text = match error {
            Errno::PERM | Errno::ACCESS => {
                format!("cannot mount on {point}: this needs root (CAP_SYS_ADMIN)")
            }
            Errno::NODEV => format!("cannot mount on {point}: the kernel has no FUSE; run `modprobe fuse`"),
            error => format!("cannot mount on {point}: {error}"),
        };
        Error::new(ErrorKind::Refused, text)
    })
}

/// The kernel takes at most 128 KiB of readahead by itself; more has to be asked for there. Not vital.
fn set_readahead(device: &str, kib: u32) {
    let path = format!("/sys/class/bdi/{device}/read_ahead_kb");
    if let Err(error) = fs::write(&path, kib.to_string()) {
        tracing::debug!(path, %error, "readahead stays as the kernel chose it");
    }
}
