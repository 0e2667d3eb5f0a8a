//! Making a cluster of several hosts: which of those that wait are taken, with which drives, and where the replicas of
//! each partition begin. Pure but for [`record`], which writes the cluster's own record last: hosts begin when they see it.

use std::collections::BTreeMap;

use braid_base::ids::{DomainId, DriveId, Guid, HostId, PartitionId};
use braid_base::{Error, ErrorKind, Result};

use crate::coordinator::{Coordinator, Txn};
use crate::facts::{Candidate, Cluster, Drive, DriveState, FEATURE_LEVEL, Host, HostState, Protection, Seats};
use crate::groups;
use crate::guard;
use crate::names::check_name;
use crate::partitions::{self, founding as unless_founded};
use crate::records::{self, Record};
use crate::setup::{World, bounds, clear_leftovers, number};
use crate::snapshot::Snapshot;

/// Most hosts named in one command.
const HOSTS_MAX: usize = 4096;
/// Replicas of a partition, at most: as many losses as any coding survives, and one.
const COPIES_MAX: u8 = 5;

/// What the administrator asked for; none = not said.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Wish {
    /// Name of the cluster.
    pub name: Option<String>,
    /// The hosts, by name.
    pub hosts: Vec<String>,
    /// Coding.
    pub protection: Option<Protection>,
    /// Number of partitions.
    pub partitions: Option<u16>,
    /// Replicas of each.
    pub copies: Option<u8>,
}

/// What to write.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Founding {
    /// The cluster.
    pub cluster: Cluster,
    /// Its hosts, not numbered yet, each with its drives.
    pub hosts: Vec<(Host, Vec<Drive>)>,
    /// For each partition: which of the hosts.
    pub seats: Vec<Vec<usize>>,
    /// What the administrator should know.
    pub warnings: Vec<String>,
}

/// What to write for a `wish`, by what the coordinator holds. `secrets`: what clients, and hosts, will have to know. The
/// cluster has no authority yet: whoever can make one adds it.
///
/// `Refused`, `Invalid`, `NotFound` or `Exists` with one line that names the thing and the way out.
pub fn plan(now: &Snapshot, wish: &Wish, secrets: (String, String), world: World<'_>) -> Result<Founding> {
    let World { identity, now_s } = world;
    if let Some(cluster) = &now.cluster {
        let words = format!(
            "cluster {} is there already: `braid cluster add HOST` adds hosts to it; another cluster at the same etcd \
             needs a name of its own (--name here, --cluster for its hosts)",
            cluster.name
        );
        return Err(Error::new(ErrorKind::Exists, words));
    }
    if let Some(fence) = &now.fence {
        return Err(guard::refusal(fence));
    }
    let name = wish.name.clone().unwrap_or("braid".to_owned());
    check_name("cluster", &name)?;
    let chosen = chosen(now, &wish.hosts)?;
    let numbers = domains(&chosen);
    let drives: usize = chosen.iter().map(|host| host.drives.len()).sum();
    let protection = wish.protection.unwrap_or(bounds::default_protection(numbers.len()));
    bounds::protection(protection, drives)?;
    let mut warnings = Vec::new();
    if protection.width() > numbers.len() {
        let (width, count) = (protection.width(), numbers.len());
        warnings
            .push(format!("{protection} wants {width} failure domains, there are {count}: new data is protected less"));
    }
    let copies = wish.copies.unwrap_or(protection.parity + 1).min(u8::try_from(chosen.len()).unwrap_or(u8::MAX));
    if !(1..=COPIES_MAX).contains(&copies) {
        let words = format!("1 to {COPIES_MAX} metadata copies expected, found {copies}");
        return Err(Error::new(ErrorKind::Invalid, words));
    }
    if let Some(asked) = wish.copies.filter(|asked| *asked > copies) {
        let words = format!("{asked} metadata copies need as many hosts, found {copies}: name more hosts");
        return Err(Error::new(ErrorKind::Refused, words));
    }
    if copies <= protection.parity {
        warnings.push(format!("{copies} metadata copies survive the loss of {} hosts only", copies - 1));
    }
    let partitions = wish.partitions.unwrap_or((2 * chosen.len()).clamp(4, 64) as u16);
    bounds::partitions(partitions)?;
    let smallest_bytes = chosen.iter().flat_map(|host| &host.drives).map(|drive| drive.size_bytes).min().unwrap_or(0);
    bounds::slots(smallest_bytes, partitions)?;
    let hosts =
        chosen.iter().map(|candidate| host(candidate, &numbers, identity, now_s)).collect::<Result<Vec<_>>>()?;
    let order = interleaved(&chosen);
    if usize::from(copies) > numbers.len() {
        warnings.push(format!("{copies} metadata copies share {} failure domains: some fall together", numbers.len()));
    }
    let place = |p: usize| seats(&chosen, &order, p, usize::from(copies));
    let cluster = Cluster {
        guid: identity(),
        name,
        created_s: now_s,
        protection,
        shard_bytes: bounds::shard_bytes(smallest_bytes),
        partitions,
        feature_level: FEATURE_LEVEL,
        copies,
        client_secret: secrets.0,
        host_secret: secrets.1,
        authority: String::new(),
    };
    Ok(Founding { cluster, hosts, seats: (0..usize::from(partitions)).map(place).collect(), warnings })
}

/// The candidates that were named.
pub(crate) fn chosen<'a>(now: &'a Snapshot, hosts: &[String]) -> Result<Vec<&'a Candidate>> {
    if !(1..=HOSTS_MAX).contains(&hosts.len()) {
        let words = format!("1 to {HOSTS_MAX} hosts expected, found {}", hosts.len());
        return Err(Error::new(ErrorKind::Invalid, words));
    }
    let mut chosen = Vec::new();
    for (at, name) in hosts.iter().enumerate() {
        if hosts[..at].contains(name) {
            return Err(Error::new(ErrorKind::Invalid, format!("host {name} is named twice: name each once")));
        }
        let Some(candidate) = now.candidates.iter().find(|candidate| candidate.name == *name) else {
            let waiting: Vec<&str> = now.candidates.iter().map(|candidate| candidate.name.as_str()).collect();
            let waiting = if waiting.is_empty() { "none".to_owned() } else { waiting.join(", ") };
            let words = format!(
                "host {name} does not wait at this etcd ({waiting} do): start `braid backend` there, or see --name"
            );
            return Err(Error::new(ErrorKind::NotFound, words));
        };
        if candidate.drives.is_empty() {
            let words = format!("host {name} brings no drives: say --drive or --drives to its `braid backend`");
            return Err(Error::new(ErrorKind::Refused, words));
        }
        for drive in &candidate.drives {
            bounds::drive_bytes(&drive.path, drive.size_bytes).map_err(|e| e.within(format!("host {name}")))?;
        }
        if let Some(other) = chosen.iter().find(|other: &&&Candidate| other.addresses == candidate.addresses) {
            let (other, at) = (&other.name, candidate.addresses.join(", "));
            let words = format!("hosts {other} and {name} both say that they listen at {at}: see --listen");
            return Err(Error::new(ErrorKind::Refused, words));
        }
        chosen.push(candidate);
    }
    Ok(chosen)
}

/// Numbers of the failure domains, by name.
fn domains(chosen: &[&Candidate]) -> BTreeMap<String, u16> {
    let mut numbers = BTreeMap::new();
    for candidate in chosen {
        let next = numbers.len() as u16;
        numbers.entry(candidate.domain.clone()).or_insert(next);
    }
    numbers
}

pub(crate) fn host(
    candidate: &Candidate,
    numbers: &BTreeMap<String, u16>,
    identity: &mut dyn FnMut() -> Guid,
    now_s: u64,
) -> Result<(Host, Vec<Drive>)> {
    let Candidate { name, addresses, domain, drives } = candidate.clone();
    let number = numbers.get(&domain).copied().unwrap_or_default();
    let drives = drives.into_iter().map(|offer| Drive {
        id: DriveId(0),
        uuid: identity(),
        host: HostId(0),
        path: offer.path,
        size_bytes: offer.size_bytes,
        domain: DomainId(number),
        state: DriveState::Adding,
        abandoned: false,
    });
    let drives = drives.collect();
    let state = HostState::Active;
    Ok((Host { id: HostId(0), name, joined_s: now_s, addresses, domain, state }, drives))
}

/// The hosts in an order in which neighbours are of different failure domains, as far as that can be.
fn interleaved(chosen: &[&Candidate]) -> Vec<usize> {
    let mut of: BTreeMap<&str, Vec<usize>> = BTreeMap::new();
    for (at, candidate) in chosen.iter().enumerate().rev() {
        of.entry(&candidate.domain).or_default().push(at);
    }
    let mut order = Vec::new();
    while order.len() < chosen.len() {
        order.extend(of.values_mut().filter_map(Vec::pop));
    }
    order
}

/// Hosts for the `copies` of partition `p`: in turns, and of different failure domains as far as there are any.
fn seats(chosen: &[&Candidate], order: &[usize], p: usize, copies: usize) -> Vec<usize> {
    let turn = (0..order.len()).map(|i| order[(p + i) % order.len()]);
    let mut left: Vec<usize> = turn.collect();
    let mut taken: Vec<usize> = Vec::new();
    while taken.len() < copies && !left.is_empty() {
        let shared = |host: usize| taken.iter().filter(|other| chosen[**other].domain == chosen[host].domain).count();
        let best = (0..left.len()).min_by_key(|at| (shared(left[*at]), *at)).unwrap_or_default();
        taken.push(left.remove(best));
    }
    taken
}

/// Writes it, the cluster's record last.
pub fn record(coordinator: &dyn Coordinator, founding: &Founding) -> Result<()> {
    clear_leftovers(coordinator)?;
    let mut ids = Vec::new();
    for (host, drives) in &founding.hosts {
        let id = HostId(number(coordinator, "host")?);
        let host = Host { id, ..host.clone() };
        unless_founded(coordinator, Txn::new().put(&host.key(), records::encode(&host)?))?;
        for drive in drives {
            let drive = Drive { id: DriveId(number(coordinator, "drive")?), host: id, ..drive.clone() };
            unless_founded(coordinator, Txn::new().put(&drive.key(), records::encode(&drive)?))?;
        }
        ids.push(id.0);
    }
    partitions::found(coordinator, founding.cluster.partitions)?;
    for (p, hosts) in founding.seats.iter().enumerate() {
        let partition = PartitionId(p as u16);
        let seats = Seats { partition, hosts: hosts.iter().map(|at| ids[*at]).collect() };
        unless_founded(coordinator, Txn::new().put(&seats.key(), records::encode(&seats)?))?;
    }
    groups::add(coordinator, &groups::default_spec())?;
    records::create(coordinator, &founding.cluster).map(|_| ())
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use braid_base::ids::{Guid, HostId};
    use braid_base::{ErrorKind, Result};

    use super::{Founding, Wish, plan, record};
    use crate::coordinator::Coordinator;
    use crate::embedded::Embedded;
    use crate::facts::{Candidate, DriveState, Offer, Protection};
    use crate::records;
    use crate::setup::World;
    use crate::snapshot::Snapshot;

    fn candidate(name: &str, domain: &str, drives: usize) -> Candidate {
        let offer = |n| Offer { path: format!("/dev/{name}{n}").into(), size_bytes: 4 << 30 };
        let addresses = vec![format!("10.0.0.{}:14001", name.len())];
        Candidate { name: name.into(), addresses, domain: domain.into(), drives: (0..drives).map(offer).collect() }
    }

    fn planned(candidates: &[Candidate], wish: &Wish) -> Result<Founding> {
        let now = Snapshot { candidates: candidates.to_vec(), ..Snapshot::default() };
        let mut last = 0;
        let mut identity = || {
            last += 1;
            Guid([last; 16])
        };
        plan(&now, wish, ("c".to_owned(), "h".to_owned()), World { identity: &mut identity, now_s: 5 })
    }

    fn six() -> Vec<Candidate> {
        (1..=6).map(|n| candidate(&"h".repeat(n), &"h".repeat(n), 1)).collect()
    }

    fn wish(candidates: &[Candidate]) -> Wish {
        Wish { hosts: candidates.iter().map(|c| c.name.clone()).collect(), ..Wish::default() }
    }

    #[test]
    fn six_hosts_are_four_and_two_with_three_copies() {
        let founding = planned(&six(), &wish(&six())).expect("a plan");
        assert_eq!((founding.cluster.protection.to_string(), founding.cluster.copies), ("4+2".to_owned(), 3));
        assert_eq!((founding.cluster.partitions, founding.warnings.len()), (12, 0));
        let mut load = [0; 6];
        for hosts in &founding.seats {
            assert_eq!(hosts.len(), 3);
            assert!(hosts[0] != hosts[1] && hosts[1] != hosts[2] && hosts[0] != hosts[2]);
            hosts.iter().for_each(|host| load[*host] += 1);
        }
        assert_eq!(load, [6; 6]);
    }

    #[test]
    fn copies_lie_in_different_racks_where_that_can_be() {
        let racks = ["a", "a", "b", "b", "c", "c"];
        let hosts: Vec<Candidate> = racks.iter().zip(1..).map(|(rack, n)| candidate(&"h".repeat(n), rack, 2)).collect();
        let founding = planned(&hosts, &wish(&hosts)).expect("a plan");
        assert_eq!(founding.cluster.protection, Protection { data: 2, parity: 1 }, "as wide as three racks allow");
        for seats in &founding.seats {
            assert_eq!(seats.len(), 2);
            assert_ne!(racks[seats[0]], racks[seats[1]]);
        }
        let asked = Wish { protection: Some(Protection { data: 4, parity: 2 }), ..wish(&hosts) };
        let founding = planned(&hosts, &asked).expect("more than there are racks");
        assert_eq!(founding.warnings.len(), 1, "{:?}", founding.warnings);
        assert!(founding.seats.iter().all(|s| racks[s[0]] != racks[s[1]] && racks[s[1]] != racks[s[2]]));
    }

    #[test]
    fn no_rack_has_two_copies_while_another_has_none() {
        let racks = ["a", "a", "a", "b", "c"];
        let hosts: Vec<Candidate> = racks.iter().zip(1..).map(|(rack, n)| candidate(&"h".repeat(n), rack, 2)).collect();
        let wish = Wish { copies: Some(3), partitions: Some(10), ..wish(&hosts) };
        for seats in planned(&hosts, &wish).expect("a plan").seats {
            let mut found: Vec<&str> = seats.iter().map(|host| racks[*host]).collect();
            found.sort_unstable();
            assert_eq!(found, ["a", "b", "c"]);
        }
    }

    #[test]
    fn what_does_not_fit_is_refused_with_the_way_out() {
        let refused = |candidates: &[Candidate], wish: &Wish| {
            let error = planned(candidates, wish).expect_err("refused");
            (error.kind(), error.message().to_owned())
        };
        let (kind, words) = refused(&six(), &Wish { hosts: vec!["x".into()], ..Wish::default() });
        assert_eq!(kind, ErrorKind::NotFound);
        assert!(words.contains("host x") && words.contains("h, hh, hhh"), "{words}");
        assert_eq!(refused(&six(), &Wish::default()).0, ErrorKind::Invalid);
        assert_eq!(refused(&six(), &Wish { hosts: vec!["h".into(); 2], ..Wish::default() }).0, ErrorKind::Invalid);
        let mut bare = six();
        bare[2].drives.clear();
        assert!(refused(&bare, &wish(&bare)).1.contains("brings no drives"));
        let mut same = six();
        same[3].addresses.clone_from(&six()[0].addresses);
        assert!(refused(&same, &wish(&same)).1.contains("both say"));
        assert_eq!(refused(&six()[..2], &Wish { copies: Some(3), ..wish(&six()[..2]) }).0, ErrorKind::Refused);
        let wide = Wish { protection: Some(Protection { data: 8, parity: 2 }), ..wish(&six()) };
        assert_eq!(refused(&six(), &wide).0, ErrorKind::Refused);
    }

    #[test]
    fn what_is_written_is_read_as_it_was_planned() {
        let store = Embedded::in_memory(Arc::new(|| 0)).expect("memory");
        let session = store.session(1_000).expect("a session");
        for candidate in six() {
            let (key, value) = (Candidate::key_of(&candidate.name), records::encode(&candidate).expect("JSON"));
            store.txn(&crate::coordinator::Txn::new().put_live(&key, value, session)).expect("written");
        }
        let now = Snapshot::read(&store).expect("read");
        assert_eq!(now.candidates, six());
        let mut identity = || Guid([7; 16]);
        let world = World { identity: &mut identity, now_s: 5 };
        let founding = plan(&now, &wish(&six()), ("c".to_owned(), "h".to_owned()), world).expect("a plan");
        record(&store, &founding).expect("written");
        let now = Snapshot::read(&store).expect("read");
        assert_eq!(now.cluster, Some(founding.cluster));
        assert_eq!((now.hosts.len(), now.drives.len(), now.partitions.len(), now.seats.len()), (6, 6, 12, 12));
        assert!(now.drives.iter().all(|drive| drive.state == DriveState::Adding && drive.host.0 == drive.id.0));
        assert_eq!(now.host("hhh").map(|host| host.id), Some(HostId(3)));
        let map = now.map();
        assert_eq!((map.hosts.len(), map.primaries.len(), map.drives.len()), (6, 12, 0), "no drive is formatted");
    }
}
