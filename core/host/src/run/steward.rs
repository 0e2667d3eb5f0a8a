//! Keeps a host in line with what the coordinator says: which drives there are and, among others, who is where, which
//! replicas run here and on which stores; says that the host lives; and decides for all what one host has to decide. Of
//! that a host that is alone judges its drives, and no more: it has its replicas as long as it runs.
//!
//! A store is made in this order, so that none is ever taken for one that it is not (R9): its directory, durable; its
//! record in the coordinator; the configuration that names it. A directory that is gone while the record is there was
//! lost, and gets a new identity.
//!
//! Replicas are started, stopped and wiped beside the rounds, which go on with all else meanwhile ([`chores`]).

mod chores;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use braid_base::ids::{DriveId, HostId, PartitionId};
use braid_base::msg::event::{Event, EventType};
use braid_base::{Error, ErrorKind, Result};
use braid_cluster::coordinator::{Check, Coordinator, Outcome, Revision, SessionId, Txn, Watch};
use braid_cluster::facts::{Drive, DriveState, Host as HostRecord, HostState, Live, Partition, Store as StoreRecord};
use braid_cluster::records::{self, Record};
use braid_cluster::snapshot::Snapshot;
use braid_cluster::stores::seen;
use braid_cluster::{controller, health, placement, setup};
use braid_io::clock;

use chores::Chores;

use super::events::Events;
use super::outside::{Store, store};
use super::setup::{Host, log_dir};
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
/// How long a drive or a host may be away until what it holds is made anew elsewhere, milliseconds (design O3).
const FAILED_MS: u64 = 60_000;
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

impl Steward {
    /// Starts the threads, and the replicas of the host: in company it must be heard by others by then, who ask them for
    /// the end of their logs before they choose a primary (R8).
    pub fn start(duties: Duties, coordinator: Arc<dyn Coordinator>) -> Result<Self> {
        let (stop, stopped) = mpsc::channel();
        let me = duties.host.config().host;
        let alive = match duties.host.company() {
            Some(_) => Some(Alive::start(me, Arc::clone(&coordinator))?),
            None => None,
        };
        let (first, ready) = mpsc::channel();
        let mut work = Work {
            me,
            coordinator,
            told: BTreeMap::new(),
            again_ms: BTreeMap::new(),
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
        let _ = ready.recv_timeout(FIRST); // it is dropped, and nothing said
        Ok(Self { stop, thread, alive })
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

type DriveChange = (DriveId, DriveState, DriveState);
type HostChange = (HostId, HostState, HostState);

fn set_drives(coordinator: &dyn Coordinator, events: &Events, changes: Vec<DriveChange>) -> Result<()> {
    for (drive, from, to) in changes {
        setup::set_drive_state(coordinator, drive, from, to)?;
        let kind = match to {
            DriveState::Failed => EventType::DRIVE_FAILED,
            DriveState::Removed => EventType::DRIVE_REMOVED,
            _ => EventType::DRIVE_RECOVERED,
        };
        let text = format!("drive {drive} was {} and is {} from now on", from.word(), to.word());
        events.tell(Event::new(kind, text).about("drive", drive));
    }
    Ok(())
}

fn set_hosts(
    coordinator: &dyn Coordinator,
    (events, now): (&Events, &Snapshot),
    changes: Vec<HostChange>,
) -> Result<()> {
    for (host, from, to) in changes {
        setup::set_host_state(coordinator, host, from, to)?;
        let kind = match to {
            HostState::Failed => EventType::HOST_FAILED,
            HostState::Removed => EventType::HOST_REMOVED,
            _ => EventType::HOST_RECOVERED,
        };
        let name = seen::host_name(now, host);
        let text = format!("host {name} was {} and is {} from now on", from.word(), to.word());
        events.tell(Event::new(kind, text).about("host", name));
    }
    Ok(())
}

struct Work {
    me: HostId,
    coordinator: Arc<dyn Coordinator>,
    duties: Duties,
    /// The record of each partition that its replica was told last: in which incarnation, as of when.
    told: BTreeMap<PartitionId, (u64, Revision)>,
    /// When to try again what could not be started.
    again_ms: BTreeMap<PartitionId, u64>,
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
            if let Err(error) = result {
                tracing::error!("{error}");
                self.again_ms.insert(p, now_ms + AGAIN_MS);
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
        let mut start = Vec::new();
        for p in idle {
            match self.have_store(p) {
                Ok(()) => start.push(p),
                Err(error) => {
                    tracing::error!("the store of {p} cannot be used: {error}");
                    self.again_ms.insert(p, now_ms + AGAIN_MS);
                }
            }
        }
        self.start_replicas(&start);
        self.retire(&mine);
    }

    /// What this host holds of partitions that have all they need elsewhere goes.
    fn retire(&mut self, mine: &BTreeSet<PartitionId>) {
        let now = &self.duties.now;
        // One that was given up and is back may get its part again, and has most of it still.
        if now.hosts.iter().any(|host| host.id == self.me && host.state == HostState::Failed) {
            return;
        }
        let goes = |store: &&StoreRecord| {
            store.host == self.me
                && !mine.contains(&store.partition)
                && now.is_staffed(store.partition)
                && !self.chores.is_busy(store.partition)
        };
        let leaving: Vec<StoreRecord> = now.stores.iter().filter(goes).cloned().collect();
        for store in leaving {
            if let Err(error) = self.give_up(&store) {
                tracing::warn!("{}: its store here is not needed, but stays: {error}", store.partition);
            }
        }
    }

    /// Its record goes first, unless a configuration names it by now.
    fn give_up(&mut self, store: &StoreRecord) -> Result<()> {
        let (p, host) = (store.partition, Arc::clone(&self.duties.host));
        let record = records::must::<Partition>(self.coordinator.as_ref(), &Partition::key_of(p))?;
        // A learner may become a member at any time.
        if record.value.members.iter().chain(&record.value.learners).any(|member| member.store == store.store) {
            return Ok(());
        }
        let txn = Txn::new().when(&record.value.key(), Check::Modified(record.revision)).delete(&store.key());
        if self.coordinator.txn(&txn)? == Outcome::Conflict {
            return Ok(()); // it is looked at again
        }
        self.duties.now.stores.retain(|known| known != store);
        tracing::info!("{p} has its replicas elsewhere now; the one here goes");
        self.chores.begin(p, move || {
            host.stop_replica(p);
            host.forget_store(p).map_err(|error| error.within(format_args!("{p}: its store here does not go")))
        });
        Ok(())
    }

    /// The store of `p` is here and known.
    fn have_store(&mut self, p: PartitionId) -> Result<()> {
        let known = self.duties.now.store(p, self.me).map(|known| known.store);
        let (dir, cluster) = (log_dir(&self.duties.host.config().dir, p), self.duties.host.config().cluster);
        let what = if known.is_some() { Store::Found } else { Store::New };
        let found = match store(&dir, cluster, p, what)? {
            Some(found) => found,
            None => {
                tracing::warn!(
                    "{p}: its store in {} is gone; an empty one takes the view of the others",
                    dir.display()
                );
                store(&dir, cluster, p, Store::Replaced)?.unwrap_or_default()
            }
        };
        if known == Some(found) {
            return Ok(());
        }
        let record = StoreRecord { partition: p, host: self.me, store: found };
        self.coordinator.txn(&Txn::new().put(&record.key(), records::encode(&record)?))?;
        self.duties.now.stores.retain(|store| (store.partition, store.host) != (p, self.me));
        self.duties.now.stores.push(record);
        Ok(())
    }

    /// Replicas that have a store and a configuration start, all at the same time: each reads a log of its own.
    fn start_replicas(&mut self, idle: &[PartitionId]) {
        let records = &self.duties.now.partitions;
        let begun = |p: &&PartitionId| records.iter().any(|r| r.value.id == **p && !r.value.members.is_empty());
        for p in idle.iter().filter(begun).copied() {
            let host = Arc::clone(&self.duties.host);
            let named = move |error: Error| error.within(format_args!("the replica of {p} does not start"));
            self.chores.begin(p, move || host.start_replica(p).map_err(named));
        }
    }

    /// The store of `p` is worth nothing, unless a configuration names it.
    fn begin_anew(&mut self, p: PartitionId) {
        let Some(known) = self.duties.now.store(p, self.me).map(|known| known.store) else { return };
        let (host, coordinator) = (Arc::clone(&self.duties.host), Arc::clone(&self.coordinator));
        let replace = move || {
            // It says nothing any more, so nobody can make it a member once the record was read.
            host.stop_replica(p);
            let record = records::must::<Partition>(coordinator.as_ref(), &Partition::key_of(p))?.value;
            if record.members.iter().any(|member| member.store == known) {
                return Ok(()); // it is started as it was
            }
            tracing::warn!("{p}: the logs of the others begin after the end of the one here; it begins anew");
            store(&log_dir(&host.config().dir, p), host.config().cluster, p, Store::Replaced).map(drop)
        };
        let named = move |error: Error| error.within(format_args!("{p}: its store here cannot begin anew"));
        self.chores.begin(p, move || replace().map_err(named));
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

    /// Hosts whose state is to change: one that has not lived for long has failed, unless more have than the data
    /// survives; one that lives again is back; one that is emptied and holds nothing any more goes.
    fn judge_hosts(&mut self, now_ms: u64) -> Vec<HostChange> {
        let now = &self.duties.now;
        let Some(cluster) = &now.cluster else { return Vec::new() };
        let away: BTreeSet<HostId> =
            now.hosts.iter().map(|host| host.id).filter(|host| !now.live.contains(host)).collect();
        self.away_ms.retain(|host, _| away.contains(host));
        away.iter().for_each(|host| _ = self.away_ms.entry(*host).or_insert(now_ms));
        // Those that have failed and were made up for do not count: nothing needs what they hold any more.
        let is_empty = |drive: &&Drive| drive.state == DriveState::Failed && self.duties.host.is_empty_of(drive.id);
        let made_up = |host: &&HostRecord| {
            host.state == HostState::Failed
                && !now.stores.iter().any(|store| store.host == host.id && now.is_member(store))
                && now.drives.iter().filter(|drive| drive.host == host.id).all(|drive| is_empty(&drive))
        };
        let long = |host: &HostId| self.away_ms.get(host).is_some_and(|since| now_ms >= since + FAILED_MS);
        // All partitions are asked for it: only when there is something to judge.
        let due = now.hosts.iter().any(|host| host.state == HostState::Active && long(&host.id));
        let lost = || now.hosts.iter().filter(|host| away.contains(&host.id) && !made_up(host)).count();
        let survives = due && lost() <= usize::from(cluster.protection.parity);
        let change = |host: &HostRecord| match host.state {
            HostState::Active if long(&host.id) && survives => Some(HostState::Failed),
            HostState::Failed if !away.contains(&host.id) => Some(HostState::Active),
            HostState::Draining if now.holds(host.id) == 0 => Some(HostState::Removed),
            _ => None,
        };
        now.hosts.iter().filter_map(|host| Some((host.id, host.state, change(host)?))).collect()
    }

    /// Drives whose state is to change: one that has not answered, or fails all that it is asked, for long has failed, unless most
    /// hosts do not find that, or more have than the data survives: then they are waited for; one that answers again is back, with what is still valid on it; one that is
    /// emptied goes when nothing lies on it any more.
    fn judge_drives(&mut self, now_ms: u64) -> Vec<DriveChange> {
        let Some(absent) = self.duties.host.switch().absent() else { return Vec::new() };
        self.absent_ms.retain(|drive, _| absent.contains(drive));
        absent.iter().for_each(|drive| _ = self.absent_ms.entry(*drive).or_insert(now_ms));
        let now = &self.duties.now;
        let Some(cluster) = &now.cluster else { return Vec::new() };
        let is_absent = |drive: &Drive| absent.contains(&drive.id);
        let long = |drive: &Drive| self.absent_ms.get(&drive.id).is_some_and(|since| now_ms >= since + FAILED_MS);
        // Those that have failed and were made up for do not count.
        let due = now.drives.iter().any(|drive| drive.state == DriveState::Active && long(drive));
        let lacks = |drive: &&Drive| {
            let made_up = || drive.state == DriveState::Failed && self.duties.host.is_empty_of(drive.id);
            is_absent(drive) && due && !made_up()
        };
        let gone: BTreeSet<u16> = now.drives.iter().filter(lacks).map(|drive| drive.domain.0).collect();
        let survives = gone.len() <= usize::from(cluster.protection.parity);
        let change = |drive: &Drive| match drive.state {
            DriveState::Active if long(drive) && survives => Some(DriveState::Failed),
            DriveState::Failed if !is_absent(drive) => Some(DriveState::Active),
            DriveState::Draining if self.duties.host.is_empty_of(drive.id) => Some(DriveState::Removed),
            _ => None,
        };
        let mut changes: Vec<DriveChange> =
            now.drives.iter().filter_map(|drive| Some((drive.id, drive.state, change(drive)?))).collect();
        let fails = |(_, _, to): &DriveChange| *to == DriveState::Failed;
        if changes.iter().any(fails) {
            // Perhaps only the way from here to it is broken.
            let (host, living) = (&self.duties.host, now.live.len());
            let others = host.runtime().block_on(host.switch().absent_elsewhere());
            changes.retain(|change| !fails(change) || health::is_lost(change.0, &others, living));
        }
        changes
    }
}
