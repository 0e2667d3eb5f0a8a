//! Layout: where the bytes of a part of a file are. Statfs: how much there is.

use braid_base::ids::{Chunk, FsId, Ino};
use braid_base::limits::{CHUNK, LAYOUT_BYTES_MAX};
use braid_base::msg::fs::{Layout, Reply};
use braid_base::record::{Extent, Place, UsageRec};
use braid_base::{Error, ErrorKind, Result, keys};

use crate::data::chunk::{ChunkId, FileId, chunk_at};
use crate::data::remap;
use crate::data::view::Cuts;
use crate::ops::write::load_file;
use crate::state::State;
use crate::txn::Txn;

/// Chunks looked at in one go on the way to the next data: nearly always the first one has some.
const NEXT_CHUNKS: usize = 16;

/// `Op::Layout`: the bytes `[off, off+len)`, cut at the end of the file.
pub(crate) fn layout(t: &Txn<'_>, s: &State, fs: FsId, ino: Ino, off: u64, len: u64) -> Result<Reply> {
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
    Ok(Reply::Layout(layout))
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
    let UsageRec { bytes, inodes } = t.read(&keys::usage(t.partition, fs, 0))?.unwrap_or_default();
    Ok(Reply::Usage { bytes, inodes, total_bytes: s.data.space.total(fs) })
}
