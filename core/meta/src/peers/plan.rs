//! What an operation that may span partitions must change, and what must be known to say so.
//!
//! Planning is a function of the view, the facts heard so far and the request; it is simply run again when
//! another fact has arrived. It changes nothing.

use std::collections::BTreeMap;

use braid_base::attr::FileType;
use braid_base::ids::{FsId, Ino, PartitionId};
use braid_base::msg::fs::{Name, Reply};
use braid_base::msg::peer::{Answer, Intent, Note, Question};
use braid_base::{Error, ErrorKind};

use crate::peers::{home, party};
use crate::state::State;
use crate::txn::Txn;

/// The changes of one operation.
#[derive(Clone, Debug)]
pub(crate) struct Plan {
    /// What each partition must promise, in the order in which it is carried out.
    pub(crate) parts: BTreeMap<PartitionId, Vec<Intent>>,
    /// What follows and cannot fail.
    pub(crate) notes: Vec<Note>,
    /// The client's answer; an entry is completed with the inode that was made or linked.
    pub(crate) reply: Reply,
    /// It is only to be found out if all this is so at one moment: then the operation fails like this.
    pub(crate) refusal: Option<Error>,
    /// A directory gets another parent: no other such move may run until all of this one is done.
    pub(crate) moves: bool,
}

/// Why planning cannot go on.
#[derive(Debug)]
pub(crate) enum Stop {
    /// The operation fails.
    Fail(Error),
    /// This must be asked first.
    Ask(PartitionId, Question),
    /// It must be this operation's turn to move directories.
    Turn,
    /// The home partition must coordinate it.
    Home,
}

/// Answers of other partitions.
pub(crate) type Facts = Vec<(Question, Answer)>;

/// What planning may look at.
pub(crate) struct View<'v, 't> {
    pub(crate) t: &'v Txn<'t>,
    pub(crate) s: &'v State,
    pub(crate) fs: FsId,
    pub(crate) facts: &'v Facts,
    /// It is this operation's turn to move directories.
    pub(crate) has_turn: bool,
}

impl From<Error> for Stop {
    fn from(error: Error) -> Self {
        Self::Fail(error)
    }
}

impl Plan {
    /// No changes, and this answer.
    pub(crate) fn new(reply: Reply) -> Self {
        Self { parts: BTreeMap::new(), notes: Vec::new(), reply, refusal: None, moves: false }
    }

    /// Adds a change.
    pub(crate) fn add(&mut self, at: PartitionId, intent: Intent) {
        self.parts.entry(at).or_default().push(intent);
    }
}

impl View<'_, '_> {
    /// The partition of an inode.
    pub(crate) fn home_of(&self, ino: Ino) -> PartitionId {
        ino.partition(self.t.partitions)
    }

    /// The quota id of `dir`, and what `name` in it stands for.
    pub(crate) fn name(&self, dir: Ino, name: &Name) -> Result<(u64, Option<(Ino, FileType)>), Stop> {
        match self.ask(dir, Question::Name { dir, name: name.clone() })? {
            Answer::Name { quota, entry } => Ok((quota, entry)),
            Answer::Parent(_) => Err(confused()),
        }
    }

    /// The parent of `dir`.
    pub(crate) fn parent(&self, dir: Ino) -> Result<Ino, Stop> {
        match self.ask(dir, Question::Parent { dir })? {
            Answer::Parent(parent) => Ok(parent),
            Answer::Name { .. } => Err(confused()),
        }
    }

    /// Goes on only where, and when, a directory may get another parent.
    pub(crate) fn turn(&self, fs: FsId) -> Result<(), Stop> {
        if home(fs, self.t.partitions) != self.t.partition {
            return Err(Stop::Home);
        }
        if !self.has_turn {
            return Err(Stop::Turn);
        }
        Ok(())
    }

    fn ask(&self, dir: Ino, question: Question) -> Result<Answer, Stop> {
        let at = self.home_of(dir);
        if at == self.t.partition {
            return Ok(party::answer(self.t, self.s, self.fs, &question)?);
        }
        match self.facts.iter().find(|(asked, _)| *asked == question) {
            Some((_, answer)) => Ok(*answer),
            None => Err(Stop::Ask(at, question)),
        }
    }
}

fn confused() -> Stop {
    Error::new(ErrorKind::Corrupt, "another partition answered a question that was not asked").into()
}
