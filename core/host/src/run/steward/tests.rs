//! A host of several, of which the others are there in the records only.

use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, mpsc};
use std::thread;
use std::time::Duration;

use braid_base::ids::{Guid, HostId, PartitionId, Term};
use braid_base::{ErrorKind, Result};
use braid_cluster::coordinator::{Coordinator, Item, Listing, Outcome, Revision, SessionId, Txn, Watch};
use braid_cluster::embedded::Embedded;
use braid_cluster::facts::{
    Cluster, Host as HostRecord, HostState, Live, Member, Partition, Seats, Store as StoreRecord,
};
use braid_cluster::records::{self, Record};
use braid_cluster::snapshot::Snapshot;
use braid_io::clock;
use braid_wire::{Caller, Routes};

use super::stores::Stores;
use super::{Begun, Duties, Steward};
use crate::run::outside::{Store, store};
use crate::run::setup::{Host, HostConfig, log_dir};
use crate::run::wire::Company;

const ME: HostId = HostId(1);
const CLUSTER: Guid = Guid([5; 16]);
/// Longer than anything here takes, milliseconds.
const WAIT_MS: u64 = 30_000;

struct World {
    dir: tempfile::TempDir,
    coordinator: Arc<dyn Coordinator>,
    runtime: tokio::runtime::Runtime,
    host: Arc<Host>,
}

impl World {
    /// Two partitions, which should have their replicas on `seats`; `coordinator` holds no more of them.
    fn new(seats: &[u32], coordinator: Arc<dyn Coordinator>) -> Self {
        let dir = tempfile::tempdir().expect("dir");
        let text = r#"{"guid":"05050505-0505-0505-0505-050505050505","name":"c","protection":{"data":1,"parity":1},
            "partitions":2,"feature_level":1,"shard_bytes":1048576,"created_s":0,"copies":3}"#;
        let cluster: Cluster = serde_json::from_str(text).expect("a cluster");
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build();
        let runtime = runtime.expect("a runtime");
        let put = |txn: Txn| _ = coordinator.txn(&txn).expect("written");
        put(Txn::new().put(&cluster.key(), records::encode(&cluster).expect("JSON")));
        for id in 1..=3 {
            let (name, addresses, state) = (format!("host{id}"), Vec::new(), HostState::Active);
            let host = HostRecord { id: HostId(id), name: name.clone(), joined_s: 0, addresses, domain: name, state };
            put(Txn::new().put(&host.key(), records::encode(&host).expect("JSON")));
        }
        for p in [PartitionId(0), PartitionId(1)] {
            let (members, learners) = (Vec::new(), Vec::new());
            let partition = Partition { id: p, term: Term(0), primary: None, members, learners };
            put(Txn::new().put(&partition.key(), records::encode(&partition).expect("JSON")));
            let seats = Seats { partition: p, hosts: seats.to_vec() };
            put(Txn::new().put(&seats.key(), records::encode(&seats).expect("JSON")));
        }
        let config = HostConfig {
            dir: dir.path().to_owned(),
            cluster: CLUSTER,
            data: 1,
            parity: 1,
            shard_bytes: 1 << 20,
            host: ME,
            partitions: 2,
            drives: Vec::new(),
            awaited: Vec::new(),
            absent: Vec::new(),
            replicas: Vec::new(),
            capacity_bytes: 1 << 30,
        };
        let routes = Routes::new(Caller::Host(ME), Box::new(|_, _| Box::new(|| Err(ErrorKind::TimedOut.into()))));
        let company =
            Company { routes: Arc::new(routes), etcd_by_others: Box::new(|| false), forsaken: mpsc::channel().0 };
        let host = Host::start(config, &coordinator, Some(company), runtime.handle().clone()).expect("it starts");
        Self { dir, coordinator, runtime, host: Arc::new(host) }
    }

    fn alone(seats: &[u32]) -> Self {
        Self::new(seats, Arc::new(Embedded::in_memory(Arc::new(clock::mono_ms)).expect("memory")))
    }

    fn follow(&self) -> (Steward, Begun) {
        let now = Snapshot::read(self.coordinator.as_ref()).expect("read");
        let seen = Arc::new(Mutex::new((Arc::new(now.clone()), None)));
        let (host, raw_of) = (Arc::clone(&self.host), Box::new(|bytes: u64| bytes));
        let duties = Duties { host, now, seen, forsaken: mpsc::channel().1, raw_of };
        Steward::start(duties, Arc::clone(&self.coordinator)).expect("threads")
    }

    fn stores(&self) -> Stores {
        Stores::new(ME, Arc::clone(&self.host), Arc::clone(&self.coordinator))
    }

    fn now(&self) -> Snapshot {
        Snapshot::read(self.coordinator.as_ref()).expect("read")
    }

    fn put<T: Record>(&self, record: &T) {
        let txn = Txn::new().put(&record.key(), records::encode(record).expect("JSON"));
        assert_eq!(self.coordinator.txn(&txn).map(|out| out != Outcome::Conflict), Ok(true));
    }

    /// Each of `hosts` has a store for `p`; those in `members` hold all of it.
    fn staffed(&self, p: PartitionId, hosts: &[u32], members: &[u32]) {
        let member = |host: &u32| Member { host: HostId(*host), store: Guid([*host as u8; 16]) };
        for Member { host, store } in hosts.iter().map(member) {
            self.put(&StoreRecord { partition: p, host, store });
        }
        let members: Vec<Member> = members.iter().map(member).collect();
        let primary = members.first().map(|member| member.host);
        self.put(&Partition { id: p, term: Term(5), primary, members, learners: Vec::new() });
    }

    /// What its host says of the replica of `p`.
    fn said_of(&self, p: PartitionId) -> Option<String> {
        let reports = self.runtime.block_on(self.host.reports());
        let report = reports.into_iter().find(|(host, report)| *host == ME && report.partition == p)?.1;
        Some(report.failed.map_or(String::new(), |why| why.message().to_owned()))
    }
}

fn until(what: &str, mut is: impl FnMut() -> bool) {
    let until_ms = clock::mono_ms() + WAIT_MS;
    while !is() {
        assert!(clock::mono_ms() < until_ms, "{what}: not in time");
        thread::park_timeout(Duration::from_millis(20));
    }
}

#[test]
fn a_damaged_store_is_told_and_replaced_once_the_others_are_whole() {
    let (world, p) = (World::alone(&[1, 2, 3]), PartitionId(0));
    let dir = log_dir(world.dir.path(), p);
    std::fs::create_dir_all(&dir).expect("a folder");
    std::fs::write(dir.join("replica.meta"), [7; 8192]).expect("damage");
    world.staffed(p, &[1, 2, 3], &[2]);
    let (steward, _) = world.follow();
    let words = "once the other copies are all there";
    until("it says so", || world.said_of(p).is_some_and(|said| said.contains(words)));
    let kept = std::fs::read(dir.join("replica.meta")).expect("still there");
    assert!(kept == [7; 8192], "nothing was done about it");
    world.staffed(p, &[2, 3], &[2, 3]);
    let is_new = |member: &Member| member.host == ME && member.store != Guid([1; 16]);
    until("an empty one takes its place", || {
        let now = world.now();
        let record = now.partitions.iter().find(|record| record.value.id == p).expect("there");
        record.value.learners.iter().any(is_new)
    });
    until("it runs", || world.host.replicas().get(&p) == Some(&true) && world.said_of(p) == Some(String::new()));
    steward.stop();
    world.host.stop();
}

#[test]
fn a_disk_that_damages_each_store_gets_no_third() {
    let (world, p) = (World::alone(&[1, 2, 3]), PartitionId(0));
    let (dir, stores) = (log_dir(world.dir.path(), p), world.stores());
    std::fs::create_dir_all(&dir).expect("a folder");
    world.staffed(p, &[1, 2, 3], &[2, 3]);
    let damaged = || {
        std::fs::write(dir.join("replica.meta"), [7; 8192]).expect("damage");
        stores.start(p, world.now().store(p, ME).map(|known| known.store), true)
    };
    assert_eq!(damaged(), Ok(()));
    let error = damaged().expect_err("it was replaced already");
    assert!(error.message().contains("look at the disk"), "{error}");
    world.host.stop();
}

#[test]
fn a_member_is_never_replaced() {
    let (world, p) = (World::alone(&[1, 2, 3]), PartitionId(0));
    let dir = log_dir(world.dir.path(), p);
    std::fs::create_dir_all(&dir).expect("a folder");
    std::fs::write(dir.join("replica.meta"), [7; 8192]).expect("damage");
    world.staffed(p, &[1, 2, 3], &[1, 2, 3]);
    let started = world.stores().start(p, Some(Guid([1; 16])), true);
    assert_eq!(started.map_err(|error| error.kind()), Err(ErrorKind::Corrupt));
    assert!(std::fs::read(dir.join("replica.meta")).expect("there") == [7; 8192]);
    world.host.stop();
}

#[test]
fn a_disk_that_hangs_holds_up_its_own_store_only_and_not_the_end() {
    let world = World::alone(&[1]);
    let (hung, other) = (PartitionId(0), PartitionId(1));
    let dir = log_dir(world.dir.path(), hung);
    std::fs::create_dir_all(&dir).expect("a folder");
    // Who opens it waits for somebody who writes.
    let pipe = dir.join("replica.meta");
    assert!(Command::new("mkfifo").arg(&pipe).status().expect("mkfifo").success());
    let (steward, begun) = world.follow();
    let waits = thread::spawn(move || begun.wait());
    until("the other one runs", || world.host.replicas().get(&other) == Some(&true));
    assert!(!waits.is_finished(), "one is still being started");
    let live = || records::read::<Live>(world.coordinator.as_ref(), &Live::key_of(ME)).expect("read").is_some();
    assert!(live());
    let began_ms = clock::mono_ms();
    steward.stop();
    assert!(clock::mono_ms() - began_ms < 5_000, "it waits for the disk");
    until("it says that it does not live any more", || !live());
    waits.join().expect("no panic");
    world.host.stop();
    let opened = std::fs::OpenOptions::new().read(true).write(true).open(&pipe).expect("a pipe");
    drop(opened);
}

/// A coordinator in which something happens behind the second time that a partition is read.
struct Meanwhile {
    inner: Embedded,
    reads: Mutex<u32>,
    armed: AtomicBool,
    change: Box<dyn Fn(&Embedded) + Send + Sync>,
}

impl Coordinator for Meanwhile {
    fn get(&self, key: &str) -> Result<Option<Item>> {
        if key.starts_with(Partition::PREFIX) && self.armed.load(Ordering::SeqCst) {
            let mut reads = self.reads.lock().expect("no panic");
            *reads += 1;
            if *reads == 2 {
                (self.change)(&self.inner);
            }
        }
        self.inner.get(key)
    }

    fn range(&self, prefix: &str) -> Result<Listing> {
        self.inner.range(prefix)
    }

    fn txn(&self, txn: &Txn) -> Result<Outcome> {
        self.inner.txn(txn)
    }

    fn watch(&self, prefix: &str, from: Revision) -> Result<Box<dyn Watch>> {
        self.inner.watch(prefix, from)
    }

    fn session(&self, ttl_ms: u64) -> Result<SessionId> {
        self.inner.session(ttl_ms)
    }

    fn keep_alive(&self, session: SessionId) -> Result<()> {
        self.inner.keep_alive(session)
    }

    fn end_session(&self, session: SessionId) -> Result<()> {
        self.inner.end_session(session)
    }
}

/// Whether the store of host 1 goes from a partition on hosts 2 and 3, while `change` happens to its records.
fn goes(change: impl Fn(&Embedded, Guid) + Send + Sync + 'static) -> bool {
    let own = Arc::new(Mutex::new(Guid::default()));
    let known = Arc::clone(&own);
    let coordinator = Arc::new(Meanwhile {
        inner: Embedded::in_memory(Arc::new(clock::mono_ms)).expect("memory"),
        reads: Mutex::default(),
        armed: AtomicBool::new(false),
        change: Box::new(move |inner| change(inner, *known.lock().expect("no panic"))),
    });
    let (world, p) = (World::new(&[2, 3], Arc::clone(&coordinator) as Arc<dyn Coordinator>), PartitionId(0));
    let dir = log_dir(world.dir.path(), p);
    let made = store(&dir, CLUSTER, p, Store::New).expect("made").expect("one");
    *own.lock().expect("no panic") = made;
    world.staffed(p, &[2, 3], &[2, 3]);
    let record = StoreRecord { partition: p, host: ME, store: made };
    world.put(&record);
    coordinator.armed.store(true, Ordering::SeqCst);
    world.stores().give_up(&record).expect("it can be asked");
    let (on_disk, known) = (dir.join("replica.meta").exists(), world.now().store(p, ME).is_some());
    assert_eq!(on_disk, known, "what is known is there, and nothing else");
    world.host.stop();
    !on_disk
}

fn put<T: Record>(inner: &Embedded, record: &T) {
    inner.txn(&Txn::new().put(&record.key(), records::encode(record).expect("JSON"))).expect("written");
}

#[test]
fn a_store_that_is_given_back_while_its_replica_stops_stays() {
    let p = PartitionId(0);
    assert!(goes(|_, _| {}));
    let seated = goes(move |inner, _| put(inner, &Seats { partition: p, hosts: vec![1, 2, 3] }));
    assert!(!seated, "it is to be here after all");
    let learns = goes(move |inner, store| {
        let mut record = records::must::<Partition>(inner, &Partition::key_of(p)).expect("there").value;
        record.learners.push(Member { host: ME, store });
        put(inner, &record);
    });
    assert!(!learns, "it may become a member");
}
