//! One coarse error: thirty kinds, each = what the caller should do; the message is for people.

use std::borrow::Cow;
use std::fmt;

/// What the caller should do. Every door owns its table from this to errno, HTTP status and so on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum ErrorKind {
    /// The name, inode, pack or object does not exist.
    NotFound = 1,
    /// The name exists already.
    Exists = 2,
    /// A directory was needed.
    NotDirectory = 3,
    /// Something else than a directory was needed.
    IsDirectory = 4,
    /// The directory still has entries.
    NotEmpty = 5,
    /// The request makes no sense (EINVAL): change it.
    Invalid = 6,
    /// Not the owner, or not privileged (EPERM).
    NotPermitted = 7,
    /// The mode or ACL forbids it (EACCES).
    AccessDenied = 8,
    /// No space left: free some.
    NoSpace = 9,
    /// Quota exceeded.
    Quota = 10,
    /// Rename or link over a border that it cannot cross (EXDEV).
    CrossDevice = 11,
    /// Link count at its limit (EMLINK).
    TooManyLinks = 12,
    /// Name or path too long.
    NameTooLong = 13,
    /// The extended attribute does not exist (ENODATA).
    NoAttribute = 14,
    /// The caller's buffer is too small, or a value too large (ERANGE).
    Range = 15,
    /// Beyond the largest file (EFBIG).
    FileTooBig = 16,
    /// A lock is held by someone else and the caller would not wait (EAGAIN).
    WouldBlock = 17,
    /// Waiting would deadlock (EDEADLK).
    Deadlock = 18,
    /// A conflicting operation is under way: the client repeats after a short while; never shown to programs.
    Busy = 19,
    /// The handle, layout, term or epoch is old: fetch anew (ESTALE when shown).
    Stale = 20,
    /// The device or the whole replica set failed (EIO).
    Io = 21,
    /// Bytes do not match their checksum, or a format is broken (EIO).
    Corrupt = 22,
    /// Not offered here (EOPNOTSUPP).
    Unsupported = 23,
    /// No answer in time (EIO when shown, the result is unknown).
    TimedOut = 24,
    /// Snapshot or read-only mount (EROFS).
    ReadOnly = 25,
    /// The part was shut down or poisoned by an earlier failure: restart it.
    Stopped = 26,
    /// Something in the way of the administrator: in use, wrong device, wrong configuration.
    Refused = 27,
    /// The request named an old term of the partition: its sender knows the new one by now and repeats it.
    Moved = 28,
    /// The partition has ended the client's session: open references, locks, leases and what was not written yet are
    /// gone there. Begin a new session.
    SessionLost = 29,
    /// There is no room now and there will be: ask again, for as long as this is the answer; never shown to programs.
    Held = 30,
}

/// Braid's error: a kind for the program, a sentence for the person (expected, found, what to do).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Error {
    kind: ErrorKind,
    message: Cow<'static, str>,
}

/// `Result` with Braid's error.
pub type Result<T> = std::result::Result<T, Error>;

impl Error {
    /// An error of `kind`; `message` says what was expected, what was found, what to do.
    pub fn new(kind: ErrorKind, message: impl Into<Cow<'static, str>>) -> Self {
        Self { kind, message: message.into() }
    }

    /// What the caller should do.
    pub fn kind(&self) -> ErrorKind {
        self.kind
    }

    /// The sentence for people.
    pub fn message(&self) -> &str {
        &self.message
    }

    /// The same kind with `context: ` before the sentence.
    pub fn within(self, context: impl fmt::Display) -> Self {
        Self { kind: self.kind, message: format!("{context}: {}", self.message).into() }
    }

    /// An operating-system error met while doing `what`.
    pub fn os(what: impl fmt::Display, error: &std::io::Error) -> Self {
        let kind = match error.kind() {
            std::io::ErrorKind::NotFound => ErrorKind::NotFound,
            std::io::ErrorKind::AlreadyExists => ErrorKind::Exists,
            std::io::ErrorKind::PermissionDenied => ErrorKind::AccessDenied,
            std::io::ErrorKind::StorageFull => ErrorKind::NoSpace,
            _ => ErrorKind::Io,
        };
        Self::new(kind, format!("{what}: {error}"))
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for Error {}

impl From<ErrorKind> for Error {
    fn from(kind: ErrorKind) -> Self {
        Self { kind, message: Cow::Borrowed(kind.words()) }
    }
}

impl ErrorKind {
    /// True if the same request may well succeed a little later: the session repeats it, and no partition takes it
    /// for the operation's answer.
    pub fn is_passing(self) -> bool {
        matches!(self, Self::Busy | Self::TimedOut | Self::Stopped | Self::Moved | Self::Held)
    }

    /// A short phrase for this kind.
    pub fn words(self) -> &'static str {
        match self {
            Self::NotFound => "no such name or object",
            Self::Exists => "it exists already",
            Self::NotDirectory => "not a directory",
            Self::IsDirectory => "is a directory",
            Self::NotEmpty => "directory not empty",
            Self::Invalid => "invalid request",
            Self::NotPermitted => "operation not permitted",
            Self::AccessDenied => "permission denied",
            Self::NoSpace => "no space left",
            Self::Quota => "quota exceeded",
            Self::CrossDevice => "crosses a border",
            Self::TooManyLinks => "too many links",
            Self::NameTooLong => "name too long",
            Self::NoAttribute => "no such attribute",
            Self::Range => "value or buffer of the wrong size",
            Self::FileTooBig => "file too large",
            Self::WouldBlock => "would block",
            Self::Deadlock => "would deadlock",
            Self::Busy => "busy, try again",
            Self::Stale => "stale, fetch anew",
            Self::Io => "input/output error",
            Self::Corrupt => "corrupt data",
            Self::Unsupported => "not supported",
            Self::TimedOut => "timed out",
            Self::ReadOnly => "read-only",
            Self::Stopped => "stopped",
            Self::Refused => "refused",
            Self::Moved => "served in another term, try again",
            Self::SessionLost => "the session has ended",
            Self::Held => "held back until there is room",
        }
    }
}
