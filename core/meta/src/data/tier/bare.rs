//! Packs without parity: what came back from objects lies in them, each on one drive.
//!
//! 1. Only what is in an object, too, goes there, and only if that can be relied on ([`is_sound`]). If anything else is to
//!    move with it, all of it goes where there is parity (`destage::fetch`).
//! 2. Where it cannot be relied on any more, because the object turned out to be damaged or its store is to be left, the
//!    bytes are exposed ([`is_exposed`]): they are moved to where there is parity before they give up their copy.
//! 3. When the drive is gone, or is found to have lost some of it, nothing is made anew: the place on flash is given up, as
//!    soon as it is known that the store has its objects. The
//!    bytes are in their object only then, and come back when they are read. What a drive holds that is to be emptied is
//!    copied, as all else there.

use std::collections::BTreeSet;
use std::ops::Bound;

use braid_base::Result;
use braid_base::ids::{FsId, PackId};
use braid_base::keys::{self, prefix_end};
use braid_base::limits::CLEANUP_KEYS_MAX;
use braid_base::record::{BaseRec, Extent, ObjectAt, Place};

use crate::data::care::hinted;
use crate::data::chunk::ChunkId;
use crate::data::packs::{Life, Pack};
use crate::data::remap::{self, UsedChanges};
use crate::data::tier::{damage, is_left};
use crate::state::State;
use crate::txn::Txn;

/// From one look at all such packs that are to be given up to the next, milliseconds.
const LOOK_MS: u64 = 1_000;

/// What is given up.
#[derive(Default)]
pub(crate) struct Bare {
    /// Packs of which something cannot be read.
    damaged: BTreeSet<PackId>,
    /// Packs that hold what is nowhere else, although they are to be given up.
    stuck: BTreeSet<PackId>,
    /// The pack that was looked at last, and the hint to go on with, if it has more.
    at: (PackId, Option<Vec<u8>>),
    /// When to look next.
    due_ms: u64,
}

impl Bare {
    /// Some of the pack cannot be read.
    pub fn found_damaged(&mut self, id: PackId) {
        self.damaged.insert(id);
    }

    /// True if the pack is to be given up, and holds what is nowhere else.
    pub fn is_stuck(&self, id: PackId) -> bool {
        self.stuck.contains(&id)
    }
}

/// True if the copy of bytes of `fs` in an object may be the only one that lasts.
pub(crate) fn is_sound(s: &State, fs: FsId, at: ObjectAt, len: u32) -> bool {
    let leaves = s.data.tier.policies.get(&fs).is_some_and(|policy| is_left(s, policy, at));
    !leaves && !s.data.tier.damage.touches(at, len)
}

/// True if `extent` of `fs` is in a pack without parity, and its copy cannot be relied on.
pub(crate) fn is_exposed(s: &State, fs: FsId, extent: &Extent) -> bool {
    let Place::Flash { stripe, copy, .. } = extent.place else { return false };
    s.data.packs.is_bare(stripe.pack) && !copy.is_some_and(|at| is_sound(s, fs, at, extent.len))
}

/// True if some of `chunk` is exposed.
pub(crate) fn has_exposed(t: &Txn<'_>, s: &State, chunk: ChunkId) -> Result<bool> {
    let base: Option<BaseRec> = t.read(&chunk.base_key(t))?;
    Ok(base.is_some_and(|base| base.extents.iter().any(|extent| is_exposed(s, chunk.file.fs, extent))))
}

/// Gives up some of what lies where it cannot stay.
pub(super) fn step(t: &mut Txn<'_>, s: &mut State) -> Result<()> {
    let now_ms = t.now.mono_ms;
    let (table, drives) = (&s.data.packs.table, &s.data.packs.drives);
    let bare = &mut s.data.tier.bare;
    if now_ms < bare.due_ms || (drives.all_stay() && bare.damaged.is_empty()) {
        return Ok(());
    }
    bare.damaged.retain(|id| table.contains_key(id));
    bare.stuck.retain(|id| table.contains_key(id));
    let is_lost = |(id, pack): &(&PackId, &Pack)| {
        let gone = || pack.rec.place.drives.iter().any(|drive| drives.leaves(*drive) && drives.is_absent(*drive));
        let holds = matches!(pack.life, Life::Sealed { .. }) && pack.rec.live_upper > 0;
        pack.is_bare() && holds && (bare.damaged.contains(id) || gone())
    };
    let (last, from) = std::mem::take(&mut bare.at);
    let first = if from.is_some() { Bound::Included(last) } else { Bound::Excluded(last) };
    let Some((id, _)) = table.range((first, Bound::Unbounded)).find(is_lost) else {
        // From the first one on again: what could not be given up is looked at anew.
        bare.due_ms = now_ms + LOOK_MS;
        return Ok(());
    };
    let (id, prefix) = (*id, keys::hints(t.partition, *id));
    let from = from.filter(|_| id == last);
    if from.is_none() {
        s.data.tier.bare.stuck.remove(&id);
    }
    let from = from.unwrap_or_else(|| prefix.clone());
    let (hints, next) = hinted(t, &from, &prefix_end(&prefix), CLEANUP_KEYS_MAX)?;
    s.data.tier.bare.at = (id, next);
    let (mut used, mut seen) = (UsedChanges::default(), BTreeSet::new());
    for (sb, file, chunk) in hints {
        if t.is_full() {
            s.data.tier.bare.at.1 = Some(keys::hint(t.partition, id, sb, file.fs, file.ino, chunk));
            break;
        }
        let chunk = file.chunk(chunk);
        if seen.insert(chunk) {
            give_up(t, s, id, chunk, &mut used)?;
        }
    }
    used.book(t, s)
}

/// Gives up what of `chunk` is in the pack and in a sound object. The rest of it there is exposed, and wanted elsewhere. Not
/// while a move works on it.
fn give_up(t: &mut Txn<'_>, s: &mut State, id: PackId, chunk: ChunkId, used: &mut UsedChanges) -> Result<()> {
    if s.data.jobs.is_busy(chunk) {
        return Ok(());
    }
    let cuts = remap::cuts(t, s, chunk.file)?;
    let history = remap::history(t, s, chunk, &cuts)?;
    let Some(base) = &history.base else { return Ok(()) };
    let in_pack = |extent: &Extent| matches!(extent.place, Place::Flash { stripe, .. } if stripe.pack == id);
    let is_given_up = |at, len| is_sound(s, chunk.file.fs, at, len) && damage::may_leave(s, at, len);
    let given_up = |extent: &Extent| match extent.place {
        Place::Flash { copy: Some(at), .. } if in_pack(extent) && is_given_up(at, extent.len) => {
            Extent { place: Place::Object(at), ..*extent }
        }
        _ => *extent,
    };
    let extents: Vec<Extent> = base.extents.iter().map(given_up).collect();
    let mut left = extents.iter().filter(|extent| in_pack(extent)).peekable();
    if left.peek().is_some() {
        s.data.tier.fetches.want(chunk);
    }
    let damage = &s.data.tier.damage;
    if left.any(|extent| extent.place.object().is_none_or(|at| damage.touches(at, extent.len))) {
        s.data.tier.bare.stuck.insert(id);
    }
    if extents != base.extents {
        let upto = base.upto;
        remap::rebase(t, s, chunk, &history, upto, extents, used)?;
        s.data.tier.steps.gave_up += 1;
    }
    Ok(())
}
