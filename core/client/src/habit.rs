//! How much is fetched ahead of need, names ([`crate::ahead`]) as well as small files ([`crate::bodies`]): what was of use
//! in a directory so far says it, and what was lately in all of them. A walk through a tree begins in each directory anew,
//! and need not prove itself each time.

/// Names or files of a directory that had to be asked for before any is fetched.
const MISSES_MIN: u64 = 2;
/// So much must have been fetched before it says anything.
const FETCHED_MIN: u64 = 64;
/// Beyond this both counts are halved: what was long ago fades.
const FETCHED_MAX: u64 = 1_024;
/// Misses of other directories that count in a new one.
const LEAD: u64 = 3;

/// How freely is fetched.
pub(crate) struct Rules {
    /// So many for each pair of those that had to be asked for, one with the other...
    pub(crate) per_miss_squared: u64,
    /// ...and for each that was there.
    pub(crate) per_hit: u64,
    /// Beyond this many, one of so many must have been of use.
    pub(crate) trial: u64,
    pub(crate) trial_per_hit: u64,
}

/// What became of a directory so far.
#[derive(Default)]
pub(crate) struct Score {
    /// Had to be asked for.
    pub(crate) misses: u64,
    /// Were there.
    pub(crate) hits: u64,
    pub(crate) fetched: u64,
}

impl Score {
    /// How many more may be fetched; `lead`: misses that count beside those here.
    pub(crate) fn allowed(&self, rules: &Rules, lead: u64) -> u64 {
        let misses = self.misses + lead;
        let is_useful = self.fetched <= rules.trial + rules.trial_per_hit * self.hits;
        if misses < MISSES_MIN || !is_useful {
            return 0;
        }
        let by_misses = rules.per_miss_squared * misses.saturating_pow(2).min(rules.trial);
        (by_misses + rules.per_hit * self.hits).saturating_sub(self.fetched)
    }
}

/// What was fetched in all directories, and how much of it was wanted.
#[derive(Default)]
pub(crate) struct Habit {
    fetched: u64,
    hits: u64,
}

impl Habit {
    /// So much was fetched.
    pub(crate) fn fetched(&mut self, count: u64) {
        self.fetched += count;
        while self.fetched > FETCHED_MAX {
            (self.fetched, self.hits) = (self.fetched / 2, self.hits / 2);
        }
    }

    /// So much was wanted that was there.
    pub(crate) fn hits(&mut self, count: u64) {
        self.hits = (self.hits + count).min(self.fetched);
    }

    /// How many misses count as made before a directory is looked at: some if three of four were of use, else none.
    pub(crate) fn lead(&self) -> u64 {
        if self.fetched >= FETCHED_MIN && 4 * self.hits >= 3 * self.fetched { LEAD } else { 0 }
    }
}

#[cfg(test)]
mod tests {
    use super::{FETCHED_MAX, Habit, LEAD};

    #[test]
    fn what_was_of_use_leads_until_it_is_not() {
        let mut habit = Habit::default();
        assert_eq!(habit.lead(), 0);
        for _ in 0..100 {
            habit.fetched(100);
            (0..100).for_each(|_| habit.hits(1));
        }
        assert_eq!(habit.lead(), LEAD);
        let wasted = (1..).find(|_| {
            habit.fetched(32);
            habit.lead() == 0
        });
        assert!(wasted.is_some_and(|times| 32 * times <= FETCHED_MAX / 2), "{wasted:?} directories for nothing");
        (0..10_000).for_each(|_| habit.hits(1));
        habit.fetched(10_000);
        assert!(habit.fetched <= FETCHED_MAX && habit.hits <= habit.fetched, "hits of old are no credit");
    }
}
