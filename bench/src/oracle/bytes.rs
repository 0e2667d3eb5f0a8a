//! Bytes: overwrites, appends and large writes, some followed by fsync.

use super::log::{Line, Log};
use crate::Outcome;
use crate::chance::{Chance, pattern, pattern_byte};
use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

/// How a worker writes.
#[derive(Clone, Copy)]
pub struct Shape {
    files: u64,
    file_bytes: u64,
    /// Offsets and lengths are multiples of this.
    align: u64,
    write_bytes_max: u64,
    /// Writes up to this many between two fsyncs.
    writes_per_sync_max: u64,
}

/// A database: whole blocks, here and there, often synced.
pub const BLOCKS: Shape =
    Shape { files: 2, file_bytes: 1 << 20, align: 4096, write_bytes_max: 4096, writes_per_sync_max: 4 };
/// Anything: odd offsets, odd lengths.
pub const ODD: Shape =
    Shape { files: 4, file_bytes: 300_000, align: 1, write_bytes_max: 20_000, writes_per_sync_max: 8 };
/// A checkpoint: large writes that go to the drives, not into the log.
pub const LARGE: Shape =
    Shape { files: 1, file_bytes: 16 << 20, align: 65_536, write_bytes_max: 2 << 20, writes_per_sync_max: 4 };

/// Writes until `stop`; the operations that were acknowledged.
pub fn work(shape: Shape, dir: &Path, log: &mut Log, seed: u64, stop: &AtomicBool) -> Outcome<u64> {
    let mut chance = Chance::new(seed);
    log.operation("mkdir", || {
        fs::create_dir_all(dir)?;
        File::open(dir)?.sync_all()
    })?;
    let mut files = Vec::new();
    for number in 0..shape.files {
        let path = dir.join(number.to_string());
        files.push(log.operation(&format!("create {number}"), || {
            let file = OpenOptions::new().create_new(true).read(true).write(true).open(&path)?;
            file.sync_all()?;
            File::open(dir)?.sync_all()?;
            Ok(file)
        })?);
    }
    let mut generation = 0;
    while !stop.load(Ordering::Relaxed) {
        let number = chance.below(shape.files);
        let file = files.get(usize::try_from(number).unwrap_or(0)).ok_or("no file")?;
        for _ in 0..=chance.below(shape.writes_per_sync_max) {
            generation += 1;
            let (offset, len) = place(shape, &mut chance);
            let bytes = pattern(generation, offset, len);
            let what = format!("write {number} {offset} {len} {generation}");
            log.operation(&what, || file.write_all_at(&bytes, offset))?;
        }
        // Both kinds of promise; here they mean the same, because every write may change the size.
        let data_only = chance.below(2) == 0;
        log.operation(&format!("sync {number}"), || if data_only { file.sync_data() } else { file.sync_all() })?;
    }
    Ok(log.operations())
}

fn place(shape: Shape, chance: &mut Chance) -> (u64, u64) {
    let units = shape.file_bytes / shape.align;
    let first = chance.below(units);
    let room = (units - first).min(shape.write_bytes_max / shape.align);
    (first * shape.align, (1 + chance.below(room)) * shape.align)
}

/// What a file may hold.
#[derive(Default)]
struct Model {
    /// For each byte the generation that was synced last; 0 = a hole.
    synced: Vec<u64>,
    /// Writes since: each byte of them may be there or not.
    loose: Vec<Write>,
}

#[derive(Clone, Copy)]
struct Write {
    offset: u64,
    len: u64,
    generation: u64,
}

/// Compares every file below `dir` with what the log promises.
pub fn check(dir: &Path, lines: &[Line]) -> Outcome<()> {
    let mut models: BTreeMap<u64, Model> = BTreeMap::new();
    for line in lines {
        apply(&mut models, line)?;
    }
    for (number, model) in &models {
        let path = dir.join(number.to_string());
        let found = fs::read(&path).map_err(|error| format!("{}: {error}", path.display()))?;
        compare(model, &found).map_err(|violation| format!("file {number}: {violation}"))?;
    }
    Ok(())
}

fn apply(models: &mut BTreeMap<u64, Model>, line: &Line) -> Outcome<()> {
    match (line.words[0].as_str(), line.done) {
        ("create", true) => {
            models.insert(line.number(1)?, Model::default());
        }
        ("write", _) => {
            let write = Write { offset: line.number(2)?, len: line.number(3)?, generation: line.number(4)? };
            models.get_mut(&line.number(1)?).ok_or("a write before its create")?.loose.push(write);
        }
        ("sync", true) => models.get_mut(&line.number(1)?).ok_or("a sync before its create")?.settle(),
        // A create or sync that was not acknowledged promises nothing.
        ("mkdir" | "create" | "sync", _) => {}
        (other, _) => return Err(format!("the log has an unknown operation '{other}'")),
    }
    Ok(())
}

impl Model {
    fn settle(&mut self) {
        for write in self.loose.drain(..) {
            let (from, to) = (index(write.offset), index(write.offset + write.len));
            if self.synced.len() < to {
                self.synced.resize(to, 0);
            }
            self.synced[from..to].fill(write.generation);
        }
    }
}

fn index(offset: u64) -> usize {
    usize::try_from(offset).unwrap_or(usize::MAX)
}

fn compare(model: &Model, found: &[u8]) -> Outcome<()> {
    let len_max = model.loose.iter().map(|write| index(write.offset + write.len)).max().unwrap_or(0);
    if found.len() < model.synced.len() || found.len() > len_max.max(model.synced.len()) {
        return Err(format!(
            "{} bytes long, synced up to {}, written up to {len_max}",
            found.len(),
            model.synced.len()
        ));
    }
    for (byte, offset) in found.iter().zip(0_u64..) {
        let synced = model.synced.get(index(offset)).copied().unwrap_or(0);
        let expected = if synced == 0 { 0 } else { pattern_byte(synced, offset) };
        if *byte != expected && !is_loose(model, *byte, offset) {
            return Err(format!("byte {offset} is {byte:#04x}, synced was {expected:#04x} (write {synced})"));
        }
    }
    Ok(())
}

fn is_loose(model: &Model, byte: u8, offset: u64) -> bool {
    let covers = |write: &&Write| (write.offset..write.offset + write.len).contains(&offset);
    model.loose.iter().filter(covers).any(|write| pattern_byte(write.generation, offset) == byte)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn model(synced: &[Write], loose: &[Write]) -> Model {
        let mut model = Model { synced: Vec::new(), loose: synced.to_vec() };
        model.settle();
        model.loose = loose.to_vec();
        model
    }

    #[test]
    fn synced_bytes_must_be_there_and_loose_ones_may() {
        let old = Write { offset: 0, len: 100, generation: 1 };
        let new = Write { offset: 50, len: 100, generation: 2 };
        let model = model(&[old], &[new]);
        let before = pattern(1, 0, 100);
        let after = [pattern(1, 0, 50), pattern(2, 50, 100)].concat();
        assert_eq!(compare(&model, &before), Ok(()));
        assert_eq!(compare(&model, &after), Ok(()));
        assert!(compare(&model, &before[..99]).is_err(), "a lost tail");
        assert!(compare(&model, &[after.clone(), vec![0]].concat()).is_err(), "a byte nobody wrote");
        let mut wrong = before;
        wrong[10] ^= 1;
        assert!(compare(&model, &wrong).is_err(), "a changed byte");
    }

    #[test]
    fn a_hole_reads_as_zeros() {
        let model = model(&[Write { offset: 10, len: 5, generation: 3 }], &[]);
        let whole = [vec![0; 10], pattern(3, 10, 5)].concat();
        assert_eq!(compare(&model, &whole), Ok(()));
        assert!(compare(&model, &pattern(3, 0, 15)).is_err());
    }
}
