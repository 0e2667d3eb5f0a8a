//! Who waits for what others change under a lock. Each has one place, and leaves it when it waits no more: what is waited
//! for may not come for long.

use std::collections::BTreeMap;
use std::future::poll_fn;
use std::sync::{Mutex, MutexGuard};
use std::task::{Poll, Waker};

/// Those who wait.
#[derive(Default)]
pub(crate) struct Wakers {
    last: u64,
    waiting: BTreeMap<u64, Waker>,
}

impl Wakers {
    /// All of them, to be woken when the lock is given back: they look again.
    pub(crate) fn take(&mut self) -> Vec<Waker> {
        std::mem::take(&mut self.waiting).into_values().collect()
    }
}

/// Ready when `ready` says so; asked each time after `wakers` of what is under the lock were woken.
pub(crate) async fn wait<T>(held: &Mutex<T>, wakers: impl Fn(&mut T) -> &mut Wakers, ready: impl Fn(&mut T) -> bool) {
    let mut place = Place { held, wakers, number: None };
    poll_fn(|cx| place.look(&ready, cx.waker())).await;
}

struct Place<'a, T, W: Fn(&mut T) -> &mut Wakers> {
    held: &'a Mutex<T>,
    wakers: W,
    number: Option<u64>,
}

impl<T, W: Fn(&mut T) -> &mut Wakers> Place<'_, T, W> {
    fn look(&mut self, ready: &impl Fn(&mut T) -> bool, waker: &Waker) -> Poll<()> {
        let mut held = lock(self.held);
        if ready(&mut held) {
            return Poll::Ready(());
        }
        let wakers = (self.wakers)(&mut held);
        let number = *self.number.get_or_insert_with(|| {
            wakers.last += 1;
            wakers.last
        });
        wakers.waiting.insert(number, waker.clone());
        Poll::Pending
    }
}

impl<T, W: Fn(&mut T) -> &mut Wakers> Drop for Place<'_, T, W> {
    fn drop(&mut self) {
        if let Some(number) = self.number {
            (self.wakers)(&mut lock(self.held)).waiting.remove(&number);
        }
    }
}

/// What others wait for, and who does.
pub(crate) fn lock<T>(held: &Mutex<T>) -> MutexGuard<'_, T> {
    held.lock().expect("nothing panics while it holds what others wait for")
}

#[cfg(test)]
mod tests {
    use std::future::Future;
    use std::pin::pin;
    use std::task::Context;

    use super::*;

    #[test]
    fn each_has_one_place_and_leaves_it() {
        let held: Mutex<(u32, Wakers)> = Mutex::default();
        let mut cx = Context::from_waker(Waker::noop());
        let waiting = || held.lock().expect("one thread").1.waiting.len();
        {
            let mut two = pin!(wait(&held, |held| &mut held.1, |held| held.0 == 2));
            let mut three = pin!(wait(&held, |held| &mut held.1, |held| held.0 == 3));
            for _ in 0..9 {
                assert!(two.as_mut().poll(&mut cx).is_pending() && three.as_mut().poll(&mut cx).is_pending());
            }
            assert_eq!(waiting(), 2);
            held.lock().expect("one thread").0 = 2;
            let woken = held.lock().expect("one thread").1.take().len();
            assert_eq!((woken, waiting()), (2, 0));
            assert!(two.as_mut().poll(&mut cx).is_ready() && three.as_mut().poll(&mut cx).is_pending());
            assert_eq!(waiting(), 1);
        }
        assert_eq!(waiting(), 0, "it was given up");
    }
}
