//! The choice of instruction set, and the safe entry to the kernels.

mod dot;
mod portable;

#[cfg(target_arch = "x86_64")]
mod avx2;
#[cfg(target_arch = "x86_64")]
mod gfni;
#[cfg(target_arch = "aarch64")]
mod neon;

use crate::field::Row;
use crate::{DATA_MAX, PARITY_MAX};

/// A way to compute the code. All give the same bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kernel {
    /// x86-64 with AVX-512 and GFNI (Ice Lake, Zen 4 and later): 64 bytes per instruction.
    Avx512Gfni,
    /// x86-64 with AVX2 and GFNI but no AVX-512 (Alder Lake and later desktops).
    Avx2Gfni,
    /// x86-64 with AVX2: two table look-ups of 4 bits per byte.
    Avx2,
    /// 64-bit ARM: two table look-ups of 4 bits per byte.
    Neon,
    /// Any machine.
    Portable,
}

impl Kernel {
    /// All kernels, fastest first.
    pub const ALL: [Kernel; 5] = [Kernel::Avx512Gfni, Kernel::Avx2Gfni, Kernel::Avx2, Kernel::Neon, Kernel::Portable];

    /// The fastest kernel of this machine.
    pub fn detect() -> Kernel {
        Kernel::ALL.into_iter().find(|kernel| kernel.is_available()).unwrap_or(Kernel::Portable)
    }

    /// Whether this machine can run the kernel. Cheap: the processor is asked once per process.
    pub fn is_available(self) -> bool {
        match self {
            #[cfg(target_arch = "x86_64")]
            Kernel::Avx512Gfni => is_x86_feature_detected!("avx512f") && is_x86_feature_detected!("gfni"),
            #[cfg(target_arch = "x86_64")]
            Kernel::Avx2Gfni => is_x86_feature_detected!("avx2") && is_x86_feature_detected!("gfni"),
            #[cfg(target_arch = "x86_64")]
            Kernel::Avx2 => is_x86_feature_detected!("avx2"),
            #[cfg(target_arch = "aarch64")]
            Kernel::Neon => std::arch::is_aarch64_feature_detected!("neon"),
            Kernel::Portable => true,
            #[allow(unreachable_patterns)]
            _ => false,
        }
    }
}

/// For each output o and every offset: the sum over j of `rows[o][j] * inputs[j]`, added to what the
/// output holds if `accumulate`. 1 to 16 inputs, up to 4 outputs, all of the same length.
///
/// One pass reads every input byte once and writes every output byte once, so cutting long shards
/// into strips that fit a cache would gain nothing here (measured: no difference from 16 KiB up).
pub(crate) fn dot(kernel: Kernel, rows: &[Row], inputs: &[&[u8]], outputs: &mut [&mut [u8]], accumulate: bool) {
    if outputs.is_empty() {
        return;
    }
    let len = outputs[0].len();
    // These hold the memory safety of the kernels, so they stay in every build.
    assert!(kernel.is_available(), "{kernel:?} cannot run on this machine");
    assert!((1..=DATA_MAX).contains(&inputs.len()) && outputs.len() <= PARITY_MAX && rows.len() == outputs.len());
    let equal = inputs.iter().all(|input| input.len() == len) && outputs.iter().all(|output| output.len() == len);
    assert!(equal, "all shards of one call have the same length");

    let mut from = [std::ptr::null(); DATA_MAX];
    for (pointer, input) in from.iter_mut().zip(inputs) {
        *pointer = input.as_ptr();
    }
    let mut to = [std::ptr::null_mut(); PARITY_MAX];
    for (pointer, output) in to.iter_mut().zip(outputs) {
        *pointer = output.as_mut_ptr();
    }
    let job = dot::Job { rows, from: &from[..inputs.len()], to, len, accumulate };
    // SAFETY: the processor has the kernel's instructions (asserted above). Each pointer covers
    // `len` bytes (asserted above), and `&mut` keeps the outputs apart from each other and the inputs.
    unsafe {
        match kernel {
            #[cfg(target_arch = "x86_64")]
            Kernel::Avx512Gfni => gfni::dot_avx512(&job),
            #[cfg(target_arch = "x86_64")]
            Kernel::Avx2Gfni => gfni::dot_avx2(&job),
            #[cfg(target_arch = "x86_64")]
            Kernel::Avx2 => avx2::dot(&job),
            #[cfg(target_arch = "aarch64")]
            Kernel::Neon => neon::dot(&job),
            Kernel::Portable => portable::dot(&job),
            #[allow(unreachable_patterns)]
            _ => unreachable!("{kernel:?} is not available"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{Kernel, dot};
    use crate::DATA_MAX;
    use crate::field::product;

    #[test]
    fn every_coefficient_times_every_byte() {
        let bytes: Vec<u8> = (0..=255).collect();
        for kernel in Kernel::ALL.into_iter().filter(|kernel| kernel.is_available()) {
            for c in 0..=255 {
                let mut row = [0; DATA_MAX];
                row[0] = c;
                let mut found = [0xFF; 256];
                dot(kernel, &[row], &[&bytes], &mut [&mut found], false);
                let expected: Vec<u8> = bytes.iter().map(|&byte| product(c, byte)).collect();
                assert_eq!(found, *expected, "{kernel:?} times {c}");
            }
        }
    }
}
