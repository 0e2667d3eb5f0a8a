//! Memory that direct I/O accepts: 4 KiB-aligned, recycled, and handed on as [`Bytes`] without a copy.

use std::alloc::{Layout, alloc, dealloc, handle_alloc_error};
use std::mem::MaybeUninit;
use std::ops::{Deref, DerefMut};
use std::os::fd::BorrowedFd;
use std::ptr::NonNull;
use std::sync::{Mutex, PoisonError};

use braid_base::limits::BLOCK;
use bytes::Bytes;

/// Alignment of every buffer, and of offsets and lengths of direct I/O, bytes.
pub const ALIGN: usize = BLOCK;
/// Largest buffer that is recycled, bytes: 8 MiB covers the largest I/O of ordinary work.
const POOLED_MAX: usize = 8 << 20;
/// Size classes 4 KiB, 8 KiB, ... 8 MiB.
const CLASSES: usize = (POOLED_MAX / ALIGN).trailing_zeros() as usize + 1;
/// Most idle memory kept, bytes. Beyond it buffers go back to the allocator.
const IDLE_MAX: usize = 64 << 20;

/// A growable-in-place byte buffer whose base is aligned to [`ALIGN`]. Like a `Vec<u8>` of fixed capacity.
pub struct AlignedBuf {
    base: NonNull<u8>,
    capacity: usize,
    len: usize,
}

// SAFETY: the buffer owns its memory alone; there is no shared or thread-bound state behind the pointer.
unsafe impl Send for AlignedBuf {}
// SAFETY: `&AlignedBuf` only allows reads of initialised bytes.
unsafe impl Sync for AlignedBuf {}

impl AlignedBuf {
    /// An empty buffer with room for at least `bytes` (rounded up to a power of two of blocks).
    pub fn with_capacity(bytes: usize) -> Self {
        let capacity = class_bytes(bytes);
        let base = pool().take(capacity).unwrap_or_else(|| allocate(capacity));
        Self { base, capacity, len: 0 }
    }

    /// `len` zero bytes.
    pub fn zeroed(len: usize) -> Self {
        let mut buf = Self::with_capacity(len);
        for byte in &mut buf.spare()[..len] {
            byte.write(0);
        }
        // SAFETY: the loop above initialised the first `len` bytes.
        unsafe { buf.set_len(len) };
        buf
    }

    /// A copy of `bytes`.
    pub fn copy_of(bytes: &[u8]) -> Self {
        let mut buf = Self::with_capacity(bytes.len());
        buf.extend(bytes);
        buf
    }

    /// Appends a copy of `bytes`, which must fit the capacity.
    pub fn extend(&mut self, bytes: &[u8]) {
        assert!(bytes.len() <= self.capacity - self.len, "an aligned buffer does not grow");
        // SAFETY: the range is inside the allocation (asserted), and a fresh exclusive borrow cannot overlap `bytes`.
        unsafe { self.base.as_ptr().add(self.len).copy_from_nonoverlapping(bytes.as_ptr(), bytes.len()) };
        self.len += bytes.len();
    }

    /// Bytes that fit.
    pub fn capacity(&self) -> usize {
        self.capacity
    }

    /// The part not yet written.
    pub fn spare(&mut self) -> &mut [MaybeUninit<u8>] {
        // SAFETY: `len..capacity` is inside the allocation and exclusively borrowed; MaybeUninit asks no initialisation.
        unsafe { std::slice::from_raw_parts_mut(self.base.as_ptr().add(self.len).cast(), self.capacity - self.len) }
    }

    /// Declares the first `len` bytes written.
    ///
    /// # Safety
    /// They must have been initialised, by the caller or by the kernel, and fit the capacity.
    pub unsafe fn set_len(&mut self, len: usize) {
        assert!(len <= self.capacity, "length {len} beyond capacity {}", self.capacity);
        self.len = len;
    }

    /// Reads at most `most` bytes from `fd` (a socket) behind what is there. 0: the other side has closed, or there
    /// is no room.
    pub fn read_from(&mut self, fd: BorrowedFd<'_>, most: usize) -> std::io::Result<usize> {
        let room = self.spare();
        let most = most.min(room.len());
        let (read, _) = rustix::io::read(fd, &mut room[..most])?;
        let read = read.len();
        // SAFETY: the kernel has written `read` bytes behind the first `len`, inside the capacity.
        unsafe { self.set_len(self.len + read) };
        Ok(read)
    }

    /// Takes the first `count` bytes away; the others move to the front.
    pub fn consume(&mut self, count: usize) {
        self.copy_within(count.., 0);
        // `copy_within` has checked that `count` is not beyond the length.
        self.len -= count;
    }

    /// Hands the bytes on without a copy; the memory is recycled when the last clone is dropped.
    pub fn into_bytes(self) -> Bytes {
        Bytes::from_owner(self)
    }
}

/// `bytes` with an aligned base: itself if it has one already, else a copy.
pub fn aligned(bytes: &Bytes) -> Bytes {
    if is_aligned(bytes) { bytes.clone() } else { AlignedBuf::copy_of(bytes).into_bytes() }
}

/// True if direct I/O may read from or write to this memory.
pub fn is_aligned(bytes: &[u8]) -> bool {
    bytes.as_ptr().addr().is_multiple_of(ALIGN)
}

/// All `parts` behind each other in one aligned buffer.
pub fn gather(parts: &[Bytes]) -> Bytes {
    let mut buf = AlignedBuf::with_capacity(parts.iter().map(Bytes::len).sum());
    for part in parts {
        buf.extend(part);
    }
    buf.into_bytes()
}

impl Deref for AlignedBuf {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        // SAFETY: the first `len` bytes are initialised and owned by self.
        unsafe { std::slice::from_raw_parts(self.base.as_ptr(), self.len) }
    }
}

impl DerefMut for AlignedBuf {
    fn deref_mut(&mut self) -> &mut [u8] {
        // SAFETY: the first `len` bytes are initialised and owned by self, exclusively borrowed here.
        unsafe { std::slice::from_raw_parts_mut(self.base.as_ptr(), self.len) }
    }
}

impl AsRef<[u8]> for AlignedBuf {
    fn as_ref(&self) -> &[u8] {
        self
    }
}

impl Drop for AlignedBuf {
    fn drop(&mut self) {
        if !pool().give(self.base, self.capacity) {
            // SAFETY: `base` came from `allocate(capacity)` and nothing refers to it any more.
            unsafe { dealloc(self.base.as_ptr(), layout(self.capacity)) };
        }
    }
}

/// Idle buffers by size class. One lock for all: it is held for a push or a pop only.
struct Pool {
    idle: Mutex<Idle>,
}

struct Idle {
    classes: [Vec<NonNull<u8>>; CLASSES],
    bytes: usize,
}

// SAFETY: the pointers are unique owners of idle memory; they are only moved in and out under the lock.
unsafe impl Send for Idle {}

fn pool() -> &'static Pool {
    static POOL: Pool = Pool { idle: Mutex::new(Idle { classes: [const { Vec::new() }; CLASSES], bytes: 0 }) };
    &POOL
}

impl Pool {
    fn take(&self, capacity: usize) -> Option<NonNull<u8>> {
        let mut idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner);
        let base = idle.classes.get_mut(class_of(capacity))?.pop()?;
        idle.bytes -= capacity;
        Some(base)
    }

    /// False if the caller has to free the memory.
    fn give(&self, base: NonNull<u8>, capacity: usize) -> bool {
        let mut idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner);
        if idle.bytes + capacity > IDLE_MAX || class_of(capacity) >= CLASSES {
            return false;
        }
        idle.bytes += capacity;
        idle.classes[class_of(capacity)].push(base);
        true
    }
}

fn class_bytes(bytes: usize) -> usize {
    if bytes <= POOLED_MAX { bytes.max(ALIGN).next_power_of_two() } else { bytes.next_multiple_of(ALIGN) }
}

/// The class of a capacity made by [`class_bytes`]; `CLASSES` or more if it is not pooled.
fn class_of(capacity: usize) -> usize {
    if capacity > POOLED_MAX { CLASSES } else { (capacity / ALIGN).trailing_zeros() as usize }
}

fn layout(capacity: usize) -> Layout {
    Layout::from_size_align(capacity, ALIGN).expect("a buffer is far smaller than the address space")
}

fn allocate(capacity: usize) -> NonNull<u8> {
    let layout = layout(capacity);
    // SAFETY: the layout has a non-zero size (`class_bytes` gives at least one block).
    let base = unsafe { alloc(layout) };
    NonNull::new(base).unwrap_or_else(|| handle_alloc_error(layout))
}

#[cfg(test)]
mod tests {
    use super::{ALIGN, AlignedBuf, aligned, gather, is_aligned};
    use bytes::Bytes;

    #[test]
    fn buffers_are_aligned_and_keep_their_bytes() {
        for len in [0, 1, 4096, 5000, 1 << 20, (8 << 20) + 1] {
            let mut buf = AlignedBuf::zeroed(len);
            assert!(is_aligned(&buf) && buf.len() == len && buf.capacity() >= len.max(ALIGN));
            if let Some(last) = buf.last_mut() {
                *last = 7;
            }
            let bytes = buf.into_bytes();
            assert_eq!(bytes.last().copied(), (len > 0).then_some(7));
            assert!(is_aligned(&bytes));
        }
    }

    #[test]
    fn aligned_copies_only_if_it_must() {
        let good = AlignedBuf::zeroed(8192).into_bytes();
        assert_eq!(aligned(&good).as_ptr(), good.as_ptr());
        let bad = good.slice(1..);
        let fixed = aligned(&bad);
        assert!(is_aligned(&fixed) && fixed == bad);
        assert_eq!(gather(&[Bytes::from_static(b"ab"), Bytes::from_static(b"c")]), "abc");
    }
}
