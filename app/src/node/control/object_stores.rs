//! Object stores: what an administrator asks for, between the records and the links of this host.

use braid_base::Result;
use braid_base::ids::StoreId;
use braid_cluster::facts::ObjectStore;
use braid_cluster::snapshot::Snapshot;
use braid_cluster::view::FilesystemView;
use braid_cluster::view::stores::{AttachSpec, ObjectStoreChange, ObjectStoreDone, ObjectStoreSpec, ObjectStoreView};
use braid_cluster::{attachments, filesystems, stores};

use super::super::filesystems::Way;
use super::super::{stores as links, views};
use super::Node;

impl Node {
    /// All stores, as they are known now.
    pub(super) fn store_views_known(&self, recorded: &Snapshot) -> Vec<ObjectStoreView> {
        let view = |store| self.stores.view(store, &recorded.filesystems);
        recorded.object_stores.iter().map(view).collect()
    }

    pub(super) async fn store_views(&self) -> Result<Vec<ObjectStoreView>> {
        let me = match &self.way {
            Way::Here => None,
            Way::Network(network) => Some(network.host),
        };
        if !links::keeps(&self.recorded()?.0, me) {
            // Another host asks the stores each second: what this one saw last may be long ago.
            self.stores.look().await;
        }
        // What was just added is to be seen, and a coordinator that is away is no reason to show nothing.
        match self.asked(Snapshot::read) {
            Ok(now) => Ok(self.store_views_known(&now)),
            Err(_) => Ok(self.store_views_known(&self.recorded()?.0)),
        }
    }

    pub(super) async fn add_store(&self, spec: ObjectStoreSpec) -> Result<ObjectStoreDone> {
        let planned = self.asked(|c| stores::plan_add(c, &spec))?;
        let steps = self.stores.tried(&planned, spec.skip_verification).await?;
        let store = if spec.dry_run {
            ObjectStore { id: StoreId(0), name: spec.name, spec: planned }
        } else {
            let store = self.asked(|c| stores::add(c, &spec.name, planned))?;
            self.stores_changed()?;
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
            self.stores_changed()?;
            store
        };
        let filesystems = self.asked(filesystems::list)?;
        Ok(ObjectStoreDone { store: self.stores.view(&store, &filesystems), steps, recorded: !change.dry_run })
    }

    pub(super) async fn remove_store(&self, name: String) -> Result<()> {
        self.asked(|c| stores::remove(c, &name))?;
        self.stores_changed()
    }

    pub(super) async fn attach_store(&self, fs: String, spec: AttachSpec) -> Result<FilesystemView> {
        let record = self.asked(|c| attachments::attach(c, &fs, &spec, views::now_s()))?;
        self.view(&record).await
    }

    pub(super) async fn detach_store(&self, fs: String, store: String) -> Result<FilesystemView> {
        let record = self.asked(|c| filesystems::find(c, &fs))?.value;
        let used_bytes = self.view(&record).await?.used_bytes;
        let capacity = self.host()?.capacity();
        let flash_bytes = record.ssd_bytes.or(record.total_bytes).map_or(capacity, |bytes| bytes.min(capacity));
        let room = (used_bytes, flash_bytes);
        let record = self.asked(|c| attachments::start_detach(c, &fs, &store, room))?;
        self.view(&record).await
    }

    /// The links follow at once, and not when this host hears of the change.
    fn stores_changed(&self) -> Result<()> {
        self.stores.set(&self.asked(stores::list)?);
        Ok(())
    }
}
