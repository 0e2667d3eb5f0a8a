//! A seat as one of several: what its replica wants done, and how it begins and ends to serve.

use braid_base::ids::Index;
use braid_base::{Error, ErrorKind, Result};
use braid_meta::{Config, Event, Now, Partition};
use braid_replica::log::LogReader;
use braid_replica::replica::event::{Body, Effect as ReplicaEffect, Event as ReplicaEvent};
use braid_replica::{Applied, Batch, Kv};

use super::{FullView, Seat, SeatEffect};

/// Changes that go to the view at once, bytes.
const BATCH_BYTES: usize = 4 << 20;
/// Entries that are committed and not in the view, and their bytes: with more they go there. Together
/// they cost less than one by one, above all those that change the same rows. Putting them there takes a millisecond,
/// for which others wait.
const LATER_ENTRIES: u64 = 256;
const LATER_BYTES: usize = 4 << 20;
/// A primary whose view has no room has this time of one term to name another one to lead, milliseconds; then it falls
/// mute.
const HAND_OVER_MS: u64 = 3_000;
/// The same of all its terms: members that come and go do not put it off for ever.
const HAND_OVER_MAX_MS: u64 = 10_000;
/// It is mute so long, milliseconds. If nobody has taken its place by then, it goes on for a while, and hears the others.
const MUTE_MS: u64 = 20_000;

impl Seat {
    /// Leaves a rule of the replica out, to show that tests notice.
    #[cfg(feature = "broken")]
    pub fn leave_out(&mut self, now: Now, variant: braid_replica::replica::variant::Variant) {
        self.replica.leave_out(now.mono_ms + self.ahead_ms, Some(variant));
    }

    /// True if nobody else has a part in what is committed, or is about to.
    pub(super) fn is_alone(&self) -> bool {
        !self.replica.needs_promises() && self.replica.config().learners.is_empty()
    }

    /// A member without room holds all others up: it says and hears nothing until it has some, like one that is paused,
    /// so that they go on without it. One that only follows needs room in its log alone; one that leads has a moment to
    /// name another one, and goes on if none could. One that nobody else can take the place of goes on: its learners may
    /// have room, and its word depends on nobody.
    pub(super) fn is_mute(&self) -> bool {
        let view_full = self.full_long && self.full.is_some() && self.replica.is_active();
        self.replica.has_members() && (self.log_full || view_full)
    }

    /// As of now: since when a primary's view has no room while another member could lead, and whether that is long.
    fn note_full(&mut self, now: Now) {
        // Who is mute hears nobody.
        let answers_at = (!self.full_long).then_some(now.mono_ms + self.ahead_ms);
        let counts = self.full.is_some() && self.replica.is_active() && self.replica.has_fit_peer(answers_at);
        let (now_ms, term) = (now.mono_ms, self.replica.term());
        let begins = FullView { since_ms: now_ms, term, term_ms: now_ms };
        let full = match self.full_view.filter(|_| counts) {
            Some(before) if before.term == term => before,
            Some(before) => FullView { since_ms: before.since_ms, ..begins },
            None => begins,
        };
        let mute_ms = (full.term_ms + HAND_OVER_MS).min(full.since_ms + HAND_OVER_MAX_MS);
        let is_over = now_ms >= mute_ms + MUTE_MS;
        self.full_view = counts.then_some(if is_over { begins } else { full });
        self.full_long = counts && !is_over && now_ms >= mute_ms;
    }

    pub(super) fn replicate(&mut self, now: Now, event: ReplicaEvent, out: &mut Vec<SeatEffect>) {
        for effect in self.replica.step(now.mono_ms + self.ahead_ms, event) {
            match effect {
                ReplicaEffect::AppendLog { ticket, records } => self.journal.append(ticket, records),
                ReplicaEffect::TruncateLog { after } => self.journal.truncate(after),
                ReplicaEffect::PersistMeta { term, config, cut } => {
                    (self.meta.term, self.meta.config, self.meta.cut) = (term, config, cut);
                    self.note_meta(out);
                }
                ReplicaEffect::Send { .. } if self.is_mute() => {}
                ReplicaEffect::Send { to, msg } => out.push(SeatEffect::Replica(to, msg)),
                ReplicaEffect::FetchLog { to, from } => {
                    self.wanted.retain(|(member, _)| *member != to);
                    self.wanted.push((to, from));
                    self.want_log(out);
                }
                ReplicaEffect::Cas { expect, new } => out.push(SeatEffect::Cas { expect, new }),
                ReplicaEffect::ReadConfig => out.push(SeatEffect::ReadConfig),
                ReplicaEffect::Committed { upto } => self.committed(now, upto, out),
                ReplicaEffect::BecamePrimary { term } => {
                    if self.serving.is_none() {
                        self.opening = Some(term);
                    }
                }
                ReplicaEffect::SteppedDown => self.step_down(out),
                // Too much is under way: it is tried again when more is committed.
                ReplicaEffect::Refused { entry } => self.backlog.push_front(entry),
                ReplicaEffect::Quarantine { error } => self.fail(error, out),
            }
        }
    }

    pub(super) fn note_meta(&mut self, out: &mut Vec<SeatEffect>) {
        let (off, block) = self.meta.write();
        out.push(SeatEffect::WriteMeta { off, block });
    }

    /// The partition hears what is committed, unless the view has no room; that gets it some at a time.
    fn committed(&mut self, now: Now, upto: Index, out: &mut Vec<SeatEffect>) {
        if self.counted.upto < upto {
            self.counted.bytes += self.bytes_after(self.counted.upto.max(self.applied.index), upto);
            self.counted.upto = upto;
        }
        self.tell_committed(now, upto, out);
        self.propose_more(now, out);
    }

    fn tell_committed(&mut self, now: Now, upto: Index, out: &mut Vec<SeatEffect>) {
        if self.full.is_none() && self.told < upto {
            self.told = upto;
            self.tell(now, Event::Committed(upto), out);
        }
    }

    /// The view as this seat sees it: the engine, and what only the log makes durable.
    pub fn view(&self) -> &dyn Kv {
        self.kv.as_ref()
    }

    /// True if [`Seat::settle`] has something to do.
    pub fn is_unsettled(&self) -> bool {
        let committed = self.replica.committed();
        let opens = self.opening.is_some() && committed.next() == self.replica.next_index();
        let entries = committed.0.saturating_sub(self.applied.index.0);
        let enough = entries > 0 && (entries >= LATER_ENTRIES || self.counted.bytes >= LATER_BYTES);
        self.full.is_none() && (opens || enough)
    }

    /// Bytes of the entries after `after` up to `upto`, or enough of them. What is not in memory any more
    /// is to go soon.
    fn bytes_after(&self, after: Index, upto: Index) -> usize {
        let (mut bytes, mut index) = (0, after.next());
        while index <= upto && bytes < LATER_BYTES {
            bytes += self.replica.record(index).map_or(LATER_BYTES, |record| record.entry.bytes());
            index = index.next();
        }
        bytes
    }

    /// Puts what is committed into the view, if there is enough of it (a tick does so in any case), and opens the partition
    /// when a new primary has all of it. Both may block.
    pub fn settle(&mut self, now: Now, out: &mut Vec<SeatEffect>) {
        if self.is_unsettled() {
            self.apply(now, out);
        }
    }

    /// All that is committed goes to the view, as far as there is room; the partition hears what it could not hear before.
    pub(super) fn settle_all(&mut self, now: Now, out: &mut Vec<SeatEffect>) {
        let was_full = self.full.take().is_some();
        let upto = self.replica.committed();
        if self.applied.index < upto {
            self.apply(now, out);
        }
        if was_full {
            self.tell_committed(now, upto, out);
        }
        self.note_full(now);
    }

    /// The batches of committed records go to the view.
    pub(super) fn apply(&mut self, now: Now, out: &mut Vec<SeatEffect>) {
        let upto = self.replica.committed();
        while self.applied.index < upto && self.full.is_none() && self.failed.is_none() {
            let (mut batch, mut bytes, mut applied) = (Batch::new(), 0, self.applied);
            while applied.index < upto
                && bytes < BATCH_BYTES
                && let Some(record) = self.replica.record(applied.index.next())
            {
                applied = applied.after(record.term, record.index, record.entry.batch(), record.state_hash);
                bytes += record.entry.batch().encoded_len();
                batch.append(record.entry.batch());
            }
            batch.keep_last();
            if applied.index == self.applied.index {
                break;
            }
            self.put(now, applied, batch, out);
        }
        if self.applied.index < upto && self.full.is_none() {
            self.want_log(out); // found in the log by a start, and never in memory
        }
        self.serve_if_ready(out);
    }

    /// Reads what [`SeatEffect::ReadLog`] asked for.
    pub fn read_log(&mut self, now: Now, reader: &dyn LogReader, out: &mut Vec<SeatEffect>) {
        self.reads_log = false;
        if self.failed.is_some() {
            return;
        }
        if let Err(error) = self.read_some(now, reader, out) {
            self.replicate(now, ReplicaEvent::StorageFailed { error: error.within("read the log") }, out);
        }
    }

    fn read_some(&mut self, now: Now, reader: &dyn LogReader, out: &mut Vec<SeatEffect>) -> Result<()> {
        let (upto, next) = (self.replica.committed(), self.applied.index.next());
        if next <= upto && self.full.is_none() && self.replica.record(next).is_none() {
            let (applied, batch) = self.journal.gather(self.applied, upto, reader)?;
            self.put(now, applied, batch, out);
            self.apply(now, out);
        }
        for (to, after) in std::mem::take(&mut self.asked) {
            self.show_view(now, to, &after, reader, out)?;
        }
        for (to, from) in std::mem::take(&mut self.wanted) {
            let before = self.replica.term_at(Index(from.0.saturating_sub(1)));
            if let Some((prev, records)) = self.journal.fetch(from, before, reader)? {
                self.replicate(now, ReplicaEvent::LogFetched { to, prev, records }, out);
            } else if from < self.journal.first_told() {
                let body = Body::Behind { first: self.journal.first_told() };
                out.push(SeatEffect::Replica(to, self.replica.message(to, body)));
            }
        }
        Ok(())
    }

    fn put(&mut self, now: Now, mut applied: Applied, mut batch: Batch, out: &mut Vec<SeatEffect>) {
        self.stage_begins(applied.index);
        applied.staged = applied.staged.max(self.replica.stage_from());
        applied.put(self.id, &mut batch);
        match self.kv.apply(&batch) {
            Ok(()) => {
                self.floor.put(&applied);
                self.applied = applied;
            }
            Err(error) if error.kind() == ErrorKind::NoSpace => {
                self.full = Some(error.within("its view waits for room, free some"));
                return;
            }
            Err(error) => return self.fail(error.within("apply committed entries to the key-value view"), out),
        }
        let upto = applied.index;
        self.counted.upto = self.counted.upto.max(upto);
        self.counted.bytes = self.bytes_after(upto, self.counted.upto);
        self.tell_committed(now, upto, out);
        self.replicate(now, ReplicaEvent::Applied { upto }, out);
        self.tell(now, Event::Applied(upto), out);
    }

    pub(super) fn want_log(&mut self, out: &mut Vec<SeatEffect>) {
        if !std::mem::replace(&mut self.reads_log, true) {
            out.push(SeatEffect::ReadLog);
        }
    }

    /// What was refused because too much was under way is proposed again, in its order.
    fn propose_more(&mut self, now: Now, out: &mut Vec<SeatEffect>) {
        while let Some(entry) = self.backlog.pop_front() {
            let left = self.backlog.len();
            self.replicate(now, ReplicaEvent::Propose(entry), out);
            if self.backlog.len() > left {
                return; // refused again
            }
        }
    }

    fn serve_if_ready(&mut self, out: &mut Vec<SeatEffect>) {
        // Nothing is proposed before it serves: all of its log is committed.
        if self.opening.is_some()
            && self.applied.index.next() == self.replica.next_index()
            && let Err(error) = self.serve(out)
        {
            self.fail(error, out);
        }
    }

    /// Opens the partition on the view, which holds all that is committed.
    pub(super) fn serve(&mut self, out: &mut Vec<SeatEffect>) -> Result<()> {
        let term = self.opening.take().expect("asked for by those who became primary");
        self.config.term = term;
        let config = Config { term, ..self.config.clone() };
        self.kv.keep_rows(true);
        self.told = self.applied.index;
        let mut partition = Partition::open(config, self.kv.clone(), self.applied.index)?;
        partition.state_mut().set_tiers(self.tiers.clone());
        let first = self.journal.first();
        if let Some(oldest) = partition.oldest_stage().filter(|oldest| *oldest < first) {
            let words = format!(
                "bytes of files lie in record {oldest}, and the log begins with {first}: put the missing segment file back, \
                 or rebuild the replica as a new store from the other members if there are any"
            );
            return Err(Error::new(ErrorKind::Corrupt, words));
        }
        self.serving = Some(partition);
        out.push(SeatEffect::Serves);
        Ok(())
    }

    /// Another one may be primary: nothing that was evaluated here and is not committed counts.
    fn step_down(&mut self, out: &mut Vec<SeatEffect>) {
        self.opening = None;
        self.unsaid.clear();
        self.backlog.clear();
        self.stage.keep_from(Index(u64::MAX));
        self.journal.forget_reads();
        self.kv.keep_rows(false);
        if self.serving.take().is_some() {
            out.push(SeatEffect::StepsDown);
        }
    }

    /// Log or view failed: it is out of service until it is started anew.
    pub fn fail(&mut self, error: Error, out: &mut Vec<SeatEffect>) {
        let error = Error::new(ErrorKind::Stopped, format!("{} stopped: {error}", self.id));
        self.failed = Some(error.clone());
        out.push(SeatEffect::Failed(error));
    }
}
