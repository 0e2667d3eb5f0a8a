//! Loading and storing inodes: the one place that knows which are visible.

use braid_base::attr::{FileType, Time};
use braid_base::codec::Reader;
use braid_base::ids::{FsId, Ino, Layer, Vp};
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

/// The visible inode; `Stale` if it is gone (its number is never used again), `Busy` if not yet decided.
pub(crate) fn load(t: &Txn<'_>, fs: FsId, ino: Ino) -> Result<InodeRec> {
    match find(t, fs, ino)? {
        Some(inode) if inode.flags & InodeRec::PENDING == 0 => Ok(inode),
        // Only the decision tells anyone this number: it is taken, its message is on the way.
        Some(_) => Err(Error::new(ErrorKind::Busy, format!("{ino} of {fs} is being made"))),
        None => Err(Error::new(ErrorKind::Stale, format!("{ino} of {fs} does not exist (any more)"))),
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

/// A new number in `vp`; never given twice. Number 1 of each virtual partition is kept for root directories.
pub(crate) fn next_number(t: &mut Txn<'_>, vp: Vp) -> Result<Ino> {
    let key = keys::meta(t.partition, &format!("seq.{}", vp.0));
    let last = t.get(&key)?.map_or(Ok(1), |bytes| Reader::new(&bytes).u64())?;
    let ino = Ino::new(vp, last + 1);
    t.put(key, ino.seq().to_le_bytes().to_vec());
    Ok(ino)
}

/// Makes sure that the number of `ino`, which was chosen elsewhere, is not given again.
pub(crate) fn keep_number(t: &mut Txn<'_>, ino: Ino) -> Result<()> {
    let key = keys::meta(t.partition, &format!("seq.{}", ino.vp().0));
    let last = t.get(&key)?.map_or(Ok(1), |bytes| Reader::new(&bytes).u64())?;
    if ino.seq() > last {
        t.put(key, ino.seq().to_le_bytes().to_vec());
    }
    Ok(())
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
