//! Whether the drive can be trusted with new data: judged by what its requests met, not by what it says of itself.
//!
//! 1. A write or sync that failed, or any request that takes longer than [`DRIVE_SLOW_MS`], is trouble. One that takes
//!    longer than [`DRIVE_HUNG_MS`] is as bad as one that failed.
//! 2. While there is trouble, and after a read that failed, each look (`DriveOp::Stat`) begins a probe: the second
//!    superblock is written once more, as it is, and read back. Nothing else may reach the drive meanwhile, because
//!    others see the trouble and use other drives.
//! 3. It is over when nothing bad was met for a while, and at least one probe went well since. The while is longer each
//!    time, so that a drive that falters now and then does not take part for half of the time.

use braid_base::ErrorKind;
use braid_base::limits::{DRIVE_CALM_MS, DRIVE_CALM_MS_MAX, DRIVE_HUNG_MS, DRIVE_SLOW_MS};
use braid_base::msg::drive::Trouble;

/// Trouble that comes back within this is the same one, milliseconds.
const RELAPSE_MS: u64 = 600_000;
/// Probes begin not more often than this, milliseconds.
const PROBE_MS: u64 = 1_000;

/// What is known.
#[derive(Default)]
pub(super) struct Health {
    trouble: Option<Trouble>,
    /// When something bad was last met.
    bad_ms: u64,
    /// How long nothing bad must be met.
    calm_ms: u64,
    /// When the last trouble was over.
    over_ms: Option<u64>,
    /// A read failed, and no probe has said yet whether it was that block or the drive.
    in_doubt: bool,
    /// When the last probe began, and whether it is under way.
    probe: (Option<u64>, bool),
    /// A probe went well after whatever was bad last.
    proved: bool,
}

impl Health {
    /// What others are told.
    pub fn trouble(&self) -> Option<Trouble> {
        self.trouble
    }

    /// A request that took `took_ms` ended.
    pub fn ended(&mut self, now_ms: u64, took_ms: u64, error: Option<ErrorKind>, wrote: bool) {
        match error {
            Some(ErrorKind::NoSpace) if wrote => self.bad(now_ms, Trouble::Full),
            Some(_) if wrote => self.bad(now_ms, Trouble::Failing),
            // One bad block is no reason to give the drive up.
            Some(_) => self.in_doubt = true,
            None => self.waited(now_ms, took_ms),
        }
    }

    /// A request has been under way for so long.
    pub fn waited(&mut self, now_ms: u64, ms: u64) {
        if ms >= DRIVE_HUNG_MS {
            self.bad(now_ms, Trouble::Failing);
        } else if ms >= DRIVE_SLOW_MS {
            // What fails is slow at times, too; the worse word stays.
            let word = self.trouble.filter(|_| now_ms < self.bad_ms + self.calm_ms);
            self.bad(now_ms, word.unwrap_or(Trouble::Slow));
        }
    }

    /// Somebody looks; true if a probe is to begin.
    pub fn look(&mut self, now_ms: u64) -> bool {
        if self.trouble.is_some() && self.proved && now_ms >= self.bad_ms + self.calm_ms {
            self.trouble = None;
            self.over_ms = Some(now_ms);
        }
        let (last, under_way) = self.probe;
        let due = !under_way && last.is_none_or(|last| now_ms >= last + PROBE_MS);
        let wanted = due && (self.trouble.is_some() || self.in_doubt);
        if wanted {
            self.probe = (Some(now_ms), true);
        }
        wanted
    }

    /// The probe ended; what it met was told before.
    pub fn probed(&mut self, now_ms: u64, well: bool) {
        self.probe.1 = false;
        self.in_doubt = false;
        if !well {
            self.bad(now_ms, self.trouble.unwrap_or(Trouble::Failing));
        } else if self.bad_ms < now_ms {
            self.proved = true;
        }
    }

    fn bad(&mut self, now_ms: u64, what: Trouble) {
        if self.trouble.is_none() {
            let relapse = self.over_ms.is_some_and(|over| now_ms < over + RELAPSE_MS);
            self.calm_ms = if relapse { (2 * self.calm_ms).min(DRIVE_CALM_MS_MAX) } else { DRIVE_CALM_MS };
        }
        self.trouble = Some(what);
        self.bad_ms = now_ms;
        self.proved = false;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Looks each second from `from` on; when the trouble is over. Probes end well at once.
    fn calm_at(health: &mut Health, from: u64) -> u64 {
        let mut now = from;
        while health.trouble().is_some() {
            now += 1_000;
            if health.look(now) {
                health.probed(now, true);
            }
            assert!(now < from + 2 * DRIVE_CALM_MS_MAX, "it never ends");
        }
        now - from
    }

    #[test]
    fn trouble_ends_when_a_probe_went_well_and_lasts_longer_each_time() {
        let mut health = Health::default();
        health.ended(10, DRIVE_SLOW_MS - 1, None, true);
        assert_eq!((health.trouble(), health.look(10)), (None, false), "a healthy drive is not probed");
        let (mut now, mut last) = (1_000, 0);
        for round in 0..8 {
            health.ended(now, 1, Some(ErrorKind::Io), true);
            assert_eq!(health.trouble(), Some(Trouble::Failing));
            let calm = calm_at(&mut health, now);
            assert!(calm >= (2 * last).clamp(DRIVE_CALM_MS, DRIVE_CALM_MS_MAX), "round {round}: {calm} after {last}");
            assert!(calm <= DRIVE_CALM_MS_MAX + 1_000);
            (now, last) = (now + calm, calm / 1_000 * 1_000);
        }
        now += RELAPSE_MS;
        health.ended(now, DRIVE_SLOW_MS, None, false);
        assert_eq!(health.trouble(), Some(Trouble::Slow));
        assert!(calm_at(&mut health, now) <= DRIVE_CALM_MS + 1_000, "long ago is forgotten");
    }

    #[test]
    fn it_stays_in_trouble_while_probes_go_wrong() {
        let mut health = Health::default();
        health.waited(0, DRIVE_SLOW_MS);
        assert!(health.look(1) && !health.look(5_000), "one probe at a time");
        // A probe of 5 s, and another.
        for at in [5_001, 10_003] {
            health.ended(at, 5_000, None, true);
            health.probed(at, true);
            assert_eq!(health.trouble(), Some(Trouble::Slow));
            assert!(health.look(at + 2));
        }
        assert!(!health.look(10_003 + 2 * DRIVE_CALM_MS), "the third never ends");
        assert_eq!(health.trouble(), Some(Trouble::Slow));
        health.waited(80_000, DRIVE_HUNG_MS - 1);
        assert_eq!(health.trouble(), Some(Trouble::Slow));
        health.waited(80_001, DRIVE_HUNG_MS);
        assert_eq!(health.trouble(), Some(Trouble::Failing), "it counts as one that fails");
        // It ends after all.
        health.ended(90_000, 80_000, None, true);
        health.probed(90_000, true);
        assert_eq!(health.trouble(), Some(Trouble::Failing));
        assert!(calm_at(&mut health, 90_000) <= DRIVE_CALM_MS + 1_000);
    }

    #[test]
    fn a_bad_block_is_no_trouble_unless_the_probe_fails_as_well() {
        let mut health = Health::default();
        health.ended(0, 1, Some(ErrorKind::Io), false);
        assert_eq!(health.trouble(), None);
        assert!(health.look(1));
        health.probed(2, true);
        assert!(health.trouble().is_none() && !health.look(2_000));
        health.ended(3_000, 1, Some(ErrorKind::Io), false);
        assert!(health.look(3_000));
        health.probed(3_001, false);
        assert_eq!(health.trouble(), Some(Trouble::Failing));
        health.ended(3_002, 1, Some(ErrorKind::NoSpace), true);
        health.waited(3_003, DRIVE_SLOW_MS);
        assert_eq!(health.trouble(), Some(Trouble::Full), "the word for the cause stays");
    }
}
