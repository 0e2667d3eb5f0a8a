//! What the door asks of the process behind it.

use std::future::Future;
use std::pin::Pin;

use braid_base::Result;
use braid_cluster::removal::Removal;
use braid_cluster::view::events::{EventQuery, EventSpec, EventsView};
use braid_cluster::view::stores::{
    AttachSpec, AuditSpec, AuditView, HoldingsView, ObjectStoreChange, ObjectStoreDone, ObjectStoreSpec,
    ObjectStoreView, OperationsView,
};
use braid_cluster::view::{
    ClientSpec, ClientView, DriveSpec, DriveView, FilesystemView, FsChange, FsSpec, GroupSpec, GroupView, HostSpec,
    HostView, LostList, MountSpec, MountView, PartitionView, SettingsChange, SettingsView, Status,
};

/// The future of one answer.
pub type Answer<'a, T> = Pin<Box<dyn Future<Output = Result<T>> + Send + 'a>>;

/// A running cluster, as an administrator sees and changes it.
pub trait Control: Send + Sync {
    /// Everything at a glance.
    fn status(&self) -> Answer<'_, Status>;

    /// The parts of files that cannot be read because too few shards are left, or because their object is missing or damaged,
    /// as far as that is known.
    fn lost(&self) -> Answer<'_, LostList>;

    /// The hosts, ordered by number.
    fn hosts(&self) -> Answer<'_, Vec<HostView>>;

    /// Takes hosts in that wait for it.
    fn host_add(&self, spec: HostSpec) -> Answer<'_, Vec<HostView>>;

    /// Begins to empty the host called `name`; it is removed when it holds nothing any more. `Refused` where the data
    /// would be less protected, or have no room, unless it is forced; and if one is abandoned that lives.
    fn host_remove(&self, name: String, how: Removal) -> Answer<'_, ()>;

    /// The drives, ordered by number, lost ones included.
    fn drives(&self) -> Answer<'_, Vec<DriveView>>;

    /// Adds a drive to the host that is asked; it takes data when this returns.
    fn drive_add(&self, spec: DriveSpec) -> Answer<'_, DriveView>;

    /// Begins to empty drive `id`; it is removed when nothing lies on it any more. `Refused` where what is stored would
    /// have no room, or be less protected, unless it is forced; and if one is abandoned that answers.
    fn drive_remove(&self, id: u32, how: Removal) -> Answer<'_, ()>;

    /// Keeps drive `id`, which is being emptied. `Refused` if it is not.
    fn drive_activate(&self, id: u32) -> Answer<'_, ()>;

    /// What was set for the whole cluster.
    fn settings(&self) -> Answer<'_, SettingsView>;

    /// Changes that. `Refused` if what is stored would not fit beside the spare failure domains.
    fn settings_update(&self, change: SettingsChange) -> Answer<'_, SettingsView>;

    /// The partitions, ordered by number.
    fn partitions(&self) -> Answer<'_, Vec<PartitionView>>;

    /// The file systems, ordered by number.
    fn filesystems(&self) -> Answer<'_, Vec<FilesystemView>>;

    /// Adds a file system; it can be mounted when this returns.
    fn fs_add(&self, spec: FsSpec) -> Answer<'_, FilesystemView>;

    /// Changes the file system `name`.
    fn fs_update(&self, name: String, change: FsChange) -> Answer<'_, FilesystemView>;

    /// Removes the file system `name` with all that is in it; `Refused` while it is mounted.
    fn fs_remove(&self, name: String) -> Answer<'_, ()>;

    /// The groups of file systems.
    fn groups(&self) -> Answer<'_, Vec<GroupView>>;

    /// Adds a group.
    fn group_add(&self, spec: GroupSpec) -> Answer<'_, GroupView>;

    /// Changes the group `spec.name`.
    fn group_update(&self, spec: GroupSpec) -> Answer<'_, GroupView>;

    /// Removes the group `name`; `Refused` while a file system is in it.
    fn group_remove(&self, name: String) -> Answer<'_, ()>;

    /// The object stores, ordered by number.
    fn stores(&self) -> Answer<'_, Vec<ObjectStoreView>>;

    /// What the hosts do at the object store `name`, and what they did last.
    fn store_operations(&self, name: String) -> Answer<'_, OperationsView>;

    /// Begins to compare what lies in the object store `name` with what the partitions know, in the background. `Refused` while
    /// that is under way.
    fn store_audit(&self, name: String, spec: AuditSpec) -> Answer<'_, AuditView>;

    /// What the audit of the object store `name` that was begun last has found so far.
    fn store_audited(&self, name: String) -> Answer<'_, AuditView>;

    /// What the file system of that name, or all, hold in object stores.
    fn holdings(&self, filesystem: Option<String>) -> Answer<'_, HoldingsView>;

    /// Adds an object store after it was tried, or only tries it. The error names the step that failed and its likely cause.
    fn store_add(&self, spec: ObjectStoreSpec) -> Answer<'_, ObjectStoreDone>;

    /// Changes the object store `name`, likewise.
    fn store_update(&self, name: String, change: ObjectStoreChange) -> Answer<'_, ObjectStoreDone>;

    /// Removes the object store `name`, and nothing that lies in it; `Refused` while a file system uses it, and unless `force`
    /// while objects of removed ones wait there to be removed.
    fn store_remove(&self, name: String, force: bool) -> Answer<'_, ()>;

    /// Attaches an object store to the file system `fs`.
    fn store_attach(&self, fs: String, spec: AttachSpec) -> Answer<'_, FilesystemView>;

    /// Begins to detach `store` from the file system `fs`; it is gone when nothing lies there any more. `Refused` if what
    /// is there would not fit on flash. With `give_up` objects that the store does not remove are left there.
    fn store_detach(&self, fs: String, store: String, give_up: bool) -> Answer<'_, FilesystemView>;

    /// The mounts, ordered by path.
    fn mounts(&self) -> Answer<'_, Vec<MountView>>;

    /// Mounts a file system; the mount answers when this returns.
    fn mount(&self, spec: MountSpec) -> Answer<'_, MountView>;

    /// Makes a number for a client in a process of its own, and says what that process needs to know.
    fn client(&self, spec: ClientSpec) -> Answer<'_, ClientView>;

    /// Takes the mount at `path` away. `Refused`, naming who holds it, while it is in use.
    fn umount(&self, path: String) -> Answer<'_, ()>;

    /// Events that the hosts have kept. `Invalid` if the query makes no sense.
    fn events(&self, query: EventQuery) -> Answer<'_, EventsView>;

    /// Tells an event of type `Custom`.
    fn event_trigger(&self, spec: EventSpec) -> Answer<'_, ()>;

    /// Counters and gauges of all parts, for `/metrics`.
    fn samples(&self) -> Answer<'_, Vec<Sample>>;

    /// Stops everything cleanly: mounts go (lazily if in use), logs are flushed, drives closed. Called once.
    fn shutdown(&self) -> Answer<'_, ()>;
}

/// One number of `/metrics`.
#[derive(Clone, Debug, PartialEq)]
pub struct Sample {
    /// Name without the leading `braid_`, unit last; counters end in `_total`.
    pub name: &'static str,
    /// One sentence.
    pub help: &'static str,
    /// Counter or gauge.
    pub kind: SampleKind,
    /// What tells samples of one name apart, such as `("drive", "3")`.
    pub labels: Vec<(&'static str, String)>,
    /// The number.
    pub value: f64,
}

/// How a [`Sample`] moves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SampleKind {
    /// Only up, from 0 at the start of the process.
    Counter,
    /// Up and down.
    Gauge,
}
