//! The record of operations at a store: those under way, and the last that have ended.

use std::collections::{BTreeMap, VecDeque};
use std::fmt;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use braid_base::ErrorKind;
use braid_base::attr::Time;
use tokio::time::Instant;

use super::{Direction, Job, lock};
use crate::store::probe::Met;

/// Ended operations that are kept.
pub const RECENT_MAX: usize = 1000;
/// Those of them that only ask: a keepalive each second must not push out what was moved.
pub const CHECKS_MAX: usize = 100;

/// What an operation does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    /// Writes an object.
    Upload,
    /// Reads one, or a range of it.
    Download,
    /// Removes one.
    Remove,
    /// Asks: a keepalive, a size, a listing.
    Check,
}

/// An operation at a store, from its first attempt to its last.
#[derive(Clone, Debug, PartialEq)]
pub struct Operation {
    /// Counts up from 1 while the process runs.
    pub id: u64,
    /// The key of the object, or what the keys of a listing begin with.
    pub key: String,
    /// What it does.
    pub kind: Kind,
    /// How long it took, or has taken until now, with the pauses between attempts.
    pub took: Duration,
    /// Still under way (the phase `Ongoing`), or over (`Recent`).
    pub ongoing: bool,
    /// How long the last finished attempt took.
    pub previous: Option<Duration>,
    /// When it began, wall clock.
    pub started: Time,
    /// Bytes that it moves.
    pub size: u64,
    /// How its attempts ended, and how many so.
    pub results: Vec<(&'static str, u32)>,
    /// Attempts to which no answer came.
    pub line_errors: u32,
    /// The last answer that was no success, for example `HTTP 503 SlowDown`.
    pub last_http_error: Option<String>,
    /// Operations of its kind that were under way when it began, itself included.
    pub concurrency: u32,
    /// The file that it is done for, if it is for one.
    pub inode: Option<u64>,
}

/// Operations of one kind that have ended, since the link was made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Total {
    /// Those that ended well.
    pub done: u64,
    /// Those that failed, or were given up by who waited for them.
    pub failed: u64,
    /// Bytes moved by those that ended well.
    pub bytes: u64,
    /// Requests, of which an operation may take several.
    pub requests: u64,
    /// How long these took, the pauses between them not counted.
    pub took: Duration,
}

/// All operations of one link.
#[derive(Default)]
pub(super) struct Record {
    last_id: u64,
    ongoing: BTreeMap<u64, (Instant, Operation)>,
    recent: VecDeque<Operation>,
    totals: BTreeMap<Kind, Total>,
    /// Requests that failed, by HTTP status; none: no answer came, or the store does not speak HTTP.
    failures: BTreeMap<(Kind, Option<u16>), u64>,
}

/// An operation under way; if it is dropped before its end, it was given up by who waited for it.
pub(super) struct Entry {
    record: Arc<Mutex<Record>>,
    id: u64,
    ended: bool,
}

impl Kind {
    /// The word for it in tables.
    pub fn word(self) -> &'static str {
        match self {
            Self::Upload => "UPLOAD",
            Self::Download => "DOWNLOAD",
            Self::Remove => "REMOVE",
            Self::Check => "CHECK",
        }
    }

    pub(super) fn direction(self) -> Direction {
        match self {
            Self::Upload => Direction::Upload,
            Self::Download | Self::Check => Direction::Download,
            Self::Remove => Direction::Remove,
        }
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.word())
    }
}

impl Operation {
    /// `Ongoing` or `Recent`.
    pub fn phase(&self) -> &'static str {
        if self.ongoing { "Ongoing" } else { "Recent" }
    }

    /// Results in one line, for example `IO: 2, SUCCESS: 1`.
    pub fn results_line(&self) -> String {
        let each: Vec<String> = self.results.iter().map(|(name, count)| format!("{name}: {count}")).collect();
        each.join(", ")
    }

    fn count(&mut self, name: &'static str) {
        match self.results.iter_mut().find(|(found, _)| *found == name) {
            Some((_, count)) => *count += 1,
            None => self.results.push((name, 1)),
        }
    }
}

impl Record {
    /// Room for one more ended operation of that kind.
    fn make_room(&mut self, kind: Kind) {
        let is_check = |operation: &Operation| operation.kind == Kind::Check;
        if kind == Kind::Check && self.recent.iter().filter(|ended| is_check(ended)).count() >= CHECKS_MAX {
            let oldest = self.recent.iter().position(is_check);
            oldest.map(|at| self.recent.remove(at));
        } else if self.recent.len() >= RECENT_MAX {
            self.recent.pop_front();
        }
    }

    pub fn totals(&self) -> Vec<(Kind, Total)> {
        self.totals.iter().map(|(kind, total)| (*kind, *total)).collect()
    }

    pub fn failures(&self) -> Vec<(Kind, Option<u16>, u64)> {
        self.failures.iter().map(|((kind, status), count)| (*kind, *status, *count)).collect()
    }

    pub fn list(&self, now: Instant) -> Vec<Operation> {
        let ongoing = self
            .ongoing
            .values()
            .map(|(began, operation)| Operation { took: now.saturating_duration_since(*began), ..operation.clone() });
        ongoing.chain(self.recent.iter().rev().cloned()).collect()
    }
}

/// Enters an operation.
pub(super) fn begin(record: &Arc<Mutex<Record>>, job: Job, now: Instant) -> Entry {
    let mut inside = lock(record);
    inside.last_id += 1;
    let id = inside.last_id;
    let beside = inside.ongoing.values().filter(|(_, other)| other.kind == job.kind).count();
    let operation = Operation {
        id,
        key: job.key,
        kind: job.kind,
        took: Duration::ZERO,
        ongoing: true,
        previous: None,
        started: braid_io::clock::now().wall,
        size: job.bytes,
        results: Vec::new(),
        line_errors: 0,
        last_http_error: None,
        concurrency: u32::try_from(beside + 1).unwrap_or(u32::MAX),
        inode: job.inode,
    };
    inside.ongoing.insert(id, (now, operation));
    Entry { record: Arc::clone(record), id, ended: false }
}

impl Entry {
    /// An attempt ended, with an error or well.
    pub fn tried(&mut self, took: Duration, error: Option<ErrorKind>, met: &Met) {
        let mut record = lock(&self.record);
        let Some((_, operation)) = record.ongoing.get_mut(&self.id) else { return };
        operation.previous = Some(took);
        operation.count(error.map_or("SUCCESS", name));
        operation.line_errors += met.line_errors;
        if let Some(answer) = &met.answer {
            operation.last_http_error = Some(answer.to_string());
        }
        let kind = operation.kind;
        let total = record.totals.entry(kind).or_default();
        (total.requests, total.took) = (total.requests + 1, total.took + took);
        if error.is_some() {
            *record.failures.entry((kind, met.answer.as_ref().map(|answer| answer.status))).or_default() += 1;
        }
    }

    /// It turned out to be about a file, if it did.
    pub fn is_of(&mut self, inode: Option<u64>) {
        if let Some((_, operation)) = lock(&self.record).ongoing.get_mut(&self.id) {
            operation.inode = operation.inode.or(inode);
        }
    }

    /// The operation ended; well, if it moved `bytes`.
    pub fn end(mut self, bytes: Option<u64>) {
        self.close(bytes);
    }

    fn close(&mut self, bytes: Option<u64>) {
        self.ended = true;
        let mut record = lock(&self.record);
        let Some((began, mut operation)) = record.ongoing.remove(&self.id) else { return };
        operation.took = began.elapsed();
        operation.ongoing = false;
        operation.size = bytes.unwrap_or(operation.size);
        let total = record.totals.entry(operation.kind).or_default();
        match bytes {
            Some(bytes) => (total.done, total.bytes) = (total.done + 1, total.bytes + bytes),
            None => total.failed += 1,
        }
        record.make_room(operation.kind);
        record.recent.push_back(operation);
    }
}

impl Drop for Entry {
    fn drop(&mut self) {
        if self.ended {
            return;
        }
        if let Some((_, operation)) = lock(&self.record).ongoing.get_mut(&self.id) {
            operation.count("CANCELLED");
        }
        self.close(None);
    }
}

/// The word for a failure in the table.
fn name(kind: ErrorKind) -> &'static str {
    match kind {
        ErrorKind::NotFound => "NOT_FOUND",
        ErrorKind::AccessDenied => "ACCESS_DENIED",
        ErrorKind::Quota => "QUOTA",
        ErrorKind::TimedOut => "TIMED_OUT",
        ErrorKind::Io => "IO",
        ErrorKind::Range => "RANGE",
        ErrorKind::Refused => "REFUSED",
        ErrorKind::Stopped => "STOPPED",
        ErrorKind::Invalid => "INVALID",
        _ => "OTHER",
    }
}
