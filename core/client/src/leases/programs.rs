//! Files that programs have open, by whether the session is over that they opened them in.
//!
//! With its session a partition forgets all references, and programs close what they had open all the same. Which of the
//! descriptors of a file a close is of nobody can tell: those of sessions that are over count as closed first. So what the
//! partition counts is never less than what programs have opened since, and nothing when all are closed.

use std::collections::BTreeMap;

use super::cache::Key;

#[derive(Clone, Copy, Default)]
struct Open {
    /// In the session that there is.
    now: u32,
    /// In sessions that are over.
    lost: u32,
}

/// What programs of one client have open.
#[derive(Default)]
pub(super) struct Programs {
    files: BTreeMap<Key, Open>,
}

impl Programs {
    /// A program opened a file in the session that there is, or in one that is over by now.
    pub(super) fn opened(&mut self, key: Key, is_current: bool) {
        let open = self.files.entry(key).or_default();
        *(if is_current { &mut open.now } else { &mut open.lost }) += 1;
    }

    /// A program closes a file; true if its reference went with its session.
    pub(super) fn closed(&mut self, key: Key) -> bool {
        let Some(open) = self.files.get_mut(&key) else { return false };
        let is_lost = open.lost > 0;
        *(if is_lost { &mut open.lost } else { &mut open.now }) -= 1;
        if (open.now, open.lost) == (0, 0) {
            self.files.remove(&key);
        }
        is_lost
    }

    /// The session of these is over.
    pub(super) fn lose(&mut self, gone: impl Fn(&Key) -> bool) {
        for (_, open) in self.files.iter_mut().filter(|(key, _)| gone(key)) {
            open.lost += std::mem::take(&mut open.now);
        }
    }
}

#[cfg(test)]
mod tests {
    use braid_base::ids::{FsId, Ino};

    use super::{Key, Programs};

    const A: Key = (FsId(1), Ino(7));
    const B: Key = (FsId(1), Ino(8));

    #[test]
    fn what_a_session_took_along_is_closed_first() {
        let mut programs = Programs::default();
        programs.opened(A, true);
        programs.opened(B, true);
        programs.lose(|key| *key == A);
        programs.opened(A, true);
        programs.opened(A, false);
        assert_eq!([(); 4].map(|()| programs.closed(A)), [true, true, false, false]);
        assert!(!programs.closed(B) && programs.files.is_empty());
    }
}
