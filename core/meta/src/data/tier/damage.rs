//! Objects that are known to be missing, or damaged somewhere: their host found that, and says so.
//!
//! 1. What has its only copy there is lost: it is listed, and reads of it go on to fail. It is left alone: a chunk of it
//!    comes back in a move of its own, so that its failure is that of no other, and after a failure not before a while;
//!    no object is made from it.
//! 2. What is on flash, too, stays there. When the object was looked at for an hour and nothing became better, what can be
//!    read on flash forgets it, and is put into another one: a bucket that is away for a while, or a folder that is not
//!    mounted, costs no copy.
//! 3. An object is looked at again and again: what nothing names any more does not matter, and is forgotten.
//! 4. While nobody has looked whether the objects of a store are there at all, or there is reason to doubt it, what is in
//!    them and on flash stays there, too ([`trust`]).
//!
//! It is in memory only: a host that serves the partition next finds it anew.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;

use braid_base::Result;
use braid_base::ids::{BlobId, StoreId};
use braid_base::limits::CLEANUP_KEYS_MAX;
use braid_base::msg::host::{Lost, LostObject};
use braid_base::record::{BaseRec, Extent, ObjectAt, Place};

use crate::config::Damaged;
use crate::data::chunk::ChunkId;
use crate::data::remap::{self, UsedChanges};
use crate::data::scrub;
use crate::data::tier::bare;
use crate::data::tier::blobs::hinted;
use crate::data::tier::{Tier, wall_s};
use crate::state::State;
use crate::txn::Txn;

/// First and longest wait of a chunk that could not be brought back, milliseconds; it doubles.
const HOLD_MS: u64 = 30_000;
const HOLD_MS_MAX: u64 = 3_600_000;
/// Chunks that wait so, at most: beyond, all are tried again.
const HELD_MAX: usize = 65_536;
/// Between two looks, each at some of the chunks of one object, milliseconds.
const LOOK_MS: u64 = 1_000;
/// So long after it was found what is on flash, too, forgets a damaged object, seconds.
const FORGET_S: u64 = 3_600;
/// Pages of the chunks of objects that are looked at for one list of what is lost.
const PAGES_MAX: usize = 256;

/// What is known to be wrong.
#[derive(Default)]
pub(crate) struct Damage {
    known: BTreeMap<BlobId, Known>,
    /// Chunks that could not be brought back: how often, and when they may be tried again, milliseconds.
    held: BTreeMap<ChunkId, (u32, u64)>,
    /// The object that was looked at last, and when; and how far, if there is more of it: where to go on, whether files have
    /// their only copy there, and whether anything names it at all.
    looked: (BlobId, u64),
    more: Option<(Vec<u8>, bool, bool)>,
    /// Those that were forgotten because nothing names them any more.
    gone: Vec<BlobId>,
    /// The stores whose objects were looked at; none: nobody looks, all are as they should be.
    trusted: Option<BTreeSet<StoreId>>,
}

/// What is wrong with an object.
struct Known {
    what: Damaged,
    /// Files have their only copy there, as far as was looked.
    matters: bool,
}

/// How a chunk may be brought back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Recall {
    /// With others.
    Plain,
    /// In a move of its own: it will most likely fail.
    Alone,
    /// Not now: it has failed before.
    Held,
}

impl Damage {
    /// True if nothing is known to be wrong.
    pub fn is_empty(&self) -> bool {
        self.known.is_empty()
    }

    /// Objects that are missing or damaged, and have the only copy of parts of files.
    pub fn count(&self) -> u64 {
        self.known.values().filter(|known| known.matters).count() as u64
    }

    /// Bytes of `blob` that cannot be had.
    pub fn bytes(&self, blob: BlobId) -> u64 {
        let ranges = self.known.get(&blob).map(|known| known.what.ranges.as_slice()).unwrap_or_default();
        ranges.iter().map(|(from, end)| end - from).sum()
    }

    /// True if some of `len` bytes from `at` on cannot be had.
    pub fn touches(&self, at: ObjectAt, len: u32) -> bool {
        let (first, end) = (u64::from(at.off), u64::from(at.off) + u64::from(len));
        self.known.get(&at.blob).is_some_and(|known| known.what.ranges.iter().any(|(a, b)| *a < end && first < *b))
    }

    /// True if some of `extent` is in such an object, and nowhere else.
    pub fn spoils(&self, extent: &Extent) -> bool {
        matches!(extent.place, Place::Object(at) if self.touches(at, extent.len))
    }

    /// The object that has a copy of `extent`, which is on flash, if some of that copy cannot be had.
    fn bad_copy(&self, extent: &Extent) -> Option<&Known> {
        let Place::Flash { copy: Some(at), .. } = extent.place else { return None };
        self.known.get(&at.blob).filter(|_| self.touches(at, extent.len))
    }

    /// The same is so, and will not become better.
    fn spoils_copy(&self, extent: &Extent, now_s: u64) -> bool {
        self.bad_copy(extent).is_some_and(|known| known.what.since_s + FORGET_S <= now_s)
    }

    /// True if some of these extents are on flash, and in such an object.
    pub fn waits(&self, extents: &[Extent]) -> bool {
        !self.is_empty() && extents.iter().any(|extent| self.bad_copy(extent).is_some())
    }

    /// A move that brought back `chunk` failed.
    pub fn hold(&mut self, chunk: ChunkId, now_ms: u64) {
        if self.held.len() >= HELD_MAX && !self.held.contains_key(&chunk) {
            // Those that may be tried again need not be remembered, but for how often they were.
            self.held.retain(|_, (_, due_ms)| now_ms < *due_ms);
        }
        if self.held.len() >= HELD_MAX && !self.held.contains_key(&chunk) {
            self.held.pop_first();
        }
        let (tries, due_ms) = self.held.entry(chunk).or_default();
        *due_ms = now_ms + HOLD_MS.saturating_mul(1 << (*tries).min(16)).min(HOLD_MS_MAX);
        *tries += 1;
    }

    /// True if there is no reason to doubt that `store` has its objects.
    pub fn trusts(&self, store: StoreId) -> bool {
        self.trusted.as_ref().is_none_or(|trusted| trusted.contains(&store))
    }

    /// Those that nothing names any more, once.
    pub fn take_gone(&mut self) -> Vec<BlobId> {
        std::mem::take(&mut self.gone)
    }
}

/// From now on this is what is known to be wrong. The host is told what does not matter, see [`Damage::take_gone`].
pub(crate) fn set(s: &mut State, found: BTreeMap<BlobId, Damaged>) {
    let tier = &mut s.data.tier;
    let mut before = std::mem::take(&mut tier.damage.known);
    let mut worse = false;
    for (blob, what) in found {
        if tier.blobs.key(blob).is_none_or(|key| key.term != what.term) {
            tier.damage.gone.push(blob);
            continue;
        }
        let same = before.remove(&blob).filter(|known| known.what == what);
        worse |= same.is_none();
        tier.damage.known.insert(blob, same.unwrap_or(Known { what, matters: true }));
    }
    if !before.is_empty() {
        // Some of what could not be brought back perhaps can.
        tier.damage.held.clear();
    }
    if worse {
        tier.sweeps.values_mut().for_each(|sweep| sweep.now());
    }
}

/// Only of these stores it is known that they have their objects, from now on.
pub(crate) fn trust(s: &mut State, stores: BTreeSet<StoreId>) {
    let tier = &mut s.data.tier;
    let more = stores.iter().any(|store| !tier.damage.trusts(*store));
    tier.damage.trusted = Some(stores);
    if more {
        // What had to stay on flash may be due to leave it.
        tier.sweeps.values_mut().for_each(|sweep| sweep.now());
    }
}

/// True if bytes on flash may give up their place there, because they can be had from `at`.
pub(crate) fn may_leave(s: &State, at: ObjectAt, len: u32) -> bool {
    let Tier { damage, blobs, .. } = &s.data.tier;
    !damage.touches(at, len) && blobs.store(at.blob).is_some_and(|store| damage.trusts(store))
}

/// How `chunk` may be brought back.
pub(crate) fn recall(t: &Txn<'_>, s: &State, chunk: ChunkId) -> Result<Recall> {
    let damage = &s.data.tier.damage;
    if damage.is_empty() {
        return Ok(Recall::Plain);
    }
    if damage.held.get(&chunk).is_some_and(|(_, due_ms)| t.now.mono_ms < *due_ms) {
        return Ok(Recall::Held);
    }
    Ok(if is_spoiled(t, s, chunk)? { Recall::Alone } else { Recall::Plain })
}

/// True if the only copy of some of `chunk` is in such an object, or on a drive alone.
pub(crate) fn is_spoiled(t: &Txn<'_>, s: &State, chunk: ChunkId) -> Result<bool> {
    let base: Option<BaseRec> = t.read(&chunk.base_key(t))?;
    let damage = &s.data.tier.damage;
    let alone = |extent: &Extent| damage.bad_copy(extent).is_some() && bare::is_exposed(s, chunk.file.fs, extent);
    Ok(base.is_some_and(|base| base.extents.iter().any(|extent| damage.spoils(extent) || alone(extent))))
}

/// What of `chunk` is on flash and in such an object forgets the object; true if there was any, which is to be put into
/// another one. Not while a move works on it.
pub(super) fn forget_copies(
    t: &mut Txn<'_>,
    s: &mut State,
    (chunk, base): (ChunkId, &BaseRec),
    used: &mut UsedChanges,
) -> Result<bool> {
    let (damage, now_s) = (&s.data.tier.damage, u64::from(wall_s(t)));
    // What cannot be read on flash now may have to be read there. What has no parity is moved to where it has some first.
    let is_safe = |pack| scrub::is_whole(s, pack) && !s.data.packs.is_bare(pack);
    let whole = |extent: &Extent| matches!(extent.place, Place::Flash { stripe, .. } if is_safe(stripe.pack));
    let forgets = |extent: &Extent| damage.spoils_copy(extent, now_s) && whole(extent);
    if damage.is_empty() || !base.extents.iter().any(forgets) {
        return Ok(false);
    }
    if s.data.jobs.is_busy(chunk) {
        return Ok(true);
    }
    let kept = |extent: &Extent| match extent.place {
        Place::Flash { stripe, delta, .. } if forgets(extent) => {
            Extent { place: Place::Flash { stripe, delta, copy: None }, ..*extent }
        }
        _ => *extent,
    };
    let extents = base.extents.iter().map(kept).collect();
    let cuts = remap::cuts(t, s, chunk.file)?;
    let history = remap::history(t, s, chunk, &cuts)?;
    remap::rebase(t, s, chunk, &history, base.upto, extents, used)?;
    s.data.tier.steps.saved += 1;
    Ok(true)
}

/// Looks at the next object: whether it matters still.
pub(super) fn step(t: &Txn<'_>, s: &mut State) -> Result<()> {
    let now_ms = t.now.mono_ms;
    let (last, looked_ms) = s.data.tier.damage.looked;
    let known = &s.data.tier.damage.known;
    if known.is_empty() || now_ms < looked_ms + LOOK_MS {
        return Ok(());
    }
    let more = s.data.tier.damage.more.clone().filter(|_| known.contains_key(&last));
    let next = known.range((Bound::Excluded(last), Bound::Unbounded)).next().or_else(|| known.first_key_value());
    let Some(blob) = more.as_ref().map(|_| last).or_else(|| next.map(|(blob, _)| *blob)) else { return Ok(()) };
    let (from, mut matters, mut any) =
        more.map_or((None, false, false), |(from, matters, any)| (Some(from), matters, any));
    let mut rest = None;
    if s.data.tier.blobs.key(blob).is_some() {
        let page = named(t, s, blob, from.as_deref())?;
        (matters, any, rest) = (matters | !page.lost.is_empty(), any | page.any, page.next);
    }
    let damage = &mut s.data.tier.damage;
    damage.looked = (blob, now_ms);
    // What is lost is enough to know.
    damage.more = rest.filter(|_| !matters).map(|rest| (rest, matters, any));
    if damage.more.is_some() {
        return Ok(());
    }
    if !any {
        damage.known.remove(&blob);
        damage.gone.push(blob);
    } else if let Some(known) = damage.known.get_mut(&blob) {
        known.matters = matters;
    }
    Ok(())
}

/// The parts of files whose only copy is in such an object, about `limit` of them, if there are more; true: not all.
pub(crate) fn lost(t: &Txn<'_>, s: &State, limit: usize) -> Result<(Vec<Lost>, bool)> {
    let (mut all, mut pages) = (Vec::new(), 0);
    for (blob, _) in s.data.tier.damage.known.iter().filter(|(_, known)| known.matters) {
        let mut from = None;
        loop {
            if all.len() >= limit || pages >= PAGES_MAX {
                return Ok((all, true));
            }
            pages += 1;
            let page = named(t, s, *blob, from.as_deref())?;
            all.extend(page.lost);
            from = page.next;
            if from.is_none() {
                break;
            }
        }
    }
    Ok((all, false))
}

/// What some of the chunks say that may name a damaged object.
#[derive(Default)]
struct Page {
    /// The parts of files whose only copy is where it is damaged.
    lost: Vec<Lost>,
    /// Something names that.
    any: bool,
    /// Where to go on.
    next: Option<Vec<u8>>,
}

/// Looks at the next chunks, from hint `from` on, that may name `blob` where it is damaged.
fn named(t: &Txn<'_>, s: &State, blob: BlobId, from: Option<&[u8]>) -> Result<Page> {
    let mut page = Page::default();
    let Some(Known { what, .. }) = s.data.tier.damage.known.get(&blob) else { return Ok(page) };
    let Some(key) = s.data.tier.blobs.key(blob) else { return Ok(page) };
    let (missing, since_s) = (what.missing, what.since_s);
    let object = Some(LostObject { store: key.store, blob, term: key.term, missing, since_s });
    let (chunks, next) = hinted(t, blob, from, CLEANUP_KEYS_MAX)?;
    page.next = next;
    for chunk in chunks {
        let (fs, ino) = (chunk.file.fs, chunk.file.ino);
        let cuts = remap::cuts(t, s, chunk.file)?;
        for extent in remap::history(t, s, chunk, &cuts)?.now().extents {
            for (off, len) in within(&extent, blob, &what.ranges) {
                page.any = true;
                if matches!(extent.place, Place::Object(_)) {
                    page.lost.push(Lost { fs, ino, off: chunk.start() + off, len, object });
                }
            }
        }
    }
    Ok(page)
}

/// The parts of an extent that lie in `ranges` of `blob`, as offsets within its chunk, and their lengths.
fn within(extent: &Extent, blob: BlobId, ranges: &[(u64, u64)]) -> Vec<(u64, u64)> {
    let Some(at) = extent.place.object().filter(|at| at.blob == blob) else { return Vec::new() };
    let (first, end) = (u64::from(at.off), u64::from(at.off) + u64::from(extent.len));
    let parts = ranges.iter().filter_map(|(from, to)| {
        let (from, to) = ((*from).max(first), (*to).min(end));
        (from < to).then(|| (u64::from(extent.off) + from - first, to - from))
    });
    parts.collect()
}
