//! I25: every D of the D+P shards give all of them back, and with D = 1 parity is the data.

mod stripe;

use braid_erasure::{Code, TooFewShards};
use stripe::{Chance, Stripe};

/// Small and odd, so that all D, P and patterns take a second.
const LEN: usize = 5;

fn codes() -> impl Iterator<Item = Code> {
    (1..=16).flat_map(|d| (0..=4).map(move |p| Code::new(d, p).expect("within limits")))
}

/// All sets of at most `losses_max` of `shards` shards, as bit masks.
fn losses(shards: usize, losses_max: usize) -> impl Iterator<Item = u32> {
    (0..1u32 << shards).filter(move |mask| mask.count_ones() as usize <= losses_max)
}

#[test]
fn limits_are_kept() {
    for (data, parity) in [(0, 2), (17, 2), (4, 5), (usize::MAX, 1), (1, usize::MAX)] {
        assert_eq!(Code::new(data, parity), None, "{data}+{parity}");
    }
    assert_eq!(codes().count(), 80);
}

#[test]
fn every_loss_of_up_to_p_shards_is_repaired() {
    let mut chance = Chance(1);
    let mut patterns = 0;
    for code in codes() {
        let stripe = Stripe::random(code, LEN, &mut chance);
        for lost in losses(code.shards(), code.parity()) {
            stripe.check_repair(lost, lost);
            patterns += 1;
        }
    }
    // The sum over D and P of the sums of binomials (D+P over k), k = 0..=P.
    assert_eq!(patterns, expected_patterns());
}

fn expected_patterns() -> usize {
    let choose = |n: usize, k: usize| (0..k).fold(1, |c, i| c * (n - i) / (i + 1));
    let of_code = |code: Code| (0..=code.parity()).map(|k| choose(code.shards(), k)).sum::<usize>();
    codes().map(of_code).sum()
}

#[test]
fn mirror_copies_are_the_data() {
    let mut chance = Chance(2);
    for parity in 0..=4 {
        let code = Code::new(1, parity).expect("within limits");
        let stripe = Stripe::random(code, 1021, &mut chance);
        for copy in &stripe.shards {
            assert_eq!(copy, &stripe.shards[0]);
        }
    }
}

#[test]
fn parity_is_the_documented_sum() {
    // The formula of the card, computed here with a slow product of its own.
    let mut chance = Chance(3);
    for code in codes() {
        let stripe = Stripe::random(code, 3, &mut chance);
        for i in 0..code.parity() {
            for at in 0..3 {
                let sum = (0..code.data()).fold(0, |sum, j| sum ^ product(documented(i, j), stripe.shards[j][at]));
                assert_eq!(stripe.shards[code.data() + i][at], sum, "{code:?} parity {i}");
            }
        }
    }
}

fn documented(i: usize, j: usize) -> u8 {
    let (x0, xi, yj) = (16, 16 + i as u8, j as u8);
    let divisor = product(xi ^ yj, x0);
    let quotient = |q: &u8| product(*q, divisor) == product(xi, x0 ^ yj);
    (1..=255).find(quotient).expect("a field has quotients")
}

fn product(a: u8, b: u8) -> u8 {
    let wide = (0..8).filter(|bit| b >> bit & 1 == 1).fold(0u16, |sum, bit| sum ^ (u16::from(a) << bit));
    let reduce = |wide: u16, bit: u16| if wide >> bit & 1 == 1 { wide ^ (0x11D << (bit - 8)) } else { wide };
    (8..=14).rev().fold(wide, reduce) as u8
}

#[test]
fn long_odd_shards_are_repaired() {
    let mut chance = Chance(4);
    for _ in 0..60 {
        let (data, parity) = (chance.below(16) + 1, chance.below(4) + 1);
        let code = Code::new(data, parity).expect("within limits");
        let len = chance.below(100_000) | 1;
        let stripe = Stripe::random(code, len, &mut chance);
        let mut lost = 0u32;
        for _ in 0..parity {
            lost |= 1 << chance.below(code.shards());
        }
        stripe.check_repair(lost, lost);
    }
}

#[test]
fn any_shards_may_be_wanted_present_or_not() {
    let mut chance = Chance(5);
    for _ in 0..2000 {
        let code = Code::new(chance.below(16) + 1, chance.below(5)).expect("within limits");
        let len = chance.below(200);
        let stripe = Stripe::random(code, len, &mut chance);
        let mut lost = 0u32;
        for _ in 0..code.parity() {
            lost |= 1 << chance.below(code.shards());
        }
        let want = chance.below(1 << code.shards()) as u32;
        stripe.check_repair(lost, want);
    }
}

#[test]
fn order_and_repetition_of_present_shards_do_not_matter() {
    let code = Code::new(4, 2).expect("within limits");
    let stripe = Stripe::random(code, 77, &mut Chance(6));
    let present: Vec<(usize, &[u8])> = [5, 3, 5, 0, 3, 4].map(|s| (s, stripe.shards[s].as_slice())).into();
    let (mut one, mut two) = (vec![0; 77], vec![0; 77]);
    code.reconstruct(&present, &mut [(2, &mut one), (1, &mut two)]).expect("four different shards");
    assert_eq!((&one, &two), (&stripe.shards[2], &stripe.shards[1]));
}

#[test]
fn too_few_shards_are_refused_and_nothing_is_written() {
    let mut chance = Chance(7);
    for code in codes() {
        let stripe = Stripe::random(code, LEN, &mut chance);
        for kept in 0..code.data() {
            // The last ones, twice each: repetition must not count.
            let present: Vec<(usize, &[u8])> =
                (code.shards() - kept..code.shards()).flat_map(|s| [(s, stripe.shards[s].as_slice()); 2]).collect();
            let mut wanted = vec![0xA5; LEN];
            let refused = code.reconstruct(&present, &mut [(0, &mut wanted)]);
            assert_eq!(refused, Err(TooFewShards { needed: code.data(), present: kept }));
            assert_eq!(wanted, [0xA5; LEN]);
        }
    }
}

#[test]
#[should_panic(expected = "same length")]
fn shards_of_different_length_are_a_bug_of_the_caller() {
    let code = Code::new(2, 1).expect("within limits");
    code.encode(&[&[1, 2, 3], &[1, 2]], &mut [&mut [0; 3]]);
}

#[test]
fn a_lost_shard_may_be_wanted_many_times() {
    let code = Code::new(3, 2).expect("within limits");
    let stripe = Stripe::random(code, 50, &mut Chance(8));
    let present: Vec<(usize, &[u8])> = (2..5).map(|s| (s, stripe.shards[s].as_slice())).collect();
    let mut found = vec![vec![0; 50]; 11];
    let mut want: Vec<(usize, &mut [u8])> = stripe::slices(&mut found).into_iter().map(|shard| (1, shard)).collect();
    code.reconstruct(&present, &mut want).expect("three shards are present");
    assert!(found.iter().all(|shard| shard == &stripe.shards[1]));
}
