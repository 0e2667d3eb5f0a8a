//! The requests of the kernel, one function each: takes the arguments apart, starts a task, shapes the reply.

use std::ffi::OsStr;
use std::future::Future;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::Arc;
use std::time::SystemTime;

use braid_base::attr::{Attr, FileType, SetAttr};
use braid_base::limits::{NAME_MAX, WRITE_MAX};
use braid_base::msg::fs::{Cred, RenameMode, XattrMode};
use braid_client::fs::{Create, Entry};
use bytes::Bytes;
use fuser::{
    BsdFileFlags, CopyFileRangeFlags, Errno, FileHandle, Filesystem, FopenFlags, Generation, INodeNo, InitFlags,
    KernelConfig, LockOwner, OpenFlags, RenameFlags, ReplyAttr, ReplyCreate, ReplyData, ReplyDirectory,
    ReplyDirectoryPlus, ReplyEmpty, ReplyEntry, ReplyLock, ReplyLseek, ReplyOpen, ReplyStatfs, ReplyWrite, ReplyXattr,
    Request, TimeOrNow, WriteFlags,
};
use tokio::runtime::Handle;

use crate::attrs::{BLOCK_BYTES, TTL, kind, kind_of_mode, permissions, set_time};
use crate::calls::{Answer, Calls};
use crate::listing::{self, Listing};
use crate::{locks, task};

/// Requests that the kernel keeps in flight for readahead and asynchronous direct I/O.
const BACKGROUND_MAX: u16 = 64;
/// Bytes that a request may touch on the thread that answers it: checking and copying these costs about as much as
/// a switch to another thread.
const STEP_BYTES: u32 = 64 << 10;
/// No state is kept per open file: all that a request needs comes with it.
const NO_HANDLE: FileHandle = FileHandle(0);

/// A mount as `fuser` sees it.
pub(crate) struct Door {
    pub(crate) calls: Arc<Calls>,
    pub(crate) runtime: Handle,
}

/// What the kernel should do for us; what it does not know is left out.
///
/// Not `ATOMIC_O_TRUNC`: the kernel would have us cut the file before it finds that it is being executed, and only
/// then refuse with `ETXTBSY`. So it opens first and then sets the size.
const WANTED: [InitFlags; 14] = [
    InitFlags::FUSE_ASYNC_READ,
    InitFlags::FUSE_ASYNC_DIO,
    InitFlags::FUSE_BIG_WRITES,
    InitFlags::FUSE_CACHE_SYMLINKS,
    InitFlags::FUSE_DIRECT_IO_ALLOW_MMAP,
    InitFlags::FUSE_DONT_MASK,
    InitFlags::FUSE_DO_READDIRPLUS,
    InitFlags::FUSE_EXPORT_SUPPORT,
    InitFlags::FUSE_HANDLE_KILLPRIV_V2,
    InitFlags::FUSE_MAX_PAGES,
    InitFlags::FUSE_PARALLEL_DIROPS,
    InitFlags::FUSE_POSIX_ACL,
    InitFlags::FUSE_POSIX_LOCKS,
    InitFlags::FUSE_READDIRPLUS_AUTO,
];

/// A reply that can say what went wrong.
trait Reply: Send + 'static {
    fn fail(self, errno: Errno);
}

macro_rules! replies {
    ($($name:ident),*) => {
        $(impl Reply for $name {
            fn fail(self, errno: Errno) {
                self.error(errno);
            }
        })*
    };
}

replies!(
    ReplyAttr,
    ReplyCreate,
    ReplyData,
    ReplyDirectory,
    ReplyDirectoryPlus,
    ReplyEmpty,
    ReplyEntry,
    ReplyLock,
    ReplyLseek,
    ReplyOpen,
    ReplyStatfs,
    ReplyWrite,
    ReplyXattr
);

impl Door {
    /// Starts `work`; `done` shapes its result into `reply`.
    fn start<R, T, F>(&self, reply: R, work: impl FnOnce(Arc<Calls>) -> F, done: impl FnOnce(R, T) + Send + 'static)
    where
        R: Reply,
        T: Send + 'static,
        F: Future<Output = Answer<T>> + Send + 'static,
    {
        let work = work(Arc::clone(&self.calls));
        task::start(&self.runtime, answer(reply, work, done));
    }

    /// As [`Self::start`], for work on more than `STEP_BYTES`.
    fn start_large<R, T, F>(
        &self,
        reply: R,
        work: impl FnOnce(Arc<Calls>) -> F,
        done: impl FnOnce(R, T) + Send + 'static,
    ) where
        R: Reply,
        T: Send + 'static,
        F: Future<Output = Answer<T>> + Send + 'static,
    {
        let work = work(Arc::clone(&self.calls));
        self.runtime.spawn(answer(reply, work, done));
    }

    /// Starts `work` that ends in an entry.
    fn start_entry<F>(&self, reply: ReplyEntry, work: impl FnOnce(Arc<Calls>) -> F)
    where
        F: Future<Output = Answer<Entry>> + Send + 'static,
    {
        let numbers = self.calls.numbers;
        self.start(reply, work, move |reply, entry: Entry| {
            reply.entry(&TTL, &numbers.attr(&entry.attr), Generation(entry.attr.generation.into()));
        });
    }

    /// Starts `work` that ends in nothing but success.
    fn start_empty<F>(&self, reply: ReplyEmpty, work: impl FnOnce(Arc<Calls>) -> F)
    where
        F: Future<Output = Answer<()>> + Send + 'static,
    {
        self.start(reply, work, |reply, ()| reply.ok());
    }

    /// Makes something that is not opened with it.
    fn make(&self, req: &Request, dir: INodeNo, name: &OsStr, what: Create, reply: ReplyEntry) {
        let (cred, dir, name) = (cred(req), self.calls.numbers.inode(dir), bytes(name));
        self.start_entry(reply, |calls| async move { calls.make(cred, dir, &name, what).await });
    }

    fn remove(&self, dir: INodeNo, name: &OsStr, is_dir: bool, reply: ReplyEmpty) {
        let (dir, name) = (self.calls.numbers.inode(dir), bytes(name));
        self.start_empty(reply, |calls| async move { calls.remove(dir, &name, is_dir).await });
    }
}

impl Filesystem for Door {
    fn init(&mut self, _req: &Request, config: &mut KernelConfig) -> io::Result<()> {
        let offered = config.capabilities();
        for flag in WANTED.into_iter().filter(|flag| offered.contains(*flag)) {
            config.add_capabilities(flag).map_err(|flag| io::Error::other(format!("kernel feature {flag:?}")))?;
        }
        config.set_max_write(WRITE_MAX as u32).map_err(|most| io::Error::other(format!("max_write {most}")))?;
        config.set_max_background(BACKGROUND_MAX).map_err(|least| io::Error::other(format!("background {least}")))?;
        Ok(())
    }

    fn lookup(&self, _req: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        let (dir, name) = (self.calls.numbers.inode(parent), bytes(name));
        self.start_entry(reply, |calls| async move { calls.lookup(dir, &name).await });
    }

    fn getattr(&self, _req: &Request, ino: INodeNo, _fh: Option<FileHandle>, reply: ReplyAttr) {
        let (ino, numbers) = (self.calls.numbers.inode(ino), self.calls.numbers);
        let work = |calls: Arc<Calls>| async move { calls.getattr(ino).await };
        self.start(reply, work, move |reply, attr| reply.attr(&TTL, &numbers.attr(&attr)));
    }

    fn setattr(
        &self,
        req: &Request,
        ino: INodeNo,
        mode: Option<u32>,
        uid: Option<u32>,
        gid: Option<u32>,
        size: Option<u64>,
        atime: Option<TimeOrNow>,
        mtime: Option<TimeOrNow>,
        _ctime: Option<SystemTime>,
        _fh: Option<FileHandle>,
        _crtime: Option<SystemTime>,
        _chgtime: Option<SystemTime>,
        _bkuptime: Option<SystemTime>,
        _flags: Option<BsdFileFlags>,
        reply: ReplyAttr,
    ) {
        let (ino, numbers) = (self.calls.numbers.inode(ino), self.calls.numbers);
        let (atime, mtime) = (atime.map(set_time), mtime.map(set_time));
        // With HANDLE_KILLPRIV_V2 a chown always takes the set-id bits, also one that names neither owner nor group
        // (and so arrives with nothing to set); a truncation takes them unless the caller may keep them. fuser 0.18
        // does not pass the kernel's word on the latter, so root is taken to be who may.
        let is_chown = uid.is_some() || gid.is_some();
        let is_bare = mode.is_none() && size.is_none() && atime.is_none() && mtime.is_none();
        let kill_suid_sgid = is_chown || is_bare || (size.is_some() && req.uid() != 0);
        let mode = mode.map(permissions);
        let set = SetAttr { mode, uid, gid, size, atime, mtime, kill_suid_sgid, access_only: false };
        let work = |calls: Arc<Calls>| async move { calls.setattr(ino, set).await };
        self.start(reply, work, move |reply, attr| reply.attr(&TTL, &numbers.attr(&attr)));
    }

    fn readlink(&self, _req: &Request, ino: INodeNo, reply: ReplyData) {
        let ino = self.calls.numbers.inode(ino);
        let work = |calls: Arc<Calls>| async move { calls.readlink(ino).await };
        self.start(reply, work, |reply, target: Vec<u8>| reply.data(&target));
    }

    fn mknod(&self, req: &Request, parent: INodeNo, name: &OsStr, mode: u32, umask: u32, rdev: u32, reply: ReplyEntry) {
        let Some(kind) = kind_of_mode(mode) else { return reply.error(Errno::EINVAL) };
        let (mode, umask) = (permissions(mode), permissions(umask));
        self.make(req, parent, name, Create { kind, mode, umask, rdev, ..Create::default() }, reply);
    }

    fn mkdir(&self, req: &Request, parent: INodeNo, name: &OsStr, mode: u32, umask: u32, reply: ReplyEntry) {
        let (mode, umask) = (permissions(mode), permissions(umask));
        self.make(req, parent, name, Create { kind: FileType::Directory, mode, umask, ..Create::default() }, reply);
    }

    fn symlink(&self, req: &Request, parent: INodeNo, link_name: &OsStr, target: &Path, reply: ReplyEntry) {
        let target = target.as_os_str().as_bytes().to_vec();
        let what = Create { kind: FileType::Symlink, mode: 0o777, target, ..Create::default() };
        self.make(req, parent, link_name, what, reply);
    }

    fn unlink(&self, _req: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        self.remove(parent, name, false, reply);
    }

    fn rmdir(&self, _req: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        self.remove(parent, name, true, reply);
    }

    fn rename(
        &self,
        _req: &Request,
        parent: INodeNo,
        name: &OsStr,
        newparent: INodeNo,
        newname: &OsStr,
        flags: RenameFlags,
        reply: ReplyEmpty,
    ) {
        let mode = match flags {
            RenameFlags::RENAME_NOREPLACE => RenameMode::NoReplace,
            RenameFlags::RENAME_EXCHANGE => RenameMode::Exchange,
            flags if flags.is_empty() => RenameMode::Replace,
            _ => return reply.error(Errno::EINVAL),
        };
        let numbers = self.calls.numbers;
        let (from_dir, from, to_dir, to) =
            (numbers.inode(parent), bytes(name), numbers.inode(newparent), bytes(newname));
        self.start_empty(reply, |calls| async move { calls.rename((from_dir, &from), (to_dir, &to), mode).await });
    }

    fn link(&self, _req: &Request, ino: INodeNo, newparent: INodeNo, newname: &OsStr, reply: ReplyEntry) {
        let numbers = self.calls.numbers;
        let (ino, dir, name) = (numbers.inode(ino), numbers.inode(newparent), bytes(newname));
        self.start_entry(reply, |calls| async move { calls.link(ino, dir, &name).await });
    }

    fn create(
        &self,
        req: &Request,
        parent: INodeNo,
        name: &OsStr,
        mode: u32,
        umask: u32,
        flags: i32,
        reply: ReplyCreate,
    ) {
        let (cred, numbers) = (cred(req), self.calls.numbers);
        let (dir, name, modes) = (numbers.inode(parent), bytes(name), (permissions(mode), permissions(umask)));
        let work = |calls: Arc<Calls>| async move { calls.create(cred, dir, &name, modes, flags).await };
        self.start(reply, work, move |reply, (entry, keep): (Entry, bool)| {
            let generation = Generation(entry.attr.generation.into());
            reply.created(&TTL, &numbers.attr(&entry.attr), generation, NO_HANDLE, open_flags(flags, keep));
        });
    }

    fn open(&self, _req: &Request, ino: INodeNo, flags: OpenFlags, reply: ReplyOpen) {
        let ino = self.calls.numbers.inode(ino);
        let work = |calls: Arc<Calls>| async move { calls.open(ino).await };
        self.start(reply, work, move |reply, (_, keep)| reply.opened(NO_HANDLE, open_flags(flags.0, keep)));
    }

    fn release(
        &self,
        _req: &Request,
        ino: INodeNo,
        _fh: FileHandle,
        _flags: OpenFlags,
        _lock_owner: Option<LockOwner>,
        _flush: bool,
        reply: ReplyEmpty,
    ) {
        let ino = self.calls.numbers.inode(ino);
        self.start_empty(reply, |calls| async move { calls.close(ino).await });
    }

    fn read(
        &self,
        _req: &Request,
        ino: INodeNo,
        _fh: FileHandle,
        offset: u64,
        size: u32,
        _flags: OpenFlags,
        _lock_owner: Option<LockOwner>,
        reply: ReplyData,
    ) {
        let (ino, calls) = (self.calls.numbers.inode(ino), Arc::clone(&self.calls));
        let work = async move {
            match calls.read(ino, offset, size.into()).await {
                Ok(data) => reply.data(&data),
                Err(errno) => return reply.error(errno),
            }
            calls.after_read(ino).await;
        };
        if size <= STEP_BYTES {
            task::start(&self.runtime, work);
        } else {
            self.runtime.spawn(work);
        }
    }

    fn write(
        &self,
        _req: &Request,
        ino: INodeNo,
        _fh: FileHandle,
        offset: u64,
        data: &[u8],
        write_flags: WriteFlags,
        flags: OpenFlags,
        _lock_owner: Option<LockOwner>,
        reply: ReplyWrite,
    ) {
        let (ino, data) = (self.calls.numbers.inode(ino), Bytes::copy_from_slice(data));
        // Pages of a mapping go to their own place, whatever the file they are written through was opened for.
        let append = flags.0 & libc::O_APPEND != 0 && !write_flags.contains(WriteFlags::FUSE_WRITE_CACHE);
        let kill = write_flags.contains(WriteFlags::FUSE_WRITE_KILL_SUIDGID);
        let is_synchronous = flags.0 & libc::O_DSYNC != 0;
        let work = |calls: Arc<Calls>| async move {
            let len = calls.write(ino, offset, data, append, kill).await?;
            if is_synchronous {
                calls.fsync(ino).await?;
            }
            Ok(len)
        };
        self.start(reply, work, |reply, len| reply.written(len));
    }

    fn flush(&self, _req: &Request, ino: INodeNo, _fh: FileHandle, lock_owner: LockOwner, reply: ReplyEmpty) {
        let ino = self.calls.numbers.inode(ino);
        let written = self.calls.written_well(ino);
        if !self.calls.leaves_locks(ino, lock_owner.0) {
            return match written {
                Ok(()) => reply.ok(),
                Err(errno) => reply.fail(errno),
            };
        }
        self.start_empty(reply, |calls| async move {
            calls.unlock_all(ino, lock_owner.0).await?;
            written
        });
    }

    fn fsync(&self, _req: &Request, ino: INodeNo, _fh: FileHandle, _datasync: bool, reply: ReplyEmpty) {
        let ino = self.calls.numbers.inode(ino);
        self.start_empty(reply, |calls| async move { calls.fsync(ino).await });
    }

    fn fsyncdir(&self, req: &Request, ino: INodeNo, fh: FileHandle, datasync: bool, reply: ReplyEmpty) {
        self.fsync(req, ino, fh, datasync, reply);
    }

    fn opendir(&self, _req: &Request, _ino: INodeNo, _flags: OpenFlags, reply: ReplyOpen) {
        reply.opened(NO_HANDLE, FopenFlags::empty());
    }

    fn readdir(&self, _req: &Request, ino: INodeNo, _fh: FileHandle, offset: u64, reply: ReplyDirectory) {
        let (dir, numbers) = (self.calls.numbers.inode(ino), self.calls.numbers);
        let work = |calls: Arc<Calls>| async move { listing::after(&calls, dir, offset, false).await };
        self.start(reply, work, move |mut reply, list: Listing| {
            let dots = list.dots.iter().map(|(cookie, ino, name)| (*cookie, *ino, FileType::Directory, *name));
            let names = list.names.iter().map(|e| (e.cookie, e.ino, e.kind, &e.name[..]));
            for (cookie, ino, of, name) in dots.chain(names) {
                if reply.add(numbers.show(ino), cookie, kind(of), OsStr::from_bytes(name)) {
                    break;
                }
            }
            reply.ok();
        });
    }

    fn readdirplus(&self, _req: &Request, ino: INodeNo, _fh: FileHandle, offset: u64, reply: ReplyDirectoryPlus) {
        let (dir, numbers) = (self.calls.numbers.inode(ino), self.calls.numbers);
        let work = |calls: Arc<Calls>| async move { listing::after(&calls, dir, offset, true).await };
        self.start(reply, work, move |mut reply, list: Listing| {
            let directory = |ino| Attr { ino, kind: FileType::Directory, ..Attr::default() };
            // The kernel takes no attributes from the dots, only number and type.
            let dots = list.dots.iter().map(|(cookie, ino, name)| (*cookie, directory(*ino), *name));
            // A name without attributes is gone since it was listed.
            let names = list.names.iter().filter_map(|e| Some((e.cookie, e.attr.clone()?, &e.name[..])));
            for (cookie, attr, name) in dots.chain(names) {
                let generation = Generation(attr.generation.into());
                let shown = numbers.attr(&attr);
                if reply.add(shown.ino, cookie, OsStr::from_bytes(name), &TTL, &shown, generation) {
                    break;
                }
            }
            reply.ok();
        });
    }

    fn statfs(&self, _req: &Request, _ino: INodeNo, reply: ReplyStatfs) {
        let work = |calls: Arc<Calls>| async move { calls.statfs().await };
        self.start(reply, work, |reply, space| {
            let block = u64::from(BLOCK_BYTES);
            let (blocks, free) = (space.total_bytes / block, space.free_bytes() / block);
            let inodes = space.used_inodes + space.free_inodes();
            reply.statfs(blocks, free, free, inodes, space.free_inodes(), BLOCK_BYTES, NAME_MAX as u32, BLOCK_BYTES);
        });
    }

    fn setxattr(
        &self,
        _req: &Request,
        ino: INodeNo,
        name: &OsStr,
        value: &[u8],
        flags: i32,
        _position: u32,
        reply: ReplyEmpty,
    ) {
        let mode = match flags {
            libc::XATTR_CREATE => XattrMode::Create,
            libc::XATTR_REPLACE => XattrMode::Replace,
            0 => XattrMode::Any,
            _ => return reply.error(Errno::EINVAL),
        };
        let (ino, name, value) = (self.calls.numbers.inode(ino), bytes(name), value.to_vec());
        self.start_empty(reply, |calls| async move { calls.setxattr(ino, &name, &value, mode).await });
    }

    fn getxattr(&self, _req: &Request, ino: INodeNo, name: &OsStr, size: u32, reply: ReplyXattr) {
        let (ino, name) = (self.calls.numbers.inode(ino), bytes(name));
        let work = |calls: Arc<Calls>| async move { calls.getxattr(ino, &name).await };
        self.start(reply, work, move |reply, value| reply_sized(reply, &value, size));
    }

    fn listxattr(&self, req: &Request, ino: INodeNo, size: u32, reply: ReplyXattr) {
        let (ino, uid) = (self.calls.numbers.inode(ino), req.uid());
        let work = |calls: Arc<Calls>| async move { calls.listxattr(ino, uid).await };
        self.start(reply, work, move |reply, names| reply_sized(reply, &names, size));
    }

    fn removexattr(&self, _req: &Request, ino: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        let (ino, name) = (self.calls.numbers.inode(ino), bytes(name));
        self.start_empty(reply, |calls| async move { calls.removexattr(ino, &name).await });
    }

    fn getlk(
        &self,
        _req: &Request,
        ino: INodeNo,
        _fh: FileHandle,
        lock_owner: LockOwner,
        start: u64,
        end: u64,
        typ: i32,
        pid: u32,
        reply: ReplyLock,
    ) {
        let ino = self.calls.numbers.inode(ino);
        let Some(lock) = locks::spec(lock_owner.0, pid, start, end, typ) else { return reply.error(Errno::EINVAL) };
        let work = |calls: Arc<Calls>| async move { calls.test_lock(ino, lock).await };
        self.start(reply, work, move |reply, found| match found {
            Some(held) => {
                let (start, end, kind) = locks::shown(&held);
                reply.locked(start, end, kind, held.pid);
            }
            None => reply.locked(start, end, libc::F_UNLCK, 0),
        });
    }

    fn setlk(
        &self,
        req: &Request,
        ino: INodeNo,
        _fh: FileHandle,
        lock_owner: LockOwner,
        start: u64,
        end: u64,
        typ: i32,
        pid: u32,
        sleep: bool,
        reply: ReplyEmpty,
    ) {
        let (ino, tid) = (self.calls.numbers.inode(ino), req.pid());
        let Some(lock) = locks::spec(lock_owner.0, pid, start, end, typ) else { return reply.error(Errno::EINVAL) };
        self.start_empty(reply, |calls| async move { calls.lock(ino, lock, sleep, tid).await });
    }

    fn fallocate(
        &self,
        req: &Request,
        ino: INodeNo,
        _fh: FileHandle,
        offset: u64,
        length: u64,
        mode: i32,
        reply: ReplyEmpty,
    ) {
        let (ino, uid) = (self.calls.numbers.inode(ino), req.uid());
        self.start_empty(reply, |calls| async move { calls.fallocate(ino, offset, length, mode, uid).await });
    }

    fn lseek(&self, _req: &Request, ino: INodeNo, _fh: FileHandle, offset: i64, whence: i32, reply: ReplyLseek) {
        let ino = self.calls.numbers.inode(ino);
        let work = |calls: Arc<Calls>| async move { calls.lseek(ino, offset, whence).await };
        self.start(reply, work, |reply, at| reply.offset(at));
    }

    fn copy_file_range(
        &self,
        req: &Request,
        ino_in: INodeNo,
        _fh_in: FileHandle,
        offset_in: u64,
        ino_out: INodeNo,
        _fh_out: FileHandle,
        offset_out: u64,
        len: u64,
        _flags: CopyFileRangeFlags,
        reply: ReplyWrite,
    ) {
        let (numbers, uid) = (self.calls.numbers, req.uid());
        let (from, to) = ((numbers.inode(ino_in), offset_in), (numbers.inode(ino_out), offset_out));
        let work = |calls: Arc<Calls>| async move { calls.copy(from, to, len, uid).await };
        self.start_large(reply, work, |reply, len| reply.written(len));
    }
}

/// Waits for `work`; `done` shapes its result into `reply`.
async fn answer<R: Reply, T>(reply: R, work: impl Future<Output = Answer<T>>, done: impl FnOnce(R, T)) {
    match work.await {
        Ok(value) => done(reply, value),
        Err(errno) => reply.fail(errno),
    }
}

fn cred(req: &Request) -> Cred {
    Cred { uid: req.uid(), gid: req.gid() }
}

fn bytes(name: &OsStr) -> Vec<u8> {
    name.as_bytes().to_vec()
}

/// How the kernel should treat an open file.
fn open_flags(flags: i32, keep_pages: bool) -> FopenFlags {
    let direct = FopenFlags::FOPEN_DIRECT_IO | FopenFlags::FOPEN_PARALLEL_DIRECT_WRITES;
    match (flags & libc::O_DIRECT != 0, keep_pages) {
        (true, _) => direct,
        (false, true) => FopenFlags::FOPEN_KEEP_CACHE,
        (false, false) => FopenFlags::empty(),
    }
}

/// An attribute's bytes, or their number if the caller only asks how large its buffer must be.
fn reply_sized(reply: ReplyXattr, value: &[u8], size: u32) {
    if size == 0 {
        reply.size(value.len() as u32);
    } else if value.len() > size as usize {
        reply.error(Errno::ERANGE);
    } else {
        reply.data(value);
    }
}
