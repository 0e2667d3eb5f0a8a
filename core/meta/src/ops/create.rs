//! Create: a name and an inode of any type. Files live where their directory lives; directories are spread.

use braid_base::attr::{Attr, FileType};
use braid_base::ids::{FsId, Ino, Layer, Vp};
use braid_base::keys;
use braid_base::limits::{SYMLINK_MAX, VP_COUNT};
use braid_base::msg::fs::{FsResult, Op, Reply, Request};
use braid_base::msg::peer::{Intent, NewDir};
use braid_base::record::{DentryRec, InodeRec};
use braid_base::{Error, ErrorKind, Result};

use crate::event::Token;
use crate::ops::acl::{self, Acl};
use crate::ops::{Verdict, dentry, inode};
use crate::peers::plan::{Plan, Stop, View};
use crate::state::State;
use crate::txn::Txn;
use crate::{data, peers};

/// Checks the name and the place for it; one log entry makes both, unless the new directory's virtual
/// partition is elsewhere.
pub(super) fn create(t: &mut Txn<'_>, s: &mut State, token: Token, request: &Request) -> Result<Verdict> {
    let Op::Create { dir, name, kind, open, told, .. } = &request.body else { return Err(super::misrouted()) };
    let (fs, kind) = (request.fs, *kind);
    let mut parent = place_for(t, s, fs, *dir, name)?;
    let vp = if kind == FileType::Directory { spread(*dir, name) } else { dir.vp() };
    if Ino::new(vp, 0).partition(t.partitions) != t.partition {
        return peers::flight::start(t, s, token.into(), request);
    }
    let fresh = fresh(t, request, &parent)?;
    data::account(t, fs, 0, 1)?;
    let ino = match told {
        Some(told) => inode::take_number(t, fs, vp, told.ino)?,
        None if kind == FileType::Directory => inode::directory_number(t, s, fs, vp)?,
        None => inode::next_number(t, vp)?,
    };
    let mut made = InodeRec { parent: if kind == FileType::Directory { *dir } else { Ino(0) }, ..fresh.inode };
    made.attr.ino = ino;
    put_xattrs(t, fs, ino, &fresh.xattrs);
    dentry::insert(t, fs, *dir, &DentryRec { ino, kind, name: name.clone(), crowded: false })?;
    if kind == FileType::Directory {
        parent.attr.nlink += 1;
    }
    inode::touch_told(&mut parent, told.map(|told| told.at), t.now.wall);
    inode::store(t, fs, *dir, &mut parent);
    inode::store(t, fs, ino, &mut made);
    if *open && s.dedup.opens(request.op) {
        s.opens.open(fs, ino, request.op.client);
    }
    Ok(Reply::Entry { ino, kind, attr: Some(made.attr) }.into())
}

/// A file was made, and whoever asked for that hears so once more. The open reference that was taken with it is in no
/// entry: it is taken anew if it was lost with a primary or a session.
pub(super) fn opens_again(t: &Txn<'_>, s: &mut State, request: &Request, made: &FsResult) -> Result<()> {
    if let (Op::Create { open: true, .. }, &Ok(Reply::Entry { ino, .. })) = (&request.body, made)
        && inode::find(t, request.fs, ino)?.is_some()
        && s.dedup.opens(request.op)
    {
        s.opens.open(request.fs, ino, request.op.client);
    }
    Ok(())
}

/// Makes the root of a new file system; its parent is itself.
pub(super) fn make_root(t: &mut Txn<'_>, request: &Request, ino: Ino, mode: u16) -> Result<Reply> {
    let fs = request.fs;
    if ino.partition(t.partitions) != t.partition {
        let message = format!("root {ino} of {fs} belongs to {}, this is {}", ino.partition(t.partitions), t.partition);
        return Err(Error::new(ErrorKind::Invalid, message));
    }
    if inode::find(t, fs, ino)?.is_some() {
        return Ok(Reply::Done);
    }
    data::account(t, fs, 0, 1)?;
    inode::keep_number(t, ino)?;
    let now = t.now.wall;
    let (uid, gid) = (request.cred.uid, request.cred.gid);
    let attr = Attr { kind: FileType::Directory, mode: mode & 0o7777, uid, gid, nlink: 2, ..born(now) };
    inode::store(t, fs, ino, &mut InodeRec { attr, parent: ino, ..InodeRec::default() });
    Ok(Reply::Done)
}

/// A directory whose virtual partition is elsewhere: it is made there first, the name here decides.
pub(super) fn plan(view: &View<'_, '_>, request: &Request) -> std::result::Result<Plan, Stop> {
    let Op::Create { dir, name, kind, .. } = &request.body else { return Err(super::misrouted().into()) };
    let parent = place_for(view.t, view.s, request.fs, *dir, name)?;
    let fresh = fresh(view.t, request, &parent)?;
    let ino = Ino::new(spread(*dir, name), 0);
    let InodeRec { attr, quota, .. } = fresh.inode;
    let made = NewDir { ino, attr, parent: *dir, quota, xattrs: fresh.xattrs };
    let mut plan = Plan::new(Reply::Entry { ino, kind: *kind, attr: None });
    plan.add(view.home_of(ino), Intent::MakeDir(Box::new(made)));
    plan.add(view.home_of(*dir), Intent::Set { dir: *dir, name: name.clone(), old: None, ino, kind: *kind });
    Ok(plan)
}

/// The directory, if it can take `name` as a new entry.
pub(super) fn place_for(t: &Txn<'_>, s: &State, fs: FsId, dir: Ino, name: &[u8]) -> Result<InodeRec> {
    // An existing "." or ".." is no bad name for programs, it is there already.
    if matches!(name, b"." | b"..") {
        return Err(ErrorKind::Exists.into());
    }
    dentry::check_name(name)?;
    let parent = inode::load_dir(t, fs, dir)?;
    s.peers.held.may_add(fs, dir)?;
    s.peers.held.may_change(fs, dir, name)?;
    if dentry::find(t, fs, dir, name)?.is_some() {
        return Err(ErrorKind::Exists.into());
    }
    if parent.attr.nlink == 0 {
        return Err(Error::new(ErrorKind::NotFound, "the directory was removed"));
    }
    Ok(parent)
}

/// An inode as it will be born, without number.
struct Fresh {
    inode: InodeRec,
    xattrs: Vec<(Vec<u8>, Vec<u8>)>,
}

fn fresh(t: &Txn<'_>, request: &Request, parent: &InodeRec) -> Result<Fresh> {
    let Op::Create { dir, kind, mode, umask, rdev, target, told, .. } = &request.body else {
        return Err(super::misrouted());
    };
    if target.len() > SYMLINK_MAX {
        let message = format!("the target of a symlink has at most {SYMLINK_MAX} bytes, found {}", target.len());
        return Err(Error::new(ErrorKind::NameTooLong, message));
    }
    if (*kind == FileType::Symlink) == target.is_empty() {
        return Err(Error::new(ErrorKind::Invalid, "a symlink needs a target, and nothing else has one"));
    }
    let (mut mode, mut xattrs) = (*mode & 0o7777, Vec::new());
    let default = default_acl(t, request.fs, *dir, parent)?;
    match default {
        _ if *kind == FileType::Symlink => mode = 0o777,
        None => mode &= !umask,
        Some(default) => {
            let (access, inherited_mode) = default.inherit(mode);
            mode = inherited_mode;
            if !access.is_minimal() {
                xattrs.push((acl::ACCESS.to_vec(), access.value()));
            }
            if *kind == FileType::Directory {
                xattrs.push((acl::DEFAULT.to_vec(), default.value()));
            }
        }
    }
    let mut gid = request.cred.gid;
    if parent.attr.mode & 0o2000 != 0 {
        gid = parent.attr.gid;
        mode |= if *kind == FileType::Directory { 0o2000 } else { 0 };
    }
    let is_device = matches!(kind, FileType::CharDevice | FileType::BlockDevice);
    let attr = Attr {
        kind: *kind,
        mode,
        uid: request.cred.uid,
        gid,
        nlink: if *kind == FileType::Directory { 2 } else { 1 },
        size: target.len() as u64,
        rdev: if is_device { *rdev } else { 0 },
        xattrs: !xattrs.is_empty(),
        ..born(told.map_or(t.now.wall, |told| told.at))
    };
    let inode = InodeRec { attr, quota: parent.quota, target: target.clone(), ..InodeRec::default() };
    Ok(Fresh { inode, xattrs })
}

fn born(now: braid_base::attr::Time) -> Attr {
    Attr { atime: now, mtime: now, ctime: now, btime: now, ..Attr::default() }
}

fn default_acl(t: &Txn<'_>, fs: FsId, dir: Ino, parent: &InodeRec) -> Result<Option<Acl>> {
    if !parent.attr.xattrs {
        return Ok(None);
    }
    let value = t.get(&keys::xattr(t.partition, fs, dir, acl::DEFAULT, Layer::FIRST))?;
    value.map(|value| Acl::parse(&value)).transpose()
}

/// Stores inherited attributes.
pub(crate) fn put_xattrs(t: &mut Txn<'_>, fs: FsId, ino: Ino, xattrs: &[(Vec<u8>, Vec<u8>)]) {
    for (name, value) in xattrs {
        t.put(keys::xattr(t.partition, fs, ino, name, Layer::FIRST), value.clone());
    }
}

/// The virtual partition of a new directory: the same for a repeated request, spread evenly, not its parent's.
fn spread(dir: Ino, name: &[u8]) -> Vp {
    let mixed = (keys::name_cookie(name) >> 8 ^ dir.0.rotate_left(17)).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    let vp = (mixed >> 52) as u16 % VP_COUNT;
    Vp(if vp == dir.vp().0 { (vp + 1) % VP_COUNT } else { vp })
}
