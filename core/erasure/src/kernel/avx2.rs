//! x86-64 with AVX2: a product is the sum of two look-ups, one per nibble, in tables of 16 bytes.

use std::arch::x86_64::{
    __m256i, _mm_loadu_si128, _mm256_and_si256, _mm256_broadcastsi128_si256, _mm256_loadu_si256, _mm256_set1_epi8,
    _mm256_setzero_si256, _mm256_shuffle_epi8, _mm256_srli_epi16, _mm256_storeu_si256, _mm256_xor_si256,
};

use super::dot::{Job, Lanes, run};
use crate::field::NIBBLES;

/// # Safety
/// As for [`run`], with AVX2.
#[target_feature(enable = "avx2")]
pub(crate) unsafe fn dot(job: &Job) {
    // SAFETY: the caller's promise, and the feature is on here. One vector per step: sums, nibbles,
    // mask and tables fill the 16 registers.
    unsafe { run::<Avx2, 1>(job) }
}

struct Avx2;

// SAFETY: load and store touch the 32 bytes of a register, unaligned.
unsafe impl Lanes for Avx2 {
    type Vector = __m256i;
    type Coefficient = &'static [u8; 32];
    const WIDTH: usize = 32;

    #[inline(always)]
    fn coefficient(c: u8) -> &'static [u8; 32] {
        &NIBBLES[usize::from(c)]
    }

    #[inline(always)]
    unsafe fn zero() -> __m256i {
        // SAFETY: the caller has AVX2.
        unsafe { _mm256_setzero_si256() }
    }

    #[inline(always)]
    unsafe fn load(from: *const u8) -> __m256i {
        // SAFETY: the caller has AVX2 and 32 readable bytes.
        unsafe { _mm256_loadu_si256(from.cast()) }
    }

    #[inline(always)]
    unsafe fn store(to: *mut u8, vector: __m256i) {
        // SAFETY: the caller has AVX2 and 32 writable bytes.
        unsafe { _mm256_storeu_si256(to.cast(), vector) }
    }

    #[inline(always)]
    unsafe fn multiply_add<const M: usize, const U: usize>(
        sums: &mut [[__m256i; U]; M],
        inputs: [__m256i; U],
        coefficients: &[&'static [u8; 32]; M],
    ) {
        // SAFETY: the caller has AVX2; a table is two halves of 16 bytes.
        unsafe {
            let mask = _mm256_set1_epi8(0x0F);
            for u in 0..U {
                let low = _mm256_and_si256(inputs[u], mask);
                let high = _mm256_and_si256(_mm256_srli_epi16::<4>(inputs[u]), mask);
                for o in 0..M {
                    let table = coefficients[o].as_ptr();
                    let of_low = _mm256_broadcastsi128_si256(_mm_loadu_si128(table.cast()));
                    let of_high = _mm256_broadcastsi128_si256(_mm_loadu_si128(table.add(16).cast()));
                    let product =
                        _mm256_xor_si256(_mm256_shuffle_epi8(of_low, low), _mm256_shuffle_epi8(of_high, high));
                    sums[o][u] = _mm256_xor_si256(sums[o][u], product);
                }
            }
        }
    }
}
