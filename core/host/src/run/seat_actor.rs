//! Runs one [`Seat`] on a thread with a ring: the seat decides, this carries out.

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::{Arc, mpsc};
use std::time::Duration;

use braid_base::ids::{Index, PartitionId};
use braid_base::msg::drive::DriveResult;
use braid_base::msg::fs::Request;
use braid_base::msg::lease::Answer;
use braid_base::msg::peer::PeerMsg;
use braid_base::{Error, ErrorKind, Result};
use braid_cluster::coordinator::Coordinator;
use braid_io::reactor::{Actor, IoDone, IoOp, Mailbox, Token as IoToken, Turn};
use braid_meta::{DataStatus, Now, Token};
use braid_replica::Kv;
use braid_replica::log::Segment;
use bytes::Bytes;

use super::outside::{self, Store};
use super::segments::SegmentDir;
use super::wire::Switch;
use crate::seat::{Seat, SeatConfig, SeatEffect, SeatEvent, SeatStat};

/// How often a seat looks at its background work, milliseconds.
const TICK_MS: u64 = 100;
/// How often a log that has no room for its next segment tries again, milliseconds.
const ROOM_MS: u64 = 1_000;
/// How long to wait for the next seat that says something of itself.
const REPORT_WAIT: Duration = Duration::from_secs(2);

/// What a seat's mailbox carries.
pub enum SeatMsg {
    /// A client's request and who waits for the answer.
    Request(Request, Box<dyn FnOnce(Answer) + Send>),
    /// Another partition's message.
    Peer(PartitionId, PeerMsg),
    /// A bulk move ended.
    JobDone(u64, Result<()>),
    /// A drive answered.
    Drive(u64, DriveResult),
    /// The view was flushed.
    Flushed(Index),
    /// What do you know?
    Report(Box<dyn FnOnce(SeatReport) + Send>),
    /// Run this on the seat, between two events (settings).
    With(Box<dyn FnOnce(&mut Seat) + Send>),
    /// Note where the log ends, once all that is on its way to it has come there, and end the thread.
    Stop,
}

/// A seat's state for status and housekeeping.
#[derive(Clone, Debug)]
pub struct SeatReport {
    /// The partition.
    pub partition: PartitionId,
    /// Its log.
    pub stat: SeatStat,
    /// Its file data.
    pub data: DataStatus,
    /// Why it no longer serves, if so.
    pub failed: Option<Error>,
    /// Why changes of file data wait, if they do (what needs no log entry goes on).
    pub waits: Option<Error>,
}

/// What each of `seats` says of itself, in order of partitions. One that does not answer in time is left out.
pub(super) fn reports(seats: &[Mailbox<SeatMsg>]) -> Vec<SeatReport> {
    let (tx, rx) = mpsc::channel();
    for seat in seats {
        let tx = tx.clone();
        let _ = seat.send(SeatMsg::Report(Box::new(move |report| drop(tx.send(report)))));
    }
    drop(tx);
    let mut reports: Vec<SeatReport> = std::iter::from_fn(|| rx.recv_timeout(REPORT_WAIT).ok()).collect();
    reports.sort_by_key(|report| report.partition);
    reports
}

/// What a seat's thread starts with.
pub(super) struct SeatStart {
    pub(super) config: SeatConfig,
    pub(super) kv: Arc<dyn Kv>,
    pub(super) dir: PathBuf,
    pub(super) coordinator: Arc<dyn Coordinator>,
    pub(super) switch: Arc<Switch>,
}

/// The shell of one seat.
pub(super) struct SeatActor {
    id: PartitionId,
    seat: Seat,
    segments: SegmentDir,
    dir: PathBuf,
    /// Nothing new begins.
    stopping: bool,
    switch: Arc<Switch>,
    waiting: HashMap<Token, Box<dyn FnOnce(Answer) + Send>>,
    next_token: u64,
    io: HashMap<IoToken, Io>,
    next_io: u64,
    out: Vec<SeatEffect>,
    failed: Option<Error>,
    parked: Option<Parked>,
    /// When to look at background work next.
    tick_ms: u64,
}

/// The first write of a segment for which the disk of the log has no room. Nothing else is written meanwhile: a
/// log has one write under way.
struct Parked {
    id: u64,
    segment: Segment,
    data: Bytes,
    error: Error,
    next_ms: u64,
}

enum Io {
    Write(u64),
    Read(u64),
}

impl SeatActor {
    /// Recovers the seat from its directory (runs on the seat's own thread).
    pub(super) fn open(start: SeatStart, turn: &mut Turn) -> Result<Self> {
        let id = start.config.partition.partition;
        let segments = SegmentDir::open(&start.dir, start.config.segment_bytes)?;
        let dir = start.dir;
        let mut store = Store { segments: &segments, dir: dir.clone(), coordinator: start.coordinator, id };
        let seat = Seat::open(start.config, start.kv, &mut store, turn.now().mono_ms)?;
        let switch = start.switch;
        turn.set_timer(TICK_MS);
        let tick_ms = turn.now().mono_ms + TICK_MS;
        Ok(Self {
            id,
            seat,
            segments,
            dir,
            stopping: false,
            switch,
            waiting: HashMap::new(),
            next_token: 0,
            io: HashMap::new(),
            next_io: 0,
            out: Vec::new(),
            failed: None,
            parked: None,
            tick_ms,
        })
    }

    fn step(&mut self, event: SeatEvent, turn: &mut Turn) {
        let mut out = std::mem::take(&mut self.out);
        self.seat.step(now(turn), event, &mut out);
        self.carry_out(&mut out, turn);
        self.out = out;
    }

    fn carry_out(&mut self, effects: &mut Vec<SeatEffect>, turn: &mut Turn) {
        let mut effects = effects.drain(..);
        while let Some(effect) = effects.next() {
            match effect {
                SeatEffect::Reply(token, answer) => {
                    if let Some(waits) = self.waiting.remove(&token) {
                        waits(answer);
                    }
                }
                SeatEffect::Push(push) => self.switch.push(push),
                SeatEffect::Peer(to, message) => self.switch.peer(self.id, to, message),
                SeatEffect::Drive(id, drive, op) => self.switch.drive_for_seat(self.id, id, drive, op),
                SeatEffect::Job(job) => self.switch.run_job(self.id, job),
                SeatEffect::LogWrite { id, segment, off, data } => {
                    self.write(id, segment, off, data, turn);
                    if effects.len() > 0 {
                        turn.hand_over();
                    }
                }
                SeatEffect::LogRead { id, segment, off, len } => {
                    let op = self.segments.file(segment, false, turn).map(|file| IoOp::Read { file, off, len });
                    self.start(Io::Read(id), op, turn);
                }
                SeatEffect::LogRemove(segment) => {
                    if let Err(error) = self.segments.remove(segment, turn) {
                        tracing::warn!("{}: {segment} could not be recycled: {error}", self.id);
                    }
                }
                SeatEffect::Failed(error) => {
                    tracing::error!("{error}");
                    self.failed = Some(error.clone());
                    for (_, answer) in self.waiting.drain() {
                        answer(Answer::plain(self.seat.term(), Err(error.clone())));
                    }
                }
            }
        }
    }

    fn start(&mut self, io: Io, op: Result<IoOp>, turn: &mut Turn) {
        match op {
            Ok(op) => {
                self.next_io += 1;
                let token = IoToken(self.next_io);
                self.io.insert(token, io);
                turn.submit(token, op);
            }
            Err(error) => self.ended(io, Err(error), turn),
        }
    }

    fn write(&mut self, id: u64, segment: Segment, off: u64, data: Bytes, turn: &mut Turn) {
        let op = match self.segments.file(segment, off == 0, turn) {
            Err(error) if off == 0 && error.kind() == ErrorKind::NoSpace => {
                let text = format!("its log waits for room, free some: {error}");
                if self.parked.is_none() {
                    tracing::error!("{}: {text}", self.id);
                }
                let (error, next_ms) = (Error::new(ErrorKind::NoSpace, text), turn.now().mono_ms + ROOM_MS);
                self.parked = Some(Parked { id, segment, data, error, next_ms });
                return;
            }
            Ok(file) => Ok(IoOp::Write { file, off, data: vec![data], durable: true }),
            Err(error) => Err(error),
        };
        if self.parked.take().is_some() {
            tracing::info!("{}: its log has room again", self.id);
        }
        self.start(Io::Write(id), op, turn);
    }

    /// Ends the thread, unless something is on its way to the log.
    fn close(&mut self, turn: &mut Turn) {
        if self.failed.is_none() && self.parked.is_none() {
            let Some(last) = self.seat.closed_at() else { return };
            if let Err(error) = outside::mark_clean(&self.dir, last) {
                tracing::warn!("{}: the clean end was not noted: {error}", self.id);
            }
        }
        turn.stop();
    }

    fn ended(&mut self, io: Io, result: Result<IoDone>, turn: &mut Turn) {
        let event = match io {
            Io::Write(id) => SeatEvent::LogWritten(id, result.map(drop)),
            Io::Read(id) => SeatEvent::LogRead(id, result.and_then(bytes_of)),
        };
        self.step(event, turn);
    }
}

fn now(turn: &Turn) -> Now {
    Now { mono_ms: turn.now().mono_ms, wall: turn.now().wall }
}

fn bytes_of(done: IoDone) -> Result<Bytes> {
    match done {
        IoDone::Read(bytes) => Ok(bytes),
        IoDone::Done => Err(Error::new(ErrorKind::Io, "a read of the log brought no bytes")),
    }
}

impl Actor for SeatActor {
    type Msg = SeatMsg;

    fn on_msg(&mut self, msg: SeatMsg, turn: &mut Turn) {
        if self.stopping {
            return; // who waits for an answer hears that the partition stopped
        }
        match msg {
            SeatMsg::Request(request, answer) => {
                self.next_token += 1;
                let token = Token(self.next_token);
                self.waiting.insert(token, answer);
                // A mailbox leads to this life of the seat only.
                self.step(SeatEvent::Request(token, self.seat.term(), request), turn);
            }
            SeatMsg::Peer(from, message) => self.step(SeatEvent::Peer(from, message), turn),
            SeatMsg::JobDone(id, result) => self.step(SeatEvent::JobDone(id, result), turn),
            SeatMsg::Drive(id, result) => self.step(SeatEvent::Drive(id, result), turn),
            SeatMsg::Flushed(upto) => self.step(SeatEvent::Flushed(upto), turn),
            SeatMsg::Report(answer) => {
                let data = self.seat.partition().state().data_status();
                let failed = self.failed.clone();
                let fault = self.seat.partition().state().fault().cloned();
                let full = self.parked.as_ref().map(|parked| &parked.error).or(self.seat.waits());
                let waits = full.cloned().or(fault);
                answer(SeatReport { partition: self.id, stat: self.seat.stat(), data, failed, waits });
            }
            SeatMsg::With(run) => run(&mut self.seat),
            SeatMsg::Stop => self.stopping = true,
        }
    }

    fn on_io(&mut self, token: IoToken, result: Result<IoDone>, turn: &mut Turn) {
        if let Some(io) = self.io.remove(&token) {
            self.ended(io, result, turn);
        }
    }

    fn on_batch(&mut self, turn: &mut Turn) {
        let mut out = std::mem::take(&mut self.out);
        let due_ms = self.seat.batch_end(now(turn), &mut out);
        self.carry_out(&mut out, turn);
        self.out = out;
        let next_ms = due_ms.map_or(self.tick_ms, |due_ms| due_ms.min(self.tick_ms));
        turn.set_timer(next_ms.saturating_sub(turn.now().mono_ms));
        if self.stopping {
            self.close(turn);
        }
    }

    fn on_timer(&mut self, turn: &mut Turn) {
        let now_ms = turn.now().mono_ms;
        if now_ms < self.tick_ms {
            return; // what gathers for the log is written at the end of this round
        }
        self.tick_ms = now_ms + TICK_MS;
        if !self.stopping {
            if let Some(parked) = self.parked.as_ref().filter(|parked| now_ms >= parked.next_ms) {
                let (id, segment, data) = (parked.id, parked.segment, parked.data.clone());
                self.write(id, segment, 0, data, turn);
            }
            self.step(SeatEvent::Tick, turn);
        }
    }
}
