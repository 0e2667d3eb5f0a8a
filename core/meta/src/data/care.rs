//! Care of packs: opens them ahead of need, seals, checks and drops them. One bounded step at a time.

use std::collections::{BTreeMap, BTreeSet};

use braid_base::ids::{DriveId, Epoch, FsId, PackId, Term};
use braid_base::keys::{self, prefix_end};
use braid_base::limits::{BLOCK, CHUNK, CLEANUP_KEYS_MAX};
use braid_base::msg::drive::{DriveOp, DriveReply, DriveResult, ShardId};
use braid_base::record::{Extent, PackClass, PackRec, PackState, Place, Placement};
use braid_base::{ErrorKind, Result};

use crate::data::Mutation;
use crate::data::chunk::FileId;
use crate::data::drives::{Call, REPORT_MS, STAT_MS, STAT_SCARCE_MS};
use crate::data::packs::{COUNTER, Life, Pack, Scan, shards};
use crate::data::remap;
use crate::data::view::Cuts;
use crate::event::Effect;
use crate::state::State;
use crate::txn::Txn;

/// A drive must answer a request for a slot within this, milliseconds.
const CREATE_MS: u64 = 5_000;
/// A request for a slot that was not answered is repeated after this, milliseconds.
const CREATE_AGAIN_MS: u64 = 1_000;
/// Drops that were not confirmed are repeated after this, milliseconds.
const DROP_AGAIN_MS: u64 = 10_000;
/// Packs of one class that are open at once, unless they are tiny.
const OPEN_MAX: usize = 8;

/// Free slots, per cent, from which on there is room for packs that are open only to be faster.
const ROOMY_PERCENT: u64 = 25;

/// Open packs of which nothing is in use are looked at this often, milliseconds.
const IDLE_MS: u64 = 5_000;
/// One that was written and now holds nothing is closed if nothing was lent from it between so many looks.
const IDLE_EMPTIED: u32 = 2;
/// The same for one that nobody ever wrote to: opening the next one takes a while.
const IDLE_UNUSED: u32 = 24;

/// One bounded step of care for every pack that needs it.
pub(crate) fn step(t: &mut Txn<'_>, s: &mut State) -> Result<()> {
    ask_drives(t, s);
    close_idle(t, s);
    let needy: Vec<PackId> = s.data.packs.care.iter().copied().collect();
    for id in needy {
        if tend(t, s, id)? || t.is_full() {
            return Ok(());
        }
    }
    Ok(())
}

/// Closes open packs that hold nothing and that nobody uses: an emptied file system gives all its slots back.
fn close_idle(t: &Txn<'_>, s: &mut State) {
    let packs = &mut s.data.packs;
    if t.now.mono_ms < packs.idle_due_ms {
        return;
    }
    packs.idle_due_ms = t.now.mono_ms + IDLE_MS;
    let (mut idle, mut over) = (BTreeMap::new(), Vec::new());
    for (id, pack) in &packs.table {
        let Life::Lending { cursor } = pack.life else { continue };
        if pack.lent > 0 || pack.rec.live_upper > 0 {
            continue;
        }
        let looks = packs.idle.get(id).filter(|(then, _)| *then == cursor).map_or(0, |(_, looks)| looks + 1);
        if looks >= if cursor > 0 { IDLE_EMPTIED } else { IDLE_UNUSED } {
            over.push(*id);
        } else {
            idle.insert(*id, (cursor, looks));
        }
    }
    packs.idle = idle;
    over.into_iter().for_each(|id| packs.close(id, false));
}

/// Does what one pack needs; true if that was enough work for one step.
fn tend(t: &mut Txn<'_>, s: &mut State, id: PackId) -> Result<bool> {
    let Some(pack) = s.data.packs.table.get_mut(&id) else {
        s.data.packs.care.remove(&id);
        return Ok(false);
    };
    match &mut pack.life {
        Life::Creating { missing, since_ms, asked_ms } => {
            let (late, since_ms) = (t.now.mono_ms >= *since_ms + CREATE_MS, *since_ms);
            let again = t.now.mono_ms >= *asked_ms + CREATE_AGAIN_MS;
            let waiting: Vec<_> = missing.iter().filter_map(|i| pack.rec.place.drives.get(usize::from(*i))).collect();
            let lost = pack.rec.place.drives.iter().any(|drive| !s.data.packs.drives.is_usable(*drive));
            if late {
                let silent: Vec<_> = waiting.into_iter().copied().collect();
                silent.into_iter().for_each(|drive| s.data.packs.drives.suspect(drive, since_ms + CREATE_MS));
            }
            if late || lost {
                bury(t, s, id)?;
            } else if again {
                // Read, so that the questions wait until the pack itself is committed.
                t.get(&keys::pack(t.partition, id))?;
                ask_create(t, s, id);
            }
        }
        Life::Closing if pack.lent == 0 => {
            pack.rec.state = PackState::Sealed;
            pack.life = Life::Sealed { scan: Scan::default() };
            t.write(keys::pack(t.partition, id), &pack.rec);
        }
        Life::Closing | Life::Lending { .. } => {}
        Life::Sealed { .. } if pack.rec.live_upper > 0 && !s.data.gc.is_given_up(id) => {
            s.data.packs.care.remove(&id);
        }
        Life::Sealed { .. } => {
            check(t, s, id)?;
            return Ok(true);
        }
        Life::Dead { missing, .. } if missing.is_empty() => {
            erase(t, s, id)?;
            return Ok(true);
        }
        // One that is lost cannot say so; if it comes back, its report tells that nobody has the shard.
        Life::Dead { missing, asked_ms } if *asked_ms > 0 && gone(&s.data.packs.drives, &pack.rec.place, missing) => {
            missing.clear();
        }
        Life::Dead { asked_ms, .. } if t.now.mono_ms >= *asked_ms + DROP_AGAIN_MS || *asked_ms == 0 => {
            ask_drop(t, s, id)?;
        }
        Life::Dead { .. } => {}
    }
    Ok(false)
}

/// True if all that is missing lies on drives that leave.
fn gone(drives: &crate::data::drives::Drives, place: &Placement, missing: &BTreeSet<u8>) -> bool {
    let leaves = |shard: &u8| place.drives.get(usize::from(*shard)).is_some_and(|drive| drives.leaves(*drive));
    missing.iter().all(leaves)
}

/// Goes on with the scan for references to a pack whose count says there are none (counters choose, scans decide).
///
/// The scan may be spread over many entries: the pack is sealed, so a chunk that was seen without a reference
/// never gets one again.
fn check(t: &mut Txn<'_>, s: &mut State, id: PackId) -> Result<()> {
    let Some(Pack { life: Life::Sealed { scan }, .. }) = s.data.packs.table.get(&id) else { return Ok(()) };
    let prefix = keys::hints(t.partition, id);
    let from = scan.next.clone().unwrap_or_else(|| prefix.clone());
    let (hints, next) = hinted(t, &from, &prefix_end(&prefix), CLEANUP_KEYS_MAX)?;
    let mut found = scan.found;
    for (sb, file, chunk) in hints {
        let history = remap::history(t, s, file.chunk(chunk), &Cuts::default())?;
        found += history.pointers().filter(|e| points_to(e, id, sb)).map(|e| u64::from(e.len)).sum::<u64>();
    }
    let Some(pack) = s.data.packs.table.get_mut(&id) else { return Ok(()) };
    if next.is_some() {
        pack.life = Life::Sealed { scan: Scan { next, found } };
        return Ok(());
    }
    pack.life = Life::Sealed { scan: Scan::default() };
    if s.data.gc.is_given_up(id) {
        pack.rec.live_upper = 0;
    } else if found > 0 {
        // The count was wrong: the scan is right.
        pack.rec.live_upper = found;
        t.write(keys::pack(t.partition, id), &pack.rec);
        return Ok(());
    }
    bury(t, s, id)
}

/// What a hint says: start block, file, chunk.
pub(crate) type Hint = (u16, FileId, braid_base::ids::Chunk);

/// At most `limit` hints with keys in `[from, to)`, and the key to go on with.
pub(crate) fn hinted(t: &Txn<'_>, from: &[u8], to: &[u8], limit: usize) -> Result<(Vec<Hint>, Option<Vec<u8>>)> {
    let parse = |key: &[u8]| {
        let (sb, fs, ino, chunk) = keys::parse_hint(key)?;
        Some((sb, FileId::first(fs, ino), chunk))
    };
    hints(t, from, to, limit, parse)
}

/// At most `limit` of what `parse` makes of keys in `[from, to)`, and the key to go on with.
pub(crate) fn hints<H>(
    t: &Txn<'_>,
    from: &[u8],
    to: &[u8],
    limit: usize,
    parse: impl Fn(&[u8]) -> Option<H>,
) -> Result<(Vec<H>, Option<Vec<u8>>)> {
    let (mut hints, mut next) = (Vec::new(), None);
    t.scan(from, to, &mut |key, _| {
        if hints.len() == limit {
            next = Some(key.to_vec());
            return false;
        }
        hints.extend(parse(key));
        true
    })?;
    Ok((hints, next))
}

fn points_to(extent: &Extent, id: PackId, sb: u16) -> bool {
    matches!(extent.place, Place::Flash { stripe, .. } if stripe.pack == id && stripe.sb == sb)
}

/// Logs the pack as dead; the shards are dropped once that is committed.
fn bury(t: &mut Txn<'_>, s: &mut State, id: PackId) -> Result<()> {
    let Some(pack) = s.data.packs.table.get_mut(&id) else { return Ok(()) };
    assert!(pack.lent == 0 && pack.rec.live_upper == 0, "{id}: dies while in use");
    pack.rec.state = PackState::Dead;
    pack.life = Life::Dead { missing: (0..shards(&pack.rec.place)).collect(), asked_ms: 0 };
    t.write(keys::pack(t.partition, id), &pack.rec);
    s.data.packs.care.insert(id);
    s.data.scrub.forget(t, id);
    ask_drop(t, s, id)
}

/// Asks for the drop of all shards that are not confirmed.
fn ask_drop(t: &mut Txn<'_>, s: &mut State, id: PackId) -> Result<()> {
    // Read, so that the questions wait until the death itself is committed, also when they are repeated.
    t.get(&keys::pack(t.partition, id))?;
    let Some(pack) = s.data.packs.table.get_mut(&id) else { return Ok(()) };
    let Life::Dead { missing, asked_ms } = &mut pack.life else { return Ok(()) };
    *asked_ms = t.now.mono_ms.max(1);
    for shard in missing.iter().copied() {
        let Some(drive) = pack.rec.place.drives.get(usize::from(shard)).copied() else { continue };
        let call = s.data.packs.drives.ask(Call::Drop { pack: id, shard });
        let op = DriveOp::Drop { id: ShardId { pack: id, shard }, term: s.config.term };
        t.after(Effect::Drive(call, drive, op));
    }
    Ok(())
}

/// Deletes the records of a pack whose shards are all gone, at most as many as fit one entry.
fn erase(t: &mut Txn<'_>, s: &mut State, id: PackId) -> Result<()> {
    let mut keys_left = Vec::new();
    let room = CLEANUP_KEYS_MAX.saturating_sub(t.writes_len()).max(1);
    for prefix in [keys::hints(t.partition, id), keys::stripes(t.partition, id)] {
        t.scan_prefix(&prefix, &mut |key, _| {
            keys_left.push(key.to_vec());
            keys_left.len() <= room
        })?;
    }
    let all = keys_left.len() <= room;
    keys_left.into_iter().take(room).for_each(|key| t.delete(key));
    if all {
        t.delete(keys::pack(t.partition, id));
        s.data.packs.table.remove(&id);
        s.data.packs.care.remove(&id);
    }
    Ok(())
}

/// How many packs of `class` are open at once, at least: those of copies lie on one drive each, and are read and written at
/// the speed of several, unless slots are scarce.
fn open_min(s: &State, class: PackClass) -> usize {
    let drives = &s.data.packs.drives;
    let roomy = class == PackClass::Cache && drives.free_percent().is_some_and(|free| free >= ROOMY_PERCENT);
    if roomy { usize::from(s.config.data).min(drives.usable().len()) } else { 1 }
}

/// Opens packs of `class` so that `bytes` find room.
pub(crate) fn open_ahead(t: &mut Txn<'_>, s: &mut State, class: PackClass, bytes: u64) {
    // Remainders of stripes that do not divide by D are lost: a little more than asked for.
    let want = bytes / BLOCK as u64 * 9 / 8;
    loop {
        let (now, soon, count) = s.data.packs.room(class);
        let tiny = (now + soon) * (BLOCK as u64) < 2 * CHUNK;
        let enough = now + soon >= want && count >= open_min(s, class);
        if enough || (count >= OPEN_MAX && !tiny) || !open(t, s, class) {
            return;
        }
    }
}

/// How a new pack is coded, and its drives.
fn choose(s: &State, (seq, class): (u64, PackClass), now_ms: u64) -> Option<(u8, u8, Vec<DriveId>)> {
    let (packs, config) = (&s.data.packs, &s.config);
    if class != PackClass::Cache {
        let (data, drives) = packs.drives.choose((seq, class), config.data, config.parity, now_ms)?;
        return Some((data, config.parity, drives));
    }
    // Copies must not take the last slots of all drives but a few: nothing else would find enough of them.
    if !packs.drives.have_room(class, config.parity) {
        return None;
    }
    let open = packs.table.values().filter(|pack| pack.rec.class == class);
    let open = open.filter(|pack| matches!(pack.life, Life::Creating { .. } | Life::Lending { .. }));
    let taken: BTreeSet<DriveId> = open.flat_map(|pack| pack.rec.place.drives.iter().copied()).collect();
    Some((1, 0, vec![packs.drives.choose_one((seq, class), &taken, now_ms)?]))
}

/// Logs a new pack and asks its drives for slots; false if there are not enough drives.
fn open(t: &mut Txn<'_>, s: &mut State, class: PackClass) -> bool {
    let seq = s.data.packs.newest + 1;
    let Some((data, parity, drives)) = choose(s, (seq, class), t.now.mono_ms) else { return false };
    let id = PackId::new(t.partition, seq);
    let place = Placement { data, parity, epoch: Epoch(1), drives };
    let rec = PackRec { state: PackState::Open, class, place, term: s.config.term.0, live_upper: 0 };
    rec.place.drives.iter().for_each(|drive| s.data.packs.drives.took(*drive, 1));
    t.put(keys::meta(t.partition, COUNTER), seq.to_be_bytes().to_vec());
    t.write(keys::pack(t.partition, id), &rec);
    let missing: BTreeSet<u8> = (0..shards(&rec.place)).collect();
    let life = Life::Creating { missing, since_ms: t.now.mono_ms, asked_ms: t.now.mono_ms };
    s.data.packs.table.insert(id, Pack { rec, life, lent: 0 });
    s.data.packs.care.insert(id);
    s.data.packs.newest = seq;
    ask_create(t, s, id);
    true
}

/// Asks for all slots that are not confirmed, once the pack itself is committed.
fn ask_create(t: &mut Txn<'_>, s: &mut State, id: PackId) {
    let Some(Pack { rec, life, .. }) = s.data.packs.table.get_mut(&id) else { return };
    let Life::Creating { missing, asked_ms, .. } = life else { return };
    *asked_ms = t.now.mono_ms;
    let Placement { data, parity, .. } = rec.place;
    for shard in missing.iter().copied() {
        let Some(drive) = rec.place.drives.get(usize::from(shard)).copied() else { continue };
        let call = s.data.packs.drives.ask(Call::Create { pack: id, shard, drive });
        let shard = ShardId { pack: id, shard };
        let op = DriveOp::Create { id: shard, data, parity, class: rec.class, term: s.config.term, fs: FsId(0) };
        t.after(Effect::Drive(call, drive, op));
    }
}

/// Takes a drive's answer.
pub(crate) fn answered(t: &mut Txn<'_>, s: &mut State, id: u64, result: DriveResult) -> Result<()> {
    match (s.data.packs.drives.answered(id), result) {
        (Some(Call::Create { pack, shard, .. }), Ok(_)) => created(s, pack, shard),
        // It is asked again.
        (Some(Call::Create { .. }), Err(error)) if matches!(error.kind(), ErrorKind::Busy | ErrorKind::TimedOut) => {}
        (Some(Call::Create { pack, drive, .. }), Err(error)) => {
            match error.kind() {
                ErrorKind::NoSpace => s.data.packs.drives.was_full(drive, t.now.mono_ms),
                _ => s.data.packs.drives.suspect(drive, t.now.mono_ms),
            }
            if matches!(s.data.packs.table.get(&pack), Some(Pack { life: Life::Creating { .. }, .. })) {
                return bury(t, s, pack);
            }
        }
        (Some(Call::Drop { pack, shard }), Ok(_)) => dropped(s, pack, shard),
        (Some(Call::DropOrphan { id, drive }), Ok(_)) => {
            s.data.rebuilds.has_dropped(id, drive, true, t.now.mono_ms);
            s.data.packs.drives.took(drive, -1);
        }
        // A report of the drive finds what is there.
        (Some(Call::DropOrphan { id, drive }), Err(_)) => {
            s.data.rebuilds.has_dropped(id, drive, false, t.now.mono_ms);
        }
        (Some(Call::Stat { drive }), Ok(DriveReply::Stat(stat))) => s.data.packs.drives.learned(drive, stat),
        (Some(Call::Report { drive }), Ok(DriveReply::Shards(shards))) => drop_orphans(t, s, drive, &shards),
        // An unconfirmed drop is repeated, an unknown answer is none of ours.
        _ => {}
    }
    Ok(())
}

fn created(s: &mut State, id: PackId, shard: u8) {
    let Some(pack) = s.data.packs.table.get_mut(&id) else { return };
    let Life::Creating { missing, .. } = &mut pack.life else { return };
    missing.remove(&shard);
    if missing.is_empty() {
        pack.life = Life::Lending { cursor: 0 };
        let class = pack.rec.class;
        s.data.packs.care.remove(&id);
        if matches!(class, PackClass::Cache | PackClass::Destage) {
            s.data.tier.fetches.room_came();
        }
    }
}

fn dropped(s: &mut State, id: PackId, shard: u8) {
    let Some(pack) = s.data.packs.table.get_mut(&id) else { return };
    let Life::Dead { missing, .. } = &mut pack.life else { return };
    if missing.remove(&shard)
        && let Some(drive) = pack.rec.place.drives.get(usize::from(shard)).copied()
    {
        s.data.packs.drives.took(drive, -1);
    }
}

/// Asks every drive for its space first, and now and then while there is anything to place; for its shards once there was:
/// also when all is removed, a slot that nobody knows of comes back.
fn ask_drives(t: &mut Txn<'_>, s: &mut State) {
    let (now, packs) = (t.now.mono_ms, &mut s.data.packs);
    let idle = packs.table.is_empty() && s.data.stage.bytes() == 0;
    let usable = packs.drives.usable().to_vec();
    if now >= packs.drives.stat_due_ms && (!idle || !packs.drives.are_known()) {
        let has_room = packs.drives.have_room(PackClass::User, s.config.parity);
        packs.drives.stat_due_ms = now + if has_room { STAT_MS } else { STAT_SCARCE_MS };
        for drive in usable.iter().copied() {
            let call = packs.drives.ask(Call::Stat { drive });
            t.at_once(Effect::Drive(call, drive, DriveOp::Stat));
        }
    }
    if now >= packs.drives.report_due_ms && !(idle && packs.newest == 0) {
        packs.drives.report_due_ms = now + REPORT_MS;
        for drive in usable {
            let call = packs.drives.ask(Call::Report { drive });
            t.at_once(Effect::Drive(call, drive, DriveOp::Report { partition: t.partition }));
        }
    }
}

/// Drops shards that no pack has: a request for a slot may overtake the drop that followed it.
///
/// A pack is in the table before any drive is asked for it, and until all its drops are confirmed; so a shard of one
/// that is not in the table never comes back into use (ids are never reused). One that is made anew is not put on a
/// drive that may still carry out a word of this term to drop it; those of earlier terms are refused there.
fn drop_orphans(t: &mut Txn<'_>, s: &mut State, drive: DriveId, shards: &[(ShardId, Term)]) {
    for (id, term) in shards.iter().copied().take(CLEANUP_KEYS_MAX) {
        let pack = s.data.packs.table.get(&id.pack);
        let placed = pack.is_some_and(|pack| pack.rec.place.drives.get(usize::from(id.shard)) == Some(&drive));
        // A higher term: somebody else is primary by now, and decides.
        let placed = placed || s.data.rebuilds.makes(id, drive) || s.data.scrub.makes(id, drive);
        if placed || term > s.config.term || id.pack.partition() != t.partition {
            continue;
        }
        drop_orphan(t, s, id, drive);
    }
}

/// Tells `drive` to drop a shard that no pack has there, once all that was decided so far is committed: a successor that
/// lacks the newest decisions has that shard there still, and not where it was made anew.
pub(crate) fn drop_orphan(t: &mut Txn<'_>, s: &mut State, id: ShardId, drive: DriveId) {
    s.data.rebuilds.dropped(id, drive, t.now.mono_ms);
    let call = s.data.packs.drives.ask(Call::DropOrphan { id, drive });
    if s.data.mutation != Some(Mutation::DropUndecided) {
        t.saw_all();
    }
    t.after(Effect::Drive(call, drive, DriveOp::Drop { id, term: s.config.term }));
}
