//! A map that forgets everything when it grows too large: for hints whose loss costs a little time.

use std::collections::HashMap;
use std::hash::Hash;
use std::sync::{Mutex, MutexGuard};

pub(crate) struct Hints<K, V> {
    most: usize,
    map: Mutex<HashMap<K, V>>,
}

impl<K: Eq + Hash, V: Copy> Hints<K, V> {
    /// At most `most` entries.
    pub(crate) fn new(most: usize) -> Self {
        Self { most, map: Mutex::default() }
    }

    pub(crate) fn get(&self, key: &K) -> Option<V> {
        self.map().get(key).copied()
    }

    pub(crate) fn put(&self, key: K, value: V) -> Option<V> {
        self.update(key, |_| value)
    }

    /// Puts what `make` says of what was there, and returns that; no other change comes in between.
    pub(crate) fn update(&self, key: K, make: impl FnOnce(Option<V>) -> V) -> Option<V> {
        let mut map = self.map();
        let before = map.get(&key).copied();
        if map.len() >= self.most && before.is_none() {
            map.clear();
        }
        map.insert(key, make(before))
    }

    /// Replaces what is there by what `make` says of it, if anything; no other change comes in between.
    pub(crate) fn replace(&self, key: &K, make: impl FnOnce(V) -> Option<V>) {
        let mut map = self.map();
        let Some(value) = map.get_mut(key) else { return };
        match make(*value) {
            Some(made) => *value = made,
            None => _ = map.remove(key),
        }
    }

    pub(crate) fn take(&self, key: &K) -> Option<V> {
        self.map().remove(key)
    }

    fn map(&self) -> MutexGuard<'_, HashMap<K, V>> {
        self.map.lock().expect("nothing panics while it holds the hints")
    }
}
