//! Room that `fallocate` keeps for bytes that are still to be written.
//!
//! It counts as used, in the inode and in the usage of the file system, so nobody else gets it; a write into the
//! range takes from it what it adds, instead of asking for room. One range is remembered per file: a second one
//! beside it makes it longer, one far from it makes it span the gap too (the gap itself is not paid for). The range
//! shrinks with truncation; a hole punched in it gives back what was not written there.

use braid_base::Result;
use braid_base::ids::FsId;
use braid_base::record::{InodeRec, Reserved};

use crate::data::chunk::FileId;
use crate::data::{cut, space};
use crate::state::State;
use crate::txn::Txn;

/// Keeps room for what `[from, to)` does not hold. `NoSpace` if there is not enough. Changes `inode`, does not store it.
pub(crate) fn keep(
    t: &mut Txn<'_>,
    s: &mut State,
    file: FileId,
    inode: &mut InodeRec,
    from: u64,
    to: u64,
) -> Result<()> {
    let known = Some(inode.reserved).filter(|known| known.bytes > 0);
    let span = known.unwrap_or(Reserved { from, to: from, bytes: 0 });
    let (before, after) = ((from, to.min(span.from)), (from.max(span.to), to));
    let mut fresh = 0;
    for (from, to) in [before, after].into_iter().filter(|(from, to)| from < to) {
        fresh += (to - from) - held(t, s, file, inode, from, to)?;
    }
    // What lies in the range that is known may be a gap in it, or a hole punched since.
    let (first, end) = (from.max(span.from), to.min(span.to));
    if first < end {
        fresh += ((end - first) - held(t, s, file, inode, first, end)?).saturating_sub(span.bytes);
    }
    check(s, file.fs, inode, fresh)?;
    space::charge(t, s, file.fs, inode, fresh as i64)?;
    inode.reserved = Reserved { from: span.from.min(from), to: span.to.max(to), bytes: span.bytes + fresh };
    Ok(())
}

/// Keeps room for all of `[from, to)`, whose content has just been hidden, after [`release`].
pub(crate) fn keep_hidden(
    t: &mut Txn<'_>,
    s: &mut State,
    fs: FsId,
    inode: &mut InodeRec,
    (from, to): (u64, u64),
) -> Result<()> {
    let known = Some(inode.reserved).filter(|known| known.bytes > 0);
    let span = known.unwrap_or(Reserved { from, to, bytes: 0 });
    space::charge(t, s, fs, inode, (to - from) as i64)?;
    inode.reserved = Reserved { from: span.from.min(from), to: span.to.max(to), bytes: span.bytes + (to - from) };
    Ok(())
}

/// `NoSpace` unless there is room for `fresh` more bytes in the file beside what is lent.
pub(crate) fn check(s: &State, fs: FsId, inode: &InodeRec, fresh: u64) -> Result<()> {
    let lent = s.data.grants.outstanding(None);
    s.data.space.check(fs, space::growth(inode, fresh), s.config.capacity_bytes.saturating_sub(lent), 0)
}

/// A write adds bytes, `inside` of them in the range for which room is kept: what of that need not be asked for.
pub(crate) fn take(inode: &mut InodeRec, inside: u64) -> u64 {
    let taken = inside.min(inode.reserved.bytes);
    inode.reserved.bytes -= taken;
    taken
}

/// Gives back what is kept for `[from, to)`, before that is hidden.
pub(crate) fn release(
    t: &mut Txn<'_>,
    s: &mut State,
    file: FileId,
    inode: &mut InodeRec,
    (from, to): (u64, u64),
) -> Result<()> {
    let known = inode.reserved;
    let (first, end) = (from.max(known.from), to.min(known.to));
    if known.bytes == 0 || first >= end {
        return Ok(());
    }
    let counted = count(t, s, file, inode, first, end)?;
    let cuts_tail = to >= known.to;
    let back = match counted {
        // All of it, or what of the tail was written is not known: room that nobody gives back is worse than none.
        _ if cuts_tail && (from <= known.from || counted.is_none()) => known.bytes,
        Some(held) => (end - first) - held,
        None => (end - first) - estimate(inode, first, end),
    };
    let mut back = back.min(known.bytes);
    if cuts_tail {
        // No more is kept than there is room for in what is left of the range.
        back = back.max(known.bytes.saturating_sub(first - known.from));
        inode.reserved.to = first;
    }
    space::charge(t, s, file.fs, inode, -(back as i64))?;
    inode.reserved.bytes -= back;
    Ok(())
}

/// Bytes that the file holds in `[from, to)`; of many chunks an estimate.
fn held(t: &Txn<'_>, s: &State, file: FileId, inode: &InodeRec, from: u64, to: u64) -> Result<u64> {
    Ok(count(t, s, file, inode, from, to)?.unwrap_or_else(|| estimate(inode, from, to)))
}

/// The same; `None` if it lies in too many chunks.
fn count(t: &Txn<'_>, s: &State, file: FileId, inode: &InodeRec, from: u64, to: u64) -> Result<Option<u64>> {
    if inode.flags & InodeRec::DATA == 0 { Ok(Some(0)) } else { cut::count(t, s, file, from, to) }
}

/// As much of the file as fits there.
fn estimate(inode: &InodeRec, from: u64, to: u64) -> u64 {
    inode.attr.used.saturating_sub(inode.reserved.bytes).min(to - from)
}
