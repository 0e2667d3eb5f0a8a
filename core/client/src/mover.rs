//! Carries out bulk moves that a partition planned: reads the parts, codes them, writes the stripes.
//!
//! 1. every part of a stripe is read through the [`Reader`], reconstructed if need be;
//! 2. the logical bytes are padded with zeros to D units and coded;
//! 3. all D+P shards are written in parallel; all must be acknowledged, else the job fails and the partition
//!    abandons the ranges. A repeated write of the same bytes succeeds, so a lost answer costs only time.

use braid_base::limits::BLOCK;
use braid_base::msg::job::{MoveJob, Part, Source, StripePlan};
use braid_base::{Error, ErrorKind, Result};
use bytes::Bytes;

use crate::join::join_bounded;
use crate::reader::{Reader, StageSource, code_of};
use crate::stripe;

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

/// Carries out `job`; staged sources come from `stage`. When it returns, all stripes are durable. Errors: the
/// first one met; then nothing must be committed.
pub async fn run(reader: &Reader, stage: &dyn StageSource, job: &MoveJob) -> Result<()> {
    let stripes = job.stripes.iter().map(|plan| write_stripe(reader, stage, plan)).collect();
    join_bounded(STRIPES_AT_ONCE, stripes).await.into_iter().collect::<Result<Vec<()>>>().map(drop)
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
    let found = join_bounded(PARTS_AT_ONCE, reads.collect()).await;
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
