//! Where tasks and the world meet: tasks put messages up, the world takes them down and fills in the answers.

use std::collections::BTreeMap;
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, Weak};
use std::task::{Context, Poll, Waker};

use braid_base::Result;
use braid_base::attr::Time;
use braid_base::ids::{BlobId, ClientId, DriveId, PartitionId, Term};
use braid_base::msg::drive::{DriveOp, DriveResult};
use braid_base::msg::fs::Request;
use braid_base::msg::job::{ObjectKey, ScrubJob, Scrubbed};
use braid_base::msg::lease;
use braid_base::record::ObjectAt;
use braid_client::fs::Background;
use braid_client::{BoxFuture, PushSink};
use bytes::Bytes;

use crate::deeds::Deed;
use crate::points::Point;
use crate::trace::Trace;

/// Who sends, receives, or owns a task.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Node {
    /// A client process.
    Client(u32),
    /// A host: its partitions and its bulk movers.
    Host(u32),
    /// A drive.
    Drive(u32),
    /// The object stores, which never die.
    Store,
    /// The observer that checks the end of a run; nothing it sends is lost.
    Auditor,
}

/// A replica of a partition: on which host.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct At {
    /// The host.
    pub host: u32,
    /// The partition.
    pub p: PartitionId,
}

impl fmt::Display for At {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}@h{}", self.p, self.host)
    }
}

/// An answer to come: whoever fills it first decides it.
#[derive(Debug)]
pub struct Slot<T>(Arc<Mutex<Answer<T>>>);

#[derive(Debug)]
enum Answer<T> {
    Waiting(Option<Waker>),
    Here(T),
    Taken,
}

impl<T> Clone for Slot<T> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl<T> Default for Slot<T> {
    fn default() -> Self {
        Self::new()
    }
}

impl<T> Slot<T> {
    /// An empty one.
    pub fn new() -> Self {
        Self(Arc::new(Mutex::new(Answer::Waiting(None))))
    }

    /// Gives the answer, unless there was one.
    pub fn fill(&self, value: T) {
        let mut answer = self.lock();
        if let Answer::Waiting(waker) = &mut *answer {
            let waker = waker.take();
            *answer = Answer::Here(value);
            drop(answer);
            if let Some(waker) = waker {
                waker.wake();
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, Answer<T>> {
        self.0.lock().expect("nothing panics while it holds an answer")
    }
}

impl<T> Future for Slot<T> {
    type Output = T;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<T> {
        let mut answer = self.lock();
        match std::mem::replace(&mut *answer, Answer::Taken) {
            Answer::Here(value) => Poll::Ready(value),
            Answer::Waiting(_) => {
                *answer = Answer::Waiting(Some(cx.waker().clone()));
                Poll::Pending
            }
            Answer::Taken => unreachable!("a slot is not awaited again after its answer"),
        }
    }
}

/// What goes on beside a task.
pub struct Work(pub BoxFuture<()>);

impl fmt::Debug for Work {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("work")
    }
}

/// The processes of a node: where the client library lets work go on after a call.
pub struct Beside {
    /// The meeting point.
    pub board: Board,
    /// Whose work it is.
    pub node: Node,
}

impl Background for Beside {
    fn spawn(&self, work: BoxFuture<()>) {
        self.board.send(Sent::Spawn(self.node, Work(work)));
    }

    fn wall(&self) -> Time {
        let us = self.board.now_us();
        Time { sec: (us / 1_000_000) as i64, nsec: (us % 1_000_000) as u32 * 1000 }
    }
}

/// What a task wants of the world.
#[derive(Debug)]
pub enum Sent {
    /// A request to a partition.
    Partition(Node, PartitionId, Request, Slot<lease::Answer>),
    /// A request to a drive.
    Drive(Node, DriveId, DriveOp, Slot<DriveResult>),
    /// To be woken at this time, microseconds.
    Sleep(u64, Slot<()>),
    /// A task of this node beside the one that asks.
    Spawn(Node, Work),
    /// A bulk move of a partition ended; the number is the life of the host that started it.
    JobDone(At, u64, u64, Result<()>),
    /// A check of a pack ended; the number is as above.
    Checked(At, u64, Box<ScrubJob>, Result<Scrubbed>),
    /// A task of a partition, in that life of its host, passed a point.
    Passed(At, u64, Point),
    /// A host has the bytes of an object, or has them not.
    ObjectRead(Box<ObjectRead>),
}

/// Bytes of an object that a host asked for.
#[derive(Debug)]
pub struct ObjectRead {
    /// The replica that asked.
    pub at: At,
    /// In that life of its host,
    pub life: u64,
    /// and in that term of its partition.
    pub term: Term,
    /// The object.
    pub key: ObjectKey,
    /// The bytes of its data, from and to.
    pub range: (u64, u64),
    /// What came.
    pub result: Result<Bytes>,
    /// Who waits for them, and for what.
    pub to: Node,
    /// Where the answer goes.
    pub slot: Slot<lease::Answer>,
}

/// Shared by everything in one run.
#[derive(Clone, Default)]
pub struct Board(Arc<Mutex<Inner>>);

#[derive(Default)]
struct Inner {
    now_us: u64,
    sent: Vec<Sent>,
    trace: Trace,
    violation: Option<String>,
    quiet: u32,
    power_losses: u64,
    /// Deeds of tasks.
    deeds: Vec<Deed>,
    /// What of objects is lost for good, bytes: from, and up to.
    lost: BTreeMap<BlobId, Vec<(u64, u64)>>,
    /// Who takes what is pushed to a client, and where that is.
    sinks: BTreeMap<ClientId, (Node, Weak<dyn PushSink>)>,
}

/// While it lives, nothing new goes wrong: somebody looks what became of a call whose answer it never got.
pub struct Quiet(Board);

impl Drop for Quiet {
    fn drop(&mut self) {
        self.0.lock().quiet -= 1;
    }
}

impl Board {
    /// The time of the world, microseconds.
    pub fn now_us(&self) -> u64 {
        self.lock().now_us
    }

    /// Sets the time.
    pub fn set_now_us(&self, now_us: u64) {
        self.lock().now_us = now_us;
    }

    /// Puts something up.
    pub fn send(&self, sent: Sent) {
        self.lock().sent.push(sent);
    }

    /// Takes everything down.
    pub fn take_sent(&self) -> Vec<Sent> {
        std::mem::take(&mut self.lock().sent)
    }

    /// A task did something worth counting.
    pub fn did(&self, deed: Deed) {
        self.lock().deeds.push(deed);
    }

    /// What tasks did since the last call.
    pub fn take_deeds(&self) -> Vec<Deed> {
        std::mem::take(&mut self.lock().deeds)
    }

    /// Bytes `range` of the data of an object are lost for good.
    pub fn lose(&self, blob: BlobId, range: (u64, u64)) {
        let mut inner = self.lock();
        inner.deeds.push(Deed::ObjectLost);
        inner.lost.entry(blob).or_default().push(range);
    }

    /// True if anything is.
    pub fn has_lost(&self) -> bool {
        !self.lock().lost.is_empty()
    }

    /// All of it.
    pub fn all_lost(&self) -> Vec<(BlobId, (u64, u64))> {
        let inner = self.lock();
        inner.lost.iter().flat_map(|(blob, ranges)| ranges.iter().map(|range| (*blob, *range))).collect()
    }

    /// What of the `len` bytes from `at` on is lost: from which of them, and up to which; in order, apart.
    pub fn lost_of(&self, at: ObjectAt, len: u32) -> Vec<(u64, u64)> {
        let (first, end) = (u64::from(at.off), u64::from(at.off) + u64::from(len));
        let inner = self.lock();
        let ranges = inner.lost.get(&at.blob).map(Vec::as_slice).unwrap_or_default();
        let parts = ranges.iter().map(|(from, to)| ((*from).max(first), (*to).min(end))).filter(|(from, to)| from < to);
        let mut parts: Vec<(u64, u64)> = parts.map(|(from, to)| (from - first, to - first)).collect();
        parts.sort_unstable();
        let mut apart: Vec<(u64, u64)> = Vec::new();
        for (from, end) in parts {
            match apart.last_mut() {
                Some(last) if from <= last.1 => last.1 = last.1.max(end),
                _ => apart.push((from, end)),
            }
        }
        apart
    }

    /// From now on what is pushed to `client` goes to `to`, at `node`.
    pub fn listen(&self, client: ClientId, node: Node, to: &Arc<dyn PushSink>) {
        self.lock().sinks.insert(client, (node, Arc::downgrade(to)));
    }

    /// Where `client` is and who takes what is pushed to it, while its process lives.
    pub fn listener(&self, client: ClientId) -> Option<(Node, Arc<dyn PushSink>)> {
        let inner = self.lock();
        let (node, sink) = inner.sinks.get(&client)?;
        Some((*node, sink.upgrade()?))
    }

    /// Adds a line to the schedule.
    pub fn note(&self, line: impl FnOnce() -> String) {
        let mut inner = self.lock();
        let now_us = inner.now_us;
        inner.trace.add(now_us, line());
    }

    /// Asks for quiet.
    pub fn quiet(&self) -> Quiet {
        self.lock().quiet += 1;
        Quiet(self.clone())
    }

    /// True while somebody wants quiet.
    pub fn is_quiet(&self) -> bool {
        self.lock().quiet > 0
    }

    /// A host lost power, or another one serves a partition now.
    pub fn power_lost(&self) {
        self.lock().power_losses += 1;
    }

    /// How often that happened so far: what partitions keep in memory only is gone with each.
    pub fn power_losses(&self) -> u64 {
        self.lock().power_losses
    }

    /// Reports that a promise was broken; the run ends. The first report counts.
    pub fn violation(&self, what: String) {
        let mut inner = self.lock();
        let now_us = inner.now_us;
        inner.trace.add(now_us, format!("VIOLATION {what}"));
        inner.violation.get_or_insert(what);
    }

    /// The broken promise, if any.
    pub fn violated(&self) -> Option<String> {
        self.lock().violation.clone()
    }

    /// Keeps so many lines of the schedule.
    pub fn keep_lines(&self, lines_max: usize) {
        self.lock().trace.lines_max = lines_max;
    }

    /// The last lines of the schedule.
    pub fn schedule(&self) -> String {
        self.lock().trace.text()
    }

    /// A fold of the whole schedule: equal for equal runs.
    pub fn fingerprint(&self) -> u64 {
        self.lock().trace.fingerprint()
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        // A panic inside `line()` poisons nothing that matters: the schedule is still to be printed.
        self.0.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }
}
