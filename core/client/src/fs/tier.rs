//! Where the bytes of a file are: on flash, in an object store, or both; and where they should be.

use braid_base::Result;
use braid_base::ids::{Chunk, Ino};
use braid_base::limits::{CHUNK, LAYOUT_BYTES_MAX, TIER_CHUNKS_MAX};
use braid_base::msg::fs::{Op, Reply, Residency, TierWant};
use braid_base::record::Place;

use super::{Fs, Seek};
use crate::session::unexpected;

/// Bytes of a file that one request is about: a partition looks at so many chunks for one.
const STEP: u64 = TIER_CHUNKS_MAX as u64 * CHUNK;

impl Fs {
    /// Where all bytes of a file are, in sums; `next` is none. What this client holds back of it is written first and
    /// counts as flash only. Errors: `NotFound`, `IsDirectory`.
    pub async fn residency(&self, ino: Ino) -> Result<Residency> {
        self.told(ino).await?;
        let (mut sums, mut from) = (Residency::default(), Some(Chunk(0)));
        while let Some(chunk) = from {
            let page = self.residency_from(ino, chunk).await?;
            sums.write_cache += page.write_cache;
            sums.read_cache += page.read_cache;
            sums.object += page.object;
            sums.ages = sums.ages.with(page.ages);
            // A page that goes back would never end.
            from = page.next.filter(|next| *next > chunk);
        }
        Ok(sums)
    }

    async fn residency_from(&self, ino: Ino, from: Chunk) -> Result<Residency> {
        match self.ask(Op::Residency { ino, from }).await? {
            Reply::Residency(page) => Ok(page),
            other => Err(unexpected("residency", &other)),
        }
    }

    /// How many bytes of `[off, off+len)` are in objects only: so many a read has to wait for. Nothing comes back for it.
    /// Errors: `NotFound`, `IsDirectory`.
    pub async fn far_bytes(&self, ino: Ino, off: u64, len: u64) -> Result<u64> {
        self.told(ino).await?;
        let (mut far, mut at, mut end) = (0, off, off.saturating_add(len));
        while let Some(from) = self.data_from(ino, at, off).await?.filter(|from| *from < end) {
            let len = LAYOUT_BYTES_MAX.min(end - from);
            let layout = self.layout(ino, from, len).await?;
            let in_objects = layout.extents.iter().filter(|(_, extent)| matches!(extent.place, Place::Object(_)));
            far += in_objects.map(|(_, extent)| u64::from(extent.len)).sum::<u64>();
            (at, end) = (from + len, end.min(layout.size));
        }
        Ok(far)
    }

    /// Asks that the bytes `[off, off+len)` of a file come to flash, or leave it, before others; what this client holds
    /// back of it is written first. Returns before that has happened: [`Self::residency`] tells. A partition keeps a bounded
    /// number of such requests, in memory: ask again until it is so. Errors: `NotFound` (also: the file system has no object
    /// store), `IsDirectory`.
    pub async fn tier(&self, ino: Ino, off: u64, len: u64, want: TierWant) -> Result<()> {
        self.told(ino).await?;
        let end = off.saturating_add(len).min(self.getattr(ino).await?.size);
        self.tier_step(ino, off, STEP.min(len), want).await?;
        let mut at = off.saturating_add(STEP);
        while at < end {
            let Some(from) = self.data_from(ino, at, off).await?.filter(|from| *from < end) else { break };
            self.tier_step(ino, from, STEP.min(end - from), want).await?;
            at = from.saturating_add(STEP);
        }
        Ok(())
    }

    async fn tier_step(&self, ino: Ino, off: u64, len: u64, want: TierWant) -> Result<()> {
        self.ask_done("tier", Op::Tier { ino, off, len, want }).await
    }

    /// Where data begins at or after `at`, if that is not where everything begins: a hole may be of any length.
    async fn data_from(&self, ino: Ino, at: u64, first: u64) -> Result<Option<u64>> {
        if at == first { Ok(Some(at)) } else { self.seek(ino, at, Seek::Data).await }
    }

    /// The partition has heard of the file and of all that was written to it. What went wrong with that is for `fsync` to
    /// tell.
    async fn told(&self, ino: Ino) -> Result<()> {
        self.names_kept(ino).await?;
        self.settle(ino).await
    }
}
