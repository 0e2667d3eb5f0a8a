//! Requests about open files and what is in them.

use std::sync::Arc;

use super::{Door, answer, open_flags};
use crate::calls::Calls;
use crate::wire::abi;
use crate::wire::encode::Body;
use crate::wire::reply::Reply;
use crate::wire::request::{Fh, Header, Node};
use crate::{task, tier};

/// Bytes that a request may touch on the thread that answers it: checking and copying these costs about as much as
/// a switch to another thread.
const STEP_BYTES: u32 = 64 << 10;

impl Door {
    pub(super) fn open(&self, header: &Header, flags: i32, reply: Reply) {
        let (ino, flags) = (self.calls.numbers.inode(header.node), self.calls.flags(flags));
        let work = move |calls: Arc<Calls>| async move { calls.open(ino, flags).await };
        let (calls, runtime) = (Arc::clone(&self.calls), self.runtime.clone());
        self.start(reply, work, move |reply, (_, keep)| {
            let fh = calls.describe(ino);
            Self::hand_over(calls, &runtime, (ino, fh), reply, &Body::new().opened(fh, open_flags(flags, keep)));
        });
    }

    pub(super) fn opendir(&self, header: &Header, reply: Reply) {
        let fh = self.calls.describe(self.calls.numbers.inode(header.node));
        if !reply.hand_over(Ok(Body::new().opened(fh, 0).bytes())) {
            self.calls.undescribe(fh);
        }
    }

    pub(super) fn releasedir(&self, fh: Fh, reply: Reply) {
        self.calls.undescribe(fh);
        reply.ok();
    }

    pub(super) fn read(&self, header: &Header, off: u64, size: u32, reply: Reply) {
        let (ino, calls) = (self.calls.numbers.inode(header.node), Arc::clone(&self.calls));
        let work = async move {
            match calls.read(ino, off, size.into()).await {
                Ok(data) => reply.together(&data),
                Err(errno) => return reply.error(errno),
            }
            calls.after_read(ino).await;
        };
        if size <= STEP_BYTES {
            task::start(&self.runtime, work);
        } else {
            self.runtime.spawn(work);
        }
    }

    pub(super) fn flush(&self, header: &Header, fh: Fh, owner: u64, reply: Reply) {
        let ino = self.calls.numbers.inode(header.node);
        if self.calls.sync_on_close {
            return self.start_empty(reply, move |calls| async move {
                let written = calls.fsync(ino, fh).await;
                if calls.owners.leaves(ino, owner) {
                    calls.leave_locks(ino, fh, owner).await?;
                }
                written
            });
        }
        let written = self.calls.written_well(ino, fh);
        if !self.calls.owners.leaves(ino, owner) {
            return match written {
                Ok(()) => reply.ok(),
                Err(errno) => reply.error(errno),
            };
        }
        self.start_empty(reply, |calls| async move {
            calls.leave_locks(ino, fh, owner).await?;
            written
        });
    }

    pub(super) fn release(&self, header: &Header, fh: Fh, (owner, flags): (u64, u32), reply: Reply) {
        let ino = self.calls.numbers.inode(header.node);
        let flock = (flags & abi::RELEASE_FLOCK_UNLOCK != 0).then_some((owner, true));
        let left = self.calls.owners.closes(ino, fh).into_iter().map(|owner| (owner, false));
        let gone: Vec<(u64, bool)> = flock.into_iter().chain(left).collect();
        let closes = (!gone.is_empty()).then(|| self.calls.closes.begin(ino));
        self.start_empty(reply, |calls| async move {
            let mut unlocked = Ok(());
            for (owner, flock) in gone {
                unlocked = unlocked.and(calls.unlock_all(ino, owner, flock).await);
            }
            drop(closes);
            calls.close(ino, fh).await.and(unlocked)
        });
        if self.calls.departs(ino) {
            let calls = Arc::clone(&self.calls);
            self.runtime.spawn(async move { tier::send_away(&calls.fs, ino).await });
        }
    }

    pub(super) fn fsync(&self, header: &Header, fh: Fh, reply: Reply) {
        let ino = self.calls.numbers.inode(header.node);
        self.start(reply, |calls| async move { calls.fsync(ino, fh).await }, |reply, ()| reply.together(&[]));
    }

    pub(super) fn fallocate(&self, header: &Header, (off, len): (u64, u64), mode: i32, reply: Reply) {
        let (ino, uid) = (self.calls.numbers.inode(header.node), header.uid);
        self.start_empty(reply, |calls| async move { calls.fallocate(ino, off, len, mode, uid).await });
    }

    pub(super) fn lseek(&self, header: &Header, off: i64, whence: i32, reply: Reply) {
        let ino = self.calls.numbers.inode(header.node);
        let work = |calls: Arc<Calls>| async move { calls.lseek(ino, off, whence).await };
        self.start(reply, work, |reply, at: i64| reply.body(&Body::new().offset(at as u64)));
    }

    /// `wide`: the reply counts bytes in 64 bits.
    pub(super) fn copy_range(
        &self,
        header: &Header,
        from_off: u64,
        to: (Node, u64),
        len: u64,
        wide: bool,
        reply: Reply,
    ) {
        let (numbers, uid) = (self.calls.numbers, header.uid);
        let (from, to) = ((numbers.inode(header.node), from_off), (numbers.inode(to.0), to.1));
        let calls = Arc::clone(&self.calls);
        let work = async move { calls.copy(from, to, len, uid).await };
        // It touches many bytes: not on the thread that answers.
        self.runtime.spawn(answer(reply, work, move |reply, len: u32| {
            let body = Body::new();
            reply.body(&if wide { body.offset(len.into()) } else { body.size(len) });
        }));
    }
}
