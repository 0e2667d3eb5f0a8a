//! The file, what overwrites it, and what takes the rest of the space.

use crate::Outcome;
use crate::chance::Chance;
use rustix::fs::OFlags;
use std::fs::{File, OpenOptions};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// Bytes of one write.
pub const BLOCK: usize = 4096;
/// Blocks written at once when the file is made.
const BLOCKS_PER_PIECE: u64 = 256;

/// What all threads share.
pub struct Load<'a> {
    path: &'a Path,
    /// Of each thread.
    blocks: u64,
    /// Blocks written so far.
    pub written: AtomicU64,
    /// Time is up, or somebody met an error.
    pub stop: AtomicBool,
}

impl Load<'_> {
    /// Each thread owns `blocks` blocks of the file at `path`.
    pub fn new(path: &Path, blocks: u64) -> Load<'_> {
        Load { path, blocks, written: AtomicU64::new(0), stop: AtomicBool::new(false) }
    }

    /// Overwrites until told to stop, then reads everything it owns.
    pub fn work(&self, rank: u64) -> Outcome<()> {
        let done = self.overwrite(rank).and_then(|last| self.verify(rank, &last));
        if done.is_err() {
            self.stop.store(true, Ordering::Relaxed);
        }
        done
    }

    fn overwrite(&self, rank: u64) -> Outcome<Vec<u32>> {
        let mut memory = vec![0; 2 * BLOCK];
        let block = aligned(&mut memory);
        let file = open(self.path, true)?;
        let mut last = vec![0_u32; usize::try_from(self.blocks).unwrap_or(0)];
        let mut chance = Chance::new(rank);
        for generation in 1.. {
            if self.stop.load(Ordering::Relaxed) {
                break;
            }
            let own = chance.below(self.blocks);
            let number = rank * self.blocks + own;
            content(block, number, generation);
            let offset = number * BLOCK as u64;
            file.write_all_at(block, offset).map_err(|error| format!("write at {offset}: {error}"))?;
            if let Some(last) = last.get_mut(usize::try_from(own).unwrap_or(usize::MAX)) {
                *last = generation;
            }
            self.written.fetch_add(1, Ordering::Relaxed);
        }
        Ok(last)
    }

    fn verify(&self, rank: u64, last: &[u32]) -> Outcome<()> {
        let file = open(self.path, false)?;
        let (mut found, mut expected) = (vec![0; BLOCK], vec![0; BLOCK]);
        for (generation, number) in last.iter().zip(rank * self.blocks..) {
            let offset = number * BLOCK as u64;
            file.read_exact_at(&mut found, offset).map_err(|error| format!("read at {offset}: {error}"))?;
            content(&mut expected, number, *generation);
            if found != expected {
                return Err(format!("block at {offset} does not hold its last write, number {generation}"));
            }
        }
        Ok(())
    }
}

/// What write number `generation` leaves in block `number`.
fn content(block: &mut [u8], number: u64, generation: u32) {
    let mut chance = Chance::new(number << 32 | u64::from(generation));
    for word in block.chunks_exact_mut(8) {
        word.copy_from_slice(&chance.bits().to_le_bytes());
    }
}

fn aligned(memory: &mut [u8]) -> &mut [u8] {
    let skip = memory.as_ptr().align_offset(BLOCK);
    &mut memory[skip..skip + BLOCK]
}

fn open(path: &Path, direct: bool) -> Outcome<File> {
    let flags = if direct { OFlags::DIRECT.bits().cast_signed() } else { 0 };
    let file = OpenOptions::new().read(true).write(true).custom_flags(flags).open(path);
    file.map_err(|error| format!("{}: {error}", path.display()))
}

/// The file, as if each block had been written once.
pub fn lay(path: &Path, blocks: u64) -> Outcome<()> {
    let say = |error: std::io::Error| format!("{}: {error}", path.display());
    let file = File::create(path).map_err(say)?;
    let mut piece = vec![0; BLOCK * usize::try_from(BLOCKS_PER_PIECE).unwrap_or(1)];
    for first in (0..blocks).step_by(usize::try_from(BLOCKS_PER_PIECE).unwrap_or(1)) {
        for (block, number) in piece.chunks_exact_mut(BLOCK).zip(first..) {
            content(block, number, 0);
        }
        file.write_all_at(&piece, first * BLOCK as u64).map_err(say)?;
    }
    file.sync_all().map_err(say)
}

/// Takes space until `percent` of the file system are used.
pub fn fill(dir: &Path, percent: u64) -> Outcome<()> {
    let path = dir.join("ballast");
    let say = |error: std::io::Error| format!("{}: {error}", path.display());
    let space = rustix::fs::statvfs(dir).map_err(|error| format!("{}: {error}", dir.display()))?;
    let used = (space.f_blocks - space.f_bfree) * space.f_frsize;
    let wanted = (space.f_blocks * space.f_frsize / 100 * percent).saturating_sub(used);
    let file = File::create(&path).map_err(say)?;
    let mut piece = vec![0; 1 << 20];
    for number in 0..wanted >> 20 {
        content(&mut piece, u64::MAX - number, 0);
        file.write_all_at(&piece, number << 20).map_err(say)?;
    }
    println!("{} MiB used before, {} MiB of ballast: {percent} % full", used >> 20, wanted >> 20);
    file.sync_all().map_err(say)
}
