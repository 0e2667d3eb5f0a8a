//! A host's links to all object stores of its cluster.

use std::collections::BTreeMap;
use std::sync::{Arc, PoisonError, RwLock};

use braid_base::ids::{Guid, HostId, StoreId};
use braid_base::store::StoreSpec;
use braid_base::{Error, ErrorKind, Result};

use crate::link::Link;
use crate::store::open;

/// One link per object store, by number. Shared by those who move data and those who look after the stores.
pub struct Links {
    cluster: Guid,
    host: HostId,
    held: RwLock<BTreeMap<StoreId, Held>>,
}

/// A link, and what it was made from.
struct Held {
    spec: StoreSpec,
    link: Result<Arc<Link>>,
}

impl Links {
    /// None yet, for `host` in `cluster`.
    pub fn new(cluster: Guid, host: HostId) -> Self {
        Self { cluster, host, held: RwLock::default() }
    }

    /// The link to `store`. Who keeps it may go on with it after the store was set up differently.
    ///
    /// Errors: `NotFound`: this host knows no such store; else why the store could not be opened as it is set up.
    pub fn try_get(&self, store: StoreId) -> Result<Arc<Link>> {
        let held = self.held.read().unwrap_or_else(PoisonError::into_inner);
        let missing = || Error::new(ErrorKind::NotFound, format!("object store {store} is not known here"));
        held.get(&store).ok_or_else(missing)?.link.clone()
    }

    /// The link to `store`; none: there is none, see [`Self::try_get`] for the reason.
    pub fn get(&self, store: StoreId) -> Option<Arc<Link>> {
        self.try_get(store).ok()
    }

    /// All stores that there is a link to, by number.
    pub fn all(&self) -> Vec<(StoreId, Arc<Link>)> {
        self.known().into_iter().filter_map(|(id, link)| Some((id, link.ok()?))).collect()
    }

    /// All stores, by number; of those without a link why there is none.
    pub fn known(&self) -> Vec<(StoreId, Result<Arc<Link>>)> {
        let held = self.held.read().unwrap_or_else(PoisonError::into_inner);
        held.iter().map(|(id, held)| (*id, held.link.clone())).collect()
    }

    /// From now on these are the stores. A link whose specification did not change stays, with all that is under way and
    /// known; others are made anew. Returned are the stores that cannot be opened as they are set up now, and were not
    /// known to be so before.
    pub fn set(&self, stores: Vec<(StoreId, StoreSpec)>) -> Vec<(StoreId, Error)> {
        let mut held = self.held.write().unwrap_or_else(PoisonError::into_inner);
        let mut before = std::mem::take(&mut *held);
        let mut failed = Vec::new();
        for (id, spec) in stores {
            let known = before.remove(&id).filter(|known| known.spec == spec);
            let now = known.unwrap_or_else(|| {
                let link = open(&spec).and_then(|store| Link::new(store, &spec, self.cluster, self.host));
                if let Err(error) = &link {
                    failed.push((id, error.clone()));
                }
                Held { spec, link: link.map(Arc::new) }
            });
            held.insert(id, now);
        }
        failed
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use braid_base::ErrorKind;
    use braid_base::ids::{Guid, HostId, StoreId};
    use braid_base::store::{Place, StoreSpec};

    use super::Links;

    fn dir(path: &str) -> StoreSpec {
        StoreSpec::at(Place::Dir { path: path.to_owned() })
    }

    #[test]
    fn a_link_stays_while_its_store_does() {
        let links = Links::new(Guid([1; 16]), HostId(1));
        let (one, two) = (StoreId(1), StoreId(2));
        assert!(links.get(one).is_none() && links.all().is_empty());
        assert!(links.set(vec![(one, dir("/a")), (two, dir("/b"))]).is_empty());
        let (first, second) = (links.get(one).expect("there"), links.get(two).expect("there"));
        assert_eq!(links.all().iter().map(|(id, _)| *id).collect::<Vec<_>>(), [one, two]);
        let changed = StoreSpec { prefetch_mib: 1, ..dir("/b") };
        assert!(links.set(vec![(one, dir("/a")), (two, changed)]).is_empty());
        assert!(Arc::ptr_eq(&first, &links.get(one).expect("there")));
        assert!(!Arc::ptr_eq(&second, &links.get(two).expect("there")), "made anew");
        links.set(Vec::new());
        assert!(links.get(one).is_none());
    }

    #[test]
    fn a_store_that_cannot_be_opened_says_so_once() {
        let links = Links::new(Guid([1; 16]), HostId(1));
        let failed = links.set(vec![(StoreId(1), dir("relative"))]);
        assert_eq!(failed.len(), 1);
        assert_eq!(failed[0].1.kind(), ErrorKind::Refused);
        assert!(links.get(StoreId(1)).is_none() && links.all().is_empty());
        assert!(matches!(&links.known()[..], [(StoreId(1), Err(error))] if error.kind() == ErrorKind::Refused));
        assert_eq!(links.try_get(StoreId(1)).err().map(|error| error.kind()), Some(ErrorKind::Refused));
        assert_eq!(links.try_get(StoreId(2)).err().map(|error| error.kind()), Some(ErrorKind::NotFound));
        assert!(links.set(vec![(StoreId(1), dir("relative"))]).is_empty(), "nothing new");
        assert!(links.set(vec![(StoreId(1), dir("/absolute"))]).is_empty());
        assert!(links.get(StoreId(1)).is_some());
    }
}
