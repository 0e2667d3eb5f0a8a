//! The [facts](crate::facts) of a cluster as typed records: JSON with a `version`, read with the revision it was read at and
//! written back only if that is still the newest.
//!
//! | key | record |
//! |---|---|
//! | `cluster` | [`Cluster`](crate::facts::Cluster) |
//! | `host/<id>` | [`Host`](crate::facts::Host) |
//! | `drive/<id>` | [`Drive`](crate::facts::Drive) |
//! | `candidate/<name>` | [`Candidate`](crate::facts::Candidate), of a session |
//! | `live/<id>` | [`Live`](crate::facts::Live), of a session |
//! | `seats/<id>` | [`Seats`](crate::facts::Seats) |
//! | `store/<partition>/<host>` | [`Store`](crate::facts::Store) |
//! | `controller` | the number of the host that is it, of a session |
//! | `partition/<id>` | [`Partition`](crate::facts::Partition) |
//! | `fs/<id>`, and `fs-name/<name>` = id so that a name is taken once | [`Filesystem`](crate::facts::Filesystem) |
//! | `object-store/<id>`, and `object-store-name/<name>` = id | [`ObjectStore`](crate::facts::ObjectStore) |
//! | `audit/<object store>` | when its next audit begins that nobody asks for, seconds since 1970, decimal |
//! | `group/<name>` | [`Group`](crate::facts::Group) |
//! | `settings` | [`Settings`](crate::facts::Settings) |
//! | `incarnation` | [`Incarnation`](crate::facts::Incarnation) |
//! | `fence` | [`Fence`](crate::facts::Fence) |
//! | `ctr/<name>` | a decimal number, see [`Coordinator::counter`] |

use braid_base::{Error, ErrorKind, Result};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::coordinator::{CAS_ATTEMPTS_MAX, Check, Coordinator, Outcome, Revision, Txn, contended};

/// A record type: where it lies and which version of it this code writes.
pub trait Record: Serialize + DeserializeOwned {
    /// What its keys start with; `cluster` has no more than that.
    const PREFIX: &'static str;
    /// The version written. Older ones are read, newer ones refused: this code would drop what it does not know.
    const VERSION: u64;

    /// The key of this record.
    fn key(&self) -> String;
}

/// A record and the revision it was read at.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stored<T> {
    /// The record.
    pub value: T,
    /// What [`update`] and [`delete`] compare with.
    pub revision: Revision,
}

/// The record under `key`; none if there is none.
pub fn read<T: Record>(coordinator: &dyn Coordinator, key: &str) -> Result<Option<Stored<T>>> {
    let Some(item) = coordinator.get(key)? else { return Ok(None) };
    Ok(Some(Stored { value: decode(key, &item.value)?, revision: item.modified }))
}

/// So often it is looked for what became of a change of which nobody said that.
const UNKNOWN_MAX: u32 = 3;

/// The record under `key`; `NotFound` if there is none.
pub fn must<T: Record>(coordinator: &dyn Coordinator, key: &str) -> Result<Stored<T>> {
    let missing = || Error::new(ErrorKind::NotFound, format!("{key} expected in the coordinator, not found"));
    read(coordinator, key)?.ok_or_else(missing)
}

/// All records of a type, ordered by key, and the revision to watch from (its successor).
pub fn list<T: Record>(coordinator: &dyn Coordinator) -> Result<(Vec<Stored<T>>, Revision)> {
    let found = coordinator.range(T::PREFIX)?;
    let stored =
        found.items.iter().map(|item| Ok(Stored { value: decode(&item.key, &item.value)?, revision: item.modified }));
    Ok((stored.collect::<Result<Vec<_>>>()?, found.revision))
}

/// Writes a record that must not exist yet; `Exists` if it does.
pub fn create<T: Record>(coordinator: &dyn Coordinator, record: &T) -> Result<Stored<T>> {
    let key = record.key();
    match create_with(coordinator, record, Txn::new())? {
        Outcome::Done(revision) => Ok(Stored { value: decode(&key, &encode(record)?)?, revision }),
        Outcome::Conflict => Err(Error::new(ErrorKind::Exists, format!("{key} exists already"))),
    }
}

/// Writes a record that must not exist yet, and with it what `txn` does. If it is not said what became of that, it is
/// looked for and tried again: it happens once at most, because the record is there then.
pub fn create_with<T: Record>(coordinator: &dyn Coordinator, record: &T, txn: Txn) -> Result<Outcome> {
    let (key, bytes) = (record.key(), encode(record)?);
    let txn = txn.when(&key, Check::Absent).put(&key, bytes.clone());
    let mut unknown = 0;
    loop {
        match coordinator.txn(&txn) {
            Err(error) if error.kind() == ErrorKind::TimedOut && unknown < UNKNOWN_MAX => unknown += 1,
            Ok(Outcome::Conflict) if unknown > 0 => {
                let found = coordinator.get(&key)?.filter(|item| item.value == bytes);
                return Ok(found.map_or(Outcome::Conflict, |item| Outcome::Done(item.modified)));
            }
            other => return other,
        }
    }
}

/// Writes `value` over the record read at `seen`; `Stale` if it changed since: read again and decide anew.
pub fn update<T: Record>(coordinator: &dyn Coordinator, seen: Revision, value: &T) -> Result<Revision> {
    let key = value.key();
    let txn = Txn::new().when(&key, Check::Modified(seen)).put(&key, encode(value)?);
    done(coordinator.txn(&txn)?, &key)
}

/// Removes the record read at `stored`; `Stale` if it changed since.
pub fn delete<T: Record>(coordinator: &dyn Coordinator, stored: &Stored<T>) -> Result<Revision> {
    let key = stored.value.key();
    done(coordinator.txn(&Txn::new().when(&key, Check::Modified(stored.revision)).delete(&key))?, &key)
}

/// Reads the record under `key`, lets `change` edit it and writes it back, again from the start when somebody
/// else was faster, or if it is not said what became of it: then what was written is looked for, so that a change is made
/// once unless others change the same record just then. `change` may refuse; it must not have effects of its own.
pub fn modify<T: Record>(
    coordinator: &dyn Coordinator,
    key: &str,
    mut change: impl FnMut(&mut T) -> Result<()>,
) -> Result<Stored<T>> {
    // What may have been written, over what.
    let mut unknown: Option<(Vec<u8>, Revision)> = None;
    let mut answers_lost = 0;
    for _ in 0..CAS_ATTEMPTS_MAX {
        let Stored { mut value, revision } = must::<T>(coordinator, key)?;
        if unknown
            .take_if(|(_, over)| *over != revision)
            .is_some_and(|(bytes, _)| encode(&value).is_ok_and(|is| is == bytes))
        {
            return Ok(Stored { value, revision });
        }
        change(&mut value)?;
        match update(coordinator, revision, &value) {
            Ok(revision) => return Ok(Stored { value, revision }),
            Err(error) if error.kind() == ErrorKind::Stale => {}
            Err(error) if error.kind() == ErrorKind::TimedOut && answers_lost < UNKNOWN_MAX => {
                answers_lost += 1;
                unknown = Some((encode(&value)?, revision));
            }
            Err(error) => return Err(error),
        }
    }
    Err(contended(key))
}

/// The bytes of a record, its version included.
pub fn encode<T: Record>(record: &T) -> Result<Vec<u8>> {
    let encoded = serde_json::to_value(record).and_then(|mut value| {
        if let Value::Object(fields) = &mut value {
            fields.insert("version".to_owned(), T::VERSION.into());
        }
        serde_json::to_vec(&value)
    });
    encoded.map_err(|error| Error::new(ErrorKind::Invalid, format!("{}: {error}", record.key())))
}

/// The record under `key` with these bytes. `Unsupported` if a newer release wrote it.
pub fn decode<T: Record>(key: &str, bytes: &[u8]) -> Result<T> {
    let damaged = |why: String| Error::new(ErrorKind::Corrupt, format!("{key} in the coordinator: {why}"));
    let value: Value = serde_json::from_slice(bytes).map_err(|error| damaged(error.to_string()))?;
    let version = value.get("version").and_then(Value::as_u64);
    let version = version.ok_or_else(|| damaged("a version expected, none found".to_owned()))?;
    if version > T::VERSION {
        let known = T::VERSION;
        let message = format!(
            "{key}: version up to {known} expected, found {version}: it was written by a newer braid, use that"
        );
        return Err(Error::new(ErrorKind::Unsupported, message));
    }
    serde_json::from_value(value).map_err(|error| damaged(error.to_string()))
}

fn done(outcome: Outcome, key: &str) -> Result<Revision> {
    match outcome {
        Outcome::Done(revision) => Ok(revision),
        Outcome::Conflict => Err(Error::new(ErrorKind::Stale, format!("{key} changed meanwhile: read it again"))),
    }
}
