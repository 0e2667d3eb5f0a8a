//! File locks: `fcntl` byte ranges and `flock`, which do not see each other.
//!
//! Volatile: a restarted primary starts empty, and sessions re-assert their locks (`leases`). A lock that
//! must wait keeps its request's token; it is answered when the lock is had, given up or would deadlock.

mod table;

use std::collections::{BTreeMap, BTreeSet};

use braid_base::ids::{ClientId, FsId, Ino, OpId};
use braid_base::msg::fs::{LockKind, LockSpec, Reply, Request};
use braid_base::{Error, ErrorKind, Result};

use crate::dedup::Dedup;
use crate::event::Token;
use crate::ops::{Verdict, inode};
use crate::txn::Txn;
use table::{Owner, Table};

/// Most locked ranges of one file, and most requests that wait for one.
const PER_FILE_MAX: usize = 16_384;

/// All locks and who waits for one.
#[derive(Default)]
pub struct Locks {
    files: BTreeMap<(FsId, Ino), File>,
}

#[derive(Default)]
struct File {
    /// `fcntl`.
    ranges: Table,
    flocks: Table,
    /// In the order in which they came.
    waits: Vec<Wait>,
}

struct Wait {
    token: Token,
    op: OpId,
    lock: LockSpec,
}

impl Locks {
    /// Takes or gives up a lock. `WouldBlock` if another owner is in the way and `wait` is not set, `Deadlock` if
    /// waiting could never end.
    pub(crate) fn lock(
        &mut self,
        t: &mut Txn<'_>,
        token: Token,
        request: &Request,
        ino: Ino,
        lock: LockSpec,
        wait: bool,
    ) -> Result<Verdict> {
        inode::load(t, request.fs, ino)?;
        let lock = checked(lock)?;
        let (key, op, owner) = ((request.fs, ino), request.op, Owner(request.op.client, lock.owner));
        let file = self.files.entry(key).or_default();
        // A repeated request replaces the one that waits already.
        file.waits.retain(|waiting| waiting.op != op);
        if lock.kind != LockKind::Unlock && file.table(lock.flock).len() >= PER_FILE_MAX {
            return Err(Error::new(ErrorKind::NoSpace, format!("a file has at most {PER_FILE_MAX} locked ranges")));
        }
        if file.table(lock.flock).conflict(owner, &lock).is_none() {
            // Giving up or weakening a lock may let others have theirs.
            file.table(lock.flock).set(owner, lock);
            self.wake(t, key);
            return Ok(Reply::Done.into());
        }
        if !wait {
            return Err(Error::new(ErrorKind::WouldBlock, "someone else holds a lock on these bytes"));
        }
        if file.waits.len() >= PER_FILE_MAX {
            return Err(Error::new(ErrorKind::Busy, "too many wait for locks of this file; try again"));
        }
        if !lock.flock && self.would_deadlock(owner, key, &lock) {
            return Err(Error::new(ErrorKind::Deadlock, "the holder of the lock waits for a lock of this owner"));
        }
        let file = self.files.entry(key).or_default();
        if lock.flock {
            // flock converts by giving the old lock up first: two sharers who both want more do not block each other.
            file.flocks.set(owner, LockSpec { kind: LockKind::Unlock, ..lock });
        }
        file.waits.push(Wait { token, op, lock });
        self.wake(t, key);
        Ok(Verdict::Later)
    }

    /// Gives up waiting for the lock that operation `seq` of this client asked for. From here on that operation has an
    /// answer: if none yet, this one, also for a copy of it that comes later than its cancel, or waits for other clients.
    pub(crate) fn cancel(
        &mut self,
        t: &mut Txn<'_>,
        dedup: &Dedup,
        request: &Request,
        ino: Ino,
        seq: u64,
    ) -> Result<Reply> {
        let op = OpId { client: request.op.client, seq };
        let key = (request.fs, ino);
        if let Some(file) = self.files.get_mut(&key) {
            file.give_up(t, |wait| wait.op == op);
        }
        if matches!(dedup.find(t, op), Ok(None)) {
            t.answered(op, &Err(given_up()));
        }
        self.drop_if_free(key);
        Ok(Reply::Done)
    }

    /// The first lock that is in the way of `lock`.
    pub(crate) fn test(&mut self, request: &Request, ino: Ino, lock: LockSpec) -> Result<Reply> {
        let lock = checked(lock)?;
        let owner = Owner(request.op.client, lock.owner);
        let file = self.files.get_mut(&(request.fs, ino));
        Ok(Reply::Locked(file.and_then(|file| file.table(lock.flock).conflict(owner, &lock))))
    }

    /// All locks of `owner` on `ino` go.
    pub(crate) fn unlock_owner(
        &mut self,
        t: &mut Txn<'_>,
        request: &Request,
        ino: Ino,
        owner: u64,
        flock: bool,
    ) -> Result<Reply> {
        let key = (request.fs, ino);
        if let Some(file) = self.files.get_mut(&key) {
            let client = request.op.client;
            file.table(flock).remove(|held| held == Owner(client, owner));
            file.give_up(t, |wait| wait.op.client == client && wait.lock.owner == owner && wait.lock.flock == flock);
        }
        self.wake(t, key);
        Ok(Reply::Done)
    }

    /// Takes over a lock that `client` held under an earlier primary: nobody else can have it.
    pub(crate) fn restore(&mut self, client: ClientId, key: (FsId, Ino), lock: LockSpec) {
        if let Ok(lock) = checked(lock) {
            let file = self.files.entry(key).or_default();
            file.table(lock.flock).set(Owner(client, lock.owner), lock);
        }
    }

    /// The client's session ended: its locks go, and what it waits for.
    pub(crate) fn end(&mut self, t: &mut Txn<'_>, client: ClientId) {
        for file in self.files.values_mut() {
            file.ranges.remove(|held| held.0 == client);
            file.flocks.remove(|held| held.0 == client);
            file.give_up(t, |wait| wait.op.client == client);
        }
        let all: Vec<(FsId, Ino)> = self.files.keys().copied().collect();
        for key in all {
            self.wake(t, key);
        }
    }

    /// Grants what nothing is in the way of any more, in the order in which it was asked.
    fn wake(&mut self, t: &mut Txn<'_>, key: (FsId, Ino)) {
        let Some(file) = self.files.get_mut(&key) else { return };
        for wait in std::mem::take(&mut file.waits) {
            let owner = Owner(wait.op.client, wait.lock.owner);
            if file.table(wait.lock.flock).conflict(owner, &wait.lock).is_some() {
                file.waits.push(wait);
                continue;
            }
            file.table(wait.lock.flock).set(owner, wait.lock);
            t.answer(wait.token, wait.op, Ok(Reply::Done));
        }
        self.drop_if_free(key);
    }

    fn drop_if_free(&mut self, key: (FsId, Ino)) {
        let is_free = |file: &File| file.ranges.len() + file.flocks.len() + file.waits.len() == 0;
        if self.files.get(&key).is_some_and(is_free) {
            self.files.remove(&key);
        }
    }

    /// True if someone in the way of `lock` waits, over any number of others, for `owner`.
    fn would_deadlock(&self, owner: Owner, key: (FsId, Ino), lock: &LockSpec) -> bool {
        let mut seen = BTreeSet::new();
        let mut next = self.blockers(owner, key, lock);
        while let Some(blocker) = next.pop() {
            if blocker == owner {
                return true;
            }
            if !seen.insert(blocker) {
                continue;
            }
            for (at, file) in &self.files {
                for wait in file.waits.iter().filter(|wait| wait.is_of(blocker)) {
                    next.append(&mut self.blockers(blocker, *at, &wait.lock));
                }
            }
        }
        false
    }

    fn blockers(&self, owner: Owner, key: (FsId, Ino), lock: &LockSpec) -> Vec<Owner> {
        self.files.get(&key).map(|file| file.ranges.blockers(owner, lock)).unwrap_or_default()
    }
}

impl File {
    fn table(&mut self, flock: bool) -> &mut Table {
        if flock { &mut self.flocks } else { &mut self.ranges }
    }

    fn give_up(&mut self, t: &mut Txn<'_>, gone: impl Fn(&Wait) -> bool) {
        self.waits.retain(|wait| {
            let gone = gone(wait);
            if gone {
                t.answer(wait.token, wait.op, Err(given_up()));
            }
            !gone
        });
    }
}

fn given_up() -> Error {
    Error::new(ErrorKind::WouldBlock, "the wait for this lock was given up")
}

impl Wait {
    fn is_of(&self, owner: Owner) -> bool {
        !self.lock.flock && Owner(self.op.client, self.lock.owner) == owner
    }
}

/// A flock is on the whole file; a range does not end before it begins.
fn checked(lock: LockSpec) -> Result<LockSpec> {
    if lock.flock {
        return Ok(LockSpec { start: 0, end: u64::MAX, ..lock });
    }
    if lock.start > lock.end {
        let message = format!("a locked range begins at {} and ends before, at {}", lock.start, lock.end);
        return Err(Error::new(ErrorKind::Invalid, message));
    }
    Ok(lock)
}
