//! One thread = one actor = one ring + one mailbox.
//!
//! ```text
//!   Mailbox::send ──► queue ──┐                       ┌─► on_msg  ─┐
//!                    eventfd ─┤  thread: take all ────┼─► on_io   ─┼─► on_batch ─► one system call: submit, wait
//!   kernel completions ───────┘  that is at hand      └─► on_timer─┘
//! ```
//!
//! Or the actor is a task of a runtime, whose threads take its rounds between others (`hosted`).
//!
//! A message costs a system call only if the actor sleeps. Buffers belong to the ring until the kernel is done
//! with them, even if the actor stops or panics. Where io_uring is not to be had (sysctl, seccomp, an old kernel, or
//! `BRAID_IO=blocking`), a few threads do the same operations with `pread` and `pwritev2`.

mod blocking;
mod hosted;
mod job;
mod mailbox;
mod uring;

use std::collections::VecDeque;
use std::path::Path;
use std::sync::Arc;
use std::sync::mpsc;
use std::thread::JoinHandle;

use braid_base::{Error, ErrorKind, Result};
use bytes::Bytes;

use crate::clock::{self, Now};
use crate::file::{File, OpenMode};
use braid_base::burst;

pub use hosted::Ending;
pub use mailbox::{Mailbox, Stopped};

/// The actor's name for one I/O; comes back with its completion.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Token(pub u64);

/// An open file of one actor (or of a simulated disk).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FileId(pub u32);

/// One I/O. Offsets and lengths are bytes.
#[derive(Clone, Debug)]
pub enum IoOp {
    /// Read; any offset and length. The answer is shorter only at the end of the file.
    Read {
        /// The file.
        file: FileId,
        /// From here.
        off: u64,
        /// So many bytes.
        len: usize,
    },
    /// Write all of `data`, one piece behind the other. On a direct file offset and total length must be multiples
    /// of 4096 (`Invalid` if not); pieces that are not aligned are gathered into a copy.
    Write {
        /// The file.
        file: FileId,
        /// To here.
        off: u64,
        /// The pieces.
        data: Vec<Bytes>,
        /// On the medium at completion (RWF_DSYNC).
        durable: bool,
    },
    /// Make all completed writes of the file durable.
    Sync {
        /// The file.
        file: FileId,
    },
    /// Tell the device that the range is not needed. A hint: devices that cannot do it succeed.
    Discard {
        /// The file.
        file: FileId,
        /// From here.
        off: u64,
        /// So many bytes.
        len: u64,
    },
}

/// A completed I/O.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum IoDone {
    /// What was read, in aligned memory if the offset was aligned.
    Read(Bytes),
    /// Written, synced or discarded.
    Done,
}

/// A state machine with a thread of its own. All calls come from that thread.
pub trait Actor {
    /// What its mailbox carries.
    type Msg: Send + 'static;

    /// A message came.
    fn on_msg(&mut self, msg: Self::Msg, turn: &mut Turn);

    /// An I/O that was submitted as `token` ended.
    fn on_io(&mut self, token: Token, result: Result<IoDone>, turn: &mut Turn);

    /// All events at hand were taken: the moment for group commit.
    fn on_batch(&mut self, _turn: &mut Turn) {}

    /// The time set by [`Turn::set_timer`] has come.
    fn on_timer(&mut self, _turn: &mut Turn) {}

    /// The last mailbox handle is gone and the queue is empty. Stops unless overridden.
    fn on_closed(&mut self, turn: &mut Turn) {
        turn.stop();
    }
}

/// Which engine does the I/O.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Backend {
    /// io_uring if the kernel allows it and the environment does not say `BRAID_IO=blocking`.
    Auto,
    /// io_uring or an error.
    Uring,
    /// A few threads with blocking calls.
    Blocking,
}

/// Where an actor runs.
#[derive(Clone, Debug)]
pub enum Place {
    /// On a thread of its own, where it may block.
    Thread,
    /// On a runtime, behind what its sockets bring. No round may block.
    Runtime(tokio::runtime::Handle),
}

impl Place {
    /// On `runtime` if that has one worker only: there every message to another thread is a switch that costs more than what
    /// it brings (decision 45). Else on a thread, which a processor may have free.
    pub fn beside(runtime: &tokio::runtime::Handle) -> Self {
        if runtime.metrics().num_workers() == 1 { Self::Runtime(runtime.clone()) } else { Self::Thread }
    }
}

/// Starts the actor that `make` builds, at `place`. Returns when it is built; its error is returned.
pub fn start<A, F>(place: &Place, name: &str, backend: Backend, make: F) -> Result<(Mailbox<A::Msg>, Ending)>
where
    A: Actor + Send + 'static,
    F: FnOnce(&mut Turn) -> Result<A> + Send + 'static,
{
    match place {
        Place::Runtime(runtime) => hosted::spawn(name, backend, runtime, make),
        Place::Thread => {
            let ending = Ending::default();
            let (mailbox, _thread) = spawn_until(name, backend, make, ending.at_drop())?;
            Ok((mailbox, ending))
        }
    }
}

/// Starts `actor` on a thread called `name` (the kernel shows its first 15 bytes).
pub fn spawn<A: Actor + Send + 'static>(name: &str, actor: A) -> Result<(Mailbox<A::Msg>, JoinHandle<()>)> {
    spawn_with(name, Backend::Auto, move |_| Ok(actor))
}

/// Starts the actor that `make` builds on the new thread, where it may open files. Returns when it is built; its
/// error is returned.
pub fn spawn_with<A, F>(name: &str, backend: Backend, make: F) -> Result<(Mailbox<A::Msg>, JoinHandle<()>)>
where
    A: Actor,
    F: FnOnce(&mut Turn) -> Result<A> + Send + 'static,
{
    spawn_until(name, backend, make, ())
}

/// The same; `at_end` is dropped when all else is.
fn spawn_until<A, F, T>(name: &str, backend: Backend, make: F, at_end: T) -> Result<(Mailbox<A::Msg>, JoinHandle<()>)>
where
    A: Actor,
    F: FnOnce(&mut Turn) -> Result<A> + Send + 'static,
    T: Send + 'static,
{
    let (mailbox, inbox) = mailbox::channel()?;
    let waker = inbox.waker();
    let (ready, built) = mpsc::sync_channel(1);
    let thread = std::thread::Builder::new().name(name.to_owned()).spawn(move || {
        let _at_end = at_end;
        let mut turn = match Engine::new(backend, waker) {
            Ok(engine) => Turn::new(engine, false),
            Err(error) => return drop(ready.send(Err(error))),
        };
        match make(&mut turn) {
            Ok(actor) => {
                // The starter waits for this answer, so it cannot be gone.
                let _ = ready.send(Ok(()));
                run(actor, inbox, turn);
            }
            Err(error) => drop(ready.send(Err(error))),
        }
    });
    let thread = thread.map_err(|e| Error::os(format!("start thread {name}"), &e))?;
    match built.recv() {
        Ok(Ok(())) => Ok((mailbox, thread)),
        Ok(Err(error)) => Err(error),
        Err(_) => Err(Error::new(ErrorKind::Stopped, format!("thread {name} died while it started; see its panic"))),
    }
}

fn run<A: Actor>(mut actor: A, mut inbox: mailbox::Inbox<A::Msg>, mut turn: Turn) {
    let mut messages = VecDeque::new();
    let mut completions = Vec::new();
    loop {
        turn.now = clock::now();
        let closed = inbox.take(&mut messages);
        turn.engine.reap(&mut completions);
        completions.extend(turn.early.drain(..));
        burst::run(|| round(&mut actor, &mut turn, &mut messages, &mut completions, closed));
        turn.work_here();
        if turn.stopping {
            break;
        }
        // One system call hands over what was submitted and waits, unless something is at hand already.
        turn.engine.sleep(turn.timer, || turn.early.is_empty() && inbox.is_idle());
    }
    // Messages that came too late are dropped with the inbox; whoever waits for an answer sees its sender gone.
    turn.engine.drain();
}

/// All events at hand, and what follows from them together.
fn round<A: Actor>(
    actor: &mut A,
    turn: &mut Turn,
    messages: &mut VecDeque<A::Msg>,
    completions: &mut Completions,
    closed: bool,
) {
    let mut worked = closed || !messages.is_empty() || !completions.is_empty();
    messages.drain(..).for_each(|msg| actor.on_msg(msg, turn));
    completions.drain(..).for_each(|(token, result)| actor.on_io(token, result, turn));
    if turn.timer.is_some_and(|at| at <= turn.now.mono_us) {
        worked = true;
        turn.timer = None;
        actor.on_timer(turn);
    }
    if closed {
        actor.on_closed(turn);
    }
    if worked {
        actor.on_batch(turn);
    }
}

/// What an actor may do while it handles an event.
pub struct Turn {
    now: Now,
    engine: Engine,
    files: Vec<Option<Arc<File>>>,
    early: VecDeque<(Token, Result<IoDone>)>,
    /// What this thread does itself at the end of the round.
    here: VecDeque<job::Job>,
    /// Others need this thread, too: see [`hosted`].
    is_hosted: bool,
    /// When `on_timer` is due, microseconds.
    timer: Option<u64>,
    stopping: bool,
}

impl Turn {
    fn new(engine: Engine, is_hosted: bool) -> Self {
        let (early, here) = Default::default();
        Self { now: clock::now(), engine, files: Vec::new(), early, here, is_hosted, timer: None, stopping: false }
    }

    /// When this round of events began.
    pub fn now(&self) -> Now {
        self.now
    }

    /// Starts an I/O; its end comes as `on_io(token)`, never before this event is handled.
    pub fn submit(&mut self, token: Token, op: IoOp) {
        match self.job(token, op) {
            Ok(job) => self.engine.submit(job),
            Err(error) => self.early.push_back((token, Err(error))),
        }
    }

    /// Does an I/O on this thread, at the end of the round; its end comes as `on_io(token)`. For a short one without which
    /// the actor has little to do: a small durable write costs two switches of threads, as a request to the ring it costs
    /// five, because workers of the kernel wait for the flush and wake the thread. The actor hears nothing meanwhile.
    /// As [`Self::submit`] where others need this thread.
    pub fn submit_here(&mut self, token: Token, op: IoOp) {
        if self.is_hosted {
            return self.submit(token, op);
        }
        match self.job(token, op) {
            Ok(job) => self.here.push_back(job),
            Err(error) => self.early.push_back((token, Err(error))),
        }
    }

    fn job(&self, token: Token, op: IoOp) -> Result<job::Job> {
        let id = op.file();
        match self.files.get(id.0 as usize).and_then(Option::as_ref) {
            Some(file) => job::Job::new(token, Arc::clone(file), op),
            None => Err(Error::new(ErrorKind::Invalid, format!("file {} is not open here", id.0))),
        }
    }

    fn work_here(&mut self) {
        if self.here.is_empty() {
            return;
        }
        self.hand_over();
        while let Some(mut job) = self.here.pop_front() {
            let result = job.run();
            self.early.push_back((job.token, result));
        }
    }

    /// Hands over at once what was submitted, for an actor that has much else to do in this round.
    pub fn hand_over(&mut self) {
        if let Engine::Uring(ring) = &mut self.engine {
            ring.flush();
        }
    }

    /// Opens a file (blocks the actor for a moment).
    pub fn open(&mut self, path: &Path, mode: OpenMode) -> Result<FileId> {
        Ok(self.adopt(File::open(path, mode)?))
    }

    /// Takes over a file that was opened elsewhere.
    pub fn adopt(&mut self, file: File) -> FileId {
        let slot = self.files.iter().position(Option::is_none).unwrap_or_else(|| {
            self.files.push(None);
            self.files.len() - 1
        });
        self.files[slot] = Some(Arc::new(file));
        FileId(u32::try_from(slot).expect("a process has far fewer than 2^32 descriptors"))
    }

    /// The open file behind an id, for its path and for blocking calls.
    pub fn file(&self, id: FileId) -> Option<&File> {
        self.files.get(id.0 as usize).and_then(Option::as_deref)
    }

    /// Closes a file; I/O under way on it still ends properly. The id may be given out again.
    pub fn close(&mut self, id: FileId) {
        if let Some(slot) = self.files.get_mut(id.0 as usize) {
            *slot = None;
        }
    }

    /// Asks for `on_timer` when the clock shows `mono_us`; replaces an earlier request.
    pub fn set_timer(&mut self, mono_us: u64) {
        self.timer = Some(mono_us);
    }

    /// I/Os submitted and not yet reported.
    pub fn in_flight(&self) -> usize {
        self.engine.in_flight() + self.early.len() + self.here.len()
    }

    /// Ends the actor after this round. I/O under way is waited for, but not reported.
    pub fn stop(&mut self) {
        self.stopping = true;
    }
}

impl IoOp {
    /// The file it works on.
    pub fn file(&self) -> FileId {
        match *self {
            Self::Read { file, .. } | Self::Write { file, .. } | Self::Sync { file } | Self::Discard { file, .. } => {
                file
            }
        }
    }
}

type Completions = Vec<(Token, Result<IoDone>)>;

enum Engine {
    Uring(Box<uring::Uring>),
    Blocking(blocking::Blocking),
}

impl Engine {
    fn new(backend: Backend, waker: Arc<mailbox::Waker>) -> Result<Self> {
        let forced = std::env::var_os("BRAID_IO").is_some_and(|v| v == "blocking");
        if backend == Backend::Blocking || (backend == Backend::Auto && forced) {
            return Ok(Self::Blocking(blocking::Blocking::new(waker)));
        }
        let ring = if waker.fd().is_some() { uring::Uring::new } else { uring::Uring::hosted };
        match ring(Arc::clone(&waker)) {
            Ok(ring) => Ok(Self::Uring(Box::new(ring))),
            Err(error) if backend == Backend::Uring => Err(Error::os("set up io_uring", &error)),
            Err(error) => {
                tracing::warn!("no io_uring here ({error}); threads with blocking calls are used, which is slower");
                Ok(Self::Blocking(blocking::Blocking::new(waker)))
            }
        }
    }

    fn submit(&mut self, job: job::Job) {
        match self {
            Self::Uring(ring) => ring.submit(job),
            Self::Blocking(pool) => pool.submit(job),
        }
    }

    fn in_flight(&self) -> usize {
        match self {
            Self::Uring(ring) => ring.in_flight(),
            Self::Blocking(pool) => pool.in_flight(),
        }
    }

    /// It has something to report or to hand over, and nobody will say so once more.
    fn is_behind(&mut self) -> bool {
        match self {
            Self::Uring(ring) => ring.is_behind(),
            Self::Blocking(pool) => pool.has_ended(),
        }
    }

    fn reap(&mut self, out: &mut Completions) {
        match self {
            Self::Uring(ring) => ring.reap(out),
            Self::Blocking(pool) => pool.reap(out),
        }
    }

    /// Hands over what was submitted, and sleeps until something happens or the clock shows `until` (microseconds). `idle` is asked once more after the
    /// thread is marked asleep, so that no wake-up is lost.
    fn sleep(&mut self, until: Option<u64>, idle: impl Fn() -> bool) {
        match self {
            Self::Uring(ring) => ring.sleep(until, idle),
            Self::Blocking(pool) => pool.sleep(until, idle),
        }
    }

    fn drain(&mut self) {
        let mut late = Vec::new();
        while self.in_flight() > 0 {
            self.sleep(None, || true);
            self.reap(&mut late);
            late.clear();
        }
    }
}
