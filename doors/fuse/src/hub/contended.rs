//! Directories in whose names more than one mount has a part (decision 47).

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard};
use std::time::Duration;

use braid_base::ids::Ino;
use tokio::time::Instant;

/// How long a directory stays contended after a notice about one of its names.
const CONTENDED: Duration = Duration::from_secs(5);
/// Between the answer that gives the kernel a name and the moment from which it counts how long to believe it.
pub(super) const ON_THE_WAY: Duration = Duration::from_millis(200);
/// Contended directories before those that are not any more are looked for, at least.
const MANY_MIN: usize = 1_024;

/// Directories about whose names there were notices.
pub(super) struct Contended {
    /// How long the kernel believes a name that it was given before.
    age: Duration,
    /// It believes longer that a name is not there: of that it is told as long as it lasts, and not waited for.
    tells_on: bool,
    dirs: Mutex<HashMap<Ino, Row>>,
    /// Of them so many at least are looked through for those that are over.
    many: AtomicUsize,
    any: AtomicBool,
}

/// Notices about one directory that came in a row.
struct Row {
    first: Instant,
    last: Instant,
}

impl Row {
    fn is_recent(&self, now: Instant) -> bool {
        now.saturating_duration_since(self.last) < CONTENDED
    }

    /// When a kernel that believes names for `age` does not believe any in the directory any more.
    fn until(&self, age: Duration) -> Instant {
        self.first + age + ON_THE_WAY
    }
}

impl Contended {
    /// Of a kernel that believes names for `age` at most, and for `absence` that there is none.
    pub(super) fn new(age: Duration, absence: Duration) -> Self {
        let (dirs, many, any) = (Mutex::default(), AtomicUsize::new(MANY_MIN), AtomicBool::new(false));
        Self { age, tells_on: absence > age, dirs, many, any }
    }

    /// There is a notice about a name in `dir`: whether the kernel may still believe what it says.
    pub(super) fn note(&self, dir: Ino) -> bool {
        let mut dirs = self.dirs();
        // Not before: who gave the kernel a name meanwhile looked at an earlier time.
        let now = Instant::now();
        self.note_at(&mut dirs, dir, now) > now || self.tells_on
    }

    /// When the kernel does not believe any name in `dir` any more.
    fn note_at(&self, dirs: &mut HashMap<Ino, Row>, dir: Ino, now: Instant) -> Instant {
        if dirs.len() >= self.many.load(Ordering::Relaxed) {
            dirs.retain(|_, row| row.is_recent(now));
            self.many.store(MANY_MIN.max(2 * dirs.len()), Ordering::Relaxed);
        }
        let row = dirs.entry(dir).or_insert(Row { first: now, last: now });
        if !row.is_recent(now) {
            row.first = now;
        }
        row.last = now;
        self.any.store(true, Ordering::Relaxed);
        row.until(self.age)
    }

    /// Names of `from` may come to `to`, and are believed there as long as they would be in `from`. If `to` is contended,
    /// so is `from` from now on: what comes from there later is asked about each time.
    pub(super) fn moves(&self, from: Ino, to: Ino, now: Instant) {
        if from == to || !self.any.load(Ordering::Relaxed) {
            return;
        }
        let mut dirs = self.dirs();
        if !dirs.get(&to).is_some_and(|row| row.is_recent(now)) {
            return;
        }
        self.note_at(&mut dirs, from, now);
        let since = dirs[&from].first;
        if let Some(row) = dirs.get_mut(&to) {
            row.first = since.max(row.first);
        }
    }

    /// When the kernel does not believe any name in `dir` any more, if that is to come.
    pub(super) fn until(&self, dir: Ino) -> Option<Instant> {
        self.dirs().get(&dir).map(|row| row.until(self.age))
    }

    /// Whether `dir` is contended now.
    pub(super) fn has(&self, dir: Ino) -> bool {
        self.any.load(Ordering::Relaxed) && self.dirs().get(&dir).is_some_and(|row| row.is_recent(Instant::now()))
    }

    fn dirs(&self) -> MutexGuard<'_, HashMap<Ino, Row>> {
        self.dirs.lock().expect("nothing panics while it holds the directories")
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use braid_base::ids::Ino;
    use tokio::time::Instant;

    use super::{CONTENDED, Contended, MANY_MIN, ON_THE_WAY};

    const AGE: Duration = Duration::from_secs(1);

    #[test]
    fn a_directory_is_contended_until_some_time_after_the_last_notice() {
        let (contended, begin) = (Contended::new(AGE, AGE), Instant::now());
        let note = |dir, now| contended.note_at(&mut contended.dirs(), Ino(dir), now);
        let until = begin + AGE + ON_THE_WAY;
        assert!(!contended.has(Ino(1)) && contended.until(Ino(1)).is_none());
        assert_eq!(note(1, begin), until);
        assert!(contended.has(Ino(1)) && !contended.has(Ino(2)));
        let later = begin + CONTENDED - Duration::from_millis(1);
        assert_eq!(note(1, later), until, "what was given since is asked about each time");
        let over = later + CONTENDED;
        assert_eq!(note(1, over), over + AGE + ON_THE_WAY, "names were believed again");

        // A name that comes from elsewhere brings along how long it is believed.
        let moved = over + CONTENDED / 2;
        contended.moves(Ino(3), Ino(1), moved);
        assert_eq!(note(1, moved), moved + AGE + ON_THE_WAY);
        let again = moved + CONTENDED / 2;
        contended.moves(Ino(3), Ino(1), again);
        assert_eq!(note(1, again), moved + AGE + ON_THE_WAY, "names there were asked about since");
        contended.moves(Ino(4), Ino(5), again);
        assert!(contended.until(Ino(4)).is_none() && contended.until(Ino(5)).is_none(), "nobody contends");

        (0..MANY_MIN as u64).for_each(|dir| _ = note(dir, begin));
        note(u64::MAX, again + CONTENDED);
        assert_eq!(contended.dirs().len(), 1, "what is over is forgotten");
    }
}
