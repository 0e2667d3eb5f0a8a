//! The seam to the place that decides: a small ordered map with compare-and-swap, watches and sessions.
//!
//! Calls block for at most one disk write (embedded) or one round trip (etcd). They are rare, a handful per
//! start and per failure, so an asynchronous caller wraps them in a blocking task.

use std::fmt;

use braid_base::{Error, ErrorKind, Result};

/// Most compares, puts and deletes of one transaction together (etcd's own default).
pub const TXN_OPS_MAX: usize = 128;
/// Most bytes of all keys and values of one transaction (etcd's request limit is 1.5 MiB, less its framing).
pub const TXN_BYTES_MAX: usize = 1 << 20;
/// Longest key, bytes.
pub const KEY_BYTES_MAX: usize = 512;
/// Attempts of a compare-and-swap loop before it gives up with `Busy`.
pub const CAS_ATTEMPTS_MAX: usize = 64;

/// Linearizable map of short keys to small values, shared by all hosts of a cluster.
pub trait Coordinator: Send + Sync {
    /// The item stored under `key` now. A linearizable read: decisions may rest on it.
    fn get(&self, key: &str) -> Result<Option<Item>>;

    /// All items whose key starts with `prefix`, ordered by key, as of one revision.
    fn range(&self, prefix: &str) -> Result<Listing>;

    /// Applies all writes of `txn` or none. `TimedOut` means that the result is unknown: read again.
    fn txn(&self, txn: &Txn) -> Result<Outcome>;

    /// Changes of keys under `prefix` with a revision of at least `from`. Only a hint: decide by reading.
    /// `Stale` (also later, from [`Watch::next`]) means that history was dropped, or that `from` is further on than what
    /// comes next: the place was put back to an old state, and would be silent until it is there again. List, then watch
    /// anew.
    fn watch(&self, prefix: &str, from: Revision) -> Result<Box<dyn Watch>>;

    /// Opens a session; keys put under it vanish `ttl_ms` after the last [`Coordinator::keep_alive`].
    fn session(&self, ttl_ms: u64) -> Result<SessionId>;

    /// Prolongs `session` by its time to live. `Stale` if it has ended: its keys are gone.
    fn keep_alive(&self, session: SessionId) -> Result<()>;

    /// Ends `session` and removes its keys. Ending it twice is no error.
    fn end_session(&self, session: SessionId) -> Result<()>;

    /// The next number of the counter `name`, from 1; durable, never given twice.
    fn counter(&self, name: &str) -> Result<u64> {
        let key = format!("ctr/{name}");
        for _ in 0..CAS_ATTEMPTS_MAX {
            let stored = self.get(&key)?;
            let (last, check) = match &stored {
                None => (0, Check::Absent),
                Some(item) => (parse_counter(item)?, Check::Modified(item.modified)),
            };
            let txn = Txn::new().when(&key, check).put(&key, (last + 1).to_string());
            if let Outcome::Done(_) = self.txn(&txn)? {
                return Ok(last + 1);
            }
        }
        Err(contended(&key))
    }
}

/// A running watch.
pub trait Watch: Send {
    /// The next changes in order, or none if nothing came within `wait_ms_max` (0 = do not wait).
    /// All changes of one transaction arrive together. `Stale`: history was dropped, list anew.
    fn next(&mut self, wait_ms_max: u64) -> Result<Vec<Event>>;
}

/// A point in the history of the map; every transaction that changes something gets the next one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Revision(pub u64);

impl fmt::Display for Revision {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "r{}", self.0)
    }
}

impl Revision {
    /// The revision after this one.
    pub fn next(self) -> Self {
        Self(self.0 + 1)
    }
}

/// Names a session; never 0, never reused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SessionId(pub u64);

/// One key and its value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Item {
    /// The key.
    pub key: String,
    /// The value.
    pub value: Vec<u8>,
    /// When the key appeared; a key that was deleted and put again has a new one.
    pub created: Revision,
    /// When the value was last put.
    pub modified: Revision,
}

/// What [`Coordinator::range`] found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Listing {
    /// The items, ordered by key.
    pub items: Vec<Item>,
    /// The revision that the listing shows; watch from the next one.
    pub revision: Revision,
}

/// One change.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Event {
    /// The revision of the transaction.
    pub revision: Revision,
    /// The key that changed.
    pub key: String,
    /// Its new item; none if it was deleted.
    pub item: Option<Item>,
}

/// What a compare asks of a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Check {
    /// It must not exist.
    Absent,
    /// It must exist and have been put last at this revision.
    Modified(Revision),
    /// It must exist and have appeared at this revision, whatever its value is now.
    Created(Revision),
}

/// One write of a transaction.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Put {
    /// The key.
    pub key: String,
    /// The new value.
    pub value: Vec<u8>,
    /// The session that the key lives and dies with, if any.
    pub session: Option<SessionId>,
}

/// A transaction: if every compare holds, all puts and deletes happen at one revision.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Txn {
    /// Conditions, all of which must hold.
    pub compares: Vec<(String, Check)>,
    /// Keys to write.
    pub puts: Vec<Put>,
    /// Keys to remove; a missing one is no error.
    pub deletes: Vec<String>,
}

/// How a transaction ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// All writes are durable; the map's revision afterwards.
    Done(Revision),
    /// A compare failed, nothing changed.
    Conflict,
}

impl Txn {
    /// An empty transaction.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds the condition `check` on `key`.
    pub fn when(mut self, key: &str, check: Check) -> Self {
        self.compares.push((key.to_owned(), check));
        self
    }

    /// Adds a write.
    pub fn put(mut self, key: &str, value: impl Into<Vec<u8>>) -> Self {
        self.puts.push(Put { key: key.to_owned(), value: value.into(), session: None });
        self
    }

    /// Adds a write of a key that vanishes with `session`.
    pub fn put_live(mut self, key: &str, value: impl Into<Vec<u8>>, session: SessionId) -> Self {
        self.puts.push(Put { key: key.to_owned(), value: value.into(), session: Some(session) });
        self
    }

    /// Adds a removal.
    pub fn delete(mut self, key: &str) -> Self {
        self.deletes.push(key.to_owned());
        self
    }

    /// Refuses what an implementation could not take: too many or too large operations, a key written twice.
    pub fn validate(&self) -> Result<()> {
        let ops = self.compares.len() + self.puts.len() + self.deletes.len();
        if ops > TXN_OPS_MAX {
            return Err(invalid(format!("at most {TXN_OPS_MAX} operations expected in a transaction, found {ops}")));
        }
        let bytes: usize = self.puts.iter().map(|put| put.key.len() + put.value.len()).sum();
        if bytes > TXN_BYTES_MAX {
            return Err(invalid(format!("at most {TXN_BYTES_MAX} bytes expected in a transaction, found {bytes}")));
        }
        let mut written: Vec<&str> = self.puts.iter().map(|put| put.key.as_str()).collect();
        written.extend(self.deletes.iter().map(String::as_str));
        if let Some(key) = written.iter().find(|key| key.is_empty() || key.len() > KEY_BYTES_MAX) {
            return Err(invalid(format!("a key of 1 to {KEY_BYTES_MAX} bytes expected, found {}", key.len())));
        }
        written.sort_unstable();
        match written.windows(2).find(|pair| pair[0] == pair[1]) {
            Some(pair) => {
                Err(invalid(format!("each key may be written once in a transaction, found {} twice", pair[0])))
            }
            None => Ok(()),
        }
    }
}

/// The error of a compare-and-swap loop that lost every attempt.
pub(crate) fn contended(key: &str) -> Error {
    Error::new(ErrorKind::Busy, format!("{key} changed under each of {CAS_ATTEMPTS_MAX} attempts: try again"))
}

/// The error of a session that is no more.
pub(crate) fn ended(session: SessionId) -> Error {
    Error::new(ErrorKind::Stale, format!("session {} has ended and its keys are gone: open a new one", session.0))
}

/// The error of a watch from `from` when history up to `dropped` is gone.
pub(crate) fn forgotten(dropped: Revision, from: Revision) -> Error {
    let message = format!("history up to {dropped} was dropped, {from} asked: list, then watch from there");
    Error::new(ErrorKind::Stale, message)
}

/// The error of a watch from `from` where `now` is the newest there is.
pub(crate) fn ahead(now: Revision, from: Revision) -> Error {
    let message = format!("{now} is the newest there, {from} asked: list, then watch from there");
    Error::new(ErrorKind::Stale, message)
}

fn parse_counter(item: &Item) -> Result<u64> {
    let text = std::str::from_utf8(&item.value).ok().and_then(|text| text.parse().ok());
    text.ok_or_else(|| {
        Error::new(ErrorKind::Corrupt, format!("{}: a number expected, found {} bytes", item.key, item.value.len()))
    })
}

pub(crate) fn invalid(message: String) -> Error {
    Error::new(ErrorKind::Invalid, message)
}
