//! The memory that requests over io_uring travel in, and the commands that lend it to the kernel.
//!
//! A tray is in one hand at a time: the kernel's, from [`Ring::lend`] until its completion is taken by [`Ring::next`],
//! or that of whoever holds the [`Tray`]. So its bytes need no lock.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::ptr::{self, NonNull};

use io_uring::{IoUring, cqueue, opcode, squeue, types};
use rustix::io::Errno as Os;

use super::abi::uring as abi;

/// The head of a tray has a page of its own, with the list of the two parts behind it.
const PAGE_BYTES: usize = 4096;
const PARTS_AT: usize = 512;
const _: () = assert!(abi::HEAD_BYTES <= PARTS_AT && PARTS_AT + 2 * size_of::<libc::iovec>() <= PAGE_BYTES);
/// Commands on their way into the kernel; more go in several calls.
const SUBMIT_MAX: u32 = 128;
/// Where `len` stands in a submission; the builder of this command has no word for it.
const LEN_AT: usize = 24;
/// User data of the bell; others are the number of a tray.
const BELL: u64 = u64::MAX;
/// Each time that the bell is rung is told, not only the first: nobody has to read its number.
const EACH_RING: u32 = libc::EPOLLET as u32;

/// Room for one request and its reply, in one hand.
#[derive(Debug)]
pub(crate) struct Tray {
    /// Which queue it belongs to.
    pub(crate) lane: usize,
    /// Number of the request in it, for the commit; 0 if the kernel does not know the tray yet.
    pub(crate) commit: u64,
    memory: NonNull<u8>,
    payload_bytes: usize,
}

// SAFETY: a tray owns its mapping, and nothing in it belongs to a thread.
unsafe impl Send for Tray {}

impl Tray {
    /// A tray of queue `lane`. Its memory is taken when it is first used. Errors: no memory.
    pub(crate) fn new(lane: usize, payload_bytes: usize) -> io::Result<Self> {
        let (protection, flags) =
            (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE);
        // SAFETY: a new mapping at an address that the kernel chooses touches nothing that exists.
        let at = unsafe { libc::mmap(ptr::null_mut(), PAGE_BYTES + payload_bytes, protection, flags, -1, 0) };
        if at == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let memory = NonNull::new(at.cast::<u8>()).expect("the kernel does not map the first page unasked");
        let tray = Self { lane, commit: 0, memory, payload_bytes };
        let part = |at: usize, len| libc::iovec { iov_base: memory.as_ptr().wrapping_add(at).cast(), iov_len: len };
        let parts = [part(0, abi::HEAD_BYTES), part(PAGE_BYTES, payload_bytes)];
        // SAFETY: `PARTS_AT` is a multiple of 16 in a page that is ours, with room for both behind it.
        unsafe { memory.add(PARTS_AT).cast::<[libc::iovec; 2]>().write(parts) };
        Ok(tray)
    }

    /// The headers of the request.
    pub(crate) fn head(&self) -> &[u8] {
        // SAFETY: the first page is mapped for as long as the tray lives, and in no hand but this one.
        unsafe { std::slice::from_raw_parts(self.memory.as_ptr(), abi::HEAD_BYTES) }
    }

    /// The header of the reply.
    pub(crate) fn head_mut(&mut self) -> &mut [u8] {
        // SAFETY: as in `head`; the borrow is the only one.
        unsafe { std::slice::from_raw_parts_mut(self.memory.as_ptr(), abi::HEAD_BYTES) }
    }

    /// What follows the headers.
    pub(crate) fn payload(&self) -> &[u8] {
        // SAFETY: `payload_bytes` behind the first page are mapped as long as the tray lives, and in no other hand.
        unsafe { std::slice::from_raw_parts(self.memory.as_ptr().add(PAGE_BYTES), self.payload_bytes) }
    }

    /// Where the body of the reply goes.
    pub(crate) fn payload_mut(&mut self) -> &mut [u8] {
        // SAFETY: as in `payload`; the borrow is the only one.
        unsafe { std::slice::from_raw_parts_mut(self.memory.as_ptr().add(PAGE_BYTES), self.payload_bytes) }
    }
}

impl Drop for Tray {
    fn drop(&mut self) {
        // SAFETY: the mapping of `new`, in no other hand. The kernel looks at an address it once learned only while it
        // carries out a command with the tray, and then the tray would be in its hand.
        unsafe { libc::munmap(self.memory.as_ptr().cast(), PAGE_BYTES + self.payload_bytes) };
    }
}

/// What a ring has to tell.
#[derive(Debug)]
pub(crate) enum Event {
    /// Someone rang the bell.
    Rung,
    /// The tray is back: with a request, or why not.
    Back(Tray, Result<(), Os>),
}

/// The ring of one queue. Only one thread uses it.
pub(crate) struct Ring {
    ring: IoUring<squeue::Entry128, cqueue::Entry>,
    /// Trays in the kernel's hand. Index = user data of the command.
    lent: Vec<Option<Tray>>,
    vacant: Vec<usize>,
}

impl Ring {
    /// A ring for at most `trays_max` trays, which begins to work on the thread that calls [`Self::start`]. Errors: the
    /// process may not use io_uring, or it is too old.
    pub(crate) fn new(trays_max: u32) -> io::Result<Self> {
        let ring = IoUring::builder()
            .setup_r_disabled()
            .setup_single_issuer()
            .setup_defer_taskrun()
            .setup_submit_all()
            .setup_cqsize(2 * trays_max)
            .build(SUBMIT_MAX)?;
        Ok(Self { ring, lent: Vec::new(), vacant: Vec::new() })
    }

    /// From here on the ring belongs to the calling thread; `bell` ends its sleep. Errors: those of io_uring.
    pub(crate) fn start(&mut self, bell: BorrowedFd<'_>) -> io::Result<()> {
        self.ring.submitter().register_enable_rings()?;
        self.hang(bell);
        Ok(())
    }

    /// Has the kernel watch the bell; again after it said that it no longer does.
    fn hang(&mut self, bell: BorrowedFd<'_>) {
        let poll = opcode::PollAdd::new(types::Fd(bell.as_raw_fd()), libc::POLLIN as u32 | EACH_RING).multi(true);
        self.push(&squeue::Entry128::from(poll.build().user_data(BELL)));
    }

    /// How many trays the kernel has.
    pub(crate) fn lent(&self) -> usize {
        self.lent.len() - self.vacant.len()
    }

    /// Gives the kernel a tray: a new one to know it, one with a reply to take it; and for the next request.
    pub(crate) fn lend(&mut self, device: BorrowedFd<'_>, tray: Tray) {
        let fd = types::Fd(device.as_raw_fd());
        let queue = u16::try_from(tray.lane).unwrap_or(u16::MAX);
        let mut words = [0; 80];
        words[8..16].copy_from_slice(&tray.commit.to_ne_bytes());
        words[16..18].copy_from_slice(&queue.to_ne_bytes());
        let parts = tray.memory.as_ptr().wrapping_add(PARTS_AT);
        let command = match tray.commit {
            0 => opcode::UringCmd80::new(fd, abi::REGISTER).addr(Some(parts as u64)),
            _ => opcode::UringCmd80::new(fd, abi::COMMIT_AND_FETCH),
        };
        let is_new = tray.commit == 0;
        let index = self.vacant.pop().unwrap_or_else(|| {
            self.lent.push(None);
            self.lent.len() - 1
        });
        self.lent[index] = Some(tray);
        let mut entry = command.cmd(words).build().user_data(index as u64);
        if is_new {
            // SAFETY: an entry is the 128 plain bytes of the kernel's submission, with a `u32` there.
            unsafe { ptr::from_mut(&mut entry).byte_add(LEN_AT).cast::<u32>().write(2) };
        }
        self.push(&entry);
    }

    /// Hands over what was lent, and waits for something to tell. Errors: those of io_uring.
    pub(crate) fn wait(&mut self) -> io::Result<()> {
        match self.ring.submit_and_wait(1) {
            Err(e) if !matches!(e.raw_os_error(), Some(libc::EINTR | libc::EBUSY | libc::EAGAIN)) => Err(e),
            _ => Ok(()),
        }
    }

    /// The next thing that the ring has to tell.
    pub(crate) fn next(&mut self, bell: BorrowedFd<'_>) -> Option<Event> {
        let entry = self.ring.completion().next()?;
        if entry.user_data() == BELL {
            if !cqueue::more(entry.flags()) {
                self.hang(bell);
            }
            return Some(Event::Rung);
        }
        let index = usize::try_from(entry.user_data()).expect("user data is an index of this ring");
        let tray = self.lent[index].take().expect("a completion belongs to a lent tray");
        self.vacant.push(index);
        let result = if entry.result() < 0 { Err(Os::from_raw_os_error(-entry.result())) } else { Ok(()) };
        Some(Event::Back(tray, result))
    }

    fn push(&mut self, entry: &squeue::Entry128) {
        loop {
            // SAFETY: the memory that the entry points to is that of a tray in `lent`, until its completion.
            if unsafe { self.ring.submission().push(entry) }.is_ok() {
                return;
            }
            // Full: make room. What fails here fails again in `wait`, which tells.
            let _ = self.ring.submit();
        }
    }
}

impl Drop for Ring {
    /// The kernel may still have trays if a thread ended early: rather leak their memory than give it away.
    fn drop(&mut self) {
        self.lent.drain(..).flatten().for_each(std::mem::forget);
    }
}
