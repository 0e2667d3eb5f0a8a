//! The frame: a header of 64 bytes, the meta part, the data part.
//!
//! | at | bytes | what |
//! |---|---|---|
//! | 0 | 4 | `BRDW` |
//! | 4 | 1 | version, [`VERSION`] |
//! | 5 | 1 | what it is ([`Kind`]) |
//! | 6 | 2 | flags: bit 0, the data part has a checksum |
//! | 8 | 8 | number of the request that it asks or answers; 0 where nothing is asked |
//! | 16 | 4 | partition or drive that is asked or told |
//! | 20 | 4 | length of the meta part |
//! | 24 | 4 | length of the data part |
//! | 28 | 4 | CRC32C of the meta part |
//! | 32 | 4 | CRC32C of the data part, 0 without flag 0 |
//! | 36 | 24 | zeros |
//! | 60 | 4 | CRC32C of the 60 bytes before |
//!
//! The blocks of drives, and what records of the log stage, carry checksums of their own in the meta part, made by who
//! wrote them and checked by who uses them, so their frames have none; all other data is checked here.

use braid_base::codec::{Reader, Writer};
use braid_base::crc::{crc32c, crc32c_parts};
use braid_base::{Error, ErrorKind, Result};
use bytes::Bytes;

use crate::codec::Encoded;
use crate::limits::{DATA_MAX, META_MAX};

/// Bytes of a header.
pub const HEADER: usize = 64;
const MAGIC: &[u8; 4] = b"BRDW";
/// Version of frames and messages; both sides must have the same.
pub const VERSION: u8 = 17;
const FLAG_DATA_CRC: u16 = 1;

/// What a frame is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Kind {
    /// Client to server, first.
    Hello = 1,
    /// The answer: come in, or why not.
    Welcome = 2,
    /// A request to a partition.
    AskPartition = 3,
    /// A request to a drive.
    AskDrive = 4,
    /// Their answer.
    Answer = 5,
    /// Are you there?
    Ping = 6,
    /// Yes.
    Pong = 7,
    /// Partition to client, unasked.
    Push = 8,
    /// A request to the host itself.
    AskHost = 9,
    /// Replica to replica of a partition, unanswered.
    Replica = 10,
    /// Partition to partition, unanswered.
    Peer = 11,
    /// Bytes of a connection that is relayed.
    Carried = 12,
}

impl Kind {
    pub(crate) fn from_u8(number: u8) -> Option<Self> {
        Some(match number {
            1 => Self::Hello,
            2 => Self::Welcome,
            3 => Self::AskPartition,
            4 => Self::AskDrive,
            5 => Self::Answer,
            6 => Self::Ping,
            7 => Self::Pong,
            8 => Self::Push,
            9 => Self::AskHost,
            10 => Self::Replica,
            11 => Self::Peer,
            12 => Self::Carried,
            _ => return None,
        })
    }
}

/// A header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// What the frame is.
    pub kind: Kind,
    /// Number of the request.
    pub id: u64,
    /// Partition or drive.
    pub target: u32,
    /// Length of the meta part.
    pub meta_len: u32,
    /// Length of the data part.
    pub data_len: u32,
    meta_crc: u32,
    data_crc: Option<u32>,
}

impl Header {
    /// The header of a message; `check_data`: with a checksum of the data.
    pub fn of(kind: Kind, id: u64, target: u32, message: &Encoded, check_data: bool) -> Self {
        let data: Vec<&[u8]> = message.data.iter().map(|part| &part[..]).collect();
        Self {
            kind,
            id,
            target,
            meta_len: u32::try_from(message.meta.len()).expect("messages are bounded far below 4 GiB"),
            data_len: u32::try_from(message.data_len()).expect("messages are bounded far below 4 GiB"),
            meta_crc: crc32c(&message.meta),
            data_crc: (check_data && !data.is_empty()).then(|| crc32c_parts(&data)),
        }
    }

    /// Its bytes.
    pub fn encode(&self) -> [u8; HEADER] {
        let mut w = Writer::with_capacity(HEADER);
        w.put_raw(MAGIC).put_u8(VERSION).put_u8(self.kind as u8);
        w.put_u16(if self.data_crc.is_some() { FLAG_DATA_CRC } else { 0 });
        w.put_u64(self.id).put_u32(self.target).put_u32(self.meta_len).put_u32(self.data_len);
        w.put_u32(self.meta_crc).put_u32(self.data_crc.unwrap_or(0)).put_raw(&[0; 24]);
        let mut bytes = w.finish();
        let crc = crc32c(&bytes);
        bytes.extend_from_slice(&crc.to_le_bytes());
        bytes.try_into().expect("60 bytes and 4")
    }

    /// The header in `bytes`. `Corrupt` if it is none, or of another version, or beyond the limits.
    pub fn decode(bytes: &[u8; HEADER]) -> Result<Self> {
        let r = &mut Reader::new(bytes);
        if r.array()? != *MAGIC {
            return Err(corrupt("this is not Braid's protocol".to_owned()));
        }
        r.version(VERSION, "wire")?;
        let (kind, flags) = (r.u8()?, r.u16()?);
        let (id, target, meta_len, data_len) = (r.u64()?, r.u32()?, r.u32()?, r.u32()?);
        let (meta_crc, data_crc) = (r.u32()?, r.u32()?);
        r.raw(24)?;
        if r.u32()? != crc32c(&bytes[..HEADER - 4]) {
            return Err(corrupt("a frame's header does not match its checksum".to_owned()));
        }
        let kind = Kind::from_u8(kind).ok_or_else(|| corrupt(format!("unknown kind of frame {kind}")))?;
        if meta_len as usize > META_MAX || data_len as usize > DATA_MAX {
            return Err(corrupt(format!("a frame of {meta_len} and {data_len} bytes is too long")));
        }
        let data_crc = (flags & FLAG_DATA_CRC != 0).then_some(data_crc);
        Ok(Self { kind, id, target, meta_len, data_len, meta_crc, data_crc })
    }

    /// Length of the whole frame.
    pub fn frame_len(&self) -> usize {
        HEADER + self.meta_len as usize + self.data_len as usize
    }

    /// `Corrupt` if the parts are not those that were sent.
    pub fn check(&self, meta: &[u8], data: &[u8]) -> Result<()> {
        if crc32c(meta) != self.meta_crc || self.data_crc.is_some_and(|crc| crc32c(data) != crc) {
            return Err(corrupt("a frame does not match its checksum".to_owned()));
        }
        Ok(())
    }
}

/// A frame that came in.
#[derive(Clone, Debug)]
pub struct Frame {
    /// Its header.
    pub header: Header,
    /// Its meta part.
    pub meta: Bytes,
    /// Its data part, aligned for direct I/O.
    pub data: Bytes,
}

fn corrupt(words: String) -> Error {
    Error::new(ErrorKind::Corrupt, words)
}

#[cfg(test)]
mod tests {
    use super::{HEADER, Header, Kind};
    use crate::codec::Encoded;
    use bytes::Bytes;

    #[test]
    fn a_header_goes_there_and_back_and_no_bit_may_change() {
        let message =
            Encoded { meta: b"meta".to_vec(), data: vec![Bytes::from_static(b"da"), Bytes::from_static(b"ta")] };
        for check in [false, true] {
            let header = Header::of(Kind::AskDrive, 77, 5, &message, check);
            let bytes = header.encode();
            assert_eq!(Header::decode(&bytes).expect("own bytes"), header);
            assert_eq!(header.frame_len(), HEADER + 8);
            header.check(b"meta", b"data").expect("the same");
            assert!(header.check(b"metA", b"data").is_err());
            assert_eq!(header.check(b"meta", b"dAta").is_err(), check);
            for bit in 0..HEADER * 8 {
                let mut wrong = bytes;
                wrong[bit / 8] ^= 1 << (bit % 8);
                assert!(Header::decode(&wrong).is_err(), "bit {bit}");
            }
        }
    }
}
