//! The drive target: what a drive does with messages, as a pure state machine.

mod health;
mod put;
mod read;
mod slots;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::fmt;

use braid_base::ids::{DriveId, PartitionId, Term};
use braid_base::limits::{BLOCK, DRIVE_OPS_MAX, DRIVE_SLOW_MS, DRIVE_TABLE_CACHE_BYTES};
use braid_base::msg::drive::{DriveOp, DriveReply, DriveResult, DriveStat, ShardId};
use braid_base::{Error, ErrorKind, Result};
use braid_io::clock::Now;
use braid_io::reactor::{IoDone, Token};
use bytes::Bytes;

use crate::format::header::Header;
use crate::format::page::Life;
use crate::format::superblock::Superblock;
use crate::layout::{Layout, Side, SlotNo};
use crate::table::{PutNo, Tables};

use health::Health;

pub(crate) use slots::{Phase, Slot};

/// The caller's name for one operation; comes back with its answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct OpToken(pub u64);

/// What happens to a target.
#[derive(Debug)]
pub enum Event {
    /// Somebody asks.
    Op {
        /// Comes back with the answer.
        token: OpToken,
        /// What.
        op: DriveOp,
    },
    /// An I/O asked for by an effect ended.
    Io {
        /// Of the effect.
        token: Token,
        /// How it ended.
        result: Result<IoDone>,
    },
    /// The time of [`Target::next_tick_ms`] has come.
    Tick,
}

/// What a target wants done.
#[derive(Debug)]
pub enum Effect {
    /// Read `len` bytes at `off`.
    Read {
        /// Comes back in [`Event::Io`].
        token: Token,
        /// Byte offset on the drive.
        off: u64,
        /// Bytes.
        len: usize,
    },
    /// Write at `off`.
    Write {
        /// Comes back in [`Event::Io`].
        token: Token,
        /// Byte offset on the drive.
        off: u64,
        /// The bytes.
        data: Bytes,
        /// On the medium at completion; else after the next `Sync`.
        durable: bool,
    },
    /// Make durable all writes that have completed.
    Sync {
        /// Comes back in [`Event::Io`].
        token: Token,
    },
    /// Tell the device that a range is not needed.
    Discard {
        /// Comes back in [`Event::Io`].
        token: Token,
        /// Byte offset on the drive.
        off: u64,
        /// Bytes.
        len: u64,
    },
    /// Answer an operation. Exactly one for each.
    Reply {
        /// Of the operation.
        token: OpToken,
        /// The answer.
        result: DriveResult,
    },
}

/// How errors call a drive; written only if there is one.
struct Name(DriveId);

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "drive {}", self.0)
    }
}

/// Shards in slots on one flash device.
///
/// A slot goes round: free → creating → live → dropping → quarantine → freeing → free. A slot whose header could
/// not be written is broken until the drive is opened anew: what is on the disk is not known.
pub struct Target {
    superblock: Superblock,
    discard: bool,
    now: Now,
    slots: Vec<Slot>,
    /// Where each shard is. The only way to a slot from outside.
    index: BTreeMap<ShardId, SlotNo>,
    /// Highest term seen of each partition.
    terms: BTreeMap<PartitionId, Term>,
    free: VecDeque<SlotNo>,
    /// Dropped slots, oldest first, with the time (mono ms) at which they become free.
    quarantine: VecDeque<(u64, SlotNo)>,
    tables: Tables,
    /// Slots whose table is being read.
    loading: BTreeSet<SlotNo>,
    /// What was read of tables that cannot be read at once.
    in_parts: BTreeMap<SlotNo, read::Parts>,
    /// Operations that wait for a table, or for a put of the same block, by slot.
    parked: BTreeMap<SlotNo, Vec<Parked>>,
    /// Creates and drops that wait for a slot's header.
    waiters: BTreeMap<SlotNo, Vec<OpToken>>,
    puts: BTreeMap<PutNo, put::Put>,
    /// What the next sync makes durable.
    written: put::Group,
    syncing: bool,
    /// With the time (mono ms) at which each began; the oldest first.
    flights: BTreeMap<Token, (u64, Flight)>,
    health: Health,
    next: u64,
    open_ops: usize,
    corrupt: u64,
    errors: u64,
}

/// An I/O under way: what to do when it ends.
enum Flight {
    Header { slot: SlotNo, side: Side, header: Header },
    Discard { slot: SlotNo },
    Table { slot: SlotNo },
    TableBlock { slot: SlotNo, number: usize },
    Read(read::Reading),
    Compare { slot: SlotNo, ask: put::Ask },
    Data { put: PutNo },
    Page { slot: SlotNo, page: usize },
    Sync(put::Group),
    Probe(Probe),
}

/// The second superblock is written as it is, then read back.
enum Probe {
    Write,
    Read,
}

impl Flight {
    fn writes(&self) -> bool {
        !matches!(
            self,
            Self::Table { .. }
                | Self::TableBlock { .. }
                | Self::Read(_)
                | Self::Compare { .. }
                | Self::Probe(Probe::Read)
        )
    }
}

enum Parked {
    Put(put::Ask),
    Read(read::Ask),
    Written(OpToken, ShardId),
}

impl Target {
    /// The target over slots as `open` found them.
    pub(crate) fn assemble(superblock: Superblock, slots: Vec<Slot>, discard: bool, now: Now) -> Self {
        let mut target = Self {
            superblock,
            discard,
            now,
            slots,
            index: BTreeMap::new(),
            terms: BTreeMap::new(),
            free: VecDeque::new(),
            quarantine: VecDeque::new(),
            tables: Tables::new(DRIVE_TABLE_CACHE_BYTES),
            loading: BTreeSet::new(),
            in_parts: BTreeMap::new(),
            parked: BTreeMap::new(),
            waiters: BTreeMap::new(),
            puts: BTreeMap::new(),
            written: put::Group::default(),
            syncing: false,
            flights: BTreeMap::new(),
            health: Health::default(),
            next: 0,
            open_ops: 0,
            corrupt: 0,
            errors: 0,
        };
        target.sort_in();
        target
    }

    /// Takes one event; what is to be done is appended to `out`, in order.
    pub fn step(&mut self, now: Now, event: Event, out: &mut Vec<Effect>) {
        // Somebody looks each second, so this one stood still itself (the process was stopped, or the machine asleep), and
        // what ended meanwhile was not seen to: that is not the drive's fault.
        let still_ms = now.mono_ms.saturating_sub(self.now.mono_ms);
        if still_ms >= DRIVE_SLOW_MS {
            self.flights.values_mut().for_each(|(began_ms, _)| *began_ms += still_ms);
        }
        self.now = now;
        match event {
            Event::Op { token, op } => self.admit(token, op, out),
            Event::Io { token, result } => self.io_done(token, result, out),
            Event::Tick => self.release(out),
        }
        let slots = &self.slots;
        self.tables.trim(|slot| slots[slot.0 as usize].pins > 0);
    }

    /// Bounds the memory for checksum tables, bytes; `limits::DRIVE_TABLE_CACHE_BYTES` unless set.
    pub fn set_table_cache(&mut self, bytes: usize) {
        self.tables.bound = bytes;
    }

    /// When to send the next [`Event::Tick`], mono ms.
    pub fn next_tick_ms(&self) -> Option<u64> {
        self.quarantine.front().map(|(until, _)| *until)
    }

    /// Whose drive this is.
    pub fn superblock(&self) -> &Superblock {
        &self.superblock
    }

    /// Capacity and health.
    pub fn stat(&self) -> DriveStat {
        DriveStat {
            slots: self.layout().slots,
            free: u32::try_from(self.free.len() + self.quarantine.len()).expect("slots are counted in 32 bits"),
            shard_bytes: self.layout().shard_bytes(),
            corrupt: self.corrupt,
            errors: self.errors,
            trouble: self.health.trouble(),
        }
    }

    /// Shards held now.
    pub fn shards(&self) -> usize {
        self.index.len()
    }

    fn admit(&mut self, token: OpToken, op: DriveOp, out: &mut Vec<Effect>) {
        self.open_ops += 1;
        // How the drive is can be told at any time, and matters most when nothing else ends.
        if self.open_ops > DRIVE_OPS_MAX && !matches!(op, DriveOp::Stat) {
            return self.reply(token, Err(ErrorKind::Busy.into()), out);
        }
        match op {
            DriveOp::Create { id, data, parity, class, term, fs } => {
                let wanted = slots::Wanted { id, data, parity, class, term, fs };
                self.create(token, wanted, out);
            }
            DriveOp::Put { id, block, crcs, data } => match put::Ask::check(token, id, block, crcs, data) {
                Ok(ask) => self.put(ask, out),
                Err(error) => self.reply(token, Err(error), out),
            },
            DriveOp::Read { id, block, count } => self.read(read::Ask { token, id, block, count }, out),
            DriveOp::Drop { id, term } => self.drop_shard(token, id, term, out),
            DriveOp::Report { partition } => {
                let shards = self.report(partition);
                self.reply(token, Ok(DriveReply::Shards(shards)), out);
            }
            DriveOp::Written { id } => self.list_written(token, id, out),
            DriveOp::Stat => {
                self.look(out);
                let stat = self.stat();
                self.reply(token, Ok(DriveReply::Stat(stat)), out);
            }
        }
    }

    fn io_done(&mut self, token: Token, result: Result<IoDone>, out: &mut Vec<Effect>) {
        let (began_ms, flight) =
            self.flights.remove(&token).expect("each I/O ends once, and only those that were asked for");
        if !matches!(flight, Flight::Discard { .. }) {
            self.errors += u64::from(result.is_err());
            let now_ms = self.now.mono_ms;
            let error = result.as_ref().err().map(Error::kind);
            self.health.ended(now_ms, now_ms.saturating_sub(began_ms), error, flight.writes());
        }
        let result = result.map_err(|error| error.within(self.superblock.id));
        match flight {
            Flight::Header { slot, side, header } => self.header_done(slot, side, header, result, out),
            Flight::Discard { slot } => self.discard_done(slot),
            Flight::Table { slot } => self.table_done(slot, result, out),
            Flight::TableBlock { slot, number } => self.table_block_done((slot, number), result, out),
            Flight::Read(reading) => self.read_done(reading, result, out),
            Flight::Compare { slot, ask } => self.compare_done(slot, ask, result, out),
            Flight::Data { put } => self.data_done(put, result, out),
            Flight::Page { slot, page } => self.page_done(slot, page, result, out),
            Flight::Sync(group) => self.sync_done(group, result, out),
            Flight::Probe(step) => self.probe_done(&step, result, out),
        }
        self.start_sync(out);
    }

    /// Judges the drive by what is under way, and begins a probe if there is doubt.
    fn look(&mut self, out: &mut Vec<Effect>) {
        let now_ms = self.now.mono_ms;
        let oldest = self.flights.values().find(|(_, flight)| !matches!(flight, Flight::Discard { .. }));
        if let Some((began_ms, _)) = oldest {
            self.health.waited(now_ms, now_ms.saturating_sub(*began_ms));
        }
        if self.health.look(now_ms) {
            let token = self.fly(Flight::Probe(Probe::Write));
            let (off, data) = (self.layout().superblock(Side::B), self.superblock.encode());
            out.push(Effect::Write { token, off, data, durable: true });
        }
    }

    fn probe_done(&mut self, step: &Probe, result: Result<IoDone>, out: &mut Vec<Effect>) {
        match (step, result) {
            (Probe::Write, Ok(_)) => {
                let token = self.fly(Flight::Probe(Probe::Read));
                out.push(Effect::Read { token, off: self.layout().superblock(Side::B), len: BLOCK });
            }
            (Probe::Read, Ok(IoDone::Read(found))) => {
                let well = found == self.superblock.encode();
                self.health.probed(self.now.mono_ms, well);
            }
            _ => self.health.probed(self.now.mono_ms, false),
        }
    }

    fn layout(&self) -> &Layout {
        &self.superblock.layout
    }

    fn slot(&mut self, slot: SlotNo) -> &mut Slot {
        &mut self.slots[slot.0 as usize]
    }

    fn life(&self, slot: SlotNo) -> Life {
        let header = &self.slots[slot.0 as usize].header;
        Life { slot_seq: header.seq, id: header.id, guid_lo: self.superblock.guid_lo() }
    }

    fn reply(&mut self, token: OpToken, result: DriveResult, out: &mut Vec<Effect>) {
        self.open_ops -= 1;
        out.push(Effect::Reply { token, result });
    }

    fn fly(&mut self, flight: Flight) -> Token {
        self.next += 1;
        self.flights.insert(Token(self.next), (self.now.mono_ms, flight));
        Token(self.next)
    }

    /// The slot of a live shard.
    fn find(&self, id: ShardId) -> Result<SlotNo> {
        let missing =
            || Error::new(ErrorKind::NotFound, format!("{} has no shard {}.{}", self.name(), id.pack, id.shard));
        let slot = *self.index.get(&id).ok_or_else(missing)?;
        match self.slots[slot.0 as usize].phase {
            Phase::Live => Ok(slot),
            Phase::Broken => Err(self.broken(slot)),
            _ => Err(missing()),
        }
    }

    /// Blocks `[block, block + count)` must lie in a shard.
    fn check_range(&self, block: u16, count: usize) -> Result<()> {
        let blocks = self.layout().shard_blocks as usize;
        if count > 0 && usize::from(block) + count <= blocks {
            return Ok(());
        }
        let words = format!("blocks {block}..{}: expected 1 to {blocks} within a shard", usize::from(block) + count);
        Err(Error::new(ErrorKind::Invalid, words))
    }

    fn broken(&self, slot: SlotNo) -> Error {
        let words = format!("{}: slot {} met a write error; replace the drive, or open it anew", self.name(), slot.0);
        Error::new(ErrorKind::Io, words)
    }

    fn name(&self) -> Name {
        Name(self.superblock.id)
    }

    /// Runs again what waited for this slot.
    fn resume(&mut self, slot: SlotNo, out: &mut Vec<Effect>) {
        for parked in self.parked.remove(&slot).unwrap_or_default() {
            match parked {
                Parked::Put(ask) => self.put(ask, out),
                Parked::Read(ask) => self.read(ask, out),
                Parked::Written(token, id) => self.list_written(token, id, out),
            }
        }
    }

    fn park(&mut self, slot: SlotNo, what: Parked) {
        self.parked.entry(slot).or_default().push(what);
    }

    /// An I/O on the slot begins: it will not be dropped under it.
    fn pin(&mut self, slot: SlotNo) {
        self.slot(slot).pins += 1;
    }

    /// An I/O on the slot has ended; a drop that waited for the last one goes on.
    fn unpin(&mut self, slot: SlotNo, out: &mut Vec<Effect>) {
        let held = self.slot(slot);
        assert!(held.pins > 0, "slot {} is unpinned once for each pin", slot.0);
        held.pins -= 1;
        if held.pins == 0 && held.phase == Phase::Dropping {
            self.quarantine_slot(slot, out);
        }
    }
}

fn block_at(bytes: &Bytes, index: usize) -> &[u8] {
    &bytes[index * BLOCK..(index + 1) * BLOCK]
}
