//! Readdir: a page of a directory, in the order of cookies, which never change.

use braid_base::ids::Ino;
use braid_base::msg::fs::{DirEntry, Reply, Request};
use braid_base::{Error, ErrorKind, Result};

use crate::ops::{dentry, inode};
use crate::state::State;
use crate::txn::Txn;

/// Most entries of one page: about 1 MiB with names of full length and attributes.
const PAGE_MAX: u32 = 2_048;

/// The entries after `cookie`. The page ends before a name about which another partition decides, and is `Busy`
/// if that is the first: a program that renamed something never sees the old name again.
pub(super) fn readdir(
    t: &Txn<'_>,
    s: &State,
    request: &Request,
    dir: Ino,
    cookie: u64,
    limit: u32,
    plus: bool,
) -> Result<Reply> {
    let fs = request.fs;
    inode::load_dir(t, fs, dir)?;
    let stop = s.peers.held.first_hidden(fs, dir, cookie);
    let limit = limit.clamp(1, PAGE_MAX) as usize;
    let mut entries: Vec<DirEntry> = Vec::new();
    let mut end = true;
    dentry::list(t, fs, dir, cookie, &mut |cookie, entry| {
        end = entries.len() < limit && stop.is_none_or(|stop| cookie < stop);
        if end {
            entries.push(DirEntry { ino: entry.ino, kind: entry.kind, cookie, name: entry.name, attr: None });
        }
        end
    })?;
    // A hidden name may be one that is not there yet: what follows is known only after the decision.
    end &= stop.is_none();
    if entries.is_empty() && !end {
        return Err(Error::new(ErrorKind::Busy, "another partition decides about the next name"));
    }
    if plus {
        for entry in &mut entries {
            entry.attr = attr_of(t, s, request, entry)?;
        }
    }
    Ok(Reply::Entries { entries, end })
}

fn attr_of(t: &Txn<'_>, s: &State, request: &Request, entry: &DirEntry) -> Result<Option<braid_base::attr::Attr>> {
    let fs = request.fs;
    let is_local = entry.ino.partition(t.partitions) == t.partition;
    let is_known = is_local && s.leases.may_show(fs, entry.ino, request.op.client);
    let hidden = s.peers.held.may_stat(fs, entry.ino).is_err();
    if !is_known || hidden {
        return Ok(None);
    }
    Ok(inode::find(t, fs, entry.ino)?.map(|inode| inode.attr))
}
