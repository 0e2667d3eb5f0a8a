//! One operation's view of the partition and the effects it collects.

use std::cell::Cell;
use std::collections::BTreeMap;

use braid_base::ids::{Index, OpId, PartitionId, Term};
use braid_base::keys::prefix_end;
use braid_base::limits::{CLEANUP_KEYS_MAX, JOB_META_MAX};
use braid_base::msg::fs::FsResult;
use braid_base::msg::lease::{Answer, Grant};
use braid_base::record::Record;
use braid_base::{Error, ErrorKind, Result};
use braid_replica::{Batch, Change, Kv};
use bytes::Bytes;

use crate::event::{Effect, Now, Token};
use crate::overlay::Overlay;

/// Reads see own writes, then pending entries, then the view. Writes become one log entry.
pub struct Txn<'a> {
    /// This partition.
    pub partition: PartitionId,
    /// Number of partitions in the cluster.
    pub partitions: u16,
    /// The position that the entry will get.
    pub index: Index,
    /// The present.
    pub now: Now,
    kv: &'a dyn Kv,
    overlay: &'a Overlay,
    seen: Cell<Index>,
    writes: BTreeMap<Vec<u8>, Option<Vec<u8>>>,
    /// Bytes of all keys and values written, overwritten ones included.
    written: usize,
    payload: Vec<Bytes>,
    payload_len: u32,
    slices: u16,
    after: Vec<Effect>,
    early: Vec<Effect>,
    at_once: Vec<Effect>,
    ops: Vec<OpId>,
    answers: Vec<(OpId, FsResult)>,
    grants: Vec<Grant>,
    /// Payload bytes and slices of others in the entry.
    behind: (u32, u16),
    /// A read of the view failed.
    view_failed: Cell<bool>,
    /// What was dropped of this transaction because the view failed.
    failed: Option<Error>,
}

/// What a finished transaction leaves behind.
pub struct Outcome {
    /// The newest pending entry that was read: the reply must wait for it.
    pub seen: Index,
    /// The effects.
    pub writes: BTreeMap<Vec<u8>, Option<Vec<u8>>>,
    /// Staged bytes.
    pub payload: Vec<Bytes>,
    /// Slices of the entry so far.
    pub slices: u16,
    /// Effects that wait until this entry and all that it saw are committed.
    pub after: Vec<Effect>,
    /// Replies that need not wait for it, as long as little waits for the log.
    pub early: Vec<Effect>,
    /// Effects that wait for nothing.
    pub at_once: Vec<Effect>,
    /// Client operations that the entry completes.
    pub ops: Vec<OpId>,
    /// What operations were answered: remembered for their late doubles.
    pub answers: Vec<(OpId, FsResult)>,
    /// Something was dropped because the view failed.
    pub failed: Option<Error>,
}

impl<'a> Txn<'a> {
    /// A transaction over `kv` and `overlay` whose entry will be `index`.
    pub fn new(
        (partition, partitions): (PartitionId, u16),
        index: Index,
        now: Now,
        kv: &'a dyn Kv,
        overlay: &'a Overlay,
    ) -> Self {
        Self {
            partition,
            partitions,
            index,
            now,
            kv,
            overlay,
            seen: Cell::default(),
            writes: BTreeMap::new(),
            written: 0,
            payload: Vec::new(),
            payload_len: 0,
            slices: 0,
            after: Vec::new(),
            early: Vec::new(),
            at_once: Vec::new(),
            ops: Vec::new(),
            answers: Vec::new(),
            grants: Vec::new(),
            behind: (0, 0),
            view_failed: Cell::new(false),
            failed: None,
        }
    }

    /// What follows from this transaction waits for all that was proposed before it.
    pub(crate) fn saw_all(&self) {
        self.saw(Index(self.index.0.saturating_sub(1)));
    }

    /// What follows from this transaction waits for the entry at `at`.
    pub(crate) fn saw(&self, at: Index) {
        self.seen.set(self.seen.get().max(at));
    }

    /// The bytes at `key`.
    pub fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>> {
        if let Some(own) = self.writes.get(key) {
            return Ok(own.clone());
        }
        if let Some((at, value)) = self.overlay.get(key) {
            self.saw(at);
            return Ok(value.map(<[u8]>::to_vec));
        }
        self.kv.get(key).inspect_err(|_| self.view_failed.set(true))
    }

    /// The record at `key`.
    pub fn read<R: Record>(&self, key: &[u8]) -> Result<Option<R>> {
        self.get(key)?.map(|bytes| R::decode(&bytes)).transpose()
    }

    /// Visits keys in `[from, to)` in order until `visit` returns false.
    pub fn scan(&self, from: &[u8], to: &[u8], visit: &mut dyn FnMut(&[u8], &[u8]) -> bool) -> Result<()> {
        let pending = self.pending(from, to);
        let mut ahead = pending.iter().peekable();
        let mut going = true;
        let scanned = self.kv.scan(from, to, &mut |key, value| {
            while let Some((own, newer)) = ahead.next_if(|(own, _)| ***own < *key) {
                if let Some(newer) = newer {
                    going = visit(own, newer);
                    if !going {
                        return false;
                    }
                }
            }
            let newest = match ahead.next_if(|(own, _)| ***own == *key) {
                Some((_, newer)) => *newer,
                None => Some(value),
            };
            if let Some(newest) = newest {
                going = visit(key, newest);
            }
            going
        });
        scanned.inspect_err(|_| self.view_failed.set(true))?;
        for (key, newer) in ahead {
            if let (true, Some(newer)) = (going, newer) {
                going = visit(key, newer);
            }
        }
        Ok(())
    }

    /// Visits all keys with `prefix` in order until `visit` returns false.
    pub fn scan_prefix(&self, prefix: &[u8], visit: &mut dyn FnMut(&[u8], &[u8]) -> bool) -> Result<()> {
        self.scan(prefix, &prefix_end(prefix), visit)
    }

    /// What follows from this transaction waits for all pending entries that change a key in `[from, to)`.
    pub fn saw_pending(&self, from: &[u8], to: &[u8]) {
        self.overlay.range(from, to).for_each(|(_, at, _)| self.saw(at));
    }

    fn pending(&self, from: &[u8], to: &[u8]) -> BTreeMap<&[u8], Option<&[u8]>> {
        let mut merged = BTreeMap::new();
        for (key, at, value) in self.overlay.range(from, to) {
            self.saw(at);
            merged.insert(key, value);
        }
        let bounds = (std::ops::Bound::Included(from), std::ops::Bound::Excluded(to));
        for (key, value) in self.writes.range::<[u8], _>(bounds) {
            merged.insert(key.as_slice(), value.as_deref());
        }
        merged
    }

    /// Sets `key`.
    pub fn put(&mut self, key: Vec<u8>, value: Vec<u8>) {
        self.written += key.len() + value.len();
        self.writes.insert(key, Some(value));
    }

    /// Sets `key` to a record.
    pub fn write<R: Record>(&mut self, key: Vec<u8>, record: &R) {
        self.put(key, record.encode());
    }

    /// Deletes `key`.
    pub fn delete(&mut self, key: Vec<u8>) {
        self.written += key.len();
        self.writes.insert(key, None);
    }

    /// Others have changed something in the same entry before: so many bytes of its payload and slices are theirs.
    pub(crate) fn behind(&mut self, payload_len: u32, slices: u16) {
        self.behind = (payload_len, slices);
        (self.payload_len, self.slices) = self.behind;
    }

    /// The number of the next slice of this entry.
    pub(crate) fn next_slice(&mut self) -> u16 {
        self.slices += 1;
        self.slices - 1
    }

    /// Adds bytes to the entry's payload; returns their offset in it.
    pub fn stage(&mut self, bytes: Bytes) -> u32 {
        let at = self.payload_len;
        self.payload_len += u32::try_from(bytes.len()).expect("a write is at most WRITE_MAX");
        self.payload.push(bytes);
        at
    }

    /// Adds an effect that waits until this entry, and every pending one that was read, is committed.
    pub fn after(&mut self, effect: Effect) {
        self.after.push(effect);
    }

    /// Adds an effect that waits for nothing.
    pub fn at_once(&mut self, effect: Effect) {
        self.at_once.push(effect);
    }

    /// Answers a request once everything that this transaction read or wrote is committed.
    pub fn reply(&mut self, token: Token, result: FsResult) {
        let answer = self.with_grants(result);
        self.after(Effect::Reply(token, answer));
    }

    /// Leases that go with the next answer.
    pub(crate) fn grant(&mut self, grants: Vec<Grant>) {
        self.grants = grants;
    }

    /// As [`Self::reply`], for the answer of an operation that changes something: a late double of it gets this one too.
    pub fn answer(&mut self, token: Token, op: OpId, result: FsResult) {
        self.answered(op, &result);
        self.reply(token, result);
    }

    /// Answers a request that leaves it to the partition when ([`Request::early`](braid_base::msg::fs::Request)).
    pub fn reply_early(&mut self, token: Token, result: FsResult) {
        let answer = self.with_grants(result);
        self.early.push(Effect::Reply(token, answer));
    }

    fn with_grants(&mut self, result: FsResult) -> Answer {
        // The term is filled in when the answer leaves.
        Answer { term: Term(0), grants: std::mem::take(&mut self.grants), result }
    }

    /// Remembers the answer of an operation, whoever it is sent to.
    pub fn answered(&mut self, op: OpId, result: &FsResult) {
        self.answers.push((op, result.clone()));
    }

    /// True if something would be logged.
    pub fn is_dirty(&self) -> bool {
        !self.writes.is_empty()
    }

    /// The operation failed: drops all effects collected so far. Whoever returns an error has changed nothing before,
    /// unless the view fails, or holds what nobody understands, in the middle: then what it changed in memory stays changed.
    pub fn fail(&mut self, error: &Error) {
        if self.view_failed.get() || matches!(error.kind(), ErrorKind::Io | ErrorKind::Corrupt) {
            self.failed.get_or_insert(error.clone());
        }
        self.abandon();
    }

    /// Runs `work`; if it fails, nothing of it remains, but what was collected before does. Nothing that is run so changes
    /// what files hold, which would stay changed in memory.
    pub fn attempt<R>(&mut self, work: impl FnOnce(&mut Self) -> Result<R>) -> Result<R> {
        let (writes, payload_len, slices) = (self.writes.clone(), self.payload_len, self.slices);
        let lens = (self.payload.len(), self.after.len(), self.at_once.len(), self.ops.len(), self.answers.len());
        assert!(self.early.is_empty(), "a reply is the last that an operation does");
        let result = work(self);
        if result.is_err() {
            (self.writes, self.payload_len, self.slices) = (writes, payload_len, slices);
            self.payload.truncate(lens.0);
            self.after.truncate(lens.1);
            self.at_once.truncate(lens.2);
            self.ops.truncate(lens.3);
            self.answers.truncate(lens.4);
        }
        result
    }

    /// Drops all effects collected so far: the operation failed.
    pub fn abandon(&mut self) {
        self.writes.clear();
        self.payload.clear();
        (self.payload_len, self.slices) = self.behind;
        self.after.clear();
        self.early.clear();
        self.at_once.clear();
        self.answers.clear();
    }

    /// Names a client operation that this entry completes (it travels in the log record).
    pub fn completes(&mut self, op: OpId) {
        self.ops.push(op);
    }

    /// Keys written so far (bounds background steps).
    pub fn writes_len(&self) -> usize {
        self.writes.len()
    }

    /// True if background work should leave the rest to the next entry: enough keys or bytes are in this one.
    pub fn is_full(&self) -> bool {
        self.writes.len() >= CLEANUP_KEYS_MAX || self.written >= JOB_META_MAX
    }

    /// Ends the transaction.
    pub fn finish(self) -> Outcome {
        let Self { seen, writes, payload, slices, after, early, at_once, ops, answers, failed, .. } = self;
        Outcome { seen: seen.get(), writes, payload, slices, after, early, at_once, ops, answers, failed }
    }
}

/// Puts and deletes as a batch for the log.
pub(crate) fn batch_of<'a>(writes: impl Iterator<Item = (&'a [u8], Option<&'a [u8]>)> + Clone) -> Batch {
    let bytes = |(key, value): (&[u8], Option<&[u8]>)| Change::BYTES + key.len() + value.map_or(0, <[u8]>::len);
    let mut batch = Batch::with_capacity(writes.clone().map(bytes).sum());
    for (key, value) in writes {
        match value {
            Some(value) => batch.put(key, value),
            None => batch.delete(key),
        };
    }
    batch
}
