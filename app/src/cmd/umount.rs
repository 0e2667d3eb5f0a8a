//! `braid umount`: take a mount away, also a dead one whose process was killed.

use std::path::{Path, PathBuf};

use braid_admin::registry;
use braid_cluster::view::MountView;
use clap::Args;
use serde_json::json;

use crate::client::{Client, escape};
use crate::exit::{FAILURE, Failure, Outcome};
use crate::whole::Whole;
use crate::{mountpoint, out, progress};

#[derive(Args, Debug)]
pub struct Umount {
    /// Directory it is mounted on
    path: PathBuf,
}

pub fn run(whole: &Whole, umount: &Umount) -> Outcome {
    let path = mountpoint::settle(&umount.path)?;
    let shown = path.display().to_string();
    match owner(whole, &shown)? {
        Some(client) => {
            let call = format!("/mounts?path={}", escape(&shown));
            progress::during("unmounting", || client.call("DELETE", &call))?;
        }
        None if mountpoint::is_mounted(&path)? => alone(&path)?,
        None if braid_fuse::is_dead(&path) => mountpoint::detach(&path)?,
        None => {
            let message = format!("{shown} is no mount of a running cluster: `braid status` lists mounts");
            return Err(Failure { code: FAILURE, message });
        }
    }
    if whole.json { out::json(&json!({ "unmounted": shown })) } else { out::lines(&[format!("{shown} is unmounted")]) }
}

/// A mount that no running cluster knows: its cluster does not run, or its own process was killed. Whether it is dead is
/// asked only if it does not go: while its server is away, the question waits for it.
fn alone(path: &Path) -> Result<(), Failure> {
    match braid_fuse::unmount(path) {
        Err(_) if braid_fuse::is_dead(path) => Ok(mountpoint::detach(path)?),
        done => Ok(done?),
    }
}

/// The running cluster that has the mount: the one that was named, or any of this machine.
fn owner(whole: &Whole, path: &str) -> Result<Option<Client>, Failure> {
    let candidates = match &whole.dir {
        Some(dir) => vec![Client::at(dir)?],
        None => registry::running().iter().filter_map(|dir| Client::at(dir).ok()).collect(),
    };
    for client in candidates {
        let mounts: Vec<MountView> = match client.get("/mounts") {
            Ok(mounts) => mounts,
            Err(failure) if whole.dir.is_some() => return Err(failure),
            // One that does not answer says nothing of the others, and its mounts go without it.
            Err(_) => continue,
        };
        if mounts.iter().any(|mount| mount.path == path) {
            return Ok(Some(client));
        }
    }
    Ok(None)
}
