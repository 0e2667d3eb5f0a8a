//! The bytes of an object, and its key.
//!
//! ```text
//! | header 4 KiB | descriptor 4 KiB | 1 MiB of data | descriptor | data | ... | footer 4 KiB = the header again |
//! ```
//!
//! A piece is a descriptor and the data behind it. One read of a piece proves itself: the descriptor tells file, block
//! and checksum of each of its 4 KiB blocks, so whoever knows the object and the place in its data needs neither
//! header nor footer. Those tell of the object to whoever knows nothing but its key.

mod descriptor;
mod header;
pub mod keys;
mod span;
#[cfg(test)]
mod tests;

use braid_base::crc::{block_crcs, crc32c, crc32c_parts};
use braid_base::ids::Ino;
use braid_base::limits::BLOCK;
use bytes::{Buf, Bytes};

pub use descriptor::{Descriptor, Entry};
pub use header::{Head, Header};
pub use span::Span;
pub(crate) use span::{data_at, descriptor_at};

/// Data of one piece, bytes; the last one of an object may have less.
pub const PIECE: u64 = 1 << 20;
/// Most data of one object, bytes.
pub const DATA_MAX: u64 = 64 << 20;
/// Largest block number of a file in an object: it has 36 bits there. What a file has beyond its first 256 TiB (it may
/// have 4 PiB) cannot be put into objects and stays where it is.
pub const BLOCK_MAX: u64 = (1 << 36) - 1;
/// Largest inode number: it has 60 bits.
pub const INO_MAX: u64 = (1 << 60) - 1;

const BLOCK_BYTES: u64 = BLOCK as u64;
/// A piece with its descriptor.
const PIECE_WHOLE: u64 = BLOCK_BYTES + PIECE;
const PIECE_BLOCKS: usize = (PIECE / BLOCK_BYTES) as usize;

const _: () = assert!(PIECE_BLOCKS * descriptor::ENTRY == BLOCK);
const _: () = assert!(header::FIELDS + (DATA_MAX / PIECE) as usize * 4 < BLOCK);

/// Which 4 KiB a block of an object holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Block {
    /// The file; not 0.
    pub ino: Ino,
    /// Its 4 KiB block, from 0; of 36 bits.
    pub block: u64,
}

/// The bytes of an object in order, in parts: `data` is not copied.
///
/// `blocks` says what each 4 KiB of `data` is; `data` may be in pieces of any length. What of a file's block is not
/// held is zeros in `data`. Panics if the lengths do not agree with each other and with the header, or a number has
/// too many bits.
pub fn build(header: &Header, blocks: &[Block], data: &[Bytes]) -> Vec<Bytes> {
    let bytes: u64 = data.iter().map(|part| part.len() as u64).sum();
    assert!(header.data_len == bytes, "the header has {} bytes of data, there are {bytes}", header.data_len);
    assert!(blocks.len() as u64 * BLOCK_BYTES == bytes, "{} blocks for {bytes} bytes of data", blocks.len());
    let (mut left, mut pieces, mut descriptors) = (Parts::new(data), Vec::new(), Vec::new());
    for blocks in blocks.chunks(PIECE_BLOCKS) {
        let parts = left.take(blocks.len() * BLOCK);
        let descriptor = Descriptor::new(blocks, &crcs_of(&parts)).encode();
        descriptors.push(crc32c(&descriptor));
        pieces.push(descriptor);
        pieces.extend(parts);
    }
    let inos = inos(blocks);
    let (Some(first), Some(last)) = (inos.first(), inos.last()) else { panic!("an object without blocks") };
    let head = Head { header: *header, inos: *first..=*last, files: inos.len() as u32, descriptors }.encode();
    let mut object = vec![head.clone()];
    object.append(&mut pieces);
    object.push(head);
    object
}

/// Bytes of an object with `data_len` bytes of data; `data_len` at most [`DATA_MAX`].
pub const fn object_len(data_len: u64) -> u64 {
    BLOCK_BYTES + data_len.div_ceil(PIECE) * BLOCK_BYTES + data_len + BLOCK_BYTES
}

/// Bytes of data of an object of `len` bytes whose header is lost; less than a block between its parts is left out.
pub fn data_len(len: u64) -> u64 {
    let pieces = len.saturating_sub(2 * BLOCK_BYTES);
    let last = (pieces % PIECE_WHOLE).saturating_sub(BLOCK_BYTES);
    (pieces / PIECE_WHOLE * PIECE + last - last % BLOCK_BYTES).min(DATA_MAX)
}

/// The different files of `blocks`, in order.
fn inos(blocks: &[Block]) -> Vec<Ino> {
    let mut inos: Vec<Ino> = blocks.iter().map(|block| block.ino).collect();
    // Nearly all lie behind another one of their file.
    inos.dedup();
    inos.sort_unstable();
    inos.dedup();
    inos
}

/// The checksum of each 4 KiB of `parts` one after another; they are whole blocks together.
fn crcs_of(parts: &[Bytes]) -> Vec<u32> {
    if parts.iter().all(|part| part.len().is_multiple_of(BLOCK)) {
        return parts.iter().flat_map(|part| block_crcs(part)).collect();
    }
    let mut left = Parts::new(parts);
    let blocks: usize = parts.iter().map(Bytes::len).sum::<usize>() / BLOCK;
    let crc = |parts: Vec<Bytes>| crc32c_parts(&parts.iter().map(|part| &part[..]).collect::<Vec<_>>());
    (0..blocks).map(|_| crc(left.take(BLOCK))).collect()
}

/// Bytes in parts, taken off the front.
struct Parts<'a> {
    first: Bytes,
    rest: &'a [Bytes],
}

impl<'a> Parts<'a> {
    fn new(parts: &'a [Bytes]) -> Self {
        Self { first: Bytes::new(), rest: parts }
    }

    /// The next `len` bytes; there are as many.
    fn take(&mut self, mut len: usize) -> Vec<Bytes> {
        let mut taken = Vec::new();
        while len > 0 {
            if !self.first.has_remaining() {
                let (first, rest) = self.rest.split_first().expect("the lengths were compared");
                (self.first, self.rest) = (first.clone(), rest);
                continue;
            }
            let part = self.first.split_to(len.min(self.first.len()));
            len -= part.len();
            taken.push(part);
        }
        taken
    }
}
