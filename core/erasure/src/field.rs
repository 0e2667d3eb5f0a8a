//! Arithmetic in GF(2^8) over 0x11D, the coefficient matrix, and the tables the kernels read. All of
//! it is computed by the compiler from the definitions in the crate's card.

use crate::{DATA_MAX, PARITY_MAX};

/// The coefficients of one output: one per input, unused ones zero.
pub(crate) type Row = [u8; DATA_MAX];

/// `MATRIX[i][j]` is C(i,j): what data piece j contributes to parity piece i.
pub(crate) static MATRIX: [Row; PARITY_MAX] = matrix();

/// For each coefficient c the 8x8 bit matrix of "times c" in the layout of GF2P8AFFINEQB: the byte
/// 7 - i of the word selects the input bits whose parity is output bit i.
pub(crate) static AFFINE: [u64; 256] = affine();

/// For each coefficient c: c times 0..16 (low nibbles), then c times 0, 16, .. 240 (high nibbles).
pub(crate) static NIBBLES: [[u8; 32]; 256] = nibbles();

/// Product in the field, in constant time of 8 steps.
pub(crate) const fn mul(a: u8, b: u8) -> u8 {
    let mut product = 0;
    let mut power = a;
    let mut bit = 0;
    while bit < 8 {
        if (b >> bit) & 1 == 1 {
            product ^= power;
        }
        power = double(power);
        bit += 1;
    }
    product
}

/// `1 / a`, as a^254, because a^255 = 1 for every `a` but zero.
pub(crate) const fn inverse(a: u8) -> u8 {
    assert!(a != 0, "zero has no inverse");
    let mut product = 1;
    let mut step = 0;
    while step < 254 {
        product = mul(product, a);
        step += 1;
    }
    product
}

/// `a` times x.
const fn double(a: u8) -> u8 {
    (a << 1) ^ (0x1D * (a >> 7))
}

const fn matrix() -> [Row; PARITY_MAX] {
    let mut matrix = [[0; DATA_MAX]; PARITY_MAX];
    let mut i = 0;
    while i < PARITY_MAX {
        let mut j = 0;
        while j < DATA_MAX {
            let (x0, xi, yj) = (DATA_MAX as u8, (DATA_MAX + i) as u8, j as u8);
            matrix[i][j] = mul(mul(xi, x0 ^ yj), inverse(mul(xi ^ yj, x0)));
            j += 1;
        }
        i += 1;
    }
    matrix
}

const fn affine() -> [u64; 256] {
    let mut table = [0; 256];
    let mut c = 0;
    while c < 256 {
        let mut bit_in = 0;
        while bit_in < 8 {
            let column = mul(c as u8, 1 << bit_in);
            let mut bit_out = 0;
            while bit_out < 8 {
                let set = (column as u64 >> bit_out) & 1;
                table[c] |= set << (8 * (7 - bit_out) + bit_in);
                bit_out += 1;
            }
            bit_in += 1;
        }
        c += 1;
    }
    table
}

const fn nibbles() -> [[u8; 32]; 256] {
    let mut table = [[0; 32]; 256];
    let mut c = 0;
    while c < 256 {
        let mut n = 0;
        while n < 16 {
            table[c][n] = mul(c as u8, n as u8);
            table[c][16 + n] = mul(c as u8, (n as u8) << 4);
            n += 1;
        }
        c += 1;
    }
    table
}

#[cfg(test)]
mod tests {
    use super::{MATRIX, inverse, mul};

    #[test]
    fn inverse_undoes_multiplication() {
        for a in 1..=255 {
            assert_eq!(mul(a, inverse(a)), 1, "a = {a}");
            assert_eq!(mul(a, 0), 0);
        }
    }

    #[test]
    fn multiplication_is_a_commutative_linear_map() {
        for a in 0..=255 {
            for b in 0..=255 {
                assert_eq!(mul(a, b), mul(b, a));
                assert_eq!(mul(a, b ^ 0x53), mul(a, b) ^ mul(a, 0x53));
            }
        }
    }

    /// Written down from a separate computation: the matrix is an on-disk format.
    #[test]
    fn matrix_is_the_documented_one() {
        let golden: [[u8; 16]; 4] = [
            [1; 16],
            [1, 130, 10, 21, 128, 55, 83, 88, 110, 64, 81, 22, 39, 115, 210, 109],
            [1, 10, 55, 218, 39, 247, 73, 81, 84, 145, 181, 180, 225, 124, 217, 94],
            [1, 21, 218, 180, 165, 126, 208, 127, 193, 67, 219, 244, 175, 141, 120, 171],
        ];
        assert_eq!(MATRIX, golden);
    }
}
