//! Shards of drives that leave (they failed, or are to be emptied) are made anew on others.
//!
//! 1. Of the sealed packs with shards on such drives, the one that lacks most comes first.
//! 2. A drive for the new shard is chosen, and the move that makes it begun (`client/mover`).
//! 3. When all of it is durable there, one entry says that the shard lies there: the pack gets its next epoch. Readers
//!    with the old placement go on computing the shard.
//! 4. Packs that had to be put closer together than one shard in a failure domain are moved apart in the same way, when
//!    there is nothing else to do.
//! 5. Then shards move that make drives evenly full (`data/balance`).
//! 6. What is left on the old drive, if that stays, is dropped when the entry is committed. What a move leaves behind that
//!    fails, or that nobody commits, is an orphan: reports of drives find it.

use std::collections::BTreeMap;

use braid_base::ids::{DriveId, FsId, PackId};
use braid_base::msg::drive::ShardId;
use braid_base::msg::job::{Job, RebuildJob};
use braid_base::{Result, keys};

use crate::config::Config;
use crate::data::balance;
use crate::data::care::drop_orphan;
use crate::data::drives::Drives;
use crate::data::packs::{Life, Pack};
use crate::data::scrub;
use crate::event::Effect;
use crate::state::State;
use crate::txn::Txn;

/// Shards of a partition made anew at a time.
const JOBS_MAX: usize = 2;
/// A pack whose shard could not be made is tried again after this, milliseconds.
const AGAIN_MS: u64 = 5_000;
/// When nothing was found, it is looked for again after this, milliseconds.
const LOOK_MS: u64 = 1_000;
/// The same for packs that lie too close, while no drive is there that would mend it.
const APART_MS: u64 = 10_000;
/// A word to a drive that was answered may come once more for so long, milliseconds: over another connection, after the
/// first one broke.
const TWICE_MS: u64 = 60_000;
/// The same for one of which nothing was heard, or that it failed: it may still be carried out.
const UNHEARD_MS: u64 = 300_000;
/// Numbers of these moves begin here: others never come so far.
const NUMBERS: u64 = 1 << 63;

/// What is being made anew.
pub(crate) struct Rebuilds {
    running: BTreeMap<u64, Made>,
    /// Packs whose shards lie closer together than one in a failure domain; none: somebody has to count them.
    close: Option<u64>,
    /// When to try again what failed, and which shard that was.
    again_ms: BTreeMap<PackId, u64>,
    failed: BTreeMap<PackId, usize>,
    /// Shards that drives were told to drop in this term.
    dropped: BTreeMap<(ShardId, DriveId), Dropped>,
    /// Packs whose shards lie on drives that leave were there at the last look.
    lacks: bool,
    next: u64,
    look_ms: u64,
}

/// What may be on its way to a drive: so many words that were not answered, and until when one may still be carried out.
#[derive(Default)]
struct Dropped {
    words: u32,
    until_ms: u64,
}

/// A shard on its way.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct Made {
    pub id: ShardId,
    pub from: DriveId,
    pub to: DriveId,
    /// Only to make drives evenly full.
    pub evens: bool,
    /// The shards of its pack that were taken for lost when it began, as bits: it may lack what only they have.
    pub gone: u32,
}

impl Rebuilds {
    /// None yet. Numbers of an earlier primary's moves are not used again.
    pub fn new(config: &Config) -> Self {
        let next = NUMBERS | (config.term.0 << 32);
        let (running, again_ms, failed, dropped) = Default::default();
        Self { running, close: None, again_ms, failed, dropped, lacks: false, next, look_ms: 0 }
    }

    /// Packs whose shards lie closer together than one in a failure domain, as far as was counted.
    pub fn close(&self) -> u64 {
        self.close.unwrap_or(0)
    }

    /// Drives or domains are others than before.
    pub fn look_anew(&mut self) {
        (self.close, self.look_ms) = (None, 0);
    }

    /// True if the shard is just being made on `drive`.
    pub fn makes(&self, id: ShardId, drive: DriveId) -> bool {
        self.running.values().any(|made| (made.id, made.to) == (id, drive))
    }

    /// `drive` is told to drop the shard.
    pub fn dropped(&mut self, id: ShardId, drive: DriveId, now_ms: u64) {
        self.dropped.retain(|_, dropped| now_ms < dropped.until_ms);
        let dropped = self.dropped.entry((id, drive)).or_default();
        (dropped.words, dropped.until_ms) = (dropped.words + 1, now_ms + UNHEARD_MS);
    }

    /// It said that it `has`, or could not say.
    pub fn has_dropped(&mut self, id: ShardId, drive: DriveId, has: bool, now_ms: u64) {
        let Some(dropped) = self.dropped.get_mut(&(id, drive)) else { return };
        dropped.words = dropped.words.saturating_sub(1);
        if has && dropped.words == 0 {
            dropped.until_ms = now_ms + TWICE_MS;
        }
    }

    /// True if a word to drop the shard may be on its way to `drive`, and would take one that is made there.
    pub fn is_refused(&self, id: ShardId, drive: DriveId, now_ms: u64) -> bool {
        self.dropped.get(&(id, drive)).is_some_and(|dropped| now_ms < dropped.until_ms)
    }

    /// True if nothing is being done with the shards of a pack, and the last try was long enough ago.
    pub fn is_quiet(&self, id: PackId, now_ms: u64) -> bool {
        let busy = self.running.values().any(|made| made.id.pack == id);
        !busy && self.again_ms.get(&id).is_none_or(|again_ms| now_ms >= *again_ms)
    }
}

/// Begins what there is reason for.
pub(crate) fn start(t: &mut Txn<'_>, s: &mut State) -> Result<()> {
    let now_ms = t.now.mono_ms;
    while s.data.rebuilds.running.len() < JOBS_MAX {
        let Some(made) = needed(s, now_ms).or_else(|| balanced(s, now_ms)) else { break };
        let Some(pack) = s.data.packs.table.get(&made.id.pack) else { break };
        // What drives say of their blocks is no measure: a checksum page may be lost with the marks in it.
        let rows = scrub::committed(t, made.id.pack)?;
        let Made { id: ShardId { pack: id, shard }, from, to, .. } = made;
        let (place, class, fs) = (pack.rec.place.clone(), pack.rec.class, FsId(0));
        let copies = !s.data.packs.drives.is_absent(from);
        let gone = gone(&s.data.packs.drives, &place.drives, shard);
        let rebuilds = &mut s.data.rebuilds;
        rebuilds.next += 1;
        rebuilds.running.insert(rebuilds.next, Made { gone: bits(&gone), ..made });
        s.data.packs.drives.took(to, 1);
        let (number, term) = (s.data.rebuilds.next, s.config.term);
        let job = RebuildJob { id: number, pack: id, shard, place, rows, to, copies, gone, class, term, fs };
        t.at_once(Effect::Job(Job::Rebuild(job)));
    }
    Ok(())
}

/// The shards of a pack on `place` that never come back, if `shard` is one of them: as long as that may, it may make up
/// for others.
fn gone(drives: &Drives, place: &[DriveId], shard: u8) -> Vec<u8> {
    let is_gone = |shard: &u8| place.get(usize::from(*shard)).is_some_and(|drive| drives.is_gone(*drive));
    if is_gone(&shard) { (0..place.len() as u8).filter(is_gone).collect() } else { Vec::new() }
}

fn bits(shards: &[u8]) -> u32 {
    shards.iter().fold(0, |bits, shard| bits | 1 << shard)
}

/// What is to be done to have all data protected as it should be.
fn needed(s: &mut State, now_ms: u64) -> Option<Made> {
    let stay = s.data.packs.drives.all_stay();
    if now_ms < s.data.rebuilds.look_ms || (stay && s.data.rebuilds.close == Some(0)) {
        return None;
    }
    let found = choose(s, now_ms).or_else(|| choose_close(s, now_ms));
    if found.is_none() {
        s.data.rebuilds.look_ms = now_ms + if stay { APART_MS } else { LOOK_MS };
    }
    found
}

/// What makes drives evenly full: one at a time, when nothing is needed.
fn balanced(s: &mut State, now_ms: u64) -> Option<Made> {
    let idle = !s.data.rebuilds.lacks && s.data.rebuilds.running.is_empty();
    if idle { balance::choose(s, now_ms) } else { None }
}

/// Packs whose shards may be made anew: they do not change any more, and nothing else is done with them.
fn quiet(s: &State, now_ms: u64) -> impl Iterator<Item = (&PackId, &Pack)> {
    let sealed = s.data.packs.table.iter().filter(|(_, pack)| matches!(pack.life, Life::Sealed { .. }));
    sealed.filter(move |(id, _)| s.data.rebuilds.is_quiet(**id, now_ms))
}

/// The next shard to make because its drive leaves, and where.
fn choose(s: &mut State, now_ms: u64) -> Option<Made> {
    s.data.rebuilds.lacks = false;
    let drives = &s.data.packs.drives;
    if drives.all_stay() {
        return None;
    }
    let lacks = |pack: &Pack| pack.rec.place.drives.iter().filter(|drive| drives.leaves(**drive)).count();
    // One without parity can only be copied; else it is given up (`tier/bare`).
    let gone = |pack: &Pack| pack.is_bare() && pack.rec.place.drives.iter().any(|drive| drives.is_absent(*drive));
    let lacking = quiet(s, now_ms).filter(|(_, pack)| !gone(pack)).map(|(id, pack)| (lacks(pack), *id));
    let mut found: Vec<(usize, PackId)> = lacking.filter(|(lacks, _)| *lacks > 0).collect();
    // Those that lack most, and of them the oldest.
    found.sort_unstable_by_key(|(lacks, id)| (std::cmp::Reverse(*lacks), *id));
    s.data.rebuilds.lacks = !found.is_empty();
    let (drives, rebuilds) = (&s.data.packs.drives, &s.data.rebuilds);
    found.into_iter().find_map(|(lacks, pack)| {
        let place = &s.data.packs.table.get(&pack)?.rec.place;
        // Those that wait for nobody first; after one that failed the next one: none holds up the others.
        let mut leaving: Vec<usize> =
            (0..place.drives.len()).filter(|shard| drives.leaves(place.drives[*shard])).collect();
        leaving.sort_by_key(|shard| !drives.is_gone(place.drives[*shard]));
        let after = rebuilds.failed.get(&pack).and_then(|failed| leaving.iter().position(|shard| shard == failed));
        let shard = *leaving.get(after.map_or(0, |at| (at + 1) % leaving.len()))?;
        let id = ShardId { pack, shard: shard as u8 };
        let stay: Vec<DriveId> = place.drives.iter().copied().filter(|drive| !drives.leaves(*drive)).collect();
        let refused = |drive| rebuilds.is_refused(id, drive, now_ms);
        let urgent = lacks >= usize::from(place.parity);
        let to = drives.replacement(&stay, (place.parity, urgent), now_ms, refused)?;
        Some(Made { id, from: place.drives[shard], to, evens: false, gone: 0 })
    })
}

/// The next shard to move because it fails together with another one of its pack, and where. Counts them.
fn choose_close(s: &mut State, now_ms: u64) -> Option<Made> {
    let drives = &s.data.packs.drives;
    let crowded = |pack: &Pack| drives.crowded(&pack.rec.place.drives);
    let all = s.data.packs.table.values().filter(|pack| !matches!(pack.life, Life::Dead { .. }));
    let close = all.filter(|pack| crowded(pack).is_some()).count() as u64;
    let rebuilds = &s.data.rebuilds;
    let found = quiet(s, now_ms).filter(|_| close > 0).find_map(|(pack, value)| {
        let shard = crowded(value)?;
        let id = ShardId { pack: *pack, shard: shard as u8 };
        let refused = |drive| rebuilds.is_refused(id, drive, now_ms);
        let to = drives.apart_from(&value.rec.place.drives, shard, now_ms, refused)?;
        Some(Made { id, from: value.rec.place.drives[shard], to, evens: false, gone: 0 })
    });
    s.data.rebuilds.close = Some(close);
    found
}

/// A move of [`start`] ended; false if `number` is none of them.
pub(crate) fn done(t: &mut Txn<'_>, s: &mut State, number: u64, result: &Result<()>) -> bool {
    let Some(made) = s.data.rebuilds.running.remove(&number) else { return number >= NUMBERS };
    let Made { id, from, to, evens, gone: taken_for_lost } = made;
    let (drives, now_ms) = (&s.data.packs.drives, t.now.mono_ms);
    let Some(pack) = s.data.packs.table.get_mut(&id.pack) else {
        // It was dropped meanwhile, without what was just made.
        drop_orphan(t, s, id, to);
        return true;
    };
    let (at, on) = (usize::from(id.shard), &pack.rec.place.drives);
    let leaves = drives.leaves(from);
    let wanted = leaves || drives.crowded(on).is_some() || (evens && drives.may_take(to, on, at, now_ms));
    // Another shard may have been mended there meanwhile.
    let same = on.get(at) == Some(&from) && !on.contains(&to) && drives.keeps(to);
    // What came back meanwhile is not thrown away.
    let lost = bits(&gone(drives, on, id.shard)) & taken_for_lost == taken_for_lost;
    if result.is_ok() && same && wanted && lost && !matches!(pack.life, Life::Dead { .. }) {
        pack.rec.place.drives[at] = to;
        pack.rec.place.epoch.0 += 1;
        t.write(keys::pack(t.partition, id.pack), &pack.rec);
        s.data.rebuilds.again_ms.remove(&id.pack);
        s.data.rebuilds.failed.remove(&id.pack);
        let bytes = s.config.shard_bytes;
        if taken_for_lost > 0 {
            s.data.scrub.look_at(t, id.pack);
        }
        if evens {
            s.data.balance.moved(now_ms, bytes);
        } else {
            s.data.scrub.made(now_ms, bytes);
        }
        if !leaves {
            drop_orphan(t, s, id, from);
        }
    } else {
        let placed = on.get(at) == Some(&to);
        s.data.rebuilds.again_ms.insert(id.pack, now_ms + AGAIN_MS);
        s.data.rebuilds.failed.insert(id.pack, at);
        if !placed {
            drop_orphan(t, s, id, to);
        }
    }
    if !evens {
        s.data.rebuilds.look_anew();
    }
    true
}
