//! Keeps a host among others in line with what the coordinator says: who is where, which replicas run here and on
//! which stores; says that the host lives; and decides for all what one host has to decide.
//!
//! A store is made in this order, so that none is ever taken for one that it is not (R9): its directory, durable; its
//! record in the coordinator; the configuration that names it. A directory that is gone while the record is there was
//! lost, and gets a new identity.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use braid_base::ids::{HostId, PartitionId};
use braid_base::{Error, ErrorKind, Result};
use braid_cluster::controller;
use braid_cluster::coordinator::{Coordinator, Revision, SessionId, Txn, Watch};
use braid_cluster::facts::{Live, Store as StoreRecord};
use braid_cluster::records::{self, Record};
use braid_cluster::snapshot::Snapshot;
use braid_io::clock;

use super::outside::{Store, store};
use super::setup::{Host, log_dir};

/// How long the coordinator believes that a silent host lives, milliseconds.
const TTL_MS: u64 = 5_000;
/// How often it is told, milliseconds.
const ALIVE_MS: u64 = 1_500;
/// A wait for news, milliseconds: what this host itself brings up waits so long.
const WAIT_MS: u64 = 200;
/// Without news everything is looked at this often, milliseconds.
const LOOK_MS: u64 = 5_000;
/// A replica that could not be started is tried again after this, milliseconds.
const AGAIN_MS: u64 = 5_000;

/// The thread that does it.
pub struct Steward {
    stop: Sender<()>,
    thread: JoinHandle<()>,
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
    /// Starts the replicas of the host, and the thread.
    pub fn start(duties: Duties, coordinator: Arc<dyn Coordinator>) -> Result<Self> {
        let (stop, stopped) = mpsc::channel();
        let me = duties.host.config().host;
        let mut work = Work {
            me,
            coordinator,
            told: BTreeMap::new(),
            again_ms: BTreeMap::new(),
            session: None,
            alive_ms: 0,
            looked_ms: 0,
            watch: None,
            silent: false,
            duties,
        };
        work.look()?;
        let thread = std::thread::Builder::new().name("steward".into()).spawn(move || work.run(&stopped));
        let thread = thread.map_err(|e| Error::os("start the steward's thread", &e))?;
        Ok(Self { stop, thread })
    }

    /// Ends it, and says that the host does not live any more.
    pub fn stop(self) {
        drop(self.stop);
        let _ = self.thread.join();
    }
}

struct Work {
    me: HostId,
    coordinator: Arc<dyn Coordinator>,
    duties: Duties,
    /// The revision of each partition's record that its replica was told last.
    told: BTreeMap<PartitionId, Revision>,
    /// When to try again what could not be started.
    again_ms: BTreeMap<PartitionId, u64>,
    session: Option<SessionId>,
    alive_ms: u64,
    looked_ms: u64,
    watch: Option<Box<dyn Watch>>,
    /// The coordinator is away, which was told.
    silent: bool,
}

impl Work {
    fn run(&mut self, stopped: &Receiver<()>) {
        while let Err(mpsc::TryRecvError::Empty) = stopped.try_recv() {
            match self.round() {
                Ok(()) if std::mem::take(&mut self.silent) => {
                    tracing::info!("the coordinator answers again");
                    self.seen().1 = None;
                }
                Ok(()) => {}
                Err(error) => {
                    if !std::mem::replace(&mut self.silent, true) {
                        tracing::warn!("the coordinator is away, what is served goes on: {error}");
                    }
                    self.seen().1 = Some(error);
                    self.watch = None;
                    if let Err(RecvTimeoutError::Disconnected) = stopped.recv_timeout(Duration::from_millis(WAIT_MS)) {
                        break;
                    }
                }
            }
        }
        if let Some(session) = self.session {
            // Who cannot say it is missed soon enough.
            let _ = self.coordinator.end_session(session);
        }
    }

    fn seen(&self) -> MutexGuard<'_, (Arc<Snapshot>, Option<Error>)> {
        self.duties.seen.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn round(&mut self) -> Result<()> {
        let now_ms = clock::mono_ms();
        if now_ms >= self.alive_ms {
            self.live()?;
            self.alive_ms = now_ms + ALIVE_MS;
        }
        let news = self.news()?;
        let forsaken: BTreeSet<PartitionId> = self.duties.forsaken.try_iter().collect();
        if news || !forsaken.is_empty() || now_ms >= self.looked_ms + LOOK_MS {
            self.duties.now = Snapshot::read(self.coordinator.as_ref())?;
            for p in forsaken {
                self.begin_anew(p)?;
            }
            self.look()?;
            self.looked_ms = now_ms;
        }
        self.govern()
    }

    /// Waits a little for news.
    fn news(&mut self) -> Result<bool> {
        let Some(watch) = &mut self.watch else {
            self.watch = Some(self.coordinator.watch("", self.duties.now.revision.next())?);
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

    /// Says that this host lives.
    fn live(&mut self) -> Result<()> {
        if let Some(session) = self.session {
            match self.coordinator.keep_alive(session) {
                Err(error) if error.kind() == ErrorKind::Stale => self.session = None,
                other => return other,
            }
        }
        let session = self.coordinator.session(TTL_MS)?;
        let live = Live { host: self.me, since_s: u64::try_from(clock::now().wall.sec).unwrap_or(0) };
        self.coordinator.txn(&Txn::new().put_live(&live.key(), records::encode(&live)?, session))?;
        self.session = Some(session);
        Ok(())
    }

    /// Brings the host in line with what is known.
    fn look(&mut self) -> Result<()> {
        let host = Arc::clone(&self.duties.host);
        let now = &self.duties.now;
        if let Some(company) = host.company() {
            let _in_runtime = host.runtime().enter();
            company.routes.follow(now.map());
        }
        host.set_capacity(now.net_bytes(&self.duties.raw_of));
        for fs in &now.filesystems {
            host.set_limit(fs.id, fs.total_bytes);
        }
        for record in &now.partitions {
            if self.told.insert(record.value.id, record.revision) != Some(record.revision) {
                host.tell_register(&record.value);
            }
        }
        self.seen().0 = Arc::new(now.clone());
        let mine: Vec<PartitionId> =
            now.seats.iter().filter(|(_, hosts)| hosts.contains(&self.me)).map(|(p, _)| *p).collect();
        for p in &mine {
            self.have_store(*p)?;
        }
        self.start_replicas(&mine);
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

    /// Replicas that have a store and a configuration run.
    fn start_replicas(&mut self, mine: &[PartitionId]) {
        let (host, now_ms) = (&self.duties.host, clock::mono_ms());
        let (running, records) = (host.replicas(), &self.duties.now.partitions);
        let begun = |p: &PartitionId| records.iter().any(|r| r.value.id == *p && !r.value.members.is_empty());
        let due = |p: &PartitionId| self.again_ms.get(p).is_none_or(|again_ms| now_ms >= *again_ms);
        let start: Vec<PartitionId> =
            mine.iter().filter(|p| !running.contains(p) && begun(p) && due(p)).copied().collect();
        let failed: Vec<(PartitionId, Error)> = std::thread::scope(|scope| {
            let starting: Vec<_> = start
                .iter()
                .map(|p| scope.spawn(move || host.start_replica(*p).err().map(|error| (*p, error))))
                .collect();
            starting.into_iter().filter_map(|thread| thread.join().ok().flatten()).collect()
        });
        for (p, error) in failed {
            tracing::error!("the replica of {p} does not start: {error}");
            self.again_ms.insert(p, now_ms + AGAIN_MS);
        }
    }

    /// The store of `p` is worth nothing, unless a configuration names it.
    fn begin_anew(&mut self, p: PartitionId) -> Result<()> {
        let (host, now) = (&self.duties.host, &self.duties.now);
        let Some(known) = now.store(p, self.me) else { return Ok(()) };
        let record = now.partitions.iter().find(|record| record.value.id == p);
        if record.is_none_or(|r| r.value.members.iter().any(|member| member.store == known.store)) {
            return Ok(());
        }
        tracing::warn!("{p}: the logs of the others begin after the end of the one here; it begins anew");
        host.stop_replica(p);
        store(&log_dir(&host.config().dir, p), host.config().cluster, p, Store::Replaced)?;
        Ok(())
    }

    /// Decides for all, if this host is the one that does.
    fn govern(&mut self) -> Result<()> {
        let Some(session) = self.session else { return Ok(()) };
        let changes = controller::plan(&self.duties.now);
        if changes.is_empty() {
            return Ok(());
        }
        let Some(office) = controller::stand(self.coordinator.as_ref(), self.me, session)? else { return Ok(()) };
        controller::carry_out(self.coordinator.as_ref(), office, &changes).map(|_| ())
    }
}
