//! A tree of small files, as a source tree or a mail folder is.

use crate::Outcome;
use crate::arguments::Arguments;
use crate::chance::{Chance, pattern};
use crate::clock;
use std::fs;
use std::path::{Path, PathBuf};

/// Files in one folder of the tree.
const FILES_PER_FOLDER: u64 = 100;
/// Sizes are drawn evenly from `1..=BYTES_MAX`.
const BYTES_MAX: u64 = 16 * 1024;

/// The steps in order.
pub const STEPS: [&str; 4] = ["create", "read", "list", "remove"];

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
        "list" => list(dir, files),
        "remove" => fs::remove_dir_all(dir).map_err(|error| format!("{}: {error}", dir.display())),
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
    pattern(number, 0, 1 + Chance::new(number).below(BYTES_MAX))
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

fn list(dir: &Path, files: u64) -> Outcome<()> {
    let mut found = 0;
    let mut open = vec![dir.to_owned()];
    while let Some(folder) = open.pop() {
        let say = |error: std::io::Error| format!("{}: {error}", folder.display());
        for entry in fs::read_dir(&folder).map_err(say)? {
            let entry = entry.map_err(say)?;
            // The attributes too, as `ls -l` asks for them.
            let metadata = entry.metadata().map_err(say)?;
            if metadata.is_dir() { open.push(entry.path()) } else { found += 1 }
        }
    }
    if found == files { Ok(()) } else { Err(format!("{}: {found} files listed, expected {files}", dir.display())) }
}
