//! Object stores: what an administrator asks for, between the records and the links of this host.

use std::collections::BTreeMap;
use std::sync::Arc;

use braid_base::ids::{FsId, StoreId, Term};
use braid_base::msg::event::EventType;
use braid_base::msg::host::{SeatReport, Stored};
use braid_base::{Error, ErrorKind, Result};
use braid_cluster::attachments::{Progress, Room};
use braid_cluster::facts::{Filesystem, ObjectStore};
use braid_cluster::snapshot::Snapshot;
use braid_cluster::stores::seen::{self, Seen};
use braid_cluster::view::FilesystemView;
use braid_cluster::view::stores::{
    AttachSpec, AttachmentView, AuditSpec, AuditView, HoldingsView, LinkView, ObjectStoreChange, ObjectStoreDone,
    ObjectStoreSpec, ObjectStoreView, OperationsView,
};
use braid_cluster::{attachments, filesystems, stores};

use super::super::views;
use super::Node;

/// Where the bytes of a file system are.
struct Holds {
    /// On flash.
    own_bytes: u64,
    /// Bytes of flash that other file systems leave it.
    free_bytes: u64,
    /// In stores.
    stored: BTreeMap<StoreId, Stored>,
}

impl Holds {
    fn stored(&self, store: StoreId) -> Stored {
        self.stored.get(&store).copied().unwrap_or_default()
    }
}

impl Node {
    /// All stores, as the hosts see them when they ask them.
    pub(super) async fn store_views(&self) -> Result<Vec<ObjectStoreView>> {
        let now = self.read_or_recorded()?;
        self.store_views_of(&now, true).await
    }

    /// All stores of `now`, as the hosts see them; with `look` they ask them first.
    pub(super) async fn store_views_of(&self, now: &Snapshot, look: bool) -> Result<Vec<ObjectStoreView>> {
        if now.object_stores.is_empty() {
            return Ok(Vec::new());
        }
        let seen = self.seen(now, look).await?;
        Ok(now.object_stores.iter().map(|store| seen.show(stores::view(store, &now.filesystems))).collect())
    }

    async fn seen(&self, now: &Snapshot, look: bool) -> Result<Seen> {
        Ok(Seen::new(now, self.host()?.stores(look).await))
    }

    /// What was just added is to be seen, and a coordinator that is away is no reason to show nothing.
    fn read_or_recorded(&self) -> Result<Arc<Snapshot>> {
        match self.asked(Snapshot::read) {
            Ok(now) => Ok(Arc::new(now)),
            Err(_) => Ok(self.recorded()?.0),
        }
    }

    pub(super) async fn operations_at(&self, name: String) -> Result<OperationsView> {
        let store = self.asked(|c| stores::find(c, &name))?.value;
        let now = self.recorded()?.0;
        let (mut told, mut answered) = (Vec::new(), Vec::new());
        for (host, operations) in self.host()?.store_ops(store.id).await {
            match operations {
                Ok(operations) => {
                    answered.push(host);
                    told.push((seen::host_name(&now, host), operations));
                }
                // It has not heard of the store yet.
                Err(error) if error.kind() == ErrorKind::NotFound => answered.push(host),
                Err(error) => tracing::warn!("host {host} tells of no operations at {name}: {error}"),
            }
        }
        let silent_hosts = seen::silent(&now, |host| answered.contains(&host));
        Ok(OperationsView { operations: seen::operations(told), silent_hosts })
    }

    pub(super) async fn audit_start(&self, name: String, spec: AuditSpec) -> Result<AuditView> {
        let store = self.asked(|c| stores::find(c, &name))?.value;
        let partitions = self.recorded()?.0.partitions.len();
        self.tiers_changed();
        self.stores.audits.start(&self.host()?, (&store, partitions), spec.remove)
    }

    pub(super) async fn audit_last(&self, name: String) -> Result<AuditView> {
        let store = self.asked(|c| stores::find(c, &name))?.value;
        let none = || {
            let text = format!("object store {name} was not audited here: begin with `braid fs tier audit {name}`");
            Error::new(ErrorKind::NotFound, text)
        };
        self.stores.audits.last(store.id).ok_or_else(none)
    }

    pub(super) async fn held(&self, filesystem: Option<String>) -> Result<HoldingsView> {
        let now = self.read_or_recorded()?;
        let only = match &filesystem {
            Some(name) => Some(self.asked(|c| filesystems::find(c, name))?.value.id),
            None => None,
        };
        let reports = self.serving().await?;
        let partitions = reports.iter().map(|report| &report.data);
        let holdings = stores::held((&now.filesystems, &now.object_stores), only, partitions);
        let silent_partitions = now.partitions.len().saturating_sub(reports.len()) as u64;
        Ok(HoldingsView { holdings, silent_partitions })
    }

    /// What the partitions say that are served somewhere.
    async fn serving(&self) -> Result<Vec<SeatReport>> {
        let reports = self.host()?.partitions().await;
        Ok(reports.into_iter().filter(|report| report.term != Term(0)).collect())
    }

    pub(super) async fn add_store(&self, spec: ObjectStoreSpec) -> Result<ObjectStoreDone> {
        let planned = self.asked(|c| stores::plan_add(c, &spec))?;
        let steps = self.stores.tried(&planned, spec.skip_verification).await?;
        let store = if spec.dry_run {
            ObjectStore { id: StoreId(0), name: spec.name, spec: planned }
        } else {
            let store = self.asked(|c| stores::add(c, &spec.name, planned))?;
            self.tell_store(EventType::STORE_ADDED, &store.name, "added");
            self.tiers_changed();
            store
        };
        Ok(ObjectStoreDone { store: stores::view(&store, &[]), steps, recorded: !spec.dry_run })
    }

    pub(super) async fn update_store(&self, name: String, change: ObjectStoreChange) -> Result<ObjectStoreDone> {
        let plan = self.asked(|c| stores::plan_update(c, &name, &change))?;
        // How fast a store is used says nothing about whether it can be.
        let leave_out = change.skip_verification || !(plan.reached_anew || change.dry_run);
        let steps = self.stores.tried(&plan.store.spec, leave_out).await?;
        let store = if change.dry_run {
            plan.store
        } else {
            let store = self.asked(|c| stores::update(c, plan))?;
            self.tell_store(EventType::STORE_UPDATED, &name, &Self::changed(&name, &store.name));
            self.tiers_changed();
            store
        };
        let now = self.read_or_recorded()?;
        let view = self.seen(&now, false).await?.show(stores::view(&store, &now.filesystems));
        Ok(ObjectStoreDone { store: view, steps, recorded: !change.dry_run })
    }

    pub(super) async fn remove_store(&self, name: String, force: bool) -> Result<()> {
        let id = self.asked(|c| stores::find(c, &name))?.value.id;
        let reports = self.serving().await?;
        let waiting = stores::waiting(id, usize::from(self.cluster.partitions), reports.iter().map(|seat| &seat.data));
        self.asked(|c| stores::remove(c, &name, (!force).then_some(waiting)))?;
        self.tell_store(EventType::STORE_REMOVED, &name, "removed");
        self.tiers_changed();
        Ok(())
    }

    pub(super) async fn attach_store(&self, fs: String, spec: AttachSpec) -> Result<FilesystemView> {
        let record = self.asked(|c| attachments::attach(c, &fs, &spec, views::now_s()))?;
        self.tell_attachment(EventType::STORE_ATTACHED, &fs, &spec.store, "was attached to");
        self.tiers_changed();
        self.view(&record).await
    }

    pub(super) async fn detach_store(&self, fs: String, store: String, give_up: bool) -> Result<FilesystemView> {
        let record = self.asked(|c| filesystems::find(c, &fs))?.value;
        let id = self.asked(|c| stores::find(c, &store))?.value.id;
        let used_bytes = self.view(&record).await?.used_bytes;
        let flash = self.holds(record.id, &self.serving().await?)?;
        let stored_bytes = flash.stored(id).live;
        let room = Room { used_bytes, flash_bytes: flash.own_bytes, stored_bytes, free_bytes: flash.free_bytes };
        let before = record.attachment(id).is_some_and(|attached| attached.detaching);
        let record = self.asked(|c| attachments::start_detach(c, &fs, &store, room, give_up))?;
        if !before {
            self.tell_attachment(EventType::STORE_DETACHING, &fs, &store, "is being detached from");
        }
        self.tiers_changed();
        self.view(&record).await
    }

    /// Adds to the `views` of the stores of `record` how far those are that are being detached.
    pub(super) async fn show_progress(&self, record: &Filesystem, views: &mut [AttachmentView]) -> Result<()> {
        let flash = self.holds(record.id, &self.serving().await?)?;
        let now = self.read_or_recorded()?;
        let seen = self.store_views_of(&now, false).await?;
        let fails = |store: StoreId, of: fn(&ObjectStoreView) -> &LinkView| {
            let link = of(seen.iter().find(|view| view.id == store.0)?);
            let why = || link.last_error.clone().unwrap_or_else(|| "it does not answer".to_owned());
            (link.nodes_down > 0).then(why)
        };
        let bound_bytes = record.ssd_bytes.or(record.total_bytes).unwrap_or(u64::MAX);
        let room_bytes = bound_bytes.min(flash.free_bytes).saturating_sub(flash.own_bytes);
        let to = record.writable();
        for (attached, view) in record.stores.iter().zip(views).filter(|(attached, _)| attached.detaching) {
            let progress = Progress {
                left: flash.stored(attached.store),
                room_bytes: to.is_none().then_some(room_bytes),
                unread: fails(attached.store, |view| &view.download),
                unremoved: fails(attached.store, |view| &view.remove),
                untaken: to.and_then(|to| fails(to, |view| &view.upload)),
                give_up: attached.give_up,
            };
            attachments::show_progress(view, &progress);
        }
        Ok(())
    }

    /// What `fs` has on flash and in stores, and how much of flash the other file systems leave it, as `reports` say.
    fn holds(&self, fs: FsId, reports: &[SeatReport]) -> Result<Holds> {
        let mut holds = Holds { own_bytes: 0, free_bytes: self.host()?.capacity(), stored: BTreeMap::new() };
        for SeatReport { data, .. } in reports {
            for (other, bytes) in &data.flash_by_fs {
                if *other == fs {
                    holds.own_bytes += bytes;
                } else {
                    holds.free_bytes = holds.free_bytes.saturating_sub(*bytes);
                }
            }
            for ((_, store), stored) in data.stored.iter().filter(|((other, _), _)| *other == fs) {
                let sum = holds.stored.entry(*store).or_default();
                (sum.objects, sum.live) = (sum.objects + stored.objects, sum.live + stored.live);
            }
        }
        Ok(holds)
    }

    /// This host goes by it at once, and not when it hears of the change: what was attached just now can be used. If that
    /// cannot be, it hears of it.
    pub(super) fn tiers_changed(&self) {
        if let (Ok(host), Ok(now)) = (self.host(), self.asked(Snapshot::read)) {
            host.follow_tiers(&now);
        }
    }
}
