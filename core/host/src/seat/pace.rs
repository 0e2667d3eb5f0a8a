//! When a group of entries is written: at once, or a moment later with more in it.
//!
//! A group costs each member a write, a flush and some messages, however many entries it has. Those who wait for one
//! group send their next requests when it is committed, just after the next group began without them: so they go in two
//! halves for ever, each of which waits for the other. A primary therefore lets a group wait for those who will be back,
//! until about as many wait as did lately, but no longer than a group takes, which is what they would wait without it.
//! If that was in vain, the next groups do not wait, twice as many each time.
//!
//! Only groups with small writes wait: there is a program behind each. Names that were promised, and the places of what
//! lies on flash already, come in bursts of a client that has more under way; a wait would only delay the last of them.

/// Longest wait, microseconds: a stalled disk or member is not to set the pace.
const WAIT_MAX_US: u64 = 500;
/// Most groups that begin at once after waits that were in vain.
const AT_ONCE_MAX: u32 = 256;
/// `most` counts in parts of this.
const PARTS: usize = 16;
/// With more than this a group is no longer one of small writes, bytes.
const BYTES_MAX: usize = 256 << 10;

/// How many wait for groups, and how long those take.
#[derive(Debug, Default)]
pub(super) struct Pace {
    /// How many waited at the same time of late, in parts.
    most: usize,
    /// How many waited when the newest group began, for it and those before it.
    under_way: usize,
    /// When the newest group began, microseconds, until it is known how long it took.
    begun_us: Option<u64>,
    /// How long groups take, from their begin until they are committed: the mean of the last ones, microseconds.
    takes_us: u64,
    /// Since when a group waits, microseconds, and how many waited for it then.
    since: Option<(u64, usize)>,
    /// So many groups begin at once.
    at_once: u32,
    /// So many did after the last wait, which was in vain.
    vain: u32,
}

/// What a group that could begin now has.
#[derive(Clone, Copy, Debug)]
pub(super) struct Gathered {
    /// Requests that wait for entries, be they written or not.
    pub(super) awaited: usize,
    /// All that was written is committed, so they all wait for this group.
    pub(super) is_settled: bool,
    /// Bytes of payload.
    pub(super) bytes: usize,
}

impl Gathered {
    fn has_small_writes(self) -> bool {
        (1..=BYTES_MAX).contains(&self.bytes)
    }
}

impl Pace {
    /// All that was written is committed.
    pub(super) fn settled(&mut self, now_us: u64) {
        if let Some(begun_us) = self.begun_us.take() {
            let took_us = now_us.saturating_sub(begun_us).min(WAIT_MAX_US);
            self.takes_us = if self.takes_us == 0 { took_us } else { (self.takes_us * 7 + took_us) / 8 };
        }
    }

    /// `None` if the group is to begin now; else until when it waits at most, microseconds.
    pub(super) fn holds(&mut self, now_us: u64, gathered: Gathered) -> Option<u64> {
        if !gathered.has_small_writes() {
            return None;
        }
        self.most = self.most.max(gathered.awaited * PARTS);
        if self.are_back(gathered) || self.at_once > 0 {
            return None;
        }
        let own = self.own(gathered);
        let (since_us, _) = *self.since.get_or_insert((now_us, own));
        let until_us = since_us + self.takes_us;
        (now_us < until_us).then_some(until_us)
    }

    /// The group begins.
    pub(super) fn begins(&mut self, now_us: u64, gathered: Gathered) {
        if gathered.has_small_writes() {
            self.learns(gathered);
        }
        (self.since, self.under_way, self.begun_us) = (None, gathered.awaited, Some(now_us));
    }

    /// What a group of small writes tells those that follow.
    fn learns(&mut self, gathered: Gathered) {
        self.at_once = self.at_once.saturating_sub(1);
        if let Some((_, before)) = self.since {
            let own = self.own(gathered);
            if self.are_back(gathered) || (own > before && own * 2 >= before * 3) {
                self.vain = 0;
            } else if own == before || own * 4 < before * 5 {
                self.vain = (self.vain * 2 + 1).min(AT_ONCE_MAX);
                self.at_once = self.vain;
            }
        }
        self.most -= self.most.saturating_sub(gathered.awaited * PARTS).div_ceil(PARTS);
    }

    /// About as many wait for this group as waited at the same time of late.
    fn are_back(&self, gathered: Gathered) -> bool {
        gathered.is_settled && gathered.awaited * PARTS * 8 >= self.most * 7
    }

    /// How many wait for this group.
    fn own(&self, gathered: Gathered) -> usize {
        gathered.awaited.saturating_sub(if gathered.is_settled { 0 } else { self.under_way })
    }
}

#[cfg(test)]
mod tests {
    use super::{Gathered, Pace};

    /// How long a group takes in these tests, microseconds.
    const TAKES_US: u64 = 200;

    fn waits(awaited: usize, is_settled: bool) -> Gathered {
        Gathered { awaited, is_settled, bytes: 4096 }
    }

    /// A partition's pace after some groups of `awaited` each, one after the other.
    fn used_to(awaited: usize, now_us: &mut u64) -> Pace {
        let mut pace = Pace::default();
        for _ in 0..20 {
            pace.begins(*now_us, waits(awaited, true));
            *now_us += TAKES_US;
            pace.settled(*now_us);
            assert_eq!(pace.holds(*now_us, waits(awaited, true)), None, "all are back at once");
        }
        pace
    }

    #[test]
    fn one_after_the_other_never_waits() {
        used_to(1, &mut 0);
    }

    #[test]
    fn two_halves_become_one() {
        let mut now_us = 0;
        let mut pace = used_to(1, &mut now_us);
        // Two wait for the group under way, and two came since.
        pace.begins(now_us, waits(2, true));
        now_us += TAKES_US;
        let until_us = pace.holds(now_us, waits(4, false)).expect("the other two will be back");
        assert!(until_us > now_us && until_us <= now_us + TAKES_US, "{until_us} at {now_us}");
        pace.settled(now_us + 10);
        assert!(pace.holds(now_us + 10, waits(2, true)).is_some(), "they had their answers just now");
        assert_eq!(pace.holds(now_us + 50, waits(4, true)), None, "all four are there");
        pace.begins(now_us + 50, waits(4, true));
        assert_eq!((pace.vain, pace.at_once), (0, 0));
    }

    #[test]
    fn who_does_not_come_back_is_waited_for_seldom() {
        let mut now_us = 0;
        let mut pace = used_to(8, &mut now_us);
        let (mut held, mut groups) = (0, 0);
        while groups < 1000 {
            // Alone from now on, but for one more with every tenth group.
            let awaited = 1 + usize::from(groups % 10 == 0);
            while let Some(until_us) = pace.holds(now_us, waits(awaited, true)) {
                assert!(until_us > now_us, "it waits for a moment that is over");
                (held, now_us) = (held + 1, until_us);
            }
            pace.begins(now_us, waits(awaited, true));
            now_us += TAKES_US;
            pace.settled(now_us);
            groups += 1;
        }
        assert!((1..=12).contains(&held), "{held} of {groups} groups waited");
    }

    #[test]
    fn nothing_waits_longer_than_a_group_takes() {
        let mut now_us = 0;
        let mut pace = used_to(8, &mut now_us);
        pace.begins(now_us, waits(8, true));
        // One of the members does not answer.
        let until_us = pace.holds(now_us, waits(9, false)).expect("eight are on their way");
        assert_eq!(pace.holds(until_us - 1, waits(12, false)), Some(until_us), "the first one counts");
        assert_eq!(pace.holds(until_us, waits(12, false)), None);
        assert!(until_us <= now_us + TAKES_US);
    }

    #[test]
    fn what_nobody_waits_for_is_held_seldom_too() {
        let mut now_us = 0;
        let mut pace = used_to(8, &mut now_us);
        let mut held = 0;
        for _ in 0..1000 {
            pace.begins(now_us, waits(8, true));
            // Something that nobody waits for is there before those are answered.
            if let Some(until_us) = pace.holds(now_us + 1, waits(8, false)) {
                (held, now_us) = (held + 1, until_us);
                assert_eq!(pace.holds(now_us, waits(8, false)), None);
            }
            pace.begins(now_us, waits(8, false));
            now_us += TAKES_US;
            pace.settled(now_us);
        }
        assert!((1..=20).contains(&held), "{held} of 2000 groups waited");
    }

    #[test]
    fn only_small_writes_wait() {
        let mut now_us = 0;
        let mut pace = used_to(8, &mut now_us);
        assert!(pace.holds(now_us, waits(1, true)).is_some());
        assert_eq!(pace.holds(now_us, Gathered { bytes: 1 << 20, ..waits(1, true) }), None);
        assert_eq!(pace.holds(now_us, Gathered { bytes: 0, ..waits(1, true) }), None);
    }
}
