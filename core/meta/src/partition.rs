//! The partition: evaluates requests in log order, releases their effects when they are committed.

use std::collections::BTreeMap;
use std::sync::Arc;

use braid_base::Result;
use braid_base::attr::FileType;
use braid_base::ids::{Index, OpId};
use braid_base::msg::fs::{Op, Request};
use braid_base::msg::host::LostParts;
use braid_replica::kv::Kv;
use bytes::Bytes;

use crate::config::Config;
use crate::data::Mutation;
use crate::event::{Effect, Entry, Event, Now};
use crate::leases::{self, Ready};
use crate::overlay::Overlay;
use crate::peers::post;
use crate::state::State;
use crate::txn::{Outcome, Txn, batch_of};
use crate::{data, ops};

/// One partition, as its primary runs it.
pub struct Partition {
    kv: Arc<dyn Kv>,
    overlay: Overlay,
    state: State,
    now: Now,
    /// Position of the next entry.
    next: Index,
    committed: Index,
    /// What the entry at `next` holds so far besides effects, which are in the overlay.
    gathered: Gathered,
    /// Effects that wait for a commit, by the position they wait for.
    waiting: BTreeMap<Index, Vec<Effect>>,
    /// Nobody else has a part in what is committed.
    is_alone: bool,
}

/// Requests that came together, and share an entry.
#[derive(Default)]
struct Gathered {
    ops: Vec<OpId>,
    payload: Vec<Bytes>,
    payload_len: u32,
    slices: u16,
    /// Keys and values, overwritten ones included.
    bytes: usize,
}

/// An entry with more bytes than this, of effects or of payload, takes in no more requests. One request adds little to the
/// former and [`GATHER_WRITE_MAX`] to the latter.
const GATHERED_MAX: usize = 128 << 10;
/// With more slices than this neither: those of one entry are merged together.
const GATHERED_SLICES_MAX: u16 = 512;
/// A longer write, or one in more parts, has an entry of its own.
const GATHER_WRITE_MAX: usize = 64 << 10;
const GATHER_PARTS_MAX: usize = 16;

/// Changes are answered early while no more entries than this wait for the log...
const PENDING_ENTRIES_MAX: usize = 1024;
/// ...and no more staged bytes: beyond that its clients are slowed down to what the disk takes.
const PENDING_BYTES_MAX: usize = 16 << 20;

/// Background entries that one tick may propose, so that requests are not held up.
const STEPS_PER_TICK: usize = 16;

impl Partition {
    /// A partition over the view `kv`, which holds everything up to `applied`; the log continues after it.
    ///
    /// Errors: `Corrupt` if the view cannot be read.
    pub fn open(config: Config, kv: Arc<dyn Kv>, applied: Index) -> Result<Self> {
        let mut state = State::load(config, kv.as_ref())?;
        state.data.committed(applied);
        Ok(Self {
            kv,
            overlay: Overlay::default(),
            state,
            now: Now::default(),
            next: applied.next(),
            committed: applied,
            gathered: Gathered::default(),
            waiting: BTreeMap::new(),
            is_alone: false,
        })
    }

    /// Takes one event; pushes what follows from it.
    pub fn step(&mut self, now: Now, event: Event, out: &mut Vec<Effect>) {
        self.now = now;
        let before = out.len();
        match event {
            Event::Gather(token, request) if may_gather(&request) && !(self.is_alone && request.early) => {
                self.gather(out, |t, s| ops::request(t, s, token, request));
            }
            Event::Gathered => self.gathered(out),
            Event::Request(token, request) | Event::Gather(token, request) => {
                self.run(out, |t, s| ops::request(t, s, token, request));
            }
            Event::Peer(from, message) => _ = self.run(out, |t, s| ops::peer(t, s, from, message)),
            Event::Drive(id, result) => {
                self.run(out, |t, s| ops::drive(t, s, id, result));
                if crate::data::is_woken(&mut self.state) {
                    self.tick(out);
                }
            }
            Event::JobDone(id, result) => {
                self.run(out, |t, s| ops::job_done(t, s, id, result));
                // The next move starts at once: under load moves follow each other, not the clock.
                self.tick(out);
            }
            Event::Scrubbed(id, result) => _ = self.run(out, |t, s| ops::scrubbed(t, s, id, result)),
            Event::Committed(upto) => self.committed(upto, out),
            Event::Applied(upto) => {
                assert!(upto <= self.committed, "{upto} is in the view before it is committed");
                self.overlay.applied(upto);
            }
            Event::Tick => self.tick(out),
        }
        while self.woken(out) {}
        if self.state.leases.has_pushes() {
            out.extend(self.state.leases.take_pushes().into_iter().map(Effect::Push));
        }
        let term = self.state.config.term;
        for effect in &mut out[before..] {
            if let Effect::Reply(_, answer) = effect {
                answer.term = term;
            }
        }
    }

    /// Does one thing that waited and can be done now, whatever made that so; false if there is none.
    fn woken(&mut self, out: &mut Vec<Effect>) -> bool {
        // Writes that waited for room.
        if let Some((token, request)) = data::next_held(&mut self.state) {
            self.run(out, |t, s| ops::request(t, s, token, request));
            return true;
        }
        // What waited for other clients.
        match leases::next(&mut self.state) {
            Some(Ready::Ended(client)) => _ = self.run(out, |t, s| leases::ended(t, s, client)),
            Some(Ready::Request(token, request)) => _ = self.run(out, |t, s| ops::request(t, s, token, request)),
            None => {
                let Some((from, message)) = post::next_put_off(&mut self.state) else { return false };
                self.run(out, |t, s| ops::peer(t, s, from, message));
            }
        }
        true
    }

    /// The oldest log position whose payload is still referenced: the log keeps everything from it on.
    pub fn oldest_stage(&self) -> Option<Index> {
        self.state.oldest_stage()
    }

    /// Log positions whose payload nothing refers to any more, since the last call; not all of them, and some before
    /// that is committed.
    pub fn take_unstaged(&mut self) -> Vec<Index> {
        self.state.take_unstaged()
    }

    /// How many clients and other partitions wait until an entry is durable.
    pub fn awaited(&self) -> usize {
        let said = |effect: &&Effect| matches!(effect, Effect::Reply(..) | Effect::Peer(..));
        self.waiting.values().flatten().filter(said).count()
    }

    /// The parts of files that cannot be read because too few shards are left, or because their object is missing or damaged,
    /// at most about `limit` of them.
    pub fn lost(&self, limit: usize) -> Result<LostParts> {
        self.state.check_fault()?;
        let place = (self.state.config.partition, self.state.config.partitions);
        let txn = Txn::new(place, self.next, self.now, self.kv.as_ref(), &self.overlay);
        data::scrub::lost(&txn, &self.state, limit)
    }

    /// Whether nobody else has a part in what is committed: only then is anything answered early. A request may have come
    /// before that changed and run after it.
    pub fn set_alone(&mut self, is_alone: bool) {
        self.is_alone = is_alone;
    }

    /// Position of the next entry that this partition will propose.
    pub fn next_index(&self) -> Index {
        self.next
    }

    /// What it knows and does, for status and tests.
    pub fn state(&self) -> &State {
        &self.state
    }

    /// For settings that change while it runs (drives, capacity).
    pub fn state_mut(&mut self) -> &mut State {
        &mut self.state
    }

    /// Does work whose changes have an entry of their own. Whether there are any.
    fn run(&mut self, out: &mut Vec<Effect>, work: impl FnOnce(&mut Txn<'_>, &mut State)) -> bool {
        self.gathered(out);
        let (outcome, worked) = self.evaluate(work);
        self.gathered(out);
        self.release(outcome, worked, out);
        worked
    }

    /// Does work whose changes join what was gathered.
    fn gather(&mut self, out: &mut Vec<Effect>, work: impl FnOnce(&mut Txn<'_>, &mut State)) {
        let (outcome, worked) = self.evaluate(work);
        self.release(outcome, worked, out);
        let Gathered { bytes, payload_len, slices, .. } = self.gathered;
        if bytes.max(payload_len as usize) > GATHERED_MAX || slices > GATHERED_SLICES_MAX {
            self.gathered(out);
        }
    }

    /// Does work; its changes join what was gathered, and the rest comes back. Whether there are any.
    fn evaluate(&mut self, work: impl FnOnce(&mut Txn<'_>, &mut State)) -> (Outcome, bool) {
        let place = (self.state.config.partition, self.state.config.partitions);
        let mut txn = Txn::new(place, self.next, self.now, self.kv.as_ref(), &self.overlay);
        if self.state.data.mutation != Some(Mutation::GatherBlind) {
            txn.behind(self.gathered.payload_len, self.gathered.slices);
        }
        let before = self.state.data.content_changes();
        work(&mut txn, &mut self.state);
        let mut outcome = txn.finish();
        if let Some(error) = outcome.failed.take().filter(|_| self.state.data.content_changes() != before) {
            self.state.data.failed(error, true);
        }
        let worked = !outcome.writes.is_empty();
        if worked {
            let gathered = &mut self.gathered;
            let bytes = |(key, value): (&Vec<u8>, &Option<Vec<u8>>)| key.len() + value.as_ref().map_or(0, Vec::len);
            gathered.bytes += outcome.writes.iter().map(bytes).sum::<usize>();
            gathered.slices = outcome.slices;
            let staged: usize = outcome.payload.iter().map(Bytes::len).sum();
            gathered.payload_len += u32::try_from(staged).expect("far below WRITE_MAX");
            gathered.ops.append(&mut outcome.ops);
            gathered.payload.append(&mut outcome.payload);
            self.overlay.push(self.next, std::mem::take(&mut outcome.writes), staged);
            outcome.seen = self.next;
        }
        (outcome, worked)
    }

    /// What was gathered becomes an entry.
    fn gathered(&mut self, out: &mut Vec<Effect>) {
        if self.gathered.bytes == 0 {
            return;
        }
        let Gathered { ops, payload, .. } = std::mem::take(&mut self.gathered);
        let effects = self.overlay.effects(self.next);
        let batch = batch_of(effects.iter().copied());
        out.push(Effect::Propose(Entry { index: self.next, ops, batch, payload }));
        self.next = self.next.next();
    }

    /// Lets out what an operation says, or keeps it until the newest entry that it saw is committed, which is its own if it
    /// changed something.
    fn release(&mut self, mut outcome: Outcome, worked: bool, out: &mut Vec<Effect>) {
        out.append(&mut outcome.at_once);
        for (op, answer) in outcome.answers {
            self.state.dedup.remember(op, answer, outcome.seen);
        }
        let little = self.overlay.uncommitted() <= PENDING_ENTRIES_MAX && self.overlay.staged() <= PENDING_BYTES_MAX;
        if !self.is_alone || (worked && !little) {
            outcome.after.append(&mut outcome.early);
        }
        out.append(&mut outcome.early);
        if outcome.after.is_empty() {
            return;
        }
        if outcome.seen <= self.committed {
            out.append(&mut outcome.after);
        } else {
            self.waiting.entry(outcome.seen).or_default().append(&mut outcome.after);
        }
    }

    fn committed(&mut self, upto: Index, out: &mut Vec<Effect>) {
        assert!(upto < self.next, "commit of {upto} that was never proposed (next is {})", self.next);
        self.committed = self.committed.max(upto);
        self.overlay.committed(upto);
        self.state.data.committed(upto);
        self.state.leases.committed(upto);
        let later = self.waiting.split_off(&upto.next());
        for (_, mut effects) in std::mem::replace(&mut self.waiting, later) {
            out.append(&mut effects);
        }
    }

    fn tick(&mut self, out: &mut Vec<Effect>) {
        for _ in 0..STEPS_PER_TICK {
            if !self.run(out, ops::background) {
                return;
            }
        }
    }
}

/// True for a request that changes files and names of this partition only, by little, and looks at no log position but
/// that of its entry.
fn may_gather(request: &Request) -> bool {
    match &request.body {
        Op::Create { kind, .. } => *kind == FileType::File,
        Op::Unlink { told, .. } => told.is_some(),
        Op::Write { parts, .. } => {
            parts.len() <= GATHER_PARTS_MAX
                && parts.iter().map(|(_, bytes)| bytes.len()).sum::<usize>() <= GATHER_WRITE_MAX
        }
        _ => false,
    }
}
