//! A cluster of partitions in one thread: a network that loses, doubles and reorders, commits that come late,
//! primaries that restart from their key-value view, clients that repeat what got no answer.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use braid_base::ErrorKind;
use braid_base::attr::Time;
use braid_base::ids::{ClientId, FsId, HostId, Index, Ino, OpId, PartitionId, Term};
use braid_base::msg::fs::{Cred, FsResult, Op, Request};
use braid_base::msg::peer::PeerMsg;
use braid_meta::{Config, Effect, Entry, Event, Now, Partition, Token, Variant};
use braid_replica::{Kv, MapKv};

pub const FS: FsId = FsId(1);

/// Numbers from a seed (xorshift64*).
pub struct Rng(u64);

impl Rng {
    pub fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1)
    }

    pub fn below(&mut self, bound: usize) -> usize {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        ((self.0.wrapping_mul(0x2545_F491_4F6C_DD1D) >> 33) % bound.max(1) as u64) as usize
    }

    pub fn chance(&mut self, percent: usize) -> bool {
        self.below(100) < percent
    }

    pub fn pick<'a, T>(&mut self, from: &'a [T]) -> &'a T {
        &from[self.below(from.len())]
    }
}

/// What goes wrong, in per cent of the occasions (restarts and stalls: in per thousand of the steps).
#[derive(Clone, Copy, Default)]
pub struct Faults {
    pub lose: usize,
    pub double: usize,
    pub restarts: usize,
    /// A log that takes up to a second to become durable.
    pub stalls: usize,
}

impl Faults {
    /// A different mix for each seed.
    pub fn of(seed: u64) -> Self {
        let [lose, double, restarts, stalls] = [30, 41, 13, 4].map(|bound| (seed % bound) as usize);
        Self { lose, double, restarts, stalls }
    }
}

pub struct Node {
    pub kv: Arc<MapKv>,
    pub partition: Partition,
    proposed: VecDeque<Entry>,
    applied: Index,
    stalled_until_ms: u64,
}

/// A client's operation on its way.
pub struct Call {
    pub op: OpId,
    pub body: Op,
    to: PartitionId,
    token: Token,
    /// When to send it (again).
    send_ms: u64,
    pub done_upto: u64,
    pub sent: u32,
}

pub struct World {
    pub nodes: Vec<Node>,
    net: Vec<(PartitionId, PartitionId, PeerMsg)>,
    /// Doubles that come when nobody thinks of them any more.
    late: Vec<(PartitionId, PartitionId, PeerMsg)>,
    replies: BTreeMap<Token, FsResult>,
    pub now_ms: u64,
    pub rng: Rng,
    pub faults: Faults,
    tokens: u64,
    variant: Option<Variant>,
}

/// A client repeats after this long without an answer, milliseconds.
const RETRY_MS: u64 = 700;

impl World {
    pub fn new(partitions: u16, seed: u64, faults: Faults, variant: Option<Variant>) -> Self {
        let mut world = Self {
            nodes: Vec::new(),
            net: Vec::new(),
            late: Vec::new(),
            replies: BTreeMap::new(),
            now_ms: 1_000,
            rng: Rng::new(seed),
            faults,
            tokens: 0,
            variant,
        };
        for number in 0..partitions {
            let kv = Arc::new(MapKv::new());
            let partition = world.open(PartitionId(number), partitions, kv.clone(), Index(0));
            world.nodes.push(Node { kv, partition, proposed: VecDeque::new(), applied: Index(0), stalled_until_ms: 0 });
        }
        world
    }

    fn open(&self, partition: PartitionId, partitions: u16, kv: Arc<MapKv>, applied: Index) -> Partition {
        let config = Config {
            partition,
            partitions,
            term: Term(1),
            host: HostId(1),
            data: 4,
            parity: 2,
            shard_bytes: 1 << 20,
            drives: Default::default(),
            capacity_bytes: 1 << 40,
        };
        let mut opened = Partition::open(config, kv, applied).expect("the view can be read");
        opened.state_mut().leave_out(self.variant);
        opened
    }

    pub fn now(&self) -> Now {
        let nsec = (self.now_ms % 1_000) as u32 * 1_000_000;
        let wall = Time { sec: (self.now_ms / 1_000) as i64, nsec };
        Now { mono_ms: self.now_ms, wall, ..Now::default() }
    }

    fn step(&mut self, at: usize, event: Event) {
        let mut out = Vec::new();
        let now = self.now();
        self.nodes[at].partition.step(now, event, &mut out);
        for effect in out {
            match effect {
                Effect::Reply(token, answer) => drop(self.replies.insert(token, answer.result)),
                Effect::Propose(entry) => self.nodes[at].proposed.push_back(entry),
                Effect::Peer(to, message) => self.net.push((PartitionId(at as u16), to, message)),
                Effect::Drive(..)
                | Effect::Job(_)
                | Effect::Scrub(_)
                | Effect::ReadObject(..)
                | Effect::Notice(_)
                | Effect::Push(_) => {}
            }
        }
    }

    fn commit(&mut self, at: usize, count: usize) {
        if self.now_ms < self.nodes[at].stalled_until_ms {
            return;
        }
        self.step(at, Event::Gathered);
        let node = &mut self.nodes[at];
        for _ in 0..count {
            let Some(entry) = node.proposed.pop_front() else { break };
            node.kv.apply(&entry.batch).expect("a map takes everything");
            node.applied = entry.index;
        }
        let upto = node.applied;
        if count > 0 && upto > Index(0) {
            self.step(at, Event::Committed(upto));
            self.step(at, Event::Applied(upto));
        }
    }

    /// The primary goes; some of what it proposed was durable, the rest is lost.
    fn restart(&mut self, at: usize) {
        let survivors = self.rng.below(self.nodes[at].proposed.len() + 1);
        let node = &mut self.nodes[at];
        for entry in node.proposed.drain(..).take(survivors) {
            node.kv.apply(&entry.batch).expect("a map takes everything");
            node.applied = entry.index;
        }
        let (kv, applied) = (node.kv.clone(), node.applied);
        self.nodes[at].partition = self.open(PartitionId(at as u16), self.nodes.len() as u16, kv, applied);
    }

    fn deliver(&mut self) {
        if self.net.is_empty() {
            return;
        }
        let at = self.rng.below(self.net.len());
        if self.rng.chance(self.faults.lose) {
            self.net.swap_remove(at);
            return;
        }
        if self.rng.chance(self.faults.double) {
            let double = self.net[at].clone();
            if self.rng.chance(50) { self.late.push(double) } else { self.net.push(double) }
        }
        let (from, to, message) = self.net.swap_remove(at);
        self.step(usize::from(to.0), Event::Peer(from, message));
    }

    /// A message comes that nobody sent now.
    pub fn inject(&mut self, from: PartitionId, to: PartitionId, message: PeerMsg) {
        self.net.push((from, to, message));
    }

    /// Something happens somewhere.
    pub fn turn(&mut self) {
        let at = self.rng.below(self.nodes.len());
        if self.rng.below(1_000) < self.faults.restarts {
            return self.restart(at);
        }
        if self.rng.below(1_000) < self.faults.stalls {
            self.nodes[at].stalled_until_ms = self.now_ms + self.rng.below(1_000) as u64;
        }
        if !self.late.is_empty() && self.rng.chance(2) {
            let at = self.rng.below(self.late.len());
            self.net.push(self.late.swap_remove(at));
        }
        match self.rng.below(10) {
            0..5 => self.deliver(),
            5..9 => {
                let count = 1 + self.rng.below(3);
                self.commit(at, count);
            }
            _ => {
                self.now_ms += self.rng.below(60) as u64;
                self.step(at, Event::Tick);
            }
        }
    }

    /// Starts an operation of a client at the partition that decides it.
    pub fn begin(&mut self, op: OpId, done_upto: u64, body: Op) -> Call {
        let to = body.route().map_or(PartitionId(0), |ino: Ino| ino.partition(self.nodes.len() as u16));
        Call { op, body, to, token: Token(0), send_ms: self.now_ms, done_upto, sent: 0 }
    }

    /// The answer, if it is there; sends, and repeats, when it is time.
    pub fn poll(&mut self, call: &mut Call) -> Option<FsResult> {
        match self.replies.remove(&call.token) {
            Some(Err(error)) if error.kind() == ErrorKind::Busy => {
                call.send_ms = self.now_ms + 1 + self.rng.below(30) as u64;
            }
            Some(result) => return Some(result),
            None => {}
        }
        if self.now_ms >= call.send_ms {
            self.tokens += 1;
            call.token = Token(self.tokens);
            call.send_ms = self.now_ms + RETRY_MS;
            call.sent += 1;
            let cred = Cred { uid: 7, gid: 8 };
            let request = Request {
                op: call.op,
                session: 0,
                done_upto: call.done_upto,
                fs: FS,
                cred,
                early: false,
                body: call.body.clone(),
            };
            let event = if self.rng.chance(50) { Event::Gather } else { Event::Request };
            self.step(usize::from(call.to.0), event(call.token, request));
        }
        None
    }

    /// Runs one operation to its end.
    pub fn run(&mut self, client: ClientId, seq: u64, body: Op) -> FsResult {
        let mut call = self.begin(OpId { client, seq }, seq - 1, body);
        for _ in 0..200_000 {
            if let Some(result) = self.poll(&mut call) {
                return result;
            }
            self.turn();
        }
        panic!("no answer to {:?} after {} attempts", call.body, call.sent);
    }

    /// Without faults, until nobody owes anything; false if that never comes.
    pub fn settle(&mut self) -> bool {
        self.faults = Faults::default();
        self.net.append(&mut self.late);
        for _ in 0..2_000 {
            self.now_ms += 50;
            for at in 0..self.nodes.len() {
                self.step(at, Event::Tick);
                self.commit(at, usize::MAX);
            }
            while !self.net.is_empty() {
                self.deliver();
                (0..self.nodes.len()).for_each(|at| self.commit(at, 100));
            }
            let idle = |node: &Node| node.partition.state().is_quiet() && node.proposed.is_empty();
            if self.nodes.iter().all(idle) {
                return true;
            }
        }
        false
    }

    /// All primaries go and come back.
    pub fn restart_all(&mut self) {
        (0..self.nodes.len()).for_each(|at| self.restart(at));
    }
}
