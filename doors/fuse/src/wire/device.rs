//! The device file: one more way in for each reader, and how a task waits for it.

use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};

use rustix::ioctl::{Setter, ioctl, opcode};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

/// `FUSE_DEV_IOC_CLONE`: its argument points to the number of the file whose mount shall be served.
const CLONE: rustix::ioctl::Opcode = opcode::read::<u32>(229, 0);

/// Another file for the mount of `device`, with a queue of its own for the requests that are read from it; their
/// replies must go back to the same file.
pub(crate) fn clone(device: BorrowedFd<'_>) -> io::Result<OwnedFd> {
    let new = OwnedFd::from(File::options().read(true).write(true).open("/dev/fuse")?);
    let old = u32::try_from(device.as_raw_fd()).map_err(io::Error::other)?;
    // SAFETY: the kernel reads a `u32` from the pointer that comes with this number and changes no memory of ours.
    unsafe { ioctl(&new, Setter::<CLONE, u32>::new(old)) }?;
    Ok(new)
}

/// A request is there, or the connection is closed: the kernel calls that an error.
pub(crate) const READY: Interest = Interest::READABLE.add(Interest::ERROR);

/// Tells a task of the present runtime when `device` is [`READY`].
pub(crate) fn watch(device: &OwnedFd) -> io::Result<AsyncFd<OwnedFd>> {
    let again = device.try_clone()?;
    // SAFETY: the descriptor is owned by what watches it, which is all that closes it.
    Ok(unsafe { AsyncFd::register_with_interest(again, READY) }?)
}
