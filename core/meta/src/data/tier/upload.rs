//! Puts bytes into objects: plans what goes into one, and names it beside what was read once it is whole.
//!
//! 1. *Plan*: whole blocks of chunks whose bytes are merged, in the order of their files, until an object is full. Its
//!    record is logged, then it is sent. Nothing is locked: chunks are written, moved and cut meanwhile.
//! 2. *Commit*, in as many entries as it takes: wherever a base still names the place that was read, it names the object
//!    beside it. What is not there any more stays behind in the object as a hole.
//!
//! After a failure of the primary between these entries the chunks that were not reached are put into another object.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use braid_base::Result;
use braid_base::ids::{BlobId, FsId, StoreId};
use braid_base::keys;
use braid_base::limits::{BLOCK, CHUNK};
use braid_base::msg::job::{BlockRun, Job, UploadJob};
use braid_base::record::{Extent, ObjectAt, Place};

use crate::config::Config;
use crate::data::backoff::Backoff;
use crate::data::chunk::{ChunkId, FileId};
use crate::data::remap::{self, UsedChanges};
use crate::data::tier::damage::Damage;
use crate::data::tier::sweep::Sweep;
use crate::data::tier::wall_s;
use crate::data::view::{Cells, Cuts, touching};
use crate::data::{Mutation, destage, plan};
use crate::event::Effect;
use crate::state::State;
use crate::txn::Txn;

const B: u32 = BLOCK as u32;
/// Objects of one partition on their way to one store at a time: each is in the memory of its sender.
const UPLOADS_MAX: usize = 4;
/// First and longest wait after a failed upload, milliseconds.
const BACKOFF_MS: u64 = 1_000;
const BACKOFF_MS_MAX: u64 = 30_000;
/// A store that takes an object more slowly is as good as away, bytes per second.
const SLOWEST: u64 = 512 << 10;
/// Numbers of uploads have this bit, and none of higher ones.
const NUMBERS: u64 = 2 << 60;
/// The 4 KiB blocks of a file that an object can name have 36 bits.
pub(super) const CHUNKS_MAX: u64 = (1 << 36) * BLOCK as u64 / CHUNK;

/// Objects on their way.
pub(crate) struct Uploads {
    running: BTreeMap<u64, Upload>,
    /// Those that are whole, and not yet named by all chunks.
    landed: VecDeque<Upload>,
    next: u64,
    /// A store that takes nothing holds up no other.
    backoffs: BTreeMap<StoreId, Backoff>,
    /// File systems whose reclamation has its turn, and the store of the object that it makes next.
    pub turns: BTreeMap<FsId, StoreId>,
}

struct Upload {
    fs: FsId,
    store: StoreId,
    bytes: u32,
    begun_ms: u64,
    /// It is made of other objects.
    reclaims: bool,
    blob: BlobId,
    chunks: VecDeque<Sent>,
}

/// What of a chunk is in an object: as it was read, and at which byte of its data it is there.
struct Sent {
    chunk: ChunkId,
    /// When it counted from.
    since_s: u32,
    pieces: Vec<(Extent, u32)>,
}

/// What goes into an object.
pub(super) struct Cargo {
    pub fs: FsId,
    pub store: StoreId,
    /// Bytes of data at most.
    pub bytes: u32,
    /// Chunks of `fs`, in order.
    pub chunks: Vec<ChunkId>,
    /// What is on flash only goes in.
    pub fresh: bool,
    /// What is in these objects goes into the new one, too.
    pub from: BTreeSet<BlobId>,
}

impl Cargo {
    fn takes(&self, place: Place) -> bool {
        match (place, place.object()) {
            (Place::Stage { .. }, _) => false,
            (_, None) => self.fresh,
            (_, Some(at)) => self.from.contains(&at.blob),
        }
    }
}

impl Uploads {
    pub fn new(config: &Config) -> Self {
        let next = NUMBERS | (config.term.0 << 32);
        let (running, landed, backoffs, turns) = Default::default();
        Self { running, landed, next, backoffs, turns }
    }

    fn all(&self) -> impl Iterator<Item = &Upload> {
        self.running.values().chain(&self.landed)
    }

    /// Objects on their way to `store`.
    pub fn to(&self, store: StoreId) -> usize {
        self.all().filter(|upload| upload.store == store).count()
    }

    /// True if `store` may take another object of what is new: some of its room is kept free for reclamation that has its turn.
    pub fn has_room(&self, store: StoreId) -> bool {
        let kept = self.turns.values().any(|of| *of == store);
        self.all().filter(|upload| upload.store == store && !upload.reclaims).count() < UPLOADS_MAX - usize::from(kept)
    }

    /// True if an object of `fs` that is made of others is on its way.
    pub fn reclaims(&self, fs: FsId) -> bool {
        self.all().any(|upload| upload.fs == fs && upload.reclaims)
    }

    /// True if another one may be begun.
    pub fn may_begin(&self, store: StoreId, now_ms: u64) -> bool {
        self.to(store) < UPLOADS_MAX && self.backoffs.get(&store).is_none_or(|backoff| backoff.is_over(now_ms))
    }

    fn backoff(&mut self, store: StoreId) -> &mut Backoff {
        self.backoffs.entry(store).or_insert(Backoff::new(BACKOFF_MS, BACKOFF_MS_MAX))
    }

    /// True if what was last sent to `store` did not arrive.
    pub fn fails(&self, store: StoreId) -> bool {
        self.backoffs.get(&store).is_some_and(Backoff::fails)
    }

    /// True if something of `fs` is on its way.
    pub fn serves(&self, fs: FsId) -> bool {
        self.all().any(|upload| upload.fs == fs)
    }

    /// Until when something of `fs` that is on its way may be, milliseconds: its store is slow, not away. 0: nothing is, or
    /// its store fails.
    pub fn patience_ms(&self, fs: FsId) -> u64 {
        let going = self.running.values().filter(|upload| upload.fs == fs && !self.fails(upload.store));
        going.map(|upload| upload.begun_ms + u64::from(upload.bytes) * 1_000 / SLOWEST).max().unwrap_or(0)
    }

    /// The chunks whose bytes are on their way.
    pub fn chunks(&self) -> BTreeSet<ChunkId> {
        self.all().flat_map(|upload| upload.chunks.iter().map(|sent| sent.chunk)).collect()
    }
}

/// Begins an object with as much of `cargo` as it holds; how many of its chunks were looked at, and whether it was begun.
pub(super) fn begin(t: &mut Txn<'_>, s: &mut State, cargo: &Cargo) -> Result<(usize, bool)> {
    let (mut sent, mut runs, mut parts) = (VecDeque::new(), Vec::new(), Vec::new());
    let (mut at, mut looked, mut cut) = (0, 0, false);
    for chunk in &cargo.chunks {
        if at >= cargo.bytes || cut {
            break;
        }
        looked += 1;
        if u64::from(chunk.chunk.0) >= CHUNKS_MAX || s.data.stage.has(*chunk) {
            // What was just written is merged first.
            continue;
        }
        let Some(cuts) = destage::cuts_if_live(t, s, chunk.file)? else { continue };
        let history = remap::history(t, s, *chunk, &cuts)?;
        let since_s = history.base.as_ref().map_or(0, |base| base.since_s);
        let extents = history.now().extents;
        let mut pieces = Vec::new();
        for (block, blocks) in marked(&extents, cargo, &s.data.tier.damage) {
            let count = blocks.min((cargo.bytes - at) / B);
            cut |= count < blocks;
            if count == 0 {
                break;
            }
            let place = |pack| s.data.packs.place(pack);
            let note = |piece: Extent| pieces.push((piece, at + (piece.off - block * B)));
            parts.extend(plan::content(&extents, (block, count), true, &place, note)?);
            let first = chunk.start() / BLOCK as u64 + u64::from(block);
            runs.push(BlockRun { ino: chunk.file.ino, block: first, blocks: count });
            at += count * B;
        }
        if !pieces.is_empty() {
            sent.push_back(Sent { chunk: *chunk, since_s, pieces });
        }
    }
    if at == 0 {
        return Ok((looked, false));
    }
    // The rest of it goes into the next one.
    looked -= usize::from(cut);
    let held = sent.iter().flat_map(|sent: &Sent| &sent.pieces).map(|(piece, _)| piece.len).sum();
    let key = s.data.tier.blobs.begin(t, (cargo.fs, cargo.store, s.config.term), (at, held));
    let uploads = &mut s.data.tier.uploads;
    uploads.next += 1;
    let Cargo { fs, store, .. } = *cargo;
    let (begun_ms, reclaims) = (t.now.mono_ms, !cargo.fresh);
    let upload = Upload { fs, store, bytes: at, begun_ms, reclaims, blob: key.blob, chunks: sent };
    uploads.running.insert(uploads.next, upload);
    t.after(Effect::Job(Job::Upload(UploadJob { id: uploads.next, key, fs: cargo.fs, runs, parts })));
    s.data.tier.steps.reclaims += u64::from(!cargo.from.is_empty());
    Ok((looked, true))
}

/// Runs of blocks with a byte that goes into the object: the first and how many. Blocks of which something is lost stay where
/// they are.
fn marked(extents: &[Extent], cargo: &Cargo, damage: &Damage) -> Vec<(u32, u32)> {
    let mut runs: Vec<(u32, u32)> = Vec::new();
    for extent in extents.iter().filter(|extent| cargo.takes(extent.place)) {
        let (first, end) = (extent.off / B, (extent.off + extent.len).div_ceil(B));
        match runs.last_mut() {
            Some((from, count)) if first <= *from + *count => *count = end - *from,
            _ => runs.push((first, end - first)),
        }
    }
    let lost = extents.iter().filter(|extent| damage.spoils(extent));
    for (first, end) in lost.map(|extent| (extent.off / B, (extent.off + extent.len).div_ceil(B))) {
        let around = |(from, count): (u32, u32)| {
            let (before, behind) = ((from, from + count), (from.max(end), from + count));
            [(before.0, before.1.min(first)), behind].into_iter().filter(|(from, to)| from < to)
        };
        runs = runs.into_iter().flat_map(around).map(|(from, to)| (from, to - from)).collect();
    }
    runs
}

/// Takes the end of an upload; false if it is none of these.
pub(super) fn done(t: &mut Txn<'_>, s: &mut State, id: u64, result: &Result<()>) -> Result<bool> {
    let tier = &mut s.data.tier;
    let Some(upload) = tier.uploads.running.remove(&id) else { return Ok(false) };
    if result.is_err() && s.data.mutation != Some(Mutation::TrustUpload) {
        tier.blobs.bury(t, upload.blob);
        tier.steps.buried += 1;
        tier.uploads.backoff(upload.store).failed(t.now.mono_ms);
        if let Some(sweep) = tier.sweeps.get_mut(&upload.fs) {
            again(sweep, &upload);
        }
        return Ok(true);
    }
    tier.blobs.arrived(t, upload.blob);
    tier.uploads.backoff(upload.store).went_well();
    tier.moved(upload.fs, t.now.mono_ms);
    tier.uploads.landed.push_back(upload);
    commit(t, s)?;
    Ok(true)
}

/// What was on flash only goes into the next object, and does not wait until a pass finds it.
fn again(sweep: &mut Sweep, failed: &Upload) {
    for Sent { chunk, since_s, pieces } in &failed.chunks {
        let fresh = pieces.iter().filter(|(piece, _)| piece.place.object().is_none());
        let bytes: u64 = fresh.map(|(piece, _)| u64::from(piece.len)).sum();
        if bytes > 0 {
            sweep.add(*since_s, *chunk, bytes);
        }
    }
}

/// Names what is whole, as much as fits one entry.
pub(super) fn commit(t: &mut Txn<'_>, s: &mut State) -> Result<()> {
    let mut used = UsedChanges::default();
    let mut known: BTreeMap<FileId, Option<Cuts>> = BTreeMap::new();
    let mut left = s.data.tier.few;
    while !t.is_full() && left > 0 {
        let Some(upload) = s.data.tier.uploads.landed.front_mut() else { break };
        let blob = upload.blob;
        let Some(Sent { chunk, since_s, pieces }) = upload.chunks.pop_front() else {
            s.data.tier.uploads.landed.pop_front();
            s.data.tier.blobs.settled(blob);
            continue;
        };
        left -= 1;
        if let Some(cuts) = destage::known_cuts(t, s, &mut known, chunk.file)? {
            name(t, s, (chunk, cuts), blob, (since_s, &pieces), &mut used)?;
        }
    }
    let tier = &mut s.data.tier;
    tier.steps.partly = tier.uploads.landed.front().is_some_and(|upload| !upload.chunks.is_empty());
    used.book(t, s)
}

/// Makes the base of `chunk` name `blob` beside what of `pieces` it still names.
fn name(
    t: &mut Txn<'_>,
    s: &mut State,
    (chunk, cuts): (ChunkId, &Cuts),
    blob: BlobId,
    (sent_s, pieces): (u32, &[(Extent, u32)]),
    used: &mut UsedChanges,
) -> Result<()> {
    let history = remap::history(t, s, chunk, cuts)?;
    let Some(base) = &history.base else { return Ok(()) };
    if base.since_s != sent_s
        && let Some(sweep) = s.data.tier.sweeps.get_mut(&chunk.file.fs)
    {
        // It was written meanwhile: what of it is not in an object is not due yet.
        sweep.take((sent_s, chunk));
    }
    let mut cells = Cells::new(&base.extents);
    let (mut named, mut fresh) = (0, 0);
    for (piece, off) in pieces {
        let at = ObjectAt { blob, off: *off };
        let end = piece.off + piece.len;
        for extent in touching(&base.extents, piece.off, end) {
            let (first, last) = (extent.off.max(piece.off), (extent.off + extent.len).min(end));
            let (now, then) = (extent.place.advanced(first - extent.off), piece.place.advanced(first - piece.off));
            let blind = s.data.mutation == Some(Mutation::NameBlindly);
            if !is_same(now, then) && !blind {
                continue;
            }
            let copy = at.advanced(first - piece.off);
            let place = match now {
                Place::Flash { stripe, delta, .. } => Place::Flash { stripe, delta, copy: Some(copy) },
                Place::Object(_) | Place::Stage { .. } => Place::Object(copy),
            };
            cells.put(Extent { off: first, len: last - first, place });
            named += u64::from(last - first);
            fresh += if now.object().is_none() { u64::from(last - first) } else { 0 };
        }
    }
    if named == 0 {
        return Ok(());
    }
    let (upto, sums) = (base.upto, s.data.tier.sums(chunk.file.fs));
    sums.demoted += fresh;
    sums.rewritten += named - fresh;
    if s.data.mutation != Some(Mutation::NoBlobHint) {
        t.put(keys::blob_hint(t.partition, blob, chunk.file.fs, chunk.file.ino, chunk.chunk), Vec::new());
    }
    remap::rebase(t, s, chunk, &history, upto, cells.done(), used)?;
    s.data.tier.steps.named += 1;
    s.data.jobs.spoil(chunk);
    let since_s = wall_s(t);
    if let Some(sweep) = s.data.tier.sweeps.get_mut(&chunk.file.fs) {
        sweep.may_leave(since_s, chunk);
    }
    Ok(())
}

/// True if both name the same bytes: one stripe, or one object.
fn is_same(now: Place, then: Place) -> bool {
    let flash = |place| match place {
        Place::Flash { stripe, delta, .. } => Some((stripe, delta)),
        _ => None,
    };
    let same_flash = flash(now).is_some() && flash(now) == flash(then);
    same_flash || (now.object().is_some() && now.object() == then.object())
}
