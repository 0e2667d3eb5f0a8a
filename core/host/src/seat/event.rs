//! What a seat hears and says.

use braid_base::ids::{DriveId, HostId, Index, PartitionId, Term};
use braid_base::msg::drive::{DriveOp, DriveResult};
use braid_base::msg::fs::Request;
use braid_base::msg::job::{Job, ObjectKey, ScrubJob, Scrubbed};
use braid_base::msg::lease::{Answer, Push};
use braid_base::msg::peer::PeerMsg;
use braid_base::{Error, Result};
use braid_meta::{Notice, Token};
use braid_replica::config::{Config as Members, Member};
use braid_replica::log::Segment;
use braid_replica::replica::event::Msg;
use bytes::Bytes;

/// What a seat hears.
#[derive(Debug)]
pub enum SeatEvent {
    /// A client's request (`ReadStage` included), and the term of this seat that its sender knows.
    Request(Token, Term, Request),
    /// Another partition's message.
    Peer(PartitionId, PeerMsg),
    /// A bulk move ended.
    JobDone(u64, Result<()>),
    /// The check of a pack ended.
    Scrubbed(u64, Result<Scrubbed>),
    /// A drive answered.
    Drive(u64, DriveResult),
    /// A [`SeatEffect::LogWrite`] ended; the next one begins then.
    LogWritten(u64, Result<()>),
    /// A [`SeatEffect::LogRead`] ended.
    LogRead(u64, Result<Bytes>),
    /// The key-value view was flushed: everything this seat had applied when the flush began is durable. Carries
    /// what [`Seat::applied`](super::Seat::applied) said at that moment.
    Flushed(Index),
    /// A message of another replica of this partition; it may be late, doubled or out of order.
    Replica(Msg),
    /// What the coordinator holds, read after a [`SeatEffect::Cas`] was answered or timed out.
    CasResult(Members),
    /// What the coordinator holds or held; a hint.
    ConfigSeen(Members),
    /// The hosts that should have replicas, the one that should lead first; a hint.
    Seats(Vec<HostId>),
    /// The other hosts whose replica should not lead; a hint.
    Unfit(Vec<HostId>),
    /// This host is about to stop: others should not have to wait for this replica.
    Leave,
    /// About every 100 ms.
    Tick,
}

/// What a seat says.
#[derive(Debug)]
pub enum SeatEffect {
    /// Answer a request.
    Reply(Token, Answer),
    /// Tell a client (may be lost).
    Push(Push),
    /// Tell another partition.
    Peer(PartitionId, PeerMsg),
    /// Ask a drive; the answer comes as [`SeatEvent::Drive`].
    Drive(u64, DriveId, DriveOp),
    /// Carry out bulk work (its staged bytes are at hand, or read by `ReadStage` requests to this seat).
    Job(Job),
    /// Answer a request with so many bytes of an object, from that byte of its data on; so many (the last) behind them are
    /// asked for at the same time.
    ReadObject(Token, ObjectKey, u32, (u32, u32)),
    /// Check a pack; the answer comes as [`SeatEvent::Scrubbed`].
    Scrub(ScrubJob),
    /// Tell people.
    Notice(Notice),
    /// Write to a log segment, durably (creates the segment when the offset is 0).
    LogWrite {
        /// For [`SeatEvent::LogWritten`].
        id: u64,
        /// The segment.
        segment: Segment,
        /// Byte offset, a multiple of 4096.
        off: u64,
        /// The bytes, a multiple of 4096 in all.
        data: Bytes,
    },
    /// Read from a log segment.
    LogRead {
        /// For [`SeatEvent::LogRead`].
        id: u64,
        /// The segment.
        segment: Segment,
        /// Byte offset, a multiple of 4096.
        off: u64,
        /// Bytes, a multiple of 4096.
        len: usize,
    },
    /// The segment is not needed any more (its file may be recycled).
    LogRemove(Segment),
    /// Write a block of `replica.meta`: durable before any later effect is carried out.
    WriteMeta {
        /// Byte offset, 0 or 4096.
        off: u64,
        /// 4096 bytes.
        block: Bytes,
    },
    /// Records are needed that only the log holds: call [`Seat::read_log`](super::Seat::read_log), soon.
    ReadLog,
    /// Tell another replica of this partition (may be lost).
    Replica(Member, Msg),
    /// Replace the partition's configuration in the coordinator if it still is `expect`; then read it; the answer
    /// comes as [`SeatEvent::CasResult`].
    Cas {
        /// Old value.
        expect: Members,
        /// New value.
        new: Members,
    },
    /// Read the configuration; the answer comes as [`SeatEvent::ConfigSeen`].
    ReadConfig,
    /// Flush the key-value view now; [`SeatEvent::Flushed`] says that it is done.
    FlushView,
    /// The others' logs begin after the end of this one: unless the coordinator names this store as a member, it is to be
    /// replaced by an empty one, with a number of its own, whose `replica.meta` says that it imports.
    Forsaken,
    /// The partition is served here from now on: it wants its settings (drives, capacity, limits).
    Serves,
    /// It is not any more: what was asked and not answered is to be asked elsewhere.
    StepsDown,
    /// The log or the view failed: the seat is poisoned and answers nothing more. Restart it from disk.
    Failed(Error),
}
