//! `DIR/admin.json`: how tools on this machine reach the cluster in DIR. It holds the token, so only its owner
//! may read it. It is there while the process runs; what a killed process left behind is told by its pid.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use braid_base::{Error, ErrorKind, Result};
use serde::{Deserialize, Serialize};

/// Bytes of chance in a token.
const TOKEN_BYTES: usize = 32;

/// Address and key of a running cluster.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Access {
    /// Version of this file: 1.
    pub version: u32,
    /// Where the REST interface is, without a path.
    pub url: String,
    /// The bearer token.
    pub token: String,
    /// The process.
    pub pid: u32,
    /// When that process started, in the kernel's clock ticks since boot: tells it from a later one of its number.
    pub pid_started_ticks: u64,
}

impl Access {
    /// Access to this process, which listens on `port`, with a fresh token.
    pub fn new(port: u16) -> Result<Self> {
        let mut bytes = [0; TOKEN_BYTES];
        let source = Path::new("/dev/urandom");
        File::open(source)
            .and_then(|mut file| file.read_exact(&mut bytes))
            .map_err(|error| Error::os(source.display(), &error))?;
        let token = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
        let pid = std::process::id();
        let pid_started_ticks = started_ticks(pid).unwrap_or(0);
        Ok(Self { version: 1, url: format!("http://127.0.0.1:{port}"), token, pid, pid_started_ticks })
    }

    /// Where it lies for the cluster in `dir`.
    pub fn place(dir: &Path) -> PathBuf {
        dir.join("admin.json")
    }

    /// Writes it into `dir`, readable by the owner only, in one step.
    pub fn write(&self, dir: &Path) -> Result<()> {
        let place = Self::place(dir);
        let text = serde_json::to_vec_pretty(self).map_err(|error| Error::os(place.display(), &error.into()))?;
        write_private(&place, &text)
    }

    /// Removes it from `dir`; a missing one is no error.
    pub fn remove(dir: &Path) -> Result<()> {
        match fs::remove_file(Self::place(dir)) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(Error::os(Self::place(dir).display(), &error)),
            _ => Ok(()),
        }
    }

    /// That of the cluster running in `dir`; none if none runs. `AccessDenied` if it is somebody else's.
    pub fn read(dir: &Path) -> Result<Option<Self>> {
        let place = Self::place(dir);
        let bytes = match fs::read(&place) {
            Ok(bytes) => bytes,
            Err(error) if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => {
                return Ok(None);
            }
            Err(error) => return Err(Error::os(place.display(), &error)),
        };
        let damaged = |error: serde_json::Error| {
            let message = format!("{}: {error}: remove it if no braid runs there", place.display());
            Error::new(ErrorKind::Corrupt, message)
        };
        let access: Self = serde_json::from_slice(&bytes).map_err(damaged)?;
        Ok(Some(access).filter(Self::is_alive))
    }

    /// Does the process still run? One that was killed does not, even if it is not gone yet.
    pub fn is_alive(&self) -> bool {
        look_at(self.pid) == Life::Runs(self.pid_started_ticks)
    }

    /// True while the last process in `dir` was killed and still holds its files and locks: a moment, in which a
    /// successor has to wait.
    pub fn is_ending(dir: &Path) -> bool {
        let access = fs::read(Self::place(dir)).ok().and_then(|bytes| serde_json::from_slice::<Self>(&bytes).ok());
        access.is_some_and(|access| look_at(access.pid) == Life::Ends(access.pid_started_ticks))
    }
}

/// What a process number stands for; with the moment the process started.
#[derive(PartialEq, Eq)]
enum Life {
    Runs(u64),
    /// Killed or leaving, and not all of its threads are gone.
    Ends(u64),
    /// There is none, or it is only waiting to be reaped.
    Gone,
}

fn look_at(pid: u32) -> Life {
    let Ok(stat) = fs::read_to_string(format!("/proc/{pid}/stat")) else { return Life::Gone };
    // The second field is the program's name in parentheses, which may itself contain blanks and parentheses.
    let fields: Vec<&str> = stat.rsplit_once(')').map_or(Vec::new(), |(_, rest)| rest.split_whitespace().collect());
    // Counted from field 3 of the line, the state: 9 are the flags, 22 the start.
    let ticks = fields.get(19).and_then(|field| field.parse().ok());
    let (Some(state), Some(ticks)) = (fields.first(), ticks) else { return Life::Gone };
    if matches!(*state, "Z" | "X") {
        // The first thread ends before the others, and they share its files.
        let threads = fs::read_dir(format!("/proc/{pid}/task")).map_or(0, Iterator::count);
        return if threads > 1 { Life::Ends(ticks) } else { Life::Gone };
    }
    let exiting =
        fields.get(6).and_then(|field| field.parse::<u64>().ok()).is_some_and(|flags| flags & PF_EXITING != 0);
    if exiting || is_killed(pid) { Life::Ends(ticks) } else { Life::Runs(ticks) }
}

/// The kernel's flag of a process on its way out.
const PF_EXITING: u64 = 4;
const SIGKILL: u32 = 9;

/// Is a SIGKILL on its way to the process?
fn is_killed(pid: u32) -> bool {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let pending = status.lines().filter_map(|line| line.strip_prefix("SigPnd:").or(line.strip_prefix("ShdPnd:")));
    pending.filter_map(|mask| u64::from_str_radix(mask.trim(), 16).ok()).any(|mask| mask & 1 << (SIGKILL - 1) != 0)
}

/// When process `pid` started; none if it does not run.
fn started_ticks(pid: u32) -> Option<u64> {
    match look_at(pid) {
        Life::Runs(ticks) => Some(ticks),
        Life::Ends(_) | Life::Gone => None,
    }
}

/// Replaces the file at `place` by one that only the owner may read.
pub fn write_private(place: &Path, text: &[u8]) -> Result<()> {
    let new = place.with_extension("new");
    let failed = |error: io::Error| Error::os(place.display(), &error);
    // A leftover may have a wider mode: the new file must be born with its own.
    match fs::remove_file(&new) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(failed(error)),
        _ => {}
    }
    let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&new).map_err(failed)?;
    file.write_all(text).map_err(failed)?;
    fs::rename(&new, place).map_err(failed)
}

#[cfg(test)]
mod tests {
    use super::Access;
    use std::fs;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn written_for_the_owner_only_and_read_while_alive() {
        let dir = tempfile::tempdir().expect("dir");
        assert_eq!(Access::read(dir.path()).expect("none"), None);
        fs::write(dir.path().join("admin.json.new"), "left behind").expect("write");
        let access = Access::new(14_000).expect("access");
        access.write(dir.path()).expect("write");
        assert_eq!(Access::read(dir.path()).expect("read"), Some(access.clone()));
        let mode = fs::metadata(Access::place(dir.path())).expect("metadata").permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
        assert_ne!(access.token, Access::new(14_000).expect("another").token);
        let dead = Access { pid_started_ticks: access.pid_started_ticks + 1, ..access };
        dead.write(dir.path()).expect("write");
        assert_eq!(Access::read(dir.path()).expect("the process of that number is another one"), None);
        Access::remove(dir.path()).expect("remove");
        Access::remove(dir.path()).expect("twice is no error");
    }
}
