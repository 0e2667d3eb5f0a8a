//! Extended attributes, POSIX ACLs among them.

use braid_base::ids::Ino;
use braid_base::limits::{XATTR_NAME_MAX, XATTR_VALUE_MAX};
use braid_base::msg::fs::{Op, Reply, XattrMode};
use braid_base::{Error, ErrorKind, Result};

use super::Fs;
use crate::session::unexpected;

impl Fs {
    /// Sets an extended attribute. Errors: `Exists`, `NoAttribute` (as `mode` says), `Range` (name too long),
    /// `Invalid` (a malformed ACL), `NoSpace`.
    pub async fn setxattr(&self, ino: Ino, name: &[u8], value: &[u8], mode: XattrMode) -> Result<()> {
        check_xattr_name(name)?;
        if value.len() > XATTR_VALUE_MAX {
            let text = format!("an attribute has at most {XATTR_VALUE_MAX} bytes, found {}", value.len());
            return Err(Error::new(ErrorKind::NoSpace, text));
        }
        let body = Op::SetXattr { ino, name: name.to_vec(), value: value.to_vec(), mode };
        self.ask_done("setxattr", body).await
    }

    /// The value of an extended attribute. Errors: `NoAttribute`.
    pub async fn getxattr(&self, ino: Ino, name: &[u8]) -> Result<Vec<u8>> {
        check_xattr_name(name)?;
        if is_usual(name) && self.has_none(ino) {
            return Err(ErrorKind::NoAttribute.into());
        }
        match self.ask(Op::GetXattr { ino, name: name.to_vec() }).await? {
            Reply::Value(value) => Ok(value),
            other => Err(unexpected("getxattr", &other)),
        }
    }

    /// The names of all extended attributes.
    pub async fn listxattr(&self, ino: Ino) -> Result<Vec<Vec<u8>>> {
        if self.has_none(ino) {
            return Ok(Vec::new());
        }
        match self.ask(Op::ListXattr { ino }).await? {
            Reply::Names(names) => Ok(names),
            other => Err(unexpected("listxattr", &other)),
        }
    }

    /// Removes an extended attribute. Errors: `NoAttribute`.
    pub async fn removexattr(&self, ino: Ino, name: &[u8]) -> Result<()> {
        check_xattr_name(name)?;
        self.ask_done("removexattr", Op::RemoveXattr { ino, name: name.to_vec() }).await
    }

    /// True if it is certain that `ino` has no extended attributes: then nobody has to be asked for one, which `ls -l`
    /// does twice for each file and the kernel before it first writes to one.
    fn has_none(&self, ino: Ino) -> bool {
        self.known(ino).is_some_and(|attr| !attr.xattrs)
    }
}

/// True for names that an inode may have; the partition refuses others in words.
fn is_usual(name: &[u8]) -> bool {
    let spaces: [&[u8]; 3] = [b"user.", b"trusted.", b"security."];
    let is_list = matches!(name, b"system.posix_acl_access" | b"system.posix_acl_default");
    is_list || spaces.into_iter().any(|space| name.len() > space.len() && name.starts_with(space))
}

fn check_xattr_name(name: &[u8]) -> Result<()> {
    if (1..=XATTR_NAME_MAX).contains(&name.len()) {
        return Ok(());
    }
    let text = format!("an attribute's name has 1 to {XATTR_NAME_MAX} bytes, found {}", name.len());
    Err(Error::new(ErrorKind::Range, text))
}
