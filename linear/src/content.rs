//! The content of one file, in units of equal length, each with the number of the write that it is from.

use super::State;

/// The units of the file; 0 is a hole.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Content(pub Vec<u32>);

/// A call. Places and lengths in units.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Call {
    /// Write number `tag` at a place.
    Write { at: usize, units: usize, tag: u32 },
    /// Write number `tag` at the end.
    Append { units: usize, tag: u32 },
    /// Read up to so many units.
    Read { at: usize, units: usize },
    /// Ask for the size.
    Size,
    /// Cut or extend.
    Truncate { units: usize },
}

/// An answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    /// Done; an append is not told where.
    Done,
    /// An append landed at this unit.
    At(usize),
    /// What was read.
    Units(Vec<u32>),
    /// The size in units.
    Size(usize),
    /// What no write made: units by half, or of two writes.
    Torn(String),
    /// Refused for want of room.
    NoRoom,
}

impl State for Content {
    type Call = Call;
    type Answer = Answer;

    fn step(&self, call: &Call, answer: Option<&Answer>) -> Option<Self> {
        if answer == Some(&Answer::NoRoom) {
            return Some(self.clone());
        }
        let size = self.0.len();
        let with = |at: usize, units: usize, tag: u32| {
            let mut all = self.0.clone();
            all.resize(size.max(at + units), 0);
            all[at..at + units].fill(tag);
            Some(Self(all))
        };
        match (call, answer) {
            (Call::Write { at, units, tag }, Some(Answer::Done) | None) => with(*at, *units, *tag),
            (Call::Append { units, tag }, Some(Answer::Done) | None) => with(size, *units, *tag),
            (Call::Append { units, tag }, Some(Answer::At(at))) if *at == size => with(size, *units, *tag),
            (Call::Truncate { units }, Some(Answer::Done) | None) => {
                let mut all = self.0.clone();
                all.resize(*units, 0);
                Some(Self(all))
            }
            (Call::Read { at, units }, Some(Answer::Units(found))) => {
                let range = size.min(*at)..size.min(at + units);
                (self.0[range] == found[..]).then(|| self.clone())
            }
            (Call::Size, Some(Answer::Size(found))) => (*found == size).then(|| self.clone()),
            _ => None,
        }
    }

    fn looks(call: &Call, answer: Option<&Answer>) -> bool {
        matches!(call, Call::Read { .. } | Call::Size) || answer == Some(&Answer::NoRoom)
    }
}
