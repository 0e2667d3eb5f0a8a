//! Plans a bulk move: which blocks of which chunks go into which stripes, and what the bases say afterwards.
//!
//! Pure: from views and free ranges to a plan. Bytes move in whole 4 KiB blocks of the file, so that a later
//! read touches whole blocks of a drive: a block with a byte that must move goes as a whole, with what the view
//! has beside it, and zeros where it has nothing (K19). What the base says afterwards covers each moved block
//! from its first to its last held byte: at most one extent per block, and nothing beyond the end of the file. What is in
//! objects is an exception: bytes that stay there are not read for it (their store may be down, and what was just written
//! has to move all the same), and bytes that were in one keep that place beside the new one, each piece its own.

use std::collections::VecDeque;

use braid_base::Result;
use braid_base::ids::{Index, PackId};
use braid_base::limits::{BLOCK, CHUNK};
use braid_base::msg::job::{Part, Source};
use braid_base::record::{Extent, ObjectAt, Place, Placement, StripeAt};

use crate::data::chunk::ChunkId;
use crate::data::view::{Cells, View, touching};

const B: u32 = BLOCK as u32;
const BLOCKS: usize = CHUNK as usize / BLOCK;

/// Extents of one chunk above which its crumbs are put together: four per block.
pub(crate) const EXTENTS_MAX: usize = 4 * BLOCKS;

/// What must move.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Moves {
    /// All that is in the log only.
    Stage,
    /// That, and all that is in these packs.
    Packs(Vec<PackId>),
    /// That, and all that is in objects only. Or, of a chunk that is exposed in packs without parity, that and what is: it
    /// must not wait for what may be out of reach.
    Objects,
}

impl Moves {
    fn takes(&self, place: &Place) -> bool {
        match place {
            Place::Stage { .. } => true,
            Place::Flash { stripe, .. } => matches!(self, Self::Packs(packs) if packs.contains(&stripe.pack)),
            Place::Object(_) => *self == Self::Objects,
        }
    }
}

/// Neighbouring blocks of a chunk that move.
#[derive(Clone, Debug)]
struct Run {
    block: u32,
    blocks: u32,
    /// The content: exactly `blocks` blocks.
    parts: VecDeque<Part>,
    /// What the base will say: pieces of blocks, in order.
    held: VecDeque<Held>,
}

/// Bytes within one block: first and end, offsets in the chunk, and where they are in an object.
#[derive(Clone, Copy, Debug)]
struct Held {
    first: u32,
    end: u32,
    copy: Option<ObjectAt>,
}

impl Held {
    /// Takes `next`, which follows in the same block, in if that says the same: a gap between them is zeros, unless the
    /// object may hold something else there.
    fn join(&mut self, next: Self) -> bool {
        let joins = self.first / B == next.first / B
            && match (self.copy, next.copy) {
                (None, None) => true,
                (Some(copy), Some(other)) => self.end == next.first && copy.advanced(self.end - self.first) == other,
                _ => false,
            };
        if joins {
            self.end = next.end;
        }
        joins
    }
}

/// What of a chunk is to move.
#[derive(Clone, Copy)]
pub(crate) struct Wanted<'w> {
    pub moves: &'w Moves,
    /// Some of it is in an object, and cannot be read.
    pub lost: bool,
    /// Says what is exposed, if that is to be saved.
    pub saves: Option<&'w dyn Fn(&Extent) -> bool>,
}

impl Wanted<'_> {
    fn takes(&self, extent: &Extent) -> bool {
        match self.saves {
            Some(exposed) => matches!(extent.place, Place::Stage { .. }) || exposed(extent),
            None => self.moves.takes(&extent.place),
        }
    }
}

/// A chunk on its way through the planner.
#[derive(Clone, Debug)]
pub(crate) struct Moving {
    pub chunk: ChunkId,
    /// The position whose view moves.
    pub upto: Index,
    /// What its base was merged up to at planning.
    pub base_upto: Option<Index>,
    /// Bytes of that view, if nothing is owed for it.
    pub held: Option<u64>,
    runs: Vec<Run>,
    extents: Vec<Extent>,
}

/// A stripe with its content.
#[derive(Clone, Debug)]
pub(crate) struct Filled {
    pub at: StripeAt,
    pub parts: Vec<Part>,
    /// Bytes of the parts.
    pub len: u32,
}

impl Moving {
    /// What of `wanted` moves of `chunk` with content `view`. `place` tells where a pack's shards are.
    pub fn gather<'p>(
        (chunk, upto, base_upto): (ChunkId, Index, Option<Index>),
        view: View,
        wanted: Wanted<'_>,
        place: &impl Fn(PackId) -> Result<&'p Placement>,
    ) -> Result<Self> {
        let marked = mark(&view.extents, wanted);
        // One that is in crumbs has to be put together, whatever it takes; but for what is lost nothing would do.
        let brings = *wanted.moves == Moves::Objects && wanted.saves.is_none();
        let reads_objects = brings || (view.extents.len() > EXTENTS_MAX && !wanted.lost);
        let mut runs = Vec::new();
        let mut block = 0;
        while block < BLOCKS {
            let blocks = marked[block..].iter().take_while(|moves| **moves).count();
            if blocks > 0 {
                runs.push(run(&view.extents, (block as u32, blocks as u32), reads_objects, place)?);
            }
            block += blocks.max(1);
        }
        let held = (view.owed == 0).then(|| view.bytes());
        Ok(Self { chunk, upto, base_upto, held, runs, extents: view.extents })
    }

    /// Blocks that move.
    pub fn blocks(&self) -> u32 {
        self.runs.iter().map(|run| run.blocks).sum()
    }

    /// True if all that moves is in objects, too, each piece where `sound` says so.
    pub fn has_copies(&self, sound: impl Fn(ObjectAt, u32) -> bool) -> bool {
        let mut held = self.runs.iter().flat_map(|run| &run.held);
        held.all(|held| held.copy.is_some_and(|at| sound(at, held.end - held.first)))
    }

    /// At most so many extents will the base have.
    pub fn extents_max(&self) -> usize {
        self.extents.len() + self.blocks() as usize
    }

    /// What the base would say now.
    pub fn extents(&self) -> &[Extent] {
        &self.extents
    }

    /// What the base says once the move is done (after [`fill`]), or if nothing moves.
    pub fn into_extents(self) -> Vec<Extent> {
        self.extents
    }
}

/// Which blocks have a byte that must move.
fn mark(extents: &[Extent], wanted: Wanted<'_>) -> Vec<bool> {
    let mut marked = vec![false; BLOCKS];
    let crumbled = extents.len() > EXTENTS_MAX;
    let mut pieces = vec![0u32; BLOCKS];
    for extent in extents {
        let (first, last) = (extent.off / B, (extent.off + extent.len - 1) / B);
        for block in first as usize..=last as usize {
            marked[block] |= wanted.takes(extent);
            pieces[block] += 1;
            marked[block] |= crumbled && pieces[block] > 1;
        }
    }
    marked
}

/// The content of blocks `[block, block+blocks)`; what is in objects only is left out of it, unless `reads_objects`.
fn run<'p>(
    extents: &[Extent],
    (block, blocks): (u32, u32),
    reads_objects: bool,
    place: &impl Fn(PackId) -> Result<&'p Placement>,
) -> Result<Run> {
    let mut held = VecDeque::<Held>::new();
    // What stays in an object ends a piece: it is no gap.
    let mut apart = true;
    let parts =
        content(extents, (block, blocks), reads_objects, place, |Extent { off: first, len, place: source }| {
            if matches!(source, Place::Object(_)) && !reads_objects {
                apart = true;
                return;
            }
            let end = first + len;
            for border in (first / B..=(end - 1) / B).map(|index| index * B) {
                let (low, high) = (first.max(border), end.min(border + B));
                let piece =
                    Held { first: low, end: high, copy: source.object().map(|copy| copy.advanced(low - first)) };
                if apart || !held.back_mut().is_some_and(|last| last.join(piece)) {
                    held.push_back(piece);
                }
                apart = false;
            }
        })?;
    Ok(Run { block, blocks, parts: parts.into(), held })
}

/// What blocks `[block, block+blocks)` are made of: zeros where nothing is held, and where it is in objects only, unless
/// `reads_objects`. `each` hears of every piece that is held there, in order.
pub(crate) fn content<'p>(
    extents: &[Extent],
    (block, blocks): (u32, u32),
    reads_objects: bool,
    place: &impl Fn(PackId) -> Result<&'p Placement>,
    mut each: impl FnMut(Extent),
) -> Result<Vec<Part>> {
    let (from, to) = (block * B, (block + blocks) * B);
    let (mut parts, mut at) = (Vec::new(), from);
    for extent in touching(extents, from, to) {
        let (first, end) = (extent.off.max(from), (extent.off + extent.len).min(to));
        if first > at {
            parts.push(Part { len: first - at, from: Source::Zero });
        }
        let piece = Extent { off: first, len: end - first, place: extent.place.advanced(first - extent.off) };
        let source = match piece.place {
            Place::Object(_) if !reads_objects => Source::Zero,
            Place::Stage { .. } | Place::Object(_) => Source::At(piece.place, None),
            Place::Flash { stripe, .. } => Source::At(piece.place, Some(place(stripe.pack)?.clone())),
        };
        parts.push(Part { len: piece.len, from: source });
        each(piece);
        at = end;
    }
    if at < to {
        parts.push(Part { len: to - at, from: Source::Zero });
    }
    Ok(parts)
}

/// Puts the moving blocks into `ranges` (from `Packs::carve`, for exactly as many blocks) and makes the extents
/// of the chunks name them.
pub(crate) fn fill(chunks: &mut [Moving], ranges: &[(StripeAt, u32)]) -> Vec<Filled> {
    let mut stripes: Vec<Filled> = Vec::with_capacity(ranges.len());
    let mut ranges = ranges.iter();
    let mut room = 0;
    for chunk in chunks {
        let mut cells = Cells::new(&chunk.extents);
        for mut run in std::mem::take(&mut chunk.runs) {
            while run.blocks > 0 {
                if room == 0 {
                    let (at, blocks) = ranges.next().expect("ranges were carved for all blocks");
                    stripes.push(Filled { at: *at, parts: Vec::new(), len: 0 });
                    room = *blocks;
                }
                let stripe = stripes.last_mut().expect("pushed above");
                let take = run.blocks.min(room);
                run.pour(take, stripe, &mut cells);
                room -= take;
            }
        }
        chunk.extents = cells.done();
    }
    stripes
}

impl Run {
    /// Moves the first `take` blocks into `stripe`.
    fn pour(&mut self, take: u32, stripe: &mut Filled, cells: &mut Cells) {
        let (from, to) = (self.block * B, (self.block + take) * B);
        while let Some(Held { first, end, copy }) = self.held.pop_front_if(|held| held.first < to) {
            let place = Place::Flash { stripe: stripe.at, delta: stripe.len + (first - from), copy };
            cells.put(Extent { off: first, len: end - first, place });
        }
        let mut want = take * B;
        while want > 0 {
            let mut part = self.parts.pop_front().expect("the parts fill all blocks");
            if part.len > want {
                let rest = match &part.from {
                    Source::Zero => Source::Zero,
                    Source::At(place, placement) => Source::At(place.advanced(want), placement.clone()),
                };
                self.parts.push_front(Part { len: part.len - want, from: rest });
                part.len = want;
            }
            want -= part.len;
            stripe.parts.push(part);
        }
        stripe.len += take * B;
        self.block += take;
        self.blocks -= take;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::data::chunk::FileId;
    use braid_base::ids::{BlobId, Chunk, FsId, Ino, PartitionId};

    fn stage(off: u32, len: u32, poff: u32) -> Extent {
        Extent { off, len, place: Place::Stage { at: Index(9), poff } }
    }

    fn staged(lost: bool) -> Wanted<'static> {
        Wanted { moves: &Moves::Stage, lost, saves: None }
    }

    fn no_packs<'p>(_: PackId) -> Result<&'p Placement> {
        panic!("nothing is on flash yet")
    }

    #[test]
    fn blocks_move_whole_and_the_base_says_only_what_is_held() {
        let chunk = FileId::first(FsId(1), Ino(2)).chunk(Chunk(0));
        let view = View { extents: vec![stage(10, 20, 0), stage(40, 10, 100), stage(8192, 5000, 200)], owed: 0 };
        let moving = Moving::gather((chunk, Index(9), None), view, staged(false), &no_packs);
        let mut chunks = [moving.expect("no pack is looked up")];
        assert_eq!(chunks[0].blocks(), 3);
        let pack = PackId::new(PartitionId(0), 1);
        let (one, two) = (StripeAt { pack, sb: 0, ul: 1 }, StripeAt { pack, sb: 1, ul: 1 });
        let stripes = fill(&mut chunks, &[(one, 2), (two, 1)]);
        let [chunk] = chunks;
        let flash = |off, len, stripe, delta| Extent { off, len, place: Place::Flash { stripe, delta, copy: None } };
        let expected = [flash(10, 40, one, 10), flash(8192, 4096, one, 4096), flash(12288, 904, two, 0)];
        assert_eq!(chunk.into_extents(), expected);
        let lens = |n: usize| stripes[n].parts.iter().map(|part| part.len).collect::<Vec<_>>();
        assert_eq!((lens(0), lens(1)), (vec![10, 20, 10, 10, 4046, 4096], vec![904, 3192]));
        let Source::At(Place::Stage { poff, .. }, None) = stripes[1].parts[0].from else { panic!("a staged part") };
        assert_eq!(poff, 200 + 4096);
    }

    #[test]
    fn crumbs_are_put_together_without_what_is_lost() {
        let chunk = FileId::first(FsId(1), Ino(2)).chunk(Chunk(0));
        let at = ObjectAt { blob: BlobId::new(PartitionId(0), 1), off: 0 };
        let mut extents: Vec<Extent> = (0..=EXTENTS_MAX as u32)
            .map(|n| Extent { off: 8 * n, len: 2, place: Place::Object(at.advanced(8 * n)) })
            .collect();
        extents.push(stage(900_000, 10, 0));
        let sources = |lost| {
            let view = View { extents: extents.clone(), owed: 0 };
            let ids = (chunk, Index(9), None);
            let moving = Moving::gather(ids, view, staged(lost), &no_packs).expect("no pack is looked up");
            let parts = moving.runs.iter().flat_map(|run| run.parts.iter());
            parts.filter(|part| matches!(part.from, Source::At(Place::Object(_), _))).count()
        };
        assert_eq!((sources(false), sources(true)), (EXTENTS_MAX, 0));
    }
}
