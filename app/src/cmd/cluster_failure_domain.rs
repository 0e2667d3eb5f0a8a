//! `braid cluster failure-domain`: what fails together.

use std::collections::BTreeMap;

use braid_cluster::view::{DriveView, HostView};
use serde::Serialize;

use crate::client::Client;
use crate::exit::Outcome;
use crate::measure::size;
use crate::out;
use crate::whole::Whole;

/// Hosts that fail together, and what they have.
#[derive(Default, Serialize)]
struct Domain {
    name: String,
    hosts: Vec<String>,
    drives: usize,
    drives_lost: usize,
    size_bytes: u64,
    used_bytes: u64,
}

pub fn run(whole: &Whole) -> Outcome {
    let client = Client::find(whole.dir.as_deref())?;
    let (hosts, drives): (Vec<HostView>, Vec<DriveView>) = (client.get("/hosts")?, client.get("/drives")?);
    let mut domains = BTreeMap::<String, Domain>::new();
    for host in hosts {
        let domain = domains.entry(host.failure_domain.clone()).or_default();
        domain.name = host.failure_domain;
        domain.hosts.push(host.name);
        for drive in drives.iter().filter(|drive| drive.host == host.id) {
            domain.drives += 1;
            domain.drives_lost += usize::from(drive.is_lost());
            domain.size_bytes += drive.size_bytes;
            domain.used_bytes += drive.used_bytes;
        }
    }
    let domains: Vec<Domain> = domains.into_values().collect();
    if whole.json {
        return out::json(&domains);
    }
    let rows = domains.into_iter().map(|domain| {
        vec![
            domain.name.into(),
            domain.hosts.join(" ").into(),
            domain.drives.to_string().into(),
            domain.drives_lost.to_string().into(),
            size(domain.size_bytes).into(),
            size(domain.used_bytes).into(),
        ]
    });
    out::table(&["FAILURE DOMAIN", "HOSTS", "DRIVES>", "LOST>", "SIZE>", "USED>"], rows.collect())
}
