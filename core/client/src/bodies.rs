//! Small files ahead of need: a program that reads the files of a directory one after the other (`tar`, `grep -r`, a
//! training run) waits twice for each, for where its bytes are and for the bytes. Many files asked for together cost
//! little more than one, so what it is likely to read next comes while it reads.
//!
//! Files come in the order in which the directory was listed, from the one on that had to be asked for last, and after
//! the last one from the first. As with names ([`crate::ahead`]), the measure is what was read so far: files are fetched
//! in proportion to those that were there and to the square of those that had to be asked for, and no more where hardly
//! any was of use.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::{Mutex, MutexGuard};

use braid_base::ids::Ino;

use crate::habit::{Habit, Rules, Score};

/// Larger files are read when they are wanted, bytes: a page of them would crowd out everything else.
pub(crate) const BODY_MAX: u64 = 64 << 10;
/// Files whose place in a directory is remembered; beyond, all start afresh.
const FILES_MAX: usize = 1 << 16;
/// Beyond this many files, some must have been of use.
const TRIAL: u64 = 256;
const RULES: Rules = Rules { per_miss_squared: 4, per_hit: 4, trial: TRIAL, trial_per_hit: 4 };
/// Files that are fetched together.
const BATCH_MIN: u64 = 8;
const BATCH_MAX: u64 = 32;
/// Files fetched and not read yet, at most: 8 MiB of the largest ones.
const UNREAD_MAX: u64 = 128;
/// Files that are looked at for a batch.
const LOOKS_MAX: usize = 1_024;

#[derive(Default)]
struct Trail {
    /// In the order of the listing, and whether it was read, or fetched.
    files: Vec<(Ino, bool)>,
    /// Of these, how many were neither.
    left: usize,
    /// Where the next ones are taken from.
    next: usize,
    score: Score,
}

#[derive(Default)]
struct Trails {
    dirs: HashMap<Ino, Trail>,
    /// The directory in which a file was listed, and its place there.
    places: HashMap<Ino, (Ino, usize)>,
    habit: Habit,
}

/// What was listed, and read, where.
#[derive(Default)]
pub(crate) struct Bodies(Mutex<Trails>);

impl Bodies {
    /// These small files were found in `dir`.
    pub(crate) fn listed(&self, dir: Ino, files: impl Iterator<Item = Ino>) {
        let Trails { dirs, places, .. } = &mut *self.trails();
        for ino in files {
            if places.len() >= FILES_MAX {
                dirs.clear();
                places.clear();
            }
            if let Entry::Vacant(place) = places.entry(ino) {
                let trail = dirs.entry(dir).or_default();
                place.insert((dir, trail.files.len()));
                trail.files.push((ino, false));
                trail.left += 1;
            }
        }
    }

    /// A small file is being read, and its bytes were there or not. Which files to fetch now.
    pub(crate) fn read(&self, ino: Ino, was_there: bool) -> Vec<Ino> {
        let Trails { dirs, places, habit } = &mut *self.trails();
        let Some((dir, at)) = places.get(&ino) else { return Vec::new() };
        let Some(trail) = dirs.get_mut(dir) else { return Vec::new() };
        if was_there {
            trail.score.hits += 1;
            habit.hits(1);
        } else {
            trail.score.misses += 1;
            trail.next = at + 1;
        }
        trail.take(*at);
        let files = trail.batch(habit.lead());
        habit.fetched(files.len() as u64);
        files
    }

    /// `dir` is likely to be entered: all its small files if they are few, none was fetched, and that has been of use.
    pub(crate) fn begin(&self, dir: Ino) -> Vec<Ino> {
        let Trails { dirs, habit, .. } = &mut *self.trails();
        let is_new = |trail: &&mut Trail| trail.score.fetched == 0 && trail.files.len() as u64 <= UNREAD_MAX;
        let Some(trail) = dirs.get_mut(&dir).filter(is_new).filter(|_| habit.lead() > 0) else { return Vec::new() };
        let new: Vec<usize> = (0..trail.files.len()).filter(|at| trail.take(*at)).collect();
        let files: Vec<Ino> = new.into_iter().map(|at| trail.files[at].0).collect();
        trail.score.fetched += files.len() as u64;
        habit.fetched(files.len() as u64);
        files
    }

    /// `dir` changes: what was listed is no longer known.
    pub(crate) fn forget(&self, dir: Ino) {
        let Trails { dirs, places, .. } = &mut *self.trails();
        for (ino, _) in dirs.remove(&dir).into_iter().flat_map(|trail| trail.files) {
            places.remove(&ino);
        }
    }

    fn trails(&self) -> MutexGuard<'_, Trails> {
        self.0.lock().expect("nothing panics while it holds the trails")
    }
}

impl Trail {
    /// The file at this place is read, or about to be; false if it was before.
    fn take(&mut self, at: usize) -> bool {
        let is_new = !std::mem::replace(&mut self.files[at].1, true);
        self.left -= usize::from(is_new);
        is_new
    }

    /// The next ones; `lead`: misses that count beside those here.
    fn batch(&mut self, lead: u64) -> Vec<Ino> {
        let unread = self.score.fetched.saturating_sub(self.score.hits);
        let allowed = self.score.allowed(&RULES, lead);
        let count = allowed.min(UNREAD_MAX.saturating_sub(unread)).min(BATCH_MAX);
        if self.left == 0 || count < BATCH_MIN {
            return Vec::new();
        }
        let mut files = Vec::new();
        for _ in 0..self.files.len().min(LOOKS_MAX) {
            if files.len() == count as usize {
                break;
            }
            self.next %= self.files.len();
            if self.take(self.next) {
                files.push(self.files[self.next].0);
            }
            self.next += 1;
        }
        self.score.fetched += files.len() as u64;
        files
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::{BATCH_MAX, Bodies, TRIAL, UNREAD_MAX};
    use braid_base::ids::Ino;

    const DIR: Ino = Ino(1 << 40);

    /// Reads files of a directory of `size` in this order; each batch has come after `late` more were read. How many
    /// had to be asked for, and how many were fetched.
    fn walk(size: u64, late: usize, order: impl Iterator<Item = u64>) -> (u64, u64) {
        let bodies = Bodies::default();
        bodies.listed(DIR, (0..size).map(Ino));
        let (mut there, mut coming) = (BTreeSet::<Ino>::new(), Vec::new());
        let (mut asked, mut fetched) = (0, 0);
        for (turn, ino) in order.enumerate() {
            coming.retain(|(due, files): &(usize, Vec<Ino>)| {
                let is_due = *due <= turn;
                there.extend(if is_due { files.as_slice() } else { &[] });
                !is_due
            });
            let was_there = there.remove(&Ino(ino));
            asked += u64::from(!was_there);
            let files = bodies.read(Ino(ino), was_there);
            assert!(files.len() <= BATCH_MAX as usize);
            fetched += files.len() as u64;
            coming.push((turn + late, files));
            assert!(there.len() as u64 <= UNREAD_MAX);
        }
        (asked, fetched)
    }

    #[test]
    fn files_read_in_the_order_of_the_listing_are_there() {
        for (size, late, most) in [(100, 1, 6), (100, 4, 20), (5_000, 8, 100)] {
            let (asked, fetched) = walk(size, late, 0..size);
            assert!(asked <= most && fetched <= size, "{size}: asked for {asked}, fetched {fetched}");
        }
    }

    #[test]
    fn files_read_in_another_order_are_there_too() {
        // 71 has no common factor with the size.
        let (asked, fetched) = walk(100, 4, (0..100).map(|n| n * 71 % 100));
        assert!(asked <= 16 && fetched <= 100, "asked for {asked}, fetched {fetched}");
    }

    #[test]
    fn the_first_file_of_a_directory_brings_others_where_that_was_of_use() {
        let bodies = Bodies::default();
        for dir in 1..=4 {
            let files = || (0..100).map(move |n| Ino(dir * 1_000 + n));
            bodies.listed(Ino(dir), files());
            let mut there = BTreeSet::<Ino>::new();
            for (turn, ino) in files().enumerate() {
                let more = bodies.read(ino, there.remove(&ino));
                assert!(dir < 3 || turn > 0 || more.len() == BATCH_MAX as usize, "directory {dir}: {more:?}");
                there.extend(more);
            }
        }
    }

    #[test]
    fn files_of_a_directory_that_will_be_entered_come_before_if_they_are_few_and_that_was_of_use() {
        let bodies = Bodies::default();
        let list = |dir: u64, count: u64| bodies.listed(Ino(dir), (0..count).map(move |n| Ino(dir * 1_000 + n)));
        (1..=4).for_each(|dir| list(dir, 100));
        list(5, UNREAD_MAX + 1);
        assert!(bodies.begin(Ino(1)).is_empty(), "nothing is known yet");
        let mut there = BTreeSet::new();
        for ino in (0..100).map(|n| Ino(1_000 + n)) {
            let was_there = there.remove(&ino);
            there.extend(bodies.read(ino, was_there));
        }
        let files = bodies.begin(Ino(2));
        assert_eq!(files, (0..100).map(|n| Ino(2_000 + n)).collect::<Vec<_>>());
        assert!(bodies.begin(Ino(2)).is_empty() && bodies.begin(Ino(5)).is_empty() && bodies.begin(Ino(6)).is_empty());
        assert!(files.iter().all(|ino| bodies.read(*ino, true).is_empty()), "there is no more");
    }

    #[test]
    fn a_few_files_of_a_large_directory_fetch_little() {
        let (asked, fetched) = walk(50_000, 1, (0..5_000).map(|n| n * 7919 % 50_000));
        assert!(asked > 4_000 && fetched <= 2 * TRIAL + 4 * (5_000 - asked), "asked for {asked}, fetched {fetched}");
    }

    #[test]
    fn what_was_not_listed_or_has_changed_fetches_nothing() {
        let bodies = Bodies::default();
        bodies.listed(DIR, (0..100).map(Ino));
        assert!((1_000..1_010).all(|ino| bodies.read(Ino(ino), false).is_empty()));
        assert!(bodies.read(Ino(0), false).is_empty(), "one file is no habit");
        let files = bodies.read(Ino(1), false);
        assert_eq!(files.first(), Some(&Ino(2)));
        bodies.forget(DIR);
        assert!((20..40).all(|ino| bodies.read(Ino(ino), false).is_empty()));
    }
}
