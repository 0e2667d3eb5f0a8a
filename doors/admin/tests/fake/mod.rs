//! A made-up cluster behind [`Control`]: six drives and two partitions that always work, and file systems, groups
//! and mounts kept by the real code over a coordinator in memory.

use std::sync::{Arc, Mutex, PoisonError};

use braid_admin::control::{Sample, SampleKind};
use braid_admin::{Answer, Control};
use braid_base::ids::{Guid, HostId, StoreId};
use braid_base::msg::event::{Event, EventType};
use braid_base::msg::host::{LinkReport, SeatData, StoreOp, StoreReport, Stored};
use braid_base::{Error, ErrorKind, Result};
use braid_cluster::attachments::Room;
use braid_cluster::capacity::OnDrives;
use braid_cluster::facts::{Filesystem, ObjectStore, Protection};
use braid_cluster::health::judge;
use braid_cluster::removal::Removal;
use braid_cluster::snapshot::Snapshot;
use braid_cluster::stores::seen::{self, Seen};
use braid_cluster::view::events::{EventQuery, EventSpec, EventsView};
use braid_cluster::view::stores::{
    AttachSpec, AuditSpec, AuditView, FoundView, HoldingsView, ObjectStoreChange, ObjectStoreDone, ObjectStoreSpec,
    ObjectStoreView, OperationsView, StepView,
};
use braid_cluster::view::{
    Capacity, ClientSpec, ClientView, DriveSpec, DriveView, FilesystemView, FsChange, FsSpec, GroupSpec, GroupView,
    HealingView, HostSpec, HostView, LostList, LostView, MountSpec, MountView, PartitionView, SettingsChange,
    SettingsView, Status,
};
use braid_cluster::{Embedded, attachments, capacity, events, filesystems, groups, settings, stores};

pub struct Fake {
    coordinator: Embedded,
    mounts: Mutex<Vec<MountView>>,
    events: Mutex<Vec<Event>>,
    pub drive_2: Mutex<String>,
}

const DRIVE_BYTES: u64 = 4 << 30;
const USED_BYTES: u64 = 5 << 20;
/// When events are asked for, milliseconds since 1970.
const NOW_MS: u64 = 1_700_000_000_000;

impl Fake {
    pub fn new() -> Self {
        let coordinator = Embedded::in_memory(Arc::new(|| 0)).expect("memory");
        let none =
            GroupSpec { name: "default".into(), new_name: None, target_ssd_retention_s: None, start_demote_s: None };
        groups::add(&coordinator, &none).expect("group");
        let events = Mutex::new(vec![Self::store_down()]);
        Self { coordinator, mounts: Mutex::default(), events, drive_2: Mutex::new("active".to_owned()) }
    }

    fn drive_views(&self) -> Vec<DriveView> {
        let state_2 = self.drive_2.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let drive = |id: u32| DriveView {
            host: 1,
            leaving_shards: None,
            id,
            uuid: Guid([id as u8; 16]).to_string(),
            path: format!("/srv/drive-{id}"),
            size_bytes: DRIVE_BYTES,
            used_bytes: USED_BYTES,
            domain: id as u16,
            state: if id == 2 { state_2.clone() } else { "active".to_owned() },
            problem: None,
            errors: 0,
        };
        (1..=6).map(drive).collect()
    }

    fn partition_views(&self) -> Vec<PartitionView> {
        let partition = |id| PartitionView {
            id,
            term: 3,
            primary: Some(1),
            members: vec![1],
            learners: Vec::new(),
            copies: 1,
            state: "serving".to_owned(),
            problem: None,
            applied: 1000,
            staged_bytes: 4096,
            log_bytes: 64 << 20,
        };
        (0..2).map(partition).collect()
    }

    fn fs_view(&self, fs: Filesystem) -> FilesystemView {
        let stores = stores::list(&self.coordinator).expect("memory");
        FilesystemView {
            stores: attachments::views(&fs, &stores),
            ssd_bytes: fs.ssd_bytes,
            object_mib: fs.object_mib,
            id: fs.id.0,
            uuid: fs.uuid.to_string(),
            name: fs.name,
            group: fs.group,
            used_bytes: USED_BYTES,
            total_bytes: fs.total_bytes.unwrap_or(16 << 30),
            limited: fs.total_bytes.is_some(),
            inodes: 12,
            state: if fs.removing { "removing" } else { "ready" }.to_owned(),
            created_s: fs.created_s,
            flash_bytes: USED_BYTES,
            flash_short: false,
            waiting_writes: 0,
            due_bytes: 0,
            due_since_s: None,
        }
    }

    fn host_views(&self) -> Vec<HostView> {
        let (name, state, failure_domain) = ("box".to_owned(), "up".to_owned(), "box".to_owned());
        let (addresses, drives, clock_ahead_ms) = (vec![], 6, Some(0));
        vec![HostView { id: 1, name, addresses, failure_domain, state, drives, leads: 2, copies: 2, clock_ahead_ms }]
    }

    fn group_view(&self, name: &str) -> Result<GroupView> {
        let missing = || Error::new(ErrorKind::NotFound, "no such group");
        groups::list(&self.coordinator)?.into_iter().find(|group| group.name == name).ok_or_else(missing)
    }

    fn mounts_now(&self) -> Vec<MountView> {
        self.mounts.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn status_now(&self) -> Result<Status> {
        let protection = Protection { data: 4, parity: 2 };
        let (drives, partitions) = (self.drive_views(), self.partition_views());
        let (state, problems) = judge(protection, &drives, &partitions);
        let raw_bytes = 6 * DRIVE_BYTES;
        let net_bytes = capacity::net_bytes(raw_bytes, protection, 6, 0);
        Ok(Status {
            state,
            problems,
            name: "fake".to_owned(),
            guid: Guid([9; 16]).to_string(),
            version: "0.1.0".to_owned(),
            pid: std::process::id(),
            uptime_s: 61,
            protection: protection.to_string(),
            close_packs: 0,
            shard_bytes: 8 << 20,
            healing: HealingView { lost_packs: 3, ..HealingView::default() },
            hosts: self.host_views(),
            drives,
            partitions,
            capacity: Capacity {
                raw_bytes,
                hot_spares: 0,
                net_bytes,
                used_bytes: USED_BYTES,
                free_bytes: net_bytes - USED_BYTES,
            },
            filesystems: filesystems::list(&self.coordinator)?.len() as u64,
            mounts: self.mounts_now(),
        })
    }

    fn steps() -> Vec<StepView> {
        vec![StepView { what: "PUT of one byte".to_owned(), took_ms: 3 }]
    }

    /// Host box sees all, host barn has lost the way for downloads, host shed says nothing.
    fn seen(&self) -> Seen {
        let link = |up| LinkReport { up: Some(up), since_s: 7, last_error: (!up).then(|| "no route".to_owned()) };
        let of = |store: &ObjectStore, download| StoreReport {
            store: store.id,
            upload: link(true),
            download: link(download),
            ..StoreReport::default()
        };
        let known = stores::list(&self.coordinator).expect("memory");
        let said = |download| known.iter().map(|store| of(store, download)).collect();
        let reports = vec![("box".to_owned(), said(true)), ("barn".to_owned(), said(false))];
        Seen { reports, silent: vec!["shed".to_owned()] }
    }

    fn store_down() -> Event {
        let event = Event::new(EventType::STORE_DOWN, "object store cold: uploads fail: no route");
        Event { id: 1, at_ms: NOW_MS - 90_000, count: 3, ..event.about("object_store", "cold") }
    }

    /// Of host box, and of host shed, which says nothing.
    fn events_of(&self, query: &EventQuery) -> Result<EventsView> {
        let filter = events::filter(query, NOW_MS)?;
        let kept = self.events.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let found = kept.into_iter().filter(|event| filter.wants(event)).collect();
        let view = events::view(&Snapshot::default(), &filter, vec![(HostId(1), Ok(found))], query.local)?;
        Ok(EventsView { silent_hosts: if query.local { Vec::new() } else { vec!["shed".to_owned()] }, ..view })
    }

    fn tell(&self, spec: &EventSpec) -> Result<()> {
        let mut events = self.events.lock().unwrap_or_else(PoisonError::into_inner);
        let id = events.len() as u64 + 1;
        events.push(Event { id, at_ms: NOW_MS, ..events::custom(&spec.text)? });
        Ok(())
    }

    fn store_ops() -> Vec<StoreOp> {
        let op = |id, kind: &str, ongoing| StoreOp {
            id,
            key: format!("B_1/key-{id}"),
            kind: kind.to_owned(),
            took_ms: 1_250,
            ongoing,
            started_ms: 1_700_000_000_500,
            size: 24 << 20,
            results: if ongoing { String::new() } else { "IO: 2, SUCCESS: 1".to_owned() },
            line_errors: 2,
            last_http_error: (!ongoing).then(|| "HTTP 503 SlowDown".to_owned()),
            concurrency: 1,
            inode: Some(77),
            ..StoreOp::default()
        };
        vec![op(2, "DOWNLOAD", true), op(1, "UPLOAD", false)]
    }

    fn add_store(&self, spec: &ObjectStoreSpec) -> Result<ObjectStoreDone> {
        let planned = stores::plan_add(&self.coordinator, spec)?;
        let steps = if spec.skip_verification { Vec::new() } else { Self::steps() };
        let store = if spec.dry_run {
            ObjectStore { id: StoreId(0), name: spec.name.clone(), spec: planned }
        } else {
            stores::add(&self.coordinator, &spec.name, planned)?
        };
        Ok(ObjectStoreDone { store: stores::view(&store, &[]), steps, recorded: !spec.dry_run })
    }

    fn remove(&self, name: &str) -> Result<()> {
        if self.mounts_now().iter().any(|mount| mount.filesystem == name) {
            return Err(Error::new(ErrorKind::Refused, format!("file system {name} is mounted: unmount it first")));
        }
        let fs = filesystems::start_remove(&self.coordinator, name)?;
        filesystems::forget(&self.coordinator, &fs)
    }
}

fn now<'a, T: Send + 'a>(value: Result<T>) -> Answer<'a, T> {
    Box::pin(async move { value })
}

impl Control for Fake {
    fn settings(&self) -> Answer<'_, SettingsView> {
        now(settings::read(&self.coordinator).map(|settings| settings.view()))
    }

    fn settings_update(&self, change: SettingsChange) -> Answer<'_, SettingsView> {
        now(settings::update(&self.coordinator, &change, OnDrives::default(), |size| size)
            .map(|settings| settings.view()))
    }

    fn lost(&self) -> Answer<'_, LostList> {
        let why = "object missing".to_owned();
        let (store, object) = (Some("cold".to_owned()), Some("B_1/key".to_owned()));
        let (filesystem, since_s) = ("one".to_owned(), Some(1_700_000_000));
        let part = LostView { filesystem, inode: 77, offset: 4096, bytes: 8192, why, store, object, since_s };
        now(Ok(LostList { parts: vec![part], more: false, silent_partitions: vec![1], unchecked_packs: 2 }))
    }

    fn status(&self) -> Answer<'_, Status> {
        now(self.status_now())
    }

    fn hosts(&self) -> Answer<'_, Vec<HostView>> {
        now(Ok(self.host_views()))
    }

    fn host_add(&self, spec: HostSpec) -> Answer<'_, Vec<HostView>> {
        let view = |name: String| HostView { id: 2, name, ..self.host_views().swap_remove(0) };
        now(Ok(spec.names.into_iter().map(view).collect()))
    }

    fn host_remove(&self, name: String, how: Removal) -> Answer<'_, ()> {
        let refused = Error::new(ErrorKind::Refused, format!("without host {name}: no host would be left"));
        now(if how == Removal::Safe { Err(refused) } else { Ok(()) })
    }

    fn drives(&self) -> Answer<'_, Vec<DriveView>> {
        now(Ok(self.drive_views()))
    }

    fn drive_add(&self, spec: DriveSpec) -> Answer<'_, DriveView> {
        now(Ok(DriveView { id: 7, path: spec.path, ..self.drive_views().swap_remove(0) }))
    }

    fn drive_remove(&self, id: u32, how: Removal) -> Answer<'_, ()> {
        let error = |kind| Err(Error::new(kind, format!("drive d{id}")));
        now(match id {
            6 if how == Removal::Safe => error(ErrorKind::Refused),
            5 if how == Removal::Abandoned => error(ErrorKind::Refused),
            1..=6 => Ok(()),
            _ => error(ErrorKind::NotFound),
        })
    }

    fn drive_activate(&self, id: u32) -> Answer<'_, ()> {
        self.drive_remove(id, Removal::Forced)
    }

    fn partitions(&self) -> Answer<'_, Vec<PartitionView>> {
        now(Ok(self.partition_views()))
    }

    fn filesystems(&self) -> Answer<'_, Vec<FilesystemView>> {
        now(filesystems::list(&self.coordinator).map(|all| all.into_iter().map(|fs| self.fs_view(fs)).collect()))
    }

    fn fs_add(&self, spec: FsSpec) -> Answer<'_, FilesystemView> {
        now(filesystems::add(&self.coordinator, &spec, Guid([1; 16]), 1_700_000_000).map(|fs| self.fs_view(fs)))
    }

    fn fs_update(&self, name: String, change: FsChange) -> Answer<'_, FilesystemView> {
        now(filesystems::update(&self.coordinator, &name, &change, USED_BYTES).map(|fs| self.fs_view(fs)))
    }

    fn fs_remove(&self, name: String) -> Answer<'_, ()> {
        now(self.remove(&name))
    }

    fn groups(&self) -> Answer<'_, Vec<GroupView>> {
        now(groups::list(&self.coordinator))
    }

    fn group_add(&self, spec: GroupSpec) -> Answer<'_, GroupView> {
        now(groups::add(&self.coordinator, &spec).and_then(|group| self.group_view(&group.name)))
    }

    fn group_update(&self, spec: GroupSpec) -> Answer<'_, GroupView> {
        now(groups::update(&self.coordinator, &spec).and_then(|group| self.group_view(&group.name)))
    }

    fn group_remove(&self, name: String) -> Answer<'_, ()> {
        now(groups::remove(&self.coordinator, &name))
    }

    fn stores(&self) -> Answer<'_, Vec<ObjectStoreView>> {
        let filesystems = filesystems::list(&self.coordinator).expect("memory");
        let seen = self.seen();
        let view = |store: &ObjectStore| seen.show(stores::view(store, &filesystems));
        now(stores::list(&self.coordinator).map(|all| all.iter().map(view).collect()))
    }

    fn store_operations(&self, name: String) -> Answer<'_, OperationsView> {
        let told = |store: ObjectStore| match store.name.as_str() {
            "cold" => vec![("box".to_owned(), Self::store_ops())],
            _ => Vec::new(),
        };
        let view = |told| OperationsView { operations: seen::operations(told), silent_hosts: vec!["shed".to_owned()] };
        now(stores::find(&self.coordinator, &name).map(|found| view(told(found.value))))
    }

    fn store_audit(&self, name: String, spec: AuditSpec) -> Answer<'_, AuditView> {
        let view = |store: ObjectStore| AuditView {
            store: store.name,
            state: "running".to_owned(),
            remove: spec.remove,
            ..AuditView::default()
        };
        now(stores::find(&self.coordinator, &name).map(|found| view(found.value)))
    }

    fn store_audited(&self, name: String) -> Answer<'_, AuditView> {
        let found = FoundView { count: 1, bytes: 7, keys: vec!["B_1/key".to_owned()] };
        let view = |store: ObjectStore| AuditView {
            store: store.name,
            state: "done".to_owned(),
            unknown: found,
            ..AuditView::default()
        };
        now(stores::find(&self.coordinator, &name).map(|found| view(found.value)))
    }

    fn holdings(&self, filesystem: Option<String>) -> Answer<'_, HoldingsView> {
        let (all, stores) = (filesystems::list(&self.coordinator).expect("memory"), stores::list(&self.coordinator));
        let only = match filesystem.map(|name| filesystems::find(&self.coordinator, &name)) {
            Some(Err(error)) => return now(Err(error)),
            Some(Ok(found)) => Some(found.value.id),
            None => None,
        };
        let sum = Stored { objects: 2, bytes: 8_192, held: 6_000, live: 5_000 };
        let data = |fs: &Filesystem| SeatData {
            stored: fs.stores.iter().map(|attached| ((fs.id, attached.store), sum)).collect(),
            ..SeatData::default()
        };
        let seats: Vec<SeatData> = all.iter().map(data).collect();
        now(stores
            .map(|stores| HoldingsView { holdings: stores::held((&all, &stores), only, &seats), silent_partitions: 1 }))
    }

    fn store_add(&self, spec: ObjectStoreSpec) -> Answer<'_, ObjectStoreDone> {
        now(self.add_store(&spec))
    }

    fn store_update(&self, name: String, change: ObjectStoreChange) -> Answer<'_, ObjectStoreDone> {
        let plan = stores::plan_update(&self.coordinator, &name, &change);
        now(plan.and_then(|plan| {
            let steps = if plan.reached_anew { Self::steps() } else { Vec::new() };
            let store = stores::view(&stores::update(&self.coordinator, plan)?, &[]);
            Ok(ObjectStoreDone { store, steps, recorded: true })
        }))
    }

    fn store_remove(&self, name: String, _force: bool) -> Answer<'_, ()> {
        now(stores::remove(&self.coordinator, &name, None))
    }

    fn store_attach(&self, fs: String, spec: AttachSpec) -> Answer<'_, FilesystemView> {
        now(attachments::attach(&self.coordinator, &fs, &spec, 1_700_000_000).map(|fs| self.fs_view(fs)))
    }

    fn store_detach(&self, fs: String, store: String, give_up: bool) -> Answer<'_, FilesystemView> {
        let room = Room { used_bytes: USED_BYTES, free_bytes: DRIVE_BYTES, ..Room::default() };
        let detached = attachments::start_detach(&self.coordinator, &fs, &store, room, give_up);
        now(detached.map(|fs| self.fs_view(fs)))
    }

    fn mounts(&self) -> Answer<'_, Vec<MountView>> {
        now(Ok(self.mounts_now()))
    }

    fn client(&self, spec: ClientSpec) -> Answer<'_, ClientView> {
        let (cluster, socket) = (spec.filesystem, "/braid.sock".to_owned());
        let (addresses, secret, ca) = (Vec::new(), String::new(), String::new());
        now(Ok(ClientView { client: 5, fs: 1, root: 1, total_bytes: 1 << 30, cluster, socket, addresses, secret, ca }))
    }

    fn mount(&self, spec: MountSpec) -> Answer<'_, MountView> {
        now(filesystems::find(&self.coordinator, &spec.filesystem).map(|_| {
            let view = MountView { filesystem: spec.filesystem, path: spec.path, client: 1, since_s: 0, pid: 7 };
            self.mounts.lock().unwrap_or_else(PoisonError::into_inner).push(view.clone());
            view
        }))
    }

    fn umount(&self, path: String) -> Answer<'_, ()> {
        let mut mounts = self.mounts.lock().unwrap_or_else(PoisonError::into_inner);
        let before = mounts.len();
        mounts.retain(|mount| mount.path != path);
        let missing = Error::new(ErrorKind::NotFound, format!("{path} is no mount of this cluster"));
        now(if mounts.len() < before { Ok(()) } else { Err(missing) })
    }

    fn events(&self, query: EventQuery) -> Answer<'_, EventsView> {
        now(self.events_of(&query))
    }

    fn event_trigger(&self, spec: EventSpec) -> Answer<'_, ()> {
        now(self.tell(&spec))
    }

    fn samples(&self) -> Answer<'_, Vec<Sample>> {
        let sample = |op: &str, value| Sample {
            name: "requests_total",
            help: "Requests served.",
            kind: SampleKind::Counter,
            labels: vec![("op", op.to_owned())],
            value,
        };
        now(Ok(vec![sample("lookup", 7.0), sample("odd\"one\\", 2.5)]))
    }

    fn shutdown(&self) -> Answer<'_, ()> {
        now(Ok(()))
    }
}
