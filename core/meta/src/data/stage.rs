//! What is not merged yet: the slices of table 14 in memory, exact at all times.
//!
//! What a chunk holds is read from here and not from the table: a scan would look for each slice anew, and the engine
//! keeps a trace of those that were deleted. It decides which log segments may go, when destage starts and which chunks
//! it takes. Slices on flash (direct writes) have nothing to move, but are merged in their turn like the others.

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, VecDeque};
use std::ops::{Bound, Range};

use braid_base::ids::{Chunk, FsId, Index, Ino, Layer, PartitionId};
use braid_base::keys::{self, Table};
use braid_base::limits::{
    CALM_MS, CLEANUP_KEYS_MAX, CROWDED_MS, DESTAGE_AGE_BUSY, DESTAGE_AGE_MS, DESTAGE_START_BYTES, SLICE_COST_BYTES,
    SLICES_PER_CHUNK_MAX, SLICES_PER_CHUNK_URGENT, STAGE_CAP_BYTES,
};
use braid_base::record::{Extent, Place, Record, SliceRec};
use braid_base::{Error, ErrorKind, Result};
use braid_replica::kv::Kv;

use crate::data::chunk::{ChunkId, FileId};

/// When destage starts, and when writes are held back.
#[derive(Clone, Copy, Debug)]
pub struct StageLimits {
    /// Bytes (with [`SLICE_COST_BYTES`] per slice) above which writes are held back.
    pub cap_bytes: u64,
    /// Bytes above which destage starts at once.
    pub start_bytes: u64,
    /// Age in milliseconds above which a slice is destaged, while nothing more is written; [`DESTAGE_AGE_BUSY`] times
    /// that else.
    pub age_ms: u64,
}

impl Default for StageLimits {
    fn default() -> Self {
        Self { cap_bytes: STAGE_CAP_BYTES, start_bytes: DESTAGE_START_BYTES, age_ms: DESTAGE_AGE_MS }
    }
}

/// A slice: position, sub-number, what it put.
pub(crate) type Slice = (Index, u16, Extent);

/// The slices of one chunk.
#[derive(Clone, Debug, Default)]
struct Pile {
    /// In log order.
    slices: VecDeque<Slice>,
    /// Those that point to flash.
    laid: u32,
    bytes: u64,
}

impl Pile {
    /// Where the slice with this position and number is, or would be.
    fn find(&self, key: (Index, u16)) -> std::result::Result<usize, usize> {
        if self.slices.back().is_none_or(|(at, sub, _)| (*at, *sub) < key) {
            return Err(self.slices.len());
        }
        self.slices.binary_search_by_key(&key, |(at, sub, _)| (*at, *sub))
    }
}

/// The slices of one entry.
#[derive(Default)]
struct Refs {
    slices: u32,
    /// Where they are, or were; a chunk may be there more than once.
    chunks: Vec<ChunkId>,
}

/// The index.
#[derive(Default)]
pub(crate) struct Stage {
    /// What refers to each log position. Its first key is the oldest position in use.
    live: BTreeMap<Index, Refs>,
    /// Slices by chunk, in file order.
    piles: BTreeMap<ChunkId, Pile>,
    /// Chunks with too many slices, and since when.
    crowded: BTreeMap<ChunkId, u64>,
    bytes: u64,
    /// The same by file system.
    of_fs: BTreeMap<FsId, u64>,
    slices: u64,
    /// Slices that were added and removed so far.
    changes: u64,
    /// Entries that take slices away and are not committed: entry, oldest position it takes. Until then a
    /// successor of this primary may still need the bytes.
    leaving: VecDeque<(Index, Index)>,
    /// First position written at some millisecond, ascending: tells ages.
    marks: VecDeque<(Index, u64)>,
    /// True from the first [`Stage::began`] on.
    has_begun: bool,
    /// Entries whose payload nothing refers to any more, since [`Stage::take_gone`].
    gone: Vec<Index>,
    /// Destage everything older than this (the log wants to drop segments).
    pub below: Index,
    /// When to start and when to hold back.
    pub limits: StageLimits,
}

/// Bytes of a slice that only the log holds.
fn staged_len(extent: &Extent) -> u64 {
    match extent.place {
        Place::Stage { .. } => u64::from(extent.len),
        Place::Flash { .. } | Place::Object(_) => 0,
    }
}

/// Least distance of two age marks, milliseconds.
const MARK_MS: u64 = 100;
/// Most entries remembered as gone: what is beyond is forgotten by age.
const GONE_MAX: usize = 1 << 16;
/// Most age marks: an hour and a half without any destage; what comes after counts as older than it is.
const MARKS_MAX: usize = 1 << 16;

impl Stage {
    /// Reads table 14.
    pub fn load(p: PartitionId, kv: &dyn Kv) -> Result<Self> {
        let mut stage = Self::default();
        let mut bad = None;
        let prefix = keys::table(p, Table::Slice);
        kv.scan(&prefix, &keys::prefix_end(&prefix), &mut |key, value| {
            match (keys::parse_slice(key), SliceRec::decode(value)) {
                (Some((fs, ino, chunk, layer, at, sub)), Ok(SliceRec(extent))) => {
                    stage.add(FileId { fs, ino, layer }.chunk(chunk), (at, sub, extent), 0);
                }
                (_, Err(error)) => bad = Some(error),
                (None, _) => bad = Some(Error::new(ErrorKind::Corrupt, "slice: the key has a wrong length")),
            }
            bad.is_none()
        })?;
        stage.marks.clear();
        bad.map_or(Ok(stage), Err)
    }

    /// The primary has begun, if this is the first time that it says so. How old what it found is, nobody knows: it counts
    /// as written now, so that what comes after a fail-over or a start is not held up by moves that nobody waits for.
    pub fn began(&mut self, now_ms: u64) {
        if !std::mem::replace(&mut self.has_begun, true) {
            self.marks.push_front((Index(0), now_ms));
        }
    }

    /// A slice was written. As in the table one of the same position and number takes the place of the first.
    pub fn add(&mut self, chunk: ChunkId, slice: Slice, now_ms: u64) {
        let (at, sub, extent) = slice;
        let mut pile = self.piles.entry(chunk).or_default();
        let place = match pile.find((at, sub)) {
            Err(place) => place,
            Ok(place) => {
                self.remove(chunk, (at, sub), at);
                pile = self.piles.entry(chunk).or_default();
                place
            }
        };
        pile.slices.insert(place, slice);
        if pile.slices.len() > SLICES_PER_CHUNK_MAX {
            self.crowded.entry(chunk).or_insert(now_ms);
        }
        let staged = staged_len(&extent);
        pile.bytes += staged;
        pile.laid += u32::from(staged == 0);
        let refs = self.live.entry(at).or_default();
        refs.slices += 1;
        refs.chunks.push(chunk);
        self.bytes += staged;
        *self.of_fs.entry(chunk.file.fs).or_default() += staged;
        self.slices += 1;
        self.changes += 1;
        if self.marks.len() < MARKS_MAX && self.marks.back().is_none_or(|(_, then)| now_ms >= then + MARK_MS) {
            self.marks.push_back((at, now_ms));
        }
    }

    /// A slice was deleted by entry `by`.
    pub fn remove(&mut self, chunk: ChunkId, (at, sub): (Index, u16), by: Index) {
        let Some(pile) = self.piles.get(&chunk) else { return };
        let Ok(place) = pile.find((at, sub)) else { return };
        self.remove_all(chunk, place..place + 1, by);
    }

    /// Those of `chunk` up to position `upto` were deleted by entry `by`.
    pub fn remove_upto(&mut self, chunk: ChunkId, upto: Index, by: Index) {
        let Some(pile) = self.piles.get(&chunk) else { return };
        self.remove_all(chunk, 0..pile.slices.partition_point(|(at, ..)| *at <= upto), by);
    }

    fn remove_all(&mut self, chunk: ChunkId, places: Range<usize>, by: Index) {
        let Some(pile) = self.piles.get_mut(&chunk) else { return };
        let gone: Vec<(Index, u64)> =
            pile.slices.drain(places).map(|(at, _, extent)| (at, staged_len(&extent))).collect();
        for (_, len) in &gone {
            pile.bytes -= len;
            pile.laid -= u32::from(*len == 0);
        }
        if pile.slices.len() <= SLICES_PER_CHUNK_MAX {
            self.crowded.remove(&chunk);
        }
        if pile.slices.is_empty() {
            self.piles.remove(&chunk);
        }
        gone.into_iter().for_each(|(at, len)| self.forget(chunk.file.fs, at, len, by));
    }

    /// A slice of `fs`, which put `len` bytes into the log at `at`, is not in its pile any more.
    fn forget(&mut self, fs: FsId, at: Index, len: u64, by: Index) {
        let Entry::Occupied(mut refs) = self.live.entry(at) else { return };
        refs.get_mut().slices -= 1;
        if refs.get().slices == 0 {
            refs.remove();
            if len > 0 && self.gone.len() < GONE_MAX {
                self.gone.push(at);
            }
        }
        self.bytes -= len;
        if let Some(held) = self.of_fs.get_mut(&fs) {
            *held -= len;
        }
        self.slices -= 1;
        self.changes += 1;
        match self.leaving.back_mut() {
            Some((entry, oldest)) if *entry == by => *oldest = at.min(*oldest),
            _ => self.leaving.push_back((by, at)),
        }
    }

    /// Everything up to `upto` is committed.
    pub fn committed(&mut self, upto: Index) {
        while self.leaving.front().is_some_and(|(entry, _)| *entry <= upto) {
            self.leaving.pop_front();
        }
        let oldest = self.oldest_live().unwrap_or(upto);
        while self.marks.get(1).is_some_and(|(at, _)| *at <= oldest) {
            self.marks.pop_front();
        }
    }

    /// Entries whose payload nothing refers to any more, since the last call. Not committed yet, and perhaps not all:
    /// good for a cache to know, not for the log.
    pub fn take_gone(&mut self) -> Vec<Index> {
        std::mem::take(&mut self.gone)
    }

    /// Slices that were added and removed so far.
    pub fn changes(&self) -> u64 {
        self.changes
    }

    /// True if nothing was written lately.
    pub fn is_calm(&self, now_ms: u64) -> bool {
        self.marks.back().is_none_or(|(_, then)| now_ms >= then + CALM_MS)
    }

    fn oldest_live(&self) -> Option<Index> {
        self.live.keys().next().copied()
    }

    /// The oldest position whose payload a slice refers to, in the present or in any state that a crash now could
    /// bring back.
    pub fn oldest(&self) -> Option<Index> {
        self.leaving.iter().map(|(_, at)| *at).chain(self.oldest_live()).min()
    }

    /// Staged bytes.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Those of `fs`.
    pub fn bytes_of(&self, fs: FsId) -> u64 {
        self.of_fs.get(&fs).copied().unwrap_or(0)
    }

    /// True if a chunk of `fs` has a slice.
    pub fn holds(&self, fs: FsId) -> bool {
        let first = FileId { fs, ino: Ino(0), layer: Layer(0) }.chunk(Chunk(0));
        self.piles.range(first..).next().is_some_and(|(chunk, _)| chunk.file.fs == fs)
    }

    /// Staged bytes with what each slice costs beside them.
    pub fn cost(&self) -> u64 {
        self.bytes + self.slices * SLICE_COST_BYTES
    }

    /// True if the chunk has a slice.
    pub fn has(&self, chunk: ChunkId) -> bool {
        self.piles.contains_key(&chunk)
    }

    /// The slices of the chunk from position `first` on, in log order.
    pub fn slices(&self, chunk: ChunkId, first: Index) -> impl Iterator<Item = &Slice> {
        let slices = self.piles.get(&chunk).map(|pile| &pile.slices);
        slices.into_iter().flat_map(move |slices| slices.range(slices.partition_point(|(at, ..)| *at < first)..))
    }

    /// The slices of `file`, chunk by chunk.
    pub fn slices_of(&self, file: FileId) -> impl Iterator<Item = (ChunkId, Slice)> + '_ {
        let piles = self.piles.range(file.chunk(Chunk(0))..=file.chunk(Chunk(u32::MAX)));
        piles.flat_map(|(chunk, pile)| pile.slices.iter().map(|slice| (*chunk, *slice)))
    }

    /// At most `limit` chunks behind `last` with slices that point to flash, in order.
    pub fn laid_after(&self, last: Option<ChunkId>, limit: usize) -> Vec<ChunkId> {
        let from = last.map_or(Bound::Unbounded, Bound::Excluded);
        let laid = self.piles.range((from, Bound::Unbounded)).filter(|(_, pile)| pile.laid > 0);
        laid.map(|(chunk, _)| *chunk).take(limit).collect()
    }

    /// Chunks of `file` in `[from, to]` with slices, in order, and their staged bytes.
    pub fn of_file(&self, file: FileId, (from, to): (Chunk, Chunk)) -> impl Iterator<Item = (ChunkId, u64)> + '_ {
        self.piles.range(file.chunk(from)..=file.chunk(to)).map(|(chunk, pile)| (*chunk, pile.bytes))
    }

    /// Chunks with slices at positions up to `upto`, oldest first; a chunk may come more than once.
    pub fn by_age(&self, upto: Index) -> impl Iterator<Item = ChunkId> + '_ {
        let has = |chunk: &ChunkId, at: Index| {
            self.piles.get(chunk).and_then(|pile| pile.slices.front()).is_some_and(|(oldest, ..)| *oldest <= at)
        };
        self.live
            .range(..=upto)
            .flat_map(move |(at, refs)| refs.chunks.iter().filter(move |chunk| has(chunk, *at)).copied())
    }

    /// Slices up to this position ought to go to flash now; `None`: nothing is pressing.
    pub fn due(&self, now_ms: u64, committed: Index) -> Option<Index> {
        let oldest = self.oldest_live()?;
        if self.cost() > self.limits.start_bytes {
            return Some(committed);
        }
        let age_ms = self.limits.age_ms * if self.is_calm(now_ms) { 1 } else { DESTAGE_AGE_BUSY };
        let half = self.older_than(now_ms, age_ms / 2);
        let due = if self.older_than(now_ms, age_ms) >= Some(oldest) { half } else { None };
        let pressed = Some(Index(self.below.0.saturating_sub(1)));
        due.max(pressed).filter(|upto| *upto >= oldest)
    }

    /// The newest position that was surely written `age_ms` ago.
    fn older_than(&self, now_ms: u64, age_ms: u64) -> Option<Index> {
        let young = self.marks.iter().find(|(_, then)| then + age_ms > now_ms);
        match young {
            Some((at, _)) => at.0.checked_sub(1).map(Index),
            None => Some(Index(u64::MAX)),
        }
    }

    /// Chunks with far too many slices, and those that have had too many for too long.
    pub fn crowded(&self, now_ms: u64) -> (Vec<ChunkId>, Vec<ChunkId>) {
        let urgent = |chunk| self.piles.get(chunk).is_some_and(|pile| pile.slices.len() > SLICES_PER_CHUNK_URGENT);
        let (mut first, mut last) = (Vec::new(), Vec::new());
        for (chunk, since) in self.crowded.iter().take(CLEANUP_KEYS_MAX) {
            if urgent(chunk) {
                first.push(*chunk);
            } else if since + CROWDED_MS <= now_ms {
                last.push(*chunk);
            }
        }
        (first, last)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use braid_base::ids::PackId;
    use braid_base::record::StripeAt;

    fn chunk(number: u32) -> ChunkId {
        FileId::first(FsId(1), Ino(2)).chunk(Chunk(number))
    }

    fn staged(at: u64) -> Slice {
        (Index(at), 0, Extent { off: 0, len: 4096, place: Place::Stage { at: Index(at), poff: 0 } })
    }

    #[test]
    fn staged_bytes_grow_older_while_more_are_written() {
        let mut stage = Stage::default();
        let second = |s: u64| s * 1_000;
        for s in 0..=70 {
            stage.add(chunk(0), staged(s + 1), second(s));
            let due = stage.due(second(s), Index(s + 1)).is_some();
            assert_eq!(due, s >= DESTAGE_AGE_BUSY * DESTAGE_AGE_MS / 1_000, "after {s} s");
        }
        let mut stage = Stage::default();
        stage.add(chunk(0), staged(1), 0);
        stage.add(chunk(0), staged(2), second(9));
        assert_eq!(stage.due(second(9) + CALM_MS - 1, Index(2)), None);
        assert_eq!(stage.due(second(9) + CALM_MS, Index(2)), Some(Index(1)), "the young one waits");
    }

    #[test]
    fn what_an_earlier_primary_staged_is_as_old_as_the_next_one() {
        let mut stage = Stage::default();
        stage.add(chunk(0), staged(1), 0);
        stage.marks.clear(); // as after a load
        let begin = 1_000_000;
        stage.began(begin);
        stage.began(begin + DESTAGE_AGE_MS - 1);
        assert_eq!(stage.due(begin + DESTAGE_AGE_MS - 1, Index(1)), None);
        assert!(stage.due(begin + DESTAGE_AGE_MS, Index(1)).is_some());
    }

    #[test]
    fn a_payload_is_gone_with_its_last_slice() {
        let mut stage = Stage::default();
        let stripe = StripeAt { pack: PackId::new(PartitionId(0), 1), sb: 0, ul: 1 };
        let flash = Extent { off: 0, len: 4096, place: Place::Flash { stripe, delta: 0, copy: None } };
        for (number, slice) in [(0, staged(5)), (1, staged(5)), (2, (Index(6), 0, flash))] {
            stage.add(chunk(number), slice, 0);
        }
        stage.remove(chunk(0), (Index(5), 0), Index(9));
        stage.remove(chunk(2), (Index(6), 0), Index(9));
        assert_eq!(stage.take_gone(), [], "one still refers to it, and of the other nothing was staged");
        stage.remove(chunk(1), (Index(5), 0), Index(9));
        assert_eq!((stage.take_gone(), stage.take_gone()), (vec![Index(5)], vec![]));
    }

    #[test]
    fn the_slices_of_a_chunk_are_in_log_order() {
        let mut stage = Stage::default();
        for (at, sub) in [(5, 0), (5, 1), (7, 0), (9, 0)] {
            stage.add(chunk(0), (Index(at), sub, staged(at).2), 0);
        }
        stage.add(chunk(1), staged(6), 0);
        let by_age = |stage: &Stage, upto| stage.by_age(Index(upto)).map(|chunk| chunk.chunk.0).collect::<Vec<_>>();
        assert_eq!((by_age(&stage, 6), by_age(&stage, 4)), (vec![0, 0, 1], vec![]));
        let from = |stage: &Stage, first| -> Vec<(u64, u16)> {
            stage.slices(chunk(0), Index(first)).map(|(at, sub, _)| (at.0, *sub)).collect()
        };
        assert_eq!(from(&stage, 0), [(5, 0), (5, 1), (7, 0), (9, 0)]);
        assert_eq!((from(&stage, 6), from(&stage, 10)), (vec![(7, 0), (9, 0)], vec![]));
        stage.remove(chunk(0), (Index(5), 1), Index(10));
        stage.remove(chunk(0), (Index(5), 1), Index(10));
        stage.remove(chunk(0), (Index(9), 0), Index(10));
        assert_eq!((from(&stage, 0), stage.bytes()), (vec![(5, 0), (7, 0)], 3 * 4096));
        stage.remove_upto(chunk(0), Index(6), Index(11));
        assert_eq!((from(&stage, 0), stage.bytes(), stage.oldest()), (vec![(7, 0)], 2 * 4096, Some(Index(5))));
        stage.committed(Index(11));
        assert_eq!((stage.oldest(), by_age(&stage, 9)), (Some(Index(6)), vec![1, 0]));
    }
}
