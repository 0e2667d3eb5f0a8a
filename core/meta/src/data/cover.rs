//! Which bytes of recently written chunks are held, so that a write need not read the chunk's history to count
//! what it adds. Exact or absent: everything that changes what a chunk holds updates or forgets it.

use std::collections::{BTreeMap, HashMap};

use braid_base::ids::Chunk;

use crate::data::chunk::{ChunkId, FileId};

/// Chunks remembered at most; about 100 bytes each unless they are full of gaps.
const CHUNKS_MAX: usize = 16_384;

/// Sorted, disjoint ranges `[from, to)` with a gap between each two.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Ranges(Vec<(u32, u32)>);

impl Ranges {
    /// Adds `[from, to)`; returns how many bytes of it were new.
    pub fn add(&mut self, from: u32, to: u32) -> u64 {
        if from >= to {
            return 0;
        }
        // Those that overlap or touch become one.
        let first = self.0.partition_point(|range| range.1 < from);
        let end = self.0.partition_point(|range| range.0 <= to);
        let (mut low, mut high, mut held) = (from, to, 0);
        for (start, stop) in &self.0[first..end] {
            held += u64::from((*stop).min(to).saturating_sub((*start).max(from)));
            (low, high) = (low.min(*start), high.max(*stop));
        }
        self.0.splice(first..end, [(low, high)]);
        u64::from(to - from) - held
    }
}

/// Ranges by file and chunk.
#[derive(Default)]
pub(crate) struct Cover {
    files: HashMap<FileId, BTreeMap<Chunk, Ranges>>,
    chunks: usize,
}

impl Cover {
    /// What `chunk` holds, if it is remembered.
    pub fn get(&self, chunk: ChunkId) -> Option<&Ranges> {
        self.files.get(&chunk.file)?.get(&chunk.chunk)
    }

    /// `chunk` holds exactly `ranges`.
    pub fn set(&mut self, chunk: ChunkId, ranges: Ranges) {
        if self.chunks >= CHUNKS_MAX {
            self.files.clear();
            self.chunks = 0;
        }
        if self.files.entry(chunk.file).or_default().insert(chunk.chunk, ranges).is_none() {
            self.chunks += 1;
        }
    }

    /// What `chunk` holds may be something else now.
    pub fn forget(&mut self, chunk: ChunkId) {
        if self.files.get_mut(&chunk.file).is_some_and(|chunks| chunks.remove(&chunk.chunk).is_some()) {
            self.chunks -= 1;
        }
    }

    /// What any chunk of `file` holds may be something else now.
    pub fn forget_file(&mut self, file: FileId) {
        self.chunks -= self.files.remove(&file).map_or(0, |chunks| chunks.len());
    }
}

#[cfg(test)]
mod tests {
    use super::Ranges;

    #[test]
    fn counts_as_a_bit_per_byte_would() {
        let (mut ranges, mut bytes) = (Ranges::default(), [false; 64]);
        let mut seed = 7u64;
        for _ in 0..10_000 {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            let (a, b) = ((seed >> 33) as usize % 65, (seed >> 50) as usize % 65);
            let (from, to) = (a.min(b), a.max(b).min(a.min(b) + 5));
            let new = bytes[from..to].iter().filter(|held| !**held).count();
            bytes[from..to].fill(true);
            assert_eq!(ranges.add(from as u32, to as u32), new as u64);
            assert!(ranges.0.windows(2).all(|pair| pair[0].1 < pair[1].0), "{ranges:?}");
            if bytes.iter().all(|held| *held) {
                (ranges, bytes) = (Ranges::default(), [false; 64]);
            }
        }
    }
}
