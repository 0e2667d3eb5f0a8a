//! What the standard library does not say to a socket.

use std::io;
use std::mem::size_of;
use std::os::fd::{AsFd, AsRawFd};

/// The socket counts as readable from `bytes` received bytes on, at least 1, and when it has ended: whoever waits for a
/// long message is woken once instead of for each segment. The kernel takes as much for enough as it has room for.
pub fn set_receive_low_water(socket: impl AsFd, bytes: usize) -> io::Result<()> {
    let value = libc::c_int::try_from(bytes).unwrap_or(libc::c_int::MAX);
    let len = size_of::<libc::c_int>() as libc::socklen_t;
    let fd = socket.as_fd().as_raw_fd();
    // SAFETY: the value outlives the call, and its length is the one said.
    let done = unsafe { libc::setsockopt(fd, libc::SOL_SOCKET, libc::SO_RCVLOWAT, (&raw const value).cast(), len) };
    if done == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}
