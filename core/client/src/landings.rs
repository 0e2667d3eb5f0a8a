//! What lands of all that is on its way to the cluster, and who waits for that because there is no room for more.

use std::sync::Mutex;
use std::task::Waker;

use crate::join::within;
use crate::wakers::{self, Wakers};
use crate::wire::Wire;

/// One waits so long for another landing, milliseconds; then it does without, and so do others until there is one.
const LANDING_MS: u64 = 5_000;

/// How many have landed.
#[derive(Default)]
pub(crate) struct Landings {
    pub(crate) count: u64,
    /// None has since then, though somebody waited long for it.
    stuck_at: Option<u64>,
    /// Those who wait for this or that.
    pub(crate) wakers: Wakers,
}

impl Landings {
    /// One more has; those who wait are to be woken when the lock is given back.
    #[must_use]
    pub(crate) fn add(&mut self) -> Vec<Waker> {
        self.count += 1;
        self.wakers.take()
    }
}

/// Waits until one more has landed, or there is room: `is_free`. False if nothing lands for long.
pub(crate) async fn one_more<T>(
    wire: &dyn Wire,
    held: &Mutex<T>,
    of: fn(&mut T) -> &mut Landings,
    is_free: impl Fn(&T) -> bool,
) -> bool {
    let (count, is_stuck) = {
        let mut held = wakers::lock(held);
        let landings = of(&mut held);
        (landings.count, landings.stuck_at == Some(landings.count))
    };
    if is_stuck {
        return false;
    }
    let lands = wakers::wait(held, |held| &mut of(held).wakers, |held| is_free(held) || of(held).count != count);
    let has_landed = within(wire, LANDING_MS, lands).await.is_some();
    if !has_landed {
        of(&mut wakers::lock(held)).stuck_at = Some(count);
    }
    has_landed
}

#[cfg(test)]
mod tests {
    use std::future::{Future, pending, poll_fn};
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU64, Ordering};
    use std::task::{Context, Poll};

    use braid_base::ids::{DriveId, PartitionId};
    use braid_base::msg::drive::{DriveOp, DriveResult};
    use braid_base::msg::fs::Request;
    use braid_base::msg::lease::Answer;

    use super::*;
    use crate::wire::BoxFuture;

    /// A clock, and nobody to ask. It wakes nobody: the test polls.
    #[derive(Default)]
    struct Clock(Arc<AtomicU64>);

    impl Wire for Clock {
        fn partition(&self, _: PartitionId, _: Request) -> BoxFuture<Answer> {
            Box::pin(pending())
        }

        fn drive(&self, _: DriveId, _: DriveOp) -> BoxFuture<DriveResult> {
            Box::pin(pending())
        }

        fn sleep_ms(&self, ms: u64) -> BoxFuture<()> {
            let (now, until) = (Arc::clone(&self.0), self.now_ms() + ms);
            let is_over = move || now.load(Ordering::Relaxed) >= until;
            Box::pin(poll_fn(move |_| if is_over() { Poll::Ready(()) } else { Poll::Pending }))
        }

        fn partitions(&self) -> u16 {
            1
        }

        fn now_ms(&self) -> u64 {
            self.0.load(Ordering::Relaxed)
        }
    }

    #[test]
    fn one_waits_in_vain_and_others_not_at_all_until_one_has_landed() {
        let (clock, held) = (Clock::default(), Mutex::<(bool, Landings)>::default());
        let mut cx = Context::from_waker(Waker::noop());
        let wait = || Box::pin(one_more(&clock, &held, |held| &mut held.1, |held| held.0));
        let land = || drop(held.lock().expect("one thread").1.add());
        let mut first = wait();
        assert!(first.as_mut().poll(&mut cx).is_pending());
        clock.0.store(LANDING_MS - 1, Ordering::Relaxed);
        assert!(first.as_mut().poll(&mut cx).is_pending());
        clock.0.store(LANDING_MS, Ordering::Relaxed);
        assert_eq!(first.as_mut().poll(&mut cx), Poll::Ready(false));
        assert_eq!(wait().as_mut().poll(&mut cx), Poll::Ready(false), "somebody has waited");
        land();
        let mut second = wait();
        assert!(second.as_mut().poll(&mut cx).is_pending(), "one has landed since");
        land();
        assert_eq!(second.as_mut().poll(&mut cx), Poll::Ready(true));
        let mut third = wait();
        assert!(third.as_mut().poll(&mut cx).is_pending());
        held.lock().expect("one thread").0 = true;
        assert_eq!(third.as_mut().poll(&mut cx), Poll::Ready(true), "there is room");
    }
}
