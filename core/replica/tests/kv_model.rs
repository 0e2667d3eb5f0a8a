//! The engines against a plain map, and against each other: random batches, scans, flushes, crashes.

use std::collections::BTreeMap;
use std::sync::Arc;

use braid_replica::{Batch, CachedKv, Change, Kv, MapKv};

type Plain = BTreeMap<Vec<u8>, Vec<u8>>;

/// xorshift64*: enough chance for tests, equal on every machine.
struct Chance(u64);

impl Chance {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        (self.0.wrapping_mul(0x2545_F491_4F6C_DD1D) >> 33) % bound
    }

    /// Few distinct keys, some shorter than the 15 bytes of an inode's prefix, some longer.
    fn key(&mut self) -> Vec<u8> {
        let mut key = vec![0, self.below(2) as u8, self.below(3) as u8];
        key.extend_from_slice(&[0xFF; 11][..self.below(12) as usize]);
        key.extend((0..self.below(8)).map(|_| 254 + self.below(2) as u8));
        key
    }

    fn batch(&mut self) -> Batch {
        let mut batch = Batch::new();
        for _ in 0..self.below(9) {
            if self.below(3) == 0 {
                batch.delete(self.key());
            } else {
                let value = vec![self.below(256) as u8; self.below(300) as usize];
                batch.put(self.key(), value);
            }
        }
        batch
    }
}

fn apply_plain(plain: &mut Plain, batch: &Batch) {
    for change in batch.changes() {
        match change {
            Change::Put(key, value) => plain.insert(key.to_vec(), value.to_vec()),
            Change::Delete(key) => plain.remove(key),
        };
    }
}

fn scan(kv: &dyn Kv, from: &[u8], to: &[u8], most: usize) -> Vec<(Vec<u8>, Vec<u8>)> {
    let mut out = Vec::new();
    kv.scan(from, to, &mut |key, value| {
        assert_eq!(kv.get(key).expect("readable").as_deref(), Some(value), "a visitor may call back");
        out.push((key.to_vec(), value.to_vec()));
        out.len() < most
    })
    .expect("readable");
    out
}

fn check_scans(kv: &dyn Kv, plain: &Plain, chance: &mut Chance) {
    let (from, to) = (chance.key(), chance.key());
    let most = 1 + chance.below(40) as usize;
    let expected: Vec<_> =
        plain.iter().filter(|(k, _)| **k >= from && **k < to).take(most).map(|(k, v)| (k.clone(), v.clone())).collect();
    assert_eq!(scan(kv, &from, &to, most), expected);
    // All keys under a prefix of random length, as the partitions scan.
    let prefix = &from[..from.len().min(3 + chance.below(16) as usize)];
    let under: Vec<_> =
        plain.iter().filter(|(k, _)| k.starts_with(prefix)).map(|(k, v)| (k.clone(), v.clone())).collect();
    assert_eq!(scan(kv, prefix, &braid_base::keys::prefix_end(prefix), usize::MAX), under);
}

#[test]
fn map_engine_equals_a_map_and_returns_to_its_last_flush() {
    for seed in 1..40 {
        let mut chance = Chance(seed * 7919);
        let (kv, mut plain) = (MapKv::new(), Plain::new());
        let mut flushed = plain.clone();
        for _ in 0..300 {
            match chance.below(12) {
                0 => {
                    kv.flush().expect("memory");
                    flushed = plain.clone();
                }
                1 => {
                    kv.crash();
                    plain = flushed.clone();
                }
                2..5 => check_scans(&kv, &plain, &mut chance),
                _ => {
                    let batch = chance.batch();
                    kv.apply(&batch).expect("memory");
                    apply_plain(&mut plain, &batch);
                }
            }
            let key = chance.key();
            assert_eq!(kv.get(&key).expect("memory"), plain.get(&key).cloned());
            assert_eq!(kv.len(), plain.len());
        }
    }
}

#[test]
fn an_engine_with_a_cache_equals_a_map_over_crashes() {
    for seed in 1..40 {
        let (mut chance, mut plain) = (Chance(seed * 104_729), Plain::new());
        let engine = Arc::new(MapKv::new());
        // Room for a handful of rows: they come and go all the time.
        let cached = || CachedKv::new(engine.clone(), 3_000);
        let (mut kv, mut flushed) = (cached(), plain.clone());
        for _ in 0..600 {
            match chance.below(24) {
                0 => {
                    kv.flush().expect("memory");
                    flushed = plain.clone();
                }
                1 => {
                    engine.crash();
                    kv = cached();
                    plain = flushed.clone();
                }
                2..5 => check_scans(&kv, &plain, &mut chance),
                5..12 => {
                    let batch = chance.batch();
                    kv.apply(&batch).expect("memory");
                    apply_plain(&mut plain, &batch);
                }
                _ => {
                    let key = chance.key();
                    assert_eq!(kv.get(&key).expect("memory"), plain.get(&key).cloned());
                }
            }
        }
    }
}

#[test]
fn an_empty_or_reversed_range_shows_nothing() {
    let kv = MapKv::new();
    let mut batch = Batch::new();
    batch.put(b"b", b"1");
    kv.apply(&batch).expect("memory");
    assert!(scan(&kv, b"c", b"a", 9).is_empty());
    assert!(scan(&kv, b"b", b"b", 9).is_empty());
    assert_eq!(scan(&kv, b"b", b"b\0", 9).len(), 1);
}

#[cfg(feature = "rocks")]
mod rocks {
    use super::{Chance, Plain, apply_plain, check_scans};
    use braid_base::ErrorKind;
    use braid_replica::{Batch, Kv, RocksKv, RocksOptions};
    use std::path::PathBuf;

    /// A directory that goes away with the test.
    struct Scratch(PathBuf);

    impl Scratch {
        fn new(name: &str) -> Self {
            let path = std::env::temp_dir().join(format!("braid-replica-{name}-{}", std::process::id()));
            let _ = std::fs::remove_dir_all(&path); // left over from a killed run
            Self(path)
        }

        fn open(&self) -> braid_base::Result<RocksKv> {
            RocksKv::open(&self.0, RocksOptions::default())
        }
    }

    impl Drop for Scratch {
        fn drop(&mut self) {
            let _ = std::fs::remove_dir_all(&self.0);
        }
    }

    #[test]
    fn equals_a_map_over_flushes_and_reopening() {
        let scratch = Scratch::new("model");
        let (mut chance, mut plain) = (Chance(4711), Plain::new());
        let mut kv = scratch.open().expect("a fresh directory");
        for step in 0..3000 {
            match chance.below(40) {
                0 => kv.flush().expect("writable"),
                1 if step % 7 == 0 => {
                    kv.flush().expect("writable");
                    drop(kv);
                    kv = scratch.open().expect("closed in order");
                }
                2..12 => check_scans(&kv, &plain, &mut chance),
                _ => {
                    let batch = chance.batch();
                    kv.apply(&batch).expect("writable");
                    apply_plain(&mut plain, &batch);
                }
            }
            let key = chance.key();
            assert_eq!(kv.get(&key).expect("readable"), plain.get(&key).cloned());
        }
    }

    #[test]
    fn a_copy_taken_at_any_time_holds_a_prefix_of_the_batches() {
        let (scratch, copy) = (Scratch::new("live"), Scratch::new("copy"));
        let kv = scratch.open().expect("a fresh directory");
        let put = |n: u64| {
            let mut batch = Batch::new();
            batch.put(b"\0\0a", n.to_le_bytes()).put(b"\0\0z", n.to_le_bytes());
            kv.apply(&batch).expect("writable");
        };
        (0..10).for_each(put);
        kv.flush().expect("writable");
        (10..20).for_each(put);
        std::fs::create_dir_all(&copy.0).expect("temporary directory");
        for file in std::fs::read_dir(&scratch.0).expect("there").flatten() {
            std::fs::copy(file.path(), copy.0.join(file.file_name())).expect("temporary directory");
        }
        let crashed = copy.open().expect("a crash image opens");
        let value = crashed.get(b"\0\0a").expect("readable");
        assert_eq!(value, crashed.get(b"\0\0z").expect("readable"), "batches are atomic");
        assert_eq!(value, Some(9u64.to_le_bytes().to_vec()), "back to the flush: there is no second log");
    }

    #[test]
    fn errors_name_the_directory_and_the_way_out() {
        let scratch = Scratch::new("errors");
        let kv = scratch.open().expect("a fresh directory");
        let held = scratch.open().err().expect("one process at a time");
        assert_eq!(held.kind(), ErrorKind::Refused);
        let mut batch = Batch::new();
        batch.put(b"k", vec![1; 5000]);
        kv.apply(&batch).expect("writable");
        kv.flush().expect("writable");
        drop(kv);
        for file in std::fs::read_dir(&scratch.0).expect("there").flatten() {
            if file.path().extension().is_some_and(|e| e == "sst") {
                std::fs::remove_file(file.path()).expect("there");
            }
        }
        let lost = scratch.open().err().expect("a table file is gone");
        assert_eq!(lost.kind(), ErrorKind::Corrupt, "{lost}");
        let path = scratch.0.display().to_string();
        assert!(lost.message().contains(&format!("mv {path} {path}.damaged")), "{lost}");
        assert!(!lost.message().contains('\n'), "one line: {lost}");
    }

    #[test]
    fn nothing_begins_anew_over_the_remains_of_a_database() {
        let scratch = Scratch::new("remains");
        let kv = scratch.open().expect("a fresh directory");
        let mut batch = Batch::new();
        batch.put(b"k", vec![1; 5000]);
        kv.apply(&batch).expect("writable");
        kv.flush().expect("writable");
        drop(kv);
        let names = || {
            let files = std::fs::read_dir(&scratch.0).expect("there").flatten();
            let mut names: Vec<_> = files.filter_map(|f| f.file_name().into_string().ok()).collect();
            names.retain(|name| name.ends_with(".sst") || name.starts_with("MANIFEST"));
            names.sort();
            names
        };
        std::fs::remove_file(scratch.0.join("CURRENT")).expect("there");
        let before = names();
        let lost = scratch.open().err().expect("the file that names the others is gone");
        assert_eq!(lost.kind(), ErrorKind::Corrupt, "{lost}");
        assert!(lost.message().contains(".damaged"), "{lost}");
        assert_eq!(names(), before, "nothing was deleted");
    }

    #[test]
    fn damage_met_while_reading_is_kept_for_status() {
        let scratch = Scratch::new("damage");
        let kv = scratch.open().expect("a fresh directory");
        let mut batch = Batch::new();
        for i in 0..2000u32 {
            batch.put(i.to_be_bytes(), i.to_le_bytes().repeat(64));
        }
        kv.apply(&batch).expect("writable");
        kv.flush().expect("writable");
        drop(kv);
        for file in std::fs::read_dir(&scratch.0).expect("there").flatten() {
            if file.path().extension().is_some_and(|e| e == "sst") {
                let mut bytes = std::fs::read(file.path()).expect("readable");
                bytes[100..200].fill(0x5A);
                std::fs::write(file.path(), bytes).expect("writable");
            }
        }
        let kv = scratch.open().expect("sizes and the ends of the files are as they were");
        assert!(kv.damage().is_none(), "nothing met yet");
        let met = kv.get(&0u32.to_be_bytes()).expect_err("the first block is bad");
        assert_eq!(met.kind(), ErrorKind::Corrupt);
        let kept = kv.damage().expect("kept");
        assert_eq!(kept.message(), met.message());
        assert!(kept.message().contains(".damaged"), "{kept}");
        assert!(kv.get(&1999u32.to_be_bytes()).expect("another block").is_some());
    }
}
