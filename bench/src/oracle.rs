//! The oracle of the kill tests: a mixed load that notes, outside the file system, what it was promised;
//! and the check, after a crash, that every promise was kept and that nothing is half there.
//!
//! 1. Before each operation a worker appends a `begin` line to its log, after it a `done` line. The log lies
//!    on another file system; only the server of the mount dies, so the log needs no fsync.
//! 2. The server is killed; the workers meet an error and end.
//! 3. The check replays each log: what is `done` must be there, the one operation begun and not done may be
//!    there or not, and anything else is a violation.

mod bytes;
mod log;
mod names;

use crate::Outcome;
use crate::arguments::Arguments;
use crate::clock;
use std::fs;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

/// One worker of the load; the kind decides what it does and how it is checked.
#[derive(Clone, Copy)]
struct Worker {
    name: &'static str,
    kind: Kind,
}

#[derive(Clone, Copy)]
enum Kind {
    Bytes(bytes::Shape),
    Names,
}

const WORKERS: [Worker; 4] = [
    Worker { name: "blocks", kind: Kind::Bytes(bytes::BLOCKS) },
    Worker { name: "odd", kind: Kind::Bytes(bytes::ODD) },
    Worker { name: "large", kind: Kind::Bytes(bytes::LARGE) },
    Worker { name: "names", kind: Kind::Names },
];

/// `write` or `check`.
pub fn run(arguments: &Arguments) -> Outcome<()> {
    let (dir, log) = (arguments.path("dir")?, arguments.path("log")?);
    match arguments.bare.first().map(String::as_str) {
        Some("write") => write(&dir, &log, arguments.number("seed", 1)?, arguments.number("seconds", 60)?),
        Some("check") => check(&dir, &log),
        _ => Err("expected 'oracle write' or 'oracle check'".to_owned()),
    }
}

/// Runs every worker until time is up or one meets an error; an error is how the kill shows, not a failure.
fn write(dir: &Path, logs: &Path, seed: u64, seconds: u64) -> Outcome<()> {
    fs::create_dir_all(logs).map_err(|error| format!("{}: {error}", logs.display()))?;
    let stop = AtomicBool::new(false);
    let results: Vec<Outcome<u64>> = std::thread::scope(|scope| {
        let spawn = |(worker, rank): (Worker, u64)| {
            let stop = &stop;
            scope.spawn(move || {
                let result = work(worker, dir, logs, seed.wrapping_mul(64).wrapping_add(rank), stop);
                stop.store(true, Ordering::Relaxed);
                result
            })
        };
        let threads: Vec<_> = WORKERS.into_iter().zip(0..).map(spawn).collect();
        let start = clock::seconds();
        while clock::seconds() - start < seconds as f64 && !stop.load(Ordering::Relaxed) {
            clock::wait(5);
        }
        stop.store(true, Ordering::Relaxed);
        threads.into_iter().map(|thread| thread.join().unwrap_or(Err("a worker panicked".to_owned()))).collect()
    });
    for (worker, result) in WORKERS.iter().zip(results) {
        match result {
            Ok(operations) => println!("{}: {operations} operations", worker.name),
            Err(error) => println!("{}: ended by {error}", worker.name),
        }
    }
    Ok(())
}

fn work(worker: Worker, dir: &Path, logs: &Path, seed: u64, stop: &AtomicBool) -> Outcome<u64> {
    let mut log = log::Log::create(&logs.join(worker.name))?;
    let own = dir.join(worker.name);
    match worker.kind {
        Kind::Bytes(shape) => bytes::work(shape, &own, &mut log, seed, stop),
        Kind::Names => names::work(&own, &mut log, seed, stop),
    }
}

fn check(dir: &Path, logs: &Path) -> Outcome<()> {
    let mut operations = 0;
    for worker in WORKERS {
        let lines = log::read(&logs.join(worker.name))?;
        operations += lines.iter().filter(|line| line.done).count();
        let own = dir.join(worker.name);
        match worker.kind {
            Kind::Bytes(_) => bytes::check(&own, &lines),
            Kind::Names => names::check(&own, &lines),
        }
        .map_err(|violation| format!("{}: {violation}", worker.name))?;
    }
    println!("{operations} acknowledged operations, all there");
    Ok(())
}
