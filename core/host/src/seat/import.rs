//! The way of a store whose log ends before those of the others begin: it takes the view.
//!
//! 1. The primary finds that its log does not reach back to what a learner lacks, and says so ([`Body::Behind`]).
//! 2. A store that holds something is worth nothing then: it is to begin anew as an empty one
//!    ([`SeatEffect::Forsaken`]; R9). An empty one notes in `replica.meta` that the view is on its way, and asks for it.
//! 3. Rows come in the order of their keys, some at a time. The view changes meanwhile; but the log from before the
//!    first row on is kept for the learner, and what it says again makes the view whole (entries are puts and deletes).
//!    That log begins where the oldest staged bytes lie, which are nowhere else.
//! 4. With the last row the view is flushed; then `replica.meta` says where the log begins, and the replica goes on.
//!
//! A start in between finds the note and begins anew.

use braid_base::ids::{Index, PartitionId, Term};
use braid_base::{ErrorKind, Result, keys};
use braid_meta::Now;
use braid_replica::config::Member;
use braid_replica::replica::event::{Body, Event as ReplicaEvent, Msg};
use braid_replica::{Applied, Batch, Kv, LogReader, ReplicaMeta};

use super::{Outside, Seat, SeatEffect, elect};

/// Rows of one message, at most, and their bytes, exceeded by at most one row.
const ROWS_MAX: usize = 4096;
const ROWS_BYTES: usize = 1 << 20;
/// What did not come in this time is asked for again, milliseconds.
const ASK_MS: u64 = 1_000;
/// Rows that are deleted at once.
const WIPE_ROWS: usize = 4096;

/// A view on its way here.
pub(super) struct Import {
    from: Member,
    /// The log begins after this record; known from the first rows on.
    start: Option<(Term, Index)>,
    /// The last key that came.
    after: Vec<u8>,
    asked_ms: u64,
    /// All rows came.
    whole: bool,
}

/// What an earlier start left of an unfinished import, or of a store that was forsaken, goes for good.
pub(super) fn begin_anew(meta: &mut ReplicaMeta, kv: &dyn Kv, outside: &mut dyn Outside) -> Result<()> {
    outside.discard_log()?;
    wipe(kv, meta.ident.partition)?;
    kv.flush()?;
    // From here on it is an empty store, which may also get all of the log, and must not lose that.
    meta.importing = false;
    elect::note(meta, outside)
}

/// Deletes all rows of `p`.
pub(crate) fn wipe(kv: &dyn Kv, p: PartitionId) -> Result<()> {
    let (mut from, end) = (keys::partition(p), keys::prefix_end(&keys::partition(p)));
    loop {
        let (mut batch, mut rows, mut last) = (Batch::new(), 0, Vec::new());
        kv.scan(&from, &end, &mut |key, _| {
            batch.delete(key);
            rows += 1;
            if rows == WIPE_ROWS {
                last = key.to_vec();
            }
            rows < WIPE_ROWS
        })?;
        if rows == 0 {
            return Ok(());
        }
        kv.apply(&batch)?;
        if last.is_empty() {
            return Ok(());
        }
        // Behind it: what was deleted is stepped over each time that it is looked at from the beginning.
        last.push(0);
        from = last;
    }
}

impl Seat {
    /// Takes a message of another replica: what is about the view here, all else the replica.
    pub(super) fn hear(&mut self, now: Now, msg: Msg, out: &mut Vec<SeatEffect>) {
        if !self.replica.is_for_me(&msg) {
            return;
        }
        match msg.body {
            Body::Behind { first } if msg.term == self.replica.term() => self.behind(now, msg.from, first, out),
            Body::Behind { .. } => {}
            Body::AskView { after } => {
                self.asked.retain(|(member, _)| *member != msg.from);
                self.asked.push((msg.from, after));
                self.want_log(out);
            }
            Body::View { after, start, applied, rows, last } => {
                if self.import.as_ref().is_some_and(|import| import.wants(&after, applied)) {
                    self.take_rows(now, start, rows, last, out);
                }
            }
            // Records that come before the view is here would be no log.
            Body::Append { records, .. } if self.import.is_some() && !records.is_empty() => {}
            body => self.replicate(now, ReplicaEvent::Msg(Msg { body, ..msg }), out),
        }
    }

    /// The log of the primary `from` begins with `first`.
    fn behind(&mut self, now: Now, from: Member, first: Index, out: &mut Vec<SeatEffect>) {
        // What is not known to be committed may be another's: the primary could not tell.
        let committed = self.replica.committed();
        if self.replica.leads() || self.replica.is_member() {
            return; // said before it had caught up
        }
        if committed.next() >= first {
            // The view came meanwhile.
            let body = Body::Ack { held: committed, echo_ms: 0 };
            out.push(SeatEffect::Replica(from, self.replica.message(from, body)));
            return;
        }
        if let Some(import) = &mut self.import {
            import.from = from;
            return;
        }
        if self.replica.next_index() > Index(1)
            || self.journal.bytes_on_disk() > 0
            || self.journal.closed_at().is_none()
        {
            out.push(SeatEffect::Forsaken);
            return;
        }
        self.meta.importing = true;
        self.note_meta(out);
        self.import = Some(Import { from, start: None, after: Vec::new(), asked_ms: 0, whole: false });
        self.ask_view(now, out);
    }

    /// Asks for the next rows, if that is due.
    pub(super) fn ask_view(&mut self, now: Now, out: &mut Vec<SeatEffect>) {
        let Some(import) = &mut self.import else { return };
        if import.whole || (import.asked_ms > 0 && now.mono_ms < import.asked_ms + ASK_MS) {
            return;
        }
        import.asked_ms = now.mono_ms;
        let (to, body) = (import.from, Body::AskView { after: import.after.clone() });
        out.push(SeatEffect::Replica(to, self.replica.message(to, body)));
    }

    /// Sends `to` the rows after `after`; the log that makes them whole is kept for it.
    pub(super) fn show_view(
        &mut self,
        now: Now,
        to: Member,
        after: &[u8],
        reader: &dyn LogReader,
        out: &mut Vec<SeatEffect>,
    ) -> Result<()> {
        if self.serving.is_none() || !self.replica.config().learners.contains(&to) {
            return Ok(());
        }
        let next = self.applied.index.next();
        let first = self.replica.stage_from().max(self.journal.first_told()).min(next);
        let before = Index(first.0 - 1);
        let known = self.replica.term_at(before);
        let term = if known.is_some() { known } else { self.journal.term_of(before, reader)? };
        let Some(term) = term else { return Ok(()) };
        let now_ms = now.mono_ms + self.ahead_ms;
        self.replica.view_asked(now_ms, to, after, first);
        let start = (term, before);
        let (rows, last) = self.rows_after(after)?;
        let body = Body::View { after: after.to_vec(), start, applied: self.applied.index, rows, last };
        out.push(SeatEffect::Replica(to, self.replica.message(to, body)));
        Ok(())
    }

    #[allow(clippy::type_complexity)] // rows, and whether they are the last
    fn rows_after(&self, after: &[u8]) -> Result<(Vec<(Vec<u8>, Vec<u8>)>, bool)> {
        let all = keys::partition(self.id);
        let from = if after.is_empty() { all.clone() } else { [after, &[0]].concat() };
        let own = Applied::key(self.id);
        let (mut rows, mut bytes, mut last) = (Vec::new(), 0, true);
        self.kv.scan(&from, &keys::prefix_end(&all), &mut |key, value| {
            last = rows.len() < ROWS_MAX && bytes < ROWS_BYTES;
            if last && key != own {
                bytes += key.len() + value.len();
                rows.push((key.to_vec(), value.to_vec()));
            }
            last
        })?;
        Ok((rows, last))
    }

    fn take_rows(
        &mut self,
        now: Now,
        start: (Term, Index),
        rows: Vec<(Vec<u8>, Vec<u8>)>,
        last: bool,
        out: &mut Vec<SeatEffect>,
    ) {
        let Some(import) = &mut self.import else { return };
        let start = *import.start.get_or_insert(start);
        let mut batch = Batch::new();
        let end = rows.last().map(|(key, _)| key.clone());
        for (key, value) in rows {
            batch.put(key, value);
        }
        let applied = Applied { term: start.0, index: start.1, hash: 0, staged: start.1.next() };
        if last {
            applied.put(self.id, &mut batch);
        }
        match self.kv.apply(&batch) {
            Ok(()) => {}
            Err(error) if error.kind() == ErrorKind::NoSpace => return, // asked for again
            Err(error) => return self.fail(error.within("take over the key-value view"), out),
        }
        (import.after, import.asked_ms, import.whole) = (end.unwrap_or_default(), 0, last);
        if last {
            self.floor.put(&applied);
            self.applied = applied;
            out.push(SeatEffect::FlushView);
        } else {
            self.ask_view(now, out);
        }
    }

    /// All rows are durable: from now on it is a store like any other.
    pub(super) fn imported(&mut self, out: &mut Vec<SeatEffect>) {
        let whole = self.import.as_ref().filter(|import| import.whole).and_then(|import| import.start);
        let Some(start) = whole.filter(|start| self.flushed >= start.1) else { return };
        self.import = None;
        (self.meta.importing, self.meta.log_start) = (false, start);
        self.note_meta(out);
        self.journal.begin_after(start);
        self.replica.imported(start);
    }
}

impl Import {
    /// True if rows after `after`, as new as `applied`, are what comes next.
    fn wants(&self, after: &[u8], applied: Index) -> bool {
        // A primary that was cut off may hold an older view than the one whose rows came first.
        !self.whole && self.after == after && self.start.is_none_or(|start| applied >= start.1)
    }
}
