//! What a chunk holds: as of now, or as of an earlier log position.
//!
//! A chunk is its base, then slices and cuts in the order of the log (design 5.8). The history up to a
//! position never changes, so its view may be computed at any time and always gives the same bytes.

use std::collections::BTreeMap;

use braid_base::ids::Index;
use braid_base::keys;
use braid_base::limits::MERGE_SLICES_MAX;
use braid_base::record::{BaseRec, Extent, Place, PunchRec, Record};
use braid_base::{Error, ErrorKind, Result};

use crate::data::chunk::{ChunkId, FileId};
use crate::data::stage::{Slice, Stage};
use crate::txn::Txn;

/// All cuts of a file, in log order. Read once for many chunks.
#[derive(Clone, Debug, Default)]
pub(crate) struct Cuts(pub Vec<(Index, PunchRec)>);

impl Cuts {
    /// Reads them; it is known that there is none before `first`. (Where many were made and cleaned, a scan from the
    /// beginning would pass what the engine keeps of each deleted one.)
    pub fn read(t: &Txn<'_>, file: FileId, first: Index) -> Result<Self> {
        let mut cuts = Vec::new();
        let mut bad = None;
        let from = keys::punch(t.partition, file.fs, file.ino, file.layer, first);
        let to = keys::prefix_end(&keys::punches(t.partition, file.fs, file.ino, file.layer));
        t.scan(&from, &to, &mut |key, value| {
            match (keys::punch_index(key), PunchRec::decode(value)) {
                (Some(at), Ok(punch)) => cuts.push((at, punch)),
                (_, Err(error)) => bad = Some(error),
                (None, _) => bad = Some(Error::new(ErrorKind::Corrupt, "punch: the key is too short")),
            }
            bad.is_none()
        })?;
        bad.map_or(Ok(Self(cuts)), Err)
    }
}

/// One change of a chunk after its base.
#[derive(Clone, Copy, Debug)]
enum Change {
    Put(Extent),
    Cut { from: u32, to: u32, owed: bool },
}

/// A chunk's base and everything after it.
#[derive(Clone, Debug, Default)]
pub(crate) struct History {
    /// The merged content, if any.
    pub base: Option<BaseRec>,
    /// All slices, in log order.
    pub slices: Vec<Slice>,
    changes: Vec<(Index, Change)>,
}

/// A chunk's content as of some position.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct View {
    /// Sorted, disjoint, neighbours joined.
    pub extents: Vec<Extent>,
    /// Bytes that cuts with open accounts (`PunchRec::owed`) took away.
    pub owed: u64,
}

impl History {
    /// Reads it; `cuts` are all cuts of the file.
    pub fn read(t: &Txn<'_>, stage: &Stage, chunk: ChunkId, cuts: &Cuts) -> Result<Self> {
        let base: Option<BaseRec> = t.read(&chunk.base_key(t))?;
        // A base takes all slices up to its position with it (`rebase`).
        let upto = base.as_ref().map_or(Index(0), |base| base.upto);
        let slices: Vec<Slice> = stage.slices(chunk, upto.next()).copied().collect();
        if let Some((newest, ..)) = slices.last() {
            t.saw(*newest);
        }
        let mut changes: Vec<_> = slices.iter().map(|(at, _, extent)| (*at, Change::Put(*extent))).collect();
        for (at, cut) in cuts.0.iter().filter(|(at, _)| *at > upto) {
            if let Some((from, to)) = chunk.clip(cut.from, cut.to) {
                changes.push((*at, Change::Cut { from, to, owed: cut.owed }));
            }
        }
        // Stable: the slices of one entry keep the order of their sub-numbers.
        changes.sort_by_key(|(at, _)| *at);
        Ok(Self { base, slices, changes })
    }

    /// All that its records point to, hidden or not.
    pub fn pointers(&self) -> impl Iterator<Item = &Extent> {
        let bases = self.base.iter().flat_map(|base| &base.extents);
        bases.chain(self.slices.iter().map(|(.., extent)| extent))
    }

    /// Up to where the base is merged; `None` without a base.
    pub fn base_upto(&self) -> Option<Index> {
        self.base.as_ref().map(|base| base.upto)
    }

    /// The newest position up to `upto` whose merge deletes no more slices than fit one entry.
    pub fn mergeable(&self, upto: Index) -> Index {
        // The bound itself is included: the slices of one entry go together.
        self.slices.get(MERGE_SLICES_MAX).map_or(upto, |(bound, ..)| upto.min(*bound))
    }

    /// The content up to and including position `upto`. `upto` is at least the base's.
    pub fn at(&self, upto: Index) -> View {
        let extents = self.base.as_ref().map_or(&[][..], |base| &base.extents);
        self.replay(extents, Index(0), upto)
    }

    /// The content as of now.
    pub fn now(&self) -> View {
        self.at(Index(u64::MAX))
    }

    /// `extents` with the changes after `from` up to `upto` applied.
    pub fn replay(&self, extents: &[Extent], from: Index, upto: Index) -> View {
        let mut cells = Cells::new(extents);
        let mut owed = 0;
        for (at, change) in &self.changes {
            if *at <= from || *at > upto {
                continue;
            }
            match change {
                Change::Put(extent) => {
                    cells.put(*extent);
                }
                Change::Cut { from, to, owed: open } => {
                    let gone = cells.cut(*from, *to);
                    owed += if *open { gone } else { 0 };
                }
            }
        }
        View { extents: cells.done(), owed }
    }

    /// True if some cut at or before `at` in this chunk still takes effect on records older than it.
    pub fn needs_cut(&self, cut: Index) -> bool {
        match &self.base {
            Some(base) if base.upto >= cut => false,
            Some(_) => true,
            None => self.slices.first().is_some_and(|(first, ..)| *first < cut),
        }
    }
}

impl View {
    /// Bytes held.
    pub fn bytes(&self) -> u64 {
        bytes_of(&self.extents)
    }

    /// True if some byte is in an object only.
    pub fn has_objects(&self) -> bool {
        self.extents.iter().any(|extent| matches!(extent.place, Place::Object(_)))
    }

    /// True if some byte is still in the log only.
    pub fn has_stage(&self) -> bool {
        self.extents.iter().any(|extent| matches!(extent.place, Place::Stage { .. }))
    }
}

/// Sum of the lengths.
pub(crate) fn bytes_of(extents: &[Extent]) -> u64 {
    extents.iter().map(|extent| u64::from(extent.len)).sum()
}

/// Those of `extents`, which are sorted and disjoint, that have bytes in `[from, to)`.
pub(crate) fn touching(extents: &[Extent], from: u32, to: u32) -> &[Extent] {
    let first = extents.partition_point(|extent| extent.off + extent.len <= from);
    let end = extents.partition_point(|extent| extent.off < to);
    &extents[first..end.max(first)]
}

/// Disjoint extents under change.
#[derive(Clone, Debug, Default)]
pub(crate) struct Cells(BTreeMap<u32, Extent>);

impl Cells {
    /// Starts from sorted, disjoint extents.
    pub fn new(extents: &[Extent]) -> Self {
        Self(extents.iter().map(|extent| (extent.off, *extent)).collect())
    }

    /// Takes `[from, to)` away; returns how many bytes were there.
    pub fn cut(&mut self, from: u32, to: u32) -> u64 {
        if from >= to {
            return 0;
        }
        self.split(from);
        self.split(to);
        let mut gone = 0;
        while let Some(off) = self.0.range(from..to).next().map(|(off, _)| *off) {
            gone += self.0.remove(&off).map_or(0, |extent| u64::from(extent.len));
        }
        gone
    }

    /// Lays `extent` over what is there; returns how many of its bytes were held before.
    pub fn put(&mut self, extent: Extent) -> u64 {
        // Under small writes most lie on what was written like them.
        if let Some(before) = self.0.get_mut(&extent.off).filter(|before| before.len == extent.len) {
            *before = extent;
            return u64::from(extent.len);
        }
        let covered = self.cut(extent.off, extent.off + extent.len);
        if extent.len > 0 {
            self.0.insert(extent.off, extent);
        }
        covered
    }

    /// Makes `at` a border of extents.
    fn split(&mut self, at: u32) {
        let Some((_, before)) = self.0.range_mut(..at).next_back() else { return };
        let keep = at - before.off;
        if keep >= before.len {
            return;
        }
        let rest = Extent { off: at, len: before.len - keep, place: before.place.advanced(keep) };
        before.len = keep;
        self.0.insert(at, rest);
    }

    /// The extents, sorted, neighbours joined where the places continue.
    pub fn done(self) -> Vec<Extent> {
        let mut joined: Vec<Extent> = Vec::with_capacity(self.0.len());
        for extent in self.0.into_values() {
            match joined.last_mut() {
                Some(last) if last.off + last.len == extent.off && last.place.advanced(last.len) == extent.place => {
                    last.len += extent.len;
                }
                _ => joined.push(extent),
            }
        }
        joined
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stage(off: u32, len: u32, at: u64, poff: u32) -> Extent {
        Extent { off, len, place: Place::Stage { at: Index(at), poff } }
    }

    #[test]
    fn the_newest_write_wins_and_the_rest_keeps_its_place() {
        let mut cells = Cells::new(&[stage(0, 100, 1, 0)]);
        assert_eq!(cells.put(stage(40, 20, 2, 7)), 20);
        let expected = vec![stage(0, 40, 1, 0), stage(40, 20, 2, 7), stage(60, 40, 1, 60)];
        assert_eq!(cells.done(), expected);
    }

    #[test]
    fn a_cut_counts_what_it_took() {
        let mut cells = Cells::new(&[stage(10, 10, 1, 0), stage(30, 10, 1, 10)]);
        assert_eq!(cells.cut(0, 35), 15);
        assert_eq!(cells.cut(0, 35), 0);
        assert_eq!(cells.done(), vec![stage(35, 5, 1, 15)]);
    }

    #[test]
    fn neighbours_join_only_where_the_places_continue() {
        let cells = Cells::new(&[stage(0, 4, 1, 0), stage(4, 4, 1, 4), stage(8, 4, 1, 9)]);
        assert_eq!(cells.done(), vec![stage(0, 8, 1, 0), stage(8, 4, 1, 9)]);
    }
}
