//! The coordinator: plans, has the participants prepare, decides in its own log entry.
//!
//! 1. Plan; ask others what the plan needs and plan again (*asking*). A directory that gets another parent
//!    first waits for its turn (*queued*).
//! 2. If all changes are here: one entry, done. Else hold what is here and have the others prepare (*preparing*).
//! 3. All promised: the entry with the changes here, the decision and the kept answer. One refused or was
//!    silent: an entry with the abort, if anyone may have promised.
//! 4. The decision is told until all have acknowledged (`outcome.rs`).
//!
//! A flight is volatile. After a restart the participants ask, and hear of an abort that is logged first.

use std::collections::BTreeSet;

use braid_base::attr::Attr;
use braid_base::ids::{Ino, OpId, PartitionId};
use braid_base::msg::fs::{Reply, Request};
use braid_base::msg::peer::{Answer, Intent, Note, PeerMsg, Question};
use braid_base::{Error, ErrorKind, Result};

use crate::event::Effect;
use crate::leases;
use crate::ops::{self, Verdict};
use crate::peers::plan::{Facts, Plan, Stop, View};
use crate::peers::{Caller, NO_TX, forward, intent, numbers, outcome, post};
use crate::state::State;
use crate::txn::Txn;

/// Unanswered messages are repeated after this time, milliseconds.
const RESEND_MS: u64 = 200;
/// A flight that has not been decided after this time is aborted: its client repeats it. Milliseconds.
const FLIGHT_MS: u64 = 5_000;
/// Flights at once; more are `Busy`.
const FLIGHTS_MAX: usize = 16_384;

/// An operation that is not decided yet.
#[derive(Clone)]
pub(crate) struct Flight {
    request: Request,
    pub(super) callers: Vec<Caller>,
    facts: Facts,
    pub(super) has_turn: bool,
    /// Its number, once it had to wait for someone.
    tx: Option<OpId>,
    phase: Phase,
    since_ms: u64,
    sent_ms: u64,
}

#[derive(Clone)]
enum Phase {
    Queued,
    Asking { to: PartitionId, number: u32, question: Question },
    Preparing(Box<Preparing>),
}

#[derive(Clone)]
struct Preparing {
    plan: Plan,
    /// Have not answered.
    waits: BTreeSet<PartitionId>,
    /// What was made or linked.
    attr: Option<Attr>,
}

/// Runs a request that may span partitions: at once if it does not.
pub(crate) fn start(t: &mut Txn<'_>, s: &mut State, caller: Caller, request: &Request) -> Result<Verdict> {
    if s.dedup.forwarded(t, request.op)? {
        forward::pass_on(t, s, vec![caller], request.clone());
        return Ok(Verdict::Later);
    }
    if s.peers.flights.len() >= FLIGHTS_MAX {
        return Err(Error::new(ErrorKind::Busy, "too many operations across partitions are under way; try again"));
    }
    let flight = Flight {
        request: request.clone(),
        callers: vec![caller],
        facts: Facts::new(),
        has_turn: false,
        tx: None,
        phase: Phase::Queued,
        since_ms: t.now.mono_ms,
        sent_ms: t.now.mono_ms,
    };
    Ok(advance(t, s, flight)?.map_or(Verdict::Later, Verdict::Reply))
}

/// Plans as far as the facts go. `Some` if the operation is done, `None` if it waits or was passed on.
fn advance(t: &mut Txn<'_>, s: &mut State, mut flight: Flight) -> Result<Option<Reply>> {
    let Request { op, fs, body, .. } = &flight.request;
    leases::may_look(t, s, *fs, op.client, &ops::dirs(body))?;
    loop {
        let view = View { t: &*t, s: &*s, fs: flight.request.fs, facts: &flight.facts, has_turn: flight.has_turn };
        match ops::plan(&view, &flight.request) {
            Ok(plan) => return launch(t, s, flight, plan),
            Err(Stop::Fail(error)) => return Err(error),
            Err(Stop::Home) => {
                forward::pass_on(t, s, flight.callers, flight.request);
                return Ok(None);
            }
            Err(Stop::Turn) if s.peers.turn_is_free() => {
                flight.has_turn = true;
                // The path may have changed until now; from now on it stands still.
                flight.facts.clear();
                flight.since_ms = t.now.mono_ms;
            }
            Err(Stop::Turn) => {
                flight.phase = Phase::Queued;
                let tx = park(t, s, flight);
                s.peers.queue.push_back(tx);
                return Ok(None);
            }
            Err(Stop::Ask(to, question)) => {
                let number = s.peers.next_question();
                flight.phase = Phase::Asking { to, number, question };
                let tx = park(t, s, flight);
                send(t, s, tx);
                return Ok(None);
            }
        }
    }
}

/// Carries the plan out if it is all here, else has the others prepare.
fn launch(t: &mut Txn<'_>, s: &mut State, mut flight: Flight, mut plan: Plan) -> Result<Option<Reply>> {
    for caller in &flight.callers {
        if let (Caller::Peer(from), false) = (caller, plan.parts.is_empty()) {
            plan.add(*from, Intent::Wanted { op: flight.request.op });
        }
    }
    let own = plan.parts.get(&t.partition).cloned().unwrap_or_default();
    let fs = flight.request.fs;
    let waits: BTreeSet<PartitionId> = plan.parts.keys().copied().filter(|at| *at != t.partition).collect();
    if let (Some(error), true) = (&plan.refusal, waits.is_empty()) {
        return Err(error.clone());
    }
    leases::may_look(t, s, fs, flight.request.op.client, &intent::changed_by(&own))?;
    for intent in &own {
        intent::check(t, s, flight.tx.unwrap_or(NO_TX), fs, intent)?;
    }
    let noted = plan.notes.iter().map(post::ino_of);
    let changed: Vec<Ino> = intent::changed_by(&own).into_iter().chain(noted).collect();
    leases::may_change(t, s, fs, flight.request.op.client, &changed)?;
    if !waits.is_empty() {
        leases::hide(t, s, fs, plan.notes.iter().map(post::ino_of));
    }
    if waits.is_empty() {
        let (reply, notes) = carry_out(t, s, &flight.request, &plan, None)?;
        return Ok(post::conclude(t, s, &flight.callers, &flight.request, notes, reply));
    }
    flight.phase = Phase::Preparing(Box::new(Preparing { plan, waits, attr: None }));
    // A number of now: one that was taken before the questions would come too late at a busy participant.
    flight.tx = None;
    let tx = park(t, s, flight);
    for intent in &own {
        s.peers.held.hold(tx, false, fs, intent);
    }
    send(t, s, tx);
    Ok(None)
}

/// Makes the changes of this partition. What others are to be told comes back.
fn carry_out(
    t: &mut Txn<'_>,
    s: &mut State,
    request: &Request,
    plan: &Plan,
    mut attr: Option<Attr>,
) -> Result<(Reply, Vec<Note>)> {
    for intent in plan.parts.get(&t.partition).into_iter().flatten() {
        let mut intent = with_inode(intent.clone(), attr.as_ref());
        attr = intent::promise(t, s, request.fs, &mut intent)?.or(attr);
        intent::fulfil(t, s, request.fs, &intent)?;
    }
    let notes = post::carry_out_here(t, s, request.fs, &plan.notes)?;
    let reply = match (plan.reply.clone(), attr) {
        (Reply::Entry { .. }, Some(attr)) => Reply::Entry { ino: attr.ino, kind: attr.kind, attr: Some(attr) },
        (reply, _) => reply,
    };
    Ok((reply, notes))
}

/// A name that was planned before its inode was made or linked gets the inode's number and type.
fn with_inode(intent: Intent, made: Option<&Attr>) -> Intent {
    match (intent, made) {
        (Intent::Set { dir, name, old, ino, .. }, Some(attr)) if ino == attr.ino || is_open(ino, attr.ino) => {
            Intent::Set { dir, name, old, ino: attr.ino, kind: attr.kind }
        }
        (intent, _) => intent,
    }
}

fn is_open(planned: Ino, made: Ino) -> bool {
    planned.seq() == 0 && planned.vp() == made.vp()
}

/// Keeps a flight that waits for something.
fn park(t: &mut Txn<'_>, s: &mut State, mut flight: Flight) -> OpId {
    let tx = flight.tx.unwrap_or_else(|| s.peers.numbers.next(t));
    flight.tx = Some(tx);
    flight.sent_ms = t.now.mono_ms;
    if flight.has_turn {
        s.peers.mover = Some(tx);
    }
    s.peers.by_op.insert(flight.request.op, tx);
    s.peers.flights.insert(tx, flight);
    tx
}

/// Says, or repeats, what the flight waits to hear about.
fn send(t: &mut Txn<'_>, s: &State, tx: OpId) {
    let Some(flight) = s.peers.flights.get(&tx) else { return };
    let fs = flight.request.fs;
    numbers::wait_for(t);
    match &flight.phase {
        Phase::Queued => {}
        Phase::Asking { to, number, question } => {
            t.after(Effect::Peer(*to, PeerMsg::Ask { tx, number: *number, fs, what: question.clone() }));
        }
        Phase::Preparing(preparing) => {
            for to in &preparing.waits {
                let intents = preparing.plan.parts.get(to).cloned().unwrap_or_default();
                t.after(Effect::Peer(*to, PeerMsg::Prepare { tx, fs, client: flight.request.op.client, intents }));
            }
        }
    }
}

/// A fact has arrived.
pub(super) fn told(t: &mut Txn<'_>, s: &mut State, tx: OpId, number: u32, answer: Result<Answer>) {
    let Some(flight) = s.peers.flights.get_mut(&tx) else { return };
    let question = match &flight.phase {
        Phase::Asking { number: asked, question, .. } if *asked == number => question.clone(),
        _ => return,
    };
    match answer {
        Ok(answer) => {
            flight.facts.push((question, answer));
            resume(t, s, tx);
        }
        Err(error) => leave(t, s, tx, Err(error)),
    }
}

/// Plans on with a parked flight.
fn resume(t: &mut Txn<'_>, s: &mut State, tx: OpId) {
    let Some(flight) = s.peers.flights.remove(&tx) else { return };
    let (request, callers) = (flight.request.clone(), flight.callers.clone());
    release(s, tx, request.op);
    match t.attempt(|t| advance(t, s, flight)) {
        // Parked again, passed on, or waiting for notes: whoever has it has its callers.
        Ok(None) => {}
        Ok(Some(reply)) => {
            s.dedup.keep(t, &request, &reply);
            crate::peers::answer(t, &callers, request.op, &Ok(reply));
        }
        Err(error) => crate::peers::answer(t, &callers, request.op, &Err(error)),
    }
}

/// A participant promised or refused.
pub(super) fn prepared(t: &mut Txn<'_>, s: &mut State, from: PartitionId, tx: OpId, result: Result<Option<Attr>>) {
    let Some(flight) = s.peers.flights.get_mut(&tx) else { return };
    let Phase::Preparing(preparing) = &mut flight.phase else { return };
    if !preparing.plan.parts.contains_key(&from) {
        return;
    }
    match result {
        Ok(attr) => {
            preparing.attr = attr.or(preparing.attr.take());
            preparing.waits.remove(&from);
            if preparing.waits.is_empty() {
                decide(t, s, tx);
            }
        }
        Err(error) => abort(t, s, tx, Some(from), error),
    }
}

/// All have promised: this entry is the decision.
fn decide(t: &mut Txn<'_>, s: &mut State, tx: OpId) {
    let Some(Flight { request, phase: Phase::Preparing(preparing), .. }) = s.peers.flights.get(&tx).cloned() else {
        return;
    };
    let Preparing { plan, attr, .. } = *preparing;
    let done = t.attempt(|t| {
        for intent in plan.parts.get(&t.partition).into_iter().flatten() {
            intent::check(t, s, tx, request.fs, intent)?;
        }
        plan.refusal.clone().map_or(Ok(()), Err)?;
        carry_out(t, s, &request, &plan, attr)
    });
    match done {
        Ok((reply, notes)) => {
            outcome::log(t, s, tx, true, plan.moves, others(t, &plan, None));
            let callers = forget(t, s, tx);
            if let Some(reply) = post::conclude(t, s, &callers, &request, notes, reply) {
                s.dedup.keep(t, &request, &reply);
                crate::peers::answer(t, &callers, request.op, &Ok(reply));
            }
        }
        Err(error) => abort(t, s, tx, None, error),
    }
}

/// It will not be done. Whoever refused needs no word; whoever may have promised hears of the abort, logged first.
fn abort(t: &mut Txn<'_>, s: &mut State, tx: OpId, refused: Option<PartitionId>, error: Error) {
    let Some(Flight { phase: Phase::Preparing(preparing), .. }) = s.peers.flights.get(&tx) else {
        return leave(t, s, tx, Err(error));
    };
    let participants = others(t, &preparing.plan, refused);
    if !participants.is_empty() {
        outcome::log(t, s, tx, false, false, participants);
    }
    leave(t, s, tx, Err(error));
}

fn others(t: &Txn<'_>, plan: &Plan, but: Option<PartitionId>) -> BTreeSet<PartitionId> {
    plan.parts.keys().copied().filter(|at| *at != t.partition && Some(*at) != but).collect()
}

/// The flight ends with this answer.
fn leave(t: &mut Txn<'_>, s: &mut State, tx: OpId, result: Result<Reply>) {
    let Some(op) = s.peers.flights.get(&tx).map(|flight| flight.request.op) else { return };
    let callers = forget(t, s, tx);
    crate::peers::answer(t, &callers, op, &result);
}

/// Gives up what a flight holds; returns who waits for its answer.
fn forget(t: &Txn<'_>, s: &mut State, tx: OpId) -> Vec<Caller> {
    let Some(flight) = s.peers.flights.remove(&tx) else { return Vec::new() };
    release(s, tx, flight.request.op);
    if let Phase::Preparing(preparing) = &flight.phase {
        for intent in preparing.plan.parts.get(&t.partition).into_iter().flatten() {
            s.peers.held.release(tx, flight.request.fs, intent);
        }
    }
    flight.callers
}

fn release(s: &mut State, tx: OpId, op: OpId) {
    if s.peers.by_op.get(&op) == Some(&tx) {
        s.peers.by_op.remove(&op);
    }
    if s.peers.mover == Some(tx) {
        s.peers.mover = None;
    }
    s.peers.queue.retain(|waiting| *waiting != tx);
}

/// Lets the next queued directory move plan, if it may.
pub(super) fn next_move(t: &mut Txn<'_>, s: &mut State) {
    while s.peers.turn_is_free() {
        let Some(tx) = s.peers.queue.pop_front() else { return };
        resume(t, s, tx);
    }
}

/// Background: repeats unanswered messages, gives up what takes too long.
pub(super) fn care(t: &mut Txn<'_>, s: &mut State) {
    let now = t.now.mono_ms;
    let old: Vec<OpId> =
        s.peers.flights.iter().filter(|(_, f)| now >= f.since_ms + FLIGHT_MS).map(|(tx, _)| *tx).collect();
    for tx in old {
        abort(t, s, tx, None, Error::new(ErrorKind::Busy, "another partition did not answer in time; try again"));
    }
    let silent: Vec<OpId> =
        s.peers.flights.iter().filter(|(_, f)| now >= f.sent_ms + RESEND_MS).map(|(tx, _)| *tx).collect();
    for tx in silent {
        send(t, s, tx);
        if let Some(flight) = s.peers.flights.get_mut(&tx) {
            flight.sent_ms = now;
        }
    }
}
