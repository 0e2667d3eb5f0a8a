//! What an audit asks of the world.

use std::collections::BTreeMap;

use braid_base::Result;
use braid_base::codec::Writer;
use braid_base::ids::{Index, PartitionId};
use braid_base::keys::{self, Table};
use braid_base::record::{Place, Record, SliceRec};
use braid_meta::Partition;
use braid_replica::log::LogIdent;
use braid_replica::log::recover::{Expect, recover};
use braid_replica::{Applied, Batch, Kv};

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

    /// The views of a host are as a release before would have left them: with the rows of staged slices in the engine, and
    /// without a word about the log.
    pub(super) fn put_back(&self, host: u32) {
        let h = &self.hosts[host as usize];
        for (p, node) in &h.seats {
            let Ok(applied) = Applied::read(node.seat.view(), *p) else { continue };
            let mut batch = Batch::new();
            for (key, value) in rows(node.seat.view(), *p) {
                if keys::is_slice(&key) {
                    batch.put(key, value);
                }
            }
            let mut row = Writer::new();
            row.put_u8(1).put_u64(applied.term.0).put_u64(applied.index.0).put_u64(applied.hash);
            batch.put(Applied::key(*p), row.finish());
            // Without room it stays as it is.
            if applied.index > Index(0) && h.kv.apply(&batch).is_ok() {
                self.note(|| format!("h{host} has the view of {p} as a release before had it"));
            }
        }
        h.kv.flush().expect("a view in memory does not fail");
    }

    /// The host that serves `p` loses power, and starts again after a while.
    pub fn lose_primary(&mut self, p: PartitionId) {
        if let Some(host) = self.homes.get(&p).copied() {
            self.crash(host);
        }
    }

    /// True if no staged byte is left anywhere.
    pub fn is_destaged(&mut self) -> bool {
        self.partitions().all(|p| self.served(p).is_some_and(|partition| partition.oldest_stage().is_none()))
    }

    /// True if no file data is left, no pack, and each drive that never lied has all its slots free.
    pub fn is_empty(&mut self) -> bool {
        let bad = self.config.faults.bad_drives.clone();
        let free = self.drives.iter().enumerate().all(|(id, drive)| {
            let all = |target: &braid_drive::Target| target.stat().free == target.stat().slots;
            bad.contains(&(id as u32)) || drive.target.as_ref().is_some_and(all)
        });
        // A drive that lies may never confirm that a shard is gone.
        let none = |partition: &mut Partition| {
            let status = partition.state_mut().data_status();
            let packs = status.creating + status.open + status.sealed;
            let dead = if bad.is_empty() { status.dead } else { 0 };
            packs + dead + status.orphans == 0 && status.staged_bytes + status.used_bytes + status.live_bytes == 0
        };
        free && self.partitions().all(|p| self.served(p).is_some_and(none))
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
        self.partitions().all(|p| tables.iter().all(|table| !open(p, *table)))
    }

    /// True if the views hold all that was proposed.
    pub fn is_settled(&mut self) -> bool {
        self.partitions().all(|p| {
            let home = self.home(p);
            self.seat(home).is_some_and(|node| node.seat.applied().next() == node.seat.replica().next_index())
        })
    }

    /// The view that holds partition `p`, where it is served.
    pub fn kv_of(&self, p: PartitionId) -> &dyn Kv {
        self.view_of(At { host: self.homes[&p], p })
    }

    /// The view of a replica: what its seat sees of the engine, with what only the log makes durable.
    fn view_of(&self, at: At) -> &dyn Kv {
        let host = &self.hosts[at.host as usize];
        host.seats.get(&at.p).map_or(host.kv.as_ref(), |node| node.seat.view())
    }

    /// Partition `p`, if somebody serves it.
    fn served(&mut self, p: PartitionId) -> Option<&mut Partition> {
        let home = self.home(p);
        self.seat(home)?.seat.partition()
    }

    /// True if all members of all partitions hold what the primary holds; errors: one holds something else.
    pub fn is_even(&self) -> std::result::Result<bool, String> {
        let error = |error: braid_base::Error| error.to_string();
        let mut even = true;
        for (p, register) in &self.registers {
            let home = self.home(*p);
            even &= register.members.len() == self.config.members as usize;
            let (served, expected) = (Applied::read(self.kv_of(*p), *p).map_err(error)?, rows(self.kv_of(*p), *p));
            for at in self.replicas(*p).filter(|at| *at != home && register.has(self.member(*at).store)) {
                let kv = self.view_of(at);
                let applied = Applied::read(kv, *p).map_err(error)?;
                // One that took the view lately holds rows that are newer than what it says.
                if applied.index != served.index {
                    even = false;
                    continue;
                }
                let first = self.log_first(at).map_err(error)?;
                if let Some(staged) = oldest_stage(&expected).filter(|staged| *staged < first) {
                    return Err(format!("I9: bytes lie in entry {staged}, and the log of {at} begins with {first}"));
                }
                if rows(kv, *p) != expected || differ(served.hash, applied.hash) {
                    return Err(format!("I5: {at} and {home} differ at {}", applied.index));
                }
            }
        }
        Ok(even)
    }

    /// The drives.
    pub fn drives(&self) -> &[DriveNode] {
        &self.drives
    }

    /// The first entry that each partition's log on disk holds, where it is served.
    pub fn log_firsts(&self) -> Result<BTreeMap<PartitionId, Index>> {
        self.homes.keys().map(|p| Ok((*p, self.log_first(self.home(*p))?))).collect()
    }

    /// The first entry that the log of a replica holds, read as after a power loss.
    fn log_first(&self, at: At) -> Result<Index> {
        let h = &self.hosts[at.host as usize];
        let applied = Applied::read(h.kv.as_ref(), at.p)?;
        let ident = LogIdent { cluster: CLUSTER, partition: at.p, store: self.member(at).store };
        let start = h.meta_of(at.p)?.map_or_else(Default::default, |meta| meta.log_start);
        let expect = Expect { start, applied: (applied.term, applied.index), staged: applied.staged, clean: None };
        Ok(recover(&h.log_of(at.p), &ident, expect, &mut |_| Ok(()))?.first)
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

/// True if these are two hashes, and not of the same state. After an import there may be none yet.
fn differ(one: u64, other: u64) -> bool {
    one != 0 && other != 0 && one != other
}

/// All rows of partition `p` but the one that says how far it is applied.
fn rows(kv: &dyn Kv, p: PartitionId) -> Vec<(Vec<u8>, Vec<u8>)> {
    let (first, mut rows) = (keys::partition(p), Vec::new());
    let own = Applied::key(p);
    let scanned = kv.scan(&first, &keys::prefix_end(&first), &mut |key, value| {
        if key != own {
            rows.push((key.to_vec(), value.to_vec()));
        }
        true
    });
    assert!(scanned.is_ok(), "a view in memory does not fail");
    rows
}

/// The oldest entry in which bytes of some row lie.
fn oldest_stage(rows: &[(Vec<u8>, Vec<u8>)]) -> Option<Index> {
    let slices = rows.iter().filter(|(key, _)| keys::parse_slice(key).is_some());
    let places = slices.filter_map(|(_, value)| Some(SliceRec::decode(value).ok()?.0.place));
    let staged = places.filter_map(|place| if let Place::Stage { at, .. } = place { Some(at) } else { None });
    staged.min()
}
