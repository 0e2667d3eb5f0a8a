//! The stores of a host: made, started, replaced and given up. All of it may wait for the disk, so each is done on a
//! thread of its own ([`super::chores`]).

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, PoisonError};

use braid_base::ids::{Guid, HostId, PartitionId};
use braid_base::{Error, ErrorKind, Result};
use braid_cluster::coordinator::{Check, Coordinator, Outcome, Txn};
use braid_cluster::facts::{Member, Partition, Seats, Store as StoreRecord};
use braid_cluster::records::{self, Record, Stored};
use braid_cluster::snapshot::Snapshot;

use crate::run::outside::{Store, store};
use crate::run::setup::{Host, log_dir};

/// What is done on them, for the host `me`.
pub(super) struct Stores {
    me: HostId,
    host: Arc<Host>,
    coordinator: Arc<dyn Coordinator>,
    /// Partitions whose damaged store was replaced since the process began.
    replaced: Mutex<BTreeSet<PartitionId>>,
}

impl Stores {
    pub(super) fn new(me: HostId, host: Arc<Host>, coordinator: Arc<dyn Coordinator>) -> Self {
        Self { me, host, coordinator, replaced: Mutex::default() }
    }

    /// Sees to it that the store of `p` is here and known; the coordinator knew it as `known`. Then its replica starts, if the
    /// partition has `begun`. A store that is damaged is replaced, if nobody needs it.
    pub(super) fn start(&self, p: PartitionId, known: Option<Guid>, begun: bool) -> Result<()> {
        let started = match self.have(p, known) {
            Ok(()) if begun => {
                // Damage of the register is not damage of the store.
                records::must::<Partition>(self.coordinator.as_ref(), &Partition::key_of(p))
                    .map_err(|error| Error::new(ErrorKind::Io, format!("{p} is not started: {}", error.message())))?;
                self.host.start_replica(p).map_err(|e| e.within(format_args!("the replica of {p} does not start")))
            }
            had => had.map_err(|e| e.within(format_args!("the store of {p} cannot be used"))),
        };
        match started {
            Err(error) if error.kind() == ErrorKind::Corrupt => self.replace(p, error),
            started => started,
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
        // What the coordinator says wrong is no damage of the store.
        let told = self.coordinator.txn(&Txn::new().put(&record.key(), records::encode(&record)?));
        told.map(drop)
            .map_err(|error| Error::new(ErrorKind::Io, format!("{p}: its store is not known: {}", error.message())))
    }

    /// The store of `p` is damaged, as `why` says: an empty one takes its place, which is filled from the others like any that
    /// is new. Only when the partition goes on without this one, with all the copies elsewhere that it should have; and once,
    /// because a disk that damages the next one as well would have the others send all they hold again and again.
    fn replace(&self, p: PartitionId, why: Error) -> Result<()> {
        let now = Snapshot::read(self.coordinator.as_ref())?;
        let (dir, cluster) = (log_dir(&self.host.config().dir, p), self.host.config().cluster);
        let shown = dir.display();
        // Members are left out by the others when they are silent, if there are any.
        let known = now.store(p, self.me);
        let is_named = match known {
            Some(known) => now.is_member(known),
            // Nobody ever heard of it: it was damaged while it was made.
            None => {
                let names = |member: &Member| member.host == self.me;
                now.partitions.iter().any(|it| it.value.id == p && it.value.members.iter().any(names))
            }
        };
        if is_named {
            return Err(why);
        }
        let but = |words: String| Err(Error::new(ErrorKind::Corrupt, format!("{}; {words}", why.message())));
        if known.is_some() && !now.is_staffed_without(p, self.me) {
            return but(format!(
                "an empty one takes its place by itself once the other copies are all there; to have that before, stop \
                 `braid backend` here, move {shown} away, and start it again"
            ));
        }
        if !self.replaced.lock().unwrap_or_else(PoisonError::into_inner).insert(p) {
            return but(format!(
                "that took the place of one that was damaged, too: look at the disk under {shown}; then start `braid \
                 backend` again here, which replaces it once more"
            ));
        }
        let which = known.map_or_else(|| "one that nobody knows".to_owned(), |known| known.store.to_string());
        tracing::error!("{}; the other copies are whole: an empty store takes the place of {which}", why);
        store(&dir, cluster, p, Store::Replaced).map(drop)
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
