//! Object stores that all hosts reach and that outlive them. They are slow, fail in every way that they have, do what they
//! said they had not done, and in some runs lose what they were given.
//!
//! 1. A host sends ([`way::Way`]); what arrives is carried out by the store ([`Node::Store`](crate::board::Node)), whether
//!    its sender lives still or not.
//! 2. What is read is checked by the host, block by block, and asked for once more if it is wrong. What is wrong again, or
//!    not there, it notes, and tells the partition ([`super::damage`]).
//! 3. What is lost for good stands on the board: of that, and of nothing else, reads may fail in the end.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use braid_base::crc::crc32c;
use braid_base::ids::StoreId;
use braid_base::limits::BLOCK;
use braid_base::msg::job::ObjectKey;
use braid_base::{Error, ErrorKind, Result};
use braid_io::chance::Rng;
use bytes::Bytes;

use crate::board::Board;
use crate::config::StorePlan;
use crate::deeds::Deed;

pub(crate) mod way;

/// All that there are.
pub(crate) const STORES: [StoreId; 2] = [StoreId(1), StoreId(2)];
/// A store answers within this time, milliseconds: mostly, now and then, and when it stalls.
const SOON_MS: u64 = 50;
const LATE_MS: u64 = 4_000;
const STALL_MS: u64 = 60_000;
/// The same of a read that is small.
const READ_MS: u64 = 20;
/// Objects that are lost for good in one run, but for stores that somebody empties.
const LOST_MAX: usize = 4;

/// What lies there.
#[derive(Clone)]
pub(crate) struct Bucket(Arc<Mutex<Inner>>);

struct Inner {
    there: BTreeMap<ObjectKey, Stored>,
    /// Names that were ever written: none is written twice.
    written: BTreeSet<ObjectKey>,
    moods: BTreeMap<StoreId, Mood>,
    plan: StorePlan,
    rng: Rng,
    board: Board,
    lost: usize,
    /// What must never be, and was.
    wrong: Vec<String>,
}

/// An object, and the checksums of its blocks as they were sent.
struct Stored {
    bytes: Bytes,
    crcs: Vec<u32>,
}

/// What a store does for a while.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mood {
    /// It answers nothing.
    Silent,
    /// It refuses everything.
    Denies,
    /// It takes no more.
    Full,
    /// It says that there is nothing: its bucket is away.
    Away,
}

impl Mood {
    /// One of them.
    fn any(rng: &mut Rng) -> Self {
        [Self::Silent, Self::Silent, Self::Denies, Self::Full, Self::Away][rng.index(5)]
    }

    fn error(self, store: StoreId) -> Error {
        let (kind, what) = match self {
            Self::Silent => (ErrorKind::TimedOut, "does not answer"),
            Self::Denies => (ErrorKind::AccessDenied, "does not know these credentials"),
            Self::Full => (ErrorKind::Quota, "takes no more"),
            Self::Away => (ErrorKind::NotFound, "has no such bucket"),
        };
        Error::new(kind, format!("object store {store} {what}"))
    }
}

/// How a request ends.
struct Fate {
    /// After how long.
    wait_ms: u64,
    /// It is carried out.
    works: bool,
    /// What its sender is told.
    says: Result<()>,
}

impl Bucket {
    /// Empty ones.
    pub(crate) fn new(seed: u64, plan: StorePlan, board: Board) -> Self {
        let rng = Rng::new(seed ^ 0xB0C);
        let (there, written, moods, lost, wrong) = Default::default();
        Self(Arc::new(Mutex::new(Inner { there, written, moods, plan, rng, board, lost, wrong })))
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// From now on nothing fails but what is lost.
    pub(crate) fn heal(&self) {
        let mut inner = self.lock();
        inner.plan = StorePlan::default();
        inner.moods.clear();
    }

    /// What was wrong since the last question.
    pub(crate) fn wrong(&self) -> Vec<String> {
        std::mem::take(&mut self.lock().wrong)
    }

    /// Objects that were ever put there.
    pub(crate) fn puts(&self) -> usize {
        self.lock().written.len()
    }

    /// Data bytes of an object that is there.
    pub(crate) fn size(&self, key: ObjectKey) -> Option<u64> {
        self.lock().there.get(&key).map(|stored| stored.bytes.len() as u64)
    }

    /// All that is there.
    pub(crate) fn keys(&self) -> Vec<ObjectKey> {
        self.lock().there.keys().copied().collect()
    }

    /// True if it can be said what is there.
    pub(crate) fn lists(&self, store: StoreId) -> bool {
        let inner = self.lock();
        matches!(inner.mood(store), None | Some(Mood::Full))
    }

    /// True if these bytes of an object are there as they were sent.
    pub(crate) fn is_whole(&self, key: ObjectKey, from: u64, end: u64) -> bool {
        let inner = self.lock();
        inner.there.get(&key).is_some_and(|stored| stored.check(from, end, &stored.bytes).is_ok())
    }

    /// A store does something else than its work until it is told otherwise; which, and what.
    pub(crate) fn upset(&self) -> (StoreId, Mood) {
        let inner = &mut *self.lock();
        let (store, mood) = (STORES[inner.rng.index(STORES.len())], Mood::any(&mut inner.rng));
        inner.moods.insert(store, mood);
        (store, mood)
    }

    /// A store works again.
    pub(crate) fn calm(&self, store: StoreId) {
        self.lock().moods.remove(&store);
    }

    /// Something is lost for good: blocks of an object, an object, or now and then all of a store. What, in words.
    pub(crate) fn lose(&self) -> Option<String> {
        let inner = &mut *self.lock();
        let all: Vec<ObjectKey> = inner.there.keys().copied().collect();
        if all.is_empty() || inner.lost >= LOST_MAX {
            return None;
        }
        inner.lost += 1;
        // Of what was sent lately more is on flash as well.
        let newest = all.iter().max_by_key(|key| (key.term, key.blob.serial())).copied();
        let any = all[inner.rng.index(all.len())];
        let key = newest.filter(|_| inner.rng.chance(2, 3)).unwrap_or(any);
        let how = inner.rng.below(10);
        if how < 5 {
            return Some(inner.damage(key));
        }
        let gone: Vec<ObjectKey> =
            all.into_iter().filter(|it| *it == key || (how == 9 && it.store == key.store)).collect();
        for key in &gone {
            let size = inner.there.remove(key).map_or(0, |stored| stored.bytes.len() as u64);
            inner.board.lose(key.blob, (0, size));
        }
        Some(format!("{} objects are lost: {gone:?}", gone.len()))
    }

    /// How long a read takes, milliseconds; none: longer than anybody waits.
    pub(crate) fn read_ms(&self) -> Option<u64> {
        let inner = &mut *self.lock();
        let plan = inner.plan_now();
        if inner.rng.below(100) < plan.stalls {
            return None;
        }
        Some(if inner.rng.below(20) == 0 { inner.rng.below(LATE_MS) } else { inner.rng.below(READ_MS) })
    }

    /// Bytes of an object's data, checked. Errors as of a host that asks a store.
    pub(crate) fn read(&self, key: ObjectKey, off: u32, len: u32) -> Result<Bytes> {
        let (from, end) = (u64::from(off), u64::from(off) + u64::from(len));
        let once = self.lock().read(key, from, end);
        match once {
            // It may have been damaged on its way.
            Err(error) if error.kind() == ErrorKind::Corrupt => self.lock().read(key, from, end),
            once => once,
        }
    }
}

impl Inner {
    /// What goes wrong now: nothing while somebody wants quiet.
    fn plan_now(&self) -> StorePlan {
        if self.board.is_quiet() { StorePlan::default() } else { self.plan.clone() }
    }

    fn mood(&self, store: StoreId) -> Option<Mood> {
        self.moods.get(&store).copied().filter(|_| !self.board.is_quiet())
    }

    fn fate(&mut self, store: StoreId, puts: bool) -> Fate {
        let plan = self.plan_now();
        let wait_ms = match self.rng.below(100) {
            at if at < plan.stalls => self.rng.below(STALL_MS),
            at if at < plan.stalls + 10 => self.rng.below(LATE_MS),
            _ => self.rng.below(SOON_MS),
        };
        if let Some(mood) = self.mood(store).filter(|mood| puts || *mood != Mood::Full) {
            let works = mood == Mood::Silent && self.rng.below(4) == 0;
            return Fate { wait_ms, works, says: Err(mood.error(store)) };
        }
        let good = self.rng.below(100) >= plan.fails;
        let says = if good { Ok(()) } else { Err(Mood::Silent.error(store)) };
        Fate { wait_ms, works: good || self.rng.below(2) == 0, says }
    }

    fn put(&mut self, key: ObjectKey, bytes: Bytes) {
        if !self.written.insert(key) {
            self.wrong.push(format!("I24: {key:?} is written twice"));
        }
        let crcs = bytes.chunks(BLOCK).map(crc32c).collect();
        self.there.insert(key, Stored { bytes, crcs });
    }

    fn read(&mut self, key: ObjectKey, from: u64, end: u64) -> Result<Bytes> {
        let (plan, store) = (self.plan_now(), key.store);
        let missing = || Error::new(ErrorKind::Stale, format!("object store {store} has no {key:?}"));
        match self.mood(store) {
            Some(Mood::Away) => return Err(missing()),
            Some(mood @ (Mood::Silent | Mood::Denies)) => {
                return Err(Error::new(ErrorKind::Io, mood.error(store).message().to_owned()));
            }
            _ => {}
        }
        if self.rng.below(100) < plan.fails {
            return Err(Error::new(ErrorKind::Io, format!("object store {store} does not answer")));
        }
        let Some(stored) = self.there.get(&key).filter(|_| self.rng.below(100) >= plan.denies_it) else {
            return Err(missing());
        };
        let mut bytes = stored.bytes.clone();
        if self.rng.below(100) < plan.garbles {
            self.board.did(Deed::StoreGarbled);
            bytes = garbled(&bytes, from, &mut self.rng);
        }
        stored
            .check(from, end, &bytes)
            .map_err(|what| Error::new(ErrorKind::Corrupt, format!("object {key:?}: {what}")))?;
        Ok(bytes.slice(from as usize..end as usize))
    }

    /// Some blocks of an object are not what they were any more.
    fn damage(&mut self, key: ObjectKey) -> String {
        let Some(stored) = self.there.get_mut(&key) else { return String::new() };
        let (mut bytes, mut blocks) = (stored.bytes.to_vec(), BTreeSet::new());
        for _ in 0..=self.rng.below(3) {
            blocks.insert(self.rng.index(stored.crcs.len()));
        }
        for block in &blocks {
            bytes[block * BLOCK + self.rng.index(BLOCK)] ^= 1 << self.rng.below(8);
            // Damaged twice it could be whole again.
            let first = (block * BLOCK) as u64;
            if crc32c(&bytes[block * BLOCK..(block + 1) * BLOCK]) != stored.crcs[*block] {
                self.board.lose(key.blob, (first, first + BLOCK as u64));
            }
        }
        stored.bytes = Bytes::from(bytes);
        format!("blocks {blocks:?} of {key:?} are damaged")
    }
}

impl Stored {
    /// What is wrong with the blocks of `[from, end)`, as they came.
    fn check(&self, from: u64, end: u64, came: &[u8]) -> std::result::Result<(), String> {
        for block in from as usize / BLOCK..(end as usize).div_ceil(BLOCK) {
            let Some(bytes) = came.get(block * BLOCK..(block + 1) * BLOCK) else {
                return Err(format!("it has {} bytes, and no block {block}", came.len()));
            };
            if self.crcs.get(block) != Some(&crc32c(bytes)) {
                return Err(format!("block {block} does not match its checksum"));
            }
        }
        Ok(())
    }
}

/// What comes of `bytes`, of which those from `from` on are wanted: others, or fewer.
fn garbled(bytes: &Bytes, from: u64, rng: &mut Rng) -> Bytes {
    let from = (from as usize).min(bytes.len());
    if rng.chance(1, 2) {
        return bytes.slice(..from + rng.index(bytes.len() - from + 1).min(bytes.len() - from));
    }
    let mut wrong = bytes.to_vec();
    if let Some(byte) = wrong.get_mut(from) {
        *byte ^= 1 + rng.below(255) as u8;
    }
    Bytes::from(wrong)
}
