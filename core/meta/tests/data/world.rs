//! A partition with everything around it: log, view, drives, mover, clients, time. All of it may fail.

mod clients;
mod failing;
mod objects;

use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use std::sync::Arc;

use braid_base::attr::Time;
use braid_base::ids::{ClientId, DomainId, DriveId, FsId, HostId, Index, Ino, OpId, PackId, PartitionId, Term, Vp};
use braid_base::keys::Table;
use braid_base::limits::{BLOCK, RECORD_META_MAX};
use braid_base::msg::drive::{DriveOp, DriveReply, DriveResult, DriveStat, ShardId};
use braid_base::msg::fs::{FsResult, Laid, Op};
use braid_base::msg::job::{Job, MoveJob, Part, RebuildJob, ScrubJob, Source};
use braid_base::record::{BaseRec, PackClass, PackRec, Place, Placement, PunchRec, Record, SliceRec, StripeAt};
use braid_base::{Error, ErrorKind};
use braid_meta::{Config, Effect, Entry, Event, Mutation, Notice, Now, Partition, StageLimits, Token};
use braid_replica::{Change, Kv};
use clients::Asked;
use failing::Failing;
use objects::Objects;

use crate::model::{Act, Model};

pub const P: PartitionId = PartitionId(0);
pub const FS: FsId = FsId(1);
const CLIENT: ClientId = ClientId(7);
const SHARD_BYTES: u64 = 64 << 10;
pub const DRIVES: u32 = 4;

/// What kind of run is wanted.
#[derive(Clone, Copy, Debug)]
pub struct Wish {
    pub steps: usize,
    /// Slots of each drive.
    pub slots: u32,
    pub cap_bytes: u64,
    pub chaos: bool,
    pub broken: Option<Mutation>,
    /// The file system has an object store.
    pub tiered: bool,
}

impl Default for Wish {
    fn default() -> Self {
        Self { steps: 120, slots: 60, cap_bytes: 8 << 20, chaos: true, broken: None, tiered: false }
    }
}

/// A small generator of chance (SplitMix64).
pub struct Chance(pub u64);

impl Chance {
    pub fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (z ^ (z >> 31)) % bound
    }

    pub fn percent(&mut self, percent: u64) -> bool {
        self.below(100) < percent
    }
}

pub struct World {
    pub kv: Arc<Failing>,
    pub part: Partition,
    /// Payloads by position, as far as the log was not trimmed.
    pub log: BTreeMap<Index, Vec<u8>>,
    /// Stripes by pack and start block: blocks per shard and bytes.
    pub flash: HashMap<(PackId, u16), (u16, Vec<u8>)>,
    pub drives: BTreeMap<DriveId, BTreeSet<ShardId>>,
    pub wish: Wish,
    pub chance: Chance,
    pub now_ms: u64,
    /// How far the clock on the wall is ahead of that, seconds.
    pub wall_ahead_s: i64,
    term: u64,
    pub pending: VecDeque<Entry>,
    pub committed: Index,
    pub model: Model,
    /// The model before each pending entry.
    before: VecDeque<Model>,
    pub opens: BTreeMap<Ino, u32>,
    acts: HashMap<OpId, Act>,
    asked: Asked,
    landed: HashMap<OpId, u64>,
    pub replies: HashMap<Token, FsResult>,
    calls: Vec<(u64, DriveId, DriveOp)>,
    pub jobs: Vec<MoveJob>,
    pub rebuilds: Vec<RebuildJob>,
    pub checks: Vec<ScrubJob>,
    /// What people were told.
    pub notices: Vec<Notice>,
    pub objects: Objects,
    /// Drives that are to be emptied.
    pub leaving: BTreeSet<DriveId>,
    /// What fails together.
    pub domains: BTreeMap<DriveId, DomainId>,
    /// The highest term that each drive has heard of: it refuses lower ones.
    pub told: BTreeMap<DriveId, Term>,
    pub done: Vec<(u64, bool)>,
    /// What is left of the ranges that were lent to the client.
    space: Vec<(StripeAt, Placement)>,
    /// Stripes that it wrote and may commit.
    laid: Vec<(Laid, Vec<u8>)>,
    /// Blocks that were ever lent.
    lent: HashMap<PackId, BTreeSet<u16>>,
    /// How many shards each pack has.
    shards: HashMap<PackId, usize>,
    seq: u64,
    /// Rare things that happened, so that a test can ask for them.
    pub met: BTreeSet<&'static str>,
}

fn config(term: u64, drives: Vec<DriveId>) -> Config {
    Config {
        partition: P,
        partitions: 1,
        term: Term(term),
        host: HostId(1),
        data: 2,
        parity: 1,
        shard_bytes: SHARD_BYTES,
        drives: drives.into(),
        capacity_bytes: 1 << 40,
    }
}

fn root() -> Ino {
    Ino::new(Vp(0), 1)
}

impl World {
    pub fn new(seed: u64, wish: Wish) -> Result<Self, String> {
        let kv = Arc::new(Failing::new());
        let all: Vec<DriveId> = (1..=DRIVES).map(DriveId).collect();
        let part = Partition::open(config(1, all.clone()), kv.clone(), Index(0)).map_err(|e| e.to_string())?;
        let mut world = Self {
            kv,
            part,
            log: BTreeMap::new(),
            flash: HashMap::new(),
            drives: all.into_iter().map(|drive| (drive, BTreeSet::new())).collect(),
            wish,
            chance: Chance(seed),
            now_ms: 1_000_000,
            wall_ahead_s: 0,
            term: 1,
            pending: VecDeque::new(),
            committed: Index(0),
            model: Model::default(),
            before: VecDeque::new(),
            opens: BTreeMap::new(),
            acts: HashMap::new(),
            asked: Asked::default(),
            landed: HashMap::new(),
            replies: HashMap::new(),
            calls: Vec::new(),
            jobs: Vec::new(),
            rebuilds: Vec::new(),
            checks: Vec::new(),
            notices: Vec::new(),
            objects: Objects::default(),
            leaving: BTreeSet::new(),
            domains: BTreeMap::new(),
            told: BTreeMap::new(),
            done: Vec::new(),
            space: Vec::new(),
            laid: Vec::new(),
            lent: HashMap::new(),
            shards: HashMap::new(),
            seq: 0,
            met: BTreeSet::new(),
        };
        world.settings();
        world.sync(Op::MakeRoot { ino: root(), mode: 0o755 }, Act::Other)?.map_err(|e| e.to_string())?;
        for _ in 0..2 {
            world.create()?;
        }
        Ok(world)
    }

    fn settings(&mut self) {
        let cap_bytes = self.wish.cap_bytes;
        let start_bytes = (cap_bytes / 2).min(1_000 << self.chance.below(7));
        let limits = StageLimits { cap_bytes, start_bytes, age_ms: 3_000 };
        self.part.state_mut().set_stage_limits(limits);
        self.set_tiers();
        if let Some(rule) = self.wish.broken {
            self.part.state_mut().break_rule(rule);
        }
    }

    /// One random step.
    pub fn step(&mut self) -> Result<(), String> {
        match self.chance.below(100) {
            0..=34 => self.change()?,
            35..=37 => self.create()?,
            38..=40 => self.unlink()?,
            41..=44 => self.open_or_close()?,
            45..=52 => self.commit_some()?,
            53..=64 => self.tick()?,
            65..=76 => self.answer_drives()?,
            77..=86 => {
                self.run_job()?;
                self.run_rebuild();
                self.run_objects()?;
            }
            87..=92 => self.finish_job()?,
            93..=94 => self.trim()?,
            95 if self.wish.chaos => self.restart()?,
            96 if self.wish.chaos => self.change_drives(),
            _ => self.read_one()?,
        }
        Ok(())
    }

    /// Everything comes to rest without failures; then nothing may be left to do.
    pub fn calm(&mut self) -> Result<(), String> {
        self.wish.chaos = false;
        // Perhaps one leaves for good.
        let gone = DriveId(1 + self.chance.below(u64::from(DRIVES)) as u32);
        let leaving = if self.chance.percent(50) { BTreeSet::from([gone]) } else { BTreeSet::new() };
        self.domains.clear();
        self.use_all_but(if leaving.is_empty() { DriveId(0) } else { gone }, leaving);
        for ino in self.opens.keys().copied().collect::<Vec<_>>() {
            while self.opens.contains_key(&ino) {
                self.close(ino)?;
            }
        }
        for round in 0.. {
            self.now_ms += if round < 50 { 2_000 } else { 20_000 };
            self.tick()?;
            while !self.jobs.is_empty()
                || !self.rebuilds.is_empty()
                || !self.done.is_empty()
                || !self.calls.is_empty()
                || !self.objects.is_idle()
                || !self.pending.is_empty()
            {
                self.commit(usize::MAX)?;
                self.run_job()?;
                self.run_rebuild();
                self.run_objects()?;
                self.finish_job()?;
                self.answer_drive()?;
            }
            self.trim()?;
            let status = self.part.state().data_status();
            let busy = status.staged_bytes > 0 || status.orphans > 0 || status.creating + status.dead > 0;
            if !busy && status.held == 0 && status.moves == 0 && self.is_left() && self.tidy() {
                break;
            }
            if round == 300 {
                return Err(format!("does not come to rest: {status:?}"));
            }
        }
        for ino in self.model.files.keys().copied().collect::<Vec<_>>() {
            self.read(ino)?;
        }
        self.check_all()
    }

    /// Gives an event to the partition and takes its effects.
    pub fn feed(&mut self, event: Event) -> Result<(), String> {
        let mut effects = Vec::new();
        let wall = Time { sec: self.now_ms as i64 / 1_000 + self.wall_ahead_s, nsec: 0 };
        self.part.step(Now { mono_ms: self.now_ms, wall, ..Now::default() }, event, &mut effects);
        for effect in effects {
            match effect {
                Effect::Reply(token, answer) => self.answered(token, answer.result)?,
                Effect::Propose(entry) => self.proposed(entry)?,
                Effect::Drive(id, drive, op) => self.calls.push((id, drive, op)),
                Effect::Job(Job::Move(job)) => self.asked(job)?,
                Effect::Job(Job::Rebuild(job)) => self.asked_anew(job)?,
                Effect::Job(Job::Upload(job)) => self.objects.uploads.push(job),
                Effect::Job(Job::Remove(job)) => self.objects.removals.push(job),
                Effect::ReadObject(token, ..) => return Err(format!("{token:?}: nobody asked for an object")),
                Effect::Scrub(job) => self.checks.push(job),
                Effect::Notice(notice) => self.notices.push(notice),
                Effect::Push(push) => return Err(format!("{push:?}: there are no sessions")),
                Effect::Peer(to, message) => return Err(format!("{message:?} to {to}: there is no other partition")),
            }
        }
        if let Some(fault) = self.part.state().fault() {
            return Err(format!("the partition stopped: {fault}"));
        }
        Ok(())
    }

    fn proposed(&mut self, entry: Entry) -> Result<(), String> {
        if entry.index != self.part_next() {
            return Err(format!("proposes {}, expected {}", entry.index, self.part_next()));
        }
        if entry.batch.encoded_len() > RECORD_META_MAX {
            return Err(format!("{}: effects of {} bytes", entry.index, entry.batch.encoded_len()));
        }
        for change in entry.batch.changes() {
            if let Change::Put(key, value) = change {
                self.note(key, value).map_err(|e| e.to_string())?;
            }
        }
        self.before.push_back(self.model.clone());
        if entry.ops.len() > 1 {
            self.met.insert("requests in one entry");
        }
        for op in &entry.ops {
            if let Some(act) = self.acts.get(op) {
                let landed = self.model.apply(act)?;
                self.landed.insert(*op, landed);
            }
        }
        self.forget_gone();
        let payload = entry.payload.iter().flat_map(|bytes| bytes.to_vec()).collect();
        self.log.insert(entry.index, payload);
        self.pending.push_back(entry);
        Ok(())
    }

    /// Notes rare records.
    fn note(&mut self, key: &[u8], value: &[u8]) -> braid_base::Result<()> {
        if key[2] == Table::Slice as u8 && matches!(SliceRec::decode(value)?.0.place, Place::Flash { .. }) {
            self.met.insert("a stripe of a client");
        }
        if key[2] == Table::Pack as u8 {
            let pack = PackRec::decode(value)?;
            if pack.class == PackClass::Gc && pack.live_upper > 0 {
                self.met.insert("garbage collected");
            }
            if pack.place.data == 1 && pack.place.parity > 0 {
                self.met.insert("a narrow pack");
            }
            if pack.place.parity == 0 && pack.live_upper == 0 && self.leaving.contains(&pack.place.drives[0]) {
                self.met.insert("a pack without parity was given up");
            }
            if pack.place.epoch.0 > 1 {
                self.met.insert("a pack closed by a lost drive");
            }
        }
        if key[2] == Table::Base as u8 {
            let places = BaseRec::decode(value)?.extents.into_iter().map(|extent| extent.place);
            for place in places.filter(|place| place.object().is_some()) {
                let both = "bytes on flash and in an object";
                self.met.insert(if matches!(place, Place::Object(_)) { "bytes in an object only" } else { both });
            }
        }
        if key[2] == Table::Pack as u8 {
            let pack = PackRec::decode(value)?;
            if pack.class == PackClass::Cache && pack.live_upper > 0 {
                self.met.insert("bytes that came back");
            }
        }
        if key[2] == Table::Punch as u8 && PunchRec::decode(value)?.owed {
            self.met.insert("a cut too wide to count");
        }
        Ok(())
    }

    fn part_next(&self) -> Index {
        Index(self.committed.0 + self.pending.len() as u64 + 1)
    }

    fn asked(&mut self, job: MoveJob) -> Result<(), String> {
        let mut bytes = 0;
        for stripe in &job.stripes {
            self.lend(stripe.at, &stripe.place)?;
            let end = stripe.at.sb + stripe.at.ul;
            let len: usize = stripe.parts.iter().map(|part| part.len as usize).sum();
            let width = usize::from(stripe.place.data);
            if len == 0
                || len.div_ceil(width * BLOCK) != usize::from(stripe.at.ul)
                || u64::from(end) > SHARD_BYTES / BLOCK as u64
            {
                return Err(format!("{:?} does not fit its {len} bytes", stripe.at));
            }
            bytes += len;
            for part in &stripe.parts {
                if let Source::At(Place::Stage { at, .. }, _) = part.from
                    && at > self.committed
                {
                    return Err(format!("a move reads {at}, which is not committed"));
                }
            }
        }
        if bytes > 8 << 20 {
            return Err(format!("a move of {bytes} bytes"));
        }
        self.jobs.push(job);
        Ok(())
    }

    /// I7: notes that a range was lent.
    fn lend(&mut self, at: StripeAt, place: &Placement) -> Result<(), String> {
        let lent = self.lent.entry(at.pack).or_default();
        if !(at.sb..at.sb + at.ul).all(|block| lent.insert(block)) {
            return Err(format!("{at:?} is lent twice"));
        }
        self.shards.insert(at.pack, place.drives.len());
        Ok(())
    }

    /// True if every drive of a pack has its shard.
    pub fn is_there(&self, pack: PackId, place: &Placement) -> bool {
        let has = |(shard, drive): (u8, &DriveId)| self.drives[drive].contains(&ShardId { pack, shard });
        (0u8..).zip(&place.drives).all(has)
    }

    fn commit_some(&mut self) -> Result<(), String> {
        let count = self.chance.below(self.pending.len() as u64 + 1) as usize;
        if self.part.state().data_status().held > 0 {
            self.met.insert("a write held back");
        }
        self.commit(count)
    }

    /// Commits up to `count` pending entries; their effects may bring more, which are not counted.
    pub fn commit(&mut self, count: usize) -> Result<(), String> {
        self.feed(Event::Gathered)?;
        for _ in 0..count {
            if self.pending.is_empty() {
                return Ok(());
            }
            self.apply_first()?;
            self.feed(Event::Committed(self.committed))?;
            self.feed(Event::Applied(self.committed))?;
        }
        Ok(())
    }

    fn apply_first(&mut self) -> Result<(), String> {
        let Some(entry) = self.pending.pop_front() else { return Ok(()) };
        self.before.pop_front();
        self.kv.apply(&entry.batch).map_err(|e| e.to_string())?;
        self.committed = entry.index;
        Ok(())
    }

    pub fn tick(&mut self) -> Result<(), String> {
        self.now_ms += self.chance.below(1_500);
        if self.chance.percent(5) {
            let index = Index(self.committed.0.saturating_sub(self.chance.below(10)));
            self.part.state_mut().want_stage_below(index);
        }
        self.feed(Event::Tick)?;
        self.ask_again()
    }

    fn answer_drives(&mut self) -> Result<(), String> {
        for _ in 0..self.chance.below(8) {
            self.answer_drive()?;
        }
        Ok(())
    }

    pub fn answer_drive(&mut self) -> Result<(), String> {
        if self.calls.is_empty() {
            return Ok(());
        }
        let which = self.chance.below(self.calls.len() as u64) as usize;
        let (id, drive, op) = self.calls.remove(which);
        let (fails, lost) = (self.wish.chaos && self.chance.percent(8), self.wish.chaos && self.chance.percent(5));
        let shards = self.drives.entry(drive).or_default();
        let free = self.wish.slots.saturating_sub(shards.len() as u32);
        let answer: DriveResult = match op {
            _ if fails => Err(Error::new(ErrorKind::Io, "the drive failed")),
            DriveOp::Create { term, .. } | DriveOp::Drop { term, .. }
                if self.told.get(&drive).is_some_and(|t| *t > term) =>
            {
                Err(ErrorKind::Stale.into())
            }
            DriveOp::Create { id, term, .. } if free > 0 || shards.contains(&id) => {
                shards.insert(id);
                self.told.insert(drive, term);
                Ok(DriveReply::Done)
            }
            DriveOp::Create { .. } => Err(ErrorKind::NoSpace.into()),
            DriveOp::Drop { id, term } => {
                shards.remove(&id);
                self.told.insert(drive, term);
                Ok(DriveReply::Done)
            }
            DriveOp::Report { .. } => {
                Ok(DriveReply::Shards(shards.iter().map(|shard| (*shard, Term(self.term))).collect()))
            }
            DriveOp::Stat => Ok(DriveReply::Stat(DriveStat { slots: self.wish.slots, free, ..DriveStat::default() })),
            other => return Err(format!("a partition never asks {other:?}")),
        };
        if lost { Ok(()) } else { self.feed(Event::Drive(id, answer)) }
    }

    /// The mover carries out a move; it reports later.
    pub fn run_job(&mut self) -> Result<(), String> {
        if self.jobs.is_empty() {
            return Ok(());
        }
        let job = self.jobs.remove(self.chance.below(self.jobs.len() as u64) as usize);
        let fails = self.wish.chaos && self.chance.percent(12);
        let mut good = !fails;
        for stripe in &job.stripes {
            if fails && self.chance.percent(50) {
                continue;
            }
            let (mut bytes, whole) = self.gathered(&stripe.parts)?;
            good &= whole;
            if !good || !self.is_there(stripe.at.pack, &stripe.place) {
                good = false;
                continue;
            }
            bytes.resize(usize::from(stripe.place.data) * usize::from(stripe.at.ul) * BLOCK, 0);
            if self.flash.insert((stripe.at.pack, stripe.at.sb), (stripe.at.ul, bytes)).is_some() {
                return Err(format!("{:?} is written twice", stripe.at));
            }
        }
        self.done.push((job.id, good));
        Ok(())
    }

    /// The bytes of `parts`, and whether all of them could be had.
    fn gathered(&self, parts: &[Part]) -> Result<(Vec<u8>, bool), String> {
        let (mut bytes, mut whole) = (Vec::new(), true);
        for part in parts {
            match &part.from {
                Source::Zero => bytes.resize(bytes.len() + part.len as usize, 0),
                Source::At(place, placement) => match self.bytes_at(place, part.len) {
                    Ok(found) if self.placed_well(place, placement.as_ref()) => bytes.extend(found),
                    Ok(_) => return Err(format!("{place:?} comes with a wrong placement")),
                    Err(_) => whole = false,
                },
            }
        }
        Ok((bytes, whole))
    }

    fn placed_well(&self, place: &Place, placement: Option<&Placement>) -> bool {
        match (place, placement) {
            (Place::Stage { .. } | Place::Object(_), None) => true,
            (Place::Flash { stripe, .. }, Some(place)) => self.shards.get(&stripe.pack) == Some(&place.drives.len()),
            _ => false,
        }
    }

    pub fn finish_job(&mut self) -> Result<(), String> {
        if self.done.is_empty() {
            return Ok(());
        }
        let (id, good) = self.done.remove(self.chance.below(self.done.len() as u64) as usize);
        if !good {
            self.met.insert("a failed move");
        }
        let result = if good { Ok(()) } else { Err(Error::new(ErrorKind::Io, "the move failed")) };
        self.feed(Event::JobDone(id, result))
    }

    /// The log drops what the partition does not need any more.
    pub fn trim(&mut self) -> Result<(), String> {
        let oldest = self.part.oldest_stage().unwrap_or(Index(self.committed.0 + 1));
        self.log = self.log.split_off(&oldest);
        self.feed(Event::Gathered)?;
        if self.pending.is_empty() { self.check_all() } else { Ok(()) }
    }

    /// The primary dies. Some of what it proposed survives, all it kept in memory is gone.
    pub fn restart(&mut self) -> Result<(), String> {
        for _ in 0..self.chance.below(self.pending.len() as u64 + 1) {
            self.apply_first()?;
        }
        if let Some(model) = self.before.pop_front() {
            self.model = model;
        }
        self.before.clear();
        self.pending.clear();
        self.log.split_off(&self.committed.next());
        self.opens.clear();
        self.forget_gone();
        self.acts.clear();
        self.asked = Asked::default();
        self.landed.clear();
        self.replies.clear();
        // Answers to the old primary may still come, moves may still write where nobody looks.
        self.done.clear();
        if self.chance.percent(50) {
            self.jobs.clear();
            self.rebuilds.clear();
            self.objects.forget_work();
        }
        self.leaving.clear();
        self.domains.clear();
        self.term += 1;
        let drives = self.drives.keys().copied().collect();
        let opened = Partition::open(config(self.term, drives), self.kv.clone(), self.committed);
        self.part = opened.map_err(|e| format!("restart: {e}"))?;
        self.settings();
        self.check_all()
    }
}
