//! POSIX access control lists as the extended attributes `system.posix_acl_access` and `_default`.
//!
//! The value is what Linux passes: `version u32 = 2 | n x (tag u16 | perm u16 | id u32)`, little-endian,
//! entries in the order of their tags. The mode bits and the access list say the same: whoever changes one
//! changes the other.

use braid_base::codec::{Reader, Writer};
use braid_base::{Error, ErrorKind, Result};

/// Attribute of the list that guards an inode.
pub(crate) const ACCESS: &[u8] = b"system.posix_acl_access";
/// Attribute of the list that new inodes in a directory get.
pub(crate) const DEFAULT: &[u8] = b"system.posix_acl_default";

const VERSION: u32 = 2;
const USER_OBJ: u16 = 0x01;
const USER: u16 = 0x02;
const GROUP_OBJ: u16 = 0x04;
const GROUP: u16 = 0x08;
const MASK: u16 = 0x10;
const OTHER: u16 = 0x20;

/// A valid list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Acl {
    entries: Vec<Entry>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Entry {
    tag: u16,
    perm: u16,
    id: u32,
}

impl Acl {
    /// The list of an attribute's value; `Invalid` if it is none.
    pub(crate) fn parse(value: &[u8]) -> Result<Self> {
        let bad = |_| Error::new(ErrorKind::Invalid, "an access control list ends in the middle of an entry");
        let r = &mut Reader::new(value);
        let version = r.u32().map_err(bad)?;
        if version != VERSION {
            let message = format!("access control list: expected version {VERSION}, found {version}");
            return Err(Error::new(ErrorKind::Invalid, message));
        }
        let mut entries = Vec::with_capacity(r.remaining() / 8);
        while r.remaining() > 0 {
            entries.push(Entry { tag: r.u16().map_err(bad)?, perm: r.u16().map_err(bad)?, id: r.u32().map_err(bad)? });
        }
        let acl = Self { entries };
        acl.check()?;
        Ok(acl)
    }

    /// One owner, one owning group, one "others" entry; a mask if there are named ones; in this order.
    fn check(&self) -> Result<()> {
        let count = |tag| self.entries.iter().filter(|e| e.tag == tag).count();
        let named = count(USER) + count(GROUP);
        let tags_known =
            self.entries.iter().all(|e| matches!(e.tag, USER_OBJ | USER | GROUP_OBJ | GROUP | MASK | OTHER));
        let ordered = self.entries.windows(2).all(|pair| pair[0].tag <= pair[1].tag);
        let perms_known = self.entries.iter().all(|e| e.perm <= 7);
        let singles = [USER_OBJ, GROUP_OBJ, OTHER].into_iter().all(|tag| count(tag) == 1) && count(MASK) <= 1;
        if tags_known && ordered && perms_known && singles && (named == 0 || count(MASK) == 1) {
            return Ok(());
        }
        Err(Error::new(
            ErrorKind::Invalid,
            "an access control list needs u, g, o, in order, and a mask with named entries",
        ))
    }

    /// The attribute's value.
    pub(crate) fn value(&self) -> Vec<u8> {
        let mut w = Writer::with_capacity(4 + 8 * self.entries.len());
        w.put_u32(VERSION);
        for entry in &self.entries {
            w.put_u16(entry.tag).put_u16(entry.perm).put_u32(entry.id);
        }
        w.finish()
    }

    /// True if the nine permission bits say all of it.
    pub(crate) fn is_minimal(&self) -> bool {
        self.entries.len() == 3
    }

    /// `mode` with the nine permission bits of this list.
    pub(crate) fn apply_to(&self, mode: u16) -> u16 {
        let group = if self.has(MASK) { MASK } else { GROUP_OBJ };
        (mode & !0o777) | (self.perm(USER_OBJ) << 6) | (self.perm(group) << 3) | self.perm(OTHER)
    }

    /// Takes the nine permission bits over from a new mode.
    pub(crate) fn set_mode(&mut self, mode: u16) {
        let group = if self.has(MASK) { MASK } else { GROUP_OBJ };
        for entry in &mut self.entries {
            match entry.tag {
                USER_OBJ => entry.perm = (mode >> 6) & 7,
                OTHER => entry.perm = mode & 7,
                tag if tag == group => entry.perm = (mode >> 3) & 7,
                _ => {}
            }
        }
    }

    /// As default list of a directory, for a new inode that asks for `mode`: the inode's list and mode.
    pub(crate) fn inherit(&self, mode: u16) -> (Self, u16) {
        let mut acl = self.clone();
        acl.set_mode(self.apply_to(0) & mode);
        let mode = acl.apply_to(mode);
        (acl, mode)
    }

    fn has(&self, tag: u16) -> bool {
        self.entries.iter().any(|e| e.tag == tag)
    }

    fn perm(&self, tag: u16) -> u16 {
        self.entries.iter().find(|e| e.tag == tag).map_or(0, |e| e.perm)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn acl(entries: &[(u16, u16, u32)]) -> Vec<u8> {
        Acl { entries: entries.iter().map(|&(tag, perm, id)| Entry { tag, perm, id }).collect() }.value()
    }

    #[test]
    fn mask_is_the_group_of_the_mode() {
        let value = acl(&[(1, 7, 0), (2, 5, 1000), (4, 4, 0), (0x10, 6, 0), (0x20, 0, 0)]);
        let mut list = Acl::parse(&value).expect("it is valid");
        assert_eq!(list.value(), value);
        assert_eq!(list.apply_to(0o4000), 0o4760);
        list.set_mode(0o640);
        assert_eq!(list.apply_to(0), 0o640);
        assert_eq!(list.perm(GROUP_OBJ), 4, "the owning group's own entry stays behind the mask");
        let (inherited, mode) = list.inherit(0o666);
        assert_eq!(mode, 0o640);
        assert!(!inherited.is_minimal());
    }

    #[test]
    fn nonsense_is_refused() {
        let minimal = [(1, 7, 0), (4, 4, 0), (0x20, 0, 0)];
        assert!(Acl::parse(&acl(&minimal)).expect("it is valid").is_minimal());
        assert!(Acl::parse(&acl(&minimal[..2])).is_err());
        assert!(Acl::parse(&acl(&[(1, 7, 0), (2, 7, 5), (4, 4, 0), (0x20, 0, 0)])).is_err(), "named needs a mask");
        assert!(Acl::parse(&acl(&[(4, 7, 0), (1, 4, 0), (0x20, 0, 0)])).is_err(), "order");
        assert!(Acl::parse(&acl(&[(1, 9, 0), (4, 4, 0), (0x20, 0, 0)])).is_err(), "permission bits");
        assert!(Acl::parse(&acl(&minimal)[..9]).is_err());
        assert!(Acl::parse(&[]).is_err());
    }
}
