//! The door: one value per (D, P), and the three things it can do.

use std::fmt;

use crate::field::{MATRIX, Row};
use crate::kernel::{self, Kernel};
use crate::solve::Solution;
use crate::{DATA_MAX, PARITY_MAX};

/// The erasure code with a given number of data and parity pieces ("shards"). Shards 0..D are data,
/// D..D+P are parity. Three bytes: copy it around freely.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Code {
    data: u8,
    parity: u8,
    kernel: Kernel,
}

/// Fewer shards survive than the code has data shards, so nothing can be reconstructed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TooFewShards {
    /// How many different shards the code needs (D).
    pub needed: usize,
    /// How many different shards were handed over.
    pub present: usize,
}

impl Code {
    /// The code for `data` (1..=16) and `parity` (0..=4) shards with the fastest kernel of this
    /// machine; `None` outside these limits.
    pub fn new(data: usize, parity: usize) -> Option<Code> {
        let valid = (1..=DATA_MAX).contains(&data) && parity <= PARITY_MAX;
        valid.then(|| Code { data: data as u8, parity: parity as u8, kernel: Kernel::detect() })
    }

    /// The same code on another kernel, for tests and measurements; `None` when this machine cannot
    /// run it. All kernels produce the same bytes.
    pub fn with_kernel(self, kernel: Kernel) -> Option<Code> {
        kernel.is_available().then_some(Code { kernel, ..self })
    }

    /// Number of data shards (D).
    pub fn data(self) -> usize {
        usize::from(self.data)
    }

    /// Number of parity shards (P).
    pub fn parity(self) -> usize {
        usize::from(self.parity)
    }

    /// Number of all shards (D + P).
    pub fn shards(self) -> usize {
        self.data() + self.parity()
    }

    /// The kernel in use.
    pub fn kernel(self) -> Kernel {
        self.kernel
    }

    /// Computes all parity shards. What `parity` held before does not matter.
    ///
    /// # Panics
    /// When there are not exactly D data and P parity shards, or their lengths differ.
    pub fn encode(&self, data: &[&[u8]], parity: &mut [&mut [u8]]) {
        assert_eq!(data.len(), self.data(), "encode takes every data shard");
        assert_eq!(parity.len(), self.parity(), "encode fills every parity shard");
        kernel::dot(self.kernel, &MATRIX[..parity.len()], data, parity, false);
    }

    /// Computes each shard in `want`, data or parity, from any D different shards of `present`.
    ///
    /// `present` comes in any order and may hold more than D shards; data shards are read in
    /// preference to parity. A wanted shard that is also present is copied.
    ///
    /// # Errors
    /// [`TooFewShards`] when `present` holds fewer than D different shards; `want` is then untouched.
    ///
    /// # Panics
    /// When a shard index is not below D + P, or lengths differ.
    pub fn reconstruct(&self, present: &[(usize, &[u8])], want: &mut [(usize, &mut [u8])]) -> Result<(), TooFewShards> {
        let mut survives = [false; DATA_MAX + PARITY_MAX];
        let mut bytes: [&[u8]; DATA_MAX + PARITY_MAX] = [&[]; DATA_MAX + PARITY_MAX];
        for &(shard, shard_bytes) in present {
            assert!(shard < self.shards(), "shard {shard} of a code of {} shards", self.shards());
            survives[shard] = true;
            bytes[shard] = shard_bytes;
        }
        for (shard, _) in want.iter() {
            assert!(*shard < self.shards(), "shard {shard} of a code of {} shards", self.shards());
        }

        let survives = &survives[..self.shards()];
        let Some(solution) = Solution::find(self.data(), survives) else {
            let present = survives.iter().filter(|&&survives| survives).count();
            return Err(TooFewShards { needed: self.data(), present });
        };
        let mut sources: [&[u8]; DATA_MAX] = [&[]; DATA_MAX];
        for (source, &shard) in sources.iter_mut().zip(&solution.sources[..self.data()]) {
            *source = bytes[shard];
        }
        let sources = &sources[..self.data()];

        // At most P <= 4 different shards are lost, so one pass over the sources gives them all; only
        // a caller who wants the same lost shard several times makes it more.
        let mut lost = Batch::default();
        for (shard, output) in want {
            if survives[*shard] {
                output.copy_from_slice(bytes[*shard]);
                continue;
            }
            if lost.len == PARITY_MAX {
                std::mem::take(&mut lost).compute(self.kernel, sources);
            }
            lost.push(solution.row(*shard), output);
        }
        lost.compute(self.kernel, sources);
        Ok(())
    }

    /// Updates all parity shards in place after data shard `data_index` changed, where `delta` is
    /// its old content xor its new one, over the same byte range as the slices of `parity`.
    ///
    /// # Panics
    /// When `data_index` is not below D, there are not exactly P parity shards, or lengths differ.
    pub fn delta(&self, data_index: usize, delta: &[u8], parity: &mut [&mut [u8]]) {
        assert!(data_index < self.data(), "data shard {data_index} of {}", self.data());
        assert_eq!(parity.len(), self.parity(), "delta updates every parity shard");
        let mut rows = [[0; DATA_MAX]; PARITY_MAX];
        for (row, coefficients) in rows.iter_mut().zip(&MATRIX) {
            row[0] = coefficients[data_index];
        }
        kernel::dot(self.kernel, &rows[..parity.len()], &[delta], parity, true);
    }
}

/// Lost shards that one pass of the kernel computes.
#[derive(Default)]
struct Batch<'a> {
    rows: [Row; PARITY_MAX],
    outputs: [&'a mut [u8]; PARITY_MAX],
    len: usize,
}

impl<'a> Batch<'a> {
    fn push(&mut self, row: Row, output: &'a mut [u8]) {
        self.rows[self.len] = row;
        self.outputs[self.len] = output;
        self.len += 1;
    }

    fn compute(mut self, kernel: Kernel, sources: &[&[u8]]) {
        kernel::dot(kernel, &self.rows[..self.len], sources, &mut self.outputs[..self.len], false);
    }
}

impl fmt::Display for TooFewShards {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "expected at least {} different shards, found {}; read further shards of this stripe",
            self.needed, self.present
        )
    }
}

impl std::error::Error for TooFewShards {}
