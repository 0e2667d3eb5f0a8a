//! The drives of a host, from path to thread.

use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};

use braid_base::ids::{DriveId, Guid};
use braid_base::limits::DRIVE_OPEN_WAIT_MS;
use braid_base::msg::event::{Event, EventType};
use braid_base::{Error, ErrorKind, Result};
use braid_drive::{DriveActor, Running};
use braid_io::limited::{self, each_or_late};
use braid_io::reactor::{Backend, Ending, Place};

use super::events::Events;
use super::setup::HostConfig;
use super::wire::{Mark, Switch};

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

/// A drive that was started, and as what it was found.
pub(super) struct Opened {
    pub(super) id: DriveId,
    pub(super) running: Running,
    pub(super) mark: Mark,
}

/// What is waited for at the end: the threads of drives.
pub(super) type Endings = Arc<Mutex<Vec<Ending>>>;

/// Drives that open later than the host waits for.
pub(super) struct Late([limited::Late<DriveSpec, Result<Opened>>; 2]);

/// Starts the drives of a host, all at the same time; those that do not open, or not in time, are left out. The ones that are
/// awaited, and the ones that come late, come with the second part.
pub(super) fn start_all(config: &HostConfig, runtime: &tokio::runtime::Handle, events: &Events) -> (Vec<Opened>, Late) {
    let (cluster, runtime) = (config.cluster, runtime.clone());
    let open = move |spec: &DriveSpec| start(cluster, &runtime, spec);
    let (early, awaited) = each_or_late("open-drive", 0, config.awaited.clone(), open.clone());
    let (found, late) = each_or_late("open-drive", DRIVE_OPEN_WAIT_MS, config.drives.clone(), open);
    let mut opened: Vec<Opened> = early.into_iter().filter_map(|(spec, result)| or_told(&spec, result?)).collect();
    for (spec, result) in found {
        match result {
            Some(result) => opened.extend(or_told(&spec, result)),
            None => {
                let (id, path, wait_s) = (spec.id, spec.path.display(), DRIVE_OPEN_WAIT_MS / 1_000);
                let text = format!(
                    "drive {id} ({path}) did not open within {wait_s} s: this host serves without it until it does; look \
                     at the device, and replace it if this goes on"
                );
                events.tell(Event::new(EventType::DRIVE_DOWN, text).about("drive", id));
            }
        }
    }
    (opened, Late([awaited, late]))
}

impl Late {
    /// Those that have opened since.
    pub(super) fn opened(&self) -> Vec<Opened> {
        let ended = self.0.iter().flat_map(limited::Late::ended);
        ended.filter_map(|(spec, result)| or_told(&spec, result)).collect()
    }
}

fn or_told(spec: &DriveSpec, result: Result<Opened>) -> Option<Opened> {
    result.inspect_err(|error| tracing::warn!("drive {} is left out: {error}", spec.id)).ok()
}

/// Starts the drive of `spec`. Blocks.
pub(super) fn start(cluster: Guid, runtime: &tokio::runtime::Handle, spec: &DriveSpec) -> Result<Opened> {
    let running = DriveActor::open(&spec.path, Some(cluster), &Place::beside(runtime), Backend::Auto)?;
    if running.superblock.drive != spec.uuid {
        let found = running.superblock.drive;
        let words = format!("{}: expected drive {}, found drive {found}", spec.path.display(), spec.uuid);
        return Err(Error::new(ErrorKind::Refused, words));
    }
    Ok(Opened { id: spec.id, running, mark: Mark::of(&spec.path)? })
}

impl Switch {
    /// A drive of this host that was not there before is used from now on.
    pub(super) fn take_in(&self, opened: Opened, endings: &Endings) {
        let Opened { id, running, mark } = opened;
        self.marks.lock().unwrap_or_else(PoisonError::into_inner).insert(id, mark);
        self.drives.write().unwrap_or_else(PoisonError::into_inner).insert(id, running.drive);
        endings.lock().unwrap_or_else(PoisonError::into_inner).push(running.ending);
    }
}
