//! Files and block devices, blocking: for start-up, format and small administrative work. Bulk I/O of a
//! running actor goes through [`crate::reactor`].

use std::ffi::OsString;
use std::io::IoSlice;
use std::num::NonZeroU64;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::thread;
use std::time::Duration;

use braid_base::{Error, ErrorKind, Result};
use bytes::Bytes;
use rustix::fs::{Advice, FallocateFlags, FileType, FlockOperation, Mode, OFlags, SeekFrom};
use rustix::io::{Errno, ReadWriteFlags};

use crate::buf::{self, ALIGN, AlignedBuf};
use crate::clock;

/// Most time to wait for a lock, milliseconds: what was under way when its holder was killed has ended by then, unless
/// the disk is past use.
pub const LOCK_MAX_MS: u64 = 5000;
const LOCK_POLL: Duration = Duration::from_millis(5);

/// How to open a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OpenMode {
    /// Open for writing as well.
    pub write: bool,
    /// What to do about existence.
    pub create: Create,
    /// Bypass the page cache where the file system allows it.
    pub direct: bool,
    /// Refuse if another process holds the file or device (or has it mounted), and does so for [`LOCK_MAX_MS`].
    pub exclusive: bool,
}

/// What to do about a file's existence.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Create {
    /// It must exist.
    No,
    /// It must not exist; make it, and reserve this many bytes on the disk.
    New(u64),
    /// Make it with this many reserved bytes unless it exists.
    IfMissing(u64),
}

impl OpenMode {
    /// An existing file, for reading, past the page cache.
    pub const READ: Self = Self { write: false, create: Create::No, direct: true, exclusive: false };
    /// As [`Self::READ`], through the page cache.
    pub const READ_CACHED: Self = Self { write: false, create: Create::No, direct: false, exclusive: false };
    /// An existing file, for reading and writing, past the page cache.
    pub const WRITE: Self = Self { write: true, create: Create::No, direct: true, exclusive: false };

    /// A new file of `bytes` reserved bytes, for reading and writing, past the page cache.
    pub const fn new_file(bytes: u64) -> Self {
        Self { write: true, create: Create::New(bytes), direct: true, exclusive: false }
    }

    /// The same, refused while somebody else holds it, in this process or another one.
    pub const fn alone(self) -> Self {
        Self { exclusive: true, ..self }
    }
}

/// Something that can be read at offsets: a file, or a simulated disk.
pub trait ReadAt {
    /// Its length in bytes.
    fn size(&self) -> Result<u64>;

    /// Reads all `ranges` (offset, length), in parallel where the device can; each answer has the full
    /// length asked for, or is an error.
    fn read_many(&self, ranges: &[(u64, usize)]) -> Vec<Result<Bytes>>;

    /// Reads one range.
    fn read_at(&self, off: u64, len: usize) -> Result<Bytes> {
        self.read_many(&[(off, len)]).pop().unwrap_or_else(|| Err(ErrorKind::Io.into()))
    }
}

/// An open file or block device.
#[derive(Debug)]
pub struct File {
    fd: OwnedFd,
    path: PathBuf,
    direct: bool,
    block_device: bool,
}

impl File {
    /// Opens `path`. Errors: `NotFound`, `Exists` (for [`Create::New`]), `Refused` (held by another process, or
    /// neither a file nor a block device), `NoSpace` (no room to reserve), or the system's.
    pub fn open(path: &Path, mode: OpenMode) -> Result<Self> {
        let what = || format!("open {}", path.display());
        let device = rustix::fs::stat(path).is_ok_and(|s| FileType::from_raw_mode(s.st_mode) == FileType::BlockDevice);
        let mut flags = OFlags::CLOEXEC | if mode.write { OFlags::RDWR } else { OFlags::RDONLY };
        // On a block device O_EXCL means: nobody else holds it and it is not mounted.
        if device && mode.exclusive {
            flags |= OFlags::EXCL;
        }
        let (fd, made) = match mode.create {
            Create::No => (open_at(path, flags)?, None),
            Create::New(bytes) => (open_at(path, flags | OFlags::CREATE | OFlags::EXCL)?, Some(bytes)),
            Create::IfMissing(bytes) => match open_at(path, flags | OFlags::CREATE | OFlags::EXCL) {
                Ok(fd) => (fd, Some(bytes)),
                Err(error) if error.kind() == ErrorKind::Exists => (open_at(path, flags)?, None),
                Err(error) => return Err(error),
            },
        };
        let stat = rustix::fs::fstat(&fd).map_err(|e| os(what(), e))?;
        match FileType::from_raw_mode(stat.st_mode) {
            FileType::RegularFile | FileType::BlockDevice => {}
            other => {
                let words = format!("{}: expected a file or block device, found {other:?}", path.display());
                return Err(Error::new(ErrorKind::Refused, words));
            }
        }
        let mut file = Self { fd, path: path.to_owned(), direct: false, block_device: device };
        if mode.exclusive && !device {
            file.lock()?;
        }
        if let Some(bytes) = made {
            file.reserve(bytes).inspect_err(|_| {
                // A half-made file would be in the way of the next attempt; a failure to remove it changes nothing.
                let _ = rustix::fs::unlink(path);
            })?;
        }
        if mode.direct {
            file.go_direct();
        }
        Ok(file)
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// True if the page cache is bypassed: offsets and lengths must then be multiples of [`ALIGN`].
    pub fn is_direct(&self) -> bool {
        self.direct
    }

    /// True if it is a block device.
    pub fn is_block_device(&self) -> bool {
        self.block_device
    }

    /// Writes all `data` at `off`, durable at return. The same rules for alignment as the reactor's.
    pub fn write_at(&self, off: u64, data: &Bytes) -> Result<()> {
        let data = if self.direct { buf::aligned(data) } else { data.clone() };
        let mut done = 0;
        while done < data.len() {
            match self.write_some(off + done as u64, &[IoSlice::new(&data[done..])], true) {
                Ok(n) => done += n,
                Err(Errno::INTR | Errno::AGAIN) => {}
                Err(e) => return Err(self.failed("write", off, data.len(), e)),
            }
        }
        Ok(())
    }

    /// Tells the system that this range is read next, so that it fetches it meanwhile. Only for files that are not
    /// direct; a system that cannot do it reads later.
    pub fn will_need(&self, off: u64, len: u64) {
        let _ = rustix::fs::fadvise(&self.fd, off, NonZeroU64::new(len), Advice::WillNeed);
    }

    /// Makes everything written durable.
    pub fn sync(&self) -> Result<()> {
        rustix::fs::fdatasync(&self.fd).map_err(|e| os(format!("sync {}", self.path.display()), e))
    }

    pub(crate) fn write_some(&self, off: u64, data: &[IoSlice<'_>], durable: bool) -> rustix::io::Result<usize> {
        let flags = if durable { ReadWriteFlags::DSYNC } else { ReadWriteFlags::empty() };
        match rustix::io::pwritev2(&self.fd, data, off, flags)? {
            // A write of more than nothing that takes nothing would loop for ever.
            0 => Err(Errno::NOSPC),
            n => Ok(n),
        }
    }

    /// Reads into the spare part of `buf` up to a total of `want` bytes; 0 = end of file.
    pub(crate) fn read_some(&self, off: u64, buf: &mut AlignedBuf, want: usize) -> rustix::io::Result<usize> {
        let (have, room) = (buf.len(), want - buf.len());
        let (filled, _) = rustix::io::pread(&self.fd, &mut buf.spare()[..room], off)?;
        let n = filled.len();
        // SAFETY: the kernel filled the first `n` bytes behind the `have` that were there.
        unsafe { buf.set_len(have + n) };
        Ok(n)
    }

    pub(crate) fn discard(&self, off: u64, len: u64) -> rustix::io::Result<()> {
        let mode = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        rustix::fs::fallocate(&self.fd, mode, off, len)
    }

    pub(crate) fn failed(&self, verb: &str, off: u64, len: usize, e: Errno) -> Error {
        let what = format!("{verb} {len} bytes at {off} of {}", self.path.display());
        if e == Errno::OPNOTSUPP {
            return Error::new(
                ErrorKind::Unsupported,
                format!("{what}: the file system or device does not offer this"),
            );
        }
        os(what, e)
    }

    fn lock(&self) -> Result<()> {
        let lock = || rustix::fs::flock(&self.fd, FlockOperation::NonBlockingLockExclusive);
        once_free(Errno::WOULDBLOCK, lock).map_err(|e| match e {
            Errno::WOULDBLOCK => {
                let words = format!("{} is in use by another process; stop that one first", self.path.display());
                Error::new(ErrorKind::Refused, words)
            }
            e => os(format!("lock {}", self.path.display()), e),
        })
    }

    /// Whoever opens it for itself alone waits from now on until this file is closed and nothing is under way on it,
    /// even if this process is killed.
    pub fn hold(&self) -> Result<()> {
        rustix::fs::flock(&self.fd, FlockOperation::NonBlockingLockShared)
            .map_err(|e| os(format!("lock {}", self.path.display()), e))
    }

    /// Reserves `bytes`, then makes file and name durable.
    fn reserve(&self, bytes: u64) -> Result<()> {
        let what = || format!("reserve {bytes} bytes for {}", self.path.display());
        if bytes > 0 {
            match rustix::fs::fallocate(&self.fd, FallocateFlags::empty(), 0, bytes) {
                Ok(()) => {}
                // No preallocation here (old NFS, some FUSE): a sparse file serves, without the guarantee.
                Err(Errno::OPNOTSUPP) => rustix::fs::ftruncate(&self.fd, bytes).map_err(|e| os(what(), e))?,
                Err(e) => return Err(os(what(), e)),
            }
        }
        rustix::fs::fsync(&self.fd).map_err(|e| os(what(), e))?;
        sync_dir(parent(&self.path))
    }

    fn go_direct(&mut self) {
        let set = rustix::fs::fcntl_getfl(&self.fd)
            .and_then(|flags| rustix::fs::fcntl_setfl(&self.fd, flags | OFlags::DIRECT));
        match set {
            Ok(()) => self.direct = true,
            Err(e) => tracing::warn!("{}: no direct I/O here ({e}); the page cache is used", self.path.display()),
        }
    }

    fn read_whole(&self, off: u64, len: usize) -> Result<Bytes> {
        let start = if self.direct { off - off % ALIGN as u64 } else { off };
        let skip = (off - start) as usize;
        let want = if self.direct { (skip + len).next_multiple_of(ALIGN) } else { len };
        let mut buf = AlignedBuf::with_capacity(want);
        while buf.len() < skip + len {
            match self.read_some(start + buf.len() as u64, &mut buf, want) {
                Ok(0) => {
                    let found = buf.len().saturating_sub(skip);
                    let words =
                        format!("read {}: expected {len} bytes at {off}, found only {found}", self.path.display());
                    return Err(Error::new(ErrorKind::Io, words));
                }
                Ok(_) | Err(Errno::INTR | Errno::AGAIN) => {}
                Err(e) => return Err(self.failed("read", off, len, e)),
            }
        }
        Ok(buf.into_bytes().slice(skip..skip + len))
    }
}

/// Reads in flight at once during a scan: enough to keep a flash device busy.
const SCAN_DEPTH: usize = 16;

impl ReadAt for File {
    fn size(&self) -> Result<u64> {
        rustix::fs::seek(&self.fd, SeekFrom::End(0)).map_err(|e| os(format!("size of {}", self.path.display()), e))
    }

    fn read_many(&self, ranges: &[(u64, usize)]) -> Vec<Result<Bytes>> {
        if ranges.len() < 2 * SCAN_DEPTH {
            return ranges.iter().map(|&(off, len)| self.read_whole(off, len)).collect();
        }
        let share = ranges.len().div_ceil(SCAN_DEPTH);
        let out = Mutex::new(Vec::with_capacity(SCAN_DEPTH));
        std::thread::scope(|scope| {
            for (i, part) in ranges.chunks(share).enumerate() {
                let out = &out;
                scope.spawn(move || {
                    let read: Vec<_> = part.iter().map(|&(off, len)| self.read_whole(off, len)).collect();
                    out.lock().unwrap_or_else(std::sync::PoisonError::into_inner).push((i, read));
                });
            }
        });
        let mut parts = out.into_inner().unwrap_or_else(std::sync::PoisonError::into_inner);
        parts.sort_by_key(|(i, _)| *i);
        parts.into_iter().flat_map(|(_, read)| read).collect()
    }
}

impl AsFd for File {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

/// Makes the names in a directory durable.
pub fn sync_dir(path: &Path) -> Result<()> {
    let what = || format!("sync directory {}", path.display());
    let dir = rustix::fs::open(path, OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())
        .map_err(|e| os(what(), e))?;
    rustix::fs::fsync(dir).map_err(|e| os(what(), e))
}

/// Makes a directory and its missing parents, durable at return; fine if it exists.
pub fn make_dir(path: &Path) -> Result<()> {
    if path.is_dir() {
        return Ok(());
    }
    let above = parent(path);
    if above != path {
        make_dir(above)?;
    }
    match rustix::fs::mkdir(path, Mode::from_raw_mode(0o700)) {
        Ok(()) => sync_dir(above),
        Err(Errno::EXIST) if path.is_dir() => Ok(()),
        Err(e) => Err(os(format!("make directory {}", path.display()), e)),
    }
}

/// Bytes that the file system of `dir` has left.
pub fn free_bytes(dir: &Path) -> Result<u64> {
    let stat = rustix::fs::statvfs(dir).map_err(|e| os(format!("room in {}", dir.display()), e))?;
    Ok(stat.f_bavail * stat.f_frsize)
}

/// Removes a file, durable at return; fine if it is gone already.
pub fn remove(path: &Path) -> Result<()> {
    match rustix::fs::unlink(path) {
        Ok(()) => sync_dir(parent(path)),
        Err(Errno::NOENT) => Ok(()),
        Err(e) => Err(os(format!("remove {}", path.display()), e)),
    }
}

/// Renames a file within its file system, over whatever had the new name; durable at return.
pub fn rename(from: &Path, to: &Path) -> Result<()> {
    rustix::fs::rename(from, to).map_err(|e| os(format!("rename {} to {}", from.display(), to.display()), e))?;
    sync_dir(parent(to))?;
    if parent(from) != parent(to) {
        sync_dir(parent(from))?;
    }
    Ok(())
}

/// The names in a directory, sorted.
pub fn list(path: &Path) -> Result<Vec<OsString>> {
    let failed = |e| Error::os(format!("list {}", path.display()), &e);
    let entries = std::fs::read_dir(path).map_err(failed)?;
    let mut names =
        entries.map(|entry| entry.map(|e| e.file_name())).collect::<std::io::Result<Vec<_>>>().map_err(failed)?;
    names.sort();
    Ok(names)
}

fn parent(path: &Path) -> &Path {
    match path.parent() {
        Some(above) if above.as_os_str().is_empty() => Path::new("."),
        Some(above) => above,
        None => path,
    }
}

fn open_at(path: &Path, flags: OFlags) -> Result<OwnedFd> {
    once_free(Errno::BUSY, || rustix::fs::open(path, flags, Mode::from_raw_mode(0o600))).map_err(|e| match e {
        Errno::BUSY => {
            let words = format!("{} is in use (mounted, or held by another process); free it first", path.display());
            Error::new(ErrorKind::Refused, words)
        }
        e => os(format!("open {}", path.display()), e),
    })
}

/// `take`, again while it says `held`. What a process that was killed had asked of the kernel goes on without it, and
/// keeps its files and locks until it has ended.
fn once_free<T>(held: Errno, take: impl Fn() -> rustix::io::Result<T>) -> rustix::io::Result<T> {
    let until_ms = clock::mono_ms() + LOCK_MAX_MS;
    loop {
        match take() {
            Err(error) if error == held && clock::mono_ms() < until_ms => thread::park_timeout(LOCK_POLL),
            done => return done,
        }
    }
}

pub(crate) fn os(what: impl std::fmt::Display, e: Errno) -> Error {
    Error::os(what, &std::io::Error::from(e))
}
