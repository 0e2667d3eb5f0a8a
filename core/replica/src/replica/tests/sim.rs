//! Hosts, a network, a register and clients in one thread, from one seed.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};

use braid_base::ids::{ClientId, Guid, HostId, Index, OpId, Term};
use bytes::Bytes;

use super::disk::{Disk, Mark, PARTITION};
use super::faults::{Chance, Faults, Tally};
use crate::config::{Config, Member};
use crate::entry::{Entry, Record};
use crate::kv::Kv;
use crate::kv::applied::Applied;
use crate::kv::batch::Batch;
use crate::log::meta_file::ReplicaMeta;
use crate::log::writer::LogWriter;
use crate::replica::event::{Effect, Event, Msg};
use crate::replica::variant::Variant;
use crate::replica::{Replica, Start, Timing};

struct Node {
    member: Member,
    disk: Disk,
    /// Durable entries, from index 1.
    shadow: Vec<Mark>,
    /// +1 with each start: what was under way for an earlier life is dropped.
    life: u64,
    /// Until then its disk ends nothing.
    hung_until: u64,
    run: Option<Running>,
}

struct Running {
    replica: Replica,
    writer: LogWriter,
    meta: ReplicaMeta,
    applied: Applied,
    /// Local clock: origin and speed in per mille.
    origin: u64,
    since: u64,
    speed: u64,
}

impl Running {
    fn clock(&self, now: u64) -> u64 {
        self.origin + (now - self.since) * self.speed / 1000
    }
}

enum Happening {
    Deliver { host: usize, msg: Msg },
    DiskDone { host: usize, life: u64 },
    Tick { host: usize, life: u64 },
    Cas { host: usize, life: u64, expect: Config, new: Config, answer: bool },
    Register { host: usize, life: u64, result: bool },
    Boot { host: usize },
    Stop { host: usize, life: u64 },
    Client,
    Fault,
    Mend { a: usize, b: usize },
    Controller,
}

pub struct World {
    now: u64,
    chance: Chance,
    faults: Faults,
    variant: Option<Variant>,
    nodes: Vec<Node>,
    register: Config,
    /// Where replicas should be.
    seats: Vec<HostId>,
    /// Every term had at most one primary (I4).
    leaders: BTreeMap<u64, Guid>,
    /// The newest term that served, and where its primary's log ended when it began to.
    served: (u64, u64),
    /// What was committed and acknowledged, and the state hash after it.
    ghost: Vec<(Mark, u64)>,
    cut: Vec<(usize, usize)>,
    queue: BinaryHeap<Reverse<(u64, u64)>>,
    happenings: BTreeMap<u64, Happening>,
    next_id: u64,
    next_op: u64,
    next_store: u8,
    pub tally: Tally,
}

type Check = Result<(), String>;

impl World {
    /// One member that never loses its store.
    pub fn alone(seed: u64) -> Self {
        Self::with_nodes(seed, 1, Faults { wiped: 0, ..Faults::usual() }, None)
    }

    /// `count` members, all hosts up.
    pub fn with_nodes(seed: u64, count: u32, faults: Faults, variant: Option<Variant>) -> Self {
        let members: Vec<_> = (0..count).map(|i| Member { host: HostId(i), store: Guid([i as u8 + 1; 16]) }).collect();
        let register = Config { term: Term(1), primary: members[0], members: members.clone(), learners: Vec::new() };
        let mut world = Self {
            now: 0,
            chance: Chance::new(seed),
            faults,
            variant,
            nodes: Vec::new(),
            register,
            seats: (0..count).map(HostId).collect(),
            leaders: BTreeMap::new(),
            served: (0, 0),
            ghost: Vec::new(),
            cut: Vec::new(),
            queue: BinaryHeap::new(),
            happenings: BTreeMap::new(),
            next_id: 0,
            next_op: 1,
            next_store: 100,
            tally: Tally::default(),
        };
        for member in members {
            let mut disk = Disk::new(member.store);
            let mut meta = ReplicaMeta::new(disk.ident);
            (meta.term, meta.config, meta.seq) = (Term(1), world.register.clone(), 2);
            disk.write_meta(&mut meta);
            world.nodes.push(Node { member, disk, shadow: Vec::new(), life: 0, hung_until: 0, run: None });
            world.after(0, Happening::Boot { host: member.host.0 as usize });
        }
        for first in [Happening::Client, Happening::Fault, Happening::Controller] {
            world.after(1, first);
        }
        world
    }

    /// Lets `ms` pass.
    pub fn run(&mut self, ms: u64) -> Check {
        let until = self.now + ms;
        while let Some(&Reverse((at, id))) = self.queue.peek()
            && at <= until
        {
            self.queue.pop();
            self.now = at;
            let happening = self.happenings.remove(&id).expect("queued once");
            self.happen(happening)?;
            self.check_reads()?;
        }
        self.now = until;
        Ok(())
    }

    /// No more faults: the partition must come back and all members must agree.
    pub fn heal(&mut self, ms: u64) -> Check {
        self.faults = Faults::none();
        self.cut.clear();
        self.nodes.iter_mut().for_each(|node| node.hung_until = 0);
        let before = self.ghost.len();
        self.run(ms)?;
        if self.ghost.len() < before + 20 {
            return Err(format!("stuck after {} commits: {:?}", before, self.register));
        }
        self.check_members(0)
    }

    fn after(&mut self, ms: u64, happening: Happening) {
        self.next_id += 1;
        self.queue.push(Reverse((self.now.saturating_add(ms), self.next_id)));
        self.happenings.insert(self.next_id, happening);
    }

    fn happen(&mut self, happening: Happening) -> Check {
        match happening {
            Happening::Deliver { host, msg } => self.step(host, Event::Msg(msg)),
            Happening::DiskDone { host, life } if self.nodes[host].life == life => self.disk_done(host),
            Happening::Tick { host, life } if self.nodes[host].life == life => {
                self.after(50, Happening::Tick { host, life });
                self.step(host, Event::Tick)
            }
            Happening::Cas { host, life, expect, new, answer } => {
                if self.register == expect {
                    let me = self.nodes[host].member;
                    self.tally.handovers += u64::from(expect.primary == me && new.primary != me);
                    self.register = new;
                    self.check_members(0)?;
                }
                if answer {
                    self.after(self.delay(), Happening::Register { host, life, result: true });
                }
                Ok(())
            }
            Happening::Register { host, life, result } if self.nodes[host].life == life => {
                let config = self.register.clone();
                self.step(host, if result { Event::CasResult { now: config } } else { Event::ConfigSeen(config) })
            }
            Happening::Boot { host } => self.boot(host),
            Happening::Stop { host, life } if self.nodes[host].life == life => {
                self.stop(host);
                Ok(())
            }
            Happening::Client => self.client(),
            Happening::Fault => self.fault(),
            Happening::Mend { a, b } => {
                self.cut.retain(|link| *link != (a, b));
                Ok(())
            }
            Happening::Controller => self.control(),
            _ => Ok(()), // meant for an earlier life
        }
    }

    fn delay(&self) -> u64 {
        1 + self.next_id % 7
    }

    fn step(&mut self, host: usize, event: Event) -> Check {
        let now = self.now;
        let Some(run) = &mut self.nodes[host].run else { return Ok(()) };
        let effects = run.replica.step(run.clock(now), event);
        for effect in effects {
            self.perform(host, effect)?;
        }
        Ok(())
    }

    fn perform(&mut self, host: usize, effect: Effect) -> Check {
        let node = &mut self.nodes[host];
        let Some(run) = &mut node.run else { return Ok(()) };
        let life = node.life;
        match effect {
            Effect::AppendLog { ticket, records } => {
                node.disk.submit(ticket, run.writer.append(&records));
                let ms = 1 + self.chance.below(self.faults.disk_ms);
                self.after(ms, Happening::DiskDone { host, life });
            }
            Effect::TruncateLog { after: (term, index) } => {
                run.writer.truncate_after(term, index);
                node.shadow.truncate(index.0 as usize);
                self.tally.truncations += 1;
            }
            Effect::PersistMeta { term, config, cut } => {
                if term < run.meta.term {
                    return Err(format!("I4: host {host} went back from {} to {term}", run.meta.term));
                }
                (run.meta.term, run.meta.config, run.meta.cut) = (term, config, cut);
                node.disk.write_meta(&mut run.meta);
            }
            Effect::Send { to, msg } => self.post(host, to.host.0 as usize, msg),
            Effect::FetchLog { to, from } => return self.fetch(host, to, from),
            Effect::Cas { expect, new } => self.ask_register(host, life, expect, new),
            Effect::ReadConfig => self.after(self.delay(), Happening::Register { host, life, result: false }),
            Effect::Committed { upto } => return self.committed(host, upto),
            Effect::BecamePrimary { term } => {
                self.tally.primaries += 1;
                let store = node.member.store;
                if *self.leaders.entry(term.0).or_insert(store) != store {
                    return Err(format!("I4: two primaries in {term}"));
                }
                self.served = self.served.max((term.0, run.replica.next_index().0 - 1));
            }
            Effect::Quarantine { error } => return Err(format!("I2: host {host} out of service: {error}")),
            Effect::SteppedDown | Effect::Refused { .. } => {}
        }
        Ok(())
    }

    fn post(&mut self, from: usize, to: usize, msg: Msg) {
        if self.cut.contains(&(from, to)) || self.chance.percent(self.faults.lost) {
            return;
        }
        for _ in 0..1 + u64::from(self.chance.percent(self.faults.doubled)) {
            let late = self.chance.percent(self.faults.late);
            let ms = 1 + self.chance.below(if late { self.faults.late_ms } else { 8 });
            self.after(ms, Happening::Deliver { host: to, msg: msg.clone() });
        }
    }

    /// A compare-and-set may be slow, and the shell may stop waiting and read the register meanwhile.
    fn ask_register(&mut self, host: usize, life: u64, expect: Config, new: Config) {
        let slow = self.chance.percent(self.faults.late);
        if slow {
            self.after(200, Happening::Register { host, life, result: true });
        }
        if !self.chance.percent(self.faults.lost) {
            let ms = 1 + self.chance.below(if slow { 6000 } else { 10 });
            self.after(ms, Happening::Cas { host, life, expect, new, answer: !slow });
        }
    }

    fn fetch(&mut self, host: usize, to: Member, from: Index) -> Check {
        self.tally.fetches += 1;
        let node = &self.nodes[host];
        let Some(run) = &node.run else { return Ok(()) };
        let mut records = Vec::new();
        let before = Index(from.0.saturating_sub(1).max(1));
        run.writer
            .read(&node.disk, before, Index(from.0 + 20), &mut |view| {
                records.push(std::sync::Arc::new(view.to_record()));
                true
            })
            .map_err(|e| format!("I1: host {host} cannot read its log: {e}"))?;
        let prev = if from.0 == 1 || records.is_empty() {
            (Term(0), Index(0))
        } else {
            let prev = records.remove(0);
            (prev.term, prev.index)
        };
        if records.is_empty() { Ok(()) } else { self.step(host, Event::LogFetched { to, prev, records }) }
    }

    fn disk_done(&mut self, host: usize) -> Check {
        if self.now < self.nodes[host].hung_until {
            let life = self.nodes[host].life;
            self.after(50, Happening::DiskDone { host, life });
            return Ok(());
        }
        let Some(ticket) = self.nodes[host].disk.complete() else { return Ok(()) };
        self.step(host, Event::LogDurable { ticket })?;
        let node = &mut self.nodes[host];
        if let Some(run) = &mut node.run {
            run.writer.mark_durable(run.replica.durable());
        }
        Ok(())
    }

    /// Applies, checks I2 and I5, and lets the client know if this is the primary.
    fn committed(&mut self, host: usize, upto: Index) -> Check {
        let node = &mut self.nodes[host];
        let Some(run) = &mut node.run else { return Ok(()) };
        run.writer.mark_durable(run.replica.durable());
        let leads = run.replica.leads();
        while run.applied.index < upto {
            let index = run.applied.index.next();
            let record = match run.replica.record(index) {
                Some(record) => (**record).clone(),
                None => read_one(&run.writer, &node.disk, index)
                    .ok_or_else(|| format!("I1: host {host} committed {upto} but does not hold {index}"))?,
            };
            let mut batch = record.entry.batch().clone();
            run.applied = run.applied.advance(PARTITION, record.term, record.index, &mut batch);
            node.disk.kv.apply(&batch).expect("memory");
            let fact = ((record.term.0, record.entry.ops()[0].seq), run.applied.hash);
            match self.ghost.get(record.index.0 as usize - 1) {
                Some(known) if *known != fact => {
                    return Err(format!("I2: {} is {fact:?} on host {host}, was {known:?}", record.index));
                }
                Some(_) => {}
                None if leads => {
                    let (term, upto) = self.served;
                    if record.term.0 < term && record.index.0 > upto {
                        return Err(format!("I3: {} of {} was not there in {term}", record.index, record.term));
                    }
                    self.ghost.push(fact);
                    self.tally.commits += 1;
                }
                None => return Err(format!("I2: host {host} follows to {}, which is not committed", record.index)),
            }
        }
        if self.chance.percent(5) {
            node.disk.kv.flush().expect("memory");
        }
        // The entries before these were looked at when they were committed.
        self.check_members(self.ghost.len().saturating_sub(64))?;
        self.step(host, Event::Applied { upto })
    }

    fn boot(&mut self, host: usize) -> Check {
        let (now, variant) = (self.now, self.variant);
        let node = &mut self.nodes[host];
        if node.run.is_some() {
            return Ok(());
        }
        node.life += 1;
        let back = node.disk.restart().map_err(|e| format!("I22: host {host}: {e}"))?;
        if !back.marks.starts_with(&node.shadow) {
            return Err(format!("I22: host {host} lost durable entries: {:?} of {:?}", back.marks, node.shadow));
        }
        node.shadow = back.marks;
        let start = Start {
            me: node.member,
            partition: PARTITION,
            term: back.meta.term,
            config: back.meta.config.clone(),
            tail: back.tail,
            cut: back.meta.cut,
            timing: Timing { settled_ms: 1_500, ..Timing::DESIGN },
        };
        let (origin, speed) = (self.chance.below(1_000_000), 950 + self.chance.below(101));
        let replica = Replica::new(origin, start).without_rule(origin, variant);
        node.run = Some(Running {
            replica,
            writer: back.writer,
            meta: back.meta,
            applied: back.applied,
            origin,
            since: now,
            speed,
        });
        let life = node.life;
        self.after(1, Happening::Tick { host, life });
        self.after(2, Happening::Register { host, life, result: false });
        Ok(())
    }

    fn client(&mut self) -> Check {
        // Now and then nobody writes: who leads then has nothing of its own.
        let quiet = self.chance.below(200) == 0 && self.faults.fault_every_ms < u64::MAX;
        let pause = 1 + self.chance.below(if quiet { 8_000 } else { 80 });
        self.after(pause, Happening::Client);
        let Some(host) = (0..self.nodes.len()).find(|h| self.chance.percent(60) && self.active(*h)) else {
            return Ok(());
        };
        let op = self.next_op;
        self.next_op += 1;
        let mut batch = Batch::new();
        batch.put(vec![0, 1, 0x20, (op % 13) as u8], op.to_le_bytes());
        let payload = if op.is_multiple_of(5) { Bytes::from(vec![op as u8; 5000]) } else { Bytes::new() };
        let entry = Entry::new(vec![OpId { client: ClientId(1), seq: op }], batch, payload);
        self.step(host, Event::Propose(entry))?;
        // Else it gathers: the next group takes it along, or a heartbeat.
        if self.chance.percent(50) { self.step(host, Event::Group) } else { Ok(()) }
    }

    fn active(&self, host: usize) -> bool {
        self.nodes[host].run.as_ref().is_some_and(|r| r.replica.is_active())
    }

    fn fault(&mut self) -> Check {
        if self.faults.fault_every_ms == u64::MAX {
            return Ok(());
        }
        let pause = 1 + self.chance.below(2 * self.faults.fault_every_ms);
        self.after(pause, Happening::Fault);
        let host = self.chance.below(self.nodes.len() as u64) as usize;
        let other = self.chance.below(self.nodes.len() as u64) as usize;
        if self.faults.hang_ms > 0 && self.chance.percent(40) {
            self.nodes[host].hung_until = self.now + self.chance.below(self.faults.hang_ms);
            self.tally.hangs += 1;
            return Ok(());
        }
        if self.chance.percent(40) {
            self.cut.push((host, other));
            let ms = self.chance.below(self.faults.cut_ms);
            self.after(ms, Happening::Mend { a: host, b: other });
            return Ok(());
        }
        if self.chance.percent(30) {
            // It stops in order: as far as it comes.
            let life = self.nodes[host].life;
            let ms = self.chance.below(1_500);
            self.after(ms, Happening::Stop { host, life });
            self.tally.left += 1;
            return self.step(host, Event::Leave);
        }
        self.stop(host);
        Ok(())
    }

    /// Power fails, or the process ends.
    fn stop(&mut self, host: usize) {
        self.note_durable();
        if self.nodes[host].run.take().is_some() {
            self.tally.crashes += 1;
            self.nodes[host].life += 1;
            self.nodes[host].hung_until = 0;
            self.nodes[host].disk.crash(&mut self.chance);
            // The store may also be lost, as long as another member of the configuration still has its own.
            if self.chance.percent(self.faults.wiped) && self.others_intact(host) {
                self.wipe(host);
            }
        }
        let ms = self.chance.below(self.faults.down_ms);
        self.after(ms, Happening::Boot { host });
    }

    /// Also in those configurations that are on their way to the register, or will be tried again.
    fn others_intact(&self, host: usize) -> bool {
        let me = self.nodes[host].member.host;
        let intact = |m: &Member| m.host != me && self.nodes[m.host.0 as usize].member == *m;
        let coming = self.happenings.values().filter_map(|happening| match happening {
            Happening::Cas { expect, new, .. } if *expect == self.register => Some(new),
            _ => None,
        });
        let proposed = self.nodes.iter().filter_map(|node| node.run.as_ref()?.replica.cas.as_ref());
        let proposed = proposed.filter(|cas| cas.expect == self.register).map(|cas| &cas.new);
        coming.chain(proposed).chain([&self.register]).all(|config| config.members.iter().any(intact))
    }

    fn wipe(&mut self, host: usize) {
        self.tally.wipes += 1;
        self.next_store += 1;
        let node = &mut self.nodes[host];
        node.member.store = Guid([self.next_store; 16]);
        node.disk = Disk::new(node.member.store);
        node.shadow.clear();
    }

    /// Asks stores that are no members to become some; edits only the learners, so the term stays.
    fn control(&mut self) -> Check {
        self.after(500, Happening::Controller);
        if self.chance.percent(10) {
            // The lead should be elsewhere, or a replica.
            let (count, first) = (self.nodes.len() as u64, self.chance.below(self.nodes.len() as u64));
            let seats = if count > 2 && self.chance.percent(30) { count - 1 } else { count };
            self.seats = (0..seats).map(|at| HostId(((first + at) % count) as u32)).collect();
        }
        let (register, seats) = (&self.register, &self.seats);
        let asked = |m: &Member| !register.members.contains(m) && seats.contains(&m.host);
        let learners = self.nodes.iter().map(|n| n.member).filter(asked).collect();
        self.register.learners = learners;
        for host in 0..self.nodes.len() {
            self.step(host, Event::Seats(self.seats.clone()))?;
            if self.chance.percent(70) {
                let (life, ms) = (self.nodes[host].life, 1 + self.chance.below(300));
                self.after(ms, Happening::Register { host, life, result: false });
            }
        }
        Ok(())
    }

    /// I1: each member of the stored configuration holds every committed entry, durably.
    fn check_members(&mut self, from: usize) -> Check {
        self.note_durable();
        for member in &self.register.members {
            let node = &self.nodes[member.host.0 as usize];
            if node.member != *member {
                continue; // that store is lost; the name alone promises nothing (R9)
            }
            let holds = node.shadow.len() >= self.ghost.len()
                && self.ghost[from..].iter().zip(&node.shadow[from..]).all(|((mark, _), held)| mark == held);
            if !holds {
                let (has, needs) = (node.shadow.len(), self.ghost.len());
                return Err(format!("I1: member {member} holds {has} entries or others, {needs} are committed"));
            }
        }
        Ok(())
    }

    /// Brings the shadows up to what each running replica knows to be durable.
    fn note_durable(&mut self) {
        for node in &mut self.nodes {
            let Some(run) = &mut node.run else { continue };
            let upto = run.replica.durable();
            run.writer.mark_durable(upto);
            // From memory as far as possible, which is quicker; a restart holds the shadow against the disk.
            while (node.shadow.len() as u64) < upto.0 {
                let index = Index(node.shadow.len() as u64 + 1);
                let record = match run.replica.record(index) {
                    Some(record) => (**record).clone(),
                    None => read_one(&run.writer, &node.disk, index).expect("durable records can be read"),
                };
                node.shadow.push((record.term.0, record.entry.ops()[0].seq));
            }
        }
    }

    /// I3: whoever may answer reads has applied all that was acknowledged.
    fn check_reads(&mut self) -> Check {
        for (host, node) in self.nodes.iter().enumerate() {
            let Some(run) = &node.run else { continue };
            if run.replica.may_read(run.clock(self.now)) {
                self.tally.reads += 1;
                let (seen, acked) = (run.applied.index.0, self.ghost.len());
                if seen < acked as u64 {
                    return Err(format!("I3: host {host} answers reads at {seen} of {acked}"));
                }
            }
        }
        Ok(())
    }
}

fn read_one(writer: &LogWriter, disk: &Disk, index: Index) -> Option<Record> {
    let mut found = None;
    let read = writer.read(disk, index, index, &mut |view| {
        found = Some(view.to_record());
        false
    });
    read.ok().and(found)
}
