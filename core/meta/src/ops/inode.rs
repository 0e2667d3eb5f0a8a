//! Loading and storing inodes: the one place that knows which are visible.

use braid_base::attr::{FileType, Time};
use braid_base::codec::Reader;
use braid_base::ids::{FsId, Ino, Layer, Vp};
use braid_base::keys;
use braid_base::limits::NUMBERS_WITH_DIR;
use braid_base::msg::lease::Numbers;
use braid_base::record::InodeRec;
use braid_base::{Error, ErrorKind, Result};

use crate::state::State;
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
    Ok(lend_numbers(t, vp, 1)?.first)
}

/// A new number in `vp` for a directory, and those behind it for files in it: whoever asks for the directory first gets
/// them with it.
pub(crate) fn directory_number(t: &mut Txn<'_>, s: &mut State, fs: FsId, vp: Vp) -> Result<Ino> {
    let ino = lend_numbers(t, vp, 1 + NUMBERS_WITH_DIR)?.first;
    s.leases.made(fs, ino, Numbers { first: Ino(ino.0 + 1), count: NUMBERS_WITH_DIR });
    Ok(ino)
}

/// `count` new numbers in `vp`, for whoever asks for them.
pub(crate) fn lend_numbers(t: &mut Txn<'_>, vp: Vp, count: u16) -> Result<Numbers> {
    let last = last_number(t, vp)?;
    let first = Ino::new(vp, last + 1);
    t.put(numbers_key(t, vp), (last + u64::from(count)).to_le_bytes().to_vec());
    Ok(Numbers { first, count })
}

/// A number that a client had lent and has told a program of. Errors: `Invalid` if it was not lent, or is in use.
pub(crate) fn take_number(t: &Txn<'_>, fs: FsId, vp: Vp, ino: Ino) -> Result<Ino> {
    if ino.vp() == vp && (2..=last_number(t, vp)?).contains(&ino.seq()) && find(t, fs, ino)?.is_none() {
        return Ok(ino);
    }
    Err(Error::new(ErrorKind::Invalid, format!("{ino} was not lent to make a file in {vp}, or there is one")))
}

/// Makes sure that the number of `ino`, which was chosen elsewhere, is not given again.
pub(crate) fn keep_number(t: &mut Txn<'_>, ino: Ino) -> Result<()> {
    if ino.seq() > last_number(t, ino.vp())? {
        t.put(numbers_key(t, ino.vp()), ino.seq().to_le_bytes().to_vec());
    }
    Ok(())
}

/// The last number of `vp` that was given.
fn last_number(t: &Txn<'_>, vp: Vp) -> Result<u64> {
    t.get(&numbers_key(t, vp))?.map_or(Ok(1), |bytes| Reader::new(&bytes).u64())
}

fn numbers_key(t: &Txn<'_>, vp: Vp) -> Vec<u8> {
    keys::meta(t.partition, &format!("seq.{}", vp.0))
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

/// The same at `now`, or when a client `told` a program of it: then what happened later, by the clock here, stays.
pub(crate) fn touch_told(inode: &mut InodeRec, told: Option<Time>, now: Time) {
    if told.is_none_or(|at| at >= inode.attr.ctime) {
        touch(inode, told.unwrap_or(now));
    }
}
