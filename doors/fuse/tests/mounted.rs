//! Mounts a cluster that lives in memory and uses it as any program would.
//!
//! Needs root and `/dev/fuse`; without root the tests say so and pass, because only root may mount.

mod stand;

use std::ffi::OsStr;
use std::fs::{self, File, OpenOptions};
use std::io::{ErrorKind, Read, Seek, SeekFrom, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, FileTypeExt, MetadataExt, OpenOptionsExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;

use braid_fuse::Options;
use rustix::fs::{AtFlags, CWD, FallocateFlags, FileType, FlockOperation, Mode, RenameFlags, XattrFlags};
use rustix::io::Errno;
use stand::model::server::Mishap;
use stand::{Stand, all_other_ways, at_last, child, code, role, soon, within_a_second};

#[test]
fn the_guard_of_a_mount() {
    stand::be_guard();
}

#[test]
fn files_are_made_written_read_and_removed() {
    let Some(mut stand) = Stand::new("files") else { return };
    let at = stand.mount("m");
    let data: Vec<u8> = (0..3_000_000u32).map(|i| ((i * 31) >> 3) as u8).collect();
    fs::write(at.join("a"), &data).expect("write");
    assert!(fs::read(at.join("a")).expect("read") == data);
    // O_EXCL, O_TRUNC, O_APPEND
    let exclusive = OpenOptions::new().write(true).create_new(true).open(at.join("a"));
    assert_eq!(code(exclusive), Some(libc::EEXIST));
    File::create(at.join("a")).expect("truncate");
    assert_eq!(fs::metadata(at.join("a")).expect("stat").len(), 0);
    let append = || OpenOptions::new().append(true).open(at.join("a")).expect("open");
    let (mut one, mut two) = (append(), append());
    one.write_all(b"one").expect("append");
    two.write_all(b"two").expect("append");
    one.write_all(b"three").expect("append");
    assert_eq!(fs::read(at.join("a")).expect("read"), b"onetwothree");
    // Direct I/O, at any alignment that the kernel lets through.
    let mut options = OpenOptions::new();
    options.read(true).write(true).create(true).truncate(true).custom_flags(libc::O_DIRECT);
    let direct = options.open(at.join("direct")).expect("open");
    direct.write_all_at(&data[..8192], 4096).expect("direct write");
    let mut back = vec![1; 12_288];
    direct.read_exact_at(&mut back, 0).expect("direct read");
    assert!(back[..4096].iter().all(|b| *b == 0) && back[4096..] == data[..8192]);
    // Content outlives the last name while it is open.
    let mut open = OpenOptions::new().read(true).write(true).open(at.join("a")).expect("open");
    fs::remove_file(at.join("a")).expect("unlink");
    open.seek(SeekFrom::End(0)).expect("seek");
    open.write_all(b"!").expect("write to an unlinked file");
    open.rewind().expect("seek");
    let mut text = String::new();
    open.read_to_string(&mut text).expect("read an unlinked file");
    assert_eq!(text, "onetwothree!");
    assert_eq!(open.metadata().expect("fstat").nlink(), 0);
    drop((open, one, two));
    assert!(at_last(|| stand.world.server.state().nodes.values().all(|n| n.attr.nlink > 0)), "the content was freed");
    assert!(
        at_last(|| stand.world.server.state().nodes.values().all(|n| n.opens == u32::from(n.attr.size == 12_288))),
        "references were given back"
    );
}

#[test]
fn names_of_every_kind() {
    let Some(mut stand) = Stand::new("names") else { return };
    let at = stand.mount("m");
    fs::create_dir(at.join("d")).expect("mkdir");
    fs::write(at.join("d/f"), b"x").expect("write");
    assert_eq!(code(fs::remove_dir(at.join("d"))), Some(libc::ENOTEMPTY));
    fs::hard_link(at.join("d/f"), at.join("g")).expect("link");
    assert_eq!(fs::metadata(at.join("g")).expect("stat").nlink(), 2);
    symlink("d/f", at.join("s")).expect("symlink");
    assert_eq!(fs::read_link(at.join("s")).expect("readlink"), Path::new("d/f"));
    assert_eq!(fs::read(at.join("s")).expect("through the link"), b"x");
    let node = |name: &str, kind, dev| rustix::fs::mknodat(CWD, at.join(name), kind, Mode::from(0o600), dev);
    node("fifo", FileType::Fifo, 0).expect("mknod");
    node("null", FileType::CharacterDevice, rustix::fs::makedev(1, 3)).expect("mknod");
    assert!(fs::metadata(at.join("fifo")).expect("stat").file_type().is_fifo());
    assert_eq!(fs::metadata(at.join("null")).expect("stat").rdev(), rustix::fs::makedev(1, 3));
    File::options().write(true).open(at.join("null")).expect("device").write_all(b"gone").expect("/dev/null");
    // Long names, and how they are listed.
    let long = "n".repeat(255);
    fs::write(at.join(&long), b"").expect("255 bytes");
    assert_eq!(code(fs::write(at.join("n".repeat(256)), b"")), Some(libc::ENAMETOOLONG));
    // Renames.
    let rename = |from: &str, to: &str, flags| rustix::fs::renameat_with(CWD, at.join(from), CWD, at.join(to), flags);
    assert_eq!(rename("g", "s", RenameFlags::NOREPLACE), Err(Errno::EXIST));
    rename("g", "s", RenameFlags::EXCHANGE).expect("exchange");
    assert!(fs::symlink_metadata(at.join("g")).expect("stat").file_type().is_symlink());
    rename("s", "d/f2", RenameFlags::empty()).expect("rename");
    rename("d/f2", "d/f", RenameFlags::empty()).expect("two names of one file");
    // Parents, through the kernel and by handle-like lookups.
    let ino = |path: &Path| fs::metadata(path).expect("stat").ino();
    assert_eq!(ino(&at), 1, "the root is number 1");
    assert_eq!(ino(&at.join("d/..")), 1);
    // Listings: many names, stable cookies while the directory changes.
    fs::create_dir(at.join("many")).expect("mkdir");
    (0..3000).for_each(|i| fs::write(at.join(format!("many/file-{i}")), b"").expect("create"));
    let mut seen = 0;
    for entry in fs::read_dir(at.join("many")).expect("readdir") {
        seen += 1;
        fs::remove_file(entry.expect("entry").path()).expect("remove while listing");
    }
    assert_eq!(seen, 3000);
    fs::remove_dir(at.join("many")).expect("it is empty now");
    let dot = |name: &str| {
        let list = rustix::fs::Dir::read_from(File::open(&at).expect("open")).expect("dir");
        list.flatten().find(|e| e.file_name().to_bytes() == name.as_bytes()).map(|e| e.ino())
    };
    assert_eq!((dot("."), dot("..")), (Some(1), Some(1)));
}

#[test]
fn attributes_times_and_extended_ones() {
    let Some(mut stand) = Stand::new("attrs") else { return };
    let at = stand.mount("m");
    let path = at.join("f");
    fs::write(&path, b"12345").expect("write");
    fs::set_permissions(&path, PermissionsExt::from_mode(0o4755)).expect("chmod");
    std::os::unix::fs::chown(&path, Some(12), Some(34)).expect("chown");
    let meta = fs::metadata(&path).expect("stat");
    assert_eq!((meta.mode() & 0o7777, meta.uid(), meta.gid()), (0o755, 12, 34), "chown takes the set-uid bit");
    for (sec, nsec) in [(1_600_000_000, 123_456_789), (-2, 300), (0, 0)] {
        let time = rustix::fs::Timespec { tv_sec: sec, tv_nsec: nsec };
        let times = rustix::fs::Timestamps { last_access: time, last_modification: time };
        rustix::fs::utimensat(CWD, &path, &times, AtFlags::empty()).expect("utimens");
        let meta = fs::metadata(&path).expect("stat");
        assert_eq!((meta.mtime(), meta.mtime_nsec()), (sec, nsec));
        assert_eq!((meta.atime(), meta.atime_nsec()), (sec, nsec));
    }
    // relatime: a read after the change moves atime, and leaves ctime alone.
    let before = fs::metadata(&path).expect("stat");
    fs::read(&path).expect("read");
    assert!(at_last(|| fs::metadata(&path).expect("stat").atime() > before.atime()), "the first read moves atime");
    let set = |name: &str, value: &[u8], flags| rustix::fs::setxattr(&path, name, value, flags);
    set("user.a", b"value", XattrFlags::CREATE).expect("set");
    assert_eq!(set("user.a", b"", XattrFlags::CREATE), Err(Errno::EXIST));
    assert_eq!(set("user.b", b"", XattrFlags::REPLACE), Err(Errno::NODATA));
    set("user.big", &vec![7; 65_536], XattrFlags::empty()).expect("64 KiB");
    let get = |name: &str, buf: &mut [u8]| rustix::fs::getxattr(&path, name, buf);
    assert_eq!(rustix::fs::getxattr_query(&path, "user.a"), Ok(5), "no buffer asks for the size");
    assert_eq!(get("user.a", &mut [0; 3]), Err(Errno::RANGE));
    let mut value = [0; 16];
    assert_eq!(get("user.a", &mut value).map(|n| value[..n].to_vec()), Ok(b"value".to_vec()));
    assert_eq!(get("user.none", &mut value), Err(Errno::NODATA));
    let mut names = [0u8; 64];
    let len = rustix::fs::listxattr(&path, &mut names).expect("list");
    assert_eq!(&names[..len], b"user.a\0user.big\0");
    rustix::fs::removexattr(&path, "user.a").expect("remove");
    let space = rustix::fs::statvfs(&at).expect("statvfs");
    assert!(space.f_blocks > 0 && space.f_bavail <= space.f_blocks && space.f_namemax == 255 && space.f_files > 0);
}

#[test]
fn ranges_holes_and_copies() {
    let Some(mut stand) = Stand::new("ranges") else { return };
    let at = stand.mount("m");
    let file = File::options().read(true).write(true).create(true).truncate(false).open(at.join("f")).expect("open");
    file.write_all_at(&[5; 10_000], 1 << 40).expect("a terabyte on");
    assert_eq!(rustix::fs::seek(&file, rustix::fs::SeekFrom::Data(0)), Ok(1 << 40));
    assert_eq!(rustix::fs::seek(&file, rustix::fs::SeekFrom::Hole(1 << 40)), Ok((1 << 40) + 10_000));
    assert_eq!(rustix::fs::seek(&file, rustix::fs::SeekFrom::Data((1 << 40) + 10_000)), Err(Errno::NXIO));
    let punch = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
    rustix::fs::fallocate(&file, punch, 1 << 40, 5_000).expect("punch");
    let mut bytes = [1; 10_000];
    file.read_exact_at(&mut bytes, 1 << 40).expect("read");
    assert!(bytes[..5_000].iter().all(|b| *b == 0) && bytes[5_000..].iter().all(|b| *b == 5));
    assert_eq!(rustix::fs::fallocate(&file, FallocateFlags::COLLAPSE_RANGE, 0, 4096), Err(Errno::OPNOTSUPP));
    file.set_len(100).expect("cut");
    file.set_len(200).expect("extend");
    assert_eq!(fs::read(at.join("f")).expect("read"), [0; 200]);
    fs::write(at.join("src"), vec![9; 100_000]).expect("write");
    let (src, dst) = (File::open(at.join("src")).expect("open"), File::create(at.join("dst")).expect("create"));
    let (mut from, mut to) = (10, 20);
    let copied = rustix::fs::copy_file_range(&src, Some(&mut from), &dst, Some(&mut to), 1 << 20).expect("copy");
    assert_eq!(copied, 99_990);
    assert_eq!(fs::metadata(at.join("dst")).expect("stat").len(), 20 + 99_990);
    let too_far = file.write_at(b"x", braid_base::limits::FILE_MAX);
    assert_eq!(code(too_far), Some(libc::EFBIG));
}

#[test]
fn two_mounts_see_each_other() {
    let Some(mut stand) = Stand::new("two") else { return };
    let (a, b) = (stand.mount("a"), stand.mount("b"));
    fs::write(a.join("f"), b"first").expect("write");
    let held = File::open(b.join("f")).expect("open through the other");
    let read = || {
        let mut text = [0; 32];
        let n = held.read_at(&mut text, 0).expect("read");
        text[..n].to_vec()
    };
    assert_eq!(read(), b"first");
    fs::write(a.join("f"), b"second").expect("write");
    assert!(soon(|| read() == b"second"), "pages that the other kernel side held are dropped");
    assert_eq!(fs::metadata(b.join("f")).expect("stat").len(), 6);
    fs::set_permissions(a.join("f"), PermissionsExt::from_mode(0o600)).expect("chmod");
    assert!(soon(|| fs::metadata(b.join("f")).expect("stat").mode() & 0o777 == 0o600));
    fs::rename(a.join("f"), a.join("g")).expect("rename");
    assert!(soon(|| !b.join("f").exists() && b.join("g").exists()));
    // Appends through both mounts never overwrite each other.
    let append = |at: &Path| OpenOptions::new().append(true).open(at.join("g")).expect("open");
    let (mut one, mut two) = (append(&a), append(&b));
    for _ in 0..20 {
        one.write_all(b"1").expect("append");
        two.write_all(b"2").expect("append");
    }
    assert!(soon(|| fs::read(a.join("g")).expect("read") == *format!("second{}", "12".repeat(20)).as_bytes()));
}

#[test]
fn record_locks_hold_between_processes() {
    if let Some((_, path)) = role() {
        let file = File::options().read(true).write(true).open(path).expect("open");
        let now = rustix::fs::fcntl_lock(&file, FlockOperation::NonBlockingLockExclusive);
        assert!(matches!(now, Err(Errno::AGAIN | Errno::ACCESS)), "the parent holds it: {now:?}");
        rustix::fs::fcntl_lock(&file, FlockOperation::LockExclusive).expect("it comes when the parent lets go");
        return;
    }
    let Some(mut stand) = Stand::new("locks") else { return };
    let path = stand.mount("m").join("f");
    fs::write(&path, b"").expect("write");
    let file = File::options().read(true).write(true).open(&path).expect("open");
    rustix::fs::fcntl_lock(&file, FlockOperation::LockExclusive).expect("free");
    let child = || child("record_locks_hold_between_processes", "waiter", &path);
    let (mut waits, mut killed) = (child(), child());
    let waiting = || stand.world.server.state().log.iter().filter(|(_, op, _)| op == "Lock").count();
    assert!(at_last(|| waiting() >= 5), "both children wait");
    assert_eq!(waits.try_wait().expect("wait"), None);
    // A process that waits for a lock can be killed.
    killed.kill().expect("kill");
    assert!(within_a_second(|| killed.try_wait().expect("wait").is_some()), "it cannot be killed");
    rustix::fs::fcntl_lock(&file, FlockOperation::Unlock).expect("unlock");
    assert!(waits.wait().expect("wait").success(), "the other child got the lock");
    assert!(at_last(|| stand.world.server.state().locks.is_empty()), "its exit gave the lock up");
}

#[test]
fn what_is_in_the_way_is_named() {
    let Some(mut stand) = Stand::new("wrong") else { return };
    let point = stand.mount("m");
    let dir = stand.dir.clone();
    let why = |path: &Path| match stand.mounts.mount(path, &Options::new("test")) {
        Ok(_) => panic!("{} was mounted on", path.display()),
        Err(error) => error.message().to_owned(),
    };
    assert!(why(&dir.join("none")).contains("no such directory"));
    fs::write(dir.join("file"), b"").expect("write");
    assert!(why(&dir.join("file")).contains("not a directory"));
    assert!(why(&dir).contains("not empty"));
    let taken = why(&point);
    assert!(taken.contains("braid:test") && taken.contains("unmount it"), "{taken}");
    let held = File::create(point.join("held")).expect("create");
    let mount = stand.held.pop().expect("the mount");
    let busy = mount.unmount().expect_err("a file is open").message().to_owned();
    assert!(busy.contains(&format!("pid {}", std::process::id())) && busy.contains("held"), "{busy}");
    assert!(!busy.contains('\n') && mount.is_mounted() && point.join("held").exists(), "it stays as it was");
    drop(held);
    mount.unmount().expect("free now");
    assert!(!mount.is_mounted());
    mount.unmount().expect("once more is no error");
    assert!(fs::read_dir(&point).expect("the bare directory").next().is_none());
    // By force, with a file open: the program gets an error and not a hang.
    let point = stand.mount("again");
    let mut held = File::create(point.join("held")).expect("create");
    stand.held.pop().expect("the mount").detach();
    assert!(held.write_all(b"x").is_err());
    assert_eq!(fs::read_dir(&point).expect("the bare directory").count(), 0);
}

#[test]
fn who_lets_go_soon_is_waited_for() {
    let Some(mut stand) = Stand::new("soon") else { return };
    let held = File::create(stand.mount("m").join("held")).expect("create");
    let mut child = Command::new("/bin/sleep").arg("0.2").stdin(held).spawn().expect("it starts");
    stand.held.pop().expect("the mount").unmount().expect("free in a moment");
    assert!(child.wait().expect("wait").success());
    // Until its own code is read, a program that starts has what is open here.
    std::thread::scope(|scope| {
        let starts = scope.spawn(|| {
            for _ in 0..200 {
                Command::new("/bin/true").status().expect("it starts");
            }
        });
        while !starts.is_finished() {
            fs::write(stand.mount("m").join("f"), b"x").expect("write");
            stand.held.pop().expect("the mount").unmount().expect("free in a moment");
        }
    });
}

#[test]
fn a_running_program_cannot_be_cut() {
    let Some(mut stand) = Stand::new("running") else { return };
    let path = stand.mount("m").join("sleep");
    fs::copy("/bin/sleep", &path).expect("copy with its mode");
    let size = fs::metadata(&path).expect("stat").len();
    // A program that another test starts this moment has the copy open for writing until its own code is read.
    let mut child = None;
    let starts = || match Command::new(&path).arg("60").spawn() {
        Err(error) if error.kind() == ErrorKind::ExecutableFileBusy => false,
        started => child.replace(started.expect("it runs from the mount")).is_none(),
    };
    assert!(soon(starts), "it is never free to run");
    let mut child = child.expect("it was started");
    assert_eq!(code(File::create(&path)), Some(libc::ETXTBSY));
    assert_eq!(fs::metadata(&path).expect("stat").len(), size, "nothing was cut before it was refused");
    assert_eq!(child.try_wait().expect("wait"), None);
    child.kill().expect("kill");
    child.wait().expect("wait");
    File::create(&path).expect("free now");
    assert_eq!(fs::metadata(&path).expect("stat").len(), 0);
}

#[test]
fn a_mount_whose_process_died_is_cleared_away() {
    let Some(mut stand) = Stand::new("dead") else { return };
    let point = stand.mount("m");
    // What the kernel does when the process that serves a mount is killed.
    let connection = rustix::fs::minor(fs::metadata(&point).expect("stat").dev());
    let control = PathBuf::from(format!("/sys/fs/fuse/connections/{connection}/abort"));
    if !control.exists() {
        let none = rustix::mount::MountFlags::empty();
        rustix::mount::mount("none", "/sys/fs/fuse/connections", "fusectl", none, None::<&std::ffi::CStr>)
            .expect("the control files of FUSE");
    }
    fs::write(control, b"1").expect("abort");
    assert_eq!(rustix::fs::statfs(&point).err(), Some(Errno::NOTCONN));
    let again = stand.mounts.mount(&point, &Options::new("test")).expect("the dead one is no obstacle");
    fs::write(point.join("f"), b"alive").expect("write");
    assert!(at_last(|| !stand.held[0].is_mounted()) && again.is_mounted());
    stand.held[0].unmount().expect("the dead one does not take the living one away");
    assert!(again.is_mounted());
    again.unmount().expect("unmount");
}

#[test]
fn a_server_that_is_gone_means_eio_and_not_a_hang() {
    let Some(mut stand) = Stand::new("gone") else { return };
    let at = stand.mount("m");
    fs::write(at.join("f"), b"x").expect("write");
    let refuse = Mishap::Refuse(braid_base::ErrorKind::Io);
    stand.world.server.state().mishaps.extend([refuse; 1_000]);
    let error = fs::write(at.join("new"), b"x").expect_err("the partition failed");
    stand.world.server.state().mishaps.clear();
    assert_eq!(error.raw_os_error(), Some(libc::EIO));
    assert_ne!(error.kind(), ErrorKind::NotFound);
    assert_eq!(OsStr::from_bytes(&fs::read(at.join("f")).expect("it works again")), "x");
}

#[test]
fn the_same_the_other_ways() {
    all_other_ways("the_same_the_other_ways");
}
