//! Partition <-> partition. May be lost, late, doubled or overtake each other; every message is safe to repeat.
//!
//! An operation that spans partitions runs as *remote prepare, local commit, lazy finish* (design 5.5):
//!
//! 1. The coordinator asks what it must know (`Ask`, `Told`) and sends every other partition its share (`Prepare`).
//! 2. A participant checks, logs the intents, locks the names, answers (`Prepared`). From then on it obeys.
//! 3. The coordinator's own log entry is the decision; it tells the participants (`Decide`) until each has
//!    acknowledged (`Finished`).
//! 4. A participant that hears nothing asks (`Undecided`); it never decides itself.
//!
//! What cannot fail needs no preparation: it goes through an ordered, exactly-once channel (`Note`, `Noted`).

use crate::attr::{Attr, FileType, Time};
use crate::error::Result;
use crate::ids::{ClientId, FsId, Ino, OpId};
use crate::msg::fs::{FsResult, Name, Request};

/// A message between partitions. `client` is whose operation it is: leases of others are in its way, its own are not.
/// `tx` is the coordinator's number of the attempt, never used again: a client that
/// repeats its operation after `Busy` gets another one.
#[derive(Clone, Debug)]
#[allow(missing_docs, reason = "the variants say what their fields are")]
pub enum PeerMsg {
    /// Coordinator: what is there now? Answered by `Told` with the same number.
    Ask { tx: OpId, number: u32, fs: FsId, what: Question },
    /// Answer to `Ask`; it binds nobody, so `Prepare` names what it expects.
    Told { tx: OpId, number: u32, answer: Result<Answer> },
    /// Coordinator: check these and hold them until I decide.
    Prepare { tx: OpId, fs: FsId, client: ClientId, intents: Vec<Intent> },
    /// Participant: held (with the inode that was made or linked), or why not.
    Prepared { tx: OpId, result: Result<Option<Attr>> },
    /// Coordinator: this is decided, carry it out or undo it.
    Decide { tx: OpId, commit: bool },
    /// Participant: the decision is durable here.
    Finished { tx: OpId },
    /// Participant: what became of it?
    Undecided { tx: OpId },
    /// A client's request that the receiver coordinates.
    Forward { request: Box<Request> },
    /// Its answer.
    Forwarded { op: OpId, result: FsResult },
    /// Number `seq` of the notes from this sender to this receiver; taken in order, once.
    Note { seq: u64, fs: FsId, client: ClientId, note: Note },
    /// All notes up to this one are taken.
    Noted { upto: u64 },
}

/// What a coordinator must know before it can plan.
#[derive(Clone, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "the variants say what their fields are")]
pub enum Question {
    /// What is `name` in `dir`?
    Name { dir: Ino, name: Name },
    /// Which directory holds directory `dir`?
    Parent { dir: Ino },
}

/// What it hears.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "the variants say what their fields are")]
pub enum Answer {
    /// The quota id of the directory, and what the name stands for, if anything.
    Name { quota: u64, entry: Option<(Ino, FileType)> },
    /// The parent (of the root: the root).
    Parent(Ino),
}

/// One change that a partition promises to be able to make.
#[derive(Clone, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "the variants say what their fields are")]
pub enum Intent {
    /// The name, which stands for `ino`, goes.
    Clear { dir: Ino, name: Name, ino: Ino, kind: FileType },
    /// The name, which is free or stands for `old`, will stand for `ino`.
    Set { dir: Ino, name: Name, old: Option<(Ino, FileType)>, ino: Ino, kind: FileType },
    /// A directory is made, invisible until the decision.
    MakeDir(Box<NewDir>),
    /// A file gets one more link. The directory of the new name has quota id `quota`.
    Link { ino: Ino, quota: u64 },
    /// A directory, which is empty, goes; it takes no new names meanwhile.
    RemoveDir { ino: Ino },
    /// A directory, which is in `from`, will be in `to`.
    Reparent { ino: Ino, from: Ino, to: Ino },
    /// The client of this operation, which the participant passed on, still waits: a late double of an answered
    /// request must not run again.
    Wanted { op: OpId },
}

/// A directory to make.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewDir {
    /// Its virtual partition; with sequence number 0 until the participant has chosen one.
    pub ino: Ino,
    /// What stat will show.
    pub attr: Attr,
    /// The directory it will be in.
    pub parent: Ino,
    /// Quota id.
    pub quota: u64,
    /// Inherited access control lists: name and value.
    pub xattrs: Vec<(Vec<u8>, Vec<u8>)>,
}

/// A change that cannot fail.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "the variants say what their fields are")]
pub enum Note {
    /// A name of the file was removed.
    Unlinked { ino: Ino, at: Time },
    /// The inode was renamed: its ctime changes.
    Renamed { ino: Ino, at: Time },
}
