//! Packs to be checked again, and when.

use std::collections::{BTreeMap, BTreeSet};

use braid_base::ids::PackId;

/// What cannot be checked yet is looked at again after this, milliseconds: there may be very many of them.
const LOOK_MS: u64 = 1_000;

/// What is to become of a pack whose time has come.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Turn {
    /// It is checked.
    Now,
    /// It cannot be checked yet.
    Later,
    /// Nothing is to be checked there any more.
    Never,
}

/// The packs, by number and by time.
#[derive(Default)]
pub(super) struct Again {
    packs: BTreeMap<PackId, When>,
    order: BTreeSet<(u64, PackId)>,
}

#[derive(Clone, Copy)]
struct When {
    due_ms: u64,
    /// Not while a drive of it is away.
    all: bool,
}

impl Again {
    pub fn is_empty(&self) -> bool {
        self.packs.is_empty()
    }

    /// `pack` is to be checked again; `all`: once all of its drives are there. What was wanted before holds as well.
    pub fn add(&mut self, pack: PackId, due_ms: u64, all: bool) {
        let when = self.packs.entry(pack).or_insert(When { due_ms, all });
        self.order.remove(&(when.due_ms, pack));
        *when = When { due_ms: when.due_ms.min(due_ms), all: when.all && all };
        self.order.insert((when.due_ms, pack));
    }

    /// The pack that has waited longest of those whose time has come, which is no longer among them. `turn` says of a pack,
    /// and whether all of its drives are to be there, what becomes of it; those of which it says `Never` go to `gone`.
    pub fn take(
        &mut self,
        now_ms: u64,
        turn: impl Fn(PackId, bool) -> Turn,
        mut gone: impl FnMut(PackId),
    ) -> Option<PackId> {
        while let Some((due_ms, pack)) = self.order.first().copied().filter(|(due_ms, _)| *due_ms <= now_ms) {
            self.order.remove(&(due_ms, pack));
            let Some(when) = self.packs.get_mut(&pack) else { continue };
            match turn(pack, when.all) {
                Turn::Later => {
                    when.due_ms = now_ms + LOOK_MS;
                    self.order.insert((when.due_ms, pack));
                }
                Turn::Now => {
                    self.packs.remove(&pack);
                    return Some(pack);
                }
                Turn::Never => {
                    self.packs.remove(&pack);
                    gone(pack);
                }
            }
        }
        None
    }
}
