//! Tells the mounts of one file system in this process what others changed, so that their kernel caches let go: other
//! mounts of this process, and other clients, whose changes are announced by the recall of a lease.
//!
//! Each mount has a list of pending notices and one thread that gives them to the kernel. Who changed something is
//! answered when the notices are given, so that nobody sees the old state after that. The kernel may make a notice wait
//! until a request of that mount is answered (a name waits for the lock of its directory), so notices never come from
//! a thread that answers requests, nobody waits for a notice about a directory that a request of that mount is in, and
//! nobody waits for longer than [`GIVEN_MAX`]: what is left of a circle resolves itself then. Notices about one inode
//! are merged, which bounds the list by the number of inodes that change at a time.

use std::collections::{HashMap, VecDeque};
use std::io;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, RwLock, RwLockReadGuard};
use std::thread::JoinHandle;
use std::time::Duration;

use braid_base::ids::Ino;
use braid_client::BoxFuture;
use braid_client::fs::Watcher;
use tokio::sync::oneshot;

use crate::attrs::Numbers;
use crate::wire::notify::Notifier;

/// Most pending notices of a mount. What does not fit is dropped: names and attributes expire by themselves within
/// a second, pages when the file is opened again.
const PENDING_MAX: usize = 65_536;
/// How long a change waits for the kernels of other mounts at most: a notice takes microseconds.
const GIVEN_MAX: Duration = Duration::from_millis(20);

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
    /// Tells all mounts but `me`; ready when their kernels have heard it, as far as that can be waited for.
    pub(crate) fn tell_others(&self, me: u64, notices: impl FnOnce() -> Vec<Notice>) -> Given {
        let mut waits = Vec::new();
        let mounts = self.mounts();
        if mounts.len() > 1 {
            let notices = notices();
            for (_, pending) in mounts.iter().filter(|(id, _)| *id != me) {
                waits.extend(pending.add_all(notices.iter().cloned()));
            }
        }
        Given(waits)
    }

    /// A request of mount `me` is in directory `dir` until the result is dropped: its kernel may hold the lock of it.
    pub(crate) fn enter(&self, me: u64, dir: Ino) -> Option<Within> {
        let pending = self.mounts().iter().find(|(id, _)| *id == me).map(|(_, pending)| Arc::clone(pending))?;
        *pending.list().within.entry(dir).or_default() += 1;
        Some(Within { pending, dir })
    }

    /// Tells mount `me` itself: something happened that its kernel could not know.
    pub(crate) fn tell_self(&self, me: u64, notice: Notice) {
        let mounts = self.mounts();
        mounts.iter().filter(|(id, _)| *id == me).for_each(|(_, pending)| _ = pending.add_all([notice.clone()]));
    }

    fn mounts(&self) -> RwLockReadGuard<'_, Vec<(u64, Arc<Pending>)>> {
        self.mounts.read().expect("nothing panics while it holds the mounts")
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
                mine.done();
            }
        })?;
        self.mounts.write().expect("nothing panics while it holds the mounts").push((me, Arc::clone(&pending)));
        Ok(Member { hub: Arc::clone(self), me, pending, thread: Some(thread) })
    }
}

/// Another client changes something, or this one has lost its right to remember it.
impl Watcher for Hub {
    fn forget(&self, ino: Ino, names: &[Vec<u8>]) {
        for (_, pending) in self.mounts().iter() {
            let names = names.iter().map(|name| Notice::Name { dir: ino, name: name.clone() });
            pending.add_all(std::iter::once(Notice::Pages { ino, from: 0, to: u64::MAX }).chain(names));
        }
    }

    fn forgotten(&self) -> BoxFuture<()> {
        let waits = self.mounts().iter().filter_map(|(_, pending)| pending.list().given()).collect();
        Box::pin(Given(waits).wait())
    }
}

/// Notices that mounts were told.
pub(crate) struct Given(Vec<oneshot::Receiver<()>>);

impl Given {
    /// Ready when their kernels have heard them, or do not listen for too long.
    pub(crate) async fn wait(self) {
        if !self.0.is_empty() {
            let all = async {
                for wait in self.0 {
                    // A mount that goes away has no caches.
                    let _ = wait.await;
                }
            };
            let _ = tokio::time::timeout(GIVEN_MAX, all).await;
        }
    }
}

/// A request is in a directory.
pub(crate) struct Within {
    pending: Arc<Pending>,
    dir: Ino,
}

impl Drop for Within {
    fn drop(&mut self) {
        let mut list = self.pending.list();
        if let Some(count) = list.within.get_mut(&self.dir) {
            *count -= 1;
            if *count == 0 {
                list.within.remove(&self.dir);
            }
        }
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
    /// Turns so far, and those of them that are over.
    added: u64,
    over: u64,
    /// Who waits until so many are over, in this order.
    waits: VecDeque<(u64, oneshot::Sender<()>)>,
    /// Directories that requests of this mount are in, and how many.
    within: HashMap<Ino, usize>,
}

enum Turn {
    Inode(Ino),
    Name { dir: Ino, name: Vec<u8> },
}

impl List {
    fn add(&mut self, notice: Notice) {
        if self.order.len() >= PENDING_MAX {
            self.dropped += 1;
            if self.dropped.is_power_of_two() {
                tracing::info!(dropped = self.dropped, "others change more than this kernel takes notices of");
            }
            return;
        }
        let (ino, pages) = match notice {
            Notice::Name { dir, name } => return self.push(Turn::Name { dir, name }),
            Notice::Attr(ino) => (ino, None),
            Notice::Pages { ino, from, to } => (ino, Some((from, to))),
        };
        match self.inodes.get_mut(&ino) {
            Some(known) => {
                *known = match (*known, pages) {
                    (Some((a, b)), Some((c, d))) => Some((a.min(c), b.max(d))),
                    (known, new) => known.or(new),
                }
            }
            None => {
                self.inodes.insert(ino, pages);
                self.push(Turn::Inode(ino));
            }
        }
    }

    fn push(&mut self, turn: Turn) {
        self.order.push_back(turn);
        self.added += 1;
    }

    /// Tells when all turns so far are over; `None` if they are.
    fn given(&mut self) -> Option<oneshot::Receiver<()>> {
        let upto = self.added;
        if self.closed || self.over >= upto {
            return None;
        }
        let (tx, rx) = oneshot::channel();
        self.waits.push_back((upto, tx));
        Some(rx)
    }
}

impl Pending {
    /// Adds notices; tells when they are given, if that should be waited for.
    fn add_all(&self, notices: impl IntoIterator<Item = Notice>) -> Option<oneshot::Receiver<()>> {
        let mut list = self.list();
        let mut blocked = false;
        for notice in notices {
            blocked |= matches!(&notice, Notice::Name { dir, .. } if list.within.contains_key(dir));
            list.add(notice);
        }
        self.more.notify_one();
        if blocked { None } else { list.given() }
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

    /// The notice that [`Self::next`] gave out is given.
    fn done(&self) {
        let mut list = self.list();
        list.over += 1;
        while let Some((upto, _)) = list.waits.front()
            && *upto <= list.over
        {
            if let Some((_, wait)) = list.waits.pop_front() {
                // Who waited may have lost patience.
                let _ = wait.send(());
            }
        }
    }

    fn close(&self) {
        let mut list = self.list();
        list.closed = true;
        list.waits.clear();
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
        pending.list().add(Notice::Attr(Ino(1)));
        pending.list().add(Notice::Name { dir: Ino(9), name: b"n".to_vec() });
        pending.list().add(Notice::Pages { ino: Ino(1), from: 100, to: 200 });
        pending.list().add(Notice::Attr(Ino(1)));
        pending.list().add(Notice::Pages { ino: Ino(1), from: 4096, to: u64::MAX });
        pending.list().add(Notice::Attr(Ino(2)));
        assert_eq!(pending.next(), Some(Notice::Pages { ino: Ino(1), from: 100, to: u64::MAX }));
        assert_eq!(pending.next(), Some(Notice::Name { dir: Ino(9), name: b"n".to_vec() }));
        assert_eq!(pending.next(), Some(Notice::Attr(Ino(2))));
        pending.close();
        assert_eq!(pending.next(), None);
    }

    #[test]
    fn the_list_is_bounded() {
        let pending = Pending::default();
        (0..super::PENDING_MAX as u64 + 10).for_each(|ino| pending.list().add(Notice::Attr(Ino(ino))));
        assert_eq!(pending.list().order.len(), super::PENDING_MAX);
        assert_eq!(pending.list().dropped, 10);
    }
}
