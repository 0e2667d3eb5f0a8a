//! Writes: each block once, data and checksum page together, durable before the answer.
//!
//! 1. The caller's checksums are compared with the data: what was damaged on the way is never written.
//! 2. Blocks that are written already must be the same bytes; they are read and compared.
//! 3. The rest is marked in the checksum page, and data and page are written at the same time.
//! 4. One sync makes durable all that was written since the last one (group commit). Until a page is durable, its
//!    other copy is not touched: further puts collect for its next write.
//! 5. Then readers see the blocks and the callers get their answers.
//!
//! A crash leaves a checksum without data (a mismatch on a block that was never acknowledged) or data without a
//! checksum (never written). Blocks acknowledged before lie in the other copy of the page, which was not touched.

use std::collections::BTreeSet;

use braid_base::crc::{block_crcs, crc32c};
use braid_base::limits::BLOCK;
use braid_base::msg::drive::{DriveReply, ShardId};
use braid_base::{Error, ErrorKind, Result};
use braid_io::reactor::IoDone;
use bytes::Bytes;

use super::read::whole;
use super::{Effect, Flight, OpToken, Parked, Target, block_at};
use crate::layout::SlotNo;
use crate::table::{Known, PutNo, place};

/// A put asked for; its checksums match its data.
pub(super) struct Ask {
    pub(super) token: OpToken,
    id: ShardId,
    block: u16,
    crcs: Vec<u32>,
    data: Bytes,
    /// What the comparison said about each block.
    seen: Vec<Seen>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Seen {
    /// Not compared.
    No,
    /// On the disk as it is here.
    Same,
    /// Marked written with this checksum, but the data never arrived or rotted: to be written (again).
    Lost,
}

/// A put under way.
pub(super) struct Put {
    token: OpToken,
    slot: SlotNo,
    /// The blocks that readers see when it is done.
    fresh: Vec<u16>,
    /// Writes not yet ended.
    left: usize,
    failed: Option<Error>,
}

/// What one sync makes durable.
#[derive(Default)]
pub(super) struct Group {
    /// Puts of which everything is written.
    puts: Vec<PutNo>,
    pages: Vec<(SlotNo, usize)>,
}

impl Ask {
    /// Takes a message; `Invalid` if its parts do not fit each other, `Corrupt` if it was damaged on the way.
    pub(super) fn check(token: OpToken, id: ShardId, block: u16, crcs: Vec<u32>, data: Bytes) -> Result<Self> {
        if !data.len().is_multiple_of(BLOCK) || crcs.len() != data.len() / BLOCK {
            let words = format!(
                "expected whole blocks of {BLOCK} bytes and a checksum for each, found {} bytes and {} checksums",
                data.len(),
                crcs.len()
            );
            return Err(Error::new(ErrorKind::Invalid, words));
        }
        if block_crcs(&data) != crcs {
            let words = "the data does not match the caller's checksums: it was damaged on the way; send it again";
            return Err(Error::new(ErrorKind::Corrupt, words));
        }
        let seen = vec![Seen::No; crcs.len()];
        Ok(Self { token, id, block, crcs, data, seen })
    }

    fn blocks(&self) -> impl Iterator<Item = (usize, u16)> + use<> {
        // The range was checked against the shard, which has fewer than 2^16 blocks.
        let first = self.block;
        (0..self.crcs.len()).map(move |i| (i, first + i as u16))
    }
}

/// What to do with a put.
enum Plan {
    /// Another put of one of its blocks is under way.
    Wait,
    /// Some blocks are there: compare.
    Compare,
    /// A block holds other bytes.
    Differs(u16),
    /// Nobody knows what a block holds.
    Unread(u16),
    /// Write the blocks with these indexes; those marked true are new.
    Write(Vec<(usize, bool)>),
}

impl Target {
    pub(super) fn put(&mut self, ask: Ask, out: &mut Vec<Effect>) {
        let found = self
            .check_range(ask.block, ask.crcs.len())
            .and_then(|()| self.find(ask.id))
            .and_then(|slot| if self.slots[slot.0 as usize].poisoned { Err(self.broken(slot)) } else { Ok(slot) });
        let slot = match found {
            Ok(slot) => slot,
            Err(error) => return self.reply(ask.token, Err(error), out),
        };
        if !self.table_ready(slot, out) {
            return self.park(slot, Parked::Put(ask));
        }
        match self.plan(slot, &ask) {
            Plan::Wait => self.park(slot, Parked::Put(ask)),
            Plan::Compare => {
                let (off, len) = (self.layout().data(slot, ask.block.into()), ask.data.len());
                self.pin(slot);
                let token = self.fly(Flight::Compare { slot, ask });
                out.push(Effect::Read { token, off, len });
            }
            Plan::Differs(block) => {
                let error = self.differs(ask.id, block);
                self.reply(ask.token, Err(error), out);
            }
            Plan::Unread(block) => {
                let error = self.unread(slot, ask.id, block);
                self.reply(ask.token, Err(error), out);
            }
            Plan::Write(blocks) if blocks.is_empty() => self.reply(ask.token, Ok(DriveReply::Done), out),
            Plan::Write(blocks) => self.launch(slot, &ask, &blocks, out),
        }
    }

    fn plan(&mut self, slot: SlotNo, ask: &Ask) -> Plan {
        let table = self.tables.get(slot).expect("the caller saw that the table is here");
        let mut writes = Vec::new();
        let mut compare = false;
        for (i, block) in ask.blocks() {
            match table.known(block) {
                Known::Pending => return Plan::Wait,
                Known::Unread => return Plan::Unread(block),
                Known::Nothing | Known::Suspect => writes.push((i, true)),
                Known::Written(crc) if crc != ask.crcs[i] => return Plan::Differs(block),
                Known::Written(_) => match ask.seen[i] {
                    Seen::No => compare = true,
                    Seen::Same => {}
                    Seen::Lost => writes.push((i, false)),
                },
            }
        }
        if compare { Plan::Compare } else { Plan::Write(writes) }
    }

    pub(super) fn compare_done(&mut self, slot: SlotNo, mut ask: Ask, result: Result<IoDone>, out: &mut Vec<Effect>) {
        match whole(result, ask.crcs.len()) {
            Ok(found) => {
                for (i, _) in ask.blocks() {
                    let there = block_at(&found, i);
                    ask.seen[i] = if there == block_at(&ask.data, i) {
                        Seen::Same
                    } else if crc32c(there) == ask.crcs[i] {
                        // Other bytes with the same checksum: leave the comparison open, so that the answer below
                        // is about this block.
                        let error = self.differs(ask.id, ask.block + i as u16);
                        self.reply(ask.token, Err(error), out);
                        return self.unpin(slot, out);
                    } else {
                        Seen::Lost
                    };
                }
                self.put(ask, out);
            }
            Err(error) => self.reply(ask.token, Err(error), out),
        }
        self.unpin(slot, out);
    }

    fn launch(&mut self, slot: SlotNo, ask: &Ask, blocks: &[(usize, bool)], out: &mut Vec<Effect>) {
        self.pin(slot);
        self.next += 1;
        let number = PutNo(self.next);
        let mut put = Put { token: ask.token, slot, fresh: Vec::new(), left: 0, failed: None };
        let mut pages = BTreeSet::new();
        let table = self.tables.get(slot).expect("the caller saw that the table is here");
        for &(i, new) in blocks {
            let block = ask.block + i as u16;
            if new {
                table.begin(block, ask.crcs[i]);
                put.fresh.push(block);
                pages.insert(place(block).0);
            }
        }
        for run in blocks.chunk_by(|a, b| a.0 + 1 == b.0) {
            let (first, count) = (run[0].0, run.len());
            let off = self.layout().data(slot, u32::from(ask.block) + first as u32);
            let data = ask.data.slice(first * BLOCK..(first + count) * BLOCK);
            let token = self.fly(Flight::Data { put: number });
            out.push(Effect::Write { token, off, data, durable: false });
            put.left += 1;
        }
        put.left += pages.len();
        self.puts.insert(number, put);
        for page in pages {
            let sheet = self.tables.get(slot).expect("pinned tables stay").sheet(page);
            sheet.waiting.push(number);
            if !sheet.writing {
                self.write_page(slot, page, out);
            }
        }
    }

    /// Writes a page with everything that is marked in it so far.
    fn write_page(&mut self, slot: SlotNo, page: usize, out: &mut Vec<Effect>) {
        self.pin(slot);
        let life = self.life(slot);
        let sheet = self.tables.get(slot).expect("pinned tables stay").sheet(page);
        assert!(!sheet.writing && sheet.riders.is_empty(), "one write of a page at a time");
        sheet.writing = true;
        sheet.riders = std::mem::take(&mut sheet.waiting);
        sheet.page.seq += 1;
        let side = sheet.side.other();
        // A slot has at most 18 pages.
        let data = sheet.page.encode(page as u16, &life);
        let off = self.layout().page(slot, page, side);
        let token = self.fly(Flight::Page { slot, page });
        out.push(Effect::Write { token, off, data, durable: false });
    }

    pub(super) fn page_done(&mut self, slot: SlotNo, page: usize, result: Result<IoDone>, out: &mut Vec<Effect>) {
        let riders = std::mem::take(&mut self.tables.get(slot).expect("pinned tables stay").sheet(page).riders);
        for put in riders {
            self.put_part_done(put, result.clone().map(drop), out);
        }
        match result {
            Ok(_) => self.written.pages.push((slot, page)),
            Err(error) => self.page_free(slot, page, Err(error), out),
        }
    }

    /// A page is durable, or its write or sync failed: its next write may begin.
    fn page_free(&mut self, slot: SlotNo, page: usize, result: Result<()>, out: &mut Vec<Effect>) {
        let poisoned = self.slot(slot).poisoned;
        let sheet = self.tables.get(slot).expect("pinned tables stay").sheet(page);
        sheet.writing = false;
        if result.is_ok() {
            sheet.side = sheet.side.other();
        }
        // After a failed write the state of that copy is unknown: nothing more is written onto it.
        let stranded = if result.is_err() || poisoned { std::mem::take(&mut sheet.waiting) } else { Vec::new() };
        if !sheet.waiting.is_empty() {
            self.write_page(slot, page, out);
        }
        let why = result.err().unwrap_or_else(|| self.broken(slot));
        for put in stranded {
            self.put_part_done(put, Err(why.clone()), out);
        }
        self.unpin(slot, out);
    }

    /// One of a put's writes has ended.
    fn put_part_done(&mut self, number: PutNo, result: Result<()>, out: &mut Vec<Effect>) {
        let put = self.puts.get_mut(&number).expect("a put lives until its last write ends");
        put.left -= 1;
        let (slot, left) = (put.slot, put.left);
        if let Err(error) = result {
            put.failed.get_or_insert(error);
            self.slot(slot).poisoned = true;
        }
        if left == 0 {
            match self.puts[&number].failed.is_some() {
                true => self.finish(number, out),
                false => self.written.puts.push(number),
            }
        }
    }

    pub(super) fn data_done(&mut self, number: PutNo, result: Result<IoDone>, out: &mut Vec<Effect>) {
        self.put_part_done(number, result.map(drop), out);
    }

    /// Begins a sync once some put is wholly written, or nothing is on its way that would be.
    pub(super) fn start_sync(&mut self, out: &mut Vec<Effect>) {
        let Group { puts, pages } = &self.written;
        let on_its_way = self.puts.len() > puts.len();
        if self.syncing || (puts.is_empty() && (pages.is_empty() || on_its_way)) {
            return;
        }
        self.syncing = true;
        let group = std::mem::take(&mut self.written);
        let token = self.fly(Flight::Sync(group));
        out.push(Effect::Sync { token });
    }

    pub(super) fn sync_done(&mut self, group: Group, result: Result<IoDone>, out: &mut Vec<Effect>) {
        self.syncing = false;
        let result = result.map(drop);
        if let Err(error) = &result {
            // Also what was written before it, and waits for the next one: when that succeeds, it says nothing of writes
            // that this one has lost.
            let mut poisoned: Vec<SlotNo> = self.written.pages.iter().map(|(slot, _)| *slot).collect();
            for put in self.puts.values_mut() {
                put.failed.get_or_insert(error.clone());
                poisoned.push(put.slot);
            }
            poisoned.into_iter().for_each(|slot| self.slot(slot).poisoned = true);
        }
        // First the puts, while the pins of their pages hold the tables.
        for number in group.puts {
            self.finish(number, out);
        }
        for (slot, page) in group.pages {
            if result.is_err() {
                self.slot(slot).poisoned = true;
            }
            self.page_free(slot, page, result.clone(), out);
        }
    }

    /// A put is durable, or failed: its caller hears of it.
    fn finish(&mut self, number: PutNo, out: &mut Vec<Effect>) {
        let Put { token, slot, fresh, failed, .. } = self.puts.remove(&number).expect("a put ends once");
        match failed {
            // Its blocks stay hidden until the table is read anew, and are then checked like all others.
            Some(error) => self.reply(token, Err(error), out),
            None => {
                let table = self.tables.get(slot).expect("pinned tables stay");
                fresh.iter().for_each(|block| table.settle(*block));
                self.reply(token, Ok(DriveReply::Done), out);
            }
        }
        self.resume(slot, out);
        self.unpin(slot, out);
    }

    fn differs(&self, id: ShardId, block: u16) -> Error {
        let words = format!(
            "{}: block {block} of {}.{} holds other bytes; a range is written once, take a new one",
            self.name(),
            id.pack,
            id.shard
        );
        Error::new(ErrorKind::Exists, words)
    }
}
