//! Turns records into segment writes and keeps track of what the log holds. Does no I/O itself.

use std::collections::BTreeMap;
use std::sync::Arc;

use braid_base::Result;
use braid_base::ids::{Index, Term};
use braid_base::limits::BLOCK;
use bytes::Bytes;

use super::buffer::AlignedBuffer;
use super::format::{self, AFTER_TRUNCATION, LAST_OF_GROUP, RecordView, SegmentHeader};
use super::scan::{Parsed, SegmentScan};
use super::{LogIdent, LogReader, Segment};
use crate::entry::Record;

/// Most bytes of one write; a longer batch of records becomes several.
const GROUP_MAX: usize = 8 << 20;
/// Reading starts at most this far before the wanted record.
const SIGNPOST_EVERY: u64 = 64 << 10;

/// One write to a segment file.
#[derive(Clone, Debug)]
pub struct Write {
    /// The file.
    pub segment: Segment,
    /// Where, a multiple of 4096. A write at 0 opens the segment: the file must be there first, with its size.
    pub offset: u64,
    /// What: the length and the address in memory are multiples of 4096.
    pub bytes: Bytes,
}

/// Where a staged payload lies; `offset` and `len` in bytes, neither is aligned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PayloadAt {
    /// The file.
    pub segment: Segment,
    /// First byte in the file.
    pub offset: u64,
    /// Bytes.
    pub len: u32,
}

/// Who still needs the log (design 4.2, rules a to c). `None` = this rule asks for nothing.
#[derive(Clone, Copy, Debug, Default)]
pub struct Retention {
    /// (a) The key-value view durably holds everything up to here.
    pub applied: Index,
    /// (b) Index of the oldest live slice of kind `stage`.
    pub oldest_stage: Option<Index>,
    /// (c) First index that a learner still needs.
    pub oldest_needed: Option<Index>,
}

/// The appending end of a log.
pub struct LogWriter {
    ident: LogIdent,
    segment_bytes: u64,
    /// The last segment while it still takes records, and where the next group goes.
    open: Option<u64>,
    next_segment: Segment,
    last_term: Term,
    last_index: Index,
    chain: u32,
    cut: bool,
    durable: Index,
    segments: Vec<SegmentState>,
    payloads: BTreeMap<Index, (PayloadAt, Box<[u32]>)>,
}

/// What one segment holds.
#[derive(Debug)]
pub(super) struct SegmentState {
    pub(super) segment: Segment,
    pub(super) first: Index,
    /// Last record that counts; `first - 1` if none does.
    pub(super) last: Index,
    /// Some records and their offsets, ascending.
    pub(super) signposts: Vec<(Index, u64)>,
}

impl LogWriter {
    /// A log without records whose first record will follow (`term`, `index`): (0, 0) for a new store.
    pub fn new(ident: LogIdent, segment_bytes: u64, term: Term, index: Index) -> Self {
        assert!(segment_bytes.is_multiple_of(BLOCK as u64), "segments are whole blocks");
        Self {
            ident,
            segment_bytes,
            open: None,
            next_segment: Segment(1),
            last_term: term,
            last_index: index,
            chain: 0,
            cut: true,
            durable: index,
            segments: Vec::new(),
            payloads: BTreeMap::new(),
        }
    }

    /// Term and index of the last record; what the log was started after, if it has none.
    pub fn last(&self) -> (Term, Index) {
        (self.last_term, self.last_index)
    }

    /// Appends `records`, whose indexes must follow. The writes are to be done in this order, each
    /// durable before the next begins, also across calls. A failed write ends the log: no more appends.
    pub fn append(&mut self, records: &[Arc<Record>]) -> Vec<Write> {
        let mut writes = Vec::new();
        let mut rest = records;
        while let Some(first) = rest.first() {
            if self.room() < group_bytes(format::record_len(first)) {
                writes.push(self.open_segment(first));
            }
            let fits = self.group_that_fits(rest);
            writes.push(self.write_group(&rest[..fits]));
            rest = &rest[fits..];
        }
        writes
    }

    /// Everything up to `upto` is durable. Later records say so, which lets recovery tell damage from a torn tail.
    pub fn mark_durable(&mut self, upto: Index) {
        assert!(upto <= self.last_index, "{upto} is beyond the last record {}", self.last_index);
        self.durable = self.durable.max(upto);
    }

    /// Drops all records after (`term`, `index`). Becomes durable with the next append, which opens a new segment; what
    /// must not come back before that is noted in `replica.meta` ([`super::meta_file::ReplicaMeta::cut`]).
    pub fn truncate_after(&mut self, term: Term, index: Index) {
        assert!(index <= self.last_index, "{index} is beyond the last record {}", self.last_index);
        if index == self.last_index {
            return;
        }
        for state in &mut self.segments {
            state.last = state.last.min(index.max(Index(state.first.0 - 1)));
            state.signposts.retain(|(at, _)| *at <= index);
        }
        self.payloads.split_off(&index.next());
        (self.last_term, self.last_index, self.durable) = (term, index, self.durable.min(index));
        (self.open, self.chain, self.cut) = (None, 0, true);
    }

    /// The log, which is empty, goes on after (`term`, `index`).
    pub fn begin_after(&mut self, term: Term, index: Index) {
        assert!(self.segments.is_empty() && self.last_index == Index(0), "only an empty log begins elsewhere");
        (self.last_term, self.last_index, self.durable) = (term, index, index);
    }

    /// Segments that nobody needs any more. Delete or recycle them in this order, oldest first, and call
    /// [`LogWriter::forget`] for each; stop at the first failure.
    pub fn removable(&self, keep: &Retention) -> Vec<Segment> {
        let Some((newest, closed)) = self.segments.split_last() else { return Vec::new() };
        if self.durable < newest.first {
            // A truncation or the newest segment may not be on disk yet: an older one may still say where the log ends.
            return Vec::new();
        }
        let mut upto = keep.applied;
        for needed in [keep.oldest_stage, keep.oldest_needed].into_iter().flatten() {
            upto = upto.min(Index(needed.0.saturating_sub(1)));
        }
        let unneeded = |i: usize, s: &SegmentState| {
            let voided = closed[i + 1..].iter().chain([newest]).any(|later| later.first <= s.first);
            voided || (s.last >= s.first && s.last <= upto)
        };
        closed.iter().enumerate().filter(|(i, s)| unneeded(*i, s)).map(|(_, s)| s.segment).collect()
    }

    /// The segment's file is gone; so are the payloads in it.
    pub fn forget(&mut self, segment: Segment) {
        self.segments.retain(|s| s.segment != segment);
        self.payloads.retain(|_, (at, _)| at.segment != segment);
    }

    /// Where the payload of record `index` lies; `None` if it has none or the record is gone.
    pub fn payload_at(&self, index: Index) -> Option<PayloadAt> {
        self.payloads.get(&index).map(|(at, _)| *at)
    }

    /// One CRC32C per 4 KiB of the payload of record `index`.
    pub fn payload_crcs(&self, index: Index) -> Option<&[u32]> {
        self.payloads.get(&index).map(|(_, crcs)| &**crcs)
    }

    /// First index that can still be read; one after the last if none can.
    pub fn first_index(&self) -> Index {
        self.segments.iter().find(|s| s.last >= s.first).map_or(self.last_index.next(), |s| s.first)
    }

    /// Bytes of one segment.
    pub fn segment_bytes(&self) -> u64 {
        self.segment_bytes
    }

    /// Bytes of all segments that exist.
    pub fn bytes_on_disk(&self) -> u64 {
        self.segment_bytes * self.segments.len() as u64
    }

    /// Bytes of the segments that hold records after `index`.
    pub fn bytes_after(&self, index: Index) -> u64 {
        self.segment_bytes * self.segments.iter().filter(|segment| segment.last > index).count() as u64
    }

    /// Shows the records `from..=upto` in order until `visit` returns false. `Corrupt` if one is
    /// damaged, `NotFound` if one is gone. Stops at what [`LogWriter::mark_durable`] said.
    pub fn read(
        &self,
        reader: &dyn LogReader,
        from: Index,
        upto: Index,
        visit: &mut dyn FnMut(&RecordView<'_>) -> bool,
    ) -> Result<()> {
        let (mut next, upto) = (from, upto.min(self.durable));
        for state in self.segments.iter().filter(|s| s.last >= from && s.first <= upto && s.last >= s.first) {
            if state.first > next {
                break;
            }
            let mut scan = SegmentScan::new(reader, &self.ident, state.segment);
            let before = state.signposts.partition_point(|(at, _)| *at <= next).max(1) - 1;
            let (mut at, mut offset) = state.signposts[before];
            while at <= state.last && at <= upto {
                let Parsed::Record { view, next_offset, .. } = scan.parse(offset)? else {
                    return Err(scan.damaged(offset, at, "a record that was durable cannot be read"));
                };
                if view.header.index != at {
                    return Err(scan.damaged(offset, at, "another record stands there"));
                }
                if at >= next && !visit(&view) {
                    return Ok(());
                }
                (at, offset) = (at.next(), next_offset);
            }
            next = at;
        }
        if next > upto {
            return Ok(());
        }
        Err(braid_base::Error::new(
            braid_base::ErrorKind::NotFound,
            format!("log of {}: record {next} is not held any more", self.ident.partition),
        ))
    }

    /// The writer that continues a recovered log.
    pub(super) fn resume(
        ident: LogIdent,
        segment_bytes: u64,
        found: super::recover::Found,
        next_segment: Segment,
    ) -> Self {
        let mut writer = Self::new(ident, segment_bytes, found.last_term, found.last_index);
        writer.next_segment = next_segment;
        (writer.chain, writer.cut) = match found.chain {
            Some(chain) => (chain, false),
            None => (0, true),
        };
        (writer.segments, writer.payloads) = (found.segments, found.payloads);
        writer
    }

    fn room(&self) -> u64 {
        self.open.map_or(0, |offset| self.segment_bytes - offset)
    }

    fn group_that_fits(&self, records: &[Arc<Record>]) -> usize {
        let limit = self.room().min(GROUP_MAX as u64);
        let (mut bytes, mut count) = (0, 0);
        for record in records {
            bytes += format::record_len(record);
            if count > 0 && group_bytes(bytes) > limit {
                break;
            }
            count += 1;
        }
        count
    }

    fn open_segment(&mut self, first: &Record) -> Write {
        let group = group_bytes(format::record_len(first));
        assert!(BLOCK as u64 + group <= self.segment_bytes, "{} does not fit a segment", first.index);
        let segment = self.next_segment;
        self.next_segment = Segment(segment.0 + 1);
        self.open = Some(BLOCK as u64);
        self.segments.push(SegmentState { segment, first: first.index, last: self.last_index, signposts: Vec::new() });
        let header = SegmentHeader { ident: self.ident, segment, first_index: first.index, first_term: first.term };
        Write { segment, offset: 0, bytes: header.encode() }
    }

    fn write_group(&mut self, records: &[Arc<Record>]) -> Write {
        let offset = self.open.expect("append opened a segment with room for the first record");
        let state = self.segments.last_mut().expect("append opened a segment with room for the first record");
        let mut group = AlignedBuffer::new(records.iter().map(|r| format::record_len(r)).sum());
        for (i, record) in records.iter().enumerate() {
            assert_eq!(record.index, self.last_index.next(), "records follow each other");
            assert!(record.term >= self.last_term, "{}: terms never go back", record.index);
            let mut flags = if i + 1 == records.len() { LAST_OF_GROUP } else { 0 };
            if std::mem::take(&mut self.cut) {
                flags |= AFTER_TRUNCATION;
            }
            let at = offset + group.len() as u64;
            let (ident, segment) = (&self.ident, state.segment);
            let place = format::Place { ident, segment, prev_crc: self.chain, flags, durable: self.durable };
            self.chain = format::encode_record(record, &place, &mut group);
            state.note(record.index, at);
            if !record.entry.payload().is_empty() {
                let len = record.entry.payload().len();
                let payload_at = PayloadAt { segment, offset: offset + (group.len() - len) as u64, len: len as u32 };
                self.payloads.insert(record.index, (payload_at, record.entry.payload_crcs().into()));
            }
            (self.last_term, self.last_index) = (record.term, record.index);
        }
        let segment = state.segment;
        let bytes = group.finish();
        self.open = Some(offset + bytes.len() as u64);
        Write { segment, offset, bytes }
    }
}

impl SegmentState {
    /// Record `index` lies at `offset`.
    pub(super) fn note(&mut self, index: Index, offset: u64) {
        self.last = index;
        if self.signposts.last().is_none_or(|(_, last)| offset - last >= SIGNPOST_EVERY) {
            self.signposts.push((index, offset));
        }
    }
}

fn group_bytes(bytes: usize) -> u64 {
    bytes.next_multiple_of(BLOCK) as u64
}
