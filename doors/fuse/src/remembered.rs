//! What a mount remembers of inodes between requests: whether the pages the kernel holds are still good, and whether
//! the next read must move the access time.

use braid_base::attr::{Attr, Time};
use braid_base::ids::Ino;
use braid_client::fs::Watcher;

use crate::table::Hints;

/// Inodes remembered, of each kind of hint.
const INODES: usize = 200_000;
/// `relatime`: an access time older than this is moved by the next read, seconds.
const ATIME_OLD_S: i64 = 24 * 3600;

pub(crate) struct Remembered {
    /// [`Attr::change`] up to which the kernel's pages of a file are known to be good.
    pages: Hints<Ino, u64>,
    /// Inodes whose access time the next read moves.
    atime_due: Hints<Ino, ()>,
}

impl Remembered {
    pub(crate) fn new() -> Self {
        Self { pages: Hints::new(INODES), atime_due: Hints::new(INODES) }
    }

    /// A file was opened and looks like `attr`: may the kernel keep the pages it has of it? Only if every change
    /// since they were read went through this mount.
    pub(crate) fn opened(&self, attr: &Attr) -> bool {
        self.pages.put(attr.ino, attr.change) == Some(attr.change)
    }

    /// A change through this mount led to `attr`. If it was not the very next change, another one came between, and
    /// of that the kernel's pages know nothing.
    pub(crate) fn changed(&self, attr: &Attr) {
        // In one go: what is distrusted meanwhile stays so.
        self.pages.update(attr.ino, |known| {
            *known = known.is_some_and(|before| before + 1 == attr.change).then_some(attr.change);
        });
    }

    /// The pages of `ino` are not to be trusted at the next open.
    pub(crate) fn distrust(&self, ino: Ino) {
        self.pages.take(&ino);
    }

    /// Attributes passed by at wall-clock second `now_s`.
    pub(crate) fn saw(&self, attr: &Attr, now_s: i64) {
        if atime_is_due(attr.atime, attr.mtime, attr.ctime, now_s) {
            self.atime_due.put(attr.ino, ());
        } else {
            self.atime_due.take(&attr.ino);
        }
    }

    /// `ino` was read: whether its access time must move now. Says so once.
    pub(crate) fn read_moves_atime(&self, ino: Ino) -> bool {
        self.atime_due.take(&ino).is_some()
    }
}

/// Writes that were held back reach the cluster: the kernels of all mounts have their bytes, or were told to forget the
/// old ones when they were made.
impl Watcher for Remembered {
    fn changed(&self, attr: &Attr) {
        Self::changed(self, attr);
    }

    fn forget(&self, ino: Ino, _names: &[Vec<u8>]) {
        self.distrust(ino);
    }
}

/// The rule of `relatime`: at most one update after each change, and one a day.
fn atime_is_due(atime: Time, mtime: Time, ctime: Time, now_s: i64) -> bool {
    atime <= mtime || atime <= ctime || now_s.saturating_sub(atime.sec) >= ATIME_OLD_S
}

#[cfg(test)]
mod tests {
    use std::thread;

    use super::{Remembered, atime_is_due};
    use crate::table::meeting::Meeting;
    use braid_base::attr::{Attr, Time};
    use braid_base::ids::Ino;

    fn attr(change: u64) -> Attr {
        Attr { ino: Ino(5), change, ..Attr::default() }
    }

    #[test]
    fn pages_are_kept_only_after_own_changes_in_a_row() {
        let r = Remembered::new();
        assert!(!r.opened(&attr(1)), "nothing is known yet");
        assert!(r.opened(&attr(1)));
        r.changed(&attr(2));
        assert!(r.opened(&attr(2)), "own change");
        r.changed(&attr(4));
        assert!(!r.opened(&attr(4)), "change 3 was someone else's");
        assert!(!r.opened(&attr(5)), "so was 5");
        r.distrust(Ino(5));
        assert!(!r.opened(&attr(5)));
    }

    #[test]
    fn pages_that_are_distrusted_while_a_change_is_noted_stay_distrusted() {
        const FILES: u64 = 50_000;
        let (r, both) = (Remembered::new(), Meeting::default());
        let file = |n, change| Attr { ino: Ino(n), change, ..Attr::default() };
        (0..FILES).for_each(|n| _ = r.opened(&file(n, 1)));
        let each = |what: &dyn Fn(u64)| {
            for n in 0..FILES {
                both.meet(n);
                what(n);
            }
        };
        thread::scope(|scope| {
            scope.spawn(|| each(&|n| r.changed(&file(n, 2))));
            scope.spawn(|| each(&|n| r.distrust(Ino(n))));
        });
        assert_eq!((0..FILES).filter(|n| r.opened(&file(*n, 2))).count(), 0, "of {FILES}");
    }

    #[test]
    fn access_times_move_once_after_a_change_and_once_a_day() {
        let time = |sec| Time { sec, nsec: 0 };
        assert!(atime_is_due(time(10), time(10), time(9), 11));
        assert!(atime_is_due(time(10), time(9), time(10), 11));
        assert!(!atime_is_due(time(10), time(9), time(9), 11));
        assert!(atime_is_due(time(10), time(9), time(9), 10 + 86_400));
        let r = Remembered::new();
        r.saw(&attr(1), 0);
        assert!(r.read_moves_atime(Ino(5)));
        assert!(!r.read_moves_atime(Ino(5)), "only once");
    }
}
