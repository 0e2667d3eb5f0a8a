//! One file out of all objects that have something of it.

use std::collections::{BTreeMap, BTreeSet};

use braid_base::ids::{Guid, Ino};
use braid_base::limits::BLOCK;
use braid_base::{Error, ErrorKind, Result};
use bytes::Bytes;

use super::{Ahead, Damage, Object, Run, Salvage, Seen};
use crate::blob::{Block, PIECE, Span, data_at};

const BLOCK_BYTES: u64 = BLOCK as u64;
/// Reads of at most a MiB that are under way at once.
const READS_AT_ONCE: usize = 32;

/// A file that was found in objects.
pub struct File {
    /// The file system.
    pub fs: Guid,
    /// The file.
    pub ino: Ino,
    salvage: Salvage,
    objects: Vec<Object>,
    /// By the number of their first block; they do not overlap.
    places: BTreeMap<u64, Place>,
}

/// Where blocks of the file lie that follow each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Place {
    blocks: u64,
    /// Which of the objects.
    object: usize,
    /// Where in its data, bytes.
    at: u64,
}

/// A part of a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Part {
    /// Its bytes, which were checked.
    Data(Bytes),
    /// No object has anything of so many bytes: a hole, or never moved into the bucket.
    Hole(u64),
    /// So many bytes that an object should have.
    Lost(u64, Damage),
}

impl Salvage {
    /// Looks for an inode in all objects, of the file system `fs`, or of the only one that has it. Of a block in
    /// several objects that with the higher serial counts, then the higher term. What cannot be looked into is given to
    /// `tell`: something of the file may be there.
    ///
    /// Errors: `NotFound`; `Invalid`: several file systems have it, the message names them; those of the store.
    pub async fn find(&self, ino: Ino, fs: Option<Guid>, mut tell: impl FnMut(Damage)) -> Result<File> {
        let (mut found, mut systems) = (Vec::new(), BTreeSet::new());
        let look = move |this: Self, object: Object| {
            this.see(object, move |head| head.inos.contains(&ino) && fs.is_none_or(|fs| head.header.fs_uuid == fs))
        };
        let take = |seen: Seen| {
            let Seen { object, head, mut runs, damages } = seen;
            damages.into_iter().for_each(&mut tell);
            runs.retain(|run| run.ino == ino);
            if let (Some(head), false) = (head, runs.is_empty()) {
                systems.insert(head.header.fs_uuid);
                found.push((object, runs));
            }
            Ok(())
        };
        self.each(look, take).await?;
        let fs = only(ino, fs, &systems)?;
        // One inode is of one partition, whose serials and terms only rise.
        found.sort_by_key(|(object, _)| (object.blob.serial(), object.term));
        let mut places = BTreeMap::new();
        for (object, (_, runs)) in found.iter().enumerate() {
            runs.iter().for_each(|run| lay(&mut places, object, run));
        }
        let objects = found.into_iter().map(|(object, _)| object).collect();
        Ok(File { fs, ino, salvage: self.clone(), objects, places })
    }
}

/// The file system that was asked for, or the only one that has the inode.
fn only(ino: Ino, fs: Option<Guid>, systems: &BTreeSet<Guid>) -> Result<Guid> {
    match (systems.len(), systems.first()) {
        (1, Some(found)) => Ok(*found),
        (0, _) | (_, None) => {
            let place = fs.map_or_else(String::new, |fs| format!(" of file system {fs}"));
            let words =
                format!("no object has anything of inode {}{place}: `braid bucket ls --files` lists all", ino.0);
            Err(Error::new(ErrorKind::NotFound, words))
        }
        _ => {
            let systems = systems.iter().map(Guid::to_string).collect::<Vec<_>>().join(", ");
            let words = format!("several file systems have an inode {}: choose one with --fs: {systems}", ino.0);
            Err(Error::new(ErrorKind::Invalid, words))
        }
    }
}

/// Lays what `object` has over what was there.
fn lay(places: &mut BTreeMap<u64, Place>, object: usize, run: &Run) {
    let (start, end) = (run.block, run.end());
    if let Some((from, place)) = places.range_mut(..start).next_back().map(|(from, place)| (*from, place)) {
        let old = *place;
        place.blocks = old.blocks.min(start - from);
        keep_behind(places, end, from, old);
    }
    while let Some((from, old)) = places.range(start..end).next().map(|(from, old)| (*from, *old)) {
        places.remove(&from);
        keep_behind(places, end, from, old);
    }
    places.insert(start, Place { blocks: run.blocks, object, at: run.at });
}

/// Puts back what `old`, which began at block `from`, has from block `end` on.
fn keep_behind(places: &mut BTreeMap<u64, Place>, end: u64, from: u64, old: Place) {
    if from + old.blocks > end {
        let cut = end - from;
        places.insert(end, Place { blocks: old.blocks - cut, at: old.at + cut * BLOCK_BYTES, ..old });
    }
}

impl File {
    /// Bytes up to the end of the last block that an object has. The file itself may be longer, or end inside that
    /// block.
    pub fn bytes(&self) -> u64 {
        self.places.last_key_value().map_or(0, |(block, place)| (block + place.blocks) * BLOCK_BYTES)
    }

    /// Gives all parts of the file to `take` in order, each with where it begins. Errors: those of the store, and those
    /// that `take` gives, which end it.
    pub async fn read(&self, mut take: impl FnMut(u64, Part) -> Result<()>) -> Result<()> {
        let (mut ahead, mut at) = (Ahead::new(READS_AT_ONCE), 0);
        for (block, place) in self.steps() {
            if ahead.is_full()
                && let Some(read) = ahead.next().await
            {
                give(&mut at, read?, &mut take)?;
            }
            let first = Block { ino: self.ino, block };
            ahead.push(read(self.salvage.clone(), self.objects[place.object].clone(), first, place));
        }
        while let Some(read) = ahead.next().await {
            give(&mut at, read?, &mut take)?;
        }
        Ok(())
    }

    /// The places, cut where pieces end.
    fn steps(&self) -> impl Iterator<Item = (u64, Place)> + '_ {
        self.places.iter().flat_map(|(block, place)| {
            let (block, place, mut done) = (*block, *place, 0);
            std::iter::from_fn(move || {
                let at = place.at + done * BLOCK_BYTES;
                let blocks = (place.blocks - done).min((PIECE - at % PIECE) / BLOCK_BYTES);
                let step = (block + done, Place { blocks, at, ..place });
                done += blocks;
                (blocks > 0).then_some(step)
            })
        })
    }
}

/// Reads blocks of a file, from `first` on, that lie in one piece of an object: where they begin in the file, and what
/// came of them.
async fn read(salvage: Salvage, object: Object, first: Block, place: Place) -> Result<(u64, Vec<Part>)> {
    let bytes = place.blocks * BLOCK_BYTES;
    let data = place.at..place.at + bytes;
    let span = Span::new(data.clone());
    let start = span.object().start;
    let parts = match salvage.get(&object.key, span.object()).await {
        Ok(got) => {
            let faults = span.faults(&got, &data, Some(first)).collect();
            let from = (data_at(data.start) - start) as usize;
            sound(&object, &got.slice(from..from + bytes as usize), data_at(data.start), faults)
        }
        Err(error) if error.kind() == ErrorKind::NotFound => {
            let words = "expected the object, found that it was removed meanwhile".to_owned();
            vec![Part::Lost(bytes, Damage { key: object.key, at: start, words })]
        }
        Err(error) => vec![Part::Lost(bytes, object.damage(start, error)?)],
    };
    Ok((first.block * BLOCK_BYTES, parts))
}

/// The parts of `data`, which lies at `at` of the object, between those blocks that have `faults`, and these.
fn sound(object: &Object, data: &Bytes, at: u64, faults: Vec<(u64, String)>) -> Vec<Part> {
    let (mut parts, mut rest) = (Vec::new(), data.clone());
    for (fault, words) in faults {
        let before = (fault - at) as usize - (data.len() - rest.len());
        if before > 0 {
            parts.push(Part::Data(rest.split_to(before)));
        }
        drop(rest.split_to(BLOCK));
        parts.push(Part::Lost(BLOCK_BYTES, Damage { key: object.key.clone(), at: fault, words }));
    }
    if !rest.is_empty() {
        parts.push(Part::Data(rest));
    }
    parts
}

/// Gives what was read from byte `from` of the file on to `take`, after the hole between it and what was given before,
/// and moves `at` behind it.
fn give(at: &mut u64, read: (u64, Vec<Part>), take: &mut impl FnMut(u64, Part) -> Result<()>) -> Result<()> {
    let (from, parts) = read;
    let hole = (from > *at).then(|| Part::Hole(from - *at));
    for part in hole.into_iter().chain(parts) {
        let bytes = part.bytes();
        take(*at, part)?;
        *at += bytes;
    }
    Ok(())
}

impl Part {
    /// How many bytes of the file it is.
    pub fn bytes(&self) -> u64 {
        match self {
            Self::Data(data) => data.len() as u64,
            Self::Hole(bytes) | Self::Lost(bytes, _) => *bytes,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::{BLOCK_BYTES, Place, lay};
    use crate::salvage::Run;
    use braid_base::ids::Ino;
    use proptest::prelude::{prop, prop_assert_eq, proptest};

    proptest! {
        /// Against a table of blocks, each of which belongs to whoever came last.
        #[test]
        fn what_comes_later_lies_above(runs in prop::collection::vec((0u64..60, 1u64..20, 0u64..50), 0..40)) {
            let (mut places, mut table) = (BTreeMap::new(), BTreeMap::new());
            for (object, (block, blocks, at)) in runs.into_iter().enumerate() {
                let at = at * BLOCK_BYTES;
                lay(&mut places, object, &Run { ino: Ino(1), block, blocks, at });
                table.extend((0..blocks).map(|more| (block + more, (object, at + more * BLOCK_BYTES))));
            }
            let mut laid = Vec::new();
            for (block, Place { blocks, object, at }) in places {
                laid.extend((0..blocks).map(|more| (block + more, (object, at + more * BLOCK_BYTES))));
            }
            prop_assert_eq!(laid, table.into_iter().collect::<Vec<_>>());
        }
    }
}
