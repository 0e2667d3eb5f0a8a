//! The drives of a partition: which to choose for a new pack, and which questions to them are open.

use std::collections::{BTreeMap, BTreeSet};

use braid_base::ids::{DriveId, PackId};
use braid_base::msg::drive::{DriveStat, ShardId};
use braid_base::record::PackClass;

use crate::config::{Config, DriveSet, Leave};

/// A drive that failed a request is not chosen for so long, milliseconds.
const SUSPECT_MS: u64 = 10_000;
/// Space is asked for this often, milliseconds.
pub(crate) const STAT_MS: u64 = 5_000;
/// The same while slots are scarce: other partitions take and free them, too.
pub(crate) const STAT_SCARCE_MS: u64 = 500;
/// Drives are asked for shards that no pack has this often, milliseconds.
pub(crate) const REPORT_MS: u64 = 600_000;
/// Share of a drive's slots that only garbage collection takes, per cent.
const GC_SLOTS_PERCENT: u32 = 2;
/// Questions that wait for an answer, at most; the oldest are given up.
const CALLS_MAX: usize = 4_096;
/// 2^64 divided by the golden ratio, odd: multiples of it fall evenly, whatever step the numbers take.
pub(crate) const ODD_GOLDEN: u64 = 0x9E37_79B9_7F4A_7C15;

/// A question to a drive.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Call {
    Create {
        pack: PackId,
        shard: u8,
        drive: DriveId,
    },
    Drop {
        pack: PackId,
        shard: u8,
    },
    Stat {
        drive: DriveId,
    },
    Report {
        drive: DriveId,
    },
    /// Of a shard that no pack has there.
    DropOrphan {
        id: ShardId,
        drive: DriveId,
    },
}

/// What is known of the drives.
pub(crate) struct Drives {
    set: DriveSet,
    /// So few failure domains that not even the narrowest pack has one for each shard: then it has as few of them in one
    /// as can be.
    forced: bool,
    partitions: u32,
    suspect_until: BTreeMap<DriveId, u64>,
    stats: BTreeMap<DriveId, DriveStat>,
    /// They had no slot left, whatever was counted, and did not say since how much is free.
    full: BTreeSet<DriveId>,
    calls: BTreeMap<u64, Call>,
    next_call: u64,
    /// When to ask for space again.
    pub stat_due_ms: u64,
    /// When to ask for the shards that are there again.
    pub report_due_ms: u64,
}

impl Drives {
    /// The drives of the configuration.
    pub fn new(config: &Config) -> Self {
        Self {
            set: config.drives.clone(),
            forced: is_forced(&config.drives, config.parity),
            partitions: u32::from(config.partitions),
            suspect_until: BTreeMap::new(),
            stats: BTreeMap::new(),
            full: BTreeSet::new(),
            calls: BTreeMap::new(),
            // Answers to an earlier primary of this partition must not be taken for answers to this one.
            next_call: config.term.0 << 32,
            stat_due_ms: 0,
            report_due_ms: 0,
        }
    }

    /// Other drives may be used from now on.
    pub fn set(&mut self, set: DriveSet, parity: u8) {
        self.stats.retain(|drive, _| set.usable.contains(drive));
        self.suspect_until.retain(|drive, _| set.usable.contains(drive));
        self.full.retain(|drive| set.usable.contains(drive));
        self.forced = is_forced(&set, parity);
        self.set = set;
    }

    /// True if its shards are to be made anew elsewhere.
    pub fn leaves(&self, drive: DriveId) -> bool {
        self.set.leaving.contains_key(&drive)
    }

    /// True if it does not answer now.
    pub fn is_absent(&self, drive: DriveId) -> bool {
        self.set.absent.contains(&drive)
    }

    /// True if it does not answer, and never comes back, as somebody said.
    pub fn is_gone(&self, drive: DriveId) -> bool {
        self.is_absent(drive) && self.set.leaving.get(&drive) == Some(&Leave::Abandoned)
    }

    /// True if it is of the cluster, answers, and does not leave: what was made there stays.
    pub fn keeps(&self, drive: DriveId) -> bool {
        let known = self.set.domains.is_empty() || self.set.domains.contains_key(&drive);
        known && !self.leaves(drive) && !self.is_absent(drive)
    }

    /// All of them.
    pub fn leaving(&self) -> impl Iterator<Item = DriveId> {
        self.set.leaving.keys().copied()
    }

    /// True if it is taken out of the cluster for good: it must be empty in the end.
    pub fn is_emptied(&self, drive: DriveId) -> bool {
        matches!(self.set.leaving.get(&drive), Some(Leave::Draining | Leave::Abandoned))
    }

    /// How many shards of one pack the drives that are not emptied can take, so that the loss of what fails together can be
    /// made up for: those that do not answer now, or have failed, may be back.
    pub fn widest(&self, parity: u8) -> usize {
        let most = if self.forced { usize::MAX } else { usize::from(parity).max(1) };
        let named = self.set.domains.keys();
        let all: BTreeSet<DriveId> =
            named.chain(&self.set.usable).copied().filter(|drive| !self.is_emptied(*drive)).collect();
        let mut of: BTreeMap<u64, usize> = BTreeMap::new();
        all.into_iter().for_each(|drive| *of.entry(self.domain(drive)).or_default() += 1);
        of.into_values().map(|count| count.min(most)).sum()
    }

    /// True if none does.
    pub fn all_stay(&self) -> bool {
        self.set.leaving.is_empty()
    }

    /// True if packs have more shards in one failure domain than one.
    pub fn is_forced(&self) -> bool {
        self.forced
    }

    /// What fails together with it.
    fn domain(&self, drive: DriveId) -> u64 {
        self.set.domain(drive)
    }

    /// How many shards of one pack these drives may take.
    fn spread(&self, drives: impl Iterator<Item = DriveId>) -> usize {
        if self.forced { drives.count() } else { drives.map(|drive| self.domain(drive)).collect::<BTreeSet<_>>().len() }
    }

    /// True if new packs may lie on it.
    pub fn is_usable(&self, drive: DriveId) -> bool {
        self.set.usable.contains(&drive)
    }

    /// All that may be used.
    pub fn usable(&self) -> &[DriveId] {
        &self.set.usable
    }

    /// It failed a request: others are chosen for a while.
    pub fn suspect(&mut self, drive: DriveId, now_ms: u64) {
        self.suspect_until.insert(drive, now_ms + SUSPECT_MS);
    }

    /// It said how much is free.
    pub fn learned(&mut self, drive: DriveId, stat: DriveStat) {
        self.full.remove(&drive);
        self.stats.insert(drive, stat);
    }

    /// It had no slot left: others took what seemed to be free. It is not to be suspected, and soon asked again.
    pub fn was_full(&mut self, drive: DriveId, now_ms: u64) {
        self.full.insert(drive);
        self.stat_due_ms = self.stat_due_ms.min(now_ms + STAT_SCARCE_MS);
    }

    /// True if every drive said how much is free.
    pub fn are_known(&self) -> bool {
        self.set.usable.iter().all(|drive| self.stats.contains_key(drive))
    }

    /// A slot of it was taken or given back, as far as this partition did it.
    pub fn took(&mut self, drive: DriveId, slots: i32) {
        if let Some(stat) = self.stats.get_mut(&drive) {
            stat.free = stat.free.saturating_add_signed(-slots);
        }
    }

    /// Free slots per cent of all, if the drives said so.
    pub fn free_percent(&self) -> Option<u64> {
        let slots: u64 = self.stats.values().map(|stat| u64::from(stat.slots)).sum();
        let free: u64 = self.stats.values().map(|stat| u64::from(stat.free)).sum();
        (slots > 0).then(|| free * 100 / slots)
    }

    /// How many packs of so many shards the free slots are good for, if the drives said how many there are.
    pub fn free_packs(&self, shards: u8) -> usize {
        let free: usize = self.stats.values().map(|stat| stat.free as usize).sum();
        free / usize::from(shards).max(1)
    }

    /// Free slots of `drives`, as far as they said how many there are.
    pub fn free_on(&self, drives: &[DriveId]) -> u64 {
        drives.iter().filter_map(|drive| self.stats.get(drive)).map(|stat| u64::from(stat.free)).sum()
    }

    /// True if enough drives have slots for the narrowest pack of `class`, whether they answer at the moment or not.
    pub fn have_room(&self, class: PackClass, parity: u8) -> bool {
        let roomy = self.set.usable.iter().copied().filter(|drive| !self.is_full(*drive, class));
        self.spread(roomy) > usize::from(parity)
    }

    /// True if garbage collection of every partition can have another pack, and one after that.
    pub fn can_spare(&self, parity: u8) -> bool {
        let enough = |drive: &DriveId| self.stats.get(drive).is_none_or(|stat| stat.free > self.partitions);
        let roomy = self.set.usable.iter().copied().filter(|drive| !self.full.contains(drive) && enough(drive));
        self.spread(roomy) > usize::from(parity)
    }

    /// True if it has no slots left but those that are kept from `class`.
    fn is_full(&self, drive: DriveId, class: PackClass) -> bool {
        let kept = |slots: u32| match class {
            PackClass::Gc => 0,
            // Each partition may have a pack of it under way; of very small drives no more than a third.
            _ => (slots * GC_SLOTS_PERCENT / 100).max((self.partitions + 1).min(slots / 3)).max(1),
        };
        self.full.contains(&drive) || self.stats.get(&drive).is_some_and(|stat| stat.free <= kept(stat.slots))
    }

    /// Drives of distinct failure domains for pack number `seq` of at most `data` + `parity` shards and how many of them
    /// hold data; narrower if there are fewer; `None` if there are not even `1 + parity`.
    ///
    /// Emptier drives first (in steps of an eighth), then in turns, so that packs spread evenly. Which of them hold
    /// data and which parity is drawn from `seq`: with just as many drives as shards, the same two would else hold
    /// all parity and never be read.
    ///
    /// Only garbage collection may take the last slots of a drive: without them it could not free any.
    pub fn choose(
        &self,
        (seq, class): (u64, PackClass),
        data: u8,
        parity: u8,
        now_ms: u64,
    ) -> Option<(u8, Vec<DriveId>)> {
        let mut drives = self.able(class, now_ms);
        let count = drives.len();
        let narrow = self.spread(drives.iter().copied()).checked_sub(usize::from(parity)).filter(|data| *data > 0)?;
        let data = usize::from(data.max(1)).min(narrow);
        let turn = (seq.wrapping_mul((data + usize::from(parity)) as u64) % count as u64) as usize;
        drives.rotate_left(turn);
        drives.sort_by_key(|drive| self.eighths(*drive));
        let mut drives = self.apart(drives, data + usize::from(parity));
        let width = drives.len() as u64;
        drives.rotate_left(((seq.wrapping_mul(ODD_GOLDEN) >> 32) % width) as usize);
        Some((data as u8, drives))
    }

    /// A drive for pack number `seq` of one shard: if it can be, none that is in `taken`, and one of the emptier ones.
    pub fn choose_one(
        &self,
        (seq, class): (u64, PackClass),
        taken: &BTreeSet<DriveId>,
        now_ms: u64,
    ) -> Option<DriveId> {
        let mut drives = self.able(class, now_ms);
        let turn = seq.checked_rem(drives.len() as u64)? as usize;
        drives.rotate_left(turn);
        drives.into_iter().min_by_key(|drive| (taken.contains(drive), self.eighths(*drive)))
    }

    /// Drives that have room for a pack of `class`, in their order.
    fn able(&self, class: PackClass, now_ms: u64) -> Vec<DriveId> {
        // Before a drive said how much is free, its last slots might go to others than garbage collection: after each of
        // many restarts a few, until it has none.
        let known = |drive: &DriveId| class == PackClass::Gc || self.stats.contains_key(drive);
        let able = |drive: &DriveId| {
            known(drive)
                && !self.is_full(*drive, class)
                && self.suspect_until.get(drive).is_none_or(|until| *until <= now_ms)
        };
        let mut drives: Vec<DriveId> = self.set.usable.iter().copied().filter(able).collect();
        drives.sort_unstable();
        drives
    }

    /// How full a drive is, in eighths.
    fn eighths(&self, drive: DriveId) -> u64 {
        match self.stats.get(&drive) {
            Some(stat) if stat.slots > 0 => 8 - u64::from(stat.free.min(stat.slots)) * 8 / u64::from(stat.slots),
            _ => 0,
        }
    }

    /// The first `width` of `drives` of which each is in another domain; if placement is forced, as few in one as can be.
    fn apart(&self, mut drives: Vec<DriveId>, width: usize) -> Vec<DriveId> {
        let (mut taken, mut of): (Vec<DriveId>, BTreeMap<u64, usize>) = Default::default();
        for most in 1.. {
            drives.retain(|drive| {
                let held = of.entry(self.domain(*drive)).or_default();
                let takes = taken.len() < width && *held < most;
                if takes {
                    *held += 1;
                    taken.push(*drive);
                }
                !takes
            });
            if !self.forced || taken.len() >= width || drives.is_empty() {
                break;
            }
        }
        taken
    }

    /// A drive for one more shard of a pack that has its others on `others`: of a domain that it shares with none of
    /// them. The slots kept for garbage collection are for those that are `urgent`: with none it could free nothing, and
    /// nothing more could be made anew either. If there is none for now, it is waited for, unless it is `urgent`; if there is none at all, one of those
    /// is taken whose domain has so few of them that its loss could be made up for.
    pub fn replacement(
        &self,
        others: &[DriveId],
        (parity, urgent): (u8, bool),
        now_ms: u64,
        refused: impl Fn(DriveId) -> bool,
    ) -> Option<DriveId> {
        let has_room = |drive: &DriveId| {
            !others.contains(drive)
                && !self.leaves(*drive)
                && !refused(*drive)
                && !self.full.contains(drive)
                && self.stats.get(drive).is_none_or(|stat| stat.free > 0)
                && (urgent || !self.is_full(*drive, PackClass::User))
        };
        let able = |drive: &DriveId| {
            has_room(drive)
                && self.stats.contains_key(drive)
                && self.suspect_until.get(drive).is_none_or(|until| *until <= now_ms)
                && (self.forced || self.shared(*drive, others) < usize::from(parity).max(1))
        };
        let used =
            |drive: DriveId| self.stats.get(&drive).map_or(0, |stat| u64::from(stat.slots - stat.free.min(stat.slots)));
        let key = |drive: &DriveId| (self.shared(*drive, others), used(*drive), *drive);
        let best = self.set.usable.iter().copied().filter(able).min_by_key(key)?;
        let apart = |drive: &DriveId| has_room(drive) && self.shared(*drive, others) == 0;
        let waits = !urgent && self.shared(best, others) > 0 && self.set.domains.keys().any(apart);
        (!waits).then_some(best)
    }

    /// How many of `others` fail together with `drive`.
    fn shared(&self, drive: DriveId, others: &[DriveId]) -> usize {
        others.iter().filter(|other| self.domain(**other) == self.domain(drive)).count()
    }

    /// The shard of a pack on `drives` that lies in one failure domain with an earlier one, if any.
    pub fn crowded(&self, drives: &[DriveId]) -> Option<usize> {
        (1..drives.len()).rev().find(|at| self.shared(drives[*at], &drives[..*at]) > 0)
    }

    /// A drive for shard `at` of a pack on `drives`, in a domain where no other one lies.
    pub fn apart_from(
        &self,
        drives: &[DriveId],
        at: usize,
        now_ms: u64,
        refused: impl Fn(DriveId) -> bool,
    ) -> Option<DriveId> {
        let others: Vec<DriveId> = drives.iter().enumerate().filter(|(i, _)| *i != at).map(|(_, d)| *d).collect();
        let found =
            self.replacement(&others, (u8::MAX, true), now_ms, |drive| drive == drives[at] || refused(drive))?;
        (self.shared(found, &others) == 0).then_some(found)
    }

    /// What the drives that may be used said of their space.
    pub fn fills(&self) -> impl Iterator<Item = (DriveId, DriveStat)> {
        let stat = |drive: &DriveId| self.stats.get(drive).map(|stat| (*drive, *stat));
        self.set.usable.iter().filter_map(stat).filter(|(_, stat)| stat.slots > 0)
    }

    /// True if shard `at` of a pack on `drives` may go to `to`: with no more of the others in its failure domain than
    /// where it is, and not into the slots that are kept for garbage collection.
    pub fn may_take(&self, to: DriveId, drives: &[DriveId], at: usize, now_ms: u64) -> bool {
        let others = || drives.iter().enumerate().filter(|(i, _)| *i != at).map(|(_, drive)| *drive);
        let near = |drive| others().filter(|other| self.domain(*other) == self.domain(drive)).count();
        self.is_usable(to)
            && !self.leaves(to)
            && !drives.contains(&to)
            && !self.is_full(to, PackClass::User)
            && self.suspect_until.get(&to).is_none_or(|until| *until <= now_ms)
            && near(to) <= near(drives[at])
    }

    /// A number for a question.
    pub fn ask(&mut self, call: Call) -> u64 {
        self.next_call += 1;
        self.calls.insert(self.next_call, call);
        if self.calls.len() > CALLS_MAX {
            self.calls.pop_first();
        }
        self.next_call
    }

    /// The question that an answer belongs to; `None` if it is none of ours or answered already.
    pub fn answered(&mut self, id: u64) -> Option<Call> {
        self.calls.remove(&id)
    }
}

/// True if the domains that are known do not suffice for one data shard and the parity.
fn is_forced(set: &DriveSet, parity: u8) -> bool {
    let domains: BTreeSet<_> = set.domains.values().collect();
    !domains.is_empty() && domains.len() <= usize::from(parity)
}

#[cfg(test)]
mod tests {
    use super::*;
    use braid_base::ids::{DomainId, PartitionId, Term};

    const USER: PackClass = PackClass::User;

    fn drives(count: u32) -> Drives {
        let mut drives = Drives::new(&Config {
            partition: PartitionId(0),
            partitions: 1,
            term: Term(1),
            host: braid_base::ids::HostId(1),
            data: 4,
            parity: 2,
            shard_bytes: 1 << 20,
            drives: (0..count).map(DriveId).collect(),
            capacity_bytes: 1 << 30,
        });
        let stat = DriveStat { slots: 64, free: 64, ..DriveStat::default() };
        (0..count).for_each(|drive| drives.learned(DriveId(drive), stat));
        drives
    }

    #[test]
    fn packs_narrow_with_fewer_drives_and_spread_over_more() {
        assert_eq!(drives(2).choose((1, USER), 4, 2, 0), None);
        assert_eq!(drives(3).choose((1, USER), 4, 2, 0).map(|(data, on)| (data, on.len())), Some((1, 3)));
        assert_eq!(drives(5).choose((1, USER), 4, 2, 0).map(|(data, on)| (data, on.len())), Some((3, 5)));
        let ten = drives(10);
        let mut times = BTreeMap::new();
        for seq in 0..10 {
            let (data, mut on) = ten.choose((seq, USER), 4, 2, 0).expect("ten drives are enough");
            on.sort_unstable();
            on.dedup();
            assert_eq!((data, on.len()), (4, 6));
            on.into_iter().for_each(|drive| *times.entry(drive).or_insert(0) += 1);
        }
        assert!(times.values().all(|count| *count == 6), "{times:?}");
    }

    #[test]
    fn each_drive_holds_parity_in_its_turn() {
        // The numbers of one class are every third: that must not keep the roles apart.
        for step in 1..5 {
            let mut times = BTreeMap::new();
            for seq in 0..600 {
                let (data, on) = drives(6).choose((seq * step, USER), 4, 2, 0).expect("six drives are enough");
                on[usize::from(data)..].iter().for_each(|drive| *times.entry(*drive).or_insert(0) += 1);
            }
            assert!(times.len() == 6 && times.values().all(|count| (150..250).contains(count)), "{step}: {times:?}");
        }
    }

    #[test]
    fn a_suspect_or_full_drive_is_left_out() {
        let mut seven = drives(7);
        seven.suspect(DriveId(3), 0);
        seven.learned(DriveId(4), DriveStat { slots: 8, ..DriveStat::default() });
        let (data, on) = seven.choose((5, USER), 4, 2, 1).expect("five are left");
        assert_eq!(data, 3);
        assert!(!on.contains(&DriveId(3)) && !on.contains(&DriveId(4)));
        assert_eq!(seven.choose((5, USER), 4, 2, SUSPECT_MS).map(|(data, _)| data), Some(4));
    }

    #[test]
    fn only_garbage_collection_takes_slots_of_a_drive_that_did_not_say_how_many_are_free() {
        let mut three = drives(3);
        three.stats.remove(&DriveId(1));
        assert!(!three.are_known());
        assert_eq!(three.choose((1, USER), 4, 2, 0), None);
        assert_eq!(three.choose((1, PackClass::Gc), 4, 2, 0).map(|(data, _)| data), Some(1));
    }

    #[test]
    fn a_drive_that_was_full_counts_as_full_until_it_says_what_is_free() {
        let (mut three, stat) = (drives(3), DriveStat { slots: 64, free: 60, ..DriveStat::default() });
        three.learned(DriveId(1), stat);
        three.was_full(DriveId(1), 0);
        // The pack that it had no slot for is dropped: that frees none.
        three.took(DriveId(1), -1);
        assert_eq!(three.choose((1, USER), 4, 2, 0), None);
        three.learned(DriveId(1), stat);
        assert_eq!(three.choose((1, USER), 4, 2, 0).map(|(data, _)| data), Some(1));
    }

    /// Drives 0.., in turns on so many hosts.
    fn hosts(drives: u32, hosts: u16) -> DriveSet {
        let domains = (0..drives).map(|drive| (DriveId(drive), DomainId(drive as u16 % hosts))).collect();
        DriveSet { domains, ..(0..drives).map(DriveId).collect() }
    }

    fn on_hosts(count: u32, of: u16) -> Drives {
        let mut found = drives(count);
        found.set(hosts(count, of), 2);
        found
    }

    fn per_host(on: &[DriveId], hosts: u32) -> Vec<usize> {
        let count = |host| on.iter().filter(|drive| drive.0 % hosts == host).count();
        (0..hosts).map(count).collect()
    }

    #[test]
    fn a_pack_has_one_shard_on_each_host() {
        let mut packs = BTreeMap::new();
        for seq in 0..60 {
            let (data, on) = on_hosts(18, 6).choose((seq, USER), 4, 2, 0).expect("six hosts are enough");
            assert_eq!((data, per_host(&on, 6)), (4, vec![1; 6]));
            on.into_iter().for_each(|drive| *packs.entry(drive).or_insert(0) += 1);
        }
        assert!(packs.len() == 18 && packs.values().all(|count| (10..=30).contains(count)), "{packs:?}");
        let mut five = hosts(18, 6);
        five.usable.retain(|drive| drive.0 % 6 != 2);
        let mut short = drives(18);
        short.set(five, 2);
        let (data, on) = short.choose((7, USER), 4, 2, 0).expect("narrower");
        assert_eq!((data, per_host(&on, 6)), (3, vec![1, 1, 0, 1, 1, 1]), "a host is away: narrower, not closer");
        assert!(!short.is_forced());
        let two = |drive: &DriveId| drive.0 % 6 < 2;
        short.set(DriveSet { usable: (0..18).map(DriveId).filter(two).collect(), ..hosts(18, 6) }, 2);
        assert_eq!(short.choose((7, USER), 4, 2, 0), None, "there are six hosts, so it waits for them");
        assert!(!short.have_room(USER, 2));
    }

    #[test]
    fn too_few_hosts_share_the_shards_evenly() {
        let two = on_hosts(6, 2);
        let (data, on) = two.choose((3, USER), 4, 2, 0).expect("six drives");
        assert_eq!((data, per_host(&on, 2)), (4, vec![3, 3]));
        assert!(two.is_forced() && two.have_room(USER, 2));
    }

    #[test]
    fn a_shard_goes_where_none_of_its_pack_is_or_fewest() {
        let mut set = hosts(14, 7);
        set.leaving = [(DriveId(0), Leave::Failed)].into();
        set.usable.retain(|drive| *drive != DriveId(0));
        let mut found = drives(14);
        found.set(set.clone(), 2);
        let others: Vec<DriveId> = (1..6).map(DriveId).collect();
        let never = |_| false;
        let two = (2, false);
        assert_eq!(found.replacement(&others, two, 0, never), Some(DriveId(6)));
        assert_eq!(
            found.replacement(&others, two, 0, |drive| drive == DriveId(6)),
            Some(DriveId(7)),
            "same host as d0"
        );
        set.usable = vec![DriveId(8), DriveId(9)];
        found.set(set.clone(), 2);
        for drive in [8, 9] {
            found.learned(DriveId(drive), DriveStat { slots: 64, free: 64, ..DriveStat::default() });
        }
        assert_eq!(found.replacement(&others, two, 0, never), None, "d6 and d13 are only away for now");
        assert_eq!(found.replacement(&others, (2, true), 0, never), Some(DriveId(8)), "two of the pack on one host");
        assert_eq!(found.replacement(&others, (1, true), 0, never), None, "more than may be lost on one host");
        let gone = |drive: DriveId| drive == DriveId(6) || drive == DriveId(13) || drive == DriveId(7);
        assert_eq!(found.replacement(&others, two, 0, gone), Some(DriveId(8)), "there is nothing to wait for");
        set.usable = others.clone();
        found.set(set.clone(), 2);
        assert_eq!(found.replacement(&others, (2, true), 0, never), None);
        // Two on one host: the later one goes where none is.
        found.learned(DriveId(3), DriveStat { slots: 64, free: 64, ..DriveStat::default() });
        let close = [1, 2, 8, 4].map(DriveId);
        assert_eq!((found.crowded(&close), found.crowded(&others)), (Some(2), None));
        assert_eq!(found.apart_from(&close, 2, 0, never), Some(DriveId(3)));
        set.usable = vec![DriveId(9), DriveId(11)];
        found.set(set, 2);
        assert_eq!(found.apart_from(&close, 2, 0, never), None, "others on hosts that have one");
    }
}
