//! Sessions and leases: what a partition lets a client remember, and how it takes that back (design 5.4).
//!
//! A session is a client's stay in one partition. The client chooses its number, from 1 and never again; requests
//! name it. A lease is on one inode. Grants come with the answers to requests; recalls are pushed.
//!
//! Three numbers keep late, doubled and overtaken messages harmless: the partition's term, the session, and the
//! lease's `seq`, which grows with every new lease, over all terms. A client drops a grant of an older term or session, or
//! whose `seq` it has seen recalled or has released itself.

use crate::attr::Attr;
use crate::error::{Error, Result};
use crate::ids::{ClientId, FsId, Ino, PartitionId, Term};
use crate::msg::fs::{FsResult, LockSpec, Reply};

/// What a lease allows. (An open reference, O in the design, is counted by `Open` and `Close` and needs no recall.)
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum LeaseKind {
    /// R and D: to answer from memory what was read: attributes, layout and content of a file; names, names that are
    /// not there, and attributes of a directory. Many clients may hold it.
    Shared = 1,
    /// W: besides, to hold changes back: content, size and times of a file; names in a directory. One client, and nobody
    /// else holds anything.
    Exclusive = 2,
}

/// A lease, said again with every answer that shows its inode.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Grant {
    /// The inode, of the file system that the request named.
    pub ino: Ino,
    /// What is allowed.
    pub kind: LeaseKind,
    /// The number of the lease.
    pub seq: u64,
    /// The inode as it is when the answer's operation is done. A name seen in a directory is as new as the `change`
    /// of that directory's attributes here.
    pub attr: Attr,
    /// A directory without entries: whoever holds the lease knows all its names from here on.
    pub empty: bool,
    /// Of a directory under an exclusive lease: inode numbers that nobody else gets, for files that the client makes in
    /// it. Those that it does not use are never used.
    pub numbers: Numbers,
    /// Of a directory under an exclusive lease: the file system has room for what the client writes into small files in it
    /// without asking.
    pub roomy: bool,
}

/// Inode numbers that follow each other.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Numbers {
    /// The first.
    pub first: Ino,
    /// How many.
    pub count: u16,
}

/// What a partition sends back.
#[derive(Clone, Debug)]
pub struct Answer {
    /// The partition's term.
    pub term: Term,
    /// Leases that the client of the request holds now.
    pub grants: Vec<Grant>,
    /// The answer proper.
    pub result: FsResult,
}

/// A lease given back, or part of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Release {
    /// The file system.
    pub fs: FsId,
    /// The inode.
    pub ino: Ino,
    /// All leases on it up to this number.
    pub seq: u64,
    /// What is kept: `Shared` after an exclusive one, or nothing.
    pub keep: Option<LeaseKind>,
}

/// What a client holds in a partition whose primary is new.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Holdings {
    /// Open references and how many.
    pub opens: Vec<(FsId, Ino, u32)>,
    /// Exclusive leases and their numbers. Shared ones are not asserted: what was read under them is dropped instead.
    pub writes: Vec<(FsId, Ino, u64)>,
    /// Locks.
    pub locks: Vec<(FsId, Ino, LockSpec)>,
}

/// Partition -> client, without being asked. May be lost, late, doubled, or overtake an answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Push {
    /// For whom.
    pub to: ClientId,
    /// For which session of that client.
    pub session: u64,
    /// Who says it.
    pub from: PartitionId,
    /// In which term.
    pub term: Term,
    /// What.
    pub body: PushBody,
}

/// What a partition tells a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PushBody {
    /// Give the lease back (`keep` nothing), or all but this of it: write what was held back, forget, then send
    /// `ReleaseLease`. Repeated until that came.
    Recall {
        /// The file system.
        fs: FsId,
        /// The inode.
        ino: Ino,
        /// All leases on it up to this number.
        seq: u64,
        /// What may be kept.
        keep: Option<LeaseKind>,
    },
    /// The session has ended: what was held under it is gone.
    Evicted,
    /// The primary is new and asks for `Reassert`.
    Reassert,
    /// The inode changed in a way that nobody has to wait for, such as how much room it takes: its attributes should be
    /// asked for anew. Nothing is given back, and nothing comes of it if this is lost.
    Refresh {
        /// The file system.
        fs: FsId,
        /// The inode.
        ino: Ino,
    },
}

impl Answer {
    /// An answer without leases.
    pub fn plain(term: Term, result: FsResult) -> Self {
        Self { term, grants: Vec::new(), result }
    }
}

impl From<FsResult> for Answer {
    /// An answer of nobody in particular: a message that could not be sent.
    fn from(result: FsResult) -> Self {
        Self::plain(Term(0), result)
    }
}

impl From<Error> for Answer {
    fn from(error: Error) -> Self {
        Err(error).into()
    }
}

impl From<Reply> for Answer {
    fn from(reply: Reply) -> Self {
        Ok(reply).into()
    }
}

impl LeaseKind {
    /// The kind of this number on the wire.
    pub fn from_u8(number: u8) -> Result<Self> {
        match number {
            1 => Ok(Self::Shared),
            2 => Ok(Self::Exclusive),
            other => {
                let text = format!("expected a lease kind of 1 or 2, found {other}");
                Err(Error::new(crate::ErrorKind::Corrupt, text))
            }
        }
    }
}
