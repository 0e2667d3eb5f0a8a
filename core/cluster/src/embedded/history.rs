//! Recent changes, kept in memory for watches, and the watch that reads them.

use std::collections::VecDeque;
use std::sync::{Arc, PoisonError};
use std::time::Duration;

use braid_base::Result;

use super::Shared;
use crate::coordinator::{Event, Revision, Watch, ahead, forgotten};

/// Most events kept; a watcher that lags further lists anew. 16,384 events of ~300 bytes are 5 MiB.
const EVENTS_MAX: usize = 16_384;

/// The events after `dropped`, oldest first.
pub(super) struct History {
    events: VecDeque<Event>,
    /// The newest revision whose events may be missing.
    dropped: Revision,
}

impl History {
    /// A history that starts after `revision`.
    pub fn new(revision: Revision) -> Self {
        Self { events: VecDeque::new(), dropped: revision }
    }

    /// Adds the events of one transaction.
    pub fn push(&mut self, events: Vec<Event>) {
        self.events.extend(events);
        while self.events.len() > EVENTS_MAX {
            let oldest = self.events.pop_front().map(|event| event.revision);
            self.dropped = oldest.unwrap_or(self.dropped);
        }
    }

    /// The events from `from` on whose key starts with `prefix`.
    fn since(&self, from: Revision, prefix: &str) -> Vec<Event> {
        let start = self.events.partition_point(|event| event.revision < from);
        self.events.range(start..).filter(|event| event.key.starts_with(prefix)).cloned().collect()
    }

    /// `Stale` unless every event from `from` on is here, or comes next after `now`.
    pub fn check(&self, from: Revision, now: Revision) -> Result<()> {
        match from {
            from if from <= self.dropped => Err(forgotten(self.dropped, from)),
            from if from > now.next() => Err(ahead(now, from)),
            _ => Ok(()),
        }
    }
}

/// A watch of the embedded coordinator.
pub(super) struct EmbeddedWatch {
    shared: Arc<Shared>,
    prefix: String,
    /// Everything before this revision was handed out.
    from: Revision,
}

impl EmbeddedWatch {
    /// A watch of keys under `prefix` from revision `from` on.
    pub fn new(shared: Arc<Shared>, prefix: &str, from: Revision) -> Self {
        Self { shared, prefix: prefix.to_owned(), from }
    }
}

impl Watch for EmbeddedWatch {
    fn next(&mut self, wait_ms_max: u64) -> Result<Vec<Event>> {
        let mut state = self.shared.enter()?;
        let start_ms = (self.shared.clock)();
        loop {
            state.history.check(self.from, state.store.revision())?;
            let found = state.history.since(self.from, &self.prefix);
            self.from = self.from.max(state.store.revision().next());
            let now_ms = (self.shared.clock)();
            let left_ms = wait_ms_max.saturating_sub(now_ms.saturating_sub(start_ms));
            if !found.is_empty() || left_ms == 0 {
                return Ok(found);
            }
            // Sessions end by the clock, not by a call, so wake up for the next one that does.
            let expiry_ms = state.sessions.values().map(|session| session.deadline_ms.saturating_sub(now_ms)).min();
            let pause = Duration::from_millis(left_ms.min(expiry_ms.unwrap_or(left_ms)).max(1));
            drop(self.shared.changed.wait_timeout(state, pause).unwrap_or_else(PoisonError::into_inner));
            state = self.shared.enter()?;
        }
    }
}
