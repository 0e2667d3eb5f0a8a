//! A map that forgets everything when it grows too large: for hints whose loss costs a little time.

use std::collections::HashMap;
use std::hash::Hash;
use std::sync::{Mutex, MutexGuard};

#[derive(Debug)]
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
        self.update(key, |slot| slot.replace(value))
    }

    /// Does `work` with what is there, which may change it, put it or take it away; no other change comes in between.
    pub(crate) fn update<R>(&self, key: K, work: impl FnOnce(&mut Option<V>) -> R) -> R {
        let mut map = self.map();
        let before = map.get(&key).copied();
        let mut slot = before;
        let result = work(&mut slot);
        if let Some(value) = slot {
            if map.len() >= self.most && before.is_none() {
                map.clear();
            }
            map.insert(key, value);
        } else if before.is_some() {
            map.remove(&key);
        }
        result
    }

    pub(crate) fn take(&self, key: &K) -> Option<V> {
        self.map().remove(key)
    }

    fn map(&self) -> MutexGuard<'_, HashMap<K, V>> {
        self.map.lock().expect("nothing panics while it holds the hints")
    }
}

/// For tests of what two threads do at the same moment.
#[cfg(test)]
pub(crate) mod meeting {
    use std::sync::atomic::{AtomicU64, Ordering};
    use std::{hint, thread};

    /// Looks at the other thread, before it is taken to wait for a processor: some microseconds.
    const SPINS: u32 = 1_000;

    /// Where two threads meet again and again.
    #[derive(Default)]
    pub(crate) struct Meeting(AtomicU64);

    impl Meeting {
        /// Returns when both are there for the `number`th time, from 0.
        pub(crate) fn meet(&self, number: u64) {
            self.0.fetch_add(1, Ordering::Relaxed);
            let mut spins = 0;
            while self.0.load(Ordering::Relaxed) < 2 * (number + 1) {
                spins += 1;
                if spins < SPINS { hint::spin_loop() } else { thread::yield_now() }
            }
        }
    }
}
