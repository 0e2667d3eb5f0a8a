//! The simulated world: hosts, drives, clients, the network between them, and time.
//!
//! 1. All tasks that were woken run, in random order.
//! 2. What they put up on the board becomes events at later times: delayed, lost, doubled, late.
//! 3. The earliest event happens: a message arrives, a disk ends some work, power fails.

mod damage;
mod drive;
mod faults;
mod hang;
mod heal;
mod host;
mod leaving;
mod log;
mod net;
mod objects;
mod replicas;
mod rest;
mod setup;
mod store;
mod tier;
mod watch;

use std::collections::{BTreeMap, BTreeSet};

use braid_base::ErrorKind;
use braid_base::ids::{BlobId, ClientId, HostId, OpId, PartitionId, Term};
use braid_io::chance::Rng;
use braid_meta::DriveSet;

use crate::board::{At, Board, Node, Sent};
use crate::config::{Net, SimConfig};
use crate::executor::{Executor, TaskFuture};
use crate::points::{Coverage, Point};
use crate::queue::{Event, Queue};
use crate::wire::{Clock, SimWire};

pub use drive::DriveNode;
pub use host::{Host, SeatNode};

/// The cluster of every simulation.
pub const CLUSTER: braid_base::ids::Guid = braid_base::ids::Guid([7; 16]);

/// What travelled and what was written, for those who count the steps of a path.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Objects that arrived in the store.
    pub objects: usize,
    /// Requests of clients and movers to partitions.
    pub requests: u64,
    /// Messages between partitions.
    pub peer: u64,
    /// Operations sent to drives by partitions.
    pub drive_by_seat: u64,
    /// Operations sent to drives by clients and movers.
    pub drive_by_task: u64,
    /// Log writes.
    pub log_writes: u64,
    /// Log reads.
    pub log_reads: u64,
    /// Bulk moves.
    pub moves: u64,
    /// Messages between replicas of a partition.
    pub replica: u64,
    /// Replicas that began to serve.
    pub serves: u64,
}

/// Everything there is.
pub struct World {
    /// What the run is like.
    pub config: SimConfig,
    /// The meeting point.
    pub board: Board,
    /// What travelled.
    pub counts: Counts,
    /// Points passed.
    pub coverage: Coverage,
    pub(crate) rng: Rng,
    pub(crate) queue: Queue,
    pub(crate) exec: Executor,
    pub(crate) net: Net,
    pub(crate) hosts: Vec<Host>,
    pub(crate) drives: Vec<DriveNode>,
    /// The coordinator: the record of each partition.
    pub(crate) registers: BTreeMap<PartitionId, braid_replica::config::Config>,
    /// The host that served each partition last.
    pub(crate) homes: BTreeMap<PartitionId, u32>,
    /// The term in which each node knows each partition to be served: it learns it from answers.
    pub(crate) terms: BTreeMap<(Node, PartitionId), Term>,
    /// How often the store of a replica was replaced by an empty one.
    pub(crate) stores: BTreeMap<At, u8>,
    /// Where each node asks for each partition.
    pub(crate) routes: BTreeMap<(Node, PartitionId), u32>,
    /// Who served in each term.
    pub(crate) served: BTreeMap<(PartitionId, Term), u32>,
    /// Where replicas should be, if not where they are said to be from the first.
    pub(crate) seats: BTreeMap<PartitionId, Vec<HostId>>,
    /// Hosts that do not reach others.
    pub(crate) cuts: Vec<(u32, u32)>,
    /// The object stores.
    pub(crate) bucket: objects::Bucket,
    /// What the file system does with them.
    plans: tier::Plans,
    /// Objects that somebody met who read.
    shown: BTreeSet<BlobId>,
    /// The drives, as partitions are told.
    pub(crate) drive_set: DriveSet,
    pub(crate) clocks: BTreeMap<Node, Clock>,
    /// Nothing goes wrong any more.
    pub(crate) calm: bool,
    pub(crate) next_client: u64,
    /// Clients whose process was killed and may start again now.
    pub(crate) fallen: Vec<u32>,
    /// Clients whose process was killed and must not start yet.
    pub(crate) dying: Vec<u32>,
    /// Clients that may be killed.
    pub(crate) killable: Vec<u32>,
    pub(crate) life: u64,
    /// Commits of clients that reached a partition.
    pub(crate) commits: BTreeSet<OpId>,
}

impl World {
    /// Adds a task of `owner`.
    pub fn spawn(&mut self, owner: Node, task: TaskFuture) {
        self.exec.spawn(owner, task);
    }

    /// The wire of `node`.
    pub fn wire(&mut self, node: Node) -> SimWire {
        let config = &self.config;
        let rng = &mut self.rng;
        let clock = *self.clocks.entry(node).or_insert_with(|| config.clock(rng));
        SimWire { board: self.board.clone(), node, clock, partitions: self.config.partitions }
    }

    /// The meeting point of everything here.
    pub fn board(&self) -> Board {
        self.board.clone()
    }

    /// A client id never used before.
    pub fn new_client_id(&mut self) -> ClientId {
        self.next_client += 1;
        ClientId(self.next_client)
    }

    /// The time, microseconds.
    pub fn now_us(&self) -> u64 {
        self.board.now_us()
    }

    /// Lets the world go on until `done` or `limit_us` of its time have passed, or a promise is broken.
    /// True if `done`.
    pub fn run(&mut self, limit_us: u64, mut done: impl FnMut(&mut World) -> bool) -> bool {
        let end = self.now_us() + limit_us;
        loop {
            self.settle();
            if self.config.tiered {
                self.bucket.wrong().into_iter().for_each(|what| self.board.violation(what));
                self.counts.objects = self.bucket.puts();
            }
            if self.board.violated().is_some() {
                return false;
            }
            if done(self) {
                return true;
            }
            let Some((at, event)) = self.queue.pop() else { return false };
            if at > end {
                self.queue.put(at, event);
                return false;
            }
            self.board.set_now_us(at);
            self.happen(event);
        }
    }

    /// Runs tasks and takes down what they put up, until neither is left.
    fn settle(&mut self) {
        loop {
            self.exec.run_ready(&mut self.rng);
            self.board.take_deeds().into_iter().for_each(|deed| self.coverage.did(deed));
            let sent = self.board.take_sent();
            if sent.is_empty() {
                return;
            }
            sent.into_iter().for_each(|sent| self.take_down(sent));
        }
    }

    fn take_down(&mut self, sent: Sent) {
        match sent {
            Sent::Partition(from, to, request, slot) => self.send_request(from, to, request, slot),
            Sent::Drive(from, to, op, slot) => self.send_drive(from, to, op, crate::queue::Back::Task(slot)),
            // What a process that was killed leaves undone would begin as its tasks are dropped.
            Sent::Spawn(Node::Client(client), _) if self.dying.contains(&client) => {}
            Sent::Spawn(node, work) => self.exec.spawn(node, work.0),
            Sent::Sleep(until, slot) => self.queue.put(until, Event::Wake(slot)),
            Sent::JobDone(at, life, id, result) => self.job_done(at, life, id, result),
            Sent::Checked(at, life, job, result) => self.checked(at, life, &job, result),
            Sent::Passed(at, life, point) => {
                if self.is_alive(at, life) {
                    self.pass(point, at.host);
                }
            }
            Sent::ObjectRead(read) => self.object_read(*read),
        }
    }

    fn happen(&mut self, event: Event) {
        match event {
            Event::Request { to, term, from, request, slot } => self.request(to, term, from, *request, slot),
            Event::Answer { from, learn, slot, answer } => {
                if let Some((node, term)) = learn {
                    if answer.result.as_ref().is_err_and(|error| error.kind() == ErrorKind::Moved) {
                        self.reroute(node, from.p);
                    }
                    let known = self.terms.entry((node, from.p)).or_default();
                    *known = term.max(*known);
                }
                slot.fill(answer);
                self.settle();
                self.pass(Point::ReplyReceived, from.host);
            }
            Event::Push(push) => {
                if let Some((_, sink)) = self.board.listener(push.to) {
                    sink.pushed(push);
                }
            }
            Event::Peer { from, to, message } => self.peer(from, to, *message),
            Event::Drive { to, op, back } => self.drive_op(to, op, back),
            Event::DriveAnswer { back, result } => self.drive_answer(back, result),
            Event::Wake(slot) => slot.fill(()),
            Event::BatchEnd { at, life } => self.batch_end(at, life),
            Event::Tick { at, life } => self.tick(at, life),
            Event::HostDisk { host, life } => self.host_disk(host, life),
            Event::DriveDisk { drive, life } => self.drive_disk(drive, life),
            Event::DriveTick { drive, life } => self.drive_tick(drive, life),
            Event::Flush { host, life, again } => self.flush(host, life, again),
            Event::Flushed { host, life, applied } => self.flushed(host, life, &applied),
            Event::Restart { host } => self.restart(host),
            Event::Gone { host, life } => self.gone(host, life),
            Event::Revive { client } => {
                self.dying.retain(|dying| *dying != client);
                self.fallen.push(client);
            }
            Event::DriveBack { drive } => self.drive_back(drive),
            Event::DrivesChange { usable } => self.drives_change(usable),
            Event::LogRoom { host } => self.hosts[host as usize].disk.set_capacity(None),
            Event::ViewRoom { host } => self.hosts[host as usize].kv.set_full(false),
            Event::Trouble(trouble) => self.trouble(trouble),
            Event::Replica { to, message } => self.replica(to, *message),
            Event::ReadLog { at, life } => self.read_log(at, life),
            Event::Register { at, life, what } => self.register(at, life, what),
            Event::Registered { at, life, cas, found } => self.registered(at, life, cas, found),
            Event::Control => self.control(),
            Event::Mended { cut } => self.mended(&cut),
            Event::Hangs { host, life, before } => self.hangs(host, life, &before),
            Event::Unhang { host } => self.unhang(host),
            Event::Plans { at, life } => self.hear_plans(at, life),
            Event::StoreUp { store } => self.bucket.calm(store),
        }
    }

    /// A point is passed on `host`; true if it lost power there and then.
    pub(crate) fn pass(&mut self, point: Point, host: u32) -> bool {
        if self.calm || !self.hosts[host as usize].is_up() {
            return false;
        }
        let count = self.coverage.pass(point);
        if self.board.is_quiet() {
            return false;
        }
        let plan = &mut self.config.faults.at_points;
        let Some(at) = plan.iter().position(|(planned, nth)| *planned == point && count >= *nth) else { return false };
        plan.swap_remove(at);
        self.lose_power_at(point, host);
        true
    }

    pub(crate) fn lose_power_at(&mut self, point: Point, host: u32) {
        self.board.note(|| format!("h{host} loses power at {point:?}"));
        self.coverage.crash(point);
        self.crash(host);
    }

    pub(crate) fn note(&self, line: impl FnOnce() -> String) {
        self.board.note(line);
    }

    /// A random delay up to `max_us`.
    pub(crate) fn soon(&mut self, max_us: u64) -> u64 {
        self.now_us() + 1 + self.rng.below(max_us)
    }
}
