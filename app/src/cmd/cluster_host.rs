//! `braid cluster host`: the hosts.

use braid_cluster::view::HostView;

use crate::client::Client;
use crate::exit::Outcome;
use crate::out::{self, tone_of, toned};
use crate::whole::Whole;

pub fn run(whole: &Whole) -> Outcome {
    let hosts: Vec<HostView> = Client::find(whole.dir.as_deref())?.get("/hosts")?;
    if whole.json {
        return out::json(&hosts);
    }
    let rows = hosts.into_iter().map(|host| {
        vec![
            format!("h{}", host.id).into(),
            host.name.into(),
            host.addresses.join(" ").into(),
            host.failure_domain.into(),
            toned(&host.state, tone_of(&host.state)),
            host.drives.to_string().into(),
            host.leads.to_string().into(),
            host.copies.to_string().into(),
            match host.clock_ahead_ms {
                None => "?".into(),
                Some(-999..=999) => "right".into(),
                Some(ms) => toned(format!("{:+} s", ms / 1_000), tone_of("degraded")),
            },
        ]
    });
    let titles = ["ID", "NAME", "ADDRESS", "FAILURE DOMAIN", "STATE", "DRIVES>", "LEADS>", "COPIES>", "CLOCK>"];
    out::table(&titles, rows.collect())
}
