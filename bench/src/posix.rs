//! What a local file system offers and the conformance suites do not ask for: one small check each.

mod files;
mod locks;
mod names;
mod space;

use crate::Outcome;
use crate::arguments::Arguments;
use std::error::Error;
use std::fs;
use std::path::Path;

/// The result of a check; anything that can be shown may be its error.
type Found = Result<(), Box<dyn Error>>;

/// A name for people, and the check; it works in an empty folder of its own.
type Check = (&'static str, fn(&Path) -> Found);

/// Runs every check below `--dir`, or those whose name contains `--only`.
pub fn run(arguments: &Arguments) -> Outcome<()> {
    if let Some(path) = arguments.text("lock") {
        return locks::child(Path::new(path), arguments.flag("hold"));
    }
    let dir = arguments.path("dir")?;
    let only = arguments.text("only").unwrap_or_default();
    let mut failed = 0;
    let all = [files::CHECKS, names::CHECKS, space::CHECKS, locks::CHECKS].concat();
    let chosen: Vec<&Check> = all.iter().filter(|(name, _)| name.contains(only)).collect();
    for (number, (name, check)) in chosen.iter().enumerate() {
        let own = dir.join(format!("check-{number}"));
        let result = fs::create_dir_all(&own).map_err(Into::into).and_then(|()| check(&own));
        if let Err(error) = result {
            failed += 1;
            println!("FAIL {name}: {error}");
        }
        fs::remove_dir_all(&own).map_err(|error| format!("{name} left something behind: {error}"))?;
    }
    println!("{} checks, {failed} failed", chosen.len());
    if failed == 0 { Ok(()) } else { Err(format!("{failed} checks failed")) }
}

/// Is what was found what was expected?
fn same<T: PartialEq + std::fmt::Debug>(what: &str, found: T, expected: T) -> Found {
    if found == expected { Ok(()) } else { Err(format!("{what}: {found:?}, expected {expected:?}").into()) }
}

/// Did the call fail in the expected way?
fn refused<T>(what: &str, result: rustix::io::Result<T>, expected: rustix::io::Errno) -> Found {
    same(what, result.err(), Some(expected))
}

/// Ext4 has smaller limits than Braid; the checks are tried on it.
fn is_ext4(dir: &Path) -> bool {
    const EXT4_MAGIC: u64 = 0xEF53;
    rustix::fs::statfs(dir).is_ok_and(|stat| u64::try_from(stat.f_type) == Ok(EXT4_MAGIC))
}
