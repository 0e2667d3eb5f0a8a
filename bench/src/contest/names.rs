//! Names of files in a few folders that all work in, and in one folder for each of them that the others only look at; each
//! a partition's if the file system has several.

use super::Player;
use crate::chance::Chance;
use braid_linear::names::{Answer, Call, Names as State, Place};
use braid_linear::{History, Ino, RenameMode};
use rustix::fs::{CWD, RenameFlags};
use std::fs::{self, File};
use std::io::{Error, ErrorKind, Result};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

const FOLDERS: usize = 3;
const NAMES: usize = 3;

pub struct Names {
    dir: PathBuf,
    who: u32,
    players: usize,
    made: u32,
}

fn folder(dir: &Path, number: usize) -> PathBuf {
    dir.join(format!("d{number}"))
}

/// Makes the folders for so many players.
pub fn prepare(dir: &Path, players: usize) -> Result<()> {
    (0..FOLDERS + players).try_for_each(|number| fs::create_dir(folder(dir, number)))
}

impl Names {
    pub fn new(dir: &Path, who: u64, players: usize) -> Result<Names> {
        Ok(Names { dir: dir.to_owned(), who: who as u32, players, made: 0 })
    }

    /// In one of the common folders, or in the own one.
    fn place(&self, chance: &mut Chance) -> Place {
        let name = chance.below(NAMES as u64) as usize;
        match chance.below(FOLDERS as u64 + 1) as usize {
            FOLDERS => (FOLDERS + self.who as usize, name),
            common => (common, name),
        }
    }

    fn path(&self, (at, name): Place) -> PathBuf {
        folder(&self.dir, at).join(format!("n{name}"))
    }
}

impl Player for Names {
    type State = State;

    fn choose(&mut self, chance: &mut Chance) -> Call {
        let at = self.place(chance);
        match chance.below(10) {
            0..3 => {
                self.made += 1;
                Call::Create { at, serial: self.who << 20 | self.made }
            }
            3 => Call::Unlink(at),
            4..7 => {
                let mode = [RenameMode::Replace, RenameMode::NoReplace, RenameMode::Exchange][chance.below(3) as usize];
                let mut to = self.place(chance);
                while to == at {
                    to = self.place(chance);
                }
                Call::Rename { from: at, to, mode }
            }
            _ => Call::Lookup(at),
        }
    }

    fn last(&self) -> Vec<Call> {
        (0..FOLDERS + self.players).flat_map(|at| (0..NAMES).map(move |name| Call::Lookup((at, name)))).collect()
    }

    fn judge(history: &mut History<State>) {
        history.of_kernels();
    }

    fn perform(&mut self, call: &Call) -> Result<Answer> {
        let done = match call {
            Call::Create { at, .. } => File::create_new(self.path(*at))
                .and_then(|file| file.metadata())
                .map(|found| Answer::Ino(Ino(found.ino()))),
            Call::Lookup(at) => fs::symlink_metadata(self.path(*at)).map(|found| Answer::Ino(Ino(found.ino()))),
            Call::Unlink(at) => fs::remove_file(self.path(*at)).map(|()| Answer::Done),
            Call::Rename { from, to, mode } => {
                let flags = match mode {
                    RenameMode::Replace => RenameFlags::empty(),
                    RenameMode::NoReplace => RenameFlags::NOREPLACE,
                    RenameMode::Exchange => RenameFlags::EXCHANGE,
                };
                let moved = rustix::fs::renameat_with(CWD, self.path(*from), CWD, self.path(*to), flags);
                moved.map(|()| Answer::Done).map_err(Error::from)
            }
            Call::Unmake { .. } | Call::Restore { .. } => return Err(Error::other("nobody asks for that")),
        };
        done.or_else(|error| match error.kind() {
            ErrorKind::NotFound => Ok(Answer::Missing),
            ErrorKind::AlreadyExists => Ok(Answer::Exists),
            _ => Err(error),
        })
    }
}
