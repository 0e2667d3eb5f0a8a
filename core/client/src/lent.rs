//! Ranges of packs that partitions lent to this client, and how stripes are cut from them.
//!
//! A range is used from the front, each block once: whatever becomes of a stripe, its blocks are not used again.

use std::collections::{HashMap, VecDeque};
use std::sync::{Mutex, MutexGuard};

use braid_base::ids::{DriveId, PartitionId};
use braid_base::limits::{BLOCK, CHUNK, GRANT_BYTES_MAX, GRANT_MS, STRIPE_BYTES};
use braid_base::msg::fs::Laid;
use braid_base::record::{Placement, StripeAt};

/// Least to ask for, bytes.
const ASK_MIN: u64 = 1 << 20;
/// The partition hears of a drive in trouble within about this, milliseconds; until then it may lend room on it again.
const AVOID_MS: u64 = 1_000;
/// Stripes shorter than this are not cut from the end of a range, bytes: six drives would each get next to nothing.
const STRIPE_MIN: u64 = 64 << 10;
/// Parts of ranges that are given up with one question, at most.
const BACK_MAX: usize = 256;

/// What this client has.
#[derive(Default)]
pub(crate) struct Lent(Mutex<HashMap<PartitionId, Kept>>);

/// Of one partition.
#[derive(Default)]
struct Kept {
    ranges: VecDeque<Range>,
    /// Bytes of them that are meant for what was written already and is not cut yet.
    promised: u64,
    /// Asked for last, bytes, and until when that says how much is needed.
    asked: (u64, u64),
    /// Until then no others are worth asking for: ranges were on a drive to avoid.
    avoid_ms: u64,
    /// What will not be used, for the partition to know: a pack of which something is lent cannot be collected.
    back: Vec<StripeAt>,
}

impl Kept {
    /// Lets go of ranges in which no write may begin any more.
    fn prune(&mut self, now_ms: u64) {
        self.keep_if(|range| now_ms < range.until_ms);
    }

    /// Gives up all other ranges; how many are left.
    fn keep_if(&mut self, keeps: impl Fn(&Range) -> bool) -> usize {
        let back = &mut self.back;
        self.ranges.retain(|range| {
            let kept = keeps(range);
            back.extend((!kept).then_some(range.at));
            kept
        });
        self.ranges.len()
    }

    /// The first `ul` blocks of every shard of the first range, which is gone when nothing is left of it.
    fn take(&mut self, ul: u16) -> StripeAt {
        let Range { at, .. } = self.ranges.front_mut().expect("who takes from a range has looked at it");
        let taken = StripeAt { ul, ..*at };
        (at.sb, at.ul) = (at.sb + ul, at.ul - ul);
        if at.ul == 0 {
            self.ranges.pop_front();
        }
        taken
    }

    fn has(&mut self, len: u64, now_ms: u64) -> bool {
        self.prune(now_ms);
        self.promised + len <= self.room()
    }

    fn room(&self) -> u64 {
        self.ranges.iter().map(Range::room).sum()
    }
}

struct Range {
    at: StripeAt,
    place: Placement,
    until_ms: u64,
}

impl Range {
    fn room(&self) -> u64 {
        u64::from(self.at.ul) * u64::from(self.place.data) * BLOCK as u64
    }
}

/// What came of [`Lent::cut`].
#[derive(Debug)]
pub(crate) enum Cut {
    /// All of it.
    Stripes(Vec<(Laid, Placement)>),
    /// Not enough is at hand.
    TooLittle,
    /// Ranges were given up because a drive of them is one to avoid, just now or a moment ago.
    Avoided,
}

impl Lent {
    /// Keeps room for `len` bytes, if there is some beyond what was promised before. [`Self::redeem`] ends it.
    pub(crate) fn promise(&self, p: PartitionId, len: u64, now_ms: u64) -> bool {
        let mut kept = self.kept();
        let kept = kept.entry(p).or_default();
        let fits = kept.has(len, now_ms);
        kept.promised += if fits { len } else { 0 };
        fits
    }

    /// True if there is room for `len` bytes beyond what was promised.
    pub(crate) fn has(&self, p: PartitionId, len: u64, now_ms: u64) -> bool {
        self.kept().entry(p).or_default().has(len, now_ms)
    }

    /// What was promised is cut next, or not needed any more.
    pub(crate) fn redeem(&self, p: PartitionId, len: u64) {
        if let Some(kept) = self.kept().get_mut(&p) {
            kept.promised -= len;
        }
    }

    /// True if ranges of `p` were given up a moment ago: others would be on the same drive.
    pub(crate) fn avoids(&self, p: PartitionId, now_ms: u64) -> bool {
        self.kept().get(&p).is_some_and(|kept| now_ms < kept.avoid_ms)
    }

    /// What was promised goes another way and takes its room elsewhere: as much of the ranges is given up.
    pub(crate) fn abandon(&self, p: PartitionId, len: u64, now_ms: u64) {
        self.redeem(p, len);
        self.waste(p, len, now_ms);
    }

    /// Gives up ranges for `len` bytes, as far as there are.
    pub(crate) fn waste(&self, p: PartitionId, len: u64, now_ms: u64) {
        let mut kept = self.kept();
        let kept = kept.entry(p).or_default();
        kept.prune(now_ms);
        let mut left = len;
        while let Some(range) = kept.ranges.front().filter(|_| left > 0) {
            let row = u64::from(range.place.data) * BLOCK as u64;
            let ul = left.div_ceil(row).min(u64::from(range.at.ul)) as u16;
            left = left.saturating_sub(u64::from(ul) * row);
            let wasted = kept.take(ul);
            kept.back.push(wasted);
        }
    }

    /// Stripes for `len` bytes from `off` of a file on, the last of them perhaps padded. They end where chunks of the
    /// file do, as far as that does not make tiny ones. `promised` bytes of room were kept for them until now.
    pub(crate) fn cut(
        &self,
        p: PartitionId,
        (off, len): (u64, u64),
        promised: u64,
        now_ms: u64,
        avoid: &dyn Fn(DriveId) -> bool,
    ) -> Cut {
        let mut kept = self.kept();
        let kept = kept.entry(p).or_default();
        kept.promised -= promised;
        kept.prune(now_ms);
        let before = kept.ranges.len();
        if kept.keep_if(|range| !range.place.drives.iter().any(|drive| avoid(*drive))) < before {
            kept.avoid_ms = now_ms + AVOID_MS;
        }
        // What is promised to others is not for taking, wherever it lies.
        if kept.room() < kept.promised + len {
            return if now_ms < kept.avoid_ms { Cut::Avoided } else { Cut::TooLittle };
        }
        let (mut stripes, mut left) = (Vec::new(), len);
        while left > 0 {
            let Some(range) = kept.ranges.front() else {
                kept.back.extend(stripes.iter().map(|(laid, _): &(Laid, Placement)| laid.at));
                return Cut::TooLittle;
            };
            let to_chunk = CHUNK - (off + len - left) % CHUNK;
            let most = if to_chunk < STRIPE_MIN { STRIPE_BYTES as u64 } else { to_chunk };
            let bytes = left.min(range.room()).min(most);
            let ul = bytes.div_ceil(u64::from(range.place.data) * BLOCK as u64) as u16;
            let (place, rest) = (range.place.clone(), range.at.ul - ul);
            let row = u64::from(place.data) * BLOCK as u64;
            let at = kept.take(ul);
            stripes.push((Laid { at, epoch: place.epoch, len: bytes as u32 }, place));
            left -= bytes;
            if (1..STRIPE_MIN).contains(&(u64::from(rest) * row)) {
                let end = kept.take(rest);
                kept.back.push(end);
            }
        }
        Cut::Stripes(stripes)
    }

    /// How much to ask for when there is not enough for `len` bytes: more each time, if the last time is not long ago.
    pub(crate) fn ask(&self, p: PartitionId, len: u64, now_ms: u64) -> u64 {
        let mut kept = self.kept();
        let (last, until_ms) = &mut kept.entry(p).or_default().asked;
        let more = if now_ms < *until_ms { 2 * *last } else { ASK_MIN };
        *last = more.max(len).min(GRANT_BYTES_MAX);
        *until_ms = now_ms + GRANT_MS / 2;
        *last
    }

    /// Takes what was lent in answer to a question sent at `asked_ms`.
    pub(crate) fn keep(&self, p: PartitionId, lent: Vec<(StripeAt, Placement)>, asked_ms: u64) {
        let until_ms = asked_ms + GRANT_MS / 2;
        let ranges = lent.into_iter().map(|(at, place)| Range { at, place, until_ms });
        self.kept().entry(p).or_default().ranges.extend(ranges);
    }

    /// The partition does not know what it lent any more.
    pub(crate) fn forget(&self, p: PartitionId) {
        if let Some(kept) = self.kept().get_mut(&p) {
            kept.keep_if(|_| false);
        }
    }

    /// No commit will name these stripes.
    pub(crate) fn give_up(&self, p: PartitionId, stripes: impl IntoIterator<Item = StripeAt>) {
        self.kept().entry(p).or_default().back.extend(stripes);
    }

    /// What was given up since this was asked last, for the partition to take back.
    pub(crate) fn back(&self, p: PartitionId) -> Vec<StripeAt> {
        let mut kept = self.kept();
        let Some(Kept { back, .. }) = kept.get_mut(&p) else { return Vec::new() };
        back.drain(..back.len().min(BACK_MAX)).collect()
    }

    fn kept(&self) -> MutexGuard<'_, HashMap<PartitionId, Kept>> {
        self.0.lock().expect("nothing panics while it holds the ranges")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use braid_base::ids::{Epoch, PackId};

    const P: PartitionId = PartitionId(0);

    fn lent(sb: u16, ul: u16) -> (StripeAt, Placement) {
        let drives = (0..6).map(DriveId).collect();
        let place = Placement { data: 4, parity: 2, epoch: Epoch(1), drives };
        (StripeAt { pack: PackId::new(P, 1), sb, ul }, place)
    }

    fn cut(ranges: &Lent, len: u64, now_ms: u64) -> Option<Vec<(u16, u16, u32)>> {
        let Cut::Stripes(cut) = ranges.cut(P, (0, len), 0, now_ms, &|drive| drive == DriveId(9)) else { return None };
        Some(cut.into_iter().map(|(laid, _)| (laid.at.sb, laid.at.ul, laid.len)).collect())
    }

    #[test]
    fn each_block_is_cut_once_from_the_front() {
        let ranges = Lent::default();
        assert_eq!(cut(&ranges, 1, 0), None);
        ranges.keep(P, vec![lent(8, 100), lent(300, 64)], 0);
        assert_eq!(cut(&ranges, 1 << 20, 0), Some(vec![(8, 64, 1 << 20)]));
        // 36 blocks of each shard are left in the first range: 576 KiB.
        assert_eq!(cut(&ranges, 700 << 10, 0), Some(vec![(72, 36, 576 << 10), (300, 8, 124 << 10)]));
        assert_eq!(cut(&ranges, 1 << 20, 0), None);
        assert_eq!(cut(&ranges, 100_001, 0), Some(vec![(308, 7, 100_001)]));
        assert_eq!(cut(&ranges, 1, GRANT_MS / 2), None);
    }

    #[test]
    fn ranges_on_a_drive_to_avoid_are_given_up_and_others_asked_for_a_little_later() {
        let ranges = Lent::default();
        let (at, mut place) = lent(300, 64);
        place.drives[3] = DriveId(7);
        ranges.keep(P, vec![lent(8, 100), (at, place)], 0);
        let avoid = |drive| drive == DriveId(3);
        let Cut::Stripes(cut) = ranges.cut(P, (0, 1 << 20), 0, 5, &avoid) else { panic!("the second range is good") };
        assert_eq!(cut[0].0.at.sb, 300);
        assert!(matches!(ranges.cut(P, (0, 1), 0, 5, &avoid), Cut::Avoided));
        assert!(matches!(ranges.cut(P, (0, 1), 0, 5 + AVOID_MS, &avoid), Cut::TooLittle), "worth asking again");
        ranges.keep(P, vec![lent(108, 100)], 2_000);
        assert!(matches!(ranges.cut(P, (0, 1), 0, 2_000, &avoid), Cut::Avoided), "still on it");
    }

    #[test]
    fn what_is_not_used_is_given_up_once() {
        let ranges = Lent::default();
        ranges.keep(P, vec![lent(0, 66), lent(100, 10)], 0);
        assert!(cut(&ranges, 1 << 20, 0).is_some());
        let back = |ranges: &Lent| ranges.back(P).into_iter().map(|at| (at.sb, at.ul)).collect::<Vec<_>>();
        assert_eq!(back(&ranges), [(64, 2)], "the end of the first one is too short for a stripe");
        ranges.waste(P, 20_000, 0);
        assert!(!ranges.has(P, 1, GRANT_MS / 2));
        ranges.give_up(P, [StripeAt { pack: PackId::new(P, 1), sb: 0, ul: 64 }]);
        assert_eq!(back(&ranges), [(100, 2), (102, 8), (0, 64)]);
        assert_eq!(back(&ranges), []);
    }

    #[test]
    fn stripes_end_with_the_chunks_of_the_file() {
        let ranges = Lent::default();
        ranges.keep(P, vec![lent(0, 500)], 0);
        let Cut::Stripes(cut) = ranges.cut(P, (CHUNK - 100_000, 2 << 20), 0, 0, &|_| false) else {
            panic!("there is room")
        };
        let lens: Vec<u32> = cut.iter().map(|(laid, _)| laid.len).collect();
        assert_eq!(lens, [100_000, 1 << 20, (1 << 20) - 100_000]);
    }

    #[test]
    fn room_is_promised_once() {
        let ranges = Lent::default();
        ranges.keep(P, vec![lent(0, 64)], 0);
        assert!(ranges.promise(P, 1 << 19, 0) && ranges.promise(P, 1 << 19, 0) && !ranges.promise(P, 1, 0));
        ranges.redeem(P, 1 << 19);
        assert!(ranges.promise(P, 1 << 19, 0), "what is not needed any more can be promised again");
        assert!(matches!(ranges.cut(P, (0, 1 << 16), 0, 0, &|_| false), Cut::TooLittle), "all of it is promised");
        ranges.abandon(P, 1 << 19, 0);
        assert!(!ranges.promise(P, 1, 0), "what went another way took its room along");
        ranges.redeem(P, 1 << 19);
        assert!(ranges.promise(P, 1, 0));
        assert!(!ranges.promise(P, 1, GRANT_MS), "what was lent is not ours any more");
    }

    #[test]
    fn who_asks_again_asks_for_more() {
        let ranges = Lent::default();
        let asked: Vec<u64> = (0..6).map(|now| ranges.ask(P, 100, now) >> 20).collect();
        assert_eq!(asked, [1, 2, 4, 8, 16, 16]);
        assert_eq!(ranges.ask(P, 3 << 20, GRANT_MS) >> 20, 3);
    }
}
