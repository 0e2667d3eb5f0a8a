//! One replica of a partition at work: its log, its view, and, while it is the primary, the partition itself, as one
//! pure state machine.
//!
//! 1. A request is evaluated by the partition; its entry, or one of all small requests of a burst, goes to the replica,
//!    which sends it to its peers and appends it to the log.
//! 2. [`Seat::batch_end`] turns all entries appended since into one write (group commit). While nobody waits for the log
//!    it lets entries gather for [`LINGER_US`]: a write of each would cost more than all else that is done for it. A
//!    primary waits a moment for those who will be back ([`pace`]).
//! 3. [`SeatEvent::LogWritten`] makes them durable here; once they are so on all members they are committed.
//! 4. The partition hears of the commit and releases the replies, which leave while all members keep their promise.
//! 5. [`Seat::settle`] puts the batches of many entries into the key-value view at once, on every member.
//!
//! A seat that follows has no [`Partition`]; that is opened on the view when the replica became primary and all that is
//! committed is applied, and forgotten when it steps down.

mod elect;
mod event;
mod floor;
mod import;
mod journal;
mod members;
mod pace;
mod stage;

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use braid_base::ids::{FsId, Guid, Index, PartitionId, Term};
use braid_base::msg::fs::{FsResult, Op, Reply, Request};
use braid_base::msg::lease::Answer;
use braid_base::record::Place;
use braid_base::{Error, ErrorKind, Result};
use braid_meta::{Config, DriveSet, Effect, Event, Now, Partition, TierPolicy, Token};
use braid_replica::config::{Config as Members, Member};
use braid_replica::log::meta_file::ReplicaMeta;
use braid_replica::log::{LogIdent, LogReader};
use braid_replica::replica::event::Event as ReplicaEvent;
use braid_replica::replica::{Replica, Start, Timing};
use braid_replica::{Applied, CachedKv, Entry, Expect, Kv, StagedKv};
use bytes::Bytes;

pub use event::{SeatEffect, SeatEvent};
use floor::Floor;
use import::Import;
#[cfg(feature = "run")]
pub(crate) use import::wipe;
use journal::Journal;
use pace::{Gathered, Pace};
pub use stage::{StageCache, StageMemory};

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
    /// Where staged bytes are kept in memory.
    pub stage_memory: Arc<StageMemory>,
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

    /// Removes all segments of the log.
    fn discard_log(&mut self) -> Result<()>;

    /// Replaces the configuration if it still is `expect`; then reads it.
    fn compare_and_set(&mut self, expect: &Members, new: &Members) -> Result<Members>;
}

/// Memory of a seat for rows of the view that are used often, bytes.
const VIEW_CACHE_BYTES: usize = 16 << 20;

/// How long entries gather that nobody waits for, microseconds: what was not synced may be lost with the process
/// anyway.
const LINGER_US: u64 = 2_000;
/// Staged bytes that are written without that.
const LINGER_BYTES: usize = 1 << 20;
/// Entries do not gather within this time after somebody waited for the log, milliseconds: who syncs once will again, and
/// finds its write under way.
const AWAITED_MS: u64 = 100;

/// One replica of a partition at work.
pub struct Seat {
    config: Config,
    /// The partition, while it is served here; [`Config::term`] is that of its opening.
    serving: Option<Partition>,
    /// It is the primary of this term and serves as soon as the view holds all that is committed.
    opening: Option<Term>,
    replica: Replica,
    /// What the partition is to do about object stores, whenever it is served here.
    tiers: BTreeMap<FsId, TierPolicy>,
    /// The replica's clock runs ahead of the shell's by what the election waited, milliseconds.
    ahead_ms: u64,
    meta: ReplicaMeta,
    kv: Arc<CachedKv>,
    id: PartitionId,
    journal: Journal,
    stage: StageCache,
    applied: Applied,
    /// The partition knows that all entries up to this one are committed.
    told: Index,
    counted: Counted,
    /// Durably applied: what the view holds even after a crash.
    flushed: Index,
    /// What of the log is needed beside that.
    floor: Floor,
    log_soft_bytes: u64,
    /// When somebody last waited for the log.
    awaited_ms: u64,
    /// When what gathers is written, microseconds.
    due_us: Option<u64>,
    pace: Pace,
    effects: Vec<Effect>,
    /// What the partition said while not all members kept their promise.
    unsaid: Vec<SeatEffect>,
    /// Entries that the replica takes when more is committed.
    backlog: VecDeque<Entry>,
    /// Replicas that want records which only the log holds, and from where.
    wanted: Vec<(Member, Index)>,
    /// Replicas that want the rows of the view after a key.
    asked: Vec<(Member, Vec<u8>)>,
    /// [`SeatEffect::ReadLog`] was said.
    reads_log: bool,
    /// The view that is on its way here.
    import: Option<Import>,
    failed: Option<Error>,
    /// The view has no room for what is committed. Nobody was told of that yet; each tick tries again.
    full: Option<Error>,
    /// The same of a primary, as of the last tick.
    full_view: Option<FullView>,
    /// That is long enough for a primary to fall mute.
    full_long: bool,
    /// It was mute at the last tick.
    was_mute: bool,
    /// The log has no room for what is to be appended.
    log_full: bool,
}

/// A primary's view has no room: since when, in which term, and since when in that one, milliseconds.
#[derive(Clone, Copy)]
struct FullView {
    since_ms: u64,
    term: Term,
    term_ms: u64,
}

/// What is committed and not in the view: up to where it was counted, and its bytes.
#[derive(Clone, Copy)]
struct Counted {
    upto: Index,
    bytes: usize,
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
    /// Those of them that a flush of the view would make void: with something that the view may lack after a crash, or
    /// that are kept only until it says durably that they are not needed.
    pub replay_bytes: u64,
}

impl Seat {
    /// Recovers the log. A replica that is alone in its configuration wins the partition's next term in the coordinator,
    /// applies what the view lacks and serves at once; one of several follows until it is chosen. Pushes what follows.
    ///
    /// Errors: `Corrupt` names the segment and the byte, or the view; `Stale` if this store is no member any more.
    pub fn open(
        config: SeatConfig,
        kv: Arc<dyn Kv>,
        outside: &mut dyn Outside,
        now: Now,
        out: &mut Vec<SeatEffect>,
    ) -> Result<Self> {
        let id = config.partition.partition;
        let ident = LogIdent { cluster: config.cluster, partition: id, store: config.me.store };
        let staged = Arc::new(StagedKv::new(kv));
        let kv = Arc::new(CachedKv::new(staged.clone(), VIEW_CACHE_BYTES));
        outside.settle()?;
        let mut meta = elect::read_meta(ident, outside)?;
        if meta.importing {
            import::begin_anew(&mut meta, kv.as_ref(), outside)?;
        }
        let mut flushed = Applied::read(staged.as_ref(), id)?;
        let (applied, floor) = ((flushed.term, flushed.index), Floor::new(flushed.staged));
        let expect = Expect { start: meta.log_start, applied, staged: flushed.staged, clean: meta.clean };
        let of_earlier = if flushed.staged == Index(0) { Some(staged.take_over(id)?) } else { None };
        let (journal, tail) =
            Journal::recover(ident, config.segment_bytes, expect, meta.cut, (flushed, &staged), outside)?;
        if let Some(mut moved) = of_earlier {
            flushed.staged = journal.first();
            if flushed.index > Index(0) {
                // With its new version, so that no earlier release takes the view for whole.
                flushed.put(id, &mut moved);
                staged.apply_below(&moved)?;
            }
        }
        let members = outside.config()?;
        // By its own notes as well: it may have given its word to somebody who is no member since (R6).
        let only_me = |members: &Members| members.members.iter().all(|member| member.store == config.me.store);
        let alone = only_me(&members) && only_me(&meta.config);
        let (mut applied, mut ahead_ms) = (flushed, 0);
        let replica = if alone {
            let elected = elect::elect(&mut meta, config.me, members.clone(), tail, outside, now.mono_ms)?;
            applied = journal.replay(id, kv.as_ref(), flushed, elected.committed, outside)?;
            ahead_ms = elected.ahead_ms;
            elected.replica
        } else {
            elect::will_grow(&mut meta, outside)?;
            let (term, known, cut, timing) = (meta.term, meta.config.clone(), meta.cut, Timing::default());
            let start = Start { me: config.me, partition: id, term, config: known, tail, cut, timing };
            Replica::new(now.mono_ms, start)
        };
        let mut seat = Self {
            config: config.partition,
            serving: None,
            opening: alone.then_some(replica.term()),
            tiers: BTreeMap::new(),
            replica,
            ahead_ms,
            meta,
            kv,
            id,
            journal,
            stage: StageCache::new(config.stage_memory),
            applied,
            told: applied.index,
            counted: Counted { upto: applied.index, bytes: 0 },
            flushed: flushed.index,
            floor,
            log_soft_bytes: config.log_soft_bytes,
            awaited_ms: 0,
            due_us: None,
            pace: Pace::default(),
            effects: Vec::new(),
            unsaid: Vec::new(),
            backlog: VecDeque::new(),
            wanted: Vec::new(),
            asked: Vec::new(),
            reads_log: false,
            import: None,
            failed: None,
            full: None,
            full_view: None,
            full_long: false,
            was_mute: false,
            log_full: false,
        };
        if alone {
            seat.serve(out)?;
        } else {
            seat.kv.keep_rows(false);
            seat.replicate(now, ReplicaEvent::ConfigSeen(members), out);
        }
        Ok(seat)
    }

    /// Takes one event; pushes what follows from it. After a batch of events call [`Seat::settle`] and
    /// [`Seat::batch_end`].
    pub fn step(&mut self, now: Now, event: SeatEvent, out: &mut Vec<SeatEffect>) {
        if let Some(error) = &self.failed {
            if let SeatEvent::Request(token, ..) = event {
                out.push(SeatEffect::Reply(token, Answer::plain(self.term(), Err(error.clone()))));
            }
            return;
        }
        match event {
            SeatEvent::Request(token, term, request) => self.request(now, token, term, request, out),
            SeatEvent::Peer(from, message) => self.tell(now, Event::Peer(from, message), out),
            SeatEvent::JobDone(id, result) => self.tell(now, Event::JobDone(id, result), out),
            SeatEvent::Scrubbed(id, result) => self.tell(now, Event::Scrubbed(id, result), out),
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
                self.floor.flushed(upto);
                self.imported(out);
                self.trim(now, out);
            }
            SeatEvent::Replica(_) if self.is_mute() => {}
            SeatEvent::Replica(message) => self.hear(now, message, out),
            SeatEvent::CasResult(found) => self.replicate(now, ReplicaEvent::CasResult { now: found }, out),
            SeatEvent::ConfigSeen(found) => self.replicate(now, ReplicaEvent::ConfigSeen(found), out),
            SeatEvent::Seats(hosts) => self.replicate(now, ReplicaEvent::Seats(hosts), out),
            SeatEvent::Unfit(hosts) => self.replicate(now, ReplicaEvent::Unfit(hosts), out),
            SeatEvent::Leave => self.replicate(now, ReplicaEvent::Leave, out),
            SeatEvent::Tick => {
                self.settle_all(now, out);
                self.replica.set_fit(self.unfit().is_none());
                let (was_mute, is_mute) = (self.was_mute, self.is_mute());
                self.was_mute = is_mute;
                if was_mute && !is_mute {
                    self.replica.hears_again(now.mono_ms + self.ahead_ms);
                }
                if !is_mute {
                    self.replicate(now, ReplicaEvent::Tick, out);
                }
                // Nothing new is begun while nothing can be said.
                if self.unsaid.is_empty() {
                    self.tell(now, Event::Tick, out);
                }
                self.ask_view(now, out);
                self.trim(now, out);
            }
        }
    }

    fn request(&mut self, now: Now, token: Token, term: Term, request: Request, out: &mut Vec<SeatEffect>) {
        let mut refuse = |message: String| {
            let moved = Error::new(ErrorKind::Moved, message);
            out.push(SeatEffect::Reply(token, Answer::plain(self.term(), Err(moved))));
        };
        if self.serving.is_none() {
            return refuse(format!("{} is not served here: ask its primary", self.id));
        }
        if term != self.term() {
            return refuse(format!("a request for term {term} of {}, which is in term {}", self.id, self.term()));
        }
        if let Op::ReadStage { at, poff, len } = request.body {
            return self.read_stage(token, at, poff, len, out);
        }
        self.tell(now, Event::Gather(token, request), out);
    }

    /// Group commit: what was appended since the last write becomes one, unless one is still under way. Returns when to
    /// call again, if entries gather: microseconds as in `now`.
    pub fn batch_end(&mut self, now: Now, out: &mut Vec<SeatEffect>) -> Option<u64> {
        if self.failed.is_some() {
            return None;
        }
        self.tell(now, Event::Gathered, out);
        self.write_log(now, out);
        self.due_us
    }

    fn write_log(&mut self, now: Now, out: &mut Vec<SeatEffect>) {
        let is_settled = self.replica.committed() == self.journal.begun();
        if is_settled {
            self.pace.settled(now.mono_us);
        }
        let Some(bytes) = self.journal.writable() else {
            self.due_us = None;
            return;
        };
        let awaited = self.serving.as_ref().map(Partition::awaited);
        // A primary waits for those who follow it.
        if awaited != Some(0) {
            self.awaited_ms = now.mono_ms;
        }
        if bytes < LINGER_BYTES && now.mono_ms >= self.awaited_ms + AWAITED_MS {
            let due_us = *self.due_us.get_or_insert(now.mono_us + LINGER_US);
            if now.mono_us < due_us {
                return;
            }
        }
        let gathered = Gathered { awaited: awaited.unwrap_or(0), is_settled, bytes };
        if gathered.awaited > 0 && self.journal.begins_group() {
            self.due_us = self.pace.holds(now.mono_us, gathered);
            if self.due_us.is_some() {
                return;
            }
            self.pace.begins(now.mono_us, gathered);
        }
        self.due_us = None;
        if self.journal.flush(out) {
            self.replicate(now, ReplicaEvent::Group, out);
        }
    }

    /// The last entry of the log, if the seat may be closed in order now: all of it is durable and nothing is on its
    /// way to the log.
    pub fn closed_at(&self) -> Option<Index> {
        self.journal.closed_at().filter(|_| self.failed.is_none())
    }

    /// The term in which it serves, 0 while it does not: a request must name it (a double from before a restart does
    /// not, and what was remembered of it is gone). Members come and go in later terms without an end of the service.
    pub fn term(&self) -> Term {
        if self.serving.is_some() { self.config.term } else { Term(0) }
    }

    /// The shell says whether the log waits for room.
    pub fn set_log_full(&mut self, is_full: bool) {
        self.log_full = is_full;
    }

    /// Why what is committed is not answered, if so: the view has no room.
    pub fn waits(&self) -> Option<&Error> {
        self.full.as_ref()
    }

    /// Why this replica should not lead, if so: its view has no room, or is damaged.
    pub fn unfit(&self) -> Option<Error> {
        self.full.clone().or_else(|| self.kv.damage())
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
            replay_bytes: self.journal.bytes_after(self.flushed).max(self.held_for_flush()),
        }
    }

    /// Payloads at hand, for who reads what is committed.
    pub fn staged(&self) -> StageCache {
        self.stage.clone()
    }

    /// The partition core, for status and settings, while it is served here.
    pub fn partition(&mut self) -> Option<&mut Partition> {
        self.serving.as_mut()
    }

    /// The drives from now on.
    pub fn set_drives(&mut self, set: impl Into<DriveSet>) {
        let set = set.into();
        self.config.drives.clone_from(&set);
        if let Some(partition) = &mut self.serving {
            partition.state_mut().set_drives(set);
        }
    }

    /// Bytes that this partition may hold from now on.
    pub fn set_capacity(&mut self, bytes: u64) {
        self.config.capacity_bytes = bytes;
        if let Some(partition) = &mut self.serving {
            partition.state_mut().set_capacity(bytes);
        }
    }

    /// What all partitions together may hold, and file systems with a capacity of their own, for those who ask.
    pub fn set_totals(&mut self, bytes: u64, limits: BTreeMap<FsId, u64>) {
        if let Some(partition) = &mut self.serving {
            partition.state_mut().set_totals(bytes, limits);
        }
    }

    /// Bytes that file system `fs` may hold in this partition; `None`: no bound of its own. Holds until it steps down.
    pub fn set_limit(&mut self, fs: FsId, bytes: Option<u64>) {
        if let Some(partition) = &mut self.serving {
            partition.state_mut().set_limit(fs, bytes);
        }
    }

    /// What the file systems with an object store are to do from now on; the others have none.
    pub fn set_tiers(&mut self, policies: BTreeMap<FsId, TierPolicy>) {
        self.tiers.clone_from(&policies);
        if let Some(partition) = &mut self.serving {
            partition.state_mut().set_tiers(policies);
        }
    }

    /// The replica, for status.
    pub fn replica(&self) -> &Replica {
        &self.replica
    }

    fn tell(&mut self, now: Now, event: Event, out: &mut Vec<SeatEffect>) {
        let is_alone = self.is_alone();
        let Some(partition) = &mut self.serving else { return };
        let mut effects = std::mem::take(&mut self.effects);
        // A primary may lose its place while a client that shares its process lives on.
        partition.set_alone(is_alone);
        partition.step(now, event, &mut effects);
        for effect in effects.drain(..) {
            let said = match effect {
                Effect::Reply(token, answer) => {
                    let result = self.with_stage(answer.result);
                    SeatEffect::Reply(token, Answer { result, ..answer })
                }
                Effect::Push(push) => SeatEffect::Push(push),
                Effect::Propose(entry) => {
                    self.propose(now, entry, out);
                    continue;
                }
                Effect::Peer(to, message) => SeatEffect::Peer(to, message),
                Effect::Drive(id, drive, op) => SeatEffect::Drive(id, drive, op),
                Effect::Job(job) => SeatEffect::Job(job),
                Effect::ReadObject(token, key, off, len) => SeatEffect::ReadObject(token, key, off, len),
                Effect::Scrub(job) => SeatEffect::Scrub(job),
                Effect::Notice(notice) => SeatEffect::Notice(notice),
            };
            self.unsaid.push(said);
        }
        self.effects = effects;
        if !self.replica.needs_promises() {
            out.append(&mut self.unsaid);
        }
    }

    /// True if [`Seat::say`] is to be called.
    pub fn has_to_say(&self) -> bool {
        !self.unsaid.is_empty()
    }

    /// What the partition says leaves while all members keep their promise (R5): then nobody else can have served it
    /// since it was evaluated. To be called after each step, with a time that was read after it.
    pub fn say(&mut self, now: Now, out: &mut Vec<SeatEffect>) {
        if self.replica.may_read(now.mono_ms + self.ahead_ms) {
            out.append(&mut self.unsaid);
        }
    }

    fn propose(&mut self, now: Now, entry: braid_meta::Entry, out: &mut Vec<SeatEffect>) {
        let next = self.replica.next_index().0 + self.backlog.len() as u64;
        assert_eq!(entry.index.0, next, "{}: partition and replica count alike", self.id);
        let payload = match entry.payload.as_slice() {
            [] => Bytes::new(),
            [one] => one.clone(),
            many => Bytes::from(many.concat()),
        };
        if !payload.is_empty() {
            self.stage.put(entry.index, payload.clone());
        }
        let entry = Entry::new(entry.ops, entry.batch, payload);
        if self.backlog.is_empty() {
            self.replicate(now, ReplicaEvent::Propose(entry), out);
        } else {
            self.backlog.push_back(entry);
        }
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
}
