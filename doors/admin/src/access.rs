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
        let (place, new) = (Self::place(dir), dir.join("admin.json.new"));
        let failed = |error: io::Error| Error::os(place.display(), &error);
        // A leftover may have a wider mode: the new file must be born with its own.
        match fs::remove_file(&new) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(failed(error)),
            _ => {}
        }
        let text = serde_json::to_vec_pretty(self).map_err(|error| failed(error.into()))?;
        let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&new).map_err(failed)?;
        file.write_all(&text).map_err(failed)?;
        fs::rename(&new, &place).map_err(failed)
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

    /// Does the process still run?
    pub fn is_alive(&self) -> bool {
        started_ticks(self.pid).is_some_and(|ticks| ticks == self.pid_started_ticks)
    }
}

/// When process `pid` started; none if there is no such process or it is only waiting to be reaped.
fn started_ticks(pid: u32) -> Option<u64> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The second field is the program's name in parentheses, which may itself contain blanks and parentheses.
    let mut fields = stat.rsplit_once(')')?.1.split_whitespace();
    let state = fields.next()?;
    // The start is field 22 of the line, so the 19th after the state (field 3).
    let ticks = fields.nth(18)?.parse().ok()?;
    Some(ticks).filter(|_| !matches!(state, "Z" | "X"))
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
