//! Names only, as mdtest does: create, stat and unlink of empty files by several processes at once,
//! each in a tree of its own.

use crate::Outcome;
use crate::arguments::Arguments;
use crate::clock;
use std::fs;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

/// The phases in order. `stat` is for cold names, `stat cached` for names that were just looked at.
pub const PHASES: [&str; 4] = ["create", "stat", "stat cached", "unlink"];

/// Folders of each worker; the files are spread over them one after the other.
const FOLDERS: u64 = 10;
/// Names that are looked at again and again in `stat cached`, and how often: few enough that all fit into the
/// second for which any client may keep them.
const CACHED_NAMES: u64 = 1_000;
const CACHED_PASSES: u64 = 20;

/// `--phase` makes this process one worker; without it, all phases run with `--procs` workers.
pub fn run(arguments: &Arguments) -> Outcome<()> {
    let dir = arguments.path("dir")?;
    let files = arguments.number("files", 5_000)?;
    if let Some(phase) = arguments.text("phase") {
        let (start, end) = work(&dir, phase, files)?;
        println!("{start} {end}");
        return Ok(());
    }
    let procs = arguments.number("procs", 1)?;
    prepare(&dir, procs)?;
    for phase in PHASES {
        let (operations, seconds) = together(&dir, phase, files, procs)?;
        println!("{phase:<11} {procs} processes {:>9.0} per second", operations / seconds);
    }
    clear(&dir)
}

/// An empty tree for each worker.
pub fn prepare(dir: &Path, procs: u64) -> Outcome<()> {
    clear(dir)?;
    for folder in (0..procs).flat_map(|rank| (0..FOLDERS).map(move |number| (rank, number))) {
        let own = own_dir(dir, folder.0).join(format!("folder-{}", folder.1));
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

/// Runs one phase over `files` files in all, shared by `procs` processes; how many operations that was, and
/// the seconds from the first worker's first to the last worker's last.
pub fn together(dir: &Path, phase: &str, files: u64, procs: u64) -> Outcome<(f64, f64)> {
    let program = std::env::current_exe().map_err(|error| format!("own path: {error}"))?;
    let each = files / procs;
    let spawn = |rank: u64| -> Outcome<Child> {
        Command::new(&program)
            .args(["meta", "--phase", phase, "--files", &each.to_string(), "--dir"])
            .arg(own_dir(dir, rank))
            .stdout(Stdio::piped())
            .spawn()
            .map_err(|error| format!("worker {rank} does not start: {error}"))
    };
    let workers: Vec<Child> = (0..procs).map(spawn).collect::<Outcome<_>>()?;
    let (mut first, mut last) = (f64::MAX, f64::MIN);
    for mut worker in workers {
        let mut said = String::new();
        let read = worker.stdout.take().map_or(Ok(0), |mut output| output.read_to_string(&mut said));
        let status = worker.wait().map_err(|error| format!("worker: {error}"))?;
        if !status.success() || read.is_err() {
            return Err(format!("a worker of phase {phase} failed"));
        }
        let times: Vec<f64> = said.split_whitespace().filter_map(|word| word.parse().ok()).collect();
        let [start, end] = times[..] else { return Err(format!("a worker of phase {phase} says '{said}'")) };
        (first, last) = (first.min(start), last.max(end));
    }
    Ok(((of_phase(phase, each) * procs) as f64, last - first))
}

/// Operations of a worker with `files` files.
fn of_phase(phase: &str, files: u64) -> u64 {
    if phase == "stat cached" { files.min(CACHED_NAMES) * CACHED_PASSES } else { files }
}

fn own_dir(dir: &Path, rank: u64) -> PathBuf {
    dir.join(format!("rank-{rank}"))
}

/// The work of one worker; when it began and ended.
fn work(dir: &Path, phase: &str, files: u64) -> Outcome<(f64, f64)> {
    let operation: fn(&PathBuf) -> std::io::Result<()> = match phase {
        "create" => |path| fs::File::create_new(path).map(drop),
        "stat" | "stat cached" => |path| fs::symlink_metadata(path).map(drop),
        "unlink" => |path| fs::remove_file(path),
        other => return Err(format!("no phase named '{other}'")),
    };
    let cached = phase == "stat cached";
    let (count, passes) = if cached { (files.min(CACHED_NAMES), CACHED_PASSES) } else { (files, 1) };
    let name = |number: u64| dir.join(format!("folder-{}/file-{number:07}", number % FOLDERS));
    let names: Vec<PathBuf> = (0..count).map(name).collect();
    let pass = || {
        names
            .iter()
            .try_for_each(|path| operation(path).map_err(|error| format!("{phase} {}: {error}", path.display())))
    };
    if cached {
        pass()?;
    }
    let start = clock::seconds();
    (0..passes).try_for_each(|_| pass())?;
    Ok((start, clock::seconds()))
}
