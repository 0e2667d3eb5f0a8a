//! Which parts of files lie in blocks of a pack that cannot be read.

use std::collections::BTreeSet;

use braid_base::Result;
use braid_base::ids::PackId;
use braid_base::keys::{self, prefix_end};
use braid_base::limits::{BLOCK, CLEANUP_KEYS_MAX};
use braid_base::msg::host::Lost;
use braid_base::record::{Extent, PackRec, Place, StripeAt};

use crate::data::care::hinted;
use crate::data::remap;
use crate::state::State;
use crate::txn::Txn;

/// Blocks of shards (shard, first block, how many), those that overlap or follow each other as one; in order.
pub(super) fn merged(runs: impl Iterator<Item = (u8, u16, u16)>) -> Vec<(u8, u16, u16)> {
    let all: BTreeSet<(u8, u16, u16)> = runs.collect();
    let mut merged: Vec<(u8, u16, u16)> = Vec::new();
    for (shard, first, count) in all {
        match merged.last_mut() {
            Some((of, begin, known)) if *of == shard && u32::from(first) <= u32::from(*begin) + u32::from(*known) => {
                *known = (*known).max((first - *begin).saturating_add(count));
            }
            _ => merged.push((shard, first, count)),
        }
    }
    merged
}

/// Parts that follow each other as one.
pub(super) fn joined(parts: BTreeSet<Lost>) -> Vec<Lost> {
    let mut all: Vec<Lost> = Vec::new();
    for part in parts {
        match all.last_mut() {
            Some(last)
                if (last.fs, last.ino, last.object) == (part.fs, part.ino, part.object)
                    && last.off + last.len == part.off =>
            {
                last.len += part.len;
            }
            _ => all.push(part),
        }
    }
    all
}

/// The parts of files that lie in blocks `lost` of a pack; about `limit` of them, if there are more.
pub(super) fn refer(
    t: &Txn<'_>,
    s: &State,
    (id, rec): (PackId, &PackRec),
    lost: &[(u8, u16, u16)],
    limit: usize,
) -> Result<Vec<Lost>> {
    let prefix = keys::hints(t.partition, id);
    let (mut from, mut seen, mut all) = (prefix.clone(), BTreeSet::new(), Vec::new());
    let damage = &s.data.tier.damage;
    loop {
        let (hints, next) = hinted(t, &from, &prefix_end(&prefix), CLEANUP_KEYS_MAX)?;
        for (_, file, chunk) in hints {
            let chunk = file.chunk(chunk);
            if !seen.insert(chunk) {
                continue;
            }
            let cuts = remap::cuts(t, s, file)?;
            // What is in an object as well is read from there.
            let only = |extent: &Extent| extent.place.object().is_none_or(|at| damage.touches(at, extent.len));
            for extent in remap::history(t, s, chunk, &cuts)?.now().extents.into_iter().filter(only) {
                for (off, len) in within(&extent, id, rec, lost) {
                    all.push(Lost { fs: file.fs, ino: file.ino, off: chunk.start() + off, len, object: None });
                }
            }
            if all.len() >= limit {
                return Ok(all);
            }
        }
        match next {
            Some(next) => from = next,
            None => return Ok(all),
        }
    }
}

/// The parts of an extent that lie in blocks `lost` of pack `id`, as offsets within its chunk, and their lengths.
fn within(extent: &Extent, id: PackId, rec: &PackRec, lost: &[(u8, u16, u16)]) -> Vec<(u64, u64)> {
    let Place::Flash { stripe: StripeAt { pack, sb, ul }, delta, .. } = extent.place else { return Vec::new() };
    if pack != id {
        return Vec::new();
    }
    let (sb, ul) = (u64::from(sb), u64::from(ul));
    let (begin, end) = (u64::from(delta), u64::from(delta) + u64::from(extent.len));
    let parts = lost.iter().filter(|(shard, ..)| *shard < rec.place.data).filter_map(|(shard, first, count)| {
        let (first, last) = (u64::from(*first).max(sb), (u64::from(*first) + u64::from(*count)).min(sb + ul));
        let unit = u64::from(*shard) * ul;
        // Blocks of the stripe, in the order of its bytes.
        let from = ((unit + first.saturating_sub(sb)) * BLOCK as u64).max(begin);
        let to = ((unit + last.saturating_sub(sb)) * BLOCK as u64).min(end);
        (first < last && from < to).then(|| (u64::from(extent.off) + from - begin, to - from))
    });
    parts.collect()
}
