//! Shards of drives that leave (they failed, or are to be emptied) are made anew on others.
//!
//! 1. Of the sealed packs with shards on such drives, the one that lacks most comes first.
//! 2. A drive for the new shard is chosen, and the move that makes it begun (`client/mover`).
//! 3. When all of it is durable there, one entry says that the shard lies there: the pack gets its next epoch. Readers
//!    with the old placement go on computing the shard.
//! 4. What a move leaves behind that fails, or that nobody commits, is an orphan: reports of drives find it.

use std::collections::{BTreeMap, BTreeSet};

use braid_base::ids::{DriveId, FsId, PackId};
use braid_base::msg::drive::ShardId;
use braid_base::msg::job::{Job, RebuildJob};
use braid_base::{Result, keys};

use crate::config::Config;
use crate::data::packs::{Life, Pack};
use crate::event::Effect;
use crate::state::State;
use crate::txn::Txn;

/// Shards of a partition made anew at a time.
const JOBS_MAX: usize = 2;
/// A pack whose shard could not be made is tried again after this, milliseconds.
const AGAIN_MS: u64 = 5_000;
/// When nothing was found, it is looked for again after this, milliseconds.
const LOOK_MS: u64 = 1_000;
/// Numbers of these moves begin here: others never come so far.
const NUMBERS: u64 = 1 << 63;

/// What is being made anew.
pub(crate) struct Rebuilds {
    running: BTreeMap<u64, (ShardId, DriveId)>,
    /// When to try again what failed.
    again_ms: BTreeMap<PackId, u64>,
    /// Shards that drives were told to drop in this term: the word may still be on its way.
    dropped: BTreeSet<(ShardId, DriveId)>,
    next: u64,
    look_ms: u64,
}

impl Rebuilds {
    /// None yet. Numbers of an earlier primary's moves are not used again.
    pub fn new(config: &Config) -> Self {
        let next = NUMBERS | (config.term.0 << 32);
        Self { running: BTreeMap::new(), again_ms: BTreeMap::new(), dropped: BTreeSet::new(), next, look_ms: 0 }
    }

    /// True if the shard is just being made on `drive`.
    pub fn makes(&self, id: ShardId, drive: DriveId) -> bool {
        self.running.values().any(|made| *made == (id, drive))
    }

    /// `drive` is told to drop the shard.
    pub fn dropped(&mut self, id: ShardId, drive: DriveId) {
        self.dropped.insert((id, drive));
    }
}

/// Begins what there is reason for.
pub(crate) fn start(t: &mut Txn<'_>, s: &mut State) {
    let now_ms = t.now.mono_ms;
    if s.data.packs.drives.all_stay() || now_ms < s.data.rebuilds.look_ms {
        return;
    }
    while s.data.rebuilds.running.len() < JOBS_MAX {
        let Some((id, to)) = choose(s, now_ms) else {
            s.data.rebuilds.look_ms = now_ms + LOOK_MS;
            return;
        };
        let Some(pack) = s.data.packs.table.get(&id.pack) else { return };
        let (pack, shard, place, class, fs) = (id.pack, id.shard, pack.rec.place.clone(), pack.rec.class, FsId(0));
        let rebuilds = &mut s.data.rebuilds;
        rebuilds.next += 1;
        rebuilds.running.insert(rebuilds.next, (id, to));
        s.data.packs.drives.took(to, 1);
        let (id, term) = (s.data.rebuilds.next, s.config.term);
        t.at_once(Effect::Job(Job::Rebuild(RebuildJob { id, pack, shard, place, to, class, term, fs })));
    }
}

/// The next shard to make, and where.
fn choose(s: &State, now_ms: u64) -> Option<(ShardId, DriveId)> {
    let (drives, rebuilds) = (&s.data.packs.drives, &s.data.rebuilds);
    let busy = |id: &PackId| rebuilds.running.values().any(|(made, _)| made.pack == *id);
    let due = |id: &PackId| rebuilds.again_ms.get(id).is_none_or(|again_ms| now_ms >= *again_ms);
    let lacks = |pack: &Pack| pack.rec.place.drives.iter().filter(|drive| drives.leaves(**drive)).count();
    let mut found: Vec<(usize, PackId)> = s
        .data
        .packs
        .table
        .iter()
        .filter(|(id, pack)| matches!(pack.life, Life::Sealed { .. }) && !busy(id) && due(id))
        .map(|(id, pack)| (lacks(pack), *id))
        .filter(|(lacks, _)| *lacks > 0)
        .collect();
    // Those that lack most, and of them the oldest.
    found.sort_unstable_by_key(|(lacks, id)| (std::cmp::Reverse(*lacks), *id));
    found.into_iter().find_map(|(_, pack)| {
        let place = &s.data.packs.table.get(&pack)?.rec.place;
        let shard = place.drives.iter().position(|drive| drives.leaves(*drive))?;
        let id = ShardId { pack, shard: shard as u8 };
        let stay: Vec<DriveId> = place.drives.iter().copied().filter(|drive| !drives.leaves(*drive)).collect();
        let refused = |drive| rebuilds.dropped.contains(&(id, drive));
        Some((id, drives.replacement(&stay, place.parity, now_ms, refused)?))
    })
}

/// A move of [`start`] ended; false if `number` is none of them.
pub(crate) fn done(t: &mut Txn<'_>, s: &mut State, number: u64, result: &Result<()>) -> bool {
    let Some((id, to)) = s.data.rebuilds.running.remove(&number) else { return number >= NUMBERS };
    let Some(pack) = s.data.packs.table.get_mut(&id.pack) else { return true };
    let from = pack.rec.place.drives.get(usize::from(id.shard)).copied();
    match (result, from) {
        (Ok(()), Some(from)) if !matches!(pack.life, Life::Dead { .. }) && s.data.packs.drives.leaves(from) => {
            pack.rec.place.drives[usize::from(id.shard)] = to;
            pack.rec.place.epoch.0 += 1;
            t.write(keys::pack(t.partition, id.pack), &pack.rec);
            s.data.rebuilds.again_ms.remove(&id.pack);
        }
        _ => {
            s.data.rebuilds.again_ms.insert(id.pack, t.now.mono_ms + AGAIN_MS);
        }
    }
    s.data.rebuilds.look_ms = 0;
    true
}
