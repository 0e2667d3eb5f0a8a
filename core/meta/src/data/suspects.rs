//! Packs that may have lost data. They are kept, so that the next primary looks at them first, and does not say that
//! nothing is lost before it did.

use std::collections::BTreeMap;

use braid_base::ids::{PackId, PartitionId};
use braid_base::keys::{self, Table};
use braid_base::{Error, ErrorKind, Result};
use braid_replica::kv::Kv;

use crate::txn::Txn;

/// The packs. One stays until a check finds that it is whole, or it is removed.
pub(super) struct Suspects(BTreeMap<PackId, Verdict>);

#[derive(Clone, Copy, PartialEq, Eq)]
enum Verdict {
    /// It is not known yet what of it is lost.
    Open,
    /// All of it was checked since.
    Known,
}

impl Suspects {
    /// Those that were kept; nothing is known of them yet.
    pub fn load(p: PartitionId, kv: &dyn Kv) -> Result<Self> {
        let (mut all, mut bad) = (BTreeMap::new(), false);
        let prefix = keys::table(p, Table::Suspect);
        kv.scan(&prefix, &keys::prefix_end(&prefix), &mut |key, _| {
            let pack = keys::pack_of(p, key);
            bad |= pack.is_none();
            all.extend(pack.map(|pack| (pack, Verdict::Open)));
            true
        })?;
        if bad { Err(Error::new(ErrorKind::Corrupt, "a suspect pack: the key is too short")) } else { Ok(Self(all)) }
    }

    /// All of them.
    pub fn packs(&self) -> impl Iterator<Item = PackId> {
        self.0.keys().copied()
    }

    /// How many there are of which it is not known yet what of them is lost.
    pub fn count_open(&self) -> usize {
        self.0.values().filter(|verdict| **verdict == Verdict::Open).count()
    }

    /// True if `pack` is one.
    pub fn has(&self, pack: PackId) -> bool {
        self.0.contains_key(&pack)
    }

    /// `pack` may have lost data.
    pub fn add(&mut self, t: &mut Txn<'_>, pack: PackId) {
        self.put(t, pack, Verdict::Open);
    }

    /// A check found all that `pack` has lost, or what has to be mended there.
    pub fn judged(&mut self, t: &mut Txn<'_>, pack: PackId) {
        self.put(t, pack, Verdict::Known);
    }

    /// A check of `pack` found nothing, and did not see all of it: if it is one, it is open again.
    pub fn unsure(&mut self, pack: PackId) {
        if let Some(verdict) = self.0.get_mut(&pack) {
            *verdict = Verdict::Open;
        }
    }

    fn put(&mut self, t: &mut Txn<'_>, pack: PackId, verdict: Verdict) {
        if self.0.insert(pack, verdict).is_none() {
            t.put(keys::suspect(t.partition, pack), Vec::new());
        }
    }

    /// It is whole, or there is no such pack any more.
    pub fn remove(&mut self, t: &mut Txn<'_>, pack: PackId) {
        if self.0.remove(&pack).is_some() {
            t.delete(keys::suspect(t.partition, pack));
        }
    }
}
