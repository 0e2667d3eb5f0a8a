//! One partition at work: the partition core, its replica and its log as one pure state machine.
//!
//! 1. A request is evaluated by the partition; its entry goes to the replica, which appends it to the log.
//! 2. [`Seat::batch_end`] turns all entries appended since into one write (group commit). While nobody waits for the log
//!    it lets entries gather for [`LINGER_MS`]: a write of each would cost more than all else that is done for it.
//! 3. [`SeatEvent::LogWritten`] makes them durable, so committed; their batches go to the key-value view.
//! 4. The partition hears of the commit and releases the replies.

mod elect;
mod journal;
mod stage;

use std::sync::Arc;

use braid_base::ids::{DriveId, Guid, Index, PartitionId, Term};
use braid_base::msg::drive::{DriveOp, DriveResult};
use braid_base::msg::fs::{FsResult, Op, Reply, Request};
use braid_base::msg::job::MoveJob;
use braid_base::msg::lease::{Answer, Push};
use braid_base::msg::peer::PeerMsg;
use braid_base::record::Place;
use braid_base::{Error, ErrorKind, Result};
use braid_meta::{Config, Effect, Event, Now, Partition, Token};
use braid_replica::Entry;
use braid_replica::config::{Config as Members, Member};
use braid_replica::log::{LogIdent, LogReader, Segment};
use braid_replica::replica::Replica;
use braid_replica::replica::event::{Effect as ReplicaEffect, Event as ReplicaEvent};
use braid_replica::{Applied, Batch, CachedKv, Expect, Kv};
use bytes::Bytes;

use journal::Journal;
use stage::StageCache;

/// What a seat is built from.
#[derive(Clone, Debug)]
pub struct SeatConfig {
    /// The partition's place in the cluster. Its term is set by the election.
    pub partition: Config,
    /// The cluster.
    pub cluster: Guid,
    /// This replica: host and store.
    pub me: Member,
    /// Size of a log segment file, bytes.
    pub segment_bytes: u64,
    /// Staged bytes kept in memory, at most.
    pub stage_cache_bytes: usize,
    /// Log size above which old staged bytes are destaged so that segments can go, bytes.
    pub log_soft_bytes: u64,
}

/// What a starting seat needs of its store and of the coordinator, blocking.
pub trait Outside: LogReader {
    /// Makes durable what an earlier process left of log and `replica.meta` in volatile caches: what is read from
    /// here on is acted upon, so it must last. Called before anything is read.
    fn settle(&mut self) -> Result<()>;

    /// The file `replica.meta`: at most 8 KiB, empty if it was never written.
    fn read_meta(&self) -> Result<Vec<u8>>;

    /// Writes a block of `replica.meta`, durable at return.
    fn write_meta(&mut self, off: u64, block: Bytes) -> Result<()>;

    /// The partition's configuration in the coordinator.
    fn config(&mut self) -> Result<Members>;

    /// Replaces the configuration if it still is `expect`; then reads it.
    fn compare_and_set(&mut self, expect: &Members, new: &Members) -> Result<Members>;
}

/// Memory of a seat for rows of the view that are used often, bytes.
const VIEW_CACHE_BYTES: usize = 16 << 20;

/// How long entries gather that nobody waits for, milliseconds: what was not synced may be lost with the process
/// anyway.
const LINGER_MS: u64 = 2;
/// Staged bytes that are written without that.
const LINGER_BYTES: usize = 1 << 20;
/// Entries do not gather within this time after somebody waited for the log, milliseconds: who syncs once will again, and
/// finds its write under way.
const AWAITED_MS: u64 = 100;

/// One partition at work.
pub struct Seat {
    partition: Partition,
    replica: Replica,
    /// The replica's clock runs ahead of the shell's by what the election waited, milliseconds.
    ahead_ms: u64,
    kv: Arc<dyn Kv>,
    id: PartitionId,
    journal: Journal,
    stage: StageCache,
    applied: Applied,
    /// Durably applied: what the view holds even after a crash.
    flushed: Index,
    log_soft_bytes: u64,
    /// When somebody last waited for the log.
    awaited_ms: u64,
    /// When what gathers is written.
    due_ms: Option<u64>,
    effects: Vec<Effect>,
    failed: Option<Error>,
    full: Option<Full>,
}

/// The view has no room for what is committed. Nobody was told of that yet; each tick tries again.
struct Full {
    committed: Index,
    error: Error,
}

/// Numbers of a seat, for status.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SeatStat {
    /// Last entry in the log.
    pub last: Index,
    /// Last entry in the view.
    pub applied: Index,
    /// Bytes of log segments on disk.
    pub log_bytes: u64,
    /// Those of them that hold something that the view may lack after a crash.
    pub replay_bytes: u64,
}

impl Seat {
    /// Recovers the log, wins the partition's next term in the coordinator, applies what the view lacks and opens
    /// the partition. `now_ms`: as in later steps.
    ///
    /// Errors: `Corrupt` names the segment and the byte, or the view; `Stale` if this store is no member any more.
    pub fn open(config: SeatConfig, kv: Arc<dyn Kv>, outside: &mut dyn Outside, now_ms: u64) -> Result<Self> {
        let id = config.partition.partition;
        let ident = LogIdent { cluster: config.cluster, partition: id, store: config.me.store };
        let kv: Arc<dyn Kv> = Arc::new(CachedKv::new(kv, VIEW_CACHE_BYTES));
        outside.settle()?;
        let meta = elect::read_meta(ident, outside)?;
        let flushed = Applied::read(kv.as_ref(), id)?;
        let expect = Expect { start: meta.log_start, applied: (flushed.term, flushed.index), clean: meta.clean };
        let (journal, tail) = Journal::recover(ident, config.segment_bytes, expect, flushed, outside)?;
        let elected = elect::elect(meta, config.me, tail, outside, now_ms)?;
        let applied = journal.replay(id, kv.as_ref(), flushed, elected.committed, outside)?;
        let partition = Config { term: elected.replica.term(), ..config.partition };
        let partition = Partition::open(partition, Arc::clone(&kv), applied.index)?;
        Ok(Self {
            partition,
            replica: elected.replica,
            ahead_ms: elected.ahead_ms,
            kv,
            id,
            journal,
            stage: StageCache::new(config.stage_cache_bytes),
            applied,
            flushed: flushed.index,
            log_soft_bytes: config.log_soft_bytes,
            awaited_ms: 0,
            due_ms: None,
            effects: Vec::new(),
            failed: None,
            full: None,
        })
    }

    /// Takes one event; pushes what follows from it. After a batch of events call [`Seat::batch_end`].
    pub fn step(&mut self, now: Now, event: SeatEvent, out: &mut Vec<SeatEffect>) {
        if let Some(error) = &self.failed {
            if let SeatEvent::Request(token, ..) = event {
                out.push(SeatEffect::Reply(token, Answer::plain(self.term(), Err(error.clone()))));
            }
            return;
        }
        match event {
            SeatEvent::Request(token, term, _) if term != self.term() => {
                let message = format!("a request for term {term} of {}, which is in term {}", self.id, self.term());
                out.push(SeatEffect::Reply(
                    token,
                    Answer::plain(self.term(), Err(Error::new(ErrorKind::Moved, message))),
                ));
            }
            SeatEvent::Request(token, _, request) => match request.body {
                Op::ReadStage { at, poff, len } => self.read_stage(token, at, poff, len, out),
                _ => self.tell(now, Event::Request(token, request), out),
            },
            SeatEvent::Peer(from, message) => self.tell(now, Event::Peer(from, message), out),
            SeatEvent::JobDone(id, result) => self.tell(now, Event::JobDone(id, result), out),
            SeatEvent::Drive(id, result) => self.tell(now, Event::Drive(id, result), out),
            SeatEvent::LogWritten(id, Ok(())) => {
                if let Some(ticket) = self.journal.written(id) {
                    // First the next group, then what follows from this one: the disk works meanwhile.
                    self.write_log(now, out);
                    self.replicate(now, ReplicaEvent::LogDurable { ticket }, out);
                }
            }
            SeatEvent::LogWritten(_, Err(error)) => self.fail(error.within("write the log"), out),
            SeatEvent::LogRead(id, result) => {
                if let Some((token, result)) = self.journal.read_done(id, result) {
                    out.push(SeatEffect::Reply(token, Answer::plain(self.term(), result.map(Reply::Data))));
                }
            }
            SeatEvent::Flushed(upto) => {
                self.flushed = self.flushed.max(upto);
                self.trim(out);
            }
            SeatEvent::Tick => {
                if let Some(full) = self.full.take() {
                    self.committed(now, full.committed, out);
                }
                self.replicate(now, ReplicaEvent::Tick, out);
                self.tell(now, Event::Tick, out);
                self.trim(out);
            }
        }
    }

    /// Group commit: everything appended since the last write becomes one, unless one is still under way. Returns when to
    /// call again, if entries gather: milliseconds as in `now`.
    pub fn batch_end(&mut self, now: Now, out: &mut Vec<SeatEffect>) -> Option<u64> {
        if self.failed.is_some() {
            return None;
        }
        self.write_log(now, out);
        self.due_ms
    }

    fn write_log(&mut self, now: Now, out: &mut Vec<SeatEffect>) {
        let Some(bytes) = self.journal.writable() else {
            self.due_ms = None;
            return;
        };
        if self.partition.is_awaited() {
            self.awaited_ms = now.mono_ms;
        }
        if bytes < LINGER_BYTES && now.mono_ms >= self.awaited_ms + AWAITED_MS {
            let due_ms = *self.due_ms.get_or_insert(now.mono_ms + LINGER_MS);
            if now.mono_ms < due_ms {
                return;
            }
        }
        self.due_ms = None;
        self.journal.flush(out);
    }

    /// The last entry of the log, if the seat may be closed in order now: all of it is durable and nothing is on its
    /// way to the log.
    pub fn closed_at(&self) -> Option<Index> {
        self.journal.closed_at().filter(|_| self.failed.is_none())
    }

    /// The term in which it serves: a request must name it (a double from before a restart does not, and what was
    /// remembered of it is gone).
    pub fn term(&self) -> Term {
        self.replica.term()
    }

    /// Why what is committed is not answered, if so: the view has no room.
    pub fn waits(&self) -> Option<&Error> {
        self.full.as_ref().map(|full| &full.error)
    }

    /// The last entry in the view.
    pub fn applied(&self) -> Index {
        self.applied.index
    }

    /// Numbers for status.
    pub fn stat(&self) -> SeatStat {
        SeatStat {
            last: self.journal.last(),
            applied: self.applied.index,
            log_bytes: self.journal.bytes_on_disk(),
            replay_bytes: self.journal.bytes_after(self.flushed),
        }
    }

    /// The partition core, for status and settings.
    pub fn partition(&mut self) -> &mut Partition {
        &mut self.partition
    }

    fn tell(&mut self, now: Now, event: Event, out: &mut Vec<SeatEffect>) {
        let mut effects = std::mem::take(&mut self.effects);
        self.partition.step(now, event, &mut effects);
        for effect in effects.drain(..) {
            match effect {
                Effect::Reply(token, answer) => {
                    let result = self.with_stage(answer.result);
                    out.push(SeatEffect::Reply(token, Answer { result, ..answer }));
                }
                Effect::Push(push) => out.push(SeatEffect::Push(push)),
                Effect::Propose(entry) => self.propose(now, entry, out),
                Effect::Peer(to, message) => out.push(SeatEffect::Peer(to, message)),
                Effect::Drive(id, drive, op) => out.push(SeatEffect::Drive(id, drive, op)),
                Effect::Job(job) => out.push(SeatEffect::Job(job)),
            }
        }
        self.effects = effects;
    }

    fn propose(&mut self, now: Now, entry: braid_meta::Entry, out: &mut Vec<SeatEffect>) {
        assert_eq!(entry.index, self.replica.next_index(), "{}: partition and replica count alike", self.id);
        let payload = match entry.payload.as_slice() {
            [] => Bytes::new(),
            [one] => one.clone(),
            many => Bytes::from(many.concat()),
        };
        if !payload.is_empty() {
            self.stage.put(entry.index, payload.clone());
        }
        self.replicate(now, ReplicaEvent::Propose(Entry::new(entry.ops, entry.batch, payload)), out);
    }

    fn replicate(&mut self, now: Now, event: ReplicaEvent, out: &mut Vec<SeatEffect>) {
        for effect in self.replica.step(now.mono_ms + self.ahead_ms, event) {
            match effect {
                ReplicaEffect::AppendLog { ticket, records } => self.journal.append(ticket, records),
                ReplicaEffect::Committed { upto } => self.committed(now, upto, out),
                ReplicaEffect::ReadConfig | ReplicaEffect::FetchLog { .. } | ReplicaEffect::Send { .. } => {
                    // A seat alone in its configuration has nobody to tell.
                }
                ReplicaEffect::Quarantine { error } => self.fail(error, out),
                ReplicaEffect::PersistMeta { .. }
                | ReplicaEffect::TruncateLog { .. }
                | ReplicaEffect::Cas { .. }
                | ReplicaEffect::BecamePrimary { .. }
                | ReplicaEffect::SteppedDown
                | ReplicaEffect::Refused { .. } => {
                    let lost = "another replica leads this partition now; restart this one";
                    self.fail(Error::new(ErrorKind::Stopped, lost), out);
                }
            }
        }
    }

    /// The batches of committed records go to the view, then the partition hears of it.
    fn committed(&mut self, now: Now, upto: Index, out: &mut Vec<SeatEffect>) {
        if let Some(full) = &mut self.full {
            full.committed = upto;
            return;
        }
        let (mut batch, mut applied) = (Batch::new(), self.applied);
        while applied.index < upto {
            let record =
                self.replica.record(applied.index.next()).expect("a record stays in memory until it is applied");
            applied.hash = record.entry.batch().fold_hash(applied.hash);
            (applied.term, applied.index) = (record.term, record.index);
            batch.append(record.entry.batch().clone());
        }
        if batch.is_empty() {
            return;
        }
        applied.put(self.id, &mut batch);
        match self.kv.apply(&batch) {
            Ok(()) => self.applied = applied,
            Err(error) if error.kind() == ErrorKind::NoSpace => {
                self.full = Some(Full { committed: upto, error: error.within("its view waits for room, free some") });
                return;
            }
            Err(error) => return self.fail(error.within("apply committed entries to the key-value view"), out),
        }
        self.replicate(now, ReplicaEvent::Applied { upto }, out);
        self.tell(now, Event::Committed(upto), out);
    }

    fn read_stage(&mut self, token: Token, at: Index, poff: u32, len: u32, out: &mut Vec<SeatEffect>) {
        match self.stage.get(at, poff, len) {
            Some(bytes) => out.push(SeatEffect::Reply(token, Answer::plain(self.term(), Ok(Reply::Data(bytes))))),
            None => {
                if let Err(gone) = self.journal.read_payload(token, at, (poff, len), out) {
                    out.push(SeatEffect::Reply(token, Answer::plain(self.term(), Err(gone))));
                }
            }
        }
    }

    /// Adds the staged bytes at hand to a layout: saves the client a `ReadStage`.
    fn with_stage(&self, result: FsResult) -> FsResult {
        let Ok(Reply::Layout(mut layout)) = result else { return result };
        for (off, extent) in &layout.extents {
            if let Place::Stage { at, poff } = extent.place
                && let Some(bytes) = self.stage.get(at, poff, extent.len)
            {
                layout.inline.push((*off, bytes));
            }
        }
        Ok(Reply::Layout(layout))
    }

    fn trim(&mut self, out: &mut Vec<SeatEffect>) {
        let oldest = self.partition.oldest_stage();
        self.stage.keep_from(oldest.unwrap_or(self.partition.next_index()));
        self.partition.take_unstaged().into_iter().for_each(|at| self.stage.forget(at));
        self.journal.trim(self.flushed, oldest, out);
        let pressure = self.journal.pressure(self.log_soft_bytes);
        self.partition.state_mut().want_stage_below(pressure);
    }

    fn fail(&mut self, error: Error, out: &mut Vec<SeatEffect>) {
        let error = Error::new(ErrorKind::Stopped, format!("{} stopped: {error}", self.id));
        self.failed = Some(error.clone());
        out.push(SeatEffect::Failed(error));
    }
}

/// What a seat hears.
#[derive(Debug)]
pub enum SeatEvent {
    /// A client's request (`ReadStage` included), and the term of this seat that its sender knows.
    Request(Token, Term, Request),
    /// Another partition's message.
    Peer(PartitionId, PeerMsg),
    /// A bulk move ended.
    JobDone(u64, Result<()>),
    /// A drive answered.
    Drive(u64, DriveResult),
    /// A [`SeatEffect::LogWrite`] ended; they may end in any order.
    LogWritten(u64, Result<()>),
    /// A [`SeatEffect::LogRead`] ended.
    LogRead(u64, Result<Bytes>),
    /// The key-value view was flushed: everything this seat had applied when the flush began is durable. Carries
    /// what [`Seat::applied`] said at that moment.
    Flushed(braid_base::ids::Index),
    /// About every 100 ms.
    Tick,
}

/// What a seat says.
#[derive(Debug)]
pub enum SeatEffect {
    /// Answer a request.
    Reply(Token, Answer),
    /// Tell a client (may be lost).
    Push(Push),
    /// Tell another partition.
    Peer(PartitionId, PeerMsg),
    /// Ask a drive; the answer comes as [`SeatEvent::Drive`].
    Drive(u64, DriveId, DriveOp),
    /// Carry out a bulk move (its staged bytes are read by `ReadStage` requests to this seat).
    Job(MoveJob),
    /// Write to a log segment, durably (creates the segment when the offset is 0).
    LogWrite {
        /// For [`SeatEvent::LogWritten`].
        id: u64,
        /// The segment.
        segment: Segment,
        /// Byte offset, a multiple of 4096.
        off: u64,
        /// The bytes, a multiple of 4096 in all.
        data: Bytes,
    },
    /// Read from a log segment.
    LogRead {
        /// For [`SeatEvent::LogRead`].
        id: u64,
        /// The segment.
        segment: Segment,
        /// Byte offset, a multiple of 4096.
        off: u64,
        /// Bytes, a multiple of 4096.
        len: usize,
    },
    /// The segment is not needed any more (its file may be recycled).
    LogRemove(Segment),
    /// The log or the view failed: the seat is poisoned and answers nothing more. Restart it from disk.
    Failed(Error),
}
