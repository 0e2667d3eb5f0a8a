//! Effects of entries that are proposed and not yet in the key-value view, above it.
//!
//! The view never holds uncommitted effects (I5), and gets committed ones some at a time; whoever evaluates an operation
//! must see them all, because the log order is already fixed.

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, VecDeque};

use braid_base::ids::Index;

/// Pending values by key, each with the entry that set it (the newest wins; `None` = deleted).
#[derive(Default)]
pub struct Overlay {
    values: BTreeMap<Vec<u8>, (Index, Option<Vec<u8>>)>,
    entries: VecDeque<Pending>,
    /// How many of `entries`, the newest, are not committed, and the payload bytes that they carry.
    uncommitted: usize,
    staged: usize,
}

struct Pending {
    at: Index,
    keys: Vec<Vec<u8>>,
    staged: usize,
}

impl Overlay {
    /// Adds effects of entry `at`, which is the newest, with `staged` bytes of its payload.
    pub fn push(&mut self, at: Index, writes: BTreeMap<Vec<u8>, Option<Vec<u8>>>, staged: usize) {
        if self.entries.back().is_none_or(|newest| newest.at != at) {
            self.entries.push_back(Pending { at, keys: Vec::with_capacity(writes.len()), staged: 0 });
            self.uncommitted += 1;
        }
        if let Some(newest) = self.entries.back_mut() {
            for (key, value) in writes {
                self.values.insert(key.clone(), (at, value));
                newest.keys.push(key);
            }
            newest.staged += staged;
            self.staged += staged;
        }
    }

    /// All effects of entry `at`, which is the newest, in order of keys.
    pub fn effects(&self, at: Index) -> Vec<(&[u8], Option<&[u8]>)> {
        let newest = self.entries.back().filter(|newest| newest.at == at);
        let mut keys: Vec<&[u8]> = newest.into_iter().flat_map(|newest| &newest.keys).map(Vec::as_slice).collect();
        keys.sort();
        keys.dedup();
        keys.into_iter().filter_map(|key| Some((key, self.values.get(key)?.1.as_deref()))).collect()
    }

    /// Everything up to `upto` is committed.
    pub fn committed(&mut self, upto: Index) {
        while self.uncommitted > 0 {
            let oldest = &self.entries[self.entries.len() - self.uncommitted];
            if oldest.at > upto {
                return;
            }
            self.uncommitted -= 1;
            self.staged -= oldest.staged;
        }
    }

    /// Forgets everything up to `upto`, which is committed: it is in the view now.
    pub fn applied(&mut self, upto: Index) {
        while let Some(Pending { at, keys, .. }) = self.entries.pop_front_if(|entry| entry.at <= upto) {
            for key in keys {
                if let Entry::Occupied(value) = self.values.entry(key)
                    && value.get().0 == at
                {
                    value.remove();
                }
            }
        }
    }

    /// The pending value of `key`, if any, and the entry that set it.
    pub fn get(&self, key: &[u8]) -> Option<(Index, Option<&[u8]>)> {
        self.values.get(key).map(|(at, value)| (*at, value.as_deref()))
    }

    /// Pending values with keys in `[from, to)`, in order.
    pub fn range<'a>(
        &'a self,
        from: &[u8],
        to: &[u8],
    ) -> impl Iterator<Item = (&'a [u8], Index, Option<&'a [u8]>)> + 'a {
        let bounds = (std::ops::Bound::Included(from), std::ops::Bound::Excluded(to));
        self.values.range::<[u8], _>(bounds).map(|(key, (at, value))| (key.as_slice(), *at, value.as_deref()))
    }

    /// Entries that are not committed.
    pub fn uncommitted(&self) -> usize {
        self.uncommitted
    }

    /// Bytes of payload that they carry.
    pub fn staged(&self) -> usize {
        self.staged
    }
}
