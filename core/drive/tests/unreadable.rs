//! Checksum pages that the device cannot read: they cost their own blocks, and only while that is so.

use braid_base::ErrorKind;
use braid_base::attr::Time;
use braid_base::crc::block_crcs;
use braid_base::ids::{DomainId, DriveId, FsId, Guid, PackId, PartitionId, Term};
use braid_base::msg::drive::{DriveOp, DriveReply, DriveResult, ShardId};
use braid_base::record::PackClass;
use braid_base::{Error, Result};
use braid_drive::{Effect, Event, FormatParams, OpToken, Side, SlotNo, Target, format, open};
use braid_io::clock::Now;
use braid_io::file::{OpenMode, ReadAt};
use braid_io::reactor::{FileId, IoDone};
use braid_io::sim::SimDisk;
use bytes::Bytes;

const B: usize = 4096;
/// Two checksum pages, the second with ten blocks only.
const SHARD_BLOCKS: u64 = 970;

/// A drive whose I/O ends at once.
struct Scene {
    disk: SimDisk,
    file: FileId,
    target: Target,
    now: Now,
    /// Offsets of blocks that cannot be read.
    bad: Vec<u64>,
    id: ShardId,
}

impl Scene {
    fn new() -> Self {
        let mut disk = SimDisk::new();
        let file = disk.open("drive", OpenMode::new_file((2 + 6 * (6 + SHARD_BLOCKS)) * B as u64)).expect("made");
        let params = FormatParams {
            cluster: Guid([9; 16]),
            drive: Guid([1; 16]),
            id: DriveId(3),
            domain: DomainId(1),
            shard_bytes: SHARD_BLOCKS * B as u64,
            force: false,
        };
        let now = Now { mono_ms: 1000, mono_us: 1_000_000, wall: Time { sec: 1_800_000_000, nsec: 0 } };
        let (_, writes) = format(&disk.view(file), &params, now).expect("formatted");
        writes.into_iter().for_each(|(at, data)| disk.write_now(file, at, &data));
        let target = open(&disk.view(file), None, false, now).expect("opens").target;
        let id = ShardId { pack: PackId::new(PartitionId(0), 1), shard: 0 };
        Self { disk, file, target, now, bad: Vec::new(), id }
    }

    fn ask(&mut self, op: DriveOp) -> DriveResult {
        let mut events = vec![Event::Op { token: OpToken(1), op }];
        let mut answer = None;
        while let Some(event) = events.pop() {
            let mut effects = Vec::new();
            self.target.step(self.now, event, &mut effects);
            for effect in effects {
                let (token, result) = match effect {
                    Effect::Read { token, off, len } => (token, self.read(off, len)),
                    Effect::Write { token, off, data, .. } => {
                        self.disk.write_now(self.file, off, &data);
                        (token, Ok(IoDone::Done))
                    }
                    Effect::Sync { token } | Effect::Discard { token, .. } => (token, Ok(IoDone::Done)),
                    Effect::Reply { result, .. } => {
                        answer = Some(result);
                        continue;
                    }
                };
                events.push(Event::Io { token, result });
            }
        }
        answer.expect("every operation is answered")
    }

    fn read(&self, off: u64, len: usize) -> Result<IoDone> {
        if self.bad.iter().any(|bad| (off..off + len as u64).contains(bad)) {
            return Err(Error::new(ErrorKind::Io, "a sector cannot be read"));
        }
        self.disk.view(self.file).read_at(off, len).map(IoDone::Read)
    }

    fn put(&mut self, block: u16, count: u16) -> DriveResult {
        let data = Bytes::from((0..usize::from(count) * B).map(|i| (i + usize::from(block)) as u8).collect::<Vec<_>>());
        self.ask(DriveOp::Put { id: self.id, block, crcs: block_crcs(&data), data })
    }

    fn get(&mut self, block: u16) -> std::result::Result<(), ErrorKind> {
        self.ask(DriveOp::Read { id: self.id, block, count: 1 }).map(drop).map_err(|error| error.kind())
    }

    fn written(&mut self) -> Vec<(u16, u16, bool)> {
        match self.ask(DriveOp::Written { id: self.id }) {
            Ok(DriveReply::Written(runs)) => runs,
            other => panic!("{other:?}"),
        }
    }

    /// As after a restart: nothing is cached.
    fn open_anew(&mut self) {
        self.target = open(&self.disk.view(self.file), None, false, self.now).expect("opens").target;
    }

    /// Where a copy of a checksum page lies.
    fn page(&self, page: usize, side: Side) -> u64 {
        self.target.superblock().layout.page(SlotNo(0), page, side)
    }
}

/// Some blocks of both pages of a shard, each page written once.
fn scene() -> Scene {
    let mut scene = Scene::new();
    let (id, class, term) = (scene.id, PackClass::User, Term(1));
    scene.ask(DriveOp::Create { id, data: 2, parity: 1, class, term, fs: FsId(1) }).expect("made");
    scene.put(0, 4).expect("written");
    scene.put(965, 3).expect("written");
    scene.open_anew();
    scene
}

#[test]
fn a_page_that_cannot_be_read_costs_its_own_blocks() {
    let mut scene = scene();
    scene.bad = vec![scene.page(0, Side::A), scene.page(0, Side::B)];
    assert_eq!(scene.written(), [(0, 960, false), (965, 3, true)], "the shard is there, and who asks hears so");
    assert_eq!((scene.get(0), scene.get(900)), (Err(ErrorKind::Io), Err(ErrorKind::Io)));
    assert_eq!((scene.get(965), scene.get(968)), (Ok(()), Err(ErrorKind::Invalid)));
    // What cannot be read now may be read again, and then counts.
    assert_eq!(scene.put(0, 4).expect_err("nobody knows what is there").kind(), ErrorKind::Io);
    assert_eq!(scene.put(8, 1).expect_err("nor there").kind(), ErrorKind::Io);
    scene.put(968, 1).expect("the other page is sound");
    scene.bad.clear();
    assert_eq!(scene.get(0), Err(ErrorKind::Io), "not at once");
    scene.now.mono_ms += 1_000;
    assert_eq!((scene.get(0), scene.get(8), scene.get(968)), (Ok(()), Err(ErrorKind::Invalid), Ok(())));
    scene.put(8, 1).expect("all is known");
}

#[test]
fn a_copy_that_cannot_be_read_costs_what_the_other_does_not_show() {
    for side in [Side::A, Side::B] {
        let mut scene = scene();
        scene.bad = vec![scene.page(0, side)];
        // The first write of a page goes to A.
        let shown = side == Side::B;
        assert_eq!(scene.get(3).is_ok(), shown);
        assert_eq!((scene.get(4), scene.get(965)), (Err(ErrorKind::Io), Ok(())));
        assert_eq!(scene.put(4, 1).expect_err("the copy may say more").kind(), ErrorKind::Io);
        scene.bad.clear();
        scene.open_anew();
        assert_eq!((scene.get(3), scene.get(4)), (Ok(()), Err(ErrorKind::Invalid)), "nothing was written over it");
    }
}
