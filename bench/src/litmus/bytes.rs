//! Bytes and sizes: written here, read there.

use super::{Check, Found, Pair, same, same_bytes};
use crate::chance::{Chance, pattern};
use crate::map::Map;
use std::error::Error;
use std::fs::{self, File, OpenOptions};
use std::io::Write;
use std::os::unix::fs::FileExt;
use std::path::Path;

pub const CHECKS: &[Check] = &[
    ("write here, read there after close", after_close),
    ("write here, read there after fsync", after_fsync),
    ("write here, read there in a file open all the time", held_open),
    ("append from both", append),
    ("mmap here, read there after msync and close", mapped),
    ("truncate here, stat there", truncate),
];

/// Bytes of one record of [`append`]; odd, so that records cross blocks.
const RECORD: usize = 61;

fn open(path: &Path) -> std::io::Result<File> {
    OpenOptions::new().create(true).truncate(false).read(true).write(true).open(path)
}

fn read_at(file: &File, len: u64) -> std::io::Result<Vec<u8>> {
    let mut bytes = vec![0; usize::try_from(len).unwrap_or(0)];
    file.read_exact_at(&mut bytes, 0)?;
    Ok(bytes)
}

fn after_close(pair: &Pair) -> Found {
    let (here, there) = pair.paths("a");
    let mut chance = Chance::new(1);
    for round in 0..pair.rounds {
        let bytes = pattern(round, 0, 1 + chance.below(300_000));
        fs::write(&here, &bytes)?;
        same_bytes(format!("round {round}"), &fs::read(&there)?, &bytes)?;
    }
    Ok(None)
}

fn after_fsync(pair: &Pair) -> Found {
    let (here, there) = pair.paths("a");
    let (file, mut chance) = (open(&here)?, Chance::new(2));
    for round in 0..pair.rounds {
        let bytes = pattern(round, 0, 1 + chance.below(300_000));
        file.set_len(0)?;
        file.write_all_at(&bytes, 0)?;
        file.sync_all()?;
        same_bytes(format!("round {round}"), &fs::read(&there)?, &bytes)?;
    }
    Ok(None)
}

/// No open, close or fsync in between: only a lease can tell the reader.
fn held_open(pair: &Pair) -> Found {
    const LEN: u64 = 50_000;
    let (here, there) = pair.paths("a");
    let writer = open(&here)?;
    writer.write_all_at(&pattern(0, 0, LEN), 0)?;
    let reader = File::open(&there)?;
    for round in 0..pair.rounds {
        let bytes = pattern(round, 0, LEN);
        writer.write_all_at(&bytes, 0)?;
        same_bytes(format!("round {round}"), &read_at(&reader, LEN)?, &bytes)?;
    }
    Ok(None)
}

fn record(writer: u8, number: u64) -> Vec<u8> {
    let mut bytes = format!("{writer} {number} ").into_bytes();
    bytes.resize(RECORD - 1, b'a' + writer);
    bytes.push(b'\n');
    bytes
}

fn append(pair: &Pair) -> Found {
    let (here, there) = pair.paths("a");
    File::create(&here)?;
    let records = pair.rounds * 10;
    let work = |path: &Path, writer: u8| -> std::io::Result<()> {
        let mut file = OpenOptions::new().append(true).open(path)?;
        (0..records).try_for_each(|number| file.write_all(&record(writer, number)))
    };
    std::thread::scope(|scope| -> Result<(), Box<dyn Error>> {
        let other = scope.spawn(|| work(&there, 1));
        work(&here, 0)?;
        Ok(other.join().map_err(|_| "the other writer panicked")??)
    })?;
    for path in [&here, &there] {
        let found = fs::read(path)?;
        let mut next = [0, 0];
        for (at, bytes) in found.chunks(RECORD).enumerate() {
            let writer = u8::from(bytes.first() == Some(&b'1'));
            let number = next.get_mut(usize::from(writer)).ok_or("no such writer")?;
            same_bytes(format!("record {at}, of writer {writer}"), bytes, &record(writer, *number))?;
            *number += 1;
        }
        same("records of both", next, [records, records])?;
    }
    Ok(None)
}

fn mapped(pair: &Pair) -> Found {
    const LEN: usize = 40_000;
    let (here, there) = pair.paths("a");
    fs::write(&here, vec![0; LEN])?;
    for round in 1..=pair.rounds {
        let bytes = pattern(round, 0, LEN as u64);
        let file = open(&here)?;
        let mut map = Map::new(&file, LEN)?;
        map.store(0, &bytes)?;
        map.sync()?;
        drop((map, file));
        same_bytes(format!("round {round}"), &fs::read(&there)?, &bytes)?;
        let file = open(&there)?;
        same_bytes(format!("round {round}, mapped there"), &Map::new(&file, LEN)?.load(0, LEN)?, &bytes)?;
    }
    Ok(None)
}

fn truncate(pair: &Pair) -> Found {
    let (here, there) = pair.paths("a");
    let (file, mut chance) = (open(&here)?, Chance::new(3));
    let reader = open(&there)?;
    for round in 0..pair.rounds {
        let (longer, shorter) = (100_000 + chance.below(100_000), chance.below(100_000));
        file.write_all_at(&pattern(round, 0, longer), 0)?;
        file.set_len(shorter)?;
        same(format!("length by name, round {round}"), fs::metadata(&there)?.len(), shorter)?;
        same(format!("length by descriptor, round {round}"), reader.metadata()?.len(), shorter)?;
        // What was cut off comes back as zeros.
        file.set_len(longer)?;
        let mut expected = pattern(round, 0, shorter);
        expected.resize(usize::try_from(longer)?, 0);
        same_bytes(format!("content, round {round}"), &fs::read(&there)?, &expected)?;
        file.set_len(0)?;
    }
    Ok(None)
}
