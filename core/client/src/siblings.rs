//! Directories ahead of need: a program that walks through a tree (`grep -r`, `tar`, a training run) waits in each
//! directory for its first names and bytes, before any of them say that more will be wanted. What it enters next can be
//! told from what it has entered so far: directories of one parent come in the order of their names or in that of the
//! listing. As long as one of the two was right the last time, those that follow by it are fetched.

use std::collections::{BTreeMap, HashMap};
use std::ops::Bound::{Excluded, Unbounded};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard};

use braid_base::ids::Ino;

/// Directories whose place is remembered; beyond, all start afresh.
const DIRS_MAX: usize = 1 << 16;
/// So many directories can be in use at a time without being looked for each time.
const SLOTS: usize = 32;
/// So many directories are fetched ahead when as many were foreseen.
const AHEAD_MAX: usize = 4;

/// Where a directory was listed, and as what.
struct Place {
    parent: Ino,
    name: Vec<u8>,
    cookie: u64,
    /// It is likely to be emptied and removed.
    goes: bool,
}

/// An order in which the directories of one parent may be entered.
struct Order<K> {
    dirs: BTreeMap<K, Ino>,
    /// What comes next by it.
    foreseen: Option<Ino>,
    /// How often in a row that was right.
    right: usize,
}

/// The directories of one parent.
#[derive(Default)]
struct Family {
    by_name: Order<Vec<u8>>,
    by_cookie: Order<u64>,
    /// The one that was entered last.
    last: Option<Ino>,
    /// It was removed again.
    is_removed: bool,
}

/// Directories that are likely to be entered.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Foreseen {
    pub(crate) dirs: Vec<Ino>,
    /// They are likely to be emptied and removed.
    pub(crate) removes: bool,
}

#[derive(Default)]
struct Held {
    places: HashMap<Ino, Place>,
    families: HashMap<Ino, Family>,
}

/// What was listed and entered.
#[derive(Default)]
pub(crate) struct Siblings {
    /// Directories in use, each in the slot that its number says; 0: none. Several programs take turns.
    recent: [AtomicU64; SLOTS],
    held: Mutex<Held>,
}

impl Siblings {
    /// A directory was found in `parent` under this name and cookie.
    pub(crate) fn listed(&self, parent: Ino, name: &[u8], cookie: u64, ino: Ino) {
        let Held { places, families } = &mut *self.held();
        if places.len() >= DIRS_MAX {
            places.clear();
            families.clear();
        }
        let place = Place { parent, name: name.to_vec(), cookie, goes: false };
        if let Some(before) = places.insert(ino, place)
            && (before.parent, &before.name[..]) != (parent, name)
            && let Some(family) = families.get_mut(&before.parent)
        {
            family.by_name.dirs.remove(&before.name);
            family.by_cookie.dirs.remove(&before.cookie);
        }
        let family = families.entry(parent).or_default();
        family.by_name.dirs.insert(name.to_vec(), ino);
        family.by_cookie.dirs.insert(cookie, ino);
    }

    /// Names in `dir` are wanted: which directories are likely to be next.
    pub(crate) fn used(&self, dir: Ino) -> Foreseen {
        // Numbers of one parent's directories differ anywhere: the multiplication spreads all bits.
        let slot = (dir.0.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 32) as usize % SLOTS;
        if self.recent[slot].swap(dir.0, Ordering::Relaxed) == dir.0 {
            return Foreseen::default();
        }
        self.entered(dir).unwrap_or_default()
    }

    fn entered(&self, dir: Ino) -> Option<Foreseen> {
        let Held { places, families } = &mut *self.held();
        let place = places.get_mut(&dir)?;
        let family = families.get_mut(&place.parent)?;
        if family.last.replace(dir) == Some(dir) {
            return None;
        }
        let removes = std::mem::take(&mut family.is_removed);
        place.goes = removes;
        family.by_name.entered(dir, &place.name);
        family.by_cookie.entered(dir, &place.cookie);
        let dirs = if family.by_name.right >= family.by_cookie.right {
            family.by_name.next(&place.name)
        } else {
            family.by_cookie.next(&place.cookie)
        };
        Some(Foreseen { dirs, removes })
    }

    /// `dir` was removed from `parent`.
    pub(crate) fn removed(&self, parent: Ino, dir: Ino) {
        let Held { places, families } = &mut *self.held();
        if places.get(&dir).is_none_or(|place| place.parent != parent) {
            return;
        }
        let Some(place) = places.remove(&dir) else { return };
        let Some(family) = families.get_mut(&parent) else { return };
        family.is_removed |= family.last == Some(dir);
        family.by_name.dirs.remove(&place.name);
        family.by_cookie.dirs.remove(&place.cookie);
    }

    /// Whether `dir` is likely to be emptied and removed: the one before it was.
    pub(crate) fn goes(&self, dir: Ino) -> bool {
        self.held().places.get(&dir).is_some_and(|place| place.goes)
    }

    /// Where `dir` was listed last, and under which name.
    pub(crate) fn place(&self, dir: Ino) -> Option<(Ino, Vec<u8>)> {
        self.held().places.get(&dir).map(|place| (place.parent, place.name.clone()))
    }

    /// `parent` changes: what was listed is no longer known.
    pub(crate) fn forget(&self, parent: Ino) {
        let Held { places, families } = &mut *self.held();
        for dir in families.remove(&parent).into_iter().flat_map(|family| family.by_name.dirs.into_values()) {
            places.remove(&dir);
        }
    }

    fn held(&self) -> MutexGuard<'_, Held> {
        self.held.lock().expect("nothing panics while it holds the directories")
    }
}

impl<K> Default for Order<K> {
    fn default() -> Self {
        Self { dirs: BTreeMap::new(), foreseen: None, right: 0 }
    }
}

impl<K: Ord + Clone> Order<K> {
    /// The directory at this place is entered.
    fn entered(&mut self, dir: Ino, at: &K) {
        self.right = if self.foreseen == Some(dir) { self.right + 1 } else { 0 };
        let next = self.after(at).next();
        self.foreseen = next;
    }

    /// Those behind this place, as many as were foreseen in a row.
    fn next(&self, at: &K) -> Vec<Ino> {
        self.after(at).take(self.right.min(AHEAD_MAX)).collect()
    }

    fn after(&self, at: &K) -> impl Iterator<Item = Ino> {
        self.dirs.range((Excluded(at), Unbounded)).map(|(_, dir)| *dir)
    }
}

#[cfg(test)]
mod tests {
    use braid_base::ids::Ino;

    use super::{AHEAD_MAX, DIRS_MAX, Foreseen, Siblings};

    const PARENT: Ino = Ino(1);

    /// Directories 100..100+`count`, named in that order and listed in another.
    fn listed(count: u64) -> Siblings {
        let siblings = Siblings::default();
        for n in 0..count {
            siblings.listed(PARENT, format!("{n:05}").as_bytes(), 1 + n * 71 % count, Ino(100 + n));
        }
        siblings
    }

    /// Enters directories in this order; how many of them came as foreseen, and how many were foreseen in all.
    fn walk(siblings: &Siblings, order: impl Iterator<Item = u64>) -> (u64, usize) {
        let (mut foreseen, mut right, mut count) = (std::collections::BTreeSet::new(), 0, 0);
        for n in order {
            siblings.used(PARENT);
            right += u64::from(foreseen.contains(&Ino(100 + n)));
            for dir in siblings.used(Ino(100 + n)).dirs {
                count += usize::from(foreseen.insert(dir));
            }
            assert!(siblings.used(Ino(100 + n)).dirs.is_empty(), "it is the same one");
        }
        (right, count)
    }

    #[test]
    fn a_walk_by_name_or_in_the_order_of_the_listing_is_foreseen() {
        let (right, count) = walk(&listed(100), 0..100);
        assert_eq!((right, count), (98, 98));
        // By cookie: 71 * n % 100 ascends, and 71 * 31 % 100 is 1.
        let (right, count) = walk(&listed(100), (0..100).map(|n| n * 31 % 100));
        assert_eq!((right, count), (98, 98));
    }

    #[test]
    fn what_is_entered_in_no_order_fetches_hardly_anything() {
        let (_, count) = walk(&listed(1_000), (0..1_000).map(|n| n * n * 7 % 1_000));
        assert!(count <= 100, "{count}");
        let siblings = listed(10);
        assert!([3, 7, 1].iter().all(|n| siblings.used(Ino(100 + n)).dirs.is_empty()));
        assert!(siblings.used(Ino(5)).dirs.is_empty(), "never listed");
    }

    #[test]
    fn few_at_first_then_more_and_none_beyond_the_end() {
        let siblings = listed(100);
        let ahead: Vec<usize> = (0..8).map(|n| siblings.used(Ino(100 + n)).dirs.len()).collect();
        assert_eq!(ahead, [0, 1, 2, 3, AHEAD_MAX, AHEAD_MAX, AHEAD_MAX, AHEAD_MAX]);
        (8..99).for_each(|n| _ = siblings.used(Ino(100 + n)));
        assert!(siblings.used(Ino(199)).dirs.is_empty());
    }

    #[test]
    fn who_removes_what_he_entered_is_likely_to_go_on() {
        let siblings = listed(10);
        for n in 0..8 {
            let Foreseen { dirs, removes } = siblings.used(Ino(100 + n));
            assert_eq!((removes, dirs.contains(&Ino(101 + n))), (n > 0, n > 0), "{n}");
            assert_eq!(siblings.goes(Ino(100 + n)), n > 0, "{n}");
            siblings.removed(PARENT, Ino(100 + n));
        }
        siblings.used(Ino(108));
        assert!(!siblings.used(Ino(109)).removes, "the last one is still there");
        assert!(siblings.goes(Ino(108)) && !siblings.goes(Ino(109)));
        assert_eq!(siblings.held().places.len(), 2);
    }

    #[test]
    fn what_has_moved_or_was_forgotten_is_not_foreseen() {
        let siblings = listed(10);
        (0..3).for_each(|n| _ = siblings.used(Ino(100 + n)));
        siblings.listed(Ino(2), b"elsewhere", 1, Ino(104));
        assert_eq!(siblings.used(Ino(103)).dirs, [Ino(105), Ino(106), Ino(107)]);
        siblings.forget(PARENT);
        assert!((0..10).all(|n| siblings.used(Ino(100 + n)).dirs.is_empty()));
        assert_eq!(siblings.held().places.len(), 1);
        (0..DIRS_MAX as u64).for_each(|n| siblings.listed(Ino(3), b"x", n, Ino(1_000 + n)));
        assert!(siblings.held().places.len() <= DIRS_MAX);
    }
}
