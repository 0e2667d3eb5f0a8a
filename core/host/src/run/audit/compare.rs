//! What a listing of a store says about the objects that a partition knew before it, and what becomes of each of them.
//!
//! Objects come and go while a store is listed. So a difference is a question to the partition at first; what it answers
//! later, when the listing has passed that key, decides.

use braid_base::ids::{BlobId, Term};
use braid_base::msg::host::{ObjectSeen, Verdict};
use braid_tier::blob::object_len;

/// An object that nothing knows is removed when the store has had it for so long, seconds: longer than anybody sends one,
/// and than clocks differ.
pub const REMOVE_S: u64 = 3_600;

/// An object in a store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct There {
    /// Its bytes.
    pub bytes: u64,
    /// When it was written, seconds since 1970.
    pub modified_s: u64,
}

/// A difference between what a partition knows and what a store lists.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Doubt {
    /// The key of the object.
    pub key: (BlobId, Term),
    /// What the store lists of it, if it does.
    pub there: Option<There>,
}

/// What becomes of a doubt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Finding {
    /// It is there, and known.
    Known,
    /// It came or went meanwhile, and is no matter of this listing.
    Nothing,
    /// Nobody knows it. True: it has been there for long, and may be removed.
    Unknown(bool),
    /// It is newer than what its partition knows.
    Ahead,
    /// It should be there, and is not.
    Missing,
    /// It has another number of bytes.
    WrongSize,
    /// That could not be found out.
    Unsure,
}

/// The objects of one partition in one store, while the store is listed.
pub struct Compare {
    /// In order.
    before: Vec<ObjectSeen>,
    seen: Vec<bool>,
}

impl Compare {
    /// `before`: what the partition knew before the listing began, in order.
    pub fn new(before: Vec<ObjectSeen>) -> Self {
        Self { seen: vec![false; before.len()], before }
    }

    /// The store lists an object; what is to be asked about it, if it is not as it should be.
    pub fn listed(&mut self, key: (BlobId, Term), there: There) -> Option<Doubt> {
        let doubt = Some(Doubt { key, there: Some(there) });
        let Ok(at) = self.before.binary_search_by_key(&key.0, |object| object.blob) else { return doubt };
        let known = &self.before[at];
        if known.term != key.1 {
            return doubt;
        }
        self.seen[at] = true;
        doubt.filter(|_| known.present && object_len(known.size.into()) != there.bytes)
    }

    /// The listing is over: the objects that should be there and were not listed.
    pub fn unlisted(&self) -> impl Iterator<Item = Doubt> {
        let missing = self.before.iter().zip(&self.seen).filter(|(object, seen)| object.present && !**seen);
        missing.map(|(object, _)| Doubt { key: (object.blob, object.term), there: None })
    }
}

impl Doubt {
    /// What becomes of it after the partition said `verdict`, at `now_s`.
    pub fn settle(&self, verdict: Verdict, now_s: u64) -> Finding {
        match (verdict, self.there) {
            (Verdict::Unknown, Some(there)) => Finding::Unknown(there.modified_s.saturating_add(REMOVE_S) <= now_s),
            (Verdict::Ahead, Some(_)) => Finding::Ahead,
            (Verdict::Elsewhere | Verdict::Passing, Some(_)) | (Verdict::Whole, _) => Finding::Known,
            (Verdict::Unknown | Verdict::Ahead | Verdict::Elsewhere | Verdict::Passing, None) => Finding::Nothing,
            (Verdict::Missing, _) => Finding::Missing,
            (Verdict::WrongSize { .. }, _) => Finding::WrongSize,
            (Verdict::Unsure, _) => Finding::Unsure,
        }
    }
}

#[cfg(test)]
mod tests {
    use braid_base::ids::{BlobId, PartitionId, Term};
    use braid_base::msg::host::{ObjectSeen, Verdict};
    use braid_tier::blob::object_len;

    use super::{Compare, Doubt, Finding, REMOVE_S, There};

    const SIZE: u32 = 5_000;

    fn blob(serial: u64) -> BlobId {
        BlobId::new(PartitionId(4), serial)
    }

    fn seen(serial: u64, term: u64, present: bool) -> ObjectSeen {
        ObjectSeen { blob: blob(serial), term: Term(term), size: SIZE, present }
    }

    fn there(bytes: u64) -> There {
        There { bytes, modified_s: 1_000 }
    }

    /// What is doubted when a store lists `listed` (number, term, bytes).
    fn doubts(before: Vec<ObjectSeen>, listed: &[(u64, u64, u64)]) -> Vec<(u64, u64, bool)> {
        let mut compare = Compare::new(before);
        let mut all = Vec::new();
        for (serial, term, bytes) in listed {
            all.extend(compare.listed((blob(*serial), Term(*term)), there(*bytes)));
        }
        all.extend(compare.unlisted());
        all.iter().map(|doubt| (doubt.key.0.serial(), doubt.key.1.0, doubt.there.is_some())).collect()
    }

    #[test]
    fn only_differences_are_doubted() {
        let (whole, before) = (object_len(SIZE.into()), || vec![seen(2, 1, true), seen(5, 1, false), seen(7, 3, true)]);
        assert!(doubts(before(), &[(2, 1, whole), (5, 1, 77), (7, 3, whole)]).is_empty());
        assert!(doubts(before(), &[(2, 1, whole), (7, 3, whole)]).is_empty(), "5 is on its way, or away");
        assert_eq!(doubts(before(), &[(2, 1, whole)]), [(7, 3, false)]);
        assert_eq!(doubts(before(), &[(2, 1, whole - 1), (7, 3, whole)]), [(2, 1, true)]);
        // Of an earlier term, and of a number that nothing is known of.
        let found = doubts(before(), &[(2, 1, whole), (7, 2, whole), (7, 3, whole), (9, 1, whole)]);
        assert_eq!(found, [(7, 2, true), (9, 1, true)]);
    }

    #[test]
    fn what_came_or_went_meanwhile_is_no_finding() {
        let (key, old) = ((blob(1), Term(1)), REMOVE_S + 1_000);
        let settle = |there, verdict| Doubt { key, there }.settle(verdict, old);
        let listed = Some(there(9));
        // Sent after the table was read; being sent; removed since; removed before it was listed.
        assert_eq!(settle(listed, Verdict::Whole), Finding::Known);
        assert_eq!(settle(listed, Verdict::Passing), Finding::Known);
        assert_eq!(settle(None, Verdict::Passing), Finding::Nothing);
        assert_eq!(settle(None, Verdict::Unknown), Finding::Nothing);
        // A listing that is late.
        assert_eq!(settle(None, Verdict::Whole), Finding::Known);
        assert_eq!(settle(None, Verdict::Missing), Finding::Missing);
        assert_eq!(settle(listed, Verdict::WrongSize { found: 9, expected: 10 }), Finding::WrongSize);
    }

    #[test]
    fn only_what_is_old_and_known_to_nobody_may_go() {
        let (key, old) = ((blob(1), Term(1)), REMOVE_S + 1_000);
        let doubt = Doubt { key, there: Some(there(9)) };
        assert_eq!(doubt.settle(Verdict::Unknown, old), Finding::Unknown(true));
        assert_eq!(doubt.settle(Verdict::Unknown, old - 1), Finding::Unknown(false));
        for verdict in [
            Verdict::Ahead,
            Verdict::Elsewhere,
            Verdict::Passing,
            Verdict::Whole,
            Verdict::Missing,
            Verdict::WrongSize { found: 1, expected: 2 },
            Verdict::Unsure,
        ] {
            assert!(!matches!(doubt.settle(verdict, u64::MAX), Finding::Unknown(_)), "{verdict:?}");
        }
    }
}
