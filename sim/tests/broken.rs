//! Every rule is there for a reason: left out, some seed breaks a promise, and the audit says so.
//!
//! Where each broken variant of the models is caught ("data": `core/meta/tests/data`, `every_broken_rule_is_noticed`;
//! "leases": `sim/tests/leases`):
//!
//! | model | variant | rule left out | caught by |
//! |---|---|---|---|
//! | packs.py | lazyzero | `Broken::LazyZero` | here |
//! | packs.py | regrant | `Mutation::LendAgain` | here, data |
//! | packs.py | slotaddr | `Broken::SlotAddress` | here |
//! | - | - | `Broken::GiveUpSilent` | here |
//! | packs.py | reusegrant | `Mutation::LendAgain`: the range of a move that failed is written again | here, data |
//! | packs.py | relocnocas | `Mutation::NoCheck` | here, data |
//! | packs.py | lategrantok | `Mutation::AnyGrant` | data |
//! | packs.py | earlyack | `Broken::EarlyAck` | here |
//! | slices.py | uptonow | `Mutation::StampAtCommit` | here, data |
//! | slices.py | nogc | `Mutation::NoScan`, `Mutation::NoHint` | here; `NoHint` data, too |
//! | - | - | `Mutation::TrustUpload`, `NameBlindly`, `NoBlobHint`, `ReleaseAll`, `BareAll` | here, data |
//! | leases.py | nomarker | `LeaseMutation::NoMarker` | here, leases |
//! | leases.py | nowait | `LeaseMutation::NoWait` | here, leases |
//! | leases.py | expirefast | `LeaseMutation::ExpireFast` | here, leases |
//! | leases.py | staleterm, stalesession, recallcross | `CoreMutation` of the same name | leases |

use braid_client::PromiseMutation;
use braid_client::leases::CoreMutation;
use braid_meta::{LeaseMutation, Mutation, Variant};
use braid_replica::replica::variant::Variant as Members;
use braid_sim::broken::Broken;
use braid_sim::config::SimConfig;
use braid_sim::run::run;

/// Most runs without a rule until one must fail.
const SEEDS: u64 = 400;

/// Some run without the rule fails. The seeds are tried from `near` on, where one failed when this was written.
fn caught(broken: Broken, near: u64) {
    caught_in(broken, near, |_| {});
}

/// The same in worlds in which the rule matters often: any seed's, but for what `tune` changes.
fn caught_in(broken: Broken, near: u64, tune: impl Fn(&mut SimConfig)) {
    caught_among(SimConfig::from_seed, broken, near, tune);
}

/// The same in worlds in which partitions have three replicas.
fn caught_with_members(variant: Members, near: u64, tune: impl Fn(&mut SimConfig)) {
    caught_among(SimConfig::replicated, Broken::Members(variant), near, tune);
}

fn caught_among(world: fn(u64) -> SimConfig, broken: Broken, near: u64, tune: impl Fn(&mut SimConfig)) {
    for seed in near..near + SEEDS {
        let mut config = SimConfig { broken: Some(broken), ..world(seed) };
        tune(&mut config);
        if let Err(failure) = run(config) {
            println!("{broken:?}: seed {seed}: {}", failure.what.chars().take(300).collect::<String>());
            return;
        }
    }
    panic!("{broken:?}: {SEEDS} seeds without this rule, and nothing was noticed");
}

#[test]
fn names_abort_without_a_log_entry() {
    caught(Broken::Names(Variant::NoAbortLog), 94);
}

#[test]
fn names_promised_names_are_shown() {
    caught(Broken::Names(Variant::NoLock), 455);
}

#[test]
fn names_promises_end_by_time() {
    caught(Broken::Names(Variant::UnlockOnTimeout), 0);
}

#[test]
fn names_refusals_are_forgotten() {
    caught_in(Broken::Names(Variant::Forgetful), 875, |config| *config = config.clone().without_promises());
}

/// The same with three members of each partition, some of which fall behind, are chosen, or are cut off.
fn caught_with_names(variant: Variant, near: u64, tune: impl Fn(&mut SimConfig)) {
    caught_among(SimConfig::replicated, Broken::Names(variant), near, tune);
}

#[test]
fn names_abort_without_a_log_entry_with_members() {
    caught_with_names(Variant::NoAbortLog, 2, |_| {});
}

#[test]
fn names_promised_names_are_shown_with_members() {
    caught_with_names(Variant::NoLock, 7, |_| {});
}

#[test]
fn names_promises_end_by_time_with_members() {
    caught_with_names(Variant::UnlockOnTimeout, 2, |_| {});
}

#[test]
fn names_refusals_are_forgotten_with_members() {
    caught_with_names(Variant::Forgetful, 22, |config| *config = config.clone().without_promises());
}

#[test]
fn leases_are_given_back_before_promised_names_are_there() {
    caught_among(SimConfig::replicated, Broken::Promises(PromiseMutation::GiveBackFirst), 120, |_| {});
}

#[test]
fn other_changes_pass_promised_names() {
    caught(Broken::Promises(PromiseMutation::Beside), 88);
}

#[test]
fn leases_given_back_before_open_files_are_told() {
    caught(Broken::Opens(CoreMutation::OpensAfter), 0);
}

#[test]
fn names_removed_before_open_files_are_told() {
    caught(Broken::Opens(CoreMutation::NamesBefore), 0);
}

#[test]
fn late_doubles_of_an_earlier_term_are_taken() {
    caught_in(Broken::AnyTerm, 92, |config| {
        (config.net.late, config.net.late_us, config.net.doubled) = (1_000, 3_000_000, 1_500);
        (config.faults.crash_every_us, config.faults.down_max_us) = (1_000_000, 50_000);
    });
}

#[test]
fn members_count_before_they_hold_the_log() {
    caught_with_members(Members::AddLate, 0, |_| {});
}

#[test]
fn members_that_are_silent_do_not_count() {
    caught_with_members(Members::DropEarly, 15, |_| {});
}

#[test]
fn members_are_read_without_promises() {
    // A primary that is cut off hears of the next one when it wants to drop the others, unless that is lost, too.
    caught_among(SimConfig::isolated, Broken::Members(Members::NoLease), 438, |config| config.net.lost = 500);
}

#[test]
fn members_forget_their_promise_with_a_restart() {
    caught_among(SimConfig::isolated, Broken::Members(Members::ForgetPromise), 0, |config| {
        (config.faults.crash_every_us, config.faults.down_max_us) = (700_000, 50_000);
    });
}

#[test]
fn members_that_are_chosen_drop_what_they_do_not_know_to_be_committed() {
    caught_with_members(Members::DiscardTail, 0, |_| {});
}

#[test]
fn members_campaign_while_they_have_given_their_word() {
    caught_with_members(Members::NoWait, 0, |_| {});
}

#[test]
fn members_are_told_apart_by_host() {
    caught_among(SimConfig::wiped, Broken::Members(Members::NoUuid), 0, |_| {});
}

#[test]
fn members_take_messages_for_another_store() {
    caught_among(SimConfig::wiped, Broken::Members(Members::MsgNoUuid), 0, |_| {});
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
    caught(Broken::Data(Mutation::LendAgain), 232);
}

#[test]
fn data_packs_die_while_something_refers_to_them() {
    caught(Broken::Data(Mutation::NoScan), 0);
}

#[test]
fn leases_of_a_new_primary_before_those_of_the_old_one_were_told() {
    caught(Broken::Leases(LeaseMutation::NoWait), 88);
}

#[test]
fn leases_of_sessions_that_left_no_mark() {
    caught(Broken::Leases(LeaseMutation::NoMarker), 26);
}

#[test]
fn leases_outlive_their_sessions() {
    caught(Broken::Leases(LeaseMutation::ExpireFast), 8);
}

#[test]
fn data_pointers_have_no_hints() {
    caught(Broken::Data(Mutation::NoHint), 0);
}

/// The same in worlds with object stores.
fn caught_with_stores(mutation: Mutation, near: u64, tune: impl Fn(&mut SimConfig)) {
    caught_among(SimConfig::tiered, Broken::Data(mutation), near, tune);
}

#[test]
fn tier_objects_that_did_not_arrive_are_named() {
    caught_with_stores(Mutation::TrustUpload, 0, |_| {});
}

#[test]
fn tier_objects_are_named_for_bytes_that_changed() {
    caught_with_stores(Mutation::NameBlindly, 0, |_| {});
}

#[test]
fn tier_pointers_into_objects_have_no_hints() {
    caught_with_stores(Mutation::NoBlobHint, 0, |_| {});
}

#[test]
fn tier_bytes_leave_flash_that_are_in_no_object() {
    caught_with_stores(Mutation::ReleaseAll, 0, |_| {});
}

#[test]
fn tier_bytes_lie_without_parity_that_are_in_no_object() {
    caught_with_stores(Mutation::BareAll, 0, |_| {});
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
fn what_is_silent_is_not_abandoned() {
    caught_among(SimConfig::giving_up, Broken::GiveUpSilent, 0, |_| {});
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
    caught_in(Broken::Unsettled, 83, |config| {
        (config.faults.crash_every_us, config.faults.down_max_us) = (120_000, 20_000);
        config.faults.at_points.clear();
    });
}
