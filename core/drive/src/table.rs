//! The checksums of a slot in memory, and the bounded cache of them.

use std::collections::BTreeMap;

use braid_base::limits::BLOCK;
use bytes::Bytes;

use crate::format::page::{Bits, Copy, Life, Page};
use crate::layout::{PAGE_BLOCKS, Side, SlotNo};

/// A write of a client that is under way.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct PutNo(pub(crate) u64);

/// All checksums of one slot.
pub(crate) struct Table {
    pages: Vec<Sheet>,
}

/// One checksum page with what is going on around it.
pub(crate) struct Sheet {
    /// As it is on disk, or will be when the next write ends.
    pub(crate) page: Page,
    /// Which copy on disk is the newest sound one. The next write goes to the other.
    pub(crate) side: Side,
    /// A write of this page is under way (never two at a time).
    pub(crate) writing: bool,
    /// The puts whose checksums are in that write.
    pub(crate) riders: Vec<PutNo>,
    /// The puts that wait for the next one: group commit.
    pub(crate) waiting: Vec<PutNo>,
    /// Blocks whose put is not finished: readers do not see them yet.
    pending: Bits,
}

/// What is known about a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Known {
    /// Never written.
    Nothing,
    /// Being written right now.
    Pending,
    /// Written; its CRC32C.
    Written(u32),
    /// Not marked written, but a copy of the mark was lost once.
    Suspect,
}

impl Table {
    /// The table of a slot that was just taken.
    pub(crate) fn empty(pages: usize) -> Self {
        Self { pages: (0..pages).map(|_| Sheet::new(Page::empty(), Side::B)).collect() }
    }

    /// The table in `bytes`, all A pages followed by all B pages.
    pub(crate) fn decode(bytes: &Bytes, life: &Life) -> Self {
        let (a, b) = bytes.split_at(bytes.len() / 2);
        let pair = a.chunks_exact(BLOCK).zip(b.chunks_exact(BLOCK));
        let pages = pair.enumerate().map(|(number, (a, b))| {
            // A slot has at most 18 pages.
            let number = number as u16;
            Sheet::choose(Page::decode(a, number, life), Page::decode(b, number, life))
        });
        Self { pages: pages.collect() }
    }

    pub(crate) fn known(&self, block: u16) -> Known {
        let (page, at) = place(block);
        let sheet = &self.pages[page];
        match sheet.page.crc(at) {
            _ if sheet.pending.has(at) => Known::Pending,
            Some(crc) => Known::Written(crc),
            None if sheet.page.suspect => Known::Suspect,
            None => Known::Nothing,
        }
    }

    /// Notes that `block` is being written.
    pub(crate) fn begin(&mut self, block: u16, crc: u32) {
        let (page, at) = place(block);
        let sheet = &mut self.pages[page];
        assert!(sheet.page.crc(at).is_none(), "block {block} is written once");
        sheet.page.set(at, crc);
        sheet.pending.add(at);
    }

    /// Lets readers see `block`: its data and its page are durable.
    pub(crate) fn settle(&mut self, block: u16) {
        let (page, at) = place(block);
        self.pages[page].pending.remove(at);
    }

    pub(crate) fn sheet(&mut self, page: usize) -> &mut Sheet {
        &mut self.pages[page]
    }

    fn bytes(&self) -> usize {
        self.pages.len() * (size_of::<Sheet>() + 4 * PAGE_BLOCKS)
    }
}

impl Sheet {
    fn new(page: Page, side: Side) -> Self {
        Self { page, side, writing: false, riders: Vec::new(), waiting: Vec::new(), pending: Bits::default() }
    }

    fn choose(a: Copy, b: Copy) -> Self {
        let damaged = matches!(a, Copy::Damaged) || matches!(b, Copy::Damaged);
        let mut sheet = match (a, b) {
            (Copy::Good(a), Copy::Good(b)) if b.seq > a.seq => Self::new(b, Side::B),
            (Copy::Good(a), _) => Self::new(a, Side::A),
            (_, Copy::Good(b)) => Self::new(b, Side::B),
            _ => Self::new(Page::empty(), Side::B),
        };
        sheet.page.suspect |= damaged;
        sheet
    }
}

/// The page of a block, and its place in that page.
pub(crate) fn place(block: u16) -> (usize, usize) {
    (usize::from(block) / PAGE_BLOCKS, usize::from(block) % PAGE_BLOCKS)
}

/// Tables of the slots used last, up to a bound.
pub(crate) struct Tables {
    /// Most memory, bytes.
    pub(crate) bound: usize,
    tables: BTreeMap<SlotNo, (u64, Table)>,
    /// Slots by the tick of their last use.
    order: BTreeMap<u64, SlotNo>,
    tick: u64,
    bytes: usize,
}

impl Tables {
    pub(crate) fn new(bound: usize) -> Self {
        Self { bound, tables: BTreeMap::new(), order: BTreeMap::new(), tick: 0, bytes: 0 }
    }

    pub(crate) fn has(&self, slot: SlotNo) -> bool {
        self.tables.contains_key(&slot)
    }

    /// The table of `slot`, which counts as used now.
    pub(crate) fn get(&mut self, slot: SlotNo) -> Option<&mut Table> {
        let (used, table) = self.tables.get_mut(&slot)?;
        self.tick += 1;
        self.order.remove(used);
        self.order.insert(self.tick, slot);
        *used = self.tick;
        Some(table)
    }

    pub(crate) fn insert(&mut self, slot: SlotNo, table: Table) {
        self.remove(slot);
        self.tick += 1;
        self.bytes += table.bytes();
        self.order.insert(self.tick, slot);
        self.tables.insert(slot, (self.tick, table));
    }

    pub(crate) fn remove(&mut self, slot: SlotNo) {
        if let Some((used, table)) = self.tables.remove(&slot) {
            self.order.remove(&used);
            self.bytes -= table.bytes();
        }
    }

    /// If the bound is passed, forgets the tables used longest ago until an eighth of it is free. Pinned ones stay: they carry writes under way.
    pub(crate) fn trim(&mut self, pinned: impl Fn(SlotNo) -> bool) {
        if self.bytes <= self.bound {
            return;
        }
        let old: Vec<SlotNo> = self.order.values().copied().filter(|slot| !pinned(*slot)).collect();
        for slot in old {
            if self.bytes <= self.bound / 8 * 7 {
                break;
            }
            self.remove(slot);
        }
    }
}
