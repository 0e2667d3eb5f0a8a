//! Carries out bulk work that a partition planned. A move reads the parts, codes them, writes the stripes:
//!
//! 1. every part of a stripe is read through the [`Reader`], reconstructed if need be;
//! 2. the logical bytes are padded with zeros to D units and coded;
//! 3. all D+P shards are written in parallel; all must be acknowledged, else the job fails and the partition
//!    abandons the ranges. A repeated write of the same bytes succeeds, so a lost answer costs only time.
//!
//! A rebuild makes one shard anew:
//! 1. the partition says which rows are committed. What drives say of their blocks is not asked: a lost checksum page
//!    takes the marks with it, and a shard would be made without them;
//! 2. those are read from D of the other shards, computed, and written to the new drive; or copied, as far as the shard
//!    itself can still be read. A shard that is made whole where it is gets what can be computed: a block that is as it
//!    should be is left alone by its drive;
//! 3. a block that cannot be computed any more does not keep the others from being made: it is left out, so that reads of
//!    it go on to fail. Of a shard that never comes back, as somebody said, all blocks are lost.
//!
//! An object that is put into its store: see [`upload`]. A check of a pack: see [`scrub`].

mod scrub;
mod upload;

use std::collections::BTreeMap;

use braid_base::ids::{BlobId, Index, PackId};
use braid_base::limits::BLOCK;
use braid_base::msg::drive::{DriveOp, DriveReply, ShardId};
use braid_base::msg::job::{Job, MoveJob, Part, RebuildJob, Source, StripePlan};
use braid_base::record::{ObjectAt, Place, Placement};
use braid_base::{Error, ErrorKind, Result};
use bytes::Bytes;

use crate::join::{ask_drive, join_bounded};
use crate::objects::Objects;
use crate::reader::{READ_WAITS_MS, Reader, StageSource, code_of};
use crate::stripe;
use crate::wire::BoxFuture;

pub use scrub::scrub;

/// Stripes of a job in flight at a time: the memory of a move is about this many times 1.5 MiB (4+2).
const STRIPES_AT_ONCE: usize = 4;
/// Parts of one stripe that are read at a time.
const PARTS_AT_ONCE: usize = 16;
/// How long a drive may be silent before a write is repeated, milliseconds; after the last it has failed. A slow drive
/// has 14 s in all, and a lost message costs little of that.
const PUT_WAITS_MS: [u64; 4] = [1_000, 2_000, 4_000, 7_000];
/// How much later than the others a drive may be, milliseconds: longer than one that is not called slow takes for a put,
/// which is several requests. There may be no other drive to move to.
const LATE_MS: u64 = 10_000;

/// Bytes of a shard that are made anew in one go.
const REBUILD_BLOCKS: u16 = 128;
/// So many of them at a time.
const REBUILDS_AT_ONCE: usize = 4;

/// Carries out `job`; as [`move_bytes`], [`rebuild`] and [`Objects`] say.
pub async fn run(reader: &Reader, stage: &dyn StageSource, objects: &dyn Objects, job: &Job) -> Result<()> {
    match job {
        Job::Move(job) => move_bytes(reader, stage, job).await,
        Job::Rebuild(job) => rebuild(reader, job).await,
        Job::Upload(job) => upload::upload(reader, stage, objects, job).await,
        Job::Remove(job) => objects.remove(job.key).await,
    }
}

/// Makes the shard of `job` on its new drive. When it returns, all of it is durable. Errors: too few of the other shards
/// can be read, or the new drive does not take it; then nothing must be committed.
pub async fn rebuild(reader: &Reader, job: &RebuildJob) -> Result<()> {
    let RebuildJob { pack, shard, place, rows, to, gone, class, term, fs, .. } = job;
    let (pack, shard, wire) = (*pack, *shard, reader.wire());
    let id = ShardId { pack, shard };
    let create = DriveOp::Create { id, data: place.data, parity: place.parity, class: *class, term: *term, fs: *fs };
    ask_drive(&**wire, *to, &create, &PUT_WAITS_MS).await.map_err(|error| error.within(to))?;
    let mends = place.drives.get(usize::from(shard)) == Some(to);
    if !gone.is_empty() && able(job).count() < usize::from(place.data) {
        // Not one row of it can be computed, so that it stays empty.
        tracing::error!("{pack} shard {shard}: too few of the others will ever be back, all of it is lost");
        return Ok(());
    }
    let pieces = rows.iter().flat_map(|(first, count)| {
        let (first, end) = (*first, first.saturating_add(*count));
        (first..end).step_by(usize::from(REBUILD_BLOCKS)).map(move |from| (from, REBUILD_BLOCKS.min(end - from)))
    });
    let work = pieces.map(|(block, count)| async move {
        let wait_us = reader.rebuild_pace().take(u64::from(count) * BLOCK as u64, wire.now_ms() * 1_000);
        if wait_us > 0 {
            wire.sleep_ms(wait_us.div_ceil(1_000)).await;
        }
        let copy = if job.copies && !mends { copied(reader, job, (block, count)).await } else { None };
        let whole = match copy {
            Some(data) => Ok(data),
            None => reader.computed(pack, place, shard, (block, count)).await,
        };
        match whole {
            Ok(data) => stripe::put_shard(wire, *to, id, block, data, &PUT_WAITS_MS).await,
            Err(_) => put_rows(reader, job, (block, count), mends).await,
        }
    });
    join_bounded(REBUILDS_AT_ONCE, work.collect()).await.into_iter().collect::<Result<Vec<()>>>().map(drop)
}

/// Those blocks of the shard from where it is, if they can be read there.
async fn copied(reader: &Reader, job: &RebuildJob, (first, count): (u16, u16)) -> Option<Bytes> {
    let from = job.place.drives.get(usize::from(job.shard))?;
    if reader.avoids(*from, reader.wire().now_ms()) {
        return None;
    }
    reader.blocks(job.pack, &job.place, job.shard, first, count).await.ok()
}

/// Writes those blocks of a shard that can be computed. What cannot be stays as it is where the shard is mended; elsewhere
/// it is left out if it is beyond repair, and is the error if it is only out of reach.
async fn put_rows(reader: &Reader, job: &RebuildJob, (first, count): (u16, u16), mends: bool) -> Result<()> {
    let id = ShardId { pack: job.pack, shard: job.shard };
    for block in first..first + count {
        match reader.computed(job.pack, &job.place, job.shard, (block, 1)).await {
            Ok(data) => stripe::put_shard(reader.wire(), job.to, id, block, data, &PUT_WAITS_MS).await?,
            Err(_) if mends => {}
            Err(error) => {
                if !is_beyond_repair(reader, job, block).await {
                    return Err(error);
                }
                tracing::error!("{} shard {}: block {block} is beyond repair and left out", job.pack, job.shard);
            }
        }
    }
    Ok(())
}

/// True if so many of the shards have lost a block for good that it cannot be computed, even if all that do not
/// answer come back.
async fn is_beyond_repair(reader: &Reader, job: &RebuildJob, block: u16) -> bool {
    let looks = able(job).map(|shard| is_gone(reader, job, shard, block));
    let gone = join_bounded(job.place.drives.len().max(1), looks.collect()).await;
    gone.iter().filter(|gone| !**gone).count() < usize::from(job.place.data)
}

/// The shards that may help to make the one of `job`.
fn able(job: &RebuildJob) -> impl Iterator<Item = u8> {
    // The shard itself may have it, if it is only moved.
    let all = 0..job.place.drives.len() as u8;
    all.filter(|shard| (*shard != job.shard || job.copies) && !job.gone.contains(shard))
}

/// True if a shard has lost a block for good. A whole shard that is not where it should be, or cannot be read, is no matter
/// of single blocks.
async fn is_gone(reader: &Reader, job: &RebuildJob, shard: u8, block: u16) -> bool {
    let read = |block| reader.blocks(job.pack, &job.place, shard, block, 1);
    match read(block).await.map_err(|error| error.kind()) {
        Err(ErrorKind::Corrupt) => true,
        // One that was never written, where nobody waits for the shard that is made: it is one of those that are gone.
        Err(ErrorKind::Invalid) if !job.gone.is_empty() => true,
        // A sector that cannot be read, or a block that was beyond repair when the shard was made, if others can be read.
        Err(ErrorKind::Io | ErrorKind::Invalid) => {
            let ends =
                job.rows.iter().flat_map(|(first, count)| [*first, first.saturating_add(count.saturating_sub(1))]);
            for other in ends.filter(|other| *other != block) {
                if read(other).await.is_ok() {
                    return true;
                }
            }
            false
        }
        _ => false,
    }
}

/// Whether each shard of `pack` is there.
async fn are_there(reader: &Reader, pack: PackId, place: &Placement) -> Vec<Result<()>> {
    let asked = place.drives.iter().enumerate().map(|(shard, drive)| async move {
        let op = DriveOp::Written { id: ShardId { pack, shard: shard as u8 } };
        match ask_drive(&**reader.wire(), *drive, &op, &READ_WAITS_MS).await? {
            DriveReply::Written(_) => Ok(()),
            other => {
                let words = format!("asked which blocks are written, {drive} said {other:?}");
                Err(Error::new(ErrorKind::Io, words))
            }
        }
    });
    join_bounded(place.drives.len().max(1), asked.collect()).await
}

/// Carries out `job`; staged sources come from `stage`. When it returns, all stripes are durable. Errors: the
/// first one met; then nothing must be committed.
pub async fn move_bytes(reader: &Reader, stage: &dyn StageSource, job: &MoveJob) -> Result<()> {
    let stage = &Together::new(stage, job);
    let stripes = job.stripes.iter().map(|plan| write_stripe(reader, stage, plan)).collect();
    join_bounded(STRIPES_AT_ONCE, stripes).await.into_iter().collect::<Result<Vec<()>>>().map(drop)
}

/// Says with each read of an object how much of what follows there the move reads as well.
struct Together<'s> {
    stage: &'s dyn StageSource,
    /// Where what is read of objects begins and ends.
    runs: BTreeMap<(BlobId, u32), u32>,
}

impl<'s> Together<'s> {
    fn new(stage: &'s dyn StageSource, job: &MoveJob) -> Self {
        let parts = job.stripes.iter().flat_map(|plan| &plan.parts);
        let mut found: Vec<(BlobId, u32, u32)> = parts
            .filter_map(|part| match part.from {
                Source::At(Place::Object(at), _) => Some((at.blob, at.off, at.off + part.len)),
                _ => None,
            })
            .collect();
        found.sort_unstable();
        let mut runs: BTreeMap<(BlobId, u32), u32> = BTreeMap::new();
        for (blob, off, end) in found {
            match runs.last_entry().filter(|last| last.key().0 == blob && *last.get() >= off) {
                Some(mut last) => *last.get_mut() = end.max(*last.get()),
                None => drop(runs.insert((blob, off), end)),
            }
        }
        Self { stage, runs }
    }
}

impl StageSource for Together<'_> {
    fn read(&self, at: Index, poff: u32, len: u32) -> BoxFuture<Result<Bytes>> {
        self.stage.read(at, poff, len)
    }

    fn object(&self, at: ObjectAt, len: u32, more: u32) -> BoxFuture<Result<Bytes>> {
        let run = self.runs.range(..=(at.blob, at.off)).next_back().filter(|((blob, _), _)| *blob == at.blob);
        let follow = run.map_or(0, |(_, end)| end.saturating_sub(at.off + len));
        self.stage.object(at, len, more.max(follow))
    }
}

async fn write_stripe(reader: &Reader, stage: &dyn StageSource, plan: &StripePlan) -> Result<()> {
    let code = code_of(&plan.place)?;
    let unit = usize::from(plan.at.ul) * BLOCK;
    let logical = gather(reader, stage, &plan.parts, code.data() * unit).await?;
    let done = stripe::put(reader.wire(), plan.at, &plan.place, logical, &PUT_WAITS_MS, LATE_MS).await;
    // Any of them says enough.
    done.map_err(|mut failed| failed.swap_remove(0).1)
}

/// The bytes of `parts` one after another, padded with zeros to `total`.
async fn gather(reader: &Reader, stage: &dyn StageSource, parts: &[Part], total: usize) -> Result<Bytes> {
    let content: u64 = parts.iter().map(|part| u64::from(part.len)).sum();
    if total == 0 || content > total as u64 {
        let text = format!("move: a stripe of {total} bytes cannot hold {content} bytes");
        return Err(Error::new(ErrorKind::Invalid, text));
    }
    let reads = parts.iter().map(|part| async move {
        match &part.from {
            Source::Zero => Ok(None),
            Source::At(place, placement) => {
                reader.read_place(*place, placement.as_ref(), stage, part.len).await.map(Some)
            }
        }
    });
    let mut found = join_bounded(PARTS_AT_ONCE, reads.collect()).await;
    if let [Ok(Some(only))] = &mut found[..]
        && only.len() == total
        && only.as_ptr().align_offset(BLOCK) == 0
    {
        return Ok(std::mem::take(only));
    }
    let mut logical = stripe::aligned(total);
    for (part, bytes) in parts.iter().zip(found) {
        match bytes? {
            Some(bytes) => logical.extend_from_slice(&bytes),
            None => logical.resize(logical.len() + part.len as usize, 0),
        }
    }
    logical.resize(total, 0);
    Ok(logical.freeze())
}
