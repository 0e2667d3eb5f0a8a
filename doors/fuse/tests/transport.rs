//! What the connection to the kernel has to do beyond carrying requests: interrupts, killed processes, requests of odd
//! sizes, kinds of locks, listings, what it does not know.

mod stand;

use std::fs::{self, File, OpenOptions};
use std::io::Write;
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use rustix::fs::{FlockOperation, RawDir};
use rustix::io::Errno;
use rustix::mount::{UnmountFlags, unmount};
use rustix::thread::{CpuSet, sched_setaffinity};
use stand::model::server::Mishap;
use stand::{Stand, all_other_ways, at_last, child, code, role, within_a_second};

fn open(path: &Path) -> File {
    File::options().read(true).write(true).open(path).expect("open")
}

/// What the child of the next test does with a file whose server is silent.
fn ask(role: &str, path: &Path) {
    match role {
        "stat" => drop(fs::metadata(path.with_file_name("other"))),
        "read" => drop(fs::read(path)),
        "write" => drop(open(path).write_all(b"x")),
        "create" => drop(File::create(path.with_file_name("new"))),
        "sync" => drop(open(path).sync_all()),
        "locked" => {
            let file = open(path);
            rustix::fs::fcntl_lock(&file, FlockOperation::LockShared).expect("free");
            File::create(path.with_file_name("locked")).expect("the sign for the parent");
            let _ = rustix::fs::fcntl_lock(open(&path.with_file_name("wanted")), FlockOperation::LockExclusive);
        }
        other => panic!("{other} is no role"),
    }
}

#[test]
fn the_guard_of_a_mount() {
    stand::be_guard();
}

#[test]
fn killed_processes_do_not_wait_for_a_silent_server() {
    if let Some((role, path)) = role() {
        return ask(&role, &path);
    }
    let Some(mut stand) = Stand::new("silent") else { return };
    let at = stand.mount("m");
    let path = at.join("d/f");
    fs::create_dir(at.join("d")).expect("mkdir");
    fs::write(&path, b"12345").expect("write");
    let start = |role| child("killed_processes_do_not_wait_for_a_silent_server", role, &path);
    // Every other question is heard and its answer lost.
    let lose = [Mishap::LoseRequest, Mishap::LoseAnswer];
    let silence = |count| stand.world.server.state().mishaps.extend(lose.into_iter().cycle().take(count));
    let lost = || stand.world.server.state().mishaps.len();
    for role in ["stat", "read", "write", "create", "sync"] {
        silence(1_000);
        let mut child = start(role);
        assert!(at_last(|| lost() < 1_000), "{role}: it asks");
        assert_eq!(child.try_wait().expect("wait"), None);
        child.kill().expect("kill");
        // Well before the deadline of 30 s.
        assert!(at_last(|| child.try_wait().expect("wait").is_some()), "{role}: it cannot be killed");
        stand.world.server.state().mishaps.clear();
    }
    // Also when it has locks, which its end gives up without an answer.
    fs::write(at.join("d/wanted"), b"").expect("write");
    let wanted = open(&at.join("d/wanted"));
    rustix::fs::fcntl_lock(&wanted, FlockOperation::LockExclusive).expect("free");
    let mut child = start("locked");
    let asked = || stand.world.server.state().log.iter().filter(|(_, op, _)| op == "Lock").count();
    assert!(at_last(|| at.join("d/locked").exists() && asked() >= 3), "it has one lock and waits for another");
    silence(1_000);
    child.kill().expect("kill");
    assert!(at_last(|| child.try_wait().expect("wait").is_some()), "it cannot be killed while it closes its files");
    stand.world.server.state().mishaps.clear();
    fs::write(&path, b"and it goes on").expect("write");
    drop(wanted);
    // What was opened or locked for those who did not live to hear it was given back.
    let idle = |s: &stand::model::server::State| s.locks.is_empty() && s.nodes.values().all(|node| node.opens == 0);
    assert!(at_last(|| idle(&stand.world.server.state())));
}

/// Serves two mounts in `dir` until it is killed: a program waits for it in the directory `d` of `b`, and a thread that has the
/// kernel forget a name there waits for the program.
fn serve_and_be_stuck(dir: &Path) -> ! {
    let mut stand = Stand::new("stuck").expect("root");
    stand.dir = dir.to_owned();
    let (a, b) = (stand.mount("a"), stand.mount("b"));
    fs::create_dir(a.join("d")).expect("mkdir");
    fs::write(a.join("d/y"), b"").expect("write");
    assert!(fs::metadata(b.join("d/y")).is_ok());
    stand.world.server.asked();
    stand.world.server.state().silent = Some("Create");
    fs::write(dir.join("ready"), b"").expect("the sign for the parent");
    assert!(at_last(|| stand.world.server.asked().contains(&"Create".to_owned())), "the program asks");
    drop(fs::remove_file(a.join("d/y")));
    panic!("the other mount heard that a name is gone");
}

#[test]
fn a_killed_server_leaves_nobody_waiting() {
    if let Some((_, path)) = role() {
        serve_and_be_stuck(&path);
    }
    let Some(stand) = Stand::new("stuck") else { return };
    fs::create_dir_all(&stand.dir).expect("mkdir");
    let mut server = child("a_killed_server_leaves_nobody_waiting", "server", &stand.dir);
    assert!(at_last(|| stand.dir.join("ready").exists()), "it serves");
    let asked = stand.dir.join("b/d/x");
    let program = std::thread::spawn(move || code(fs::create_dir(asked)));
    let waits = |task: fs::DirEntry| {
        let stat = fs::read_to_string(task.path().join("stat")).unwrap_or_default();
        stat.contains("(fuse-names-") && stat.contains(") D ")
    };
    let tasks = format!("/proc/{}/task", server.id());
    let stuck = at_last(|| fs::read_dir(&tasks).is_ok_and(|mut all| all.any(|task| task.is_ok_and(waits))));
    server.kill().expect("kill");
    let ended = at_last(|| server.try_wait().expect("wait").is_some() && program.is_finished());
    for name in ["a", "b"] {
        let _ = unmount(stand.dir.join(name), UnmountFlags::FORCE | UnmountFlags::DETACH);
    }
    assert!(stuck, "a thread waits for the program");
    assert!(ended, "the process or the program that it served hangs");
    assert_eq!(program.join().expect("no panic"), Some(libc::ECONNABORTED));
}

#[test]
fn requests_of_any_size_arrive_whole() {
    let Some(mut stand) = Stand::new("sizes") else { return };
    let at = stand.mount("m");
    let data: Vec<u8> = (0..5_000_011u32).map(|i| (i.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
    let sizes = [1, 39, 40, 41, 4_095, 4_097, 65_537, 262_143, 262_144, 262_145, 1_048_575, 1_048_576, 1_048_577];
    let mut options = OpenOptions::new();
    options.read(true).write(true).create(true).custom_flags(libc::O_DIRECT);
    for (name, direct) in [("cached", false), ("direct", true)] {
        let path = at.join(name);
        if !direct {
            fs::write(&path, b"").expect("write");
        }
        let file = if direct { options.open(&path).expect("open") } else { open(&path) };
        let mut off = 0;
        let mut next = sizes.into_iter().cycle();
        while off < data.len() {
            let size = next.next().unwrap_or(1).min(data.len() - off);
            file.write_all_at(&data[off..off + size], off as u64).expect("write");
            off += size;
        }
        let mut back = vec![0; off];
        let mut read = 0;
        let mut next = sizes.into_iter().rev().cycle();
        while read < off {
            let piece = next.next().unwrap_or(1).min(off - read);
            file.read_exact_at(&mut back[read..read + piece], read as u64).expect("read");
            read += piece;
        }
        assert!(back == data[..off], "{name}");
    }
    // A name and a target that are longer than what a reader looks at first.
    let target = "t".repeat(4_000);
    std::os::unix::fs::symlink(&target, at.join("s".repeat(255))).expect("symlink");
    assert_eq!(fs::read_link(at.join("s".repeat(255))).expect("readlink").as_os_str().len(), 4_000);
}

#[test]
fn listings_of_any_size_are_whole() {
    let Some(mut stand) = Stand::new("listed") else { return };
    let dir = stand.mount("m").join("d");
    fs::create_dir(&dir).expect("mkdir");
    for i in 0..600 {
        fs::write(dir.join(format!("{i:0>width$}", width = 1 + i % 255)), vec![0; i]).expect("create");
    }
    // With attributes, as `ls -l` asks for them.
    let mut lens: Vec<u64> = fs::read_dir(&dir)
        .expect("readdir")
        .map(|entry| entry.expect("entry").metadata().expect("stat").len())
        .collect();
    lens.sort_unstable();
    assert!(lens == (0..600).collect::<Vec<_>>());
    // In pieces of any size.
    for room in [512, 4_096, 40_000, 300_000] {
        let mut names = std::collections::BTreeSet::new();
        let mut buffer = Vec::with_capacity(room);
        let file = File::open(&dir).expect("open");
        let mut raw = RawDir::new(&file, buffer.spare_capacity_mut());
        while let Some(entry) = raw.next() {
            assert!(names.insert(entry.expect("entry").file_name().to_bytes().to_vec()), "listed twice");
        }
        assert_eq!(names.len(), 602, "{room}");
    }
}

#[test]
fn flock_and_fcntl_are_two_kinds() {
    let Some(mut stand) = Stand::new("kinds") else { return };
    let (a, b) = (stand.mount("a"), stand.mount("b"));
    fs::write(a.join("f"), b"").expect("write");
    let (one, two) = (open(&a.join("f")), open(&b.join("f")));
    let flock = |file: &File, how| rustix::fs::flock(file, how);
    flock(&one, FlockOperation::LockExclusive).expect("free");
    assert_eq!(flock(&two, FlockOperation::NonBlockingLockShared), Err(Errno::AGAIN), "over both mounts");
    let again = open(&a.join("f"));
    assert_eq!(flock(&again, FlockOperation::NonBlockingLockShared), Err(Errno::AGAIN), "over two opens");
    rustix::fs::fcntl_lock(&two, FlockOperation::NonBlockingLockExclusive).expect("the other kind");
    drop(again);
    assert_eq!(flock(&two, FlockOperation::NonBlockingLockShared), Err(Errno::AGAIN), "closing another one keeps it");
    // A signal ends the wait: `flock` of util-linux sets itself an alarm.
    let waits = || Command::new("flock").args(["-w", "0.2"]).arg(b.join("f")).arg("true").status().expect("flock");
    assert!(!waits().success());
    drop(one);
    assert!(at_last(|| flock(&two, FlockOperation::NonBlockingLockShared).is_ok()), "closing gives it up");
    drop(two);
    assert!(at_last(|| stand.world.server.state().locks.is_empty()) && waits().success());
    // Who waits can be killed.
    let held = open(&a.join("f"));
    flock(&held, FlockOperation::LockExclusive).expect("free");
    let asked = || stand.world.server.state().log.iter().filter(|(_, op, _)| op == "Lock").count();
    let before = asked();
    let mut waiter = Command::new("flock").arg(b.join("f")).arg("true").spawn().expect("flock");
    assert!(at_last(|| asked() > before), "it waits");
    waiter.kill().expect("kill");
    assert!(within_a_second(|| waiter.try_wait().expect("wait").is_some()), "it cannot be killed");
}

#[test]
fn set_id_bits_go_when_the_kernel_says_so() {
    let Some(mut stand) = Stand::new("bits") else { return };
    let path = stand.mount("m").join("f");
    let mode = |path: &Path| fs::metadata(path).expect("stat").mode() & 0o7777;
    fs::write(&path, b"12345").expect("write");
    let set = || {
        std::os::unix::fs::chown(&path, Some(1_000), Some(1_000)).expect("chown");
        fs::set_permissions(&path, PermissionsExt::from_mode(0o6777)).expect("chmod");
    };
    set();
    open(&path).set_len(3).expect("cut");
    assert_eq!(mode(&path), 0o6777, "root may keep them");
    let cut = Command::new("truncate").args(["-s", "2"]).arg(&path).uid(1_000).gid(1_000).status().expect("truncate");
    assert!(cut.success() && mode(&path) == 0o777, "its owner may not");
    set();
    let without = ["--bounding-set", "-fsetid", "--inh-caps", "-fsetid", "truncate", "-s", "1"];
    let cut = Command::new("setpriv").args(without).arg(&path).status().expect("setpriv");
    assert!(cut.success() && mode(&path) == 0o777, "nor root without the right to");
}

#[test]
fn what_is_not_known_is_refused() {
    let Some(mut stand) = Stand::new("unknown") else { return };
    let at = stand.mount("m");
    let nameless = OpenOptions::new().write(true).custom_flags(libc::O_TMPFILE).open(&at);
    assert_eq!(code(nameless), Some(libc::EOPNOTSUPP), "ENOSYS to the kernel, and this to the program");
    fs::write(at.join("f"), b"x").expect("the mount goes on");
}

#[test]
fn those_who_wait_keep_nobody_out() {
    let Some(mut stand) = Stand::new("crowd") else { return };
    let path = stand.mount("m").join("f");
    fs::write(&path, b"12345").expect("write");
    let held = open(&path);
    rustix::fs::flock(&held, FlockOperation::LockExclusive).expect("free");
    let asked = || stand.world.server.state().log.iter().filter(|(_, op, _)| op == "Lock").count();
    let before = asked();
    // All on one processor, and more than a queue has trays at the start.
    let (crowd, path) = (150, &path);
    std::thread::scope(|scope| {
        let wait = || {
            let mut one = CpuSet::new();
            one.set(0);
            let _ = sched_setaffinity(None, &one);
            rustix::fs::flock(open(path), FlockOperation::LockShared)
        };
        // A queue over io_uring has 32 trays free, and those that it adds take nothing that was asked before.
        let some = |already| {
            let waiters: Vec<_> = (0..30).map(|_| scope.spawn(wait)).collect();
            (at_last(|| asked() >= before + already + waiters.len()), waiters)
        };
        let mut waiters = Vec::new();
        while waiters.len() < crowd {
            let (all_wait, more) = some(waiters.len());
            waiters.extend(more);
            if !all_wait {
                rustix::fs::flock(&held, FlockOperation::Unlock).expect("unlock");
            }
            assert!(all_wait, "they wait");
        }
        assert_eq!(fs::read(path).expect("read"), b"12345");
        rustix::fs::flock(&held, FlockOperation::Unlock).expect("unlock");
        assert!(waiters.into_iter().all(|waiter| waiter.join().is_ok_and(|got| got.is_ok())));
    });
}

#[test]
#[allow(clippy::disallowed_methods)] // A test may look at the clock.
fn a_mount_taken_away_by_force_ends_what_waits() {
    let Some(mut stand) = Stand::new("force") else { return };
    let path = stand.mount("m").join("f");
    fs::write(&path, b"12345").expect("write");
    let held = open(&path);
    rustix::fs::flock(&held, FlockOperation::LockExclusive).expect("free");
    let asked = || stand.world.server.state().log.iter().filter(|(_, op, _)| op == "Lock").count();
    let (before, wanted) = (asked(), open(&path));
    let waiter = std::thread::spawn(move || rustix::fs::flock(&wanted, FlockOperation::LockExclusive));
    assert!(at_last(|| asked() > before), "it waits");
    let begin = Instant::now();
    stand.held[0].detach();
    // It waits 5 s for threads that do not end.
    assert!(begin.elapsed() < Duration::from_secs(4), "the threads go on");
    assert!(waiter.join().is_ok_and(|got| got.is_err()), "the lock was given by nobody");
}

#[test]
fn the_same_the_other_ways() {
    all_other_ways("the_same_the_other_ways");
}
