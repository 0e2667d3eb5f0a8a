//! What is wrong with hosts, and what to do, in sentences.

use braid_base::ids::HostId;
use braid_base::msg::host::SeatReport;
use braid_cluster::health;
use braid_cluster::view::HostView;
use braid_cluster::view::stores::ObjectStoreView;

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

/// Adds which object stores that file systems use do not answer, or take no more; true if there is any.
pub fn stores(stores: &[ObjectStoreView], problems: &mut Vec<String>) -> bool {
    let before = problems.len();
    for store in stores.iter().filter(|store| !store.filesystems.is_empty()) {
        let name = &store.name;
        for (what, link) in [("uploads", &store.upload), ("downloads", &store.download), ("removals", &store.remove)] {
            if link.state == "down" {
                let why = link.last_error.as_deref().unwrap_or("it does not answer");
                problems.push(format!("object store {name}: {what} fail: {why}"));
            }
        }
        if store.full {
            problems.push(format!("object store {name} is full: nothing is uploaded until it has room again"));
        }
    }
    problems.len() > before
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
            problems.push(format!("host {name} (h{host}): its replica of {}: {}", replica.partition, why.message()));
        }
    }
    worse
}
