//! What a client keeps in its partitions beside leases: open references and locks, to be asserted again.

use std::collections::BTreeMap;

use braid_base::Result;
use braid_base::ids::{FsId, Ino};
use braid_base::msg::fs::{LockKind, LockSpec, Op, Reply};

use super::cache::Key;

/// Open references by inode, and locks as ranges that are held.
#[derive(Default)]
pub(super) struct Kept {
    opens: BTreeMap<Key, u32>,
    locks: BTreeMap<Key, Vec<LockSpec>>,
}

impl Kept {
    /// Open references, and how many.
    pub(super) fn opens(&self, here: impl Fn(&Key) -> bool) -> Vec<(FsId, Ino, u32)> {
        let opens = self.opens.iter().filter(|(key, _)| here(key));
        opens.map(|(key, count)| (key.0, key.1, *count)).collect()
    }

    /// Open references of one inode.
    pub(super) fn opens_of(&self, key: Key) -> u32 {
        self.opens.get(&key).copied().unwrap_or(0)
    }

    /// So many references more.
    pub(super) fn opened(&mut self, key: Key, count: u32) {
        *self.opens.entry(key).or_default() += count;
    }

    /// Locks.
    pub(super) fn locks(&self, here: impl Fn(&Key) -> bool) -> Vec<(FsId, Ino, LockSpec)> {
        let locks = self.locks.iter().filter(|(key, _)| here(key));
        locks.flat_map(|(key, locks)| locks.iter().map(|lock| (key.0, key.1, *lock))).collect()
    }

    /// These are gone.
    pub(super) fn forget(&mut self, gone: impl Fn(&Key) -> bool) {
        self.opens.retain(|key, _| !gone(key));
        self.locks.retain(|key, _| !gone(key));
    }

    /// True for operations that leave something kept: those and no others are counted.
    pub(super) fn is_about(op: &Op) -> bool {
        matches!(
            op,
            Op::Open { .. }
                | Op::Create { open: true, .. }
                | Op::Close { .. }
                | Op::Lock { .. }
                | Op::UnlockOwner { .. }
        )
    }

    /// An operation is about to be sent. What it gives up is not asserted any more, whatever becomes of the answer: it may
    /// be done by then, and another client may have had the lock since.
    pub(super) fn gives(&mut self, fs: FsId, op: &Op) {
        match op {
            Op::Lock { ino, lock, .. } if lock.kind == LockKind::Unlock => self.locked((fs, *ino), *lock),
            Op::Lock { ino, lock, .. } if lock.kind == LockKind::Read => self.weakened((fs, *ino), *lock),
            Op::Lock { ino, lock, wait: true } if lock.flock => self.unshared((fs, *ino), lock.owner),
            Op::UnlockOwner { ino, owner, flock } => self.locked((fs, *ino), whole(*owner, *flock)),
            _ => {}
        }
    }

    /// Who waits for more than a share of a flock gives the share up: others may have all of it meanwhile.
    fn unshared(&mut self, key: Key, owner: u64) {
        let is_share = |lock: &LockSpec| lock.owner == owner && lock.flock && lock.kind == LockKind::Read;
        if self.locks.get(&key).is_some_and(|held| held.iter().any(is_share)) {
            self.locked(key, whole(owner, true));
        }
    }

    /// What the owner of `lock` holds for itself in that range becomes shared.
    fn weakened(&mut self, key: Key, lock: LockSpec) {
        let asked = if lock.flock { LockSpec { start: 0, end: u64::MAX, ..lock } } else { lock };
        let held = self.locks.get(&key).cloned().unwrap_or_default();
        let own = |old: &LockSpec| old.owner == lock.owner && old.flock == lock.flock && old.kind == LockKind::Write;
        for old in held.into_iter().filter(own) {
            let (start, end) = (old.start.max(asked.start), old.end.min(asked.end));
            if start <= end {
                self.locked(key, LockSpec { start, end, kind: LockKind::Read, ..old });
            }
        }
    }

    /// An operation was answered.
    pub(super) fn count(&mut self, fs: FsId, op: &Op, result: &Result<Reply>) {
        let Ok(reply) = result else { return };
        if !Self::is_about(op) {
            return;
        }
        match (op, reply) {
            (Op::Open { ino, .. }, _) | (Op::Create { open: true, .. }, Reply::Entry { ino, .. }) => {
                self.opened((fs, *ino), 1);
            }
            (Op::Close { inos }, _) => inos.iter().for_each(|ino| self.closed((fs, *ino))),
            (Op::Lock { ino, lock, .. }, _) => self.locked((fs, *ino), *lock),
            (Op::UnlockOwner { ino, owner, flock }, _) => {
                self.locked((fs, *ino), whole(*owner, *flock));
            }
            _ => {}
        }
    }

    fn closed(&mut self, key: Key) {
        if let Some(count) = self.opens.get_mut(&key) {
            *count -= 1;
            if *count == 0 {
                self.opens.remove(&key);
            }
        }
    }

    /// A lock call replaces what its owner held in that range; what touches and is of one kind is one lock.
    fn locked(&mut self, key: Key, lock: LockSpec) {
        let mut lock = if lock.flock { LockSpec { start: 0, end: u64::MAX, ..lock } } else { lock };
        let list = self.locks.entry(key).or_default();
        for old in std::mem::take(list) {
            let is_own = old.owner == lock.owner && old.flock == lock.flock;
            let touches = old.start <= lock.end.saturating_add(1) && lock.start <= old.end.saturating_add(1);
            if is_own && touches && old.kind == lock.kind {
                (lock.start, lock.end) = (lock.start.min(old.start), lock.end.max(old.end));
                continue;
            }
            if !is_own || old.end < lock.start || lock.end < old.start {
                list.push(old);
                continue;
            }
            if old.start < lock.start {
                list.push(LockSpec { end: lock.start - 1, ..old });
            }
            if old.end > lock.end {
                list.push(LockSpec { start: lock.end + 1, ..old });
            }
        }
        if lock.kind != LockKind::Unlock {
            list.push(lock);
        }
        if list.is_empty() {
            self.locks.remove(&key);
        }
    }
}

/// All that `owner` holds is given up.
fn whole(owner: u64, flock: bool) -> LockSpec {
    LockSpec { owner, pid: 0, start: 0, end: u64::MAX, kind: LockKind::Unlock, flock }
}

#[cfg(test)]
mod tests {
    use braid_base::ErrorKind;
    use braid_base::ids::{ClientId, PartitionId, Term};
    use braid_base::msg::lease::{Answer, Push, PushBody};

    use super::*;
    use crate::leases::{Asked, Core, Effect, Event};

    fn held(calls: &[(LockKind, u64, u64)]) -> Vec<(LockKind, u64, u64)> {
        let mut kept = Kept::default();
        for (kind, start, end) in calls {
            let lock = LockSpec { owner: 7, pid: 1, start: *start, end: *end, kind: *kind, flock: false };
            kept.locked((FsId(1), Ino(2)), lock);
        }
        let mut held: Vec<_> =
            kept.locks.into_values().flatten().map(|lock| (lock.kind, lock.start, lock.end)).collect();
        held.sort_by_key(|lock| lock.1);
        held
    }

    #[test]
    fn locks_to_assert_are_what_is_held_and_not_what_was_asked() {
        use LockKind::{Read, Unlock, Write};
        assert_eq!(held(&[(Write, 0, 99), (Unlock, 10, 19)]), [(Write, 0, 9), (Write, 20, 99)]);
        assert_eq!(held(&[(Write, 0, 99), (Unlock, 10, 19), (Write, 10, 19)]), [(Write, 0, 99)]);
        assert_eq!(held(&[(Write, 0, 99), (Read, 50, 120)]), [(Write, 0, 49), (Read, 50, 120)]);
        assert_eq!(held(&[(Write, 5, u64::MAX), (Write, 0, 4)]), [(Write, 0, u64::MAX)]);
        assert_eq!(held(&[(Write, 5, 9), (Unlock, 0, u64::MAX)]), []);
    }

    #[test]
    fn what_is_being_given_up_is_not_asserted() {
        let mut kept = Kept::default();
        let (fs, ino) = (FsId(1), Ino(2));
        let lock = |start, end, kind| Op::Lock {
            ino,
            lock: LockSpec { owner: 7, pid: 1, start, end, kind, flock: false },
            wait: false,
        };
        let mut step = |op: Op, answered: bool| {
            kept.gives(fs, &op);
            if answered {
                kept.count(fs, &op, &Ok(Reply::Done));
            }
            let mut held: Vec<_> =
                kept.locks(|_| true).iter().map(|(_, _, lock)| (lock.kind, lock.start, lock.end)).collect();
            held.sort_by_key(|lock| lock.1);
            held
        };
        assert_eq!(step(lock(0, 99, LockKind::Write), false), [], "nobody has said that it is held");
        assert_eq!(step(lock(0, 99, LockKind::Write), true), [(LockKind::Write, 0, 99)]);
        let shared = [(LockKind::Write, 0, 9), (LockKind::Read, 10, 19), (LockKind::Write, 20, 99)];
        assert_eq!(step(lock(10, 19, LockKind::Read), false), shared);
        assert_eq!(step(lock(0, 49, LockKind::Unlock), false), [(LockKind::Write, 50, 99)]);
        assert_eq!(step(lock(90, 120, LockKind::Read), false), [(LockKind::Write, 50, 89), (LockKind::Read, 90, 99)]);
        assert_eq!(step(Op::UnlockOwner { ino, owner: 7, flock: false }, false), []);
    }

    #[test]
    fn a_share_of_a_flock_is_not_asserted_by_who_waits_for_more() {
        let (mut kept, fs, ino) = (Kept::default(), FsId(1), Ino(2));
        let lock = |kind, wait| {
            let lock = LockSpec { owner: 7, pid: 1, start: 0, end: 0, kind, flock: true };
            Op::Lock { ino, lock, wait }
        };
        let mut step = |op: Op, answered: bool| {
            kept.gives(fs, &op);
            if answered {
                kept.count(fs, &op, &Ok(Reply::Done));
            }
            kept.locks(|_| true).iter().map(|(_, _, lock)| lock.kind).collect::<Vec<_>>()
        };
        assert_eq!(step(lock(LockKind::Read, false), true), [LockKind::Read]);
        assert_eq!(step(lock(LockKind::Write, false), false), [LockKind::Read], "it is refused, or had");
        assert_eq!(step(lock(LockKind::Write, true), false), []);
        assert_eq!(step(lock(LockKind::Write, true), true), [LockKind::Write]);
        assert_eq!(step(lock(LockKind::Write, true), false), [LockKind::Write], "it has all of it");
        assert_eq!(step(lock(LockKind::Read, true), false), [LockKind::Read], "nothing is in the way of that");
    }

    #[test]
    fn an_answer_from_before_a_restart_does_not_count() {
        let p = PartitionId(0);
        let (mut core, mut out) = (Core::new(ClientId(1), 1, None), Vec::new());
        core.step(0, Event::Wanted(p), &mut out);
        let Some(Effect::Ask { session, .. }) = out.pop() else { panic!("a session is asked for") };
        let answer = |term, reply| Answer::plain(Term(term), Ok(reply));
        for term in [4, 5] {
            let hello = answer(term, Reply::Session { reassert: false });
            core.step(0, Event::Hello { p, session, sent_ms: 0, answer: &hello }, &mut out);
        }
        let lock = LockSpec { owner: 7, pid: 1, start: 0, end: 9, kind: LockKind::Write, flock: false };
        let lock = Op::Lock { ino: Ino(2), lock, wait: false };
        assert!(core.is_past(p, 1, &lock, &answer(4, Reply::Done)), "it was asserted without that lock");
        assert!([5, 6].iter().all(|term| !core.is_past(p, 1, &lock, &answer(*term, Reply::Done))));
        assert!(!core.is_past(p, 1, &Op::Sync { ino: Ino(2) }, &answer(4, Reply::Done)), "nothing is kept of it");
        let refused = Answer::plain(Term(4), Err(ErrorKind::WouldBlock.into()));
        assert!(!core.is_past(p, 1, &lock, &refused));
    }

    #[test]
    fn an_answer_from_a_session_that_is_over_does_not_count() {
        let (p, fs, ino) = (PartitionId(0), FsId(1), Ino(2));
        let (mut core, mut out) = (Core::new(ClientId(1), 1, None), Vec::new());
        core.step(0, Event::Wanted(p), &mut out);
        let answer = |reply| Answer::plain(Term(1), Ok(reply));
        let hello = answer(Reply::Session { reassert: false });
        core.step(0, Event::Hello { p, session: 1, sent_ms: 0, answer: &hello }, &mut out);
        let lock = LockSpec { owner: 7, pid: 1, start: 0, end: 9, kind: LockKind::Write, flock: false };
        let (open, lock) = (Op::Open { ino, truncate: false }, Op::Lock { ino, lock, wait: true });
        let asked = Asked { session: 1, fixed: false, stamp: 0 };
        let hears = |core: &mut Core, op: &Op| {
            core.step(0, Event::Answered { p, asked, fs, op, answer: &answer(Reply::Done) }, &mut Vec::new());
            (core.kept.opens_of((fs, ino)), core.kept.locks(|_| true).len())
        };
        assert!(!core.is_past(p, 1, &lock, &answer(Reply::Done)));
        assert_eq!((hears(&mut core, &open), hears(&mut core, &lock)), ((1, 0), (1, 1)));
        let evicted = Push { to: ClientId(1), session: 1, from: p, term: Term(1), body: PushBody::Evicted };
        core.step(0, Event::Pushed(evicted), &mut out);
        for _ in 0..2 {
            assert!(core.is_past(p, 1, &lock, &answer(Reply::Done)), "others may have it");
            assert_eq!((hears(&mut core, &open), hears(&mut core, &lock)), ((0, 0), (0, 0)));
            core.step(0, Event::Tick, &mut out); // the next session begins
        }
    }
}
