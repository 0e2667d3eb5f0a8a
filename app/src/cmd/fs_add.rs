//! `braid fs add`: a new file system.

use braid_cluster::view::{FilesystemView, FsSpec};
use clap::Args;

use super::fs_list;
use crate::client::Client;
use crate::exit::Outcome;
use crate::measure::parse_size;
use crate::whole::Whole;
use crate::{out, progress};

#[derive(Args, Debug)]
pub struct Add {
    /// Its name: 1 to 32 characters without slash, backslash and blank
    name: String,
    /// Its group
    #[arg(default_value = "default")]
    group: String,
    /// Most bytes it may hold [default: as many as the cluster has]
    #[arg(long, value_name = "SIZE", value_parser = parse_size)]
    total_capacity: Option<u64>,
    /// Most bytes of it that lie on flash [default: all that it may hold]
    #[arg(long, value_name = "SIZE", value_parser = parse_size)]
    ssd_capacity: Option<u64>,
    /// Object store that takes its cold data
    #[arg(long, value_name = "STORE")]
    obs_name: Option<String>,
    /// Most data of one object, 4 to 64 MiB [default: 64]
    #[arg(long, value_name = "MIB")]
    object_mib: Option<u8>,
}

pub fn run(whole: &Whole, add: &Add) -> Outcome {
    let client = Client::find(whole.dir.as_deref())?;
    let spec = FsSpec {
        name: add.name.clone(),
        group: Some(add.group.clone()),
        total_bytes: add.total_capacity,
        ssd_bytes: add.ssd_capacity,
        object_mib: add.object_mib,
        store: add.obs_name.clone(),
    };
    let added: FilesystemView =
        progress::during("adding the file system", || client.send("POST", "/filesystems", &spec))?;
    if whole.json { out::json(&added) } else { fs_list::table(vec![added]) }
}
