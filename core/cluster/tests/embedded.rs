//! The embedded coordinator: the conformance suite, and what a file on a disk adds (crashes, locks, damage).

mod suite;

use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use braid_base::ErrorKind;
use braid_cluster::Embedded;
use braid_cluster::coordinator::{Coordinator, Revision, Txn};
use braid_cluster::embedded::ClockMs;
use suite::Subject;

fn clock() -> (ClockMs, Arc<AtomicU64>) {
    let now = Arc::new(AtomicU64::new(1_000));
    let read = now.clone();
    // Each look costs a millisecond, so that a waiting watch ends also when nobody moves the clock.
    (Arc::new(move || read.fetch_add(1, Ordering::Relaxed)), now)
}

fn subject(coordinator: &Embedded, now: Arc<AtomicU64>) -> Subject {
    let pass_ms = Box::new(move |ms| {
        now.fetch_add(ms, Ordering::Relaxed);
    });
    Subject { one: Arc::new(coordinator.clone()), two: Arc::new(coordinator.clone()), pass_ms }
}

fn put(coordinator: &Embedded, key: &str, value: &str) {
    coordinator.txn(&Txn::new().put(key, value)).expect("put");
}

fn value(coordinator: &Embedded, key: &str) -> Option<Vec<u8>> {
    coordinator.get(key).expect("get").map(|item| item.value)
}

#[test]
fn conforms_in_memory() {
    suite::conform(&|| {
        let (clock, now) = clock();
        subject(&Embedded::in_memory(clock).expect("memory"), now)
    });
}

#[test]
fn conforms_on_a_file() {
    let dir = tempfile::tempdir().expect("dir");
    let number = AtomicU64::new(0);
    suite::conform(&|| {
        let (clock, now) = clock();
        let path = dir.path().join(format!("{}.redb", number.fetch_add(1, Ordering::Relaxed)));
        subject(&Embedded::open(&path, clock).expect("file"), now)
    });
}

#[test]
fn a_second_opening_finds_everything_but_sessions() {
    let dir = tempfile::tempdir().expect("dir");
    let path = dir.path().join("c.redb");
    let first = Embedded::open(&path, clock().0).expect("open");
    put(&first, "a", "1");
    let session = first.session(60_000).expect("session");
    first.txn(&Txn::new().put_live("live/1", "x", session)).expect("put");
    assert_eq!(first.counter("n").expect("counter"), 1);
    let revision = first.range("").expect("range").revision;
    drop(first);
    let second = Embedded::open(&path, clock().0).expect("open again");
    assert_eq!(value(&second, "a").as_deref(), Some(&b"1"[..]));
    assert_eq!(value(&second, "live/1"), None);
    assert_eq!(second.counter("n").expect("counter"), 2);
    assert!(second.range("").expect("range").revision > revision);
    assert!(second.session(1).expect("session") > session, "session ids are not given twice");
    assert_eq!(second.watch("", Revision(1)).err().expect("dropped").kind(), ErrorKind::Stale);
}

#[test]
fn a_file_in_use_is_refused() {
    let dir = tempfile::tempdir().expect("dir");
    let path = dir.path().join("c.redb");
    let _running = Embedded::open(&path, clock().0).expect("open");
    let error = Embedded::open(&path, clock().0).err().expect("refused");
    assert_eq!(error.kind(), ErrorKind::Refused);
    assert!(error.message().contains("c.redb") && error.message().contains("braid down"), "{error}");
}

/// The image of the file at any moment (a copy taken while the process lives) opens with all that was committed.
#[test]
fn a_killed_process_loses_nothing() {
    let dir = tempfile::tempdir().expect("dir");
    let path = dir.path().join("c.redb");
    let running = Embedded::open(&path, clock().0).expect("open");
    for i in 0..40 {
        put(&running, &format!("k/{i}"), &"v".repeat(i * 100));
        let image = dir.path().join(format!("image-{i}.redb"));
        fs::copy(&path, &image).expect("copy");
        let opened = Embedded::open(&image, clock().0).expect("an image opens");
        assert_eq!(opened.range("k/").expect("range").items.len(), i + 1);
    }
}

fn filled(path: &Path) -> Vec<u8> {
    let coordinator = Embedded::open(path, clock().0).expect("open");
    for i in 0..60 {
        put(&coordinator, &format!("fs/{i}"), &format!("{{\"n\":{i}}}{}", "x".repeat(500)));
    }
    drop(coordinator);
    fs::read(path).expect("read")
}

/// Flipped, cut and overwritten files: either all is there, or an error names the file and the way out.
#[test]
fn damage_is_named_and_recovered() {
    let dir = tempfile::tempdir().expect("dir");
    let path = dir.path().join("c.redb");
    let good = filled(&path);
    let mut seed = 0x9E37_79B9_7F4A_7C15_u64;
    let mut chance = |bound: usize| {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (seed >> 33) as usize % bound
    };
    let mut refused = 0;
    for round in 0..60 {
        let mut bad = good.clone();
        match round % 4 {
            0 => bad.truncate(chance(good.len())),
            1 => bad.fill(0x5A),
            2 => (0..64).for_each(|_| bad[chance(good.len())] ^= 1 << (round % 8)),
            _ => {
                let start = chance(good.len() - 4096);
                bad[start..start + 4096].fill(0);
            }
        }
        fs::write(&path, &bad).expect("write");
        match Embedded::open(&path, clock().0) {
            Ok(opened) => assert_eq!(opened.range("fs/").expect("range").items.len(), 60, "round {round}"),
            Err(error) => {
                refused += 1;
                assert_eq!(error.kind(), ErrorKind::Corrupt, "round {round}: {error}");
                assert!(error.message().contains("c.redb") && error.message().contains("--recover"), "{error}");
                assert!(!error.message().contains('\n'), "one line: {error}");
                assert!(fs::read(&path).expect("read") == bad, "round {round}: nothing was overwritten");
            }
        }
    }
    assert!(refused > 30, "damage must be found: {refused} of 60");
}

#[test]
fn recovery_restores_records_and_leaps_counters() {
    let dir = tempfile::tempdir().expect("dir");
    let path = dir.path().join("c.redb");
    let first = Embedded::open(&path, clock().0).expect("open");
    assert_eq!(first.counter("client").expect("counter"), 1);
    put(&first, "cluster", "{\"name\":\"x\"}");
    first.txn(&Txn::new().put("host/1", vec![0xFF, 0x00, 0x80])).expect("put");
    assert_eq!(first.counter("client").expect("not in the backup"), 2);
    assert_eq!(first.counter("drive").expect("a counter begun last of all"), 1);
    drop(first);
    let still = Embedded::recover(&path, clock().0).err().expect("the file is still there");
    assert_eq!(still.kind(), ErrorKind::Refused);
    fs::rename(&path, dir.path().join("c.redb.damaged")).expect("rename");
    let gone = Embedded::open(&path, clock().0).err().expect("must not start empty");
    assert_eq!(gone.kind(), ErrorKind::Corrupt);
    let second = Embedded::recover(&path, clock().0).expect("recover");
    assert_eq!(value(&second, "cluster").as_deref(), Some(&b"{\"name\":\"x\"}"[..]));
    assert_eq!(value(&second, "host/1"), Some(vec![0xFF, 0x00, 0x80]));
    for name in ["client", "drive"] {
        assert!(second.counter(name).expect("counter") > 1_000, "{name}");
    }
}

#[test]
fn recovery_needs_a_sound_backup() {
    let dir = tempfile::tempdir().expect("dir");
    let path = dir.path().join("c.redb");
    let none = Embedded::recover(&path, clock().0).err().expect("no backup");
    assert_eq!(none.kind(), ErrorKind::NotFound);
    filled(&path);
    fs::remove_file(&path).expect("remove");
    let place = dir.path().join("c.redb.backup");
    let text = fs::read_to_string(&place).expect("read").replacen("\\\"n\\\":7", "\\\"n\\\":8", 1);
    fs::write(&place, text).expect("write");
    let error = Embedded::recover(&path, clock().0).err().expect("checksum");
    assert_eq!(error.kind(), ErrorKind::Corrupt);
    assert!(!path.exists(), "nothing half made");
}
