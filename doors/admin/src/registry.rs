//! The clusters that run on this machine, so that a command finds the only one without being told.
//!
//! One file per cluster in `/run/braid` (root) or `~/.braid/run`, named after a checksum of its directory,
//! holding that directory. An entry counts while `DIR/admin.json` names a living process.

use std::env;
use std::fs;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

use braid_base::crc::crc32c;
use braid_base::{Error, Result};

use crate::access::Access;

/// Overrides the places, for tests.
pub const PLACE_VARIABLE: &str = "BRAID_RUN_DIR";

/// Notes that a cluster runs in `dir` (absolute). The first place that can be written to is taken.
pub fn enter(dir: &Path) -> Result<()> {
    let mut last = None;
    for place in places() {
        let entry = place.join(name(dir));
        match fs::create_dir_all(&place).and_then(|()| fs::write(&entry, dir.as_os_str().as_bytes())) {
            Ok(()) => return Ok(()),
            Err(error) => last = Some(Error::os(entry.display(), &error)),
        }
    }
    last.map_or(Ok(()), Err)
}

/// Forgets the cluster in `dir`.
pub fn leave(dir: &Path) {
    for place in places() {
        // A missing entry is what we want, and any other is told from a living one by its process.
        let _ = fs::remove_file(place.join(name(dir)));
    }
}

/// The directories of the clusters that run now, sorted.
pub fn running() -> Vec<PathBuf> {
    let mut found = Vec::new();
    for place in places() {
        let Ok(entries) = fs::read_dir(&place) else { continue };
        for entry in entries.flatten() {
            let Ok(bytes) = fs::read(entry.path()) else { continue };
            let dir = PathBuf::from(std::ffi::OsString::from_vec(bytes));
            // A cluster of somebody else runs as well, even if its token is not for us.
            let alive = Access::read(&dir).map_or(true, |access| access.is_some());
            if alive && !found.contains(&dir) {
                found.push(dir);
            }
        }
    }
    found.sort();
    found
}

fn places() -> Vec<PathBuf> {
    if let Some(place) = env::var_os(PLACE_VARIABLE) {
        return vec![PathBuf::from(place)];
    }
    let home = env::var_os("HOME").map(|home| PathBuf::from(home).join(".braid/run"));
    [Some(PathBuf::from("/run/braid")), home].into_iter().flatten().collect()
}

fn name(dir: &Path) -> String {
    format!("{:08x}", crc32c(dir.as_os_str().as_bytes()))
}
