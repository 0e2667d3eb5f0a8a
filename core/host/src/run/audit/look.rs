//! Looks whether the object stores have what the partitions here put there, see [`crate::run::objects`]: a few objects of
//! each partition are asked for; if one is missing, all.

use std::collections::BTreeSet;
use std::sync::Arc;

use braid_base::Result;
use braid_base::ids::{BlobId, PartitionId, StoreId, Term};
use braid_base::limits::{JUDGED_MAX, OBJECTS_MAX};
use braid_base::msg::host::{HostOp, SeatReport, Verdict};

use crate::run::objects::{Look, Looked};
use crate::run::wire::Switch;

impl Switch {
    /// Begins what is to be looked at now, after the partitions here said what they have; called once a second.
    pub(in crate::run) fn look_at_stores(self: &Arc<Self>, reports: &[SeatReport]) {
        if self.objects.hear_of_losses() {
            // Each host has an object of its own for keepalives: another one may be missing, too.
            let this = Arc::clone(self);
            self.runtime.spawn(async move { drop(this.ask_others(&HostOp::Stores { look: true }).await) });
        }
        for report in reports.iter().filter(|report| report.term != Term(0)) {
            let stores: BTreeSet<StoreId> = report.data.stored.keys().map(|(_, store)| *store).collect();
            for look in
                stores.into_iter().filter_map(|store| self.objects.begin_look((report.partition, store), report.term))
            {
                let this = Arc::clone(self);
                self.runtime.spawn(async move {
                    let looked = this.look(&look).await.unwrap_or(Looked::Unsure);
                    this.objects.end_look(&look, looked);
                });
            }
        }
    }

    async fn look(&self, look: &Look) -> Result<Looked> {
        let (p, store) = look.at;
        let known = self.objects.damage_of(p);
        let mut keys = self.present(p, store).await?;
        keys.retain(|(blob, _)| !known.contains_key(blob));
        if !look.all {
            return self.asked_for(look.at, some_of(&keys)).await;
        }
        let mut worst = Looked::Well;
        for some in keys.chunks(JUDGED_MAX) {
            worst = match self.asked_for(look.at, some.to_vec()).await? {
                // It is known now, if there is room for it.
                Looked::Missing if !self.objects.is_damage_full() => worst,
                Looked::Well => worst,
                other => other,
            };
        }
        Ok(worst)
    }

    /// The objects that the partition has in the store.
    async fn present(&self, p: PartitionId, store: StoreId) -> Result<Vec<(BlobId, Term)>> {
        let (mut all, mut after) = (Vec::new(), None);
        loop {
            let limit = OBJECTS_MAX as usize;
            let page = self.of_partition(p, move |known| known.state().objects(store, after, limit)).await?;
            after = page.objects.last().map(|object| object.blob);
            all.extend(page.objects.iter().filter(|object| object.present).map(|object| (object.blob, object.term)));
            if !page.more || after.is_none() {
                return Ok(all);
            }
        }
    }

    /// What is missing of them is noted.
    async fn asked_for(&self, (p, store): (PartitionId, StoreId), keys: Vec<(BlobId, Term)>) -> Result<Looked> {
        let verdicts = self.judge(p, store, keys).await?;
        Ok(if verdicts.contains(&Verdict::Missing) {
            Looked::Missing
        } else if verdicts.contains(&Verdict::Unsure) {
            Looked::Unsure
        } else {
            Looked::Well
        })
    }
}

/// As many as are asked for at a time, from the first to the last.
pub(super) fn some_of<T: Copy>(all: &[T]) -> Vec<T> {
    let count = all.len().min(JUDGED_MAX);
    (0..count).map(|n| all[n * (all.len() - 1) / (count - 1).max(1)]).collect()
}

#[cfg(test)]
mod tests {
    use super::some_of;

    #[test]
    fn the_first_and_the_last_are_among_them() {
        assert_eq!(some_of::<u8>(&[]), Vec::<u8>::new());
        assert_eq!((some_of(&[7]), some_of(&[7, 8])), (vec![7], vec![7, 8]));
        let all: Vec<usize> = (0..1_000).collect();
        let some = some_of(&all);
        assert!(some.len() == 16 && some[0] == 0 && some[15] == 999 && some.is_sorted_by(|a, b| a < b), "{some:?}");
    }
}
