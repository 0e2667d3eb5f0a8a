//! The parts of a host, started in order and stopped in reverse.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, RwLock, mpsc};
use std::thread::JoinHandle;
use std::time::Duration;

use braid_base::ids::{ClientId, DomainId, DriveId, FsId, Guid, HostId, PartitionId, Term};
use braid_base::limits::{SCRUB_BYTES_PER_S, SEGMENT_BYTES};
use braid_base::msg::drive::{DriveOp, DriveReply, DriveStat};
use braid_base::msg::host::{LostParts, SeatReport};
use braid_base::{Error, ErrorKind, Result};
use braid_client::Session;
use braid_client::fs::Background;
use braid_client::reader::Reader;
use braid_client::wire::Wire;
use braid_cluster::capacity::OnDrives;
use braid_cluster::coordinator::{Coordinator, Revision};
use braid_cluster::facts::Partition;
use braid_cluster::health;
use braid_cluster::snapshot::Snapshot;
use braid_io::clock;
use braid_io::reactor::{self, Backend, Ending};
use braid_meta::{Config, Leave, TierPolicy};
use braid_replica::{Kv, RocksKv, RocksOptions};
use braid_tier::Links;
use tokio::task::JoinSet;

use super::clients::{Clients, Gate};
use super::drives::{self, DriveSpec, Opened, Own};
use super::events::Events;
use super::housekeeping::{Housekeeper, Limits};
use super::objects::HostObjects;
use super::outside;
use super::seat_actor::{self, SeatActor, SeatMsg, SeatStart};
use super::shared_seat::SeatDoor;
use super::watch::Watch;
use super::wire::{Company, HostWire, Runtime, Switch};
use crate::seat::{SeatConfig, StageMemory};

/// What a host is made of.
#[derive(Clone, Debug)]
pub struct HostConfig {
    /// Directory of logs and key-value view.
    pub dir: PathBuf,
    /// The cluster.
    pub cluster: Guid,
    /// Data shards of new packs.
    pub data: u8,
    /// Parity shards of new packs.
    pub parity: u8,
    /// Data bytes of a shard.
    pub shard_bytes: u64,
    /// This host.
    pub host: HostId,
    /// Number of partitions in the cluster.
    pub partitions: u16,
    /// Drives of this host that are there.
    pub drives: Vec<DriveSpec>,
    /// Those that do not answer: they are taken in when they do.
    pub awaited: Vec<DriveSpec>,
    /// Those that are away: they are taken in when they are where they were.
    pub absent: Vec<DriveSpec>,
    /// Replicas to run: all partitions of a host that is alone, else those whose stores are here.
    pub replicas: Vec<PartitionId>,
    /// Bytes of file data that all partitions together may hold, to begin with.
    pub capacity_bytes: u64,
}

/// Memory for the staged data of all partitions, bytes.
const STAGE_MEMORY_BYTES: usize = 768 << 20;
/// Log size of all partitions together above which old staged data is moved to packs: all of it is read at a start.
const LOG_SOFT_BYTES: u64 = 16 * SEGMENT_BYTES;
/// But no partition is pressed below this.
const LOG_SOFT_BYTES_MIN: u64 = 4 * SEGMENT_BYTES;
/// How long a drive may take to say how it is; it does no I/O for that.
const STAT_WAIT: Duration = Duration::from_secs(1);
/// How long a host that stops waits until others do without it, milliseconds: a change of a partition's members takes
/// a few messages and a write to etcd.
const LEAVE_WAIT_MS: u64 = 1_200;
/// Times that all partitions are asked for what they store before some of them count as silent.
const ASK_REPORTS: u32 = 3;
/// How long after the answers before: a partition may just be on its way to another host.
const ASK_AGAIN: Duration = Duration::from_millis(500);
/// How long a stopping part may take.
const STOP_WAIT: Duration = Duration::from_secs(4);

/// A running host.
pub struct Host {
    pub(super) switch: Arc<Switch>,
    pub(super) config: HostConfig,
    kv: Arc<dyn Kv>,
    stage_memory: Arc<StageMemory>,
    housekeeper: Mutex<Option<Housekeeper>>,
    threads: Mutex<BTreeMap<PartitionId, JoinHandle<()>>>,
    own_drives: Arc<Own>,
    /// As of when the records are that it goes by in [`Host::follow_tiers`]: of which incarnation, at which revision.
    followed: Mutex<(u64, Revision)>,
}

impl Host {
    /// Starts drives, the key-value view and replicas, each recovered from disk. `company`: the other hosts, if this one
    /// is not alone.
    ///
    /// A drive that fails to open is left out with a warning as long as readers can do without it; everything
    /// else that fails is the error.
    pub fn start(
        config: HostConfig,
        coordinator: &Arc<dyn Coordinator>,
        company: Option<Company>,
        runtime: tokio::runtime::Handle,
    ) -> Result<Self> {
        let events = Events::start(config.dir.join("events"))?;
        let (opened, late) = drives::start_all(&config, &runtime, &events);
        let (mut drives, mut marks, own_drives) = (BTreeMap::new(), BTreeMap::new(), Arc::clone(late.own()));
        for Opened { id, running, mark } in opened {
            drives.insert(id, running.drive);
            marks.insert(id, mark);
            own_drives.started(running.ending);
        }
        let kv: Arc<dyn Kv> = Arc::new(RocksKv::open(&config.dir.join("kv"), RocksOptions::default())?);
        let links = Arc::new(Links::new(config.cluster, config.host));
        let objects = HostObjects::new(config.cluster, links, runtime.clone(), events);
        let switch = Arc::new(Switch {
            host: config.host,
            seats: RwLock::default(),
            idle: Mutex::default(),
            drives: RwLock::new(drives),
            runtime,
            reader: OnceLock::new(),
            clients: Mutex::default(),
            kv: Arc::downgrade(&kv),
            coordinator: Arc::clone(coordinator),
            asking: Mutex::default(),
            drive_set: Mutex::default(),
            marks: Mutex::new(marks),
            absent: Mutex::default(),
            company,
            capacity: Arc::new(AtomicU64::new(config.capacity_bytes)),
            limits: Limits::default(),
            tiers: Mutex::default(),
            objects,
        });
        // Partitions start with all drives that run.
        let usable = switch.all_drive_ids();
        switch.change_drives(|set| (set.usable, set.scrub_bytes_per_s) = (usable, SCRUB_BYTES_PER_S));
        let partitions = config.partitions;
        let wire: Arc<dyn Wire> = Arc::new(HostWire { switch: Arc::clone(&switch), partitions });
        let _ = switch.reader.set(Reader::new(wire));
        let host = Self {
            followed: Mutex::default(),
            own_drives,
            threads: Mutex::default(),
            housekeeper: Mutex::default(),
            kv,
            stage_memory: StageMemory::new(STAGE_MEMORY_BYTES, config.partitions.into()),
            switch,
            config,
        };
        host.start_replicas()?;
        let (switch, kv) = (Arc::clone(&host.switch), Arc::clone(&host.kv));
        let watch = Watch::new(Arc::clone(&switch), host.config.parity, late);
        let housekeeper = Housekeeper::start(switch, kv, partitions, watch)?;
        *host.housekeeper.lock().unwrap_or_else(PoisonError::into_inner) = Some(housekeeper);
        Ok(host)
    }

    /// All recover at the same time: each reads a log of its own.
    fn start_replicas(&self) -> Result<()> {
        std::thread::scope(|scope| {
            let starting: Vec<_> =
                self.config.replicas.iter().map(|p| scope.spawn(move || self.begin_replica(*p))).collect();
            let died = || Error::new(ErrorKind::Stopped, "a partition died while it started; see its panic");
            starting.into_iter().try_for_each(|thread| thread.join().unwrap_or_else(|_| Err(died())))
        })
    }

    /// Starts the replica of `p`, whose store is here. It may have run before in this process, and takes what the view
    /// holds for durable.
    pub fn start_replica(&self, p: PartitionId) -> Result<()> {
        self.kv.flush()?;
        self.begin_replica(p)
    }

    fn begin_replica(&self, p: PartitionId) -> Result<()> {
        let (door, thread) = start_seat(&self.config, p, (&self.kv, Arc::clone(&self.stage_memory)), &self.switch)?;
        self.threads().insert(p, thread);
        self.switch.seats.write().unwrap_or_else(PoisonError::into_inner).insert(p, door.clone());
        // They may have changed before it could be told.
        let set = self.switch.drive_set().clone();
        let _ = door.send(SeatMsg::With(Box::new(move |seat| seat.set_drives(set))));
        self.switch.tell_tiers(p);
        Ok(())
    }

    /// Stops the replica of `p` and waits until its thread has ended.
    pub fn stop_replica(&self, p: PartitionId) {
        let door = self.switch.seats.write().unwrap_or_else(PoisonError::into_inner).remove(&p);
        if let Some(door) = door {
            let _ = door.send(SeatMsg::Stop);
        }
        let thread = self.threads().remove(&p);
        if let Some(thread) = thread {
            let _ = thread.join();
        }
    }

    /// The partitions that have a replica here, and whether its thread runs.
    pub fn replicas(&self) -> BTreeMap<PartitionId, bool> {
        let ended = |p| self.threads().get(&p).is_none_or(JoinHandle::is_finished);
        self.switch.all_seats().iter().map(|seat| (seat.id(), !ended(seat.id()))).collect()
    }

    /// The replica of `p` does not start, as `why` says; or nothing is known any more that keeps it from that.
    pub(super) fn does_not_run(&self, p: PartitionId, why: Option<&Error>) {
        let mut idle = self.switch.idle.lock().unwrap_or_else(PoisonError::into_inner);
        match why {
            Some(why) => drop(idle.insert(p, why.clone())),
            None => drop(idle.remove(&p)),
        }
    }

    /// Those in `mine` should run, and no others.
    pub(super) fn should_run(&self, mine: &BTreeSet<PartitionId>) {
        self.switch.idle.lock().unwrap_or_else(PoisonError::into_inner).retain(|p, _| mine.contains(p));
    }

    /// The other hosts, if this one is not alone.
    pub(super) fn company(&self) -> Option<&Company> {
        self.switch.company.as_ref()
    }

    pub(super) fn runtime(&self) -> &tokio::runtime::Handle {
        &self.switch.runtime
    }

    pub(super) fn seats(&self) -> Vec<SeatDoor> {
        self.switch.all_seats()
    }

    pub(super) fn config(&self) -> &HostConfig {
        &self.config
    }

    /// Tells the replica of `record` what the coordinator holds.
    pub fn tell_register(&self, record: &Partition) {
        let found = outside::config_of(record);
        let _ = self.switch.tell(record.id, SeatMsg::Register(found, false));
    }

    /// Tells the replica of `p` which hosts should have one, the one that should lead first.
    pub fn tell_seats(&self, p: PartitionId, hosts: Vec<HostId>) {
        let _ = self.switch.tell(p, SeatMsg::Seats(hosts));
    }

    /// Sees to it that nobody has to wait for the replicas of this host when it stops now, as far as that can be and
    /// within [`LEAVE_WAIT_MS`]: others lead, and go on without these.
    pub fn leave(&self) {
        let until_ms = clock::mono_ms() + LEAVE_WAIT_MS;
        let mut seats = if self.switch.company.is_some() { self.switch.all_seats() } else { Vec::new() };
        for seat in &seats {
            let _ = seat.send(SeatMsg::Leave);
        }
        while !seats.is_empty() && clock::mono_ms() < until_ms {
            std::thread::park_timeout(Duration::from_millis(20));
            let (tx, needed) = mpsc::channel();
            for seat in &seats {
                let (p, tx) = (seat.id(), tx.clone());
                let _ = seat.send(SeatMsg::With(Box::new(move |seat| {
                    if seat.replica().is_needed() {
                        let _ = tx.send(p);
                    }
                })));
            }
            drop(tx);
            let needed: BTreeSet<PartitionId> = needed.iter().collect();
            seats.retain(|seat| needed.contains(&seat.id()));
        }
    }

    /// Removes what is left here of a store that no record names any more. Its replica must not run.
    pub(super) fn forget_store(&self, p: PartitionId) -> Result<()> {
        let dir = log_dir(&self.config.dir, p);
        // From here on it is nobody's: whatever is left of it after a crash would be wiped before it is used again.
        outside::store(&dir, self.config.cluster, p, outside::Store::Replaced)?;
        crate::seat::wipe(self.kv.as_ref(), p)?;
        std::fs::remove_dir_all(&dir).map_err(|error| Error::os(dir.display(), &error))
    }

    fn threads(&self) -> MutexGuard<'_, BTreeMap<PartitionId, JoinHandle<()>>> {
        self.threads.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A new client of this host, which is alone. `client` must never have been used before in this cluster.
    pub fn session(&self, client: ClientId) -> Arc<Session> {
        let wire = HostWire { switch: Arc::clone(&self.switch), partitions: self.config.partitions };
        let session = Session::sharing_fate(Arc::new(wire), client);
        self.switch.runtime.spawn(session.keep_leases(Some(self.config.host)));
        session
    }

    /// Where clients of this host leave work that goes on after their call returned.
    pub fn background(&self) -> Arc<dyn Background> {
        Arc::new(Runtime(self.switch.runtime.clone()))
    }

    /// What serves clients in other processes, and other hosts: those that `gate` lets in.
    pub fn clients(&self, gate: Gate) -> Arc<Clients> {
        Clients::new(Arc::clone(&self.switch), gate)
    }

    /// Bytes that file system `fs` may hold from now on, in all partitions together; `None`: no bound of its own.
    /// Partitions share it as housekeeping tells them, once a second: that much of writing may come on top.
    pub fn set_limit(&self, fs: FsId, bytes: Option<u64>) {
        let mut limits = self.switch.limits.lock().unwrap_or_else(PoisonError::into_inner);
        let before = match bytes {
            Some(bytes) => limits.insert(fs, bytes),
            None => limits.remove(&fs),
        };
        if before == bytes {
            return; // what each may hold of it is known already
        }
        drop(limits);
        for seat in self.switch.all_seats() {
            let _ = seat.send(SeatMsg::With(Box::new(move |seat| {
                seat.set_limit(fs, bytes);
            })));
        }
    }

    /// The links to the object stores of the cluster, which whoever knows these keeps up to date.
    pub fn links(&self) -> Arc<Links> {
        Arc::clone(self.switch.objects.links())
    }

    /// What the file systems with an object store are to do from now on; the others have none. Flash is meant for the
    /// whole cluster; partitions share it as housekeeping tells them.
    pub fn set_tiers(&self, policies: BTreeMap<FsId, TierPolicy>) {
        if self.switch.tiers().set(policies) {
            self.switch.all_seats().iter().for_each(|seat| self.switch.tell_tiers(seat.id()));
        }
    }

    /// Goes by what the records say of object stores and the file systems that have them, unless it goes by newer ones.
    pub fn follow_tiers(&self, now: &Snapshot) {
        let as_of = (now.incarnation.number, now.revision);
        // Held to the end, so that nobody is overtaken on the way.
        let mut followed = self.followed.lock().unwrap_or_else(PoisonError::into_inner);
        if as_of < *followed {
            return;
        }
        *followed = as_of;
        self.switch.objects.set_stores(&now.object_stores);
        self.switch.objects.events().know(now);
        self.set_filesystems(now.filesystems.iter().map(|fs| (fs.id, fs.uuid)).collect());
        self.set_tiers(super::tiers::policies(now));
    }

    /// The identities of all file systems, as their objects name them.
    pub fn set_filesystems(&self, known: BTreeMap<FsId, Guid>) {
        self.switch.objects.set_filesystems(known);
    }

    /// What fails together with what, and which drives leave, from now on.
    pub fn set_drive_facts(&self, domains: BTreeMap<DriveId, DomainId>, leaving: BTreeMap<DriveId, Leave>) {
        let mut removed: Vec<DriveId> = Vec::new();
        self.switch.change_drives(|set| {
            // Not those that nobody has heard of yet: they are just being added.
            removed = set.domains.keys().filter(|drive| !domains.contains_key(drive)).copied().collect();
            set.usable.retain(|drive| domains.contains_key(drive) && !leaving.contains_key(drive));
            (set.domains, set.leaving) = (domains, leaving);
        });
        self.switch.marks.lock().unwrap_or_else(PoisonError::into_inner).retain(|drive, _| !removed.contains(drive));
        // The thread of a removed drive ends with the last that asks it.
        self.switch.drives.write().unwrap_or_else(PoisonError::into_inner).retain(|drive, _| !removed.contains(drive));
    }

    pub(super) fn switch(&self) -> &Switch {
        &self.switch
    }

    /// The shards on `drive`, which leaves; none until all partitions know that it does.
    pub fn shards_left(reports: &[SeatReport], partitions: u16, drive: DriveId) -> Option<u64> {
        let serving: Vec<_> = reports.iter().filter(|report| report.term != Term(0)).collect();
        if serving.len() < usize::from(partitions) {
            return None;
        }
        serving.iter().map(|report| report.data.leaving.get(&drive).copied()).sum()
    }

    /// What is stored on drives, as far as the partitions that are served say. A busy host may be late once with what it
    /// says: all are asked again then.
    pub async fn on_drives(&self) -> OnDrives {
        let partitions = usize::from(self.config.partitions);
        let mut asked = 0;
        loop {
            let reports = self.partitions().await;
            let serving = || reports.iter().filter(|report| report.term != Term(0));
            let silent = partitions.saturating_sub(serving().count());
            asked += 1;
            if silent == 0 || asked == ASK_REPORTS {
                return OnDrives { bytes: serving().map(|report| report.data.on_drives()).sum(), silent };
            }
            tokio::time::sleep(ASK_AGAIN).await;
        }
    }

    /// Whether nothing lies on `drive`, which leaves, any more. Blocks.
    pub(super) fn is_empty_of(&self, drive: DriveId) -> bool {
        let reports = self.switch.runtime.block_on(self.partitions());
        Self::shards_left(&reports, self.config.partitions, drive) == Some(0)
    }

    /// True if `drive` answers neither this host nor most others, of `living` in all.
    pub async fn lacks(&self, drive: DriveId, living: usize) -> bool {
        let here = self.switch.drive_set().absent.contains(&drive);
        here && health::is_lost(drive, &self.switch.absent_elsewhere().await, living)
    }

    /// Starts a drive of this host that was not there before.
    pub fn add_drive(&self, spec: &DriveSpec) -> Result<()> {
        self.switch.take_in(drives::start(self.config.cluster, &self.switch.runtime, spec)?, &self.own_drives);
        self.own_drives.add(spec);
        Ok(())
    }

    /// Goes by what was recorded of drives, settings and object stores. `raw_of`: data bytes of a drive of so many bytes.
    pub fn follow(&self, now: &Snapshot, raw_of: impl Fn(u64) -> u64) {
        self.set_capacity(now.net_bytes(raw_of));
        self.set_rates(now.settings.scrub_rate(), now.settings.rebuild_bytes_per_s);
        let leaving = now.drives.iter().filter_map(|drive| Some((drive.id, drives::leaves(drive)?))).collect();
        self.set_drive_facts(now.drives.iter().map(|drive| (drive.id, drive.domain)).collect(), leaving);
        self.follow_tiers(now);
    }

    /// Bytes of file data that all partitions together may hold from now on.
    pub fn set_capacity(&self, bytes: u64) {
        self.switch.capacity.store(bytes, Ordering::Relaxed);
    }

    /// The same as it is now.
    pub fn capacity(&self) -> u64 {
        self.switch.capacity.load(Ordering::Relaxed)
    }

    /// What each partition says of itself, as in [`Self::served`].
    pub async fn partitions(&self) -> Vec<SeatReport> {
        Self::served(&self.reports().await)
    }

    /// What all replicas say of themselves, with their hosts. One that does not answer in time is left out.
    pub async fn reports(&self) -> Vec<(HostId, SeatReport)> {
        let (switch, me) = (Arc::clone(&self.switch), self.switch.host);
        let here = tokio::task::spawn_blocking(move || switch.reports());
        let mut all = self.switch.reports_of_others().await;
        all.extend(here.await.unwrap_or_default().into_iter().map(|seat| (me, seat)));
        all.sort_by_key(|(host, seat)| (seat.partition, *host));
        all
    }

    /// Of `replicas`, for each partition, the one that serves it, or any, in order; rather one that works.
    pub fn served(replicas: &[(HostId, SeatReport)]) -> Vec<SeatReport> {
        let mut best: BTreeMap<PartitionId, &SeatReport> = BTreeMap::new();
        let rank = |report: &SeatReport| (report.term, report.failed.is_none());
        for (_, report) in replicas {
            let known = best.entry(report.partition).or_insert(report);
            if rank(known) < rank(report) {
                *known = report;
            }
        }
        best.into_values().cloned().collect()
    }

    /// The parts of files that cannot be read because too few shards are left, of the partitions that answer in time.
    pub async fn lost(&self) -> Result<LostParts> {
        let seats = self.switch.all_seats();
        let here = tokio::task::spawn_blocking(move || seat_actor::lost(&seats));
        let mut all = self.switch.lost_elsewhere().await;
        all.add(here.await.map_err(|error| Error::new(ErrorKind::Stopped, format!("the task died: {error}")))?);
        Ok(all)
    }

    /// Bytes per second that each drive may be read with to check what lies there, from now on; 0: only what may have lost data is.
    /// And bytes per second that this host makes anew; none: as many as it can.
    pub fn set_rates(&self, scrub_bytes_per_s: u64, rebuild_bytes_per_s: Option<u64>) {
        self.switch.change_drives(|set| set.scrub_bytes_per_s = scrub_bytes_per_s);
        if let Some(reader) = self.switch.reader.get() {
            reader.rebuild_pace().set(rebuild_bytes_per_s);
        }
    }

    /// The first damage met in the key-value view, if any.
    pub fn view_damage(&self) -> Option<Error> {
        self.kv.damage()
    }

    /// What each running drive says of itself; an error in place of the numbers if it cannot.
    pub async fn drives(&self) -> Vec<(DriveId, Result<DriveStat>)> {
        let wire = HostWire { switch: Arc::clone(&self.switch), partitions: self.config.partitions };
        let mut asked = JoinSet::new();
        for id in self.switch.all_drive_ids() {
            let answer = tokio::time::timeout(STAT_WAIT, wire.drive(id, DriveOp::Stat));
            asked.spawn(async move {
                let stat =
                    match answer.await.unwrap_or_else(|_| Err(Error::new(ErrorKind::TimedOut, "it does not answer"))) {
                        Ok(DriveReply::Stat(stat)) => Ok(stat),
                        Ok(other) => Err(Error::new(ErrorKind::Io, format!("asked {id} for its state, got {other:?}"))),
                        Err(error) => Err(error),
                    };
                (id, stat)
            });
        }
        let mut out = asked.join_all().await;
        out.sort_by_key(|(id, _)| *id);
        out
    }

    /// Stops everything: the view is flushed so that the next start has little to replay. Returns within about
    /// 4 s even if a part does not answer.
    pub fn stop(&self) {
        let housekeeper = self.housekeeper.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(housekeeper) = housekeeper {
            housekeeper.stop();
        }
        for seat in self.switch.all_seats() {
            let _ = seat.send(SeatMsg::Stop);
        }
        self.switch.drives.write().unwrap_or_else(PoisonError::into_inner).clear();
        let replicas = std::mem::take(&mut *self.threads());
        let drives = self.own_drives.take_endings();
        let (done, all) = mpsc::channel();
        std::thread::spawn(move || {
            drives.iter().for_each(Ending::wait);
            for thread in replicas.into_values() {
                let _ = thread.join();
            }
            let _ = done.send(());
        });
        if all.recv_timeout(STOP_WAIT).is_err() {
            tracing::warn!("a part did not stop in time; everything acknowledged is in the log all the same");
        } else if let Err(error) = self.kv.flush() {
            tracing::warn!("the view was not flushed ({error}); the log will be replayed at the next start");
        }
        self.switch.objects.events().stop();
    }
}

type SeatThread = (SeatDoor, JoinHandle<()>);

fn start_seat(
    config: &HostConfig,
    id: PartitionId,
    (kv, stage_memory): (&Arc<dyn Kv>, Arc<StageMemory>),
    switch: &Arc<Switch>,
) -> Result<SeatThread> {
    let dir = log_dir(&config.dir, id);
    let me = match &switch.company {
        None => outside::identify(&dir, switch.coordinator.as_ref(), config.cluster, id, config.host)?,
        Some(_) => outside::found_there(&dir, config.cluster, id, config.host)?,
    };
    let capacity_bytes = switch.capacity.load(Ordering::Relaxed);
    let partition = Config {
        partition: id,
        partitions: config.partitions,
        term: Term(0),
        host: config.host,
        data: config.data,
        parity: config.parity,
        shard_bytes: config.shard_bytes,
        drives: switch.drive_set().clone(),
        capacity_bytes,
    };
    let seat = SeatConfig {
        partition,
        cluster: config.cluster,
        me,
        segment_bytes: SEGMENT_BYTES,
        stage_memory,
        log_soft_bytes: (LOG_SOFT_BYTES / u64::from(config.partitions)).max(LOG_SOFT_BYTES_MIN),
    };
    let (kv, coordinator, switch) = (Arc::clone(kv), Arc::clone(&switch.coordinator), Arc::clone(switch));
    let tiers = switch.tiers().of(id);
    let start = SeatStart { config: seat, tiers, kv, dir, coordinator, switch };
    let (tx, door) = mpsc::channel();
    let (mailbox, thread) = reactor::spawn_with(&format!("partition-{}", id.0), Backend::Auto, move |turn| {
        let actor = SeatActor::open(start, turn)?;
        let _ = tx.send(actor.door());
        Ok(actor)
    })?;
    let door = door.recv().expect("an actor that runs has sent its door");
    Ok((door(mailbox), thread))
}

/// Where the log of a partition lies.
pub fn log_dir(dir: &Path, id: PartitionId) -> PathBuf {
    dir.join(format!("log-{}", id.0))
}
