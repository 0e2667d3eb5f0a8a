//! Walks the key-value views of all partitions and checks what must always hold between their records
//! (invariants I9 to I11, I17, I18, I21, I24 of the design). Needs nothing of the simulator but a [`Kv`].

mod bytes;
mod names;
mod objects;
mod tables;

use std::fmt;

use braid_base::Result;
use braid_base::ids::{FsId, Index, PartitionId};
use braid_replica::kv::Kv;

pub use bytes::Media;
pub use tables::Tables;

/// Something that does not hold.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// The invariant of the design, for example "I17".
    pub rule: &'static str,
    /// What was expected and what was found.
    pub what: String,
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.rule, self.what)
    }
}

/// One partition's view and the oldest entry that its log still holds.
pub struct Part<'a> {
    /// Which.
    pub id: PartitionId,
    /// Its view; other partitions may be in it too.
    pub kv: &'a dyn Kv,
    /// First entry that the log holds; staged bytes before it are gone.
    pub log_first: Option<Index>,
}

/// Checks the file system `fs` over all `parts`, at rest: no operation runs, all notes are delivered.
///
/// `media` answers whether a stripe can be read, and an object is there. Errors: a record that cannot be decoded.
pub fn check(fs: FsId, parts: &[Part<'_>], media: &mut dyn Media) -> Result<Vec<Finding>> {
    let mut findings = Vec::new();
    let count = u16::try_from(parts.len()).expect("a cluster has at most 4096 partitions");
    let tables = parts.iter().map(|part| Tables::load(part.kv, part.id, fs)).collect::<Result<Vec<_>>>()?;
    names::check(&tables, count, &mut findings);
    for (part, tables) in parts.iter().zip(&tables) {
        bytes::check(part, tables, media, &mut findings);
        objects::check(part, tables, media, &mut findings);
    }
    Ok(findings)
}
