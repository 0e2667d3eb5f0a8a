//! Rows of an engine that were read or written lately, kept in memory.
//!
//! Directories, counters and the chunks of files at work are read by nearly every operation; an engine looks for each
//! anew, in tables ordered for writing.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use braid_base::{Error, Result, keys};

use super::Kv;
use super::batch::{Batch, Change};

/// Memory that a row takes beside its key and value: the entry of the table and the allocator's share, bytes.
const ROW_OVERHEAD: usize = 96;
/// Longer values pass the cache by.
const VALUE_MAX: usize = 16 << 10;

/// An engine with its hot rows in memory, while they are read. Rows that are hardly ever got by key pass it by.
///
/// All changes of the keys that are read through it must go through it: each partition has one of its own in front
/// of the engine they share.
pub struct CachedKv {
    inner: Arc<dyn Kv>,
    rows: Mutex<Rows>,
    keeps: AtomicBool,
}

impl CachedKv {
    /// A cache of at most about `limit` bytes before `inner`.
    pub fn new(inner: Arc<dyn Kv>, limit: usize) -> Self {
        let rows = Mutex::new(Rows { young: Generation::default(), old: Generation::default(), limit });
        Self { inner, rows, keeps: AtomicBool::new(true) }
    }

    /// Whether rows are kept from now on: who only writes has no use for them.
    pub fn keep_rows(&self, keeps: bool) {
        let mut rows = self.rows();
        self.keeps.store(keeps, Ordering::Release);
        if !keeps {
            rows.clear();
        }
    }

    fn keeps(&self) -> bool {
        self.keeps.load(Ordering::Acquire)
    }

    fn rows(&self) -> MutexGuard<'_, Rows> {
        self.rows.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Kv for CachedKv {
    fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>> {
        if !self.keeps() || keys::is_hardly_got(key) {
            return self.inner.get(key);
        }
        if let Some(known) = self.rows().get(key) {
            return Ok(known);
        }
        let found = self.inner.get(key)?;
        self.rows().keep(key, found.as_deref());
        Ok(found)
    }

    fn scan(&self, from: &[u8], to: &[u8], visit: &mut dyn FnMut(&[u8], &[u8]) -> bool) -> Result<()> {
        self.inner.scan(from, to, visit)
    }

    fn apply(&self, batch: &Batch) -> Result<()> {
        let mut rows = self.rows();
        if !self.keeps() {
            return self.inner.apply(batch);
        }
        if let Err(error) = self.inner.apply(batch) {
            rows.clear();
            return Err(error);
        }
        for change in batch.changes() {
            let (key, value) = match change {
                Change::Put(key, value) => (key, Some(value)),
                Change::Delete(key) => (key, None),
            };
            if !keys::is_hardly_got(key) {
                rows.keep(key, value);
            }
        }
        Ok(())
    }

    fn flush(&self) -> Result<()> {
        self.inner.flush()
    }

    fn damage(&self) -> Option<Error> {
        self.inner.damage()
    }
}

/// Two generations: what is used moves to the young one; when that has half of the limit, the old one is dropped.
struct Rows {
    young: Generation,
    old: Generation,
    limit: usize,
}

type Key = Box<[u8]>;
/// `None`: the engine has no such key.
type Value = Option<Box<[u8]>>;

#[derive(Default)]
struct Generation {
    rows: HashMap<Key, Value>,
    bytes: usize,
}

impl Rows {
    /// What is known of `key`.
    fn get(&mut self, key: &[u8]) -> Option<Option<Vec<u8>>> {
        if let Some(value) = self.young.rows.get(key) {
            return Some(value.as_deref().map(<[u8]>::to_vec));
        }
        let (key, value) = self.old.take(key)?;
        let found = value.as_deref().map(<[u8]>::to_vec);
        self.put(key, value);
        Some(found)
    }

    /// Remembers that `key` has this value.
    fn keep(&mut self, key: &[u8], value: Option<&[u8]>) {
        let known = self.young.take(key).or_else(|| self.old.take(key));
        if value.is_some_and(|value| value.len() > VALUE_MAX) {
            return;
        }
        let key = known.map_or_else(|| key.into(), |(key, _)| key);
        self.put(key, value.map(Into::into));
    }

    fn put(&mut self, key: Key, value: Value) {
        self.young.bytes += cost(&key, value.as_deref());
        self.young.rows.insert(key, value);
        if self.young.bytes >= self.limit / 2 {
            self.old = std::mem::take(&mut self.young);
        }
    }

    fn clear(&mut self) {
        (self.young, self.old) = Default::default();
    }
}

impl Generation {
    fn take(&mut self, key: &[u8]) -> Option<(Key, Value)> {
        let (key, value) = self.rows.remove_entry(key)?;
        self.bytes -= cost(&key, value.as_deref());
        Some((key, value))
    }
}

fn cost(key: &[u8], value: Option<&[u8]>) -> usize {
    ROW_OVERHEAD + key.len() + value.map_or(0, <[u8]>::len)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use braid_base::ids::{PackId, PartitionId};
    use braid_base::keys;

    use super::CachedKv;
    use crate::kv::Kv;
    use crate::kv::batch::Batch;
    use crate::kv::map::MapKv;

    fn put(kv: &dyn Kv, key: u32, value: Vec<u8>) {
        let mut batch = Batch::new();
        batch.put(key.to_be_bytes(), value);
        kv.apply(&batch).expect("applied");
    }

    #[test]
    fn it_stays_within_its_limit_and_keeps_what_is_used() {
        let limit = 64 << 10;
        let kv = CachedKv::new(Arc::new(MapKv::new()), limit);
        for key in 0..10_000 {
            put(&kv, key, vec![1; 100]);
            assert_eq!(kv.get(&0u32.to_be_bytes()).expect("readable"), Some(vec![1; 100]));
            let rows = kv.rows();
            assert!(rows.young.bytes + rows.old.bytes <= limit, "after {key}");
            assert!(rows.young.rows.contains_key(&0u32.to_be_bytes()[..]) || key == 0 || rows.young.rows.is_empty());
        }
    }

    #[test]
    fn what_was_written_while_no_rows_were_kept_is_seen() {
        let kv = CachedKv::new(Arc::new(MapKv::new()), 1 << 20);
        put(&kv, 1, vec![1]);
        kv.keep_rows(false);
        put(&kv, 1, vec![2]);
        assert_eq!(kv.get(&1u32.to_be_bytes()).expect("readable"), Some(vec![2]));
        kv.keep_rows(true);
        assert!(kv.rows().young.rows.is_empty() && kv.rows().old.rows.is_empty());
        assert_eq!(kv.get(&1u32.to_be_bytes()).expect("readable"), Some(vec![2]));
    }

    #[test]
    fn rows_that_are_only_listed_take_no_room() {
        let kv = CachedKv::new(Arc::new(MapKv::new()), 1 << 20);
        let key = keys::stripe(PartitionId(0), PackId::new(PartitionId(0), 1), 2);
        for value in [vec![1], vec![2]] {
            let mut batch = Batch::new();
            batch.put(key.clone(), value.clone());
            kv.apply(&batch).expect("applied");
            assert_eq!(kv.get(&key).expect("readable"), Some(value));
        }
        let mut batch = Batch::new();
        batch.delete(key.clone());
        kv.apply(&batch).expect("applied");
        assert_eq!(kv.get(&key).expect("readable"), None);
        assert!(kv.rows().young.rows.is_empty());
    }

    #[test]
    fn a_long_value_takes_the_place_of_a_cached_one() {
        let kv = CachedKv::new(Arc::new(MapKv::new()), 1 << 20);
        put(&kv, 1, vec![1; 10]);
        put(&kv, 1, vec![2; super::VALUE_MAX + 1]);
        assert_eq!(kv.get(&1u32.to_be_bytes()).expect("readable"), Some(vec![2; super::VALUE_MAX + 1]));
        assert!(kv.rows().young.rows.is_empty());
    }
}
