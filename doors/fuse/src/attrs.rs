//! Attributes, types, times and inode numbers as the kernel wants them.

use std::time::Duration;

use braid_base::attr::{Attr, FileType, SetTime, Time};
use braid_base::ids::Ino;
use braid_base::limits::whole_blocks;

use crate::wire::encode;
use crate::wire::request::{Node, When};

/// Unit of `st_blksize` and `statfs`, bytes.
pub(crate) const BLOCK_BYTES: u32 = 4096;

/// Translates inode numbers: the kernel insists that the root is number 1.
///
/// The root and number 1 change places, so the translation stays one to one whatever the root's number is.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Numbers {
    /// The root directory.
    pub(crate) root: Ino,
}

impl Numbers {
    /// The kernel's number of `ino`.
    pub(crate) fn show(self, ino: Ino) -> Node {
        Node(self.swap(ino.0))
    }

    /// The inode that the kernel calls `number`.
    pub(crate) fn inode(self, number: Node) -> Ino {
        Ino(self.swap(number.0))
    }

    /// `attr` for the kernel.
    pub(crate) fn attr(self, attr: &Attr) -> encode::Attr {
        encode::Attr {
            node: self.show(attr.ino),
            size: attr.size,
            blocks: whole_blocks(attr.used) / 512,
            atime: (attr.atime.sec, attr.atime.nsec),
            mtime: (attr.mtime.sec, attr.mtime.nsec),
            ctime: (attr.ctime.sec, attr.ctime.nsec),
            mode: kind(attr.kind) | u32::from(attr.mode & 0o7777),
            nlink: attr.nlink,
            uid: attr.uid,
            gid: attr.gid,
            rdev: attr.rdev,
            block_bytes: BLOCK_BYTES,
        }
    }

    /// An entry with `attr` for the kernel, which may believe the name and the attributes for so long.
    pub(crate) fn entry(self, attr: &Attr, (name_ttl, attr_ttl): (Duration, Duration)) -> encode::Entry {
        encode::Entry { attr: self.attr(attr), generation: attr.generation.into(), name_ttl, attr_ttl }
    }

    fn swap(self, number: u64) -> u64 {
        if number == self.root.0 {
            Node::ROOT.0
        } else if number == Node::ROOT.0 {
            self.root.0
        } else {
            number
        }
    }
}

/// A type as the kernel has it in `st_mode`.
pub(crate) fn kind(kind: FileType) -> u32 {
    match kind {
        FileType::File => libc::S_IFREG,
        FileType::Directory => libc::S_IFDIR,
        FileType::Symlink => libc::S_IFLNK,
        FileType::Fifo => libc::S_IFIFO,
        FileType::CharDevice => libc::S_IFCHR,
        FileType::BlockDevice => libc::S_IFBLK,
        FileType::Socket => libc::S_IFSOCK,
    }
}

/// The type in a full `st_mode`, as `mknod` gives it; `None` for what `mknod` does not make.
pub(crate) fn kind_of_mode(mode: u32) -> Option<FileType> {
    Some(match mode & libc::S_IFMT {
        0 | libc::S_IFREG => FileType::File,
        libc::S_IFIFO => FileType::Fifo,
        libc::S_IFCHR => FileType::CharDevice,
        libc::S_IFBLK => FileType::BlockDevice,
        libc::S_IFSOCK => FileType::Socket,
        _ => return None,
    })
}

/// The low twelve bits of a mode or umask.
pub(crate) fn permissions(mode: u32) -> u16 {
    (mode & 0o7777) as u16
}

/// The time to set that the kernel asked for.
pub(crate) fn set_time(time: When) -> SetTime {
    match time {
        When::Now => SetTime::Now,
        When::At(sec, nsec) => SetTime::To(Time { sec, nsec }),
    }
}

#[cfg(test)]
mod tests {
    use super::{Numbers, kind, kind_of_mode};
    use crate::wire::request::Node;
    use braid_base::attr::FileType;
    use braid_base::ids::{Ino, Vp};

    #[test]
    fn the_root_is_number_one_and_nobody_else() {
        for root in [Ino::new(Vp(0), 1), Ino::new(Vp(9), 1)] {
            let numbers = Numbers { root };
            assert_eq!(numbers.show(root), Node::ROOT);
            for ino in [root, Ino(1), Ino::new(Vp(0), 2), Ino::new(Vp(4095), 77)] {
                assert_eq!(numbers.inode(numbers.show(ino)), ino);
                assert_eq!(numbers.show(ino) == Node::ROOT, ino == root);
            }
        }
    }

    #[test]
    fn types_survive_both_ways() {
        for of in [FileType::File, FileType::Fifo, FileType::CharDevice, FileType::BlockDevice, FileType::Socket] {
            assert_eq!(kind_of_mode(kind(of) | 0o644), Some(of));
        }
    }

    #[test]
    fn mknod_makes_no_directories() {
        assert_eq!(kind_of_mode(libc::S_IFDIR | 0o755), None);
        assert_eq!(kind_of_mode(0o644), Some(FileType::File));
        assert_eq!(kind_of_mode(libc::S_IFSOCK), Some(FileType::Socket));
    }
}
