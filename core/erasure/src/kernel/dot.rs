//! The one inner routine, generic over the vectors of an instruction set.
//!
//! Everything here is `#[inline(always)]`: it must be compiled inside a function that switches the
//! instruction set on (`#[target_feature]`), or the intrinsics would become calls.

// Indices run over several arrays of registers at once; iterators would hide the shape.
#![allow(clippy::needless_range_loop)]

use crate::field::Row;
use crate::{DATA_MAX, PARITY_MAX};

/// Widest vector of any kernel, in bytes.
const WIDTH_MAX: usize = 64;

/// One call of a kernel. `to` has `rows.len()` valid entries.
pub(crate) struct Job<'a> {
    pub(crate) rows: &'a [Row],
    pub(crate) from: &'a [*const u8],
    pub(crate) to: [*mut u8; PARITY_MAX],
    pub(crate) len: usize,
    pub(crate) accumulate: bool,
}

/// Vectors of bytes of one instruction set.
///
/// # Safety
/// All methods need a processor with that instruction set. `load` and `store` touch exactly `WIDTH`
/// bytes at any alignment, and `WIDTH <= WIDTH_MAX`.
pub(crate) unsafe trait Lanes {
    /// A register of bytes.
    type Vector: Copy;
    /// What a coefficient looks like before the loop; small, as 64 of them are kept.
    type Coefficient: Copy;
    /// Bytes in a register.
    const WIDTH: usize;

    fn coefficient(c: u8) -> Self::Coefficient;
    unsafe fn zero() -> Self::Vector;
    unsafe fn load(from: *const u8) -> Self::Vector;
    unsafe fn store(to: *mut u8, vector: Self::Vector);
    /// `sums[o][u] += coefficients[o] * inputs[u]`.
    unsafe fn multiply_add<const M: usize, const U: usize>(
        sums: &mut [[Self::Vector; U]; M],
        inputs: [Self::Vector; U],
        coefficients: &[Self::Coefficient; M],
    );
}

/// Runs a job; `U` is the number of vectors per step and input.
///
/// # Safety
/// The processor has the instruction set of `L`. Each pointer of the job covers `len` bytes, the
/// outputs overlap nothing.
#[inline(always)]
pub(crate) unsafe fn run<L: Lanes, const U: usize>(job: &Job) {
    // SAFETY: as promised by the caller.
    unsafe {
        match job.rows.len() {
            1 => outputs::<L, 1, U>(job),
            2 => outputs::<L, 2, U>(job),
            3 => outputs::<L, 3, U>(job),
            _ => outputs::<L, PARITY_MAX, U>(job),
        }
    }
}

/// `run` for a known number of outputs.
#[inline(always)]
unsafe fn outputs<L: Lanes, const M: usize, const U: usize>(job: &Job) {
    assert!(job.rows.len() == M && job.from.len() <= DATA_MAX && L::WIDTH <= WIDTH_MAX);
    let mut coefficients = [[L::coefficient(0); M]; DATA_MAX];
    for (j, of_input) in coefficients[..job.from.len()].iter_mut().enumerate() {
        *of_input = std::array::from_fn(|o| L::coefficient(job.rows[o][j]));
    }
    let coefficients = &coefficients[..job.from.len()];
    let mut to = [std::ptr::null_mut(); M];
    to.copy_from_slice(&job.to[..M]);

    // SAFETY: `columns` stays below `len`, which the pointers cover by the caller's promise.
    unsafe {
        let at = columns::<L, M, U>(job, coefficients, &to, 0);
        let at = columns::<L, M, 1>(job, coefficients, &to, at);
        if at < job.len {
            tail::<L, M>(job, coefficients, &to, at);
        }
    }
}

/// Full steps of `U` vectors from offset `at` on; returns the first offset not done.
#[inline(always)]
unsafe fn columns<L: Lanes, const M: usize, const U: usize>(
    job: &Job,
    coefficients: &[[L::Coefficient; M]],
    to: &[*mut u8; M],
    mut at: usize,
) -> usize {
    while job.len - at >= U * L::WIDTH {
        // SAFETY: all `U * WIDTH` bytes from `at` on are below `len`.
        unsafe {
            let mut sums = [[L::zero(); U]; M];
            if job.accumulate {
                for o in 0..M {
                    for u in 0..U {
                        sums[o][u] = L::load(to[o].add(at + u * L::WIDTH));
                    }
                }
            }
            // Two inputs per turn: half the branches, and AVX-512 adds two products at once.
            let (from_pairs, from_last) = job.from.as_chunks::<2>();
            let (of_pairs, of_last) = coefficients.as_chunks::<2>();
            for (from, of_inputs) in from_pairs.iter().zip(of_pairs) {
                add_input::<L, M, U>(&mut sums, from[0].add(at), &of_inputs[0]);
                add_input::<L, M, U>(&mut sums, from[1].add(at), &of_inputs[1]);
            }
            for (from, of_input) in from_last.iter().zip(of_last) {
                add_input::<L, M, U>(&mut sums, from.add(at), of_input);
            }
            for o in 0..M {
                for u in 0..U {
                    L::store(to[o].add(at + u * L::WIDTH), sums[o][u]);
                }
            }
        }
        at += U * L::WIDTH;
    }
    at
}

/// Adds the next `U` vectors of one input, times its coefficients.
#[inline(always)]
unsafe fn add_input<L: Lanes, const M: usize, const U: usize>(
    sums: &mut [[L::Vector; U]; M],
    from: *const u8,
    of_input: &[L::Coefficient; M],
) {
    // SAFETY: the caller has `U * WIDTH` readable bytes.
    unsafe {
        let mut inputs = [L::zero(); U];
        for (u, input) in inputs.iter_mut().enumerate() {
            *input = L::load(from.add(u * L::WIDTH));
        }
        L::multiply_add(sums, inputs, of_input);
    }
}

/// The last bytes, fewer than a vector: moved through a buffer, so that nothing beyond is touched.
#[inline(always)]
unsafe fn tail<L: Lanes, const M: usize>(
    job: &Job,
    coefficients: &[[L::Coefficient; M]],
    to: &[*mut u8; M],
    at: usize,
) {
    let left = job.len - at;
    assert!(left < L::WIDTH);
    let mut buffer = [0; WIDTH_MAX];
    // SAFETY: `left` bytes from `at` on are below `len`; the buffer holds a vector.
    unsafe {
        let mut sums = [[L::zero(); 1]; M];
        if job.accumulate {
            for o in 0..M {
                buffer.as_mut_ptr().copy_from_nonoverlapping(to[o].add(at), left);
                sums[o][0] = L::load(buffer.as_ptr());
            }
        }
        for (from, of_input) in job.from.iter().zip(coefficients) {
            buffer.as_mut_ptr().copy_from_nonoverlapping(from.add(at), left);
            L::multiply_add(&mut sums, [L::load(buffer.as_ptr())], of_input);
        }
        for o in 0..M {
            L::store(buffer.as_mut_ptr(), sums[o][0]);
            to[o].add(at).copy_from_nonoverlapping(buffer.as_ptr(), left);
        }
    }
}
