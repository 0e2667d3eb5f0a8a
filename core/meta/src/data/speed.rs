//! How fast work in the background goes.

use std::collections::VecDeque;

/// The speed is that of so long, milliseconds.
const SPEED_MS: u64 = 60_000;

/// Bytes per second, during the last minute in which there was anything to do.
#[derive(Default)]
pub(crate) struct Speed {
    /// What ended a short while ago: when, and how many bytes.
    done: VecDeque<(u64, u64)>,
    /// Since when one follows the other.
    since_ms: Option<u64>,
}

impl Speed {
    /// There is something to do now, or not.
    pub fn runs(&mut self, runs: bool, now_ms: u64) {
        match self.since_ms {
            None if runs => self.since_ms = Some(now_ms),
            Some(_) if !runs => self.since_ms = None,
            _ => {}
        }
    }

    /// So many bytes were done.
    pub fn add(&mut self, now_ms: u64, bytes: u64) {
        self.done.push_back((now_ms, bytes));
        while self.done.front().is_some_and(|(then, _)| then + SPEED_MS < now_ms) {
            self.done.pop_front();
        }
    }

    /// Bytes per second.
    pub fn per_s(&self) -> u64 {
        let Some(since_ms) = self.since_ms else { return 0 };
        let bytes: u64 = self.done.iter().map(|(_, bytes)| bytes).sum();
        let last_ms = self.done.back().map_or(since_ms, |(then, _)| *then);
        bytes * 1_000 / last_ms.saturating_sub(since_ms).clamp(1_000, SPEED_MS)
    }
}

#[cfg(test)]
mod tests {
    use super::{SPEED_MS, Speed};

    #[test]
    fn the_last_minute_counts_while_there_is_something_to_do() {
        let mut speed = Speed::default();
        speed.add(5_000, 900);
        assert_eq!(speed.per_s(), 0, "nothing was to be done");
        speed.runs(true, 10_000);
        speed.runs(true, 11_000);
        speed.add(14_000, 100);
        assert_eq!(speed.per_s(), 250);
        for second in 15..300 {
            speed.add(second * 1_000, 50);
        }
        assert_eq!(speed.per_s(), 61 * 50 * 1_000 / SPEED_MS);
        speed.runs(false, 300_000);
        assert_eq!(speed.per_s(), 0);
    }
}
