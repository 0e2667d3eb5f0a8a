//! `braid fs tier KIND remove`: forget an object store that no file system uses.

use clap::Args;
use serde_json::json;

use crate::client::{Client, escape};
use crate::exit::Outcome;
use crate::out;
use crate::whole::Whole;

#[derive(Args, Debug)]
pub struct Remove {
    /// Its name
    name: String,
    /// Also while objects of removed file systems wait there to be removed: they are left there
    #[arg(long, short)]
    force: bool,
}

pub fn run(whole: &Whole, remove: &Remove) -> Outcome {
    let name = &remove.name;
    Client::find(whole.dir.as_deref())?
        .call("DELETE", &format!("/object-stores/{}?force={}", escape(name), remove.force))?;
    if whole.json {
        out::json(&json!({ "removed": name }))
    } else {
        out::lines(&[format!("object store {name} is removed; what lies in it stays there")])
    }
}
