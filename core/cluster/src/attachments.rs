//! Object stores of file systems: attaching, and the two ends of detaching. Between these, partitions bring back what lies
//! in the store.
//!
//! 1. [`attach`]: objects may go there. With a second writable store the first is only read from then on: the file system
//!    migrates. One that is only read becomes the writable one in the same way.
//! 2. [`start_detach`]: no new ones do, and what is there is fetched back, or goes to the other store: that is the writable
//!    one, or was until this one came, and is again.
//! 3. [`forget`]: no partition has anything there any more.
//!
//! A store that is gone for good has no bytes of the file system any more when all of them are on flash or elsewhere, but
//! it confirms no removal: whoever detaches it may say that what it does not remove is left there.

use braid_base::ids::StoreId;
use braid_base::msg::host::Stored;
use braid_base::{Error, ErrorKind, Result};

use crate::coordinator::{CAS_ATTEMPTS_MAX, Check, Coordinator, Outcome, Txn, contended};
use crate::facts::{Attachment, Filesystem, Mode, ObjectStore};
use crate::records::{self, Record};
use crate::view::stores::{AttachSpec, AttachmentView};
use crate::{filesystems, stores};

/// Attaches a store to the file system called `fs`.
///
/// Errors: `Exists`: it is attached already, as `spec` says or writable; `Refused`: there are two others, or one that is only
/// read and `spec` would be a second; or it, or the file system, is going.
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

/// What a file system holds, and what flash has room for, bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Room {
    /// All that it holds.
    pub used_bytes: u64,
    /// What of it lies on flash.
    pub flash_bytes: u64,
    /// What of it lies in the store that leaves, on flash or not.
    pub stored_bytes: u64,
    /// What would find room on flash beside the other file systems.
    pub free_bytes: u64,
}

/// Begins to detach a store: for good, it cannot be called off. If no other store takes what lies there, flash must have
/// `room` for it. `give_up`: what the store does not remove is left there; that may be said later, too.
///
/// Errors: `NotFound`: it is not attached; `Refused`: it does not fit, or another store is being detached.
pub fn start_detach(
    coordinator: &dyn Coordinator,
    fs: &str,
    store: &str,
    room: Room,
    give_up: bool,
) -> Result<Filesystem> {
    let id = stores::find(coordinator, store)?.value.id;
    let names = stores::list(coordinator)?;
    let key = filesystems::find(coordinator, fs)?.value.key();
    let stored = records::modify::<Filesystem>(coordinator, &key, |record| {
        let attached = record.attachment(id).ok_or_else(|| {
            Error::new(ErrorKind::NotFound, format!("object store {store} is not attached to file system {fs}"))
        })?;
        let (attached, is_new) = (*attached, !attached.detaching);
        let going = |record: &mut Filesystem| {
            for attached in record.stores.iter_mut().filter(|attached| attached.store == id) {
                (attached.detaching, attached.give_up) = (true, attached.give_up || give_up);
            }
        };
        if !is_new {
            going(record);
            return Ok(());
        }
        if record.stores.iter().any(|other| other.detaching) {
            let words = format!("file system {fs}: another object store is being detached: wait until that is done");
            return Err(Error::new(ErrorKind::Refused, words));
        }
        let other = record.stores.iter().find(|other| other.store != id).copied();
        if let Some(other) = other.filter(|other| other.yielded && attached.mode == Mode::Writable) {
            stores::attached::write_to(record, other.store);
        }
        if record.writable().is_none_or(|other| other == id) {
            let name = |other: Attachment| names.iter().find(|store| store.id == other.store).map(|store| &store.name);
            fits(record, room, other.and_then(name))?;
        }
        going(record);
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
        objects_left: None,
        bytes_left: None,
        waits: None,
    };
    fs.stores.iter().map(view).collect()
}

/// How far it is with a store that is being detached.
#[derive(Clone, Debug, Default)]
pub struct Progress {
    /// What of the file system lies there.
    pub left: Stored,
    /// What flash has room for, if that is where it goes, bytes.
    pub room_bytes: Option<u64>,
    /// Why the store cannot be read, if so.
    pub unread: Option<String>,
    /// Why it removes nothing.
    pub unremoved: Option<String>,
    /// Why the store that takes its bytes takes none.
    pub untaken: Option<String>,
    /// What it does not remove is left there.
    pub give_up: bool,
}

/// Adds to `view` how far it is, and what it waits for.
pub fn show_progress(view: &mut AttachmentView, progress: &Progress) {
    let Progress { left, room_bytes, unread, unremoved, untaken, give_up } = progress;
    (view.objects_left, view.bytes_left) = (Some(left.objects), Some(left.live));
    let short = room_bytes.filter(|room| *room < left.live);
    view.waits = match (unread, untaken, short, unremoved) {
        (Some(why), ..) if left.live > 0 => Some(format!("what lies there cannot be read: {why}")),
        (_, Some(why), ..) if left.live > 0 => Some(format!("the store that is to take it does not: {why}")),
        (_, _, Some(room), _) => Some(format!(
            "{} bytes are to come back to flash, which has room for {room}: raise --ssd-capacity, add drives, or remove files",
            left.live
        )),
        (_, _, _, Some(why)) if left.objects > 0 && left.live == 0 => Some(if *give_up {
            format!("objects are left there, because they are not removed: {why}")
        } else {
            format!("objects that nobody needs are not removed: {why}; detach it with --abandon to leave them there")
        }),
        _ => None,
    };
}

/// Would what lies in the store that leaves have room on flash? `other`: the name of the one that stays, if one does, and
/// is not written.
fn fits(fs: &Filesystem, room: Room, other: Option<&String>) -> Result<()> {
    let Room { used_bytes, flash_bytes, stored_bytes, free_bytes } = room;
    // What lies in the one that stays does so.
    let needed_bytes =
        if other.is_some() { used_bytes.min(flash_bytes.saturating_add(stored_bytes)) } else { used_bytes };
    let bound_bytes = fs.ssd_bytes.or(fs.total_bytes).unwrap_or(u64::MAX);
    let room_bytes = bound_bytes.min(free_bytes);
    if needed_bytes <= room_bytes {
        return Ok(());
    }
    let (what, way) = if bound_bytes <= free_bytes {
        ("", "raise --ssd-capacity")
    } else {
        (" beside the other file systems", "add drives")
    };
    let elsewhere = match other {
        Some(other) => format!("make {other} the writable one first (attach it once more)"),
        None => "attach another object store first".to_owned(),
    };
    let words = format!(
        "file system {} would have {needed_bytes} bytes on flash, and {room_bytes} have room there{what}: {way}, remove files, \
         or {elsewhere}",
        fs.name
    );
    Err(Error::new(ErrorKind::Refused, words))
}
