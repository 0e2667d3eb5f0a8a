//! A host with real drives: several that fail together, one that opens late, one that is lost while nearly all is full.

mod real;

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use braid_base::ids::{ClientId, DomainId, DriveId, FsId, Guid, HostId, Ino, PartitionId, Term};
use braid_base::msg::fs::Cred;
use braid_base::msg::host::SeatReport;
use braid_base::{Error, ErrorKind};
use braid_client::Fs;
use braid_client::fs::Create;
use braid_cluster::capacity;
use braid_cluster::coordinator::Coordinator;
use braid_cluster::embedded::Embedded;
use braid_cluster::facts::{Partition, Protection};
use braid_cluster::records;
use braid_drive::{FormatParams, Layout, format_file};
use braid_host::run::{DriveSpec, Host, HostConfig};
use braid_io::clock;
use braid_meta::Leave;
use bytes::Bytes;
use real::noise;

const FS: FsId = FsId(1);
const CLUSTER: Guid = Guid([5; 16]);
const PROTECTION: Protection = Protection { data: 2, parity: 1 };
const MIB: usize = 1 << 20;
const SHARD_BYTES: u64 = 1 << 20;
/// Longer than anything here takes.
const WAIT: Duration = Duration::from_secs(120);

struct World {
    dir: tempfile::TempDir,
    runtime: tokio::runtime::Runtime,
    host: Host,
    fs: Fs,
    /// What fails together.
    domains: BTreeMap<DriveId, DomainId>,
    drive_bytes: u64,
}

impl World {
    /// A drive of `drive_bytes` for each of `domains`; those in `late` are awaited.
    fn new(domains: &[u16], drive_bytes: u64, late: &[u32]) -> Self {
        let dir = tempfile::tempdir().expect("dir");
        let coordinator: Arc<dyn Coordinator> = Arc::new(Embedded::in_memory(Arc::new(|| 0)).expect("memory"));
        let (id, term) = (PartitionId(0), Term(0));
        let partition = Partition { id, term, primary: None, members: Vec::new(), learners: Vec::new() };
        records::create(coordinator.as_ref(), &partition).expect("its first record");
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
        let runtime = runtime.expect("a runtime");
        let domains: BTreeMap<DriveId, DomainId> =
            (1..).zip(domains).map(|(drive, domain)| (DriveId(drive), DomainId(*domain))).collect();
        let specs = domains.iter().map(|(id, domain)| drive(dir.path(), *id, *domain, drive_bytes));
        let (awaited, drives) = specs.partition(|spec: &DriveSpec| late.contains(&spec.id.0));
        let config = HostConfig {
            dir: dir.path().join("host"),
            cluster: CLUSTER,
            data: PROTECTION.data,
            parity: PROTECTION.parity,
            shard_bytes: SHARD_BYTES,
            host: HostId(1),
            partitions: 1,
            drives,
            awaited,
            absent: Vec::new(),
            replicas: vec![PartitionId(0)],
            capacity_bytes: net_bytes(drive_bytes, domains.values()),
        };
        std::fs::create_dir_all(&config.dir).expect("dir");
        let host = Host::start(config, &coordinator, None, runtime.handle().clone()).expect("it starts");
        host.set_filesystems(BTreeMap::from([(FS, Guid([9; 16]))]));
        let fs = Fs::with_write_behind(host.session(ClientId(1)), FS, Ino::root(FS), host.background(), 32 << 20);
        let world = Self { dir, runtime, host, fs, domains, drive_bytes };
        world.leave(&[]);
        world.runtime.block_on(world.fs.make_root(0o755)).expect("a root");
        world
    }

    /// What the steward of a host does when it hears that the drives in `leaving` have failed, and no others.
    fn leave(&self, leaving: &[u32]) {
        self.let_go(leaving, Leave::Failed);
    }

    fn let_go(&self, leaving: &[u32], why: Leave) {
        self.go(leaving.iter().map(|drive| (DriveId(*drive), why)).collect());
    }

    fn go(&self, leaving: BTreeMap<DriveId, Leave>) {
        let stay = self.domains.iter().filter(|(drive, _)| !leaving.contains_key(drive));
        self.host.set_capacity(net_bytes(self.drive_bytes, stay.map(|(_, domain)| domain)));
        self.host.set_drive_facts(self.domains.clone(), leaving);
    }

    /// What lies at the paths of `drives` goes, and with it these.
    fn lose(&self, drives: &[u32]) {
        for drive in drives {
            std::fs::remove_file(path_of(self.dir.path(), DriveId(*drive))).expect("it was there");
        }
        wait_for("they are known to be gone", || drives.iter().all(|drive| !self.runs(*drive)));
    }

    fn runs(&self, drive: u32) -> bool {
        self.runtime.block_on(self.host.drives()).iter().any(|(id, stat)| id.0 == drive && stat.is_ok())
    }

    fn free_slots(&self, drive: u32) -> u64 {
        let drives = self.runtime.block_on(self.host.drives());
        let found = drives.into_iter().find(|(id, _)| id.0 == drive).and_then(|(_, stat)| stat.ok());
        found.map_or(u64::MAX, |stat| stat.free.into())
    }

    fn write(&self, name: &str, content: &[u8]) -> Result<Ino, Error> {
        let root = Ino::root(FS);
        self.runtime.block_on(async {
            let ino = self.fs.create(Cred::default(), root, name.as_bytes(), Create::default()).await?.ino;
            let mut at = 0;
            while at < content.len() {
                // Where room ends it may take a part.
                let rest = Bytes::copy_from_slice(&content[at..]);
                at += self.fs.write(ino, at as u64, rest, false, false).await?.len as usize;
            }
            self.fs.fsync(ino).await?;
            Ok(ino)
        })
    }

    /// Every byte of `files` is what `noise` made of its number; it comes from the drives.
    fn check(&self, files: &[(u64, Ino)], len: usize, when: &str) {
        for (seed, ino) in files {
            let mut out = Vec::new();
            while out.len() < len {
                let read = self.fs.read_direct(*ino, out.len() as u64, 1 << 20);
                let bytes = self.runtime.block_on(read).unwrap_or_else(|error| panic!("{when}: file {seed}: {error}"));
                assert!(!bytes.is_empty(), "{when}: file {seed} ends after {}", out.len());
                out.extend_from_slice(&bytes);
            }
            assert!(out == noise(len, *seed), "{when}: file {seed} differs");
        }
    }

    fn report(&self) -> SeatReport {
        self.runtime.block_on(self.host.partitions()).pop().unwrap_or_default()
    }

    fn left_on(&self, drives: &[u32]) -> Option<u64> {
        let reports = self.runtime.block_on(self.host.partitions());
        drives.iter().map(|drive| Host::shards_left(&reports, 1, DriveId(*drive))).sum()
    }
}

/// What users can store on a drive of so many bytes in each of `domains`.
fn net_bytes<'a>(drive_bytes: u64, domains: impl Iterator<Item = &'a DomainId>) -> u64 {
    let domains: Vec<DomainId> = domains.copied().collect();
    let slots = Layout::plan(drive_bytes, SHARD_BYTES).expect("a drive").slots;
    let raw_bytes = domains.len() as u64 * u64::from(slots) * SHARD_BYTES;
    capacity::net_bytes(raw_bytes, PROTECTION, domains.iter().collect::<BTreeSet<_>>().len(), 0)
}

fn path_of(dir: &Path, id: DriveId) -> std::path::PathBuf {
    dir.join(format!("drive-{}", id.0))
}

fn drive(dir: &Path, id: DriveId, domain: DomainId, bytes: u64) -> DriveSpec {
    let (uuid, path) = (Guid([id.0 as u8; 16]), path_of(dir, id));
    let params = FormatParams { cluster: CLUSTER, drive: uuid, id, domain, shard_bytes: SHARD_BYTES, force: false };
    format_file(&path, bytes, &params).expect("a new drive");
    DriveSpec { id, path, uuid }
}

fn pass_s(seconds: u64) {
    let until_ms = clock::mono_ms() + 1_000 * seconds;
    wait_for("time passes", || clock::mono_ms() >= until_ms);
}

/// What `what` says when it has said the same for a while.
fn settled<T: PartialEq>(what: impl Fn() -> T) -> T {
    let mut last = (what(), clock::mono_ms());
    wait_for("nothing changes any more", || {
        let now = what();
        if now != last.0 {
            last = (now, clock::mono_ms());
        }
        clock::mono_ms() > last.1 + 12_000
    });
    last.0
}

fn wait_for(what: &str, is: impl FnMut() -> bool) {
    real::wait_for(WAIT, what, is);
}

/// Four hosts with two drives each: a pack has no two shards on one host, so the loss of both drives of one costs nothing,
/// and so does the loss of another host once all was made anew.
#[test]
fn two_drives_of_each_host_are_lost_together() {
    let world = World::new(&[0, 0, 1, 1, 2, 2, 3, 3], 160 << 20, &[]);
    let len = 2 * MIB + 333;
    let files: Vec<(u64, Ino)> =
        (0..20).map(|n| (n, world.write(&format!("f{n}"), &noise(len, n)).expect("there is room"))).collect();
    wait_for("all is on drives", || world.report().data.staged_bytes == 0);
    let data = world.report().data;
    assert!(!data.forced && data.close == 0, "shards lie together: {data:?}");
    let lost = [1, 2];
    world.lose(&lost);
    world.check(&files, len, "one host is lost");
    world.leave(&lost);
    wait_for("it is made anew", || world.left_on(&lost) == Some(0));
    let data = world.report().data;
    assert!(!data.forced && data.close == 0, "shards lie together: {data:?}");
    world.lose(&[5, 6]);
    world.check(&files, len, "a second host is lost");
    world.host.stop();
}

/// Five drives hold as much as users may store, and one is lost: four have no room for all of it. Nothing is lost, nothing
/// hangs, and when some of it was removed the rest is made whole.
#[test]
fn a_drive_is_lost_while_all_is_full() {
    let world = World::new(&[0, 1, 2, 3, 4], 96 << 20, &[]);
    let len = 3 * MIB;
    let mut files: Vec<(u64, Ino)> = Vec::new();
    let error = loop {
        let n = files.len() as u64;
        match world.write(&format!("f{n}"), &noise(len, n)) {
            Ok(ino) => files.push((n, ino)),
            Err(error) => break error,
        }
        assert!(files.len() < 1_000, "it takes more than there is room for");
    };
    assert_eq!(error.kind(), ErrorKind::NoSpace, "{error}");
    assert!(files.len() >= 60, "full after {} files", files.len());
    world.lose(&[3]);
    world.check(&files, len, "a drive is lost");
    world.leave(&[3]);
    let more = world.write("more", &noise(len, 1_000));
    assert_eq!(more.map_err(|error| error.kind()), Err(ErrorKind::NoSpace), "it would be in the way");
    wait_for("it is known that it leaves", || world.left_on(&[3]).is_some_and(|left| left > 0));
    world.check(&files, len, "as much as can be is made anew");
    // A third goes.
    let (go, stay): (Vec<_>, Vec<_>) = files.into_iter().partition(|(n, _)| n % 3 == 0);
    for (n, _) in go {
        world.runtime.block_on(world.fs.unlink(Ino::root(FS), format!("f{n}").as_bytes())).expect("it is removed");
    }
    wait_for("the rest is made anew", || world.left_on(&[3]) == Some(0));
    world.lose(&[1]);
    world.check(&stay, len, "a second drive is lost");
    world.host.stop();
}

/// What is made anew keeps to the rate that was set.
#[test]
fn a_rebuild_keeps_to_its_rate() {
    let world = World::new(&[0, 1, 2, 3], 160 << 20, &[]);
    for n in 0..24 {
        world.write(&format!("f{n}"), &noise(2 * MIB, n)).expect("there is room");
    }
    wait_for("all is on drives", || world.report().data.staged_bytes == 0);
    // So many bytes of shards are made at once at a fresh start, and no more.
    let rate = MIB as u64;
    world.host.set_rates(0, Some(rate));
    world.lose(&[1]);
    world.leave(&[1]);
    wait_for("it is known that it leaves", || world.left_on(&[1]).is_some_and(|left| left > 0));
    let (begun, before) = (clock::mono_ms(), world.report().data.healing.rebuilt_bytes);
    pass_s(6);
    let made = world.report().data.healing.rebuilt_bytes - before;
    let most = rate * ((clock::mono_ms() - begun) / 1_000 + 2) + 4 * SHARD_BYTES;
    assert!(world.left_on(&[1]) > Some(0) && made <= most, "{made} bytes were made anew, {most} may be");
    world.host.set_rates(0, None);
    wait_for("it is made anew", || world.left_on(&[1]) == Some(0));
    world.host.stop();
}

/// More drives are lost than the data survives. Nobody decides for their owner that they never come back: when that was
/// said, what can be made anew is, the rest is told, and they can go.
#[test]
fn drives_that_never_come_back_are_abandoned() {
    let world = World::new(&[0, 1, 2, 3, 4, 5], 96 << 20, &[]);
    let len = MIB;
    let files: Vec<(u64, Ino)> =
        (0..40).map(|n| (n, world.write(&format!("f{n}"), &noise(len, n)).expect("there is room"))).collect();
    wait_for("all is on drives", || world.report().data.staged_bytes == 0);
    let lost = [1, 2];
    world.lose(&lost);
    world.leave(&lost);
    // Packs that lost one shard are made whole; those that lost both are waited for.
    let left = settled(|| world.left_on(&lost));
    assert!(left > Some(0), "no pack lost two shards");
    world.go([(DriveId(1), Leave::Abandoned), (DriveId(2), Leave::Failed)].into());
    pass_s(8);
    assert_eq!(world.left_on(&lost), left, "the other one may come back, and would make up for it");
    world.let_go(&lost, Leave::Abandoned);
    world.host.set_rates(1 << 30, None);
    wait_for("nothing waits for them", || world.left_on(&lost) == Some(0));
    let parts = settled(|| world.runtime.block_on(world.host.lost()).expect("it says").parts);
    assert!(!parts.is_empty(), "nothing is told");
    // What is not told is there, byte for byte; what is told fails, and nothing is made up.
    let told: BTreeSet<Ino> = parts.iter().map(|part| part.ino).collect();
    let (gone, there): (Vec<_>, Vec<_>) = files.iter().copied().partition(|(_, ino)| told.contains(ino));
    assert!(!there.is_empty(), "all was lost");
    world.check(&there, len, "two drives are abandoned");
    for (_, ino) in &gone {
        let read = world.runtime.block_on(world.fs.read_direct(*ino, 0, len as u64));
        assert_eq!(read.map(|_| ()).map_err(|error| error.kind()), Err(ErrorKind::Io));
    }
    // All that is left has its protection.
    world.lose(&[3]);
    world.check(&there, len, "a third drive is lost");
    let more = world.write("more", &noise(len, 1_000)).expect("it goes on");
    world.check(&[(1_000, more)], len, "written since");
    for (n, _) in &gone {
        let name = format!("f{n}");
        world.runtime.block_on(world.fs.unlink(Ino::root(FS), name.as_bytes())).expect("what is lost can be removed");
    }
    wait_for("it is told no more", || world.runtime.block_on(world.host.lost()).expect("it says").parts.is_empty());
    world.host.stop();
}

/// One of just as many drives as a pack has shards is taken out: nothing can take its shards, so what is in the packs goes
/// to narrower ones, and the drive is empty in the end. One that failed is waited for.
#[test]
fn a_drive_is_emptied_though_too_few_are_left_for_its_packs() {
    let world = World::new(&[0, 1, 2], 128 << 20, &[]);
    let len = MIB;
    let files: Vec<(u64, Ino)> =
        (0..20).map(|n| (n, world.write(&format!("f{n}"), &noise(len, n)).expect("there is room"))).collect();
    wait_for("all is on drives", || world.report().data.staged_bytes == 0);
    world.let_go(&[3], Leave::Failed);
    wait_for("it is known that it leaves", || world.left_on(&[3]).is_some_and(|left| left > 0));
    assert!(settled(|| world.left_on(&[3])) > Some(0), "it may come back");
    world.let_go(&[3], Leave::Draining);
    wait_for("it is empty", || world.left_on(&[3]) == Some(0));
    world.lose(&[3]);
    world.check(&files, len, "it is away");
    world.lose(&[1]);
    world.check(&files, len, "one more is lost");
    world.host.stop();
}

/// A drive that was pulled out and is put back is used again, with what is still valid on it.
#[test]
fn a_drive_that_comes_back_is_used_again() {
    let world = World::new(&[0, 1, 2, 3], 96 << 20, &[]);
    let len = MIB;
    let write = |names: std::ops::Range<u64>| -> Vec<(u64, Ino)> {
        names.map(|n| (n, world.write(&format!("f{n}"), &noise(len, n)).expect("there is room"))).collect()
    };
    let mut files = write(0..20);
    let (path, away) = (path_of(world.dir.path(), DriveId(2)), world.dir.path().join("away"));
    std::fs::rename(&path, &away).expect("it is there");
    wait_for("it is known to be gone", || !world.runs(2));
    files.extend(write(20..30));
    world.check(&files, len, "a drive is away");
    std::fs::write(&path, "something else").expect("written");
    pass_s(12);
    assert!(!world.runs(2), "that is no drive");
    std::fs::rename(&away, &path).expect("it is put back");
    wait_for("it is back", || world.runs(2));
    files.extend(write(30..40));
    wait_for("all is on drives", || world.report().data.staged_bytes == 0);
    world.lose(&[4]);
    world.check(&files, len, "another one is lost");
    world.host.stop();
}

/// The same of one that was added while the host runs.
#[test]
fn a_drive_that_was_added_and_comes_back_is_used_again() {
    let mut world = World::new(&[0, 1, 2], 64 << 20, &[]);
    let (id, domain) = (DriveId(4), DomainId(3));
    world.host.add_drive(&drive(world.dir.path(), id, domain, world.drive_bytes)).expect("it is a drive");
    world.domains.insert(id, domain);
    world.leave(&[]);
    wait_for("it runs", || world.runs(4));
    let (path, away) = (path_of(world.dir.path(), id), world.dir.path().join("away"));
    std::fs::rename(&path, &away).expect("it is there");
    wait_for("it is known to be gone", || !world.runs(4));
    std::fs::rename(&away, &path).expect("it is put back");
    wait_for("it is back", || world.runs(4));
    world.host.stop();
}

/// A drive that opens while the host runs takes part from then on.
#[test]
fn a_drive_that_opens_late_is_used() {
    let world = World::new(&[0, 1, 2, 3], 64 << 20, &[4]);
    wait_for("it runs", || world.runs(4));
    let empty = world.free_slots(4);
    for n in 0..20 {
        world.write(&format!("f{n}"), &noise(MIB, n)).expect("there is room");
    }
    wait_for("it gets its part", || world.free_slots(4) < empty);
    world.host.stop();
}
