//! Reading a part of an object: which bytes to get, and what is in them.

use std::ops::Range;

use braid_base::crc::crc32c;
use braid_base::limits::BLOCK;
use braid_base::{Error, ErrorKind, Result};
use bytes::Bytes;

use super::{BLOCK_BYTES, Block, DATA_MAX, Descriptor, Entry, PIECE, PIECE_WHOLE};

/// A range of an object's data, and the bytes of the object that prove it: from the descriptor of its first piece up to
/// the last block that it touches.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Span {
    data: Range<u64>,
}

impl Span {
    /// Bytes `data` of an object's data. Panics if it is empty or ends beyond [`DATA_MAX`].
    pub fn new(data: Range<u64>) -> Self {
        assert!(data.start < data.end && data.end <= DATA_MAX, "bytes {data:?} of an object's data");
        Self { data }
    }

    /// What to get of the object. A range inside one piece takes at most 1 MiB + 4 KiB.
    pub fn object(&self) -> Range<u64> {
        let last = self.data.end.next_multiple_of(BLOCK_BYTES) - BLOCK_BYTES;
        descriptor_at(self.data.start)..data_at(last) + BLOCK_BYTES
    }

    /// Bytes `wanted` of the object's data, which lie in this span, out of what [`Self::object`] named; one part for
    /// each piece, not copied. Every block that they touch is checked against its checksum. If `first` is given, the
    /// blocks must be that block of that file and those that follow it in the file.
    ///
    /// `Corrupt` names the place in the object. `Range`: `got` has another length than the span.
    pub fn extract(&self, got: &Bytes, wanted: Range<u64>, first: Option<Block>) -> Result<Vec<Bytes>> {
        let inside = self.data.start <= wanted.start && wanted.start < wanted.end && wanted.end <= self.data.end;
        assert!(inside, "bytes {wanted:?} are not in {:?} of the object's data", self.data);
        let object = self.object();
        if got.len() as u64 != object.end - object.start {
            let (expected, found) = (object.end - object.start, got.len());
            let words = format!("expected {expected} bytes of the object from byte {} on, found {found}", object.start);
            return Err(Error::new(ErrorKind::Range, words));
        }
        let (mut parts, mut at) = (Vec::new(), wanted.start);
        while at < wanted.end {
            let end = wanted.end.min(at - at % PIECE + PIECE);
            let passed = at / BLOCK_BYTES - wanted.start / BLOCK_BYTES;
            let first = first.map(|first| Block { block: first.block + passed, ..first });
            self.check(got, &(at..end), first)?;
            parts.push(got.slice(self.place(data_at(at))..self.place(data_at(end - 1)) + 1));
            at = end;
        }
        Ok(parts)
    }

    /// All of the span, in one part for each piece.
    pub fn whole(&self, got: &Bytes, first: Option<Block>) -> Result<Vec<Bytes>> {
        self.extract(got, self.data.clone(), first)
    }

    /// Checks the blocks that `range`, inside one piece, touches.
    fn check(&self, got: &Bytes, range: &Range<u64>, first: Option<Block>) -> Result<()> {
        match self.faults(got, range, first).next() {
            Some((at, words)) => Err(Error::new(ErrorKind::Corrupt, format!("byte {at} of the object: {words}"))),
            None => Ok(()),
        }
    }

    /// What is wrong with the blocks that `range`, inside one piece, touches: where in the object, and how.
    pub(crate) fn faults<'a>(
        &'a self,
        got: &'a Bytes,
        range: &Range<u64>,
        first: Option<Block>,
    ) -> impl Iterator<Item = (u64, String)> + 'a {
        let piece = range.start - range.start % PIECE;
        let descriptor = self.place(descriptor_at(piece));
        let descriptor = Descriptor::decode(&got[descriptor..descriptor + BLOCK]);
        let blocks = (range.start - piece) / BLOCK_BYTES..(range.end - piece).div_ceil(BLOCK_BYTES);
        blocks.enumerate().filter_map(move |(passed, block)| {
            let at = data_at(piece + block * BLOCK_BYTES);
            let bytes = &got[self.place(at)..self.place(at) + BLOCK];
            let expected = first.map(|first| Block { block: first.block + passed as u64, ..first });
            Some((at, fault(bytes, descriptor.entries().get(block as usize), expected)?))
        })
    }

    /// Where byte `at` of the object is in what was got.
    fn place(&self, at: u64) -> usize {
        (at - self.object().start) as usize
    }
}

/// What is wrong with a block of which the descriptor says `entry`; none: nothing.
fn fault(bytes: &[u8], entry: Option<&Entry>, expected: Option<Block>) -> Option<String> {
    let Some(Entry { block: found, crc }) = entry else {
        return Some("expected a block, found that the descriptor has none".to_owned());
    };
    if let Some(Block { ino, block }) = expected.filter(|expected| expected != found) {
        return Some(format!("expected block {block} of {ino}, found block {} of {}", found.block, found.ino));
    }
    let actual = crc32c(bytes);
    (actual != *crc).then(|| format!("expected checksum {crc:08x} by its descriptor, found {actual:08x}"))
}

/// Where the descriptor of the piece lies that holds byte `at` of the data.
pub(crate) fn descriptor_at(at: u64) -> u64 {
    BLOCK_BYTES + at / PIECE * PIECE_WHOLE
}

/// Where byte `at` of the data lies in the object.
pub(crate) fn data_at(at: u64) -> u64 {
    descriptor_at(at) + BLOCK_BYTES + at % PIECE
}
