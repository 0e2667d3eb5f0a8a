//! Ranges of content: reserve, punch, find holes, copy.

use braid_base::attr::Attr;
use braid_base::ids::Ino;
use braid_base::limits::{CHUNK, LAYOUT_BYTES_MAX, WRITE_MAX};
use braid_base::msg::fs::{FallocMode, Op};
use braid_base::{Error, ErrorKind, Result};

use super::{Fs, check_range};

/// What to look for from an offset on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Seek {
    /// The first byte that is not in a hole.
    Data,
    /// The first byte of a hole; the end of file counts as one.
    Hole,
}

/// Range whose layout a search for a hole asks for at a time, bytes: it may have thousands of extents.
const SEEK_STEP: u64 = 64 * CHUNK;
const _: () = assert!(SEEK_STEP <= LAYOUT_BYTES_MAX);
/// Most bytes that one `copy_range` copies; more is answered short, so that a caller can be interrupted.
const COPY_MAX: u64 = 64 << 20;

impl Fs {
    /// Reserves, punches or zeroes `[off, off+len)`. Errors: `Invalid` (empty range), `FileTooBig`, `NoSpace`.
    pub async fn fallocate(&self, ino: Ino, off: u64, len: u64, mode: FallocMode, keep_size: bool) -> Result<Attr> {
        if len == 0 {
            return Err(Error::new(ErrorKind::Invalid, "the range must not be empty"));
        }
        check_range(off, len)?;
        self.settle(ino).await?;
        let body = Op::Fallocate { ino, off, len, mode, keep_size };
        self.change_range("fallocate", ino, body, off, len).await
    }

    /// The first offset from `off` on that is data or hole; `None` if there is none: `off` is at or beyond the end
    /// of file, or only a hole follows and data is sought.
    pub async fn seek(&self, ino: Ino, off: u64, what: Seek) -> Result<Option<u64>> {
        self.settle(ino).await?;
        match what {
            Seek::Data => self.seek_data(ino, off).await,
            Seek::Hole => self.seek_hole(ino, off).await,
        }
    }

    async fn seek_data(&self, ino: Ino, off: u64) -> Result<Option<u64>> {
        let layout = self.ask_layout(Op::NextData { ino, off }).await?;
        Ok(layout.extents.first().map(|(from, _)| (*from).max(off)).filter(|from| *from < layout.size))
    }

    async fn seek_hole(&self, ino: Ino, off: u64) -> Result<Option<u64>> {
        let mut at = off;
        loop {
            let layout = self.layout(ino, at, SEEK_STEP).await?;
            if at >= layout.size {
                // Data up to the very end: the hole begins there. An offset beyond it has none.
                return Ok((at > off).then_some(layout.size));
            }
            let end = at.saturating_add(SEEK_STEP).min(layout.size);
            let runs = layout.extents.iter().map(|(from, extent)| (*from, from + u64::from(extent.len)));
            let reach = runs.fold(at, |reach, (from, to)| if from <= reach { reach.max(to) } else { reach });
            if reach < end || end == layout.size {
                return Ok(Some(reach.min(layout.size)));
            }
            at = end;
        }
    }

    /// Copies `[from_off, from_off+len)` of `from` to `to_off` of `to`; how many bytes, fewer at the end of `from`
    /// or after 64 MiB. Errors: `Invalid` (overlapping ranges of one file), and those of read and write.
    pub async fn copy_range(
        &self,
        from: Ino,
        from_off: u64,
        to: Ino,
        to_off: u64,
        len: u64,
        kill: bool,
    ) -> Result<u64> {
        let len = len.min(COPY_MAX);
        check_range(to_off, 0)?;
        if from == to && from_off < to_off.saturating_add(len) && to_off < from_off.saturating_add(len) {
            return Err(Error::new(ErrorKind::Invalid, "source and target of a copy within a file overlap"));
        }
        let mut copied = 0;
        while copied < len {
            let data = match self.read(from, from_off + copied, (len - copied).min(WRITE_MAX as u64)).await {
                Ok(data) if data.is_empty() => break,
                Ok(data) => data,
                Err(error) => return if copied > 0 { Ok(copied) } else { Err(error) },
            };
            match self.write(to, to_off + copied, data, false, kill).await {
                Ok(done) => copied += done.len,
                Err(error) => return if copied > 0 { Ok(copied) } else { Err(error) },
            }
        }
        Ok(copied)
    }
}
