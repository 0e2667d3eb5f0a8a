//! What was promised about names, as far as it bears on the directories that they are in.

use braid_base::attr::{Attr, FileType, Time};
use braid_base::ids::Ino;

use super::{Held, Promise, Promises, What};

/// What was promised about names in a directory.
#[derive(Default)]
pub(super) struct OfDir {
    /// How many promises.
    pub(super) count: u32,
    /// Of these, how many are files that were made.
    pub(super) made: u32,
    /// Of these, how many are directories that were removed.
    pub(super) dirs: u32,
    /// When the last one was made.
    pub(super) at: Time,
    /// As long as such removals are open: how it looks to programs, but for its times. Its links are fewer than the
    /// partition has counted. `None` if that is not known.
    pub(super) looks: Option<Attr>,
}

/// What was promised, for who is about to promise more.
pub(crate) struct Told<'a>(pub(super) &'a Held);

impl Told<'_> {
    /// True if the last that was promised about this name is that it is gone.
    pub(crate) fn is_gone(&self, dir: Ino, name: &[u8]) -> bool {
        self.0.told(dir, name) == Some(None)
    }

    /// True if there may come to be names in `dir` that no lease says: a file that was made has not landed, whatever became
    /// of it since, or its partition is being asked to change it.
    pub(crate) fn may_fill(&self, dir: Ino) -> bool {
        self.0.changing.contains_key(&dir) || self.0.dirs.get(&dir).is_some_and(|of_dir| of_dir.made > 0)
    }
}

impl Promises {
    /// If directories in `dir` were removed and its partition has not heard of all of them: how it looks but for its times;
    /// `Some(None)`: the partition has to be asked when it has heard of them. It has fewer links than was said of it last.
    pub(crate) fn losing_dirs(&self, dir: Ino) -> Option<Option<Attr>> {
        let held = self.held();
        held.dirs.get(&dir).filter(|of_dir| of_dir.dirs > 0).map(|of_dir| of_dir.looks.clone())
    }

    /// True if it is the removal of a directory, or comes after one of the same name.
    pub(crate) fn waits_for_dir(&self, id: u64) -> bool {
        let held = self.held();
        let Some(Promise { dir, name, .. }) = held.open.get(&id).map(|entry| &entry.promise) else { return false };
        let of_name = held.names.get(&(*dir, name.clone())).into_iter().flatten();
        let is_dir = |id: &u64| held.open.get(id).is_some_and(|entry| entry.promise.is_dir());
        of_name.take_while(|other| **other <= id).any(is_dir)
    }

    /// Others may change `dir` though directories that were removed from it may still be there.
    pub(crate) fn shared_early(&self, dir: Ino) {
        if let Some(of_dir) = self.held().dirs.get_mut(&dir) {
            of_dir.looks = None;
        }
    }
}

impl Promise {
    /// True if it is about a directory.
    pub(crate) fn is_dir(&self) -> bool {
        self.file.kind == FileType::Directory
    }
}

impl OfDir {
    /// A promise was made (1) or is over (-1).
    pub(super) fn count(&mut self, promise: &Promise, by: i32) {
        let is_made = matches!(promise.what, What::Made { .. });
        let is_dir = promise.is_dir();
        if is_dir && by > 0 && self.dirs == 0 {
            self.looks.clone_from(&promise.parent);
        }
        if let Some(looks) = self.looks.as_mut().filter(|_| is_dir && by > 0) {
            looks.nlink = looks.nlink.saturating_sub(1);
        }
        for (count, counts) in [(&mut self.count, true), (&mut self.made, is_made), (&mut self.dirs, is_dir)] {
            *count = count.saturating_add_signed(if counts { by } else { 0 });
        }
        if self.dirs == 0 {
            self.looks = None;
        }
    }
}
