//! Finds, for a set of surviving pieces, the coefficients that give any other piece.

use crate::field::{MATRIX, Row, inverse, mul};
use crate::{DATA_MAX, PARITY_MAX};

/// Which pieces are read and how the lost ones follow from them.
///
/// The pieces read are always every surviving data piece (in order), then as many parity pieces as
/// data pieces are lost. So only a k x k system is solved, where k <= 4 data pieces are lost:
/// `sum over lost a of C(q,a) * d(a) = p(q) + sum over surviving j of C(q,j) * d(j)`.
pub(crate) struct Solution {
    /// Shard indices of the pieces to read, `data` of them, in the order of the coefficients.
    pub(crate) sources: [usize; DATA_MAX],
    /// One entry per data piece: how to get it from the sources.
    data_rows: [Row; DATA_MAX],
    data: usize,
}

impl Solution {
    /// `survives[s]` says whether shard `s` can be read. `None` when fewer than `data` can.
    pub(crate) fn find(data: usize, survives: &[bool]) -> Option<Solution> {
        let mut sources = [0; DATA_MAX];
        let mut data_rows = [[0; DATA_MAX]; DATA_MAX];
        let mut lost = [0; PARITY_MAX];
        let (mut kept, mut lost_len) = (0, 0);
        for j in 0..data {
            if survives[j] {
                sources[kept] = j;
                data_rows[j][kept] = 1;
                kept += 1;
            } else {
                // More lost data pieces than there is parity can never be solved.
                *lost.get_mut(lost_len)? = j;
                lost_len += 1;
            }
        }
        let mut parity = (data..survives.len()).filter(|&s| survives[s]);
        for source in &mut sources[kept..data] {
            *source = parity.next()?;
        }

        let mut system = [[0; PARITY_MAX]; PARITY_MAX];
        for (r, &source) in sources[kept..data].iter().enumerate() {
            for (a, &j) in lost[..lost_len].iter().enumerate() {
                system[r][a] = MATRIX[source - data][j];
            }
        }
        let inverted = invert(system, lost_len);
        for (a, &j) in lost[..lost_len].iter().enumerate() {
            for r in 0..lost_len {
                let factor = inverted[a][r];
                let parity_row = &MATRIX[sources[kept + r] - data];
                for (position, &survivor) in sources[..kept].iter().enumerate() {
                    data_rows[j][position] ^= mul(factor, parity_row[survivor]);
                }
                data_rows[j][kept + r] = factor;
            }
        }
        Some(Solution { sources, data_rows, data })
    }

    /// The coefficients over `sources` that give shard `shard`, data or parity.
    pub(crate) fn row(&self, shard: usize) -> Row {
        if shard < self.data {
            return self.data_rows[shard];
        }
        let mut row = [0; DATA_MAX];
        for (j, data_row) in self.data_rows[..self.data].iter().enumerate() {
            let factor = MATRIX[shard - self.data][j];
            for (sum, &term) in row.iter_mut().zip(data_row) {
                *sum ^= mul(factor, term);
            }
        }
        row
    }
}

type Square = [[u8; PARITY_MAX]; PARITY_MAX];

/// The inverse of the top left `n` x `n` part, by Gauss and Jordan. It exists, because every square
/// submatrix of a Cauchy matrix is invertible; a row swap is never needed for the same reason: each
/// pivot is a quotient of two leading minors, and none of those is zero.
fn invert(mut matrix: Square, n: usize) -> Square {
    let mut inverted = [[0; PARITY_MAX]; PARITY_MAX];
    for (i, row) in inverted.iter_mut().enumerate() {
        row[i] = 1;
    }
    for pivot in 0..n {
        let scale = inverse(matrix[pivot][pivot]);
        for column in 0..n {
            matrix[pivot][column] = mul(matrix[pivot][column], scale);
            inverted[pivot][column] = mul(inverted[pivot][column], scale);
        }
        for row in (0..n).filter(|&row| row != pivot) {
            let factor = matrix[row][pivot];
            for column in 0..n {
                matrix[row][column] ^= mul(factor, matrix[pivot][column]);
                inverted[row][column] ^= mul(factor, inverted[pivot][column]);
            }
        }
    }
    inverted
}
