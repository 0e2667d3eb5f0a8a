//! The only place that chooses where bytes are read from: inline, stage, data shards, or parity.
//!
//! A flash read goes like this:
//! 1. the shards that hold the wanted bytes are asked, in parallel, for just the blocks needed;
//! 2. every block is checked against its CRC32C here, whatever the drive said;
//! 3. for each shard that failed, lied or is avoided, the same blocks are read from as many other shards as it
//!    takes to have D of them, and the missing ones are computed; where too many of these have a damaged block among
//!    those asked for, one row of blocks after the other;
//! 4. if that many cannot be had, the bytes are taken from an object, if they are in one, too;
//! 5. if they are not, the answer is `Stale`: the layout may have moved on, shards may have been made anew elsewhere.
//!    Whoever asks with a fresh layout takes it for `Io`.
//!
//! What is in an object is asked of its partition, as much at a time as one request to a store brings.

use std::sync::Arc;

use braid_base::crc::crc32c;
use braid_base::ids::{DriveId, Index, PackId};
use braid_base::limits::{BLOCK, CHUNK};
use braid_base::msg::drive::{DriveOp, DriveReply, ShardId};
use braid_base::msg::fs::Layout;
use braid_base::record::{Extent, ObjectAt, Place, Placement, StripeAt};
use braid_base::{Error, ErrorKind, Result};
use braid_erasure::Code;
use bytes::{Bytes, BytesMut};

use crate::health::Health;
use crate::join::{ask_drive, join_bounded, join_or_late, within};
use crate::qos::Pace;
use crate::wire::{BoxFuture, Wire};

/// Gives what must be asked of the partition that owns the file: staged bytes, which are in its log, and bytes of its objects.
pub trait StageSource: Send + Sync {
    /// `len` bytes from byte `poff` of the payload of entry `at`. `Stale` if it is no longer in the log.
    fn read(&self, at: Index, poff: u32, len: u32) -> BoxFuture<Result<Bytes>>;

    /// `len` bytes of an object of that partition, checked; all in one of the MiB that its data is divided into. `Stale` if
    /// there is no such object (any more). `more` bytes behind them are asked for at the same time.
    fn object(&self, at: ObjectAt, len: u32, more: u32) -> BoxFuture<Result<Bytes>>;
}

/// Reads bytes from where a layout says they are. Clones share their drive hints.
#[derive(Clone)]
pub struct Reader {
    wire: Arc<dyn Wire>,
    health: Arc<Health>,
    /// Drives that took long for what is in objects as well.
    late: Arc<Health>,
    pace: Arc<Pace>,
}

/// Pieces of one read that are fetched at a time.
const PIECES_AT_ONCE: usize = 32;
/// The same of objects: a store is far away, and answers many at a time.
pub(crate) const OBJECTS_AT_ONCE: usize = 64;
/// How long a drive may be silent before it is asked again, milliseconds; after the last it is given up for this read.
pub(crate) const READ_WAITS_MS: [u64; 2] = [1_000, 4_000];
/// A shard whose drive is still silent so long after the others answered is computed from them, milliseconds.
const LATE_MS: u64 = 1_500;

impl Reader {
    /// A reader that asks through `wire`.
    pub fn new(wire: Arc<dyn Wire>) -> Self {
        Self { wire, health: Arc::default(), late: Arc::default(), pace: Arc::default() }
    }

    /// How fast shards may be made anew through this reader and its clones; any number of bytes unless it is set.
    pub fn rebuild_pace(&self) -> &Pace {
        &self.pace
    }

    /// Where it asks.
    pub fn wire(&self) -> &Arc<dyn Wire> {
        &self.wire
    }

    /// True if `drive` failed a short while ago.
    pub(crate) fn avoids(&self, drive: DriveId, now_ms: u64) -> bool {
        self.health.avoids(drive, now_ms)
    }

    /// `drive` did not do what it was asked.
    pub(crate) fn failed(&self, drive: DriveId) {
        self.health.failed(drive, self.wire.now_ms());
    }

    /// Bytes `[off, off+len)` of a file, cut at its size. Errors: `Stale` (too many shards are missing or
    /// wrong: fetch the layout anew, then ask once more), `Corrupt` (the layout contradicts itself).
    pub async fn read(&self, layout: &Layout, stage: &dyn StageSource, off: u64, len: u64) -> Result<Bytes> {
        self.read_range(layout, stage, off, off.saturating_add(len).min(layout.size).max(off)).await
    }

    /// Bytes `[off, end)`, whatever size the layout names.
    pub(crate) async fn read_range(
        &self,
        layout: &Layout,
        stage: &dyn StageSource,
        off: u64,
        end: u64,
    ) -> Result<Bytes> {
        // What most reads do is in their own future; the rest is kept in boxes, so that it is small.
        match &pieces_of(layout, off, end)[..] {
            [piece] if piece.at == off && u64::from(piece.len) == end - off => self.piece(layout, stage, piece).await,
            pieces => Box::pin(self.pieces(layout, stage, (off, end), pieces)).await,
        }
    }

    /// Bytes `[off, end)`, of which `pieces` are there.
    async fn pieces(
        &self,
        layout: &Layout,
        stage: &dyn StageSource,
        (off, end): (u64, u64),
        pieces: &[Piece],
    ) -> Result<Bytes> {
        let jobs = pieces.iter().map(|piece| self.piece(layout, stage, piece)).collect();
        let far = |piece: &Piece| matches!(piece.from, From::Place(Place::Object(_)));
        let limit = if pieces.iter().any(far) { OBJECTS_AT_ONCE } else { PIECES_AT_ONCE };
        let parts = join_bounded(limit, jobs).await;
        let mut out = BytesMut::zeroed((end - off) as usize);
        for (piece, part) in pieces.iter().zip(parts) {
            let (from, part) = ((piece.at - off) as usize, part?);
            out[from..from + part.len()].copy_from_slice(&part);
        }
        Ok(out.freeze())
    }

    /// Bytes of one place, as [`Self::read`] does it. A stripe needs the `placement` of its pack.
    pub async fn read_place(
        &self,
        place: Place,
        placement: Option<&Placement>,
        stage: &dyn StageSource,
        len: u32,
    ) -> Result<Bytes> {
        let bytes = match place {
            Place::Stage { at, poff } => stage.read(at, poff, len).await?,
            Place::Object(at) => Box::pin(self.read_object(stage, at, len)).await?,
            Place::Flash { stripe, delta, copy } => {
                let Some(placement) = placement else {
                    return Err(Error::new(ErrorKind::Corrupt, format!("no placement given for {}", stripe.pack)));
                };
                match copy {
                    None => self.read_stripe(stripe, placement, delta, len).await?,
                    Some(copy) => Box::pin(self.read_either((stripe, delta), placement, (stage, copy), len)).await?,
                }
            }
        };
        if bytes.len() != len as usize {
            return Err(Error::new(ErrorKind::Io, format!("expected {len} bytes of {place:?}, found {}", bytes.len())));
        }
        Ok(bytes)
    }

    /// `len` bytes that are in a stripe from `delta` on, and in an object: that is asked if the shards cannot be read. Where
    /// there is no parity to make up for a drive, it does, already if the drive is late or failed a short while ago.
    async fn read_either(
        &self,
        (stripe, delta): (StripeAt, u32),
        placement: &Placement,
        (stage, copy): (&dyn StageSource, ObjectAt),
        len: u32,
    ) -> Result<Bytes> {
        let flash = || self.read_stripe(stripe, placement, delta, len);
        let now = self.wire.now_ms();
        let only = match &placement.drives[..] {
            [drive] => Some(*drive),
            _ => None,
        };
        let found = match only {
            None => flash().await,
            Some(drive) if self.health.avoids(drive, now) || self.late.avoids(drive, now) => {
                Err(ErrorKind::Stale.into())
            }
            Some(drive) => match within(&*self.wire, LATE_MS, flash()).await {
                Some(found) => {
                    self.late.answered(drive);
                    found
                }
                // No others were asked that would say whether it is slower than they are: so only who has a copy at hand
                // does without it.
                None => {
                    self.late.failed(drive, self.wire.now_ms());
                    Err(Error::new(ErrorKind::Stale, format!("{drive} does not answer")))
                }
            },
        };
        match found {
            Err(error) if error.kind() == ErrorKind::Stale => {
                tracing::debug!(%error, "read from an object instead");
                match self.read_object(stage, copy, len).await {
                    // It may answer after all.
                    Err(_) if only.is_some() => flash().await,
                    // That the shards are gone says more than that the object is.
                    found => found.map_err(|_| error),
                }
            }
            found => found,
        }
    }

    /// `len` bytes of an object, in requests that touch one MiB of its data each.
    async fn read_object(&self, stage: &dyn StageSource, at: ObjectAt, len: u32) -> Result<Bytes> {
        let parts = object_parts(at, len);
        let asked = parts.iter().map(|(at, len, more)| async move {
            let bytes = stage.object(*at, *len, *more).await?;
            if bytes.len() == *len as usize {
                return Ok(bytes);
            }
            let text = format!("{}: expected {len} bytes from byte {} on, found {}", at.blob, at.off, bytes.len());
            Err(Error::new(ErrorKind::Io, text))
        });
        let mut found = join_bounded(OBJECTS_AT_ONCE, asked.collect()).await;
        if found.len() == 1 {
            return found.swap_remove(0);
        }
        let mut out = BytesMut::with_capacity(len as usize);
        for part in found {
            out.extend_from_slice(&part?);
        }
        Ok(out.freeze())
    }

    async fn piece(&self, layout: &Layout, stage: &dyn StageSource, piece: &Piece) -> Result<Bytes> {
        match &piece.from {
            From::Inline(bytes) => Ok(bytes.clone()),
            From::Place(place) => {
                let placement = match place {
                    Place::Flash { stripe, .. } => placement_of(layout, stripe.pack),
                    Place::Stage { .. } | Place::Object(_) => None,
                };
                self.read_place(*place, placement, stage, piece.len).await
            }
        }
    }

    /// `len` logical bytes of `stripe` from `delta` on.
    async fn read_stripe(&self, stripe: StripeAt, placement: &Placement, delta: u32, len: u32) -> Result<Bytes> {
        let code = code_of(placement)?;
        let runs = runs_of(stripe, code.data(), delta, len)?;
        let [run] = &runs[..] else { return Box::pin(self.read_runs(stripe, placement, code, &runs, len)).await };
        let bytes = match self.direct((stripe.pack, placement, code), run, self.wire.now_ms()).await {
            Ok(bytes) => bytes,
            Err(error) => Box::pin(self.rebuild(stripe, placement, code, run, &[], &error)).await?,
        };
        Ok(bytes.slice(run.skip..run.skip + run.len))
    }

    /// The blocks of `run` from its own shard. An avoided drive is left to the second step, which asks it only if it must.
    async fn direct(
        &self,
        (pack, placement, code): (PackId, &Placement, Code),
        run: &Run,
        now_ms: u64,
    ) -> Result<Bytes> {
        if code.parity() > 0 && self.health.avoids(placement.drives[usize::from(run.shard)], now_ms) {
            return Err(Error::from(ErrorKind::TimedOut));
        }
        self.blocks(pack, placement, run.shard, run.block, run.count).await
    }

    /// The `len` bytes of `stripe` that `runs` hold, one behind the other.
    async fn read_runs(
        &self,
        stripe: StripeAt,
        placement: &Placement,
        code: Code,
        runs: &[Run],
        len: u32,
    ) -> Result<Bytes> {
        let now = self.wire.now_ms();
        let direct = runs.iter().map(|run| self.direct((stripe.pack, placement, code), run, now));
        let found = join_or_late(&*self.wire, (code.parity(), LATE_MS), direct.collect()).await;
        let mut found: Vec<Result<Bytes>> = runs
            .iter()
            .zip(found)
            .map(|(run, found)| found.unwrap_or_else(|| Err(self.too_late(placement.drives[usize::from(run.shard)]))))
            .collect();
        for at in 0..runs.len() {
            if let Err(error) = &found[at] {
                let known: Vec<(&Run, &Bytes)> =
                    runs.iter().zip(&found).filter_map(|(run, bytes)| Some((run, bytes.as_ref().ok()?))).collect();
                found[at] = self.rebuild(stripe, placement, code, &runs[at], &known, error).await;
            }
        }
        let mut out = BytesMut::with_capacity(len as usize);
        for (run, bytes) in runs.iter().zip(found) {
            out.extend_from_slice(&bytes?[run.skip..run.skip + run.len]);
        }
        Ok(out.freeze())
    }

    /// `count` blocks from `block` on of a shard that is lost, computed from the others of its pack.
    pub(crate) async fn computed(
        &self,
        pack: PackId,
        placement: &Placement,
        shard: u8,
        (block, count): (u16, u16),
    ) -> Result<Bytes> {
        let code = code_of(placement)?;
        let stripe = StripeAt { pack, sb: block, ul: count };
        let run = Run { shard, block, count, skip: 0, len: 0 };
        let lost = Error::new(ErrorKind::Io, format!("shard {shard} is made anew"));
        self.rebuild(stripe, placement, code, &run, &[], &lost).await
    }

    /// `drive` is much slower than the others that were asked.
    fn too_late(&self, drive: DriveId) -> Error {
        self.failed(drive);
        Error::new(ErrorKind::TimedOut, format!("{drive} is much slower than the others"))
    }

    /// The blocks of `run` computed from other shards. `known` are runs of the same stripe already at hand;
    /// `why` is what happened to the shard itself. Damage in one row of blocks does not keep the others from being read.
    async fn rebuild(
        &self,
        stripe: StripeAt,
        placement: &Placement,
        code: Code,
        run: &Run,
        known: &[(&Run, &Bytes)],
        why: &Error,
    ) -> Result<Bytes> {
        let failed = match self.rebuild_at_once(stripe, placement, code, run, known, why).await {
            Err(errors) if run.count > 1 && errors.iter().any(of_a_block) => errors,
            other => return other.map_err(|errors| too_few(stripe, code, &errors)),
        };
        let mut out = BytesMut::with_capacity(usize::from(run.count) * BLOCK);
        for block in run.block..=run.block + (run.count - 1) {
            let row = Run { shard: run.shard, block, count: 1, skip: 0, len: 0 };
            let found = self.rebuild_at_once(stripe, placement, code, &row, known, &failed[0]).await;
            out.extend_from_slice(&found.map_err(|errors| too_few(stripe, code, &errors))?);
        }
        Ok(out.freeze())
    }

    /// As [`Self::rebuild`], all blocks or none. Errors: why too few shards could be read, first that of the shard itself.
    async fn rebuild_at_once(
        &self,
        stripe: StripeAt,
        placement: &Placement,
        code: Code,
        run: &Run,
        known: &[(&Run, &Bytes)],
        why: &Error,
    ) -> std::result::Result<Bytes, Vec<Error>> {
        let mut present: Vec<(usize, Bytes)> = known
            .iter()
            .filter(|(other, _)| other.covers(run))
            .map(|(other, bytes)| {
                let from = usize::from(run.block - other.block) * BLOCK;
                (usize::from(other.shard), bytes.slice(from..from + usize::from(run.count) * BLOCK))
            })
            .collect();
        let mut errors = vec![why.clone()];
        let mut left = self.candidates(placement, run.shard, &present);
        while present.len() < code.data() && !left.is_empty() {
            let wanted = (code.data() - present.len()).min(left.len());
            let asked: Vec<u8> = left.drain(..wanted).collect();
            let reads =
                asked.iter().map(|shard| self.blocks(stripe.pack, placement, *shard, run.block, run.count)).collect();
            for (shard, answer) in asked.iter().zip(join_bounded(PIECES_AT_ONCE, reads).await) {
                match answer {
                    Ok(bytes) if *shard == run.shard => return Ok(bytes),
                    Ok(bytes) => present.push((usize::from(*shard), bytes)),
                    Err(error) => errors.push(error),
                }
            }
        }
        if present.len() < code.data() {
            return Err(errors);
        }
        let present: Vec<(usize, &[u8])> = present.iter().map(|(shard, bytes)| (*shard, &bytes[..])).collect();
        let mut out = BytesMut::zeroed(usize::from(run.count) * BLOCK);
        code.reconstruct(&present, &mut [(usize::from(run.shard), &mut out[..])])
            .map_err(|error| vec![Error::new(ErrorKind::Io, format!("{stripe:?}: {error}"))])?;
        tracing::debug!(pack = %stripe.pack, shard = run.shard, %why, "computed a shard from others");
        Ok(out.freeze())
    }

    /// The shards to ask instead of `lost`, best first: those not avoided, data before parity; `lost` itself and
    /// avoided ones come last.
    fn candidates(&self, placement: &Placement, lost: u8, present: &[(usize, Bytes)]) -> Vec<u8> {
        let now = self.wire.now_ms();
        let mut shards: Vec<u8> = (0..placement.drives.len() as u8)
            .filter(|shard| present.iter().all(|(have, _)| *have != usize::from(*shard)))
            .collect();
        shards.sort_by_key(|shard| {
            (*shard == lost, self.health.avoids(placement.drives[usize::from(*shard)], now), *shard)
        });
        shards
    }

    /// Blocks `[block, block+count)` of a shard, checked.
    pub(crate) async fn blocks(
        &self,
        pack: PackId,
        placement: &Placement,
        shard: u8,
        block: u16,
        count: u16,
    ) -> Result<Bytes> {
        let drive = placement.drives[usize::from(shard)];
        let op = DriveOp::Read { id: ShardId { pack, shard }, block, count };
        let result = match ask_drive(&*self.wire, drive, &op, &READ_WAITS_MS).await {
            Ok(DriveReply::Data { data, crcs }) => checked(data, &crcs, count),
            Ok(other) => Err(Error::new(ErrorKind::Io, format!("read: the drive answered with {other:?}"))),
            Err(error) => Err(error),
        };
        match &result {
            Ok(_) => self.health.answered(drive),
            // A bad block or a shard that is not there says nothing about the next read of that drive.
            Err(e) if matches!(e.kind(), ErrorKind::Io | ErrorKind::TimedOut | ErrorKind::Stopped) => {
                self.health.failed(drive, self.wire.now_ms());
            }
            Err(_) => {}
        }
        result.map_err(|error| error.within(format!("{drive} {pack} shard {shard}")))
    }
}

/// A part of a read that comes from one place.
struct Piece {
    /// Offset in the file.
    at: u64,
    len: u32,
    from: From,
}

enum From {
    Inline(Bytes),
    Place(Place),
}

/// What of `layout` lies in `[off, end)`: sorted, extents that continue each other joined, inline bytes preferred.
fn pieces_of(layout: &Layout, off: u64, end: u64) -> Vec<Piece> {
    let mut pieces: Vec<Piece> = Vec::new();
    for (at, extent) in &layout.extents {
        let (from, to) = ((*at).max(off), end_of(*at, extent).min(end));
        if from >= to {
            continue;
        }
        let (len, place) = ((to - from) as u32, extent.place.advanced((from - at) as u32));
        if let Some(bytes) = inline_of(layout, from, to) {
            pieces.push(Piece { at: from, len, from: From::Inline(bytes) });
            continue;
        }
        match pieces.last_mut() {
            Some(Piece { at: before, len: run, from: From::Place(start) })
                if *before + u64::from(*run) == from && start.advanced(*run) == place =>
            {
                *run += len;
            }
            _ => pieces.push(Piece { at: from, len, from: From::Place(place) }),
        }
    }
    pieces
}

/// Bytes of an object, cut at every MiB of its data: where, how many, and how many of them follow.
pub(crate) fn object_parts(at: ObjectAt, len: u32) -> Vec<(ObjectAt, u32, u32)> {
    let (mut parts, mut at, mut left) = (Vec::new(), at, len);
    while left > 0 {
        let count = left.min(CHUNK as u32 - at.off % CHUNK as u32);
        left -= count;
        parts.push((at, count, left));
        if left > 0 {
            at = at.advanced(count);
        }
    }
    parts
}

/// `Corrupt` unless the extents of `layout` are sorted and disjoint and their numbers cannot overflow: what comes
/// over a wire is checked once, here.
pub(crate) fn check_layout(layout: &Layout) -> Result<()> {
    let mut free = 0;
    for (at, extent) in &layout.extents {
        let from = match extent.place {
            Place::Stage { poff, .. } => poff,
            Place::Flash { delta, .. } => delta,
            Place::Object(at) => at.off,
        };
        let copy = extent.place.object().map_or(0, |at| at.off);
        let fits = |from: u32| from.checked_add(extent.len).is_some();
        if *at < free || at.checked_add(u64::from(extent.len)).is_none() || !fits(from) || !fits(copy) {
            return Err(Error::new(ErrorKind::Corrupt, format!("layout: extent {extent:?} at {at} is impossible")));
        }
        free = end_of(*at, extent);
    }
    Ok(())
}

fn end_of(at: u64, extent: &Extent) -> u64 {
    at.saturating_add(u64::from(extent.len))
}

/// Bytes `[from, to)` of a file, if they came with its layout.
pub(crate) fn inline_of(layout: &Layout, from: u64, to: u64) -> Option<Bytes> {
    // Sorted by offset, as extents are: the last one that starts at or before `from` is the only one in question.
    let next = layout.inline.partition_point(|(at, _)| *at <= from);
    let (at, bytes) = layout.inline.get(next.checked_sub(1)?)?;
    let skip = (from - at) as usize;
    let len = (to - from) as usize;
    (skip + len <= bytes.len()).then(|| bytes.slice(skip..skip + len))
}

fn placement_of(layout: &Layout, pack: PackId) -> Option<&Placement> {
    layout.packs.iter().find(|(id, _)| *id == pack).map(|(_, placement)| placement)
}

/// The code of a placement; `Corrupt` if its numbers contradict each other (it came over the wire).
pub(crate) fn code_of(placement: &Placement) -> Result<Code> {
    let (data, parity) = (usize::from(placement.data), usize::from(placement.parity));
    Code::new(data, parity).filter(|code| code.shards() == placement.drives.len()).ok_or_else(|| {
        let drives = placement.drives.len();
        Error::new(ErrorKind::Corrupt, format!("placement: {data}+{parity} shards on {drives} drives is impossible"))
    })
}

/// Wanted bytes of one shard of a stripe.
struct Run {
    shard: u8,
    /// First block, within the shard.
    block: u16,
    /// Blocks.
    count: u16,
    /// Bytes of the first block that are not wanted.
    skip: usize,
    /// Bytes wanted.
    len: usize,
}

impl Run {
    /// Whether the blocks of `other` are among these.
    fn covers(&self, other: &Run) -> bool {
        let end = |run: &Run| u32::from(run.block) + u32::from(run.count);
        self.block <= other.block && end(other) <= end(self)
    }
}

/// The runs that hold logical bytes `[delta, delta+len)` of `stripe`, one per shard.
fn runs_of(stripe: StripeAt, data: usize, delta: u32, len: u32) -> Result<Vec<Run>> {
    let unit = u64::from(stripe.ul) * BLOCK as u64;
    let end = u64::from(delta) + u64::from(len);
    if end > unit * data as u64 || u32::from(stripe.sb) + u32::from(stripe.ul) > u32::from(u16::MAX) + 1 {
        let text = format!("{stripe:?} over {data} shards does not hold bytes {delta}..{end}");
        return Err(Error::new(ErrorKind::Corrupt, text));
    }
    let mut runs = Vec::with_capacity(data);
    let mut at = u64::from(delta);
    while at < end {
        let (shard, within) = (at / unit, at % unit);
        let len = (unit - within).min(end - at);
        let first = within / BLOCK as u64;
        let last = (within + len).div_ceil(BLOCK as u64);
        runs.push(Run {
            shard: shard as u8,
            block: stripe.sb + first as u16,
            count: (last - first) as u16,
            skip: (within % BLOCK as u64) as usize,
            len: len as usize,
        });
        at += len;
    }
    Ok(runs)
}

/// `data` if it is `count` blocks that match their checksums.
fn checked(data: Bytes, crcs: &[u32], count: u16) -> Result<Bytes> {
    let blocks = usize::from(count);
    if data.len() != blocks * BLOCK || crcs.len() != blocks {
        let text = format!("expected {blocks} blocks, found {} bytes and {} checksums", data.len(), crcs.len());
        return Err(Error::new(ErrorKind::Corrupt, text));
    }
    match data.chunks_exact(BLOCK).zip(crcs).position(|(block, crc)| crc32c(block) != *crc) {
        None => Ok(data),
        Some(bad) => Err(Error::new(ErrorKind::Corrupt, format!("block {bad} of {blocks} read: checksum mismatch"))),
    }
}

/// True if it may be about one block, and not about all that a drive has: damage, or a sector that cannot be read.
fn of_a_block(error: &Error) -> bool {
    !is_silence(error) && error.kind() != ErrorKind::NotFound
}

/// True if a drive has said nothing: neither of a block nor of a shard is anything known.
pub(crate) fn is_silence(error: &Error) -> bool {
    matches!(error.kind(), ErrorKind::TimedOut | ErrorKind::Stopped | ErrorKind::Busy)
}

fn too_few(stripe: StripeAt, code: Code, errors: &[Error]) -> Error {
    let all: Vec<&str> = errors.iter().map(Error::message).collect();
    let (pack, need) = (stripe.pack, code.data());
    Error::new(
        ErrorKind::Stale,
        format!("{pack}: {need} shards are needed to read it, fewer are at hand ({})", all.join("; ")),
    )
}
