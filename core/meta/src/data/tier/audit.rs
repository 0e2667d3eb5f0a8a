//! What a partition says of its objects to whoever compares them with what lies in a store.

use std::ops::Bound;

use braid_base::ids::{BlobId, StoreId, Term};
use braid_base::msg::host::{ObjectSeen, ObjectsPage};
use braid_base::record::BlobState;

use crate::data::tier::blobs::Blobs;
use crate::state::State;

/// What a partition says of the key of an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Judged {
    /// There is none, and there will be none: numbers and terms are never used again.
    Unknown,
    /// Its number or its term is beyond what this partition has given out.
    Ahead,
    /// It is in another object store.
    Elsewhere,
    /// It is being sent, or is to be removed.
    Passing,
    /// It is to be in the store, with so many bytes of data.
    Present(u32),
}

impl Blobs {
    /// Objects in `store` behind `after`, at most `limit`.
    fn page(&self, store: StoreId, after: Option<BlobId>, limit: usize) -> ObjectsPage {
        let from = after.map_or(Bound::Unbounded, Bound::Excluded);
        let mut objects: Vec<ObjectSeen> = self
            .records((from, Bound::Unbounded))
            .filter(|(_, rec)| rec.store == store)
            .take(limit + 1)
            .map(|(blob, rec)| ObjectSeen {
                blob,
                term: rec.term,
                size: rec.size,
                present: rec.state == BlobState::Present,
            })
            .collect();
        let more = objects.len() > limit;
        objects.truncate(limit);
        ObjectsPage { objects, more }
    }

    fn judge(&self, mine: Term, store: StoreId, (blob, term): (BlobId, Term)) -> Judged {
        if blob.serial() > self.newest() || term > mine {
            return Judged::Ahead;
        }
        match self.record(blob).filter(|rec| rec.term == term) {
            None => Judged::Unknown,
            Some(rec) if rec.store != store => Judged::Elsewhere,
            Some(rec) if rec.state == BlobState::Present => Judged::Present(rec.size),
            Some(_) => Judged::Passing,
        }
    }
}

impl State {
    /// The objects in `store` behind `after`, ordered by number, at most `limit`.
    pub fn objects(&self, store: StoreId, after: Option<BlobId>, limit: usize) -> ObjectsPage {
        self.data.tier.blobs.page(store, after, limit)
    }

    /// What is known of an object whose key was found in `store`, or should have been.
    pub fn judge(&self, store: StoreId, key: (BlobId, Term)) -> Judged {
        self.data.tier.blobs.judge(self.config.term, store, key)
    }
}
