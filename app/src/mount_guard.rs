//! The process beside each mount: this program under another name. What it is for is said in `braid-fuse`.

use std::io::{Write, stderr};
use std::os::unix::process::CommandExt;
use std::process::{Command, ExitCode};

/// The name under which this is meant.
const NAME: &str = "braid-guard";

/// Starts it, with the number of the process to guard as one more word.
pub fn program() -> Command {
    let mut program = Command::new("/proc/self/exe");
    program.arg0(NAME);
    program
}

/// Guards, if this program was called under that name.
pub fn run() -> Option<ExitCode> {
    let mut words = std::env::args_os();
    words.next().filter(|program| program == NAME)?;
    let pid = words.next().and_then(|word| word.to_str()?.parse().ok());
    let Some(pid) = pid else {
        let _ = writeln!(stderr(), "{NAME}: this is started by a mount, with its process as the only argument");
        return Some(ExitCode::from(crate::exit::USAGE));
    };
    if let Err(error) = braid_fuse::guard(pid) {
        let _ = writeln!(stderr(), "{NAME}: the mount of process {pid} cannot be ended: {error}; run: umount -f");
        return Some(ExitCode::FAILURE);
    }
    Some(ExitCode::SUCCESS)
}
