//! The data side of a partition against a plain byte array per file, in a world that fails at any moment.

mod cases;
mod check;
mod model;
mod world;

use braid_meta::Mutation;
use world::{Wish, World};

/// Runs `steps` random steps from `seed`; the end is calm and everything is checked.
fn run(seed: u64, wish: Wish) -> Result<(), String> {
    let mut world = World::new(seed, wish)?;
    for step in 0..wish.steps {
        world.step().map_err(|e| format!("seed {seed}, step {step}: {e}"))?;
    }
    world.calm().map_err(|e| format!("seed {seed}, at the end: {e}"))
}

/// `BRAID_DATA_RUNS` times as many seeds as the gate runs.
fn run_all(seeds: std::ops::Range<u64>, wish: Wish) {
    let times: u64 = std::env::var("BRAID_DATA_RUNS").ok().and_then(|text| text.parse().ok()).unwrap_or(1);
    let count = (seeds.end - seeds.start) * times;
    for seed in seeds.start * 1_000_000..seeds.start * 1_000_000 + count {
        if let Err(message) = run(seed, wish) {
            panic!("{message}");
        }
    }
}

#[test]
fn short_runs_with_failures_and_restarts() {
    run_all(0..400, Wish::default());
}

#[test]
fn long_runs_collect_garbage_on_small_drives() {
    run_all(1..13, Wish { steps: 900, slots: 14, ..Wish::default() });
}

#[test]
fn a_small_stage_holds_writes_back_and_never_stops() {
    run_all(2..82, Wish { steps: 150, cap_bytes: 24 << 10, ..Wish::default() });
}

#[test]
fn calm_runs_reach_the_end_without_any_failure() {
    run_all(3..53, Wish { chaos: false, ..Wish::default() });
}

/// Each broken rule must be noticed within a few hundred runs, or the checks check nothing.
#[test]
fn every_broken_rule_is_noticed() {
    let rules = [Mutation::StampAtCommit, Mutation::NoCheck, Mutation::LendAgain, Mutation::NoHint];
    for rule in rules {
        let wish = Wish { broken: Some(rule), ..Wish::default() };
        let noticed = (40_000..40_400).any(|seed| {
            let outcome = std::panic::catch_unwind(|| run(seed, wish));
            !matches!(outcome, Ok(Ok(())))
        });
        assert!(noticed, "{rule:?} went unnoticed");
    }
}
