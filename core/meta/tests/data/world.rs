//! A partition with everything around it: log, view, drives, mover, clients, time. All of it may fail.

use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use std::sync::Arc;

use braid_base::attr::{FileType, SetAttr, Time};
use braid_base::ids::{ClientId, DriveId, FsId, Index, Ino, OpId, PackId, PartitionId, Term, Vp};
use braid_base::limits::{BLOCK, CHUNK};
use braid_base::msg::drive::{DriveOp, DriveReply, DriveResult, DriveStat, ShardId};
use braid_base::msg::fs::{Cred, FallocMode, FsResult, Layout, Op, Reply, Request};
use braid_base::msg::job::{MoveJob, Source};
use braid_base::record::{Place, Placement};
use braid_base::{Error, ErrorKind};
use braid_meta::{Config, Effect, Entry, Event, Mutation, Now, Partition, StageLimits, Token};
use braid_replica::{Kv, MapKv};
use bytes::Bytes;

use crate::model::{Act, File, Model, PAGE};

pub const P: PartitionId = PartitionId(0);
pub const FS: FsId = FsId(1);
const CLIENT: ClientId = ClientId(7);
const SHARD_BYTES: u64 = 64 << 10;
const DRIVES: u32 = 4;

/// What kind of run is wanted.
#[derive(Clone, Copy, Debug)]
pub struct Wish {
    pub steps: usize,
    /// Slots of each drive.
    pub slots: u32,
    pub cap_bytes: u64,
    pub chaos: bool,
    pub broken: Option<Mutation>,
}

impl Default for Wish {
    fn default() -> Self {
        Self { steps: 120, slots: 60, cap_bytes: 8 << 20, chaos: true, broken: None }
    }
}

/// A small generator of chance (SplitMix64).
pub struct Chance(u64);

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
    pub kv: Arc<MapKv>,
    pub part: Partition,
    /// Payloads by position, as far as the log was not trimmed.
    pub log: BTreeMap<Index, Vec<u8>>,
    /// Stripes by pack and start block: blocks per shard and bytes.
    pub flash: HashMap<(PackId, u16), (u16, Vec<u8>)>,
    pub drives: BTreeMap<DriveId, BTreeSet<ShardId>>,
    wish: Wish,
    chance: Chance,
    now_ms: u64,
    term: u64,
    pending: VecDeque<Entry>,
    committed: Index,
    model: Model,
    /// The model before each pending entry.
    before: VecDeque<Model>,
    opens: BTreeMap<Ino, u32>,
    acts: HashMap<OpId, Act>,
    landed: HashMap<OpId, u64>,
    replies: HashMap<Token, FsResult>,
    calls: Vec<(u64, DriveId, DriveOp)>,
    jobs: Vec<MoveJob>,
    done: Vec<(u64, bool)>,
    /// Blocks that were ever lent.
    lent: HashMap<PackId, BTreeSet<u16>>,
    /// How many shards each pack has.
    shards: HashMap<PackId, usize>,
    seq: u64,
}

fn config(term: u64, drives: Vec<DriveId>) -> Config {
    Config {
        partition: P,
        partitions: 1,
        term: Term(term),
        data: 2,
        parity: 1,
        shard_bytes: SHARD_BYTES,
        drives,
        capacity_bytes: 1 << 40,
    }
}

fn root() -> Ino {
    Ino::new(Vp(0), 1)
}

impl World {
    pub fn new(seed: u64, wish: Wish) -> Result<Self, String> {
        let kv = Arc::new(MapKv::new());
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
            term: 1,
            pending: VecDeque::new(),
            committed: Index(0),
            model: Model::default(),
            before: VecDeque::new(),
            opens: BTreeMap::new(),
            acts: HashMap::new(),
            landed: HashMap::new(),
            replies: HashMap::new(),
            calls: Vec::new(),
            jobs: Vec::new(),
            done: Vec::new(),
            lent: HashMap::new(),
            shards: HashMap::new(),
            seq: 0,
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
            77..=86 => self.run_job()?,
            87..=92 => self.finish_job()?,
            93..=94 => self.trim()?,
            95 if self.wish.chaos => self.restart()?,
            96 if self.wish.chaos => self.change_drives()?,
            _ => self.read_one()?,
        }
        Ok(())
    }

    /// Everything comes to rest without failures; then nothing may be left to do.
    pub fn calm(&mut self) -> Result<(), String> {
        self.wish.chaos = false;
        let all = self.drives.keys().copied().collect();
        self.part.state_mut().set_drives(all);
        for ino in self.opens.keys().copied().collect::<Vec<_>>() {
            while self.opens.contains_key(&ino) {
                self.close(ino)?;
            }
        }
        for round in 0.. {
            self.now_ms += if round < 50 { 2_000 } else { 20_000 };
            self.tick()?;
            while !self.jobs.is_empty() || !self.done.is_empty() || !self.calls.is_empty() || !self.pending.is_empty() {
                self.commit(usize::MAX)?;
                self.run_job()?;
                self.finish_job()?;
                self.answer_drive()?;
            }
            self.trim()?;
            let status = self.part.state().data_status();
            let busy = status.staged_bytes > 0 || status.orphans > 0 || status.creating + status.dead > 0;
            if !busy && status.held == 0 && status.moves == 0 && self.tidy() {
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

    // Clients.

    fn request(&mut self, body: Op, act: Act) -> Result<(OpId, Token), String> {
        self.seq += 1;
        let op = OpId { client: CLIENT, seq: self.seq };
        let token = Token(self.seq);
        self.acts.insert(op, act);
        let request = Request { op, done_upto: 0, fs: FS, cred: Cred::default(), body };
        self.feed(Event::Request(token, request))?;
        Ok((op, token))
    }

    /// Asks and waits for the answer.
    fn sync(&mut self, body: Op, act: Act) -> Result<FsResult, String> {
        let (_, token) = self.request(body, act)?;
        self.commit(usize::MAX)?;
        self.replies.remove(&token).ok_or(format!("no answer to {token:?} although all is committed"))
    }

    fn create(&mut self) -> Result<(), String> {
        let name = format!("f{}", self.seq).into_bytes();
        let body = Op::Create {
            dir: root(),
            name: name.clone(),
            kind: FileType::File,
            mode: 0o644,
            umask: 0,
            rdev: 0,
            target: Vec::new(),
            open: false,
        };
        match self.sync(body, Act::Other)? {
            Ok(Reply::Entry { ino, .. }) => {
                self.model.files.insert(ino, File::new(name));
                Ok(())
            }
            other => Err(format!("create: {other:?}")),
        }
    }

    fn some_file(&mut self) -> Option<Ino> {
        let files: Vec<Ino> = self.model.files.keys().copied().collect();
        (!files.is_empty()).then(|| files[self.chance.below(files.len() as u64) as usize])
    }

    fn unlink(&mut self) -> Result<(), String> {
        let Some(ino) = self.some_file() else { return Ok(()) };
        let file = &self.model.files[&ino];
        if file.linked {
            self.request(Op::Unlink { dir: root(), name: file.name.clone() }, Act::Unlink { ino })?;
        }
        Ok(())
    }

    fn open_or_close(&mut self) -> Result<(), String> {
        let Some(ino) = self.some_file() else { return Ok(()) };
        if self.opens.contains_key(&ino) && self.chance.percent(50) {
            return self.close(ino);
        }
        match self.sync(Op::Open { ino, truncate: false }, Act::Other)? {
            Ok(_) => *self.opens.entry(ino).or_default() += 1,
            Err(error) => return Err(format!("open {ino}: {error}")),
        }
        Ok(())
    }

    fn close(&mut self, ino: Ino) -> Result<(), String> {
        self.sync(Op::Close { ino }, Act::Other)?.map_err(|e| e.to_string())?;
        let count = self.opens.entry(ino).or_default();
        *count -= 1;
        if *count == 0 {
            self.opens.remove(&ino);
        }
        self.forget_gone();
        Ok(())
    }

    /// Files without a name and without an open reference are gone for everyone.
    fn forget_gone(&mut self) {
        let opens = &self.opens;
        self.model.files.retain(|ino, file| file.linked || opens.contains_key(ino));
    }

    fn some_place(&mut self) -> u64 {
        let base = [0, 0, CHUNK - 5_000, 2 * CHUNK - 3_000, 5 * CHUNK][self.chance.below(5) as usize];
        let off = base + self.chance.below(20_000);
        if self.chance.percent(30) { off / PAGE * PAGE } else { off }
    }

    fn some_bytes(&mut self) -> Vec<u8> {
        let len = match self.chance.below(4) {
            0 => 1 + self.chance.below(40),
            1 => PAGE * (1 + self.chance.below(3)),
            _ => 1 + self.chance.below(9_000),
        };
        let first = self.chance.below(251);
        (0..len).map(|i| ((first + i * 7) % 251 + 1) as u8).collect()
    }

    fn change(&mut self) -> Result<(), String> {
        let Some(ino) = self.some_file() else { return Ok(()) };
        match self.chance.below(20) {
            0..=2 => {
                let size = if self.chance.percent(30) { 0 } else { self.some_place() };
                let set = SetAttr { size: Some(size), ..SetAttr::default() };
                self.request(Op::SetAttr { ino, set }, Act::Truncate { ino, size })?;
            }
            3..=5 => {
                let (from, len) = (self.some_place(), 1 + self.chance.below(3 * CHUNK / 2));
                let zero = self.chance.percent(50);
                let keep_size = self.chance.percent(50) || !zero;
                let mode = if zero { FallocMode::Zero } else { FallocMode::Punch };
                let act = Act::Hole { ino, from, to: from + len, extend: !keep_size };
                self.request(Op::Fallocate { ino, off: from, len, mode, keep_size }, act)?;
            }
            6 => {
                let (off, len) = (self.some_place(), 1 + self.chance.below(CHUNK));
                let body = Op::Fallocate { ino, off, len, mode: FallocMode::Allocate, keep_size: false };
                self.request(body, Act::Extend { ino, to: off + len })?;
            }
            7 => {
                // One small piece in each of many chunks: more than a cut counts at once.
                let parts: Vec<_> = (0..40).map(|n| (n * CHUNK + 77, vec![n as u8 + 1; 10])).collect();
                self.write(ino, parts, false)?;
            }
            n => {
                let count = if self.chance.percent(20) { 3 } else { 1 };
                let parts: Vec<_> = (0..count).map(|_| (self.some_place(), self.some_bytes())).collect();
                let append = n == 8 && count == 1;
                self.write(ino, parts, append)?;
            }
        }
        Ok(())
    }

    fn write(&mut self, ino: Ino, parts: Vec<(u64, Vec<u8>)>, append: bool) -> Result<(), String> {
        let parts: Vec<_> = if append { parts.into_iter().map(|(_, bytes)| (0, bytes)).collect() } else { parts };
        let sent = parts.iter().map(|(off, bytes)| (*off, Bytes::from(bytes.clone()))).collect();
        let body = Op::Write { ino, parts: sent, append, kill_suid_sgid: false };
        self.request(body, Act::Write { ino, parts, append }).map(drop)
    }

    fn read_one(&mut self) -> Result<(), String> {
        self.some_file().map_or(Ok(()), |ino| self.read(ino))
    }

    /// Reads a whole file and compares it with the model.
    fn read(&mut self, ino: Ino) -> Result<(), String> {
        let layout = match self.sync(Op::Layout { ino, off: 0, len: u64::MAX }, Act::Other)? {
            Ok(Reply::Layout(layout)) => layout,
            other => return Err(format!("layout of {ino}: {other:?}")),
        };
        let file = &self.model.files[&ino];
        if layout.size != file.size {
            return Err(format!("{ino} has {} bytes, expected {}", layout.size, file.size));
        }
        let pages = self.read_pages(&layout)?;
        let numbers: BTreeSet<u64> = pages.keys().copied().chain(file.pages()).collect();
        for number in numbers.into_iter().filter(|number| number * PAGE < file.size) {
            let mut expected = file.page(number);
            expected.truncate((file.size - number * PAGE).min(PAGE) as usize);
            let mut found = pages.get(&number).cloned().unwrap_or(vec![0; PAGE as usize]);
            found.truncate(expected.len());
            if let Some(at) = (0..expected.len()).find(|i| expected[*i] != found[*i]) {
                let place = number * PAGE + at as u64;
                return Err(format!("{ino} at {place}: found {}, expected {}", found[at], expected[at]));
            }
        }
        Ok(())
    }

    fn read_pages(&self, layout: &Layout) -> Result<BTreeMap<u64, Vec<u8>>, String> {
        let mut pages: BTreeMap<u64, Vec<u8>> = BTreeMap::new();
        let mut end = 0;
        for (off, extent) in &layout.extents {
            if *off < end || off + u64::from(extent.len) > layout.size || off % CHUNK != u64::from(extent.off) {
                return Err(format!("layout: {extent:?} at {off} is out of order or out of the file"));
            }
            end = off + u64::from(extent.len);
            if let Place::Flash { stripe, .. } = extent.place {
                if !layout.packs.iter().any(|(pack, _)| *pack == stripe.pack) {
                    return Err(format!("layout: {} is not placed", stripe.pack));
                }
            }
            for (i, byte) in self.bytes_at(&extent.place, extent.len)?.into_iter().enumerate() {
                let at = off + i as u64;
                pages.entry(at / PAGE).or_insert_with(|| vec![0; PAGE as usize])[(at % PAGE) as usize] = byte;
            }
        }
        Ok(pages)
    }

    /// The bytes of a place, if they can be had.
    pub fn bytes_at(&self, place: &Place, len: u32) -> Result<Vec<u8>, String> {
        let (bytes, from) = match place {
            Place::Stage { at, poff } => (self.log.get(at).ok_or(format!("{at} is not in the log"))?, *poff),
            Place::Flash { stripe, delta } => {
                let (ul, bytes) =
                    self.flash.get(&(stripe.pack, stripe.sb)).ok_or(format!("{stripe:?} was not written"))?;
                if *ul != stripe.ul {
                    return Err(format!("{stripe:?} has another width on flash: {ul}"));
                }
                let shards = self.drives.values().flatten().filter(|id| id.pack == stripe.pack).count();
                let all = self.shards.get(&stripe.pack).copied().unwrap_or(usize::MAX);
                if shards < all {
                    return Err(format!("{}: only {shards} of {all} shards are there", stripe.pack));
                }
                (bytes, *delta)
            }
        };
        let found = bytes.get(from as usize..(from + len) as usize);
        found.map(<[u8]>::to_vec).ok_or(format!("{place:?} of {len} bytes is out of bounds"))
    }

    // The partition's surroundings.

    /// Gives an event to the partition and takes its effects.
    fn feed(&mut self, event: Event) -> Result<(), String> {
        let mut effects = Vec::new();
        let wall = Time { sec: self.now_ms as i64 / 1_000, nsec: 0 };
        self.part.step(Now { mono_ms: self.now_ms, wall }, event, &mut effects);
        for effect in effects {
            match effect {
                Effect::Reply(token, result) => self.answered(token, result)?,
                Effect::Propose(entry) => self.proposed(entry)?,
                Effect::Drive(id, drive, op) => self.calls.push((id, drive, op)),
                Effect::Job(job) => self.asked(job)?,
                Effect::Peer(to, message) => return Err(format!("{message:?} to {to}: there is no other partition")),
            }
        }
        if let Some(fault) = self.part.state().fault() {
            return Err(format!("the partition stopped: {fault}"));
        }
        Ok(())
    }

    fn answered(&mut self, token: Token, result: FsResult) -> Result<(), String> {
        let op = OpId { client: CLIENT, seq: token.0 };
        let act = self.acts.remove(&op);
        if let (Some(off), Ok(Reply::Wrote { off: found, .. })) = (self.landed.remove(&op), &result) {
            if off != *found {
                return Err(format!("{act:?} landed at {found}, expected {off}"));
            }
        }
        if let (Some(act), Err(error)) = (&act, &result) {
            // Only a file that went away meanwhile, or a full stage, may refuse.
            let gone = matches!(error.kind(), ErrorKind::Stale | ErrorKind::NotFound);
            let full = matches!(error.kind(), ErrorKind::Busy | ErrorKind::NoSpace) && self.wish.cap_bytes < 1 << 20;
            if !gone && !full {
                return Err(format!("{act:?}: {error:?}").chars().take(300).collect());
            }
        }
        self.replies.insert(token, result);
        Ok(())
    }

    fn proposed(&mut self, entry: Entry) -> Result<(), String> {
        if entry.index != self.part_next() {
            return Err(format!("proposes {}, expected {}", entry.index, self.part_next()));
        }
        self.before.push_back(self.model.clone());
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

    fn part_next(&self) -> Index {
        Index(self.committed.0 + self.pending.len() as u64 + 1)
    }

    fn asked(&mut self, job: MoveJob) -> Result<(), String> {
        let mut bytes = 0;
        for stripe in &job.stripes {
            let (first, end) = (stripe.at.sb, stripe.at.sb + stripe.at.ul);
            let lent = self.lent.entry(stripe.at.pack).or_default();
            if !(first..end).all(|block| lent.insert(block)) {
                return Err(format!("{:?} is lent twice", stripe.at));
            }
            self.shards.insert(stripe.at.pack, stripe.place.drives.len());
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
                if let Source::At(Place::Stage { at, .. }, _) = part.from {
                    if at > self.committed {
                        return Err(format!("a move reads {at}, which is not committed"));
                    }
                }
            }
        }
        if bytes > 8 << 20 {
            return Err(format!("a move of {bytes} bytes"));
        }
        self.jobs.push(job);
        Ok(())
    }

    fn commit_some(&mut self) -> Result<(), String> {
        let count = self.chance.below(self.pending.len() as u64 + 1) as usize;
        self.commit(count)
    }

    /// Commits up to `count` pending entries; their effects may bring more, which are not counted.
    fn commit(&mut self, count: usize) -> Result<(), String> {
        for _ in 0..count {
            if self.pending.is_empty() {
                return Ok(());
            }
            self.apply_first()?;
            self.feed(Event::Committed(self.committed))?;
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

    fn tick(&mut self) -> Result<(), String> {
        self.now_ms += self.chance.below(1_500);
        if self.chance.percent(5) {
            let index = Index(self.committed.0.saturating_sub(self.chance.below(10)));
            self.part.state_mut().want_stage_below(index);
        }
        self.feed(Event::Tick)
    }

    fn answer_drives(&mut self) -> Result<(), String> {
        for _ in 0..self.chance.below(8) {
            self.answer_drive()?;
        }
        Ok(())
    }

    fn answer_drive(&mut self) -> Result<(), String> {
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
            DriveOp::Create { id, .. } if free > 0 || shards.contains(&id) => {
                shards.insert(id);
                Ok(DriveReply::Done)
            }
            DriveOp::Create { .. } => Err(ErrorKind::NoSpace.into()),
            DriveOp::Drop { id, .. } => {
                shards.remove(&id);
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
    fn run_job(&mut self) -> Result<(), String> {
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
            let mut bytes = Vec::new();
            for part in &stripe.parts {
                match &part.from {
                    Source::Zero => bytes.resize(bytes.len() + part.len as usize, 0),
                    Source::At(place, placement) => match self.bytes_at(place, part.len) {
                        Ok(found) if self.placed_well(place, placement.as_ref()) => bytes.extend(found),
                        Ok(_) => return Err(format!("{place:?} comes with a wrong placement")),
                        Err(_) => good = false,
                    },
                }
            }
            let there = stripe.place.drives.iter().enumerate().all(|(shard, drive)| {
                let id = ShardId { pack: stripe.at.pack, shard: shard as u8 };
                self.drives[drive].contains(&id)
            });
            if !good || !there {
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

    fn placed_well(&self, place: &Place, placement: Option<&Placement>) -> bool {
        match (place, placement) {
            (Place::Stage { .. }, None) => true,
            (Place::Flash { stripe, .. }, Some(place)) => self.shards.get(&stripe.pack) == Some(&place.drives.len()),
            _ => false,
        }
    }

    fn finish_job(&mut self) -> Result<(), String> {
        if self.done.is_empty() {
            return Ok(());
        }
        let (id, good) = self.done.remove(self.chance.below(self.done.len() as u64) as usize);
        let result = if good { Ok(()) } else { Err(Error::new(ErrorKind::Io, "the move failed")) };
        self.feed(Event::JobDone(id, result))
    }

    /// The log drops what the partition does not need any more.
    fn trim(&mut self) -> Result<(), String> {
        let oldest = self.part.oldest_stage().unwrap_or(Index(self.committed.0 + 1));
        self.log = self.log.split_off(&oldest);
        if self.pending.is_empty() { self.check_all() } else { Ok(()) }
    }

    /// The primary dies. Some of what it proposed survives, all it kept in memory is gone.
    fn restart(&mut self) -> Result<(), String> {
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
        self.landed.clear();
        self.replies.clear();
        // Answers to the old primary may still come, moves may still write where nobody looks.
        self.done.clear();
        if self.chance.percent(50) {
            self.jobs.clear();
        }
        self.term += 1;
        let drives = self.drives.keys().copied().collect();
        let opened = Partition::open(config(self.term, drives), self.kv.clone(), self.committed);
        self.part = opened.map_err(|e| format!("restart: {e}"))?;
        self.settings();
        self.check_all()
    }

    fn change_drives(&mut self) -> Result<(), String> {
        let gone = DriveId(1 + self.chance.below(u64::from(DRIVES) + 2) as u32);
        let usable = self.drives.keys().copied().filter(|drive| *drive != gone).collect();
        self.part.state_mut().set_drives(usable);
        Ok(())
    }
}
