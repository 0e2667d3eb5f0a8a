//! The drives of a host, from path to thread.

use std::collections::BTreeMap;
use std::path::PathBuf;

use braid_base::ids::{DriveId, Guid};
use braid_base::msg::event::{Event, EventType};
use braid_base::{Error, ErrorKind, Result};
use braid_drive::{Drive, DriveActor, Running};
use braid_io::limited::each_within;
use braid_io::reactor::{Backend, Ending, Place};

use super::events::Events;

/// A drive that this host runs.
#[derive(Clone, Debug)]
pub struct DriveSpec {
    /// Its number.
    pub id: DriveId,
    /// Where it is.
    pub path: PathBuf,
    /// Which drive must be found there.
    pub uuid: Guid,
}

/// How long a drive may take to open: one that is well does it in a second or two, however large it is, and a system that
/// gives a request up and tries again has done so by then. The host starts without one that takes longer.
const OPEN_WAIT_MS: u64 = 30_000;

/// Starts the drives of a host, all at the same time; those that do not open, or not in time, are left out.
pub(super) fn start_all(
    (cluster, specs): (Guid, &[DriveSpec]),
    runtime: &tokio::runtime::Handle,
    events: &Events,
    endings: &mut Vec<Ending>,
) -> BTreeMap<DriveId, Drive> {
    let runtime = runtime.clone();
    let open = move |spec: &DriveSpec| start(cluster, &runtime, spec);
    let opened = each_within("open-drive", OPEN_WAIT_MS, specs.to_vec(), open);
    let mut drives = BTreeMap::new();
    for (spec, running) in opened {
        match running {
            Some(Ok(running)) => {
                drives.insert(spec.id, running.drive);
                endings.push(running.ending);
            }
            Some(Err(error)) => tracing::warn!("drive {} is left out: {error}", spec.id),
            None => {
                let (id, path, wait_s) = (spec.id, spec.path.display(), OPEN_WAIT_MS / 1_000);
                let text = format!(
                    "drive {id} ({path}) did not open within {wait_s} s: this host serves without it until it is started \
                     again; look at the device, and replace it if it goes on"
                );
                events.tell(Event::new(EventType::DRIVE_DOWN, text).about("drive", id));
            }
        }
    }
    drives
}

/// Starts the drive of `spec`. Blocks.
pub(super) fn start(cluster: Guid, runtime: &tokio::runtime::Handle, spec: &DriveSpec) -> Result<Running> {
    let running = DriveActor::open(&spec.path, Some(cluster), &Place::beside(runtime), Backend::Auto)?;
    if running.superblock.drive != spec.uuid {
        let found = running.superblock.drive;
        let words = format!("{}: expected drive {}, found drive {found}", spec.path.display(), spec.uuid);
        return Err(Error::new(ErrorKind::Refused, words));
    }
    Ok(running)
}
