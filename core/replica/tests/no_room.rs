//! A view on a full disk: it refuses, and goes on when there is room.
#![cfg(feature = "rocks")]

use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use braid_base::ErrorKind;
use braid_replica::{Batch, Kv, RocksKv, RocksOptions};

const ROWS: u64 = 60_000;

/// Values that do not compress: 60,000 of them are more than the write buffers hold.
fn value(row: u64) -> Vec<u8> {
    let mut seed = row + 1;
    let mut next = || {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (seed >> 33) as u8
    };
    (0..200).map(|_| next()).collect()
}

fn run(program: &str, arguments: &[&str]) -> bool {
    Command::new(program).args(arguments).status().is_ok_and(|status| status.success())
}

/// Takes all that is left of the disk.
fn fill(ballast: &Path) {
    use std::io::Write;
    let mut file = std::fs::File::create(ballast).expect("a file can be made");
    while file.write_all(&[0; 4096]).is_ok() {}
}

#[test]
#[allow(clippy::disallowed_methods)] // A test may wait for the engine's own threads.
fn a_full_disk_breaks_nothing() {
    let dir = std::env::temp_dir().join(format!("braid-no-room-{}", std::process::id()));
    let disk = dir.to_str().expect("a path of letters").to_owned();
    std::fs::create_dir_all(&dir).expect("a directory can be made");
    if !run("mount", &["-t", "tmpfs", "-o", "size=64m", "tmpfs", &disk]) {
        eprintln!("skipped: only root may mount");
        return;
    }
    let options = RocksOptions { write_buffer_bytes: 4 << 20, ..RocksOptions::default() };
    let kv = RocksKv::open(&dir.join("kv"), options).expect("a new database opens");
    let ballast = dir.join("ballast");
    fill(&ballast);
    // What fits the buffers is taken, and cannot be flushed.
    let mut first = Batch::new();
    first.put(b"first", value(7));
    kv.apply(&first).expect("there is room in memory");
    let flushed = kv.flush().expect_err("there is no room for a file");
    assert_eq!(flushed.kind(), ErrorKind::NoSpace, "{flushed}");
    let room = std::thread::spawn(move || {
        std::thread::sleep(Duration::from_secs(2));
        std::fs::remove_file(ballast).expect("the ballast can be removed");
    });
    let (begin, mut refused) = (Instant::now(), 0);
    for rows in (0..ROWS).step_by(1_000) {
        let mut batch = Batch::new();
        (rows..rows + 1_000).for_each(|row| {
            batch.put(row.to_be_bytes(), value(row));
        });
        while let Err(error) = kv.apply(&batch) {
            assert_eq!(error.kind(), ErrorKind::NoSpace, "{error}");
            assert!(begin.elapsed() < Duration::from_secs(60), "there is room again, and it does not see it: {error}");
            refused += 1;
            std::thread::sleep(Duration::from_millis(100));
        }
    }
    assert!(refused > 0, "the disk was never full");
    room.join().expect("the ballast went");
    kv.flush().expect("there is room");
    drop(kv);
    let kv = RocksKv::open(&dir.join("kv"), options).expect("it opens again");
    for row in (0..ROWS).step_by(97) {
        assert_eq!(kv.get(&row.to_be_bytes()).expect("it can be read"), Some(value(row)));
    }
    assert_eq!(kv.get(b"first").expect("it can be read"), Some(value(7)));
    drop(kv);
    assert!(run("umount", &[&disk]), "the disk can be unmounted");
    std::fs::remove_dir(&dir).expect("the directory can be removed");
}
