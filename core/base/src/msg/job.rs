//! Bulk work that a partition plans and a mover carries out: moves (destage, compaction, garbage collection), and shards
//! that are made anew.
//!
//! The partition decides what goes where and commits the result; the mover reads the sources, codes
//! and writes. It touches no name and no record.

use crate::ids::{DriveId, FsId, PackId, Term};
use crate::record::{PackClass, Place, Placement, StripeAt};

/// Bulk work.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Job {
    /// Bytes move.
    Move(MoveJob),
    /// A shard is made anew.
    Rebuild(RebuildJob),
}

impl Job {
    /// The partition's number for it, to match the answer.
    pub fn id(&self) -> u64 {
        match self {
            Self::Move(job) => job.id,
            Self::Rebuild(job) => job.id,
        }
    }
}

/// A shard whose drive is lost, or is to be emptied, to be made on another one from the others of its pack. The pack
/// takes no more data, so its shards do not change.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RebuildJob {
    /// The partition's number for it, to match the answer.
    pub id: u64,
    /// The pack.
    pub pack: PackId,
    /// Which of its shards.
    pub shard: u8,
    /// Where its shards are now.
    pub place: Placement,
    /// The drive for the new one.
    pub to: DriveId,
    /// What the pack is for.
    pub class: PackClass,
    /// Term of the partition.
    pub term: Term,
    /// A file system that the pack serves.
    pub fs: FsId,
}

/// Bytes that go into a stripe, in order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Part {
    /// Bytes.
    pub len: u32,
    /// Where they come from.
    pub from: Source,
}

/// Where the bytes of a [`Part`] come from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Source {
    /// Zeros (a hole, or padding to a block).
    Zero,
    /// A staged payload or a stripe; for a stripe with the placement to read it from.
    At(Place, Option<Placement>),
}

/// One stripe to write.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StripePlan {
    /// Its place; `ul` fits the sum of the parts: `ul = ceil(len / D / 4096)`.
    pub at: StripeAt,
    /// The drives of its pack.
    pub place: Placement,
    /// Its logical content; the mover pads with zeros to `D * ul * 4096`.
    pub parts: Vec<Part>,
}

/// A bulk move.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MoveJob {
    /// The partition's number for it, to match the answer.
    pub id: u64,
    /// Stripes to write.
    pub stripes: Vec<StripePlan>,
}
