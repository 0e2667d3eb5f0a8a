//! An etcd that went back: it is refused by whoever has seen more, fenced for all others, and recovered.

use std::sync::{Arc, Mutex, PoisonError};

use braid_base::ids::{Guid, HostId, PartitionId, Term};
use braid_base::{ErrorKind, Result};
use braid_cluster::coordinator::{Coordinator, Item, Listing, Outcome, Revision, SessionId, Txn, Watch};
use braid_cluster::facts::{
    Cluster, FEATURE_LEVEL, Fence, Host, HostState, Incarnation, Member, Partition, Protection,
};
use braid_cluster::guard::{Guard, Terms};
use braid_cluster::kept::{Floors, Kept};
use braid_cluster::records::{self, Record};
use braid_cluster::recover::{self, Known, Plan, Stored, TERM_LEAP, Testimony};
use braid_cluster::snapshot::Snapshot;
use braid_cluster::{Embedded, kept};

const OURS: Guid = Guid([1; 16]);

fn cluster() -> Cluster {
    Cluster {
        guid: OURS,
        name: "n".into(),
        created_s: 1,
        protection: Protection { data: 2, parity: 1 },
        shard_bytes: 8 << 20,
        partitions: 2,
        feature_level: FEATURE_LEVEL,
        copies: 2,
        client_secret: "c".into(),
        host_secret: "h".into(),
        authority: String::new(),
    }
}

fn store(host: u32) -> Guid {
    Guid([host as u8 + 100; 16])
}

fn partition(id: u16, term: u64, hosts: &[u32]) -> Partition {
    let members: Vec<Member> = hosts.iter().map(|h| Member { host: HostId(*h), store: store(*h) }).collect();
    let primary = members.first().map(|member| member.host);
    Partition { id: PartitionId(id), term: Term(term), primary, members, learners: Vec::new() }
}

fn host(id: u32, state: HostState) -> Host {
    let (name, addresses) = (format!("n{id}"), vec![format!("10.0.0.{id}:14001")]);
    Host { id: HostId(id), name, joined_s: 1, addresses, domain: String::new(), state }
}

fn put<T: Record>(to: &dyn Coordinator, record: &T) {
    let txn = Txn::new().put(&record.key(), records::encode(record).expect("JSON"));
    assert!(matches!(to.txn(&txn), Ok(Outcome::Done(_))), "{}", record.key());
}

/// Hosts n1 to n3, two partitions of n1 and n2.
fn etcd() -> Arc<Embedded> {
    let etcd = Arc::new(Embedded::in_memory(Arc::new(|| 0)).expect("memory"));
    put(&*etcd, &cluster());
    (1..=3).for_each(|id| put(&*etcd, &host(id, HostState::Active)));
    (0..2).for_each(|id| put(&*etcd, &partition(id, 5, &[1, 2])));
    etcd.txn(&Txn::new().put("ctr/client", "7").put("fs-name/old", "1")).expect("written");
    etcd
}

/// What `name` says that has seen all of `etcd`.
fn says(name: &str, etcd: &dyn Coordinator, stores: Vec<Stored>) -> Testimony {
    Testimony::of(name, &Kept::of(&etcd.range("").expect("read")).expect("kept"), stores)
}

fn stored(host: u32, term: u64, config: Partition) -> Stored {
    Stored::new(store(host), Term(term), config, false)
}

fn plan(etcd: &dyn Coordinator, heard: &[Testimony]) -> Plan {
    let (found, cluster) = (etcd.range("").expect("read"), cluster());
    recover::plan(&Known { cluster: &cluster, etcd: &found, heard, by: Guid([9; 16]) }).expect("a plan")
}

fn written(plan: &Plan, p: u16) -> Partition {
    let key = Partition::key_of(PartitionId(p));
    let (_, value) = plan.puts.iter().find(|(found, _)| *found == key).expect("written");
    records::decode(&key, value).expect("a record")
}

/// Both partitions on their two members, in the terms and configurations given.
fn replicas(host: u32, first: (u64, Partition), second: (u64, Partition)) -> Vec<Stored> {
    vec![stored(host, first.0, first.1), stored(host, second.0, second.1)]
}

#[test]
fn terms_rise_above_all_that_anybody_saw_and_the_newest_members_stay() {
    let (old, now) = (etcd(), etcd());
    put(&*now, &partition(0, 9, &[2, 3]));
    let before = says("n1", &*now, replicas(1, (5, partition(0, 5, &[1, 2])), (5, partition(1, 5, &[1, 2]))));
    // n2 knows a configuration of partition 1 that no copy has, and has heard of a later term.
    let two = says("n2", &*now, replicas(2, (9, partition(0, 9, &[2, 3])), (12, partition(1, 12, &[2]))));
    let three = says("n3", &*now, vec![stored(3, 9, partition(0, 9, &[2, 3]))]);
    let plan = plan(&*old, &[before, two, three]);
    assert_eq!(plan.objections, Vec::<String>::new());
    assert_eq!(written(&plan, 0), Partition { term: Term(9 + TERM_LEAP), ..partition(0, 9, &[2, 3]) });
    assert_eq!(written(&plan, 1), Partition { term: Term(12 + TERM_LEAP), ..partition(1, 12, &[2]) });
    let seen: Vec<_> = plan.partitions.iter().map(|change| (change.found.0, change.seen.0, change.present)).collect();
    assert_eq!(seen, [(5, 9, 2), (5, 12, 1)]);
    assert_eq!(plan.incarnation.number, 1);
}

#[test]
fn a_term_in_the_old_etcd_counts_too() {
    // Somebody took the partition by what is old, before it was noticed.
    let (old, now) = (etcd(), etcd());
    put(&*old, &partition(0, 30, &[1]));
    let all = [1, 2].map(|h| {
        let both = replicas(h, (5, partition(0, 5, &[1, 2])), (5, partition(1, 5, &[1, 2])));
        says(&format!("n{h}"), &*now, both)
    });
    let plan = plan(&*old, &all);
    let goes_on = written(&plan, 0);
    assert_eq!((goes_on.term, goes_on.members), (Term(30 + TERM_LEAP), partition(0, 5, &[1, 2]).members));
}

#[test]
fn the_newest_copy_holds_and_counters_leap() {
    let (old, now) = (etcd(), etcd());
    let early = says("n1", &*now, Vec::new());
    now.txn(&Txn::new().put("fs-name/new", "2").delete("fs-name/old").put("ctr/client", "900")).expect("written");
    let late = says("n2", &*now, Vec::new());
    for heard in [[early.clone(), late.clone()], [late, early]] {
        let plan = plan(&*old, &heard);
        let of = |key: &str| plan.puts.iter().find(|(found, _)| found == key).map(|(_, value)| value.as_slice());
        assert_eq!((plan.source.as_str(), of("fs-name/new"), of("fs-name/old")), ("n2", Some(&b"2"[..]), None));
        assert_eq!(plan.deletes, ["fs-name/old"]);
        let client: u64 = std::str::from_utf8(of("ctr/client").expect("there")).expect("text").parse().expect("number");
        assert!(client > 900 + 1_000_000, "{client}");
        assert!(of(Cluster::KEY).is_some(), "which no host tells");
    }
}

#[test]
fn what_may_be_lost_is_named() {
    let (old, now) = (etcd(), etcd());
    put(&*now, &host(3, HostState::Failed));
    let both = |h, term| replicas(h, (term, partition(0, 5, &[1, 2])), (5, partition(1, 5, &[1, 2])));
    let one = says("n1", &*now, both(1, 5));
    assert_eq!(plan(&*old, &[one.clone(), says("n2", &*now, both(2, 5))]).objections, Vec::<String>::new());
    // A host that does not answer; one that failed long ago need not.
    let objections = plan(&*old, std::slice::from_ref(&one)).objections;
    assert!(
        objections.len() == 1 && objections[0].contains("host n2 (10.0.0.2:14001) does not answer"),
        "{objections:?}"
    );
    // A term in which nobody knows who led.
    let objections = plan(&*old, &[one, says("n2", &*now, both(2, 6))]).objections;
    assert!(objections.len() == 1 && objections[0].contains("led in term 6"), "{objections:?}");
    // No member of a partition.
    let objections = plan(&*old, &[says("n1", &*now, Vec::new()), says("n2", &*now, Vec::new())]).objections;
    assert!(objections.len() == 2 && objections[0].contains("none of its members (n1, n2)"), "{objections:?}");
    // A view that is on its way is none.
    let importing: Vec<Stored> = both(1, 5).into_iter().map(|stored| Stored { importing: true, ..stored }).collect();
    let objections = plan(&*old, &[says("n1", &*now, importing), says("n2", &*now, Vec::new())]).objections;
    assert_eq!(objections.len(), 2, "{objections:?}");
}

#[test]
fn nothing_is_recovered_that_did_not_go_back() {
    let now = etcd();
    let (heard, cluster) = ([says("n1", &*now, Vec::new())], cluster());
    put(&*now, &partition(0, 6, &[2]));
    let found = now.range("").expect("read");
    let known = Known { cluster: &cluster, etcd: &found, heard: &heard, by: Guid([9; 16]) };
    assert_eq!(recover::need(&known), Ok(None));
    put(&*now, &Cluster { guid: Guid([2; 16]), ..cluster.clone() });
    let found = now.range("").expect("read");
    let known = Known { etcd: &found, ..known };
    assert_eq!(recover::need(&known).map_err(|error| error.kind()), Err(ErrorKind::Refused));
}

/// An etcd that may be replaced by another one.
struct Members(Mutex<Arc<Embedded>>);

impl Members {
    fn now(&self) -> Arc<Embedded> {
        Arc::clone(&self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }

    fn restore(&self, from: Arc<Embedded>) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = from;
    }
}

impl Coordinator for Members {
    fn get(&self, key: &str) -> Result<Option<Item>> {
        self.now().get(key)
    }

    fn range(&self, prefix: &str) -> Result<Listing> {
        self.now().range(prefix)
    }

    fn txn(&self, txn: &Txn) -> Result<Outcome> {
        self.now().txn(txn)
    }

    fn watch(&self, prefix: &str, from: Revision) -> Result<Box<dyn Watch>> {
        self.now().watch(prefix, from)
    }

    fn session(&self, ttl_ms: u64) -> Result<SessionId> {
        self.now().session(ttl_ms)
    }

    fn keep_alive(&self, session: SessionId) -> Result<()> {
        self.now().keep_alive(session)
    }

    fn end_session(&self, session: SessionId) -> Result<()> {
        self.now().end_session(session)
    }
}

fn guard(dir: &tempfile::TempDir, name: &str, members: &Arc<Members>) -> Guard {
    let (path, name) = (dir.path().join(name), name.to_owned());
    let terms = Terms { path, name, cluster: Some(OURS), floors: Floors::new() };
    Guard::new(Arc::clone(members) as Arc<dyn Coordinator>, terms).expect("a guard")
}

fn kind<T>(result: Result<T>) -> Option<ErrorKind> {
    result.err().map(|error| error.kind())
}

#[test]
fn an_etcd_that_went_back_is_fenced_until_it_is_recovered() {
    let dir = tempfile::tempdir().expect("a folder");
    let members = Arc::new(Members(Mutex::new(etcd())));
    let (one, idle) = (guard(&dir, "n1", &members), guard(&dir, "n2", &members));
    Snapshot::read(&one).expect("all is well");
    Snapshot::read(&idle).expect("all is well");
    records::modify::<Partition>(&one, "partition/00000", |p| {
        p.term = Term(9);
        Ok(())
    })
    .expect("changed");
    Snapshot::read(&one).expect("all is well");
    let path = dir.path().join("n1");
    let kept = || Kept::read(&path).expect("readable");
    let newest = |kept: Option<Kept>| {
        let record = kept.and_then(|kept| kept.record::<Partition>("partition/00000").expect("a record"));
        record.is_some_and(|record| record.term == Term(9))
    };
    let mut tries = 0;
    while !newest(kept()) {
        tries += 1;
        assert!(tries < 3_000, "it is not kept");
        std::thread::park_timeout(std::time::Duration::from_millis(5));
    }

    // The old copy: n1 knows better at once, whatever it asks.
    members.restore(etcd());
    assert_eq!(kind(one.counter("client")), Some(ErrorKind::Refused));
    let fence = records::read::<Fence>(&*members.now(), Fence::KEY).expect("read").expect("put").value;
    assert!(fence.by == "n1" && fence.reason.contains("was seen"), "{fence:?}");
    // n2 has seen no more than what is there, and takes nothing either.
    let take = Txn::new().put("partition/00001", records::encode(&partition(1, 6, &[2])).expect("JSON"));
    assert_eq!(kind(idle.txn(&take)), Some(ErrorKind::Refused));
    assert!(one.refuses() && idle.refuses());
    // Nor does one that starts now.
    assert_eq!(kind(Snapshot::read(&guard(&dir, "n1", &members))), Some(ErrorKind::Refused));

    let heard = [
        Testimony::of("n1", &one.kept(), replicas(1, (9, partition(0, 9, &[1, 2])), (5, partition(1, 5, &[1, 2])))),
        Testimony::of("n2", &idle.kept(), replicas(2, (5, partition(0, 5, &[1, 2])), (5, partition(1, 5, &[1, 2])))),
    ];
    let plan = plan(&*members.now(), &heard);
    let at = recover::fence(&*members.now(), "n1").expect("fenced");
    recover::carry_out(&*members.now(), &plan, at).expect("written");
    assert_eq!(kept::Kept::of(&members.range("").expect("read")).expect("kept").incarnation, plan.incarnation);
    // Both go on, though its revision is still below what they have seen.
    let found = records::must::<Partition>(&one, "partition/00000").expect("read").value;
    assert_eq!(found.term, Term(9 + TERM_LEAP));
    records::modify::<Partition>(&idle, "partition/00001", |p| {
        p.term = Term(p.term.0 + 1);
        Ok(())
    })
    .expect("changed");
    assert!(one.counter("client").expect("a number") > 1_000_000);
    let now = Snapshot::read(&one).expect("all is well");
    assert!(now.fence.is_none() && !one.refuses() && now.map().version > 1 << 40, "newer than any map before");
}

#[test]
fn an_empty_etcd_is_written_anew_and_two_recoveries_do_not_mix() {
    let dir = tempfile::tempdir().expect("a folder");
    let members = Arc::new(Members(Mutex::new(etcd())));
    let one = guard(&dir, "n1", &members);
    Snapshot::read(&one).expect("all is well");
    members.restore(Arc::new(Embedded::in_memory(Arc::new(|| 0)).expect("memory")));
    assert_eq!(kind(Snapshot::read(&one)), Some(ErrorKind::Refused));
    let both = |h| replicas(h, (5, partition(0, 5, &[1, 2])), (5, partition(1, 5, &[1, 2])));
    let heard = [Testimony::of("n1", &one.kept(), both(1)), Testimony::of("n2", &one.kept(), both(2))];
    let first = recover::fence(&*members.now(), "n1").expect("fenced");
    let second = recover::fence(&*members.now(), "n2").expect("fenced");
    let plan = plan(&*members.now(), &heard);
    assert_eq!(kind(recover::carry_out(&*members.now(), &plan, first)), Some(ErrorKind::Busy), "the later one does it");
    recover::carry_out(&*members.now(), &plan, second).expect("written");
    let now = Snapshot::read(&one).expect("all is well");
    assert_eq!((now.hosts.len(), now.partitions.len(), now.cluster), (3, 2, Some(cluster())));
    // Whoever followed another recovery is not let go on.
    put(&*members.now(), &Incarnation { number: 1, by: Guid([8; 16]) });
    assert_eq!(kind(Snapshot::read(&one)), Some(ErrorKind::Refused));
}

#[test]
fn a_host_that_was_told_of_a_later_revision_fences_too() {
    let dir = tempfile::tempdir().expect("a folder");
    let members = Arc::new(Members(Mutex::new(etcd())));
    let one = guard(&dir, "n3", &members);
    let now = Snapshot::read(&one).expect("all is well");
    one.heard(0, now.revision).expect("no more than it is");
    assert_eq!(kind(one.heard(0, now.revision.next())), Some(ErrorKind::Refused));
    assert!(members.get(Fence::KEY).expect("read").is_some());
}
