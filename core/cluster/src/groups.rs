//! Groups of file systems: adding, changing, removing.

use braid_base::{Error, ErrorKind, Result};

use crate::coordinator::{Check, Coordinator, Outcome, Txn};
use crate::facts::{Filesystem, Group};
use crate::names::check_name;
use crate::records::{self, Record};
use crate::view::{GroupSpec, GroupView};

/// The group of file systems that name none.
pub const DEFAULT: &str = "default";
/// Most groups.
pub const GROUPS_MAX: usize = 8;
const RETENTION_DEFAULT_S: u64 = 24 * 3600;
const DEMOTE_DEFAULT_S: u64 = 15 * 60;
/// Least time between a write and its copy in the object store, seconds.
pub const DEMOTE_MIN_S: u64 = 10;
/// Data stays on flash at least so many times as long as it waits for its copy.
pub const RETENTION_PER_DEMOTE: u64 = 3;

/// The group that every cluster starts with.
pub(crate) fn default_spec() -> GroupSpec {
    GroupSpec { name: DEFAULT.to_owned(), new_name: None, target_ssd_retention_s: None, start_demote_s: None }
}

/// Adds a group.
pub fn add(coordinator: &dyn Coordinator, spec: &GroupSpec) -> Result<Group> {
    check_name("group", &spec.name)?;
    let target_ssd_retention_s = spec.target_ssd_retention_s.unwrap_or(RETENTION_DEFAULT_S);
    let usual_s = DEMOTE_DEFAULT_S.min(target_ssd_retention_s / RETENTION_PER_DEMOTE);
    let start_demote_s = spec.start_demote_s.unwrap_or(usual_s);
    let group = Group { name: spec.name.clone(), target_ssd_retention_s, start_demote_s };
    check_times(&group)?;
    let (groups, _) = records::list::<Group>(coordinator)?;
    if groups.len() >= GROUPS_MAX && groups.iter().all(|stored| stored.value.name != group.name) {
        let message = format!("at most {GROUPS_MAX} groups, found {}: remove one first", groups.len());
        return Err(Error::new(ErrorKind::Refused, message));
    }
    match records::create(coordinator, &group) {
        Err(error) if error.kind() == ErrorKind::Exists => {
            Err(Error::new(ErrorKind::Exists, format!("group {} exists already: choose another name", group.name)))
        }
        other => other.map(|stored| stored.value),
    }
}

/// Changes a group; renaming takes its file systems along.
pub fn update(coordinator: &dyn Coordinator, spec: &GroupSpec) -> Result<Group> {
    let stored =
        records::must::<Group>(coordinator, &Group::key_of(&spec.name)).map_err(|error| missing(error, &spec.name))?;
    let mut group = stored.value.clone();
    group.target_ssd_retention_s = spec.target_ssd_retention_s.unwrap_or(group.target_ssd_retention_s);
    group.start_demote_s = spec.start_demote_s.unwrap_or(group.start_demote_s);
    if spec.target_ssd_retention_s.or(spec.start_demote_s).is_some() {
        check_times(&group)?;
    }
    let Some(new_name) = spec.new_name.as_ref().filter(|name| **name != spec.name) else {
        records::update(coordinator, stored.revision, &group)?;
        return Ok(group);
    };
    check_name("group", new_name)?;
    if spec.name == DEFAULT {
        return Err(Error::new(ErrorKind::Refused, "the group `default` keeps its name: add another group instead"));
    }
    group.name = new_name.clone();
    let (old_key, new_key) = (Group::key_of(&spec.name), group.key());
    let mut txn = Txn::new().when(&old_key, Check::Modified(stored.revision)).delete(&old_key);
    txn = txn.when(&new_key, Check::Absent).put(&new_key, records::encode(&group)?);
    for mut member in members(coordinator, &spec.name)? {
        member.value.group.clone_from(new_name);
        let key = member.value.key();
        txn = txn.when(&key, Check::Modified(member.revision)).put(&key, records::encode(&member.value)?);
    }
    match coordinator.txn(&txn)? {
        Outcome::Done(_) => Ok(group),
        Outcome::Conflict => Err(Error::new(
            ErrorKind::Stale,
            format!("group {new_name} exists or something changed meanwhile: look again"),
        )),
    }
}

/// Removes a group that no file system is in.
pub fn remove(coordinator: &dyn Coordinator, name: &str) -> Result<()> {
    let stored = records::must::<Group>(coordinator, &Group::key_of(name)).map_err(|error| missing(error, name))?;
    let members = members(coordinator, name)?;
    if name == DEFAULT || !members.is_empty() {
        let why = members
            .first()
            .map_or("it is the default one".to_owned(), |fs| format!("file system {} is in it", fs.value.name));
        return Err(Error::new(ErrorKind::Refused, format!("group {name} stays: {why}")));
    }
    records::delete(coordinator, &stored).map(|_| ())
}

/// All groups with the number of their file systems.
pub fn list(coordinator: &dyn Coordinator) -> Result<Vec<GroupView>> {
    let filesystems = records::list::<Filesystem>(coordinator)?.0;
    let groups = records::list::<Group>(coordinator)?.0.into_iter().map(|stored| stored.value);
    let view = |group: Group| GroupView {
        filesystems: filesystems.iter().filter(|fs| fs.value.group == group.name).count() as u64,
        name: group.name,
        target_ssd_retention_s: group.target_ssd_retention_s,
        start_demote_s: group.start_demote_s,
    };
    Ok(groups.map(view).collect())
}

/// `NotFound` with the names there are, if there is no group `name`.
pub(crate) fn check_exists(coordinator: &dyn Coordinator, name: &str) -> Result<()> {
    records::must::<Group>(coordinator, &Group::key_of(name)).map(|_| ()).map_err(|error| missing(error, name))
}

fn check_times(group: &Group) -> Result<()> {
    let (demote_s, retention_s) = (group.start_demote_s, group.target_ssd_retention_s);
    let most_s = retention_s / RETENTION_PER_DEMOTE;
    if (DEMOTE_MIN_S..=most_s).contains(&demote_s) {
        return Ok(());
    }
    let message = format!(
        "group {}: start-demote of at least {DEMOTE_MIN_S} s and at most a third of the SSD retention expected, found \
         {demote_s} s with a retention of {retention_s} s",
        group.name
    );
    Err(Error::new(ErrorKind::Invalid, message))
}

fn members(coordinator: &dyn Coordinator, name: &str) -> Result<Vec<records::Stored<Filesystem>>> {
    let mut found = records::list::<Filesystem>(coordinator)?.0;
    found.retain(|stored| stored.value.group == name);
    Ok(found)
}

fn missing(error: Error, name: &str) -> Error {
    match error.kind() {
        ErrorKind::NotFound => Error::new(ErrorKind::NotFound, format!("no group {name}: `braid fs group` lists them")),
        _ => error,
    }
}
