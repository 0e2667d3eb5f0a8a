//! A global allocator that puts large blocks into huge pages, and leaves the others to another allocator (decision 43).
//!
//! Streams touch their buffers from end to end, and huge pages make that cheap. What is small lies scattered: there a
//! huge page for a few bytes is 2 MiB to be cleared. So blocks of 64 KiB to 8 MiB come from here, all others from the
//! allocator behind, which is to stay with small pages.
//!
//! ```text
//!   free ──► idle (at most 64 MiB in all) ──► taken again as they are
//!      └──► empty: their memory is given up, all but the first page ──► touched anew when they are taken
//! ```
//!
//! Where little is left, idle blocks of another size make room. Memory that is given up goes back to the system at once if
//! it was a huge page of its own, else when the system looks for some. Addresses are never given back. Sizes are rounded up
//! to a quarter of a power of two.

use std::alloc::{GlobalAlloc, Layout};
use std::ptr::{self, NonNull};
use std::sync::{Mutex, MutexGuard, PoisonError};

use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap_anonymous};

use crate::buf::ALIGN;

/// Smallest and largest block that is taken from huge pages, bytes.
const FROM: usize = 64 << 10;
const UPTO: usize = 8 << 20;
/// Addresses reserved at once for blocks of one size, bytes, and how they are aligned.
const SPAN: usize = UPTO;
const HUGE: usize = 2 << 20;
/// Most idle memory kept, bytes.
const IDLE_MAX: usize = 64 << 20;
/// Of the base two logarithms of sizes, less one byte: the smallest, and how many.
const LOG_MIN: u32 = (FROM - 1).ilog2();
const LOGS: usize = ((UPTO - 1).ilog2() - LOG_MIN + 1) as usize;

/// Large blocks in huge pages, all others from `A`.
pub struct Huge<A> {
    inner: A,
    blocks: Mutex<Blocks>,
}

/// What no one uses, by class of size.
struct Blocks {
    idle: [List; 4 * LOGS],
    /// Of `idle`.
    idle_bytes: usize,
    empty: [List; 4 * LOGS],
    /// Addresses that were never used, from and up to.
    fresh: [(usize, usize); 4 * LOGS],
}

/// Blocks that nobody uses; each holds the next one in its first bytes.
#[derive(Clone, Copy)]
struct List(*mut Block);

struct Block(*mut Block);

// SAFETY: the pointers are unique owners of unused memory; they are only followed under the lock.
unsafe impl Send for Blocks {}

/// A class, and the bytes of its blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Class(usize, usize);

impl Class {
    /// `None`: not from huge pages.
    fn of(layout: Layout) -> Option<Self> {
        let size = layout.size();
        if !(FROM..=UPTO).contains(&size) || layout.align() > ALIGN {
            return None;
        }
        let log = (size - 1).ilog2();
        let step = 1 << (log - 2);
        let bytes = size.next_multiple_of(step);
        // 5 to 8 quarters of the power of two below.
        Some(Self(4 * (log - LOG_MIN) as usize + bytes / step - 5, bytes))
    }

    /// The class at this place among all.
    fn at(place: usize) -> Self {
        Self(place, (5 + place % 4) << (place / 4 + LOG_MIN as usize - 2))
    }
}

impl<A> Huge<A> {
    /// Leaves all but large blocks to `inner`.
    pub const fn new(inner: A) -> Self {
        const NONE: [List; 4 * LOGS] = [List(ptr::null_mut()); 4 * LOGS];
        let blocks = Blocks { idle: NONE, idle_bytes: 0, empty: NONE, fresh: [(0, 0); 4 * LOGS] };
        Self { inner, blocks: Mutex::new(blocks) }
    }

    fn blocks(&self) -> MutexGuard<'_, Blocks> {
        self.blocks.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Null if the system has no more memory.
    fn take(&self, class: Class) -> *mut u8 {
        self.blocks().take(class).map_or(ptr::null_mut(), NonNull::as_ptr)
    }

    /// # Safety
    /// `block` came from [`Self::take`] of this class, and nobody uses it any more.
    unsafe fn give(&self, block: *mut u8, class: Class) {
        let Class(at, bytes) = class;
        let mut blocks = self.blocks();
        let other = if blocks.idle_bytes + bytes <= IDLE_MAX { None } else { blocks.idle_other(at) };
        let fits = blocks.idle_bytes + bytes <= IDLE_MAX;
        if fits {
            blocks.idle_bytes += bytes;
            // SAFETY: as the caller says.
            unsafe { blocks.idle[at].push(block) };
        }
        drop(blocks);
        for (block, Class(at, bytes)) in other.into_iter().chain((!fits).then_some((block, class))) {
            // SAFETY: all of it lies in the block, which is unused. If it fails the memory is kept, which does no harm.
            let _ = unsafe { madvise(block.add(ALIGN).cast(), bytes - ALIGN, Advice::LinuxDontNeed) };
            // SAFETY: as the caller says, or it was idle.
            unsafe { self.blocks().empty[at].push(block) };
        }
    }
}

impl Blocks {
    fn take(&mut self, class: Class) -> Option<NonNull<u8>> {
        let Class(at, bytes) = class;
        if let Some(block) = self.idle[at].pop() {
            self.idle_bytes -= bytes;
            return Some(block);
        }
        if let Some(block) = self.empty[at].pop() {
            return Some(block);
        }
        let (from, upto) = self.fresh[at];
        if upto - from < bytes {
            self.fresh[at] = reserve()?;
        }
        let from = self.fresh[at].0;
        self.fresh[at].0 += bytes;
        NonNull::new(ptr::with_exposed_provenance_mut(from))
    }
}

impl Blocks {
    /// An idle block of another class than that at `at`, the largest.
    fn idle_other(&mut self, at: usize) -> Option<(*mut u8, Class)> {
        let place = (0..self.idle.len()).rev().find(|place| *place != at && !self.idle[*place].0.is_null())?;
        let (block, class) = (self.idle[place].pop()?, Class::at(place));
        self.idle_bytes -= class.1;
        Some((block.as_ptr(), class))
    }
}

impl List {
    fn pop(&mut self) -> Option<NonNull<u8>> {
        let first = NonNull::new(self.0)?;
        // SAFETY: whatever is in the list begins with the next one.
        self.0 = unsafe { first.read().0 };
        Some(first.cast())
    }

    /// # Safety
    /// Nobody uses `block`, and it is in no list.
    unsafe fn push(&mut self, block: *mut u8) {
        let block: *mut Block = block.cast();
        // SAFETY: it is unused, larger than a pointer and aligned to a page.
        unsafe { block.write(Block(self.0)) };
        self.0 = block;
    }
}

/// New addresses for blocks: from and up to.
fn reserve() -> Option<(usize, usize)> {
    let (protection, flags) = (ProtFlags::READ | ProtFlags::WRITE, MapFlags::PRIVATE | MapFlags::NORESERVE);
    // SAFETY: a new mapping where the kernel likes it touches nobody's memory.
    let base = unsafe { mmap_anonymous(ptr::null_mut(), SPAN + HUGE, protection, flags) }.ok()?;
    let from = base.expose_provenance().next_multiple_of(HUGE);
    // SAFETY: it lies in the new mapping. A kernel without huge pages serves as well.
    let _ = unsafe { madvise(ptr::with_exposed_provenance_mut(from), SPAN, Advice::LinuxHugepage) };
    Some((from, from + SPAN))
}

// SAFETY: blocks are disjoint, as large and aligned as asked for, and who owns one is told by its layout alone.
unsafe impl<A: GlobalAlloc> GlobalAlloc for Huge<A> {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        match Class::of(layout) {
            Some(class) => self.take(class),
            // SAFETY: the caller's promise.
            None => unsafe { self.inner.alloc(layout) },
        }
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        match Class::of(layout) {
            // SAFETY: the caller's promise: it was taken with this layout.
            Some(class) => unsafe { self.give(block, class) },
            // SAFETY: likewise.
            None => unsafe { self.inner.dealloc(block, layout) },
        }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        let Some(class) = Class::of(layout) else {
            // SAFETY: the caller's promise.
            return unsafe { self.inner.alloc_zeroed(layout) };
        };
        let block = self.take(class);
        if !block.is_null() {
            // SAFETY: the block is at least so large, and ours.
            unsafe { block.write_bytes(0, layout.size()) };
        }
        block
    }

    unsafe fn realloc(&self, block: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        // SAFETY: the caller's promise: rounded up to the alignment, `size` fits.
        let new = unsafe { Layout::from_size_align_unchecked(size, layout.align()) };
        match (Class::of(layout), Class::of(new)) {
            // SAFETY: the caller's promise.
            (None, None) => unsafe { self.inner.realloc(block, layout, size) },
            (Some(before), Some(after)) if before == after => block,
            _ => {
                // SAFETY: the caller's promise.
                let other = unsafe { self.alloc(new) };
                if !other.is_null() {
                    // SAFETY: both are at least so large, and different blocks; the old one is not used any more.
                    unsafe {
                        other.copy_from_nonoverlapping(block, layout.size().min(size));
                        self.dealloc(block, layout);
                    }
                }
                other
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::alloc::{GlobalAlloc, Layout, System};

    use super::{Class, FROM, Huge, IDLE_MAX, LOGS, UPTO};
    use crate::buf::ALIGN;
    use crate::chance::Rng;

    fn layout(size: usize) -> Layout {
        Layout::from_size_align(size, 8).expect("small")
    }

    #[test]
    fn classes_waste_a_quarter_at_most_and_follow_each_other() {
        let mut last = Class(0, 0);
        for size in (FROM..=UPTO).step_by(512) {
            let class = Class::of(layout(size)).expect("in bounds");
            assert!(class.1 >= size && class.1 - size < size / 4 + 1, "{size} {class:?}");
            assert!(class.0 == last.0 || class.0 == last.0 + 1 || last.1 == 0, "{size} {class:?} {last:?}");
            assert!(class.1.is_multiple_of(ALIGN) && class.0 < 4 * LOGS);
            assert_eq!(Class::at(class.0), class);
            last = class;
        }
        assert_eq!(last, Class(4 * LOGS - 1, UPTO));
        assert_eq!((Class::of(layout(FROM - 1)), Class::of(layout(UPTO + 1))), (None, None));
        let wide = Layout::from_size_align(FROM, 2 * ALIGN).expect("small");
        assert_eq!(Class::of(wide), None);
    }

    #[test]
    fn blocks_keep_their_bytes_whatever_becomes_of_others() {
        let (heap, mut rng) = (Huge::new(System), Rng::new(5));
        // Address, layout, and what is written at its beginning, in its middle and at its end.
        let mut held: Vec<(*mut u8, Layout, u8)> = Vec::new();
        let mark = |(block, layout, byte): (*mut u8, Layout, u8)| {
            // SAFETY: within the block.
            [0, layout.size() / 2, layout.size() - 1].iter().for_each(|at| unsafe { block.add(*at).write(byte) });
        };
        let check = |(block, layout, byte): (*mut u8, Layout, u8), upto: usize| {
            for at in [0, layout.size() / 2, layout.size() - 1].into_iter().filter(|at| *at < upto) {
                // SAFETY: within the block.
                assert_eq!(unsafe { block.add(at).read() }, byte, "{layout:?} at {at}");
            }
        };
        for turn in 0..4_000u32 {
            let size = 1 + rng.below(if turn % 3 == 0 { 10 << 20 } else { 200 << 10 }) as usize;
            let byte = turn as u8;
            match rng.below(5) {
                0 | 1 if held.len() < 60 => {
                    let layout = layout(size);
                    // SAFETY: the size is not zero.
                    let block = unsafe { if turn % 2 == 0 { heap.alloc(layout) } else { heap.alloc_zeroed(layout) } };
                    assert!(!block.is_null());
                    if turn % 2 == 1 {
                        check((block, layout, 0), usize::MAX);
                    }
                    held.push((block, layout, byte));
                }
                2 if !held.is_empty() => {
                    let at = rng.below(held.len() as u64) as usize;
                    let (block, before, old) = held[at];
                    // SAFETY: it is of this heap, and the new size is not zero.
                    let block = unsafe { heap.realloc(block, before, size) };
                    check((block, before, old), size);
                    held[at] = (block, layout(size), byte);
                }
                _ if !held.is_empty() => {
                    let (block, layout, byte) = held.swap_remove(rng.below(held.len() as u64) as usize);
                    check((block, layout, byte), usize::MAX);
                    // SAFETY: it is of this heap, and forgotten.
                    unsafe { heap.dealloc(block, layout) };
                    continue;
                }
                _ => continue,
            }
            let last = held.len() - 1;
            held.iter().enumerate().filter(|(at, one)| *at == last || one.2 == byte).for_each(|(_, one)| mark(*one));
        }
        assert!(heap.blocks().idle_bytes <= IDLE_MAX);
    }

    #[test]
    fn what_is_freed_is_taken_again() {
        let heap = Huge::new(System);
        // SAFETY: taken and given back with the same layout.
        let (first, again) = unsafe {
            let first = heap.alloc(layout(1 << 20));
            heap.dealloc(first, layout(1 << 20));
            (first, heap.alloc(layout((1 << 20) - 100)))
        };
        assert_eq!(first, again);
        assert_eq!(heap.blocks().idle_bytes, 0);
        // More than is kept: what is beyond comes back empty.
        let many: Vec<*mut u8> = (0..IDLE_MAX / UPTO + 2)
            .map(|_| {
                // SAFETY: the size is not zero, and what is written lies in the block.
                unsafe {
                    let block = heap.alloc(layout(UPTO));
                    block.add(UPTO - 1).write(1);
                    block
                }
            })
            .collect();
        // SAFETY: as above.
        many.iter().for_each(|block| unsafe { heap.dealloc(*block, layout(UPTO)) });
        assert_eq!(heap.blocks().idle_bytes, IDLE_MAX);
        // What is used now has precedence over what was used once.
        // SAFETY: taken and given back with the same layout.
        unsafe {
            let small = heap.alloc(layout(FROM));
            heap.dealloc(small, layout(FROM));
            assert_eq!(heap.blocks().idle_bytes, IDLE_MAX - UPTO + FROM);
            assert_eq!(heap.alloc(layout(FROM)), small);
        }
        // SAFETY: within the blocks.
        let ends: u32 = many.iter().map(|_| unsafe { u32::from(heap.alloc(layout(UPTO)).add(UPTO - 1).read()) }).sum();
        assert_eq!(ends as usize, IDLE_MAX / UPTO - 1, "the memory of three went back");
    }
}
