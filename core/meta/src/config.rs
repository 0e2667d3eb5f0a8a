//! What a partition is told when it starts.

use braid_base::ids::{DriveId, HostId, PartitionId, Term};

/// What a partition must know about its place in the cluster.
#[derive(Clone, Debug)]
pub struct Config {
    /// This partition.
    pub partition: PartitionId,
    /// Number of partitions in the cluster.
    pub partitions: u16,
    /// The term in which this primary serves.
    pub term: Term,
    /// The host that runs it: clients that lived in an earlier process of this host are dead.
    pub host: HostId,
    /// Data shards of new packs (narrowed when fewer drives are there).
    pub data: u8,
    /// Parity shards of new packs.
    pub parity: u8,
    /// Data bytes of one shard.
    pub shard_bytes: u64,
    /// Drives that may take new packs.
    pub drives: Vec<DriveId>,
    /// Flash bytes that users may fill in this partition (its share of the cluster's net capacity).
    pub capacity_bytes: u64,
}
