//! Formatting and opening: nobody's data is lost, and what is wrong is said.

use braid_base::attr::Time;
use braid_base::ids::{DomainId, DriveId, FsId, Guid, PackId, PartitionId, Term};
use braid_base::limits::{DRIVE_CALM_MS, DRIVE_OPS_MAX, DRIVE_SLOW_MS};
use braid_base::msg::drive::{DriveOp, DriveReply, DriveResult, ShardId, Trouble};
use braid_base::record::PackClass;
use braid_base::{Error, ErrorKind};
use braid_drive::{Effect, Event, FormatParams, OpToken, Side, Target, format, open};
use braid_io::chance::Rng;
use braid_io::clock::Now;
use braid_io::file::OpenMode;
use braid_io::reactor::{FileId, IoDone, IoOp};
use braid_io::sim::SimDisk;
use bytes::Bytes;

const B: u64 = 4096;
const SIZE: u64 = 8 << 20;
const OURS: Guid = Guid([1; 16]);
const NOW: Now = Now { mono_ms: 5, mono_us: 5_000, wall: Time { sec: 1_800_000_000, nsec: 0 } };

fn params() -> FormatParams {
    FormatParams {
        cluster: OURS,
        drive: Guid([2; 16]),
        id: DriveId(4),
        domain: DomainId(5),
        shard_bytes: 1 << 20,
        force: false,
    }
}

struct Bench {
    disk: SimDisk,
    file: FileId,
    rng: Rng,
}

impl Bench {
    fn blank(size: u64) -> Self {
        let mut disk = SimDisk::new();
        let file = disk.open("drive", OpenMode::new_file(size)).expect("made");
        Self { disk, file, rng: Rng::new(1) }
    }

    fn formatted() -> Self {
        let mut bench = Self::blank(SIZE);
        bench.format(&params()).expect("blank");
        bench
    }

    fn format(&mut self, params: &FormatParams) -> Result<(), Error> {
        let (_, writes) = format(&self.disk.view(self.file), params, NOW)?;
        for (at, data) in writes {
            self.disk.write_now(self.file, at, &data);
        }
        Ok(())
    }

    fn open(&self) -> Result<braid_drive::Opened, Error> {
        open(&self.disk.view(self.file), Some(OURS), true, NOW)
    }

    /// Carries out one operation to its end; the answer and the effects other than reads and writes.
    fn run(&mut self, target: &mut Target, now: Now, event: Event) -> Option<DriveResult> {
        let (mut answer, mut effects) = (None, Vec::new());
        target.step(now, event, &mut effects);
        let file = self.file;
        loop {
            for effect in effects.drain(..) {
                match effect {
                    Effect::Read { token, off, len } => self.disk.submit(token, IoOp::Read { file, off, len }),
                    Effect::Write { token, off, data, durable } => {
                        self.disk.submit(token, IoOp::Write { file, off, data: vec![data], durable });
                    }
                    Effect::Sync { token } => self.disk.submit(token, IoOp::Sync { file }),
                    Effect::Discard { token, off, len } => self.disk.submit(token, IoOp::Discard { file, off, len }),
                    Effect::Reply { result, .. } => answer = Some(result),
                }
            }
            if self.disk.in_flight() == 0 {
                return answer;
            }
            for (token, result) in self.disk.complete_some(&mut self.rng) {
                target.step(now, Event::Io { token, result }, &mut effects);
            }
        }
    }

    fn ask(&mut self, target: &mut Target, op: DriveOp) -> DriveResult {
        self.run(target, NOW, Event::Op { token: OpToken(0), op }).expect("answered")
    }
}

fn shard(seq: u64) -> ShardId {
    ShardId { pack: PackId::new(PartitionId(0), seq), shard: 0 }
}

fn create(seq: u64) -> DriveOp {
    DriveOp::Create { id: shard(seq), data: 1, parity: 1, class: PackClass::User, term: Term(1), fs: FsId(1) }
}

fn put(seq: u64, block: u16, byte: u8) -> DriveOp {
    let data = Bytes::from(vec![byte; B as usize]);
    DriveOp::Put { id: shard(seq), block, crcs: braid_base::crc::block_crcs(&data), data }
}

fn kind(result: DriveResult) -> ErrorKind {
    result.expect_err("refused").kind()
}

fn free(bench: &mut Bench, target: &mut Target) -> u32 {
    match bench.ask(target, DriveOp::Stat) {
        Ok(DriveReply::Stat(stat)) => stat.free,
        other => panic!("stat: {other:?}"),
    }
}

/// What it says of its health at `ms`, and the I/O that it asks for with that.
fn looked(target: &mut Target, ms: u64) -> (Option<Trouble>, Vec<Effect>) {
    let (mut effects, now) = (Vec::new(), Now { mono_ms: ms, ..NOW });
    target.step(now, Event::Op { token: OpToken(9), op: DriveOp::Stat }, &mut effects);
    let mut said = None;
    effects.retain(|effect| match effect {
        Effect::Reply { result: Ok(DriveReply::Stat(stat)), .. } => {
            said = Some(stat.trouble);
            false
        }
        _ => true,
    });
    (said.expect("it always answers"), effects)
}

#[test]
fn a_write_that_takes_too_long_is_trouble_until_a_probe_was_quick() {
    let bench = Bench::formatted();
    let mut target = bench.open().expect("formatted").target;
    let mut effects = Vec::new();
    target.step(NOW, Event::Op { token: OpToken(1), op: create(1) }, &mut effects);
    let Some(Effect::Write { token: header, .. }) = effects.pop() else { panic!("{effects:?}") };
    assert!(matches!(looked(&mut target, NOW.mono_ms + DRIVE_SLOW_MS - 1), (None, io) if io.is_empty()));
    let at = NOW.mono_ms + DRIVE_SLOW_MS;
    let (trouble, mut io) = looked(&mut target, at);
    assert_eq!(trouble, Some(Trouble::Slow), "while it is still under way");
    let Some(Effect::Write { token, off, data, durable: true }) = io.pop() else { panic!("no probe: {io:?}") };
    assert_eq!(off, target.superblock().layout.superblock(Side::B));
    let ended = |target: &mut Target, ms, token, done| {
        let mut effects = Vec::new();
        target.step(Now { mono_ms: ms, ..NOW }, Event::Io { token, result: Ok(done) }, &mut effects);
        effects
    };
    ended(&mut target, at + 1, header, IoDone::Done);
    let read = ended(&mut target, at + 2, token, IoDone::Done).pop();
    let Some(Effect::Read { token, .. }) = read else { panic!("{read:?}") };
    ended(&mut target, at + 3, token, IoDone::Read(data));
    assert_eq!(looked(&mut target, at + DRIVE_CALM_MS).0, Some(Trouble::Slow));
    assert_eq!(looked(&mut target, at + 1 + DRIVE_CALM_MS).0, None);
    let error = Error::new(ErrorKind::NoSpace, "thin");
    target.step(NOW, Event::Op { token: OpToken(2), op: create(2) }, &mut effects);
    let Some(Effect::Write { token, .. }) = effects.pop() else { panic!("{effects:?}") };
    target.step(NOW, Event::Io { token, result: Err(error) }, &mut effects);
    assert_eq!(looked(&mut target, NOW.mono_ms).0, Some(Trouble::Full));
}

#[test]
fn foreign_data_is_not_formatted_over() {
    let signatures: [(u64, &[u8], &str); 8] = [
        (0x438, &[0x53, 0xEF], "ext4"),
        (0, b"XFSB", "XFS"),
        (0x1_0040, b"_BHRfS_M", "btrfs"),
        (512, b"EFI PART", "GPT"),
        (510, &[0x55, 0xAA], "MBR"),
        (4086, b"SWAPSPACE2", "swap"),
        (2000, b"x", "byte 2000"),
        (SIZE - 1, b"x", &(SIZE - 1).to_string()),
    ];
    for (at, magic, name) in signatures {
        let mut bench = Bench::blank(SIZE);
        bench.disk.write_now(bench.file, at, magic);
        let error = bench.format(&params()).expect_err("in use");
        assert_eq!(error.kind(), ErrorKind::Refused);
        assert!(error.message().contains(name), "expected {name} in: {error}");
        bench.format(&FormatParams { force: true, ..params() }).expect("forced");
        bench.open().expect("a forced format is as good as another");
    }
}

#[test]
fn a_drive_of_ours_is_formatted_again_only_while_it_is_empty() {
    let mut bench = Bench::formatted();
    bench.format(&params()).expect("a repeated format of an empty drive");
    let mut target = bench.open().expect("opens").target;
    bench.ask(&mut target, create(1)).expect("created");
    let error = bench.format(&params()).expect_err("it holds a shard");
    assert!(error.message().contains("1 shards"), "{error}");
    let theirs = Guid([7; 16]);
    let error = bench.format(&FormatParams { cluster: theirs, ..params() }).expect_err("another cluster's");
    assert_eq!(error.kind(), ErrorKind::Refused);
    assert!(error.message().contains(&theirs.to_string()) && error.message().contains(&OURS.to_string()), "{error}");
    // Forced, under a new identity: nothing of the old life is found.
    bench.format(&FormatParams { force: true, drive: Guid([3; 16]), ..params() }).expect("forced");
    let mut target = bench.open().expect("opens").target;
    assert_eq!(target.shards(), 0);
    bench.ask(&mut target, create(1)).expect("created");
    let read = bench.ask(&mut target, DriveOp::Read { id: shard(1), block: 0, count: 1 });
    assert_eq!(kind(read), ErrorKind::Invalid);
}

#[test]
fn too_small_says_how_much_is_needed() {
    let mut bench = Bench::blank(2 << 20);
    let error = bench.format(&params()).expect_err("too small");
    assert_eq!(error.kind(), ErrorKind::Refused);
    assert!(error.message().contains("needed") && error.message().contains("2097152"), "{error}");
}

#[test]
fn one_bad_superblock_is_mended_two_are_not() {
    for side in [Side::A, Side::B] {
        let mut bench = Bench::formatted();
        let at = bench.open().expect("opens").target.superblock().layout.superblock(side);
        bench.disk.flip(bench.file, at + 40, 1);
        let opened = bench.open().expect("the other copy serves");
        assert_eq!(opened.repairs.len(), 1);
        assert!(opened.notes[0].contains("checksum"), "{:?}", opened.notes);
        for (at, data) in opened.repairs {
            bench.disk.write_now(bench.file, at, &data);
        }
        let again = bench.open().expect("mended");
        assert!(again.repairs.is_empty() && again.notes.is_empty());
    }
    let mut bench = Bench::formatted();
    let layout = bench.open().expect("opens").target.superblock().layout;
    bench.disk.flip(bench.file, layout.superblock(Side::A) + 40, 1);
    bench.disk.flip(bench.file, layout.superblock(Side::B) + 9, 1);
    let error = bench.open().err().expect("both are bad");
    assert_eq!(error.kind(), ErrorKind::Corrupt);
    assert_eq!(bench.format(&params()).expect_err("may still be somebody's").kind(), ErrorKind::Refused);
}

#[test]
fn drives_of_others_blank_ones_and_cut_ones_are_not_opened() {
    let mut bench = Bench::blank(SIZE);
    assert_eq!(bench.open().err().expect("blank").kind(), ErrorKind::Refused);
    bench.format(&FormatParams { cluster: Guid([7; 16]), ..params() }).expect("blank");
    let error = bench.open().err().expect("another cluster's");
    assert_eq!(error.kind(), ErrorKind::Refused);
    assert!(error.message().contains("07070707") && error.message().contains("01010101"), "{error}");

    let whole = Bench::formatted();
    let mut cut = Bench::blank(SIZE / 2);
    let first = braid_io::file::ReadAt::read_at(&whole.disk.view(whole.file), 0, B as usize).expect("read");
    cut.disk.write_now(cut.file, 0, &first);
    let error = cut.open().err().expect("cut");
    assert!(error.message().contains("shrank"), "{error}");
}

#[test]
fn a_full_drive_says_so_and_takes_from_quarantine_when_it_must() {
    let mut bench = Bench::formatted();
    let mut target = bench.open().expect("opens").target;
    let slots = u64::from(target.stat().slots);
    for seq in 1..=slots {
        bench.ask(&mut target, create(seq)).expect("created");
    }
    bench.ask(&mut target, put(2, 0, 0xAA)).expect("put");
    assert_eq!(kind(bench.ask(&mut target, create(100))), ErrorKind::NoSpace);
    bench.ask(&mut target, DriveOp::Drop { id: shard(2), term: Term(1) }).expect("dropped");
    bench.ask(&mut target, DriveOp::Drop { id: shard(3), term: Term(1) }).expect("dropped");
    assert_eq!(free(&mut bench, &mut target), 2);
    // Needed at once: the slot of shard 2, whose bytes are still there, and are not shown.
    bench.ask(&mut target, create(100)).expect("created");
    let read = bench.ask(&mut target, DriveOp::Read { id: shard(100), block: 0, count: 1 });
    assert_eq!(kind(read), ErrorKind::Invalid);
    let read = bench.ask(&mut target, DriveOp::Read { id: shard(2), block: 0, count: 1 });
    assert_eq!(kind(read), ErrorKind::NotFound);
    // The other one waits out its time, is discarded, and is free over a restart.
    let due = target.next_tick_ms().expect("one is in quarantine");
    assert_eq!(due, NOW.mono_ms + 600_000);
    let later = Now { mono_ms: due, ..NOW };
    bench.run(&mut target, Now { mono_ms: due - 1, ..NOW }, Event::Tick);
    assert!(target.next_tick_ms().is_some(), "not a moment too early");
    bench.run(&mut target, later, Event::Tick);
    assert_eq!((target.next_tick_ms(), free(&mut bench, &mut target)), (None, 1));
    let target = bench.open().expect("opens").target;
    assert_eq!((target.next_tick_ms(), target.shards() as u64, target.stat().free), (None, slots - 1, 1));
}

#[test]
fn nonsense_is_refused_before_anything_is_written() {
    let mut bench = Bench::formatted();
    let mut target = bench.open().expect("opens").target;
    bench.ask(&mut target, create(1)).expect("created");
    bench.ask(&mut target, create(1)).expect("repeating is fine");
    let writes = bench.disk.counts.writes;
    let block = Bytes::from(vec![1; B as usize]);
    let crcs = braid_base::crc::block_crcs(&block);
    let id = shard(1);
    let cases = [
        (DriveOp::Put { id, block: 0, crcs: vec![], data: Bytes::new() }, ErrorKind::Invalid),
        (DriveOp::Put { id, block: 0, crcs: vec![], data: block.clone() }, ErrorKind::Invalid),
        (DriveOp::Put { id, block: 0, crcs: crcs.clone(), data: block.slice(1..) }, ErrorKind::Invalid),
        (DriveOp::Put { id, block: 256, crcs: crcs.clone(), data: block.clone() }, ErrorKind::Invalid),
        (DriveOp::Put { id, block: 0, crcs: vec![5], data: block.clone() }, ErrorKind::Corrupt),
        (DriveOp::Put { id: shard(2), block: 0, crcs, data: block }, ErrorKind::NotFound),
        (DriveOp::Read { id, block: 0, count: 0 }, ErrorKind::Invalid),
        (DriveOp::Read { id, block: 255, count: 2 }, ErrorKind::Invalid),
        (DriveOp::Read { id: shard(2), block: 0, count: 1 }, ErrorKind::NotFound),
        (DriveOp::Drop { id, term: Term(0) }, ErrorKind::Stale),
        (
            DriveOp::Create {
                id: ShardId { shard: 2, ..shard(3) },
                data: 1,
                parity: 1,
                class: PackClass::Gc,
                term: Term(1),
                fs: FsId(1),
            },
            ErrorKind::Invalid,
        ),
    ];
    for (op, expected) in cases {
        let words = format!("{op:?}");
        assert_eq!(kind(bench.ask(&mut target, op)), expected, "{words}");
    }
    bench.ask(&mut target, DriveOp::Drop { id: shard(9), term: Term(1) }).expect("dropping the unknown is fine");
    assert_eq!(bench.disk.counts.writes, writes);
}

#[test]
fn puts_to_one_page_share_its_writes() {
    let mut bench = Bench::formatted();
    let mut target = bench.open().expect("opens").target;
    bench.ask(&mut target, create(1)).expect("created");
    let mut effects = Vec::new();
    for block in 0..50 {
        target.step(NOW, Event::Op { token: OpToken(block), op: put(1, block as u16, block as u8) }, &mut effects);
    }
    let (mut data, mut pages, mut syncs, mut replies, mut rounds) = (0, 0, 0, 0, 0);
    while !effects.is_empty() {
        rounds += 1;
        for effect in std::mem::take(&mut effects) {
            match effect {
                Effect::Write { token, off, .. } => {
                    let is_data = off >= target.superblock().layout.data(braid_drive::SlotNo(0), 0);
                    *(if is_data { &mut data } else { &mut pages }) += 1;
                    target.step(NOW, Event::Io { token, result: Ok(braid_io::reactor::IoDone::Done) }, &mut effects);
                }
                Effect::Sync { token } => {
                    syncs += 1;
                    target.step(NOW, Event::Io { token, result: Ok(braid_io::reactor::IoDone::Done) }, &mut effects);
                }
                Effect::Reply { result, .. } => {
                    result.expect("put");
                    replies += 1;
                }
                other => panic!("{other:?}"),
            }
        }
    }
    let expected = (50, 2, 2, 50);
    assert_eq!((data, pages, syncs, replies), expected, "the first put's page write, then one for the other 49");
    assert!(rounds <= 6);
}

#[test]
fn too_many_at_once_are_told_to_come_back() {
    let bench = Bench::formatted();
    let mut target = bench.open().expect("opens").target;
    let mut effects = Vec::new();
    let mut id = 0;
    while effects.iter().all(|effect| !matches!(effect, Effect::Reply { .. })) {
        id += 1;
        assert!(id <= DRIVE_OPS_MAX as u64 + 1);
        // All wait for the same slot header.
        target.step(NOW, Event::Op { token: OpToken(id), op: create(1) }, &mut effects);
    }
    assert_eq!(id, DRIVE_OPS_MAX as u64 + 1);
    let Some(Effect::Reply { token, result }) = effects.pop() else { panic!("a reply ended the loop") };
    assert_eq!((token, kind(result)), (OpToken(id), ErrorKind::Busy));
}
