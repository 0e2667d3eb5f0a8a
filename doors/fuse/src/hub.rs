//! Tells the mounts of one file system in this process what others changed, so that their kernel caches let go: other
//! mounts of this process, and other clients, whose changes are announced by the recall of a lease.
//!
//! Each mount has two lists of pending notices, about inodes and about names, and a thread for each that gives them to
//! the kernel. Who changed something is answered when the notices are given, so that nobody sees the old state after
//! that. The kernel may make a notice wait until a request of that mount is answered: pages wait for a read of them, or
//! for a write that fills a part of one, and a name for the lock of its directory. So notices never come from a thread
//! that answers requests. Reads wait for nobody. A write, or a request about a directory, may wait for the other mount in
//! turn: a notice that waits for such a one is waited for [`BLOCKED_MAX`] only, and what is left of a circle resolves
//! itself after [`NAMES_MAX`]. Notices about one inode are merged, which bounds the list by the number of inodes that
//! change at a time.

use std::collections::{HashMap, VecDeque};
use std::io;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, RwLock, RwLockReadGuard};
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
/// How long a change waits for the kernels of other mounts at most. A notice takes microseconds, on a machine that has
/// other work a few time slices.
const PAGES_MAX: Duration = Duration::from_secs(2);
/// The same for names.
const NAMES_MAX: Duration = Duration::from_millis(100);
/// The same while a request of that mount may be what the notice waits for, and that request for others in turn.
const BLOCKED_MAX: Duration = Duration::from_millis(5);

/// The mounts of one file system.
#[derive(Default)]
pub(crate) struct Hub {
    mounts: RwLock<Vec<Mine>>,
}

/// What waits to be given to one mount.
struct Mine {
    me: u64,
    inodes: Arc<Pending>,
    names: Arc<Pending>,
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
        let mut given = Given::default();
        let mounts = self.mounts();
        if mounts.len() > 1 {
            let notices = notices();
            for mine in mounts.iter().filter(|mine| mine.me != me) {
                mine.add(notices.iter().cloned(), &mut given);
            }
        }
        given
    }

    /// A request of mount `me` is in directory `dir` until the result is dropped: its kernel may hold the lock of it.
    pub(crate) fn enter(&self, me: u64, dir: Ino) -> Option<Within> {
        let pending = self.mounts().iter().find(|mine| mine.me == me).map(|mine| Arc::clone(&mine.names))?;
        Some(Within::of(pending, dir))
    }

    /// The same for a write to `ino`: its kernel may hold the lock of a page that it wrote a part of.
    pub(crate) fn write(&self, me: u64, ino: Ino) -> Option<Within> {
        let pending = self.mounts().iter().find(|mine| mine.me == me).map(|mine| Arc::clone(&mine.inodes))?;
        Some(Within::of(pending, ino))
    }

    /// True if a notice about `ino` has not been given to mount `me` yet.
    pub(crate) fn is_pending(&self, me: u64, ino: Ino) -> bool {
        let is_pending = |mine: &Mine| {
            let list = mine.inodes.list();
            list.giving == Some(ino) || list.inodes.contains_key(&ino)
        };
        self.mounts().iter().any(|mine| mine.me == me && is_pending(mine))
    }

    /// Tells mount `me` itself: something happened that its kernel could not know.
    pub(crate) fn tell_self(&self, me: u64, notice: Notice) {
        let mounts = self.mounts();
        for mine in mounts.iter().filter(|mine| mine.me == me) {
            mine.add([notice.clone()], &mut Given::default());
        }
    }

    fn mounts(&self) -> RwLockReadGuard<'_, Vec<Mine>> {
        self.mounts.read().expect("nothing panics while it holds the mounts")
    }

    /// Adds mount `me`, whose kernel is reached through `notifier`; the notices end when the result is dropped.
    pub(crate) fn join(self: &Arc<Self>, me: u64, numbers: Numbers, notifier: Notifier) -> io::Result<Member> {
        let start = |name: &str| {
            let pending = Arc::new(Pending::default());
            let (mine, notifier) = (Arc::clone(&pending), notifier.clone());
            // The thread is not waited for: a notice in the kernel ends when the mount does, which may be later.
            std::thread::Builder::new().name(format!("fuse-{name}-{me}")).spawn(move || {
                while let Some(notice) = mine.next() {
                    if let Err(error) = give(&notifier, numbers, &notice) {
                        // The mount is going away, or the kernel is too old for notices: caches expire by themselves.
                        tracing::debug!(?notice, %error, "the kernel did not take a notice");
                    }
                    mine.done();
                }
            })?;
            Ok::<_, io::Error>(pending)
        };
        let (inodes, names) = (start("inodes")?, start("names")?);
        self.mounts.write().expect("nothing panics while it holds the mounts").push(Mine { me, inodes, names });
        Ok(Member { hub: Arc::clone(self), me })
    }
}

impl Mine {
    /// Adds notices; `given` waits for those that should be waited for.
    fn add(&self, notices: impl IntoIterator<Item = Notice>, given: &mut Given) {
        let (mut inodes, mut names) = (false, false);
        for notice in notices {
            let is_name = matches!(notice, Notice::Name { .. });
            if is_name { &self.names } else { &self.inodes }.list().add(notice);
            (inodes, names) = (inodes || !is_name, names || is_name);
        }
        if inodes {
            self.inodes.more.notify_one();
            given.add(&self.inodes, PAGES_MAX);
        }
        if names {
            self.names.more.notify_one();
            given.add(&self.names, NAMES_MAX);
        }
    }
}

/// Another client changes something, or this one has lost its right to remember it.
impl Watcher for Hub {
    fn forget(&self, ino: Ino, names: &[Vec<u8>]) {
        for mine in self.mounts().iter() {
            let names = names.iter().map(|name| Notice::Name { dir: ino, name: name.clone() });
            let notices = std::iter::once(Notice::Pages { ino, from: 0, to: u64::MAX }).chain(names);
            mine.add(notices, &mut Given::default());
        }
    }

    fn forgotten(&self) -> BoxFuture<()> {
        let mut given = Given::default();
        for mine in self.mounts().iter() {
            given.add(&mine.inodes, PAGES_MAX);
            given.add(&mine.names, NAMES_MAX);
        }
        Box::pin(given.wait())
    }
}

/// Notices that mounts were told.
#[derive(Default)]
pub(crate) struct Given(Vec<(oneshot::Receiver<()>, Duration)>);

impl Given {
    fn add(&mut self, pending: &Pending, most: Duration) {
        let mut list = pending.list();
        let most = if list.is_blocked() { BLOCKED_MAX } else { most };
        self.0.extend(list.given().map(|wait| (wait, most)));
    }

    /// Ready when their kernels have heard them, or do not listen for too long.
    pub(crate) async fn wait(self) {
        for (wait, most) in self.0 {
            // A mount that goes away has no caches.
            if tokio::time::timeout(most, wait).await.is_err() {
                tracing::debug!("a kernel takes its time with a notice");
            }
        }
    }
}

/// A request is in a directory, or writes a file.
pub(crate) struct Within {
    pending: Arc<Pending>,
    ino: Ino,
}

impl Within {
    fn of(pending: Arc<Pending>, ino: Ino) -> Self {
        *pending.list().within.entry(ino).or_default() += 1;
        Self { pending, ino }
    }
}

impl Drop for Within {
    fn drop(&mut self) {
        let mut list = self.pending.list();
        if let Some(count) = list.within.get_mut(&self.ino) {
            *count -= 1;
            if *count == 0 {
                list.within.remove(&self.ino);
            }
        }
    }
}

/// A mount's membership.
pub(crate) struct Member {
    hub: Arc<Hub>,
    me: u64,
}

impl Drop for Member {
    fn drop(&mut self) {
        let mut mounts = self.hub.mounts.write().expect("nothing panics while it holds the mounts");
        for mine in mounts.extract_if(.., |mine| mine.me == self.me) {
            mine.inodes.close();
            mine.names.close();
        }
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
    /// The inode, or the directory of the name, that is being given.
    giving: Option<Ino>,
    /// Turns so far, and those of them that are over.
    added: u64,
    over: u64,
    /// Who waits until so many are over, in this order.
    waits: VecDeque<(u64, oneshot::Sender<()>)>,
    /// Directories that requests of this mount are in, or files that they write, and how many.
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

    /// True if a pending notice waits for a request of this mount.
    fn is_blocked(&self) -> bool {
        let within = |ino: &Ino| self.within.contains_key(ino);
        let waits = |turn: &Turn| match turn {
            Turn::Name { dir, .. } => within(dir),
            Turn::Inode(ino) => within(ino),
        };
        !self.within.is_empty() && (self.giving.as_ref().is_some_and(within) || self.order.iter().any(waits))
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
    /// The next notice; waits for one. `None` after [`Self::close`].
    fn next(&self) -> Option<Notice> {
        let mut list = self.list();
        loop {
            if list.closed {
                return None;
            }
            match list.order.pop_front() {
                Some(Turn::Name { dir, name }) => {
                    list.giving = Some(dir);
                    return Some(Notice::Name { dir, name });
                }
                Some(Turn::Inode(ino)) => {
                    list.giving = Some(ino);
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
        let mut heard = Vec::new();
        let mut list = self.list();
        (list.over, list.giving) = (list.over + 1, None);
        while let Some((upto, _)) = list.waits.front()
            && *upto <= list.over
        {
            heard.extend(list.waits.pop_front());
        }
        // Who waited may go on in this very thread, and want the list of another mount: not with this one in hand.
        drop(list);
        for (_, wait) in heard {
            // Who waited may have lost patience.
            let _ = wait.send(());
        }
    }

    fn close(&self) {
        let mut list = self.list();
        list.closed = true;
        let waits = std::mem::take(&mut list.waits);
        drop(list);
        drop(waits);
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
