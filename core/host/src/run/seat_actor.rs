//! The thread of one [`Seat`], with the ring for its log: it takes what comes by mailbox, what the log brings and what
//! time brings. Requests may be taken elsewhere, see [`super::shared_seat`].

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::path::PathBuf;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, mpsc};
use std::time::Duration;

use braid_base::ids::{BlobId, FsId, HostId, Index, PartitionId, Term};
use braid_base::msg::drive::DriveResult;
use braid_base::msg::fs::Request;
use braid_base::msg::host::{LostParts, SeatData, SeatReport};
use braid_base::msg::job::Scrubbed;
use braid_base::msg::peer::PeerMsg;
use braid_base::{Error, ErrorKind, Result};
use braid_cluster::coordinator::Coordinator;
use braid_io::reactor::{Actor, IoDone, IoOp, Mailbox, Token as IoToken, Turn};
use braid_meta::{DataStatus, TierPolicy};
use braid_replica::Kv;
use braid_replica::config::Config as Members;
use braid_replica::log::Segment;
use bytes::Bytes;

use super::outside::{self, Files};
use super::segments::SegmentDir;
use super::shared_seat::{Held, Log, SeatDoor, Shared, SharedSeat, Waits};
use super::wire::Switch;
use crate::seat::{Seat, SeatConfig, SeatEffect, SeatEvent};

/// How often a seat looks at its background work, milliseconds.
const TICK_MS: u64 = 100;
/// How often a log that has no room for its next segment tries again, milliseconds.
const ROOM_MS: u64 = 1_000;
/// Writes of the log up to this many bytes are done by the seat's thread itself: see [`Turn::submit_here`].
const HERE_BYTES: usize = 64 << 10;
/// Parts of files that one partition lists, at most about.
const LOST_MAX: usize = 10_000;
/// The same of one host: they go in one message (`META_MAX`).
const LOST_OF_HOST_MAX: usize = 100_000;
/// How long to wait for the next seat that says something of itself.
const REPORT_WAIT: Duration = Duration::from_secs(2);

/// What a seat's mailbox carries.
pub enum SeatMsg {
    /// A client's request, the term that it is meant for, and who waits for the answer.
    Request(Term, Request, Waits),
    /// A step that another thread took left something for the log, or set an earlier time; or another replica said something.
    Look,
    /// Another partition's message.
    Peer(PartitionId, PeerMsg),
    /// A bulk move ended.
    JobDone(u64, Result<()>),
    /// The check of a pack ended.
    Scrubbed(u64, Result<Scrubbed>),
    /// A drive answered.
    Drive(u64, DriveResult),
    /// What the coordinator holds; true: after it was asked to replace it.
    Register(Members, bool),
    /// Where replicas should be.
    Seats(Vec<HostId>),
    /// The other hosts whose replica should not lead.
    Unfit(Vec<HostId>),
    /// The host is about to stop.
    Leave,
    /// The view was flushed.
    Flushed(Index),
    /// What do you know?
    Report(Box<dyn FnOnce(SeatReport) + Send>),
    /// Run this on the seat, between two events (settings).
    With(Box<dyn FnOnce(&mut Seat) + Send>),
    /// Note where the log ends, once all that is on its way to it has come there, and end the thread.
    Stop,
}

impl SeatMsg {
    /// True if no request may be taken before this: requests keep their order; what another partition decided is known
    /// to it before the one who asked for it asks again; and settings hold for what comes after them.
    pub(super) fn goes_first(&self) -> bool {
        matches!(self, Self::Request(..) | Self::Peer(..) | Self::With(_))
    }
}

/// What each of `seats` says of itself, in order of partitions. One that does not answer in time is left out.
pub(super) fn reports(seats: &[SeatDoor]) -> Vec<SeatReport> {
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

/// The parts of files that cannot be read, of those of `seats` that are served and answer in time.
pub(super) fn lost(seats: &[SeatDoor]) -> LostParts {
    let (tx, rx) = mpsc::channel();
    for seat in seats {
        let tx = tx.clone();
        let _ = seat.send(SeatMsg::With(Box::new(move |seat| {
            let _ = tx.send(seat.partition().map_or(Ok(LostParts::default()), |partition| partition.lost(LOST_MAX)));
        })));
    }
    drop(tx);
    let mut all = LostParts::default();
    while let Ok(found) = rx.recv_timeout(REPORT_WAIT) {
        match found {
            Ok(found) => all.add(found),
            // As one that does not answer.
            Err(error) => tracing::warn!("what a partition has lost cannot be told: {error}"),
        }
    }
    all.more |= all.parts.len() > LOST_OF_HOST_MAX;
    all.parts.truncate(LOST_OF_HOST_MAX);
    all
}

/// What a seat's thread starts with.
pub(super) struct SeatStart {
    pub(super) config: SeatConfig,
    pub(super) tiers: BTreeMap<FsId, TierPolicy>,
    pub(super) kv: Arc<dyn Kv>,
    pub(super) dir: PathBuf,
    pub(super) coordinator: Arc<dyn Coordinator>,
    pub(super) switch: Arc<Switch>,
}

/// The shell of one seat.
pub(super) struct SeatActor {
    shared: Arc<SharedSeat>,
    queued: Arc<AtomicUsize>,
    log: LogFiles,
    /// Nothing new begins.
    stopping: bool,
    /// When to look at background work next.
    tick_ms: u64,
    /// What the partition was told of damage in object stores: in which term, and as of which change.
    told: (Term, u64),
}

/// The log's files and what is under way on them.
struct LogFiles {
    id: PartitionId,
    segments: SegmentDir,
    dir: PathBuf,
    io: HashMap<IoToken, Io>,
    next_io: u64,
    parked: Option<Parked>,
    /// What could not be begun.
    refused: Vec<(Io, Error)>,
    /// The seat wants to read what only the log holds.
    wanted: bool,
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

/// The log's files, and the ring of the thread they belong to.
struct LogAt<'a> {
    files: &'a mut LogFiles,
    turn: &'a mut Turn,
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
        let mut store = Files { segments: &segments, dir: dir.clone(), coordinator: start.coordinator, id };
        let mut said = Vec::new();
        let mut seat = Seat::open(start.config, start.kv, &mut store, outside::now(), &mut said)?;
        seat.set_tiers(start.tiers);
        let shared = SharedSeat::new(id, dir.clone(), seat, start.switch);
        let tick_ms = turn.now().mono_ms + TICK_MS;
        turn.set_timer(tick_ms * 1000);
        let (io, refused) = (HashMap::new(), Vec::new());
        let log = LogFiles { id, segments, dir, io, next_io: 0, parked: None, refused, wanted: false };
        let told = Default::default();
        let mut actor = Self { shared, queued: Arc::default(), log, stopping: false, tick_ms, told };
        actor.with(turn, |held, log| held.carry_out(&mut said, log));
        Ok(actor)
    }

    /// The way to it, once its mailbox is known.
    pub(super) fn door(&self) -> impl FnOnce(Mailbox<SeatMsg>) -> SeatDoor + Send + use<> {
        let (id, term) = (self.log.id, self.shared.term());
        let shared = Shared { term, seat: Arc::downgrade(&self.shared), queued: Arc::clone(&self.queued) };
        move |mailbox| SeatDoor::new(id, mailbox, shared)
    }

    /// Holds the seat for `work`; what others left for the log goes before what `work` brings to it.
    fn with<T>(&mut self, turn: &mut Turn, work: impl FnOnce(&mut Held<'_>, &mut LogAt<'_>) -> T) -> T {
        let mut held = self.shared.hold();
        let mut log = LogAt { files: &mut self.log, turn };
        log.begin_all(held.take_left());
        let done = work(&mut held, &mut log);
        while let Some((io, error)) = log.files.refused.pop() {
            held.step(io.ended(Err(error)), &mut log);
        }
        if std::mem::take(&mut log.files.wanted) {
            let reader = log.files.segments.reader();
            held.read_log(&*reader, &mut log);
        }
        held.core.seat.set_log_full(log.files.parked.is_some());
        done
    }

    fn step(&mut self, event: SeatEvent, turn: &mut Turn) {
        self.with(turn, |held, log| held.step(event, log));
    }

    /// Tells the partition what of its objects is missing or damaged, if that is different now, and hears what does not matter.
    fn hear_of_damage(&mut self, turn: &mut Turn) {
        let (id, objects) = (self.log.id, Arc::clone(&self.shared.switch.objects));
        let mut told = self.told;
        self.with(turn, |held, _| {
            let (seat, changes) = (&mut held.core.seat, objects.damage_changes());
            let term = seat.term();
            let Some(partition) = seat.partition() else {
                if told.1 != changes {
                    objects.forget_damage(id, None);
                    told = (Term(0), objects.damage_changes());
                }
                return;
            };
            let mut heard: BTreeSet<BlobId> = BTreeSet::new();
            if told != (term, changes) {
                let damaged = objects.damage_of(id);
                heard.extend(damaged.keys());
                partition.state_mut().set_damaged(damaged);
                partition.state_mut().set_trusted(objects.trusted(id, term));
                told = (term, changes);
            }
            let sound = partition.state_mut().take_sound();
            if !sound.is_empty() {
                objects.forget_damage(id, Some(&sound));
            }
            if !heard.is_empty() {
                // What it does not name went with that.
                objects.tell_damage(id, &heard);
            }
        });
        self.told = told;
    }

    fn report(&mut self, turn: &mut Turn) -> SeatReport {
        self.with(turn, |held, log| {
            let core = &mut *held.core;
            let (stat, term) = (core.seat.stat(), core.seat.term());
            let (fault, data) = match core.seat.partition() {
                Some(partition) => (partition.state().fault().cloned(), partition.state().data_status()),
                None => (None, DataStatus::default()),
            };
            let full = log.files.parked.as_ref().map(|parked| &parked.error).or(core.seat.waits());
            let full = full.cloned().or(fault).or_else(|| core.seat.unfit().filter(|_| term == Term(0)));
            SeatReport {
                partition: log.files.id,
                term: if core.failed.is_some() { Term(0) } else { term },
                applied: stat.applied.0,
                log_bytes: stat.log_bytes,
                replay_bytes: stat.replay_bytes,
                data: SeatData {
                    used_bytes: data.used_bytes,
                    used_by_fs: data.used_by_fs,
                    staged_bytes: data.staged_bytes,
                    leaving: data.leaving,
                    forced: data.forced,
                    close: data.close,
                    healing: data.healing,
                    flash_by_fs: data.flash_by_fs,
                    stored: data.stored,
                    held_writes: data.held as u64,
                    damaged_objects: data.damaged_objects,
                    tiering: data.tiering,
                },
                failed: core.failed.clone(),
                waits: full,
            }
        })
    }

    /// Ends the thread, unless something is on its way to the log.
    fn close(&mut self, turn: &mut Turn) {
        self.with(turn, |held, log| {
            if held.core.failed.is_none() && log.files.parked.is_none() {
                let Some(last) = held.core.seat.closed_at() else { return };
                if let Err(error) = outside::mark_clean(&log.files.dir, last) {
                    tracing::warn!("{}: the clean end was not noted: {error}", log.files.id);
                }
            }
            log.turn.stop();
        });
    }
}

impl Log for LogAt<'_> {
    fn begin(&mut self, effect: SeatEffect, more: bool) -> Option<SeatEffect> {
        match effect {
            SeatEffect::LogWrite { id, segment, off, data } => {
                self.write(id, segment, off, data);
                if more {
                    self.turn.hand_over();
                }
            }
            SeatEffect::LogRead { id, segment, off, len } => {
                let file = self.files.segments.file(segment, false, self.turn);
                self.start(Io::Read(id), file.map(|file| IoOp::Read { file, off, len }));
            }
            SeatEffect::LogRemove(segment) => {
                if let Err(error) = self.files.segments.remove(segment, self.turn) {
                    tracing::warn!("{}: {segment}, or an older one, could not be recycled: {error}", self.files.id);
                }
            }
            SeatEffect::ReadLog => self.files.wanted = true,
            other => return Some(other),
        }
        None
    }
}

impl LogAt<'_> {
    fn begin_all(&mut self, effects: Vec<SeatEffect>) {
        for effect in effects {
            let not_of_the_log = self.begin(effect, false);
            assert!(not_of_the_log.is_none(), "{not_of_the_log:?} was left for the log");
        }
    }

    fn start(&mut self, io: Io, op: Result<IoOp>) {
        match op {
            Ok(op) => {
                self.files.next_io += 1;
                let token = IoToken(self.files.next_io);
                self.files.io.insert(token, io);
                match &op {
                    IoOp::Write { data, .. } if data.iter().map(Bytes::len).sum::<usize>() <= HERE_BYTES => {
                        self.turn.submit_here(token, op);
                    }
                    _ => self.turn.submit(token, op),
                }
            }
            Err(error) => self.files.refused.push((io, error)),
        }
    }

    fn write(&mut self, id: u64, segment: Segment, off: u64, data: Bytes) {
        let op = match self.files.segments.file_to_write(segment, off, self.turn) {
            Err(error) if off == 0 && error.kind() == ErrorKind::NoSpace => {
                let text = format!("its log waits for room, free some: {error}");
                if self.files.parked.is_none() {
                    tracing::error!("{}: {text}", self.files.id);
                }
                let (error, next_ms) = (Error::new(ErrorKind::NoSpace, text), self.turn.now().mono_ms + ROOM_MS);
                self.files.parked = Some(Parked { id, segment, data, error, next_ms });
                return;
            }
            Ok(file) => Ok(IoOp::Write { file, off, data: vec![data], durable: true }),
            Err(error) => Err(error),
        };
        if self.files.parked.take().is_some() {
            tracing::info!("{}: its log has room again", self.files.id);
        }
        self.start(Io::Write(id), op);
    }
}

impl Io {
    fn ended(self, result: Result<IoDone>) -> SeatEvent {
        match self {
            Io::Write(id) => SeatEvent::LogWritten(id, result.map(drop)),
            Io::Read(id) => SeatEvent::LogRead(id, result.and_then(bytes_of)),
        }
    }
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
        let goes_first = msg.goes_first();
        match msg {
            SeatMsg::Request(term, request, waits) => {
                self.with(turn, |held, log| held.request(term, request, waits, log));
            }
            // At what was left for the log, too.
            SeatMsg::Look => self.with(turn, |held, log| held.hear_replicas(log)),
            SeatMsg::Peer(from, message) => self.step(SeatEvent::Peer(from, message), turn),
            SeatMsg::JobDone(id, result) => {
                // Why it failed is to be known before what becomes of it is decided.
                self.hear_of_damage(turn);
                self.step(SeatEvent::JobDone(id, result), turn);
            }
            SeatMsg::Scrubbed(id, result) => self.step(SeatEvent::Scrubbed(id, result), turn),
            SeatMsg::Drive(id, result) => self.step(SeatEvent::Drive(id, result), turn),
            SeatMsg::Register(found, true) => self.step(SeatEvent::CasResult(found), turn),
            SeatMsg::Register(found, false) => self.step(SeatEvent::ConfigSeen(found), turn),
            SeatMsg::Seats(hosts) => self.step(SeatEvent::Seats(hosts), turn),
            SeatMsg::Unfit(hosts) => self.step(SeatEvent::Unfit(hosts), turn),
            SeatMsg::Leave => self.step(SeatEvent::Leave, turn),
            SeatMsg::Flushed(upto) => self.step(SeatEvent::Flushed(upto), turn),
            SeatMsg::Report(answer) => answer(self.report(turn)),
            SeatMsg::With(run) => self.with(turn, |held, _| run(&mut held.core.seat)),
            SeatMsg::Stop => {
                self.stopping = true;
                self.with(turn, |held, _| held.core.stopping = true);
            }
        }
        if goes_first {
            self.queued.fetch_sub(1, Ordering::SeqCst);
        }
    }

    fn on_io(&mut self, token: IoToken, result: Result<IoDone>, turn: &mut Turn) {
        if let Some(io) = self.log.io.remove(&token) {
            self.step(io.ended(result), turn);
        }
    }

    fn on_batch(&mut self, turn: &mut Turn) {
        let tick_ms = self.tick_ms;
        self.with(turn, |held, log| {
            held.settle(log);
            held.batch_end(log);
            log.turn.set_timer(held.comes_by(tick_ms * 1000));
        });
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
        if self.stopping {
            return;
        }
        self.hear_of_damage(turn);
        self.with(turn, |held, log| {
            if let Some(parked) = log.files.parked.as_ref().filter(|parked| now_ms >= parked.next_ms) {
                let (id, segment, data) = (parked.id, parked.segment, parked.data.clone());
                log.write(id, segment, 0, data);
            }
            held.step(SeatEvent::Tick, log);
        });
    }
}
