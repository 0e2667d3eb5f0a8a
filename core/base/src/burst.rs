//! Work that is better done once for many messages than for each: waking a thread, handing bytes to the kernel.
//!
//! A thread that handles a few messages in a row runs them as a burst. What they put off is done at its end: the thread
//! that is to be woken finds all of them instead of the first, and what goes to one connection goes there with one call.
//! A message alone is a burst of one, and nothing waits for it.

use std::cell::{Cell, RefCell};
use std::sync::Arc;

/// Messages in a burst, at most: the first must not wait long for the last.
pub const BURST_MAX: usize = 16;

/// Something to do at the end of a burst.
pub trait Due: Send + Sync {
    /// Does it. Not in a burst any more: what this puts off happens at once.
    fn due(self: Arc<Self>);
}

thread_local! {
    /// Whoever this thread wakes may run on it.
    static OPEN: Cell<bool> = const { Cell::new(false) };
    /// What was put off, while this thread is in a burst.
    static PUT_OFF: RefCell<Option<Vec<Arc<dyn Due>>>> = const { RefCell::new(None) };
}

/// Runs `work`, then what was put off meanwhile, in that order; also if `work` panics. One inside another belongs to it.
pub fn run<T>(work: impl FnOnce() -> T) -> T {
    struct End;
    impl Drop for End {
        fn drop(&mut self) {
            let dues = PUT_OFF.take();
            dues.into_iter().flatten().for_each(Due::due);
        }
    }
    let begun = PUT_OFF.with_borrow_mut(|dues| dues.is_none() && dues.replace(Vec::new()).is_none());
    let _end = begun.then(|| End);
    work()
}

/// Does `wake`, which wakes others: those that can may take their next step here and now. Only where this thread holds
/// no lock.
pub fn open<T>(wake: impl FnOnce() -> T) -> T {
    struct Close(bool);
    impl Drop for Close {
        fn drop(&mut self) {
            OPEN.set(self.0);
        }
    }
    let _close = Close(OPEN.replace(true));
    wake()
}

/// Whether this thread is in [`open`], which ends with this: one runs, and what it wakes does so holding who knows what.
pub fn enter() -> bool {
    OPEN.replace(false)
}

/// True: `due` is called at the end of the burst that this thread is in. False: it is in none.
pub fn put_off<D: Due + 'static>(due: &Arc<D>) -> bool {
    PUT_OFF.with_borrow_mut(|dues| match dues {
        Some(dues) => {
            dues.push(Arc::<D>::clone(due));
            true
        }
        None => false,
    })
}

#[cfg(test)]
mod tests {
    use std::panic::{AssertUnwindSafe, catch_unwind};
    use std::sync::Mutex;

    use super::*;

    struct Note(&'static str, Arc<Mutex<Vec<&'static str>>>);

    impl Due for Note {
        fn due(self: Arc<Self>) {
            assert!(!put_off(&self), "the burst is over");
            self.1.lock().expect("no panic").push(self.0);
        }
    }

    #[test]
    fn what_was_put_off_is_done_once_at_the_end_whatever_happens() {
        let seen = Arc::new(Mutex::new(Vec::new()));
        let note = |name| Arc::new(Note(name, Arc::clone(&seen)));
        let first = note("first");
        assert!(!put_off(&first));
        run(|| {
            assert!(put_off(&first));
            run(|| assert!(put_off(&note("second"))));
            assert!(seen.lock().expect("no panic").is_empty(), "the inner one is part of the outer");
        });
        assert_eq!(*seen.lock().expect("no panic"), ["first", "second"]);
        let panicked = catch_unwind(AssertUnwindSafe(|| {
            run(|| {
                put_off(&note("third"));
                panic!("in the middle");
            })
        }));
        assert!(panicked.is_err());
        assert_eq!(seen.lock().expect("no panic").last(), Some(&"third"));
        assert!(!put_off(&first));
    }
}
