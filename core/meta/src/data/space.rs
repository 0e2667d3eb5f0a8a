//! Usage and capacity of the partition.

use std::collections::{BTreeMap, BTreeSet};

use braid_base::ids::{FsId, PartitionId};
use braid_base::keys::{self, Table};
use braid_base::limits::whole_blocks;
use braid_base::record::{InodeRec, Record, UsageRec};
use braid_base::{Error, ErrorKind, Result};
use braid_replica::kv::Kv;

use crate::state::State;
use crate::txn::Txn;

/// What file systems hold, each file in whole blocks, as the usage records say.
#[derive(Default)]
pub(crate) struct Space {
    used: BTreeMap<FsId, u64>,
    /// What of their data is in packs, with what is hidden there.
    flash: BTreeMap<FsId, u64>,
    /// Those whose cold data leaves flash: they may hold more than there is of it.
    pub tiered: BTreeSet<FsId>,
    /// What file systems with a capacity of their own may hold in this partition.
    pub limits: BTreeMap<FsId, u64>,
    /// What all partitions together may hold, and each file system that has a capacity of its own; none before it was told.
    pub totals: Option<(u64, BTreeMap<FsId, u64>)>,
}

impl Space {
    /// Reads table 40.
    pub fn load(p: PartitionId, kv: &dyn Kv) -> Result<Self> {
        let mut space = Self::default();
        let mut bad = None;
        let prefix = keys::table(p, Table::Usage);
        kv.scan(&prefix, &keys::prefix_end(&prefix), &mut |key, value| {
            let quota = key.get(7..15);
            match (keys::fs_of(key), UsageRec::decode(value)) {
                (Some(fs), Ok(usage)) if quota == Some(&[0; 8]) => {
                    space.used.insert(fs, usage.bytes);
                    space.flash.insert(fs, usage.flash);
                }
                (_, Err(error)) => bad = Some(error),
                _ => {}
            }
            bad.is_none()
        })?;
        bad.map_or(Ok(space), Err)
    }

    /// Bytes of file data in this partition.
    pub fn used(&self) -> u64 {
        self.used.values().sum()
    }

    /// Bytes of `fs` in packs.
    pub fn flash(&self, fs: FsId) -> u64 {
        self.flash.get(&fs).copied().unwrap_or(0)
    }

    /// Bytes that all file systems take, or will take, of flash. Of those whose data may be elsewhere it is what is there.
    pub fn occupied(&self) -> u64 {
        let of =
            |(fs, used): (&FsId, &u64)| if self.tiered.contains(fs) { (*used).min(self.flash(*fs)) } else { *used };
        self.used.iter().map(of).sum()
    }

    /// Bytes of file data by file system.
    pub fn by_fs(&self) -> &BTreeMap<FsId, u64> {
        &self.used
    }

    /// Bytes that `fs` may hold in all partitions together, as far as that is known; `u64::MAX`: there is no bound.
    pub fn total(&self, fs: FsId) -> Option<u64> {
        let (all, limits) = self.totals.as_ref()?;
        // Where data leaves flash, what there is of it is no bound.
        let bound = if self.tiered.contains(&fs) { u64::MAX } else { *all };
        Some(limits.get(&fs).map_or(bound, |limit| (*limit).min(bound)))
    }

    /// Bytes of `capacity` that are free.
    pub fn room(&self, capacity: u64) -> u64 {
        capacity.saturating_sub(self.occupied())
    }

    /// Bytes that `fs` may still take here of what it may hold, wherever that lies.
    pub fn below_limit(&self, fs: FsId) -> u64 {
        let held = self.used.get(&fs).copied().unwrap_or(0);
        self.limits.get(&fs).map_or(u64::MAX, |most| most.saturating_sub(held))
    }

    /// Refuses `fresh` more bytes (whole blocks) of `fs` beyond what it may hold here, or beyond `capacity`, each with
    /// `spare` on top. The capacity leaves the reserve out, which stays free for deletes, destage and garbage collection (I26).
    /// Of those whose data leaves flash it is no bound: their writes wait until there is room (`held`).
    pub fn check(&self, fs: FsId, fresh: u64, capacity: u64, spare: u64) -> Result<()> {
        let wanted = self.occupied() + fresh;
        let held = self.used.get(&fs).copied().unwrap_or(0);
        if let Some(most) = self.limits.get(&fs)
            && fresh > 0
            && held + fresh > most.saturating_add(spare)
        {
            let message =
                format!("{fs} may hold {most} bytes here and holds {held}: delete something or raise its size");
            return Err(Error::new(ErrorKind::NoSpace, message));
        }
        if fresh == 0 || self.tiered.contains(&fs) || wanted <= capacity.saturating_add(spare) {
            return Ok(());
        }
        let message = format!("{wanted} bytes wanted, {capacity} may be used here: delete something or add drives");
        Err(Error::new(ErrorKind::NoSpace, message))
    }
}

/// Adds to the usage record of the file system; the record never goes below zero.
pub(crate) fn account(t: &mut Txn<'_>, fs: FsId, bytes: i64, inodes: i64) -> Result<UsageRec> {
    let key = keys::usage(t.partition, fs, 0);
    let mut usage: UsageRec = t.read(&key)?.unwrap_or_default();
    if bytes != 0 || inodes != 0 {
        usage.bytes = usage.bytes.saturating_add_signed(bytes);
        usage.inodes = usage.inodes.saturating_add_signed(inodes);
        t.write(key, &usage);
    }
    Ok(usage)
}

/// What `fs` holds in packs changed by `bytes`: in the usage record and in memory.
pub(crate) fn flash_changed(t: &mut Txn<'_>, s: &mut State, fs: FsId, bytes: i64) -> Result<()> {
    if bytes == 0 {
        return Ok(());
    }
    let key = keys::usage(t.partition, fs, 0);
    let mut usage: UsageRec = t.read(&key)?.unwrap_or_default();
    usage.flash = usage.flash.saturating_add_signed(bytes);
    t.write(key, &usage);
    s.data.space.flash.insert(fs, usage.flash);
    Ok(())
}

/// What `bytes` more in the file add to usage, bytes.
pub(crate) fn growth(inode: &InodeRec, bytes: u64) -> u64 {
    whole_blocks(inode.attr.used.saturating_add(bytes)) - inode.charged()
}

/// Changes what a file holds by `bytes`: in its inode (not stored here), and in whole blocks in the usage record and in
/// memory.
pub(crate) fn charge(t: &mut Txn<'_>, s: &mut State, fs: FsId, inode: &mut InodeRec, bytes: i64) -> Result<()> {
    // The inode's count is the truth: never take more from the record than the file had.
    let before = inode.charged();
    inode.attr.used = inode.attr.used.saturating_add_signed(bytes);
    settle(t, s, fs, inode.charged() as i64 - before as i64, 0)
}

/// Like [`account`], and keeps the number in memory in step.
pub(crate) fn settle(t: &mut Txn<'_>, s: &mut State, fs: FsId, bytes: i64, inodes: i64) -> Result<()> {
    if bytes == 0 && inodes == 0 {
        return Ok(());
    }
    let usage = account(t, fs, bytes, inodes)?;
    s.data.space.used.insert(fs, usage.bytes);
    Ok(())
}
