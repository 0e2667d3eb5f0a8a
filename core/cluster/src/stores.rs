//! Object stores: adding, changing, removing their records. Whether a store can be reached is tried by the caller, between
//! the plan and the record.

use braid_base::ids::StoreId;
use braid_base::msg::host::SeatData;
use braid_base::store::{Place, StoreSpec};
use braid_base::{Error, ErrorKind, Result};

use crate::coordinator::{CAS_ATTEMPTS_MAX, Check, Coordinator, Outcome, Txn, contended};
use crate::facts::{Filesystem, ObjectStore};
use crate::names::check_name;
use crate::records::{self, Record, Stored};
use crate::view::stores::{ObjectStoreChange, ObjectStoreSpec};

pub(crate) mod attached;
mod audits;
mod held;
pub mod seen;
mod settings;
mod shown;

pub use audits::{audit_failed, take_audit};
pub use held::held;
pub use shown::view;

/// Most object stores.
pub const OBJECT_STORES_MAX: usize = 2048;

/// A change that was thought through, and nothing else.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Plan {
    /// The store as it will be.
    pub store: ObjectStore,
    /// It will be reached in another way than before: that should be tried first.
    pub reached_anew: bool,
    /// What is there now.
    seen: Stored<ObjectStore>,
}

/// The store that `spec` would add, all checked but whether it can be reached.
///
/// Errors: `Invalid`: a word or number makes no sense; `Exists`: the name is taken; `Refused`: there are too many.
pub fn plan_add(coordinator: &dyn Coordinator, spec: &ObjectStoreSpec) -> Result<StoreSpec> {
    check_name("object store", &spec.name)?;
    let planned = settings::new(spec.kind, &spec.settings)?;
    let known = list(coordinator)?;
    if known.iter().any(|store| store.name == spec.name) {
        return Err(taken(&spec.name));
    }
    if known.len() >= OBJECT_STORES_MAX {
        let message = format!("at most {OBJECT_STORES_MAX} object stores, found {}: remove one first", known.len());
        return Err(Error::new(ErrorKind::Refused, message));
    }
    Ok(planned)
}

/// Records the store that [`plan_add`] gave under its name.
pub fn add(coordinator: &dyn Coordinator, name: &str, spec: StoreSpec) -> Result<ObjectStore> {
    let number = coordinator.counter("object-store")?;
    let id =
        u32::try_from(number).map_err(|_| Error::new(ErrorKind::Refused, "all numbers of object stores were given"))?;
    let store = ObjectStore { id: StoreId(id), name: name.to_owned(), spec };
    let name_key = ObjectStore::name_key(name);
    let txn = Txn::new().when(&name_key, Check::Absent).put(&name_key, id.to_string());
    let txn = txn.when(&store.key(), Check::Absent).put(&store.key(), records::encode(&store)?);
    match coordinator.txn(&txn)? {
        Outcome::Done(_) => Ok(store),
        Outcome::Conflict => Err(taken(name)),
    }
}

/// What `change` would make of the store called `name`. What it does not name stays.
///
/// Errors: as for [`plan_add`]; also `Refused`: objects of file systems lie where the store would not be any more.
pub fn plan_update(coordinator: &dyn Coordinator, name: &str, change: &ObjectStoreChange) -> Result<Plan> {
    let seen = find(coordinator, name)?;
    let mut store = seen.value.clone();
    let kind = shown::kind(&store.spec.place);
    if let Some(expected) = change.kind.filter(|expected| *expected != kind) {
        let words = format!(
            "object store {name} is of kind {0}, not {1}: say `braid fs tier {0} update`",
            kind.word(),
            expected.word()
        );
        return Err(Error::new(ErrorKind::Invalid, words));
    }
    settings::change(&mut store.spec, &change.settings)?;
    if lies_at(&store.spec.place) != lies_at(&seen.value.spec.place) {
        let users = users(coordinator, store.id)?;
        if !users.is_empty() {
            let words = format!(
                "object store {name} has objects of {}, which would not be found at another place: add a store for that \
                 place, attach it and detach this one",
                named(&users)
            );
            return Err(Error::new(ErrorKind::Refused, words));
        }
    }
    if let Some(new_name) = change.new_name.as_ref().filter(|new_name| *new_name != name) {
        check_name("object store", new_name)?;
        if coordinator.get(&ObjectStore::name_key(new_name))?.is_some() {
            return Err(taken(new_name));
        }
        store.name.clone_from(new_name);
    }
    let reached_anew = store.spec.place != seen.value.spec.place;
    Ok(Plan { store, reached_anew, seen })
}

/// Records a plan. `Stale` if the store changed since: plan again.
pub fn update(coordinator: &dyn Coordinator, plan: Plan) -> Result<ObjectStore> {
    let Plan { store, seen, .. } = plan;
    let mut txn = Txn::new().when(&store.key(), Check::Modified(seen.revision));
    if store.name != seen.value.name {
        let new_key = ObjectStore::name_key(&store.name);
        txn = txn.when(&new_key, Check::Absent).put(&new_key, store.id.0.to_string());
        txn = txn.delete(&ObjectStore::name_key(&seen.value.name));
    }
    match coordinator.txn(&txn.put(&store.key(), records::encode(&store)?))? {
        Outcome::Done(_) => Ok(store),
        Outcome::Conflict => Err(changed(&seen.value.name)),
    }
}

/// What is known of objects that lie in a store which no file system uses: those of removed ones, until they are removed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Waiting {
    /// Objects that partitions are to remove.
    pub objects: u64,
    /// Partitions that do not say whether they have any.
    pub silent_partitions: u64,
}

/// What `partitions` of all of a cluster's `count` are to remove from store `id`.
pub fn waiting<'a>(id: StoreId, count: usize, partitions: impl IntoIterator<Item = &'a SeatData>) -> Waiting {
    let mut waiting = Waiting { objects: 0, silent_partitions: count as u64 };
    for data in partitions {
        waiting.silent_partitions = waiting.silent_partitions.saturating_sub(1);
        let mine = data.stored.iter().filter(|((_, store), _)| *store == id);
        waiting.objects += mine.map(|(_, stored)| stored.objects).sum::<u64>();
    }
    waiting
}

/// Removes the store called `name`; what lies in it is not touched. `Refused` while a file system uses it, or while objects
/// there are `waiting` to be removed: nobody could any more. None: they are to be left there.
pub fn remove(coordinator: &dyn Coordinator, name: &str, waiting: Option<Waiting>) -> Result<()> {
    for _ in 0..CAS_ATTEMPTS_MAX {
        // Whoever attaches it writes the record, too: so it cannot come into use unseen.
        let stored = find(coordinator, name)?;
        let users = users(coordinator, stored.value.id)?;
        if !users.is_empty() {
            let words = format!("object store {name} stays: {} it; detach it first", used_by(&users));
            return Err(Error::new(ErrorKind::Refused, words));
        }
        if let Some(why) = waiting.and_then(why_waiting) {
            let words = format!("object store {name} stays: {why}, or say --force to leave there what is there");
            return Err(Error::new(ErrorKind::Refused, words));
        }
        let key = stored.value.key();
        let txn = Txn::new().when(&key, Check::Modified(stored.revision)).delete(&key);
        let txn = txn.delete(&audits::key(stored.value.id));
        match coordinator.txn(&txn.delete(&ObjectStore::name_key(&stored.value.name)))? {
            Outcome::Done(_) => return Ok(()),
            Outcome::Conflict => {}
        }
    }
    Err(contended(name))
}

fn why_waiting(Waiting { objects, silent_partitions }: Waiting) -> Option<String> {
    match (objects, silent_partitions) {
        (0, 0) => None,
        (0, silent) => Some(format!(
            "{silent} partitions do not say whether they have objects there; try again when they are served"
        )),
        (objects, _) => Some(format!(
            "{objects} objects of removed file systems wait there to be removed; try again when that is done (see `braid fs \
             tier capacity`)"
        )),
    }
}

/// The store called `name`; `NotFound` if there is none.
pub fn find(coordinator: &dyn Coordinator, name: &str) -> Result<Stored<ObjectStore>> {
    let missing = || Error::new(ErrorKind::NotFound, format!("no object store {name}: `braid fs tier` lists them"));
    let entry = coordinator.get(&ObjectStore::name_key(name))?.ok_or_else(missing)?;
    let id: Option<u32> = std::str::from_utf8(&entry.value).ok().and_then(|text| text.parse().ok());
    let id = id.ok_or_else(|| {
        Error::new(ErrorKind::Corrupt, format!("{} in the coordinator: a number expected", entry.key))
    })?;
    records::read(coordinator, &ObjectStore::key_of(StoreId(id)))?.ok_or_else(missing)
}

/// All stores, ordered by number.
pub fn list(coordinator: &dyn Coordinator) -> Result<Vec<ObjectStore>> {
    Ok(records::list::<ObjectStore>(coordinator)?.0.into_iter().map(|stored| stored.value).collect())
}

/// The names of the file systems that store `id` is attached to.
fn users(coordinator: &dyn Coordinator, id: StoreId) -> Result<Vec<String>> {
    let filesystems = records::list::<Filesystem>(coordinator)?.0.into_iter().map(|stored| stored.value);
    Ok(filesystems.filter(|fs| fs.attachment(id).is_some()).map(|fs| fs.name).collect())
}

/// Where objects lie; the rest of a place is how they are reached.
fn lies_at(place: &Place) -> [&str; 3] {
    match place {
        Place::S3(s3) => ["", &s3.bucket, &s3.prefix],
        Place::Azure(azure) => [&azure.account, &azure.container, &azure.prefix],
        Place::Dir { path } => [path, "", ""],
    }
}

fn named(filesystems: &[String]) -> String {
    let noun = if filesystems.len() == 1 { "file system" } else { "the file systems" };
    format!("{noun} {}", filesystems.join(", "))
}

fn used_by(filesystems: &[String]) -> String {
    format!("{} {}", named(filesystems), if filesystems.len() == 1 { "uses" } else { "use" })
}

fn changed(name: &str) -> Error {
    Error::new(ErrorKind::Stale, format!("object store {name} changed meanwhile: look again"))
}

fn taken(name: &str) -> Error {
    Error::new(ErrorKind::Exists, format!("object store {name} exists already: choose another name"))
}
