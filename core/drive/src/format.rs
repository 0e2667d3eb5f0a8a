//! The bytes of a drive: one file per structure, each drawn above its type.

pub mod header;
pub mod page;
pub mod superblock;
#[cfg(test)]
mod tests;

use braid_base::crc::crc32c_parts;
use braid_base::limits::BLOCK;
use braid_io::buf::AlignedBuf;
use bytes::Bytes;

/// `fields` in a block of zeros, with the CRC32C of the rest of the block at `crc_at`.
fn seal(fields: &[u8], crc_at: usize) -> Bytes {
    let mut block = AlignedBuf::zeroed(BLOCK);
    block[..fields.len()].copy_from_slice(fields);
    let crc = crc_around(&block, crc_at);
    block[crc_at..crc_at + 4].copy_from_slice(&crc.to_le_bytes());
    block.into_bytes()
}

/// True if the CRC32C at `crc_at` is that of the rest of the block.
fn is_sealed(block: &[u8], crc_at: usize) -> bool {
    block.len() == BLOCK && block[crc_at..crc_at + 4] == crc_around(block, crc_at).to_le_bytes()
}

fn crc_around(block: &[u8], crc_at: usize) -> u32 {
    crc32c_parts(&[&block[..crc_at], &[0; 4], &block[crc_at + 4..]])
}

fn is_zero(block: &[u8]) -> bool {
    block.iter().all(|byte| *byte == 0)
}
