//! Work on stores that a steward's rounds do not wait for: to start a replica takes as long as its log is, to wipe a store
//! as long as its view is, and a replica whose disk hangs never stops. Each is done on a thread of its own, one at a time for
//! each partition; until it has ended nothing else is begun there.

use std::collections::BTreeMap;
use std::thread::{Builder, JoinHandle};

use braid_base::ids::PartitionId;
use braid_base::{Error, ErrorKind, Result};

/// What is under way.
#[derive(Default)]
pub(super) struct Chores(BTreeMap<PartitionId, JoinHandle<Result<()>>>);

impl Chores {
    /// Begins `work` on the store of `p`, where nothing must be under way.
    pub(super) fn begin(&mut self, p: PartitionId, work: impl FnOnce() -> Result<()> + Send + 'static) {
        assert!(!self.is_busy(p), "{p}: one thing at a time");
        match Builder::new().name(format!("store-{}", p.0)).spawn(work) {
            Ok(thread) => drop(self.0.insert(p, thread)),
            // Whatever it was is found to be left to do.
            Err(error) => tracing::error!("{p}: no thread for its store: {error}"),
        }
    }

    /// Something is under way on the store of `p`.
    pub(super) fn is_busy(&self, p: PartitionId) -> bool {
        self.0.contains_key(&p)
    }

    /// Nothing is under way.
    pub(super) fn is_done(&self) -> bool {
        self.0.is_empty()
    }

    /// What has ended since the last call, and how.
    pub(super) fn ended(&mut self) -> Vec<(PartitionId, Result<()>)> {
        let died = |_| Err(Error::new(ErrorKind::Stopped, "the thread for its store died; see its panic"));
        let ended = self.0.extract_if(.., |_, thread| thread.is_finished());
        ended.map(|(p, thread)| (p, thread.join().unwrap_or_else(died))).collect()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;
    use std::time::Duration;

    use super::*;

    fn end_of(chores: &mut Chores) -> (PartitionId, std::result::Result<(), ErrorKind>) {
        loop {
            if let Some((p, result)) = chores.ended().pop() {
                return (p, result.map_err(|error| error.kind()));
            }
            std::thread::park_timeout(Duration::from_millis(1));
        }
    }

    #[test]
    fn one_that_hangs_keeps_the_others_from_nothing() {
        let (hung, other) = (PartitionId(1), PartitionId(2));
        let (end, hangs) = mpsc::channel::<()>();
        let mut chores = Chores::default();
        chores.begin(hung, move || hangs.recv().map_err(|_| ErrorKind::Io.into()));
        for _ in 0..3 {
            chores.begin(other, || Ok(()));
            assert_eq!(end_of(&mut chores), (other, Ok(())));
            assert!(!chores.is_busy(other) && chores.is_busy(hung) && !chores.is_done());
        }
        chores.begin(other, || panic!("on purpose"));
        assert_eq!(end_of(&mut chores), (other, Err(ErrorKind::Stopped)));
        drop(end);
        assert_eq!(end_of(&mut chores), (hung, Err(ErrorKind::Io)));
        assert!(chores.is_done());
    }
}
