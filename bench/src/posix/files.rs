//! Opening, reading and writing one file.

use super::{Check, Found, is_ext4, refused, same};
use crate::chance::pattern;
use crate::clock;
use rustix::fs::{AtFlags, CWD, Mode, OFlags, StatxFlags, Timespec, Timestamps, XattrFlags};
use rustix::io::Errno;
use std::fs::{self, File, OpenOptions};
use std::io::{Read, Seek, SeekFrom, Write};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::Path;

pub const CHECKS: &[Check] = &[
    ("open with O_EXCL and O_TRUNC", exclusive_and_truncate),
    ("O_APPEND by two writers", append),
    ("O_DIRECT reads what was written", direct),
    ("O_SYNC and O_DSYNC", synchronous),
    ("O_TMPFILE, linked later", temporary),
    ("a file lives until its last close", unlinked),
    ("a file renamed over lives until its last close", renamed_over),
    ("times in nanoseconds", times),
    ("relatime", relatime),
    ("extended attributes up to 64 KiB", attributes),
    ("several writers see each other", two_handles),
];

const OWN: Mode = Mode::from_raw_mode(0o644);

fn open(path: &Path, flags: OFlags) -> rustix::io::Result<OwnedFd> {
    rustix::fs::open(path, flags | OFlags::CLOEXEC, OWN)
}

fn exclusive_and_truncate(dir: &Path) -> Found {
    let path = dir.join("a");
    File::from(open(&path, OFlags::CREATE | OFlags::EXCL | OFlags::WRONLY)?).write_all(b"some words")?;
    refused("O_EXCL", open(&path, OFlags::CREATE | OFlags::EXCL | OFlags::WRONLY), Errno::EXIST)?;
    drop(open(&path, OFlags::WRONLY | OFlags::TRUNC)?);
    same("length after O_TRUNC", fs::metadata(&path)?.len(), 0)?;
    std::os::unix::fs::symlink("a", dir.join("link"))?;
    refused("O_NOFOLLOW", open(&dir.join("link"), OFlags::RDONLY | OFlags::NOFOLLOW), Errno::LOOP)?;
    refused("O_DIRECTORY", open(&path, OFlags::RDONLY | OFlags::DIRECTORY), Errno::NOTDIR)?;
    refused("write to a folder", open(dir, OFlags::WRONLY), Errno::ISDIR)
}

fn append(dir: &Path) -> Found {
    let path = dir.join("a");
    let open = || OpenOptions::new().create(true).append(true).open(&path);
    let (mut one, mut two) = (open()?, open()?);
    for number in 0..200_u32 {
        let writer = if number % 2 == 0 { &mut one } else { &mut two };
        writer.write_all(format!("{number:03}\n").as_bytes())?;
    }
    let expected: String = (0..200_u32).map(|number| format!("{number:03}\n")).collect();
    same("lines of two writers", fs::read_to_string(&path)?, expected)
}

/// A slice of `buffer` that starts at a multiple of 4096.
fn aligned(buffer: &mut [u8], len: usize) -> &mut [u8] {
    let skip = buffer.as_ptr().align_offset(4096);
    &mut buffer[skip..skip + len]
}

fn direct(dir: &Path) -> Found {
    const LEN: usize = 256 * 1024;
    let mut memory = vec![0; LEN + 4096];
    let buffer = aligned(&mut memory, LEN);
    let expected = pattern(1, 0, LEN as u64);
    buffer.copy_from_slice(&expected);
    let path = dir.join("a");
    let direct = File::from(open(&path, OFlags::CREATE | OFlags::RDWR | OFlags::DIRECT)?);
    direct.write_all_at(buffer, 0)?;
    buffer.fill(0);
    direct.read_exact_at(buffer, 0)?;
    same("O_DIRECT read", *buffer == expected[..], true)?;
    same("read through the page cache", fs::read(&path)? == expected, true)?;
    // And the other way: written through the cache, read past it.
    let change = pattern(2, 4096, 4096);
    OpenOptions::new().write(true).open(&path)?.write_all_at(&change, 4096)?;
    direct.read_exact_at(buffer, 0)?;
    same("O_DIRECT read of a cached write", buffer[4096..8192] == change[..], true)
}

fn synchronous(dir: &Path) -> Found {
    for (name, flag) in [("sync", OFlags::SYNC), ("dsync", OFlags::DSYNC)] {
        let path = dir.join(name);
        let mut file = File::from(open(&path, OFlags::CREATE | OFlags::RDWR | flag)?);
        for round in 0..8 {
            file.write_all(&pattern(round, 0, 5_000))?;
        }
        same(name, file.metadata()?.len(), 40_000)?;
        same("content", fs::read(&path)?[35_000..] == pattern(7, 0, 5_000)[..], true)?;
    }
    Ok(())
}

fn temporary(dir: &Path) -> Found {
    let file = match rustix::fs::open(dir, OFlags::TMPFILE | OFlags::RDWR | OFlags::CLOEXEC, OWN) {
        // The answer of a file system that does not offer it; programs then make a name and unlink it.
        Err(Errno::OPNOTSUPP) => return Ok(()),
        result => File::from(result?),
    };
    file.write_all_at(b"words", 0)?;
    same("names before the link", fs::read_dir(dir)?.count(), 0)?;
    let path = format!("/proc/self/fd/{}", file.as_raw_fd());
    rustix::fs::linkat(CWD, path, CWD, dir.join("named"), AtFlags::SYMLINK_FOLLOW)?;
    same("content", fs::read(dir.join("named"))?, b"words".to_vec())
}

fn unlinked(dir: &Path) -> Found {
    let path = dir.join("a");
    let mut file = OpenOptions::new().create(true).truncate(true).read(true).write(true).open(&path)?;
    file.write_all(b"before ")?;
    fs::remove_file(&path)?;
    file.write_all(&pattern(1, 0, 100_000))?;
    same("names", fs::read_dir(dir)?.count(), 0)?;
    same("links", file.metadata()?.nlink(), 0)?;
    same("length", file.metadata()?.len(), 100_007)?;
    file.seek(SeekFrom::Start(7))?;
    let mut found = Vec::new();
    file.read_to_end(&mut found)?;
    same("content", found == pattern(1, 0, 100_000), true)?;
    refused("link of an unlinked file", rustix::fs::link(&path, dir.join("b")), Errno::NOENT)
}

fn renamed_over(dir: &Path) -> Found {
    let (old, new) = (dir.join("old"), dir.join("new"));
    fs::write(&old, "old words")?;
    fs::write(&new, "new")?;
    let mut open = File::open(&old)?;
    fs::rename(&new, &old)?;
    let mut found = String::new();
    open.read_to_string(&mut found)?;
    same("the open file", found.as_str(), "old words")?;
    same("the name", fs::read_to_string(&old)?.as_str(), "new")
}

fn times(dir: &Path) -> Found {
    let path = dir.join("a");
    fs::write(&path, "x")?;
    let past = Timespec { tv_sec: 86_400 * 400, tv_nsec: 123_456_789 };
    let future = Timespec { tv_sec: 1 << 33, tv_nsec: 999_999_999 };
    let times = Timestamps { last_access: past, last_modification: future };
    rustix::fs::utimensat(CWD, &path, &times, AtFlags::empty())?;
    let found = fs::metadata(&path)?;
    same("access time", (found.atime(), found.atime_nsec()), (past.tv_sec, 123_456_789))?;
    same("change of content", (found.mtime(), found.mtime_nsec()), (future.tv_sec, 999_999_999))?;
    let before = rustix::fs::statx(CWD, &path, AtFlags::empty(), StatxFlags::BASIC_STATS)?.stx_ctime;
    clock::wait(20);
    fs::set_permissions(&path, std::os::unix::fs::PermissionsExt::from_mode(0o600))?;
    let after = rustix::fs::statx(CWD, &path, AtFlags::empty(), StatxFlags::BASIC_STATS)?.stx_ctime;
    same("ctime moves with chmod", (after.tv_sec, after.tv_nsec) > (before.tv_sec, before.tv_nsec), true)
}

fn relatime(dir: &Path) -> Found {
    let path = dir.join("a");
    fs::write(&path, "words")?;
    let old = Timespec { tv_sec: 946_684_800, tv_nsec: 0 };
    let times = Timestamps { last_access: old, last_modification: old };
    rustix::fs::utimensat(CWD, &path, &times, AtFlags::empty())?;
    fs::read(&path)?;
    // Attributes may be cached for a second.
    clock::wait(1_200);
    let found = fs::metadata(&path)?;
    same("atime moves when it is not younger than mtime", found.atime() > old.tv_sec, true)?;
    same("mtime stays", found.mtime(), old.tv_sec)
}

fn attributes(dir: &Path) -> Found {
    let path = dir.join("a");
    fs::write(&path, "x")?;
    let big = pattern(1, 0, if is_ext4(dir) { 3_000 } else { 64 * 1024 });
    rustix::fs::setxattr(&path, "user.big", &big, XattrFlags::CREATE)?;
    rustix::fs::setxattr(&path, "user.empty", b"", XattrFlags::empty())?;
    refused("create again", rustix::fs::setxattr(&path, "user.big", b"x", XattrFlags::CREATE), Errno::EXIST)?;
    refused("replace nothing", rustix::fs::setxattr(&path, "user.no", b"x", XattrFlags::REPLACE), Errno::NODATA)?;
    let mut value = vec![0; 70_000];
    let len = rustix::fs::getxattr(&path, "user.big", value.as_mut_slice())?;
    same("a large value", value[..len] == big[..], true)?;
    refused("a short buffer", rustix::fs::getxattr(&path, "user.big", &mut value[..10]), Errno::RANGE)?;
    let len = rustix::fs::listxattr(&path, value.as_mut_slice())?;
    let mut names: Vec<&[u8]> =
        value[..len].split(|byte| *byte == 0).filter(|name| name.starts_with(b"user.")).collect();
    names.sort_unstable();
    same("names", names, vec![&b"user.big"[..], b"user.empty"])?;
    rustix::fs::removexattr(&path, "user.big")?;
    refused("removed", rustix::fs::getxattr(&path, "user.big", value.as_mut_slice()), Errno::NODATA)?;
    std::os::unix::fs::symlink("a", dir.join("link"))?;
    refused("user on a link", rustix::fs::lsetxattr(dir.join("link"), "user.x", b"x", XattrFlags::empty()), Errno::PERM)
}

fn two_handles(dir: &Path) -> Found {
    let path = dir.join("a");
    let open = || OpenOptions::new().create(true).truncate(false).read(true).write(true).open(&path);
    let (one, two) = (open()?, open()?);
    for round in 0..50_u64 {
        let bytes = pattern(round, round * 777, 3_000);
        one.write_all_at(&bytes, round * 777)?;
        let mut found = vec![0; 3_000];
        two.read_exact_at(&mut found, round * 777)?;
        same("bytes of the other handle", found == bytes, true)?;
        same("length", two.metadata()?.len(), round * 777 + 3_000)?;
    }
    Ok(())
}
