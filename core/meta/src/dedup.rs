//! Results of operations that must not run twice (table 41): a repeated request gets the same answer.
//!
//! 1. An operation that changes something stores its answer in the same log entry.
//! 2. The client says up to which number it has all answers, and with each heartbeat which ones it still lacks beyond that;
//!    the other records go, some at a time, and with them goes a mark (number 0): a late double of an answered request is
//!    refused, not run again.
//! 3. An answer without a log entry (a refusal, an open, a lock, a change that changed nothing) is remembered in
//!    memory as long. No restart can lose it too early: a double from before it names an old term and is refused
//!    by the seat ([`ErrorKind::Moved`]).
//! 4. A client that fell silent or left is cleaned by background work.

mod mark;
mod reply;

use std::collections::{BTreeMap, BTreeSet};

use braid_base::ids::{ClientId, Index, OpId};
use braid_base::keys::{self, Table};
use braid_base::limits::OPEN_NUMBERS_MAX;
use braid_base::msg::fs::{FsResult, Op, Reply, Request};
use braid_base::{Error, ErrorKind, Result};
use braid_replica::kv::Kv;

use crate::config::Config;
use crate::txn::Txn;
use reply::Stored;

/// Kept results of a client above which the answered ones are deleted with the next entry.
const TRIM_START: usize = 32;
/// Deletes of that one entry.
const TRIM_AT_ONCE: usize = 64;
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
    /// Numbers with a stored result.
    seqs: BTreeSet<u64>,
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
    pub(crate) fn load(config: &Config, kv: &dyn Kv) -> Result<Self> {
        let mut dedup = Self::default();
        let prefix = keys::table(config.partition, Table::Dedup);
        let mut bad = None;
        kv.scan(&prefix, &keys::prefix_end(&prefix), &mut |key, value| {
            match op_of(key) {
                Some(op) if op.seq == 0 => match mark::decode(value) {
                    Ok(mark) => {
                        let kept = dedup.clients.entry(op.client).or_default();
                        (kept.low, kept.open) = mark;
                        (kept.has_mark, kept.is_marked) = (true, true);
                    }
                    Err(error) => bad = Some(error),
                },
                Some(op) => {
                    dedup.clients.entry(op.client).or_default().seqs.insert(op.seq);
                }
                None => bad = Some(Error::new(ErrorKind::Corrupt, "a key of table 41 has the wrong length")),
            }
            bad.is_none()
        })?;
        bad.map_or(Ok(dedup), Err)
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
        if !kept.seqs.contains(&op.seq) {
            return Ok(None);
        }
        t.get(&keys::dedup(t.partition, op))?.map(|bytes| Stored::decode(&bytes)).transpose()
    }

    /// Keeps the answer of an operation in the entry that carries its effects; false if it is of no kind to keep.
    pub(crate) fn keep(&mut self, t: &mut Txn<'_>, request: &Request, reply: &Reply) -> bool {
        t.completes(request.op);
        let bytes = reply::encode(reply);
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
        if !is_passing && !self.forgetful && !kept.is_over(op.seq) && !kept.seqs.contains(&op.seq) {
            kept.unlogged.insert(op.seq, (answer, wait));
        }
    }

    /// Notes that the home partition runs the operation: whoever repeats it must be sent there.
    pub(crate) fn keep_forwarded(&mut self, t: &mut Txn<'_>, request: &Request) {
        self.store(t, request, reply::encode_forwarded());
    }

    fn store(&mut self, t: &mut Txn<'_>, request: &Request, bytes: Vec<u8>) {
        let op = request.op;
        t.put(keys::dedup(t.partition, op), bytes);
        self.saw(request);
        let kept = self.clients.entry(op.client).or_default();
        kept.seqs.insert(op.seq);
        kept.seen_ms = t.now.mono_ms;
        if kept.seqs.len() > TRIM_START {
            kept.trim(t, op.client, TRIM_AT_ONCE);
        }
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
            budget -= kept.trim(t, *client, budget).min(budget);
            if !(kept.gone && kept.seqs.is_empty()) {
                return true;
            }
            if kept.has_mark {
                t.delete(keys::dedup(t.partition, OpId { client: *client, seq: 0 }));
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

    /// Deletes up to `most` answered results; returns how many.
    fn trim(&mut self, t: &mut Txn<'_>, client: ClientId, most: usize) -> usize {
        let over = self.seqs.range(..=self.low).filter(|seq| !self.open.contains(seq));
        let old: Vec<u64> = over.take(most).copied().collect();
        for seq in &old {
            self.seqs.remove(seq);
            t.delete(keys::dedup(t.partition, OpId { client, seq: *seq }));
        }
        if !old.is_empty() && !self.is_marked {
            t.put(keys::dedup(t.partition, OpId { client, seq: 0 }), mark::encode(self.low, &self.open));
            (self.has_mark, self.is_marked) = (true, true);
        }
        old.len()
    }
}

fn op_of(key: &[u8]) -> Option<OpId> {
    let client = u64::from_be_bytes(key.get(3..11)?.try_into().ok()?);
    let seq = u64::from_be_bytes(key.get(11..19)?.try_into().ok()?);
    (key.len() == 19).then_some(OpId { client: ClientId(client), seq })
}
