//! `braid cluster drive add`: one more drive for this host.

use std::path::PathBuf;

use braid_cluster::view::{DriveSpec, DriveView};
use clap::Args;

use crate::client::Client;
use crate::cmd::up::absolute;
use crate::exit::Outcome;
use crate::measure::{parse_size, size};
use crate::whole::Whole;
use crate::{out, progress};

#[derive(Args, Debug)]
pub struct Add {
    /// File or device of the host that is asked; blank, or with --drive-size a file to make
    path: PathBuf,
    /// Size of the file to make
    #[arg(long, value_name = "SIZE", value_parser = parse_size)]
    drive_size: Option<u64>,
}

pub fn run(whole: &Whole, add: &Add) -> Outcome {
    let client = Client::find(whole.dir.as_deref())?;
    let path = absolute(&add.path)?;
    let path = path.canonicalize().unwrap_or(path).to_string_lossy().into_owned();
    let spec = DriveSpec { path, size_bytes: add.drive_size };
    let drive: DriveView = progress::during("formatting the drive", || client.send("POST", "/drives", &spec))?;
    if whole.json {
        return out::json(&drive);
    }
    out::lines(&[format!("drive d{} ({}, {}) is {}", drive.id, drive.path, size(drive.size_bytes), drive.state)])
}
