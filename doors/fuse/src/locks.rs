//! Locks: who may hold some, and how the kernel describes them.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex, MutexGuard};

use braid_base::ids::Ino;
use braid_base::msg::fs::{LockKind, LockSpec};
use tokio::sync::oneshot;

use crate::wire::request::Lock;

/// The last byte of a lock that reaches to the end of the file, as the kernel writes it.
const KERNEL_END: u64 = i64::MAX as u64;

/// Owners that may hold `fcntl` locks, so that closing other files need not ask the partition. Of a `flock` the kernel
/// itself says so when it closes the file.
#[derive(Default)]
pub(crate) struct Owners(Mutex<HashSet<(Ino, u64)>>);

impl Owners {
    /// `owner` is about to ask for a lock on `ino`.
    pub(crate) fn asks(&self, ino: Ino, owner: u64) {
        self.0.lock().expect("nothing panics while it holds the owners").insert((ino, owner));
    }

    /// `owner` closes `ino`: whether it may hold locks there.
    pub(crate) fn leaves(&self, ino: Ino, owner: u64) -> bool {
        self.0.lock().expect("nothing panics while it holds the owners").remove(&(ino, owner))
    }
}

/// A `flock` that the kernel gives up because its file was closed. `close` has returned by then, so whoever is refused a
/// lock meanwhile asks again when these are given up: on a local file system they went with the call.
#[derive(Clone, Default)]
pub(crate) struct Closes(Arc<Mutex<Closing>>);

#[derive(Default)]
struct Closing {
    /// So many have been given up.
    ended: u64,
    /// Those on their way, by file, and who waits for them.
    begun: HashMap<Ino, (usize, Vec<oneshot::Sender<()>>)>,
}

impl Closes {
    /// A lock on `ino` is on its way to be given up, until the result is dropped.
    pub(crate) fn begin(&self, ino: Ino) -> Close {
        self.state().begun.entry(ino).or_default().0 += 1;
        Close { all: self.clone(), ino }
    }

    /// What to compare [`Self::since`] with.
    pub(crate) fn now(&self) -> u64 {
        self.state().ended
    }

    /// A lock on `ino` was refused to somebody who asked after `then`. False if that stands; else it may be free by now.
    pub(crate) async fn since(&self, then: u64, ino: Ino) -> bool {
        let wait = {
            let mut state = self.state();
            let ended = state.ended;
            let Some((_, waits)) = state.begun.get_mut(&ino) else { return ended != then };
            let (tell, told) = oneshot::channel();
            waits.push(tell);
            told
        };
        // Told by what tells being dropped.
        let _ = wait.await;
        true
    }

    fn state(&self) -> MutexGuard<'_, Closing> {
        self.0.lock().expect("nothing panics while it holds the closes")
    }
}

/// A lock is on its way to be given up.
pub(crate) struct Close {
    all: Closes,
    ino: Ino,
}

impl Drop for Close {
    fn drop(&mut self) {
        let mut state = self.all.state();
        state.ended += 1;
        if let Some((count, _)) = state.begun.get_mut(&self.ino) {
            *count -= 1;
            if *count == 0 {
                let waits = state.begun.remove(&self.ino);
                // Who waited may go on in this very thread.
                drop(state);
                drop(waits);
            }
        }
    }
}

/// The lock that the kernel describes; `None` if its kind is none of the three.
pub(crate) fn spec(lock: &Lock) -> Option<LockSpec> {
    let kind = match lock.kind {
        libc::F_RDLCK => LockKind::Read,
        libc::F_WRLCK => LockKind::Write,
        libc::F_UNLCK => LockKind::Unlock,
        _ => return None,
    };
    let end = if lock.end >= KERNEL_END { u64::MAX } else { lock.end };
    Some(LockSpec { owner: lock.owner, pid: lock.pid, start: lock.start, end, kind, flock: lock.flock })
}

/// Start, end and kind of a lock for the kernel.
pub(crate) fn shown(lock: &LockSpec) -> (u64, u64, i32) {
    let kind = match lock.kind {
        LockKind::Read => libc::F_RDLCK,
        LockKind::Write => libc::F_WRLCK,
        LockKind::Unlock => libc::F_UNLCK,
    };
    (lock.start, lock.end.min(KERNEL_END), kind)
}

#[cfg(test)]
mod tests {
    use super::{Closes, Owners, shown, spec};
    use crate::wire::request::Lock;
    use braid_base::ids::Ino;

    #[test]
    fn ranges_to_the_end_survive_both_ways() {
        let asked = |kind, flock| Lock { owner: 1, pid: 2, start: 5, end: i64::MAX as u64, kind, flock };
        let lock = spec(&asked(libc::F_WRLCK, true)).expect("a lock");
        assert!(lock.end == u64::MAX && lock.flock);
        assert_eq!(shown(&lock), (5, i64::MAX as u64, libc::F_WRLCK));
        assert!(spec(&asked(77, false)).is_none());
    }

    #[test]
    fn only_owners_that_asked_are_asked_for() {
        let owners = Owners::default();
        owners.asks(Ino(1), 7);
        assert!(!owners.leaves(Ino(1), 8) && owners.leaves(Ino(1), 7) && !owners.leaves(Ino(1), 7));
    }

    #[tokio::test]
    async fn who_is_refused_beside_a_close_asks_again() {
        let closes = Closes::default();
        let then = closes.now();
        assert!(!closes.since(then, Ino(1)).await, "nobody closes anything");
        let (one, two, other) = (closes.begin(Ino(1)), closes.begin(Ino(1)), closes.begin(Ino(2)));
        let waits = tokio::spawn({
            let closes = closes.clone();
            async move { closes.since(then, Ino(1)).await }
        });
        tokio::task::yield_now().await;
        drop(one);
        tokio::task::yield_now().await;
        assert!(!waits.is_finished(), "one of two");
        drop(two);
        assert!(waits.await.expect("it does not panic"));
        assert!(closes.since(then, Ino(1)).await, "it went between the question and the answer");
        assert!(!closes.since(closes.now(), Ino(1)).await);
        drop(other);
    }
}
