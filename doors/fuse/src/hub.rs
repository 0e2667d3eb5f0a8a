//! Tells the mounts of one file system in this process what others changed, so that their kernel caches let go: other
//! mounts of this process, and other clients, whose changes are announced by the recall of a lease.
//!
//! Each mount has two lists of pending notices, about inodes and about names, and a few threads for each that give them
//! to the kernel. Who changed something is answered when its notices are given, so that nobody sees the old state after
//! that. The kernel may make a notice wait until a request of that mount is answered: pages wait for a read of them, or
//! for a write that fills a part of one, and a name for the lock of its directory. So notices never come from a thread
//! that answers requests, and one that waits does not hold up those about other inodes. Reads wait for nobody. A write, or
//! a request about a directory, may wait for the other mount in turn: a notice about that inode is waited for
//! [`BLOCKED_MAX`] only, and what is left of a circle resolves itself after [`NAMES_MAX`]. Notices about one inode are
//! merged, which bounds the list by the number of inodes that change at a time.
//!
//! A notice that comes late does harm beside the moment of old state: the kernel throws away attributes that meet it on
//! their way, the size with them. A program is then told of a size that its next read or mapped access does not know.

use std::collections::{BTreeSet, HashMap, VecDeque};
use std::io;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, RwLock, RwLockReadGuard};
use std::time::Duration;

use braid_base::ids::Ino;
use braid_client::BoxFuture;
use braid_client::fs::Watcher;
use tokio::sync::oneshot;
use tokio::time::{Instant, timeout_at};

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
/// The same while a request of that mount about this inode may be what the notice waits for, and that request for others
/// in turn.
const BLOCKED_MAX: Duration = Duration::from_millis(5);
/// Threads that give notices about inodes, and about names: so many of them may wait in the kernel before they hold up
/// others.
const INODE_THREADS: usize = 4;
const NAME_THREADS: usize = 2;

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
        self.mounts().iter().any(|mine| mine.me == me && mine.inodes.list().due.contains_key(&ino))
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
        let start = |name: &str, threads: usize| {
            let pending = Arc::new(Pending::default());
            for _ in 0..threads {
                let (mine, notifier) = (Arc::clone(&pending), notifier.clone());
                // The thread is not waited for: a notice in the kernel ends when the mount does, which may be later.
                let started = std::thread::Builder::new().name(format!("fuse-{name}-{me}")).spawn(move || {
                    while let Some(notice) = mine.next() {
                        if let Err(error) = give(&notifier, numbers, &notice) {
                            // The mount is going away, or the kernel is too old for notices: caches expire by themselves.
                            tracing::debug!(?notice, %error, "the kernel did not take a notice");
                        }
                        mine.done(notice.of());
                    }
                });
                started.inspect_err(|_| pending.close())?;
            }
            Ok::<_, io::Error>(pending)
        };
        let inodes = start("inodes", INODE_THREADS)?;
        let names = start("names", NAME_THREADS).inspect_err(|_| inodes.close())?;
        self.mounts.write().expect("nothing panics while it holds the mounts").push(Mine { me, inodes, names });
        Ok(Member { hub: Arc::clone(self), me })
    }
}

impl Mine {
    /// Adds notices; `given` waits for those that should be waited for.
    fn add(&self, notices: impl IntoIterator<Item = Notice>, given: &mut Given) {
        let (mut inodes, mut names) = (BTreeSet::new(), BTreeSet::new());
        for notice in notices {
            let ino = notice.of();
            let (pending, inos) = match notice {
                Notice::Name { .. } => (&self.names, &mut names),
                _ => (&self.inodes, &mut inodes),
            };
            pending.list().add(notice);
            pending.more.notify_one();
            inos.insert(ino);
        }
        inodes.into_iter().for_each(|ino| given.add(&self.inodes, ino, PAGES_MAX));
        names.into_iter().for_each(|dir| given.add(&self.names, dir, NAMES_MAX));
    }
}

impl Notice {
    /// The inode that it is about; of a name, its directory.
    fn of(&self) -> Ino {
        match self {
            Self::Attr(ino) | Self::Pages { ino, .. } | Self::Name { dir: ino, .. } => *ino,
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

    fn forgotten(&self, inos: &[Ino]) -> BoxFuture<()> {
        let mut given = Given::default();
        for mine in self.mounts().iter() {
            for ino in inos {
                given.add(&mine.inodes, *ino, PAGES_MAX);
                given.add(&mine.names, *ino, NAMES_MAX);
            }
        }
        Box::pin(given.wait())
    }
}

/// Notices that mounts were told.
#[derive(Default)]
pub(crate) struct Given(Vec<Wait>);

struct Wait {
    heard: oneshot::Receiver<()>,
    pending: Arc<Pending>,
    ino: Ino,
    most: Duration,
}

impl Given {
    /// Those about `ino` that `pending` has now.
    fn add(&mut self, pending: &Arc<Pending>, ino: Ino, most: Duration) {
        let heard = pending.list().given(ino);
        self.0.extend(heard.map(|heard| Wait { heard, pending: Arc::clone(pending), ino, most }));
    }

    /// Ready when their kernels have heard them, or do not listen for too long.
    pub(crate) async fn wait(self) {
        let begin = Instant::now();
        for wait in self.0 {
            wait.wait(begin).await;
        }
    }
}

impl Wait {
    async fn wait(mut self, begin: Instant) {
        // All looked at from one begin: what several wait for does not add up.
        let mut look = begin;
        loop {
            look = (look + BLOCKED_MAX).max(Instant::now());
            // A mount that goes away has no caches.
            if timeout_at(look.min(begin + self.most), &mut self.heard).await.is_ok() {
                return;
            }
            // Asked each time: a request that came after the notice may be what it waits for.
            if Instant::now() >= begin + self.most || self.pending.list().within.contains_key(&self.ino) {
                tracing::debug!(ino = ?self.ino, "a kernel takes its time with a notice");
                return;
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
    order: VecDeque<Notice>,
    /// Turns that are not over, pending or being given, by inode or directory of the name.
    due: HashMap<Ino, Due>,
    /// Directories that requests of this mount are in, or files that they write, and how many.
    within: HashMap<Ino, usize>,
}

#[derive(Default)]
struct Due {
    /// One is being given. One at a time: if it waits in the kernel, one thread is enough for that.
    giving: bool,
    /// Turns since there was none, and those of them that are over.
    added: u64,
    over: u64,
    /// Who waits until so many are over, in this order.
    waits: VecDeque<(u64, oneshot::Sender<()>)>,
}

impl List {
    fn add(&mut self, notice: Notice) {
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
    fn take(&mut self) -> Option<Notice> {
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
    fn given(&mut self, ino: Ino) -> Option<oneshot::Receiver<()>> {
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
    /// The next notice; waits for one. `None` after [`Self::close`].
    fn next(&self) -> Option<Notice> {
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
    fn done(&self, ino: Ino) {
        // Who waited may go on in this very thread, and want the list of another mount: not with this one in hand.
        let heard = self.list().over(ino);
        // A turn about the same inode may be taken now.
        self.more.notify_one();
        for wait in heard {
            // Who waited may have lost patience.
            let _ = wait.send(());
        }
    }

    fn close(&self) {
        let mut list = self.list();
        list.closed = true;
        let due = std::mem::take(&mut list.due);
        drop(list);
        drop(due);
        self.more.notify_all();
    }

    fn list(&self) -> MutexGuard<'_, List> {
        self.list.lock().expect("nothing panics while it holds the notices")
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicBool, Ordering};

    use braid_base::ids::Ino;
    use tokio::time::Instant;

    use super::{BLOCKED_MAX, Given, Notice, PAGES_MAX, Pending, Within};

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
    fn a_notice_that_takes_long_holds_up_no_other_and_who_waits_waits_for_its_own() {
        let pending = Pending::default();
        let wait = |ino| pending.list().given(Ino(ino));
        pending.list().add(Notice::Attr(Ino(1)));
        pending.list().add(Notice::Attr(Ino(2)));
        let (mut one, mut two) = (wait(1).expect("it is due"), wait(2).expect("it is due"));
        assert_eq!(pending.next(), Some(Notice::Attr(Ino(1))));
        // While it is being given it is due, and what comes now is a turn of its own.
        pending.list().add(Notice::Attr(Ino(1)));
        let mut again = wait(1).expect("it is due");
        assert_eq!(pending.next(), Some(Notice::Attr(Ino(2))));
        pending.done(Ino(2));
        assert!(two.try_recv().is_ok() && one.try_recv().is_err() && wait(2).is_none());
        assert!(pending.list().take().is_none(), "one thread waits for it, and that is enough");
        pending.done(Ino(1));
        assert!(one.try_recv().is_ok() && again.try_recv().is_err());
        assert_eq!(pending.next(), Some(Notice::Attr(Ino(1))), "it came back");
        pending.done(Ino(1));
        assert!(again.try_recv().is_ok() && wait(1).is_none() && pending.list().due.is_empty());
    }

    #[test]
    fn the_list_is_bounded() {
        let pending = Pending::default();
        (0..super::PENDING_MAX as u64 + 10).for_each(|ino| pending.list().add(Notice::Attr(Ino(ino))));
        assert_eq!(pending.list().order.len(), super::PENDING_MAX);
        assert_eq!(pending.list().dropped, 10);
    }

    #[tokio::test]
    async fn a_request_that_came_after_the_notice_is_not_waited_for() {
        let pending = Arc::new(Pending::default());
        pending.list().add(Notice::Attr(Ino(1)));
        let wait = || {
            let mut given = Given::default();
            given.add(&pending, Ino(1), PAGES_MAX);
            given.wait()
        };
        let (begin, waits) = (Instant::now(), wait());
        let within = Within::of(Arc::clone(&pending), Ino(1));
        waits.await;
        assert!(begin.elapsed() < PAGES_MAX, "nobody gives it, and nobody waits to the end");
        drop(within);

        assert_eq!(pending.next(), Some(Notice::Attr(Ino(1))));
        let (given, waits) = (Arc::new(AtomicBool::new(false)), wait());
        let (gives, is_given) = (Arc::clone(&pending), Arc::clone(&given));
        tokio::spawn(async move {
            tokio::time::sleep(4 * BLOCKED_MAX).await;
            is_given.store(true, Ordering::Relaxed);
            gives.done(Ino(1));
        });
        waits.await;
        assert!(given.load(Ordering::Relaxed), "looked at more than once");
    }
}
