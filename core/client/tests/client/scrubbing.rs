//! Checks of packs, damage that is made good where it is, and reads of what is damaged.

use crate::model::drives::Fault;
use crate::model::files::placement;
use crate::model::{World, root};
use braid_base::ErrorKind;
use braid_base::crc::crc32c;
use braid_base::ids::{DriveId, FsId, Ino, PackId, PartitionId, Term};
use braid_base::limits::BLOCK;
use braid_base::msg::drive::{DriveOp, DriveReply, ShardId};
use braid_base::msg::fs::Cred;
use braid_base::msg::job::{RebuildJob, ScrubJob, Scrubbed};
use braid_base::record::{PackClass, Placement};
use braid_client::fs::{Create, WireStage};
use braid_client::{Fs, mover};
use bytes::Bytes;

/// Blocks of each shard that the file takes.
const ROWS: u16 = 20;

/// A file in a pack of six drives.
struct Scene {
    world: std::sync::Arc<World>,
    fs: Fs,
    ino: Ino,
    content: Vec<u8>,
    pack: PackId,
    place: Placement,
    first: u16,
}

impl Scene {
    fn new() -> Self {
        let world = World::new(1);
        let fs = world.fs();
        let content: Vec<u8> = (0..u32::from(ROWS) * 4 * BLOCK as u32).map(|i| (i * 7 / 3) as u8).collect();
        let ino = world.run(fs.create(Cred::default(), root(), b"file", Create::default())).expect("create").ino;
        world.run(fs.write(ino, 0, Bytes::copy_from_slice(&content), false, false)).expect("write");
        let (job, moved) = world.server.state().plan_destage(ino, &placement(4, 2), 1 << 20);
        for plan in &job.stripes {
            for (shard, drive) in plan.place.drives.iter().enumerate() {
                let id = ShardId { pack: plan.at.pack, shard: shard as u8 };
                let class = PackClass::Destage;
                let op = DriveOp::Create { id, data: 4, parity: 2, class, term: Term(1), fs: FsId(1) };
                world.run(world.drives.ask(*drive, op)).expect("create");
            }
        }
        let partition = PartitionId(0).min(PartitionId(world.partitions));
        let stage = WireStage { session: fs.session().clone(), fs: FsId(1), partition };
        world.run(mover::move_bytes(fs.reader(), &stage, &job)).expect("moved");
        world.server.state().commit_destage(ino, &moved);
        let (at, place) = (job.stripes[0].at, job.stripes[0].place.clone());
        assert!(job.stripes.len() == 1 && at.ul == ROWS, "{:?}", job.stripes);
        Self { world, fs, ino, content, pack: at.pack, place, first: at.sb }
    }

    fn rot(&self, shard: u8, row: u16) {
        let id = ShardId { pack: self.pack, shard };
        self.world.drives.rot(self.place.drives[usize::from(shard)], id, self.first + row);
    }

    fn wear_out(&self, shard: u8, row: u16) {
        let id = ShardId { pack: self.pack, shard };
        self.world.drives.wear_out(self.place.drives[usize::from(shard)], id, self.first + row);
    }

    fn scrub(&self) -> braid_base::Result<Scrubbed> {
        let (pack, place, rows) = (self.pack, self.place.clone(), vec![(self.first, ROWS)]);
        let job = ScrubJob { id: 1, pack, place, rows, bytes_per_s: 1 << 30 };
        self.world.run(mover::scrub(self.fs.reader(), &job))
    }

    /// The shard is to be made on `to`.
    fn job(&self, shard: u8, to: DriveId, copies: bool) -> RebuildJob {
        RebuildJob {
            id: 1,
            pack: self.pack,
            shard,
            place: self.place.clone(),
            rows: vec![(self.first, ROWS)],
            to,
            copies,
            gone: Vec::new(),
            class: PackClass::Destage,
            term: Term(1),
            fs: FsId(1),
        }
    }

    fn mend(&self, shard: u8) -> braid_base::Result<()> {
        let job = self.job(shard, self.place.drives[usize::from(shard)], false);
        self.world.run(mover::rebuild(self.fs.reader(), &job))
    }

    /// The rows whose block of data shard `shard` cannot be read through the file.
    fn unreadable(&self, shard: usize) -> Vec<u16> {
        let fails = |row: &u16| {
            let at = (shard * usize::from(ROWS) + usize::from(*row)) * BLOCK;
            match self.world.run(self.fs.read(self.ino, at as u64, BLOCK as u64)) {
                Ok(bytes) => {
                    assert!(bytes == self.content[at..at + BLOCK], "shard {shard}, row {row}");
                    false
                }
                Err(error) => {
                    assert_eq!(error.kind(), ErrorKind::Io, "{error}");
                    true
                }
            }
        };
        (0..ROWS).filter(fails).collect()
    }
}

#[test]
fn a_sound_pack_has_nothing_to_tell() {
    let scene = Scene::new();
    let found = scene.scrub().expect("all drives answer");
    let bytes = u64::from(ROWS) * 6 * BLOCK as u64;
    assert_eq!(found, Scrubbed { bytes, ..Scrubbed::default() });
}

#[test]
fn scattered_damage_is_found_and_made_good_where_it_is() {
    let scene = Scene::new();
    // Each row has lost two, and every shard some.
    for row in 0..ROWS {
        scene.rot((row % 6) as u8, row);
        scene.rot(((row + 1) % 6) as u8, row);
    }
    let all = scene.world.run(scene.fs.read(scene.ino, 0, 1 << 20)).expect("each row has four");
    assert!(all == scene.content[..]);
    let found = scene.scrub().expect("all drives answer");
    assert_eq!((&found.bad[..], &found.lost[..], &found.odd[..]), (&[0, 1, 2, 3, 4, 5][..], &[][..], &[][..]));
    for shard in found.bad {
        scene.mend(shard).expect("four of each row");
    }
    assert_eq!(scene.world.drives.rotten(), 0);
    assert_eq!(scene.scrub().expect("all drives answer").bad, []);
}

#[test]
fn what_too_few_are_left_of_is_told_and_never_made_up() {
    let scene = Scene::new();
    for shard in [0, 2, 5] {
        scene.rot(shard, 3);
        scene.rot(shard, 4);
    }
    scene.rot(1, 9);
    let found = scene.scrub().expect("all drives answer");
    let at = scene.first + 3;
    assert_eq!((found.bad, found.lost), (vec![1], vec![(0, at, 2), (2, at, 2)]));
    // Reads of these blocks fail, and only they.
    assert_eq!([0, 1, 2, 3].map(|shard| scene.unreadable(shard)), [vec![3, 4], vec![], vec![3, 4], vec![]]);
    for shard in [0, 1, 2, 5] {
        scene.mend(shard).expect("what can be made good is");
    }
    assert_eq!(scene.world.drives.rotten(), 6, "the rest stays as it is");
    assert_eq!(scene.unreadable(0), [3, 4]);
    assert_eq!(scene.scrub().expect("all drives answer").bad, []);
}

#[test]
fn a_pack_that_is_given_up_while_it_is_checked_has_lost_nothing() {
    let scene = Scene::new();
    for shard in [1, 2, 4] {
        scene.world.drives.drop_at_read(ShardId { pack: scene.pack, shard });
    }
    let error = scene.scrub().expect_err("nothing can be said of it");
    assert_eq!(error.kind(), ErrorKind::Stale, "{error}");
    // Two could be made up for: then the others are whole.
    let scene = Scene::new();
    for shard in [1, 4] {
        scene.world.drives.drop_at_read(ShardId { pack: scene.pack, shard });
    }
    assert_eq!(scene.scrub().expect("four are there").bad, [1, 4]);
}

#[test]
fn a_shard_that_is_gone_is_made_anew_and_one_whose_drive_is_silent_is_not() {
    let scene = Scene::new();
    scene.world.drives.break_it(3, Fault::Broken);
    let found = scene.scrub().expect("five answer");
    assert_eq!((found.bad, found.lost), (vec![], vec![]), "nothing is known of the sixth");
    for drive in [4, 5] {
        scene.world.drives.break_it(drive, Fault::Silent);
    }
    scene.scrub().expect_err("three do not answer");
    scene.world.drives.mend_all();
    let id = ShardId { pack: scene.pack, shard: 2 };
    scene.world.run(scene.world.drives.ask(DriveId(2), DriveOp::Drop { id, term: Term(1) })).expect("dropped");
    assert_eq!(scene.scrub().expect("all answer").bad, [2]);
    scene.mend(2).expect("five are left");
    let found = scene.scrub().expect("all answer");
    assert_eq!((found.bad, found.bytes), (vec![], u64::from(ROWS) * 6 * BLOCK as u64));
}

#[test]
fn rows_that_a_silent_drive_may_make_up_for_are_neither_lost_nor_whole() {
    let scene = Scene::new();
    let silent = 3;
    for shard in [1, 2] {
        scene.rot(shard, 4);
    }
    scene.rot(0, 9);
    scene.world.drives.break_it(scene.place.drives[silent].0, Fault::Broken);
    let found = scene.scrub().expect("five answer");
    // Of row 4 three are left, and the silent one; row 9 has four.
    assert_eq!((found.bad, found.lost, found.silent), (vec![0], vec![], vec![silent as u8]));
    scene.world.drives.mend_all();
    let found = scene.scrub().expect("all answer");
    assert_eq!((found.bad, found.lost, found.silent), (vec![0, 1, 2], vec![], vec![]));
}

#[test]
fn blocks_that_match_their_checksums_but_not_each_other_are_told() {
    let scene = Scene::new();
    scene.world.drives.forge(scene.place.drives[1], ShardId { pack: scene.pack, shard: 1 }, scene.first + 7, 3);
    let found = scene.scrub().expect("all drives answer");
    assert_eq!((found.bad, found.lost, found.odd), (vec![], vec![], vec![(scene.first + 7, 1)]));
}

#[test]
fn shards_are_made_anew_no_faster_than_allowed() {
    let scene = Scene::new();
    let now_ms = || braid_client::Wire::now_ms(&*scene.world);
    let begun_ms = now_ms();
    (0..3).for_each(|shard| scene.mend(shard).expect("all are there"));
    assert!(now_ms() - begun_ms < 1_000, "nothing holds it up");
    // A shard each second, after the first two, which are a burst.
    scene.fs.reader().rebuild_pace().set(Some(u64::from(ROWS) * BLOCK as u64));
    let begun_ms = now_ms();
    (0..6).for_each(|shard| scene.mend(shard).expect("all are there"));
    let took_ms = now_ms() - begun_ms;
    assert!((3_900..6_100).contains(&took_ms), "{took_ms} ms");
}

#[test]
fn a_row_beyond_repair_does_not_keep_the_rest_of_a_lost_shard_from_being_made() {
    let mut scene = Scene::new();
    let (row, shard, to) = (7, 1, DriveId(30));
    scene.rot(2, row);
    let lost = scene.place.drives[usize::from(shard)];
    scene.world.drives.break_it(lost.0, Fault::Broken);
    let job = scene.job(shard, to, false);
    // As long as one that could make up for it may come back, it is waited for.
    let away = scene.place.drives[0];
    scene.world.drives.break_it(away.0, Fault::Broken);
    scene.world.run(mover::rebuild(scene.fs.reader(), &job)).expect_err("one may come back");
    scene.world.drives.mend_all();
    scene.rot(4, row);
    scene.world.drives.break_it(lost.0, Fault::Broken);
    scene.world.run(mover::rebuild(scene.fs.reader(), &job)).expect("all but one row");
    scene.place.drives[usize::from(shard)] = to;
    let id = ShardId { pack: scene.pack, shard };
    let Ok(DriveReply::Written(runs)) = scene.world.run(scene.world.drives.ask(to, DriveOp::Written { id })) else {
        panic!("it is there")
    };
    let at = scene.first + row;
    let made: Vec<u16> = runs.into_iter().flat_map(|(first, count, _)| first..first + count).collect();
    let wanted: Vec<u16> = (scene.first..scene.first + ROWS).filter(|block| *block != at).collect();
    assert_eq!(made, wanted, "nothing was made up");
    let found = scene.scrub().expect("all answer");
    assert_eq!(found.lost, [(1, at, 1), (2, at, 1)], "it is not forgotten");
    assert!(found.bad.is_empty(), "{found:?}");
}

#[test]
fn what_a_shard_lacks_since_it_was_made_anew_is_told() {
    let scene = Scene::new();
    for shard in [2, 5] {
        scene.rot(shard, 3);
    }
    // All of it is gone, and is made anew but for the row that has lost three.
    let id = ShardId { pack: scene.pack, shard: 0 };
    scene
        .world
        .run(scene.world.drives.ask(scene.place.drives[0], DriveOp::Drop { id, term: Term(1) }))
        .expect("dropped");
    scene.mend(0).expect("what can be made good is");
    let found = scene.scrub().expect("all drives answer");
    let at = scene.first + 3;
    assert_eq!((found.bad, found.lost), (vec![], vec![(0, at, 1), (2, at, 1)]));
    assert_eq!([0, 1, 2, 3].map(|shard| scene.unreadable(shard)), [vec![3], vec![], vec![3], vec![]]);
}

#[test]
fn sectors_that_cannot_be_read_cost_their_rows_and_no_others() {
    let scene = Scene::new();
    let drive = |shard: usize| scene.place.drives[shard].0;
    scene.world.drives.break_it(drive(0), Fault::Broken);
    scene.wear_out(1, 2);
    scene.wear_out(2, 5);
    let all =
        scene.world.run(scene.fs.read(scene.ino, 0, scene.content.len() as u64)).expect("four are left in each row");
    assert!(all[..] == scene.content[..]);

    let make = |to| {
        let job = scene.job(0, to, false);
        scene.world.run(mover::rebuild(scene.fs.reader(), &job))
    };
    // A drive that can be read nowhere may come back: nothing is left out for its sake.
    scene.world.drives.break_it(drive(1), Fault::Broken);
    assert!(make(DriveId(31)).is_err());
    // What is made anew lacks the row that has lost three, and only that.
    scene.world.drives.mend_all();
    scene.world.drives.break_it(drive(0), Fault::Broken);
    scene.wear_out(5, 5);
    make(DriveId(30)).expect("what can be made good is");
    let id = ShardId { pack: scene.pack, shard: 0 };
    let Ok(DriveReply::Written(runs)) = scene.world.run(scene.world.drives.ask(DriveId(30), DriveOp::Written { id }))
    else {
        panic!("it is there")
    };
    assert_eq!(runs.iter().map(|(_, count, _)| count).sum::<u16>(), ROWS - 1);
}

#[test]
fn what_was_written_and_never_committed_is_nobodys_damage() {
    let scene = Scene::new();
    // The next row is on some of them.
    for shard in [0_u8, 1, 5] {
        let id = ShardId { pack: scene.pack, shard };
        let data = Bytes::from(vec![shard; BLOCK]);
        let put = DriveOp::Put { id, block: scene.first + ROWS, crcs: vec![crc32c(&data)], data };
        scene.world.run(scene.world.drives.ask(scene.place.drives[usize::from(shard)], put)).expect("written");
    }
    let found = scene.scrub().expect("all drives answer");
    assert_eq!((found.bad, found.lost, found.odd), (vec![], vec![], vec![]));
}

#[test]
fn a_shard_is_not_made_empty_because_others_have_forgotten_what_they_hold() {
    let scene = Scene::new();
    let (shard, to) = (1, DriveId(30));
    // The marks of what is written went with a checksum page of each other shard; the shard itself is sound.
    for other in [0, 2, 3, 4, 5] {
        for row in 0..ROWS {
            scene.rot(other, row);
        }
    }
    let job = scene.job(shard, to, true);
    scene.world.run(mover::rebuild(scene.fs.reader(), &job)).expect("it is copied");
    let id = ShardId { pack: scene.pack, shard };
    let Ok(DriveReply::Written(runs)) = scene.world.run(scene.world.drives.ask(to, DriveOp::Written { id })) else {
        panic!("it is there")
    };
    assert_eq!(runs.iter().map(|(_, count, _)| count).sum::<u16>(), ROWS);
}
