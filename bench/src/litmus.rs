//! Two mounts of one file system: is what one does seen by the other, whole, and by the time it must be?
//!
//! Every check runs once for each ordered pair of the folders given, "here" and "there": the same folder of the
//! file system, seen through two mounts.

mod bytes;
mod locks;
mod names;

use crate::Outcome;
use crate::arguments::Arguments;
use std::error::Error;
use std::fmt::Debug;
use std::fs;
use std::path::{Path, PathBuf};

/// The result of a check; anything that can be shown may be its error. The words are a figure worth showing.
type Found = Result<Option<String>, Box<dyn Error>>;

/// One folder through two mounts, empty at first, and how often to try.
struct Pair {
    here: PathBuf,
    there: PathBuf,
    rounds: u64,
}

/// A name for people, and the check.
type Check = (&'static str, fn(&Pair) -> Found);

/// Runs every check on the folders named, or those whose name contains `--only`.
pub fn run(arguments: &Arguments) -> Outcome<()> {
    if let Some(path) = arguments.text("lock") {
        return locks::child(Path::new(path), arguments);
    }
    let only = arguments.text("only").unwrap_or_default();
    let rounds = arguments.number("rounds", 100)?;
    let dirs: Vec<PathBuf> = arguments.bare.iter().map(PathBuf::from).collect();
    if dirs.len() < 2 {
        return Err("expected two or more folders, each a mount of the same file system".to_owned());
    }
    let all = [bytes::CHECKS, names::CHECKS, locks::CHECKS].concat();
    let (mut count, mut failed) = (0, 0);
    for (here, there) in pairs(&dirs) {
        for (name, check) in all.iter().filter(|(name, _)| name.contains(only)) {
            count += 1;
            let folder = format!("litmus-{count}");
            let pair = Pair { here: here.join(&folder), there: there.join(&folder), rounds };
            let result = fs::create_dir(&pair.here).map_err(Into::into).and_then(|()| check(&pair));
            match result {
                Ok(Some(words)) => println!("ok   {name}: {words}"),
                Ok(None) => println!("ok   {name}"),
                Err(error) => {
                    failed += 1;
                    println!("FAIL {name}: {error}");
                }
            }
            fs::remove_dir_all(&pair.here).map_err(|error| format!("{name} left something behind: {error}"))?;
        }
    }
    println!("{count} checks, {failed} failed");
    if failed == 0 { Ok(()) } else { Err(format!("{failed} checks failed")) }
}

/// Every two folders, both ways round.
fn pairs(dirs: &[PathBuf]) -> Vec<(&Path, &Path)> {
    let others = |here: &Path| dirs.iter().map(PathBuf::as_path).filter(|there| *there != here).collect::<Vec<_>>();
    dirs.iter().flat_map(|here| others(here).into_iter().map(move |there| (here.as_path(), there))).collect()
}

impl Pair {
    fn paths(&self, name: &str) -> (PathBuf, PathBuf) {
        (self.here.join(name), self.there.join(name))
    }
}

/// Is what was found what was expected?
fn same<T: PartialEq + Debug>(what: impl AsRef<str>, found: T, expected: T) -> Result<(), Box<dyn Error>> {
    let what = what.as_ref();
    if found == expected { Ok(()) } else { Err(format!("{what}: {found:?}, expected {expected:?}").into()) }
}

/// As [`same`] for contents, of which only the first difference is shown.
fn same_bytes(what: impl AsRef<str>, found: &[u8], expected: &[u8]) -> Result<(), Box<dyn Error>> {
    let what = what.as_ref();
    same(format!("length of {what}"), found.len(), expected.len())?;
    match found.iter().zip(expected).position(|(found, expected)| found != expected) {
        Some(at) => Err(format!("{what}: byte {at} is {:#04x}, expected {:#04x}", found[at], expected[at]).into()),
        None => Ok(()),
    }
}
