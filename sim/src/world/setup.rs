//! A new cluster: formatted drives, empty logs, everything running.

use std::collections::{BTreeMap, BTreeSet};

use braid_base::Result;
use braid_base::ids::{DriveId, PartitionId};
use braid_io::chance::Rng;
use braid_meta::DriveSet;

use super::tier::Plans;
use super::{Counts, Host, World};
use crate::board::Board;
use crate::config::{Net, SimConfig};
use crate::executor::Executor;
use crate::points::Coverage;
use crate::queue::Queue;

impl World {
    /// The cluster of `config`, running, with nothing in it and nothing going wrong yet.
    ///
    /// Errors: what a part of the cluster says when it cannot start.
    pub fn new(config: SimConfig, board: Board) -> Result<Self> {
        let hosts = config.hosts;
        let drives =
            (0..config.drives).map(|id| Self::make_drive(&config, id, id % hosts)).collect::<Result<Vec<_>>>()?;
        let drive_set = DriveSet::from((0..config.drives).map(DriveId).collect::<Vec<_>>());
        let bucket = super::objects::Bucket::new(config.seed, config.store.clone(), board.clone());
        let homes: BTreeMap<_, _> = (0..config.partitions).map(|p| (PartitionId(p), u32::from(p) % hosts)).collect();
        let mut world = Self {
            rng: Rng::new(config.seed),
            config,
            board,
            counts: Counts::default(),
            coverage: Coverage::default(),
            queue: Queue::default(),
            exec: Executor::default(),
            net: Net::CALM,
            hosts: (0..hosts).map(Host::new).collect(),
            drives,
            bucket,
            plans: Plans::default(),
            shown: BTreeSet::new(),
            drive_set,
            homes,
            terms: BTreeMap::new(),
            registers: BTreeMap::new(),
            stores: BTreeMap::new(),
            routes: BTreeMap::new(),
            served: BTreeMap::new(),
            seats: BTreeMap::new(),
            cuts: Vec::new(),
            clocks: BTreeMap::new(),
            calm: true,
            next_client: 0,
            fallen: Vec::new(),
            dying: Vec::new(),
            killable: Vec::new(),
            life: 0,
            commits: BTreeSet::new(),
        };
        for host in 0..hosts {
            world.restart(host);
        }
        world.schedule_control();
        Ok(world)
    }
}
