//! What the host and the administrator may see and set.

use std::collections::{BTreeMap, BTreeSet};

use braid_base::ids::{BlobId, DriveId, FsId, Index, StoreId};
use braid_base::msg::host::{Healing, Stored, Tiering};
use braid_base::record::PackClass;
use braid_base::{Error, ErrorKind, Result};

use crate::config::{Damaged, DriveSet, TierPolicy};
#[cfg(feature = "broken")]
use crate::data::Mutation;
use crate::data::packs::Life;
use crate::data::stage::StageLimits;
use crate::data::{gc, scrub, tier};
use crate::state::State;

/// The data side of a partition in numbers.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DataStatus {
    /// Bytes that are in the log only.
    pub staged_bytes: u64,
    /// Bytes of file data, wherever they are.
    pub used_bytes: u64,
    /// The same by file system.
    pub used_by_fs: BTreeMap<FsId, u64>,
    /// Bytes in packs by file system.
    pub flash_by_fs: BTreeMap<FsId, u64>,
    /// What lies in object stores, by file system and store.
    pub stored: BTreeMap<(FsId, StoreId), Stored>,
    /// Objects that are missing or damaged, and have the only copy of parts of files.
    pub damaged_objects: u64,
    /// What moves between flash and object stores, by file system.
    pub tiering: BTreeMap<FsId, Tiering>,
    /// Bytes of file data on flash, with those that were overwritten or cut and not merged yet.
    pub live_bytes: u64,
    /// Packs that are being created.
    pub creating: usize,
    /// Packs that take data.
    pub open: usize,
    /// Packs that are full or closed.
    pub sealed: usize,
    /// Packs whose shards are being dropped.
    pub dead: usize,
    /// Shards of this partition's packs by drive.
    pub shards: BTreeMap<DriveId, usize>,
    /// Inodes without a name.
    pub orphans: usize,
    /// Bulk moves under way.
    pub moves: usize,
    /// Writes that wait for room in the stage.
    pub held: usize,
    /// Garbage is collected before anything else is moved.
    pub gc_urgent: bool,
    /// No slots are left but those that only garbage collection takes.
    pub only_reserve: bool,
    /// Shards by drive, on all that failed or are to be emptied: they are to be made anew elsewhere.
    pub leaving: BTreeMap<DriveId, u64>,
    /// Packs have several shards in one failure domain: there are too few domains.
    pub forced: bool,
    /// Packs that lie closer together than they should: shards that fail together, although there are domains enough.
    pub close: u64,
    /// What is done to keep data whole.
    pub healing: Healing,
}

impl State {
    /// The data side in numbers.
    pub fn data_status(&self) -> DataStatus {
        let data = &self.data;
        let mut status = DataStatus {
            staged_bytes: data.stage.bytes(),
            used_bytes: data.space.used(),
            used_by_fs: data.space.by_fs().clone(),
            flash_by_fs: data.space.by_fs().keys().map(|fs| (*fs, data.space.flash(*fs))).collect(),
            stored: data.tier.blobs.stored(),
            damaged_objects: data.tier.damage.count(),
            tiering: tier::tiering(self),
            orphans: data.orphans.len(),
            moves: data.jobs.len(),
            held: data.held.len(),
            gc_urgent: gc::urgent(self),
            forced: data.packs.drives.is_forced(),
            close: if data.packs.drives.is_forced() { 0 } else { data.rebuilds.close() },
            healing: scrub::healing(self),
            only_reserve: !data.packs.drives.have_room(PackClass::User, self.config.parity),
            ..DataStatus::default()
        };
        status.leaving = data.packs.drives.leaving().map(|drive| (drive, 0)).collect();
        for pack in data.packs.table.values() {
            *match pack.life {
                Life::Creating { .. } => &mut status.creating,
                Life::Lending { .. } => &mut status.open,
                Life::Closing | Life::Sealed { .. } => &mut status.sealed,
                Life::Dead { .. } => &mut status.dead,
            } += 1;
            status.live_bytes += pack.rec.live_upper;
            // What is in objects as well is given up with a drive that is gone, or lost with it: nothing is made anew.
            let gone = |drive: &DriveId| pack.is_bare() && data.packs.drives.is_absent(*drive);
            if !matches!(pack.life, Life::Dead { .. }) {
                let on = pack.rec.place.drives.iter().filter(|drive| data.packs.drives.leaves(**drive));
                for drive in on.filter(|drive| !gone(drive)) {
                    *status.leaving.entry(*drive).or_default() += 1;
                }
            }
            for drive in &pack.rec.place.drives {
                *status.shards.entry(*drive).or_default() += 1;
            }
        }
        status
    }

    /// The drives from now on: open packs on others than the usable ones are closed, shards on those that leave are made
    /// anew elsewhere.
    pub fn set_drives(&mut self, set: impl Into<DriveSet>) {
        let set = set.into();
        self.config.drives.clone_from(&set);
        self.data.packs.set_drives(set, self.config.parity);
        self.data.rebuilds.look_anew();
        self.data.balance.look_anew();
    }

    /// Flash bytes that users may fill in this partition from now on.
    pub fn set_capacity(&mut self, bytes: u64) {
        self.config.capacity_bytes = bytes;
    }

    /// What all partitions together may hold, and what file systems with a capacity of their own may: only to be told.
    pub fn set_totals(&mut self, bytes: u64, limits: BTreeMap<FsId, u64>) {
        self.data.space.totals = Some((bytes, limits));
    }

    /// Bytes of file data that `fs` may hold in this partition from now on; `None`: no bound of its own.
    pub fn set_limit(&mut self, fs: FsId, bytes: Option<u64>) {
        match bytes {
            Some(bytes) => self.data.space.limits.insert(fs, bytes),
            None => self.data.space.limits.remove(&fs),
        };
    }

    /// What the file systems with an object store are to do from now on; the others have none.
    pub fn set_tiers(&mut self, policies: BTreeMap<FsId, TierPolicy>) {
        tier::set_policies(self, policies);
    }

    /// From now on these of its objects are known to be missing or damaged.
    pub fn set_damaged(&mut self, damaged: BTreeMap<BlobId, Damaged>) {
        tier::damage::set(self, damaged);
    }

    /// Only of these stores it is known that they have their objects, from now on: what is in others does not leave flash.
    /// Until that is said for the first time, all are trusted.
    pub fn set_trusted(&mut self, stores: BTreeSet<StoreId>) {
        tier::damage::trust(self, stores);
    }

    /// Objects that were said to be damaged, and that nothing names where they are, once.
    pub fn take_sound(&mut self) -> Vec<BlobId> {
        self.data.tier.damage.take_gone()
    }

    /// When destage starts and when writes are held back from now on.
    pub fn set_stage_limits(&mut self, limits: StageLimits) {
        self.data.stage.limits = limits;
    }

    /// The log wants to drop what is older than `index`: staged bytes from before go to flash now.
    pub fn want_stage_below(&mut self, index: Index) {
        self.data.stage.below = index;
    }

    /// The failure of the view that stopped all changes of file data, if any.
    pub fn fault(&self) -> Option<&Error> {
        self.data.fault.as_ref()
    }

    /// Breaks a rule on purpose, so that a test can show that it notices.
    #[cfg(any(test, feature = "broken"))]
    pub fn break_rule(&mut self, mutation: Mutation) {
        self.data.mutation = Some(mutation);
    }

    /// Refuses changes of file data after a failure of the view.
    pub(crate) fn check_fault(&self) -> Result<()> {
        self.data.fault.as_ref().map_or(Ok(()), |fault| Err(stopped("writes", fault)))
    }

    /// Refuses to say what files hold after a failure that left memory and records different: what was written would seem
    /// to be gone.
    pub(crate) fn check_content(&self) -> Result<()> {
        self.data.fault.as_ref().filter(|_| self.data.spoiled).map_or(Ok(()), |fault| Err(stopped("reads", fault)))
    }
}

fn stopped(what: &str, fault: &Error) -> Error {
    let message = format!("{what} stopped after a failure, restart the partition: {}", fault.message());
    Error::new(ErrorKind::Stopped, message)
}
