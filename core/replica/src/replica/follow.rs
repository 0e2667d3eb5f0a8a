//! A member that takes the log from a primary (R1, R4, R5).

use std::sync::Arc;

use braid_base::ids::{Index, Term};
use braid_base::{Error, ErrorKind};

use super::event::{Body, Effect};
use super::variant::Variant;
use super::{Replica, Role};
use crate::config::Member;
use crate::entry::Record;

/// What a follower knows of its primary in the present term.
#[derive(Default)]
pub(super) struct Follow {
    /// `None` until it has spoken.
    pub(super) primary: Option<Member>,
    /// The own log equals the primary's up to here; says nothing about durability.
    matched: Index,
    /// What the primary has committed.
    commit_hint: Index,
    /// Newest message that is answered when the append is durable.
    unanswered_ms: Option<u64>,
}

/// An append message's content.
pub(super) struct Append {
    pub(super) prev: (Term, Index),
    pub(super) records: Vec<Arc<Record>>,
    pub(super) commit: Index,
    pub(super) inherited: Index,
    pub(super) stage_from: Index,
    pub(super) sent_ms: u64,
}

enum Fit {
    /// `prev` is in the log.
    Yes,
    /// It is not: go on after this index.
    No(Index),
    /// The logs differ where this one is committed.
    Contradiction,
}

impl Replica {
    pub(super) fn on_append(&mut self, now: u64, from: Member, term: Term, append: Append) {
        if term < self.term {
            self.send(from, Body::Refuse); // R1
            return;
        }
        if !self.accept_primary(now, from, term) {
            return;
        }
        // R5: the word is given with every answer to this message, so it counts from now on.
        self.promise_until = self.promise_until.max(now + self.timing.grace_ms);
        self.stage_begins(append.stage_from);
        if !self.forget_beyond(term, append.inherited) {
            return;
        }
        match self.fit(append.prev) {
            Fit::Contradiction => self.contradiction(append.prev.1),
            Fit::No(hint) => self.send(from, Body::Mismatch { hint, echo_ms: append.sent_ms }),
            Fit::Yes => self.take_records(append),
        }
    }

    /// More of the log is durable: answer what waited for it.
    pub(super) fn follower_durable(&mut self) {
        let Role::Follower(follow) = &mut self.role else { return };
        let durable = follow.matched <= self.durable;
        let answer = if durable { follow.unanswered_ms.take() } else { follow.unanswered_ms };
        if let Some(echo_ms) = answer {
            self.answer(echo_ms);
        }
    }

    /// True if `from` is the primary to follow in `term`.
    fn accept_primary(&mut self, now: u64, from: Member, term: Term) -> bool {
        if let Some(cas) = &self.cas
            && !matches!(self.role, Role::Lead(_))
            && cas.new.term > term
        {
            return false; // R6: it may have campaigned already, so it cannot promise not to
        }
        if term > self.term {
            self.cas = None; // the register has moved on: it cannot come true any more
            if !matches!(self.role, Role::Follower(_)) {
                self.follow_nobody(now);
            }
            self.adopt(term);
            self.role = Role::Follower(Follow::default());
        }
        match &mut self.role {
            Role::Lead(_) => return false, // I4: one primary per term; this one is no primary
            Role::Campaign(_) => self.role = Role::Follower(Follow::default()),
            Role::Follower(_) => {}
        }
        if let Role::Follower(follow) = &mut self.role {
            follow.primary = Some(from);
        }
        true
    }

    /// R4: what earlier terms left here and not in the log that a new primary serves from goes before it is answered.
    /// Else the next one to campaign could bring back (R8) what this one, and whoever asked it, took for never written.
    /// False if the replica took itself out.
    fn forget_beyond(&mut self, term: Term, inherited: Index) -> bool {
        let (last_term, last) = self.tail.last();
        if last_term >= term || last <= inherited || self.is_broken(Variant::KeepBeyond) {
            return true;
        }
        if inherited < self.commit {
            self.contradiction(inherited.next());
            return false;
        }
        // Noted first: nothing may follow in the log that makes the cut durable.
        self.cut = (term, inherited);
        self.persist();
        self.truncate_after(inherited);
        true
    }

    fn fit(&self, prev: (Term, Index)) -> Fit {
        let (term, index) = prev;
        let (base_term, base) = self.tail.base();
        if index < base {
            return Fit::Yes; // what is applied is committed, so every primary holds it
        }
        match self.tail.term_at(index) {
            Some(found) if found == term => Fit::Yes,
            _ if index == base && base_term != term => Fit::Contradiction,
            Some(_) if index <= self.commit => Fit::Contradiction,
            Some(_) => Fit::No(Index(self.tail.run_start(index).0 - 1).max(self.commit)),
            None => Fit::No(self.tail.last().1),
        }
    }

    fn take_records(&mut self, append: Append) {
        // What is applied is committed, so the primary holds it as well, wherever its message begins.
        let upto = Index(append.prev.1.0 + append.records.len() as u64).max(self.tail.base().1);
        let empty = append.records.is_empty();
        if !self.merge(append.records) {
            return;
        }
        let durable = self.durable;
        let Role::Follower(follow) = &mut self.role else { return };
        follow.matched = follow.matched.max(upto);
        follow.commit_hint = follow.commit_hint.max(append.commit);
        // Records are answered once durable; a heartbeat at once, because it keeps the lease.
        if empty || durable >= follow.matched {
            self.answer(append.sent_ms);
        } else {
            follow.unanswered_ms = follow.unanswered_ms.max(Some(append.sent_ms));
        }
    }

    /// R4: what contradicts the primary goes, what is new comes. False if the replica took itself out.
    fn merge(&mut self, records: Vec<Arc<Record>>) -> bool {
        let mut fresh = Vec::new();
        for record in records {
            let index = record.index;
            if index < self.tail.base().1 || self.tail.term_at(index) == Some(record.term) {
                continue; // held already: (term, index) names one entry
            }
            if index <= self.tail.last().1 {
                if index <= self.commit {
                    self.contradiction(index);
                    return false;
                }
                self.truncate_after(Index(index.0 - 1));
            }
            if index != self.tail.last().1.next() {
                break; // records of a message follow each other; a foreign one that does not ends here
            }
            if let Err(error) = self.tail.push(Arc::clone(&record)) {
                self.quarantine(error);
                return false;
            }
            fresh.push(record);
        }
        self.append(fresh);
        true
    }

    fn answer(&mut self, echo_ms: u64) {
        let Role::Follower(follow) = &self.role else { return };
        let held = follow.matched.min(self.durable);
        let commit = follow.commit_hint.min(held);
        if let Some(primary) = follow.primary {
            self.send(primary, Body::Ack { held, echo_ms });
        }
        self.commit_upto(commit);
    }

    /// Two committed entries at one index: some store lost or invented data.
    fn contradiction(&mut self, index: Index) {
        let error = Error::new(
            ErrorKind::Corrupt,
            format!(
                "{}: store {} has committed another record {index} than the primary; rebuild it as a new store",
                self.partition, self.me
            ),
        );
        self.quarantine(error);
    }

    /// R8: a member shows the end of its log to a campaigner.
    pub(super) fn on_pull(&mut self, to: Member, from: Index) {
        let prev = Index(from.0.saturating_sub(1));
        let records = self.records_in_memory(from);
        let Some(term) = self.tail.term_at(prev).filter(|_| !records.is_empty()) else {
            if from <= self.tail.last().1 {
                self.effects.push(Effect::FetchLog { to, from });
            }
            return;
        };
        self.send(to, Body::Pulled { prev: (term, prev), records });
    }
}
