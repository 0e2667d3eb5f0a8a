//! Drives in real files, through both I/O engines.

use std::path::PathBuf;
use std::sync::{LazyLock, mpsc};

use braid_base::ErrorKind;
use braid_base::crc::block_crcs;
use braid_base::ids::{DomainId, DriveId, FsId, Guid, PackId, PartitionId, Term};
use braid_base::msg::drive::{DriveOp, DriveReply, ShardId};
use braid_base::record::PackClass;
use braid_drive::{Drive, DriveActor, FormatParams, format_file};
use braid_io::chance::{self, Rng};
use braid_io::file;
use braid_io::reactor::{Backend, Place};
use bytes::Bytes;
use tokio::runtime::Runtime;

const OURS: Guid = Guid([1; 16]);

/// On a thread of its own and as part of a runtime, over both engines.
fn ways() -> impl Iterator<Item = (Place, Backend)> {
    static RUNTIME: LazyLock<Runtime> = LazyLock::new(|| {
        let one = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build();
        one.expect("a runtime")
    });
    let places = [Place::Thread, Place::beside(RUNTIME.handle())];
    places.into_iter().flat_map(|place| [Backend::Uring, Backend::Blocking].map(|engine| (place.clone(), engine)))
}

struct Dir(PathBuf);

impl Dir {
    fn new() -> Self {
        let path = std::env::temp_dir().join(format!("braid-drive-{}", chance::guid().expect("random")));
        file::make_dir(&path).expect("a directory in the temporary folder");
        Self(path)
    }
}

impl Drop for Dir {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn params() -> FormatParams {
    let drive = chance::guid().expect("random");
    FormatParams { cluster: OURS, drive, id: DriveId(4), domain: DomainId(5), shard_bytes: 1 << 20, force: false }
}

fn shard(seq: u64) -> ShardId {
    ShardId { pack: PackId::new(PartitionId(3), seq), shard: 1 }
}

fn create(drive: &Drive, seq: u64) {
    let op = DriveOp::Create { id: shard(seq), data: 2, parity: 1, class: PackClass::User, term: Term(1), fs: FsId(1) };
    drive.ask(op).expect("created");
}

fn noise(seed: u64, blocks: usize) -> Bytes {
    let mut bytes = vec![0; blocks * 4096];
    Rng::new(seed).fill(&mut bytes);
    Bytes::from(bytes)
}

fn read(drive: &Drive, seq: u64, block: u16, count: u16) -> Bytes {
    match drive.ask(DriveOp::Read { id: shard(seq), block, count }) {
        Ok(DriveReply::Data { data, crcs }) => {
            assert_eq!(crcs, block_crcs(&data));
            data
        }
        other => panic!("read: {other:?}"),
    }
}

#[test]
fn what_was_put_is_there_after_reopening() {
    for (place, engine) in ways() {
        let dir = Dir::new();
        let path = dir.0.join("drive");
        let made = format_file(&path, 16 << 20, &params()).expect("formatted");
        let running = DriveActor::open(&path, Some(OURS), &place, engine).expect("opens");
        assert_eq!(running.superblock, made);
        for seq in 1..=4 {
            create(&running.drive, seq);
        }
        // Many at once, of all sizes, from several threads.
        std::thread::scope(|scope| {
            for seq in 1..=4u64 {
                let drive = running.drive.clone();
                scope.spawn(move || {
                    let (done, answers) = mpsc::channel();
                    let data = noise(seq, 256);
                    let mut block = 0;
                    let mut sent = 0;
                    while block < 250 {
                        let count = 1 + (block * 7 + seq as usize) % 13;
                        let piece = data.slice(block * 4096..(block + count).min(250) * 4096);
                        let op =
                            DriveOp::Put { id: shard(seq), block: block as u16, crcs: block_crcs(&piece), data: piece };
                        let done = done.clone();
                        drive.call(op, move |result| done.send(result).expect("the test listens"));
                        block += count;
                        sent += 1;
                    }
                    for _ in 0..sent {
                        answers.recv().expect("an answer").expect("put");
                    }
                });
            }
        });
        let second = DriveActor::open(&path, Some(OURS), &place, engine).err().expect("one process, one drive");
        assert_eq!(second.kind(), ErrorKind::Refused);
        drop(running.drive);
        running.ending.wait();

        let running = DriveActor::open(&path, Some(OURS), &place, engine).expect("opens again");
        assert!(running.notes.is_empty(), "{:?}", running.notes);
        for seq in 1..=4 {
            assert_eq!(read(&running.drive, seq, 0, 250), noise(seq, 256).slice(..250 * 4096), "{engine:?} {seq}");
            assert_eq!(read(&running.drive, seq, 77, 1), noise(seq, 256).slice(77 * 4096..78 * 4096));
        }
        let unwritten = running.drive.ask(DriveOp::Read { id: shard(1), block: 249, count: 2 });
        assert_eq!(unwritten.expect_err("block 250 was never written").kind(), ErrorKind::Invalid);
        let piece = noise(99, 1);
        let op = DriveOp::Put { id: shard(1), block: 3, crcs: block_crcs(&piece), data: piece };
        assert_eq!(running.drive.ask(op).expect_err("written once").kind(), ErrorKind::Exists);
        let same = noise(1, 256).slice(3 * 4096..4 * 4096);
        let op = DriveOp::Put { id: shard(1), block: 3, crcs: block_crcs(&same), data: same };
        running.drive.ask(op).expect("identical bytes");
        running.drive.ask(DriveOp::Drop { id: shard(1), term: Term(1) }).expect("dropped");
        let gone = running.drive.ask(DriveOp::Read { id: shard(1), block: 0, count: 1 });
        assert_eq!(gone.expect_err("dropped").kind(), ErrorKind::NotFound);
        match running.drive.ask(DriveOp::Report { partition: PartitionId(3) }) {
            Ok(DriveReply::Shards(shards)) => assert_eq!(shards, [2, 3, 4].map(|seq| (shard(seq), Term(1)))),
            other => panic!("report: {other:?}"),
        }
    }
}

#[test]
fn damage_on_the_medium_is_seen() {
    for (place, engine) in ways() {
        let dir = Dir::new();
        let path = dir.0.join("drive");
        let layout = format_file(&path, 8 << 20, &params()).expect("formatted").layout;
        let running = DriveActor::open(&path, None, &place, engine).expect("opens");
        create(&running.drive, 1);
        let data = noise(5, 4);
        let op = DriveOp::Put { id: shard(1), block: 0, crcs: block_crcs(&data), data: data.clone() };
        running.drive.ask(op).expect("put");
        let raw = file::File::open(&path, file::OpenMode::WRITE).expect("a second look");
        raw.write_at(layout.data(braid_drive::SlotNo(0), 2), &Bytes::from(vec![0; 4096])).expect("damaged");
        let read_bad = running.drive.ask(DriveOp::Read { id: shard(1), block: 0, count: 4 });
        let error = read_bad.expect_err("zeros are never passed off as data");
        assert_eq!(error.kind(), ErrorKind::Corrupt);
        assert!(error.message().contains("block 2"), "{error}");
        assert_eq!(read(&running.drive, 1, 0, 2), data.slice(..8192));
        match running.drive.ask(DriveOp::Stat) {
            Ok(DriveReply::Stat(stat)) => assert_eq!((stat.corrupt, stat.errors), (1, 0)),
            other => panic!("stat: {other:?}"),
        }
    }
}

#[test]
fn callers_of_a_stopped_drive_get_an_answer() {
    for (place, engine) in ways() {
        let dir = Dir::new();
        let path = dir.0.join("drive");
        format_file(&path, 8 << 20, &params()).expect("formatted");
        let running = DriveActor::open(&path, Some(OURS), &place, engine).expect("opens");
        let drive = running.drive.clone();
        // An answer that panics ends the drive; everybody else must hear of it.
        drive.call(DriveOp::Stat, |_| panic!("a caller's fault"));
        running.ending.wait();
        assert_eq!(drive.ask(DriveOp::Stat).expect_err("stopped").kind(), ErrorKind::Stopped);
    }
}

#[test]
fn formatting_what_exists_is_refused_unless_it_is_blank() {
    let dir = Dir::new();
    let path = dir.0.join("drive");
    std::fs::write(&path, b"somebody's letters").expect("written");
    let error = format_file(&path, 8 << 20, &params()).expect_err("too small, and not ours");
    assert_eq!(error.kind(), ErrorKind::Refused);
    assert_eq!(std::fs::read(&path).expect("read"), b"somebody's letters");
    let big = dir.0.join("big");
    let mut letters = vec![0; 8 << 20];
    letters[..5].copy_from_slice(b"hello");
    std::fs::write(&big, &letters).expect("written");
    let error = format_file(&big, 0, &params()).expect_err("not blank");
    assert!(error.message().contains("unknown data") && error.message().contains("big"), "{error}");
    assert!(std::fs::read(&big).expect("read") == letters, "nothing was written");
}
