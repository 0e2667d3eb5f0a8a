//! Messages between the parts of a host: mailboxes within the process, sockets to those of other hosts.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::future::ready;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicU64;
use std::sync::mpsc::Sender;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, RwLock, Weak};
use std::time::Duration;

use braid_base::attr::Time;
use braid_base::ids::{ClientId, DriveId, FsId, HostId, Index, OpId, PartitionId, Term};
use braid_base::msg::drive::{DriveOp, DriveResult};
use braid_base::msg::fs::{Op, Reply, Request};
use braid_base::msg::host::{HostOp, HostReply, HostResult, LostParts, SeatReport};
use braid_base::msg::job::{Job, ObjectKey, ScrubJob, Scrubbed};
use braid_base::msg::lease::{Answer, Push};
use braid_base::msg::peer::PeerMsg;
use braid_base::record::ObjectAt;
use braid_base::{Error, ErrorKind, Result};
use braid_client::fs::Background;
use braid_client::mover;
use braid_client::reader::{Reader, StageSource};
use braid_client::wire::{BoxFuture, PushSink, Wire};
use braid_cluster::coordinator::Coordinator;
use braid_drive::Drive;
use braid_io::{clock, seldom};
use braid_meta::DriveSet;
use braid_replica::Kv;
use braid_replica::config::{Config as Members, Member};
use braid_replica::replica::event::Msg;
use braid_wire::Routes;
use bytes::Bytes;
use tokio::sync::oneshot;
use tokio::task::JoinSet;

use super::housekeeping::Limits;
use super::objects::{Carrier, HostObjects};
use super::outside;
use super::seat_actor::{self, SeatMsg};
use super::shared_seat::{SeatDoor, Waits};
use super::tiers::Tiers;

/// Pause after a partition said that it is busy.
const BUSY: Duration = Duration::from_millis(64);

/// Who can be reached.
pub(super) struct Switch {
    pub(super) host: HostId,
    /// Of the replicas that run here, by partition.
    pub(super) seats: RwLock<BTreeMap<PartitionId, SeatDoor>>,
    /// Replicas that should run here and do not, and why.
    pub(super) idle: Mutex<BTreeMap<PartitionId, Error>>,
    /// Emptied when the host stops: a drive closes when nobody can reach it any more.
    pub(super) drives: RwLock<BTreeMap<DriveId, Drive>>,
    pub(super) runtime: tokio::runtime::Handle,
    pub(super) reader: OnceLock<Reader>,
    /// Clients that take pushes, of this process or connected to it; one that is gone is forgotten at its next push.
    pub(super) clients: Mutex<HashMap<ClientId, Weak<dyn PushSink>>>,
    /// Of the host: it closes with that.
    pub(super) kv: Weak<dyn Kv>,
    pub(super) coordinator: Arc<dyn Coordinator>,
    /// Partitions whose configuration is being asked for, and that are to be replaced: one question of each kind at a time.
    pub(super) asking: Mutex<BTreeSet<(PartitionId, bool)>>,
    /// The drives, as partitions were told last.
    pub(super) drive_set: Mutex<DriveSet>,
    /// Where the drives of this host lie.
    pub(super) marks: Mutex<BTreeMap<DriveId, Mark>>,
    /// Drives of the cluster that do not answer, or fail, once they were asked.
    pub(super) absent: Mutex<Option<BTreeSet<DriveId>>>,
    /// The other hosts, if this one is not alone.
    pub(super) company: Option<Company>,
    /// Bytes of file data that all partitions together may hold.
    pub(super) capacity: Arc<AtomicU64>,
    /// What file systems may hold of it, as far as they have a bound of their own.
    pub(super) limits: Limits,
    /// What file systems with an object store are to do.
    pub(super) tiers: Mutex<Tiers>,
    /// What lies in object stores.
    pub(super) objects: Arc<HostObjects>,
}

/// What a drive was found as when it started.
#[derive(Clone)]
pub(super) struct Mark {
    path: PathBuf,
    /// Device and inode; the device that it is, if it is one.
    id: (u64, u64, u64),
}

impl Mark {
    /// What lies at `path` now.
    pub(super) fn of(path: &Path) -> Result<Self> {
        let found = std::fs::metadata(path).map_err(|error| Error::os(path.display(), &error))?;
        Ok(Self { path: path.to_owned(), id: (found.dev(), found.ino(), found.rdev()) })
    }

    /// True if the path leads nowhere any more, or to something else: what is open still is gone with this process.
    pub(super) fn is_gone(&self) -> bool {
        match std::fs::metadata(&self.path) {
            Ok(found) => (found.dev(), found.ino(), found.rdev()) != self.id,
            Err(error) => error.kind() == std::io::ErrorKind::NotFound,
        }
    }
}

/// The other hosts of a cluster.
pub struct Company {
    /// The ways to them.
    pub routes: Arc<Routes>,
    /// Whether other hosts ask the coordinator for this one.
    pub etcd_by_others: Box<dyn Fn() -> bool + Send + Sync>,
    /// Hears of partitions whose store here is to be replaced by an empty one.
    pub forsaken: Sender<PartitionId>,
}

/// The log says who leads from now on, and how members changed.
fn tell_change(p: PartitionId, was: &Members, is: &Members) {
    let hosts = |of: &Members| of.members.iter().map(|m| m.host.to_string()).collect::<Vec<_>>().join(", ");
    let Members { term, primary, .. } = is;
    tracing::info!("{p}: led by {} in term {term}, copies on {} (before: {})", primary.host, hosts(is), hosts(was));
}

impl Switch {
    /// The replica of `p` here.
    pub(super) fn seat(&self, p: PartitionId) -> Result<SeatDoor> {
        let seats = self.seats.read().unwrap_or_else(PoisonError::into_inner);
        seats.get(&p).cloned().ok_or_else(|| Error::new(ErrorKind::Moved, format!("{p} does not run here")))
    }

    /// All replicas here, in order.
    pub(super) fn all_seats(&self) -> Vec<SeatDoor> {
        self.seats.read().unwrap_or_else(PoisonError::into_inner).values().cloned().collect()
    }

    /// What the replicas here say of themselves, in order; also those that should run and do not. Blocks.
    pub(super) fn reports(&self) -> Vec<SeatReport> {
        let mut all = seat_actor::reports(&self.all_seats());
        let idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let idle = idle.into_iter().filter(|(p, _)| self.seat(*p).is_err());
        all.extend(idle.map(|(partition, why)| SeatReport { partition, failed: Some(why), ..SeatReport::default() }));
        all.sort_by_key(|report| report.partition);
        all
    }

    pub(super) fn tell(&self, p: PartitionId, msg: SeatMsg) -> Result<()> {
        self.seat(p)?.send(msg).map_err(|_| has_stopped(p))
    }

    /// What another replica says; lost where none runs: replicas repeat what matters.
    pub(super) fn hear(&self, message: Msg) {
        if let Ok(seat) = self.seat(message.partition) {
            let _ = seat.replica(message);
        }
    }

    /// Passes a message on; lost if the other partition is not there (its sender repeats).
    pub(super) fn peer(&self, from: PartitionId, to: PartitionId, message: PeerMsg) {
        match (self.seat(to), &self.company) {
            (Ok(seat), Some(_)) if seat.term() != Term(0) => drop(seat.send(SeatMsg::Peer(from, message))),
            (_, Some(company)) => {
                let _in_runtime = self.runtime.enter();
                company.routes.peer(from, to, message);
            }
            (seat, None) => drop(seat.map(|seat| seat.send(SeatMsg::Peer(from, message)))),
        }
    }

    /// Passes a message on to a replica; may be lost.
    pub(super) fn replica(&self, to: Member, message: &Msg) {
        if let Some(company) = &self.company {
            let _in_runtime = self.runtime.enter();
            company.routes.replica(to.host, message);
        }
    }

    /// Reads the configuration of `p` in the coordinator, after replacing it if that is asked for; the seat hears what it
    /// is. A question that is under way already is not asked again.
    pub(super) fn register(self: &Arc<Self>, p: PartitionId, cas: Option<(Members, Members)>) {
        let kind = (p, cas.is_some());
        if !self.asking().insert(kind) {
            return;
        }
        let this = Arc::clone(self);
        self.runtime.spawn_blocking(move || {
            let what = cas.as_ref().map(|(expect, new)| (expect, new));
            let found = outside::register(this.coordinator.as_ref(), p, what);
            this.asking().remove(&kind);
            match found {
                Ok(found) => {
                    if let Some((was, _)) = cas.filter(|(_, new)| *new == found) {
                        tell_change(p, &was, &found);
                    }
                    drop(this.tell(p, SeatMsg::Register(found, kind.1)));
                }
                Err(error) => {
                    let words = format!("{p}: its configuration is not known: {error}");
                    if seldom::is_due(&words) {
                        tracing::warn!("{words}");
                    }
                }
            }
        });
    }

    fn asking(&self) -> MutexGuard<'_, BTreeSet<(PartitionId, bool)>> {
        self.asking.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Flushes the view; `p`, which has applied everything up to `applied`, hears of it.
    pub(super) fn flush_view(self: &Arc<Self>, p: PartitionId, applied: Index) {
        let (this, Some(kv)) = (Arc::clone(self), self.kv.upgrade()) else { return };
        self.runtime.spawn_blocking(move || match kv.flush() {
            Ok(()) => drop(this.tell(p, SeatMsg::Flushed(applied))),
            Err(error) => tracing::error!("{p}: flush of the key-value view: {error}"),
        });
    }

    /// The store of `p` here is worth nothing any more.
    pub(super) fn forsake(&self, p: PartitionId) {
        if let Some(company) = &self.company {
            let _ = company.forsaken.send(p);
        }
    }

    /// From now on pushes to `client` go to `to`, as long as somebody holds that.
    pub(super) fn listen(&self, client: ClientId, to: &Arc<dyn PushSink>) {
        let mut clients = self.clients.lock().unwrap_or_else(PoisonError::into_inner);
        clients.insert(client, Arc::downgrade(to));
    }

    /// Hands a push to its client; lost if that does not live here (any more).
    pub(super) fn push(&self, push: Push) {
        let mut clients = self.clients.lock().unwrap_or_else(PoisonError::into_inner);
        match clients.get(&push.to).map(Weak::upgrade) {
            Some(Some(client)) => {
                drop(clients);
                client.pushed(push);
            }
            Some(None) => drop(clients.remove(&push.to)),
            None => {}
        }
    }

    /// Asks a drive for a seat.
    pub(super) fn drive_for_seat(self: &Arc<Self>, p: PartitionId, id: u64, drive: DriveId, op: DriveOp) {
        let this = Arc::clone(self);
        let answer = move |result| drop(this.tell(p, SeatMsg::Drive(id, result)));
        self.ask_drive(drive, op, answer);
    }

    /// Asks a drive, wherever it is.
    pub(super) fn ask_drive(&self, id: DriveId, op: DriveOp, answer: impl FnOnce(DriveResult) + Send + 'static) {
        match (self.drive(id), &self.company) {
            (Ok(drive), _) => drive.call(op, answer),
            (Err(_), Some(company)) => {
                let routes = Arc::clone(&company.routes);
                self.runtime.spawn(async move { answer(routes.drive(id, op).await) });
            }
            (Err(error), None) => answer(Err(error)),
        }
    }

    /// What other hosts answer; those that cannot be reached are not asked.
    pub(super) async fn ask_others(&self, op: &HostOp) -> Vec<(HostId, HostResult)> {
        let Some(company) = &self.company else { return Vec::new() };
        let mut asked = JoinSet::new();
        for host in company.routes.reached() {
            let (routes, op) = (Arc::clone(&company.routes), op.clone());
            asked.spawn(async move { (host, routes.ask(host, op).await) });
        }
        let mut all = Vec::new();
        while let Some(answer) = asked.join_next().await {
            all.extend(answer.ok());
        }
        all
    }

    /// Drives of the cluster that do not answer this host, or fail; none before they were asked.
    pub(super) fn absent(&self) -> Option<BTreeSet<DriveId>> {
        self.absent.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// The same of each other host that answers.
    pub(super) async fn absent_elsewhere(&self) -> Vec<BTreeSet<DriveId>> {
        let answers = self.ask_others(&HostOp::Absent).await.into_iter();
        let said = |answer| if let Ok(HostReply::Absent(drives)) = answer { Some(drives) } else { None };
        answers.filter_map(|(_, answer)| said(answer)).map(|drives| drives.into_iter().collect()).collect()
    }

    /// What the replicas on other hosts say of themselves; hosts that do not answer are left out.
    pub(super) async fn reports_of_others(&self) -> Vec<(HostId, SeatReport)> {
        let mut all = Vec::new();
        for answer in self.ask_others(&HostOp::Seats).await {
            if let (host, Ok(HostReply::Seats(seats))) = answer {
                all.extend(seats.into_iter().map(|seat| (host, seat)));
            }
        }
        all
    }

    /// What `reports_of_others` is for reports: the parts of files that cannot be read.
    pub(super) async fn lost_elsewhere(&self) -> LostParts {
        let mut all = LostParts::default();
        for answer in self.ask_others(&HostOp::Lost).await {
            if let (_, Ok(HostReply::Lost(said))) = answer {
                all.add(said);
            }
        }
        all
    }

    /// The drives of the cluster, as far as is known.
    pub(super) fn all_drive_ids(&self) -> Vec<DriveId> {
        let mut ids = self.drive_ids();
        if let Some(company) = &self.company {
            let map = company.routes.map();
            // One of this host that does not run is nowhere.
            ids.extend(map.drives.iter().filter(|(_, host)| *host != self.host).map(|(drive, _)| *drive));
            ids.sort_unstable();
        }
        ids
    }

    /// The drives, as partitions were told last.
    pub(super) fn drive_set(&self) -> MutexGuard<'_, DriveSet> {
        self.drive_set.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// From now on partitions go by the set that `change` makes of the one they know.
    pub(super) fn change_drives(&self, change: impl FnOnce(&mut DriveSet)) {
        let mut set = self.drive_set();
        let before = set.clone();
        change(&mut set);
        if *set == before {
            return;
        }
        for seat in self.all_seats() {
            let set = set.clone();
            let _ = seat.send(SeatMsg::With(Box::new(move |seat| seat.set_drives(set))));
        }
    }

    /// The way to a drive of this host.
    pub(super) fn drive(&self, id: DriveId) -> Result<Drive> {
        let drives = self.drives.read().unwrap_or_else(PoisonError::into_inner);
        drives.get(&id).cloned().ok_or_else(|| Error::new(ErrorKind::Io, format!("drive {id} is missing")))
    }

    /// The drives that run.
    pub(super) fn drive_ids(&self) -> Vec<DriveId> {
        self.drives.read().unwrap_or_else(PoisonError::into_inner).keys().copied().collect()
    }

    /// Carries out a bulk move on the runtime; the seat hears of its end.
    pub(super) fn run_job(self: &Arc<Self>, p: PartitionId, job: Job) {
        let (this, id) = (Arc::clone(self), job.id());
        let mover = Arc::clone(self);
        let moved = self.runtime.spawn(async move {
            match mover.reader.get() {
                Some(reader) => {
                    let objects = &mover.objects;
                    let _room = match &job {
                        Job::Upload(job) => Some(objects.room(job.key.store).await?),
                        _ => None,
                    };
                    let stage = SeatStage { switch: Arc::clone(&mover), seat: p };
                    mover::run(reader, &stage, &Carrier(Arc::clone(objects)), &job).await
                }
                None => Err(Error::new(ErrorKind::Stopped, "the host is still starting")),
            }
        });
        self.runtime.spawn(async move {
            // A move that panicked has ended, too: the seat must not wait for it.
            let result = moved.await.unwrap_or_else(|error| Err(Error::new(ErrorKind::Stopped, error.to_string())));
            if let Err(error) = &result {
                tracing::warn!("{p}: a bulk move failed and will be planned anew: {error}");
            }
            let _ = this.tell(p, SeatMsg::JobDone(id, result));
        });
    }
}

impl Switch {
    /// Answers `waits` with bytes of an object: so many from there on, and so many behind them are asked for at the same
    /// time. The seat, which serves in `term`, does not wait.
    pub(super) fn read_object(&self, term: Term, key: ObjectKey, off: u32, lens: (u32, u32), waits: Waits) {
        let read = self.objects.read(key, off, lens);
        self.runtime.spawn(async move { waits(Answer::plain(term, read.await.map(Reply::Data))) });
    }

    /// The policies of the cluster.
    pub(super) fn tiers(&self) -> MutexGuard<'_, Tiers> {
        self.tiers.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Tells the replica of `p` what it is to do about object stores.
    pub(super) fn tell_tiers(&self, p: PartitionId) {
        // Held until it is told, so that nobody tells something newer before.
        let tiers = self.tiers();
        let policies = tiers.of(p);
        let _ = self.tell(p, SeatMsg::With(Box::new(move |seat| seat.set_tiers(policies))));
    }

    /// Checks a pack on the runtime; the seat hears what was found.
    pub(super) fn run_scrub(self: &Arc<Self>, p: PartitionId, job: ScrubJob) {
        let (this, id) = (Arc::clone(self), job.id);
        let mover = Arc::clone(self);
        let checked = self.runtime.spawn(async move {
            match mover.reader.get() {
                Some(reader) => {
                    let checked = mover::scrub(reader, &job).await;
                    let is_news = |error: &&Error| error.kind() != ErrorKind::Stale;
                    if let Some(error) = checked.as_ref().err().filter(is_news) {
                        tracing::info!("{}: it is checked again later: {error}", job.pack);
                    }
                    checked.inspect(|found| tell_damage(&job, found))
                }
                None => Err(Error::new(ErrorKind::Stopped, "the host is still starting")),
            }
        });
        self.runtime.spawn(async move {
            let result = checked.await.unwrap_or_else(|error| Err(Error::new(ErrorKind::Stopped, error.to_string())));
            let _ = this.tell(p, SeatMsg::Scrubbed(id, result));
        });
    }
}

fn tell_damage(job: &ScrubJob, found: &Scrubbed) {
    let drive = |shard: &u8| job.place.drives.get(usize::from(*shard)).map_or(0, |drive| drive.0);
    let drives: Vec<String> = found.bad.iter().map(|shard| format!("d{}", drive(shard))).collect();
    if !drives.is_empty() {
        tracing::warn!("{}: damage on {} is made up for from the other drives", job.pack, drives.join(", "));
    }
    for (shard, first, count) in &found.lost {
        tracing::error!("{}: blocks {first}+{count} on d{} cannot be read or computed", job.pack, drive(shard));
    }
    for (first, count) in &found.odd {
        tracing::error!("{}: blocks {first}+{count} of all shards do not match each other", job.pack);
    }
}

/// What the clock of this host shows, milliseconds since 1970.
pub(super) fn wall_ms() -> u64 {
    let wall = clock::now().wall;
    u64::try_from(wall.sec).unwrap_or(0) * 1_000 + u64::from(wall.nsec) / 1_000_000
}

fn has_stopped(p: PartitionId) -> Error {
    Error::new(ErrorKind::Stopped, format!("partition {p} has stopped"))
}

/// Staged bytes, and bytes of objects, of one seat, for the mover.
struct SeatStage {
    switch: Arc<Switch>,
    seat: PartitionId,
}

impl StageSource for SeatStage {
    fn read(&self, at: Index, poff: u32, len: u32) -> BoxFuture<Result<Bytes>> {
        if let Some(bytes) = self.switch.seat(self.seat).ok().and_then(|seat| seat.staged(at, poff, len)) {
            return Box::pin(ready(Ok(bytes)));
        }
        let answer = ask(&self.switch, self.seat, of_the_mover(Op::ReadStage { at, poff, len }));
        Box::pin(async move { data_of(answer.await) })
    }

    fn object(&self, at: ObjectAt, len: u32, more: u32) -> BoxFuture<Result<Bytes>> {
        let (switch, seat) = (Arc::clone(&self.switch), self.seat);
        Box::pin(async move {
            loop {
                match data_of(ask(&switch, seat, of_the_mover(Op::ReadObject { at, len, more })).await) {
                    // The link to the store says when it is over.
                    Err(error) if error.kind() == ErrorKind::Busy => tokio::time::sleep(BUSY).await,
                    answer => return answer,
                }
            }
        })
    }
}

/// A question of a mover, which is nobody's client.
fn of_the_mover(body: Op) -> Request {
    let (op, fs, cred) = (OpId::default(), FsId::default(), Default::default());
    Request { op, session: 0, done_upto: 0, fs, cred, early: true, body }
}

fn data_of(answer: Answer) -> Result<Bytes> {
    match answer.result? {
        Reply::Data(bytes) => Ok(bytes),
        other => Err(Error::new(ErrorKind::Io, format!("bytes were asked for, {other:?} came"))),
    }
}

fn ask(switch: &Switch, p: PartitionId, request: Request) -> BoxFuture<Answer> {
    let (tx, rx) = oneshot::channel();
    let waits = Box::new(move |answer| drop(tx.send(answer)));
    let sent = switch.seat(p).and_then(|seat| seat.request(seat.term(), request, waits).map_err(|_| has_stopped(p)));
    Box::pin(async move {
        if let Err(error) = sent {
            return error.into();
        }
        rx.await.unwrap_or_else(|_| {
            Error::new(ErrorKind::Stopped, format!("partition {p} stopped before it answered")).into()
        })
    })
}

/// Work of clients that goes on after their call returned.
pub(super) struct Runtime(pub(super) tokio::runtime::Handle);

impl Background for Runtime {
    fn spawn(&self, work: BoxFuture<()>) {
        self.0.spawn(work);
    }

    fn wall(&self) -> Time {
        braid_io::clock::now().wall
    }
}

/// The client's way to the parts of its own process.
pub struct HostWire {
    pub(super) switch: Arc<Switch>,
    pub(super) partitions: u16,
}

impl Wire for HostWire {
    fn partition(&self, p: PartitionId, req: Request) -> BoxFuture<Answer> {
        ask(&self.switch, p, req)
    }

    fn listen(&self, client: ClientId, to: Arc<dyn PushSink>) -> bool {
        self.switch.listen(client, &to);
        true
    }

    fn drive(&self, d: DriveId, op: DriveOp) -> BoxFuture<DriveResult> {
        let (tx, rx) = oneshot::channel();
        self.switch.ask_drive(d, op, move |result| drop(tx.send(result)));
        Box::pin(async move {
            rx.await.unwrap_or_else(|_| Err(Error::new(ErrorKind::Io, format!("drive {d} stopped before it answered"))))
        })
    }

    fn sleep_ms(&self, ms: u64) -> BoxFuture<()> {
        let _in_runtime = self.switch.runtime.enter();
        Box::pin(tokio::time::sleep(Duration::from_millis(ms)))
    }

    fn partitions(&self) -> u16 {
        self.partitions
    }

    fn now_ms(&self) -> u64 {
        braid_io::clock::mono_ms()
    }
}
