//! Reads a log after a restart: continues it, cuts a torn tail, or refuses a damaged one (design 4.2, K10).

use std::collections::BTreeMap;

use braid_base::ids::{Index, Term};
use braid_base::limits::BLOCK;
use braid_base::{Error, ErrorKind, Result};

use super::format::{AFTER_TRUNCATION, RecordView, SegmentHeader};
use super::scan::{Parsed, QUARANTINE, SegmentScan};
use super::writer::{LogWriter, PayloadAt, SegmentState};
use super::{LogIdent, LogReader, Segment};

/// What the rest of the store knows about the log, so that recovery can tell when too little of it is left.
#[derive(Clone, Copy, Debug, Default)]
pub struct Expect {
    /// The store's log began after this record: (0, 0), or where its view was imported.
    pub start: (Term, Index),
    /// The key-value view durably holds everything up to this record.
    pub applied: (Term, Index),
    /// Entries from here on up to `applied` are needed, too: staged bytes lie there. 0: unknown, asks for nothing.
    pub staged: Index,
    /// The store was closed in order, and this was the last record.
    pub clean: Option<Index>,
}

impl Expect {
    /// The log must reach this index.
    fn floor(&self) -> Index {
        self.applied.1.max(self.clean.unwrap_or_default())
    }
}

/// A log that can be continued.
pub struct Recovered {
    /// Term and index of the last record.
    pub last: (Term, Index),
    /// First index still held; one after the last if none is.
    pub first: Index,
    /// Where the records end; what stands there, if anything, was never acknowledged.
    pub ends_at: Option<(Segment, u64)>,
    /// Segment files without content: to be deleted or recycled.
    pub blank: Vec<Segment>,
    ident: LogIdent,
    next_segment: Segment,
    found: Found,
}

/// What the scan collected.
pub(super) struct Found {
    pub(super) last_term: Term,
    pub(super) last_index: Index,
    /// Checksum of the last record, `None` if there is no record.
    pub(super) chain: Option<u32>,
    pub(super) segments: Vec<SegmentState>,
    pub(super) payloads: BTreeMap<Index, (PayloadAt, Box<[u32]>)>,
    ends_at: Option<(Segment, u64)>,
}

impl Recovered {
    /// The writer that continues this log, in a new segment of `segment_bytes`.
    pub fn into_writer(self, segment_bytes: u64) -> LogWriter {
        LogWriter::resume(self.ident, segment_bytes, self.found, self.next_segment)
    }
}

/// Reads the whole log of a store and shows each record that counts, in order, to `visit`; one record at a time is
/// in memory. `Corrupt` = the replica must not serve (quarantine): the message names segment and byte.
///
/// A record that was read may still sit in a volatile cache: sync the segment files once afterwards,
/// before anything is acknowledged.
pub fn recover(
    reader: &dyn LogReader,
    ident: &LogIdent,
    expect: Expect,
    visit: &mut dyn FnMut(&RecordView<'_>) -> Result<()>,
) -> Result<Recovered> {
    let mut numbers = reader.segments()?;
    numbers.sort_unstable();
    let next_segment = Segment(numbers.last().map_or(1, |s| s.0 + 1));
    let (headers, blank) = read_headers(reader, ident, &numbers)?;
    let mut found = Found {
        last_term: expect.start.0,
        last_index: expect.start.1,
        chain: None,
        segments: Vec::new(),
        payloads: BTreeMap::new(),
        ends_at: None,
    };
    for (i, header) in headers.iter().enumerate() {
        // The first index of a newer segment voids what older ones hold from there on.
        let limit = headers[i + 1..].iter().map(|h| h.first_index).min();
        read_segment(reader, header, limit, expect.applied, &mut found, visit)?;
    }
    if let (None, Some(header)) = (found.chain, headers.last()) {
        // Opened, but its first record never came; older segments may be gone since the view holds them.
        found.last_index = found.last_index.max(Index(header.first_index.0 - 1));
        found.last_term = if found.last_index == expect.applied.1 { expect.applied.0 } else { expect.start.0 };
    }
    if found.last_index < expect.floor() {
        return Err(too_short(ident, &found, expect.floor()));
    }
    let first = found.segments.iter().find(|s| s.last >= s.first).map_or(found.last_index.next(), |s| s.first);
    let needed = expect.applied.1.max(expect.start.1).next();
    if first > needed {
        return Err(gap(ident, headers.first().map(|h| h.segment), needed, first));
    }
    if expect.staged > Index(0) && first > expect.staged && expect.staged < needed {
        return Err(lost_stage(ident, expect.staged, first));
    }
    Ok(Recovered {
        last: (found.last_term, found.last_index),
        first,
        ends_at: found.ends_at,
        blank,
        ident: *ident,
        next_segment,
        found,
    })
}

/// The headers of all segments with content, and the numbers of those without.
fn read_headers(
    reader: &dyn LogReader,
    ident: &LogIdent,
    numbers: &[Segment],
) -> Result<(Vec<SegmentHeader>, Vec<Segment>)> {
    let (mut headers, mut blank) = (Vec::new(), Vec::new());
    for &segment in numbers {
        let mut scan = SegmentScan::new(reader, ident, segment);
        match scan.header()? {
            Some(header) if header.ident != *ident => return Err(foreign(ident, segment, &header)),
            Some(header) if header.segment == segment => headers.push(header),
            // Another number: recycled, and the new header was never written. The header is durable
            // before the first record is begun, so records behind a bad one mean damage.
            _ => match scan.find(0, |_| true)? {
                Some(_) => return Err(scan.damaged(0, Index(0), "its header cannot be read, yet records follow it")),
                None => blank.push(segment),
            },
        }
    }
    Ok((headers, blank))
}

fn read_segment(
    reader: &dyn LogReader,
    header: &SegmentHeader,
    limit: Option<Index>,
    applied: (Term, Index),
    found: &mut Found,
    visit: &mut dyn FnMut(&RecordView<'_>) -> Result<()>,
) -> Result<()> {
    let (ident, first) = (&header.ident, header.first_index);
    let counts = |index: Index| limit.is_none_or(|limit| index < limit);
    let mut state = SegmentState { segment: header.segment, first, last: Index(first.0 - 1), signposts: Vec::new() };
    if !counts(first) {
        found.segments.push(state); // all of it was truncated
        return Ok(());
    }
    let begun = found.chain.is_some() || found.segments.iter().any(|s| s.last >= s.first);
    if begun && first != found.last_index.next() {
        return Err(gap(ident, Some(header.segment), found.last_index.next(), first));
    }
    let needed = found.last_index.max(applied.1).next();
    if !begun && first > needed {
        return Err(gap(ident, Some(header.segment), needed, first));
    }
    let mut scan = SegmentScan::new(reader, ident, header.segment);
    let (mut next, mut offset) = (first, BLOCK as u64);
    while counts(next) {
        let (next_offset, chain) = match scan.parse(offset)? {
            Parsed::Nothing => break,
            Parsed::Record { view, payload_offset, next_offset } => {
                if !follows(&view, next, found) {
                    return Err(scan.damaged(offset, next, "found one that does not follow the record before"));
                }
                if (view.header.index == applied.1) && view.header.term != applied.0 {
                    return Err(scan.damaged(offset, next, "found another term than the one applied"));
                }
                note_payload(&view, header.segment, payload_offset, found);
                visit(&view)?;
                (found.last_term, found.last_index) = (view.header.term, next);
                (next_offset, view.header.crc)
            }
        };
        found.chain = Some(chain);
        state.note(next, offset);
        (next, offset) = (next.next(), next_offset);
    }
    if counts(next) {
        end_of_records(&mut scan, header.segment, limit, next, offset, found)?;
    }
    found.segments.push(state);
    Ok(())
}

/// Nothing readable at `offset`, where `next` was expected: decides between end, torn tail and damage.
fn end_of_records(
    scan: &mut SegmentScan<'_>,
    segment: Segment,
    limit: Option<Index>,
    next: Index,
    offset: u64,
    found: &mut Found,
) -> Result<()> {
    // A newer segment goes on later than this one ends: records in between are lost.
    if limit.is_some_and(|limit| next < limit) {
        return Err(scan.damaged(offset, next, "a newer segment goes on after it"));
    }
    // A later record whose writer knew `next` to be durable: `next` was there and may have been acknowledged.
    if scan.find(offset, |later| later.durable >= next)?.is_some() {
        return Err(scan.damaged(offset, next, "a later record proves that it was durable"));
    }
    found.ends_at = Some((segment, offset));
    Ok(())
}

fn follows(view: &RecordView<'_>, next: Index, found: &Found) -> bool {
    let chained = match found.chain {
        Some(chain) => view.header.flags & AFTER_TRUNCATION != 0 || view.header.prev_crc == chain,
        None => true,
    };
    chained && view.header.index == next && view.header.term >= found.last_term
}

fn note_payload(view: &RecordView<'_>, segment: Segment, offset: u64, found: &mut Found) {
    if !view.payload.is_empty() {
        let at = PayloadAt { segment, offset, len: view.payload.len() as u32 };
        found.payloads.insert(view.header.index, (at, view.payload_crcs.clone().into()));
    }
}

fn foreign(ident: &LogIdent, segment: Segment, header: &SegmentHeader) -> Error {
    Error::new(
        ErrorKind::Refused,
        format!(
            "log of {}: {segment} belongs to {} of store {}, expected store {}; files of two stores are mixed: put \
             the right ones back",
            ident.partition, header.ident.partition, header.ident.store, ident.store
        ),
    )
}

fn too_short(ident: &LogIdent, found: &Found, floor: Index) -> Error {
    let at = found.ends_at.map_or(String::new(), |(segment, offset)| format!(" ({segment}, byte {offset})"));
    Error::new(
        ErrorKind::Corrupt,
        format!(
            "log of {} (store {}): ends at record {}{at}, but the store knew record {floor} to be durable; \
             {QUARANTINE}",
            ident.partition, ident.store, found.last_index
        ),
    )
}

fn lost_stage(ident: &LogIdent, staged: Index, first: Index) -> Error {
    Error::new(
        ErrorKind::Corrupt,
        format!(
            "log of {} (store {}): begins with record {first}, but bytes of files lie in it from record {staged} on; a \
             segment file is missing, or the view beside it is an older copy; {QUARANTINE}",
            ident.partition, ident.store
        ),
    )
}

fn gap(ident: &LogIdent, segment: Option<Segment>, expected: Index, next: Index) -> Error {
    let segment = segment.map_or("the log".to_owned(), |s| s.to_string());
    if expected == Index(1) {
        return Error::new(
            ErrorKind::Corrupt,
            format!(
                "log of {} (store {}): the log goes back only to record {next} ({segment}) and the key-value view \
                 holds nothing, so the view cannot be rebuilt: put the directory of the view back as it was",
                ident.partition, ident.store
            ),
        );
    }
    Error::new(
        ErrorKind::Corrupt,
        format!(
            "log of {} (store {}): {segment} begins with record {next} at byte 4096, expected {expected}; a segment \
             file is missing; {QUARANTINE}",
            ident.partition, ident.store
        ),
    )
}
