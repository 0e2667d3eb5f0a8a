//! The way into an actor from other threads.
//!
//! The queue has no bound of its own: a sender must never block inside an actor (two full mailboxes would
//! wait for each other), so each protocol bounds what it has outstanding and the receiver refuses the rest.

use std::collections::VecDeque;
use std::fmt;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use braid_base::{Error, ErrorKind, Result};
use rustix::event::{EventfdFlags, eventfd};

use crate::file::os;
use braid_base::burst::{self, Due};

/// The actor has stopped; the message was dropped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stopped;

impl fmt::Display for Stopped {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the part that should answer has stopped")
    }
}

impl std::error::Error for Stopped {}

impl From<Stopped> for Error {
    fn from(_: Stopped) -> Self {
        Error::new(ErrorKind::Stopped, "the part that should answer has stopped; restart it")
    }
}

/// Sends messages to one actor. Cheap to clone. When the last clone is dropped, the actor gets `on_closed`.
pub struct Mailbox<M> {
    shared: Arc<Shared<M>>,
}

pub(super) struct Inbox<M> {
    shared: Arc<Shared<M>>,
    told_closed: bool,
}

struct Shared<M> {
    queue: Mutex<Queue<M>>,
    senders: AtomicUsize,
    waker: Arc<Waker>,
}

struct Queue<M> {
    messages: VecDeque<M>,
    stopped: bool,
}

/// Wakes a sleeping reactor, and does nothing if it is awake.
pub(super) struct Waker {
    asleep: AtomicBool,
    bell: Bell,
}

/// What wakes it.
enum Bell {
    /// The thread that it has to itself.
    Thread(OwnedFd),
    /// Whoever hosts it.
    Host(Box<dyn Fn() + Send + Sync>),
}

/// The way to an actor on a thread of its own.
pub(super) fn channel<M>() -> Result<(Mailbox<M>, Inbox<M>)> {
    let fd = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK).map_err(|e| os("make an eventfd", e))?;
    Ok(channel_of(Bell::Thread(fd)))
}

/// The way to an actor that others host; `wake` tells them that there is something for it.
pub(super) fn hosted<M>(wake: impl Fn() + Send + Sync + 'static) -> (Mailbox<M>, Inbox<M>) {
    channel_of(Bell::Host(Box::new(wake)))
}

fn channel_of<M>(bell: Bell) -> (Mailbox<M>, Inbox<M>) {
    let waker = Arc::new(Waker { asleep: AtomicBool::new(false), bell });
    let queue = Mutex::new(Queue { messages: VecDeque::new(), stopped: false });
    let shared = Arc::new(Shared { queue, senders: AtomicUsize::new(1), waker });
    (Mailbox { shared: Arc::clone(&shared) }, Inbox { shared, told_closed: false })
}

impl<M> Mailbox<M> {
    /// Queues `msg`, in order with this sender's earlier ones. `Stopped` if the actor is gone; a message that was
    /// queued may still be dropped unseen when the actor stops.
    pub fn send(&self, msg: M) -> std::result::Result<(), Stopped> {
        let mut queue = self.shared.lock();
        if queue.stopped {
            return Err(Stopped);
        }
        queue.messages.push_back(msg);
        drop(queue);
        self.shared.waker.wake();
        Ok(())
    }

    /// Messages that wait to be taken.
    pub fn depth(&self) -> usize {
        self.shared.lock().messages.len()
    }

    /// True once the actor is gone.
    pub fn is_stopped(&self) -> bool {
        self.shared.lock().stopped
    }
}

impl<M> Clone for Mailbox<M> {
    fn clone(&self) -> Self {
        self.shared.senders.fetch_add(1, Ordering::Relaxed);
        Self { shared: Arc::clone(&self.shared) }
    }
}

impl<M> Drop for Mailbox<M> {
    fn drop(&mut self) {
        if self.shared.senders.fetch_sub(1, Ordering::AcqRel) == 1 {
            self.shared.waker.wake();
        }
    }
}

impl<M> fmt::Debug for Mailbox<M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Mailbox").field("depth", &self.depth()).finish()
    }
}

impl<M> Inbox<M> {
    pub(super) fn waker(&self) -> Arc<Waker> {
        Arc::clone(&self.shared.waker)
    }

    /// Moves all queued messages into the empty `out`. True, once, when there will never be another.
    pub(super) fn take(&mut self, out: &mut VecDeque<M>) -> bool {
        assert!(out.is_empty(), "the last batch was handled completely");
        // Read before the queue: a sender counts itself out after its last message.
        let orphaned = self.orphaned();
        std::mem::swap(&mut self.shared.lock().messages, out);
        if orphaned && out.is_empty() {
            self.told_closed = true;
            return true;
        }
        false
    }

    /// Nothing to take, and nothing to be told.
    pub(super) fn is_idle(&self) -> bool {
        self.shared.lock().messages.is_empty() && !self.orphaned()
    }

    fn orphaned(&self) -> bool {
        !self.told_closed && self.shared.senders.load(Ordering::Acquire) == 0
    }
}

impl<M> Drop for Inbox<M> {
    /// Also runs when the actor panics: senders then get `Stopped` instead of waiting for ever.
    fn drop(&mut self) {
        let mut queue = self.shared.lock();
        queue.stopped = true;
        let dropped = std::mem::take(&mut queue.messages);
        drop(queue);
        // Outside the lock: a message's own drop may send to this very mailbox.
        drop(dropped);
    }
}

impl<M> Shared<M> {
    fn lock(&self) -> MutexGuard<'_, Queue<M>> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Waker {
    /// Wakes the thread if it sleeps or is about to: at the end of the burst, if the caller is in one.
    pub(super) fn wake(self: &Arc<Self>) {
        if self.asleep.swap(false, Ordering::SeqCst) && !burst::put_off(self) {
            self.ring();
        }
    }

    fn ring(&self) {
        match &self.bell {
            // The only failure is a full counter, and then the thread is being woken already.
            Bell::Thread(fd) => drop(rustix::io::write(fd, &1u64.to_ne_bytes())),
            Bell::Host(wake) => wake(),
        }
    }

    /// What becomes readable; none if it is hosted.
    pub(super) fn fd(&self) -> Option<BorrowedFd<'_>> {
        match &self.bell {
            Bell::Thread(fd) => Some(fd.as_fd()),
            Bell::Host(_) => None,
        }
    }

    /// From now on `wake` rings. The caller must look at its queues once more before it sleeps.
    pub(super) fn doze(&self) {
        self.asleep.store(true, Ordering::SeqCst);
    }

    /// Back to work.
    pub(super) fn rouse(&self) {
        self.asleep.store(false, Ordering::SeqCst);
    }

    /// Hears the bell no more.
    pub(super) fn clear(&self) {
        if let Some(fd) = self.fd() {
            // "Nothing to read" is fine: a wake-up may be taken by an earlier round.
            let _ = rustix::io::read(fd, &mut [0u8; 8]);
        }
    }
}

impl Due for Waker {
    fn due(self: Arc<Self>) {
        self.ring();
    }
}
