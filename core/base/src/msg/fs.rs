//! Client -> partition: the file-system operations, and their answers.
//!
//! Every request names its operation id; repeated, it takes effect once and gets the same answer.
//! It goes to the partition that [`Op::route`] names.

use bytes::Bytes;

use crate::attr::{Attr, FileType, SetAttr, Time};
use crate::error::Result;
use crate::ids::{Chunk, Epoch, FsId, HostId, Index, Ino, OpId, PackId};
use crate::msg::lease::{Holdings, LeaseKind, Release};
use crate::record::{Extent, ObjectAt, Placement, StripeAt};

/// Who asks, as far as new inodes need it (permission checks are the kernel's or the door's).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Cred {
    /// User.
    pub uid: u32,
    /// Group.
    pub gid: u32,
}

/// A request of a client.
#[derive(Clone, Debug)]
pub struct Request {
    /// Exactly-once key; `op.client` is the client.
    pub op: OpId,
    /// The client's session in this partition; 0: it has none, gets no leases and holds what it opens and locks until
    /// it says `EndSession`. A number that the partition does not know is refused (`SessionLost`).
    pub session: u64,
    /// All operations of this client up to this number that could come here were answered, except those that an
    /// `Op::Hello` names: their results may be forgotten.
    pub done_upto: u64,
    /// The file system.
    pub fs: FsId,
    /// Who asks.
    pub cred: Cred,
    /// The answer need not wait until what it tells of is durable: the client falls with the host, or asks for a
    /// `Sync` before it relies on it. What the partition decided stays decided unless the host dies first.
    pub early: bool,
    /// What.
    pub body: Op,
}

/// A name in a directory: 1..=255 bytes without `/` and NUL.
pub type Name = Vec<u8>;

/// A byte range lock or flock (whole file) of one owner.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LockSpec {
    /// Which owner of the client (the kernel's lock owner).
    pub owner: u64,
    /// Process that asked, for `F_GETLK`.
    pub pid: u32,
    /// First byte.
    pub start: u64,
    /// Last byte, inclusive; `u64::MAX` = to the end.
    pub end: u64,
    /// What is wanted.
    pub kind: LockKind,
    /// `flock` and not `fcntl`: the two kinds do not see each other.
    pub flock: bool,
}

/// What a lock call wants.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LockKind {
    /// Shared.
    Read,
    /// Exclusive.
    Write,
    /// Give up.
    Unlock,
}

/// How `Rename` treats an existing target.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum RenameMode {
    /// Replace it.
    #[default]
    Replace,
    /// Fail with `Exists`.
    NoReplace,
    /// Swap both names.
    Exchange,
}

/// How an extended attribute is set.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum XattrMode {
    /// Create or replace.
    #[default]
    Any,
    /// Fail with `Exists` if it is there.
    Create,
    /// Fail with `NoAttribute` if it is not.
    Replace,
}

/// What to make of a range.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FallocMode {
    /// Reserve, and extend the size unless `keep_size`.
    Allocate,
    /// Make a hole; the size stays.
    Punch,
    /// Read as zeros; extend the size unless `keep_size`.
    Zero,
}

/// The operations.
#[expect(missing_docs, reason = "fields are named after what they hold; each variant says the rest")]
#[derive(Clone, Debug)]
pub enum Op {
    /// -> `Entry`, `NotFound`. The attributes are absent if the inode lives in another partition. The name `..`
    /// gives the parent of `dir` (of the root: the root itself); `.` is the client's.
    Lookup { dir: Ino, name: Name },
    /// -> `Attr`.
    GetAttr { ino: Ino },
    /// -> `Attr`. A new size cuts or extends with a hole.
    SetAttr { ino: Ino, set: SetAttr },
    /// -> `Entry`. Any type; a directory may be placed in another partition. The mode and `umask` are combined
    /// here, because a default ACL of the directory replaces the umask. `open` also takes an open reference.
    Create {
        dir: Ino,
        name: Name,
        kind: FileType,
        mode: u16,
        umask: u16,
        rdev: u32,
        /// Target of a symlink.
        target: Vec<u8>,
        open: bool,
        /// The client has told a program already that this is done.
        told: Option<Told>,
        /// The client would like to have the directory for itself, and so many inode numbers for files in it.
        want: u16,
    },
    /// -> `Value`: the target of a symlink; `Invalid` for anything else.
    Readlink { ino: Ino },
    /// -> `Entry` of the same inode with its new link count.
    Link { ino: Ino, dir: Ino, name: Name },
    /// -> `Unlinked` (the inode that lost the name). `told`: when the client told a program already that this is done.
    /// `alone`: the client would like to have the directory for itself.
    Unlink { dir: Ino, name: Name, told: Option<Time>, alone: bool },
    /// -> `Unlinked`.
    Rmdir { dir: Ino, name: Name },
    /// -> `Renamed` (moved and replaced or exchanged inode).
    Rename { from_dir: Ino, from: Name, to_dir: Ino, to: Name, mode: RenameMode },
    /// -> `Entries` after `cookie` (0 = from the start; `.` and `..` are the door's). With `plus`, attributes of
    /// local inodes come along.
    Readdir { dir: Ino, cookie: u64, limit: u32, plus: bool },
    /// -> `Attr`. Takes an open reference: the content outlives the last name until `Close`.
    Open { ino: Ino, truncate: bool },
    /// -> `Done`. Gives one open reference of this client back for each time that an inode is named; all live in one
    /// partition.
    Close { inos: Vec<Ino> },
    /// -> `Wrote`. Bytes (at most 1 MiB in all) at their offsets, in one log entry; with `append` the first part's
    /// offset is the end of file as the partition knows it. `at`: when the program wrote them, if they were held back
    /// since; there was room for them then.
    Write { ino: Ino, parts: Vec<(u64, Bytes)>, append: bool, kill_suid_sgid: bool, at: Option<Time> },
    /// -> `Space`: ranges of packs for about `bytes` bytes, to write stripes into before a `CommitWrite` names them;
    /// fewer or none if there is no room at hand. A range serves [`GRANT_MS`](crate::limits::GRANT_MS). `back`: parts
    /// of ranges lent to this client by the same partition that it will not name in a commit; those that are not lent
    /// (any more) do no harm.
    GetSpace { ino: Ino, bytes: u64, back: Vec<StripeAt> },
    /// -> `Wrote`. Like `Write` with the bytes of `stripes`, one after another from `off` on; all shards of them are
    /// durable on their drives. `Stale` if a range is not lent to this client (any more): nothing happened.
    CommitWrite { ino: Ino, off: u64, stripes: Vec<Laid>, kill_suid_sgid: bool, at: Option<Time> },
    /// -> `Layout` of the bytes `[off, off+len)`, cut at the end of file. `recall`: what of them is in objects only is
    /// brought back to flash, and what a reader will want next with it.
    Layout { ino: Ino, off: u64, len: u64, recall: bool },
    /// -> `Layout` of the first chunk that holds data at or after `off`, from `off` on, without staged bytes; no
    /// extents if only a hole follows. Crosses a hole of any length in one step (`SEEK_DATA`).
    NextData { ino: Ino, off: u64 },
    /// -> `Data`. Bytes of a staged payload; `Stale` if it is no longer in the log (fetch the layout anew).
    ReadStage { at: Index, poff: u32, len: u32 },
    /// -> `Data`. Bytes of an object, at most [`CHUNK`](crate::limits::CHUNK), read and checked by the host of the
    /// partition that owns it. `Stale` if there is no such object (any more: fetch the layout anew); `Corrupt` if it is
    /// not what was put there; `Busy` while its store has not answered yet (ask again); `Io` if it does not for too long.
    /// `more` bytes of the object behind these are asked for at the same time: they may come with the same request of the
    /// store.
    ReadObject { at: ObjectAt, len: u32, more: u32 },
    /// -> `Residency` of the file from chunk `from` on, of as many chunks as one answer looks at.
    Residency { ino: Ino, from: Chunk },
    /// -> `Done`. The bytes `[off, off+len)` of the file are to be brought to flash, or to leave it, before others; asked
    /// again if the partition moves. `NotFound` if the file system has no object store.
    Tier { ino: Ino, off: u64, len: u64, want: TierWant },
    /// -> `Attr`.
    Fallocate { ino: Ino, off: u64, len: u64, mode: FallocMode, keep_size: bool },
    /// -> `Done`. `system.posix_acl_access` also sets the mode.
    SetXattr { ino: Ino, name: Vec<u8>, value: Vec<u8>, mode: XattrMode },
    /// -> `Value`, `NoAttribute`.
    GetXattr { ino: Ino, name: Vec<u8> },
    /// -> `Names`.
    ListXattr { ino: Ino },
    /// -> `Done`, `NoAttribute`.
    RemoveXattr { ino: Ino, name: Vec<u8> },
    /// -> `Done`; `WouldBlock` unless `wait`; with `wait` the answer comes when the lock is had.
    Lock { ino: Ino, lock: LockSpec, wait: bool },
    /// -> `Done`. Gives up waiting for the lock asked with operation `seq` of this client (its answer: `WouldBlock`).
    CancelLock { ino: Ino, seq: u64 },
    /// -> `Locked`: the first conflicting lock, or none.
    TestLock { ino: Ino, lock: LockSpec },
    /// -> `Done`. All locks of `owner` on `ino` go (close of a descriptor).
    UnlockOwner { ino: Ino, owner: u64, flock: bool },
    /// -> `Done`. Files were read at these times: their access times move, unless they changed since. At most
    /// [`ACCESSED_MAX`](crate::limits::ACCESSED_MAX), all in one partition.
    Accessed { files: Vec<(Ino, Time)> },
    /// -> `Usage` of the file system in this partition (ask all partitions and add up).
    Statfs,
    /// -> `Done` once everything answered before is durable. Never answered early.
    Sync { ino: Ino },
    /// -> `Done`. Makes the root directory of a new file system (home partition; repeated calls succeed).
    MakeRoot { ino: Ino, mode: u16 },
    /// -> `Done`. Ends this client's session here: its open references, locks and leases go.
    EndSession,
    /// -> `Session`. Begins the session that the request names (`begin`), or keeps it alive: it counts on the
    /// client's side for `SESSION_VALID_MS` from when this was sent. `home`: the client lives and dies with the server
    /// process of this host. `open`: operations up to `done_upto` that have no answer yet, at most
    /// [`OPEN_NUMBERS_MAX`](crate::limits::OPEN_NUMBERS_MAX). Errors: `SessionLost` (a session that ended, or never began).
    Hello { begin: bool, home: Option<HostId>, open: Vec<u64> },
    /// -> `Done`. What the client holds here, after `Session` asked for it. Leases that it does not name are gone.
    Reassert { holdings: Holdings },
    /// -> `Done`. Gives leases back, asked or not. Nothing happens to leases with higher numbers.
    ReleaseLease { leases: Vec<Release> },
    /// -> `Attr`, with the lease among the answer's grants unless the partition cannot give it now.
    AskLease { ino: Ino, kind: LeaseKind },
}

/// Where bytes are to be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TierWant {
    /// On flash.
    Flash,
    /// In an object only.
    Object,
}

/// Where the bytes of a part of a file are, as far as they are in packs or objects (what was just written waits in the
/// log: it counts as flash only).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Residency {
    /// Bytes on flash only.
    pub write_cache: u64,
    /// Bytes on flash and in an object.
    pub read_cache: u64,
    /// Bytes in an object, alone or beside flash.
    pub object: u64,
    /// From when they count, and what is wrong with them.
    pub ages: Ages,
    /// The next chunk to ask for; none: this was all.
    pub next: Option<Chunk>,
}

/// From when the bytes of a part of a file count for the rules of the capacity tier. Times are seconds since 1970 by the
/// clock of the partition; two of them are those of the oldest and of the newest chunk.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Ages {
    /// When it was looked.
    pub now_s: u32,
    /// Bytes on flash only that do not count yet: they are in the log, or something that was written over their chunk is.
    pub unmerged: u64,
    /// From when those on flash only count that do.
    pub fresh_s: Option<(u32, u32)>,
    /// From when those on flash and in an object count, reads not looked at.
    pub copied_s: Option<(u32, u32)>,
    /// When the file was last read, as far as its partition has heard since it is served where it is.
    pub read_s: Option<u32>,
    /// Bytes in objects only that cannot be read, because their object is missing or damaged.
    pub lost: u64,
    /// Bytes in objects, alone or beside flash, of stores that are to be left.
    pub leaving: u64,
}

impl Ages {
    /// Those of `self` and `more` together.
    #[must_use]
    pub fn with(self, more: Self) -> Self {
        let span = |a: Option<(u32, u32)>, b: Option<(u32, u32)>| match (a, b) {
            (Some((a, b)), Some((c, d))) => Some((a.min(c), b.max(d))),
            (one, other) => one.or(other),
        };
        Self {
            now_s: self.now_s.max(more.now_s),
            unmerged: self.unmerged + more.unmerged,
            fresh_s: span(self.fresh_s, more.fresh_s),
            copied_s: span(self.copied_s, more.copied_s),
            read_s: self.read_s.max(more.read_s),
            lost: self.lost + more.lost,
            leaving: self.leaving + more.leaving,
        }
    }
}

/// What a client told a program of a file before its partition heard of it: under an exclusive lease on the directory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Told {
    /// Its number, one of those that were lent with the lease.
    pub ino: Ino,
    /// When it was made.
    pub at: Time,
}

/// A stripe that a client wrote into a range that was lent to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Laid {
    /// Where it is.
    pub at: StripeAt,
    /// Epoch of the pack when the range was lent.
    pub epoch: Epoch,
    /// Its bytes without padding: 1 to `D * ul * 4096`.
    pub len: u32,
}

/// One entry of a directory listing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DirEntry {
    /// Its inode.
    pub ino: Ino,
    /// Its type.
    pub kind: FileType,
    /// Continue after it with this.
    pub cookie: u64,
    /// The name.
    pub name: Name,
    /// With `plus`, if the inode is in the directory's partition.
    pub attr: Option<Attr>,
}

/// The bytes of a part of a file: sorted extents with offsets in the file's chunks; what none covers is a hole.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Layout {
    /// Size of the file, bytes.
    pub size: u64,
    /// File offset of each extent and the extent (its `off` is the offset within the chunk).
    pub extents: Vec<(u64, Extent)>,
    /// The placements of all packs named.
    pub packs: Vec<(PackId, Placement)>,
    /// Staged bytes that the partition had at hand: `(file offset, bytes)`; saves a `ReadStage`.
    pub inline: Vec<(u64, Bytes)>,
    /// Ask again after so many milliseconds, although nothing changed; 0: there is no need to. Bytes may come back from
    /// an object meanwhile, and reads that nobody hears of would not keep them on flash.
    pub fresh_ms: u32,
}

/// The answers.
#[expect(missing_docs, reason = "fields are named after what they hold; each variant says the rest")]
#[derive(Clone, Debug)]
pub enum Reply {
    /// Nothing to say.
    Done,
    /// Attributes.
    Attr(Attr),
    /// A name's inode; attributes if it lives in the same partition.
    Entry { ino: Ino, kind: FileType, attr: Option<Attr> },
    /// The inode that lost a name.
    Unlinked { ino: Ino },
    /// The inode that moved, and the one replaced or exchanged.
    Renamed { moved: Ino, other: Option<Ino> },
    /// A piece of a directory; `end` if nothing follows.
    Entries { entries: Vec<DirEntry>, end: bool },
    /// The offset at which an append landed (or the first part's), and the attributes after it.
    Wrote { off: u64, attr: Attr },
    /// Ranges of packs; `at` names all blocks of one, which the client cuts into stripes from the front.
    Space(Vec<(StripeAt, Placement)>),
    /// Where bytes are.
    Layout(Layout),
    /// The same in sums.
    Residency(Residency),
    /// Bytes.
    Data(Bytes),
    /// An attribute's value.
    Value(Vec<u8>),
    /// Attribute names.
    Names(Vec<Vec<u8>>),
    /// A conflicting lock.
    Locked(Option<LockSpec>),
    /// Usage of a file system in one partition, and how many bytes it can hold in all of them, if that is known there.
    Usage { bytes: u64, inodes: u64, total_bytes: Option<u64> },
    /// The session lives. `reassert`: the primary is new and knows nothing of what the client holds.
    Session { reassert: bool },
}

/// The answer to a [`Request`].
pub type FsResult = Result<Reply>;

impl Op {
    /// True if it changes nothing, here or in what the partition keeps in memory (leases apart): carried out twice, or
    /// long after its answer, it does no harm. (`GetSpace` lends, but what is lent and not used comes back by itself.)
    pub fn is_read(&self) -> bool {
        matches!(
            self,
            Self::Lookup { .. }
                | Self::Readlink { .. }
                | Self::GetAttr { .. }
                | Self::Readdir { .. }
                | Self::GetSpace { .. }
                | Self::Layout { .. }
                | Self::NextData { .. }
                | Self::GetXattr { .. }
                | Self::ListXattr { .. }
                | Self::TestLock { .. }
                | Self::Sync { .. }
                | Self::ReadStage { .. }
                | Self::ReadObject { .. }
                | Self::Residency { .. }
                | Self::Tier { .. }
                | Self::Statfs
                | Self::AskLease { .. }
        )
    }

    /// True if it is about the session and its leases: these are safe to repeat and to come late, are never kept as
    /// answers, and pass where other requests of a session must wait.
    pub fn is_session(&self) -> bool {
        matches!(self, Self::Hello { .. } | Self::Reassert { .. } | Self::ReleaseLease { .. })
    }

    /// The inode whose partition decides this operation; `None`: it is asked of a named partition.
    ///
    /// Rename of a directory to another parent is decided by the file system's home partition instead:
    /// the client sends it to the target directory's partition, which answers or passes it on.
    pub fn route(&self) -> Option<Ino> {
        Some(match self {
            Self::Lookup { dir, .. }
            | Self::Create { dir, .. }
            | Self::Link { dir, .. }
            | Self::Unlink { dir, .. }
            | Self::Rmdir { dir, .. }
            | Self::Readdir { dir, .. } => *dir,
            Self::Rename { to_dir, .. } => *to_dir,
            Self::Close { inos } => return inos.first().copied(),
            Self::Accessed { files } => return files.first().map(|(ino, _)| *ino),
            Self::GetAttr { ino }
            | Self::SetAttr { ino, .. }
            | Self::Readlink { ino }
            | Self::Open { ino, .. }
            | Self::Write { ino, .. }
            | Self::GetSpace { ino, .. }
            | Self::CommitWrite { ino, .. }
            | Self::Layout { ino, .. }
            | Self::NextData { ino, .. }
            | Self::Fallocate { ino, .. }
            | Self::SetXattr { ino, .. }
            | Self::GetXattr { ino, .. }
            | Self::ListXattr { ino }
            | Self::RemoveXattr { ino, .. }
            | Self::Lock { ino, .. }
            | Self::CancelLock { ino, .. }
            | Self::TestLock { ino, .. }
            | Self::UnlockOwner { ino, .. }
            | Self::Sync { ino }
            | Self::AskLease { ino, .. }
            | Self::Residency { ino, .. }
            | Self::Tier { ino, .. }
            | Self::MakeRoot { ino, .. } => *ino,
            Self::ReadStage { .. }
            | Self::ReadObject { .. }
            | Self::Statfs
            | Self::EndSession
            | Self::Hello { .. }
            | Self::Reassert { .. }
            | Self::ReleaseLease { .. } => return None,
        })
    }
}
