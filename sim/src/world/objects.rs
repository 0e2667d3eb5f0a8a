//! An object store that all hosts reach and that outlives them. It is slow, fails, and does what it said it had not done.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use braid_base::ids::{FsId, StoreId, Term};
use braid_base::limits::BLOCK;
use braid_base::msg::fs::Reply;
use braid_base::msg::job::{BlockRun, ObjectKey};
use braid_base::msg::lease::Answer;
use braid_base::{Error, ErrorKind, Result};
use braid_client::objects::Objects;
use braid_client::wire::{BoxFuture, Wire};
use braid_io::chance::Rng;
use braid_meta::TierPolicy;
use bytes::Bytes;

/// The only one.
const STORE: StoreId = StoreId(1);

/// What lies there.
#[derive(Clone)]
pub(crate) struct Bucket(Arc<Mutex<Inner>>);

struct Inner {
    there: BTreeMap<ObjectKey, Bytes>,
    /// Names that were ever written: none is written twice.
    written: BTreeSet<ObjectKey>,
    rng: Rng,
    /// Per cent of requests that fail.
    fails: u64,
    /// What must never be, and was.
    wrong: Vec<String>,
}

impl Bucket {
    /// An empty one.
    pub(crate) fn new(seed: u64) -> Self {
        let rng = Rng::new(seed ^ 0xB0C);
        let (there, written, wrong) = Default::default();
        Self(Arc::new(Mutex::new(Inner { there, written, rng, fails: 20, wrong })))
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// From now on nothing fails.
    pub(crate) fn heal(&self) {
        self.lock().fails = 0;
    }

    /// What was wrong since the last question.
    pub(crate) fn wrong(&self) -> Vec<String> {
        std::mem::take(&mut self.lock().wrong)
    }

    /// Objects that were ever put there.
    pub(crate) fn puts(&self) -> usize {
        self.lock().written.len()
    }

    /// Bytes of an object, as the host of its partition answers with them.
    pub(crate) fn read(&self, key: ObjectKey, off: u32, len: u32) -> Answer {
        let mut inner = self.lock();
        let fails = inner.fails;
        let result = if inner.rng.below(100) < fails {
            Err(Error::new(ErrorKind::TimedOut, "the store does not answer"))
        } else {
            let whole = inner.there.get(&key);
            whole
                .and_then(|bytes| {
                    let end = off.checked_add(len)? as usize;
                    (end <= bytes.len()).then(|| Reply::Data(bytes.slice(off as usize..end)))
                })
                .ok_or_else(|| Error::new(ErrorKind::Stale, format!("{key:?} is not there")))
        };
        Answer { term: Term(0), grants: Vec::new(), result }
    }
}

/// The way of a host to it.
pub(crate) struct Way {
    pub bucket: Bucket,
    pub wire: Arc<dyn Wire>,
}

impl Way {
    /// How long a request takes, milliseconds, and whether it is carried out and whether it says so.
    fn fate(&self) -> (u64, bool, bool) {
        let mut inner = self.bucket.lock();
        let fails = inner.fails;
        let wait_ms = if inner.rng.below(10) == 0 { inner.rng.below(4_000) } else { inner.rng.below(50) };
        let good = inner.rng.below(100) >= fails;
        (wait_ms, good || inner.rng.below(2) == 0, good)
    }
}

fn failed(good: bool) -> Result<()> {
    if good { Ok(()) } else { Err(Error::new(ErrorKind::TimedOut, "the store does not answer")) }
}

impl Objects for Way {
    fn put(&self, key: ObjectKey, _: FsId, runs: Vec<BlockRun>, data: Vec<Bytes>) -> BoxFuture<Result<()>> {
        let (wait_ms, works, good) = self.fate();
        let (bucket, wait) = (self.bucket.clone(), self.wire.sleep_ms(wait_ms));
        Box::pin(async move {
            wait.await;
            let bytes = Bytes::from(data.concat());
            let blocks: usize = runs.iter().map(|run| run.blocks as usize).sum();
            let mut inner = bucket.lock();
            if blocks * BLOCK != bytes.len() {
                inner.wrong.push(format!("{key:?} has {} bytes in {blocks} blocks", bytes.len()));
            }
            if works {
                if !inner.written.insert(key) {
                    inner.wrong.push(format!("I24: {key:?} is written twice"));
                }
                inner.there.insert(key, bytes);
            }
            failed(good)
        })
    }

    fn remove(&self, key: ObjectKey) -> BoxFuture<Result<()>> {
        let (wait_ms, works, good) = self.fate();
        let (bucket, wait) = (self.bucket.clone(), self.wire.sleep_ms(wait_ms));
        Box::pin(async move {
            wait.await;
            if works {
                bucket.lock().there.remove(&key);
            }
            failed(good)
        })
    }
}

/// What the file system does with it in a run of `seed`.
pub(crate) fn policy(seed: u64) -> TierPolicy {
    let mut rng = Rng::new(seed ^ 0x71E2);
    TierPolicy {
        writable: Some(STORE),
        leaving: BTreeSet::new(),
        cue_s: rng.below(3) as u32,
        retention_s: 1 + rng.below(4) as u32,
        // What writes while flash is full waits for objects one after the other: of a block each that would take hours.
        object_bytes: (8 + rng.below(57) as u32) * BLOCK as u32,
        flash_bytes: (rng.below(2) == 0).then(|| 1 << (16 + rng.below(4))),
        prefetch_bytes: rng.below(3) << 20,
    }
}
