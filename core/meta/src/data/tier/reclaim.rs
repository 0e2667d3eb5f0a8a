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

/// Begins the next object with what is left of others, if there is reason, and nothing else is on its way.
pub(super) fn step(t: &mut Txn<'_>, s: &mut State, (fs, policy): (FsId, &TierPolicy), sweep: &mut Sweep) -> Result<()> {
    let now_ms = t.now.mono_ms;
    let uploads = &s.data.tier.uploads;
    let idle = |store: &StoreId| uploads.to(*store) == 0 && uploads.may_begin(*store, now_ms);
    let Some(to) = policy.writable.filter(idle).filter(|_| now_ms >= sweep.reclaim_ms) else { return Ok(()) };
    sweep.reclaim_ms = now_ms + PAUSE_MS;
    if t.is_full() {
        return Ok(());
    }
    let stored = s.data.tier.blobs.stored();
    let mine = stored.iter().filter(|((of, _), _)| *of == fs);
    let leaving: Option<StoreId> =
        mine.clone().map(|((_, store), _)| *store).find(|store| policy.leaving.contains(store) && *store != to);
    let victims = match leaving {
        Some(store) => s.data.tier.blobs.holey(fs, store, None),
        None => {
            let Stored { held, live, .. } = stored.get(&(fs, to)).copied().unwrap_or_default();
            let free_percent = held.saturating_sub(live) * 100 / live.max(1);
            let (stop, start) = RECLAIM_PERCENT;
            sweep.reclaims = live > 0 && free_percent > if sweep.reclaims { stop } else { start };
            if !sweep.reclaims {
                return Ok(());
            }
            s.data.tier.blobs.holey(fs, to, Some(HOLEY_PERCENT))
        }
    };
    let (mut from, mut chunks, mut live) = (BTreeSet::new(), BTreeSet::new(), 0);
    // Of what is lost nothing can be put together: such an object stays until the files are gone.
    let damage = &s.data.tier.damage;
    let mut victims = victims;
    // Nor may those that are damaged keep the others from their turn.
    victims.sort_by_key(|(blob, _)| damage.bytes(*blob) > 0);
    for (blob, held) in victims.into_iter().filter(|(blob, held)| *held > damage.bytes(*blob)) {
        if live >= u64::from(policy.object_bytes) || chunks.len() >= CHUNKS_AT_ONCE {
            break;
        }
        live += held;
        from.insert(blob);
        chunks.extend(named_by(t, s, blob)?);
    }
    if chunks.is_empty() {
        return Ok(());
    }
    let chunks: Vec<ChunkId> = chunks.into_iter().collect();
    let cargo = Cargo { fs, store: to, bytes: policy.object_bytes, chunks, fresh: false, from };
    if upload::begin(t, s, &cargo)?.1 {
        sweep.reclaim_ms = now_ms;
    }
    Ok(())
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
    }
    if only && policy.writable.is_none() {
        s.data.tier.fetches.want(chunk);
    }
    Ok(())
}
