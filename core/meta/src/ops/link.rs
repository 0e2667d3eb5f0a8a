//! Link: one more name for a file.

use braid_base::attr::FileType;
use braid_base::ids::{FsId, Ino};
use braid_base::limits::LINK_MAX;
use braid_base::msg::fs::{Op, Reply, Request};
use braid_base::msg::peer::Intent;
use braid_base::record::InodeRec;
use braid_base::{Error, ErrorKind, Result};

use crate::event::Token;
use crate::ops::{Verdict, create, inode};
use crate::peers;
use crate::peers::plan::{Plan, Stop, View};
use crate::state::State;
use crate::txn::Txn;

/// One log entry if the inode lives with the new name, else the inode counts the link first.
pub(super) fn link(t: &mut Txn<'_>, s: &mut State, token: Token, request: &Request) -> Result<Verdict> {
    peers::flight::start(t, s, token.into(), request)
}

/// The inode counts one more link, the name decides.
pub(super) fn plan(view: &View<'_, '_>, request: &Request) -> std::result::Result<Plan, Stop> {
    let Op::Link { ino, dir, name } = &request.body else { return Err(super::misrouted().into()) };
    let parent = create::place_for(view.t, view.s, request.fs, *dir, name)?;
    // The inode's partition tells the type when it has counted the link.
    let kind = FileType::File;
    let mut plan = Plan::new(Reply::Entry { ino: *ino, kind, attr: None });
    plan.add(view.home_of(*ino), Intent::Link { ino: *ino, quota: parent.quota });
    plan.add(view.t.partition, Intent::Set { dir: *dir, name: name.clone(), old: None, ino: *ino, kind });
    Ok(plan)
}

/// The file, if it may have one more link in a directory of quota id `quota`.
pub(crate) fn may_link(t: &Txn<'_>, fs: FsId, ino: Ino, quota: u64) -> Result<InodeRec> {
    let inode = inode::load(t, fs, ino)?;
    if inode.attr.kind == FileType::Directory {
        return Err(Error::new(ErrorKind::NotPermitted, "a directory has one name only"));
    }
    if inode.attr.nlink == 0 {
        return Err(Error::new(ErrorKind::NotFound, "the file has lost its last name"));
    }
    if inode.attr.nlink >= LINK_MAX {
        return Err(Error::new(ErrorKind::TooManyLinks, format!("a file has at most {LINK_MAX} names")));
    }
    if inode.quota != quota {
        return Err(Error::new(ErrorKind::CrossDevice, "a link cannot lead out of the quota of its file; copy it"));
    }
    Ok(inode)
}
