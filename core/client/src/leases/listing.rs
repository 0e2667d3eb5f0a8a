//! What a directory was listed as, in the order of cookies: as long as it is as it was then, it need not be asked for
//! again. A listing comes in pages, for a program or ahead of one; what is kept begins at the first name.

use braid_base::attr::FileType;
use braid_base::ids::Ino;
use braid_base::msg::fs::DirEntry;

/// Names of one directory; what follows in larger ones is asked for.
const NAMES_MAX: usize = 1 << 14;
/// So many of them take as much memory as one inode with its attributes.
const PER_ENTRY: usize = 4;

struct Listed {
    ino: Ino,
    kind: FileType,
    cookie: u64,
    name: Box<[u8]>,
}

/// The first names of a directory.
pub(super) struct Listing {
    /// The directory's `change` when it was listed.
    version: u64,
    names: Vec<Listed>,
    /// There are no others.
    end: bool,
}

impl Listing {
    /// What is known after a page with the names behind `cookie` came, if it adds to what was known `before`.
    pub(super) fn with(before: Option<Self>, version: u64, cookie: u64, page: &[DirEntry], end: bool) -> Option<Self> {
        let begins = || (cookie == 0).then(|| Self { version, names: Vec::new(), end: false });
        let goes_on = |old: &Self| old.version == version && !old.end && old.last() == cookie && cookie > 0;
        let mut listing = match before {
            Some(old) if goes_on(&old) => old,
            // Of what is known already it says nothing new.
            Some(old) if old.version >= version => return Some(old),
            _ => begins()?,
        };
        let room = NAMES_MAX.saturating_sub(listing.names.len());
        let names = page.iter().take(room).map(|entry| Listed {
            ino: entry.ino,
            kind: entry.kind,
            cookie: entry.cookie,
            name: entry.name.as_slice().into(),
        });
        listing.names.extend(names);
        listing.end = end && page.len() <= room;
        Some(listing)
    }

    /// True if it is how a directory with this `change` is.
    pub(super) fn is_of(&self, version: u64) -> bool {
        self.version == version
    }

    /// True if it has all names.
    pub(super) fn is_whole(&self) -> bool {
        self.end
    }

    /// Up to `limit` names behind `cookie`, without attributes, and whether the end was reached; `None` if the next one is
    /// not known.
    pub(super) fn after(&self, cookie: u64, limit: usize) -> Option<(Vec<DirEntry>, bool)> {
        let rest = &self.names[self.names.partition_point(|known| known.cookie <= cookie)..];
        let page = &rest[..limit.min(rest.len())];
        if page.is_empty() && !self.end {
            return None;
        }
        let entry = |known: &Listed| DirEntry {
            ino: known.ino,
            kind: known.kind,
            cookie: known.cookie,
            name: known.name.to_vec(),
            attr: None,
        };
        Some((page.iter().map(entry).collect(), self.end && page.len() == rest.len()))
    }

    /// What it takes of the memory for attributes and names, in entries.
    pub(super) fn cost(&self) -> usize {
        self.names.len() / PER_ENTRY
    }

    fn last(&self) -> u64 {
        self.names.last().map_or(0, |known| known.cookie)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn page(cookies: std::ops::RangeInclusive<u64>) -> Vec<DirEntry> {
        let entry = |cookie: u64| DirEntry {
            ino: Ino(100 + cookie),
            kind: FileType::File,
            cookie: 10 * cookie,
            name: cookie.to_string().into_bytes(),
            attr: None,
        };
        cookies.map(entry).collect()
    }

    fn cookies(found: Option<(Vec<DirEntry>, bool)>) -> Option<(Vec<u64>, bool)> {
        found.map(|(names, end)| (names.iter().map(|name| name.cookie).collect(), end))
    }

    #[test]
    fn pages_that_follow_each_other_are_one_listing() {
        let first = Listing::with(None, 7, 0, &page(1..=3), false).expect("it begins at the first name");
        assert_eq!(cookies(first.after(0, 2)), Some((vec![10, 20], false)));
        assert_eq!(cookies(first.after(20, 9)), Some((vec![30], false)));
        assert_eq!(cookies(first.after(30, 9)), None, "what follows is not known");
        let all = Listing::with(Some(first), 7, 30, &page(4..=5), true).expect("it goes on");
        assert_eq!(cookies(all.after(25, 2)), Some((vec![30, 40], false)));
        assert_eq!(cookies(all.after(25, 3)), Some((vec![30, 40, 50], true)));
        assert_eq!(cookies(all.after(50, 3)), Some((vec![], true)));
        assert!(all.is_of(7) && !all.is_of(8));
    }

    #[test]
    fn what_was_listed_of_another_state_is_no_part_of_it() {
        assert!(Listing::with(None, 7, 10, &page(2..=3), true).is_none(), "the first names are not known");
        let first = || Listing::with(None, 7, 0, &page(1..=3), false);
        assert!(Listing::with(first(), 8, 30, &page(4..=5), true).is_none());
        let anew = Listing::with(first(), 8, 0, &page(2..=3), true).expect("it begins at the first name");
        assert!(anew.is_of(8));
        assert_eq!(cookies(anew.after(0, 9)), Some((vec![20, 30], true)));
        let old = Listing::with(Some(anew), 7, 0, &page(1..=1), true).expect("the newer one counts");
        assert_eq!(cookies(old.after(0, 9)), Some((vec![20, 30], true)));
        let gap = Listing::with(first(), 7, 40, &page(5..=5), true).expect("as before");
        assert_eq!(cookies(gap.after(30, 9)), None);
    }

    #[test]
    fn of_a_large_directory_the_first_names_are_kept() {
        let most = NAMES_MAX as u64;
        let all = Listing::with(None, 7, 0, &page(1..=most + 1), true).expect("it begins at the first name");
        assert_eq!(all.names.len(), NAMES_MAX);
        assert_eq!(cookies(all.after(10 * most, 9)), None);
    }
}
