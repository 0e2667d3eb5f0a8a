//! Replies that leave together: those that one turn of the runtime finds.
//!
//! Each reply wakes the program that waits for it, which runs at once on the processor of whoever replied, finds one
//! answer, and asks one thing. Many replies with one call of the kernel wake it once. So the reply of a task of the
//! runtime waits until those that are ready have had their turn, if somebody else waits for one, too (decision 49).
//!
//! Only the data of reads, that something was written, and that it lasts: no names, and no attributes that the kernel
//! would believe although a notice came in between.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::{Mutex, MutexGuard, PoisonError};

use super::abi::OUT_HEADER_BYTES;
use super::reply::{header_of, write_whole};
use super::writes::{WRITES_MAX, Writes};

/// Longer replies leave by themselves, bytes: they are copied here.
pub(crate) const TOGETHER_BYTES_MAX: usize = 16 << 10;

/// The replies of one mount.
pub(crate) struct Together {
    waiting: Mutex<Replies>,
    leaving: Mutex<Leaving>,
}

#[derive(Default)]
struct Replies {
    bytes: Vec<u8>,
    list: Vec<Waiting>,
}

/// A reply, and where it lies.
#[derive(Clone, Copy)]
struct Waiting {
    unique: u64,
    reader: usize,
    at: usize,
    len: usize,
}

struct Leaving {
    writes: Writes,
    /// None, and room for those that come next.
    replies: Replies,
}

/// What is to be done after a reply was added.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Then {
    /// It is the first: have [`Together::leave`] called when others had their turn.
    Soon,
    /// Nothing: somebody will.
    Nothing,
    /// No more fit: now.
    Now,
}

impl Together {
    /// Errors: no io_uring for this process.
    pub(crate) fn new() -> io::Result<Self> {
        let leaving = Leaving { writes: Writes::new()?, replies: Replies::default() };
        Ok(Self { waiting: Mutex::default(), leaving: Mutex::new(leaving) })
    }

    /// Whether a reply waits already.
    pub(crate) fn has_some(&self) -> bool {
        !lock(&self.waiting).list.is_empty()
    }

    /// Adds the reply to request `unique` of `reader`.
    pub(crate) fn add(&self, reader: usize, unique: u64, body: &[u8]) -> Then {
        let mut waiting = lock(&self.waiting);
        let (at, len) = (waiting.bytes.len(), OUT_HEADER_BYTES + body.len());
        waiting.bytes.extend_from_slice(&header_of(unique, 0, len));
        waiting.bytes.extend_from_slice(body);
        waiting.list.push(Waiting { unique, reader, at, len });
        match waiting.list.len() {
            1 => Then::Soon,
            n if n < WRITES_MAX => Then::Nothing,
            _ => Then::Now,
        }
    }

    /// Gives the kernel all that wait, each on one of `files`, and tells `ended` how it took each: its reader, its number
    /// and its bytes.
    pub(crate) fn leave(&self, files: &[OwnedFd], mut ended: impl FnMut(usize, u64, &[u8], io::Result<usize>)) {
        let mut leaving = lock(&self.leaving);
        let Leaving { writes, replies } = &mut *leaving;
        std::mem::swap(&mut *lock(&self.waiting), replies);
        let pieces: Vec<(BorrowedFd<'_>, &[u8])> = replies
            .list
            .iter()
            .map(|reply| (files[reply.reader].as_fd(), &replies.bytes[reply.at..reply.at + reply.len]))
            .collect();
        for (pieces, list) in pieces.chunks(WRITES_MAX).zip(replies.list.chunks(WRITES_MAX)) {
            let mut tell = |at: usize, result| {
                ended(list[at].reader, list[at].unique, pieces[at].1, result);
            };
            match pieces {
                [(file, bytes)] => tell(0, write_whole(file, bytes)),
                // What a ring cannot do may be done all the same.
                _ => writes.write(pieces, |at, result| {
                    tell(at, result.or_else(|_| write_whole(pieces[at].0, pieces[at].1)));
                }),
            }
        }
        replies.bytes.clear();
        replies.list.clear();
    }
}

impl std::fmt::Debug for Together {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Together").finish_non_exhaustive()
    }
}

fn lock<T>(of: &Mutex<T>) -> MutexGuard<'_, T> {
    // Whatever happened, those that wait have to leave.
    of.lock().unwrap_or_else(PoisonError::into_inner)
}
