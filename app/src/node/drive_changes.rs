//! Drives that are added to a host, or leave it.

use std::path::PathBuf;

use braid_base::ids::{DomainId, DriveId, HostId};
use braid_base::{Error, ErrorKind, Result};
use braid_cluster::capacity::OnDrives;
use braid_cluster::coordinator::Coordinator;
use braid_cluster::drives as records_of;
use braid_cluster::facts::{Cluster, Drive, DriveState};
use braid_cluster::records;
use braid_cluster::removal::{self, Removal};
use braid_cluster::setup::{self, Label, bounds};
use braid_cluster::snapshot::Snapshot;
use braid_cluster::view::DriveSpec;
use braid_drive::FormatParams;
use braid_host::run::{DriveSpec as Place, Host};

use super::drives;

/// Records, formats and starts a drive at `spec` of host `me`. Blocks. `Refused` if what lies there is not blank.
pub fn add(
    coordinator: &dyn Coordinator,
    cluster: &Cluster,
    (host, me): (&Host, HostId),
    spec: &DriveSpec,
) -> Result<Drive> {
    let path = PathBuf::from(&spec.path);
    let now = Snapshot::read(coordinator)?;
    if let Some(known) = now.drives.iter().find(|drive| drive.host == me && drive.path == path) {
        let words = format!("{} is drive {} already", path.display(), known.id);
        return Err(Error::new(ErrorKind::Exists, words));
    }
    let refuse = |words: String| Err(Error::new(ErrorKind::Refused, format!("drive {}: {words}", path.display())));
    let size_bytes = match (drives::look(&path)?.label, spec.size_bytes) {
        (Label::Blank(size_bytes), None) => size_bytes,
        (Label::Missing, Some(size_bytes)) => size_bytes,
        (Label::Missing, None) => return refuse("nothing is there: say --drive-size to make a file".to_owned()),
        (Label::Blank(_), Some(_)) => return refuse("something is there: leave --drive-size out to use it".to_owned()),
        (Label::Braid { cluster, .. }, _) => {
            return refuse(format!("a blank one expected, found a drive of cluster {cluster}"));
        }
        (Label::Foreign(what), _) => return refuse(format!("a blank one expected, found {what}")),
        (Label::Broken(why), _) => return refuse(why),
        (Label::Silent, _) => return refuse(setup::SILENT.to_owned()),
    };
    bounds::drive_bytes(&path, size_bytes)?;
    // On one machine drives fail one by one, so each is its own domain.
    let own = now.drives.iter().find(|drive| drive.host == me && cluster.copies > 1).map(|drive| drive.domain);
    let next = now.drives.iter().map(|drive| drive.domain.0 + 1).max().unwrap_or_default();
    let number = coordinator.counter("drive")?;
    let id = u32::try_from(number).map_err(|_| Error::new(ErrorKind::Refused, "all drive numbers were given"))?;
    let (id, uuid, domain) = (DriveId(id), braid_io::chance::guid()?, own.unwrap_or(DomainId(next)));
    let (state, abandoned) = (DriveState::Adding, false);
    let drive = Drive { id, uuid, host: me, path, size_bytes, domain, state, abandoned };
    records::create(coordinator, &drive)?;
    let shard_bytes = cluster.shard_bytes;
    let params = FormatParams { cluster: cluster.guid, drive: uuid, id, domain, shard_bytes, force: false };
    braid_drive::format_file(&drive.path, size_bytes, &params)?;
    host.add_drive(&Place { id, path: drive.path.clone(), uuid })?;
    setup::activate(coordinator, &[id])?;
    Ok(Drive { state: DriveState::Active, ..drive })
}

/// Begins to empty drive `id`; `stored`: on all drives, and the bytes on it. Blocks. `Refused` if what lies on it would have no
/// other place, or be less protected, and nobody forces it. One that is abandoned must not answer: `lacks`.
pub fn remove(
    coordinator: &dyn Coordinator,
    cluster: &Cluster,
    (id, how, lacks): (DriveId, Removal, bool),
    stored: (OnDrives, Option<u64>),
) -> Result<()> {
    let now = Snapshot::read(coordinator)?;
    let drive = records_of::find(&now, id)?;
    if how == Removal::Abandoned {
        if !lacks {
            return Err(Error::new(
                ErrorKind::Refused,
                format!("drive {id} answers, or most hosts cannot be asked: {}", removal::WHOM_TO_ABANDON),
            ));
        }
        return removal::drain(coordinator, drive, true);
    }
    if drive.state == DriveState::Draining {
        return Ok(());
    }
    let against = records_of::objections(&now, drive, stored, drives::raw_of(cluster.shard_bytes));
    if !against.is_empty() && how == Removal::Safe {
        let place = if cluster.copies > 1 { " to the same host" } else { "" };
        let words = format!("without drive {id}: {}; add a drive{place} first, or say --force", against.join("; "));
        return Err(Error::new(ErrorKind::Refused, words));
    }
    removal::drain(coordinator, drive, false)
}
