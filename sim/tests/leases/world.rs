//! Partitions, clients and the network between them, in one loop.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use braid_base::attr::{Attr, Time};
use braid_base::ids::{HostId, Index, Ino, Layer, PartitionId, Term};
use braid_base::keys;
use braid_base::msg::fs::{Op, Reply, Request};
use braid_base::msg::lease::{Answer, LeaseKind, Push, PushBody};
use braid_base::msg::peer::PeerMsg;
use braid_base::record::{DentryRec, InodeRec, Record};
use braid_base::{Error, ErrorKind};
use braid_client::leases::{Asked, CoreMutation, Effect as Said, Event as Heard};
use braid_io::chance::Rng;
use braid_meta::{Config, Effect, Entry, Event, LeaseMutation, Now, Partition, Token};
use braid_replica::kv::Kv;
use braid_replica::kv::map::MapKv;

use crate::client::{Client, Dirty, FS, Pending, names};

const CLIENTS: u64 = 3;
const RESEND_MS: u64 = 400;

/// Rules that are left out.
#[derive(Clone, Copy, Debug, Default)]
pub struct Broken {
    pub partition: Option<LeaseMutation>,
    pub client: Option<CoreMutation>,
}

/// What happened.
#[derive(Clone, Copy, Debug, Default)]
pub struct Met {
    pub hits: u64,
    pub done: u64,
    pub lost: u64,
    pub restarts: u64,
    pub recalls: u64,
    pub flushed: u64,
    pub given_up: u64,
}

impl Met {
    pub fn add(&mut self, other: &Self) {
        self.hits += other.hits;
        self.done += other.done;
        self.lost += other.lost;
        self.restarts += other.restarts;
        self.recalls += other.recalls;
        self.flushed += other.flushed;
        self.given_up += other.given_up;
    }
}

#[derive(Clone, Debug)]
enum Msg {
    Request { p: PartitionId, term: Term, token: Token, request: Request },
    Answer { token: Token, answer: Answer },
    Push(Push),
    Peer { from: PartitionId, to: PartitionId, message: PeerMsg },
}

struct Node {
    partition: Partition,
    term: Term,
    kv: Arc<MapKv>,
    /// With what is not committed yet: what the partition would answer.
    ahead: MapKv,
    proposed: VecDeque<Entry>,
    applied: Index,
}

struct Attempt {
    client: usize,
    seq: u64,
    session: u64,
    p: PartitionId,
    sent_ms: u64,
    stamp: u64,
    body: Op,
}

pub struct World {
    rng: Rng,
    now_ms: u64,
    broken: Broken,
    nodes: Vec<Node>,
    clients: Vec<Client>,
    net: BTreeMap<(u64, u64), Msg>,
    number: u64,
    attempts: BTreeMap<Token, Attempt>,
    dirs: Vec<Ino>,
    files: Vec<Ino>,
    met: Met,
    wrong: Option<String>,
    /// The last messages, for whoever looks for a fault.
    schedule: VecDeque<String>,
}

impl World {
    pub fn new(seed: u64, broken: Broken) -> Self {
        let mut rng = Rng::new(seed);
        let partitions = 1 + (seed % 2) as u16;
        let nodes = (0..partitions).map(|p| Node::new(PartitionId(p), partitions, broken)).collect();
        let clients = (1..=CLIENTS).map(|number| Client::new(number, partitions, &mut rng, broken.client)).collect();
        let root = Ino::root(FS);
        let mut world = Self {
            rng,
            now_ms: 1_000,
            broken,
            nodes,
            clients,
            net: BTreeMap::new(),
            number: 0,
            attempts: BTreeMap::new(),
            dirs: vec![root],
            files: Vec::new(),
            met: Met::default(),
            wrong: None,
            schedule: VecDeque::new(),
        };
        world.begin(0, Op::MakeRoot { ino: root, mode: 0o755 }, None, false);
        world
    }

    /// Runs for so many milliseconds.
    pub fn run(mut self, for_ms: u64) -> Result<Met, String> {
        let end = self.now_ms + for_ms;
        while self.now_ms < end && self.wrong.is_none() {
            self.now_ms += 1 + self.below(8);
            self.deliver();
            for p in 0..self.nodes.len() {
                if self.chance(1, 4) {
                    self.commit(p, usize::MAX);
                }
                if self.chance(1, 20) {
                    self.feed(p, Event::Tick);
                }
                if self.chance(1, 3_000) {
                    self.restart(p);
                }
            }
            for c in 0..self.clients.len() {
                self.turn(c);
            }
            self.check_leases();
        }
        match self.wrong {
            Some(wrong) => {
                let schedule: Vec<String> = self.schedule.into();
                Err(format!("at {} ms: {wrong}\n{}", self.now_ms, schedule.join("\n")))
            }
            None => Ok(self.met),
        }
    }

    fn below(&mut self, bound: u64) -> u64 {
        self.rng.next_u64() % bound.max(1)
    }

    fn chance(&mut self, one: u64, of: u64) -> bool {
        self.below(of) < one
    }

    fn fail(&mut self, what: String) {
        self.wrong.get_or_insert(what);
    }

    // The network.

    fn send(&mut self, msg: Msg) {
        let copies = match self.below(100) {
            0..4 => 0,
            4..8 => 2,
            _ => 1,
        };
        for _ in 0..copies {
            let delay = match self.below(200) {
                0 => self.below(40_000),
                1..4 => self.below(4_000),
                _ => 1 + self.below(20),
            };
            self.number += 1;
            self.net.insert((self.now_ms + delay, self.number), msg.clone());
        }
    }

    fn deliver(&mut self) {
        while let Some(entry) = self.net.first_entry() {
            let (at, number) = *entry.key();
            if at > self.now_ms {
                return;
            }
            let msg = entry.remove();
            if let Some(c) = self.client_of(&msg) {
                if self.now_ms < self.clients[c].cut_until {
                    continue;
                }
                let to_client = matches!(msg, Msg::Answer { .. } | Msg::Push(_));
                if to_client && self.now_ms < self.clients[c].stopped_until {
                    self.net.insert((self.clients[c].stopped_until, number), msg);
                    continue;
                }
            }
            self.arrive(msg);
        }
    }

    fn client_of(&self, msg: &Msg) -> Option<usize> {
        match msg {
            Msg::Request { token, .. } | Msg::Answer { token, .. } => self.attempts.get(token).map(|a| a.client),
            Msg::Push(push) => Some(push.to.0 as usize - 1),
            Msg::Peer { .. } => None,
        }
    }

    fn note(&mut self, what: String) {
        let line: String = what.chars().take(400).collect();
        self.schedule.push_back(format!("{} {line}", self.now_ms));
        if self.schedule.len() > 80 {
            self.schedule.pop_front();
        }
    }

    fn arrive(&mut self, msg: Msg) {
        self.note(format!("{msg:?}"));
        match msg {
            Msg::Request { p, term, token, request } => {
                let at = usize::from(p.0);
                let own = self.nodes[at].term;
                if term == own {
                    self.feed(at, Event::Request(token, request));
                } else {
                    let moved = Error::new(ErrorKind::Moved, "another term");
                    self.send(Msg::Answer { token, answer: Answer::plain(own, Err(moved)) });
                }
            }
            Msg::Peer { from, to, message } => self.feed(usize::from(to.0), Event::Peer(from, message)),
            Msg::Push(push) => {
                let c = push.to.0 as usize - 1;
                self.met.recalls += u64::from(matches!(push.body, PushBody::Recall { .. }));
                self.tell(c, &Heard::Pushed(push));
            }
            Msg::Answer { token, answer } => self.answered(token, &answer),
        }
    }

    // The partitions.

    fn feed(&mut self, at: usize, event: Event) {
        let wall = Time { sec: (self.now_ms / 1_000) as i64, nsec: (self.now_ms % 1_000) as u32 };
        let mut out = Vec::new();
        self.nodes[at].partition.step(Now { mono_ms: self.now_ms, wall, ..Now::default() }, event, &mut out);
        for effect in out {
            match effect {
                Effect::Reply(token, answer) => self.send(Msg::Answer { token, answer }),
                Effect::Push(push) => self.send(Msg::Push(push)),
                Effect::Propose(entry) => {
                    self.nodes[at].ahead.apply(&entry.batch).expect("a map takes everything");
                    self.nodes[at].proposed.push_back(entry);
                }
                Effect::Peer(to, message) => self.send(Msg::Peer { from: PartitionId(at as u16), to, message }),
                Effect::Drive(..) | Effect::Job(_) | Effect::Scrub(_) | Effect::ReadObject(..) | Effect::Notice(_) => {}
            }
        }
    }

    fn commit(&mut self, at: usize, most: usize) {
        let node = &mut self.nodes[at];
        let count = node.proposed.len().min(most);
        if count == 0 {
            return;
        }
        for entry in node.proposed.drain(..count) {
            node.kv.apply(&entry.batch).expect("a map takes everything");
            node.applied = entry.index;
        }
        let upto = node.applied;
        self.feed(at, Event::Committed(upto));
        self.feed(at, Event::Applied(upto));
    }

    /// The primary goes; the next one has some of what was not committed.
    fn restart(&mut self, at: usize) {
        self.met.restarts += 1;
        self.note(format!("p{at} restarts"));
        let survivors = self.below(self.nodes[at].proposed.len() as u64 + 1) as usize;
        let (partitions, broken) = (self.nodes.len() as u16, self.broken);
        let node = &mut self.nodes[at];
        for entry in node.proposed.drain(..).take(survivors) {
            node.kv.apply(&entry.batch).expect("a map takes everything");
            node.applied = entry.index;
        }
        node.term = Term(node.term.0 + 1);
        node.ahead = copy(&node.kv);
        let (term, kv, applied) = (node.term, node.kv.clone(), node.applied);
        node.partition = open(PartitionId(at as u16), partitions, term, kv, applied, broken);
    }

    // The clients.

    fn turn(&mut self, c: usize) {
        if self.now_ms < self.clients[c].stopped_until {
            return;
        }
        if self.chance(1, 60) {
            self.tell(c, &Heard::Tick);
        }
        match self.below(6_000) {
            0 => self.clients[c].cut_until = self.now_ms + self.rng.next_u64() % 40_000,
            1 => self.clients[c].stopped_until = self.now_ms + self.rng.next_u64() % 40_000,
            _ => {}
        }
        let pending = self.clients[c].pending.iter();
        let late: Vec<u64> = pending.filter(|(_, p)| self.now_ms >= p.resend_ms).map(|(seq, _)| *seq).collect();
        for seq in late {
            self.attempt(c, seq);
        }
        self.check_memory(c);
        if self.clients[c].pending.len() < 2 && self.chance(1, 5) {
            let now_ms = self.now_ms;
            let (dirs, files) = (self.dirs.clone(), self.files.clone());
            if let Some(op) = self.clients[c].wish(&mut self.rng, &dirs, &files, now_ms) {
                self.begin(c, op, None, false);
            }
        }
    }

    fn begin(&mut self, c: usize, body: Op, fixed: Option<u64>, flushes: bool) {
        let partitions = self.nodes.len() as u16;
        let Some(p) = body.route().map(|ino| ino.partition(partitions)) else { return };
        self.tell(c, &Heard::Wanted(p));
        self.begin_at(c, p, body, fixed, flushes);
    }

    fn begin_at(&mut self, c: usize, p: PartitionId, body: Op, fixed: Option<u64>, flushes: bool) {
        let client = &mut self.clients[c];
        client.seq += 1;
        let seq = client.seq;
        client.pending.insert(seq, Pending { body, p, fixed, resend_ms: 0, flushes });
        self.attempt(c, seq);
    }

    fn attempt(&mut self, c: usize, seq: u64) {
        let resend_ms = self.now_ms + RESEND_MS + self.below(200);
        let client = &mut self.clients[c];
        let Some(pending) = client.pending.get_mut(&seq) else { return };
        pending.resend_ms = resend_ms;
        let (p, body) = (pending.p, pending.body.clone());
        let session = pending.fixed.unwrap_or_else(|| client.core.session(p));
        self.post(c, seq, p, session, body);
    }

    fn post(&mut self, c: usize, seq: u64, p: PartitionId, session: u64, body: Op) {
        self.number += 1;
        let (token, client) = (Token(self.number), &self.clients[c]);
        let (sent_ms, stamp) = (client.now(self.now_ms), client.core.asking());
        let term = client.terms[usize::from(p.0)];
        let request = client.request(seq, session, body.clone());
        self.attempts.insert(token, Attempt { client: c, seq, session, p, sent_ms, stamp, body });
        self.send(Msg::Request { p, term, token, request });
    }

    fn tell(&mut self, c: usize, event: &Heard<'_>) {
        let mut out = Vec::new();
        let now = self.clients[c].now(self.now_ms);
        self.clients[c].core.step(now, event.clone(), &mut out);
        for said in out {
            match said {
                Said::Ask { p, session, body } if matches!(body, Op::ReleaseLease { .. }) => {
                    self.begin_at(c, p, body, Some(session), false);
                }
                Said::Ask { p, session, body } => {
                    self.clients[c].seq += 1;
                    let seq = self.clients[c].seq;
                    self.post(c, seq, p, session, body);
                }
                Said::Flush { ino, session, .. } => match self.clients[c].dirty.get(&ino).copied() {
                    Some(dirty) if !dirty.lost => self.begin(c, Client::flush(ino), Some(dirty.session), true),
                    _ => {
                        self.clients[c].dirty.remove(&ino);
                        self.tell(c, &Heard::Flushed { fs: FS, ino, session });
                    }
                },
                Said::Lost { p, session } => {
                    self.met.lost += 1;
                    let partitions = self.nodes.len() as u16;
                    let here =
                        |(ino, dirty): &(&Ino, &mut Dirty)| ino.partition(partitions) == p && dirty.session == session;
                    self.clients[c].dirty.iter_mut().filter(here).for_each(|(_, dirty)| dirty.lost = true);
                    let under_way: BTreeSet<Ino> = self.flushing(c);
                    self.clients[c].dirty.retain(|ino, dirty| !dirty.lost || under_way.contains(ino));
                }
                Said::Forget { .. } => {}
            }
        }
    }

    fn flushing(&self, c: usize) -> BTreeSet<Ino> {
        let flushes = self.clients[c].pending.values().filter(|pending| pending.flushes);
        flushes.filter_map(|pending| pending.body.route()).collect()
    }

    fn answered(&mut self, token: Token, answer: &Answer) {
        let Some(Attempt { client: c, seq, session, p, sent_ms, stamp, body }) = self.attempts.get(&token) else {
            return;
        };
        let (c, seq, p, sent_ms, body) = (*c, *seq, *p, *sent_ms, body.clone());
        let (session, asked) = (*session, Asked { session: *session, fixed: false, stamp: *stamp });
        let known = &mut self.clients[c].terms[usize::from(p.0)];
        *known = answer.term.max(*known);
        match &body {
            Op::Hello { .. } => return self.tell(c, &Heard::Hello { p, session, sent_ms, answer }),
            Op::Reassert { .. } => return self.tell(c, &Heard::Reasserted { p, session, sent_ms, answer }),
            _ => {}
        }
        let is_open = self.clients[c].pending.contains_key(&seq);
        if is_open || body.is_read() {
            self.tell(c, &Heard::Answered { p, asked, fs: FS, op: &body, answer });
        }
        if !is_open {
            return;
        }
        let fixed = self.clients[c].pending.get(&seq).and_then(|pending| pending.fixed);
        match &answer.result {
            Err(error) if error.kind().is_passing() || (error.kind() == ErrorKind::SessionLost && fixed.is_none()) => {
                let pause = 1 + self.below(60);
                if let Some(pending) = self.clients[c].pending.get_mut(&seq) {
                    pending.resend_ms = self.now_ms + pause;
                }
            }
            result => self.done(c, seq, result.clone()),
        }
    }

    fn done(&mut self, c: usize, seq: u64, result: Result<Reply, Error>) {
        let Some(pending) = self.clients[c].pending.remove(&seq) else { return };
        self.met.done += 1;
        if pending.flushes {
            return self.flushed(c, &pending, result);
        }
        match (&pending.body, &result) {
            (Op::Create { open, .. }, Ok(Reply::Entry { ino, kind, .. })) => {
                let is_dir = *kind == braid_base::attr::FileType::Directory;
                let list = if is_dir { &mut self.dirs } else { &mut self.files };
                if !list.contains(ino) {
                    list.push(*ino);
                }
                if list.len() > 8 {
                    let _ = list.remove(1);
                }
                if *open {
                    self.begin(c, Op::Close { inos: vec![*ino] }, None, false);
                }
            }
            (_, Err(error)) if error.kind() == ErrorKind::Corrupt => self.fail(format!("{:?}: {error}", pending.body)),
            _ => {}
        }
    }

    /// What was held back came onto what it was read from, or was refused.
    fn flushed(&mut self, c: usize, pending: &Pending, result: Result<Reply, Error>) {
        let Some(ino) = pending.body.route() else { return };
        let dirty = self.clients[c].dirty.remove(&ino);
        match (dirty, result) {
            (Some(dirty), Ok(Reply::Attr(attr))) => {
                self.met.flushed += 1;
                if attr.change != dirty.change + 1 {
                    self.fail(format!(
                        "client {c}: {ino} changed from {} to {} under {dirty:?}",
                        dirty.change, attr.change
                    ));
                }
            }
            (_, Err(error)) if error.kind() == ErrorKind::SessionLost => self.met.given_up += 1,
            (_, Err(error)) if error.kind() == ErrorKind::Stale => {}
            (dirty, other) => self.fail(format!("client {c}: flush of {ino} {dirty:?}: {other:?}")),
        }
        self.tell(c, &Heard::Flushed { fs: FS, ino, session: pending.fixed.unwrap_or(0) });
    }

    // The checks.

    fn check_leases(&mut self) {
        for ino in self.files.iter().chain(&self.dirs) {
            let held: Vec<(u64, LeaseKind)> = self
                .clients
                .iter()
                .filter(|client| self.now_ms >= client.stopped_until)
                .filter_map(|client| Some((client.id.0, client.core.lease(FS, *ino, client.now(self.now_ms))?)))
                .collect();
            if held.len() > 1 && held.iter().any(|(_, kind)| *kind == LeaseKind::Exclusive) {
                let wrong = format!("{ino} is held by {held:?}");
                return self.fail(wrong);
            }
        }
    }

    fn check_memory(&mut self, c: usize) {
        let now = self.clients[c].now(self.now_ms);
        let all: Vec<Ino> = self.files.iter().chain(&self.dirs).copied().collect();
        for ino in all {
            let client = &self.clients[c];
            if client.is_changing(ino) {
                continue;
            }
            if let Some(known) = client.core.attr(FS, ino, now).cloned() {
                self.met.hits += 1;
                let truth = self.attr(ino);
                if truth.as_ref() != Some(&known) {
                    return self.fail(format!("client {c} remembers {known:?}, and it is {truth:?}"));
                }
            }
            for name in names() {
                let Some(known) = self.clients[c].core.name(FS, ino, name, now) else { continue };
                self.met.hits += 1;
                let truth = self.name(ino, name);
                if truth != known {
                    let name = name.escape_ascii();
                    return self
                        .fail(format!("client {c} remembers {known:?} as {name} in {ino}, and it is {truth:?}"));
                }
            }
        }
    }

    fn home(&self, ino: Ino) -> (PartitionId, &MapKv) {
        let p = ino.partition(self.nodes.len() as u16);
        (p, &self.nodes[usize::from(p.0)].ahead)
    }

    fn attr(&self, ino: Ino) -> Option<Attr> {
        let (p, kv) = self.home(ino);
        let bytes = kv.get(&keys::inode(p, FS, ino, Layer::FIRST)).expect("a map can be read")?;
        let mut attr = InodeRec::decode(&bytes).expect("the partition wrote it").attr;
        attr.ino = ino;
        Some(attr)
    }

    fn name(&self, dir: Ino, name: &[u8]) -> Option<Ino> {
        let (p, kv) = self.home(dir);
        let key = keys::dentry(p, FS, dir, keys::name_cookie(name), Layer::FIRST);
        let bytes = kv.get(&key).expect("a map can be read")?;
        Some(DentryRec::decode(&bytes).expect("the partition wrote it").ino)
    }
}

impl Node {
    fn new(p: PartitionId, partitions: u16, broken: Broken) -> Self {
        let (kv, term) = (Arc::new(MapKv::new()), Term(1));
        let partition = open(p, partitions, term, kv.clone(), Index(0), broken);
        let (ahead, proposed) = (MapKv::new(), VecDeque::new());
        Self { partition, term, kv, ahead, proposed, applied: Index(0) }
    }
}

fn open(p: PartitionId, partitions: u16, term: Term, kv: Arc<MapKv>, applied: Index, broken: Broken) -> Partition {
    let config = Config {
        partition: p,
        partitions,
        term,
        host: HostId(1),
        data: 2,
        parity: 1,
        shard_bytes: 1 << 20,
        drives: Default::default(),
        capacity_bytes: 1 << 40,
    };
    let mut opened = Partition::open(config, kv, applied).expect("the view can be read");
    opened.state_mut().leave_out_of_leases(broken.partition);
    opened
}

fn copy(kv: &MapKv) -> MapKv {
    let mut batch = braid_replica::Batch::default();
    kv.scan(&[], &[0xFF; 64], &mut |key, value| {
        batch.put(key, value);
        true
    })
    .expect("a map can be read");
    let copy = MapKv::new();
    copy.apply(&batch).expect("a map takes everything");
    copy
}
