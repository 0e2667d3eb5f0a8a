//! Write-behind: what programs see is what they wrote, whatever is still on its way, and what `fsync` promised is there.

use std::sync::Arc;

use crate::model::drives::Fault;
use crate::model::history::{Change, dice};
use crate::model::server::Mishap;
use crate::model::{World, root};
use braid_base::ErrorKind;
use braid_base::attr::{SetAttr, SetTime, Time};
use braid_base::ids::{ClientId, FsId, Ino};
use braid_base::msg::fs::Cred;
use braid_client::fs::{Create, Seek};
use braid_client::{Fs, Session};
use bytes::Bytes;

const ROOM: usize = 6 << 20;

fn world() -> (Arc<World>, Fs, Ino) {
    world_with(ROOM)
}

fn world_with(room: usize) -> (Arc<World>, Fs, Ino) {
    let world = World::new(1);
    let fs = world.fs_behind(room);
    let what = Create { mode: 0o4755, open: true, ..Create::default() };
    let ino = world.run(fs.create(Cred::default(), root(), b"file", what)).expect("create").ino;
    world.server.asked();
    (world, fs, ino)
}

fn write(world: &World, fs: &Fs, ino: Ino, off: u64, len: usize, byte: u8) {
    let done = world.run(fs.write(ino, off, Bytes::from(vec![byte; len]), false, false)).expect("write");
    assert_eq!((done.off, done.len), (off, len as u64));
}

fn asked(world: &World, name: &str) -> usize {
    world.server.asked().iter().filter(|asked| *asked == name).count()
}

#[test]
fn a_stream_goes_straight_to_the_drives_in_few_entries() {
    let (world, fs, ino) = world_with(64 << 20);
    world.lend();
    for at in 0..64 {
        write(&world, &fs, ino, at << 17, 1 << 17, at as u8);
    }
    world.run(fs.fsync(ino)).expect("fsync");
    let names = world.server.asked();
    let count = |name: &str| names.iter().filter(|asked| *asked == name).count();
    // Three times 128 KiB are no stream yet.
    assert_eq!((count("CommitWrite"), count("Write")), (2, 3), "{names:?}");
    let read = world.run(fs.read(ino, 0, 8 << 20)).expect("read");
    assert!(read.chunks(1 << 17).enumerate().all(|(at, chunk)| chunk.iter().all(|byte| *byte == at as u8)));
}

#[test]
fn without_lent_room_writes_are_made_at_once() {
    let (world, fs, ino) = world();
    write(&world, &fs, ino, 0, 1 << 20, 1);
    assert_eq!(asked(&world, "Write"), 1);
}

#[test]
fn what_is_not_yet_there_is_seen_by_everyone() {
    let (world, fs, ino) = world();
    world.lend();
    world.run(fs.write(ino, 100, Bytes::from(vec![7; 800_000]), false, true)).expect("write");
    assert_eq!(asked(&world, "Write") + asked(&world, "CommitWrite"), 0, "it is held back");
    let attr = world.run(fs.getattr(ino)).expect("attr");
    assert_eq!((attr.size, attr.mode), (800_100, 0o755), "longer, and no longer set-uid");
    assert_eq!(world.run(fs.lookup(root(), b"file")).expect("entry").attr, attr);
    let (entries, _) = world.run(fs.readdir(root(), 0, 10, true)).expect("list");
    assert_eq!(entries[0].attr.as_ref(), Some(&attr));
    let read = world.run(fs.read(ino, 0, 1 << 20)).expect("read");
    assert!(read[..100].iter().all(|byte| *byte == 0) && read[100..].iter().all(|byte| *byte == 7));
    assert_eq!(read.len(), 800_100);
    assert_eq!(world.run(fs.read(ino, 800_050, 1 << 20)).expect("read").len(), 50);
    assert_eq!(world.run(fs.seek(ino, 0, Seek::Data)).expect("seek"), Some(100), "this one waits for the landing");
    let landed = world.run(fs.getattr(ino)).expect("attr");
    assert_eq!((landed.size, landed.mtime), (attr.size, attr.mtime), "the time of the write stays");
}

#[test]
fn a_time_that_is_set_after_a_write_stays() {
    let (world, fs, ino) = world();
    world.lend();
    write(&world, &fs, ino, 0, 1 << 20, 1);
    let then = Time { sec: 1_000_000, nsec: 0 };
    let set = SetAttr { mtime: Some(SetTime::To(then)), ..SetAttr::default() };
    world.run(fs.setattr(ino, set)).expect("utimens");
    world.run(fs.fsync(ino)).expect("fsync");
    assert_eq!(world.run(fs.getattr(ino)).expect("attr").mtime, then);
}

#[test]
fn what_nobody_waits_for_goes_by_itself() {
    let (world, fs, ino) = world();
    world.lend();
    write(&world, &fs, ino, 0, 700_000, 3);
    let clock = world.clock.clone();
    world.run(clock.sleep(2_000));
    assert_eq!(asked(&world, "CommitWrite"), 1);
    assert_eq!(world.server.state().nodes[&ino].attr.size, 700_000);
    write(&world, &fs, ino, 700_000, 50_000, 3);
    world.run(clock.sleep(2_000));
    assert_eq!(asked(&world, "Write"), 1, "too little for the drives: through the log");
}

#[test]
fn writers_wait_when_too_much_is_here() {
    let (world, fs, ino) = world();
    world.lend();
    for at in 0..24 {
        write(&world, &fs, ino, at << 20, 1 << 20, at as u8);
        let there: u64 = world.server.state().nodes[&ino].attr.size;
        assert!(((at + 1) << 20).saturating_sub(there) <= ROOM as u64 + (1 << 20), "at {at} only {there} are there");
    }
}

#[test]
fn a_drive_that_fails_costs_nothing_but_the_straight_way() {
    let (world, fs, ino) = world();
    world.lend();
    for fault in [Fault::Broken, Fault::Silent, Fault::Empty] {
        world.drives.break_it(5, fault);
        write(&world, &fs, ino, 0, 1 << 20, 1);
        world.run(fs.fsync(ino)).expect("through the log");
        world.drives.mend_all();
    }
    assert!(asked(&world, "Write") > 0);
}

#[test]
fn an_error_is_told_by_the_next_fsync_and_only_there() {
    let (world, fs, ino) = world();
    world.lend();
    write(&world, &fs, ino, 0, 1 << 20, 1);
    world.server.state().mishaps.push_back(Mishap::Refuse(ErrorKind::NoSpace));
    assert_eq!(world.run(fs.fsync(ino)).expect_err("lost").kind(), ErrorKind::NoSpace);
    world.run(fs.fsync(ino)).expect("told once");
    assert_eq!(world.run(fs.getattr(ino)).expect("attr").size, 0);
}

#[test]
fn each_description_is_told_of_an_error_whoever_else_was() {
    let (world, fs, ino) = world();
    world.lend();
    let (writer, reader) = (fs.describe(ino).1, fs.describe(ino).1);
    write(&world, &fs, ino, 0, 1 << 20, 1);
    world.server.state().mishaps.push_back(Mishap::Refuse(ErrorKind::NoSpace));
    world.run(world.clock.sleep(2_000));
    let (reader, closed) = fs.written_well(ino, reader);
    assert_eq!(closed.expect_err("lost").kind(), ErrorKind::NoSpace);
    let (writer, synced) = world.run(fs.fsync_since(ino, writer));
    assert_eq!(synced.expect_err("the close of another program did not take it away").kind(), ErrorKind::NoSpace);
    for since in [reader, writer, fs.describe(ino).1] {
        world.run(fs.fsync_since(ino, since)).1.expect("told once, and not to who came later");
    }
}

#[test]
fn bytes_of_a_file_that_is_gone_are_dropped() {
    let (world, fs, ino) = world();
    world.lend();
    write(&world, &fs, ino, 0, 1 << 20, 1);
    world.run(fs.unlink(root(), b"file")).expect("unlink");
    world.run(fs.close(ino)).expect("close");
    world.run(fs.flush(ino)).expect("nobody is left to care");
}

/// What happens to the file; changes are made to a plain vector, too.
#[derive(Clone, Copy, Debug)]
enum Step {
    Change(Change),
    Sync,
    Rest(u64),
    Lend(bool),
    Lose(Mishap),
    Break(u32),
    Mend,
}

/// `end`: where the last write ended; many go on there.
fn step_of(roll: &mut impl FnMut(u64) -> u64, end: u64) -> Step {
    let spot = |roll: &mut dyn FnMut(u64) -> u64| roll(6 << 20);
    Step::Change(match roll(30) {
        0..=3 => Change::Write(spot(roll), 1 + roll(900_000) as usize),
        4 => Change::Write(spot(roll), 1 + roll(9_000) as usize),
        5..=10 => {
            let most = 1 << (10 + roll(11));
            Change::Write(if end < 8 << 20 { end } else { 0 }, 1 + roll(most) as usize)
        }
        11 => Change::Append(1 + roll(50_000) as usize),
        12 => Change::Cut(spot(roll)),
        13 => Change::Punch(spot(roll), 1 + roll(400_000)),
        14 => Change::Zero(spot(roll), 1 + roll(100_000)),
        15 | 16 => return Step::Sync,
        17 => return Step::Rest(roll(1_000)),
        18 => return Step::Lend(roll(4) > 0),
        19 => return Step::Lose([Mishap::LoseAnswer, Mishap::LoseRequest][roll(2) as usize]),
        20 => return Step::Break(roll(6) as u32),
        21 => return Step::Mend,
        _ => Change::Read(spot(roll), 1 + roll(1 << 20)),
    })
}

#[test]
fn a_random_history_reads_like_a_plain_vector() {
    for seed in 1..=12u64 {
        let mut roll = dice(seed);
        let (world, fs, ino) = world();
        let (mut plain, mut end) = (Vec::new(), 0);
        for count in 0..200 {
            let step = step_of(&mut roll, end);
            if let Step::Change(Change::Write(off, len)) = step {
                end = off + len as u64;
            }
            let case = format!("seed {seed}, step {count} {step:?}");
            apply(&world, &fs, ino, &mut plain, step, ((count % 251) as u8 + 1, &case));
            let size = world.run(fs.getattr(ino)).expect("attr").size;
            assert_eq!(size, plain.len() as u64, "{case}");
        }
        world.run(fs.fsync(ino)).expect("fsync");
        // Another client, which sees what the cluster has and nothing else.
        let other = Fs::new(Session::new(world.clone(), ClientId(8)), FsId(1), root());
        let all = world.run(other.read(ino, 0, 16 << 20)).expect("read");
        assert!(all == plain, "seed {seed}: the end");
    }
}

fn apply(world: &World, fs: &Fs, ino: Ino, plain: &mut Vec<u8>, step: Step, (byte, case): (u8, &str)) {
    match step {
        Step::Change(change) => change.make(world, fs, ino, plain, byte, case),
        Step::Sync => world.run(fs.fsync(ino)).expect("fsync"),
        Step::Rest(ms) => world.run(world.clock.sleep(ms)),
        Step::Lend(true) => {
            world.drives.mend_all();
            world.lend();
        }
        Step::Lend(false) => world.server.state().stop_lending(),
        Step::Lose(mishap) => world.server.state().mishaps.push_back(mishap),
        // One of six, and two may go.
        Step::Break(d) => {
            world.drives.mend_all();
            world.drives.break_it(d, [Fault::Lies, Fault::Broken][d as usize % 2]);
        }
        Step::Mend => world.drives.mend_all(),
    }
}
