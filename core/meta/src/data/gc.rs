//! Garbage collection by copying: picks the packs with the least in use and moves that elsewhere. Packs that cannot stay
//! as they are, because the drives that stay are too few for their shards, come first.
//!
//! The rest is done by others: the move is an ordinary one, the emptied pack is found by its count.

use std::collections::{BTreeMap, BTreeSet};

use braid_base::Result;
use braid_base::ids::{Chunk, FsId, Ino, PackId};
use braid_base::keys::{self, prefix_end};
use braid_base::limits::{BLOCK, CLEANUP_KEYS_MAX, GC_EARLY_PERCENT, GC_START_PERCENT, GC_URGENT_PERCENT};
use braid_base::record::{PackClass, Place};

use crate::data::Mutation;
use crate::data::care::hinted;
use crate::data::chunk::ChunkId;
use crate::data::destage::Choice;
use crate::data::packs::{Life, Pack};
use crate::data::plan::Moves;
use crate::data::view::Cuts;
use crate::data::{remap, scrub};
use crate::state::State;
use crate::txn::Txn;

/// A pack is worth emptying if what is in use of it would take at most this much of its room on the drives, per cent:
/// when little is free.
const WORTH_PERCENT: u64 = 85;
/// The same while there is still much free, or while the partition is at work: what is in use now may soon be
/// overwritten, and then need not be copied. Every restart leaves packs behind that hold next to nothing: so many of
/// them must not gather that there is no slot left for the pack that would take them all in.
const WORTH_EARLY_PERCENT: u64 = 25;
/// The same when there is no slot left but those kept for this: any gain is one.
const WORTH_LAST_PERCENT: u64 = 97;

/// Packs that are emptied together, at most. The base of a chunk is written once for what moves of it out of all.
const VICTIMS_MAX: usize = 4;
/// Packs that are emptied together are in use to about the same share, per cent.
const VICTIMS_SPAN_PERCENT: u64 = 10;
/// Packs that are looked at before some are taken, at most.
const LOOKS_MAX: usize = 8;
/// Places in a pack where some chunks are looked at, and how many at each.
const SAMPLE_PLACES: u16 = 4;
const SAMPLE_CHUNKS: usize = 16;
/// Chunks looked for at a time: more than one move takes.
const CHUNKS_AT_ONCE: usize = 128;

/// All packs are looked at this often, milliseconds, while drives are emptied.
const LOOK_MS: u64 = 1_000;
/// So many moves out of the same packs fail until others are chosen for a while...
const FAILURES_MAX: u32 = 3;
/// ...which is so long, milliseconds.
const BARRED_MS: u64 = 60_000;

/// The collection under way.
#[derive(Default)]
pub(crate) struct Gc {
    /// The packs that are emptied; the chunks of the first one are gone through.
    victims: Vec<PackId>,
    /// Hints before this one name chunks that no longer refer to the first victim.
    next: Option<Vec<u8>>,
    /// Packs that hold few bytes in many blocks: how many bytes they held when they were looked at, and in about
    /// how many blocks. Nothing comes of copying them until they hold less.
    dense: BTreeMap<PackId, (u64, u64)>,
    /// Packs that cannot stay as they are, as of the last look, and when to look again.
    cramped: Vec<PackId>,
    look_ms: u64,
    /// Moves that failed in a row.
    failures: u32,
    /// Packs that are not chosen before then, because moves out of them failed.
    barred: BTreeMap<PackId, u64>,
    /// What must never be ([`Mutation::NoScan`]): packs that die whatever refers to them.
    given_up: BTreeSet<PackId>,
}

impl Gc {
    /// True if the pack dies without a look at what refers to it.
    pub fn is_given_up(&self, id: PackId) -> bool {
        self.given_up.contains(&id)
    }
}

/// True if garbage is collected before anything else is moved: little is free, or only what is kept for this.
pub(crate) fn urgent(s: &State) -> bool {
    let drives = &s.data.packs.drives;
    drives.free_percent().is_some_and(|free| free < GC_URGENT_PERCENT)
        || !drives.have_room(PackClass::User, s.config.parity)
}

/// The next chunks to move out of the victims; `None` if there is nothing to collect or all of it is on its way.
pub(crate) fn choose(t: &Txn<'_>, s: &mut State) -> Result<Option<Choice>> {
    let now_ms = t.now.mono_ms;
    if now_ms >= s.data.gc.look_ms {
        s.data.gc.cramped = cramped(s, now_ms);
        s.data.gc.look_ms = now_ms + LOOK_MS;
    }
    let cramped: Vec<PackId> = s.data.gc.cramped.iter().copied().filter(|id| can_move(s, *id, now_ms)).collect();
    let worth = worth(s, now_ms);
    if cramped.is_empty() && worth.is_none() {
        (s.data.gc.victims, s.data.gc.next) = Default::default();
        return Ok(None);
    }
    let kept = |id: &PackId| {
        let pack = s.data.packs.table.get(id);
        let sealed = |pack: &Pack| matches!(pack.life, Life::Sealed { .. }) && pack.rec.live_upper > 0;
        pack.is_some_and(sealed) && can_move(s, *id, now_ms)
    };
    let first = s.data.gc.victims.first().copied();
    let victims = s.data.gc.victims.iter().copied().filter(kept).collect();
    s.data.gc.victims = victims;
    if s.data.gc.victims.is_empty() {
        s.data.gc.victims = match worth {
            Some(worth) if cramped.is_empty() => pick(t, s, worth)?,
            _ => cramped,
        };
    }
    if s.data.gc.victims.first().copied() != first {
        s.data.gc.next = None;
    }
    let Some(victim) = s.data.gc.victims.first().copied() else { return Ok(None) };
    let prefix = keys::hints(t.partition, victim);
    let from = s.data.gc.next.clone().unwrap_or_else(|| prefix.clone());
    let (hints, next) = hinted(t, &from, &prefix_end(&prefix), CLEANUP_KEYS_MAX)?;
    let (mut chunks, mut seen): (Vec<ChunkId>, BTreeSet<ChunkId>) = Default::default();
    let mut first = None;
    for (sb, file, chunk) in hints {
        let id = file.chunk(chunk);
        if !seen.insert(id) || !refers(t, s, id, victim)? {
            continue;
        }
        first.get_or_insert_with(|| keys::hint(t.partition, victim, sb, file.fs, file.ino, chunk));
        if !s.data.jobs.is_busy(id) {
            chunks.push(id);
        }
        if chunks.len() == CHUNKS_AT_ONCE {
            break;
        }
    }
    if first.is_none() && next.is_none() {
        // Nothing left here. The count finds this one's end.
        s.data.gc.victims.remove(0);
    }
    s.data.gc.next = first.or(next);
    let (class, moves, sweep) = (PackClass::Gc, Moves::Packs(s.data.gc.victims.clone()), BTreeSet::new());
    Ok((!chunks.is_empty()).then_some(Choice { class, moves, chunks, sweep }))
}

/// Some of the packs with a shard on a drive that is to be emptied, and more shards than the drives that stay can take:
/// what is in them has to go to narrower ones. What cannot be read stays where it is.
///
/// That takes room, and is done only while there is some for anybody: what is kept for collection is for what frees more.
fn cramped(s: &State, now_ms: u64) -> Vec<PackId> {
    let drives = &s.data.packs.drives;
    if drives.all_stay() || !drives.have_room(PackClass::User, s.config.parity) {
        return Vec::new();
    }
    let widest = drives.widest(s.config.parity);
    let is_cramped = |id: &PackId, pack: &Pack| {
        let on = &pack.rec.place.drives;
        matches!(pack.life, Life::Sealed { .. })
            && pack.rec.live_upper > 0
            && on.len() > widest
            && on.iter().any(|drive| drives.is_emptied(*drive))
            && can_move(s, *id, now_ms)
    };
    let found = s.data.packs.table.iter().filter(|(id, pack)| is_cramped(id, pack)).map(|(id, _)| *id);
    found.take(VICTIMS_MAX).collect()
}

/// True unless a move of all that is in a pack would fail, as far as is known.
fn can_move(s: &State, id: PackId, now_ms: u64) -> bool {
    s.data.gc.barred.get(&id).is_none_or(|until_ms| now_ms >= *until_ms) && !scrub::has_lost(s, id)
}

/// A move out of the victims ended. If several in a row failed, others come first for a while, and it is looked whether these can be read.
pub(crate) fn moved(t: &mut Txn<'_>, s: &mut State, ok: bool) {
    let now_ms = t.now.mono_ms;
    let gc = &mut s.data.gc;
    gc.failures = if ok { 0 } else { gc.failures + 1 };
    if gc.failures < FAILURES_MAX {
        return;
    }
    gc.failures = 0;
    gc.barred.retain(|_, until_ms| now_ms < *until_ms);
    for victim in std::mem::take(&mut gc.victims) {
        gc.barred.insert(victim, now_ms + BARRED_MS);
        if s.data.packs.table.get(&victim).is_some_and(|pack| matches!(pack.life, Life::Sealed { .. })) {
            s.data.scrub.look_at(t, victim);
        }
    }
}

/// How much of a pack may be in use for it to be collected now, per cent; `None`: nothing is.
fn worth(s: &State, now_ms: u64) -> Option<u64> {
    if !s.data.packs.drives.have_room(PackClass::User, s.config.parity) {
        return Some(WORTH_LAST_PERCENT);
    }
    let free = s.data.packs.drives.free_percent()?;
    if free < GC_URGENT_PERCENT {
        return Some(WORTH_PERCENT);
    }
    if free < GC_START_PERCENT && s.data.stage.is_calm(now_ms) {
        // Nobody waits for it, so the less is free the more it may cost.
        let (short, span) = (GC_START_PERCENT - free, GC_START_PERCENT - GC_URGENT_PERCENT);
        return Some(WORTH_EARLY_PERCENT + (WORTH_PERCENT - WORTH_EARLY_PERCENT) * short / span);
    }
    (free < GC_EARLY_PERCENT).then_some(WORTH_EARLY_PERCENT)
}

fn refers(t: &Txn<'_>, s: &State, chunk: ChunkId, victim: PackId) -> Result<bool> {
    let history = remap::history(t, s, chunk, &Cuts::default())?;
    Ok(history.pointers().any(|extent| matches!(extent.place, Place::Flash { stripe, .. } if stripe.pack == victim)))
}

/// The sealed packs whose content would take the least share of their room, if it is at most `worth` per cent: as many
/// as there is room for what is copied before the first of them is empty.
///
/// Bytes choose, blocks decide: what is copied takes whole blocks, so a pack full of small files or of the ends of
/// files would take as much room again, for ever.
fn pick(t: &Txn<'_>, s: &mut State, worth: u64) -> Result<Vec<PackId>> {
    let packs = &s.data.packs;
    let width = width(s, t.now.mono_ms);
    let mut found: Vec<((u64, u64, PackId), u64, Shape)> = Vec::new();
    for (id, pack) in packs.table.iter().filter(|(_, pack)| matches!(pack.life, Life::Sealed { .. })) {
        let (live, drives) = (pack.rec.live_upper, &pack.rec.place.drives);
        let blocks = live.div_ceil(BLOCK as u64);
        let data = width.unwrap_or(pack.rec.place.data);
        let shape = |shards: usize| Shape::new(shards as u64 * u64::from(packs.shard_blocks), data, s.config.parity);
        if live == 0 || shape(drives.len()).share(blocks) > worth || !can_move(s, *id, t.now.mono_ms) {
            continue;
        }
        // Slots of drives that are not used are no gain.
        let shape = shape(drives.iter().filter(|drive| packs.drives.is_usable(**drive)).count());
        let share = shape.share(blocks);
        if share <= worth {
            // Of two that gain the same the one on fuller drives: else these have no slot left for what could be wider.
            found.push(((share, packs.drives.free_on(drives), *id), live, shape));
        }
    }
    found.sort_unstable_by_key(|(order, ..)| *order);
    let room = packs.drives.free_packs(s.config.data + s.config.parity) / 2;
    let count = room.clamp(1, VICTIMS_MAX);
    let (mut victims, mut most, mut looked) = (Vec::new(), u64::MAX, 0);
    for ((share, _, id), live, shape) in found {
        let is_dense = |(then, held): &(u64, u64)| *then == live && shape.share(*held) > worth;
        if s.data.gc.dense.get(&id).is_some_and(is_dense) {
            continue;
        }
        if victims.len() == count || share > most || looked == LOOKS_MAX {
            break;
        }
        looked += 1;
        let held = occupied(t, s, id, live)?;
        if shape.share(held) > worth {
            s.data.gc.dense.insert(id, (live, held));
            continue;
        }
        most = most.min(share + VICTIMS_SPAN_PERCENT);
        if s.data.mutation == Some(Mutation::NoScan) {
            s.data.gc.given_up.insert(id);
            s.data.packs.care.insert(id);
        }
        victims.push(id);
    }
    let table = &s.data.packs.table;
    s.data.gc.dense.retain(|id, _| table.contains_key(id));
    Ok(victims)
}

/// Data shards of the pack that is opened next for what is copied; of an open one if none can be; `None` if there is
/// none either.
fn width(s: &State, now_ms: u64) -> Option<u8> {
    let (packs, config) = (&s.data.packs, &s.config);
    let next = packs.drives.choose((packs.newest + 1, PackClass::Gc), config.data, config.parity, now_ms);
    let lends = |pack: &&Pack| pack.rec.class == PackClass::Gc && matches!(pack.life, Life::Lending { .. });
    let open = || packs.table.values().filter(lends).map(|pack| pack.rec.place.data).max();
    next.map(|(data, _)| data).or_else(open)
}

/// What a pack takes on the drives, and how what is in use of it would lie elsewhere.
///
/// Packs that were written while few drives had room are narrow: full to the last block they still take up to twice
/// what the same bytes take in wider ones. Where only narrow packs can be had, there is as much less to gain.
#[derive(Clone, Copy)]
struct Shape {
    /// Blocks that come free with the pack.
    whole: u64,
    /// Data shards elsewhere.
    data: u64,
    /// All shards there.
    shards: u64,
}

impl Shape {
    fn new(whole: u64, data: u8, parity: u8) -> Self {
        let data = u64::from(data.max(1));
        Self { whole: whole.max(1), data, shards: data + u64::from(parity) }
    }

    /// What `blocks` of content would take, per cent of what comes free: whole rows, and one more, because a move ends
    /// in the middle of a row. Without that a pack that lacks a block would be copied for ever.
    fn share(&self, blocks: u64) -> u64 {
        let rows = if blocks == 0 { 0 } else { blocks.div_ceil(self.data) + 1 };
        (rows * self.shards * 100).div_ceil(self.whole)
    }
}

/// About how many blocks of files lie in a pack with at least one byte, if its count says `live` bytes: judged by some
/// of its chunks, because a look at all of them would hold up everything else.
fn occupied(t: &Txn<'_>, s: &State, id: PackId, live: u64) -> Result<u64> {
    let end = prefix_end(&keys::hints(t.partition, id));
    let (mut seen, mut bytes, mut blocks) = (BTreeSet::new(), 0, 0);
    for place in 0..SAMPLE_PLACES {
        let sb = s.data.packs.shard_blocks / SAMPLE_PLACES * place;
        let from = keys::hint(t.partition, id, sb, FsId(0), Ino(0), Chunk(0));
        for (_, file, chunk) in hinted(t, &from, &end, SAMPLE_CHUNKS)?.0 {
            let chunk = file.chunk(chunk);
            if !seen.insert(chunk) {
                continue;
            }
            let cuts = remap::cuts(t, s, file)?;
            let mut held = BTreeSet::new();
            for extent in remap::history(t, s, chunk, &cuts)?.now().extents {
                if matches!(extent.place, Place::Flash { stripe, .. } if stripe.pack == id) {
                    bytes += u64::from(extent.len);
                    held.extend(extent.off / BLOCK as u32..=(extent.off + extent.len - 1) / BLOCK as u32);
                }
            }
            blocks += held.len() as u64;
        }
    }
    // Nothing but hints of what is gone: the count is too high, and copying costs nothing.
    Ok(if bytes == 0 { 0 } else { (live as u128 * u128::from(blocks) / u128::from(bytes)) as u64 })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_counts_is_the_room_that_a_copy_gains() {
        const SB: u64 = 16;
        let worth = |(data, blocks): (u64, u64), to, most| Shape::new((data + 2) * SB, to, 2).share(blocks) <= most;
        assert!(!worth((2, 31), 2, WORTH_LAST_PERCENT), "one block less than full, and so again after a copy");
        assert!(worth((2, 27), 2, WORTH_LAST_PERCENT));
        assert!(worth((1, 16), 2, WORTH_PERCENT) && worth((1, 16), 4, WORTH_PERCENT), "full, and narrow");
        assert!(!worth((4, 48), 1, WORTH_LAST_PERCENT), "there is no pack to be had but narrow ones");
        assert!(worth((4, 0), 1, WORTH_EARLY_PERCENT));
    }
}
