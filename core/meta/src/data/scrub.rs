//! Packs are read and checked in the background, and what is found damaged is made whole.
//!
//! 1. The primary of a partition owns its packs and has them checked, one after the other, in passes over all that were
//!    sealed when the pass began. A pass that ended early waits; the first begins soon after the partition is served. What
//!    could not be checked, or not all of it, is owed: until then a pass is not over.
//! 2. A shard with damage that the others make up for is made whole where it is (`client/mover`); where that fails, on
//!    another drive, which takes an entry as it does for a lost drive. Then the pack is checked again.
//! 3. Blocks that the others do not make up for are beyond repair: nothing is made up for them. Reads of them fail, the
//!    files are listed, and the pack is checked again and again: a drive may come back, files are removed.
//!
//! What was found is kept in memory only: a new primary finds it again. It begins with the packs that may have lost data
//! (`data/suspects`), and goes on with a long pass where the last one left a mark (`data/mark`).

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;

use braid_base::ids::{DriveId, FsId, PackId};
use braid_base::keys;
use braid_base::msg::drive::ShardId;
use braid_base::msg::host::{Healing, Lost, LostParts};
use braid_base::msg::job::{Job, RebuildJob, ScrubJob, Scrubbed};
use braid_base::record::{PackRec, Record, StripeRec};
use braid_base::{Error, ErrorKind, Result};
use braid_replica::kv::Kv;

use crate::config::Config;
use crate::data::again::{Again, Turn};
use crate::data::drives::Drives;
use crate::data::lost::{joined, merged, refer};
use crate::data::mark::{self, Mark};
use crate::data::packs::{Life, Pack};
use crate::data::speed::Speed;
use crate::data::suspects::Suspects;
use crate::data::tier::damage;
use crate::event::{Effect, Now};
use crate::state::State;
use crate::txn::Txn;

/// The first pass begins so long after the partition is served, milliseconds.
const FIRST_MS: u64 = 20_000;
/// From the beginning of a pass to that of the next, milliseconds: two weeks (design 5.13).
const PASS_MS: u64 = 14 * 24 * 3_600_000;
/// While there is much to write, a pack is begun so long after the last one at the earliest, milliseconds.
const BUSY_MS: u64 = 1_000;
/// Bytes per second with which a drive is read for what must be checked although nothing else is.
const ASKED_BYTES_PER_S: u64 = 32 << 20;
/// Packs beyond repair, and those that could not be checked, are checked again after this, milliseconds.
const LOST_MS: u64 = 15_000;
/// The same of packs of which some shards were silent, milliseconds.
const SILENT_MS: u64 = 60_000;
/// What could not be done is tried again after this, milliseconds; the wait doubles up to the second.
const AGAIN_MS: (u64, u64) = (5_000, 600_000);
/// Numbers of these jobs begin here, those of rebuilds above.
const NUMBERS: u64 = 1 << 62;
/// Below this.
const NUMBERS_END: u64 = 1 << 63;

/// What is checked, what was found, what is mended.
pub(crate) struct Scrub {
    next: u64,
    /// The check under way: its number, the pack.
    checks: Option<(u64, PackId)>,
    mends: Option<(u64, Mend)>,
    pass: Pass,
    /// Packs to be checked again.
    again: Again,
    /// The last check was one of those.
    was_again: bool,
    /// Packs to be checked first, whatever the rate.
    asked: BTreeSet<PackId>,
    suspects: Suspects,
    found: BTreeMap<PackId, Found>,
    /// When a check began last.
    begun_ms: u64,
    /// How fast shards are made anew.
    speed: Speed,
    told: Healing,
}

/// Where the check of all packs is.
#[derive(Default)]
struct Pass {
    /// False: it is over, or did not begin.
    under_way: bool,
    /// The last pack that it came to, and the last one to check.
    at: PackId,
    upto: PackId,
    /// Those up to `at` that are not checked yet, or not all of them: under way, or to be checked again.
    owed: BTreeSet<PackId>,
    /// When the next one begins; none: it was not said yet.
    next_ms: Option<u64>,
    /// When this one began, seconds since 1970.
    begun_s: u64,
    /// Packs that were begun since the last mark; none was made yet if `marked` is false.
    since_mark: u64,
    marked: bool,
}

impl Pass {
    /// True if it has come to all packs and owes nothing: then it is over.
    fn ends(&mut self) -> bool {
        let ends = self.under_way && self.at >= self.upto && self.owed.is_empty();
        if ends {
            self.under_way = false;
            self.since_mark = if self.marked { mark::PACKS } else { 0 };
        }
        ends
    }
}

/// A shard that is made whole.
#[derive(Clone, Copy)]
struct Mend {
    id: ShardId,
    from: DriveId,
    to: DriveId,
}

/// Damage of a pack.
#[derive(Default)]
struct Found {
    /// Shards that can be made whole.
    bad: BTreeSet<u8>,
    /// Data that cannot: shard, first block, how many.
    lost: Vec<(u8, u16, u16)>,
    /// A file refers to it.
    matters: bool,
    /// How often shards were made whole, or could not be.
    tries: BTreeMap<u8, u32>,
    /// When to try again.
    due_ms: u64,
}

impl Scrub {
    /// Nothing is known yet but how far the last primary was, and where to look first. Numbers of its jobs are not used
    /// again.
    pub fn load(config: &Config, kv: &dyn Kv) -> Result<Self> {
        let next = NUMBERS | (config.term.0 << 32);
        let mut pass = Pass::default();
        if let Some(Mark { at, upto, begun_s }) = Mark::load(config.partition, kv)? {
            pass = Pass { under_way: at < upto, at, upto, begun_s, marked: true, ..pass };
        }
        let suspects = Suspects::load(config.partition, kv)?;
        let asked: BTreeSet<PackId> = suspects.packs().collect();
        if pass.under_way {
            // They are not whole, or it is not known.
            pass.owed = asked.range(..=pass.at).copied().collect();
        }
        let (checks, mends, again, was_again, found) = Default::default();
        let (begun_ms, speed, told) = (0, Speed::default(), Healing::default());
        Ok(Self { next, checks, mends, pass, again, was_again, asked, suspects, found, begun_ms, speed, told })
    }

    /// True if the shard is just being made on `drive`.
    pub fn makes(&self, id: ShardId, drive: DriveId) -> bool {
        self.mends.is_some_and(|(_, mend)| (mend.id, mend.to) == (id, drive))
    }

    /// A rebuild made `bytes`.
    pub fn made(&mut self, now_ms: u64, bytes: u64) {
        self.told.rebuilt_bytes += bytes;
        self.speed.add(now_ms, bytes);
    }

    /// A pack may have lost what nobody makes up for: it is checked soon, also where nothing else is, and by the next primary
    /// if this one does not get to it.
    pub fn look_at(&mut self, t: &mut Txn<'_>, pack: PackId) {
        self.asked.insert(pack);
        self.suspects.add(t, pack);
    }

    /// Nothing of the pack is in use any more.
    pub fn forget(&mut self, t: &mut Txn<'_>, pack: PackId) {
        self.pass.owed.remove(&pack);
        self.asked.remove(&pack);
        self.found.remove(&pack);
        self.suspects.remove(t, pack);
    }

    fn number(&mut self) -> u64 {
        self.next += 1;
        self.next
    }
}

/// Begins what there is reason for.
pub(crate) fn start(t: &mut Txn<'_>, s: &mut State) -> Result<()> {
    let now_ms = t.now.mono_ms;
    let rebuilds = !s.data.packs.drives.all_stay();
    let scrub = &mut s.data.scrub;
    scrub.speed.runs(rebuilds, now_ms);
    let limit = s.config.drives.scrub_bytes_per_s;
    if limit == 0 && scrub.asked.is_empty() && scrub.again.is_empty() && scrub.found.is_empty() {
        return Ok(());
    }
    mend(t, s)?;
    if s.data.scrub.checks.is_some() {
        return Ok(());
    }
    let chosen = choose(s, t.now);
    mark(t, s);
    let Some((pack, is_asked)) = chosen else { return Ok(()) };
    let limit = if is_asked || limit == 0 { limit.max(ASKED_BYTES_PER_S) } else { limit };
    let Some(Pack { rec, .. }) = s.data.packs.table.get(&pack) else { return Ok(()) };
    let place = rec.place.clone();
    let rows = committed(t, pack)?;
    // All partitions do this. Each pack lies on some of the drives only, so that on average each gets its share.
    let (drives, width) = (s.data.packs.drives.usable().len().max(1) as u64, place.drives.len() as u64);
    let share = limit.saturating_mul(drives) / (width * u64::from(s.config.partitions)).max(1);
    let bytes_per_s = share.min(limit).max(1);
    let scrub = &mut s.data.scrub;
    scrub.begun_ms = now_ms;
    let id = scrub.number();
    scrub.checks = Some((id, pack));
    t.at_once(Effect::Scrub(ScrubJob { id, pack, place, rows, bytes_per_s }));
    Ok(())
}

/// The next pack to check, and whether that is asked for whatever the rate.
fn choose(s: &mut State, now: Now) -> Option<(PackId, bool)> {
    let (table, drives, scrub) = (&s.data.packs.table, &s.data.packs.drives, &mut s.data.scrub);
    let first = scrub.asked.iter().find(|id| table.get(id).is_some_and(|pack| can_check(drives, pack))).copied();
    if let Some(id) = first {
        scrub.asked.remove(&id);
        return Some((id, true));
    }
    let is_held = !s.data.stage.is_calm(now.mono_ms) && now.mono_ms < s.data.scrub.begun_ms + BUSY_MS;
    if is_held {
        return None;
    }
    // In turns: neither keeps the other from ever being done.
    let of_pass = if s.data.scrub.was_again { next_of_pass(s, now) } else { None };
    let again = if of_pass.is_none() { due_again(s, now.mono_ms) } else { None };
    s.data.scrub.was_again = again.is_some();
    of_pass.or(again).or_else(|| next_of_pass(s, now)).map(|id| (id, false))
}

/// True if something is learnt from a check of a pack.
fn can_check(drives: &Drives, pack: &Pack) -> bool {
    is_sealed(pack) && !is_out_of_reach(drives, pack)
}

fn is_sealed(pack: &Pack) -> bool {
    matches!(pack.life, Life::Sealed { .. })
}

/// The next pack that is to be checked again by now. Where nothing is to be checked, only those with damage are.
fn due_again(s: &mut State, now_ms: u64) -> Option<PackId> {
    let is_off = s.config.drives.scrub_bytes_per_s == 0;
    let (table, drives) = (&s.data.packs.table, &s.data.packs.drives);
    let Scrub { again, pass: Pass { owed, .. }, suspects, .. } = &mut s.data.scrub;
    let mut gone = Vec::new();
    let turn = |id, all| {
        let Some(pack) = table.get(&id).filter(|pack| is_sealed(pack)) else { return Turn::Never };
        let lacks_one = || pack.rec.place.drives.iter().any(|drive| drives.is_absent(*drive));
        let is_late = is_off && !suspects.has(id);
        if is_late || is_out_of_reach(drives, pack) || (all && lacks_one()) { Turn::Later } else { Turn::Now }
    };
    let next = again.take(now_ms, turn, |id| gone.push(id));
    for id in gone {
        owed.remove(&id);
    }
    next
}

/// The next pack of the pass, which begins if it is time. At its end it is over once nothing is owed.
fn next_of_pass(s: &mut State, now: Now) -> Option<PackId> {
    let (now_ms, now_s) = (now.mono_ms, u64::try_from(now.wall.sec).unwrap_or(0));
    if s.config.drives.scrub_bytes_per_s == 0 {
        return None;
    }
    let (table, drives) = (&s.data.packs.table, &s.data.packs.drives);
    let Scrub { pass, again, told, .. } = &mut s.data.scrub;
    let sealed = |upto: PackId| table.range(..=upto).filter(|(_, pack)| is_sealed(pack)).count() as u64;
    if pass.next_ms.is_none() {
        // Of one that is marked it is known when it began.
        let left_ms = if pass.marked { (pass.begun_s * 1_000 + PASS_MS).saturating_sub(now_s * 1_000) } else { 0 };
        pass.next_ms = Some(now_ms + left_ms.clamp(FIRST_MS, PASS_MS));
        if pass.under_way {
            let owed = pass.owed.len() as u64;
            (told.scrub_done, told.scrub_packs) = (sealed(pass.at).saturating_sub(owed), sealed(pass.upto));
        }
    }
    told.passes += u64::from(pass.ends());
    let has_walked = pass.at >= pass.upto;
    if (!pass.under_way || has_walked) && pass.next_ms.is_some_and(|next_ms| now_ms >= next_ms) {
        // What the last one still owes is owed by this one.
        let newest = table.last_key_value().map_or(PackId(0), |(id, _)| *id);
        let (at, owed, next_ms, marked) = (PackId(0), BTreeSet::new(), Some(now_ms + PASS_MS), pass.marked);
        // What an earlier pass has marked is not true of this one.
        let since_mark = if marked { mark::PACKS } else { 0 };
        *pass = Pass { under_way: true, at, upto: newest, owed, next_ms, begun_s: now_s, since_mark, marked };
        (told.scrub_done, told.scrub_packs) = (0, sealed(newest));
    }
    if !pass.under_way {
        return None;
    }
    let left = if pass.at < pass.upto { Some((Bound::Excluded(pass.at), Bound::Included(pass.upto))) } else { None };
    for (id, pack) in left.into_iter().flat_map(|left| table.range(left)).filter(|(_, pack)| is_sealed(pack)) {
        pass.at = *id;
        pass.owed.insert(*id);
        if can_check(drives, pack) {
            pass.since_mark += 1;
            return Some(*id);
        }
        again.add(*id, now_ms, false);
    }
    pass.at = pass.upto;
    // Without packs it ends as it begins.
    told.passes += u64::from(pass.ends());
    None
}

/// Keeps how far the pass is, now and then. Packs with damage are kept each by itself.
fn mark(t: &mut Txn<'_>, s: &mut State) {
    let Scrub { pass, suspects, .. } = &mut s.data.scrub;
    if pass.since_mark < mark::PACKS {
        return;
    }
    (pass.since_mark, pass.marked) = (0, true);
    let first = pass.owed.iter().find(|id| !suspects.has(**id));
    let whole = first.map_or(pass.at, |id| pass.at.min(PackId(id.0.saturating_sub(1))));
    // With something owed it is not over.
    let at = if pass.owed.is_empty() { whole } else { whole.min(PackId(pass.upto.0.saturating_sub(1))) };
    let mark = Mark { at, upto: pass.upto, begun_s: pass.begun_s };
    t.put(Mark::key(t.partition), mark.encode());
}

/// A check of [`start`] ended.
pub(crate) fn checked(t: &mut Txn<'_>, s: &mut State, number: u64, result: Result<Scrubbed>) -> Result<()> {
    let Some((_, id)) = s.data.scrub.checks.take_if(|(running, _)| *running == number) else {
        return Ok(());
    };
    let now_ms = t.now.mono_ms;
    let scrub = &mut s.data.scrub;
    let Some(Pack { rec, life: Life::Sealed { .. }, .. }) = s.data.packs.table.get(&id) else {
        scrub.pass.owed.remove(&id);
        return Ok(());
    };
    let rec = rec.clone();
    let mut found = match result {
        Ok(found) => found,
        Err(_) => {
            // Drives are away: it is asked for again, and what is known of it stays.
            scrub.again.add(id, now_ms + LOST_MS, false);
            scrub.suspects.unsure(id);
            return Ok(());
        }
    };
    let known = scrub.found.remove(&id).unwrap_or_default();
    scrub.told.scrubbed_bytes += found.bytes;
    scrub.told.odd += found.odd.iter().map(|(_, count)| u64::from(*count)).sum::<u64>();
    if found.silent.is_empty() {
        scrub.told.scrub_done += u64::from(scrub.pass.owed.remove(&id));
    } else {
        // What is known of shards that say nothing now stays.
        scrub.again.add(id, now_ms + SILENT_MS, true);
        found.bad.extend(known.bad.iter().filter(|shard| found.silent.contains(shard)));
        found.lost = merged(found.lost.iter().chain(&known.lost).copied());
    }
    let is_whole = found.bad.is_empty() && found.lost.is_empty();
    match (found.silent.is_empty(), is_whole) {
        (true, true) => scrub.suspects.remove(t, id),
        (true, false) => scrub.suspects.judged(t, id),
        (false, true) => scrub.suspects.unsure(id),
        (false, false) => scrub.suspects.add(t, id),
    }
    if is_whole {
        return Ok(());
    }
    if !found.lost.is_empty() && s.data.packs.is_bare(id) {
        s.data.tier.bare.found_damaged(id);
    }
    let matters = !found.lost.is_empty() && !refer(t, s, (id, &rec), &found.lost, 1)?.is_empty();
    let scrub = &mut s.data.scrub;
    if !found.lost.is_empty() {
        scrub.again.add(id, now_ms + LOST_MS, false);
    }
    let bad: BTreeSet<u8> = found.bad.into_iter().collect();
    // One that was made whole, and is not, is not made so again and again.
    let tries = bad.iter().filter_map(|shard| known.tries.get(shard)).max().copied().unwrap_or(0);
    let due_ms = match tries {
        0 => 0,
        // A check does not put off what waits already.
        _ if known.due_ms > now_ms => known.due_ms,
        _ => now_ms + wait_ms(tries),
    };
    scrub.found.insert(id, Found { bad, lost: found.lost, matters, tries: known.tries, due_ms });
    mend(t, s)?;
    Ok(())
}

/// The rows of `pack` in committed stripes: in others nothing was promised, and what a drive says of its blocks is no
/// measure. A shard that was made anew lacks the rows that could not be computed.
pub(super) fn committed(t: &Txn<'_>, pack: PackId) -> Result<Vec<(u16, u16)>> {
    let (mut rows, mut bad): (Vec<(u16, u16)>, _) = (Vec::new(), None);
    t.scan_prefix(&keys::stripes(t.partition, pack), &mut |key, value| {
        match (key.get(9..11).and_then(|sb| sb.try_into().ok()).map(u16::from_be_bytes), StripeRec::decode(value)) {
            (Some(sb), Ok(rec)) => match rows.last_mut() {
                // A row that two of them name is one all the same.
                Some((first, count)) if u32::from(*first) + u32::from(*count) >= u32::from(sb) => {
                    *count = (*count).max(sb.saturating_add(rec.ul) - *first);
                }
                _ => rows.push((sb, rec.ul)),
            },
            (_, Err(error)) => bad = Some(error),
            (None, _) => bad = Some(Error::new(ErrorKind::Corrupt, "stripe: the key is too short")),
        }
        bad.is_none()
    })?;
    bad.map_or(Ok(rows), Err)
}

/// Begins to make a damaged shard whole: where it is, and after each failure elsewhere, or there again.
fn mend(t: &mut Txn<'_>, s: &mut State) -> Result<()> {
    let now_ms = t.now.mono_ms;
    let (table, drives) = (&s.data.packs.table, &s.data.packs.drives);
    if s.data.scrub.mends.is_some() {
        return Ok(());
    }
    let chosen = s.data.scrub.found.iter().filter(|(_, found)| now_ms >= found.due_ms).find_map(|(id, found)| {
        let Pack { rec, life: Life::Sealed { .. }, .. } = table.get(id)? else { return None };
        let on = |shard: u8| rec.place.drives.get(usize::from(shard)).copied();
        // What lies on a drive that leaves is made anew anyway.
        let shard = found.bad.iter().copied().find(|shard| on(*shard).is_some_and(|from| !drives.leaves(from)))?;
        let from = on(shard)?;
        let others: Vec<DriveId> = rec.place.drives.iter().copied().filter(|drive| *drive != from).collect();
        let of = ShardId { pack: *id, shard };
        let refused = |drive| drive == from || s.data.rebuilds.is_refused(of, drive, now_ms);
        let elsewhere = || drives.replacement(&others, (rec.place.parity, false), now_ms, refused);
        let to =
            if found.tries.get(&shard).copied().unwrap_or(0) % 2 == 1 { elsewhere().unwrap_or(from) } else { from };
        Some((Mend { id: of, from, to }, rec.clone()))
    });
    let Some((mend, rec)) = chosen else { return Ok(()) };
    let rows = committed(t, mend.id.pack)?;
    let number = s.data.scrub.number();
    s.data.scrub.mends = Some((number, mend));
    if mend.to != mend.from {
        s.data.packs.drives.took(mend.to, 1);
    }
    let (ShardId { pack, shard }, to, term) = (mend.id, mend.to, s.config.term);
    let (PackRec { place, class, .. }, copies) = (rec, false);
    // Its drive stays.
    let gone = Vec::new();
    t.at_once(Effect::Job(Job::Rebuild(RebuildJob {
        id: number,
        pack,
        shard,
        place,
        rows,
        to,
        copies,
        gone,
        class,
        term,
        fs: FsId(0),
    })));
    Ok(())
}

/// A move of [`mend`] ended; false if `number` is none of them.
pub(crate) fn done(t: &mut Txn<'_>, s: &mut State, number: u64, result: &Result<()>) -> bool {
    if !(NUMBERS..NUMBERS_END).contains(&number) {
        return false;
    }
    let Some((_, Mend { id, from, to })) = s.data.scrub.mends.take_if(|(running, _)| *running == number) else {
        return true;
    };
    let now_ms = t.now.mono_ms;
    let Some(pack) = s.data.packs.table.get_mut(&id.pack) else { return true };
    let Some(found) = s.data.scrub.found.get_mut(&id.pack) else { return true };
    let sealed = matches!(pack.life, Life::Sealed { .. });
    let at = usize::from(id.shard);
    let tries = found.tries.entry(id.shard).or_default();
    *tries += 1;
    let on = &pack.rec.place.drives;
    let same = on.get(at) == Some(&from) && (to == from || !on.contains(&to));
    if result.is_ok() && sealed && same {
        if to != from {
            pack.rec.place.drives[at] = to;
            pack.rec.place.epoch.0 += 1;
            t.write(keys::pack(t.partition, id.pack), &pack.rec);
        }
        found.bad.remove(&id.shard);
        s.data.scrub.told.mended += 1;
        // Whether it is whole is seen by another check.
        s.data.scrub.again.add(id.pack, now_ms, false);
    } else {
        found.due_ms = now_ms + wait_ms(*tries);
    }
    true
}

fn wait_ms(tries: u32) -> u64 {
    AGAIN_MS.0.saturating_mul(1 << tries.saturating_sub(1).min(16)).min(AGAIN_MS.1)
}

/// True if more drives of a pack are away than its parity makes up for.
fn is_out_of_reach(drives: &Drives, pack: &Pack) -> bool {
    let place = &pack.rec.place;
    place.drives.iter().filter(|drive| drives.is_absent(**drive)).count() > usize::from(place.parity)
}

/// True if data of files in a pack is lost, or out of reach, as far as is known: a move of all of it would fail.
pub(crate) fn has_lost(s: &State, id: PackId) -> bool {
    s.data.packs.table.get(&id).is_some_and(|pack| is_out_of_reach(&s.data.packs.drives, pack))
        || s.data.scrub.found.get(&id).is_some_and(|found| found.matters)
}

/// True if all of a pack can be read, as far as is known.
pub(crate) fn is_whole(s: &State, id: PackId) -> bool {
    s.data.packs.table.get(&id).is_some_and(|pack| lost_of(s, id, &pack.rec).is_empty())
}

/// What of a pack is beyond repair, or out of reach: shards of data, first block, how many.
fn lost_of(s: &State, id: PackId, rec: &PackRec) -> Vec<(u8, u16, u16)> {
    let absent = |shard: &usize| s.data.packs.drives.is_absent(rec.place.drives[*shard]);
    let mut away: Vec<usize> = (0..rec.place.drives.len()).filter(absent).collect();
    if away.len() <= usize::from(rec.place.parity) {
        away.clear();
    }
    let away = away.into_iter().filter(|shard| *shard < usize::from(rec.place.data));
    let found = s.data.scrub.found.get(&id).into_iter().flat_map(|found| found.lost.iter().copied());
    merged(away.map(|shard| (shard as u8, 0, u16::MAX)).chain(found))
}

/// What the partition does to keep data whole, in numbers.
pub(crate) fn healing(s: &State) -> Healing {
    let scrub = &s.data.scrub;
    let mut told = scrub.told;
    told.scrub_runs = scrub.pass.under_way;
    // Some were sealed since it began.
    told.scrub_packs = told.scrub_packs.max(told.scrub_done);
    told.damaged = scrub.found.values().map(|found| found.bad.len() as u64).sum();
    let lost = |(id, pack): &(&PackId, &Pack)| {
        let rotten = || scrub.found.get(id).is_some_and(|found| found.matters);
        let holds = pack.rec.live_upper > 0 && !matches!(pack.life, Life::Dead { .. });
        // What is in objects as well is not lost with its drive.
        let only = !pack.is_bare() || s.data.tier.bare.is_stuck(**id);
        let gone = || only && is_out_of_reach(&s.data.packs.drives, pack);
        holds && (gone() || rotten())
    };
    told.beyond = s.data.packs.table.iter().filter(lost).count() as u64;
    told.rebuild_bytes_per_s = scrub.speed.per_s();
    let (slots, moved, per_s) = s.data.balance.told();
    told.uneven_bytes = slots * s.config.shard_bytes;
    (told.balanced_bytes, told.balance_bytes_per_s) = (moved, per_s);
    told
}

/// The parts of files that cannot be read, at most about `limit` of them.
pub(crate) fn lost(t: &Txn<'_>, s: &State, limit: usize) -> Result<LostParts> {
    let mut all: BTreeSet<Lost> = BTreeSet::new();
    for (id, pack) in s.data.packs.table.iter().filter(|(_, pack)| !matches!(pack.life, Life::Dead { .. })) {
        let lost = lost_of(s, *id, &pack.rec);
        if !lost.is_empty() && all.len() < limit {
            all.extend(refer(t, s, (*id, &pack.rec), &lost, limit - all.len())?);
        }
    }
    let (in_objects, is_cut) = damage::lost(t, s, limit.saturating_sub(all.len()))?;
    all.extend(in_objects);
    // Those that follow each other become one: it is before that that there are as many.
    let more = is_cut || all.len() >= limit;
    let unchecked = s.data.scrub.suspects.count_open() as u64;
    Ok(LostParts { partitions: vec![s.config.partition], parts: joined(all), more, unchecked })
}
