//! Waiting for several futures at once, and for one not longer than it deserves, on any executor.

use std::future::{Future, poll_fn};
use std::pin::pin;
use std::task::Poll;

use crate::wire::Wire;

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

/// `future`'s value, or `None` if `end` comes first.
pub(crate) async fn until<F: Future>(end: impl Future<Output = ()>, future: F) -> Option<F::Output> {
    let (mut end, mut future) = (pin!(end), pin!(future));
    poll_fn(|cx| match future.as_mut().poll(cx) {
        Poll::Ready(value) => Poll::Ready(Some(value)),
        Poll::Pending => end.as_mut().poll(cx).map(|()| None),
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
