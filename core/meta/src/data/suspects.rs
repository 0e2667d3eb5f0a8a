//! Packs that may have lost data. They are kept, so that the next primary looks at them first, and does not say that
//! nothing is lost before it did.

use std::collections::BTreeMap;

use braid_base::ids::{PackId, PartitionId};
use braid_base::keys;
use braid_base::{Error, ErrorKind, Result};
use braid_replica::kv::Kv;

use crate::txn::Txn;

/// The packs. One stays until a check finds that it is whole, or it is removed.
pub(super) struct Suspects(BTreeMap<PackId, State>);

#[derive(Clone, Copy, PartialEq, Eq)]
enum State {
    /// It is not known yet what of it is lost.
    Open,
    /// All of it was checked since.
    Known,
}

impl Suspects {
    /// Those that were kept; nothing is known of them yet.
    pub fn load(p: PartitionId, kv: &dyn Kv) -> Result<Self> {
        let (mut all, mut bad) = (BTreeMap::new(), false);
        let prefix = keys::suspects(p);
        kv.scan(&prefix, &keys::prefix_end(&prefix), &mut |key, _| {
            let pack = keys::pack_of(p, key);
            bad |= pack.is_none();
            all.extend(pack.map(|pack| (pack, State::Open)));
            true
        })?;
        if bad { Err(Error::new(ErrorKind::Corrupt, "a suspect pack: the key is too short")) } else { Ok(Self(all)) }
    }

    /// All of them.
    pub fn packs(&self) -> impl Iterator<Item = PackId> {
        self.0.keys().copied()
    }

    /// Those of which it is not known yet what of them is lost.
    pub fn open(&self) -> impl Iterator<Item = PackId> {
        self.0.iter().filter(|(_, state)| **state == State::Open).map(|(pack, _)| *pack)
    }

    /// `pack` may have lost data.
    pub fn add(&mut self, t: &mut Txn<'_>, pack: PackId) {
        self.put(t, pack, State::Open);
    }

    /// A check found all that `pack` has lost, or what has to be mended there.
    pub fn is_known(&mut self, t: &mut Txn<'_>, pack: PackId) {
        self.put(t, pack, State::Known);
    }

    fn put(&mut self, t: &mut Txn<'_>, pack: PackId, state: State) {
        if self.0.insert(pack, state).is_none() {
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
