//! `braid fs update`: change a file system.

use braid_cluster::view::{FilesystemView, FsChange};
use clap::Args;

use super::fs_list;
use crate::client::{Client, escape};
use crate::exit::{Failure, Outcome};
use crate::measure::parse_size;
use crate::whole::Whole;
use crate::{out, progress};

#[derive(Args, Debug)]
pub struct Update {
    /// Its name
    name: String,
    /// Its new name
    #[arg(long, value_name = "NAME")]
    new_name: Option<String>,
    /// Its new group
    #[arg(long)]
    group: Option<String>,
    /// Most bytes it may hold; 0 takes the limit away
    #[arg(long, value_name = "SIZE", value_parser = parse_size)]
    total_capacity: Option<u64>,
    /// Most bytes of it that lie on flash; 0: all that it may hold
    #[arg(long, value_name = "SIZE", value_parser = parse_size)]
    ssd_capacity: Option<u64>,
    /// Most data of an object that is written from now on, 4 to 64 MiB
    #[arg(long, value_name = "MIB")]
    object_mib: Option<u8>,
}

pub fn run(whole: &Whole, update: &Update) -> Outcome {
    let change = FsChange {
        new_name: update.new_name.clone(),
        group: update.group.clone(),
        total_bytes: update.total_capacity,
        ssd_bytes: update.ssd_capacity,
        object_mib: update.object_mib,
    };
    if change == FsChange::default() {
        return Err(Failure::usage(
            "what to change? say --new-name, --group, --total-capacity, --ssd-capacity or --object-mib",
        ));
    }
    let client = Client::find(whole.dir.as_deref())?;
    let path = format!("/filesystems/{}", escape(&update.name));
    let changed: FilesystemView =
        progress::during("changing the file system", || client.send("PATCH", &path, &change))?;
    if whole.json { out::json(&changed) } else { fs_list::table(vec![changed]) }
}
