//! What partitions are to do about object stores, and which share of a file system's flash each of them has.

use std::collections::BTreeMap;

use braid_base::ids::{FsId, PartitionId};
use braid_base::store::PREFETCH_MIB;
use braid_cluster::facts::Filesystem;
use braid_cluster::snapshot::Snapshot;
use braid_meta::TierPolicy;

/// A share that changed by less than this part of it is not told.
const STEPS: u64 = 64;

/// What each file system with an object store is to do, as the records say.
pub(super) fn policies(now: &Snapshot) -> BTreeMap<FsId, TierPolicy> {
    let secs = |secs: u64| u32::try_from(secs).unwrap_or(u32::MAX);
    let tiered = now.filesystems.iter().filter(|fs| !fs.stores.is_empty());
    let policy = |fs: &Filesystem| {
        let group = now.groups.iter().find(|group| group.name == fs.group)?;
        let leaving = fs.stores.iter().filter(|attached| attached.detaching).map(|attached| attached.store);
        let given_up = fs.stores.iter().filter(|attached| attached.detaching && attached.give_up);
        let writable = fs.writable();
        let ahead = now.object_stores.iter().find(|store| Some(store.id) == writable);
        let ahead_mib = ahead.map_or(PREFETCH_MIB.1, |store| store.spec.prefetch_mib);
        Some(TierPolicy {
            writable,
            leaving: leaving.collect(),
            given_up: given_up.map(|attached| attached.store).collect(),
            cue_s: secs(group.start_demote_s),
            retention_s: secs(group.target_ssd_retention_s),
            object_bytes: u32::from(fs.object_mib) << 20,
            flash_bytes: fs.ssd_bytes,
            prefetch_bytes: u64::from(ahead_mib) << 20,
        })
    };
    tiered.filter_map(|fs| Some((fs.id, policy(fs)?))).collect()
}

/// The policies of the cluster, and the shares that partitions of this host were told.
#[derive(Debug, Default)]
pub(super) struct Tiers {
    policies: BTreeMap<FsId, TierPolicy>,
    shares: BTreeMap<(PartitionId, FsId), u64>,
}

impl Tiers {
    /// From now on these are the policies; true if that is news.
    pub(super) fn set(&mut self, policies: BTreeMap<FsId, TierPolicy>) -> bool {
        if self.policies == policies {
            return false;
        }
        let before = std::mem::replace(&mut self.policies, policies);
        let whole = |policies: &BTreeMap<FsId, TierPolicy>, fs: &FsId| policies.get(fs).and_then(|p| p.flash_bytes);
        self.shares.retain(|(_, fs), _| whole(&before, fs) == whole(&self.policies, fs));
        true
    }

    /// The policies for `p`. As long as its share is not known that is all there is.
    pub(super) fn of(&self, p: PartitionId) -> BTreeMap<FsId, TierPolicy> {
        let mut all = self.policies.clone();
        for (fs, policy) in &mut all {
            policy.flash_bytes = policy.flash_bytes.map(|all| self.shares.get(&(p, *fs)).copied().unwrap_or(all));
        }
        all
    }

    /// The file systems whose cold data leaves flash.
    pub(super) fn moves_out(&self, fs: FsId) -> bool {
        self.policies.get(&fs).is_some_and(|policy| policy.writable.is_some())
    }

    /// File systems with a bound of flash.
    pub(super) fn bounded(&self) -> Vec<FsId> {
        self.policies.iter().filter(|(_, policy)| policy.flash_bytes.is_some()).map(|(fs, _)| *fs).collect()
    }

    /// `p` has `mine` bytes of `fs` on flash, and all `partitions` together have `all`: true if its share changed so much
    /// that it is to be told.
    ///
    /// Its share is as large a part of the whole as what it has is of what all have: so each is short when the file system
    /// is. But what is free is for everybody alike: who has little may have that more at once.
    pub(super) fn share(&mut self, p: PartitionId, fs: FsId, (mine, all): (u64, u64), partitions: u16) -> bool {
        let Some(whole) = self.policies.get(&fs).and_then(|policy| policy.flash_bytes) else { return false };
        let part = (u128::from(whole) * u128::from(mine)).checked_div(u128::from(all));
        let part = part.map_or(whole, |part| u64::try_from(part).unwrap_or(u64::MAX));
        let free = whole.saturating_sub(all) / u64::from(partitions.max(1));
        let share = part.max(mine.saturating_add(free)).min(whole);
        let told = self.shares.get(&(p, fs)).copied().unwrap_or(whole);
        if told.abs_diff(share) * STEPS <= told.max(share) {
            return false;
        }
        self.shares.insert((p, fs), share);
        true
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::Tiers;
    use braid_base::ids::{FsId, PartitionId, StoreId};
    use braid_meta::TierPolicy;

    const FS: FsId = FsId(1);

    fn tiers(flash_bytes: Option<u64>) -> BTreeMap<FsId, TierPolicy> {
        BTreeMap::from([(FS, TierPolicy { writable: Some(StoreId(1)), flash_bytes, ..TierPolicy::default() })])
    }

    fn share(of: &Tiers, p: u16) -> Option<u64> {
        of.of(PartitionId(p)).get(&FS).and_then(|policy| policy.flash_bytes)
    }

    #[test]
    fn each_partition_is_short_when_the_file_system_is() {
        let mut all = Tiers::default();
        assert!(all.set(tiers(Some(1_000))) && !all.set(tiers(Some(1_000))));
        assert_eq!(share(&all, 0), Some(1_000), "nothing is known yet");
        assert!(all.share(PartitionId(0), FS, (300, 400), 4) && all.share(PartitionId(1), FS, (100, 400), 4));
        assert_eq!((share(&all, 0), share(&all, 1)), (Some(750), Some(250)));
        assert!(!all.share(PartitionId(0), FS, (303, 404), 4), "about the same");
        // A small share grows by little, and hears of it.
        assert!(all.share(PartitionId(1), FS, (105, 410), 4));
        // One that has nothing may have its part of what is free.
        assert!(all.share(PartitionId(2), FS, (0, 400), 4));
        assert_eq!(share(&all, 2), Some(150));
        assert!(all.set(tiers(Some(2_000))));
        assert_eq!(share(&all, 0), Some(2_000), "they are shared anew");
        assert!(all.set(tiers(None)) && !all.share(PartitionId(0), FS, (300, 400), 4));
        assert_eq!((share(&all, 0), all.bounded().len()), (None, 0));
        assert!(all.moves_out(FS) && !all.moves_out(FsId(2)));
    }
}
