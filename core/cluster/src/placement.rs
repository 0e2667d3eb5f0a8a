//! Which hosts a partition should have replicas on: the first one leads, if it can.
//!
//! One [`step`] at a time, so that what moves is little and what was decided can be undone by what happens next:
//!
//! 1. A seat on a host that has failed, or is to be emptied, goes to another one. That host makes a store, becomes a
//!    member, and then the old one goes: the replicas see to that (`replica/leave`).
//! 2. Partitions with fewer seats than copies wanted get more, as soon as there are hosts.
//! 3. When all is at rest, one seat moves from the host with most to the one with fewest, then one lead likewise.

use std::collections::{BTreeMap, BTreeSet};

use braid_base::ids::{HostId, PartitionId};

use crate::facts::{Host, HostState, Seats};
use crate::snapshot::Snapshot;

/// What to change now; none if all is as it should be, or nothing can be done.
pub fn step(now: &Snapshot) -> Vec<Seats> {
    let Some(cluster) = &now.cluster else { return Vec::new() };
    let plan = Plan::of(now, usize::from(cluster.copies));
    let moved = plan.fill();
    if !moved.is_empty() {
        return moved;
    }
    if !at_rest(now) {
        return Vec::new();
    }
    plan.level_seats().or_else(|| plan.level_leads()).into_iter().collect()
}

/// Every partition is served by its first host, or by any, with a copy on each that should have one, and all hosts run.
fn at_rest(now: &Snapshot) -> bool {
    let runs = now.hosts.iter().filter(|host| host.state == HostState::Active).all(|host| now.live.contains(&host.id));
    let whole = now.partitions.iter().all(|record| {
        let members: BTreeSet<HostId> = record.value.members.iter().map(|member| member.host).collect();
        let seats: BTreeSet<HostId> = now.seats.get(&record.value.id).into_iter().flatten().copied().collect();
        record.value.learners.is_empty() && members == seats && record.value.members.len() == members.len()
    });
    runs && whole
}

struct Plan<'a> {
    seats: &'a BTreeMap<PartitionId, Vec<HostId>>,
    /// Hosts that may keep what they have.
    stays: BTreeMap<HostId, &'a Host>,
    /// Those that may get more.
    takes: BTreeSet<HostId>,
    copies: usize,
}

impl<'a> Plan<'a> {
    fn of(now: &'a Snapshot, copies: usize) -> Self {
        let active = now.hosts.iter().filter(|host| host.state == HostState::Active);
        let stays: BTreeMap<HostId, &Host> = active.map(|host| (host.id, host)).collect();
        let takes = stays.keys().filter(|host| now.live.contains(host)).copied().collect();
        Self { seats: &now.seats, copies: copies.min(stays.len()), stays, takes }
    }

    /// How many seats each host has.
    fn load(&self, seats: &BTreeMap<PartitionId, Vec<HostId>>) -> BTreeMap<HostId, usize> {
        let mut load: BTreeMap<HostId, usize> = self.stays.keys().map(|host| (*host, 0)).collect();
        seats.values().flatten().for_each(|host| _ = load.entry(*host).and_modify(|count| *count += 1));
        load
    }

    /// How many of `hosts` fail together with `host`.
    fn together(&self, host: HostId, hosts: &[HostId]) -> usize {
        let domain = |host: &HostId| self.stays.get(host).map(|host| &host.domain);
        hosts.iter().filter(|other| domain(other).is_some() && domain(other) == domain(&host)).count()
    }

    /// Seats for the ones that hosts have lost, or never had.
    fn fill(&self) -> Vec<Seats> {
        let mut all = self.seats.clone();
        let mut changed = Vec::new();
        for (p, old) in self.seats {
            let (mut kept, mut left): (Vec<HostId>, Vec<HostId>) =
                old.iter().partition(|host| self.stays.contains_key(host));
            while kept.len() < self.copies {
                let load = self.load(&all);
                let free = self.takes.iter().filter(|host| !kept.contains(host));
                let best = free.min_by_key(|host| (self.together(**host, &kept), load[host], **host));
                let Some(best) = best.copied() else { break };
                kept.push(best);
                all.insert(*p, kept.clone());
            }
            // A host that should go keeps its seat while nobody can take it.
            let missing = self.copies.saturating_sub(kept.len());
            left.truncate(missing);
            kept.extend(left);
            if kept != *old {
                all.insert(*p, kept.clone());
                changed.push(seats(*p, &kept));
            }
        }
        changed
    }

    /// From the fullest host that can give to the emptiest that can take.
    fn level_seats(&self) -> Option<Seats> {
        let load = self.load(self.seats);
        let mut pairs: Vec<(HostId, HostId)> = Vec::new();
        for (from, most) in &load {
            let takes = load.iter().filter(|(to, fewest)| self.takes.contains(to) && *most >= **fewest + 2);
            pairs.extend(takes.map(|(to, _)| (*from, *to)));
        }
        pairs.sort_by_key(|(from, to)| (std::cmp::Reverse(load[from] - load[to]), *from, *to));
        pairs.into_iter().find_map(|(from, to)| self.moved(from, to))
    }

    /// A partition whose seat on `from` can go to `to`, and be as far from the others.
    fn moved(&self, from: HostId, to: HostId) -> Option<Seats> {
        self.seats.iter().find_map(|(p, hosts)| {
            let at = hosts.iter().position(|host| *host == from)?;
            let others: Vec<HostId> = hosts.iter().filter(|host| **host != from).copied().collect();
            let apart = self.together(to, &others) <= self.together(from, &others);
            let mut moved = hosts.clone();
            moved[at] = to;
            (!hosts.contains(&to) && apart).then(|| seats(*p, &moved))
        })
    }

    fn level_leads(&self) -> Option<Seats> {
        let mut leads: BTreeMap<HostId, usize> = self.stays.keys().map(|host| (*host, 0)).collect();
        let firsts = self.seats.values().filter_map(|hosts| hosts.first());
        firsts.for_each(|host| _ = leads.entry(*host).and_modify(|count| *count += 1));
        let count = |host: &HostId| leads.get(host).copied().unwrap_or_default();
        let better = self.seats.iter().filter_map(|(p, hosts)| {
            let first = hosts.first()?;
            let (at, to) = hosts.iter().enumerate().min_by_key(|(_, host)| count(host))?;
            (count(first) >= count(to) + 2).then_some((count(first) - count(to), *p, hosts, at))
        });
        let (_, p, hosts, at) = better.max_by_key(|(gain, p, ..)| (*gain, *p))?;
        let mut moved = hosts.clone();
        moved.swap(0, at);
        Some(seats(p, &moved))
    }
}

fn seats(p: PartitionId, hosts: &[HostId]) -> Seats {
    Seats { partition: p, hosts: hosts.iter().map(|host| host.0).collect() }
}

#[cfg(test)]
mod tests {
    use braid_base::ids::{Guid, HostId, PartitionId, Term};

    use super::step;
    use crate::coordinator::Revision;
    use crate::facts::{Cluster, Host, HostState, Member, Partition, Protection};
    use crate::records::Stored;
    use crate::snapshot::Snapshot;

    fn cluster(copies: u8) -> Cluster {
        Cluster {
            guid: Guid([1; 16]),
            name: "x".into(),
            created_s: 0,
            protection: Protection { data: 4, parity: 2 },
            shard_bytes: 1 << 20,
            partitions: 12,
            feature_level: 1,
            copies,
            client_secret: String::new(),
            host_secret: String::new(),
            authority: String::new(),
        }
    }

    fn host(id: u32, domain: &str) -> Host {
        let (name, domain) = (format!("h{id}"), domain.to_owned());
        Host { id: HostId(id), name, joined_s: 0, addresses: vec![], domain, state: HostState::Active }
    }

    /// Hosts `1..=hosts` in as many domains, 12 partitions on the first three.
    fn world(hosts: u32, copies: u8) -> Snapshot {
        let mut now = Snapshot {
            cluster: Some(cluster(copies)),
            hosts: (1..=hosts).map(|id| host(id, &id.to_string())).collect(),
            live: (1..=hosts).map(HostId).collect(),
            seats: (0..12).map(|p| (PartitionId(p), (1..=u32::from(copies)).map(HostId).collect())).collect(),
            ..Snapshot::default()
        };
        follow(&mut now);
        now
    }

    /// The replicas are where they should be.
    fn follow(now: &mut Snapshot) {
        let record = |(p, hosts): (&PartitionId, &Vec<HostId>)| {
            let members = hosts.iter().map(|host| Member { host: *host, store: Guid([host.0 as u8; 16]) }).collect();
            let value = Partition { id: *p, term: Term(1), primary: hosts.first().copied(), members, learners: vec![] };
            Stored { value, revision: Revision(1) }
        };
        now.partitions = now.seats.iter().map(record).collect();
    }

    /// Until nothing changes any more; how many seats moved.
    fn settle(now: &mut Snapshot) -> usize {
        for moved in 0..500 {
            let change = step(now);
            if change.is_empty() {
                return moved;
            }
            for seats in change {
                let hosts: Vec<HostId> = seats.hosts.into_iter().map(HostId).collect();
                now.seats.insert(seats.partition, hosts);
            }
            follow(now);
        }
        panic!("it goes on for ever: {:?}", now.seats);
    }

    fn counts(now: &Snapshot, which: impl Fn(&Vec<HostId>, HostId) -> bool) -> Vec<usize> {
        let of = |host: &Host| now.seats.values().filter(|hosts| which(hosts, host.id)).count();
        now.hosts.iter().filter(|host| host.state == HostState::Active).map(of).collect()
    }

    fn check(now: &Snapshot, copies: usize) {
        for hosts in now.seats.values() {
            let mut each = hosts.clone();
            each.sort_unstable();
            each.dedup();
            assert_eq!((each.len(), hosts.len()), (copies, copies), "{hosts:?}");
        }
    }

    #[test]
    fn hosts_that_join_get_their_part_of_replicas_and_leads() {
        let mut now = world(6, 3);
        settle(&mut now);
        check(&now, 3);
        assert_eq!(counts(&now, |hosts, host| hosts.contains(&host)), [6; 6]);
        assert_eq!(counts(&now, |hosts, host| hosts.first() == Some(&host)), [2; 6]);
    }

    #[test]
    fn what_a_lost_or_emptied_host_had_goes_to_others_at_once() {
        for state in [HostState::Failed, HostState::Draining] {
            let mut now = world(6, 3);
            settle(&mut now);
            now.hosts[2].state = state;
            if state == HostState::Failed {
                now.live.retain(|host| *host != HostId(3));
            }
            let first = step(&now);
            assert_eq!(first.len(), 6, "all that it had: {first:?}");
            settle(&mut now);
            check(&now, 3);
            assert!(now.seats.values().all(|hosts| !hosts.contains(&HostId(3))));
            let load = counts(&now, |hosts, host| hosts.contains(&host));
            assert!(load.iter().all(|count| (7..=8).contains(count)), "{load:?}");
        }
    }

    #[test]
    fn a_short_absence_moves_nothing_and_without_hosts_seats_stay() {
        let mut now = world(3, 3);
        now.live.retain(|host| *host != HostId(3));
        assert_eq!(step(&now), []);
        now.hosts[2].state = HostState::Failed;
        settle(&mut now);
        check(&now, 2); // as many as there are hosts
        now.hosts[2].state = HostState::Active;
        now.live.push(HostId(3));
        settle(&mut now);
        check(&now, 3);
        // Two hosts could take it, but do not run.
        let mut now = world(5, 3);
        now.hosts[0].state = HostState::Failed;
        now.live = vec![HostId(2), HostId(3)];
        let waits = vec![HostId(2), HostId(3), HostId(1)];
        settle(&mut now);
        assert!(now.seats.values().all(|hosts| *hosts == waits), "nobody can take its seats yet, and it does not lead");
    }

    #[test]
    fn it_comes_to_rest_whatever_happens_and_copies_stay_apart() {
        for seed in 0_u64..300 {
            let mut last = seed + 1;
            let mut below = |bound: u64| {
                last = last.wrapping_mul(0x5851_F42D_4C95_7F2D).wrapping_add(0x1405_7B7E_F767_814F);
                (last >> 33) % bound
            };
            let racks = 3 + below(3);
            let mut now = world(3 + below(8) as u32, 3);
            for (at, host) in now.hosts.iter_mut().enumerate() {
                host.domain = (at as u64 % racks).to_string();
            }
            for _ in 0..12 {
                let which = below(now.hosts.len() as u64) as usize;
                let id = now.hosts[which].id;
                let active = now.hosts.iter().filter(|host| host.state == HostState::Active).count();
                let state = &mut now.hosts[which].state;
                *state = match *state {
                    HostState::Active if active > 3 => HostState::Failed,
                    _ => HostState::Active,
                };
                let lives = *state == HostState::Active;
                now.live.retain(|host| *host != id);
                now.live.extend(lives.then_some(id));
                settle(&mut now);
                check(&now, 3);
                let load = counts(&now, |hosts, host| hosts.contains(&host));
                assert!(load.iter().all(|count| *count > 0), "seed {seed}: {load:?}");
                let domains = |hosts: &Vec<HostId>| {
                    let of = |id: &HostId| now.hosts.iter().find(|host| host.id == *id).map(|host| host.domain.clone());
                    hosts.iter().filter_map(of).collect::<std::collections::BTreeSet<_>>().len()
                };
                let active = now.hosts.iter().filter(|host| host.state == HostState::Active);
                let most = active.map(|host| &host.domain).collect::<std::collections::BTreeSet<_>>().len().min(3);
                assert!(most < 3 || now.seats.values().all(|hosts| domains(hosts) >= 2), "seed {seed}");
            }
        }
    }
}
