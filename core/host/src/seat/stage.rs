//! Staged payloads kept in memory: reads and destage of fresh data need no disk.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

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

/// Payloads by log position, oldest dropped first. A miss is served from the log. Clones are the same one: who moves what
/// is committed reads it here, without a step at the seat.
#[derive(Clone)]
pub struct StageCache(Arc<Mutex<Payloads>>);

struct Payloads {
    payloads: BTreeMap<Index, Bytes>,
    bytes: usize,
    memory: Arc<StageMemory>,
}

impl StageCache {
    pub(super) fn new(memory: Arc<StageMemory>) -> Self {
        Self(Arc::new(Mutex::new(Payloads { payloads: BTreeMap::new(), bytes: 0, memory })))
    }

    fn lock(&self) -> MutexGuard<'_, Payloads> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds the payload of entry `at`.
    pub(super) fn put(&self, at: Index, payload: Bytes) {
        let mut all = self.lock();
        let bytes = all.bytes + payload.len();
        all.count(bytes);
        all.payloads.insert(at, payload);
        while all.bytes > all.memory.each && all.memory.taken.load(Ordering::Relaxed) > all.memory.rest {
            let Some((_, oldest)) = all.payloads.pop_first() else { return };
            all.less(&oldest);
        }
    }

    /// A piece of a payload, if it is here and that long.
    pub fn get(&self, at: Index, poff: u32, len: u32) -> Option<Bytes> {
        let all = self.lock();
        let payload = all.payloads.get(&at)?;
        let (from, to) = (poff as usize, poff as usize + len as usize);
        (to <= payload.len()).then(|| payload.slice(from..to))
    }

    /// Drops the payload of entry `at`: nobody refers to it any more.
    pub(super) fn forget(&self, at: Index) {
        let mut all = self.lock();
        if let Some(payload) = all.payloads.remove(&at) {
            all.less(&payload);
        }
    }

    /// Drops everything older than `from`: nobody refers to it any more.
    pub(super) fn keep_from(&self, from: Index) {
        let (mut all, mut gone) = (self.lock(), Vec::new());
        while let Some(entry) = all.payloads.first_entry().filter(|entry| *entry.key() < from) {
            let payload = entry.remove();
            all.less(&payload);
            gone.push(payload);
        }
        // Their memory is given back when nobody waits for the others.
        drop(all);
    }
}

impl Payloads {
    /// From now on it holds so many bytes.
    fn count(&mut self, bytes: usize) {
        let beyond = |bytes: usize| bytes.saturating_sub(self.memory.each);
        self.memory.taken.fetch_add(beyond(bytes), Ordering::Relaxed);
        self.memory.taken.fetch_sub(beyond(self.bytes), Ordering::Relaxed);
        self.bytes = bytes;
    }

    /// One of them is gone.
    fn less(&mut self, payload: &Bytes) {
        self.count(self.bytes - payload.len());
    }
}

impl Drop for Payloads {
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
        let cache = StageCache::new(StageMemory::new(10, 1));
        cache.put(Index(1), Bytes::from_static(b"abcdef"));
        cache.put(Index(2), Bytes::from_static(b"ghijkl"));
        assert_eq!(cache.get(Index(1), 0, 1), None, "the oldest went");
        let elsewhere = cache.clone();
        assert_eq!(elsewhere.get(Index(2), 2, 3).as_deref(), Some(&b"ijk"[..]));
        assert_eq!(cache.get(Index(2), 4, 3), None, "longer than the payload");
        cache.put(Index(3), Bytes::from_static(b"mn"));
        cache.forget(Index(3));
        cache.forget(Index(1));
        assert_eq!((cache.get(Index(3), 0, 1), cache.lock().bytes), (None, 6));
        cache.keep_from(Index(3));
        assert_eq!((elsewhere.get(Index(2), 0, 1), cache.lock().bytes), (None, 0));
        let none = StageCache::new(StageMemory::new(0, 1));
        none.put(Index(1), Bytes::from_static(b"a"));
        assert_eq!((none.get(Index(1), 0, 1), none.lock().bytes), (None, 0));
    }

    #[test]
    fn who_works_alone_has_what_others_do_not_need() {
        let memory = StageMemory::new(80, 4);
        let seats = || StageCache::new(memory.clone());
        let (busy, late) = (seats(), seats());
        for at in 0..20 {
            busy.put(Index(at), Bytes::from_static(&[7; 5]));
        }
        assert_eq!(
            (busy.lock().bytes, memory.taken.load(Ordering::Relaxed)),
            (50, 40),
            "its eighth and the common half"
        );
        for at in 0..20 {
            late.put(Index(at), Bytes::from_static(&[8; 5]));
        }
        assert_eq!((busy.lock().bytes, late.lock().bytes), (50, 10), "its eighth is there for who comes late");
        drop(busy);
        late.put(Index(20), Bytes::from_static(&[8; 40]));
        assert_eq!((late.lock().bytes, memory.taken.load(Ordering::Relaxed)), (50, 40));
        drop(late);
        assert_eq!(memory.taken.load(Ordering::Relaxed), 0);
    }
}
