//! File data of a partition: views of chunks, packs, bulk moves, orphans, usage.
//!
//! What the name operations need of it stands here; the rest is in the rooms below.

use braid_base::ids::{ClientId, FsId, Index, Ino, PartitionId};
use braid_base::keys;
use braid_base::limits::ROOMY_BYTES;
use braid_base::msg::drive::DriveResult;
use braid_base::msg::fs::Request;
use braid_base::msg::job::Scrubbed;
use braid_base::record::{Extent, InodeRec, Place};
use braid_base::{Error, ErrorKind, Result};
use braid_replica::kv::Kv;

use crate::config::Config;
use crate::data::packs::PackChanges;
use crate::event::Token;
use crate::state::State;
use crate::txn::Txn;

pub(crate) mod chunk;
pub(crate) mod cover;
pub(crate) mod cut;
pub(crate) mod remap;
pub(crate) mod reserve;
pub(crate) mod space;
pub(crate) mod tier;
pub(crate) mod view;

mod again;
mod backoff;
mod balance;
mod care;
pub(crate) mod destage;
mod drives;
mod gc;
pub(crate) mod grants;
pub(crate) mod held;
mod lost;
mod mark;
mod merge;
pub(crate) mod packs;
mod plan;
mod reap;
mod rebuild;
pub(crate) mod scrub;
mod speed;
mod stage;
mod status;
mod suspects;

pub(crate) use reap::Loss;
pub use stage::StageLimits;
pub use status::DataStatus;

/// Volatile state of the data side.
pub struct Data {
    pub(crate) stage: stage::Stage,
    pub(crate) packs: packs::Packs,
    pub(crate) space: space::Space,
    pub(crate) orphans: reap::Orphans,
    pub(crate) cover: cover::Cover,
    cutting: cut::Cutting,
    pub(crate) grants: grants::Grants,
    jobs: destage::Jobs,
    gc: gc::Gc,
    rebuilds: rebuild::Rebuilds,
    balance: balance::Balance,
    scrub: scrub::Scrub,
    merge: merge::Merge,
    held: held::Held,
    pub(crate) tier: tier::Tier,
    /// Everything up to here is committed.
    committed: Index,
    /// A failure of the view, after which file data is not changed any more.
    fault: Option<Error>,
    /// It came in the middle of changes of what files hold: their records are not there, but in memory some are made.
    spoiled: bool,
    pub(crate) mutation: Option<Mutation>,
}

/// Rules that a test may break to show that it notices. A product build has no way to choose one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mutation {
    /// A base gets the position of its commit instead of that of its planning.
    StampAtCommit,
    /// A move is committed without a look at what became of the chunk.
    NoCheck,
    /// Ranges of a failed move are lent again.
    LendAgain,
    /// No hints are written.
    NoHint,
    /// A commit may name any stripe, lent or not.
    AnyGrant,
    /// Requests that share an entry know nothing of each other's slices and payload.
    GatherBlind,
    /// A shard that was made anew elsewhere is dropped before that is committed.
    DropUndecided,
    /// A pack is given up as soon as its collection was planned, without a look at what still refers to it.
    NoScan,
    /// An object counts as whole although it was said that it is not.
    TrustUpload,
    /// An object is named without a look at what became of the bytes that are in it.
    NameBlindly,
    /// No hints are written for objects.
    NoBlobHint,
    /// Bytes leave flash that are in no object.
    ReleaseAll,
    /// What comes back from objects goes into packs without parity, whatever comes with it.
    BareAll,
}

impl Data {
    /// True if a write of `client` waits here for room.
    pub(crate) fn is_waiting(&self, client: ClientId) -> bool {
        self.held.is_waiting(client)
    }

    pub(crate) fn load(config: &Config, kv: &dyn Kv) -> Result<Self> {
        Ok(Self {
            stage: stage::Stage::load(config.partition, kv)?,
            packs: packs::Packs::load(config, kv)?,
            space: space::Space::load(config.partition, kv)?,
            orphans: reap::Orphans::load(config.partition, kv)?,
            cover: cover::Cover::default(),
            cutting: cut::Cutting::load(config.partition, kv)?,
            grants: grants::Grants::default(),
            jobs: destage::Jobs::new(config),
            gc: gc::Gc::default(),
            rebuilds: rebuild::Rebuilds::new(config),
            balance: balance::Balance::default(),
            scrub: scrub::Scrub::load(config, kv)?,
            merge: merge::Merge::default(),
            held: held::Held::default(),
            tier: tier::Tier::load(config, kv)?,
            committed: Index(0),
            fault: None,
            spoiled: false,
            mutation: None,
        })
    }

    /// The oldest log position whose payload is still referenced, now or in any state that a crash could bring back.
    pub fn oldest_stage(&self) -> Option<Index> {
        // After a fault the index in memory may miss something: keep all.
        if self.fault.is_some() { Some(Index(0)) } else { self.stage.oldest() }
    }

    /// How often what decides in memory what files hold was changed.
    pub(crate) fn content_changes(&self) -> u64 {
        self.stage.changes() + self.cutting.changes()
    }

    /// The view failed; `spoiled`: when some of what decides what files hold was changed.
    pub(crate) fn failed(&mut self, error: Error, spoiled: bool) {
        self.spoiled |= spoiled;
        self.fault.get_or_insert(error);
    }

    /// Everything up to `upto` is committed.
    pub(crate) fn committed(&mut self, upto: Index) {
        self.committed = self.committed.max(upto);
        self.stage.committed(upto);
    }
}

/// An inode lost its last name: it goes at once if it holds little and nobody has it open or may yet open it, else it
/// becomes an orphan that background work removes. `inode.attr.nlink` is 0 already; stores or deletes the inode itself.
pub(crate) fn dropped(t: &mut Txn<'_>, s: &mut State, of: (FsId, Ino), inode: &mut InodeRec, loss: Loss) -> Result<()> {
    reap::dropped(t, s, of, inode, loss)
}

/// Sets the length of a file: hides what was beyond it. Changes `inode` (size, used, times), does not store it.
pub(crate) fn truncate(
    t: &mut Txn<'_>,
    s: &mut State,
    fs: FsId,
    ino: Ino,
    inode: &mut InodeRec,
    size: u64,
) -> Result<()> {
    s.check_fault()?;
    cut::truncate(t, s, fs, ino, inode, size)
}

/// True if so much is free for `fs` that a client need not ask for room for a few small files.
pub(crate) fn is_roomy(s: &State, fs: FsId) -> bool {
    left(s, fs) >= ROOMY_BYTES
}

/// Bytes that `fs` may still take here, beside what is lent. What has to leave flash to make room does not count.
pub(crate) fn left(s: &State, fs: FsId) -> u64 {
    let grants = &s.data.grants;
    let room = || s.data.space.room(s.config.capacity_bytes.saturating_sub(grants.outstanding(None)));
    let own = s.data.space.below_limit(fs).saturating_sub(grants.lent_to(fs));
    tier::flash_left(s, fs).unwrap_or_else(room).min(own)
}

/// Records of `fs` point to `after` instead of `before`: counts what is in use of packs and objects, and of flash.
pub(crate) fn recount(t: &mut Txn<'_>, s: &mut State, fs: FsId, before: &[Extent], after: &[Extent]) -> Result<()> {
    let mut packs = PackChanges::default();
    packs.count(before, after);
    s.data.packs.recount(t, packs);
    recount_beside_packs(t, s, fs, before, after)
}

/// As [`recount`], where packs are counted for many chunks together.
fn recount_beside_packs(t: &mut Txn<'_>, s: &mut State, fs: FsId, before: &[Extent], after: &[Extent]) -> Result<()> {
    s.data.tier.blobs.recount(t, before, after);
    let flash = |extents: &[Extent]| {
        let mine = extents.iter().filter(|extent| matches!(extent.place, Place::Flash { .. }));
        mine.map(|extent| i64::from(extent.len)).sum::<i64>()
    };
    space::flash_changed(t, s, fs, flash(after) - flash(before))
}

/// The number at `name` in table Meta: the newest of the `what`s of partition `p`.
pub(crate) fn counter(kv: &dyn Kv, p: PartitionId, name: &str, what: &str) -> Result<u64> {
    let Some(bytes) = kv.get(&keys::meta(p, name))? else { return Ok(0) };
    let bytes = bytes.as_slice().try_into();
    bytes
        .map(u64::from_be_bytes)
        .map_err(|_| Error::new(ErrorKind::Corrupt, format!("{what} counter: expected 8 bytes")))
}

/// Adds to the usage of the file system in this partition.
pub(crate) fn account(t: &mut Txn<'_>, fs: FsId, bytes: i64, inodes: i64) -> Result<()> {
    space::account(t, fs, bytes, inodes).map(drop)
}

/// Takes the end of a bulk move.
pub(crate) fn job_done(t: &mut Txn<'_>, s: &mut State, id: u64, result: Result<()>) {
    guarded(t, s, |t, s| {
        if tier::done(t, s, id, &result)? || scrub::done(t, s, id, &result) || rebuild::done(t, s, id, &result) {
            return Ok(());
        }
        destage::done(t, s, id, result)
    });
}

/// Takes the end of the check of a pack.
pub(crate) fn scrubbed(t: &mut Txn<'_>, s: &mut State, id: u64, result: Result<Scrubbed>) {
    guarded(t, s, |t, s| scrub::checked(t, s, id, result));
}

/// Takes a drive's answer.
pub(crate) fn drive(t: &mut Txn<'_>, s: &mut State, id: u64, result: DriveResult) {
    guarded(t, s, |t, s| care::answered(t, s, id, result));
}

/// One bounded step of background work (reap orphans, clean punched chunks, plan destage, open and drop packs).
pub(crate) fn background(t: &mut Txn<'_>, s: &mut State) {
    guarded(t, s, |t, s| {
        s.data.stage.began(t.now.mono_ms);
        held::expire(t, s);
        grants::tend(t, s);
        merge::step(t, s)?;
        rebuild::start(t, s)?;
        scrub::start(t, s)?;
        destage::start(t, s)?;
        care::step(t, s)?;
        for work in [reap::reap, cut::clean, tier::step] {
            if !t.is_full() {
                work(t, s)?;
            }
        }
        Ok(())
    });
}

/// True if an answer of a drive made room for work that waited for it, once.
pub(crate) fn is_woken(s: &mut State) -> bool {
    s.data.tier.fetches.take_woken()
}

/// The next write that was held back and may run now.
pub(crate) fn next_held(s: &mut State) -> Option<(Token, Request)> {
    held::next(s)
}

/// Runs work that nobody waits for. If it fails, what it had changed in memory is not to be trusted any more.
fn guarded(t: &mut Txn<'_>, s: &mut State, work: impl FnOnce(&mut Txn<'_>, &mut State) -> Result<()>) {
    if s.data.fault.is_some() {
        return;
    }
    let before = s.data.content_changes();
    if let Err(error) = work(t, s) {
        let spoiled = s.data.content_changes() != before;
        s.data.failed(error, spoiled);
        t.abandon();
    }
}
