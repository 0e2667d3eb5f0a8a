//! A directory as a store: keys are paths below it.
//!
//! An object is written in four steps: 1. its bytes under a temporary name in the directory where it will be, 2. fsync,
//! 3. rename to its key, 4. fsync of the directory. A crash leaves a temporary file at most, which no listing shows,
//! and which goes when the object of its key is removed, there or not.

use std::ffi::OsStr;
use std::fs::{self, File};
use std::io::{self, Read as _, Seek as _, SeekFrom, Write as _};
use std::ops::Range;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use braid_base::{Error, ErrorKind, Result};
use bytes::Bytes;

use super::failure::Failure;
use super::{BoxFuture, LIST_MAX, Listed, Store, probe};

/// What temporary names begin with; no part of a key may. A number follows, and the name that the file will have.
const TEMPORARY: &str = ".braid-writing-";
/// Longest name of a file in a directory, bytes: where it would be longer it ends with the number.
const NAME_MAX: usize = 255;
/// How often a put makes its directory anew when a delete beside it has just taken it away.
const MAKE_TRIES_MAX: u32 = 16;

/// A directory.
#[derive(Clone)]
pub(super) struct Dir {
    root: Arc<Path>,
}

impl Dir {
    /// The directory at `path`. Errors: `Refused`: it is not absolute.
    pub fn new(path: &str) -> Result<Self> {
        let root = Path::new(path);
        if root.is_absolute() {
            return Ok(Self { root: root.into() });
        }
        let message = format!("the directory of a store must be an absolute path, found '{path}'");
        Err(Error::new(ErrorKind::Refused, message))
    }

    /// Runs `work` where it may wait for a disk.
    fn run<T: Send + 'static>(&self, work: impl FnOnce(&Self) -> Result<T> + Send + 'static) -> BoxFuture<Result<T>> {
        let this = self.clone();
        Box::pin(async move {
            let done = tokio::task::spawn_blocking(move || work(&this)).await;
            let done =
                done.map_err(|error| Error::new(ErrorKind::Stopped, format!("ended with the process: {error}")))?;
            done.inspect_err(|error| probe::note(&Failure { error: error.clone(), answer: None }))
        })
    }

    /// Where an object is. Errors: `Invalid`: the key would lead out of the directory, or is no name of a file.
    fn place(&self, key: &str) -> Result<PathBuf> {
        let fits = |part: &str| {
            !part.is_empty() && part != "." && part != ".." && !part.contains('\0') && !part.starts_with(TEMPORARY)
        };
        if key.split('/').all(fits) {
            return Ok(self.root.join(key));
        }
        let message = format!("'{}' is no key of an object: expected names with / between them", key.escape_debug());
        Err(Error::new(ErrorKind::Invalid, message))
    }

    fn write(&self, key: &str, parts: &[Bytes]) -> Result<()> {
        let place = self.place(key)?;
        let parent = place.parent().unwrap_or(&self.root).to_owned();
        let name = place.file_name().and_then(OsStr::to_str).unwrap_or_default();
        let number = format!("{TEMPORARY}{:016x}", braid_io::chance::seed()?);
        let named = format!("{number}-{name}");
        let temporary = parent.join(if named.len() <= NAME_MAX { named } else { number });
        let mut file = self.begin(&parent, &temporary)?;
        let written = parts
            .iter()
            .try_for_each(|part| file.write_all(part))
            .and_then(|()| file.sync_all())
            .and_then(|()| fs::rename(&temporary, &place))
            .and_then(|()| File::open(&parent)?.sync_all());
        written.map_err(|error| {
            // What is half written is of no use; if it cannot be removed either, no listing shows it.
            let _ = fs::remove_file(&temporary);
            self.failed("write", &place, &error)
        })
    }

    /// The new file, in a directory that is made if need be.
    fn begin(&self, parent: &Path, temporary: &Path) -> Result<File> {
        for _ in 0..MAKE_TRIES_MAX {
            match File::options().write(true).create_new(true).open(temporary) {
                Err(error) if error.kind() == io::ErrorKind::NotFound => self.make(parent)?,
                Err(error) if error.kind() == io::ErrorKind::NotADirectory => return Err(below(temporary)),
                done => return done.map_err(|error| self.failed("write", temporary, &error)),
            }
        }
        let message =
            format!("the directory {} goes away again and again: does someone else remove it?", parent.display());
        Err(Error::new(ErrorKind::Io, message))
    }

    /// Makes a directory below the root, durably. The root itself is never made: a missing one may not be mounted.
    fn make(&self, directory: &Path) -> Result<()> {
        let Some(parent) = directory.parent().filter(|_| directory != &*self.root) else {
            return Err(self.no_root());
        };
        let done = match fs::create_dir(directory) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return self.make(parent),
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
            done => done.and_then(|()| File::open(parent)?.sync_all()),
        };
        match done {
            Err(error) if error.kind() == io::ErrorKind::NotADirectory => Err(below(directory)),
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(self.failed("make", directory, &error)),
            _ => Ok(()),
        }
    }

    fn read(&self, key: &str, range: Option<Range<u64>>) -> Result<Bytes> {
        let place = self.place(key)?;
        let (mut file, size) = self.open(&place)?;
        let range = range.unwrap_or(0..size);
        if range.start > range.end {
            return Err(Error::new(ErrorKind::Invalid, format!("{range:?} is no range of bytes")));
        }
        let short = || {
            let message = format!("{}: the object ends after {size} bytes, before byte {}", place.display(), range.end);
            Error::new(ErrorKind::Range, message)
        };
        if range.end > size {
            return Err(short());
        }
        let length = usize::try_from(range.end - range.start).map_err(|_| short())?;
        let mut bytes = vec![0; length];
        let done = file.seek(SeekFrom::Start(range.start)).and_then(|_| file.read_exact(&mut bytes));
        done.map_err(|error| self.failed("read", &place, &error))?;
        Ok(bytes.into())
    }

    /// The object at `place`, and its bytes.
    fn open(&self, place: &Path) -> Result<(File, u64)> {
        let file = File::open(place).map_err(|error| self.failed("read", place, &error))?;
        let metadata = file.metadata().map_err(|error| self.failed("read", place, &error))?;
        if metadata.is_file() { Ok((file, metadata.len())) } else { Err(self.missing(place)) }
    }

    fn remove(&self, key: &str) -> Result<()> {
        let place = self.place(key)?;
        let was_there = match fs::remove_file(&place) {
            Ok(()) => true,
            // A directory of this name, or a file where one of its directories would be: no object of this key.
            Err(error) if matches!(error.kind(), io::ErrorKind::IsADirectory | io::ErrorKind::NotADirectory) => false,
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                if !self.root.is_dir() {
                    return Err(self.no_root());
                }
                false
            }
            Err(error) => return Err(self.failed("remove", &place, &error)),
        };
        if forget_unfinished(&place) || was_there { self.tidy(&place) } else { Ok(()) }
    }

    /// Makes a removal durable, and takes away the directories that it left empty.
    fn tidy(&self, removed: &Path) -> Result<()> {
        let mut directories = removed.ancestors().skip(1).take_while(|directory| *directory != &*self.root);
        // The first that still holds something ends this; what was in the way of removing it does not matter.
        let kept = directories.find(|directory| fs::remove_dir(directory).is_err()).unwrap_or(&self.root);
        match File::open(kept).and_then(|directory| directory.sync_all()) {
            // Another removal has taken it away meanwhile, and synced above it.
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            done => done.map_err(|error| self.failed("sync", kept, &error)),
        }
    }

    fn find(&self, prefix: &str, after: Option<&str>) -> Result<Vec<Listed>> {
        if !self.root.is_dir() {
            return Err(self.no_root());
        }
        let mut found = Vec::new();
        self.walk("", prefix, after, &mut found)?;
        Ok(found)
    }

    /// Lists the directory whose keys begin with `base` (empty, or with a slash at its end), in order of the keys.
    fn walk(&self, base: &str, prefix: &str, after: Option<&str>, found: &mut Vec<Listed>) -> Result<()> {
        let place = self.root.join(base);
        let entries = match fs::read_dir(&place) {
            // It went away since it was listed.
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
            other => other.map_err(|error| self.failed("list", &place, &error))?,
        };
        let mut keys = Vec::new();
        for entry in entries {
            let entry = entry.map_err(|error| self.failed("list", &place, &error))?;
            let Ok(kind) = entry.file_type() else { continue };
            let name = entry.file_name();
            let Some(name) = name.to_str().filter(|name| !name.starts_with(TEMPORARY)) else { continue };
            // With the slash, a directory sorts where its keys do.
            let key = format!("{base}{name}{}", if kind.is_dir() { "/" } else { "" });
            if may_hold(&key, prefix, after) {
                keys.push(key);
            }
        }
        keys.sort_unstable();
        for key in keys {
            if found.len() >= LIST_MAX {
                break;
            }
            if key.ends_with('/') {
                self.walk(&key, prefix, after, found)?;
            } else if let Ok(metadata) = fs::metadata(self.root.join(&key)) {
                let modified_s = u64::try_from(metadata.mtime()).unwrap_or(0);
                found.push(Listed { key, size: metadata.len(), modified_s });
            }
        }
        Ok(())
    }

    fn failed(&self, what: &str, place: &Path, error: &io::Error) -> Error {
        let name = place.display();
        match error.kind() {
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => {
                let message =
                    format!("{what} {name}: the directory of the store is full ({error}): free some space there");
                Error::new(ErrorKind::Quota, message)
            }
            io::ErrorKind::NotFound | io::ErrorKind::NotADirectory if self.root.is_dir() => self.missing(place),
            io::ErrorKind::NotFound | io::ErrorKind::NotADirectory => self.no_root(),
            io::ErrorKind::IsADirectory | io::ErrorKind::DirectoryNotEmpty => {
                let message = format!(
                    "{what} {name}: other objects lie below this key; in a directory no key is part of another"
                );
                Error::new(ErrorKind::Invalid, message)
            }
            io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem => {
                let advice = "the user that runs Braid must be allowed to read and write there";
                Error::new(ErrorKind::AccessDenied, format!("{what} {name}: {error}; {advice}"))
            }
            _ => Error::new(ErrorKind::Io, format!("{what} {name}: {error}")),
        }
    }

    fn missing(&self, place: &Path) -> Error {
        let key = place.strip_prefix(&self.root).unwrap_or(place);
        let message = format!("no object {} in the directory {}", key.display(), self.root.display());
        Error::new(ErrorKind::NotFound, message)
    }

    /// Not `NotFound`: a directory that is not mounted says nothing about its objects.
    fn no_root(&self) -> Error {
        let root = self.root.display();
        Error::new(ErrorKind::Io, format!("there is no directory {root}: create it, or mount what belongs there"))
    }
}

/// Takes away what somebody wrote of an object that is removed, and was killed before it was whole; true if there was any.
/// Nobody else ever would: no listing shows it. Who writes it still, though he was given up, fails.
fn forget_unfinished(place: &Path) -> bool {
    let (Some(parent), Some(name)) = (place.parent(), place.file_name().and_then(OsStr::to_str)) else { return false };
    let Ok(entries) = fs::read_dir(parent) else { return false };
    let is_of_it = |found: &str| {
        let rest = found.strip_prefix(TEMPORARY).and_then(|rest| rest.split_once('-'));
        rest.is_some_and(|(_, of)| of == name)
    };
    let mine = entries.flatten().filter(|entry| entry.file_name().to_str().is_some_and(is_of_it));
    mine.filter(|entry| fs::remove_file(entry.path()).is_ok()).count() > 0
}

fn below(place: &Path) -> Error {
    let parent = place.parent().unwrap_or(place).display();
    let message = format!("a part of {parent} is an object; in a directory no key is part of another");
    Error::new(ErrorKind::Invalid, message)
}

/// Can `key`, or a key below it if it ends with a slash, begin with `prefix` and come after `after`?
fn may_hold(key: &str, prefix: &str, after: Option<&str>) -> bool {
    let directory = key.ends_with('/');
    let begins = key.starts_with(prefix) || (directory && prefix.starts_with(key));
    let comes = after.is_none_or(|after| key > after || (directory && after.starts_with(key)));
    begins && comes
}

impl Store for Dir {
    fn put(&self, key: &str, parts: Vec<Bytes>) -> BoxFuture<Result<()>> {
        let key = key.to_owned();
        self.run(move |this| this.write(&key, &parts))
    }

    fn get(&self, key: &str, range: Option<Range<u64>>) -> BoxFuture<Result<Bytes>> {
        let key = key.to_owned();
        self.run(move |this| this.read(&key, range))
    }

    fn size(&self, key: &str) -> BoxFuture<Result<u64>> {
        let key = key.to_owned();
        self.run(move |this| {
            let (_, size) = this.open(&this.place(&key)?)?;
            Ok(size)
        })
    }

    fn delete(&self, key: &str) -> BoxFuture<Result<()>> {
        let key = key.to_owned();
        self.run(move |this| this.remove(&key))
    }

    fn list(&self, prefix: &str, after: Option<&str>) -> BoxFuture<Result<Vec<Listed>>> {
        let (prefix, after) = (prefix.to_owned(), after.map(str::to_owned));
        self.run(move |this| this.find(&prefix, after.as_deref()))
    }
}
