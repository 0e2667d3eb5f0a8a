//! One member of a partition: primary-backup replication with the configuration in a compare-and-set
//! register (PacificA; design 5.3, rules R1-R9, checked exhaustively as a model, see K9).
//!
//! Life of an entry: 1. the primary appends it, and sends it to its peers when the group that it joined goes
//! to the log; 2. every member reports it durable; 3. when all of the must-ack set have, it is committed; 4. the shell
//! applies its batch. With one member 2 and 3 are the same moment.
//!
//! Life of a replica:
//! ```text
//! Follower --promise ran out, or named primary (R6, R7)--> Campaign: probe, pull (R8), CAS
//!    ^  ^                                                      | lost          | won
//!    |  +------------------------------------------------------+               v
//!    +----- a higher term or configuration ------------- Lead: recovering (R4) -> active
//! ```

pub mod campaign;
pub mod event;
pub mod follow;
pub mod lead;
pub mod leave;
pub mod tail;
pub mod variant;

#[cfg(test)]
mod tests;

use std::collections::VecDeque;
use std::sync::Arc;

use braid_base::Error;
use braid_base::ids::{HostId, Index, PartitionId, Term};

use self::campaign::Campaign;
use self::event::{Body, Effect, Event, Msg};
use self::follow::Follow;
use self::lead::{KEPT_BYTES, KEPT_MAX, Lead};
use self::tail::Tail;
use self::variant::Variant;
use crate::config::{Config, Member};
use crate::entry::Record;
use crate::kv::applied::Applied;

/// Intervals of the protocol, milliseconds on the local clock (design 5.3, 8).
#[derive(Clone, Copy, Debug)]
pub struct Timing {
    /// Between two messages to a peer.
    pub heartbeat_ms: u64,
    /// L: how long a promise counts for the primary, from when it sent the message that was answered.
    pub lease_ms: u64,
    /// G: how long a member keeps its promise, from when it received that message.
    pub grace_ms: u64,
    /// A peer that did not answer for so long is dropped.
    pub drop_ms: u64,
    /// A log in which no write ends for so long hangs: a peer that answers and does not advance is dropped like a silent
    /// one, and a primary gives up the lead.
    pub stall_ms: u64,
    /// How long a campaigner waits for answers of the other members.
    pub probe_ms: u64,
    /// How long a configuration has to last before the lead goes to where it should be: what has just begun is not
    /// disturbed, and hosts that come and go do not drag it about.
    pub settled_ms: u64,
}

impl Timing {
    /// What the design says; but a silent peer is dropped when a silent primary is replaced, and not half a second
    /// later: who waits for a write does not care which of them was lost.
    pub const DESIGN: Timing = Timing {
        heartbeat_ms: 250,
        lease_ms: 2000,
        grace_ms: 2500,
        drop_ms: 2500,
        stall_ms: 10_000,
        probe_ms: 300,
        settled_ms: 20_000,
    };

    /// Without a step for longer than this a replica stood still.
    fn still_ms(&self) -> u64 {
        2 * self.heartbeat_ms
    }

    /// A register that has not answered for so long is asked again.
    fn register_ms(&self) -> u64 {
        4 * self.heartbeat_ms
    }
}

impl Default for Timing {
    fn default() -> Self {
        Self::DESIGN
    }
}

// Two clocks may run apart by a quarter before a lease outlives the promise behind it (R5, K31).
const _: () = assert!(Timing::DESIGN.grace_ms * 4 >= Timing::DESIGN.lease_ms * 5);

/// What a replica knows when it starts.
pub struct Start {
    /// This store.
    pub me: Member,
    /// The partition.
    pub partition: PartitionId,
    /// Highest term persisted; 0 for a new store.
    pub term: Term,
    /// Last configuration persisted; empty for a new store.
    pub config: Config,
    /// Every record after the applied one that counts, as recovered and synced.
    pub tail: Tail,
    /// Last cut persisted; the tail is without what it took away.
    pub cut: (Term, Index),
    /// Intervals.
    pub timing: Timing,
}

/// One member of a partition. It never waits, never fails and does nothing by itself: each step answers
/// one event with effects, which the shell performs in their order.
pub struct Replica {
    me: Member,
    partition: PartitionId,
    timing: Timing,
    /// Highest term adopted, persisted before anything is said in it (R1).
    term: Term,
    /// Newest configuration seen.
    known: Config,
    tail: Tail,
    /// Records of terms before this one do not count beyond this index.
    cut: (Term, Index),
    durable: Index,
    commit: Index,
    /// What primaries said of payloads: see [`Replica::stage_begins`].
    stage_from: Index,
    /// Appends under way: ticket and last index.
    tickets: VecDeque<(u64, Index)>,
    next_ticket: u64,
    /// When one of them ended last, or when there was none.
    log_moved_ms: u64,
    /// When something happened last, if only a tick.
    stepped_ms: u64,
    /// Until then this replica keeps its word not to campaign (R5, R6).
    promise_until: u64,
    /// Not a matter of safety: gives a new primary time to make itself known.
    campaign_after: u64,
    /// The register may still take this change at any time, whatever was answered so far.
    cas: Option<Proposal>,
    role: Role,
    /// Where replicas should be, the one that should lead first; empty: nobody said.
    seats: Vec<HostId>,
    /// Hosts on which a replica should not lead, and whether this one may.
    unfit: Vec<HostId>,
    is_fit: bool,
    /// It is about to stop.
    leaves: bool,
    quarantined: bool,
    effects: Vec<Effect>,
    #[cfg(any(test, feature = "broken"))]
    broken: Option<Variant>,
}

enum Role {
    Follower(Follow),
    Campaign(Campaign),
    Lead(Lead),
}

/// A compare-and-set that is not known to have failed.
struct Proposal {
    expect: Config,
    new: Config,
    tried_ms: u64,
}

impl Replica {
    /// A replica that just started; this is the event "restarted". The whole tail is durable.
    pub fn new(now_ms: u64, start: Start) -> Self {
        let applied = start.tail.base().1;
        // R6: before the restart it may have given its word to the primary of `term`, unless that was itself.
        let led = start.config.primary == start.me && start.config.term == start.term;
        let wait = if led { 0 } else { start.timing.grace_ms };
        Self {
            me: start.me,
            partition: start.partition,
            timing: start.timing,
            term: start.term,
            known: start.config,
            durable: start.tail.last().1,
            commit: applied,
            stage_from: Index(0),
            tail: start.tail,
            cut: start.cut,
            tickets: VecDeque::new(),
            next_ticket: 1,
            log_moved_ms: now_ms,
            stepped_ms: now_ms,
            promise_until: now_ms + wait,
            campaign_after: now_ms,
            cas: None,
            role: Role::Follower(Follow::default()),
            seats: Vec::new(),
            unfit: Vec::new(),
            is_fit: true,
            leaves: false,
            quarantined: false,
            effects: Vec::new(),
            #[cfg(any(test, feature = "broken"))]
            broken: None,
        }
    }

    /// Takes `event` at `now_ms` (monotonic, any origin, at most 5 % drift) and says what to do, in order.
    pub fn step(&mut self, now_ms: u64, event: Event) -> Vec<Effect> {
        self.stood_still(now_ms);
        if self.tickets.is_empty() {
            self.log_moved_ms = now_ms;
        }
        if !self.quarantined {
            self.take(now_ms, event);
        } else if let Event::Propose(entry) = event {
            self.effects.push(Effect::Refused { entry });
        }
        std::mem::take(&mut self.effects)
    }

    /// True while it is the primary and takes proposals.
    pub fn is_active(&self) -> bool {
        matches!(&self.role, Role::Lead(lead) if lead.active)
    }

    /// True from winning the register until it steps down; before it is active it only recovers.
    pub fn leads(&self) -> bool {
        matches!(self.role, Role::Lead(_))
    }

    /// R5: true if a read may be answered. To be asked *after* the value was read from applied state.
    pub fn may_read(&self, now_ms: u64) -> bool {
        let Role::Lead(lead) = &self.role else { return false };
        lead.active && (self.is_broken(Variant::NoLease) || lead.leased(now_ms, self.timing.lease_ms))
    }

    /// True if others would have to wait for it if it stopped now, or if it is about to be nobody's.
    pub fn is_needed(&self) -> bool {
        self.leads() || self.is_member()
    }

    /// False if what it says as the primary depends on nobody else's promise.
    pub fn needs_promises(&self) -> bool {
        match &self.role {
            Role::Lead(lead) => lead.has_peers(),
            _ => true,
        }
    }

    /// True if another one could take its place: it follows, or leads other members.
    pub fn has_members(&self) -> bool {
        !matches!(&self.role, Role::Lead(lead) if !lead.has_voters())
    }

    /// True if, as far as is known, another member could lead in its place; `now_ms`: one that answers and advances.
    pub fn has_fit_peer(&self, now_ms: Option<u64>) -> bool {
        let Role::Lead(lead) = &self.role else { return false };
        lead.fit_voters(&self.unfit).any(|peer| now_ms.is_none_or(|now| !peer.is_lost(now, &self.timing)))
    }

    /// Highest term adopted.
    pub fn term(&self) -> Term {
        self.term
    }

    /// The index that the next proposal will get.
    pub fn next_index(&self) -> Index {
        self.tail.last().1.next()
    }

    /// Everything up to here is committed and durable on this host.
    pub fn committed(&self) -> Index {
        self.commit
    }

    /// Everything up to here is durable on this host; what to tell [`crate::log::writer::LogWriter::mark_durable`].
    pub fn durable(&self) -> Index {
        self.durable
    }

    /// Newest configuration seen.
    pub fn config(&self) -> &Config {
        &self.known
    }

    /// The primary's shell says that nothing committed refers to payloads of entries before `index`; never goes back.
    pub fn stage_begins(&mut self, index: Index) {
        self.stage_from = self.stage_from.max(index);
    }

    /// Payloads of entries before this one are not needed any more, as the primaries so far have said.
    pub fn stage_from(&self) -> Index {
        self.stage_from
    }

    /// The view is here, as it was after the record `start` or later: the log goes on from there.
    pub fn imported(&mut self, start: (Term, Index)) {
        assert!(
            matches!(self.role, Role::Follower(_)) && self.tail.last().1 == Index(0),
            "only an empty store imports"
        );
        let (term, index) = start;
        self.tail = Tail::new(Applied { term, index, ..Applied::default() });
        (self.durable, self.commit) = (index, index);
        self.role = Role::Follower(Follow::default());
    }

    /// A message of the shell to another replica.
    pub fn message(&self, to: Member, body: Body) -> Msg {
        Msg { partition: self.partition, term: self.term, from: self.me, to_store: to.store, body }
    }

    /// The shell says whether this replica could serve if it led.
    pub fn set_fit(&mut self, is_fit: bool) {
        self.is_fit = is_fit;
    }

    /// True if the message is for this very store (R9).
    pub fn is_for_me(&self, msg: &Msg) -> bool {
        let mine =
            msg.to_store == self.me.store || self.is_broken(Variant::NoUuid) || self.is_broken(Variant::MsgNoUuid);
        mine && msg.partition == self.partition
    }

    /// The term of record `index`, as long as the replica knows it.
    pub fn term_at(&self, index: Index) -> Option<Term> {
        self.tail.term_at(index)
    }

    /// A record that is still in memory; the shell reads others from the log.
    pub fn record(&self, index: Index) -> Option<&Arc<Record>> {
        self.tail.record(index)
    }

    /// Time for which this replica itself stood still (its host was paused, or its process) is held against nobody: all
    /// of them may have, and nobody was heard meanwhile. Ticks that come late are not that: the silence of others counts on.
    fn stood_still(&mut self, now: u64) {
        let still_ms = now.saturating_sub(self.stepped_ms).saturating_sub(self.timing.still_ms());
        self.stepped_ms = self.stepped_ms.max(now);
        if still_ms == 0 {
            return;
        }
        let later = |ms: &mut u64| *ms = (*ms + still_ms).min(now);
        later(&mut self.log_moved_ms);
        // The primary gets as much time as it had left. The promise itself is as long as it was.
        if !self.leaves {
            // (Who leaves only asks now and then by that time.)
            let waits_ms = self.promise_until.max(self.campaign_after) + still_ms;
            self.campaign_after = self.campaign_after.max(waits_ms.min(now + self.timing.grace_ms));
        }
        if let Role::Lead(lead) = &mut self.role {
            lead.peers.iter_mut().for_each(|peer| peer.times().into_iter().for_each(later));
        }
    }

    fn take(&mut self, now: u64, event: Event) {
        if matches!(event, Event::Tick | Event::Msg(_)) {
            // Also with what others say: the thread that ticks may be the one that waits for the log.
            self.give_up_lead(now);
        }
        match event {
            Event::Propose(entry) => self.propose(entry),
            Event::Group => self.replicate(now),
            Event::LogDurable { ticket } => self.log_durable(now, ticket),
            Event::LogFetched { to, prev, records } => self.log_fetched(now, to, prev, records),
            Event::Applied { upto } => self.release(upto),
            Event::Msg(msg) => self.hear(now, msg),
            Event::Tick => self.tick(now),
            Event::CasResult { now: found } => self.cas_result(now, found),
            Event::ConfigSeen(config) => {
                self.see_config(now, config.clone());
                self.confirmed(now, &config);
            }
            Event::Seats(seats) => self.seats = seats,
            Event::Unfit(hosts) => self.unfit = hosts,
            Event::Leave => {
                self.leaves = true;
                self.campaign_after = now;
                self.tick(now);
            }
            Event::StorageFailed { error } => self.quarantine(error),
        }
    }

    fn tick(&mut self, now: u64) {
        if let Some(cas) = &mut self.cas
            && now >= cas.tried_ms + self.timing.register_ms()
        {
            cas.tried_ms = now;
            self.effects.push(Effect::Cas { expect: cas.expect.clone(), new: cas.new.clone() });
        }
        match &self.role {
            Role::Follower(_) if self.leaves => self.ask_leave(now),
            Role::Follower(_) => self.consider_campaign(now),
            Role::Campaign(_) => self.tick_campaign(now),
            Role::Lead(_) => self.tick_lead(now),
        }
    }

    fn hear(&mut self, now: u64, msg: Msg) {
        if !self.is_for_me(&msg) {
            return; // R9: meant for a store that is no more
        }
        match msg.body {
            Body::Append { prev, records, commit, inherited, stage_from, sent_ms } => {
                let append = follow::Append { prev, records, commit, inherited, stage_from, sent_ms };
                self.on_append(now, msg.from, msg.term, append);
            }
            Body::Ack { held, echo_ms } => self.on_ack(now, msg.from, msg.term, held, echo_ms),
            Body::Mismatch { hint, echo_ms } => self.on_mismatch(now, msg.from, msg.term, hint, echo_ms),
            Body::Refuse => {
                if msg.term > self.term {
                    self.effects.push(Effect::ReadConfig);
                }
            }
            Body::Leaving => self.on_leaving(msg.from, msg.term),
            Body::Released => self.on_released(now, msg.term),
            Body::Probe => self.send(msg.from, Body::ProbeReply { last: self.tail.last() }),
            Body::ProbeReply { last } => self.on_probe_reply(now, msg.from, last),
            Body::Pull { from } => self.on_pull(msg.from, from),
            Body::Pulled { prev, records } => self.on_pulled(now, msg.from, prev, records),
            Body::Behind { .. } | Body::AskView { .. } | Body::View { .. } => {} // the view is the shell's
        }
    }

    fn log_durable(&mut self, now: u64, ticket: u64) {
        while let Some(&(first, upto)) = self.tickets.front()
            && first <= ticket
        {
            self.durable = self.durable.max(upto);
            self.tickets.pop_front();
        }
        // Also one whose records were cut off meanwhile.
        self.log_moved_ms = now;
        // What lies behind the cut came after it, and the segment it is in voids what was cut. It may be of an old term: the
        // note, if it stayed, would take it away again at the next start, when others count on it.
        if self.cut.0 > Term(0) && self.durable > self.cut.1 {
            self.cut = Default::default();
            self.persist();
        }
        match &self.role {
            Role::Follower(_) => self.follower_durable(),
            Role::Lead(_) => self.lead_durable(now),
            Role::Campaign(_) => {}
        }
    }

    /// R1: a term is adopted by winning the register or by a message of a higher term; persisted first.
    fn adopt(&mut self, term: Term) {
        assert!(term > self.term, "I4: the term of a store never decreases");
        self.term = term;
        self.persist();
    }

    fn persist(&mut self) {
        let (term, config, cut) = (self.term, self.known.clone(), self.cut);
        self.effects.push(Effect::PersistMeta { term, config, cut });
    }

    fn append(&mut self, records: Vec<Arc<Record>>) {
        let Some(last) = records.last() else { return };
        let ticket = self.next_ticket;
        self.next_ticket += 1;
        self.tickets.push_back((ticket, last.index));
        self.effects.push(Effect::AppendLog { ticket, records });
    }

    /// No write of the own log has ended for long, and one is under way.
    fn log_hangs(&self, now: u64) -> bool {
        !self.tickets.is_empty() && now >= self.log_moved_ms + self.timing.stall_ms
    }

    /// Drops everything after `index`, which must not reach into what is committed.
    fn truncate_after(&mut self, index: Index) {
        assert!(index >= self.commit, "I2: committed entries are never truncated");
        self.tail.truncate_after(index);
        self.durable = self.durable.min(index);
        // What is reported durable later no longer covers more than what is left of it.
        for (_, upto) in &mut self.tickets {
            *upto = (*upto).min(index);
        }
        // Nobody waits for what is left of nothing.
        let mut before = self.durable;
        self.tickets.retain(|(_, upto)| {
            let covers = *upto > before;
            before = before.max(*upto);
            covers
        });
        self.effects.push(Effect::TruncateLog { after: self.tail.last() });
    }

    fn commit_upto(&mut self, upto: Index) {
        if upto > self.commit {
            assert!(upto <= self.durable, "only what is durable here is committed here");
            self.commit = upto;
            self.effects.push(Effect::Committed { upto });
        }
    }

    fn propose_config(&mut self, now: u64, expect: Config, new: Config) {
        self.effects.push(Effect::Cas { expect: expect.clone(), new: new.clone() });
        self.cas = Some(Proposal { expect, new, tried_ms: now });
    }

    fn cas_result(&mut self, now: u64, found: Config) {
        let unchanged = self.cas.as_ref().is_some_and(|cas| cas.expect == found);
        if !unchanged {
            self.see_config(now, found); // else it may still come true: repeated by the next ticks
        }
    }

    fn see_config(&mut self, now: u64, found: Config) {
        if found.term < self.known.term || found == self.known {
            return; // an old hint; or a register restored from a backup, which nobody may follow (K11)
        }
        let newer = found.term > self.known.term;
        if let Some(cas) = self.cas.take() {
            if cas.new == found {
                self.won(now, found);
                return;
            }
            if cas.expect == found {
                self.cas = Some(cas);
            }
        }
        self.known = found;
        match &mut self.role {
            Role::Lead(lead) if !newer => lead.config.learners.clone_from(&self.known.learners),
            Role::Lead(_) | Role::Campaign(_) if newer => self.follow_nobody(now),
            _ => {}
        }
        if self.known.term > self.term {
            self.expect_primary(now);
        } else if newer {
            self.campaign_after = now; // this was all that was missing
        }
    }

    fn won(&mut self, now: u64, config: Config) {
        self.known = config.clone();
        if !self.same(config.primary, self.me) {
            return self.hand_over(now);
        }
        self.adopt(config.term);
        self.take_lead(now, config);
    }

    /// Back to the start: a primary is known to exist, or to be chosen, but has not spoken yet.
    fn follow_nobody(&mut self, now: u64) {
        if let Role::Lead(_) = &self.role {
            self.effects.push(Effect::SteppedDown);
        }
        self.role = Role::Follower(Follow::default());
        self.expect_primary(now);
    }

    /// Gives the primary of a new configuration time to speak.
    fn expect_primary(&mut self, now: u64) {
        let named = self.same(self.known.primary, self.me);
        self.campaign_after = if named { now } else { now + self.timing.grace_ms };
    }

    /// R9: a replica that lost data, or cannot keep it, takes itself out. It stays silent, so the others drop it.
    fn quarantine(&mut self, error: Error) {
        if let Role::Lead(_) = &self.role {
            self.effects.push(Effect::SteppedDown);
        }
        self.role = Role::Follower(Follow::default());
        self.quarantined = true;
        self.effects.push(Effect::Quarantine { error });
    }

    fn release(&mut self, applied: Index) {
        let upto = applied.min(self.commit);
        if let Role::Lead(lead) = &self.role {
            self.tail.release(upto.min(lead.slowest_acked(self.tail.last().1)));
            self.tail.release_beyond(upto, KEPT_MAX, KEPT_BYTES);
        } else {
            self.tail.release(upto);
        }
    }

    fn send(&mut self, to: Member, body: Body) {
        let msg = self.message(to, body);
        self.effects.push(Effect::Send { to, msg });
    }

    /// R9: replicas are told apart by store, never by host.
    fn same(&self, a: Member, b: Member) -> bool {
        a.store == b.store || (self.is_broken(Variant::NoUuid) && a.host == b.host)
    }

    /// True if the newest configuration that it has seen names it as a member.
    pub fn is_member(&self) -> bool {
        self.known.members.iter().any(|m| self.same(*m, self.me))
    }
}
