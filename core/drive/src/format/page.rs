//! The checksum page: which of 960 blocks are written, and their CRC32C.

use braid_base::codec::{Reader, Writer};
use braid_base::msg::drive::ShardId;
use bytes::Bytes;

use super::{is_sealed, is_zero, seal};
use crate::layout::PAGE_BLOCKS;

const MAGIC: [u8; 8] = *b"BRAIDCRC";
const TABLE_AT: usize = 256;
const CRC_AT: usize = TABLE_AT - 4;
const WORDS: usize = PAGE_BLOCKS / 64;
const _: () = assert!(TABLE_AT + 4 * PAGE_BLOCKS == braid_base::limits::BLOCK && WORDS * 64 == PAGE_BLOCKS);

/// The life of a slot that a page belongs to. Pages of other lives are ignored, so a slot is taken anew
/// without touching them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Life {
    /// The slot's `slot_seq` when it was taken.
    pub slot_seq: u64,
    /// The shard. Pack ids are never reused, so this alone tells lives apart even if a header was lost.
    pub id: ShardId,
    /// The formatting of the drive.
    pub guid_lo: u64,
}

/// Which blocks are written, and their checksums. Two copies; the higher valid `page_seq` wins; writes alternate,
/// at most one in flight.
///
/// ```text
///  0      8          10         18         26                        146       154     155       163
/// | magic | page u16 | slot_seq | page_seq | written bitmap 120 bytes | pack_id | shard | guid_lo | suspect u8 | 0.. |
///  252       256
/// | crc u32 | 960 x crc32c |     the crc is that of the whole block without itself
/// ```
#[derive(Clone, PartialEq, Eq)]
pub struct Page {
    /// +1 at every write.
    pub seq: u64,
    /// Some copy of this page was once unreadable: a block that is not marked written may yet have been, so it is
    /// reported as corrupt and not as never written.
    pub suspect: bool,
    written: Bits,
    crcs: Box<[u32; PAGE_BLOCKS]>,
}

/// A set of blocks of one page.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
pub struct Bits([u64; WORDS]);

impl Bits {
    /// True if `block` is in the set.
    pub fn has(&self, block: usize) -> bool {
        self.0[block / 64] >> (block % 64) & 1 == 1
    }

    /// Puts `block` in.
    pub fn add(&mut self, block: usize) {
        self.0[block / 64] |= 1 << (block % 64);
    }

    /// Takes `block` out.
    pub fn remove(&mut self, block: usize) {
        self.0[block / 64] &= !(1 << (block % 64));
    }
}

/// What one page copy turned out to be.
pub enum Copy {
    /// As it was written in this life.
    Good(Page),
    /// Never written, or of another life.
    Absent,
    /// Torn or rotten.
    Damaged,
}

impl Page {
    /// A page of a fresh slot: nothing written.
    pub fn empty() -> Self {
        Self { seq: 0, suspect: false, written: Bits::default(), crcs: Box::new([0; PAGE_BLOCKS]) }
    }

    /// The checksum of a written block of this page.
    pub fn crc(&self, block: usize) -> Option<u32> {
        self.written.has(block).then(|| self.crcs[block])
    }

    /// Marks a block written.
    pub fn set(&mut self, block: usize, crc: u32) {
        self.written.add(block);
        self.crcs[block] = crc;
    }

    /// The block to write as page `number` of a slot's `life`.
    pub fn encode(&self, number: u16, life: &Life) -> Bytes {
        let mut w = Writer::with_capacity(TABLE_AT + 4 * PAGE_BLOCKS);
        w.put_raw(&MAGIC).put_u16(number).put_u64(life.slot_seq).put_u64(self.seq);
        for word in self.written.0 {
            w.put_u64(word);
        }
        w.put_u64(life.id.pack.0).put_u8(life.id.shard).put_u64(life.guid_lo).put_u8(u8::from(self.suspect));
        w.put_raw(&[0; TABLE_AT][w.len()..]);
        for crc in self.crcs.iter() {
            w.put_u32(*crc);
        }
        seal(&w.finish(), CRC_AT)
    }

    /// What `block` holds as page `number` of a slot in `life`.
    pub fn decode(block: &[u8], number: u16, life: &Life) -> Copy {
        if !is_sealed(block, CRC_AT) || !block.starts_with(&MAGIC) {
            return if is_zero(block) { Copy::Absent } else { Copy::Damaged };
        }
        Self::fields(block, number, life).unwrap_or(Copy::Damaged)
    }

    fn fields(block: &[u8], number: u16, life: &Life) -> Option<Copy> {
        let mut r = Reader::new(&block[MAGIC.len()..]);
        let (found_number, slot_seq, seq) = (r.u16().ok()?, r.u64().ok()?, r.u64().ok()?);
        let mut page = Self { seq, ..Self::empty() };
        for word in &mut page.written.0 {
            *word = r.u64().ok()?;
        }
        let id = ShardId { pack: braid_base::ids::PackId(r.u64().ok()?), shard: r.u8().ok()? };
        let found = Life { slot_seq, id, guid_lo: r.u64().ok()? };
        page.suspect = r.u8().ok()? != 0;
        if found != *life || found_number != number {
            return Some(Copy::Absent);
        }
        let mut r = Reader::new(&block[TABLE_AT..]);
        for crc in page.crcs.iter_mut() {
            *crc = r.u32().ok()?;
        }
        Some(Copy::Good(page))
    }
}

#[cfg(test)]
mod tests {
    use super::{Copy, Life, Page};
    use braid_base::ids::PackId;
    use braid_base::msg::drive::ShardId;

    const LIFE: Life = Life { slot_seq: 3, id: ShardId { pack: PackId(4), shard: 1 }, guid_lo: 5 };

    fn good(copy: Copy) -> Page {
        match copy {
            Copy::Good(page) => page,
            _ => panic!("expected a good page"),
        }
    }

    #[test]
    fn round_trip_and_every_flip_is_seen() {
        let mut page = Page::empty();
        page.seq = 8;
        for block in [0, 63, 64, 500, 959] {
            page.set(block, 0x1000 + block as u32);
        }
        let block = page.encode(2, &LIFE);
        assert_eq!(block.len(), 4096);
        let back = good(Page::decode(&block, 2, &LIFE));
        assert!(back == page);
        assert_eq!((back.crc(64), back.crc(65)), (Some(0x1000 + 64), None));
        for at in 0..4096 {
            let mut bad = block.to_vec();
            bad[at] ^= 0x10;
            assert!(matches!(Page::decode(&bad, 2, &LIFE), Copy::Damaged), "flip at {at}");
        }
    }

    #[test]
    fn other_lives_are_not_read() {
        let block = Page::empty().encode(0, &LIFE);
        assert!(matches!(Page::decode(&block, 0, &LIFE), Copy::Good(_)));
        let other = ShardId { pack: PackId(4), shard: 2 };
        for life in [Life { slot_seq: 4, ..LIFE }, Life { id: other, ..LIFE }, Life { guid_lo: 6, ..LIFE }] {
            assert!(matches!(Page::decode(&block, 0, &life), Copy::Absent));
        }
        assert!(matches!(Page::decode(&block, 1, &LIFE), Copy::Absent));
        assert!(matches!(Page::decode(&[0; 4096], 0, &LIFE), Copy::Absent));
    }
}
