//! The disk of one simulated store: segment files, `replica.meta`, a view; crashes tear the write under way.

use std::collections::{BTreeMap, VecDeque};

use braid_base::Result;
use braid_base::ids::{Guid, PartitionId};

use super::faults::Chance;
use crate::kv::applied::Applied;
use crate::kv::map::MapKv;
use crate::log::meta_file::ReplicaMeta;
use crate::log::recover::{Expect, recover};
use crate::log::writer::{LogWriter, Write};
use crate::log::{LogIdent, LogReader, Segment};
use crate::replica::tail::Tail;

const BLOCK: usize = 4096;
pub const SEGMENT_BYTES: u64 = 256 << 10;
pub const PARTITION: PartitionId = PartitionId(1);

/// Term and operation number: what the checks know an entry by.
pub type Mark = (u64, u64);

pub struct Disk {
    pub ident: LogIdent,
    files: BTreeMap<Segment, Vec<u8>>,
    meta: Vec<u8>,
    pub kv: MapKv,
    queue: VecDeque<(u64, Vec<Write>)>,
}

/// What a store comes back with after a restart.
pub struct Restarted {
    pub meta: ReplicaMeta,
    pub applied: Applied,
    pub tail: Tail,
    pub writer: LogWriter,
    /// All entries of the log, from index 1.
    pub marks: Vec<Mark>,
}

impl Disk {
    pub fn new(store: Guid) -> Self {
        let ident = LogIdent { cluster: Guid([7; 16]), partition: PARTITION, store };
        let mut disk =
            Self { ident, files: BTreeMap::new(), meta: vec![0; 2 * BLOCK], kv: MapKv::new(), queue: VecDeque::new() };
        disk.write_meta(&mut ReplicaMeta::new(ident));
        disk
    }

    pub fn write_meta(&mut self, meta: &mut ReplicaMeta) {
        let (offset, block) = meta.write();
        self.meta[offset as usize..][..BLOCK].copy_from_slice(&block);
    }

    /// Writes that will be durable at the next [`Disk::complete`] but those before them.
    pub fn submit(&mut self, ticket: u64, writes: Vec<Write>) {
        self.queue.push_back((ticket, writes));
    }

    pub fn complete(&mut self) -> Option<u64> {
        let (ticket, writes) = self.queue.pop_front()?;
        writes.iter().for_each(|w| self.put(w, |_| true));
        Some(ticket)
    }

    /// Power is cut: of the writes under way some blocks of the first got through, none of the later ones.
    pub fn crash(&mut self, chance: &mut Chance) {
        if let Some((_, writes)) = self.queue.pop_front() {
            let done = chance.below(writes.len() as u64 + 1) as usize;
            writes[..done].iter().for_each(|w| self.put(w, |_| true));
            if let Some(torn) = writes.get(done) {
                let odds = chance.below(101);
                self.put(torn, |_| chance.below(100) < odds);
            }
        }
        self.queue.clear();
        self.kv.crash();
    }

    pub fn restart(&self) -> Result<Restarted> {
        let meta = ReplicaMeta::read(&self.meta)?.expect("written when the store was made");
        let applied = Applied::read(&self.kv, PARTITION)?;
        let expect = Expect { applied: (applied.term, applied.index), ..Expect::default() };
        let (mut tail, mut marks) = (Tail::new(applied), Vec::new());
        let found = recover(self, &self.ident, expect, &mut |view| {
            marks.push((view.header.term.0, view.ops[0].seq));
            tail.recovered(view)
        })?;
        let mut writer = found.into_writer(SEGMENT_BYTES);
        if tail.cut(meta.cut) {
            let (term, index) = tail.last();
            writer.truncate_after(term, index);
            marks.truncate(index.0 as usize);
        }
        Ok(Restarted { meta, applied, tail, writer, marks })
    }

    fn put(&mut self, write: &Write, mut keep: impl FnMut(usize) -> bool) {
        let file = self.files.entry(write.segment).or_insert_with(|| vec![0; SEGMENT_BYTES as usize]);
        for (i, block) in write.bytes.chunks(BLOCK).enumerate().filter(|(i, _)| keep(*i)) {
            file[write.offset as usize + i * BLOCK..][..BLOCK].copy_from_slice(block);
        }
    }
}

impl LogReader for Disk {
    fn segments(&self) -> Result<Vec<Segment>> {
        Ok(self.files.keys().copied().collect())
    }

    fn read(&self, segment: Segment, offset: u64, len: usize) -> Result<Vec<u8>> {
        let file = &self.files[&segment];
        let from = (offset as usize).min(file.len());
        Ok(file[from..(from + len).min(file.len())].to_vec())
    }
}
