//! Cuts: truncate and punch hide bytes at once with one record; what they hid is cleaned up in the background.
//!
//! Life of a cut:
//! 1. One entry writes its record: all older bytes in its range read as zero from then on (K24).
//! 2. Background work merges it into the base of every chunk in its range that holds anything older.
//!    A chunk with staged bytes waits for destage, a chunk under a bulk move for its end.
//! 3. When one pass over the range finds no chunk left that needs it, the record goes.

use std::collections::{BTreeMap, BTreeSet};

use braid_base::attr::FileType;
use braid_base::ids::{Chunk, FsId, Index, Ino, PartitionId};
use braid_base::keys::{self, Table};
use braid_base::limits::{CLEANUP_KEYS_MAX, CUT_CHUNKS_MAX, FILE_MAX};
use braid_base::record::{InodeRec, PunchRec};
use braid_base::{Error, ErrorKind, Result};
use braid_replica::kv::Kv;

use crate::data::chunk::{FileId, chunk_at};
use crate::data::plan::EXTENTS_MAX;
use crate::data::remap::{self, UsedChanges};
use crate::data::view::{Cells, Cuts, View};
use crate::data::{reserve, space};
use crate::ops::inode;
use crate::state::State;
use crate::txn::Txn;

/// A file whose cuts could not all go is looked at again after this, milliseconds.
const AGAIN_MS: u64 = 1_000;

/// Files with cuts, and how far their cleanup is.
#[derive(Default)]
pub(crate) struct Cutting {
    files: BTreeMap<FileId, Pass>,
    /// When each file is due.
    queue: BTreeSet<(u64, FileId)>,
    /// How often `files` was changed.
    changes: u64,
}

/// One pass over the chunks of a file.
#[derive(Clone, Default)]
struct Pass {
    due_ms: u64,
    /// No cut of the file is older.
    first: Index,
    /// Cuts up to this position are considered; `None`: the pass has not begun.
    upto: Option<Index>,
    /// The chunk to go on with.
    next: Chunk,
    /// Cuts that some chunk still needs.
    needed: BTreeSet<Index>,
}

impl Cutting {
    /// Reads table 15.
    pub fn load(p: PartitionId, kv: &dyn Kv) -> Result<Self> {
        let mut cutting = Self::default();
        let prefix = keys::table(p, Table::Punch);
        kv.scan(&prefix, &keys::prefix_end(&prefix), &mut |key, _| {
            if let (Some((fs, ino)), Some(layer), Some(at)) =
                (keys::ino_of(key), keys::file_layer(key), keys::punch_index(key))
            {
                // In order: the first one counts.
                cutting.add(FileId { fs, ino, layer }, at, 0);
            }
            true
        })?;
        Ok(cutting)
    }

    /// How often what [`Self::first`] says was changed.
    pub fn changes(&self) -> u64 {
        self.changes
    }

    /// If the file may have cuts: none is older than this.
    pub fn first(&self, file: FileId) -> Option<Index> {
        self.files.get(&file).map(|pass| pass.first)
    }

    fn add(&mut self, file: FileId, at: Index, due_ms: u64) {
        if !self.files.contains_key(&file) {
            self.set(file, Pass { due_ms, first: at, ..Pass::default() });
        }
    }

    fn set(&mut self, file: FileId, pass: Pass) {
        self.changes += u64::from(self.first(file) != Some(pass.first));
        self.queue.insert((pass.due_ms, file));
        let (due_ms, before) = (pass.due_ms, self.files.insert(file, pass));
        if let Some(before) = before.filter(|before| before.due_ms != due_ms) {
            self.queue.remove(&(before.due_ms, file));
        }
    }

    /// The file has no cut (any more).
    pub fn remove(&mut self, file: FileId) {
        if let Some(pass) = self.files.remove(&file) {
            self.queue.remove(&(pass.due_ms, file));
            self.changes += 1;
        }
    }

    fn due(&self, now_ms: u64) -> Option<FileId> {
        self.queue.first().filter(|(due, _)| *due <= now_ms).map(|(_, file)| *file)
    }
}

/// Sets the length of a file; see [`crate::data::truncate`].
pub(crate) fn truncate(
    t: &mut Txn<'_>,
    s: &mut State,
    fs: FsId,
    ino: Ino,
    inode: &mut InodeRec,
    size: u64,
) -> Result<()> {
    match inode.attr.kind {
        FileType::File => {}
        FileType::Directory => return Err(ErrorKind::IsDirectory.into()),
        _ => return Err(Error::new(ErrorKind::Invalid, "only a regular file has a length that can be set")),
    }
    if size > FILE_MAX {
        return Err(ErrorKind::FileTooBig.into());
    }
    if size <= inode.attr.size {
        reserve::release(t, s, FileId::first(fs, ino), inode, (size, u64::MAX))?;
    }
    if size < inode.attr.size {
        cut(t, s, FileId::first(fs, ino), inode, size, u64::MAX)?;
    }
    inode.attr.size = size;
    inode::touch(inode, t.now.wall);
    Ok(())
}

/// Hides the bytes `[from, to)` of a file. Changes `inode.attr.used`, does not store the inode. At most one cut of
/// a file in one entry.
pub(crate) fn cut(
    t: &mut Txn<'_>,
    s: &mut State,
    file: FileId,
    inode: &mut InodeRec,
    from: u64,
    to: u64,
) -> Result<()> {
    if inode.flags & InodeRec::DATA == 0 || from >= to {
        return Ok(());
    }
    let (hidden, owed) = match count(t, s, file, from, to)? {
        Some(hidden) => (hidden, false),
        None if from == 0 && to == u64::MAX && remap::cuts(t, s, file)?.0.is_empty() => (inode.attr.used, false),
        // Too many to count now: whoever merges the cut into a chunk subtracts what it hid there.
        None => (0, true),
    };
    if hidden == 0 && !owed {
        return Ok(());
    }
    space::charge(t, s, file.fs, inode, -(hidden as i64))?;
    t.write(keys::punch(t.partition, file.fs, file.ino, file.layer, t.index), &PunchRec { from, to, owed });
    s.data.cutting.add(file, t.index, t.now.mono_ms);
    s.data.cover.forget_file(file);
    Ok(())
}

/// Bytes that the file holds in `[from, to)`; `None` if they lie in too many chunks to count them now.
pub(crate) fn count(t: &Txn<'_>, s: &State, file: FileId, from: u64, to: u64) -> Result<Option<u64>> {
    let cuts = remap::cuts(t, s, file)?;
    let last = chunk_at(to.min(FILE_MAX).saturating_sub(1));
    let chunks = remap::with_records(t, s, file, (chunk_at(from), last), CUT_CHUNKS_MAX + 1)?;
    if chunks.len() > CUT_CHUNKS_MAX {
        return Ok(None);
    }
    let mut held = 0;
    for chunk in chunks.into_iter().map(|chunk| file.chunk(chunk)) {
        let view = remap::history(t, s, chunk, &cuts)?.now();
        let (from, to) = chunk.clip(from, to).unwrap_or_default();
        held += Cells::new(&view.extents).cut(from, to);
    }
    Ok(Some(held))
}

/// One bounded step of cleanup.
pub(crate) fn clean(t: &mut Txn<'_>, s: &mut State) -> Result<()> {
    let Some(file) = s.data.cutting.due(t.now.mono_ms) else { return Ok(()) };
    let Some(mut pass) = s.data.cutting.files.get(&file).cloned() else { return Ok(()) };
    let cuts = Cuts::read(t, file, pass.first)?;
    if cuts.0.is_empty() {
        s.data.cutting.remove(file);
        return Ok(());
    }
    let newest = Index(t.index.0 - 1);
    let upto = *pass.upto.get_or_insert_with(|| {
        pass.next = chunk_at(cuts.0.iter().map(|(_, cut)| cut.from).min().unwrap_or(0));
        newest
    });
    let end = cuts.0.iter().map(|(_, cut)| cut.to).max().unwrap_or(0);
    let last = chunk_at(end.min(FILE_MAX).saturating_sub(1));
    let chunks = remap::with_records(t, s, file, (pass.next, last), CLEANUP_KEYS_MAX)?;
    let mut complete = chunks.len() < CLEANUP_KEYS_MAX;
    let mut used = UsedChanges::default();
    for chunk in chunks {
        if t.is_full() {
            complete = false;
            break;
        }
        merge(t, s, file, chunk, &cuts, upto, &mut pass.needed, &mut used)?;
        pass.next = Chunk(chunk.0 + 1);
    }
    used.book(t, s)?;
    if !complete {
        s.data.cutting.set(file, pass);
        return Ok(());
    }
    let (mut again_ms, mut left) = (None, None);
    for (at, _) in &cuts.0 {
        if *at > upto || pass.needed.contains(at) {
            again_ms = again_ms.max(Some(t.now.mono_ms + AGAIN_MS));
        } else if t.is_full() {
            again_ms = again_ms.max(Some(t.now.mono_ms));
        } else {
            t.delete(keys::punch(t.partition, file.fs, file.ino, file.layer, *at));
            continue;
        }
        left.get_or_insert(*at);
    }
    match (again_ms, left) {
        (Some(due_ms), Some(first)) => s.data.cutting.set(file, Pass { due_ms, first, ..Pass::default() }),
        _ => s.data.cutting.remove(file),
    }
    Ok(())
}

/// Merges the cuts into one chunk if that needs no bulk move; else notes which cuts it still needs.
#[expect(clippy::too_many_arguments, reason = "one loop body, split off to fit a screen")]
fn merge(
    t: &mut Txn<'_>,
    s: &mut State,
    file: FileId,
    chunk: Chunk,
    cuts: &Cuts,
    upto: Index,
    needed: &mut BTreeSet<Index>,
    used: &mut UsedChanges,
) -> Result<()> {
    let chunk = file.chunk(chunk);
    let history = remap::history(t, s, chunk, cuts)?;
    let here = cuts.0.iter().filter(|(at, cut)| *at <= upto && chunk.clip(cut.from, cut.to).is_some());
    let mine: Vec<Index> = here.map(|(at, _)| *at).filter(|at| history.needs_cut(*at)).collect();
    if mine.is_empty() {
        return Ok(());
    }
    let merged = history.mergeable(Index(t.index.0 - 1));
    let view: View = history.at(merged);
    let crumbled = view.extents.len() > EXTENTS_MAX;
    if s.data.jobs.is_busy(chunk) || view.has_stage() || crumbled {
        needed.extend(mine);
        if crumbled {
            s.data.jobs.want(chunk);
        }
        return Ok(());
    }
    needed.extend(mine.into_iter().filter(|at| *at > merged));
    remap::rebase(t, s, chunk, &history, merged, view.extents, used)?;
    Ok(())
}
