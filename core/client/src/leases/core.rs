//! The client's side of sessions and leases, as a pure machine: `step(event) -> effects`.
//!
//! A session per partition: *idle* → `Hello` → *live* → lost → *idle*, with the next number. A live one counts until
//! `SESSION_VALID_MS` after the last accepted heartbeat was sent; beyond that nothing is answered from memory until
//! the partition says that the session still lives. A higher term than known means a new primary: shared leases are
//! forgotten, exclusive ones, opens and locks are asserted again.

mod alone;
mod doubt;
mod leave;
mod opens;
#[cfg(test)]
mod tests;

pub(crate) use opens::Owed;

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use braid_base::ErrorKind;
use braid_base::attr::Attr;
use braid_base::ids::{ClientId, FsId, HostId, Ino, PartitionId, Term};
use braid_base::limits::{HEARTBEAT_MS, SESSION_VALID_MS};
use braid_base::msg::fs::{DirEntry, LockKind, Op, RenameMode, Reply};
use braid_base::msg::lease::{Answer, Holdings, LeaseKind, Push, PushBody, Release};

use super::borrowed::Borrowed;
use super::cache::{Cache, Key, Seen};
use super::changed::{changed, names_changed, refreshed};
use super::event::{Asked, Effect, Event};
use super::kept::Kept;
use super::programs::Programs;
use crate::doubts::Doubts;

/// A heartbeat without an answer is sent again after this time, milliseconds.
const RETRY_MS: u64 = 1_000;
/// How long the partition may take to say what became of a `Reassert` before another one goes, milliseconds.
const ASSERT_MS: u64 = 3_000;
/// Leases given back at least for one answer that needs room.
const EVICT_AT_ONCE: usize = 16;

/// Rules that a test may break to show that it notices. A product build has no way to choose one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CoreMutation {
    /// Grants of an older term are taken.
    StaleTerm,
    /// Grants that were overtaken by their recall are taken.
    RecallCross,
    /// Grants of an earlier session are taken.
    StaleSession,
    /// Leases are given back before the partition knows who has the file open.
    OpensAfter,
    /// Names are removed before the partition knows that this client has the file open.
    NamesBefore,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Idle,
    Beginning,
    Live,
}

struct Part {
    phase: Phase,
    /// The session in use, or the last one.
    session: u64,
    term: Term,
    valid_until: u64,
    /// When to send the next heartbeat.
    hello_ms: u64,
    wanted: bool,
    /// The session was not extended in time, and what others may have changed since was forgotten.
    overdue: bool,
    /// What is held was asserted in this term, and until then the answer is waited for: the partition takes the first one
    /// only, and what has come since would be taken for known there.
    asserting: Option<(Term, u64)>,
    releases: Vec<Release>,
    /// Exclusive leases that go unasked and have not had their turn, and those whose owners write what they held back.
    leavers: VecDeque<Key>,
    flushing: BTreeSet<Key>,
    /// Leases that were granted and not taken, their numbers, and since when: the next answer may bring them again.
    unclaimed: BTreeMap<Key, (u64, u64)>,
}

/// The machine of one client.
pub struct Core {
    client: ClientId,
    home: Option<HostId>,
    parts: Vec<Part>,
    cache: Cache,
    pub(super) kept: Kept,
    borrowed: Borrowed,
    programs: Programs,
    doubts: Doubts<Key>,
    mutation: Option<CoreMutation>,
}

impl Core {
    /// The machine of `client` in a cluster of `partitions`. `home`: the host in whose server process it lives, if so.
    pub fn new(client: ClientId, partitions: u16, home: Option<HostId>) -> Self {
        let idle = || Part {
            phase: Phase::Idle,
            session: 0,
            term: Term(0),
            valid_until: 0,
            hello_ms: 0,
            wanted: false,
            overdue: false,
            asserting: None,
            releases: Vec::new(),
            leavers: VecDeque::new(),
            flushing: BTreeSet::new(),
            unclaimed: BTreeMap::new(),
        };
        let parts = (0..partitions).map(|_| idle()).collect();
        Self {
            client,
            home,
            parts,
            cache: Cache::new(partitions),
            kept: Kept::default(),
            borrowed: Borrowed::default(),
            programs: Programs::default(),
            doubts: Doubts::default(),
            mutation: None,
        }
    }

    /// Leaves a rule out, to prove that the tests see it.
    #[doc(hidden)]
    pub fn leave_out(&mut self, mutation: Option<CoreMutation>) {
        self.mutation = mutation;
    }

    /// The session to name in a request to `p`; 0 if there is none yet.
    pub fn session(&self, p: PartitionId) -> u64 {
        self.parts.get(usize::from(p.0)).filter(|part| part.phase == Phase::Live).map_or(0, |part| part.session)
    }

    /// The stamp of a request that is sent now.
    pub fn asking(&self) -> u64 {
        self.cache.asking()
    }

    /// The attributes of an inode, if they are certain.
    pub fn attr(&self, fs: FsId, ino: Ino, now: u64) -> Option<&Attr> {
        self.lease(fs, ino, now)?;
        self.cache.attr((fs, ino))
    }

    /// True for an answer about what a client keeps (open references, locks) from an earlier life of the partition, as
    /// far as is known. What was asserted in the new one did not show it, so it is as good as not done: to be asked again.
    /// So is a lock that was given to a session that is over: others may have it.
    pub fn is_past(&self, p: PartitionId, session: u64, op: &Op, answer: &Answer) -> bool {
        let Some(part) = self.parts.get(usize::from(p.0)) else { return false };
        if part.session == 0 || answer.result.is_err() {
            return false;
        }
        let takes = matches!(op, Op::Lock { lock, .. } if lock.kind != LockKind::Unlock);
        let is_over = session > 0 && !self.is_of(p, session);
        (takes && is_over) || (answer.term < part.term && Kept::is_about(op))
    }

    /// What a name stands for, if that is certain; `Some(None)`: it is not there.
    pub fn name(&self, fs: FsId, dir: Ino, name: &[u8], now: u64) -> Option<Option<Ino>> {
        self.lease(fs, dir, now)?;
        self.cache.find(fs, dir, name)
    }

    /// A page of a directory, without attributes, and whether it is the last, if that is certain.
    pub fn listed(&self, fs: FsId, dir: Ino, cookie: u64, limit: u32, now: u64) -> Option<(Vec<DirEntry>, bool)> {
        self.lease(fs, dir, now)?;
        self.cache.names_after((fs, dir), cookie, limit as usize)
    }

    /// The lease on an inode that counts now. With an exclusive one changes may be held back, as long as they are
    /// written under the session that [`Core::session`] says now.
    pub fn lease(&self, fs: FsId, ino: Ino, now: u64) -> Option<LeaseKind> {
        let node = self.cache.node((fs, ino))?;
        (node.leaving.is_none() && self.may_hold(fs, ino, now)).then_some(node.kind)
    }

    /// Open references of an inode that its partition knows of.
    pub fn opens(&self, fs: FsId, ino: Ino) -> u32 {
        self.kept.opens_of((fs, ino))
    }

    /// Attributes and names remembered.
    pub fn len(&self) -> usize {
        self.cache.len()
    }

    /// True if nothing is remembered.
    pub fn is_empty(&self) -> bool {
        self.cache.len() == 0
    }

    /// True if a lease on `ino` would count now.
    pub fn may_hold(&self, fs: FsId, ino: Ino, now: u64) -> bool {
        let part = self.parts.get(usize::from(ino.partition(self.parts.len() as u16).0));
        let is_valid = part.is_some_and(|part| part.phase == Phase::Live && now < part.valid_until);
        is_valid && !self.doubts.is_about((fs, ino), now)
    }

    /// Takes one event; pushes what follows from it. `now`: milliseconds on the client's own clock.
    pub fn step(&mut self, now: u64, event: Event<'_>, out: &mut Vec<Effect>) {
        match event {
            Event::Tick => self.tick(now, out),
            Event::Wanted(p) => self.wanted(p, now, out),
            Event::Hello { p, session, sent_ms, answer } => self.hello(p, session, sent_ms, answer, now, out),
            Event::Reasserted { p, session, sent_ms, answer } => {
                if self.is_of(p, session) {
                    let part = self.part(p);
                    part.asserting = part.asserting.filter(|(term, _)| answer.term > Term(0) && *term != answer.term);
                }
                if self.is_of(p, session) && answer.term == self.part(p).term && answer.result.is_ok() {
                    let part = self.part(p);
                    part.valid_until = part.valid_until.max(sent_ms + SESSION_VALID_MS);
                    part.overdue = false;
                }
                self.lost_if(p, session, answer, out);
            }
            Event::Pushed(push) => self.pushed(&push, now, out),
            Event::Flushed { fs, ino, session } => {
                let p = ino.partition(self.parts.len() as u16);
                // Of an earlier session there is nothing left to give back: a lease of today is another one.
                if self.is_of(p, session) {
                    self.flushed((fs, ino), out);
                    self.next_leavers(p, Some((fs, ino)), out);
                }
            }
            Event::Reconnected => self.cache.refresh_all(),
            Event::Answered { p, asked, fs, op, answer } => {
                if usize::from(p.0) < self.parts.len() {
                    self.answered(p, asked, fs, op, answer, now, out);
                }
            }
            Event::Doubt { fs, op } => self.doubt(fs, op, now, out),
        }
    }

    fn part(&mut self, p: PartitionId) -> &mut Part {
        &mut self.parts[usize::from(p.0)]
    }

    fn is_of(&self, p: PartitionId, session: u64) -> bool {
        self.parts.get(usize::from(p.0)).is_some_and(|part| part.phase != Phase::Idle && part.session == session)
    }

    fn tick(&mut self, now: u64, out: &mut Vec<Effect>) {
        for p in (0..self.parts.len() as u16).map(PartitionId) {
            let part = self.part(p);
            if part.phase == Phase::Idle && part.wanted {
                self.begin(p, now, out);
            } else if part.phase != Phase::Idle && now >= part.hello_ms {
                self.say_hello(p, now, out);
            }
            self.overdue(p, now, out);
            self.unclaimed(p, now);
            self.give_back(p, 1, out);
        }
        self.doubts.tidy(now);
        self.cache.tidy();
    }

    /// A session that was not extended in time may have ended without a word: kernels forget what they were shown.
    fn overdue(&mut self, p: PartitionId, now: u64, out: &mut Vec<Effect>) {
        let part = self.part(p);
        if part.phase != Phase::Live || part.overdue || now < part.valid_until {
            return;
        }
        part.overdue = true;
        self.forget_shared(p, out);
        for (fs, ino) in self.cache.keys_of(p) {
            out.push(Effect::Forget { fs, ino, names: Vec::new() });
        }
    }

    fn wanted(&mut self, p: PartitionId, now: u64, out: &mut Vec<Effect>) {
        let Some(part) = self.parts.get_mut(usize::from(p.0)) else { return };
        part.wanted = true;
        if part.phase == Phase::Idle && part.session == 0 {
            self.begin(p, now, out);
        }
    }

    fn begin(&mut self, p: PartitionId, now: u64, out: &mut Vec<Effect>) {
        let part = self.part(p);
        (part.phase, part.session, part.valid_until) = (Phase::Beginning, part.session + 1, 0);
        self.say_hello(p, now, out);
    }

    fn say_hello(&mut self, p: PartitionId, now: u64, out: &mut Vec<Effect>) {
        let home = self.home;
        let part = self.part(p);
        part.hello_ms = now + RETRY_MS;
        let begin = part.phase == Phase::Beginning;
        out.push(Effect::Ask { p, session: part.session, body: Op::Hello { begin, home, open: Vec::new() } });
    }

    fn hello(&mut self, p: PartitionId, session: u64, sent_ms: u64, answer: &Answer, now: u64, out: &mut Vec<Effect>) {
        if !self.is_of(p, session) || answer.term < self.part(p).term {
            return;
        }
        let is_news = answer.term > self.part(p).term;
        self.saw_term(p, answer.term, out);
        let part = self.part(p);
        match &answer.result {
            // It was sent for an earlier term: whoever waits for the session would wait for the next attempt.
            Err(error) if error.kind() == ErrorKind::Moved && is_news => self.say_hello(p, now, out),
            Ok(Reply::Session { reassert: false }) => {
                (part.phase, part.overdue) = (Phase::Live, false);
                part.valid_until = part.valid_until.max(sent_ms + SESSION_VALID_MS);
                part.hello_ms = sent_ms + HEARTBEAT_MS;
            }
            Ok(Reply::Session { reassert: true }) => {
                part.phase = Phase::Live;
                part.hello_ms = now + RETRY_MS;
                if part.asserting.is_some_and(|(term, until)| term == part.term && now < until) {
                    return;
                }
                part.asserting = Some((part.term, now + ASSERT_MS));
                let holdings = self.holdings(p);
                out.push(Effect::Ask { p, session, body: Op::Reassert { holdings } });
            }
            _ => self.lost_if(p, session, answer, out),
        }
    }

    /// What is held in `p`. Shared leases are not named, so they are not held any more.
    fn holdings(&mut self, p: PartitionId) -> Holdings {
        let partitions = self.parts.len() as u16;
        let here = |key: &Key| key.1.partition(partitions) == p;
        let writes = self.cache.keys_of(p).into_iter().filter_map(|key| {
            let node = self.cache.node(key)?;
            (node.kind == LeaseKind::Exclusive).then_some((key.0, key.1, node.seq))
        });
        for (key, count) in self.borrowed.assert(here) {
            self.kept.opened(key, count);
        }
        Holdings { opens: self.kept.opens(here), writes: writes.collect(), locks: self.kept.locks(here) }
    }

    /// A higher term: what was read may be changed as soon as the new primary has heard of us.
    fn saw_term(&mut self, p: PartitionId, term: Term, out: &mut Vec<Effect>) {
        if term <= self.part(p).term {
            return;
        }
        let was = std::mem::replace(&mut self.part(p).term, term);
        if was != Term(0) {
            self.forget_shared(p, out);
            self.part(p).releases.clear();
            self.part(p).unclaimed.clear();
            self.part(p).hello_ms = 0;
        }
    }

    fn lost_if(&mut self, p: PartitionId, session: u64, answer: &Answer, out: &mut Vec<Effect>) {
        let is_lost = answer.result.as_ref().is_err_and(|error| error.kind() == ErrorKind::SessionLost);
        if is_lost && session > 0 && self.is_of(p, session) {
            self.lose(p, out);
        }
    }

    fn lose(&mut self, p: PartitionId, out: &mut Vec<Effect>) {
        let part = self.part(p);
        let session = part.session;
        (part.phase, part.asserting) = (Phase::Idle, None);
        part.releases.clear();
        part.leavers.clear();
        part.flushing.clear();
        part.unclaimed.clear();
        out.push(Effect::Lost { p, session });
        for (fs, ino) in self.cache.keys_of(p) {
            let names = self.cache.remove((fs, ino)).map_or(Vec::new(), |gone| gone.names);
            out.push(Effect::Forget { fs, ino, names });
        }
        let partitions = self.parts.len() as u16;
        let here = |key: &Key| key.1.partition(partitions) == p;
        self.kept.forget(here);
        self.borrowed.forget(here);
        self.programs.lose(here);
    }

    /// The client left.
    fn ended(&mut self, p: PartitionId) {
        if self.part(p).phase != Phase::Idle {
            self.lose(p, &mut Vec::new());
        }
        self.part(p).wanted = false;
    }

    fn pushed(&mut self, push: &Push, now: u64, out: &mut Vec<Effect>) {
        let p = push.from;
        if push.to != self.client || !self.is_of(p, push.session) || push.term < self.part(p).term {
            return;
        }
        self.saw_term(p, push.term, out);
        match push.body {
            PushBody::Recall { fs, ino, seq, keep } => self.recalled(p, (fs, ino), seq, keep, out),
            PushBody::Evicted => self.lose(p, out),
            PushBody::Reassert => self.say_hello(p, now, out),
            PushBody::Refresh { fs, ino } => self.cache.refresh((fs, ino)),
        }
    }

    #[expect(clippy::too_many_arguments, reason = "one event, taken apart")]
    fn answered(
        &mut self,
        p: PartitionId,
        asked: Asked,
        fs: FsId,
        op: &Op,
        answer: &Answer,
        now: u64,
        out: &mut Vec<Effect>,
    ) {
        let session = asked.session;
        if answer.term > self.part(p).term && self.part(p).phase != Phase::Idle {
            self.saw_term(p, answer.term, out);
        }
        self.lost_if(p, session, answer, out);
        self.count(p, asked, fs, op, &answer.result);
        self.bury(fs, op, &answer.result);
        if matches!((op, &answer.result), (Op::EndSession, Ok(_))) {
            self.ended(p);
        }
        let is_current = self.is_of(p, session) && self.part(p).phase == Phase::Live;
        let of_session = is_current || (self.mutation == Some(CoreMutation::StaleSession) && session > 0);
        let of_term = answer.term == self.part(p).term || self.mutation == Some(CoreMutation::StaleTerm);
        let mut taken = BTreeSet::new();
        if of_session && of_term {
            for grant in &answer.grants {
                if !self.doubts.is_about((fs, grant.ino), now) && self.cache.grant(p, fs, grant, asked.stamp) {
                    taken.insert(grant.ino);
                } else if self.cache.is_unclaimed(p, (fs, grant.ino), grant.seq) {
                    self.part(p).unclaimed.insert((fs, grant.ino), (grant.seq, now));
                } else if self.cache.node((fs, grant.ino)).is_none() {
                    // It is being given back: the sooner that is done, the sooner there is a new one.
                    self.give_back(p, 1, out);
                }
            }
            self.learn_names(fs, op, answer, &taken);
        }
        for ino in changed(op, &answer.result).into_iter().filter(|ino| !taken.contains(ino)) {
            self.changed_own((fs, ino), names_changed(op, ino), out);
        }
        for ino in refreshed(op, &answer.result).into_iter().filter(|ino| !taken.contains(ino)) {
            self.cache.refresh((fs, ino));
        }
        for _ in 0..EVICT_AT_ONCE.max(2 * answer.grants.len()) {
            let Some(key) = self.cache.oldest_over() else { break };
            self.leave(key, out);
        }
        self.give_back(p, leave::RELEASES_AT_ONCE / 2, out);
    }

    /// An own change about whose effect nothing was said: of content, or of these names in or of the inode.
    fn changed_own(&mut self, key: Key, names: Option<Vec<&[u8]>>, out: &mut Vec<Effect>) {
        self.cache.outdate(key.1);
        match names {
            Some(names) => self.cache.unsure_names(key, &names),
            None => self.leave(key, out),
        }
    }

    fn learn_names(&mut self, fs: FsId, op: &Op, answer: &Answer, taken: &BTreeSet<Ino>) {
        let version = |dir: Ino| {
            let grant = answer.grants.iter().find(|grant| grant.ino == dir && taken.contains(&dir));
            grant.map(|grant| grant.attr.change)
        };
        if let (Op::Readdir { dir, cookie, .. }, Ok(Reply::Entries { entries, end })) = (op, &answer.result) {
            let Some(version) = version(*dir) else { return };
            for entry in entries {
                self.cache.name(fs, *dir, &entry.name, Seen::Ino(entry.ino), version);
            }
            if *cookie == 0 && *end {
                self.cache.complete(fs, *dir, version);
            }
            self.cache.listed((fs, *dir), (*cookie, version), entries, *end);
            return;
        }
        let mut learn = |dir: Ino, name: &[u8], seen: Seen| {
            if let Some(version) = version(dir)
                && name != b".."
            {
                self.cache.name(fs, dir, name, seen, version);
            }
        };
        match (op, &answer.result) {
            (Op::Lookup { dir, name }, Ok(Reply::Entry { ino, .. })) => learn(*dir, name, Seen::Ino(*ino)),
            (Op::Lookup { dir, name }, Err(error)) if error.kind() == ErrorKind::NotFound => {
                learn(*dir, name, Seen::Nothing);
            }
            (Op::Create { dir, name, .. } | Op::Link { dir, name, .. }, Ok(Reply::Entry { ino, .. })) => {
                learn(*dir, name, Seen::Ino(*ino));
            }
            (Op::Unlink { dir, name, .. } | Op::Rmdir { dir, name }, Ok(_)) => learn(*dir, name, Seen::Nothing),
            (Op::Rename { from_dir, from, to_dir, to, mode }, Ok(Reply::Renamed { moved, other })) => {
                // Of two names of one file both stay, and the answer does not say so.
                let left = if *mode == RenameMode::Exchange { other.map(Seen::Ino) } else { None };
                learn(*from_dir, from, left.unwrap_or(Seen::Unknown));
                learn(*to_dir, to, Seen::Ino(*moved));
            }
            _ => {}
        }
    }
}
