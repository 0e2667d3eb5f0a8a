//! Every figure, beside each other: each workload runs on each target before the next workload starts,
//! so that a busy minute of the machine meets all targets alike.

use crate::arguments::Arguments;
use crate::fio;
use crate::report::{self, Figure, Per, Row};
use crate::target::Target;
use crate::{Outcome, clock, meta, small};
use std::fs;
use std::path::Path;

/// How much work; `--quick` is for trying the program, its figures mean little.
struct Scale {
    sequential_mib: u64,
    random_mib_per_job: u64,
    seconds: u64,
    names: u64,
    small_files: u64,
}

const FULL: Scale =
    Scale { sequential_mib: 2048, random_mib_per_job: 256, seconds: 15, names: 20_000, small_files: 5_000 };
const QUICK: Scale = Scale { sequential_mib: 128, random_mib_per_job: 16, seconds: 2, names: 1_000, small_files: 500 };

/// What a workload did: operations or GiB, and in how many seconds.
struct Done {
    amount: f64,
    seconds: f64,
}

/// Runs all workloads on all targets, prints a table line by line, writes table and JSON into `--out`.
pub fn run(arguments: &Arguments) -> Outcome<()> {
    let scale = if arguments.flag("quick") { QUICK } else { FULL };
    let mut targets = Vec::new();
    if let Some(dir) = arguments.text("ext4") {
        targets.push(Target::folder("ext4", Path::new(dir)));
    }
    if arguments.text("braid").is_some() {
        targets.push(Target::braid(arguments)?);
    }
    let mut suite =
        Suite { names: targets.iter().map(|target| target.name.clone()).collect(), targets, rows: Vec::new() };
    for target in &suite.targets {
        fs::create_dir_all(&target.dir).map_err(|error| format!("{}: {error}", target.dir.display()))?;
    }
    println!("{}", report::head(&suite.names));
    suite.data(&scale)?;
    suite.names(&scale)?;
    suite.small_files(&scale)?;
    suite.write(arguments)
}

struct Suite {
    targets: Vec<Target>,
    names: Vec<String>,
    rows: Vec<Row>,
}

impl Suite {
    fn data(&mut self, scale: &Scale) -> Outcome<()> {
        let sequential = |rw: &str| -> Vec<String> {
            options(&[&format!("--rw={rw}"), "--bs=1m", &format!("--size={}m", scale.sequential_mib), "--end_fsync=1"])
        };
        self.fio("1 MiB sequential write", "seq", Per::Gib, false, &sequential("write"))?;
        self.fio("1 MiB sequential read, cold", "seq", Per::Gib, true, &sequential("read"))?;
        self.each(|target| remove_all(&target.dir, "seq."))?;

        let size = format!("--size={}m", scale.random_mib_per_job);
        let seconds = format!("--runtime={}", scale.seconds);
        let lay = options(&["--rw=write", "--bs=1m", &size, "--numjobs=4", "--end_fsync=1"]);
        self.each(|target| fio::run(&target.dir, "rand", &lay).map(drop))?;
        let random = |rw: &str| -> Vec<String> {
            let how = ["--bs=4k", "--direct=1", "--ioengine=libaio", "--iodepth=16", "--numjobs=4", "--time_based"];
            let rw = format!("--rw={rw}");
            options(&[&how[..], &[&rw, &size, &seconds]].concat())
        };
        self.fio("4 KiB random read, direct 4x16", "rand", Per::Operation, true, &random("randread"))?;
        self.fio("4 KiB random write, direct 4x16", "rand", Per::Operation, false, &random("randwrite"))?;
        self.each(|target| remove_all(&target.dir, "rand."))?;

        let synced = options(&["--rw=randwrite", "--bs=4k", "--size=64m", "--fdatasync=1", "--time_based", &seconds]);
        self.fio("4 KiB write + fdatasync", "sync", Per::Operation, false, &synced)?;
        self.each(|target| remove_all(&target.dir, "sync."))
    }

    fn names(&mut self, scale: &Scale) -> Outcome<()> {
        for procs in [1, 4] {
            self.each(|target| meta::prepare(&target.dir.join("meta"), procs))?;
            for phase in meta::PHASES {
                let title = format!("{phase}, {procs} process{}", if procs == 1 { "" } else { "es" });
                self.measure(&title, Per::Operation, |target| {
                    let seconds = meta::together(&target.dir.join("meta"), phase, scale.names, procs)?;
                    Ok(Done { amount: (scale.names / procs * procs) as f64, seconds })
                })?;
            }
            self.each(|target| meta::clear(&target.dir.join("meta")))?;
        }
        Ok(())
    }

    fn small_files(&mut self, scale: &Scale) -> Outcome<()> {
        for step in small::STEPS {
            if step == "read" {
                self.each(Target::cold)?;
            }
            let title =
                format!("{} small files: {step}{}", scale.small_files, if step == "read" { ", cold" } else { "" });
            self.measure(&title, Per::Operation, |target| {
                let start = clock::seconds();
                small::step(&target.dir.join("small"), step, scale.small_files)?;
                Ok(Done { amount: scale.small_files as f64, seconds: clock::seconds() - start })
            })?;
        }
        Ok(())
    }

    fn fio(&mut self, title: &str, name: &str, per: Per, cold: bool, options: &[String]) -> Outcome<()> {
        if cold {
            self.each(Target::cold)?;
        }
        self.measure(title, per, |target| {
            let moved = fio::run(&target.dir, name, options)?;
            let amount = if per == Per::Gib { moved.bytes / f64::from(1 << 30) } else { moved.operations };
            Ok(Done { amount, seconds: moved.seconds })
        })
    }

    fn each(&mut self, mut action: impl FnMut(&mut Target) -> Outcome<()>) -> Outcome<()> {
        self.targets.iter_mut().try_for_each(|target| {
            let name = target.name.clone();
            action(target).map_err(|error| format!("on {name}: {error}"))
        })
    }

    fn measure(&mut self, title: &str, per: Per, action: impl Fn(&mut Target) -> Outcome<Done>) -> Outcome<()> {
        let mut figures = Vec::new();
        self.each(|target| {
            let before = target.cpu_seconds()?;
            let done = action(target)?;
            let cpu = target.cpu_seconds()? - before;
            figures.push(match per {
                Per::Gib => Figure { rate: done.amount * 1024.0 / done.seconds, cpu: cpu / done.amount },
                Per::Operation => Figure { rate: done.amount / done.seconds, cpu: cpu * 1e6 / done.amount },
            });
            Ok(())
        })?;
        let row = Row { workload: title.to_owned(), per, figures };
        println!("{}", report::line(&row));
        self.rows.push(row);
        Ok(())
    }

    fn write(&self, arguments: &Arguments) -> Outcome<()> {
        let out = arguments.path("out")?;
        let commit = arguments.text("commit").unwrap_or("unknown");
        let date = arguments.text("date").unwrap_or("unknown");
        let kernel = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
        let cpus = std::thread::available_parallelism().map_or(0, usize::from);
        let value = serde_json::json!({
            "commit": commit,
            "date": date,
            "kernel": kernel.trim(),
            "cpus": cpus,
            "quick": arguments.flag("quick"),
            "rows": report::json(&self.names, &self.rows),
        });
        let lines: Vec<String> = self.rows.iter().map(report::line).collect();
        let table = format!(
            "commit {commit}, {date}, {cpus} CPUs, Linux {}\n\n{}\n{}\n",
            kernel.trim(),
            report::head(&self.names),
            lines.join("\n")
        );
        fs::create_dir_all(&out).map_err(|error| format!("{}: {error}", out.display()))?;
        for (ending, text) in [("json", format!("{value:#}\n")), ("txt", table)] {
            let path = out.join(format!("{date}-{commit}.{ending}"));
            fs::write(&path, text).map_err(|error| format!("{}: {error}", path.display()))?;
            println!("written: {}", path.display());
        }
        Ok(())
    }
}

fn options(words: &[&str]) -> Vec<String> {
    words.iter().map(|word| (*word).to_owned()).collect()
}

fn remove_all(dir: &Path, start: &str) -> Outcome<()> {
    let say = |error: std::io::Error| format!("{}: {error}", dir.display());
    for entry in fs::read_dir(dir).map_err(say)? {
        let entry = entry.map_err(say)?;
        if entry.file_name().to_string_lossy().starts_with(start) {
            fs::remove_file(entry.path()).map_err(say)?;
        }
    }
    Ok(())
}
