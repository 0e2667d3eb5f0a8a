//! Bodies of replies as the kernel reads them.

use std::time::Duration;

use super::abi::{self, feature};
use super::request::{Fh, Init, Node};

/// Attributes of an inode. Times are seconds and nanoseconds since 1970.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Attr {
    pub(crate) node: Node,
    pub(crate) size: u64,
    /// Of 512 bytes.
    pub(crate) blocks: u64,
    pub(crate) atime: (i64, u32),
    pub(crate) mtime: (i64, u32),
    pub(crate) ctime: (i64, u32),
    /// Type and permissions.
    pub(crate) mode: u32,
    pub(crate) nlink: u32,
    pub(crate) uid: u32,
    pub(crate) gid: u32,
    pub(crate) rdev: u32,
    pub(crate) block_bytes: u32,
}

/// An entry: attributes, and how long the name and they may be believed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Entry {
    pub(crate) attr: Attr,
    pub(crate) generation: u64,
    pub(crate) name_ttl: Duration,
    pub(crate) attr_ttl: Duration,
}

impl Entry {
    /// That there is no such name, which may be believed for `ttl`.
    pub(crate) fn none(ttl: Duration) -> Self {
        Self { attr: Attr::default(), generation: 0, name_ttl: ttl, attr_ttl: Duration::ZERO }
    }
}

/// How full a file system is, in blocks of `block_bytes`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Space {
    pub(crate) blocks: u64,
    pub(crate) free: u64,
    pub(crate) inodes: u64,
    pub(crate) free_inodes: u64,
    pub(crate) block_bytes: u32,
    pub(crate) name_bytes_max: u32,
}

/// What the door settles with the kernel at the start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Settings {
    /// Features wanted; what the kernel does not offer is left out.
    pub(crate) features: u64,
    /// Most bytes of one write.
    pub(crate) max_write: u32,
    /// Requests in flight for readahead and asynchronous I/O.
    pub(crate) max_background: u16,
}

/// Largest body of this module but listings: an opened entry.
const BODY_BYTES: usize = 160;
/// Bytes of an entry in a listing before the name, and what their sum is rounded up to.
const DIRENT_BYTES: usize = 24;
const ENTRY_BYTES: usize = 128;
const ALIGN: usize = 8;
/// Bytes of a page in [`Settings::max_write`].
const PAGE_BYTES: u32 = 4096;

/// A body as it grows.
#[derive(Debug)]
pub(crate) struct Body(Vec<u8>);

impl Body {
    pub(crate) fn new() -> Self {
        Self(Vec::with_capacity(BODY_BYTES))
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        &self.0
    }

    pub(crate) fn entry(mut self, entry: &Entry) -> Self {
        self.put_entry(entry);
        self
    }

    pub(crate) fn attr(self, attr: &Attr, ttl: Duration) -> Self {
        self.u64(ttl.as_secs()).u32(ttl.subsec_nanos()).u32(0).bare_attr(attr)
    }

    /// An opened file.
    pub(crate) fn opened(self, fh: Fh, flags: u32) -> Self {
        self.u64(fh.0).u32(flags).u32(0)
    }

    /// Bytes written, or the size of what was asked for.
    pub(crate) fn size(self, bytes: u32) -> Self {
        self.u32(bytes).u32(0)
    }

    /// An offset, or a count that may be large.
    pub(crate) fn offset(self, off: u64) -> Self {
        self.u64(off)
    }

    pub(crate) fn lock(self, start: u64, end: u64, kind: i32, pid: u32) -> Self {
        self.u64(start).u64(end).u32(kind as u32).u32(pid)
    }

    pub(crate) fn space(self, space: &Space) -> Self {
        let body = self.u64(space.blocks).u64(space.free).u64(space.free).u64(space.inodes).u64(space.free_inodes);
        let body = body.u32(space.block_bytes).u32(space.name_bytes_max).u32(space.block_bytes);
        (0..7).fold(body, |body, _| body.u32(0))
    }

    /// The answer to `offer`, and the features agreed on.
    pub(crate) fn init(self, offer: &Init, settings: &Settings) -> (Self, u64) {
        let agreed = offer.features & (settings.features | feature::INIT_EXT);
        let busy = settings.max_background / 4 * 3;
        let background = u32::from(settings.max_background) | u32::from(busy) << 16;
        let body = self.u32(abi::MAJOR).u32(abi::MINOR.min(offer.minor)).u32(offer.max_readahead).u32(agreed as u32);
        let pages = settings.max_write.div_ceil(PAGE_BYTES);
        // The times are exact to one nanosecond.
        let body = body.u32(background).u32(settings.max_write).u32(1).u32(pages).u32((agreed >> 32) as u32);
        ((0..7).fold(body, |body, _| body.u32(0)), agreed)
    }

    /// The version alone: the kernel speaks a newer one and shall ask again in ours.
    pub(crate) fn version(self) -> Self {
        let body = self.u32(abi::MAJOR).u32(abi::MINOR);
        (0..14).fold(body, |body, _| body.u32(0))
    }

    pub(crate) fn inval_inode(self, node: Node, off: i64, len: i64) -> Self {
        self.u64(node.0).u64(off as u64).u64(len as u64)
    }

    pub(crate) fn inval_entry(self, dir: Node, name: &[u8]) -> Self {
        let mut body = self.u64(dir.0).u32(name.len() as u32).u32(0);
        body.0.extend_from_slice(name);
        body.0.push(0);
        body
    }

    /// What stands before `len` bytes to be put into the pages of `node` from byte `off` on.
    pub(crate) fn store(self, node: Node, off: u64, len: u32) -> Self {
        self.u64(node.0).u64(off).u32(len).u32(0)
    }

    fn put_entry(&mut self, entry: &Entry) {
        let (name, attr) = (entry.name_ttl, entry.attr_ttl);
        let body = Self(std::mem::take(&mut self.0)).u64(entry.attr.node.0).u64(entry.generation);
        let body = body.u64(name.as_secs()).u64(attr.as_secs()).u32(name.subsec_nanos()).u32(attr.subsec_nanos());
        self.0 = body.bare_attr(&entry.attr).0;
    }

    fn bare_attr(self, a: &Attr) -> Self {
        let body = self.u64(a.node.0).u64(a.size).u64(a.blocks);
        let body = body.u64(a.atime.0 as u64).u64(a.mtime.0 as u64).u64(a.ctime.0 as u64);
        let body = body.u32(a.atime.1).u32(a.mtime.1).u32(a.ctime.1);
        body.u32(a.mode).u32(a.nlink).u32(a.uid).u32(a.gid).u32(a.rdev).u32(a.block_bytes).u32(0)
    }

    fn u32(mut self, number: u32) -> Self {
        self.0.extend_from_slice(&number.to_ne_bytes());
        self
    }

    fn u64(mut self, number: u64) -> Self {
        self.0.extend_from_slice(&number.to_ne_bytes());
        self
    }
}

/// A piece of a listing, not longer than the kernel has room for.
#[derive(Debug)]
pub(crate) struct Listed {
    body: Body,
    room: usize,
}

impl Listed {
    pub(crate) fn new(room: u32) -> Self {
        Self { body: Body(Vec::with_capacity(room as usize)), room: room as usize }
    }

    /// Adds a name of inode `node` and type `kind` (as in `st_mode`); `false` if it has no room.
    pub(crate) fn add(&mut self, node: Node, cookie: u64, kind: u32, name: &[u8]) -> bool {
        self.fits(DIRENT_BYTES + name.len()) && self.put(node, cookie, kind, name)
    }

    /// Adds a name with attributes; `false` if it has no room.
    pub(crate) fn add_entry(&mut self, cookie: u64, name: &[u8], entry: &Entry) -> bool {
        if !self.fits(ENTRY_BYTES + DIRENT_BYTES + name.len()) {
            return false;
        }
        self.body.put_entry(entry);
        self.put(entry.attr.node, cookie, entry.attr.mode, name)
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        self.body.bytes()
    }

    fn fits(&self, bytes: usize) -> bool {
        self.body.0.len() + bytes.next_multiple_of(ALIGN) <= self.room
    }

    fn put(&mut self, node: Node, cookie: u64, mode: u32, name: &[u8]) -> bool {
        let body = Body(std::mem::take(&mut self.body.0));
        let Body(mut bytes) = body.u64(node.0).u64(cookie).u32(name.len() as u32).u32((mode & libc::S_IFMT) >> 12);
        bytes.extend_from_slice(name);
        bytes.resize(bytes.len().next_multiple_of(ALIGN), 0);
        self.body.0 = bytes;
        true
    }
}

#[cfg(test)]
mod tests {
    use super::{Attr, Body, Entry, Listed, Settings, Space};
    use crate::wire::abi::feature;
    use crate::wire::request::{Fh, Init, Node};
    use std::time::Duration;

    fn entry() -> Entry {
        let attr = Attr {
            node: Node(77),
            size: 5,
            blocks: 8,
            atime: (-2, 300),
            mtime: (3, 4),
            ctime: (5, 6),
            mode: libc::S_IFREG | 0o644,
            nlink: 1,
            uid: 12,
            gid: 34,
            rdev: 0,
            block_bytes: 4096,
        };
        let (name_ttl, attr_ttl) = (Duration::from_millis(1_500), Duration::from_millis(2_250));
        Entry { attr, generation: 9, name_ttl, attr_ttl }
    }

    fn u64_at(bytes: &[u8], at: usize) -> u64 {
        u64::from_ne_bytes(bytes[at..at + 8].try_into().expect("eight bytes"))
    }

    fn u32_at(bytes: &[u8], at: usize) -> u32 {
        u32::from_ne_bytes(bytes[at..at + 4].try_into().expect("four bytes"))
    }

    #[test]
    fn bodies_have_the_size_that_the_kernel_expects() {
        let entry = entry();
        let len = |body: Body| body.bytes().len();
        assert_eq!(len(Body::new().entry(&entry)), 128);
        assert_eq!(len(Body::new().entry(&entry).opened(Fh(7), 1)), 144);
        assert_eq!(len(Body::new().attr(&entry.attr, entry.attr_ttl)), 104);
        assert_eq!(
            (len(Body::new().size(1)), len(Body::new().offset(1)), len(Body::new().opened(Fh(7), 0))),
            (8, 8, 16)
        );
        assert_eq!(len(Body::new().lock(0, 1, 2, 3)), 24);
        let space = Space { blocks: 1, free: 2, inodes: 3, free_inodes: 4, block_bytes: 5, name_bytes_max: 6 };
        assert_eq!(len(Body::new().space(&space)), 80);
        assert_eq!((len(Body::new().version()), len(Body::new().inval_inode(Node(1), -1, 0))), (64, 24));
        assert_eq!(len(Body::new().inval_entry(Node(1), b"name")), 16 + 5);
        assert_eq!(len(Body::new().store(Node(1), 0, 4096)), 24);
    }

    #[test]
    fn attributes_stand_where_the_kernel_looks() {
        let body = Body::new().entry(&entry());
        let bytes = body.bytes();
        assert_eq!((u64_at(bytes, 0), u64_at(bytes, 8), u64_at(bytes, 16), u32_at(bytes, 32)), (77, 9, 1, 500_000_000));
        assert_eq!((u64_at(bytes, 40), u64_at(bytes, 48), u64_at(bytes, 56)), (77, 5, 8));
        assert_eq!((u64_at(bytes, 64) as i64, u32_at(bytes, 88)), (-2, 300));
        assert_eq!((u32_at(bytes, 100), u32_at(bytes, 108), u32_at(bytes, 112)), (libc::S_IFREG | 0o644, 12, 34));
    }

    #[test]
    fn only_what_is_offered_is_agreed_on() {
        let settings = Settings {
            features: feature::ASYNC_READ | feature::POSIX_ACL | feature::DIRECT_IO_ALLOW_MMAP,
            max_write: 1 << 20,
            max_background: 64,
        };
        let features = feature::ASYNC_READ | feature::BIG_WRITES | feature::DIRECT_IO_ALLOW_MMAP | feature::INIT_EXT;
        let (body, agreed) = Body::new().init(&Init { major: 7, minor: 46, max_readahead: 9, features }, &settings);
        assert_eq!(agreed, feature::ASYNC_READ | feature::DIRECT_IO_ALLOW_MMAP | feature::INIT_EXT);
        let bytes = body.bytes();
        assert_eq!((bytes.len(), u32_at(bytes, 0), u32_at(bytes, 4), u32_at(bytes, 8)), (64, 7, 45, 9));
        assert_eq!((u32_at(bytes, 12), u32_at(bytes, 32)), (1 | 1 << 30, 1 << 4));
        assert_eq!((u32_at(bytes, 16), u32_at(bytes, 20), u32_at(bytes, 28)), (64 | 48 << 16, 1 << 20, 256));
    }

    #[test]
    fn a_listing_stops_where_the_room_ends() {
        let mut list = Listed::new(64);
        assert!(list.add(Node(1), 1, libc::S_IFDIR, b".") && list.add(Node(2), 2, libc::S_IFREG, b"12345678"));
        assert!(!list.add(Node(3), 3, libc::S_IFREG, b"n") && list.bytes().len() == 64);
        assert_eq!((u64_at(list.bytes(), 32), u32_at(list.bytes(), 48), u32_at(list.bytes(), 52)), (2, 8, 8));
        let mut list = Listed::new(160 * 2 - 1);
        assert!(list.add_entry(1, b"12345678", &entry()) && !list.add_entry(2, b"12345678", &entry()));
        assert_eq!((u64_at(list.bytes(), 0), u64_at(list.bytes(), 128), list.bytes().len()), (77, 77, 160));
    }
}
