//! Client, mover or partition -> drive target.

use bytes::Bytes;

use crate::error::Result;
use crate::ids::{FsId, PackId, Term};
use crate::record::PackClass;

/// A shard: one of D+P pieces of a pack.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ShardId {
    /// The pack.
    pub pack: PackId,
    /// 0..D-1 data, D..D+P-1 parity.
    pub shard: u8,
}

/// What a drive target is asked.
#[derive(Clone, Debug)]
pub enum DriveOp {
    /// Take a free slot for a shard. Durable at reply; repeated calls for the same shard succeed.
    Create {
        /// The shard.
        id: ShardId,
        /// Data shards of the pack.
        data: u8,
        /// Parity shards of the pack.
        parity: u8,
        /// What the pack is for.
        class: PackClass,
        /// Term of the owning partition; lower ones than seen before are refused (`Stale`).
        term: Term,
        /// A file system that the pack serves, for reports only.
        fs: FsId,
    },
    /// Write blocks `[block, block + data.len()/4096)` once. Durable at reply. Identical bytes again succeed,
    /// different ones are refused (`Exists`). `NotFound` if the shard is not here.
    Put {
        /// The shard.
        id: ShardId,
        /// First block.
        block: u16,
        /// CRC32C of each 4 KiB block, made by the writer; the target checks them before it writes.
        crcs: Vec<u32>,
        /// Whole blocks.
        data: Bytes,
    },
    /// Read blocks `[block, block + count)`. Errors: `NotFound` (no such shard), `Invalid` (a block never
    /// written: zeros are never invented), `Corrupt` (checksum), `Io`.
    Read {
        /// The shard.
        id: ShardId,
        /// First block.
        block: u16,
        /// Blocks.
        count: u16,
    },
    /// Give the shard's slot back. Durable at reply; dropping an unknown shard succeeds.
    Drop {
        /// The shard.
        id: ShardId,
        /// Term of the owning partition.
        term: Term,
    },
    /// Which shards of a partition are here (for the orphan report).
    Report {
        /// The partition, as in the upper bits of the pack ids.
        partition: crate::ids::PartitionId,
    },
    /// Capacity and health.
    Stat,
    /// Which blocks of a shard are written. `NotFound` if the shard is not here.
    Written {
        /// The shard.
        id: ShardId,
    },
}

/// Capacity and health of a drive.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DriveStat {
    /// Slots in all.
    pub slots: u32,
    /// Slots that may be taken now.
    pub free: u32,
    /// Data bytes per slot.
    pub shard_bytes: u64,
    /// Checksum failures met since start.
    pub corrupt: u64,
    /// I/O errors met since start.
    pub errors: u64,
    /// Why new data should rather go elsewhere for now, if it should.
    pub trouble: Option<Trouble>,
}

/// What keeps a drive from being trusted with new data for a while.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Trouble {
    /// Requests take longer than [`crate::limits::DRIVE_SLOW_MS`].
    Slow,
    /// Writes end with errors, nothing can be read, or a request does not end ([`crate::limits::DRIVE_HUNG_MS`]).
    Failing,
    /// The device or file system under it has no room for what it promised.
    Full,
}

/// What a drive target answers.
#[derive(Clone, Debug)]
pub enum DriveReply {
    /// Done, durable.
    Done,
    /// The blocks, and the stored CRC32C of each (already checked against the data by the target; the reader
    /// checks them again: end to end).
    Data {
        /// The bytes.
        data: Bytes,
        /// One per block.
        crcs: Vec<u32>,
    },
    /// Shards and the terms that made them.
    Shards(Vec<(ShardId, Term)>),
    /// Capacity and health.
    Stat(DriveStat),
    /// Runs of blocks, in order: the first, how many, and whether they are written for sure; else they may be, because
    /// a copy of their checksums was lost.
    Written(Vec<(u16, u16, bool)>),
}

/// The answer to a [`DriveOp`].
pub type DriveResult = Result<DriveReply>;
