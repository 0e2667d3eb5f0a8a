//! Replies: each request gets one, in one system call, from the memory where its bytes lie; short ones that are ready
//! together share one (`together`).

use std::future::Future;
use std::io::{self, IoSlice};
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;

use tokio::sync::Notify;

use super::abi::OUT_HEADER_BYTES;
use super::encode::Body;
use super::errno::Errno;
use super::inflight::{Inflight, Way};
use super::stale::Stale;
use super::together::{TOGETHER_BYTES_MAX, Then, Together};
use super::uring::{self, Lane};

/// What a mount's readers and repliers share.
#[derive(Debug)]
pub(crate) struct Devices {
    /// One per reader. The first is the one that was mounted.
    pub(crate) files: Vec<OwnedFd>,
    /// One per queue of requests over io_uring; none if they all come from the device.
    pub(crate) lanes: Vec<Arc<Lane>>,
    pub(crate) inflight: Inflight,
    pub(crate) stale: Stale,
    /// Where replies of the runtime's tasks wait for each other.
    pub(crate) together: Option<Together>,
}

impl Devices {
    /// Ends request `unique` with `error`, unless it has its reply. What still works for it goes on, unheard.
    pub(crate) fn give_up(&self, unique: u64, error: Errno) {
        let _ = self.answer(unique, -error.code(), &[]);
    }

    /// Gives the kernel a notice.
    pub(crate) fn notify(&self, code: i32, body: &[u8]) -> io::Result<()> {
        write(&self.files[0], 0, code, body)
    }

    /// Gives the kernel a notice with data behind it.
    pub(crate) fn notify_data(&self, code: i32, body: &[u8], data: &[u8]) -> io::Result<()> {
        let len = OUT_HEADER_BYTES + body.len() + data.len();
        let header = header_of(0, code, len);
        let pieces = [IoSlice::new(&header), IoSlice::new(body), IoSlice::new(data)];
        whole(rustix::io::retry_on_intr(|| rustix::io::writev(&self.files[0], &pieces))?, len)
    }

    /// Whether the one who asked hears it.
    fn answer(&self, unique: u64, error: i32, body: &[u8]) -> bool {
        let Some(asked) = self.inflight.take(unique) else { return false };
        self.stale.tell(asked.tid, error);
        let file = match asked.way {
            Way::Device(reader) => &self.files[reader],
            Way::Ring(mut tray) => {
                uring::answer(&mut tray, unique, error, body);
                return self.lanes[tray.lane].give(tray);
            }
        };
        is_heard(file, unique, write(file, unique, error, body))
    }

    /// The same for something that went well, and may wait for others that do.
    fn answer_together(self: &Arc<Self>, unique: u64, body: &[u8]) {
        let on_runtime = || tokio::task::try_id().is_some();
        let together = self.together.as_ref().filter(|_| body.len() <= TOGETHER_BYTES_MAX && on_runtime());
        let reader_of = |together: &Together| self.inflight.take_of_many(unique, || together.has_some());
        let Some((together, reader)) = together.and_then(|together| Some((together, reader_of(together)?))) else {
            self.answer(unique, 0, body);
            return;
        };
        match together.add(reader, unique, body) {
            Then::Nothing => {}
            Then::Now => self.leave(together),
            Then::Soon => {
                let this = Arc::clone(self);
                tokio::spawn(async move {
                    tokio::task::yield_now().await;
                    this.together.iter().for_each(|together| this.leave(together));
                });
            }
        }
    }

    fn leave(&self, together: &Together) {
        together.leave(&self.files, |reader, unique, bytes, written| {
            let taken = written.and_then(|written| whole(written, bytes.len()));
            is_heard(&self.files[reader], unique, taken);
        });
    }
}

/// Whether the one who asked hears the reply to `unique`, of which the kernel said `taken`.
fn is_heard(file: &OwnedFd, unique: u64, taken: io::Result<()>) -> bool {
    match taken {
        Ok(()) => return true,
        // The mount is gone, or the kernel has no use for the reply any more.
        Err(e) if matches!(e.raw_os_error(), Some(libc::ENODEV | libc::ENOENT | libc::ENOTCONN)) => {}
        Err(e) => {
            tracing::warn!(unique, error = %e, "the kernel did not take a reply");
            // The one who waits must not wait for ever. If this fails too, the reply did arrive.
            let _ = write(file, unique, -libc::EIO, &[]);
        }
    }
    false
}

/// Replies up to this size are written in one piece, bytes: all but data, listings and long attributes.
const SMALL_BYTES: usize = 256;

/// Writes a reply or, with number 0, a notice.
pub(crate) fn write(file: &OwnedFd, unique: u64, code: i32, body: &[u8]) -> io::Result<()> {
    let len = OUT_HEADER_BYTES + body.len();
    let header = header_of(unique, code, len);
    let written = if len <= SMALL_BYTES {
        // The kernel looks for the memory of each piece anew: for a short reply that is most of its work.
        let mut whole = [0; SMALL_BYTES];
        whole[..OUT_HEADER_BYTES].copy_from_slice(&header);
        whole[OUT_HEADER_BYTES..len].copy_from_slice(body);
        write_whole(file, &whole[..len])?
    } else {
        let pieces = [IoSlice::new(&header), IoSlice::new(body)];
        rustix::io::retry_on_intr(|| rustix::io::writev(file, &pieces))?
    };
    whole(written, len)
}

/// What a reply of `len` bytes begins with.
pub(super) fn header_of(unique: u64, code: i32, len: usize) -> [u8; OUT_HEADER_BYTES] {
    let mut header = [0; OUT_HEADER_BYTES];
    header[..4].copy_from_slice(&(len as u32).to_ne_bytes());
    header[4..8].copy_from_slice(&code.to_ne_bytes());
    header[8..].copy_from_slice(&unique.to_ne_bytes());
    header
}

/// A reply that lies in one piece, in a system call of its own.
pub(super) fn write_whole(file: impl AsFd, reply: &[u8]) -> io::Result<usize> {
    Ok(rustix::io::retry_on_intr(|| rustix::io::write(&file, reply))?)
}

fn whole(written: usize, len: usize) -> io::Result<()> {
    match written {
        n if n == len => Ok(()),
        n => Err(io::Error::other(format!("{n} of {len} bytes were taken"))),
    }
}

/// The reply that a request must get. Dropped without one, it tells `EIO`.
#[derive(Debug)]
pub(crate) struct Reply {
    devices: Arc<Devices>,
    unique: u64,
    interrupts: Option<Arc<Notify>>,
    is_sent: bool,
}

impl Reply {
    /// The reply to request `unique`, which was entered already.
    pub(crate) fn new(devices: Arc<Devices>, unique: u64, interrupts: Option<Arc<Notify>>) -> Self {
        Self { devices, unique, interrupts, is_sent: false }
    }

    /// Comes when the thread that waits has a signal to attend to; never for requests that do not end early then.
    pub(crate) fn interrupted(&self) -> impl Future<Output = ()> + Send + 'static {
        let interrupts = self.interrupts.clone();
        async move {
            match interrupts {
                Some(interrupts) => interrupts.notified().await,
                None => std::future::pending().await,
            }
        }
    }

    /// Of a lookup: whether `tid`, the thread that waits, was told `ESTALE` a moment ago.
    pub(crate) fn follows_stale(&self, tid: u32) -> bool {
        self.devices.stale.looks_up(tid)
    }

    pub(crate) fn ok(self) {
        self.data(&[]);
    }

    pub(crate) fn error(mut self, errno: Errno) {
        let _ = self.send(-errno.code(), &[]);
    }

    pub(crate) fn body(self, body: &Body) {
        self.data(body.bytes());
    }

    pub(crate) fn data(mut self, data: &[u8]) {
        let _ = self.send(0, data);
    }

    /// Replies with the data that was read, or what was written: it may leave a little later, with others.
    pub(crate) fn together(mut self, body: &[u8]) {
        self.is_sent = true;
        self.devices.answer_together(self.unique, body);
    }

    /// Replies with something that the one who asked gives back later. `false`: nobody heard of it, so nobody will.
    #[must_use]
    pub(crate) fn hand_over(mut self, outcome: Result<&[u8], Errno>) -> bool {
        match outcome {
            Ok(body) => self.send(0, body),
            Err(errno) => self.send(-errno.code(), &[]),
        }
    }

    fn send(&mut self, error: i32, body: &[u8]) -> bool {
        self.is_sent = true;
        self.devices.answer(self.unique, error, body)
    }
}

impl Drop for Reply {
    fn drop(&mut self) {
        if !self.is_sent {
            let _ = self.devices.answer(self.unique, -libc::EIO, &[]);
        }
    }
}
