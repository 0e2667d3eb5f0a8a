//! A host: its partitions, their logs on its metadata disk, its key-value view, its bulk movers.

use std::collections::BTreeMap;
use std::sync::Arc;

use braid_base::attr::Time;
use braid_base::ids::{ClientId, HostId, Index, PartitionId, Term};
use braid_base::msg::drive::{DriveOp, DriveResult};
use braid_base::msg::fs::{Op, Request};
use braid_base::msg::job::MoveJob;
use braid_base::msg::lease::Answer;
use braid_base::msg::peer::PeerMsg;
use braid_base::{Error, ErrorKind, Result};
use braid_client::fs::WireStage;
use braid_client::reader::Reader;
use braid_client::{Session, mover};
use braid_host::seat::{Seat, SeatConfig, SeatEffect, SeatEvent};
use braid_io::file::{Create, OpenMode, ReadAt};
use braid_io::reactor::{FileId, IoDone, IoOp, Token as IoToken};
use braid_io::sim::{Faults, SimDisk};
use braid_meta::{Config, Now, StageLimits, Token};
use braid_replica::config::Config as Members;
use braid_replica::kv::Kv;
use braid_replica::kv::map::MapKv;
use braid_replica::log::Segment;
use bytes::Bytes;

use super::store::{SimLog, SimStore, member, parse_segment, segment_name};
use super::{CLUSTER, World};
use crate::board::{Node, Sent, Slot};
use crate::broken::Broken;
use crate::deeds::Deed;
use crate::points::Point;
use crate::queue::{Back, Event};
use crate::trace;

/// A group of entries is closed within this time, microseconds.
const BATCH_US: u64 = 150;
/// A disk ends some of its work within this time, microseconds.
const DISK_US: u64 = 400;
/// About the time between two ticks of a partition, microseconds.
const TICK_US: u64 = 100_000;
/// Bytes of a removed segment that show up in the next new one, as in a recycled file.
const STALE_BYTES: u64 = 256 << 10;

/// A host.
pub struct Host {
    /// Its number.
    pub id: u32,
    /// Which run of it this is.
    pub life: u64,
    /// The metadata disk.
    pub disk: SimDisk,
    /// The key-value view of all its partitions.
    pub kv: Arc<MapKv>,
    /// Its partitions, while it is up.
    pub seats: BTreeMap<PartitionId, SeatNode>,
    /// How far its wall clock is off, microseconds.
    pub wall_us: i64,
    pub(super) files: BTreeMap<(PartitionId, Segment), FileId>,
    pub(super) disk_busy: bool,
    /// What a removed segment of a partition held: its file may become the next one.
    pub(super) stale: BTreeMap<PartitionId, Bytes>,
    up: bool,
}

/// A partition on its host.
pub struct SeatNode {
    /// The state machine.
    pub seat: Seat,
    /// Who asked, and whether for a commit of what lies on the drives.
    waiting: BTreeMap<Token, (Node, Slot<Answer>, bool)>,
    next: u64,
    batch_due: bool,
    /// What each disk I/O was for.
    flights: BTreeMap<IoToken, Flight>,
    /// A finished move was taken, its entry is in no write yet.
    remap: bool,
    reader: Reader,
    session: Arc<Session>,
}

enum Flight {
    Write { id: u64, remap: bool },
    Read { id: u64 },
}

impl Host {
    pub(super) fn new(id: u32) -> Self {
        Self {
            id,
            life: 0,
            disk: SimDisk::new(),
            kv: Arc::new(MapKv::new()),
            seats: BTreeMap::new(),
            wall_us: 0,
            files: BTreeMap::new(),
            disk_busy: false,
            stale: BTreeMap::new(),
            up: false,
        }
    }

    /// True while it has power.
    pub fn is_up(&self) -> bool {
        self.up
    }

    pub(super) fn set_up(&mut self, up: bool) {
        self.up = up;
    }

    /// The log of a partition as it is on the disk.
    pub(super) fn log_of(&self, p: PartitionId) -> SimLog<'_> {
        let files = self.files.iter().filter(|((of, _), _)| *of == p).map(|((_, s), id)| (*s, *id)).collect();
        SimLog { disk: &self.disk, files }
    }
}

impl World {
    pub(super) fn host_now(&mut self, host: u32) -> Now {
        let clock = self.wire(Node::Host(host)).clock;
        let now_us = self.now_us();
        let wall_us = 1_700_000_000_000_000 + i128::from(now_us) + i128::from(self.hosts[host as usize].wall_us);
        let (sec, us) = (wall_us.div_euclid(1_000_000), wall_us.rem_euclid(1_000_000));
        Now { mono_ms: clock.ms(now_us), wall: Time { sec: sec as i64, nsec: us as u32 * 1000 } }
    }

    /// Starts the partitions of a host from what is on its disk and in its view.
    pub(super) fn start_seats(&mut self, host: u32) -> Result<()> {
        let h = &mut self.hosts[host as usize];
        h.files = h.disk.names().filter_map(|(name, id)| Some((parse_segment(name)?, id))).collect();
        h.disk_busy = false;
        let mine: Vec<PartitionId> = self.homes.iter().filter(|(_, home)| **home == host).map(|(p, _)| *p).collect();
        for p in mine {
            let seat = self.open_seat(host, p)?;
            let wire = Arc::new(self.wire(Node::Host(host)));
            // Movers ask nothing but staged bytes, which needs no session of its own.
            let session = Session::new(wire.clone(), ClientId(0));
            let node = SeatNode {
                seat,
                waiting: BTreeMap::new(),
                next: 0,
                batch_due: false,
                flights: BTreeMap::new(),
                remap: false,
                reader: Reader::new(wire),
                session,
            };
            let h = &mut self.hosts[host as usize];
            h.seats.insert(p, node);
            let life = h.life;
            let at = self.soon(TICK_US);
            self.queue.put(at, Event::Tick { p, life });
        }
        Ok(())
    }

    fn open_seat(&mut self, host: u32, p: PartitionId) -> Result<Seat> {
        let drives = self.usable.clone();
        let now_ms = self.host_now(host).mono_ms;
        let steps_left = self.election_steps();
        let unsettled = self.config.broken == Some(Broken::Unsettled);
        let (c, h) = (&self.config, &mut self.hosts[host as usize]);
        let partition = Config {
            partition: p,
            partitions: c.partitions,
            term: Term(0),
            host: HostId(host + 1),
            data: c.data,
            parity: c.parity,
            shard_bytes: c.shard_bytes,
            drives,
            capacity_bytes: c.capacity_bytes,
        };
        let me = member(host, p);
        let config = SeatConfig {
            partition,
            cluster: CLUSTER,
            me,
            segment_bytes: c.segment_bytes,
            stage_cache_bytes: c.stage_cache_bytes,
            log_soft_bytes: c.log_soft_bytes,
        };
        let files = h.files.iter().filter(|((of, _), _)| *of == p).map(|((_, s), id)| (*s, *id)).collect();
        let register = self.registers.entry(p).or_insert_with(|| Members { members: vec![me], ..Members::default() });
        let mut store = SimStore { disk: &mut h.disk, files, p, register, unsettled, steps_left };
        let opened = Seat::open(config, h.kv.clone(), &mut store, now_ms);
        let mut seat = opened.map_err(|error| error.within(format!("{p} cannot start")))?;
        self.adjust(&mut seat);
        Ok(seat)
    }

    /// Limits of this run, and the rule that it leaves out.
    fn adjust(&self, seat: &mut Seat) {
        let (cap_bytes, age_ms) = (self.config.stage_cap_bytes, self.config.stage_age_ms);
        let state = seat.partition().state_mut();
        state.set_stage_limits(StageLimits { cap_bytes, start_bytes: cap_bytes / 2, age_ms });
        match self.config.broken {
            #[cfg(feature = "broken")]
            Some(Broken::Names(variant)) => state.leave_out(Some(variant)),
            #[cfg(feature = "broken")]
            Some(Broken::Data(mutation)) => state.break_rule(mutation),
            #[cfg(feature = "broken")]
            Some(Broken::Leases(mutation)) => state.leave_out_of_leases(Some(mutation)),
            _ => {}
        }
    }

    /// After how many steps of its election a partition loses power, if that is planned.
    fn election_steps(&mut self) -> Option<u64> {
        let planned = |(point, _): &(Point, u64)| *point == Point::ElectionUnfinished;
        let planned = self.config.faults.at_points.iter().any(planned) && !self.calm && !self.board.is_quiet();
        planned.then(|| self.rng.below(3))
    }

    /// The host of `p`, and the partition on it while it is up.
    pub(super) fn seat(&mut self, p: PartitionId) -> (u32, Option<&mut SeatNode>) {
        let host = self.homes[&p];
        (host, self.hosts[host as usize].seats.get_mut(&p))
    }

    /// Feeds one event to a partition and carries out what it says.
    fn step(&mut self, p: PartitionId, event: SeatEvent) {
        let now = self.host_now(self.homes[&p]);
        let (_, Some(node)) = self.seat(p) else { return };
        let mut out = Vec::new();
        node.seat.step(now, event, &mut out);
        if !node.batch_due {
            node.batch_due = true;
            let life = self.hosts[self.homes[&p] as usize].life;
            let at = self.soon(BATCH_US);
            self.queue.put(at, Event::BatchEnd { p, life });
        }
        self.carry_out(p, out);
    }

    fn carry_out(&mut self, p: PartitionId, effects: Vec<SeatEffect>) {
        let host = self.homes[&p];
        for effect in effects {
            let lost_power = match effect {
                SeatEffect::Reply(token, answer) => self.reply(p, token, answer),
                SeatEffect::Push(push) => {
                    self.send_push(&push);
                    false
                }
                SeatEffect::Peer(to, message) => self.peer_out(p, to, message),
                SeatEffect::Drive(id, to, op) => {
                    let point = match &op {
                        DriveOp::Create { .. } => Some(Point::PackLoggedShardsNotCreated),
                        DriveOp::Drop { .. } => Some(Point::PackDeadLogged),
                        _ => None,
                    };
                    self.watch_drive(p, &op);
                    let crashed = point.is_some_and(|point| self.pass(point, host));
                    if !crashed {
                        self.send_drive(Node::Host(host), to, op, Back::Seat(p, id));
                    }
                    crashed
                }
                SeatEffect::Job(job) => self.start_move(p, job),
                SeatEffect::LogWrite { id, segment, off, data } => self.log_write(p, id, segment, off, data),
                SeatEffect::LogRead { id, segment, off, len } => {
                    self.log_read(p, id, segment, off, len);
                    false
                }
                SeatEffect::LogRemove(segment) => self.log_remove(p, segment),
                SeatEffect::Failed(error) => self.seat_failed(host, &error),
            };
            if lost_power {
                return;
            }
        }
    }

    fn reply(&mut self, p: PartitionId, token: Token, answer: Answer) -> bool {
        let (host, Some(node)) = self.seat(p) else { return true };
        let Some((to, slot, commits)) = node.waiting.remove(&token) else {
            self.board.violation(format!("{p} answered request {token:?} twice"));
            return true;
        };
        let term = node.seat.term();
        self.watch_answer(&answer, commits);
        if self.pass(Point::AppliedNotReplied, host) {
            return true;
        }
        self.note(|| format!("{p} -> {to:?} {}", trace::reply(&answer.result)));
        self.send_answer((p, term), to, slot, answer);
        self.pass(Point::ReplySent, host)
    }

    fn peer_out(&mut self, p: PartitionId, to: PartitionId, message: PeerMsg) -> bool {
        let host = self.homes[&p];
        let named = match &message {
            PeerMsg::Prepared { result: Ok(_), .. } => Some(Point::PeerPrepared),
            PeerMsg::Decide { commit: true, .. } => Some(Point::PeerDecisionLogged),
            _ => None,
        };
        if self.pass(Point::PeerMessageUnsent, host) || named.is_some_and(|point| self.pass(point, host)) {
            return true;
        }
        self.send_peer(p, to, message);
        false
    }

    fn start_move(&mut self, p: PartitionId, job: MoveJob) -> bool {
        let host = self.homes[&p];
        if self.pass(Point::MovePlanned, host) {
            return true;
        }
        self.counts.moves += 1;
        self.watch_move(p, &job);
        self.note(|| format!("{p} plans move {} of {} stripes", job.id, job.stripes.len()));
        let life = self.hosts[host as usize].life;
        let board = self.board.clone();
        let (_, Some(node)) = self.seat(p) else { return true };
        let reader = node.reader.clone();
        let stage = WireStage { session: node.session.clone(), fs: crate::FS, partition: p };
        let early = self.config.broken == Some(Broken::EarlyAck);
        let task = async move {
            if early {
                board.send(Sent::JobDone(p, life, job.id, Ok(())));
            }
            let result = mover::run(&reader, &stage, &job).await;
            if !early {
                board.send(Sent::JobDone(p, life, job.id, result));
            }
        };
        self.spawn(Node::Host(host), Box::pin(task));
        false
    }

    fn log_write(&mut self, p: PartitionId, id: u64, segment: Segment, off: u64, data: Bytes) -> bool {
        self.counts.log_writes += 1;
        let host = self.homes[&p];
        self.note(|| format!("{p} log write {id} {segment} at {off} {} bytes", data.len()));
        let file = match self.segment_file(p, segment) {
            Ok(file) => file,
            Err(error) => {
                self.step(p, SeatEvent::LogWritten(id, Err(error)));
                return true;
            }
        };
        let token = self.host_io(p, |node| {
            let remap = std::mem::take(&mut node.remap);
            Flight::Write { id, remap }
        });
        let op = IoOp::Write { file, off, data: vec![data], durable: true };
        self.hosts[host as usize].disk.submit(token, op);
        let point = if off == 0 { Point::SegmentOpened } else { Point::LogWriteSubmitted };
        if self.config.broken == Some(Broken::ReplyEarly) {
            self.step(p, SeatEvent::LogWritten(id, Ok(())));
        }
        self.pass(point, host)
    }

    fn segment_file(&mut self, p: PartitionId, segment: Segment) -> Result<FileId> {
        let bytes = self.config.segment_bytes;
        let h = &mut self.hosts[self.homes[&p] as usize];
        if let Some(file) = h.files.get(&(p, segment)) {
            return Ok(*file);
        }
        let mode = OpenMode { create: Create::IfMissing(bytes), ..OpenMode::WRITE };
        let file = h.disk.open(&segment_name(p, segment), mode)?;
        h.files.insert((p, segment), file);
        if let Some(stale) = h.stale.remove(&p) {
            h.disk.write_now(file, 0, &stale);
        }
        Ok(file)
    }

    fn log_read(&mut self, p: PartitionId, id: u64, segment: Segment, off: u64, len: usize) {
        self.counts.log_reads += 1;
        let host = self.homes[&p];
        let Some(file) = self.hosts[host as usize].files.get(&(p, segment)).copied() else {
            self.board.violation(format!("{p} reads {segment}, which does not exist"));
            return;
        };
        let token = self.host_io(p, |_| Flight::Read { id });
        self.hosts[host as usize].disk.submit(token, IoOp::Read { file, off, len });
    }

    fn log_remove(&mut self, p: PartitionId, segment: Segment) -> bool {
        let host = self.homes[&p];
        self.note(|| format!("{p} removes {segment}"));
        let recycle = self.rng.chance(1, 2);
        let h = &mut self.hosts[host as usize];
        if let Some(file) = h.files.remove(&(p, segment)) {
            let view = h.disk.view(file);
            let bytes = view.size().unwrap_or(0).min(STALE_BYTES) as usize;
            if let Some(stale) = view.read_at(0, bytes).ok().filter(|_| recycle) {
                h.stale.insert(p, stale);
            }
            h.disk.remove(&segment_name(p, segment));
        }
        self.pass(Point::SegmentRemoved, host)
    }

    /// A number for a disk I/O; the disk will end it before long.
    fn host_io(&mut self, p: PartitionId, flight: impl FnOnce(&mut SeatNode) -> Flight) -> IoToken {
        self.life += 1;
        let token = IoToken(self.life);
        let (host, Some(node)) = self.seat(p) else { return token };
        let flight = flight(node);
        node.flights.insert(token, flight);
        self.wake_host_disk(host);
        token
    }

    fn wake_host_disk(&mut self, host: u32) {
        let h = &mut self.hosts[host as usize];
        if !h.disk_busy {
            h.disk_busy = true;
            let life = h.life;
            let at = self.soon(DISK_US);
            self.queue.put(at, Event::HostDisk { host, life });
        }
    }

    pub(super) fn host_disk(&mut self, host: u32, life: u64) {
        if self.hosts[host as usize].life != life {
            return;
        }
        let errors = if self.calm { 0 } else { self.config.faults.log_errors };
        let h = &mut self.hosts[host as usize];
        h.disk.faults = Faults { read_errors: 0, write_errors: errors };
        h.disk_busy = false;
        let done = h.disk.complete_some(&mut self.rng);
        if h.disk.in_flight() > 0 {
            self.wake_host_disk(host);
        }
        for (token, result) in done {
            if self.hosts[host as usize].life != life {
                return;
            }
            self.io_done(host, token, result);
        }
    }

    fn io_done(&mut self, host: u32, token: IoToken, result: Result<IoDone>) {
        let seats = &mut self.hosts[host as usize].seats;
        let found = seats.iter_mut().find_map(|(p, node)| Some((*p, node.flights.remove(&token)?)));
        match found {
            Some((p, Flight::Write { id, remap })) => {
                self.note(|| format!("{p} log write {id} done {}", result.is_ok()));
                if result.is_ok() && remap && self.pass(Point::RemapLogged, host) {
                    return;
                }
                if result.is_ok() && self.pass(Point::LogDurableNotApplied, host) {
                    return;
                }
                if self.config.broken != Some(Broken::ReplyEarly) {
                    self.step(p, SeatEvent::LogWritten(id, result.map(drop)));
                }
            }
            Some((p, Flight::Read { id })) => {
                let bytes = result.and_then(|done| match done {
                    IoDone::Read(bytes) => Ok(bytes),
                    IoDone::Done => Err(Error::from(ErrorKind::Io)),
                });
                self.step(p, SeatEvent::LogRead(id, bytes));
            }
            None => {}
        }
    }

    pub(super) fn request(&mut self, to: PartitionId, term: Term, from: Node, request: Request, slot: Slot<Answer>) {
        let any_term = self.config.broken == Some(Broken::AnyTerm);
        let (host, Some(node)) = self.seat(to) else {
            // Nobody listens: some wires say so.
            self.perhaps_timed_out(slot);
            return;
        };
        node.next += 1;
        let token = Token(node.next);
        let commits = matches!(request.body, Op::CommitWrite { .. });
        node.waiting.insert(token, (from, slot, commits));
        let term = if any_term { node.seat.term() } else { term };
        self.note(|| format!("{to} takes {}", request.op));
        if commits && !self.commits.insert(request.op) {
            self.coverage.did(Deed::CommitTwice);
        }
        self.step(to, SeatEvent::Request(token, term, request));
        self.pass(Point::EntryNotSubmitted, host);
    }

    pub(super) fn peer(&mut self, from: PartitionId, to: PartitionId, message: PeerMsg) {
        if let (host, Some(_)) = self.seat(to) {
            self.step(to, SeatEvent::Peer(from, message));
            self.pass(Point::PeerTaken, host);
        }
    }

    pub(super) fn drive_answer(&mut self, back: Back, result: DriveResult) {
        match back {
            Back::Task(slot) => slot.fill(result),
            Back::Seat(p, id) => self.step(p, SeatEvent::Drive(id, result)),
        }
    }

    pub(super) fn job_done(&mut self, p: PartitionId, life: u64, id: u64, result: Result<()>) {
        let host = self.homes[&p];
        if self.hosts[host as usize].life != life {
            return;
        }
        self.note(|| format!("{p} move {id} ended: {:?}", result.as_ref().map_err(ToString::to_string)));
        if result.is_ok() && self.pass(Point::StripeWrittenNotCommitted, host) {
            return;
        }
        let done = result.is_ok();
        self.step(p, SeatEvent::JobDone(id, result));
        if let (_, Some(node)) = self.seat(p) {
            node.remap |= done;
            self.pass(Point::RemapProposed, host);
        }
    }

    pub(super) fn batch_end(&mut self, p: PartitionId, life: u64) {
        let host = self.homes[&p];
        if self.hosts[host as usize].life != life {
            return;
        }
        let now = self.host_now(host);
        let (_, Some(node)) = self.seat(p) else { return };
        node.batch_due = false;
        let mut out = Vec::new();
        if let Some(due_ms) = node.seat.batch_end(now, &mut out) {
            let at = self.soon(1_000 * due_ms.saturating_sub(now.mono_ms));
            self.queue.put(at, Event::BatchEnd { p, life });
        }
        self.carry_out(p, out);
    }

    pub(super) fn tick(&mut self, p: PartitionId, life: u64) {
        let host = self.homes[&p];
        if self.hosts[host as usize].life != life {
            return;
        }
        self.step(p, SeatEvent::Tick);
        let at = self.now_us() + TICK_US / 2 + self.rng.below(TICK_US);
        self.queue.put(at, Event::Tick { p, life });
    }

    pub(super) fn flush(&mut self, host: u32, life: u64) {
        let h = &mut self.hosts[host as usize];
        if h.life == life {
            let applied: Vec<(PartitionId, Index)> =
                h.seats.iter().map(|(p, node)| (*p, node.seat.applied())).collect();
            if self.config.broken != Some(Broken::FlushUntrue) {
                h.kv.flush().expect("a view in memory does not fail");
            }
            self.note(|| format!("h{host} flushes its view: {applied:?}"));
            if self.pass(Point::KvFlushedLogNotTrimmed, host) {
                return;
            }
            let at = self.soon(20_000);
            self.queue.put(at, Event::Flushed { life, applied });
            self.schedule_flush(host);
        }
    }

    pub(super) fn flushed(&mut self, life: u64, applied: &[(PartitionId, Index)]) {
        for (p, upto) in applied {
            if self.hosts[self.homes[p] as usize].life == life {
                self.step(*p, SeatEvent::Flushed(*upto));
            }
        }
    }

    pub(super) fn schedule_flush(&mut self, host: u32) {
        let life = self.hosts[host as usize].life;
        let at = self.soon(2 * self.config.faults.flush_every_us);
        self.queue.put(at, Event::Flush { host, life });
    }

    fn seat_failed(&mut self, host: u32, error: &Error) -> bool {
        let f = &self.config.faults;
        if f.log_errors == 0 && f.log_full_every_us == 0 {
            self.board.violation(format!("h{host}: {error}"));
        } else {
            self.note(|| format!("h{host} stops: {error}"));
            self.crash(host);
        }
        true
    }

    /// Requests that were in the host when it lost power: some wires notice.
    pub(super) fn drop_seats(&mut self, host: u32) {
        let seats = std::mem::take(&mut self.hosts[host as usize].seats);
        for (_, slot, _) in seats.into_values().flat_map(|node| node.waiting.into_values()) {
            self.perhaps_timed_out(slot);
        }
    }
}
