//! Lines of the log that come in thousands when a host is away: a few of them say it.

use std::sync::{Mutex, MutexGuard};

/// Lines that are written in one second.
const LINES_MAX: u32 = 5;

/// One kind of line.
pub(crate) struct Flood(Mutex<Second>);

#[derive(Default)]
struct Second {
    /// Seconds on a clock that never goes back.
    of: u64,
    written: u32,
    left_out: u64,
}

impl Flood {
    pub(crate) const fn new() -> Self {
        Self(Mutex::new(Second { of: 0, written: 0, left_out: 0 }))
    }

    /// True if one more line may be written in second `now_s`, and how many were left out since the last one.
    pub(crate) fn may_write(&self, now_s: u64) -> Option<u64> {
        let mut second = self.second();
        if now_s != second.of {
            (second.of, second.written) = (now_s, 0);
        }
        if second.written == LINES_MAX {
            second.left_out += 1;
            return None;
        }
        second.written += 1;
        Some(std::mem::take(&mut second.left_out))
    }

    fn second(&self) -> MutexGuard<'_, Second> {
        self.0.lock().expect("nothing panics while it holds the numbers")
    }
}

#[cfg(test)]
mod tests {
    use super::{Flood, LINES_MAX};

    #[test]
    fn a_few_lines_a_second_are_written_and_the_others_counted() {
        let flood = Flood::new();
        let written = |now_s: u64, lines: u32| (0..lines).filter_map(|_| flood.may_write(now_s)).collect::<Vec<u64>>();
        assert_eq!(written(7, LINES_MAX), [0; LINES_MAX as usize]);
        assert_eq!(written(7, 1_000), []);
        assert_eq!(written(8, 2), [1_000, 0], "the next one says so");
        assert_eq!(written(8, 1_000).len() as u32, LINES_MAX - 2);
        assert_eq!(written(9, 1), [1_002 - u64::from(LINES_MAX)]);
    }
}
