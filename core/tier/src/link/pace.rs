//! Bandwidth: each request is told when it may begin, so that the mean over time stays under the limit.

use std::time::Duration;

use braid_base::store::Bandwidth;
use tokio::time::Instant;

use super::health::Direction;

/// Limits of one store: in both directions together, each, and of what is removed.
pub(super) struct Paces {
    all: Pace,
    upload: Pace,
    download: Pace,
    remove: Pace,
}

#[derive(Default)]
struct Pace {
    bytes_per_s: Option<u64>,
    /// When all bytes that were let through have gone, at the limit.
    free: Option<Instant>,
}

impl Paces {
    pub fn new(limits: Bandwidth) -> Self {
        let pace = |bytes_per_s| Pace { bytes_per_s, free: None };
        let (upload, download) = (pace(limits.upload), pace(limits.download));
        Self { all: pace(limits.all), upload, download, remove: pace(limits.remove) }
    }

    /// When a request that moves or removes `bytes` may begin, if it is made `now`.
    pub fn reserve(&mut self, direction: Direction, bytes: u64, now: Instant) -> Instant {
        let own = match direction {
            Direction::Upload => self.upload.reserve(bytes, now),
            Direction::Download => self.download.reserve(bytes, now),
            // Nothing goes over the line.
            Direction::Remove => return self.remove.reserve(bytes, now),
        };
        own.max(self.all.reserve(bytes, now))
    }
}

impl Pace {
    fn reserve(&mut self, bytes: u64, now: Instant) -> Instant {
        let Some(limit) = self.bytes_per_s else { return now };
        let start = self.free.unwrap_or(now).max(now);
        let micros = u128::from(bytes) * 1_000_000 / u128::from(limit.max(1));
        self.free = Some(start + Duration::from_micros(u64::try_from(micros).unwrap_or(u64::MAX >> 8)));
        start
    }
}

#[cfg(test)]
mod tests {
    use super::Paces;
    use crate::link::Direction;
    use braid_base::store::Bandwidth;
    use std::time::Duration;
    use tokio::time::Instant;

    #[test]
    fn requests_begin_when_those_before_have_gone() {
        let mut paces =
            Paces::new(Bandwidth { all: Some(4_000), upload: Some(1_000), download: None, remove: Some(100) });
        let now = Instant::now();
        let wait = |start: Instant| start.duration_since(now);
        assert_eq!(wait(paces.reserve(Direction::Upload, 500, now)), Duration::ZERO);
        assert_eq!(wait(paces.reserve(Direction::Upload, 500, now)), Duration::from_millis(500));
        // 1,000 bytes are let through so far: a quarter of a second of both directions together.
        assert_eq!(wait(paces.reserve(Direction::Download, 1_000, now)), Duration::from_millis(250));
        assert_eq!(wait(paces.reserve(Direction::Download, 1, now)), Duration::from_millis(500));
        assert_eq!(
            wait(paces.reserve(Direction::Remove, 200, now)),
            Duration::ZERO,
            "removals wait for each other only"
        );
        assert_eq!(wait(paces.reserve(Direction::Remove, 200, now)), Duration::from_secs(2));
        let later = now + Duration::from_secs(9);
        assert_eq!(paces.reserve(Direction::Upload, 500, later), later, "what was not used is not saved up");
    }
}
