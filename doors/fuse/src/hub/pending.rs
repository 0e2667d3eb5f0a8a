//! Notices that wait to be given to one kernel.

use std::collections::{HashMap, VecDeque};
use std::sync::{Condvar, Mutex, MutexGuard};

use braid_base::ids::Ino;
use tokio::sync::oneshot;

use super::Notice;

/// Most pending notices of a mount. What does not fit is dropped: names and attributes expire by themselves within
/// a second, pages when the file is opened again.
pub(super) const PENDING_MAX: usize = 65_536;

/// Notices that wait to be given.
#[derive(Default)]
pub(super) struct Pending {
    list: Mutex<List>,
    more: Condvar,
}

/// What [`Pending`] holds.
#[derive(Default)]
pub(super) struct List {
    closed: bool,
    pub(super) dropped: u64,
    /// Pages to forget of each inode (`None`: attributes only), and the order of arrival.
    inodes: HashMap<Ino, Option<(u64, u64)>>,
    pub(super) order: VecDeque<Notice>,
    /// Turns that are not over, pending or being given, by inode or directory of the name.
    pub(super) due: HashMap<Ino, Due>,
    /// Files that requests of this mount write, and how many.
    pub(super) within: HashMap<Ino, usize>,
}

/// The turns about one inode.
#[derive(Default)]
pub(super) struct Due {
    /// One is being given. One at a time: if it waits in the kernel, one thread is enough for that.
    giving: bool,
    /// Turns since there was none, and those of them that are over.
    added: u64,
    over: u64,
    /// Who waits until so many are over, in this order.
    waits: VecDeque<(u64, oneshot::Sender<()>)>,
}

impl List {
    /// Adds a notice; those about one inode are merged.
    pub(super) fn add(&mut self, notice: Notice) {
        let (ino, pages) = match notice {
            Notice::Name { .. } => {
                self.push(notice);
                return;
            }
            Notice::Attr(ino) => (ino, None),
            Notice::Pages { ino, from, to } => (ino, Some((from, to))),
        };
        if let Some(known) = self.inodes.get_mut(&ino) {
            *known = match (*known, pages) {
                (Some((a, b)), Some((c, d))) => Some((a.min(c), b.max(d))),
                (known, new) => known.or(new),
            };
        } else if self.push(Notice::Attr(ino)) {
            self.inodes.insert(ino, pages);
        }
    }

    /// Adds a turn; false if there are too many.
    fn push(&mut self, turn: Notice) -> bool {
        if self.order.len() >= PENDING_MAX {
            self.dropped += 1;
            if self.dropped.is_power_of_two() {
                tracing::info!(dropped = self.dropped, "others change more than this kernel takes notices of");
            }
            return false;
        }
        self.due.entry(turn.of()).or_default().added += 1;
        self.order.push_back(turn);
        true
    }

    /// The first turn about what no other is being given about.
    pub(super) fn take(&mut self) -> Option<Notice> {
        let is_free = |turn: &Notice| self.due.get(&turn.of()).is_some_and(|due| !due.giving);
        let place = self.order.iter().position(is_free)?;
        let turn = self.order.remove(place)?;
        let ino = turn.of();
        self.due.get_mut(&ino)?.giving = true;
        // What came since it was pushed is merged there.
        let pages = if let Notice::Name { .. } = turn { None } else { self.inodes.remove(&ino).flatten() };
        Some(pages.map_or(turn, |(from, to)| Notice::Pages { ino, from, to }))
    }

    /// Tells when all turns about `ino` so far are over; `None` if they are.
    pub(super) fn given(&mut self, ino: Ino) -> Option<oneshot::Receiver<()>> {
        let due = self.due.get_mut(&ino).filter(|_| !self.closed)?;
        let (tx, rx) = oneshot::channel();
        due.waits.push_back((due.added, tx));
        Some(rx)
    }

    /// The turn about `ino` that was being given is over; returns who waited for it.
    fn over(&mut self, ino: Ino) -> Vec<oneshot::Sender<()>> {
        let mut heard = Vec::new();
        let Some(due) = self.due.get_mut(&ino) else { return heard };
        (due.giving, due.over) = (false, due.over + 1);
        while due.waits.front().is_some_and(|(upto, _)| *upto <= due.over) {
            heard.extend(due.waits.pop_front().map(|(_, wait)| wait));
        }
        if due.over == due.added {
            self.due.remove(&ino);
        }
        heard
    }
}

impl Pending {
    /// Adds a notice for the next thread that is free.
    pub(super) fn add(&self, notice: Notice) {
        self.list().add(notice);
        self.more.notify_one();
    }

    /// The next notice; waits for one. `None` after [`Self::close`].
    pub(super) fn next(&self) -> Option<Notice> {
        let mut list = self.list();
        loop {
            if list.closed {
                return None;
            }
            match list.take() {
                Some(turn) => return Some(turn),
                None => list = self.more.wait(list).expect("nothing panics while it holds the notices"),
            }
        }
    }

    /// The notice about `ino` that [`Self::next`] gave out is given.
    pub(super) fn done(&self, ino: Ino) {
        // Who waited may go on in this very thread, and want the list of another mount: not with this one in hand.
        let heard = self.list().over(ino);
        // A turn about the same inode may be taken now.
        self.more.notify_one();
        for wait in heard {
            // Who waited may have lost patience.
            let _ = wait.send(());
        }
    }

    /// There is nobody to give them to any more.
    pub(super) fn close(&self) {
        let mut list = self.list();
        list.closed = true;
        let due = std::mem::take(&mut list.due);
        drop(list);
        drop(due);
        self.more.notify_all();
    }

    pub(super) fn list(&self) -> MutexGuard<'_, List> {
        self.list.lock().expect("nothing panics while it holds the notices")
    }
}
