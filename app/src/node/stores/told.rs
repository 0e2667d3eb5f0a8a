//! What people are told of the object stores, as this host sees them, and of the other hosts: each change once.
//!
//! Every host tells what it loses itself, which is minor: others may have it. The host that looks after the stores asks them
//! as soon as it has lost something, and tells that all have lost it, by the rule of `stores::seen`: of an outage there is
//! one major event, however many hosts there are.

use std::collections::{BTreeMap, BTreeSet};

use braid_base::ids::{HostId, StoreId};
use braid_base::msg::event::{Event, EventType, Severity};
use braid_cluster::stores;
use braid_cluster::stores::seen::{self, Seen};
use braid_cluster::view::stores::{LinkView, ObjectStoreView};
use braid_host::run::Events;
use braid_tier::{Direction, Links, State};

use super::Facts;

/// A direction of traffic, and what is said of it.
const DIRECTIONS: [(&str, Direction); 3] =
    [("uploads", Direction::Upload), ("downloads", Direction::Download), ("removals", Direction::Remove)];

/// Who has lost a direction.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Lost {
    /// This host; others may have it.
    Here,
    /// All that answer.
    Everywhere,
}

/// What was told.
pub(super) struct Told {
    /// This host.
    me: HostId,
    /// What of the stores fails.
    fails: BTreeMap<(StoreId, &'static str), Lost>,
    /// Stores that take no uploads because they are full.
    full: BTreeSet<StoreId>,
    /// The hosts that live, once they were looked at.
    live: Option<BTreeSet<HostId>>,
}

impl Told {
    pub(super) fn new(me: HostId) -> Self {
        Self { me, fails: BTreeMap::new(), full: BTreeSet::new(), live: None }
    }

    /// True if it matters how all hosts see the stores: this one tells for all, and has lost something.
    pub(super) fn asks(facts: &Facts, links: &Links) -> bool {
        let lost = |(_, direction): &(&str, Direction)| {
            links.all().iter().any(|(_, link)| link.health(*direction).state == State::Down)
        };
        facts.keeps && DIRECTIONS.iter().any(lost)
    }

    /// Tells what is different now; `seen`: how all hosts see the stores, if that was asked.
    pub(super) fn tell(&mut self, facts: &Facts, links: &Links, seen: Option<&Seen>, events: &Events) {
        self.stores(facts, links, seen).into_iter().for_each(|event| events.tell(event));
        self.hosts(facts).into_iter().for_each(|event| events.tell(event));
    }

    fn stores(&mut self, facts: &Facts, links: &Links, seen: Option<&Seen>) -> Vec<Event> {
        let (mut fails, mut full, mut news) = (BTreeMap::new(), BTreeSet::new(), Vec::new());
        let seen = seen.filter(|_| facts.keeps);
        for store in &facts.now.object_stores {
            let Some(link) = links.get(store.id) else { continue };
            let view = seen.map(|seen| seen.show(stores::view(store, [])));
            for (what, direction) in DIRECTIONS {
                let (health, at) = (link.health(direction), (store.id, what));
                let together = view.as_ref().map(|view| of(view, direction));
                let before = self.fails.get(&at).copied();
                let lost = match (together.map(|link| link.state.as_str()), health.state) {
                    (Some("down"), _) => Some(Lost::Everywhere),
                    (Some("up"), State::Down) => Some(Lost::Here),
                    // Who has not tried for long does not know any more: that is no news.
                    (_, State::Down) => before.max(Some(Lost::Here)),
                    (Some("up"), _) | (None, State::Up) => None,
                    // A link that was made anew has tried nothing yet: what failed is not known to go well.
                    _ => before,
                };
                let about = |kind, words: &str| {
                    let event = Event::new(kind, format!("object store {}: {what} {words}", store.name));
                    event.about("object_store", &store.name).about("direction", what)
                };
                match (before, lost) {
                    (before, Some(lost)) if Some(lost) > before => {
                        let all =
                            together.filter(|_| lost == Lost::Everywhere).and_then(|link| link.last_error.clone());
                        let why = all.or(health.last_error).unwrap_or_else(|| "it does not answer".to_owned());
                        let severity = if lost == Lost::Everywhere { Severity::Major } else { Severity::Minor };
                        news.push(about(EventType::STORE_DOWN, &format!("fail: {why}")).of_severity(severity));
                    }
                    (Some(Lost::Everywhere), Some(Lost::Here)) if facts.keeps => {
                        news.push(about(EventType::STORE_UP, "go well again, but not on this host"));
                    }
                    (Some(_), None) => news.push(about(EventType::STORE_UP, "go well again")),
                    _ => {}
                }
                fails.extend(lost.map(|lost| (at, lost)));
            }
            let (before, is_full) = (self.full.contains(&store.id), link.is_full());
            let (kind, words) = match is_full {
                true => (EventType::STORE_FULL, "is full: uploads wait until it has room again"),
                false => (EventType::STORE_HAS_ROOM, "has room again"),
            };
            if before != is_full {
                let event = Event::new(kind, format!("object store {} {words}", store.name));
                news.push(event.about("object_store", &store.name));
            }
            if is_full {
                full.insert(store.id);
            }
        }
        (self.fails, self.full) = (fails, full);
        news
    }

    /// One host tells for all; the others only remember what they saw.
    fn hosts(&mut self, facts: &Facts) -> Vec<Event> {
        let (now, live) = (&facts.now, facts.now.live.iter().copied().collect::<BTreeSet<_>>());
        let Some(before) = self.live.replace(live.clone()) else { return Vec::new() };
        // The lowest that lived before and lives now: the lowest of all may just have come back, and knows nothing.
        if before.intersection(&live).min() != Some(&self.me) {
            return Vec::new();
        }
        let is_member = |host: &&HostId| now.hosts.iter().any(|known| known.id == **host) && **host != self.me;
        let told = |kind, host: &HostId, words: &str| {
            let name = seen::host_name(now, *host);
            Event::new(kind, format!("host {name} {words}")).about("host", name)
        };
        let gone = before.difference(&live).filter(is_member);
        let gone = gone.map(|host| told(EventType::HOST_DOWN, host, "does not say any more that it lives"));
        let new = live.difference(&before).filter(is_member);
        gone.chain(new.map(|host| told(EventType::HOST_UP, host, "lives"))).collect()
    }
}

/// One direction of a store.
fn of(view: &ObjectStoreView, direction: Direction) -> &LinkView {
    match direction {
        Direction::Upload => &view.upload,
        Direction::Download => &view.download,
        Direction::Remove => &view.remove,
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use braid_base::ids::{Guid, HostId, StoreId};
    use braid_base::msg::event::{Event, EventType, Severity};
    use braid_base::msg::host::{LinkReport, StoreReport};
    use braid_base::store::{Place, StoreSpec};
    use braid_cluster::facts::{Host, ObjectStore};
    use braid_cluster::records;
    use braid_cluster::snapshot::Snapshot;
    use braid_cluster::stores::seen::Seen;
    use braid_tier::Links;

    use super::{Facts, Told};

    fn kinds(events: &[Event]) -> Vec<(EventType, Severity)> {
        events.iter().map(|event| (event.kind, event.severity)).collect()
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn a_store_that_comes_and_goes_is_told_once_each() {
        let home = tempfile::tempdir().expect("dir");
        let path = home.path().join("objects");
        let place = Place::Dir { path: path.to_string_lossy().into_owned() };
        let store = ObjectStore { id: StoreId(1), name: "near".to_owned(), spec: StoreSpec::at(place) };
        let links = Links::new(Guid([1; 16]), HostId(1));
        let set = |prefetch_mib| links.set(vec![(StoreId(1), StoreSpec { prefetch_mib, ..store.spec.clone() })]);
        assert!(set(1).is_empty());
        let now = Arc::new(Snapshot { object_stores: vec![store.clone()], ..Snapshot::default() });
        let facts = |keeps| Facts { now: Arc::clone(&now), keeps };
        let check = || async { links.get(StoreId(1)).expect("a link").check().await.is_ok() };
        let mut told = Told::new(HostId(1));
        let report = |up| StoreReport {
            store: StoreId(1),
            download: LinkReport { up, since_s: 1, last_error: None },
            ..StoreReport::default()
        };
        // This host has lost it, and so has another one, or not.
        let seen =
            |other| Seen::new(&now, vec![(HostId(1), vec![report(Some(false))]), (HostId(2), vec![report(other)])]);
        assert!(told.stores(&facts(true), &links, None).is_empty(), "nothing was tried");
        assert!(!Told::asks(&facts(true), &links));
        assert!(!check().await, "there is no directory");
        assert!(Told::asks(&facts(true), &links) && !Told::asks(&facts(false), &links));
        let mut other = Told::new(HostId(2));
        assert_eq!(kinds(&other.stores(&facts(false), &links, None)), [(EventType::STORE_DOWN, Severity::Minor)]);
        let events = told.stores(&facts(true), &links, Some(&seen(Some(true))));
        assert_eq!(kinds(&events), [(EventType::STORE_DOWN, Severity::Minor)], "another host has it");
        for other in [Some(true), None] {
            assert!(told.stores(&facts(true), &links, Some(&seen(other))).is_empty(), "or may have it");
        }
        let events = told.stores(&facts(true), &links, Some(&seen(Some(false))));
        assert_eq!(kinds(&events), [(EventType::STORE_DOWN, Severity::Major)]);
        assert!(events[0].text.starts_with("object store near: downloads fail: "), "{}", events[0].text);
        assert_eq!(
            (events[0].about["object_store"].as_str(), events[0].about["direction"].as_str()),
            ("near", "downloads")
        );
        assert!(told.stores(&facts(true), &links, Some(&seen(Some(false)))).is_empty(), "once");
        let idle = Seen::new(&now, vec![(HostId(1), vec![report(None)]), (HostId(2), vec![report(None)])]);
        assert!(told.stores(&facts(true), &links, Some(&idle)).is_empty(), "that nobody tries is no news");
        let events = told.stores(&facts(true), &links, Some(&seen(Some(true))));
        assert_eq!(kinds(&events), [(EventType::STORE_UP, Severity::Info)]);
        assert!(events[0].text.ends_with("but not on this host"), "{}", events[0].text);
        // It is set up in another way, and works.
        std::fs::create_dir(&path).expect("mkdir");
        assert!(set(2).is_empty());
        assert!(told.stores(&facts(true), &links, None).is_empty(), "that was not tried yet");
        assert!(check().await);
        assert_eq!(kinds(&told.stores(&facts(true), &links, None)), [(EventType::STORE_UP, Severity::Info)]);
        assert!(told.stores(&facts(true), &links, None).is_empty());
    }

    #[test]
    fn one_host_tells_of_the_others() {
        let host = |id: u32| -> Host {
            let text = format!(
                r#"{{"version":1,"id":{id},"name":"n{id}","addresses":[],"domain":"","state":"active","joined_s":0}}"#
            );
            records::decode("host", text.as_bytes()).expect("a host")
        };
        let facts = |live: &[u32], keeps| {
            let live = live.iter().map(|id| HostId(*id)).collect();
            let hosts = vec![host(1), host(2), host(3)];
            Facts { now: Arc::new(Snapshot { live, hosts, ..Snapshot::default() }), keeps }
        };
        let mut told = Told::new(HostId(1));
        let mut seen = |live: &[u32], keeps| -> Vec<(EventType, String)> {
            told.hosts(&facts(live, keeps)).iter().map(|event| (event.kind, event.about["host"].clone())).collect()
        };
        assert!(seen(&[1, 2], true).is_empty(), "that is how it found them");
        assert_eq!(
            seen(&[1, 3], true),
            [(EventType::HOST_DOWN, "n2".to_owned()), (EventType::HOST_UP, "n3".to_owned())]
        );
        assert!(seen(&[2, 3], false).is_empty(), "another one tells");
        assert!(seen(&[1, 3, 9], true).is_empty(), "it was away itself: another one tells");
        assert_eq!(
            seen(&[1, 9], true),
            [(EventType::HOST_DOWN, "n3".to_owned())],
            "not of itself, nor of who is no member"
        );
        let mut told = Told::new(HostId(2));
        let mut seen = |live: &[u32]| told.hosts(&facts(live, false)).len();
        assert_eq!((seen(&[1, 2]), seen(&[2]), seen(&[1, 2])), (0, 1, 1), "the lowest goes, and comes");
    }
}
