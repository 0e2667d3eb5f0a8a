//! `braid cluster drive remove`: empty a drive and take it out of the cluster.

use clap::Args;
use serde_json::json;

use crate::client::Client;
use crate::exit::{Failure, Outcome};
use crate::out;
use crate::whole::Whole;

#[derive(Args, Debug)]
pub struct Remove {
    /// Its number, such as d3
    drive: String,
    /// Also if the other drives have too little room for what is stored, or too few failure domains are left
    #[arg(long)]
    force: bool,
    /// It never comes back, and what only it has is lost: see `braid status lost` then
    #[arg(long, conflicts_with = "force")]
    abandon: bool,
}

pub fn run(whole: &Whole, remove: &Remove) -> Outcome {
    let id = number(&remove.drive)?;
    let path = format!("/drives/{id}?force={}&abandon={}", remove.force, remove.abandon);
    Client::find(whole.dir.as_deref())?.call("DELETE", &path)?;
    if whole.json {
        return out::json(&json!({ "draining": id }));
    }
    if remove.abandon {
        return out::lines(&[format!(
            "drive d{id} is not waited for any more: what others make up for is made anew, what only it had is lost; \
             `braid status rebuild` shows how far that is, `braid status lost` what it cost"
        )]);
    }
    out::lines(&[format!(
        "drive d{id} is being emptied: `braid status rebuild` shows how far that is, `braid cluster drive activate d{id}` \
         takes it back"
    )])
}

/// The number of a drive that a person named.
pub fn number(drive: &str) -> Result<u32, Failure> {
    let digits = drive.strip_prefix('d').unwrap_or(drive);
    digits.parse().map_err(|_| Failure::usage(format!("drive {drive}: d1, d2 ... expected")))
}
