//! Unlink: a name of something else than a directory goes; with the last one, the inode.

use braid_base::attr::FileType;
use braid_base::msg::fs::{Op, Reply, Request};
use braid_base::msg::peer::Note;
use braid_base::{ErrorKind, Result};

use crate::data::Loss;
use crate::event::Token;
use crate::ops::{Verdict, dentry, inode};
use crate::peers::{intent, post};
use crate::state::State;
use crate::txn::Txn;

/// One log entry; an inode that lives elsewhere hears of it by a note, which cannot fail.
pub(super) fn unlink(t: &mut Txn<'_>, s: &mut State, token: Token, request: &Request) -> Result<Verdict> {
    let Op::Unlink { dir, name, told, .. } = &request.body else { return Err(super::misrouted()) };
    let fs = request.fs;
    let mut parent = inode::load_dir(t, fs, *dir)?;
    dentry::check_name(name)?;
    s.peers.held.may_change(fs, *dir, name)?;
    let found = dentry::find(t, fs, *dir, name)?.ok_or(ErrorKind::NotFound)?;
    if found.entry.kind == FileType::Directory {
        return Err(ErrorKind::IsDirectory.into());
    }
    let ino = found.entry.ino;
    dentry::remove(t, fs, *dir, &found)?;
    let at = told.unwrap_or(t.now.wall);
    inode::touch_told(&mut parent, *told, t.now.wall);
    inode::store(t, fs, *dir, &mut parent);
    let is_here = ino.partition(t.partitions) == t.partition;
    if is_here {
        intent::unlinked(t, s, (fs, ino), at, Loss::Removed)?;
    }
    let notes: &[Note] = if is_here { &[] } else { &[Note::Unlinked { ino, at }] };
    post::carry_out(t, s, token, request, notes, Reply::Unlinked { ino })
}
