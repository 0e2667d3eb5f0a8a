//! Waiting for several futures at once, for one not longer than it deserves, and for drives, on any executor.

use std::future::{Future, poll_fn};
use std::pin::pin;
use std::task::Poll;

use braid_base::ids::DriveId;
use braid_base::msg::drive::{DriveOp, DriveResult};
use braid_base::{ErrorKind, burst};

use crate::wire::{BoxFuture, Wire};

/// Runs `futures` at most `limit` at a time; the results come in the order of the futures.
///
/// Every wake polls all that run, so `limit` should stay below a hundred.
pub(crate) async fn join_bounded<F: Future>(limit: usize, futures: Vec<F>) -> Vec<F::Output> {
    assert!(limit > 0, "a limit of 0 would wait for ever");
    let mut done: Vec<Option<F::Output>> = futures.iter().map(|_| None).collect();
    let mut waiting = futures.into_iter().enumerate();
    let mut running = Vec::with_capacity(limit.min(done.len()));
    poll_fn(|cx| {
        loop {
            running.extend(waiting.by_ref().take(limit - running.len()).map(|(at, f)| (at, Box::pin(f))));
            let before = running.len();
            running.retain_mut(|(at, future)| match future.as_mut().poll(cx) {
                Poll::Ready(value) => {
                    done[*at] = Some(value);
                    false
                }
                Poll::Pending => true,
            });
            if running.is_empty() && waiting.len() == 0 {
                return Poll::Ready(());
            }
            // A finished one makes room for one that was never polled: go round, or nobody would wake us for it.
            if running.len() == before {
                return Poll::Pending;
            }
        }
    })
    .await;
    done.into_iter().map(|slot| slot.expect("every future was polled until it was ready")).collect()
}

/// Lets other tasks go first that are ready by now.
pub(crate) async fn step_back() {
    let mut has_waited = false;
    poll_fn(|cx| {
        if std::mem::replace(&mut has_waited, true) {
            return Poll::Ready(());
        }
        cx.waker().wake_by_ref();
        Poll::Pending
    })
    .await;
}

/// Runs `futures` at most `limit` at a time; what they send goes together.
pub(crate) async fn join_in_bursts<F: Future>(limit: usize, futures: Vec<F>) -> Vec<F::Output> {
    let mut joined = pin!(join_bounded(limit, futures));
    poll_fn(|cx| burst::run(|| joined.as_mut().poll(cx))).await
}

/// Runs all of `futures` at once. When no more than `slack` of them are left, those have `grace_ms` more; `None` for the
/// ones that were later still. How much is late is measured by the others: where all are slow, nobody is given up.
pub(crate) async fn join_or_late<F: Future>(
    wire: &dyn Wire,
    (slack, grace_ms): (usize, u64),
    futures: Vec<F>,
) -> Vec<Option<F::Output>> {
    let mut done: Vec<Option<F::Output>> = futures.iter().map(|_| None).collect();
    let mut running: Vec<_> = futures.into_iter().map(Box::pin).enumerate().collect();
    let mut timer = None;
    poll_fn(|cx| {
        running.retain_mut(|(at, future)| match future.as_mut().poll(cx) {
            Poll::Ready(value) => {
                done[*at] = Some(value);
                false
            }
            Poll::Pending => true,
        });
        if running.is_empty() {
            return Poll::Ready(());
        }
        // Without one that has answered nobody knows what is late.
        if running.len() > slack || running.len() == done.len() {
            return Poll::Pending;
        }
        timer.get_or_insert_with(|| wire.sleep_ms(grace_ms)).as_mut().poll(cx)
    })
    .await;
    done
}

/// Both values; `a` goes first.
pub(crate) async fn both<A: Future, B: Future>(a: A, b: B) -> (A::Output, B::Output) {
    let (mut a, mut b) = (pin!(a), pin!(b));
    let (mut of_a, mut of_b) = (None, None);
    poll_fn(|cx| {
        if of_a.is_none()
            && let Poll::Ready(value) = a.as_mut().poll(cx)
        {
            of_a = Some(value);
        }
        if of_b.is_none()
            && let Poll::Ready(value) = b.as_mut().poll(cx)
        {
            of_b = Some(value);
        }
        if of_a.is_some() && of_b.is_some() { Poll::Ready(()) } else { Poll::Pending }
    })
    .await;
    (of_a.expect("it was polled until it was ready"), of_b.expect("it was polled until it was ready"))
}

/// The value of `future`, and whether `first`, which has its turn before it each time, is over by then.
pub(crate) async fn beside<F: Future>(first: &mut BoxFuture<()>, future: F) -> (bool, F::Output) {
    let (mut future, mut is_over) = (pin!(future), false);
    let value = poll_fn(|cx| {
        is_over = is_over || first.as_mut().poll(cx).is_ready();
        future.as_mut().poll(cx)
    })
    .await;
    (is_over, value)
}

/// `future`'s value, or `None` if `end` comes first.
pub(crate) async fn until<F: Future>(end: impl Future<Output = ()>, future: F) -> Option<F::Output> {
    let (mut end, mut future) = (pin!(end), pin!(future));
    poll_fn(|cx| match future.as_mut().poll(cx) {
        Poll::Ready(value) => Poll::Ready(Some(value)),
        Poll::Pending => end.as_mut().poll(cx).map(|()| None),
    })
    .await
}

/// Pause after a drive said that it is busy, milliseconds.
const BUSY_MS: u64 = 40;

/// Asks `drive` until it says yes or no: again when each of `waits_ms` has passed in silence or it is busy. The answer
/// to any of these questions counts, so `op` must do no harm when it is carried out twice. `TimedOut` if none came.
pub(crate) async fn ask_drive(wire: &dyn Wire, drive: DriveId, op: &DriveOp, waits_ms: &[u64]) -> DriveResult {
    let (mut asked, mut last) = (Vec::with_capacity(1), ErrorKind::TimedOut.into());
    for wait_ms in waits_ms {
        asked.push(wire.drive(drive, op.clone()));
        match within(wire, *wait_ms, first(&mut asked)).await {
            Some(Err(error)) if matches!(error.kind(), ErrorKind::Busy | ErrorKind::TimedOut) => {
                last = error;
                wire.sleep_ms(BUSY_MS).await;
            }
            Some(answer) => return answer,
            None => {}
        }
    }
    Err(last)
}

/// The value of whichever of `futures` is ready first; that one is taken out.
async fn first<T>(futures: &mut Vec<BoxFuture<T>>) -> T {
    poll_fn(|cx| {
        for (at, future) in futures.iter_mut().enumerate() {
            if let Poll::Ready(value) = future.as_mut().poll(cx) {
                drop(futures.swap_remove(at));
                return Poll::Ready(value);
            }
        }
        Poll::Pending
    })
    .await
}

/// `future`'s value, or `None` if `ms` milliseconds pass first. The timer is made only if `future` has to wait.
pub(crate) async fn within<F: Future>(wire: &dyn Wire, ms: u64, future: F) -> Option<F::Output> {
    let mut future = pin!(future);
    let mut timer = None;
    poll_fn(|cx| {
        if let Poll::Ready(value) = future.as_mut().poll(cx) {
            return Poll::Ready(Some(value));
        }
        let timer = timer.get_or_insert_with(|| wire.sleep_ms(ms));
        timer.as_mut().poll(cx).map(|()| None)
    })
    .await
}
