//! `braid cluster update`: what holds for the whole cluster.

use braid_cluster::view::{SettingsChange, SettingsView};
use clap::Args;

use crate::client::Client;
use crate::exit::{Failure, Outcome};
use crate::measure::{parse_size, size};
use crate::out;
use crate::whole::Whole;

#[derive(Args, Debug)]
pub struct Update {
    /// Bytes of shards per second that each host makes anew after a failure, at most; 0: as many as it can
    #[arg(long, value_name = "BYTES", value_parser = parse_size)]
    rebuild_bytes_per_sec: Option<u64>,
    /// Bytes per second that each drive is read with to check what lies there, at most; 0: only what may have lost data is checked
    #[arg(long, value_name = "BYTES", value_parser = parse_size)]
    scrubber_bytes_per_sec: Option<u64>,
}

pub fn run(whole: &Whole, update: &Update) -> Outcome {
    let change = SettingsChange {
        rebuild_bytes_per_s: update.rebuild_bytes_per_sec,
        scrubber_bytes_per_s: update.scrubber_bytes_per_sec,
        ..SettingsChange::default()
    };
    if change == SettingsChange::default() {
        return Err(Failure::usage("what to change? say --rebuild-bytes-per-sec or --scrubber-bytes-per-sec"));
    }
    let client = Client::find(whole.dir.as_deref())?;
    let settings: SettingsView = client.send("PATCH", "/settings", &change)?;
    if whole.json {
        return out::json(&settings);
    }
    let rebuild = settings.rebuild_bytes_per_s.map_or("as fast as it goes".to_owned(), |n| size(n) + "/s on each host");
    let scrub = match settings.scrubber_bytes_per_s {
        0 => "off".to_owned(),
        bytes => size(bytes) + "/s of each drive",
    };
    out::lines(&[format!("rebuild: {rebuild}"), format!("scrub: {scrub}")])
}
