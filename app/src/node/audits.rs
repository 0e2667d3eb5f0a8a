//! Audits of object stores: one at a time for each store, on the host that is asked, in the background; and one of each
//! store in a week, which changes nothing.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use braid_base::ids::StoreId;
use braid_base::{Error, ErrorKind, Result};
use braid_cluster::facts::ObjectStore;
use braid_cluster::snapshot::Snapshot;
use braid_cluster::view::stores::{AuditView, FoundView};
use braid_host::run::{Audited, Found, Host};
use braid_io::clock::mono_ms;
use tokio::task::AbortHandle;

use super::views::now_s;

const DAY_MS: u64 = 24 * 3_600_000;
/// From one audit of a store that nobody asked for to the next, milliseconds.
const PERIOD_MS: u64 = 7 * DAY_MS;
/// After one that failed the next begins so much later, milliseconds.
const AGAIN_MS: u64 = 3_600_000;
/// The first begins so long after this host began to look after the stores, milliseconds.
const FIRST_MS: u64 = DAY_MS;

/// The last audit of each store.
#[derive(Clone, Default)]
pub struct Audits(Arc<Mutex<Runs>>);

#[derive(Default)]
struct Runs {
    all: BTreeMap<StoreId, (AuditView, Option<AbortHandle>)>,
    /// When the next one begins that nobody asked for, milliseconds.
    due_ms: BTreeMap<StoreId, u64>,
}

impl Audits {
    /// Begins an audit of `store`; what it has found so far is shown by [`Self::last`]. Called in the runtime.
    ///
    /// Errors: `Refused`: one is under way.
    pub fn start(
        &self,
        host: &Arc<Host>,
        (store, partitions): (&ObjectStore, usize),
        remove: bool,
    ) -> Result<AuditView> {
        let (id, name) = (store.id, store.name.clone());
        let mut runs = self.runs();
        if runs.all.get(&id).is_some_and(|(view, _)| view.ended_s.is_none()) {
            let text = format!("object store {name} is being audited: wait until that has ended, and ask again");
            return Err(Error::new(ErrorKind::Refused, text));
        }
        let begun = AuditView {
            store: name,
            state: "running".to_owned(),
            remove,
            started_s: now_s(),
            partitions: partitions as u64,
            ..AuditView::default()
        };
        runs.all.insert(id, (begun.clone(), None));
        let (this, host) = (self.clone(), Arc::downgrade(host));
        let task = tokio::spawn(async move {
            let Some(host) = host.upgrade() else { return };
            let told = |seen: &Audited| this.change(id, |view| show(view, seen));
            let ended = host.audit(id, remove, &told).await;
            let failed = ended.is_err();
            this.change(id, |view| {
                view.ended_s = Some(now_s());
                match ended {
                    Ok(seen) => {
                        show(view, &seen);
                        "done".clone_into(&mut view.state);
                    }
                    Err(error) => {
                        "failed".clone_into(&mut view.state);
                        view.error = Some(error.message().to_owned());
                    }
                }
                log(view);
            });
            this.runs().ended(id, failed, mono_ms());
        });
        if let Some((_, handle)) = runs.all.get_mut(&id) {
            *handle = Some(task.abort_handle());
        }
        Ok(begun)
    }

    /// The audit of a store that was begun last on this host.
    pub fn last(&self, store: StoreId) -> Option<AuditView> {
        self.runs().all.get(&store).map(|(view, _)| view.clone())
    }

    /// Begins those that are due. Stores that no file system uses are left alone.
    pub fn weekly(&self, host: &Arc<Host>, now: &Snapshot) {
        let used = |store: &&ObjectStore| {
            now.filesystems.iter().any(|fs| fs.stores.iter().any(|attached| attached.store == store.id))
        };
        for store in now.object_stores.iter().filter(used) {
            if self.runs().is_due(store.id, mono_ms()) {
                // One that is under way is as good.
                let _ = self.start(host, (store, now.partitions.len()), false);
            }
        }
    }

    /// Ends all of them.
    pub fn stop(&self) {
        for task in self.runs().all.values().filter_map(|(_, task)| task.as_ref()) {
            task.abort();
        }
    }

    fn runs(&self) -> MutexGuard<'_, Runs> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn change(&self, store: StoreId, how: impl FnOnce(&mut AuditView)) {
        if let Some((view, _)) = self.runs().all.get_mut(&store) {
            how(view);
        }
    }
}

impl Runs {
    /// An audit ended; one that failed is made up for before a week is over.
    fn ended(&mut self, store: StoreId, failed: bool, now_ms: u64) {
        if let Some(due_ms) = self.due_ms.get_mut(&store).filter(|_| failed) {
            *due_ms = (*due_ms).min(now_ms + AGAIN_MS);
        }
    }

    /// True once for each time that an audit is due.
    fn is_due(&mut self, store: StoreId, now_ms: u64) -> bool {
        let due_ms = self.due_ms.entry(store).or_insert(now_ms + FIRST_MS);
        let is_due = now_ms >= *due_ms;
        if is_due {
            *due_ms = now_ms + PERIOD_MS;
        }
        is_due
    }
}

fn show(view: &mut AuditView, seen: &Audited) {
    let found = |found: &Found| FoundView { count: found.count, bytes: found.bytes, keys: found.keys.clone() };
    view.partitions_done = seen.partitions.into();
    (view.listed, view.ours, view.known) = (seen.listed, seen.ours, seen.known);
    (view.young, view.removed, view.unsure, view.foreign) = (seen.young, seen.removed, seen.unsure, seen.foreign);
    (view.unknown, view.ahead) = (found(&seen.unknown), found(&seen.ahead));
    (view.missing, view.wrong_size) = (found(&seen.missing), found(&seen.wrong_size));
}

/// Says in the log what came of it.
fn log(view: &AuditView) {
    let AuditView { store, listed, known, removed, foreign, .. } = view;
    if let Some(error) = &view.error {
        tracing::warn!("the audit of object store {store} failed: {error}");
    }
    let left = view.unknown.count.saturating_sub(*removed);
    let counts = [
        (view.missing.count, "objects are missing: see `braid status lost`"),
        (view.wrong_size.count, "objects have another size than they should have"),
        (left, "objects are known to no partition: `braid fs tier audit --remove` removes those that are old enough"),
        (view.ahead.count, "objects are newer than the metadata: it may have been restored from an older state"),
    ];
    for (count, what) in counts.into_iter().filter(|(count, _)| *count > 0) {
        tracing::warn!("audit of object store {store}: {count} {what}");
    }
    tracing::info!(
        "audit of object store {store}: {listed} keys listed, {known} objects known, {removed} removed, {foreign} foreign"
    );
}

#[cfg(test)]
mod tests {
    use braid_base::ids::StoreId;

    use super::{AGAIN_MS, FIRST_MS, PERIOD_MS, Runs};

    #[test]
    fn each_store_is_audited_once_a_week() {
        let (mut runs, store) = (Runs::default(), StoreId(1));
        assert!(!runs.is_due(store, 5) && !runs.is_due(store, 4 + FIRST_MS) && runs.is_due(store, 5 + FIRST_MS));
        assert!(!runs.is_due(store, 6 + FIRST_MS) && !runs.is_due(StoreId(2), 6 + FIRST_MS));
        assert!(runs.is_due(store, 5 + FIRST_MS + PERIOD_MS));
        runs.ended(store, false, 6 + FIRST_MS + PERIOD_MS);
        assert!(!runs.is_due(store, 6 + FIRST_MS + PERIOD_MS + AGAIN_MS), "it went well");
        let now_ms = 7 + FIRST_MS + PERIOD_MS + AGAIN_MS;
        runs.ended(store, true, now_ms);
        assert!(!runs.is_due(store, now_ms + AGAIN_MS - 1) && runs.is_due(store, now_ms + AGAIN_MS));
    }
}
