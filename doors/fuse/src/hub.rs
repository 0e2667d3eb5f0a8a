//! Tells the mounts of one file system in this process what others changed, so that their kernel caches let go: other
//! mounts of this process, and other clients, whose changes are announced by the recall of a lease.
//!
//! Each mount has two lists of pending notices, about inodes and about names, and a few threads for each that give them
//! to the kernel. Who changed something is answered when its notices are given, so that nobody sees the old state after
//! that. The kernel may make a notice wait until a request of that mount is answered: pages wait for a read of them, or
//! for a write that fills a part of one, and a name for the lock of its directory. So notices never come from a thread
//! that answers requests, and one that waits does not hold up those about other inodes. Reads wait for nobody. A write may
//! wait for the other mount in turn: a notice about that file is waited for [`BLOCKED_MAX`] only. Notices about one inode
//! are merged, which bounds the list by the number of inodes that change at a time.
//!
//! Names need no such limit. A directory that there was a notice about is [`Contended`] for a while: the kernel
//! is given its names to ask about again each time. What it was given before it believes for a second at most. So when
//! that is over nothing is left to tell it, and no change waits for the lock of that directory, which a request that waits
//! for others may hold.
//!
//! A notice that comes late does harm beside the moment of old state: the kernel throws away attributes that meet it on
//! their way, the size with them. A program is then told of a size that its next read or mapped access does not know.

mod contended;
mod pending;

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::sync::{Arc, RwLock, RwLockReadGuard};
use std::time::Duration;

use braid_base::ids::Ino;
use braid_client::BoxFuture;
use braid_client::fs::Watcher;
use tokio::sync::oneshot;
use tokio::time::{Instant, timeout_at};

use crate::attrs::Numbers;
use crate::hub::contended::Contended;
use crate::hub::pending::Pending;
use crate::wire::notify::Notifier;

/// How long a change waits for the kernels of other mounts at most. A notice takes microseconds, on a machine that has
/// other work a few time slices.
const PAGES_MAX: Duration = Duration::from_secs(2);
/// The same while a write of that mount to this inode may be what the notice waits for, and that write for others in turn.
const BLOCKED_MAX: Duration = Duration::from_millis(5);
/// Threads that give notices about inodes, and about names: so many of them may wait in the kernel before they hold up
/// others.
const INODE_THREADS: usize = 4;
const NAME_THREADS: usize = 8;

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
    contended: Contended,
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

    /// Whether the kernel of mount `me` must not believe names in `dir` that it is given now.
    pub(crate) fn is_contended(&self, me: u64, dir: Ino) -> bool {
        self.of(me, |mine| mine.contended.has(dir)).unwrap_or(false)
    }

    /// The kernel of mount `me` takes names of directory `from` along to `to`, with the time until which it believes them.
    pub(crate) fn moves(&self, me: u64, from: Ino, to: Ino) {
        self.of(me, |mine| mine.contended.moves(from, to, Instant::now()));
    }

    /// A request of mount `me` writes to `ino` until the result is dropped: its kernel may hold the lock of a page that it
    /// wrote a part of.
    pub(crate) fn write(&self, me: u64, ino: Ino) -> Option<Within> {
        self.of(me, |mine| Within::of(Arc::clone(&mine.inodes), ino))
    }

    /// True if a notice about `ino` has not been given to mount `me` yet.
    pub(crate) fn is_pending(&self, me: u64, ino: Ino) -> bool {
        self.of(me, |mine| mine.inodes.list().due.contains_key(&ino)).unwrap_or(false)
    }

    /// Tells mount `me` itself: something happened that its kernel could not know. Nobody waits for that, and nobody else
    /// contends. Of a name only when the request about it was answered: the notice waits for it, and a thread that waits in
    /// the kernel would keep a mount alive whose process was killed.
    pub(crate) fn tell_self(&self, me: u64, notice: Notice) {
        self.of(me, |mine| mine.list_of(&notice).add(notice));
    }

    /// What `work` does with mount `me`, if it is there.
    fn of<T>(&self, me: u64, work: impl FnOnce(&Mine) -> T) -> Option<T> {
        self.mounts().iter().find(|mine| mine.me == me).map(work)
    }

    fn mounts(&self) -> RwLockReadGuard<'_, Vec<Mine>> {
        self.mounts.read().expect("nothing panics while it holds the mounts")
    }

    /// Adds mount `me`, whose kernel is reached through `notifier`; the notices end when the result is dropped.
    /// It believes names for `age` at most, and for `absence` that there is none.
    pub(crate) fn join(
        self: &Arc<Self>,
        me: u64,
        numbers: Numbers,
        (age, absence): (Duration, Duration),
        notifier: Notifier,
    ) -> io::Result<Member> {
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
        let mine = Mine { me, inodes, names, contended: Contended::new(age, absence) };
        self.mounts.write().expect("nothing panics while it holds the mounts").push(mine);
        Ok(Member { hub: Arc::clone(self), me })
    }
}

impl Mine {
    /// Adds notices; `given` waits for those that should be waited for.
    fn add(&self, notices: impl IntoIterator<Item = Notice>, given: &mut Given) {
        let (mut inodes, mut dirs) = (BTreeSet::new(), BTreeMap::new());
        for notice in notices {
            let ino = notice.of();
            let is_due = if let Notice::Name { .. } = notice {
                *dirs.entry(ino).or_insert_with(|| self.contended.note(ino))
            } else {
                inodes.insert(ino);
                true
            };
            if is_due {
                self.list_of(&notice).add(notice);
            }
        }
        inodes.into_iter().for_each(|ino| given.pages(self, ino));
        dirs.into_keys().for_each(|dir| given.names(self, dir));
    }

    fn list_of(&self, notice: &Notice) -> &Pending {
        if let Notice::Name { .. } = notice { &self.names } else { &self.inodes }
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
                given.pages(mine, *ino);
                given.names(mine, *ino);
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
    /// Where it is not waited for while a write may be what it waits for.
    pending: Option<Arc<Pending>>,
    ino: Ino,
    until: Instant,
}

impl Given {
    /// Those about the attributes and pages of `ino` that `mine` has now.
    fn pages(&mut self, mine: &Mine, ino: Ino) {
        let heard = mine.inodes.list().given(ino);
        let (pending, until) = (Some(Arc::clone(&mine.inodes)), Instant::now() + PAGES_MAX);
        self.0.extend(heard.map(|heard| Wait { heard, pending, ino, until }));
    }

    /// Those about names in `dir`.
    fn names(&mut self, mine: &Mine, dir: Ino) {
        let Some(until) = mine.contended.until(dir).filter(|until| *until > Instant::now()) else { return };
        let heard = mine.names.list().given(dir);
        self.0.extend(heard.map(|heard| Wait { heard, pending: None, ino: dir, until }));
    }

    /// Whether there is nothing to wait for.
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Ready when their kernels have heard them, or do not believe any more what they say.
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
            look = match self.pending {
                Some(_) => (look + BLOCKED_MAX).max(Instant::now()).min(self.until),
                None => self.until,
            };
            // A mount that goes away has no caches.
            if timeout_at(look, &mut self.heard).await.is_ok() {
                return;
            }
            // Asked each time: a write that came after the notice may be what it waits for.
            let is_blocked = |pending: &Arc<Pending>| pending.list().within.contains_key(&self.ino);
            if Instant::now() >= self.until || self.pending.as_ref().is_some_and(is_blocked) {
                tracing::debug!(ino = ?self.ino, "a kernel takes its time with a notice");
                return;
            }
        }
    }
}

/// A request writes a file.
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

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::time::Duration;

    use braid_base::ids::Ino;
    use tokio::time::Instant;

    use super::contended::ON_THE_WAY;
    use super::{BLOCKED_MAX, Contended, Given, Mine, Notice, PAGES_MAX, Pending, Within};

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
    fn no_notice_is_dropped_however_many_wait() {
        let pending = Pending::default();
        let (many, dir) = (200_000, Ino(u64::MAX));
        let name = |at: u64| Notice::Name { dir, name: at.to_le_bytes().to_vec() };
        for ino in (0..many).map(Ino) {
            pending.list().add(Notice::Attr(ino));
            pending.list().add(name(ino.0));
            pending.list().add(Notice::Pages { ino, from: 0, to: u64::MAX });
            pending.list().add(name(ino.0));
        }
        let mut heard = pending.list().given(dir).expect("it is due");
        let (mut pages, mut names) = (0, 0);
        let take = || pending.list().take();
        while let Some(notice) = take() {
            if let Notice::Name { .. } = notice {
                assert_eq!(notice, name(names), "in order, and each once");
                names += 1;
            } else {
                assert_eq!(notice, Notice::Pages { ino: Ino(pages), from: 0, to: u64::MAX });
                pages += 1;
            }
            assert!(heard.try_recv().is_err(), "not before the last");
            pending.done(notice.of());
        }
        assert_eq!((pages, names, pending.list().due.len()), (many, many, 0));
        assert!(heard.try_recv().is_ok());
    }

    const AGE: Duration = Duration::from_millis(50);

    fn mine() -> Mine {
        let (inodes, names) = (Arc::default(), Arc::default());
        Mine { me: 1, inodes, names, contended: Contended::new(AGE, AGE) }
    }

    #[tokio::test]
    async fn a_write_that_came_after_the_notice_is_not_waited_for() {
        let mine = mine();
        let pending = &mine.inodes;
        pending.add(Notice::Attr(Ino(1)));
        let wait = || {
            let mut given = Given::default();
            given.pages(&mine, Ino(1));
            given.wait()
        };
        let (begin, waits) = (Instant::now(), wait());
        let within = Within::of(Arc::clone(pending), Ino(1));
        waits.await;
        assert!(begin.elapsed() < PAGES_MAX, "nobody gives it, and nobody waits to the end");
        drop(within);

        assert_eq!(pending.next(), Some(Notice::Attr(Ino(1))));
        let (given, waits) = (Arc::new(AtomicBool::new(false)), wait());
        let (gives, is_given) = (Arc::clone(pending), Arc::clone(&given));
        tokio::spawn(async move {
            tokio::time::sleep(4 * BLOCKED_MAX).await;
            is_given.store(true, Ordering::Relaxed);
            gives.done(Ino(1));
        });
        waits.await;
        assert!(given.load(Ordering::Relaxed), "looked at more than once");
    }

    #[tokio::test]
    async fn a_change_of_a_name_waits_until_the_kernel_has_heard_it_or_does_not_believe_the_old_one() {
        let mine = mine();
        let notice = || Notice::Name { dir: Ino(1), name: b"n".to_vec() };
        let tell = || {
            let mut given = Given::default();
            mine.add([notice()], &mut given);
            given.wait()
        };
        let begin = Instant::now();
        let first = tell();
        assert_eq!(mine.names.next(), Some(notice()));
        mine.names.done(Ino(1));
        first.await;
        assert!(begin.elapsed() < AGE, "it has heard");
        // Now a request that waits for others holds the lock of the directory.
        tokio::join!(tell(), tell());
        assert!(begin.elapsed() >= AGE + ON_THE_WAY);
        assert_eq!(mine.names.next(), Some(notice()), "said once for both");
        mine.names.done(Ino(1));
        tell().await;
        assert!(mine.names.list().due.is_empty(), "there is nothing left to tell");
    }
}
