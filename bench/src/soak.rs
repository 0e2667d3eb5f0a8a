//! Hours of the worst that a database does: 4 KiB overwritten at random places of one file, on a full cluster.
//!
//! Each thread owns a stripe of the file and remembers for every block which write was the last; when time is
//! up every block is read and compared. Per minute: speed, bytes that the server wrote for each byte written
//! (`/proc/PID/io`: logs, drives and index together), and its memory.

mod load;

use crate::arguments::Arguments;
use crate::{Outcome, clock};
use load::{BLOCK, Load};
use std::fs;
use std::sync::atomic::Ordering;

/// Limits that the issue sets.
const LAST_SHARE_MIN: f64 = 0.5;
const AMPLIFICATION_MAX: f64 = 4.0;
/// Memory at the end: not much above that of the first minutes, and never above what the tests allow a server.
const MEMORY_GROWTH_MAX: f64 = 1.25;
const MEMORY_SLACK_MIB: f64 = 64.0;
const MEMORY_MIB_MAX: f64 = 1536.0;

/// What one minute showed.
#[derive(Clone, Copy, Default)]
struct Minute {
    writes_per_s: f64,
    /// Bytes the server wrote for each byte written to it.
    amplification: f64,
    memory_mib: f64,
}

/// Fills the file system of `--dir` to `--percent`, overwrites for `--minutes`, and judges.
pub fn run(arguments: &Arguments) -> Outcome<()> {
    let (dir, pid) = (arguments.path("dir")?, arguments.number("pid", 0)?);
    let (mib, percent) = (arguments.number("mib", 2048)?, arguments.number("percent", 80)?);
    let (minutes, threads) = (arguments.number("minutes", 30)?.max(1), arguments.number("threads", 16)?.max(1));
    // A minute may be made shorter, to try the program.
    let seconds = arguments.number("minute-seconds", 60)?;
    fs::create_dir_all(&dir).map_err(|error| format!("{}: {error}", dir.display()))?;
    let path = dir.join("soak");
    load::lay(&path, mib * 256)?;
    load::fill(&dir, percent)?;
    rustix::fs::sync();

    let blocks = mib * 256 / threads;
    let load = Load::new(&path, blocks);
    let mut shown = Vec::new();
    let results: Vec<Outcome<()>> = std::thread::scope(|scope| {
        let load = &load;
        let workers: Vec<_> = (0..threads).map(|rank| scope.spawn(move || load.work(rank))).collect();
        let watched = watch(load, pid, minutes, seconds, &mut shown);
        load.stop.store(true, Ordering::Relaxed);
        let ended = workers.into_iter().map(|worker| worker.join().unwrap_or(Err("a worker panicked".to_owned())));
        ended.chain([watched]).collect()
    });
    results.into_iter().collect::<Outcome<()>>()?;
    println!("every block reads as it was written last");
    judge(&shown)
}

/// Prints a line per minute until time is up or a worker met an error.
fn watch(load: &Load, pid: u64, minutes: u64, seconds: u64, shown: &mut Vec<Minute>) -> Outcome<()> {
    println!("minute   writes/s    MiB/s   written per byte   memory MiB");
    let (mut before, mut start) = ((0, server_written(pid)?), clock::seconds());
    for minute in 1..=minutes {
        while clock::seconds() - start < seconds as f64 {
            if load.stop.load(Ordering::Relaxed) {
                return Ok(());
            }
            clock::wait(50);
        }
        let (now, end) = ((load.written.load(Ordering::Relaxed), server_written(pid)?), clock::seconds());
        let blocks = (now.0 - before.0) as f64;
        let found = Minute {
            writes_per_s: blocks / (end - start),
            amplification: (now.1 - before.1) as f64 / (blocks.max(1.0) * BLOCK as f64),
            memory_mib: memory_mib(pid)?,
        };
        let mib_per_s = found.writes_per_s / 256.0;
        println!(
            "{minute:>6} {:>10.0} {mib_per_s:>8.1} {:>18.2} {:>12.0}",
            found.writes_per_s, found.amplification, found.memory_mib
        );
        shown.push(found);
        (before, start) = (now, end);
    }
    Ok(())
}

/// Compares the last sixth with the minute at the end of the first sixth (of thirty: minute 5).
fn judge(minutes: &[Minute]) -> Outcome<()> {
    let sixth = (minutes.len() / 6).max(1);
    let (Some(early), Some(last)) = (minutes.get(sixth - 1), minutes.get(minutes.len().saturating_sub(sixth)..)) else {
        return Err("no minute was measured".to_owned());
    };
    let mean = |of: &[Minute], what: fn(&Minute) -> f64| of.iter().map(what).sum::<f64>() / of.len() as f64;
    let share = mean(last, |minute| minute.writes_per_s) / early.writes_per_s;
    let bytes: f64 = minutes.iter().map(|minute| minute.amplification * minute.writes_per_s).sum();
    let amplification = bytes / minutes.iter().map(|minute| minute.writes_per_s).sum::<f64>();
    let memory = last.iter().map(|minute| minute.memory_mib).fold(0.0, f64::max);
    let memory_max = (early.memory_mib * MEMORY_GROWTH_MAX + MEMORY_SLACK_MIB).min(MEMORY_MIB_MAX);
    println!(
        "last {sixth} against minute {sixth}: {share:.2} of the writes (at least {LAST_SHARE_MIN}); written per byte \
         {amplification:.2} (at most {AMPLIFICATION_MAX}); memory {memory:.0} MiB (at most {memory_max:.0})"
    );
    let mut missed = Vec::new();
    if share < LAST_SHARE_MIN || share.is_nan() {
        missed.push("it becomes slow");
    }
    if amplification > AMPLIFICATION_MAX {
        missed.push("it writes too much");
    }
    if memory > memory_max {
        missed.push("its memory grows");
    }
    if missed.is_empty() { Ok(()) } else { Err(missed.join(", ")) }
}

/// Bytes that the process has sent to disks; 0 without a process to look at.
fn server_written(pid: u64) -> Outcome<u64> {
    proc_number(pid, "io", "write_bytes:")
}

fn memory_mib(pid: u64) -> Outcome<f64> {
    Ok(proc_number(pid, "status", "VmRSS:")? as f64 / 1024.0)
}

fn proc_number(pid: u64, file: &str, name: &str) -> Outcome<u64> {
    if pid == 0 {
        return Ok(0);
    }
    let path = format!("/proc/{pid}/{file}");
    let text = fs::read_to_string(&path).map_err(|error| format!("{path}: {error}"))?;
    let line = text.lines().find_map(|line| line.strip_prefix(name));
    let number = line.and_then(|line| line.split_whitespace().next()?.parse().ok());
    number.ok_or_else(|| format!("{path}: no {name}"))
}

#[cfg(test)]
mod tests {
    use super::{Minute, judge};

    fn minutes(writes: &[f64], amplification: f64, memory: &[f64]) -> Vec<Minute> {
        let minute =
            |(writes, memory): (&f64, &f64)| Minute { writes_per_s: *writes, amplification, memory_mib: *memory };
        writes.iter().zip(memory).map(minute).collect()
    }

    #[test]
    fn slow_fat_and_greedy_servers_are_caught() {
        assert_eq!(judge(&minutes(&[100.0, 80.0, 60.0], 3.0, &[200.0; 3])), Ok(()));
        assert!(judge(&minutes(&[100.0, 80.0, 40.0], 3.0, &[200.0; 3])).is_err(), "half the speed is gone");
        assert!(judge(&minutes(&[100.0; 3], 4.5, &[200.0; 3])).is_err(), "writes too much");
        assert!(judge(&minutes(&[100.0; 3], 3.0, &[200.0, 300.0, 400.0])).is_err(), "memory grows");
        assert!(judge(&minutes(&[100.0; 3], 3.0, &[1600.0; 3])).is_err(), "too much from the start");
        assert!(judge(&[]).is_err());
    }
}
