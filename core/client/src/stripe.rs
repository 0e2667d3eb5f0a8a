//! Writes one stripe: codes its bytes and puts all shards on their drives.

use std::sync::{Arc, Mutex, PoisonError};

use braid_base::crc::block_crcs;
use braid_base::ids::DriveId;
use braid_base::limits::BLOCK;
use braid_base::msg::drive::{DriveOp, ShardId};
use braid_base::record::{Placement, StripeAt};
use braid_base::{Error, ErrorKind, Result};
use bytes::{Buf, Bytes, BytesMut};

use crate::join::{ask_drive, join_or_late};
use crate::reader::code_of;
use crate::wire::Wire;

/// A drive that is still silent so long after the others took their shards will not be waited for, milliseconds.
pub(crate) const LATE_MS: u64 = 2_500;
/// Parity that is on its drives, whose memory is used again: clearing new memory costs half as much as coding into it.
static SPARE: Mutex<Vec<BytesMut>> = Mutex::new(Vec::new());
/// So many stripes are under way at once at most, as a rule.
const SPARE_MAX: usize = 16;

/// Puts a stripe on its drives; `logical` are its `D * ul * 4096` bytes, padding included. When it returns, all shards
/// are durable. `waits_ms`: see [`ask_drive`]; no more drives than a reader can do without are left behind `late_ms` after
/// all others have answered. Errors: the drives that did not take their shards, and why.
pub(crate) async fn put(
    wire: &Arc<dyn Wire>,
    at: StripeAt,
    place: &Placement,
    logical: Bytes,
    waits_ms: &[u64],
    late_ms: u64,
) -> std::result::Result<(), Vec<(DriveId, Error)>> {
    let first = place.drives.first().copied().unwrap_or(DriveId(0));
    let code = code_of(place).map_err(|error| vec![(first, error)])?;
    let unit = usize::from(at.ul) * BLOCK;
    let data: Vec<&[u8]> = logical.chunks_exact(unit).collect();
    let mut parity = spare(code.parity() * unit);
    code.encode(&data, &mut parity.chunks_exact_mut(unit).collect::<Vec<_>>());
    let parity = parity.freeze();
    let shards = (0..code.shards()).map(|shard| match shard.checked_sub(code.data()) {
        None => logical.slice(shard * unit..(shard + 1) * unit),
        Some(row) => parity.slice(row * unit..(row + 1) * unit),
    });
    let puts = place.drives.iter().zip(shards).enumerate().map(|(shard, (drive, data))| async move {
        let id = ShardId { pack: at.pack, shard: shard as u8 };
        put_shard(wire, *drive, id, at.sb, data, waits_ms).await
    });
    let done = join_or_late(&**wire, (code.parity(), late_ms), puts.collect()).await;
    // Not if a late put still holds a part of it.
    if let Ok(parity) = parity.try_into_mut() {
        let mut spare = SPARE.lock().unwrap_or_else(PoisonError::into_inner);
        if spare.len() < SPARE_MAX {
            spare.push(parity);
        }
    }
    let failed: Vec<(DriveId, Error)> =
        place.drives.iter().zip(done).filter_map(|(drive, done)| Some((*drive, late(*drive, done).err()?))).collect();
    if failed.is_empty() { Ok(()) } else { Err(failed) }
}

/// Memory of `len` bytes that begins at a block; what is in it is nothing.
fn spare(len: usize) -> BytesMut {
    let found = SPARE.lock().unwrap_or_else(PoisonError::into_inner).pop();
    let mut buffer = found.filter(|found| found.capacity() >= len).unwrap_or_else(|| aligned(len));
    buffer.resize(len, 0);
    buffer
}

fn late(drive: DriveId, done: Option<Result<()>>) -> Result<()> {
    done.unwrap_or_else(|| Err(Error::new(ErrorKind::TimedOut, format!("{drive} is much slower than the others"))))
}

pub(crate) async fn put_shard(
    wire: &Arc<dyn Wire>,
    drive: DriveId,
    id: ShardId,
    block: u16,
    data: Bytes,
    waits_ms: &[u64],
) -> Result<()> {
    let op = DriveOp::Put { id, block, crcs: block_crcs(&data), data };
    let answer = ask_drive(&**wire, drive, &op, waits_ms).await;
    answer.map(drop).map_err(|error| error.within(format!("write of {} shard {} to {drive}", id.pack, id.shard)))
}

/// An empty buffer for `len` bytes that begins at a block: drives write from such memory without a copy.
pub(crate) fn aligned(len: usize) -> BytesMut {
    let mut buffer = BytesMut::with_capacity(len + BLOCK);
    let pad = buffer.as_ptr().align_offset(BLOCK);
    buffer.resize(pad, 0);
    buffer.advance(pad);
    buffer
}
