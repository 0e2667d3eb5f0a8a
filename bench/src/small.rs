//! A tree of small files, as a source tree or a mail folder is.

use crate::Outcome;
use crate::arguments::Arguments;
use crate::chance::pattern;
use crate::clock;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// Files in one folder of the tree.
const FILES_PER_FOLDER: u64 = 100;
/// Size of each file.
const BYTES: u64 = 4096;

/// The steps in order.
pub const STEPS: [&str; 6] = ["create", "read", "list", "find", "usage", "remove"];

/// Runs all steps in `--dir`; `--step NAME` runs one (so that a caller can empty the caches between two).
pub fn run(arguments: &Arguments) -> Outcome<()> {
    let dir = arguments.path("dir")?;
    let files = arguments.number("files", 5_000)?;
    let chosen = arguments.text("step");
    for name in STEPS.into_iter().filter(|name| chosen.is_none_or(|chosen| chosen == *name)) {
        let start = clock::seconds();
        step(&dir, name, files)?;
        println!("{name:<8} {:>9.0} per second", files as f64 / (clock::seconds() - start));
    }
    Ok(())
}

/// One step over `files` files below `dir`; contents are checked when read.
pub fn step(dir: &Path, name: &str, files: u64) -> Outcome<()> {
    match name {
        "create" => each(dir, files, create),
        "read" => each(dir, files, read),
        "list" => lines(Command::new("ls").arg("-lR").arg(dir), "-", files),
        "find" => lines(Command::new("find").arg(dir).arg("-ls"), "/file-", files),
        "usage" => lines(Command::new("du").arg("-a").arg(dir), "/file-", files),
        "remove" => program(Command::new("rm").arg("-r").arg(dir)).map(drop),
        other => Err(format!("no step named '{other}'")),
    }
}

fn each(dir: &Path, files: u64, action: fn(&Path, u64) -> std::io::Result<()>) -> Outcome<()> {
    for number in 0..files {
        let path = path_of(dir, number);
        action(&path, number).map_err(|error| format!("{}: {error}", path.display()))?;
    }
    Ok(())
}

fn path_of(dir: &Path, number: u64) -> PathBuf {
    dir.join(format!("folder-{:03}", number / FILES_PER_FOLDER)).join(format!("file-{number:05}"))
}

fn content(number: u64) -> Vec<u8> {
    pattern(number, 0, BYTES)
}

fn create(path: &Path, number: u64) -> std::io::Result<()> {
    if let (0, Some(folder)) = (number % FILES_PER_FOLDER, path.parent()) {
        fs::create_dir_all(folder)?;
    }
    fs::write(path, content(number))
}

fn read(path: &Path, number: u64) -> std::io::Result<()> {
    if fs::read(path)? == content(number) {
        Ok(())
    } else {
        Err(std::io::Error::other("other bytes than were written"))
    }
}

/// Runs a program and counts the lines that begin with, or hold, `word`: it must have seen every file.
fn lines(command: &mut Command, word: &str, files: u64) -> Outcome<()> {
    let said = program(command)?;
    let of_file = |line: &&str| if word == "-" { line.starts_with(word) } else { line.contains(word) };
    let found = said.lines().filter(of_file).count() as u64;
    if found == files { Ok(()) } else { Err(format!("{command:?} showed {found} files, expected {files}")) }
}

fn program(command: &mut Command) -> Outcome<String> {
    let output = command.stdin(Stdio::null()).output().map_err(|error| format!("{command:?}: {error}"))?;
    if !output.status.success() {
        return Err(format!("{command:?}: {}", String::from_utf8_lossy(&output.stderr).trim()));
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}
