//! One directory of very many files: create, list, stat at random, remove.

use crate::Outcome;
use crate::arguments::Arguments;
use crate::chance::Chance;
use crate::clock;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// Prints the figures of each step and the highest memory of the server, `--pid`, if one is named.
pub fn run(arguments: &Arguments) -> Outcome<()> {
    let dir = arguments.path("dir")?;
    let files = arguments.number("files", 1_000_000)?;
    let stats = arguments.number("stats", 10_000)?;
    fs::create_dir_all(&dir).map_err(|error| format!("{}: {error}", dir.display()))?;

    timed("create", files, || (0..files).try_for_each(|number| create(&dir, number)))?;
    timed("list", files, || count_with_ls(&dir, files))?;
    let mut chance = Chance::new(files);
    timed("stat", stats, || (0..stats).try_for_each(|_| look(&dir, chance.below(files))))?;
    timed("remove", files, || (0..files).try_for_each(|number| remove(&dir, number)))?;
    let left = fs::read_dir(&dir).map_err(|error| format!("{}: {error}", dir.display()))?.count();
    if left > 0 {
        return Err(format!("{left} names are left after all were removed"));
    }
    fs::remove_dir(&dir).map_err(|error| format!("{}: {error}", dir.display()))?;
    if let Some(pid) = arguments.text("pid") {
        println!("highest memory of the server {} MiB", memory_mib(pid)?);
    }
    Ok(())
}

fn timed(name: &str, operations: u64, action: impl FnOnce() -> Outcome<()>) -> Outcome<()> {
    let start = clock::seconds();
    action()?;
    let seconds = clock::seconds() - start;
    println!("{name:<8} {operations} in {seconds:.1} s, {:.0} per second", operations as f64 / seconds);
    Ok(())
}

fn path_of(dir: &Path, number: u64) -> PathBuf {
    dir.join(format!("file-{number:08}"))
}

fn create(dir: &Path, number: u64) -> Outcome<()> {
    let path = path_of(dir, number);
    fs::File::create_new(&path).map(drop).map_err(|error| format!("create {}: {error}", path.display()))
}

fn look(dir: &Path, number: u64) -> Outcome<()> {
    let path = path_of(dir, number);
    let metadata = fs::symlink_metadata(&path).map_err(|error| format!("stat {}: {error}", path.display()))?;
    if metadata.is_file() { Ok(()) } else { Err(format!("{} is not a file", path.display())) }
}

fn remove(dir: &Path, number: u64) -> Outcome<()> {
    let path = path_of(dir, number);
    fs::remove_file(&path).map_err(|error| format!("unlink {}: {error}", path.display()))
}

/// `ls -f | wc -l`, which also prints "." and "..".
fn count_with_ls(dir: &Path, files: u64) -> Outcome<()> {
    let output = Command::new("ls")
        .arg("-f")
        .arg(dir)
        .stderr(Stdio::inherit())
        .output()
        .map_err(|error| format!("ls does not start: {error}"))?;
    let lines = output.stdout.iter().filter(|byte| **byte == b'\n').count() as u64;
    if output.status.success() && lines == files + 2 {
        return Ok(());
    }
    Err(format!("ls -f printed {lines} lines, expected {}", files + 2))
}

fn memory_mib(pid: &str) -> Outcome<u64> {
    let path = format!("/proc/{pid}/status");
    let status = std::fs::read_to_string(&path).map_err(|error| format!("{path}: {error}"))?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    let kib = line.and_then(|line| line.split_whitespace().next()?.parse::<u64>().ok());
    kib.map(|kib| kib / 1024).ok_or_else(|| format!("{path}: no VmHWM"))
}
