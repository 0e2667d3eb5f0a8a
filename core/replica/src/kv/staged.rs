//! Slices whose bytes lie in the log: their rows are kept in memory, because the log holds them, too.
//!
//! Under small writes most rows of a partition are those of slices that are staged and moved to flash a few seconds
//! later. What the engine would make durable of them stands in the entries that hold their bytes, and these stay as
//! long as a slice needs them. So a start reads the rows from there ([`StagedKv::keep`]), and the engine never
//! sees them.

use std::collections::{BTreeMap, VecDeque};
use std::ops::Bound;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use braid_base::ids::PartitionId;
use braid_base::keys::{self, SLICE_KEY_BYTES, Table};
use braid_base::record::{STAGED_SLICE_BYTES, SliceRec};
use braid_base::{Error, Result};

use super::Kv;
use super::batch::{Batch, Change};

/// Rows copied out under the lock at a time, so that a visitor may call back.
const PAGE: usize = 64;

type Key = [u8; SLICE_KEY_BYTES];
type Value = [u8; STAGED_SLICE_BYTES];

/// An engine with the rows of staged slices beside it. All changes of its partition must go through it, and a key is
/// never in both: a slice is put once, under the position of its entry.
pub struct StagedKv {
    inner: Arc<dyn Kv>,
    rows: Mutex<BTreeMap<Key, Value>>,
}

impl StagedKv {
    /// Beside `inner`, none yet.
    pub fn new(inner: Arc<dyn Kv>) -> Self {
        Self { inner, rows: Mutex::default() }
    }

    /// Takes over the rows of `p` that an earlier release put into the engine. Returns what takes them away there, for
    /// [`Self::apply_below`].
    pub fn take_over(&self, p: PartitionId) -> Result<Batch> {
        let (table, mut moved) = (keys::table(p, Table::Slice), Batch::new());
        self.inner.scan(&table, &keys::prefix_end(&table), &mut |key, value| {
            if let Some((own, value)) = staged(key, value) {
                moved.delete(key);
                self.rows().insert(own, value);
            }
            true
        })?;
        Ok(moved)
    }

    /// Changes the engine only.
    pub fn apply_below(&self, batch: &Batch) -> Result<()> {
        self.inner.apply(batch)
    }

    fn rows(&self) -> MutexGuard<'_, BTreeMap<Key, Value>> {
        self.rows.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What of `batch` is for the engine; `None`: all of it.
    fn for_inner(&self, batch: &Batch) -> Option<Batch> {
        if !batch.changes().any(|change| keys::is_slice(change.key())) {
            return None;
        }
        let rows = self.rows();
        let mut rest = Batch::new();
        for change in batch.changes() {
            match change {
                Change::Put(key, value) if staged(key, value).is_none() => rest.put(key, value),
                Change::Delete(key) if !keys::is_slice(key) || !rows.contains_key(key) => rest.delete(key),
                Change::Put(..) | Change::Delete(_) => continue,
            };
        }
        Some(rest)
    }

    /// Keeps what of an entry is not for the engine. From outside: of one from the log that the engine has already.
    pub fn keep(&self, batch: &Batch) {
        let mut rows = self.rows();
        for change in batch.changes() {
            match change {
                Change::Put(key, value) => {
                    if let Some((key, value)) = staged(key, value) {
                        rows.insert(key, value);
                    }
                }
                Change::Delete(key) if keys::is_slice(key) => {
                    rows.remove(key);
                }
                Change::Delete(_) => {}
            }
        }
    }
}

impl Kv for StagedKv {
    fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>> {
        if keys::is_slice(key)
            && let Some(value) = self.rows().get(key)
        {
            return Ok(Some(value.to_vec()));
        }
        self.inner.get(key)
    }

    fn scan(&self, from: &[u8], to: &[u8], visit: &mut dyn FnMut(&[u8], &[u8]) -> bool) -> Result<()> {
        let mut own = Ahead::new(self, from, to);
        if own.rows.is_empty() {
            return self.inner.scan(from, to, visit);
        }
        let mut going = true;
        self.inner.scan(from, to, &mut |key, value| {
            while going && let Some((own, value)) = own.next_before(key) {
                going = visit(&own, &value);
            }
            going = going && visit(key, value);
            going
        })?;
        while going && let Some((key, value)) = own.next() {
            going = visit(&key, &value);
        }
        Ok(())
    }

    fn apply(&self, batch: &Batch) -> Result<()> {
        // First the engine: it may refuse, and then nothing has changed.
        match self.for_inner(batch) {
            None => self.inner.apply(batch),
            Some(rest) => {
                self.inner.apply(&rest)?;
                self.keep(batch);
                Ok(())
            }
        }
    }

    fn flush(&self) -> Result<()> {
        self.inner.flush()
    }

    fn damage(&self) -> Option<Error> {
        self.inner.damage()
    }
}

/// The row, if it is that of a staged slice.
fn staged(key: &[u8], value: &[u8]) -> Option<(Key, Value)> {
    let is_one = keys::is_slice(key) && SliceRec::is_staged(value);
    if is_one { Some((key.try_into().ok()?, value.try_into().ok()?)) } else { None }
}

/// The rows of a range, a page at a time.
struct Ahead<'a> {
    kv: &'a StagedKv,
    rows: VecDeque<(Key, Value)>,
    to: &'a [u8],
    /// There are no more behind `rows`.
    is_last: bool,
}

impl<'a> Ahead<'a> {
    fn new(kv: &'a StagedKv, from: &[u8], to: &'a [u8]) -> Self {
        let mut ahead = Self { kv, rows: VecDeque::new(), to, is_last: from >= to };
        ahead.read(Bound::Included(from));
        ahead
    }

    fn read(&mut self, from: Bound<&[u8]>) {
        if !self.is_last {
            let rows = self.kv.rows();
            let page = rows.range::<[u8], _>((from, Bound::Excluded(self.to))).take(PAGE);
            self.rows.extend(page.map(|(key, value)| (*key, *value)));
            self.is_last = self.rows.len() < PAGE;
        }
    }

    fn next(&mut self) -> Option<(Key, Value)> {
        let row = self.rows.pop_front()?;
        if self.rows.is_empty() {
            self.read(Bound::Excluded(&row.0));
        }
        Some(row)
    }

    fn next_before(&mut self, key: &[u8]) -> Option<(Key, Value)> {
        if self.rows.front()?.0.as_slice() < key { self.next() } else { None }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use braid_base::ids::{Chunk, FsId, Index, Ino, Layer, PackId, PartitionId};
    use braid_base::keys;
    use braid_base::record::{Extent, Place, Record, SliceRec, StripeAt};

    use super::StagedKv;
    use crate::kv::Kv;
    use crate::kv::batch::Batch;
    use crate::kv::map::MapKv;

    const P: PartitionId = PartitionId(3);

    fn key(at: u64) -> Vec<u8> {
        keys::slice(P, FsId(1), Ino(9), Chunk(0), Layer::FIRST, Index(at), 0)
    }

    fn staged(at: u64) -> Vec<u8> {
        SliceRec(Extent { off: 0, len: 1, place: Place::Stage { at: Index(at), poff: 0 } }).encode()
    }

    fn flash() -> Vec<u8> {
        let stripe = StripeAt { pack: PackId::new(P, 1), sb: 0, ul: 1 };
        SliceRec(Extent { off: 0, len: 1, place: Place::Flash { stripe, delta: 0, copy: None } }).encode()
    }

    fn other(n: u64) -> Vec<u8> {
        keys::inode(P, FsId(1), Ino(n), Layer::FIRST)
    }

    fn scanned(kv: &dyn Kv, most: usize) -> Vec<Vec<u8>> {
        let (all, mut found) = (keys::partition(P), Vec::new());
        kv.scan(&all, &keys::prefix_end(&all), &mut |key, _| {
            found.push(key.to_vec());
            found.len() < most
        })
        .expect("memory");
        found
    }

    fn put(rows: &[(Vec<u8>, Vec<u8>)]) -> Batch {
        let mut batch = Batch::new();
        rows.iter().for_each(|(key, value)| {
            batch.put(key, value);
        });
        batch
    }

    #[test]
    fn the_engine_never_sees_staged_slices_and_a_scan_shows_all_in_order() {
        let inner = Arc::new(MapKv::new());
        let kv = StagedKv::new(inner.clone());
        let mut expected: Vec<Vec<u8>> = (0..300).map(key).collect();
        expected.extend((0..5).map(other));
        expected.sort();
        let rows = (0..300).map(|at| (key(at), if at % 7 == 0 { flash() } else { staged(at) }));
        kv.apply(&put(&rows.collect::<Vec<_>>())).expect("memory");
        kv.apply(&put(&(0..5).map(|n| (other(n), vec![1])).collect::<Vec<_>>())).expect("memory");
        assert_eq!(scanned(&kv, usize::MAX), expected);
        for most in [1, 7, 63, 64, 65, 200] {
            assert_eq!(scanned(&kv, most), expected[..most]);
        }
        assert_eq!(inner.len(), 43 + 5);
        let mut gone = Batch::new();
        (0..300).for_each(|at| {
            gone.delete(key(at));
        });
        kv.apply(&gone).expect("memory");
        assert_eq!((scanned(&kv, usize::MAX), inner.len()), ((0..5).map(other).collect(), 5));
    }

    #[test]
    fn a_batch_that_is_refused_changes_nothing() {
        let inner = Arc::new(MapKv::new());
        let kv = StagedKv::new(inner.clone());
        kv.apply(&put(&[(key(1), staged(1))])).expect("memory");
        inner.set_full(true);
        let mut batch = put(&[(key(2), staged(2))]);
        batch.delete(key(1));
        assert!(kv.apply(&batch).is_err());
        assert_eq!(scanned(&kv, 9), [key(1)]);
        inner.set_full(false);
        kv.apply(&batch).expect("memory");
        assert_eq!(scanned(&kv, 9), [key(2)]);
    }

    #[test]
    fn rows_of_an_earlier_release_are_taken_over_and_the_log_goes_on_from_there() {
        let inner = Arc::new(MapKv::new());
        inner.apply(&put(&[(key(1), staged(1)), (key(2), flash()), (key(3), staged(3))])).expect("memory");
        let kv = StagedKv::new(inner.clone());
        let moved = kv.take_over(P).expect("memory");
        assert_eq!((moved.len(), inner.len()), (2, 3));
        kv.apply_below(&moved).expect("memory");
        assert_eq!((scanned(&kv, 9), inner.len()), (vec![key(1), key(2), key(3)], 1));
        assert_eq!(kv.get(&key(1)), Ok(Some(staged(1))));
        let mut entry = put(&[(key(4), staged(4))]);
        entry.delete(key(1));
        kv.keep(&entry);
        assert_eq!((scanned(&kv, 9), inner.len()), (vec![key(2), key(3), key(4)], 1));
    }
}
