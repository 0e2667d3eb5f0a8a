//! The table of objects: which there are, how much of each is in use, which are to be removed from their store.
//!
//! Life of an object (I24):
//! 1. *Uploading*: its record is logged, then it is sent. Its key has this term in it, so nobody else ever writes it.
//! 2. *Present*: it is whole in its store; references to it were logged with that, or are being logged ([`super::upload`]).
//!    From then on they can only become fewer.
//! 3. *Dead*: a scan of its hints found no reference; logged, then its removal is asked for, again and again until it is
//!    confirmed.
//!
//! One that an earlier primary was sending may still arrive after it was removed: so its removal waits until no sender
//! can be at work any more.
//!
//! A store that is given up is asked as any other; once it has failed to remove one object of a file system, all of them
//! that are dead are forgotten, and lie there for good.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::{Bound, RangeBounds};

use braid_base::ids::{BlobId, FsId, StoreId, Term};
use braid_base::keys::{self, Table, prefix_end};
use braid_base::limits::CLEANUP_KEYS_MAX;
use braid_base::msg::host::Stored;
use braid_base::msg::job::{Job, ObjectKey, RemoveJob};
use braid_base::record::{BlobRec, BlobState, Extent, Record};
use braid_base::{Error, ErrorKind, Result};
use braid_replica::kv::Kv;

use crate::config::Config;
use crate::data::chunk::{ChunkId, FileId};
use crate::data::view::Cuts;
use crate::data::{self, care, remap};
use crate::event::Effect;
use crate::state::State;
use crate::txn::Txn;

/// Name of the counter in table Meta.
const COUNTER: &str = "blob";
/// Longer than a sender goes on: a request is given up after 15 minutes at most.
const SENT_MS: u64 = 30 * 60_000;
/// Removals of one partition at a time.
const REMOVALS_MAX: usize = 16;
/// A removal that failed is tried again after this, milliseconds.
const REMOVE_AGAIN_MS: u64 = 10_000;

/// Where an object stands, in memory.
#[derive(Clone, Debug)]
enum Life {
    /// It is being sent, or references to it are being logged.
    Gaining,
    /// In use; how far the scan for references is, if its count says there are none.
    Present { next: Option<Vec<u8>>, found: u64 },
    /// To be removed then, unless it is being removed; none: as soon as no sender can be at work any more.
    Dead { due_ms: Option<u64>, asked: bool },
}

/// An object.
#[derive(Clone, Debug)]
struct Blob {
    rec: BlobRec,
    life: Life,
}

/// All objects of the partition.
#[derive(Default)]
pub(crate) struct Blobs {
    table: BTreeMap<BlobId, Blob>,
    /// Those that need a step of care.
    care: BTreeSet<BlobId>,
    /// The last one that had it: all have their turn, however many wait for a store that is away.
    tended: Option<BlobId>,
    /// Serial of the newest one.
    newest: u64,
    /// Removals under way.
    removing: BTreeMap<u64, BlobId>,
    /// Stores that have failed to remove something of a file system since they were given up.
    mute: BTreeSet<(FsId, StoreId)>,
    /// Number of the newest one.
    next_job: u64,
}

/// Numbers of removals have this bit: those of other jobs do not.
const NUMBERS: u64 = 3 << 60;

impl Blobs {
    /// Reads table 23.
    pub fn load(config: &Config, kv: &dyn Kv) -> Result<Self> {
        let p = config.partition;
        let newest = data::counter(kv, p, COUNTER, "object")?;
        let mut blobs = Self { newest, next_job: NUMBERS | (config.term.0 << 32), ..Self::default() };
        let mut bad = None;
        let prefix = keys::table(p, Table::Blob);
        kv.scan(&prefix, &prefix_end(&prefix), &mut |key, value| {
            match (keys::blob_of(p, key), BlobRec::decode(value)) {
                (Some(id), Ok(rec)) => blobs.found(id, rec),
                (_, Err(error)) => bad = Some(error),
                (None, _) => bad = Some(Error::new(ErrorKind::Corrupt, "object: the key is too short")),
            }
            bad.is_none()
        })?;
        bad.map_or(Ok(blobs), Err)
    }

    fn found(&mut self, id: BlobId, rec: BlobRec) {
        let life = match rec.state {
            BlobState::Uploading => Life::Dead { due_ms: None, asked: false },
            BlobState::Present => Life::Present { next: None, found: 0 },
            BlobState::Dead => Life::Dead { due_ms: Some(0), asked: false },
        };
        if !matches!(life, Life::Present { .. }) || rec.live_upper == 0 {
            self.care.insert(id);
        }
        self.table.insert(id, Blob { rec, life });
    }

    /// A new object of `size` bytes, `held` of them of files, in `store`; logged before it is sent.
    pub fn begin(
        &mut self,
        t: &mut Txn<'_>,
        (fs, store, term): (FsId, StoreId, Term),
        (size, held): (u32, u32),
    ) -> ObjectKey {
        self.newest += 1;
        let blob = BlobId::new(t.partition, self.newest);
        let rec = BlobRec { state: BlobState::Uploading, fs, store, term, size, held, live_upper: 0 };
        t.put(keys::meta(t.partition, COUNTER), self.newest.to_be_bytes().to_vec());
        t.write(keys::blob(t.partition, blob), &rec);
        self.table.insert(blob, Blob { rec, life: Life::Gaining });
        ObjectKey { store, blob, term }
    }

    /// It is whole in its store: from this entry on it may be referred to.
    pub fn arrived(&mut self, t: &mut Txn<'_>, id: BlobId) {
        let Some(blob) = self.table.get_mut(&id) else { return };
        blob.rec.state = BlobState::Present;
        t.write(keys::blob(t.partition, id), &blob.rec);
    }

    /// It gains no more references.
    pub fn settled(&mut self, id: BlobId) {
        let Some(blob) = self.table.get_mut(&id) else { return };
        blob.life = Life::Present { next: None, found: 0 };
        if blob.rec.live_upper == 0 {
            self.care.insert(id);
        }
    }

    /// Nothing refers to it, and nothing will: what lies in its store, or may lie there, is removed.
    pub fn bury(&mut self, t: &mut Txn<'_>, id: BlobId) {
        let Some(blob) = self.table.get_mut(&id) else { return };
        assert!(blob.rec.live_upper == 0, "{id}: is removed while in use");
        blob.rec.state = BlobState::Dead;
        blob.life = Life::Dead { due_ms: Some(t.now.mono_ms), asked: false };
        t.write(keys::blob(t.partition, id), &blob.rec);
        self.care.insert(id);
    }

    /// The name of an object that may be read: it is whole, and not being removed.
    pub fn key(&self, id: BlobId) -> Option<ObjectKey> {
        let Blob { rec, .. } = self.table.get(&id)?;
        let present = rec.state == BlobState::Present;
        present.then_some(ObjectKey { store: rec.store, blob: id, term: rec.term })
    }

    /// The store of an object.
    pub fn store(&self, id: BlobId) -> Option<StoreId> {
        self.table.get(&id).map(|blob| blob.rec.store)
    }

    /// The record of an object.
    pub fn record(&self, id: BlobId) -> Option<&BlobRec> {
        self.table.get(&id).map(|blob| &blob.rec)
    }

    /// Those of `range`, in order.
    pub fn records(&self, range: impl RangeBounds<BlobId>) -> impl Iterator<Item = (BlobId, &BlobRec)> {
        self.table.range(range).map(|(id, blob)| (*id, &blob.rec))
    }

    /// Serial of the newest one that there ever was.
    pub fn newest(&self) -> u64 {
        self.newest
    }

    /// The file system that an object is of.
    pub fn fs(&self, id: BlobId) -> Option<FsId> {
        self.table.get(&id).map(|blob| blob.rec.fs)
    }

    /// What is in objects, by file system and store.
    pub fn stored(&self) -> BTreeMap<(FsId, StoreId), Stored> {
        let mut sums: BTreeMap<_, Stored> = BTreeMap::new();
        for Blob { rec, .. } in self.table.values() {
            let sum = sums.entry((rec.fs, rec.store)).or_default();
            sum.objects += 1;
            if rec.state == BlobState::Present {
                sum.bytes += u64::from(rec.size);
                sum.held += u64::from(rec.held);
                sum.live += rec.live_upper;
            }
        }
        sums
    }

    /// The objects of `fs` in `store` that are whole and of which more than `percent` is free (none: any), those with the
    /// most first; and how many bytes of each are in use.
    pub fn holey(&self, fs: FsId, store: StoreId, percent: Option<u64>) -> Vec<(BlobId, u64)> {
        let settled =
            |blob: &&(&BlobId, &Blob)| matches!(blob.1.life, Life::Present { .. }) && blob.1.rec.live_upper > 0;
        let mine = self.table.iter().filter(|(_, blob)| blob.rec.fs == fs && blob.rec.store == store);
        let free = |rec: &BlobRec| u64::from(rec.held).saturating_sub(rec.live_upper);
        let mut found: Vec<(BlobId, u64, u64)> = mine
            .filter(|blob| settled(&blob))
            .filter(|(_, blob)| {
                percent.is_none_or(|percent| free(&blob.rec) * 100 > u64::from(blob.rec.held) * percent)
            })
            .map(|(id, blob)| (*id, blob.rec.live_upper, free(&blob.rec) * 1_000 / u64::from(blob.rec.held).max(1)))
            .collect();
        found.sort_unstable_by_key(|(id, _, free)| (u64::MAX - free, *id));
        found.into_iter().map(|(id, live, _)| (id, live)).collect()
    }

    /// Pointers changed: counts what bases refer to in every object, exactly.
    pub fn recount(&mut self, t: &mut Txn<'_>, before: &[Extent], after: &[Extent]) {
        let mut changes: BTreeMap<BlobId, i64> = BTreeMap::new();
        for (extents, sign) in [(before, -1), (after, 1)] {
            for extent in extents {
                if let Some(at) = extent.place.object() {
                    *changes.entry(at.blob).or_default() += sign * i64::from(extent.len);
                }
            }
        }
        for (id, change) in changes {
            let Some(blob) = self.table.get_mut(&id).filter(|_| change != 0) else { continue };
            assert!(change < 0 || matches!(blob.life, Life::Gaining), "{id}: only a new object gains references");
            blob.rec.live_upper = blob.rec.live_upper.saturating_add_signed(change);
            t.write(keys::blob(t.partition, id), &blob.rec);
            if blob.rec.live_upper == 0 && matches!(blob.life, Life::Present { .. }) {
                self.care.insert(id);
            }
        }
    }
}

/// One bounded step of care for the objects that need it.
pub(crate) fn step(t: &mut Txn<'_>, s: &mut State) -> Result<()> {
    let blobs = &s.data.tier.blobs;
    let from = blobs.tended.map_or(Bound::Unbounded, Bound::Excluded);
    let needy: Vec<BlobId> = blobs.care.range((from, Bound::Unbounded)).copied().take(CLEANUP_KEYS_MAX).collect();
    let all = needy.len() < CLEANUP_KEYS_MAX;
    for id in needy {
        if t.is_full() {
            return Ok(());
        }
        tend(t, s, id)?;
        s.data.tier.blobs.tended = Some(id);
    }
    if all {
        s.data.tier.blobs.tended = None;
    }
    Ok(())
}

fn tend(t: &mut Txn<'_>, s: &mut State, id: BlobId) -> Result<()> {
    let now = t.now.mono_ms;
    let blobs = &mut s.data.tier.blobs;
    let store = blobs.store(id);
    let removing = blobs.removing.values().filter(|id| blobs.store(**id) == store).count();
    let is_mute = blobs.record(id).is_some_and(|rec| blobs.mute.contains(&(rec.fs, rec.store)));
    if is_mute && is_given_up(s, id) && !s.data.tier.blobs.removing.values().any(|asked| *asked == id) {
        // Read, as below.
        t.get(&keys::blob(t.partition, id))?;
        return erase(t, s, id);
    }
    let blobs = &mut s.data.tier.blobs;
    let Some(blob) = blobs.table.get_mut(&id) else {
        blobs.care.remove(&id);
        return Ok(());
    };
    match &mut blob.life {
        Life::Present { .. } if blob.rec.live_upper == 0 => return check(t, s, id),
        Life::Gaining | Life::Present { .. } => {
            blobs.care.remove(&id);
        }
        Life::Dead { due_ms: due_ms @ None, .. } => *due_ms = Some(now + SENT_MS),
        Life::Dead { due_ms: Some(due_ms), asked } if !*asked && now >= *due_ms && removing < REMOVALS_MAX => {
            *asked = true;
            blobs.next_job += 1;
            blobs.removing.insert(blobs.next_job, id);
            let key = ObjectKey { store: blob.rec.store, blob: id, term: blob.rec.term };
            // Read, so that nothing is removed before its death is committed.
            t.get(&keys::blob(t.partition, id))?;
            t.after(Effect::Job(Job::Remove(RemoveJob { id: s.data.tier.blobs.next_job, key })));
        }
        Life::Dead { .. } => {}
    }
    Ok(())
}

/// Goes on with the scan for references to an object whose count says there are none.
fn check(t: &mut Txn<'_>, s: &mut State, id: BlobId) -> Result<()> {
    let Some(Blob { life: Life::Present { next, found }, .. }) = s.data.tier.blobs.table.get(&id) else {
        return Ok(());
    };
    let (chunks, next) = hinted(t, id, next.as_deref(), CLEANUP_KEYS_MAX)?;
    let mut found = *found;
    for chunk in chunks {
        let history = remap::history(t, s, chunk, &Cuts::default())?;
        let mine = history.pointers().filter(|e| e.place.object().is_some_and(|at| at.blob == id));
        found += mine.map(|e| u64::from(e.len)).sum::<u64>();
    }
    let blobs = &mut s.data.tier.blobs;
    let Some(blob) = blobs.table.get_mut(&id) else { return Ok(()) };
    if next.is_some() {
        blob.life = Life::Present { next, found };
        return Ok(());
    }
    blob.life = Life::Present { next: None, found: 0 };
    if found > 0 {
        // The count was wrong: the scan is right.
        blob.rec.live_upper = found;
        t.write(keys::blob(t.partition, id), &blob.rec);
        return Ok(());
    }
    blobs.bury(t, id);
    s.data.tier.steps.buried += 1;
    Ok(())
}

/// At most `limit` chunks that hints of `id` from key `from` on name, and the key to go on with.
pub(crate) fn hinted(
    t: &Txn<'_>,
    id: BlobId,
    from: Option<&[u8]>,
    limit: usize,
) -> Result<(Vec<ChunkId>, Option<Vec<u8>>)> {
    let prefix = keys::blob_hints(t.partition, id);
    let parse = |key: &[u8]| {
        let (fs, ino, chunk) = keys::parse_blob_hint(key)?;
        Some(FileId::first(fs, ino).chunk(chunk))
    };
    care::hints(t, from.unwrap_or(&prefix), &prefix_end(&prefix), limit, parse)
}

/// Takes the end of a removal; false if it is none of these.
pub(crate) fn removed(t: &mut Txn<'_>, s: &mut State, id: u64, result: &Result<()>) -> Result<bool> {
    let blobs = &mut s.data.tier.blobs;
    let Some(blob) = blobs.removing.remove(&id) else { return Ok(false) };
    match result {
        Ok(()) => {
            let at = blobs.record(blob).map(|rec| (rec.fs, rec.store));
            blobs.mute.retain(|mute| Some(*mute) != at);
            erase(t, s, blob)?;
        }
        Err(_) if is_given_up(s, blob) => {
            let blobs = &mut s.data.tier.blobs;
            blobs.mute.extend(blobs.table.get(&blob).map(|blob| (blob.rec.fs, blob.rec.store)));
            erase(t, s, blob)?;
        }
        Err(_) => {
            let blobs = &mut s.data.tier.blobs;
            if let Some(Blob { life, .. }) = blobs.table.get_mut(&blob) {
                *life = Life::Dead { due_ms: Some(t.now.mono_ms + REMOVE_AGAIN_MS), asked: false };
            }
        }
    }
    Ok(true)
}

/// True if `id` is dead, and left where it is if its store does not remove it.
fn is_given_up(s: &State, id: BlobId) -> bool {
    let Some(Blob { rec, life: Life::Dead { .. } }) = s.data.tier.blobs.table.get(&id) else { return false };
    s.data.tier.policies.get(&rec.fs).is_some_and(|policy| policy.given_up.contains(&rec.store))
}

/// Deletes the records of an object that is gone, at most as many as fit one entry; the rest goes with its next removal.
fn erase(t: &mut Txn<'_>, s: &mut State, id: BlobId) -> Result<()> {
    let mut left = Vec::new();
    t.scan_prefix(&keys::blob_hints(t.partition, id), &mut |key, _| {
        left.push(key.to_vec());
        left.len() <= CLEANUP_KEYS_MAX
    })?;
    let all = left.len() <= CLEANUP_KEYS_MAX;
    left.into_iter().take(CLEANUP_KEYS_MAX).for_each(|key| t.delete(key));
    let blobs = &mut s.data.tier.blobs;
    if all {
        t.delete(keys::blob(t.partition, id));
        let gone = blobs.table.remove(&id);
        blobs.care.remove(&id);
        s.data.tier.steps.erased += 1;
        if let Some(Blob { rec, .. }) = gone {
            s.data.tier.sums(rec.fs).reclaimed += u64::from(rec.size);
        }
    } else if let Some(Blob { life, .. }) = blobs.table.get_mut(&id) {
        *life = Life::Dead { due_ms: Some(t.now.mono_ms), asked: false };
    }
    Ok(())
}
