//! Drives that leave, and their shards, which are made anew elsewhere.

use std::collections::BTreeSet;

use braid_base::ids::DriveId;
use braid_base::msg::drive::ShardId;
use braid_base::msg::job::RebuildJob;
use braid_meta::DriveSet;

use super::check::Tables;
use super::world::{DRIVES, World};

impl World {
    /// One drive is not to be used for a while, or is to be emptied; or all are well.
    pub fn change_drives(&mut self) {
        let gone = DriveId(1 + self.chance.below(u64::from(DRIVES) + 2) as u32);
        let leaving = if self.chance.percent(50) { BTreeSet::from([gone]) } else { BTreeSet::new() };
        self.use_all_but(gone, leaving);
    }

    pub fn use_all_but(&mut self, gone: DriveId, leaving: BTreeSet<DriveId>) {
        let usable = self.drives.keys().copied().filter(|drive| *drive != gone).collect();
        self.leaving.clone_from(&leaving);
        self.part.state_mut().set_drives(DriveSet { usable, leaving, ..DriveSet::default() });
    }

    /// A shard is to be made anew.
    pub fn asked_anew(&mut self, job: RebuildJob) -> Result<(), String> {
        let from = job.place.drives.get(usize::from(job.shard));
        if !from.is_some_and(|from| self.leaving.contains(from)) || job.place.drives.contains(&job.to) {
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
