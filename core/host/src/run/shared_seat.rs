//! A seat that the threads of its process step where they are.
//!
//! A request takes its step on the thread that brings it, if the seat is free, and so does what another replica answers:
//! handing it to the thread of the seat and the answer back costs two switches between threads, dearer than the step
//! (decision 17). What concerns the log and the view is left to that thread, in order; everything else is carried out before the seat is let go, so
//! answers, pushes and messages leave it in the order of its steps, whoever took them.

use std::cell::Cell;
use std::collections::HashMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, TryLockError, Weak};

use braid_base::burst::{self, Due};
use braid_base::ids::{PartitionId, Term};
use braid_base::msg::fs::Request;
use braid_base::msg::lease::Answer;
use braid_base::{Error, ErrorKind, Result};
use braid_io::reactor::Mailbox;
use braid_meta::{Now, Token};
use braid_replica::LogReader;
use braid_replica::replica::event::Msg;

use super::outside;
use super::seat_actor::SeatMsg;
use super::wire::Switch;
use crate::seat::{Seat, SeatEffect, SeatEvent};

/// Who waits for the answer to a request.
pub type Waits = Box<dyn FnOnce(Answer) + Send>;

thread_local! {
    /// This thread holds a seat. What it runs for an answer meanwhile must not step at another: that one would be kept
    /// from its own work, and who holds two seats may hold all.
    static AT_SEAT: Cell<bool> = const { Cell::new(false) };
}

/// The way to a seat, for all threads of its process.
#[derive(Clone)]
pub(super) struct SeatDoor(Arc<Door>);

struct Door {
    id: PartitionId,
    mailbox: Mailbox<SeatMsg>,
    /// In which it serves; 0: it follows.
    term: Arc<AtomicU64>,
    /// Held by the seat's thread only, so that nobody waits at a seat whose thread has ended.
    seat: Weak<SharedSeat>,
    /// Messages on their way through the mailbox that no request may overtake: see [`SeatMsg::goes_first`].
    queued: Arc<AtomicUsize>,
}

/// What a door shares with its seat.
#[derive(Default)]
pub(super) struct Shared {
    pub(super) term: Arc<AtomicU64>,
    pub(super) seat: Weak<SharedSeat>,
    pub(super) queued: Arc<AtomicUsize>,
}

impl SeatDoor {
    pub(super) fn new(id: PartitionId, mailbox: Mailbox<SeatMsg>, shared: Shared) -> Self {
        let Shared { term, seat, queued } = shared;
        Self(Arc::new(Door { id, mailbox, term, seat, queued }))
    }

    /// Whose seat it is.
    pub(super) fn id(&self) -> PartitionId {
        self.0.id
    }

    /// The term in which it serves; 0: it follows.
    pub(super) fn term(&self) -> Term {
        Term(self.0.term.load(Ordering::Acquire))
    }

    /// Sends `msg` to the seat's thread. `Stopped` if that has ended.
    pub(super) fn send(&self, msg: SeatMsg) -> Result<()> {
        if msg.goes_first() {
            self.0.queued.fetch_add(1, Ordering::SeqCst);
        }
        Ok(self.0.mailbox.send(msg)?)
    }

    /// Hands a request that is meant for `term` over by the mailbox.
    pub(super) fn send_request(&self, term: Term, request: Request, waits: Waits) -> Result<()> {
        self.send(SeatMsg::Request(term, request, waits))
    }

    /// Takes the step of a request that is meant for `term`, here if the seat is free; hands it over if not.
    pub(super) fn request(&self, term: Term, request: Request, waits: Waits) -> Result<()> {
        let nothing_first = || self.0.queued.load(Ordering::SeqCst) == 0;
        let seat = self.0.seat.upgrade().filter(|_| nothing_first());
        // Asked again by the one who holds the seat: a message may have been sent just before.
        match seat.as_ref().and_then(|seat| seat.free()).filter(|_| nothing_first()) {
            Some(held) => self.stepped(held, move |held| held.request(term, request, waits, &mut NoLog)),
            None => self.send_request(term, request, waits),
        }
    }

    /// Takes the step of what another replica says, here if the seat is free: a follower answers for its primary's lease
    /// while its own thread writes the log. If not, whoever has the seat next takes it, before what comes later.
    pub(super) fn replica(&self, message: Msg) -> Result<()> {
        let Some(seat) = self.0.seat.upgrade() else { return Err(ErrorKind::Stopped.into()) };
        match seat.free() {
            Some(held) => self.stepped(held, move |held| {
                held.hear_replicas(&mut NoLog);
                held.step(SeatEvent::Replica(message), &mut NoLog);
            }),
            None => {
                seat.unheard().push(message);
                self.send(SeatMsg::Look)
            }
        }
    }

    /// Takes a step at the seat that this thread holds. At the end of the burst that it is part of, what the steps left
    /// becomes one group, and the seat's thread is told if there is something for it.
    fn stepped(&self, mut held: Held<'_>, step: impl FnOnce(&mut Held<'_>)) -> Result<()> {
        let stepped = catch_unwind(AssertUnwindSafe(move || {
            step(&mut held);
            held.core.round_ends = held.core.round_ends || burst::put_off(&self.0);
            !held.core.round_ends && held.ends_round()
        }));
        match stepped {
            Ok(false) => Ok(()),
            // The seat of a step that panicked is poisoned: its thread finds that, ends, and everybody hears of it.
            Ok(true) | Err(_) => self.send(SeatMsg::Look),
        }
    }
}

impl Due for Door {
    fn due(self: Arc<Self>) {
        let Some(seat) = self.seat.upgrade() else { return };
        // Whoever holds it may have been there before the last step: then its thread looks.
        let end = |mut held: Held<'_>| catch_unwind(AssertUnwindSafe(move || held.ends_round()));
        if !matches!(seat.try_hold().map(end), Some(Ok(false))) {
            // With the thread everybody else has ended, too.
            let _ = self.mailbox.send(SeatMsg::Look);
        }
    }
}

/// A seat and who waits for it.
pub(super) struct SharedSeat {
    id: PartitionId,
    /// Of its log.
    dir: PathBuf,
    term: Arc<AtomicU64>,
    pub(super) switch: Arc<Switch>,
    core: Mutex<Core>,
    /// What other replicas said while the seat was not free, in order.
    unheard: Mutex<Vec<Msg>>,
}

/// What changes with a step.
pub(super) struct Core {
    pub(super) seat: Seat,
    waiting: HashMap<Token, Waits>,
    next_token: u64,
    out: Vec<SeatEffect>,
    /// For the log, which the seat's thread has, oldest first: from steps taken by others.
    left: Vec<SeatEffect>,
    /// Why it no longer serves, if so.
    pub(super) failed: Option<Error>,
    /// Other threads begin nothing new.
    pub(super) stopping: bool,
    /// A thread that took a step will end the round at the end of its burst.
    round_ends: bool,
    /// When the seat's thread looks next without being told, milliseconds; 0: it was told to.
    comes_ms: u64,
    /// When the seat wants to be looked at.
    due_ms: Option<u64>,
}

/// Carries out what concerns the log.
pub(super) trait Log {
    /// Begins `effect` (`more`: others follow at once), or gives it back to be left to the seat's thread.
    fn begin(&mut self, effect: SeatEffect, more: bool) -> Option<SeatEffect>;
}

/// A thread that has no log.
struct NoLog;

impl Log for NoLog {
    fn begin(&mut self, effect: SeatEffect, _more: bool) -> Option<SeatEffect> {
        Some(effect)
    }
}

/// A seat held by this thread.
pub(super) struct Held<'a> {
    shared: &'a SharedSeat,
    pub(super) core: MutexGuard<'a, Core>,
}

impl SharedSeat {
    pub(super) fn new(id: PartitionId, dir: PathBuf, seat: Seat, switch: Arc<Switch>) -> Arc<Self> {
        let core = Core {
            seat,
            waiting: HashMap::new(),
            next_token: 0,
            out: Vec::new(),
            left: Vec::new(),
            failed: None,
            stopping: false,
            round_ends: false,
            comes_ms: u64::MAX,
            due_ms: None,
        };
        Arc::new(Self { id, dir, term: Arc::default(), switch, core: Mutex::new(core), unheard: Mutex::default() })
    }

    /// In which it serves; 0: it follows.
    pub(super) fn term(&self) -> Arc<AtomicU64> {
        Arc::clone(&self.term)
    }

    /// Waits for the seat: for its own thread. Panics if another thread panicked in a step, which ends the partition.
    pub(super) fn hold(&self) -> Held<'_> {
        let core = self.core.lock().expect("a step of this partition panicked on another thread");
        Held::new(self, core)
    }

    /// The seat, if this thread may take a step there.
    fn free(&self) -> Option<Held<'_>> {
        if AT_SEAT.get() { None } else { self.try_hold().filter(|held| !held.core.stopping) }
    }

    fn unheard(&self) -> MutexGuard<'_, Vec<Msg>> {
        self.unheard.lock().expect("nothing panics while it holds what was not heard")
    }

    fn try_hold(&self) -> Option<Held<'_>> {
        match self.core.try_lock() {
            Ok(core) => Some(Held::new(self, core)),
            Err(TryLockError::WouldBlock | TryLockError::Poisoned(_)) => None,
        }
    }
}

impl<'a> Held<'a> {
    fn new(seat: &'a SharedSeat, core: MutexGuard<'a, Core>) -> Self {
        AT_SEAT.set(true);
        Self { shared: seat, core }
    }

    /// Steps with a request that is meant for `term`.
    pub(super) fn request(&mut self, term: Term, request: Request, waits: Waits, log: &mut impl Log) {
        self.core.next_token += 1;
        let token = Token(self.core.next_token);
        self.core.waiting.insert(token, waits);
        self.step(SeatEvent::Request(token, term, request), log);
    }

    /// Takes the steps of what other replicas said while the seat was not free.
    pub(super) fn hear_replicas(&mut self, log: &mut impl Log) {
        let unheard = std::mem::take(&mut *self.shared.unheard());
        for message in unheard {
            self.step(SeatEvent::Replica(message), log);
        }
    }

    pub(super) fn step(&mut self, event: SeatEvent, log: &mut impl Log) {
        self.advance(log, |seat, now, out| seat.step(now, event, out));
    }

    /// Reads from the log what others lack.
    pub(super) fn read_log(&mut self, reader: &dyn LogReader, log: &mut impl Log) {
        self.advance(log, |seat, now, out| seat.read_log(now, reader, out));
    }

    fn advance(&mut self, log: &mut impl Log, step: impl FnOnce(&mut Seat, Now, &mut Vec<SeatEffect>)) {
        let mut out = std::mem::take(&mut self.core.out);
        step(&mut self.core.seat, outside::now(), &mut out);
        if self.core.seat.has_to_say() {
            self.core.seat.say(outside::now(), &mut out);
        }
        self.carry_out(&mut out, log);
        self.core.out = out;
    }

    /// Puts what is committed into the view, if that is due: for the seat's thread, because the engine may block.
    pub(super) fn settle(&mut self, log: &mut impl Log) {
        if self.core.seat.is_unsettled() {
            self.advance(log, |seat, now, out| seat.settle(now, out));
        }
    }

    /// Ends a round of steps that another thread took. True if the seat's thread must be told to look.
    fn ends_round(&mut self) -> bool {
        self.batch_end(&mut NoLog);
        self.thread_is_needed()
    }

    /// Ends a round of steps.
    pub(super) fn batch_end(&mut self, log: &mut impl Log) {
        self.core.round_ends = false;
        let now = outside::now();
        let mut out = std::mem::take(&mut self.core.out);
        self.core.due_ms = self.core.seat.batch_end(now, &mut out);
        self.carry_out(&mut out, log);
        self.core.out = out;
    }

    fn fail(&mut self, error: Error) {
        tracing::error!("{error}");
        self.core.failed = Some(error.clone());
        let term = self.core.seat.term();
        self.shared.term.store(0, Ordering::Release);
        for (_, waits) in self.core.waiting.drain() {
            waits(Answer::plain(term, Err(error.clone())));
        }
    }

    /// What others left for the log.
    pub(super) fn take_left(&mut self) -> Vec<SeatEffect> {
        std::mem::take(&mut self.core.left)
    }

    /// Notes that the seat's thread looks at `ms` or when the seat wants it, if that is earlier; returns which.
    pub(super) fn comes_by(&mut self, ms: u64) -> u64 {
        let comes_ms = self.core.due_ms.map_or(ms, |due_ms| due_ms.min(ms));
        self.core.comes_ms = comes_ms;
        comes_ms
    }

    /// True if the seat's thread must be told to look: something was left for it, or it would come too late. Once only.
    fn thread_is_needed(&mut self) -> bool {
        let core = &mut *self.core;
        let due = core.due_ms.is_some_and(|due_ms| due_ms < core.comes_ms);
        let needed = !core.left.is_empty() || due || core.seat.is_unsettled();
        needed && std::mem::take(&mut core.comes_ms) > 0
    }

    /// Carries out what the seat said.
    pub(super) fn carry_out(&mut self, effects: &mut Vec<SeatEffect>, log: &mut impl Log) {
        let (id, switch) = (self.shared.id, &self.shared.switch);
        let mut effects = effects.drain(..);
        while let Some(effect) = effects.next() {
            match effect {
                SeatEffect::Reply(token, answer) => {
                    if let Some(waits) = self.core.waiting.remove(&token) {
                        waits(answer);
                    }
                }
                SeatEffect::Push(push) => switch.push(push),
                SeatEffect::Peer(to, message) => switch.peer(id, to, message),
                SeatEffect::Drive(number, drive, op) => switch.drive_for_seat(id, number, drive, op),
                SeatEffect::Job(job) => switch.run_job(id, job),
                SeatEffect::ReadObject(token, key, off, len) => {
                    if let Some(waits) = self.core.waiting.remove(&token) {
                        switch.read_object(self.core.seat.term(), key, off, len, waits);
                    }
                }
                SeatEffect::Scrub(job) => switch.run_scrub(id, job),
                SeatEffect::Notice(notice) => switch.objects.events().notice(&notice),
                SeatEffect::LogWrite { .. }
                | SeatEffect::LogRead { .. }
                | SeatEffect::LogRemove(_)
                | SeatEffect::ReadLog => {
                    let more = effects.len() > 0;
                    self.core.left.extend(log.begin(effect, more));
                }
                SeatEffect::WriteMeta { off, block } => {
                    if let Err(error) = outside::write_meta(&self.shared.dir, off, &block) {
                        // What depends on it must not be said.
                        let mut failed = Vec::new();
                        self.core.seat.fail(error.within("keep the term"), &mut failed);
                        return self.carry_out(&mut failed, log);
                    }
                }
                SeatEffect::Replica(to, message) => switch.replica(to, &message),
                SeatEffect::Cas { expect, new } => switch.register(id, Some((expect, new))),
                SeatEffect::ReadConfig => switch.register(id, None),
                SeatEffect::FlushView => switch.flush_view(id, self.core.seat.applied()),
                SeatEffect::Forsaken => switch.forsake(id),
                SeatEffect::Serves => {
                    let term = self.core.seat.term();
                    self.shared.term.store(term.0, Ordering::Release);
                    tracing::info!("{id} is served here in term {term}");
                    switch.objects.events().serves(id, term);
                }
                SeatEffect::StepsDown => self.step_down(),
                SeatEffect::Failed(error) => self.fail(error),
            }
        }
    }

    /// What was asked and not answered is to be asked elsewhere.
    fn step_down(&mut self) {
        self.shared.term.store(0, Ordering::Release);
        tracing::info!("{} is not served here any more", self.shared.id);
        for (_, waits) in self.core.waiting.drain() {
            let moved = Error::new(ErrorKind::Moved, format!("{} is not served here any more", self.shared.id));
            waits(Answer::plain(Term(0), Err(moved)));
        }
    }
}

impl Drop for Held<'_> {
    fn drop(&mut self) {
        AT_SEAT.set(false);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex, mpsc};
    use std::thread;
    use std::time::Duration;

    use braid_base::attr::FileType;
    use braid_base::ids::{ClientId, FsId, Guid, HostId, Ino, OpId, PartitionId, Term};
    use braid_base::msg::fs::{Op, Reply, Request};
    use braid_base::{ErrorKind, Result};
    use braid_cluster::coordinator::Coordinator;
    use braid_cluster::embedded::Embedded;
    use braid_cluster::facts::Partition;
    use braid_cluster::records;

    use super::{SeatDoor, burst};
    use crate::run::seat_actor::SeatMsg;
    use crate::run::{Host, HostConfig};

    const WAIT: Duration = Duration::from_secs(20);

    /// A host of one partition without drives: names need none.
    struct World {
        dir: tempfile::TempDir,
        coordinator: Arc<dyn Coordinator>,
        runtime: tokio::runtime::Runtime,
        host: Host,
        /// What the requests that were answered were called, in the order of their answers.
        said: Arc<Mutex<Vec<&'static str>>>,
    }

    fn start(dir: &tempfile::TempDir, coordinator: &Arc<dyn Coordinator>, runtime: &tokio::runtime::Runtime) -> Host {
        let config = HostConfig {
            dir: dir.path().to_owned(),
            cluster: Guid([5; 16]),
            data: 1,
            parity: 1,
            shard_bytes: 1 << 20,
            host: HostId(1),
            partitions: 1,
            drives: Vec::new(),
            replicas: vec![PartitionId(0)],
            capacity_bytes: 1 << 30,
        };
        Host::start(config, coordinator, None, runtime.handle().clone()).expect("an empty folder becomes a host")
    }

    impl World {
        fn new() -> Self {
            let dir = tempfile::tempdir().expect("dir");
            let coordinator: Arc<dyn Coordinator> = Arc::new(Embedded::in_memory(Arc::new(|| 0)).expect("memory"));
            let (id, term) = (PartitionId(0), Term(0));
            let partition = Partition { id, term, primary: None, members: Vec::new(), learners: Vec::new() };
            records::create(coordinator.as_ref(), &partition).expect("its first record");
            let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build();
            let runtime = runtime.expect("a runtime");
            let host = start(&dir, &coordinator, &runtime);
            let world = Self { dir, coordinator, runtime, host, said: Arc::default() };
            let root = Op::MakeRoot { ino: Ino::root(FsId(1)), mode: 0o755 };
            answer_of(&world.door(), 1, root).expect("a root");
            world
        }

        fn door(&self) -> SeatDoor {
            self.host.switch.seat(PartitionId(0)).expect("it runs")
        }

        fn says(&self, what: &'static str) -> super::Waits {
            let said = Arc::clone(&self.said);
            Box::new(move |_| said.lock().expect("no panic").push(what))
        }

        fn said(&self) -> Vec<&'static str> {
            self.said.lock().expect("no panic").clone()
        }

        fn inodes(&self) -> u64 {
            match answer_of(&self.door(), 1 << 40, Op::Statfs) {
                Ok(Reply::Usage { inodes, .. }) => inodes,
                other => panic!("{other:?}"),
            }
        }

        /// Keeps the seat's thread at something else, without the seat, until the sender is used or gone.
        fn keep_away(&self) -> mpsc::Sender<()> {
            let ((entered, away), (back, wait)) = (mpsc::channel(), mpsc::channel());
            let keeps = move |_| {
                let _ = entered.send(());
                let _ = wait.recv_timeout(WAIT);
            };
            self.door().send(SeatMsg::Report(Box::new(keeps))).expect("it runs");
            away.recv_timeout(WAIT).expect("it is there");
            back
        }
    }

    fn request(client: u64, seq: u64, body: Op) -> Request {
        let op = OpId { client: ClientId(client), seq };
        Request { op, session: 0, done_upto: 0, fs: FsId(1), cred: Default::default(), early: true, body }
    }

    fn create(name: String) -> Op {
        let (dir, name, kind, target) = (Ino::root(FsId(1)), name.into_bytes(), FileType::File, Vec::new());
        Op::Create { dir, name, kind, mode: 0o644, umask: 0, rdev: 0, target, open: false, told: None, want: 0 }
    }

    fn answer_of(door: &SeatDoor, seq: u64, body: Op) -> Result<Reply> {
        let (tx, rx) = mpsc::channel();
        door.request(door.term(), request(1, seq, body), Box::new(move |answer| drop(tx.send(answer.result))))?;
        rx.recv_timeout(WAIT).map_err(|_| ErrorKind::TimedOut)?
    }

    #[test]
    fn what_many_threads_ask_is_answered_once_and_reaches_the_log() {
        const EACH: u64 = 300;
        let world = World::new();
        let (tx, answers) = mpsc::channel();
        thread::scope(|scope| {
            for client in 2..8 {
                let (door, tx) = (world.door(), tx.clone());
                scope.spawn(move || {
                    for seq in 1..=EACH {
                        let tx = tx.clone();
                        let waits = Box::new(move |answer: super::Answer| drop(tx.send((client, seq, answer.result))));
                        door.request(door.term(), request(client, seq, create(format!("{client}-{seq}"))), waits)
                            .expect("it runs");
                        if seq % 50 == 0 {
                            // A setting: its thread has to come.
                            door.send(SeatMsg::With(Box::new(|_| {}))).expect("it runs");
                        }
                    }
                });
            }
        });
        drop(tx);
        let mut answered = Vec::new();
        while let Ok((client, seq, result)) = answers.recv_timeout(WAIT) {
            assert!(matches!(result, Ok(Reply::Entry { .. })), "{result:?}");
            answered.push((client, seq));
        }
        answered.sort_unstable();
        let all: Vec<_> = (2..8).flat_map(|client| (1..=EACH).map(move |seq| (client, seq))).collect();
        assert_eq!(answered, all);
        assert_eq!(world.inodes(), 6 * EACH + 1);

        answer_of(&world.door(), 1 << 41, Op::Sync { ino: Ino::root(FsId(1)) }).expect("all of it is durable");
        let World { dir, coordinator, runtime, host, said } = world;
        host.stop();
        drop(host);
        std::fs::remove_dir_all(dir.path().join("kv")).expect("the view is made from the log again");
        let host = start(&dir, &coordinator, &runtime);
        assert_eq!(World { dir, coordinator, runtime, host, said }.inodes(), 6 * EACH + 1);
    }

    #[test]
    fn a_free_seat_is_stepped_by_who_asks_but_never_before_what_was_sent_to_it() {
        let world = World::new();
        let (door, back) = (world.door(), world.keep_away());
        door.request(door.term(), request(1, 10, Op::Statfs), world.says("here")).expect("it runs");
        assert_eq!(world.said(), ["here"], "its thread is away, and the seat is free");
        door.request(door.term(), request(1, 11, create("f".to_owned())), world.says("created")).expect("it runs");
        let before = world.said();
        door.send_request(door.term(), request(1, 12, Op::Statfs), world.says("sent")).expect("it runs");
        door.request(door.term(), request(1, 13, Op::Statfs), world.says("asked after it")).expect("it runs");
        assert_eq!(world.said(), before, "nobody overtakes what was sent");
        drop(back);
        assert_eq!(world.inodes(), 2);
        let said: Vec<_> = world.said().into_iter().filter(|what| *what != "created").collect();
        assert_eq!(said, ["here", "sent", "asked after it"]);
        // With nothing on its way it goes on at the seat.
        let back = world.keep_away();
        door.request(door.term(), request(1, 14, Op::Statfs), world.says("here again")).expect("it runs");
        assert_eq!(world.said().last(), Some(&"here again"));
        drop(back);
    }

    #[test]
    fn what_comes_in_one_burst_goes_to_the_log_as_one_group() {
        let world = World::new();
        let (door, back) = (world.door(), world.keep_away());
        let left = || door.0.seat.upgrade().expect("it runs").hold().core.left.len();
        burst::run(|| {
            for seq in 31..39 {
                let request = Request { early: false, ..request(1, seq, create(format!("f{seq}"))) };
                door.request(door.term(), request, Box::new(|_| {})).expect("it runs");
            }
            assert_eq!(left(), 0, "more may come");
        });
        assert_eq!(left(), 1, "one write of the log");
        drop(back);
        assert_eq!(world.inodes(), 9);
    }

    #[test]
    fn a_step_that_panics_ends_the_partition_for_everybody() {
        let world = World::new();
        let (door, back) = (world.door(), world.keep_away());
        door.request(door.term(), request(1, 21, Op::Statfs), Box::new(|_| panic!("on purpose"))).expect("taken");
        let (tx, rx) = mpsc::channel();
        // Sent to a seat that nobody can hold any more: dropped with its mailbox.
        let late = door.request(door.term(), request(1, 22, Op::Statfs), Box::new(move |answer| drop(tx.send(answer))));
        drop(back);
        let heard = late.map(|()| rx.recv_timeout(WAIT));
        assert!(!matches!(heard, Ok(Ok(_) | Err(mpsc::RecvTimeoutError::Timeout))), "{heard:?}");
        let mut tries = 0;
        while door.request(door.term(), request(1, 23, Op::Statfs), Box::new(|_| {})).is_ok() {
            tries += 1;
            assert!(tries < 2_000, "its mailbox stays open");
            world.runtime.block_on(async { tokio::time::sleep(Duration::from_millis(10)).await });
        }
    }
}
