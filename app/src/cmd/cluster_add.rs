//! `braid cluster add`: take more hosts in.

use braid_cluster::view::{HostSpec, HostView};
use clap::Args;

use crate::client::Client;
use crate::exit::Outcome;
use crate::out;
use crate::whole::Whole;

#[derive(Args, Debug)]
pub struct Add {
    /// Hosts, by the names under which their `braid backend` waits
    #[arg(value_name = "HOST", required = true)]
    hosts: Vec<String>,
}

pub fn run(whole: &Whole, add: &Add) -> Outcome {
    let client = Client::find(whole.dir.as_deref())?;
    let joined: Vec<HostView> = client.send("POST", "/hosts", &HostSpec { names: add.hosts.clone() })?;
    if whole.json {
        return out::json(&joined);
    }
    let line = |host: &HostView| format!("host {} is h{}, with {} drives", host.name, host.id, host.drives);
    let mut lines: Vec<String> = joined.iter().map(line).collect();
    lines.push("they format their drives and get their part of the partitions: see `braid cluster host`".to_owned());
    out::lines(&lines)
}
