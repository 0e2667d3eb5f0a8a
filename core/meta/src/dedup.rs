//! Results of operations that must not run twice (table 41): a repeated request gets the same answer.
//!
//! 1. An operation that changes something stores its answer in the same log entry.
//! 2. The client says up to which number it has all answers, and with each heartbeat which ones it still lacks beyond that.
//!    The rows of the others take later answers, after a mark (row 0) says so: a late double of an answered request is
//!    refused, or gets the same answer, and is not run again. So few rows are written over and over, and of several changes
//!    of a row only the last comes to the view (decision 62).
//! 3. An answer without a log entry (a refusal, an open, a lock, a change that changed nothing) is remembered in
//!    memory as long. No restart can lose it too early: a double from before it names an old term and is refused
//!    by the seat ([`ErrorKind::Moved`]).
//! 4. The rows of a client that fell silent or left are deleted by background work.

mod mark;
mod reply;

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use braid_base::ids::{ClientId, Index, OpId, PartitionId};
use braid_base::keys::{self, Table};
use braid_base::limits::OPEN_NUMBERS_MAX;
use braid_base::msg::fs::{FsResult, Op, Reply, Request};
use braid_base::{Error, ErrorKind, Result};
use braid_replica::kv::Kv;

use crate::txn::Txn;
use reply::Stored;

/// After so many answers of a client it is looked which of them have come: a mark for several.
const LOOK_AFTER: u32 = 32;
/// Rows of a client that are kept for later answers; more of them are deleted.
const FREE_MAX: usize = 1_024;
/// Deletes of one such look.
const TRIM_AT_ONCE: usize = 64;
/// The row of a client's mark.
const MARK: u64 = 0;
/// Silence after which background work deletes what is left, milliseconds.
const IDLE_MS: u64 = 10_000;
/// Deletes of one background entry.
const TRIM_IDLE: usize = 500;
/// Time between two looks for silent clients, milliseconds.
const LOOK_MS: u64 = 1_000;

/// Which results are kept.
#[derive(Default)]
pub struct Dedup {
    clients: BTreeMap<ClientId, Kept>,
    looked_ms: u64,
    /// For tests: the rule 3 is left out.
    pub(crate) forgetful: bool,
}

#[derive(Default)]
struct Kept {
    /// Numbers with a stored result, and the row of each.
    rows: BTreeMap<u64, u64>,
    /// Rows of answered operations, which the stored mark covers. The last one is taken first: so few are in use.
    free: VecDeque<u64>,
    /// Answers since it was last looked which have come.
    stored: u32,
    /// The highest row that was ever used.
    top: u64,
    /// Answers of the others that may be asked for, and the entry that each had to wait for.
    unlogged: BTreeMap<u64, (FsResult, Index)>,
    /// Of the others, those that took an open reference, which is in no entry: of the session that there is.
    opened: BTreeSet<u64>,
    /// Everything up to here was answered...
    low: u64,
    /// ...but these.
    open: BTreeSet<u64>,
    /// A mark is stored, and says just that.
    has_mark: bool,
    is_marked: bool,
    /// When the client last changed something.
    seen_ms: u64,
    /// The client ended its session.
    gone: bool,
}

impl Dedup {
    pub(crate) fn load(p: PartitionId, kv: &dyn Kv) -> Result<Self> {
        let mut dedup = Self::default();
        let prefix = keys::table(p, Table::Dedup);
        let mut bad = None;
        kv.scan(&prefix, &keys::prefix_end(&prefix), &mut |key, value| {
            if let Err(error) = dedup.take_row(key, value) {
                bad = Some(error);
            }
            bad.is_none()
        })?;
        dedup.clients.values_mut().for_each(Kept::release);
        bad.map_or(Ok(dedup), Err)
    }

    /// Takes note of a stored row. The mark of a client comes before its other rows.
    fn take_row(&mut self, key: &[u8], value: &[u8]) -> Result<()> {
        let Some((client, row)) = row_of(key) else {
            return Err(Error::new(ErrorKind::Corrupt, "a key of table 41 has the wrong length"));
        };
        let kept = self.clients.entry(client).or_default();
        if row == MARK {
            (kept.low, kept.open) = mark::decode(value)?;
            (kept.has_mark, kept.is_marked) = (true, true);
        } else {
            kept.rows.insert(reply::seq_of(row, value)?, row);
            kept.top = kept.top.max(row);
        }
        Ok(())
    }

    /// Takes note of what the client says it has answers for.
    pub(crate) fn saw(&mut self, request: &Request) {
        let kept = self.clients.entry(request.op.client).or_default();
        let upto = request.done_upto.min(request.op.seq.saturating_sub(1));
        match &request.body {
            Op::Hello { open, .. } if open.len() <= OPEN_NUMBERS_MAX => {
                kept.raise(upto, &open.iter().copied().collect())
            }
            // More than anybody is to remember: nothing was said.
            Op::Hello { .. } => {}
            _ => kept.raise(upto, &BTreeSet::new()),
        }
    }

    /// The answer of `op`, if it has one. `Stale` if the client said that it has the answer already.
    pub(crate) fn find(&self, t: &Txn<'_>, op: OpId) -> Result<Option<FsResult>> {
        let unlogged = self.clients.get(&op.client).and_then(|kept| kept.unlogged.get(&op.seq));
        if let Some((answer, wait)) = unlogged {
            t.saw(*wait);
            return Ok(Some(answer.clone()));
        }
        match self.stored(t, op)? {
            Some(Stored::Reply(reply)) => Ok(Some(Ok(reply))),
            Some(Stored::Forwarded) | None => Ok(None),
        }
    }

    /// True if `op` was passed on to the home partition, which has its answer.
    pub(crate) fn forwarded(&self, t: &Txn<'_>, op: OpId) -> Result<bool> {
        Ok(matches!(self.stored(t, op)?, Some(Stored::Forwarded)))
    }

    fn stored(&self, t: &Txn<'_>, op: OpId) -> Result<Option<Stored>> {
        if op.seq == 0 {
            return Err(Error::new(ErrorKind::Invalid, "operation numbers start at 1, found 0"));
        }
        let Some(kept) = self.clients.get(&op.client) else { return Ok(None) };
        if kept.is_over(op.seq) {
            return Err(Error::new(ErrorKind::Stale, format!("operation {op} was answered and forgotten")));
        }
        let Some(row) = kept.rows.get(&op.seq) else { return Ok(None) };
        let Some(bytes) = t.get(&keys::dedup(t.partition, op.client, *row))? else { return Ok(None) };
        let (found, stored) = Stored::decode(*row, &bytes)?;
        if found != op.seq {
            let message = format!("kept answer: row {row} is expected to be of {op}, and is of number {found}");
            return Err(Error::new(ErrorKind::Corrupt, message));
        }
        Ok(Some(stored))
    }

    /// The row with the answer of `op`, if it has one.
    pub(crate) fn key_of(&self, t: &Txn<'_>, op: OpId) -> Option<Vec<u8>> {
        let row = self.clients.get(&op.client)?.rows.get(&op.seq)?;
        Some(keys::dedup(t.partition, op.client, *row))
    }

    /// Keeps the answer of an operation in the entry that carries its effects; false if it is of no kind to keep.
    pub(crate) fn keep(&mut self, t: &mut Txn<'_>, request: &Request, reply: &Reply) -> bool {
        t.completes(request.op);
        let bytes = reply::encode(request.op.seq, reply);
        let is_kept = bytes.is_some();
        if let Some(bytes) = bytes {
            self.store(t, request, bytes);
        }
        is_kept
    }

    /// Remembers an answer that may be in no entry; whoever gets it once more waits for the entry at `wait`.
    /// The client repeats what found a passing hindrance: that is no answer.
    pub(crate) fn remember(&mut self, op: OpId, answer: FsResult, wait: Index) {
        let is_passing = answer.as_ref().is_err_and(|error| error.kind().is_passing());
        let Some(kept) = self.clients.get_mut(&op.client) else { return };
        if !is_passing && !self.forgetful && !kept.is_over(op.seq) && !kept.rows.contains_key(&op.seq) {
            kept.unlogged.insert(op.seq, (answer, wait));
        }
    }

    /// Notes that the home partition runs the operation: whoever repeats it must be sent there.
    pub(crate) fn keep_forwarded(&mut self, t: &mut Txn<'_>, request: &Request) {
        self.store(t, request, reply::encode_forwarded(request.op.seq));
    }

    fn store(&mut self, t: &mut Txn<'_>, request: &Request, bytes: Vec<u8>) {
        let op = request.op;
        self.saw(request);
        let kept = self.clients.entry(op.client).or_default();
        kept.seen_ms = t.now.mono_ms;
        let row = kept.row(t, op);
        t.put(keys::dedup(t.partition, op.client, row), bytes);
    }

    /// What the client held is gone, and with it what answers without an entry were about: who repeats an operation in a
    /// new session has it carried out anew. (Late doubles name the old session, and are refused.)
    pub(crate) fn lost(&mut self, client: ClientId) {
        if let Some(kept) = self.clients.get_mut(&client) {
            kept.unlogged.clear();
            kept.opened.clear();
        }
    }

    /// `op` takes an open reference; false if it has taken it already.
    pub(crate) fn opens(&mut self, op: OpId) -> bool {
        self.clients.entry(op.client).or_default().opened.insert(op.seq)
    }

    /// The client left: nothing of it will be asked again.
    pub(crate) fn ended(&mut self, op: OpId) {
        if let Some(kept) = self.clients.get_mut(&op.client) {
            kept.raise(op.seq, &BTreeSet::new());
            kept.gone = true;
        }
    }

    /// Background: deletes what silent and gone clients left behind, some at a time.
    pub(crate) fn clean(&mut self, t: &mut Txn<'_>) {
        let now = t.now.mono_ms;
        if now < self.looked_ms + LOOK_MS {
            return;
        }
        let mut budget = TRIM_IDLE;
        self.clients.retain(|client, kept| {
            let idle = kept.gone || now >= kept.seen_ms + IDLE_MS;
            if budget == 0 || !idle {
                return true;
            }
            kept.release_marked(t, *client);
            budget -= kept.delete_free(t, *client, 0, budget);
            if !(kept.gone && kept.rows.is_empty() && kept.free.is_empty()) {
                return true;
            }
            if kept.has_mark {
                t.delete(keys::dedup(t.partition, *client, MARK));
            }
            false
        });
        if budget > 0 {
            self.looked_ms = now;
        }
    }
}

impl Kept {
    /// True if it was answered, and the client has that.
    fn is_over(&self, seq: u64) -> bool {
        seq <= self.low && !self.open.contains(&seq)
    }

    /// Everything up to `upto` was answered, but `open`. That stays true, however late it is heard.
    fn raise(&mut self, upto: u64, open: &BTreeSet<u64>) {
        for seq in self.open.extract_if(..=upto, |seq| !open.contains(seq)) {
            self.unlogged.remove(&seq);
            self.opened.remove(&seq);
            self.is_marked = false;
        }
        if upto <= self.low {
            return;
        }
        self.open.extend(open.range(self.low + 1..=upto));
        (self.low, self.is_marked) = (upto, false);
        if !self.unlogged.is_empty() {
            let above = self.unlogged.split_off(&(upto + 1));
            let below = std::mem::replace(&mut self.unlogged, above);
            self.unlogged.extend(below.into_iter().filter(|(seq, _)| self.open.contains(seq)));
        }
        if !self.opened.is_empty() {
            let above = self.opened.split_off(&(upto + 1));
            let below = std::mem::replace(&mut self.opened, above);
            self.opened.extend(below.into_iter().filter(|seq| self.open.contains(seq)));
        }
    }

    /// The row for the answer of `op`: its own, a free one, or a new one.
    fn row(&mut self, t: &mut Txn<'_>, op: OpId) -> u64 {
        if let Some(row) = self.rows.get(&op.seq) {
            return *row;
        }
        self.stored += 1;
        if self.stored >= LOOK_AFTER {
            self.release_marked(t, op.client);
            self.delete_free(t, op.client, FREE_MAX, TRIM_AT_ONCE);
        }
        let row = self.free.pop_back().unwrap_or_else(|| {
            self.top += 1;
            self.top
        });
        self.rows.insert(op.seq, row);
        row
    }

    /// Frees the rows of answered operations, after a mark says that these are over.
    fn release_marked(&mut self, t: &mut Txn<'_>, client: ClientId) {
        self.stored = 0;
        let free = self.free.len();
        self.release();
        if self.free.len() > free && !self.is_marked {
            t.put(keys::dedup(t.partition, client, MARK), mark::encode(self.low, &self.open));
            (self.has_mark, self.is_marked) = (true, true);
        }
    }

    fn release(&mut self) {
        let over = self.rows.extract_if(..=self.low, |seq, _| !self.open.contains(seq));
        self.free.extend(over.map(|(_, row)| row));
    }

    /// Deletes free rows but `but` of them, at most `most`; returns how many.
    fn delete_free(&mut self, t: &mut Txn<'_>, client: ClientId, but: usize, most: usize) -> usize {
        let count = self.free.len().saturating_sub(but).min(most);
        for row in self.free.drain(..count) {
            t.delete(keys::dedup(t.partition, client, row));
        }
        if self.rows.is_empty() && self.free.is_empty() {
            self.top = 0;
        }
        count
    }
}

/// Client and row.
fn row_of(key: &[u8]) -> Option<(ClientId, u64)> {
    let client = u64::from_be_bytes(key.get(3..11)?.try_into().ok()?);
    let row = u64::from_be_bytes(key.get(11..19)?.try_into().ok()?);
    (key.len() == 19).then_some((ClientId(client), row))
}

#[cfg(test)]
mod tests {
    use std::collections::{BTreeMap, BTreeSet};

    use braid_base::ids::{ClientId, PartitionId};
    use braid_base::keys;
    use braid_base::msg::fs::Reply;
    use braid_replica::{Batch, Kv, MapKv};

    use super::{Dedup, MARK, mark, reply};

    #[test]
    fn rows_of_this_release_and_of_an_earlier_one() {
        let (p, client) = (PartitionId(3), ClientId(8));
        let new = |seq| reply::encode(seq, &Reply::Done).expect("it is kept");
        let old = vec![1, new(0)[9]];
        let mut batch = Batch::new();
        batch.put(keys::dedup(p, client, MARK), mark::encode(40, &BTreeSet::from([39])));
        // Of an earlier release: the row is the number of the operation.
        batch.put(keys::dedup(p, client, 38), &old).put(keys::dedup(p, client, 39), &old);
        batch.put(keys::dedup(p, client, 41), &old);
        batch.put(keys::dedup(p, client, 1), new(42)).put(keys::dedup(p, client, 2), new(17));
        let kv = MapKv::default();
        kv.apply(&batch).expect("memory");
        let dedup = Dedup::load(p, &kv).expect("they can be read");
        let kept = &dedup.clients[&client];
        assert_eq!(kept.rows, BTreeMap::from([(39, 39), (41, 41), (42, 1)]));
        assert_eq!((kept.free.iter().copied().collect(), kept.top), (BTreeSet::from([2, 38]), 41));
        kv.apply(Batch::new().put(keys::dedup(p, client, 7), [9, 9])).expect("memory");
        let refused = Dedup::load(p, &kv).map(drop).expect_err("no release has written that");
        assert!(refused.to_string().contains("expected version 2, found 9"), "{refused}");
    }
}
