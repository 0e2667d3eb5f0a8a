//! Reads: only what was written, only if it is what was written.

use braid_base::crc::crc32c;
use braid_base::limits::BLOCK;
use braid_base::msg::drive::{DriveReply, ShardId};
use braid_base::{Error, ErrorKind, Result};
use braid_io::reactor::IoDone;
use bytes::Bytes;

use super::{Effect, Flight, OpToken, Parked, Target, block_at};
use crate::layout::SlotNo;
use crate::table::{Known, Table};

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
                Known::Suspect => false,
                Known::Nothing | Known::Pending => continue,
            };
            match runs.last_mut() {
                Some((first, count, same)) if *first + *count == block && *same == sure => *count += 1,
                _ => runs.push((block, 1, sure)),
            }
        }
        self.reply(token, Ok(DriveReply::Written(runs)), out);
    }

    /// True if the slot's checksums are in memory; else their reading has begun.
    pub(super) fn table_ready(&mut self, slot: SlotNo, out: &mut Vec<Effect>) -> bool {
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
        self.loading.remove(&slot);
        match whole(result, self.layout().table_bytes() / BLOCK) {
            Ok(bytes) => {
                let table = Table::decode(&bytes, &self.life(slot));
                self.tables.insert(slot, table);
                self.resume(slot, out);
            }
            Err(error) => {
                for parked in self.parked.remove(&slot).unwrap_or_default() {
                    let token = match parked {
                        Parked::Put(ask) => ask.token,
                        Parked::Read(ask) => ask.token,
                        Parked::Written(token, _) => token,
                    };
                    self.reply(token, Err(error.clone()), out);
                }
            }
        }
        self.unpin(slot, out);
    }

    /// The checksums of the blocks asked for, if all of them are written.
    fn written(&mut self, slot: SlotNo, ask: Ask) -> Result<Vec<u32>> {
        let name = self.name();
        let table = self.tables.get(slot).expect("the caller saw that the table is here");
        let crc_of = |block: u16| match table.known(block) {
            Known::Written(crc) => Ok(crc),
            Known::Nothing | Known::Pending => {
                let words = format!("{name}: block {block} of {}.{} was never written", ask.id.pack, ask.id.shard);
                Err(Error::new(ErrorKind::Invalid, words))
            }
            Known::Suspect => {
                let words = format!(
                    "{name}: block {block} of {}.{}: a checksum page was lost, it may have been written",
                    ask.id.pack, ask.id.shard
                );
                Err(Error::new(ErrorKind::Corrupt, words))
            }
        };
        (ask.block..ask.block + ask.count).map(crc_of).collect()
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
