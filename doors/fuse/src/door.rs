//! The requests of the kernel: each is matched with a function of `calls`, started as a task, and its result shaped
//! into the reply.

mod content;
mod names;

use std::future::{Future, pending};
use std::sync::Arc;

use braid_base::attr::{Attr, SetAttr};
use braid_base::ids::Ino;
use braid_base::limits::{NAME_MAX, WRITE_MAX};
use braid_base::msg::fs::{Cred, LockKind, LockSpec, XattrMode};
use bytes::Bytes;
use tokio::runtime::Handle;

use crate::attrs::{BLOCK_BYTES, permissions, set_time};
use crate::calls::{Answer, Calls};
use crate::wire::abi::{self, feature};
use crate::wire::encode::{Body, Entry as Shown, Settings, Space};
use crate::wire::errno::Errno;
use crate::wire::reply::Reply;
use crate::wire::request::{Fh, Header, Lock, Op, Setattr, Write};
use crate::wire::session::Serve;
use crate::{locks, task, tier};

/// What the kernel should do for us; what it does not know is left out.
///
/// Not `ATOMIC_O_TRUNC`: the kernel would have us cut the file before it finds that it is being executed, and only
/// then refuse with `ETXTBSY`. So it opens first and then sets the size.
const FEATURES: u64 = feature::ASYNC_READ
    | feature::ASYNC_DIO
    | feature::BIG_WRITES
    | feature::CACHE_SYMLINKS
    | feature::DIRECT_IO_ALLOW_MMAP
    | feature::DONT_MASK
    | feature::DO_READDIRPLUS
    | feature::EXPORT_SUPPORT
    | feature::FLOCK_LOCKS
    | feature::HANDLE_KILLPRIV_V2
    | feature::MAX_PAGES
    | feature::PARALLEL_DIROPS
    | feature::POSIX_ACL
    | feature::POSIX_LOCKS
    | feature::READDIRPLUS_AUTO;

/// What a mount settles with the kernel. 64 requests of readahead and asynchronous I/O may be in flight.
pub(crate) const SETTINGS: Settings = Settings { features: FEATURES, max_write: WRITE_MAX as u32, max_background: 64 };

/// A mount as the connection sees it.
pub(crate) struct Door {
    pub(crate) calls: Arc<Calls>,
    pub(crate) runtime: Handle,
}

impl Serve for Door {
    fn request(&self, header: &Header, op: Op<'_>, reply: Reply) {
        match op {
            Op::Lookup { name } => self.lookup(header, name, reply),
            Op::Symlink { name, target } => self.symlink(header, name, target, reply),
            Op::Mknod { name, mode, umask, rdev } => self.mknod(header, name, (mode, umask), rdev, reply),
            Op::Mkdir { name, mode, umask } => self.mkdir(header, name, (mode, umask), reply),
            Op::Remove { name, is_dir } => self.remove(header, name, is_dir, reply),
            Op::Rename { from, to_dir, to, flags } => self.rename((header.node, from), (to_dir, to), flags, reply),
            Op::Link { node, name } => self.link(header, node, name, reply),
            Op::Create { name, mode, umask, flags } => self.create(header, name, (mode, umask), flags, reply),
            Op::Readdir { off, size, plus: false } => self.readdir(header, off, size, reply),
            Op::Readdir { off, size, plus: true } => self.readdirplus(header, off, size, reply),
            Op::Open { flags } => self.open(header, flags, reply),
            Op::Read { off, size } => self.read(header, off, size, reply),
            Op::Flush { fh, owner } => self.flush(header, fh, owner, reply),
            Op::Release { fh, owner, flags } => self.release(header, fh, (owner, flags), reply),
            Op::Fsync { fh } => self.fsync(header, fh, reply),
            Op::Fallocate { off, len, mode } => self.fallocate(header, (off, len), mode, reply),
            Op::Lseek { off, whence } => self.lseek(header, off, whence, reply),
            Op::CopyRange { from_off, to, to_off, len, wide } => {
                self.copy_range(header, from_off, (to, to_off), len, wide, reply);
            }
            Op::Opendir => self.opendir(header, reply),
            Op::Releasedir { fh } => self.releasedir(fh, reply),
            Op::Destroy => reply.ok(),
            Op::Unknown | Op::Init(_) | Op::Interrupt { .. } | Op::Forget => reply.error(Errno::ENOSYS),
            other => self.attributes(header, other, reply),
        }
    }

    fn write(&self, header: &Header, write: Write, data: Bytes, reply: Reply) {
        let ino = self.calls.numbers.inode(header.node);
        // Pages of a mapping go to their own place, whatever the file they are written through was opened for.
        let append = write.open_flags & libc::O_APPEND != 0 && write.write_flags & abi::WRITE_CACHE == 0;
        let kill = write.write_flags & abi::WRITE_KILL_SUIDGID != 0;
        let is_synchronous = write.open_flags & libc::O_DSYNC != 0;
        let runtime = self.runtime.clone();
        let work = |calls: Arc<Calls>| async move {
            let (len, leaves) = calls.write(ino, write.off, data, append, kill).await?;
            if let Some(part) = leaves {
                let calls = Arc::clone(&calls);
                runtime.spawn(async move { tier::send_piece(&calls.fs, ino, part).await });
            }
            if is_synchronous {
                calls.fsync(ino, write.fh).await?;
            }
            Ok(len)
        };
        self.start(reply, work, |reply, len| reply.together(Body::new().size(len).bytes()));
    }
}

impl Door {
    fn attributes(&self, header: &Header, op: Op<'_>, reply: Reply) {
        match op {
            Op::Getattr => self.getattr(header, reply),
            Op::Setattr(set) => self.setattr(header, set, reply),
            Op::Readlink => self.readlink(header, reply),
            Op::Statfs => self.statfs(reply),
            Op::Setxattr { name, value, flags } => self.setxattr(header, name, value, flags, reply),
            Op::Getxattr { name, size } => self.getxattr(header, name, size, reply),
            Op::Listxattr { size } => self.listxattr(header, size, reply),
            Op::Removexattr { name } => self.removexattr(header, name, reply),
            Op::Getlk(lock) => self.getlk(header, &lock, reply),
            Op::Setlk { lock, wait } => self.setlk(header, &lock, wait, reply),
            _ => reply.error(Errno::ENOSYS),
        }
    }

    /// Starts `work`; `done` shapes its result into `reply`.
    fn start<T, F>(
        &self,
        reply: Reply,
        work: impl FnOnce(Arc<Calls>) -> F,
        done: impl FnOnce(Reply, T) + Send + 'static,
    ) where
        T: Send + 'static,
        F: Future<Output = Answer<T>> + Send + 'static,
    {
        let work = work(Arc::clone(&self.calls));
        task::start(&self.runtime, answer(reply, work, done));
    }

    /// Starts `work` that ends in an entry.
    fn start_entry<F>(&self, reply: Reply, work: impl FnOnce(Arc<Calls>) -> F)
    where
        F: Future<Output = Answer<Shown>> + Send + 'static,
    {
        self.start(reply, work, |reply, entry: Shown| reply.body(&Body::new().entry(&entry)));
    }

    /// Starts `work` that ends in attributes.
    fn start_attr<F>(&self, reply: Reply, work: impl FnOnce(Arc<Calls>) -> F)
    where
        F: Future<Output = Answer<Attr>> + Send + 'static,
    {
        let calls = Arc::clone(&self.calls);
        self.start(reply, work, move |reply, attr: Attr| {
            reply.body(&Body::new().attr(&calls.numbers.attr(&attr), calls.attr_ttl(&attr)));
        });
    }

    /// Hands an opened file over to the kernel, which closes it later; what nobody hears of is closed at once.
    fn hand_over(calls: Arc<Calls>, runtime: &Handle, (ino, fh): (Ino, Fh), reply: Reply, body: &Body) {
        if !reply.hand_over(Ok(body.bytes())) {
            task::start(runtime, async move {
                if let Err(error) = calls.close(ino, fh).await {
                    tracing::debug!(%ino, ?error, "a file that was opened for nobody could not be closed");
                }
            });
        }
    }

    /// Starts `work` that ends in nothing but success.
    fn start_empty<F>(&self, reply: Reply, work: impl FnOnce(Arc<Calls>) -> F)
    where
        F: Future<Output = Answer<()>> + Send + 'static,
    {
        self.start(reply, work, |reply, ()| reply.ok());
    }

    fn getattr(&self, header: &Header, reply: Reply) {
        let ino = self.calls.numbers.inode(header.node);
        self.start_attr(reply, move |calls| async move { calls.getattr(ino).await });
    }

    fn setattr(&self, header: &Header, asked: Setattr, reply: Reply) {
        let ino = self.calls.numbers.inode(header.node);
        let Setattr { mode, uid, gid, size, .. } = asked;
        let (atime, mtime) = (asked.atime.map(set_time), asked.mtime.map(set_time));
        // The kernel says when the set-id bits go, but for a chown that names neither owner nor group: that arrives
        // with nothing to set at all.
        let is_bare = (mode, uid, gid, size) == (None, None, None, None) && atime.is_none() && mtime.is_none();
        let kill_suid_sgid = asked.kill_suid_sgid || is_bare;
        let mode = mode.map(permissions);
        let set = SetAttr { mode, uid, gid, size, atime, mtime, kill_suid_sgid, access_only: false };
        self.start_attr(reply, |calls| async move { calls.setattr(ino, set).await });
    }

    fn readlink(&self, header: &Header, reply: Reply) {
        let ino = self.calls.numbers.inode(header.node);
        let work = |calls: Arc<Calls>| async move { calls.readlink(ino).await };
        self.start(reply, work, |reply, target: Vec<u8>| reply.data(&target));
    }

    fn statfs(&self, reply: Reply) {
        let work = |calls: Arc<Calls>| async move { calls.statfs().await };
        self.start(reply, work, |reply, space| {
            let block = u64::from(BLOCK_BYTES);
            reply.body(&Body::new().space(&Space {
                blocks: space.total_bytes / block,
                free: space.free_bytes() / block,
                inodes: space.used_inodes + space.free_inodes(),
                free_inodes: space.free_inodes(),
                block_bytes: BLOCK_BYTES,
                name_bytes_max: NAME_MAX as u32,
            }));
        });
    }

    fn setxattr(&self, header: &Header, name: &[u8], value: &[u8], flags: i32, reply: Reply) {
        let mode = match flags {
            libc::XATTR_CREATE => XattrMode::Create,
            libc::XATTR_REPLACE => XattrMode::Replace,
            0 => XattrMode::Any,
            _ => return reply.error(Errno::EINVAL),
        };
        let (ino, name, value) = (self.calls.numbers.inode(header.node), name.to_vec(), value.to_vec());
        self.start_empty(reply, |calls| async move { calls.setxattr(ino, &name, &value, mode).await });
    }

    fn getxattr(&self, header: &Header, name: &[u8], size: u32, reply: Reply) {
        let (ino, name) = (self.calls.numbers.inode(header.node), name.to_vec());
        let work = |calls: Arc<Calls>| async move { calls.getxattr(ino, &name).await };
        self.start(reply, work, move |reply, value| reply_sized(reply, &value, size));
    }

    fn listxattr(&self, header: &Header, size: u32, reply: Reply) {
        let (ino, uid) = (self.calls.numbers.inode(header.node), header.uid);
        let work = |calls: Arc<Calls>| async move { calls.listxattr(ino, uid).await };
        self.start(reply, work, move |reply, names| reply_sized(reply, &names, size));
    }

    fn removexattr(&self, header: &Header, name: &[u8], reply: Reply) {
        let (ino, name) = (self.calls.numbers.inode(header.node), name.to_vec());
        self.start_empty(reply, |calls| async move { calls.removexattr(ino, &name).await });
    }

    fn getlk(&self, header: &Header, lock: &Lock, reply: Reply) {
        let ino = self.calls.numbers.inode(header.node);
        let Some(asked) = locks::spec(lock) else { return reply.error(Errno::EINVAL) };
        let (start, end) = (lock.start, lock.end);
        let work = |calls: Arc<Calls>| async move { calls.test_lock(ino, asked).await };
        self.start(reply, work, move |reply, found| {
            let body = Body::new();
            reply.body(&match found {
                Some(held) => {
                    let (start, end, kind) = locks::shown(&held);
                    body.lock(start, end, kind, held.pid)
                }
                None => body.lock(start, end, libc::F_UNLCK, 0),
            });
        });
    }

    fn setlk(&self, header: &Header, lock: &Lock, wait: bool, reply: Reply) {
        let (ino, fh, interrupted) = (self.calls.numbers.inode(header.node), lock.fh, reply.interrupted());
        let Some(lock) = locks::spec(lock) else { return reply.error(Errno::EINVAL) };
        let calls = Arc::clone(&self.calls);
        task::start(&self.runtime, async move {
            let outcome = calls.lock((ino, fh), lock, wait, interrupted).await;
            let may_hold = lock.kind != LockKind::Unlock && matches!(outcome, Ok(()) | Err(Errno::EIO));
            let is_heard = reply.hand_over(outcome.map(|()| [].as_slice()));
            if !is_heard && may_hold {
                // Its owner was killed, and may have given up all its locks before it got this one.
                let back = LockSpec { kind: LockKind::Unlock, ..lock };
                if let Err(error) = calls.lock((ino, fh), back, false, pending()).await {
                    tracing::warn!(%ino, ?error, "a lock that nobody waits for any more could not be given up");
                }
            }
        });
    }
}

/// Waits for `work`; `done` shapes its result into `reply`.
async fn answer<T>(reply: Reply, work: impl Future<Output = Answer<T>>, done: impl FnOnce(Reply, T)) {
    match work.await {
        Ok(value) => done(reply, value),
        Err(errno) => reply.error(errno),
    }
}

fn cred(header: &Header) -> Cred {
    Cred { uid: header.uid, gid: header.gid }
}

/// How the kernel should treat an open file.
fn open_flags(flags: i32, keep_pages: bool) -> u32 {
    // Through its page cache the kernel would cut an append at pages, counted from where it believes the end is; the
    // pieces of another mount's append could come between.
    let appends = flags & libc::O_APPEND != 0 && flags & libc::O_ACCMODE != libc::O_RDONLY;
    match (flags & libc::O_DIRECT != 0, appends, keep_pages) {
        (true, _, _) => abi::open::DIRECT_IO | abi::open::PARALLEL_DIRECT_WRITES,
        (false, true, _) => abi::open::DIRECT_IO,
        (false, false, true) => abi::open::KEEP_CACHE,
        (false, false, false) => 0,
    }
}

/// An attribute's bytes, or their number if the caller only asks how large its buffer must be.
fn reply_sized(reply: Reply, value: &[u8], size: u32) {
    if size == 0 {
        reply.body(&Body::new().size(value.len() as u32));
    } else if value.len() > size as usize {
        reply.error(Errno::ERANGE);
    } else {
        reply.data(value);
    }
}
