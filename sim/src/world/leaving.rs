//! Hosts that stop in order, and replicas that should be elsewhere.

use braid_base::ids::{HostId, PartitionId};
use braid_host::seat::SeatEvent;

use super::World;
use crate::board::At;
use crate::deeds::Deed;
use crate::queue::Event;

/// A host that stops is gone after this time, microseconds, as far as it has come.
const STOP_US: u64 = 1_500_000;

impl World {
    /// The hosts that should have replicas of `p`, the one that should lead first.
    pub(super) fn seats(&self, p: PartitionId) -> Vec<HostId> {
        self.seats.get(&p).cloned().unwrap_or_else(|| self.replicas(p).map(|at| HostId(at.host)).collect())
    }

    /// Another host should lead a partition; now and then a replica should go.
    pub(super) fn move_seats(&mut self) {
        let p = PartitionId(self.rng.below(u64::from(self.config.partitions)) as u16);
        let mut seats: Vec<HostId> = self.replicas(p).map(|at| HostId(at.host)).collect();
        self.rng.shuffle(&mut seats);
        if self.rng.chance(1, 3) {
            seats.pop();
        }
        self.note(|| format!("{p}: replicas should be on {seats:?}"));
        self.seats.insert(p, seats);
    }

    /// A host says that it is about to stop, and does so a little later.
    pub(super) fn leave(&mut self, host: u32) {
        let h = &mut self.hosts[host as usize];
        if !h.is_up() || h.leaves {
            return;
        }
        h.leaves = true;
        let (life, places) = (h.life, h.seats.keys().map(|p| At { host, p: *p }).collect::<Vec<_>>());
        self.note(|| format!("h{host} is about to stop"));
        self.coverage.did(Deed::Left);
        for at in places {
            if self.is_alive(at, life) {
                self.step(at, SeatEvent::Leave);
            }
        }
        let gone_us = self.soon(STOP_US);
        self.queue.put(gone_us, Event::Gone { host, life });
    }

    /// The host that was about to stop has stopped.
    pub(super) fn gone(&mut self, host: u32, life: u64) {
        let h = &self.hosts[host as usize];
        if h.leaves && h.life == life {
            self.crash(host);
        }
    }
}
