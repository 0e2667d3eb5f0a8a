//! What the file system does with its object stores: it has one, moves to another, takes everything home, has none. And
//! what partitions did about it, by what they count.

use std::collections::{BTreeMap, BTreeSet};

use braid_base::ids::{BlobId, FsId, StoreId};
use braid_base::keys;
use braid_base::msg::job::{Job, MoveJob, ObjectKey, Part, Source, UploadJob};
use braid_base::record::{BlobRec, BlobState, Place, Record};
use braid_meta::{TierPolicy, TierSteps};

use super::World;
use super::objects::STORES;
use crate::board::At;
use crate::deeds::Deed;
use crate::fsck::Tables;
use crate::points::Point;
use crate::queue::Event;

/// Hosts hear of a change of plans within this time, microseconds.
const HEARD_US: u64 = 500_000;

/// What the file system does with its stores now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Plans {
    /// It has one.
    attached: bool,
    writable: Option<StoreId>,
    leaving: BTreeSet<StoreId>,
}

impl Default for Plans {
    fn default() -> Self {
        Self { attached: true, writable: Some(STORES[0]), leaving: BTreeSet::new() }
    }
}

/// What bulk work is about.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// Bytes move on flash, or a shard is made anew.
    Flash,
    /// Bytes come back; from objects that somebody met who read.
    Fetch { read: bool },
    /// An object is sent; it is made of others.
    Upload { of_others: bool },
    /// An object is removed.
    Removal,
}

impl Kind {
    /// The point before its start.
    pub(super) fn planned(&self) -> Point {
        match self {
            Self::Flash => Point::MovePlanned,
            Self::Fetch { .. } => Point::FetchPlanned,
            Self::Upload { .. } => Point::ObjectLogged,
            Self::Removal => Point::DeathLogged,
        }
    }

    /// The points after its end: before the partition hears of it, before that is logged, and before it is applied.
    pub(super) fn ended(&self) -> [Point; 3] {
        match self {
            Self::Flash => [Point::StripeWrittenNotCommitted, Point::RemapProposed, Point::RemapLogged],
            Self::Fetch { .. } => [Point::FetchWrittenNotCommitted, Point::FetchProposed, Point::FetchLogged],
            Self::Upload { .. } => [Point::ObjectNotCommitted, Point::NamesProposed, Point::NamesLogged],
            Self::Removal => [Point::RemovalNotCommitted, Point::RemovalProposed, Point::RemovalLogged],
        }
    }
}

fn object_of(part: &Part) -> Option<BlobId> {
    match part.from {
        Source::At(place, _) => place.object().map(|at| at.blob),
        Source::Zero => None,
    }
}

impl World {
    /// What a partition is to do about object stores.
    pub(super) fn policies(&self) -> BTreeMap<FsId, TierPolicy> {
        let (store, plans) = (&self.config.store, &self.plans);
        let policy = TierPolicy {
            writable: plans.writable,
            leaving: plans.leaving.clone(),
            given_up: BTreeSet::new(),
            cue_s: store.cue_s,
            retention_s: store.retention_s,
            object_bytes: store.object_bytes,
            flash_bytes: store.flash_bytes,
            prefetch_bytes: store.prefetch_bytes,
        };
        if self.config.tiered && plans.attached { BTreeMap::from([(crate::FS, policy)]) } else { BTreeMap::new() }
    }

    /// The file system is to do something else with its stores.
    pub(super) fn change_plans(&mut self) {
        if !self.plans.leaving.is_empty() && self.is_left(false) {
            return self.left();
        }
        let (before, other) = (self.plans.clone(), STORES[self.rng.index(STORES.len())]);
        self.plans = match (before.writable, before.leaving.is_empty()) {
            _ if !before.attached => Plans { writable: Some(other), ..Plans::default() },
            // Back where it was; or what is on its way goes on.
            (_, false) if self.rng.chance(3, 4) => return,
            (Some(_), false) => Plans { leaving: BTreeSet::new(), ..before },
            (None, false) => Plans { writable: before.leaving.first().copied(), ..Plans::default() },
            (None, true) => Plans { writable: Some(other), ..Plans::default() },
            (Some(store), true) => {
                let leaving = BTreeSet::from([store]);
                match self.rng.below(5) {
                    0 => Plans { writable: None, ..before },
                    1 | 2 => Plans { writable: None, leaving, ..before },
                    _ => Plans { writable: STORES.into_iter().find(|other| *other != store), leaving, ..before },
                }
            }
        };
        self.tell_plans();
    }

    /// A store that was to be left is empty.
    fn left(&mut self) {
        self.coverage.did(if self.plans.writable.is_some() { Deed::Migrated } else { Deed::Detached });
        let host = self.homes.values().next().copied().unwrap_or(0);
        self.plans.leaving.clear();
        // Who reads objects still, of a store that is only read, has it.
        self.plans.attached = self.plans.writable.is_some() || !self.is_left_of(&STORES, false);
        self.tell_plans();
        self.pass(Point::StoreEmptied, host);
    }

    fn tell_plans(&mut self) {
        self.note(|| format!("{:?}", self.plans));
        for p in self.partitions() {
            for at in self.replicas(p).collect::<Vec<_>>() {
                let (life, at_us) = (self.hosts[at.host as usize].life, self.soon(HEARD_US));
                self.queue.put(at_us, Event::Plans { at, life });
            }
        }
    }

    /// A replica hears what it is to do.
    pub(super) fn hear_plans(&mut self, at: At, life: u64) {
        let policies = self.policies();
        if let Some(node) = self.seat(at).filter(|node| node.life == life) {
            node.seat.set_tiers(policies);
        }
    }

    /// In peace there is a store; what is to be left is left, if there is room for it.
    pub(super) fn last_plans(&mut self) {
        if !self.config.tiered {
            return;
        }
        let home = self.plans.writable.is_none();
        if !self.plans.attached || (home && (self.plans.leaving.is_empty() || self.config.is_scarce())) {
            let writable = self.plans.leaving.first().copied().or(Some(STORES[0]));
            self.plans = Plans { writable, ..Plans::default() };
            self.tell_plans();
        }
    }

    /// True if nothing is left in a store that was to be left. `for_good`: what is to be removed, is not counted.
    pub fn is_left(&self, for_good: bool) -> bool {
        let leaving: Vec<StoreId> = self.plans.leaving.iter().copied().collect();
        self.is_left_of(&leaving, for_good)
    }

    fn is_left_of(&self, stores: &[StoreId], for_good: bool) -> bool {
        let counts = |rec: &BlobRec| stores.contains(&rec.store) && (!for_good || rec.state == BlobState::Present);
        self.partitions()
            .all(|p| Tables::load(self.kv_of(p), p, crate::FS).is_ok_and(|tables| !tables.blobs.values().any(counts)))
    }

    /// True if no bytes count on a damaged object that are on flash, too.
    pub fn is_saved(&self) -> bool {
        let counts = |place: Place, len: u32| match place {
            Place::Flash { copy: Some(at), .. } => !self.board.lost_of(at, len).is_empty(),
            _ => false,
        };
        self.partitions().all(|p| {
            let tables = Tables::load(self.kv_of(p), p, crate::FS);
            tables.is_ok_and(|tables| !tables.extents().any(|(_, _, extent)| counts(extent.place, extent.len)))
        })
    }

    /// Every object that lies in a store is known to its partition: it will be removed some day.
    pub fn unknown_objects(&self) -> Vec<String> {
        let known = |key: &ObjectKey| {
            let p = key.blob.partition();
            let found = self.kv_of(p).get(&keys::blob(p, key.blob)).ok().flatten();
            let rec = found.and_then(|bytes| BlobRec::decode(&bytes).ok());
            rec.is_some_and(|rec| rec.term == key.term && rec.store == key.store)
        };
        self.bucket.keys().iter().filter(|key| !known(key)).map(|key| format!("{key:?}")).collect()
    }

    /// Data bytes of an object that is in its store, or was until that lost it for good.
    pub fn object_size(&self, key: ObjectKey) -> Option<u64> {
        let lost =
            || self.board.all_lost().into_iter().filter(|(blob, _)| *blob == key.blob).map(|(_, (_, end))| end).max();
        self.bucket.size(key).or_else(lost)
    }

    /// What a job is about.
    pub(super) fn kind(&self, job: &Job) -> Kind {
        match job {
            Job::Move(MoveJob { stripes, .. }) => {
                let from_object = |part: &&Part| matches!(part.from, Source::At(Place::Object(_), _));
                let mut parts = stripes.iter().flat_map(|plan| &plan.parts).filter(from_object).peekable();
                if parts.peek().is_none() {
                    return Kind::Flash;
                }
                let read = parts.filter_map(object_of).any(|blob| self.shown.contains(&blob));
                Kind::Fetch { read }
            }
            Job::Rebuild(_) => Kind::Flash,
            Job::Upload(UploadJob { parts, .. }) => {
                let mut made = parts.iter().filter(|part| part.from != Source::Zero).map(object_of).peekable();
                Kind::Upload { of_others: made.peek().is_some() && made.all(|blob| blob.is_some()) }
            }
            Job::Remove(_) => Kind::Removal,
        }
    }

    /// Bytes that are in no object may not go where there is no parity.
    pub(super) fn watch_bare(&self, at: At, job: &MoveJob) {
        let bare = job.stripes.iter().filter(|plan| plan.place.parity == 0).flat_map(|plan| &plan.parts);
        let alone = |part: &&Part| part.from != Source::Zero && object_of(part).is_none();
        if let Some(part) = bare.into_iter().find(alone) {
            let what = format!("{at}: move {} puts {part:?}, which is in no object, where there is no parity", job.id);
            self.board.violation(what);
        }
    }

    /// A job ended well.
    pub(super) fn watch_end(&mut self, kind: &Kind) {
        let deed = match kind {
            Kind::Fetch { read: true } => Deed::RecalledByRead,
            Kind::Upload { of_others: true } if self.plans.leaving.is_empty() => Deed::Reclaimed,
            Kind::Removal => Deed::ObjectRemoved,
            _ => return,
        };
        self.coverage.did(deed);
    }

    /// Takes down what the tier of a partition has done since it was looked at last: the points that are passed now, and
    /// those when that is durable.
    pub(super) fn watch_tier(&mut self, at: At) -> Vec<Point> {
        let Some(node) = self.seat(at) else { return Vec::new() };
        let Some(now) = node.seat.partition().map(|partition| partition.state_mut().tier_steps()) else {
            node.steps = TierSteps::default();
            return Vec::new();
        };
        let before = std::mem::replace(&mut node.steps, now);
        let mut points = Vec::new();
        let mut deeds = Vec::new();
        let mut more = |then: u64, now: u64, point: Option<Point>, logged: Option<Point>, deed: Option<Deed>| {
            if now > then {
                points.extend(point);
                node.marks.extend(logged);
                deeds.extend(deed);
            }
        };
        more(before.named, now.named, None, None, Some(Deed::Demoted));
        let (point, logged) = (Some(Point::ReleaseProposed), Some(Point::ReleaseLogged));
        more(before.released, now.released, point, logged, Some(Deed::Released));
        let (point, logged) = (Some(Point::LeaveProposed), Some(Point::LeaveLogged));
        more(before.left, now.left, point, logged, Some(Deed::CopyForgotten));
        more(before.saved, now.saved, Some(Point::SaveProposed), None, Some(Deed::CopySaved));
        more(before.reclaims, now.reclaims, Some(Point::ReclaimBegun), None, None);
        more(before.buried, now.buried, Some(Point::DeathProposed), None, None);
        more(before.gave_up, now.gave_up, None, None, Some(Deed::GaveUpDrive));
        more(0, u64::from(now.partly), Some(Point::PartlyNamed), None, None);
        deeds.into_iter().for_each(|deed| self.coverage.did(deed));
        points
    }
}
