//! Loading and storing inodes: the one place that knows which are visible.

use braid_base::attr::{FileType, Time};
use braid_base::ids::{FsId, Ino, Layer};
use braid_base::keys;
use braid_base::record::InodeRec;
use braid_base::{Error, ErrorKind, Result};

use crate::txn::Txn;

/// The inode, pending ones included; `None` if there is none.
pub(crate) fn find(t: &Txn<'_>, fs: FsId, ino: Ino) -> Result<Option<InodeRec>> {
    let mut found: Option<InodeRec> = t.read(&keys::inode(t.partition, fs, ino, Layer::FIRST))?;
    if let Some(inode) = &mut found {
        inode.attr.ino = ino;
    }
    Ok(found)
}

/// The visible inode; `Stale` if it is gone (its number is never used again) or not yet decided.
pub(crate) fn load(t: &Txn<'_>, fs: FsId, ino: Ino) -> Result<InodeRec> {
    match find(t, fs, ino)? {
        Some(inode) if inode.flags & InodeRec::PENDING == 0 => Ok(inode),
        _ => Err(Error::new(ErrorKind::Stale, format!("{ino} of {fs} does not exist (any more)"))),
    }
}

/// The directory `ino`, if it takes names: `NotDirectory` if it is something else.
pub(crate) fn load_dir(t: &Txn<'_>, fs: FsId, ino: Ino) -> Result<InodeRec> {
    let dir = load(t, fs, ino)?;
    if dir.attr.kind != FileType::Directory {
        return Err(ErrorKind::NotDirectory.into());
    }
    Ok(dir)
}

/// Stores the inode and counts the change.
pub(crate) fn store(t: &mut Txn<'_>, fs: FsId, ino: Ino, inode: &mut InodeRec) {
    inode.attr.change += 1;
    t.write(keys::inode(t.partition, fs, ino, Layer::FIRST), inode);
}

/// Marks content (mtime) and attributes (ctime) as changed now.
pub(crate) fn touch(inode: &mut InodeRec, now: Time) {
    inode.attr.mtime = now;
    inode.attr.ctime = now;
}
