//! The capacity tier of the model: staged bytes become objects, and come back, as soon as somebody asks.

use braid_base::ids::{BlobId, Chunk, Index, Ino, PartitionId};
use braid_base::limits::CHUNK;
use braid_base::msg::fs::{Reply, Residency, TierWant};
use braid_base::record::{ObjectAt, Place};
use braid_base::{ErrorKind, Result};
use bytes::Bytes;

use super::server::State;

/// What is asked of the tier.
#[derive(Default)]
pub struct Tier {
    /// The file system has an object store.
    pub has_store: bool,
    /// What was asked so far.
    pub asked: Vec<(Ino, u64, u64, TierWant)>,
}

/// Chunks that one answer about the residency looks at: few, so that there are several answers.
const PAGE: u32 = 3;

impl State {
    pub fn residency(&mut self, ino: Ino, from: Chunk) -> Result<Residency> {
        let node = self.node(ino)?;
        let chunks = u32::try_from(node.attr.size.div_ceil(CHUNK)).map_err(|_| ErrorKind::Invalid)?;
        let end = (from.0 + PAGE).min(chunks);
        let mut sums = Residency { next: (end < chunks).then_some(Chunk(end)), ..Residency::default() };
        for (at, extent) in &node.extents {
            if !(u64::from(from.0)..u64::from(end)).contains(&(at / CHUNK)) {
                continue;
            }
            let bytes = u64::from(extent.len);
            match (extent.place, extent.place.object()) {
                (Place::Object(_), _) => sums.object += bytes,
                (_, None) => sums.write_cache += bytes,
                (_, Some(_)) => (sums.read_cache, sums.object) = (sums.read_cache + bytes, sums.object + bytes),
            }
        }
        Ok(sums)
    }

    /// Staged bytes whose extents begin in the range move at once. The payload of an entry is its object.
    pub fn want(&mut self, ino: Ino, off: u64, len: u64, want: TierWant) -> Result<Reply> {
        if !self.tier.has_store {
            return Err(ErrorKind::NotFound.into());
        }
        self.tier.asked.push((ino, off, len, want));
        for (at, extent) in &mut self.node(ino)?.extents {
            if !(off..off.saturating_add(len)).contains(at) {
                continue;
            }
            extent.place = match (want, extent.place) {
                (TierWant::Object, Place::Stage { at, poff }) => {
                    Place::Object(ObjectAt { blob: BlobId::new(PartitionId(0), at.0), off: poff })
                }
                (TierWant::Flash, Place::Object(at)) => Place::Stage { at: Index(at.blob.serial()), poff: at.off },
                (_, place) => place,
            };
        }
        Ok(Reply::Done)
    }

    /// Bytes of an object that `want` made.
    pub fn read_released(&mut self, at: ObjectAt, len: u32) -> Result<Bytes> {
        self.stage.read(Index(at.blob.serial()), at.off, len)
    }
}
