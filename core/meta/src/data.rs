//! File data of a partition: views of chunks, packs, bulk moves, orphans, usage.
//!
//! What the name operations need of it stands here; the rest is in the rooms below.

use braid_base::ids::{FsId, Index, Ino};
use braid_base::msg::drive::DriveResult;
use braid_base::record::InodeRec;
use braid_base::Result;
use braid_replica::kv::Kv;

use crate::partition::Config;
use crate::state::State;
use crate::txn::Txn;

/// Volatile state of the data side.
#[derive(Default)]
pub struct Data {}

impl Data {
    pub(crate) fn load(_config: &Config, _kv: &dyn Kv) -> Result<Self> {
        Ok(Self::default())
    }

    /// The oldest log position whose payload is still referenced.
    pub fn oldest_stage(&self) -> Option<Index> {
        None
    }
}

/// An inode lost its last name: it goes at once if it holds nothing and nobody has it open, else it becomes an
/// orphan that background work removes. `inode.attr.nlink` is 0 already; stores or deletes the inode itself.
pub(crate) fn dropped(_t: &mut Txn<'_>, _s: &mut State, _fs: FsId, _ino: Ino, _inode: &mut InodeRec) -> Result<()> {
    Ok(())
}

/// Sets the length of a file: hides what was beyond it. Changes `inode` (size, used, times), does not store it.
pub(crate) fn truncate(
    _t: &mut Txn<'_>,
    _s: &mut State,
    _fs: FsId,
    _ino: Ino,
    _inode: &mut InodeRec,
    _size: u64,
) -> Result<()> {
    Ok(())
}

/// Adds to the usage of the file system in this partition.
pub(crate) fn account(_t: &mut Txn<'_>, _fs: FsId, _bytes: i64, _inodes: i64) -> Result<()> {
    Ok(())
}

/// Takes the end of a bulk move.
pub(crate) fn job_done(_t: &mut Txn<'_>, _s: &mut State, _id: u64, _result: Result<()>) {}

/// Takes a drive's answer.
pub(crate) fn drive(_t: &mut Txn<'_>, _s: &mut State, _id: u64, _result: DriveResult) {}

/// One bounded step of background work (reap orphans, clean punched chunks, plan destage, open and drop packs).
pub(crate) fn background(_t: &mut Txn<'_>, _s: &mut State) {}
