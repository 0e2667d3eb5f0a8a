//! Opening and closing files, what of them is put into the kernel's pages at that, and what open file descriptions are told.

use braid_base::attr::Attr;
use braid_base::ids::Ino;
use bytes::Bytes;

use super::{Answer, Calls, failed};
use crate::errno::of_inode;
use crate::wire::request::Fh;

impl Calls {
    /// Opens; the flag says whether the kernel may keep the pages it has. What a program will read of a small file is put
    /// into them if it is at hand: a request less.
    pub(crate) async fn open(&self, ino: Ino, flags: i32) -> Answer<(Attr, bool)> {
        self.handles.opens(ino).await;
        let access = flags & libc::O_ACCMODE;
        // Whoever brings nothing back asks where the bytes are when they are read.
        let reads = access != libc::O_WRONLY && self.departures.is_none();
        let opened = if reads { self.fs.open_to_read(ino).await } else { self.fs.open(ino, false).await };
        let attr = opened.map_err(|e| {
            self.handles.closed(ino);
            of_inode(&e)
        })?;
        let keep = self.remembered.opened(&attr);
        self.saw(&attr);
        let fills =
            !keep && reads && access == libc::O_RDONLY && flags & libc::O_DIRECT == 0 && self.throttle.is_none();
        if fills && self.fill(ino, attr.size) {
            self.after_read(ino).await;
            return Ok((attr, true));
        }
        Ok((attr, keep))
    }

    /// Puts the pages of a small file that is being opened into the kernel, if they are at hand and nobody else has it
    /// open. True if they are there, and what they will be changed to would be told from now on.
    fn fill(&self, ino: Ino, size: u64) -> bool {
        let (Some(kernel), Some(bytes)) = (self.kernel.get(), self.fs.at_hand(ino)) else { return false };
        let is_whole = bytes.len() as u64 == size;
        let fill = || {
            // Looked at once more: a notice to forget them may have come before they were there.
            let is_same = |now: Bytes| (now.as_ptr(), now.len()) == (bytes.as_ptr(), bytes.len());
            kernel.store(self.numbers.show(ino), &bytes).is_ok() && self.fs.at_hand(ino).is_some_and(is_same)
        };
        let is_there = is_whole && self.handles.alone(ino, fill).unwrap_or(false);
        if is_there {
            self.fs.was_at_hand(ino);
            self.reads.note(ino, size, || self.now_ms());
        }
        is_there
    }

    pub(crate) async fn close(&self, ino: Ino, fh: Fh) -> Answer<()> {
        self.handles.closed(ino);
        self.handles.undescribe(fh);
        self.fs.close(ino).await.map_err(|e| of_inode(&e))
    }

    /// The number of an open file description of `ino` that is about to be given out.
    pub(crate) fn describe(&self, ino: Ino) -> Fh {
        let (number, since) = self.fs.describe(ino);
        self.handles.told(Fh(number), since);
        Fh(number)
    }

    /// It is gone.
    pub(crate) fn undescribe(&self, fh: Fh) {
        self.handles.undescribe(fh);
    }

    /// What became of earlier writes, for close to tell this description.
    pub(crate) fn written_well(&self, ino: Ino, fh: Fh) -> Answer<()> {
        let (told, well) = self.fs.written_well(ino, self.handles.since(fh));
        self.handles.told(fh, told);
        well.map_err(|e| failed("write", ino, &e))
    }

    pub(crate) async fn fsync(&self, ino: Ino, fh: Fh) -> Answer<()> {
        let (told, well) = self.fs.fsync_since(ino, self.handles.since(fh)).await;
        self.handles.told(fh, told);
        well.map_err(|e| failed("fsync", ino, &e))
    }
}
