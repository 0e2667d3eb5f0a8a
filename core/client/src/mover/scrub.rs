//! Checks a pack: every block against its checksum, and all blocks of a row against each other.
//!
//! 1. The shards say whether they are there.
//! 2. Committed rows, which the partition knows, are read from all shards, some at a time. Where a read of many fails, each
//!    is read by itself. Nothing else is read: what is written and not committed is whole or not, and nobody's.
//! 3. Rows that lack blocks are judged: D good ones make up for the others. In whole rows, parity is computed anew. Rows
//!    that shards of silent drives may make up for are not judged.
//!
//! It gives way: it has one read of each shard under way, and rests three times as long as that took. So it has a quarter
//! of the time of a drive that does nothing else, and the less the more others have to do there.

use braid_base::limits::BLOCK;
use braid_base::msg::job::{ScrubJob, Scrubbed};
use braid_base::{Error, ErrorKind, Result};
use braid_erasure::Code;
use bytes::Bytes;

use super::{REBUILD_BLOCKS, are_there};
use crate::join::join_bounded;
use crate::reader::{Reader, code_of, is_silence};

/// Time of rest for each time of reading.
const RESTS: u64 = 3;

/// What is known of a shard.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Shard {
    /// Its drive has it.
    Here,
    /// Its drive answers, and does not have it.
    Missing,
    /// Its drive does not answer: nothing is known.
    Silent,
}

/// Some blocks of a shard, one after another; none where one cannot be read.
type Found = Vec<Option<Bytes>>;

/// Carries out `job`. Errors: so many drives do not answer that nothing can be said; `Stale`: the pack is given up.
pub async fn scrub(reader: &Reader, job: &ScrubJob) -> Result<Scrubbed> {
    let ScrubJob { pack, place, rows, bytes_per_s, .. } = job;
    let code = code_of(place)?;
    let (mut shards, mut errors) = (Vec::new(), Vec::new());
    for said in are_there(reader, *pack, place).await {
        shards.push(match said {
            Ok(()) => Shard::Here,
            Err(error) if error.kind() == ErrorKind::NotFound => Shard::Missing,
            Err(error) => {
                errors.push(error);
                Shard::Silent
            }
        });
    }
    let count = |what| shards.iter().filter(|shard| **shard == what).count();
    if count(Shard::Silent) > code.parity() {
        return Err(errors.swap_remove(0).within(format!("{pack} cannot be checked")));
    }
    let mut result = Scrubbed { silent: silent(&shards), ..Scrubbed::default() };
    if count(Shard::Here) == 0 {
        if result.silent.len() < code.data() {
            let gone = (0..code.data()).filter(|shard| shards[*shard] == Shard::Missing);
            result.lost = gone.map(|shard| (shard as u8, 0, u16::MAX)).collect();
        }
        return Ok(result);
    }
    let pieces = rows.iter().flat_map(|(first, count)| {
        let (first, end) = (*first, first.saturating_add(*count));
        (first..end).step_by(usize::from(REBUILD_BLOCKS)).map(move |from| (from, REBUILD_BLOCKS.min(end - from)))
    });
    for (first, count) in pieces {
        let begun_ms = reader.wire().now_ms();
        let reads = shards.iter().enumerate().map(|(shard, state)| async move {
            match state {
                Shard::Here => found(reader, job, shard as u8, (first, count)).await,
                Shard::Missing | Shard::Silent => (vec![None; usize::from(count)], *state),
            }
        });
        let found = join_bounded(shards.len(), reads.collect()).await;
        let known = shards.clone();
        // One that fell silent is not waited for again.
        shards = found.iter().map(|(_, state)| *state).collect();
        result.silent = silent(&shards);
        if result.silent.len() > code.parity() {
            // What a drive does not say now is not lost.
            return Err(Error::new(ErrorKind::TimedOut, format!("{pack} cannot be checked: its drives fell silent")));
        }
        let read = found.iter().flat_map(|(blocks, _)| blocks).flatten().count();
        result.bytes += (read * BLOCK) as u64;
        let lost = result.lost.clone();
        judge(code, first, &found, &mut result);
        if result.lost != lost {
            still_there(reader, job, &known).await?;
        }
        let took_ms = reader.wire().now_ms().saturating_sub(begun_ms);
        let due_ms = u64::from(count) * BLOCK as u64 * 1_000 / (*bytes_per_s).max(1);
        reader.wire().sleep_ms((RESTS * took_ms).max(due_ms.saturating_sub(took_ms))).await;
    }
    Ok(result)
}

fn silent(shards: &[Shard]) -> Vec<u8> {
    (0..).zip(shards).filter(|(_, state)| **state == Shard::Silent).map(|(shard, _)| shard).collect()
}

/// What is dropped while it is checked is given up, or moves elsewhere: it is not lost. Errors: `Stale` if a shard is gone
/// that was there.
async fn still_there(reader: &Reader, job: &ScrubJob, before: &[Shard]) -> Result<()> {
    let now = are_there(reader, job.pack, &job.place).await;
    let is_gone = |said: &Result<()>| said.as_ref().is_err_and(|error| error.kind() == ErrorKind::NotFound);
    if before.iter().zip(&now).any(|(before, now)| *before == Shard::Here && is_gone(now)) {
        return Err(Error::new(ErrorKind::Stale, format!("{} was given up while it was checked", job.pack)));
    }
    Ok(())
}

/// Blocks `[first, first+count)` of a shard, and what became of its drive.
async fn found(reader: &Reader, job: &ScrubJob, shard: u8, (first, count): (u16, u16)) -> (Found, Shard) {
    let nothing = || (vec![None; usize::from(count)], Shard::Silent);
    match reader.blocks(job.pack, &job.place, shard, first, count).await {
        Ok(bytes) => {
            let blocks = (0..usize::from(count)).map(|i| Some(bytes.slice(i * BLOCK..(i + 1) * BLOCK)));
            return (blocks.collect(), Shard::Here);
        }
        Err(error) if is_silence(&error) => return nothing(),
        Err(_) => {}
    }
    let mut blocks = Found::new();
    for block in first..first + count {
        match reader.blocks(job.pack, &job.place, shard, block, 1).await {
            Ok(bytes) => blocks.push(Some(bytes)),
            Err(error) if is_silence(&error) => return nothing(),
            Err(_) => blocks.push(None),
        }
    }
    (blocks, Shard::Here)
}

/// Judges the rows from `first` on, of which `found` says what each shard has.
fn judge(code: Code, first: u16, found: &[(Found, Shard)], result: &mut Scrubbed) {
    let rows = found.first().map_or(0, |(blocks, _)| blocks.len());
    for row in 0..rows {
        let block = first + row as u16;
        let blocks: Vec<&[u8]> = found.iter().filter_map(|(blocks, _)| blocks[row].as_deref()).collect();
        if blocks.len() == found.len() {
            if !agrees(code, &blocks) {
                join(&mut result.odd, block);
            }
            continue;
        }
        let unknown = found.iter().filter(|(_, state)| *state == Shard::Silent).count();
        if blocks.len() < code.data() && blocks.len() + unknown >= code.data() {
            continue;
        }
        let lacks = |(_, (blocks, state)): &(usize, &(Found, Shard))| blocks[row].is_none() && *state != Shard::Silent;
        for (shard, _) in found.iter().enumerate().filter(lacks) {
            let number = shard as u8;
            if blocks.len() < code.data() {
                if shard < code.data() {
                    join_of(&mut result.lost, number, block);
                }
            } else if !result.bad.contains(&number) {
                result.bad.push(number);
            }
        }
    }
    result.bad.sort_unstable();
    result.lost.sort_unstable();
}

/// True if the parity of a row is that of its data.
fn agrees(code: Code, row: &[&[u8]]) -> bool {
    let (data, parity) = row.split_at(code.data());
    let mut computed = vec![[0_u8; BLOCK]; code.parity()];
    let mut out: Vec<&mut [u8]> = computed.iter_mut().map(|block| &mut block[..]).collect();
    code.encode(data, &mut out);
    computed.iter().zip(parity).all(|(computed, found)| computed[..] == **found)
}

/// One more block; they come in order.
fn join(runs: &mut Vec<(u16, u16)>, block: u16) {
    match runs.last_mut() {
        Some((first, count)) if *first + *count == block => *count += 1,
        _ => runs.push((block, 1)),
    }
}

/// The same of a shard, among others.
fn join_of(runs: &mut Vec<(u8, u16, u16)>, shard: u8, block: u16) {
    match runs.iter_mut().find(|(of, first, count)| *of == shard && *first + *count == block) {
        Some((_, _, count)) => *count += 1,
        None => runs.push((shard, block, 1)),
    }
}
