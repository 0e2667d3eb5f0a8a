//! The log of one replica on disk: segments of records, written in groups (design 4.2).
//!
//! ```text
//! file "segment n":  header 4 KiB | group | group | ...          (size fixed, preallocated, recycled)
//! group:             record | record | ... | pad to 4 KiB        = one write
//! record:            len u32 | crc u32 | prev_crc u32 | flags u16 | nops u16 | term u64 | index u64
//!                    | meta_len u32 | payload_len u32 | meta | payload
//! ```
//!
//! 1. `crc` covers the store, the segment number, the header and the meta; the meta holds one CRC per
//!    4 KiB of payload. So bytes left over from an earlier use of the file never look valid.
//! 2. `prev_crc` chains each record to the one before it, across segments.
//! 3. A segment number is used once. After a restart and after a truncation the next record opens a
//!    new segment; the header's first index voids whatever older segments hold from there on.
//! 4. Each record says up to which index its writer knew the log to be durable. A damaged record
//!    that a later one knew to be durable is corruption; any other is a torn, unacknowledged tail.

pub mod buffer;
pub mod format;
pub mod meta_file;
pub mod recover;
pub mod scan;
pub mod writer;

use std::fmt;

use braid_base::Result;
use braid_base::ids::{Guid, PartitionId};

/// Number of a segment, from 1, never used twice in a store.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Segment(pub u64);

impl fmt::Display for Segment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "segment {}", self.0)
    }
}

/// Whose log it is; stands in every segment header.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LogIdent {
    /// The cluster.
    pub cluster: Guid,
    /// The partition.
    pub partition: PartitionId,
    /// The store.
    pub store: Guid,
}

/// Reads segment files; the shell behind it chooses files and I/O calls.
pub trait LogReader {
    /// All segments that exist, in any order.
    fn segments(&self) -> Result<Vec<Segment>>;

    /// Bytes `offset..offset + len` of a segment, fewer only at the end of the file. `offset` and
    /// `len` are multiples of 4096.
    fn read(&self, segment: Segment, offset: u64, len: usize) -> Result<Vec<u8>>;
}
