//! The superblock: whose drive this is and how it is laid out.

use braid_base::codec::{Reader, Writer};
use braid_base::ids::{DomainId, DriveId, Guid};
use braid_base::limits::BLOCK;
use braid_base::{Error, ErrorKind, Result};
use bytes::Bytes;

use super::{is_sealed, seal};
use crate::layout::Layout;

/// First bytes of both superblock copies.
pub const MAGIC: [u8; 8] = *b"BRAIDDRV";
const FORMAT: u32 = 1;
const CRC_AT: usize = BLOCK - 4;

/// Whose drive this is. Two copies, at offset 0 and in the last block; the higher valid `seq` wins.
///
/// ```text
///  0      8     12      16             32           48         52   54    56
/// | magic | fmt | flags | cluster_guid | drive_uuid | drive_id | fd | pad | S in 4 KiB blocks u32 |
///  60                68               76               80          84        92            100
/// | slot_stride u64 | first_slot u64 | slot_count u32 | state u32 | seq u64 | created u64 | size u64 | 0.. | crc u32 |
///                                                                                                    4092
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Superblock {
    /// The cluster it belongs to.
    pub cluster: Guid,
    /// The drive itself; made at format.
    pub drive: Guid,
    /// Its number in the cluster.
    pub id: DriveId,
    /// Its failure domain when it was formatted.
    pub domain: DomainId,
    /// Where everything is.
    pub layout: Layout,
    /// +1 whenever it is rewritten.
    pub seq: u64,
    /// When it was formatted, seconds since the epoch.
    pub created: u64,
}

/// What one copy turned out to be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Copy {
    /// As it was written.
    Good(Superblock),
    /// The magic is there, the rest is not sound; why.
    Damaged(String),
    /// No superblock.
    Absent,
}

impl Superblock {
    /// The block to write, both copies alike.
    pub fn encode(&self) -> Bytes {
        let mut w = Writer::with_capacity(128);
        w.put_raw(&MAGIC).put_u32(FORMAT).put_u32(0).put_raw(&self.cluster.0).put_raw(&self.drive.0);
        w.put_u32(self.id.0).put_u16(self.domain.0).put_u16(0).put_u32(self.layout.shard_blocks);
        w.put_u64(self.layout.stride).put_u64(self.layout.first_slot).put_u32(self.layout.slots);
        w.put_u32(0).put_u64(self.seq).put_u64(self.created).put_u64(self.layout.size);
        seal(&w.finish(), CRC_AT)
    }

    /// What `block` holds.
    pub fn decode(block: &[u8]) -> Copy {
        if !block.starts_with(&MAGIC) {
            return Copy::Absent;
        }
        if !is_sealed(block, CRC_AT) {
            return Copy::Damaged("its checksum does not match".into());
        }
        match Self::fields(block) {
            Ok(found) => Copy::Good(found),
            Err(error) => Copy::Damaged(error.message().to_owned()),
        }
    }

    fn fields(block: &[u8]) -> Result<Self> {
        let mut r = Reader::new(&block[MAGIC.len()..]);
        let format = r.u32()?;
        if format != FORMAT {
            let words = format!("expected format {FORMAT}, found {format}: written by another release of braid");
            return Err(Error::new(ErrorKind::Unsupported, words));
        }
        let _flags = r.u32()?;
        let (cluster, drive) = (Guid(r.array()?), Guid(r.array()?));
        let (id, domain) = (DriveId(r.u32()?), DomainId(r.u16()?));
        let _pad = r.u16()?;
        let (shard_blocks, stride, first_slot, slots) = (r.u32()?, r.u64()?, r.u64()?, r.u32()?);
        let _state = r.u32()?;
        let (seq, created, size) = (r.u64()?, r.u64()?, r.u64()?);
        let layout = Layout { shard_blocks, stride, first_slot, slots, size };
        layout.check()?;
        Ok(Self { cluster, drive, id, domain, layout, seq, created })
    }

    /// Low half of the drive's identity: slots of an earlier formatting do not carry it.
    pub fn guid_lo(&self) -> u64 {
        let [.., a, b, c, d, e, f, g, h] = self.drive.0;
        u64::from_le_bytes([a, b, c, d, e, f, g, h])
    }
}

#[cfg(test)]
mod tests {
    use super::{Copy, Superblock};
    use crate::layout::Layout;
    use braid_base::ids::{DomainId, DriveId, Guid};

    #[test]
    fn round_trip_golden_bytes_and_every_flip_is_seen() {
        let sb = Superblock {
            cluster: Guid([1; 16]),
            drive: Guid([2; 16]),
            id: DriveId(7),
            domain: DomainId(3),
            layout: Layout::plan(64 << 20, 1 << 20).expect("large enough"),
            seq: 5,
            created: 6,
        };
        let block = sb.encode();
        assert_eq!(Superblock::decode(&block), Copy::Good(sb));
        assert_eq!(&block[..20], b"BRAIDDRV\x01\0\0\0\0\0\0\0\x01\x01\x01\x01");
        assert_eq!(block[56..60], 256u32.to_le_bytes());
        assert_eq!(block[84..92], 5u64.to_le_bytes());
        for at in (8..4096).step_by(3) {
            let mut bad = block.to_vec();
            bad[at] ^= 0x10;
            assert!(matches!(Superblock::decode(&bad), Copy::Damaged(_)), "flip at {at}");
        }
        assert_eq!(Superblock::decode(&[0; 4096]), Copy::Absent);
    }
}
