//! x86-64 with GFNI: one instruction multiplies a whole register by a constant.

use std::arch::x86_64::{
    __m256i, __m512i, _mm256_gf2p8affine_epi64_epi8, _mm256_loadu_si256, _mm256_set1_epi64x, _mm256_setzero_si256,
    _mm256_storeu_si256, _mm256_xor_si256, _mm512_gf2p8affine_epi64_epi8, _mm512_loadu_si512, _mm512_set1_epi64,
    _mm512_setzero_si512, _mm512_storeu_si512, _mm512_xor_si512,
};

use super::dot::{Job, Lanes, run};
use crate::field::AFFINE;

/// # Safety
/// As for [`run`], with AVX-512F and GFNI.
#[target_feature(enable = "avx512f,gfni")]
pub(crate) unsafe fn dot_avx512(job: &Job) {
    // SAFETY: the caller's promise, and the features are on here.
    unsafe { run::<Wide, 2>(job) }
}

/// # Safety
/// As for [`run`], with AVX2 and GFNI.
#[target_feature(enable = "avx2,gfni")]
pub(crate) unsafe fn dot_avx2(job: &Job) {
    // SAFETY: the caller's promise, and the features are on here.
    unsafe { run::<Half, 2>(job) }
}

struct Wide;

// SAFETY: load and store touch the 64 bytes of a register, unaligned.
unsafe impl Lanes for Wide {
    type Vector = __m512i;
    type Coefficient = i64;
    const WIDTH: usize = 64;

    #[inline(always)]
    fn coefficient(c: u8) -> i64 {
        AFFINE[usize::from(c)].cast_signed()
    }

    #[inline(always)]
    unsafe fn zero() -> __m512i {
        // SAFETY: the caller has AVX-512F.
        unsafe { _mm512_setzero_si512() }
    }

    #[inline(always)]
    unsafe fn load(from: *const u8) -> __m512i {
        // SAFETY: the caller has AVX-512F and 64 readable bytes.
        unsafe { _mm512_loadu_si512(from.cast()) }
    }

    #[inline(always)]
    unsafe fn store(to: *mut u8, vector: __m512i) {
        // SAFETY: the caller has AVX-512F and 64 writable bytes.
        unsafe { _mm512_storeu_si512(to.cast(), vector) }
    }

    #[inline(always)]
    unsafe fn multiply_add<const M: usize, const U: usize>(
        sums: &mut [[__m512i; U]; M],
        inputs: [__m512i; U],
        coefficients: &[i64; M],
    ) {
        // SAFETY: the caller has AVX-512F and GFNI.
        unsafe {
            for o in 0..M {
                let matrix = _mm512_set1_epi64(coefficients[o]);
                for u in 0..U {
                    let product = _mm512_gf2p8affine_epi64_epi8::<0>(inputs[u], matrix);
                    sums[o][u] = _mm512_xor_si512(sums[o][u], product);
                }
            }
        }
    }
}

struct Half;

// SAFETY: load and store touch the 32 bytes of a register, unaligned.
unsafe impl Lanes for Half {
    type Vector = __m256i;
    type Coefficient = i64;
    const WIDTH: usize = 32;

    #[inline(always)]
    fn coefficient(c: u8) -> i64 {
        AFFINE[usize::from(c)].cast_signed()
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
        coefficients: &[i64; M],
    ) {
        // SAFETY: the caller has AVX2 and GFNI.
        unsafe {
            for o in 0..M {
                let matrix = _mm256_set1_epi64x(coefficients[o]);
                for u in 0..U {
                    let product = _mm256_gf2p8affine_epi64_epi8::<0>(inputs[u], matrix);
                    sums[o][u] = _mm256_xor_si256(sums[o][u], product);
                }
            }
        }
    }
}
