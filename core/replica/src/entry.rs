//! What is replicated: an entry, and the record it becomes once it has a place in the log.

use braid_base::crc::block_crcs;
use braid_base::ids::{Index, OpId, Term};
use braid_base::limits::{BLOCK, WRITE_MAX};
use bytes::Bytes;

use crate::kv::batch::Batch;

/// Every record whose index is a multiple of this carries the state hash (design 4.2).
pub const STATE_HASH_EVERY: u64 = 1024;

/// Something to agree on: which requests it answers, what it changes, which file bytes it stages.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Entry {
    ops: Vec<OpId>,
    batch: Batch,
    payload: Bytes,
    payload_crcs: Vec<u32>,
}

/// An entry with its place in the log. (`term`, `index`) names one entry for ever.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Record {
    /// Term of the primary that appended it.
    pub term: Term,
    /// Position in the log, from 1.
    pub index: Index,
    /// What it holds.
    pub entry: Entry,
    /// State hash after it, where `index` is a multiple of [`STATE_HASH_EVERY`].
    pub state_hash: Option<u64>,
}

impl Entry {
    /// An entry; computes the checksums of `payload`.
    pub fn new(ops: Vec<OpId>, batch: Batch, payload: Bytes) -> Self {
        let payload_crcs = block_crcs(&payload);
        Self::with_crcs(ops, batch, payload, payload_crcs)
    }

    /// An entry whose payload came with its checksums (one CRC32C per 4 KiB, the last block may be
    /// short). They are stored as they are: a wrong one makes the record unreadable.
    pub fn with_crcs(ops: Vec<OpId>, batch: Batch, payload: Bytes, payload_crcs: Vec<u32>) -> Self {
        assert!(payload.len() <= WRITE_MAX, "a payload of {} bytes exceeds {WRITE_MAX}", payload.len());
        assert_eq!(payload_crcs.len(), payload.len().div_ceil(BLOCK), "one checksum per block of payload");
        Self { ops, batch, payload, payload_crcs }
    }

    /// The requests it answers.
    pub fn ops(&self) -> &[OpId] {
        &self.ops
    }

    /// What it changes in the key-value view.
    pub fn batch(&self) -> &Batch {
        &self.batch
    }

    /// Bytes of what it changes and stages.
    pub fn bytes(&self) -> usize {
        self.payload.len() + self.batch.encoded_len()
    }

    /// Staged file bytes; they stay in the log.
    pub fn payload(&self) -> &Bytes {
        &self.payload
    }

    /// One CRC32C per 4 KiB of payload.
    pub fn payload_crcs(&self) -> &[u32] {
        &self.payload_crcs
    }
}
