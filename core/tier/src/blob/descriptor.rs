//! The descriptor of a piece: what each of its blocks is.

use braid_base::ids::Ino;
use braid_base::limits::BLOCK;
use bytes::Bytes;

use super::{BLOCK_MAX, Block, INO_MAX, PIECE_BLOCKS};

/// Bytes of one entry.
pub(super) const ENTRY: usize = 16;

/// One entry for each 4 KiB block of a piece, in order; of blocks that are not there, zeros.
///
/// ```text
/// 256 x  0                                   8                 12             16
///        | ino << 4 | file block >> 32   u64 | file block  u32 | crc32c   u32 |
/// ```
///
/// It has no checksum of its own: a wrong entry does not match its block or what a reader looks for, and the header
/// has the checksum of each descriptor for those who look for nothing in particular.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Descriptor {
    entries: Vec<Entry>,
}

/// What one block is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entry {
    /// The file and its block.
    pub block: Block,
    /// CRC32C of the 4 KiB.
    pub crc: u32,
}

impl Descriptor {
    /// The descriptor of a piece of `blocks`, at most 256, with as many checksums.
    pub(super) fn new(blocks: &[Block], crcs: &[u32]) -> Self {
        assert!(blocks.len() == crcs.len() && blocks.len() <= PIECE_BLOCKS, "one checksum for each block of a piece");
        let entry = |(block, crc): (&Block, &u32)| Entry { block: *block, crc: *crc };
        Self { entries: blocks.iter().zip(crcs).map(entry).collect() }
    }

    /// The 4 KiB to write.
    pub(super) fn encode(&self) -> Bytes {
        let mut block = vec![0; BLOCK];
        for (place, entry) in block.chunks_exact_mut(ENTRY).zip(&self.entries) {
            let Block { ino, block } = entry.block;
            assert!(ino.0 > 0 && ino.0 <= INO_MAX && block <= BLOCK_MAX, "{ino} block {block} has too many bits");
            place[..8].copy_from_slice(&(ino.0 << 4 | block >> 32).to_le_bytes());
            place[8..12].copy_from_slice(&(block as u32).to_le_bytes());
            place[12..].copy_from_slice(&entry.crc.to_le_bytes());
        }
        block.into()
    }

    /// The entries that `block` has, up to the first unused one. Any bytes will do: what they say is proven by the
    /// data, or by the checksum in the header.
    pub fn decode(block: &[u8]) -> Self {
        Self { entries: block.chunks_exact(ENTRY).take(PIECE_BLOCKS).map_while(entry).collect() }
    }

    /// What the blocks of the piece are, in order.
    pub fn entries(&self) -> &[Entry] {
        &self.entries
    }
}

/// What the 16 bytes say; none: unused.
fn entry(bytes: &[u8]) -> Option<Entry> {
    let (place, rest) = bytes.split_first_chunk::<8>()?;
    let (low, rest) = rest.split_first_chunk::<4>()?;
    let crc = rest.first_chunk::<4>()?;
    let (place, low) = (u64::from_le_bytes(*place), u32::from_le_bytes(*low));
    let block = Block { ino: Ino(place >> 4), block: (place & 0xF) << 32 | u64::from(low) };
    (block.ino.0 > 0).then_some(Entry { block, crc: u32::from_le_bytes(*crc) })
}
