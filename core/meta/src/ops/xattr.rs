//! Extended attributes and, among them, access control lists.

use braid_base::attr::FileType;
use braid_base::ids::{FsId, Ino, Layer};
use braid_base::keys;
use braid_base::limits::{XATTR_LIST_MAX, XATTR_NAME_MAX, XATTR_VALUE_MAX};
use braid_base::msg::fs::{Reply, XattrMode};
use braid_base::record::InodeRec;
use braid_base::{Error, ErrorKind, Result};

use crate::ops::acl::{self, Acl};
use crate::ops::inode;
use crate::state::State;
use crate::txn::Txn;

/// Sets an attribute. An access list also sets the permission bits and is not stored if they say it all.
pub(super) fn set(
    t: &mut Txn<'_>,
    _s: &mut State,
    fs: FsId,
    ino: Ino,
    name: &[u8],
    value: &[u8],
    mode: XattrMode,
) -> Result<Reply> {
    let mut inode = inode::load(t, fs, ino)?;
    check_name(name)?;
    if value.len() > XATTR_VALUE_MAX {
        let message = format!("an attribute has at most {XATTR_VALUE_MAX} bytes, found {}", value.len());
        return Err(Error::new(ErrorKind::Range, message));
    }
    let is_there = value_of(t, fs, ino, &inode, name)?.is_some();
    match mode {
        XattrMode::Create if is_there => return Err(ErrorKind::Exists.into()),
        XattrMode::Replace if !is_there => return Err(ErrorKind::NoAttribute.into()),
        _ => {}
    }
    if !is_there {
        check_room(t, fs, ino, name)?;
    }
    let key = keys::xattr(t.partition, fs, ino, name, Layer::FIRST);
    if keeps(&mut inode, name, value)? {
        inode.attr.xattrs = true;
        t.put(key, value.to_vec());
    } else if is_there {
        t.delete(key);
    }
    inode.attr.ctime = t.now.wall;
    inode::store(t, fs, ino, &mut inode);
    Ok(Reply::Done)
}

/// The value of an attribute.
pub(super) fn get(t: &Txn<'_>, _s: &State, fs: FsId, ino: Ino, name: &[u8]) -> Result<Reply> {
    let inode = inode::load(t, fs, ino)?;
    check_name(name)?;
    Ok(Reply::Value(value_of(t, fs, ino, &inode, name)?.ok_or(ErrorKind::NoAttribute)?))
}

/// The names of all attributes.
pub(super) fn list(t: &Txn<'_>, _s: &State, fs: FsId, ino: Ino) -> Result<Reply> {
    inode::load(t, fs, ino)?;
    Ok(Reply::Names(names(t, fs, ino)?))
}

/// Removes an attribute; that no access list is there is no error, because the mode is one.
pub(super) fn remove(t: &mut Txn<'_>, _s: &mut State, fs: FsId, ino: Ino, name: &[u8]) -> Result<Reply> {
    let mut inode = inode::load(t, fs, ino)?;
    check_name(name)?;
    if value_of(t, fs, ino, &inode, name)?.is_none() {
        let is_list = matches!(name, acl::ACCESS | acl::DEFAULT);
        return if is_list { Ok(Reply::Done) } else { Err(ErrorKind::NoAttribute.into()) };
    }
    t.delete(keys::xattr(t.partition, fs, ino, name, Layer::FIRST));
    inode.attr.ctime = t.now.wall;
    inode::store(t, fs, ino, &mut inode);
    Ok(Reply::Done)
}

/// Whether the attribute is to be stored; an access list changes the mode of `inode`.
fn keeps(inode: &mut InodeRec, name: &[u8], value: &[u8]) -> Result<bool> {
    match name {
        acl::ACCESS if value.is_empty() => Ok(false),
        acl::ACCESS => {
            let list = Acl::parse(value)?;
            inode.attr.mode = list.apply_to(inode.attr.mode);
            Ok(!list.is_minimal())
        }
        acl::DEFAULT if value.is_empty() => Ok(false),
        acl::DEFAULT if inode.attr.kind != FileType::Directory => {
            Err(Error::new(ErrorKind::AccessDenied, "only directories have a default access control list"))
        }
        acl::DEFAULT => Acl::parse(value).map(|_| true),
        _ => Ok(true),
    }
}

fn check_name(name: &[u8]) -> Result<()> {
    if name.len() > XATTR_NAME_MAX {
        let message = format!("an attribute's name has at most {XATTR_NAME_MAX} bytes, found {}", name.len());
        return Err(Error::new(ErrorKind::Range, message));
    }
    if matches!(name, acl::ACCESS | acl::DEFAULT) {
        return Ok(());
    }
    let spaces: [&[u8]; 3] = [b"user.", b"trusted.", b"security."];
    let Some(rest) = spaces.into_iter().find_map(|space| name.strip_prefix(space)) else {
        let message = format!("attribute '{}': names start with user., trusted. or security.", name.escape_ascii());
        return Err(Error::new(ErrorKind::Unsupported, message));
    };
    if rest.is_empty() || rest.contains(&0) {
        return Err(Error::new(ErrorKind::Invalid, "an attribute's name has a part after the dot, without NUL"));
    }
    Ok(())
}

fn value_of(t: &Txn<'_>, fs: FsId, ino: Ino, inode: &InodeRec, name: &[u8]) -> Result<Option<Vec<u8>>> {
    if !inode.attr.xattrs {
        return Ok(None);
    }
    t.get(&keys::xattr(t.partition, fs, ino, name, Layer::FIRST))
}

fn check_room(t: &Txn<'_>, fs: FsId, ino: Ino, name: &[u8]) -> Result<()> {
    let used: usize = names(t, fs, ino)?.iter().map(|name| name.len() + 1).sum();
    if used + name.len() + 1 > XATTR_LIST_MAX {
        let message = format!("the names of a file's attributes fill {XATTR_LIST_MAX} bytes; remove some");
        return Err(Error::new(ErrorKind::NoSpace, message));
    }
    Ok(())
}

fn names(t: &Txn<'_>, fs: FsId, ino: Ino) -> Result<Vec<Vec<u8>>> {
    let prefix = keys::xattrs(t.partition, fs, ino);
    let mut names = Vec::new();
    t.scan_prefix(&prefix, &mut |key, _| {
        // After the prefix: the name, 00, and four bytes of layer.
        if let Some(end) = key.len().checked_sub(5).filter(|end| *end > prefix.len()) {
            names.push(key[prefix.len()..end].to_vec());
        }
        true
    })?;
    Ok(names)
}
