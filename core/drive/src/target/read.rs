//! Reads: only what was written, only if it is what was written.
//!
//! A checksum page that cannot be read costs its own blocks, and no others: of a table that cannot be read at once, each
//! copy of each page is read by itself. What no copy shows that can be read is answered like a block that cannot be read
//! itself, and counts among what is written.

use braid_base::crc::crc32c;
use braid_base::limits::BLOCK;
use braid_base::msg::drive::{DriveReply, ShardId};
use braid_base::{Error, ErrorKind, Result};
use braid_io::reactor::IoDone;
use bytes::Bytes;

use super::{Effect, Flight, OpToken, Parked, Target, block_at};
use crate::layout::SlotNo;
use crate::table::{Known, Table};

/// A table that could not be read whole is read anew after this, if it matters, milliseconds.
const AGAIN_MS: u64 = 1_000;

/// A read asked for.
#[derive(Clone, Copy)]
pub(super) struct Ask {
    pub(super) token: OpToken,
    pub(super) id: ShardId,
    pub(super) block: u16,
    pub(super) count: u16,
}

/// A read under way.
pub(super) struct Reading {
    ask: Ask,
    slot: SlotNo,
    crcs: Vec<u32>,
}

/// The blocks of a table while they are read one by one: those that could be, and how many are on their way.
pub(super) struct Parts {
    blocks: Vec<Option<Bytes>>,
    left: usize,
    why: Error,
}

impl Target {
    pub(super) fn read(&mut self, ask: Ask, out: &mut Vec<Effect>) {
        let found = self.check_range(ask.block, usize::from(ask.count)).and_then(|()| self.find(ask.id));
        let slot = match found {
            Ok(slot) => slot,
            Err(error) => return self.reply(ask.token, Err(error), out),
        };
        if !self.table_ready(slot, out) {
            return self.park(slot, Parked::Read(ask));
        }
        match self.written(slot, ask) {
            Ok(crcs) => {
                let off = self.layout().data(slot, ask.block.into());
                self.pin(slot);
                let token = self.fly(Flight::Read(Reading { ask, slot, crcs }));
                out.push(Effect::Read { token, off, len: usize::from(ask.count) * BLOCK });
            }
            Err(error) => self.reply(ask.token, Err(error), out),
        }
    }

    pub(super) fn read_done(&mut self, reading: Reading, result: Result<IoDone>, out: &mut Vec<Effect>) {
        let Reading { ask, slot, crcs } = reading;
        let answer = whole(result, crcs.len()).and_then(|data| self.verify(ask, &data, &crcs).map(|()| data));
        self.reply(ask.token, answer.map(|data| DriveReply::Data { data, crcs }), out);
        self.unpin(slot, out);
    }

    /// Which blocks of a shard are written.
    pub(super) fn list_written(&mut self, token: OpToken, id: ShardId, out: &mut Vec<Effect>) {
        let slot = match self.find(id) {
            Ok(slot) => slot,
            Err(error) => return self.reply(token, Err(error), out),
        };
        if !self.table_ready(slot, out) {
            return self.park(slot, Parked::Written(token, id));
        }
        let blocks = self.layout().shard_blocks as u16;
        let table = self.tables.get(slot).expect("it is ready");
        let mut runs: Vec<(u16, u16, bool)> = Vec::new();
        for block in 0..blocks {
            let sure = match table.known(block) {
                Known::Written(_) => true,
                Known::Suspect | Known::Unread => false,
                Known::Nothing | Known::Pending => continue,
            };
            match runs.last_mut() {
                Some((first, count, same)) if *first + *count == block && *same == sure => *count += 1,
                _ => runs.push((block, 1, sure)),
            }
        }
        self.reply(token, Ok(DriveReply::Written(runs)), out);
    }

    /// True if the slot's checksums are in memory; else their reading has begun. What could not be read a while ago is read
    /// anew before anybody is told so once more: who hears that blocks are lost may act on it.
    pub(super) fn table_ready(&mut self, slot: SlotNo, out: &mut Vec<Effect>) -> bool {
        let (now_ms, is_pinned) = (self.now.mono_ms, self.slot(slot).pins > 0);
        let is_old =
            |table: &mut Table| table.unread.as_ref().is_some_and(|(since_ms, _)| now_ms >= since_ms + AGAIN_MS);
        if !is_pinned && self.tables.get(slot).is_some_and(is_old) {
            self.tables.remove(slot);
        }
        if self.tables.has(slot) {
            return true;
        }
        if self.loading.insert(slot) {
            self.pin(slot);
            let (off, len) = (self.layout().table(slot), self.layout().table_bytes());
            let token = self.fly(Flight::Table { slot });
            out.push(Effect::Read { token, off, len });
        }
        false
    }

    pub(super) fn table_done(&mut self, slot: SlotNo, result: Result<IoDone>, out: &mut Vec<Effect>) {
        let count = self.layout().table_bytes() / BLOCK;
        match whole(result, count) {
            Ok(bytes) => {
                let blocks: Vec<_> = (0..count).map(|i| Some(bytes.slice(i * BLOCK..(i + 1) * BLOCK))).collect();
                self.table_read(slot, &blocks, None, out);
            }
            Err(why) => {
                self.in_parts.insert(slot, Parts { blocks: vec![None; count], left: count, why });
                let off = self.layout().table(slot);
                for number in 0..count {
                    let token = self.fly(Flight::TableBlock { slot, number });
                    out.push(Effect::Read { token, off: off + (number * BLOCK) as u64, len: BLOCK });
                }
            }
        }
    }

    pub(super) fn table_block_done(
        &mut self,
        (slot, number): (SlotNo, usize),
        result: Result<IoDone>,
        out: &mut Vec<Effect>,
    ) {
        let parts = self.in_parts.get_mut(&slot).expect("they are kept until the last of them ends");
        parts.left -= 1;
        parts.blocks[number] = whole(result, 1).ok();
        if parts.left > 0 {
            return;
        }
        if let Some(Parts { blocks, why, .. }) = self.in_parts.remove(&slot) {
            self.table_read(slot, &blocks, Some(why), out);
        }
    }

    /// The reading of a table has ended; `why`: what went wrong with it.
    fn table_read(&mut self, slot: SlotNo, blocks: &[Option<Bytes>], why: Option<Error>, out: &mut Vec<Effect>) {
        self.loading.remove(&slot);
        let mut table = Table::decode(blocks, &self.life(slot));
        table.unread = why.filter(|_| blocks.contains(&None)).map(|why| (self.now.mono_ms, why));
        self.tables.insert(slot, table);
        self.resume(slot, out);
        self.unpin(slot, out);
    }

    /// `block` is one of those of which nothing is known, because a checksum page cannot be read.
    pub(super) fn unread(&mut self, slot: SlotNo, id: ShardId, block: u16) -> Error {
        let name = self.name();
        let table = self.tables.get(slot).expect("the caller saw that the table is here");
        let why = table.unread.as_ref().map_or(ErrorKind::Io.words(), |(_, why)| why.message());
        let words = format!("{name}: block {block} of {}.{}: a checksum page cannot be read: {why}", id.pack, id.shard);
        Error::new(ErrorKind::Io, words)
    }

    /// The checksums of the blocks asked for, if all of them are written.
    fn written(&mut self, slot: SlotNo, ask: Ask) -> Result<Vec<u32>> {
        let name = self.name();
        let table = self.tables.get(slot).expect("the caller saw that the table is here");
        let blocks = ask.block..ask.block + ask.count;
        if let Some(block) = blocks.clone().find(|block| table.known(*block) == Known::Unread) {
            return Err(self.unread(slot, ask.id, block));
        }
        let crc_of = |block: u16| match table.known(block) {
            Known::Written(crc) => Ok(crc),
            Known::Nothing | Known::Pending => {
                let words = format!("{name}: block {block} of {}.{} was never written", ask.id.pack, ask.id.shard);
                Err(Error::new(ErrorKind::Invalid, words))
            }
            Known::Suspect | Known::Unread => {
                let words = format!(
                    "{name}: block {block} of {}.{}: a checksum page was lost, it may have been written",
                    ask.id.pack, ask.id.shard
                );
                Err(Error::new(ErrorKind::Corrupt, words))
            }
        };
        blocks.map(crc_of).collect()
    }

    fn verify(&mut self, ask: Ask, data: &Bytes, crcs: &[u32]) -> Result<()> {
        let bad = crcs.iter().enumerate().find(|(i, crc)| crc32c(block_at(data, *i)) != **crc);
        let Some((i, crc)) = bad else { return Ok(()) };
        self.corrupt += 1;
        let words = format!(
            "{}: block {} of {}.{}: expected checksum {crc:08x}, found {:08x}",
            self.name(),
            usize::from(ask.block) + i,
            ask.id.pack,
            ask.id.shard,
            crc32c(block_at(data, i))
        );
        Err(Error::new(ErrorKind::Corrupt, words))
    }
}

/// The bytes of a read of `blocks` blocks, all of them.
pub(super) fn whole(result: Result<IoDone>, blocks: usize) -> Result<Bytes> {
    match result? {
        IoDone::Read(bytes) if bytes.len() == blocks * BLOCK => Ok(bytes),
        IoDone::Read(bytes) => {
            let words = format!("expected {} bytes, found {}: did the drive shrink?", blocks * BLOCK, bytes.len());
            Err(Error::new(ErrorKind::Io, words))
        }
        IoDone::Done => unreachable!("reads end with bytes"),
    }
}
