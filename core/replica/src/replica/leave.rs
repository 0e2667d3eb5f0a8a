//! Members that leave in order: because their host stops, or because the replica should be elsewhere; and a primary whose
//! log hangs. Nobody waits for a promise to run out then. Each is a change of the configuration like any other (R3, R6): the
//! register decides.

use braid_base::ids::{HostId, Index, Term};

use super::event::{Body, Effect};
use super::follow::Follow;
use super::lead::{JOIN_LAG, Peer, Wish};
use super::variant::Variant;
use super::{Replica, Role};
use crate::config::Member;

impl Replica {
    /// A primary looks if members have to go, itself included, or another one is to lead.
    pub(super) fn make_way(&mut self, now: u64) {
        let resigns = self.leaves && self.at_full_strength();
        let (me, settled_ms, lease_ms) = (self.me, self.timing.settled_ms, self.timing.lease_ms);
        // Who holds nearly all fetches the rest (R8).
        let near = Index(self.tail.last().1.0.saturating_sub(JOIN_LAG));
        let (is_fit, unfit) = (self.is_fit, &self.unfit);
        let Role::Lead(lead) = &mut self.role else { return };
        if !lead.active || self.cas.is_some() {
            return;
        }
        let expect = lead.config.clone();
        let is_member = |host: &HostId| expect.members.iter().any(|member| member.host == *host);
        // Whoever is too many stays until all are there that should be.
        let filled = self.seats.iter().all(is_member);
        let stays = |member: &Member| {
            (!filled || self.seats.is_empty() || self.seats.contains(&member.host)) && !(resigns && *member == me)
        };
        let members: Vec<Member> = expect.members.iter().filter(|member| stays(member)).copied().collect();
        let stays = |peer: &Peer| members.contains(&peer.member);
        let may = |peer: &Peer| stays(peer) && !unfit.contains(&peer.member.host);
        let is_settled = lead.age_ms(now) >= settled_ms;
        // By then it was heard who else should not lead.
        let has_heard = lead.age_ms(now) >= lease_ms;
        let heir = if !members.contains(&me) {
            lead.heir(now, Wish::Leaves, Index(0), unfit, stays)
        } else if !is_fit && has_heard {
            lead.heir(now, Wish::Unfit, near, unfit, may).or(Some(me))
        } else if filled && members == expect.members && is_settled {
            let first = self.seats.first().filter(|first| **first != me.host && !unfit.contains(first));
            let is_first = |peer: &Peer| first.is_some_and(|first| peer.member.host == *first) && may(peer);
            lead.heir(now, Wish::Seats, near, unfit, is_first).or(Some(me))
        } else {
            lead.wish = None;
            Some(me)
        };
        // Without an heir it goes on: it is better led by somebody who should not than by nobody.
        let Some(heir) = heir.filter(|heir| *heir != me || members != expect.members) else { return };
        if self.is_broken(Variant::ReleaseEarly) && heir != me {
            let peers = self.peers();
            self.release_promises(&peers);
        }
        let new = expect.succeeded_by(heir, members);
        self.propose_config(now, expect, new);
    }

    /// The register has named another one to lead.
    pub(super) fn hand_over(&mut self, now: u64) {
        let members = self.peers();
        self.follow_nobody(now);
        // Only now: it has stopped to serve, for good in this term.
        self.release_promises(&members);
    }

    /// A primary whose log hangs commits nothing: it serves no more, and gives the promises back, so that another one takes
    /// its place. If nobody can, it goes on: what is committed can be read there.
    pub(super) fn give_up_lead(&mut self, now: u64) {
        let Role::Lead(lead) = &self.role else { return };
        if !self.log_hangs(now) || !lead.has_sound_voter(now, &self.timing) {
            return;
        }
        let members = self.peers();
        self.follow_nobody(now);
        self.campaign_after = now + self.timing.grace_ms;
        self.release_promises(&members);
    }

    fn peers(&self) -> Vec<Member> {
        let Role::Lead(lead) = &self.role else { return Vec::new() };
        lead.peers.iter().map(|peer| peer.member).collect()
    }

    fn release_promises(&mut self, members: &[Member]) {
        members.iter().for_each(|member| self.send(*member, Body::Released));
    }

    /// A member that is about to stop says so until it is out, and does not want to lead any more.
    pub(super) fn ask_leave(&mut self, now: u64) {
        if now < self.campaign_after || !self.is_member() {
            return;
        }
        self.campaign_after = now + self.timing.heartbeat_ms / 2;
        if let Role::Follower(Follow { primary: Some(primary), .. }) = &self.role {
            self.send(*primary, Body::Leaving);
        }
        self.effects.push(Effect::ReadConfig);
    }

    /// A member is about to stop. One at a time: those who stop together with others are dropped as the silent are, so
    /// that a cluster which is shut down as a whole keeps its members.
    pub(super) fn on_leaving(&mut self, from: Member, term: Term) {
        let whole = self.at_full_strength();
        let Role::Lead(lead) = &mut self.role else { return };
        if term == lead.config.term
            && whole
            && let Some(peer) = lead.peers.iter_mut().find(|peer| peer.member == from)
        {
            peer.leaves = true;
        }
    }

    /// The primary of this term has stopped to serve: the promise to it is void (R5).
    pub(super) fn on_released(&mut self, now: u64, term: Term) {
        if term == self.term && matches!(self.role, Role::Follower(_)) {
            self.promise_until = self.promise_until.min(now);
            if self.known.term == self.term {
                // It waited for the end of that promise, too.
                self.campaign_after = self.campaign_after.min(now);
            }
            self.effects.push(Effect::ReadConfig);
        }
    }

    /// As many members as there should be, and none of them about to go. Two remain then: of one that is left alone
    /// nobody can know in time that its store was just lost.
    fn at_full_strength(&self) -> bool {
        let Role::Lead(lead) = &self.role else { return false };
        let members = lead.config.members.len();
        members > 2 && members >= self.seats.len() && !self.seats.is_empty() && lead.peers.iter().all(|p| !p.leaves)
    }
}
