//! Record locks: who holds some, and whether a waiter was interrupted.

use std::collections::HashSet;
use std::sync::Mutex;

use braid_base::ids::Ino;
use braid_base::msg::fs::{LockKind, LockSpec};

/// The last byte of a lock that reaches to the end of the file, as the kernel writes it.
const KERNEL_END: u64 = i64::MAX as u64;

/// Owners that may hold record locks, so that closing other files need not ask the partition.
///
/// Only `fcntl` locks come here: fuser 0.18 does not tell `flock` requests apart, so those stay with the kernel.
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

/// A lock as the kernel describes it; `None` if `kind` is none of the three.
pub(crate) fn spec(owner: u64, pid: u32, start: u64, end: u64, kind: i32) -> Option<LockSpec> {
    let kind = match kind {
        libc::F_RDLCK => LockKind::Read,
        libc::F_WRLCK => LockKind::Write,
        libc::F_UNLCK => LockKind::Unlock,
        _ => return None,
    };
    let end = if end >= KERNEL_END { u64::MAX } else { end };
    Some(LockSpec { owner, pid, start, end, kind, flock: false })
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

/// Whether thread `tid` has a signal to attend to, or is gone.
///
/// fuser 0.18 refuses the kernel's interrupts, and a process that waits for a lock then cannot even be killed; so a
/// waiting lock request looks for itself. 0 is a process outside of our view: it is never interrupted.
pub(crate) fn is_interrupted(tid: u32) -> bool {
    if tid == 0 {
        return false;
    }
    match std::fs::read_to_string(format!("/proc/{tid}/status")) {
        Ok(status) => has_signal(&status),
        Err(error) => error.kind() == std::io::ErrorKind::NotFound,
    }
}

/// Whether a `/proc/PID/status` shows a pending signal that is neither blocked nor ignored.
fn has_signal(status: &str) -> bool {
    let mask = |field: &str| {
        let line = status.lines().find_map(|line| line.strip_prefix(field));
        line.and_then(|hex| u64::from_str_radix(hex.trim_start_matches(':').trim(), 16).ok()).unwrap_or(0)
    };
    (mask("SigPnd") | mask("ShdPnd")) & !mask("SigBlk") & !mask("SigIgn") != 0
}

#[cfg(test)]
mod tests {
    use super::{Owners, has_signal, is_interrupted, shown, spec};
    use braid_base::ids::Ino;

    #[test]
    fn ranges_to_the_end_survive_both_ways() {
        let lock = spec(1, 2, 5, i64::MAX as u64, libc::F_WRLCK).expect("a lock");
        assert_eq!(lock.end, u64::MAX);
        assert_eq!(shown(&lock), (5, i64::MAX as u64, libc::F_WRLCK));
        assert!(spec(1, 2, 0, 1, 77).is_none());
    }

    #[test]
    fn only_owners_that_asked_are_asked_for() {
        let owners = Owners::default();
        owners.asks(Ino(1), 7);
        assert!(!owners.leaves(Ino(1), 8) && owners.leaves(Ino(1), 7) && !owners.leaves(Ino(1), 7));
    }

    #[test]
    fn pending_signals_count_unless_blocked_or_ignored() {
        let status = |pending: &str, shared: &str, blocked: &str, ignored: &str| {
            format!("Name:\tx\nSigPnd:\t{pending}\nShdPnd:\t{shared}\nSigBlk:\t{blocked}\nSigIgn:\t{ignored}\n")
        };
        assert!(!has_signal(&status("0", "0", "0", "0")));
        assert!(has_signal(&status("0000000000000100", "0", "0", "0")));
        assert!(has_signal(&status("0", "0000000000002000", "0", "0")));
        assert!(!has_signal(&status("0", "2000", "2000", "0")));
        assert!(!has_signal(&status("2000", "0", "0", "2000")));
        assert!(!is_interrupted(std::process::id()) && is_interrupted(u32::MAX - 1) && !is_interrupted(0));
    }
}
