//! What an audit asks of the world.

use std::collections::BTreeMap;

use braid_base::Result;
use braid_base::ids::{Index, PartitionId};
use braid_base::keys::{self, Table};
use braid_replica::kv::map::MapKv;
use braid_replica::log::LogIdent;
use braid_replica::log::recover::{Expect, recover};
use braid_replica::{Applied, Kv};

use super::{CLUSTER, DriveNode, SeatNode, World};
use crate::board::Node;

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
        self.hosts
            .iter_mut()
            .flat_map(|host| host.seats.values_mut())
            .all(|node| node.seat.partition().oldest_stage().is_none())
    }

    /// True if no file data is left, no pack, and each drive that never lied has all its slots free.
    pub fn is_empty(&mut self) -> bool {
        let bad = self.config.faults.bad_drives.clone();
        let free = self.drives.iter().enumerate().all(|(id, drive)| {
            let all = |target: &braid_drive::Target| target.stat().free == target.stat().slots;
            bad.contains(&(id as u32)) || drive.target.as_ref().is_some_and(all)
        });
        let mut seats = self.hosts.iter_mut().flat_map(|host| host.seats.values_mut());
        // A drive that lies may never confirm that a shard is gone.
        let none = |node: &mut SeatNode| {
            let status = node.seat.partition().state_mut().data_status();
            let packs = status.creating + status.open + status.sealed;
            let dead = if bad.is_empty() { status.dead } else { 0 };
            packs + dead + status.orphans == 0 && status.staged_bytes + status.used_bytes + status.live_bytes == 0
        };
        free && seats.all(none)
    }

    /// Packs, moves and free slots, for people.
    pub fn status(&mut self) -> String {
        let seats = self.hosts.iter_mut().flat_map(|host| &mut host.seats);
        let mut lines: Vec<String> =
            seats.map(|(p, node)| format!("{p}: {:?}", node.seat.partition().state_mut().data_status())).collect();
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

    /// The view that holds partition `p`.
    pub fn kv_of(&self, p: PartitionId) -> &MapKv {
        &self.hosts[self.homes[&p] as usize].kv
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
            let ident = LogIdent { cluster: CLUSTER, partition: *p, store: super::store::member(*host, *p).store };
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
