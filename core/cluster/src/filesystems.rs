//! File systems of a cluster: adding, changing, removing. What lies in them is not touched here.

use braid_base::ids::{FsId, Guid, Vp};
use braid_base::limits::VP_COUNT;
use braid_base::{Error, ErrorKind, Result};

use crate::coordinator::{Check, Coordinator, Outcome, Txn};
use crate::facts::{Filesystem, Mode, OBJECT_MIB};
use crate::names::check_name;
use crate::records::{self, Record, Stored};
use crate::view::{FsChange, FsSpec};
use crate::{groups, stores};

/// Most file systems.
pub const FILESYSTEMS_MAX: usize = 1024;
/// Smallest limit of a file system, bytes: room for one stripe.
pub const TOTAL_BYTES_MIN: u64 = 1 << 20;

/// Records a new file system with identity `uuid`. Its root directory is made by its home partition afterwards.
pub fn add(coordinator: &dyn Coordinator, spec: &FsSpec, uuid: Guid, now_s: u64) -> Result<Filesystem> {
    check_name("file system", &spec.name)?;
    check_total(spec.total_bytes)?;
    check_ssd(spec.ssd_bytes, spec.total_bytes)?;
    let object_mib = spec.object_mib.unwrap_or(OBJECT_MIB.2);
    check_object(object_mib)?;
    let group = spec.group.as_deref().unwrap_or(groups::DEFAULT);
    groups::check_exists(coordinator, group)?;
    let name_key = Filesystem::name_key(&spec.name);
    if coordinator.get(&name_key)?.is_some() {
        return Err(taken(&spec.name));
    }
    let count = records::list::<Filesystem>(coordinator)?.0.len();
    if count >= FILESYSTEMS_MAX {
        let message = format!("at most {FILESYSTEMS_MAX} file systems, found {count}: remove one first");
        return Err(Error::new(ErrorKind::Refused, message));
    }
    let store = spec.store.as_deref().map(|name| stores::find(coordinator, name)).transpose()?;
    let number = coordinator.counter("fs")?;
    let id = u32::try_from(number).map_err(|_| Error::new(ErrorKind::Refused, "all file system numbers were given"))?;
    let mut fs = Filesystem {
        id: FsId(id),
        uuid,
        name: spec.name.clone(),
        group: group.to_owned(),
        total_bytes: spec.total_bytes,
        // Neighbouring numbers land on neighbouring partitions, so the homes of file systems spread evenly.
        root_vp: Vp((id % u32::from(VP_COUNT)) as u16),
        created_s: now_s,
        removing: false,
        ssd_bytes: spec.ssd_bytes,
        object_mib,
        stores: Vec::new(),
    };
    if let Some(store) = &store {
        stores::attached::add(&mut fs, &store.value, Mode::Writable, now_s)?;
    }
    let txn = Txn::new().when(&name_key, Check::Absent).put(&name_key, id.to_string());
    let mut txn = txn.when(&fs.key(), Check::Absent).put(&fs.key(), records::encode(&fs)?);
    if let Some(store) = &store {
        txn = stores::attached::held(txn, store)?;
    }
    match coordinator.txn(&txn)? {
        Outcome::Done(_) => Ok(fs),
        Outcome::Conflict if coordinator.get(&name_key)?.is_none() => Err(changed(&spec.name)),
        Outcome::Conflict => Err(taken(&spec.name)),
    }
}

/// The file system called `name`; `NotFound` if there is none.
pub fn find(coordinator: &dyn Coordinator, name: &str) -> Result<Stored<Filesystem>> {
    let missing = || Error::new(ErrorKind::NotFound, format!("no file system {name}: `braid fs` lists them"));
    let entry = coordinator.get(&Filesystem::name_key(name))?.ok_or_else(missing)?;
    let id: Option<u32> = std::str::from_utf8(&entry.value).ok().and_then(|text| text.parse().ok());
    let id = id.ok_or_else(|| {
        Error::new(ErrorKind::Corrupt, format!("{} in the coordinator: a number expected", entry.key))
    })?;
    records::read(coordinator, &Filesystem::key_of(FsId(id)))?.ok_or_else(missing)
}

/// All file systems, ordered by number.
pub fn list(coordinator: &dyn Coordinator) -> Result<Vec<Filesystem>> {
    Ok(records::list::<Filesystem>(coordinator)?.0.into_iter().map(|stored| stored.value).collect())
}

/// Changes name, group, limits, or how large new objects are. `used_bytes` is what the file system holds now: a lower limit
/// is refused.
pub fn update(coordinator: &dyn Coordinator, name: &str, change: &FsChange, used_bytes: u64) -> Result<Filesystem> {
    let stored = find(coordinator, name)?;
    let mut fs = stored.value.clone();
    if let Some(group) = &change.group {
        groups::check_exists(coordinator, group)?;
        fs.group.clone_from(group);
    }
    if let Some(total_bytes) = change.total_bytes {
        fs.total_bytes = Some(total_bytes).filter(|bytes| *bytes != 0);
        check_total(fs.total_bytes)?;
        if total_bytes != 0 && total_bytes < used_bytes {
            let message = format!(
                "file system {name} holds {used_bytes} bytes, more than the new limit of {total_bytes}: remove files first"
            );
            return Err(Error::new(ErrorKind::Refused, message));
        }
    }
    if let Some(ssd_bytes) = change.ssd_bytes {
        fs.ssd_bytes = Some(ssd_bytes).filter(|bytes| *bytes != 0);
    }
    check_ssd(fs.ssd_bytes, fs.total_bytes)?;
    if let Some(object_mib) = change.object_mib {
        check_object(object_mib)?;
        fs.object_mib = object_mib;
    }
    let mut txn = Txn::new().when(&fs.key(), Check::Modified(stored.revision));
    if let Some(new_name) = change.new_name.as_ref().filter(|new_name| *new_name != name) {
        check_name("file system", new_name)?;
        fs.name.clone_from(new_name);
        let new_key = Filesystem::name_key(new_name);
        if coordinator.get(&new_key)?.is_some() {
            return Err(taken(new_name));
        }
        txn = txn.when(&new_key, Check::Absent).put(&new_key, fs.id.0.to_string()).delete(&Filesystem::name_key(name));
    }
    match coordinator.txn(&txn.put(&fs.key(), records::encode(&fs)?))? {
        Outcome::Done(_) => Ok(fs),
        Outcome::Conflict => Err(changed(name)),
    }
}

/// First step of removing: no new mounts. The caller then removes what lies in it and calls [`forget`].
pub fn start_remove(coordinator: &dyn Coordinator, name: &str) -> Result<Filesystem> {
    let key = find(coordinator, name)?.value.key();
    let stored = records::modify::<Filesystem>(coordinator, &key, |fs| {
        fs.removing = true;
        Ok(())
    })?;
    Ok(stored.value)
}

/// Last step of removing: the record and the name go; the number is never given again.
pub fn forget(coordinator: &dyn Coordinator, fs: &Filesystem) -> Result<()> {
    let Some(stored) = records::read::<Filesystem>(coordinator, &fs.key())? else { return Ok(()) };
    let txn = Txn::new().when(&fs.key(), Check::Modified(stored.revision)).delete(&fs.key());
    match coordinator.txn(&txn.delete(&Filesystem::name_key(&stored.value.name)))? {
        Outcome::Done(_) => Ok(()),
        Outcome::Conflict => Err(changed(&fs.name)),
    }
}

fn check_object(mib: u8) -> Result<()> {
    if (OBJECT_MIB.0..=OBJECT_MIB.1).contains(&mib) {
        return Ok(());
    }
    let message = format!("objects of {} to {} MiB expected, found {mib}", OBJECT_MIB.0, OBJECT_MIB.1);
    Err(Error::new(ErrorKind::Invalid, message))
}

fn check_total(total_bytes: Option<u64>) -> Result<()> {
    match total_bytes {
        Some(bytes) if bytes < TOTAL_BYTES_MIN => {
            let message = format!("a total capacity of at least {TOTAL_BYTES_MIN} bytes expected, found {bytes}");
            Err(Error::new(ErrorKind::Invalid, message))
        }
        _ => Ok(()),
    }
}

/// Flash is a part of the whole. A budget may be below what is there now: data is moved out then.
fn check_ssd(ssd_bytes: Option<u64>, total_bytes: Option<u64>) -> Result<()> {
    let message = match (ssd_bytes, total_bytes) {
        (Some(ssd), _) if ssd < TOTAL_BYTES_MIN => {
            format!("an SSD capacity of at least {TOTAL_BYTES_MIN} bytes expected, found {ssd}")
        }
        (Some(ssd), Some(total)) if ssd > total => {
            format!("an SSD capacity of at most the total capacity, {total} bytes, expected, found {ssd}")
        }
        _ => return Ok(()),
    };
    Err(Error::new(ErrorKind::Invalid, message))
}

fn changed(name: &str) -> Error {
    Error::new(ErrorKind::Stale, format!("file system {name} or its object store changed meanwhile: look again"))
}

fn taken(name: &str) -> Error {
    Error::new(ErrorKind::Exists, format!("file system {name} exists already: choose another name"))
}
