//! What this client has for itself, and may change without a word.

use braid_base::Result;
use braid_base::attr::{Attr, FileType};
use braid_base::ids::{FsId, Ino};
use braid_base::msg::fs::{Op, Reply};
use braid_base::msg::lease::LeaseKind;

use super::Core;
use crate::leases::cache::Node;

impl Core {
    /// What it takes to make a name in `dir` without a word: the directory for this client alone, its attributes, the
    /// session, whether there is room for small files. `is_free`: who asks knows that there is no such name; else that must be certain here.
    pub fn may_make(&self, fs: FsId, dir: Ino, name: &[u8], is_free: bool, now: u64) -> Option<(Attr, u64, bool)> {
        let session = self.alone(fs, dir, now)?;
        let is_free = is_free || self.cache.find(fs, dir, name) == Some(None);
        let attr = self.cache.attr((fs, dir)).filter(|attr| is_free && attr.kind == FileType::Directory)?;
        Some((attr.clone(), session, self.cache.node((fs, dir))?.is_roomy))
    }

    /// What `name` stands for, if it can be removed without a word: a file with that name only, in the directory's
    /// partition, and both for this client alone; and the session.
    pub fn may_remove(&self, fs: FsId, dir: Ino, name: &[u8], now: u64) -> Option<(Attr, u64)> {
        let session = self.alone(fs, dir, now)?;
        let ino = self.cache.find(fs, dir, name)??;
        self.alone(fs, ino, now)?;
        let attr = self.cache.attr((fs, ino))?;
        let partitions = self.parts.len() as u16;
        let is_simple = attr.kind != FileType::Directory && attr.nlink == 1;
        (is_simple && ino.partition(partitions) == dir.partition(partitions)).then(|| (attr.clone(), session))
    }

    /// The same of an empty directory, in whichever partition: one that this client has for itself, too, of which all names
    /// are known, and `is_gone` says of each that it is not there any more.
    pub fn may_remove_dir(
        &self,
        fs: FsId,
        (dir, name): (Ino, &[u8]),
        now: u64,
        is_gone: impl Fn(Ino, &[u8]) -> bool,
    ) -> Option<(Attr, u64)> {
        let session = self.alone(fs, dir, now)?;
        let ino = self.cache.find(fs, dir, name)??;
        self.alone(fs, ino, now)?;
        let attr = self.cache.attr((fs, ino)).filter(|attr| attr.kind == FileType::Directory)?;
        let is_empty = self.cache.node((fs, ino))?.is_emptied(|name| is_gone(ino, name));
        is_empty.then(|| (attr.clone(), session))
    }

    /// A number for a file in `dir`, which nobody else gets.
    pub fn take_number(&mut self, fs: FsId, dir: Ino) -> Option<Ino> {
        self.cache.take_number((fs, dir))
    }

    /// The session under whose exclusive lease `ino` is held now.
    fn alone(&self, fs: FsId, ino: Ino, now: u64) -> Option<u64> {
        let partition = self.cache.node((fs, ino))?.partition;
        self.lease(fs, ino, now).filter(|kind| *kind == LeaseKind::Exclusive).map(|_| self.session(partition))
    }

    /// What has neither a name nor an open reference any more is gone, and its lease is worth nothing.
    pub(super) fn bury(&mut self, fs: FsId, op: &Op, result: &Result<Reply>) {
        let of: &[Ino] = match (op, result) {
            (Op::Unlink { .. }, Ok(Reply::Unlinked { ino })) => {
                if let Some(node) = self.cache.node_mut((fs, *ino)) {
                    node.nameless = node.is_last_name();
                }
                &[*ino]
            }
            (Op::Close { inos }, Ok(_)) => inos,
            _ => return,
        };
        for key in of.iter().map(|ino| (fs, *ino)) {
            let is_gone = |node: &Node| node.nameless && node.leaving.is_none();
            if self.cache.node(key).is_some_and(is_gone)
                && self.kept.opens_of(key) == 0
                && let Some(gone) = self.cache.remove(key)
            {
                self.part(gone.partition).releases.push(gone.release);
            }
        }
    }
}
