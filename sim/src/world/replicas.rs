//! Several replicas of a partition: their messages, the coordinator between them, and who joins them again.

use std::sync::Arc;

use braid_base::ids::{HostId, PartitionId, Term};
use braid_base::msg::lease::Answer;
use braid_base::{Error, ErrorKind};
use braid_host::seat::{SeatEffect, SeatEvent};
use braid_io::sim::SimDisk;
use braid_replica::config::{Config as Members, Member};
use braid_replica::replica::event::{Body, Msg};
use braid_replica::{LogIdent, MapKv, ReplicaMeta};

use super::store::{member, meta_name, write_meta};
use super::{CLUSTER, World};
use crate::board::{At, Node};
use crate::deeds::Deed;
use crate::queue::{Event, Register};

/// A log is read within this time, microseconds.
const READ_US: u64 = 2_000;
/// About the time between two looks of the controller, microseconds.
const CONTROL_US: u64 = 1_000_000;

impl World {
    /// What a replica says because it is one of several; true if its host lost power.
    pub(super) fn replicate(&mut self, at: At, effect: SeatEffect) -> bool {
        let life = self.hosts[at.host as usize].life;
        match effect {
            SeatEffect::WriteMeta { off, block } => {
                if self.loses_power_now(at) {
                    return true;
                }
                if let Err(error) = write_meta(&mut self.hosts[at.host as usize].disk, at.p, off, &block) {
                    self.board.violation(format!("{at} cannot keep its term: {error}"));
                }
                return self.loses_power_now(at);
            }
            SeatEffect::ReadLog => {
                self.coverage.did(Deed::LogRead);
                let read_us = self.soon(READ_US);
                self.queue.put(read_us, Event::ReadLog { at, life });
            }
            SeatEffect::Replica(to, message) => self.send_replica(at, to, message),
            SeatEffect::Cas { expect, new } => self.ask_register(at, Register::Cas { expect, new }),
            SeatEffect::ReadConfig => self.ask_register(at, Register::Read),
            SeatEffect::Serves => {
                let term = self.seat(at).map_or(Term(0), |node| node.seat.term());
                self.counts.serves += 1;
                self.note(|| format!("{at} serves in term {term}"));
                if self.homes.insert(at.p, at.host) != Some(at.host) {
                    self.coverage.did(Deed::TookOver);
                }
                self.board.power_lost(); // what only the primary before knew is gone
                if let Some(other) = self.served.insert((at.p, term), at.host).filter(|host| *host != at.host) {
                    self.board.violation(format!("I4: {at} serves in {term}, and so did h{other}"));
                }
                self.adjust(at);
            }
            SeatEffect::FlushView => {
                self.coverage.did(Deed::TookView);
                let flush_us = self.soon(READ_US);
                self.queue.put(flush_us, Event::Flush { host: at.host, life, again: false });
            }
            SeatEffect::Forsaken => self.begin_anew(at),
            SeatEffect::StepsDown => self.give_up(at),
            other => self.board.violation(format!("{at} said {other:?}, which nobody understands")),
        }
        false
    }

    /// Now and then power fails around the note of a new term.
    fn loses_power_now(&mut self, at: At) -> bool {
        let loses = self.config.members > 1 && !self.calm && !self.board.is_quiet() && self.rng.chance(1, 60);
        if loses {
            self.crash(at.host);
        }
        loses
    }

    /// What was asked there is to be asked elsewhere.
    fn give_up(&mut self, at: At) {
        self.note(|| format!("{at} steps down"));
        let Some(node) = self.seat(at) else { return };
        for (to, slot, _) in std::mem::take(&mut node.waiting).into_values() {
            let moved = Error::new(ErrorKind::Moved, format!("{} is not served here any more", at.p));
            self.send_answer((at, Term(0)), to, slot, Answer::plain(Term(0), Err(moved)));
        }
    }

    /// What the store at `at` is called now.
    pub(super) fn member(&self, at: At) -> Member {
        member(at, self.stores.get(&at).copied().unwrap_or(0))
    }

    /// The store is replaced by an empty one.
    fn begin_anew(&mut self, at: At) {
        if self.registers[&at.p].has(self.member(at).store) {
            return;
        }
        self.note(|| format!("{at} begins anew"));
        self.coverage.did(Deed::BeganAnew);
        // Without room it would be tried again when there is some.
        self.hosts[at.host as usize].disk.set_capacity(None);
        self.hosts[at.host as usize].kv.set_full(false);
        self.replace_store(at);
        self.hosts[at.host as usize].seats.remove(&at.p);
        if let Err(error) = self.start_seat(at) {
            self.not_started(at.host, &error);
        }
    }

    fn replace_store(&mut self, at: At) {
        *self.stores.entry(at).or_insert(0) += 1;
        let ident = LogIdent { cluster: CLUSTER, partition: at.p, store: self.member(at).store };
        let (off, block) = ReplicaMeta { importing: true, ..ReplicaMeta::new(ident) }.write();
        // Files that wait to be used again are removed by a start.
        self.hosts[at.host as usize].stale.remove(&at.p);
        let disk = &mut self.hosts[at.host as usize].disk;
        disk.remove(&meta_name(at.p));
        if let Err(error) = write_meta(disk, at.p, off, &block) {
            self.board.violation(format!("{at} cannot be made: {error}"));
        }
    }

    /// A host loses its metadata disk, if each partition on it has a primary elsewhere that all members follow: nobody
    /// is about to take its place, and what is committed is on two other hosts.
    pub(super) fn wipe_some_host(&mut self) {
        let host = self.rng.below(u64::from(self.config.hosts)) as u32;
        let mine: Vec<At> = self.partitions().flat_map(|p| self.replicas(p)).filter(|at| at.host == host).collect();
        if !self.is_up(host) || mine.iter().any(|at| !self.can_lose(*at)) {
            return;
        }
        self.note(|| format!("h{host} loses its metadata disk"));
        self.coverage.did(Deed::Wiped);
        self.crash(host);
        let h = &mut self.hosts[host as usize];
        (h.disk, h.kv) = (SimDisk::new(), Arc::new(MapKv::new()));
        h.files.clear();
        h.stale.clear();
        mine.into_iter().for_each(|at| self.replace_store(at));
    }

    fn can_lose(&mut self, at: At) -> bool {
        let (home, register) = (self.home(at.p), self.registers[&at.p].clone());
        let members: Vec<Member> = self.replicas(at.p).map(|at| self.member(at)).collect();
        let (now, primary) = (self.host_now(home.host), self.member(home));
        let leads = self.seat(home).is_some_and(|node| node.seat.replica().may_read(now.mono_ms));
        let whole = members.len() > 2 && members.iter().all(|member| register.has(member.store));
        home != at && whole && leads && register.primary == primary
    }

    /// All partitions.
    pub(super) fn partitions(&self) -> impl Iterator<Item = PartitionId> + use<> {
        (0..self.config.partitions).map(PartitionId)
    }

    fn send_replica(&mut self, from: At, to: Member, message: Msg) {
        self.counts.replica += 1;
        let to = At { host: to.host.0, p: from.p };
        match &message.body {
            Body::Behind { first } => self.note(|| format!("{from} -> {to}: the log begins with {first}")),
            Body::View { start, applied, rows, last, .. } => {
                self.note(|| {
                    format!("{from} -> {to}: {} rows at {applied}, log after {start:?}, last: {last}", rows.len())
                });
            }
            Body::Pull { .. } => self.coverage.did(Deed::PulledLog),
            _ => {}
        }
        if self.is_cut(from.host, to.host) {
            return;
        }
        for at_us in self.arrivals() {
            self.queue.put(at_us, Event::Replica { to, message: Box::new(message.clone()) });
        }
    }

    pub(super) fn replica(&mut self, to: At, message: Msg) {
        if self.seat(to).is_some() {
            self.step(to, SeatEvent::Replica(message));
        }
    }

    pub(super) fn read_log(&mut self, at: At, life: u64) {
        if !self.is_alive(at, life) {
            return;
        }
        let (now, mut out) = (self.host_now(at.host), Vec::new());
        let Some((node, log)) = self.hosts[at.host as usize].seat_and_log(at.p) else { return };
        node.seat.read_log(now, &log, &mut out);
        node.seat.say(now, &mut out);
        self.carry_out(at, out);
    }

    /// The coordinator is asked; the question or the answer may be lost, and both take their time.
    fn ask_register(&mut self, at: At, what: Register) {
        let life = self.hosts[at.host as usize].life;
        for ask_us in self.arrivals() {
            self.queue.put(ask_us, Event::Register { at, life, what: what.clone() });
        }
    }

    pub(super) fn register(&mut self, at: At, life: u64, what: Register) {
        let register = self.registers.entry(at.p).or_default();
        let cas = matches!(what, Register::Cas { .. });
        if let Register::Cas { expect, new } = what
            && *register == expect
        {
            if new.members.len() > register.members.len() {
                self.coverage.did(Deed::Admitted);
            }
            let me = self.member(at);
            if expect.primary == me && new.primary != me {
                self.coverage.did(Deed::HandedOver);
            }
            let register = self.registers.entry(at.p).or_default();
            *register = new;
            let text = format!("{}: {register:?}", at.p);
            self.note(|| text);
        }
        let found = self.registers[&at.p].clone();
        for answer_us in self.arrivals() {
            self.queue.put(answer_us, Event::Registered { at, life, cas, found: found.clone() });
        }
    }

    pub(super) fn registered(&mut self, at: At, life: u64, cas: bool, found: Members) {
        if self.is_alive(at, life) {
            self.step(at, if cas { SeatEvent::CasResult(found) } else { SeatEvent::ConfigSeen(found) });
        }
    }

    pub(super) fn schedule_control(&mut self) {
        if self.config.members > 1 {
            let control_us = self.soon(2 * CONTROL_US);
            self.queue.put(control_us, Event::Control);
        }
    }

    /// Replicas that were dropped are asked to join again while their host is up; everybody hears what is set.
    pub(super) fn control(&mut self) {
        for p in self.partitions() {
            let there: Vec<Member> =
                self.replicas(p).filter(|at| self.is_up(at.host)).map(|at| self.member(at)).collect();
            let seats = self.seats(p);
            let Some(register) = self.registers.get_mut(&p) else { continue };
            let asked = |member: &Member| !register.has(member.store) && seats.contains(&member.host);
            let learners: Vec<Member> = there.into_iter().filter(asked).collect();
            if !register.members.is_empty() && register.learners != learners {
                register.learners = learners;
                let text = format!("{p}: {register:?}");
                self.note(|| text);
            }
            let found = self.registers[&p].clone();
            self.tell_unfit(p);
            for at in self.replicas(p).collect::<Vec<_>>() {
                if self.config.faults.leave_every_us > 0 && self.is_up(at.host) {
                    self.step(at, SeatEvent::Seats(seats.clone()));
                }
                let life = self.hosts[at.host as usize].life;
                for seen_us in self.arrivals() {
                    self.queue.put(seen_us, Event::Registered { at, life, cas: false, found: found.clone() });
                }
            }
        }
        self.schedule_control();
    }

    /// Each replica of `p` hears which others should not lead, if that is news.
    fn tell_unfit(&mut self, p: PartitionId) {
        let places: Vec<At> = self.replicas(p).collect();
        let unfit = |world: &mut Self, at: &At| world.seat(*at).is_some_and(|node| node.seat.unfit().is_some());
        let all: Vec<At> = places.iter().filter(|at| unfit(self, at)).copied().collect();
        for at in places {
            let others: Vec<HostId> = all.iter().filter(|other| **other != at).map(|at| HostId(at.host)).collect();
            let Some(node) = self.seat(at).filter(|node| node.unfit != others) else { continue };
            node.unfit.clone_from(&others);
            self.step(at, SeatEvent::Unfit(others));
        }
    }

    /// The host on which `p` is served.
    pub fn server(&mut self, p: PartitionId) -> Option<u32> {
        let places: Vec<At> = self.replicas(p).collect();
        let serves = |at: &&At| self.seat(**at).is_some_and(|node| node.seat.term() > Term(0));
        places.iter().find(serves).map(|at| at.host)
    }

    /// Who has a part in `p`, as the register says.
    pub fn register_of(&self, p: PartitionId) -> Members {
        self.registers.get(&p).cloned().unwrap_or_default()
    }

    /// All places of `p`.
    pub fn replicas(&self, p: PartitionId) -> impl Iterator<Item = At> + use<> {
        self.config.hosts_of(p).map(move |host| At { host, p })
    }

    /// The place that `from` takes for that of `p`: mostly the one where it is served.
    pub(super) fn route(&mut self, from: Node, p: PartitionId) -> At {
        if let Node::Host(host) = from
            && self.config.hosts_of(p).any(|member| member == host)
        {
            return At { host, p }; // a mover asks the partition that it works for
        }
        if from == Node::Auditor || self.config.members == 1 {
            return self.home(p);
        }
        // It goes on asking where it was answered before; now and then it hears of news, or of something wrong.
        let host = match self.rng.below(40) {
            0 => self.some_replica(p).host,
            1..4 => self.homes[&p],
            _ => self.routes.get(&(from, p)).copied().unwrap_or(self.homes[&p]),
        };
        self.routes.insert((from, p), host);
        At { host, p }
    }

    /// `node` was told to ask for `p` elsewhere, or got no answer.
    pub(super) fn reroute(&mut self, node: Node, p: PartitionId) {
        self.routes.remove(&(node, p));
    }

    /// The same for another partition.
    pub(super) fn route_between(&mut self, p: PartitionId) -> At {
        let astray = self.config.members > 1 && self.rng.chance(1, 20);
        if astray { self.some_replica(p) } else { self.home(p) }
    }

    fn some_replica(&mut self, p: PartitionId) -> At {
        let which = self.rng.index(self.config.members as usize);
        self.replicas(p).nth(which).expect("there are so many")
    }

    pub(super) fn is_cut(&self, from: u32, to: u32) -> bool {
        self.cuts.contains(&(from, to))
    }

    /// A host does not reach another one for a while, or none; or is not reached by them, or both.
    pub(super) fn cut(&mut self) {
        let hosts = self.config.hosts;
        let (host, other) = (self.rng.below(u64::from(hosts)) as u32, self.rng.below(u64::from(hosts)) as u32);
        let (all, ways) = (self.rng.chance(1, 2), self.rng.below(3));
        let others = (0..hosts).filter(|it| *it != host && (all || *it == other));
        let pairs = others.flat_map(|it| [(host, it), (it, host)]);
        let cut: Vec<(u32, u32)> = pairs.filter(|(from, _)| ways == 0 || (ways == 1) == (*from == host)).collect();
        self.note(|| format!("nothing comes from one to the other: {cut:?}"));
        self.cuts.extend_from_slice(&cut);
        let mended_us = self.soon(8_000_000);
        self.queue.put(mended_us, Event::Mended { cut });
    }

    pub(super) fn mended(&mut self, cut: &[(u32, u32)]) {
        // Others may have cut the same once more.
        for pair in cut {
            if let Some(at) = self.cuts.iter().position(|known| known == pair) {
                self.cuts.swap_remove(at);
            }
        }
    }

    fn is_up(&self, host: u32) -> bool {
        self.hosts[host as usize].is_up()
    }
}
