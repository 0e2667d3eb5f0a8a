//! The log of one seat: what is appended, what is being written, what is being read.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use braid_base::crc::crc32c;
use braid_base::ids::{Index, PartitionId, Term};
use braid_base::limits::BLOCK;
use braid_base::{Error, ErrorKind, Result};
use braid_meta::Token;
use braid_replica::replica::lead::{MESSAGE_BYTES, MESSAGE_RECORDS};
use braid_replica::replica::tail::Tail;
use braid_replica::{
    Applied, Batch, Expect, Kv, LogIdent, LogReader, LogWriter, Record, Retention, StagedKv, Write, recover,
};
use bytes::Bytes;

use super::SeatEffect;

/// Bytes of replayed effects that go to the view at once.
const REPLAY_BYTES: usize = 4 << 20;

/// A group takes no more appends when it is this large, bytes: how far a disk comes is seen group by group, and one that is
/// slow with many partitions is not to be taken for one that hangs.
const GROUP_BYTES: usize = 4 << 20;

/// Term and index of the record before, and records.
pub(super) type Fetched = ((Term, Index), Vec<Arc<Record>>);

/// A payload read under way: whose, and which bytes.
struct Reading {
    token: Token,
    at: Index,
    /// Wanted bytes of the payload.
    poff: u32,
    len: u32,
    /// First payload block read, and where it begins in the bytes that come.
    block: usize,
    lead: usize,
}

/// The log and its I/O in flight.
pub(super) struct Journal {
    log: LogWriter,
    /// The log of this store began after this record.
    start: (Term, Index),
    appended: Vec<Arc<Record>>,
    /// Bytes of staged payload in `appended`.
    appended_bytes: usize,
    /// The replica's tickets of what is in `appended`, each with its last record, in order.
    tickets: VecDeque<(u64, Index)>,
    queue: VecDeque<Write>,
    /// Number of the write under way, if any.
    writing: Option<u64>,
    /// What is durable when the queue is empty: the ticket and the last record.
    group: (u64, Index),
    reading: HashMap<u64, Reading>,
    next_id: u64,
}

impl Journal {
    /// Reads the log, without what `cut` took away. Rows of staged slices go to `staged` as far as the view is flushed.
    /// Returns the log with the tail that the view lacks, for the replica to decide about.
    pub(super) fn recover(
        ident: LogIdent,
        segment_bytes: u64,
        expect: Expect,
        cut: (Term, Index),
        (flushed, staged): (Applied, &StagedKv),
        reader: &dyn LogReader,
    ) -> Result<(Self, Tail)> {
        let mut tail = Tail::new(flushed);
        let recovered = recover(reader, &ident, expect, &mut |record| {
            if record.header.index <= flushed.index {
                staged.keep(&record.batch);
            }
            tail.recovered(record)
        })?;
        let mut log = recovered.into_writer(segment_bytes);
        if tail.cut(cut) {
            let (term, index) = tail.last();
            log.truncate_after(term, index);
        }
        let (_, last) = log.last();
        let journal = Self {
            start: expect.start,
            log,
            appended: Vec::new(),
            appended_bytes: 0,
            tickets: VecDeque::new(),
            queue: VecDeque::new(),
            writing: None,
            group: (0, last),
            reading: HashMap::new(),
            next_id: 0,
        };
        Ok((journal, tail))
    }

    /// Applies the records after `applied` up to `upto` to the view.
    pub(super) fn replay(
        &self,
        id: PartitionId,
        kv: &dyn Kv,
        mut applied: Applied,
        upto: Index,
        reader: &dyn LogReader,
    ) -> Result<Applied> {
        while applied.index < upto {
            let (next, mut batch) = self.gather(applied, upto, reader)?;
            next.put(id, &mut batch);
            kv.apply(&batch).map_err(|error| error.within("replay the log into the key-value view"))?;
            applied = next;
        }
        Ok(applied)
    }

    /// The changes of some records after `applied`, at most up to `upto`, and the state after them.
    pub(super) fn gather(&self, mut applied: Applied, upto: Index, reader: &dyn LogReader) -> Result<(Applied, Batch)> {
        let (mut batch, mut bytes) = (Batch::new(), 0);
        self.log.read(reader, applied.index.next(), upto, &mut |record| {
            applied = applied.after(record.header.term, record.header.index, &record.batch, record.state_hash);
            bytes += record.batch.encoded_len();
            batch.append(&record.batch);
            bytes <= REPLAY_BYTES
        })?;
        Ok((applied, batch))
    }

    /// Term and index of the record before `from`, and records from there on, as many as fit a message; `None` if the
    /// log does not reach back so far, or not to `from`. `before`: the term of that record, if it is known.
    pub(super) fn fetch(&self, from: Index, before: Option<Term>, reader: &dyn LogReader) -> Result<Option<Fetched>> {
        let previous = Index(from.0.saturating_sub(1));
        let before = before.or((previous == self.start.1).then_some(self.start.0));
        let mut before = before.map(|term| (term, previous));
        let first = if before.is_some() { from } else { previous };
        if first < self.log.first_index() {
            return Ok(None);
        }
        let (mut records, mut bytes) = (Vec::new(), 0);
        self.log.read(reader, first, Index(from.0 + MESSAGE_RECORDS as u64 - 1), &mut |record| {
            if before.is_none() {
                before = Some((record.header.term, record.header.index));
                return true;
            }
            bytes += record.payload.len() + record.batch.encoded_len();
            records.push(Arc::new(record.to_record()));
            bytes < MESSAGE_BYTES
        })?;
        Ok(before.filter(|_| !records.is_empty()).map(|before| (before, records)))
    }

    /// The first record that is held; one after the last if none is.
    pub(super) fn first(&self) -> Index {
        self.log.first_index()
    }

    /// The first record that can be told to others, who must know the term of the one before it.
    pub(super) fn first_told(&self) -> Index {
        let first = self.log.first_index();
        if first == self.start.1.next() { first } else { first.next() }
    }

    /// The term of record `index`, read from the log; `None` if that does not hold it.
    pub(super) fn term_of(&self, index: Index, reader: &dyn LogReader) -> Result<Option<Term>> {
        if index == self.start.1 {
            return Ok(Some(self.start.0));
        }
        let mut term = None;
        if index >= self.log.first_index() {
            self.log.read(reader, index, index, &mut |record| {
                term = Some(record.header.term);
                false
            })?;
        }
        Ok(term)
    }

    /// Drops all records after `after`, written or not; what reads them is void.
    pub(super) fn truncate(&mut self, after: (Term, Index)) {
        let (term, index) = after;
        self.appended.retain(|record| record.index <= index);
        self.appended_bytes = self.appended.iter().map(|record| record.entry.payload().len()).sum();
        for (_, upto) in &mut self.tickets {
            *upto = (*upto).min(index);
        }
        if index < self.log.last().1 {
            self.log.truncate_after(term, index);
        }
        // The write under way makes no more durable than what is left of it.
        self.group.1 = self.group.1.min(index);
    }

    /// Forgets the reads under way: nobody waits for them any more.
    pub(super) fn forget_reads(&mut self) {
        self.reading.clear();
    }

    /// Adds records to the next group; `ticket` is the replica's name for the moment they are durable.
    pub(super) fn append(&mut self, ticket: u64, records: Vec<Arc<Record>>) {
        let Some(last) = records.last() else { return };
        self.tickets.push_back((ticket, last.index));
        self.appended_bytes += records.iter().map(|record| record.entry.payload().len()).sum::<usize>();
        self.appended.extend(records);
    }

    /// Bytes of staged payload that could be written now; `None` if there is nothing to write, or a write is under way.
    pub(super) fn writable(&self) -> Option<usize> {
        let any = !self.appended.is_empty() || !self.queue.is_empty();
        (any && self.writing.is_none()).then_some(self.appended_bytes)
    }

    /// True if what is written next is a new group.
    pub(super) fn begins_group(&self) -> bool {
        self.queue.is_empty() && !self.appended.is_empty()
    }

    /// Starts a write if none is under way and something waits. Whether it is the first of a new group.
    pub(super) fn flush(&mut self, out: &mut Vec<SeatEffect>) -> bool {
        if self.writing.is_some() {
            return false;
        }
        let is_group = self.begins_group();
        if is_group {
            let (ticket, records) = self.next_group();
            self.queue.extend(self.log.append(&records));
            self.group = (ticket, self.log.last().1);
            self.appended_bytes -= records.iter().map(|record| record.entry.payload().len()).sum::<usize>();
        }
        if let Some(write) = self.queue.pop_front() {
            let id = self.id();
            self.writing = Some(id);
            out.push(SeatEffect::LogWrite { id, segment: write.segment, off: write.offset, data: write.bytes });
        }
        is_group
    }

    /// Of what was appended, what is written together: whole appends, at least one record, and the last ticket of them.
    fn next_group(&mut self) -> (u64, Vec<Arc<Record>>) {
        let (mut ticket, mut taken, mut bytes) = (0, 0, 0);
        while taken < self.appended.len()
            && bytes < GROUP_BYTES
            && let Some((next, upto)) = self.tickets.pop_front()
        {
            ticket = next;
            while let Some(record) = self.appended.get(taken).filter(|record| record.index <= upto) {
                bytes += record.entry.bytes();
                taken += 1;
            }
        }
        (ticket, self.appended.drain(..taken).collect())
    }

    /// Write `id` is durable; the ticket of the group if that was its last write.
    pub(super) fn written(&mut self, id: u64) -> Option<u64> {
        assert_eq!(self.writing.take(), Some(id), "one log write at a time");
        if !self.queue.is_empty() {
            return None;
        }
        let (ticket, upto) = self.group;
        self.log.mark_durable(upto);
        Some(ticket)
    }

    /// Starts reading bytes of a payload that memory no longer holds.
    /// Errors: `Stale` if the log no longer has them.
    pub(super) fn read_payload(
        &mut self,
        token: Token,
        at: Index,
        (poff, len): (u32, u32),
        out: &mut Vec<SeatEffect>,
    ) -> Result<()> {
        let place = self.log.payload_at(at).filter(|p| u64::from(poff) + u64::from(len) <= u64::from(p.len));
        let Some(place) = place else {
            let gone = Error::new(ErrorKind::Stale, format!("the staged bytes of {at} are no longer in the log"));
            return Err(gone);
        };
        let unit = BLOCK as u64;
        let block = poff as usize / BLOCK;
        let first = place.offset + block as u64 * unit;
        let end = (u64::from(poff) + u64::from(len)).next_multiple_of(unit).min(u64::from(place.len));
        let (from, to) = (first / unit * unit, (place.offset + end).next_multiple_of(unit));
        let id = self.id();
        self.reading.insert(id, Reading { token, at, poff, len, block, lead: (first - from) as usize });
        out.push(SeatEffect::LogRead { id, segment: place.segment, off: from, len: (to - from) as usize });
        Ok(())
    }

    /// The answer of a payload read: the wanted bytes, checked block by block.
    pub(super) fn read_done(&mut self, id: u64, result: Result<Bytes>) -> Option<(Token, Result<Bytes>)> {
        let reading = self.reading.remove(&id)?;
        let bytes = result.and_then(|bytes| self.check(&reading, &bytes));
        Some((reading.token, bytes))
    }

    fn check(&self, reading: &Reading, bytes: &Bytes) -> Result<Bytes> {
        let gone = || Error::new(ErrorKind::Stale, format!("the staged bytes of {} left the log", reading.at));
        let place = self.log.payload_at(reading.at).ok_or_else(gone)?;
        let crcs = self.log.payload_crcs(reading.at).ok_or_else(gone)?;
        let bad =
            || Error::new(ErrorKind::Corrupt, format!("staged bytes of {} do not match their checksum", reading.at));
        let skip = reading.poff as usize - reading.block * BLOCK;
        let blocks = (skip + reading.len as usize).div_ceil(BLOCK);
        for block in 0..blocks {
            let in_payload = (reading.block + block) * BLOCK;
            let len = BLOCK.min(place.len as usize - in_payload);
            let at = reading.lead + block * BLOCK;
            let data = bytes.get(at..at + len).ok_or_else(bad)?;
            if crcs.get(reading.block + block) != Some(&crc32c(data)) {
                return Err(bad());
            }
        }
        let from = reading.lead + skip;
        Ok(bytes.slice(from..from + reading.len as usize))
    }

    /// Says which segments may go: nobody needs what they hold.
    pub(super) fn trim(&mut self, keep: &Retention, out: &mut Vec<SeatEffect>) {
        if !self.reading.is_empty() {
            return;
        }
        for segment in self.log.removable(keep) {
            self.log.forget(segment);
            out.push(SeatEffect::LogRemove(segment));
        }
    }

    /// Bytes of the segments that [`Self::trim`] would let go of.
    pub(super) fn freed_bytes(&self, keep: &Retention) -> u64 {
        self.log.segment_bytes() * self.log.removable(keep).len() as u64
    }

    /// Above `soft_bytes` of log: everything staged before the returned position should be destaged; 0 = nothing.
    pub(super) fn pressure(&self, soft_bytes: u64) -> Index {
        if self.log.bytes_on_disk() <= soft_bytes {
            return Index(0);
        }
        // Half of what is held: by then the log is well under the bound again.
        let (first, last) = (self.log.first_index().0, self.log.last().1.0);
        Index(first + (last.saturating_sub(first)) / 2 + 1)
    }

    /// The log, which is empty, goes on after this record.
    pub(super) fn begin_after(&mut self, (term, index): (Term, Index)) {
        self.log.begin_after(term, index);
        (self.group.1, self.start) = (index, (term, index));
    }

    /// Last entry of the log, if nothing is on its way to it.
    pub(super) fn closed_at(&self) -> Option<Index> {
        let idle = self.writing.is_none() && self.queue.is_empty() && self.appended.is_empty();
        idle.then(|| self.log.last().1)
    }

    /// Last entry of all groups that have begun.
    pub(super) fn begun(&self) -> Index {
        self.log.last().1
    }

    /// Last entry appended.
    pub(super) fn last(&self) -> Index {
        self.appended.last().map_or(self.log.last().1, |record| record.index)
    }

    /// Bytes of all segments.
    pub(super) fn bytes_on_disk(&self) -> u64 {
        self.log.bytes_on_disk()
    }

    /// Bytes of the segments that hold entries after `index`.
    pub(super) fn bytes_after(&self, index: Index) -> u64 {
        self.log.bytes_after(index)
    }

    fn id(&mut self) -> u64 {
        self.next_id += 1;
        self.next_id
    }
}

#[cfg(test)]
mod tests {
    use braid_base::ids::Guid;
    use braid_base::limits::SEGMENT_BYTES;
    use braid_replica::log::Segment;
    use braid_replica::{Entry, MapKv};

    use super::*;

    /// A disk without a log.
    struct Empty;

    impl LogReader for Empty {
        fn segments(&self) -> Result<Vec<Segment>> {
            Ok(Vec::new())
        }

        fn read(&self, segment: Segment, _offset: u64, _len: usize) -> Result<Vec<u8>> {
            panic!("there is no {segment:?}")
        }
    }

    fn journal() -> Journal {
        let ident = LogIdent { cluster: Guid([1; 16]), partition: PartitionId(0), store: Guid([2; 16]) };
        let begin = (Term(0), Index(0));
        let expect = Expect { start: begin, applied: begin, ..Expect::default() };
        let view = (Applied::default(), &StagedKv::new(Arc::new(MapKv::new())));
        Journal::recover(ident, SEGMENT_BYTES, expect, begin, view, &Empty).expect("an empty log").0
    }

    fn records(indexes: std::ops::RangeInclusive<u64>, bytes: usize) -> Vec<Arc<Record>> {
        let entry = || Entry::new(Vec::new(), Batch::new(), Bytes::from(vec![7; bytes]));
        let record = |index| Record { term: Term(1), index: Index(index), entry: entry(), state_hash: None };
        indexes.map(|index| Arc::new(record(index))).collect()
    }

    /// Writes one group to the end: its ticket, and what is durable then.
    fn write(journal: &mut Journal) -> (u64, Index) {
        let mut out = Vec::new();
        assert!(journal.flush(&mut out), "a group begins");
        loop {
            let Some(SeatEffect::LogWrite { id, .. }) = out.pop() else { panic!("a write is under way") };
            if let Some(ticket) = journal.written(id) {
                return (ticket, journal.begun());
            }
            assert!(!journal.flush(&mut out), "the same group");
        }
    }

    #[test]
    fn a_group_ends_where_an_append_does_and_is_not_much_larger_than_it_may() {
        let mut journal = journal();
        (1..=5).for_each(|at| journal.append(at, records(2 * at - 1..=2 * at, 1 << 20)));
        assert_eq!(write(&mut journal), (2, Index(4)), "4 MiB");
        // What is cut off is in no group; its tickets are.
        journal.truncate((Term(1), Index(7)));
        assert_eq!(journal.writable(), Some(3 << 20));
        journal.append(6, records(8..=8, 100));
        assert_eq!(write(&mut journal), (6, Index(8)));
        assert_eq!((journal.writable(), journal.last()), (None, Index(8)));
    }

    #[test]
    fn one_append_is_one_group_however_large() {
        let mut journal = journal();
        journal.append(1, records(1..=9, 1 << 20));
        journal.append(2, records(10..=10, 1));
        assert_eq!(write(&mut journal), (1, Index(9)));
        assert_eq!(write(&mut journal), (2, Index(10)));
    }
}
