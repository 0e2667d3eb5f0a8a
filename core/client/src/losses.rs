//! What was lost of what programs think is done, and who was told.
//!
//! As in Linux (`errseq_t`): every open file description that was there when something of its file was lost is told once,
//! whatever others were told; one that is opened later only if nobody had been told by then. Losses and descriptions are
//! numbered by one counter, so whoever has not been told of anything yet needs no memory: its number says since when
//! it is there.

use std::collections::{BTreeMap, HashMap};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard};

use braid_base::Error;
use braid_base::ids::Ino;

/// Inodes whose losses are remembered: more than are lost at once by far. One more, and the oldest is forgotten.
const INODES_MAX: usize = 16_384;

/// Who is told only what nobody was told.
pub(crate) const ANYBODY: u64 = u64::MAX;

/// The losses of one file system.
#[derive(Default)]
pub(crate) struct Losses {
    last: AtomicU64,
    held: Mutex<Held>,
}

#[derive(Default)]
struct Held {
    inodes: HashMap<Ino, Loss>,
    by_number: BTreeMap<u64, Ino>,
}

/// The last one of an inode.
struct Loss {
    number: u64,
    error: Error,
    is_told: bool,
}

impl Losses {
    /// Something of `ino` is lost.
    pub(crate) fn add(&self, ino: Ino, error: &Error) {
        let mut held = self.held();
        // Under the lock: who looks after that finds it.
        let loss = Loss { number: self.next(), error: error.clone(), is_told: false };
        held.by_number.insert(loss.number, ino);
        if let Some(before) = held.inodes.insert(ino, loss) {
            held.by_number.remove(&before.number);
        }
        if held.inodes.len() > INODES_MAX
            && let Some((_, oldest)) = held.by_number.pop_first()
        {
            held.inodes.remove(&oldest);
        }
    }

    /// The number of a new description of `ino`, and since when it is to be told of losses.
    pub(crate) fn describe(&self, ino: Ino) -> (u64, u64) {
        let held = self.held();
        let number = self.next();
        (number, if held.is_untold(ino) { 0 } else { number })
    }

    /// What a description of `ino` is to be told that was told of all losses up to number `since`, and the number of that.
    pub(crate) fn tell(&self, ino: Ino, since: u64) -> Option<(u64, Error)> {
        let mut held = self.held();
        let loss = held.inodes.get_mut(&ino).filter(|loss| loss.number > since || !loss.is_told)?;
        loss.is_told = true;
        Some((loss.number, loss.error.clone()))
    }

    /// A loss of `ino` that nobody was told of; it stays one.
    pub(crate) fn untold(&self, ino: Ino) -> Option<Error> {
        let held = self.held();
        held.is_untold(ino).then(|| held.inodes[&ino].error.clone())
    }

    /// Any loss that nobody was told of.
    pub(crate) fn any_untold(&self) -> Option<Error> {
        self.held().inodes.values().find(|loss| !loss.is_told).map(|loss| loss.error.clone())
    }

    fn next(&self) -> u64 {
        self.last.fetch_add(1, Ordering::Relaxed) + 1
    }

    fn held(&self) -> MutexGuard<'_, Held> {
        self.held.lock().expect("nothing panics while it holds the losses")
    }
}

impl Held {
    fn is_untold(&self, ino: Ino) -> bool {
        self.inodes.get(&ino).is_some_and(|loss| !loss.is_told)
    }
}

#[cfg(test)]
mod tests {
    use braid_base::ErrorKind;
    use braid_base::ids::Ino;

    use super::{ANYBODY, INODES_MAX, Losses};

    const FILE: Ino = Ino(7);

    /// A description, as a door keeps it.
    struct Description(u64);

    impl Description {
        fn open(losses: &Losses) -> Self {
            Self(losses.describe(FILE).1)
        }

        fn told(&mut self, losses: &Losses) -> Option<ErrorKind> {
            let (number, error) = losses.tell(FILE, self.0)?;
            self.0 = number;
            Some(error.kind())
        }
    }

    #[test]
    fn each_description_that_was_open_is_told_once() {
        let losses = Losses::default();
        let (mut writer, mut reader) = (Description::open(&losses), Description::open(&losses));
        assert_eq!((writer.told(&losses), reader.told(&losses)), (None, None));
        losses.add(FILE, &ErrorKind::Io.into());
        losses.add(Ino(8), &ErrorKind::Io.into());
        assert_eq!((reader.told(&losses), reader.told(&losses)), (Some(ErrorKind::Io), None));
        let mut later = Description::open(&losses);
        assert_eq!(
            (writer.told(&losses), writer.told(&losses)),
            (Some(ErrorKind::Io), None),
            "whoever was told before"
        );
        assert_eq!(later.told(&losses), None, "it was told when this one was opened");
        losses.add(FILE, &ErrorKind::NoSpace.into());
        for each in [&mut writer, &mut reader, &mut later] {
            assert_eq!((each.told(&losses), each.told(&losses)), (Some(ErrorKind::NoSpace), None));
        }
    }

    #[test]
    fn what_nobody_was_told_of_is_told_to_those_that_are_opened_then() {
        let losses = Losses::default();
        losses.add(FILE, &ErrorKind::Io.into());
        let (mut one, mut other) = (Description::open(&losses), Description::open(&losses));
        assert_eq!((one.told(&losses), one.told(&losses)), (Some(ErrorKind::Io), None));
        assert_eq!((other.told(&losses), other.told(&losses)), (Some(ErrorKind::Io), None), "opened before that");
        assert_eq!(Description::open(&losses).told(&losses), None);
        assert!(losses.tell(FILE, ANYBODY).is_none() && losses.untold(FILE).is_none() && losses.any_untold().is_none());
        losses.add(FILE, &ErrorKind::Io.into());
        assert!(losses.untold(FILE).is_some() && losses.any_untold().is_some());
        assert!(losses.tell(FILE, ANYBODY).is_some() && losses.tell(FILE, ANYBODY).is_none());
    }

    #[test]
    fn they_do_not_pile_up() {
        let losses = Losses::default();
        (0..2 * INODES_MAX as u64).for_each(|ino| (0..2).for_each(|_| losses.add(Ino(ino), &ErrorKind::Io.into())));
        let held = losses.held();
        assert_eq!((held.inodes.len(), held.by_number.len()), (INODES_MAX, INODES_MAX));
    }
}
