//! A host: its partitions, their logs on its metadata disk, its key-value view, its bulk movers.

use std::collections::BTreeMap;
use std::sync::Arc;

use braid_base::attr::Time;
use braid_base::ids::{ClientId, DriveId, HostId, Index, PartitionId, Term};
use braid_base::msg::drive::{DriveOp, DriveResult};
use braid_base::msg::fs::{Op, Request};
use braid_base::msg::job::{Job, RemoveJob, UploadJob};
use braid_base::msg::lease::Answer;
use braid_base::msg::peer::PeerMsg;
use braid_base::{Error, Result};
use braid_client::fs::WireStage;
use braid_client::reader::Reader;
use braid_client::{Session, mover};
use braid_host::seat::{Seat, SeatConfig, SeatEffect, SeatEvent, StageMemory};
use braid_io::reactor::{FileId, Token as IoToken};
use braid_io::sim::SimDisk;
use braid_meta::{Config, Now, Partition, StageLimits, TierSteps, Token};
use braid_replica::ReplicaMeta;
use braid_replica::config::Config as Members;
use braid_replica::kv::Kv;
use braid_replica::kv::map::MapKv;
use braid_replica::log::Segment;
use bytes::Bytes;

use super::damage::Findings;
use super::objects::way::Way;
use super::store::{SimLog, SimStore, member, parse_segment, read_meta};
use super::tier::Kind;
use super::{CLUSTER, World};
use crate::board::{At, Node, Sent, Slot};
use crate::broken::Broken;
use crate::deeds::Deed;
use crate::points::Point;
use crate::queue::{Back, Event};
use crate::trace;

/// A group of entries is closed within this time, microseconds.
const BATCH_US: u64 = 150;
/// About the time between two ticks of a partition, microseconds.
const TICK_US: u64 = 100_000;

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
    /// Until then the metadata disk ends nothing.
    pub(super) hung_until_us: u64,
    /// What a removed segment of a partition held: its file may become the next one.
    pub(super) stale: BTreeMap<PartitionId, Bytes>,
    up: bool,
    /// It has said that it is about to stop.
    pub(super) leaves: bool,
    /// What it found damaged in object stores.
    pub(super) findings: Findings,
}

/// A partition on its host.
pub struct SeatNode {
    /// The state machine.
    pub seat: Seat,
    /// Who asked, and whether for a commit of what lies on the drives.
    pub(super) waiting: BTreeMap<Token, (Node, Slot<Answer>, bool)>,
    next: u64,
    pub(super) batch_due: bool,
    /// What each disk I/O was for.
    pub(super) flights: BTreeMap<IoToken, Flight>,
    /// Points that are passed once what was proposed up to now is durable.
    pub(super) marks: Vec<Point>,
    /// What bulk work under way is about.
    pub(super) jobs: BTreeMap<u64, Kind>,
    /// What its tier had done when it was looked at last.
    pub(super) steps: TierSteps,
    /// What it was told of damaged objects: in which term, as of which change.
    pub(super) told: (Term, u64),
    /// The life of its host.
    pub(super) life: u64,
    /// The hosts that should not lead, as it heard last.
    pub(super) unfit: Vec<HostId>,
    /// What its moves and checks read with.
    pub(super) reader: Reader,
    session: Arc<Session>,
}

pub(super) enum Flight {
    Write { id: u64, marks: Vec<Point> },
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
            hung_until_us: 0,
            stale: BTreeMap::new(),
            up: false,
            leaves: false,
            findings: Findings::default(),
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
        SimLog { disk: &self.disk, files: segments_of(&self.files, p) }
    }

    /// The `replica.meta` of a partition as it is on the disk.
    pub(super) fn meta_of(&self, p: PartitionId) -> Result<Option<ReplicaMeta>> {
        ReplicaMeta::read(&read_meta(&self.disk, p)?)
    }

    /// A replica, and its log as it is on the disk.
    pub(super) fn seat_and_log(&mut self, p: PartitionId) -> Option<(&mut SeatNode, SimLog<'_>)> {
        let log = SimLog { disk: &self.disk, files: segments_of(&self.files, p) };
        Some((self.seats.get_mut(&p)?, log))
    }
}

fn segments_of(files: &BTreeMap<(PartitionId, Segment), FileId>, p: PartitionId) -> Vec<(Segment, FileId)> {
    files.iter().filter(|((of, _), _)| *of == p).map(|((_, segment), id)| (*segment, *id)).collect()
}

impl World {
    pub(super) fn host_now(&mut self, host: u32) -> Now {
        let clock = self.wire(Node::Host(host)).clock;
        let now_us = self.now_us();
        let wall_us = 1_700_000_000_000_000 + i128::from(now_us) + i128::from(self.hosts[host as usize].wall_us);
        let (sec, us) = (wall_us.div_euclid(1_000_000), wall_us.rem_euclid(1_000_000));
        let mono_us = clock.us(now_us);
        Now { mono_ms: mono_us / 1000, mono_us, wall: Time { sec: sec as i64, nsec: us as u32 * 1000 } }
    }

    /// Starts the partitions of a host from what is on its disk and in its view.
    pub(super) fn start_seats(&mut self, host: u32) -> Result<()> {
        let h = &mut self.hosts[host as usize];
        h.files = h.disk.names().filter_map(|(name, id)| Some((parse_segment(name)?, id))).collect();
        h.disk_busy = false;
        for p in self.partitions() {
            if self.config.hosts_of(p).any(|member| member == host) {
                self.start_seat(At { host, p })?;
            }
        }
        Ok(())
    }

    pub(super) fn start_seat(&mut self, at: At) -> Result<()> {
        let At { host, p } = at;
        let (seat, out) = self.open_seat(at)?;
        let wire = Arc::new(self.wire(Node::Host(host)));
        // Movers ask nothing but staged bytes, which needs no session of its own.
        let session = Session::new(wire.clone(), ClientId(0));
        let node = SeatNode {
            seat,
            waiting: BTreeMap::new(),
            next: 0,
            batch_due: false,
            flights: BTreeMap::new(),
            marks: Vec::new(),
            jobs: BTreeMap::new(),
            steps: TierSteps::default(),
            told: (Term(0), 0),
            life: self.hosts[host as usize].life,
            unfit: Vec::new(),
            reader: Reader::new(wire),
            session,
        };
        let h = &mut self.hosts[host as usize];
        h.seats.insert(p, node);
        let life = h.life;
        let tick_us = self.soon(TICK_US);
        self.queue.put(tick_us, Event::Tick { at, life });
        self.carry_out(at, out);
        Ok(())
    }

    fn open_seat(&mut self, at: At) -> Result<(Seat, Vec<SeatEffect>)> {
        let At { host, p } = at;
        let drives = self.drive_set.clone();
        let now = self.host_now(host);
        let steps_left = self.election_steps();
        let unsettled = self.config.broken == Some(Broken::Unsettled);
        let me = self.member(at);
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
        let config = SeatConfig {
            partition,
            cluster: CLUSTER,
            me,
            segment_bytes: c.segment_bytes,
            stage_memory: StageMemory::new(c.stage_cache_bytes, 1),
            log_soft_bytes: c.log_soft_bytes,
        };
        let files = segments_of(&h.files, p);
        let members = || c.hosts_of(p).map(|host| member(At { host, p }, 0)).collect();
        let register = self.registers.entry(p).or_insert_with(|| Members { members: members(), ..Members::default() });
        let mut store = SimStore { disk: &mut h.disk, files, p, register, unsettled, steps_left };
        let mut out = Vec::new();
        let opened = Seat::open(config, h.kv.clone(), &mut store, now, &mut out);
        let left = store.files;
        h.files.retain(|(of, segment), _| *of != p || left.iter().any(|(kept, _)| kept == segment));
        #[allow(unused_mut)] // changed only where a rule may be left out
        let mut seat = opened.map_err(|error| error.within(format!("{p} cannot start")))?;
        #[cfg(feature = "broken")]
        if let Some(Broken::Members(variant)) = self.config.broken {
            seat.leave_out(now, variant);
        }
        Ok((seat, out))
    }

    /// Limits of this run, and the rule that it leaves out.
    pub(super) fn adjust(&mut self, at: At) {
        let (cap_bytes, age_ms) = (self.config.stage_cap_bytes, self.config.stage_age_ms);
        let (broken, drives) = (self.config.broken, self.drive_set.clone());
        let (policies, names_few) = (self.policies(), self.config.store.names_few);
        let Some(seat) = self.seat(at).map(|node| &mut node.seat) else { return };
        seat.set_drives(drives);
        seat.set_tiers(policies);
        let Some(state) = seat.partition().map(Partition::state_mut) else { return };
        state.set_stage_limits(StageLimits { cap_bytes, start_bytes: cap_bytes / 2, age_ms });
        #[cfg(feature = "broken")]
        if names_few {
            state.name_few(1);
        }
        #[cfg(not(feature = "broken"))]
        let _ = names_few;
        match broken {
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

    /// A replica, while its host is up.
    pub(super) fn seat(&mut self, at: At) -> Option<&mut SeatNode> {
        self.hosts[at.host as usize].seats.get_mut(&at.p)
    }

    /// Where `p` was served last.
    pub(super) fn home(&self, p: PartitionId) -> At {
        At { host: self.homes[&p], p }
    }

    pub(super) fn is_alive(&self, at: At, life: u64) -> bool {
        self.hosts[at.host as usize].life == life
    }

    /// Feeds one event to a replica and carries out what it says.
    pub(super) fn step(&mut self, at: At, event: SeatEvent) {
        self.with_seat(at, |seat, now, out| seat.step(now, event, out));
    }

    pub(super) fn with_seat(&mut self, at: At, work: impl FnOnce(&mut Seat, Now, &mut Vec<SeatEffect>)) {
        let now = self.host_now(at.host);
        let Some(node) = self.seat(at) else { return };
        let mut out = Vec::new();
        work(&mut node.seat, now, &mut out);
        node.seat.say(now, &mut out);
        if !node.batch_due {
            node.batch_due = true;
            let life = self.hosts[at.host as usize].life;
            let end_us = self.soon(BATCH_US);
            self.queue.put(end_us, Event::BatchEnd { at, life });
        }
        let points = if self.config.tiered { self.watch_tier(at) } else { Vec::new() };
        self.carry_out(at, out);
        for point in points {
            self.pass(point, at.host);
        }
    }

    pub(super) fn carry_out(&mut self, at: At, effects: Vec<SeatEffect>) {
        let host = at.host;
        for effect in effects {
            let lost_power = match effect {
                SeatEffect::Reply(token, answer) => self.reply(at, token, answer),
                SeatEffect::Push(push) => {
                    self.send_push(&push);
                    false
                }
                SeatEffect::Peer(to, message) => self.peer_out(at, to, message),
                SeatEffect::Drive(id, to, op) => {
                    let point = match &op {
                        DriveOp::Create { .. } => Some(Point::PackLoggedShardsNotCreated),
                        DriveOp::Drop { .. } => Some(Point::PackDeadLogged),
                        _ => None,
                    };
                    self.watch_drive(at, &op);
                    let crashed = point.is_some_and(|point| self.pass(point, host));
                    if !crashed {
                        self.send_drive(Node::Host(host), to, op, Back::Seat(at, id));
                    }
                    crashed
                }
                SeatEffect::Job(job) => self.start_job(at, job),
                SeatEffect::ReadObject(token, key, off, (len, _)) => {
                    self.read_object(at, token, key, off, len);
                    false
                }
                SeatEffect::Scrub(job) => {
                    self.start_check(at, job);
                    false
                }
                SeatEffect::Notice(_) => false, // there are no people
                SeatEffect::LogWrite { id, segment, off, data } => self.log_write(at, id, segment, off, data),
                SeatEffect::LogRead { id, segment, off, len } => {
                    self.log_read(at, id, segment, off, len);
                    false
                }
                SeatEffect::LogRemove(segment) => self.log_remove(at, segment),
                SeatEffect::Failed(error) => self.seat_failed(host, &error),
                replication => self.replicate(at, replication),
            };
            if lost_power {
                return;
            }
        }
    }

    fn reply(&mut self, at: At, token: Token, answer: Answer) -> bool {
        let At { host, p } = at;
        let Some(node) = self.seat(at) else { return true };
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
        self.send_answer((at, term), to, slot, answer);
        self.pass(Point::ReplySent, host)
    }

    fn peer_out(&mut self, at: At, to: PartitionId, message: PeerMsg) -> bool {
        let host = at.host;
        let named = match &message {
            PeerMsg::Prepared { result: Ok(_), .. } => Some(Point::PeerPrepared),
            PeerMsg::Decide { commit: true, .. } => Some(Point::PeerDecisionLogged),
            _ => None,
        };
        if self.pass(Point::PeerMessageUnsent, host) || named.is_some_and(|point| self.pass(point, host)) {
            return true;
        }
        self.send_peer(at, to, message);
        false
    }

    fn start_job(&mut self, at: At, mut job: Job) -> bool {
        let At { host, p } = at;
        if let (Some(Broken::GiveUpSilent), Job::Rebuild(job)) = (self.config.broken, &mut job) {
            let is_silent =
                |(at, drive): &(u8, &DriveId)| *at == job.shard || self.drives[drive.0 as usize].target.is_none();
            job.gone = (0..).zip(&job.place.drives).filter(is_silent).map(|(at, _)| at).collect();
        }
        let kind = self.kind(&job);
        if self.pass(kind.planned(), host) {
            return true;
        }
        self.counts.moves += 1;
        match &job {
            Job::Move(job) => {
                self.watch_move(at, job);
                self.watch_bare(at, job);
                self.note(|| format!("{p} plans move {} of {} stripes", job.id, job.stripes.len()));
            }
            Job::Rebuild(job) => {
                self.watch_rebuild(job);
                self.note(|| format!("{p} makes shard {} of {} anew on {}", job.shard, job.pack, job.to));
            }
            Job::Upload(UploadJob { key, .. }) | Job::Remove(RemoveJob { key, .. }) => {
                self.note(|| format!("{p} puts or removes {key:?}"));
            }
        }
        let id = job.id();
        let life = self.hosts[host as usize].life;
        let (board, bucket) = (self.board.clone(), self.bucket.clone());
        let Some(node) = self.seat(at) else { return true };
        node.jobs.insert(id, kind);
        let reader = node.reader.clone();
        let stage = WireStage { session: node.session.clone(), fs: crate::FS, partition: p };
        let early = self.config.broken == Some(Broken::EarlyAck);
        let objects = Way { bucket, wire: Arc::clone(reader.wire()), board: board.clone(), at, life };
        let task = async move {
            if early {
                board.send(Sent::JobDone(at, life, id, Ok(())));
            }
            let result = mover::run(&reader, &stage, &objects, &job).await;
            if !early {
                board.send(Sent::JobDone(at, life, id, result));
            }
        };
        self.spawn(Node::Host(host), Box::pin(task));
        false
    }

    pub(super) fn request(&mut self, to: At, term: Term, from: Node, request: Request, slot: Slot<Answer>) {
        let any_term = self.config.broken == Some(Broken::AnyTerm);
        let Some(node) = self.seat(to) else {
            // Nobody listens: some wires say so.
            self.reroute(from, to.p);
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
        self.pass(Point::EntryNotSubmitted, to.host);
    }

    pub(super) fn peer(&mut self, from: PartitionId, to: At, message: PeerMsg) {
        if self.seat(to).is_some() {
            self.step(to, SeatEvent::Peer(from, message));
            self.pass(Point::PeerTaken, to.host);
        }
    }

    pub(super) fn drive_answer(&mut self, back: Back, result: DriveResult) {
        match back {
            Back::Task(slot) => slot.fill(result),
            Back::Seat(at, id) => self.step(at, SeatEvent::Drive(id, result)),
        }
    }

    pub(super) fn job_done(&mut self, at: At, life: u64, id: u64, result: Result<()>) {
        let host = at.host;
        if !self.is_alive(at, life) {
            return;
        }
        self.note(|| format!("{at} move {id} ended: {:?}", result.as_ref().map_err(ToString::to_string)));
        let kind = self.seat(at).and_then(|node| node.jobs.remove(&id)).unwrap_or(Kind::Flash);
        let [before, proposed, logged] = kind.ended();
        if result.is_ok() && self.pass(before, host) {
            return;
        }
        let done = result.is_ok();
        if done {
            self.watch_end(&kind);
        }
        self.step(at, SeatEvent::JobDone(id, result));
        if let Some(node) = self.seat(at) {
            node.marks.extend(done.then_some(logged));
            self.pass(proposed, host);
        }
    }

    pub(super) fn batch_end(&mut self, at: At, life: u64) {
        if !self.is_alive(at, life) {
            return;
        }
        let now = self.host_now(at.host);
        let Some(node) = self.seat(at) else { return };
        node.batch_due = false;
        let mut out = Vec::new();
        node.seat.settle(now, &mut out);
        if let Some(due_us) = node.seat.batch_end(now, &mut out) {
            let end_us = self.soon(due_us.saturating_sub(now.mono_us));
            self.queue.put(end_us, Event::BatchEnd { at, life });
        }
        self.carry_out(at, out);
    }

    pub(super) fn tick(&mut self, at: At, life: u64) {
        if !self.is_alive(at, life) {
            return;
        }
        self.step(at, SeatEvent::Tick);
        if self.config.tiered {
            self.hear_of_damage(at);
        }
        let tick_us = self.now_us() + TICK_US / 2 + self.rng.below(TICK_US);
        self.queue.put(tick_us, Event::Tick { at, life });
    }

    /// Flushes a view; `again`: and will do so after a while.
    pub(super) fn flush(&mut self, host: u32, life: u64, again: bool) {
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
            self.queue.put(at, Event::Flushed { host, life, applied });
            if again {
                self.schedule_flush(host);
            }
        }
    }

    pub(super) fn flushed(&mut self, host: u32, life: u64, applied: &[(PartitionId, Index)]) {
        for (p, upto) in applied {
            let at = At { host, p: *p };
            if self.is_alive(at, life) {
                self.step(at, SeatEvent::Flushed(*upto));
            }
        }
    }

    pub(super) fn schedule_flush(&mut self, host: u32) {
        let life = self.hosts[host as usize].life;
        let at = self.soon(2 * self.config.faults.flush_every_us);
        self.queue.put(at, Event::Flush { host, life, again: true });
    }

    fn seat_failed(&mut self, host: u32, error: &Error) -> bool {
        let f = &self.config.faults;
        let may_fail = f.log_errors > 0 || f.log_full_every_us > 0;
        if !may_fail || !error.message().contains("write the log") {
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
