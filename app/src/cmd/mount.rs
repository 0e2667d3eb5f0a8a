//! `braid mount`: one more mount of the running cluster.

use std::path::PathBuf;

use braid_cluster::view::{MountSpec, MountView};
use clap::Args;

use crate::client::Client;
use crate::exit::Outcome;
use crate::whole::Whole;
use crate::{mountpoint, out, progress};

#[derive(Args, Debug)]
pub struct Mount {
    /// Name of the file system
    fs: String,
    /// Empty directory to mount it on
    path: PathBuf,
}

pub fn run(whole: &Whole, mount: &Mount) -> Outcome {
    let client = Client::find(whole.dir.as_deref())?;
    // The process has another working directory, so it gets the whole path.
    let path = mountpoint::check(&mount.path, &client.dir)?;
    let spec = MountSpec { filesystem: mount.fs.clone(), path: path.to_string_lossy().into_owned() };
    let made: MountView = progress::during("mounting", || client.send("POST", "/mounts", &spec))?;
    if whole.json {
        return out::json(&made);
    }
    out::lines(&[format!("file system {} is mounted on {}", made.filesystem, made.path)])
}
