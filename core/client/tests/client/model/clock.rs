//! A clock that stands still while anything can run and jumps to the next timer when nothing can.

use std::collections::BTreeMap;
use std::future::poll_fn;
use std::pin::pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Wake, Waker};

use braid_client::BoxFuture;

#[derive(Clone, Default)]
pub struct Clock(Arc<Mutex<Timers>>, Arc<Mutex<Vec<BoxFuture<()>>>>);

#[derive(Default)]
struct Timers {
    now: u64,
    next: u64,
    waiting: BTreeMap<(u64, u64), Waker>,
}

struct Flag(AtomicBool);

impl Wake for Flag {
    fn wake(self: Arc<Self>) {
        self.0.store(true, Ordering::SeqCst);
    }
}

impl Clock {
    pub fn now_ms(&self) -> u64 {
        self.0.lock().expect("timers").now
    }

    pub fn sleep(&self, ms: u64) -> BoxFuture<()> {
        let this = self.0.clone();
        let key = {
            let mut timers = this.lock().expect("timers");
            timers.next += 1;
            (timers.now + ms, timers.next)
        };
        let timer = Timer { this, key };
        Box::pin(poll_fn(move |cx| timer.poll(cx)))
    }

    /// Runs `work` beside what [`Self::run`] runs, now or later.
    pub fn spawn(&self, work: BoxFuture<()>) {
        self.1.lock().expect("tasks").push(work);
    }

    /// One step of each spawned task; true if one of them ended or spawned another.
    fn step_spawned(&self, cx: &mut Context<'_>) -> bool {
        let mut tasks = std::mem::take(&mut *self.1.lock().expect("tasks"));
        let before = tasks.len();
        tasks.retain_mut(|task| task.as_mut().poll(cx).is_pending());
        let ended = tasks.len() < before;
        let mut all = self.1.lock().expect("tasks");
        let spawned = !all.is_empty();
        all.extend(tasks);
        ended || spawned
    }

    pub fn run<F: Future>(&self, future: F) -> F::Output {
        let mut future = pin!(future);
        let flag = Arc::new(Flag(AtomicBool::new(true)));
        let waker = Waker::from(flag.clone());
        loop {
            if flag.0.swap(false, Ordering::SeqCst) {
                if let Poll::Ready(value) = future.as_mut().poll(&mut Context::from_waker(&waker)) {
                    return value;
                }
                if self.step_spawned(&mut Context::from_waker(&waker)) {
                    flag.0.store(true, Ordering::SeqCst);
                }
                continue;
            }
            let mut timers = self.0.lock().expect("timers");
            let ((at, _), waker) = timers.waiting.pop_first().expect("everything waits and no timer runs: a deadlock");
            timers.now = timers.now.max(at);
            drop(timers);
            waker.wake();
        }
    }
}

struct Timer {
    this: Arc<Mutex<Timers>>,
    key: (u64, u64),
}

impl Timer {
    fn poll(&self, cx: &mut Context<'_>) -> Poll<()> {
        let mut timers = self.this.lock().expect("timers");
        if timers.now >= self.key.0 {
            return Poll::Ready(());
        }
        timers.waiting.insert(self.key, cx.waker().clone());
        Poll::Pending
    }
}

impl Drop for Timer {
    fn drop(&mut self) {
        self.this.lock().expect("timers").waiting.remove(&self.key);
    }
}
