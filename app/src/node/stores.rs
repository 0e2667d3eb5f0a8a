//! The object stores of the cluster, as this host is linked to them.
//!
//! Which there are, and what is to be put there, the steward of the host follows (`host/run/steward`). Each second one host
//! (the lowest that lives) asks each store whether it is there, and forgets those that are left and empty; what has changed
//! since becomes an event.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use braid_base::Result;
use braid_base::ids::{FsId, Guid, HostId, StoreId, Term};
use braid_base::msg::event::{Event, EventType};
use braid_base::store::StoreSpec;
use braid_cluster::attachments;
use braid_cluster::coordinator::Coordinator;
use braid_cluster::facts::Attachment;
use braid_cluster::snapshot::Snapshot;
use braid_cluster::stores::seen::Seen;
use braid_cluster::view::stores::StepView;
use braid_host::run::Host;
use braid_tier::{Link, Links};
use tokio::task::{AbortHandle, JoinSet};
use tokio::time::{MissedTickBehavior, interval};

use super::audits::Audits;

mod pressure;
mod told;
mod unreclaimed;

use pressure::Pressure;
use told::Told;
use unreclaimed::Unreclaimed;

/// How often a store is asked whether it is there.
const KEEPALIVE: Duration = Duration::from_secs(1);

/// A store that is being detached is forgotten when it held nothing in so many looks.
const EMPTY_LOOKS: u32 = 10;

/// What the records say.
pub struct Facts {
    /// All of it.
    pub now: Arc<Snapshot>,
    /// Is it this host that looks after the stores for all?
    pub keeps: bool,
}

impl Facts {
    /// Those of `now`, for host `me`; none: it is alone.
    pub fn of(now: Arc<Snapshot>, me: Option<HostId>) -> Self {
        Self { keeps: keeps(&now, me), now }
    }
}

/// Is it host `me` that asks the stores whether they are there?
pub fn keeps(now: &Snapshot, me: Option<HostId>) -> bool {
    me.is_none_or(|me| now.live.iter().min() == Some(&me))
}

/// The links of this host, and who looks after them.
pub struct Stores {
    cluster: Guid,
    host: HostId,
    links: Arc<Links>,
    /// A try writes an object under a name that belongs to this host: one at a time.
    trying: tokio::sync::Mutex<()>,
    keeper: Mutex<Option<AbortHandle>>,
    /// What lies in them, compared with what is known.
    pub audits: Audits,
}

impl Stores {
    /// None yet, for `host` in `cluster`, whose partitions go through `links`.
    pub fn new(cluster: Guid, host: HostId, links: Arc<Links>) -> Self {
        let (trying, keeper, audits) = Default::default();
        Self { cluster, host, links, trying, keeper, audits }
    }

    /// Looks after the stores until [`Self::stop`]. Called in the runtime, once.
    pub fn keep(
        self: &Arc<Self>,
        host: Weak<Host>,
        coordinator: Arc<dyn Coordinator>,
        facts: impl Fn() -> Result<Facts> + Send + 'static,
    ) {
        let task = tokio::spawn(Arc::clone(self).keeping(host, coordinator, facts));
        *lock(&self.keeper) = Some(task.abort_handle());
    }

    /// Ends that.
    pub fn stop(&self) {
        self.audits.stop();
        if let Some(keeper) = lock(&self.keeper).take() {
            keeper.abort();
        }
    }

    /// Tries a store, unless that is to be left out; whether it can be set up this way at all is looked at in any case.
    pub async fn tried(&self, spec: &StoreSpec, leave_out: bool) -> Result<Vec<StepView>> {
        if leave_out {
            return braid_tier::open(spec).map(|_| Vec::new());
        }
        let _one = self.trying.lock().await;
        let steps = braid_tier::verify(spec, self.cluster, self.host).await?;
        let millis = |took: Duration| u64::try_from(took.as_millis()).unwrap_or(u64::MAX);
        Ok(steps.into_iter().map(|step| StepView { what: step.what, took_ms: millis(step.took) }).collect())
    }

    async fn keeping(
        self: Arc<Self>,
        host: Weak<Host>,
        coordinator: Arc<dyn Coordinator>,
        facts: impl Fn() -> Result<Facts>,
    ) {
        let (mut left, mut told, mut unreclaimed) = (Left::default(), Told::new(self.host), Unreclaimed::default());
        let (mut together, mut pressure) = (Together::default(), Pressure::default());
        let mut ticks = interval(KEEPALIVE);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut checks = JoinSet::new();
        let mut asked = BTreeSet::new();
        loop {
            ticks.tick().await;
            while let Some(ended) = checks.try_join_next() {
                match ended {
                    Ok(id) => _ = asked.remove(&id),
                    // It panicked, and its store would be unasked for good: better all are asked again.
                    Err(_) => asked.clear(),
                }
            }
            // While the coordinator is silent things are as they were.
            let Ok(facts) = tokio::task::block_in_place(&facts) else { continue };
            if let Some(host) = host.upgrade() {
                if facts.keeps {
                    left.forget(&host, coordinator.as_ref(), &facts.now).await;
                    unreclaimed.look(&host, &facts.now).await;
                    pressure.look(&host, &facts.now).await;
                    self.audits.weekly(&host, &coordinator, &facts.now);
                }
                let seen = together.seen(&host, self.host, (&facts, &self.links));
                told.tell(&facts, &self.links, seen, &host.event_log());
            }
            for (id, link) in self.links.all() {
                let keeps = facts.keeps;
                if (keeps || link.is_full()) && asked.insert(id) {
                    checks.spawn(async move {
                        checked(link, keeps).await;
                        id
                    });
                }
            }
        }
    }
}

/// Stores that are being detached, by file system, and in how many looks one after another they held nothing of it.
#[derive(Default)]
struct Left(BTreeMap<(FsId, StoreId), u32>);

impl Left {
    /// Ends the detaching of stores that hold nothing any more. A partition may be just about to put something there, as
    /// long as it has not heard: so it has to stay that way for a while.
    async fn forget(&mut self, host: &Host, coordinator: &dyn Coordinator, now: &Snapshot) {
        let attached = now.filesystems.iter().flat_map(|fs| fs.stores.iter().map(move |attached| (fs, attached)));
        let left: Vec<_> = attached.filter(|(_, attached)| attached.detaching).collect();
        self.0.retain(|at, _| left.iter().any(|(fs, attached)| (fs.id, attached.store) == *at));
        if left.is_empty() {
            return;
        }
        let reports = host.partitions().await;
        let all = reports.len() == now.partitions.len() && reports.iter().all(|seat| seat.term != Term(0));
        for (fs, attached) in left {
            let at = (fs.id, attached.store);
            let empty = all && !reports.iter().any(|seat| seat.data.stored.contains_key(&at));
            let looks = self.0.entry(at).or_default();
            *looks = if empty { *looks + 1 } else { 0 };
            if *looks < EMPTY_LOOKS {
                continue;
            }
            match tokio::task::block_in_place(|| attachments::forget(coordinator, fs, attached.store)) {
                Ok(()) => host.event_log().tell(detached(now, &fs.name, attached)),
                Err(error) => tracing::warn!("file system {}: {} stays attached: {error}", fs.name, attached.store),
            }
        }
    }
}

/// Nothing of `filesystem` that is needed lies in a store any more.
fn detached(now: &Snapshot, filesystem: &str, Attachment { store, give_up, .. }: &Attachment) -> Event {
    let known = now.object_stores.iter().find(|known| known.id == *store);
    let name = known.map_or_else(|| store.to_string(), |known| known.name.clone());
    let what = if *give_up {
        "nothing that it needs lies there any more; what the store did not remove is left there"
    } else {
        "nothing of it lies there any more"
    };
    let text = format!("object store {name} is detached from file system {filesystem}: {what}");
    Event::new(EventType::STORE_DETACHED, text).about("filesystem", filesystem).about("object_store", name)
}

/// How all hosts see the stores, while that matters.
#[derive(Default)]
struct Together {
    asking: JoinSet<Seen>,
    seen: Option<Seen>,
}

impl Together {
    /// What was heard last, if anything was asked. Each host looks anew before it says what it sees.
    fn seen(&mut self, host: &Arc<Host>, me: HostId, (facts, links): (&Facts, &Links)) -> Option<&Seen> {
        if !Told::asks(facts, links) {
            *self = Self::default();
        } else if facts.now.live.iter().all(|live| *live == me) {
            self.seen = Some(Seen::new(&facts.now, vec![(me, host.stores_here())]));
        } else {
            while let Some(ended) = self.asking.try_join_next() {
                self.seen = ended.ok().or_else(|| self.seen.take());
            }
            if self.asking.is_empty() {
                let (host, now) = (Arc::clone(host), Arc::clone(&facts.now));
                self.asking.spawn(async move { Seen::new(&now, host.stores(true).await) });
            }
        }
        self.seen.as_ref()
    }
}

/// A keepalive, by the host that `keeps` the stores, and a look at a full one by any; what comes of it is in the state of
/// the link.
async fn checked(link: Arc<Link>, keeps: bool) {
    if keeps && let Err(error) = link.check().await {
        tracing::debug!("keepalive: {error}");
    }
    if let Err(error) = link.look_for_room().await {
        tracing::debug!("looking for room: {error}");
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Weak};
    use std::time::Duration;

    use braid_base::ErrorKind;
    use braid_base::ids::{Guid, HostId, StoreId};
    use braid_base::store::{Place, StoreSpec};
    use braid_cluster::Embedded;
    use braid_cluster::facts::ObjectStore;
    use braid_cluster::snapshot::Snapshot;
    use braid_tier::{Direction, Links, State};

    use super::{Facts, Stores, keeps};

    fn store(path: &std::path::Path) -> ObjectStore {
        let place = Place::Dir { path: path.to_string_lossy().into_owned() };
        ObjectStore { id: StoreId(1), name: "near".to_owned(), spec: StoreSpec::at(place) }
    }

    fn alone() -> Stores {
        let (cluster, host) = (Guid([1; 16]), HostId(1));
        Stores::new(cluster, host, Arc::new(Links::new(cluster, host)))
    }

    fn run(work: impl Future<Output = ()>) {
        let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().expect("threads");
        runtime.block_on(work);
    }

    #[test]
    fn the_lowest_host_that_lives_asks() {
        let now = Snapshot { live: vec![HostId(3), HostId(2)], ..Snapshot::default() };
        assert!(keeps(&now, None) && keeps(&now, Some(HostId(2))) && !keeps(&now, Some(HostId(3))));
    }

    #[test]
    fn a_store_is_tried() {
        let home = tempfile::tempdir().expect("dir");
        let (stores, near) = (alone(), store(&home.path().join("objects")));
        run(async {
            let missing = stores.tried(&near.spec, false).await.expect_err("there is no directory");
            assert!(missing.message().contains("step 1, PUT"), "{missing}");
            assert!(stores.tried(&near.spec, true).await.expect("left out").is_empty());
            let relative = StoreSpec::at(Place::Dir { path: "relative".to_owned() });
            assert_eq!(stores.tried(&relative, true).await.expect_err("wrong").kind(), ErrorKind::Refused);
            std::fs::create_dir(home.path().join("objects")).expect("mkdir");
            assert_eq!(stores.tried(&near.spec, false).await.expect("tried").len(), 4);
        });
    }

    #[test]
    fn the_keeper_asks_the_stores() {
        let home = tempfile::tempdir().expect("dir");
        let (stores, near) = (Arc::new(alone()), store(home.path()));
        let coordinator = Arc::new(Embedded::in_memory(Arc::new(|| 0)).expect("in memory"));
        run(async {
            assert!(stores.links.set(vec![(near.id, near.spec.clone())]).is_empty());
            let now = Arc::new(Snapshot { object_stores: vec![near.clone()], ..Snapshot::default() });
            stores.keep(Weak::new(), coordinator, move || Ok(Facts { now: Arc::clone(&now), keeps: true }));
            let is_up = || {
                let link = stores.links.get(near.id);
                link.is_some_and(|link| link.health(Direction::Download).state == State::Up)
            };
            for _ in 0..1000 {
                if is_up() {
                    break;
                }
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
            assert!(is_up());
            stores.stop();
        });
    }
}
