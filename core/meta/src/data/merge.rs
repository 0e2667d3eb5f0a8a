//! Merges of records that move no bytes: what large writes overwrote is found while flash is short.
//!
//! A large write adds slices that point to flash; what they hide counts as in use until their chunk is merged, because
//! counts only change with records. Destage merges what is old. When little is free that is too late: a file that is
//! overwritten again and again would fill the drives with what nobody sees. Worse, bytes that are staged above it could
//! not be moved any more, for which there would be no room. So chunks are merged up to where nothing staged is seen in
//! them: that needs a base, and no room.

use braid_base::Result;
use braid_base::ids::Index;
use braid_base::limits::GC_EARLY_PERCENT;
use braid_base::record::{Extent, Place};

use crate::data::chunk::ChunkId;
use crate::data::remap::{self, UsedChanges};
use crate::state::State;
use crate::txn::Txn;

/// Chunks that are looked at in one step.
const CHUNKS_AT_ONCE: usize = 64;
/// Pause between two steps, milliseconds: 640 MiB of chunks per second, and requests are not held up.
const PAUSE_MS: u64 = 100;
/// Pause after a round that found nothing to merge, milliseconds.
const IDLE_MS: u64 = 2_000;

/// A chunk with more layers of staged bytes than this is left to destage.
const STEPS_BACK_MAX: usize = 8;

/// How far the round is.
#[derive(Default)]
pub(crate) struct Merge {
    last: Option<ChunkId>,
    due_ms: u64,
    /// This round has merged something.
    merged: bool,
}

/// One bounded step of a round over all chunks with slices on flash, while flash is short.
pub(crate) fn step(t: &mut Txn<'_>, s: &mut State) -> Result<()> {
    let (now, due) = (t.now.mono_ms, s.data.merge.due_ms);
    if now < due || s.data.packs.drives.free_percent().is_none_or(|free| free >= GC_EARLY_PERCENT) {
        return Ok(());
    }
    let chunks = s.data.stage.laid_after(s.data.merge.last, CHUNKS_AT_ONCE);
    s.data.merge.last = chunks.last().copied().filter(|_| chunks.len() == CHUNKS_AT_ONCE);
    let (mut used, mut merged) = (UsedChanges::default(), s.data.merge.merged);
    let mut before = None;
    for chunk in chunks {
        if t.is_full() {
            s.data.merge.last = before;
            break;
        }
        before = Some(chunk);
        if !s.data.jobs.is_busy(chunk) {
            merged |= merge(t, s, chunk, &mut used)?;
        }
    }
    let round_over = s.data.merge.last.is_none();
    s.data.merge.due_ms = now + if round_over && !merged { IDLE_MS } else { PAUSE_MS };
    s.data.merge.merged = merged && !round_over;
    used.book(t, s)
}

/// Merges the slices of `chunk` up to where nothing staged is seen in it, if some of them may hide others; true if so.
fn merge(t: &mut Txn<'_>, s: &mut State, chunk: ChunkId, used: &mut UsedChanges) -> Result<bool> {
    let cuts = remap::cuts(t, s, chunk.file)?;
    let history = remap::history(t, s, chunk, &cuts)?;
    let mut upto = history.mergeable(s.data.committed);
    let mut extents = history.at(upto).extents;
    // Without the last staged bytes that are seen, earlier ones may be.
    for _ in 0..STEPS_BACK_MAX {
        let Some(at) = oldest_staged(&extents) else { break };
        upto = Index(at.0.saturating_sub(1));
        if history.base_upto() > Some(upto) {
            return Ok(false);
        }
        extents = history.at(upto).extents;
    }
    let count = history.slices.iter().take_while(|(at, ..)| *at <= upto).count();
    let worth = count > 0 && count + usize::from(history.base.is_some()) >= 2;
    if !worth || history.base_upto() > Some(upto) || oldest_staged(&extents).is_some() {
        return Ok(false);
    }
    remap::rebase(t, s, chunk, &history, upto, extents, used)?;
    Ok(true)
}

/// The oldest position whose payload is seen in `extents`.
fn oldest_staged(extents: &[Extent]) -> Option<Index> {
    let staged = |extent: &Extent| match extent.place {
        Place::Stage { at, .. } => Some(at),
        Place::Flash { .. } | Place::Object(_) => None,
    };
    extents.iter().filter_map(staged).min()
}
