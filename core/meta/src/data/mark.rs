//! How far a pass of checks over all packs is, for the next primary: written so seldom that it costs nothing.

use braid_base::ids::{PackId, PartitionId};
use braid_base::keys;
use braid_base::{Error, ErrorKind, Result};
use braid_replica::kv::Kv;

/// Name of it in table Meta.
const NAME: &str = "scrub";
/// Packs that are checked from one mark to the next: a pass over fewer begins anew with each primary.
pub(crate) const PACKS: u64 = 64;

/// A pass, under way or over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Mark {
    /// All packs up to this one were checked, or are kept by themselves (`data/suspects`).
    pub at: PackId,
    /// The last one to check.
    pub upto: PackId,
    /// When it began, seconds since 1970.
    pub begun_s: u64,
}

impl Mark {
    /// Where it is kept.
    pub fn key(p: PartitionId) -> Vec<u8> {
        keys::meta(p, NAME)
    }

    /// The one that was kept, if any.
    pub fn load(p: PartitionId, kv: &dyn Kv) -> Result<Option<Self>> {
        let Some(bytes) = kv.get(&Self::key(p))? else { return Ok(None) };
        let words: Vec<u64> =
            bytes.chunks_exact(8).map(|word| word.iter().fold(0, |all, byte| (all << 8) | u64::from(*byte))).collect();
        match words[..] {
            [at, upto, begun_s] if bytes.len() == 24 => Ok(Some(Self { at: PackId(at), upto: PackId(upto), begun_s })),
            _ => {
                let words = format!("mark of checks: expected 24 bytes, found {}", bytes.len());
                Err(Error::new(ErrorKind::Corrupt, words))
            }
        }
    }

    /// As it is kept.
    pub fn encode(self) -> Vec<u8> {
        [self.at.0, self.upto.0, self.begun_s].into_iter().flat_map(u64::to_be_bytes).collect()
    }
}
