//! Keeps a host in line with what the coordinator says: which drives there are and, among others, who is where, which
//! replicas run here and on which stores; says that the host lives; and decides for all what one host has to decide. Of
//! that a host that is alone judges its drives, and no more: it has its replicas as long as it runs.
//!
//! A store is made in this order, so that none is ever taken for one that it is not (R9): its directory, durable; its
//! record in the coordinator; the configuration that names it. A directory that is gone while the record is there was
//! lost, and gets a new identity.
//!
//! Stores are made, started, stopped and wiped beside the rounds, which go on with all else meanwhile ([`chores`]).

mod chores;
mod judge;
mod stores;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use braid_base::ids::{DriveId, HostId, PartitionId};
use braid_base::{Error, ErrorKind, Result};
use braid_cluster::coordinator::{Coordinator, Outcome, Revision, SessionId, Txn, Watch};
use braid_cluster::facts::{HostState, Live, Store as StoreRecord};
use braid_cluster::records::{self, Record};
use braid_cluster::snapshot::Snapshot;
use braid_cluster::{controller, placement};
use braid_io::clock;

use chores::Chores;
use judge::{set_drives, set_hosts};
use stores::Stores;

use super::setup::Host;
use super::vital;

/// How long the coordinator believes that a silent host lives, milliseconds.
const TTL_MS: u64 = 5_000;
/// How often it is told, milliseconds.
const ALIVE_MS: u64 = 1_500;
/// A wait for news, milliseconds: what this host itself brings up waits so long.
const WAIT_MS: u64 = 200;
/// An etcd that has gone back is looked at again after this, milliseconds.
const REFUSED_MS: u64 = 500;
/// Without news everything is looked at this often, milliseconds.
const LOOK_MS: u64 = 5_000;
/// How often drives and hosts are judged, milliseconds.
const JUDGE_MS: u64 = 2_000;
/// How long its end is waited for, milliseconds.
const STOP_MS: u64 = 500;
/// How long whoever starts a host waits for its replicas. Those that take longer come while it serves.
const FIRST: Duration = Duration::from_secs(20);
/// A replica that could not be started is tried again after this, milliseconds.
const AGAIN_MS: u64 = 5_000;

/// The threads that do it.
pub struct Steward {
    stop: Sender<()>,
    thread: JoinHandle<()>,
    alive: Option<Alive>,
}

/// Says that the host lives, whatever else is being waited for.
struct Alive {
    stop: Sender<()>,
    session: Arc<Mutex<Option<SessionId>>>,
}

/// What the coordinator said last, and whether it answers.
pub type Seen = Arc<Mutex<(Arc<Snapshot>, Option<Error>)>>;

/// What a steward needs to know, and whom to tell.
pub struct Duties {
    /// The host.
    pub host: Arc<Host>,
    /// What the coordinator said when the host started.
    pub now: Snapshot,
    /// What it said last, for others to see.
    pub seen: Seen,
    /// Partitions whose store here is worth nothing any more.
    pub forsaken: Receiver<PartitionId>,
    /// Data bytes of a drive of so many bytes.
    pub raw_of: Box<dyn Fn(u64) -> u64 + Send>,
}

/// Tells when the replicas that a steward found to be started at first run.
pub struct Begun(Receiver<()>);

impl Begun {
    /// Waits until they do, or for some time; not when the steward is stopped. Blocks.
    pub fn wait(self) {
        let _ = self.0.recv_timeout(FIRST); // it is dropped, and nothing said
    }
}

impl Steward {
    /// Starts the threads, which start the replicas of the host: in company it must be heard by others by then, who ask
    /// them for the end of their logs before they choose a primary (R8).
    pub fn start(duties: Duties, coordinator: Arc<dyn Coordinator>) -> Result<(Self, Begun)> {
        let (stop, stopped) = mpsc::channel();
        let me = duties.host.config().host;
        let alive = match duties.host.company() {
            Some(_) => Some(Alive::start(me, Arc::clone(&coordinator))?),
            None => None,
        };
        let (first, ready) = mpsc::channel();
        let mut work = Work {
            me,
            coordinator: Arc::clone(&coordinator),
            told: BTreeMap::new(),
            again_ms: BTreeMap::new(),
            stores: Arc::new(Stores::new(me, Arc::clone(&duties.host), Arc::clone(&coordinator))),
            made: BTreeSet::new(),
            chores: Chores::default(),
            first: Some(first),
            session: alive.as_ref().map(|alive| Arc::clone(&alive.session)),
            looked_ms: 0,
            watch: None,
            silent: false,
            refused: false,
            absent_ms: BTreeMap::new(),
            away_ms: BTreeMap::new(),
            judge_ms: 0,
            is_out: false,
            duties,
        };
        let thread = vital::spawn("steward", move || work.run(&stopped))?;
        Ok((Self { stop, thread, alive }, Begun(ready)))
    }

    /// Ends it, and says that the host does not live any more, if the coordinator takes it in time.
    pub fn stop(self) {
        drop((self.stop, self.alive.map(|alive| alive.stop)));
        let until_ms = clock::mono_ms() + STOP_MS;
        while !self.thread.is_finished() && clock::mono_ms() < until_ms {
            std::thread::park_timeout(Duration::from_millis(10));
        }
    }
}

impl Alive {
    fn start(me: HostId, coordinator: Arc<dyn Coordinator>) -> Result<Self> {
        let (stop, stopped) = mpsc::channel::<()>();
        let session = Arc::<Mutex<Option<SessionId>>>::default();
        let mine = Arc::clone(&session);
        let work = move || {
            loop {
                if let Err(error) = live(me, coordinator.as_ref(), &mine) {
                    tracing::debug!("the coordinator was not told that this host lives: {error}");
                }
                if let Err(RecvTimeoutError::Disconnected) = stopped.recv_timeout(Duration::from_millis(ALIVE_MS)) {
                    break;
                }
            }
            let session = mine.lock().unwrap_or_else(PoisonError::into_inner).take();
            if let Some(session) = session {
                // Who cannot say it is missed soon enough.
                let _ = coordinator.end_session(session);
            }
        };
        vital::spawn("alive", work)?;
        Ok(Self { stop, session })
    }
}

/// Says that this host lives.
fn live(me: HostId, coordinator: &dyn Coordinator, mine: &Mutex<Option<SessionId>>) -> Result<()> {
    let known = *mine.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(session) = known {
        match coordinator.keep_alive(session) {
            Err(error) if error.kind() == ErrorKind::Stale => {}
            other => return other,
        }
    }
    let session = coordinator.session(TTL_MS)?;
    let live = Live { host: me, since_s: u64::try_from(clock::now().wall.sec).unwrap_or(0) };
    if coordinator.txn(&Txn::new().put_live(&live.key(), records::encode(&live)?, session))? == Outcome::Conflict {
        return Ok(()); // it was recovered just now
    }
    *mine.lock().unwrap_or_else(PoisonError::into_inner) = Some(session);
    Ok(())
}

struct Work {
    me: HostId,
    coordinator: Arc<dyn Coordinator>,
    duties: Duties,
    /// The record of each partition that its replica was told last: in which incarnation, as of when.
    told: BTreeMap<PartitionId, (u64, Revision)>,
    /// When to try again what did not work out.
    again_ms: BTreeMap<PartitionId, u64>,
    stores: Arc<Stores>,
    /// Those that were made, or found, here for a partition that had not begun.
    made: BTreeSet<PartitionId>,
    /// What is under way on the stores here.
    chores: Chores,
    /// Dropped when the replicas that were to be started at first run.
    first: Option<Sender<()>>,
    /// Among others, what says that this one lives.
    session: Option<Arc<Mutex<Option<SessionId>>>>,
    looked_ms: u64,
    watch: Option<Box<dyn Watch>>,
    /// The coordinator is away, which was told.
    silent: bool,
    /// It has gone back, which was told.
    refused: bool,
    /// Since when drives do not answer.
    absent_ms: BTreeMap<DriveId, u64>,
    /// Since when hosts do not live.
    away_ms: BTreeMap<HostId, u64>,
    /// When to judge next.
    judge_ms: u64,
    /// It was told that this host is no part of the cluster any more.
    is_out: bool,
}

impl Work {
    fn run(&mut self, stopped: &Receiver<()>) {
        self.look();
        while let Err(mpsc::TryRecvError::Empty) = stopped.try_recv() {
            match self.round() {
                Ok(()) if std::mem::take(&mut self.silent) => {
                    tracing::info!("the coordinator answers again");
                    self.seen().1 = None;
                }
                Ok(()) => {}
                Err(error) => {
                    let is_refused = error.kind() == ErrorKind::Refused;
                    if !std::mem::replace(&mut self.silent, true) || (is_refused && !self.refused) {
                        match is_refused {
                            true => tracing::error!("{error}"),
                            false => tracing::warn!("the coordinator is away, what is served goes on: {error}"),
                        }
                    }
                    self.refused = is_refused;
                    self.seen().1 = Some(error);
                    self.watch = None;
                    let rest_ms = if is_refused { REFUSED_MS } else { WAIT_MS };
                    if let Err(RecvTimeoutError::Disconnected) = stopped.recv_timeout(Duration::from_millis(rest_ms)) {
                        break;
                    }
                }
            }
        }
    }

    fn seen(&self) -> MutexGuard<'_, (Arc<Snapshot>, Option<Error>)> {
        self.duties.seen.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn round(&mut self) -> Result<()> {
        let now_ms = clock::mono_ms();
        // Where something is under way it may have been said before that began. Replicas repeat it.
        let said = self.duties.forsaken.try_iter().filter(|p| !self.chores.is_busy(*p));
        let forsaken: BTreeSet<PartitionId> = said.collect();
        self.hear_of_chores(now_ms);
        let news = self.news()?;
        if news || !forsaken.is_empty() || now_ms >= self.looked_ms + LOOK_MS {
            self.duties.now = Snapshot::read(self.coordinator.as_ref())?;
            if self.watch.is_none() {
                // From what is there now: what was seen before may be of an etcd that was recovered since, and counts otherwise.
                self.watch = Some(self.coordinator.watch("", self.duties.now.revision.next())?);
            }
            forsaken.into_iter().for_each(|p| self.begin_anew(p));
            self.look();
            self.looked_ms = now_ms;
        }
        self.govern()
    }

    /// What has ended on the stores here; then it is looked what is to be done next.
    fn hear_of_chores(&mut self, now_ms: u64) {
        for (p, result) in self.chores.ended() {
            self.duties.host.does_not_run(p, result.as_ref().err());
            if let Err(error) = result {
                tracing::error!("{error}");
                self.again_ms.insert(p, now_ms + AGAIN_MS);
                self.made.remove(&p);
            }
            // What a replica should have heard while it started it was not there to hear.
            self.told.remove(&p);
            self.looked_ms = 0;
        }
        if self.chores.is_done() {
            self.first = None;
        }
    }

    /// Waits a little for news.
    fn news(&mut self) -> Result<bool> {
        let Some(watch) = &mut self.watch else {
            return Ok(true);
        };
        match watch.next(WAIT_MS) {
            Ok(events) => Ok(!events.is_empty()),
            Err(error) if error.kind() == ErrorKind::Stale => {
                self.watch = None;
                Ok(true)
            }
            Err(error) => Err(error),
        }
    }

    /// Brings the host in line with what is known. What does not work out is told, and tried again.
    fn look(&mut self) {
        let host = Arc::clone(&self.duties.host);
        let now = &self.duties.now;
        if let Some(company) = host.company() {
            let _in_runtime = host.runtime().enter();
            company.routes.follow(now.map());
        }
        host.follow(now, &self.duties.raw_of);
        for fs in &now.filesystems {
            host.set_limit(fs.id, fs.total_bytes);
        }
        if self.session.is_none() {
            self.seen().0 = Arc::new(now.clone());
            return;
        }
        if let Some(session) = self.session.as_ref().filter(|_| !now.live.contains(&self.me)) {
            // Its key may be under a session that a late answer belongs to: a new one brings it back.
            *session.lock().unwrap_or_else(PoisonError::into_inner) = None;
        }
        for record in &now.partitions {
            let told = (now.incarnation.number, record.revision);
            if self.told.insert(record.value.id, told) != Some(told) {
                host.tell_register(&record.value);
            }
        }
        self.seen().0 = Arc::new(now.clone());
        if !now.hosts.iter().any(|host| host.id == self.me) && !std::mem::replace(&mut self.is_out, true) {
            tracing::error!("this host was removed from the cluster: stop it, and blank its drives to use them again");
        }
        for (p, hosts) in &now.seats {
            host.tell_seats(*p, hosts.clone());
        }
        // Where it should have replicas, and where it has some that others still need.
        let mut mine: BTreeSet<PartitionId> =
            now.seats.iter().filter(|(_, hosts)| hosts.contains(&self.me)).map(|(p, _)| *p).collect();
        mine.extend(now.stores.iter().filter(|s| s.host == self.me && now.is_member(s)).map(|s| s.partition));
        let now_ms = clock::mono_ms();
        for (p, runs) in host.replicas() {
            if !runs && !self.chores.is_busy(p) {
                tracing::error!("the replica of {p} has died; it is started again");
                host.stop_replica(p);
                self.again_ms.insert(p, now_ms + AGAIN_MS);
            }
        }
        let running = host.replicas();
        let due = |p: &&PartitionId| {
            !running.contains_key(p)
                && !self.chores.is_busy(**p)
                && self.again_ms.get(p).is_none_or(|again_ms| now_ms >= *again_ms)
        };
        let idle: Vec<PartitionId> = mine.iter().filter(due).copied().collect();
        for p in idle {
            let known = now.store(p, self.me).map(|known| known.store);
            let begun = now.partitions.iter().any(|r| r.value.id == p && !r.value.members.is_empty());
            // One that is made waits for those of the other hosts.
            if begun || known.is_none() || self.made.insert(p) {
                let stores = Arc::clone(&self.stores);
                self.chores.begin(p, move || stores.start(p, known, begun));
            }
        }
        host.should_run(&mine);
        self.retire(&mine, now_ms);
    }

    /// What this host holds of partitions that have all they need elsewhere goes.
    fn retire(&mut self, mine: &BTreeSet<PartitionId>, now_ms: u64) {
        let now = &self.duties.now;
        // One that was given up and is back may get its part again, and has most of it still.
        if now.hosts.iter().any(|host| host.id == self.me && host.state == HostState::Failed) {
            return;
        }
        let goes = |store: &&StoreRecord| {
            let p = store.partition;
            store.host == self.me
                && !mine.contains(&p)
                && now.is_staffed(p)
                && !self.chores.is_busy(p)
                && self.again_ms.get(&p).is_none_or(|again_ms| now_ms >= *again_ms)
        };
        let leaving: Vec<StoreRecord> = now.stores.iter().filter(goes).cloned().collect();
        for record in leaving {
            let stores = Arc::clone(&self.stores);
            self.chores.begin(record.partition, move || stores.give_up(&record));
        }
    }

    /// The store of `p` is worth nothing, unless a configuration names it.
    fn begin_anew(&mut self, p: PartitionId) {
        let Some(known) = self.duties.now.store(p, self.me).map(|known| known.store) else { return };
        let stores = Arc::clone(&self.stores);
        self.chores.begin(p, move || stores.begin_anew(p, known));
    }

    /// Decides for all, if this host is the one that does.
    fn govern(&mut self) -> Result<()> {
        let now_ms = clock::mono_ms();
        let judges = now_ms >= self.judge_ms;
        if judges {
            self.judge_ms = now_ms + JUDGE_MS;
        }
        let (coordinator, events) = (Arc::clone(&self.coordinator), self.duties.host.event_log());
        let Some(session) = &self.session else {
            let drives = if judges { self.judge_drives(now_ms) } else { Vec::new() };
            return set_drives(coordinator.as_ref(), &events, drives);
        };
        let session = *session.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(session) = session else { return Ok(()) };
        let changes = controller::plan(&self.duties.now);
        let (mut drives, mut hosts, mut seats) = (Vec::new(), Vec::new(), Vec::new());
        if judges {
            (drives, hosts) = (self.judge_drives(now_ms), self.judge_hosts(now_ms));
            seats = placement::step(&self.duties.now);
        }
        if changes.is_empty() && drives.is_empty() && hosts.is_empty() && seats.is_empty() {
            return Ok(());
        }
        let coordinator = coordinator.as_ref();
        let Some(office) = controller::stand(coordinator, self.me, session)? else { return Ok(()) };
        set_drives(coordinator, &events, drives)?;
        set_hosts(coordinator, (&events, &self.duties.now), hosts)?;
        for seats in &seats {
            let hosts: Vec<String> = seats.hosts.iter().map(|host| format!("h{host}")).collect();
            tracing::info!("{} should have replicas on {}", seats.partition, hosts.join(", "));
        }
        let _ = controller::put_seats(coordinator, office, &seats)?
            && controller::carry_out(coordinator, office, &changes)?;
        Ok(())
    }
}
