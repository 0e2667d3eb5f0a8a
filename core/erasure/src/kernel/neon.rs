//! 64-bit ARM: a product is the sum of two look-ups, one per nibble, in tables of 16 bytes.

use std::arch::aarch64::{uint8x16_t, vandq_u8, vdupq_n_u8, veorq_u8, vld1q_u8, vqtbl1q_u8, vshrq_n_u8, vst1q_u8};

use super::dot::{Job, Lanes, run};
use crate::field::NIBBLES;

/// # Safety
/// As for [`run`], with NEON.
#[target_feature(enable = "neon")]
pub(crate) unsafe fn dot(job: &Job) {
    // SAFETY: the caller's promise, and the feature is on here.
    unsafe { run::<Neon, 2>(job) }
}

struct Neon;

// SAFETY: load and store touch the 16 bytes of a register, unaligned.
unsafe impl Lanes for Neon {
    type Vector = uint8x16_t;
    type Coefficient = &'static [u8; 32];
    const WIDTH: usize = 16;

    #[inline(always)]
    fn coefficient(c: u8) -> &'static [u8; 32] {
        &NIBBLES[usize::from(c)]
    }

    #[inline(always)]
    unsafe fn zero() -> uint8x16_t {
        // SAFETY: the caller has NEON.
        unsafe { vdupq_n_u8(0) }
    }

    #[inline(always)]
    unsafe fn load(from: *const u8) -> uint8x16_t {
        // SAFETY: the caller has NEON and 16 readable bytes.
        unsafe { vld1q_u8(from) }
    }

    #[inline(always)]
    unsafe fn store(to: *mut u8, vector: uint8x16_t) {
        // SAFETY: the caller has NEON and 16 writable bytes.
        unsafe { vst1q_u8(to, vector) }
    }

    #[inline(always)]
    unsafe fn multiply_add<const M: usize, const U: usize>(
        sums: &mut [[uint8x16_t; U]; M],
        inputs: [uint8x16_t; U],
        coefficients: &[&'static [u8; 32]; M],
    ) {
        // SAFETY: the caller has NEON; a table is two halves of 16 bytes.
        unsafe {
            let mask = vdupq_n_u8(0x0F);
            for o in 0..M {
                let table = coefficients[o].as_ptr();
                let (of_low, of_high) = (vld1q_u8(table), vld1q_u8(table.add(16)));
                for u in 0..U {
                    let low = vqtbl1q_u8(of_low, vandq_u8(inputs[u], mask));
                    let high = vqtbl1q_u8(of_high, vshrq_n_u8::<4>(inputs[u]));
                    sums[o][u] = veorq_u8(sums[o][u], veorq_u8(low, high));
                }
            }
        }
    }
}
