//! A running cluster, as the administrator's door sees it.

mod events;
mod lost;
mod object_stores;
mod samples;
mod summary;

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, OnceLock, PoisonError, mpsc};
use std::time::Duration;

use braid_admin::control::Sample;
use braid_admin::{Answer, Control};
use braid_base::ids::{ClientId, DriveId, HostId, Ino, PartitionId};
use braid_base::msg::drive::DriveStat;
use braid_base::msg::event::{Event, EventType};
use braid_base::msg::host::{Attached, SeatReport};
use braid_base::{Error, ErrorKind, Result};
use braid_cluster::coordinator::Coordinator;
use braid_cluster::facts::{Cluster, Drive, Filesystem};
use braid_cluster::removal::Removal;
use braid_cluster::snapshot::Snapshot;
use braid_cluster::view::events::{EventQuery, EventSpec, EventsView};
use braid_cluster::view::stores::{
    AttachSpec, AuditSpec, AuditView, HoldingsView, ObjectStoreChange, ObjectStoreDone, ObjectStoreSpec,
    ObjectStoreView, OperationsView,
};
use braid_cluster::view::{
    ClientSpec, ClientView, DriveSpec, DriveView, FilesystemView, FsChange, FsSpec, GroupSpec, GroupView, HostSpec,
    HostView, LostList, MountSpec, MountView, PartitionView, SettingsChange, SettingsView, Status,
};
use braid_cluster::{filesystems as records_of, groups, settings, stores as records_of_stores};
use braid_host::run::{Clients, Duties, Gate, Host, Hosts, Seen, Steward};
use braid_wire::{Who, tls};

use super::filesystems::{self, Filesystems, Open, Way};
use super::stores::{Facts, Stores};
use super::{drive_changes, drives, host_changes, recall, views};
use crate::mountpoint;

/// How long a client may take to leave after its mount was taken away, milliseconds.
const LEAVE_MAX_MS: u64 = 20_000;
/// How often that is looked at.
const LEAVE_LOOK: Duration = Duration::from_millis(20);

/// Where the cluster in `dir` listens for clients in other processes.
pub fn socket(dir: &Path) -> PathBuf {
    dir.join("braid.sock")
}

/// The parts of this process.
pub struct Node {
    dir: PathBuf,
    coordinator: Arc<dyn Coordinator>,
    host: Mutex<Option<Arc<Host>>>,
    cluster: Cluster,
    /// Drives of this host that did not start, and why.
    lost: Vec<(Drive, String)>,
    way: Way,
    filesystems: Filesystems,
    stores: Arc<Stores>,
    /// Of a host among others, and what it saw last.
    steward: Mutex<Option<Steward>>,
    seen: OnceLock<Seen>,
    started_ms: u64,
    /// Clients in other processes, once they are served.
    clients: OnceLock<Arc<Clients>>,
}

impl Node {
    /// A node of parts that run, on host `me`.
    pub fn new(
        dir: PathBuf,
        coordinator: Arc<dyn Coordinator>,
        (host, me): (Host, HostId),
        cluster: Cluster,
        lost: Vec<(Drive, String)>,
        way: Way,
    ) -> Self {
        let (seen, stores) = (OnceLock::new(), Arc::new(Stores::new(cluster.guid, me, host.links())));
        let (host, filesystems, steward) = (Mutex::new(Some(Arc::new(host))), Filesystems::default(), Mutex::default());
        let (started_ms, clients) = (braid_io::clock::mono_ms(), OnceLock::new());
        Self { dir, coordinator, host, cluster, lost, way, filesystems, stores, steward, seen, started_ms, clients }
    }

    /// Begins to go by what the coordinator says, which said `now` last; waits for the first replicas, or for the end.
    pub fn follow(&self, now: Snapshot, forsaken: mpsc::Receiver<PartitionId>) -> Result<()> {
        // Held until it can be stopped: who stops this node takes it first.
        let mut place = self.steward.lock().unwrap_or_else(PoisonError::into_inner);
        let (host, raw_of) = (self.host()?, drives::raw_of(self.cluster.shard_bytes));
        let seen: Seen = Arc::new(Mutex::new((Arc::new(now.clone()), None)));
        // One on this machine is asked itself: what was changed just now is known at once.
        if matches!(self.way, Way::Network(_)) {
            let _ = self.seen.set(Arc::clone(&seen));
        }
        let name = match &self.way {
            Way::Network(network) => network.name.as_str(),
            Way::Here => now.hosts.first().map_or("", |host| host.name.as_str()),
        };
        let text = format!("host {name} began to serve, with braid {}", env!("CARGO_PKG_VERSION"));
        host.event_log().tell(Event::new(EventType::HOST_STARTED, text).about("host", name));
        drives::tell_lost(&host.event_log(), name, &self.lost);
        let weak = Arc::downgrade(&host);
        let duties = Duties { host, now, seen, forsaken, raw_of: Box::new(raw_of) };
        let (steward, begun) = Steward::start(duties, Arc::clone(&self.coordinator))?;
        *place = Some(steward);
        self.stores.keep(weak, Arc::clone(&self.coordinator), self.store_facts());
        drop(place);
        begun.wait();
        Ok(())
    }

    /// What tells the keeper of the object stores which there are.
    fn store_facts(&self) -> impl Fn() -> Result<Facts> + Send + 'static {
        let (coordinator, seen) = (Arc::clone(&self.coordinator), self.seen.get().cloned());
        let me = match &self.way {
            Way::Here => None,
            Way::Network(network) => Some(network.host),
        };
        move || match &seen {
            Some(seen) => Ok(Facts::of(Arc::clone(&seen.lock().unwrap_or_else(PoisonError::into_inner).0), me)),
            None => Ok(Facts::of(Arc::new(Snapshot::read(coordinator.as_ref())?), None)),
        }
    }

    /// How connections to this node are secured, if they are.
    pub fn tls(&self) -> Option<&tls::Server> {
        match &self.way {
            Way::Here => None,
            Way::Network(network) => network.tls.as_ref(),
        }
    }

    /// What serves clients in other processes, and other hosts. `secret`: what clients on this machine know. Called once.
    pub fn clients(&self, secret: String) -> Result<Arc<Clients>> {
        let gate = match &self.way {
            Way::Here => {
                let refused =
                    |_: &str| Err(Error::new(ErrorKind::Unsupported, "clients of this cluster are numbered over REST"));
                let addresses = vec![socket(&self.dir).to_string_lossy().into_owned()];
                Gate { secret, addresses, attach: Box::new(refused), ..self.gate() }
            }
            Way::Network(network) => {
                let (coordinator, host) = (Arc::clone(&self.coordinator), Arc::downgrade(&self.host()?));
                let cluster = self.cluster.guid;
                let attach = move |filesystem: &str| {
                    let record = filesystems::usable(coordinator.as_ref(), filesystem)?;
                    let host = host.upgrade().ok_or_else(|| Error::new(ErrorKind::Stopped, "the host is stopping"))?;
                    let client = ClientId(coordinator.counter("client")?);
                    let total_bytes = record.room_bytes(host.capacity());
                    Ok(Attached { cluster, client, fs: record.id, root: Ino::new(record.root_vp, 1), total_bytes })
                };
                let hosts = if self.cluster.authority.is_empty() {
                    Hosts::Secret(self.cluster.host_secret.clone())
                } else {
                    Hosts::Certificates
                };
                let (secret, addresses) = (self.cluster.client_secret.clone(), network.addresses.clone());
                let recall = recall::of(network, Arc::downgrade(&self.host()?));
                let etcd = network.etcd.clone();
                let ask_for_another = Box::new(move |path: &str, body: &str| etcd.ask_for_another(path, body));
                Gate { secret, hosts, addresses, attach: Box::new(attach), recall, ask_for_another, ..self.gate() }
            }
        };
        let clients = self.host()?.clients(gate);
        Ok(Arc::clone(self.clients.get_or_init(|| clients)))
    }

    fn tls_ca(&self) -> String {
        match &self.way {
            Way::Here => String::new(),
            Way::Network(network) => network.reach.ca_pem(),
        }
    }

    fn gate(&self) -> Gate {
        Gate {
            cluster: self.cluster.guid,
            secret: String::new(),
            hosts: Hosts::None,
            partitions: self.cluster.partitions,
            addresses: Vec::new(),
            attach: Box::new(|_| Err(ErrorKind::Unsupported.into())),
            recall: Box::new(|| Err(ErrorKind::Unsupported.into())),
            ask_for_another: Box::new(|_, _| Err(ErrorKind::Unsupported.into())),
        }
    }

    /// Those that have mounted something.
    fn remote(&self) -> Vec<Who> {
        self.clients.get().map(|clients| clients.list()).unwrap_or_default()
    }

    fn all_mounts(&self) -> Vec<MountView> {
        let mut mounts = self.filesystems.mounts();
        // Hosts are clients, too, when they make or remove a file system; they mount nothing that way.
        mounts.extend(self.remote().into_iter().filter(|who| !who.point.is_empty()).map(views::mount));
        mounts.sort_by(|a, b| a.path.cmp(&b.path));
        mounts
    }

    fn host(&self) -> Result<Arc<Host>> {
        let host = self.host.lock().unwrap_or_else(PoisonError::into_inner);
        host.clone().ok_or_else(|| Error::new(ErrorKind::Stopped, "the cluster is stopping"))
    }

    async fn open(&self, record: &Filesystem, stay: bool) -> Result<Arc<Open>> {
        let host = self.host()?;
        self.filesystems.open(self.coordinator.as_ref(), &host, record, (&self.way, stay)).await
    }

    async fn view(&self, record: &Filesystem) -> Result<FilesystemView> {
        self.view_of(record, &self.host()?.partitions().await).await
    }

    async fn view_of(&self, record: &Filesystem, reports: &[SeatReport]) -> Result<FilesystemView> {
        let open = self.open(record, false).await?;
        let space = open.fs.statfs().await;
        Filesystems::leave(&open).await;
        // Partitions hear a little later of what was just changed.
        let capacity = self.host()?.capacity();
        let space = space?.of(record.room_bytes(capacity));
        let stores = if record.stores.is_empty() { Vec::new() } else { self.asked(records_of_stores::list)? };
        let mut view = views::filesystem(record, space, &stores, reports);
        if record.stores.iter().any(|attached| attached.detaching) {
            self.show_progress(record, &mut view.stores).await?;
        }
        Ok(view)
    }

    /// What the coordinator said last, and why it says nothing, if so. Does not wait for one that is away.
    fn recorded(&self) -> Result<(Arc<Snapshot>, Option<Error>)> {
        match self.seen.get() {
            Some(seen) => Ok(seen.lock().unwrap_or_else(PoisonError::into_inner).clone()),
            None => Ok((Arc::new(Snapshot::read(self.coordinator.as_ref())?), None)),
        }
    }

    async fn remove(&self, name: &str) -> Result<()> {
        let record = self.asked(|c| records_of::find(c, name))?.value;
        if self.filesystems.is_mounted(record.id)
            || self.remote().iter().any(|who| who.fs == record.id && !who.point.is_empty())
        {
            let words = format!("file system {name} is mounted: unmount it first (`braid umount PATH`)");
            return Err(Error::new(ErrorKind::Refused, words));
        }
        let record = self.asked(|c| records_of::start_remove(c, name))?;
        let open = self.open(&record, false).await?;
        filesystems::empty(&open.fs).await?;
        open.fs.end_session().await?;
        self.filesystems.forget(record.id);
        self.asked(|c| records_of::forget(c, &record))?;
        self.tell_filesystem(EventType::FILESYSTEM_REMOVED, name, "removed");
        Ok(())
    }

    async fn stop(&self) -> Result<()> {
        self.filesystems.detach_all().await;
        // In one step: a steward that begins this moment looks for the host under the same lock.
        let (steward, host) = {
            let mut steward = self.steward.lock().unwrap_or_else(PoisonError::into_inner);
            (steward.take(), self.host.lock().unwrap_or_else(PoisonError::into_inner).take())
        };
        self.stores.stop();
        let stopping = tokio::task::spawn_blocking(move || {
            let Some(host) = host else { return };
            // First it says that it does not live any more, or it would be asked to join again.
            if let Some(steward) = steward {
                steward.stop();
                host.leave();
            }
            host.stop();
        });
        stopping.await.map_err(|error| Error::new(ErrorKind::Stopped, format!("stopping: {error}")))
    }
}

impl Control for Node {
    fn status(&self) -> Answer<'_, Status> {
        Box::pin(self.summary())
    }

    fn lost(&self) -> Answer<'_, LostList> {
        Box::pin(self.lost_list())
    }

    fn hosts(&self) -> Answer<'_, Vec<HostView>> {
        Box::pin(async {
            let host = self.host()?;
            let (reports, ahead) = tokio::join!(host.partitions(), host.clocks());
            Ok(views::hosts(&self.recorded()?.0, &self.partition_views(&reports)?, ahead))
        })
    }

    fn host_add(&self, spec: HostSpec) -> Answer<'_, Vec<HostView>> {
        Box::pin(async move {
            self.among_others()?;
            let coordinator = Arc::clone(&self.coordinator);
            let joined = blocking(move || host_changes::add(coordinator.as_ref(), &spec.names)).await?;
            let now = self.asked(Snapshot::read)?;
            let new = |view: &HostView| joined.iter().any(|host| host.id.0 == view.id);
            Ok(views::hosts(&now, &[], Vec::new()).into_iter().filter(new).collect())
        })
    }

    fn host_remove(&self, name: String, how: Removal) -> Answer<'_, ()> {
        Box::pin(async move {
            self.among_others()?;
            let stored = self.host()?.on_drives().await;
            let coordinator = Arc::clone(&self.coordinator);
            blocking(move || host_changes::remove(coordinator.as_ref(), &name, stored, how)).await.map(|_| ())
        })
    }

    fn drives(&self) -> Answer<'_, Vec<DriveView>> {
        Box::pin(async { self.drive_views(&self.host()?.partitions().await).await })
    }

    fn drive_add(&self, spec: DriveSpec) -> Answer<'_, DriveView> {
        Box::pin(async move {
            let host = self.host()?;
            let me = match &self.way {
                Way::Network(network) => network.host,
                Way::Here => self.asked(Snapshot::read)?.hosts.first().map(|host| host.id).unwrap_or_default(),
            };
            let (coordinator, cluster) = (Arc::clone(&self.coordinator), self.cluster.clone());
            let adding = move || drive_changes::add(coordinator.as_ref(), &cluster, (&host, me), &spec);
            let drive = blocking(adding).await?;
            Ok(views::drive(&drive, &[(drive.id, Ok(DriveStat::default()))], None))
        })
    }

    fn drive_remove(&self, id: u32, how: Removal) -> Answer<'_, ()> {
        Box::pin(async move {
            let (id, host) = (DriveId(id), self.host()?);
            let (stored, stats) = tokio::join!(host.on_drives(), host.drives());
            let on = |stat: &DriveStat| u64::from(stat.slots - stat.free) * stat.shard_bytes;
            let on = stats.iter().find(|(drive, _)| *drive == id).and_then(|(_, stat)| stat.as_ref().ok().map(on));
            let (coordinator, cluster) = (Arc::clone(&self.coordinator), self.cluster.clone());
            let lost = host.lacks(id, self.recorded()?.0.live.len()).await;
            blocking(move || drive_changes::remove(coordinator.as_ref(), &cluster, (id, how, lost), (stored, on))).await
        })
    }

    fn drive_activate(&self, id: u32) -> Answer<'_, ()> {
        Box::pin(async move { self.asked(|c| braid_cluster::drives::keep(c, DriveId(id))) })
    }

    fn settings(&self) -> Answer<'_, SettingsView> {
        Box::pin(async { Ok(self.recorded()?.0.settings.view()) })
    }

    fn settings_update(&self, change: SettingsChange) -> Answer<'_, SettingsView> {
        Box::pin(async move {
            let stored = self.host()?.on_drives().await;
            let raw_of = drives::raw_of(self.cluster.shard_bytes);
            let view = self.asked(|c| settings::update(c, &change, stored, &raw_of))?.view();
            if matches!(self.way, Way::Here) {
                // Nobody waits for other hosts here.
                self.host()?.follow(&self.asked(Snapshot::read)?, &raw_of);
            }
            Ok(view)
        })
    }

    fn partitions(&self) -> Answer<'_, Vec<PartitionView>> {
        Box::pin(async { self.partition_views(&self.host()?.partitions().await) })
    }

    fn filesystems(&self) -> Answer<'_, Vec<FilesystemView>> {
        Box::pin(async {
            let (mut views, reports) = (Vec::new(), self.host()?.partitions().await);
            for record in self.asked(records_of::list)? {
                views.push(self.view_of(&record, &reports).await?);
            }
            Ok(views)
        })
    }

    fn fs_add(&self, spec: FsSpec) -> Answer<'_, FilesystemView> {
        Box::pin(async move {
            let uuid = braid_io::chance::guid()?;
            let record = self.asked(|c| records_of::add(c, &spec, uuid, views::now_s()))?;
            self.tell_filesystem(EventType::FILESYSTEM_ADDED, &spec.name, "added");
            if let Some(store) = &spec.store {
                self.tell_attachment(EventType::STORE_ATTACHED, &spec.name, store, "was attached to");
            }
            self.view(&record).await
        })
    }

    fn fs_update(&self, name: String, change: FsChange) -> Answer<'_, FilesystemView> {
        Box::pin(async move {
            let record = self.asked(|c| records_of::find(c, &name))?.value;
            let used = self.view(&record).await?.used_bytes;
            let record = self.asked(|c| records_of::update(c, &name, &change, used))?;
            self.tell_filesystem(EventType::FILESYSTEM_UPDATED, &name, &Self::changed(&name, &record.name));
            self.tiers_changed();
            self.view(&record).await
        })
    }

    fn fs_remove(&self, name: String) -> Answer<'_, ()> {
        Box::pin(async move { self.remove(&name).await })
    }

    fn groups(&self) -> Answer<'_, Vec<GroupView>> {
        Box::pin(async { self.asked(groups::list) })
    }

    fn group_add(&self, spec: GroupSpec) -> Answer<'_, GroupView> {
        Box::pin(async move {
            let group = self.asked(|c| groups::add(c, &spec))?;
            self.tell_group(EventType::GROUP_ADDED, &group.name, "added");
            self.group(&group.name)
        })
    }

    fn group_update(&self, spec: GroupSpec) -> Answer<'_, GroupView> {
        Box::pin(async move {
            let group = self.asked(|c| groups::update(c, &spec))?;
            self.tell_group(EventType::GROUP_UPDATED, &spec.name, &Self::changed(&spec.name, &group.name));
            self.tiers_changed();
            self.group(&group.name)
        })
    }

    fn group_remove(&self, name: String) -> Answer<'_, ()> {
        Box::pin(async move {
            self.asked(|c| groups::remove(c, &name))?;
            self.tell_group(EventType::GROUP_DELETED, &name, "removed");
            Ok(())
        })
    }

    fn stores(&self) -> Answer<'_, Vec<ObjectStoreView>> {
        Box::pin(self.store_views())
    }

    fn store_operations(&self, name: String) -> Answer<'_, OperationsView> {
        Box::pin(self.operations_at(name))
    }

    fn store_audit(&self, name: String, spec: AuditSpec) -> Answer<'_, AuditView> {
        Box::pin(self.audit_start(name, spec))
    }

    fn store_audited(&self, name: String) -> Answer<'_, AuditView> {
        Box::pin(self.audit_last(name))
    }

    fn holdings(&self, filesystem: Option<String>) -> Answer<'_, HoldingsView> {
        Box::pin(self.held(filesystem))
    }

    fn store_add(&self, spec: ObjectStoreSpec) -> Answer<'_, ObjectStoreDone> {
        Box::pin(self.add_store(spec))
    }

    fn store_update(&self, name: String, change: ObjectStoreChange) -> Answer<'_, ObjectStoreDone> {
        Box::pin(self.update_store(name, change))
    }

    fn store_remove(&self, name: String, force: bool) -> Answer<'_, ()> {
        Box::pin(self.remove_store(name, force))
    }

    fn store_attach(&self, fs: String, spec: AttachSpec) -> Answer<'_, FilesystemView> {
        Box::pin(self.attach_store(fs, spec))
    }

    fn store_detach(&self, fs: String, store: String, give_up: bool) -> Answer<'_, FilesystemView> {
        Box::pin(self.detach_store(fs, store, give_up))
    }

    fn mounts(&self) -> Answer<'_, Vec<MountView>> {
        Box::pin(async { Ok(self.all_mounts()) })
    }

    fn mount(&self, spec: MountSpec) -> Answer<'_, MountView> {
        Box::pin(async move {
            let record = self.asked(|c| filesystems::usable(c, &spec.filesystem))?;
            let open = self.open(&record, true).await?;
            // Noted first: after a crash the next start takes a dead mount away.
            mountpoint::remember(&self.dir, Path::new(&spec.path))?;
            self.filesystems.mount(open, &record, spec.path, spec.io_uring).await
        })
    }

    fn client(&self, spec: ClientSpec) -> Answer<'_, ClientView> {
        Box::pin(async move {
            let record = self.asked(|c| filesystems::usable(c, &spec.filesystem))?;
            Filesystems::leave(&*self.open(&record, false).await?).await;
            let capacity = self.host()?.capacity();
            let (socket, addresses, secret) = match &self.way {
                Way::Here => (socket(&self.dir).to_string_lossy().into_owned(), Vec::new(), String::new()),
                Way::Network(network) => (String::new(), network.addresses.clone(), network.reach.secret.clone()),
            };
            Ok(ClientView {
                client: self.asked(|c| c.counter("client"))?,
                fs: record.id.0,
                root: Ino::new(record.root_vp, 1).0,
                total_bytes: record.room_bytes(capacity),
                cluster: self.cluster.guid.to_string(),
                socket,
                addresses,
                secret,
                ca: self.tls_ca(),
            })
        })
    }

    fn umount(&self, path: String) -> Answer<'_, ()> {
        Box::pin(async move {
            match self.remote().into_iter().find(|who| who.point == path) {
                Some(who) => {
                    let task = tokio::task::spawn_blocking(move || braid_fuse::unmount(Path::new(&path)));
                    task.await.map_err(|error| Error::new(ErrorKind::Stopped, format!("unmounting: {error}")))??;
                    self.has_left(&who).await
                }
                None => self.filesystems.umount(&path).await,
            }
        })
    }

    fn events(&self, query: EventQuery) -> Answer<'_, EventsView> {
        Box::pin(self.kept_events(query))
    }

    fn event_trigger(&self, spec: EventSpec) -> Answer<'_, ()> {
        Box::pin(async move { self.trigger(&spec) })
    }

    fn samples(&self) -> Answer<'_, Vec<Sample>> {
        Box::pin(self.numbers())
    }

    fn shutdown(&self) -> Answer<'_, ()> {
        Box::pin(self.stop())
    }
}

/// Carries out `work` on a thread that may wait.
async fn blocking<T: Send + 'static>(work: impl FnOnce() -> Result<T> + Send + 'static) -> Result<T> {
    let done = tokio::task::spawn_blocking(work).await;
    done.unwrap_or_else(|error| Err(Error::new(ErrorKind::Stopped, format!("the task died: {error}"))))
}

impl Node {
    /// Asks the coordinator, which may take its time: what else this thread has to do goes elsewhere meanwhile.
    fn asked<T>(&self, work: impl FnOnce(&dyn Coordinator) -> Result<T>) -> Result<T> {
        tokio::task::block_in_place(|| work(self.coordinator.as_ref()))
    }

    /// The number of this host, if it is one of several.
    fn among_others(&self) -> Result<HostId> {
        match &self.way {
            Way::Network(network) => Ok(network.host),
            Way::Here => {
                let words = "a cluster on one machine has the host that it was made with";
                Err(Error::new(ErrorKind::Unsupported, words))
            }
        }
    }

    /// Waits until a client whose mount is gone has written back what it holds, and has left.
    async fn has_left(&self, who: &Who) -> Result<()> {
        let until_ms = braid_io::clock::mono_ms() + LEAVE_MAX_MS;
        while self.remote().iter().any(|other| other.client == who.client) {
            if braid_io::clock::mono_ms() >= until_ms {
                let (pid, path) = (who.pid, &who.point);
                let words = format!("{path} is unmounted, but process {pid} still writes back what was written there");
                return Err(Error::new(ErrorKind::TimedOut, words));
            }
            tokio::time::sleep(LEAVE_LOOK).await;
        }
        Ok(())
    }

    fn group(&self, name: &str) -> Result<GroupView> {
        let found = self.asked(groups::list)?.into_iter().find(|group| group.name == name);
        found.ok_or_else(|| Error::new(ErrorKind::NotFound, format!("group {name} was removed meanwhile")))
    }
}
