//! The one table from error kinds to errno.

use braid_base::{Error, ErrorKind};

use crate::flood::Flood;
use crate::wire::errno::Errno;

/// Of all mounts of this process.
static FAILURES: Flood = Flood::new();

/// What a program sees of an error about a name.
pub(crate) fn of(error: &Error) -> Errno {
    of_any(error)
}

/// What a program sees of an error about an inode that the kernel knows already. If it is gone, `ESTALE` makes the
/// kernel look its path up once more: another mount may have put a new file under the name.
pub(crate) fn of_inode(error: &Error) -> Errno {
    match error.kind() {
        ErrorKind::NotFound => Errno::ESTALE,
        _ => of_any(error),
    }
}

fn of_any(error: &Error) -> Errno {
    let errno = of_kind(error.kind());
    if errno == Errno::EIO {
        say(error);
    }
    errno
}

/// The program sees no more than EIO: the log says why.
fn say(error: &Error) {
    let now_s = rustix::time::clock_gettime(rustix::time::ClockId::MonotonicCoarse).tv_sec;
    match FAILURES.may_write(now_s.unsigned_abs()) {
        None => {}
        Some(0) => tracing::error!("a call fails with EIO: {error}"),
        Some(left_out) => {
            tracing::error!("a call fails with EIO: {error} (and {left_out} before it, which were not written here)");
        }
    }
}

fn of_kind(kind: ErrorKind) -> Errno {
    match kind {
        ErrorKind::NotFound => Errno::ENOENT,
        ErrorKind::Exists => Errno::EEXIST,
        ErrorKind::NotDirectory => Errno::ENOTDIR,
        ErrorKind::IsDirectory => Errno::EISDIR,
        ErrorKind::NotEmpty => Errno::ENOTEMPTY,
        ErrorKind::Invalid => Errno::EINVAL,
        ErrorKind::NotPermitted => Errno::EPERM,
        ErrorKind::AccessDenied => Errno::EACCES,
        ErrorKind::NoSpace => Errno::ENOSPC,
        ErrorKind::Quota => Errno::EDQUOT,
        ErrorKind::CrossDevice => Errno::EXDEV,
        ErrorKind::TooManyLinks => Errno::EMLINK,
        ErrorKind::NameTooLong => Errno::ENAMETOOLONG,
        ErrorKind::NoAttribute => Errno::ENODATA,
        ErrorKind::Range => Errno::ERANGE,
        ErrorKind::FileTooBig => Errno::EFBIG,
        ErrorKind::WouldBlock => Errno::EAGAIN,
        ErrorKind::Deadlock => Errno::EDEADLK,
        ErrorKind::Stale => Errno::ESTALE,
        ErrorKind::Unsupported => Errno::EOPNOTSUPP,
        ErrorKind::ReadOnly => Errno::EROFS,
        // The session repeats `Busy`, `TimedOut`, `Stopped`, `Moved`, `Held` and `SessionLost` itself; what is left of them after its deadline is
        // the same to a program as a broken device. `Refused` is for administrators and never answers a file call.
        ErrorKind::Io
        | ErrorKind::Corrupt
        | ErrorKind::Busy
        | ErrorKind::TimedOut
        | ErrorKind::Stopped
        | ErrorKind::Moved
        | ErrorKind::Held
        | ErrorKind::SessionLost
        | ErrorKind::Refused => Errno::EIO,
    }
}

#[cfg(test)]
mod tests {
    use super::{of, of_inode};
    use braid_base::{Error, ErrorKind};

    #[test]
    fn a_vanished_inode_is_stale_and_a_vanished_name_is_not() {
        let gone = Error::from(ErrorKind::NotFound);
        assert_eq!((of(&gone).code(), of_inode(&gone).code()), (libc::ENOENT, libc::ESTALE));
        let full = Error::from(ErrorKind::NoSpace);
        assert_eq!((of(&full).code(), of_inode(&full).code()), (libc::ENOSPC, libc::ENOSPC));
    }
}
