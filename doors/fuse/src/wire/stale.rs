//! Which threads were told `ESTALE` a moment ago.
//!
//! The kernel then walks the path of the call once more, asks for each name on it, and gives up if it is told so again:
//! what such a thread looks up must be there when the kernel comes back to it (`calls/held`).

use std::sync::atomic::{AtomicU64, Ordering};

use rustix::time::{ClockId, clock_gettime};

use super::errno::Errno;
use crate::table::Hints;

/// What a thread asks for within this time, milliseconds, may be the kernel's second attempt.
const AGAIN_MS: u64 = 2_000;
/// Threads that are remembered.
const THREADS_MAX: usize = 1_024;

#[derive(Debug)]
pub(crate) struct Stale {
    /// When each was told, milliseconds of [`now_ms`].
    told: Hints<u32, u64>,
    /// The last of these, 0 before the first: most mounts never say so.
    last_ms: AtomicU64,
}

impl Default for Stale {
    fn default() -> Self {
        Self { told: Hints::new(THREADS_MAX), last_ms: AtomicU64::new(0) }
    }
}

impl Stale {
    /// Thread `tid` is about to get `code`, as in a reply; 0: nobody in particular.
    pub(super) fn tell(&self, tid: u32, code: i32) {
        if code == -Errno::ESTALE.code() && tid != 0 {
            self.note(tid, now_ms());
        }
    }

    /// Whether thread `tid` was told `ESTALE` a moment ago.
    pub(crate) fn lately(&self, tid: u32) -> bool {
        self.last_ms.load(Ordering::Acquire) > 0 && self.before(tid, now_ms())
    }

    fn note(&self, tid: u32, now_ms: u64) {
        self.told.put(tid, now_ms);
        self.last_ms.store(now_ms, Ordering::Release);
    }

    fn before(&self, tid: u32, now_ms: u64) -> bool {
        now_ms < self.last_ms.load(Ordering::Acquire) + AGAIN_MS
            && self.told.get(&tid).is_some_and(|at| now_ms < at + AGAIN_MS)
    }
}

/// Milliseconds since the machine was started, as of its last tick.
fn now_ms() -> u64 {
    let now = clock_gettime(ClockId::MonotonicCoarse);
    now.tv_sec as u64 * 1_000 + now.tv_nsec as u64 / 1_000_000
}

#[cfg(test)]
mod tests {
    use super::{AGAIN_MS, Stale};

    #[test]
    fn who_is_told_so_is_remembered_for_a_moment() {
        let stale = Stale::default();
        assert!(!stale.lately(7));
        stale.note(7, 50_000);
        assert!(stale.before(7, 50_000) && stale.before(7, 50_000 + AGAIN_MS - 1));
        assert!(!stale.before(7, 50_000 + AGAIN_MS) && !stale.before(8, 50_000));
        stale.note(8, 51_500);
        assert!(!stale.before(7, 50_000 + AGAIN_MS) && stale.before(8, 50_000 + AGAIN_MS));
    }

    #[test]
    fn other_words_and_unknown_threads_are_not() {
        let stale = Stale::default();
        stale.tell(7, -libc::ENOENT);
        stale.tell(0, -libc::ESTALE);
        assert!(!stale.lately(7) && !stale.lately(0));
        stale.tell(7, -libc::ESTALE);
        assert!(stale.lately(7));
    }
}
