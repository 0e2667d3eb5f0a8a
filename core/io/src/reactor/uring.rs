//! The engine over io_uring: one ring per thread, one system call per round.

use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::sync::Arc;

use io_uring::{IoUring, cqueue, opcode, squeue, types};
use rustix::io::Errno;

use super::Completions;
use super::job::{Job, Work, remaining};
use super::mailbox::Waker;
use crate::clock;

/// Submission slots. Completion slots are twice as many, so IN_KERNEL_MAX plus the wake-up poll always fit.
const SLOTS: u32 = 256;
/// I/Os in the kernel at once; the rest waits in order.
const IN_KERNEL_MAX: usize = 384;
const WAKE: u64 = u64::MAX;
const _: () = assert!(IN_KERNEL_MAX < 2 * SLOTS as usize);

pub(super) struct Uring {
    ring: IoUring,
    /// Owns every buffer that the kernel may touch. Index = user data of the request.
    flights: Vec<Option<Flight>>,
    vacant: Vec<usize>,
    in_kernel: usize,
    backlog: VecDeque<Job>,
    again: Vec<usize>,
    waker: Arc<Waker>,
    armed: bool,
}

struct Flight {
    job: Job,
    /// The kernel reads it at submission at the latest; kept for the whole flight all the same.
    pieces: Vec<libc::iovec>,
}

// SAFETY: the addresses in `pieces` are of bytes that `job` owns, on whatever thread it is.
unsafe impl Send for Flight {}

impl Uring {
    /// For a thread that the actor has to itself.
    pub(super) fn new(waker: Arc<Waker>) -> io::Result<Self> {
        // Completions are then worked off only when this thread asks, which spares interrupts of its work.
        let modern = IoUring::builder()
            .setup_clamp()
            .setup_submit_all()
            .setup_single_issuer()
            .setup_defer_taskrun()
            .setup_taskrun_flag()
            .build(SLOTS);
        Self::of(modern, waker)
    }

    /// For an actor that moves between threads. Completions are there when [`Self::fd`] is readable.
    pub(super) fn hosted(waker: Arc<Waker>) -> io::Result<Self> {
        // Completions are then worked off when the thread that submitted is in the kernel anyway.
        Self::of(IoUring::builder().setup_clamp().setup_submit_all().setup_coop_taskrun().build(SLOTS), waker)
    }

    fn of(modern: io::Result<IoUring>, waker: Arc<Waker>) -> io::Result<Self> {
        let ring = match modern {
            Err(e) if e.raw_os_error() == Some(libc::EINVAL) => IoUring::builder().setup_clamp().build(SLOTS)?,
            other => other?,
        };
        let params = ring.params();
        if !params.is_feature_ext_arg() || !params.is_feature_nodrop() || params.cq_entries() < 2 * SLOTS {
            return Err(io::Error::new(io::ErrorKind::Unsupported, "the kernel's io_uring is too old (5.11 needed)"));
        }
        Ok(Self {
            ring,
            flights: Vec::new(),
            vacant: Vec::new(),
            in_kernel: 0,
            backlog: VecDeque::new(),
            again: Vec::new(),
            waker,
            armed: false,
        })
    }

    pub(super) fn submit(&mut self, job: Job) {
        if self.in_kernel < IN_KERNEL_MAX && self.backlog.is_empty() {
            self.launch(job);
        } else {
            self.backlog.push_back(job);
        }
    }

    pub(super) fn in_flight(&self) -> usize {
        self.in_kernel + self.backlog.len()
    }

    pub(super) fn reap(&mut self, out: &mut Completions) {
        loop {
            let Some(entry) = self.ring.completion().next() else { break };
            self.complete(&entry, out);
        }
        for index in std::mem::take(&mut self.again) {
            self.issue(index);
        }
        while self.in_kernel < IN_KERNEL_MAX {
            let Some(job) = self.backlog.pop_front() else { break };
            self.launch(job);
        }
    }

    /// The kernel did not take all that was handed to it: it is short of something.
    pub(super) fn is_behind(&mut self) -> bool {
        !self.ring.submission().is_empty()
    }

    /// Hands what was submitted to the kernel without waiting.
    pub(super) fn flush(&mut self) {
        if !self.ring.submission().is_empty() {
            // Errors here (a full completion queue, a signal) leave the entries queued for the next call.
            let _ = self.ring.submit();
        }
    }

    /// Hands what was submitted to the kernel, and lets it report what has ended, without waiting.
    fn poll(&mut self) {
        let get_events = 1;
        let queued = u32::try_from(self.ring.submission().len()).unwrap_or(u32::MAX);
        if queued > 0 || self.in_kernel > 0 {
            // SAFETY: no argument is passed.
            let _ = unsafe { self.ring.submitter().enter::<libc::sigset_t>(queued, 0, get_events, None) };
        }
    }

    /// Readable when something has ended.
    pub(super) fn fd(&self) -> BorrowedFd<'_> {
        // SAFETY: the ring is open as long as `self` is borrowed.
        unsafe { BorrowedFd::borrow_raw(self.ring.as_raw_fd()) }
    }

    /// Hands what was submitted to the kernel, and waits if `idle`.
    pub(super) fn sleep(&mut self, until: Option<u64>, idle: impl Fn() -> bool) {
        if !idle() {
            return self.poll();
        }
        self.arm();
        self.waker.doze();
        if !idle() {
            self.flush();
        } else {
            let waited = match until {
                None => self.ring.submit_and_wait(1),
                Some(at) => {
                    let left = at.saturating_sub(clock::mono_us());
                    let time = types::Timespec::new().sec(left / 1_000_000).nsec((left % 1_000_000) as u32 * 1000);
                    self.ring.submitter().submit_with_args(1, &types::SubmitArgs::new().timespec(&time))
                }
            };
            if let Err(error) = waited {
                let usual = [libc::ETIME, libc::EINTR, libc::EBUSY, libc::EAGAIN];
                if !usual.iter().any(|e| error.raw_os_error() == Some(*e)) {
                    tracing::error!("io_uring_enter failed: {error}");
                }
            }
        }
        self.waker.rouse();
    }

    fn complete(&mut self, entry: &cqueue::Entry, out: &mut Completions) {
        if entry.user_data() == WAKE {
            self.armed = false;
            self.waker.clear();
            return;
        }
        let index = usize::try_from(entry.user_data()).expect("user data is an index of this ring");
        let flight = self.flights[index].as_mut().expect("a completion belongs to a flight");
        let result = match usize::try_from(entry.result()) {
            Ok(n) => {
                if let Work::Read { buf, .. } = &mut flight.job.work {
                    let have = buf.len();
                    // SAFETY: the kernel filled `n` bytes behind the `have` that were there, as `entry_of` asked.
                    unsafe { buf.set_len(have + n) };
                }
                Ok(n)
            }
            Err(_) => Err(Errno::from_raw_os_error(-entry.result())),
        };
        match flight.job.advance(result) {
            None => self.again.push(index),
            Some(answer) => {
                let token = flight.job.token;
                self.flights[index] = None;
                self.vacant.push(index);
                self.in_kernel -= 1;
                out.push((token, answer));
            }
        }
    }

    fn launch(&mut self, job: Job) {
        let index = self.vacant.pop().unwrap_or_else(|| {
            self.flights.push(None);
            self.flights.len() - 1
        });
        self.flights[index] = Some(Flight { job, pieces: Vec::new() });
        self.in_kernel += 1;
        self.issue(index);
    }

    fn issue(&mut self, index: usize) {
        let flight = self.flights[index].as_mut().expect("only filled flights are issued");
        let entry = entry_of(flight).user_data(index as u64);
        self.push(&entry);
    }

    /// Arms the poll that lets the eventfd end a sleep.
    fn arm(&mut self) {
        let Some(bell) = self.waker.fd().filter(|_| !self.armed) else { return };
        let fd = types::Fd(bell.as_raw_fd());
        self.armed = true;
        let entry = opcode::PollAdd::new(fd, libc::POLLIN as u32).build().user_data(WAKE);
        self.push(&entry);
    }

    fn push(&mut self, entry: &squeue::Entry) {
        loop {
            // SAFETY: the buffers, pieces and descriptor that the entry points to live in `flights` (or in
            // `waker`) until its completion; `Drop` waits for all of them.
            if unsafe { self.ring.submission().push(entry) }.is_ok() {
                return;
            }
            self.flush();
        }
    }
}

/// The request for what is left of a flight's job.
fn entry_of(flight: &mut Flight) -> squeue::Entry {
    let fd = types::Fd(flight.job.file.as_fd().as_raw_fd());
    match &mut flight.job.work {
        Work::Read { buf, start, span, .. } => {
            let (at, have) = (*start + buf.len() as u64, buf.len());
            let spare = &mut buf.spare()[..*span - have];
            // One request carries 32 bits of length; a longer read goes on like a short one.
            let len = u32::try_from(spare.len()).unwrap_or(1 << 30);
            opcode::Read::new(fd, spare.as_mut_ptr().cast(), len).offset(at).build()
        }
        Work::Write { data, off, done, durable, .. } => {
            flight.pieces.clear();
            flight.pieces.extend(
                remaining(data, *done)
                    .map(|piece| libc::iovec { iov_base: piece.as_ptr().cast_mut().cast(), iov_len: piece.len() }),
            );
            let flags = if *durable { libc::RWF_DSYNC } else { 0 };
            opcode::Writev::new(fd, flight.pieces.as_ptr(), flight.pieces.len() as u32)
                .offset(*off + *done as u64)
                .rw_flags(flags)
                .build()
        }
        Work::Sync => opcode::Fsync::new(fd).flags(types::FsyncFlags::DATASYNC).build(),
        Work::Discard { off, len } => {
            let mode = libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_KEEP_SIZE;
            opcode::Fallocate::new(fd, *len).offset(*off).mode(mode).build()
        }
    }
}

impl Drop for Uring {
    /// The kernel must be done with every buffer before its memory goes, even when the actor panicked.
    fn drop(&mut self) {
        self.backlog.clear();
        let mut late = Vec::new();
        let mut failures = 0;
        while self.in_kernel > 0 {
            if self.ring.submit_and_wait(1).is_err_and(|e| e.raw_os_error() != Some(libc::EINTR)) {
                failures += 1;
                if failures > 100 {
                    // Rather leak the buffers than let the kernel write into memory that was given away.
                    std::mem::forget(std::mem::take(&mut self.flights));
                    return;
                }
            }
            self.reap(&mut late);
            late.clear();
        }
    }
}
