//! Lookup: what a name stands for. Readlink: where a symlink points.

use braid_base::attr::FileType;
use braid_base::ids::{FsId, Ino};
use braid_base::msg::fs::{Reply, Request};
use braid_base::{Error, ErrorKind, Result};

use crate::ops::{dentry, inode};
use crate::state::State;
use crate::txn::Txn;

/// The inode of a name, with attributes if it lives here and neither another client may hold changes of it back nor
/// another partition decides about it; `Busy` while another partition decides about the name.
pub(super) fn lookup(t: &Txn<'_>, s: &State, request: &Request, dir: Ino, name: &[u8]) -> Result<Reply> {
    let fs = request.fs;
    let parent = inode::load_dir(t, fs, dir)?;
    if name == b".." {
        s.peers.held.may_stat(fs, dir)?;
        return entry(t, s, request, parent.parent, FileType::Directory);
    }
    dentry::check_name(name)?;
    s.peers.held.may_see(fs, dir, name)?;
    let found = dentry::find(t, fs, dir, name)?.ok_or(ErrorKind::NotFound)?.entry;
    entry(t, s, request, found.ino, found.kind)
}

/// The target of a symlink.
pub(super) fn readlink(t: &Txn<'_>, fs: FsId, ino: Ino) -> Result<Reply> {
    let inode = inode::load(t, fs, ino)?;
    if inode.attr.kind != FileType::Symlink {
        return Err(Error::new(ErrorKind::Invalid, format!("{ino} is no symlink")));
    }
    Ok(Reply::Value(inode.target))
}

fn entry(t: &Txn<'_>, s: &State, request: &Request, ino: Ino, kind: FileType) -> Result<Reply> {
    let fs = request.fs;
    // What another client may hold changes of back is asked for by itself, and waits.
    let is_local = ino.partition(t.partitions) == t.partition;
    let is_known = is_local && s.leases.may_show(fs, ino, request.op.client) && s.peers.held.may_stat(fs, ino).is_ok();
    let attr = is_known.then(|| inode::load(t, fs, ino)).transpose()?.map(|inode| inode.attr);
    Ok(Reply::Entry { ino, kind, attr })
}
