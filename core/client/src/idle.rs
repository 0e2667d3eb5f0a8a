//! Open references that programs have given back and the partition does not know of yet.
//!
//! They go there many in one message, a little later; and who opens a file again meanwhile takes its reference back
//! without a word. Nobody waits for them: a name that goes takes them along (`fs/names.rs`), and when another client is
//! about to change the file they are given back at once. Each belongs to the session that it was had under, and is
//! nothing when that is over.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard};

use braid_base::ids::Ino;

/// How long a reference may stay here, milliseconds: so long at most the room of a file without a name stays taken.
pub(crate) const IDLE_MS: u64 = 1_000;
/// Files with references here; one more, and all are given back.
const FILES_MAX: usize = 512;

/// An open reference: the inode, and the session in its partition.
pub(crate) type Reference = (Ino, u64);

#[derive(Clone, Copy)]
struct Given {
    session: u64,
    count: u32,
    since_ms: u64,
}

#[derive(Default)]
struct Held {
    files: BTreeMap<Ino, Given>,
    is_tended: bool,
}

/// The references of one file system.
#[derive(Default)]
pub(crate) struct Idle(Mutex<Held>);

impl Idle {
    /// A program gave one back, of `opens` that there are in this session: if no more than are here already, it was of
    /// an earlier one. Those that should go to the partitions now.
    pub(crate) fn give(&self, (ino, session): Reference, opens: u32, now_ms: u64) -> Vec<Reference> {
        let mut held = self.held();
        let given = held.files.entry(ino).or_insert(Given { session, count: 0, since_ms: now_ms });
        if given.session != session {
            *given = Given { session, count: 0, since_ms: now_ms };
        }
        given.count = opens.min(given.count + 1);
        if held.files.len() <= FILES_MAX { Vec::new() } else { all(std::mem::take(&mut held.files)) }
    }

    /// Takes one back; false if there is none.
    pub(crate) fn take(&self, (ino, session): Reference) -> bool {
        let mut held = self.held();
        let Some(given) = held.files.get_mut(&ino).filter(|given| given.session == session && given.count > 0) else {
            return false;
        };
        given.count -= 1;
        if given.count == 0 {
            held.files.remove(&ino);
        }
        true
    }

    /// Those of a file, to be given to the partition.
    pub(crate) fn of(&self, ino: Ino) -> Vec<Reference> {
        let given = self.held().files.remove(&ino);
        all(given.map(|given| (ino, given)))
    }

    /// Those that were given back at `until_ms` or before.
    pub(crate) fn old(&self, until_ms: u64) -> Vec<Reference> {
        all(self.held().files.extract_if(.., |_, given| given.since_ms <= until_ms))
    }

    /// All sessions end, and take them along.
    pub(crate) fn clear(&self) {
        self.held().files.clear();
    }

    /// True if somebody has to look after them from now on; then until [`Self::untended`] says so.
    pub(crate) fn tend(&self) -> bool {
        !std::mem::replace(&mut self.held().is_tended, true)
    }

    /// True if none is left: the one who looked after them is free.
    pub(crate) fn untended(&self) -> bool {
        let mut held = self.held();
        held.is_tended = !held.files.is_empty();
        !held.is_tended
    }

    fn held(&self) -> MutexGuard<'_, Held> {
        self.0.lock().expect("nothing panics while it holds the references")
    }
}

/// Each file as often as it was given back.
fn all(files: impl IntoIterator<Item = (Ino, Given)>) -> Vec<Reference> {
    let each = |(ino, given): (Ino, Given)| std::iter::repeat_n((ino, given.session), given.count as usize);
    files.into_iter().flat_map(each).collect()
}

#[cfg(test)]
mod tests {
    use super::{FILES_MAX, Idle};
    use braid_base::ids::Ino;

    const A: (Ino, u64) = (Ino(1), 7);
    const B: (Ino, u64) = (Ino(2), 7);

    #[test]
    fn every_reference_goes_exactly_once() {
        let idle = Idle::default();
        for (of, opens, at) in [(A, 2, 10), (A, 2, 20), (B, 1, 30)] {
            assert!(idle.give(of, opens, at).is_empty());
        }
        assert!(idle.tend() && !idle.tend() && !idle.untended());
        assert!(idle.take(A) && !idle.take((Ino(3), 7)));
        assert_eq!(idle.old(9), []);
        assert_eq!(idle.old(10), [A]);
        assert_eq!(idle.of(A.0), []);
        assert_eq!(idle.of(B.0), [B]);
        assert!(idle.untended() && idle.tend());
        idle.give(A, 5, 40);
        idle.give(A, 5, 40);
        assert_eq!(idle.of(A.0), [A, A]);
    }

    #[test]
    fn what_an_earlier_session_had_is_nothing_in_this_one() {
        let idle = Idle::default();
        let later = (A.0, 8);
        idle.give(A, 1, 10);
        assert!(!idle.take(later));
        idle.give(later, 0, 20);
        assert!(!idle.take(later) && idle.of(A.0).is_empty(), "opened before the session began");
        idle.give(later, 1, 30);
        idle.give(later, 1, 30);
        assert!(idle.take(later) && !idle.take(later), "one of two was opened before");
    }

    #[test]
    fn they_do_not_pile_up() {
        let idle = Idle::default();
        let mut gone = 0;
        for ino in 0..10_000 {
            gone += idle.give((Ino(ino), 1), 1, 0).len();
        }
        assert!(gone >= 10_000 - FILES_MAX && idle.old(0).len() == 10_000 - gone);
    }
}
