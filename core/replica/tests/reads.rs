//! What a look-up in a large view reads from its files. Alone in this program: it counts all that the process reads.
#![cfg(feature = "rocks")]

use braid_replica::{Batch, Kv, RocksKv, RocksOptions};

/// Rows: their filter as one block would have 1 MiB.
const ROWS: u64 = 800_000;
/// Flushes: so many files of the first level are put together into one of the last.
const FLUSHES: u64 = 4;
const LOOKS: u64 = 2_000;
/// A block of data, one of the filter and one of the index, generously.
const PER_LOOK_MAX: u64 = 32 << 10;

fn key(row: u64) -> Vec<u8> {
    // Spread over the whole range, so that neighbours in time are none in the file.
    row.wrapping_mul(0x9E37_79B9_7F4A_7C15).to_be_bytes().repeat(2)
}

/// Bytes that this process has read so far, from caches of the kernel too.
fn read_so_far() -> u64 {
    let text = std::fs::read_to_string("/proc/self/io").expect("Linux counts what a process reads");
    let count = text.lines().find_map(|line| line.strip_prefix("rchar: ")).expect("there is such a line");
    count.trim().parse().expect("it is a number")
}

#[test]
#[allow(clippy::disallowed_methods)] // A test may wait for the engine's own threads.
fn a_look_up_reads_a_few_blocks_however_large_the_view_is() {
    let dir = std::env::temp_dir().join(format!("braid-reads-{}", std::process::id()));
    // A cache that holds a part of the rows.
    let options = RocksOptions { write_buffer_bytes: 512 << 20, block_cache_bytes: 8 << 20, ..RocksOptions::default() };
    let kv = RocksKv::open(&dir, options).expect("a new database opens");
    for first in (0..ROWS).step_by(10_000) {
        let mut batch = Batch::new();
        for row in first..first + 10_000 {
            batch.put(key(row), row.to_le_bytes());
        }
        kv.apply(&batch).expect("rows are written");
        if (first + 10_000) % (ROWS / FLUSHES) == 0 {
            kv.flush().expect("the rows are flushed");
        }
    }
    let files =
        || std::fs::read_dir(&dir).expect("it lists").filter_map(|e| e.ok()?.path().extension().map(|x| x == "sst"));
    for _ in 0..600 {
        if files().filter(|is_table| *is_table).count() == 1 {
            break;
        }
        std::thread::sleep(std::time::Duration::from_millis(50));
    }
    assert_eq!(files().filter(|is_table| *is_table).count(), 1, "the files are put together");

    let before = read_so_far();
    for look in 0..LOOKS {
        let row = look * (ROWS / LOOKS);
        assert_eq!(kv.get(&key(row)).expect("it can be read"), Some(row.to_le_bytes().to_vec()));
    }
    let read = read_so_far() - before;
    drop(kv);
    std::fs::remove_dir_all(&dir).expect("the database can be removed");
    println!("{} bytes read per look-up", read / LOOKS);
    assert!(read < LOOKS * PER_LOOK_MAX, "{} bytes read per look-up", read / LOOKS);
}
