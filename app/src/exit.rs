//! How a command ends: 0 and words on stdout, or a code that scripts can use and one line on stderr.

use std::fmt;

use braid_base::{Error, ErrorKind};

/// It did not work.
pub const FAILURE: u8 = 1;
/// The command line or a name or size in it makes no sense.
pub const USAGE: u8 = 2;
/// No cluster runs there.
pub const NOT_RUNNING: u8 = 3;
/// Something is in the way: in use, wrong device, other configuration. Nothing was changed.
pub const REFUSED: u8 = 4;

/// The table for `--help` and the man pages.
pub const HELP: &str = "\
Exit codes:
  0  done
  1  failed
  2  wrong usage, or a name, size or number that makes no sense
  3  no cluster runs there
  4  refused: in use, wrong device, other configuration; nothing was changed

Which cluster: --dir DIR, else the variable BRAID_DIR, else the only one that runs on this machine.
Sizes: 4GiB or 4G (powers of 1024), 500MB (powers of 1000), or bytes. Durations: 30s, 15m, 2h, 1d5h, 1w.
Colours appear only on a terminal, and not if NO_COLOR is set.";

/// Why a command failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    /// The exit code.
    pub code: u8,
    /// One line for people.
    pub message: String,
}

/// What a command returns.
pub type Outcome = Result<(), Failure>;

impl Failure {
    /// Wrong usage.
    pub fn usage(message: impl Into<String>) -> Self {
        Self { code: USAGE, message: message.into() }
    }

    /// No cluster runs where one was looked for.
    pub fn not_running(message: impl Into<String>) -> Self {
        Self { code: NOT_RUNNING, message: message.into() }
    }
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        let code = match error.kind() {
            ErrorKind::Refused => REFUSED,
            ErrorKind::Invalid => USAGE,
            _ => FAILURE,
        };
        Self { code, message: error.message().replace('\n', " ") }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}
