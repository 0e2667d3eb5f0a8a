//! How a store comes into the service of a file system, a new one or one that is there.

use braid_base::ids::StoreId;
use braid_base::{Error, ErrorKind, Result};

use crate::coordinator::{Check, Txn};
use crate::facts::{Attachment, Filesystem, Mode, ObjectStore};
use crate::records::{self, Record, Stored};

/// Makes `txn` fail if the store was changed or removed, and whoever removes it now fail, too.
pub(crate) fn held(txn: Txn, store: &Stored<ObjectStore>) -> Result<Txn> {
    let key = store.value.key();
    Ok(txn.when(&key, Check::Modified(store.revision)).put(&key, records::encode(&store.value)?))
}

/// Adds a store to the record of a file system, or makes one that is there and only read the writable one.
pub(crate) fn add(fs: &mut Filesystem, store: &ObjectStore, mode: Mode, now_s: u64) -> Result<()> {
    let refuse = |words: String| Err(Error::new(ErrorKind::Refused, format!("file system {}: {words}", fs.name)));
    if fs.removing {
        return refuse("it is being removed".to_owned());
    }
    if let Some(known) = fs.attachment(store.id) {
        if known.detaching {
            return refuse(format!("store {} is being detached: attach it again when that is done", store.name));
        }
        if (known.mode, mode) == (Mode::ReadOnly, Mode::Writable) {
            write_to(fs, store.id);
            return Ok(());
        }
        let way = match known.mode {
            Mode::Writable if mode == Mode::ReadOnly => ": it is only read once another one is attached to be written",
            _ => "",
        };
        let words =
            format!("object store {} is attached to {} already, {}{way}", store.name, fs.name, known.mode.word());
        return Err(Error::new(ErrorKind::Exists, words));
    }
    if fs.stores.len() >= 2 {
        return refuse("it has two object stores already: detach one first".to_owned());
    }
    if mode == Mode::ReadOnly && fs.stores.iter().any(|other| other.mode == Mode::ReadOnly) {
        return refuse("it has an object store that is only read already: detach that first".to_owned());
    }
    let (detaching, yielded, give_up) = (false, false, false);
    fs.stores.push(Attachment {
        store: store.id,
        mode: Mode::ReadOnly,
        detaching,
        attached_s: now_s,
        yielded,
        give_up,
    });
    if mode == Mode::Writable {
        write_to(fs, store.id);
    }
    Ok(())
}

/// From now on new objects of `fs` go to `store`; the one that took them is only read.
pub(crate) fn write_to(fs: &mut Filesystem, store: StoreId) {
    for attached in &mut fs.stores {
        let is_it = attached.store == store;
        attached.yielded = !is_it && (attached.yielded || attached.mode == Mode::Writable);
        attached.mode = if is_it { Mode::Writable } else { Mode::ReadOnly };
    }
}
