//! The plan of a new cluster: every drive must be blank, large enough and listed once.

use std::path::Path;

use braid_base::ids::{DomainId, DriveId, HostId};
use braid_base::{Error, ErrorKind, Result};

use super::{Found, Label, Plan, ToFormat, Wish, World, bounds};
use crate::facts::{Cluster, Drive, DriveState, FEATURE_LEVEL, Host, HostState};
use crate::names::check_name;

/// A plan that creates everything.
pub(super) fn plan(wish: &Wish, found: &[Found], world: World<'_>) -> Result<Plan> {
    let World { identity, now_s } = world;
    if let Some(id) = wish.abandon.first() {
        return Err(Error::new(ErrorKind::Invalid, format!("--abandon {id}: there is no cluster yet")));
    }
    bounds::drive_count(found.len())?;
    let protection = wish.protection.unwrap_or(bounds::default_protection(found.len()));
    bounds::protection(protection, found.len())?;
    let partitions = wish.partitions.unwrap_or(bounds::default_partitions(wish.cores));
    bounds::partitions(partitions)?;
    let name = wish.name.clone().unwrap_or("braid".to_owned());
    check_name("cluster", &name)?;
    let mut to_format = Vec::new();
    for (number, drive) in found.iter().enumerate() {
        if found[..number].iter().any(|earlier| earlier.path == drive.path) {
            let message = format!("drive {} is listed twice: list each once", drive.path.display());
            return Err(Error::new(ErrorKind::Refused, message));
        }
        let (size_bytes, make_file) = usable(wish, drive)?;
        bounds::drive_bytes(&drive.path, size_bytes)?;
        let drive = Drive {
            id: DriveId(0),
            uuid: identity(),
            host: HostId(0),
            path: drive.path.clone(),
            size_bytes,
            // On one machine drives fail one by one, so each is its own domain.
            domain: DomainId(number as u16),
            state: DriveState::Adding,
            abandoned: false,
        };
        to_format.push(ToFormat { drive, make_file });
    }
    let smallest_bytes = to_format.iter().map(|new| new.drive.size_bytes).min().unwrap_or(0);
    bounds::slots(smallest_bytes, partitions)?;
    let cluster = Cluster {
        guid: identity(),
        name,
        created_s: now_s,
        protection,
        shard_bytes: bounds::shard_bytes(smallest_bytes),
        partitions,
        feature_level: FEATURE_LEVEL,
        copies: 1,
        client_secret: String::new(),
        host_secret: String::new(),
        authority: String::new(),
    };
    let (name, domain) = (wish.host.clone(), String::new());
    let host = Host { id: HostId(0), name, joined_s: now_s, addresses: Vec::new(), domain, state: HostState::Active };
    Ok(Plan { cluster, host, create: true, to_format, present: Vec::new(), lost: Vec::new(), awaited: Vec::new() })
}

/// The size of a drive that may be formatted, and whether its file has to be made first.
fn usable(wish: &Wish, found: &Found) -> Result<(u64, bool)> {
    let path = found.path.display();
    let given = wish.given.contains(&found.path);
    match &found.label {
        Label::Blank(size_bytes) => Ok((*size_bytes, false)),
        Label::Missing if given => {
            let message = format!(
                "drive {path}: a file or device expected, found nothing: make it first, for example with truncate -s 4G"
            );
            Err(Error::new(ErrorKind::NotFound, message))
        }
        Label::Missing => Ok((wish.drive_bytes.unwrap_or(bounds::DRIVE_BYTES_DEFAULT), true)),
        Label::Braid { cluster, .. } => {
            let way_out = way_out(&found.path);
            let message = format!(
                "drive {path}: a blank one expected, found a drive of cluster {cluster}: start that cluster's directory, or {way_out}"
            );
            Err(Error::new(ErrorKind::Refused, message))
        }
        Label::Foreign(what) => {
            let way_out = way_out(&found.path);
            Err(Error::new(ErrorKind::Refused, format!("drive {path}: a blank one expected, found {what}: {way_out}")))
        }
        Label::Silent => Err(Error::new(ErrorKind::Refused, format!("drive {path} does not answer: use another one"))),
        Label::Broken(why) => Err(Error::new(ErrorKind::Refused, format!("drive {path}: {why}: use another one"))),
    }
}

fn way_out(path: &Path) -> String {
    format!(
        "if nothing on it is needed, blank it yourself (wipefs -a {0}; blkdiscard -z {0} or a fresh file)",
        path.display()
    )
}

#[cfg(test)]
mod tests {
    use super::way_out;

    #[test]
    fn the_way_out_names_the_drive() {
        assert_eq!(way_out("/dev/x".as_ref()).matches("/dev/x").count(), 2);
    }
}
