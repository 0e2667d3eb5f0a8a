//! Locks: who may hold some, and how the kernel describes them.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex, MutexGuard};

use braid_base::ids::Ino;
use braid_base::msg::fs::{LockKind, LockSpec};
use tokio::sync::oneshot;

use crate::wire::request::{Fh, Lock};

/// The last byte of a lock that reaches to the end of the file, as the kernel writes it.
const KERNEL_END: u64 = i64::MAX as u64;

/// Owners that may hold `fcntl` locks, by the open files through which they asked, so that closing other files need not ask
/// the partition. Of a `flock` the kernel itself says so when it closes the file.
///
/// 1. A process owns its locks itself. Each of its closes names it (`FLUSH`), and takes away all that it holds on that inode,
///    through whatever open file.
/// 2. An open file owns its locks itself if they were asked for with `F_OFD_SETLK`. No close names it, and the kernel does
///    not say which kind a lock is. So what has not gone with a close goes with the last one (`RELEASE`), unless its owner
///    asked through another open file, too: then it is a process that has closed this one and locked anew.
#[derive(Default)]
pub(crate) struct Owners {
    /// Open files of each inode through which somebody asked for a lock, and who.
    asked: Mutex<HashMap<Ino, HashMap<Fh, HashSet<u64>>>>,
}

impl Owners {
    /// `owner` is about to ask for a lock on `ino`.
    pub(crate) fn asks(&self, ino: Ino, fh: Fh, owner: u64) {
        self.asked().entry(ino).or_default().entry(fh).or_default().insert(owner);
    }

    /// `owner` has what it asked for. Another thread may have closed a descriptor meanwhile, and had nothing to give up yet.
    /// Whose file is closed for good was killed, and what it got is given back.
    pub(crate) fn holds(&self, ino: Ino, fh: Fh, owner: u64) {
        if let Some(owners) = self.asked().get_mut(&ino).and_then(|files| files.get_mut(&fh)) {
            owners.insert(owner);
        }
    }

    /// `owner` closes a descriptor of `ino`: whether it may hold locks there.
    pub(crate) fn leaves(&self, ino: Ino, owner: u64) -> bool {
        let mut asked = self.asked();
        let Some(files) = asked.get_mut(&ino) else { return false };
        let mut held = false;
        files.values_mut().for_each(|owners| held |= owners.remove(&owner));
        held
    }

    /// The last descriptor of this open file is closed: the owners whose locks on `ino` go with it.
    pub(crate) fn closes(&self, ino: Ino, fh: Fh) -> Vec<u64> {
        let mut asked = self.asked();
        let Some(files) = asked.get_mut(&ino) else { return Vec::new() };
        let left = files.remove(&fh).unwrap_or_default();
        let gone = left.into_iter().filter(|owner| !files.values().any(|owners| owners.contains(owner))).collect();
        if files.is_empty() {
            asked.remove(&ino);
        }
        gone
    }

    fn asked(&self) -> MutexGuard<'_, HashMap<Ino, HashMap<Fh, HashSet<u64>>>> {
        self.asked.lock().expect("nothing panics while it holds the owners")
    }
}

/// A lock that goes with the last close of its open file. `close` has returned by then, so whoever is refused a
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
    use crate::wire::request::{Fh, Lock};
    use braid_base::ids::Ino;

    #[test]
    fn ranges_to_the_end_survive_both_ways() {
        let fh = Fh(1);
        let asked = |kind, flock| Lock { fh, owner: 1, pid: 2, start: 5, end: i64::MAX as u64, kind, flock };
        let lock = spec(&asked(libc::F_WRLCK, true)).expect("a lock");
        assert!(lock.end == u64::MAX && lock.flock);
        assert_eq!(shown(&lock), (5, i64::MAX as u64, libc::F_WRLCK));
        assert!(spec(&asked(77, false)).is_none());
    }

    #[test]
    fn only_owners_that_asked_are_asked_for() {
        let (owners, ino) = (Owners::default(), Ino(1));
        let (file, other) = (Fh(1), Fh(2));
        owners.asks(ino, file, 7);
        owners.asks(ino, other, 7);
        assert!(!owners.leaves(ino, 8) && owners.leaves(ino, 7) && !owners.leaves(ino, 7), "all at once");
        // A thread was waiting for the lock while another one closed the file.
        owners.holds(ino, file, 7);
        assert!(owners.leaves(ino, 7));
        assert_eq!((owners.closes(ino, file), owners.closes(ino, other)), (vec![], vec![]));
        owners.holds(ino, file, 7);
        assert!(!owners.leaves(ino, 7) && owners.asked().is_empty(), "nothing remains of files that are closed");
    }

    #[test]
    fn locks_of_an_open_file_go_with_its_last_close_and_those_of_a_process_do_not() {
        let (owners, ino) = (Owners::default(), Ino(1));
        let (one, two) = (Fh(1), Fh(2));
        let (process, owned) = (7, [71, 72]);
        owners.asks(ino, one, owned[0]);
        owners.asks(ino, two, owned[1]);
        owners.asks(ino, one, process);
        assert!(
            owners.leaves(ino, process),
            "it closes its descriptor of the first, and locks anew through the second"
        );
        owners.asks(ino, two, process);
        assert_eq!(owners.closes(ino, one), [owned[0]]);
        assert!(owners.leaves(ino, process));
        assert_eq!(owners.closes(ino, two), [owned[1]]);
        // The first file was closed only after the process had locked anew through both.
        let (one, two) = (Fh(1), Fh(2));
        owners.asks(ino, one, process);
        owners.asks(ino, two, process);
        assert_eq!(owners.closes(ino, one), []);
        assert_eq!(owners.closes(ino, two), [process]);
        assert!(owners.asked().is_empty());
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
