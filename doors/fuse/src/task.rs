//! Tasks of the door: each step runs where it is woken.
//!
//! A request takes its first step on the thread that read it and the next on the thread that answers it, down to
//! the reply. Handing each step to a worker of the runtime would cost two switches between threads per request,
//! dearer than the steps themselves (measured: half of the CPU of a create).
//!
//! So a step must be short. Work on many bytes belongs on the runtime. And a task must be small: all of it is copied
//! when it starts, whatever it will need. What few requests do is in boxes that are made when it is done (decision 50).

use std::cell::Cell;
use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, Wake, Waker};

use braid_base::burst;
use tokio::runtime::Handle;

/// Waits to be woken.
const IDLE: u8 = 0;
/// Takes a step.
const RUNNING: u8 = 1;
/// Takes a step and was woken meanwhile: another step follows.
const AGAIN: u8 = 2;
/// Came to its end.
const DONE: u8 = 3;

thread_local! {
    /// This thread takes a step of some task, and may hold locks of the client.
    static IN_STEP: Cell<bool> = const { Cell::new(false) };
}

struct Task {
    state: AtomicU8,
    /// Only the one who set `RUNNING` looks in, so the lock is never waited for.
    future: Mutex<Option<Pin<Box<dyn Future<Output = ()> + Send>>>>,
    runtime: Handle,
}

/// Largest task, bytes. Most are half as large.
const TASK_BYTES_MAX: usize = 3 << 10;

/// Takes the first step of `future` here and now. Timers of `future` run on `runtime`.
///
/// A step that panics ends its task and nothing else: the reply, dropped, tells the kernel EIO.
pub(crate) fn start<F: Future<Output = ()> + Send + 'static>(runtime: &Handle, future: F) {
    const { assert!(size_of::<F>() <= TASK_BYTES_MAX, "a request would copy all of this: box what it seldom does") };
    // The budget of a task of the runtime that takes steps of others is not theirs: one that found it spent would be told
    // to come again, at once and for ever.
    let future: Pin<Box<dyn Future<Output = ()> + Send>> = Box::pin(tokio::task::unconstrained(future));
    let task = Task { state: AtomicU8::new(RUNNING), future: Mutex::new(Some(future)), runtime: runtime.clone() };
    Arc::new(task).run();
}

impl Task {
    /// Takes steps until the future waits or has ended. The caller has set `RUNNING`.
    fn run(self: Arc<Self>) {
        let waker = Waker::from(Arc::clone(&self));
        let outer = IN_STEP.replace(true);
        let _in_runtime = self.runtime.enter();
        loop {
            // Swapped, not stored: whoever set `AGAIN` must be seen with all that it did before.
            self.state.swap(RUNNING, Ordering::AcqRel);
            if self.step(&waker).is_ready() {
                self.state.store(DONE, Ordering::Release);
                break;
            }
            if self.state.compare_exchange(RUNNING, IDLE, Ordering::AcqRel, Ordering::Acquire).is_ok() {
                break;
            }
        }
        IN_STEP.set(outer);
    }

    fn step(&self, waker: &Waker) -> Poll<()> {
        let mut slot = self.future.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(future) = slot.as_mut() else { return Poll::Ready(()) };
        let step = catch_unwind(AssertUnwindSafe(|| future.as_mut().poll(&mut Context::from_waker(waker))));
        if !matches!(step, Ok(Poll::Pending)) {
            // Dropping may panic too, after a panic.
            let ended = slot.take();
            let _ = catch_unwind(AssertUnwindSafe(|| drop(ended)));
        }
        step.unwrap_or(Poll::Ready(()))
    }

    /// May the next step be taken on this thread? Not inside a step of another task, which may hold what this one
    /// needs, and not on a thread of the runtime, which has workers for that, unless it says that it may.
    fn may_run_here() -> bool {
        !IN_STEP.get() && (burst::enter() || Handle::try_current().is_err())
    }
}

impl Wake for Task {
    fn wake(self: Arc<Self>) {
        loop {
            let (from, to) = match self.state.load(Ordering::Acquire) {
                IDLE => (IDLE, RUNNING),
                RUNNING => (RUNNING, AGAIN),
                // Written again, so that the step to come sees what this waker did before, too.
                AGAIN => (AGAIN, AGAIN),
                _ => return,
            };
            if self.state.compare_exchange(from, to, Ordering::AcqRel, Ordering::Acquire).is_err() {
                continue;
            }
            if from != IDLE {
                return;
            }
            return if Self::may_run_here() {
                self.run();
            } else {
                let runtime = self.runtime.clone();
                runtime.spawn(async move { self.run() });
            };
        }
    }
}

#[cfg(test)]
mod tests {
    use std::future::poll_fn;
    use std::pin::Pin;
    use std::sync::mpsc;
    use std::task::Poll;
    use std::thread;
    use std::time::Duration;

    use tokio::runtime::Runtime;
    use tokio::sync::oneshot;

    use super::{burst, start};

    fn runtime() -> Runtime {
        tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().expect("a runtime")
    }

    #[test]
    fn steps_run_on_the_thread_that_starts_and_on_the_thread_that_wakes() {
        let runtime = runtime();
        let (tx, rx) = oneshot::channel();
        let (told, heard) = mpsc::channel();
        start(runtime.handle(), async move {
            let first = thread::current().id();
            rx.await.expect("sent below");
            told.send((first, thread::current().id())).expect("the test waits");
        });
        let other = thread::spawn(move || {
            tx.send(()).expect("the task waits");
            thread::current().id()
        });
        let (first, second) = heard.recv().expect("the task ends");
        assert_eq!(first, thread::current().id());
        assert_eq!(second, other.join().expect("no panic"));
    }

    #[test]
    fn a_wake_inside_another_step_goes_to_the_runtime() {
        let runtime = runtime();
        let (tx, rx) = oneshot::channel();
        let (told, heard) = mpsc::channel();
        start(runtime.handle(), async move {
            rx.await.expect("sent below");
            told.send(thread::current().id()).expect("the test waits");
        });
        start(runtime.handle(), async move { tx.send(()).expect("the first task waits") });
        assert_ne!(heard.recv().expect("the task ends"), thread::current().id());
    }

    #[test]
    fn a_worker_of_the_runtime_takes_steps_where_it_says_so_even_at_the_end_of_its_budget() {
        let runtime = runtime();
        let (tx, rx) = oneshot::channel();
        let (told, heard) = mpsc::channel();
        start(runtime.handle(), async move {
            rx.await.expect("sent below");
            told.send(thread::current().id()).expect("the test waits");
        });
        let waking = async move {
            // Asked so often in one go, even what is ready says that it is not.
            let mut is_spent = false;
            while !is_spent {
                let (ready, mut soon) = oneshot::channel();
                ready.send(()).expect("it is awaited");
                is_spent = poll_fn(|cx| Poll::Ready(Pin::new(&mut soon).poll(cx).is_pending())).await;
            }
            burst::open(|| tx.send(())).expect("the task waits");
            // Before anybody else could have taken the step.
            (thread::current().id(), heard.try_recv())
        };
        let (here, stepped) = runtime.block_on(runtime.spawn(waking)).expect("no panic");
        assert_eq!(stepped, Ok(here));
    }

    #[test]
    fn many_wakes_from_many_threads_lose_none() {
        let runtime = runtime();
        let (told, heard) = mpsc::channel();
        for _ in 0..200 {
            let (first, second) = (oneshot::channel(), oneshot::channel());
            let told = told.clone();
            start(runtime.handle(), async move {
                let both = tokio::join!(first.1, second.1);
                told.send(both.0.is_ok() && both.1.is_ok()).expect("the test waits");
            });
            let senders = [first.0, second.0].map(|tx| thread::spawn(move || tx.send(())));
            for sender in senders {
                sender.join().expect("no panic").expect("the task waits");
            }
        }
        drop(told);
        let ends: Vec<bool> = heard.iter().collect();
        assert_eq!((ends.len(), ends.iter().all(|ok| *ok)), (200, true));
    }

    #[test]
    fn timers_work_and_a_panic_ends_only_its_task() {
        let runtime = runtime();
        let (told, heard) = mpsc::channel();
        let held = told.clone();
        start(runtime.handle(), async move {
            let _held = held;
            tokio::time::sleep(Duration::from_millis(1)).await;
            panic!("a test's panic, expected");
        });
        start(runtime.handle(), async move {
            tokio::time::sleep(Duration::from_millis(20)).await;
            told.send(()).expect("the test waits");
        });
        assert_eq!(heard.iter().count(), 1);
    }
}
