//! The drives of a plan: what lies at a path, formatting, room.

use std::path::{Path, PathBuf};

use braid_base::ids::{DriveId, Guid};
use braid_base::limits::DRIVE_OPEN_WAIT_MS;
use braid_base::msg::event::{Event, EventType};
use braid_base::{ErrorKind, Result};
use braid_cluster::coordinator::Coordinator;
use braid_cluster::facts::{Drive, DriveState};
use braid_cluster::setup::{self, Found, Label, Plan};
use braid_drive::{FormatParams, Layout, Look};
use braid_host::run::{DriveSpec, Events};
use braid_io::file::{File, OpenMode, ReadAt};
use braid_io::limited::each_within;

/// What lies at each of `paths`, which are looked at all at the same time.
pub fn look_at(paths: Vec<PathBuf>) -> Result<Vec<Found>> {
    let looked = each_within("look-at-drive", DRIVE_OPEN_WAIT_MS, paths, |path: &PathBuf| look(path));
    let found = |(path, found): (PathBuf, Option<_>)| found.unwrap_or(Ok(Found { path, label: Label::Silent }));
    looked.into_iter().map(found).collect()
}

/// What lies at `path`. Errors: it cannot be looked at (no permission, not a file or device).
pub fn look(path: &Path) -> Result<Found> {
    let found = |label| Ok(Found { path: path.to_owned(), label });
    let file = match File::open(path, OpenMode::READ) {
        Ok(file) => file,
        Err(error) if error.kind() == ErrorKind::NotFound => return found(Label::Missing),
        Err(error) => return found(Label::Broken(error.message().to_owned())),
    };
    let size_bytes = file.size()?;
    match braid_drive::look(&file) {
        Ok(Look::Blank) => found(Label::Blank(size_bytes)),
        Ok(Look::Drive(superblock)) => {
            found(Label::Braid { cluster: superblock.cluster, drive: superblock.drive, size_bytes })
        }
        Ok(Look::Foreign(what)) => found(Label::Foreign(what)),
        Ok(Look::Broken(why)) => found(Label::Broken(why)),
        Err(error) => found(Label::Broken(error.message().to_owned())),
    }
}

/// Tells that `host` serves without the drives in `lost`, and why.
pub fn tell_lost(events: &Events, host: &str, lost: &[(Drive, String)]) {
    for (drive, why) in lost {
        let text = format!("host {host} serves without drive {} ({}): {why}", drive.id, drive.path.display());
        events.tell(Event::new(EventType::DRIVE_DOWN, text).about("drive", drive.id));
    }
}

/// Fresh random identities.
pub fn identities(count: usize) -> Result<Vec<Guid>> {
    (0..count).map(|_| braid_io::chance::guid()).collect()
}

/// Formats what the plan says and records the drives as active; the plan then has them as present. What an
/// interrupted creation left to do is done now.
pub fn prepare(coordinator: &dyn Coordinator, plan: &mut Plan) -> Result<()> {
    for new in plan.to_format.drain(..) {
        let params = FormatParams {
            cluster: plan.cluster.guid,
            drive: new.drive.uuid,
            id: new.drive.id,
            domain: new.drive.domain,
            shard_bytes: plan.cluster.shard_bytes,
            force: false,
        };
        braid_drive::format_file(&new.drive.path, new.drive.size_bytes, &params)?;
        plan.present.push(new.drive);
    }
    plan.present.sort_by_key(|drive| drive.id);
    let adding = plan.present.iter().filter(|drive| drive.state == DriveState::Adding);
    let ids: Vec<DriveId> = adding.map(|drive| drive.id).collect();
    setup::activate(coordinator, &ids)
}

/// The drives of this host, as its threads are to open them: those that are there, that do not answer, and that are away.
pub fn specs(plan: &Plan) -> [Vec<DriveSpec>; 3] {
    let spec = |drive: &Drive| DriveSpec { id: drive.id, path: drive.path.clone(), uuid: drive.uuid };
    // One that holds nothing yet is prepared by the next start.
    let away = plan.lost.iter().map(|(drive, _)| drive).filter(|drive| drive.state != DriveState::Adding);
    let away = away.filter(|drive| plan.awaited.iter().all(|awaited| awaited.id != drive.id));
    [plan.present.iter().map(spec).collect(), plan.awaited.iter().map(spec).collect(), away.map(spec).collect()]
}

/// Data bytes of a drive of so many bytes, with shards of `shard_bytes`.
pub fn raw_of(shard_bytes: u64) -> impl Fn(u64) -> u64 + Send {
    move |size| Layout::plan(size, shard_bytes).map_or(0, |layout| u64::from(layout.slots)) * shard_bytes
}
