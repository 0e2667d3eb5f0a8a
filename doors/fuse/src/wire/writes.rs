//! Several short writes with one call of the kernel.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};

use io_uring::{IoUring, opcode, types};

/// Most writes that go together.
pub(crate) const WRITES_MAX: usize = 16;

/// A ring for writes that the kernel carries out at once, as those to its FUSE device are.
pub(crate) struct Writes {
    ring: IoUring,
}

impl Writes {
    /// Errors: the process may not use io_uring, or the kernel is too old for it.
    pub(crate) fn new() -> io::Result<Self> {
        let mut ring = IoUring::new(WRITES_MAX as u32)?;
        if !ring.params().is_feature_rw_cur_pos() {
            return Err(io::Error::new(io::ErrorKind::Unsupported, "the kernel's io_uring is too old (5.6 needed)"));
        }
        // A filter may allow rings and forbid their use.
        // SAFETY: it points to nothing.
        unsafe { ring.submission().push(&opcode::Nop::new().build()) }.expect("the ring is empty");
        ring.submit_and_wait(1)?;
        ring.completion().for_each(drop);
        Ok(Self { ring })
    }

    /// Writes each of `pieces`, at most [`WRITES_MAX`], to its file, and tells `ended` for each how that went.
    pub(crate) fn write(
        &mut self,
        pieces: &[(BorrowedFd<'_>, &[u8])],
        mut ended: impl FnMut(usize, io::Result<usize>),
    ) {
        assert!(pieces.len() <= WRITES_MAX, "{} pieces at a time", pieces.len());
        for (at, (file, bytes)) in pieces.iter().enumerate() {
            let entry = opcode::Write::new(types::Fd(file.as_raw_fd()), bytes.as_ptr(), bytes.len() as u32).build();
            // SAFETY: the bytes are borrowed until this function returns, and below it waits for the end of each write.
            let pushed = unsafe { self.ring.submission().push(&entry.user_data(at as u64)) };
            pushed.expect("the ring is as large as the most pieces, and empty");
        }
        let mut left = pieces.len();
        while left > 0 {
            match self.ring.submit_and_wait(left) {
                Err(e)
                    if !matches!(e.raw_os_error(), Some(libc::EINTR | libc::EBUSY | libc::EAGAIN | libc::ENOMEM)) =>
                {
                    // The bytes must not be let go while the kernel may look at them. That it took some before says `new`.
                    tracing::error!(error = %e, "io_uring does not take what is to be written");
                    std::process::abort();
                }
                _ => {}
            }
            for entry in self.ring.completion() {
                left -= 1;
                let result = entry.result();
                let result = usize::try_from(result).map_err(|_| io::Error::from_raw_os_error(-result));
                ended(entry.user_data() as usize, result);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsFd;
    use std::os::unix::net::UnixDatagram;

    use super::{WRITES_MAX, Writes};

    #[test]
    fn each_write_arrives_and_each_failure_is_told() {
        let mut writes = Writes::new().expect("io_uring");
        let (near, far) = UnixDatagram::pair().expect("sockets");
        let (lone, gone) = UnixDatagram::pair().expect("sockets");
        drop(gone);
        let texts: Vec<Vec<u8>> = (0..WRITES_MAX).map(|number| vec![number as u8; number + 1]).collect();
        for _ in 0..3 {
            let file = |at: usize| if at == 5 { lone.as_fd() } else { near.as_fd() };
            let pieces: Vec<_> = texts.iter().enumerate().map(|(at, text)| (file(at), &text[..])).collect();
            let mut told = vec![None; WRITES_MAX];
            writes.write(&pieces, |at, result| told[at] = Some(result.map_err(|error| error.raw_os_error())));
            for (at, told) in told.into_iter().enumerate() {
                if at == 5 {
                    assert!(matches!(told, Some(Err(Some(libc::ECONNREFUSED | libc::ENOTCONN)))), "{told:?}");
                    continue;
                }
                assert_eq!(told, Some(Ok(at + 1)));
                let mut bytes = [0; 64];
                let len = far.recv(&mut bytes).expect("it arrived");
                assert_eq!(&bytes[..len], &texts[at]);
            }
        }
    }
}
