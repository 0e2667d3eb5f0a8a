//! Brings bytes back from objects: an ordinary move, with an object as its source.
//!
//! What a reader met comes first in, first out; whoever reads a file from one chunk to the next gets what follows
//! brought back ahead of him.

use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};

use braid_base::Result;
use braid_base::ids::{Chunk, FsId};
use braid_base::limits::CHUNK;

use crate::data::backoff::Backoff;
use crate::data::chunk::{ChunkId, FileId};
use crate::data::destage;
use crate::data::tier::bare;
use crate::data::tier::damage::{self, Recall};
use crate::state::State;
use crate::txn::Txn;

/// Chunks of a file system that wait to be brought back, at most: what comes beyond is read from its object, and asked for again.
const QUEUE_MAX: usize = 65_536;
/// Chunks looked at for one move.
const CHUNKS_AT_ONCE: usize = 256;
/// The same with those of which it is known that they cannot come.
const LOOKS_MAX: usize = 4_096;
/// Moves of this kind of one file system at a time.
const FETCHES_MAX: usize = 4;
/// First and longest wait after one that failed, milliseconds.
const BACKOFF_MS: u64 = 500;
const BACKOFF_MS_MAX: u64 = 30_000;
/// Pause while there is no room to bring anything back to, milliseconds.
const NO_ROOM_MS: u64 = 50;
/// Files whose last read is remembered, at most.
const READERS_MAX: usize = 65_536;

/// What is to come back.
#[derive(Default)]
pub(crate) struct Fetches {
    /// By file system: one whose store does not answer holds up no other.
    of: BTreeMap<FsId, Wants>,
    /// The chunk behind the last one that was read of a file, and up to where it was asked to come back.
    readers: HashMap<FileId, (Chunk, Chunk)>,
    /// There is room for something that had none.
    woken: bool,
}

/// The same of one file system.
struct Wants {
    queue: VecDeque<ChunkId>,
    queued: BTreeSet<ChunkId>,
    backoff: Backoff,
    failures: u32,
    /// There was no room to bring anything back to when last it was to be.
    cramped: bool,
}

impl Default for Wants {
    fn default() -> Self {
        let (queue, queued) = Default::default();
        Self { queue, queued, backoff: Backoff::new(BACKOFF_MS, BACKOFF_MS_MAX), failures: 0, cramped: false }
    }
}

impl Fetches {
    /// `chunk` is to come back; it goes by the state of its base then.
    pub fn want(&mut self, chunk: ChunkId) {
        let Wants { queue, queued, .. } = self.of.entry(chunk.file.fs).or_default();
        if queue.len() < QUEUE_MAX && queued.insert(chunk) {
            queue.push_back(chunk);
        }
    }

    /// Chunks `[first, last]` of `file` were read, and some of them were in objects: they come back. If they follow what was
    /// read before, so do as many of those behind them as `ahead` bytes have, up to the `end` of the file.
    pub fn read(&mut self, file: FileId, (first, last): (Chunk, Chunk), met: &[Chunk], (ahead, end): (u64, Chunk)) {
        met.iter().for_each(|chunk| self.want(file.chunk(*chunk)));
        if self.readers.len() >= READERS_MAX && !self.readers.contains_key(&file) {
            self.readers.clear();
        }
        let (next, asked) = self.readers.get(&file).copied().unwrap_or((Chunk(u32::MAX), Chunk(0)));
        let follows = first <= next && last >= next;
        let mut upto = last;
        if follows && ahead > 0 {
            let most = u64::from(last.0) + ahead.div_ceil(CHUNK);
            upto = Chunk(u32::try_from(most).unwrap_or(u32::MAX)).min(end);
            let from = Chunk(last.0.saturating_add(1)).max(asked);
            (from.0..=upto.0).for_each(|chunk| self.want(file.chunk(Chunk(chunk))));
        }
        self.readers.insert(file, (Chunk(last.0.saturating_add(1)), Chunk(upto.0.saturating_add(1))));
    }

    /// The same, before all others.
    fn want_first(&mut self, chunk: ChunkId) {
        let Wants { queue, queued, .. } = self.of.entry(chunk.file.fs).or_default();
        if queued.insert(chunk) {
            queue.push_front(chunk);
        }
    }

    /// There is room in a pack for what comes back.
    pub fn room_came(&mut self) {
        for wants in self.of.values_mut() {
            if std::mem::take(&mut wants.cramped) {
                wants.backoff.pause(0);
                self.woken = true;
            }
        }
    }

    /// True if something that waited for room can go on, once.
    pub fn take_woken(&mut self) -> bool {
        std::mem::take(&mut self.woken)
    }

    /// A move of `fs` ended; true if the packs that it was to write to are to be given up.
    pub fn ended(&mut self, fs: FsId, ok: bool, now_ms: u64) -> bool {
        let wants = self.of.entry(fs).or_default();
        if ok {
            wants.backoff.went_well();
            wants.failures = 0;
            return false;
        }
        wants.backoff.failed(now_ms);
        wants.cramped = false;
        wants.failures += 1;
        // Most likely the store does not answer; but it may be a drive.
        wants.failures.is_multiple_of(4)
    }
}

/// A move of `fs` that was to bring back `chunks` failed; true if the packs that it was to write to are to be given up. If
/// some of them are known to be lost, that is why: they wait, and the others are tried again at once.
pub(crate) fn failed(t: &Txn<'_>, s: &mut State, fs: FsId, chunks: &[ChunkId]) -> Result<bool> {
    let (mut lost, mut others) = (Vec::new(), Vec::new());
    if !s.data.tier.damage.is_empty() {
        for chunk in chunks {
            if damage::is_spoiled(t, s, *chunk)? { lost.push(*chunk) } else { others.push(*chunk) }
        }
    }
    let tier = &mut s.data.tier;
    if lost.is_empty() {
        return Ok(tier.fetches.ended(fs, false, t.now.mono_ms));
    }
    lost.into_iter().for_each(|chunk| tier.damage.hold(chunk, t.now.mono_ms));
    others.into_iter().rev().for_each(|chunk| tier.fetches.want_first(chunk));
    Ok(false)
}

/// Begins as many moves as there is reason, room and leave for.
pub(super) fn step(t: &mut Txn<'_>, s: &mut State) -> Result<()> {
    for fs in s.data.tier.fetches.of.keys().copied().collect::<Vec<_>>() {
        // Out of its place while it works: it looks at everything else.
        let mut wants = s.data.tier.fetches.of.remove(&fs).unwrap_or_default();
        let done = one(t, s, fs, &mut wants);
        s.data.tier.fetches.of.insert(fs, wants);
        done?;
    }
    Ok(())
}

fn one(t: &mut Txn<'_>, s: &mut State, fs: FsId, wants: &mut Wants) -> Result<()> {
    while wants.backoff.is_over(t.now.mono_ms) && s.data.jobs.fetches_of(fs) < FETCHES_MAX && !t.is_full() {
        let (mut chunks, mut later, mut looked) = (Vec::new(), Vec::new(), 0);
        while chunks.len() < CHUNKS_AT_ONCE
            && looked < LOOKS_MAX
            && let Some(chunk) = wants.queue.pop_front()
        {
            if s.data.jobs.is_busy(chunk) && !super::is_short(s, fs) {
                later.push(chunk);
                continue;
            }
            looked += 1;
            let recall = damage::recall(t, s, chunk)?;
            if recall == Recall::Alone && !chunks.is_empty() {
                wants.queue.push_front(chunk);
                break;
            }
            wants.queued.remove(&chunk);
            if recall == Recall::Held {
                continue;
            }
            // What comes back while flash is short would leave again at once: it is read from its object. What is exposed
            // is on flash already.
            if !super::is_short(s, fs) || (!s.data.jobs.is_busy(chunk) && bare::has_exposed(t, s, chunk)?) {
                chunks.push(chunk);
            }
            if recall == Recall::Alone {
                break;
            }
        }
        wants.queue.extend(later);
        if chunks.is_empty() {
            return Ok(());
        }
        let (begun, left) = destage::fetch(t, s, chunks, wants.queue.len() as u64 * CHUNK)?;
        for chunk in left.into_iter().rev() {
            if wants.queued.insert(chunk) {
                wants.queue.push_front(chunk);
            }
        }
        if !begun {
            // A pack for it is being opened, or there is no room for one now.
            wants.backoff.pause(t.now.mono_ms + NO_ROOM_MS);
            wants.cramped = true;
            return Ok(());
        }
    }
    Ok(())
}
