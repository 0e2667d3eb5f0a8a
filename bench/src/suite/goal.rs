//! What a figure should be. The numbers are those of the issue that ordered the straight data path.

/// Bounds of one figure; what is `None` is not asked for.
#[derive(Clone, Copy, Default)]
pub struct Goal {
    /// At least this share of the first target's rate.
    pub ratio_min: Option<f64>,
    /// At least this many operations per second.
    pub rate_min: Option<f64>,
    /// At most this CPU: microseconds per operation, or seconds per GiB.
    pub cpu_max: Option<f64>,
}

/// Transfer sizes from 64 KiB on lie within this share of each other.
pub const SPREAD_MAX: f64 = 0.2;

/// Nothing is asked for: the figure is for information.
pub const NONE: Goal = Goal { ratio_min: None, rate_min: None, cpu_max: None };

impl Goal {
    /// A share of the first target's rate.
    pub const fn ratio(ratio: f64) -> Goal {
        Goal { ratio_min: Some(ratio), ..NONE }
    }

    /// Operations per second.
    pub const fn rate(rate: f64) -> Goal {
        Goal { rate_min: Some(rate), ..NONE }
    }

    /// And at most this CPU.
    pub const fn cpu(self, cpu: f64) -> Goal {
        Goal { cpu_max: Some(cpu), ..self }
    }

    /// Is the speed reached? `None` if no speed is asked for.
    pub fn speed_met(&self, rate: f64, first: Option<f64>) -> Option<bool> {
        self.ratio_wanted(first).map(|wanted| first.is_some_and(|first| rate / first >= wanted)).or_else(|| {
            // Without a first target a rate can still be held against the goal, a ratio cannot.
            self.rate_min.map(|wanted| rate >= wanted)
        })
    }

    /// The goal as a share of the first target's rate, whichever way it is given.
    pub fn ratio_wanted(&self, first: Option<f64>) -> Option<f64> {
        let first = first?;
        self.ratio_min.or_else(|| self.rate_min.map(|rate| rate / first))
    }

    /// Is the CPU within its bound? `None` if none is set or none was measured.
    pub fn cpu_met(&self, cpu: Option<f64>) -> Option<bool> {
        Some(cpu? <= self.cpu_max?)
    }

    /// For people: `≥ 0.55x, CPU ≤ 1.8`.
    pub fn words(&self) -> String {
        let ratio = self.ratio_min.map(|ratio| format!("≥ {ratio:.2}x"));
        let rate = self.rate_min.map(|rate| format!("≥ {rate:.0} op/s"));
        let cpu = self.cpu_max.map(|cpu| format!("CPU ≤ {cpu}"));
        [ratio, rate, cpu].into_iter().flatten().collect::<Vec<_>>().join(", ")
    }
}

#[cfg(test)]
mod tests {
    use super::{Goal, NONE};

    #[test]
    fn ratios_and_rates_are_held_against_the_first_target() {
        let half = Goal::ratio(0.5);
        assert_eq!(half.speed_met(50.0, Some(100.0)), Some(true));
        assert_eq!(half.speed_met(49.0, Some(100.0)), Some(false));
        assert_eq!(half.speed_met(49.0, None), None, "there is nothing to compare with");
        let rate = Goal::rate(5_000.0).cpu(120.0);
        assert_eq!(rate.speed_met(5_001.0, None), Some(true));
        assert_eq!(rate.speed_met(4_999.0, Some(80_000.0)), Some(false));
        assert_eq!(rate.ratio_wanted(Some(10_000.0)), Some(0.5));
        assert_eq!((rate.cpu_met(Some(121.0)), rate.cpu_met(None)), (Some(false), None));
        assert_eq!(rate.words(), "≥ 5000 op/s, CPU ≤ 120");
        assert_eq!(NONE.speed_met(1.0, Some(2.0)), None);
    }
}
