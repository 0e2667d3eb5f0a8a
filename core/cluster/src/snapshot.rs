//! All facts of a cluster of several hosts, as of one revision.

use std::collections::{BTreeMap, BTreeSet};

use braid_base::Result;
use braid_base::ids::{HostId, PartitionId};
use braid_base::msg::host::Map;

use crate::capacity;
use crate::coordinator::{Coordinator, Item, Revision};
use crate::facts::{
    Candidate, Cluster, Drive, DriveState, Fence, Filesystem, Group, Host, HostState, Incarnation, Live, ObjectStore,
    Partition, Seats, Settings, Store,
};
use crate::records::{self, Record, Stored};

/// Bits of a map's version for the revision: before them stands the incarnation of etcd, in which revisions begin anew.
const REVISION_BITS: u32 = 44;

/// What the coordinator holds.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Snapshot {
    /// As of when.
    pub revision: Revision,
    /// How often it was recovered.
    pub incarnation: Incarnation,
    /// Why nothing may be changed, if so.
    pub fence: Option<Fence>,
    /// The cluster, if there is one.
    pub cluster: Option<Cluster>,
    /// Hosts that would like to be in it, or wait for it to begin.
    pub candidates: Vec<Candidate>,
    /// Its hosts, ordered by number, without the removed ones.
    pub hosts: Vec<Host>,
    /// Those whose processes run.
    pub live: Vec<HostId>,
    /// Its drives, ordered by number, without the removed ones.
    pub drives: Vec<Drive>,
    /// Its partitions, in order.
    pub partitions: Vec<Stored<Partition>>,
    /// Where their replicas should be.
    pub seats: BTreeMap<PartitionId, Vec<HostId>>,
    /// The stores that hosts have made for them.
    pub stores: Vec<Store>,
    /// Its file systems, ordered by number.
    pub filesystems: Vec<Filesystem>,
    /// Its object stores, ordered by number.
    pub object_stores: Vec<ObjectStore>,
    /// Its groups of file systems, ordered by name.
    pub groups: Vec<Group>,
    /// What was set for all of it.
    pub settings: Settings,
}

/// The incarnation and the revision that a map of this version shows.
pub fn seen_at(version: u64) -> (u64, Revision) {
    (version >> REVISION_BITS, Revision(version & ((1 << REVISION_BITS) - 1)))
}

impl Snapshot {
    /// Reads all of it. A record of a newer release, or a damaged one, is the error.
    pub fn read(coordinator: &dyn Coordinator) -> Result<Self> {
        let listing = coordinator.range("")?;
        let mut all = Self { revision: listing.revision, ..Self::default() };
        for item in &listing.items {
            all.take(item)?;
        }
        all.drives.retain(|drive| drive.state != DriveState::Removed);
        all.hosts.retain(|host| host.state != HostState::Removed);
        Ok(all)
    }

    fn take(&mut self, item: &Item) -> Result<()> {
        fn of<T: Record>(item: &Item) -> Option<Result<T>> {
            let own = if T::PREFIX == Cluster::KEY { item.key == T::PREFIX } else { item.key.starts_with(T::PREFIX) };
            own.then(|| records::decode(&item.key, &item.value))
        }
        if let Some(cluster) = of::<Cluster>(item) {
            self.cluster = Some(cluster?);
        } else if let Some(candidate) = of::<Candidate>(item) {
            self.candidates.push(candidate?);
        } else if let Some(host) = of::<Host>(item) {
            self.hosts.push(host?);
        } else if let Some(live) = of::<Live>(item) {
            self.live.push(live?.host);
        } else if let Some(drive) = of::<Drive>(item) {
            self.drives.push(drive?);
        } else if let Some(partition) = of::<Partition>(item) {
            self.partitions.push(Stored { value: partition?, revision: item.modified });
        } else if let Some(seats) = of::<Seats>(item) {
            let Seats { partition, hosts } = seats?;
            self.seats.insert(partition, hosts.into_iter().map(HostId).collect());
        } else if let Some(store) = of::<Store>(item) {
            self.stores.push(store?);
        } else if let Some(fs) = of::<Filesystem>(item) {
            self.filesystems.push(fs?);
        } else if let Some(store) = of::<ObjectStore>(item) {
            self.object_stores.push(store?);
        } else if let Some(group) = of::<Group>(item) {
            self.groups.push(group?);
        } else if let Some(settings) = of::<Settings>(item) {
            self.settings = settings?;
        } else if let Some(incarnation) = of::<Incarnation>(item) {
            self.incarnation = incarnation?;
        } else if let Some(fence) = of::<Fence>(item) {
            self.fence = Some(fence?);
        }
        Ok(())
    }

    /// The host called `name`.
    pub fn host(&self, name: &str) -> Option<&Host> {
        self.hosts.iter().find(|host| host.name == name)
    }

    /// Everything that keeps a host which is to be emptied in the cluster: what is still there of it.
    pub fn holds(&self, host: HostId) -> usize {
        let seats = self.seats.values().filter(|hosts| hosts.contains(&host)).count();
        let drives = self.drives.iter().filter(|drive| drive.host == host).count();
        let stores = self.stores.iter().filter(|store| store.host == host && self.is_member(store)).count();
        seats + drives + stores
    }

    /// Whether a configuration names this store.
    pub fn is_member(&self, store: &Store) -> bool {
        let names = |partition: &Partition| {
            partition.id == store.partition && partition.members.iter().any(|member| member.store == store.store)
        };
        self.partitions.iter().any(|record| names(&record.value))
    }

    /// Whether `p` has a member on each of its seats, and as many as it should have: then it needs no other.
    pub fn is_staffed(&self, p: PartitionId) -> bool {
        let active = self.hosts.iter().filter(|host| host.state == HostState::Active).count();
        let copies = self.cluster.as_ref().map_or(0, |cluster| usize::from(cluster.copies)).min(active);
        let Some(seats) = self.seats.get(&p).filter(|seats| seats.len() >= copies) else { return false };
        let member = |host: &HostId| self.store(p, *host).is_some_and(|store| self.is_member(store));
        seats.iter().all(member)
    }

    /// Whether `p` has a member on each of its seats but that of `host`, and on one at least: then nobody needs what `host`
    /// has of it, unless that is a member, too.
    pub fn is_staffed_without(&self, p: PartitionId, host: HostId) -> bool {
        let member = |host: &HostId| self.store(p, *host).is_some_and(|store| self.is_member(store));
        let others: Vec<&HostId> = self.seats.get(&p).into_iter().flatten().filter(|seat| **seat != host).collect();
        // With fewer seats than there should be copies (a host has failed) each copy may be the last one.
        !others.is_empty() && others.len() + 1 >= self.copies() && others.into_iter().all(member)
    }

    /// How many hosts should hold each partition: as many as were wanted, as far as there are hosts that stay.
    pub fn copies(&self) -> usize {
        let stay = self.hosts.iter().filter(|host| host.state != HostState::Draining).count();
        self.cluster.as_ref().map_or(0, |cluster| usize::from(cluster.copies)).min(stay)
    }

    /// The store that `host` has made for `p`.
    pub fn store(&self, p: PartitionId, host: HostId) -> Option<&Store> {
        self.stores.iter().find(|store| store.partition == p && store.host == host)
    }

    /// Bytes that users can store, if `raw_of` says how many data bytes a drive of so many bytes has.
    pub fn net_bytes(&self, raw_of: impl Fn(u64) -> u64) -> u64 {
        self.net_with(usize::from(self.settings.spares), raw_of)
    }

    /// The same, if the room of so many failure domains were kept free.
    pub fn net_with(&self, spares: usize, raw_of: impl Fn(u64) -> u64) -> u64 {
        let Some(cluster) = &self.cluster else { return 0 };
        let counts = |drive: &&Drive| matches!(drive.state, DriveState::Adding | DriveState::Active);
        let drives: Vec<&Drive> = self.drives.iter().filter(counts).collect();
        let domains: BTreeSet<u16> = drives.iter().map(|drive| drive.domain.0).collect();
        let raw = drives.iter().map(|drive| raw_of(drive.size_bytes)).sum();
        capacity::net_bytes(raw, cluster.protection, domains.len(), spares)
    }

    /// Where everything is, for those who do not ask the coordinator.
    pub fn map(&self) -> Map {
        // One that failed may be back.
        let serves = |drive: &&Drive| drive.state != DriveState::Adding;
        Map {
            version: self.incarnation.number << REVISION_BITS | self.revision.0,
            hosts: self.hosts.iter().map(|host| (host.id, host.addresses.clone())).collect(),
            primaries: self.partitions.iter().map(|partition| partition.value.primary).collect(),
            drives: self.drives.iter().filter(serves).map(|drive| (drive.id, drive.host)).collect(),
        }
    }
}
