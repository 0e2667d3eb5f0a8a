//! What a starting seat finds outside: its files, and the partition's record in the coordinator.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use braid_base::ids::{Guid, HostId, Index, PartitionId};
use braid_base::limits::BLOCK;
use braid_base::{Error, ErrorKind, Result};
use braid_cluster::coordinator::Coordinator;
use braid_cluster::facts::{Member as RecordedMember, Partition};
use braid_cluster::records::{self, Stored};
use braid_io::clock;
use braid_io::file::{self, Create, File, OpenMode, ReadAt};
use braid_meta::Now;
use braid_replica::config::{Config, Member};
use braid_replica::log::meta_file::ReplicaMeta;
use braid_replica::log::{LogIdent, LogReader, Segment};
use bytes::Bytes;

use super::segments::SegmentDir;
use crate::seat::Outside;

/// Time for a step, read by the one who holds the seat, so that it does not go back.
pub(super) fn now() -> Now {
    let now = clock::now();
    Now { mono_ms: now.mono_ms, mono_us: now.mono_us, wall: now.wall }
}

/// The world of one seat while it starts.
pub(super) struct Files<'a> {
    pub(super) segments: &'a SegmentDir,
    pub(super) dir: PathBuf,
    pub(super) coordinator: Arc<dyn Coordinator>,
    pub(super) id: PartitionId,
}

impl LogReader for Files<'_> {
    fn segments(&self) -> Result<Vec<Segment>> {
        self.segments.reader().segments()
    }

    fn read(&self, segment: Segment, offset: u64, len: usize) -> Result<Vec<u8>> {
        self.segments.reader().read(segment, offset, len)
    }
}

impl Outside for Files<'_> {
    fn settle(&mut self) -> Result<()> {
        settle_meta(&self.dir)?;
        self.segments.settle()
    }

    fn read_meta(&self) -> Result<Vec<u8>> {
        read_meta(&self.dir)
    }

    fn write_meta(&mut self, off: u64, block: Bytes) -> Result<()> {
        write_meta(&self.dir, off, &block)
    }

    fn discard_log(&mut self) -> Result<()> {
        self.segments.discard()
    }

    fn config(&mut self) -> Result<Config> {
        register(self.coordinator.as_ref(), self.id, None)
    }

    fn compare_and_set(&mut self, expect: &Config, new: &Config) -> Result<Config> {
        register(self.coordinator.as_ref(), self.id, Some((expect, new)))
    }
}

/// Replaces the configuration of `p` if it still is the one expected, if that is asked for; then reads it.
pub(super) fn register(
    coordinator: &dyn Coordinator,
    p: PartitionId,
    cas: Option<(&Config, &Config)>,
) -> Result<Config> {
    let Stored { value, revision } = records::must::<Partition>(coordinator, &Partition::key_of(p))?;
    let found = config_of(&value);
    let Some((_, new)) = cas.filter(|(expect, _)| **expect == found) else { return Ok(found) };
    let next = Partition { primary: Some(new.primary.host), ..record_of(value.id, new) };
    match records::update(coordinator, revision, &next) {
        Ok(_) => return Ok(new.clone()),
        // Somebody was faster, or nobody knows: what it holds now tells.
        Err(error) if matches!(error.kind(), ErrorKind::Stale | ErrorKind::TimedOut) => {}
        Err(error) => return Err(error),
    }
    Ok(config_of(&records::must::<Partition>(coordinator, &Partition::key_of(p))?.value))
}

/// What the record of a partition says to its replicas.
pub(super) fn config_of(record: &Partition) -> Config {
    let list = |members: &[RecordedMember]| {
        members.iter().map(|m| Member { host: m.host, store: m.store }).collect::<Vec<_>>()
    };
    let members = list(&record.members);
    // Of two stores of a host the newer one comes later; the other one was lost.
    let primary = members.iter().rfind(|m| Some(m.host) == record.primary).copied().unwrap_or_default();
    Config { term: record.term, primary, members, learners: list(&record.learners) }
}

/// Which replica lives in `dir`: the one its `replica.meta` names, or, for a partition that never had a member, a
/// new one. `Refused` if the coordinator knows members and the directory is empty: it was lost or belongs elsewhere.
pub(super) fn identify(
    dir: &Path,
    coordinator: &dyn Coordinator,
    cluster: Guid,
    id: PartitionId,
    host: HostId,
) -> Result<Member> {
    file::make_dir(dir)?;
    let Stored { mut value, revision } = records::must::<Partition>(coordinator, &Partition::key_of(id))?;
    settle_meta(dir)?;
    let found = ReplicaMeta::read(&read_meta(dir)?).map_err(|e| e.within(dir.join(META).display()))?;
    let store = match found {
        Some(meta) => meta.ident.store,
        None if value.members.is_empty() => {
            let ident = LogIdent { cluster, partition: id, store: braid_io::chance::guid()? };
            let (off, block) = ReplicaMeta::new(ident).write();
            write_meta(dir, off, &block)?;
            ident.store
        }
        None => {
            let words = format!(
                "{}: the log of {id} is missing; put the directory back (its file data cannot be read without it)",
                dir.display()
            );
            return Err(Error::new(ErrorKind::Refused, words));
        }
    };
    if value.members.is_empty() {
        value.members.push(RecordedMember { host, store });
        records::update(coordinator, revision, &value)?;
    }
    Ok(Member { host, store })
}

/// Which replica lives in `dir`, where one has been made.
pub(super) fn found_there(dir: &Path, cluster: Guid, id: PartitionId, host: HostId) -> Result<Member> {
    match store(dir, cluster, id, Store::Found)? {
        Some(store) => Ok(Member { host, store }),
        None => Err(Error::new(ErrorKind::Refused, format!("{}: {id} has no store there", dir.display()))),
    }
}

/// What the replicas of `cluster` in the directory `dir` of a host have on disk: none that was never written. One that
/// cannot be read says nothing. Blocks.
pub(super) fn stores(dir: &Path, cluster: Guid) -> Result<Vec<ReplicaMeta>> {
    let mut found = Vec::new();
    for name in file::list(dir)?.iter().filter(|name| name.to_string_lossy().starts_with("log-")) {
        let place = dir.join(name);
        match read_meta(&place).and_then(|bytes| ReplicaMeta::read(&bytes)) {
            Ok(meta) => found.extend(meta.filter(|meta| meta.ident.cluster == cluster)),
            Err(error) => tracing::warn!("{}: {error}", place.display()),
        }
    }
    Ok(found)
}

/// A configuration as a record.
pub(super) fn record_of(id: PartitionId, config: &Config) -> Partition {
    let list = |members: &[Member]| {
        members.iter().map(|m| RecordedMember { host: m.host, store: m.store }).collect::<Vec<_>>()
    };
    let primary = (!config.members.is_empty()).then_some(config.primary.host);
    Partition { id, term: config.term, primary, members: list(&config.members), learners: list(&config.learners) }
}

/// What to do about a store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Store {
    /// Say which is there, if any.
    Found,
    /// Make an empty one where none is, for a partition that begins or for one that was lost. `Refused` if a log is there:
    /// then its `replica.meta` is missing, and nothing else.
    New,
    /// Replace what is there by an empty one.
    Replaced,
}

/// The store of partition `id` in the folder `dir` of its log, durable at return. Blocks.
///
/// Errors: `Refused` if it belongs to something else.
pub fn store(dir: &Path, cluster: Guid, id: PartitionId, what: Store) -> Result<Option<Guid>> {
    file::make_dir(dir)?;
    settle_meta(dir)?;
    // What is replaced may be damaged.
    let known = || ReplicaMeta::read(&read_meta(dir)?).map_err(|e| e.within(dir.join(META).display()));
    let found = if what == Store::Replaced { None } else { known()? };
    if let Some(meta) = found {
        if (meta.ident.cluster, meta.ident.partition) != (cluster, id) {
            let (of, p, dir) = (meta.ident.cluster, meta.ident.partition, dir.display());
            let words = format!("{dir}: a store of {id} of cluster {cluster} expected, found one of {p} of {of}");
            return Err(Error::new(ErrorKind::Refused, words));
        }
        return Ok(Some(meta.ident.store));
    }
    if what == Store::Found {
        return Ok(None);
    }
    let is_log = |name: &std::ffi::OsString| name.to_string_lossy().starts_with("seg-");
    if what == Store::New && file::list(dir)?.iter().any(is_log) {
        let words = format!("{}: there is a log of {id}, but no {META}: put that back", dir.display());
        return Err(Error::new(ErrorKind::Refused, words));
    }
    let ident = LogIdent { cluster, partition: id, store: braid_io::chance::guid()? };
    // Rows of an earlier store may be left in the view: the first start wipes them.
    let mut meta = ReplicaMeta { importing: true, ..ReplicaMeta::new(ident) };
    // Both blocks: of two, the one written last counts, and the other one may be of the store that is replaced.
    for _ in 0..2 {
        let (off, block) = meta.write();
        write_meta(dir, off, &block)?;
    }
    Ok(Some(ident.store))
}

const META: &str = "replica.meta";

fn read_meta(dir: &Path) -> Result<Vec<u8>> {
    let path = dir.join(META);
    let file = match File::open(&path, OpenMode::READ_CACHED) {
        // Only this means that there is none: one that cannot be read is there.
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Vec::new()),
        opened => opened?,
    };
    let len = file.size()?.min(2 * BLOCK as u64) as usize;
    Ok(file.read_at(0, len)?.to_vec())
}

/// A process may have been killed between writing and syncing it.
fn settle_meta(dir: &Path) -> Result<()> {
    match File::open(&dir.join(META), OpenMode::READ_CACHED) {
        Err(error) if error.kind() == ErrorKind::NotFound => {}
        opened => opened?.sync()?,
    }
    file::sync_dir(dir)
}

/// Notes in `dir` that the log was closed in order and ends with the record `last`.
pub(super) fn mark_clean(dir: &Path, last: Index) -> Result<()> {
    let Some(mut meta) = ReplicaMeta::read(&read_meta(dir)?)? else { return Ok(()) };
    meta.clean = Some(last);
    let (off, block) = meta.write();
    write_meta(dir, off, &block)
}

/// Writes a block of `replica.meta`, durable at return.
pub(super) fn write_meta(dir: &Path, off: u64, block: &Bytes) -> Result<()> {
    let create = Create::IfMissing(2 * BLOCK as u64);
    let file = File::open(&dir.join(META), OpenMode { write: true, create, direct: false, exclusive: false })?;
    file.write_at(off, block)?;
    file.sync()?;
    file::sync_dir(dir)
}
