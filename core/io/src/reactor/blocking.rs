//! The engine without io_uring: a few threads that make blocking calls.

use std::collections::VecDeque;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;

use braid_base::{Error, ErrorKind, Result};
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use super::job::Job;
use super::mailbox::Waker;
use super::{Completions, IoDone, Token};
use crate::clock;

/// Threads of one actor: enough that a slow write does not hold up reads.
const THREADS: usize = 4;

pub(super) struct Blocking {
    shared: Arc<Shared>,
    threads: Vec<JoinHandle<()>>,
    in_flight: usize,
}

struct Shared {
    desk: Mutex<Desk>,
    work: Condvar,
    waker: Arc<Waker>,
}

#[derive(Default)]
struct Desk {
    todo: VecDeque<Job>,
    done: Vec<(Token, Result<IoDone>)>,
    closing: bool,
}

impl Blocking {
    pub(super) fn new(waker: Arc<Waker>) -> Self {
        let shared = Shared { desk: Mutex::new(Desk::default()), work: Condvar::new(), waker };
        Self { shared: Arc::new(shared), threads: Vec::new(), in_flight: 0 }
    }

    pub(super) fn submit(&mut self, job: Job) {
        let token = job.token;
        self.in_flight += 1;
        self.shared.lock().todo.push_back(job);
        self.shared.work.notify_one();
        if self.threads.len() < THREADS.min(self.in_flight) {
            let shared = Arc::clone(&self.shared);
            match std::thread::Builder::new().name("braid-io".into()).spawn(move || shared.serve()) {
                Ok(thread) => self.threads.push(thread),
                // The threads that run already serve the queue.
                Err(_) if !self.threads.is_empty() => {}
                Err(error) => {
                    let mut desk = self.shared.lock();
                    desk.todo.pop_back();
                    desk.done.push((token, Err(Error::os("start an I/O thread", &error))));
                }
            }
        }
    }

    pub(super) fn in_flight(&self) -> usize {
        self.in_flight
    }

    pub(super) fn has_ended(&self) -> bool {
        !self.shared.lock().done.is_empty()
    }

    pub(super) fn reap(&mut self, out: &mut Completions) {
        let before = out.len();
        out.append(&mut self.shared.lock().done);
        self.in_flight -= out.len() - before;
    }

    pub(super) fn sleep(&mut self, until: Option<u64>, idle: impl Fn() -> bool) {
        let waker = &self.shared.waker;
        waker.doze();
        if idle()
            && self.shared.lock().done.is_empty()
            && let Some(bell) = waker.fd()
        {
            let left = until.map(|at| timespec(at.saturating_sub(clock::mono_us())));
            // Errors (a signal) only make the round come early.
            let _ = poll(&mut [PollFd::from_borrowed_fd(bell, PollFlags::IN)], left.as_ref());
            waker.clear();
        }
        waker.rouse();
    }
}

fn timespec(us: u64) -> Timespec {
    // Timers of more than half an hour are cut; the round that wakes early sets the rest again.
    let us = i32::try_from(us).unwrap_or(i32::MAX);
    Timespec { tv_sec: (us / 1_000_000).into(), tv_nsec: (us % 1_000_000 * 1000).into() }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Desk> {
        self.desk.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn serve(&self) {
        while let Some(mut job) = self.next() {
            let token = job.token;
            let run = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| job.run()));
            let result = run.unwrap_or_else(|_| Err(Error::new(ErrorKind::Io, "an I/O thread panicked")));
            self.lock().done.push((token, result));
            self.waker.wake();
        }
    }

    fn next(&self) -> Option<Job> {
        let mut desk = self.lock();
        loop {
            if let Some(job) = desk.todo.pop_front() {
                return Some(job);
            }
            if desk.closing {
                return None;
            }
            desk = self.work.wait(desk).unwrap_or_else(PoisonError::into_inner);
        }
    }
}

impl Drop for Blocking {
    fn drop(&mut self) {
        self.shared.lock().closing = true;
        self.shared.work.notify_all();
        for thread in self.threads.drain(..) {
            // Its panics were caught and reported as failed I/O.
            let _ = thread.join();
        }
    }
}
