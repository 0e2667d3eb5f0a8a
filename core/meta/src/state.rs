//! What a partition keeps in memory beside the view: rebuilt by reading the view, lost with the primary.

use braid_base::Result;
use braid_base::ids::Index;
use braid_replica::kv::Kv;

use crate::config::Config;
use crate::data::Data;
use crate::dedup::Dedup;
use crate::leases::Leases;
use crate::locks::Locks;
use crate::opens::Opens;
use crate::peers::Peers;
#[cfg(any(test, feature = "broken"))]
use crate::peers::Variant;

/// All volatile state, one room each.
pub struct State {
    /// Its place in the cluster.
    pub config: Config,
    /// Results kept for repeated requests.
    pub(crate) dedup: Dedup,
    /// Open references of clients.
    pub(crate) opens: Opens,
    /// File locks.
    pub(crate) locks: Locks,
    /// Sessions of clients and what they may remember.
    pub(crate) leases: Leases,
    /// Operations that span partitions, and messages owed to others.
    pub(crate) peers: Peers,
    /// Staged bytes, packs, bulk moves, orphans.
    pub(crate) data: Data,
}

impl State {
    /// Reads what must be known at once from the view.
    pub fn load(config: Config, kv: &dyn Kv) -> Result<Self> {
        Ok(Self {
            dedup: Dedup::load(config.partition, kv)?,
            opens: Opens::default(),
            locks: Locks::default(),
            leases: Leases::load(&config, kv)?,
            peers: Peers::load(&config, kv)?,
            data: Data::load(&config, kv)?,
            config,
        })
    }

    /// True if no operation across partitions is under way, nothing is owed to another partition, and no inode that
    /// lost its name waits for its time.
    pub fn is_quiet(&self) -> bool {
        self.peers.is_quiet() && self.data.orphans.has_no_fresh()
    }

    /// Leaves a rule of operations across partitions out, to prove that the tests see it.
    #[cfg(any(test, feature = "broken"))]
    pub fn leave_out(&mut self, variant: Option<Variant>) {
        self.peers.leave_out(variant);
        self.dedup.forgetful = variant == Some(Variant::Forgetful);
    }

    /// Leaves a rule of leases out, to prove that the tests see it.
    #[cfg(any(test, feature = "broken"))]
    pub fn leave_out_of_leases(&mut self, mutation: Option<crate::leases::LeaseMutation>) {
        self.leases.leave_out(mutation);
    }

    /// The oldest log position whose payload is still referenced.
    pub fn oldest_stage(&self) -> Option<Index> {
        self.data.oldest_stage()
    }

    /// Log positions whose payload is not referenced any more, since the last call.
    pub fn take_unstaged(&mut self) -> Vec<Index> {
        self.data.stage.take_gone()
    }
}
