//! The named crash points: each gap of the protocols in which a host can lose power.

use std::fmt::Write;

use crate::deeds::Deed;

macro_rules! points {
    ($($(#[$doc:meta])* $name:ident),* $(,)? ; tier: $($(#[$tier_doc:meta])* $tier:ident),* $(,)?) => {
        /// A gap between two steps of a protocol.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum Point {
            $($(#[$doc])* $name,)*
            $($(#[$tier_doc])* $tier,)*
        }

        impl Point {
            /// Those of every run.
            pub const ALL: &'static [Point] = &[$(Point::$name,)*];
            /// Those of runs with an object store.
            pub const OF_TIER: &'static [Point] = &[$(Point::$tier,)*];
        }
    };
}

points! {
    /// A request was evaluated; its entry is in no write yet.
    EntryNotSubmitted,
    /// A group of entries is on its way to the disk.
    LogWriteSubmitted,
    /// The header of a new segment is on its way.
    SegmentOpened,
    /// The group is durable; the partition has not heard of it.
    LogDurableNotApplied,
    /// The entries are in the key-value view; no reply has left.
    AppliedNotReplied,
    /// The reply left; the client may not have it.
    ReplySent,
    /// The client has the answer.
    ReplyReceived,
    /// A message to another partition is about to leave.
    PeerMessageUnsent,
    /// A participant logged its intent and said so.
    PeerPrepared,
    /// The coordinator's decision is logged and about to be told.
    PeerDecisionLogged,
    /// A message of another partition came in and was taken.
    PeerTaken,
    /// A pack is logged, a shard of it not created.
    PackLoggedShardsNotCreated,
    /// A drive created a shard; the partition has not heard of it.
    ShardsCreated,
    /// A bulk move was planned and not started.
    MovePlanned,
    /// Some shards of a stripe are written.
    StripePartlyWritten,
    /// All stripes of a move are durable; the partition has not heard of it.
    StripeWrittenNotCommitted,
    /// The partition took a finished move; its entry is not durable.
    RemapProposed,
    /// The entry that points to the moved bytes is durable and not applied.
    RemapLogged,
    /// A pack is dead in the log, its shards are there.
    PackDeadLogged,
    /// A drive gave a shard's slot back; the partition has not heard of it.
    ShardDropped,
    /// The view is flushed, no segment was removed for it.
    KvFlushedLogNotTrimmed,
    /// A log segment was removed.
    SegmentRemoved,
    /// A starting partition has told the coordinator or its disk of the new term, and not the other.
    ElectionUnfinished,
    /// The log was replayed into the view after a crash; nothing was served.
    RecoveredNotServing,
    /// A drive has data of a shard on its way to the medium.
    DriveWriteSubmitted,
    /// A drive's write is durable and not acknowledged.
    DriveWriteNotAcked;

    tier:
    /// The record of an object is logged; nothing of it was read or sent.
    ObjectLogged,
    /// An object is on its way to its store.
    ObjectSent,
    /// It is whole there; the partition has not heard of it.
    ObjectNotCommitted,
    /// The entry that names it is not durable.
    NamesProposed,
    /// That entry is durable and not applied.
    NamesLogged,
    /// Some chunks name an object that is in others, too.
    PartlyNamed,
    /// The entry is not durable by which bytes leave flash.
    ReleaseProposed,
    /// That entry is durable and not applied.
    ReleaseLogged,
    /// A move that brings bytes back was planned and not started.
    FetchPlanned,
    /// Its stripes are durable; the partition has not heard of it.
    FetchWrittenNotCommitted,
    /// The entry is not durable that points to what came back.
    FetchProposed,
    /// That entry is durable and not applied.
    FetchLogged,
    /// An object made of others was begun; its record is not durable.
    ReclaimBegun,
    /// The entry is not durable that says that an object is dead.
    DeathProposed,
    /// An object is dead in the log; its removal was not asked for.
    DeathLogged,
    /// Its removal is on its way to the store.
    RemovalSent,
    /// It is gone from the store; the partition has not heard of it.
    RemovalNotCommitted,
    /// The entry is not durable that forgets its record.
    RemovalProposed,
    /// That entry is durable and not applied.
    RemovalLogged,
    /// The entry is not durable by which bytes on flash forget an object whose store is to be left.
    LeaveProposed,
    /// That entry is durable and not applied.
    LeaveLogged,
    /// A store that was to be left is empty; the partitions have not heard that it is left.
    StoreEmptied,
    /// The entry is not durable by which bytes on flash forget a damaged object.
    SaveProposed,
    /// A partition was told of damage, which it knows in memory only.
    DamageTold,
}

/// How often each point was passed, how often a host lost power there, and how often each deed was done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Coverage {
    /// Per point, in the order of [`Point::ALL`]: passed, crashed.
    counts: Vec<(u64, u64)>,
    /// Per deed, in the order of [`Deed::ALL`].
    deeds: Vec<u64>,
}

impl Default for Coverage {
    fn default() -> Self {
        Self { counts: vec![(0, 0); Point::ALL.len() + Point::OF_TIER.len()], deeds: vec![0; Deed::ALL.len()] }
    }
}

impl Coverage {
    /// `point` is passed; how often by now.
    pub fn pass(&mut self, point: Point) -> u64 {
        let count = &mut self.counts[point as usize].0;
        *count += 1;
        *count
    }

    /// A host lost power at `point`.
    pub fn crash(&mut self, point: Point) {
        self.counts[point as usize].1 += 1;
    }

    /// `deed` was done.
    pub fn did(&mut self, deed: Deed) {
        self.deeds[deed as usize] += 1;
    }

    /// How often it was.
    pub fn times(&self, deed: Deed) -> u64 {
        self.deeds[deed as usize]
    }

    /// Adds another run.
    pub fn add(&mut self, other: &Self) {
        for (mine, theirs) in self.counts.iter_mut().zip(&other.counts) {
            mine.0 += theirs.0;
            mine.1 += theirs.1;
        }
        for (mine, theirs) in self.deeds.iter_mut().zip(&other.deeds) {
            *mine += theirs;
        }
    }

    /// Those of `points` at which no host ever lost power.
    pub fn missed(&self, points: &[Point]) -> Vec<Point> {
        points.iter().copied().filter(|point| self.counts[*point as usize].1 == 0).collect()
    }

    /// The deeds that were never done, but for those of partitions with several replicas, or with an object store.
    pub fn undone(&self) -> Vec<Deed> {
        let of_some = [Deed::OF_MEMBERS, Deed::OF_LEAVING, Deed::OF_HANGING, Deed::OF_GIVING_UP, Deed::OF_TIER];
        let others = |deed: &Deed| of_some.iter().all(|some| !some.contains(deed));
        self.missing(&Deed::ALL.iter().copied().filter(others).collect::<Vec<_>>())
    }

    /// Those of partitions with several replicas that were never done.
    pub fn undone_by_members(&self) -> Vec<Deed> {
        self.missing(Deed::OF_MEMBERS)
    }

    /// Those of `deeds` that were never done.
    pub fn missing(&self, deeds: &[Deed]) -> Vec<Deed> {
        deeds.iter().copied().filter(|deed| self.times(*deed) == 0).collect()
    }

    /// A table for people.
    pub fn table(&self) -> String {
        let mut out = format!("{:<28} {:>12} {:>8}\n", "crash point", "passed", "crashed");
        for point in Point::ALL.iter().chain(Point::OF_TIER).filter(|point| self.counts[**point as usize].0 > 0) {
            let (passed, crashed) = self.counts[*point as usize];
            // Writing to a string cannot fail.
            let _ = writeln!(out, "{:<28} {passed:>12} {crashed:>8}", format!("{point:?}"));
        }
        for deed in Deed::ALL {
            let _ = writeln!(out, "{:<28} {:>12}", format!("{deed:?}"), self.times(*deed));
        }
        out
    }
}
