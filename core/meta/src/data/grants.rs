//! Ranges of packs that clients may write stripes into (design 5.6).
//!
//! 1. `GetSpace` lends a run of blocks of an open pack. Nothing is logged: after a restart no open pack of an earlier
//!    term is lent from again, so what was lent is lent once for all time.
//! 2. The client cuts stripes from the front of the run and writes all shards of each.
//! 3. `CommitWrite` names them: they must lie in a run that this client has, in its epoch, each block once.
//! 4. What the client will not use (the ends of runs, stripes that a drive did not take) it gives up with its next
//!    question.
//! 5. A run comes back when all of it is named or given up, when its pack moved on (epoch), or after [`GRANT_MS`]:
//!    whatever was written there and not named is garbage, and no later commit can name it.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;

use braid_base::ids::{ClientId, Epoch, FsId, PackId};
use braid_base::limits::{BLOCK, CHUNK, GRANT_BYTES_MAX, GRANT_MS};
use braid_base::msg::fs::{Laid, Reply};
use braid_base::record::{PackClass, Placement, StripeAt};
use braid_base::{Error, ErrorKind, Result};

use crate::data::{self, Mutation, care};
use crate::state::State;
use crate::txn::Txn;

/// Logical blocks of one run at most: several clients share the open packs.
const RUN_BLOCKS_MAX: u32 = 1_024;
/// One client gets this part of what is left at most.
const SHARE: u64 = 8;
/// Packs opened ahead for clients hold at most this much, bytes: what they may ask for between two ticks.
const AHEAD_MAX: u64 = 6 * GRANT_BYTES_MAX;

/// What is lent.
#[derive(Default)]
pub(crate) struct Grants {
    runs: BTreeMap<(PackId, u16), Run>,
    /// Bytes of them that were not named: every write asks for that.
    left: Left,
    /// Bytes asked for since packs were last opened ahead.
    wanted: u64,
}

/// Sums over all runs, bytes.
#[derive(Default)]
struct Left {
    all: u64,
    by_client: BTreeMap<ClientId, u64>,
    by_fs: BTreeMap<FsId, u64>,
}

struct Run {
    at: StripeAt,
    fs: FsId,
    client: ClientId,
    epoch: Epoch,
    /// Data shards.
    width: u8,
    since_ms: u64,
    /// Stripes that were named or given up.
    named: Vec<StripeAt>,
}

/// The block after the last one, in each shard.
fn end(at: &StripeAt) -> u32 {
    u32::from(at.sb) + u32::from(at.ul)
}

fn overlap(a: &StripeAt, b: &StripeAt) -> bool {
    a.pack == b.pack && u32::from(a.sb) < end(b) && u32::from(b.sb) < end(a)
}

impl Run {
    fn holds(&self, at: &StripeAt) -> bool {
        let inside = at.sb >= self.at.sb && at.ul > 0 && end(at) <= end(&self.at);
        inside && !self.named.iter().any(|named| overlap(named, at))
    }

    /// Bytes of blocks that were not named.
    fn left(&self) -> u64 {
        let named: u32 = self.named.iter().map(|at| u32::from(at.ul)).sum();
        u64::from(u32::from(self.at.ul) - named) * u64::from(self.width) * BLOCK as u64
    }

    fn is_used_up(&self) -> bool {
        self.left() == 0
    }
}

impl Left {
    /// A run has that many bytes more.
    fn add(&mut self, run: &Run, bytes: u64) {
        self.all += bytes;
        *self.by_client.entry(run.client).or_default() += bytes;
        *self.by_fs.entry(run.fs).or_default() += bytes;
    }

    /// A run has that many bytes less.
    fn take(&mut self, run: &Run, bytes: u64) {
        self.all -= bytes;
        take_from(&mut self.by_client, run.client, bytes);
        take_from(&mut self.by_fs, run.fs, bytes);
    }
}

fn take_from<K: Ord>(sums: &mut BTreeMap<K, u64>, key: K, bytes: u64) {
    if let Entry::Occupied(mut sum) = sums.entry(key) {
        *sum.get_mut() -= bytes;
        if *sum.get() == 0 {
            sum.remove();
        }
    }
}

impl Grants {
    /// Bytes that are lent to others than `me` and not named.
    pub fn outstanding(&self, me: Option<ClientId>) -> u64 {
        self.left.all - me.and_then(|me| self.left.by_client.get(&me)).copied().unwrap_or(0)
    }

    /// Bytes that are lent for `fs` and not named.
    pub fn lent_to(&self, fs: FsId) -> u64 {
        self.left.by_fs.get(&fs).copied().unwrap_or(0)
    }

    /// The run that holds all of `at`, of this client.
    fn run_of(&self, client: ClientId, at: &StripeAt) -> Option<(&(PackId, u16), &Run)> {
        let (key, run) = self.runs.range(..=(at.pack, at.sb)).next_back()?;
        (run.at.pack == at.pack && run.client == client && run.holds(at)).then_some((key, run))
    }
}

/// `Op::GetSpace`.
///
/// What is lent is as good as used, so that who has it will not hear later that there is no room. The fuller it is, the
/// less of what is left goes to one client.
pub(crate) fn lend(s: &mut State, (fs, client): (FsId, ClientId), bytes: u64, now_ms: u64) -> Reply {
    let bytes = bytes.min(GRANT_BYTES_MAX).min(data::left(s, fs) / SHARE);
    s.data.grants.wanted = s.data.grants.wanted.saturating_add(bytes);
    let blocks = bytes.div_ceil(BLOCK as u64) as u32;
    let ranges = s.data.packs.carve(PackClass::User, blocks, RUN_BLOCKS_MAX);
    let mut lent: Vec<(StripeAt, Placement)> = Vec::with_capacity(ranges.len());
    for (at, _) in ranges {
        let place = s.data.packs.place(at.pack).expect("ranges are carved from packs of the table").clone();
        s.data.packs.lend(at);
        let run = Run { at, fs, client, epoch: place.epoch, width: place.data, since_ms: now_ms, named: Vec::new() };
        s.data.grants.left.add(&run, run.left());
        s.data.grants.runs.insert((at.pack, at.sb), run);
        lent.push((at, place));
    }
    Reply::Space(lent)
}

/// `Stale` unless all of `stripes` may be committed by `client`; `Invalid` if a stripe cannot have that length.
pub(crate) fn check(s: &State, client: ClientId, stripes: &[Laid]) -> Result<()> {
    for (number, laid) in stripes.iter().enumerate() {
        let known = s.data.grants.run_of(client, &laid.at);
        let place = s.data.packs.place(laid.at.pack).ok();
        let current = known.is_some_and(|(_, run)| run.epoch == laid.epoch)
            && place.is_some_and(|place| place.epoch == laid.epoch);
        if !current && s.data.mutation != Some(Mutation::AnyGrant) {
            let what = format!("{:?} is not lent to {client} (any more)", laid.at);
            return Err(Error::new(ErrorKind::Stale, what));
        }
        let width = place.map_or(0, |place| u64::from(place.data));
        let fits = (1..=width * u64::from(laid.at.ul) * BLOCK as u64).contains(&u64::from(laid.len));
        if !fits || stripes[..number].iter().any(|other| overlap(&other.at, &laid.at)) {
            let what = format!("{:?} of {} bytes: too long, empty, or named twice", laid.at, laid.len);
            return Err(Error::new(ErrorKind::Invalid, what));
        }
    }
    Ok(())
}

/// The stripes are part of an entry, after [`check`].
pub(crate) fn named(s: &mut State, client: ClientId, stripes: &[Laid]) {
    stripes.iter().for_each(|laid| used(s, client, laid.at));
}

/// The client will not name these. Those of runs that it does not have (any more) mean nothing.
pub(crate) fn give_up(s: &mut State, client: ClientId, back: &[StripeAt]) {
    back.iter().for_each(|at| used(s, client, *at));
}

/// No commit may name `at` from now on.
fn used(s: &mut State, client: ClientId, at: StripeAt) {
    let Some(key) = s.data.grants.run_of(client, &at).map(|(key, _)| *key) else { return };
    let Grants { runs, left, .. } = &mut s.data.grants;
    let Some(run) = runs.get_mut(&key) else { return };
    let before = run.left();
    run.named.push(at);
    left.take(run, before - run.left());
    if run.is_used_up() {
        give_back(s, key);
    }
}

/// Background: takes back what is too old or void, and opens packs for what is being asked for.
pub(crate) fn tend(t: &mut Txn<'_>, s: &mut State) {
    let now = t.now.mono_ms;
    let over = |run: &Run| {
        now >= run.since_ms + GRANT_MS || s.data.packs.place(run.at.pack).is_ok_and(|place| place.epoch != run.epoch)
    };
    let old: Vec<_> = s.data.grants.runs.iter().filter(|(_, run)| over(run)).map(|(key, _)| *key).collect();
    for key in old {
        give_back(s, key);
    }
    let wanted = std::mem::take(&mut s.data.grants.wanted);
    if wanted > 0 {
        // For those that ask next: creating a pack takes a while.
        let room = s.config.capacity_bytes.saturating_sub(s.data.space.occupied());
        let bytes = (2 * wanted).clamp(GRANT_BYTES_MAX, AHEAD_MAX).min(room / 8).max(CHUNK);
        care::open_ahead(t, s, PackClass::User, bytes);
    }
}

fn give_back(s: &mut State, key: (PackId, u16)) {
    if let Some(run) = s.data.grants.runs.remove(&key) {
        s.data.grants.left.take(&run, run.left());
        s.data.packs.returned(run.at);
    }
}
