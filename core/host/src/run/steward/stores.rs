//! The stores of a host: made, started, replaced and given up. All of it may wait for the disk, so each is done on a
//! thread of its own ([`super::chores`]).

use std::sync::Arc;

use braid_base::ids::{Guid, HostId, PartitionId};
use braid_base::{Error, Result};
use braid_cluster::coordinator::{Check, Coordinator, Outcome, Txn};
use braid_cluster::facts::{Partition, Seats, Store as StoreRecord};
use braid_cluster::records::{self, Record, Stored};

use crate::run::outside::{Store, store};
use crate::run::setup::{Host, log_dir};

/// What is done on them, for the host `me`.
pub(super) struct Stores {
    me: HostId,
    host: Arc<Host>,
    coordinator: Arc<dyn Coordinator>,
}

impl Stores {
    pub(super) fn new(me: HostId, host: Arc<Host>, coordinator: Arc<dyn Coordinator>) -> Self {
        Self { me, host, coordinator }
    }

    /// Sees to it that the store of `p` is here and known; the coordinator knew it as `known`. Then its replica starts, if the
    /// partition has `begun`.
    pub(super) fn start(&self, p: PartitionId, known: Option<Guid>, begun: bool) -> Result<()> {
        match self.have(p, known) {
            Ok(()) if begun => {
                self.host.start_replica(p).map_err(|e| e.within(format_args!("the replica of {p} does not start")))
            }
            had => had.map_err(|e| e.within(format_args!("the store of {p} cannot be used"))),
        }
    }

    fn have(&self, p: PartitionId, known: Option<Guid>) -> Result<()> {
        let (dir, cluster) = (log_dir(&self.host.config().dir, p), self.host.config().cluster);
        let what = if known.is_some() { Store::Found } else { Store::New };
        let found = match store(&dir, cluster, p, what)? {
            Some(found) => found,
            None => {
                let dir_name = dir.display();
                tracing::warn!("{p}: its store in {dir_name} is gone; an empty one takes the view of the others");
                store(&dir, cluster, p, Store::Replaced)?.unwrap_or_default()
            }
        };
        if known == Some(found) {
            return Ok(());
        }
        let record = StoreRecord { partition: p, host: self.me, store: found };
        self.coordinator.txn(&Txn::new().put(&record.key(), records::encode(&record)?)).map(drop)
    }

    /// The store of `p` is worth nothing, unless a configuration names it.
    pub(super) fn begin_anew(&self, p: PartitionId, known: Guid) -> Result<()> {
        let anew = || {
            // It says nothing any more, so nobody can make it a member once the record was read.
            self.host.stop_replica(p);
            let record = records::must::<Partition>(self.coordinator.as_ref(), &Partition::key_of(p))?.value;
            if record.members.iter().any(|member| member.store == known) {
                return Ok(()); // it is started as it was
            }
            tracing::warn!("{p}: the logs of the others begin after the end of the one here; it begins anew");
            let config = self.host.config();
            store(&log_dir(&config.dir, p), config.cluster, p, Store::Replaced).map(drop)
        };
        anew().map_err(|error: Error| error.within(format_args!("{p}: its store here cannot begin anew")))
    }

    /// The store in `record` goes, with its replica, unless it is needed after all: its record first, as long as nothing has
    /// changed of who needs it.
    pub(super) fn give_up(&self, record: &StoreRecord) -> Result<()> {
        let p = record.partition;
        let gone = || {
            if self.unneeded(record)?.is_none() {
                return Ok(());
            }
            self.host.stop_replica(p);
            // Again: it may have become a member as long as it ran, or was given its part back.
            let Some((partition, seats)) = self.unneeded(record)? else { return Ok(()) };
            let txn = Txn::new()
                .when(&partition.value.key(), Check::Modified(partition.revision))
                .when(&seats.value.key(), Check::Modified(seats.revision));
            if self.coordinator.txn(&txn.delete(&record.key()))? == Outcome::Conflict {
                return Ok(()); // it is looked at again
            }
            tracing::info!("{p} has its replicas elsewhere now; the one here goes");
            self.host.forget_store(p)
        };
        gone().map_err(|error: Error| error.within(format_args!("{p}: its store here is not needed, but stays")))
    }

    /// What says that nobody needs a store: neither a configuration nor the seats name it.
    fn unneeded(&self, record: &StoreRecord) -> Result<Option<(Stored<Partition>, Stored<Seats>)>> {
        let (coordinator, p) = (self.coordinator.as_ref(), record.partition);
        let partition = records::must::<Partition>(coordinator, &Partition::key_of(p))?;
        let seats = records::must::<Seats>(coordinator, &Seats::key_of(p))?;
        // A learner may become a member at any time.
        let named = partition.value.members.iter().chain(&partition.value.learners).any(|m| m.store == record.store);
        let needed = named || seats.value.hosts.contains(&self.me.0);
        Ok((!needed).then_some((partition, seats)))
    }
}
