//! Remembers where the bytes of files are, so that a read need not ask the partition each time.
//!
//! Why this is safe: what another client changes, it changes after the lease on the file was recalled here, which
//! forgets the file; without a lease that counts nothing is kept or used (`fs/data.rs`). The changes of this client
//! pass through one `Fs`, which announces each of them here before it is sent and after it is answered. A layout is
//! kept only if no change of its file was under way between question and answer. Bytes that merely moved (destage,
//! garbage collection) are found through an old pointer as long as it answers, because packs are written once and pack
//! ids are never reused.
//!
//! Where cold data leaves flash the partition says for how long a layout may be used: it has to hear of reads, and what
//! is in an object may come back. One that was asked for without wanting that is of no use to who wants it.
//!
//! 1. ask: [`Layouts::asking`], then the partition, then [`Layouts::keep`];
//! 2. change: [`Layouts::change`], then the partition, then [`Change::done`] with what was touched. Of a file
//!    that was changed in a way that nobody knows (no answer, caller gone) nothing is remembered for a while.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard};

use braid_base::attr::Attr;
use braid_base::ids::Ino;
use braid_base::limits::{CHUNK, DOUBT_MS};
use braid_base::msg::fs::Layout;
use braid_base::record::{Extent, Place};

use crate::doubts::Doubts;
use crate::wire::Wire;

/// Memory for remembered layouts, bytes: 64 MiB hold the extents of about a million stripes, that is 1 TiB of
/// files written in large pieces.
const CACHE_BYTES: usize = 64 << 20;
/// A file that was changed so long ago is likely to be changed again before a layout of it could be used twice,
/// milliseconds: more than a layout takes to come, less than programs take that write now and then.
const BUSY_MS: u64 = 10;
/// Files share this many change counters; two of one counter only make each other ask once more.
const SLOTS: usize = 1024;

/// The cache.
pub(crate) struct Layouts {
    wire: Arc<dyn Wire>,
    held: Mutex<Held>,
}

struct Held {
    slots: Vec<Slot>,
    files: HashMap<Ino, File>,
    /// Chunks in the order of their arrival, for eviction.
    order: VecDeque<(Ino, u64, u64)>,
    stamp: u64,
    chunks: usize,
    cost: usize,
    doubts: Doubts<Ino>,
}

#[derive(Clone, Copy, Default)]
struct Slot {
    generation: u64,
    under_way: u32,
    /// When a change began or ended last, milliseconds; none yet.
    changed_ms: Option<u64>,
}

/// What is known of one file; never without a chunk.
struct File {
    size: u64,
    /// [`Attr::change`] that `size` is of; 0 if it came with a layout.
    change: u64,
    chunks: BTreeMap<u64, Chunk>,
}

struct Chunk {
    stamp: u64,
    cost: usize,
    /// To be used before then, milliseconds; none: for ever.
    until_ms: Option<u64>,
    /// What of it is in objects only does not come back because of it.
    stays_out: bool,
    layout: Arc<Layout>,
}

impl Chunk {
    fn serves(&self, now_ms: u64, recall: bool) -> bool {
        self.until_ms.is_none_or(|until_ms| now_ms < until_ms) && !(recall && self.stays_out)
    }
}

/// A layout is being asked for.
#[derive(Clone, Copy)]
pub(crate) struct Asking {
    ino: Ino,
    generation: Option<u64>,
    /// A change began or ended a moment ago.
    is_busy: bool,
    at_ms: u64,
    recall: bool,
}

impl Asking {
    /// True if the answer is worth to be remembered: no change of the file is under way, or was a moment ago.
    pub(crate) fn may_keep(&self) -> bool {
        self.generation.is_some() && !self.is_busy
    }
}

/// A change is under way; dropped without a verdict, its outcome counts as unknown.
pub(crate) struct Change<'a> {
    of: &'a Layouts,
    ino: Ino,
    settled: bool,
}

impl Layouts {
    pub(crate) fn new(wire: Arc<dyn Wire>) -> Self {
        let held = Held {
            slots: vec![Slot::default(); SLOTS],
            files: HashMap::new(),
            order: VecDeque::new(),
            stamp: 0,
            chunks: 0,
            cost: 0,
            doubts: Doubts::default(),
        };
        Self { wire, held: Mutex::new(held) }
    }

    /// The size of `ino` and the layouts of its chunks that hold `[off, off+len)`, if all are known. `recall`: what is in
    /// objects only is to come back.
    pub(crate) fn find(&self, ino: Ino, off: u64, len: u64, recall: bool) -> Option<(u64, Vec<Arc<Layout>>)> {
        let now = self.wire.now_ms();
        let held = self.held();
        let file = held.files.get(&ino).filter(|_| !held.doubts.is_about(ino, now))?;
        let end = off.saturating_add(len).min(file.size);
        if off >= end {
            return Some((file.size, Vec::new()));
        }
        let wanted = off / CHUNK..=(end - 1) / CHUNK;
        let known = |chunk| file.chunks.get(&chunk).filter(|chunk| chunk.serves(now, recall));
        let chunks = wanted.map(|chunk| Some(Arc::clone(&known(chunk)?.layout)));
        Some((file.size, chunks.collect::<Option<_>>()?))
    }

    /// To be called before a layout is asked for; with `recall`, if that is.
    pub(crate) fn asking(&self, ino: Ino, recall: bool) -> Asking {
        let now = self.wire.now_ms();
        let held = self.held();
        let slot = held.slots[slot_of(ino)];
        let quiet = slot.under_way == 0 && !held.doubts.is_about(ino, now);
        let is_busy = slot.changed_ms.is_some_and(|changed_ms| now < changed_ms + BUSY_MS);
        Asking { ino, generation: quiet.then_some(slot.generation), is_busy, at_ms: now, recall }
    }

    /// Remembers the layout of chunk number `first` and those after it, unless something changed since `asking`.
    pub(crate) fn keep(&self, asking: Asking, size: u64, first: u64, chunks: &[Arc<Layout>]) {
        let mut held = self.held();
        let slot = held.slots[slot_of(asking.ino)];
        if slot.under_way > 0 || asking.generation != Some(slot.generation) {
            return;
        }
        for (number, layout) in (first..).zip(chunks) {
            held.put(asking, number, size, layout);
        }
        while held.cost > CACHE_BYTES {
            let Some((ino, number, stamp)) = held.order.pop_front() else { break };
            held.take(ino, number, Some(stamp));
        }
    }

    /// To be called before a change of `ino` is sent.
    pub(crate) fn change(&self, ino: Ino) -> Change<'_> {
        let now = self.wire.now_ms();
        let slot = &mut self.held().slots[slot_of(ino)];
        slot.generation += 1;
        slot.under_way += 1;
        slot.changed_ms = Some(now);
        Change { of: self, ino, settled: false }
    }

    /// Forgets the chunks of `ino` that hold `[off, off+len)`: a pointer in them led nowhere.
    pub(crate) fn forget(&self, ino: Ino, off: u64, len: u64) {
        self.held().drop_range(ino, off, len);
    }

    /// Forgets all of `ino`, and what was asked until now: another client is about to change it.
    pub(crate) fn forget_file(&self, ino: Ino) {
        let mut held = self.held();
        held.slots[slot_of(ino)].generation += 1;
        held.drop_range(ino, 0, u64::MAX);
    }

    fn held(&self) -> MutexGuard<'_, Held> {
        self.held.lock().expect("nothing panics while it holds the layouts")
    }
}

impl<'a> Change<'a> {
    /// The change was answered: bytes `[off, off+len)` were touched, and `attr` is what the file looks like now.
    pub(crate) fn done(mut self, off: u64, len: u64, attr: &Attr) {
        let mut held = self.settle();
        held.drop_range(self.ino, off, len);
        if let Some(file) = held.files.get_mut(&self.ino)
            && attr.change > file.change
        {
            (file.size, file.change) = (attr.size, attr.change);
        }
    }

    /// The change was refused: nothing happened.
    pub(crate) fn refused(mut self) {
        drop(self.settle());
    }

    fn settle(&mut self) -> MutexGuard<'a, Held> {
        self.settled = true;
        let now = self.of.wire.now_ms();
        let mut held = self.of.held();
        let slot = &mut held.slots[slot_of(self.ino)];
        slot.generation += 1;
        slot.under_way -= 1;
        slot.changed_ms = Some(now);
        held
    }
}

impl Drop for Change<'_> {
    fn drop(&mut self) {
        if !self.settled {
            let now = self.of.wire.now_ms();
            let mut held = self.settle();
            held.doubts.tidy(now);
            held.doubts.add(Some(&[self.ino]), now + DOUBT_MS);
            held.drop_range(self.ino, 0, u64::MAX);
        }
    }
}

impl Held {
    fn put(&mut self, asking: Asking, number: u64, size: u64, layout: &Arc<Layout>) {
        let ino = asking.ino;
        self.take(ino, number, None);
        self.stamp += 1;
        let (stamp, cost) = (self.stamp, cost_of(layout));
        if self.files.get(&ino).is_some_and(|file| file.size != size) {
            // No change of ours was under way: another process changed the file, and nothing of it can be trusted.
            self.drop_range(ino, 0, u64::MAX);
        }
        let file = self.files.entry(ino).or_insert_with(|| File { size, change: 0, chunks: BTreeMap::new() });
        let until_ms = (layout.fresh_ms > 0).then(|| asking.at_ms.saturating_add(layout.fresh_ms.into()));
        let is_out = |(_, extent): &(u64, Extent)| matches!(extent.place, Place::Object(_));
        let stays_out = !asking.recall && layout.extents.iter().any(is_out);
        file.chunks.insert(number, Chunk { stamp, cost, until_ms, stays_out, layout: Arc::clone(layout) });
        self.cost += cost;
        self.chunks += 1;
        self.order.push_back((ino, number, stamp));
        self.tidy_order();
    }

    /// Removes a chunk (only the one of `stamp`, if given), and its file with its last one.
    fn take(&mut self, ino: Ino, number: u64, stamp: Option<u64>) {
        let Some(file) = self.files.get_mut(&ino) else { return };
        if file.chunks.get(&number).is_some_and(|chunk| stamp.is_none_or(|stamp| stamp == chunk.stamp)) {
            let gone = file.chunks.remove(&number).map_or(0, |chunk| chunk.cost);
            self.cost -= gone;
            self.chunks -= 1;
            if file.chunks.is_empty() {
                self.files.remove(&ino);
            }
        }
    }

    fn drop_range(&mut self, ino: Ino, off: u64, len: u64) {
        let Some(file) = self.files.get(&ino).filter(|_| len > 0) else { return };
        let last = (off.saturating_add(len) - 1) / CHUNK;
        let numbers: Vec<u64> = file.chunks.range(off / CHUNK..=last).map(|(number, _)| *number).collect();
        for number in numbers {
            self.take(ino, number, None);
        }
    }

    /// Entries of chunks long gone would make `order` grow for ever: throws them out once they are the majority.
    fn tidy_order(&mut self) {
        if self.order.len() > 64 + 2 * self.chunks {
            let Self { order, files, .. } = self;
            order.retain(|(ino, number, stamp)| {
                files.get(ino).and_then(|file| file.chunks.get(number)).is_some_and(|chunk| chunk.stamp == *stamp)
            });
        }
    }
}

fn slot_of(ino: Ino) -> usize {
    // Sequence numbers of one virtual partition follow each other: the multiplication spreads both halves.
    (ino.0.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 54) as usize % SLOTS
}

fn cost_of(layout: &Layout) -> usize {
    let packs: usize = layout.packs.iter().map(|(_, placement)| 64 + 4 * placement.drives.len()).sum();
    let inline: usize = layout.inline.iter().map(|(_, bytes)| 64 + bytes.len()).sum();
    256 + 48 * layout.extents.len() + packs + inline
}

/// Cuts the layout of `[first * CHUNK, ..)` into one of each of `count` chunks.
pub(crate) fn by_chunk(layout: &Layout, first: u64, count: u64) -> Vec<Arc<Layout>> {
    (first..first + count)
        .map(|number| {
            let (from, to) = (number * CHUNK, (number + 1) * CHUNK);
            let inside = |at: u64| (from..to).contains(&at);
            let extents: Vec<_> = layout.extents.iter().filter(|(at, _)| inside(*at)).copied().collect();
            let names = |pack| {
                extents.iter().any(|(_, e)| matches!(e.place, Place::Flash { stripe, .. } if stripe.pack == pack))
            };
            let packs = layout.packs.iter().filter(|(pack, _)| names(*pack)).cloned().collect();
            let inline = layout.inline.iter().filter(|(at, _)| inside(*at)).cloned().collect();
            Arc::new(Layout { size: layout.size, extents, packs, inline, fresh_ms: layout.fresh_ms })
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU64, Ordering};

    use braid_base::ids::{BlobId, DriveId, Ino, PartitionId};
    use braid_base::limits::CHUNK;
    use braid_base::msg::drive::{DriveOp, DriveResult};
    use braid_base::msg::fs::{Layout, Request};
    use braid_base::msg::lease::Answer;
    use braid_base::record::{Extent, ObjectAt, Place};

    use super::{BUSY_MS, DOUBT_MS, Layouts, by_chunk};
    use crate::wire::{BoxFuture, Wire};

    const INO: Ino = Ino(7);

    /// A clock, and nobody to ask.
    #[derive(Default)]
    struct Clock(AtomicU64);

    impl Wire for Clock {
        fn partition(&self, _: PartitionId, _: Request) -> BoxFuture<Answer> {
            Box::pin(std::future::pending())
        }

        fn drive(&self, _: DriveId, _: DriveOp) -> BoxFuture<DriveResult> {
            Box::pin(std::future::pending())
        }

        fn sleep_ms(&self, _: u64) -> BoxFuture<()> {
            Box::pin(std::future::pending())
        }

        fn partitions(&self) -> u16 {
            1
        }

        fn now_ms(&self) -> u64 {
            self.0.load(Ordering::Relaxed)
        }
    }

    /// The second chunk is in an object only.
    fn layout(fresh_ms: u32) -> Layout {
        let at = ObjectAt { blob: BlobId::new(PartitionId(0), 1), off: 0 };
        let extent = Extent { off: 0, len: 4096, place: Place::Object(at) };
        Layout { size: 2 * CHUNK, extents: vec![(CHUNK, extent)], fresh_ms, ..Layout::default() }
    }

    #[test]
    fn a_layout_holds_as_long_as_the_partition_says() {
        let clock = Arc::new(Clock::default());
        let layouts = Layouts::new(Arc::clone(&clock) as Arc<dyn Wire>);
        let asking = layouts.asking(INO, true);
        layouts.keep(asking, 2 * CHUNK, 0, &by_chunk(&layout(0), 0, 1));
        clock.0.store(10, Ordering::Relaxed);
        let asking = layouts.asking(INO, true);
        clock.0.store(500, Ordering::Relaxed);
        layouts.keep(asking, 2 * CHUNK, 1, &by_chunk(&layout(1_000), 1, 1));
        clock.0.store(1_009, Ordering::Relaxed);
        assert!(layouts.find(INO, 0, 2 * CHUNK, true).is_some());
        clock.0.store(1_010, Ordering::Relaxed);
        assert!(layouts.find(INO, CHUNK, 1, true).is_none() && layouts.find(INO, CHUNK, 1, false).is_none());
        assert!(layouts.find(INO, 0, 1, true).is_some(), "each chunk for itself");
    }

    #[test]
    fn a_layout_is_kept_but_while_its_file_is_written_to() {
        let clock = Arc::new(Clock::default());
        let layouts = Layouts::new(Arc::clone(&clock) as Arc<dyn Wire>);
        assert!(layouts.asking(INO, true).may_keep());
        let change = layouts.change(INO);
        clock.0.store(BUSY_MS, Ordering::Relaxed);
        assert!(!layouts.asking(INO, true).may_keep(), "it is under way");
        change.refused();
        assert!(!layouts.asking(INO, true).may_keep(), "it was a moment ago");
        clock.0.store(2 * BUSY_MS, Ordering::Relaxed);
        assert!(layouts.asking(INO, true).may_keep());
    }

    #[test]
    fn a_change_that_nobody_knows_about_takes_its_own_file_only() {
        let clock = Arc::new(Clock::default());
        let layouts = Layouts::new(Arc::clone(&clock) as Arc<dyn Wire>);
        let keep = |ino| layouts.keep(layouts.asking(ino, true), 2 * CHUNK, 0, &by_chunk(&layout(0), 0, 2));
        let is_there = |ino| layouts.find(ino, 0, CHUNK, true).is_some();
        let other = Ino(8);
        [INO, other].into_iter().for_each(keep);
        drop(layouts.change(INO));
        assert!(!is_there(INO) && is_there(other));
        clock.0.store(DOUBT_MS - 1, Ordering::Relaxed);
        keep(INO);
        assert!(!is_there(INO) && !layouts.asking(INO, true).may_keep(), "it may be changed yet");
        clock.0.store(DOUBT_MS, Ordering::Relaxed);
        keep(INO);
        assert!(is_there(INO));
    }

    #[test]
    fn what_was_not_to_come_back_is_asked_for_again_by_who_wants_it() {
        let layouts = Layouts::new(Arc::new(Clock::default()));
        layouts.keep(layouts.asking(INO, false), 2 * CHUNK, 0, &by_chunk(&layout(60_000), 0, 2));
        assert!(layouts.find(INO, 0, 2 * CHUNK, false).is_some());
        assert!(layouts.find(INO, CHUNK, 1, true).is_none());
        assert!(layouts.find(INO, 0, 1, true).is_some(), "nothing of that is in an object");
        layouts.keep(layouts.asking(INO, true), 2 * CHUNK, 0, &by_chunk(&layout(60_000), 0, 2));
        assert!(layouts.find(INO, CHUNK, 1, true).is_some() && layouts.find(INO, CHUNK, 1, false).is_some());
    }
}
