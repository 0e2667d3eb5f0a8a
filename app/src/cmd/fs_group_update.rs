//! `braid fs group update`: change a group.

use braid_cluster::view::{GroupSpec, GroupView};
use clap::Args;

use super::fs_group_list;
use crate::client::{Client, escape};
use crate::exit::{Failure, Outcome};
use crate::measure::parse_duration_s;
use crate::out;
use crate::whole::Whole;

#[derive(Args, Debug)]
pub struct Update {
    /// Its name
    name: String,
    /// Its new name
    #[arg(long, value_name = "NAME")]
    new_name: Option<String>,
    /// How long data should stay on flash after its last use
    #[arg(long, value_name = "DURATION", value_parser = parse_duration_s)]
    target_ssd_retention: Option<u64>,
    /// How long after a write data is copied to the object store
    #[arg(long, value_name = "DURATION", value_parser = parse_duration_s)]
    start_demote: Option<u64>,
}

pub fn run(whole: &Whole, update: &Update) -> Outcome {
    if update.new_name.is_none() && update.target_ssd_retention.is_none() && update.start_demote.is_none() {
        return Err(Failure::usage("what to change? say --new-name, --target-ssd-retention or --start-demote"));
    }
    let spec = GroupSpec {
        name: update.name.clone(),
        new_name: update.new_name.clone(),
        target_ssd_retention_s: update.target_ssd_retention,
        start_demote_s: update.start_demote,
    };
    let path = format!("/groups/{}", escape(&update.name));
    let changed: GroupView = Client::find(whole.dir.as_deref())?.send("PATCH", &path, &spec)?;
    if whole.json { out::json(&changed) } else { fs_group_list::table(vec![changed]) }
}
