//! What a partition hears and says.

use braid_base::Result;
use braid_base::attr::Time;
use braid_base::ids::{DriveId, FsId, Index, OpId, PartitionId};
use braid_base::msg::drive::{DriveOp, DriveResult};
use braid_base::msg::fs::Request;
use braid_base::msg::job::{Job, ObjectKey, ScrubJob, Scrubbed};
use braid_base::msg::lease::{Answer, Push};
use braid_base::msg::peer::PeerMsg;
use braid_replica::Batch;
use bytes::Bytes;

/// The present, as the shell read it before the step.
#[derive(Clone, Copy, Debug, Default)]
pub struct Now {
    /// Monotonic milliseconds; only differences mean something.
    pub mono_ms: u64,
    /// The same in microseconds, for what is shorter than a message takes.
    pub mono_us: u64,
    /// Wall clock, for the times of inodes.
    pub wall: Time,
}

/// Names a request whose reply is owed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Token(pub u64);

/// One log entry: physical effects and the staged bytes.
#[derive(Clone, Debug)]
pub struct Entry {
    /// The position it must get: the partition counts along with its replica.
    pub index: Index,
    /// Client operations that it completes.
    pub ops: Vec<OpId>,
    /// Puts and deletes.
    pub batch: Batch,
    /// Staged bytes, in pieces, in order.
    pub payload: Vec<Bytes>,
}

/// What a partition hears.
#[derive(Debug)]
pub enum Event {
    /// A client's request.
    Request(Token, Request),
    /// A client's request with which others came: what it changes may share an entry with what they change, until
    /// [`Event::Gathered`]. Small changes of files and names do; all else goes as by itself (decision 44).
    Gather(Token, Request),
    /// No more came: what requests changed together becomes an entry.
    Gathered,
    /// A message of another partition.
    Peer(PartitionId, PeerMsg),
    /// All entries up to this one are durable on all members.
    Committed(Index),
    /// All entries up to this one, which are committed, are in the key-value view.
    Applied(Index),
    /// A bulk move ended; after an error nothing of it is referenced and it may be planned anew.
    JobDone(u64, Result<()>),
    /// The check of a pack ended.
    Scrubbed(u64, Result<Scrubbed>),
    /// A drive answered.
    Drive(u64, DriveResult),
    /// Time has passed (about every 100 ms).
    Tick,
}

/// What people may want to know of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Notice {
    /// Data of a file system leaves flash before its retention period has passed, because flash is short.
    LeftEarly(FsId),
    /// Writes to it were told that there is no space: its flash is full, and nothing goes into its object store.
    FlashFull(FsId),
}

/// What a partition says.
#[derive(Debug)]
pub enum Effect {
    /// Answer a request.
    Reply(Token, Answer),
    /// Append an entry.
    Propose(Entry),
    /// Tell a client, wherever it is (may be lost, late, doubled).
    Push(Push),
    /// Tell another partition (may be lost, late, doubled).
    Peer(PartitionId, PeerMsg),
    /// Ask a drive; the answer comes as [`Event::Drive`] with the same number (or never).
    Drive(u64, DriveId, DriveOp),
    /// Carry out a bulk move; the answer comes as [`Event::JobDone`] (or never: after a restart all are void).
    Job(Job),
    /// Answer a request with so many bytes of an object, from that byte of its data on; so many (the last) behind them are
    /// asked for at the same time.
    ReadObject(Token, ObjectKey, u32, (u32, u32)),
    /// Check a pack; the answer comes as [`Event::Scrubbed`] (or never: after a restart all are void).
    Scrub(ScrubJob),
    /// Tell people, unless they have just been told.
    Notice(Notice),
}
