//! The checksums of a slot in memory, and the bounded cache of them.

use std::collections::BTreeMap;

use braid_base::Error;
use bytes::Bytes;

use crate::format::page::{Bits, Copy, Life, Page};
use crate::layout::{PAGE_BLOCKS, Side, SlotNo};

/// A write of a client that is under way.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct PutNo(pub(crate) u64);

/// All checksums of one slot.
pub(crate) struct Table {
    pages: Vec<Sheet>,
    /// Why some of it could not be read, and when that was (mono ms).
    pub(crate) unread: Option<(u64, Error)>,
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
    /// A copy could not be read. It may say more than the other one, now or when it can be read again: so nothing is
    /// written over either.
    unread: bool,
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
    /// Not marked written in what could be read of the marks.
    Unread,
}

impl Table {
    /// The table of a slot that was just taken.
    pub(crate) fn empty(pages: usize) -> Self {
        Self { pages: (0..pages).map(|_| Sheet::new(Page::empty(), Side::B)).collect(), unread: None }
    }

    /// The table in `blocks`, all A pages followed by all B pages; none where one could not be read.
    pub(crate) fn decode(blocks: &[Option<Bytes>], life: &Life) -> Self {
        let (a, b) = blocks.split_at(blocks.len() / 2);
        let pages = a.iter().zip(b).enumerate().map(|(number, (a, b))| {
            // A slot has at most 18 pages.
            let copy = |block: &Option<Bytes>| block.as_ref().map(|block| Page::decode(block, number as u16, life));
            Sheet::choose(copy(a), copy(b))
        });
        Self { pages: pages.collect(), unread: None }
    }

    pub(crate) fn known(&self, block: u16) -> Known {
        let (page, at) = place(block);
        let sheet = &self.pages[page];
        match sheet.page.crc(at) {
            _ if sheet.pending.has(at) => Known::Pending,
            Some(crc) => Known::Written(crc),
            None if sheet.unread => Known::Unread,
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
        let (riders, waiting) = (Vec::new(), Vec::new());
        Self { page, side, writing: false, riders, waiting, pending: Bits::default(), unread: false }
    }

    fn choose(a: Option<Copy>, b: Option<Copy>) -> Self {
        let damaged = matches!(a, Some(Copy::Damaged)) || matches!(b, Some(Copy::Damaged));
        let unread = a.is_none() || b.is_none();
        let mut sheet = match (a, b) {
            (Some(Copy::Good(a)), Some(Copy::Good(b))) if b.seq > a.seq => Self::new(b, Side::B),
            (Some(Copy::Good(a)), _) => Self::new(a, Side::A),
            (_, Some(Copy::Good(b))) => Self::new(b, Side::B),
            _ => Self::new(Page::empty(), Side::B),
        };
        sheet.page.suspect |= damaged;
        sheet.unread = unread;
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
