//! A host with drives and a directory as its object store: cold data leaves, comes back, and goes when it is removed.

mod real;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use braid_base::ErrorKind;
use braid_base::ids::{Chunk, ClientId, DomainId, DriveId, FsId, Guid, HostId, Ino, PartitionId, StoreId, Term};
use braid_base::msg::event::{EventFilter, EventType};
use braid_base::msg::fs::{Cred, Op, Reply, Residency};
use braid_base::msg::host::Stored;
use braid_base::store::{Place, StoreSpec};
use braid_client::Fs;
use braid_client::fs::Create;
use braid_cluster::coordinator::Coordinator;
use braid_cluster::embedded::Embedded;
use braid_cluster::facts::Partition;
use braid_cluster::records;
use braid_drive::{FormatParams, format_file};
use braid_host::run::{DriveSpec, Host, HostConfig};
use braid_meta::TierPolicy;
use bytes::Bytes;
use real::noise;

const FS: FsId = FsId(1);
const STORE: StoreId = StoreId(3);
const CLUSTER: Guid = Guid([5; 16]);
const MIB: usize = 1 << 20;
/// Longer than anything here takes.
const WAIT: Duration = Duration::from_secs(90);

struct World {
    dir: tempfile::TempDir,
    coordinator: Arc<dyn Coordinator>,
    runtime: tokio::runtime::Runtime,
    drives: Vec<DriveSpec>,
    host: Host,
    fs: Fs,
}

impl World {
    fn new() -> Self {
        let dir = tempfile::tempdir().expect("dir");
        let coordinator: Arc<dyn Coordinator> = Arc::new(Embedded::in_memory(Arc::new(|| 0)).expect("memory"));
        let (id, term) = (PartitionId(0), Term(0));
        let partition = Partition { id, term, primary: None, members: Vec::new(), learners: Vec::new() };
        records::create(coordinator.as_ref(), &partition).expect("its first record");
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
        let runtime = runtime.expect("a runtime");
        let drives: Vec<DriveSpec> = (1..=3).map(|n| drive(dir.path(), n)).collect();
        std::fs::create_dir(dir.path().join("store")).expect("the store");
        let (host, fs) = start(dir.path(), &coordinator, &runtime, &drives, ClientId(1));
        let world = Self { dir, coordinator, runtime, drives, host, fs };
        world.runtime.block_on(world.fs.make_root(0o755)).expect("a root");
        world
    }

    /// Stops the host in order and starts it again.
    fn restarted(self) -> Self {
        let Self { dir, coordinator, runtime, drives, host, fs } = self;
        // One that was never there before.
        let client = ClientId(fs.session().client().0 + 1);
        runtime.block_on(fs.session().end(FS)).expect("the session ends");
        host.stop();
        drop((fs, host));
        let (host, fs) = start(dir.path(), &coordinator, &runtime, &drives, client);
        Self { dir, coordinator, runtime, drives, host, fs }
    }

    fn tiers(&self, cue_s: u32, retention_s: u32) {
        let policy = TierPolicy {
            writable: Some(STORE),
            cue_s,
            retention_s,
            object_bytes: 4 << 20,
            flash_bytes: Some(100 << 20),
            prefetch_bytes: 8 << 20,
            ..TierPolicy::default()
        };
        self.host.set_tiers(BTreeMap::from([(FS, policy)]));
    }

    fn file(&self, name: &str, content: &[u8]) -> Ino {
        let root = Ino::root(FS);
        let work = async {
            let ino = self.fs.create(Cred::default(), root, name.as_bytes(), Create::default()).await?.ino;
            self.fs.write(ino, 0, Bytes::copy_from_slice(content), false, false).await?;
            self.fs.fsync(ino).await?;
            Ok::<_, braid_base::Error>(ino)
        };
        self.runtime.block_on(work).expect("a file")
    }

    fn read(&self, ino: Ino, len: usize, direct: bool) -> Vec<u8> {
        let mut out = Vec::new();
        while out.len() < len {
            let off = out.len() as u64;
            let read = async {
                if direct {
                    self.fs.read_direct(ino, off, 128 << 10).await
                } else {
                    self.fs.read(ino, off, 3 << 20).await
                }
            };
            let bytes = self.runtime.block_on(read).expect("it can be read");
            assert!(!bytes.is_empty(), "{} of {len} bytes", out.len());
            out.extend_from_slice(&bytes);
        }
        out
    }

    fn residency(&self, ino: Ino) -> Residency {
        let (mut sum, mut from) = (Residency::default(), Some(Chunk(0)));
        while let Some(chunk) = from {
            let body = Op::Residency { ino, from: chunk };
            let asked = self.runtime.block_on(self.fs.session().call(FS, Cred::default(), body));
            let Ok(Reply::Residency(part)) = asked else { panic!("{asked:?}") };
            sum.write_cache += part.write_cache;
            sum.read_cache += part.read_cache;
            sum.object += part.object;
            from = part.next;
        }
        sum
    }

    fn stored(&self) -> Stored {
        let reports = self.runtime.block_on(self.host.partitions());
        reports[0].data.stored.get(&(FS, STORE)).copied().unwrap_or_default()
    }

    /// The objects that lie in the store.
    fn objects(&self) -> Vec<PathBuf> {
        let mut found = Vec::new();
        let mut dirs = vec![self.dir.path().join("store")];
        while let Some(dir) = dirs.pop() {
            let Ok(entries) = std::fs::read_dir(dir) else { continue };
            for path in entries.filter_map(|entry| Some(entry.ok()?.path())) {
                if path.is_dir() { dirs.push(path) } else { found.push(path) }
            }
        }
        found
    }
}

fn drive(dir: &Path, n: u8) -> DriveSpec {
    let (id, uuid, path) = (DriveId(n.into()), Guid([n; 16]), dir.join(format!("drive-{n}")));
    let domain = DomainId(n.into());
    let params = FormatParams { cluster: CLUSTER, drive: uuid, id, domain, shard_bytes: 1 << 20, force: false };
    format_file(&path, 160 << 20, &params).expect("a new drive");
    DriveSpec { id, path, uuid }
}

fn start(
    dir: &Path,
    coordinator: &Arc<dyn Coordinator>,
    runtime: &tokio::runtime::Runtime,
    drives: &[DriveSpec],
    client: ClientId,
) -> (Host, Fs) {
    let config = HostConfig {
        dir: dir.join("host"),
        cluster: CLUSTER,
        data: 2,
        parity: 1,
        shard_bytes: 1 << 20,
        host: HostId(1),
        partitions: 1,
        drives: drives.to_vec(),
        awaited: Vec::new(),
        absent: Vec::new(),
        replicas: vec![PartitionId(0)],
        capacity_bytes: 200 << 20,
    };
    std::fs::create_dir_all(&config.dir).expect("dir");
    let host = Host::start(config, coordinator, None, runtime.handle().clone()).expect("it starts");
    let path = dir.join("store").display().to_string();
    assert!(host.links().set(vec![(STORE, StoreSpec::at(Place::Dir { path }))]).is_empty());
    host.set_filesystems(BTreeMap::from([(FS, Guid([9; 16]))]));
    let fs = Fs::with_write_behind(host.session(client), FS, Ino::root(FS), host.background(), 32 << 20);
    (host, fs)
}

fn wait_for(what: &str, is: impl FnMut() -> bool) {
    real::wait_for(WAIT, what, is);
}

#[test]
fn data_goes_to_a_store_and_comes_back() {
    let world = World::new();
    world.tiers(1, 2);
    let large = noise(10 * MIB + 777, 1);
    let mut files = vec![(world.file("large", &large), large)];
    for n in 0..20 {
        let small = noise(1 + n * 700, 100 + n as u64);
        files.push((world.file(&format!("small-{n}"), &small), small));
    }
    let is_out = |world: &World, ino| {
        let Residency { write_cache, read_cache, .. } = world.residency(ino);
        write_cache == 0 && read_cache == 0
    };
    wait_for("all is in objects only", || files.iter().all(|(ino, _)| is_out(&world, *ino)));
    let (stored, total) = (world.stored(), files.iter().map(|(_, content)| content.len() as u64).sum::<u64>());
    assert!(stored.objects >= 3 && stored.live >= total && stored.bytes >= stored.live, "{stored:?}");
    assert_eq!(world.objects().len() as u64, stored.objects);

    for (ino, content) in &files {
        assert!(world.read(*ino, content.len(), true) == *content, "{ino} differs");
        assert!(is_out(&world, *ino), "nothing comes back because of that");
    }

    // From here on what is read stays for longer than the test takes.
    world.tiers(1, 3_600);
    for (ino, content) in &files {
        assert!(world.read(*ino, content.len(), false) == *content, "{ino} differs");
    }
    wait_for("what was read is on flash", || world.residency(files[0].0).read_cache >= files[0].1.len() as u64);
    for (ino, content) in &files {
        assert!(world.read(*ino, content.len(), false) == *content, "{ino} differs when it is back");
    }

    let world = world.restarted();
    world.tiers(1, 2);
    wait_for("it is in objects only once more", || files.iter().all(|(ino, _)| is_out(&world, *ino)));
    for (ino, content) in &files {
        assert!(world.read(*ino, content.len(), false) == *content, "{ino} differs after a restart");
    }

    let names = (0..20).map(|n| format!("small-{n}")).chain(["large".to_owned()]);
    for name in names {
        world.runtime.block_on(world.fs.unlink(Ino::root(FS), name.as_bytes())).expect("it is removed");
    }
    wait_for("the objects go", || world.objects().is_empty());
    assert_eq!(world.stored(), Stored::default());
    world.host.stop();
}

#[test]
fn what_is_wrong_in_a_store_is_an_error_of_those_bytes() {
    let world = World::new();
    world.tiers(1, 2);
    let content = noise(2 * MIB, 7);
    let ino = world.file("f", &content);
    wait_for("it is in an object only", || {
        let Residency { write_cache, read_cache, .. } = world.residency(ino);
        write_cache == 0 && read_cache == 0
    });
    let [object] = &world.objects()[..] else { panic!("{:?}", world.objects()) };
    let (sound, world) = (std::fs::read(object).expect("it is there"), world.restarted());
    world.tiers(1, 2);
    // One byte of the second piece.
    let mut bad = sound.clone();
    let at = 3 * 4096 + MIB + 5 * 4096 + 17;
    bad[at] ^= 1;
    std::fs::write(object, &bad).expect("it is changed");
    let read = |off: usize, len: u64| world.runtime.block_on(world.fs.read_direct(ino, off as u64, len));
    let error = read(MIB + 5 * 4096, 4096).expect_err("that block is wrong");
    assert_eq!(error.kind(), ErrorKind::Corrupt);
    assert!(error.message().contains(&format!("byte {}", at - 17)), "{error}");
    assert!(read(0, 4096).expect("the rest is fine") == content[..4096]);
    assert!(read(MIB + 6 * 4096, 4096).expect("even beside it") == content[MIB + 6 * 4096..MIB + 7 * 4096]);

    std::fs::remove_file(object).expect("somebody removes it");
    let world = world.restarted();
    world.tiers(1, 2);
    let read = |off: usize, len: u64| world.runtime.block_on(world.fs.read_direct(ino, off as u64, len));
    assert_eq!(read(0, 4096).expect_err("it is gone").kind(), ErrorKind::Io);
    std::fs::write(object, &sound).expect("it is found again");
    wait_for("it can be read again", || read(0, 4096).is_ok_and(|bytes| bytes == content[..4096]));
    world.host.stop();
}

#[test]
fn an_audit_finds_what_is_missing_and_what_nobody_knows() {
    let world = World::new();
    world.tiers(1, 2);
    let contents: Vec<Vec<u8>> = (0..3).map(|n| noise(MIB, 40 + n)).collect();
    let mut files = Vec::new();
    for (n, content) in contents.iter().enumerate() {
        files.push(world.file(&format!("f{n}"), content));
        wait_for("each goes into an object of its own", || world.residency(files[n]).object >= content.len() as u64);
    }
    let is_out = |ino: &Ino| world.residency(*ino).read_cache == 0;
    wait_for("all is in objects only", || files.iter().all(is_out));
    let mut objects = world.objects();
    objects.sort_unstable();
    assert_eq!(objects.len(), 3);
    let world = world.restarted();
    world.tiers(1, 2);
    let audit = |remove| world.runtime.block_on(world.host.audit(STORE, remove, &|_| {})).expect("it can be listed");
    let lost = || world.runtime.block_on(world.host.lost()).expect("it tells").parts;
    let all = audit(true);
    assert_eq!((all.partitions, all.listed, all.ours, all.known), (1, 3, 3, 3), "{all:?}");
    assert_eq!((all.unknown.count, all.missing.count, all.foreign, all.removed), (0, 0, 0, 0));
    assert!(lost().is_empty());

    // One is removed behind its back, one cut off, and others lie beside them.
    let sound = std::fs::read(&objects[0]).expect("it is there");
    std::fs::remove_file(&objects[0]).expect("somebody removes it");
    std::fs::File::options().write(true).open(&objects[1]).and_then(|file| file.set_len(600_000)).expect("cut");
    let beside = |object: &Path, term: &str| {
        let path = object.with_file_name(term);
        std::fs::write(&path, b"stray").expect("written");
        path
    };
    let (old, young, ahead) = (beside(&objects[1], "0"), beside(&objects[2], "0"), beside(&objects[2], "99"));
    let root = world.dir.path().join("store");
    let name = objects[2].strip_prefix(&root).expect("below").to_str().expect("ASCII");
    let other = root.join(name.replace(&CLUSTER.to_string(), &Guid([6; 16]).to_string()));
    std::fs::create_dir_all(other.parent().expect("a directory")).expect("made");
    std::fs::write(&other, b"of others").expect("written");
    for path in [&old, &ahead, &other] {
        let hours = std::time::SystemTime::UNIX_EPOCH + Duration::from_secs(1_600_000_000);
        std::fs::File::options().write(true).open(path).and_then(|file| file.set_modified(hours)).expect("set");
    }
    let found = audit(false);
    assert_eq!((found.unknown.count, found.young, found.ahead.count, found.removed), (2, 1, 1, 0), "{found:?}");
    assert_eq!((found.missing.count, found.wrong_size.count, found.foreign, found.known), (1, 1, 1, 1), "{found:?}");
    wait_for("both are known to be lost", || {
        lost()
            .iter()
            .map(|part| part.object.expect("an object").missing)
            .collect::<std::collections::BTreeSet<_>>()
            .len()
            == 2
    });
    let gone: u64 = lost().iter().filter(|part| part.object.is_some_and(|of| of.missing)).map(|part| part.len).sum();
    assert_eq!(gone, MIB as u64);
    let reports = world.runtime.block_on(world.host.partitions());
    assert_eq!(reports[0].data.damaged_objects, 2);
    let sound_one =
        files.iter().filter(|ino| world.runtime.block_on(world.fs.read_direct(**ino, 512 << 10, 128 << 10)).is_ok());
    assert_eq!(sound_one.count(), 1, "the others are read");

    let removed = audit(true);
    assert_eq!((removed.removed, removed.young, removed.ahead.count), (1, 1, 1), "{removed:?}");
    assert!(!old.exists() && young.exists() && ahead.exists() && other.exists() && objects[2].exists());

    // It is found again.
    std::fs::write(&objects[0], &sound).expect("written");
    assert_eq!(audit(false).missing.count, 0);
    wait_for("it is not lost any more", || lost().iter().all(|part| part.object.is_some_and(|of| !of.missing)));
    let unknown = world.runtime.block_on(world.host.audit(StoreId(77), false, &|_| {})).expect_err("there is none");
    assert_eq!(unknown.kind(), ErrorKind::NotFound);
    world.host.stop();
}

/// Somebody empties the bucket; what is on flash as well stays there, whether anybody reads it or not, and also where the
/// partition is served anew.
#[test]
fn a_bucket_that_somebody_empties_costs_nothing_that_is_on_flash() {
    let world = World::new();
    world.tiers(1, 3_600);
    let contents: Vec<Vec<u8>> = (0..30).map(|n| noise(MIB, 70 + n)).collect();
    let files: Vec<Ino> = (0..30).map(|n| world.file(&format!("f{n}"), &contents[n])).collect();
    let is_copied = |ino: &Ino| world.residency(*ino).read_cache >= MIB as u64;
    wait_for("all is on flash and in objects", || files.iter().all(is_copied));
    let link = world.host.links().get(STORE).expect("a link");
    let check = || world.runtime.block_on(link.check()).expect("the store is there");
    check();
    let objects = world.objects();
    objects.iter().for_each(|object| std::fs::remove_file(object).expect("somebody removes it"));
    check();
    let events = || {
        let filter = EventFilter { until_ms: u64::MAX, most: 100, ..EventFilter::default() };
        world.host.event_log().list(&filter).expect("they are kept")
    };
    let is_told = |kind| events().iter().any(|event| event.kind == kind);
    wait_for("it is told", || is_told(EventType::STORE_DOUBTED) && is_told(EventType::OBJECT_MISSING));
    // All of it is due to leave flash from now on.
    world.tiers(1, 1);
    let restarted = world.restarted();
    restarted.tiers(1, 1);
    let still = |ino: &Ino| restarted.residency(*ino).read_cache >= MIB as u64;
    let mut looks = 0;
    wait_for("some seconds", || {
        assert!(files.iter().all(still), "something left flash");
        looks += 1;
        looks > 80
    });
    for (ino, content) in files.iter().zip(&contents) {
        assert!(restarted.read(*ino, MIB, true) == *content, "{ino} differs");
    }
    restarted.host.stop();
}
