//! What this host found to be missing or damaged in object stores when it read there, as far as that is so still.
//!
//! A finding ends when the same bytes are read well again, which is tried now and then, or when the partition says that
//! nothing names them any more. It is in memory only: who serves the partition next finds it anew.
//!
//! It becomes an event when the partition has heard of it, and did not say so: an object may be asked for by somebody who
//! does not know yet that it was removed.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use braid_base::ids::{BlobId, PartitionId, StoreId, Term};
use braid_base::limits::{BLOCK, CHUNK};
use braid_base::msg::job::ObjectKey;
use braid_base::{Error, ErrorKind};
use braid_meta::Damaged;
use braid_tier::Store;
use braid_tier::blob::DATA_MAX;
use tokio::time::{Instant, sleep};

use super::{HostObjects, Look, Looked};
use crate::run::wire::wall_ms;

/// Objects that are remembered, at most: what is found beyond is found again when there is room.
const OBJECTS_MAX: usize = 10_000;
/// Ranges of one object, at most: beyond, what is between two of them counts as damaged, too.
const RANGES_MAX: usize = 256;
/// What was found is looked at again after this, later after twice as long each time, up to that; so many objects at a time.
const AGAIN: Duration = Duration::from_secs(60);
const AGAIN_MAX_PAUSE: Duration = Duration::from_secs(960);
const AGAIN_MAX: usize = 64;

/// What was found.
#[derive(Default)]
pub(super) struct Findings {
    record: Mutex<Record>,
    /// Counts its changes.
    changes: AtomicU64,
    /// Objects in it.
    count: AtomicU64,
    /// Somebody looks at it again.
    watched: AtomicBool,
}

#[derive(Default)]
struct Record {
    known: BTreeMap<(PartitionId, ObjectKey), Damaged>,
    /// Why, of those that are not told to people yet.
    untold: BTreeMap<(PartitionId, ObjectKey), Error>,
}

impl Record {
    /// Bytes `range` cannot be had; is that new?
    fn found(&mut self, key: ObjectKey, range: &Range<u64>, error: &Error, now_s: u64) -> bool {
        let at = (key.blob.partition(), key);
        let first = !self.known.contains_key(&at);
        if self.known.len() >= OBJECTS_MAX && first {
            return false;
        }
        if first {
            self.untold.insert(at, error.clone());
        }
        let known = self.known.entry(at).or_insert_with(|| Damaged {
            term: key.term,
            missing: false,
            ranges: Vec::new(),
            since_s: now_s,
        });
        let before = known.clone();
        known.missing |= says_missing(error);
        add(&mut known.ranges, (range.start, range.end));
        *known != before
    }

    /// What is known of an object, or was, is over.
    fn forget(&mut self, at: (PartitionId, ObjectKey)) -> bool {
        self.untold.remove(&at);
        self.known.remove(&at).is_some()
    }

    /// The store has it; true if it was thought to be missing. What of it is damaged is not known then.
    fn is_there(&mut self, key: ObjectKey) -> bool {
        let at = (key.blob.partition(), key);
        self.known.get(&at).is_some_and(|known| known.missing) && self.forget(at)
    }

    /// Bytes `range` were read well; true if it was thought that they could not be.
    fn read_well(&mut self, key: ObjectKey, range: &Range<u64>) -> bool {
        let at = (key.blob.partition(), key);
        let Some(known) = self.known.get_mut(&at) else { return false };
        if known.missing {
            return self.is_there(key);
        }
        let left: Vec<(u64, u64)> = known.ranges.iter().flat_map(|known| without(*known, range)).collect();
        if left == known.ranges {
            return false;
        }
        known.ranges = left;
        if known.ranges.is_empty() {
            self.forget(at);
        }
        true
    }
}

/// The store has no such object; else it is not what was put there.
fn says_missing(error: &Error) -> bool {
    error.kind() == ErrorKind::Stale
}

/// Adds a range to others, which are in order and apart.
fn add(ranges: &mut Vec<(u64, u64)>, (mut from, mut end): (u64, u64)) {
    ranges.retain(|(a, b)| {
        let apart = *b < from || end < *a;
        if !apart {
            (from, end) = (from.min(*a), end.max(*b));
        }
        apart
    });
    let at = ranges.partition_point(|(a, _)| *a < from);
    ranges.insert(at, (from, end));
    while ranges.len() > RANGES_MAX {
        let end = ranges.pop().map_or(0, |(_, end)| end);
        if let Some(before) = ranges.last_mut() {
            before.1 = end;
        }
    }
}

/// What of a range is outside of `range`.
fn without((a, b): (u64, u64), range: &Range<u64>) -> impl Iterator<Item = (u64, u64)> + use<> {
    let parts = if b <= range.start || range.end <= a {
        [(a, b), (0, 0)]
    } else {
        [(a, range.start.max(a)), (range.end.min(b), b)]
    };
    parts.into_iter().filter(|(from, end)| from < end)
}

impl Findings {
    fn record(&self) -> MutexGuard<'_, Record> {
        self.record.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn changed(&self, record: &Record) {
        self.count.store(record.known.len() as u64, Ordering::Release);
        self.changes.fetch_add(1, Ordering::Release);
    }
}

impl HostObjects {
    /// Bytes `range` of the data of an object cannot be had, and that is for sure: `Stale`: the store has no such object;
    /// `Corrupt`: they are not what was put there. The partition decides what of it matters.
    pub(in crate::run) fn found_damage(self: &Arc<Self>, key: ObjectKey, range: Range<u64>, error: &Error) {
        let range = if says_missing(error) { 0..DATA_MAX } else { range };
        let mut record = self.findings.record();
        if !record.found(key, &range, error, wall_ms() / 1_000) {
            return;
        }
        self.findings.changed(&record);
        drop(record);
        // What is here of it says nothing of the store any more.
        self.pieces().forget_all(key);
        tracing::debug!("{}: bytes {range:?} of {} cannot be had: {error}", key.blob.partition(), self.name(key));
        if !self.findings.watched.swap(true, Ordering::AcqRel) {
            let this = Arc::clone(self);
            self.runtime.spawn(async move { this.look_again().await });
        }
    }

    /// Of these objects of `p` it has heard, and it names them: what was found of them becomes events.
    pub(in crate::run) fn tell_damage(&self, p: PartitionId, heard: &BTreeSet<BlobId>) {
        let mut record = self.findings.record();
        let news: Vec<_> = record.untold.extract_if(.., |(of, key), _| *of == p && heard.contains(&key.blob)).collect();
        drop(record);
        for ((_, key), error) in news {
            self.events.damaged(key.store, &self.name(key), says_missing(&error), &error);
            if says_missing(&error) {
                // It may not be the only one.
                self.doubt(key.store);
            }
        }
    }

    /// Bytes `range` of the data of an object were read, and are as they should be.
    pub(in crate::run) fn read_well(&self, key: ObjectKey, range: &Range<u64>) {
        if self.findings.count.load(Ordering::Acquire) == 0 {
            return;
        }
        let mut record = self.findings.record();
        if record.read_well(key, range) {
            tracing::info!("{}: {} can be read again", key.blob.partition(), self.name(key));
            self.findings.changed(&record);
        }
    }

    /// The store has an object.
    pub(in crate::run) fn is_there(&self, key: ObjectKey) {
        let mut record = self.findings.record();
        if record.is_there(key) {
            tracing::info!("{}: {} is there again", key.blob.partition(), self.name(key));
            self.findings.changed(&record);
        }
    }

    /// Counts changes of what was found.
    pub(in crate::run) fn damage_changes(&self) -> u64 {
        self.findings.changes.load(Ordering::Acquire)
    }

    /// What was found of the objects of `p`.
    pub(in crate::run) fn damage_of(&self, p: PartitionId) -> BTreeMap<BlobId, Damaged> {
        let record = self.findings.record();
        let none = ObjectKey { store: StoreId(0), blob: BlobId(0), term: Term(0) };
        let mine = record.known.range((p, none)..).take_while(|((of, _), _)| *of == p);
        mine.map(|((_, key), damaged)| (key.blob, damaged.clone())).collect()
    }

    /// True if nothing more can be noted.
    pub(in crate::run) fn is_damage_full(&self) -> bool {
        self.findings.count.load(Ordering::Acquire) >= OBJECTS_MAX as u64
    }

    /// There is reason to doubt that `store` has its objects, see [`super::doubts`].
    fn doubt(&self, store: StoreId) {
        self.doubts.raise(store);
        self.findings.changes.fetch_add(1, Ordering::Release);
    }

    /// Doubts the stores where the object that keepalives read was gone; true if there was any reason to doubt one since this
    /// was last asked.
    pub(in crate::run) fn hear_of_losses(&self) -> bool {
        for (store, link) in self.links.all() {
            let Some(was_there) = link.take_lost() else { continue };
            self.doubt(store);
            if was_there {
                self.events.doubted(store, "the object that this host reads to see the store was not there", false);
            }
        }
        self.doubts.take_news()
    }

    /// The stores that `p`, which is served here in `term`, may rely on to have its objects.
    pub(in crate::run) fn trusted(&self, p: PartitionId, term: Term) -> BTreeSet<StoreId> {
        self.doubts.trusted(p, term)
    }

    /// See [`super::doubts::Doubts::begin`].
    pub(in crate::run) fn begin_look(&self, at: (PartitionId, StoreId), term: Term) -> Option<Look> {
        self.doubts.begin(at, term, Instant::now())
    }

    /// What came of a look.
    pub(in crate::run) fn end_look(&self, look: &Look, looked: Looked) {
        if self.doubts.end(look, looked, Instant::now()) {
            let (p, store) = look.at;
            self.events.doubted(store, &format!("objects of {p} are missing there"), true);
        }
        self.findings.changes.fetch_add(1, Ordering::Release);
    }

    /// Of the objects of `p` these do not matter any more; none: it is not served here.
    pub(in crate::run) fn forget_damage(&self, p: PartitionId, blobs: Option<&[BlobId]>) {
        let mut record = self.findings.record();
        let before = record.known.len();
        let stays =
            |(of, key): &(PartitionId, ObjectKey)| *of != p || blobs.is_some_and(|blobs| !blobs.contains(&key.blob));
        record.known.retain(|at, _| stays(at));
        record.untold.retain(|at, _| stays(at));
        if record.known.len() != before {
            self.findings.changed(&record);
        }
    }

    /// True if the store lists its objects, and none of this key: a request for one may be answered wrongly, for example
    /// when the whole bucket is away.
    pub(in crate::run) async fn is_missing(&self, key: ObjectKey) -> bool {
        if self.findings.record().known.get(&(key.blob.partition(), key)).is_some_and(|known| known.missing) {
            return true;
        }
        let (Ok(link), name) = (self.link(key).await, self.name(key)) else { return false };
        // All terms of it: a listing may leave out what is named as the prefix is.
        let prefix = name.rsplit_once('/').map_or(name.as_str(), |(prefix, _)| prefix);
        link.list(prefix, None).await.is_ok_and(|listed| listed.iter().all(|listed| listed.key != name))
    }

    /// Looks at what was found again and again, until nothing is left of it.
    async fn look_again(self: Arc<Self>) {
        let (mut last, mut pause, mut seen) = (None, AGAIN, self.damage_changes());
        loop {
            sleep(pause).await;
            // Each look reads what is damaged: seldom, while nothing changes.
            let changes = self.damage_changes();
            pause = if changes == seen { AGAIN_MAX_PAUSE.min(pause * 2) } else { AGAIN };
            seen = changes;
            let some: Vec<((PartitionId, ObjectKey), Damaged)> = {
                let record = self.findings.record();
                if record.known.is_empty() {
                    self.findings.watched.store(false, Ordering::Release);
                    return;
                }
                let behind = record.known.iter().filter(|(at, _)| last.is_none_or(|last| **at > last));
                behind.take(AGAIN_MAX).map(|(at, damaged)| (*at, damaged.clone())).collect()
            };
            last = some.last().map(|(at, _)| *at);
            for ((_, key), damaged) in some {
                if damaged.missing {
                    let Ok(link) = self.link(key).await else { continue };
                    if link.size(&self.name(key)).await.is_ok() {
                        self.is_there(key);
                    }
                    continue;
                }
                for (from, end) in damaged.ranges {
                    // What comes of it is noted where it is read; a piece at a time, so that each is.
                    let mut off = from;
                    while off < end {
                        let len = (end - off).min(CHUNK - off % CHUNK);
                        let _ = self.read(key, off as u32, (len as u32, 0)).await;
                        off += len;
                    }
                }
            }
        }
    }
}

/// The blocks that a check refuses, in `wanted`, one run after the other.
pub(super) fn refused(wanted: &Range<u64>, check: impl Fn(Range<u64>) -> bool) -> Vec<Range<u64>> {
    let block = BLOCK as u64;
    let mut bad: Vec<Range<u64>> = Vec::new();
    let mut at = wanted.start;
    while at < wanted.end {
        let end = (at + block - at % block).min(wanted.end);
        if !check(at..end) {
            match bad.last_mut() {
                Some(last) if last.end == at => last.end = end,
                _ => bad.push(at..end),
            }
        }
        at = end;
    }
    bad
}

#[cfg(test)]
mod tests {
    use braid_base::ids::{BlobId, PartitionId, StoreId, Term};
    use braid_base::msg::job::ObjectKey;
    use braid_base::{Error, ErrorKind};

    use super::{OBJECTS_MAX, RANGES_MAX, Record, add, refused};

    fn key(serial: u64) -> ObjectKey {
        ObjectKey { store: StoreId(1), blob: BlobId::new(PartitionId(3), serial), term: Term(2) }
    }

    fn ranges(record: &Record, serial: u64) -> Vec<(u64, u64)> {
        record.known.get(&(PartitionId(3), key(serial))).map(|known| known.ranges.clone()).unwrap_or_default()
    }

    fn damaged() -> Error {
        Error::new(ErrorKind::Corrupt, "other bytes")
    }

    fn missing() -> Error {
        Error::new(ErrorKind::Stale, "no such object")
    }

    #[test]
    fn what_is_read_well_is_damaged_no_more() {
        let mut record = Record::default();
        assert!(record.found(key(1), &(0..100), &damaged(), 7) && record.untold.len() == 1);
        assert!(!record.found(key(1), &(20..30), &damaged(), 8), "that is known");
        record.untold.clear();
        assert!(record.found(key(1), &(200..300), &damaged(), 9));
        assert!(record.untold.is_empty(), "an object is told once");
        assert!(!record.read_well(key(1), &(100..200)));
        assert!(record.read_well(key(1), &(50..250)));
        assert_eq!(ranges(&record, 1), [(0, 50), (250, 300)]);
        assert!(record.read_well(key(1), &(0..250)) && record.read_well(key(1), &(250..300)));
        assert!(record.known.is_empty() && !record.read_well(key(1), &(0..1)));
        assert!(record.found(key(2), &(0..1_000), &missing(), 7) && record.read_well(key(2), &(5..6)));
        assert!(record.known.is_empty() && record.untold.is_empty(), "one byte of it shows that it is there");
    }

    #[test]
    fn it_is_bounded() {
        let mut record = Record::default();
        for serial in 1..=OBJECTS_MAX as u64 {
            assert!(record.found(key(serial), &(0..1), &damaged(), 7));
        }
        assert!(!record.found(key(1 << 40), &(0..1), &damaged(), 7));
        assert!(record.found(key(1), &(1..2), &damaged(), 7));
        let mut many = Vec::new();
        for n in 0..2 * RANGES_MAX as u64 {
            add(&mut many, (10 * n, 10 * n + 1));
        }
        assert_eq!((many.len(), many.last().map(|(_, end)| *end)), (RANGES_MAX, Some(20 * RANGES_MAX as u64 - 9)));
        add(&mut many, (0, 11));
        assert_eq!((many.len(), many[0]), (RANGES_MAX - 1, (0, 11)), "those that touch are one");
    }

    #[test]
    fn blocks_that_are_refused_are_named() {
        let bad = |at: std::ops::Range<u64>| ![1, 2, 4].contains(&(at.start / 4096));
        assert_eq!(refused(&(100..5 * 4096), bad), [4096..3 * 4096, 4 * 4096..5 * 4096]);
        assert_eq!(refused(&(4100..4200), bad), vec![4100..4200; 1]);
        assert!(refused(&(0..4096), bad).is_empty());
    }
}
