//! The target against a plain map, over a disk that tears, loses, fails and flips.
//!
//! What is checked, for every answer: acknowledged blocks are read as they were written; blocks that were not
//! acknowledged are never written, right, or corrupt; nobody ever sees bytes that were not put there.

use std::collections::BTreeMap;

use braid_base::attr::Time;
use braid_base::crc::block_crcs;
use braid_base::ids::{DomainId, DriveId, FsId, Guid, PackId, PartitionId, Term};
use braid_base::msg::drive::{DriveOp, DriveReply, DriveResult, ShardId};
use braid_base::record::PackClass;
use braid_base::{Error, ErrorKind};
use braid_drive::{Effect, Event, FormatParams, OpToken, Target, format, open};
use braid_io::chance::Rng;
use braid_io::clock::Now;
use braid_io::file::OpenMode;
use braid_io::reactor::{FileId, IoOp};
use braid_io::sim::{Faults, SimDisk};
use bytes::Bytes;

const B: usize = 4096;
/// Two checksum pages, the second with ten blocks only.
const SHARD_BLOCKS: u64 = 970;
const SLOTS: u64 = 6;
const CLUSTER: Guid = Guid([9; 16]);

/// What a run may meet besides crashes.
#[derive(Clone, Copy, PartialEq, Eq)]
enum World {
    Calm,
    Errors,
    /// One bit flips, somewhere, once.
    OneFlip,
}

/// Where a shard stands, as far as its answers tell.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Life {
    Gone,
    Creating,
    Live,
    Dropping,
    /// A header write failed: only opening the drive anew tells.
    Unknown,
}

#[derive(Default)]
struct Block {
    acked: Option<u64>,
    tried: Vec<u64>,
}

struct Shard {
    life: Life,
    blocks: BTreeMap<u16, Block>,
    /// Everything ever put here, in all lives.
    ever: BTreeMap<u16, Vec<u64>>,
}

/// An operation under way, with what was known when it was sent.
enum Asked {
    Create { id: ShardId, term: Term, newer: bool },
    Drop { id: ShardId, term: Term, newer: bool },
    Put { id: ShardId, block: u16, seeds: Vec<u64>, live: bool },
    Spoilt,
    Read { id: ShardId, block: u16, acked: Vec<Option<u64>>, live: bool },
    Written { id: ShardId, acked: Vec<u16>, live: bool },
    Report { partition: PartitionId },
}

struct Run {
    world: World,
    rng: Rng,
    disk: SimDisk,
    file: FileId,
    target: Target,
    now: Now,
    shards: BTreeMap<ShardId, Shard>,
    terms: BTreeMap<PartitionId, Term>,
    /// Highest term that the target has answered to since it was opened.
    seen: BTreeMap<PartitionId, Term>,
    asked: BTreeMap<OpToken, Asked>,
    next: u64,
    flipped: bool,
    last_put: Option<(ShardId, (u16, u16))>,
    counts: BTreeMap<&'static str, u64>,
}

fn content(seed: u64) -> Vec<u8> {
    let mut bytes = vec![0; B];
    Rng::new(seed).fill(&mut bytes);
    bytes
}

fn ids() -> Vec<ShardId> {
    let pack = |p, seq| PackId::new(PartitionId(p), seq);
    (1..=5).flat_map(|seq| [0, 1].map(|p| ShardId { pack: pack(p, seq), shard: (seq % 3) as u8 })).collect()
}

impl Run {
    fn new(seed: u64, world: World) -> Self {
        let mut rng = Rng::new(seed);
        let mut disk = SimDisk::new();
        let pages = SHARD_BLOCKS.div_ceil(960);
        let stride = (2 + 2 * pages + SHARD_BLOCKS) * B as u64;
        let file = disk.open("drive", OpenMode::new_file(2 * B as u64 + SLOTS * stride)).expect("made");
        let params = FormatParams {
            cluster: CLUSTER,
            drive: Guid([rng.below(255) as u8; 16]),
            id: DriveId(3),
            domain: DomainId(1),
            shard_bytes: SHARD_BLOCKS * B as u64,
            force: false,
        };
        let now = Now { mono_ms: 1000, mono_us: 1_000_000, wall: Time { sec: 1_800_000_000, nsec: 0 } };
        let (_, writes) = format(&disk.view(file), &params, now).expect("a blank disk is formatted");
        for (at, data) in writes {
            disk.write_now(file, at, &data);
        }
        if world == World::Errors {
            disk.faults = Faults { read_errors: 100, write_errors: 100 };
        }
        let target = open(&disk.view(file), Some(CLUSTER), true, now).expect("opens").target;
        let gone = || Shard { life: Life::Gone, blocks: BTreeMap::new(), ever: BTreeMap::new() };
        let shards = ids().into_iter().map(|id| (id, gone())).collect();
        let terms = [0, 1].map(|p| (PartitionId(p), Term(1))).into();
        let mut run = Self {
            world,
            rng,
            disk,
            file,
            target,
            now,
            shards,
            terms,
            seen: BTreeMap::new(),
            asked: BTreeMap::new(),
            next: 0,
            flipped: false,
            last_put: None,
            counts: BTreeMap::new(),
        };
        run.target.set_table_cache(20_000);
        run
    }

    fn go(mut self, steps: u64) -> BTreeMap<&'static str, u64> {
        for _ in 0..steps {
            self.now.mono_ms += self.rng.below(2000);
            self.now.wall.sec += 1;
            match self.rng.below(100) {
                0 => self.crash(),
                1 => self.pass_quarantine(),
                2 if self.world == World::OneFlip && !self.flipped => self.flip(),
                3..45 => self.complete(),
                _ => self.ask_something(),
            }
        }
        self.settle_and_check();
        self.counts
    }

    fn count(&mut self, what: &'static str) {
        *self.counts.entry(what).or_default() += 1;
    }

    fn step(&mut self, event: Event) {
        let mut effects = Vec::new();
        self.target.step(self.now, event, &mut effects);
        let file = self.file;
        for effect in effects {
            match effect {
                Effect::Read { token, off, len } => self.disk.submit(token, IoOp::Read { file, off, len }),
                Effect::Write { token, off, data, durable } => {
                    self.disk.submit(token, IoOp::Write { file, off, data: vec![data], durable });
                }
                Effect::Sync { token } => self.disk.submit(token, IoOp::Sync { file }),
                Effect::Discard { token, off, len } => self.disk.submit(token, IoOp::Discard { file, off, len }),
                Effect::Reply { token, result } => self.answered(token, result),
            }
        }
    }

    fn complete(&mut self) {
        for (token, result) in self.disk.complete_some(&mut self.rng) {
            self.step(Event::Io { token, result });
        }
    }

    fn pass_quarantine(&mut self) {
        self.now.mono_ms += 700_000;
        while self.target.next_tick_ms().is_some_and(|at| at <= self.now.mono_ms) {
            self.step(Event::Tick);
        }
    }

    fn flip(&mut self) {
        self.flipped = true;
        let size = self.target.superblock().layout.size;
        // Most flips should hit structures, which are a small part of the drive.
        let stride = self.target.superblock().layout.stride;
        let at = if self.rng.chance(3, 4) {
            4096 + self.rng.below(SLOTS) * stride + self.rng.below(10 * 4096)
        } else {
            self.rng.below(size)
        };
        self.disk.flip(self.file, at, self.rng.below(8) as u8);
    }

    fn crash(&mut self) {
        self.count("crash");
        self.disk.crash(&mut self.rng);
        for asked in std::mem::take(&mut self.asked).into_values() {
            if let Asked::Create { id, .. } | Asked::Drop { id, .. } = asked {
                let shard = self.shards.get_mut(&id).expect("known");
                if matches!(shard.life, Life::Creating | Life::Dropping) {
                    shard.life = Life::Unknown;
                }
            }
        }
        let view = self.disk.view(self.file);
        let opened = open(&view, Some(CLUSTER), true, self.now).expect("a crash never makes a drive unusable");
        for (at, data) in opened.repairs {
            assert!(self.flipped, "a crash alone never damages a superblock");
            self.disk.write_now(self.file, at, &data);
        }
        self.target = opened.target;
        self.target.set_table_cache(20_000);
        self.seen.clear();
        for partition in [PartitionId(0), PartitionId(1)] {
            self.ask(Asked::Report { partition }, DriveOp::Report { partition });
        }
    }

    fn ask(&mut self, asked: Asked, op: DriveOp) {
        self.next += 1;
        self.asked.insert(OpToken(self.next), asked);
        self.step(Event::Op { token: OpToken(self.next), op });
    }

    fn ask_something(&mut self) {
        let all = ids();
        let id = all[self.rng.index(all.len())];
        match self.rng.below(20) {
            0..3 => self.ask_create(id),
            3 => self.ask_drop(id),
            4..12 => self.ask_put(id),
            12 => self.ask_written(id),
            _ => self.ask_read(id),
        }
    }

    /// A term: usually the present one, sometimes the next, sometimes an old one. True: something newer was seen.
    fn term(&mut self, id: ShardId) -> (Term, bool) {
        let partition = id.pack.partition();
        let known = self.terms.get_mut(&partition).expect("known");
        let term = match self.rng.below(10) {
            0 => {
                known.0 += 1;
                *known
            }
            1 => Term(known.0 - self.rng.below(known.0.min(3))),
            _ => *known,
        };
        (term, self.seen.get(&partition).is_some_and(|seen| term < *seen))
    }

    fn ask_create(&mut self, id: ShardId) {
        let (term, newer) = self.term(id);
        let shard = self.shards.get_mut(&id).expect("known");
        match shard.life {
            Life::Gone => {
                shard.life = Life::Creating;
                shard.blocks.clear();
            }
            // After a flip a shard may be lost; making it again would hide that from the checks below.
            Life::Live | Life::Unknown if self.flipped => return,
            Life::Live | Life::Unknown => {}
            // One change of a shard's life at a time, as its partition does it.
            Life::Creating | Life::Dropping => return,
        }
        let op = DriveOp::Create { id, data: 2, parity: 1, class: PackClass::User, term, fs: FsId(1) };
        self.ask(Asked::Create { id, term, newer }, op);
    }

    fn ask_drop(&mut self, id: ShardId) {
        let (term, newer) = self.term(id);
        let shard = self.shards.get_mut(&id).expect("known");
        match shard.life {
            Life::Live => shard.life = Life::Dropping,
            Life::Gone | Life::Unknown => {}
            Life::Creating | Life::Dropping => return,
        }
        self.ask(Asked::Drop { id, term, newer }, DriveOp::Drop { id, term });
    }

    fn range(&mut self) -> (u16, u16) {
        let first = if self.rng.chance(1, 2) { self.rng.below(12) } else { 952 + self.rng.below(18) };
        let count = 1 + self.rng.below(6.min(SHARD_BLOCKS - first));
        (first as u16, count as u16)
    }

    fn ask_put(&mut self, id: ShardId) {
        let fresh = (id, self.range());
        // Clients repeat what was not answered, and messages arrive twice.
        let (id, (block, count)) = if self.rng.chance(1, 3) { self.last_put.unwrap_or(fresh) } else { fresh };
        self.last_put = Some((id, (block, count)));
        let version = if self.rng.chance(1, 8) { self.rng.below(3) } else { 0 };
        let seeds: Vec<u64> = (0..u64::from(count))
            .map(|i| id.pack.0 ^ (u64::from(id.shard) << 40) ^ ((u64::from(block) + i) << 24) ^ (version << 20))
            .collect();
        let data = Bytes::from(seeds.iter().flat_map(|seed| content(*seed)).collect::<Vec<u8>>());
        let mut crcs = block_crcs(&data);
        if self.rng.chance(1, 50) {
            let last = crcs.len() - 1;
            crcs[last] ^= 1;
            return self.ask(Asked::Spoilt, DriveOp::Put { id, block, crcs, data });
        }
        let shard = self.shards.get_mut(&id).expect("known");
        for (i, seed) in seeds.iter().enumerate() {
            shard.blocks.entry(block + i as u16).or_default().tried.push(*seed);
            shard.ever.entry(block + i as u16).or_default().push(*seed);
        }
        let live = shard.life == Life::Live;
        self.ask(Asked::Put { id, block, seeds, live }, DriveOp::Put { id, block, crcs, data });
    }

    fn ask_read(&mut self, id: ShardId) {
        let (block, count) = self.range();
        let shard = &self.shards[&id];
        let acked = (block..block + count).map(|b| shard.blocks.get(&b).and_then(|b| b.acked)).collect();
        let live = shard.life == Life::Live;
        self.ask(Asked::Read { id, block, acked, live }, DriveOp::Read { id, block, count });
    }

    fn ask_written(&mut self, id: ShardId) {
        let shard = &self.shards[&id];
        let acked = shard.blocks.iter().filter(|(_, block)| block.acked.is_some()).map(|(at, _)| *at).collect();
        let live = shard.life == Life::Live;
        self.ask(Asked::Written { id, acked, live }, DriveOp::Written { id });
    }

    /// All that was acknowledged is among what is written, and nothing that nobody tried to write.
    fn told_written(&mut self, id: ShardId, acked: &[u16], live: bool, result: DriveResult) {
        let still_live = live && self.shards[&id].life == Life::Live;
        let Ok(DriveReply::Written(runs)) = result else {
            return assert!(!still_live || self.world == World::Errors || self.flipped, "{id:?}: {result:?}");
        };
        let of = |run: &(u16, u16, bool)| run.0..run.0 + run.1;
        let maybe: Vec<u16> = runs.iter().flat_map(of).collect();
        let has_all = acked.iter().all(|block| maybe.contains(block));
        assert!(maybe.is_sorted_by(|a, b| a < b) && (!still_live || has_all), "{id:?}: {acked:?} in {runs:?}");
        let ever = &self.shards[&id].ever;
        assert!(
            runs.iter().filter(|run| run.2).flat_map(of).all(|block| ever.contains_key(&block)),
            "{id:?}: {runs:?}"
        );
        self.count("told what is written");
    }

    fn answered(&mut self, token: OpToken, result: DriveResult) {
        match self.asked.remove(&token).expect("asked once, answered once") {
            Asked::Create { id, term, newer } => self.created(id, term, newer, result),
            Asked::Drop { id, term, newer } => self.dropped(id, term, newer, result),
            Asked::Put { id, block, seeds, live } => self.was_put(id, block, &seeds, live, result),
            Asked::Spoilt => {
                let error = result.expect_err("data that does not match its checksums is refused");
                assert_eq!(error.kind(), ErrorKind::Corrupt);
            }
            Asked::Read { id, block, acked, live } => self.was_read(id, block, &acked, live, result),
            Asked::Written { id, acked, live } => self.told_written(id, &acked, live, result),
            Asked::Report { partition } => self.reported(partition, result),
        }
    }

    fn saw_term(&mut self, id: ShardId, term: Term) {
        let seen = self.seen.entry(id.pack.partition()).or_default();
        *seen = term.max(*seen);
    }

    fn created(&mut self, id: ShardId, term: Term, newer: bool, result: DriveResult) {
        let world = self.world;
        let shard = self.shards.get_mut(&id).expect("known");
        match result {
            Ok(_) => {
                assert!(!newer, "an old term was accepted");
                if shard.life != Life::Unknown {
                    shard.life = Life::Live;
                }
                self.saw_term(id, term);
                self.count("created");
            }
            Err(error) => {
                let fresh = shard.life == Life::Creating;
                match error.kind() {
                    ErrorKind::NoSpace | ErrorKind::Stale if fresh => shard.life = Life::Gone,
                    ErrorKind::Stale => {}
                    ErrorKind::Io if world == World::Errors => shard.life = Life::Unknown,
                    _ => panic!("create: {error}"),
                }
                self.count("create refused");
            }
        }
    }

    fn dropped(&mut self, id: ShardId, term: Term, newer: bool, result: DriveResult) {
        let world = self.world;
        let shard = self.shards.get_mut(&id).expect("known");
        match result {
            Ok(_) => {
                assert!(!newer, "an old term was accepted");
                if shard.life != Life::Unknown {
                    shard.life = Life::Gone;
                    shard.blocks.clear();
                }
                self.saw_term(id, term);
                self.count("dropped");
            }
            Err(error) => match error.kind() {
                ErrorKind::Stale if shard.life == Life::Dropping => shard.life = Life::Live,
                ErrorKind::Stale => {}
                ErrorKind::Io if world == World::Errors => shard.life = Life::Unknown,
                _ => panic!("drop: {error}"),
            },
        }
    }

    fn was_put(&mut self, id: ShardId, block: u16, seeds: &[u64], live: bool, result: DriveResult) {
        let (world, flipped) = (self.world, self.flipped);
        let shard = self.shards.get_mut(&id).expect("known");
        let blocks = &mut shard.blocks;
        match result {
            Ok(_) => {
                assert!(live || shard.life != Life::Gone || flipped, "{id:?} is not here, and took a write");
                for (i, seed) in seeds.iter().enumerate() {
                    let known = blocks.entry(block + i as u16).or_default();
                    assert!(known.acked.is_none_or(|old| old == *seed) || flipped, "a written block changed (I8)");
                    known.acked = Some(*seed);
                }
                self.count("put");
            }
            Err(error) => {
                let other = |(i, seed): (usize, &u64)| {
                    blocks.get(&(block + i as u16)).is_some_and(|b| b.tried.iter().any(|t| t != seed))
                };
                match error.kind() {
                    ErrorKind::Exists => {
                        assert!(flipped || seeds.iter().enumerate().any(other), "{error}, but nothing else was put");
                        self.count("put exists");
                    }
                    ErrorKind::NotFound => {
                        assert!(!live || shard.life != Life::Live || flipped, "{error}, but it is here");
                    }
                    ErrorKind::Io => assert!(world == World::Errors, "{error}"),
                    _ => panic!("put: {error}"),
                }
            }
        }
    }

    fn was_read(&mut self, id: ShardId, block: u16, acked: &[Option<u64>], live: bool, result: DriveResult) {
        let (world, flipped) = (self.world, self.flipped);
        let shard = &self.shards[&id];
        match result {
            Ok(DriveReply::Data { data, crcs }) => {
                assert_eq!((data.len(), &crcs), (acked.len() * B, &block_crcs(&data)));
                for (i, before) in acked.iter().enumerate() {
                    let number = block + i as u16;
                    let found = &data[i * B..(i + 1) * B];
                    let empty = Vec::new();
                    let allowed = match before {
                        Some(seed) if live => vec![*seed],
                        _ if flipped || shard.life != Life::Live => shard.ever.get(&number).unwrap_or(&empty).clone(),
                        _ => shard.blocks.get(&number).map(|b| b.tried.clone()).unwrap_or_default(),
                    };
                    assert!(allowed.iter().any(|seed| content(*seed) == found), "{id:?} block {number}: wrong bytes");
                }
                self.count("read");
            }
            Ok(other) => panic!("read: {other:?}"),
            Err(error) => self.read_refused(id, acked, live, world, flipped, &error),
        }
    }

    fn read_refused(
        &mut self,
        id: ShardId,
        acked: &[Option<u64>],
        live: bool,
        world: World,
        flipped: bool,
        error: &Error,
    ) {
        let still_live = live && self.shards[&id].life == Life::Live;
        let open_block = acked.iter().any(Option::is_none);
        match error.kind() {
            ErrorKind::Invalid => {
                assert!(open_block || !still_live, "{error}, but all were acknowledged");
                self.count("read never written");
            }
            ErrorKind::Corrupt => {
                assert!(open_block || !still_live || flipped, "{error}, but all were acknowledged");
                self.count("read corrupt");
            }
            ErrorKind::NotFound => assert!(!still_live || flipped, "{error}, but it is here"),
            ErrorKind::Io => assert!(world == World::Errors, "{error}"),
            _ => panic!("read: {error}"),
        }
    }

    fn reported(&mut self, partition: PartitionId, result: DriveResult) {
        let Ok(DriveReply::Shards(found)) = result else { panic!("report: {result:?}") };
        let flipped = self.flipped;
        for (id, shard) in &mut self.shards {
            if id.pack.partition() != partition {
                continue;
            }
            let here = found.iter().any(|(there, _)| there == id);
            match shard.life {
                Life::Live => assert!(here || flipped, "{id:?} was acknowledged and is lost"),
                Life::Gone => assert!(!here || flipped, "{id:?} was dropped and is back"),
                _ => {}
            }
            shard.life = if here { Life::Live } else { Life::Gone };
            if !here {
                shard.blocks.clear();
            }
        }
    }

    /// Everything that was acknowledged is there, before and after one more crash.
    fn settle_and_check(&mut self) {
        self.disk.faults = Faults::default();
        for _ in 0..2 {
            while self.disk.in_flight() > 0 {
                self.complete();
            }
            assert!(self.asked.is_empty(), "every operation is answered");
            self.crash();
            for id in ids() {
                let numbers: Vec<u16> = self.shards[&id].blocks.keys().copied().collect();
                for block in numbers {
                    let shard = &self.shards[&id];
                    let (live, acked) = (shard.life == Life::Live, shard.blocks[&block].acked);
                    let asked = Asked::Read { id, block, acked: vec![acked], live };
                    self.ask(asked, DriveOp::Read { id, block, count: 1 });
                }
            }
        }
        while self.disk.in_flight() > 0 {
            self.complete();
        }
    }
}

fn runs(world: World, seeds: std::ops::Range<u64>, must_happen: &[&str]) {
    let mut total: BTreeMap<&str, u64> = BTreeMap::new();
    for seed in seeds {
        let counts = std::panic::catch_unwind(|| Run::new(seed, world).go(600));
        let counts = counts.unwrap_or_else(|_| panic!("seed {seed} failed"));
        for (what, n) in counts {
            *total.entry(what).or_default() += n;
        }
    }
    for what in must_happen {
        assert!(total.get(what).is_some_and(|n| *n > 20), "the runs hardly reach {what:?}: {total:?}");
    }
}

const EVERYTHING: [&str; 9] = [
    "crash",
    "created",
    "create refused",
    "dropped",
    "put",
    "put exists",
    "read",
    "read never written",
    "read corrupt",
];

#[test]
fn crashes_lose_nothing_that_was_acknowledged() {
    runs(World::Calm, 0..80, &EVERYTHING);
}

#[test]
fn device_errors_are_reported_and_nothing_is_wrong_afterwards() {
    runs(World::Errors, 1000..1080, &EVERYTHING);
}

#[test]
fn a_flipped_bit_is_never_served() {
    runs(World::OneFlip, 2000..2080, &EVERYTHING);
}
