//! A host's link to a store: how much at a time, how fast, how often again, and what state it is in.
//!
//! A request passes 1. the gate (a full store takes no uploads), 2. a slot of its kind, 3. the pace, and is then
//! repeated with growing pauses until it succeeds, fails for good, or the store was silent for too long.

use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use braid_base::ids::{Guid, HostId};
use braid_base::store::{CONCURRENCY_MAX, Concurrency, StoreSpec};
use braid_base::{Error, ErrorKind, Result};
use braid_io::chance::Rng;
use bytes::Bytes;
use tokio::sync::Semaphore;
use tokio::time::{Instant, sleep_until, timeout_at};

use crate::blob::{DATA_MAX, keys};
use crate::store::probe::{self, Met};
use crate::store::{BoxFuture, Listed, Store};

mod health;
mod pace;
mod record;

use health::Board;
pub use health::{Direction, Health, State};
use pace::Paces;
use record::Record;
pub use record::{CHECKS_MAX, Kind, Operation, RECENT_MAX, Total};

/// The first pause before a request is repeated, about; each further one is twice as long.
const PAUSE_MIN: Duration = Duration::from_millis(100);
/// The longest pause, about.
const PAUSE_MAX: Duration = Duration::from_secs(10);
/// How long a keepalive may take.
const CHECK_TIMEOUT: Duration = Duration::from_secs(30);
/// An upload that moves is not broken off when no further one would be begun, but at this multiple of the time.
const UPLOAD_PATIENCE: u32 = 4;
/// What a removal counts against the bandwidth of removals, whatever the object has: nobody knows it here.
const REMOVED_BYTES: u64 = DATA_MAX;
/// Bytes of the object that keepalives read.
const KEEPALIVE_BYTES: usize = 63;

/// A host's link to one store. Clones share everything.
///
/// It is a [`Store`] itself. Beyond the errors of stores it gives `TimedOut` or `Io` after a store was silent for
/// `errors_timeout_s` (the message says how often it was tried), and `Quota` at once while the store is full.
#[derive(Clone)]
pub struct Link {
    inner: Arc<Inner>,
}

struct Inner {
    store: Arc<dyn Store>,
    slots: Slots,
    patience: Duration,
    keepalive: String,
    /// The object that keepalives read was there, or was written.
    was_there: AtomicBool,
    /// It was not there, see [`Link::take_lost`].
    lost: Mutex<Option<bool>>,
    paces: Mutex<Paces>,
    board: Mutex<Board>,
    record: Arc<Mutex<Record>>,
    rng: Mutex<Rng>,
}

/// Requests of each kind that may be under way.
struct Slots {
    uploads: Semaphore,
    downloads: Semaphore,
    removals: Semaphore,
}

/// A request, for the record.
struct Job {
    kind: Kind,
    key: String,
    bytes: u64,
    inode: Option<u64>,
}

impl Link {
    /// A link of `host` in `cluster` to `store`, within the limits of `spec`.
    ///
    /// Errors: `Io`: the kernel has no random number.
    pub fn new(store: Arc<dyn Store>, spec: &StoreSpec, cluster: Guid, host: HostId) -> Result<Self> {
        let inner = Inner {
            store,
            slots: Slots::new(spec.concurrency),
            patience: Duration::from_secs(u64::from(spec.errors_timeout_s.max(1))),
            keepalive: keys::verify(cluster, host, "keepalive"),
            was_there: AtomicBool::new(false),
            lost: Mutex::default(),
            paces: Mutex::new(Paces::new(spec.bandwidth)),
            board: Mutex::new(Board::new()),
            record: Arc::default(),
            rng: Mutex::new(Rng::new(braid_io::chance::seed()?)),
        };
        Ok(Self { inner: Arc::new(inner) })
    }

    /// Writes an object, see [`Store::put`]; `inode` is the file whose data it mostly is, for the record.
    pub async fn upload(&self, key: &str, parts: Vec<Bytes>, inode: Option<u64>) -> Result<()> {
        let bytes = parts.iter().map(|part| part.len() as u64).sum();
        let _slot = self.slot(Direction::Upload).await?;
        self.board().admit(Instant::now())?;
        self.pace(Direction::Upload, bytes).await;
        let job = Job { kind: Kind::Upload, key: key.to_owned(), bytes, inode };
        self.repeat(job, || self.inner.store.put(key, parts.clone()), |()| (bytes, None)).await
    }

    /// Bytes of an object, see [`Store::get`]; `inode` tells of them which file they are of, for the record.
    pub async fn download(
        &self,
        key: &str,
        range: Option<Range<u64>>,
        inode: impl Fn(&Bytes) -> Option<u64>,
    ) -> Result<Bytes> {
        let bytes = range.as_ref().map_or(0, |range| range.end.saturating_sub(range.start));
        let _slot = self.slot(Direction::Download).await?;
        self.pace(Direction::Download, bytes).await;
        let job = Job { kind: Kind::Download, key: key.to_owned(), bytes, inode: None };
        let get = || self.inner.store.get(key, range.clone());
        let got = self.repeat(job, get, |got| (got.len() as u64, inode(got))).await?;
        if range.is_none() {
            // How long a whole object is turns out with it: those that come after wait for it.
            let _ = lock(&self.inner.paces).reserve(Direction::Download, got.len() as u64, Instant::now());
        }
        Ok(got)
    }

    /// Removes an object, see [`Store::delete`].
    pub async fn remove(&self, key: &str) -> Result<()> {
        let _slot = self.slot(Direction::Remove).await?;
        self.pace(Direction::Remove, REMOVED_BYTES).await;
        let job = Job { kind: Kind::Remove, key: key.to_owned(), bytes: 0, inode: None };
        self.repeat(job, || self.inner.store.delete(key), |()| (0, None)).await
    }

    /// The keepalive: reads a small object of this host, which is written if it is not there (and that is remembered, see
    /// [`Self::take_lost`]). Once, beside all limits.
    pub async fn check(&self) -> Result<()> {
        let key = &self.inner.keepalive;
        let get = || self.inner.store.get(key, None);
        let found = self.once(Kind::Check, Direction::Download, KEEPALIVE_BYTES, get).await;
        match found {
            Ok(bytes) if bytes.len() == KEEPALIVE_BYTES => {
                self.inner.was_there.store(true, Ordering::Relaxed);
                Ok(())
            }
            Err(error) if error.kind() != ErrorKind::NotFound => Err(error),
            _ => {
                self.note_lost();
                self.put_keepalive().await?;
                self.inner.was_there.store(true, Ordering::Relaxed);
                Ok(())
            }
        }
    }

    fn note_lost(&self) {
        let mut lost = lock(&self.inner.lost);
        *lost = Some(*lost == Some(true) || self.inner.was_there.load(Ordering::Relaxed));
    }

    /// Was the object that keepalives read not there, since this was last asked? It may have gone with everything else. If so:
    /// had this link seen it before?
    pub fn take_lost(&self) -> Option<bool> {
        lock(&self.inner.lost).take()
    }

    async fn put_keepalive(&self) -> Result<()> {
        let key = &self.inner.keepalive;
        let words = "Braid reads this to see its store";
        let text = Bytes::from(format!("{words:<width$}\n", width = KEEPALIVE_BYTES - 1));
        let put = || self.inner.store.put(key, vec![text.clone()]);
        self.once(Kind::Upload, Direction::Upload, KEEPALIVE_BYTES, put).await
    }

    /// Puts the object of keepalives into a store that is full, if nobody has tried for a while: it is not full for ever
    /// because nothing is left to be uploaded. Once, beside all limits.
    pub async fn look_for_room(&self) -> Result<()> {
        if !self.board().probes(Instant::now()) {
            return Ok(());
        }
        self.put_keepalive().await
    }

    /// Is the store to be reached: one answer per direction, as this host sees it.
    pub fn health(&self, direction: Direction) -> Health {
        self.board().health(direction)
    }

    /// Does the store take no uploads because it is full?
    pub fn is_full(&self) -> bool {
        self.board().is_full()
    }

    /// Operations: those under way, the oldest first, then the last [`RECENT_MAX`] that have ended, the newest first;
    /// of those that only ask the last [`CHECKS_MAX`].
    pub fn operations(&self) -> Vec<Operation> {
        lock(&self.inner.record).list(Instant::now())
    }

    /// How many operations of each kind have ended since the link was made, and what they moved.
    pub fn totals(&self) -> Vec<(Kind, Total)> {
        lock(&self.inner.record).totals()
    }

    /// How many requests of each kind have failed since then, by HTTP status; none: no answer came, or the store does not
    /// speak HTTP.
    pub fn failures(&self) -> Vec<(Kind, Option<u16>, u64)> {
        lock(&self.inner.record).failures()
    }

    fn board(&self) -> MutexGuard<'_, Board> {
        lock(&self.inner.board)
    }

    async fn slot(&self, direction: Direction) -> Result<tokio::sync::SemaphorePermit<'_>> {
        let slots = self.inner.slots.of(direction);
        slots.acquire().await.map_err(|_| Error::new(ErrorKind::Stopped, "the link to the store was closed"))
    }

    async fn pace(&self, direction: Direction, bytes: u64) {
        let now = Instant::now();
        let start = lock(&self.inner.paces).reserve(direction, bytes, now);
        if start > now {
            sleep_until(start).await;
        }
    }

    /// One attempt, for keepalives.
    async fn once<T>(
        &self,
        kind: Kind,
        direction: Direction,
        bytes: usize,
        request: impl Fn() -> BoxFuture<Result<T>>,
    ) -> Result<T> {
        let job = Job { kind, key: self.inner.keepalive.clone(), bytes: bytes as u64, inode: None };
        let mut entry = record::begin(&self.inner.record, job, Instant::now());
        let done = self.attempt(direction, &mut entry, (Instant::now() + CHECK_TIMEOUT, None), &request).await;
        entry.end(done.is_ok().then_some(bytes as u64));
        if done.as_ref().is_err_and(|error| is_failure(error.kind())) {
            self.board().gave_up(direction);
        }
        done
    }

    /// Attempts until one succeeds, one fails for good, or there is no time for another. `moved` tells of what came how many
    /// bytes moved, and of which file, if that is known only then.
    async fn repeat<T>(
        &self,
        job: Job,
        request: impl Fn() -> BoxFuture<Result<T>>,
        moved: impl Fn(&T) -> (u64, Option<u64>),
    ) -> Result<T> {
        let direction = job.kind.direction();
        let began = Instant::now();
        let patience = if direction == Direction::Upload { UPLOAD_PATIENCE } else { 1 };
        // Whoever comes when all patience is over already is not to wait for as long again: one attempt tells.
        let is_over = self.board().is_long_down(direction, self.inner.patience, began);
        let last_begin = if is_over { began } else { began + self.inner.patience };
        let end = began + self.inner.patience * patience;
        // An upload takes its time, and is what tells that uploads go again.
        let end = if is_over && direction != Direction::Upload { end.min(began + CHECK_TIMEOUT) } else { end };
        let mut entry = record::begin(&self.inner.record, job, began);
        let (mut pause, mut tries, mut before) = (PAUSE_MIN, 1_u32, None);
        loop {
            let error = match self.attempt(direction, &mut entry, (end, before.as_ref()), &request).await {
                Ok(done) => {
                    let (bytes, inode) = moved(&done);
                    entry.is_of(inode);
                    entry.end(Some(bytes));
                    return Ok(done);
                }
                Err(error) => error,
            };
            let next = Instant::now() + around(pause, &mut lock(&self.inner.rng));
            if !may_pass(error.kind()) || next >= last_begin {
                entry.end(None);
                if is_failure(error.kind()) {
                    self.board().gave_up(direction);
                }
                return Err(if tries == 1 { error } else { worded(&error, tries, began) });
            }
            tracing::debug!(%error, tries, "a request to the store is repeated");
            sleep_until(next).await;
            pause = (pause * 2).min(PAUSE_MAX);
            tries += 1;
            before = Some(error);
        }
    }

    /// One attempt, broken off at `end`. That itself says little: if the one `before` failed, its error is the reason.
    async fn attempt<T>(
        &self,
        direction: Direction,
        entry: &mut record::Entry,
        (end, before): (Instant, Option<&Error>),
        request: &impl Fn() -> BoxFuture<Result<T>>,
    ) -> Result<T> {
        let began = Instant::now();
        let (done, met) = probe::watch(timeout_at(end, request())).await;
        let result = done.as_ref().map_or(Some(ErrorKind::TimedOut), |done| done.as_ref().err().map(Error::kind));
        entry.tried(began.elapsed(), result, &met);
        let broken_off = || {
            let message = format!("the store did not finish the request within {} s", (end - began).as_secs());
            Error::new(ErrorKind::TimedOut, message)
        };
        let done = done.unwrap_or_else(|_| Err(before.cloned().unwrap_or_else(broken_off)));
        self.judge(direction, done.as_ref().err(), &met);
        done
    }

    /// What an attempt says about the state of the store.
    fn judge(&self, direction: Direction, error: Option<&Error>, met: &Met) {
        let mut board = self.board();
        match error {
            Some(error) if error.kind() == ErrorKind::Quota => board.full(error, Instant::now()),
            // A missing object shows that the store answers; a missing bucket does not.
            Some(error) if is_failure(error.kind()) || met.answer.as_ref().is_some_and(|a| a.names_no_bucket()) => {
                board.failed(direction, error);
            }
            // Refused here, before the store heard of it.
            Some(error) if error.kind() == ErrorKind::Invalid => {}
            Some(_) => board.answered(direction),
            None => board.succeeded(direction),
        }
    }
}

impl Store for Link {
    fn put(&self, key: &str, parts: Vec<Bytes>) -> BoxFuture<Result<()>> {
        let (this, key) = (self.clone(), key.to_owned());
        Box::pin(async move { this.upload(&key, parts, None).await })
    }

    fn get(&self, key: &str, range: Option<Range<u64>>) -> BoxFuture<Result<Bytes>> {
        let (this, key) = (self.clone(), key.to_owned());
        Box::pin(async move { this.download(&key, range, |_| None).await })
    }

    fn size(&self, key: &str) -> BoxFuture<Result<u64>> {
        let (this, key) = (self.clone(), key.to_owned());
        Box::pin(async move {
            let _slot = this.slot(Direction::Download).await?;
            let job = Job { kind: Kind::Check, key: key.clone(), bytes: 0, inode: None };
            this.repeat(job, || this.inner.store.size(&key), |_| (0, None)).await
        })
    }

    fn delete(&self, key: &str) -> BoxFuture<Result<()>> {
        let (this, key) = (self.clone(), key.to_owned());
        Box::pin(async move { this.remove(&key).await })
    }

    fn list(&self, prefix: &str, after: Option<&str>) -> BoxFuture<Result<Vec<Listed>>> {
        let (this, prefix, after) = (self.clone(), prefix.to_owned(), after.map(str::to_owned));
        Box::pin(async move {
            let _slot = this.slot(Direction::Download).await?;
            let job = Job { kind: Kind::Check, key: prefix.clone(), bytes: 0, inode: None };
            this.repeat(job, || this.inner.store.list(&prefix, after.as_deref()), |_| (0, None)).await
        })
    }
}

impl Slots {
    fn new(at_a_time: Concurrency) -> Self {
        let slots = |count: u8| Semaphore::new(usize::from(count.clamp(1, CONCURRENCY_MAX)));
        Self {
            uploads: slots(at_a_time.uploads),
            downloads: slots(at_a_time.downloads),
            removals: slots(at_a_time.removals),
        }
    }

    fn of(&self, direction: Direction) -> &Semaphore {
        match direction {
            Direction::Upload => &self.uploads,
            Direction::Download => &self.downloads,
            Direction::Remove => &self.removals,
        }
    }
}

/// Somewhere between half and one and a half times a pause, so that hosts do not come back all at once.
fn around(pause: Duration, rng: &mut Rng) -> Duration {
    let micros = u64::try_from(pause.as_micros()).unwrap_or(u64::MAX);
    Duration::from_micros(micros / 2 + rng.below(micros))
}

/// May the same request succeed a little later?
fn may_pass(kind: ErrorKind) -> bool {
    kind == ErrorKind::Io || kind.is_passing()
}

/// Does the error say that the store is of no use as it is, not that the request was wrong?
fn is_failure(kind: ErrorKind) -> bool {
    may_pass(kind) || matches!(kind, ErrorKind::AccessDenied | ErrorKind::Refused)
}

fn worded(error: &Error, tries: u32, began: Instant) -> Error {
    let seconds = began.elapsed().as_secs();
    Error::new(error.kind(), format!("{} (tried {tries} times in {seconds} s)", error.message()))
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
