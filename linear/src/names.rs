//! Names of files in a few directories.

use std::collections::BTreeMap;

use braid_base::ids::Ino;
use braid_base::msg::fs::RenameMode;

use super::{Entry, History, State};

/// A directory and a name in it, by number.
pub type Place = (usize, usize);

/// What a name stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Thing {
    /// This inode.
    Known(Ino),
    /// What the creation of this number made, which nobody saw yet.
    MadeBy(u32),
}

/// The names that there are.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Names(pub BTreeMap<Place, Thing>);

/// A call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Call {
    /// Creation number `serial`, which must be the one that makes it.
    Create { at: Place, serial: u32 },
    /// Which inode?
    Lookup(Place),
    /// Remove.
    Unlink(Place),
    /// Rename; the two are not the same.
    Rename { from: Place, to: Place, mode: RenameMode },
    /// A file that was made goes again, because the cluster never heard of it.
    Unmake { at: Place, ino: Ino },
    /// A file that was removed is there again.
    Restore { at: Place, ino: Ino },
}

/// An answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    /// The inode that was made, found or removed.
    Ino(Ino),
    /// What was moved, and what was replaced or has the old name now.
    Moved(Ino, Option<Ino>),
    /// Removed or moved, and nothing was said of inodes, as programs are told.
    Done,
    /// Moved, or nothing was to be done ([`History::of_kernels`]).
    DoneOrSame,
    /// A name is not there.
    Missing,
    /// A name is there.
    Exists,
    /// Refused for want of room.
    NoRoom,
}

impl Names {
    /// The same, and `place` stands for `ino`, if it can.
    fn with(&self, place: Place, ino: Ino) -> Option<Self> {
        match self.0.get(&place)? {
            Thing::Known(known) => (*known == ino).then(|| self.clone()),
            Thing::MadeBy(_) if self.0.values().any(|thing| *thing == Thing::Known(ino)) => None,
            Thing::MadeBy(_) => Some(self.put(place, Thing::Known(ino))),
        }
    }

    fn put(&self, place: Place, thing: Thing) -> Self {
        let mut all = self.clone();
        all.0.insert(place, thing);
        all
    }

    fn has(&self, place: Place) -> bool {
        self.0.contains_key(&place)
    }

    fn rename(&self, from: Place, to: Place, mode: RenameMode) -> Option<Self> {
        let (moved, other) = (*self.0.get(&from)?, self.0.get(&to).copied());
        let mut all = self.put(to, moved);
        all.0.remove(&from);
        match (mode, other) {
            (RenameMode::NoReplace, Some(_)) | (RenameMode::Exchange, None) => return None,
            (RenameMode::Exchange, Some(other)) => all = all.put(from, other),
            _ => {}
        }
        Some(all)
    }
}

impl State for Names {
    type Call = Call;
    type Answer = Answer;

    fn step(&self, call: &Call, answer: Option<&Answer>) -> Option<Self> {
        let same = |yes: bool| yes.then(|| self.clone());
        match (call, answer) {
            (_, Some(Answer::NoRoom)) => same(true),
            (Call::Create { at, .. }, Some(Answer::Ino(ino))) => {
                let new = !self.has(*at) && !self.0.values().any(|thing| *thing == Thing::Known(*ino));
                new.then(|| self.put(*at, Thing::Known(*ino)))
            }
            (Call::Create { at, serial }, None) if !self.has(*at) => Some(self.put(*at, Thing::MadeBy(*serial))),
            (Call::Create { at, .. }, Some(Answer::Exists)) => same(self.has(*at)),
            (Call::Lookup(at), Some(Answer::Ino(ino))) => self.with(*at, *ino),
            (Call::Lookup(at) | Call::Unlink(at), Some(Answer::Missing)) => same(!self.has(*at)),
            (Call::Unlink(at), Some(Answer::Done)) if !self.has(*at) => None,
            (Call::Unlink(at), Some(Answer::Ino(_) | Answer::Done) | None) => {
                let mut all = match answer {
                    Some(Answer::Ino(ino)) => self.with(*at, *ino)?,
                    _ => self.clone(),
                };
                all.0.remove(at);
                Some(all)
            }
            (Call::Rename { from, to, mode }, Some(Answer::Moved(moved, other))) => {
                let known = self.with(*from, *moved)?;
                let known = match other {
                    Some(other) => known.with(*to, *other)?,
                    None if known.has(*to) => return None,
                    None => known,
                };
                known.rename(*from, *to, *mode)
            }
            (Call::Rename { from, to, mode }, Some(Answer::Done | Answer::DoneOrSame)) => {
                self.rename(*from, *to, *mode)
            }
            (Call::Rename { from, to, mode }, None) => Some(self.rename(*from, *to, *mode).unwrap_or(self.clone())),
            (Call::Rename { from, to, mode }, Some(Answer::Missing)) => {
                same(!self.has(*from) || (*mode == RenameMode::Exchange && !self.has(*to)))
            }
            // Where both names are wrong, either may be told.
            (Call::Rename { to, mode, .. }, Some(Answer::Exists)) => {
                same(*mode == RenameMode::NoReplace && self.has(*to))
            }
            (Call::Unmake { at, ino }, None) if self.0.get(at) == Some(&Thing::Known(*ino)) => {
                let mut all = self.clone();
                all.0.remove(at);
                Some(all)
            }
            (Call::Restore { at, ino }, None) if !self.has(*at) => {
                let elsewhere = self.0.values().any(|thing| *thing == Thing::Known(*ino));
                Some(if elsewhere { self.clone() } else { self.put(*at, Thing::Known(*ino)) })
            }
            (Call::Create { .. } | Call::Lookup(_) | Call::Unmake { .. } | Call::Restore { .. }, None) => same(true),
            _ => None,
        }
    }

    fn else_step(&self, call: &Call, answer: Option<&Answer>) -> Option<Self> {
        let Call::Rename { to, .. } = call else { return None };
        (answer == Some(&Answer::DoneOrSame) && self.has(*to)).then(|| self.clone())
    }

    fn looks(call: &Call, answer: Option<&Answer>) -> bool {
        let refused = matches!(answer, Some(Answer::Missing | Answer::Exists | Answer::NoRoom));
        matches!(call, Call::Lookup(_)) || refused
    }
}

impl History<Names> {
    /// What was told by kernels, which look both names of a rename up, one after the other, before they ask. Whoever moves
    /// the file to the second one in between has them see one file under both, and then nothing is to be done (POSIX).
    pub fn of_kernels(&mut self) {
        let brings = |call: &Call, place: Place| match call {
            Call::Rename { from, to, mode } => *to == place || (*from == place && *mode == RenameMode::Exchange),
            _ => false,
        };
        let may_be_same = |entry: &Entry<Names>| match (&entry.call, &entry.answer) {
            // It would have said that the name is there.
            (Call::Rename { mode: RenameMode::NoReplace, .. }, _) => false,
            (Call::Rename { to, .. }, Some(Answer::Done)) => {
                let comes =
                    |other: &Entry<Names>| other.who != entry.who && brings(&other.call, *to) && other.overlaps(entry);
                self.entries.iter().any(comes)
            }
            _ => false,
        };
        let same: Vec<usize> = (0..self.entries.len()).filter(|at| may_be_same(&self.entries[*at])).collect();
        for at in same {
            self.entries[at].answer = Some(Answer::DoneOrSame);
        }
    }
}
