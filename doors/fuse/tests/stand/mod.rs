//! A cluster that lives in memory, mounted. Needs root and `/dev/fuse`; without root the tests say so and pass, because
//! only root may mount.

#![allow(dead_code)] // Each test program uses a part of it.

#[path = "../../../../core/client/tests/client/model/mod.rs"]
pub mod model;

use std::fs;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use braid_base::ids::{ClientId, DriveId, FsId, PartitionId};
use braid_base::msg::drive::{DriveOp, DriveResult};
use braid_base::msg::fs::Request;
use braid_base::msg::lease::Answer;
use braid_client::session::Patience;
use braid_client::{BoxFuture, Fs, Session, Wire};
use braid_fuse::{Mount, Mounts, Options};
use model::{World, root};

/// The model with real time.
struct Live {
    world: Arc<World>,
    start: Instant,
}

impl Wire for Live {
    fn partition(&self, p: PartitionId, req: Request) -> BoxFuture<Answer> {
        self.world.partition(p, req)
    }

    fn drive(&self, d: DriveId, op: DriveOp) -> BoxFuture<DriveResult> {
        self.world.drive(d, op)
    }

    fn sleep_ms(&self, ms: u64) -> BoxFuture<()> {
        Box::pin(tokio::time::sleep(Duration::from_millis(ms)))
    }

    fn partitions(&self) -> u16 {
        self.world.partitions
    }

    fn now_ms(&self) -> u64 {
        self.start.elapsed().as_millis() as u64
    }
}

/// A file system with mounts in a directory of its own; all of it goes at the end, also after a failure.
pub struct Stand {
    pub mounts: Mounts,
    pub held: Vec<Mount>,
    pub dir: PathBuf,
    pub world: Arc<World>,
    _runtime: tokio::runtime::Runtime,
}

impl Stand {
    /// `None` without the right to mount.
    pub fn new(name: &str) -> Option<Self> {
        if !rustix::process::geteuid().is_root() {
            eprintln!("{name}: skipped, only root may mount");
            return None;
        }
        // One worker takes the requests, too.
        let workers = if std::env::var_os(ON_RUNTIME).is_some() { 1 } else { 2 };
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(workers).enable_all().build();
        let runtime = runtime.expect("a runtime");
        let world = World::new(3);
        #[allow(clippy::disallowed_methods)] // A test may look at the clock.
        let live = Live { world: world.clone(), start: Instant::now() };
        // A question that gets lost is asked again soon, so that tests need not wait.
        let patience = Patience { attempt_ms: 2_000, ..Patience::default() };
        let fs = Fs::new(Session::with_patience(Arc::new(live), ClientId(1), patience), FsId(1), root());
        runtime.block_on(fs.make_root(0o755)).expect("a root directory");
        let dir = std::env::temp_dir().join(format!("braid-fuse-{name}-{}", std::process::id()));
        let mounts = Mounts::new(fs, runtime.handle().clone()).alone().guarded(guard);
        Some(Self { mounts, held: Vec::new(), dir, world, _runtime: runtime })
    }

    pub fn mount(&mut self, name: &str) -> PathBuf {
        self.mount_with(name, Options::new("test"))
    }

    pub fn mount_with(&mut self, name: &str, options: Options) -> PathBuf {
        let point = self.dir.join(name);
        fs::create_dir_all(&point).expect("a mount point");
        let io_uring = std::env::var_os(OVER_URING).is_some();
        let options = Options { io_uring, ..options };
        self.held.push(self.mounts.mount(&point, &options).expect("it mounts"));
        // Answered by whoever takes the requests.
        assert!(fs::metadata(&point).is_ok_and(|root| root.is_dir()));
        match std::env::var_os(ON_RUNTIME) {
            Some(_) => assert!(!has_thread("fuse-reader-1"), "a runtime of one worker takes the requests"),
            None => assert!(io_uring || at_last(|| has_thread("fuse-reader-1")), "threads take the requests"),
        }
        assert!(!io_uring || at_last(|| has_thread("fuse-ring-0")), "the kernel does not use the rings");
        point
    }
}

impl Drop for Stand {
    fn drop(&mut self) {
        self.held.clear();
        let _ = fs::remove_dir_all(&self.dir);
    }
}

/// In the environment: mount with requests over io_uring; have them taken by a runtime.
const OVER_URING: &str = "BRAID_OVER_URING";
const ON_RUNTIME: &str = "BRAID_ON_RUNTIME";
const ENABLED: &str = "/sys/module/fuse/parameters/enable_uring";

/// Whether this process has a thread called `name`.
fn has_thread(name: &str) -> bool {
    let named = |entry: fs::DirEntry| fs::read_to_string(entry.path().join("comm")).is_ok_and(|is| is.trim() == name);
    fs::read_dir("/proc/self/task").is_ok_and(|mut tasks| tasks.any(|entry| entry.is_ok_and(named)))
}

/// Runs the other tests of this program once more on a runtime, and once more over io_uring if this host has it.
pub fn all_other_ways(this: &str) {
    if std::env::var_os(OVER_URING).is_some() || std::env::var_os(ON_RUNTIME).is_some() {
        return;
    }
    let again = |way: &str| {
        let mut again = Command::new(std::env::current_exe().expect("this program"));
        let all = again.args(["--skip", this]).env(way, "1").status().expect("the tests again");
        all.success()
    };
    assert!(again(ON_RUNTIME), "on a runtime");
    let is_on = || fs::read_to_string(ENABLED).is_ok_and(|said| said.trim() == "Y");
    let was_on = is_on();
    if !was_on && (fs::write(ENABLED, "1").is_err() || !is_on()) {
        eprintln!("{this}: not over io_uring, {ENABLED} is not there or cannot be switched on");
        return;
    }
    let went_well = again(OVER_URING);
    if !was_on {
        fs::write(ENABLED, "0").expect("it was just written to");
    }
    assert!(went_well, "over io_uring");
}

/// Whether `check` comes true well before cached attributes expire by themselves.
pub fn soon(check: impl FnMut() -> bool) -> bool {
    comes_true(30, check)
}

/// Whether `check` comes true while a person would not yet notice.
pub fn within_a_second(check: impl FnMut() -> bool) -> bool {
    comes_true(100, check)
}

/// Whether `check` comes true at all.
pub fn at_last(check: impl FnMut() -> bool) -> bool {
    comes_true(1_000, check)
}

fn comes_true(turns: usize, mut check: impl FnMut() -> bool) -> bool {
    for _ in 0..turns {
        if check() {
            return true;
        }
        #[allow(clippy::disallowed_methods)] // A test may sleep.
        std::thread::sleep(Duration::from_millis(10));
    }
    false
}

pub fn code(result: std::io::Result<impl Sized>) -> Option<i32> {
    result.err().and_then(|error| error.raw_os_error())
}

/// This program once more, as a guard.
fn guard() -> Command {
    let mut guard = Command::new(std::env::current_exe().expect("this program"));
    guard.args(["--exact", "the_guard_of_a_mount"]).env("BRAID_CHILD", GUARD);
    guard
}

const GUARD: &str = "guard";

/// What the test of that name does.
pub fn be_guard() {
    if role().is_some_and(|(role, _)| role == GUARD) {
        let pid = std::env::args().next_back().and_then(|word| word.parse().ok()).expect("a process to guard");
        braid_fuse::guard(pid).expect("guarded");
    }
}

/// This program once more, to do what test `name` does as a child: `role` and a path are in its environment.
pub fn child(name: &str, role: &str, path: &std::path::Path) -> Child {
    let mut child = Command::new(std::env::current_exe().expect("this program"));
    child.args(["--exact", name]).env("BRAID_CHILD", role).env("BRAID_PATH", path).stdout(Stdio::null());
    child.spawn().expect("a child")
}

/// Role and path, in a child.
pub fn role() -> Option<(String, PathBuf)> {
    Some((std::env::var("BRAID_CHILD").ok()?, std::env::var_os("BRAID_PATH").unwrap_or_default().into()))
}
