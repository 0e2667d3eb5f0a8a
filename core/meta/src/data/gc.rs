//! Garbage collection by copying: picks the pack with the least in use and moves that elsewhere.
//!
//! The rest is done by others: the move is an ordinary one, the emptied pack is found by its count.

use std::collections::BTreeSet;

use braid_base::Result;
use braid_base::ids::PackId;
use braid_base::keys::{self, prefix_end};
use braid_base::limits::{BLOCK, CLEANUP_KEYS_MAX, GC_EARLY_PERCENT, GC_START_PERCENT, GC_URGENT_PERCENT};
use braid_base::record::{PackClass, Place};

use crate::data::care::hinted;
use crate::data::chunk::ChunkId;
use crate::data::destage::Choice;
use crate::data::packs::{Life, Pack, Packs};
use crate::data::plan::Moves;
use crate::data::remap;
use crate::data::view::Cuts;
use crate::state::State;
use crate::txn::Txn;

/// A pack is worth emptying if at most this much of it is in use, per cent: when little is free.
const WORTH_PERCENT: u64 = 85;
/// The same while there is still much free, or while the partition is at work: what is in use now may soon be
/// overwritten, and then need not be copied. Every restart leaves packs behind that hold next to nothing: so many of
/// them must not gather that there is no slot left for the pack that would take them all in.
const WORTH_EARLY_PERCENT: u64 = 25;
/// The same when there is no slot left but those kept for this: any gain is one.
const WORTH_LAST_PERCENT: u64 = 97;

/// The collection under way.
#[derive(Default)]
pub(crate) struct Gc {
    victim: Option<PackId>,
    /// Hints before this one name chunks that no longer refer to the victim.
    next: Option<Vec<u8>>,
}

/// True if garbage is collected before anything else is moved: little is free, or only what is kept for this.
pub(crate) fn urgent(s: &State) -> bool {
    let drives = &s.data.packs.drives;
    drives.free_percent().is_some_and(|free| free < GC_URGENT_PERCENT) || !drives.have_room(s.config.parity)
}

/// The next chunks to move out of the victim; `None` if there is nothing to collect or all of it is on its way.
pub(crate) fn choose(t: &Txn<'_>, s: &mut State) -> Result<Option<Choice>> {
    let worth = worth(s, t.now.mono_ms);
    let sealed = |id: &PackId| matches!(s.data.packs.table.get(id), Some(Pack { life: Life::Sealed { .. }, .. }));
    if worth.is_none() || !s.data.gc.victim.as_ref().is_some_and(sealed) {
        s.data.gc = Gc { victim: worth.and_then(|worth| pick(&s.data.packs, worth)), next: None };
    }
    let Some(victim) = s.data.gc.victim else { return Ok(None) };
    let prefix = keys::hints(t.partition, victim);
    let from = s.data.gc.next.clone().unwrap_or_else(|| prefix.clone());
    let (hints, next) = hinted(t, &from, &prefix_end(&prefix), CLEANUP_KEYS_MAX)?;
    let mut chunks: BTreeSet<ChunkId> = BTreeSet::new();
    let mut moving = false;
    for chunk in hints.into_iter().map(|(_, file, chunk)| file.chunk(chunk)).collect::<BTreeSet<_>>() {
        if refers(t, s, chunk, victim)? {
            if s.data.jobs.is_busy(chunk) {
                moving = true;
            } else {
                chunks.insert(chunk);
            }
        }
    }
    if chunks.is_empty() && !moving {
        // Nothing left here. After the last hint another victim is chosen; the count finds this one's end.
        let victim = next.is_some().then_some(victim);
        s.data.gc = Gc { victim, next };
    }
    let chunks: Vec<ChunkId> = chunks.into_iter().collect();
    let (class, moves, sweep) = (PackClass::Gc, Moves::Pack(victim), BTreeSet::new());
    Ok((!chunks.is_empty()).then_some(Choice { class, moves, chunks, sweep }))
}

/// How much of a pack may be in use for it to be collected now, per cent; `None`: nothing is.
fn worth(s: &State, now_ms: u64) -> Option<u64> {
    if !s.data.packs.drives.have_room(s.config.parity) {
        return Some(WORTH_LAST_PERCENT);
    }
    match s.data.packs.drives.free_percent()? {
        ..GC_URGENT_PERCENT => Some(WORTH_PERCENT),
        // Nobody waits for it, so the less is free the more it may cost.
        free @ ..GC_START_PERCENT if s.data.stage.is_calm(now_ms) => {
            let (short, span) = (GC_START_PERCENT - free, GC_START_PERCENT - GC_URGENT_PERCENT);
            Some(WORTH_EARLY_PERCENT + (WORTH_PERCENT - WORTH_EARLY_PERCENT) * short / span)
        }
        ..GC_EARLY_PERCENT => Some(WORTH_EARLY_PERCENT),
        _ => None,
    }
}

fn refers(t: &Txn<'_>, s: &State, chunk: ChunkId, victim: PackId) -> Result<bool> {
    let history = remap::history(t, s, chunk, &Cuts::default())?;
    Ok(history.pointers().any(|extent| matches!(extent.place, Place::Flash { stripe, .. } if stripe.pack == victim)))
}

/// The sealed pack with the least share in use, if it is at most `worth` per cent.
fn pick(packs: &Packs, worth: u64) -> Option<PackId> {
    let share = |pack: &Pack| {
        let whole = u64::from(pack.rec.place.data) * u64::from(packs.shard_blocks) * BLOCK as u64;
        pack.rec.live_upper * 100 / whole.max(1)
    };
    let candidates = packs.table.iter().filter(|(_, pack)| {
        matches!(pack.life, Life::Sealed { .. }) && pack.rec.live_upper > 0 && share(pack) <= worth
    });
    candidates.min_by_key(|(_, pack)| share(pack)).map(|(id, _)| *id)
}
