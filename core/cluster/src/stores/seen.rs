//! The object stores as all hosts see them together, and what they do there.

use std::cmp::Reverse;

use braid_base::ids::{HostId, StoreId};
use braid_base::msg::host::{LinkReport, StoreOp, StoreReport};

use crate::snapshot::Snapshot;
use crate::view::stores::{LinkView, ObjectStoreView, OperationView};

/// What hosts say of the object stores.
#[derive(Clone, Debug, Default)]
pub struct Seen {
    /// Name of each host that answered, and what it says.
    pub reports: Vec<(String, Vec<StoreReport>)>,
    /// Names of those that live and did not.
    pub silent: Vec<String>,
}

impl Seen {
    /// What `reports` say of the hosts that the coordinator knew at `now`.
    pub fn new(now: &Snapshot, reports: Vec<(HostId, Vec<StoreReport>)>) -> Self {
        let silent = silent(now, |host| reports.iter().any(|(answered, _)| *answered == host));
        Self { reports: reports.into_iter().map(|(host, said)| (host_name(now, host), said)).collect(), silent }
    }

    /// Adds to `view` how the store is seen.
    pub fn show<'a>(&'a self, mut view: ObjectStoreView) -> ObjectStoreView {
        let said = self.reports.iter().flat_map(|(host, all)| {
            let mine = all.iter().filter(|report| report.store == StoreId(view.id));
            mine.map(move |report| (host.as_str(), report))
        });
        let said: Vec<(&'a str, &'a StoreReport)> = said.collect();
        let silent = (self.silent.len() + self.reports.len() - said.len()) as u64;
        let link = |of: fn(&StoreReport) -> &LinkReport| {
            let one = |&(host, report): &(&'a str, &'a StoreReport)| Said {
                host,
                link: of(report),
                is_gone: report.download.up == Some(false),
            };
            together(&said.iter().map(one).collect::<Vec<_>>(), silent)
        };
        view.upload = link(|report| &report.upload);
        view.download = link(|report| &report.download);
        view.remove = link(|report| &report.remove);
        view.full = said.iter().any(|(_, report)| report.full);
        view.silent_hosts.clone_from(&self.silent);
        view
    }
}

/// Names of the hosts that live, as the coordinator knew at `now`, and have not `answered`.
pub fn silent(now: &Snapshot, answered: impl Fn(HostId) -> bool) -> Vec<String> {
    let mut silent: Vec<HostId> = now.live.iter().copied().filter(|host| !answered(*host)).collect();
    silent.sort_unstable();
    silent.into_iter().map(|host| host_name(now, host)).collect()
}

/// The name of a host.
pub fn host_name(now: &Snapshot, host: HostId) -> String {
    let known = now.hosts.iter().find(|known| known.id == host);
    known.map_or_else(|| host.to_string(), |known| known.name.clone())
}

/// The operations that each host tells of: those under way, the oldest first, then those that have ended, the newest first.
pub fn operations(told: Vec<(String, Vec<StoreOp>)>) -> Vec<OperationView> {
    let mut all: Vec<(String, StoreOp)> =
        told.into_iter().flat_map(|(host, ops)| ops.into_iter().map(move |op| (host.clone(), op))).collect();
    all.sort_by_key(|(_, op)| match op.ongoing {
        true => (false, op.started_ms, Reverse(0)),
        false => (true, 0, Reverse(op.started_ms.saturating_add(op.took_ms))),
    });
    all.into_iter().map(|(host, op)| operation(host, op)).collect()
}

fn operation(process: String, op: StoreOp) -> OperationView {
    let seconds = |millis: u64| millis as f64 / 1_000.0;
    OperationView {
        process,
        id: op.id,
        key: op.key,
        kind: op.kind,
        exec_time: seconds(op.took_ms),
        phase: if op.ongoing { "Ongoing" } else { "Recent" }.to_owned(),
        last_exec_time: op.previous_ms.map(seconds),
        start_time: seconds(op.started_ms),
        size: op.size,
        results: op.results,
        connection_errors: op.line_errors,
        last_http_error: op.last_http_error,
        concurrency: op.concurrency,
        inode: op.inode,
    }
}

/// What a host says of one direction.
struct Said<'a> {
    host: &'a str,
    link: &'a LinkReport,
    /// It cannot reach the store at all: what it has not tried would fail, too.
    is_gone: bool,
}

/// One direction, as `said` by hosts; `silent` ones said nothing of the store. It is down when all that said something have
/// lost it. One that has not tried yet may have it; one that cannot even say so keeps nothing up.
fn together(said: &[Said<'_>], silent: u64) -> LinkView {
    let of = |up: Option<bool>| said.iter().filter(move |said| said.link.up == up);
    let (ups, downs) = (of(Some(true)).count() as u64, of(Some(false)).count() as u64);
    let may_have_it = of(None).any(|said| !said.is_gone);
    let since = |said: &Said<'_>| said.link.since_s;
    let (state, since_s) = match (ups, downs) {
        (0, 0) => ("unknown", said.iter().map(since).min()),
        (0, _) if may_have_it => ("unknown", of(Some(false)).map(since).min()),
        (0, _) => ("down", of(Some(false)).map(since).max()),
        _ => ("up", of(Some(true)).map(since).min()),
    };
    let why = of(Some(false)).chain(said).find_map(|said| Some((said.host, said.link.last_error.as_ref()?)));
    let named = |(host, error): (&str, &String)| match said.len() {
        1 => error.clone(),
        _ => format!("host {host}: {error}"),
    };
    LinkView {
        state: state.to_owned(),
        since_s: since_s.unwrap_or(0),
        last_error: why.map(named),
        nodes_up: ups,
        nodes_down: downs,
        nodes_unknown: of(None).count() as u64 + silent,
    }
}

#[cfg(test)]
mod tests {
    use braid_base::ids::{HostId, StoreId};
    use braid_base::msg::host::{LinkReport, StoreOp, StoreReport};
    use braid_base::store::{Place, StoreSpec};

    use super::{Said, Seen, operations, together};
    use crate::facts::{Host, ObjectStore};
    use crate::records;
    use crate::snapshot::Snapshot;
    use crate::stores;

    fn link(up: Option<bool>, since_s: u64) -> LinkReport {
        LinkReport { up, since_s, last_error: (up == Some(false)).then(|| format!("lost at {since_s}")) }
    }

    fn host(id: u32, name: &str) -> Host {
        let text = format!(
            r#"{{"version":1,"id":{id},"name":"{name}","addresses":[],"domain":"","state":"active","joined_s":0}}"#
        );
        records::decode(name, text.as_bytes()).expect("a host")
    }

    /// The state of a direction, since when, and how many hosts have it, have lost it, do not know.
    fn told(said: &[(&str, &LinkReport)], gone: &[&str], silent: u64) -> (String, u64, [u64; 3]) {
        let said: Vec<Said<'_>> =
            said.iter().map(|(host, link)| Said { host, link, is_gone: gone.contains(host) }).collect();
        let all = together(&said, silent);
        (all.state, all.since_s, [all.nodes_up, all.nodes_down, all.nodes_unknown])
    }

    #[test]
    fn a_direction_is_down_when_nobody_has_it() {
        let (up, down, new) = (link(Some(true), 10), link(Some(false), 20), link(None, 5));
        let is = |state: &str, since_s, counts| (state.to_owned(), since_s, counts);
        assert_eq!(told(&[("a", &up), ("b", &down), ("c", &new)], &[], 1), is("up", 10, [1, 1, 2]));
        let lost = link(Some(false), 30);
        let all = [("a", &lost), ("b", &down), ("c", &new)];
        assert_eq!(told(&all, &[], 0), is("unknown", 20, [0, 2, 1]), "one has not tried: it may have it");
        assert_eq!(told(&all, &["c"], 0), is("down", 30, [0, 2, 1]), "it could not reach the store if it tried");
        assert_eq!(told(&all[..2], &[], 1), is("down", 30, [0, 2, 1]), "who is silent keeps nothing up");
        assert_eq!(told(&[("c", &new)], &[], 0), is("unknown", 5, [0, 0, 1]));
        assert_eq!(told(&[], &[], 0), is("unknown", 0, [0, 0, 0]));
        let why = |all: &[(&str, &LinkReport)]| {
            together(&all.iter().map(|(host, link)| Said { host, link, is_gone: false }).collect::<Vec<_>>(), 0)
                .last_error
        };
        assert_eq!(why(&[("a", &up), ("b", &down)]).as_deref(), Some("host b: lost at 20"));
        assert_eq!(why(&[("b", &down)]).as_deref(), Some("lost at 20"), "who is alone needs no name");
        assert_eq!(why(&[("c", &new)]), None);
    }

    #[test]
    fn hosts_that_keep_silent_are_named() {
        let near = Place::Dir { path: "/d".to_owned() };
        let store = ObjectStore { id: StoreId(3), name: "near".to_owned(), spec: StoreSpec::at(near) };
        let (live, hosts) = (vec![HostId(2), HostId(1)], vec![host(1, "a"), host(2, "b"), host(4, "gone")]);
        let now = Snapshot { live, hosts, ..Snapshot::default() };
        let said = |full| {
            let [upload, download] = [link(Some(true), 1), link(Some(false), 2)];
            StoreReport { store: StoreId(3), upload, download, full, ..StoreReport::default() }
        };
        let other = StoreReport { store: StoreId(4), upload: link(Some(false), 9), ..StoreReport::default() };
        let seen = Seen::new(&now, vec![(HostId(1), vec![said(true), other])]);
        let view = seen.show(stores::view(&store, []));
        assert_eq!((view.upload.state.as_str(), view.download.state.as_str(), view.full), ("up", "down", true));
        assert_eq!((view.remove.state.as_str(), view.silent_hosts), ("unknown", vec!["b".to_owned()]));
        let both = Seen::new(&now, vec![(HostId(1), vec![said(false)]), (HostId(2), Vec::new())]);
        let view = both.show(stores::view(&store, []));
        assert!(view.silent_hosts.is_empty() && !view.full);
        assert_eq!((view.upload.nodes_up, view.upload.nodes_unknown), (1, 1), "b has not heard of the store");
    }

    #[test]
    fn operations_of_all_hosts_are_one_list() {
        let op = |id, ongoing, started_ms, took_ms| StoreOp {
            id,
            ongoing,
            started_ms,
            took_ms,
            line_errors: 2,
            results: "IO: 2".to_owned(),
            ..StoreOp::default()
        };
        let told = vec![
            ("a".to_owned(), vec![op(1, true, 1_500, 9), op(2, false, 1_000, 100)]),
            ("b".to_owned(), vec![op(3, true, 1_200, 9), op(4, false, 900, 500)]),
        ];
        let all = operations(told);
        let order: Vec<(&str, u64)> = all.iter().map(|op| (op.process.as_str(), op.id)).collect();
        assert_eq!(order, [("b", 3), ("a", 1), ("b", 4), ("a", 2)]);
        assert_eq!((all[1].phase.as_str(), all[1].start_time, all[1].exec_time), ("Ongoing", 1.5, 0.009));
        assert_eq!((all[3].phase.as_str(), all[3].connection_errors, all[3].last_exec_time), ("Recent", 2, None));
    }
}
