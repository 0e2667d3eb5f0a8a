//! Directed schedules: three replicas, every message and every disk write by hand.

use std::sync::Arc;

use braid_base::ErrorKind;
use braid_base::ids::{ClientId, Guid, HostId, Index, OpId, Term};
use bytes::Bytes;

use super::disk::PARTITION;
use crate::config::{Config, Member};
use crate::entry::{Entry, Record, STATE_HASH_EVERY};
use crate::kv::applied::Applied;
use crate::kv::batch::Batch;
use crate::replica::event::{Body, Effect, Event, Msg};
use crate::replica::tail::Tail;
use crate::replica::variant::Variant;
use crate::replica::{Replica, Start, Timing};

pub(super) const G: u64 = Timing::DESIGN.grace_ms;

/// Hosts whose messages wait until they are delivered. The disk is instant unless `slow_disk`.
pub(super) struct Lab {
    pub(super) now: u64,
    pub(super) members: Vec<Member>,
    pub(super) replicas: Vec<Replica>,
    pub(super) register: Config,
    pub(super) wires: Vec<(usize, usize, Msg)>,
    /// Everything else that was asked for, per host.
    pub(super) seen: Vec<Vec<Effect>>,
    slow_disk: bool,
    /// The host whose disk ends nothing.
    pub(super) hung: Option<usize>,
    /// No group ends by itself.
    gathers: bool,
    slow_register: bool,
    /// It answers nothing at all.
    no_register: bool,
}

pub(super) fn member(host: u32, store: u8) -> Member {
    Member { host: HostId(host), store: Guid([store; 16]) }
}

pub(super) fn start(me: Member, term: u64, config: &Config) -> Start {
    let tail = Tail::new(Applied::default());
    let (term, config, cut) = (Term(term), config.clone(), (Term(0), Index(0)));
    Start { me, partition: PARTITION, term, config, tail, cut, timing: Timing::DESIGN }
}

pub(super) fn entry(op: u64) -> Entry {
    let mut batch = Batch::new();
    batch.put(vec![op as u8], op.to_le_bytes());
    Entry::new(vec![OpId { client: ClientId(1), seq: op }], batch, Bytes::new())
}

impl Lab {
    fn new(count: u32, variant: Option<Variant>) -> Self {
        let members: Vec<_> = (0..count).map(|i| member(i, i as u8 + 1)).collect();
        let register = Config { term: Term(1), primary: members[0], members: members.clone(), learners: Vec::new() };
        let replica = |m: &Member| Replica::new(0, start(*m, 1, &register)).without_rule(0, variant);
        Self {
            now: 0,
            replicas: members.iter().map(replica).collect(),
            seen: members.iter().map(|_| Vec::new()).collect(),
            members,
            register,
            wires: Vec::new(),
            slow_disk: false,
            hung: None,
            gathers: false,
            slow_register: false,
            no_register: false,
        }
    }

    /// Host 0 leads, the others hold their promises.
    pub(super) fn started(count: u32, variant: Option<Variant>) -> Self {
        let mut lab = Self::new(count, variant);
        lab.step(0, Event::Tick);
        lab.tick_until(|lab| lab.replicas[0].is_active());
        lab
    }

    pub(super) fn step(&mut self, host: usize, event: Event) {
        let begins_group = matches!(event, Event::Propose(_));
        for effect in self.replicas[host].step(self.now, event) {
            match effect {
                Effect::Send { to, msg } => self.wires.push((host, to.host.0 as usize, msg)),
                Effect::AppendLog { ticket, .. } if !self.slow_disk && self.hung != Some(host) => {
                    self.step(host, Event::LogDurable { ticket });
                }
                Effect::Cas { expect, new } if !self.slow_register && !self.no_register => {
                    if self.register == expect {
                        self.register = new;
                    }
                    let now = self.register.clone();
                    self.step(host, Event::CasResult { now });
                }
                Effect::ReadConfig if !self.no_register => self.step(host, Event::ConfigSeen(self.register.clone())),
                other => self.seen[host].push(other),
            }
        }
        if begins_group && !self.gathers {
            self.step(host, Event::Group);
        }
    }

    /// Delivers what waits on one wire, including answers on the same wire to nothing new.
    fn deliver(&mut self, from: usize, to: usize) {
        let (ready, rest) = std::mem::take(&mut self.wires).into_iter().partition(|(f, t, _)| (*f, *t) == (from, to));
        self.wires = rest;
        let ready: Vec<(usize, usize, Msg)> = ready;
        ready.into_iter().for_each(|(_, to, msg)| self.step(to, Event::Msg(msg)));
    }

    pub(super) fn lose(&mut self, host: usize) {
        self.wires.retain(|(from, to, _)| *from != host && *to != host);
    }

    fn exchange(&mut self, a: usize, b: usize) {
        for _ in 0..4 {
            self.deliver(a, b);
            self.deliver(b, a);
        }
    }

    /// All wires work and time passes in small steps.
    pub(super) fn tick_until(&mut self, done: impl Fn(&Lab) -> bool) {
        for _ in 0..400 {
            if done(self) {
                return;
            }
            self.now += 50;
            (0..self.replicas.len()).for_each(|host| self.step(host, Event::Tick));
            for (_, to, msg) in std::mem::take(&mut self.wires) {
                self.step(to, Event::Msg(msg));
            }
        }
        panic!("20 s were not enough");
    }

    /// Only `host` sees time pass, and only the register answers it.
    pub(super) fn tick_alone(&mut self, host: usize, ms: u64) {
        for _ in 0..ms / 50 {
            self.now += 50;
            self.step(host, Event::Tick);
        }
    }

    pub(super) fn committed(&self, host: usize) -> u64 {
        self.replicas[host].committed().0
    }

    fn op(&self, host: usize, index: u64) -> Option<u64> {
        Some(self.replicas[host].record(Index(index))?.entry.ops()[0].seq)
    }

    fn quarantined(&self, host: usize) -> bool {
        self.seen[host].iter().any(|e| matches!(e, Effect::Quarantine { .. }))
    }
}

/// write0 ; repl0>1 ; ack0<1 ; campaign2 ; repl2>1 ; wipe2 ; restart2 ; repl0>2 ; ack0<2 ; commit0 (RESULTS.txt).
/// Returns what host 0 committed as entry 1, and what the member 1 of the new configuration holds there.
fn wiped_store_answers_for_the_old_one(variant: Option<Variant>) -> (Option<u64>, Option<u64>) {
    let mut lab = Lab::started(3, variant);
    lab.step(0, Event::Propose(entry(100)));
    lab.exchange(0, 1);
    assert_eq!((lab.committed(0), lab.op(1, 1)), (0, Some(100)));
    let late: Vec<_> = lab.wires.iter().filter(|(from, to, _)| (*from, *to) == (0, 2)).cloned().collect();
    // Hosts 0 and 1 can no longer talk; 2 never heard of the entry, its promise runs out.
    lab.lose(0);
    lab.tick_alone(2, G + 100);
    lab.lose(2); // R8 would have told it of the entry
    lab.tick_alone(2, Timing::DESIGN.probe_ms + 50);
    lab.exchange(2, 1);
    lab.step(2, Event::Propose(entry(200)));
    lab.exchange(2, 1);
    let kept = lab.op(1, 1);
    // Host 2 loses its disk and comes back as a new store that never saw a term.
    lab.members[2] = member(2, 99);
    let fresh = start(lab.members[2], 0, &Config::default());
    lab.replicas[2] = Replica::new(lab.now, fresh).without_rule(lab.now, variant);
    lab.lose(2);
    for (_, _, msg) in late {
        lab.step(2, Event::Msg(msg));
    }
    lab.deliver(2, 0);
    let committed = if lab.committed(0) >= 1 { lab.op(0, 1) } else { None };
    (committed, kept)
}

#[test]
fn messages_name_the_store_they_are_meant_for() {
    let (committed, kept) = wiped_store_answers_for_the_old_one(None);
    assert_eq!((committed, kept), (None, Some(200)), "R9: the wiped store stays silent");
    let (committed, kept) = wiped_store_answers_for_the_old_one(Some(Variant::MsgNoUuid));
    assert_eq!((committed, kept), (Some(100), Some(200)), "without R9 the schedule breaks I1");
}

#[test]
fn a_single_member_resumes_at_once_and_commits_with_its_disk() {
    let mut lab = Lab::new(1, None);
    lab.step(0, Event::Tick);
    assert!(lab.replicas[0].is_active() && lab.replicas[0].may_read(0));
    assert_eq!(lab.replicas[0].term(), Term(2), "R7: in a new term");
    lab.slow_disk = true;
    lab.seen[0].clear();
    lab.step(0, Event::Propose(entry(1)));
    lab.step(0, Event::Propose(entry(2)));
    let tickets: Vec<_> = lab.seen[0]
        .iter()
        .filter_map(|e| if let Effect::AppendLog { ticket, .. } = e { Some(*ticket) } else { None })
        .collect();
    assert_eq!((tickets.len(), lab.seen[0].len(), lab.committed(0)), (2, 2, 0));
    lab.step(0, Event::LogDurable { ticket: tickets[1] });
    assert!(matches!(lab.seen[0][2..], [Effect::Committed { upto: Index(2) }]), "one report covers those before");
}

#[test]
fn only_an_active_primary_takes_proposals() {
    let mut lab = Lab::started(3, None);
    lab.step(1, Event::Propose(entry(7)));
    assert!(matches!(&lab.seen[1][..], [.., Effect::Refused { entry }] if entry.ops()[0].seq == 7));
    lab.step(0, Event::StorageFailed { error: ErrorKind::Io.into() });
    lab.step(0, Event::Propose(entry(8)));
    assert!(matches!(&lab.seen[0][..], [.., Effect::SteppedDown, Effect::Quarantine { .. }, Effect::Refused { .. }]));
}

#[test]
fn reads_end_with_the_lease() {
    let mut lab = Lab::started(3, None);
    assert!(lab.replicas[0].may_read(lab.now));
    lab.lose(0);
    let until = lab.now + Timing::DESIGN.lease_ms;
    assert!(!lab.replicas[0].may_read(until), "R5: counted from when the promise was asked for");
    assert!(lab.replicas[0].is_active(), "writes still wait for the members");
}

#[test]
fn a_campaigner_does_not_promise_what_it_may_have_broken() {
    let mut lab = Lab::started(3, None);
    lab.step(0, Event::Propose(entry(1)));
    let late: Vec<_> = lab.wires.iter().filter(|(from, to, _)| (*from, *to) == (0, 2)).cloned().collect();
    lab.lose(0);
    lab.slow_register = true;
    lab.tick_alone(2, G + Timing::DESIGN.probe_ms + 100);
    assert!(lab.seen[2].iter().any(|e| matches!(e, Effect::Cas { .. })));
    lab.wires.clear();
    for (_, _, msg) in late {
        lab.step(2, Event::Msg(msg));
    }
    assert!(lab.wires.is_empty(), "R6: its compare-and-set may succeed at any time");
    // The register tells that it failed: someone else was faster.
    let taken = lab.register.succeeded_by(lab.members[1], lab.members[1..].to_vec());
    lab.step(2, Event::CasResult { now: taken });
    lab.step(2, Event::Msg(append(&lab, 0, 2, 2, Vec::new())));
    assert_eq!(lab.wires.len(), 1, "then it answers again");
}

/// A primary is stopped for longer than promises last, while the register is away: nobody can take its place, so all
/// follow it again when it goes on.
#[test]
fn a_silent_primary_is_followed_again_if_the_register_is_away() {
    let mut lab = Lab::started(3, None);
    lab.no_register = true;
    for host in [1, 2] {
        lab.tick_alone(host, 4 * G);
    }
    let campaigns = |lab: &Lab| lab.seen.iter().flatten().filter(|e| matches!(e, Effect::Cas { .. })).count();
    assert_eq!(campaigns(&lab), 0, "nobody asks for what it would have to wait for");
    lab.lose(0);
    lab.step(0, Event::Propose(entry(1)));
    lab.tick_until(|lab| lab.committed(0) == 1 && lab.replicas[0].may_read(lab.now));
    // It is back: the next silence is the last one.
    lab.no_register = false;
    lab.tick_alone(2, 2 * G);
    lab.tick_until(|lab| lab.replicas[2].is_active());
    assert_eq!(lab.register.primary, lab.members[2]);
}

fn append(lab: &Lab, from: usize, to: usize, term: u64, records: Vec<Arc<Record>>) -> Msg {
    let (prev, begin) = ((Term(0), Index(0)), Index(0));
    let body = Body::Append { prev, records, commit: begin, inherited: begin, stage_from: begin, sent_ms: lab.now };
    Msg { partition: PARTITION, term: Term(term), from: lab.members[from], to_store: lab.members[to].store, body }
}

#[test]
fn an_old_term_is_refused_and_a_committed_entry_never_replaced() {
    let mut lab = Lab::started(3, None);
    lab.step(1, Event::Msg(append(&lab, 2, 1, 1, Vec::new())));
    assert!(matches!(&lab.wires[..], [.., (1, 2, Msg { body: Body::Refuse, .. })]), "R1");
    lab.step(0, Event::Propose(entry(1)));
    lab.tick_until(|lab| lab.committed(1) == 1);
    let other = Arc::new(Record { term: Term(9), index: Index(1), entry: entry(9), state_hash: None });
    lab.step(1, Event::Msg(append(&lab, 2, 1, 9, vec![other])));
    assert!(lab.quarantined(1) && lab.op(1, 1) == Some(1), "I2");
}

#[test]
fn a_campaigner_fetches_the_longest_log_first() {
    let mut lab = Lab::started(3, None);
    lab.step(0, Event::Propose(entry(1)));
    lab.exchange(0, 1);
    lab.lose(0);
    lab.tick_alone(2, G + 100);
    lab.exchange(2, 1);
    assert_eq!(lab.op(2, 1), Some(1), "R8");
    assert_eq!(lab.register.primary, lab.members[2]);
    assert!(!lab.register.has(lab.members[0].store), "R6: the old primary is out");
}

#[test]
fn a_campaigner_never_gives_up_entries_for_another_log() {
    let mut lab = Lab::started(3, None);
    lab.step(0, Event::Propose(entry(1)));
    lab.exchange(0, 1);
    lab.lose(0);
    // Host 2 was primary for a moment and is out of the configuration since, but host 1 does not know.
    let lost = Arc::new(Record { term: Term(3), index: Index(1), entry: entry(66), state_hash: None });
    lab.step(2, Event::Msg(append(&lab, 0, 2, 3, vec![lost])));
    lab.lose(2);
    lab.slow_register = true;
    lab.tick_alone(1, G + 100);
    lab.exchange(1, 2);
    lab.tick_alone(1, 3 * Timing::DESIGN.probe_ms);
    assert!(lab.seen[1].iter().any(|e| matches!(e, Effect::Cas { .. })), "it stands with what it has");
    assert!(!lab.seen[1].iter().any(|e| matches!(e, Effect::TruncateLog { .. })));
    assert_eq!(lab.op(1, 1), Some(1), "the entry may be committed by now");
}

/// Host 1 has an entry that host 2, which leads after its primary died, does not have. Returns what host 1 has of it
/// once host 2 serves.
fn beyond_the_log_of_a_primary(variant: Option<Variant>) -> (Lab, Option<u64>) {
    let mut lab = Lab::started(3, variant);
    lab.step(0, Event::Propose(entry(1)));
    lab.exchange(0, 1);
    lab.lose(0);
    // What host 1 answers to the campaigner is lost.
    lab.tick_alone(2, G + 100 + Timing::DESIGN.probe_ms);
    lab.wires.clear();
    lab.step(2, Event::Tick);
    assert!(lab.replicas[2].leads() && lab.op(1, 1) == Some(1));
    for _ in 0..20 {
        lab.now += 50;
        (1..3).for_each(|host| lab.step(host, Event::Tick));
        lab.exchange(2, 1);
    }
    assert!(lab.replicas[2].may_read(lab.now) && lab.committed(2) == 0);
    let left = lab.op(1, 1);
    (lab, left)
}

#[test]
fn what_a_primary_that_served_did_not_have_never_comes_back() {
    assert_eq!(beyond_the_log_of_a_primary(Some(Variant::KeepBeyond)).1, Some(1), "it would win a campaign with it");
    let (mut lab, left) = beyond_the_log_of_a_primary(None);
    assert_eq!(left, None, "R4");
    lab.step(2, Event::Propose(entry(2)));
    lab.exchange(2, 1);
    assert_eq!((lab.committed(2), lab.op(1, 1)), (1, Some(2)));
}

#[test]
fn what_comes_again_behind_a_cut_is_not_cut_once_more() {
    let (mut lab, _) = beyond_the_log_of_a_primary(None);
    let noted = |effects: &[Effect]| {
        let cuts =
            effects.iter().filter_map(|e| if let Effect::PersistMeta { cut, .. } = e { Some(*cut) } else { None });
        cuts.last().expect("noted")
    };
    let cut = noted(&lab.seen[1]);
    assert!(cut.0 > Term(1) && cut.1 == Index(0), "{cut:?}");
    // A third one that had the entry leads after that, and has others take it: it may be committed from then on.
    let mut again = append(&lab, 0, 1, cut.0.0 + 1, Vec::new());
    let Body::Append { records, inherited, .. } = &mut again.body else { panic!("an append") };
    *records = vec![Arc::new(Record { term: Term(1), index: Index(1), entry: entry(1), state_hash: None })];
    *inherited = Index(1);
    lab.slow_disk = true;
    let before = lab.seen[1].len();
    lab.step(1, Event::Msg(again));
    let asked = lab.seen[1][before..].iter().find_map(|e| match e {
        Effect::AppendLog { ticket, .. } => Some(*ticket),
        _ => None,
    });
    assert_eq!((lab.op(1, 1), noted(&lab.seen[1])), (Some(1), cut), "not before it is durable");
    // In this order: who is answered may count on it.
    let effects = lab.replicas[1].step(lab.now, Event::LogDurable { ticket: asked.expect("written") });
    let at = |what: fn(&Effect) -> bool| effects.iter().position(what);
    let note = at(|e| matches!(e, Effect::PersistMeta { cut: (Term(0), _), .. })).expect("the note is taken back");
    let answer = at(|e| matches!(e, Effect::Send { msg: Msg { body: Body::Ack { .. }, .. }, .. })).expect("answered");
    assert!(note < answer);
}

#[test]
fn a_learner_counts_before_it_is_a_member() {
    let mut lab = Lab::started(2, None);
    (1..=200).for_each(|op| lab.step(0, Event::Propose(entry(op))));
    lab.tick_until(|lab| lab.committed(0) == 200);
    let learner = member(2, 50);
    lab.members.push(learner);
    lab.replicas.push(Replica::new(lab.now, start(learner, 0, &Config::default())));
    lab.seen.push(Vec::new());
    lab.register.learners.push(learner);
    lab.slow_register = true;
    lab.step(0, Event::ConfigSeen(lab.register.clone()));
    let asked = |lab: &Lab| lab.seen[0].iter().any(|e| matches!(e, Effect::Cas { .. }));
    lab.tick_until(asked);
    assert_eq!(lab.replicas[2].durable(), Index(200), "R3: it holds the log first");
    assert!(!lab.register.has(learner.store));
    // Proposed, not yet in the register: what comes now waits for it already.
    lab.step(0, Event::Propose(entry(201)));
    lab.exchange(0, 1);
    assert_eq!(lab.committed(0), 200, "R3");
    lab.exchange(0, 2);
    assert_eq!(lab.committed(0), 201);
    lab.slow_register = false;
    lab.tick_until(|lab| lab.register.has(learner.store) && lab.replicas[0].may_read(lab.now));
    assert_eq!(lab.register.learners, []);
}

#[test]
fn a_store_that_failed_is_dropped_and_a_primary_that_failed_replaced() {
    let mut lab = Lab::started(3, None);
    lab.step(1, Event::StorageFailed { error: ErrorKind::Io.into() });
    lab.step(0, Event::Propose(entry(1)));
    lab.tick_until(|lab| lab.register.members.len() == 2 && lab.committed(0) == 1);
    lab.step(0, Event::StorageFailed { error: ErrorKind::Io.into() });
    lab.tick_until(|lab| lab.replicas[2].is_active());
    assert_eq!((lab.register.members.len(), lab.committed(2)), (1, 1));
    assert!(!lab.replicas[1].is_active() && lab.quarantined(0));
}

#[test]
fn a_different_state_hash_takes_the_store_out() {
    let mut tail = Tail::new(Applied::default());
    for op in 1..STATE_HASH_EVERY {
        let record = tail.next_record(Term(1), entry(op));
        assert_eq!(record.state_hash, None);
        tail.push(Arc::new(record)).expect("its own");
    }
    let record = tail.next_record(Term(1), entry(0));
    let mut wrong = record.clone();
    wrong.state_hash = record.state_hash.map(|hash| hash ^ 1);
    let error = tail.push(Arc::new(wrong)).expect_err("I5");
    assert_eq!(error.kind(), ErrorKind::Corrupt);
    assert!(record.state_hash.is_some() && tail.push(Arc::new(record)).is_ok());
}

/// What host 1 made of the log is not what the primary made of it: it goes, and the other two go on without it.
#[test]
fn a_replica_whose_state_differs_leaves_and_the_others_go_on() {
    let mut lab = Lab::started(3, None);
    (1..STATE_HASH_EVERY).for_each(|op| lab.step(0, Event::Propose(entry(op))));
    lab.tick_until(|lab| lab.committed(1) == STATE_HASH_EVERY - 1);
    lab.step(0, Event::Propose(entry(0)));
    let mut altered = 0;
    for (_, to, msg) in &mut lab.wires {
        let Body::Append { records, .. } = &mut msg.body else { continue };
        for record in records.iter_mut().filter(|record| *to == 1 && record.state_hash.is_some()) {
            let hash = record.state_hash.map(|hash| hash ^ 1);
            *record = Arc::new(Record { state_hash: hash, ..(**record).clone() });
            altered += 1;
        }
    }
    assert_eq!(altered, 1);
    lab.tick_until(|lab| lab.register.members.len() == 2 && lab.committed(2) == STATE_HASH_EVERY);
    assert!(lab.quarantined(1) && !lab.register.has(lab.members[1].store));
    assert!(!lab.quarantined(0) && !lab.quarantined(2) && lab.op(2, STATE_HASH_EVERY) == Some(0));
}

#[test]
fn a_learner_that_lacks_what_no_log_holds_does_not_count() {
    let mut lab = Lab::new(2, None);
    let (first, learner) = (lab.members[0], lab.members[1]);
    lab.register = Config { term: Term(1), primary: first, members: vec![first], learners: vec![learner] };
    // Its log begins after record 5, close enough to the learner's, which is empty.
    let applied = Applied { term: Term(1), index: Index(5), ..Applied::default() };
    let before = start(first, 1, &lab.register);
    lab.replicas[0] = Replica::new(0, Start { tail: Tail::new(applied), ..before });
    lab.replicas[1] = Replica::new(0, start(learner, 0, &Config::default()));
    lab.step(0, Event::ConfigSeen(lab.register.clone()));
    lab.tick_until(|lab| lab.now > 2_000);
    assert!(lab.seen[0].iter().any(|effect| matches!(effect, Effect::FetchLog { from: Index(1), .. })));
    lab.step(0, Event::Propose(entry(1)));
    lab.tick_until(|lab| lab.committed(0) == 6);
    assert_eq!(lab.register.members, [first], "it waits for an export, and nobody waits for it");
}

pub(super) fn payload(op: u64, bytes: usize) -> Entry {
    Entry::new(vec![OpId { client: ClientId(1), seq: op }], Batch::new(), Bytes::from(vec![op as u8; bytes]))
}

/// How many records each message of `from` to `to` carries; messages without any are left out.
fn on_the_way(lab: &Lab, from: usize, to: usize) -> Vec<usize> {
    let records = |(_, _, msg): &(usize, usize, Msg)| match &msg.body {
        Body::Append { records, .. } if !records.is_empty() => Some(records.len()),
        _ => None,
    };
    lab.wires.iter().filter(|(f, t, _)| (*f, *t) == (from, to)).filter_map(records).collect()
}

#[test]
fn entries_go_out_in_the_groups_of_the_log() {
    let mut lab = Lab::started(2, None);
    lab.exchange(0, 1);
    (lab.gathers, lab.slow_disk) = (true, true);
    for op in 1..=5 {
        lab.step(0, Event::Propose(entry(op)));
    }
    assert!(on_the_way(&lab, 0, 1).is_empty(), "more may come");
    lab.step(0, Event::Group);
    assert_eq!(on_the_way(&lab, 0, 1), [5], "one message and one write for all");
    // A log that hangs holds nobody up who could go on.
    lab.step(0, Event::Propose(entry(6)));
    assert_eq!(on_the_way(&lab, 0, 1), [5]);
    lab.now += Timing::DESIGN.heartbeat_ms;
    lab.step(0, Event::Tick);
    assert_eq!(on_the_way(&lab, 0, 1), [5, 1]);
}

#[test]
fn a_slow_member_is_sent_only_so_many_bytes_ahead() {
    let mut lab = Lab::started(2, None);
    lab.exchange(0, 1);
    for op in 1..=40 {
        lab.step(0, Event::Propose(payload(op, 1 << 20)));
    }
    let ahead: usize = on_the_way(&lab, 0, 1).iter().sum();
    assert!((16..=20).contains(&ahead), "{ahead} MiB");
    for _ in 0..10 {
        lab.exchange(0, 1);
    }
    assert_eq!(lab.committed(0), 40, "its answers make room");
}

#[test]
fn what_a_member_had_no_room_for_goes_when_the_log_is_written() {
    let mut lab = Lab::started(2, None);
    lab.exchange(0, 1);
    lab.slow_disk = true;
    lab.seen[0].clear();
    for op in 1..=40 {
        lab.step(0, Event::Propose(payload(op, 1 << 20)));
    }
    let newest = lab.seen[0].iter().rev().find_map(|effect| match effect {
        Effect::AppendLog { ticket, .. } => Some(*ticket),
        _ => None,
    });
    lab.slow_disk = false;
    lab.exchange(0, 1);
    assert!(on_the_way(&lab, 0, 1).is_empty(), "its answers came while more could gather");
    lab.step(0, Event::LogDurable { ticket: newest.expect("it is written") });
    assert!(!on_the_way(&lab, 0, 1).is_empty(), "nothing else will take it along");
    for _ in 0..10 {
        lab.exchange(0, 1);
    }
    assert_eq!(lab.committed(0), 40);
}
