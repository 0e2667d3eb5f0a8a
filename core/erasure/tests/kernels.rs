//! Each kernel of this machine gives the bytes of the portable one, at every length and alignment,
//! and touches nothing outside its shards.

mod stripe;

use braid_erasure::{Code, Kernel};
use stripe::{Chance, Stripe};

/// Around every vector width, the unrolled steps, and pages.
fn lengths() -> impl Iterator<Item = usize> {
    (0..=300).chain([4095, 4096, 16_383, 16_384, 16_385, 32_768 + 97, 50_001])
}

fn kernels() -> impl Iterator<Item = Kernel> {
    Kernel::ALL.into_iter().filter(|kernel| kernel.is_available())
}

#[test]
fn detection_prefers_the_fastest() {
    assert_eq!(kernels().next(), Some(Kernel::detect()));
    assert!(Kernel::Portable.is_available());
    for kernel in Kernel::ALL {
        let code = Code::new(4, 2).expect("within limits");
        assert_eq!(code.with_kernel(kernel).map(Code::kernel), kernels().find(|&k| k == kernel));
    }
}

#[test]
fn every_kernel_repairs_every_loss_of_four_in_sixteen_plus_four() {
    let code = Code::new(16, 4).expect("within limits");
    let mut stripe = Stripe::random(code, 193, &mut Chance(10));
    for kernel in kernels() {
        stripe.code = code.with_kernel(kernel).expect("available");
        for lost in (0..1u32 << 20).filter(|mask| mask.count_ones() == 4) {
            stripe.check_repair(lost, lost);
        }
    }
}

#[test]
fn encode_and_reconstruct_agree_at_every_length_and_alignment() {
    let mut chance = Chance(11);
    for len in lengths() {
        for parity in 0..=4 {
            let code = Code::new(chance.below(16) + 1, parity).expect("within limits");
            let portable = code.with_kernel(Kernel::Portable).expect("always available");
            let mut stripe = Stripe::random(portable, len, &mut chance);
            let expected = stripe.shards.clone();
            for kernel in kernels() {
                stripe.code = code.with_kernel(kernel).expect("available");
                stripe.encode_between_guards(chance.below(64));
                assert_eq!(stripe.shards, expected, "{kernel:?} {}+{parity} x {len}", code.data());
                stripe.check_repair((1 << parity) - 1, (1 << parity) - 1);
            }
        }
    }
}

#[test]
fn delta_equals_encoding_anew() {
    let mut chance = Chance(12);
    for len in lengths() {
        for kernel in kernels() {
            let code = Code::new(chance.below(16) + 1, chance.below(5)).expect("within limits");
            let code = code.with_kernel(kernel).expect("available");
            let mut stripe = Stripe::random(code, len, &mut chance);
            let changed = chance.below(code.data());
            let new = chance.bytes(len);
            let delta: Vec<u8> = stripe.shards[changed].iter().zip(&new).map(|(old, new)| old ^ new).collect();
            let mut parity = stripe.shards.split_off(code.data());
            code.delta(changed, &delta, &mut stripe::slices(&mut parity));

            stripe.shards[changed] = new;
            stripe.shards.resize(code.shards(), vec![0; len]);
            stripe.encode();
            assert_eq!(stripe.shards[code.data()..], parity, "{kernel:?} {code:?} x {len}");
        }
    }
}

#[test]
fn pieces_of_a_shard_give_pieces_of_the_parity() {
    let code = Code::new(7, 3).expect("within limits");
    let stripe = Stripe::random(code, 10_000, &mut Chance(13));
    let mut parity = vec![vec![0; 10_000]; 3];
    for cut in [0..1, 1..4097, 4097..9_999, 9_999..10_000] {
        let data: Vec<&[u8]> = stripe.shards[..7].iter().map(|shard| &shard[cut.clone()]).collect();
        let mut part: Vec<&mut [u8]> = parity.iter_mut().map(|shard| &mut shard[cut.clone()]).collect();
        code.encode(&data, &mut part);
    }
    assert_eq!(stripe.shards[7..], parity);
}
