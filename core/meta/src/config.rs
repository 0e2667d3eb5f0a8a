//! What a partition is told when it starts.

use std::collections::{BTreeMap, BTreeSet};

use braid_base::ids::{DomainId, DriveId, HostId, PartitionId, StoreId, Term};

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
    /// The drives of the cluster.
    pub drives: DriveSet,
    /// Flash bytes that users may fill in this partition (its share of the cluster's net capacity).
    pub capacity_bytes: u64,
}

/// Why the shards of a drive are to be made anew elsewhere.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Leave {
    /// It failed. It may come back, with what is on it.
    Failed,
    /// It is taken out of the cluster, and may serve until it is empty.
    Draining,
    /// It is taken out of the cluster, and never answers again, somebody said: what only it has is lost.
    Abandoned,
}

/// The drives of a cluster, as far as a partition must know them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DriveSet {
    /// Those that may take new packs.
    pub usable: Vec<DriveId>,
    /// What fails together: the domain of each drive, usable or not. One that is not named is a domain of its own.
    pub domains: BTreeMap<DriveId, DomainId>,
    /// Those whose shards are to be made anew elsewhere, and why.
    pub leaving: BTreeMap<DriveId, Leave>,
    /// Those that do not answer now.
    pub absent: BTreeSet<DriveId>,
    /// Bytes per second that each may be read with, in the background, to check what lies there; 0: only what may have lost data is.
    pub scrub_bytes_per_s: u64,
}

impl DriveSet {
    /// What fails together with `drive`. One that is not named fails by itself, and comes after all that are.
    pub fn domain(&self, drive: DriveId) -> u64 {
        self.domains.get(&drive).map_or(u64::from(drive.0) + 0x1_0000, |domain| u64::from(domain.0))
    }
}

impl From<Vec<DriveId>> for DriveSet {
    /// Each a domain of its own, and none of them leaves.
    fn from(usable: Vec<DriveId>) -> Self {
        Self { usable, ..Self::default() }
    }
}

impl FromIterator<DriveId> for DriveSet {
    fn from_iter<I: IntoIterator<Item = DriveId>>(usable: I) -> Self {
        usable.into_iter().collect::<Vec<_>>().into()
    }
}

/// What is wrong with an object, as its host found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Damaged {
    /// The term in which it was sent.
    pub term: Term,
    /// Its store has no such object: all of it is damaged.
    pub missing: bool,
    /// What of its data cannot be had, bytes: from, and up to; in order, apart from each other.
    pub ranges: Vec<(u64, u64)>,
    /// Since when that is known, seconds since 1970.
    pub since_s: u64,
}

/// What a partition must know of a file system with an object store.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TierPolicy {
    /// Where cold data goes; none: nothing is moved out, what is out is read.
    pub writable: Option<StoreId>,
    /// Stores that are to be left: what is in them comes back.
    pub leaving: BTreeSet<StoreId>,
    /// Those of them whose objects are left where they are if the store does not remove them.
    pub given_up: BTreeSet<StoreId>,
    /// How long after it was last written data is put into an object, seconds.
    pub cue_s: u32,
    /// How long data stays on flash after it was put into an object, or read, seconds.
    pub retention_s: u32,
    /// Data of one object at most, bytes; whole blocks.
    pub object_bytes: u32,
    /// Flash that the file system may fill in this partition, bytes; none: all there is.
    pub flash_bytes: Option<u64>,
    /// How far ahead of a reader data is brought back, bytes.
    pub prefetch_bytes: u64,
}
