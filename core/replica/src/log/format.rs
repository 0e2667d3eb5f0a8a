//! Bytes of segment headers and records; see the layout in [`crate::log`].

use braid_base::codec::{Reader, Writer};
use braid_base::crc::{block_crcs, crc32c, crc32c_parts};
use braid_base::ids::{ClientId, Guid, Index, OpId, PartitionId, Term};
use braid_base::limits::{BLOCK, RECORD_META_MAX, WRITE_MAX};
use braid_base::{Error, ErrorKind, Result};
use bytes::Bytes;

use super::buffer::AlignedBuffer;
use super::{LogIdent, Segment};
use crate::entry::{Entry, Record};
use crate::kv::batch::Batch;

/// Bytes of a record before its meta.
pub const RECORD_HEADER: usize = 40;
/// Flag: the next record starts at the next multiple of 4096.
pub const LAST_OF_GROUP: u16 = 1;
/// Flag: the log was cut here, the chain starts anew.
pub const AFTER_TRUNCATION: u16 = 2;

const MAGIC: &[u8; 8] = b"BRAIDLOG";
const FORMAT: u32 = 1;
const META_VERSION: u8 = 1;

/// The first block of a segment: `magic 8 | fmt u32 | cluster 16 | partition u16 | store 16 | seg u64 |
/// first_index u64 | first_term u64 | crc u32`, zeros to 4 KiB; the crc covers all before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SegmentHeader {
    /// Whose log.
    pub ident: LogIdent,
    /// Its own number.
    pub segment: Segment,
    /// Index of its first record; older segments end before it.
    pub first_index: Index,
    /// Term of its first record.
    pub first_term: Term,
}

impl SegmentHeader {
    /// The block to write.
    pub fn encode(&self) -> Bytes {
        let mut out = Writer::with_capacity(BLOCK);
        out.put_raw(MAGIC).put_u32(FORMAT).put_raw(&self.ident.cluster.0).put_u16(self.ident.partition.0);
        out.put_raw(&self.ident.store.0).put_u64(self.segment.0).put_u64(self.first_index.0);
        out.put_u64(self.first_term.0);
        let mut bytes = out.finish();
        bytes.extend_from_slice(&crc32c(&bytes).to_le_bytes());
        let mut block = AlignedBuffer::new(BLOCK);
        block.put(&bytes);
        block.finish()
    }

    /// Reads a block. `None` if it is no header (never written, torn, damaged); `Refused` if it is one
    /// of a newer format.
    pub fn decode(block: &[u8]) -> Result<Option<Self>> {
        Self::parse(block).or_else(|e| if e.kind() == ErrorKind::Corrupt { Ok(None) } else { Err(e) })
    }

    fn parse(block: &[u8]) -> Result<Option<Self>> {
        let mut from = Reader::new(block);
        let magic: [u8; 8] = from.array()?;
        let format = from.u32()?;
        let ident =
            LogIdent { cluster: Guid(from.array()?), partition: PartitionId(from.u16()?), store: Guid(from.array()?) };
        let (segment, first_index) = (Segment(from.u64()?), Index(from.u64()?));
        let first_term = Term(from.u64()?);
        let covered = block.len() - from.remaining();
        if &magic != MAGIC || from.u32()? != crc32c(&block[..covered]) {
            return Ok(None);
        }
        if format != FORMAT {
            return Err(Error::new(
                ErrorKind::Refused,
                format!("{segment}: expected log format {FORMAT}, found {format}; use the release that wrote it"),
            ));
        }
        Ok(Some(Self { ident, segment, first_index, first_term }))
    }
}

/// The first bytes of a record, plausible but not yet checked.
#[derive(Clone, Copy, Debug)]
pub struct RecordHeader {
    /// Checksum of header and meta; also the next record's `prev_crc`.
    pub crc: u32,
    /// Checksum of the record before.
    pub prev_crc: u32,
    /// [`LAST_OF_GROUP`], [`AFTER_TRUNCATION`].
    pub flags: u16,
    nops: u16,
    /// Term of the record.
    pub term: Term,
    /// Index of the record.
    pub index: Index,
    meta_len: usize,
    payload_len: usize,
}

impl RecordHeader {
    /// Reads the header at the front of `bytes`; `None` if these bytes cannot be one.
    pub fn parse(bytes: &[u8]) -> Option<Self> {
        let mut from = Reader::new(bytes);
        let len = from.u32().ok()? as usize;
        let (crc, prev_crc, flags, nops) = (from.u32().ok()?, from.u32().ok()?, from.u16().ok()?, from.u16().ok()?);
        let (term, index) = (Term(from.u64().ok()?), Index(from.u64().ok()?));
        let (meta_len, payload_len) = (from.u32().ok()? as usize, from.u32().ok()? as usize);
        let plausible = meta_len <= META_MAX
            && payload_len <= WRITE_MAX
            && len == RECORD_HEADER + meta_len + payload_len
            && flags & !(LAST_OF_GROUP | AFTER_TRUNCATION) == 0
            && index.0 > 0;
        plausible.then_some(Self { crc, prev_crc, flags, nops, term, index, meta_len, payload_len })
    }

    /// Bytes of the whole record.
    pub fn record_len(&self) -> usize {
        RECORD_HEADER + self.meta_len + self.payload_len
    }

    /// Bytes before the payload.
    pub fn payload_offset(&self) -> usize {
        RECORD_HEADER + self.meta_len
    }
}

// The table of payload checksums and the operation ids come on top of the effects.
const META_MAX: usize = RECORD_META_MAX + 4 * (WRITE_MAX / BLOCK) + 16 * (u16::MAX as usize) + 64;
/// Largest record, bytes.
pub const RECORD_MAX: usize = RECORD_HEADER + META_MAX + WRITE_MAX;

/// A checked record that still lies in the buffer it was read into.
pub struct RecordView<'a> {
    /// Its header.
    pub header: RecordHeader,
    /// Up to here the writer knew the log to be durable.
    pub durable: Index,
    /// Requests answered.
    pub ops: Vec<OpId>,
    /// Changes.
    pub batch: Batch,
    /// One CRC32C per 4 KiB of payload.
    pub payload_crcs: Vec<u32>,
    /// State hash, where it has one.
    pub state_hash: Option<u64>,
    /// Staged file bytes.
    pub payload: &'a [u8],
}

impl<'a> RecordView<'a> {
    /// Checks and reads the record in `bytes` (exactly `header.record_len()` of them). `None` if any of it is damaged.
    pub fn parse(ident: &LogIdent, segment: Segment, header: RecordHeader, bytes: &'a [u8]) -> Option<Self> {
        let (head, payload) = bytes.split_at_checked(header.payload_offset())?;
        if record_crc(ident, segment, head) != header.crc {
            return None;
        }
        let view = Self::parse_meta(header, &head[RECORD_HEADER..], payload).ok()?;
        (block_crcs(payload) == view.payload_crcs).then_some(view)
    }

    /// A copy that owns everything.
    pub fn to_record(&self) -> Record {
        let payload = Bytes::copy_from_slice(self.payload);
        Record {
            term: self.header.term,
            index: self.header.index,
            entry: Entry::with_crcs(self.ops.clone(), self.batch.clone(), payload, self.payload_crcs.clone()),
            state_hash: self.state_hash,
        }
    }

    fn parse_meta(header: RecordHeader, meta: &[u8], payload: &'a [u8]) -> Result<Self> {
        let mut from = Reader::new(meta);
        from.version(META_VERSION, "a log record")?;
        let durable = Index(from.u64()?);
        let mut ops = Vec::with_capacity(usize::from(header.nops));
        for _ in 0..header.nops {
            ops.push(OpId { client: ClientId(from.u64()?), seq: from.u64()? });
        }
        let batch = Batch::decode(&mut from)?;
        let mut payload_crcs = Vec::with_capacity(payload.len().div_ceil(BLOCK));
        for _ in 0..payload.len().div_ceil(BLOCK) {
            payload_crcs.push(from.u32()?);
        }
        let state_hash = if from.u8()? == 0 { None } else { Some(from.u64()?) };
        Ok(Self { header, durable, ops, batch, payload_crcs, state_hash, payload })
    }
}

/// Bytes that [`encode_record`] will put.
pub fn record_len(record: &Record) -> usize {
    let entry = &record.entry;
    let hash = if record.state_hash.is_some() { 9 } else { 1 };
    let meta = 9 + 16 * entry.ops().len() + entry.batch().encoded_len() + 4 * entry.payload_crcs().len() + hash;
    RECORD_HEADER + meta + entry.payload().len()
}

/// Where a record goes and what precedes it.
pub struct Place<'a> {
    /// Whose log.
    pub ident: &'a LogIdent,
    /// Which segment.
    pub segment: Segment,
    /// Checksum of the record before.
    pub prev_crc: u32,
    /// [`LAST_OF_GROUP`], [`AFTER_TRUNCATION`].
    pub flags: u16,
    /// The log is durable up to here.
    pub durable: Index,
}

/// Puts a record into its group and returns its checksum.
pub fn encode_record(record: &Record, place: &Place<'_>, group: &mut AlignedBuffer) -> u32 {
    let entry = &record.entry;
    let meta = encode_meta(record, place.durable);
    assert!(meta.len() <= META_MAX, "{}: effects of {} bytes exceed {META_MAX}", record.index, meta.len());
    let fit = |len: usize| u32::try_from(len).expect("bounded by RECORD_MAX");
    let mut out = Writer::with_capacity(RECORD_HEADER + meta.len());
    out.put_u32(fit(RECORD_HEADER + meta.len() + entry.payload().len())).put_u32(0).put_u32(place.prev_crc);
    out.put_u16(place.flags).put_u16(u16::try_from(entry.ops().len()).expect("a group commit has far fewer requests"));
    out.put_u64(record.term.0).put_u64(record.index.0);
    out.put_u32(fit(meta.len())).put_u32(fit(entry.payload().len())).put_raw(&meta);
    let mut head = out.finish();
    let crc = record_crc(place.ident, place.segment, &head);
    head[4..8].copy_from_slice(&crc.to_le_bytes());
    group.put(&head);
    group.put(entry.payload());
    crc
}

/// `version u8 | durable u64 | nops x (client u64 | seq u64) | batch | n x payload crc u32 | 0, or 1 and state hash u64`.
fn encode_meta(record: &Record, durable: Index) -> Vec<u8> {
    let mut out = Writer::with_capacity(record_len(record) - record.entry.payload().len());
    out.put_u8(META_VERSION).put_u64(durable.0);
    for op in record.entry.ops() {
        out.put_u64(op.client.0).put_u64(op.seq);
    }
    record.entry.batch().encode(&mut out);
    for crc in record.entry.payload_crcs() {
        out.put_u32(*crc);
    }
    match record.state_hash {
        None => out.put_u8(0),
        Some(hash) => out.put_u8(1).put_u64(hash),
    };
    out.finish()
}

/// Over everything but the checksum itself; store and segment go in first, so that a recycled file's
/// old records fail.
fn record_crc(ident: &LogIdent, segment: Segment, head: &[u8]) -> u32 {
    crc32c_parts(&[&ident.store.0, &segment.0.to_le_bytes(), &head[..4], &head[8..]])
}
