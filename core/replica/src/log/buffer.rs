//! One group of records in memory that the kernel can write directly: aligned, whole blocks.

use braid_base::limits::BLOCK;
use bytes::Bytes;

/// Collects bytes at an address that is a multiple of 4096.
pub struct AlignedBuffer {
    bytes: Vec<u8>,
    start: usize,
}

impl AlignedBuffer {
    /// Room for `capacity` bytes; must not be exceeded.
    pub fn new(capacity: usize) -> Self {
        let room = capacity.next_multiple_of(BLOCK) + BLOCK;
        let mut bytes: Vec<u8> = Vec::with_capacity(room);
        // The address cannot change later, because the capacity is never exceeded.
        let start = bytes.as_ptr().align_offset(BLOCK).min(BLOCK);
        bytes.resize(start, 0);
        Self { bytes, start }
    }

    /// Appends `more`.
    pub fn put(&mut self, more: &[u8]) {
        assert!(self.bytes.len() + more.len() <= self.bytes.capacity(), "the group was measured before");
        self.bytes.extend_from_slice(more);
    }

    /// Bytes so far.
    pub fn len(&self) -> usize {
        self.bytes.len() - self.start
    }

    /// True if nothing was put.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The bytes, padded with zeros to whole blocks; the address is a multiple of 4096.
    pub fn finish(mut self) -> Bytes {
        let end = self.start + self.len().next_multiple_of(BLOCK);
        assert!(end <= self.bytes.capacity(), "the capacity has room for the padding");
        self.bytes.resize(end, 0);
        Bytes::from(self.bytes).slice(self.start..)
    }
}

#[cfg(test)]
mod tests {
    use super::AlignedBuffer;

    #[test]
    fn is_aligned_and_padded() {
        for len in [0, 1, 4095, 4096, 4097, 100_000] {
            let mut buffer = AlignedBuffer::new(len);
            buffer.put(&vec![7; len]);
            let bytes = buffer.finish();
            assert_eq!(bytes.as_ptr().align_offset(4096), 0);
            assert_eq!(bytes.len(), len.next_multiple_of(4096));
            assert!(bytes[..len].iter().all(|b| *b == 7) && bytes[len..].iter().all(|b| *b == 0));
        }
    }
}
