//! How a store comes into the service of a file system, a new one or one that is there.

use braid_base::{Error, ErrorKind, Result};

use crate::coordinator::{Check, Txn};
use crate::facts::{Attachment, Filesystem, Mode, ObjectStore};
use crate::records::{self, Record, Stored};

/// Makes `txn` fail if the store was changed or removed, and whoever removes it now fail, too.
pub(crate) fn held(txn: Txn, store: &Stored<ObjectStore>) -> Result<Txn> {
    let key = store.value.key();
    Ok(txn.when(&key, Check::Modified(store.revision)).put(&key, records::encode(&store.value)?))
}

/// Adds a store to the record of a file system.
pub(crate) fn add(fs: &mut Filesystem, store: &ObjectStore, mode: Mode, now_s: u64) -> Result<()> {
    let refuse = |words: String| Err(Error::new(ErrorKind::Refused, format!("file system {}: {words}", fs.name)));
    if fs.removing {
        return refuse("it is being removed".to_owned());
    }
    if let Some(known) = fs.attachment(store.id) {
        if known.detaching {
            return refuse(format!("store {} is being detached: attach it again when that is done", store.name));
        }
        let words = format!("object store {} is attached to {} already, {}", store.name, fs.name, known.mode.word());
        return Err(Error::new(ErrorKind::Exists, words));
    }
    if fs.stores.len() >= 2 {
        return refuse("it has two object stores already: detach one first".to_owned());
    }
    match (fs.stores.first_mut(), mode) {
        (Some(first), Mode::Writable) => first.mode = Mode::ReadOnly,
        (Some(first), Mode::ReadOnly) if first.mode == Mode::ReadOnly => {
            return refuse("it has an object store that is only read already: detach that first".to_owned());
        }
        _ => {}
    }
    fs.stores.push(Attachment { store: store.id, mode, detaching: false, attached_s: now_s });
    Ok(())
}
