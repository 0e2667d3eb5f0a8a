//! What each request does, apart from the form of its reply: client calls, then word to the other mounts.

mod held;
mod open;

use std::future::Future;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock, Weak};
use std::time::Duration;

use braid_base::attr::{Attr, FileType, SetAttr};
use braid_base::ids::Ino;
use braid_base::msg::fs::{Cred, DirEntry, FallocMode, LockKind, LockSpec, RenameMode, XattrMode};
use braid_base::{Error, ErrorKind};
use braid_client::Fs;
use braid_client::fs::{Create, Entry, Seek, Space};
use braid_client::qos::Throttle;
use braid_client::session::LockEnd;
use bytes::Bytes;

use crate::attrs::Numbers;
use crate::calls::held::Held;
use crate::errno::{of, of_inode};
use crate::handles::Handles;
use crate::hub::{Hub, Notice};
use crate::locks::{Closes, Owners};
use crate::options::{CacheMode, Options};
use crate::reads::Reads;
use crate::remembered::Remembered;
use crate::tier::{self, Departures};
use crate::wire::encode::Entry as Shown;
use crate::wire::errno::Errno;
use crate::wire::notify::Notifier;
use crate::wire::request::Fh;

/// A result for the kernel.
pub(crate) type Answer<T> = Result<T, Errno>;

/// One mount's view of the file system.
pub(crate) struct Calls {
    pub(crate) fs: Fs,
    pub(crate) numbers: Numbers,
    hub: Arc<Hub>,
    me: u64,
    remembered: Arc<Remembered>,
    handles: Handles,
    held: Held,
    kernel: OnceLock<Notifier>,
    pub(crate) owners: Owners,
    pub(crate) closes: Closes,
    moves_atime: bool,
    /// Nothing passes through the kernel's page cache.
    direct: bool,
    /// How long the kernel may believe a name, or attributes, unless it is told to forget them before.
    name_age: Duration,
    positive_age: Duration,
    /// How long it may believe that there is no such name, even if another client makes it meanwhile.
    negative_age: Duration,
    throttle: Option<Throttle>,
    /// `close` waits until the file is durable.
    pub(crate) sync_on_close: bool,
    /// What is in objects is read from there, and what is written leaves flash first.
    departures: Option<Departures>,
    reads: Reads,
    pub(crate) writes: Arc<Writes>,
}

/// A name that a rename brought, and what it stands for.
pub(crate) struct Came {
    dir: Ino,
    name: Vec<u8>,
    ino: Ino,
}

/// Writes of the kernel so far.
#[derive(Default)]
pub(crate) struct Writes {
    begun: AtomicU64,
    ended: AtomicU64,
}

impl Writes {
    fn begin(&self) -> WriteUnderWay<'_> {
        self.begun.fetch_add(1, Ordering::AcqRel);
        WriteUnderWay(self)
    }

    /// How many have begun, if all of them have ended.
    pub(crate) fn settled(&self) -> Option<u64> {
        let ended = self.ended.load(Ordering::Acquire);
        Some(ended).filter(|ended| *ended == self.begun.load(Ordering::Acquire))
    }
}

/// A write that has not ended.
struct WriteUnderWay<'a>(&'a Writes);

impl Drop for WriteUnderWay<'_> {
    fn drop(&mut self) {
        self.0.ended.fetch_add(1, Ordering::AcqRel);
    }
}

/// Milliseconds that a read waits until what it gave back has arrived and it can have a lease again.
const HOLD_TURNS: usize = 10;
/// Turns of a create and an open that keep crossing another client's remove and create of the same name.
const CREATE_TURNS: usize = 8;
/// A lock that is refused beside closes that give some up is asked for again so often.
const REFUSALS_MAX: usize = 8;

impl Calls {
    pub(crate) fn new(fs: Fs, hub: Arc<Hub>, me: u64, options: &Options) -> Self {
        let numbers = Numbers { root: fs.root() };
        let throttle = Throttle::new(Arc::clone(fs.session().wire()), options.limits);
        let remembered = Arc::new(Remembered::new());
        let watcher: Weak<Remembered> = Arc::downgrade(&remembered);
        fs.watch(watcher);
        Self {
            fs,
            numbers,
            hub,
            me,
            remembered,
            handles: Handles::default(),
            held: Held::default(),
            kernel: OnceLock::new(),
            owners: Owners::default(),
            closes: Closes::default(),
            moves_atime: options.atime && !options.read_only,
            direct: options.cache == CacheMode::Direct,
            name_age: options.name_age(),
            positive_age: options.positive_age,
            negative_age: options.negative_age,
            throttle,
            sync_on_close: options.sync_on_close,
            departures: options.obs_direct.then(Departures::new),
            reads: Reads::new(),
            writes: Arc::default(),
        }
    }

    /// The kernel of the mount is reached through `notifier`.
    pub(crate) fn reaches(&self, notifier: Notifier) {
        // There is one for each mount.
        let _ = self.kernel.set(notifier);
    }

    // What the kernel may believe.

    /// An entry for the kernel.
    pub(crate) fn shown(&self, dir: Ino, name: &[u8], entry: &Entry) -> Shown {
        self.shown_attr(dir, name, &entry.attr)
    }

    pub(crate) fn shown_attr(&self, dir: Ino, name: &[u8], attr: &Attr) -> Shown {
        let is_certain = self.fs.is_certain_name(dir, name, attr.ino) && !self.hub.is_contended(self.me, dir);
        let name_ttl = if is_certain { self.name_age } else { Duration::ZERO };
        self.numbers.entry(attr, (name_ttl, self.attr_ttl(attr)))
    }

    /// That there is no such name, if the kernel may believe that at all.
    pub(crate) fn shown_absence(&self, dir: Ino) -> Option<Shown> {
        let may_believe = !self.negative_age.is_zero() && !self.hub.is_contended(self.me, dir);
        may_believe.then(|| Shown::none(self.negative_age))
    }

    pub(crate) fn attr_ttl(&self, attr: &Attr) -> Duration {
        if self.fs.is_certain_attr(attr) { self.positive_age } else { Duration::ZERO }
    }

    // Names.

    pub(crate) async fn lookup(&self, dir: Ino, name: &[u8]) -> Answer<Entry> {
        let entry = self.fs.lookup(dir, name).await.map_err(|e| of(&e))?;
        self.saw(&entry.attr);
        Ok(entry)
    }

    pub(crate) async fn make(&self, cred: Cred, dir: Ino, name: &[u8], what: Create) -> Answer<Entry> {
        let entry = self.fs.create(cred, dir, name, what).await.map_err(|e| of(&e))?;
        self.tell(|| vec![name_of(dir, name), Notice::Attr(dir)]).await;
        Ok(entry)
    }

    /// Creates a file and opens it; without `exclusive` an existing one is opened. The flag says whether the kernel
    /// may keep its pages.
    pub(crate) async fn create(
        &self,
        cred: Cred,
        dir: Ino,
        name: &[u8],
        (mode, umask): (u16, u16),
        flags: i32,
    ) -> Answer<(Entry, bool)> {
        let what = Create { kind: FileType::File, mode, umask, open: true, ..Create::default() };
        for _ in 0..CREATE_TURNS {
            match self.make(cred, dir, name, what.clone()).await {
                Ok(entry) => {
                    self.remembered.opened(&entry.attr);
                    self.handles.opens(entry.ino).await;
                    return Ok((entry, false));
                }
                Err(Errno::EEXIST) if flags & libc::O_EXCL == 0 => {}
                Err(error) => return Err(error),
            }
            // The kernel had not seen the name; another mount made it meanwhile.
            let found = match Box::pin(self.lookup(dir, name)).await {
                Ok(found) => found,
                Err(Errno::ENOENT) => continue,
                Err(error) => return Err(error),
            };
            if found.attr.kind != FileType::File {
                // ESTALE makes the kernel start the path again, and then it sees what is there.
                return Err(Errno::ESTALE);
            }
            match Box::pin(self.open(found.ino, flags)).await {
                Ok((attr, keep)) => return Ok((Entry { ino: found.ino, attr }, keep)),
                Err(Errno::ESTALE) => {}
                Err(error) => return Err(error),
            }
        }
        Err(Errno::ESTALE)
    }

    pub(crate) async fn link(&self, ino: Ino, dir: Ino, name: &[u8]) -> Answer<Entry> {
        let entry = self.fs.link(ino, dir, name).await.map_err(|e| of(&e))?;
        self.remembered.changed(&entry.attr);
        self.tell(|| vec![name_of(dir, name), Notice::Attr(dir), Notice::Attr(ino)]).await;
        Ok(entry)
    }

    pub(crate) async fn remove(&self, dir: Ino, name: &[u8], is_dir: bool) -> Answer<()> {
        let gone = if is_dir { self.fs.rmdir(dir, name).await } else { self.fs.unlink(dir, name).await };
        let gone = gone.map_err(|e| of(&e))?;
        self.tell(|| vec![name_of(dir, name), Notice::Attr(dir), Notice::Attr(gone)]).await;
        Ok(())
    }

    /// What came where: for [`Self::came`], when the kernel has the answer.
    pub(crate) async fn rename(&self, from: (Ino, &[u8]), to: (Ino, &[u8]), mode: RenameMode) -> Answer<Vec<Came>> {
        let exchanges = mode == RenameMode::Exchange;
        let moves = || {
            self.hub.moves(self.me, from.0, to.0);
            if exchanges {
                self.hub.moves(self.me, to.0, from.0);
            }
        };
        // The kernel moves what it knows when it has the answer: whoever changes these names meanwhile counts on that.
        moves();
        let done = self.fs.rename(from.0, from.1, to.0, to.1, mode).await;
        moves();
        let done = done.map_err(|e| of(&e))?;
        self.tell(|| {
            let mut notices = vec![name_of(from.0, from.1), name_of(to.0, to.1)];
            notices.extend([from.0, to.0, done.moved].into_iter().chain(done.other).map(Notice::Attr));
            notices
        })
        .await;
        let back = done.other.filter(|_| exchanges).map(|other| (from, other));
        let came = [Some((to, done.moved)), back].into_iter().flatten();
        Ok(came.map(|((dir, name), ino)| Came { dir, name: name.to_vec(), ino }).collect())
    }

    /// The kernel took names along that it believes: those that no lease covers where they are now it is to forget.
    pub(crate) fn came(&self, came: Vec<Came>) {
        for Came { dir, name, ino } in came {
            if !self.fs.is_certain_name(dir, &name, ino) || self.hub.is_contended(self.me, dir) {
                self.hub.tell_self(self.me, Notice::Name { dir, name });
            }
        }
    }

    pub(crate) async fn readlink(&self, ino: Ino) -> Answer<Vec<u8>> {
        self.fs.readlink(ino).await.map_err(|e| of_inode(&e))
    }

    pub(crate) async fn readdir(&self, dir: Ino, cookie: u64, limit: u32, plus: bool) -> Answer<Vec<DirEntry>> {
        let (entries, _) = self.fs.readdir(dir, cookie, limit, plus).await.map_err(|e| of(&e))?;
        entries.iter().filter_map(|entry| entry.attr.as_ref()).for_each(|attr| self.saw(attr));
        Ok(entries)
    }

    /// The parent of `dir` for a listing; a directory that was just removed is its own.
    pub(crate) async fn parent(&self, dir: Ino) -> Answer<Ino> {
        match self.fs.parent(dir).await {
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(dir),
            result => result.map_err(|e| of(&e)),
        }
    }

    // Attributes.

    pub(crate) async fn getattr(&self, ino: Ino) -> Answer<Attr> {
        let attr = self.fs.getattr(ino).await.map_err(|e| of_inode(&e))?;
        self.saw(&attr);
        Ok(attr)
    }

    pub(crate) async fn setattr(&self, ino: Ino, set: SetAttr) -> Answer<Attr> {
        let size = set.size;
        let attr = self.fs.setattr(ino, set).await.map_err(|e| of_inode(&e))?;
        self.remembered.changed(&attr);
        self.saw(&attr);
        self.tell(|| {
            vec![match size {
                Some(_) => Notice::Pages { ino, from: 0, to: u64::MAX },
                None => Notice::Attr(ino),
            }]
        })
        .await;
        Ok(attr)
    }

    pub(crate) async fn setxattr(&self, ino: Ino, name: &[u8], value: &[u8], mode: XattrMode) -> Answer<()> {
        if tier::is_virtual(name) {
            return tier::set(&self.fs, &self.getattr(ino).await?, name, value).await;
        }
        self.fs.setxattr(ino, name, value, mode).await.map_err(|e| of_inode(&e))?;
        self.tell(|| vec![Notice::Attr(ino)]).await;
        Ok(())
    }

    pub(crate) async fn getxattr(&self, ino: Ino, name: &[u8]) -> Answer<Vec<u8>> {
        if tier::is_virtual(name) {
            return tier::value(&self.fs, &self.reads, &self.getattr(ino).await?, name).await;
        }
        self.fs.getxattr(ino, name).await.map_err(|e| of_inode(&e))
    }

    /// The names, each with a NUL after it. As on local file systems, `trusted.` names are for root only.
    pub(crate) async fn listxattr(&self, ino: Ino, uid: u32) -> Answer<Vec<u8>> {
        let names = self.fs.listxattr(ino).await.map_err(|e| of_inode(&e))?;
        let shown = names.iter().filter(|name| uid == 0 || !name.starts_with(b"trusted."));
        Ok(shown.flat_map(|name| name.iter().copied().chain([0])).collect())
    }

    pub(crate) async fn removexattr(&self, ino: Ino, name: &[u8]) -> Answer<()> {
        if tier::is_virtual(name) {
            return Err(Errno::EOPNOTSUPP);
        }
        self.fs.removexattr(ino, name).await.map_err(|e| of_inode(&e))?;
        self.tell(|| vec![Notice::Attr(ino)]).await;
        Ok(())
    }

    pub(crate) async fn statfs(&self) -> Answer<Space> {
        self.fs.statfs().await.map_err(|e| of(&e))
    }

    // Content.

    /// The flags of an open as the mount has it: with `O_DIRECT` if the kernel is to keep nothing of it. On a mount that
    /// leaves in objects what is there, reading is to leave nothing behind in memory, either.
    pub(crate) fn flags(&self, flags: i32) -> i32 {
        let past_flash = self.departures.is_some() && flags & libc::O_ACCMODE == libc::O_RDONLY;
        if self.direct || past_flash { flags | libc::O_DIRECT } else { flags }
    }

    /// Whether what was written to `ino`, which is closed now, leaves flash first. Says so once.
    pub(crate) fn departs(&self, ino: Ino) -> bool {
        self.departures.as_ref().is_some_and(|departures| departures.closed(ino))
    }

    pub(crate) async fn read(&self, ino: Ino, off: u64, len: u64) -> Answer<Bytes> {
        if let Some(throttle) = &self.throttle {
            Box::pin(throttle.pass(len)).await;
        }
        let holds = self.hold(ino).await?;
        let read = match self.departures {
            None => self.fs.read(ino, off, len).await,
            Some(_) => Box::pin(self.fs.read_direct(ino, off, len)).await,
        };
        let read = read.map_err(|e| failed("read", ino, &e))?;
        self.reads.note(ino, off.saturating_add(read.len() as u64), || self.now_ms());
        if !holds {
            // Nobody will say when these pages are out of date. (Not the usual way: a notice makes the kernel throw away
            // attributes that are on their way to it, the size of the file with them.)
            self.remembered.distrust(ino);
            self.hub.tell_self(self.me, Notice::Pages { ino, from: off, to: off.saturating_add(len) });
        }
        Ok(read)
    }

    /// Has a lease on `ino`, so that somebody says when its pages are out of date: those that the kernel waits for now are
    /// locked, and a notice that follows gets to them. False if there is none at the moment; then a notice may be
    /// waiting for the very read that asks.
    async fn hold(&self, ino: Ino) -> Answer<bool> {
        // Until its partition has heard of a file nobody can have a lease on it.
        self.fs.names_kept(ino).await.map_err(|e| failed("read", ino, &e))?;
        for _ in 0..HOLD_TURNS {
            if self.fs.is_certain(ino) {
                return Ok(true);
            }
            if !self.fs.may_be_certain(ino) || self.hub.is_pending(self.me, ino) {
                return Ok(false);
            }
            // The answer brings a lease, if one can be had: not on what has no name any more.
            match self.fs.getattr(ino).await {
                Ok(attr) if attr.nlink == 0 => return Ok(self.fs.is_certain(ino)),
                Ok(_) => {}
                Err(error) if error.kind() == ErrorKind::Io => return Err(failed("read", ino, &error)),
                Err(_) => return Ok(false),
            }
            if !self.fs.is_certain(ino) {
                self.fs.session().wire().sleep_ms(1).await;
            }
        }
        Ok(false)
    }

    /// Moves the access time after a read, by the rule of `relatime`; a failure of that is nobody's concern.
    pub(crate) async fn after_read(&self, ino: Ino) {
        if self.moves_atime
            && self.remembered.read_moves_atime(ino)
            && let Err(error) = self.fs.accessed(ino).await
        {
            tracing::debug!(%ino, %error, "the access time could not be moved");
        }
    }

    /// How much was written, and which part of the file is to leave flash now.
    pub(crate) async fn write(
        &self,
        ino: Ino,
        off: u64,
        data: Bytes,
        append: bool,
        kill: bool,
    ) -> Answer<(u32, Option<(u64, u64)>)> {
        let _under_way = (self.writes.begin(), self.hub.write(self.me, ino));
        let len = data.len() as u64;
        if let Some(throttle) = &self.throttle {
            Box::pin(throttle.pass(len)).await;
        }
        let done = self.fs.write(ino, off, data, append, kill).await.map_err(|e| failed("write", ino, &e))?;
        if let Some(attr) = &done.attr {
            self.remembered.changed(attr);
            self.saw(attr);
        }
        let leaves = self.departures.as_ref().and_then(|departures| departures.written(ino, done.off, done.len));
        let end = done.off.saturating_add(done.len);
        if append && done.off != off {
            // The kernel filled its pages at `off`, where it thought the end was: they hold the wrong bytes.
            self.remembered.distrust(ino);
            self.hub.tell_self(self.me, Notice::Pages { ino, from: off.min(done.off), to: u64::MAX });
        }
        self.tell(|| vec![Notice::Pages { ino, from: done.off, to: end }]).await;
        assert!(done.len <= len, "no write is longer than its data");
        Ok((done.len as u32, leaves))
    }

    pub(crate) async fn fallocate(&self, ino: Ino, off: u64, len: u64, mode: i32, uid: u32) -> Answer<()> {
        let keep_size = mode & libc::FALLOC_FL_KEEP_SIZE != 0;
        let what = match mode & !libc::FALLOC_FL_KEEP_SIZE {
            0 => FallocMode::Allocate,
            libc::FALLOC_FL_PUNCH_HOLE if keep_size => FallocMode::Punch,
            libc::FALLOC_FL_ZERO_RANGE => FallocMode::Zero,
            _ => return Err(Errno::EOPNOTSUPP),
        };
        let attr = self.fs.fallocate(ino, off, len, what, keep_size).await.map_err(|e| of_inode(&e))?;
        self.remembered.changed(&attr);
        if uid != 0 && attr.mode & 0o6000 != 0 {
            self.setattr(ino, SetAttr { kill_suid_sgid: true, ..SetAttr::default() }).await?;
        }
        self.tell(|| vec![Notice::Pages { ino, from: off, to: off.saturating_add(len) }]).await;
        Ok(())
    }

    pub(crate) async fn lseek(&self, ino: Ino, off: i64, whence: i32) -> Answer<i64> {
        let what = match whence {
            libc::SEEK_DATA => Seek::Data,
            libc::SEEK_HOLE => Seek::Hole,
            _ => return Err(Errno::EINVAL),
        };
        let off = u64::try_from(off).map_err(|_| Errno::ENXIO)?;
        let found = self.fs.seek(ino, off, what).await.map_err(|e| of_inode(&e))?;
        found.and_then(|at| i64::try_from(at).ok()).ok_or(Errno::ENXIO)
    }

    pub(crate) async fn copy(&self, from: (Ino, u64), to: (Ino, u64), len: u64, uid: u32) -> Answer<u32> {
        if self.departures.is_some() {
            // The kernel reads and writes then, and nothing comes back to flash.
            return Err(Errno::EOPNOTSUPP);
        }
        let copied = self.fs.copy_range(from.0, from.1, to.0, to.1, len, uid != 0).await;
        let copied = copied.map_err(|e| failed("copy", to.0, &e))?;
        self.remembered.distrust(to.0);
        self.tell(|| vec![Notice::Pages { ino: to.0, from: to.1, to: to.1.saturating_add(copied) }]).await;
        u32::try_from(copied).map_err(|_| Errno::EIO)
    }

    // Locks.

    /// Takes or gives up a lock through an open file; with `wait` it is waited for, until `interrupted` comes.
    pub(crate) async fn lock(
        &self,
        (ino, fh): (Ino, Fh),
        lock: LockSpec,
        wait: bool,
        interrupted: impl Future<Output = ()>,
    ) -> Answer<()> {
        let counts = lock.kind != LockKind::Unlock && !lock.flock;
        if counts {
            self.owners.asks(ino, fh, lock.owner);
        }
        let taken = if wait && lock.kind != LockKind::Unlock {
            match self.fs.lock_wait(ino, lock, interrupted).await {
                Ok(LockEnd::Held) => Ok(()),
                Ok(LockEnd::Interrupted) => Err(Errno::EINTR),
                Err(error) => Err(of_inode(&error)),
            }
        } else {
            self.lock_now(ino, lock).await
        };
        if counts && taken.is_ok() {
            self.owners.holds(ino, fh, lock.owner);
        }
        taken
    }

    async fn lock_now(&self, ino: Ino, lock: LockSpec) -> Answer<()> {
        for _ in 0..REFUSALS_MAX {
            let then = self.closes.now();
            match self.fs.lock(ino, lock).await {
                Err(error) if error.kind() == ErrorKind::WouldBlock && self.closes.since(then, ino).await => {}
                done => return done.map_err(|e| of_inode(&e)),
            }
        }
        Err(Errno::EAGAIN)
    }

    pub(crate) async fn test_lock(&self, ino: Ino, lock: LockSpec) -> Answer<Option<LockSpec>> {
        self.fs.test_lock(ino, lock).await.map_err(|e| of_inode(&e))
    }

    pub(crate) async fn unlock_all(&self, ino: Ino, owner: u64, flock: bool) -> Answer<()> {
        self.fs.unlock_owner(ino, owner, flock).await.map_err(|e| of_inode(&e))
    }

    /// A descriptor is closed: its process gives up its `fcntl` locks on the inode. What cannot be given up now goes with the
    /// last close of the open file.
    pub(crate) async fn leave_locks(&self, ino: Ino, fh: Fh, owner: u64) -> Answer<()> {
        let left = self.unlock_all(ino, owner, false).await;
        if left.is_err() {
            self.owners.holds(ino, fh, owner);
        }
        left
    }

    fn now_ms(&self) -> u64 {
        self.fs.session().wire().now_ms()
    }

    fn saw(&self, attr: &Attr) {
        if self.moves_atime {
            self.remembered.saw(attr, now_s());
        }
    }

    /// Tells the other mounts of this process; ready when their kernels have heard it.
    async fn tell(&self, notices: impl FnOnce() -> Vec<Notice>) {
        let given = self.hub.tell_others(self.me, notices);
        if !given.is_empty() {
            Box::pin(given.wait()).await;
        }
    }
}

/// What a program sees of `error`, met while doing `what`.
fn failed(what: &str, ino: Ino, error: &Error) -> Errno {
    of_inode(&error.clone().within(format_args!("{what} of inode {ino}")))
}

fn name_of(dir: Ino, name: &[u8]) -> Notice {
    Notice::Name { dir, name: name.to_vec() }
}

/// Wall-clock seconds, only to tell whether an access time is a day old.
fn now_s() -> i64 {
    rustix::time::clock_gettime(rustix::time::ClockId::RealtimeCoarse).tv_sec
}
