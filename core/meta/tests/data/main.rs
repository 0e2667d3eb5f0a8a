//! The data side of a partition against a plain byte array per file, in a world that fails at any moment.

mod ages;
mod balance;
mod bare;
mod cases;
mod check;
mod damage;
mod half;
mod model;
mod order;
mod rebuild;
mod removal;
mod scrub;
mod tier;
mod world;

use std::collections::BTreeSet;

use braid_meta::Mutation;
use world::{Wish, World};

/// Rare things that happened in a run.
type Met = BTreeSet<&'static str>;

/// Runs `steps` random steps from `seed`; the end is calm and everything is checked.
fn run(seed: u64, wish: Wish) -> Result<Met, String> {
    let mut world = World::new(seed, wish)?;
    for step in 0..wish.steps {
        world.step().map_err(|e| format!("seed {seed}, step {step}: {e}"))?;
    }
    world.calm().map_err(|e| format!("seed {seed}, at the end: {e}"))?;
    Ok(world.met)
}

/// `BRAID_DATA_RUNS` times as many seeds as the gate runs.
fn run_all(seeds: std::ops::Range<u64>, wish: Wish) -> Met {
    let times: u64 = std::env::var("BRAID_DATA_RUNS").ok().and_then(|text| text.parse().ok()).unwrap_or(1);
    let count = (seeds.end - seeds.start) * times;
    let mut met = Met::new();
    for seed in seeds.start * 1_000_000..seeds.start * 1_000_000 + count {
        match run(seed, wish) {
            Ok(more) => met.extend(more),
            Err(message) => panic!("{message}"),
        }
    }
    met
}

#[test]
fn short_runs_with_failures_and_restarts() {
    let met = run_all(0..400, Wish::default());
    for what in [
        "a failed move",
        "a narrow pack",
        "a pack closed by a lost drive",
        "a cut too wide to count",
        "a stripe of a client",
        "a shard made anew",
        "requests in one entry",
    ] {
        assert!(met.contains(what), "{what} never happened");
    }
}

#[test]
fn long_runs_collect_garbage_on_small_drives() {
    let met = run_all(1..41, Wish { steps: 900, slots: 10, ..Wish::default() });
    assert!(met.contains("garbage collected"), "{met:?}");
}

#[test]
fn a_small_stage_holds_writes_back_and_never_stops() {
    let met = run_all(2..82, Wish { steps: 150, cap_bytes: 24 << 10, ..Wish::default() });
    assert!(met.contains("a write held back"), "{met:?}");
}

#[test]
fn calm_runs_reach_the_end_without_any_failure() {
    run_all(3..53, Wish { chaos: false, ..Wish::default() });
}

#[test]
fn cold_bytes_go_into_objects_and_come_back() {
    let met = run_all(4..204, Wish { steps: 250, tiered: true, ..Wish::default() });
    let calm = run_all(5..35, Wish { steps: 250, tiered: true, chaos: false, ..Wish::default() });
    for what in [
        "an object",
        "a failed upload",
        "a late upload",
        "bytes on flash and in an object",
        "bytes in an object only",
        "bytes that came back",
        "a pack without parity was given up",
        "an object removed",
    ] {
        assert!(met.contains(what), "{what} never happened: {met:?}");
    }
    assert!(calm.contains("an object removed"), "{calm:?}");
}

#[test]
fn small_drives_with_a_store_hold_more_than_they_have_room_for() {
    let met = run_all(6..46, Wish { steps: 900, slots: 10, tiered: true, ..Wish::default() });
    assert!(met.contains("bytes in an object only"), "{met:?}");
}

/// The same for the rules of the capacity tier.
#[test]
fn every_broken_rule_of_the_tier_is_noticed() {
    let rules = [Mutation::TrustUpload, Mutation::NoBlobHint, Mutation::ReleaseAll, Mutation::BareAll];
    for rule in rules {
        let wish = Wish { steps: 400, tiered: true, broken: Some(rule), ..Wish::default() };
        let noticed = (50_000..52_000).any(|seed| {
            let outcome = std::panic::catch_unwind(|| run(seed, wish));
            !matches!(outcome, Ok(Ok(_)))
        });
        assert!(noticed, "{rule:?} went unnoticed");
    }
}

/// Each broken rule must be noticed within two thousand short runs, or the checks check nothing.
#[test]
fn every_broken_rule_is_noticed() {
    let rules = [
        Mutation::StampAtCommit,
        Mutation::NoCheck,
        Mutation::LendAgain,
        Mutation::NoHint,
        Mutation::AnyGrant,
        Mutation::GatherBlind,
    ];
    for rule in rules {
        let wish = Wish { broken: Some(rule), ..Wish::default() };
        let noticed = (40_000..42_000).any(|seed| {
            let outcome = std::panic::catch_unwind(|| run(seed, wish));
            !matches!(outcome, Ok(Ok(_)))
        });
        assert!(noticed, "{rule:?} went unnoticed");
    }
}
