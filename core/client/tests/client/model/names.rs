//! Inodes and names of the model.

use std::collections::BTreeMap;

use braid_base::attr::{Attr, FileType, SetAttr, SetTime, Time};
use braid_base::ids::{Ino, PartitionId};
use braid_base::msg::fs::{Cred, DirEntry, FsResult, Op, RenameMode, Reply, XattrMode};
use braid_base::record::Extent;
use braid_base::{ErrorKind, Result};

use super::server::State;

#[derive(Clone, Debug, Default)]
pub struct Node {
    pub attr: Attr,
    pub parent: Ino,
    pub target: Vec<u8>,
    pub xattrs: BTreeMap<Vec<u8>, Vec<u8>>,
    pub names: BTreeMap<Vec<u8>, (Ino, u64)>,
    pub extents: Vec<(u64, Extent)>,
    pub opens: u32,
}

impl State {
    pub fn touch(&mut self, ino: Ino) -> Result<&mut Attr> {
        let now = Time { sec: self.time, nsec: 5 };
        let attr = &mut self.node(ino)?.attr;
        (attr.mtime, attr.ctime) = (now, now);
        attr.change += 1;
        Ok(attr)
    }

    pub fn setattr(&mut self, ino: Ino, set: &SetAttr) -> Result<Attr> {
        let now = Time { sec: self.time, nsec: 7 };
        let pick = |time: SetTime| match time {
            SetTime::To(time) => time,
            SetTime::Now => now,
        };
        if let Some(size) = set.size {
            self.cut(ino, size)?;
        }
        let attr = &mut self.node(ino)?.attr;
        attr.mode = set.mode.unwrap_or(attr.mode);
        attr.uid = set.uid.unwrap_or(attr.uid);
        attr.gid = set.gid.unwrap_or(attr.gid);
        attr.atime = set.atime.map_or(attr.atime, pick);
        attr.mtime = set.mtime.map_or(attr.mtime, pick);
        if set.kill_suid_sgid {
            attr.mode &= !0o6000;
        }
        attr.ctime = now;
        attr.change += 1;
        Ok(attr.clone())
    }

    pub fn name_op(&mut self, p: PartitionId, cred: Cred, body: Op) -> FsResult {
        Ok(match body {
            Op::MakeRoot { ino, mode } => {
                let attr = Attr { ino, kind: FileType::Directory, mode, nlink: 2, ..Attr::default() };
                self.nodes.entry(ino).or_insert(Node { attr, parent: ino, ..Node::default() });
                Reply::Done
            }
            Op::Lookup { dir, name } => {
                let node = self.node(dir)?;
                let ino = match &name[..] {
                    b".." => node.parent,
                    _ => node.names.get(&name).ok_or(ErrorKind::NotFound)?.0,
                };
                self.entry(p, ino)?
            }
            Op::GetAttr { ino } | Op::AskLease { ino, .. } => Reply::Attr(self.node(ino)?.attr.clone()),
            Op::Readlink { ino } => Reply::Value(self.node(ino)?.target.clone()),
            Op::Create { dir, name, kind, mode, umask, rdev, target, open, told, .. } => {
                let ino = told.map_or_else(|| self.fresh_ino(dir, kind == FileType::Directory), |told| told.ino);
                self.add_name(dir, &name, ino)?;
                let is_dir = kind == FileType::Directory;
                let now = Time { sec: self.time, nsec: 3 };
                let mut attr = Attr { ino, kind, mode: mode & !umask, uid: cred.uid, gid: cred.gid, ..Attr::default() };
                (attr.nlink, attr.rdev, attr.size) = (if is_dir { 2 } else { 1 }, rdev, target.len() as u64);
                (attr.atime, attr.mtime, attr.ctime, attr.btime) = (now, now, now, now);
                let opens = u32::from(open);
                self.nodes.insert(ino, Node { attr, parent: dir, target, opens, ..Node::default() });
                if is_dir {
                    self.node(dir)?.attr.nlink += 1;
                }
                self.entry(p, ino)?
            }
            Op::Link { ino, dir, name } => {
                self.node(ino)?;
                self.add_name(dir, &name, ino)?;
                self.touch(ino)?.nlink += 1;
                self.entry(p, ino)?
            }
            Op::Unlink { dir, name, .. } | Op::Rmdir { dir, name } => self.remove(dir, &name)?,
            Op::Rename { from_dir, from, to_dir, to, mode } => self.rename((from_dir, &from), (to_dir, &to), mode)?,
            Op::Readdir { dir, cookie, limit, plus } => self.readdir(p, dir, cookie, limit as usize, plus)?,
            Op::Open { ino, truncate } => {
                if truncate {
                    self.cut(ino, 0)?;
                }
                let node = self.node(ino)?;
                node.opens += 1;
                Reply::Attr(node.attr.clone())
            }
            Op::Close { inos } => {
                for ino in inos {
                    let node = self.node(ino)?;
                    assert!(node.opens > 0, "{ino} was closed more often than opened");
                    node.opens -= 1;
                    self.bury(ino);
                }
                Reply::Done
            }
            Op::SetXattr { ino, name, value, mode } => {
                let xattrs = &mut self.node(ino)?.xattrs;
                match (mode, xattrs.contains_key(&name)) {
                    (XattrMode::Create, true) => return Err(ErrorKind::Exists.into()),
                    (XattrMode::Replace, false) => return Err(ErrorKind::NoAttribute.into()),
                    _ => xattrs.insert(name, value),
                };
                Reply::Done
            }
            Op::GetXattr { ino, name } => {
                Reply::Value(self.node(ino)?.xattrs.get(&name).ok_or(ErrorKind::NoAttribute)?.clone())
            }
            Op::ListXattr { ino } => Reply::Names(self.node(ino)?.xattrs.keys().cloned().collect()),
            Op::RemoveXattr { ino, name } => {
                self.node(ino)?.xattrs.remove(&name).ok_or(ErrorKind::NoAttribute)?;
                Reply::Done
            }
            other => panic!("the model does not know {other:?}"),
        })
    }

    fn entry(&mut self, p: PartitionId, ino: Ino) -> FsResult {
        let local = self.is_local(p, ino);
        let attr = self.node(ino)?.attr.clone();
        Ok(Reply::Entry { ino, kind: attr.kind, attr: local.then_some(attr) })
    }

    fn add_name(&mut self, dir: Ino, name: &[u8], ino: Ino) -> Result<()> {
        self.next += 1;
        let cookie = self.next + 2;
        let node = self.node(dir)?;
        if node.attr.kind != FileType::Directory {
            return Err(ErrorKind::NotDirectory.into());
        }
        if node.names.contains_key(name) {
            return Err(ErrorKind::Exists.into());
        }
        node.names.insert(name.to_vec(), (ino, cookie));
        self.touch(dir)?;
        Ok(())
    }

    fn remove(&mut self, dir: Ino, name: &[u8]) -> FsResult {
        let (ino, _) = *self.node(dir)?.names.get(name).ok_or(ErrorKind::NotFound)?;
        if !self.node(ino)?.names.is_empty() {
            return Err(ErrorKind::NotEmpty.into());
        }
        self.node(dir)?.names.remove(name);
        self.touch(dir)?;
        self.lose_link(dir, ino)?;
        Ok(Reply::Unlinked { ino })
    }

    fn lose_link(&mut self, dir: Ino, ino: Ino) -> Result<()> {
        let is_dir = self.node(ino)?.attr.kind == FileType::Directory;
        self.touch(ino)?.nlink -= if is_dir { 2 } else { 1 };
        if is_dir {
            self.node(dir)?.attr.nlink -= 1;
        }
        self.bury(ino);
        Ok(())
    }

    fn bury(&mut self, ino: Ino) {
        if self.nodes.get(&ino).is_some_and(|node| node.attr.nlink == 0 && node.opens == 0) {
            self.nodes.remove(&ino);
        }
    }

    fn rename(&mut self, from: (Ino, &[u8]), to: (Ino, &[u8]), mode: RenameMode) -> FsResult {
        let (moved, _) = *self.node(from.0)?.names.get(from.1).ok_or(ErrorKind::NotFound)?;
        let target = self.node(to.0)?.names.get(to.1).map(|(ino, _)| *ino);
        match (mode, target) {
            (RenameMode::NoReplace, Some(_)) => return Err(ErrorKind::Exists.into()),
            (RenameMode::Exchange, None) => return Err(ErrorKind::NotFound.into()),
            _ => {}
        }
        if target == Some(moved) {
            return Ok(Reply::Renamed { moved, other: None });
        }
        let is_dir = |s: &Self, ino: &Ino| s.nodes[ino].attr.kind == FileType::Directory;
        if let (RenameMode::Replace, Some(other)) = (mode, target) {
            match (is_dir(self, &moved), is_dir(self, &other)) {
                (true, false) => return Err(ErrorKind::NotDirectory.into()),
                (false, true) => return Err(ErrorKind::IsDirectory.into()),
                (true, true) if !self.nodes[&other].names.is_empty() => return Err(ErrorKind::NotEmpty.into()),
                _ => {}
            }
        }
        let mut above = to.0;
        while above != self.nodes[&above].parent && is_dir(self, &moved) {
            if above == moved {
                return Err(ErrorKind::Invalid.into());
            }
            above = self.nodes[&above].parent;
        }
        self.node(from.0)?.names.remove(from.1);
        self.node(to.0)?.names.remove(to.1);
        match target {
            Some(other) if mode == RenameMode::Exchange => {
                self.add_name(from.0, from.1, other)?;
                self.settle(other, to.0, from.0)?;
            }
            Some(other) => self.lose_link(to.0, other)?,
            None => {}
        }
        self.add_name(to.0, to.1, moved)?;
        self.settle(moved, from.0, to.0)?;
        self.touch(from.0)?;
        Ok(Reply::Renamed { moved, other: target })
    }

    /// `ino` moved from one directory to another.
    fn settle(&mut self, ino: Ino, from: Ino, to: Ino) -> Result<()> {
        let change = self.time;
        let node = self.node(ino)?;
        (node.parent, node.attr.ctime.sec) = (to, change);
        if node.attr.kind == FileType::Directory {
            self.node(from)?.attr.nlink -= 1;
            self.node(to)?.attr.nlink += 1;
        }
        Ok(())
    }

    fn readdir(&mut self, p: PartitionId, dir: Ino, cookie: u64, limit: usize, plus: bool) -> FsResult {
        let names = self.node(dir)?.names.clone();
        let mut all: Vec<_> = names.into_iter().map(|(name, (ino, at))| (at, name, ino)).collect();
        all.sort();
        all.retain(|(at, ..)| *at > cookie);
        let end = all.len() <= limit;
        let mut entries = Vec::new();
        for (cookie, name, ino) in all.into_iter().take(limit) {
            let attr = self.node(ino)?.attr.clone();
            let (kind, local) = (attr.kind, self.is_local(p, ino));
            entries.push(DirEntry { ino, kind, cookie, name, attr: (plus && local).then_some(attr) });
        }
        Ok(Reply::Entries { entries, end })
    }
}
