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
use braid_base::ids::{Index, PartitionId, Term};
use braid_base::msg::fs::Request;
use braid_base::msg::lease::Answer;
use braid_base::{Error, ErrorKind, Result};
use braid_io::reactor::Mailbox;
use braid_meta::{Now, Token};
use braid_replica::LogReader;
use braid_replica::replica::event::Msg;
use bytes::Bytes;

use super::outside;
use super::seat_actor::SeatMsg;
use super::wire::Switch;
use crate::seat::{Seat, SeatEffect, SeatEvent, StageCache};

/// Messages of other replicas that wait for a seat; more are lost, as on their way: whoever has it is held up by its disk.
const UNHEARD_MAX: usize = 1_000;

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

    /// Staged bytes of a committed entry, if they are at hand: without a step.
    pub(super) fn staged(&self, at: Index, poff: u32, len: u32) -> Option<Bytes> {
        self.0.seat.upgrade()?.staged.get(at, poff, len)
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
                let mut unheard = seat.unheard();
                if unheard.len() == UNHEARD_MAX {
                    return Ok(());
                }
                unheard.push(message);
                drop(unheard);
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
    staged: StageCache,
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
    /// When the seat's thread looks next without being told, microseconds; 0: it was told to.
    comes_us: u64,
    /// When the seat wants to be looked at.
    due_us: Option<u64>,
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
            comes_us: u64::MAX,
            due_us: None,
        };
        let staged = core.seat.staged();
        let (term, unheard) = Default::default();
        Arc::new(Self { id, dir, term, switch, core: Mutex::new(core), unheard, staged })
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
        self.core.due_us = self.core.seat.batch_end(now, &mut out);
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

    /// Notes that the seat's thread looks at `us` or when the seat wants it, if that is earlier; returns which.
    pub(super) fn comes_by(&mut self, us: u64) -> u64 {
        let comes_us = self.core.due_us.map_or(us, |due_us| due_us.min(us));
        self.core.comes_us = comes_us;
        comes_us
    }

    /// True if the seat's thread must be told to look: something was left for it, or it would come too late. Once only.
    fn thread_is_needed(&mut self) -> bool {
        let core = &mut *self.core;
        let due = core.due_us.is_some_and(|due_us| due_us < core.comes_us);
        let needed = !core.left.is_empty() || due || core.seat.is_unsettled();
        needed && std::mem::take(&mut core.comes_us) > 0
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
                    // The disk may hang: then another thread takes the place of this one at its runtime.
                    let note = || outside::write_meta(&self.shared.dir, off, &block);
                    if let Err(error) = tokio::task::block_in_place(note) {
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
mod tests;
