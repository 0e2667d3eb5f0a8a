//! What is held and remembered: attributes and names, each under a lease.
//!
//! Why it is never older than what others did: a node lives exactly as long as its lease, and whoever changes the
//! inode recalls that first. Why it is never older than what this client did: the answer to a change shows the inode
//! as it is then (or the node goes), and of two answers the one with the higher `change` counts, in whatever order
//! they come. Where the answer to a change shows nothing, nothing that was asked before it is taken any more. A name
//! is as new as the `change` of its directory in the same answer.

use std::collections::{HashMap, VecDeque};

use braid_base::attr::Attr;
use braid_base::ids::{FsId, Ino, PartitionId};
use braid_base::msg::fs::DirEntry;
use braid_base::msg::lease::{Grant, LeaseKind, Numbers, Release};

use super::listing::Listing;

/// Attributes and names remembered at most: about 100 MB.
const ENTRIES_MAX: usize = 1 << 18;
/// Inodes share this many marks of numbers given back; two of one mark only make each other ask once more.
const SLOTS: usize = 4096;

/// An inode of a file system.
pub(super) type Key = (FsId, Ino);

/// One inode under a lease.
pub(super) struct Node {
    pub(super) partition: PartitionId,
    pub(super) kind: LeaseKind,
    pub(super) seq: u64,
    /// The lease is being given back once the owner of dirty data has written.
    pub(super) leaving: Option<Leaving>,
    /// Its last name is gone.
    pub(super) nameless: bool,
    /// Grants of it up to this number are not taken any more. (Those of a slot are of others, too, which a lease that is
    /// held for long would fall behind of.)
    floor: u64,
    /// Of a directory: inode numbers for files in it.
    numbers: Numbers,
    /// There is room for small files in it.
    pub(super) is_roomy: bool,
    attr: Attr,
    /// The attributes are out of date; the lease stays.
    stale: bool,
    /// What was asked before this does not make them up to date.
    fresh_from: u64,
    names: HashMap<Vec<u8>, Name>,
    /// Names that are not listed are not there.
    complete: bool,
    /// Names of answers older than this are not taken.
    names_from: u64,
    /// Of a directory: what it was listed as.
    listing: Option<Listing>,
    stamp: u64,
}

/// How a lease is being given back.
#[derive(Clone, Copy)]
pub(super) struct Leaving {
    /// Up to this number.
    pub(super) upto: u64,
    /// What is kept of it.
    pub(super) keep: Option<LeaseKind>,
    /// The partition waits for it.
    pub(super) is_asked: bool,
    /// Its owner was told to write.
    pub(super) is_flushing: bool,
}

/// What was forgotten.
pub(super) struct Gone {
    pub(super) partition: PartitionId,
    /// What to give back.
    pub(super) release: Release,
    /// Names in it that were known, in no order.
    pub(super) names: Vec<Vec<u8>>,
}

struct Name {
    seen: Seen,
    version: u64,
}

/// What a name stood for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Seen {
    /// This.
    Ino(Ino),
    /// Nothing.
    Nothing,
    /// The last change of it does not say.
    Unknown,
}

/// All nodes of a client.
pub(super) struct Cache {
    nodes: HashMap<Key, Node>,
    entries: usize,
    entries_max: usize,
    /// In the order of their arrival, for eviction; an entry whose stamp differs is void.
    order: VecDeque<(Key, u64)>,
    stamp: u64,
    /// By partition: per slot, the highest lease number that was recalled or given back.
    floors: Vec<Vec<u64>>,
    /// Per slot: answers to what was asked before this are not taken.
    marks: Vec<u64>,
    clock: u64,
}

impl Cache {
    pub(super) fn new(partitions: u16) -> Self {
        let floors = (0..partitions).map(|_| vec![0; SLOTS]).collect();
        let (nodes, order) = (HashMap::new(), VecDeque::new());
        Self { nodes, entries: 0, entries_max: ENTRIES_MAX, order, stamp: 0, floors, marks: vec![0; SLOTS], clock: 0 }
    }

    pub(super) fn node(&self, key: Key) -> Option<&Node> {
        self.nodes.get(&key)
    }

    pub(super) fn node_mut(&mut self, key: Key) -> Option<&mut Node> {
        self.nodes.get_mut(&key)
    }

    /// Nodes of a partition.
    pub(super) fn keys_of(&self, p: PartitionId) -> Vec<Key> {
        self.keys_where(|node| node.partition == p)
    }

    /// All nodes.
    pub(super) fn keys(&self) -> Vec<Key> {
        self.keys_where(|_| true)
    }

    fn keys_where(&self, such: impl Fn(&Node) -> bool) -> Vec<Key> {
        let mut keys: Vec<Key> = self.nodes.iter().filter(|(_, node)| such(node)).map(|(k, _)| *k).collect();
        keys.sort_unstable();
        keys
    }

    /// To be noted when something is asked.
    pub(super) fn asking(&self) -> u64 {
        self.clock
    }

    /// What was asked until now does not say what `ino` is like: it was changed.
    pub(super) fn outdate(&mut self, ino: Ino) {
        self.clock += 1;
        self.marks[slot_of(ino)] = self.clock;
    }

    /// Takes a grant that was `asked` for then; false if it is older than what was given back or changed.
    pub(super) fn grant(&mut self, p: PartitionId, fs: FsId, grant: &Grant, asked: u64) -> bool {
        let key = (fs, grant.ino);
        let floor = self.nodes.get(&key).map_or_else(|| self.floor(p, grant.ino), |node| node.floor);
        if grant.seq <= floor || asked < self.marks[slot_of(grant.ino)] {
            return false;
        }
        let version = grant.attr.change;
        let Some(node) = self.nodes.get_mut(&key) else {
            self.stamp += 1;
            self.entries += 1;
            let node = Node {
                partition: p,
                kind: grant.kind,
                seq: grant.seq,
                leaving: None,
                nameless: false,
                floor,
                numbers: grant.numbers,
                is_roomy: grant.roomy,
                attr: grant.attr.clone(),
                stale: false,
                fresh_from: 0,
                names: HashMap::new(),
                complete: grant.empty,
                names_from: if grant.empty { version } else { 0 },
                listing: None,
                stamp: self.stamp,
            };
            self.nodes.insert(key, node);
            self.order.push_back((key, self.stamp));
            return true;
        };
        if grant.seq > node.seq {
            (node.seq, node.kind) = (grant.seq, grant.kind);
        }
        node.is_roomy = grant.roomy;
        if grant.numbers.count > 0 {
            node.numbers = grant.numbers;
        }
        if version >= node.attr.change {
            (node.attr, node.stale) = (grant.attr.clone(), asked < node.fresh_from);
            self.entries -= node.listing.take_if(|listing| !listing.is_of(version)).map_or(0, |old| old.cost());
        }
        if grant.empty {
            self.entries -= node.all_from(version);
        }
        true
    }

    /// True if nothing is held of an inode and lease `seq` could still be taken: the partition counts it all the same.
    pub(super) fn is_unclaimed(&self, p: PartitionId, key: Key, seq: u64) -> bool {
        !self.nodes.contains_key(&key) && seq > self.floor(p, key.1)
    }

    /// Remembers what `name` stood for when its directory was at `version`.
    pub(super) fn name(&mut self, fs: FsId, dir: Ino, name: &[u8], seen: Seen, version: u64) {
        let Some(node) = self.nodes.get_mut(&(fs, dir)) else { return };
        if version < node.names_from {
            return;
        }
        match node.names.get_mut(name) {
            Some(known) if known.version > version => {}
            Some(known) => *known = Name { seen, version },
            None => {
                node.names.insert(name.to_vec(), Name { seen, version });
                self.entries += 1;
            }
        }
    }

    /// All names of a directory at `version` are known from here on.
    pub(super) fn complete(&mut self, fs: FsId, dir: Ino, version: u64) {
        if let Some(node) = self.nodes.get_mut(&(fs, dir)) {
            self.entries -= node.all_from(version);
        }
    }

    /// A page of a directory came that was at `version` then.
    pub(super) fn listed(&mut self, (fs, dir): Key, (cookie, version): (u64, u64), page: &[DirEntry], end: bool) {
        let Some(node) = self.nodes.get_mut(&(fs, dir)).filter(|node| node.attr.change == version) else { return };
        let before = node.listing.take();
        self.entries -= before.as_ref().map_or(0, Listing::cost);
        node.listing = Listing::with(before, version, cookie, page, end);
        self.entries += node.listing.as_ref().map_or(0, Listing::cost);
        if node.listing.as_ref().is_some_and(Listing::is_whole) {
            self.entries -= node.all_from(version);
        }
    }

    /// As [`Listing::after`], if the directory is as it was listed.
    pub(super) fn names_after(&self, key: Key, cookie: u64, limit: usize) -> Option<(Vec<DirEntry>, bool)> {
        let node = self.nodes.get(&key).filter(|node| !node.stale)?;
        node.listing.as_ref().filter(|listing| listing.is_of(node.attr.change))?.after(cookie, limit)
    }

    pub(super) fn attr(&self, key: Key) -> Option<&Attr> {
        self.nodes.get(&key).filter(|node| !node.stale).map(|node| &node.attr)
    }

    /// The attributes are to be asked for anew.
    pub(super) fn refresh(&mut self, key: Key) {
        self.clock += 1;
        if let Some(node) = self.nodes.get_mut(&key) {
            (node.stale, node.fresh_from) = (true, self.clock);
        }
    }

    /// All attributes are to be asked for anew.
    pub(super) fn refresh_all(&mut self) {
        self.clock += 1;
        self.nodes.values_mut().for_each(|node| (node.stale, node.fresh_from) = (true, self.clock));
    }

    /// The attributes of an inode are to be asked for anew, and these names in it, which a kernel may know. The lease and
    /// all else stay.
    pub(super) fn unsure_names(&mut self, key: Key, names: &[&[u8]]) {
        self.refresh(key);
        let Some(node) = self.nodes.get_mut(&key) else { return };
        for name in names {
            match node.names.get_mut(*name) {
                Some(known) => known.seen = Seen::Unknown,
                None => {
                    node.names.insert(name.to_vec(), Name { seen: Seen::Unknown, version: 0 });
                    self.entries += 1;
                }
            }
        }
    }

    /// What a name stands for: `None` if that is not known, `Some(None)` if it is not there.
    pub(super) fn find(&self, fs: FsId, dir: Ino, name: &[u8]) -> Option<Option<Ino>> {
        let node = self.nodes.get(&(fs, dir))?;
        match node.names.get(name) {
            Some(Name { seen: Seen::Ino(ino), .. }) => Some(Some(*ino)),
            Some(Name { seen: Seen::Nothing, .. }) => Some(None),
            Some(Name { seen: Seen::Unknown, .. }) => None,
            // No listing has the parent.
            None => (node.complete && name != b"..").then_some(None),
        }
    }

    /// Forgets an inode. Grants of that lease are not taken any more.
    pub(super) fn remove(&mut self, key: Key) -> Option<Gone> {
        let gone = self.remove_unmarked(key)?;
        self.raise(gone.partition, key, gone.release.seq);
        Some(gone)
    }

    /// Forgets an inode, but not that its lease is gone.
    pub(super) fn remove_unmarked(&mut self, key: Key) -> Option<Gone> {
        let node = self.nodes.remove(&key)?;
        self.entries -= 1 + node.names.len() + node.listing.as_ref().map_or(0, Listing::cost);
        let release = Release { fs: key.0, ino: key.1, seq: node.seq, keep: None };
        Some(Gone { partition: node.partition, release, names: node.names.into_keys().collect() })
    }

    /// Grants of `ino` up to `seq` are not taken any more.
    pub(super) fn raise(&mut self, p: PartitionId, key: Key, seq: u64) {
        if let Some(node) = self.nodes.get_mut(&key) {
            node.floor = seq.max(node.floor);
        }
        if let Some(floors) = self.floors.get_mut(usize::from(p.0)) {
            let floor = &mut floors[slot_of(key.1)];
            *floor = seq.max(*floor);
        }
    }

    /// One of the numbers for files in a directory.
    pub(super) fn take_number(&mut self, dir: Key) -> Option<Ino> {
        let numbers = &mut self.nodes.get_mut(&dir)?.numbers;
        let ino = (numbers.count > 0).then_some(numbers.first)?;
        *numbers = Numbers { first: Ino(ino.0 + 1), count: numbers.count - 1 };
        Some(ino)
    }

    /// The oldest node, if there are too many entries.
    pub(super) fn oldest_over(&mut self) -> Option<Key> {
        if self.entries <= self.entries_max {
            return None;
        }
        for _ in 0..self.order.len() {
            let (key, stamp) = self.order.pop_front()?;
            match self.nodes.get(&key) {
                Some(node) if node.stamp == stamp && node.leaving.is_none() => return Some(key),
                _ => {}
            }
        }
        None
    }

    /// Entries of nodes long gone would make `order` grow for ever: throws them out once they are the majority.
    pub(super) fn tidy(&mut self) {
        if self.order.len() > 64 + 2 * self.nodes.len() {
            let Self { order, nodes, .. } = self;
            order.retain(|(key, stamp)| nodes.get(key).is_some_and(|node| node.stamp == *stamp));
        }
    }

    /// Attributes and names remembered.
    pub(super) fn len(&self) -> usize {
        self.entries
    }

    fn floor(&self, p: PartitionId, ino: Ino) -> u64 {
        self.floors.get(usize::from(p.0)).map_or(u64::MAX, |floors| floors[slot_of(ino)])
    }
}

impl Node {
    /// True if it has one name at most.
    pub(super) fn is_last_name(&self) -> bool {
        self.attr.nlink <= 1
    }

    /// True if no name is in it but such as `is_gone` says are not there any more.
    pub(super) fn is_emptied(&self, is_gone: impl Fn(&[u8]) -> bool) -> bool {
        let is_free = |(name, known): (&Vec<u8>, &Name)| match known.seen {
            Seen::Nothing => true,
            Seen::Ino(_) => is_gone(name),
            Seen::Unknown => false,
        };
        self.complete && self.names.iter().filter(|(name, _)| name.as_slice() != b"..").all(is_free)
    }

    /// From `version` on all names are known; how many older ones went.
    fn all_from(&mut self, version: u64) -> usize {
        if version < self.names_from {
            return 0;
        }
        let before = self.names.len();
        self.names.retain(|_, name| name.version >= version);
        (self.complete, self.names_from) = (true, version);
        before - self.names.len()
    }
}

fn slot_of(ino: Ino) -> usize {
    // Sequence numbers of one virtual partition follow each other: the multiplication spreads both halves.
    (ino.0.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 52) as usize % SLOTS
}

#[cfg(test)]
mod tests {
    use braid_base::attr::FileType;

    use super::*;

    const P: PartitionId = PartitionId(0);
    const FS: FsId = FsId(1);

    fn grant(ino: u64, seq: u64, change: u64) -> Grant {
        let attr = Attr { ino: Ino(ino), change, ..Attr::default() };
        Grant {
            ino: Ino(ino),
            kind: LeaseKind::Shared,
            seq,
            attr,
            empty: false,
            numbers: Numbers::default(),
            roomy: false,
        }
    }

    #[test]
    fn the_oldest_make_room_and_stay_away_until_they_are_granted_anew() {
        let mut cache = Cache { entries_max: 3, ..Cache::new(1) };
        for ino in 1..=3 {
            assert!(cache.grant(P, FS, &grant(ino, ino, 1), 0));
        }
        cache.name(FS, Ino(3), b"a", Seen::Nothing, 1);
        assert_eq!(cache.oldest_over(), Some((FS, Ino(1))));
        let gone = cache.remove((FS, Ino(1))).expect("it is there");
        assert_eq!((gone.release.seq, cache.len(), cache.oldest_over()), (1, 3, None));
        assert!(!cache.grant(P, FS, &grant(1, 1, 9), 0), "said before it was given back");
        assert!(cache.grant(P, FS, &grant(1, 4, 2), 0));
    }

    #[test]
    fn a_listing_is_kept_as_long_as_its_directory_is_like_that() {
        let mut cache = Cache::new(1);
        let page: Vec<DirEntry> = (1..=8)
            .map(|n| DirEntry { ino: Ino(100 + n), kind: FileType::File, cookie: n, name: vec![n as u8], attr: None })
            .collect();
        let listed = |cache: &Cache| cache.names_after((FS, Ino(1)), 0, 99).map(|(names, end)| (names.len(), end));
        cache.grant(P, FS, &grant(1, 1, 5), 0);
        cache.listed((FS, Ino(1)), (0, 4), &page, true);
        assert_eq!(listed(&cache), None, "an older answer comes late");
        cache.listed((FS, Ino(1)), (0, 5), &page[..4], false);
        cache.listed((FS, Ino(1)), (4, 5), &page[4..], true);
        assert_eq!((listed(&cache), cache.len()), (Some((8, true)), 3));
        cache.grant(P, FS, &grant(1, 2, 5), 0);
        assert_eq!(listed(&cache), Some((8, true)), "nothing changed");
        cache.refresh((FS, Ino(1)));
        assert_eq!(listed(&cache), None, "perhaps it changed");
        cache.grant(P, FS, &grant(1, 3, 5), cache.asking());
        assert_eq!(listed(&cache), Some((8, true)), "it did not");
        cache.grant(P, FS, &grant(1, 4, 6), cache.asking());
        assert_eq!((listed(&cache), cache.len()), (None, 1));
        cache.listed((FS, Ino(1)), (0, 6), &page, true);
        assert_eq!(cache.len(), 3);
        cache.remove((FS, Ino(1)));
        assert_eq!((listed(&cache), cache.len()), (None, 0));
    }

    #[test]
    fn of_two_answers_the_newer_counts_in_any_order() {
        let mut cache = Cache::new(1);
        assert!(cache.grant(P, FS, &grant(1, 1, 5), 0));
        cache.name(FS, Ino(1), b"a", Seen::Ino(Ino(7)), 5);
        assert!(cache.grant(P, FS, &grant(1, 1, 4), 0));
        cache.name(FS, Ino(1), b"a", Seen::Nothing, 4);
        assert_eq!(cache.attr((FS, Ino(1))).map(|attr| attr.change), Some(5));
        assert_eq!(cache.find(FS, Ino(1), b"a"), Some(Some(Ino(7))));
        assert_eq!(cache.find(FS, Ino(1), b"b"), None, "never heard of");
        cache.complete(FS, Ino(1), 6);
        assert_eq!(cache.find(FS, Ino(1), b"a"), Some(None), "older than the list without it");
        cache.name(FS, Ino(1), b"b", Seen::Ino(Ino(8)), 5);
        assert_eq!(cache.find(FS, Ino(1), b"b"), Some(None), "an older answer comes late");
        assert_eq!(cache.find(FS, Ino(1), b".."), None, "no list has it");
        assert_eq!(cache.len(), 1);
        let asked = cache.asking();
        cache.outdate(Ino(2));
        assert!(!cache.grant(P, FS, &grant(2, 2, 1), asked), "asked before it was changed");
        assert!(cache.grant(P, FS, &grant(2, 2, 1), cache.asking()));
    }
}
