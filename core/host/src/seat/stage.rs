//! Staged payloads kept in memory: reads and destage of fresh data need no disk.

use std::collections::BTreeMap;

use braid_base::ids::Index;
use bytes::Bytes;

/// Payloads by log position, oldest dropped first. A miss is served from the log.
pub(super) struct StageCache {
    payloads: BTreeMap<Index, Bytes>,
    bytes: usize,
    bytes_max: usize,
}

impl StageCache {
    pub(super) fn new(bytes_max: usize) -> Self {
        Self { payloads: BTreeMap::new(), bytes: 0, bytes_max }
    }

    /// Adds the payload of entry `at`.
    pub(super) fn put(&mut self, at: Index, payload: Bytes) {
        self.bytes += payload.len();
        self.payloads.insert(at, payload);
        while self.bytes > self.bytes_max {
            let Some((_, oldest)) = self.payloads.pop_first() else { return };
            self.bytes -= oldest.len();
        }
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
            self.bytes -= payload.len();
        }
    }

    /// Drops everything older than `from`: nobody refers to it any more.
    pub(super) fn keep_from(&mut self, from: Index) {
        while let Some(entry) = self.payloads.first_entry() {
            if *entry.key() >= from {
                return;
            }
            self.bytes -= entry.remove().len();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::StageCache;
    use braid_base::ids::Index;
    use bytes::Bytes;

    #[test]
    fn bounded_and_exact() {
        let mut cache = StageCache::new(10);
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
    }
}
