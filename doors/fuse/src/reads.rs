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
const NEAR_MS: u64 = 100;
const NEAR_BYTES: u64 = 4 << 20;

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
        let (before, at_ms) = self.last.get(&ino).unwrap_or_default();
        let is_near = now_ms <= at_ms + NEAR_MS && (end..=end.saturating_add(NEAR_BYTES)).contains(&before);
        self.last.put(ino, (if is_near { before } else { end }, now_ms));
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
    use braid_base::ids::Ino;

    use super::{NEAR_BYTES, NOTED_MS, Read, Reads};

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
        reads.note(file, 4, || 601);
        assert_eq!(reads.of(file, 601), Some(Read { end: 4, ago_ms: 0 }), "it reads once more");
        assert_eq!(reads.of(other, 601), None);
        reads.note(file, 30, || 602 + NOTED_MS);
        reads.note(file, 40, || unreachable!("it was given up"));
        assert_eq!(reads.of(file, 99_000).map(|read| read.end), Some(4));
    }
}
