//! The redb file: items and the last revision, changed in one durable transaction.

use std::fs::{self, File, TryLockError};
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::thread;

use braid_base::codec::Reader;
use braid_base::{Error, ErrorKind, Result};
use redb::backends::InMemoryBackend;
use redb::{
    Builder, Database, DatabaseError, Durability, ReadableDatabase, ReadableTable, StorageBackend, TableDefinition,
    WriteTransaction,
};

use super::{CHECKER, errors};
use crate::backup;
use crate::coordinator::{Check, Event, Item, Put, Revision};

const ITEMS: TableDefinition<&str, &[u8]> = TableDefinition::new("items");
const STATE: TableDefinition<&str, u64> = TableDefinition::new("state");
/// Layout of the tables above.
const FORMAT: u64 = 1;
/// Page cache, bytes: the whole map of a large cluster is a few MiB.
const CACHE_BYTES: usize = 8 << 20;

/// The file and what was last committed to it.
pub(super) struct Store {
    database: Database,
    /// Where it lies; none in memory.
    path: Option<PathBuf>,
    revision: Revision,
    session_last: u64,
}

/// What a write did.
pub(super) enum Change {
    /// Nothing differed, so the revision stays.
    Nothing,
    /// These events happened at the new revision.
    Made(Vec<Event>),
}

/// An item and the session it lives with (0 = none).
struct Stored {
    item: Item,
    session: u64,
}

impl Store {
    /// Opens `path`; creates it if neither it nor its backup exists.
    pub fn open(path: &Path) -> Result<Self> {
        match fs::symlink_metadata(path) {
            Ok(_) => Self::load(path),
            Err(error) if error.kind() == io::ErrorKind::NotFound && backup::exists(path) => {
                let why = "the file is gone but its backup is there";
                Err(Error::new(
                    ErrorKind::Corrupt,
                    format!(
                        "{}: {why}: start once with `braid up DIR --recover`, or put the file back",
                        path.display()
                    ),
                ))
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => Self::create(path, &[]),
            Err(error) => Err(Error::os(path.display(), &error)),
        }
    }

    /// A new file at `path` that holds `items`.
    pub fn rebuild(path: &Path, items: &[Put]) -> Result<Self> {
        if fs::symlink_metadata(path).is_ok() {
            let path = path.display();
            let message = format!(
                "{path} is still there: move it away first (mv {path} {path}.damaged), or start without --recover"
            );
            return Err(Error::new(ErrorKind::Refused, message));
        }
        Self::create(path, items)
    }

    /// A store without a file.
    pub fn in_memory() -> Result<Self> {
        let path = Path::new("memory");
        let opened = Builder::new().create_with_backend(InMemoryBackend::new());
        let mut store = Self::fresh(opened.map_err(|error| errors::opening(path, error))?, None);
        store.initialise(&[])?;
        Ok(store)
    }

    /// Builds the file beside its place and renames it there, so that a crash leaves no half-made one.
    fn create(path: &Path, items: &[Put]) -> Result<Self> {
        let new = backup::beside(path, "new");
        match fs::remove_file(&new) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(Error::os(new.display(), &error)),
            _ => {}
        }
        let opened = Builder::new().set_cache_size(CACHE_BYTES).create(&new);
        let mut store = Self::fresh(opened.map_err(|error| errors::opening(&new, error))?, Some(path.to_owned()));
        store.initialise(items)?;
        fs::rename(&new, path).map_err(|error| Error::os(path.display(), &error))?;
        backup::sync_parent(path)?;
        Ok(store)
    }

    fn load(path: &Path) -> Result<Self> {
        let opened = File::options().read(true).write(true).open(path);
        let mut file = opened.map_err(|error| Error::os(path.display(), &error))?;
        file.try_lock().map_err(|error| match error {
            TryLockError::WouldBlock => errors::opening(path, DatabaseError::DatabaseAlreadyOpen),
            TryLockError::Error(error) => Error::os(path.display(), &error),
        })?;
        let mut image = Vec::new();
        file.read_to_end(&mut image).map_err(|error| Error::os(path.display(), &error))?;
        check_apart(path, image)?;
        let opened = Builder::new().set_cache_size(CACHE_BYTES).create_file(file);
        let database = opened.map_err(|error| errors::opening(path, error))?;
        let mut store = Self::fresh(database, Some(path.to_owned()));
        let read = store.database.begin_read().map_err(|error| errors::storage(path, error))?;
        let state = read.open_table(STATE).map_err(|error| errors::storage(path, error))?;
        let number = |name: &str| -> Result<u64> {
            let found = state.get(name).map_err(|error| errors::storage(path, error))?;
            found.map(|value| value.value()).ok_or_else(|| errors::damaged(path, "its state table is incomplete"))
        };
        let format = number("format")?;
        if format != FORMAT {
            let message =
                format!("{}: format {FORMAT} expected, found {format}: use the braid that wrote it", path.display());
            return Err(Error::new(ErrorKind::Unsupported, message));
        }
        (store.revision, store.session_last) = (Revision(number("revision")?), number("session")?);
        Ok(store)
    }

    fn fresh(database: Database, path: Option<PathBuf>) -> Self {
        Self { database, path, revision: Revision(0), session_last: 0 }
    }

    fn initialise(&mut self, items: &[Put]) -> Result<()> {
        let write = self.begin()?;
        {
            write.open_table(ITEMS).map_err(|error| self.failed(error))?;
            let mut state = write.open_table(STATE).map_err(|error| self.failed(error))?;
            for (name, value) in [("format", FORMAT), ("revision", 0), ("session", 0)] {
                state.insert(name, value).map_err(|error| self.failed(error))?;
            }
        }
        write.commit().map_err(|error| self.failed(error))?;
        self.write(items, &[]).map(|_| ())
    }

    /// The last committed revision.
    pub fn revision(&self) -> Revision {
        self.revision
    }

    /// The item under `key`.
    pub fn get(&self, key: &str) -> Result<Option<Item>> {
        let read = self.database.begin_read().map_err(|error| self.failed(error))?;
        let items = read.open_table(ITEMS).map_err(|error| self.failed(error))?;
        let found = items.get(key).map_err(|error| self.failed(error))?;
        found.map(|value| self.decode(key, value.value()).map(|stored| stored.item)).transpose()
    }

    /// The items under `prefix`, ordered.
    pub fn range(&self, prefix: &str) -> Result<Vec<Item>> {
        self.scan(prefix).map(|found| found.into_iter().map(|stored| stored.item).collect())
    }

    /// Do all `compares` hold now?
    pub fn holds(&self, compares: &[(String, Check)]) -> Result<bool> {
        for (key, check) in compares {
            let found = self.get(key)?;
            let holds = match check {
                Check::Absent => found.is_none(),
                Check::Modified(revision) => found.is_some_and(|item| item.modified == *revision),
                Check::Created(revision) => found.is_some_and(|item| item.created == *revision),
            };
            if !holds {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Puts and deletes at the next revision, durably; on an error the file is not to be written any more.
    pub fn write(&mut self, puts: &[Put], deletes: &[String]) -> Result<Change> {
        let revision = self.revision.next();
        let mut events = Vec::new();
        let write = self.begin()?;
        {
            let mut items = write.open_table(ITEMS).map_err(|error| self.failed(error))?;
            for put in puts {
                let old = items.get(put.key.as_str()).map_err(|error| self.failed(error))?;
                let old = old.map(|value| self.decode(&put.key, value.value())).transpose()?;
                let created = old.map_or(revision, |stored| stored.item.created);
                let item = Item { key: put.key.clone(), value: put.value.clone(), created, modified: revision };
                let bytes = encode(&item, put.session.map_or(0, |session| session.0));
                items.insert(put.key.as_str(), bytes.as_slice()).map_err(|error| self.failed(error))?;
                events.push(Event { revision, key: put.key.clone(), item: Some(item) });
            }
            for key in deletes {
                if items.remove(key.as_str()).map_err(|error| self.failed(error))?.is_some() {
                    events.push(Event { revision, key: key.clone(), item: None });
                }
            }
            let mut state = write.open_table(STATE).map_err(|error| self.failed(error))?;
            state.insert("revision", revision.0).map_err(|error| self.failed(error))?;
        }
        if events.is_empty() {
            write.abort().map_err(|error| self.failed(error))?;
            return Ok(Change::Nothing);
        }
        write.commit().map_err(|error| self.failed(error))?;
        self.revision = revision;
        Ok(Change::Made(events))
    }

    /// A session id that was never given before, also not by an earlier process.
    pub fn next_session(&mut self) -> Result<u64> {
        let next = self.session_last + 1;
        let write = self.begin()?;
        {
            let mut state = write.open_table(STATE).map_err(|error| self.failed(error))?;
            state.insert("session", next).map_err(|error| self.failed(error))?;
        }
        write.commit().map_err(|error| self.failed(error))?;
        self.session_last = next;
        Ok(next)
    }

    /// The keys that live with session `id`.
    pub fn keys_of_session(&self, id: u64) -> Result<Vec<String>> {
        Ok(self.scan("")?.into_iter().filter(|stored| stored.session == id).map(|stored| stored.item.key).collect())
    }

    /// Removes the keys of every session: none outlives the process that opened the file.
    pub fn drop_session_keys(&mut self) -> Result<()> {
        let stale = self.scan("")?.into_iter().filter(|stored| stored.session != 0);
        let keys: Vec<String> = stale.map(|stored| stored.item.key).collect();
        self.write(&[], &keys).map(|_| ())
    }

    /// Writes the backup file anew; nothing in memory.
    pub fn back_up(&self) -> Result<()> {
        let Some(path) = &self.path else { return Ok(()) };
        let lasting = self.scan("")?.into_iter().filter(|stored| stored.session == 0);
        backup::write(path, &lasting.map(|stored| stored.item).collect::<Vec<_>>())
    }

    fn scan(&self, prefix: &str) -> Result<Vec<Stored>> {
        let read = self.database.begin_read().map_err(|error| self.failed(error))?;
        let items = read.open_table(ITEMS).map_err(|error| self.failed(error))?;
        let mut found = Vec::new();
        for entry in items.range(prefix..).map_err(|error| self.failed(error))? {
            let (key, value) = entry.map_err(|error| self.failed(error))?;
            if !key.value().starts_with(prefix) {
                break;
            }
            found.push(self.decode(key.value(), value.value())?);
        }
        Ok(found)
    }

    fn begin(&self) -> Result<WriteTransaction> {
        let mut write = self.database.begin_write().map_err(|error| self.failed(error))?;
        write.set_durability(Durability::Immediate).map_err(|error| self.failed(error))?;
        // Costs a little per commit and saves a scan of the whole file after a crash.
        write.set_quick_repair(true);
        Ok(write)
    }

    fn decode(&self, key: &str, bytes: &[u8]) -> Result<Stored> {
        decode(key, bytes).map_err(|_| errors::damaged(self.place(), &format!("the value of {key} is cut short")))
    }

    fn failed(&self, error: impl Into<redb::Error>) -> Error {
        errors::storage(self.place(), error)
    }

    fn place(&self) -> &Path {
        self.path.as_deref().unwrap_or(Path::new("memory"))
    }
}

/// Runs [`check`] in a thread of its own: a damaged page can make redb panic, and that is a damaged file too.
fn check_apart(path: &Path, image: Vec<u8>) -> Result<()> {
    let place = path.to_owned();
    let checker = thread::Builder::new().name(CHECKER.to_owned()).spawn(move || check(&place, image));
    let checked = checker.map_err(|error| Error::os("starting a thread", &error))?.join();
    checked.unwrap_or_else(|_| Err(errors::damaged(path, "its pages contradict each other")))
}

/// Reads every page of a copy in memory once: a rotten record must be found before it is believed, and the file
/// itself must stay as it is when it is damaged (opening it writes to it). It is small, a few MiB at most.
fn check(path: &Path, image: Vec<u8>) -> Result<()> {
    let copy = InMemoryBackend::new();
    let len = image.len() as u64;
    let filled = copy.set_len(len).and_then(|()| copy.write(0, &image));
    filled.map_err(|error| errors::damaged(path, &error.to_string()))?;
    if image.is_empty() {
        return Err(errors::damaged(path, "it is empty"));
    }
    let mut database = Builder::new().create_with_backend(copy).map_err(|error| errors::opening(path, error))?;
    match database.check_integrity() {
        Ok(true) => Ok(()),
        Ok(false) => Err(errors::damaged(path, "checksums do not match")),
        Err(error) => Err(errors::opening(path, error)),
    }
}

fn encode(item: &Item, session: u64) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(24 + item.value.len());
    for number in [item.created.0, item.modified.0, session] {
        bytes.extend_from_slice(&number.to_le_bytes());
    }
    bytes.extend_from_slice(&item.value);
    bytes
}

fn decode(key: &str, bytes: &[u8]) -> Result<Stored> {
    let mut reader = Reader::new(bytes);
    let (created, modified) = (Revision(reader.u64()?), Revision(reader.u64()?));
    let session = reader.u64()?;
    let value = reader.raw(reader.remaining())?.to_vec();
    let item = Item { key: key.to_owned(), value, created, modified };
    Ok(Stored { item, session })
}

#[cfg(test)]
mod tests {
    use super::{Item, Revision, encode};
    use crate::drawn::{b, bytes, n};

    #[test]
    fn an_item_is_as_drawn() {
        let (key, value) = ("key".to_owned(), b"value".to_vec());
        let item = Item { key, value, created: Revision(1), modified: Revision(2) };
        let fields = [n("created", 1u8), n("modified", 2u8), n("session", 3u8), b("value", b"value")];
        assert_eq!(bytes("item", &fields), encode(&item, 3));
    }
}
