//! Which drives failed a short while ago, so that reads do not wait for them again and again.
//!
//! Only hints: a read that finds no better shard still asks a drive that is avoided.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard};

use braid_base::ids::DriveId;

/// How long a drive that failed is avoided, milliseconds: long enough to save the wait of most reads, short
/// enough that a drive that came back is used again before anyone looks.
const AVOID_MS: u64 = 5_000;

/// The hints.
#[derive(Default)]
pub(crate) struct Health {
    avoid_until: Mutex<HashMap<DriveId, u64>>,
}

impl Health {
    /// Drive `d` failed at `now_ms`.
    pub(crate) fn failed(&self, d: DriveId, now_ms: u64) {
        self.map().insert(d, now_ms + AVOID_MS);
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
        self.map().get(&d).is_some_and(|until| now_ms < *until)
    }

    fn map(&self) -> MutexGuard<'_, HashMap<DriveId, u64>> {
        self.avoid_until.lock().expect("nothing panics while it holds the hints")
    }
}
