//! Stored bytes. They come from a separate computation of the formula in the crate's card, and must
//! never change: parity on disk was written with them.

use braid_erasure::{Code, Kernel};

const LEN: usize = 32;

const GOLDEN_4_2: [&str; 2] = [
    "400c1c007c84803c04008c8400048480040c80841c80841c807c0c800c84800c",
    "a558dc947d98fdff5edafdb5329ab9117f371094bfc8ad5004acd84e090a6f66",
];

const GOLDEN_16_4: [&str; 4] = [
    "c0f0100070b000b0300030104010b0003010801010001010c0f01000b0b00010",
    "79bb604a851d0df15b82c2986129007943a6a59d80ce0078b75c5e28eda4b118",
    "803012390a2eb08395df38f1ad39ac3c197aa402d824d7313c32934dcc397865",
    "afb04fc9ad034fda4ab3162f4fe169884439419f354607e7d91eebeb86e549fa",
];

#[test]
fn parity_of_4_2_is_the_stored_one() {
    check(4, &GOLDEN_4_2);
}

#[test]
fn parity_of_16_4_is_the_stored_one() {
    check(16, &GOLDEN_16_4);
}

#[test]
fn smaller_p_stores_a_prefix_of_the_parity() {
    for p in 1..4 {
        check(16, &GOLDEN_16_4[..p]);
    }
    check(4, &GOLDEN_4_2[..1]);
}

fn check(data_shards: usize, golden: &[&str]) {
    let data: Vec<Vec<u8>> =
        (0..data_shards).map(|j| (0..LEN).map(|k| (31 * j + 7 * k + k * k / 3 + 1) as u8).collect()).collect();
    let data: Vec<&[u8]> = data.iter().map(Vec::as_slice).collect();
    for kernel in Kernel::ALL {
        let code = Code::new(data_shards, golden.len()).expect("within limits");
        let Some(code) = code.with_kernel(kernel) else { continue };
        let mut parity = vec![vec![0; LEN]; golden.len()];
        code.encode(&data, &mut parity.iter_mut().map(Vec::as_mut_slice).collect::<Vec<_>>());
        let found: Vec<String> = parity.iter().map(|bytes| hex(bytes)).collect();
        assert_eq!(found, golden, "{kernel:?}");
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
