//! Starting on one machine: create a cluster or continue one, and refuse what does not fit before anything is
//! written. Pure but for the coordinator: the caller looks at drives, makes files and formats them.
//!
//! 1. [`known`]: what the coordinator holds, if the cluster exists.
//! 2. [`places`]: which paths to look at.
//! 3. The caller looks: one [`Found`] per path.
//! 4. [`decide`]: a [`Plan`], or why not. Nothing was written so far.
//! 5. [`record`]: the plan in the coordinator, new drives as `adding`, the cluster record last.
//! 6. The caller makes and formats the drives of [`Plan::to_format`], each carrying its identity.
//! 7. [`activate`]: they hold shards from now on.
//!
//! A crash after 5 leaves drives `adding`; the next start finds them blank, or already ours, and goes on at 6.

pub mod bounds;
mod fresh;
mod resume;

use std::path::{Path, PathBuf};

use braid_base::ids::{DriveId, Guid, HostId};
use braid_base::{Error, ErrorKind, Result};

use crate::coordinator::{Coordinator, Txn};
use crate::facts::{Cluster, Drive, DriveState, Filesystem, Group, Host, HostState, Partition, Protection, Seats};
use crate::groups;
use crate::partitions::{self, founding};
use crate::records::{self, Record};
use crate::removal;

/// What the administrator asked for; none = not said.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Wish {
    /// Name of the cluster.
    pub name: Option<String>,
    /// Number of drive files to make.
    pub drives: Option<usize>,
    /// Size of each, bytes.
    pub drive_bytes: Option<u64>,
    /// Existing files or devices instead, as absolute paths without symbolic links.
    pub given: Vec<PathBuf>,
    /// Drives that never come back: what only they have is lost.
    pub abandon: Vec<DriveId>,
    /// Coding.
    pub protection: Option<Protection>,
    /// Number of partitions.
    pub partitions: Option<u16>,
    /// Processor cores of this machine, for the default number of partitions.
    pub cores: usize,
    /// Name of this host in the network.
    pub host: String,
}

/// A cluster that exists.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Known {
    /// Its record.
    pub cluster: Cluster,
    /// The host of one-process mode.
    pub host: Host,
    /// Its drives, without the removed ones, ordered by number.
    pub drives: Vec<Drive>,
}

/// What lies at a path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Found {
    /// The path that was looked at.
    pub path: PathBuf,
    /// What is there.
    pub label: Label,
}

/// What a look at a drive found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Label {
    /// Nothing: no file of that name.
    Missing,
    /// Only zeros where a superblock would be; size in bytes.
    Blank(u64),
    /// A drive of some Braid cluster.
    Braid {
        /// The cluster in its superblock.
        cluster: Guid,
        /// The drive's own identity.
        drive: Guid,
        /// Size, bytes.
        size_bytes: u64,
    },
    /// Something else; a few words about it, such as `an ext4 file system`.
    Foreign(String),
    /// It cannot be read or its superblocks are broken; why.
    Broken(String),
    /// It has not answered yet.
    Silent,
}

/// What is said of a drive that does not answer.
pub const SILENT: &str =
    "it does not answer: it is used as soon as it does; look at the device, and replace it if this goes on";

impl Label {
    /// Size, bytes; 0 where it is not known.
    fn size_bytes(&self) -> u64 {
        match self {
            Self::Blank(size_bytes) | Self::Braid { size_bytes, .. } => *size_bytes,
            Self::Missing | Self::Foreign(_) | Self::Broken(_) | Self::Silent => 0,
        }
    }
}

/// What to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Plan {
    /// The cluster.
    pub cluster: Cluster,
    /// This host.
    pub host: Host,
    /// True if nothing exists yet and [`record`] has to write it all.
    pub create: bool,
    /// Files to make and drives to format, in this order.
    pub to_format: Vec<ToFormat>,
    /// Drives to open, at the path where they are now.
    pub present: Vec<Drive>,
    /// Drives to go on without, and why.
    pub lost: Vec<(Drive, String)>,
    /// Those of them that have not answered yet: they are used when they do.
    pub awaited: Vec<Drive>,
}

/// A drive to format.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ToFormat {
    /// The drive; its path, size, number and identity go into the superblock.
    pub drive: Drive,
    /// True if the file does not exist and has to be made with the drive's size.
    pub make_file: bool,
}

/// What a plan needs from outside: identities and the time.
pub struct World<'a> {
    /// A fresh random identity at each call.
    pub identity: &'a mut dyn FnMut() -> Guid,
    /// Seconds since 1970.
    pub now_s: u64,
}

/// The cluster in the coordinator; none before it is created. `Unsupported` if newer software wrote it.
pub fn known(coordinator: &dyn Coordinator) -> Result<Option<Known>> {
    let Some(cluster) = records::read::<Cluster>(coordinator, Cluster::KEY)? else { return Ok(None) };
    bounds::feature_level(&cluster.value)?;
    let hosts = records::list::<Host>(coordinator)?.0;
    let no_host =
        || Error::new(ErrorKind::Corrupt, "the coordinator knows a cluster but no host: recover it (--recover)");
    let host = hosts.into_iter().next().ok_or_else(no_host)?.value;
    let drives = records::list::<Drive>(coordinator)?.0.into_iter().map(|stored| stored.value);
    let drives = drives.filter(|drive| drive.state != DriveState::Removed).collect();
    Ok(Some(Known { cluster: cluster.value, host, drives }))
}

/// The paths to look at before [`decide`]: those of a known cluster, then those given, then files under `dir`.
pub fn places(known: Option<&Known>, wish: &Wish, dir: &Path) -> Vec<PathBuf> {
    let mut places: Vec<PathBuf> =
        known.map(|known| known.drives.iter().map(|drive| drive.path.clone()).collect()).unwrap_or_default();
    if known.is_none() && wish.given.is_empty() {
        places.extend((0..wish.drives.unwrap_or(bounds::DRIVES_DEFAULT)).map(|i| dir.join(format!("drive-{i}"))));
    }
    for path in &wish.given {
        if known.is_none() || !places.contains(path) {
            places.push(path.clone());
        }
    }
    places
}

/// What to do about a cluster that is `known` or not, a `wish` and the drives `found` at [`places`].
///
/// `Refused`, `Invalid` or `Exists` with one line that names the thing and the way out; then nothing may be written.
pub fn decide(known: Option<&Known>, wish: &Wish, found: &[Found], world: World<'_>) -> Result<Plan> {
    match known {
        None => fresh::plan(wish, found, world),
        Some(known) => resume::plan(known, wish, found),
    }
}

/// Refuses a plan whose new drive files would fill the disk of `dir`, where `free_bytes` are left: `NoSpace`.
pub fn check_room(plan: &Plan, dir: &Path, free_bytes: u64) -> Result<()> {
    let files_bytes: u64 = plan.to_format.iter().filter(|new| new.make_file).map(|new| new.drive.size_bytes).sum();
    let needed_bytes = bounds::space_needed_bytes(files_bytes);
    if files_bytes == 0 || needed_bytes <= free_bytes {
        return Ok(());
    }
    let mib = |bytes: u64| bytes.div_ceil(1 << 20);
    let message = format!(
        "{}: {} MiB free expected for drive files and metadata, found {} MiB: free some, use --drive-size with less, or another disk",
        dir.display(),
        mib(needed_bytes),
        mib(free_bytes)
    );
    Err(Error::new(ErrorKind::NoSpace, message))
}

/// Writes a plan: for a new cluster everything, the cluster record last; else the drives that moved.
///
/// A new drive has no number yet in the plan; it gets one here, so go on with the plan that is returned.
pub fn record(coordinator: &dyn Coordinator, mut plan: Plan) -> Result<Plan> {
    if !plan.create {
        for drive in &plan.present {
            records::modify::<Drive>(coordinator, &drive.key(), |stored| {
                stored.path.clone_from(&drive.path);
                Ok(())
            })?;
        }
        for (drive, _) in plan.lost.iter().filter(|(drive, _)| drive.abandoned) {
            removal::drain(coordinator, drive, true)?;
        }
        return Ok(plan);
    }
    clear_leftovers(coordinator)?;
    plan.host.id.0 = number(coordinator, "host")?;
    founding(coordinator, Txn::new().put(&plan.host.key(), records::encode(&plan.host)?))?;
    for new in &mut plan.to_format {
        new.drive.host = plan.host.id;
        new.drive.id = DriveId(number(coordinator, "drive")?);
        founding(coordinator, Txn::new().put(&new.drive.key(), records::encode(&new.drive)?))?;
    }
    partitions::found(coordinator, plan.cluster.partitions)?;
    groups::add(coordinator, &groups::default_spec())?;
    records::create(coordinator, &plan.cluster)?;
    Ok(plan)
}

/// Marks formatted drives as active.
pub fn activate(coordinator: &dyn Coordinator, drives: &[DriveId]) -> Result<()> {
    for id in drives {
        set_drive_state(coordinator, *id, DriveState::Adding, DriveState::Active)?;
    }
    Ok(())
}

/// Moves a drive from one state to another; `Stale` if it is in neither.
pub fn set_drive_state(coordinator: &dyn Coordinator, id: DriveId, from: DriveState, to: DriveState) -> Result<()> {
    records::modify::<Drive>(coordinator, &Drive::key_of(id), |drive| {
        if drive.state != from && drive.state != to {
            let message = format!("drive {id}: state {} expected, found {}", from.word(), drive.state.word());
            return Err(Error::new(ErrorKind::Stale, message));
        }
        drive.state = to;
        drive.abandoned &= to == DriveState::Draining;
        Ok(())
    })
    .map(|_| ())
}

/// The same for a host.
pub fn set_host_state(coordinator: &dyn Coordinator, id: HostId, from: HostState, to: HostState) -> Result<()> {
    records::modify::<Host>(coordinator, &Host::key_of(id), |host| {
        if host.state != from && host.state != to {
            let message = format!("host {id}: state {} expected, found {}", from.word(), host.state.word());
            return Err(Error::new(ErrorKind::Stale, message));
        }
        host.state = to;
        Ok(())
    })
    .map(|_| ())
}

/// Removes what a creation that did not reach its last step has written: no drive was formatted then.
pub(crate) fn clear_leftovers(coordinator: &dyn Coordinator) -> Result<()> {
    for prefix in [Host::PREFIX, Drive::PREFIX, Partition::PREFIX, Seats::PREFIX, Filesystem::PREFIX, Group::PREFIX] {
        for item in coordinator.range(prefix)?.items {
            founding(coordinator, Txn::new().delete(&item.key))?;
        }
    }
    Ok(())
}

pub(crate) fn number(coordinator: &dyn Coordinator, name: &str) -> Result<u32> {
    let given = coordinator.counter(name)?;
    u32::try_from(given).map_err(|_| Error::new(ErrorKind::Refused, format!("all {name} numbers were given")))
}
