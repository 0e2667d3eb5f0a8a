//! The parts of a host, started in order and stopped in reverse.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, OnceLock, PoisonError, RwLock, mpsc};
use std::thread::JoinHandle;
use std::time::Duration;

use braid_base::ids::{ClientId, DriveId, FsId, Guid, HostId, PartitionId, Term};
use braid_base::limits::SEGMENT_BYTES;
use braid_base::msg::drive::{DriveOp, DriveReply, DriveStat};
use braid_base::{Error, ErrorKind, Result};
use braid_client::Session;
use braid_client::fs::Background;
use braid_client::reader::Reader;
use braid_client::wire::Wire;
use braid_cluster::coordinator::Coordinator;
use braid_drive::{Drive, DriveActor, Running};
use braid_io::reactor::{self, Backend};
use braid_meta::Config;
use braid_replica::{Kv, RocksKv, RocksOptions};

use super::clients::Clients;
use super::housekeeping::{Housekeeper, Limits};
use super::outside;
use super::seat_actor::{self, SeatActor, SeatMsg, SeatReport, SeatStart};
use super::shared_seat::SeatDoor;
use super::watch::Watch;
use super::wire::{HostWire, Runtime, Switch};
use crate::seat::SeatConfig;

/// A drive that this host runs.
#[derive(Clone, Debug)]
pub struct DriveSpec {
    /// Its number.
    pub id: DriveId,
    /// Where it is.
    pub path: PathBuf,
    /// Which drive must be found there.
    pub uuid: Guid,
}

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
    /// Drives that are there.
    pub drives: Vec<DriveSpec>,
    /// Bytes of file data that all partitions together may hold.
    pub capacity_bytes: u64,
}

/// Bytes of staged data kept in memory by each partition.
const STAGE_CACHE_BYTES: usize = 192 << 20;
/// Log size of all partitions together above which old staged data is moved to packs: all of it is read at a start.
const LOG_SOFT_BYTES: u64 = 16 * SEGMENT_BYTES;
/// But no partition is pressed below this.
const LOG_SOFT_BYTES_MIN: u64 = 4 * SEGMENT_BYTES;
/// How long a drive may take to say how it is; it does no I/O for that.
const STAT_WAIT: Duration = Duration::from_secs(1);
/// How long a stopping part may take.
const STOP_WAIT: Duration = Duration::from_secs(4);

/// A running host.
pub struct Host {
    pub(super) switch: Arc<Switch>,
    partitions: u16,
    host: HostId,
    kv: Arc<dyn Kv>,
    housekeeper: Mutex<Option<Housekeeper>>,
    limits: Limits,
    threads: Mutex<Vec<JoinHandle<()>>>,
}

impl Host {
    /// Starts drives, the key-value view and partitions, each recovered from disk.
    ///
    /// A drive that fails to open is left out with a warning as long as readers can do without it; everything
    /// else that fails is the error.
    pub fn start(
        config: HostConfig,
        coordinator: &Arc<dyn Coordinator>,
        runtime: tokio::runtime::Handle,
    ) -> Result<Self> {
        let mut threads = Vec::new();
        let drives = start_drives(&config, &mut threads);
        let kv: Arc<dyn Kv> = Arc::new(RocksKv::open(&config.dir.join("kv"), RocksOptions::default())?);
        let switch = Arc::new(Switch {
            seats: OnceLock::new(),
            drives: RwLock::new(drives),
            runtime,
            reader: OnceLock::new(),
            clients: Mutex::default(),
        });
        let partitions = config.partitions;
        let wire: Arc<dyn Wire> = Arc::new(HostWire { switch: Arc::clone(&switch), partitions });
        let _ = switch.reader.set(Reader::new(wire));
        let mut seats = Vec::new();
        for (seat, thread) in start_seats(&config, coordinator, &kv, &switch)? {
            seats.push(seat);
            threads.push(thread);
        }
        let limits = Limits::default();
        let watch = Watch::new(Arc::clone(&switch), config.parity);
        let housekeeper =
            Housekeeper::start(seats.clone(), Arc::clone(&kv), config.capacity_bytes, Arc::clone(&limits), watch)?;
        let _ = switch.seats.set(seats);
        let (housekeeper, threads) = (Mutex::new(Some(housekeeper)), Mutex::new(threads));
        Ok(Self { switch, partitions, host: config.host, kv, housekeeper, limits, threads })
    }

    /// A new client of this host. `client` must never have been used before in this cluster.
    pub fn session(&self, client: ClientId) -> Arc<Session> {
        let wire = HostWire { switch: Arc::clone(&self.switch), partitions: self.partitions };
        let session = Session::sharing_fate(Arc::new(wire), client);
        self.switch.runtime.spawn(session.keep_leases(Some(self.host)));
        session
    }

    /// Where clients of this host leave work that goes on after their call returned.
    pub fn background(&self) -> Arc<dyn Background> {
        Arc::new(Runtime(self.switch.runtime.clone()))
    }

    /// What serves clients in other processes: those that name `cluster` and know `secret`.
    pub fn clients(&self, cluster: Guid, secret: String) -> Arc<Clients> {
        Clients::new(Arc::clone(&self.switch), self.partitions, cluster, secret)
    }

    /// Bytes that file system `fs` may hold from now on, in all partitions together; `None`: no bound of its own.
    /// Partitions share it as housekeeping tells them, once a second: that much of writing may come on top.
    pub fn set_limit(&self, fs: FsId, bytes: Option<u64>) {
        let mut limits = self.limits.lock().unwrap_or_else(PoisonError::into_inner);
        match bytes {
            Some(bytes) => limits.insert(fs, bytes),
            None => limits.remove(&fs),
        };
        for seat in self.seats() {
            let _ = seat.send(SeatMsg::With(Box::new(move |seat| {
                seat.set_limit(fs, bytes);
            })));
        }
    }

    /// What each partition says of itself, in order. One that does not answer in time is left out.
    pub fn partitions(&self) -> Vec<SeatReport> {
        seat_actor::reports(self.seats())
    }

    /// The first damage met in the key-value view, if any.
    pub fn view_damage(&self) -> Option<Error> {
        self.kv.damage()
    }

    /// What each running drive says of itself; an error in place of the numbers if it cannot.
    pub async fn drives(&self) -> Vec<(DriveId, Result<DriveStat>)> {
        let wire = HostWire { switch: Arc::clone(&self.switch), partitions: self.partitions };
        let mut out = Vec::new();
        for id in self.switch.drive_ids() {
            let answer = tokio::time::timeout(STAT_WAIT, wire.drive(id, DriveOp::Stat)).await;
            let stat = match answer.unwrap_or_else(|_| Err(Error::new(ErrorKind::TimedOut, "it does not answer"))) {
                Ok(DriveReply::Stat(stat)) => Ok(stat),
                Ok(other) => Err(Error::new(ErrorKind::Io, format!("asked {id} for its state, got {other:?}"))),
                Err(error) => Err(error),
            };
            out.push((id, stat));
        }
        out
    }

    /// Stops everything: the view is flushed so that the next start has little to replay. Returns within about
    /// 4 s even if a part does not answer.
    pub fn stop(&self) {
        let housekeeper = self.housekeeper.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(housekeeper) = housekeeper {
            housekeeper.stop();
        }
        for seat in self.seats() {
            let _ = seat.send(SeatMsg::Stop);
        }
        self.switch.drives.write().unwrap_or_else(PoisonError::into_inner).clear();
        let threads = std::mem::take(&mut *self.threads.lock().unwrap_or_else(PoisonError::into_inner));
        let (done, all) = mpsc::channel();
        std::thread::spawn(move || {
            for thread in threads {
                let _ = thread.join();
            }
            let _ = done.send(());
        });
        if all.recv_timeout(STOP_WAIT).is_err() {
            tracing::warn!("a part did not stop in time; everything acknowledged is in the log all the same");
        } else if let Err(error) = self.kv.flush() {
            tracing::warn!("the view was not flushed ({error}); the log will be replayed at the next start");
        }
    }

    fn seats(&self) -> &[SeatDoor] {
        self.switch.seats.get().map_or(&[], Vec::as_slice)
    }
}

fn start_drives(config: &HostConfig, threads: &mut Vec<JoinHandle<()>>) -> BTreeMap<DriveId, Drive> {
    let mut drives = BTreeMap::new();
    for spec in &config.drives {
        match start_drive(config, spec) {
            Ok(running) => {
                drives.insert(spec.id, running.drive);
                threads.push(running.thread);
            }
            Err(error) => tracing::warn!("drive {} is left out: {error}", spec.id),
        }
    }
    drives
}

fn start_drive(config: &HostConfig, spec: &DriveSpec) -> Result<Running> {
    let running = DriveActor::open(&spec.path, Some(config.cluster), Backend::Auto)?;
    if running.superblock.drive != spec.uuid {
        let found = running.superblock.drive;
        let words = format!("{}: expected drive {}, found drive {found}", spec.path.display(), spec.uuid);
        return Err(Error::new(ErrorKind::Refused, words));
    }
    Ok(running)
}

type SeatThread = (SeatDoor, JoinHandle<()>);

/// All partitions recover at the same time: each reads a log of its own.
fn start_seats(
    config: &HostConfig,
    coordinator: &Arc<dyn Coordinator>,
    kv: &Arc<dyn Kv>,
    switch: &Arc<Switch>,
) -> Result<Vec<SeatThread>> {
    std::thread::scope(|scope| {
        let starting: Vec<_> = (0..config.partitions)
            .map(|number| scope.spawn(move || start_seat(config, PartitionId(number), coordinator, kv, switch)))
            .collect();
        let died = || Error::new(ErrorKind::Stopped, "a partition died while it started; see its panic");
        starting.into_iter().map(|thread| thread.join().unwrap_or_else(|_| Err(died()))).collect()
    })
}

fn start_seat(
    config: &HostConfig,
    id: PartitionId,
    coordinator: &Arc<dyn Coordinator>,
    kv: &Arc<dyn Kv>,
    switch: &Arc<Switch>,
) -> Result<SeatThread> {
    let dir = log_dir(&config.dir, id);
    let me = outside::identify(&dir, coordinator.as_ref(), config.cluster, id, config.host)?;
    let partition = Config {
        partition: id,
        partitions: config.partitions,
        term: Term(0),
        host: config.host,
        data: config.data,
        parity: config.parity,
        shard_bytes: config.shard_bytes,
        drives: switch.drive_ids(),
        capacity_bytes: config.capacity_bytes,
    };
    let seat = SeatConfig {
        partition,
        cluster: config.cluster,
        me,
        segment_bytes: SEGMENT_BYTES,
        stage_cache_bytes: STAGE_CACHE_BYTES,
        log_soft_bytes: (LOG_SOFT_BYTES / u64::from(config.partitions)).max(LOG_SOFT_BYTES_MIN),
    };
    let (kv, coordinator, switch) = (Arc::clone(kv), Arc::clone(coordinator), Arc::clone(switch));
    let start = SeatStart { config: seat, kv, dir, coordinator, switch };
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
