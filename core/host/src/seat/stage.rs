//! Staged payloads kept in memory: reads and destage of fresh data need no disk.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use braid_base::ids::Index;
use bytes::Bytes;

/// Memory for the staged payloads of all seats of a host: each may always use a part, and who has more to keep takes from
/// the rest. Most hosts are primary of few of the partitions that they have replicas of, and only primaries stage.
#[derive(Debug)]
pub struct StageMemory {
    /// What each seat may use in any case, bytes.
    each: usize,
    /// What all together may use beyond that.
    rest: usize,
    taken: AtomicUsize,
}

impl StageMemory {
    /// `bytes` for at most `seats` seats: half in equal parts, half for those who need more.
    pub fn new(bytes: usize, seats: usize) -> Arc<Self> {
        Arc::new(Self { each: bytes / 2 / seats.max(1), rest: bytes / 2, taken: AtomicUsize::new(0) })
    }
}

/// Payloads by log position, oldest dropped first. A miss is served from the log.
pub(super) struct StageCache {
    payloads: BTreeMap<Index, Bytes>,
    bytes: usize,
    memory: Arc<StageMemory>,
}

impl StageCache {
    pub(super) fn new(memory: Arc<StageMemory>) -> Self {
        Self { payloads: BTreeMap::new(), bytes: 0, memory }
    }

    /// Adds the payload of entry `at`.
    pub(super) fn put(&mut self, at: Index, payload: Bytes) {
        self.count(self.bytes + payload.len());
        self.payloads.insert(at, payload);
        while self.bytes > self.memory.each && self.memory.taken.load(Ordering::Relaxed) > self.memory.rest {
            let Some((_, oldest)) = self.payloads.pop_first() else { return };
            self.count(self.bytes - oldest.len());
        }
    }

    /// From now on it holds so many bytes.
    fn count(&mut self, bytes: usize) {
        let beyond = |bytes: usize| bytes.saturating_sub(self.memory.each);
        self.memory.taken.fetch_add(beyond(bytes), Ordering::Relaxed);
        self.memory.taken.fetch_sub(beyond(self.bytes), Ordering::Relaxed);
        self.bytes = bytes;
    }

    /// A piece of a payload, if it is here and that long.
    pub(super) fn get(&self, at: Index, poff: u32, len: u32) -> Option<Bytes> {
        let payload = self.payloads.get(&at)?;
        let (from, to) = (poff as usize, poff as usize + len as usize);
        (to <= payload.len()).then(|| payload.slice(from..to))
    }

    /// Drops the payload of entry `at`: nobody refers to it any more.
    pub(super) fn forget(&mut self, at: Index) {
        if let Some(payload) = self.payloads.remove(&at) {
            self.count(self.bytes - payload.len());
        }
    }

    /// Drops everything older than `from`: nobody refers to it any more.
    pub(super) fn keep_from(&mut self, from: Index) {
        while let Some(entry) = self.payloads.first_entry() {
            if *entry.key() >= from {
                return;
            }
            let gone = entry.remove().len();
            self.count(self.bytes - gone);
        }
    }
}

impl Drop for StageCache {
    fn drop(&mut self) {
        self.count(0);
    }
}

#[cfg(test)]
mod tests {
    use super::{StageCache, StageMemory};
    use braid_base::ids::Index;
    use bytes::Bytes;
    use std::sync::atomic::Ordering;

    #[test]
    fn bounded_and_exact() {
        let mut cache = StageCache::new(StageMemory::new(10, 1));
        cache.put(Index(1), Bytes::from_static(b"abcdef"));
        cache.put(Index(2), Bytes::from_static(b"ghijkl"));
        assert_eq!(cache.get(Index(1), 0, 1), None, "the oldest went");
        assert_eq!(cache.get(Index(2), 2, 3).as_deref(), Some(&b"ijk"[..]));
        assert_eq!(cache.get(Index(2), 4, 3), None, "longer than the payload");
        cache.put(Index(3), Bytes::from_static(b"mn"));
        cache.forget(Index(3));
        cache.forget(Index(1));
        assert_eq!((cache.get(Index(3), 0, 1), cache.bytes), (None, 6));
        cache.keep_from(Index(3));
        assert_eq!((cache.get(Index(2), 0, 1), cache.bytes), (None, 0));
        let mut none = StageCache::new(StageMemory::new(0, 1));
        none.put(Index(1), Bytes::from_static(b"a"));
        assert_eq!((none.get(Index(1), 0, 1), none.bytes), (None, 0));
    }

    #[test]
    fn who_works_alone_has_what_others_do_not_need() {
        let memory = StageMemory::new(80, 4);
        let seats = || StageCache::new(memory.clone());
        let (mut busy, mut late) = (seats(), seats());
        for at in 0..20 {
            busy.put(Index(at), Bytes::from_static(&[7; 5]));
        }
        assert_eq!((busy.bytes, memory.taken.load(Ordering::Relaxed)), (50, 40), "its eighth and the common half");
        for at in 0..20 {
            late.put(Index(at), Bytes::from_static(&[8; 5]));
        }
        assert_eq!((busy.bytes, late.bytes), (50, 10), "its eighth is there for who comes late");
        drop(busy);
        late.put(Index(20), Bytes::from_static(&[8; 40]));
        assert_eq!((late.bytes, memory.taken.load(Ordering::Relaxed)), (50, 40));
        drop(late);
        assert_eq!(memory.taken.load(Ordering::Relaxed), 0);
    }
}
