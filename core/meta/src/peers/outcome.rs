//! Decisions: logged (table 31), told until every participant has acknowledged, then forgotten.

use std::collections::{BTreeMap, BTreeSet};

use braid_base::ids::{OpId, PartitionId};
use braid_base::keys;
use braid_base::msg::peer::PeerMsg;

use crate::event::Effect;
use crate::peers::record::OutcomeRec;
use crate::peers::{Variant, coordinator, wait_for};
use crate::state::State;
use crate::txn::Txn;

/// An unacknowledged decision is repeated after this time, milliseconds.
const RESEND_MS: u64 = 200;
/// Decisions that one background entry forgets.
const FORGET_AT_ONCE: usize = 500;

/// Decisions that someone may still ask about.
#[derive(Default)]
pub(crate) struct Outcomes {
    pub(crate) open: BTreeMap<OpId, Open>,
    /// Acknowledged by all; their records go with the next background entry.
    done: BTreeSet<OpId>,
}

/// A decision that not all have acknowledged.
pub(crate) struct Open {
    pub(crate) commit: bool,
    pub(crate) moves: bool,
    pub(crate) left: BTreeSet<PartitionId>,
    pub(crate) sent_ms: u64,
}

impl Outcomes {
    /// True if no record of a decision is left.
    pub(crate) fn is_empty(&self) -> bool {
        self.open.is_empty() && self.done.is_empty()
    }

    /// True if a committed directory move is not carried out everywhere.
    pub(crate) fn is_moving(&self) -> bool {
        self.open.values().any(|open| open.commit && open.moves)
    }
}

/// Logs the decision in this entry and tells the participants once it is committed.
pub(super) fn log(t: &mut Txn<'_>, s: &mut State, tx: OpId, commit: bool, moves: bool, left: BTreeSet<PartitionId>) {
    let record = OutcomeRec { commit, moves, participants: left.iter().copied().collect() };
    t.write(keys::outcome(t.partition, tx), &record);
    let open = Open { commit, moves, left, sent_ms: t.now.mono_ms };
    tell(t, tx, &open);
    s.peers.outcomes.done.remove(&tx);
    s.peers.outcomes.open.insert(tx, open);
}

/// Nobody hears of a decision that is not committed.
fn tell(t: &mut Txn<'_>, tx: OpId, open: &Open) {
    wait_for(t, &keys::outcome(t.partition, tx));
    for to in &open.left {
        t.after(Effect::Peer(*to, PeerMsg::Decide { tx, commit: open.commit }));
    }
}

/// A participant has carried the decision out.
pub(super) fn finished(s: &mut State, from: PartitionId, tx: OpId) {
    let outcomes = &mut s.peers.outcomes;
    let Some(open) = outcomes.open.get_mut(&tx) else { return };
    open.left.remove(&from);
    if open.left.is_empty() {
        outcomes.open.remove(&tx);
        outcomes.done.insert(tx);
    }
}

/// A participant asks what was decided. If nothing was, and nothing can be any more, abort is: logged first.
pub(super) fn undecided(t: &mut Txn<'_>, s: &mut State, from: PartitionId, tx: OpId) {
    if coordinator(tx) != t.partition || s.peers.outcomes.done.contains(&tx) {
        return;
    }
    if let Some(open) = s.peers.outcomes.open.get(&tx) {
        // Whoever has acknowledged a commit cannot be undecided: this question is late.
        if open.left.contains(&from) || !open.commit {
            wait_for(t, &keys::outcome(t.partition, tx));
            t.after(Effect::Peer(from, PeerMsg::Decide { tx, commit: open.commit }));
        }
        return;
    }
    if s.peers.flights.contains_key(&tx) {
        if s.peers.is_broken(Variant::NoAbortLog) {
            t.after(Effect::Peer(from, PeerMsg::Decide { tx, commit: false }));
        }
        return;
    }
    log(t, s, tx, false, false, BTreeSet::from([from]));
}

/// Background: repeats what is not acknowledged, forgets what is.
pub(super) fn care(t: &mut Txn<'_>, s: &mut State) {
    let now = t.now.mono_ms;
    for (tx, open) in &mut s.peers.outcomes.open {
        if now >= open.sent_ms + RESEND_MS {
            open.sent_ms = now;
            tell(t, *tx, open);
        }
    }
    for _ in 0..FORGET_AT_ONCE {
        let Some(tx) = s.peers.outcomes.done.pop_first() else { return };
        t.delete(keys::outcome(t.partition, tx));
    }
}
