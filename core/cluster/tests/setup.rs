//! Creating and continuing a cluster: what is planned, what is refused, what a crash in between leaves.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use braid_base::ErrorKind;
use braid_base::ids::{DriveId, Guid, HostId, PartitionId, Term};
use braid_cluster::coordinator::{Coordinator, Txn};
use braid_cluster::facts::{DriveState, Member, Partition, Protection};
use braid_cluster::setup::{self, Found, Known, Label, Plan, Wish, World};
use braid_cluster::{Embedded, partitions, records};

const GIB: u64 = 1 << 30;
const DIR: &str = "/srv/braid";

fn coordinator() -> Embedded {
    Embedded::in_memory(Arc::new(|| 0)).expect("memory")
}

fn guid(byte: u8) -> Guid {
    Guid([byte; 16])
}

fn decide(known: Option<&Known>, wish: &Wish, found: &[Found]) -> braid_base::Result<Plan> {
    let mut next = 0;
    let mut identity = || {
        next += 1;
        guid(next)
    };
    setup::decide(known, wish, found, World { identity: &mut identity, now_s: 1_700_000_000 })
}

fn wish(drives: usize) -> Wish {
    Wish { drives: Some(drives), cores: 2, host: "one".to_owned(), ..Wish::default() }
}

fn missing(known: Option<&Known>, wish: &Wish) -> Vec<Found> {
    let places = setup::places(known, wish, Path::new(DIR));
    places.into_iter().map(|path| Found { path, label: Label::Missing }).collect()
}

/// A cluster of `n` drives with every step done, and what a later look at its drives finds.
fn running(coordinator: &dyn Coordinator, n: usize) -> (Known, Vec<Found>) {
    let plan = decide(None, &wish(n), &missing(None, &wish(n))).expect("plan");
    let plan = setup::record(coordinator, plan).expect("record");
    let ids: Vec<DriveId> = plan.to_format.iter().map(|new| new.drive.id).collect();
    setup::activate(coordinator, &ids).expect("activate");
    let known = setup::known(coordinator).expect("known").expect("there");
    let found = known.drives.iter().map(|drive| {
        let label = Label::Braid { cluster: known.cluster.guid, drive: drive.uuid, size_bytes: drive.size_bytes };
        Found { path: drive.path.clone(), label }
    });
    let found = found.collect();
    (known, found)
}

fn refused(result: braid_base::Result<Plan>, words: &[&str]) {
    let error = result.expect_err("refused");
    for word in words {
        assert!(error.message().contains(word), "{word:?} expected in {error}");
    }
    assert!(!error.message().contains('\n'), "one line: {error}");
    assert!(matches!(error.kind(), ErrorKind::Refused | ErrorKind::NotFound | ErrorKind::Invalid), "{error:?}");
}

#[test]
fn a_new_cluster() {
    let coordinator = coordinator();
    assert_eq!(setup::known(&coordinator).expect("known"), None);
    let wish = Wish { drive_bytes: Some(4 * GIB), ..wish(6) };
    let plan = decide(None, &wish, &missing(None, &wish)).expect("plan");
    assert!(plan.create && plan.present.is_empty() && plan.lost.is_empty());
    assert_eq!(plan.to_format.iter().filter(|new| new.make_file && new.drive.size_bytes == 4 * GIB).count(), 6);
    assert_eq!((plan.cluster.protection.to_string().as_str(), plan.cluster.partitions), ("4+2", 2));
    assert_eq!(plan.cluster.shard_bytes, 8 << 20);
    let plan = setup::record(&coordinator, plan).expect("record");
    let numbers: Vec<u32> = plan.to_format.iter().map(|new| new.drive.id.0).collect();
    assert_eq!(numbers, [1, 2, 3, 4, 5, 6]);
    let known = setup::known(&coordinator).expect("known").expect("there");
    assert!(known.drives.iter().all(|drive| drive.state == DriveState::Adding && drive.host == HostId(1)));
    assert_eq!(known.drives[5].path, Path::new("/srv/braid/drive-5"));
    assert_eq!(partitions::list(&coordinator).expect("list").len(), 2);
}

#[test]
fn a_full_disk_is_seen_before() {
    let wish = Wish { drive_bytes: Some(GIB), ..wish(6) };
    let plan = decide(None, &wish, &missing(None, &wish)).expect("plan");
    setup::check_room(&plan, Path::new(DIR), 7 * GIB).expect("enough");
    let error = setup::check_room(&plan, Path::new(DIR), 6 * GIB).expect_err("room for metadata is missing");
    assert_eq!(error.kind(), ErrorKind::NoSpace);
    assert!(error.message().contains("/srv/braid") && error.message().contains("found 6144 MiB"), "{error}");
    let (known, found) = running(&coordinator(), 6);
    let plan = decide(Some(&known), &Wish::default(), &found).expect("plan");
    setup::check_room(&plan, Path::new(DIR), 0).expect("nothing is made");
}

#[test]
fn defaults_follow_the_drives() {
    for (drives, protection) in [(1, "1+0"), (2, "1+1"), (3, "2+1"), (4, "2+2"), (5, "3+2"), (6, "4+2"), (9, "4+2")] {
        let wish = Wish { drive_bytes: Some(256 << 20), ..wish(drives) };
        let plan = decide(None, &wish, &missing(None, &wish)).expect("plan");
        assert_eq!(plan.cluster.protection.to_string(), protection);
        assert_eq!(plan.cluster.shard_bytes, 1 << 20, "small drives get small shards");
    }
}

#[test]
fn what_a_new_cluster_refuses() {
    let asked = |data, parity| Wish { protection: Some(Protection { data, parity }), ..wish(5) };
    for (wish, words) in [
        (asked(4, 2), &["4+2 needs 6 drives, found 5", "--protection 3+2"][..]),
        (asked(0, 2), &["0+2", "1 to 16"]),
        (asked(2, 5), &["2+5", "0 to 4"]),
        (wish(0), &["1 to 256 drives"]),
        (Wish { partitions: Some(0), ..wish(6) }, &["1 to 4096 partitions"]),
        (
            Wish { partitions: Some(20), drive_bytes: Some(64 << 20), ..wish(6) },
            &["20 partitions", "at least 85 MiB", "found 64 MiB", "--partitions 15"],
        ),
        (Wish { drive_bytes: Some(1 << 20), ..wish(6) }, &["drive-0", "67108864 bytes expected, found 1048576"]),
    ] {
        refused(decide(None, &wish, &missing(None, &wish)), words);
    }
    let given: Vec<PathBuf> = (0..3).map(|i| PathBuf::from(format!("/dev/d{i}"))).collect();
    let wish = Wish { given: given.clone(), ..Wish::default() };
    let blank = |path: &PathBuf| Found { path: path.clone(), label: Label::Blank(GIB) };
    let good: Vec<Found> = given.iter().map(blank).collect();
    assert_eq!(decide(None, &wish, &good).expect("plan").to_format.len(), 3);
    let foreign = Label::Braid { cluster: guid(9), drive: guid(8), size_bytes: GIB };
    for (label, words) in [
        (Label::Foreign("an ext4 file system".to_owned()), &["/dev/d1", "an ext4 file system", "blank it"][..]),
        (foreign, &["/dev/d1", "09090909-", "blank it"]),
        (Label::Missing, &["/dev/d1", "found nothing", "truncate"]),
        (Label::Broken("permission denied".to_owned()), &["/dev/d1", "permission denied"]),
        (Label::Silent, &["/dev/d1", "does not answer"]),
        (Label::Blank(4096), &["/dev/d1", "found 4096"]),
    ] {
        let mut found = good.clone();
        found[1].label = label;
        refused(decide(None, &wish, &found), words);
    }
    let twice = [good[0].clone(), good[1].clone(), good[0].clone()];
    refused(decide(None, &wish, &twice), &["/dev/d0", "twice"]);
}

#[test]
fn continuing_finds_moved_and_lost_drives() {
    let coordinator = coordinator();
    let (known, mut found) = running(&coordinator, 6);
    let plain = Wish { drives: None, ..wish(6) };
    let plan = decide(Some(&known), &plain, &found).expect("plan");
    assert!(!plan.create && plan.to_format.is_empty() && plan.lost.is_empty());
    assert_eq!(plan.present, known.drives);

    let moved = PathBuf::from("/mnt/elsewhere/drive-2");
    let label = std::mem::replace(&mut found[2].label, Label::Missing);
    found.push(Found { path: moved.clone(), label });
    found[4].label = Label::Foreign("an XFS file system".to_owned());
    let wish = Wish { given: vec![moved.clone()], ..plain.clone() };
    let plan = decide(Some(&known), &wish, &found).expect("degraded but running");
    assert_eq!(plan.lost.len(), 1);
    assert_eq!((plan.lost[0].0.id, plan.lost[0].1.as_str()), (DriveId(5), "an XFS file system lies there instead"));
    setup::record(&coordinator, plan).expect("record");
    let again = setup::known(&coordinator).expect("known").expect("there");
    assert_eq!(again.drives[2].path, moved, "the new place is remembered");

    found[0].label = Label::Missing;
    assert_eq!(decide(Some(&known), &wish, &found).expect("two lost").lost.len(), 2);
    found[0].label = Label::Silent;
    let plan = decide(Some(&known), &wish, &found).expect("two lost");
    assert_eq!((plan.lost.len(), &plan.awaited[..]), (2, &known.drives[..1]), "the silent one may come");
    found[1].label = Label::Braid { cluster: known.cluster.guid, drive: known.drives[1].uuid, size_bytes: GIB };
    refused(
        decide(Some(&known), &wish, &found),
        &["3 of 6", "d1 ", "d2 ", "d5 ", "cut short", "at least 1", "--abandon"],
    );
    let giving_up = |drives: &[u32]| Wish { abandon: drives.iter().copied().map(DriveId).collect(), ..wish.clone() };
    refused(decide(Some(&known), &giving_up(&[3]), &found), &["d3 is there"]);
    refused(decide(Some(&known), &giving_up(&[9]), &found), &["d9 is none of this cluster"]);
    let plan = decide(Some(&known), &giving_up(&[2]), &found).expect("it is not waited for");
    setup::record(&coordinator, plan).expect("record");
    let again = setup::known(&coordinator).expect("known").expect("there");
    assert_eq!((again.drives[1].state, again.drives[1].abandoned), (DriveState::Draining, true));
    assert_eq!(decide(Some(&again), &wish, &found).expect("it is remembered").lost.len(), 3);
    assert!(decide(None, &giving_up(&[1]), &[]).is_err_and(|error| error.message().contains("no cluster yet")));
}

#[test]
fn what_continuing_refuses() {
    let (known, found) = running(&coordinator(), 6);
    let protection = Some(Protection { data: 3, parity: 2 });
    for (wish, words) in [
        (Wish { protection, ..Wish::default() }, &["--protection 4+2", "found 3+2"][..]),
        (Wish { drives: Some(8), ..Wish::default() }, &["--drives 6", "found 8"]),
        (Wish { partitions: Some(3), ..Wish::default() }, &["--partitions 2", "found 3"]),
        (Wish { drive_bytes: Some(GIB), ..Wish::default() }, &["--drive-size 4294967296 bytes"]),
        (Wish { name: Some("other".to_owned()), ..Wish::default() }, &["--name braid", "found other"]),
    ] {
        refused(decide(Some(&known), &wish, &found), words);
    }
    let mut other = found.clone();
    other[3].label = Label::Braid { cluster: guid(99), drive: guid(98), size_bytes: 4 * GIB };
    refused(decide(Some(&known), &Wish::default(), &other), &["drive-3", "63636363-", "put the right drive"]);
    let mut more = found.clone();
    more.push(Found { path: "/dev/new".into(), label: Label::Blank(4 * GIB) });
    let wish = Wish { given: vec!["/dev/new".into()], ..Wish::default() };
    refused(decide(Some(&known), &wish, &more), &["/dev/new", "no drive of cluster braid"]);
    let mut copy = found.clone();
    copy.push(Found { path: "/dev/copy".into(), label: found[0].label.clone() });
    refused(decide(Some(&known), &Wish::default(), &copy), &["d1", "twice", "/dev/copy"]);
}

/// The process dies after the records, or in the middle of formatting: the next start goes on there.
#[test]
fn a_creation_that_was_interrupted_goes_on() {
    let coordinator = coordinator();
    let plan = decide(None, &wish(6), &missing(None, &wish(6))).expect("plan");
    let plan = setup::record(&coordinator, plan).expect("record");
    let known = setup::known(&coordinator).expect("known").expect("there");
    let mut found = missing(Some(&known), &Wish::default());
    assert_eq!(found.len(), 6);
    let first = &plan.to_format[0].drive;
    found[0].label = Label::Braid { cluster: known.cluster.guid, drive: first.uuid, size_bytes: first.size_bytes };
    found[1].label = Label::Blank(first.size_bytes);
    let next = decide(Some(&known), &Wish::default(), &found).expect("plan");
    assert_eq!(next.present.len(), 1);
    let makes: Vec<bool> = next.to_format.iter().map(|new| new.make_file).collect();
    assert_eq!(makes, [false, true, true, true, true]);
    assert_eq!(next.to_format[4].drive, plan.to_format[5].drive, "with the identities of the first attempt");
}

#[test]
fn a_creation_that_never_became_one_starts_over() {
    let coordinator = coordinator();
    let plan = decide(None, &wish(6), &missing(None, &wish(6))).expect("plan");
    setup::record(&coordinator, plan.clone()).expect("record");
    coordinator.txn(&Txn::new().delete("cluster")).expect("as if the last step had not happened");
    assert_eq!(setup::known(&coordinator).expect("known"), None);
    let plan = decide(None, &wish(2), &missing(None, &wish(2))).expect("plan");
    setup::record(&coordinator, plan).expect("record");
    let known = setup::known(&coordinator).expect("known").expect("there");
    let numbers: Vec<u32> = known.drives.iter().map(|drive| drive.id.0).collect();
    assert_eq!(numbers, [7, 8], "nothing is left of the first attempt, and its numbers are not given again");
}

#[test]
fn drive_states_move_only_from_where_they_are() {
    let coordinator = coordinator();
    let (known, found) = running(&coordinator, 6);
    setup::set_drive_state(&coordinator, DriveId(3), DriveState::Active, DriveState::Failed).expect("failed");
    setup::set_drive_state(&coordinator, DriveId(3), DriveState::Active, DriveState::Failed).expect("once more");
    let error = setup::set_drive_state(&coordinator, DriveId(3), DriveState::Adding, DriveState::Active);
    assert_eq!(error.expect_err("it is failed").kind(), ErrorKind::Stale);
    let again = setup::known(&coordinator).expect("known").expect("there");
    let plan = decide(Some(&again), &Wish::default(), &found).expect("plan");
    assert_eq!((plan.present.len(), plan.lost.len()), (known.drives.len(), 0), "what it holds may still be valid");
}

#[test]
fn claiming_a_partition_raises_its_term() {
    let coordinator = coordinator();
    running(&coordinator, 6);
    let me = Member { host: HostId(1), store: guid(0x11) };
    let claim = |me, seen| partitions::claim(&coordinator, PartitionId(1), me, Term(seen));
    let first = claim(me, 0).expect("first");
    assert_eq!(
        (first.value.term, first.value.primary, first.value.members.clone()),
        (Term(1), Some(HostId(1)), vec![me])
    );
    assert_eq!(claim(me, 1).expect("restart").value.term, Term(2));
    assert_eq!(claim(me, 40).expect("after a recovery").value.term, Term(41), "above what the replica has seen");
    let stranger = Member { host: HostId(1), store: guid(0x22) };
    let error = claim(stranger, 0).expect_err("another directory");
    assert_eq!(error.kind(), ErrorKind::Refused);
    assert!(error.message().contains("11111111-") && error.message().contains("22222222-"), "{error}");
    assert_eq!(partitions::of_host(&coordinator, HostId(1)).expect("list").len(), 1);
    let stored = records::must::<Partition>(&coordinator, &Partition::key_of(PartitionId(1))).expect("there");
    assert_eq!(stored.value.term, Term(41), "a refused claim changes nothing");
}
