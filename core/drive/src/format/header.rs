//! The slot header: the only record of what a slot holds.

use braid_base::codec::{Reader, Writer};
use braid_base::ids::{FsId, PackId, Term};
use braid_base::limits::BLOCK;
use braid_base::msg::drive::ShardId;
use braid_base::record::PackClass;
use bytes::Bytes;

use super::{is_sealed, is_zero, seal};

const MAGIC: [u8; 8] = *b"BRAIDSLT";
const FORMAT: u32 = 1;
const CRC_AT: usize = BLOCK - 4;

/// What a slot holds. Two copies; the higher valid `slot_seq` wins; each change is written over the other copy.
///
/// ```text
///  0      8     12         20      21          29      30  31  32      33
/// | magic | fmt | slot_seq | state | pack_id u64 | shard | D | P | class | partition_term u64 |
///  41         45           53                 61
/// | fs_hint u32 | created u64 | guid_lo u64 | 0.. | crc u32 |
///                                                  4092
/// ```
///
/// A header of another formatting (other `guid_lo`) counts as none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// +1 at every change of the slot; checksum pages of another `slot_seq` belong to an earlier life.
    pub seq: u64,
    /// What the slot is doing.
    pub state: State,
    /// The shard, or the last one in a slot that is not live.
    pub id: ShardId,
    /// Data shards of its pack.
    pub data: u8,
    /// Parity shards of its pack.
    pub parity: u8,
    /// What its pack is for.
    pub class: PackClass,
    /// Term of the partition that made it.
    pub term: Term,
    /// A file system the pack serves, for reports.
    pub fs: FsId,
    /// When this state began, seconds since the epoch.
    pub created: u64,
}

/// What a slot is doing. The numbers are on disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// Nothing.
    Free = 1,
    /// Holds its shard.
    Live = 2,
    /// Its shard was dropped; the bytes are kept for a while.
    Quarantine = 3,
}

/// What one header copy turned out to be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Copy {
    /// As it was written.
    Good(Header),
    /// Never written under this formatting.
    Absent,
    /// Torn or rotten.
    Damaged,
}

impl Header {
    /// The block to write.
    pub fn encode(&self, guid_lo: u64) -> Bytes {
        let mut w = Writer::with_capacity(64);
        w.put_raw(&MAGIC).put_u32(FORMAT).put_u64(self.seq).put_u8(self.state as u8).put_u64(self.id.pack.0);
        w.put_u8(self.id.shard).put_u8(self.data).put_u8(self.parity).put_u8(self.class as u8);
        w.put_u64(self.term.0).put_u32(self.fs.0).put_u64(self.created).put_u64(guid_lo);
        seal(&w.finish(), CRC_AT)
    }

    /// What `block` holds on the drive of `guid_lo`.
    pub fn decode(block: &[u8], guid_lo: u64) -> Copy {
        if !is_sealed(block, CRC_AT) || !block.starts_with(&MAGIC) {
            return if is_zero(block) { Copy::Absent } else { Copy::Damaged };
        }
        match Self::fields(block) {
            Some((header, guid)) if guid == guid_lo => Copy::Good(header),
            Some(_) => Copy::Absent,
            None => Copy::Damaged,
        }
    }

    fn fields(block: &[u8]) -> Option<(Self, u64)> {
        let mut r = Reader::new(&block[MAGIC.len()..]);
        if r.u32().ok()? != FORMAT {
            return None;
        }
        let seq = r.u64().ok()?;
        let state = match r.u8().ok()? {
            1 => State::Free,
            2 => State::Live,
            3 => State::Quarantine,
            _ => return None,
        };
        let id = ShardId { pack: PackId(r.u64().ok()?), shard: r.u8().ok()? };
        let (data, parity) = (r.u8().ok()?, r.u8().ok()?);
        let class = match r.u8().ok()? {
            1 => PackClass::User,
            2 => PackClass::Destage,
            3 => PackClass::Gc,
            4 => PackClass::Cache,
            _ => return None,
        };
        let (term, fs, created) = (Term(r.u64().ok()?), FsId(r.u32().ok()?), r.u64().ok()?);
        let header = Self { seq, state, id, data, parity, class, term, fs, created };
        Some((header, r.u64().ok()?))
    }
}

#[cfg(test)]
mod tests {
    use super::{Copy, Header, State};
    use braid_base::ids::{FsId, PackId, Term};
    use braid_base::msg::drive::ShardId;
    use braid_base::record::PackClass;

    #[test]
    fn round_trip_and_every_flip_is_seen() {
        let header = Header {
            seq: 9,
            state: State::Live,
            id: ShardId { pack: PackId(0x0007_0000_0000_0009), shard: 3 },
            data: 4,
            parity: 2,
            class: PackClass::Gc,
            term: Term(11),
            fs: FsId(12),
            created: 13,
        };
        let block = header.encode(77);
        assert_eq!(Header::decode(&block, 77), Copy::Good(header));
        assert_eq!(Header::decode(&block, 78), Copy::Absent, "another formatting");
        assert_eq!(block[20..33], [2, 9, 0, 0, 0, 0, 0, 7, 0, 3, 4, 2, 3]);
        for at in (0..4096).step_by(3) {
            let mut bad = block.to_vec();
            bad[at] ^= 0x10;
            assert_eq!(Header::decode(&bad, 77), Copy::Damaged, "flip at {at}");
        }
        assert_eq!(Header::decode(&[0; 4096], 77), Copy::Absent);
    }
}
