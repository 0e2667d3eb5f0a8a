//! The facts of a cluster, as plain data: what the coordinator keeps (see `records`) and hosts and doors share.
//!
//! Fields may be added with a default; a change of meaning takes a new version.

mod plain;

use std::fmt;
use std::path::PathBuf;

use braid_base::ids::{DomainId, DriveId, FsId, Guid, HostId, PartitionId, StoreId, Term, Vp};
use braid_base::store::StoreSpec;
use serde::{Deserialize, Serialize};

use crate::records::Record;

/// The feature level this code writes; a cluster of a higher one is refused.
pub const FEATURE_LEVEL: u32 = 1;
/// Most data of one object, MiB: least, most, unless said otherwise.
pub const OBJECT_MIB: (u8, u8, u8) = (4, 64, 64);

/// What was fixed when the cluster was created, and its name.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Cluster {
    /// Its identity; every drive carries it.
    #[serde(with = "plain::guid")]
    pub guid: Guid,
    /// Its name, for people.
    pub name: String,
    /// When it was created, seconds since 1970.
    pub created_s: u64,
    /// Default coding of new packs.
    pub protection: Protection,
    /// Data part of one shard, bytes.
    pub shard_bytes: u64,
    /// Number of partitions of the namespace.
    pub partitions: u16,
    /// What software may take part.
    pub feature_level: u32,
    /// Replicas of each partition; 1 on a machine that is alone.
    #[serde(default = "one")]
    pub copies: u8,
    /// What clients must know, if they come over the network.
    #[serde(default)]
    pub client_secret: String,
    /// What hosts must know.
    #[serde(default)]
    pub host_secret: String,
    /// Who issues certificates to its hosts, sealed, in base 64; empty: hosts and clients talk in clear.
    #[serde(default)]
    pub authority: String,
}

fn one() -> u8 {
    1
}

/// Data and parity shards of a pack, shown as `4+2`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Protection {
    /// Data shards, 1..16.
    pub data: u8,
    /// Parity shards, 0..4: how many drives may be lost.
    pub parity: u8,
}

impl Protection {
    /// Drives that a pack needs.
    pub fn width(self) -> usize {
        usize::from(self.data) + usize::from(self.parity)
    }
}

impl fmt::Display for Protection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}+{}", self.data, self.parity)
    }
}

/// A host.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Host {
    /// Its number.
    #[serde(with = "plain::host")]
    pub id: HostId,
    /// Its name in the network.
    pub name: String,
    /// When it joined, seconds since 1970.
    pub joined_s: u64,
    /// Where it listens, `IP:PORT`; none on a machine that is alone.
    #[serde(default)]
    pub addresses: Vec<String>,
    /// What fails together with it; its own name if nothing was said.
    #[serde(default)]
    pub domain: String,
    /// Where it stands.
    #[serde(default)]
    pub state: HostState,
}

/// Where a host stands. Whether its process runs is another matter: see [`Live`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum HostState {
    /// Takes part.
    #[default]
    Active,
    /// What it holds moves away, for good.
    Draining,
    /// Has been away for long: others hold what it should hold.
    Failed,
    /// No part of the cluster any more.
    Removed,
}

impl HostState {
    /// The word for tables and JSON.
    pub fn word(self) -> &'static str {
        match self {
            Self::Active => "active",
            Self::Draining => "draining",
            Self::Failed => "failed",
            Self::Removed => "removed",
        }
    }
}

/// A host that offers itself to a cluster, or waits to be taken into one; there as long as its process.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Candidate {
    /// Its name in the network.
    pub name: String,
    /// Where it listens.
    pub addresses: Vec<String>,
    /// What fails together with it.
    pub domain: String,
    /// The drives that it brings, blank, as absolute paths.
    pub drives: Vec<Offer>,
}

/// A drive that a host brings.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Offer {
    /// File or device.
    pub path: PathBuf,
    /// Size, bytes.
    pub size_bytes: u64,
}

/// A host's process runs; there as long as it does.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Live {
    /// The host.
    #[serde(with = "plain::host")]
    pub host: HostId,
    /// Since when, seconds since 1970.
    pub since_s: u64,
}

/// The hosts that a partition should have replicas on.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Seats {
    /// The partition.
    #[serde(with = "plain::partition")]
    pub partition: PartitionId,
    /// The hosts, by number.
    pub hosts: Vec<u32>,
}

/// The store that a host has for a partition: durable there before it is written here.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Store {
    /// The partition.
    #[serde(with = "plain::partition")]
    pub partition: PartitionId,
    /// The host.
    #[serde(with = "plain::host")]
    pub host: HostId,
    /// Its identity.
    #[serde(with = "plain::guid")]
    pub store: Guid,
}

/// A drive.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Drive {
    /// Its number.
    #[serde(with = "plain::drive")]
    pub id: DriveId,
    /// The identity in its superblock.
    #[serde(with = "plain::guid")]
    pub uuid: Guid,
    /// The host it is attached to.
    #[serde(with = "plain::host")]
    pub host: HostId,
    /// File or device on that host.
    pub path: PathBuf,
    /// Size, bytes.
    pub size_bytes: u64,
    /// What fails together with it.
    #[serde(with = "plain::domain")]
    pub domain: DomainId,
    /// Where it stands.
    pub state: DriveState,
    /// It never comes back, somebody said: what only it has is lost. Written only if so.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub abandoned: bool,
}

/// Where a drive stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum DriveState {
    /// Known but perhaps not formatted yet: holds nothing.
    Adding,
    /// Holds shards and takes new ones.
    Active,
    /// Holds shards that move away.
    Draining,
    /// Lost: its shards are rebuilt elsewhere.
    Failed,
    /// No part of the cluster any more.
    Removed,
}

impl DriveState {
    /// The word for tables and JSON.
    pub fn word(self) -> &'static str {
        match self {
            Self::Adding => "adding",
            Self::Active => "active",
            Self::Draining => "draining",
            Self::Failed => "failed",
            Self::Removed => "removed",
        }
    }
}

/// The configuration of a partition: C = (term, primary, members) of the replication protocol.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Partition {
    /// Its number.
    #[serde(with = "plain::partition")]
    pub id: PartitionId,
    /// +1 with every change of this record.
    #[serde(with = "plain::term")]
    pub term: Term,
    /// Who serves it, if anybody does.
    #[serde(with = "plain::host_maybe")]
    pub primary: Option<HostId>,
    /// Whose copies hold every committed entry.
    pub members: Vec<Member>,
    /// Whose copies are still being filled.
    #[serde(default)]
    pub learners: Vec<Member>,
}

/// One copy of a partition.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Member {
    /// Where it is.
    #[serde(with = "plain::host")]
    pub host: HostId,
    /// The identity of its directory; a copy that lost data gets a new one.
    #[serde(with = "plain::guid")]
    pub store: Guid,
}

/// A file system.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Filesystem {
    /// Its number.
    #[serde(with = "plain::fs")]
    pub id: FsId,
    /// Its identity.
    #[serde(with = "plain::guid")]
    pub uuid: Guid,
    /// Its name, unique.
    pub name: String,
    /// The group whose tiering rules it follows.
    pub group: String,
    /// Most bytes it may hold; none: as many as the cluster has.
    pub total_bytes: Option<u64>,
    /// Where its root directory lives (its home).
    #[serde(with = "plain::vp")]
    pub root_vp: Vp,
    /// When it was created, seconds since 1970.
    pub created_s: u64,
    /// True while it is being removed: no new mounts.
    #[serde(default)]
    pub removing: bool,
    /// Most bytes of it that lie on flash; none: all that it may hold. The rest is in object stores only.
    #[serde(default)]
    pub ssd_bytes: Option<u64>,
    /// Most data of one object, MiB.
    #[serde(default = "object_mib")]
    pub object_mib: u8,
    /// The object stores that hold its cold data: one that is written at most, and one that is only read.
    #[serde(default)]
    pub stores: Vec<Attachment>,
}

fn object_mib() -> u8 {
    OBJECT_MIB.2
}

/// An object store in the service of a file system.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Attachment {
    /// The store.
    #[serde(with = "plain::store")]
    pub store: StoreId,
    /// Whether new objects go there. Not while it is being detached, whatever this says.
    pub mode: Mode,
    /// True while what lies there is fetched back or brought elsewhere, so that it can be forgotten.
    #[serde(default)]
    pub detaching: bool,
    /// Since when, seconds since 1970.
    pub attached_s: u64,
    /// It is only read because another one was attached: when that one leaves, new objects go there again.
    #[serde(default)]
    pub yielded: bool,
    /// While it is being detached: what the store does not remove is left there.
    #[serde(default)]
    pub give_up: bool,
}

/// What a file system does with an object store.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Mode {
    /// New objects go there.
    #[default]
    Writable,
    /// What is there is read, and removed when it is not needed any more.
    ReadOnly,
}

impl Mode {
    /// The word for tables and messages.
    pub fn word(self) -> &'static str {
        match self {
            Self::Writable => "writable",
            Self::ReadOnly => "read-only",
        }
    }
}

/// A place for objects that all hosts can reach.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ObjectStore {
    /// Its number.
    #[serde(with = "plain::store")]
    pub id: StoreId,
    /// Its name, unique.
    pub name: String,
    /// Where it is and how it is used, its secrets included.
    pub spec: StoreSpec,
}

/// A group of file systems with the same tiering rules.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Group {
    /// Its name, unique.
    pub name: String,
    /// How long data should stay on flash after its last use, seconds.
    pub target_ssd_retention_s: u64,
    /// How long after a write data is copied to the object store, seconds.
    pub start_demote_s: u64,
}

/// What the administrator set for the whole cluster; there is no record before anything was.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Settings {
    /// Bytes of shards per second that each host makes anew, at most; none: as many as it can.
    pub rebuild_bytes_per_s: Option<u64>,
    /// Bytes per second that a drive is read with to check what lies there, at most; 0: only what may have lost data is; none:
    /// [`SCRUB_BYTES_PER_S`](braid_base::limits::SCRUB_BYTES_PER_S).
    pub scrub_bytes_per_s: Option<u64>,
    /// Failure domains whose room is kept free, so that what fails can be made anew.
    pub spares: u16,
}

/// How often etcd was recovered, and by which recovery last: no record, never. Revisions are compared within one only.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Incarnation {
    /// +1 with each recovery.
    pub number: u64,
    /// The recovery's own identity, by chance.
    #[serde(with = "plain::guid")]
    pub by: Guid,
}

/// Nothing of the cluster may be changed: what etcd holds is older than what somebody has seen of it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Fence {
    /// What was seen.
    pub reason: String,
    /// Who saw it: the name of a host.
    pub by: String,
}

macro_rules! record {
    ($($type:ident $prefix:literal $this:ident => $key:expr;)*) => { $(
        impl Record for $type {
            const PREFIX: &'static str = $prefix;
            const VERSION: u64 = 1;

            fn key(&self) -> String {
                let $this = self;
                $key
            }
        }
    )* };
}
record! {
    Cluster "cluster" _this => Cluster::KEY.to_owned();
    Host "host/" this => Host::key_of(this.id);
    Drive "drive/" this => Drive::key_of(this.id);
    Candidate "candidate/" this => Candidate::key_of(&this.name);
    Live "live/" this => Live::key_of(this.host);
    Seats "seats/" this => Seats::key_of(this.partition);
    Store "store/" this => Store::key_of(this.partition, this.host);
    Partition "partition/" this => Partition::key_of(this.id);
    Filesystem "fs/" this => Filesystem::key_of(this.id);
    Group "group/" this => Group::key_of(&this.name);
    ObjectStore "object-store/" this => ObjectStore::key_of(this.id);
    Settings "settings" _this => Settings::KEY.to_owned();
    Incarnation "incarnation" _this => Incarnation::KEY.to_owned();
    Fence "fence" _this => Fence::KEY.to_owned();
}

impl Incarnation {
    /// The key of the one record.
    pub const KEY: &'static str = "incarnation";
}

impl Fence {
    /// The key of the one record.
    pub const KEY: &'static str = "fence";
}

impl Cluster {
    /// The key of the one cluster record.
    pub const KEY: &'static str = "cluster";
}

impl Settings {
    /// The key of the one record of settings.
    pub const KEY: &'static str = "settings";
}

impl Host {
    /// The key of host `id`. Numbers are padded so that keys sort as numbers do.
    pub fn key_of(id: HostId) -> String {
        format!("host/{:010}", id.0)
    }
}

impl Candidate {
    /// The key of the candidate called `name`.
    pub fn key_of(name: &str) -> String {
        format!("candidate/{name}")
    }
}

impl Live {
    /// The key of the process of host `id`.
    pub fn key_of(id: HostId) -> String {
        format!("live/{:010}", id.0)
    }
}

impl Seats {
    /// The key of the seats of partition `id`.
    pub fn key_of(id: PartitionId) -> String {
        format!("seats/{:05}", id.0)
    }
}

impl Store {
    /// The key of the store of partition `id` on `host`.
    pub fn key_of(id: PartitionId, host: HostId) -> String {
        format!("store/{:05}/{:010}", id.0, host.0)
    }
}

impl Drive {
    /// The key of drive `id`.
    pub fn key_of(id: DriveId) -> String {
        format!("drive/{:010}", id.0)
    }
}

impl Partition {
    /// The key of partition `id`.
    pub fn key_of(id: PartitionId) -> String {
        format!("partition/{:05}", id.0)
    }
}

impl Filesystem {
    /// The key of file system `id`.
    pub fn key_of(id: FsId) -> String {
        format!("fs/{:010}", id.0)
    }

    /// The key that reserves `name`.
    pub fn name_key(name: &str) -> String {
        format!("fs-name/{name}")
    }

    /// Bytes that it may hold in a cluster with room for `capacity_bytes`: what is in object stores needs none of that.
    /// `u64::MAX`: there is no bound.
    pub fn room_bytes(&self, capacity_bytes: u64) -> u64 {
        if self.writable().is_some() && self.total_bytes.is_none() {
            return u64::MAX;
        }
        let limit = self.total_bytes.unwrap_or(capacity_bytes);
        if self.stores.is_empty() { limit.min(capacity_bytes) } else { limit }
    }

    /// The attachment of `store`, if there is one.
    pub fn attachment(&self, store: StoreId) -> Option<&Attachment> {
        self.stores.iter().find(|attachment| attachment.store == store)
    }

    /// The store that new objects go to, if there is one.
    pub fn writable(&self) -> Option<StoreId> {
        let takes = |attachment: &&Attachment| attachment.mode == Mode::Writable && !attachment.detaching;
        self.stores.iter().find(takes).map(|attachment| attachment.store)
    }
}

impl ObjectStore {
    /// The key of object store `id`.
    pub fn key_of(id: StoreId) -> String {
        format!("object-store/{:010}", id.0)
    }

    /// The key that reserves `name`.
    pub fn name_key(name: &str) -> String {
        format!("object-store-name/{name}")
    }
}

impl Group {
    /// The key of group `name`.
    pub fn key_of(name: &str) -> String {
        format!("group/{name}")
    }
}
