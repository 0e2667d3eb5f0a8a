//! Layout: where the bytes of a part of a file are. Statfs: how much there is.

use std::collections::BTreeMap;

use braid_base::ids::{FsId, Ino, PackId};
use braid_base::limits::{CHUNK, LAYOUT_BYTES_MAX};
use braid_base::msg::fs::{Layout, Reply};
use braid_base::record::{Extent, Place, Placement, UsageRec};
use braid_base::{Error, ErrorKind, Result, keys};

use crate::data::chunk::{FileId, chunk_at, with_records};
use crate::data::remap;
use crate::ops::write::load_file;
use crate::state::State;
use crate::txn::Txn;

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
    let mut packs: BTreeMap<PackId, Placement> = BTreeMap::new();
    for chunk in with_records(t, file, chunk_at(off), chunk_at(end - 1), (LAYOUT_BYTES_MAX / CHUNK) as usize + 1)? {
        let chunk = file.chunk(chunk);
        let Some((from, to)) = chunk.clip(off, end) else { continue };
        for extent in remap::history(t, s, chunk, &cuts)?.now().extents {
            let Some(extent) = within(extent, from, to) else { continue };
            if let Place::Flash { stripe, .. } = extent.place {
                packs.insert(stripe.pack, s.data.packs.place(stripe.pack)?.clone());
            }
            layout.extents.push((chunk.start() + u64::from(extent.off), extent));
        }
    }
    layout.packs = packs.into_iter().collect();
    Ok(Reply::Layout(layout))
}

/// The part of `extent` in `[from, to)`.
fn within(extent: Extent, from: u32, to: u32) -> Option<Extent> {
    let (first, end) = (extent.off.max(from), (extent.off + extent.len).min(to));
    let place = || extent.place.advanced(first - extent.off);
    (first < end).then(|| Extent { off: first, len: end - first, place: place() })
}

/// `Op::Statfs`: usage of the file system in this partition.
pub(crate) fn usage(t: &Txn<'_>, fs: FsId) -> Result<Reply> {
    let UsageRec { bytes, inodes } = t.read(&keys::usage(t.partition, fs, 0))?.unwrap_or_default();
    Ok(Reply::Usage { bytes, inodes })
}
