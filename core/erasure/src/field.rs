//! Arithmetic in GF(2^8) over 0x11D, the coefficient matrix, and the tables the kernels read. All of
//! it is computed by the compiler from the definitions in the crate's card.

use crate::{DATA_MAX, PARITY_MAX};

/// The coefficients of one output: one per input, unused ones zero.
pub(crate) type Row = [u8; DATA_MAX];

/// `MATRIX[i][j]` is C(i,j): what data piece j contributes to parity piece i.
pub(crate) static MATRIX: [Row; PARITY_MAX] = matrix();

/// For each coefficient c the 8x8 bit matrix of "times c" in the layout of GF2P8AFFINEQB: the byte
/// 7 - i of the word selects the input bits whose parity is output bit i.
#[cfg(target_arch = "x86_64")]
pub(crate) static AFFINE: [u64; 256] = affine();

/// For each coefficient c: c times 0..16 (low nibbles), then c times 0, 16, .. 240 (high nibbles).
pub(crate) static NIBBLES: [[u8; 32]; 256] = nibbles();

static INVERSES: [u8; 256] = inverses();

/// Product in the field.
pub(crate) fn mul(a: u8, b: u8) -> u8 {
    let of_a = &NIBBLES[usize::from(a)];
    of_a[usize::from(b & 15)] ^ of_a[usize::from(16 + (b >> 4))]
}

/// `1 / a` for any `a` but zero.
pub(crate) fn inverse(a: u8) -> u8 {
    assert!(a != 0, "zero has no inverse");
    INVERSES[usize::from(a)]
}

/// Product by definition; only the compiler (to make the tables) and tests run it.
pub(crate) const fn product(a: u8, b: u8) -> u8 {
    let mut sum = 0;
    let mut power = a;
    let mut bit = 0;
    while bit < 8 {
        if (b >> bit) & 1 == 1 {
            sum ^= power;
        }
        power = double(power);
        bit += 1;
    }
    sum
}

/// `a` times x.
const fn double(a: u8) -> u8 {
    (a << 1) ^ (0x1D * (a >> 7))
}

/// By powers of a generator: x^k and x^(255 - k) are inverse, and the powers of x are all but zero.
const fn inverses() -> [u8; 256] {
    let mut powers = [1; 256];
    let mut k = 1;
    while k < 256 {
        powers[k] = double(powers[k - 1]);
        k += 1;
    }
    let mut table = [0; 256];
    let mut k = 0;
    while k < 256 {
        table[powers[k] as usize] = powers[255 - k];
        k += 1;
    }
    table
}

const fn matrix() -> [Row; PARITY_MAX] {
    let inverses = inverses();
    let mut matrix = [[0; DATA_MAX]; PARITY_MAX];
    let mut i = 0;
    while i < PARITY_MAX {
        let mut j = 0;
        while j < DATA_MAX {
            let (x0, xi, yj) = (DATA_MAX as u8, (DATA_MAX + i) as u8, j as u8);
            matrix[i][j] = product(product(xi, x0 ^ yj), inverses[product(xi ^ yj, x0) as usize]);
            j += 1;
        }
        i += 1;
    }
    matrix
}

#[cfg(target_arch = "x86_64")]
const fn affine() -> [u64; 256] {
    let mut table = [0; 256];
    let mut c = 0;
    while c < 256 {
        let mut bit_in = 0;
        while bit_in < 8 {
            let column = product(c as u8, 1 << bit_in);
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
            table[c][n] = product(c as u8, n as u8);
            table[c][16 + n] = product(c as u8, (n as u8) << 4);
            n += 1;
        }
        c += 1;
    }
    table
}

#[cfg(test)]
mod tests {
    use super::{MATRIX, inverse, mul, product};

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
                assert_eq!(mul(a, b), product(a, b));
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
