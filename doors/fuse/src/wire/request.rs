//! Requests as the kernel writes them, taken apart. Bytes that are no request give `None`, never a panic.

use super::abi::{self, IN_HEADER_BYTES, WRITE_IN_BYTES, op, set};

/// The kernel's number of an inode.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Node(pub(crate) u64);

/// The number that an open file description was given.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Fh(pub(crate) u64);

impl Node {
    /// The root of a mount.
    pub(crate) const ROOT: Self = Self(1);
}

/// What stands before each request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Header {
    /// Bytes of the request with this header.
    pub(crate) len: u32,
    pub(crate) opcode: u32,
    /// Number of the request, for its reply.
    pub(crate) unique: u64,
    pub(crate) node: Node,
    pub(crate) uid: u32,
    pub(crate) gid: u32,
    /// Thread that asks; 0 if it cannot be named here or nobody in particular asks.
    pub(crate) tid: u32,
}

/// A request, apart from its header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Op<'a> {
    Lookup {
        name: &'a [u8],
    },
    Getattr,
    Setattr(Setattr),
    Readlink,
    Symlink {
        name: &'a [u8],
        target: &'a [u8],
    },
    Mknod {
        name: &'a [u8],
        mode: u32,
        umask: u32,
        rdev: u32,
    },
    Mkdir {
        name: &'a [u8],
        mode: u32,
        umask: u32,
    },
    Remove {
        name: &'a [u8],
        is_dir: bool,
    },
    Rename {
        from: &'a [u8],
        to_dir: Node,
        to: &'a [u8],
        flags: u32,
    },
    Link {
        node: Node,
        name: &'a [u8],
    },
    Create {
        name: &'a [u8],
        mode: u32,
        umask: u32,
        flags: i32,
    },
    Open {
        flags: i32,
    },
    Read {
        off: u64,
        size: u32,
    },
    Flush {
        fh: Fh,
        owner: u64,
    },
    Release {
        fh: Fh,
        owner: u64,
        flags: u32,
    },
    Fsync {
        fh: Fh,
    },
    Opendir,
    Readdir {
        off: u64,
        size: u32,
        plus: bool,
    },
    Releasedir {
        fh: Fh,
    },
    Statfs,
    Setxattr {
        name: &'a [u8],
        value: &'a [u8],
        flags: i32,
    },
    Getxattr {
        name: &'a [u8],
        size: u32,
    },
    Listxattr {
        size: u32,
    },
    Removexattr {
        name: &'a [u8],
    },
    Getlk(Lock),
    Setlk {
        lock: Lock,
        wait: bool,
    },
    Fallocate {
        off: u64,
        len: u64,
        mode: i32,
    },
    Lseek {
        off: i64,
        whence: i32,
    },
    CopyRange {
        from_off: u64,
        to: Node,
        to_off: u64,
        len: u64,
        wide: bool,
    },
    Init(Init),
    Interrupt {
        unique: u64,
    },
    Destroy,
    /// The kernel forgets inodes; it wants no reply.
    Forget,
    Unknown,
}

/// What to set. The times are seconds and nanoseconds since 1970.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Setattr {
    pub(crate) mode: Option<u32>,
    pub(crate) uid: Option<u32>,
    pub(crate) gid: Option<u32>,
    pub(crate) size: Option<u64>,
    pub(crate) atime: Option<When>,
    pub(crate) mtime: Option<When>,
    /// The set-id bits go.
    pub(crate) kill_suid_sgid: bool,
}

/// A time to set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum When {
    Now,
    At(i64, u32),
}

/// A lock, or the question for one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Lock {
    pub(crate) fh: Fh,
    pub(crate) owner: u64,
    pub(crate) start: u64,
    pub(crate) end: u64,
    pub(crate) kind: i32,
    pub(crate) pid: u32,
    pub(crate) flock: bool,
}

/// What the kernel offers at the start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Init {
    pub(crate) major: u32,
    pub(crate) minor: u32,
    pub(crate) max_readahead: u32,
    pub(crate) features: u64,
}

/// A write, apart from its data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Write {
    pub(crate) fh: Fh,
    pub(crate) off: u64,
    /// Bytes of data, all of which follow in the request.
    pub(crate) size: u32,
    pub(crate) write_flags: u32,
    pub(crate) open_flags: i32,
}

impl Header {
    /// The header of `request`, all of whose bytes must be there.
    pub(crate) fn parse(request: &[u8]) -> Option<Self> {
        let mut c = Cursor(request);
        let header = Self {
            len: c.u32()?,
            opcode: c.u32()?,
            unique: c.u64()?,
            node: Node(c.u64()?),
            uid: c.u32()?,
            gid: c.u32()?,
            tid: c.u32()?,
        };
        let whole = IN_HEADER_BYTES <= header.len as usize && header.len as usize <= request.len();
        whole.then_some(header)
    }

    /// What follows the header in `request`.
    pub(crate) fn body<'a>(&self, request: &'a [u8]) -> &'a [u8] {
        &request[IN_HEADER_BYTES..self.len as usize]
    }
}

impl Write {
    /// The write whose header and data are `body`.
    pub(crate) fn parse(body: &[u8]) -> Option<Self> {
        let mut c = Cursor(body);
        let (fh, off, size, write_flags) = (c.fh()?, c.u64()?, c.u32()?, c.u32()?);
        c.skip(8)?;
        let open_flags = c.i32()?;
        c.skip(4)?;
        assert_eq!(body.len() - c.0.len(), WRITE_IN_BYTES);
        (c.0.len() == size as usize).then_some(Self { fh, off, size, write_flags, open_flags })
    }
}

impl<'a> Op<'a> {
    /// The request of kind `opcode` whose bytes after the header are `body`. Not for writes.
    pub(crate) fn parse(opcode: u32, body: &'a [u8]) -> Option<Self> {
        let mut c = Cursor(body);
        Some(match opcode {
            op::LOOKUP => Self::Lookup { name: c.name()? },
            op::FORGET | op::BATCH_FORGET => Self::Forget,
            op::GETATTR => Self::Getattr,
            op::SETATTR => Self::Setattr(c.setattr()?),
            op::READLINK => Self::Readlink,
            op::SYMLINK => Self::Symlink { name: c.name()?, target: c.name()? },
            op::MKNOD => c.mknod()?,
            op::MKDIR => {
                let (mode, umask) = (c.u32()?, c.u32()?);
                Self::Mkdir { name: c.name()?, mode, umask }
            }
            op::UNLINK => Self::Remove { name: c.name()?, is_dir: false },
            op::RMDIR => Self::Remove { name: c.name()?, is_dir: true },
            op::RENAME | op::RENAME2 => c.rename(opcode == op::RENAME2)?,
            op::LINK => {
                let node = Node(c.u64()?);
                Self::Link { node, name: c.name()? }
            }
            op::CREATE => {
                let (flags, mode, umask) = (c.i32()?, c.u32()?, c.u32()?);
                c.skip(4)?;
                Self::Create { name: c.name()?, mode, umask, flags }
            }
            op::OPEN => Self::Open { flags: c.i32()? },
            op::READ => c.read().map(|(off, size)| Self::Read { off, size })?,
            op::READDIR => c.read().map(|(off, size)| Self::Readdir { off, size, plus: false })?,
            op::READDIRPLUS => c.read().map(|(off, size)| Self::Readdir { off, size, plus: true })?,
            _ => return Self::parse_rare(opcode, c),
        })
    }

    fn parse_rare(opcode: u32, mut c: Cursor<'a>) -> Option<Self> {
        Some(match opcode {
            op::FLUSH => {
                let fh = c.fh()?;
                c.skip(8)?;
                Self::Flush { fh, owner: c.u64()? }
            }
            op::RELEASE => {
                let fh = c.fh()?;
                c.skip(4)?;
                let flags = c.u32()?;
                Self::Release { fh, owner: c.u64()?, flags }
            }
            op::FSYNC | op::FSYNCDIR => Self::Fsync { fh: c.fh()? },
            op::OPENDIR => Self::Opendir,
            op::RELEASEDIR => Self::Releasedir { fh: c.fh()? },
            op::STATFS => Self::Statfs,
            op::SETXATTR => c.setxattr()?,
            op::GETXATTR => {
                let size = c.sized()?;
                Self::Getxattr { name: c.name()?, size }
            }
            op::LISTXATTR => Self::Listxattr { size: c.sized()? },
            op::REMOVEXATTR => Self::Removexattr { name: c.name()? },
            op::GETLK => Self::Getlk(c.lock()?),
            op::SETLK => Self::Setlk { lock: c.lock()?, wait: false },
            op::SETLKW => Self::Setlk { lock: c.lock()?, wait: true },
            op::FALLOCATE => {
                c.skip(8)?;
                Self::Fallocate { off: c.u64()?, len: c.u64()?, mode: c.i32()? }
            }
            op::LSEEK => {
                c.skip(8)?;
                Self::Lseek { off: c.u64()? as i64, whence: c.i32()? }
            }
            op::COPY_FILE_RANGE | op::COPY_FILE_RANGE_64 => c.copy_range(opcode == op::COPY_FILE_RANGE_64)?,
            op::INIT => Self::Init(c.init()?),
            op::INTERRUPT => Self::Interrupt { unique: c.u64()? },
            op::DESTROY => Self::Destroy,
            _ => Self::Unknown,
        })
    }
}

/// What is left of a request.
struct Cursor<'a>(&'a [u8]);

impl<'a> Cursor<'a> {
    fn bytes<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (bytes, rest) = self.0.split_first_chunk::<N>()?;
        self.0 = rest;
        Some(*bytes)
    }

    fn u32(&mut self) -> Option<u32> {
        self.bytes().map(u32::from_ne_bytes)
    }

    fn i32(&mut self) -> Option<i32> {
        self.bytes().map(i32::from_ne_bytes)
    }

    fn u64(&mut self) -> Option<u64> {
        self.bytes().map(u64::from_ne_bytes)
    }

    fn fh(&mut self) -> Option<Fh> {
        self.u64().map(Fh)
    }

    fn skip(&mut self, bytes: usize) -> Option<()> {
        self.0 = self.0.get(bytes..)?;
        Some(())
    }

    /// Bytes up to a NUL, which must be there.
    fn name(&mut self) -> Option<&'a [u8]> {
        let end = self.0.iter().position(|byte| *byte == 0)?;
        let name = &self.0[..end];
        self.0 = &self.0[end + 1..];
        Some(name)
    }

    fn sized(&mut self) -> Option<u32> {
        let size = self.u32()?;
        self.skip(4)?;
        Some(size)
    }

    fn mknod(&mut self) -> Option<Op<'a>> {
        let (mode, rdev, umask) = (self.u32()?, self.u32()?, self.u32()?);
        self.skip(4)?;
        Some(Op::Mknod { name: self.name()?, mode, umask, rdev })
    }

    fn rename(&mut self, with_flags: bool) -> Option<Op<'a>> {
        let to_dir = Node(self.u64()?);
        let flags = if with_flags { self.sized()? } else { 0 };
        Some(Op::Rename { from: self.name()?, to_dir, to: self.name()?, flags })
    }

    /// Offset and size of a read, of a file or directory.
    fn read(&mut self) -> Option<(u64, u32)> {
        self.skip(8)?;
        Some((self.u64()?, self.u32()?))
    }

    fn setattr(&mut self) -> Option<Setattr> {
        let valid = self.u32()?;
        self.skip(12)?;
        let size = self.u64()?;
        self.skip(8)?;
        let (atime, mtime) = (self.u64()? as i64, self.u64()? as i64);
        self.skip(8)?;
        let (atime_ns, mtime_ns) = (self.u32()?, self.u32()?);
        self.skip(4)?;
        let mode = self.u32()?;
        self.skip(4)?;
        let (uid, gid) = (self.u32()?, self.u32()?);
        let has = |bit| valid & bit != 0;
        let when = |to, now, sec, ns| match (has(to), has(now)) {
            (_, true) => Some(When::Now),
            (true, false) => Some(When::At(sec, ns)),
            (false, false) => None,
        };
        let (atime, mtime) =
            (when(set::ATIME, set::ATIME_NOW, atime, atime_ns), when(set::MTIME, set::MTIME_NOW, mtime, mtime_ns));
        let is_time = |when: &Option<When>| !matches!(when, Some(When::At(_, 1_000_000_000..)));
        (is_time(&atime) && is_time(&mtime)).then_some(Setattr {
            mode: has(set::MODE).then_some(mode),
            uid: has(set::UID).then_some(uid),
            gid: has(set::GID).then_some(gid),
            size: has(set::SIZE).then_some(size),
            atime,
            mtime,
            kill_suid_sgid: has(set::KILL_SUIDGID),
        })
    }

    fn setxattr(&mut self) -> Option<Op<'a>> {
        let (size, flags) = (self.u32()?, self.i32()?);
        let name = self.name()?;
        let value = self.0.get(..size as usize)?;
        Some(Op::Setxattr { name, value, flags })
    }

    fn lock(&mut self) -> Option<Lock> {
        let (fh, owner) = (self.fh()?, self.u64()?);
        let (start, end) = (self.u64()?, self.u64()?);
        let (kind, pid) = (self.i32()?, self.u32()?);
        Some(Lock { fh, owner, start, end, kind, pid, flock: self.u32()? & abi::LK_FLOCK != 0 })
    }

    fn copy_range(&mut self, wide: bool) -> Option<Op<'a>> {
        self.skip(8)?;
        let (from_off, to) = (self.u64()?, Node(self.u64()?));
        self.skip(8)?;
        Some(Op::CopyRange { from_off, to, to_off: self.u64()?, len: self.u64()?, wide })
    }

    fn init(&mut self) -> Option<Init> {
        let (major, minor, max_readahead, low) = (self.u32()?, self.u32()?, self.u32()?, u64::from(self.u32()?));
        let high = if low & abi::feature::INIT_EXT != 0 { u64::from(self.u32()?) } else { 0 };
        Some(Init { major, minor, max_readahead, features: low | high << 32 })
    }
}

#[cfg(test)]
mod tests {
    use super::{Fh, Header, Init, Lock, Node, Op, Setattr, When, Write, op};

    /// A request of numbers, each in as many bytes as its type has, then `tail`.
    fn body(words: &[u64], widths: &[usize], tail: &[u8]) -> Vec<u8> {
        let words = words.iter().zip(widths).flat_map(|(word, width)| word.to_ne_bytes()[..*width].to_vec());
        words.chain(tail.iter().copied()).collect()
    }

    fn samples() -> Vec<(u32, Vec<u8>, Op<'static>)> {
        let setattr = [0b1000_0001_1001, 0, 0, 77, 0, -5i64 as u64, 9, 0, 300, 0, 0, 0o4755, 0, 12, 34, 0];
        let setattr = body(&setattr, &[4, 4, 8, 8, 8, 8, 8, 8, 4, 4, 4, 4, 4, 4, 4, 4], b"");
        let set = Setattr {
            mode: Some(0o4755),
            uid: None,
            gid: None,
            size: Some(77),
            atime: Some(When::At(-5, 300)),
            mtime: None,
            kill_suid_sgid: true,
        };
        let lock = body(&[1, 2, 3, 4, 1, 6, 1, 0], &[8, 8, 8, 8, 4, 4, 4, 4], b"");
        let held = Lock { fh: Fh(1), owner: 2, start: 3, end: 4, kind: 1, pid: 6, flock: true };
        vec![
            (op::LOOKUP, b"name\0".to_vec(), Op::Lookup { name: b"name" }),
            (op::SETATTR, setattr, Op::Setattr(set)),
            (op::SYMLINK, b"n\0target\0".to_vec(), Op::Symlink { name: b"n", target: b"target" }),
            (
                op::MKNOD,
                body(&[0o10644, 5, 0o22, 0], &[4; 4], b"p\0"),
                Op::Mknod { name: b"p", mode: 0o10644, umask: 0o22, rdev: 5 },
            ),
            (op::MKDIR, body(&[0o755, 0o22], &[4; 2], b"d\0"), Op::Mkdir { name: b"d", mode: 0o755, umask: 0o22 }),
            (
                op::RENAME2,
                body(&[9, 1, 0], &[8, 4, 4], b"a\0b\0"),
                Op::Rename { from: b"a", to_dir: Node(9), to: b"b", flags: 1 },
            ),
            (op::RENAME, body(&[9], &[8], b"a\0b\0"), Op::Rename { from: b"a", to_dir: Node(9), to: b"b", flags: 0 }),
            (op::LINK, body(&[9], &[8], b"l\0"), Op::Link { node: Node(9), name: b"l" }),
            (
                op::CREATE,
                body(&[0x42, 0o644, 0o22, 0], &[4; 4], b"f\0"),
                Op::Create { name: b"f", mode: 0o644, umask: 0o22, flags: 0x42 },
            ),
            (op::READ, body(&[1, 4096, 512], &[8, 8, 4], b""), Op::Read { off: 4096, size: 512 }),
            (op::READDIRPLUS, body(&[1, 3, 512], &[8, 8, 4], b""), Op::Readdir { off: 3, size: 512, plus: true }),
            (op::FLUSH, body(&[1, 0, 0, 7], &[8, 4, 4, 8], b""), Op::Flush { fh: Fh(1), owner: 7 }),
            (op::RELEASE, body(&[1, 2, 3, 7], &[8, 4, 4, 8], b""), Op::Release { fh: Fh(1), owner: 7, flags: 3 }),
            (op::FSYNC, body(&[9, 1, 0], &[8, 4, 4], b""), Op::Fsync { fh: Fh(9) }),
            (op::RELEASEDIR, body(&[9, 2, 0, 0], &[8, 4, 4, 8], b""), Op::Releasedir { fh: Fh(9) }),
            (
                op::SETXATTR,
                body(&[3, 1], &[4; 2], b"user.a\0val"),
                Op::Setxattr { name: b"user.a", value: b"val", flags: 1 },
            ),
            (op::GETXATTR, body(&[64, 0], &[4; 2], b"user.a\0"), Op::Getxattr { name: b"user.a", size: 64 }),
            (op::LISTXATTR, body(&[64, 0], &[4; 2], b""), Op::Listxattr { size: 64 }),
            (op::SETLKW, lock.clone(), Op::Setlk { lock: held, wait: true }),
            (op::GETLK, lock, Op::Getlk(held)),
            (
                op::FALLOCATE,
                body(&[1, 10, 20, 3, 0], &[8, 8, 8, 4, 4], b""),
                Op::Fallocate { off: 10, len: 20, mode: 3 },
            ),
            (op::LSEEK, body(&[1, 10, 3, 0], &[8, 8, 4, 4], b""), Op::Lseek { off: 10, whence: 3 }),
            (
                op::COPY_FILE_RANGE_64,
                body(&[1, 10, 9, 1, 20, 30, 0], &[8; 7], b""),
                Op::CopyRange { from_off: 10, to: Node(9), to_off: 20, len: 30, wide: true },
            ),
            (
                op::INIT,
                body(&[7, 45, 65_536, 1 << 30, 3], &[4; 5], b""),
                Op::Init(Init { major: 7, minor: 45, max_readahead: 65_536, features: 1 << 30 | 3 << 32 }),
            ),
            (op::INTERRUPT, body(&[8], &[8], b""), Op::Interrupt { unique: 8 }),
        ]
    }

    #[test]
    fn each_request_is_understood() {
        for (opcode, bytes, expected) in samples() {
            assert_eq!(Op::parse(opcode, &bytes), Some(expected), "opcode {opcode}");
        }
        assert_eq!(Op::parse(4096, b"what is this"), Some(Op::Unknown));
    }

    #[test]
    fn cut_requests_are_refused_and_nothing_panics() {
        for (opcode, bytes, expected) in samples() {
            for len in 0..bytes.len() {
                let parsed = Op::parse(opcode, &bytes[..len]);
                assert!(parsed.is_none() || parsed == Some(expected), "opcode {opcode} of {len} bytes: {parsed:?}");
            }
        }
        for opcode in 0..64 {
            for (len, fill) in (0..200).flat_map(|len| [(len, 0), (len, 0xff), (len, 0x41)]) {
                let _ = Op::parse(opcode, &vec![fill; len]);
                let _ = Write::parse(&vec![fill; len]);
                let _ = Header::parse(&vec![fill; len]);
            }
        }
    }

    #[test]
    fn a_header_must_have_its_whole_request() {
        let bytes = body(&[45, 1, 2, 3, 4, 5, 6, 0], &[4, 4, 8, 8, 4, 4, 4, 4], b"name\0");
        let header = Header::parse(&bytes).expect("whole");
        assert_eq!((header.unique, header.node, header.uid, header.gid, header.tid), (2, Node(3), 4, 5, 6));
        assert_eq!(header.body(&bytes), b"name\0");
        assert!((0..bytes.len()).all(|len| Header::parse(&bytes[..len]).is_none()));
        let short = body(&[39, 1, 2, 3, 4, 5, 6, 0], &[4, 4, 8, 8, 4, 4, 4, 4], b"");
        assert_eq!(Header::parse(&short), None);
    }

    #[test]
    fn a_write_must_have_exactly_its_data() {
        let write = |size: u64| body(&[1, 4096, size, 4, 0, 0x400, 0], &[8, 8, 4, 4, 8, 4, 4], b"12345");
        let expected = Write { fh: Fh(1), off: 4096, size: 5, write_flags: 4, open_flags: 0x400 };
        assert_eq!(Write::parse(&write(5)), Some(expected));
        assert_eq!((Write::parse(&write(4)), Write::parse(&write(u64::MAX))), (None, None));
    }

    #[test]
    fn a_time_has_less_than_a_second_of_nanoseconds() {
        let wrong = [1 << 4, 0, 0, 0, 0, 1, 0, 0, 1_000_000_000, 0, 0, 0, 0, 0, 0, 0];
        let wrong = body(&wrong, &[4, 4, 8, 8, 8, 8, 8, 8, 4, 4, 4, 4, 4, 4, 4, 4], b"");
        assert_eq!(Op::parse(op::SETATTR, &wrong), None);
    }
}
