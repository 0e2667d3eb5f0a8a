//! The header of an object: whose it is.

use std::ops::RangeInclusive;

use braid_base::codec::{Reader, Writer};
use braid_base::crc::crc32c_parts;
use braid_base::ids::{BlobId, FsId, Guid, Ino, PartitionId, Term};
use braid_base::limits::BLOCK;
use braid_base::{Error, ErrorKind, Result};
use bytes::Bytes;

use super::{BLOCK_BYTES, DATA_MAX, PIECE};

/// First bytes of header and footer.
const MAGIC: [u8; 8] = *b"BRAIDOBJ";
const FORMAT: u32 = 1;
const CRC_AT: usize = BLOCK - 4;
/// Bytes before the checksums of the descriptors.
pub(super) const FIELDS: usize = 112;

/// What an object is: at its beginning, and again at its end.
///
/// ```text
///  0       8        12        16             32             48       52              54      56            64
///  | magic | format | key 0   | cluster guid | fs uuid      | fs u32 | partition u16 | pad 0 | serial u64  |
///  64         72             80              88              96              104         108          112
///  | term u64 | data_len u64 | created_s u64 | ino_min u64   | ino_max u64   | files u32 | pieces u32 |
///  112                                            4092
///  | crc32c u32 of each descriptor | 0 ...        | crc u32 |
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// The cluster that wrote it.
    pub cluster: Guid,
    /// The file system whose data it holds.
    pub fs_uuid: Guid,
    /// Its number in the cluster.
    pub fs: FsId,
    /// Its partition and serial, as its key has them.
    pub blob: BlobId,
    /// The term of the partition in which it was written, as its key has it.
    pub term: Term,
    /// Bytes of data: whole blocks, at least one, at most [`DATA_MAX`].
    pub data_len: u64,
    /// When it was made, seconds since the epoch.
    pub created_s: u64,
}

/// All that header and footer say: what the object is, and what is in it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Head {
    /// What the object is.
    pub header: Header,
    /// The lowest and the highest inode number that it has blocks of.
    pub inos: RangeInclusive<Ino>,
    /// Files that it has blocks of.
    pub files: u32,
    /// CRC32C of each descriptor.
    pub descriptors: Vec<u32>,
}

impl Head {
    /// Header and footer of the object.
    pub(super) fn encode(&self) -> Bytes {
        let Self { header, inos, files, descriptors } = self;
        assert!(is_data_len(header.data_len), "an object of {} bytes of data", header.data_len);
        assert!(descriptors.len() as u64 == header.data_len.div_ceil(PIECE), "one descriptor for each piece");
        let mut w = Writer::with_capacity(BLOCK);
        w.put_raw(&MAGIC).put_u32(FORMAT).put_u32(0).put_raw(&header.cluster.0).put_raw(&header.fs_uuid.0);
        w.put_u32(header.fs.0).put_u16(header.blob.partition().0).put_u16(0).put_u64(header.blob.serial());
        w.put_u64(header.term.0).put_u64(header.data_len).put_u64(header.created_s);
        w.put_u64(inos.start().0).put_u64(inos.end().0).put_u32(*files).put_u32(descriptors.len() as u32);
        for crc in descriptors {
            w.put_u32(*crc);
        }
        let mut block = w.finish();
        block.resize(CRC_AT, 0);
        let crc = crc_of(&block);
        block.extend_from_slice(&crc.to_le_bytes());
        block.into()
    }

    /// What the 4 KiB `block`, header or footer, say. `Corrupt`: it is none, or damaged; `Unsupported`: a later
    /// release wrote it.
    pub fn decode(block: &[u8]) -> Result<Self> {
        if !block.starts_with(&MAGIC) {
            let found = String::from_utf8_lossy(&block[..block.len().min(MAGIC.len())]).escape_debug().to_string();
            return Err(corrupt(format!("expected it to begin with BRAIDOBJ, found \"{found}\": no object of Braid")));
        }
        let Some((fields, stored)) = block.split_at_checked(CRC_AT).filter(|_| block.len() == BLOCK) else {
            return Err(corrupt(format!("expected {BLOCK} bytes, found {}", block.len())));
        };
        let (found, expected) = (Reader::new(stored).u32()?, crc_of(fields));
        if found != expected {
            return Err(corrupt(format!("expected checksum {expected:08x} by its bytes, found {found:08x} in it")));
        }
        Self::fields(&mut Reader::new(&fields[MAGIC.len()..]))
    }

    fn fields(r: &mut Reader<'_>) -> Result<Self> {
        let (format, key) = (r.u32()?, r.u32()?);
        if format != FORMAT {
            let words = format!("expected format {FORMAT}, found {format}: read it with the release that wrote it");
            return Err(Error::new(ErrorKind::Unsupported, words));
        }
        if key != 0 {
            let words = format!("expected no encryption, found key {key}: read it with the release that wrote it");
            return Err(Error::new(ErrorKind::Unsupported, words));
        }
        let (cluster, fs_uuid, fs) = (Guid(r.array()?), Guid(r.array()?), FsId(r.u32()?));
        let (partition, _pad, serial, term) = (PartitionId(r.u16()?), r.u16()?, r.u64()?, Term(r.u64()?));
        let (data_len, created_s, inos) = (r.u64()?, r.u64()?, Ino(r.u64()?)..=Ino(r.u64()?));
        let (files, pieces) = (r.u32()?, r.u32()?);
        if !is_data_len(data_len) || u64::from(pieces) != data_len.div_ceil(PIECE) {
            return Err(corrupt(format!(
                "{data_len} bytes of data in {pieces} pieces: no writer makes such an object"
            )));
        }
        if serial == 0 || serial >> 48 != 0 {
            return Err(corrupt(format!("expected a serial of 48 bits that is not 0, found {serial}")));
        }
        let descriptors = (0..pieces).map(|_| r.u32()).collect::<Result<_>>()?;
        let blob = BlobId::new(partition, serial);
        let header = Header { cluster, fs_uuid, fs, blob, term, data_len, created_s };
        Ok(Self { header, inos, files, descriptors })
    }
}

fn is_data_len(bytes: u64) -> bool {
    bytes > 0 && bytes <= DATA_MAX && bytes.is_multiple_of(BLOCK_BYTES)
}

/// CRC32C of a block whose first [`CRC_AT`] bytes are `fields`, with its own four bytes taken as zeros.
fn crc_of(fields: &[u8]) -> u32 {
    crc32c_parts(&[fields, &[0; 4]])
}

fn corrupt(words: String) -> Error {
    Error::new(ErrorKind::Corrupt, format!("the header of an object: {words}"))
}
