//! Writes and reads one drive as fast as it goes: `throughput <file or block device> [blocking]`.
//! A missing file is made (1 GiB) and left there.

use std::path::PathBuf;
use std::sync::mpsc;

use braid_base::crc::block_crcs;
use braid_base::ids::{DomainId, DriveId, FsId, Guid, PackId, PartitionId, Term};
use braid_base::msg::drive::{DriveOp, DriveResult, ShardId};
use braid_base::record::PackClass;
use braid_base::{Error, ErrorKind, Result};
use braid_drive::{Drive, DriveActor, FormatParams, format_file};
use braid_io::buf::AlignedBuf;
use braid_io::chance::{self, Rng};
use braid_io::clock;
use braid_io::reactor::{Backend, Place};

const SHARD_BLOCKS: u64 = 2048;
const SHARDS: u64 = 32;

fn main() -> Result<()> {
    let mut args = std::env::args_os().skip(1);
    let usage = || Error::new(ErrorKind::Invalid, "usage: throughput <file or block device> [blocking]");
    let path = PathBuf::from(args.next().ok_or_else(usage)?);
    let backend = if args.next().is_some() { Backend::Blocking } else { Backend::Auto };
    let params = FormatParams {
        cluster: Guid([1; 16]),
        drive: chance::guid()?,
        id: DriveId(1),
        domain: DomainId(1),
        shard_bytes: SHARD_BLOCKS * 4096,
        force: false,
    };
    format_file(&path, 1 << 30, &params)?;
    let running = DriveActor::open(&path, Some(params.cluster), &Place::Thread, backend)?;
    let drive = running.drive;
    for seq in 1..=SHARDS {
        let op =
            DriveOp::Create { id: id(seq), data: 1, parity: 0, class: PackClass::User, term: Term(1), fs: FsId(1) };
        drive.ask(op)?;
    }
    let half = SHARDS / 2;
    let large = (0..half * 8).map(|i| put(1 + i / 8, (i % 8) * 256, 256));
    measure("write 1 MiB, 16 in flight", &drive, 16, 256, large)?;
    let small = (0..half * SHARD_BLOCKS).map(|i| put(half + 1 + i / SHARD_BLOCKS, i % SHARD_BLOCKS, 1));
    measure("write 4 KiB, 64 in flight", &drive, 64, 1, small)?;
    measure("read 1 MiB, 16 in flight", &drive, 16, 256, (0..half * 8).map(|i| read(1 + i / 8, (i % 8) * 256, 256)))?;
    let mut rng = Rng::new(1);
    let random = (0..100_000).map(|_| read(1 + rng.below(SHARDS), rng.below(SHARD_BLOCKS), 1));
    measure("read 4 KiB at random, 64 in flight", &drive, 64, 1, random)?;
    Ok(())
}

fn id(seq: u64) -> ShardId {
    ShardId { pack: PackId::new(PartitionId(0), seq), shard: 0 }
}

fn put(seq: u64, block: u64, count: usize) -> DriveOp {
    let mut data = AlignedBuf::zeroed(count * 4096);
    data[..8].copy_from_slice(&(seq << 20 | block).to_le_bytes());
    let data = data.into_bytes();
    DriveOp::Put { id: id(seq), block: block as u16, crcs: block_crcs(&data), data }
}

fn read(seq: u64, block: u64, count: u16) -> DriveOp {
    DriveOp::Read { id: id(seq), block: block as u16, count }
}

fn measure(what: &str, drive: &Drive, depth: usize, blocks: u64, ops: impl Iterator<Item = DriveOp>) -> Result<()> {
    let (done, answers) = mpsc::channel::<DriveResult>();
    let (mut sent, mut got) = (0u64, 0u64);
    let start = clock::mono_ms();
    let wait = |got: &mut u64| -> Result<()> {
        *got += 1;
        answers.recv().map_err(|_| ErrorKind::Stopped)?.map(|_| ())
    };
    for op in ops {
        if sent - got == depth as u64 {
            wait(&mut got)?;
        }
        let done = done.clone();
        // The receiver lives until all answers are there.
        drive.call(op, move |result| drop(done.send(result)));
        sent += 1;
    }
    while got < sent {
        wait(&mut got)?;
    }
    let ms = (clock::mono_ms() - start).max(1);
    println!("{what}: {} MiB/s, {} per second", sent * blocks * 4096 / 1048 / ms, sent * 1000 / ms);
    Ok(())
}
