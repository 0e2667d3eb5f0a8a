//! Locks: who may hold some, and how the kernel describes them.

use std::collections::HashSet;
use std::sync::Mutex;

use braid_base::ids::Ino;
use braid_base::msg::fs::{LockKind, LockSpec};

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
    use super::{Owners, shown, spec};
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
}
