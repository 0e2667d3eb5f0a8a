//! Names only, as mdtest does: create, stat and unlink of empty files by several processes at once.

use crate::Outcome;
use crate::arguments::Arguments;
use crate::clock;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command};

/// The phases in order.
pub const PHASES: [&str; 3] = ["create", "stat", "unlink"];

/// `--phase` makes this process one worker; without it, all phases run with `--procs` workers.
pub fn run(arguments: &Arguments) -> Outcome<()> {
    let dir = arguments.path("dir")?;
    let files = arguments.number("files", 5_000)?;
    if let Some(phase) = arguments.text("phase") {
        return work(&dir, phase, files);
    }
    let procs = arguments.number("procs", 1)?;
    prepare(&dir, procs)?;
    for phase in PHASES {
        let seconds = together(&dir, phase, files, procs)?;
        println!("{phase:<8} {procs} processes {:>9.0} per second", (files / procs * procs) as f64 / seconds);
    }
    clear(&dir)
}

/// An empty folder for each worker.
pub fn prepare(dir: &Path, procs: u64) -> Outcome<()> {
    clear(dir)?;
    for rank in 0..procs {
        let own = dir.join(format!("rank-{rank}"));
        fs::create_dir_all(&own).map_err(|error| format!("{}: {error}", own.display()))?;
    }
    Ok(())
}

/// Removes what [`prepare`] made.
pub fn clear(dir: &Path) -> Outcome<()> {
    match fs::remove_dir_all(dir) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => Err(format!("{}: {error}", dir.display())),
        _ => Ok(()),
    }
}

/// Runs one phase over `files` files in all, shared by `procs` processes; the seconds from first start to last end.
pub fn together(dir: &Path, phase: &str, files: u64, procs: u64) -> Outcome<f64> {
    let program = std::env::current_exe().map_err(|error| format!("own path: {error}"))?;
    let start = clock::seconds();
    let spawn = |rank: u64| -> Outcome<Child> {
        Command::new(&program)
            .args(["meta", "--phase", phase, "--files", &(files / procs).to_string(), "--dir"])
            .arg(dir.join(format!("rank-{rank}")))
            .spawn()
            .map_err(|error| format!("worker {rank} does not start: {error}"))
    };
    let workers: Vec<Child> = (0..procs).map(spawn).collect::<Outcome<_>>()?;
    for mut worker in workers {
        let status = worker.wait().map_err(|error| format!("worker: {error}"))?;
        if !status.success() {
            return Err(format!("a worker of phase {phase} failed"));
        }
    }
    Ok(clock::seconds() - start)
}

fn work(dir: &Path, phase: &str, files: u64) -> Outcome<()> {
    let operation: fn(&PathBuf) -> std::io::Result<()> = match phase {
        "create" => |path| fs::File::create_new(path).map(drop),
        "stat" => |path| fs::symlink_metadata(path).map(drop),
        "unlink" => |path| fs::remove_file(path),
        other => return Err(format!("no phase named '{other}'")),
    };
    for number in 0..files {
        let path = dir.join(format!("file-{number:07}"));
        operation(&path).map_err(|error| format!("{phase} {}: {error}", path.display()))?;
    }
    Ok(())
}
