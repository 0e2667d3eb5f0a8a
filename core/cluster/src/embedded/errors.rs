//! What redb says, in Braid's words: which file, what is wrong, what to do.

use std::io;
use std::path::Path;

use braid_base::{Error, ErrorKind};
use redb::DatabaseError;

/// Why `path` could not be opened.
pub(super) fn opening(path: &Path, error: DatabaseError) -> Error {
    match error {
        DatabaseError::DatabaseAlreadyOpen => Error::new(
            ErrorKind::Refused,
            format!("{} is in use by a running braid process: stop that one first (`braid down`)", path.display()),
        ),
        DatabaseError::UpgradeRequired(version) => Error::new(
            ErrorKind::Unsupported,
            format!(
                "{} has file format {version}, too old for this braid: open it with the braid that wrote it",
                path.display()
            ),
        ),
        DatabaseError::Storage(error) => storage(path, error),
        other => damaged(path, &other.to_string()),
    }
}

/// Why reading or writing `path` failed.
pub(super) fn storage(path: &Path, error: impl Into<redb::Error>) -> Error {
    match error.into() {
        redb::Error::Corrupted(why) => damaged(path, &why),
        redb::Error::Io(error) if error.kind() == io::ErrorKind::InvalidData => damaged(path, &error.to_string()),
        redb::Error::Io(error) if error.kind() == io::ErrorKind::UnexpectedEof => damaged(path, "it is cut short"),
        redb::Error::Io(error) if error.kind() == io::ErrorKind::StorageFull => Error::new(
            ErrorKind::NoSpace,
            format!("{}: the disk that holds it is full: free some space there", path.display()),
        ),
        redb::Error::Io(error) => Error::os(path.display(), &error),
        other => Error::new(ErrorKind::Io, format!("{}: {other}", path.display())),
    }
}

/// The error of a file whose content is not what was written.
pub(super) fn damaged(path: &Path, why: &str) -> Error {
    let path = path.display();
    let message = format!(
        "{path} is damaged ({why}): move it away (mv {path} {path}.damaged) and start once with `braid up DIR --recover`, \
         which rebuilds it from {path}.backup"
    );
    Error::new(ErrorKind::Corrupt, message)
}
