//! Small logs, cut and flipped at every byte, torn in every way a crash can tear them.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::sync::Arc;

use braid_base::ids::{ClientId, Guid, Index, OpId, PartitionId, Term};
use braid_base::{Error, ErrorKind, Result};
use braid_replica::{
    Batch, Entry, Expect, LogIdent, LogReader, LogWriter, Record, Recovered, Retention, Segment, Write, recover,
};
use bytes::Bytes;

const BLOCK: usize = 4096;
const SEGMENT_BYTES: u64 = 32 << 10;

/// Segment files in memory.
#[derive(Clone, Default)]
struct Files {
    files: BTreeMap<Segment, Vec<u8>>,
    reads: RefCell<usize>,
}

impl Files {
    fn put(&mut self, write: &Write) {
        let file = self.files.entry(write.segment).or_insert_with(|| vec![0; SEGMENT_BYTES as usize]);
        let at = write.offset as usize;
        file[at..at + write.bytes.len()].copy_from_slice(&write.bytes);
    }
}

impl LogReader for Files {
    fn segments(&self) -> Result<Vec<Segment>> {
        Ok(self.files.keys().rev().copied().collect())
    }

    fn read(&self, segment: Segment, offset: u64, len: usize) -> Result<Vec<u8>> {
        assert!(offset.is_multiple_of(BLOCK as u64) && len.is_multiple_of(BLOCK), "O_DIRECT wants whole blocks");
        let file = self.files.get(&segment).ok_or(Error::from(ErrorKind::NotFound))?;
        *self.reads.borrow_mut() += 1;
        let from = (offset as usize).min(file.len());
        Ok(file[from..(from + len).min(file.len())].to_vec())
    }
}

fn ident() -> LogIdent {
    LogIdent { cluster: Guid([1; 16]), partition: PartitionId(5), store: Guid([9; 16]) }
}

fn record(term: u64, index: u64, payload: usize) -> Arc<Record> {
    let mut batch = Batch::new();
    batch.put(format!("key {index}").into_bytes(), vec![index as u8; (index % 7) as usize]).delete(vec![term as u8]);
    let payload = Bytes::from((0..payload).map(|i| (i as u64 * 31 + index * 7 + 1) as u8).collect::<Vec<_>>());
    let ops = (0..index % 3).map(|seq| OpId { client: ClientId(index), seq }).collect();
    let state_hash = index.is_multiple_of(4).then_some(index * 1000);
    Arc::new(Record { term: Term(term), index: Index(index), entry: Entry::new(ops, batch, payload), state_hash })
}

fn writer() -> LogWriter {
    LogWriter::new(ident(), SEGMENT_BYTES, Term(0), Index(0))
}

/// Appends and makes durable, as one group.
fn append(log: &mut LogWriter, files: &mut Files, records: &[Arc<Record>]) {
    for write in log.append(records) {
        assert_eq!(write.bytes.as_ptr().align_offset(BLOCK), 0);
        assert!(write.bytes.len().is_multiple_of(BLOCK) && write.offset.is_multiple_of(BLOCK as u64));
        files.put(&write);
    }
    log.mark_durable(log.last().1);
}

fn recovered_with(files: &Files, expect: Expect) -> Result<(Vec<Record>, Recovered)> {
    let mut records = Vec::new();
    let found = recover(files, &ident(), expect, &mut |view| {
        records.push(view.to_record());
        Ok(())
    })?;
    Ok((records, found))
}

fn recovered(files: &Files) -> Result<(Vec<Record>, Recovered)> {
    recovered_with(files, Expect::default())
}

fn owned(records: &[Arc<Record>]) -> Vec<Record> {
    records.iter().map(|r| (**r).clone()).collect()
}

/// Three groups: of one record, of three, of one with a payload over block borders.
fn small_log() -> (Files, Vec<Arc<Record>>) {
    let records: Vec<_> =
        (1..=5).map(|i| record(1 + i / 4, i, if i == 5 { 6000 } else { (i as usize - 1) * 50 })).collect();
    let (mut log, mut files) = (writer(), Files::default());
    append(&mut log, &mut files, &records[..1]);
    append(&mut log, &mut files, &records[1..4]);
    append(&mut log, &mut files, &records[4..]);
    (files, records)
}

#[test]
fn everything_comes_back_over_many_segments() {
    let (mut log, mut files) = (writer(), Files::default());
    let records: Vec<_> = (1..=60).map(|i| record(i / 10, i, (i as usize * 517) % 9000)).collect();
    for group in records.chunks(7) {
        append(&mut log, &mut files, group);
    }
    assert!(files.files.len() > 5, "the log rolled");
    let (found, state) = recovered(&files).expect("undamaged");
    assert_eq!(found, owned(&records));
    assert_eq!(state.last, (Term(6), Index(60)));
    let again = state.into_writer(SEGMENT_BYTES);
    for record in &records {
        let payload = record.entry.payload();
        assert_eq!(log.payload_at(record.index), again.payload_at(record.index));
        let Some(at) = again.payload_at(record.index) else {
            assert!(payload.is_empty());
            continue;
        };
        let file = &files.files[&at.segment];
        assert_eq!(&file[at.offset as usize..][..at.len as usize], &payload[..]);
        assert_eq!(again.payload_crcs(record.index), Some(record.entry.payload_crcs()));
    }
    for from in 1..=60 {
        let mut seen = Vec::new();
        again
            .read(&files, Index(from), Index(from + 9), &mut |v| {
                seen.push(v.to_record());
                true
            })
            .expect("durable");
        assert_eq!(seen, owned(&records[from as usize - 1..(from as usize + 9).min(60)]));
    }
}

#[test]
fn a_log_cut_at_any_byte_keeps_a_prefix_and_goes_on() {
    let (whole, records) = small_log();
    let end = whole.files[&Segment(1)].iter().rposition(|b| *b != 0).expect("not empty") + 1;
    let mut lengths = Vec::new();
    for cut in 0..=end {
        let mut files = whole.clone();
        files.files.get_mut(&Segment(1)).expect("there")[cut..].fill(0);
        let (found, state) = recovered(&files).expect("a cut is a torn tail");
        assert_eq!(found, owned(&records[..found.len()]));
        lengths.push(found.len());
        if cut % 97 == 0 {
            let mut log = state.into_writer(SEGMENT_BYTES);
            let more: Vec<_> = (found.len() as u64 + 1..).map(|i| record(3, i, 10)).take(3).collect();
            append(&mut log, &mut files, &more);
            let (again, _) = recovered(&files).expect("continued");
            assert_eq!(again[..found.len()], found[..]);
            assert_eq!(again[found.len()..], owned(&more)[..]);
        }
    }
    assert!(lengths.is_sorted() && lengths[0] == 0 && lengths[end] == 5);
    assert!((0..=5).all(|n| lengths.contains(&n)), "each record ends somewhere");
}

#[test]
fn a_flip_of_any_byte_never_loses_a_record_known_to_be_durable() {
    let (whole, records) = small_log();
    // The last group's record (5) knew 4 to be durable; nobody knows of 5.
    let end = whole.files[&Segment(1)].iter().rposition(|b| *b != 0).expect("not empty") + 1;
    let (mut refused, mut shortened) = (0, 0);
    for at in 0..end {
        for flip in [1u8, 0x80] {
            let mut files = whole.clone();
            files.files.get_mut(&Segment(1)).expect("there")[at] ^= flip;
            match recovered(&files) {
                Ok((found, _)) => {
                    assert!(found.len() >= 4, "byte {at}: lost {} records in silence", 5 - found.len());
                    assert_eq!(found, owned(&records[..found.len()]));
                    shortened += usize::from(found.len() == 4);
                    let clean = Expect { clean: Some(Index(5)), ..Expect::default() };
                    assert_eq!(recovered_with(&files, clean).is_err(), found.len() == 4, "a clean end is checked");
                }
                Err(error) => {
                    assert_eq!(error.kind(), ErrorKind::Corrupt, "{error}");
                    assert!(error.message().contains("segment 1") && error.message().contains("byte"), "{error}");
                    refused += 1;
                }
            }
        }
    }
    // All of records 1 to 4 and of the used header bytes; all of record 5.
    assert!(refused > 2 * 600 && shortened > 2 * 6000, "{refused} {shortened}");
}

#[test]
fn a_torn_group_of_several_records_is_no_damage() {
    let (mut log, mut files) = (writer(), Files::default());
    let records: Vec<_> = (1..=6).map(|i| record(1, i, 3000)).collect();
    append(&mut log, &mut files, &records[..2]);
    let writes = log.append(&records[2..]);
    let [write] = &writes[..] else { panic!("one group") };
    let blocks = write.bytes.len() / BLOCK;
    // A drive may write the blocks of one command in any order: every subset can survive a power cut.
    for subset in 0..1u32 << blocks {
        let mut image = files.clone();
        let file = image.files.get_mut(&Segment(1)).expect("there");
        for block in (0..blocks).filter(|b| subset & (1 << b) != 0) {
            let at = write.offset as usize + block * BLOCK;
            file[at..at + BLOCK].copy_from_slice(&write.bytes[block * BLOCK..(block + 1) * BLOCK]);
        }
        let (found, _) = recovered(&image).expect("torn, not damaged");
        assert!(found.len() >= 2 && found == owned(&records[..found.len()]));
        assert_eq!(found.len() == 6, subset == (1 << blocks) - 1);
    }
}

#[test]
fn groups_in_flight_after_a_lost_one_are_no_damage_either() {
    let (mut log, mut files) = (writer(), Files::default());
    append(&mut log, &mut files, &[record(1, 1, 10)]);
    let lost = log.append(&[record(1, 2, 10)]);
    let later = log.append(&[record(1, 3, 10)]); // its writer had not yet heard that 2 is durable
    later.iter().for_each(|w| files.put(w));
    let (found, state) = recovered(&files).expect("2 was never acknowledged");
    assert_eq!(found.len(), 1);
    // The same entry again, then a crash: the old record 3 must not come back behind it.
    let mut log = state.into_writer(SEGMENT_BYTES);
    append(&mut log, &mut files, &[record(1, 2, 10)]);
    assert_eq!(recovered(&files).expect("continued").0.len(), 2);
    drop(lost);
}

#[test]
fn truncation_holds_across_crashes_and_old_records_stay_away() {
    let (mut log, mut files) = (writer(), Files::default());
    let old: Vec<_> = (1..=9).map(|i| record(1, i, 2500)).collect();
    old.chunks(2).for_each(|group| append(&mut log, &mut files, group));
    log.truncate_after(Term(1), Index(4));
    assert_eq!(log.payload_at(Index(5)), None);
    let new: Vec<_> = (5..=6).map(|i| record(2, i, 100)).collect();
    let mut expected = owned(&old[..4]);
    let writes = log.append(&new);
    for (done, write) in writes.iter().enumerate() {
        files.put(write);
        let (found, _) = recovered(&files).expect("each crash point");
        if done + 1 == writes.len() {
            expected.extend(owned(&new));
        }
        assert_eq!(found, expected);
    }
    // Torn write of the next group: durable 5 and 6 stay, the old 7 to 9 do not return.
    log.mark_durable(Index(6));
    let torn = log.append(&[record(2, 7, 5000)]);
    let mut image = files.clone();
    let [write] = &torn[..] else { panic!("one group") };
    image.put(&Write { bytes: write.bytes.slice(..BLOCK), ..write.clone() });
    assert_eq!(recovered(&image).expect("torn").0, expected);
    torn.iter().for_each(|w| files.put(w));
    // Truncated once more, to before the newest segment's first record.
    let mut log = recovered(&files).expect("whole").1.into_writer(SEGMENT_BYTES);
    log.truncate_after(Term(1), Index(2));
    append(&mut log, &mut files, &[record(3, 3, 1)]);
    let (found, state) = recovered(&files).expect("whole");
    assert_eq!(found, [owned(&old[..2]), owned(&[record(3, 3, 1)])].concat());
    let log = state.into_writer(SEGMENT_BYTES);
    let voided = log.removable(&Retention::default());
    assert_eq!(voided.len(), files.files.len() - 2, "all but the first and the newest are void");
    for segment in voided {
        files.files.remove(&segment);
        assert_eq!(recovered(&files).expect("whole").0, found);
    }
}

#[test]
fn a_recycled_file_shows_nothing_of_its_earlier_life() {
    let (mut log, mut files) = (writer(), Files::default());
    let records: Vec<_> = (1..=40).map(|i| record(1, i, 1500)).collect();
    records.iter().for_each(|r| append(&mut log, &mut files, std::slice::from_ref(r)));
    let keep = Retention { applied: Index(40), oldest_stage: Some(Index(30)), ..Retention::default() };
    let spare = log.removable(&keep)[0];
    let bytes = files.files.remove(&spare).expect("there");
    log.forget(spare);
    let next = Segment(files.files.keys().last().expect("some").0 + 1);
    files.files.insert(next, bytes); // renamed, not cleared
    let applied = Expect { applied: (Term(1), Index(40)), ..Expect::default() };
    let (_, state) = recovered_with(&files, applied).expect("a recycled file without header is blank");
    assert_eq!(state.blank, [next]);
    let mut more = 41;
    while log.last().1.0 == 40 || files.files.keys().last() == Some(&next) && more < 44 {
        append(&mut log, &mut files, &[record(1, more, 100)]);
        more += 1;
    }
    let (found, _) = recovered_with(&files, applied).expect("old records behind the new ones do not count");
    assert_eq!(found.last().map(|r| r.index.0), Some(more - 1));
}

#[test]
fn retention_keeps_what_any_rule_still_needs() {
    let (mut log, mut files) = (writer(), Files::default());
    (1..=60).for_each(|i| append(&mut log, &mut files, &[record(1, i, 1500)]));
    let lasts = |log: &LogWriter, keep: Retention| log.removable(&keep).len();
    let all = files.files.len();
    let everything = Retention { applied: Index(60), ..Retention::default() };
    assert_eq!(lasts(&log, everything), all - 1, "the open segment stays");
    assert_eq!(lasts(&log, Retention::default()), 0);
    assert_eq!(lasts(&log, Retention { oldest_stage: Some(Index(1)), ..everything }), 0);
    assert_eq!(lasts(&log, Retention { oldest_needed: Some(Index(1)), ..everything }), 0);
    let half = log.removable(&Retention { oldest_stage: Some(Index(31)), ..everything });
    assert!(!half.is_empty() && half.len() < all - 1);
    for segment in half {
        files.files.remove(&segment);
        log.forget(segment);
    }
    assert!(log.first_index() <= Index(31) && log.first_index() > Index(1));
    assert!(log.payload_at(Index(31)).is_some() && log.payload_at(Index(1)).is_none());
    let gone = log.read(&files, Index(1), Index(9), &mut |_| true).expect_err("removed");
    assert_eq!(gone.kind(), ErrorKind::NotFound);
    let applied = Expect { applied: (Term(1), Index(60)), ..Expect::default() };
    assert_eq!(recovered_with(&files, applied).expect("whole").1.first, log.first_index());
    let mut shown = 0;
    let refused = recover(&files, &ident(), Expect::default(), &mut |_| {
        shown += 1;
        Ok(())
    });
    let error = refused.err().expect("a view that never applied 1 needs it");
    assert_eq!(error.kind(), ErrorKind::Corrupt);
    assert!(error.message().contains("the view cannot be rebuilt"), "{error}");
    assert_eq!(shown, 0, "refused before anything is acted upon");
}

#[test]
fn segments_go_oldest_first_or_leave_a_hole() {
    let (mut log, mut files) = (writer(), Files::default());
    (1..=60).for_each(|i| append(&mut log, &mut files, &[record(1, i, 1500)]));
    let applied = Expect { applied: (Term(1), Index(60)), ..Expect::default() };
    let going = log.removable(&Retention { applied: Index(60), oldest_stage: Some(Index(41)), ..Retention::default() });
    assert!(going.len() > 3 && going.is_sorted());
    // Each is gone for good before the next one goes: wherever that ends, the log can be read.
    let mut left = files.clone();
    for segment in &going {
        left.files.remove(segment);
        assert!(recovered_with(&left, applied).is_ok(), "without all up to {segment}");
    }
    let refused = |of: &Files, segment: &Segment| {
        let mut hole = of.clone();
        hole.files.remove(segment);
        recovered_with(&hole, applied).err().map(|error| error.kind()) == Some(ErrorKind::Corrupt)
    };
    // The view may hold all of it, and still staged bytes may lie there: nobody knows how the file was lost.
    assert!(going[1..].iter().all(|segment| refused(&files, segment)), "a later one, and an older one is there");
    let kept: Vec<Segment> = left.files.keys().copied().collect();
    assert!(kept.len() > 2 && kept[1..kept.len() - 1].iter().all(|segment| refused(&left, segment)), "what is needed");
}

#[test]
fn a_log_that_lost_what_is_staged_is_refused() {
    let (mut log, mut files) = (writer(), Files::default());
    (1..=40).for_each(|i| append(&mut log, &mut files, &[record(1, i, 1500)]));
    files.files.remove(&Segment(1)).expect("there");
    let held = Expect { applied: (Term(1), Index(40)), ..Expect::default() };
    let first = recovered_with(&files, held).expect("held by the view").1.first;
    assert!(first > Index(1) && first < Index(40));
    let staged = |staged| Expect { applied: (Term(1), Index(40)), staged: Index(staged), ..Expect::default() };
    for whole in [first.0, first.0 + 1, 41, 50] {
        assert!(recovered_with(&files, staged(whole)).is_ok(), "staged from {whole} on, the log begins with {first}");
    }
    let error = recovered_with(&files, staged(first.0 - 1)).err().expect("bytes are gone");
    assert_eq!(error.kind(), ErrorKind::Corrupt);
    assert!(error.message().contains("a segment file is missing"), "{error}");
    let empty = recovered_with(&Files::default(), Expect { start: (Term(1), Index(40)), ..staged(40) });
    assert_eq!(empty.err().map(|error| error.kind()), Some(ErrorKind::Corrupt), "nothing is left of it");
}

#[test]
fn missing_files_short_logs_and_foreign_stores_are_refused() {
    let (mut log, mut files) = (writer(), Files::default());
    (1..=40).for_each(|i| append(&mut log, &mut files, &[record(1, i, 1500)]));
    let applied = |index| Expect { applied: (Term(1), Index(index)), ..Expect::default() };
    let mut hole = files.clone();
    hole.files.remove(&Segment(2));
    assert_eq!(recovered(&hole).err().map(|e| e.kind()), Some(ErrorKind::Corrupt));
    let mut headless = files.clone();
    headless.files.get_mut(&Segment(2)).expect("there")[20] ^= 4;
    let error = recovered(&headless).err().expect("header damaged");
    assert!(error.message().contains("segment 2"), "{error}");
    let mut tailless = files.clone();
    tailless.files.pop_last();
    assert!(recovered(&tailless).is_ok(), "nothing tells that there was more");
    assert_eq!(recovered_with(&tailless, applied(40)).err().map(|e| e.kind()), Some(ErrorKind::Corrupt));
    let wrong_term = Expect { applied: (Term(7), Index(20)), ..Expect::default() };
    assert_eq!(recovered_with(&files, wrong_term).err().map(|e| e.kind()), Some(ErrorKind::Corrupt));
    let other = LogIdent { store: Guid([8; 16]), ..ident() };
    let error = recover(&files, &other, Expect::default(), &mut |_| Ok(())).err().expect("another store's log");
    assert_eq!(error.kind(), ErrorKind::Refused);
    assert_eq!(recovered_with(&Files::default(), applied(3)).err().map(|e| e.kind()), Some(ErrorKind::Corrupt));
}

#[test]
fn a_segment_opened_but_never_filled_continues_where_the_view_ends() {
    let (mut log, mut files) = (writer(), Files::default());
    (1..=20).for_each(|i| append(&mut log, &mut files, &[record(1, i, 1500)]));
    let mut log = recovered(&files).expect("whole").1.into_writer(SEGMENT_BYTES);
    let writes = log.append(&[record(2, 21, 10)]);
    files.put(&writes[0]);
    assert!(log.removable(&Retention { applied: Index(20), ..Retention::default() }).is_empty(), "not durable yet");
    files.files.retain(|segment, _| *segment == writes[0].segment);
    let applied = Expect { applied: (Term(1), Index(20)), ..Expect::default() };
    let (found, state) = recovered_with(&files, applied).expect("the view holds the rest");
    assert!(found.is_empty());
    assert_eq!((state.last, state.first), ((Term(1), Index(20)), Index(21)));
    let mut log = state.into_writer(SEGMENT_BYTES);
    append(&mut log, &mut files, &[record(2, 21, 10)]);
    assert_eq!(recovered_with(&files, applied).expect("continued").0, owned(&[record(2, 21, 10)]));
}

#[test]
fn a_log_begun_after_an_import_needs_no_first_record() {
    let mut files = Files::default();
    let start = Expect { start: (Term(4), Index(100)), applied: (Term(4), Index(100)), ..Expect::default() };
    let mut log = recovered_with(&files, start).expect("empty").1.into_writer(SEGMENT_BYTES);
    assert_eq!(log.last(), (Term(4), Index(100)));
    append(&mut log, &mut files, &[record(4, 101, 10), record(5, 102, 10)]);
    assert_eq!(recovered_with(&files, start).expect("whole").0.len(), 2);
}

#[test]
fn the_bytes_on_disk_are_a_format() {
    let (files, _) = small_log();
    let file = &files.files[&Segment(1)];
    // header: magic, format 1; then the first record's length, and a checksum over all of it.
    assert_eq!(file[..12], *b"BRAIDLOG\x01\0\0\0");
    assert_eq!(braid_base::crc::crc32c(file), 970_991_842, "a change here needs a new format number");
}
