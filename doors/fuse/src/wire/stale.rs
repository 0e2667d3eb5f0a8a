//! Which threads were told `ESTALE` a moment ago.
//!
//! The kernel then walks the path of the call once more, asks for each name on it, and gives up if it is told so again:
//! what such a thread looks up must be there when the kernel comes back to it (`calls/held`).

use std::sync::atomic::{AtomicU64, Ordering};

use rustix::time::{ClockId, clock_gettime};

use super::errno::Errno;
use crate::table::Hints;

/// What a thread looks up within this time, milliseconds, may be the kernel's second attempt; so many names at most: more
/// than most paths have. Programs that go on with others (`rm -r`) should not hold them all.
const AGAIN_MS: u64 = 2_000;
const NAMES_MAX: u32 = 64;
/// Threads that are remembered.
const THREADS_MAX: usize = 1_024;

#[derive(Debug)]
pub(crate) struct Stale {
    told: Hints<u32, Told>,
    /// When the last one was, 0 before the first: most mounts never say so.
    last_ms: AtomicU64,
}

/// What a thread was told.
#[derive(Clone, Copy, Debug)]
struct Told {
    /// When, milliseconds of [`now_ms`].
    at: u64,
    /// Names that it has looked up since.
    names: u32,
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

    /// Thread `tid` looks up a name: whether it was told `ESTALE` a moment ago.
    pub(crate) fn looks_up(&self, tid: u32) -> bool {
        self.last_ms.load(Ordering::Acquire) > 0 && self.looks_up_at(tid, now_ms())
    }

    fn note(&self, tid: u32, now_ms: u64) {
        self.told.put(tid, Told { at: now_ms, names: 0 });
        self.last_ms.store(now_ms, Ordering::Release);
    }

    fn looks_up_at(&self, tid: u32, now_ms: u64) -> bool {
        if now_ms >= self.last_ms.load(Ordering::Acquire) + AGAIN_MS {
            return false;
        }
        self.told.update(tid, |told| {
            *told = told.filter(|told| now_ms < told.at + AGAIN_MS && told.names < NAMES_MAX);
            if let Some(told) = told {
                told.names += 1;
            }
            told.is_some()
        })
    }
}

/// Milliseconds since the machine was started, as of its last tick.
fn now_ms() -> u64 {
    let now = clock_gettime(ClockId::MonotonicCoarse);
    now.tv_sec as u64 * 1_000 + now.tv_nsec as u64 / 1_000_000
}

#[cfg(test)]
mod tests {
    use super::{AGAIN_MS, NAMES_MAX, Stale};

    #[test]
    fn who_is_told_so_is_remembered_for_a_moment() {
        let stale = Stale::default();
        assert!(!stale.looks_up(7));
        stale.note(7, 50_000);
        assert!(stale.looks_up_at(7, 50_000) && stale.looks_up_at(7, 50_000 + AGAIN_MS - 1));
        assert!(!stale.looks_up_at(8, 50_000), "nobody told it");
        stale.note(8, 51_500);
        assert!(!stale.looks_up_at(7, 50_000 + AGAIN_MS) && stale.looks_up_at(8, 50_000 + AGAIN_MS));
    }

    #[test]
    fn and_for_as_many_names_as_a_path_may_have() {
        let stale = Stale::default();
        stale.note(7, 50_000);
        assert!((0..NAMES_MAX).all(|_| stale.looks_up_at(7, 50_001)));
        assert!(!stale.looks_up_at(7, 50_001));
        stale.note(7, 50_002);
        assert!(stale.looks_up_at(7, 50_003), "it was told anew");
    }

    #[test]
    fn other_words_and_unknown_threads_are_not() {
        let stale = Stale::default();
        stale.tell(7, -libc::ENOENT);
        stale.tell(0, -libc::ESTALE);
        assert!(!stale.looks_up(7) && !stale.looks_up(0));
        stale.tell(7, -libc::ESTALE);
        assert!(stale.looks_up(7));
    }
}
