//! Attributes of an inode as POSIX shows them.

use crate::ids::Ino;

/// What an inode is. The numbers are on disk.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum FileType {
    /// A regular file.
    #[default]
    File = 1,
    /// A directory.
    Directory = 2,
    /// A symbolic link.
    Symlink = 3,
    /// A named pipe.
    Fifo = 4,
    /// A character device.
    CharDevice = 5,
    /// A block device.
    BlockDevice = 6,
    /// A socket.
    Socket = 7,
}

impl FileType {
    /// The type stored as `number`, if it is one.
    pub fn from_u8(number: u8) -> Option<Self> {
        Some(match number {
            1 => Self::File,
            2 => Self::Directory,
            3 => Self::Symlink,
            4 => Self::Fifo,
            5 => Self::CharDevice,
            6 => Self::BlockDevice,
            7 => Self::Socket,
            _ => return None,
        })
    }
}

/// Wall-clock time: seconds and nanoseconds since the epoch (seconds may be negative).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Time {
    /// Seconds since 1970-01-01 00:00:00 UTC.
    pub sec: i64,
    /// Nanoseconds, 0..999,999,999.
    pub nsec: u32,
}

/// Attributes of one inode.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Attr {
    /// Inode number.
    pub ino: Ino,
    /// What it is.
    pub kind: FileType,
    /// Permission bits and set-id and sticky bits (low 12 bits of st_mode).
    pub mode: u16,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Hard links.
    pub nlink: u32,
    /// Length in bytes (symlink: length of the target; directory: number of entries is not shown here).
    pub size: u64,
    /// Bytes of file data held (for st_blocks); an upper bound that destage makes exact.
    pub used: u64,
    /// Device number of a device node.
    pub rdev: u32,
    /// Last access.
    pub atime: Time,
    /// Last change of content.
    pub mtime: Time,
    /// Last change of attributes.
    pub ctime: Time,
    /// Creation.
    pub btime: Time,
    /// Inode generation for exported handles (inode numbers are never reused, so it is constant).
    pub generation: u32,
    /// Counts every change of the inode; never goes back.
    pub change: u64,
    /// False if it has no extended attributes, and so no access control list either.
    pub xattrs: bool,
}

/// The mode after a write by somebody else than the owner: no set-uid; no set-gid if the group may execute.
pub fn without_set_id(mode: u16) -> u16 {
    let set_gid = if mode & 0o010 != 0 { 0o2000 } else { 0 };
    mode & !(0o4000 | set_gid)
}

/// A time to set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SetTime {
    /// This very time.
    To(Time),
    /// The partition's present time.
    Now,
}

/// Which attributes to change; `None` leaves one as it is.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SetAttr {
    /// New low 12 bits of the mode.
    pub mode: Option<u16>,
    /// New owner.
    pub uid: Option<u32>,
    /// New group.
    pub gid: Option<u32>,
    /// New length, bytes (truncate or extend with zeros).
    pub size: Option<u64>,
    /// New access time.
    pub atime: Option<SetTime>,
    /// New modification time.
    pub mtime: Option<SetTime>,
    /// Clear the set-uid bit, and the set-gid bit if the group may execute (a write or chown by another).
    pub kill_suid_sgid: bool,
    /// `atime` moves because somebody read, not because somebody set it: ctime stays.
    pub access_only: bool,
}
