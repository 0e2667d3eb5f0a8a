//! One lock, and a number that whoever has it counts on.

use super::Player;
use crate::chance::Chance;
use braid_linear::History;
use braid_linear::locks::{Answer, Call, Lock as State, came_again, refused_elsewhere};
use rustix::fs::FlockOperation;
use std::fs::{self, File, OpenOptions};
use std::io::{Error, Result};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

/// A call that took longer may have been answered by another primary than the one that it was first sent to.
const FAIL_OVER_S: f64 = 1.0;

/// The number as it must be.
#[derive(Default)]
pub struct Counted(AtomicU64);

/// One who takes and gives.
pub struct Locker<'a> {
    file: File,
    who: u64,
    /// `flock`, not `fcntl`.
    whole: bool,
    has: bool,
    counted: &'a Counted,
}

fn path(dir: &Path) -> PathBuf {
    dir.join("lock")
}

/// Makes the file.
pub fn prepare(dir: &Path) -> Result<()> {
    fs::write(path(dir), 0_u64.to_le_bytes())
}

impl<'a> Locker<'a> {
    /// In odd rounds it is `flock`.
    pub fn new(dir: &Path, who: u64, round: u64, counted: &'a Counted) -> Result<Locker<'a>> {
        let file = OpenOptions::new().read(true).write(true).open(path(dir))?;
        Ok(Locker { file, who, whole: round % 2 == 1, has: false, counted })
    }

    fn ask(&self, how: FlockOperation) -> rustix::io::Result<()> {
        if self.whole { rustix::fs::flock(&self.file, how) } else { rustix::fs::fcntl_lock(&self.file, how) }
    }

    /// Adds one to the number in the file, which nobody else may do meanwhile.
    fn count(&self) -> Result<()> {
        let mut bytes = [0; 8];
        self.file.read_exact_at(&mut bytes, 0)?;
        let (found, expected) = (u64::from_le_bytes(bytes), self.counted.0.fetch_add(1, Ordering::SeqCst));
        if found != expected {
            return Err(Error::other(format!("who has the lock reads {found}, the last one wrote {expected}")));
        }
        self.file.write_all_at(&(found + 1).to_le_bytes(), 0)
    }
}

impl Player for Locker<'_> {
    type State = State;

    fn choose(&mut self, _: &mut Chance) -> Call {
        if self.has { Call::Give(self.who) } else { Call::Take(self.who) }
    }

    fn last(&self) -> Vec<Call> {
        if self.has { vec![Call::Give(self.who)] } else { Vec::new() }
    }

    fn perform(&mut self, call: &Call) -> Result<Answer> {
        match call {
            // Every third time it does not wait.
            Call::Take(_) => {
                let waits = !self.counted.0.load(Ordering::Relaxed).is_multiple_of(3);
                let how = if waits { FlockOperation::LockExclusive } else { FlockOperation::NonBlockingLockExclusive };
                match self.ask(how) {
                    Ok(()) => {}
                    Err(rustix::io::Errno::AGAIN | rustix::io::Errno::ACCESS) if !waits => return Ok(Answer::Busy),
                    Err(error) => return Err(error.into()),
                }
                self.has = true;
                self.count().map(|()| Answer::Done)
            }
            Call::Give(_) => {
                self.has = false;
                self.ask(FlockOperation::Unlock)?;
                Ok(Answer::Done)
            }
            Call::Lose(_) | Call::Not(_) => Err(Error::other("nobody asks for that")),
        }
    }

    fn note(&self, history: &mut History<State>, number: usize, answer: Answer, (now_us, seconds): (u64, f64)) {
        let may_have_moved = seconds > FAIL_OVER_S;
        match (&answer, history.entries()[number].call.clone()) {
            (Answer::Busy, Call::Take(who)) if may_have_moved => refused_elsewhere(history, number, who, now_us),
            (Answer::Done, Call::Take(who)) if may_have_moved => {
                history.end(number, answer, now_us);
                came_again(history, number, who);
            }
            _ => history.end(number, answer, now_us),
        }
    }
}
