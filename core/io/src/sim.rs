//! A simulated disk: everything that a real one may do to a program, from one seed.
//!
//! 1. `submit` puts an I/O into flight. Nothing has happened yet.
//! 2. `complete_some` ends a random choice of them, in random order. A completed write is seen by reads. If it was
//!    `durable` it is on the medium, else it sits in the volatile cache until a sync, or until the disk feels like it.
//! 3. `crash` loses power: of each write in flight, and of the cache, every 512-byte sector lands or does not.
//!
//! Bit flips, I/O errors and a full disk are asked for by the test. Creating and removing files is durable at
//! once: the real shells sync the directory before they go on.

use std::collections::{BTreeMap, BTreeSet};

use braid_base::limits::BLOCK;
use braid_base::{Error, ErrorKind, Result};
use bytes::Bytes;

use crate::buf::AlignedBuf;
use crate::chance::Rng;
use crate::file::{Create, OpenMode, ReadAt};
use crate::reactor::{FileId, IoDone, IoOp, Token};

/// What a medium writes atomically, bytes.
pub const SECTOR: usize = 512;
const SECTORS_PER_BLOCK: u64 = (BLOCK / SECTOR) as u64;

/// How unreliable the disk is. All zero: it never errs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Faults {
    /// Reads that end with an I/O error, per 10,000.
    pub read_errors: u64,
    /// Writes, syncs and discards that end with an I/O error, per 10,000. Any part of a failed write may have landed.
    pub write_errors: u64,
}

/// What was done so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Reads completed.
    pub reads: u64,
    /// Writes completed.
    pub writes: u64,
    /// Of these, durable ones.
    pub durable_writes: u64,
    /// Bytes written.
    pub bytes_written: u64,
    /// Syncs completed.
    pub syncs: u64,
}

/// Files on one simulated disk.
#[derive(Clone, Default)]
pub struct SimDisk {
    /// How unreliable it is from now on.
    pub faults: Faults,
    /// What was done so far.
    pub counts: Counts,
    files: Vec<SimFile>,
    names: BTreeMap<String, FileId>,
    pending: Vec<(Token, IoOp)>,
    capacity: Option<u64>,
}

type Blocks = BTreeMap<u64, Box<[u8; BLOCK]>>;

#[derive(Clone, Default)]
struct SimFile {
    len: u64,
    /// What reads see. A block that is not here is zero.
    live: Blocks,
    /// What a crash leaves.
    durable: Blocks,
    /// Sectors in which the two may differ.
    dirty: BTreeSet<u64>,
}

impl SimDisk {
    /// An empty disk without limits or faults.
    pub fn new() -> Self {
        Self::default()
    }

    /// Lets the disk hold `bytes` in all: what goes beyond ends with `NoSpace`. `None`: no limit.
    pub fn set_capacity(&mut self, bytes: Option<u64>) {
        self.capacity = bytes;
    }

    /// Opens the file called `name` by the rules of [`crate::file::File::open`]. Ids stay valid over crashes.
    pub fn open(&mut self, name: &str, mode: OpenMode) -> Result<FileId> {
        let found = self.names.get(name).copied();
        match (found, mode.create) {
            (Some(_), Create::New(_)) => Err(Error::new(ErrorKind::Exists, format!("{name} exists already"))),
            (Some(id), _) => Ok(id),
            (None, Create::No) => Err(Error::new(ErrorKind::NotFound, format!("{name} does not exist"))),
            (None, Create::New(bytes) | Create::IfMissing(bytes)) => {
                self.make_room(bytes)?;
                let id = FileId(u32::try_from(self.files.len()).expect("a simulation has few files"));
                self.files.push(SimFile { len: bytes, ..SimFile::default() });
                self.names.insert(name.to_owned(), id);
                Ok(id)
            }
        }
    }

    /// Removes a file; fine if there is none. I/O on its id fails from then on.
    pub fn remove(&mut self, name: &str) {
        if let Some(id) = self.names.remove(name) {
            self.pending.retain(|(_, op)| op.file() != id);
            self.files[id.0 as usize] = SimFile::default();
        }
    }

    /// The files there are.
    pub fn names(&self) -> impl Iterator<Item = (&str, FileId)> {
        self.names.iter().map(|(name, id)| (name.as_str(), *id))
    }

    /// Puts an I/O into flight.
    pub fn submit(&mut self, token: Token, op: IoOp) {
        self.pending.push((token, op));
    }

    /// I/Os in flight.
    pub fn in_flight(&self) -> usize {
        self.pending.len()
    }

    /// Ends a random choice of the I/Os in flight, at least one if there are any, in random order.
    pub fn complete_some(&mut self, rng: &mut Rng) -> Vec<(Token, Result<IoDone>)> {
        if self.pending.is_empty() {
            return Vec::new();
        }
        let count = 1 + rng.index(self.pending.len());
        let done = (0..count).map(|_| self.complete_one(rng)).collect();
        self.write_back_some(rng);
        done
    }

    /// Ends all I/Os in flight, in random order.
    pub fn complete_all(&mut self, rng: &mut Rng) -> Vec<(Token, Result<IoDone>)> {
        (0..self.pending.len()).map(|_| self.complete_one(rng)).collect()
    }

    /// Power is lost and comes back: what was in flight or in the cache is there in part, or not.
    pub fn crash(&mut self, rng: &mut Rng) {
        self.write_back_some(rng);
        self.tear_pending(rng, true);
        for file in &mut self.files {
            file.forget_cache();
        }
    }

    /// The process ends, power stays: what was in flight is there in part, in the cache; reads see it, and only
    /// [`SimDisk::settle`] makes it last.
    pub fn kill(&mut self, rng: &mut Rng) {
        self.tear_pending(rng, false);
    }

    /// Nothing is in flight any more: each write is there in part, in random order.
    fn tear_pending(&mut self, rng: &mut Rng, durable: bool) {
        let mut pending = std::mem::take(&mut self.pending);
        rng.shuffle(&mut pending);
        for (_, op) in pending {
            if let IoOp::Write { file, off, data, .. } = op {
                self.tear(rng, file, off, &data, durable);
            }
        }
    }

    /// Makes durable at once what reads of a file see: the sync of start-up.
    pub fn settle(&mut self, id: FileId) {
        let file = &mut self.files[id.0 as usize];
        for sector in std::mem::take(&mut file.dirty) {
            file.write_back(sector);
        }
    }

    /// Flips one bit of a file's durable and visible bytes.
    pub fn flip(&mut self, id: FileId, byte: u64, bit: u8) {
        let file = &mut self.files[id.0 as usize];
        for image in [&mut file.live, &mut file.durable] {
            let block = image.entry(byte / BLOCK as u64).or_insert_with(zero_block);
            block[(byte % BLOCK as u64) as usize] ^= 1 << (bit % 8);
        }
    }

    /// A file as start-up code reads it: at once, and without faults.
    pub fn view(&self, id: FileId) -> View<'_> {
        View { file: &self.files[id.0 as usize] }
    }

    /// Writes durably at once, without faults: format and repairs of start-up.
    pub fn write_now(&mut self, id: FileId, off: u64, data: &[u8]) {
        let file = &mut self.files[id.0 as usize];
        file.len = file.len.max(off + data.len() as u64);
        put(&mut file.live, off, data);
        put(&mut file.durable, off, data);
    }

    fn complete_one(&mut self, rng: &mut Rng) -> (Token, Result<IoDone>) {
        let (token, op) = self.pending.swap_remove(rng.index(self.pending.len()));
        let errors = if matches!(op, IoOp::Read { .. }) { self.faults.read_errors } else { self.faults.write_errors };
        if rng.chance(errors, 10_000) {
            if let IoOp::Write { file, off, data, .. } = &op {
                self.tear(rng, *file, *off, data, true);
            }
            return (token, Err(Error::new(ErrorKind::Io, "simulated device error")));
        }
        (token, self.carry_out(op))
    }

    fn carry_out(&mut self, op: IoOp) -> Result<IoDone> {
        let id = op.file();
        let index = id.0 as usize;
        if !self.names.values().any(|known| *known == id) {
            return Err(Error::new(ErrorKind::Invalid, format!("file {} is not open here", id.0)));
        }
        match op {
            IoOp::Read { off, len, .. } => {
                self.counts.reads += 1;
                Ok(IoDone::Read(self.files[index].read(off, len)))
            }
            IoOp::Write { off, data, durable, .. } => {
                let bytes: usize = data.iter().map(Bytes::len).sum();
                let end = off + bytes as u64;
                self.make_room(end.saturating_sub(self.files[index].len))?;
                self.counts.writes += 1;
                self.counts.durable_writes += u64::from(durable);
                self.counts.bytes_written += bytes as u64;
                self.files[index].write(off, &data, durable);
                Ok(IoDone::Done)
            }
            IoOp::Sync { .. } => {
                self.counts.syncs += 1;
                self.settle(id);
                Ok(IoDone::Done)
            }
            IoOp::Discard { off, len, .. } => {
                let file = &mut self.files[index];
                let end = (off + len).min(file.len);
                if end > off {
                    file.write(off, &[Bytes::from(vec![0; (end - off) as usize])], true);
                }
                Ok(IoDone::Done)
            }
        }
    }

    fn make_room(&self, more: u64) -> Result<()> {
        let used: u64 = self.files.iter().map(|file| file.len).sum();
        match self.capacity {
            Some(capacity) if more > 0 && used + more > capacity => {
                Err(Error::new(ErrorKind::NoSpace, format!("the simulated disk of {capacity} bytes is full")))
            }
            _ => Ok(()),
        }
    }

    /// Some, all or none of a write's sectors land: on the medium, or in its cache.
    fn tear(&mut self, rng: &mut Rng, id: FileId, off: u64, data: &[Bytes], durable: bool) {
        let mode = rng.below(3);
        let file = &mut self.files[id.0 as usize];
        let whole: Vec<u8> = data.concat();
        let mut at = 0;
        while at < whole.len() {
            // Sectors are cut on the medium's grid, not on the write's.
            let step = SECTOR - ((off as usize + at) % SECTOR);
            let end = (at + step).min(whole.len());
            if mode == 0 || (mode == 1 && rng.chance(1, 2)) {
                file.write(off + at as u64, &[Bytes::copy_from_slice(&whole[at..end])], durable);
            }
            at = end;
        }
    }

    /// The cache moves a random part of itself to the medium.
    fn write_back_some(&mut self, rng: &mut Rng) {
        for file in &mut self.files {
            let chosen: Vec<u64> = file.dirty.iter().copied().filter(|_| rng.chance(1, 4)).collect();
            for sector in chosen {
                file.write_back(sector);
            }
        }
    }
}

impl SimFile {
    fn read(&self, off: u64, len: usize) -> Bytes {
        let end = (off + len as u64).min(self.len);
        let mut out = AlignedBuf::zeroed(end.saturating_sub(off) as usize);
        let mut at = 0;
        while at < out.len() {
            let (block, skip) = split(off + at as u64);
            let n = (BLOCK - skip).min(out.len() - at);
            if let Some(bytes) = self.live.get(&block) {
                out[at..at + n].copy_from_slice(&bytes[skip..skip + n]);
            }
            at += n;
        }
        out.into_bytes()
    }

    fn write(&mut self, off: u64, data: &[Bytes], durable: bool) {
        let mut at = off;
        for piece in data {
            put(&mut self.live, at, piece);
            if durable {
                put(&mut self.durable, at, piece);
            }
            at += piece.len() as u64;
        }
        self.len = self.len.max(at);
        if at > off && !durable {
            self.dirty.extend(off / SECTOR as u64..=(at - 1) / SECTOR as u64);
        }
    }

    fn write_back(&mut self, sector: u64) {
        let from = (sector % SECTORS_PER_BLOCK) as usize * SECTOR;
        if let Some(block) = self.live.get(&(sector / SECTORS_PER_BLOCK)) {
            put(&mut self.durable, sector * SECTOR as u64, &block[from..from + SECTOR]);
        }
        self.dirty.remove(&sector);
    }

    fn forget_cache(&mut self) {
        for sector in std::mem::take(&mut self.dirty) {
            let block = sector / SECTORS_PER_BLOCK;
            match self.durable.get(&block) {
                Some(bytes) => self.live.insert(block, bytes.clone()),
                None => self.live.remove(&block),
            };
        }
    }
}

/// A simulated file, read at once.
#[derive(Clone, Copy)]
pub struct View<'a> {
    file: &'a SimFile,
}

impl ReadAt for View<'_> {
    fn size(&self) -> Result<u64> {
        Ok(self.file.len)
    }

    fn read_many(&self, ranges: &[(u64, usize)]) -> Vec<Result<Bytes>> {
        let read = |&(off, len): &(u64, usize)| {
            let bytes = self.file.read(off, len);
            if bytes.len() == len {
                return Ok(bytes);
            }
            let words = format!("expected {len} bytes at {off}, found only {}", bytes.len());
            Err(Error::new(ErrorKind::Io, words))
        };
        ranges.iter().map(read).collect()
    }
}

fn split(byte: u64) -> (u64, usize) {
    (byte / BLOCK as u64, (byte % BLOCK as u64) as usize)
}

fn zero_block() -> Box<[u8; BLOCK]> {
    Box::new([0; BLOCK])
}

fn put(image: &mut Blocks, off: u64, data: &[u8]) {
    let mut at = 0;
    while at < data.len() {
        let (block, skip) = split(off + at as u64);
        let n = (BLOCK - skip).min(data.len() - at);
        let bytes = image.entry(block).or_insert_with(zero_block);
        bytes[skip..skip + n].copy_from_slice(&data[at..at + n]);
        at += n;
    }
}

#[cfg(test)]
mod tests {
    use super::{Faults, IoDone, IoOp, OpenMode, ReadAt, SECTOR, SimDisk, Token};
    use crate::chance::Rng;
    use braid_base::ErrorKind;
    use bytes::Bytes;

    fn write(file: crate::reactor::FileId, off: u64, byte: u8, len: usize, durable: bool) -> IoOp {
        IoOp::Write { file, off, data: vec![Bytes::from(vec![byte; len])], durable }
    }

    #[test]
    fn what_a_crash_keeps_and_what_it_may_lose() {
        let (mut kept_cache, mut lost_cache, mut torn) = (0, 0, 0);
        for seed in 0..200 {
            let mut rng = Rng::new(seed);
            let mut disk = SimDisk::new();
            let file = disk.open("a", OpenMode::new_file(64 << 10)).expect("made");
            disk.submit(Token(1), write(file, 0, 1, 4096, true));
            disk.submit(Token(2), write(file, 4096, 2, 4096, false));
            assert_eq!(disk.complete_all(&mut rng).len(), 2);
            assert_eq!(disk.view(file).read_at(4096, 1).expect("read")[0], 2, "completed writes are seen");
            disk.submit(Token(3), write(file, 8192, 3, 4096, true));
            disk.crash(&mut rng);
            let all = disk.view(file).read_at(0, 12288).expect("read");
            assert!(all[..4096].iter().all(|b| *b == 1), "durable at completion");
            match all[4096] {
                2 => kept_cache += 1,
                0 => lost_cache += 1,
                other => panic!("found {other}"),
            }
            let sectors: Vec<u8> = all[8192..].chunks(SECTOR).map(|s| s[0]).collect();
            assert!(all[8192..].chunks(SECTOR).all(|s| s.iter().all(|b| *b == s[0])), "sectors are whole");
            torn += usize::from(sectors.contains(&3) && sectors.contains(&0));
        }
        assert!(kept_cache > 0 && lost_cache > 0 && torn > 0, "{kept_cache} {lost_cache} {torn}");
    }

    #[test]
    fn sync_errors_flips_and_the_end_of_space() {
        let mut rng = Rng::new(1);
        let mut disk = SimDisk::new();
        disk.set_capacity(Some(8192));
        let file = disk.open("a", OpenMode::new_file(4096)).expect("made");
        assert_eq!(disk.open("b", OpenMode::new_file(8192)).expect_err("full").kind(), ErrorKind::NoSpace);
        disk.submit(Token(1), write(file, 0, 1, 8192, false));
        disk.complete_all(&mut rng);
        disk.submit(Token(2), IoOp::Sync { file });
        disk.complete_all(&mut rng);
        disk.crash(&mut rng);
        assert_eq!(disk.view(file).read_at(0, 8192).expect("read"), vec![1; 8192]);
        disk.submit(Token(3), write(file, 8192, 1, 1, true));
        let full = disk.complete_some(&mut rng).pop().expect("one").1.expect_err("full");
        assert_eq!(full.kind(), ErrorKind::NoSpace);
        disk.flip(file, 5000, 3);
        assert_eq!(disk.view(file).read_at(5000, 1).expect("read")[0], 1 ^ 8);
        disk.faults = Faults { read_errors: 10_000, write_errors: 0 };
        disk.submit(Token(4), IoOp::Read { file, off: 0, len: 1 });
        assert_eq!(disk.complete_some(&mut rng)[0].1.as_ref().expect_err("fault").kind(), ErrorKind::Io);
        disk.faults = Faults::default();
        disk.submit(Token(5), IoOp::Read { file, off: 8190, len: 10 });
        assert_eq!(disk.complete_some(&mut rng)[0].1, Ok(IoDone::Read(Bytes::from(vec![1; 2]))));
    }
}
