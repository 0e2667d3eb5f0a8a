//! Work that no program waits for: it goes on while a partition answers nothing, as long as the session lives.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::model::leased::Leased;
use crate::model::server::Mishap;
use crate::model::{World, root};
use braid_base::ErrorKind;
use braid_base::attr::SetAttr;
use braid_base::ids::Ino;
use braid_base::msg::fs::{Cred, RenameMode};
use braid_client::Fs;
use braid_client::fs::Create;
use bytes::Bytes;

const MIB: usize = 1 << 20;

fn make(world: &World, fs: &Fs, name: &str) -> Ino {
    let what = Create { mode: 0o644, open: true, ..Create::default() };
    world.run(fs.create(Cred::default(), root(), name.as_bytes(), what)).expect("create").ino
}

fn write(world: &World, fs: &Fs, ino: Ino, off: usize, len: usize) {
    let done = world.run(fs.write(ino, off as u64, Bytes::from(vec![7; len]), false, false)).expect("write");
    assert_eq!((done.off, done.len), (off as u64, len as u64));
}

fn size(world: &World, ino: Ino) -> u64 {
    world.server.state().nodes.get(&ino).map_or(0, |node| node.attr.size)
}

/// Fails with `Io` at the deadline of a call.
fn ends_in_time<T: std::fmt::Debug>(world: &World, what: impl Future<Output = Result<T, braid_base::Error>>) {
    let begin = world.clock.now_ms();
    assert_eq!(world.run(what).expect_err("nobody answers").kind(), ErrorKind::Io);
    let waited = world.clock.now_ms() - begin;
    assert!((30_000..31_000).contains(&waited), "waited {waited} ms");
}

fn silence(world: &World, of: Option<&'static str>) {
    world.server.asked();
    world.server.state().silent = of;
}

/// Operation numbers under which `name` was asked for since the silence began.
fn numbers(world: &World, name: &str) -> (usize, usize) {
    let log = std::mem::take(&mut world.server.state().log);
    let all: Vec<u64> = log.iter().filter(|(_, asked, _)| asked == name).map(|(op, ..)| op.seq).collect();
    (all.len(), all.into_iter().collect::<BTreeSet<_>>().len())
}

/// With leases, and as the only client.
fn both_ways(test: impl Fn(&World, &Fs)) {
    let world = World::new(1);
    world.lend();
    test(&world, &Leased::fs(&world, 6 * MIB).1);
    let world = World::new(1);
    world.lend();
    test(&world, &world.fs_behind(6 * MIB));
}

#[test]
fn bytes_that_were_written_outlive_the_deadlines_of_those_who_wait_for_them() {
    both_ways(|world, fs| {
        let ino = make(world, fs, "file");
        world.run(fs.fsync(ino)).expect("it is there");
        silence(world, Some("CommitWrite"));
        write(world, fs, ino, 0, MIB);
        for _ in 0..2 {
            ends_in_time(world, fs.fsync(ino));
        }
        ends_in_time(world, fs.setattr(ino, SetAttr { size: Some(0), ..SetAttr::default() }));
        ends_in_time(world, fs.write(ino, 0, Bytes::from(vec![9; 100]), false, false));
        let read = world.run(fs.read(ino, 0, 2 * MIB as u64)).expect("it is seen all the time");
        assert!(read.len() == MIB && read.iter().all(|byte| *byte == 7));
        assert!(fs.written_well(ino, 0).1.is_ok(), "nothing is lost");
        let (asked, under) = numbers(world, "CommitWrite");
        assert!(asked > 10 && under == 1, "{asked} times, under {under} numbers");
        silence(world, None);
        world.run(fs.fsync(ino)).expect("all of it is there now");
        assert_eq!(size(world, ino), MIB as u64, "and what failed did not happen later");
    });
}

#[test]
fn what_does_not_land_takes_the_room_of_no_other_file() {
    both_ways(|world, fs| {
        let (ino, other) = (make(world, fs, "file"), make(world, fs, "other"));
        world.run(fs.fsync(other)).expect("they are there");
        silence(world, Some("CommitWrite"));
        (0..7).for_each(|at| write(world, fs, ino, at * MIB, MIB));
        let begin = world.clock.now_ms();
        (0..32).for_each(|at| write(world, fs, other, at * MIB / 8, MIB / 8));
        assert!(world.clock.now_ms() < begin + 10_000, "they wait for room once");
        assert_eq!(size(world, other), 4 * MIB as u64, "and go through the log");
        silence(world, None);
        world.run(fs.fsync(ino)).expect("it is there");
        assert_eq!(size(world, ino), 7 * MIB as u64);
        (0..16).for_each(|at| write(world, fs, other, 4 * MIB + at * MIB / 8, MIB / 8));
        assert_eq!(size(world, other), 4 * MIB as u64, "there is room again");
    });
}

#[test]
fn a_session_that_is_lost_ends_it_and_leaves_no_doubt() {
    let world = World::new(1);
    world.lend();
    let (leased, fs) = Leased::fs(&world, 6 * MIB);
    let ino = make(&world, &fs, "file");
    world.run(fs.fsync(ino)).expect("it is there");
    silence(&world, Some("CommitWrite"));
    write(&world, &fs, ino, 0, MIB);
    ends_in_time(&world, fs.fsync(ino));
    leased.lost.store(true, Ordering::SeqCst);
    world.run(world.clock.sleep(20_000));
    let (told, lost) = fs.written_well(ino, 0);
    assert_eq!(lost.expect_err("nobody may write it any more").kind(), ErrorKind::SessionLost);
    assert!(fs.written_well(ino, told).1.is_ok(), "told once");
    leased.lost.store(false, Ordering::SeqCst);
    world.run(world.clock.sleep(2_000));
    assert_eq!(world.run(fs.getattr(ino)).expect("it is there").size, 0);
    assert!(fs.is_certain(ino), "the next session knows what came of it");
}

#[test]
fn files_that_were_promised_outlive_the_deadlines_of_those_who_wait_for_them() {
    let world = World::new(1);
    let (_, fs) = Leased::fs(&world, 6 * MIB);
    silence(&world, Some("Create"));
    let ino = make(&world, &fs, "file");
    assert_eq!(numbers(&world, "Create"), (0, 0), "it is promised");
    write(&world, &fs, ino, 0, 100);
    for _ in 0..2 {
        ends_in_time(&world, fs.fsync(root()));
    }
    ends_in_time(&world, fs.fsync(ino));
    ends_in_time(&world, fs.link(ino, root(), b"another name"));
    assert!(fs.written_well(ino, 0).1.is_ok() && fs.written_well(root(), 0).1.is_ok(), "nothing is lost");
    assert_eq!(world.run(fs.lookup(root(), b"file")).expect("it is seen all the time").attr.size, 100);
    let (asked, under) = numbers(&world, "Create");
    assert!(asked > 10 && under == 1, "{asked} times, under {under} numbers");
    silence(&world, None);
    world.run(fs.fsync(root())).expect("it is there now");
    assert_eq!((size(&world, ino), world.server.state().nodes[&ino].attr.nlink), (100, 1));
}

/// A directory with two files in it that are there.
fn directory(world: &World, fs: &Fs) -> Ino {
    let dir = world.run(fs.mkdir(Cred::default(), root(), b"dir", 0o755, 0)).expect("mkdir").ino;
    for name in [&b"a"[..], b"b"] {
        world.run(fs.create(Cred::default(), dir, name, Create::default())).expect("create");
    }
    world.run(fs.fsync(dir)).expect("they are there");
    dir
}

fn kind<T: std::fmt::Debug>(result: Result<T, braid_base::Error>) -> ErrorKind {
    result.expect_err("it is refused").kind()
}

#[test]
fn a_directory_that_was_emptied_goes_without_a_word_and_after_what_was_in_it() {
    let world = World::new(1);
    let (_, fs) = Leased::fs(&world, 6 * MIB);
    let dir = directory(&world, &fs);
    world.run(fs.unlink(dir, b"a")).expect("it is there");
    assert_eq!(kind(world.run(fs.rmdir(root(), b"dir"))), ErrorKind::NotEmpty);
    world.run(fs.names_settled()).expect("all is asked for");
    silence(&world, Some("Unlink"));
    world.run(fs.unlink(dir, b"b")).expect("it is there");
    assert_eq!(world.run(fs.rmdir(root(), b"dir")).expect("nothing is in it"), dir);
    assert_eq!(kind(world.run(fs.lookup(root(), b"dir"))), ErrorKind::NotFound);
    assert_eq!(kind(world.run(fs.rmdir(root(), b"dir"))), ErrorKind::NotFound);
    ends_in_time(&world, fs.create(Cred::default(), dir, b"c", Create::default()));
    assert_eq!(world.run(fs.getattr(root())).expect("it is known").nlink, 2, "it has a link less at once");
    assert_eq!(world.server.state().nodes[&root()].attr.nlink, 3);
    assert!(numbers(&world, "Rmdir").0 == 0 && world.server.state().nodes.contains_key(&dir), "it waits");
    silence(&world, None);
    world.run(fs.fsync(root())).expect("it waits until that is done");
    assert_eq!(world.run(fs.getattr(root())).expect("it is there").nlink, 2);
    assert!(!world.server.state().nodes.contains_key(&dir));
    assert!(fs.written_well(root(), 0).1.is_ok(), "nothing is lost");
}

#[test]
fn a_directory_of_which_not_all_is_known_is_asked_for() {
    let world = World::new(1);
    let (_, fs) = Leased::fs(&world, 6 * MIB);
    let dir = directory(&world, &fs);
    world.run(fs.rename(dir, b"a", dir, b"c", RenameMode::Replace)).expect("it is there");
    for name in [&b"b"[..], b"c"] {
        world.run(fs.unlink(dir, name)).expect("it is there");
    }
    world.run(fs.create(Cred::default(), dir, b"d", Create::default())).expect("it is free");
    assert_eq!(kind(world.run(fs.rmdir(root(), b"dir"))), ErrorKind::NotEmpty);
    world.run(fs.unlink(dir, b"d")).expect("it is there");
    world.run(fs.rmdir(root(), b"dir")).expect("nothing is in it");
    assert!(!world.server.state().nodes.contains_key(&dir), "it was asked for");
}

#[test]
fn references_are_given_back_in_the_end() {
    let world = World::new(1);
    gives_references_back(&world, &Leased::fs(&world, 6 * MIB).1);
    let world = World::new(1);
    gives_references_back(&world, &Leased::plain_fs(&world).1);
}

fn gives_references_back(world: &World, fs: &Fs) {
    let ino = make(world, fs, "file");
    world.run(fs.fsync(ino)).expect("it is there");
    silence(world, Some("Close"));
    let (closing, is_closed) = (fs.clone(), Arc::new(AtomicBool::new(false)));
    let closed = Arc::clone(&is_closed);
    world.clock.spawn(Box::pin(async move {
        closing.close(ino).await.expect("it goes on");
        closed.store(true, Ordering::SeqCst);
    }));
    world.run(world.clock.sleep(100_000));
    assert!(is_closed.load(Ordering::SeqCst), "nobody waits");
    let (asked, under) = numbers(world, "Close");
    assert!(asked > 5 && under == 1, "{asked} times, under {under} numbers");
    assert_eq!(world.server.state().nodes[&ino].opens, 1);
    silence(world, None);
    world.run(world.clock.sleep(20_000));
    assert_eq!(world.server.state().nodes[&ino].opens, 0);
}

#[test]
fn bytes_are_appended_behind_a_name_that_is_lost_but_not_behind_lost_bytes() {
    let world = World::new(1);
    let (_, fs) = Leased::fs(&world, 6 * MIB);
    let append = |ino| world.run(fs.write(ino, 0, Bytes::from_static(b"abc"), true, false));
    let refuse = |then: &[Mishap]| world.server.state().mishaps.extend(then);
    let ino = make(&world, &fs, "file");
    world.run(fs.fsync(ino)).expect("it is there");
    refuse(&[Mishap::Refuse(ErrorKind::NoSpace)]);
    world.run(fs.unlink(root(), b"file")).expect("it is promised");
    world.run(world.clock.sleep(1_000));
    append(ino).expect("all of its bytes are there");
    assert_eq!(world.run(fs.fsync(ino)).expect_err("it has a name still").kind(), ErrorKind::NoSpace);
    let ino = make(&world, &fs, "other");
    write(&world, &fs, ino, 0, 100);
    refuse(&[Mishap::None, Mishap::Refuse(ErrorKind::NoSpace)]);
    world.run(world.clock.sleep(1_000));
    assert_eq!(append(ino).expect_err("what was before it is not there").kind(), ErrorKind::NoSpace);
    assert_eq!(world.run(fs.fsync(ino)).expect_err("its bytes are lost").kind(), ErrorKind::NoSpace);
    assert_eq!(append(ino).expect("whoever was told goes on").off, 0);
}
