//! Bulk work that a partition plans and a mover carries out: moves (destage, compaction, garbage collection, fetches from
//! objects), objects that are put into a store or removed from it, shards that are made anew, and packs that are checked.
//!
//! The partition decides what goes where and commits the result; the mover reads the sources, codes
//! and writes. It touches no name and no record.

use crate::ids::{BlobId, DriveId, FsId, Ino, PackId, StoreId, Term};
use crate::record::{PackClass, Place, Placement, StripeAt};

/// Bulk work.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Job {
    /// Bytes move.
    Move(MoveJob),
    /// A shard is made anew.
    Rebuild(RebuildJob),
    /// Bytes are put into an object.
    Upload(UploadJob),
    /// An object is removed.
    Remove(RemoveJob),
}

impl Job {
    /// The partition's number for it, to match the answer.
    pub fn id(&self) -> u64 {
        match self {
            Self::Move(job) => job.id,
            Self::Rebuild(job) => job.id,
            Self::Upload(job) => job.id,
            Self::Remove(job) => job.id,
        }
    }
}

/// A shard whose drive is lost, or is to be emptied, to be made on another one from the others of its pack; or one with
/// damaged blocks, to be made whole where it is. The pack takes no more data, so its shards do not change.
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
    /// Its rows in which something is committed, as in [`ScrubJob::rows`]: all that the new one must hold.
    pub rows: Vec<(u16, u16)>,
    /// The drive for the new one; its own: only what is missing or damaged is written.
    pub to: DriveId,
    /// Its own drive answers: it is copied from there, and only what cannot be read there is computed.
    pub copies: bool,
    /// Shards that never come back, somebody said, if it is one of them: what only they have is lost, and the new one lacks it.
    /// Else none: it may be what makes up for them.
    pub gone: Vec<u8>,
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
    /// A staged payload, a stripe or an object; for a stripe with the placement to read it from.
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

/// An object and where it is: its store, and the term in which it was sent, which is part of its key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ObjectKey {
    /// The store.
    pub store: StoreId,
    /// The object.
    pub blob: BlobId,
    /// The term.
    pub term: Term,
}

/// Whole blocks of a file, one after another in an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BlockRun {
    /// The file.
    pub ino: Ino,
    /// Its first 4 KiB block.
    pub block: u64,
    /// How many.
    pub blocks: u32,
}

/// An object to write. Its key is never written by anybody else, nor again by this partition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UploadJob {
    /// The partition's number for it, to match the answer.
    pub id: u64,
    /// Its name.
    pub key: ObjectKey,
    /// The file system whose data it holds.
    pub fs: FsId,
    /// What its data is, block for block.
    pub runs: Vec<BlockRun>,
    /// Its data: as many bytes as the runs have blocks.
    pub parts: Vec<Part>,
}

/// An object to remove. That it is not there is no failure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RemoveJob {
    /// The partition's number for it, to match the answer.
    pub id: u64,
    /// Its name.
    pub key: ObjectKey,
}

/// A pack that takes no more data, to be read and checked as a whole.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ScrubJob {
    /// The partition's number for it, to match the answer.
    pub id: u64,
    /// The pack.
    pub pack: PackId,
    /// Where its shards are.
    pub place: Placement,
    /// Its rows in which something is committed, as runs: the first block of a shard, how many; in order.
    pub rows: Vec<(u16, u16)>,
    /// Bytes that are read of each shard per second, at most.
    pub bytes_per_s: u64,
}

/// What a [`ScrubJob`] found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Scrubbed {
    /// Bytes read, of all shards together.
    pub bytes: u64,
    /// Shards that lack a block, or have a damaged one, that the others make up for; in order.
    pub bad: Vec<u8>,
    /// Shards whose drive did not answer, or did not go on to: nothing is said of their blocks, nor of rows that they may
    /// make up for; in order.
    pub silent: Vec<u8>,
    /// Blocks of data that cannot be read, nor computed from the others: shard, first block, how many; in order. Means
    /// something only where a stripe was committed.
    pub lost: Vec<(u8, u16, u16)>,
    /// Blocks that match their checksums in all shards, but not each other: the first and how many, in order. Means
    /// something only where a stripe was committed.
    pub odd: Vec<(u16, u16)>,
}
