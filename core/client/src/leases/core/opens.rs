//! Open references that the partition need not know of yet.

use braid_base::Result;
use braid_base::attr::FileType;
use braid_base::ids::{FsId, Ino, PartitionId};
use braid_base::msg::fs::{Op, Reply};
use braid_base::msg::lease::Release;

use super::{Core, CoreMutation};
use crate::leases::cache::Key;
use crate::leases::event::Asked;

/// Open references of a file that its partition must be told of now, under this session.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Owed {
    pub(crate) fs: FsId,
    pub(crate) ino: Ino,
    pub(crate) session: u64,
    pub(crate) count: u32,
}

impl Core {
    /// A program opens a file: true if that needs no word, because the lease on it will not go before the partition was
    /// told.
    pub fn borrow(&mut self, fs: FsId, ino: Ino, now: u64) -> bool {
        let is_named = |core: &Self| {
            let attr = core.attr(fs, ino, now);
            attr.is_some_and(|attr| attr.kind == FileType::File && attr.nlink > 0)
        };
        let is_taken = is_named(self) && self.borrowed.take((fs, ino));
        if is_taken {
            self.programs.opened((fs, ino), true);
        }
        is_taken
    }

    /// A program has a file open, with a reference that was had under `session`.
    pub(crate) fn had(&mut self, fs: FsId, ino: Ino, session: u64) {
        let is_current = self.is_of(self.home_of(ino), session);
        self.programs.opened((fs, ino), is_current);
    }

    /// A program closes a file: true if its partition need not hear of that.
    pub fn give(&mut self, fs: FsId, ino: Ino) -> bool {
        self.programs.closed((fs, ino)) || self.borrowed.give((fs, ino))
    }

    /// An answered operation opened or closed something, or locked it. What was had in a session that is over is gone.
    pub(super) fn count(&mut self, p: PartitionId, asked: Asked, fs: FsId, op: &Op, result: &Result<Reply>) {
        // What was had without a session is the next one's.
        let is_current = asked.session == 0 || self.is_of(p, asked.session);
        if is_current {
            self.kept.count(fs, op, result);
        }
        let opened = match (op, result) {
            // Else the partition was told of what a program has open already.
            (Op::Open { ino, .. }, Ok(_)) if !asked.fixed => *ino,
            (Op::Create { open: true, .. }, Ok(Reply::Entry { ino, .. })) => *ino,
            _ => return,
        };
        self.programs.opened((fs, opened), is_current);
    }

    /// This client is about to remove a name of `ino` (`None`: of an unknown file): until [`Self::removed`] says that this
    /// is over, no reference is had without a word.
    pub fn removing(&mut self, fs: FsId, ino: Option<Ino>) {
        self.borrowed.removing(ino.map(|ino| (fs, ino)));
    }

    /// It is done, or was not to be.
    pub fn removed(&mut self, fs: FsId, ino: Option<Ino>) {
        self.borrowed.removed(ino.map(|ino| (fs, ino)));
    }

    /// What partitions must be told of before a name is removed.
    pub(crate) fn owed_before_removal(&mut self, fs: FsId, ino: Ino) -> Vec<Owed> {
        if self.mutation == Some(CoreMutation::NamesBefore) {
            return Vec::new();
        }
        self.owed((fs, ino)).into_iter().collect()
    }

    /// True if there is a file that its partition was not told of, or is being told of.
    pub(crate) fn owes(&self, fs: FsId) -> bool {
        self.borrowed.any(|key| key.0 == fs)
    }

    /// What a partition must be told of before these leases are given back.
    pub(crate) fn owed_before_release(&mut self, leases: &[Release]) -> Vec<Owed> {
        if self.mutation == Some(CoreMutation::OpensAfter) {
            return Vec::new();
        }
        leases.iter().filter_map(|release| self.owed((release.fs, release.ino))).collect()
    }

    fn owed(&mut self, key: Key) -> Option<Owed> {
        let count = self.borrowed.say(key);
        let session = self.session(self.home_of(key.1));
        (count > 0).then_some(Owed { fs: key.0, ino: key.1, session, count })
    }

    /// The partition was told of `told` of them, the others are still owed: how many references to close there, because
    /// programs have meanwhile.
    pub(crate) fn said(&mut self, owed: &Owed, told: u32) -> u32 {
        // With a session all references went that it was asked for.
        let is_of = self.is_of(self.home_of(owed.ino), owed.session);
        if is_of { self.borrowed.said((owed.fs, owed.ino), owed.count, told) } else { 0 }
    }

    fn home_of(&self, ino: Ino) -> PartitionId {
        ino.partition(self.parts.len() as u16)
    }
}
