//! Locks between processes. The other process is this program again, `posix --lock PATH`.

use super::{Check, Found, same};
use crate::{Outcome, clock};
use rustix::fs::FlockOperation;
use std::fs::{File, OpenOptions};
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};

pub const CHECKS: &[Check] = &[
    ("flock between two opens", flock),
    ("fcntl locks between processes", fcntl),
    ("a lock goes with its process", killed),
    ("a lock is waited for", waited),
];

fn open(path: &Path) -> std::io::Result<File> {
    OpenOptions::new().create(true).truncate(false).read(true).write(true).open(path)
}

/// Takes the fcntl lock without waiting, says so, and keeps it until killed if `hold`.
pub fn child(path: &Path, hold: bool) -> Outcome<()> {
    let file = open(path).map_err(|error| format!("{}: {error}", path.display()))?;
    let free = rustix::fs::fcntl_lock(&file, FlockOperation::NonBlockingLockExclusive).is_ok();
    println!("{}", if free { "locked" } else { "refused" });
    if hold && free {
        loop {
            clock::wait(1_000);
        }
    }
    Ok(())
}

/// Starts the other process and returns it with its answer.
fn other(path: &Path, hold: bool) -> std::io::Result<(Child, String)> {
    let mut command = Command::new(std::env::current_exe()?);
    command.args(["posix", "--lock"]).arg(path).stdout(Stdio::piped());
    if hold {
        command.arg("--hold");
    }
    let mut child = command.spawn()?;
    let mut answer = String::new();
    if let Some(output) = child.stdout.take() {
        BufReader::new(output).read_line(&mut answer)?;
    }
    if !hold {
        child.wait()?;
    }
    Ok((child, answer.trim().to_owned()))
}

fn flock(dir: &Path) -> Found {
    let path = dir.join("a");
    let (one, two) = (open(&path)?, open(&path)?);
    rustix::fs::flock(&one, FlockOperation::LockExclusive)?;
    same("while held", rustix::fs::flock(&two, FlockOperation::NonBlockingLockShared).is_ok(), false)?;
    rustix::fs::flock(&one, FlockOperation::LockShared)?;
    rustix::fs::flock(&two, FlockOperation::NonBlockingLockShared)?;
    same("upgrade against a reader", rustix::fs::flock(&one, FlockOperation::NonBlockingLockExclusive).is_ok(), false)?;
    drop(two);
    rustix::fs::flock(&one, FlockOperation::NonBlockingLockExclusive)?;
    Ok(())
}

fn fcntl(dir: &Path) -> Found {
    let path = dir.join("a");
    let file = open(&path)?;
    rustix::fs::fcntl_lock(&file, FlockOperation::LockExclusive)?;
    same("while held", other(&path, false)?.1.as_str(), "refused")?;
    rustix::fs::fcntl_lock(&file, FlockOperation::Unlock)?;
    same("after it was given back", other(&path, false)?.1.as_str(), "locked")?;
    // Closing any descriptor of the file gives the process's locks back (POSIX).
    rustix::fs::fcntl_lock(&file, FlockOperation::LockExclusive)?;
    drop(open(&path)?);
    same("after a close of the file", other(&path, false)?.1.as_str(), "locked")
}

fn killed(dir: &Path) -> Found {
    let path = dir.join("a");
    let (mut child, answer) = other(&path, true)?;
    same("the other process", answer.as_str(), "locked")?;
    let file = open(&path)?;
    let refused = rustix::fs::fcntl_lock(&file, FlockOperation::NonBlockingLockExclusive).is_err();
    child.kill()?;
    child.wait()?;
    same("while it lives", refused, true)?;
    same("when it is gone", rustix::fs::fcntl_lock(&file, FlockOperation::NonBlockingLockExclusive).is_ok(), true)
}

fn waited(dir: &Path) -> Found {
    const HELD_MS: u64 = 300;
    let path = dir.join("a");
    let (one, two) = (open(&path)?, open(&path)?);
    rustix::fs::flock(&one, FlockOperation::LockExclusive)?;
    let start = clock::seconds();
    let waiter = std::thread::spawn(move || rustix::fs::flock(&two, FlockOperation::LockExclusive));
    clock::wait(HELD_MS);
    rustix::fs::flock(&one, FlockOperation::Unlock)?;
    waiter.join().map_err(|_| "the waiter panicked")??;
    same("it waited", clock::seconds() - start >= HELD_MS as f64 / 1000.0, true)
}
