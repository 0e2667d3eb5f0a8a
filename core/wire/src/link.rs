//! One connection, whichever side one is on: frames in, frames out.
//!
//! Out: whoever sends puts the frame into the queue. If nobody writes, the sender does it itself when little is under
//! way (that saves a switch of threads), else the writer task is woken, and what comes meanwhile goes out with one call
//! of the kernel: a message costs a sixth of what it costs alone. What a burst sends goes out at its end, by the thread
//! that ran it if it is not much.

use std::collections::VecDeque;
use std::io::{self, IoSlice};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use braid_base::burst::{self, Due};
use braid_base::{Error, ErrorKind, Result};
use bytes::{Buf, Bytes};
use tokio::sync::Notify;

use crate::codec::Encoded;
use crate::frame::{Frame, Header, Kind};
use crate::intake::Intake;
use crate::limits::{
    ABSENT_MS, BURST_BYTES_MAX, EAGER_BYTES_MAX, PIECES_AT_ONCE, WAKE_FROM_MAX, WAKE_FROM_MIN, WRITE_AT_ONCE,
};
use crate::stream::Stream;

/// The connection, but for what was received and is no frame yet.
pub(crate) struct Link {
    stream: Stream,
    out: Mutex<Outbox>,
    /// The writer task has something to do.
    work: Notify,
    /// The queue has become shorter, or the link was closed.
    room: Notify,
    heard_ms: AtomicU64,
    /// Received bytes from which on whoever reads is woken.
    wakes_from: AtomicUsize,
}

#[derive(Default)]
struct Outbox {
    pieces: VecDeque<Bytes>,
    /// Headers and meta parts behind the last piece, gathered.
    tail: Vec<u8>,
    /// Bytes in both.
    bytes: usize,
    /// Somebody writes, or the writer task was told to.
    writing: bool,
    closed: bool,
}

/// What is sent.
pub(crate) struct Parcel {
    pub(crate) kind: Kind,
    pub(crate) id: u64,
    pub(crate) target: u32,
    pub(crate) message: Encoded,
    /// With a checksum of the data part, unless the way there proves it.
    pub(crate) check_data: bool,
}

/// How far writing came.
enum Pumped {
    All,
    Blocked,
    Closed,
}

impl Link {
    pub(crate) fn new(stream: Stream) -> Arc<Self> {
        let heard_ms = AtomicU64::new(braid_io::clock::mono_ms());
        Arc::new(Self {
            stream,
            out: Mutex::default(),
            work: Notify::new(),
            room: Notify::new(),
            heard_ms,
            wakes_from: AtomicUsize::new(1),
        })
    }

    /// Puts a frame into the queue; `eager`: this thread may write it. False if the link is closed.
    pub(crate) fn send(self: &Arc<Self>, parcel: Parcel, eager: bool) -> bool {
        let Parcel { kind, id, target, message, check_data } = parcel;
        let header = Header::of(kind, id, target, &message, check_data && !self.stream.proves());
        let mut out = self.outbox();
        if out.closed {
            return false;
        }
        out.bytes += header.frame_len();
        out.tail.extend_from_slice(&header.encode());
        out.tail.extend_from_slice(&message.meta);
        if !message.data.is_empty() {
            out.cut();
            out.pieces.extend(message.data);
        }
        if !std::mem::replace(&mut out.writing, true) {
            drop(out);
            let is_short = header.frame_len() <= EAGER_BYTES_MAX;
            if is_short && burst::put_off(self) {
                return true;
            }
            if !eager || !is_short || matches!(self.pump(), Pumped::Blocked) {
                self.work.notify_one();
            }
        }
        true
    }

    /// Bytes that wait to be written.
    pub(crate) fn queued(&self) -> usize {
        self.outbox().bytes
    }

    /// Ready when fewer than `most` bytes wait, or the link is closed.
    pub(crate) async fn room(&self, most: usize) {
        loop {
            let told = self.room.notified();
            if self.has_room(most) {
                return;
            }
            told.await;
        }
    }

    fn has_room(&self, most: usize) -> bool {
        let out = self.outbox();
        out.bytes < most || out.closed
    }

    /// Writes what others leave to it, until the link is closed.
    pub(crate) async fn write_on(&self) {
        loop {
            self.work.notified().await;
            loop {
                match self.pump() {
                    Pumped::All => break,
                    Pumped::Closed => return,
                    Pumped::Blocked if self.stream.writable().await.is_err() => return self.close(),
                    Pumped::Blocked => {}
                }
            }
        }
    }

    /// The next frame. Errors: `Stopped` when the other side has closed, `Corrupt`, and those of the system. May be
    /// given up at any time without losing anything.
    pub(crate) async fn frame(&self, intake: &mut Intake) -> Result<Frame> {
        // TLS has a sentence of its own for what went wrong.
        let broken = |error: io::Error| match error.downcast::<Error>() {
            Ok(error) => error,
            Err(error) => Error::os("a connection", &error),
        };
        // More may be there already.
        let mut is_empty = false;
        loop {
            if let Some(frame) = intake.next()? {
                return Ok(frame);
            }
            self.wake_from(intake.awaited(), is_empty).map_err(broken)?;
            self.stream.readable().await.map_err(broken)?;
            let (buf, most) = intake.room();
            match self.stream.try_read(buf, most) {
                Ok(0) => return Err(Error::new(ErrorKind::Stopped, "the other side has closed the connection")),
                Ok(got) => {
                    is_empty = got < most;
                    self.heard_ms.store(braid_io::clock::mono_ms(), Ordering::Relaxed);
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => is_empty = true,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(broken(error)),
            }
        }
    }

    /// Nothing can be done before `awaited` bytes are there. The kernel is told not to wake anybody for less if that is
    /// worth a call, and always if it waits for more than will come.
    fn wake_from(&self, awaited: usize, is_empty: bool) -> io::Result<()> {
        let from = if awaited < WAKE_FROM_MIN { 1 } else { awaited.min(WAKE_FROM_MAX) };
        // Nobody else reads.
        let before = self.wakes_from.load(Ordering::Relaxed);
        if from < before || (is_empty && before == 1 && from > 1) {
            self.stream.wake_from(from)?;
            self.wakes_from.store(from, Ordering::Relaxed);
        }
        Ok(())
    }

    /// The next frame, if it comes within `ms`.
    pub(crate) async fn frame_within(&self, intake: &mut Intake, ms: u64) -> Result<Frame> {
        let late = |_| Error::new(ErrorKind::TimedOut, format!("the other side said nothing for {ms} ms"));
        tokio::time::timeout(Duration::from_millis(ms), self.frame(intake)).await.map_err(late)?
    }

    /// The next frame, unless the other side is not there any more.
    pub(crate) async fn heard(&self, intake: &mut Intake) -> Result<Frame> {
        loop {
            match tokio::time::timeout(Duration::from_millis(ABSENT_MS), self.frame(intake)).await {
                Ok(frame) => return frame,
                // Of a long frame some bytes may have come.
                Err(_) if self.silence_ms() < ABSENT_MS => {}
                Err(_) => return Err(Error::new(ErrorKind::TimedOut, "the other side is not there any more")),
            }
        }
    }

    /// Milliseconds since the other side was last heard.
    pub(crate) fn silence_ms(&self) -> u64 {
        braid_io::clock::mono_ms().saturating_sub(self.heard_ms.load(Ordering::Relaxed))
    }

    /// Whether this side has ended it.
    pub(crate) fn is_closed(&self) -> bool {
        self.outbox().closed
    }

    /// Ends it; what waits is not sent any more.
    pub(crate) fn close(&self) {
        let mut out = self.outbox();
        *out = Outbox { closed: true, ..Outbox::default() };
        drop(out);
        self.stream.shut_down();
        self.work.notify_one();
        self.room.notify_waiters();
    }

    /// Writes until the queue is empty or the kernel takes no more. Only for whoever has set `writing`.
    fn pump(&self) -> Pumped {
        let mut batch: VecDeque<Bytes> = VecDeque::new();
        loop {
            if batch.is_empty() {
                // What was taken from the queue may be in records that the kernel has not taken yet.
                match self.stream.flush() {
                    Ok(()) => {}
                    Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Pumped::Blocked,
                    Err(_) => {
                        self.close();
                        return Pumped::Closed;
                    }
                }
            }
            {
                let mut out = self.outbox();
                if out.closed {
                    return Pumped::Closed;
                }
                out.take(&mut batch);
                if batch.is_empty() {
                    out.writing = false;
                    return Pumped::All;
                }
            }
            let pieces: Vec<IoSlice<'_>> = batch.iter().map(|piece| IoSlice::new(piece)).collect();
            let written = match self.stream.try_write(&pieces) {
                Ok(written) => written,
                Err(error) if matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted) => 0,
                Err(_) => {
                    self.close();
                    return Pumped::Closed;
                }
            };
            drop(pieces);
            drop_front(&mut batch, written);
            let mut out = self.outbox();
            out.bytes = out.bytes.saturating_sub(written);
            if out.closed {
                return Pumped::Closed;
            }
            self.room.notify_waiters();
            if written == 0 {
                while let Some(piece) = batch.pop_back() {
                    out.pieces.push_front(piece);
                }
                return Pumped::Blocked;
            }
        }
    }

    fn outbox(&self) -> MutexGuard<'_, Outbox> {
        self.out.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Due for Link {
    /// Writes what a burst put into the queue, if it is not much.
    fn due(self: Arc<Self>) {
        if self.queued() > BURST_BYTES_MAX || matches!(self.pump(), Pumped::Blocked) {
            self.work.notify_one();
        }
    }
}

impl Outbox {
    /// The tail becomes a piece.
    fn cut(&mut self) {
        if !self.tail.is_empty() {
            self.pieces.push_back(Bytes::from(std::mem::take(&mut self.tail)));
        }
    }

    /// Moves to `batch`, which may still hold something, what is to be written next.
    fn take(&mut self, batch: &mut VecDeque<Bytes>) {
        self.cut();
        let mut bytes: usize = batch.iter().map(Bytes::len).sum();
        while bytes < WRITE_AT_ONCE && batch.len() < PIECES_AT_ONCE {
            let Some(first) = self.pieces.front_mut() else { return };
            let piece = if first.len() > WRITE_AT_ONCE - bytes {
                first.split_to(WRITE_AT_ONCE - bytes)
            } else {
                std::mem::take(first)
            };
            if first.is_empty() {
                self.pieces.pop_front();
            }
            bytes += piece.len();
            batch.push_back(piece);
        }
    }
}

fn drop_front(batch: &mut VecDeque<Bytes>, mut count: usize) {
    while let Some(first) = batch.front_mut() {
        let now = count.min(first.len());
        first.advance(now);
        count -= now;
        if !first.is_empty() {
            return;
        }
        batch.pop_front();
    }
}
