//! Records, file systems, groups and the state word.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::thread;

use braid_base::ErrorKind;
use braid_base::ids::{DriveId, FsId, Guid, HostId};
use braid_base::msg::drive::Trouble;
use braid_cluster::coordinator::{Coordinator, Txn};
use braid_cluster::facts::{Cluster, Filesystem, Group, Protection};
use braid_cluster::health::{self, Watched, judge};
use braid_cluster::view::{DriveView, FsChange, FsSpec, GroupSpec, HostView, PartitionView, State};
use braid_cluster::{Embedded, filesystems, groups, records};

fn coordinator() -> Embedded {
    let coordinator = Embedded::in_memory(Arc::new(|| 0)).expect("memory");
    groups::add(&coordinator, &group("default")).expect("group");
    coordinator
}

fn group(name: &str) -> GroupSpec {
    GroupSpec { name: name.to_owned(), new_name: None, target_ssd_retention_s: None, start_demote_s: None }
}

fn spec(name: &str) -> FsSpec {
    FsSpec { name: name.to_owned(), ..FsSpec::default() }
}

fn add(coordinator: &dyn Coordinator, name: &str) -> braid_base::Result<Filesystem> {
    filesystems::add(coordinator, &spec(name), Guid([7; 16]), 5)
}

const SAME: FsChange = FsChange { new_name: None, group: None, total_bytes: None, ssd_bytes: None, object_mib: None };

#[test]
fn records_swap_only_what_was_read() {
    let coordinator = coordinator();
    let key = Group::key_of("default");
    let first = records::must::<Group>(&coordinator, &key).expect("there");
    let changed = Group { start_demote_s: 1, ..first.value.clone() };
    records::update(&coordinator, first.revision, &changed).expect("fresh");
    let stale = records::update(&coordinator, first.revision, &first.value).expect_err("stale");
    assert_eq!(stale.kind(), ErrorKind::Stale);
    assert_eq!(records::delete(&coordinator, &first).expect_err("stale").kind(), ErrorKind::Stale);
    assert_eq!(records::create(&coordinator, &changed).expect_err("there").kind(), ErrorKind::Exists);
    thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                for _ in 0..10 {
                    records::modify::<Group>(&coordinator, &key, |group| {
                        group.start_demote_s += 1;
                        Ok(())
                    })
                    .expect("modify");
                }
            });
        }
    });
    assert_eq!(records::must::<Group>(&coordinator, &key).expect("there").value.start_demote_s, 41);
}

#[test]
fn records_of_other_versions() {
    let coordinator = coordinator();
    let put = |text: &str| coordinator.txn(&Txn::new().put("group/x", text)).expect("put");
    let read = || records::read::<Group>(&coordinator, "group/x");
    put(r#"{"version":1,"name":"x","target_ssd_retention_s":1,"start_demote_s":2,"later":true}"#);
    assert_eq!(read().expect("an unknown field is no error").expect("there").value.start_demote_s, 2);
    put(r#"{"version":2,"name":"x"}"#);
    assert_eq!(read().expect_err("newer").kind(), ErrorKind::Unsupported);
    for bad in ["", "{", "[]", r#"{"name":"x"}"#, r#"{"version":1}"#] {
        put(bad);
        let error = read().expect_err("damaged");
        assert!(error.kind() == ErrorKind::Corrupt && error.message().contains("group/x"), "{error}");
    }
    assert_eq!(records::read::<Cluster>(&coordinator, Cluster::KEY).expect("no error"), None);
}

#[test]
fn file_systems_come_and_go() {
    let coordinator = coordinator();
    let one = add(&coordinator, "one").expect("one");
    assert_eq!((one.id, one.group.as_str(), one.total_bytes), (FsId(1), "default", None));
    assert_eq!(add(&coordinator, "one").expect_err("taken").kind(), ErrorKind::Exists);
    let two = add(&coordinator, "two").expect("two");
    assert_ne!(one.root_vp, two.root_vp);
    let change = FsChange { new_name: Some("uno".to_owned()), total_bytes: Some(1 << 30), ..SAME };
    filesystems::update(&coordinator, "one", &change, 0).expect("update");
    assert_eq!(filesystems::find(&coordinator, "one").expect_err("renamed").kind(), ErrorKind::NotFound);
    assert_eq!(filesystems::find(&coordinator, "uno").expect("there").value.total_bytes, Some(1 << 30));
    let smaller = FsChange { total_bytes: Some(1 << 20), ..SAME };
    let error = filesystems::update(&coordinator, "uno", &smaller, 2 << 20).expect_err("holds more");
    assert_eq!(error.kind(), ErrorKind::Refused);
    let clash = FsChange { new_name: Some("two".to_owned()), ..SAME };
    assert_eq!(filesystems::update(&coordinator, "uno", &clash, 0).expect_err("taken").kind(), ErrorKind::Exists);
    let unlimited = FsChange { total_bytes: Some(0), ..SAME };
    assert_eq!(filesystems::update(&coordinator, "uno", &unlimited, 0).expect("update").total_bytes, None);
    assert!(filesystems::start_remove(&coordinator, "uno").expect("remove").removing);
    filesystems::forget(&coordinator, &one).expect("forget, though it was renamed since");
    filesystems::forget(&coordinator, &one).expect("twice is no error");
    assert_eq!(filesystems::find(&coordinator, "uno").expect_err("gone").kind(), ErrorKind::NotFound);
    assert_eq!(add(&coordinator, "uno").expect("free again").id, FsId(3), "numbers are never given again");
    assert_eq!(filesystems::list(&coordinator).expect("list").len(), 2);
}

#[test]
fn bad_names_and_sizes() {
    let coordinator = coordinator();
    let long = "x".repeat(33);
    for name in ["", ".", "..", "a/b", "a\\b", "a b", "a\nb", "-x", &long] {
        assert_eq!(add(&coordinator, name).expect_err("bad name").kind(), ErrorKind::Invalid, "{name:?}");
    }
    add(&coordinator, &"ü".repeat(32)).expect("32 characters, whatever their bytes");
    let tiny = FsSpec { total_bytes: Some(4096), ..spec("tiny") };
    assert_eq!(filesystems::add(&coordinator, &tiny, Guid([1; 16]), 0).expect_err("tiny").kind(), ErrorKind::Invalid);
    let nowhere = FsSpec { group: Some("nowhere".to_owned()), ..spec("x") };
    assert_eq!(
        filesystems::add(&coordinator, &nowhere, Guid([1; 16]), 0).expect_err("group").kind(),
        ErrorKind::NotFound
    );
}

#[test]
fn groups_hold_file_systems() {
    let coordinator = coordinator();
    groups::add(&coordinator, &GroupSpec { start_demote_s: Some(60), ..group("hot") }).expect("add");
    filesystems::add(&coordinator, &FsSpec { group: Some("hot".to_owned()), ..spec("a") }, Guid([1; 16]), 0)
        .expect("add");
    assert_eq!(groups::remove(&coordinator, "hot").expect_err("in use").kind(), ErrorKind::Refused);
    assert_eq!(groups::remove(&coordinator, "default").expect_err("default").kind(), ErrorKind::Refused);
    let rename = GroupSpec { new_name: Some("warm".to_owned()), target_ssd_retention_s: Some(900), ..group("hot") };
    groups::update(&coordinator, &rename).expect("rename");
    assert_eq!(filesystems::find(&coordinator, "a").expect("there").value.group, "warm");
    let listed = groups::list(&coordinator).expect("list");
    let warm = listed.iter().find(|group| group.name == "warm").expect("listed");
    assert_eq!((warm.filesystems, warm.target_ssd_retention_s, warm.start_demote_s), (1, 900, 60));
    let taken = GroupSpec { new_name: Some("default".to_owned()), ..group("warm") };
    assert_eq!(groups::update(&coordinator, &taken).expect_err("taken").kind(), ErrorKind::Stale);
    let fs = filesystems::start_remove(&coordinator, "a").expect("remove");
    filesystems::forget(&coordinator, &fs).expect("forget");
    groups::remove(&coordinator, "warm").expect("empty now");
    for i in 0..groups::GROUPS_MAX - 1 {
        groups::add(&coordinator, &group(&format!("g{i}"))).expect("add");
    }
    assert_eq!(groups::add(&coordinator, &group("one-more")).expect_err("full").kind(), ErrorKind::Refused);
}

#[test]
fn a_cue_is_ten_seconds_at_least_and_a_third_of_the_retention_at_most() {
    let coordinator = coordinator();
    let times =
        |retention, demote| GroupSpec { target_ssd_retention_s: retention, start_demote_s: demote, ..group("g") };
    let added = groups::add(&coordinator, &times(Some(600), None)).expect("add");
    assert_eq!(added.start_demote_s, 200, "the usual one would be too long");
    groups::update(&coordinator, &times(Some(30), Some(10))).expect("the shortest");
    for (retention, demote) in [(Some(29), None), (None, Some(9)), (None, Some(11)), (Some(900), Some(301))] {
        let error = groups::update(&coordinator, &times(retention, demote)).expect_err("refused");
        assert_eq!(error.kind(), ErrorKind::Invalid);
        let (retention, demote) = (retention.unwrap_or(30), demote.unwrap_or(10));
        let numbers = format!("found {demote} s with a retention of {retention} s");
        assert!(error.message().contains(&numbers), "{error}");
    }
    groups::update(&coordinator, &times(Some(u64::MAX), None)).expect("for ever");
    let short = GroupSpec { target_ssd_retention_s: Some(20), ..group("h") };
    assert_eq!(groups::add(&coordinator, &short).expect_err("no cue fits").kind(), ErrorKind::Invalid);
}

fn drive(id: u32, state: &str) -> DriveView {
    DriveView {
        host: 1,
        id,
        uuid: String::new(),
        path: format!("/d/{id}"),
        size_bytes: 1,
        used_bytes: 0,
        domain: id as u16,
        state: state.to_owned(),
        problem: None,
        errors: 0,
        leaving_shards: None,
    }
}

fn partition(id: u16, state: &str) -> PartitionView {
    PartitionView {
        id,
        term: 1,
        primary: Some(1),
        members: vec![1],
        learners: Vec::new(),
        copies: 1,
        state: state.to_owned(),
        problem: (state == "waiting").then(|| "its log waits for room".to_owned()),
        applied: 0,
        staged_bytes: 0,
        log_bytes: 0,
    }
}

#[test]
fn the_state_word() {
    let judge = |drives: [&str; 6], partitions: [&str; 2]| {
        let drives: Vec<DriveView> = (1..).zip(drives).map(|(id, state)| drive(id, state)).collect();
        let partitions: Vec<PartitionView> = (0..).zip(partitions).map(|(id, state)| partition(id, state)).collect();
        judge(Protection { data: 4, parity: 2 }, &drives, &partitions)
    };
    let (a, s) = ("active", "serving");
    assert_eq!(judge([a; 6], [s, s]), (State::Ok, vec![]));
    assert_eq!(judge([a, a, a, a, "draining", "adding"], [s, s]).0, State::Ok);
    let (state, problems) = judge([a, "missing", a, "failed", a, a], [s, s]);
    assert_eq!(state, State::Degraded);
    assert_eq!(problems, ["drive d2 (/d/2) is missing", "drive d4 (/d/4) is failed"]);
    assert_eq!(judge([a, "missing", "missing", "failed", a, a], [s, s]).0, State::Unavailable);
    let (state, problems) = judge([a; 6], [s, "recovering"]);
    assert_eq!((state, problems), (State::Unavailable, vec!["partition p1 is recovering".to_owned()]));
    let (state, problems) = judge([a; 6], ["waiting", s]);
    assert_eq!(state, State::Unavailable);
    assert_eq!(problems, ["partition p0 is waiting: its log waits for room"]);
}

#[test]
fn partitions_with_too_few_copies_are_told() {
    let with = |id, members: &[u32], learners: &[u32]| {
        let (members, learners) = (members.to_vec(), learners.to_vec());
        PartitionView { members, learners, copies: 3, ..partition(id, "serving") }
    };
    let judge = |partitions: &[PartitionView]| judge(Protection { data: 4, parity: 2 }, &[], partitions);
    let whole = with(0, &[1, 2, 3], &[]);
    assert_eq!(judge(&[whole.clone(), with(1, &[1, 2, 3], &[4])]), (State::Ok, vec![]), "one moves");
    let (state, problems) = judge(&[whole.clone(), with(1, &[1, 2], &[3]), with(2, &[2], &[])]);
    assert_eq!(state, State::Degraded);
    let expected =
        ["partition p2 has 1 copy of 3", "partition p1 has 2 copies of 3; what is missing is to be filled on h3"];
    assert_eq!(problems, expected);
    let many: Vec<PartitionView> = (0..11).map(|id| with(id, &[1, 2], &[])).collect();
    assert_eq!(judge(&many).1, ["partitions p0, p1, p2, p3, p4, p5, p6, p7 and 3 more have 2 copies of 3"]);
}

#[test]
fn new_data_goes_to_drives_without_trouble_unless_it_is_not_the_drives() {
    use Trouble::{Failing, Full, Slow};
    let fit = |parity, troubles: [Option<Trouble>; 6]| {
        let watched = |(id, trouble)| Watched { drive: DriveId(id), trouble };
        let drives: Vec<Watched> = (1..).zip(troubles).map(watched).collect();
        health::usable(parity, &drives, |drive| drive.0.into()).iter().map(|drive| drive.0).collect::<Vec<_>>()
    };
    let (s, f, ok) = (Some(Slow), Some(Failing), None);
    assert_eq!(fit(2, [ok; 6]), [1, 2, 3, 4, 5, 6]);
    assert_eq!(fit(2, [s, ok, Some(Full), ok, ok, ok]), [2, 4, 5, 6]);
    assert_eq!(fit(2, [s, s, ok, ok, ok, f]), [3, 4, 5]);
    assert_eq!(fit(2, [s, s, s, ok, ok, ok]), [1, 2, 3, 4, 5, 6], "the machine is slow, not three of its drives");
    assert_eq!(fit(2, [s, s, f, f, ok, ok]), [1, 2, 5, 6], "slow ones are better than none");
    assert_eq!(fit(0, [s, ok, ok, ok, ok, f]), [1, 2, 3, 4, 5]);

    // Two hosts of four with three drives each: what is slow on one host is slow together.
    let of_hosts = |parity, slow: &[u32], hosts: u32| {
        let trouble = |drive: u32| slow.contains(&drive).then_some(Slow);
        let drives: Vec<Watched> =
            (0..12).map(|drive| Watched { drive: DriveId(drive), trouble: trouble(drive) }).collect();
        health::usable(parity, &drives, |drive| u64::from(drive.0 % hosts)).len()
    };
    assert_eq!(of_hosts(2, &[0, 4, 8], 4), 9, "one host is slow");
    assert_eq!(of_hosts(1, &[0, 4, 1], 4), 12, "two are, and one may be missing");
    assert_eq!(of_hosts(2, &[0, 4, 8, 1, 5, 9], 4), 12, "what is left is too few hosts");
    assert_eq!((of_hosts(2, &[0, 2], 2), of_hosts(2, &[0, 2, 4], 2)), (10, 12), "too few hosts: drives count");
}

#[test]
fn a_drive_in_trouble_is_named_and_it_is_said_what_happens() {
    let problem = Some(health::trouble_words(Trouble::Slow).to_owned());
    let slow = DriveView { problem, ..drive(5, "slow") };
    let (state, problems) = judge(Protection { data: 4, parity: 2 }, &[drive(1, "active"), slow], &[]);
    assert_eq!(state, State::Degraded);
    assert!(problems[0].starts_with("drive d5 (/d/5) is slow: requests to it take more than 3 s;"), "{problems:?}");
}

#[test]
fn a_drive_that_makes_errors_is_named() {
    let liar = DriveView { errors: 3, problem: Some("3 checksum errors since start".to_owned()), ..drive(5, "active") };
    let (state, problems) = judge(Protection { data: 4, parity: 2 }, &[drive(1, "active"), liar], &[]);
    assert_eq!(state, State::Degraded);
    assert_eq!(problems, ["drive d5 (/d/5): 3 checksum errors since start: replace it if they go on"]);
}

#[test]
fn a_clock_is_wrong_by_what_it_differs_from_most() {
    let clocks = |ahead: &[(u32, i64)]| {
        let found = health::clocks(ahead.iter().map(|(host, ms)| (HostId(*host), *ms)).collect());
        found.into_iter().map(|(host, ms)| (host.0, ms)).collect::<Vec<_>>()
    };
    // As the wrong one sees it, and as others do.
    assert_eq!(clocks(&[(1, 0), (2, -3_600_000), (3, -3_600_000)]), [(1, 3_600_000), (2, 0), (3, 0)]);
    assert_eq!(clocks(&[(1, 3_600_000), (2, 0), (3, 5)]), [(1, 3_599_995), (2, -5), (3, 0)]);
    assert_eq!(clocks(&[(1, 0), (2, i64::MAX), (3, i64::MIN), (4, 0)]), [(1, 0), (2, i64::MAX), (3, i64::MIN), (4, 0)]);
    assert!(clocks(&[]).is_empty());

    let host = |id, clock_ahead_ms| HostView {
        id,
        name: format!("box{id}"),
        addresses: Vec::new(),
        failure_domain: String::new(),
        state: "up".to_owned(),
        drives: 0,
        leads: 0,
        copies: 0,
        clock_ahead_ms,
    };
    let wrong =
        health::wrong_clocks(&[host(1, Some(999)), host(2, None), host(3, Some(-7_200_500)), host(4, Some(1_000))]);
    let begins = |text: &str, begin: &str| assert!(text.starts_with(begin), "{text}");
    assert_eq!(wrong.len(), 2, "{wrong:?}");
    begins(&wrong[0], "the clock of host box3 (h3) is 7200 s behind those of the others: set it");
    begins(&wrong[1], "the clock of host box4 (h4) is 1 s ahead of those of the others: set it");
}

#[test]
fn a_drive_that_answers_most_hosts_is_not_lost() {
    let misses = |drives: &[u32]| drives.iter().copied().map(DriveId).collect::<BTreeSet<_>>();
    let lost = |others: &[BTreeSet<DriveId>]| health::is_lost(DriveId(3), others, 1);
    assert!(lost(&[]), "there is nobody else");
    let lost_of = |others: &[BTreeSet<DriveId>], living| health::is_lost(DriveId(3), others, living);
    assert!(!lost_of(&[], 2) && !lost_of(&[misses(&[3])], 4), "most could not be asked");
    assert!(lost_of(&[misses(&[3])], 3));
    assert!(lost(&[misses(&[3])]) && !lost(&[misses(&[1])]), "of two who differ none is believed");
    assert!(lost(&[misses(&[3]), misses(&[])]) && !lost(&[misses(&[]), misses(&[1, 2])]));
}
