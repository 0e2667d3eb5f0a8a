//! Layout: where the bytes of a part of a file are. Statfs: how much there is.

use braid_base::ids::{Chunk, FsId, Ino};
use braid_base::limits::{CHUNK, LAYOUT_BYTES_MAX};
use braid_base::msg::fs::{Ages, Layout, Reply, Residency};
use braid_base::record::{Extent, Place, UsageRec};
use braid_base::{Error, ErrorKind, Result, keys};

use crate::data::chunk::{ChunkId, FileId, chunk_at};
use crate::data::view::Cuts;
use crate::data::{remap, tier};
use crate::ops::write::load_file;
use crate::state::State;
use crate::txn::Txn;

/// Chunks looked at in one go on the way to the next data: nearly always the first one has some.
const NEXT_CHUNKS: usize = 16;

/// `Op::Layout`: the bytes `[off, off+len)`, cut at the end of the file. With `recall` what of them is in objects only
/// comes back.
pub(crate) fn layout(
    t: &Txn<'_>,
    s: &mut State,
    fs: FsId,
    ino: Ino,
    (off, len): (u64, u64),
    recall: bool,
) -> Result<Reply> {
    let size = load_file(t, s, fs, ino)?.attr.size;
    let mut layout = Layout { size, ..Layout::default() };
    let end = off.saturating_add(len).min(size);
    if off >= end {
        return Ok(Reply::Layout(layout));
    }
    if end - off > LAYOUT_BYTES_MAX {
        let message = format!("a layout covers at most {LAYOUT_BYTES_MAX} bytes, {} were asked for", end - off);
        return Err(Error::new(ErrorKind::Invalid, message));
    }
    let file = FileId::first(fs, ino);
    let cuts = remap::cuts(t, s, file)?;
    let range = (chunk_at(off), chunk_at(end - 1));
    for chunk in remap::with_records(t, s, file, range, (LAYOUT_BYTES_MAX / CHUNK) as usize + 1)? {
        add(t, s, &cuts, file.chunk(chunk), (off, end), &mut layout)?;
    }
    tier::shown(t, s, file, (off, end), &mut layout, recall);
    Ok(Reply::Layout(layout))
}

/// Chunks that one answer to `Op::Residency` looks at.
const RESIDENCY_CHUNKS: usize = 1_024;

/// `Op::Residency`: where the bytes of the file are, from chunk `from` on.
pub(crate) fn residency(t: &Txn<'_>, s: &State, fs: FsId, ino: Ino, from: Chunk) -> Result<Reply> {
    let size = load_file(t, s, fs, ino)?.attr.size;
    let ages = Ages { now_s: tier::wall_s(t), ..Ages::default() };
    let mut sums = Residency { ages, ..Residency::default() };
    let Some(last) = size.checked_sub(1).map(chunk_at) else { return Ok(Reply::Residency(sums)) };
    let file = FileId::first(fs, ino);
    let cuts = remap::cuts(t, s, file)?;
    let chunks = remap::with_records(t, s, file, (from, last), RESIDENCY_CHUNKS)?;
    for chunk in &chunks {
        let history = remap::history(t, s, file.chunk(*chunk), &cuts)?;
        // What is merged later counts from then.
        let since_s = history.base.as_ref().filter(|_| history.slices.is_empty()).map(|base| base.since_s);
        let extents = history.now().extents;
        sums.ages = sums.ages.with(tier::ages(t, s, file, (since_s, &extents)));
        for extent in extents {
            let bytes = u64::from(extent.len);
            match (extent.place, extent.place.object()) {
                (Place::Object(_), _) => sums.object += bytes,
                (_, None) => sums.write_cache += bytes,
                (_, Some(_)) => {
                    sums.read_cache += bytes;
                    sums.object += bytes;
                }
            }
        }
    }
    sums.next = chunks.last().filter(|chunk| **chunk < last).map(|chunk| Chunk(chunk.0 + 1));
    Ok(Reply::Residency(sums))
}

/// `Op::NextData`: the first chunk with data at or after `off`.
pub(crate) fn next_data(t: &Txn<'_>, s: &State, fs: FsId, ino: Ino, off: u64) -> Result<Reply> {
    let size = load_file(t, s, fs, ino)?.attr.size;
    let mut layout = Layout { size, ..Layout::default() };
    if off >= size {
        return Ok(Reply::Layout(layout));
    }
    let file = FileId::first(fs, ino);
    let cuts = remap::cuts(t, s, file)?;
    let (mut from, last) = (chunk_at(off), chunk_at(size - 1));
    loop {
        let chunks = remap::with_records(t, s, file, (from, last), NEXT_CHUNKS)?;
        for chunk in &chunks {
            add(t, s, &cuts, file.chunk(*chunk), (off, size), &mut layout)?;
            if !layout.extents.is_empty() {
                return Ok(Reply::Layout(layout));
            }
        }
        match chunks.last() {
            Some(chunk) if *chunk < last => from = Chunk(chunk.0 + 1),
            _ => return Ok(Reply::Layout(layout)),
        }
    }
}

/// Adds what `chunk` holds of the file's bytes `[off, end)`, and the placements of the packs it names.
fn add(t: &Txn<'_>, s: &State, cuts: &Cuts, chunk: ChunkId, (off, end): (u64, u64), layout: &mut Layout) -> Result<()> {
    let Some((from, to)) = chunk.clip(off, end) else { return Ok(()) };
    for extent in remap::history(t, s, chunk, cuts)?.now().extents {
        let Some(extent) = within(extent, from, to) else { continue };
        if let Place::Flash { stripe, .. } = extent.place
            && let Err(at) = layout.packs.binary_search_by_key(&stripe.pack, |(pack, _)| *pack)
        {
            layout.packs.insert(at, (stripe.pack, s.data.packs.place(stripe.pack)?.clone()));
        }
        layout.extents.push((chunk.start() + u64::from(extent.off), extent));
    }
    Ok(())
}

/// The part of `extent` in `[from, to)`.
fn within(extent: Extent, from: u32, to: u32) -> Option<Extent> {
    let (first, end) = (extent.off.max(from), (extent.off + extent.len).min(to));
    let place = || extent.place.advanced(first - extent.off);
    (first < end).then(|| Extent { off: first, len: end - first, place: place() })
}

/// `Op::Statfs`: usage of the file system in this partition.
pub(crate) fn usage(t: &Txn<'_>, s: &State, fs: FsId) -> Result<Reply> {
    let UsageRec { bytes, inodes, .. } = t.read(&keys::usage(t.partition, fs, 0))?.unwrap_or_default();
    Ok(Reply::Usage { bytes, inodes, total_bytes: s.data.space.total(fs) })
}
