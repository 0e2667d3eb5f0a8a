//! Requests to which no reply was given yet (it may wait to leave, see `together`): each gets exactly one, whoever comes first, and interrupts find the one they mean.

use std::collections::{HashMap, VecDeque};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::Notify;

use super::ring::Tray;

/// Parts of the table with a lock each, so that readers seldom meet.
const SHARDS: usize = 16;
/// Interrupts remembered per shard whose request was not seen yet. One whose request is answered already stays here
/// until others push it out, so there are a few places.
const EARLY_MAX: usize = 8;

/// The table.
#[derive(Debug, Default)]
pub(crate) struct Inflight {
    shards: [Mutex<Shard>; SHARDS],
    /// Requests in all of them but those that listen, which may wait for ever; may lag behind for a moment.
    count: AtomicUsize,
    /// Counted up by the watch, to tell how old a request is without a clock.
    tick: AtomicU64,
}

#[derive(Debug, Default)]
struct Shard {
    requests: HashMap<u64, Asked>,
    /// The interrupt of a request can be read before another reader has entered that request.
    early: VecDeque<u64>,
}

/// A request that has no reply yet.
#[derive(Debug)]
pub(crate) struct Asked {
    /// How it came; the reply has to go the same way back.
    pub(crate) way: Way,
    /// Thread that waits for it; 0 if unknown.
    pub(crate) tid: u32,
    pub(crate) interrupted: bool,
    since: u64,
    /// Told when an interrupt comes.
    listener: Option<Arc<Notify>>,
}

/// How a request came.
#[derive(Debug)]
pub(crate) enum Way {
    /// From this reader's device.
    Device(usize),
    /// Over io_uring, in this tray.
    Ring(Tray),
}

/// A request that has waited for long.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Old {
    pub(crate) unique: u64,
    pub(crate) tid: u32,
    pub(crate) interrupted: bool,
    pub(crate) ticks: u64,
}

impl Inflight {
    /// Enters request `unique`; `listener` is told when it is interrupted.
    pub(crate) fn enter(&self, unique: u64, way: Way, tid: u32, listener: Option<Arc<Notify>>) {
        let since = self.tick.load(Ordering::Relaxed);
        let mut asked = Asked { way, tid, interrupted: false, since, listener };
        let mut shard = self.shard(unique);
        if let Some(at) = shard.early.iter().position(|early| *early == unique) {
            shard.early.remove(at);
            asked.interrupted = true;
            // Nobody listens yet, so nobody wakes up: it only finds out as soon as it listens.
            asked.listener.iter().for_each(|listener| listener.notify_one());
        }
        if asked.listener.is_none() {
            self.count.fetch_add(1, Ordering::Relaxed);
        }
        shard.requests.insert(unique, asked);
    }

    /// Takes `unique` out. `None`: it has its reply.
    pub(crate) fn take(&self, unique: u64) -> Option<Asked> {
        self.take_from(&mut self.shard(unique), unique)
    }

    fn take_from(&self, shard: &mut Shard, unique: u64) -> Option<Asked> {
        let asked = shard.requests.remove(&unique)?;
        if asked.listener.is_none() {
            self.count.fetch_sub(1, Ordering::Relaxed);
        }
        Some(asked)
    }

    /// The same, if it came from a device, does not listen, and others have no reply yet or `beside` says that it is not
    /// alone: its reader.
    pub(crate) fn take_of_many(&self, unique: u64, beside: impl FnOnce() -> bool) -> Option<usize> {
        if self.count.load(Ordering::Relaxed) < 2 && !beside() {
            return None;
        }
        let mut shard = self.shard(unique);
        let asked = shard.requests.get(&unique).filter(|asked| asked.listener.is_none())?;
        let Way::Device(reader) = asked.way else { return None };
        self.take_from(&mut shard, unique).map(|_| reader)
    }

    /// The thread that waits for `unique` has a signal to attend to.
    pub(crate) fn interrupt(&self, unique: u64) {
        let mut shard = self.shard(unique);
        let Some(asked) = shard.requests.get_mut(&unique) else {
            if shard.early.len() == EARLY_MAX {
                shard.early.pop_front();
            }
            return shard.early.push_back(unique);
        };
        asked.interrupted = true;
        let listener = asked.listener.clone();
        // Who listens takes its next step right here, and may reply in it: it needs the table.
        drop(shard);
        listener.iter().for_each(|listener| listener.notify_one());
    }

    /// Counts one tick up, and returns the requests that are then at least `ticks` old. Without those that listen and
    /// were not interrupted: they may wait for as long as they like.
    pub(crate) fn tick(&self, ticks: u64) -> Vec<Old> {
        let now = self.tick.fetch_add(1, Ordering::Relaxed) + 1;
        let mut found = Vec::new();
        for shard in &self.shards {
            let shard = shard.lock().unwrap_or_else(PoisonError::into_inner);
            let old = shard
                .requests
                .iter()
                .filter(|(_, asked)| now - asked.since >= ticks && (asked.interrupted || asked.listener.is_none()));
            found.extend(old.map(|(unique, asked)| Old {
                unique: *unique,
                tid: asked.tid,
                interrupted: asked.interrupted,
                ticks: now - asked.since,
            }));
        }
        found
    }

    /// The numbers of requests are even or count up by two: their low bits alone would leave shards empty.
    fn shard(&self, unique: u64) -> MutexGuard<'_, Shard> {
        let at = (unique.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 60) as usize % SHARDS;
        self.shards[at].lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::{EARLY_MAX, Inflight, Old, Way};
    use std::sync::Arc;
    use tokio::sync::Notify;

    #[test]
    fn a_request_is_taken_once() {
        let inflight = Inflight::default();
        inflight.enter(8, Way::Device(1), 77, None);
        assert!(inflight.take(8).is_some_and(|asked| matches!(asked.way, Way::Device(1)) && asked.tid == 77));
        assert!(inflight.take(8).is_none());
    }

    #[test]
    fn an_interrupt_finds_its_request_also_when_it_comes_first() {
        let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
        let inflight = Inflight::default();
        for unique in [2, 4] {
            let listener = Arc::new(Notify::new());
            if unique == 2 {
                inflight.interrupt(unique);
            }
            inflight.enter(unique, Way::Device(0), 1, Some(Arc::clone(&listener)));
            if unique == 4 {
                inflight.interrupt(unique);
            }
            // It would wait for ever if it had not been told.
            runtime.block_on(listener.notified());
            assert!(inflight.take(unique).is_some_and(|asked| asked.interrupted));
        }
        // Those that nobody waits for are forgotten in the end.
        (0..1_000).for_each(|unique| inflight.interrupt(unique));
        assert!(inflight.shards.iter().all(|shard| shard.lock().expect("no panic").early.len() <= EARLY_MAX));
    }

    #[test]
    fn who_is_interrupted_may_reply_at_once() {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).build().expect("a runtime");
        let (inflight, listener) = (Arc::new(Inflight::default()), Arc::new(Notify::new()));
        inflight.enter(2, Way::Device(0), 1, Some(Arc::clone(&listener)));
        let (told, heard) = std::sync::mpsc::channel();
        let table = Arc::clone(&inflight);
        crate::task::start(runtime.handle(), async move {
            listener.notified().await;
            told.send(table.take(2).is_some()).expect("the test waits");
        });
        std::thread::spawn(move || inflight.interrupt(2));
        assert_eq!(heard.recv_timeout(std::time::Duration::from_secs(10)), Ok(true), "it waits for itself");
    }

    #[test]
    fn age_counts_in_ticks() {
        let inflight = Inflight::default();
        inflight.enter(2, Way::Device(0), 5, None);
        assert_eq!(inflight.tick(2), []);
        inflight.enter(4, Way::Device(0), 6, None);
        inflight.interrupt(2);
        assert_eq!(inflight.tick(2), [Old { unique: 2, tid: 5, interrupted: true, ticks: 2 }]);
        inflight.enter(6, Way::Device(0), 7, Some(Arc::default()));
        assert_eq!(inflight.tick(2).len(), 2);
        assert_eq!(inflight.tick(2).len(), 2, "it listens and was not interrupted");
        inflight.interrupt(6);
        assert_eq!(inflight.tick(2).len(), 3);
    }
}
