//! One I/O with its buffers, as both engines carry it out: piece by piece until it is whole.

use std::io::IoSlice;
use std::sync::Arc;

use braid_base::{Error, ErrorKind, Result};
use bytes::Bytes;
use rustix::io::Errno;

use super::{IoDone, IoOp, Token};
use crate::buf::{self, ALIGN, AlignedBuf};
use crate::file::File;

/// Pieces handed to one system call (UIO_MAXIOV); the rest follows in the next.
pub(super) const PIECES_MAX: usize = 1024;

pub(super) struct Job {
    pub(super) token: Token,
    pub(super) file: Arc<File>,
    pub(super) work: Work,
}

pub(super) enum Work {
    /// Bytes `skip..skip+want` of the `span` bytes at `start` were asked for; the rest is alignment.
    Read {
        buf: AlignedBuf,
        start: u64,
        span: usize,
        skip: usize,
        want: usize,
    },
    /// `done` of `total` bytes are written.
    Write {
        data: Vec<Bytes>,
        off: u64,
        total: usize,
        done: usize,
        durable: bool,
    },
    Sync,
    Discard {
        off: u64,
        len: u64,
    },
}

impl Job {
    pub(super) fn new(token: Token, file: Arc<File>, op: IoOp) -> Result<Self> {
        let work = match op {
            IoOp::Read { off, len, .. } => read(&file, off, len),
            IoOp::Write { off, data, durable, .. } => write(&file, off, data, durable)?,
            IoOp::Sync { .. } => Work::Sync,
            IoOp::Discard { off, len, .. } => Work::Discard { off, len },
        };
        Ok(Self { token, file, work })
    }

    /// Takes the result of one system call. `None`: go on with the rest.
    pub(super) fn advance(&mut self, result: std::result::Result<usize, Errno>) -> Option<Result<IoDone>> {
        let n = match result {
            Ok(n) => n,
            Err(Errno::INTR | Errno::AGAIN) => return None,
            // A hint that the device does not understand is as good as done.
            Err(Errno::OPNOTSUPP) if matches!(self.work, Work::Discard { .. }) => 0,
            Err(e) => return Some(Err(self.failed(e))),
        };
        match &mut self.work {
            Work::Read { buf, span, .. } => {
                // A direct read ends off the grid only at the end of the file.
                let end = n == 0 || buf.len() == *span || (self.file.is_direct() && !buf.len().is_multiple_of(ALIGN));
                end.then(|| Ok(self.finish_read()))
            }
            Work::Write { done, total, .. } => {
                if n == 0 && *done < *total {
                    return Some(Err(self.failed(Errno::NOSPC)));
                }
                *done += n;
                (*done >= *total).then_some(Ok(IoDone::Done))
            }
            Work::Sync | Work::Discard { .. } => Some(Ok(IoDone::Done)),
        }
    }

    /// Carries the whole job out with blocking calls.
    pub(super) fn run(&mut self) -> Result<IoDone> {
        loop {
            let result = match &mut self.work {
                Work::Read { buf, start, span, .. } => {
                    if buf.len() == *span {
                        Ok(0)
                    } else {
                        self.file.read_some(*start + buf.len() as u64, buf, *span)
                    }
                }
                Work::Write { data, off, done, total, durable } => {
                    let slices: Vec<IoSlice<'_>> = remaining(data, *done).map(IoSlice::new).collect();
                    if *done == *total { Ok(0) } else { self.file.write_some(*off + *done as u64, &slices, *durable) }
                }
                Work::Sync => rustix::fs::fdatasync(&self.file).map(|()| 0),
                Work::Discard { off, len } => self.file.discard(*off, *len).map(|()| 0),
            };
            if let Some(answer) = self.advance(result) {
                return answer;
            }
        }
    }

    fn finish_read(&mut self) -> IoDone {
        let Work::Read { buf, skip, want, .. } = &mut self.work else {
            unreachable!("only reads are finished as reads");
        };
        let bytes = std::mem::replace(buf, AlignedBuf::with_capacity(0)).into_bytes();
        let (from, to) = ((*skip).min(bytes.len()), (*skip + *want).min(bytes.len()));
        IoDone::Read(bytes.slice(from..to))
    }

    fn failed(&self, e: Errno) -> Error {
        match &self.work {
            Work::Read { start, span, .. } => self.file.failed("read", *start, *span, e),
            Work::Write { off, total, .. } => self.file.failed("write", *off, *total, e),
            Work::Sync => self.file.failed("sync", 0, 0, e),
            Work::Discard { off, len } => self.file.failed("discard", *off, usize::try_from(*len).unwrap_or(0), e),
        }
    }
}

/// The pieces of `data` behind the first `done` bytes, as many as one call takes.
pub(super) fn remaining(data: &[Bytes], done: usize) -> impl Iterator<Item = &[u8]> {
    let mut skip = done;
    data.iter()
        .filter_map(move |piece| {
            let cut = skip.min(piece.len());
            skip -= cut;
            let rest = &piece[cut..];
            (!rest.is_empty()).then_some(rest)
        })
        .take(PIECES_MAX)
}

fn read(file: &File, off: u64, len: usize) -> Work {
    let (start, span) = if file.is_direct() {
        let start = off - off % ALIGN as u64;
        (start, ((off - start) as usize + len).next_multiple_of(ALIGN))
    } else {
        (off, len)
    };
    Work::Read { buf: AlignedBuf::with_capacity(span), start, span, skip: (off - start) as usize, want: len }
}

fn write(file: &File, off: u64, mut data: Vec<Bytes>, durable: bool) -> Result<Work> {
    let total: usize = data.iter().map(Bytes::len).sum();
    if file.is_direct() {
        if !off.is_multiple_of(ALIGN as u64) || !total.is_multiple_of(ALIGN) {
            let words = format!("a direct write of {total} bytes at {off} is not on the grid of {ALIGN} bytes");
            return Err(Error::new(ErrorKind::Invalid, words));
        }
        let fits = |piece: &Bytes| buf::is_aligned(piece) && piece.len().is_multiple_of(ALIGN);
        if !data.iter().all(fits) {
            data = vec![buf::gather(&data)];
        }
    }
    Ok(Work::Write { data, off, total, done: 0, durable })
}
