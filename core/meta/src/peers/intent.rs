//! Carrying out intents: check, promise, then fulfil or undo.
//!
//! | intent | check | promise | fulfil | undo |
//! |---|---|---|---|---|
//! | Clear | the name stands for it | - | name goes | - |
//! | Set | the name is as expected | - | name stands for it; nothing if it did before | - |
//! | MakeDir | - | inode, invisible | visible | inode goes |
//! | Link | may have one more | count it | - | count it back |
//! | RemoveDir | empty | - | inode goes | - |
//! | Reparent | in the old parent | - | in the new parent | - |
//! | Wanted | passed on, not answered | - | - | - |
//!
//! What is promised stays possible, because the names and inodes are held (`held.rs`) meanwhile.

use braid_base::attr::{Attr, FileType, Time};
use braid_base::ids::{FsId, Ino, Layer, OpId};
use braid_base::keys;
use braid_base::msg::peer::{Intent, NewDir};
use braid_base::record::{DentryRec, InodeRec};
use braid_base::{Error, ErrorKind, Result};

use crate::data::{self, Loss};
use crate::ops::{create, dentry, inode, link, rmdir};
use crate::state::State;
use crate::txn::Txn;

/// Fails if the intent cannot be carried out now: with the client's error, or `Busy` if what the plan saw has
/// changed or another operation holds it.
pub(super) fn check(t: &Txn<'_>, s: &State, tx: OpId, fs: FsId, intent: &Intent) -> Result<()> {
    // First of all: what is here may be about to change by a decision that others know already. (A directory whose
    // last entry had been moved away was refused as not empty: seed 2396.)
    s.peers.held.may_hold(tx, fs, intent)?;
    match intent {
        Intent::Clear { dir, name, ino, kind } => {
            inode::load_dir(t, fs, *dir)?;
            expect(t, fs, *dir, name, Some((*ino, *kind)))?;
        }
        Intent::Set { dir, name, old, .. } => {
            if inode::load_dir(t, fs, *dir)?.attr.nlink == 0 {
                return Err(Error::new(ErrorKind::NotFound, "the directory was removed"));
            }
            expect(t, fs, *dir, name, *old)?;
        }
        Intent::MakeDir(_) => {}
        Intent::Link { ino, quota } => {
            link::may_link(t, fs, *ino, *quota)?;
        }
        Intent::RemoveDir { ino } => rmdir::may_remove(t, fs, *ino)?,
        Intent::Reparent { ino, from, .. } => {
            if inode::load_dir(t, fs, *ino)?.parent != *from {
                return Err(changed());
            }
        }
        Intent::Wanted { op } => {
            if !s.peers.forwards.is_open(*op) {
                return Err(Error::new(ErrorKind::Busy, "nobody waits for this operation here"));
            }
        }
    }
    Ok(())
}

/// The inodes whose attributes or names these change.
pub(super) fn changed_by(intents: &[Intent]) -> Vec<Ino> {
    let changed = |intent: &Intent| match intent {
        Intent::Clear { dir, .. } | Intent::Set { dir, .. } => Some(*dir),
        Intent::Link { ino, .. } | Intent::RemoveDir { ino } | Intent::Reparent { ino, .. } => Some(*ino),
        // Nobody knows the number of a new directory before the decision.
        Intent::MakeDir(_) | Intent::Wanted { .. } => None,
    };
    intents.iter().filter_map(changed).collect()
}

/// Does what must be done before the decision; the answer is the inode that was made or linked, whose number
/// the intent has then.
pub(super) fn promise(t: &mut Txn<'_>, s: &mut State, fs: FsId, intent: &mut Intent) -> Result<Option<Attr>> {
    match intent {
        Intent::MakeDir(dir) => make_dir(t, s, fs, dir).map(Some),
        Intent::Link { ino, .. } => {
            let mut inode = inode::load(t, fs, *ino)?;
            inode.attr.nlink += 1;
            inode.attr.ctime = t.now.wall;
            inode::store(t, fs, *ino, &mut inode);
            Ok(Some(inode.attr))
        }
        _ => Ok(None),
    }
}

/// The inode that a promised intent made or linked.
pub(super) fn promised_attr(t: &Txn<'_>, fs: FsId, intents: &[Intent]) -> Result<Option<Attr>> {
    let ino = intents.iter().find_map(|intent| match intent {
        Intent::MakeDir(dir) => Some(dir.ino),
        Intent::Link { ino, .. } => Some(*ino),
        _ => None,
    });
    let Some(ino) = ino else { return Ok(None) };
    Ok(inode::find(t, fs, ino)?.map(|inode| inode.attr))
}

/// The decision is commit.
pub(super) fn fulfil(t: &mut Txn<'_>, s: &mut State, fs: FsId, intent: &Intent) -> Result<()> {
    match intent {
        Intent::Clear { dir, name, ino, kind } => clear(t, fs, *dir, name, (*ino, *kind)),
        Intent::Set { dir, name, old, ino, kind } => set(t, fs, *dir, name, *old, (*ino, *kind)),
        Intent::MakeDir(dir) => {
            let mut inode = found(inode::find(t, fs, dir.ino)?)?;
            inode.flags &= !InodeRec::PENDING;
            inode::store(t, fs, dir.ino, &mut inode);
            Ok(())
        }
        Intent::Link { .. } | Intent::Wanted { .. } => Ok(()),
        Intent::RemoveDir { ino } => {
            let mut inode = inode::load(t, fs, *ino)?;
            inode.attr.nlink = 0;
            inode.attr.ctime = t.now.wall;
            data::dropped(t, s, (fs, *ino), &mut inode, Loss::Removed)
        }
        Intent::Reparent { ino, to, .. } => {
            let mut inode = inode::load(t, fs, *ino)?;
            inode.parent = *to;
            inode.attr.ctime = t.now.wall;
            inode::store(t, fs, *ino, &mut inode);
            Ok(())
        }
    }
}

/// The decision is abort.
pub(super) fn undo(t: &mut Txn<'_>, s: &mut State, fs: FsId, intent: &Intent) -> Result<()> {
    match intent {
        Intent::MakeDir(dir) => {
            t.delete(keys::inode(t.partition, fs, dir.ino, Layer::FIRST));
            for (name, _) in &dir.xattrs {
                t.delete(keys::xattr(t.partition, fs, dir.ino, name, Layer::FIRST));
            }
            data::account(t, fs, 0, -1)
        }
        Intent::Link { ino, .. } => unlinked(t, s, (fs, *ino), t.now.wall, Loss::Replaced),
        _ => Ok(()),
    }
}

/// One name of a file is gone; with the last one, the file.
///
/// An inode that is not there, or has no name left, is no error: a name that leads nowhere can be removed, and
/// the note of another partition cannot fail.
pub(crate) fn unlinked(t: &mut Txn<'_>, s: &mut State, (fs, ino): (FsId, Ino), at: Time, loss: Loss) -> Result<()> {
    let Some(mut inode) = inode::find(t, fs, ino)?.filter(|inode| inode.attr.nlink > 0) else { return Ok(()) };
    inode.attr.nlink -= 1;
    inode.attr.ctime = at;
    if inode.attr.nlink == 0 {
        return data::dropped(t, s, (fs, ino), &mut inode, loss);
    }
    inode::store(t, fs, ino, &mut inode);
    Ok(())
}

fn make_dir(t: &mut Txn<'_>, s: &mut State, fs: FsId, dir: &mut NewDir) -> Result<Attr> {
    data::account(t, fs, 0, 1)?;
    dir.ino = inode::directory_number(t, s, fs, dir.ino.vp())?;
    dir.attr.ino = dir.ino;
    let attr = Attr { xattrs: !dir.xattrs.is_empty(), ..dir.attr.clone() };
    let (parent, quota, flags) = (dir.parent, dir.quota, InodeRec::PENDING);
    let mut inode = InodeRec { attr, parent, quota, flags, ..InodeRec::default() };
    create::put_xattrs(t, fs, dir.ino, &dir.xattrs);
    inode::store(t, fs, dir.ino, &mut inode);
    Ok(inode.attr)
}

fn clear(t: &mut Txn<'_>, fs: FsId, dir: Ino, name: &[u8], (ino, kind): (Ino, FileType)) -> Result<()> {
    let found = dentry::find(t, fs, dir, name)?.filter(|found| found.entry.ino == ino).ok_or_else(broken_promise)?;
    dentry::remove(t, fs, dir, &found)?;
    renamed_in(t, fs, dir, Some(kind), None)
}

fn set(
    t: &mut Txn<'_>,
    fs: FsId,
    dir: Ino,
    name: &[u8],
    old: Option<(Ino, FileType)>,
    (ino, kind): (Ino, FileType),
) -> Result<()> {
    let found = dentry::find(t, fs, dir, name)?;
    match (found, old) {
        (Some(found), Some(old)) if found.entry.ino == old.0 && old == (ino, kind) => return Ok(()),
        (Some(found), Some((old, _))) if found.entry.ino == old => dentry::replace(t, fs, dir, found, ino, kind),
        (None, None) => dentry::insert(t, fs, dir, &DentryRec { ino, kind, name: name.to_vec(), crowded: false })?,
        _ => return Err(broken_promise()),
    }
    renamed_in(t, fs, dir, old.map(|(_, kind)| kind), Some(kind))
}

/// The directory after one of its names changed from something of type `old` to `new`.
fn renamed_in(t: &mut Txn<'_>, fs: FsId, dir: Ino, old: Option<FileType>, new: Option<FileType>) -> Result<()> {
    let mut inode = inode::load_dir(t, fs, dir)?;
    let links = |kind: Option<FileType>| u32::from(kind == Some(FileType::Directory));
    inode.attr.nlink = inode.attr.nlink + links(new) - links(old);
    inode::touch(&mut inode, t.now.wall);
    inode::store(t, fs, dir, &mut inode);
    Ok(())
}

fn expect(t: &Txn<'_>, fs: FsId, dir: Ino, name: &[u8], what: Option<(Ino, FileType)>) -> Result<()> {
    let found = dentry::find(t, fs, dir, name)?.map(|found| (found.entry.ino, found.entry.kind));
    if found == what { Ok(()) } else { Err(changed()) }
}

fn changed() -> Error {
    Error::new(ErrorKind::Busy, "a name changed while the operation was being prepared; try again")
}

fn broken_promise() -> Error {
    Error::new(ErrorKind::Corrupt, "a name that was held for an operation across partitions has changed")
}

fn found(inode: Option<InodeRec>) -> Result<InodeRec> {
    inode.ok_or_else(|| Error::new(ErrorKind::Corrupt, "an inode of an operation across partitions is gone"))
}
