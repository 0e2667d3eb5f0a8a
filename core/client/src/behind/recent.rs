//! What is remembered of files for a while: where their last small write ended, and how they looked after the last
//! flight. Bounded, and forgotten by and by.

use std::collections::HashMap;

use braid_base::attr::Attr;
use braid_base::ids::Ino;

/// Files remembered of each generation; two are kept.
const FILES_MAX: usize = 4_096;

#[derive(Default)]
pub(super) struct Recent {
    ends: Aging<u64>,
    attrs: Aging<Attr>,
}

impl Recent {
    /// True if the last write of `ino` that went alone ended at `off`.
    pub(super) fn follows(&self, ino: Ino, off: u64) -> bool {
        self.ends.get(ino) == Some(&off)
    }

    /// A write that went alone ended at `end`.
    pub(super) fn wrote(&mut self, ino: Ino, end: u64) {
        self.ends.put(ino, end);
    }

    /// A flight of the file made it look like `attr`.
    pub(super) fn committed(&mut self, attr: Attr) {
        if self.attrs.get(attr.ino).is_none_or(|known| known.change < attr.change) {
            self.attrs.put(attr.ino, attr);
        }
    }

    /// How the file looked after a flight, if that is newer than `attr`.
    pub(super) fn newer(&self, attr: &Attr) -> Option<Attr> {
        self.attrs.get(attr.ino).filter(|known| known.change > attr.change).cloned()
    }
}

/// Two generations: when the young one is full, it becomes the old one, and the old one is forgotten.
struct Aging<T> {
    young: HashMap<Ino, T>,
    old: HashMap<Ino, T>,
}

impl<T> Default for Aging<T> {
    fn default() -> Self {
        Self { young: HashMap::new(), old: HashMap::new() }
    }
}

impl<T> Aging<T> {
    fn get(&self, ino: Ino) -> Option<&T> {
        self.young.get(&ino).or_else(|| self.old.get(&ino))
    }

    fn put(&mut self, ino: Ino, value: T) {
        if self.young.len() >= FILES_MAX {
            self.old = std::mem::take(&mut self.young);
        }
        self.young.insert(ino, value);
    }
}
