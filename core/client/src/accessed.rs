//! Files that were read and whose access times the partitions do not know of yet: many go in one message, a little later.
//! Until then this client answers for them.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard};

use braid_base::attr::{Attr, Time};
use braid_base::ids::Ino;

/// How long a read may stay here, milliseconds: half of what others may see too late.
pub(crate) const ACCESSED_MS: u64 = 500;
/// Files here at most; one more is not noted, and its access time stays.
const FILES_MAX: usize = 1 << 16;

#[derive(Default)]
struct Held {
    files: BTreeMap<Ino, Time>,
    is_tended: bool,
}

/// The reads of one file system.
#[derive(Default)]
pub(crate) struct Accessed(Mutex<Held>);

impl Accessed {
    /// A file was read.
    pub(crate) fn note(&self, ino: Ino, at: Time) {
        let mut held = self.held();
        if held.files.len() < FILES_MAX || held.files.contains_key(&ino) {
            held.files.insert(ino, at);
        }
    }

    /// The file looks as if its partition knew.
    pub(crate) fn amend(&self, attr: &mut Attr) {
        if let Some(at) = self.held().files.get(&attr.ino) {
            attr.atime = attr.atime.max(*at);
        }
    }

    /// All that were read; they stay until [`Self::told`].
    pub(crate) fn all(&self) -> Vec<(Ino, Time)> {
        self.held().files.iter().map(|(ino, at)| (*ino, *at)).collect()
    }

    /// The partition has heard of these, or will not.
    pub(crate) fn told(&self, files: &[(Ino, Time)]) {
        let mut held = self.held();
        for (ino, at) in files {
            if held.files.get(ino) == Some(at) {
                held.files.remove(ino);
            }
        }
    }

    /// A program says itself what the times of this one are.
    pub(crate) fn forget(&self, ino: Ino) {
        self.held().files.remove(&ino);
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
        self.0.lock().expect("nothing panics while it holds the reads")
    }
}

#[cfg(test)]
mod tests {
    use super::Accessed;
    use braid_base::attr::{Attr, Time};
    use braid_base::ids::Ino;

    #[test]
    fn a_read_is_seen_at_once_and_told_once() {
        let accessed = Accessed::default();
        let at = |sec| Time { sec, nsec: 0 };
        let shown = |atime| {
            let mut attr = Attr { ino: Ino(1), atime: at(atime), ..Attr::default() };
            accessed.amend(&mut attr);
            attr.atime.sec
        };
        accessed.note(Ino(1), at(5));
        assert_eq!((shown(3), shown(7)), (5, 7));
        let told = accessed.all();
        accessed.note(Ino(1), at(6));
        accessed.note(Ino(2), at(6));
        accessed.told(&told);
        assert_eq!(accessed.all(), [(Ino(1), at(6)), (Ino(2), at(6))], "it was read again meanwhile");
        accessed.forget(Ino(1));
        assert_eq!(shown(3), 3);
        assert!(accessed.tend() && !accessed.tend() && !accessed.untended());
        accessed.told(&[(Ino(2), at(6))]);
        assert!(accessed.untended());
    }
}
