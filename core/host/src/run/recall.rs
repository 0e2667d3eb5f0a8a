//! What the replicas of a host have seen: of those that run what they know, of others what they have on disk.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::mpsc;
use std::time::Duration;

use braid_base::Result;
use braid_base::ids::{Guid, PartitionId};
use braid_cluster::kept::Floors;
use braid_cluster::recover::Stored;

use super::outside;
use super::seat_actor::SeatMsg;
use super::setup::Host;

/// How long to wait for the next replica that says what it knows.
const ANSWER_WAIT: Duration = Duration::from_secs(2);

/// The highest term of each partition that a replica of `cluster` in `dir` has on disk. Blocks.
pub fn floors(dir: &Path, cluster: Guid) -> Result<Floors> {
    let metas = outside::stores(dir, cluster)?;
    Ok(metas.iter().map(|meta| (meta.ident.partition, meta.term.max(meta.config.term))).collect())
}

/// What the replicas of `cluster` in `dir` have on disk. Blocks.
pub fn stores(dir: &Path, cluster: Guid) -> Result<Vec<Stored>> {
    let stored = |meta: &braid_replica::ReplicaMeta| {
        let config = outside::record_of(meta.ident.partition, &meta.config);
        Stored::new(meta.ident.store, meta.term, config, meta.importing)
    };
    Ok(outside::stores(dir, cluster)?.iter().map(stored).collect())
}

impl Host {
    /// What its replicas have seen. Blocks.
    pub fn recall(&self) -> Result<Vec<Stored>> {
        let config = self.config();
        let mut all: BTreeMap<PartitionId, Stored> =
            stores(&config.dir, config.cluster)?.into_iter().map(|stored| (stored.config.id, stored)).collect();
        let (to, said) = mpsc::channel();
        for seat in self.seats() {
            let (p, to) = (seat.id(), to.clone());
            let _ = seat.send(SeatMsg::With(Box::new(move |seat| {
                let (term, known) = (seat.replica().term(), seat.replica().config());
                let _ = to.send((p, term, outside::record_of(p, known)));
            })));
        }
        drop(to);
        while let Ok((p, term, known)) = said.recv_timeout(ANSWER_WAIT) {
            if let Some(stored) = all.get_mut(&p) {
                stored.term = stored.term.max(term.0);
                if known.term >= stored.config.term {
                    stored.config = known;
                }
            }
        }
        Ok(all.into_values().collect())
    }
}
