//! Prints how fast one core encodes, rebuilds and updates: GB (10^9 bytes) per second, for each
//! kernel of this machine and several codes.
//!
//! - encode: bytes of data in;
//! - rebuild: bytes of D shards in, to restore the first P shards;
//! - delta: bytes of delta in.
//!
//! Run: `cargo run --release -p braid-erasure --example throughput`

use std::hint::black_box;
use std::time::{Duration, Instant};

use braid_erasure::{Code, Kernel};

const CODES: [(usize, usize); 8] = [(1, 2), (2, 1), (4, 1), (4, 2), (8, 2), (16, 2), (8, 4), (16, 4)];
const SHARD_BYTES: [usize; 3] = [16 << 10, 128 << 10, 8 << 20];
const ALIGNMENT: usize = 4096;
/// The best of this many rounds counts: other load on the machine only ever slows down.
const ROUNDS: usize = 5;
const ROUND: Duration = Duration::from_millis(20);

fn main() {
    println!("{:<12} {:>5} {:>10} {:>8} {:>8} {:>8}", "kernel", "D+P", "shard KiB", "encode", "rebuild", "delta");
    for kernel in Kernel::ALL {
        for (data, parity) in CODES {
            let code = Code::new(data, parity).and_then(|code| code.with_kernel(kernel));
            let Some(code) = code else { continue };
            for bytes in SHARD_BYTES {
                let [encode, rebuild, delta] = measure(code, bytes);
                println!(
                    "{:<12} {:>5} {:>10} {encode:>8.1} {rebuild:>8.1} {delta:>8.1}",
                    format!("{kernel:?}"),
                    format!("{data}+{parity}"),
                    bytes >> 10,
                );
            }
        }
    }
}

fn measure(code: Code, bytes: usize) -> [f64; 3] {
    let mut memory = vec![0u8; (code.shards() + code.parity()) * bytes + ALIGNMENT];
    for (k, byte) in memory.iter_mut().enumerate() {
        *byte = (k * 31 % 251) as u8;
    }
    let start = memory.as_ptr().align_offset(ALIGNMENT);
    let mut shards = memory[start..].chunks_exact_mut(bytes);
    let data: Vec<&[u8]> = shards.by_ref().take(code.data()).map(|shard| &*shard).collect();
    let mut parity: Vec<&mut [u8]> = shards.by_ref().take(code.parity()).collect();
    let mut lost: Vec<&mut [u8]> = shards.take(code.parity()).collect();

    let encode = best(code.data() * bytes, || code.encode(black_box(&data), &mut parity));
    let delta = best(bytes, || code.delta(0, black_box(data[0]), &mut parity));
    code.encode(&data, &mut parity);

    // The first P shards are lost, the last D survive.
    let all = data.iter().copied().chain(parity.iter().map(|shard| &**shard));
    let present: Vec<(usize, &[u8])> = all.enumerate().skip(code.parity()).collect();
    let mut want: Vec<(usize, &mut [u8])> = lost.iter_mut().map(|shard| &mut **shard).enumerate().collect();
    let rebuild = best(code.data() * bytes, || {
        code.reconstruct(black_box(&present), &mut want).expect("D shards are present");
    });
    [encode, rebuild, delta]
}

/// GB/s of the best round.
#[allow(clippy::disallowed_methods)] // A measurement is about real time.
fn best(bytes: usize, mut work: impl FnMut()) -> f64 {
    let mut best: f64 = 0.0;
    for _ in 0..ROUNDS {
        let start = Instant::now();
        let mut calls = 0;
        while start.elapsed() < ROUND {
            work();
            calls += 1;
        }
        best = best.max((calls * bytes) as f64 / start.elapsed().as_nanos() as f64);
    }
    best
}
