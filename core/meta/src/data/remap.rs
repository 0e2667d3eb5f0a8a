//! Remap (design 5.8): replaces the base of a chunk by one that says the same in other places.
//!
//! The design replaces pointers where they still equal the old ones. Here no comparison is needed: a base
//! stands for the history of its chunk up to one log position, and history up to a position never changes.
//! Whatever was written or cut after that position lies above the new base as it lay above the old one.
//! So a Remap planned long ago commits with the position of its *planning*, whatever happened since
//! (stamped with the position of its commit, it would hide newer writes: K7, K27).

use std::collections::{BTreeMap, BTreeSet};

use braid_base::Result;
use braid_base::ids::{Chunk, Index, Layer};
use braid_base::keys::{self, prefix_end};
use braid_base::record::{BaseRec, Extent, Place};

use crate::data::chunk::{ChunkId, FileId};
use crate::data::packs::PackChanges;
use crate::data::view::{Cuts, History, bytes_of};
use crate::data::{self, space, tier};
use crate::ops::inode;
use crate::state::State;
use crate::txn::Txn;

/// What merges of this transaction changed in the bytes that files hold, and in those that packs have to keep.
#[derive(Default)]
pub(crate) struct UsedChanges {
    files: BTreeMap<FileId, i64>,
    packs: PackChanges,
}

impl UsedChanges {
    /// Books the changes to the packs, to the inodes and to the usage record.
    pub fn book(self, t: &mut Txn<'_>, s: &mut State) -> Result<()> {
        s.data.packs.recount(t, self.packs);
        for (file, change) in self.files {
            let Some(mut inode) = inode::find(t, file.fs, file.ino)? else { continue };
            space::charge(t, s, file.fs, &mut inode, change)?;
            // Not a change that anyone may see as one: the content is the same.
            t.write(keys::inode(t.partition, file.fs, file.ino, Layer::FIRST), &inode);
            if change != 0 {
                crate::leases::refresh(t, s, (file.fs, file.ino), None);
            }
        }
        Ok(())
    }
}

/// The cuts of a file, without a look at the view if there are none.
pub(crate) fn cuts(t: &Txn<'_>, s: &State, file: FileId) -> Result<Cuts> {
    s.data.cutting.first(file).map_or(Ok(Cuts::default()), |first| Cuts::read(t, file, first))
}

/// The history of a chunk.
pub(crate) fn history(t: &Txn<'_>, s: &State, chunk: ChunkId, cuts: &Cuts) -> Result<History> {
    History::read(t, &s.data.stage, chunk, cuts)
}

/// Chunks of `file` in `[from, to]` that have a base or a slice, in order, at most `limit`.
pub(crate) fn with_records(
    t: &Txn<'_>,
    s: &State,
    file: FileId,
    (from, to): (Chunk, Chunk),
    limit: usize,
) -> Result<Vec<Chunk>> {
    if from > to {
        return Ok(Vec::new());
    }
    let (p, FileId { fs, ino, layer }) = (t.partition, file);
    let mut found = BTreeSet::new();
    // A newer layer sorts first, so the lowest key of a chunk is that of the highest layer.
    let highest = Layer(u32::MAX);
    let (first, end) = (keys::base(p, fs, ino, from, highest), end_of(&keys::bases(p, fs, ino), to));
    let (mut last, mut horizon) = (None, to);
    t.scan(&first, &end, &mut |key, _| {
        let (Some(chunk), Some(found_layer)) = (keys::chunk_of(key), keys::chunk_layer(key)) else { return true };
        if found_layer != layer || last == Some(chunk) {
            return true;
        }
        if found.len() == limit {
            horizon = last.unwrap_or(to);
            return false;
        }
        last = Some(chunk);
        found.insert(chunk);
        true
    })?;
    // Slices are in memory (`Stage`); what is still on its way into the view counts as looked at.
    t.saw_pending(&keys::slice(p, fs, ino, from, highest, Index(0), 0), &end_of(&keys::slices_of_file(p, fs, ino), to));
    found.extend(s.data.stage.of_file(file, (from, horizon)).map(|(chunk, _)| chunk.chunk).take(limit));
    // Beyond the horizon bases were not read, so the list may have gaps there.
    Ok(found.into_iter().filter(|chunk| *chunk <= horizon).take(limit).collect())
}

fn end_of(prefix: &[u8], to: Chunk) -> Vec<u8> {
    let mut last = prefix.to_vec();
    last.extend_from_slice(&to.0.to_be_bytes());
    prefix_end(&last)
}

/// Makes `extents` the base of `chunk` for everything up to `upto` and deletes the slices it stands for.
///
/// `extents` hold the bytes of the view at `upto`, and perhaps zeros in gaps of it. They hold no staged place.
pub(crate) fn rebase(
    t: &mut Txn<'_>,
    s: &mut State,
    chunk: ChunkId,
    history: &History,
    upto: Index,
    extents: Vec<Extent>,
    used: &mut UsedChanges,
) -> Result<()> {
    rebase_held(t, s, chunk, history, upto, (extents, None), used)
}

/// As [`rebase`]; `held`: how many bytes the view at `upto` has, if that is known and nothing is owed for it.
pub(crate) fn rebase_held(
    t: &mut Txn<'_>,
    s: &mut State,
    chunk: ChunkId,
    history: &History,
    upto: Index,
    (extents, held): (Vec<Extent>, Option<u64>),
    used: &mut UsedChanges,
) -> Result<()> {
    assert!(upto < t.index && history.base_upto() <= Some(upto), "{chunk:?}: a base never goes back");
    assert!(!extents.iter().any(|e| matches!(e.place, Place::Stage { .. })), "{chunk:?}: a base never names the log");
    let mut change = 0;
    if held != Some(bytes_of(&extents)) {
        change = filled(history, upto, &extents);
        // Filled gaps change what the chunk holds.
        s.data.cover.forget(chunk);
    }
    if change != 0 {
        *used.files.entry(chunk.file).or_default() += change;
    }
    let merged = history.slices.iter().take_while(|(at, ..)| *at <= upto);
    let written = merged.clone().next().is_some();
    let (mut gone, come) = differences(history.base.as_ref().map_or(&[], |base| &base.extents), &extents);
    gone.extend(merged.map(|(.., extent)| *extent));
    used.packs.count(&gone, &come);
    if used.packs.is_full() {
        s.data.packs.recount(t, std::mem::take(&mut used.packs));
    }
    data::recount_beside_packs(t, s, chunk.file.fs, &gone, &come)?;
    let since_s = match &history.base {
        // Its age is that of what is in it: a move to elsewhere on flash, or off it, makes nothing younger.
        Some(base) if !written && !has_moved(&base.extents, &extents) => base.since_s,
        _ => tier::wall_s(t),
    };
    s.data.tier.changed(chunk.file.fs, since_s);
    tier::written(s, chunk, since_s, &extents);
    if !extents.is_empty() {
        t.write(chunk.base_key(t), &BaseRec { upto, since_s, extents });
    } else if history.base.is_some() {
        // No base is as good as an empty one: all that it hid is deleted with it.
        t.delete(chunk.base_key(t));
    }
    for (at, sub, _) in history.slices.iter().take_while(|(at, ..)| *at <= upto) {
        t.delete(chunk.slice_key(t, *at, *sub));
    }
    s.data.stage.remove_upto(chunk, upto, t.index);
    Ok(())
}

/// The extents of `before` that are not in `after`, and the other way round; both are in order. Most of a base stays as
/// it is.
fn differences(before: &[Extent], after: &[Extent]) -> (Vec<Extent>, Vec<Extent>) {
    let (mut gone, mut come, mut after) = (Vec::new(), Vec::new(), after.iter().copied().peekable());
    for extent in before {
        while let Some(new) = after.next_if(|new| new.off < extent.off) {
            come.push(new);
        }
        if after.next_if_eq(extent).is_none() {
            gone.push(*extent);
        }
    }
    come.extend(after);
    (gone, come)
}

/// How many bytes more the chunk of `history` holds once `extents` are its base up to `upto`.
fn filled(history: &History, upto: Index, extents: &[Extent]) -> i64 {
    let view = history.at(upto);
    let mut change = -(view.owed as i64);
    if bytes_of(extents) != view.bytes() {
        // Filled gaps count as held, unless something later lies over them. What a later cut with open accounts
        // takes of them it will subtract, so it counts here.
        let after = |extents: &[Extent]| {
            let now = history.replay(extents, upto, Index(u64::MAX));
            (now.bytes() + now.owed) as i64
        };
        change += after(extents) - after(&view.extents);
    }
    change
}

/// True if bytes came into objects, or back from them.
fn has_moved(before: &[Extent], after: &[Extent]) -> bool {
    let sums = |extents: &[Extent]| {
        let copied = extents.iter().filter(|extent| extent.place.object().is_some());
        let only = extents.iter().filter(|extent| matches!(extent.place, Place::Object(_)));
        (copied.map(|extent| u64::from(extent.len)).sum::<u64>(), only.map(|extent| u64::from(extent.len)).sum::<u64>())
    };
    let ((copied, only), (now_copied, now_only)) = (sums(before), sums(after));
    now_copied > copied || now_only < only
}
