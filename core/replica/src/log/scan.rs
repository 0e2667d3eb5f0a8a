//! Walks the records of one segment with a bounded window of it in memory.

use braid_base::ids::Index;
use braid_base::limits::BLOCK;
use braid_base::{Error, ErrorKind, Result};

use super::format::{LAST_OF_GROUP, RECORD_HEADER, RecordHeader, RecordView, SegmentHeader};
use super::{LogIdent, LogReader, Segment};

/// What to do about a log that lost data (R9).
pub(super) const QUARANTINE: &str = "it must not serve so: put the right file back, or rebuild the replica as a new \
                                     store from the other members if there are any";

/// Bytes of the first read, for those who want a few records.
const WINDOW_FIRST: usize = 64 << 10;
/// Bytes of later reads, for those who want all; a longer record is read in one go.
const WINDOW: usize = 1 << 20;

/// A segment under the eyes of a reader.
pub struct SegmentScan<'r> {
    reader: &'r dyn LogReader,
    ident: &'r LogIdent,
    segment: Segment,
    window: Vec<u8>,
    window_at: u64,
    /// Where the file ends, once a read came up short.
    end: Option<u64>,
}

/// What stands at an offset.
pub enum Parsed<'a> {
    /// A whole record.
    Record {
        /// The record.
        view: RecordView<'a>,
        /// Where its payload starts in the file.
        payload_offset: u64,
        /// Where the next record starts.
        next_offset: u64,
    },
    /// Anything else: never written, torn, damaged, left over from earlier use of the file, end of file.
    Nothing,
}

impl<'r> SegmentScan<'r> {
    /// Looks at `segment` of the log `ident`.
    pub fn new(reader: &'r dyn LogReader, ident: &'r LogIdent, segment: Segment) -> Self {
        Self { reader, ident, segment, window: Vec::new(), window_at: 0, end: None }
    }

    /// The segment's header, `None` if its first block is none.
    pub fn header(&mut self) -> Result<Option<SegmentHeader>> {
        match self.bytes(0, BLOCK)? {
            Some(block) => SegmentHeader::decode(block),
            None => Ok(None),
        }
    }

    /// Reads the record at `offset`.
    pub fn parse(&mut self, offset: u64) -> Result<Parsed<'_>> {
        let Some(header) = self.bytes(offset, RECORD_HEADER)?.and_then(RecordHeader::parse) else {
            return Ok(Parsed::Nothing);
        };
        let (ident, segment) = (self.ident, self.segment);
        let Some(bytes) = self.bytes(offset, header.record_len())? else { return Ok(Parsed::Nothing) };
        let Some(view) = RecordView::parse(ident, segment, header, bytes) else { return Ok(Parsed::Nothing) };
        let end = offset + header.record_len() as u64;
        let last = header.flags & LAST_OF_GROUP != 0;
        let next_offset = if last { end.next_multiple_of(BLOCK as u64) } else { end };
        Ok(Parsed::Record { view, payload_offset: offset + header.payload_offset() as u64, next_offset })
    }

    /// The first whole record at a block boundary after `offset` that `accept`s; with its offset.
    pub fn find(&mut self, offset: u64, accept: impl Fn(&RecordView<'_>) -> bool) -> Result<Option<u64>> {
        let block = BLOCK as u64;
        let mut at = (offset / block + 1) * block;
        while self.bytes(at, BLOCK)?.is_some() {
            match self.parse(at)? {
                Parsed::Record { view, .. } if accept(&view) => return Ok(Some(at)),
                _ => at += block,
            }
        }
        Ok(None)
    }

    /// The error that takes this replica out of service; `why` tells what contradicts a torn tail.
    pub fn damaged(&self, offset: u64, expected: Index, why: &str) -> Error {
        Error::new(
            ErrorKind::Corrupt,
            format!(
                "log of {} (store {}): {} is damaged at byte {offset}: expected record {expected}, {why}; {QUARANTINE}",
                self.ident.partition, self.ident.store, self.segment
            ),
        )
    }

    /// `len` bytes at `offset`, or `None` if the file ends before.
    fn bytes(&mut self, offset: u64, len: usize) -> Result<Option<&[u8]>> {
        let until = offset + len as u64;
        if self.end.is_some_and(|end| until > end) {
            return Ok(None);
        }
        if offset < self.window_at || until > self.window_at + self.window.len() as u64 {
            let start = offset / BLOCK as u64 * BLOCK as u64;
            let window = if self.window.is_empty() { WINDOW_FIRST } else { WINDOW };
            let want = ((until - start) as usize).next_multiple_of(BLOCK).max(window);
            self.window = self.reader.read(self.segment, start, want)?;
            self.window_at = start;
            if self.window.len() < want {
                self.end = Some(start + self.window.len() as u64);
            }
        }
        let from = (offset - self.window_at) as usize;
        Ok(self.window.get(from..from + len))
    }
}
