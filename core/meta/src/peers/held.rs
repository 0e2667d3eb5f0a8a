//! Names and inodes that operations across partitions hold: who may look, who may change.
//!
//! A participant's hold (`promised`) is backed by table 30: whether it takes effect is decided elsewhere, so
//! nobody may look. A coordinator's own hold is volatile: the old state is the truth until its entry, so
//! looking is fine and only changes must wait. Nobody queues here: a conflict is `Busy`, and the client (or
//! the coordinator, for its client) repeats, so there is no deadlock.

use std::collections::BTreeMap;

use braid_base::attr::FileType;
use braid_base::ids::{FsId, Ino, OpId};
use braid_base::keys;
use braid_base::msg::fs::Name;
use braid_base::msg::peer::Intent;
use braid_base::{Error, ErrorKind, Result};

/// All holds of a partition.
#[derive(Default)]
pub struct Held {
    names: BTreeMap<(FsId, Ino, Name), Hold>,
    inodes: BTreeMap<(FsId, Ino), Vec<(Hold, Use)>>,
    /// Test switch: look at promised names all the same.
    pub(crate) blind: bool,
}

#[derive(Clone, Copy)]
struct Hold {
    tx: OpId,
    promised: bool,
}

/// What an operation does with an inode.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Use {
    /// Changes names in it.
    Names,
    /// Changes names of directories in it: its link count changes.
    Subdirectories,
    /// Counts a link.
    Link,
    /// Gives it another parent.
    Move,
    /// Removes it.
    Remove,
}

impl Held {
    /// `Busy` if someone decides elsewhere what this name stands for.
    pub(crate) fn may_see(&self, fs: FsId, dir: Ino, name: &[u8]) -> Result<()> {
        self.free(self.names.is_empty() || !self.name(fs, dir, name).is_some_and(|hold| hold.promised && !self.blind))
    }

    /// `Busy` if any operation across partitions is about to change this name.
    pub(crate) fn may_change(&self, fs: FsId, dir: Ino, name: &[u8]) -> Result<()> {
        self.free(self.names.is_empty() || self.name(fs, dir, name).is_none())
    }

    /// `Busy` if the link count or the parent of the inode is being decided elsewhere.
    pub(crate) fn may_stat(&self, fs: FsId, ino: Ino) -> Result<()> {
        let shows = |(hold, how): &(Hold, Use)| hold.promised && *how != Use::Names && !self.blind;
        self.free(!self.uses(fs, ino).iter().any(shows))
    }

    /// `Busy` if the directory is about to go.
    pub(crate) fn may_add(&self, fs: FsId, dir: Ino) -> Result<()> {
        self.free(!self.uses(fs, dir).iter().any(|(_, how)| *how == Use::Remove))
    }

    /// True if any operation across partitions is about to change the inode, or a name in it.
    pub(crate) fn is_used(&self, fs: FsId, ino: Ino) -> bool {
        !self.uses(fs, ino).is_empty()
    }

    /// The cookie before which a listing that is at `cookie` must stop.
    pub(crate) fn first_hidden(&self, fs: FsId, dir: Ino, cookie: u64) -> Option<u64> {
        if self.names.is_empty() || self.blind {
            return None;
        }
        let promised = self.names.range((fs, dir, Name::new())..(fs, Ino(dir.0 + 1), Name::new()));
        let promised = promised.filter(|(_, hold)| hold.promised).map(|((_, _, name), _)| keys::name_cookie(name));
        // The name may stand at any of the 256 cookies of its hash.
        promised.filter(|first| first + 255 > cookie).min()
    }

    /// `Busy` if another operation than `tx` holds what the intent needs.
    pub(crate) fn may_hold(&self, tx: OpId, fs: FsId, intent: &Intent) -> Result<()> {
        if let Some((dir, name)) = name_of(intent) {
            self.free(self.name(fs, dir, name).is_none_or(|hold| hold.tx == tx))?;
        }
        let Some((ino, how)) = use_of(intent) else { return Ok(()) };
        let others = self.uses(fs, ino).iter().filter(|(hold, _)| hold.tx != tx);
        self.free(others.map(|(_, other)| *other).all(|other| !clash(how, other)))
    }

    /// Holds what the intent needs; the caller has asked [`Held::may_hold`].
    pub(crate) fn hold(&mut self, tx: OpId, promised: bool, fs: FsId, intent: &Intent) {
        let hold = Hold { tx, promised };
        if let Some((dir, name)) = name_of(intent) {
            self.names.insert((fs, dir, name.clone()), hold);
        }
        if let Some((ino, how)) = use_of(intent) {
            self.inodes.entry((fs, ino)).or_default().push((hold, how));
        }
    }

    /// Gives up what the intent needed.
    pub(crate) fn release(&mut self, tx: OpId, fs: FsId, intent: &Intent) {
        if let Some((dir, name)) = name_of(intent) {
            let key = (fs, dir, name.clone());
            if self.names.get(&key).is_some_and(|hold| hold.tx == tx) {
                self.names.remove(&key);
            }
        }
        if let Some((ino, _)) = use_of(intent)
            && let Some(uses) = self.inodes.get_mut(&(fs, ino))
        {
            uses.retain(|(hold, _)| hold.tx != tx);
            if uses.is_empty() {
                self.inodes.remove(&(fs, ino));
            }
        }
    }

    /// True if nothing is held.
    pub(crate) fn is_empty(&self) -> bool {
        self.names.is_empty() && self.inodes.is_empty()
    }

    fn name(&self, fs: FsId, dir: Ino, name: &[u8]) -> Option<Hold> {
        self.names.get(&(fs, dir, name.to_vec())).copied()
    }

    fn uses(&self, fs: FsId, ino: Ino) -> &[(Hold, Use)] {
        self.inodes.get(&(fs, ino)).map_or(&[], Vec::as_slice)
    }

    fn free(&self, free: bool) -> Result<()> {
        if free {
            return Ok(());
        }
        Err(Error::new(ErrorKind::Busy, "an operation across partitions holds this; try again"))
    }
}

fn name_of(intent: &Intent) -> Option<(Ino, &Name)> {
    match intent {
        Intent::Clear { dir, name, .. } | Intent::Set { dir, name, .. } => Some((*dir, name)),
        _ => None,
    }
}

fn use_of(intent: &Intent) -> Option<(Ino, Use)> {
    let names = |is_dir| if is_dir { Use::Subdirectories } else { Use::Names };
    match intent {
        Intent::Clear { dir, kind, .. } => Some((*dir, names(*kind == FileType::Directory))),
        Intent::Set { dir, old, kind, .. } => {
            let counts = |kind| u32::from(kind == FileType::Directory);
            Some((*dir, names(counts(*kind) != old.map_or(0, |(_, kind)| counts(kind)))))
        }
        Intent::Link { ino, .. } => Some((*ino, Use::Link)),
        Intent::Reparent { ino, .. } => Some((*ino, Use::Move)),
        Intent::RemoveDir { ino } => Some((*ino, Use::Remove)),
        // Nobody knows its number before the decision.
        Intent::MakeDir(_) | Intent::Wanted { .. } => None,
    }
}

/// True if two operations cannot use the same inode so at the same time. Two links could, but the answer of one
/// would count the other, which may be an attempt that is about to be undone.
fn clash(one: Use, other: Use) -> bool {
    let one_at_a_time = matches!(one, Use::Link | Use::Move) && one == other;
    one == Use::Remove || other == Use::Remove || one_at_a_time
}
