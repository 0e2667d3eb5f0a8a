//! Bulk moves that a partition plans and a mover carries out (destage, compaction, garbage collection).
//!
//! The partition decides what moves where and commits the result; the mover reads the sources, codes
//! and writes the stripes. It touches no name and no record.

use crate::record::{Place, Placement, StripeAt};

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
