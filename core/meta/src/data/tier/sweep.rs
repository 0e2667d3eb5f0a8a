//! Goes through the bases of a tiered file system: finds what is to be put into objects, and gives up what may leave flash.
//!
//! A pass looks at every base, a few in each step. What is ripe is remembered and goes into objects in the order of its
//! age; what may leave, leaves at once. The next pass begins when the next chunk becomes ripe: while nothing does, nothing
//! is looked at. Where flash is short, what is in objects leaves before its time, the oldest first.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use braid_base::Result;
use braid_base::ids::FsId;
use braid_base::keys::{self, prefix_end};
use braid_base::limits::CHUNK;
use braid_base::record::{BaseRec, Extent, Place, Record};

use crate::config::TierPolicy;
use crate::data::Mutation;
use crate::data::chunk::{ChunkId, FileId};
use crate::data::remap::{self, UsedChanges};
use crate::data::tier::upload::{self, Cargo};
use crate::data::tier::{bare, beyond_flash, damage, is_short, leaves, notice, reclaim, wall_s};
use crate::state::State;
use crate::txn::Txn;

/// Bases looked at in one step: some 2 ms of work, ten times a second.
const BASES_AT_ONCE: usize = 1_024;
/// Chunks that are remembered as ripe, at most, the oldest: the rest is found by a pass that begins when there are so few.
const RIPE_MAX: usize = 65_536;
const RIPE_FEW: usize = RIPE_MAX / 2;
/// Pause between two passes, at least, milliseconds; and as long as the last one took.
const PAUSE_MS: u64 = 1_000;
/// Who wants things out of flash names them one after the other: more may come within this, milliseconds.
const WANTED_MS: u64 = 300;
/// What somebody wants out of flash is on its way as long as the last of it left, or was asked for, within this, milliseconds.
const LEAVES_MS: u64 = 5_000;
/// Bytes on flash whose copy in an object is damaged are looked at again after this, seconds.
const DAMAGE_S: u32 = 600;
/// What is exposed because its object is damaged is wanted elsewhere again after this, seconds.
const EXPOSED_S: u32 = 60;
/// A pass that found nothing due is followed by another one after this, seconds, whatever else is known.
const LOOK_S: u32 = 3_600;

/// How far a pass is, and what it found.
#[derive(Default)]
pub(crate) struct Sweep {
    /// The key to go on with, while one is under way.
    at: Option<Vec<u8>>,
    /// When it began, and when the next one may begin, milliseconds.
    begun_ms: u64,
    due_ms: u64,
    /// When the next chunk becomes ripe, seconds since 1970; none: no pass has ended yet.
    next_s: Option<u32>,
    /// Everything is to be looked at once more, from the start on.
    again: bool,
    /// When the next chunk becomes ripe, of what this pass has seen and what was written meanwhile.
    seen_s: Option<u32>,
    /// Chunks that are to be put into objects, by age, with how many bytes of them.
    ripe: BTreeMap<(u32, ChunkId), u64>,
    ripe_bytes: u64,
    /// There were more of them than are remembered since the last pass began.
    left_out: bool,
    /// Chunks that are in objects beside flash, by when they were last put there, or read: the oldest that are known.
    copied: BTreeSet<(u32, ChunkId)>,
    /// Those that somebody wants out of flash now.
    wanted: VecDeque<ChunkId>,
    /// The same with how many bytes of flash each holds, as far as that was looked at; and of all together.
    wants: BTreeMap<ChunkId, u64>,
    wants_bytes: u64,
    /// When somebody last wanted another one, milliseconds.
    wanted_ms: u64,
    /// Objects are being put together, because they have too many holes.
    pub reclaims: bool,
    /// When that is looked at again, milliseconds.
    pub reclaim_ms: u64,
    /// Since when there is reason to put objects together, milliseconds.
    pub reclaim_since_ms: Option<u64>,
}

impl Sweep {
    /// A base was written that counts from `since_s`.
    pub fn changed(&mut self, policy: &TierPolicy, since_s: u32) {
        let ripe_s = since_s.saturating_add(policy.cue_s.min(policy.retention_s));
        for next in [&mut self.next_s, &mut self.seen_s] {
            *next = next.map(|next| next.min(ripe_s));
        }
    }

    /// The next pass begins as soon as it may, and looks at everything.
    pub fn now(&mut self) {
        (self.next_s, self.again) = (None, true);
    }

    /// `chunk` is to leave flash, whatever its age.
    pub fn want(&mut self, chunk: ChunkId, now_ms: u64) {
        if self.wanted.len() < RIPE_MAX && !self.wants.contains_key(&chunk) {
            self.wants.insert(chunk, 0);
            self.wanted.push_back(chunk);
            self.wanted_ms = now_ms;
        }
    }

    /// `chunk`, which is to leave flash, holds so many bytes of it.
    fn holds(&mut self, chunk: ChunkId, bytes: u64) {
        if let Some(held) = self.wants.get_mut(&chunk) {
            self.wants_bytes = self.wants_bytes + bytes - *held;
            *held = bytes;
        }
    }

    /// `chunk` does not hold any of flash any more, or cannot leave it.
    fn unwant(&mut self, chunk: ChunkId) {
        self.wants_bytes -= self.wants.remove(&chunk).unwrap_or(0);
    }

    /// `bytes` of `chunk`, which counts from `since_s`, are to go into an object.
    pub fn add(&mut self, since_s: u32, chunk: ChunkId, bytes: u64) {
        let before = self.ripe.insert((since_s, chunk), bytes).unwrap_or(0);
        self.ripe_bytes = self.ripe_bytes + bytes - before;
        if self.ripe.len() > RIPE_MAX
            && let Some((_, youngest)) = self.ripe.pop_last()
        {
            self.ripe_bytes -= youngest;
            self.left_out = true;
        }
    }

    /// Bytes that are to go into objects, as far as they are known, and from when the oldest of them counts; what somebody
    /// wants out has no age.
    pub fn due(&self) -> (u64, Option<u32>) {
        let oldest = self.ripe.keys().find(|(since_s, _)| *since_s > 0);
        (self.ripe_bytes, oldest.map(|(since_s, _)| *since_s))
    }

    /// What counts from then of that chunk is not to go into an object any more.
    pub fn take(&mut self, key: (u32, ChunkId)) {
        self.ripe_bytes -= self.ripe.remove(&key).unwrap_or(0);
    }

    /// `chunk` could leave flash if it has to; it was last put into an object, or read, at `since_s`.
    pub fn may_leave(&mut self, since_s: u32, chunk: ChunkId) {
        self.copied.insert((since_s, chunk));
        if self.copied.len() > RIPE_MAX {
            self.copied.pop_last();
        }
    }

    fn ripens(&mut self, at_s: u32) {
        self.seen_s = Some(self.seen_s.map_or(at_s, |seen| seen.min(at_s)));
    }

    /// True if a pass is to begin: something may be ripe, or there was more of it than is remembered, and that is nearly gone.
    fn is_due(&self, now_ms: u64, now_s: u32) -> bool {
        // Further away than any pass is set: the clock was set back.
        let ripe = self.next_s.is_none_or(|next| next <= now_s || next > now_s.saturating_add(LOOK_S));
        self.at.is_none() && now_ms >= self.due_ms && (ripe || (self.left_out && self.ripe.len() <= RIPE_FEW))
    }

    /// A pass begins at the key `from`.
    fn begin(&mut self, from: Vec<u8>, now_ms: u64) {
        (self.at, self.begun_ms, self.seen_s) = (Some(from), now_ms, None);
        (self.again, self.left_out) = (false, false);
    }

    /// The pass ended. The next one may begin after as long a time, but at once if there was more than is remembered.
    fn ended(&mut self, now_ms: u64, now_s: u32) {
        let took_ms = if self.left_out { 0 } else { now_ms - self.begun_ms };
        self.due_ms = now_ms + PAUSE_MS.max(took_ms);
        let later = now_s.saturating_add(LOOK_S);
        self.next_s = Some(self.seen_s.map_or(later, |seen| seen.min(later)));
    }
}

/// One bounded step for each tiered file system.
pub(super) fn step(t: &mut Txn<'_>, s: &mut State) -> Result<()> {
    let all: Vec<FsId> = s.data.tier.policies.keys().copied().collect();
    for fs in all {
        if t.is_full() {
            return Ok(());
        }
        // Out of its place while it works: it looks at everything else.
        let mut sweep = s.data.tier.sweeps.remove(&fs).unwrap_or_default();
        let policy = s.data.tier.policies.get(&fs).cloned().unwrap_or_default();
        let done = one(t, s, fs, &policy, &mut sweep);
        s.data.tier.sweeps.insert(fs, sweep);
        done?;
    }
    Ok(())
}

fn one(t: &mut Txn<'_>, s: &mut State, fs: FsId, policy: &TierPolicy, sweep: &mut Sweep) -> Result<()> {
    let mut used = UsedChanges::default();
    leave(t, s, policy, sweep, &mut used)?;
    shed(t, s, fs, sweep, &mut used)?;
    let (now_ms, now_s) = (t.now.mono_ms, wall_s(t));
    if sweep.is_due(now_ms, now_s) {
        sweep.begin(keys::bases_of(t.partition, fs), now_ms);
    }
    if let Some(from) = sweep.at.take() {
        look(t, s, (fs, policy), from, sweep, &mut used)?;
        if sweep.at.is_none() {
            sweep.ended(now_ms, now_s);
            if (is_short(s, fs) && sweep.copied.is_empty()) || sweep.again {
                // What comes now has to leave as soon as it may.
                sweep.now();
            }
        }
    }
    used.book(t, s)?;
    send(t, s, (fs, policy), sweep)?;
    reclaim::step(t, s, (fs, policy), sweep)
}

/// Looks at the next bases.
fn look(
    t: &mut Txn<'_>,
    s: &mut State,
    (fs, policy): (FsId, &TierPolicy),
    from: Vec<u8>,
    sweep: &mut Sweep,
    used: &mut UsedChanges,
) -> Result<()> {
    let mut found: Vec<(Vec<u8>, ChunkId, Vec<u8>)> = Vec::new();
    let end = prefix_end(&keys::bases_of(t.partition, fs));
    t.scan(&from, &end, &mut |key, value| {
        let (Some((fs, ino)), Some(chunk), Some(layer)) =
            (keys::ino_of(key), keys::chunk_of(key), keys::chunk_layer(key))
        else {
            return true;
        };
        found.push((key.to_vec(), FileId { fs, ino, layer }.chunk(chunk), value.to_vec()));
        found.len() <= BASES_AT_ONCE
    })?;
    let more = found.len() > BASES_AT_ONCE;
    if more && let Some((next, ..)) = found.pop() {
        sweep.at = Some(next);
    }
    for (key, chunk, value) in found {
        if t.is_full() {
            sweep.at = Some(key);
            return Ok(());
        }
        judge(t, s, policy, (chunk, &BaseRec::decode(&value)?), sweep, used)?;
    }
    Ok(())
}

/// What is to become of one chunk.
fn judge(
    t: &mut Txn<'_>,
    s: &mut State,
    policy: &TierPolicy,
    (chunk, base): (ChunkId, &BaseRec),
    sweep: &mut Sweep,
    used: &mut UsedChanges,
) -> Result<()> {
    let (now_s, short) = (wall_s(t), is_short(s, chunk.file.fs));
    if base.extents.iter().any(|extent| bare::is_exposed(s, chunk.file.fs, extent)) {
        s.data.tier.fetches.want(chunk);
        let damaged = s.data.tier.damage.waits(&base.extents);
        sweep.ripens(now_s.saturating_add(if damaged { EXPOSED_S } else { 1 }));
    }
    if damage::forget_copies(t, s, (chunk, base), used)? {
        sweep.ripens(now_s.saturating_add(1));
        return Ok(());
    }
    if s.data.tier.damage.waits(&base.extents) {
        sweep.ripens(now_s.saturating_add(DAMAGE_S));
    }
    let (mut fresh, mut copied) = (0, 0);
    for extent in &base.extents {
        match (extent.place, extent.place.object()) {
            (_, None) => fresh += u64::from(extent.len),
            (Place::Object(_), _) => {}
            (_, Some(_)) => copied += u64::from(extent.len),
        }
    }
    let stays = !base.extents.iter().any(|extent| leaves(s, policy, extent));
    if !stays {
        reclaim::bring_home(t, s, policy, (chunk, base), used)?;
        sweep.ripens(now_s.saturating_add(1));
    }
    let cue_s = base.since_s.saturating_add(policy.cue_s);
    if fresh > 0 && policy.writable.is_some() {
        if cue_s <= now_s || short {
            sweep.add(base.since_s, chunk, fresh);
            // It is looked at again: it may not find room in the next object, or the object may fail.
            sweep.ripens(now_s.saturating_add(policy.cue_s.max(1)));
        } else {
            sweep.ripens(cue_s);
        }
    }
    if copied > 0 && stays {
        let read_s = s.data.tier.accessed.get(&chunk.file).copied().unwrap_or(0);
        let stay_s = base.since_s.saturating_add(policy.retention_s);
        if read_s > base.since_s && stay_s <= now_s {
            // Noted when it matters, and not with each read.
            touch(t, s, (chunk, base), read_s);
            sweep.ripens(read_s.saturating_add(policy.retention_s));
        } else if stay_s <= now_s {
            release(t, s, chunk, used)?;
            return Ok(());
        } else {
            sweep.ripens(stay_s);
        }
        sweep.may_leave(base.since_s.max(read_s), chunk);
    }
    Ok(())
}

/// While flash is short: what is in objects leaves it, the oldest first. But if what somebody wants out of flash is on its
/// way, and is enough, nothing else goes for it.
fn shed(t: &mut Txn<'_>, s: &mut State, fs: FsId, sweep: &mut Sweep, used: &mut UsedChanges) -> Result<()> {
    let writable = s.data.tier.policies.get(&fs).and_then(|policy| policy.writable);
    if writable.is_some_and(|store| !s.data.tier.damage.trusts(store)) {
        // Most of it could not leave.
        return Ok(());
    }
    let mut later = Vec::new();
    let leaves = if leaves_soon(t, s, fs, sweep) { sweep.wants_bytes } else { 0 };
    while is_short(s, fs) && beyond_flash(s, fs) > leaves && !t.is_full() {
        let Some((since_s, chunk)) = sweep.copied.pop_first() else {
            sweep.now();
            break;
        };
        let read_s = s.data.tier.accessed.get(&chunk.file).copied().unwrap_or(0);
        if read_s > since_s {
            later.push((read_s, chunk));
        } else if s.data.jobs.is_busy(chunk) {
            later.push((since_s, chunk));
        } else {
            release(t, s, chunk, used)?;
            notice::left(t, s, fs, since_s);
        }
    }
    later.into_iter().for_each(|(since_s, chunk)| sweep.may_leave(since_s, chunk));
    Ok(())
}

/// True if what somebody wants out of flash leaves it as fast as the store goes.
fn leaves_soon(t: &Txn<'_>, s: &State, fs: FsId, sweep: &Sweep) -> bool {
    let tier = &s.data.tier;
    let fails = tier.policies.get(&fs).and_then(|p| p.writable).is_none_or(|store| tier.uploads.fails(store));
    !fails && t.now.mono_ms < tier.moves_ms(fs).max(sweep.wanted_ms) + LEAVES_MS
}

/// Notes when `chunk` was last read.
fn touch(t: &mut Txn<'_>, s: &State, (chunk, base): (ChunkId, &BaseRec), since_s: u32) {
    if !s.data.jobs.is_busy(chunk) {
        t.write(chunk.base_key(t), &BaseRec { since_s, ..base.clone() });
    }
}

/// Gives up the place on flash of what of `chunk` is in objects. Not while a move works on it.
fn release(t: &mut Txn<'_>, s: &mut State, chunk: ChunkId, used: &mut UsedChanges) -> Result<()> {
    if s.data.jobs.is_busy(chunk) {
        return Ok(());
    }
    let cuts = remap::cuts(t, s, chunk.file)?;
    let history = remap::history(t, s, chunk, &cuts)?;
    let Some(base) = &history.base else { return Ok(()) };
    let extents = base.extents.iter().filter_map(|extent| match extent.place {
        Place::Flash { copy: Some(at), .. } if damage::may_leave(s, at, extent.len) => {
            Some(Extent { place: Place::Object(at), ..*extent })
        }
        // What must never be: bytes that are nowhere else.
        Place::Flash { copy: None, .. } if s.data.mutation == Some(Mutation::ReleaseAll) => None,
        _ => Some(*extent),
    });
    let extents: Vec<Extent> = extents.collect();
    if extents != base.extents {
        let upto = base.upto;
        let left = base.extents.iter().zip(&extents).filter(|(before, after)| before != after);
        s.data.tier.sums(chunk.file.fs).released += left.map(|(before, _)| u64::from(before.len)).sum::<u64>();
        remap::rebase(t, s, chunk, &history, upto, extents, used)?;
        s.data.tier.steps.released += 1;
        s.data.tier.moved(chunk.file.fs, t.now.mono_ms);
    }
    Ok(())
}

/// What somebody wants out of flash: what is in objects leaves, the rest goes into one first.
fn leave(t: &mut Txn<'_>, s: &mut State, policy: &TierPolicy, sweep: &mut Sweep, used: &mut UsedChanges) -> Result<()> {
    let mut rest = VecDeque::new();
    while let Some(chunk) = sweep.wanted.pop_front() {
        if t.is_full() {
            sweep.wanted.push_front(chunk);
            break;
        }
        let base: Option<BaseRec> = t.read(&chunk.base_key(t))?;
        if base.is_none() && !s.data.stage.has(chunk) {
            sweep.unwant(chunk);
            continue;
        }
        let base = base.unwrap_or_default();
        let fresh: u64 =
            base.extents.iter().filter(|e| e.place.object().is_none()).map(|extent| u64::from(extent.len)).sum();
        let on_flash = base.extents.iter().filter(|e| !matches!(e.place, Place::Object(_)));
        // How much is not merged yet is not looked at: soon it is.
        let unmerged = if s.data.stage.has(chunk) { CHUNK } else { 0 };
        sweep.holds(chunk, on_flash.map(|extent| u64::from(extent.len)).sum::<u64>().max(unmerged));
        if s.data.stage.has(chunk) || s.data.jobs.is_busy(chunk) || (fresh > 0 && policy.writable.is_some()) {
            if fresh > 0 && !s.data.stage.has(chunk) {
                // Before everything else.
                sweep.add(0, chunk, fresh);
            }
            rest.push_back(chunk);
            if rest.len() >= BASES_AT_ONCE {
                break;
            }
            continue;
        }
        release(t, s, chunk, used)?;
        sweep.unwant(chunk);
    }
    // Those that wait for something come last: the others are not held up.
    sweep.wanted.extend(rest);
    Ok(())
}

/// Begins objects with what is ripe: full ones, or when it has waited as long again as it had to.
fn send(t: &mut Txn<'_>, s: &mut State, (fs, policy): (FsId, &TierPolicy), sweep: &mut Sweep) -> Result<()> {
    let Some(store) = policy.writable else { return Ok(()) };
    while s.data.tier.uploads.has_room(store) && s.data.tier.uploads.may_begin(store, t.now.mono_ms) && !t.is_full() {
        let Some(((oldest_s, _), _)) = sweep.ripe.first_key_value() else { return Ok(()) };
        // Those that somebody wants out have no age: they leave when no more of them come. Where flash is short, what there
        // is leaves at once. But one object after the other: meanwhile more comes together.
        let due = if *oldest_s == 0 {
            t.now.mono_ms >= sweep.wanted_ms + WANTED_MS
        } else {
            oldest_s.saturating_add(policy.cue_s.saturating_mul(2)) <= wall_s(t)
        };
        let pressed = due || is_short(s, fs);
        let waited = pressed && !s.data.tier.uploads.serves(fs);
        if sweep.ripe_bytes < u64::from(policy.object_bytes) && !waited {
            return Ok(());
        }
        // The oldest that fill an object, in the order of their files.
        let (mut taken, mut bytes) = (Vec::new(), 0);
        let under_way = s.data.tier.uploads.chunks();
        for (key, held) in &sweep.ripe {
            if bytes >= u64::from(policy.object_bytes) {
                break;
            }
            // The rest of one that is on its way follows when it is there: it may not have found room in its object.
            if !under_way.contains(&key.1) {
                taken.push(*key);
                bytes += held;
            }
        }
        if bytes < u64::from(policy.object_bytes) && !waited {
            return Ok(());
        }
        let mut chunks: Vec<ChunkId> = taken.iter().map(|(_, chunk)| *chunk).collect();
        chunks.sort_unstable();
        chunks.dedup();
        let cargo = Cargo { fs, store, bytes: policy.object_bytes, chunks, fresh: true, from: BTreeSet::new() };
        let (looked, begun) = upload::begin(t, s, &cargo)?;
        let left: BTreeSet<ChunkId> = cargo.chunks[looked..].iter().copied().collect();
        taken.into_iter().filter(|(_, chunk)| !left.contains(chunk)).for_each(|key| sweep.take(key));
        if !begun && looked == 0 {
            return Ok(());
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use braid_base::ids::{Chunk, FsId, Ino};

    use super::{RIPE_FEW, RIPE_MAX, Sweep};
    use crate::data::chunk::{ChunkId, FileId};

    fn chunk(n: usize) -> ChunkId {
        FileId::first(FsId(1), Ino(7)).chunk(Chunk(n as u32))
    }

    /// A sweep that saw `count` chunks, the first of them the youngest.
    fn seen(count: usize) -> Sweep {
        let mut sweep = Sweep::default();
        sweep.begin(Vec::new(), 0);
        for n in 0..count {
            sweep.add((count - n) as u32, chunk(n), 10);
        }
        sweep.at = None;
        sweep.ended(100_000, 0);
        sweep
    }

    #[test]
    fn the_oldest_are_remembered() {
        let mut sweep = seen(RIPE_MAX + 5);
        assert_eq!((sweep.ripe.len(), sweep.ripe_bytes), (RIPE_MAX, 10 * RIPE_MAX as u64));
        let first = sweep.ripe.first_key_value().map(|((since_s, _), _)| *since_s);
        let last = sweep.ripe.last_key_value().map(|((since_s, _), _)| *since_s);
        assert_eq!((first, last), (Some(1), Some(RIPE_MAX as u32)));
        sweep.add(9, chunk(RIPE_MAX - 4), 70);
        assert_eq!(sweep.ripe_bytes, 10 * RIPE_MAX as u64 + 60, "the same one again");
    }

    #[test]
    fn what_was_left_out_is_looked_for_when_little_is_left() {
        for (more, expected) in [(0, false), (1, true)] {
            let mut sweep = seen(RIPE_MAX + more);
            assert!(!sweep.is_due(102_000, 1), "there is enough to do");
            while sweep.ripe.len() > RIPE_FEW {
                sweep.ripe.pop_first();
            }
            assert_eq!(sweep.is_due(102_000, 1), expected);
            assert!(sweep.is_due(10_000_000, 3_600), "in any case after a while");
        }
    }
}
