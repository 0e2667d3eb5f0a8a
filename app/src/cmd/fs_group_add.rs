//! `braid fs group add`: a new group.

use braid_cluster::view::{GroupSpec, GroupView};
use clap::Args;

use super::fs_group_list;
use crate::client::Client;
use crate::exit::Outcome;
use crate::measure::parse_duration_s;
use crate::out;
use crate::whole::Whole;

#[derive(Args, Debug)]
pub struct Add {
    /// Its name
    name: String,
    /// How long data should stay on flash after its last use [default: 1d]
    #[arg(long, value_name = "DURATION", value_parser = parse_duration_s)]
    target_ssd_retention: Option<u64>,
    /// How long after a write data is copied to the object store [default: 15m, at most a third of the former]
    #[arg(long, value_name = "DURATION", value_parser = parse_duration_s)]
    start_demote: Option<u64>,
}

pub fn run(whole: &Whole, add: &Add) -> Outcome {
    let spec = GroupSpec {
        name: add.name.clone(),
        new_name: None,
        target_ssd_retention_s: add.target_ssd_retention,
        start_demote_s: add.start_demote,
    };
    let added: GroupView = Client::find(whole.dir.as_deref())?.send("POST", "/groups", &spec)?;
    if whole.json { out::json(&added) } else { fs_group_list::table(vec![added]) }
}
