//! Who serves a partition: the compare-and-swap that every start and every fail-over goes through.

use braid_base::ids::{HostId, PartitionId, Term};
use braid_base::{Error, ErrorKind, Result};

use crate::coordinator::{Check, Coordinator, Outcome, Txn};
use crate::facts::{Cluster, Member, Partition};
use crate::records::{self, Record, Stored};

/// Partitions written per transaction: well inside the limits of one.
const BATCH: usize = 100;

/// Makes `me` the primary of partition `id` with a new term, above both the stored one and `term_seen`, the
/// highest that this copy has on its own disk (more than stored only after the coordinator was recovered).
///
/// A partition that never had a member takes `me` as its first. `Refused` if others are its members and `me` is
/// not: then this copy may lack committed entries. `Stale` if somebody else was faster.
pub fn claim(coordinator: &dyn Coordinator, id: PartitionId, me: Member, term_seen: Term) -> Result<Stored<Partition>> {
    let Stored { mut value, revision } = records::must::<Partition>(coordinator, &Partition::key_of(id))?;
    if value.members.is_empty() && value.term == Term(0) {
        value.members.push(me);
    }
    if !value.members.contains(&me) {
        let stores: Vec<String> = value.members.iter().map(|member| member.store.to_string()).collect();
        let message = format!(
            "partition {id} lives in store {}, found store {}: its directory is missing or of another cluster, put the right one back",
            stores.join(" and "),
            me.store
        );
        return Err(Error::new(ErrorKind::Refused, message));
    }
    value.term = Term(value.term.max(term_seen).0 + 1);
    value.primary = Some(me.host);
    let revision = records::update(coordinator, revision, &value)?;
    Ok(Stored { value, revision })
}

/// All partitions, ordered by number.
pub fn list(coordinator: &dyn Coordinator) -> Result<Vec<Partition>> {
    Ok(records::list::<Partition>(coordinator)?.0.into_iter().map(|stored| stored.value).collect())
}

/// The partitions that `host` is a member of.
pub fn of_host(coordinator: &dyn Coordinator, host: HostId) -> Result<Vec<Partition>> {
    let mut all = list(coordinator)?;
    all.retain(|partition| partition.members.iter().any(|member| member.host == host));
    Ok(all)
}

/// Carries out `txn` unless the cluster exists by now: then somebody else was faster, and this must not touch it.
pub(crate) fn founding(coordinator: &dyn Coordinator, txn: Txn) -> Result<()> {
    match coordinator.txn(&txn.when(Cluster::KEY, Check::Absent))? {
        Outcome::Done(_) => Ok(()),
        Outcome::Conflict => {
            Err(Error::new(ErrorKind::Exists, "another cluster was made meanwhile: nothing of it was changed"))
        }
    }
}

/// Writes the records of `count` partitions that have no member yet.
pub(crate) fn found(coordinator: &dyn Coordinator, count: u16) -> Result<()> {
    let all: Vec<u16> = (0..count).collect();
    for batch in all.chunks(BATCH) {
        let mut txn = Txn::new();
        for id in batch {
            let (id, term) = (PartitionId(*id), Term(0));
            let record = Partition { id, term, primary: None, members: Vec::new(), learners: Vec::new() };
            txn = txn.put(&record.key(), records::encode(&record)?);
        }
        founding(coordinator, txn)?;
    }
    Ok(())
}
