//! How far the log of a partition has been applied: written in the same batch as the changes.

use braid_base::codec::{Reader, Writer};
use braid_base::ids::{Index, PartitionId, Term};
use braid_base::{Error, ErrorKind, Result, keys};

use super::Kv;
use super::batch::Batch;

/// 1: without `staged`.
const VERSION: u8 = 2;

/// The last applied entry of a partition. Index 0 means none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Applied {
    /// Its term.
    pub term: Term,
    /// Its index.
    pub index: Index,
    /// Fold of all batches up to it, see [`Batch::fold_hash`]; 0 after an import, until a record tells it.
    pub hash: u64,
    /// Nobody needs what lies in the log before this entry; from there on it also has the rows of staged slices, which
    /// are not in the engine ([`super::staged`]). 0: written by a release that put all rows into the engine.
    pub staged: Index,
}

impl Applied {
    /// What `kv` holds for `partition`; all zero if nothing was ever applied.
    pub fn read(kv: &dyn Kv, partition: PartitionId) -> Result<Self> {
        match kv.get(&Self::key(partition))? {
            None => Ok(Self::default()),
            Some(bytes) => Self::decode(&bytes).map_err(|e| e.within(format!("applied index of {partition}"))),
        }
    }

    /// The state after the next record, whose changes are `batch` and which may carry its state hash.
    pub fn after(&self, term: Term, index: Index, batch: &Batch, told: Option<u64>) -> Self {
        let unknown = self.hash == 0 && self.index > Index(0);
        let hash = if unknown { told.unwrap_or(0) } else { batch.fold_hash(self.hash) };
        Self { term, index, hash, staged: self.staged }
    }

    /// The state after entry (`term`, `index`) with the changes `batch`; adds itself to `batch`.
    pub fn advance(&self, partition: PartitionId, term: Term, index: Index, batch: &mut Batch) -> Self {
        assert_eq!(index, self.index.next(), "{partition}: entries are applied one after the other");
        let next = self.after(term, index, batch, None);
        next.put(partition, batch);
        next
    }

    /// Adds itself to `batch`, for several entries that are applied together.
    pub fn put(&self, partition: PartitionId, batch: &mut Batch) {
        let mut out = Writer::with_capacity(33);
        out.put_u8(VERSION).put_u64(self.term.0).put_u64(self.index.0).put_u64(self.hash).put_u64(self.staged.0);
        batch.put(Self::key(partition), out.finish());
    }

    /// Where it stands among the rows of the partition.
    pub fn key(partition: PartitionId) -> Vec<u8> {
        keys::meta(partition, "applied")
    }

    fn decode(bytes: &[u8]) -> Result<Self> {
        let mut from = Reader::new(bytes);
        if let Some(newer) = bytes.first().filter(|version| **version > VERSION) {
            let words = format!("expected version {VERSION} or older, found {newer}; use the release that wrote it");
            return Err(Error::new(ErrorKind::Refused, words));
        }
        let is_first = bytes.first() == Some(&1);
        from.version(if is_first { 1 } else { VERSION }, "the applied index")?;
        let (term, index, hash) = (Term(from.u64()?), Index(from.u64()?), from.u64()?);
        Ok(Self { term, index, hash, staged: if is_first { Index(0) } else { Index(from.u64()?) } })
    }
}

#[cfg(test)]
mod tests {
    use super::Applied;
    use crate::kv::Kv;
    use crate::kv::batch::Batch;
    use crate::kv::map::MapKv;
    use braid_base::ids::{Index, PartitionId, Term};

    #[test]
    fn travels_with_the_changes() {
        let (kv, p) = (MapKv::new(), PartitionId(3));
        assert_eq!(Applied::read(&kv, p), Ok(Applied::default()));
        let mut batch = Batch::new();
        batch.put(b"k", b"v");
        let pure = batch.clone();
        let next = Applied::default().advance(p, Term(2), Index(1), &mut batch);
        kv.apply(&batch).expect("memory");
        assert_eq!(Applied::read(&kv, p), Ok(next));
        assert_eq!(next.hash, pure.fold_hash(0), "its own key is no part of the state");
        assert_eq!(Applied::read(&kv, PartitionId(4)), Ok(Applied::default()));
    }
}
