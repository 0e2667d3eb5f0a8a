//! The engine in memory: for tests, the simulator, and as the reference the real engine is held against.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{RwLock, RwLockReadGuard, RwLockWriteGuard};

use braid_base::{Error, ErrorKind, Result};

use super::Kv;
use super::batch::{Batch, Change};

/// Pairs copied out under the lock at a time, so that a visitor may call back.
const PAGE: usize = 64;

/// A sorted map that can forget everything since its last flush, as a crash would.
#[derive(Default)]
pub struct MapKv {
    state: RwLock<State>,
    full: AtomicBool,
}

#[derive(Default)]
struct State {
    live: BTreeMap<Vec<u8>, Vec<u8>>,
    /// What each key changed since the last flush held at that flush.
    undo: BTreeMap<Vec<u8>, Option<Vec<u8>>>,
}

impl MapKv {
    /// An empty engine.
    pub fn new() -> Self {
        Self::default()
    }

    /// Goes back to the last flush.
    pub fn crash(&self) {
        let state = &mut *self.write();
        for (key, value) in std::mem::take(&mut state.undo) {
            match value {
                Some(value) => state.live.insert(key, value),
                None => state.live.remove(&key),
            };
        }
    }

    /// Takes nothing more while this is set.
    pub fn set_full(&self, full: bool) {
        self.full.store(full, Ordering::Relaxed);
    }

    /// Number of keys.
    pub fn len(&self) -> usize {
        self.read().live.len()
    }

    /// True if there is no key.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    fn read(&self) -> RwLockReadGuard<'_, State> {
        self.state.read().expect("no code panics while it holds this lock")
    }

    fn write(&self) -> RwLockWriteGuard<'_, State> {
        self.state.write().expect("no code panics while it holds this lock")
    }

    fn page(&self, from: &[u8], to: &[u8]) -> Vec<(Vec<u8>, Vec<u8>)> {
        let state = self.read();
        let range = state.live.range::<[u8], _>((std::ops::Bound::Included(from), std::ops::Bound::Excluded(to)));
        range.take(PAGE).map(|(key, value)| (key.clone(), value.clone())).collect()
    }
}

impl Kv for MapKv {
    fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>> {
        Ok(self.read().live.get(key).cloned())
    }

    fn scan(&self, from: &[u8], to: &[u8], visit: &mut dyn FnMut(&[u8], &[u8]) -> bool) -> Result<()> {
        let mut from = from.to_vec();
        while from.as_slice() < to {
            let page = self.page(&from, to);
            if !page.iter().all(|(key, value)| visit(key, value)) || page.len() < PAGE {
                break;
            }
            if let Some((last, _)) = page.last() {
                from.clone_from(last);
                from.push(0); // the smallest key after `last`
            }
        }
        Ok(())
    }

    fn apply(&self, batch: &Batch) -> Result<()> {
        if self.full.load(Ordering::Relaxed) {
            return Err(Error::new(ErrorKind::NoSpace, "the view has no room"));
        }
        let state = &mut *self.write();
        for change in batch.changes() {
            let old = match change {
                Change::Put(key, value) => state.live.insert(key.to_vec(), value.to_vec()),
                Change::Delete(key) => state.live.remove(key),
            };
            if let Entry::Vacant(slot) = state.undo.entry(change.key().to_vec()) {
                slot.insert(old);
            }
        }
        Ok(())
    }

    fn flush(&self) -> Result<()> {
        self.write().undo.clear();
        Ok(())
    }
}
