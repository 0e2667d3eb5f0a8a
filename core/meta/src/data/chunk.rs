//! Names of files and chunks inside the partition, and which chunks of a file hold anything.

use braid_base::ids::{Chunk, FsId, Index, Ino, Layer};
use braid_base::keys;
use braid_base::limits::CHUNK;

use crate::txn::Txn;

/// A file in one layer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct FileId {
    pub fs: FsId,
    pub ino: Ino,
    pub layer: Layer,
}

/// A chunk of a file in one layer. The order is the order of the file's bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct ChunkId {
    pub file: FileId,
    pub chunk: Chunk,
}

impl FileId {
    /// The file in the only layer there is yet.
    pub fn first(fs: FsId, ino: Ino) -> Self {
        Self { fs, ino, layer: Layer::FIRST }
    }

    /// One of its chunks.
    pub fn chunk(self, chunk: Chunk) -> ChunkId {
        ChunkId { file: self, chunk }
    }
}

impl ChunkId {
    /// File offset of its first byte.
    pub fn start(self) -> u64 {
        u64::from(self.chunk.0) * CHUNK
    }

    /// Key of its base.
    pub fn base_key(self, t: &Txn<'_>) -> Vec<u8> {
        keys::base(t.partition, self.file.fs, self.file.ino, self.chunk, self.file.layer)
    }

    /// Key of one of its slices.
    pub fn slice_key(self, t: &Txn<'_>, at: Index, sub: u16) -> Vec<u8> {
        keys::slice(t.partition, self.file.fs, self.file.ino, self.chunk, self.file.layer, at, sub)
    }

    /// The part of the file's bytes `[from, to)` in this chunk, as offsets within it; `None` if there is none.
    pub fn clip(self, from: u64, to: u64) -> Option<(u32, u32)> {
        let start = self.start();
        let (from, to) = (from.max(start) - start, to.min(start + CHUNK).saturating_sub(start));
        (from < to).then_some((from as u32, to as u32))
    }
}

/// The chunk that byte `off` of a file is in. `off` is at most FILE_MAX.
pub(crate) fn chunk_at(off: u64) -> Chunk {
    Chunk(u32::try_from(off / CHUNK).unwrap_or(u32::MAX))
}

/// The pieces of the bytes `[off, off+len)` of a file, cut at chunk borders: chunk, offset within it, length.
pub(crate) fn pieces(off: u64, len: u64) -> impl Iterator<Item = (Chunk, u32, u32)> {
    let end = off + len;
    let mut at = off;
    std::iter::from_fn(move || {
        if at >= end {
            return None;
        }
        let (chunk, within) = (chunk_at(at), at % CHUNK);
        let take = (CHUNK - within).min(end - at);
        at += take;
        Some((chunk, within as u32, take as u32))
    })
}
