//! One workload: what it did on each target in each round, and the medians.

use super::goal::Goal;
use crate::Outcome;
use crate::target::Usage;

/// What a rate counts and the CPU time is divided by.
#[derive(Clone, Copy, PartialEq)]
pub enum Per {
    /// Operations per second; CPU microseconds per operation.
    Operation,
    /// MiB per second; CPU seconds per GiB.
    Gib,
}

/// One run of a workload on one target.
#[derive(Clone)]
pub struct Sample {
    /// Operations per second, or MiB per second.
    pub rate: f64,
    /// CPU of the whole machine above its idle load, per operation or GiB. `None`: too short to tell.
    pub cpu: Option<f64>,
    /// CPU of the client program and the servers alone, by process. Empty: too short to tell.
    pub cpu_by_process: Usage,
    /// CPU of the whole machine after the end, until the server had nothing left to move.
    pub cpu_after: Option<f64>,
}

/// A workload that is about to run.
#[derive(Clone, Copy)]
pub struct Task<'a> {
    /// Its name in the JSON; unique.
    pub id: &'a str,
    /// Its name for people.
    pub title: &'a str,
    /// Which units.
    pub per: Per,
    /// What is asked for.
    pub goal: Goal,
    /// Drop every cache before.
    pub cold: bool,
    /// Wait afterwards until the server is at rest, and count the CPU of that.
    pub settles: bool,
}

/// A workload and all its figures.
pub struct Row {
    /// As in [`Task`].
    pub id: String,
    /// As in [`Task`].
    pub title: String,
    /// As in [`Task`].
    pub per: Per,
    /// As in [`Task`].
    pub goal: Goal,
    /// By target, then by round. An error is a workload that did not come through.
    pub samples: Vec<Vec<Outcome<Sample>>>,
}

impl Sample {
    /// CPU of the client program and the servers alone.
    pub fn cpu_own(&self) -> Option<f64> {
        (!self.cpu_by_process.is_empty()).then(|| self.cpu_by_process.values().sum())
    }
}

impl Row {
    /// A row without figures.
    pub fn new(task: &Task, targets: usize) -> Row {
        let samples = vec![Vec::new(); targets];
        Row { id: task.id.to_owned(), title: task.title.to_owned(), per: task.per, goal: task.goal, samples }
    }

    /// The median rate on a target.
    pub fn rate(&self, target: usize) -> Option<f64> {
        median(self.good(target).map(|sample| sample.rate))
    }

    /// Every rate on a target, in the order of the rounds.
    pub fn rates(&self, target: usize) -> Vec<f64> {
        self.good(target).map(|sample| sample.rate).collect()
    }

    /// The median of one of the CPU figures on a target.
    pub fn cpu(&self, target: usize, which: fn(&Sample) -> Option<f64>) -> Option<f64> {
        median(self.good(target).filter_map(which))
    }

    /// The medians of the CPU by process on a target.
    pub fn cpu_by_process(&self, target: usize) -> Usage {
        let names = self.good(target).flat_map(|sample| sample.cpu_by_process.keys().cloned());
        let of = |name: String| {
            let cpu = median(self.good(target).filter_map(|sample| sample.cpu_by_process.get(&name).copied()));
            Some((name, cpu?))
        };
        names.filter_map(of).collect()
    }

    /// The median rate on a target as a share of that on the first.
    pub fn ratio(&self, target: usize) -> Option<f64> {
        Some(self.rate(target)? / self.rate(0)?)
    }

    /// The first error on a target.
    pub fn error(&self, target: usize) -> Option<&str> {
        self.samples.get(target)?.iter().find_map(|sample| sample.as_ref().err()).map(String::as_str)
    }

    fn good(&self, target: usize) -> impl Iterator<Item = &Sample> {
        self.samples.get(target).into_iter().flatten().filter_map(|sample| sample.as_ref().ok())
    }
}

impl Per {
    /// The unit of a rate.
    pub fn rate_unit(self) -> &'static str {
        if self == Per::Gib { "MiB/s" } else { "op/s" }
    }

    /// The unit of a CPU figure.
    pub fn cpu_unit(self) -> &'static str {
        if self == Per::Gib { "s/GiB" } else { "us/op" }
    }

    /// Seconds of CPU for `amount` operations or GiB, in that unit.
    pub fn cpu(self, seconds: f64, amount: f64) -> f64 {
        if self == Per::Gib { seconds / amount } else { seconds * 1e6 / amount }
    }

    /// `amount` operations or GiB in `seconds`, in the unit of a rate.
    pub fn rate(self, amount: f64, seconds: f64) -> f64 {
        if self == Per::Gib { amount * 1024.0 / seconds } else { amount / seconds }
    }
}

/// The middle one; of an even number the mean of the two.
fn median(values: impl Iterator<Item = f64>) -> Option<f64> {
    let mut values: Vec<f64> = values.collect();
    values.sort_by(f64::total_cmp);
    let (low, high) = (values.get(values.len().checked_sub(1)? / 2)?, values.get(values.len() / 2)?);
    Some((low + high) / 2.0)
}

#[cfg(test)]
mod tests {
    use super::{Per, median};

    #[test]
    fn medians_and_units() {
        assert_eq!(median([3.0, 1.0, 2.0].into_iter()), Some(2.0));
        assert_eq!(median([4.0, 1.0, 2.0, 3.0].into_iter()), Some(2.5));
        assert_eq!(median([].into_iter()), None);
        assert_eq!((Per::Gib.rate(2.0, 4.0), Per::Gib.cpu(4.0, 2.0)), (512.0, 2.0));
        assert_eq!((Per::Operation.rate(100.0, 4.0), Per::Operation.cpu(1.0, 100.0)), (25.0, 10_000.0));
    }
}
