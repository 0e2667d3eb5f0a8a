//! The mover: all shards or none of it counts, and a random history of one file reads as it should.

use crate::model::drives::Fault;
use crate::model::files::placement;
use crate::model::history::{Change, dice};
use crate::model::{World, root};
use braid_base::ErrorKind;
use braid_base::ids::{DriveId, FsId, Ino, PartitionId, Term};
use braid_base::limits::BLOCK;
use braid_base::msg::drive::{DriveOp, DriveReply, ShardId};
use braid_base::msg::fs::Cred;
use braid_base::msg::job::{MoveJob, Part, RebuildJob, Source, StripePlan};
use braid_base::record::{PackClass, Placement};
use braid_client::fs::{Create, WireStage};
use braid_client::{Fs, mover};
use bytes::Bytes;

fn stage(world: &World, fs: &Fs) -> WireStage {
    WireStage {
        session: fs.session().clone(),
        fs: FsId(1),
        partition: PartitionId(0).min(PartitionId(world.partitions)),
    }
}

fn prepare(world: &World, job: &MoveJob) {
    for plan in &job.stripes {
        for (shard, drive) in plan.place.drives.iter().enumerate() {
            let id = ShardId { pack: plan.at.pack, shard: shard as u8 };
            let (data, parity, class) = (plan.place.data, plan.place.parity, PackClass::Destage);
            let op = DriveOp::Create { id, data, parity, class, term: Term(1), fs: FsId(1) };
            world.run(world.drives.ask(*drive, op)).expect("create");
        }
    }
}

fn file(world: &World, fs: &Fs, content: &[u8]) -> Ino {
    let ino = world.run(fs.create(Cred::default(), root(), b"file", Create::default())).expect("create").ino;
    world.run(fs.write(ino, 0, Bytes::copy_from_slice(content), false, false)).expect("write");
    ino
}

#[test]
fn every_shard_must_be_acknowledged() {
    let world = World::new(1);
    let fs = world.fs();
    let ino = file(&world, &fs, &[9; 100_000]);
    let (job, _) = world.server.state().plan_destage(ino, &placement(4, 2), 1 << 20);
    let stage = stage(&world, &fs);
    let error = world.run(mover::move_bytes(fs.reader(), &stage, &job)).expect_err("no shard was created");
    assert_eq!(error.kind(), ErrorKind::NotFound);
    prepare(&world, &job);
    for fault in [Fault::Broken, Fault::Silent] {
        world.drives.break_it(5, fault);
        world.run(mover::move_bytes(fs.reader(), &stage, &job)).expect_err("one drive of six does not answer");
        world.drives.mend_all();
    }
    world.drives.busy_puts(5);
    world
        .run(mover::move_bytes(fs.reader(), &stage, &job))
        .expect("busy drives are asked again, same bytes are accepted");
}

/// The blocks of a shard, from its drive.
fn blocks(world: &World, drive: DriveId, id: ShardId) -> Option<Vec<(u16, Bytes)>> {
    let Ok(DriveReply::Written(runs)) = world.run(world.drives.ask(drive, DriveOp::Written { id })) else {
        return None;
    };
    let read = |block| match world.run(world.drives.ask(drive, DriveOp::Read { id, block, count: 1 })) {
        Ok(DriveReply::Data { data, .. }) => (block, data),
        other => panic!("{other:?}"),
    };
    Some(runs.into_iter().flat_map(|(first, count, _)| first..first + count).map(read).collect())
}

#[test]
fn a_lost_shard_is_made_anew_from_any_that_are_left() {
    let world = World::new(1);
    let fs = world.fs();
    let content: Vec<u8> = (0..300_000_u32).map(|i| (i * 7 / 3) as u8).collect();
    let ino = file(&world, &fs, &content);
    let (job, _) = world.server.state().plan_destage(ino, &placement(4, 2), 1 << 20);
    prepare(&world, &job);
    world.run(mover::move_bytes(fs.reader(), &stage(&world, &fs), &job)).expect("moved");
    let (pack, place) = (job.stripes[0].at.pack, job.stripes[0].place.clone());
    let rows: Vec<(u16, u16)> = job.stripes.iter().map(|plan| (plan.at.sb, plan.at.ul)).collect();
    // A stripe that nobody committed: not all of its shards were written.
    let (id, data) = (ShardId { pack, shard: 1 }, Bytes::from(vec![7; BLOCK]));
    let put = DriveOp::Put { id, block: 900, crcs: vec![braid_base::crc::crc32c(&data)], data };
    world.run(world.drives.ask(place.drives[1], put)).expect("written");
    for (shard, to) in (0..6).zip(20..) {
        let id = ShardId { pack, shard };
        let before = blocks(&world, place.drives[usize::from(shard)], id).expect("it is there");
        let before: Vec<_> = before.into_iter().filter(|(block, _)| *block != 900).collect();
        assert!(!before.is_empty());
        let (to, class) = (DriveId(to), PackClass::Destage);
        let rebuild = RebuildJob {
            id: 1,
            pack,
            shard,
            place: place.clone(),
            rows: rows.clone(),
            to,
            copies: false,
            gone: Vec::new(),
            class,
            term: Term(1),
            fs: FsId(1),
        };
        // Its own drive, and one more.
        world.drives.break_it(place.drives[usize::from(shard)].0, Fault::Broken);
        world.drives.break_it(place.drives[usize::from((shard + 1) % 6)].0, Fault::Lies);
        world.run(mover::rebuild(fs.reader(), &rebuild)).expect("four are left");
        assert_eq!(blocks(&world, to, id), Some(before));
        // It is there still, and two others are not: it is copied.
        world.drives.mend_all();
        (1..4).for_each(|next| world.drives.break_it(place.drives[usize::from((shard + next) % 6)].0, Fault::Lies));
        let (copy, apart) =
            (RebuildJob { copies: true, to: DriveId(to.0 + 20), ..rebuild.clone() }, DriveId(to.0 + 20));
        world.run(mover::rebuild(fs.reader(), &copy)).expect("it can be read");
        assert_eq!(blocks(&world, apart, id), Some(blocks(&world, to, id).expect("made before")));
        world.drives.mend_all();
        world.drives.break_it(place.drives[usize::from(shard)].0, Fault::Broken);
        world.drives.break_it(place.drives[usize::from((shard + 1) % 6)].0, Fault::Lies);
        world.drives.break_it(place.drives[usize::from((shard + 2) % 6)].0, Fault::Empty);
        world.run(mover::rebuild(fs.reader(), &rebuild)).expect_err("only three are left");
        // Unless those that are lost never come back: nothing is made up, and nobody waits for it.
        let gone: Vec<u8> = (0..2).map(|next| (shard + next) % 6).collect();
        let of = |gone: &[u8], to| RebuildJob { gone: gone.to_vec(), to: DriveId(to), ..rebuild.clone() };
        let empty = to.0 + 40;
        world.run(mover::rebuild(fs.reader(), &of(&gone, empty))).expect_err("the third one may come back");
        let all: Vec<u8> = (0..3).map(|next| (shard + next) % 6).collect();
        world.run(mover::rebuild(fs.reader(), &of(&all, empty))).expect("nobody is waited for");
        assert_eq!(blocks(&world, DriveId(empty), id), Some(Vec::new()));
        // Then the next one has nothing to wait for either, though an empty one is there.
        let mut place = place.clone();
        place.drives[usize::from(shard)] = DriveId(empty);
        let (shard, gone) = (all[1], vec![all[1], all[2]]);
        let next = RebuildJob { shard, place, gone, to: DriveId(to.0 + 60), ..rebuild.clone() };
        world.run(mover::rebuild(fs.reader(), &next)).expect("nobody is waited for");
        assert_eq!(blocks(&world, next.to, ShardId { pack, shard }), Some(Vec::new()));
        // And one of the others, which is only away, is waited for: what it has can be read.
        let RebuildJob { mut place, .. } = next.clone();
        place.drives[usize::from(shard)] = next.to;
        let away = (0..6).find(|other| !all.contains(other)).expect("three are whole");
        world.drives.break_it(place.drives[usize::from(away)].0, Fault::Broken);
        let (gone, to) = (Vec::new(), DriveId(to.0 + 80));
        let waits = RebuildJob { shard: away, place, gone, to, ..next };
        world.run(mover::rebuild(fs.reader(), &waits)).expect_err("it may come back");
        world.drives.mend_all();
    }
}

#[test]
fn stripes_have_the_layout_of_the_design() {
    let world = World::new(1);
    let fs = world.fs();
    let content: Vec<u8> = (0..5 * BLOCK + 100).map(|i| (i / 7) as u8).collect();
    let ino = file(&world, &fs, &content);
    let (mut job, _) = world.server.state().plan_destage(ino, &placement(2, 1), 1 << 20);
    // A hole of three bytes in front shifts everything.
    let plan: &mut StripePlan = &mut job.stripes[0];
    plan.parts.insert(0, Part { len: 3, from: Source::Zero });
    prepare(&world, &job);
    world.run(mover::move_bytes(fs.reader(), &stage(&world, &fs), &job)).expect("move");
    let at = job.stripes[0].at;
    assert_eq!(at.ul, 3, "ceil(20580 / 2 / 4096)");
    let unit = 3 * BLOCK;
    let mut logical = vec![0; 3];
    logical.extend_from_slice(&content);
    logical.resize(2 * unit, 0);
    let parity: Vec<u8> = (0..unit).map(|i| logical[i] ^ logical[unit + i]).collect();
    for (shard, want) in [&logical[..unit], &logical[unit..], &parity].into_iter().enumerate() {
        let read = DriveOp::Read { id: ShardId { pack: at.pack, shard: shard as u8 }, block: at.sb, count: at.ul };
        let Ok(DriveReply::Data { data, .. }) = world.run(world.drives.ask(DriveId(shard as u32), read)) else {
            panic!("shard {shard} is not there")
        };
        assert!(data == want, "shard {shard}");
    }
}

#[test]
fn impossible_plans_are_refused() {
    let world = World::new(1);
    let fs = world.fs();
    let ino = file(&world, &fs, &[1; 10_000]);
    let (job, _) = world.server.state().plan_destage(ino, &placement(4, 2), 1 << 20);
    prepare(&world, &job);
    let broken = |change: &dyn Fn(&mut StripePlan)| {
        let mut job = job.clone();
        change(&mut job.stripes[0]);
        world.run(mover::move_bytes(fs.reader(), &stage(&world, &fs), &job)).expect_err("impossible").kind()
    };
    assert_eq!(broken(&|plan| plan.at.ul = 0), ErrorKind::Invalid);
    assert_eq!(broken(&|plan| plan.parts.push(Part { len: 1 << 20, from: Source::Zero })), ErrorKind::Invalid);
    assert_eq!(broken(&|plan| plan.place = Placement { data: 17, ..plan.place.clone() }), ErrorKind::Corrupt);
    assert_eq!(broken(&|plan| plan.place.drives.truncate(3)), ErrorKind::Corrupt);
}

/// What happens to the file; changes are made to a plain vector, too.
#[derive(Clone, Copy, Debug)]
enum Step {
    Change(Change),
    Destage(u8, u8),
    Break(u32),
    Mend,
}

fn step_of(roll: &mut impl FnMut(u64) -> u64) -> Step {
    let spot = |roll: &mut dyn FnMut(u64) -> u64| roll(3 << 20);
    Step::Change(match roll(20) {
        0..=4 => Change::Write(spot(roll), 1 + roll(300_000) as usize),
        5 | 6 => Change::Append(1 + roll(50_000) as usize),
        7 => Change::Cut(spot(roll)),
        8 => Change::Punch(spot(roll), 1 + roll(400_000)),
        9 => Change::Zero(spot(roll), 1 + roll(100_000)),
        10 => return [Step::Destage(4, 2), Step::Destage(2, 1), Step::Destage(1, 2)][roll(3) as usize],
        11 => return Step::Break(roll(6) as u32),
        12 => return Step::Mend,
        _ => Change::Read(spot(roll), 1 + roll(1 << 20)),
    })
}

#[test]
fn a_random_history_reads_like_a_plain_vector() {
    for seed in 1..=12u64 {
        let mut roll = dice(seed);
        let world = World::new(1);
        let fs = world.fs();
        world.server.state().stage.inline = seed % 2 == 0;
        let ino = file(&world, &fs, b"start");
        let mut plain = b"start".to_vec();
        for count in 0..150 {
            let step = step_of(&mut roll);
            let case = format!("seed {seed}, step {count} {step:?}");
            apply(&world, &fs, ino, &mut plain, step, ((count % 251) as u8 + 1, &case));
            let size = world.run(fs.getattr(ino)).expect("attr").size;
            assert_eq!(size, plain.len() as u64, "{case}");
        }
        let all = world.run(fs.read(ino, 0, 16 << 20)).expect("read");
        assert!(all == plain, "seed {seed}: the end");
    }
}

fn apply(world: &World, fs: &Fs, ino: Ino, plain: &mut Vec<u8>, step: Step, (byte, case): (u8, &str)) {
    match step {
        Step::Change(change) => change.make(world, fs, ino, plain, byte, case),
        Step::Destage(data, parity) => {
            let (job, moved) = world.server.state().plan_destage(ino, &placement(data, parity), 1 << 20);
            world.drives.mend_all();
            prepare(world, &job);
            world.run(mover::move_bytes(fs.reader(), &stage(world, fs), &job)).expect("move");
            world.server.state().commit_destage(ino, &moved);
        }
        // One of at least three: every code of this test survives it, the mirror and 2+1 among them.
        Step::Break(d) => {
            world.drives.mend_all();
            world.drives.break_it(d, [Fault::Lies, Fault::Empty, Fault::Broken][d as usize % 3]);
        }
        Step::Mend => world.drives.mend_all(),
    }
}
