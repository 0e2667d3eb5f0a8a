//! Slots: taken for a shard, given back, and found again when the drive is opened.

use braid_base::ids::{FsId, PackId, PartitionId, Term};
use braid_base::limits::{DATA_SHARDS_MAX, PARITY_SHARDS_MAX, QUARANTINE_MS};
use braid_base::msg::drive::{DriveReply, ShardId};
use braid_base::record::PackClass;
use braid_base::{Error, ErrorKind, Result};
use braid_io::reactor::IoDone;

use super::{Effect, Flight, OpToken, Target};
use crate::format::header::{Header, State};
use crate::layout::{Side, SlotNo};
use crate::table::Table;

/// Slots freed in one step, so that a mass drop does not flood the drive ten minutes later.
const RELEASE_MAX: usize = 16;

/// One slot in memory.
pub(crate) struct Slot {
    pub(crate) phase: Phase,
    /// The newest header that is durable.
    pub(crate) header: Header,
    /// Which copy it is. The next one goes to the other.
    pub(crate) side: Side,
    /// I/O under way on the slot.
    pub(crate) pins: u32,
    /// A write failed: what is on the disk is not known, so nothing more is written until the drive is opened anew.
    pub(crate) poisoned: bool,
}

/// Where a slot stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Phase {
    Free,
    Creating,
    Live,
    Dropping,
    Quarantine,
    Freeing,
    Broken,
}

/// A shard to make.
pub(super) struct Wanted {
    pub(super) id: ShardId,
    pub(super) data: u8,
    pub(super) parity: u8,
    pub(super) class: PackClass,
    pub(super) term: Term,
    pub(super) fs: FsId,
}

impl Slot {
    /// A slot that was never used under this formatting.
    pub(crate) fn unused() -> Self {
        let header = Header {
            seq: 0,
            state: State::Free,
            id: ShardId { pack: PackId(0), shard: 0 },
            data: 0,
            parity: 0,
            class: PackClass::User,
            term: Term(0),
            fs: FsId(0),
            created: 0,
        };
        Self::found(header, Side::B)
    }

    /// A slot whose newest header is this one.
    pub(crate) fn found(header: Header, side: Side) -> Self {
        let phase = match header.state {
            State::Free => Phase::Free,
            State::Live => Phase::Live,
            State::Quarantine => Phase::Quarantine,
        };
        Self { phase, header, side, pins: 0, poisoned: false }
    }

    /// A slot whose header cannot be read.
    pub(crate) fn unreadable() -> Self {
        Self { phase: Phase::Broken, ..Self::unused() }
    }
}

impl Target {
    /// Builds index, free list, quarantine and terms from the headers.
    pub(super) fn sort_in(&mut self) {
        for number in (0..self.layout().slots).map(SlotNo) {
            let slot = &self.slots[number.0 as usize];
            let (phase, header) = (slot.phase, slot.header);
            if header.seq > 0 {
                let known = self.terms.entry(header.id.pack.partition()).or_default();
                *known = header.term.max(*known);
            }
            match phase {
                Phase::Free => self.free.push_back(number),
                Phase::Quarantine => self.quarantine_in(number),
                Phase::Live => self.index_found(number),
                _ => {}
            }
        }
    }

    /// Two live slots of one shard appear only if the newest header of one rotted away; the older life gives way.
    fn index_found(&mut self, number: SlotNo) {
        let age = |slot: &Slot| (slot.header.term, slot.header.created);
        let id = self.slots[number.0 as usize].header.id;
        let loser = match self.index.get(&id) {
            Some(other) if age(&self.slots[other.0 as usize]) > age(&self.slots[number.0 as usize]) => Some(number),
            _ => self.index.insert(id, number),
        };
        if let Some(loser) = loser {
            self.quarantine_in(loser);
        }
    }

    pub(super) fn create(&mut self, token: OpToken, wanted: Wanted, out: &mut Vec<Effect>) {
        if let Err(error) = wanted.check().and_then(|()| self.admit_term(wanted.id, wanted.term)) {
            return self.reply(token, Err(error), out);
        }
        if let Some(slot) = self.index.get(&wanted.id).copied() {
            return match self.slot(slot).phase {
                Phase::Live => self.reply(token, Ok(DriveReply::Done), out),
                Phase::Creating => self.waiters.entry(slot).or_default().push(token),
                Phase::Broken => self.reply(token, Err(self.broken(slot)), out),
                // Being dropped: the caller repeats until that is over.
                _ => self.reply(token, Err(ErrorKind::Busy.into()), out),
            };
        }
        let Some(slot) = self.free.pop_front().or_else(|| self.quarantine.pop_front().map(|(_, slot)| slot)) else {
            let words = format!("{} is full: all {} slots are taken", self.name(), self.layout().slots);
            return self.reply(token, Err(Error::new(ErrorKind::NoSpace, words)), out);
        };
        let header = wanted.header(self.slot(slot).header.seq + 1, self.wall_seconds());
        self.slot(slot).phase = Phase::Creating;
        self.index.insert(wanted.id, slot);
        self.waiters.insert(slot, vec![token]);
        self.write_header(slot, header, out);
    }

    pub(super) fn drop_shard(&mut self, token: OpToken, id: ShardId, term: Term, out: &mut Vec<Effect>) {
        if let Err(error) = self.admit_term(id, term) {
            return self.reply(token, Err(error), out);
        }
        let Some(slot) = self.index.get(&id).copied() else {
            return self.reply(token, Ok(DriveReply::Done), out);
        };
        match self.slot(slot).phase {
            Phase::Live => {
                self.slot(slot).phase = Phase::Dropping;
                self.waiters.insert(slot, vec![token]);
                if self.slot(slot).pins == 0 {
                    self.quarantine_slot(slot, out);
                }
            }
            Phase::Dropping => self.waiters.entry(slot).or_default().push(token),
            Phase::Broken => self.reply(token, Err(self.broken(slot)), out),
            // Being created: the caller repeats until that is over.
            _ => self.reply(token, Err(ErrorKind::Busy.into()), out),
        }
    }

    pub(super) fn quarantine_slot(&mut self, slot: SlotNo, out: &mut Vec<Effect>) {
        let old = self.slot(slot).header;
        let created = self.wall_seconds();
        self.write_header(slot, Header { seq: old.seq + 1, state: State::Quarantine, created, ..old }, out);
    }

    /// Frees slots whose time in quarantine is over.
    pub(super) fn release(&mut self, out: &mut Vec<Effect>) {
        for _ in 0..RELEASE_MAX {
            let Some((_, slot)) = self.quarantine.pop_front_if(|(until, _)| *until <= self.now.mono_ms) else { break };
            let old = self.slot(slot).header;
            let created = self.wall_seconds();
            self.slot(slot).phase = Phase::Freeing;
            self.write_header(slot, Header { seq: old.seq + 1, state: State::Free, created, ..old }, out);
        }
    }

    pub(super) fn header_done(
        &mut self,
        slot: SlotNo,
        side: Side,
        header: Header,
        result: Result<IoDone>,
        out: &mut Vec<Effect>,
    ) {
        let answer = match result {
            Ok(_) => {
                let held = self.slot(slot);
                (held.header, held.side) = (header, side);
                self.header_durable(slot, header, out);
                Ok(DriveReply::Done)
            }
            Err(error) => {
                // The shard stays in the index, so that nobody makes it a second time elsewhere.
                self.slot(slot).phase = Phase::Broken;
                self.tables.remove(slot);
                Err(error)
            }
        };
        for token in self.waiters.remove(&slot).unwrap_or_default() {
            self.reply(token, answer.clone(), out);
        }
    }

    fn header_durable(&mut self, slot: SlotNo, header: Header, out: &mut Vec<Effect>) {
        match header.state {
            State::Live => {
                let pages = self.layout().pages();
                let held = self.slot(slot);
                held.phase = Phase::Live;
                held.poisoned = false;
                self.tables.insert(slot, Table::empty(pages));
            }
            State::Quarantine => {
                self.index.remove(&header.id);
                self.tables.remove(slot);
                self.quarantine_in(slot);
            }
            State::Free if self.discard => {
                let (off, len) = (self.layout().data(slot, 0), self.layout().shard_bytes());
                let token = self.fly(Flight::Discard { slot });
                out.push(Effect::Discard { token, off, len });
            }
            State::Free => self.discard_done(slot),
        }
    }

    /// Whether the device took the hint or not, the slot is free.
    pub(super) fn discard_done(&mut self, slot: SlotNo) {
        self.slot(slot).phase = Phase::Free;
        self.free.push_back(slot);
    }

    pub(super) fn report(&self, partition: PartitionId) -> Vec<(ShardId, Term)> {
        let first = PackId(u64::from(partition.0) << 48);
        let last = PackId(first.0 | ((1 << 48) - 1));
        let range = ShardId { pack: first, shard: 0 }..=ShardId { pack: last, shard: u8::MAX };
        let slots = self.index.range(range).map(|(id, slot)| (id, &self.slots[slot.0 as usize]));
        slots.filter(|(_, slot)| slot.phase == Phase::Live).map(|(id, slot)| (*id, slot.header.term)).collect()
    }

    fn quarantine_in(&mut self, slot: SlotNo) {
        self.slot(slot).phase = Phase::Quarantine;
        self.quarantine.push_back((self.now.mono_ms + QUARANTINE_MS, slot));
    }

    fn write_header(&mut self, slot: SlotNo, header: Header, out: &mut Vec<Effect>) {
        let side = self.slot(slot).side.other();
        let off = self.layout().header(slot, side);
        let data = header.encode(self.superblock.guid_lo());
        let token = self.fly(Flight::Header { slot, side, header });
        out.push(Effect::Write { token, off, data, durable: true });
    }

    fn admit_term(&mut self, id: ShardId, term: Term) -> Result<()> {
        let partition = id.pack.partition();
        let known = self.terms.entry(partition).or_default();
        if term < *known {
            let words = format!("partition {partition}: expected term {known} or later, found {term}; fetch the map");
            return Err(Error::new(ErrorKind::Stale, words));
        }
        *known = term;
        Ok(())
    }

    fn wall_seconds(&self) -> u64 {
        u64::try_from(self.now.wall.sec).unwrap_or(0)
    }
}

impl Wanted {
    fn check(&self) -> Result<()> {
        let (data, parity) = (usize::from(self.data), usize::from(self.parity));
        let sound = (1..=DATA_SHARDS_MAX).contains(&data)
            && parity <= PARITY_SHARDS_MAX
            && usize::from(self.id.shard) < data + parity
            && self.id.pack.seq() > 0;
        if sound {
            return Ok(());
        }
        let words = format!("no such shard: {} shard {} of {data}+{parity}", self.id.pack, self.id.shard);
        Err(Error::new(ErrorKind::Invalid, words))
    }

    fn header(&self, seq: u64, created: u64) -> Header {
        let &Self { id, data, parity, class, term, fs } = self;
        Header { seq, state: State::Live, id, data, parity, class, term, fs, created }
    }
}
