//! Which drives failed a short while ago, so that reads do not wait for them again and again.
//!
//! Only hints: a read that finds no better shard still asks a drive that is avoided.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard};

use braid_base::ids::DriveId;

/// How long a drive that failed is avoided, milliseconds: long enough to save the wait of most reads, short
/// enough that a drive that came back is used again before anyone looks. Doubles with each failure in a row.
const AVOID_MS: u64 = 5_000;
/// The most that comes of the doubling, milliseconds.
const AVOID_MS_MAX: u64 = 60_000;

/// The hints.
#[derive(Default)]
pub(crate) struct Health {
    failed: Mutex<HashMap<DriveId, Failed>>,
}

/// What is known of a drive that failed and did not answer since.
struct Failed {
    until_ms: u64,
    for_ms: u64,
}

impl Health {
    /// Drive `d` failed at `now_ms`. What fails while it is avoided was asked before.
    pub(crate) fn failed(&self, d: DriveId, now_ms: u64) {
        let mut map = self.map();
        let known = map.entry(d).or_insert(Failed { until_ms: 0, for_ms: AVOID_MS / 2 });
        if known.until_ms <= now_ms {
            known.for_ms = (2 * known.for_ms).min(AVOID_MS_MAX);
            known.until_ms = now_ms + known.for_ms;
        }
    }

    /// Drive `d` answered.
    pub(crate) fn answered(&self, d: DriveId) {
        let mut map = self.map();
        if !map.is_empty() {
            map.remove(&d);
        }
    }

    /// Whether `d` should be asked only if nothing else helps.
    pub(crate) fn avoids(&self, d: DriveId, now_ms: u64) -> bool {
        self.map().get(&d).is_some_and(|known| now_ms < known.until_ms)
    }

    fn map(&self) -> MutexGuard<'_, HashMap<DriveId, Failed>> {
        self.failed.lock().expect("nothing panics while it holds the hints")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_drive_is_avoided_longer_each_time_until_it_answers() {
        let (health, d) = (Health::default(), DriveId(3));
        let (mut now, mut lasted) = (0, Vec::new());
        for _ in 0..6 {
            health.failed(d, now);
            health.failed(d, now + 1);
            let end = (now..).find(|at| !health.avoids(d, *at)).expect("it ends");
            lasted.push((end - now) / 1_000);
            now = end;
        }
        assert_eq!(lasted, [5, 10, 20, 40, 60, 60]);
        health.answered(d);
        assert!(!health.avoids(d, now));
        health.failed(d, now);
        assert!(!health.avoids(d, now + AVOID_MS));
    }
}
