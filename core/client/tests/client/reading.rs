//! Reads: whatever two of six drives do, the bytes are right; with three, the error says so.

use std::sync::Arc;

use crate::model::drives::Fault;
use crate::model::files::placement;
use crate::model::server::Mishap;
use crate::model::{World, root};
use braid_base::ErrorKind;
use braid_base::ids::Ino;
use braid_base::limits::CHUNK;
use braid_base::msg::drive::{DriveOp, ShardId};
use braid_base::msg::fs::Cred;
use braid_base::record::PackClass;
use braid_client::fs::Create;
use braid_client::{Fs, mover};
use bytes::Bytes;

const FAULTS: [Fault; 6] = [Fault::Broken, Fault::Silent, Fault::Empty, Fault::Lies, Fault::Short, Fault::Corrupt];

fn noise(len: usize, mut seed: u64) -> Vec<u8> {
    let mut out = Vec::with_capacity(len + 8);
    while out.len() < len {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        out.extend_from_slice(&(seed >> 24).to_le_bytes()[..4]);
    }
    out.truncate(len);
    out
}

/// More than a file is taken to be changed again after a change, milliseconds.
const SOON_MS: u64 = 20;

fn file(world: &World, fs: &Fs, name: &str, content: &[u8]) -> Ino {
    let create = Create { mode: 0o644, ..Create::default() };
    let ino = world.run(fs.create(Cred::default(), root(), name.as_bytes(), create)).expect("create").ino;
    if !content.is_empty() {
        world.run(fs.write(ino, 0, Bytes::copy_from_slice(content), false, false)).expect("write");
    }
    // What was written to a moment ago is not worth to be remembered.
    world.run(world.clock.sleep(SOON_MS));
    ino
}

fn destage(world: &Arc<World>, fs: &Fs, ino: Ino, data: u8, parity: u8, stripe_bytes: u32) {
    let place = placement(data, parity);
    let (job, moved) = world.server.state().plan_destage(ino, &place, stripe_bytes);
    for (plan, (shard, drive)) in job.stripes.iter().flat_map(|p| place.drives.iter().enumerate().map(move |d| (p, d)))
    {
        let id = ShardId { pack: plan.at.pack, shard: shard as u8 };
        let term = braid_base::ids::Term(1);
        let (class, fs) = (PackClass::Destage, braid_base::ids::FsId(1));
        world.run(world.drives.ask(*drive, DriveOp::Create { id, data, parity, class, term, fs })).expect("create");
    }
    let stage = braid_client::fs::WireStage {
        session: fs.session().clone(),
        fs: braid_base::ids::FsId(1),
        partition: ino.partition(world.partitions),
    };
    world.run(mover::move_bytes(fs.reader(), &stage, &job)).expect("the move succeeds");
    world.server.state().commit_destage(ino, &moved);
}

fn some_ranges(size: u64) -> Vec<(u64, u64)> {
    let mut ranges = vec![(0, size), (0, 1), (size - 1, 1), (size - 1, 100), (size, 10), (4095, 2), (123_457, 65_536)];
    ranges.push((CHUNK - 3, 6));
    ranges.push((size / 2, 4096));
    ranges
}

fn check_all(world: &World, fs: &Fs, ino: Ino, content: &[u8], why: &str) {
    for (off, len) in some_ranges(content.len() as u64) {
        let got = world.run(fs.read(ino, off, len)).unwrap_or_else(|e| panic!("{why}, {off}+{len}: {e}"));
        let (from, to) = ((off as usize).min(content.len()), ((off + len) as usize).min(content.len()));
        assert!(got == content[from..to], "{why}: bytes {off}+{len} differ");
    }
}

#[test]
fn staged_bytes_are_read_inline_or_by_asking_again() {
    for inline in [false, true] {
        let world = World::new(3);
        let fs = world.fs();
        world.server.state().stage.inline = inline;
        let content = noise(3 << 20, 1);
        let ino = file(&world, &fs, "staged", &content);
        check_all(&world, &fs, ino, &content, "staged");
        assert_eq!(world.server.asked().iter().any(|op| op == "ReadStage"), !inline);
    }
}

#[test]
fn any_two_of_six_drives_may_fail_or_lie() {
    let world = World::new(1);
    let fs = world.fs();
    let content = noise((2 << 20) + 777, 2);
    let ino = file(&world, &fs, "flash", &content);
    destage(&world, &fs, ino, 4, 2, 1 << 20);
    check_all(&world, &fs, ino, &content, "sound drives");
    for (a, b) in (0..6).flat_map(|a| (a + 1..6).map(move |b| (a, b))) {
        for (at, fault) in FAULTS.into_iter().enumerate() {
            let other = FAULTS[(at + (a + b) as usize) % FAULTS.len()];
            world.drives.break_it(a, fault);
            world.drives.break_it(b, other);
            check_all(&world, &fs, ino, &content, &format!("drive {a} {fault:?} and drive {b} {other:?}"));
            world.drives.mend_all();
            world.run(world.clock.sleep(10_000)); // the hints forget
        }
    }
}

#[test]
fn three_of_six_are_too_many() {
    let world = World::new(1);
    let fs = world.fs();
    let content = noise(300_000, 3);
    let ino = file(&world, &fs, "flash", &content);
    destage(&world, &fs, ino, 4, 2, 1 << 20);
    for fault in FAULTS {
        (0..3).for_each(|d| world.drives.break_it(d, fault));
        let error = world.run(fs.read(ino, 0, 300_000)).expect_err("three shards of six are gone");
        assert_eq!(error.kind(), ErrorKind::Io, "{fault:?}: {error}");
        assert!(error.message().contains("4 shards are needed"), "{error}");
        world.drives.mend_all();
        world.run(world.clock.sleep(10_000));
    }
    check_all(&world, &fs, ino, &content, "mended");
}

#[test]
fn narrow_codes_and_mirrors() {
    for (data, parity) in [(1, 0), (1, 2), (2, 1), (5, 1), (16, 4)] {
        let world = World::new(1);
        let fs = world.fs();
        let content = noise(900_001, 4);
        let ino = file(&world, &fs, "flash", &content);
        destage(&world, &fs, ino, data, parity, 300_000);
        check_all(&world, &fs, ino, &content, "sound");
        (0..u32::from(parity)).for_each(|d| world.drives.break_it(d, Fault::Lies));
        check_all(&world, &fs, ino, &content, &format!("{data}+{parity} with {parity} lying"));
    }
}

#[test]
fn only_the_blocks_needed_are_read_and_a_silent_drive_is_waited_for_once() {
    let world = World::new(1);
    let fs = world.fs();
    let content = noise(1 << 20, 5);
    let ino = file(&world, &fs, "flash", &content);
    destage(&world, &fs, ino, 4, 2, 1 << 20);
    world.drives.reads();
    world.run(fs.read(ino, 8192, 4096)).expect("read");
    let reads = world.drives.reads();
    assert_eq!(reads.iter().map(|(d, _, block, count)| (d.0, *block, *count)).collect::<Vec<_>>(), [(0, 2, 1)]);
    world.drives.break_it(0, Fault::Silent);
    let start = world.clock.now_ms();
    world.run(fs.read(ino, 8192, 4096)).expect("read");
    let waited = world.clock.now_ms() - start;
    assert!(waited > 0, "the first read has to find out");
    for at in 0..20 {
        world.run(fs.read(ino, 4096 * at, 4096)).expect("read");
    }
    assert_eq!(world.clock.now_ms() - start, waited, "later ones know");
}

#[test]
fn random_reads_ask_the_partition_once_per_chunk_and_changes_are_seen() {
    let world = World::new(1);
    let fs = world.fs();
    let mut content = noise(4 << 20, 6);
    let ino = file(&world, &fs, "flash", &content);
    destage(&world, &fs, ino, 4, 2, 1 << 20);
    world.server.asked();
    for at in [5u64, 900, 17, 300, 301, 5, 1023, 0, 77] {
        let got = world.run(fs.read(ino, at * 4096, 4096)).expect("read");
        assert!(got == content[(at * 4096) as usize..][..4096]);
    }
    assert_eq!(world.server.asked(), ["Layout"; 3], "one per chunk, none twice");
    // Every kind of change must be seen at once.
    world.run(fs.write(ino, 20_000, Bytes::from_static(b"changed"), false, false)).expect("write");
    content[20_000..20_007].copy_from_slice(b"changed");
    check_all(&world, &fs, ino, &content, "after a write");
    world.server.asked();
    for (wait, asked) in [(0, 2), (SOON_MS, 1), (0, 0)] {
        world.run(world.clock.sleep(wait));
        for at in [5u64, 6] {
            let got = world.run(fs.read(ino, at * 4096, 4096)).expect("read");
            assert!(got == content[(at * 4096) as usize..][..4096]);
        }
        assert_eq!(world.server.asked().len(), asked, "{wait} ms later");
    }
    world.run(fs.fallocate(ino, 1 << 20, 5000, braid_base::msg::fs::FallocMode::Punch, true)).expect("punch");
    content[1 << 20..][..5000].fill(0);
    check_all(&world, &fs, ino, &content, "after a punch");
    let size = |bytes| braid_base::attr::SetAttr { size: Some(bytes), ..Default::default() };
    world.run(fs.setattr(ino, size(2_000_000))).expect("cut");
    world.run(fs.setattr(ino, size(3_000_000))).expect("extend");
    content.truncate(2_000_000);
    content.resize(3_000_000, 0);
    check_all(&world, &fs, ino, &content, "after a cut and an extension");
    let landed = world.run(fs.write(ino, 0, Bytes::from_static(b"tail"), true, false)).expect("append");
    assert_eq!(landed.off, 3_000_000);
    content.extend_from_slice(b"tail");
    check_all(&world, &fs, ino, &content, "after an append");
    world.run(fs.open(ino, true)).expect("open");
    assert!(world.run(fs.read(ino, 0, 100)).expect("read").is_empty(), "after O_TRUNC");
}

#[test]
fn bytes_that_moved_are_found_through_a_fresh_layout() {
    let world = World::new(1);
    let fs = world.fs();
    let content = noise(1 << 20, 7);
    let ino = file(&world, &fs, "moving", &content);
    assert!(world.run(fs.read(ino, 0, 4096)).expect("read") == content[..4096]);
    // The layout that the client remembers points into the stage, which is now gone.
    destage(&world, &fs, ino, 4, 2, 1 << 20);
    check_all(&world, &fs, ino, &content, "stage -> flash");
    // Garbage collection: the old pack is dropped after its content went to another.
    destage(&world, &fs, ino, 2, 1, 1 << 18);
    let old = braid_base::ids::PackId::new(braid_base::ids::PartitionId(0), 1);
    for d in 0..6u32 {
        let id = ShardId { pack: old, shard: d as u8 };
        let term = braid_base::ids::Term(1);
        world.run(world.drives.ask(braid_base::ids::DriveId(d), DriveOp::Drop { id, term })).expect("drop");
    }
    check_all(&world, &fs, ino, &content, "flash -> flash");
    // Gone for good: an error and not an endless search.
    world.drives.drop_all_shards();
    let error = world.run(fs.read(ino, 0, 4096)).expect_err("nothing is left");
    assert_eq!(error.kind(), ErrorKind::Io);
}

#[test]
fn a_change_of_unknown_outcome_makes_the_cache_forget() {
    let world = World::new(1);
    let fs = world.fs();
    let content = noise(8192, 8);
    let ino = file(&world, &fs, "doubt", &content);
    destage(&world, &fs, ino, 4, 2, 1 << 20);
    check_all(&world, &fs, ino, &content, "before");
    // Every answer is lost: the write fails, yet it took effect.
    world.server.state().mishaps.extend([Mishap::LoseAnswer; 10]);
    let error = world.run(fs.write(ino, 0, Bytes::from_static(b"ghost"), false, false)).expect_err("no answer");
    assert_eq!(error.kind(), ErrorKind::Io);
    world.server.state().mishaps.clear();
    assert_eq!(&world.run(fs.read(ino, 0, 5)).expect("read")[..], b"ghost");
}
