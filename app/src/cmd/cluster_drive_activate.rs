//! `braid cluster drive activate`: keep a drive that is being emptied.

use clap::Args;
use serde_json::json;

use super::cluster_drive_remove::number;
use crate::client::Client;
use crate::exit::Outcome;
use crate::out;
use crate::whole::Whole;

#[derive(Args, Debug)]
pub struct Activate {
    /// Its number, such as d3
    drive: String,
}

pub fn run(whole: &Whole, activate: &Activate) -> Outcome {
    let id = number(&activate.drive)?;
    Client::find(whole.dir.as_deref())?.call("POST", &format!("/drives/{id}/activate"))?;
    if whole.json {
        return out::json(&json!({ "active": id }));
    }
    out::lines(&[format!("drive d{id} stays: what is still on it is not moved away any more")])
}
