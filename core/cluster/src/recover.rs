//! Recovery of an etcd that was restored from an old copy, or has lost its data: what hosts have kept of it, and what
//! their replicas have seen, is written back. [`plan`] is pure.
//!
//! 1. The newest copy that a host has kept is what holds, but for what only rises: counters leap, and each partition gets
//!    the newest configuration that any replica or copy knows, in a term above all that anybody has seen.
//! 2. [`carry_out`] writes it behind a fence of its own, which goes last, together with the new incarnation: whoever met
//!    the old etcd meets the new one, whole, or the fence.
//!
//! Members stay who they are. Only the register names another one, so nothing that was promised is broken: the old
//! primary learns of the higher term and stands for election like any other, or is replaced when promises to it have run out.

use std::collections::{BTreeMap, BTreeSet};

use braid_base::ids::{Guid, HostId, PartitionId, Term};
use braid_base::{Error, ErrorKind, Result};
use serde::{Deserialize, Serialize};

use crate::backup::{AsOf, Entry, leapt};
use crate::coordinator::{Check, Coordinator, Listing, Outcome, Revision, Txn};
use crate::facts::{Cluster, Fence, Host, HostState, Incarnation, Partition};
use crate::kept::{self, Floors, Kept, Verdict};
use crate::records::{self, Record};

/// Terms that are left out above the highest one seen: somebody who does not answer may have gone on a little.
pub const TERM_LEAP: u64 = 1_000;
/// Writes of one transaction.
const BATCH: usize = 100;
/// Bytes of one transaction, about.
const BATCH_BYTES: usize = 256 << 10;

/// What a host knows.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Testimony {
    /// Its name.
    pub name: String,
    /// As of when it has seen etcd last.
    pub as_of: AsOf,
    /// The facts then, but the cluster's own record. Object stores have their secrets in it: it is for hosts only.
    pub items: Vec<Entry>,
    /// Its replicas.
    pub stores: Vec<Stored>,
}

/// What a replica has on disk, or knows already if it runs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Stored {
    /// Its identity, in 32 hex digits and hyphens.
    pub store: String,
    /// Highest term adopted.
    pub term: u64,
    /// The newest configuration that it has seen.
    pub config: Partition,
    /// It does not hold all of the partition yet.
    pub importing: bool,
}

/// What is known when it is decided.
pub struct Known<'a> {
    /// The cluster.
    pub cluster: &'a Cluster,
    /// All that etcd holds now.
    pub etcd: &'a Listing,
    /// What hosts said.
    pub heard: &'a [Testimony],
    /// An identity for this recovery, never used before.
    pub by: Guid,
}

/// What becomes of a partition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Change {
    /// Which one.
    pub partition: PartitionId,
    /// The term in etcd, as it was found.
    pub found: Term,
    /// The highest that anybody has seen.
    pub seen: Term,
    /// The new one.
    pub term: Term,
    /// Its members, by the names of their hosts.
    pub members: Vec<String>,
    /// Those of them whose replicas were asked.
    pub present: usize,
}

/// What to write.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Plan {
    /// Whose copy of the facts it is.
    pub source: String,
    /// As of when that copy is.
    pub as_of: AsOf,
    /// Keys and values.
    pub puts: Vec<(String, Vec<u8>)>,
    /// Keys of things that etcd has, and the cluster has not any more.
    pub deletes: Vec<String>,
    /// What begins.
    pub incarnation: Incarnation,
    /// The partitions, in order.
    pub partitions: Vec<Change>,
    /// What stands against it: something may be lost.
    pub objections: Vec<String>,
}

impl Testimony {
    /// What the host called `name` says, which has `kept` this, with these replicas.
    pub fn of(name: &str, kept: &Kept, stores: Vec<Stored>) -> Self {
        let items = kept.items.iter().filter(|item| item.key != Cluster::KEY).map(Entry::dated).collect();
        Self { name: name.to_owned(), as_of: kept.as_of(), items, stores }
    }

    /// What it has kept, but the cluster's own record.
    pub fn kept(&self) -> Result<Kept> {
        let strange = || Error::new(ErrorKind::Corrupt, format!("host {} said something without a value", self.name));
        Kept::from_entries(self.as_of, &self.items).ok_or_else(strange)
    }
}

impl Stored {
    /// What a replica whose store is `store` says.
    pub fn new(store: Guid, term: Term, config: Partition, importing: bool) -> Self {
        Self { store: store.to_string(), term: term.0, config, importing }
    }
}

/// Hosts that the newest of `heard` names, and that are to be asked: all that may have gone on.
pub fn hosts(heard: &[Testimony]) -> Result<Vec<Host>> {
    let Some(newest) = newest(heard) else { return Ok(Vec::new()) };
    let kept = newest.kept()?;
    let hosts = kept.items.iter().filter(|item| item.key.starts_with(Host::PREFIX));
    let hosts = hosts.map(|item| records::decode::<Host>(&item.key, &item.value)).collect::<Result<Vec<_>>>()?;
    Ok(hosts.into_iter().filter(|host| host.state != HostState::Removed).collect())
}

fn newest(heard: &[Testimony]) -> Option<&Testimony> {
    heard.iter().max_by_key(|said| (said.as_of.incarnation.number, said.as_of.revision))
}

/// Why etcd is to be recovered; none if it is what the hosts have seen last.
pub fn need(known: &Known<'_>) -> Result<Option<String>> {
    let none = Floors::new();
    let mut why = kept::record::<Fence>(&known.etcd.items, Fence::KEY)?.map(|fence| fence.reason);
    for said in known.heard {
        let kept = said.kept()?;
        match kept.judge(kept.revision, known.cluster.guid, &none, known.etcd)? {
            Verdict::Later => {}
            Verdict::Older(older) => why = why.or(Some(older)),
            Verdict::Another(there) => {
                let words = format!(
                    "at this etcd is cluster {there}, not {}: say which etcd (--etcd), or remove its keys",
                    known.cluster.guid
                );
                return Err(Error::new(ErrorKind::Refused, words));
            }
        }
    }
    Ok(why)
}

/// What to write so that the cluster goes on.
pub fn plan(known: &Known<'_>) -> Result<Plan> {
    let nobody = || Error::new(ErrorKind::Refused, "no host says anything: there is nothing to recover from");
    let source = newest(known.heard).ok_or_else(nobody)?;
    let said = known.heard.iter().map(Testimony::kept).collect::<Result<Vec<_>>>()?;
    let facts = source.kept()?;
    let mut objections = Vec::new();
    let rival = |said: &&Testimony| {
        let (a, b) = (said.as_of.incarnation, source.as_of.incarnation);
        a.number == b.number && a.by != b.by
    };
    objections.extend(known.heard.iter().filter(rival).map(|said| {
        format!(
            "hosts {} and {} have followed different recoveries: what one of them did is lost",
            said.name, source.name
        )
    }));
    let hosts = hosts(known.heard)?;
    for host in &hosts {
        let may_know = host.state != HostState::Failed;
        if may_know && !known.heard.iter().any(|said| said.name == host.name) {
            let at = host.addresses.join(", ");
            objections.push(format!(
                "host {} ({at}) does not answer: start its `braid backend`; if it is lost for good, what only it knew is",
                host.name
            ));
        }
    }
    let names: BTreeMap<HostId, &str> = hosts.iter().map(|host| (host.id, host.name.as_str())).collect();
    let mut puts: BTreeMap<String, Vec<u8>> = BTreeMap::new();
    puts.insert(Cluster::KEY.to_owned(), records::encode(known.cluster)?);
    for item in &facts.items {
        puts.insert(item.key.clone(), item.value.clone());
    }
    for (key, last) in counters(known, &said)? {
        puts.insert(key, leapt(last).to_string().into_bytes());
    }
    let mut partitions = Vec::new();
    for p in (0..known.cluster.partitions).map(PartitionId) {
        let (record, change) = partition((known, &said), p, &names, &mut objections)?;
        puts.insert(record.key(), records::encode(&record)?);
        partitions.push(change);
    }
    let there = known.etcd.items.iter().map(|item| item.key.clone());
    let deletes = there.filter(|key| kept::is_fact(key) && !puts.contains_key(key)).collect();
    let in_etcd = kept::record::<Incarnation>(&known.etcd.items, Incarnation::KEY)?.unwrap_or_default();
    let number = known.heard.iter().map(|said| said.as_of.incarnation.number).fold(in_etcd.number, u64::max) + 1;
    Ok(Plan {
        source: source.name.clone(),
        as_of: source.as_of,
        puts: puts.into_iter().collect(),
        deletes,
        incarnation: Incarnation { number, by: known.by },
        partitions,
        objections,
    })
}

/// The highest value of each counter that anybody has seen.
fn counters(known: &Known<'_>, said: &[Kept]) -> Result<BTreeMap<String, u64>> {
    let mut last: BTreeMap<String, u64> = BTreeMap::new();
    for item in said.iter().flat_map(|kept| &kept.items).chain(&known.etcd.items) {
        if item.key.starts_with("ctr/") {
            let number = std::str::from_utf8(&item.value).ok().and_then(|text| text.parse().ok());
            let strange = || Error::new(ErrorKind::Corrupt, format!("{}: a number expected", item.key));
            let number: u64 = number.ok_or_else(strange)?;
            last.entry(item.key.clone()).and_modify(|known| *known = number.max(*known)).or_insert(number);
        }
    }
    Ok(last)
}

/// The record of `p` that goes on, and what there is to say of it.
fn partition(
    (known, said): (&Known<'_>, &[Kept]),
    p: PartitionId,
    names: &BTreeMap<HostId, &str>,
    objections: &mut Vec<String>,
) -> Result<(Partition, Change)> {
    let key = Partition::key_of(p);
    let in_etcd = kept::record::<Partition>(&known.etcd.items, &key)?;
    let found = in_etcd.map_or(Term(0), |record| record.term);
    // Of those of one term the one in the newest copy has the learners of now.
    let mut copies: Vec<(AsOf, Partition)> = Vec::new();
    for kept in said {
        copies.extend(kept.record::<Partition>(&key)?.map(|record| (kept.as_of(), record)));
    }
    copies.sort_by_key(|(as_of, _)| (as_of.incarnation.number, as_of.revision));
    let stores: Vec<&Stored> =
        known.heard.iter().flat_map(|said| &said.stores).filter(|store| store.config.id == p).collect();
    let configs = stores.iter().map(|store| &store.config).chain(copies.iter().map(|(_, record)| record));
    let none = Partition { id: p, term: Term(0), primary: None, members: Vec::new(), learners: Vec::new() };
    let newest = configs.max_by_key(|config| config.term).cloned().unwrap_or(none);
    let adopted = stores.iter().map(|store| Term(store.term)).max().unwrap_or_default();
    let seen = found.max(newest.term).max(adopted);
    if adopted > newest.term {
        objections.push(format!(
            "{p} was led in term {}, but nobody knows by whom: the newest configuration known is of term {}",
            adopted.0, newest.term.0
        ));
    }
    let held: BTreeSet<&str> =
        stores.iter().filter(|store| !store.importing).map(|store| store.store.as_str()).collect();
    let present = newest.members.iter().filter(|member| held.contains(member.store.to_string().as_str())).count();
    let members: Vec<String> = newest
        .members
        .iter()
        .map(|member| names.get(&member.host).map_or_else(|| format!("h{}", member.host), |name| (*name).to_owned()))
        .collect();
    if present == 0 && !newest.members.is_empty() {
        objections.push(format!(
            "{p}: none of its members ({}) was heard: it waits until one of them is back, and is lost if none comes",
            members.join(", ")
        ));
    }
    // One that never had a member begins as ever.
    let term = if newest.members.is_empty() { newest.term } else { Term(seen.0 + TERM_LEAP) };
    Ok((Partition { term, ..newest }, Change { partition: p, found, seen, term, members, present }))
}

/// Puts a fence of recovery `by` in place of whatever fence there is. `Busy` if somebody else did just then.
pub fn fence(coordinator: &dyn Coordinator, by: &str) -> Result<Revision> {
    let check = coordinator.get(Fence::KEY)?.map_or(Check::Absent, |item| Check::Modified(item.modified));
    let fence = Fence { reason: "a recovery is under way, or broke off".to_owned(), by: by.to_owned() };
    match coordinator.txn(&Txn::new().when(Fence::KEY, check).put(Fence::KEY, records::encode(&fence)?))? {
        Outcome::Done(revision) => Ok(revision),
        Outcome::Conflict => Err(another()),
    }
}

/// Writes `plan` behind the fence that was put at `fence`, and takes that away.
pub fn carry_out(coordinator: &dyn Coordinator, plan: &Plan, fence: Revision) -> Result<()> {
    let behind = || Txn::new().when(Fence::KEY, Check::Modified(fence));
    let write = |txn: &Txn| match coordinator.txn(txn)? {
        Outcome::Done(_) => Ok(()),
        Outcome::Conflict => Err(another()),
    };
    for keys in plan.deletes.chunks(BATCH) {
        write(&keys.iter().fold(behind(), |txn, key| txn.delete(key)))?;
    }
    let (mut txn, mut bytes) = (behind(), 0);
    for (key, value) in &plan.puts {
        if txn.puts.len() >= BATCH || bytes + value.len() > BATCH_BYTES {
            write(&std::mem::replace(&mut txn, behind()))?;
            bytes = 0;
        }
        bytes += key.len() + value.len();
        txn = txn.put(key, value.clone());
    }
    write(&txn)?;
    write(&behind().delete(Fence::KEY).put(Incarnation::KEY, records::encode(&plan.incarnation)?))
}

fn another() -> Error {
    Error::new(ErrorKind::Busy, "another recovery is under way: see what it does, and try again if it breaks off")
}
