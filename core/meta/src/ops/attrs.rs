//! Attributes: stat, chmod, chown, truncate, utimes.

use braid_base::attr::{FileType, SetAttr, SetTime, Time};
use braid_base::ids::{FsId, Ino, Layer};
use braid_base::keys;
use braid_base::limits::{ACCESSED_MAX, FILE_MAX};
use braid_base::msg::fs::{Reply, Request};
use braid_base::record::InodeRec;
use braid_base::{Error, ErrorKind, Result};

use crate::data;
use crate::leases;
use crate::ops::acl::{self, Acl};
use crate::ops::inode;
use crate::state::State;
use crate::txn::Txn;

/// Set-uid and set-gid bit, and the group's execute bit that gives set-gid its meaning.
const SET_UID: u16 = 0o4000;
const SET_GID: u16 = 0o2000;
const GROUP_EXECUTE: u16 = 0o010;

/// What stat shows; `Busy` while another partition decides about the link count.
pub(super) fn get(t: &Txn<'_>, s: &State, fs: FsId, ino: Ino) -> Result<Reply> {
    s.peers.held.may_stat(fs, ino)?;
    Ok(Reply::Attr(inode::load(t, fs, ino)?.attr))
}

/// Changes what `set` names. Every change moves ctime; a new size also mtime, unless one is given.
///
/// Errors: as [`get`], because the answer shows the link count.
pub(super) fn set(t: &mut Txn<'_>, s: &mut State, request: &Request, ino: Ino, set: &SetAttr) -> Result<Reply> {
    let fs = request.fs;
    s.peers.held.may_stat(fs, ino)?;
    let mut inode = inode::load(t, fs, ino)?;
    if *set == SetAttr::default() {
        return Ok(Reply::Attr(inode.attr));
    }
    let now = t.now.wall;
    if let Some(size) = set.size {
        check_size(&inode, size)?;
        data::truncate(t, s, fs, ino, &mut inode, size)?;
        inode.attr.mtime = now;
    }
    let attr = &mut inode.attr;
    attr.uid = set.uid.unwrap_or(attr.uid);
    attr.gid = set.gid.unwrap_or(attr.gid);
    if let Some(mode) = set.mode {
        attr.mode = mode & 0o7777;
    }
    if set.kill_suid_sgid {
        attr.mode = without_set_id(attr.kind, attr.mode);
    }
    attr.atime = chosen(set.atime, attr.atime, now);
    attr.mtime = chosen(set.mtime, attr.mtime, now);
    if !set.access_only {
        attr.ctime = now;
    }
    if set.mode.is_some() {
        follow_mode(t, fs, ino, &inode)?;
    }
    inode::store(t, fs, ino, &mut inode);
    if set.access_only {
        leases::refresh(t, s, (fs, ino), Some(request.op.client));
    }
    Ok(Reply::Attr(inode.attr))
}

/// Moves access times. A file that is gone has none, and one that changed after it was read keeps its own: a program may
/// have said what it is.
pub(super) fn accessed(t: &mut Txn<'_>, s: &mut State, request: &Request, files: &[(Ino, Time)]) -> Result<Reply> {
    if files.len() > ACCESSED_MAX {
        let message = format!("at most {ACCESSED_MAX} access times move at once, found {}", files.len());
        return Err(Error::new(ErrorKind::Invalid, message));
    }
    let fs = request.fs;
    for (ino, at) in files {
        let Ok(mut inode) = inode::load(t, fs, *ino) else { continue };
        let is_later = *at > inode.attr.atime && *at >= inode.attr.ctime;
        if is_later && s.peers.held.may_stat(fs, *ino).is_ok() {
            inode.attr.atime = *at;
            inode::store(t, fs, *ino, &mut inode);
            leases::refresh(t, s, (fs, *ino), Some(request.op.client));
        }
    }
    Ok(Reply::Done)
}

/// `mode` after a write or chown by someone who may not keep the set-id bits; directories keep them.
pub(super) fn without_set_id(kind: FileType, mode: u16) -> u16 {
    if kind == FileType::Directory {
        return mode;
    }
    let group = if mode & GROUP_EXECUTE != 0 { SET_GID } else { 0 };
    mode & !(SET_UID | group)
}

fn check_size(inode: &InodeRec, size: u64) -> Result<()> {
    match inode.attr.kind {
        FileType::File if size > FILE_MAX => {
            let message = format!("a file has at most {FILE_MAX} bytes, {size} were asked");
            Err(Error::new(ErrorKind::FileTooBig, message))
        }
        FileType::File => Ok(()),
        FileType::Directory => Err(ErrorKind::IsDirectory.into()),
        _ => Err(Error::new(ErrorKind::Invalid, "only regular files have a length that can be set")),
    }
}

fn chosen(set: Option<SetTime>, old: Time, now: Time) -> Time {
    match set {
        None => old,
        Some(SetTime::Now) => now,
        Some(SetTime::To(time)) => time,
    }
}

/// The access control list follows the permission bits.
fn follow_mode(t: &mut Txn<'_>, fs: FsId, ino: Ino, inode: &InodeRec) -> Result<()> {
    if !inode.attr.xattrs {
        return Ok(());
    }
    let key = keys::xattr(t.partition, fs, ino, acl::ACCESS, Layer::FIRST);
    if let Some(value) = t.get(&key)? {
        let mut list = Acl::parse(&value)?;
        list.set_mode(inode.attr.mode);
        t.put(key, list.value());
    }
    Ok(())
}
