//! Changes that may take effect without anybody knowing.
//!
//! A partition recalls a lease for what others change, not for what its holder does: a change whose answer never came
//! would make what is remembered wrong in silence. So nothing is remembered of what it may touch until it cannot take
//! effect any more. What that is, a change of an inode or a new name says; which inode loses or moves a name that is
//! removed then, nobody knows.

use braid_base::ids::{FsId, Ino, PartitionId};
use braid_base::limits::DOUBT_MS;
use braid_base::msg::fs::Op;

use super::Core;
use crate::leases::cache::Key;
use crate::leases::event::Effect;

impl Core {
    /// What `op` may touch is given back, and not taken again for a while.
    pub(super) fn doubt(&mut self, fs: FsId, op: &Op, now: u64, out: &mut Vec<Effect>) {
        let touched = touched(op).map(|inos| inos.into_iter().map(|ino| (fs, ino)).collect::<Vec<Key>>());
        if !self.doubts.add(touched.as_deref(), now + DOUBT_MS) {
            for key in self.cache.keys() {
                self.leave(key, out);
            }
            (0..self.parts.len() as u16).for_each(|p| self.give_back(PartitionId(p), 1, out));
            return;
        }
        for key in touched.into_iter().flatten() {
            self.leave(key, out);
            self.give_back(key.1.partition(self.parts.len() as u16), 1, out);
        }
    }
}

/// The inodes that a change can touch, whenever it takes effect; `None`: it may be any.
fn touched(op: &Op) -> Option<Vec<Ino>> {
    match op {
        Op::SetAttr { ino, .. }
        | Op::Open { ino, .. }
        | Op::Write { ino, .. }
        | Op::CommitWrite { ino, .. }
        | Op::Fallocate { ino, .. }
        | Op::SetXattr { ino, .. }
        | Op::RemoveXattr { ino, .. } => Some(vec![*ino]),
        Op::Accessed { files } => Some(files.iter().map(|(ino, _)| *ino).collect()),
        // Nobody has heard of what it makes.
        Op::Create { dir, .. } => Some(vec![*dir]),
        Op::Link { dir, ino, .. } => Some(vec![*dir, *ino]),
        _ => None,
    }
}
