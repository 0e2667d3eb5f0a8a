//! Whether the object stores have what the partitions here put there, as far as this host has looked (decision 40).
//!
//! 1. What a partition has in a store is in doubt when it begins to be served here, and whenever there is reason: the object
//!    that keepalives read is gone, or another one is missing.
//! 2. It is looked at (`run/audit/look`). If all that was asked for is there, or is known to be missing, the doubt ends.
//! 3. Until then nothing of it leaves flash. A store that does not answer is asked again later, and stays in doubt.
//!
//! It is in memory only, as all that is known of damage.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use braid_base::ids::{PartitionId, StoreId, Term};
use tokio::time::Instant;

/// Looks at a time.
const LOOKS_MAX: usize = 8;
/// How long after a look that could not be finished the next one begins, at first and at most.
const AGAIN: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(60));

/// What a look came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::run) enum Looked {
    /// What is not there is known to be missing.
    Well,
    /// Something is missing, and not all of it is known.
    Missing,
    /// The store, or the partition, did not say.
    Unsure,
}

/// What is to be looked at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::run) struct Look {
    /// The objects of that partition in that store.
    pub at: (PartitionId, StoreId),
    /// All of them, because some are missing.
    pub all: bool,
    /// The term in which it is served, and how often there was reason to doubt the store until now.
    since: (Term, u64),
}

/// What was looked at.
#[derive(Default)]
pub(super) struct Doubts(Mutex<State>);

#[derive(Default)]
struct State {
    /// How often there was reason to doubt a store.
    reasons: BTreeMap<StoreId, u64>,
    /// There was another one, and other hosts do not know.
    news: bool,
    known: BTreeMap<(PartitionId, StoreId), Known>,
}

#[derive(Default)]
struct Known {
    /// When all was well: in which term, after how many reasons to doubt.
    well: Option<(Term, u64)>,
    /// It is being looked at.
    busy: bool,
    /// Something was missing.
    all: bool,
    /// When the next look may begin, and how long after this one.
    due: Option<(Instant, Duration)>,
}

impl Doubts {
    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// There is reason to doubt that `store` has its objects.
    pub(super) fn raise(&self, store: StoreId) {
        let mut state = self.state();
        *state.reasons.entry(store).or_default() += 1;
        state.news = true;
    }

    /// Was there another reason since this was last asked?
    pub(super) fn take_news(&self) -> bool {
        std::mem::take(&mut self.state().news)
    }

    /// The stores that `p`, which is served in `term`, may rely on.
    pub(super) fn trusted(&self, p: PartitionId, term: Term) -> BTreeSet<StoreId> {
        let state = self.state();
        let of = state.known.range((p, StoreId(0))..).take_while(|((of, _), _)| *of == p);
        let well = of.filter(|((_, store), known)| known.well == Some((term, state.reason(*store))));
        well.map(|((_, store), _)| *store).collect()
    }

    /// Begins to look at what a partition, which is served in `term`, has in a store, if that is to be done at `now`.
    pub(super) fn begin(&self, at: (PartitionId, StoreId), term: Term, now: Instant) -> Option<Look> {
        let mut state = self.state();
        let since = (term, state.reason(at.1));
        let busy = state.known.values().filter(|known| known.busy).count();
        let known = state.known.entry(at).or_default();
        let early = known.due.is_some_and(|(due, _)| now < due);
        if known.busy || known.well == Some(since) || early || busy >= LOOKS_MAX {
            return None;
        }
        known.busy = true;
        Some(Look { at, all: known.all, since })
    }

    /// What came of a look, at `now`; true if something is missing, and all was thought to be well.
    pub(super) fn end(&self, look: &Look, looked: Looked, now: Instant) -> bool {
        let mut state = self.state();
        let known = state.known.entry(look.at).or_default();
        let before = known.all;
        known.busy = false;
        let pause = known.due.map_or(AGAIN.0, |(_, pause)| (2 * pause).min(AGAIN.1));
        match looked {
            Looked::Well => (known.well, known.all, known.due) = (Some(look.since), false, None),
            Looked::Missing => (known.all, known.due) = (true, Some((now + pause, pause))),
            Looked::Unsure => known.due = Some((now + pause, pause)),
        }
        known.all && !before
    }
}

impl State {
    fn reason(&self, store: StoreId) -> u64 {
        self.reasons.get(&store).copied().unwrap_or(0)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::time::Duration;

    use braid_base::ids::{PartitionId, StoreId, Term};
    use tokio::time::Instant;

    use super::{AGAIN, Doubts, LOOKS_MAX, Looked};

    const P: PartitionId = PartitionId(3);
    const STORE: StoreId = StoreId(1);
    const TERM: Term = Term(5);

    #[test]
    fn a_store_is_trusted_when_it_was_looked_at_and_until_there_is_reason_to_doubt_it() {
        let (doubts, now) = (Doubts::default(), Instant::now());
        let trusted = |term| doubts.trusted(P, term).contains(&STORE);
        let begin = || doubts.begin((P, STORE), TERM, now);
        assert!(!trusted(TERM), "nobody has looked");
        let look = begin().expect("it is to be looked at");
        assert!(begin().is_none(), "one at a time");
        assert!(!doubts.end(&look, Looked::Well, now) && trusted(TERM));
        assert!(!trusted(Term(6)), "it was served elsewhere meanwhile");
        assert_eq!(doubts.trusted(PartitionId(2), TERM), BTreeSet::new());
        assert!(begin().is_none() && !doubts.take_news());

        doubts.raise(STORE);
        assert!(!trusted(TERM) && doubts.take_news() && !doubts.take_news());
        let look = begin().expect("again");
        doubts.raise(STORE);
        doubts.end(&look, Looked::Well, now);
        assert!(!trusted(TERM), "there was reason to doubt it since");
        let look = begin().expect("once more");
        assert!(doubts.end(&look, Looked::Missing, now) && !trusted(TERM), "that is told");
        let look = doubts.begin((P, STORE), TERM, now + AGAIN.0).expect("all of them");
        assert!(look.all && !doubts.end(&look, Looked::Well, now) && trusted(TERM));
    }

    #[test]
    fn what_cannot_be_found_out_is_tried_again_less_and_less() {
        let (doubts, mut now, mut pauses) = (Doubts::default(), Instant::now(), Vec::new());
        for _ in 0..12 {
            let mut secs = 0;
            let look = loop {
                match doubts.begin((P, STORE), TERM, now) {
                    Some(look) => break look,
                    None => (now, secs) = (now + Duration::from_secs(1), secs + 1),
                }
            };
            pauses.push(secs);
            doubts.end(&look, Looked::Unsure, now);
        }
        assert_eq!((&pauses[..4], pauses[11]), (&[0, 1, 2, 4][..], AGAIN.1.as_secs()));
        let busy = |p: &u16| doubts.begin((PartitionId(100 + p), STORE), TERM, now).is_some();
        assert_eq!((0..2 * LOOKS_MAX as u16).filter(busy).count(), LOOKS_MAX);
    }
}
