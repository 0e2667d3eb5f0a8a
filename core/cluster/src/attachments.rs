//! Object stores of file systems: attaching, and the two ends of detaching. Between these, partitions bring back what lies
//! in the store.
//!
//! 1. [`attach`]: objects may go there. With a second writable store the first is only read from then on: the file system
//!    migrates.
//! 2. [`start_detach`]: no new ones do, and what is there is fetched back, or goes to the other store.
//! 3. [`forget`]: no partition has anything there any more.

use braid_base::ids::StoreId;
use braid_base::{Error, ErrorKind, Result};

use crate::coordinator::{CAS_ATTEMPTS_MAX, Check, Coordinator, Outcome, Txn, contended};
use crate::facts::{Attachment, Filesystem, ObjectStore};
use crate::records::{self, Record};
use crate::view::stores::{AttachSpec, AttachmentView};
use crate::{filesystems, stores};

/// Attaches a store to the file system called `fs`.
///
/// Errors: `Exists`: it is attached already; `Refused`: there are a writable store and one that is only read, or one of
/// these and `spec` would be a second; or the file system is being removed.
pub fn attach(coordinator: &dyn Coordinator, fs: &str, spec: &AttachSpec, now_s: u64) -> Result<Filesystem> {
    for _ in 0..CAS_ATTEMPTS_MAX {
        let store = stores::find(coordinator, &spec.store)?;
        let seen = filesystems::find(coordinator, fs)?;
        let mut record = seen.value;
        stores::attached::add(&mut record, &store.value, spec.mode, now_s)?;
        let key = record.key();
        let txn = Txn::new().when(&key, Check::Modified(seen.revision)).put(&key, records::encode(&record)?);
        match coordinator.txn(&stores::attached::held(txn, &store)?)? {
            Outcome::Done(_) => return Ok(record),
            Outcome::Conflict => {}
        }
    }
    Err(contended(fs))
}

/// Begins to detach a store: for good, it cannot be called off. `used_bytes` is what the file system holds, `free_bytes`
/// what would find room on flash beside the other file systems: if no other store takes it, it must fit there.
///
/// Errors: `NotFound`: it is not attached; `Refused`: it does not fit, or another store is being detached.
pub fn start_detach(
    coordinator: &dyn Coordinator,
    fs: &str,
    store: &str,
    (used_bytes, free_bytes): (u64, u64),
) -> Result<Filesystem> {
    let id = stores::find(coordinator, store)?.value.id;
    let key = filesystems::find(coordinator, fs)?.value.key();
    let stored = records::modify::<Filesystem>(coordinator, &key, |record| {
        let attached = record.attachment(id).ok_or_else(|| {
            Error::new(ErrorKind::NotFound, format!("object store {store} is not attached to file system {fs}"))
        })?;
        if attached.detaching {
            return Ok(());
        }
        if record.stores.iter().any(|other| other.detaching) {
            let words = format!("file system {fs}: another object store is being detached: wait until that is done");
            return Err(Error::new(ErrorKind::Refused, words));
        }
        let goes_elsewhere = record.writable().is_some_and(|other| other != id);
        if !goes_elsewhere {
            fits(record, used_bytes, free_bytes)?;
        }
        let attached = record.stores.iter_mut().find(|attached| attached.store == id);
        attached.expect("it was found above").detaching = true;
        Ok(())
    })?;
    Ok(stored.value)
}

/// Ends detaching: nothing of file system `fs` lies in the store any more. Twice is no error.
///
/// Errors: `Refused`: nobody asked for it to be detached.
pub fn forget(coordinator: &dyn Coordinator, fs: &Filesystem, store: StoreId) -> Result<()> {
    let gone = |error: &Error| error.kind() == ErrorKind::NotFound;
    let modified = records::modify::<Filesystem>(coordinator, &fs.key(), |record| {
        if record.attachment(store).is_some_and(|attached| !attached.detaching) {
            let words = format!("file system {}: {store} is in use and not being detached", record.name);
            return Err(Error::new(ErrorKind::Refused, words));
        }
        record.stores.retain(|attached| attached.store != store);
        Ok(())
    });
    match modified {
        Err(error) if gone(&error) => Ok(()), // with the file system
        other => other.map(drop),
    }
}

/// The stores of `fs`, as an administrator sees them.
pub fn views(fs: &Filesystem, stores: &[ObjectStore]) -> Vec<AttachmentView> {
    let name = |id| stores.iter().find(|store| store.id == id).map(|store| store.name.clone());
    let view = |attached: &Attachment| AttachmentView {
        store: name(attached.store).unwrap_or_else(|| attached.store.to_string()),
        mode: attached.mode,
        detaching: attached.detaching,
        attached_s: attached.attached_s,
    };
    fs.stores.iter().map(view).collect()
}

/// Would all that `fs` holds have room on flash?
fn fits(fs: &Filesystem, used_bytes: u64, free_bytes: u64) -> Result<()> {
    let bound_bytes = fs.ssd_bytes.or(fs.total_bytes).unwrap_or(u64::MAX);
    let room_bytes = bound_bytes.min(free_bytes);
    if used_bytes <= room_bytes {
        return Ok(());
    }
    let (what, way) = if bound_bytes <= free_bytes {
        ("", "raise --ssd-capacity")
    } else {
        (" beside the other file systems", "add drives")
    };
    let words = format!(
        "file system {} holds {used_bytes} bytes, and {room_bytes} would have room on flash{what}: {way}, remove files, or \
         attach another object store first",
        fs.name
    );
    Err(Error::new(ErrorKind::Refused, words))
}
