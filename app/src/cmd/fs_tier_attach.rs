//! `braid fs tier KIND attach`: give a file system an object store for its cold data.

use braid_cluster::facts::Mode;
use braid_cluster::view::FilesystemView;
use braid_cluster::view::stores::AttachSpec;
use clap::Args;

use super::fs_list;
use crate::client::{Client, escape};
use crate::exit::Outcome;
use crate::out;
use crate::whole::Whole;

#[derive(Args, Debug)]
pub struct Attach {
    /// The file system
    #[arg(value_name = "FS")]
    filesystem: String,
    /// The object store, of whatever kind
    #[arg(value_name = "STORE")]
    store: String,
    /// writable: cold data goes there; with a second one the first is only read from then on, so that it can be detached.
    /// Also for a store that is attached and only read. read-only: what is there is read
    #[arg(long, value_parser = mode, default_value = "writable")]
    mode: Mode,
}

pub fn run(whole: &Whole, attach: &Attach) -> Outcome {
    let spec = AttachSpec { store: attach.store.clone(), mode: attach.mode };
    let path = format!("/filesystems/{}/stores", escape(&attach.filesystem));
    let attached: FilesystemView = Client::find(whole.dir.as_deref())?.send("POST", &path, &spec)?;
    if whole.json { out::json(&attached) } else { fs_list::table(vec![attached]) }
}

fn mode(text: &str) -> Result<Mode, String> {
    match text {
        "writable" => Ok(Mode::Writable),
        "read-only" | "read_only" => Ok(Mode::ReadOnly),
        _ => Err(format!("writable or read-only expected, found {text:?}")),
    }
}
