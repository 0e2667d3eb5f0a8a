//! Names ahead of need: a program that looks up one name of a directory after the other (`stat` of all files of a
//! tree, `rm -r`, `tar`) would wait for an answer each time. A page of the directory costs little more than one, so
//! pages come while names are asked for that nobody knows, and from then on most are answered from memory.
//!
//! Pages come in the order of cookies, which says nothing about the order in which a program asks. So the right measure
//! is what it has asked so far: entries are fetched in proportion to names that were found and to the square of those
//! that had to be asked for, and no more where hardly any is of use. (In proportion to the latter, too, a walk over a
//! thousand names waited for a hundred of them: it hardly finds any until much of the directory is there.)

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard};

use braid_base::ids::Ino;

use crate::habit::{Habit, Rules, Score};

/// Directories that are watched; beyond, all start afresh.
const DIRS_MAX: usize = 1_024;
/// Beyond this many entries, some must have been of use.
const TRIAL: u64 = 4_096;
/// 32 entries after two names that had to be asked for, 800 after ten, which is all of most directories.
const RULES: Rules = Rules { per_miss_squared: 8, per_hit: 8, trial: TRIAL, trial_per_hit: 64 };
/// Names that may be on their way to be asked for when the last page comes: they are no reason to begin anew.
const LATE: u8 = 4;
/// Entries of one page: about a millisecond of the partition's time at most.
const PAGE_MIN: u64 = 16;
const PAGE_MAX: u64 = 256;

/// Part of a directory to fetch: what follows `cookie`, up to `limit` entries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Page {
    pub(crate) cookie: u64,
    pub(crate) limit: u32,
    /// Which one it is.
    number: u64,
}

#[derive(Default)]
struct Trail {
    score: Score,
    /// Where the next page begins.
    cookie: u64,
    /// The page that is on its way.
    fetching: Option<u64>,
    /// So many names may still be late.
    late: u8,
}

/// What was looked up where.
#[derive(Default)]
pub(crate) struct Ahead(Mutex<Trails>);

#[derive(Default)]
struct Trails {
    dirs: HashMap<Ino, Trail>,
    habit: Habit,
    last_page: u64,
}

impl Ahead {
    /// A name in `dir` was answered from memory.
    pub(crate) fn hit(&self, dir: Ino) {
        let Trails { dirs, habit, .. } = &mut *self.trails();
        if let Some(trail) = dirs.get_mut(&dir) {
            trail.score.hits += 1;
            habit.hits(1);
        }
    }

    /// A name in `dir` was there and had to be asked for; what to fetch now. Then [`Self::fetched`] must follow.
    pub(crate) fn miss(&self, dir: Ino) -> Option<Page> {
        let Trails { dirs, habit, last_page } = &mut *self.trails();
        if dirs.len() >= DIRS_MAX && !dirs.contains_key(&dir) {
            dirs.clear();
        }
        let trail = dirs.entry(dir).or_default();
        if trail.late > 0 {
            trail.late -= 1;
            return None;
        }
        trail.score.misses += 1;
        let limit = trail.score.allowed(&RULES, habit.lead()).min(PAGE_MAX);
        if trail.fetching.is_some() || limit < PAGE_MIN {
            return None;
        }
        *last_page += 1;
        trail.fetching = Some(*last_page);
        Some(Page { cookie: trail.cookie, limit: limit as u32, number: *last_page })
    }

    /// `dir` is likely to be entered: what to fetch of it now, if nothing was and names that came unasked have been of use.
    /// Then [`Self::fetched`] must follow.
    pub(crate) fn begin(&self, dir: Ino) -> Option<Page> {
        let trails = &mut *self.trails();
        let is_new = trails.habit.lead() > 0 && !trails.dirs.contains_key(&dir);
        is_new.then(|| trails.first_page(dir))
    }

    /// `dir` is likely to be emptied: what to fetch of it now, so that it comes for this client alone, also if it is known.
    /// Then [`Self::fetched`] must follow.
    pub(crate) fn begin_anew(&self, dir: Ino) -> Option<Page> {
        let trails = &mut *self.trails();
        let is_coming = trails.dirs.get(&dir).is_some_and(|trail| trail.fetching.is_some());
        (trails.habit.lead() > 0 && !is_coming).then(|| trails.first_page(dir))
    }

    /// What is known of `dir` is not known for this client alone, and that is wanted now: the next name that is asked for is
    /// a reason to begin anew.
    pub(crate) fn does_not_do(&self, dir: Ino) {
        if let Some(trail) = self.trails().dirs.get_mut(&dir) {
            (trail.late, trail.cookie) = (0, 0);
        }
    }

    /// A page came: so many entries, and where the next one begins (0 after the last: what is not known by then was
    /// forgotten again). Without that it could not be had.
    pub(crate) fn fetched(&self, dir: Ino, page: Page, found: Option<(usize, u64)>) {
        let Trails { dirs, habit, .. } = &mut *self.trails();
        let trail = dirs.get_mut(&dir).filter(|trail| trail.fetching == Some(page.number));
        let Some(trail) = trail else { return };
        trail.fetching = None;
        if let Some((count, cookie)) = found {
            // An empty one has cost a message, too.
            trail.score.fetched += (count as u64).max(PAGE_MIN);
            habit.fetched(count as u64);
            trail.cookie = cookie;
            trail.late = if cookie == 0 { LATE } else { 0 };
        }
    }

    /// A program has read so many names of a listing of `dir` that came ahead of it.
    pub(crate) fn listed(&self, dir: Ino, count: usize) {
        let Trails { dirs, habit, .. } = &mut *self.trails();
        if let Some(trail) = dirs.get_mut(&dir) {
            trail.score.hits += count as u64;
        }
        habit.hits(count as u64);
    }

    /// A program has asked for a listing and got so many names: what would have been of use if it had come ahead.
    pub(crate) fn came(&self, count: usize) {
        let habit = &mut self.trails().habit;
        habit.fetched(count as u64);
        habit.hits(count as u64);
    }

    /// What was fetched of `dir` is no longer known.
    pub(crate) fn forget(&self, dir: Ino) {
        self.trails().dirs.remove(&dir);
    }

    fn trails(&self) -> MutexGuard<'_, Trails> {
        self.0.lock().expect("nothing panics while it holds the trails")
    }
}

impl Trails {
    /// The first page of `dir`, of which nothing counts as known.
    fn first_page(&mut self, dir: Ino) -> Page {
        if self.dirs.len() >= DIRS_MAX && !self.dirs.contains_key(&dir) {
            self.dirs.clear();
        }
        self.last_page += 1;
        let number = self.last_page;
        self.dirs.insert(dir, Trail { fetching: Some(number), ..Trail::default() });
        Page { cookie: 0, limit: PAGE_MAX as u32, number }
    }
}

#[cfg(test)]
mod tests {
    use super::{Ahead, TRIAL};
    use braid_base::ids::Ino;

    const DIR: Ino = Ino(7);

    /// Looks up names of a directory of `size`, of which a fetched page brings the next ones in the order of cookies;
    /// `order` gives the cookie of each name in turn. How many had to be asked for, and how many entries were fetched.
    fn walk(size: u64, order: impl Iterator<Item = u64>) -> (u64, u64) {
        let (ahead, mut known, mut asked) = (Ahead::default(), 0, 0);
        for cookie in order {
            if cookie <= known {
                ahead.hit(DIR);
                continue;
            }
            asked += 1;
            if let Some(page) = ahead.miss(DIR) {
                assert!(page.cookie == known && known < size);
                let count = u64::from(page.limit).min(size - known);
                known += count;
                ahead.fetched(DIR, page, Some((count as usize, known % size)));
            }
        }
        (asked, known)
    }

    #[test]
    fn a_directory_is_fetched_before_it_is_entered_once_and_if_that_was_of_use() {
        let ahead = Ahead::default();
        assert!(ahead.begin(Ino(1)).is_none(), "nothing is known yet");
        ahead.miss(DIR);
        let page = ahead.miss(DIR).expect("a habit");
        ahead.fetched(DIR, page, Some((100, 0)));
        (0..90).for_each(|_| ahead.hit(DIR));
        let page = ahead.begin(Ino(1)).expect("names were of use");
        assert_eq!(page.cookie, 0);
        assert!(ahead.begin(Ino(1)).is_none(), "it is on its way");
        ahead.fetched(Ino(1), page, Some((50, 0)));
        assert!(ahead.begin(Ino(1)).is_none() && ahead.begin(DIR).is_none(), "it is known");
        ahead.forget(Ino(1));
        // 90 of 150 are not enough.
        assert!(ahead.begin(Ino(1)).is_none());
        (0..40).for_each(|_| ahead.hit(DIR));
        assert!(ahead.begin(Ino(1)).is_some());
    }

    fn spread(size: u64) -> impl Iterator<Item = u64> {
        // 7919 has no common factor with the sizes below.
        (0..size).map(move |n| n * 7919 % size + 1)
    }

    #[test]
    fn most_names_of_a_tree_are_not_asked_for() {
        for (size, most) in [(100, 5), (1_000, 16), (10_000, 150)] {
            let (asked, fetched) = walk(size, spread(size));
            assert!(asked <= most && fetched == size, "{size}: asked for {asked}, fetched {fetched}");
        }
    }

    #[test]
    fn a_few_names_of_a_large_directory_fetch_little() {
        let (asked, fetched) = walk(1_000_000, spread(1_000_000).take(10));
        assert!(asked == 10 && fetched <= 800, "{fetched}");
        let (asked, fetched) = walk(1_000_000, spread(1_000_000).take(5_000));
        assert!(asked > 4_900 && fetched <= 2 * TRIAL, "asked for {asked}, fetched {fetched}");
    }

    #[test]
    fn a_walk_through_a_tree_need_not_prove_itself_again() {
        let (ahead, mut fetched) = (Ahead::default(), 0);
        for dir in (1..=50).map(Ino) {
            let (mut known, mut coming): (u64, Option<super::Page>) = (0, None);
            for (turn, cookie) in (0..100).map(|n| (n, n * 71 % 100 + 1)) {
                // A page that was asked for beside one name comes while the next one is on its way.
                let is_known = cookie <= known;
                if let Some(page) = coming.take() {
                    let count = u64::from(page.limit).min(100 - known);
                    (known, fetched) = (known + count, fetched + count);
                    ahead.fetched(dir, page, Some((count as usize, known % 100)));
                }
                if is_known {
                    ahead.hit(dir);
                } else {
                    coming = ahead.miss(dir);
                    assert!(turn > 0 || dir <= Ino(1) || coming.is_some(), "{dir}: its first name brings others");
                }
            }
        }
        assert_eq!(fetched, 5_000, "each entry once");
    }

    #[test]
    fn what_is_known_comes_once_more_for_who_empties_it() {
        let ahead = Ahead::default();
        assert!(ahead.begin_anew(DIR).is_none(), "names that came unasked were of no use yet");
        ahead.miss(DIR);
        let page = ahead.miss(DIR).expect("a habit");
        ahead.fetched(DIR, page, Some((100, 0)));
        (0..100).for_each(|_| ahead.hit(DIR));
        assert!(ahead.begin(DIR).is_none() && ahead.miss(DIR).is_none(), "it is known, and this one was late");
        ahead.does_not_do(DIR);
        let page = ahead.miss(DIR).expect("no name is late now");
        assert_eq!((page.cookie, ahead.begin_anew(DIR)), (0, None), "it is on its way");
        ahead.fetched(DIR, page, Some((100, 0)));
        assert!(ahead.begin_anew(DIR).is_none(), "of 200 that came 100 were of use");
        (0..100).for_each(|_| ahead.hit(DIR));
        assert_eq!(ahead.begin_anew(DIR).map(|page| page.cookie), Some(0));
    }

    #[test]
    fn one_page_at_a_time_and_afresh_after_the_last() {
        let ahead = Ahead::default();
        assert_eq!(ahead.miss(DIR), None, "one name is no habit");
        let page = ahead.miss(DIR).expect("two are");
        assert_eq!((page.cookie, ahead.miss(DIR)), (0, None), "it is on its way");
        ahead.fetched(DIR, page, None);
        let again = ahead.miss(DIR).expect("the first attempt failed");
        ahead.fetched(DIR, page, Some((20, 99)));
        assert_eq!(ahead.miss(DIR), None, "that answer was another one's");
        ahead.fetched(DIR, again, Some((20, 99)));
        assert_eq!(ahead.miss(DIR).map(|page| page.cookie), Some(99));
        ahead.forget(DIR);
        assert_eq!((ahead.miss(DIR), ahead.miss(DIR).map(|page| page.cookie)), (None, Some(0)));
    }
}
