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
}

pub fn run(whole: &Whole, remove: &Remove) -> Outcome {
    let digits = remove.drive.strip_prefix('d').unwrap_or(&remove.drive);
    let id: u32 = digits.parse().map_err(|_| Failure::usage(format!("drive {}: d1, d2 ... expected", remove.drive)))?;
    Client::find(whole.dir.as_deref())?.call("DELETE", &format!("/drives/{id}"))?;
    if whole.json {
        return out::json(&json!({ "draining": id }));
    }
    out::lines(&[format!("drive d{id} is being emptied: `braid status rebuild` shows how far that is")])
}
