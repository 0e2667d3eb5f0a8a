//! Every rule is there for a reason: left out, some seed breaks a promise, and the audit says so.

use braid_meta::{Mutation, Variant};
use braid_sim::broken::Broken;
use braid_sim::config::SimConfig;
use braid_sim::run::run;

/// Most runs without a rule until one must fail.
const SEEDS: u64 = 400;

/// Some run without the rule fails. The seeds are tried from `near` on, where one failed when this was written.
fn caught(broken: Broken, near: u64) {
    for seed in near..near + SEEDS {
        if let Err(failure) = run(SimConfig { broken: Some(broken), ..SimConfig::from_seed(seed) }) {
            println!("{broken:?}: seed {seed}: {}", failure.what.chars().take(300).collect::<String>());
            return;
        }
    }
    panic!("{broken:?}: {SEEDS} seeds without this rule, and nothing was noticed");
}

#[test]
fn names_abort_without_a_log_entry() {
    caught(Broken::Names(Variant::NoAbortLog), 0);
}

#[test]
fn names_promised_names_are_shown() {
    caught(Broken::Names(Variant::NoLock), 0);
}

#[test]
fn names_promises_end_by_time() {
    caught(Broken::Names(Variant::UnlockOnTimeout), 0);
}

#[test]
fn names_refusals_are_forgotten() {
    caught(Broken::Names(Variant::Forgetful), 700);
}

#[test]
fn late_doubles_of_an_earlier_term_are_taken() {
    caught(Broken::AnyTerm, 226);
}

#[test]
fn data_bases_are_stamped_when_they_are_committed() {
    caught(Broken::Data(Mutation::StampAtCommit), 0);
}

#[test]
fn data_moves_are_committed_without_a_look() {
    caught(Broken::Data(Mutation::NoCheck), 0);
}

#[test]
fn data_ranges_are_lent_again() {
    caught(Broken::Data(Mutation::LendAgain), 31);
}

#[test]
fn data_pointers_have_no_hints() {
    caught(Broken::Data(Mutation::NoHint), 0);
}

#[test]
fn a_move_ends_before_the_drives_have_it() {
    caught(Broken::EarlyAck, 0);
}

#[test]
fn what_is_not_there_reads_as_zeros() {
    caught(Broken::LazyZero, 0);
}

#[test]
fn shards_are_addressed_by_slot() {
    caught(Broken::SlotAddress, 93);
}

#[test]
fn replies_leave_before_the_log_is_durable() {
    caught(Broken::ReplyEarly, 0);
}

#[test]
fn segments_go_before_the_view_is_durable() {
    caught(Broken::FlushUntrue, 0);
}

#[test]
fn what_a_killed_process_left_in_a_cache_is_not_made_durable() {
    caught(Broken::Unsettled, 257);
}
