//! What a host keeps of etcd, `DIR/etcd.backup`: the facts, and as of when it has seen them. Both serve the day on which
//! etcd is restored from an old copy, or lost: then [`Kept::judge`] tells, and the facts are written back (`recover`).

use std::collections::BTreeMap;
use std::path::Path;

use braid_base::ids::{Guid, PartitionId, Term};
use braid_base::{Error, ErrorKind, Result};

use crate::backup::{self, AsOf, Entry};
use crate::coordinator::{Item, Listing, Revision};
use crate::facts::{Candidate, Cluster, Fence, Incarnation, Live, Partition};
use crate::records::{self, Record};

/// The facts, as of one revision.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Kept {
    /// In which life of etcd.
    pub incarnation: Incarnation,
    /// The revision that was seen.
    pub revision: Revision,
    /// The facts, ordered by key.
    pub items: Vec<Item>,
}

/// What the replicas of a host have on its own disk: the highest term of each partition.
pub type Floors = BTreeMap<PartitionId, Term>;

/// What etcd shows, compared with what was seen of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// The same, or what came after it.
    Later,
    /// Something older, or nothing any more: why.
    Older(String),
    /// Another cluster lies there: its identity.
    Another(Guid),
}

/// Does `key` stay when all processes have ended, and is it written back?
pub fn is_fact(key: &str) -> bool {
    let passes = [Live::PREFIX, Candidate::PREFIX].iter().any(|prefix| key.starts_with(prefix));
    !passes && !["controller", Fence::KEY, Incarnation::KEY].contains(&key)
}

/// The record under `key` among items that are ordered by key.
pub(crate) fn record<T: Record>(items: &[Item], key: &str) -> Result<Option<T>> {
    let at = items.binary_search_by(|item| item.key.as_str().cmp(key));
    at.ok().map(|at| records::decode(key, &items[at].value)).transpose()
}

impl Kept {
    /// What there is to keep of all that etcd holds.
    pub fn of(all: &Listing) -> Result<Self> {
        let incarnation = record::<Incarnation>(&all.items, Incarnation::KEY)?.unwrap_or_default();
        let items = all.items.iter().filter(|item| is_fact(&item.key)).cloned().collect();
        Ok(Self { incarnation, revision: all.revision, items })
    }

    /// What the file at `path` says; none if there is none.
    pub fn read(path: &Path) -> Result<Option<Self>> {
        let Some((as_of, entries)) = backup::read_at(path)? else { return Ok(None) };
        let damaged = || Error::new(ErrorKind::Corrupt, format!("{}: an item without a value", path.display()));
        let as_of = as_of.ok_or_else(damaged)?;
        Self::from_entries(as_of, &entries).ok_or_else(damaged).map(Some)
    }

    /// Replaces the file at `path`, durably.
    pub fn write(&self, path: &Path) -> Result<()> {
        backup::write_at(path, Some(self.as_of()), self.entries())
    }

    /// As of when.
    pub fn as_of(&self) -> AsOf {
        AsOf { incarnation: self.incarnation, revision: self.revision.0 }
    }

    /// The items, as they are written.
    pub fn entries(&self) -> Vec<Entry> {
        self.items.iter().map(Entry::dated).collect()
    }

    /// What was written; none if an item has no value.
    pub fn from_entries(as_of: AsOf, entries: &[Entry]) -> Option<Self> {
        let mut items = entries.iter().map(Entry::item).collect::<Option<Vec<_>>>()?;
        items.sort_by(|a, b| a.key.cmp(&b.key));
        Some(Self { incarnation: as_of.incarnation, revision: Revision(as_of.revision), items })
    }

    /// The record under `key`.
    pub fn record<T: Record>(&self, key: &str) -> Result<Option<T>> {
        record(&self.items, key)
    }

    /// Is `found`, all that etcd holds, what this has become? It was asked for when `revision` had been seen. `cluster`:
    /// whose facts are meant.
    pub fn judge(&self, revision: Revision, cluster: Guid, floors: &Floors, found: &Listing) -> Result<Verdict> {
        let older = |why: String| Ok(Verdict::Older(why));
        let Some(there) = record::<Cluster>(&found.items, Cluster::KEY)? else {
            return older(format!("it holds nothing of the cluster (revision {})", found.revision.0));
        };
        if there.guid != cluster {
            return Ok(Verdict::Another(there.guid));
        }
        let (seen, now) =
            (self.incarnation, record::<Incarnation>(&found.items, Incarnation::KEY)?.unwrap_or_default());
        if now.number < seen.number || (now.number == seen.number && now.by != seen.by) {
            return older(format!(
                "recovery {} ({}) was seen, {} ({}) is there",
                seen.number, seen.by, now.number, now.by
            ));
        }
        if now == seen {
            if found.revision < revision {
                return older(format!("revision {} was seen, {} is there", revision.0, found.revision.0));
            }
            // Others may have brought the revision up again.
            let now_of = |key: &str| found.items.binary_search_by(|item| item.key.as_str().cmp(key)).ok();
            for item in &self.items {
                if let Some(at) = now_of(&item.key).filter(|at| found.items[*at].modified < item.modified) {
                    let (seen, now) = (item.modified.0, found.items[at].modified.0);
                    return older(format!("{} was seen as of revision {seen}, it is there as of {now}", item.key));
                }
            }
        }
        for (p, floor) in floors {
            let there =
                record::<Partition>(&found.items, &Partition::key_of(*p))?.map_or(Term(0), |record| record.term);
            if there < *floor {
                return older(format!("{p} has seen term {}, {} is there", floor.0, there.0));
            }
        }
        Ok(Verdict::Later)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use braid_base::ErrorKind;
    use braid_base::ids::{Guid, HostId, PartitionId, Term};

    use super::{Floors, Kept, Verdict, is_fact};
    use crate::coordinator::{Item, Listing, Revision};
    use crate::facts::{Cluster, FEATURE_LEVEL, Incarnation, Live, Partition, Protection};
    use crate::records::{Record, encode};

    const OURS: Guid = Guid([1; 16]);

    fn item<T: Record>(record: &T, modified: u64) -> Item {
        let value = encode(record).expect("JSON");
        Item { key: record.key(), value, created: Revision(0), modified: Revision(modified) }
    }

    fn cluster(guid: Guid) -> Cluster {
        Cluster {
            guid,
            name: "n".into(),
            created_s: 1,
            protection: Protection { data: 4, parity: 2 },
            shard_bytes: 8 << 20,
            partitions: 1,
            feature_level: FEATURE_LEVEL,
            copies: 3,
            client_secret: "c".into(),
            host_secret: "h".into(),
            authority: String::new(),
        }
    }

    fn partition(term: u64) -> Partition {
        let (members, learners) = (Vec::new(), Vec::new());
        Partition { id: PartitionId(0), term: Term(term), primary: Some(HostId(1)), members, learners }
    }

    /// At `revision`, with the partition in `term` since `modified`, recovered `number` times.
    fn etcd(revision: u64, term: u64, modified: u64, number: u64) -> Listing {
        let mut items = vec![item(&cluster(OURS), 3), item(&partition(term), modified)];
        items.push(item(&Live { host: HostId(1), since_s: 1 }, 2));
        if number > 0 {
            items.push(item(&Incarnation { number, by: Guid([number as u8; 16]) }, 4));
        }
        items.sort_by(|a, b| a.key.cmp(&b.key));
        Listing { items, revision: Revision(revision) }
    }

    fn judged(seen: &Listing, found: &Listing, floors: &Floors) -> Verdict {
        Kept::of(seen).expect("read").judge(seen.revision, OURS, floors, found).expect("read")
    }

    fn is_older(verdict: &Verdict, words: &str) -> bool {
        matches!(verdict, Verdict::Older(why) if why.contains(words))
    }

    #[test]
    fn what_came_later_is_taken_and_what_is_older_is_not() {
        let (none, seen) = (Floors::new(), etcd(50, 7, 40, 0));
        assert_eq!(judged(&seen, &seen, &none), Verdict::Later);
        assert_eq!(judged(&seen, &etcd(51, 8, 51, 0), &none), Verdict::Later);
        assert!(is_older(&judged(&seen, &etcd(49, 7, 40, 0), &none), "revision 50 was seen, 49 is there"));
        // Somebody else has written to the same etcd since.
        assert!(is_older(&judged(&seen, &etcd(90, 6, 30, 0), &none), "partition/00000"));
        let empty = Listing { items: Vec::new(), revision: Revision(1_000) };
        assert!(is_older(&judged(&seen, &empty, &none), "nothing of the cluster"));
    }

    #[test]
    fn a_recovery_begins_revisions_anew_and_none_is_undone() {
        let none = Floors::new();
        assert_eq!(judged(&etcd(50, 7, 40, 0), &etcd(9, 1_007, 9, 1), &none), Verdict::Later);
        assert!(is_older(&judged(&etcd(9, 1_007, 9, 1), &etcd(50, 7, 40, 0), &none), "recovery 1"));
        let mut other = etcd(10, 1_007, 9, 1);
        let at = other.items.iter().position(|item| item.key == Incarnation::KEY).expect("there");
        other.items[at] = item(&Incarnation { number: 1, by: Guid([9; 16]) }, 4);
        assert!(is_older(&judged(&etcd(9, 1_007, 9, 1), &other, &none), "recovery 1"));
    }

    #[test]
    fn the_terms_of_the_own_replicas_tell_even_a_host_that_has_seen_little() {
        let (seen, floors) = (etcd(20, 5, 20, 0), Floors::from([(PartitionId(0), Term(7))]));
        assert!(is_older(&judged(&seen, &etcd(30, 6, 25, 0), &floors), "term 7"));
        assert_eq!(judged(&seen, &etcd(30, 7, 25, 0), &floors), Verdict::Later);
        // Also after a recovery that did not hear this host.
        assert!(is_older(&judged(&seen, &etcd(30, 6, 25, 1), &floors), "term 7"));
    }

    #[test]
    fn another_cluster_is_none_of_ours() {
        let mut found = etcd(9, 1, 9, 0);
        let at = found.items.iter().position(|item| item.key == Cluster::KEY).expect("there");
        found.items[at] = item(&cluster(Guid([8; 16])), 3);
        assert_eq!(judged(&etcd(50, 7, 40, 0), &found, &BTreeMap::new()), Verdict::Another(Guid([8; 16])));
    }

    #[test]
    fn it_is_read_as_it_was_written_and_damage_shows() {
        let dir = tempfile::tempdir().expect("a folder");
        let path = dir.path().join("etcd.backup");
        assert_eq!(Kept::read(&path).expect("no error"), None);
        let kept = Kept::of(&etcd(50, 7, 40, 3)).expect("read");
        assert_eq!(kept.items.len(), 2, "only facts");
        assert!(!is_fact("live/1") && !is_fact("fence") && is_fact("ctr/client"));
        kept.write(&path).expect("written");
        assert_eq!(Kept::read(&path).expect("read"), Some(kept));
        let text = std::fs::read_to_string(&path).expect("there");
        for (from, to) in [("\"revision\": 50", "\"revision\": 51"), ("\"modified\": 40", "\"modified\": 41")] {
            assert!(text.contains(from), "{text}");
            std::fs::write(&path, text.replace(from, to)).expect("written");
            assert_eq!(Kept::read(&path).map_err(|error| error.kind()), Err(ErrorKind::Corrupt));
        }
    }
}
