//! Memory for requests. A large write's buffer becomes its data: the bytes are not copied again, and the memory comes
//! back when the last user of the data lets go.

use std::sync::{Arc, Mutex, PoisonError};

use bytes::Bytes;

use super::abi::{IN_HEADER_BYTES, WRITE_IN_BYTES};

/// Data of at least this many bytes keeps its buffer; less is copied out, so that a small write that is kept for
/// long does not keep the memory of a large one.
const KEPT_BYTES: usize = 256 << 10;
/// Buffers kept for the next requests: about what a client holds back, because memory that is new to the process costs
/// more than the copy that is saved.
const FREE_MAX: usize = 64;
/// The data of a write begins at a multiple of this: copies and direct I/O are fastest so.
const PAGE_BYTES: usize = 4096;
/// What stands before the data of a write.
const BEFORE_DATA: usize = IN_HEADER_BYTES + WRITE_IN_BYTES;

/// Free buffers of one mount.
#[derive(Debug)]
pub(crate) struct Pool {
    /// Most bytes of data in one write.
    data_bytes: usize,
    free: Mutex<Vec<Vec<u8>>>,
}

/// Room for one request.
#[derive(Debug)]
pub(crate) struct Buffer {
    bytes: Vec<u8>,
    start: usize,
    pool: Arc<Pool>,
}

impl Pool {
    pub(crate) fn new(data_bytes: usize) -> Arc<Self> {
        Arc::new(Self { data_bytes, free: Mutex::default() })
    }

    pub(crate) fn buffer(self: &Arc<Self>) -> Buffer {
        let free = self.free.lock().unwrap_or_else(PoisonError::into_inner).pop();
        let bytes = free.unwrap_or_else(|| vec![0; 2 * PAGE_BYTES + self.data_bytes]);
        let start = bytes.as_ptr().align_offset(PAGE_BYTES) + PAGE_BYTES - BEFORE_DATA;
        Buffer { bytes, start, pool: Arc::clone(self) }
    }

    fn give_back(&self, bytes: Vec<u8>) {
        let mut free = self.free.lock().unwrap_or_else(PoisonError::into_inner);
        if free.len() < FREE_MAX {
            free.push(bytes);
        }
    }
}

impl Buffer {
    /// Where the kernel writes a request.
    pub(crate) fn room(&mut self) -> &mut [u8] {
        let end = self.start + BEFORE_DATA + self.pool.data_bytes;
        &mut self.bytes[self.start..end]
    }

    /// The first `len` bytes of the request.
    pub(crate) fn request(&self, len: usize) -> &[u8] {
        &self.bytes[self.start..self.start + len]
    }

    /// The `len` bytes of data of the write that is in the buffer, which is then free for the next request.
    pub(crate) fn take_data(&mut self, len: usize) -> Bytes {
        let data = self.start + BEFORE_DATA..self.start + BEFORE_DATA + len;
        if len < KEPT_BYTES {
            return Bytes::copy_from_slice(&self.bytes[data]);
        }
        let next = self.pool.buffer();
        Bytes::from_owner(std::mem::replace(self, next)).slice(data)
    }
}

impl AsRef<[u8]> for Buffer {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        self.pool.give_back(std::mem::take(&mut self.bytes));
    }
}

#[cfg(test)]
mod tests {
    use super::{BEFORE_DATA, FREE_MAX, KEPT_BYTES, PAGE_BYTES, Pool};

    #[test]
    fn large_data_is_not_copied_and_its_memory_comes_back() {
        let pool = Pool::new(1 << 20);
        let mut buffer = pool.buffer();
        assert_eq!(buffer.room().len(), BEFORE_DATA + (1 << 20));
        buffer.room()[BEFORE_DATA..BEFORE_DATA + KEPT_BYTES].fill(7);
        let at = buffer.room()[BEFORE_DATA..].as_ptr();
        let data = buffer.take_data(KEPT_BYTES);
        assert!(data.as_ptr() == at && data.len() == KEPT_BYTES && data.iter().all(|byte| *byte == 7));
        assert_eq!(at as usize % PAGE_BYTES, 0);
        assert_ne!(buffer.room()[BEFORE_DATA..].as_ptr(), at, "the next request goes elsewhere");
        let tail = data.slice(1..);
        drop(data);
        assert!(pool.free.lock().expect("no panic").is_empty(), "someone still reads it");
        drop(tail);
        assert_eq!(pool.buffer().room()[BEFORE_DATA..].as_ptr(), at);
    }

    #[test]
    fn small_data_is_copied_and_the_pool_is_bounded() {
        let pool = Pool::new(1 << 20);
        let mut buffer = pool.buffer();
        buffer.room()[BEFORE_DATA..BEFORE_DATA + 3].copy_from_slice(b"abc");
        let data = buffer.take_data(3);
        buffer.room().fill(0);
        assert_eq!((&data[..], buffer.request(2)), (&b"abc"[..], &[0, 0][..]));
        drop((0..2 * FREE_MAX).map(|_| pool.buffer()).collect::<Vec<_>>());
        assert_eq!(pool.free.lock().expect("no panic").len(), FREE_MAX);
    }
}
