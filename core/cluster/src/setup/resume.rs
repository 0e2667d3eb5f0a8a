//! The plan of a cluster that exists: find each of its drives, refuse what contradicts its records.

use std::path::{Path, PathBuf};

use braid_base::ids::Guid;
use braid_base::{Error, ErrorKind, Result};

use super::{Found, Known, Label, Plan, SILENT, ToFormat, Wish};
use crate::facts::{Drive, DriveState};
use crate::removal::WHOM_TO_ABANDON;

/// A plan that goes on with `known`.
pub(super) fn plan(known: &Known, wish: &Wish, found: &[Found]) -> Result<Plan> {
    refuse_changes(known, wish)?;
    refuse_strangers(known, wish, found)?;
    let mut plan = Plan {
        cluster: known.cluster.clone(),
        host: known.host.clone(),
        create: false,
        to_format: Vec::new(),
        present: Vec::new(),
        lost: Vec::new(),
        awaited: Vec::new(),
    };
    for drive in &known.drives {
        match place(known.cluster.guid, drive, found)? {
            // Of one that failed, what is still valid on it counts again.
            Place::At(path) => plan.present.push(Drive { path, ..drive.clone() }),
            Place::Unformatted { make_file } => plan.to_format.push(ToFormat { drive: drive.clone(), make_file }),
            Place::Nowhere(why) => plan.lost.push((drive.clone(), why)),
            Place::Perhaps => {
                plan.lost.push((drive.clone(), SILENT.to_owned()));
                // One that holds nothing yet is prepared by the next start.
                plan.awaited.extend((drive.state != DriveState::Adding).then(|| drive.clone()));
            }
        }
    }
    for id in &wish.abandon {
        let Some((drive, _)) = plan.lost.iter_mut().find(|(drive, _)| drive.id == *id) else {
            let is =
                if known.drives.iter().any(|drive| drive.id == *id) { "is there" } else { "is none of this cluster" };
            return Err(Error::new(ErrorKind::Refused, format!("--abandon {id}: drive {id} {is}: {WHOM_TO_ABANDON}")));
        };
        drive.abandoned = true;
    }
    if known.cluster.copies == 1 {
        refuse_too_few(&plan)?; // with other hosts it is not for this one to say
    }
    Ok(plan)
}

/// Where a drive of the cluster was found.
enum Place {
    At(PathBuf),
    Unformatted {
        make_file: bool,
    },
    Nowhere(String),
    /// Where it was: that does not answer.
    Perhaps,
}

fn place(cluster: Guid, drive: &Drive, found: &[Found]) -> Result<Place> {
    let ours =
        |label: &Label| matches!(label, Label::Braid { cluster: c, drive: d, .. } if *c == cluster && *d == drive.uuid);
    let places: Vec<&Path> = found.iter().filter(|look| ours(&look.label)).map(|look| look.path.as_path()).collect();
    let distinct = places.iter().filter(|path| **path != places[0]).count();
    if distinct > 0 {
        let all: Vec<String> = places.iter().map(|path| path.display().to_string()).collect();
        let message = format!("drive {} is there twice ({}): one is a copy, take it away", drive.id, all.join(", "));
        return Err(Error::new(ErrorKind::Refused, message));
    }
    if let Some(path) = places.first() {
        let size_bytes = found.iter().find(|look| look.path == **path).map_or(0, |look| look.label.size_bytes());
        if size_bytes < drive.size_bytes {
            let expected = drive.size_bytes;
            return Ok(Place::Nowhere(format!("{expected} bytes expected, found {size_bytes}: it was cut short")));
        }
        return Ok(Place::At(path.to_path_buf()));
    }
    let adding = drive.state == DriveState::Adding;
    let label = found.iter().find(|look| look.path == drive.path).map_or(&Label::Missing, |look| &look.label);
    Ok(match label {
        Label::Missing if adding => Place::Unformatted { make_file: true },
        Label::Blank(size_bytes) if adding && *size_bytes >= drive.size_bytes => {
            Place::Unformatted { make_file: false }
        }
        Label::Missing => Place::Nowhere("the file is gone".to_owned()),
        Label::Blank(_) => Place::Nowhere("it is blank".to_owned()),
        Label::Braid { drive: other, .. } => Place::Nowhere(format!("drive {other} lies there instead")),
        Label::Foreign(what) => Place::Nowhere(format!("{what} lies there instead")),
        Label::Broken(why) => Place::Nowhere(why.clone()),
        Label::Silent => Place::Perhaps,
    })
}

/// What was fixed at creation cannot be asked for differently.
fn refuse_changes(known: &Known, wish: &Wish) -> Result<()> {
    let cluster = &known.cluster;
    let name = &cluster.name;
    let fixed = |option: &str, is: String, asked: String| {
        let message = format!(
            "cluster {name} has {option} {is}, fixed when it was created, found {asked}: leave the option out, or use another directory"
        );
        Err(Error::new(ErrorKind::Refused, message))
    };
    match wish {
        Wish { protection: Some(asked), .. } if *asked != cluster.protection => {
            fixed("--protection", cluster.protection.to_string(), asked.to_string())
        }
        Wish { partitions: Some(asked), .. } if *asked != cluster.partitions => {
            fixed("--partitions", cluster.partitions.to_string(), asked.to_string())
        }
        Wish { drives: Some(asked), .. } if *asked != known.drives.len() => {
            fixed("--drives", known.drives.len().to_string(), asked.to_string())
        }
        Wish { name: Some(asked), .. } if asked != name => fixed("--name", name.clone(), asked.clone()),
        Wish { drive_bytes: Some(asked), .. } => match known.drives.iter().find(|drive| drive.size_bytes != *asked) {
            Some(drive) => fixed("--drive-size", format!("{} bytes", drive.size_bytes), format!("{asked} bytes")),
            None => Ok(()),
        },
        _ => Ok(()),
    }
}

/// A drive of another cluster, wherever it was found, and a given drive that is none of ours.
fn refuse_strangers(known: &Known, wish: &Wish, found: &[Found]) -> Result<()> {
    for look in found {
        let path = look.path.display();
        let name = &known.cluster.name;
        if let Label::Braid { cluster, .. } = &look.label
            && *cluster != known.cluster.guid
        {
            let expected = known.cluster.guid;
            let message = format!(
                "drive {path} belongs to cluster {cluster}, expected one of {name} ({expected}): put the right drive there, or take it away"
            );
            return Err(Error::new(ErrorKind::Refused, message));
        }
        let recorded = known.drives.iter().any(|drive| drive.path == look.path);
        let ours =
            matches!(&look.label, Label::Braid { drive, .. } if known.drives.iter().any(|known| known.uuid == *drive));
        if wish.given.contains(&look.path) && !recorded && !ours {
            let message = format!(
                "drive {path} is no drive of cluster {name}: leave it out, or give the path that the drive moved to"
            );
            return Err(Error::new(ErrorKind::Refused, message));
        }
    }
    Ok(())
}

/// More lost drives than parity: data would be out of reach, so say it before anything starts. What lay on drives that
/// have failed is made anew, or was; what lay on those that were abandoned is made anew or lost.
fn refuse_too_few(plan: &Plan) -> Result<()> {
    let unexpected = plan.lost.iter().filter(|(drive, _)| drive.state != DriveState::Failed && !drive.abandoned);
    let (lost, parity) = (unexpected.count(), usize::from(plan.cluster.protection.parity));
    let total = plan.lost.len() + plan.present.len() + plan.to_format.len();
    if lost <= parity {
        return Ok(());
    }
    let each: Vec<String> =
        plan.lost.iter().map(|(drive, why)| format!("{} {}: {why}", drive.id, drive.path.display())).collect();
    let message = format!(
        "{lost} of {total} drives are lost and protection {} survives {parity} ({}): bring back at least {}, or go on without \
         what only they have: --abandon DRIVE, for each that never comes back",
        plan.cluster.protection,
        each.join("; "),
        lost - parity
    );
    Err(Error::new(ErrorKind::Refused, message))
}
