//! Bulk moves: destage, compaction and garbage collection are one thing, a Remap with a choice of what moves.
//!
//! Life of a move:
//! 1. *Plan*: chunks and what moves of them are chosen, as of the last committed position; ranges are lent.
//! 2. The mover reads, codes and writes. Nothing refers to the new stripes yet; writes and cuts go on.
//! 3. *Commit*, one entry: stripes, hints, bases up to the planned position, slices they stand for deleted.
//!    A chunk that is gone, or whose base is another, is left out: its new bytes are garbage.
//!
//! After a failure the ranges are abandoned and their packs closed; the chunks are planned anew, elsewhere.

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};

use braid_base::Result;
use braid_base::ids::{Chunk, Epoch, FsId, Index};
use braid_base::keys;
use braid_base::limits::{BLOCK, CHUNK, JOB_BYTES_MAX, JOB_META_MAX, JOBS_MAX, STRIPE_BYTES};
use braid_base::msg::job::{self, MoveJob, StripePlan};
use braid_base::record::{Extent, PackClass, Place, StripeAt, StripeRec};

use crate::config::Config;
use crate::data::backoff::Backoff;
use crate::data::chunk::{ChunkId, FileId};
use crate::data::gc;
use crate::data::plan::{Filled, Moves, Moving, Wanted, fill};
use crate::data::remap::{self, UsedChanges};
use crate::data::tier::bare;
use crate::data::view::Cuts;
use crate::data::{Mutation, care, tier};
use crate::event::Effect;
use crate::ops::inode;
use crate::state::State;
use crate::txn::Txn;

/// First and longest wait after a failed move, milliseconds.
const BACKOFF_MS: u64 = 500;
const BACKOFF_MS_MAX: u64 = 10_000;
/// Bytes of a commit per chunk beside slices and extents: base key, hints, inode if its count changes.
const CHUNK_META: usize = 400;
/// All chunks of a file.
const ALL: (Chunk, Chunk) = (Chunk(0), Chunk(u32::MAX));
/// Chunks looked at for one move.
const CANDIDATES_MAX: usize = 4_096;

/// Room kept ready for what comes back from objects, bytes at most: for all moves of that kind.
const FETCH_AHEAD: u64 = 4 * JOB_BYTES_MAX as u64;

/// Moves under way.
pub(crate) struct Jobs {
    running: BTreeMap<u64, Job>,
    busy: BTreeSet<ChunkId>,
    wanted: BTreeSet<ChunkId>,
    /// The last chunk that destage took of a file in its order: it goes on behind it.
    swept: Option<ChunkId>,
    next: u64,
    backoff: Backoff,
    /// When a move last succeeded.
    pub progress_ms: u64,
    /// When a move that made room in the stage last succeeded.
    pub destaged_ms: u64,
    /// The move begun last was one of garbage collection.
    collected: bool,
    /// There was no room for any of what was staged when last some of it was to move.
    cramped: bool,
}

/// One move.
struct Job {
    /// It makes room in the stage.
    destages: bool,
    /// It empties packs that are collected.
    collects: bool,
    /// It brings bytes of that file system back from objects, for which it waits.
    fetches: Option<FsId>,
    chunks: Vec<Planned>,
    stripes: Vec<(StripeAt, Epoch, u32)>,
}

/// What a move does to a chunk.
struct Planned {
    chunk: ChunkId,
    upto: Index,
    base_upto: Option<Index>,
    extents: Vec<Extent>,
    /// Bytes that it held at `upto`, if nothing was owed for it.
    held: Option<u64>,
    /// Its base was changed in place since: it stays as it is.
    spoiled: bool,
}

/// What to move, and into which class of packs.
pub(crate) struct Choice {
    pub class: PackClass,
    pub moves: Moves,
    pub chunks: Vec<ChunkId>,
    /// Those of them that come in the order of their files.
    pub sweep: BTreeSet<ChunkId>,
}

impl Jobs {
    /// None yet. Numbers of an earlier primary's moves are not used again.
    pub fn new(config: &Config) -> Self {
        let next = config.term.0 << 32;
        let (running, busy, wanted, swept) = Default::default();
        let (backoff, collected, cramped) = (Backoff::new(BACKOFF_MS, BACKOFF_MS_MAX), false, false);
        let (progress_ms, destaged_ms) = (0, 0);
        Self { running, busy, wanted, swept, next, backoff, progress_ms, destaged_ms, collected, cramped }
    }

    /// True while a move works on the chunk.
    pub fn is_busy(&self, chunk: ChunkId) -> bool {
        self.busy.contains(&chunk)
    }

    /// Moves under way.
    pub fn len(&self) -> usize {
        self.running.len()
    }

    /// Those of them that wait for objects of `fs`.
    pub fn fetches_of(&self, fs: FsId) -> usize {
        self.running.values().filter(|job| job.fetches == Some(fs)).count()
    }

    /// Those that wait for none.
    fn on_flash(&self) -> usize {
        self.running.values().filter(|job| job.fetches.is_none()).count()
    }

    /// The base of the chunk was changed up to no other position than before: what a move of it planned is not to be
    /// committed.
    pub fn spoil(&mut self, chunk: ChunkId) {
        if self.busy.contains(&chunk) {
            let all = self.running.values_mut().flat_map(|job| &mut job.chunks);
            all.filter(|planned| planned.chunk == chunk).for_each(|planned| planned.spoiled = true);
        }
    }

    /// The chunk ought to be rewritten although nothing of it is staged.
    pub fn want(&mut self, chunk: ChunkId) {
        self.wanted.insert(chunk);
    }
}

/// True unless there is nowhere to move what is staged: its move runs or is tried again, packs for it are to be had, or
/// some of it found room when last it was to move. That there is room for a block says nothing: a chunk moves as a whole.
/// Garbage collection that goes on is no promise of room: what it frees, it may need itself.
pub(crate) fn may_move(s: &State, now_ms: u64) -> bool {
    let (jobs, packs) = (&s.data.jobs, &s.data.packs);
    let runs = jobs.running.values().any(|job| job.destages);
    let room = packs.drives.have_room(PackClass::Destage, s.config.parity);
    runs || !jobs.backoff.is_over(now_ms) || packs.is_creating() || room || !jobs.cramped
}

/// Starts as many moves as there is reason, room and leave for.
///
/// Else what is staged goes first. While little is free garbage collection and stage take turns: collected alone, a
/// full cluster would let writes wait for ever; destaged alone, it would never have room again.
pub(crate) fn start(t: &mut Txn<'_>, s: &mut State) -> Result<()> {
    while s.data.jobs.on_flash() < JOBS_MAX && s.data.jobs.backoff.is_over(t.now.mono_ms) {
        let urgent = gc::urgent(s);
        let collect_first = urgent && !s.data.jobs.collected;
        let begun = match begin(t, s, collect_first)? {
            Some(true) => true,
            Some(false) if urgent => begin(t, s, !collect_first)? == Some(true),
            Some(false) => false,
            None => begin(t, s, !collect_first)? == Some(true),
        };
        if !begun {
            return Ok(());
        }
    }
    Ok(())
}

/// Plans a move of garbage collection, or of what is staged; `None` if there is nothing of it to move.
fn begin(t: &mut Txn<'_>, s: &mut State, collect: bool) -> Result<Option<bool>> {
    let choice = if collect {
        gc::choose(t, s)?
    } else {
        let (chunks, sweep) = staged(t, s);
        let choice = Choice { class: PackClass::Destage, moves: Moves::Stage, chunks, sweep };
        (!choice.chunks.is_empty()).then_some(choice)
    };
    let Some(choice) = choice else { return Ok(None) };
    let begun = plan(t, s, choice, None)?.begun;
    if begun {
        s.data.jobs.collected = collect;
    }
    Ok(Some(begun))
}

/// Brings as much of `chunks`, all of one file system, back from objects as fits one move; whether there was room for any,
/// and those that did not fit. `behind`: bytes that are to come back after them.
///
/// A move of chunks that are in objects as a whole writes packs without parity; of chunks that are exposed where there is
/// none, only that moves. A move ends before the first chunk of another kind, and the next one begins with that.
pub(crate) fn fetch(t: &mut Txn<'_>, s: &mut State, chunks: Vec<ChunkId>, behind: u64) -> Result<(bool, Vec<ChunkId>)> {
    let (class, moves, sweep) = (PackClass::Cache, Moves::Objects, BTreeSet::new());
    let choice = Choice { class, moves, chunks, sweep };
    let all = choice.chunks.clone();
    let Plan { begun, looked, mut dropped } = plan(t, s, choice, Some(behind))?;
    dropped.extend_from_slice(&all[looked..]);
    Ok((begun || looked > 0, dropped))
}

/// Chunks whose staged bytes ought to move, and which of them come in turn. First those with far too many slices. Then
/// those of the files with the oldest, each file in order from where the last move of it ended: a move takes
/// neighbours, all of what was gathered of each since the turn before. Last those with too many slices.
fn staged(t: &Txn<'_>, s: &State) -> (Vec<ChunkId>, BTreeSet<ChunkId>) {
    let (stage, jobs, now) = (&s.data.stage, &s.data.jobs, t.now.mono_ms);
    let (urgent, crowded) = stage.crowded(now);
    let mut chosen: Vec<ChunkId> = Vec::new();
    let mut known: BTreeSet<ChunkId> = BTreeSet::new();
    chosen.extend(urgent.into_iter().filter(|chunk| !jobs.is_busy(*chunk) && known.insert(*chunk)));
    let sweep: BTreeSet<ChunkId> =
        sweep(t, s).into_iter().filter(|chunk| known.insert(*chunk)).inspect(|chunk| chosen.push(*chunk)).collect();
    let more = crowded.into_iter().chain(jobs.wanted.iter().copied());
    chosen.extend(more.filter(|chunk| !jobs.is_busy(*chunk) && known.insert(*chunk)));
    chosen.truncate(CANDIDATES_MAX);
    (chosen, sweep)
}

/// The next chunks in turn, at least as many as one move takes, if something is due.
fn sweep(t: &Txn<'_>, s: &State) -> Vec<ChunkId> {
    let (stage, jobs, committed) = (&s.data.stage, &s.data.jobs, s.data.committed);
    let mut chosen: Vec<ChunkId> = Vec::new();
    let due = if tier::presses(s) { Some(committed) } else { stage.due(t.now.mono_ms, committed) };
    let Some(upto) = due else { return chosen };
    let mut files: BTreeSet<FileId> = BTreeSet::new();
    let mut bytes = 0;
    for oldest in stage.by_age(upto.min(committed)) {
        if jobs.is_busy(oldest) || !files.insert(oldest.file) {
            continue;
        }
        let from = jobs.swept.filter(|swept| swept.file == oldest.file).map_or(Chunk(0), |swept| swept.chunk);
        // Behind the last one up to the end, then from the start up to it.
        let behind = stage.of_file(oldest.file, (from, ALL.1)).filter(|(chunk, _)| Some(*chunk) != jobs.swept);
        let before = stage
            .of_file(oldest.file, (ALL.0, from))
            .filter(|(chunk, _)| chunk.chunk < from || Some(*chunk) == jobs.swept);
        for (chunk, held) in behind.chain(before).filter(|(chunk, _)| !jobs.is_busy(*chunk)) {
            if bytes >= JOB_BYTES_MAX as u64 || chosen.len() >= CANDIDATES_MAX {
                return chosen;
            }
            chosen.push(chunk);
            bytes += held;
        }
    }
    chosen
}

/// What came of a choice.
struct Plan {
    /// Something was started or merged.
    begun: bool,
    /// How many of its chunks were looked at; none if there is no room for any.
    looked: usize,
    /// Those of them for which there was no room.
    dropped: Vec<ChunkId>,
}

/// Plans one move over the chosen chunks, as many as fit. `behind`: bytes that come back from objects after them; none: what
/// follows is what is staged.
fn plan(t: &mut Txn<'_>, s: &mut State, choice: Choice, behind: Option<u64>) -> Result<Plan> {
    let mut gathered: Vec<Moving> = Vec::new();
    let (mut class, moves, mut saving) = (choice.class, choice.moves, false);
    // Cuts of the files; `None` for those that are gone.
    let mut cuts: BTreeMap<FileId, Option<Cuts>> = BTreeMap::new();
    let mut used = UsedChanges::default();
    let (mut blocks, mut meta, mut merged, mut looked) = (0, 0, false, 0);
    let sweep = choice.sweep;
    for chunk in choice.chunks {
        s.data.jobs.wanted.remove(&chunk);
        // What is about to be removed stays where it is: it would be moved again and again until it is gone.
        let Some(cuts) = known_cuts(t, s, &mut cuts, chunk.file)? else {
            looked += 1;
            continue;
        };
        let history = remap::history(t, s, chunk, cuts)?;
        let upto = history.mergeable(s.data.committed);
        if history.base_upto() > Some(upto) {
            looked += 1;
            continue;
        }
        let ids = (chunk, upto, history.base_upto());
        let view = history.at(upto);
        let fs = chunk.file.fs;
        let exposed = |extent: &Extent| bare::is_exposed(s, fs, extent);
        let saves = moves == Moves::Objects && view.extents.iter().any(exposed);
        if moves == Moves::Objects && !view.has_objects() && !saves {
            looked += 1;
            continue;
        }
        let lost = view.extents.iter().any(|extent| s.data.tier.damage.spoils(extent));
        let wanted = Wanted { moves: &moves, lost, saves: saves.then_some(&exposed) };
        let moving = Moving::gather(ids, view, wanted, &|pack| s.data.packs.place(pack))?;
        if moving.blocks() == 0 {
            // All that was to move is cut away or overwritten: no bytes to move, but records to merge.
            let slices = history.slices.first().is_some_and(|(at, ..)| *at <= upto);
            let cut = history.base.as_ref().is_some_and(|base| base.extents != moving.extents());
            if t.is_full() {
                break;
            }
            looked += 1;
            if slices || cut {
                let held = moving.held;
                remap::rebase_held(t, s, chunk, &history, upto, (moving.into_extents(), held), &mut used)?;
                merged = true;
            }
            continue;
        }
        if moves == Moves::Objects {
            let copies = moving.has_copies(|at, len| bare::is_sound(s, fs, at, len));
            let all = s.data.mutation == Some(Mutation::BareAll) && !saves;
            let fits = if copies || all { PackClass::Cache } else { PackClass::Destage };
            if gathered.is_empty() {
                (class, saving) = (fits, saves);
            } else if (class, saving) != (fits, saves) {
                break;
            }
        }
        meta += CHUNK_META + 40 * history.slices.len() + 30 * moving.extents_max();
        let too_much = blocks + moving.blocks() > (JOB_BYTES_MAX / BLOCK) as u32 || meta > JOB_META_MAX;
        if too_much && !gathered.is_empty() {
            break;
        }
        looked += 1;
        blocks += moving.blocks();
        gathered.push(moving);
    }
    used.book(t, s)?;
    // Room for this move, and for what will follow it: creating a pack takes a while. Of the last slots only what is
    // needed now: a pack that is opened later may be a wider one.
    let last = class == PackClass::Gc && !s.data.packs.drives.have_room(PackClass::User, s.config.parity);
    let bytes = u64::from(blocks) * BLOCK as u64;
    let (behind, most) = match behind {
        // Several moves of that kind run at a time.
        Some(behind) => (behind, FETCH_AHEAD),
        None => (s.data.stage.bytes().min(JOB_BYTES_MAX as u64), 2 * JOB_BYTES_MAX as u64),
    };
    let bytes = if last { bytes } else { (bytes + behind).clamp(CHUNK, most) };
    care::open_ahead(t, s, class, bytes);
    let mut dropped: Vec<ChunkId> = gathered.iter().map(|moving| moving.chunk).collect();
    let (any, begun) = (!gathered.is_empty(), launch(t, s, (class, &moves), gathered, &sweep));
    dropped.retain(|chunk| !s.data.jobs.is_busy(*chunk));
    if moves == Moves::Stage {
        s.data.jobs.cramped = any && !begun;
    }
    // Without room nothing of what was gathered is on its way.
    if any && !begun {
        (looked, dropped) = (0, Vec::new());
    }
    Ok(Plan { begun: begun || merged, looked, dropped })
}

/// Room for `blocks` in packs of `class`; for what is staged, when there is no slot left for another of them, also in
/// what is open for others. Of garbage collection only while that can have others: without one it frees nothing.
fn carve(s: &State, class: PackClass, blocks: u32) -> Vec<(StripeAt, u32)> {
    let (packs, parity) = (&s.data.packs, s.config.parity);
    let stripe = (STRIPE_BYTES / BLOCK) as u32;
    let mut ranges = packs.carve(class, blocks, stripe);
    if class != PackClass::Destage || packs.drives.have_room(class, parity) {
        return ranges;
    }
    let spare = packs.drives.can_spare(parity);
    for other in [PackClass::User, PackClass::Gc].into_iter().filter(|other| spare || *other == PackClass::User) {
        let found: u32 = ranges.iter().map(|(_, blocks)| blocks).sum();
        ranges.extend(packs.carve(other, blocks - found, stripe));
    }
    ranges
}

/// Lends ranges and asks the mover; takes only as many chunks as there is room for. False if there is none.
fn launch(
    t: &mut Txn<'_>,
    s: &mut State,
    (class, moves): (PackClass, &Moves),
    mut chunks: Vec<Moving>,
    sweep: &BTreeSet<ChunkId>,
) -> bool {
    let need = |chunks: &[Moving]| chunks.iter().map(Moving::blocks).sum::<u32>();
    let mut ranges = carve(s, class, need(&chunks));
    let room: u32 = ranges.iter().map(|(_, blocks)| blocks).sum();
    // One that is too large must not keep those behind it waiting: room for it may never come.
    let mut left = room;
    chunks.retain(|moving| left.checked_sub(moving.blocks()).map(|rest| left = rest).is_some());
    if chunks.is_empty() {
        return false;
    }
    if need(&chunks) < room {
        ranges = carve(s, class, need(&chunks));
    }
    let filled = fill(&mut chunks, &ranges);
    if let Some(last) = chunks.iter().rev().find(|moving| sweep.contains(&moving.chunk)) {
        s.data.jobs.swept = Some(last.chunk);
    }
    s.data.jobs.next += 1;
    let id = s.data.jobs.next;
    let (mut stripes, mut plans) = (Vec::new(), Vec::new());
    for Filled { at, parts, len } in filled {
        s.data.packs.lend(at);
        let place = s.data.packs.place(at.pack).expect("ranges are lent from packs of the table").clone();
        stripes.push((at, place.epoch, len));
        plans.push(StripePlan { at, place, parts });
    }
    let fetched = chunks.first().map(|moving| moving.chunk.file.fs).filter(|_| *moves == Moves::Objects);
    // A collected chunk takes along what is staged of it.
    let destages = chunks.iter().any(|moving| s.data.stage.has(moving.chunk));
    let planned = chunks.into_iter().map(|moving| {
        let Moving { chunk, upto, base_upto, held, .. } = moving;
        Planned { chunk, upto, base_upto, extents: moving.into_extents(), held, spoiled: false }
    });
    let collects = matches!(moves, Moves::Packs(_));
    let job = Job { destages, collects, fetches: fetched, chunks: planned.collect(), stripes };
    s.data.jobs.busy.extend(job.chunks.iter().map(|planned| planned.chunk));
    s.data.jobs.running.insert(id, job);
    t.after(Effect::Job(job::Job::Move(MoveJob { id, stripes: plans })));
    true
}

/// Takes the end of a move: commits it, or gives its ranges up.
pub(crate) fn done(t: &mut Txn<'_>, s: &mut State, id: u64, result: Result<()>) -> Result<()> {
    let Some(job) = s.data.jobs.running.remove(&id) else { return Ok(()) };
    for planned in &job.chunks {
        s.data.jobs.busy.remove(&planned.chunk);
    }
    let current =
        |(at, epoch, _): &(StripeAt, Epoch, u32)| s.data.packs.place(at.pack).is_ok_and(|place| place.epoch == *epoch);
    if result.is_ok() && job.stripes.iter().all(current) {
        s.data.jobs.backoff.went_well();
        s.data.jobs.progress_ms = t.now.mono_ms;
        if job.destages {
            s.data.jobs.destaged_ms = t.now.mono_ms;
        }
        if job.collects {
            gc::moved(t, s, true);
        }
        commit(t, s, &job)?;
        job.stripes.iter().for_each(|(at, ..)| s.data.packs.returned(*at));
        if let Some(fs) = job.fetches {
            s.data.tier.fetches.ended(fs, true, t.now.mono_ms);
        }
        return start(t, s);
    }
    let chunks: Vec<ChunkId> = job.chunks.iter().map(|planned| planned.chunk).collect();
    let closes = job.fetches.map_or(Ok(true), |fs| tier::fetch::failed(t, s, fs, &chunks))?;
    for (at, ..) in &job.stripes {
        s.data.packs.returned(*at);
        if s.data.mutation == Some(Mutation::LendAgain) {
            s.data.packs.rewind(*at);
        } else if closes {
            s.data.packs.close(at.pack, false);
        }
    }
    if job.fetches.is_some() {
        // Its source may be down, and what is staged has to move all the same.
        return Ok(());
    }
    if job.collects {
        gc::moved(t, s, false);
    }
    s.data.jobs.backoff.failed(t.now.mono_ms);
    Ok(())
}

fn commit(t: &mut Txn<'_>, s: &mut State, job: &Job) -> Result<()> {
    // Cuts of the files; `None` for those that are gone.
    let mut files: BTreeMap<FileId, Option<Cuts>> = BTreeMap::new();
    let none = Cuts::default();
    let mut used = UsedChanges::default();
    let mut named: BTreeSet<StripeAt> = BTreeSet::new();
    for planned in &job.chunks {
        let file = planned.chunk.file;
        let cuts = known_cuts(t, s, &mut files, file)?;
        let history = remap::history(t, s, planned.chunk, cuts.unwrap_or(&none))?;
        let same = cuts.is_some() && history.base_upto() == planned.base_upto && !planned.spoiled;
        if !same && s.data.mutation != Some(Mutation::NoCheck) {
            continue;
        }
        let stripes = planned.extents.iter().filter_map(|extent| match extent.place {
            Place::Flash { stripe, .. } => Some(stripe),
            Place::Stage { .. } | Place::Object(_) => None,
        });
        let mut mine: Vec<StripeAt> =
            stripes.filter(|stripe| job.stripes.iter().any(|(at, ..)| at == stripe)).collect();
        mine.dedup();
        for stripe in mine {
            if s.data.mutation != Some(Mutation::NoHint) {
                let chunk = planned.chunk.chunk;
                t.put(keys::hint(t.partition, stripe.pack, stripe.sb, file.fs, file.ino, chunk), Vec::new());
            }
            named.insert(stripe);
        }
        let upto = match s.data.mutation {
            Some(Mutation::StampAtCommit) => Index(t.index.0 - 1),
            _ => planned.upto,
        };
        if job.fetches.is_some() {
            let before = history.base.as_ref().map_or(0, |base| tier::far(&base.extents));
            s.data.tier.sums(file.fs).fetched += before.saturating_sub(tier::far(&planned.extents));
        }
        let known = planned.held.filter(|_| upto == planned.upto);
        remap::rebase_held(t, s, planned.chunk, &history, upto, (planned.extents.clone(), known), &mut used)?;
        // What came back may have lost its copy meanwhile; no other move writes where there is no parity.
        if job.fetches.is_some() && planned.extents.iter().any(|extent| bare::is_exposed(s, file.fs, extent)) {
            s.data.tier.fetches.want(planned.chunk);
        }
    }
    for (at, _, len) in job.stripes.iter().filter(|(at, ..)| named.contains(at)) {
        t.write(keys::stripe(t.partition, at.pack, at.sb), &StripeRec { ul: at.ul, len: *len });
    }
    used.book(t, s)
}

/// The cuts of a file; `None` if it is gone or about to be.
pub(crate) fn cuts_if_live(t: &Txn<'_>, s: &State, file: FileId) -> Result<Option<Cuts>> {
    is_live(t, s, file)?.then(|| remap::cuts(t, s, file)).transpose()
}

/// The same, read once.
pub(crate) fn known_cuts<'c>(
    t: &Txn<'_>,
    s: &State,
    known: &'c mut BTreeMap<FileId, Option<Cuts>>,
    file: FileId,
) -> Result<Option<&'c Cuts>> {
    let cuts = match known.entry(file) {
        Entry::Occupied(known) => known.into_mut(),
        Entry::Vacant(place) => place.insert(cuts_if_live(t, s, file)?),
    };
    Ok(cuts.as_ref())
}

/// True if the file has a name, or someone holds it open or may still say so: then nothing of it is removed yet.
fn is_live(t: &Txn<'_>, s: &State, file: FileId) -> Result<bool> {
    let inode = inode::find(t, file.fs, file.ino)?;
    let held = || s.opens.is_open(file.fs, file.ino) || !s.leases.is_settled();
    Ok(inode.is_some_and(|inode| inode.attr.nlink > 0 || held()))
}
