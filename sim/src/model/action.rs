//! What a program does, and what it may be told.

use braid_base::ErrorKind;
use braid_base::attr::{Attr, FileType};
use braid_base::ids::Ino;
use braid_base::msg::fs::{FallocMode, Name, RenameMode, XattrMode};
use bytes::Bytes;

/// One call. Each becomes one changing request at most, so it happened or it did not.
#[derive(Clone, Debug)]
pub enum Action {
    /// Makes something new.
    Create { dir: Ino, name: Name, kind: FileType, mode: u16, target: Vec<u8> },
    /// One more name.
    Link { ino: Ino, dir: Ino, name: Name },
    /// One name less.
    Unlink { dir: Ino, name: Name },
    /// One empty directory less.
    Rmdir { dir: Ino, name: Name },
    /// Another name.
    Rename { from_dir: Ino, from: Name, to_dir: Ino, to: Name, mode: RenameMode },
    /// What a name means.
    Lookup { dir: Ino, name: Name },
    /// Attributes.
    Stat { ino: Ino },
    /// All names of a directory, so many at a time.
    List { dir: Ino, limit: u32, plus: bool },
    /// Target of a symlink.
    Readlink { ino: Ino },
    /// Bytes in.
    Write { ino: Ino, off: u64, data: Bytes, append: bool },
    /// Bytes out.
    Read { ino: Ino, off: u64, len: u64 },
    /// What was written lasts from now on.
    Fsync { ino: Ino },
    /// To flash, whatever it costs; waits so long until it is there, milliseconds.
    Fetch { ino: Ino, off: u64, len: u64, wait_ms: u64 },
    /// Off flash, likewise.
    Release { ino: Ino, off: u64, len: u64, wait_ms: u64 },
    /// New length.
    Truncate { ino: Ino, size: u64 },
    /// Reserve, punch, zero.
    Falloc { ino: Ino, off: u64, len: u64, mode: FallocMode, keep: bool },
    /// New permission bits.
    Chmod { ino: Ino, mode: u16 },
    /// Takes an open reference.
    Open { ino: Ino, truncate: bool },
    /// Gives it back.
    Close { ino: Ino },
    /// Sets an attribute.
    SetXattr { ino: Ino, name: Vec<u8>, value: Vec<u8>, mode: XattrMode },
    /// Reads one.
    GetXattr { ino: Ino, name: Vec<u8> },
    /// Names them.
    ListXattr { ino: Ino },
    /// Removes one.
    RemoveXattr { ino: Ino, name: Vec<u8> },
}

/// What a call should give.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Expect {
    /// Success, nothing more to compare.
    Done,
    /// This inode.
    Ino(Ino),
    /// A new inode of these looks.
    New(Look),
    /// An inode that looks so.
    Look(Look),
    /// Bytes.
    Bytes(Vec<u8>),
    /// A write that began there, and the size after it.
    Wrote { off: u64, size: u64 },
    /// Names in any order, each with its inode.
    Names(Vec<(Vec<u8>, Ino)>),
    /// Attribute names in any order.
    Xattrs(Vec<Vec<u8>>),
    /// Moved and replaced inode.
    Renamed(Ino, Option<Ino>),
}

/// The attributes that the model knows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Look {
    /// What it is.
    pub kind: FileType,
    /// Low 12 bits.
    pub mode: u16,
    /// Links.
    pub nlink: u32,
    /// Bytes, but of directories.
    pub size: u64,
}

impl Look {
    /// The same of an answer.
    pub fn of(attr: &Attr) -> Self {
        let size = if attr.kind == FileType::Directory { 0 } else { attr.size };
        Self { kind: attr.kind, mode: attr.mode, nlink: attr.nlink, size }
    }
}

/// What a call gave.
#[derive(Clone, Debug)]
pub enum Answer {
    /// Nothing to say.
    Done,
    /// An inode.
    Ino(Ino),
    /// An inode and what it looks like.
    Entry(Ino, Attr),
    /// Bytes.
    Bytes(Bytes),
    /// Where a write began, the attributes after it, and whether its bytes are still with the client.
    Wrote { off: u64, attr: Attr, held_back: bool },
    /// Names, inodes, attributes where asked for.
    Names(Vec<(Vec<u8>, Ino, Option<Attr>)>),
    /// Attribute names.
    Xattrs(Vec<Vec<u8>>),
    /// Moved and replaced inode.
    Renamed(Ino, Option<Ino>),
    /// Whether all of a file was elsewhere before, and is where it is to be now.
    Moved(bool),
}

/// The refusals that fit a call: one of them must come.
pub type Refusals = Vec<ErrorKind>;

impl Action {
    /// True if it changes something.
    pub fn changes(&self) -> bool {
        !matches!(
            self,
            Self::Lookup { .. }
                | Self::Stat { .. }
                | Self::List { .. }
                | Self::Readlink { .. }
                | Self::Read { .. }
                | Self::GetXattr { .. }
                | Self::ListXattr { .. }
                | Self::Fsync { .. }
                | Self::Fetch { .. }
                | Self::Release { .. }
        )
    }

    /// True if a full cluster may refuse it.
    pub fn needs_space(&self) -> bool {
        matches!(
            self,
            Self::Create { .. }
                | Self::Link { .. }
                | Self::Rename { .. }
                | Self::Write { .. }
                | Self::SetXattr { .. }
                | Self::Falloc { mode: FallocMode::Allocate | FallocMode::Zero, .. }
        )
    }

    /// The file that it is about, if it names one by its number.
    pub fn ino(&self) -> Option<Ino> {
        match self {
            Self::Stat { ino }
            | Self::Readlink { ino }
            | Self::Write { ino, .. }
            | Self::Read { ino, .. }
            | Self::Fsync { ino }
            | Self::Fetch { ino, .. }
            | Self::Release { ino, .. }
            | Self::Truncate { ino, .. }
            | Self::Falloc { ino, .. }
            | Self::Chmod { ino, .. }
            | Self::Open { ino, .. }
            | Self::Close { ino }
            | Self::SetXattr { ino, .. }
            | Self::GetXattr { ino, .. }
            | Self::ListXattr { ino }
            | Self::RemoveXattr { ino, .. } => Some(*ino),
            _ => None,
        }
    }

    /// All that it names by a number, as a file or as a directory.
    pub fn inos(&self) -> Vec<Ino> {
        match self {
            Self::Create { dir, .. }
            | Self::Unlink { dir, .. }
            | Self::Rmdir { dir, .. }
            | Self::Lookup { dir, .. }
            | Self::List { dir, .. } => vec![*dir],
            Self::Link { ino, dir, .. } => vec![*ino, *dir],
            Self::Rename { from_dir, to_dir, .. } => vec![*from_dir, *to_dir],
            _ => self.ino().into_iter().collect(),
        }
    }

    /// A line for the schedule, without the bytes.
    pub fn line(&self) -> String {
        match self {
            Self::Write { ino, off, data, append } => {
                format!("write {ino} at {off} {} bytes{}", data.len(), if *append { " append" } else { "" })
            }
            Self::SetXattr { ino, name, value, mode } => {
                format!("setxattr {ino} {} {} bytes {mode:?}", crate::trace::text(name), value.len())
            }
            Self::Create { dir, name, kind, .. } => format!("create {dir}/{} {kind:?}", crate::trace::text(name)),
            Self::Link { ino, dir, name } => format!("link {ino} {dir}/{}", crate::trace::text(name)),
            Self::Unlink { dir, name } => format!("unlink {dir}/{}", crate::trace::text(name)),
            Self::Rmdir { dir, name } => format!("rmdir {dir}/{}", crate::trace::text(name)),
            Self::Lookup { dir, name } => format!("lookup {dir}/{}", crate::trace::text(name)),
            Self::Rename { from_dir, from, to_dir, to, mode } => {
                let (from, to) = (crate::trace::text(from), crate::trace::text(to));
                format!("rename {from_dir}/{from} {to_dir}/{to} {mode:?}")
            }
            other => format!("{other:?}"),
        }
    }
}
