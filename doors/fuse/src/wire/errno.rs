//! Error numbers as the kernel takes them.

/// One of the `E...` numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Errno(i32);

macro_rules! errnos {
    ($($name:ident),* $(,)?) => {
        impl Errno {
            $(pub(crate) const $name: Self = Self(libc::$name);)*
        }
    };
}

errnos!(
    EACCES,
    EAGAIN,
    EDEADLK,
    EDQUOT,
    EEXIST,
    EFBIG,
    EINTR,
    EINVAL,
    EIO,
    EISDIR,
    EMLINK,
    ENAMETOOLONG,
    ENODATA,
    ENOENT,
    ENOSPC,
    ENOSYS,
    ENOTDIR,
    ENOTEMPTY,
    ENXIO,
    EOPNOTSUPP,
    EPERM,
    EPROTO,
    ERANGE,
    EROFS,
    ESTALE,
    EXDEV,
);

impl Errno {
    /// The number, positive.
    pub(crate) fn code(self) -> i32 {
        self.0
    }
}
