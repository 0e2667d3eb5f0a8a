//! What clients do in one shared directory, with weaker promises than on their own.
//!
//! - an exclusive creation has one winner, and everybody sees the same inode afterwards;
//! - a renamed file is seen under one name only, and never under the old one after the new one was seen (I16);
//! - a file that somebody has open outlives its names ([`crate::kept`]);
//! - directories that are moved into each other stay a tree (I17, checked at the end of the run).

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard};

use braid_base::ids::Ino;
use braid_base::msg::fs::{Cred, RenameMode};
use braid_base::{ErrorKind, Result};
use braid_client::Fs;
use braid_client::fs::Create;
use braid_io::chance::Rng;

use crate::board::Board;
use crate::kept;
use crate::register::{self, Losses, Register, Shared};

/// Directories that take part in moves.
const DIRS: usize = 5;

/// The state of the contests, outside of all processes.
#[derive(Default)]
pub struct Arena {
    /// The shared directory.
    pub dir: Ino,
    /// Directories below it, in whatever partitions they came to be.
    pub dirs: Vec<Ino>,
    /// Winners of the exclusive creations, by round.
    winners: BTreeMap<u64, Ino>,
    /// The number of the wandering file's present name, once the rename to it was begun.
    step: u64,
    /// The file that all read and write.
    pub register: Shared,
    /// Files that are removed while others have them open.
    pub files: kept::Shared,
}

/// Shared by all.
pub type ArenaRef = Arc<Mutex<Arena>>;

impl Arena {
    /// Makes the shared directory with its parts; `scarce`: the cluster may run full.
    pub async fn prepare(fs: &Fs, scarce: bool) -> Result<ArenaRef> {
        let cred = Cred::default();
        let dir = fs.mkdir(cred, fs.root(), b"shared", 0o755, 0).await?.ino;
        let mut dirs = Vec::new();
        for number in 0..DIRS {
            dirs.push(fs.mkdir(cred, dir, &dir_name(number), 0o755, 0).await?.ino);
        }
        fs.create(cred, dir, &step_name(0), Create::default()).await?;
        let ino = fs.create(cred, dir, b"register", Create::default()).await?.ino;
        fs.fsync(dir).await?;
        let register = Arc::new(Mutex::new(Register::of(ino, scarce)));
        Ok(Arc::new(Mutex::new(Self { dir, dirs, register, ..Self::default() })))
    }
}

fn dir_name(number: usize) -> Vec<u8> {
    format!("d{number}").into_bytes()
}

fn step_name(step: u64) -> Vec<u8> {
    format!("wanderer{step}").into_bytes()
}

/// A round that takes longer counts for several, milliseconds: on a full cluster each write waits for an answer, and
/// the run would last for hours of its time.
const SLOW_MS: u64 = 10_000;
const SLOW_ROUNDS: u32 = 6;

/// Takes part for `rounds` rounds. Only the `mover` renames the wandering file.
pub async fn compete(
    arena: ArenaRef,
    (fs, losses): (Fs, Arc<Losses>),
    board: Board,
    mut rng: Rng,
    mover: bool,
    rounds: u32,
) {
    let leases = fs.session().leases().is_some();
    let (dir, files, shared) = {
        let arena = lock(&arena);
        (arena.dir, Arc::clone(&arena.files), Arc::clone(&arena.register))
    };
    let mut left = rounds;
    while left > 0 {
        let begin_ms = fs.session().wire().now_ms();
        let result = match rng.below(if leases { 10 } else { 4 }) {
            8 | 9 => kept::round(&files, dir, (&fs, &losses), &board, &mut rng).await,
            4 | 5 => register::write(&shared, (&fs, &losses), &board, &mut rng).await,
            6 | 7 => register::look(&shared, &fs, &board).await,
            0 => race(&arena, &fs, &mut rng).await,
            1 if mover => wander(&arena, &fs).await,
            1 | 2 => observe(&arena, &fs).await,
            _ => shove(&arena, &fs, &mut rng).await,
        };
        if let Err(what) = result {
            return board.violation(format!("contest of {}: {what}", fs.session().client()));
        }
        let slow = fs.session().wire().now_ms() >= begin_ms + SLOW_MS;
        left = left.saturating_sub(if slow { SLOW_ROUNDS } else { 1 });
        let pause = rng.below(400);
        fs.session().wire().sleep_ms(pause).await;
    }
}

/// Exclusive creation: one winner; whoever loses sees the winner's inode.
async fn race(arena: &ArenaRef, fs: &Fs, rng: &mut Rng) -> std::result::Result<(), String> {
    let (dir, round) = (lock(arena).dir, rng.below(12));
    let name = format!("race{round}").into_bytes();
    let made = fs.create(Cred::default(), dir, &name, Create::default()).await;
    let ino = match made {
        Ok(made) => {
            // Whoever won says so when that lasts.
            if fs.fsync(dir).await.is_err() {
                return Ok(());
            }
            if let Some(other) = lock(arena).winners.get(&round).filter(|other| **other != made.ino) {
                return Err(format!("race{round} was won twice: {other} and {}", made.ino));
            }
            made.ino
        }
        Err(error) if error.kind() == ErrorKind::Exists => match fs.lookup(dir, &name).await {
            Ok(found) => found.ino,
            Err(error) => return Err(format!("race{round} exists, and then: {error}")),
        },
        Err(error) if error.kind() == ErrorKind::NoSpace => return Ok(()),
        Err(error) => return Err(format!("race{round}: {error}")),
    };
    let known = *lock(arena).winners.entry(round).or_insert(ino);
    if known == ino { Ok(()) } else { Err(format!("race{round} is {ino} for one and {known} for another")) }
}

/// Renames the wandering file to its next name, in whichever of two directories that is.
async fn wander(arena: &ArenaRef, fs: &Fs) -> std::result::Result<(), String> {
    let (step, from_dir, to_dir) = {
        let mut arena = lock(arena);
        arena.step += 1;
        (arena.step, place(&arena, arena.step - 1), place(&arena, arena.step))
    };
    let (from, to) = (step_name(step - 1), step_name(step));
    match fs.rename(from_dir, &from, to_dir, &to, RenameMode::NoReplace).await {
        Ok(_) => Ok(()),
        // The mover's process before this one was killed in between: go on from where the file really is.
        Err(error) if error.kind() == ErrorKind::NotFound => find_again(arena, fs, step).await,
        Err(error) if error.kind() == ErrorKind::NoSpace => find_again(arena, fs, step).await,
        Err(error) => Err(format!("the wandering file cannot go to step {step}: {error}")),
    }
}

async fn find_again(arena: &ArenaRef, fs: &Fs, upto: u64) -> std::result::Result<(), String> {
    // The last rename of a process that was killed may be carried out between two of these looks, once.
    for step in (0..=upto).rev().chain((0..=upto).rev()) {
        let dir = place(&lock(arena), step);
        match fs.lookup(dir, &step_name(step)).await {
            Ok(_) => {
                lock(arena).step = step;
                return Ok(());
            }
            Err(error) if error.kind() == ErrorKind::NotFound => {}
            Err(error) => return Err(format!("looking for the wandering file at step {step}: {error}")),
        }
    }
    Err(format!("the wandering file is lost: it has no name of the steps up to {upto}"))
}

/// The directory of a step: by turns the shared one and one below it, which often lives in another partition.
fn place(arena: &Arena, step: u64) -> Ino {
    if step.is_multiple_of(2) { arena.dir } else { *arena.dirs.first().unwrap_or(&arena.dir) }
}

/// Once the new name was seen, the old one must not be.
async fn observe(arena: &ArenaRef, fs: &Fs) -> std::result::Result<(), String> {
    let (step, old, new) = {
        let arena = lock(arena);
        let step = arena.step.max(1);
        (step, place(&arena, step - 1), place(&arena, step))
    };
    if fs.lookup(new, &step_name(step)).await.is_err() {
        return Ok(());
    }
    match fs.lookup(old, &step_name(step - 1)).await {
        Ok(_) => Err(format!("step {step} of the wandering file was seen, and step {} after it", step - 1)),
        Err(_) => Ok(()),
    }
}

/// Moves one of the shared directories into another, wherever it is now; most of it is refused.
async fn shove(arena: &ArenaRef, fs: &Fs, rng: &mut Rng) -> std::result::Result<(), String> {
    let (from, to, name) = {
        let arena = lock(arena);
        let any = |rng: &mut Rng| if rng.chance(1, 4) { arena.dir } else { arena.dirs[1 + rng.index(DIRS - 1)] };
        (any(rng), any(rng), dir_name(1 + rng.index(DIRS - 1)))
    };
    match fs.rename(from, &name, to, &name, RenameMode::NoReplace).await {
        Ok(_) => Ok(()),
        Err(error) => match error.kind() {
            ErrorKind::NotFound | ErrorKind::Invalid | ErrorKind::Exists | ErrorKind::NoSpace => Ok(()),
            kind => Err(format!("moving a shared directory: {kind:?} {error}")),
        },
    }
}

/// Nobody panics while holding it but a simulation that has failed already.
pub fn lock(arena: &ArenaRef) -> MutexGuard<'_, Arena> {
    arena.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}
