//! What tests of a real host share.

use std::time::{Duration, Instant};

/// Bytes that differ everywhere, and with `seed`.
pub fn noise(len: usize, mut seed: u64) -> Vec<u8> {
    let mut out = Vec::with_capacity(len + 8);
    while out.len() < len {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        out.extend_from_slice(&seed.to_le_bytes());
    }
    out.truncate(len);
    out
}

/// Waits until `is` comes true, `most` at most.
#[expect(clippy::disallowed_methods, reason = "a test waits for a real host")]
pub fn wait_for(most: Duration, what: &str, mut is: impl FnMut() -> bool) {
    let until = Instant::now() + most;
    while !is() {
        assert!(Instant::now() < until, "{what}: not in time");
        std::thread::sleep(Duration::from_millis(100));
    }
}
