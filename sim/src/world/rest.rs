//! What an audit asks of the world.

use std::collections::BTreeMap;

use braid_base::Result;
use braid_base::ids::{Index, PartitionId};
use braid_base::keys::{self, Table};
use braid_meta::Partition;
use braid_replica::kv::map::MapKv;
use braid_replica::log::LogIdent;
use braid_replica::log::recover::{Expect, recover};
use braid_replica::{Applied, Kv};

use super::{CLUSTER, DriveNode, World};
use crate::board::{At, Node};

impl World {
    /// True if no task of the client runs and none is to be started.
    pub fn client_is_done(&self, client: u32) -> bool {
        self.exec.count(Node::Client(client)) == 0 && !self.dying.contains(&client) && !self.fallen.contains(&client)
    }

    /// All hosts lose power and start again.
    pub fn power_cycle(&mut self) {
        for host in 0..self.config.hosts {
            self.crash(host);
        }
        for host in 0..self.config.hosts {
            self.restart(host);
        }
    }

    /// True if no staged byte is left anywhere.
    pub fn is_destaged(&mut self) -> bool {
        let all: Vec<PartitionId> = self.homes.keys().copied().collect();
        all.into_iter().all(|p| self.served(p).is_some_and(|partition| partition.oldest_stage().is_none()))
    }

    /// True if no file data is left, no pack, and each drive that never lied has all its slots free.
    pub fn is_empty(&mut self) -> bool {
        let bad = self.config.faults.bad_drives.clone();
        let free = self.drives.iter().enumerate().all(|(id, drive)| {
            let all = |target: &braid_drive::Target| target.stat().free == target.stat().slots;
            bad.contains(&(id as u32)) || drive.target.as_ref().is_some_and(all)
        });
        let all: Vec<PartitionId> = self.homes.keys().copied().collect();
        // A drive that lies may never confirm that a shard is gone.
        let none = |partition: &mut Partition| {
            let status = partition.state_mut().data_status();
            let packs = status.creating + status.open + status.sealed;
            let dead = if bad.is_empty() { status.dead } else { 0 };
            packs + dead + status.orphans == 0 && status.staged_bytes + status.used_bytes + status.live_bytes == 0
        };
        free && all.into_iter().all(|p| self.served(p).is_some_and(none))
    }

    /// Packs, moves and free slots, for people.
    pub fn status(&mut self) -> String {
        let mut lines = Vec::new();
        for node in self.hosts.iter_mut().flat_map(|host| host.seats.values_mut()) {
            let status = node.seat.partition().map(|partition| partition.state_mut().data_status());
            let (stat, replica) = (node.seat.stat(), node.seat.replica());
            lines.push(format!("{stat:?} {} {:?} {status:?}", replica.term(), replica.config()));
        }
        lines.extend(self.drives.iter().filter_map(|drive| Some(format!("{:?}", drive.target.as_ref()?.stat()))));
        lines.join("; ")
    }

    /// True if no operation that spans partitions is under way and no note is owed.
    pub fn is_finished(&mut self) -> bool {
        let open = |p: PartitionId, table: Table| {
            let (prefix, mut any) = (keys::table(p, table), false);
            let scanned = self.kv_of(p).scan(&prefix, &keys::prefix_end(&prefix), &mut |_, _| {
                any = true;
                false
            });
            any || scanned.is_err()
        };
        let tables = [Table::Pending, Table::Outcome, Table::Outbox];
        (0..self.config.partitions).all(|p| tables.iter().all(|table| !open(PartitionId(p), *table)))
    }

    /// The view that holds partition `p`, where it is served.
    pub fn kv_of(&self, p: PartitionId) -> &MapKv {
        &self.hosts[self.homes[&p] as usize].kv
    }

    /// Partition `p`, if somebody serves it.
    fn served(&mut self, p: PartitionId) -> Option<&mut Partition> {
        let home = self.home(p);
        self.seat(home)?.seat.partition()
    }

    /// True if all members of all partitions hold the same view; errors: what two of them hold is not the same.
    pub fn is_even(&self) -> std::result::Result<bool, String> {
        let mut even = true;
        for (p, register) in &self.registers {
            let mut first = None;
            for at in self.replicas(*p).filter(|at| register.has(super::store::member(*at).store)) {
                let kv = &self.hosts[at.host as usize].kv;
                let applied = Applied::read(kv.as_ref(), *p).map_err(|error| error.to_string())?;
                let rows = rows(kv, *p);
                match &first {
                    None => first = Some((at, applied, rows)),
                    Some((_, before, _)) if before.index != applied.index => even = false,
                    Some((other, before, same)) if (before, same) != (&applied, &rows) => {
                        return Err(format!("I5: {at} and {other} differ at {}", applied.index));
                    }
                    Some(_) => {}
                }
            }
        }
        Ok(even)
    }

    /// The drives.
    pub fn drives(&self) -> &[DriveNode] {
        &self.drives
    }

    /// The first entry that each partition's log on disk holds, read as after a power loss.
    pub fn log_firsts(&self) -> Result<BTreeMap<PartitionId, Index>> {
        let mut firsts = BTreeMap::new();
        for (p, host) in &self.homes {
            let h = &self.hosts[*host as usize];
            let applied = Applied::read(self.kv_of(*p), *p)?;
            let ident = LogIdent {
                cluster: CLUSTER,
                partition: *p,
                store: super::store::member(At { host: *host, p: *p }).store,
            };
            let expect = Expect { applied: (applied.term, applied.index), ..Expect::default() };
            let recovered = recover(&h.log_of(*p), &ident, expect, &mut |_| Ok(()))?;
            firsts.insert(*p, recovered.first);
        }
        Ok(firsts)
    }

    /// Takes as many drives away as a pack can lose, those first that lied.
    pub fn lose_drives(&mut self) -> Vec<u32> {
        let mut lost = self.config.faults.bad_drives.clone();
        while lost.len() < usize::from(self.config.parity) {
            let drive = self.rng.below(u64::from(self.config.drives)) as u32;
            if !lost.contains(&drive) {
                lost.push(drive);
            }
        }
        lost.iter().for_each(|drive| self.kill_drive(*drive));
        lost
    }
}

/// All rows of partition `p`.
fn rows(kv: &MapKv, p: PartitionId) -> Vec<(Vec<u8>, Vec<u8>)> {
    let (first, mut rows) = (keys::partition(p), Vec::new());
    let scanned = kv.scan(&first, &keys::prefix_end(&first), &mut |key, value| {
        rows.push((key.to_vec(), value.to_vec()));
        true
    });
    debug_assert!(scanned.is_ok(), "a view in memory does not fail");
    rows
}
