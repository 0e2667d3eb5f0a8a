//! When to try again what failed.

/// First and longest wait after a failure, milliseconds; it doubles with each failure in a row.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Backoff {
    first_ms: u64,
    most_ms: u64,
    wait_ms: u64,
    due_ms: u64,
}

impl Backoff {
    pub const fn new(first_ms: u64, most_ms: u64) -> Self {
        Self { first_ms, most_ms, wait_ms: first_ms, due_ms: 0 }
    }

    /// True if it may be tried.
    pub fn is_over(&self, now_ms: u64) -> bool {
        now_ms >= self.due_ms
    }

    /// True if it failed when last it was tried.
    pub fn fails(&self) -> bool {
        self.wait_ms > self.first_ms
    }

    /// It failed.
    pub fn failed(&mut self, now_ms: u64) {
        self.due_ms = now_ms + self.wait_ms;
        self.wait_ms = (2 * self.wait_ms).min(self.most_ms);
    }

    /// It went well: the next failure is a first one.
    pub fn went_well(&mut self) {
        self.wait_ms = self.first_ms;
    }

    /// Nothing failed, but it is no use before then.
    pub fn pause(&mut self, until_ms: u64) {
        self.due_ms = until_ms;
    }
}

#[cfg(test)]
mod tests {
    use super::Backoff;

    #[test]
    fn waits_double_up_to_the_longest_and_begin_anew() {
        let mut backoff = Backoff::new(500, 1_500);
        let mut now = 0;
        for wait in [500, 1_000, 1_500, 1_500] {
            assert!(backoff.is_over(now));
            backoff.failed(now);
            assert!(!backoff.is_over(now + wait - 1) && backoff.is_over(now + wait));
            now += wait;
        }
        assert!(backoff.fails());
        backoff.went_well();
        assert!(!backoff.fails());
        backoff.failed(now);
        assert!(!backoff.is_over(now + 499) && backoff.is_over(now + 500));
    }
}
