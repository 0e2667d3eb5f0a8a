//! Shards move from the fullest drives to the emptiest: after drives were added, or when some filled faster than others.
//!
//! 1. It begins when the fill of two drives differs by more than [`BAND`], and ends when it does not by more than
//!    [`ENOUGH`], or when no shard can go without lying closer to others of its pack than before.
//! 2. It goes in rounds. All partitions see the same drives, and none asks the others: in a round each moves as much as
//!    its share of what lies there, of what would make the fullest and the emptiest drive equal. So all together do not
//!    go too far, and what is left is the matter of the next round, which begins when the drives have been asked anew.
//! 3. A move goes from the fuller drive to one that is not fuller than that afterwards: the sum of the squares of what
//!    drives hold falls with each, so there is an end to it.
//! 4. It is made like a rebuild (`data/rebuild`), by a copy, one at a time, and only when nothing is to be made anew. One
//!    entry says where the shard lies now; the old one is dropped when that is committed.
//!
//! Nothing of it is kept: a new primary looks at the drives, and sees what is left.

use std::collections::BTreeMap;
use std::ops::Bound;

use braid_base::ids::{DriveId, PackId};
use braid_base::msg::drive::{DriveStat, ShardId};

use crate::data::drives::{ODD_GOLDEN, STAT_MS};
use crate::data::packs::Life;
use crate::data::rebuild::Made;
use crate::data::speed::Speed;
use crate::state::State;

/// All of a drive.
const ALL: u64 = 1_000_000;
/// Drives may differ by so much: 5 points of a hundred (design 5.13).
const BAND: u64 = ALL / 20;
/// Once shards move, they do until drives differ by no more than this: else it would begin anew with every few writes.
const ENOUGH: u64 = ALL / 50;
/// From one round to the next, milliseconds: drives are asked for their space in between.
const ROUND_MS: u64 = 2 * STAT_MS;
/// The same when nothing could be moved.
const STUCK_MS: u64 = 60_000;
/// Packs that are looked at in one step.
const LOOKED_AT: usize = 1_024;

/// What is known of the balance.
#[derive(Default)]
pub(crate) struct Balance {
    /// It is under way.
    evens: bool,
    round: Option<Round>,
    rounds: u64,
    /// Drives that shards move between differ by at least this part of what the fullest and the emptiest differ by: 1/2^n.
    finer: u32,
    /// When the next round may begin.
    next_ms: u64,
    /// Nothing could be moved in the last one, or since it began.
    stuck: bool,
    /// Slots that would have to move, as of the beginning of the round.
    left: u64,
    /// Bytes that were moved.
    moved: u64,
    speed: Speed,
}

/// What may move until drives are asked again.
struct Round {
    /// Shards that may leave drives, and go to drives.
    out: BTreeMap<DriveId, u64>,
    into: BTreeMap<DriveId, u64>,
    /// By how much drives must differ.
    gap: u64,
    /// The last pack that was looked at.
    at: PackId,
    /// Something was moved.
    moved: bool,
}

impl Balance {
    /// Drives are others than before.
    pub fn look_anew(&mut self) {
        self.round = None;
        if std::mem::take(&mut self.stuck) {
            (self.next_ms, self.finer) = (0, 0);
        }
    }

    /// Slots to move, bytes that were, and bytes per second.
    pub fn told(&self) -> (u64, u64, u64) {
        (if self.stuck { 0 } else { self.left }, self.moved, self.speed.per_s())
    }

    /// A shard of so many bytes was moved.
    pub fn moved(&mut self, now_ms: u64, bytes: u64) {
        self.moved += bytes;
        self.left = self.left.saturating_sub(1);
        self.speed.add(now_ms, bytes);
    }
}

/// The next shard to move, and where. Called again and again when there is nothing else to do.
pub(crate) fn choose(s: &mut State, now_ms: u64) -> Option<Made> {
    if s.data.balance.round.is_none() {
        begin(s, now_ms);
    }
    let round = s.data.balance.round.as_ref()?;
    let (packs, rebuilds) = (&s.data.packs, &s.data.rebuilds);
    let fills: BTreeMap<DriveId, DriveStat> = packs.drives.fills().collect();
    let (mut best, mut last, mut seen): (Option<(u64, Made)>, _, _) = (None, round.at, 0);
    for (id, pack) in packs.table.range((Bound::Excluded(round.at), Bound::Unbounded)).take(LOOKED_AT) {
        (last, seen) = (*id, seen + 1);
        // One that nothing refers to is dropped soon.
        let sealed = matches!(pack.life, Life::Sealed { .. }) && pack.rec.live_upper > 0;
        if !sealed || !rebuilds.is_quiet(*id, now_ms) {
            continue;
        }
        let drives = &pack.rec.place.drives;
        for (shard, from) in drives.iter().enumerate().filter(|(_, from)| round.out.contains_key(from)) {
            for to in round.into.keys() {
                let id = ShardId { pack: *id, shard: shard as u8 };
                let Some(gap) = gain(fills.get(from), fills.get(to), round.gap) else { continue };
                let better = best.is_none_or(|(most, _)| gap > most);
                if better && packs.drives.may_take(*to, drives, shard, now_ms) && !rebuilds.is_refused(id, *to, now_ms)
                {
                    best = Some((gap, Made { id, from: *from, to: *to, evens: true, gone: 0 }));
                }
            }
        }
    }
    let balance = &mut s.data.balance;
    let round = balance.round.as_mut()?;
    match best {
        Some((_, made)) => {
            (round.moved, balance.stuck) = (true, false);
            for (budget, drive) in [(&mut round.out, made.from), (&mut round.into, made.to)] {
                if let Some(left) = budget.get_mut(&drive) {
                    *left -= 1;
                }
                budget.retain(|_, left| *left > 0);
            }
        }
        None if seen == LOOKED_AT => round.at = last,
        None => {
            let finest = round.gap <= ENOUGH;
            balance.finer = if round.moved { balance.finer } else { balance.finer + 1 };
            balance.stuck = !round.moved && finest;
            balance.next_ms = now_ms + if balance.stuck { STUCK_MS } else { ROUND_MS };
            balance.round = None;
        }
    }
    best.map(|(_, made)| made)
}

/// Begins a round, if it is time for one and there is reason.
fn begin(s: &mut State, now_ms: u64) {
    if now_ms < s.data.balance.next_ms || !s.data.packs.drives.are_known() {
        return;
    }
    let fills: Vec<(DriveId, DriveStat)> = s.data.packs.drives.fills().collect();
    let mut own: BTreeMap<DriveId, u64> = BTreeMap::new();
    let balance = &mut s.data.balance;
    balance.next_ms = now_ms + ROUND_MS;
    let differ = differ(&fills);
    balance.evens = differ > if balance.evens { ENOUGH } else { BAND };
    balance.speed.runs(balance.evens, now_ms);
    if !balance.evens {
        (balance.left, balance.finer) = (0, 0);
        return;
    }
    balance.rounds += 1;
    balance.left = beyond(&fills);
    for pack in s.data.packs.table.values().filter(|pack| !matches!(pack.life, Life::Dead { .. })) {
        pack.rec.place.drives.iter().for_each(|drive| *own.entry(*drive).or_default() += 1);
    }
    // What is less than one shard falls to each partition in its turn.
    let turn = (u64::from(s.config.partition.0) + balance.rounds).wrapping_mul(ODD_GOLDEN) >> 32;
    let (out, into) = shares(&fills, &own, (turn * ALL) >> 32);
    if out.is_empty() || into.is_empty() {
        balance.stuck = true;
    } else {
        balance.round = Some(Round {
            out,
            into,
            gap: (differ >> (1 + balance.finer).min(63)).max(ENOUGH),
            at: PackId(0),
            moved: false,
        });
    }
}

type Budget = BTreeMap<DriveId, u64>;

/// How many shards this partition, which has `own` of them on each drive, may move from and to each drive. `turn`: what
/// part of a shard counts as one.
fn shares(fills: &[(DriveId, DriveStat)], own: &BTreeMap<DriveId, u64>, turn: u64) -> (Budget, Budget) {
    let (mut out, mut into) = (Budget::new(), Budget::new());
    let by_fill = |(_, stat): &&(DriveId, DriveStat)| fill(stat);
    let (Some((_, least)), Some((_, most))) = (fills.iter().min_by_key(by_fill), fills.iter().max_by_key(by_fill))
    else {
        return (out, into);
    };
    let all_used: u64 = fills.iter().map(|(_, stat)| used(stat)).sum();
    let all_own: u64 = fills.iter().filter_map(|(drive, _)| own.get(drive)).sum();
    let share = |slots: u64, own: u64, used: u64| {
        let parts = u128::from(slots) * u128::from(own.min(used)) / u128::from(used.max(1));
        (parts as u64 + turn) / ALL
    };
    for (drive, stat) in fills {
        let own = own.get(drive).copied().unwrap_or(0);
        out.insert(*drive, share(to_even(stat, least), own, used(stat)));
        into.insert(*drive, share(to_even(most, stat), all_own, all_used));
    }
    out.retain(|_, shards| *shards > 0);
    into.retain(|_, shards| *shards > 0);
    (out, into)
}

/// Slots, in parts of [`ALL`], that make two drives equally full when they move.
fn to_even(fuller: &DriveStat, emptier: &DriveStat) -> u64 {
    let gap = u128::from(fill(fuller).saturating_sub(fill(emptier)));
    let (a, b) = (u128::from(fuller.slots), u128::from(emptier.slots));
    (gap * a * b / (a + b).max(1)) as u64
}

/// By how much drives differ that a shard moves between; none if that is no more than `least`, or it would not make
/// them more even.
fn gain(from: Option<&DriveStat>, to: Option<&DriveStat>, least: u64) -> Option<u64> {
    let (from, to) = (from?, to?);
    let gap = fill(from).checked_sub(fill(to)).filter(|gap| *gap > least)?;
    let (after, there) = (used(from).checked_sub(1)?, used(to) + 1);
    (after * u64::from(to.slots) >= there * u64::from(from.slots)).then_some(gap)
}

/// By how much the fill of drives differs.
fn differ(fills: &[(DriveId, DriveStat)]) -> u64 {
    let fills = || fills.iter().map(|(_, stat)| fill(stat));
    fills().max().unwrap_or(0) - fills().min().unwrap_or(0)
}

/// Slots that those hold which are fuller than all are on average.
fn beyond(fills: &[(DriveId, DriveStat)]) -> u64 {
    let (all, slots) = fills.iter().fold((0, 0), |(u, s), (_, stat)| (u + used(stat), s + u64::from(stat.slots)));
    let mean = |stat: &DriveStat| (u128::from(all) * u128::from(stat.slots) / u128::from(slots.max(1))) as u64;
    fills.iter().map(|(_, stat)| used(stat).saturating_sub(mean(stat))).sum()
}

fn used(stat: &DriveStat) -> u64 {
    u64::from(stat.slots - stat.free.min(stat.slots))
}

/// In parts of [`ALL`].
fn fill(stat: &DriveStat) -> u64 {
    used(stat) * ALL / u64::from(stat.slots.max(1))
}
