//! Hosts that join a cluster or leave it for good. Pure but for [`record`] and [`drain`].

use std::collections::{BTreeMap, BTreeSet};

use braid_base::ids::{DomainId, DriveId, HostId};
use braid_base::{Error, ErrorKind, Result};

use crate::capacity::OnDrives;
use crate::coordinator::{Coordinator, Outcome, Txn};
use crate::create::{chosen, host};
use crate::facts::{Cluster, Drive, DriveState, Host, HostState};
use crate::records::{self, Record};
use crate::removal;
use crate::setup::{World, bounds, number, set_host_state};
use crate::snapshot::Snapshot;

/// The hosts called `names`, which wait to be taken in, with their drives; not numbered yet.
///
/// `Refused`, `Invalid`, `NotFound` or `Exists` with one line that names the thing and the way out.
pub fn plan(now: &Snapshot, names: &[String], world: World<'_>) -> Result<Vec<(Host, Vec<Drive>)>> {
    let World { identity, now_s } = world;
    let cluster = now.cluster.as_ref().ok_or_else(|| Error::new(ErrorKind::NotFound, "there is no cluster yet"))?;
    if let Some(name) = names.iter().find(|name| now.host(name).is_some()) {
        return Err(Error::new(ErrorKind::Exists, format!("host {name} is in the cluster already")));
    }
    let chosen = chosen(now, names)?;
    let numbers = domains(now, &chosen.iter().map(|candidate| candidate.domain.as_str()).collect::<Vec<_>>());
    for candidate in &chosen {
        if let Some(other) = now.hosts.iter().find(|host| host.addresses == candidate.addresses) {
            let (name, at) = (&candidate.name, candidate.addresses.join(", "));
            let words = format!("hosts {} and {name} both say that they listen at {at}: see --listen", other.name);
            return Err(Error::new(ErrorKind::Refused, words));
        }
        for drive in &candidate.drives {
            // With headers and checksums a shard takes up to a 64th more; the last one is for the drive's own records.
            let least = (bounds::slots_min(cluster.partitions) + 1) * (cluster.shard_bytes / 64 * 65);
            if drive.size_bytes < least {
                let (path, name, bytes) = (drive.path.display(), &candidate.name, drive.size_bytes);
                let words = format!("host {name}: {path} has {bytes} bytes, this cluster wants {least} at least");
                return Err(Error::new(ErrorKind::Refused, words));
            }
        }
    }
    chosen.iter().map(|candidate| host(candidate, &numbers, identity, now_s)).collect()
}

/// Numbers of the failure domains: those that hosts have, and new ones for `more`.
fn domains(now: &Snapshot, more: &[&str]) -> BTreeMap<String, u16> {
    let mut numbers = BTreeMap::new();
    for host in &now.hosts {
        if let Some(drive) = now.drives.iter().find(|drive| drive.host == host.id) {
            numbers.insert(host.domain.clone(), drive.domain.0);
        }
    }
    for name in more {
        let next = now.drives.iter().map(|drive| drive.domain.0).chain(numbers.values().copied()).max();
        numbers.entry((*name).to_owned()).or_insert(next.map_or(0, |last| last + 1));
    }
    numbers
}

/// Writes what was planned, each host with its drives at once: it begins when it sees itself.
pub fn record(coordinator: &dyn Coordinator, hosts: &[(Host, Vec<Drive>)]) -> Result<Vec<Host>> {
    let mut joined = Vec::new();
    for (host, drives) in hosts {
        let host = Host { id: HostId(number(coordinator, "host")?), ..host.clone() };
        let mut txn = Txn::new();
        for drive in drives {
            let drive = Drive { id: DriveId(number(coordinator, "drive")?), host: host.id, ..drive.clone() };
            txn = txn.put(&drive.key(), records::encode(&drive)?);
        }
        if records::create_with(coordinator, &host, txn)? == Outcome::Conflict {
            return Err(Error::new(
                ErrorKind::Stale,
                format!("host {} came up meanwhile: look, and try again", host.id),
            ));
        }
        joined.push(host);
    }
    Ok(joined)
}

/// What stands against taking `host` out of the cluster, one line each, most serious first.
pub fn objections(now: &Snapshot, host: HostId, stored: OnDrives, raw_of: impl Fn(u64) -> u64) -> Vec<String> {
    let Some(cluster) = &now.cluster else { return Vec::new() };
    let mut after = now.clone();
    after.drives.retain(|drive| drive.host != host);
    after.hosts.retain(|other| other.id != host && other.state == HostState::Active);
    let (used_bytes, mut against) = (stored.bytes, Vec::from_iter(stored.objection()));
    let net = after.net_bytes(raw_of);
    if net < used_bytes {
        against.push(format!("{used_bytes} bytes are stored, {net} would have room"));
    }
    if after.hosts.len() < usize::from(cluster.copies) {
        against.push(format!("{} hosts would be left for {} copies of metadata", after.hosts.len(), cluster.copies));
    }
    let count = |drives: &[Drive]| {
        let takes = drives.iter().filter(|drive| drive.state == DriveState::Active);
        takes.map(|drive| drive.domain).collect::<BTreeSet<DomainId>>().len()
    };
    let (left, width) = (count(&after.drives), cluster.protection.width());
    if left < width.min(count(&now.drives)) {
        against.push(format!("{left} failure domains would be left, {} wants {width}", cluster.protection));
    }
    against
}

/// Begins to empty `host`, with all its drives; it is removed when it holds nothing any more. `abandoned`: it never comes
/// back, and what only it has is lost.
pub fn drain(coordinator: &dyn Coordinator, now: &Snapshot, host: &Host, abandoned: bool) -> Result<()> {
    // The host last: if this breaks off it is asked for once more, and goes on where it was.
    for drive in now.drives.iter().filter(|drive| drive.host == host.id) {
        removal::drain(coordinator, drive, abandoned)?;
    }
    set_host_state(coordinator, host.id, host.state, HostState::Draining)
}

/// The host called `name`, or numbered so, such as `h3`.
pub fn find<'a>(now: &'a Snapshot, name: &str) -> Result<&'a Host> {
    let numbered = |host: &&Host| format!("h{}", host.id.0) == name;
    let found = now.host(name).or_else(|| now.hosts.iter().find(numbered));
    found.ok_or_else(|| Error::new(ErrorKind::NotFound, format!("no host {name}: `braid cluster host` lists them")))
}

/// The cluster of `now`, which is there once a host serves.
pub fn cluster(now: &Snapshot) -> Result<&Cluster> {
    now.cluster.as_ref().ok_or_else(|| Error::new(ErrorKind::NotFound, "there is no cluster at this etcd"))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use braid_base::ErrorKind;
    use braid_base::ids::{DomainId, Guid, HostId};

    use super::{drain, find, objections, plan, record};
    use crate::capacity::OnDrives;
    use crate::coordinator::Coordinator;
    use crate::create::{self, Wish};
    use crate::embedded::Embedded;
    use crate::facts::{Candidate, DriveState, HostState, Offer};
    use crate::records::{self, Record};
    use crate::setup::{World, activate};
    use crate::snapshot::Snapshot;

    fn candidate(name: &str, domain: &str, size_bytes: u64) -> Candidate {
        let drives = vec![Offer { path: format!("/dev/{name}").into(), size_bytes }];
        Candidate { name: name.into(), addresses: vec![format!("{name}:14001")], domain: domain.into(), drives }
    }

    /// A cluster of the hosts `names`, whose drives are active, and others that wait.
    fn cluster(names: &[&str], waiting: &[Candidate]) -> (Embedded, Snapshot) {
        let store = Embedded::in_memory(Arc::new(|| 0)).expect("memory");
        let session = store.session(1_000).expect("a session");
        let all: Vec<Candidate> = names.iter().map(|name| candidate(name, name, 4 << 30)).collect();
        for each in all.iter().chain(waiting) {
            let txn = crate::coordinator::Txn::new();
            let value = records::encode(each).expect("JSON");
            store.txn(&txn.put_live(&each.key(), value, session)).expect("written");
        }
        let now = Snapshot::read(&store).expect("read");
        let wish = Wish { hosts: names.iter().map(|name| (*name).to_owned()).collect(), ..Wish::default() };
        let mut identity = || Guid([7; 16]);
        let world = World { identity: &mut identity, now_s: 5 };
        let founding = create::plan(&now, &wish, ("c".into(), "h".into()), world).expect("a plan");
        create::record(&store, &founding).expect("written");
        let now = Snapshot::read(&store).expect("read");
        activate(&store, &now.drives.iter().map(|drive| drive.id).collect::<Vec<_>>()).expect("active");
        let now = Snapshot::read(&store).expect("read");
        (store, now)
    }

    fn planned(
        now: &Snapshot,
        names: &[&str],
    ) -> braid_base::Result<Vec<(crate::facts::Host, Vec<crate::facts::Drive>)>> {
        let mut identity = || Guid([8; 16]);
        let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
        plan(now, &names, World { identity: &mut identity, now_s: 9 })
    }

    #[test]
    fn a_host_joins_with_its_drives_in_its_failure_domain() {
        let waiting = [candidate("d", "d", 4 << 30), candidate("e", "a", 4 << 30), candidate("tiny", "t", 1 << 20)];
        let (store, now) = cluster(&["a", "b", "c"], &waiting);
        let joined = record(&store, &planned(&now, &["d", "e"]).expect("a plan")).expect("written");
        assert_eq!(joined.iter().map(|host| host.id).collect::<Vec<_>>(), [HostId(4), HostId(5)]);
        let after = Snapshot::read(&store).expect("read");
        let drives: Vec<_> = after.drives[3..].iter().map(|d| (d.host.0, d.domain, d.state)).collect();
        let adding = DriveState::Adding;
        assert_eq!(drives, [(4, DomainId(3), adding), (5, after.drives[0].domain, adding)]);
        assert_eq!(planned(&after, &["d"]).map_err(|error| error.kind()), Err(ErrorKind::Exists));
        assert_eq!(planned(&after, &["nobody"]).map_err(|error| error.kind()), Err(ErrorKind::NotFound));
        assert_eq!(planned(&after, &["tiny"]).map_err(|error| error.kind()), Err(ErrorKind::Refused));
    }

    #[test]
    fn what_a_host_holds_must_have_room_elsewhere() {
        let (store, now) = cluster(&["a", "b", "c", "d", "e", "f", "g"], &[]);
        let of = |now: &Snapshot, used| objections(now, HostId(7), OnDrives { bytes: used, silent: 0 }, |bytes| bytes);
        assert_eq!(of(&now, 1 << 30), Vec::<String>::new());
        assert!(of(&now, 1 << 50)[0].contains("would have room"));
        drain(&store, &now, find(&now, "h7").expect("there"), false).expect("written");
        let now = Snapshot::read(&store).expect("read");
        assert_eq!((now.hosts[6].state, now.drives[6].state), (HostState::Draining, DriveState::Draining));
        let against = objections(&now, HostId(1), OnDrives::default(), |bytes| bytes);
        assert_eq!(against.len(), 1, "{against:?}");
        assert!(against[0].contains("5 failure domains"), "{against:?}");
        let (_, small) = cluster(&["a", "b", "c"], &[]);
        assert_eq!(
            objections(&small, HostId(1), OnDrives::default(), |bytes| bytes).len(),
            1,
            "a domain less than the coding wants"
        );
        assert_eq!(find(&now, "h9").map_err(|error| error.kind()), Err(ErrorKind::NotFound));
        assert_eq!(find(&now, "g").map(|host| host.id), Ok(HostId(7)));
    }
}
