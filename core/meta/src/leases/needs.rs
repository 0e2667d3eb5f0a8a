//! What each operation does to which inode, in one place: what it conflicts with, and what its answer shows.
//!
//! | use | in its way |
//! |---|---|
//! | look at an inode, or at names in a directory | an exclusive lease of another client: changes may be held back there |
//! | change an inode, or a name in a directory | every lease of another client on it |
//! | lock | no lease; only clients that have not re-asserted their locks |
//!
//! A directory's names and attributes change together, so a name is covered by its directory. What an operation across
//! partitions looks at and changes elsewhere is seen to there (`super::may_look`, `super::may_change`).

use braid_base::Result;
use braid_base::attr::FileType;
use braid_base::ids::Ino;
use braid_base::msg::fs::{Op, Reply, Request};
use braid_base::msg::lease::LeaseKind;

use crate::ops::dentry;
use crate::txn::Txn;

/// What an operation does with an inode.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Use {
    /// Shows its content, size or times, or names in it.
    Look,
    /// Changes it.
    Change,
    /// Locks it.
    Lock,
}

/// An inode and what is done with it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Need {
    pub(crate) ino: Ino,
    pub(crate) how: Use,
}

/// What the request does, here or elsewhere.
pub(super) fn of_request(t: &Txn<'_>, request: &Request) -> Result<Vec<Need>> {
    let fs = request.fs;
    let change = |ino: Ino| Need { ino, how: Use::Change };
    let look = |ino: Ino| Need { ino, how: Use::Look };
    let named = |dir: Ino, name: &[u8]| -> Result<Option<Need>> {
        if dir.partition(t.partitions) != t.partition {
            return Ok(None);
        }
        Ok(dentry::find(t, fs, dir, name)?.map(|found| change(found.entry.ino)))
    };
    Ok(match &request.body {
        Op::GetAttr { ino } | Op::Layout { ino, .. } | Op::NextData { ino, .. } | Op::Sync { ino } => vec![look(*ino)],
        Op::Open { ino, truncate: false } => vec![look(*ino)],
        Op::Lookup { dir, .. } | Op::Readdir { dir, .. } => vec![look(*dir)],
        Op::AskLease { ino, kind: LeaseKind::Shared } => vec![look(*ino)],
        // An access time that moves is nothing that anybody waits for: those who remember the old one ask again.
        Op::SetAttr { set, .. } if set.access_only => Vec::new(),
        Op::SetAttr { ino, .. }
        | Op::Open { ino, truncate: true }
        | Op::Write { ino, .. }
        | Op::CommitWrite { ino, .. }
        | Op::Fallocate { ino, .. }
        | Op::SetXattr { ino, .. }
        | Op::RemoveXattr { ino, .. }
        | Op::AskLease { ino, kind: LeaseKind::Exclusive } => vec![change(*ino)],
        Op::Create { dir, .. } => vec![change(*dir)],
        Op::Link { ino, dir, .. } => vec![change(*dir), change(*ino)],
        Op::Unlink { dir, name, .. } | Op::Rmdir { dir, name } => {
            std::iter::once(change(*dir)).chain(named(*dir, name)?).collect()
        }
        Op::Rename { from_dir, from, to_dir, to, .. } => {
            let both = [change(*from_dir), change(*to_dir)];
            both.into_iter().chain(named(*from_dir, from)?).chain(named(*to_dir, to)?).collect()
        }
        Op::Lock { ino, .. } | Op::TestLock { ino, .. } => vec![Need { ino: *ino, how: Use::Lock }],
        Op::Accessed { .. }
        | Op::Readlink { .. }
        | Op::Close { .. }
        | Op::ReadStage { .. }
        | Op::ReadObject { .. }
        | Op::Residency { .. }
        | Op::Tier { .. }
        | Op::GetSpace { .. }
        | Op::GetXattr { .. }
        | Op::ListXattr { .. }
        | Op::CancelLock { .. }
        | Op::UnlockOwner { .. }
        | Op::Statfs
        | Op::MakeRoot { .. }
        | Op::EndSession
        | Op::Hello { .. }
        | Op::Reassert { .. }
        | Op::ReleaseLease { .. } => Vec::new(),
    })
}

/// The inodes whose state the answer shows, and the lease that is given on each: a change is told to the client that
/// made it, so that what it remembers stays true.
pub(super) fn shown(request: &Request, asked: &Result<Reply>) -> Vec<(Ino, LeaseKind)> {
    let shared = |ino: Ino| (ino, LeaseKind::Shared);
    let alone_if = |alone: bool, ino: Ino| (ino, if alone { LeaseKind::Exclusive } else { LeaseKind::Shared });
    let Ok(reply) = asked else {
        // That a name is not there is worth remembering.
        return match &request.body {
            Op::Lookup { dir, .. } => vec![shared(*dir)],
            _ => Vec::new(),
        };
    };
    match (&request.body, reply) {
        (Op::Accessed { files }, _) => files.iter().map(|(ino, _)| shared(*ino)).collect(),
        (Op::AskLease { ino, kind }, _) => vec![(*ino, *kind)],
        (Op::Create { dir, kind, open, want, .. }, Reply::Entry { ino, .. }) => {
            let own = if *open && *kind == FileType::File { LeaseKind::Exclusive } else { LeaseKind::Shared };
            vec![alone_if(*want > 0, *dir), (*ino, own)]
        }
        (Op::Lookup { dir, .. }, Reply::Entry { ino, attr, .. }) => {
            let target = attr.as_ref().map(|_| shared(*ino));
            std::iter::once(shared(*dir)).chain(target).collect()
        }
        (Op::Link { dir, .. }, Reply::Entry { ino, .. }) => vec![shared(*dir), shared(*ino)],
        (Op::Unlink { dir, alone, .. }, Reply::Unlinked { ino }) => vec![alone_if(*alone, *dir), shared(*ino)],
        (Op::Rmdir { dir, .. }, Reply::Unlinked { ino }) => vec![shared(*dir), shared(*ino)],
        (Op::Rename { from_dir, to_dir, .. }, Reply::Renamed { moved, other }) => {
            let dirs = if from_dir == to_dir { vec![*from_dir] } else { vec![*from_dir, *to_dir] };
            dirs.into_iter().chain([*moved]).chain(*other).map(shared).collect()
        }
        (Op::Readdir { dir, .. }, Reply::Entries { entries, .. }) => {
            let with_attrs = entries.iter().filter(|entry| entry.attr.is_some()).map(|entry| entry.ino);
            std::iter::once(*dir).chain(with_attrs).map(shared).collect()
        }
        (
            Op::GetAttr { ino }
            | Op::SetAttr { ino, .. }
            | Op::Open { ino, .. }
            | Op::Write { ino, .. }
            | Op::CommitWrite { ino, .. }
            | Op::Layout { ino, .. }
            | Op::Fallocate { ino, .. }
            | Op::SetXattr { ino, .. }
            | Op::RemoveXattr { ino, .. },
            _,
        ) => vec![shared(*ino)],
        _ => Vec::new(),
    }
}

/// The directory whose names the answer shows: who has it for itself gets files found in it the same way.
pub(super) fn named_in(body: &Op) -> Option<Ino> {
    match body {
        Op::Lookup { dir, .. } | Op::Readdir { dir, .. } | Op::Create { dir, .. } => Some(*dir),
        _ => None,
    }
}

/// The directory that the client would like to have for itself, and how many inode numbers to lend for it.
pub(super) fn wanted(body: &Op) -> Option<(Ino, u16)> {
    match body {
        Op::Create { dir, want, .. } if *want > 0 => Some((*dir, *want)),
        Op::Unlink { dir, alone: true, .. } => Some((*dir, 0)),
        // Its numbers are those that were kept with it.
        Op::AskLease { ino, kind: LeaseKind::Exclusive } => Some((*ino, 0)),
        _ => None,
    }
}
