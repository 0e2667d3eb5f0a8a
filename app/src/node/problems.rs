//! What is wrong with hosts, and what to do, in sentences.

use std::collections::BTreeMap;

use braid_base::ids::HostId;
use braid_base::msg::host::{LostObject, SeatReport, Ways};
use braid_cluster::facts::{Filesystem, Protection};
use braid_cluster::health;
use braid_cluster::view::stores::ObjectStoreView;
use braid_cluster::view::{DriveView, HostView};

/// Adds what is wrong with hosts; true if it makes the cluster less than well.
pub fn hosts(hosts: &[HostView], problems: &mut Vec<String>) -> bool {
    let clocks = health::wrong_clocks(hosts);
    let mut worse = !clocks.is_empty();
    problems.extend(clocks);
    for host in hosts.iter().filter(|host| matches!(host.state.as_str(), "down" | "failed")) {
        worse = true;
        let (name, id) = (&host.name, host.id);
        let end = if host.state == "failed" {
            format!("others take over what it held; if it does not come back, `braid cluster remove {name}`")
        } else {
            "start its `braid backend` again".to_owned()
        };
        problems.insert(0, format!("host {name} (h{id}) is {}: {end}", host.state));
    }
    for host in hosts.iter().filter(|host| host.state == "draining") {
        problems.push(format!("host {} (h{}) is being emptied, and is removed then", host.name, host.id));
    }
    worse
}

/// Adds which hosts reach each other, or etcd, only by way of others. That costs time, and the cluster is well.
pub fn ways(hosts: &[HostView], ways: &[(HostId, Ways)], problems: &mut Vec<String>) {
    let shown = |id: HostId| match hosts.iter().find(|host| host.id == id.0) {
        Some(host) => format!("{} ({id})", host.name),
        None => id.to_string(),
    };
    let relayed =
        |from: HostId, to: HostId| ways.iter().any(|(host, ways)| *host == from && ways.relayed.contains(&to));
    let look = "only by way of others: look at the network between them";
    for (host, to) in ways {
        for other in &to.relayed {
            match relayed(*other, *host) {
                true if other < host => {}
                true => problems.push(format!("hosts {} and {} reach each other {look}", shown(*host), shown(*other))),
                false => problems.push(format!("host {} reaches host {} {look}", shown(*host), shown(*other))),
            }
        }
        if to.etcd_by_others {
            problems.push(format!("host {} reaches etcd {look}", shown(*host)));
        }
    }
}

/// Adds which object stores that file systems use do not answer, or take no more; true if there is any.
pub fn stores(stores: &[ObjectStoreView], problems: &mut Vec<String>) -> bool {
    let before = problems.len();
    for store in stores.iter().filter(|store| !store.filesystems.is_empty()) {
        let name = &store.name;
        for (what, link) in [("uploads", &store.upload), ("downloads", &store.download), ("removals", &store.remove)] {
            let why = link.last_error.as_deref().unwrap_or("it does not answer");
            if link.state == "down" {
                problems.push(format!("object store {name}: {what} fail: {why}"));
            } else if link.nodes_down > 0 {
                let (down, all) = (link.nodes_down, link.nodes_up + link.nodes_down + link.nodes_unknown);
                problems.push(format!("object store {name}: {what} fail on {down} of {all} hosts: {why}"));
            }
        }
        if store.full {
            problems.push(format!("object store {name} is full: nothing is uploaded until it has room again"));
        }
    }
    problems.len() > before
}

/// Adds which file systems are short of flash, and which let writes wait for it. That costs time, and the cluster is well.
pub fn flash(filesystems: &[Filesystem], served: &[SeatReport], problems: &mut Vec<String>) {
    for fs in filesystems {
        let parts = || served.iter().filter_map(|seat| seat.data.tiering.get(&fs.id));
        let (name, waiting) = (&fs.name, parts().map(|part| part.waiting).sum::<u64>());
        if waiting > 0 {
            let writes = if waiting == 1 { "1 write waits".to_owned() } else { format!("{waiting} writes wait") };
            problems.push(format!(
                "file system {name}: its flash is full, and {writes} until data has gone into its object store: see \
                 `braid fs` and `braid fs tier`"
            ));
        } else if parts().any(|part| part.short) {
            problems.push(format!(
                "file system {name} is short of flash: data leaves it before its time, and nothing that is read comes \
                 back: see `braid fs`"
            ));
        }
    }
}

/// That shards of drives that leave may have no place on those that stay, if so.
pub fn too_few(drives: &[DriveView], protection: Protection) -> Option<String> {
    let stay = drives.iter().filter(|drive| !matches!(drive.state.as_str(), "draining" | "failed"));
    let mut of: BTreeMap<u16, usize> = BTreeMap::new();
    stay.for_each(|drive| *of.entry(drive.domain).or_default() += 1);
    // The loss of a domain is made up for as long as it has no more of a pack than there is parity.
    let most = usize::from(protection.parity).max(1);
    let (room, width) = (of.into_values().map(|count| count.min(most)).sum::<usize>(), protection.width());
    (room < width).then(|| {
        format!(
            "the drives that stay have places for {room} shards of a pack, which may have {width}: what cannot go to narrower \
             packs waits for another host or drive"
        )
    })
}

/// Why a part of a file cannot be read, in a few words.
pub fn why_lost(object: Option<&LostObject>) -> &'static str {
    match object {
        None => "too few shards",
        Some(LostObject { missing: true, .. }) => "object missing",
        Some(_) => "object damaged",
    }
}

/// Adds that files are lost in object stores, if any are; true then.
pub fn objects(served: &[SeatReport], problems: &mut Vec<String>) -> bool {
    let count: u64 = served.iter().map(|seat| seat.data.damaged_objects).sum();
    let words = if count == 1 { "object is" } else { "objects are" };
    if count > 0 {
        problems.push(format!(
            "{count} {words} missing or damaged in an object store, with the only copy of data: see `braid status lost`"
        ));
    }
    count > 0
}

/// Adds what keeps replicas from their work, of those that do not serve; the ones that do, `served`, are named with their
/// partitions. True if there is any.
pub fn replicas(
    hosts: &[HostView],
    all: &[(HostId, SeatReport)],
    served: &[SeatReport],
    problems: &mut Vec<String>,
) -> bool {
    let mut worse = false;
    for (host, replica) in all.iter().filter(|(_, replica)| !served.contains(replica)) {
        if let Some(why) = replica.failed.as_ref().or(replica.waits.as_ref()) {
            worse = true;
            let name = hosts.iter().find(|view| view.id == host.0).map_or("?", |view| view.name.as_str());
            problems.push(format!("host {name} ({host}): its replica of {}: {}", replica.partition, why.message()));
        }
    }
    worse
}

#[cfg(test)]
mod tests {
    use std::slice::from_ref;

    use braid_base::ids::{HostId, PartitionId, StoreId, Term};
    use braid_base::msg::host::{SeatData, SeatReport, Tiering, Ways};
    use braid_base::store::{Place, StoreSpec};
    use braid_base::{Error, ErrorKind};
    use braid_cluster::facts::{Filesystem, ObjectStore};
    use braid_cluster::view::stores::LinkView;

    #[test]
    fn flash_that_is_short_or_waited_for() {
        let text = r#"{"id":7,"uuid":"01010101-0101-0101-0101-010101010101","name":"one","group":"g","total_bytes":null,
            "root_vp":0,"created_s":0}"#;
        let fs: Filesystem = serde_json::from_str(text).expect("a file system");
        let said = |short, waiting| {
            let tiering = [(fs.id, Tiering { short, waiting, ..Tiering::default() })].into();
            let seat = SeatReport { data: SeatData { tiering, ..SeatData::default() }, ..SeatReport::default() };
            let mut problems = Vec::new();
            super::flash(std::slice::from_ref(&fs), &[seat.clone(), seat], &mut problems);
            problems.concat()
        };
        assert_eq!(said(false, 0), "");
        assert!(said(true, 0).starts_with("file system one is short of flash"));
        assert!(said(true, 3).contains("file system one: its flash is full, and 6 writes wait until"));
    }

    #[test]
    fn ways_that_others_are_needed_for() {
        let (a, b, c) = (HostId(1), HostId(2), HostId(3));
        let ways = |relayed: &[HostId], etcd_by_others| Ways { relayed: relayed.to_vec(), etcd_by_others };
        let mut problems = Vec::new();
        super::ways(&[], &[(a, ways(&[b, c], false)), (b, ways(&[a], true)), (c, ways(&[], false))], &mut problems);
        let look = "only by way of others: look at the network between them";
        let expected = ["hosts h1 and h2 reach each other", "host h1 reaches host h3", "host h2 reaches etcd"];
        assert_eq!(problems, expected.map(|words| format!("{words} {look}")));
    }

    #[test]
    fn replicas_that_do_not_start() {
        let (partition, term) = (PartitionId(4), Term(7));
        let served = SeatReport { partition, term, ..SeatReport::default() };
        let failed = Some(Error::new(ErrorKind::Corrupt, "its log is damaged"));
        let idle = SeatReport { partition, failed, ..SeatReport::default() };
        let all = [(HostId(1), served.clone()), (HostId(2), idle.clone())];
        assert_eq!(braid_host::run::Host::served(&[(HostId(2), idle), (HostId(1), served.clone())]), from_ref(&served));
        let mut problems = Vec::new();
        assert!(super::replicas(&[], &all, &[served], &mut problems));
        assert_eq!(problems, ["host ? (h2): its replica of p4: its log is damaged"]);
    }

    #[test]
    fn stores_that_some_or_all_have_lost() {
        let near = Place::Dir { path: "/d".to_owned() };
        let store = ObjectStore { id: StoreId(1), name: "near".to_owned(), spec: StoreSpec::at(near) };
        let link = |state: &str, hosts, nodes_down| {
            let (state, last_error) = (state.to_owned(), Some("host b: no route".to_owned()));
            LinkView { state, nodes_up: hosts - nodes_down, nodes_down, last_error, ..LinkView::default() }
        };
        let mut view = braid_cluster::stores::view(&store, []);
        (view.upload, view.download, view.remove) = (link("down", 3, 3), link("up", 3, 1), link("up", 3, 0));
        let mut problems = Vec::new();
        assert!(!super::stores(&[view.clone()], &mut problems) && problems.is_empty(), "no file system uses it");
        view.filesystems.push("one".to_owned());
        assert!(super::stores(&[view], &mut problems));
        let expected = [
            "object store near: uploads fail: host b: no route",
            "object store near: downloads fail on 1 of 3 hosts: host b: no route",
        ];
        assert_eq!(problems, expected);
    }
}
