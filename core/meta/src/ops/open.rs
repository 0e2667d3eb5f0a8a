//! Open, close, end of a session: who holds which inode.

use braid_base::Result;
use braid_base::attr::FileType;
use braid_base::ids::Ino;
use braid_base::msg::fs::{Reply, Request};

use crate::data;
use crate::leases;
use crate::ops::inode;
use crate::ops::write::alive;
use crate::state::State;
use crate::txn::Txn;

/// `Op::Open`: takes a reference; the content outlives the last name until it is given back.
pub(crate) fn open(t: &mut Txn<'_>, s: &mut State, request: &Request, ino: Ino, truncate: bool) -> Result<Reply> {
    let fs = request.fs;
    s.peers.held.may_stat(fs, ino)?; // the answer shows the link count
    let mut inode = inode::load(t, fs, ino)?;
    if !s.data.orphans.is_fresh(fs, ino) {
        alive(s, fs, ino, &inode)?;
    }
    if truncate && inode.attr.kind == FileType::File {
        data::truncate(t, s, fs, ino, &mut inode, 0)?;
        inode::store(t, fs, ino, &mut inode);
    }
    s.opens.open(fs, ino, request.op.client);
    Ok(Reply::Attr(inode.attr))
}

/// `Op::Close`: gives one reference of this client back for each time that an inode is named.
pub(crate) fn close(s: &mut State, request: &Request, inos: &[Ino]) -> Result<Reply> {
    for ino in inos {
        if s.opens.close(request.fs, *ino, request.op.client) {
            s.data.orphans.closed(request.fs, *ino);
        }
    }
    Ok(Reply::Done)
}

/// `Op::EndSession`: all references, locks and leases of this client go.
pub(crate) fn end_session(t: &mut Txn<'_>, s: &mut State, request: &Request) -> Result<Reply> {
    let client = request.op.client;
    leases::leave(t, s, client);
    Ok(Reply::Done)
}
