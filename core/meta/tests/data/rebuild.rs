//! Drives that leave, and their shards, which are made anew elsewhere.

use std::collections::BTreeSet;

use braid_base::ids::{DomainId, DriveId};
use braid_base::keys;
use braid_base::msg::drive::ShardId;
use braid_base::msg::job::RebuildJob;
use braid_base::record::{PackRec, Record};
use braid_meta::{DriveSet, Event, Leave, Mutation};
use braid_replica::Kv;

use super::cases::{Outcome, calm_world, pass, write};
use super::check::Tables;
use super::world::{DRIVES, P, Wish, World};

impl World {
    /// One drive is not to be used for a while, or is to be emptied; or all are well.
    pub fn change_drives(&mut self) {
        let gone = DriveId(1 + self.chance.below(u64::from(DRIVES) + 2) as u32);
        let leaving = if self.chance.percent(50) { BTreeSet::from([gone]) } else { BTreeSet::new() };
        // Perhaps some fail together; small drives have no room for what that takes.
        self.domains.clear();
        if self.wish.slots > 10 && self.chance.percent(40) {
            let kinds = 2 + self.chance.below(2);
            let all: Vec<DriveId> = self.drives.keys().copied().collect();
            self.domains = all.into_iter().map(|drive| (drive, DomainId(self.chance.below(kinds) as u16))).collect();
        }
        self.use_all_but(gone, leaving);
    }

    pub fn use_all_but(&mut self, gone: DriveId, leaving: BTreeSet<DriveId>) {
        let usable = self.drives.keys().copied().filter(|drive| *drive != gone).collect();
        self.leaving.clone_from(&leaving);
        // What leaves may be gone, or be there to be copied.
        let absent = if self.chance.percent(50) { leaving.clone() } else { BTreeSet::new() };
        let (domains, why) =
            (self.domains.clone(), [Leave::Failed, Leave::Draining, Leave::Abandoned][gone.0 as usize % 3]);
        let leaving = leaving.into_iter().map(|drive| (drive, why)).collect();
        self.part.state_mut().set_drives(DriveSet { usable, leaving, absent, domains, ..DriveSet::default() });
    }

    /// A shard is to be made anew.
    pub fn asked_anew(&mut self, job: RebuildJob) -> Result<(), String> {
        let from = job.place.drives.get(usize::from(job.shard));
        if self.part.state().data_status().healing.damaged > 0 {
            self.rebuilds.push(job);
            return Ok(());
        }
        let leaves = from.is_some_and(|from| self.leaving.contains(from));
        let others = job.place.drives.iter().filter(|drive| Some(*drive) != from);
        let shares = |drive: &DriveId| others.clone().any(|other| self.domains.get(other) == self.domains.get(drive));
        let parts = !self.domains.is_empty() && from.is_some_and(shares) && !shares(&job.to);
        if parts && !leaves {
            self.met.insert("shards moved apart");
        }
        // What the partition knows of their fill may be old.
        let with = |a: &DriveId, b: &DriveId| self.domains.get(a).is_some_and(|d| self.domains.get(b) == Some(d));
        let near = |drive: &DriveId| others.clone().filter(|other| with(other, drive)).count();
        let evens = job.copies && from.is_some_and(|from| near(&job.to) <= near(from));
        if evens && !parts {
            self.met.insert("shards moved to an emptier drive");
        }
        if !(leaves || parts || evens) || job.place.drives.contains(&job.to) {
            return Err(format!("{job:?}: nobody needs that"));
        }
        self.rebuilds.push(job);
        Ok(())
    }

    /// The mover makes it, or fails, perhaps after it has taken the slot.
    pub fn run_rebuild(&mut self) {
        if self.rebuilds.is_empty() {
            return;
        }
        let job = self.rebuilds.remove(self.chance.below(self.rebuilds.len() as u64) as usize);
        let id = ShardId { pack: job.pack, shard: job.shard };
        let stale = self.told.get(&job.to).is_some_and(|term| *term > job.term);
        let shards = self.drives.entry(job.to).or_default();
        let takes = !stale && (shards.contains(&id) || (shards.len() as u32) < self.wish.slots);
        if takes && !(self.wish.chaos && self.chance.percent(10)) {
            shards.insert(id);
            self.told.insert(job.to, job.term);
        }
        let here = |(shard, drive): (u8, &DriveId)| {
            shard == job.shard || self.drives[drive].contains(&ShardId { pack: job.pack, shard })
        };
        let whole = (0_u8..).zip(&job.place.drives).all(here) && self.drives[&job.to].contains(&id);
        let good = whole && !(self.wish.chaos && self.chance.percent(20));
        if good {
            self.met.insert("a shard made anew");
        }
        self.done.push((job.id, good));
    }

    /// Every pack that holds something has all its shards where it says.
    pub fn check_shards(&self, tables: &Tables) -> Result<(), String> {
        for (id, pack) in tables.packs.iter().filter(|(_, pack)| pack.live_upper > 0) {
            if !self.is_there(*id, &pack.place) {
                return Err(format!("{id} lacks a shard: {pack:?}"));
            }
        }
        Ok(())
    }

    /// No pack has a shard on a drive that leaves.
    pub fn is_left(&self) -> bool {
        self.part.state().data_status().leaving.values().all(|left| *left == 0)
    }
}

/// Some packs hold data, and two of the four drives turn out to be in one host.
fn crowded_world(wish: Wish) -> Result<World, String> {
    let (mut world, ino) = calm_world(wish)?;
    for at in 0..8 {
        write(&mut world, ino, at << 20, &vec![at as u8; 300_000])?;
    }
    for _ in 0..40 {
        pass(&mut world, 1_000)?;
    }
    world.domains = (1..=4).map(|drive| (DriveId(drive), DomainId(drive.max(2) as u16))).collect();
    world.use_all_but(DriveId(0), Default::default());
    Ok(world)
}

#[test]
fn packs_that_lie_too_close_are_moved_apart() -> Outcome {
    let mut world = crowded_world(Wish::default())?;
    world.feed(Event::Tick)?;
    let close = world.part.state().data_status().close;
    assert!(close > 0, "{:?}", world.part.state().data_status());
    let mut rounds = 0;
    while world.part.state().data_status().close > 0 {
        pass(&mut world, 5_000)?;
        world.run_rebuild();
        rounds += 1;
        assert!(rounds < 200, "{:?}", world.part.state().data_status());
    }
    assert!(world.met.contains("shards moved apart"));
    world.check_all()
}

/// Seed 3584 of the simulator's leaving world: a drive told what it has before the new place of one of its shards was
/// committed, and was told to drop it; the next primary knew of the old place only.
#[test]
fn what_was_made_anew_is_dropped_elsewhere_when_that_is_committed() -> Outcome {
    assert!(dropped_in_time(None)? && !dropped_in_time(Some(Mutation::DropUndecided))?);
    Ok(())
}

fn dropped_in_time(broken: Option<Mutation>) -> Result<bool, String> {
    let mut world = crowded_world(Wish { broken, ..Wish::default() })?;
    while world.rebuilds.is_empty() {
        pass(&mut world, 1_000)?;
    }
    let RebuildJob { pack, shard, place, to, .. } = world.rebuilds[0].clone();
    let (id, from) = (ShardId { pack, shard }, place.drives[usize::from(shard)]);
    // Every drive is asked what it has, and answers when the shard is made but its place is not committed.
    world.now_ms += 600_000;
    world.feed(Event::Tick)?;
    world.commit(usize::MAX)?;
    world.rebuilds.truncate(1);
    world.run_rebuild();
    while !world.done.is_empty() {
        world.finish_job()?;
    }
    for _ in 0..200 {
        world.answer_drive()?;
    }
    assert!(!world.pending.is_empty() && world.drives[&to].contains(&id));
    // A successor may know of this place only.
    if !world.drives[&from].contains(&id) {
        return Ok(false);
    }
    world.commit(usize::MAX)?;
    for _ in 0..200 {
        world.answer_drive()?;
    }
    assert!(!world.drives[&from].contains(&id), "nobody needs it any more");
    world.check_all().map(|()| true)
}

/// A drive that was abandoned is made up for as if it never came back. If it does meanwhile, what was made is not used.
#[test]
fn what_comes_back_while_it_is_made_up_for_is_kept() -> Outcome {
    let (mut world, ino) = calm_world(Wish::default())?;
    for at in 0..8 {
        write(&mut world, ino, at << 20, &vec![at as u8; 300_000])?;
    }
    for _ in 0..40 {
        pass(&mut world, 1_000)?;
    }
    let lost = DriveId(1);
    world.leaving = BTreeSet::from([lost]);
    let set = |world: &mut World, why, answers: bool| {
        let usable = (2..=4).map(DriveId).collect();
        let absent = if answers { BTreeSet::new() } else { BTreeSet::from([lost]) };
        let leaving = [(lost, why)].into();
        world.part.state_mut().set_drives(DriveSet { usable, leaving, absent, ..DriveSet::default() });
    };
    let place_of = |world: &World, pack| -> Result<_, String> {
        let bytes = world.kv.get(&keys::pack(P, pack)).map_err(|e| e.to_string())?.ok_or("no pack")?;
        Ok(PackRec::decode(&bytes).map_err(|e| e.to_string())?.place)
    };
    let (mut before, mut met) = (0, 0);
    for (why, gone) in [(Leave::Failed, false), (Leave::Draining, false), (Leave::Abandoned, true)] {
        set(&mut world, why, false);
        // What was begun before fails.
        while world.rebuilds.first().is_none_or(|job| job.id <= before) {
            world.done.extend(std::mem::take(&mut world.rebuilds).into_iter().map(|job| (job.id, false)));
            pass(&mut world, 6_000)?;
            met += 1;
            assert!(met < 200, "{why:?}: nothing is made anew");
        }
        let job = world.rebuilds[0].clone();
        before = world.rebuilds.iter().map(|job| job.id).max().unwrap_or(0);
        assert_eq!(job.gone, if gone { vec![job.shard] } else { vec![] }, "{why:?}");
        // It answers by now: what was made without it counts only if nobody had given it up.
        set(&mut world, why, true);
        let others = world.rebuilds.split_off(1);
        world.run_rebuild();
        world.rebuilds = others;
        world.finish_job()?;
        world.commit(usize::MAX)?;
        let placed = place_of(&world, job.pack)?.drives[usize::from(job.shard)];
        assert_eq!(placed, if gone { lost } else { job.to }, "{why:?}");
    }
    world.check_all()
}
