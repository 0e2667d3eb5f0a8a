//! The way to lead: wait for the promise to run out, look for the longest log, win the register (R6-R8).
//!
//! The register is read before it is asked to change. Who has asked it once cannot promise anything to the old primary
//! any more, until it has answered (R6): with a register that is away, a primary that was silent for a moment would find
//! nobody who follows it, and nobody could take its place.

use std::sync::Arc;

use braid_base::ids::{Guid, Index, Term};

use super::event::{Body, Effect};
use super::follow::Follow;
use super::variant::Variant;
use super::{Replica, Role};
use crate::config::{Config, Member};
use crate::entry::Record;

/// Where a campaign stands.
pub(super) struct Campaign {
    stage: Stage,
    since_ms: u64,
}

enum Stage {
    /// The other members are asked for the end of their logs.
    Probing(Vec<(Member, (Term, Index))>),
    /// One of them has more: it is fetched.
    Pulling { from: Member, best: (Term, Index) },
    /// The register is read, again after a while: does it answer, and is the configuration still the one known here?
    Confirming,
    /// It is asked for a change.
    Deciding,
}

impl Replica {
    /// R6, R7: starts a campaign if this replica may.
    pub(super) fn consider_campaign(&mut self, now: u64) {
        // One that could not serve lets the others go first.
        let patience_ms = if self.is_fit || self.others().is_empty() { 0 } else { self.timing.grace_ms };
        let free = now >= self.promise_until + patience_ms || self.is_broken(Variant::NoWait);
        if !free || now < self.campaign_after || self.cas.is_some() {
            return;
        }
        // It could commit nothing, and who can may be among the others.
        if self.log_hangs(now) && !self.others().is_empty() {
            return;
        }
        // A new store knows no configuration; one older than the own term is surely not the present one.
        if self.known.term < self.term || !self.is_member() {
            self.campaign_after = now + self.timing.heartbeat_ms;
            self.effects.push(Effect::ReadConfig);
            return;
        }
        self.role = Role::Campaign(Campaign { stage: Stage::Probing(Vec::new()), since_ms: now });
        let others = self.others();
        for member in &others {
            self.send(*member, Body::Probe);
        }
        if others.is_empty() {
            self.stand(now);
        }
    }

    pub(super) fn tick_campaign(&mut self, now: u64) {
        let probe_ms = self.timing.probe_ms;
        let Role::Campaign(campaign) = &self.role else { return };
        match campaign.stage {
            Stage::Probing(_) if now >= campaign.since_ms + probe_ms => self.decide(now),
            Stage::Pulling { .. } if now >= campaign.since_ms + 2 * probe_ms => self.give_up(now),
            Stage::Confirming if now >= campaign.since_ms + self.timing.register_ms() => self.stand(now),
            Stage::Deciding if self.cas.is_none() => self.give_up(now),
            _ => {}
        }
    }

    pub(super) fn on_probe_reply(&mut self, now: u64, from: Member, last: (Term, Index)) {
        let old_primary = self.known.primary.store;
        let expected: Vec<Guid> = self.others().iter().map(|m| m.store).filter(|s| *s != old_primary).collect();
        let Role::Campaign(Campaign { stage: Stage::Probing(replies), .. }) = &mut self.role else { return };
        replies.retain(|(m, _)| *m != from);
        replies.push((from, last));
        // The old primary is most likely dead: it is not waited for.
        if expected.iter().all(|s| replies.iter().any(|(m, _)| m.store == *s)) {
            self.decide(now);
        }
    }

    /// R8: more of the log from another member. Only what extends the own log: a member of an old
    /// configuration may hold entries that lost, and they must not push out ones that were committed.
    pub(super) fn on_pulled(&mut self, now: u64, from: Member, prev: (Term, Index), records: Vec<Arc<Record>>) {
        let Role::Campaign(Campaign { stage: Stage::Pulling { from: asked, best }, .. }) = &self.role else { return };
        let best = *best;
        if *asked != from || prev != self.tail.last() {
            return;
        }
        let mut fresh = Vec::new();
        for record in records {
            if record.index != self.tail.last().1.next() || record.term < self.tail.last().0 {
                break;
            }
            if let Err(error) = self.tail.push(Arc::clone(&record)) {
                self.quarantine(error);
                return;
            }
            fresh.push(record);
        }
        let progress = !fresh.is_empty();
        self.append(fresh);
        if !progress || self.tail.last() >= best {
            self.stand(now);
        } else {
            self.pull(now, from, best);
        }
    }

    fn others(&self) -> Vec<Member> {
        self.known.members.iter().filter(|m| !self.same(**m, self.me)).copied().collect()
    }

    fn decide(&mut self, now: u64) {
        let Role::Campaign(Campaign { stage: Stage::Probing(replies), .. }) = &self.role else { return };
        let longer = replies.iter().filter(|(_, last)| *last > self.tail.last()).max_by_key(|(_, last)| *last);
        match longer.copied() {
            Some((from, best)) => self.pull(now, from, best),
            None => self.stand(now),
        }
    }

    fn pull(&mut self, now: u64, from: Member, best: (Term, Index)) {
        self.role = Role::Campaign(Campaign { stage: Stage::Pulling { from, best }, since_ms: now });
        self.send(from, Body::Pull { from: self.tail.last().1.next() });
    }

    /// Nothing came from the member with the longer log: what it holds does not extend this one, or it is gone.
    fn give_up(&mut self, now: u64) {
        let Role::Campaign(campaign) = &self.role else { return };
        if matches!(campaign.stage, Stage::Pulling { .. }) {
            self.stand(now);
            return;
        }
        self.role = Role::Follower(Follow::default());
        self.campaign_after = now + self.timing.heartbeat_ms;
    }

    /// Asks for the register's word on the present configuration.
    fn stand(&mut self, now: u64) {
        self.role = Role::Campaign(Campaign { stage: Stage::Confirming, since_ms: now });
        self.effects.push(Effect::ReadConfig);
    }

    /// The register holds `found`. R6: the compare-and-set removes the old primary. R7: so does a restarted primary's, in a
    /// new term.
    pub(super) fn confirmed(&mut self, now: u64, found: &Config) {
        let Role::Campaign(Campaign { stage: Stage::Confirming, .. }) = &self.role else { return };
        if *found != self.known {
            return;
        }
        self.role = Role::Campaign(Campaign { stage: Stage::Deciding, since_ms: now });
        let (expect, me) = (self.known.clone(), self.me);
        let resumes = self.same(expect.primary, me);
        let stays = |m: &&Member| resumes || m.store != expect.primary.store;
        let members = expect.members.iter().filter(stays).copied().collect();
        let new = expect.succeeded_by(me, members);
        self.propose_config(now, expect.clone(), new);
    }
}
