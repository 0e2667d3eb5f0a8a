//! Attributes, types, times and inode numbers as the kernel wants them.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use braid_base::attr::{Attr, FileType, SetTime, Time};
use braid_base::ids::Ino;
use fuser::{FileAttr, INodeNo, TimeOrNow};

/// How long the kernel may believe a name or attributes.
pub(crate) const TTL: Duration = Duration::from_secs(1);
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
    pub(crate) fn show(self, ino: Ino) -> INodeNo {
        INodeNo(self.swap(ino.0))
    }

    /// The inode that the kernel calls `number`.
    pub(crate) fn inode(self, number: INodeNo) -> Ino {
        Ino(self.swap(number.0))
    }

    /// `attr` for the kernel.
    pub(crate) fn attr(self, attr: &Attr) -> FileAttr {
        FileAttr {
            ino: self.show(attr.ino),
            size: attr.size,
            blocks: attr.used.div_ceil(512),
            atime: system_time(attr.atime),
            mtime: system_time(attr.mtime),
            ctime: system_time(attr.ctime),
            crtime: system_time(attr.btime),
            kind: kind(attr.kind),
            perm: attr.mode & 0o7777,
            nlink: attr.nlink,
            uid: attr.uid,
            gid: attr.gid,
            rdev: attr.rdev,
            blksize: BLOCK_BYTES,
            flags: 0,
        }
    }

    fn swap(self, number: u64) -> u64 {
        if number == self.root.0 {
            INodeNo::ROOT.0
        } else if number == INodeNo::ROOT.0 {
            self.root.0
        } else {
            number
        }
    }
}

/// A type for the kernel.
pub(crate) fn kind(kind: FileType) -> fuser::FileType {
    match kind {
        FileType::File => fuser::FileType::RegularFile,
        FileType::Directory => fuser::FileType::Directory,
        FileType::Symlink => fuser::FileType::Symlink,
        FileType::Fifo => fuser::FileType::NamedPipe,
        FileType::CharDevice => fuser::FileType::CharDevice,
        FileType::BlockDevice => fuser::FileType::BlockDevice,
        FileType::Socket => fuser::FileType::Socket,
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

fn system_time(time: Time) -> SystemTime {
    let seconds = Duration::from_secs(time.sec.unsigned_abs());
    let whole = if time.sec >= 0 { UNIX_EPOCH.checked_add(seconds) } else { UNIX_EPOCH.checked_sub(seconds) };
    // Beyond what the machine's clock type can hold nothing better can be shown.
    whole.and_then(|t| t.checked_add(Duration::from_nanos(time.nsec.into()))).unwrap_or(UNIX_EPOCH)
}

/// The time to set that the kernel asked for.
pub(crate) fn set_time(time: TimeOrNow) -> SetTime {
    match time {
        TimeOrNow::Now => SetTime::Now,
        TimeOrNow::SpecificTime(time) => SetTime::To(asked_time(time)),
    }
}

/// Before 1970, fuser 0.18 makes of (-s seconds, n nanoseconds) the time `epoch - (s + n)` instead of
/// `epoch - s + n`; the two numbers can be told from what it made, so they are taken back here.
fn asked_time(time: SystemTime) -> Time {
    match time.duration_since(UNIX_EPOCH) {
        Ok(after) => Time { sec: after.as_secs() as i64, nsec: after.subsec_nanos() },
        Err(before) => {
            let before = before.duration();
            Time { sec: -(before.as_secs() as i64), nsec: before.subsec_nanos() }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{Numbers, asked_time, kind_of_mode, system_time};
    use braid_base::attr::{FileType, Time};
    use braid_base::ids::{Ino, Vp};
    use fuser::INodeNo;
    use std::time::{Duration, UNIX_EPOCH};

    #[test]
    fn the_root_is_number_one_and_nobody_else() {
        for root in [Ino::new(Vp(0), 1), Ino::new(Vp(9), 1)] {
            let numbers = Numbers { root };
            assert_eq!(numbers.show(root), INodeNo::ROOT);
            for ino in [root, Ino(1), Ino::new(Vp(0), 2), Ino::new(Vp(4095), 77)] {
                assert_eq!(numbers.inode(numbers.show(ino)), ino);
                assert_eq!(numbers.show(ino) == INodeNo::ROOT, ino == root);
            }
        }
    }

    #[test]
    fn times_before_1970_keep_their_nanoseconds() {
        // What fuser makes of the kernel's (-2, 300).
        let fused = UNIX_EPOCH - Duration::new(2, 300);
        assert_eq!(asked_time(fused), Time { sec: -2, nsec: 300 });
        assert_eq!(asked_time(UNIX_EPOCH + Duration::new(5, 7)), Time { sec: 5, nsec: 7 });
        let shown = system_time(Time { sec: -2, nsec: 300 });
        assert_eq!(shown, UNIX_EPOCH - Duration::from_secs(2) + Duration::from_nanos(300));
        assert_eq!(system_time(Time { sec: i64::MIN, nsec: 0 }), UNIX_EPOCH - Duration::from_secs(1 << 63));
    }

    #[test]
    fn mknod_makes_no_directories() {
        assert_eq!(kind_of_mode(libc::S_IFDIR | 0o755), None);
        assert_eq!(kind_of_mode(0o644), Some(FileType::File));
        assert_eq!(kind_of_mode(libc::S_IFSOCK), Some(FileType::Socket));
    }
}
