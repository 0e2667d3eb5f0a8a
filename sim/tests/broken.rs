//! Every rule is there for a reason: left out, some seed breaks a promise, and the audit says so.

use braid_meta::{Mutation, Variant};
use braid_sim::broken::Broken;
use braid_sim::config::SimConfig;
use braid_sim::run::run;

/// The first failure among `seeds` runs without a rule.
fn caught(broken: Broken, seeds: u64) {
    for seed in 0..seeds {
        if let Err(failure) = run(SimConfig { broken: Some(broken), ..SimConfig::from_seed(seed) }) {
            println!("{broken:?}: seed {seed}: {}", failure.what.chars().take(300).collect::<String>());
            return;
        }
    }
    panic!("{broken:?}: {seeds} seeds without this rule, and nothing was noticed");
}

#[test]
fn names_abort_without_a_log_entry() {
    caught(Broken::Names(Variant::NoAbortLog), 400);
}

#[test]
fn names_promised_names_are_shown() {
    caught(Broken::Names(Variant::NoLock), 400);
}

#[test]
fn names_promises_end_by_time() {
    caught(Broken::Names(Variant::UnlockOnTimeout), 400);
}

#[test]
fn data_bases_are_stamped_when_they_are_committed() {
    caught(Broken::Data(Mutation::StampAtCommit), 400);
}

#[test]
fn data_moves_are_committed_without_a_look() {
    caught(Broken::Data(Mutation::NoCheck), 400);
}

#[test]
fn data_ranges_are_lent_again() {
    caught(Broken::Data(Mutation::LendAgain), 400);
}

#[test]
fn data_pointers_have_no_hints() {
    caught(Broken::Data(Mutation::NoHint), 400);
}

#[test]
fn a_move_ends_before_the_drives_have_it() {
    caught(Broken::EarlyAck, 400);
}

#[test]
fn what_is_not_there_reads_as_zeros() {
    caught(Broken::LazyZero, 400);
}

#[test]
fn shards_are_addressed_by_slot() {
    caught(Broken::SlotAddress, 400);
}

#[test]
fn replies_leave_before_the_log_is_durable() {
    caught(Broken::ReplyEarly, 400);
}

#[test]
fn segments_go_before_the_view_is_durable() {
    caught(Broken::FlushUntrue, 400);
}

#[test]
fn what_a_killed_process_left_in_a_cache_is_not_made_durable() {
    caught(Broken::Unsettled, 400);
}
