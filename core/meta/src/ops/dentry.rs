//! Names in directories: the one place that knows how they are keyed.
//!
//! A name's key is its cookie: 55 bits of hash and 8 bits `disc` that tell colliding names apart. A cookie
//! never changes while its name stays, so a listing can go on after it. The first name of a hash has disc 0;
//! while others of that hash exist, disc 0 is never empty: a name removed from it leaves a marker (no name, no
//! inode), so one read of disc 0 says that a name is not there. What stands at disc 0 also says whether there may be
//! others (`crowded`), so that a name without any, which is nearly every one, is removed without looking for them.

use braid_base::attr::FileType;
use braid_base::ids::{FsId, Ino, Layer};
use braid_base::keys;
use braid_base::limits::NAME_MAX;
use braid_base::record::{DentryRec, Record};
use braid_base::{Error, ErrorKind, Result};

use crate::txn::Txn;

/// Cookies of one hash.
const DISCS: u64 = 256;

/// An entry and where it stands.
pub(crate) struct Found {
    /// Its cookie.
    pub cookie: u64,
    /// Its content.
    pub entry: DentryRec,
}

/// Refuses what can be no name of an entry: `Invalid` or `NameTooLong`.
pub(crate) fn check_name(name: &[u8]) -> Result<()> {
    if name.len() > NAME_MAX {
        let message = format!("a name has at most {NAME_MAX} bytes, found {}", name.len());
        return Err(Error::new(ErrorKind::NameTooLong, message));
    }
    if name.is_empty() || matches!(name, b"." | b"..") || name.iter().any(|b| matches!(b, b'/' | 0)) {
        let message = format!("'{}' cannot be the name of an entry", name.escape_ascii());
        return Err(Error::new(ErrorKind::Invalid, message));
    }
    Ok(())
}

/// The entry `name` of `dir`.
pub(crate) fn find(t: &Txn<'_>, fs: FsId, dir: Ino, name: &[u8]) -> Result<Option<Found>> {
    let first = keys::name_cookie(name);
    match t.read::<DentryRec>(&key(t, fs, dir, first))? {
        None => Ok(None),
        Some(entry) if entry.name == name => Ok(Some(Found { cookie: first, entry })),
        Some(_) => {
            let mut found = None;
            visit(t, fs, dir, first + 1, first + DISCS, &mut |cookie, entry| {
                if entry.name == name {
                    found = Some(Found { cookie, entry });
                }
                found.is_none()
            })?;
            Ok(found)
        }
    }
}

/// Adds an entry; the caller has made sure that there is none of this name. `NoSpace` if 256 names of the same
/// hash exist.
pub(crate) fn insert(t: &mut Txn<'_>, fs: FsId, dir: Ino, entry: &DentryRec) -> Result<()> {
    let first = keys::name_cookie(&entry.name);
    let at_first = t.read::<DentryRec>(&key(t, fs, dir, first))?;
    let Some(mut at_first) = at_first else {
        t.write(key(t, fs, dir, first), entry);
        return Ok(());
    };
    if is_marker(&at_first) {
        t.write(key(t, fs, dir, first), &DentryRec { crowded: true, ..entry.clone() });
        return Ok(());
    }
    let mut free = first + 1;
    visit(t, fs, dir, first + 1, first + DISCS, &mut |cookie, _| {
        let gap = cookie > free;
        free += u64::from(!gap);
        !gap
    })?;
    if free == first + DISCS {
        return Err(Error::new(ErrorKind::NoSpace, "256 names of one hash are in this directory; choose another name"));
    }
    t.write(key(t, fs, dir, free), entry);
    if !at_first.crowded {
        at_first.crowded = true;
        t.write(key(t, fs, dir, first), &at_first);
    }
    Ok(())
}

/// Lets the found name stand for another inode.
pub(crate) fn replace(t: &mut Txn<'_>, fs: FsId, dir: Ino, mut found: Found, ino: Ino, kind: FileType) {
    (found.entry.ino, found.entry.kind) = (ino, kind);
    t.write(key(t, fs, dir, found.cookie), &found.entry);
}

/// Removes the found name.
pub(crate) fn remove(t: &mut Txn<'_>, fs: FsId, dir: Ino, found: &Found) -> Result<()> {
    let first = found.cookie & !(DISCS - 1);
    if found.cookie == first && !found.entry.crowded {
        t.delete(key(t, fs, dir, first));
        return Ok(());
    }
    let mut others = 0;
    visit(t, fs, dir, first + 1, first + DISCS, &mut |cookie, _| {
        others += u32::from(cookie != found.cookie);
        others == 0
    })?;
    if found.cookie != first {
        t.delete(key(t, fs, dir, found.cookie));
    }
    if others == 0 && (found.cookie == first || at_marker(t, fs, dir, first)?) {
        t.delete(key(t, fs, dir, first));
    } else if found.cookie == first {
        t.write(key(t, fs, dir, first), &marker());
    }
    Ok(())
}

/// True if `dir` has no entries.
pub(crate) fn is_empty(t: &Txn<'_>, fs: FsId, dir: Ino) -> Result<bool> {
    let mut empty = true;
    list(t, fs, dir, 0, &mut |_, _| {
        empty = false;
        false
    })?;
    Ok(empty)
}

/// Shows the entries of `dir` after `cookie`, in the order of their cookies, until `each` returns false.
pub(crate) fn list(
    t: &Txn<'_>,
    fs: FsId,
    dir: Ino,
    cookie: u64,
    each: &mut dyn FnMut(u64, DentryRec) -> bool,
) -> Result<()> {
    let Some(from) = cookie.checked_add(1) else { return Ok(()) };
    visit(t, fs, dir, from, u64::MAX, &mut |cookie, entry| is_marker(&entry) || each(cookie, entry))
}

fn key(t: &Txn<'_>, fs: FsId, dir: Ino, cookie: u64) -> Vec<u8> {
    keys::dentry(t.partition, fs, dir, cookie, Layer::FIRST)
}

fn marker() -> DentryRec {
    DentryRec { ino: Ino(0), kind: FileType::File, name: Vec::new(), crowded: true }
}

fn is_marker(entry: &DentryRec) -> bool {
    entry.name.is_empty()
}

fn at_marker(t: &Txn<'_>, fs: FsId, dir: Ino, cookie: u64) -> Result<bool> {
    Ok(t.read::<DentryRec>(&key(t, fs, dir, cookie))?.is_some_and(|entry| is_marker(&entry)))
}

/// Shows everything at the cookies `from..to`, markers too.
fn visit(
    t: &Txn<'_>,
    fs: FsId,
    dir: Ino,
    from: u64,
    to: u64,
    each: &mut dyn FnMut(u64, DentryRec) -> bool,
) -> Result<()> {
    // The complement of the highest layer sorts first, so these bounds cover all layers of a cookie.
    let bound = |cookie| keys::dentry(t.partition, fs, dir, cookie, Layer(u32::MAX));
    let mut failed = None;
    t.scan(&bound(from), &bound(to), &mut |key, value| {
        let entry = keys::dentry_cookie(key).ok_or_else(|| {
            Error::new(
                ErrorKind::Corrupt,
                format!("directory {dir} of {fs}: a key without a cookie; check the partition"),
            )
        });
        match entry.and_then(|cookie| Ok((cookie, DentryRec::decode(value)?))) {
            Ok((cookie, entry)) => each(cookie, entry),
            Err(error) => {
                failed = Some(error);
                false
            }
        }
    })?;
    failed.map_or(Ok(()), Err)
}
