//! `braid cluster remove`: empty a host and take it out of the cluster.

use clap::Args;
use serde_json::json;

use crate::client::{Client, escape};
use crate::exit::Outcome;
use crate::out;
use crate::whole::Whole;

#[derive(Args, Debug)]
pub struct Remove {
    /// Its name, or its number, such as h3
    host: String,
    /// Also if too few hosts or failure domains are left for the protection of the data: it is protected less then
    #[arg(long)]
    force: bool,
    /// It never comes back, and what only it has is lost: see `braid status lost` then
    #[arg(long, conflicts_with = "force")]
    abandon: bool,
}

pub fn run(whole: &Whole, remove: &Remove) -> Outcome {
    let path = format!("/hosts/{}?force={}&abandon={}", escape(&remove.host), remove.force, remove.abandon);
    Client::find(whole.dir.as_deref())?.call("DELETE", &path)?;
    let host = &remove.host;
    if whole.json {
        return out::json(&json!({ "draining": host }));
    }
    let words = if remove.abandon {
        "is not waited for any more: what others make up for is made anew, what only it had is lost (`braid status lost`)"
    } else {
        "is being emptied, and leaves the cluster when nothing is left on it"
    };
    out::lines(&[format!("host {host} {words}: see `braid cluster host` and `braid status rebuild`")])
}
