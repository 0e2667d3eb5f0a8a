//! Limits of a mount: how many bytes and calls per second pass, on average.

use std::sync::{Arc, Mutex, PoisonError};

use crate::wire::Wire;

/// What may pass.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Limits {
    /// Bytes read and written per second; `None`: any number.
    pub bytes_per_s: Option<u64>,
    /// Reads and writes per second; `None`: any number.
    pub ops_per_s: Option<u64>,
}

/// How much may pass at once after a rest: what would have passed in this time, microseconds.
const BURST_US: u64 = 1_000_000;

/// A token bucket. It keeps one number: the moment at which everything that was taken has been paid for.
#[derive(Clone, Copy, Debug)]
struct Bucket {
    per_s: u64,
    paid_us: u64,
}

impl Bucket {
    /// Takes `amount` at `now_us`; returns after how many microseconds it may pass. Who asks later waits for it.
    fn take(&mut self, amount: u64, now_us: u64) -> u64 {
        let wait = self.paid_us.saturating_sub(now_us).saturating_sub(BURST_US);
        let price = u128::from(amount) * 1_000_000 / u128::from(self.per_s.max(1));
        self.paid_us = self.paid_us.max(now_us).saturating_add(u64::try_from(price).unwrap_or(u64::MAX));
        wait
    }
}

/// Holds calls back as [`Limits`] say.
pub struct Throttle {
    wire: Arc<dyn Wire>,
    buckets: Mutex<Buckets>,
}

struct Buckets {
    bytes: Option<Bucket>,
    ops: Option<Bucket>,
}

impl Throttle {
    /// `None` if nothing is limited. Time comes from `wire`.
    pub fn new(wire: Arc<dyn Wire>, limits: Limits) -> Option<Self> {
        let bucket = |per_s| Bucket { per_s, paid_us: 0 };
        let buckets = Buckets { bytes: limits.bytes_per_s.map(bucket), ops: limits.ops_per_s.map(bucket) };
        (limits != Limits::default()).then(|| Self { wire, buckets: Mutex::new(buckets) })
    }

    /// Ready when a call of `bytes` bytes may pass.
    pub async fn pass(&self, bytes: u64) {
        let wait_us = self.take(bytes);
        if wait_us > 0 {
            self.wire.sleep_ms(wait_us.div_ceil(1000)).await;
        }
    }

    fn take(&self, bytes: u64) -> u64 {
        let now_us = self.wire.now_ms() * 1000;
        let mut buckets = self.buckets.lock().unwrap_or_else(PoisonError::into_inner);
        let one = |bucket: &mut Option<Bucket>, amount| bucket.as_mut().map_or(0, |bucket| bucket.take(amount, now_us));
        one(&mut buckets.bytes, bytes).max(one(&mut buckets.ops, 1))
    }
}

/// How fast something may go on average that goes on in the background; may change meanwhile.
#[derive(Default)]
pub struct Pace(Mutex<Option<Bucket>>);

impl Pace {
    /// From now on so many bytes per second, at most; none: any number.
    pub fn set(&self, bytes_per_s: Option<u64>) {
        let mut bucket = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if bucket.map(|bucket| bucket.per_s) != bytes_per_s {
            *bucket = bytes_per_s.map(|per_s| Bucket { per_s, paid_us: 0 });
        }
    }

    /// Takes `bytes` at `now_us`; returns after how many microseconds they may pass.
    pub(crate) fn take(&self, bytes: u64, now_us: u64) -> u64 {
        let mut bucket = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        bucket.as_mut().map_or(0, |bucket| bucket.take(bytes, now_us))
    }
}

#[cfg(test)]
mod tests {
    use super::{BURST_US, Bucket, Pace};

    #[test]
    fn a_pace_holds_until_another_is_set() {
        let pace = Pace::default();
        assert_eq!(pace.take(u64::MAX, 7), 0, "nothing is set");
        pace.set(Some(1_000_000));
        assert_eq!(pace.take(3_000_000, 0), 0);
        pace.set(Some(1_000_000));
        assert_eq!(pace.take(1, 0), 2_000_000, "the same again changes nothing");
        pace.set(None);
        assert_eq!(pace.take(1, 0), 0);
    }

    #[test]
    fn a_burst_passes_and_then_the_average_holds() {
        let mut bucket = Bucket { per_s: 1000, paid_us: 0 };
        let (mut now, mut passed) = (5_000_000, 0);
        while bucket.take(10, now) == 0 {
            passed += 10;
        }
        assert!((1000..=1010).contains(&passed), "{passed} in a burst");
        // From here on each waits for those before it: 10 s of work take 10 s.
        let begin = now;
        for _ in 0..1000 {
            now += bucket.take(10, now);
        }
        let took = now - begin;
        assert!((9_900_000..=10_100_000).contains(&took), "{took}");
    }

    #[test]
    fn rest_is_saved_up_to_the_burst_and_no_further() {
        let mut bucket = Bucket { per_s: 1_000_000, paid_us: 0 };
        assert_eq!(bucket.take(3_000_000, 0), 0, "a large one passes and is paid for by who comes after it");
        assert_eq!(bucket.take(1, 0), 3_000_000 - BURST_US);
        assert_eq!(bucket.take(1, 100_000_000), 0);
        assert_eq!(bucket.take(2_000_000, 100_000_000), 0);
        assert!(bucket.take(1, 100_000_000) > 900_000, "a long rest is worth one burst");
    }

    #[test]
    fn nonsense_does_no_harm() {
        let mut bucket = Bucket { per_s: 0, paid_us: 0 };
        bucket.take(u64::MAX, u64::MAX);
        assert_eq!(bucket.take(u64::MAX, u64::MAX), 0, "time has ended");
    }
}
