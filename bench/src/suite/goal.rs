//! What a figure should be. The numbers are those of the issue that ordered the straight data path, and for a cluster
//! those of the issue that ordered many machines.

/// Bounds of one figure; what is `None` is not asked for.
#[derive(Clone, Copy, Default)]
pub struct Goal {
    /// At least this share of the first target's rate.
    pub ratio_min: Option<f64>,
    /// At least this many operations, or MiB, per second.
    pub rate_min: Option<f64>,
    /// At most this CPU: microseconds per operation, or seconds per GiB.
    pub cpu_max: Option<f64>,
}

/// Transfer sizes from 64 KiB on lie within this share of each other.
pub const SPREAD_MAX: f64 = 0.2;

/// Nothing is asked for: the figure is for information.
pub const NONE: Goal = Goal { ratio_min: None, rate_min: None, cpu_max: None };

/// What is asked of a workload on six hosts of one machine, 4+2, three copies of metadata: so many times what the best
/// peer does on a machine of this size, in MiB or operations per second, and at most this CPU of all processes.
pub fn of_cluster(id: &str) -> Goal {
    let (rate, cpu) = match id {
        "seq-write-direct" => (2.5 * 342.0, Some(1.6)),
        "seq-write" => (2.5 * 342.0, Some(2.4)),
        "seq-read-1" => (1.8 * 625.0, Some(1.8)),
        "seq-read-4" => (1.8 * 521.0, Some(1.8)),
        "rand-read" => (6.0 * 7_391.0, Some(32.0)),
        "rand-write" => (5.0 * 5_946.0, Some(50.0)),
        "fdatasync" => (4.0 * 1_689.0, Some(120.0)),
        "tree-4-create" => (2.0 * 7_063.0, Some(120.0)),
        "tree-4-stat" => (2.0 * 16_889.0, None),
        "tree-4-unlink" => (2.0 * 7_038.0, None),
        "files-create" => (4.0 * 860.0, None),
        "files-read" => (3.0 * 2_146.0, None),
        "files-remove" => (4.0 * 5_000.0 / 0.87, None),
        _ => return NONE,
    };
    Goal { rate_min: Some(rate), cpu_max: cpu, ..NONE }
}

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

    /// For people, rates in `unit`: `≥ 0.55x, CPU ≤ 1.8`.
    pub fn words(&self, unit: &str) -> String {
        let ratio = self.ratio_min.map(|ratio| format!("≥ {ratio:.2}x"));
        let rate = self.rate_min.map(|rate| format!("≥ {rate:.0} {unit}"));
        let cpu = self.cpu_max.map(|cpu| format!("CPU ≤ {cpu}"));
        [ratio, rate, cpu].into_iter().flatten().collect::<Vec<_>>().join(", ")
    }
}

#[cfg(test)]
mod tests {
    use super::{Goal, NONE, of_cluster};

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
        assert_eq!(rate.words("op/s"), "≥ 5000 op/s, CPU ≤ 120");
        assert_eq!(NONE.speed_met(1.0, Some(2.0)), None);
        let cluster = of_cluster("rand-read");
        assert_eq!(cluster.words("op/s"), "≥ 44346 op/s, CPU ≤ 32");
        assert_eq!((cluster.speed_met(44_347.0, None), of_cluster("rand-mix").rate_min), (Some(true), None));
    }
}
