//! Names, links, folders and what lists them.

use super::{Check, Found, refused, same};
use rustix::fs::{AtFlags, CWD, FileType, Mode, OFlags, RawDir, RenameFlags, SeekFrom};
use rustix::io::Errno;
use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::fs::{self, File};
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileTypeExt, MetadataExt, symlink};
use std::path::Path;

pub const CHECKS: &[Check] = &[
    ("rename with NOREPLACE and EXCHANGE", rename_flags),
    ("rename refuses what would make a loop", rename_loop),
    ("hard links", links),
    ("symbolic links", symbolic),
    ("device nodes, fifos and sockets", nodes),
    ("names of 255 bytes and of any bytes", long_names),
    ("'.' and '..' in listings", dots),
    ("listing goes on at a cookie after changes", cookies),
    ("listing while names go", list_and_remove),
    ("listing while names come", list_and_create),
    ("link counts of folders", folder_links),
];

fn rename_with(dir: &Path, from: &str, to: &str, flags: RenameFlags) -> rustix::io::Result<()> {
    rustix::fs::renameat_with(CWD, dir.join(from), CWD, dir.join(to), flags)
}

fn rename_flags(dir: &Path) -> Found {
    fs::write(dir.join("a"), "of a")?;
    fs::write(dir.join("b"), "of b")?;
    fs::create_dir(dir.join("d"))?;
    fs::write(dir.join("d/inner"), "inner")?;
    refused("NOREPLACE", rename_with(dir, "a", "b", RenameFlags::NOREPLACE), Errno::EXIST)?;
    rename_with(dir, "a", "c", RenameFlags::NOREPLACE)?;
    rename_with(dir, "c", "b", RenameFlags::EXCHANGE)?;
    same("c", fs::read_to_string(dir.join("c"))?.as_str(), "of b")?;
    same("b", fs::read_to_string(dir.join("b"))?.as_str(), "of a")?;
    rename_with(dir, "b", "d", RenameFlags::EXCHANGE)?;
    same("a file where a folder was", fs::read_to_string(dir.join("d"))?.as_str(), "of a")?;
    same("a folder where a file was", fs::read_to_string(dir.join("b/inner"))?.as_str(), "inner")?;
    refused("EXCHANGE with nothing", rename_with(dir, "b", "no", RenameFlags::EXCHANGE), Errno::NOENT)
}

fn rename_loop(dir: &Path) -> Found {
    fs::create_dir_all(dir.join("a/b/c"))?;
    refused("into its own child", rustix::fs::rename(dir.join("a"), dir.join("a/b/c/a")), Errno::INVAL)?;
    refused("onto a full folder", rustix::fs::rename(dir.join("a/b"), dir.join("a")), Errno::NOTEMPTY)?;
    refused("rmdir of a full folder", rustix::fs::rmdir(dir.join("a")), Errno::NOTEMPTY)?;
    fs::rename(dir.join("a/b/c"), dir.join("c"))?;
    same("moved up", dir.join("c").is_dir(), true)?;
    same("'..' of the moved folder", fs::metadata(dir.join("c/.."))?.ino(), fs::metadata(dir)?.ino())
}

fn links(dir: &Path) -> Found {
    let (a, b) = (dir.join("a"), dir.join("b"));
    fs::write(&a, "words")?;
    for number in 0..100 {
        fs::hard_link(&a, dir.join(format!("l{number}")))?;
    }
    fs::hard_link(&a, &b)?;
    same("links", fs::metadata(&a)?.nlink(), 102)?;
    same("inode", fs::metadata(&b)?.ino(), fs::metadata(&a)?.ino())?;
    fs::remove_file(&a)?;
    same("links after unlink", fs::metadata(&b)?.nlink(), 101)?;
    // Two names of one file: rename does nothing and both stay.
    fs::rename(&b, dir.join("l0"))?;
    same("both names stay", b.exists() && dir.join("l0").exists(), true)?;
    same("content", fs::read_to_string(&b)?.as_str(), "words")?;
    refused("link of a folder", rustix::fs::link(dir, dir.join("d")), Errno::PERM)
}

fn symbolic(dir: &Path) -> Found {
    let target = "x/".repeat(2_000);
    symlink(&target, dir.join("long"))?;
    same("a long target", fs::read_link(dir.join("long"))?.as_os_str() == OsStr::new(&target), true)?;
    same("its length", fs::symlink_metadata(dir.join("long"))?.len(), 4_000)?;
    symlink("two", dir.join("one"))?;
    symlink("one", dir.join("two"))?;
    let looped = rustix::fs::open(dir.join("one"), OFlags::RDONLY, Mode::empty());
    refused("a loop", looped, Errno::LOOP)
}

fn nodes(dir: &Path) -> Found {
    rustix::fs::mknodat(CWD, dir.join("fifo"), FileType::Fifo, Mode::from_raw_mode(0o600), 0)?;
    same("fifo", fs::symlink_metadata(dir.join("fifo"))?.file_type().is_fifo(), true)?;
    let _socket = std::os::unix::net::UnixListener::bind(dir.join("socket"))?;
    same("socket", fs::symlink_metadata(dir.join("socket"))?.file_type().is_socket(), true)?;
    std::os::unix::net::UnixStream::connect(dir.join("socket"))?;
    if rustix::process::geteuid().is_root() {
        let number = rustix::fs::makedev(259, 70_000);
        rustix::fs::mknodat(CWD, dir.join("block"), FileType::BlockDevice, Mode::from_raw_mode(0o600), number)?;
        let found = fs::symlink_metadata(dir.join("block"))?;
        same("block device", (found.file_type().is_block_device(), found.rdev()), (true, number))?;
    }
    Ok(())
}

fn long_names(dir: &Path) -> Found {
    let name = "n".repeat(255);
    fs::write(dir.join(&name), "x")?;
    refused("256 bytes", rustix::fs::mkdir(dir.join("n".repeat(256)), Mode::RWXU), Errno::NAMETOOLONG)?;
    // Every byte but '/' and 0, in names that are not UTF-8.
    for byte in (1..=255_u8).filter(|byte| *byte != b'/') {
        fs::write(dir.join(OsStr::from_bytes(&[b'b', byte])), [byte])?;
    }
    for byte in (1..=255_u8).filter(|byte| *byte != b'/') {
        same("content", fs::read(dir.join(OsStr::from_bytes(&[b'b', byte])))?, vec![byte])?;
    }
    same("names", fs::read_dir(dir)?.count(), 255)
}

/// One entry as the kernel gives it: name, inode, cookie of the next.
type Entry = (Vec<u8>, u64, u64);

fn open_dir(dir: &Path) -> rustix::io::Result<OwnedFd> {
    rustix::fs::open(dir, OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())
}

/// The entries from where `folder` stands, at most `most`. The buffer is small, so that many calls are needed.
fn entries(folder: &OwnedFd, most: usize) -> rustix::io::Result<Vec<Entry>> {
    let mut buffer = Vec::with_capacity(2048);
    let mut listing = RawDir::new(folder, buffer.spare_capacity_mut());
    let mut found = Vec::new();
    while let Some(entry) = listing.next().filter(|_| found.len() < most) {
        let entry = entry?;
        found.push((entry.file_name().to_bytes().to_vec(), entry.ino(), entry.next_entry_cookie()));
    }
    Ok(found)
}

fn dots(dir: &Path) -> Found {
    fs::create_dir(dir.join("d"))?;
    let all = entries(&open_dir(&dir.join("d"))?, 10)?;
    same("entries of an empty folder", all.len(), 2)?;
    for (name, of) in [(&b"."[..], dir.join("d")), (b"..", dir.to_owned())] {
        let entry = all.iter().find(|entry| entry.0 == name).ok_or("a dot is missing")?;
        same("inode of a dot", entry.1, fs::metadata(of)?.ino())?;
    }
    let listed = entries(&open_dir(dir)?, 10)?;
    let entry = listed.iter().find(|entry| entry.0 == b"d").ok_or("d is missing")?;
    same("inode in the listing", entry.1, fs::metadata(dir.join("d"))?.ino())
}

fn fill(dir: &Path, names: std::ops::Range<u32>) -> std::io::Result<()> {
    names.into_iter().try_for_each(|number| File::create(dir.join(format!("file-{number:05}"))).map(drop))
}

fn cookies(dir: &Path) -> Found {
    fill(dir, 0..1_500)?;
    let folder = open_dir(dir)?;
    let all = entries(&folder, usize::MAX)?;
    same("entries", all.len(), 1_502)?;
    let unique: BTreeSet<u64> = all.iter().map(|entry| entry.2).collect();
    same("different cookies", unique.len(), all.len())?;
    // Take names away before and after the place, add others, then go on from it.
    let (place, gone) = (700, [3, 350, 701, 702, 1_000, 1_400]);
    for at in gone {
        let name = OsStr::from_bytes(&all[at].0);
        if name.len() > 2 {
            fs::remove_file(dir.join(name))?;
        }
    }
    rustix::fs::seek(&folder, SeekFrom::Start(all[place].2))?;
    let rest: Vec<Vec<u8>> = entries(&folder, usize::MAX)?.into_iter().map(|entry| entry.0).collect();
    let left = all.iter().enumerate().skip(place + 1).filter(|(at, _)| !gone.contains(at));
    let left: Vec<Vec<u8>> = left.map(|(_, entry)| entry.0.clone()).collect();
    same("what follows the cookie", rest == left, true)
}

fn list_and_remove(dir: &Path) -> Found {
    fill(dir, 0..3_000)?;
    let mut seen = 0;
    for entry in fs::read_dir(dir)? {
        fs::remove_file(entry?.path())?;
        seen += 1;
    }
    same("names seen", seen, 3_000)?;
    same("names left", fs::read_dir(dir)?.count(), 0)
}

fn list_and_create(dir: &Path) -> Found {
    fill(dir, 0..2_000)?;
    let mut seen = Vec::new();
    for (number, entry) in fs::read_dir(dir)?.enumerate() {
        seen.push(entry?.file_name());
        if number < 1_000 {
            fs::write(dir.join(format!("new-{number}")), "x")?;
        }
    }
    let old: Vec<_> = seen.iter().filter(|name| name.as_bytes().starts_with(b"file-")).collect();
    let unique: BTreeSet<_> = seen.iter().collect();
    same("old names, each once", old.len(), 2_000)?;
    same("no name twice", unique.len(), seen.len())
}

fn folder_links(dir: &Path) -> Found {
    for name in ["a", "b", "c"] {
        fs::create_dir(dir.join(name))?;
    }
    same("links of a folder with three folders", fs::metadata(dir)?.nlink(), 5)?;
    fs::rename(dir.join("b"), dir.join("a/b"))?;
    same("after one moved", (fs::metadata(dir)?.nlink(), fs::metadata(dir.join("a"))?.nlink()), (4, 3))?;
    fs::remove_dir(dir.join("c"))?;
    same("after one went", fs::metadata(dir)?.nlink(), 3)?;
    refused("unlink of a folder", rustix::fs::unlinkat(CWD, dir.join("a"), AtFlags::empty()), Errno::ISDIR)
}
