//! Object stores and what file systems have of them, over the coordinator of one machine.

use std::sync::Arc;

use braid_base::ErrorKind;
use braid_base::ids::{FsId, Guid, StoreId};
use braid_base::msg::host::{SeatData, Stored};
use braid_base::store::{Place, Protocol, S3Auth, Secret};
use braid_cluster::attachments::{Progress, Room};
use braid_cluster::coordinator::{Coordinator, Txn};
use braid_cluster::facts::{Filesystem, Mode};
use braid_cluster::records::{self, Record};
use braid_cluster::view::stores::{AttachSpec, Kind, ObjectStoreChange, ObjectStoreSettings, ObjectStoreSpec};
use braid_cluster::view::{FsChange, FsSpec, GroupSpec};
use braid_cluster::{Embedded, attachments, filesystems, groups, stores};

fn coordinator() -> Embedded {
    let coordinator = Embedded::in_memory(Arc::new(|| 0)).expect("memory");
    let none = GroupSpec { name: "default".into(), new_name: None, target_ssd_retention_s: None, start_demote_s: None };
    groups::add(&coordinator, &none).expect("group");
    coordinator
}

fn spec(name: &str, kind: Kind, settings: ObjectStoreSettings) -> ObjectStoreSpec {
    ObjectStoreSpec { name: name.to_owned(), kind, settings, dry_run: false, skip_verification: false }
}

fn s3() -> ObjectStoreSettings {
    ObjectStoreSettings {
        hostname: Some("h".into()),
        bucket: Some("Bucket/a/b/".into()),
        access_key_id: Some("id".into()),
        secret_key: Some(Secret("very secret".into())),
        ..ObjectStoreSettings::default()
    }
}

fn azure() -> ObjectStoreSettings {
    ObjectStoreSettings {
        account: Some("a".into()),
        bucket: Some("c".into()),
        secret_key: Some(Secret("very secret".into())),
        ..ObjectStoreSettings::default()
    }
}

fn dir(path: &str) -> ObjectStoreSettings {
    ObjectStoreSettings { path: Some(path.into()), ..ObjectStoreSettings::default() }
}

fn add(coordinator: &dyn Coordinator, name: &str) -> StoreId {
    let planned = stores::plan_add(coordinator, &spec(name, Kind::Dir, dir("/d"))).expect("a plan");
    stores::add(coordinator, name, planned).expect("added").id
}

fn change(settings: ObjectStoreSettings) -> ObjectStoreChange {
    ObjectStoreChange { settings, ..ObjectStoreChange::default() }
}

fn fs(coordinator: &dyn Coordinator, name: &str) -> Filesystem {
    let spec = FsSpec { name: name.to_owned(), ..FsSpec::default() };
    filesystems::add(coordinator, &spec, Guid([7; 16]), 5).expect("added")
}

fn attach(coordinator: &dyn Coordinator, fs: &str, store: &str, mode: Mode) -> braid_base::Result<Filesystem> {
    attachments::attach(coordinator, fs, &AttachSpec { store: store.to_owned(), mode }, 9)
}

/// The file system called `fs`, as it is recorded.
fn fs_now(coordinator: &dyn Coordinator) -> Filesystem {
    filesystems::find(coordinator, "fs").expect("there").value
}

fn modes(fs: &Filesystem) -> Vec<(u32, Mode, bool)> {
    fs.stores.iter().map(|attached| (attached.store.0, attached.mode, attached.detaching)).collect()
}

#[test]
fn stores_come_and_go() {
    let coordinator = coordinator();
    let planned = stores::plan_add(&coordinator, &spec("b", Kind::S3, s3())).expect("a plan");
    assert!(stores::list(&coordinator).expect("list").is_empty(), "a plan records nothing");
    let store = stores::add(&coordinator, "b", planned.clone()).expect("added");
    assert_eq!(stores::find(&coordinator, "b").expect("there").value, store);
    assert_eq!(stores::add(&coordinator, "b", planned).expect_err("taken").kind(), ErrorKind::Exists);
    assert_eq!(
        stores::plan_add(&coordinator, &spec("b", Kind::S3, s3())).expect_err("taken").kind(),
        ErrorKind::Exists
    );
    stores::remove(&coordinator, "b", None).expect("removed");
    assert_eq!(stores::find(&coordinator, "b").expect_err("gone").kind(), ErrorKind::NotFound);
    assert_eq!(stores::remove(&coordinator, "b", None).expect_err("gone").kind(), ErrorKind::NotFound);
    assert!(add(&coordinator, "b") > store.id, "numbers are never given again");
    for name in ["", "a/b", "-x", "a b", &"x".repeat(33)] {
        let error = stores::plan_add(&coordinator, &spec(name, Kind::Dir, dir("/d"))).expect_err("bad name");
        assert_eq!(error.kind(), ErrorKind::Invalid, "{name:?}");
    }
}

#[test]
fn a_store_is_as_it_was_said_and_else_as_usual() {
    let coordinator = coordinator();
    let plan = |kind, settings| stores::plan_add(&coordinator, &spec("b", kind, settings));
    let planned =
        plan(Kind::S3, ObjectStoreSettings { port: Some(9000), bytes_per_s: Some(7), ..s3() }).expect("right");
    let Place::S3(bucket) = &planned.place else { panic!("no bucket") };
    assert_eq!(
        (bucket.bucket.as_str(), bucket.prefix.as_str(), bucket.region.as_str()),
        ("Bucket", "a/b", "us-east-1")
    );
    assert_eq!((bucket.endpoint.protocol, bucket.endpoint.port), (Protocol::Http, Some(9000)));
    assert_eq!((planned.errors_timeout_s, planned.prefetch_mib, planned.concurrency.removals), (300, 128, 64));
    assert_eq!((planned.bandwidth.all, planned.bandwidth.upload), (Some(7), None));
    let planned = plan(Kind::Azure, azure()).expect("right");
    assert!(matches!(planned.place, Place::Azure(azure) if azure.endpoint.protocol == Protocol::Https));
    let named = ObjectStoreSettings { hostname: Some("h".into()), ..azure() };
    let planned = plan(Kind::Azure, named).expect("right");
    assert!(matches!(planned.place, Place::Azure(azure) if azure.endpoint.protocol == Protocol::Http));
    let anyone = ObjectStoreSettings { auth_method: Some(S3Auth::None), access_key_id: None, secret_key: None, ..s3() };
    plan(Kind::S3, anyone).expect("a bucket for everyone");
}

#[test]
fn what_makes_no_sense_is_refused_by_name() {
    let coordinator = coordinator();
    let none = ObjectStoreSettings::default;
    let text = |text: &str| Some(text.to_owned());
    for (kind, settings, words) in [
        (Kind::S3, ObjectStoreSettings { hostname: None, ..s3() }, "hostname"),
        (Kind::S3, ObjectStoreSettings { bucket: text("/a"), ..s3() }, "bucket"),
        (Kind::S3, ObjectStoreSettings { secret_key: None, ..s3() }, "--secret-key-file"),
        (Kind::S3, ObjectStoreSettings { access_key_id: None, ..s3() }, "--access-key-id"),
        (Kind::S3, ObjectStoreSettings { account: text("a"), ..s3() }, "account: a store of kind s3"),
        (Kind::S3, ObjectStoreSettings { path: text("/a"), ..s3() }, "path: a store of kind s3"),
        (Kind::S3, ObjectStoreSettings { max_concurrent_uploads: Some(0), ..s3() }, "1 to 64 expected, found 0"),
        (Kind::S3, ObjectStoreSettings { max_concurrent_removals: Some(65), ..s3() }, "removals: 1 to 64"),
        (Kind::S3, ObjectStoreSettings { errors_timeout_s: Some(59), ..s3() }, "60 to 900 s expected, found 59 s"),
        (Kind::S3, ObjectStoreSettings { errors_timeout_s: Some(901), ..s3() }, "found 901 s"),
        (Kind::S3, ObjectStoreSettings { prefetch_mib: Some(601), ..s3() }, "0 to 600 MiB expected"),
        (Kind::Azure, ObjectStoreSettings { account: None, ..azure() }, "an account"),
        (Kind::Azure, ObjectStoreSettings { secret_key: None, ..azure() }, "a key or a shared access signature"),
        (Kind::Azure, ObjectStoreSettings { sas: Some(Secret("s".into())), ..azure() }, "found both"),
        (Kind::Azure, ObjectStoreSettings { region: text("r"), ..azure() }, "region: a store of kind azure"),
        (Kind::Dir, none(), "an absolute path"),
        (Kind::Dir, dir("relative"), "relative"),
        (Kind::Dir, ObjectStoreSettings { hostname: text("h"), ..dir("/d") }, "hostname: a store of kind dir"),
    ] {
        let error = stores::plan_add(&coordinator, &spec("b", kind, settings)).expect_err(words);
        assert!(error.kind() == ErrorKind::Invalid && error.message().contains(words), "{words:?} expected in {error}");
    }
}

#[test]
fn one_field_is_changed_and_the_rest_stays() {
    let coordinator = coordinator();
    let planned = stores::plan_add(&coordinator, &spec("b", Kind::S3, s3())).expect("a plan");
    let before = stores::add(&coordinator, "b", planned).expect("added");
    let tuned = change(ObjectStoreSettings { prefetch_mib: Some(5), ..ObjectStoreSettings::default() });
    let plan = stores::plan_update(&coordinator, "b", &tuned).expect("a plan");
    assert!(!plan.reached_anew, "there is nothing to try");
    let after = stores::update(&coordinator, plan.clone()).expect("updated");
    assert_eq!((after.spec.prefetch_mib, &after.spec.place), (5, &before.spec.place));
    assert_eq!(stores::update(&coordinator, plan).expect_err("an old plan").kind(), ErrorKind::Stale);
    let rotated = ObjectStoreSettings { secret_key: Some(Secret("new".into())), ..ObjectStoreSettings::default() };
    let plan = stores::plan_update(&coordinator, "b", &change(rotated)).expect("a plan");
    assert!(plan.reached_anew);
    let rename = ObjectStoreChange { new_name: Some("c".into()), ..ObjectStoreChange::default() };
    let plan = stores::plan_update(&coordinator, "b", &rename).expect("a plan");
    assert_eq!(stores::update(&coordinator, plan).expect("renamed").id, before.id);
    assert!(stores::find(&coordinator, "b").is_err());
    assert_eq!(stores::find(&coordinator, "c").expect("there").value.spec.prefetch_mib, 5);
    add(&coordinator, "b");
    let clash = ObjectStoreChange { new_name: Some("b".into()), ..ObjectStoreChange::default() };
    assert_eq!(stores::plan_update(&coordinator, "c", &clash).expect_err("taken").kind(), ErrorKind::Exists);
    let other = ObjectStoreChange { kind: Some(Kind::Azure), ..ObjectStoreChange::default() };
    let error = stores::plan_update(&coordinator, "c", &other).expect_err("another kind");
    assert!(error.message().contains("braid fs tier s3 update"), "{error}");
}

#[test]
fn objects_in_use_are_not_lost_sight_of() {
    let coordinator = coordinator();
    add(&coordinator, "d");
    for name in ["one", "two"] {
        fs(&coordinator, name);
        attach(&coordinator, name, "d", Mode::Writable).expect("attached");
    }
    let error = stores::remove(&coordinator, "d", None).expect_err("in use");
    assert_eq!(error.kind(), ErrorKind::Refused);
    assert!(error.message().contains("the file systems one, two use it"), "{error}");
    let error = stores::plan_update(&coordinator, "d", &change(dir("/e"))).expect_err("in use");
    assert!(error.kind() == ErrorKind::Refused && error.message().contains("one, two"), "{error}");
    stores::plan_update(&coordinator, "d", &change(dir("/d"))).expect("no other place");
    let view = stores::view(
        &stores::find(&coordinator, "d").expect("there").value,
        &filesystems::list(&coordinator).expect("list"),
    );
    assert_eq!(
        (view.filesystems, view.bucket.as_str(), view.upload.state.as_str()),
        (vec!["one".to_owned(), "two".to_owned()], "/d", "unknown")
    );
}

#[test]
fn views_have_no_secrets() {
    let coordinator = coordinator();
    let sas = ObjectStoreSettings { secret_key: None, sas: Some(Secret("very secret".into())), ..azure() };
    for (name, kind, settings) in [("a", Kind::S3, s3()), ("b", Kind::Azure, azure()), ("c", Kind::Azure, sas)] {
        assert!(!format!("{settings:?}").contains("very"), "nor have settings in a log");
        let planned = stores::plan_add(&coordinator, &spec(name, kind, settings)).expect("a plan");
        let store = stores::add(&coordinator, name, planned).expect("added");
        let text = serde_json::to_string(&stores::view(&store, &[])).expect("JSON");
        assert!(!text.contains("very secret") && text.contains("***"), "{text}");
    }
}

#[test]
fn one_store_is_written_and_one_is_read() {
    use Mode::{ReadOnly, Writable};
    let coordinator = coordinator();
    let ids = ["a", "b", "c"].map(|name| add(&coordinator, name).0);
    fs(&coordinator, "fs");
    let refused = |store, mode| attach(&coordinator, "fs", store, mode).expect_err("refused");
    attach(&coordinator, "fs", "a", Writable).expect("the first");
    assert_eq!(refused("a", Writable).kind(), ErrorKind::Exists);
    let error = refused("a", ReadOnly);
    assert!(error.kind() == ErrorKind::Exists && error.message().contains("once another one is attached"), "{error}");
    let moved = attach(&coordinator, "fs", "b", Writable).expect("a migration");
    assert_eq!(modes(&moved), [(ids[0], ReadOnly, false), (ids[1], Writable, false)]);
    assert_eq!(moved.writable(), Some(StoreId(ids[1])));
    for mode in [Writable, ReadOnly] {
        assert_eq!(refused("c", mode).kind(), ErrorKind::Refused);
    }
    assert_eq!(refused("nowhere", Writable).kind(), ErrorKind::NotFound);
    fs(&coordinator, "reader");
    attach(&coordinator, "reader", "a", ReadOnly).expect("one that is only read");
    let error = attach(&coordinator, "reader", "b", ReadOnly).expect_err("a second");
    assert!(error.kind() == ErrorKind::Refused && error.message().contains("only read already"), "{error}");
    let both = attach(&coordinator, "reader", "b", Writable).expect("beside it");
    assert_eq!(modes(&both), [(ids[0], ReadOnly, false), (ids[1], Writable, false)]);
    filesystems::start_remove(&coordinator, "reader").expect("begun");
    assert_eq!(attach(&coordinator, "reader", "c", Writable).expect_err("removing").kind(), ErrorKind::Refused);
}

#[test]
fn detaching_has_two_ends() {
    let coordinator = coordinator();
    let (a, b) = (add(&coordinator, "a"), add(&coordinator, "b"));
    let one = fs(&coordinator, "fs");
    let detach = |store, used_bytes, free_bytes| {
        let room = Room { used_bytes, free_bytes, ..Room::default() };
        attachments::start_detach(&coordinator, "fs", store, room, false)
    };
    assert_eq!(detach("a", 0, 0).expect_err("not attached").kind(), ErrorKind::NotFound);
    attach(&coordinator, "fs", "a", Mode::Writable).expect("attached");
    let error = detach("a", 11, 10).expect_err("does not fit");
    assert!(error.kind() == ErrorKind::Refused && error.message().contains("11") && error.message().contains("10"));
    assert!(error.message().contains("beside the other file systems: add drives"), "{error}");
    assert!(error.message().ends_with("or attach another object store first"), "{error}");
    assert_eq!(attachments::forget(&coordinator, &one, a).expect_err("in use").kind(), ErrorKind::Refused);
    attach(&coordinator, "fs", "b", Mode::Writable).expect("attached");
    let begun = detach("a", 11, 10).expect("it goes to the other");
    assert_eq!(modes(&begun), [(a.0, Mode::ReadOnly, true), (b.0, Mode::Writable, false)]);
    detach("a", 11, 10).expect("twice is no error");
    assert_eq!(detach("b", 0, 10).expect_err("one at a time").kind(), ErrorKind::Refused);
    let error = attach(&coordinator, "fs", "a", Mode::Writable).expect_err("going");
    assert!(error.kind() == ErrorKind::Refused && error.message().contains("being detached"), "{error}");
    attachments::forget(&coordinator, &one, a).expect("done");
    attachments::forget(&coordinator, &one, a).expect("twice is no error");
    stores::remove(&coordinator, "a", None).expect("free");
    assert_eq!(modes(&fs_now(&coordinator)), [(b.0, Mode::Writable, false)]);
    let begun = detach("b", 10, 10).expect("it fits");
    assert_eq!(begun.writable(), None, "nothing goes to a store that is being detached");
    filesystems::forget(&coordinator, &one).expect("removed");
    attachments::forget(&coordinator, &one, b).expect("with its file system");
}

#[test]
fn a_file_system_begins_with_its_store() {
    let coordinator = coordinator();
    let id = add(&coordinator, "a");
    let spec = |name: &str| FsSpec { name: name.to_owned(), ..FsSpec::default() };
    let plain = filesystems::add(&coordinator, &spec("plain"), Guid([7; 16]), 5).expect("added");
    assert_eq!((plain.ssd_bytes, plain.object_mib, plain.stores.len()), (None, 64, 0));
    let tiered = FsSpec {
        total_bytes: Some(4 << 30),
        ssd_bytes: Some(1 << 30),
        object_mib: Some(4),
        store: Some("a".into()),
        ..spec("tiered")
    };
    let fs = filesystems::add(&coordinator, &tiered, Guid([7; 16]), 5).expect("added");
    assert_eq!((fs.ssd_bytes, fs.object_mib, fs.writable()), (Some(1 << 30), 4, Some(id)));
    assert_eq!((fs.room_bytes(2 << 30), plain.room_bytes(2 << 30)), (4 << 30, 2 << 30), "objects need no flash");
    let unbounded = Filesystem { total_bytes: None, ..fs.clone() };
    assert_eq!(unbounded.room_bytes(2 << 30), u64::MAX, "its bucket takes what comes");
    let add = |spec: &FsSpec| filesystems::add(&coordinator, spec, Guid([7; 16]), 5).expect_err("refused").kind();
    assert_eq!(add(&FsSpec { ssd_bytes: Some(5 << 30), name: "x".into(), ..tiered.clone() }), ErrorKind::Invalid);
    assert_eq!(add(&FsSpec { ssd_bytes: Some(4096), ..spec("x") }), ErrorKind::Invalid);
    assert_eq!(add(&FsSpec { object_mib: Some(3), ..spec("x") }), ErrorKind::Invalid);
    assert_eq!(add(&FsSpec { object_mib: Some(65), ..spec("x") }), ErrorKind::Invalid);
    assert_eq!(add(&FsSpec { store: Some("nowhere".into()), ..spec("x") }), ErrorKind::NotFound);
    let update = |change| filesystems::update(&coordinator, "tiered", &change, 0);
    let less = update(FsChange { total_bytes: Some(1 << 29), ..FsChange::default() }).expect_err("flash is more");
    assert!(less.kind() == ErrorKind::Invalid && less.message().contains("1073741824"), "{less}");
    let both = FsChange { total_bytes: Some(1 << 29), ssd_bytes: Some(1 << 28), ..FsChange::default() };
    assert_eq!(update(both).expect("both").ssd_bytes, Some(1 << 28));
    let room = Room { used_bytes: (1 << 28) + 1, free_bytes: 1 << 40, ..Room::default() };
    let short = attachments::start_detach(&coordinator, "tiered", "a", room, false).expect_err("its own bound");
    assert!(short.kind() == ErrorKind::Refused && short.message().contains("raise --ssd-capacity"), "{short}");
    assert_eq!(update(FsChange { ssd_bytes: Some(0), ..FsChange::default() }).expect("all").ssd_bytes, None);
    let objects = |mib| update(FsChange { object_mib: Some(mib), ..FsChange::default() });
    assert_eq!(objects(16).expect("from now on").object_mib, 16);
    for mib in [3, 65] {
        let error = objects(mib).expect_err("no such objects");
        assert!(error.kind() == ErrorKind::Invalid && error.message().contains("4 to 64 MiB"), "{error}");
    }
    assert_eq!(update(FsChange::default()).expect("the rest stays").object_mib, 16);
}

#[test]
fn an_attach_can_be_undone() {
    use Mode::{ReadOnly, Writable};
    let coordinator = coordinator();
    let (a, b) = (add(&coordinator, "a"), add(&coordinator, "b"));
    let one = fs(&coordinator, "fs");
    let full = Room { used_bytes: 100, flash_bytes: 10, stored_bytes: 90, free_bytes: 10 };
    let detach = |store, room| attachments::start_detach(&coordinator, "fs", store, room, false);
    attach(&coordinator, "fs", "a", Writable).expect("the first");
    attach(&coordinator, "fs", "b", Writable).expect("a migration");
    let back = detach("b", full).expect("it goes to a again, and needs no flash");
    assert_eq!(modes(&back), [(a.0, Writable, false), (b.0, ReadOnly, true)]);
    attachments::forget(&coordinator, &one, b).expect("done");
    // The other way: the first one is made the writable one again, and is not detached.
    attach(&coordinator, "fs", "b", Writable).expect("a migration");
    let back = attach(&coordinator, "fs", "a", Writable).expect("as it was");
    assert_eq!(modes(&back), [(a.0, Writable, false), (b.0, ReadOnly, false)]);
    let forth = attach(&coordinator, "fs", "b", Writable).expect("and once more");
    assert_eq!(modes(&forth), [(a.0, ReadOnly, false), (b.0, Writable, false)]);
    attachments::forget(&coordinator, &one, b).expect_err("in use");
}

#[test]
fn one_that_was_meant_to_be_read_is_not_written_unasked() {
    use Mode::{ReadOnly, Writable};
    let coordinator = coordinator();
    let (a, b) = (add(&coordinator, "a"), add(&coordinator, "b"));
    fs(&coordinator, "fs");
    attach(&coordinator, "fs", "a", ReadOnly).expect("to read");
    attach(&coordinator, "fs", "b", Writable).expect("to write");
    let detach = |room| attachments::start_detach(&coordinator, "fs", "b", room, false);
    let room = Room { used_bytes: 100, flash_bytes: 10, stored_bytes: 30, free_bytes: 39 };
    let error = detach(room).expect_err("what lies in b has no room");
    assert!(error.message().contains("40 bytes on flash, and 39 have room"), "{error}");
    assert!(error.message().contains("make a the writable one first"), "{error}");
    assert_eq!(modes(&fs_now(&coordinator)), [(a.0, ReadOnly, false), (b.0, Writable, false)], "nothing changed");
    let going = detach(Room { free_bytes: 40, ..room }).expect("what lies in a stays there");
    assert_eq!((modes(&going), going.writable()), (vec![(a.0, ReadOnly, false), (b.0, Writable, true)], None));
}

#[test]
fn a_store_that_is_gone_can_be_given_up() {
    let coordinator = coordinator();
    add(&coordinator, "a");
    fs(&coordinator, "fs");
    attach(&coordinator, "fs", "a", Mode::Writable).expect("attached");
    let detach = |give_up| {
        let fs = attachments::start_detach(&coordinator, "fs", "a", Room::default(), give_up).expect("begun");
        (fs.stores[0].detaching, fs.stores[0].give_up)
    };
    assert_eq!((detach(false), detach(true), detach(false)), ((true, false), (true, true), (true, true)));
}

#[test]
fn progress_of_a_detach_says_why_it_stands_still() {
    let coordinator = coordinator();
    add(&coordinator, "a");
    fs(&coordinator, "fs");
    let fs = attach(&coordinator, "fs", "a", Mode::Writable).expect("attached");
    let why = |objects, live, change: &dyn Fn(&mut Progress)| {
        let left = Stored { objects, live, ..Stored::default() };
        let mut progress = Progress { left, room_bytes: Some(1 << 20), ..Progress::default() };
        change(&mut progress);
        let mut view = attachments::views(&fs, &[]).swap_remove(0);
        attachments::show_progress(&mut view, &progress);
        assert_eq!((view.objects_left, view.bytes_left), (Some(objects), Some(live)));
        view.waits.unwrap_or_default()
    };
    let gone = || Some("no route".to_owned());
    assert_eq!(why(3, 99, &|_| {}), "", "it goes on");
    assert!(why(3, 2 << 20, &|_| {}).contains("2097152 bytes are to come back to flash, which has room for 1048576"));
    assert_eq!(why(3, 9, &|p| p.unread = gone()), "what lies there cannot be read: no route");
    assert!(why(3, 9, &|p| p.untaken = gone()).contains("the store that is to take it does not: no route"));
    assert_eq!(why(3, 9, &|p| p.unremoved = gone()), "", "bytes come first");
    assert!(why(3, 0, &|p| p.unremoved = gone()).ends_with("no route; detach it with --abandon to leave them there"));
    let forced = |p: &mut Progress| (p.unremoved, p.give_up) = (gone(), true);
    assert!(why(3, 0, &forced).starts_with("objects are left there"));
    assert_eq!(why(0, 0, &|p| p.unread = gone()), "", "nothing is left");
}

#[test]
fn a_store_stays_while_objects_wait_to_be_removed() {
    let coordinator = coordinator();
    let id = add(&coordinator, "a");
    let holds = |store, objects| SeatData {
        stored: [((FsId(9), store), Stored { objects, ..Stored::default() })].into(),
        ..SeatData::default()
    };
    let waiting = |seats: &[SeatData]| stores::waiting(id, 2, seats);
    let refused = |waiting| {
        let error = stores::remove(&coordinator, "a", Some(waiting)).expect_err("they would never be removed");
        assert_eq!(error.kind(), ErrorKind::Refused);
        error.message().to_owned()
    };
    let words = refused(waiting(&[holds(id, 2), holds(id, 3)]));
    assert!(words.contains("5 objects of removed file systems wait") && words.contains("--force"), "{words}");
    let words = refused(waiting(&[SeatData::default()]));
    assert!(words.contains("1 partitions do not say"), "{words}");
    let free = waiting(&[holds(StoreId(77), 2), SeatData::default()]);
    assert_eq!((free.objects, free.silent_partitions), (0, 0));
    stores::remove(&coordinator, "a", Some(free)).expect("nothing is there");
    add(&coordinator, "a");
    stores::remove(&coordinator, "a", None).expect("forced");
}

#[test]
fn file_systems_of_earlier_releases_have_no_stores() {
    let coordinator = coordinator();
    let fs = fs(&coordinator, "old");
    let text = r#"{"version":1,"id":1,"uuid":"07070707-0707-0707-0707-070707070707","name":"old","group":"default",
        "total_bytes":null,"root_vp":1,"created_s":5}"#;
    coordinator.txn(&Txn::new().put(&fs.key(), text)).expect("put");
    assert_eq!(records::must::<Filesystem>(&coordinator, &fs.key()).expect("read").value, fs);
}
