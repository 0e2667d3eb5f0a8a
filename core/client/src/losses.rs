//! What was lost of what programs think is done, and who was told.
//!
//! As in Linux (`errseq_t`): every open file description that was there when something of its file was lost is told once,
//! whatever others were told; one that is opened later only if nobody had been told by then. Losses and descriptions are
//! numbered by one counter, so whoever has not been told of anything yet needs no memory: its number says since when
//! it is there.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Mutex, MutexGuard};

use braid_base::Error;
use braid_base::ids::Ino;

/// Inodes whose losses are remembered: more than are lost at once by far. One more, and the oldest is forgotten that
/// somebody was told of, or else the oldest.
const INODES_MAX: usize = 16_384;

/// Who is told only what nobody was told.
pub(crate) const ANYBODY: u64 = u64::MAX;

/// What is lost of an inode.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Lost {
    /// Bytes that programs wrote are not there.
    Bytes,
    /// A name of it, or in it, is there that should not be, or is not there.
    Name,
}

/// The losses of one file system.
#[derive(Default)]
pub(crate) struct Losses {
    held: Mutex<Held>,
}

#[derive(Default)]
struct Held {
    /// The number that was given last.
    last: u64,
    inodes: HashMap<Ino, Loss>,
    /// Those that somebody was told of, and the others.
    told: BTreeMap<u64, Ino>,
    untold: BTreeMap<u64, Ino>,
}

/// The last one of an inode.
struct Loss {
    number: u64,
    error: Error,
    is_told: bool,
    /// There are bytes in what nobody was told of.
    lacks_bytes: bool,
}

impl Losses {
    /// Something of `ino` is lost.
    pub(crate) fn add(&self, ino: Ino, lost: Lost, error: &Error) {
        let mut held = self.held();
        let number = held.next();
        let before = held.forget(ino);
        let lacked_bytes = before.is_some_and(|loss| !loss.is_told && loss.lacks_bytes);
        let lacks_bytes = lacked_bytes || lost == Lost::Bytes;
        held.inodes.insert(ino, Loss { number, error: error.clone(), is_told: false, lacks_bytes });
        held.untold.insert(number, ino);
        if held.inodes.len() > INODES_MAX
            && let Some((_, oldest)) = held.told.first_key_value().or(held.untold.first_key_value())
        {
            let oldest = *oldest;
            held.forget(oldest);
        }
    }

    /// The number of a new description of `ino`, and since when it is to be told of losses.
    pub(crate) fn describe(&self, ino: Ino) -> (u64, u64) {
        let mut held = self.held();
        let number = held.next();
        (number, if held.untold_of(ino).is_some() { 0 } else { number })
    }

    /// What a description of `ino` is to be told that was told of all losses up to number `since`, and the number of that.
    pub(crate) fn tell(&self, ino: Ino, since: u64) -> Option<(u64, Error)> {
        let mut held = self.held();
        let Held { inodes, told, untold, .. } = &mut *held;
        let loss = inodes.get_mut(&ino).filter(|loss| loss.number > since || !loss.is_told)?;
        loss.is_told = true;
        untold.remove(&loss.number);
        told.insert(loss.number, ino);
        Some((loss.number, loss.error.clone()))
    }

    /// True if something of `ino` is lost that nobody was told of.
    pub(crate) fn is_untold(&self, ino: Ino) -> bool {
        self.held().untold_of(ino).is_some()
    }

    /// Why bytes of `ino` are lost of which nobody was told; nobody is by this.
    pub(crate) fn untold_bytes(&self, ino: Ino) -> Option<Error> {
        let held = self.held();
        held.untold_of(ino).filter(|loss| loss.lacks_bytes).map(|loss| loss.error.clone())
    }

    /// Any loss that nobody was told of.
    pub(crate) fn any_untold(&self) -> Option<Error> {
        let held = self.held();
        held.untold.first_key_value().map(|(_, ino)| held.inodes[ino].error.clone())
    }

    fn held(&self) -> MutexGuard<'_, Held> {
        self.held.lock().expect("nothing panics while it holds the losses")
    }
}

impl Held {
    fn next(&mut self) -> u64 {
        self.last += 1;
        self.last
    }

    fn untold_of(&self, ino: Ino) -> Option<&Loss> {
        self.inodes.get(&ino).filter(|loss| !loss.is_told)
    }

    fn forget(&mut self, ino: Ino) -> Option<Loss> {
        let loss = self.inodes.remove(&ino)?;
        (if loss.is_told { &mut self.told } else { &mut self.untold }).remove(&loss.number);
        Some(loss)
    }
}

#[cfg(test)]
mod tests {
    use braid_base::ErrorKind;
    use braid_base::ids::Ino;

    use super::{ANYBODY, INODES_MAX, Losses, Lost};

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
        losses.add(FILE, Lost::Bytes, &ErrorKind::Io.into());
        losses.add(Ino(8), Lost::Bytes, &ErrorKind::Io.into());
        assert_eq!((reader.told(&losses), reader.told(&losses)), (Some(ErrorKind::Io), None));
        let mut later = Description::open(&losses);
        assert_eq!(
            (writer.told(&losses), writer.told(&losses)),
            (Some(ErrorKind::Io), None),
            "whoever was told before"
        );
        assert_eq!(later.told(&losses), None, "it was told when this one was opened");
        losses.add(FILE, Lost::Bytes, &ErrorKind::NoSpace.into());
        for each in [&mut writer, &mut reader, &mut later] {
            assert_eq!((each.told(&losses), each.told(&losses)), (Some(ErrorKind::NoSpace), None));
        }
    }

    #[test]
    fn what_nobody_was_told_of_is_told_to_those_that_are_opened_then() {
        let losses = Losses::default();
        losses.add(FILE, Lost::Bytes, &ErrorKind::Io.into());
        let (mut one, mut other) = (Description::open(&losses), Description::open(&losses));
        assert_eq!((one.told(&losses), one.told(&losses)), (Some(ErrorKind::Io), None));
        assert_eq!((other.told(&losses), other.told(&losses)), (Some(ErrorKind::Io), None), "opened before that");
        assert_eq!(Description::open(&losses).told(&losses), None);
        assert!(losses.tell(FILE, ANYBODY).is_none() && !losses.is_untold(FILE) && losses.any_untold().is_none());
        losses.add(FILE, Lost::Bytes, &ErrorKind::Io.into());
        assert!(losses.is_untold(FILE) && losses.any_untold().is_some());
        assert!(losses.tell(FILE, ANYBODY).is_some() && losses.tell(FILE, ANYBODY).is_none());
    }

    #[test]
    fn a_lost_name_is_no_lost_byte_and_takes_none_away() {
        let losses = Losses::default();
        losses.add(FILE, Lost::Name, &ErrorKind::Io.into());
        assert!(losses.is_untold(FILE) && losses.untold_bytes(FILE).is_none());
        losses.add(FILE, Lost::Bytes, &ErrorKind::NoSpace.into());
        losses.add(FILE, Lost::Name, &ErrorKind::Io.into());
        assert!(losses.untold_bytes(FILE).is_some(), "the bytes are not there all the same");
        assert!(losses.tell(FILE, ANYBODY).is_some() && losses.untold_bytes(FILE).is_none());
        losses.add(FILE, Lost::Name, &ErrorKind::Io.into());
        assert!(losses.is_untold(FILE) && losses.untold_bytes(FILE).is_none(), "somebody was told of those");
    }

    #[test]
    fn they_do_not_pile_up_and_those_go_first_that_somebody_was_told_of() {
        let losses = Losses::default();
        let lose = |ino: u64| losses.add(Ino(ino), Lost::Bytes, &ErrorKind::Io.into());
        let max = INODES_MAX as u64;
        (0..max).for_each(|ino| (0..2).for_each(|_| lose(ino)));
        let told: Vec<u64> = (0..max).filter(|ino| ino % 3 == 2).collect();
        assert!(told.iter().all(|ino| losses.tell(Ino(*ino), ANYBODY).is_some()));
        (max..max + told.len() as u64).for_each(lose);
        assert!((0..max).all(|ino| losses.is_untold(Ino(ino)) == (ino % 3 != 2)), "only what was told is forgotten");
        (2 * max..3 * max).for_each(lose);
        let held = losses.held();
        assert_eq!((held.inodes.len(), held.untold.len(), held.told.len()), (INODES_MAX, INODES_MAX, 0));
    }
}
