//! How far files were read through a mount, for who brings bytes back just ahead of a job (`braid.read`).
//!
//! Reads are noted only while somebody asks: else one costs no more than a look at a number.

use std::sync::atomic::{AtomicU64, Ordering};

use braid_base::ids::Ino;

use crate::table::Hints;

/// Files whose last read is known; beyond, all are forgotten.
const FILES_MAX: usize = 100_000;
/// Reads are noted for so long after somebody asked, milliseconds.
const NOTED_MS: u64 = 60_000;
/// The kernel reads ahead in several requests at a time, which end in any order: of those that are so near each other, in
/// milliseconds and bytes, the furthest counts.
const NEAR_MS: u64 = 1_000;
/// Wider than any readahead: with 4 MiB the first request of one, when it ended last, hid the end of the file.
const NEAR_BYTES: u64 = 64 << 20;

/// A read of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Read {
    /// The byte behind it.
    pub(crate) end: u64,
    /// How long ago, milliseconds.
    pub(crate) ago_ms: u64,
}

/// The last read of each file.
pub(crate) struct Reads {
    /// When somebody last asked; 0: nobody has for long.
    asked_ms: AtomicU64,
    last: Hints<Ino, (u64, u64)>,
}

impl Reads {
    pub(crate) fn new() -> Self {
        Self { asked_ms: AtomicU64::new(0), last: Hints::new(FILES_MAX) }
    }

    /// `ino` was read up to byte `end`; `now_ms` is looked at only if that is to be noted.
    pub(crate) fn note(&self, ino: Ino, end: u64, now_ms: impl FnOnce() -> u64) {
        let asked_ms = self.asked_ms.load(Ordering::Relaxed);
        if asked_ms == 0 {
            return;
        }
        let now_ms = now_ms();
        if now_ms > asked_ms + NOTED_MS {
            self.asked_ms.store(0, Ordering::Relaxed);
            return;
        }
        // In one go: requests of one file end on several threads at once.
        self.last.update(ino, |last| {
            let (before, at_ms) = last.unwrap_or_default();
            let is_near = now_ms <= at_ms + NEAR_MS && (end..=end.saturating_add(NEAR_BYTES)).contains(&before);
            *last = Some((if is_near { before } else { end }, now_ms));
        });
    }

    /// The last read of `ino`, of those that were noted. From now on they are.
    pub(crate) fn of(&self, ino: Ino, now_ms: u64) -> Option<Read> {
        self.asked_ms.store(now_ms.max(1), Ordering::Relaxed);
        let (end, at_ms) = self.last.get(&ino)?;
        Some(Read { end, ago_ms: now_ms.saturating_sub(at_ms) })
    }
}

#[cfg(test)]
mod tests {
    use std::thread;

    use braid_base::ids::Ino;

    use super::{NEAR_BYTES, NEAR_MS, NOTED_MS, Read, Reads};
    use crate::table::meeting::Meeting;

    #[test]
    fn reads_are_noted_while_somebody_asks() {
        let (reads, file, other) = (Reads::new(), Ino(7), Ino(8));
        reads.note(file, 10, || unreachable!("nobody has asked"));
        assert_eq!(reads.of(file, 100), None);
        reads.note(file, 20, || 150);
        reads.note(file, 15, || 160);
        assert_eq!(
            reads.of(file, 200),
            Some(Read { end: 20, ago_ms: 40 }),
            "requests of one reader overtake each other"
        );
        reads.note(file, 9 * NEAR_BYTES, || 300);
        reads.note(file, 7 * NEAR_BYTES, || 310);
        assert_eq!(
            reads.of(file, 320),
            Some(Read { end: 7 * NEAR_BYTES, ago_ms: 10 }),
            "the last one, not the furthest"
        );
        reads.note(file, 5, || 500);
        reads.note(file, 4, || 501 + NEAR_MS);
        assert_eq!(reads.of(file, 501 + NEAR_MS), Some(Read { end: 4, ago_ms: 0 }), "it reads once more");
        assert_eq!(reads.of(other, 501 + NEAR_MS), None);
        reads.note(file, 30, || 502 + NEAR_MS + NOTED_MS);
        reads.note(file, 40, || unreachable!("it was given up"));
        assert_eq!(reads.of(file, 99_000).map(|read| read.end), Some(4));
    }

    #[test]
    fn reads_that_end_on_several_threads_at_once_do_not_hide_the_furthest() {
        const FILES: u64 = 50_000;
        let reads = Reads::new();
        reads.of(Ino(0), 1);
        let both = Meeting::default();
        thread::scope(|scope| {
            for end in 1..=2 {
                let (reads, both) = (&reads, &both);
                scope.spawn(move || {
                    for file in 0..FILES {
                        both.meet(file);
                        reads.note(Ino(file), end, || 2);
                    }
                });
            }
        });
        let last = (0..FILES).map(|file| reads.of(Ino(file), 2).map(|read| read.end));
        assert_eq!(last.filter(|end| *end != Some(2)).count(), 0, "of {FILES}");
    }
}
