//! Rmdir: an empty directory goes, with its name.

use braid_base::attr::FileType;
use braid_base::ids::{FsId, Ino};
use braid_base::msg::fs::{Op, Reply, Request};
use braid_base::msg::peer::Intent;
use braid_base::{Error, ErrorKind, Result};

use crate::event::Token;
use crate::ops::dentry::Found;
use crate::ops::{Verdict, dentry, inode};
use crate::peers;
use crate::peers::plan::{Plan, Stop, View};
use crate::state::State;
use crate::txn::Txn;

/// One log entry if the directory lives here, else it is asked first whether it is empty.
pub(super) fn rmdir(t: &mut Txn<'_>, s: &mut State, token: Token, request: &Request) -> Result<Verdict> {
    peers::flight::start(t, s, token.into(), request)
}

/// The directory takes no names from its promise to the decision; the name here decides.
pub(super) fn plan(view: &View<'_, '_>, request: &Request) -> std::result::Result<Plan, Stop> {
    let Op::Rmdir { dir, name } = &request.body else { return Err(super::misrouted().into()) };
    let (t, fs) = (view.t, request.fs);
    match name.as_slice() {
        b"." => return Err(Error::new(ErrorKind::Invalid, "'.' cannot be removed").into()),
        b".." => return Err(Error::from(ErrorKind::NotEmpty).into()),
        _ => {}
    }
    inode::load_dir(t, fs, *dir)?;
    view.s.peers.held.may_change(fs, *dir, name)?;
    let ino = directory_at(dentry::find(t, fs, *dir, name)?)?;
    let mut plan = Plan::new(Reply::Unlinked { ino });
    plan.add(view.home_of(ino), Intent::RemoveDir { ino });
    plan.add(t.partition, Intent::Clear { dir: *dir, name: name.clone(), ino, kind: FileType::Directory });
    Ok(plan)
}

fn directory_at(found: Option<Found>) -> Result<Ino> {
    let entry = found.ok_or(ErrorKind::NotFound)?.entry;
    if entry.kind != FileType::Directory {
        return Err(ErrorKind::NotDirectory.into());
    }
    Ok(entry.ino)
}

/// `NotEmpty` unless the directory has no entries.
pub(crate) fn may_remove(t: &Txn<'_>, fs: FsId, ino: Ino) -> Result<()> {
    inode::load_dir(t, fs, ino)?;
    if !dentry::is_empty(t, fs, ino)? {
        return Err(ErrorKind::NotEmpty.into());
    }
    Ok(())
}
