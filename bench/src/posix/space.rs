//! Sizes, holes and space.

use super::{Check, Found, is_ext4, refused, same};
use crate::chance::pattern;
use rustix::fs::{FallocateFlags, SeekFrom};
use rustix::io::Errno;
use std::fs::{self, File, OpenOptions};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::Path;

pub const CHECKS: &[Check] = &[
    ("a sparse file of a petabyte", petabyte),
    ("SEEK_HOLE and SEEK_DATA", holes),
    ("fallocate: extend, keep size", allocate),
    ("fallocate: punch and zero", punch),
    ("truncate, then extend, reads zeros", truncate),
    ("copy_file_range", copy),
    ("statfs", space),
    ("blocks of a file", blocks),
];

const MIB: u64 = 1 << 20;

fn open(dir: &Path, name: &str) -> std::io::Result<File> {
    OpenOptions::new().create(true).truncate(true).read(true).write(true).open(dir.join(name))
}

fn bytes_at(file: &File, offset: u64, len: usize) -> std::io::Result<Vec<u8>> {
    let mut bytes = vec![0xEE; len];
    file.read_exact_at(&mut bytes, offset)?;
    Ok(bytes)
}

fn petabyte(dir: &Path) -> Found {
    let file = open(dir, "a")?;
    // Ext4 ends at 16 TiB.
    let far = if is_ext4(dir) { 1 << 42 } else { 1 << 50 };
    file.write_all_at(b"the end", far)?;
    file.write_all_at(b"the middle", far / 2 + 12_345)?;
    same("length", file.metadata()?.len(), far + 7)?;
    same("the end", bytes_at(&file, far, 7)?, b"the end".to_vec())?;
    same("the middle", bytes_at(&file, far / 2 + 12_344, 11)?, b"\0the middle".to_vec())?;
    same("a hole", bytes_at(&file, far / 4, 4096)?, vec![0; 4096])?;
    same("few blocks", file.metadata()?.blocks() < 1_000, true)?;
    file.set_len(far * 2 - 1)?;
    same("longer still", fs::metadata(dir.join("a"))?.len(), far * 2 - 1)
}

fn holes(dir: &Path) -> Found {
    let file = open(dir, "a")?;
    file.write_all_at(&pattern(1, 0, MIB), 0)?;
    file.write_all_at(&pattern(2, 0, MIB), 64 * MIB)?;
    file.set_len(128 * MIB)?;
    file.sync_all()?;
    let seek = |from| rustix::fs::seek(&file, from);
    same("data at the start", seek(SeekFrom::Data(10))?, 10)?;
    same("the first hole", seek(SeekFrom::Hole(0))?, MIB)?;
    same("the next data", seek(SeekFrom::Data(2 * MIB))?, 64 * MIB)?;
    same("the last hole", seek(SeekFrom::Hole(64 * MIB))?, 65 * MIB)?;
    refused("no data after that", seek(SeekFrom::Data(70 * MIB)), Errno::NXIO)?;
    refused("beyond the end", seek(SeekFrom::Hole(128 * MIB)), Errno::NXIO)
}

fn allocate(dir: &Path) -> Found {
    let file = open(dir, "a")?;
    file.write_all_at(b"words", 0)?;
    rustix::fs::fallocate(&file, FallocateFlags::empty(), 0, MIB)?;
    same("extended", file.metadata()?.len(), MIB)?;
    rustix::fs::fallocate(&file, FallocateFlags::KEEP_SIZE, 0, 4 * MIB)?;
    same("size kept", file.metadata()?.len(), MIB)?;
    same("words and zeros", bytes_at(&file, 0, 8)?, b"words\0\0\0".to_vec())
}

fn punch(dir: &Path) -> Found {
    let file = open(dir, "a")?;
    let all = pattern(1, 0, 4 * MIB);
    file.write_all_at(&all, 0)?;
    let punch = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
    rustix::fs::fallocate(&file, punch, 5_000, 3 * MIB)?;
    same("size", file.metadata()?.len(), 4 * MIB)?;
    let mut expected = all;
    expected[5_000..5_000 + 3 * (1 << 20)].fill(0);
    same("a punched hole", fs::read(dir.join("a"))? == expected, true)?;
    rustix::fs::fallocate(&file, FallocateFlags::ZERO_RANGE, 100, 1_000)?;
    expected[100..1_100].fill(0);
    rustix::fs::fallocate(&file, FallocateFlags::ZERO_RANGE, 4 * MIB - 10, MIB)?;
    expected[4 * (1 << 20) - 10..].fill(0);
    expected.resize(5 * (1 << 20) - 10, 0);
    same("zeroed and extended", fs::read(dir.join("a"))? == expected, true)?;
    rustix::fs::fallocate(&file, punch, 100 * MIB, MIB)?;
    same("a hole behind the end", file.metadata()?.len(), 5 * MIB - 10)?;
    refused(
        "a hole without keep-size",
        rustix::fs::fallocate(&file, FallocateFlags::PUNCH_HOLE, 0, 1),
        Errno::OPNOTSUPP,
    )
}

fn truncate(dir: &Path) -> Found {
    let file = open(dir, "a")?;
    for round in 0..4_u64 {
        file.write_all_at(&pattern(round, 0, 3 * MIB), 0)?;
        let cut = 1_000_000 * round / 2 + 777;
        file.set_len(cut)?;
        file.set_len(2 * MIB + 1)?;
        let found = fs::read(dir.join("a"))?;
        let mut expected = pattern(round, 0, cut);
        expected.resize((2 << 20) + 1, 0);
        same("bytes after the cut are zeros", found == expected, true)?;
    }
    Ok(())
}

fn copy(dir: &Path) -> Found {
    let (from, to) = (open(dir, "a")?, open(dir, "b")?);
    let bytes = pattern(1, 0, 2_000_000);
    from.write_all_at(&bytes, 0)?;
    let (mut at, mut into) = (1_000, 555);
    let mut left = 1_500_000;
    while left > 0 {
        let copied = rustix::fs::copy_file_range(&from, Some(&mut at), &to, Some(&mut into), left)?;
        if copied == 0 {
            return Err("copy_file_range ends early".into());
        }
        left -= copied;
    }
    let found = fs::read(dir.join("b"))?;
    same("length", found.len(), 1_500_555)?;
    same("content", found[555..] == bytes[1_000..1_501_000], true)?;
    same("before it", found[..555] == [0; 555], true)?;
    let mut end = 2_000_000;
    same("from the end", rustix::fs::copy_file_range(&from, Some(&mut end), &to, Some(&mut into), 10)?, 0)?;
    let (mut a, mut b) = (0, 100);
    let overlapping = rustix::fs::copy_file_range(&from, Some(&mut a), &from, Some(&mut b), 1_000);
    refused("onto itself", overlapping, Errno::INVAL)
}

fn space(dir: &Path) -> Found {
    let found = rustix::fs::statvfs(dir)?;
    let sane = found.f_blocks > 0 && found.f_bfree <= found.f_blocks && found.f_bavail <= found.f_bfree;
    same("blocks", sane && found.f_bavail > 0, true)?;
    same("inodes", found.f_files > 0 && found.f_ffree <= found.f_files && found.f_ffree > 0, true)?;
    same("block size", found.f_frsize.is_power_of_two() && found.f_frsize >= 512, true)?;
    same("longest name", found.f_namemax, 255)
}

fn blocks(dir: &Path) -> Found {
    let file = open(dir, "a")?;
    file.write_all_at(&pattern(1, 0, MIB), 0)?;
    file.sync_all()?;
    let full = file.metadata()?.blocks();
    same("a full MiB", (2_048..4_096).contains(&full), true)?;
    file.set_len(0)?;
    file.sync_all()?;
    same("nothing", file.metadata()?.blocks(), 0)
}
