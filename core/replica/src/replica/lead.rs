//! The primary: replicates, commits, changes the members (R2-R5).

use std::sync::Arc;

use braid_base::ids::{Guid, HostId, Index, Term};

use super::event::{Body, Effect};
use super::variant::Variant;
use super::{Replica, Role, Timing};
use crate::config::{Config, Member};
use crate::entry::{Entry, Record};

/// Proposals that are not committed yet; more are refused.
pub const IN_FLIGHT_MAX: u64 = 4096;
/// Records of one message.
pub const MESSAGE_RECORDS: usize = 64;
/// Bytes of payload and changes of one message, exceeded by at most one record.
pub const MESSAGE_BYTES: usize = 4 << 20;
/// Records sent to a peer ahead of its answers, and their bytes, exceeded by at most one message: what a slow member
/// and the ways to it hold in memory for a partition.
const WINDOW: u64 = 512;
const WINDOW_BYTES: usize = 16 << 20;
/// A learner this close to the end of the log starts to count, if all that it lacks is in memory.
pub(super) const JOIN_LAG: u64 = 64;
/// Records kept in memory for slow peers when they are applied, and their bytes; older ones come from the log. More than a
/// window: who catches up must find what it lacks there before it joins.
pub(super) const KEPT_MAX: usize = 4096;
pub(super) const KEPT_BYTES: usize = 64 << 20;
const _: () = assert!(KEPT_BYTES >= WINDOW_BYTES + 2 * MESSAGE_BYTES);
/// A learner that comes no step nearer in this time, milliseconds, begins again: the log is kept for it no longer.
const LEARNER_MS: u64 = 60_000;

/// A replica that won the register.
pub(super) struct Lead {
    /// What it won; its term is the replica's.
    pub(super) config: Config,
    /// Last record when its term began; all of earlier terms.
    inherited: Index,
    /// False until all of its log is committed in its term (R4).
    pub(super) active: bool,
    /// Last index when it won.
    recover_upto: Index,
    /// Own clock when this configuration began.
    since_ms: u64,
    /// Why another one should lead, if so, and since when.
    pub(super) wish: Option<(Wish, u64)>,
    pub(super) peers: Vec<Peer>,
}

/// Why a primary names another one.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Wish {
    /// It is no member any more.
    Leaves,
    /// It could not serve.
    Unfit,
    /// Another one should lead.
    Seats,
}

pub(super) struct Peer {
    pub(super) member: Member,
    stand: Stand,
    /// It said that it is about to stop.
    pub(super) leaves: bool,
    /// Durable there, said in the present term (R2).
    pub(super) acked: Index,
    next: Index,
    /// Where it said that its log differs or ends: sending goes on from there.
    floor: Index,
    /// Own clock when the newest answered message of this term was sent: the lease counts from there.
    leased_from: Option<u64>,
    heard_ms: u64,
    /// The most that it ever held durably under this primary, and when it came to that, or all that was sent was answered:
    /// a peer whose log hangs goes on to answer heartbeats.
    moved: Index,
    moved_ms: u64,
    /// It was seen to write its log.
    writes: bool,
    /// It takes the view, has come so far, and will lack the log from there on.
    shown: Vec<u8>,
    lacks: Option<Index>,
    sent_ms: Option<u64>,
    rewound_ms: u64,
    fetched_ms: Option<u64>,
}

/// R3: the way into the must-ack set.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Stand {
    /// In the configuration: must ack.
    Voter,
    /// Must ack, and is proposed as a member once it holds what is committed and this index.
    Joining(Index),
    /// Gets the log; nothing waits for it.
    Catching,
    /// It was one of these, and is not asked to join just now. What it needs stays for a while.
    Away,
}

impl Stand {
    /// Nothing waits for it.
    fn learns(self) -> bool {
        matches!(self, Self::Catching | Self::Away)
    }
}

impl Lead {
    /// R5: unexpired promises of the whole must-ack set.
    pub(super) fn leased(&self, now: u64, lease_ms: u64) -> bool {
        self.must_ack().all(|p| p.leased_from.is_some_and(|from| now < from + lease_ms))
    }

    /// Last index that every peer holds to which records are sent.
    pub(super) fn slowest_acked(&self, last: Index) -> Index {
        self.peers.iter().filter(|p| p.stand != Stand::Away).map(|p| p.acked).min().unwrap_or(last)
    }

    /// First entry, of those from `first` on, that a learner lacks which was heard of, and came nearer not long ago.
    pub(super) fn oldest_needed(&self, now: u64, first: Index) -> Option<Index> {
        let learners = self.peers.iter().filter(|p| p.stand.learns() && !p.stands_still(now, LEARNER_MS));
        learners.filter_map(Peer::needs).filter(|needed| *needed >= first).min()
    }

    /// The peers without which nothing is committed; the primary itself comes on top.
    fn must_ack(&self) -> impl Iterator<Item = &Peer> {
        self.peers.iter().filter(|p| !p.stand.learns())
    }

    /// Of the members that `may` lead, the one that holds most of the log. It answered a message that was sent after it
    /// was wished for: what answered before may be gone by now, and its store with it. While nobody may, nothing is
    /// wished for. It holds all up to `near`. The `unfit`: only if nobody else may.
    pub(super) fn heir(
        &mut self,
        now: u64,
        wish: Wish,
        near: Index,
        unfit: &[HostId],
        may: impl Fn(&Peer) -> bool,
    ) -> Option<Member> {
        let able = |p: &&Peer| p.stand == Stand::Voter && !p.leaves && may(p);
        if !self.peers.iter().any(|p| able(&p)) {
            self.wish = None;
            return None;
        }
        if self.wish.is_some_and(|(before, _)| before != wish) {
            self.wish = None;
        }
        let (_, since_ms) = *self.wish.get_or_insert((wish, now));
        let can = |p: &&Peer| p.acked >= near && p.leased_from.is_some_and(|from| from > since_ms);
        let rank = |p: &&Peer| (!unfit.contains(&p.member.host), p.acked);
        self.peers.iter().filter(able).filter(can).max_by_key(rank).map(|p| p.member)
    }

    /// How long this configuration has been.
    pub(super) fn age_ms(&self, now: u64) -> u64 {
        now.saturating_sub(self.since_ms)
    }

    /// True if another member answers and advances.
    pub(super) fn has_sound_voter(&self, now: u64, timing: &Timing) -> bool {
        self.peers.iter().any(|p| p.stand == Stand::Voter && !p.is_lost(now, timing))
    }

    /// Members that could lead, as far as is known.
    pub(super) fn fit_voters(&self, unfit: &[HostId]) -> impl Iterator<Item = &Peer> {
        self.peers.iter().filter(|p| p.stand == Stand::Voter && !unfit.contains(&p.member.host))
    }

    pub(super) fn has_voters(&self) -> bool {
        self.peers.iter().any(|p| p.stand == Stand::Voter)
    }

    pub(super) fn has_peers(&self) -> bool {
        self.must_ack().next().is_some()
    }

    fn has(&self, store: Guid) -> bool {
        self.peers.iter().any(|p| p.member.store == store)
    }
}

impl Replica {
    /// A group of records costs as much as one, in the log as on the way to the others: they leave with [`Event::Group`],
    /// or with a heartbeat if the log hangs.
    ///
    /// [`Event::Group`]: super::event::Event::Group
    pub(super) fn propose(&mut self, entry: Entry) {
        let last = self.tail.last().1;
        if !self.is_active() || last.0 - self.commit.0 >= IN_FLIGHT_MAX {
            self.effects.push(Effect::Refused { entry });
            return;
        }
        let record = Arc::new(self.tail.next_record(self.term, entry));
        self.tail.push(Arc::clone(&record)).expect("its state hash was computed from this very log");
        self.append(vec![record]);
    }

    /// More of the own log is durable. If that is all of it, no group is about to take along what peers had no room for.
    pub(super) fn lead_durable(&mut self, now: u64) {
        if self.durable == self.tail.last().1 {
            self.replicate(now);
        }
        self.advance(now);
    }

    /// A configuration led by this replica is in the register: after a campaign, or a change of members.
    pub(super) fn take_lead(&mut self, now: u64, config: Config) {
        if self.is_broken(Variant::DiscardTail) && !matches!(self.role, Role::Lead(_)) {
            self.truncate_after(self.commit);
        }
        let last = self.tail.last().1;
        let peers = config.members.iter().filter(|m| !self.same(**m, self.me));
        let peers = peers.map(|m| Peer::new(now, *m, Stand::Voter, last.next())).collect();
        let (active, recover_upto) = match &self.role {
            Role::Lead(before) => (before.active, before.recover_upto),
            _ => (false, last), // R4: keeps its whole log
        };
        let mut lead = Lead { config, inherited: last, active, recover_upto, since_ms: now, wish: None, peers };
        if let Role::Lead(before) = &self.role {
            // What was acked in the old term does not count in the new one (R2), but tells where to go on.
            for peer in &mut lead.peers {
                if let Some(old) = before.peers.iter().find(|p| p.member == peer.member) {
                    (peer.next, peer.moved, peer.moved_ms) = (old.next, old.moved, old.moved_ms);
                }
            }
            let others = before.peers.iter().filter(|p| !lead.config.has(p.member.store));
            lead.peers.extend(others.map(|p| p.learns_on(now)).collect::<Vec<_>>());
        }
        self.role = Role::Lead(lead);
        if active {
            self.effects.push(Effect::BecamePrimary { term: self.term });
        }
        self.replicate(now);
        self.advance(now);
    }

    pub(super) fn tick_lead(&mut self, now: u64) {
        let last = self.tail.last().1;
        if let Role::Lead(lead) = &mut self.role {
            let owes = |p: &Peer| match p.stand {
                Stand::Catching | Stand::Away => p.acked < last,
                _ => p.answered().next() < p.next,
            };
            lead.peers.iter_mut().filter(|p| !owes(p)).for_each(|p| p.moved_ms = now);
        }
        self.drop_silent(now);
        self.make_way(now);
        self.welcome_learners(now);
        self.replicate(now);
        self.advance(now);
    }

    pub(super) fn on_ack(&mut self, now: u64, from: Member, term: Term, held: Index, echo_ms: u64) {
        let last = self.tail.last().1;
        let Some(peer) = self.peer_heard(now, from, term, echo_ms) else { return };
        if held > last {
            return; // nobody can hold more than this primary sent in this term
        }
        let before = peer.answered();
        peer.writes |= before > Index(0) && held > before;
        if held > peer.moved {
            (peer.moved, peer.moved_ms) = (held, now);
        }
        peer.acked = peer.acked.max(held);
        peer.next = peer.next.max(held.next());
        self.advance(now);
        // What gathers goes when the log here is written; a peer that lacks more than that waits for room in its window.
        if self.durable == last || held.0 + WINDOW / 2 < last.0 {
            self.replicate(now);
        }
    }

    pub(super) fn on_mismatch(&mut self, now: u64, from: Member, term: Term, hint: Index, echo_ms: u64) {
        let last = self.tail.last().1;
        let Some(peer) = self.peer_heard(now, from, term, echo_ms) else { return };
        if echo_ms < peer.rewound_ms {
            return; // answers a message from before the last step back
        }
        // Only back: where its log ends says nothing of where it begins to differ.
        let next = hint.next().min(peer.next).clamp(peer.acked.next(), last.next());
        peer.floor = Index(next.0 - 1);
        if next != peer.next {
            (peer.next, peer.sent_ms, peer.rewound_ms) = (next, None, now);
            self.replicate(now);
        }
        self.advance(now);
    }

    pub(super) fn log_fetched(&mut self, now: u64, to: Member, prev: (Term, Index), records: Vec<Arc<Record>>) {
        let Role::Lead(lead) = &mut self.role else {
            self.send(to, Body::Pulled { prev, records }); // a campaigner asked (R8)
            return;
        };
        let Some(peer) = lead.peers.iter_mut().find(|p| p.member == to && p.next == prev.1.next()) else { return };
        let Some(last) = records.last() else { return };
        peer.next = last.index.next();
        (peer.sent_ms, peer.fetched_ms) = (Some(now), None);
        let (inherited, commit, stage_from) = (lead.inherited, self.commit, self.stage_from);
        self.send(to, Body::Append { prev, records, commit, inherited, stage_from, sent_ms: now });
    }

    /// R2: what the whole must-ack set holds, said under the present term, is committed.
    pub(super) fn advance(&mut self, now: u64) {
        let Role::Lead(lead) = &self.role else { return };
        let held = lead.must_ack().map(|p| p.acked).fold(self.durable, Index::min);
        self.commit_upto(held);
        let (lease_ms, commit) = (self.timing.lease_ms, self.commit);
        let Role::Lead(lead) = &mut self.role else { return };
        // R4: serves only after all of its log is committed, under promises of all members.
        if !lead.active && commit >= lead.recover_upto && lead.leased(now, lease_ms) {
            lead.active = true;
            self.effects.push(Effect::BecamePrimary { term: self.term });
        }
        self.admit_learner(now);
    }

    /// Records from `from` on that are in memory, as many as fit a message.
    pub(super) fn records_in_memory(&self, from: Index) -> Vec<Arc<Record>> {
        let (mut records, mut bytes, mut index) = (Vec::new(), 0, from);
        while let Some(record) = self.tail.record(index)
            && records.len() < MESSAGE_RECORDS
            && bytes < MESSAGE_BYTES
        {
            bytes += record.entry.bytes();
            records.push(Arc::clone(record));
            index = index.next();
        }
        records
    }

    /// Payload and changes of the records in `[from, to)` that are in memory, bytes.
    fn record_bytes(&self, from: Index, to: Index) -> usize {
        let len = |index| self.tail.record(Index(index)).map_or(0, |record| record.entry.bytes());
        (from.0..to.0).map(len).sum()
    }

    /// Sends each peer what it lacks, and a heartbeat when one is due.
    pub(super) fn replicate(&mut self, now: u64) {
        let Role::Lead(lead) = &self.role else { return };
        for at in 0..lead.peers.len() {
            while self.replicate_to(now, at) {}
        }
    }

    /// One message to one peer; true if there may be more to send.
    fn replicate_to(&mut self, now: u64, at: usize) -> bool {
        let (heartbeat_ms, last) = (self.timing.heartbeat_ms, self.tail.last().1);
        let (commit, stage_from) = (self.commit, self.stage_from);
        let Role::Lead(lead) = &self.role else { return false };
        let peer = &lead.peers[at];
        let (to, next) = (peer.member, peer.next);
        let due = peer.sent_ms.is_none_or(|sent| now >= sent + heartbeat_ms);
        let answered = peer.answered();
        if peer.stand == Stand::Away {
            return false;
        }
        let ahead = next.0 - answered.0 <= WINDOW && self.record_bytes(answered.next(), next) < WINDOW_BYTES;
        let waits = ahead && !peer.is_silent(now, &self.timing);
        let more = next <= last && ahead;
        let before = Index(next.0 - 1);
        let records = if more { self.records_in_memory(next) } else { Vec::new() };
        let (prev, records) = match self.tail.term_at(before) {
            Some(term) if !more || !records.is_empty() => ((term, before), records),
            _ => {
                // Not in memory any more: the shell reads it; meanwhile any record both know keeps the lease.
                if waits {
                    self.fetch(now, at);
                }
                (self.tail.base(), Vec::new())
            }
        };
        if records.is_empty() && !due {
            return false;
        }
        let Role::Lead(lead) = &mut self.role else { return false };
        let inherited = lead.inherited;
        let peer = &mut lead.peers[at];
        peer.sent_ms = Some(now);
        peer.next = Index(next.0 + records.len() as u64);
        let sent = !records.is_empty();
        self.send(to, Body::Append { prev, records, commit, inherited, stage_from, sent_ms: now });
        sent
    }

    fn fetch(&mut self, now: u64, at: usize) {
        let heartbeat_ms = self.timing.heartbeat_ms;
        let Role::Lead(lead) = &mut self.role else { return };
        let peer = &mut lead.peers[at];
        if peer.fetched_ms.is_none_or(|asked| now >= asked + heartbeat_ms) {
            peer.fetched_ms = Some(now);
            self.effects.push(Effect::FetchLog { to: peer.member, from: peer.next });
        }
    }

    /// The peer behind an answer, if the answer counts: same term (R2), same store (R9).
    fn peer_heard(&mut self, now: u64, from: Member, term: Term, echo_ms: u64) -> Option<&mut Peer> {
        let by_host = self.is_broken(Variant::NoUuid) || self.is_broken(Variant::MsgNoUuid);
        let timing = self.timing;
        let Role::Lead(lead) = &mut self.role else { return None };
        if term != lead.config.term {
            return None;
        }
        let same = |p: &Peer| p.member == from || (by_host && p.member.host == from.host);
        let peer = lead.peers.iter_mut().find(|p| p.stand != Stand::Away && same(p))?;
        // Its log may hang by now.
        peer.writes &= !peer.is_silent(now, &timing);
        peer.heard_ms = now;
        peer.leased_from = peer.leased_from.max(Some(echo_ms.min(now)));
        Some(peer)
    }

    /// `learner` asks for the rows of the view after `key`; it will need the log from `first` on, if it begins with them.
    pub fn view_asked(&mut self, now: u64, learner: Member, key: &[u8], first: Index) {
        let Role::Lead(lead) = &mut self.role else { return };
        let Some(peer) = lead.peers.iter_mut().find(|p| p.member == learner) else { return };
        if peer.shown.as_slice() < key {
            peer.moved_ms = now;
        }
        if key.is_empty() || peer.lacks.is_none() {
            peer.lacks = Some(first);
        }
        peer.shown = key.to_vec(); // empty: it takes the view from the beginning
    }

    /// The shell has kept everything from this replica for a while: nobody's silence counts.
    pub fn hears_again(&mut self, now_ms: u64) {
        if let Role::Lead(lead) = &mut self.role {
            lead.peers.iter_mut().flat_map(Peer::times).for_each(|ms| *ms = now_ms);
        }
    }

    /// First entry, of those from `first` on, that a replica lacks which is about to become a member, if any. Those that are
    /// before that come with the view.
    pub fn oldest_needed(&self, now_ms: u64, first: Index) -> Option<Index> {
        match &self.role {
            Role::Lead(lead) => lead.oldest_needed(now_ms, first),
            _ => None,
        }
    }

    /// R3: a silent member, one that does not advance, and one that leaves, is dropped by the register first; until then
    /// everything still waits for it.
    fn drop_silent(&mut self, now: u64) {
        let (timing, drop_early) = (self.timing, self.is_broken(Variant::DropEarly));
        let Role::Lead(lead) = &mut self.role else { return };
        let goes = |p: &Peer| p.leaves || p.is_lost(now, &timing);
        let Config { members, learners, .. } = &lead.config;
        // One that is silent, or stops and comes back, goes on where it was, and needs what is kept for it.
        let has_another = |p: &Peer| {
            let mut named = members.iter().chain(learners);
            named.any(|other| other.host == p.member.host && *other != p.member)
        };
        lead.peers.retain(|p| !p.stand.learns() || !(p.stands_still(now, LEARNER_MS) || has_another(p)));
        for peer in lead.peers.iter_mut().filter(|p| p.stand == Stand::Catching) {
            if peer.leaves || !learners.contains(&peer.member) {
                (peer.stand, peer.leaves) = (Stand::Away, false);
            }
        }
        let gone: Vec<Member> = lead.must_ack().filter(|p| goes(p)).map(|p| p.member).collect();
        if drop_early {
            lead.peers.retain(|p| !goes(p));
        }
        // Whoever hears nobody is most likely cut off itself: the others, who look for a primary by then, go first.
        let alone_ms = timing.drop_ms + 2 * timing.heartbeat_ms;
        let is_alone = lead.must_ack().all(|p| !p.leaves && p.is_silent(now, &timing));
        let waits = is_alone && !lead.must_ack().all(|p| now >= p.heard_ms + alone_ms);
        if gone.is_empty() || waits || self.cas.is_some() {
            return;
        }
        // A learner that counted already leaves the same way: only a new term may stop waiting for it.
        let (expect, me) = (lead.config.clone(), lead.config.primary);
        let members = expect.members.iter().filter(|m| !gone.contains(m)).copied().collect();
        let mut new = expect.succeeded_by(me, members);
        new.learners.retain(|l| !gone.contains(l));
        self.propose_config(now, expect, new);
    }

    /// R3: a learner gets the log, then counts, and only then becomes a member.
    fn welcome_learners(&mut self, now: u64) {
        let (last, commit, late) = (self.tail.last().1, self.commit, self.is_broken(Variant::AddLate));
        let timing = self.timing;
        let Role::Lead(lead) = &mut self.role else { return };
        for learner in lead.config.learners.clone() {
            if let Some(peer) = lead.peers.iter_mut().find(|p| p.stand == Stand::Away && p.member == learner) {
                (peer.stand, peer.heard_ms) = (Stand::Catching, now);
            } else if !lead.has(learner.store) && !lead.config.has(learner.store) && learner != self.me {
                lead.peers.push(Peer::new(now, learner, Stand::Catching, last.next()));
            }
        }
        for peer in &mut lead.peers {
            // What it lacks must be at hand, and stay: the log may not reach back to it any more.
            let at_hand = peer.acked == last || self.tail.record(peer.acked.next()).is_some();
            // One whose log hangs would be waited for until it is dropped, again and again.
            let writes = peer.writes || peer.acked == last;
            // What it lacks has to stay at hand until it is there; what is not committed yet does.
            let bytes = |at| self.tail.record(Index(at)).map_or(0, |record| record.entry.bytes());
            let little = peer.acked.0 + JOIN_LAG >= last.0
                && (peer.acked.0 + 1..=commit.0).map(bytes).sum::<usize>() <= WINDOW_BYTES;
            let answers = peer.leased_from.is_some() && !peer.is_silent(now, &timing);
            let near = answers && little && at_hand && writes;
            if peer.stand == Stand::Catching && near && !late {
                (peer.stand, peer.moved_ms) = (Stand::Joining(last), now);
            }
        }
    }

    /// R3: a learner that holds the log is proposed as a member; it keeps counting whatever becomes of that.
    fn admit_learner(&mut self, now: u64) {
        let (commit, late) = (self.commit, self.is_broken(Variant::AddLate));
        let Role::Lead(lead) = &self.role else { return };
        let holds = |p: &&Peer| match p.stand {
            Stand::Joining(from) => p.leased_from.is_some() && p.acked >= from && p.acked >= commit,
            Stand::Catching => late,
            Stand::Voter | Stand::Away => false,
        };
        let Some(learner) = lead.peers.iter().find(holds).map(|p| p.member) else { return };
        if self.cas.is_some() {
            return;
        }
        let expect = lead.config.clone();
        let mut members = expect.members.clone();
        members.push(learner);
        let new = expect.succeeded_by(expect.primary, members);
        self.propose_config(now, expect, new);
    }
}

impl Peer {
    fn new(now: u64, member: Member, stand: Stand, next: Index) -> Self {
        Self {
            member,
            stand,
            leaves: false,
            acked: Index(0),
            next,
            floor: Index(0),
            leased_from: None,
            heard_ms: now,
            moved: Index(0),
            moved_ms: now,
            writes: false,
            shown: Vec::new(),
            lacks: None,
            sent_ms: None,
            rewound_ms: 0,
            fetched_ms: None,
        }
    }

    /// Up to here it has answered: it holds that, or does not have it and said so.
    fn answered(&self) -> Index {
        self.acked.max(self.floor)
    }

    /// From when on its silence counts, and that of its log.
    pub(super) fn times(&mut self) -> [&mut u64; 2] {
        [&mut self.heard_ms, &mut self.moved_ms]
    }

    fn is_silent(&self, now: u64, timing: &Timing) -> bool {
        now >= self.heard_ms + timing.drop_ms
    }

    fn stands_still(&self, now: u64, stall_ms: u64) -> bool {
        now >= self.moved_ms + stall_ms
    }

    /// A member that is silent, or without a step forward for long.
    pub(super) fn is_lost(&self, now: u64, timing: &Timing) -> bool {
        self.is_silent(now, timing) || self.stands_still(now, timing.stall_ms)
    }

    /// First entry that a learner lacks which was heard of.
    fn needs(&self) -> Option<Index> {
        self.lacks_behind().or(self.leased_from.map(|_| Index(1)))
    }

    /// The same, as far as it is known what it has.
    fn lacks_behind(&self) -> Option<Index> {
        let answered = Some(self.answered()).filter(|answered| *answered > Index(0));
        answered.map(Index::next).or(self.lacks)
    }

    /// One that is no member in the next term, and may become one: what it needs stays at hand.
    fn learns_on(&self, now: u64) -> Self {
        let (moved, moved_ms, shown, lacks) = (self.moved, self.moved_ms, self.shown.clone(), self.lacks_behind());
        Self { moved, moved_ms, shown, lacks, ..Self::new(now, self.member, Stand::Away, self.next) }
    }
}
