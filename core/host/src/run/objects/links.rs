//! What a host tells of its links to the object stores.

use std::sync::{Arc, PoisonError};
use std::time::Duration;

use braid_base::Result;
use braid_base::ids::{HostId, StoreId};
use braid_base::msg::host::{HostOp, HostReply, LinkReport, StoreOp, StoreReport};
use braid_tier::{Direction, Health, Link, Operation, State};
use tokio::task::JoinSet;
use tokio::time::timeout;

use super::HostObjects;
use crate::run::setup::Host;
use crate::run::wire::wall_ms;

/// How long a look at the stores may take: less than who asks for it waits.
const LOOK_MAX: Duration = Duration::from_millis(1_500);

/// A host that lost a direction so long ago, and has had no use for it since, does not know how it is: longer than the
/// longest time for which a request is repeated.
const STALE: Duration = Duration::from_secs(20 * 60);

impl HostObjects {
    /// The stores, as this host sees them; with `look` they are asked first whether they are there. One that has not
    /// answered by then is shown as it was known before.
    pub(in crate::run) async fn reports(self: &Arc<Self>, look: bool) -> Vec<StoreReport> {
        if look {
            self.look().await;
        }
        self.known()
    }

    /// The stores, as this host knows them.
    fn known(&self) -> Vec<StoreReport> {
        self.links.known().into_iter().map(|(store, link)| report(store, link)).collect()
    }

    /// What this host does at `store`, and what it did last.
    ///
    /// Errors: `NotFound`: it knows no such store; else why it could not be opened.
    pub(in crate::run) fn operations(&self, store: StoreId) -> Result<Vec<StoreOp>> {
        Ok(self.links.try_get(store)?.operations().into_iter().map(told).collect())
    }

    /// Asks each store whether it is there. One that takes long is asked on, and not once more meanwhile.
    async fn look(self: &Arc<Self>) {
        let mut asking = JoinSet::new();
        for (store, link) in self.links.all() {
            if self.looking.lock().unwrap_or_else(PoisonError::into_inner).insert(store) {
                let looks = Looks { objects: Arc::clone(self), store };
                asking.spawn(async move {
                    let _looks = looks;
                    // What comes of it is in the state of the link.
                    let _ = link.check().await;
                });
            }
        }
        let _ = timeout(LOOK_MAX, async { while asking.join_next().await.is_some() {} }).await;
        asking.detach_all();
    }
}

/// A look at a store, while it lasts.
struct Looks {
    objects: Arc<HostObjects>,
    store: StoreId,
}

impl Drop for Looks {
    fn drop(&mut self) {
        self.objects.looking.lock().unwrap_or_else(PoisonError::into_inner).remove(&self.store);
    }
}

impl Host {
    /// The object stores, as each host sees them, see [`HostOp::Stores`]. Hosts that do not answer are left out.
    pub async fn stores(&self, look: bool) -> Vec<(HostId, Vec<StoreReport>)> {
        let op = HostOp::Stores { look };
        let (here, others) = tokio::join!(self.switch.objects.reports(look), self.switch.ask_others(&op));
        let mut all = vec![(self.switch.host, here)];
        for answer in others {
            if let (host, Ok(HostReply::Stores(stores))) = answer {
                all.push((host, stores));
            }
        }
        all.sort_by_key(|(host, _)| *host);
        all
    }

    /// The object stores, as this host knows them.
    pub fn stores_here(&self) -> Vec<StoreReport> {
        self.switch.objects.known()
    }

    /// What each host does at an object store, and what it did last; why not, of one that answers otherwise. Hosts that
    /// cannot be reached are left out.
    pub async fn store_ops(&self, store: StoreId) -> Vec<(HostId, Result<Vec<StoreOp>>)> {
        let mut all = vec![(self.switch.host, self.switch.objects.operations(store))];
        for (host, answer) in self.switch.ask_others(&HostOp::StoreOps { store }).await {
            match answer {
                Ok(HostReply::StoreOps(ops)) => all.push((host, Ok(ops))),
                Ok(_) => {}
                Err(error) => all.push((host, Err(error))),
            }
        }
        all.sort_by_key(|(host, _)| *host);
        all
    }
}

fn report(store: StoreId, link: Result<Arc<Link>>) -> StoreReport {
    let lost = link.as_ref().ok().and_then(|link| lost_for(&link.health(Direction::Download)));
    let of = |direction| match &link {
        Ok(link) => seen(link.health(direction), lost),
        Err(error) => LinkReport { last_error: Some(error.message().to_owned()), ..LinkReport::default() },
    };
    StoreReport {
        store,
        upload: of(Direction::Upload),
        download: of(Direction::Download),
        remove: of(Direction::Remove),
        full: link.is_ok_and(|link| link.is_full()),
    }
}

/// For how long objects could not be read, if they cannot.
fn lost_for(download: &Health) -> Option<Duration> {
    let since_s = u64::try_from(download.since.sec).unwrap_or(0);
    let now_s = wall_ms() / 1_000;
    (download.state == State::Down).then(|| Duration::from_secs(now_s.saturating_sub(since_s)))
}

/// A direction; `lost`: for how long objects cannot be read.
fn seen(health: Health, lost: Option<Duration>) -> LinkReport {
    let up = match health.state {
        State::Unknown => None,
        State::Down if health.idle > STALE => None,
        // That it went well before the store was lost says nothing of now.
        State::Up if lost.is_some_and(|lost| health.idle > lost + Duration::from_secs(1)) => None,
        State::Up => Some(true),
        State::Down => Some(false),
    };
    LinkReport { up, since_s: u64::try_from(health.since.sec).unwrap_or(0), last_error: health.last_error }
}

fn told(operation: Operation) -> StoreOp {
    let millis = |took: Duration| u64::try_from(took.as_millis()).unwrap_or(u64::MAX);
    let started = operation.started;
    StoreOp {
        results: operation.results_line(),
        id: operation.id,
        kind: operation.kind.word().to_owned(),
        took_ms: millis(operation.took),
        ongoing: operation.ongoing,
        previous_ms: operation.previous.map(millis),
        started_ms: u64::try_from(started.sec).unwrap_or(0) * 1_000 + u64::from(started.nsec) / 1_000_000,
        size: operation.size,
        line_errors: operation.line_errors,
        last_http_error: operation.last_http_error,
        concurrency: operation.concurrency,
        inode: operation.inode,
        key: operation.key,
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::time::Duration;

    use braid_base::ErrorKind;
    use braid_base::attr::Time;
    use braid_base::ids::{Guid, HostId, StoreId};
    use braid_base::msg::host::StoreReport;
    use braid_base::store::{Place, StoreSpec};
    use braid_tier::{Health, Links, State};

    use super::{HostObjects, lost_for, seen};
    use crate::run::Events;
    use crate::run::wire::wall_ms;

    #[test]
    fn what_went_well_before_a_store_was_lost_is_not_known_to_go_well() {
        let secs = Duration::from_secs;
        let health = |state, idle| {
            let since = Time { sec: i64::try_from(wall_ms() / 1_000).expect("now") - 60, nsec: 0 };
            Health { state, since, last_error: None, idle }
        };
        let up = |idle, lost| seen(health(State::Up, idle), lost).up;
        assert_eq!(
            (up(secs(90), None), up(secs(90), Some(secs(60))), up(secs(9), Some(secs(60)))),
            (Some(true), None, Some(true))
        );
        assert_eq!(lost_for(&health(State::Up, secs(0))), None);
        assert!(lost_for(&health(State::Down, secs(0))).is_some_and(|lost| lost >= secs(59) && lost < secs(65)));
    }

    fn ups(report: &StoreReport) -> [Option<bool>; 3] {
        [report.upload.up, report.download.up, report.remove.up]
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn stores_are_looked_at_and_operations_told() {
        let (home, cluster, host) = (tempfile::tempdir().expect("dir"), Guid([1; 16]), HostId(1));
        let (near, wrong) = (home.path().join("objects"), "relative".to_owned());
        std::fs::create_dir(&near).expect("mkdir");
        let links = Arc::new(Links::new(cluster, host));
        let place = Place::Dir { path: near.to_string_lossy().into_owned() };
        let specs = vec![(StoreId(1), StoreSpec::at(place)), (StoreId(2), StoreSpec::at(Place::Dir { path: wrong }))];
        assert_eq!(links.set(specs).len(), 1);
        let events = Events::start(home.path().join("events")).expect("a thread");
        let objects = HostObjects::new(cluster, links, tokio::runtime::Handle::current(), events);
        let known = objects.reports(false).await;
        assert_eq!(known.iter().map(ups).collect::<Vec<_>>(), [[None; 3]; 2], "nothing was tried");
        assert!(known[0].upload.last_error.is_none());
        let why = known[1].upload.last_error.as_deref();
        assert!(why.is_some_and(|why| why.contains("relative")), "{why:?}");
        assert_eq!(ups(&objects.reports(true).await[0]), [Some(true), Some(true), None]);
        std::fs::remove_dir_all(&near).expect("removed");
        let lost = objects.reports(true).await.swap_remove(0);
        assert_eq!(ups(&lost), [Some(true), Some(false), None]);
        assert!(lost.download.last_error.is_some() && lost.download.since_s > 0);
        assert!(objects.looking.lock().expect("no panic").is_empty(), "all looks have ended");

        let ops = objects.operations(StoreId(1)).expect("it is known");
        let shown: Vec<(&str, u64, bool)> = ops.iter().map(|op| (op.kind.as_str(), op.size, op.ongoing)).collect();
        // The keepalive finds no object, writes one, and does not find the store later.
        assert_eq!(shown, [("CHECK", 63, false), ("UPLOAD", 63, false), ("CHECK", 63, false)]);
        assert_eq!((ops[1].results.as_str(), ops[1].concurrency, ops[1].inode), ("SUCCESS: 1", 1, None));
        assert!(ops[1].started_ms > 1_700_000_000_000 && ops[1].key.contains("/keepalive/"), "{:?}", ops[1]);
        assert_eq!(objects.operations(StoreId(2)).expect_err("wrong").kind(), ErrorKind::Refused);
        assert_eq!(objects.operations(StoreId(3)).expect_err("unknown").kind(), ErrorKind::NotFound);
    }
}
