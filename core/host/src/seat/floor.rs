//! Which part of the log is still needed, beside what the engine of the view holds durably.

use std::collections::VecDeque;

use braid_base::ids::Index;
use braid_meta::Now;
use braid_replica::{Applied, Retention};

use super::{Seat, SeatEffect};

/// What [`Applied::staged`] said at each point that a flush may have made durable.
///
/// After a crash the engine says what it said then, and the log must reach back so far: a segment that is gone
/// although it should be there is told from one that was not needed any more.
pub(super) struct Floor {
    durable: Index,
    /// Since the last flush: as of which entry, and what was said.
    said: VecDeque<(Index, Index)>,
}

impl Floor {
    /// After a start: what the engine says. 0: nothing yet.
    pub(super) fn new(durable: Index) -> Self {
        Self { durable, said: VecDeque::new() }
    }

    /// The view is like this now.
    pub(super) fn put(&mut self, applied: &Applied) {
        if self.said.back().is_none_or(|(_, staged)| *staged != applied.staged) {
            self.said.push_back((applied.index, applied.staged));
        }
    }

    /// What was put up to `upto` is durable.
    pub(super) fn flushed(&mut self, upto: Index) {
        while let Some((_, staged)) = self.said.pop_front_if(|(at, _)| *at <= upto) {
            self.durable = staged;
        }
    }

    /// Entries before this one are not needed, whatever happens.
    pub(super) fn get(&self) -> Index {
        self.durable
    }
}

impl Seat {
    /// As a primary whose view holds all up to `applied`, or is about to: says what of the log is not needed any more.
    pub(super) fn stage_begins(&mut self, applied: Index) {
        if let Some(partition) = &self.serving {
            // What is not committed may become something else: what comes after that may be staged.
            let next = applied.next();
            self.replica.stage_begins(partition.oldest_stage().map_or(next, |at| at.min(next)));
        }
    }

    /// Lets go of segments that nobody needs.
    pub(super) fn trim(&mut self, now: Now, out: &mut Vec<SeatEffect>) {
        self.stage_begins(self.applied.index);
        let held = self.held_for_flush();
        if let Some(partition) = &mut self.serving {
            self.stage.keep_from(partition.oldest_stage().unwrap_or(partition.next_index()));
            partition.take_unstaged().into_iter().for_each(|at| self.stage.forget(at));
            let pressure = self.journal.pressure(self.log_soft_bytes + held);
            partition.state_mut().want_stage_below(pressure);
        }
        let needed = self.replica.oldest_needed(now.mono_ms + self.ahead_ms, self.journal.first_told());
        let keep = Retention {
            applied: self.flushed,
            // And the one before it: who has the log from there on must know its term.
            oldest_stage: Some(Index(self.floor.get().0.saturating_sub(1))),
            oldest_needed: needed.map(|first| Index(first.0 - 1)),
        };
        self.journal.trim(&keep, out);
    }

    /// Bytes of segments that only wait for a flush of the view.
    pub(super) fn held_for_flush(&self) -> u64 {
        let free = |applied, staged: Index| {
            let oldest_stage = Some(Index(staged.0.saturating_sub(1)));
            self.journal.freed_bytes(&Retention { applied, oldest_stage, oldest_needed: None })
        };
        // What others need, or what is being read, is in both.
        free(self.applied.index, self.applied.staged).saturating_sub(free(self.flushed, self.floor.get()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_said_counts_once_it_is_durable() {
        let mut floor = Floor::new(Index(0));
        let put = |floor: &mut Floor, index, staged| {
            floor.put(&Applied { index: Index(index), staged: Index(staged), ..Applied::default() });
        };
        put(&mut floor, 10, 1);
        put(&mut floor, 20, 1);
        put(&mut floor, 30, 7);
        assert_eq!(floor.get(), Index(0));
        floor.flushed(Index(29));
        assert_eq!(floor.get(), Index(1));
        put(&mut floor, 40, 9);
        floor.flushed(Index(30));
        assert_eq!(floor.get(), Index(7));
        floor.flushed(Index(99));
        assert_eq!(floor.get(), Index(9));
    }
}
