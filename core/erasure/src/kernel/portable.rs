//! Any machine. Doubles the input seven times and adds the powers that a coefficient's bits select;
//! there is no table and no branch on data, so the compiler can use whatever vectors there are.

// Indices run over several arrays of registers at once; iterators would hide the shape.
#![allow(clippy::needless_range_loop)]

use super::dot::{Job, Lanes, run};

/// # Safety
/// As for [`run`]; any processor will do.
pub(crate) unsafe fn dot(job: &Job) {
    // SAFETY: the caller's promise.
    unsafe { run::<Portable, 1>(job) }
}

const WIDTH: usize = 32;

struct Portable;

// SAFETY: load and store touch the bytes of the array, unaligned.
unsafe impl Lanes for Portable {
    type Vector = [u8; WIDTH];
    /// Byte b is 0xFF if bit b of the coefficient is set, else 0.
    type Coefficient = [u8; 8];
    const WIDTH: usize = WIDTH;

    #[inline(always)]
    fn coefficient(c: u8) -> [u8; 8] {
        std::array::from_fn(|bit| 0xFF * ((c >> bit) & 1))
    }

    #[inline(always)]
    unsafe fn zero() -> [u8; WIDTH] {
        [0; WIDTH]
    }

    #[inline(always)]
    unsafe fn load(from: *const u8) -> [u8; WIDTH] {
        // SAFETY: the caller has `WIDTH` readable bytes.
        unsafe { from.cast::<[u8; WIDTH]>().read_unaligned() }
    }

    #[inline(always)]
    unsafe fn store(to: *mut u8, vector: [u8; WIDTH]) {
        // SAFETY: the caller has `WIDTH` writable bytes.
        unsafe { to.cast::<[u8; WIDTH]>().write_unaligned(vector) }
    }

    #[inline(always)]
    unsafe fn multiply_add<const M: usize, const U: usize>(
        sums: &mut [[[u8; WIDTH]; U]; M],
        inputs: [[u8; WIDTH]; U],
        coefficients: &[[u8; 8]; M],
    ) {
        for u in 0..U {
            let mut power = inputs[u];
            for bit in 0..8 {
                for o in 0..M {
                    for k in 0..WIDTH {
                        sums[o][u][k] ^= power[k] & coefficients[o][bit];
                    }
                }
                for byte in &mut power {
                    *byte = (*byte << 1) ^ (0x1D & 0u8.wrapping_sub(*byte >> 7));
                }
            }
        }
    }
}
