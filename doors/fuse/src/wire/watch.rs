//! Ends requests whose process was killed while the server is silent.
//!
//! The kernel keeps a killed thread until the request it waits for has a reply. It says so with an interrupt, but one
//! comes for any signal, and not to a process that is closing its files on its way out. So requests that wait for long
//! are looked at: whether their thread must die. The operation goes on and may still take effect.

use std::fs;
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::Duration;

use super::errno::Errno;
use super::inflight::Old;
use super::reply::Devices;
use crate::holders;

/// How often is looked.
const TICK: Duration = Duration::from_millis(500);
/// A killed thread waits this long for its request at least: a server that works answers in this time, and then the
/// outcome is known.
const KILLED_TICKS: u64 = 3;
/// An interrupted thread that cannot be seen from here (in another container) waits this long, whatever the signal was.
const UNSEEN_TICKS: u64 = 10;
/// Bit of `SIGKILL` in the masks of `/proc`. The kernel sets it in each thread of a process that any signal ends.
const KILL_BIT: u64 = 1 << (libc::SIGKILL - 1);
/// `PF_SIGNALED` in the flags of `/proc`: the thread ends because of a signal.
const SIGNALED: u64 = 0x400;

/// Looks until `stop` is dropped.
pub(crate) fn run(devices: &Devices, stop: &Receiver<()>) {
    while stop.recv_timeout(TICK) == Err(RecvTimeoutError::Timeout) {
        for old in devices.inflight.tick(KILLED_TICKS).iter().filter(|old| must_end(old)) {
            tracing::debug!(unique = old.unique, tid = old.tid, "a killed thread waits no longer for its request");
            devices.give_up(old.unique, Errno::EINTR);
        }
    }
}

fn must_end(old: &Old) -> bool {
    if old.tid == 0 {
        return old.interrupted && old.ticks >= UNSEEN_TICKS;
    }
    let read = |name: &str| fs::read_to_string(format!("/proc/{}/{name}", old.tid)).unwrap_or_default();
    is_killed(&read("status")) || ends_by_signal(&read("stat"))
}

/// Whether a `/proc/TID/status` shows a thread that was killed.
fn is_killed(status: &str) -> bool {
    let pending = status.lines().find_map(|line| line.strip_prefix("SigPnd:"));
    pending.and_then(|hex| u64::from_str_radix(hex.trim(), 16).ok()).is_some_and(|mask| mask & KILL_BIT != 0)
}

/// Whether a `/proc/TID/stat` shows a thread that is on its way out because of a signal.
fn ends_by_signal(stat: &str) -> bool {
    holders::stat_field(stat, 6).and_then(|flags| flags.parse::<u64>().ok()).is_some_and(|flags| flags & SIGNALED != 0)
}

#[cfg(test)]
mod tests {
    use super::{UNSEEN_TICKS, ends_by_signal, is_killed, must_end};
    use crate::wire::inflight::Old;

    #[test]
    fn only_sigkill_counts() {
        let status = |pending: &str| format!("Name:\tx\nSigQ:\t0/1\nSigPnd:\t{pending}\nShdPnd:\tffffffffffffffff\n");
        assert!(is_killed(&status("0000000000000100")) && is_killed(&status("0000000000004102")));
        assert!(!is_killed(&status("0000000000004002")) && !is_killed(&status("?")) && !is_killed(""));
    }

    #[test]
    fn threads_on_their_way_out_are_seen() {
        let stat = |name: &str, flags: u64| format!("77 ({name}) D 1 77 77 0 -1 {flags} 102 0 0");
        assert!(ends_by_signal(&stat("dd", 4_195_332 | 0x400)) && ends_by_signal(&stat("a) S 1 (b", 0x400)));
        assert!(!ends_by_signal(&stat("dd", 4_194_308)) && !ends_by_signal("") && !ends_by_signal("77 (x"));
    }

    #[test]
    fn the_living_are_left_alone() {
        let old = |tid, interrupted, ticks| Old { unique: 2, tid, interrupted, ticks };
        assert!(!must_end(&old(std::process::id(), true, 1_000)) && !must_end(&old(u32::MAX, true, 1_000)));
        assert!(!must_end(&old(0, false, 1_000)) && !must_end(&old(0, true, UNSEEN_TICKS - 1)));
        assert!(must_end(&old(0, true, UNSEEN_TICKS)));
    }
}
