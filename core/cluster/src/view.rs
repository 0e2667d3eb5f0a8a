//! What an administrator sees and asks for, as plain data: filled by the host, carried by the admin door, printed
//! by the command line. Sizes are bytes, durations seconds, times seconds since 1970.

use serde::{Deserialize, Serialize};

macro_rules! views {
    ($($(#[$meta:meta])* pub struct $name:ident { $($fields:tt)* })*) => { $(
        #[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
        #[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
        $(#[$meta])*
        pub struct $name { $($fields)* }
    )* };
}

pub mod events;
pub mod stores;

use stores::AttachmentView;

views! {
    /// The cluster at a glance.
    pub struct Status {
        /// `ok`, `degraded` or `unavailable`.
        pub state: State,
        /// One sentence per thing that is wrong; names drives and partitions.
        pub problems: Vec<String>,
        /// Name of the cluster.
        pub name: String,
        /// Identity of the cluster.
        pub guid: String,
        /// Version of the software that answers.
        pub version: String,
        /// Process that runs everything (one-process mode).
        pub pid: u32,
        /// How long that process has run, seconds.
        pub uptime_s: u64,
        /// Default coding, such as `4+2`.
        pub protection: String,
        /// Packs of which several shards fail together, although there are failure domains enough: they are moved apart.
        #[serde(default)]
        pub close_packs: u64,
        /// Data part of one shard, bytes.
        pub shard_bytes: u64,
        /// The hosts.
        #[serde(default)]
        pub hosts: Vec<HostView>,
        /// The drives.
        pub drives: Vec<DriveView>,
        /// The partitions.
        pub partitions: Vec<PartitionView>,
        /// What is done to keep data whole.
        #[serde(default)]
        pub healing: HealingView,
        /// Room for data.
        pub capacity: Capacity,
        /// Number of file systems.
        pub filesystems: u64,
        /// The mounts.
        pub mounts: Vec<MountView>,
    }

    /// What is done to keep data whole, and what cannot be. Sums are those since partitions are served where they are.
    #[derive(Default)]
    pub struct HealingView {
        /// All data is being read and checked.
        pub scrub_running: bool,
        /// Packs that were checked in this pass over all of them, or in the last one.
        pub scrub_packs_done: u64,
        /// Packs to check in it.
        pub scrub_packs: u64,
        /// Passes over all packs that each partition has ended; 0 while one does not answer.
        pub scrub_passes: u64,
        /// Bytes read to check them.
        pub scrubbed_bytes: u64,
        /// Shards with damage that is known and not made good yet.
        pub damaged_shards: u64,
        /// Shards whose damage was made good.
        pub mended_shards: u64,
        /// Blocks that match their checksums, but not the others of their row, as often as they were met.
        pub mismatched_blocks: u64,
        /// Packs with data that cannot be read, because too few of their shards are left: see `/lost`.
        pub lost_packs: u64,
        /// Bytes to be made anew elsewhere because drives failed or are to be emptied.
        pub rebuild_bytes_left: u64,
        /// Bytes made anew per second, during the last minute.
        pub rebuild_bytes_per_s: u64,
        /// When that is done, seconds from now; none: nothing is left, or nothing moves.
        pub rebuild_eta_s: Option<u64>,
        /// Bytes to be moved until all drives are evenly full; 0 if they are, or cannot be more so.
        #[serde(default)]
        pub rebalance_bytes_left: u64,
        /// Bytes moved for that.
        #[serde(default)]
        pub rebalanced_bytes: u64,
        /// The same per second, during the last minute.
        #[serde(default)]
        pub rebalance_bytes_per_s: u64,
        /// When that is done, seconds from now; none: nothing is left, or nothing moves.
        #[serde(default)]
        pub rebalance_eta_s: Option<u64>,
    }

    /// What was set for the whole cluster.
    pub struct SettingsView {
        /// Bytes of shards per second that each host makes anew, at most; none: as many as it can.
        pub rebuild_bytes_per_s: Option<u64>,
        /// Bytes per second that a drive is read with to check what lies there, at most; 0: only what may have lost data is.
        pub scrubber_bytes_per_s: u64,
        /// Failure domains whose room is kept free.
        pub hot_spares: u16,
    }

    /// What to change of it; what is not named stays.
    #[derive(Default)]
    #[serde(default, deny_unknown_fields)]
    pub struct SettingsChange {
        /// Bytes of shards per second that each host makes anew, at most; 0: as many as it can.
        pub rebuild_bytes_per_s: Option<u64>,
        /// Bytes per second that a drive is read with to check what lies there, at most; 0: only what may have lost data is.
        pub scrubber_bytes_per_s: Option<u64>,
        /// Failure domains whose room is kept free.
        pub hot_spares: Option<u16>,
        /// More may be stored already than has room then.
        pub skip_resource_validation: bool,
    }

    /// The parts of files that cannot be read.
    pub struct LostList {
        /// Those that are known; of very many not all.
        pub parts: Vec<LostView>,
        /// There are more.
        pub more: bool,
        /// Partitions that do not say what of theirs is lost: they do not serve, or did not answer in time.
        pub silent_partitions: Vec<u16>,
        /// Packs that may have lost data and were not checked yet: what of theirs is lost is not among the parts.
        pub unchecked_packs: u64,
    }

    /// A part of a file that cannot be read.
    pub struct LostView {
        /// File system.
        pub filesystem: String,
        /// Inode of the file, as `stat` shows it: `find MOUNT -inum N` tells its path.
        pub inode: u64,
        /// First byte.
        pub offset: u64,
        /// Bytes.
        pub bytes: u64,
        /// Why: `too few shards`, `object missing` or `object damaged`.
        #[serde(default)]
        pub why: String,
        /// The object store that has their only copy; none: they are on flash.
        #[serde(default)]
        pub store: Option<String>,
        /// The key of their object there.
        #[serde(default)]
        pub object: Option<String>,
        /// Since when that is known of the object, seconds since 1970.
        #[serde(default)]
        pub since_s: Option<u64>,
    }

    /// Room for data, bytes.
    pub struct Capacity {
        /// Sum of the drives.
        pub raw_bytes: u64,
        /// Failure domains whose room is kept free.
        #[serde(default)]
        pub hot_spares: u16,
        /// What users can store: raw less spares, parity and reserve.
        pub net_bytes: u64,
        /// What users have stored, before parity.
        pub used_bytes: u64,
        /// Net less used.
        pub free_bytes: u64,
    }

    /// A host.
    pub struct HostView {
        /// Its number.
        pub id: u32,
        /// Its name in the network.
        pub name: String,
        /// Where it listens; nowhere if it is alone.
        pub addresses: Vec<String>,
        /// What fails together with it.
        pub failure_domain: String,
        /// `adding` (it was taken in, and prepares its drives), `up`, `down` (its process does not say that it lives),
        /// `failed` (it has been down for so long that others hold what it held), or `draining`.
        pub state: String,
        /// Number of its drives.
        pub drives: u64,
        /// Number of partitions that it serves.
        pub leads: u64,
        /// Number of partitions that it holds a full copy of.
        pub copies: u64,
        /// How far its clock is ahead of those of the others, milliseconds; negative: behind; none: it does not answer.
        #[serde(default)]
        pub clock_ahead_ms: Option<i64>,
    }

    /// A drive.
    pub struct DriveView {
        /// Its number.
        pub id: u32,
        /// Number of the host that it is attached to.
        #[serde(default)]
        pub host: u32,
        /// Its identity.
        pub uuid: String,
        /// File or device.
        pub path: String,
        /// Size, bytes.
        pub size_bytes: u64,
        /// Bytes taken by shards.
        pub used_bytes: u64,
        /// Failure domain.
        pub domain: u16,
        /// `adding`, `active`, `draining`, `failed`, `removed`; instead of `active` also `missing` when it does not
        /// answer, or `slow`, `failing` or `full` while new data goes to others for that reason.
        pub state: String,
        /// What is wrong with it, if anything.
        pub problem: Option<String>,
        /// Errors met on it since the process started.
        pub errors: u64,
        /// Shards that lie on it and are to be made anew elsewhere, because it failed or is to be emptied; none: it is
        /// neither, or not all partitions know that yet.
        #[serde(default)]
        pub leaving_shards: Option<u64>,
    }

    /// Hosts to take into the cluster.
    #[serde(deny_unknown_fields)]
    pub struct HostSpec {
        /// Their names.
        pub names: Vec<String>,
    }

    /// A drive to add to the host that is asked.
    #[serde(deny_unknown_fields)]
    pub struct DriveSpec {
        /// File or device, absolute; blank, unless a file is to be made.
        pub path: String,
        /// Size of the file to make there, bytes; none: what is there is used.
        pub size_bytes: Option<u64>,
    }

    /// A partition of the namespace.
    pub struct PartitionView {
        /// Its number.
        pub id: u16,
        /// Term of its configuration.
        pub term: u64,
        /// Number of the host that serves it.
        pub primary: Option<u32>,
        /// Hosts that hold a full copy.
        pub members: Vec<u32>,
        /// Hosts whose copy is being filled, or is to be.
        #[serde(default)]
        pub learners: Vec<u32>,
        /// How many hosts should hold a full copy; 0 if an older server did not say.
        #[serde(default)]
        pub copies: u64,
        /// `serving`, `waiting` (what is written waits for something, see `problem`), `recovering` or `stopped`.
        pub state: String,
        /// What is wrong with it, if anything.
        pub problem: Option<String>,
        /// Index of the last log entry that was applied.
        pub applied: u64,
        /// Bytes of small writes that wait in the log to be moved to packs.
        pub staged_bytes: u64,
        /// Bytes of its log on disk.
        pub log_bytes: u64,
    }

    /// A file system.
    pub struct FilesystemView {
        /// Its number.
        pub id: u32,
        /// Its identity.
        pub uuid: String,
        /// Its name.
        pub name: String,
        /// Its group.
        pub group: String,
        /// Bytes stored in it.
        pub used_bytes: u64,
        /// Most bytes it can hold: its limit, or what the cluster has room for.
        pub total_bytes: u64,
        /// True if `total_bytes` is a limit set for it.
        pub limited: bool,
        /// Number of files, directories and so on.
        pub inodes: u64,
        /// `ready` or `removing`.
        pub state: String,
        /// When it was created.
        pub created_s: u64,
        /// Most bytes of it that lie on flash; none: all that it may hold.
        #[serde(default)]
        pub ssd_bytes: Option<u64>,
        /// Most data of one object, MiB.
        #[serde(default)]
        pub object_mib: u8,
        /// The object stores that hold its cold data.
        #[serde(default)]
        pub stores: Vec<AttachmentView>,
        /// Bytes of it that take room on flash, with what was overwritten and is there still, and with what is in the log.
        #[serde(default)]
        pub flash_bytes: u64,
        /// Flash is short: data leaves it before its time, and nothing comes back.
        #[serde(default)]
        pub flash_short: bool,
        /// Writes that wait until there is room on flash.
        #[serde(default)]
        pub waiting_writes: u64,
        /// Bytes that are due to go into an object, as far as they are known.
        #[serde(default)]
        pub due_bytes: u64,
        /// From when the oldest of them counts; none: nothing is due by its age.
        #[serde(default)]
        pub due_since_s: Option<u64>,
    }

    /// A group of file systems.
    pub struct GroupView {
        /// Its name.
        pub name: String,
        /// Number of file systems in it.
        pub filesystems: u64,
        /// How long data should stay on flash after its last use, seconds.
        pub target_ssd_retention_s: u64,
        /// How long after a write data is copied to the object store, seconds.
        pub start_demote_s: u64,
    }

    /// A mount.
    pub struct MountView {
        /// Name of the file system.
        pub filesystem: String,
        /// Directory it is mounted on.
        pub path: String,
        /// Number of the client.
        pub client: u64,
        /// Since when.
        pub since_s: u64,
        /// The process that serves it; 0 if an older server did not say.
        #[serde(default)]
        pub pid: u32,
    }

    /// What a process that wants to mount by itself asks for.
    #[serde(deny_unknown_fields)]
    pub struct ClientSpec {
        /// Name of the file system.
        pub filesystem: String,
    }

    /// What such a process needs to know.
    pub struct ClientView {
        /// Its number as a client: new, and never used again.
        pub client: u64,
        /// Number of the file system.
        pub fs: u32,
        /// Number of its root directory.
        pub root: u64,
        /// Bytes that it may hold.
        pub total_bytes: u64,
        /// Identity of the cluster.
        pub cluster: String,
        /// The socket to speak to; empty in a cluster of several hosts.
        pub socket: String,
        /// Or where the host listens, `IP:PORT`.
        #[serde(default)]
        pub addresses: Vec<String>,
        /// What it wants to hear then.
        #[serde(default)]
        pub secret: String,
        /// The certificate of the cluster's authority, in PEM; empty: connections are not secured.
        #[serde(default)]
        pub ca: String,
    }

    /// A file system to add.
    #[derive(Default)]
    #[serde(deny_unknown_fields)]
    pub struct FsSpec {
        /// Its name: 1 to 32 characters without `/` and `\`.
        pub name: String,
        /// Its group; `default` if none is given.
        pub group: Option<String>,
        /// Most bytes it may hold; no limit if none is given.
        pub total_bytes: Option<u64>,
        /// Most bytes of it that lie on flash; all that it may hold if none is given.
        pub ssd_bytes: Option<u64>,
        /// Most data of one object, MiB: 4 to 64 (default 64).
        pub object_mib: Option<u8>,
        /// Name of the object store that takes its cold data, if one does from the beginning.
        pub store: Option<String>,
    }

    /// What to change of a file system; what is none stays.
    #[derive(Default)]
    #[serde(deny_unknown_fields)]
    pub struct FsChange {
        /// Its new name.
        pub new_name: Option<String>,
        /// Its new group.
        pub group: Option<String>,
        /// Its new limit, bytes; 0 takes the limit away.
        pub total_bytes: Option<u64>,
        /// Most bytes of it that lie on flash; 0: all that it may hold.
        pub ssd_bytes: Option<u64>,
        /// Most data of an object that is written from now on, 4 to 64 MiB.
        pub object_mib: Option<u8>,
    }

    /// A group to add; also what to change of one (what is none stays, or takes its default in a new one).
    #[serde(deny_unknown_fields)]
    pub struct GroupSpec {
        /// Its name.
        pub name: String,
        /// Its new name; only in a change.
        pub new_name: Option<String>,
        /// How long data should stay on flash after its last use, seconds (default 1 day).
        pub target_ssd_retention_s: Option<u64>,
        /// How long after a write data is copied to the object store, seconds (default 15 minutes, or a third of the former if that
        /// is less).
        pub start_demote_s: Option<u64>,
    }

    /// A mount to make.
    #[serde(deny_unknown_fields)]
    pub struct MountSpec {
        /// Name of the file system.
        pub filesystem: String,
        /// Directory to mount it on, absolute.
        pub path: String,
        /// Take the kernel's requests over io_uring where the host lets it be.
        #[serde(default)]
        pub io_uring: bool,
    }
}

impl DriveView {
    /// Are its shards out of reach?
    pub fn is_lost(&self) -> bool {
        matches!(self.state.as_str(), "failed" | "missing")
    }

    /// Does it get no new data for now?
    pub fn is_troubled(&self) -> bool {
        matches!(self.state.as_str(), "slow" | "failing" | "full")
    }
}

impl PartitionView {
    /// Does it answer requests?
    pub fn is_serving(&self) -> bool {
        self.state == "serving"
    }

    /// Do fewer hosts than should hold all of it?
    pub fn is_short(&self) -> bool {
        (self.members.len() as u64) < self.copies
    }
}

/// The state of a cluster in one word; `health` says which.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(rename_all = "lowercase")]
pub enum State {
    /// Everything works and everything is protected.
    Ok,
    /// All data can be read and written, but less protected than it should be: drives are lost or make errors.
    Degraded,
    /// Some data cannot be read or written.
    Unavailable,
}

impl State {
    /// The word for tables and JSON.
    pub fn word(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::Degraded => "degraded",
            Self::Unavailable => "unavailable",
        }
    }
}
