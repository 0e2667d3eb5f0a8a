//! What may have changed, or may yet, without anybody knowing.

use std::collections::BTreeMap;

/// In doubt at most, each by itself; with more, all are.
pub(crate) const DOUBTS_MAX: usize = 4_096;

/// What is in doubt, and until when, milliseconds.
pub(crate) struct Doubts<K> {
    all_until: u64,
    of: BTreeMap<K, u64>,
}

impl<K> Default for Doubts<K> {
    fn default() -> Self {
        Self { all_until: 0, of: BTreeMap::new() }
    }
}

impl<K: Ord + Copy> Doubts<K> {
    /// True if nothing may be remembered of this now.
    pub(crate) fn is_about(&self, key: K, now: u64) -> bool {
        now < self.all_until || self.of.get(&key).is_some_and(|until| now < *until)
    }

    /// These are in doubt; with `None`, or beside too many others, all are: then it is false.
    pub(crate) fn add(&mut self, keys: Option<&[K]>, until: u64) -> bool {
        let keys = keys.filter(|keys| self.of.len() + keys.len() <= DOUBTS_MAX);
        match keys {
            Some(keys) => self.of.extend(keys.iter().map(|key| (*key, until))),
            None => self.all_until = until,
        }
        keys.is_some()
    }

    /// Forgets what is over.
    pub(crate) fn tidy(&mut self, now: u64) {
        self.of.retain(|_, until| now < *until);
    }
}
