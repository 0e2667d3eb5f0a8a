//! The end of the log in memory: terms and state hashes of all records after the base, and the records
//! themselves as long as someone may need them.

use std::collections::VecDeque;
use std::sync::Arc;

use braid_base::ids::{Index, Term};
use braid_base::{Error, ErrorKind, Result};

use crate::entry::{Entry, Record, STATE_HASH_EVERY};
use crate::kv::applied::Applied;
use crate::log::format::RecordView;

/// Records after a base that is applied.
#[derive(Clone, Debug)]
pub struct Tail {
    /// The state after the last record before it.
    base: Applied,
    slots: VecDeque<Slot>,
    /// Payload and changes of the records in memory.
    bytes: usize,
}

#[derive(Clone, Debug)]
struct Slot {
    term: Term,
    hash: u64,
    /// `None` for what was found on disk after a restart.
    record: Option<Arc<Record>>,
}

impl Tail {
    /// Nothing after `applied`.
    pub fn new(applied: Applied) -> Self {
        Self { base: applied, slots: VecDeque::new(), bytes: 0 }
    }

    /// Takes a record found by [`crate::log::recover::recover`]; ignores those up to the base. `Corrupt` if the
    /// log's state hash contradicts the view's (I5).
    pub fn recovered(&mut self, view: &RecordView<'_>) -> Result<()> {
        if view.header.index <= self.base.index {
            return Ok(());
        }
        assert_eq!(view.header.index, self.last().1.next(), "recovery shows records in order");
        let after = self.state().after(view.header.term, view.header.index, &view.batch, view.state_hash);
        check_hash(view.state_hash, after)?;
        self.slots.push_back(Slot { term: after.term, hash: after.hash, record: None });
        Ok(())
    }

    /// Term and index of the last record before the tail.
    pub fn base(&self) -> (Term, Index) {
        (self.base.term, self.base.index)
    }

    /// Term and index of the last record.
    pub fn last(&self) -> (Term, Index) {
        match self.slots.back() {
            Some(slot) => (slot.term, Index(self.base.index.0 + self.slots.len() as u64)),
            None => self.base(),
        }
    }

    /// The term of record `index`; `None` if it is before the base or after the last.
    pub fn term_at(&self, index: Index) -> Option<Term> {
        if index == self.base.index { Some(self.base.term) } else { self.slot(index).map(|s| s.term) }
    }

    /// The record, if it is in memory.
    pub fn record(&self, index: Index) -> Option<&Arc<Record>> {
        self.slot(index)?.record.as_ref()
    }

    /// The record that `entry` becomes if it is appended in `term`.
    pub(super) fn next_record(&self, term: Term, entry: Entry) -> Record {
        let index = self.last().1.next();
        let after = self.state().after(term, index, entry.batch(), None);
        // Not known yet after an import.
        let state_hash = Some(after.hash).filter(|hash| index.0.is_multiple_of(STATE_HASH_EVERY) && *hash != 0);
        Record { term, index, entry, state_hash }
    }

    /// Appends the next record. `Corrupt` if its state hash contradicts this log (I5).
    pub(super) fn push(&mut self, record: Arc<Record>) -> Result<()> {
        assert_eq!(record.index, self.last().1.next(), "records follow each other");
        let after = self.state().after(record.term, record.index, record.entry.batch(), record.state_hash);
        check_hash(record.state_hash, after)?;
        self.bytes += record.entry.bytes();
        self.slots.push_back(Slot { term: after.term, hash: after.hash, record: Some(record) });
        Ok(())
    }

    pub(super) fn truncate_after(&mut self, index: Index) {
        assert!(index >= self.base.index, "the base is applied");
        for slot in self.slots.drain((index.0 - self.base.index.0).min(self.slots.len() as u64) as usize..) {
            self.bytes -= slot.bytes();
        }
    }

    /// Drops what does not count: records of terms before `cut.0` beyond `cut.1`. True if there were any.
    pub fn cut(&mut self, cut: (Term, Index)) -> bool {
        let (term, last) = self.last();
        let beyond = term < cut.0 && last > cut.1.max(self.base.index);
        if beyond {
            self.truncate_after(cut.1.max(self.base.index));
        }
        beyond
    }

    /// First index of the run of records that has the same term as record `index`; not before the base.
    pub(super) fn run_start(&self, index: Index) -> Index {
        let term = self.term_at(index);
        let mut at = index;
        while at > self.base.index && self.term_at(Index(at.0 - 1)) == term {
            at = Index(at.0 - 1);
        }
        at
    }

    /// Moves the base up to `upto`.
    pub(super) fn release(&mut self, upto: Index) {
        self.release_while(upto, |_| true);
    }

    /// The same, only until no more than `records` and `bytes` of them are left.
    pub(super) fn release_beyond(&mut self, upto: Index, records: usize, bytes: usize) {
        self.release_while(upto, |tail| tail.slots.len() > records || tail.bytes > bytes);
    }

    fn release_while(&mut self, upto: Index, goes: impl Fn(&Self) -> bool) {
        while self.base.index < upto
            && goes(self)
            && let Some(slot) = self.slots.pop_front()
        {
            self.bytes -= slot.bytes();
            self.base = Applied { term: slot.term, index: self.base.index.next(), hash: slot.hash, ..self.base };
        }
    }

    fn slot(&self, index: Index) -> Option<&Slot> {
        let at = index.0.checked_sub(self.base.index.0 + 1)?;
        self.slots.get(usize::try_from(at).ok()?)
    }

    /// The state after the last record.
    fn state(&self) -> Applied {
        let (term, index) = self.last();
        Applied { term, index, hash: self.slots.back().map_or(self.base.hash, |slot| slot.hash), ..self.base }
    }
}

impl Slot {
    fn bytes(&self) -> usize {
        self.record.as_ref().map_or(0, |record| record.entry.bytes())
    }
}

fn check_hash(expected: Option<u64>, found: Applied) -> Result<()> {
    match expected {
        Some(expected) if expected != found.hash => Err(Error::new(
            ErrorKind::Corrupt,
            format!(
                "record {}: expected state hash {expected:#x}, found {:#x}: this store's log or view differs from the \
                 others'; rebuild it as a new store",
                found.index, found.hash
            ),
        )),
        _ => Ok(()),
    }
}
