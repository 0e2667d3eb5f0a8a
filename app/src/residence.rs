//! Where files on mounts of Braid are, and asking for them to be elsewhere: through the attributes that the FUSE door makes
//! up (`braid.location`, `braid.recall`, `braid.tier`).

use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::{fs, io};

use braid_base::attr::Time;
use rustix::fs::XattrFlags;
use rustix::io::Errno;
use serde::{Deserialize, Serialize};

/// Longest value of such an attribute, bytes.
const VALUE_MAX: usize = 1024;

/// Where the bytes of a file are, as `braid.location` has it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
pub struct Location {
    /// `file`, `directory`, `symlink` and so on.
    pub file_type: String,
    /// Its size, bytes; 0 for what is no file.
    pub file_size: u64,
    /// Bytes on flash only.
    pub ssd_write_cache_bytes: u64,
    /// Bytes on flash and in an object.
    pub ssd_read_cache_bytes: u64,
    /// Bytes in an object, alone or beside flash.
    pub object_storage_bytes: u64,
}

impl Location {
    /// Bytes that are in objects only.
    pub fn far_bytes(&self) -> u64 {
        self.object_storage_bytes.saturating_sub(self.ssd_read_cache_bytes)
    }

    /// Bytes that take room on flash.
    pub fn flash_bytes(&self) -> u64 {
        self.ssd_write_cache_bytes.saturating_add(self.ssd_read_cache_bytes)
    }
}

/// From when the bytes of a file count, as `braid.ages` has it: seconds since 1970 by the clock of its partition, of the oldest
/// and the newest part.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
pub struct Ages {
    /// When it was looked.
    pub now_s: u64,
    /// Bytes on flash only that do not count yet.
    pub unmerged_bytes: u64,
    /// From when those on flash only count that do.
    pub write_cache_since_s: Option<(u64, u64)>,
    /// From when those on flash and in an object count, reads not looked at.
    pub read_cache_since_s: Option<(u64, u64)>,
    /// When it was last read, as far as its partition has heard.
    pub last_read_s: Option<u64>,
    /// Bytes in objects only that cannot be read.
    pub lost_bytes: u64,
    /// Bytes in objects of stores that are being detached.
    pub leaving_bytes: u64,
}

/// Where bytes should be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Goal {
    /// On flash, perhaps in objects as well.
    Flash,
    /// In objects only.
    Objects,
}

/// Where `path` is; a link is not followed. Errors: why that cannot be said, without the path.
pub fn location(path: &Path) -> Result<Location, String> {
    let text = read(path, "braid.location")?;
    serde_json::from_slice(&text).map_err(|error| format!("the mount answered something else than expected: {error}"))
}

/// Whether a read of bytes `[off, off+len)` of `path` waits for an object store.
pub fn is_far(path: &Path, (off, len): (u64, u64)) -> Result<bool, String> {
    Ok(read(path, &format!("braid.recall.{off}.{len}"))? == b"yes")
}

/// Up to which byte `path` was last read through its mount, and how many milliseconds ago, of the reads that the mount has
/// noted since it was asked this.
pub fn last_read(path: &Path) -> Result<Option<(u64, u64)>, String> {
    let text = read(path, "braid.read")?;
    let text = String::from_utf8_lossy(&text);
    let number = |word: &str| word.parse().ok();
    Ok(text.split_once(' ').and_then(|(end, ago_ms)| Some((number(end)?, number(ago_ms)?))))
}

/// When `path` was last read, by whomever, as far as its access time tells.
pub fn accessed(path: &Path) -> Option<Time> {
    let found = fs::symlink_metadata(path).ok()?;
    Some(Time { sec: found.atime(), nsec: u32::try_from(found.atime_nsec()).unwrap_or(0) })
}

/// From when the bytes of `path` count.
pub fn ages(path: &Path) -> Result<Ages, String> {
    let text = read(path, "braid.ages")?;
    serde_json::from_slice(&text).map_err(|error| format!("the mount answered something else than expected: {error}"))
}

/// Asks that `path`, or bytes `[off, off+len)` of it, come to where they should be.
pub fn ask(path: &Path, goal: Goal, part: Option<(u64, u64)>) -> Result<(), String> {
    let verb = match goal {
        Goal::Flash => "fetch",
        Goal::Objects => "release",
    };
    let value = part.map_or(verb.to_owned(), |(off, len)| format!("{verb} {off} {len}"));
    rustix::fs::lsetxattr(path, "braid.tier", value.as_bytes(), XattrFlags::empty()).map_err(|error| match error {
        Errno::OPNOTSUPP => "its file system has no object store: attach one with `braid fs tier s3 attach`".to_owned(),
        Errno::ROFS => "it is mounted read-only: ask on a mount that is not".to_owned(),
        Errno::FBIG => "what lies behind its first 256 TiB stays on flash: no object can name it".to_owned(),
        Errno::ACCESS | Errno::PERM => "to move a file needs the permission to write it".to_owned(),
        other => io::Error::from(other).to_string(),
    })
}

fn read(path: &Path, name: &str) -> Result<Vec<u8>, String> {
    let mut value = vec![0; VALUE_MAX];
    match rustix::fs::lgetxattr(path, name, &mut value) {
        Ok(len) => {
            value.truncate(len);
            Ok(value)
        }
        Err(Errno::NODATA | Errno::OPNOTSUPP) => {
            Err("it is not on a file system of Braid: name a path on a mount of one".to_owned())
        }
        Err(error) => Err(io::Error::from(error).to_string()),
    }
}

#[cfg(test)]
mod tests {
    use super::{Goal, Location, ask, location};

    #[test]
    fn what_is_where() {
        let text = r#"{"file_type":"file","file_size":9,"ssd_write_cache_bytes":1,"ssd_read_cache_bytes":2,"object_storage_bytes":6}"#;
        let found: Location = serde_json::from_str(text).expect("as the door writes it");
        assert_eq!((found.flash_bytes(), found.far_bytes()), (3, 4));
    }

    #[test]
    fn elsewhere_there_is_nothing_to_say() {
        let dir = tempfile::tempdir().expect("dir");
        let error = location(dir.path()).expect_err("a local file system");
        assert!(error.contains("not on a file system of Braid"), "{error}");
        ask(dir.path(), Goal::Flash, None).expect_err("nothing to ask there");
        let error = location(&dir.path().join("none")).expect_err("nothing there");
        assert!(error.contains("No such file"), "{error}");
    }
}
