//! Notices that wait to be given to one kernel.
//!
//! None is ever dropped: pages of a file that stays open would remain old. What there is to say about one inode is merged,
//! a name stands there once, and who changes something waits for its notice: so there are no more of them than inodes and
//! names that this client remembers, and programs that change others.

use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::{Condvar, Mutex, MutexGuard};

use braid_base::ids::Ino;
use tokio::sync::oneshot;

use super::Notice;

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
    /// Inodes that there is a turn about, and none being given, in order of arrival.
    ready: VecDeque<Ino>,
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
    /// Its attributes are to be forgotten, and these pages (`None`: attributes only).
    inode: Option<Option<(u64, u64)>>,
    /// Names in it are, in order of arrival, each once.
    names: VecDeque<Vec<u8>>,
    known: HashSet<Vec<u8>>,
}

impl Due {
    /// True if there is a turn to be taken.
    fn is_waiting(&self) -> bool {
        self.inode.is_some() || !self.names.is_empty()
    }

    /// Adds a notice; it is a turn of its own unless it is merged with one that was not taken yet.
    fn add(&mut self, notice: Notice) {
        let pages = match notice {
            Notice::Name { name, .. } => {
                if self.known.insert(name.clone()) {
                    self.names.push_back(name);
                    self.added += 1;
                }
                return;
            }
            Notice::Attr(_) => None,
            Notice::Pages { from, to, .. } => Some((from, to)),
        };
        self.added += u64::from(self.inode.is_none());
        self.inode = Some(match (self.inode.flatten(), pages) {
            (Some((a, b)), Some((c, d))) => Some((a.min(c), b.max(d))),
            (known, new) => known.or(new),
        });
    }

    /// The next turn about `ino`.
    fn take(&mut self, ino: Ino) -> Option<Notice> {
        if let Some(pages) = self.inode.take() {
            return Some(pages.map_or(Notice::Attr(ino), |(from, to)| Notice::Pages { ino, from, to }));
        }
        let name = self.names.pop_front()?;
        self.known.remove(&name);
        Some(Notice::Name { dir: ino, name })
    }
}

impl List {
    /// Adds a notice.
    pub(super) fn add(&mut self, notice: Notice) {
        let ino = notice.of();
        let due = self.due.entry(ino).or_default();
        if !due.giving && !due.is_waiting() {
            self.ready.push_back(ino);
        }
        due.add(notice);
    }

    /// The first turn about what no other is being given about.
    pub(super) fn take(&mut self) -> Option<Notice> {
        let ino = self.ready.pop_front()?;
        let due = self.due.get_mut(&ino)?;
        due.giving = true;
        due.take(ino)
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
        if due.is_waiting() {
            self.ready.push_back(ino);
        } else {
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
