//! Every figure, beside each other: each workload runs on each target before the next workload starts,
//! so that a busy minute of the machine meets all targets alike. Every round does it again, the other way round.

mod data;
mod first;
mod goal;
mod picture;
mod readme;
mod report;
mod row;
mod trees;

use crate::arguments::Arguments;
use crate::target::{Target, Usage};
use crate::{Outcome, clock};
use row::{Row, Sample, Task};
use std::fs;
use std::path::{Path, PathBuf};

/// How much work; `--quick` is for trying the program, its figures mean little.
struct Scale {
    sequential_mib: u64,
    random_mib_per_job: u64,
    seconds: u64,
    long_mib: u64,
    cat_mib: u64,
    names: u64,
    small_files: u64,
    /// Of each of six drive files: with what lies on ext4 beside it, a run never takes more than 12 GiB.
    drive: &'static str,
}

const FULL: Scale = Scale {
    sequential_mib: 2048,
    random_mib_per_job: 256,
    seconds: 10,
    long_mib: 1024,
    cat_mib: 3072,
    names: 10_000,
    small_files: 5_000,
    drive: "1408MiB",
};
const QUICK: Scale = Scale {
    sequential_mib: 128,
    random_mib_per_job: 16,
    seconds: 2,
    long_mib: 64,
    cat_mib: 128,
    names: 1_000,
    small_files: 500,
    drive: "256MiB",
};

/// A name for `--only`, and the workloads.
type Group = (&'static str, fn(&mut Suite) -> Outcome<()>);

/// What belongs together because it uses the same files.
const GROUPS: [Group; 9] = [
    ("sequential", data::sequential),
    ("random", data::random),
    ("durable", data::durable),
    ("deep", data::deep),
    ("sizes", data::sizes),
    ("first", first::run),
    ("tree1", trees::alone),
    ("tree4", trees::together),
    ("files", trees::files),
];

/// A shorter run says nothing about CPU: the kernel counts in hundredths of a second.
const CPU_SECONDS_MIN: f64 = 0.15;
/// How long the idle load of the machine is looked at.
const IDLE_MS: u64 = 3_000;

/// What a workload did: operations or GiB, and in how many seconds.
struct Done {
    amount: f64,
    seconds: f64,
}

struct Suite {
    scale: Scale,
    targets: Vec<Target>,
    rows: Vec<Row>,
    round: u64,
    /// The goals are those of a cluster.
    is_cluster: bool,
    /// Cores that are busy although nothing is measured.
    idle_cores: f64,
}

/// Runs the chosen workloads on all targets, prints every figure as it comes, and writes the medians as JSON,
/// table and picture into `--out`.
pub fn run(arguments: &Arguments) -> Outcome<()> {
    let quick = arguments.flag("quick");
    let rounds = arguments.number("rounds", if quick { 1 } else { 3 })?;
    let chosen = chosen(arguments)?;
    let scale = if quick { QUICK } else { FULL };
    let targets = targets(arguments, &scale)?;
    let is_cluster = match arguments.text("goals") {
        None => false,
        Some("cluster") => true,
        Some(other) => return Err(format!("no goals named '{other}'; there are: cluster")),
    };
    let mut suite = Suite { scale, targets, rows: Vec::new(), round: 0, is_cluster, idle_cores: 0.0 };
    for target in &suite.targets {
        fs::create_dir_all(&target.dir).map_err(|error| format!("{}: {error}", target.dir.display()))?;
    }
    suite.look_at_idle()?;
    let mut failures = Vec::new();
    for round in 0..rounds {
        suite.round = round;
        for (name, group) in GROUPS.iter().filter(|(name, _)| chosen.contains(name)) {
            println!("round {} of {rounds}: {name}", round + 1);
            if let Err(error) = group(&mut suite) {
                println!("  FAILED {name}: {error}");
                failures.push(format!("{name}: {error}"));
            }
        }
    }
    let whole = chosen.len() == GROUPS.len() && !quick;
    report::write(&suite, arguments, rounds, &failures, whole)?;
    for target in &suite.targets {
        fs::remove_dir_all(&target.dir).map_err(|error| format!("{}: {error}", target.dir.display()))?;
    }
    let errors = suite.rows.iter().flat_map(|row| (0..suite.targets.len()).filter_map(|target| row.error(target)));
    match failures.len() + errors.count() {
        0 => Ok(()),
        count => Err(format!("{count} workloads did not come through; their lines above say why")),
    }
}

/// The groups that `--only` names, or all.
fn chosen(arguments: &Arguments) -> Outcome<Vec<&'static str>> {
    let words: Vec<&str> =
        arguments.text("only").into_iter().chain(arguments.bare.iter().map(String::as_str)).collect();
    let all = || GROUPS.iter().map(|(name, _)| *name);
    if let Some(word) = words.iter().find(|word| !all().any(|name| name == **word)) {
        return Err(format!("no group named '{word}'; there are: {}", all().collect::<Vec<_>>().join(" ")));
    }
    Ok(all().filter(|name| words.is_empty() || words.contains(name)).collect())
}

/// The first is what the others are held against.
fn targets(arguments: &Arguments, scale: &Scale) -> Outcome<Vec<Target>> {
    let own = |name: &str, dir: &str, cold: Option<&str>, pids: Option<&str>| {
        Target::folder(name, &Path::new(dir).join(format!("braid-bench-{}", std::process::id())), cold, pids)
    };
    let mut targets = Vec::new();
    if let Some(dir) = arguments.text("base") {
        targets.push(own(arguments.text("base-name").unwrap_or("base"), dir, None, None));
    }
    if let Some(dir) = arguments.text("dir") {
        let (cold, pids) = (arguments.text("cold-command"), arguments.text("pids"));
        targets.push(own(arguments.text("name").unwrap_or("folder"), dir, cold, pids));
    }
    if let Some(program) = arguments.text("compare") {
        let name = arguments.text("compare-name").unwrap_or("before");
        targets.push(Target::braid(arguments, name, program, "-before", scale.drive)?);
    }
    if let Some(program) = arguments.text("braid") {
        targets.push(Target::braid(arguments, "braid", program, "", scale.drive)?);
    }
    if targets.is_empty() { Err("nothing to measure: --base, --dir or --braid".to_owned()) } else { Ok(targets) }
}

impl Suite {
    fn names(&self) -> Vec<&str> {
        self.targets.iter().map(|target| target.name.as_str()).collect()
    }

    fn look_at_idle(&mut self) -> Outcome<()> {
        let (start, before) = (clock::seconds(), clock::busy_seconds()?);
        clock::wait(IDLE_MS);
        self.idle_cores = (clock::busy_seconds()? - before) / (clock::seconds() - start);
        println!("idle load: {:.2} cores", self.idle_cores);
        Ok(())
    }

    /// Preparations: an error on any target ends the group.
    fn each(&mut self, mut action: impl FnMut(&mut Target) -> Outcome<()>) -> Outcome<()> {
        self.targets.iter_mut().try_for_each(|target| {
            let name = target.name.clone();
            action(target).map_err(|error| format!("on {name}: {error}"))
        })
    }

    /// Runs a workload on each target.
    fn measure(&mut self, task: Task, action: impl Fn(&mut Target) -> Outcome<Done>) -> Outcome<()> {
        self.in_turn(&[task], action)
    }

    /// Runs the same work once for each task on one target, then on the next: nothing of another target comes
    /// between two tasks. An error is kept in its row and does not keep the other targets from the work.
    fn in_turn(&mut self, tasks: &[Task], action: impl Fn(&mut Target) -> Outcome<Done>) -> Outcome<()> {
        let count = self.targets.len();
        for task in tasks {
            if !self.rows.iter().any(|row| row.id == task.id) {
                let goal = if self.is_cluster { goal::of_cluster(task.id) } else { task.goal };
                self.rows.push(Row::new(&Task { goal, ..*task }, count));
            }
        }
        for place in 0..count {
            let target = if self.round.is_multiple_of(2) { place } else { count - 1 - place };
            for task in tasks {
                let sample = self.one(task, target, &action);
                self.keep(task, target, sample);
            }
        }
        Ok(())
    }

    fn keep(&mut self, task: &Task, target: usize, sample: Outcome<Sample>) {
        let figure = match &sample {
            Ok(sample) => format!("{:>10.1} {}", sample.rate, task.per.rate_unit()),
            Err(error) => format!("FAILED: {error}"),
        };
        println!("  {:<48} {:<8} {figure}", task.title, self.targets[target].name);
        if let Some(row) = self.rows.iter_mut().find(|row| row.id == task.id) {
            row.samples[target].push(sample);
        }
    }

    fn one(&mut self, task: &Task, target: usize, action: impl Fn(&mut Target) -> Outcome<Done>) -> Outcome<Sample> {
        let idle = self.idle_cores;
        let target = &mut self.targets[target];
        if task.cold {
            target.cold()?;
        }
        let (start, busy, own) = (clock::seconds(), clock::busy_seconds()?, target.cpu_seconds()?);
        let done = action(target)?;
        let (end, busy_end, own_end) = (clock::seconds(), clock::busy_seconds()?, target.cpu_seconds()?);
        let above_idle = |busy: f64, seconds: f64| task.per.cpu((busy - idle * seconds).max(0.0), done.amount);
        let long = end - start >= CPU_SECONDS_MIN;
        // A process that was not there before has used nothing before.
        let used = |(name, seconds): (String, f64)| {
            let before = own.get(&name).copied().unwrap_or_default();
            (name, task.per.cpu(seconds - before, done.amount))
        };
        let cpu_by_process = if long { own_end.into_iter().map(used).collect() } else { Usage::new() };
        let mut cpu_after = None;
        if task.settles && target.is_served() {
            target.settle()?;
            let after = above_idle(clock::busy_seconds()? - busy_end, clock::seconds() - end);
            cpu_after = long.then_some(after);
        }
        Ok(Sample {
            rate: task.per.rate(done.amount, done.seconds),
            cpu: long.then(|| above_idle(busy_end - busy, end - start)),
            cpu_by_process,
            cpu_after,
        })
    }

    /// Where results go: `--out`.
    fn out(arguments: &Arguments) -> Outcome<PathBuf> {
        let out = arguments.path("out")?;
        fs::create_dir_all(&out).map_err(|error| format!("{}: {error}", out.display()))?;
        Ok(out)
    }
}
