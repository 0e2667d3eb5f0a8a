//! What a coordinator holds, in plain text: beside the file of the embedded one, as the way out when that is damaged,
//! and on each host of several (`kept`), for when etcd is restored from an old copy or lost.
//!
//! ```text
//! <file>.backup: {"version":1, "crc32c":<of items>, "items":[{"key":..,"text":..} | {"key":..,"hex":..}, ..]}
//! ```
//! That of the embedded one is written anew at every start, when a lasting record changes and when a counter begins,
//! not for every number or term. So what moves on without it is made safe when it is read: counters jump ahead of every
//! number that may have been given, and a partition's next term is chosen above the one its replica has seen
//! (`partitions::claim`).

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use braid_base::crc::crc32c;
use braid_base::{Error, ErrorKind, Result};
use serde::{Deserialize, Serialize};

use crate::coordinator::{Item, Put, Revision};
use crate::facts::Incarnation;

/// How far counters jump when they are read back: more than a cluster gives between two starts.
const COUNTER_LEAP: u64 = 1 << 24;
const VERSION: u32 = 1;

#[derive(Serialize, Deserialize)]
struct Backup {
    version: u32,
    crc32c: u32,
    /// Of etcd: as of when; none: of the embedded coordinator.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    as_of: Option<AsOf>,
    items: Vec<Entry>,
}

/// A point in the history of etcd.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct AsOf {
    /// How often it was recovered.
    pub incarnation: Incarnation,
    /// Its revision since then.
    pub revision: u64,
}

/// An item, for people and for files.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Entry {
    key: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    text: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    hex: Option<String>,
    /// Of etcd: the revision at which it was put last.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    modified: Option<u64>,
}

/// Must the backup follow a change of `key` at once?
pub(crate) fn covers(key: &str) -> bool {
    !["ctr/", "partition/", "live/"].iter().any(|prefix| key.starts_with(prefix))
}

/// Is this the first number of a counter? The backup must know that there is one, or it could not jump ahead.
pub(crate) fn begins_counter(put: &Put) -> bool {
    put.key.starts_with("ctr/") && put.value == b"1"
}

/// Is there a backup of the file at `path`?
pub(crate) fn exists(path: &Path) -> bool {
    fs::symlink_metadata(place(path)).is_ok()
}

/// Replaces the backup of the file at `path`, durably.
pub(crate) fn write(path: &Path, items: &[Item]) -> Result<()> {
    write_at(&place(path), None, items.iter().map(Entry::of).collect())
}

/// Replaces the file at `place`, durably.
pub(crate) fn write_at(place: &Path, as_of: Option<AsOf>, items: Vec<Entry>) -> Result<()> {
    let new = beside(place, "new");
    let mut backup = Backup { version: VERSION, crc32c: 0, as_of, items };
    backup.crc32c = checksum(&backup);
    let text = serde_json::to_vec_pretty(&backup).map_err(|error| Error::new(ErrorKind::Io, error.to_string()))?;
    let written = File::create(&new).and_then(|mut file| {
        file.write_all(&text)?;
        file.sync_all()
    });
    written.and_then(|()| fs::rename(&new, place)).map_err(|error| Error::os(place.display(), &error))?;
    sync_parent(place)
}

/// The items of the backup of the file at `path`, made safe to go on with.
pub(crate) fn read(path: &Path) -> Result<Vec<Put>> {
    let place = place(path);
    let found = read_at(&place)?;
    let nothing =
        || Error::new(ErrorKind::NotFound, format!("{}: no backup there, nothing to recover from", place.display()));
    let (_, items) = found.ok_or_else(nothing)?;
    let puts: Option<Vec<Put>> = items.iter().map(Entry::put).collect();
    puts.ok_or_else(|| damaged(&place, "an item without a value"))
}

/// What the file at `place` says, and as of when; none if there is no such file. `Corrupt` if it is damaged.
pub(crate) fn read_at(place: &Path) -> Result<Option<(Option<AsOf>, Vec<Entry>)>> {
    let bytes = match fs::read(place) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        read => read.map_err(|error| Error::os(place.display(), &error))?,
    };
    let backup: Backup = serde_json::from_slice(&bytes).map_err(|error| damaged(place, &error.to_string()))?;
    if backup.version != VERSION || backup.crc32c != checksum(&backup) {
        return Err(damaged(place, "version or checksum do not match"));
    }
    Ok(Some((backup.as_of, backup.items)))
}

/// Makes the directory entry of `path` durable.
pub(crate) fn sync_parent(path: &Path) -> Result<()> {
    let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    File::open(parent).and_then(|dir| dir.sync_all()).map_err(|error| Error::os(parent.display(), &error))
}

impl Entry {
    fn of(item: &Item) -> Self {
        let (text, hex) = match std::str::from_utf8(&item.value) {
            Ok(text) => (Some(text.to_owned()), None),
            Err(_) => (None, Some(item.value.iter().map(|byte| format!("{byte:02x}")).collect())),
        };
        Self { key: item.key.clone(), text, hex, modified: None }
    }

    /// With the revision at which it was put last.
    pub(crate) fn dated(item: &Item) -> Self {
        Self { modified: Some(item.modified.0), ..Self::of(item) }
    }

    /// The item; none if it has no value.
    pub(crate) fn item(&self) -> Option<Item> {
        let modified = Revision(self.modified.unwrap_or_default());
        Some(Item { key: self.key.clone(), value: self.value()?, created: Revision(0), modified })
    }

    fn value(&self) -> Option<Vec<u8>> {
        match (&self.text, &self.hex) {
            (Some(text), _) => Some(text.clone().into_bytes()),
            (None, Some(hex)) => unhex(hex),
            (None, None) => None,
        }
    }

    fn put(&self) -> Option<Put> {
        let mut value = self.value()?;
        if self.key.starts_with("ctr/") {
            value = leapt(std::str::from_utf8(&value).ok()?.parse().ok()?).to_string().into_bytes();
        }
        Some(Put { key: self.key.clone(), value, session: None })
    }
}

/// A counter that goes on behind every number that may have been given since it stood at `given`.
pub(crate) fn leapt(given: u64) -> u64 {
    // Identifiers of hosts, drives and file systems have 32 bits: leap, but not beyond them.
    let leap =
        if given > u64::from(u32::MAX) { COUNTER_LEAP } else { COUNTER_LEAP.min((u64::from(u32::MAX) - given) / 2) };
    given + leap
}

fn checksum(backup: &Backup) -> u32 {
    let mut bytes = Vec::new();
    if let Some(AsOf { incarnation, revision }) = &backup.as_of {
        bytes.extend_from_slice(&incarnation.number.to_le_bytes());
        bytes.extend_from_slice(&incarnation.by.0);
        bytes.extend_from_slice(&revision.to_le_bytes());
    }
    for entry in &backup.items {
        for part in [Some(&entry.key), entry.text.as_ref(), entry.hex.as_ref()] {
            bytes.extend_from_slice(part.map_or(&[][..], |text| text.as_bytes()));
            bytes.push(0);
        }
        if let Some(modified) = entry.modified {
            bytes.extend_from_slice(&modified.to_le_bytes());
        }
    }
    crc32c(&bytes)
}

fn unhex(hex: &str) -> Option<Vec<u8>> {
    let digits: Vec<u32> = hex.chars().map(|digit| digit.to_digit(16)).collect::<Option<_>>()?;
    digits.chunks(2).map(|pair| u8::try_from(pair.first()? * 16 + pair.get(1)?).ok()).collect()
}

/// The file beside `path` whose name has `.suffix` appended.
pub(crate) fn beside(path: &Path, suffix: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(".");
    name.push(suffix);
    PathBuf::from(name)
}

fn place(path: &Path) -> PathBuf {
    beside(path, "backup")
}

fn damaged(place: &Path, why: &str) -> Error {
    let message = format!("{} is damaged too ({why}): restore it or the coordinator file from a copy", place.display());
    Error::new(ErrorKind::Corrupt, message)
}
