//! Where things are on a drive. All positions are bytes from its beginning.

use braid_base::limits::{BLOCK, SHARD_BYTES_MAX};
use braid_base::{Error, ErrorKind, Result};

/// Blocks covered by one checksum page.
pub const PAGE_BLOCKS: usize = 960;
/// Fewest slots of a useful drive: one open pack of each class.
pub const SLOTS_MIN: u64 = 4;
/// Where the first slot begins: right behind the first superblock.
pub const FIRST_SLOT: u64 = BLOCK as u64;

const B: u64 = BLOCK as u64;

/// The place of everything on one drive.
///
/// ```text
/// 0        4 KiB                                                       end-4 KiB
/// | super A | slot 0 | slot 1 | ... | slot N-1 | (less than a slot) | super B |
///
/// a slot:
/// | header A | header B | page 0 A .. page n-1 A | page 0 B .. page n-1 B | S bytes of data |
///   4 KiB      4 KiB      n x 4 KiB                n x 4 KiB                n = ceil(S blocks / 960)
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Layout {
    /// Data blocks of a slot (S).
    pub shard_blocks: u32,
    /// Bytes from one slot to the next.
    pub stride: u64,
    /// Where slot 0 begins.
    pub first_slot: u64,
    /// Slots.
    pub slots: u32,
    /// Bytes of the drive that are used: the second superblock ends here.
    pub size: u64,
}

/// The number of a slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SlotNo(pub u32);

/// Which of two copies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// The first.
    A,
    /// The second.
    B,
}

impl Side {
    /// The other one.
    pub fn other(self) -> Self {
        match self {
            Self::A => Self::B,
            Self::B => Self::A,
        }
    }

    fn number(self) -> u64 {
        u64::from(self == Self::B)
    }
}

impl Layout {
    /// The layout of a new drive of `size` bytes. `Invalid` if `shard_bytes` is none that Braid knows, `Refused` if
    /// the drive is too small.
    pub fn plan(size: u64, shard_bytes: u64) -> Result<Self> {
        if shard_bytes == 0 || shard_bytes > SHARD_BYTES_MAX || !shard_bytes.is_multiple_of(B) {
            let words = format!("shard size: expected a multiple of 4096 up to {SHARD_BYTES_MAX}, found {shard_bytes}");
            return Err(Error::new(ErrorKind::Invalid, words));
        }
        let stride = stride(shard_bytes);
        let needed = FIRST_SLOT + SLOTS_MIN * stride + B;
        if size < needed {
            let words = format!("the drive is too small: needed {needed} bytes for {SLOTS_MIN} slots, found {size}");
            return Err(Error::new(ErrorKind::Refused, words));
        }
        let slots = u32::try_from((size - FIRST_SLOT - B) / stride).unwrap_or(u32::MAX);
        let shard_blocks = (shard_bytes / B) as u32;
        Ok(Self { shard_blocks, stride, first_slot: FIRST_SLOT, slots, size: size - size % B })
    }

    /// Fails with `Corrupt` unless the numbers fit each other: they may come from a disk.
    pub fn check(&self) -> Result<()> {
        let shard_bytes = u64::from(self.shard_blocks) * B;
        let fits = self.shard_blocks > 0
            && shard_bytes <= SHARD_BYTES_MAX
            && self.stride == stride(shard_bytes)
            && self.first_slot >= B
            && self.slots > 0
            && self.size.is_multiple_of(B)
            && u64::from(self.slots)
                .checked_mul(self.stride)
                .and_then(|n| n.checked_add(self.first_slot))
                .and_then(|n| n.checked_add(B))
                .is_some_and(|end| end <= self.size);
        if fits {
            return Ok(());
        }
        Err(Error::new(ErrorKind::Corrupt, format!("the superblock's numbers do not fit each other: {self:?}")))
    }

    /// Data bytes of a slot.
    pub fn shard_bytes(&self) -> u64 {
        u64::from(self.shard_blocks) * B
    }

    /// Checksum pages of a slot (n).
    pub fn pages(&self) -> usize {
        (self.shard_blocks as usize).div_ceil(PAGE_BLOCKS)
    }

    /// Where a superblock copy is.
    pub fn superblock(&self, side: Side) -> u64 {
        match side {
            Side::A => 0,
            Side::B => self.size - B,
        }
    }

    /// Where a header copy of a slot is; B is right behind A.
    pub fn header(&self, slot: SlotNo, side: Side) -> u64 {
        self.slot(slot) + side.number() * B
    }

    /// Where all checksum pages of a slot begin: first all A, then all B.
    pub fn table(&self, slot: SlotNo) -> u64 {
        self.slot(slot) + 2 * B
    }

    /// Bytes of all checksum pages of a slot, both copies.
    pub fn table_bytes(&self) -> usize {
        2 * self.pages() * BLOCK
    }

    /// Where one copy of one checksum page is.
    pub fn page(&self, slot: SlotNo, page: usize, side: Side) -> u64 {
        self.table(slot) + (side.number() * self.pages() as u64 + page as u64) * B
    }

    /// Where a data block is.
    pub fn data(&self, slot: SlotNo, block: u32) -> u64 {
        assert!(block < self.shard_blocks, "block {block} of {}", self.shard_blocks);
        self.table(slot) + self.table_bytes() as u64 + u64::from(block) * B
    }

    fn slot(&self, slot: SlotNo) -> u64 {
        assert!(slot.0 < self.slots, "slot {} of {}", slot.0, self.slots);
        self.first_slot + u64::from(slot.0) * self.stride
    }
}

fn stride(shard_bytes: u64) -> u64 {
    let pages = (shard_bytes / B).div_ceil(PAGE_BLOCKS as u64);
    2 * B + 2 * pages * B + shard_bytes
}

#[cfg(test)]
mod tests {
    use super::{Layout, Side, SlotNo};
    use braid_base::ErrorKind;

    #[test]
    fn the_numbers_of_the_design() {
        let plan = Layout::plan(1 << 30, 8 << 20).expect("large enough");
        assert_eq!((plan.pages(), plan.stride), (3, 8192 + 24576 + (8 << 20)));
        assert_eq!(plan.slots as u64, ((1 << 30) - 8192) / plan.stride);
        plan.check().expect("a plan fits itself");
        let toy = Layout::plan(64 << 20, 1 << 20).expect("large enough");
        assert_eq!(toy.pages(), 1);
        assert_eq!(toy.page(SlotNo(1), 0, Side::B), 4096 + toy.stride + 8192 + 4096);
        assert_eq!(toy.data(SlotNo(0), 1), 4096 + 8192 + 8192 + 4096);
    }

    #[test]
    fn nothing_overlaps() {
        let plan = Layout::plan(200 << 20, 8 << 20).expect("large enough");
        let mut at = vec![plan.superblock(Side::A), plan.superblock(Side::B)];
        for slot in (0..plan.slots).map(SlotNo) {
            for side in [Side::A, Side::B] {
                at.push(plan.header(slot, side));
                at.extend((0..plan.pages()).map(|page| plan.page(slot, page, side)));
            }
            at.extend((0..plan.shard_blocks).map(|block| plan.data(slot, block)));
        }
        let count = at.len();
        assert!(at.iter().all(|p| p % 4096 == 0 && p + 4096 <= plan.size));
        at.sort_unstable();
        at.dedup();
        assert_eq!(at.len(), count);
    }

    #[test]
    fn too_small_says_needed_and_found() {
        let error = Layout::plan(20 << 20, 8 << 20).expect_err("too small");
        assert_eq!(error.kind(), ErrorKind::Refused);
        let needed = 4096 + 4 * (8192 + 24576 + (8u64 << 20)) + 4096;
        assert!(error.message().contains(&needed.to_string()), "{error}");
        assert!(error.message().contains("20971520"), "{error}");
        assert!(Layout::plan(needed, 8 << 20).is_ok());
        assert_eq!(Layout::plan(1 << 30, 5000).expect_err("odd").kind(), ErrorKind::Invalid);
    }
}
