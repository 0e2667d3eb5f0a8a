//! Who holds which lease, and which recalls are under way.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use braid_base::ids::{ClientId, FsId, Ino, Term};
use braid_base::limits::LEASES_PER_CLIENT_MAX;
use braid_base::msg::lease::{LeaseKind, Release};

use super::needs::Use;

/// Lease numbers of one term: 2^40, and 2^24 terms.
const TERM_SHIFT: u32 = 40;

/// What a lease is on.
pub(super) type Key = (FsId, Ino);

struct Held {
    client: ClientId,
    kind: LeaseKind,
    seq: u64,
    recall: Option<Recall>,
}

#[derive(Clone, Copy)]
struct Recall {
    keep: Option<LeaseKind>,
    since_ms: u64,
    sent_ms: u64,
}

/// A recall to send.
pub(super) struct Recalled {
    pub(super) client: ClientId,
    pub(super) key: Key,
    pub(super) seq: u64,
    pub(super) keep: Option<LeaseKind>,
}

/// A lease that a client has now.
pub(super) struct Given {
    pub(super) kind: LeaseKind,
    pub(super) seq: u64,
    pub(super) is_new: bool,
}

/// All leases of a partition.
#[derive(Default)]
pub(super) struct Table {
    held: HashMap<Key, Vec<Held>>,
    counts: BTreeMap<ClientId, usize>,
    last_seq: u64,
    /// Where recalls are under way.
    recalling: BTreeSet<(Key, ClientId)>,
}

impl Table {
    /// An empty table. Numbers of a later term are above all of an earlier one: what is said of a lease of an earlier
    /// primary, and comes late, changes nothing.
    pub(super) fn new(term: Term) -> Self {
        Self { last_seq: term.0 << TERM_SHIFT, ..Self::default() }
    }

    /// True if nobody but `client` holds anything.
    pub(super) fn is_only(&self, client: ClientId) -> bool {
        self.counts.len() <= 1 && self.counts.keys().all(|holder| *holder == client)
    }

    /// True if someone else holds what is in the way.
    pub(super) fn conflicts(&self, key: Key, client: ClientId, how: Use) -> bool {
        self.in_way(key, client, how).next().is_some()
    }

    /// Who else holds what is in the way.
    pub(super) fn in_way(&self, key: Key, client: ClientId, how: Use) -> impl Iterator<Item = ClientId> + '_ {
        let held = self.held.get(&key).into_iter().flatten();
        held.filter(move |held| held.is_in_way(client, how)).map(|held| held.client)
    }

    /// Takes note that what is in the way is wanted back; what must be said now.
    pub(super) fn recall(&mut self, key: Key, client: ClientId, how: Use, now: u64) -> Vec<Recalled> {
        let keep = if how == Use::Look { Some(LeaseKind::Shared) } else { None };
        let mut out = Vec::new();
        for held in self.held.get_mut(&key).into_iter().flatten() {
            let asked = held.recall.is_some_and(|before| before.keep <= keep);
            if asked || !held.is_in_way(client, how) {
                continue;
            }
            let since_ms = held.recall.map_or(now, |before| before.since_ms);
            held.recall = Some(Recall { keep, since_ms, sent_ms: now });
            self.recalling.insert((key, held.client));
            out.push(Recalled { client: held.client, key, seq: held.seq, keep });
        }
        out
    }

    /// A client gives a lease back, or part of it.
    pub(super) fn release(&mut self, client: ClientId, release: &Release) {
        let key = (release.fs, release.ino);
        let Some(list) = self.held.get_mut(&key) else { return };
        let Some(at) = list.iter().position(|held| held.client == client && held.seq <= release.seq) else { return };
        if release.keep == Some(LeaseKind::Shared) {
            let held = &mut list[at];
            // A new number: a late grant of the exclusive lease names the old one.
            self.last_seq += 1;
            (held.kind, held.seq) = (LeaseKind::Shared, self.last_seq);
            match held.recall {
                // More is wanted by now: the client hears of it again, with the new number.
                Some(recall) if recall.keep.is_none() => held.recall = Some(Recall { sent_ms: 0, ..recall }),
                _ => {
                    held.recall = None;
                    self.recalling.remove(&(key, client));
                }
            }
            return;
        }
        list.swap_remove(at);
        if list.is_empty() {
            self.held.remove(&key);
        }
        self.recalling.remove(&(key, client));
        self.count_down(client, 1);
    }

    /// Gives `client` a lease of up to `kind`, unless someone is in the way.
    pub(super) fn grant(&mut self, client: ClientId, key: Key, kind: LeaseKind) -> Option<Given> {
        let list = self.held.entry(key).or_default();
        let others = list.iter().filter(|held| held.client != client);
        let (mut alone, mut blocked) = (true, false);
        for other in others {
            alone = false;
            blocked |= other.kind == LeaseKind::Exclusive || other.recall.is_some();
        }
        let own = list.iter_mut().find(|held| held.client == client);
        let kind = if alone { kind } else { LeaseKind::Shared };
        if let Some(own) = own {
            if own.recall.is_some() {
                return None;
            }
            if own.kind < kind {
                self.last_seq += 1;
                (own.kind, own.seq) = (kind, self.last_seq);
            }
            return Some(Given { kind: own.kind, seq: own.seq, is_new: false });
        }
        let count = self.counts.get(&client).copied().unwrap_or(0);
        if blocked || count >= LEASES_PER_CLIENT_MAX {
            if list.is_empty() {
                self.held.remove(&key);
            }
            return None;
        }
        self.last_seq += 1;
        list.push(Held { client, kind, seq: self.last_seq, recall: None });
        self.counts.insert(client, count + 1);
        Some(Given { kind, seq: self.last_seq, is_new: true })
    }

    /// True if the client has an exclusive lease on it, and nobody wants it back.
    pub(super) fn is_alone(&self, client: ClientId, key: Key) -> bool {
        let is_own = |held: &Held| held.client == client && held.kind == LeaseKind::Exclusive && held.recall.is_none();
        self.held.get(&key).is_some_and(|held| held.iter().any(is_own))
    }

    /// Takes over an exclusive lease of an earlier term; false if someone is in the way.
    pub(super) fn assert(&mut self, client: ClientId, key: Key, seq: u64) -> bool {
        let list = self.held.entry(key).or_default();
        if !list.is_empty() {
            return false;
        }
        list.push(Held { client, kind: LeaseKind::Exclusive, seq, recall: None });
        *self.counts.entry(client).or_default() += 1;
        true
    }

    /// Who holds a lease on it.
    pub(super) fn holders(&self, key: Key) -> Vec<ClientId> {
        self.held.get(&key).into_iter().flatten().map(|held| held.client).collect()
    }

    /// The inode is gone: so are all leases on it.
    pub(super) fn gone(&mut self, key: Key) {
        for held in self.held.remove(&key).unwrap_or_default() {
            self.recalling.remove(&(key, held.client));
            self.count_down(held.client, 1);
        }
    }

    /// All leases of the client go.
    pub(super) fn end(&mut self, client: ClientId) {
        if self.counts.remove(&client).is_none() {
            return;
        }
        self.held.retain(|_, list| {
            list.retain(|held| held.client != client);
            !list.is_empty()
        });
        self.recalling.retain(|(_, holder)| *holder != client);
    }

    /// Recalls that were last sent `every` milliseconds ago.
    pub(super) fn repeat(&mut self, now: u64, every: u64) -> Vec<Recalled> {
        let mut out = Vec::new();
        self.each_recall(|(key, client), seq, recall| {
            if now >= recall.sent_ms + every {
                recall.sent_ms = now;
                out.push(Recalled { client, key, seq, keep: recall.keep });
            }
        });
        out
    }

    /// Clients that have not answered a recall for `most` milliseconds.
    pub(super) fn overdue(&self, now: u64, most: u64) -> Vec<ClientId> {
        let is_late = |(key, client): &&(Key, ClientId)| {
            let held = self.held.get(key).and_then(|list| list.iter().find(|held| held.client == *client));
            held.and_then(|held| held.recall).is_some_and(|recall| now >= recall.since_ms + most)
        };
        self.recalling.iter().filter(is_late).map(|(_, client)| *client).collect()
    }

    /// The time that `client` has to answer begins anew.
    pub(super) fn excuse(&mut self, client: ClientId, now: u64) {
        self.each_recall(|(_, holder), _, recall| {
            if holder == client {
                recall.since_ms = now;
            }
        });
    }

    /// For so long nobody's answer could be heard: recalls are that much younger.
    pub(super) fn was_blind(&mut self, blind_ms: u64, now: u64) {
        if blind_ms > 0 {
            self.each_recall(|_, _, recall| recall.since_ms = now.min(recall.since_ms + blind_ms));
        }
    }

    /// Looks at each lease that is wanted back: whose it is, its number, and how the recall stands.
    fn each_recall(&mut self, mut visit: impl FnMut((Key, ClientId), u64, &mut Recall)) {
        for (key, client) in &self.recalling {
            let held = self.held.get_mut(key).and_then(|list| list.iter_mut().find(|held| held.client == *client));
            if let Some(Held { seq, recall: Some(recall), .. }) = held {
                visit((*key, *client), *seq, recall);
            }
        }
    }

    fn count_down(&mut self, client: ClientId, by: usize) {
        if let Some(count) = self.counts.get_mut(&client) {
            *count -= by;
            if *count == 0 {
                self.counts.remove(&client);
            }
        }
    }
}

impl Held {
    fn is_in_way(&self, client: ClientId, how: Use) -> bool {
        self.client != client
            && match how {
                Use::Look => self.kind == LeaseKind::Exclusive,
                Use::Change => true,
                Use::Lock => false,
            }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: ClientId = ClientId(1);
    const B: ClientId = ClientId(2);
    const KEY: Key = (FsId(1), Ino(9));

    fn release(seq: u64, keep: Option<LeaseKind>) -> Release {
        Release { fs: KEY.0, ino: KEY.1, seq, keep }
    }

    #[test]
    fn an_exclusive_lease_excludes_and_shrinks_under_a_new_number() {
        let mut table = Table::default();
        let first = table.grant(A, KEY, LeaseKind::Exclusive).expect("nobody else is there");
        assert!(table.grant(B, KEY, LeaseKind::Shared).is_none());
        assert!(table.conflicts(KEY, B, Use::Look) && !table.conflicts(KEY, A, Use::Change));
        assert_eq!(table.recall(KEY, B, Use::Look, 5).len(), 1);
        assert!(table.recall(KEY, B, Use::Look, 6).is_empty(), "asked already");
        assert!(table.grant(A, KEY, LeaseKind::Exclusive).is_none(), "nothing is granted while it is wanted back");
        table.release(A, &release(first.seq, Some(LeaseKind::Shared)));
        let kept = table.grant(A, KEY, LeaseKind::Shared).expect("it holds a shared one");
        assert!(kept.seq > first.seq && !kept.is_new);
        table.release(A, &release(first.seq, None));
        assert!(table.conflicts(KEY, B, Use::Change), "a late release of the old number changes nothing");
        assert_eq!(table.grant(B, KEY, LeaseKind::Exclusive).map(|given| given.kind), Some(LeaseKind::Shared));
        table.end(A);
        table.end(B);
        assert!(table.is_only(A) && table.held.is_empty() && table.recalling.is_empty());
    }

    #[test]
    fn who_shrinks_while_all_is_wanted_is_asked_again() {
        let mut table = Table::default();
        let first = table.grant(A, KEY, LeaseKind::Exclusive).expect("nobody else is there");
        table.recall(KEY, B, Use::Look, 1_000);
        assert_eq!(table.recall(KEY, B, Use::Change, 1_001).len(), 1, "more is wanted");
        table.release(A, &release(first.seq, Some(LeaseKind::Shared)));
        let again = table.repeat(1_002, 1_000);
        assert!(again.len() == 1 && again[0].keep.is_none() && again[0].seq > first.seq);
        assert_eq!(table.overdue(21_000, 20_000), vec![A]);
        table.excuse(A, 21_000);
        assert_eq!(table.overdue(40_999, 20_000), vec![]);
        assert_eq!(table.overdue(41_000, 20_000), vec![A]);
    }
}
