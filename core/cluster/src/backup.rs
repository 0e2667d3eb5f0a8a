//! The copy of the embedded coordinator in plain text beside it: the way out when its file is damaged.
//!
//! ```text
//! <file>.backup: {"version":1, "crc32c":<of items>, "items":[{"key":..,"text":..} | {"key":..,"hex":..}, ..]}
//! ```
//! It is written anew at every start, when a lasting record changes and when a counter begins, not for every
//! number or term. So what moves on without it is made safe when it is read: counters jump ahead of every number
//! that may have been given, and a partition's next term is chosen above the one its replica has seen
//! (`partitions::claim`).

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use braid_base::crc::crc32c;
use braid_base::{Error, ErrorKind, Result};
use serde::{Deserialize, Serialize};

use crate::coordinator::{Item, Put};

/// How far counters jump when they are read back: more than a cluster gives between two starts.
const COUNTER_LEAP: u64 = 1 << 24;
const VERSION: u32 = 1;

#[derive(Serialize, Deserialize)]
struct Backup {
    version: u32,
    crc32c: u32,
    items: Vec<Entry>,
}

#[derive(Serialize, Deserialize)]
struct Entry {
    key: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    text: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    hex: Option<String>,
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
    let (place, new) = (place(path), beside(path, "backup.new"));
    let entries: Vec<Entry> = items.iter().map(Entry::of).collect();
    let backup = Backup { version: VERSION, crc32c: checksum(&entries), items: entries };
    let text = serde_json::to_vec_pretty(&backup).map_err(|error| Error::new(ErrorKind::Io, error.to_string()))?;
    let written = File::create(&new).and_then(|mut file| {
        file.write_all(&text)?;
        file.sync_all()
    });
    written.and_then(|()| fs::rename(&new, &place)).map_err(|error| Error::os(place.display(), &error))?;
    sync_parent(path)
}

/// The items of the backup of the file at `path`, made safe to go on with.
pub(crate) fn read(path: &Path) -> Result<Vec<Put>> {
    let place = place(path);
    let bytes = fs::read(&place).map_err(|error| match error.kind() {
        io::ErrorKind::NotFound => {
            Error::new(ErrorKind::NotFound, format!("{}: no backup there, nothing to recover from", place.display()))
        }
        _ => Error::os(place.display(), &error),
    })?;
    let backup: Backup = serde_json::from_slice(&bytes).map_err(|error| damaged(&place, &error.to_string()))?;
    if backup.version != VERSION || backup.crc32c != checksum(&backup.items) {
        return Err(damaged(&place, "version or checksum do not match"));
    }
    let puts: Option<Vec<Put>> = backup.items.iter().map(Entry::put).collect();
    puts.ok_or_else(|| damaged(&place, "an item without a value"))
}

/// Makes the directory entry of `path` durable.
pub(crate) fn sync_parent(path: &Path) -> Result<()> {
    let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    File::open(parent).and_then(|dir| dir.sync_all()).map_err(|error| Error::os(parent.display(), &error))
}

impl Entry {
    fn of(item: &Item) -> Self {
        match std::str::from_utf8(&item.value) {
            Ok(text) => Self { key: item.key.clone(), text: Some(text.to_owned()), hex: None },
            Err(_) => {
                let hex = item.value.iter().map(|byte| format!("{byte:02x}")).collect();
                Self { key: item.key.clone(), text: None, hex: Some(hex) }
            }
        }
    }

    fn put(&self) -> Option<Put> {
        let mut value = match (&self.text, &self.hex) {
            (Some(text), _) => text.clone().into_bytes(),
            (None, Some(hex)) => unhex(hex)?,
            (None, None) => return None,
        };
        if self.key.starts_with("ctr/") {
            let given: u64 = std::str::from_utf8(&value).ok()?.parse().ok()?;
            // Identifiers of hosts, drives and file systems have 32 bits: leap, but not beyond them.
            let leap = if given > u64::from(u32::MAX) {
                COUNTER_LEAP
            } else {
                COUNTER_LEAP.min((u64::from(u32::MAX) - given) / 2)
            };
            value = (given + leap).to_string().into_bytes();
        }
        Some(Put { key: self.key.clone(), value, session: None })
    }
}

fn checksum(entries: &[Entry]) -> u32 {
    let mut bytes = Vec::new();
    for entry in entries {
        for part in [Some(&entry.key), entry.text.as_ref(), entry.hex.as_ref()] {
            bytes.extend_from_slice(part.map_or(&[][..], |text| text.as_bytes()));
            bytes.push(0);
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
