//! How full the file system is.

use std::sync::atomic::Ordering;

use braid_base::Result;
use braid_base::ids::PartitionId;
use braid_base::limits::UNBOUNDED_FREE_BYTES;
use braid_base::msg::fs::{Cred, Op, Reply};

use super::Fs;
use crate::join::join_bounded;
use crate::session::unexpected;

/// Size shown until someone tells: programs that look for space must not find none.
pub(super) const TOTAL_UNTIL_KNOWN: u64 = 1 << 40;
/// An inode costs about this many bytes of metadata with its name: what is free in bytes, over this, is what can
/// still be created.
const BYTES_PER_INODE: u64 = 4096;
/// Partitions asked at a time.
const PARTITIONS_AT_ONCE: usize = 32;

/// What `statfs` shows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Space {
    /// Bytes in all.
    pub total_bytes: u64,
    /// Bytes of file data held.
    pub used_bytes: u64,
    /// Inodes in use.
    pub used_inodes: u64,
}

impl Space {
    /// The same in a file system that may hold so many bytes; `u64::MAX`: there is no bound, and all the time as much is free.
    #[must_use]
    pub fn of(self, total_bytes: u64) -> Self {
        let unbounded = self.used_bytes.saturating_add(UNBOUNDED_FREE_BYTES);
        Self { total_bytes: if total_bytes == u64::MAX { unbounded } else { total_bytes }, ..self }
    }

    /// Bytes left.
    pub fn free_bytes(&self) -> u64 {
        self.total_bytes.saturating_sub(self.used_bytes)
    }

    /// Inodes that can still be made, as far as space goes.
    pub fn free_inodes(&self) -> u64 {
        self.free_bytes() / BYTES_PER_INODE
    }
}

impl Fs {
    /// How full the file system is; asks every partition.
    pub async fn statfs(&self) -> Result<Space> {
        self.names_settled().await?;
        let session = &self.0.session;
        let asked = (0..session.wire().partitions())
            .map(|p| session.call_at(PartitionId(p), self.0.fs, Cred::default(), Op::Statfs))
            .collect();
        let mut space = Space::default();
        let mut total = None;
        for answer in join_bounded(PARTITIONS_AT_ONCE, asked).await {
            match answer? {
                Reply::Usage { bytes, inodes, total_bytes } => {
                    // It changed a moment ago if they differ: not all have heard of it.
                    total = total.max(total_bytes);
                    space.used_bytes += bytes;
                    space.used_inodes += inodes;
                }
                other => return Err(unexpected("statfs", &other)),
            }
        }
        if let Some(total) = total {
            self.set_total_bytes(total);
        }
        Ok(space.of(self.0.total_bytes.load(Ordering::Relaxed)))
    }
}

#[cfg(test)]
mod tests {
    use super::{Space, UNBOUNDED_FREE_BYTES};

    #[test]
    fn without_a_bound_as_much_is_free_all_the_time() {
        let space = |used_bytes| Space { used_bytes, ..Space::default() };
        assert_eq!((space(7).of(10).free_bytes(), space(12).of(10).free_bytes()), (3, 0));
        for used in [0, 1 << 40, 1 << 60] {
            let shown = space(used).of(u64::MAX);
            assert_eq!((shown.free_bytes(), shown.total_bytes), (UNBOUNDED_FREE_BYTES, used + UNBOUNDED_FREE_BYTES));
        }
    }
}
