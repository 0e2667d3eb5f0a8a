//! Anybody <-> host: where everything is, how its partitions are, a new client.

use std::collections::BTreeMap;

use crate::error::{Error, Result};
use crate::ids::{BlobId, ClientId, DriveId, FsId, Guid, HostId, Ino, PartitionId, StoreId, Term};
use crate::msg::event::{Event, EventFilter};

/// Where everything is, as of one moment. A hint: who is asked in vain says so, and a newer map tells why.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Map {
    /// Revision of the coordinator at which it was read: of two maps the one with the higher one is newer.
    pub version: u64,
    /// Hosts, ordered by number, each with the addresses `IP:PORT` at which it listens.
    pub hosts: Vec<(HostId, Vec<String>)>,
    /// The primary of each partition, in order, as far as there is one.
    pub primaries: Vec<Option<HostId>>,
    /// The host of each drive, ordered by number.
    pub drives: Vec<(DriveId, HostId)>,
}

impl Map {
    /// Who serves `p`, if anybody does.
    pub fn primary(&self, p: PartitionId) -> Option<HostId> {
        self.primaries.get(usize::from(p.0)).copied().flatten()
    }

    /// Where `drive` is, if it is anywhere.
    pub fn host_of(&self, drive: DriveId) -> Option<HostId> {
        let at = self.drives.binary_search_by_key(&drive, |(drive, _)| *drive).ok()?;
        Some(self.drives[at].1)
    }
}

/// What a host is asked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum HostOp {
    /// Where is everything?
    Map,
    /// How are the replicas that you run?
    Seats,
    /// I want to mount this file system.
    Attach {
        /// Its name.
        filesystem: String,
    },
    /// The mounts of clients that are connected to you.
    Mounts,
    /// The parts of files that cannot be read, in partitions that you serve.
    Lost,
    /// What does your clock show?
    Clock,
    /// What have you kept of the coordinator, and what have your replicas seen?
    Recall,
    /// Which of the object stores can you reach?
    Stores {
        /// Ask them first, for a moment.
        look: bool,
    },
    /// What do you do at this object store, and what did you do last?
    StoreOps {
        /// The store.
        store: StoreId,
    },
    /// Which events have you kept?
    Events {
        /// Those that are wanted.
        filter: EventFilter,
    },
    /// Which objects has a partition that you serve in this object store?
    Objects {
        /// The partition.
        partition: PartitionId,
        /// The store.
        store: StoreId,
        /// Only those behind this one; none: from the first on.
        after: Option<BlobId>,
        /// At most so many, and no more than [`OBJECTS_MAX`](crate::limits::OBJECTS_MAX).
        limit: u32,
    },
    /// What is it with these objects of a partition that you serve? Those that should be there are looked for.
    Judge {
        /// The partition.
        partition: PartitionId,
        /// The store.
        store: StoreId,
        /// At most [`JUDGED_MAX`](crate::limits::JUDGED_MAX).
        keys: Vec<(BlobId, Term)>,
    },
    /// Ask etcd this for me, which cannot reach it. Of hosts only.
    Coordinator {
        /// Below `/v3/`.
        path: String,
        /// In JSON, in etcd's words.
        body: String,
    },
    /// Which drives of the cluster do not answer you, or fail?
    Absent,
    /// Whom do you reach only by way of others?
    Ways,
}

/// What a host answers.
#[derive(Clone, Debug, PartialEq)]
pub enum HostReply {
    /// As far as it knows.
    Map(Map),
    /// Ordered by partition.
    Seats(Vec<SeatReport>),
    /// A client that was never there before.
    Attached(Attached),
    /// Ordered by client.
    Mounts(Vec<Who>),
    /// Of the partitions that the host serves.
    Lost(LostParts),
    /// Milliseconds since 1970.
    Clock(u64),
    /// In JSON, as `docs/formats.md` says.
    Recalled(String),
    /// Ordered by number.
    Stores(Vec<StoreReport>),
    /// Those under way, the oldest first; then those that have ended, the newest first, not all.
    StoreOps(Vec<StoreOp>),
    /// As many as were wanted, in the order that was asked for.
    Events(Vec<Event>),
    /// Ordered by object.
    Objects(ObjectsPage),
    /// One for each that was asked for, in that order.
    Judged(Vec<Verdict>),
    /// What etcd says, in JSON; or what became of the question. `Io`: etcd has not taken it.
    Coordinator(Result<String>),
    /// Ordered by number.
    Absent(Vec<DriveId>),
    /// As far as it knows now.
    Ways(Ways),
}

/// The answer of a host.
pub type HostResult = Result<HostReply>;

/// What a new client needs to know.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Attached {
    /// The cluster.
    pub cluster: Guid,
    /// Its number.
    pub client: ClientId,
    /// The file system.
    pub fs: FsId,
    /// Its root directory.
    pub root: Ino,
    /// Bytes that it may hold.
    pub total_bytes: u64,
}

/// A client, as it describes itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Who {
    /// Its identity.
    pub client: ClientId,
    /// Its process.
    pub pid: u32,
    /// The file system it has mounted.
    pub fs: FsId,
    /// Its name.
    pub filesystem: String,
    /// Where.
    pub point: String,
    /// Since when, seconds since 1970.
    pub since_s: u64,
}

/// What a replica says of itself.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct SeatReport {
    /// The partition.
    pub partition: PartitionId,
    /// The term in which it is served here; 0: it follows.
    pub term: Term,
    /// Index of the last log entry that was applied.
    pub applied: u64,
    /// Bytes of log segments on disk.
    pub log_bytes: u64,
    /// Those of them that a flush of the view would make void.
    pub replay_bytes: u64,
    /// What it holds, if it is served here.
    pub data: SeatData,
    /// Why it is out of service, if so.
    pub failed: Option<Error>,
    /// Why changes of file data wait, if they do (what needs no log entry goes on); of one that follows, why it should not
    /// lead.
    pub waits: Option<Error>,
}

/// What a partition holds.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SeatData {
    /// Bytes of file data.
    pub used_bytes: u64,
    /// The same by file system.
    pub used_by_fs: BTreeMap<FsId, u64>,
    /// Bytes of small writes that wait in the log to be moved to packs.
    pub staged_bytes: u64,
    /// Shards by drive, on all that it knows to have failed or to be emptied: they are to be made anew elsewhere.
    pub leaving: BTreeMap<DriveId, u64>,
    /// Packs have several shards in one failure domain, because there are too few domains.
    pub forced: bool,
    /// Packs that lie closer together than they should: shards that fail together, although there are domains enough.
    pub close: u64,
    /// What is done to keep data whole.
    pub healing: Healing,
    /// Bytes of file data on flash, by file system, with what was overwritten or cut and is not collected yet.
    pub flash_by_fs: BTreeMap<FsId, u64>,
    /// What lies in object stores, by file system and store.
    pub stored: BTreeMap<(FsId, StoreId), Stored>,
    /// Writes that wait for room, in the log or on flash.
    pub held_writes: u64,
    /// Objects that are missing or damaged, and have the only copy of parts of files.
    pub damaged_objects: u64,
    /// What moves between flash and object stores, by file system.
    pub tiering: BTreeMap<FsId, Tiering>,
}

impl SeatData {
    /// Bytes of file data that take room on drives, or will when they leave the log: without what only object stores have.
    pub fn on_drives(&self) -> u64 {
        let flash = |fs| self.flash_by_fs.get(fs).copied().unwrap_or(0);
        let packed: u64 = self.used_by_fs.iter().map(|(fs, used)| flash(fs).min(*used)).sum();
        (packed + self.staged_bytes).min(self.used_bytes)
    }
}

/// The capacity tier of a file system in one partition.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tiering {
    /// Bytes that take room on flash, with those that will when they leave the log.
    pub flash: u64,
    /// Flash is short: data leaves it before its time, nothing comes back.
    pub short: bool,
    /// Writes that wait for room on flash.
    pub waiting: u64,
    /// Bytes that are due to go into an object, as far as they are known.
    pub due: u64,
    /// From when the oldest of them counts, seconds since 1970; none: nothing is due by its age.
    pub due_s: Option<u32>,
    /// What has moved.
    pub moved: Moved,
}

/// What has moved since a partition is served where it is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Moved {
    /// Bytes of files that were put into objects.
    pub demoted: u64,
    /// Bytes of files whose place on flash was given up, because they are in objects.
    pub released: u64,
    /// Bytes of files that came back to flash.
    pub fetched: u64,
    /// Bytes of files that went from objects with holes into new ones, or into another store.
    pub rewritten: u64,
    /// Bytes of objects that were removed.
    pub reclaimed: u64,
    /// Reads of clients that needed an object.
    pub cold_reads: u64,
    /// Bytes that these asked for.
    pub cold_bytes: u64,
}

/// What the objects of a file system hold in a store.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stored {
    /// Objects, with those that are on their way there and away.
    pub objects: u64,
    /// Bytes of data in those that are whole.
    pub bytes: u64,
    /// Bytes of files in it, without what fills their blocks up.
    pub held: u64,
    /// Bytes of these that are in use.
    pub live: u64,
}

/// What a partition does to keep data whole, and what it cannot. Sums are those since it is served where it is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Healing {
    /// A pass over all packs is under way.
    pub scrub_runs: bool,
    /// Packs that were checked in this pass, or in the last one.
    pub scrub_done: u64,
    /// Packs to check in it.
    pub scrub_packs: u64,
    /// Passes that have ended: all of their packs were checked.
    pub passes: u64,
    /// Bytes read to check them.
    pub scrubbed_bytes: u64,
    /// Shards with damage that the others make up for, to be made whole.
    pub damaged: u64,
    /// Shards that were made whole.
    pub mended: u64,
    /// Committed blocks that match their checksums in all shards, but not each other, as often as they were met.
    pub odd: u64,
    /// Packs with data that cannot be read now: too few shards are left.
    pub beyond: u64,
    /// Bytes of shards made anew because a drive leaves.
    pub rebuilt_bytes: u64,
    /// The same per second, during the last minute in which there was anything to make.
    pub rebuild_bytes_per_s: u64,
    /// Bytes of shards to be moved until drives are evenly full, of all partitions; 0: they are, or cannot be more so.
    pub uneven_bytes: u64,
    /// Bytes of shards moved for that.
    pub balanced_bytes: u64,
    /// The same per second, during the last minute in which there was anything to move.
    pub balance_bytes_per_s: u64,
}

/// An object store, as a host sees it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StoreReport {
    /// The store.
    pub store: StoreId,
    /// Can objects be put there?
    pub upload: LinkReport,
    /// Can they be read?
    pub download: LinkReport,
    /// Can they be removed?
    pub remove: LinkReport,
    /// It takes no uploads because it is full.
    pub full: bool,
}

/// One direction of traffic between a host and an object store.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LinkReport {
    /// Do requests succeed? None: the host has tried nothing, or nothing for long since they failed.
    pub up: Option<bool>,
    /// Since when, seconds since 1970.
    pub since_s: u64,
    /// Why the last attempt that failed did so.
    pub last_error: Option<String>,
}

/// An operation of a host at an object store, with all its attempts.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StoreOp {
    /// Counts up while the process of the host runs.
    pub id: u64,
    /// The key of the object, or what the keys of a listing begin with.
    pub key: String,
    /// What it does, in one word of capitals.
    pub kind: String,
    /// How long it took, or has taken until now, milliseconds.
    pub took_ms: u64,
    /// It is still under way.
    pub ongoing: bool,
    /// How long the last finished attempt took, milliseconds.
    pub previous_ms: Option<u64>,
    /// When it began, milliseconds since 1970.
    pub started_ms: u64,
    /// Bytes that it moves.
    pub size: u64,
    /// How its attempts ended, and how many so, in one line.
    pub results: String,
    /// Attempts to which no answer came.
    pub line_errors: u32,
    /// The last answer that was no success.
    pub last_http_error: Option<String>,
    /// Operations of its kind that were under way when it began, itself included.
    pub concurrency: u32,
    /// The file that it is done for, if it is for one.
    pub inode: Option<u64>,
}

/// Whom a host reaches only by way of others.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Ways {
    /// Hosts that others relay to.
    pub relayed: Vec<HostId>,
    /// Others ask etcd for it.
    pub etcd_by_others: bool,
}

/// What partitions say that cannot be read.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LostParts {
    /// Those that say it.
    pub partitions: Vec<PartitionId>,
    /// In order.
    pub parts: Vec<Lost>,
    /// There is more than that.
    pub more: bool,
    /// Packs that may have lost data, and of which it is not known yet what.
    pub unchecked: u64,
}

impl LostParts {
    /// What other partitions say, too.
    pub fn add(&mut self, other: Self) {
        self.partitions.extend(other.partitions);
        self.parts.extend(other.parts);
        self.more |= other.more;
        self.unchecked += other.unchecked;
        self.parts.sort_unstable();
        self.parts.dedup();
    }
}

/// A part of a file that cannot be read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Lost {
    /// The file system.
    pub fs: FsId,
    /// The file.
    pub ino: Ino,
    /// First byte of it.
    pub off: u64,
    /// Bytes.
    pub len: u64,
    /// The object that has their only copy; none: they are on flash, and too few shards are left.
    pub object: Option<LostObject>,
}

/// An object that is missing, or damaged somewhere.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct LostObject {
    /// Its store.
    pub store: StoreId,
    /// The object.
    pub blob: BlobId,
    /// The term in which it was sent, which is part of its key.
    pub term: Term,
    /// The store has none of this key; else what it has is not what was put there.
    pub missing: bool,
    /// Since when that is known, seconds since 1970.
    pub since_s: u64,
}

/// Some of the objects that a partition has in a store.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ObjectsPage {
    /// Ordered by number.
    pub objects: Vec<ObjectSeen>,
    /// There are others behind the last one.
    pub more: bool,
}

/// An object, as its partition knows it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct ObjectSeen {
    /// The object.
    pub blob: BlobId,
    /// The term in which it was sent, which is part of its key.
    pub term: Term,
    /// Bytes of its data.
    pub size: u32,
    /// It is to be there; else it is on its way there, or to be removed.
    pub present: bool,
}

/// What is with an object, as its partition says, and its store of one that should be there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// The partition knows none of this key, and never will again.
    Unknown,
    /// Its number or term is beyond what the partition knows: the metadata may be older than the object.
    Ahead,
    /// The partition has it in another object store.
    Elsewhere,
    /// It is on its way to the store, or to be removed.
    Passing,
    /// It is there, with as many bytes as it should have.
    Whole,
    /// It is not there, although it should be.
    Missing,
    /// It is there, with another number of bytes.
    WrongSize {
        /// Bytes that the store has of it.
        found: u64,
        /// Bytes that it should have.
        expected: u64,
    },
    /// It should be there, and the store does not say.
    Unsure,
}

#[cfg(test)]
mod tests {
    use super::{Map, SeatData};
    use crate::ids::{DriveId, FsId, HostId, PartitionId};

    #[test]
    fn what_only_object_stores_have_takes_no_room_on_drives() {
        let (plain, tiered) = (FsId(1), FsId(2));
        let data = SeatData {
            used_bytes: 1_100,
            used_by_fs: [(plain, 100), (tiered, 1_000)].into(),
            // Of the first one much was overwritten, and is collected when room is short.
            flash_by_fs: [(plain, 500), (tiered, 30)].into(),
            staged_bytes: 7,
            ..SeatData::default()
        };
        assert_eq!(data.on_drives(), 100 + 30 + 7);
        assert_eq!(
            SeatData { staged_bytes: 5_000, ..data }.on_drives(),
            1_100,
            "of what is staged much may be garbage"
        );
    }

    #[test]
    fn a_map_says_where_things_are() {
        let map = Map {
            version: 1,
            hosts: Vec::new(),
            primaries: vec![Some(HostId(2)), None],
            drives: vec![(DriveId(1), HostId(4)), (DriveId(7), HostId(2))],
        };
        let primary = |p| map.primary(PartitionId(p));
        assert_eq!((primary(0), primary(1), primary(2)), (Some(HostId(2)), None, None));
        let host = |drive| map.host_of(DriveId(drive));
        assert_eq!((host(1), host(7), host(2)), (Some(HostId(4)), Some(HostId(2)), None));
    }
}
