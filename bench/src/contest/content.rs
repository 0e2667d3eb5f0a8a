//! The content of one file, a page at a time.
//!
//! Past the page cache, unless told otherwise: a kernel throws away a size that meets a notice on its way there, and the
//! read that wanted it goes on with the one of before (`docs/semantics.md`).

use super::Player;
use crate::chance::Chance;
use braid_linear::content::{Answer, Call, Content as State};
use std::fs::{File, OpenOptions};
use std::io::{Result, Write};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

/// A page: a local kernel tears what is longer, and two pages are two calls.
const UNIT: usize = 4096;
/// Writes and reads lie below; appends may go beyond.
const UNITS: u64 = 12;

/// Local file systems ask for that where the page cache is passed by.
#[repr(align(4096))]
struct Page([u8; UNIT]);

pub struct Bytes {
    file: File,
    append: File,
    /// How many writes there were, of all players: each begins at its own number, and goes on in steps of that many.
    tag: u32,
}

pub fn path(dir: &Path) -> PathBuf {
    dir.join("content")
}

/// More players than that have the same numbers.
const PLAYERS_MAX: u32 = 64;

impl Bytes {
    /// Past the page cache; every other one through it if `cached`.
    pub fn new(dir: &Path, turn: u64, cached: bool) -> Result<Bytes> {
        let flags = if cached && turn.is_multiple_of(2) { 0 } else { rustix::fs::OFlags::DIRECT.bits().cast_signed() };
        let open = |append: bool| {
            OpenOptions::new().read(true).write(!append).append(append).custom_flags(flags).open(path(dir))
        };
        Ok(Bytes { file: open(false)?, append: open(true)?, tag: turn as u32 % PLAYERS_MAX })
    }

    fn page(tag: u32) -> Box<Page> {
        let mut page = Box::new(Page([0; UNIT]));
        page.0.as_chunks_mut::<4>().0.fill(tag.to_le_bytes());
        page
    }

    fn next(&mut self) -> u32 {
        self.tag += PLAYERS_MAX;
        self.tag
    }
}

/// The number that a unit is full of.
fn tag_of(unit: &[u8]) -> std::result::Result<u32, String> {
    let (words, rest) = unit.as_chunks::<4>();
    let first = words.first().map_or(0, |word| u32::from_le_bytes(*word));
    match words.iter().position(|word| u32::from_le_bytes(*word) != first) {
        None if rest.is_empty() && unit.len() == UNIT => Ok(first),
        at => Err(format!("{} bytes of write {first}, from word {at:?} on of another", unit.len())),
    }
}

impl Player for Bytes {
    type State = State;

    fn choose(&mut self, chance: &mut Chance) -> Call {
        let at = chance.below(UNITS) as usize;
        match chance.below(20) {
            0..5 => Call::Write { at, units: 1, tag: self.next() },
            5..8 => Call::Append { units: 1, tag: self.next() },
            8 => Call::Truncate { units: at },
            9..12 => Call::Size,
            _ => Call::Read { at, units: 1 },
        }
    }

    fn last(&self) -> Vec<Call> {
        (0..UNITS as usize).map(|at| Call::Read { at, units: 1 }).chain([Call::Size]).collect()
    }

    fn perform(&mut self, call: &Call) -> Result<Answer> {
        match call {
            Call::Write { at, tag, .. } => {
                self.file.write_all_at(&Self::page(*tag).0, (at * UNIT) as u64)?;
                Ok(Answer::Done)
            }
            Call::Append { tag, .. } => {
                self.append.write_all(&Self::page(*tag).0)?;
                Ok(Answer::Done)
            }
            Call::Truncate { units } => self.file.set_len((units * UNIT) as u64).map(|()| Answer::Done),
            Call::Size => {
                let bytes = self.file.metadata()?.len() as usize;
                Ok(if bytes.is_multiple_of(UNIT) {
                    Answer::Size(bytes / UNIT)
                } else {
                    Answer::Torn(format!("{bytes} bytes long"))
                })
            }
            Call::Read { at, .. } => {
                let mut page = Self::page(0);
                let len = self.file.read_at(&mut page.0, (at * UNIT) as u64)?;
                Ok(match len {
                    0 => Answer::Units(Vec::new()),
                    _ => tag_of(&page.0[..len]).map_or_else(Answer::Torn, |tag| Answer::Units(vec![tag])),
                })
            }
        }
    }
}
