//! Tells the mounts of one file system in this process what the others changed, so that their kernel caches let go.
//!
//! Each mount has a list of pending notices and one thread that gives them to the kernel. The kernel may make a
//! notice wait until a request of that mount is answered, so notices never come from a thread that answers requests.
//! Notices about one inode are merged, which bounds the list by the number of inodes that change at a time.

use std::collections::{HashMap, VecDeque};
use std::io;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, RwLock};
use std::thread::JoinHandle;

use braid_base::ids::Ino;

use crate::attrs::Numbers;
use crate::wire::notify::Notifier;

/// Most pending notices of a mount. What does not fit is dropped: names and attributes expire by themselves within
/// a second, pages when the file is opened again.
const PENDING_MAX: usize = 65_536;

/// The mounts of one file system.
#[derive(Default)]
pub(crate) struct Hub {
    mounts: RwLock<Vec<(u64, Arc<Pending>)>>,
}

/// What the kernel should forget.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Notice {
    /// The attributes of an inode.
    Attr(Ino),
    /// The attributes and the pages from byte `from` to byte `to` (exclusive; `u64::MAX`: all that follow).
    Pages { ino: Ino, from: u64, to: u64 },
    /// A name, there or not.
    Name { dir: Ino, name: Vec<u8> },
}

impl Hub {
    /// Tells all mounts but `me`.
    pub(crate) fn tell_others(&self, me: u64, notices: impl FnOnce() -> Vec<Notice>) {
        let mounts = self.mounts.read().expect("nothing panics while it holds the mounts");
        if mounts.len() < 2 {
            return;
        }
        let notices = notices();
        for (_, pending) in mounts.iter().filter(|(id, _)| *id != me) {
            notices.iter().cloned().for_each(|notice| pending.add(notice));
        }
    }

    /// Tells mount `me` itself: something happened that its kernel could not know.
    pub(crate) fn tell_self(&self, me: u64, notice: Notice) {
        let mounts = self.mounts.read().expect("nothing panics while it holds the mounts");
        mounts.iter().filter(|(id, _)| *id == me).for_each(|(_, pending)| pending.add(notice.clone()));
    }

    /// Adds mount `me`, whose kernel is reached through `notifier`; the notices end when the result is dropped.
    pub(crate) fn join(self: &Arc<Self>, me: u64, numbers: Numbers, notifier: Notifier) -> io::Result<Member> {
        let pending = Arc::new(Pending::default());
        let mine = Arc::clone(&pending);
        let thread = std::thread::Builder::new().name(format!("fuse-notice-{me}")).spawn(move || {
            while let Some(notice) = mine.next() {
                if let Err(error) = give(&notifier, numbers, &notice) {
                    // The mount is going away, or the kernel is too old for notices: caches expire by themselves.
                    tracing::debug!(?notice, %error, "the kernel did not take a notice");
                }
            }
        })?;
        self.mounts.write().expect("nothing panics while it holds the mounts").push((me, Arc::clone(&pending)));
        Ok(Member { hub: Arc::clone(self), me, pending, thread: Some(thread) })
    }
}

/// A mount's membership.
pub(crate) struct Member {
    hub: Arc<Hub>,
    me: u64,
    pending: Arc<Pending>,
    thread: Option<JoinHandle<()>>,
}

impl Drop for Member {
    fn drop(&mut self) {
        self.hub.mounts.write().expect("nothing panics while it holds the mounts").retain(|(id, _)| *id != self.me);
        self.pending.close();
        // The thread is not waited for: a notice in the kernel ends when the mount does, which may be later.
        self.thread.take();
    }
}

fn give(notifier: &Notifier, numbers: Numbers, notice: &Notice) -> io::Result<()> {
    match notice {
        // A negative offset tells the kernel to leave the pages alone.
        Notice::Attr(ino) => notifier.inval_inode(numbers.show(*ino), -1, 0),
        Notice::Pages { ino, from, to } => {
            let from = i64::try_from(*from).unwrap_or(i64::MAX);
            // A length of 0 means "to the end".
            let len = i64::try_from(*to).map_or(0, |to| (to - from).max(1));
            notifier.inval_inode(numbers.show(*ino), from, len)
        }
        Notice::Name { dir, name } => notifier.inval_entry(numbers.show(*dir), name),
    }
}

/// Notices that wait to be given.
#[derive(Default)]
struct Pending {
    list: Mutex<List>,
    more: Condvar,
}

#[derive(Default)]
struct List {
    closed: bool,
    dropped: u64,
    /// Pages to forget of each inode (`None`: attributes only), and the order of arrival.
    inodes: HashMap<Ino, Option<(u64, u64)>>,
    order: VecDeque<Turn>,
}

enum Turn {
    Inode(Ino),
    Name { dir: Ino, name: Vec<u8> },
}

impl Pending {
    fn add(&self, notice: Notice) {
        let mut list = self.list();
        if list.order.len() >= PENDING_MAX {
            list.dropped += 1;
            if list.dropped.is_power_of_two() {
                tracing::info!(dropped = list.dropped, "another mount changes faster than this kernel takes notices");
            }
            return;
        }
        let (ino, pages) = match notice {
            Notice::Name { dir, name } => {
                list.order.push_back(Turn::Name { dir, name });
                self.more.notify_one();
                return;
            }
            Notice::Attr(ino) => (ino, None),
            Notice::Pages { ino, from, to } => (ino, Some((from, to))),
        };
        match list.inodes.get_mut(&ino) {
            Some(known) => {
                *known = match (*known, pages) {
                    (Some((a, b)), Some((c, d))) => Some((a.min(c), b.max(d))),
                    (known, new) => known.or(new),
                }
            }
            None => {
                list.inodes.insert(ino, pages);
                list.order.push_back(Turn::Inode(ino));
                self.more.notify_one();
            }
        }
    }

    /// The next notice; waits for one. `None` after [`Self::close`].
    fn next(&self) -> Option<Notice> {
        let mut list = self.list();
        loop {
            if list.closed {
                return None;
            }
            match list.order.pop_front() {
                Some(Turn::Name { dir, name }) => return Some(Notice::Name { dir, name }),
                Some(Turn::Inode(ino)) => {
                    return Some(match list.inodes.remove(&ino).flatten() {
                        Some((from, to)) => Notice::Pages { ino, from, to },
                        None => Notice::Attr(ino),
                    });
                }
                None => list = self.more.wait(list).expect("nothing panics while it holds the notices"),
            }
        }
    }

    fn close(&self) {
        self.list().closed = true;
        self.more.notify_all();
    }

    fn list(&self) -> MutexGuard<'_, List> {
        self.list.lock().expect("nothing panics while it holds the notices")
    }
}

#[cfg(test)]
mod tests {
    use super::{Notice, Pending};
    use braid_base::ids::Ino;

    #[test]
    fn notices_about_one_inode_are_merged_and_keep_their_turn() {
        let pending = Pending::default();
        pending.add(Notice::Attr(Ino(1)));
        pending.add(Notice::Name { dir: Ino(9), name: b"n".to_vec() });
        pending.add(Notice::Pages { ino: Ino(1), from: 100, to: 200 });
        pending.add(Notice::Attr(Ino(1)));
        pending.add(Notice::Pages { ino: Ino(1), from: 4096, to: u64::MAX });
        pending.add(Notice::Attr(Ino(2)));
        assert_eq!(pending.next(), Some(Notice::Pages { ino: Ino(1), from: 100, to: u64::MAX }));
        assert_eq!(pending.next(), Some(Notice::Name { dir: Ino(9), name: b"n".to_vec() }));
        assert_eq!(pending.next(), Some(Notice::Attr(Ino(2))));
        pending.close();
        assert_eq!(pending.next(), None);
    }

    #[test]
    fn the_list_is_bounded() {
        let pending = Pending::default();
        (0..super::PENDING_MAX as u64 + 10).for_each(|ino| pending.add(Notice::Attr(Ino(ino))));
        assert_eq!(pending.list().order.len(), super::PENDING_MAX);
        assert_eq!(pending.list().dropped, 10);
    }
}
