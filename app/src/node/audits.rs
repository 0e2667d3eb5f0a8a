//! Audits of object stores: one at a time for each store, on the host that is asked, in the background; and one of each
//! store in a week, which changes nothing.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use braid_base::ids::StoreId;
use braid_base::msg::event::{Event, EventType, Severity};
use braid_base::{Error, ErrorKind, Result};
use braid_cluster::coordinator::Coordinator;
use braid_cluster::facts::ObjectStore;
use braid_cluster::snapshot::Snapshot;
use braid_cluster::stores::{audit_failed, take_audit};
use braid_cluster::view::stores::{AuditView, FoundView};
use braid_host::run::{Audited, Found, Host};
use braid_io::clock::mono_ms;
use tokio::task::AbortHandle;

use super::views::now_s;

/// How often it is looked which audits are due, milliseconds.
const LOOK_MS: u64 = 60_000;

/// The last audit of each store.
#[derive(Clone, Default)]
pub struct Audits(Arc<Mutex<Runs>>);

#[derive(Default)]
struct Runs {
    all: BTreeMap<StoreId, (AuditView, Option<AbortHandle>)>,
    /// When it is looked next which are due, milliseconds.
    look_ms: u64,
}

impl Audits {
    /// Begins an audit of `store`; what it has found so far is shown by [`Self::last`]. Called in the runtime.
    ///
    /// Errors: `Refused`: one is under way.
    pub fn start(&self, host: &Arc<Host>, audited: (&ObjectStore, usize), remove: bool) -> Result<AuditView> {
        self.begin(host, audited, remove, || {})
    }

    /// The same; `failed` hears of it if it cannot be brought to its end.
    fn begin(
        &self,
        host: &Arc<Host>,
        (store, partitions): (&ObjectStore, usize),
        remove: bool,
        failed: impl FnOnce() + Send + 'static,
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
            if ended.is_err() {
                failed();
            }
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
                came_of(view).into_iter().for_each(|event| host.event_log().tell(event));
            });
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
    pub fn weekly(&self, host: &Arc<Host>, coordinator: &Arc<dyn Coordinator>, now: &Snapshot) {
        let now_ms = mono_ms();
        if now_ms < self.runs().look_ms {
            return;
        }
        self.runs().look_ms = now_ms + LOOK_MS;
        let used = |store: &&ObjectStore| {
            now.filesystems.iter().any(|fs| fs.stores.iter().any(|attached| attached.store == store.id))
        };
        for store in now.object_stores.iter().filter(used) {
            let due = tokio::task::block_in_place(|| take_audit(coordinator.as_ref(), store.id, now_s()));
            // A coordinator that does not answer is asked again.
            if due.unwrap_or(false) {
                let (coordinator, id) = (Arc::clone(coordinator), store.id);
                let failed = move || {
                    let noted = tokio::task::block_in_place(|| audit_failed(coordinator.as_ref(), id, now_s()));
                    if let Err(error) = noted {
                        tracing::debug!("the next audit begins in a week: {error}");
                    }
                };
                // One that is under way is as good.
                let _ = self.begin(host, (store, now.partitions.len()), false, failed);
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

fn show(view: &mut AuditView, seen: &Audited) {
    let found = |found: &Found| FoundView { count: found.count, bytes: found.bytes, keys: found.keys.clone() };
    view.partitions_done = seen.partitions.into();
    (view.listed, view.ours, view.known) = (seen.listed, seen.ours, seen.known);
    (view.young, view.removed, view.unsure, view.foreign) = (seen.young, seen.removed, seen.unsure, seen.foreign);
    (view.unknown, view.ahead) = (found(&seen.unknown), found(&seen.ahead));
    (view.missing, view.wrong_size) = (found(&seen.missing), found(&seen.wrong_size));
}

/// What came of it, for people: nothing if all is as it should be.
fn came_of(view: &AuditView) -> Vec<Event> {
    let AuditView { store, listed, known, removed, foreign, .. } = view;
    tracing::info!(
        "audit of object store {store}: {listed} keys listed, {known} objects known, {removed} removed, {foreign} foreign"
    );
    let about = |kind, text: String| Event::new(kind, text).about("object_store", store);
    let mut events = Vec::new();
    if let Some(error) = &view.error {
        events.push(about(EventType::AUDIT_FAILED, format!("the audit of object store {store} failed: {error}")));
    }
    let left = view.unknown.count.saturating_sub(*removed);
    let counts = [
        (view.missing.count, "missing (see `braid status lost`)"),
        (view.wrong_size.count, "of another size than they should be"),
        (view.ahead.count, "newer than the metadata, which may have been restored from an older state"),
        (left, "known to no partition (`braid fs tier audit --remove` removes those that are old enough)"),
    ];
    let found: Vec<String> = counts
        .iter()
        .filter(|(count, _)| *count > 0)
        .map(|(count, what)| format!("{count} {} {what}", if *count == 1 { "is" } else { "are" }))
        .collect();
    if !found.is_empty() {
        let text = format!("audit of object store {store}: of its objects {}", found.join(", "));
        let harm = view.missing.count + view.wrong_size.count + view.ahead.count > 0;
        let severity = if harm { Severity::Major } else { Severity::Warning };
        events.push(about(EventType::AUDIT_DIFFERS, text).of_severity(severity));
    }
    events
}

#[cfg(test)]
mod tests {
    use braid_base::msg::event::{EventType, Severity};
    use braid_cluster::view::stores::{AuditView, FoundView};

    use super::came_of;

    #[test]
    fn what_an_audit_finds_is_an_event() {
        let found = |count| FoundView { count, ..FoundView::default() };
        let view = AuditView { store: "cold".to_owned(), ..AuditView::default() };
        assert!(came_of(&view).is_empty(), "all is well");
        let removed = AuditView { unknown: found(3), removed: 3, ..view.clone() };
        assert!(came_of(&removed).is_empty());
        let events = came_of(&AuditView { unknown: found(3), removed: 2, ..view.clone() });
        assert_eq!((events[0].kind, events[0].severity), (EventType::AUDIT_DIFFERS, Severity::Warning));
        assert!(events[0].text.contains("1 is known to no partition"), "{}", events[0].text);
        for (harm, words) in [
            (AuditView { ahead: found(2), ..view.clone() }, "2 are newer than the metadata"),
            (AuditView { wrong_size: found(2), ..view.clone() }, "2 are of another size"),
            (AuditView { missing: found(2), ..view.clone() }, "2 are missing"),
        ] {
            let events = came_of(&harm);
            assert!(events[0].severity == Severity::Major && events[0].text.contains(words), "{}", events[0].text);
            assert_eq!(events[0].about["object_store"], "cold");
        }
        let failed = AuditView { error: Some("it is away".to_owned()), ..view };
        assert_eq!(came_of(&failed)[0].kind, EventType::AUDIT_FAILED);
    }
}
