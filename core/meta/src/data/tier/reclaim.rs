//! Reclamation: what is left in objects with many holes is put together into full ones; a store that is to be left is
//! emptied.
//!
//! The rest is done by others: the new object is an ordinary one, and an old one that nothing names any more is found by
//! its count, and removed once all that is durable.

use std::collections::BTreeSet;

use braid_base::Result;
use braid_base::ids::{BlobId, FsId, StoreId};
use braid_base::limits::RECLAIM_PERCENT;
use braid_base::msg::host::Stored;
use braid_base::record::{BaseRec, Extent, Place};

use crate::config::TierPolicy;
use crate::data::chunk::ChunkId;
use crate::data::remap::{self, UsedChanges};
use crate::data::tier::blobs::hinted;
use crate::data::tier::leaves;
use crate::data::tier::sweep::Sweep;
use crate::data::tier::upload::{self, Cargo};
use crate::state::State;
use crate::txn::Txn;

/// Of an object that is rewritten more than this is free, per cent.
const HOLEY_PERCENT: u64 = 5;
/// Chunks looked for at a time.
const CHUNKS_AT_ONCE: usize = 20_000;
/// Pause after a look that found nothing to do, milliseconds.
const PAUSE_MS: u64 = 1_000;
/// Where something new is on its way all the time, reclamation has its turn after this, milliseconds: one object after the
/// other beside what is new.
const TURN_MS: u64 = 10_000;

/// Begins the next object with what is left of others, if there is reason, and nothing else is on its way or it has its turn.
pub(super) fn step(t: &mut Txn<'_>, s: &mut State, (fs, policy): (FsId, &TierPolicy), sweep: &mut Sweep) -> Result<()> {
    let now_ms = t.now.mono_ms;
    let Some(to) = policy.writable else {
        s.data.tier.uploads.turns.remove(&fs);
        return Ok(());
    };
    if now_ms < sweep.reclaim_ms || s.data.tier.uploads.reclaims(fs) || t.is_full() {
        return Ok(());
    }
    sweep.reclaim_ms = now_ms + PAUSE_MS;
    let Some((victims, at_once)) = victims(s, (fs, policy), to, sweep) else {
        s.data.tier.uploads.turns.remove(&fs);
        sweep.reclaim_since_ms = None;
        return Ok(());
    };
    let uploads = &mut s.data.tier.uploads;
    let since_ms = *sweep.reclaim_since_ms.get_or_insert(now_ms);
    if at_once || now_ms >= since_ms + TURN_MS {
        uploads.turns.insert(fs, to);
    }
    let has_turn = uploads.turns.contains_key(&fs) || uploads.to(to) == 0;
    if !has_turn || !uploads.may_begin(to, now_ms) {
        return Ok(());
    }
    let (from, chunks) = gathered(t, s, policy, victims)?;
    let cargo = Cargo { fs, store: to, bytes: policy.object_bytes, chunks, fresh: false, from };
    if upload::begin(t, s, &cargo)?.1 {
        sweep.reclaim_ms = now_ms;
    } else {
        // Nothing of it can be moved just now: that keeps no room from what is new.
        s.data.tier.uploads.turns.remove(&fs);
        sweep.reclaim_since_ms = Some(now_ms);
    }
    Ok(())
}

/// The objects of `fs` that are to be rewritten into `to`, with how many of their bytes are in use; and whether that has its
/// turn at once. None: there is no reason to.
fn victims(
    s: &State,
    (fs, policy): (FsId, &TierPolicy),
    to: StoreId,
    sweep: &mut Sweep,
) -> Option<(Vec<(BlobId, u64)>, bool)> {
    let (blobs, stored) = (&s.data.tier.blobs, s.data.tier.blobs.stored());
    let mine = stored.keys().filter(|(of, _)| *of == fs).map(|(_, store)| *store);
    if let Some(leaving) = mine.into_iter().find(|store| policy.leaving.contains(store) && *store != to) {
        return Some((blobs.holey(fs, leaving, None), true));
    }
    sweep.reclaims = is_reason(&stored.get(&(fs, to)).copied().unwrap_or_default(), sweep.reclaims);
    sweep.reclaims.then(|| (blobs.holey(fs, to, Some(HOLEY_PERCENT)), false))
}

/// True if so much of what objects hold is free that they are put together, or that it goes on if it has begun.
fn is_reason(stored: &Stored, begun: bool) -> bool {
    let (stop, start) = RECLAIM_PERCENT;
    let percent = if begun { stop } else { start };
    let free = u128::from(stored.held.saturating_sub(stored.live));
    stored.live > 0 && free * 100 > u128::from(stored.live) * u128::from(percent)
}

/// As many of `victims` as fill an object, and the chunks that name them.
fn gathered(
    t: &Txn<'_>,
    s: &State,
    policy: &TierPolicy,
    mut victims: Vec<(BlobId, u64)>,
) -> Result<(BTreeSet<BlobId>, Vec<ChunkId>)> {
    let (mut from, mut chunks, mut live) = (BTreeSet::new(), BTreeSet::new(), 0);
    // Of what is lost nothing can be put together: such an object stays until the files are gone. Nor may those that are
    // damaged keep the others from their turn.
    let damage = &s.data.tier.damage;
    victims.sort_by_key(|(blob, _)| damage.bytes(*blob) > 0);
    for (blob, held) in victims.into_iter().filter(|(blob, held)| *held > damage.bytes(*blob)) {
        if live >= u64::from(policy.object_bytes) || chunks.len() >= CHUNKS_AT_ONCE {
            break;
        }
        live += held;
        from.insert(blob);
        chunks.extend(named_by(t, s, blob)?);
    }
    Ok((from, chunks.into_iter().collect()))
}

/// The chunks that refer to `blob`.
fn named_by(t: &Txn<'_>, s: &State, blob: BlobId) -> Result<Vec<ChunkId>> {
    let mut chunks = Vec::new();
    for chunk in hinted(t, blob, None, CHUNKS_AT_ONCE)?.0 {
        let base: Option<BaseRec> = t.read(&chunk.base_key(t))?;
        let names = |base: &BaseRec| base.extents.iter().any(|e| e.place.object().is_some_and(|at| at.blob == blob));
        if base.as_ref().is_some_and(names) && !s.data.stage.has(chunk) {
            chunks.push(chunk);
        }
    }
    Ok(chunks)
}

/// Some bytes of `chunk` are in a store that is to be left: those that are on flash, too, forget it. The others come back
/// to flash, unless there is another store for them ([`step`]).
pub(super) fn bring_home(
    t: &mut Txn<'_>,
    s: &mut State,
    policy: &TierPolicy,
    (chunk, base): (ChunkId, &BaseRec),
    used: &mut UsedChanges,
) -> Result<()> {
    if s.data.jobs.is_busy(chunk) {
        return Ok(());
    }
    let only = |extent: &Extent| matches!(extent.place, Place::Object(_)) && leaves(s, policy, extent);
    let only = base.extents.iter().any(only);
    let kept = |extent: &Extent| match extent.place {
        // What has no parity is moved to where it has some first.
        Place::Flash { stripe, delta, .. } if leaves(s, policy, extent) && !s.data.packs.is_bare(stripe.pack) => {
            Extent { place: Place::Flash { stripe, delta, copy: None }, ..*extent }
        }
        _ => *extent,
    };
    let extents: Vec<Extent> = base.extents.iter().map(kept).collect();
    if extents != base.extents {
        let cuts = remap::cuts(t, s, chunk.file)?;
        let history = remap::history(t, s, chunk, &cuts)?;
        remap::rebase(t, s, chunk, &history, base.upto, extents, used)?;
        s.data.tier.steps.left += 1;
    }
    if only && policy.writable.is_none() {
        s.data.tier.fetches.want(chunk);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use braid_base::msg::host::Stored;

    use super::is_reason;

    #[test]
    fn the_marks_are_exact() {
        let stored = |free, live| Stored { held: free + live, live, ..Stored::default() };
        assert!(!is_reason(&stored(1_300, 10_000), false) && is_reason(&stored(1_301, 10_000), false));
        assert!(is_reason(&stored(701, 10_000), true) && !is_reason(&stored(700, 10_000), true));
        assert!(!is_reason(&stored(5, 0), true), "nothing is in use");
        assert!(is_reason(&stored(1 << 62, 1 << 62), false));
    }
}
