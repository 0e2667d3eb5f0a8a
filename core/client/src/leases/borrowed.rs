//! Open references that programs have under a lease, and that the partition does not know of.
//!
//! A reference matters only when the last name of a file goes. Others cannot remove it before the lease is given back,
//! so it is enough to tell the partition of references then, before the lease goes; and before a name is removed here.
//! Most files are closed by then, and were opened and closed without a word.
//!
//! 1. [`Borrowed::take`] and [`Borrowed::give`], as programs open and close;
//! 2. [`Borrowed::say`], one `Op::Open` for each, [`Borrowed::said`]; what was closed meanwhile is closed there.
//!
//! A new primary is told with what is asserted ([`Borrowed::assert`]).

use std::collections::BTreeMap;

use super::cache::Key;

#[derive(Clone, Copy, Default)]
struct Owed {
    /// References that nobody was told of.
    count: u32,
    /// References that the partition is being told of.
    saying: u32,
    /// As many of these are one too many when it was told.
    surplus: u32,
}

/// The references of one client.
#[derive(Default)]
pub(super) struct Borrowed {
    files: BTreeMap<Key, Owed>,
    /// Files that are losing a name, and how many.
    removing: BTreeMap<Key, u32>,
    /// Names that are being removed, and nobody knows what of.
    unknown: u32,
}

impl Borrowed {
    /// A program opens a file under a lease that counts; false if the partition has to be asked.
    pub(super) fn take(&mut self, key: Key) -> bool {
        let is_free = self.unknown == 0 && !self.removing.contains_key(&key);
        if is_free {
            self.files.entry(key).or_default().count += 1;
        }
        is_free
    }

    /// A program closes a file; false if the reference is one that the partition knows of.
    pub(super) fn give(&mut self, key: Key) -> bool {
        let Some(owed) = self.files.get_mut(&key) else { return false };
        if owed.count > 0 {
            owed.count -= 1;
        } else if owed.surplus < owed.saying {
            owed.surplus += 1;
        } else {
            return false;
        }
        if owed.count == 0 && owed.saying == 0 {
            self.files.remove(&key);
        }
        true
    }

    /// True if of such a file there are references that the partition was not told of, or is being told of.
    pub(super) fn any(&self, such: impl Fn(&Key) -> bool) -> bool {
        self.files.keys().any(such)
    }

    /// References that the partition must be told of now. Those that somebody else is telling are told once more: who
    /// asks must not go on before they are known.
    pub(super) fn say(&mut self, key: Key) -> u32 {
        let Some(owed) = self.files.get_mut(&key) else { return 0 };
        let count = std::mem::take(&mut owed.count) + (owed.saying - owed.surplus);
        owed.surplus = owed.saying;
        owed.saying += count;
        count
    }

    /// Of `count` that were being told `told` were; how many to close there. The others are owed as before.
    pub(super) fn said(&mut self, key: Key, count: u32, told: u32) -> u32 {
        let Some(owed) = self.files.get_mut(&key) else { return 0 };
        let count = count.min(owed.saying);
        owed.saying -= count;
        let untold = count.saturating_sub(told);
        let closed = untold.min(owed.surplus);
        owed.surplus -= closed;
        owed.count += untold - closed;
        // The others are still under way.
        let close = owed.surplus.saturating_sub(owed.saying);
        owed.surplus -= close;
        if owed.count == 0 && owed.saying == 0 {
            self.files.remove(&key);
        }
        close
    }

    /// A new primary is told of all references in its partition at once. It may hear of some a second time.
    pub(super) fn assert(&mut self, here: impl Fn(&Key) -> bool) -> Vec<(Key, u32)> {
        let mut all = Vec::new();
        for (key, owed) in self.files.iter_mut().filter(|(key, _)| here(key)) {
            let count = std::mem::take(&mut owed.count) + (owed.saying - owed.surplus);
            owed.surplus = owed.saying;
            if count > 0 {
                all.push((*key, count));
            }
        }
        self.files.retain(|_, owed| owed.count > 0 || owed.saying > 0);
        all
    }

    /// These are gone.
    pub(super) fn forget(&mut self, gone: impl Fn(&Key) -> bool) {
        self.files.retain(|key, _| !gone(key));
    }

    /// A name of this file (`None`: of an unknown one) is about to be removed by this client: until
    /// [`Self::removed`] says that it is done, the partition is asked for each reference.
    pub(super) fn removing(&mut self, key: Option<Key>) {
        match key {
            Some(key) => *self.removing.entry(key).or_default() += 1,
            None => self.unknown += 1,
        }
    }

    /// It was removed, or not.
    pub(super) fn removed(&mut self, key: Option<Key>) {
        let Some(key) = key else {
            self.unknown -= 1;
            return;
        };
        if let Some(count) = self.removing.get_mut(&key) {
            *count -= 1;
            if *count == 0 {
                self.removing.remove(&key);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use braid_base::ids::{FsId, Ino};

    use super::{Borrowed, Key};

    const A: Key = (FsId(1), Ino(7));
    const B: Key = (FsId(1), Ino(8));

    #[test]
    fn most_are_never_told() {
        let mut borrowed = Borrowed::default();
        assert!(borrowed.take(A) && borrowed.take(A) && borrowed.give(A) && borrowed.give(A));
        assert!(!borrowed.give(A), "a third one is the partition's");
        assert_eq!((borrowed.say(A), borrowed.any(|_| true)), (0, false));
    }

    #[test]
    fn what_is_closed_while_it_is_told_is_closed_there() {
        let mut borrowed = Borrowed::default();
        assert!(borrowed.take(A) && borrowed.take(A));
        assert_eq!(borrowed.say(A), 2);
        assert!(borrowed.take(A), "of a newer lease");
        assert!(borrowed.give(A) && borrowed.give(A), "that one, and one of those under way");
        assert_eq!(borrowed.said(A, 2, 2), 1);
        assert!(!borrowed.give(A), "the last one the partition knows");
    }

    #[test]
    fn who_removes_a_name_does_not_wait_for_others_who_tell() {
        let mut borrowed = Borrowed::default();
        assert!(borrowed.take(A));
        assert_eq!((borrowed.say(A), borrowed.say(A)), (1, 1));
        assert_eq!((borrowed.said(A, 1, 1), borrowed.said(A, 1, 1)), (0, 1), "of two that were told one is too many");
        assert!(!borrowed.give(A), "the other one the partition knows");
    }

    #[test]
    fn what_is_closed_is_closed_there_whoever_tells_last() {
        for (first, last) in [((1, 1), (2, 2)), ((2, 2), (1, 1))] {
            let mut borrowed = Borrowed::default();
            assert!(borrowed.take(A) && borrowed.say(A) == 1 && borrowed.take(A));
            assert_eq!(borrowed.say(A), 2);
            assert!(borrowed.give(A) && borrowed.give(A));
            assert_eq!(borrowed.say(A), 0);
            assert_eq!((borrowed.said(A, first.0, first.0), borrowed.said(A, last.0, last.0)), (first.1, last.1));
            assert!(!borrowed.any(|_| true));
        }
    }

    #[test]
    fn what_could_not_be_told_is_owed() {
        let mut borrowed = Borrowed::default();
        assert!(borrowed.take(A) && borrowed.take(A) && borrowed.take(A));
        assert_eq!(borrowed.say(A), 3);
        assert!(borrowed.give(A));
        assert_eq!(borrowed.said(A, 3, 1), 0, "the one that was closed is one of those that were not told");
        assert_eq!(borrowed.say(A), 1);
        assert_eq!((borrowed.said(A, 1, 0), borrowed.say(A), borrowed.said(A, 1, 1)), (0, 1, 0));
        assert!(!borrowed.any(|_| true));
        assert!(!borrowed.give(A), "two are the partition's");
    }

    #[test]
    fn a_new_primary_hears_of_all() {
        let mut borrowed = Borrowed::default();
        assert!(borrowed.take(A) && borrowed.say(A) == 1 && borrowed.take(A) && borrowed.take(B));
        assert_eq!(borrowed.assert(|key| *key == A), [(A, 2)]);
        assert_eq!(borrowed.said(A, 1, 1), 1, "what was under way came to the new one, too");
        assert!(borrowed.any(|key| *key == B) && !borrowed.any(|key| *key == A));
        borrowed.forget(|_| true);
        assert_eq!((borrowed.any(|_| true), borrowed.said(A, 1, 1)), (false, 0));
    }

    #[test]
    fn nothing_is_borrowed_while_a_name_is_removed() {
        let mut borrowed = Borrowed::default();
        borrowed.removing(Some(A));
        assert!(!borrowed.take(A) && borrowed.take(B));
        borrowed.removing(None);
        assert!(!borrowed.take(B));
        borrowed.removed(None);
        borrowed.removed(Some(A));
        assert!(borrowed.take(A) && borrowed.take(B));
    }
}
