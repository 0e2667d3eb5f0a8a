//! The capacity tier of a partition: which of its data lies in objects, and when it moves there and back.
//!
//! Life of bytes in a tiered file system (design 5.12):
//! 1. *Flash only*: written, merged into a base. When the cue has passed since, they are put into an object with others
//!    of their age, in the order of their files ([`upload`]).
//! 2. *Flash and object*: one entry says so once the object is whole. When the retention has passed since, or flash runs
//!    short, their place on flash is given up: a change of the base, no bytes move ([`sweep`]).
//! 3. *Object only*: reads ask the partition's host for parts of the object, and bring it back to 2 ([`fetch`]).
//! 4. What is overwritten or removed is gone from its object, too; objects with many holes are put together
//!    ([`reclaim`]), those without any reference are removed ([`blobs`]).
//!
//! Bytes in an object never change, and a place names them for good; so an upload needs no look at what happened to a
//! chunk meanwhile: wherever its base still names the place that was read, it may name the object beside it.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use braid_base::ids::{Chunk, FsId, Ino};
use braid_base::limits::{CHUNK, TIER_CHUNKS_MAX};
use braid_base::msg::fs::{Ages, Layout, Reply, TierWant};
use braid_base::msg::host::{Moved, Tiering};
use braid_base::record::{Extent, ObjectAt, Place};
use braid_base::{Error, ErrorKind, Result};
use braid_replica::kv::Kv;

use crate::config::{Config, TierPolicy};
use crate::data::chunk::{ChunkId, FileId, chunk_at};
use crate::data::remap;
use crate::event::{Effect, Token};
use crate::ops::Verdict;
use crate::ops::write::load_file;
use crate::state::State;
use crate::txn::Txn;

pub(crate) mod audit;
pub(crate) mod bare;
pub(crate) mod blobs;
pub(crate) mod damage;
pub(crate) mod fetch;
mod notice;
pub(crate) mod reclaim;
pub(crate) mod steps;
mod sweep;
mod upload;

/// What a layout may be used for without asking again, at most, milliseconds: longer, and reads that nobody hears of would
/// not keep their bytes on flash.
const FRESH_MS_MAX: u64 = 60_000;
/// The same of one that names objects, milliseconds: they are on their way back.
const FRESH_OBJECT_MS: u32 = 1_000;
/// Files whose last read is remembered, at most.
const ACCESSED_MAX: usize = 1 << 20;
/// Flash in use above which it is short, per cent, and below which it is not any more.
const SHORT_PERCENT: (u64, u64) = (95, 90);

/// The tier in memory.
pub(crate) struct Tier {
    pub policies: BTreeMap<FsId, TierPolicy>,
    pub blobs: blobs::Blobs,
    pub uploads: upload::Uploads,
    pub fetches: fetch::Fetches,
    pub damage: damage::Damage,
    pub bare: bare::Bare,
    sweeps: BTreeMap<FsId, sweep::Sweep>,
    /// When files were last read, seconds since 1970.
    accessed: HashMap<FileId, u32>,
    /// File systems that are short of flash.
    short: BTreeSet<FsId>,
    /// When something was last put into an object, or left flash, milliseconds.
    moved: BTreeMap<FsId, u64>,
    /// When it was last told that data leaves flash early, milliseconds.
    told: BTreeMap<FsId, u64>,
    /// What has moved, for who looks.
    sums: BTreeMap<FsId, Moved>,
    steps: steps::TierSteps,
    /// Chunks that come to name an object with one entry, at most.
    few: usize,
}

impl Tier {
    pub fn load(config: &Config, kv: &dyn Kv) -> Result<Self> {
        Ok(Self {
            policies: BTreeMap::new(),
            blobs: blobs::Blobs::load(config, kv)?,
            uploads: upload::Uploads::new(config),
            fetches: fetch::Fetches::default(),
            damage: damage::Damage::default(),
            bare: bare::Bare::default(),
            sweeps: BTreeMap::new(),
            accessed: HashMap::new(),
            short: BTreeSet::new(),
            moved: BTreeMap::new(),
            told: BTreeMap::new(),
            sums: BTreeMap::new(),
            steps: steps::TierSteps::default(),
            few: usize::MAX,
        })
    }

    /// Up to when flash of `fs` was, or may well be, on its way to be free, milliseconds: something was put into an object,
    /// or left flash; or an object is on its way, and its store only slow.
    pub fn moves_ms(&self, fs: FsId) -> u64 {
        self.moved.get(&fs).copied().unwrap_or(0).max(self.uploads.patience_ms(fs))
    }

    /// Where it is counted what of `fs` moves.
    pub fn sums(&mut self, fs: FsId) -> &mut Moved {
        self.sums.entry(fs).or_default()
    }

    /// Something of `fs` was put into an object, or left flash.
    fn moved(&mut self, fs: FsId, now_ms: u64) {
        self.moved.insert(fs, now_ms);
    }

    /// A base of `fs` was written, and counts from `since_s`.
    pub fn changed(&mut self, fs: FsId, since_s: u32) {
        if let (Some(policy), Some(sweep)) = (self.policies.get(&fs), self.sweeps.get_mut(&fs)) {
            sweep.changed(policy, since_s);
        }
    }
}

/// The clock on the wall, seconds since 1970.
pub(crate) fn wall_s(t: &Txn<'_>) -> u32 {
    u32::try_from(t.now.wall.sec.max(0)).unwrap_or(u32::MAX)
}

/// What each file system with an object store is to do from now on.
pub(crate) fn set_policies(s: &mut State, policies: BTreeMap<FsId, TierPolicy>) {
    let tier = &mut s.data.tier;
    tier.sweeps.retain(|fs, _| policies.contains_key(fs));
    // A share of flash that changed is looked at all the time: what a pass found counts on.
    let rules = |policy: &TierPolicy| TierPolicy { flash_bytes: None, ..policy.clone() };
    for (fs, policy) in &policies {
        if tier.policies.get(fs).map(rules) != Some(rules(policy)) {
            tier.sweeps.insert(*fs, sweep::Sweep::default());
        }
    }
    tier.short.retain(|fs| policies.contains_key(fs));
    tier.moved.retain(|fs, _| policies.contains_key(fs));
    tier.told.retain(|fs, _| policies.contains_key(fs));
    tier.uploads.turns.retain(|fs, _| policies.contains_key(fs));
    s.data.space.tiered = policies.iter().filter(|(_, p)| p.writable.is_some()).map(|(fs, _)| *fs).collect();
    s.data.tier.policies = policies;
}

/// One bounded step of the tier's work.
pub(crate) fn step(t: &mut Txn<'_>, s: &mut State) -> Result<()> {
    upload::commit(t, s)?;
    blobs::step(t, s)?;
    damage::step(t, s)?;
    bare::step(t, s)?;
    look(s);
    sweep::step(t, s)?;
    fetch::step(t, s)
}

/// Takes the end of an upload or a removal; false if it is neither.
pub(crate) fn done(t: &mut Txn<'_>, s: &mut State, id: u64, result: &Result<()>) -> Result<bool> {
    Ok(upload::done(t, s, id, result)? || blobs::removed(t, s, id, result)?)
}

/// `Op::ReadObject`.
pub(crate) fn read(
    t: &mut Txn<'_>,
    s: &mut State,
    token: Token,
    at: ObjectAt,
    (len, more): (u32, u32),
) -> Result<Verdict> {
    if len == 0 || u64::from(len) > CHUNK {
        return Err(Error::new(
            ErrorKind::Invalid,
            format!("1 to {CHUNK} bytes of an object are read at a time, not {len}"),
        ));
    }
    let Some(key) = s.data.tier.blobs.key(at.blob) else {
        return Err(Error::new(
            ErrorKind::Stale,
            format!("there is no {} (any more): its bytes are elsewhere", at.blob),
        ));
    };
    if let Some(fs) = s.data.tier.blobs.fs(at.blob) {
        let sums = s.data.tier.sums(fs);
        (sums.cold_reads, sums.cold_bytes) = (sums.cold_reads + 1, sums.cold_bytes + u64::from(len));
    }
    t.at_once(Effect::ReadObject(token, key, at.off, (len, more)));
    Ok(Verdict::Later)
}

/// `Op::Tier`.
pub(crate) fn want(
    t: &Txn<'_>,
    s: &mut State,
    fs: FsId,
    ino: Ino,
    (off, len): (u64, u64),
    want: TierWant,
) -> Result<Reply> {
    let size = load_file(t, s, fs, ino)?.attr.size;
    if !s.data.tier.policies.contains_key(&fs) {
        let text = format!("{fs} has no object store: attach one with `braid fs tier s3 attach`");
        return Err(Error::new(ErrorKind::NotFound, text));
    }
    let end = off.saturating_add(len).min(size);
    if off < end {
        let (file, range) = (FileId::first(fs, ino), (chunk_at(off), chunk_at(end - 1)));
        for chunk in remap::with_records(t, s, file, range, TIER_CHUNKS_MAX)? {
            let chunk = file.chunk(chunk);
            match want {
                TierWant::Flash => s.data.tier.fetches.want(chunk),
                TierWant::Object if u64::from(chunk.chunk.0) >= upload::CHUNKS_MAX => {
                    let most = upload::CHUNKS_MAX * CHUNK;
                    let text = format!("what lies behind byte {most} of a file stays on flash: no object can name it");
                    return Err(Error::new(ErrorKind::FileTooBig, text));
                }
                TierWant::Object => {
                    if s.data.stage.has(chunk) {
                        s.data.jobs.want(chunk);
                    }
                    s.data.tier.sweeps.entry(fs).or_default().want(chunk, t.now.mono_ms);
                }
            }
        }
    }
    Ok(Reply::Done)
}

/// A layout of the bytes `[off, end)` of `file` is shown to who reads them. What of it is in objects comes back, with
/// `recall`.
pub(crate) fn shown(
    t: &Txn<'_>,
    s: &mut State,
    file: FileId,
    (off, end): (u64, u64),
    layout: &mut Layout,
    recall: bool,
) {
    let Some(policy) = s.data.tier.policies.get(&file.fs) else { return };
    let (now, retention_ms) = (wall_s(t), u64::from(policy.retention_s) * 1_000);
    layout.fresh_ms = (retention_ms / 8).clamp(1_000, FRESH_MS_MAX) as u32;
    let mut met: Vec<Chunk> = Vec::new();
    for (at, extent) in &layout.extents {
        if matches!(extent.place, Place::Object(_)) && met.last() != Some(&chunk_at(*at)) {
            met.push(chunk_at(*at));
        }
    }
    if !met.is_empty() && recall {
        layout.fresh_ms = FRESH_OBJECT_MS;
    }
    let (ahead, last) = (policy.prefetch_bytes, chunk_at(layout.size.saturating_sub(1)));
    let tier = &mut s.data.tier;
    if recall {
        tier.fetches.read(file, (chunk_at(off), chunk_at(end - 1)), &met, (ahead, last));
        if tier.accessed.len() >= ACCESSED_MAX && !tier.accessed.contains_key(&file) {
            tier.accessed.clear();
        }
        tier.accessed.insert(file, now);
    }
}

/// From when the bytes of a chunk of `file` count that consists of `extents`; `since_s`: what its base says, if it is all
/// there is.
pub(crate) fn ages(t: &Txn<'_>, s: &State, file: FileId, (since_s, extents): (Option<u32>, &[Extent])) -> Ages {
    let policy = s.data.tier.policies.get(&file.fs);
    let read_s = s.data.tier.accessed.get(&file).copied();
    let mut ages = Ages { now_s: wall_s(t), read_s, ..Ages::default() };
    let span = since_s.map(|since_s| (since_s, since_s));
    for extent in extents {
        let bytes = u64::from(extent.len);
        match (extent.place, extent.place.object()) {
            (Place::Object(at), _) => {
                let lost = if s.data.tier.damage.touches(at, extent.len) { bytes } else { 0 };
                ages.lost += lost;
            }
            (Place::Stage { .. }, _) => ages.unmerged += bytes,
            (_, None) if span.is_none() => ages.unmerged += bytes,
            (_, None) => ages.fresh_s = span,
            (_, Some(_)) => ages.copied_s = span,
        }
        if policy.is_some_and(|policy| leaves(s, policy, extent)) {
            ages.leaving += bytes;
        }
    }
    ages
}

/// Bytes of `extents` that are in objects only.
pub(crate) fn far(extents: &[Extent]) -> u64 {
    let far = extents.iter().filter(|extent| matches!(extent.place, Place::Object(_)));
    far.map(|extent| u64::from(extent.len)).sum()
}

/// What moves between flash and object stores, by file system.
pub(crate) fn tiering(s: &State) -> BTreeMap<FsId, Tiering> {
    let Tier { policies, sweeps, sums, .. } = &s.data.tier;
    let all = s.data.space.by_fs().keys().chain(policies.keys()).copied();
    let one = |fs: FsId| {
        let (due, due_s) = sweeps.get(&fs).map(sweep::Sweep::due).unwrap_or_default();
        let (flash, short, waiting) = (on_flash(s, fs), is_short(s, fs), s.data.held.lacking_of(fs));
        (fs, Tiering { flash, short, waiting, due, due_s, moved: sums.get(&fs).copied().unwrap_or_default() })
    };
    all.map(one).collect()
}

/// True if `extent` is in an object, alone or beside flash, of a store that is to be left.
fn leaves(s: &State, policy: &TierPolicy, extent: &Extent) -> bool {
    extent.place.object().is_some_and(|at| is_left(s, policy, at))
}

/// True if the store of an object is to be left.
fn is_left(s: &State, policy: &TierPolicy, at: ObjectAt) -> bool {
    s.data.tier.blobs.store(at.blob).is_some_and(|store| policy.leaving.contains(&store))
}

/// The base of `chunk` is made of `extents` now: where flash is short it need not be found first.
pub(crate) fn written(s: &mut State, chunk: ChunkId, since_s: u32, extents: &[Extent]) {
    if !is_short(s, chunk.file.fs) {
        return;
    }
    let fresh = extents.iter().filter(|extent| extent.place.object().is_none());
    let bytes: u64 = fresh.map(|extent| u64::from(extent.len)).sum();
    if let Some(sweep) = s.data.tier.sweeps.get_mut(&chunk.file.fs).filter(|_| bytes > 0) {
        sweep.add(since_s, chunk, bytes);
    }
}

/// True if `fs` takes more of flash than it may for long: what is in objects leaves before its time, nothing comes back.
pub(crate) fn is_short(s: &State, fs: FsId) -> bool {
    s.data.tier.short.contains(&fs)
}

/// Bytes of `fs` that take room on flash, or will when they leave the log.
pub(crate) fn on_flash(s: &State, fs: FsId) -> u64 {
    s.data.space.flash(fs) + s.data.stage.bytes_of(fs)
}

/// Of `fs`, if its data leaves flash: what it may fill of it, if that is bounded, and what all take, and it alone, with what
/// is staged and lent; bytes.
fn taken(s: &State, fs: FsId) -> Option<(Option<u64>, u64, u64)> {
    let policy = s.data.tier.policies.get(&fs).filter(|policy| policy.writable.is_some())?;
    let all = s.data.space.occupied() + s.data.stage.bytes() + s.data.grants.outstanding(None);
    Some((policy.flash_bytes, all, on_flash(s, fs) + s.data.grants.lent_to(fs)))
}

/// Bytes that `fs` may still take of flash, beside what is lent; none: its data does not leave flash.
pub(crate) fn flash_left(s: &State, fs: FsId) -> Option<u64> {
    let (bound, all, own) = taken(s, fs)?;
    let left = s.config.capacity_bytes.saturating_sub(all);
    Some(bound.map_or(left, |most| most.saturating_sub(own).min(left)))
}

/// Bytes by which `fs` takes so much of flash that what is in objects ought to leave it: more than 95 %, and until it is
/// 90 %; or that the next write lacks which waits for room.
fn beyond_flash(s: &State, fs: FsId) -> u64 {
    let Some((bound, all, own)) = taken(s, fs) else { return 0 };
    let percent = if is_short(s, fs) { SHORT_PERCENT.1 } else { SHORT_PERCENT.0 };
    // Never more than `most`.
    let part = |most: u64| (u128::from(most) * u128::from(percent) / 100) as u64;
    let lacks = s.data.held.lacks(fs).map_or(0, |cost| cost.saturating_sub(flash_left(s, fs).unwrap_or(cost)));
    let own_beyond = bound.map_or(0, |most| own.saturating_sub(part(most)));
    all.saturating_sub(part(s.config.capacity_bytes)).max(own_beyond).max(lacks)
}

/// True if writes wait until what is not merged yet can leave flash, too.
pub(crate) fn presses(s: &State) -> bool {
    s.data.held.len() > 0 && s.data.tier.short.iter().any(|fs| s.data.stage.holds(*fs))
}

/// Looks who is short of flash.
fn look(s: &mut State) {
    for fs in s.data.tier.policies.keys().copied().collect::<Vec<_>>() {
        let fills = beyond_flash(s, fs) > 0;
        let Tier { short, sweeps, .. } = &mut s.data.tier;
        if !fills {
            short.remove(&fs);
        } else if short.insert(fs)
            && let Some(sweep) = sweeps.get_mut(&fs)
        {
            sweep.now();
        }
    }
}
