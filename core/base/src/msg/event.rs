//! Events: what happened that people may want to know of, as hosts keep them and tell each other.

use std::collections::BTreeMap;
use std::fmt;

use serde::{Deserialize, Serialize};

/// How much an event matters.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Severity {
    /// For those who look for a fault of Braid itself; shown only to who asks for it.
    Debug,
    /// Somebody changed something, or all is well again.
    #[default]
    Info,
    /// Something will need attention if it goes on.
    Warning,
    /// A part does not work, and nobody has to hurry.
    Minor,
    /// Something does not work that programs may soon feel.
    Major,
    /// Programs feel it, or data is lost.
    Critical,
}

impl Severity {
    /// All of them, the least first.
    pub const ALL: [Self; 6] = [Self::Debug, Self::Info, Self::Warning, Self::Minor, Self::Major, Self::Critical];

    /// The word for tables, commands and JSON.
    pub fn word(self) -> &'static str {
        match self {
            Self::Debug => "debug",
            Self::Info => "info",
            Self::Warning => "warning",
            Self::Minor => "minor",
            Self::Major => "major",
            Self::Critical => "critical",
        }
    }
}

/// What an event is, by a number that never means anything else. One of a newer release has no row in the table, and is
/// shown by its number.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct EventType(pub u16);

/// What is known of a type of events.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TypeRow {
    /// The type.
    pub kind: EventType,
    /// Its name, as the reference system has it where it has one.
    pub name: &'static str,
    /// What it is about.
    pub category: &'static str,
    /// How much it usually matters.
    pub severity: Severity,
    /// What happened, in one line.
    pub words: &'static str,
}

macro_rules! types {
    ($($number:literal $constant:ident $name:literal $category:literal $severity:ident $words:literal)*) => {
        impl EventType {
            $(#[doc = $words] pub const $constant: Self = Self($number);)*

            /// All that this release knows, ordered by category.
            pub const ALL: &'static [TypeRow] = &[$(TypeRow {
                kind: Self($number),
                name: $name,
                category: $category,
                severity: Severity::$severity,
                words: $words,
            }),*];
        }
    };
}

types! {
    40 HOST_STARTED "HostStarted" "Clustering" Info "A host began to serve."
    41 HOST_UP "HostUp" "Clustering" Info "A host lives that did not before."
    42 HOST_DOWN "HostDown" "Clustering" Major "A host does not say any more that it lives: it was stopped, or is out of reach."
    43 HOST_FAILED "HostFailed" "Clustering" Major "A host was away for long: what it held is made anew elsewhere."
    44 HOST_RECOVERED "HostRecovered" "Clustering" Info "A host that had failed is a part of the cluster again."
    45 HOST_REMOVED "HostRemoved" "Clustering" Info "A host was emptied and taken out of the cluster."
    80 CUSTOM "Custom" "Custom" Info "Somebody told it with `braid events trigger`."
    50 DRIVE_FAILED "DriveFailed" "Drive" Major "A drive was away for long, or failed: what it held is made anew elsewhere."
    51 DRIVE_RECOVERED "DriveRecovered" "Drive" Info "A drive that had failed is used again."
    52 DRIVE_REMOVED "DriveRemoved" "Drive" Info "A drive was emptied and taken out of the cluster."
    53 DRIVE_DOWN "DriveDown" "Drive" Major "A host started without one of its drives, which was not there or did not answer."
    90 EVENTS_LOST "EventsLost" "Events" Warning "More happened at once than a host could note."
    20 FILESYSTEM_ADDED "FilesystemAdded" "Filesystem" Info "A file system was added."
    21 FILESYSTEM_UPDATED "FilesystemUpdated" "Filesystem" Info "A file system was changed."
    22 FILESYSTEM_REMOVED "FilesystemRemoved" "Filesystem" Info "A file system was removed with all that was in it."
    23 GROUP_ADDED "FilesystemGroupAdded" "Filesystem" Info "A group of file systems was added."
    24 GROUP_UPDATED "FilesystemGroupUpdated" "Filesystem" Info "A group of file systems was changed."
    25 GROUP_DELETED "FilesystemGroupDeleted" "Filesystem" Info "A group of file systems was removed."
    26 STORE_ATTACHED "ObjectStoreAttached" "Filesystem" Info "A file system was given an object store."
    27 STORE_DETACHING "ObjectStoreStartedDetaching" "Filesystem" Info
        "An object store is being taken from a file system: what lies there comes back first."
    28 STORE_DETACHED "ObjectStoreFinishedDetaching" "Filesystem" Info
        "Nothing of a file system lies in an object store any more: it is detached."
    29 BREAKING_POLICY "TieredFilesystemBreakingPolicy" "Filesystem" Warning
        "Data left flash before its retention period had passed, because flash is short."
    30 OVERFILLING_SSD "TieredFilesystemOverfillingSSD" "Filesystem" Critical
        "Writes were told that there is no space: flash is full and nothing goes into the object store."
    31 CAPACITY_REACHED "FsCapacityLimitReached" "Filesystem" Major
        "A file system holds all that it may: writes are told that there is no space."
    1 STORE_ADDED "ObjectStoreAdded" "ObjectStorage" Info "An object store was added."
    2 STORE_UPDATED "ObjectStoreUpdated" "ObjectStorage" Info "An object store was changed."
    3 STORE_REMOVED "ObjectStoreRemoved" "ObjectStorage" Info "An object store was removed."
    4 STORE_UP "ObjectStoreStatusUp" "ObjectStorage" Info "A direction of traffic with an object store works again."
    5 STORE_DOWN "ObjectStoreStatusDown" "ObjectStorage" Major
        "A direction of traffic with an object store does not work."
    6 STORE_FULL "ObjectStoreIsFull" "ObjectStorage" Critical "An object store takes no uploads, because it is full."
    7 STORE_HAS_ROOM "ObjectStoreHasRoom" "ObjectStorage" Info "An object store that was full takes uploads again."
    8 OBJECT_MISSING "ObsIsMissingObject" "ObjectStorage" Critical
        "An object is not in its store any more: what of files lies only there cannot be read."
    9 OBJECT_DAMAGED "ChecksumErrorInDownloadedObject" "ObjectStorage" Critical
        "An object is not what was put into its store: some of its blocks cannot be read."
    10 DOWNLOAD_FAILED "DataBlobDownloadFailed" "ObjectStorage" Minor
        "A part of an object could not be read from its store, after all attempts."
    11 UNRECLAIMED "HasHighLevelOfUnreclaimedCapacity" "ObjectStorage" Warning
        "Much of what objects hold is not in use, and has not become less for long."
    12 BOTTLENECK "ObjectStoragePossibleBottleneck" "ObjectStorage" Warning
        "Less goes into an object store than is written: data that is due waits, or flash is short of room."
    13 AUDIT_DIFFERS "ObjectStoreAuditFoundDifferences" "ObjectStorage" Warning
        "What lies in an object store is not what the cluster knows of."
    14 AUDIT_FAILED "ObjectStoreAuditFailed" "ObjectStorage" Warning
        "An object store could not be audited, or not all of it."
    15 STORE_DOUBTED "ObjectStoreInDoubt" "ObjectStorage" Major
        "Objects that should be in a store are not there: what is on flash as well stays there until it was looked for."
    60 PARTITION_SERVED "PartitionServed" "Raft" Debug "A partition is served by another host, or in a new term."
}

impl EventType {
    /// What is known of it; none of one of a newer release.
    pub fn row(self) -> Option<&'static TypeRow> {
        Self::ALL.iter().find(|row| row.kind == self)
    }

    /// The type of that name, in either case.
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.iter().find(|row| row.name.eq_ignore_ascii_case(name)).map(|row| row.kind)
    }

    /// What it is about; `Unknown` of one of a newer release.
    pub fn category(self) -> &'static str {
        self.row().map_or("Unknown", |row| row.category)
    }
}

impl fmt::Display for EventType {
    /// Its name; `Event` and its number of one of a newer release.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.row() {
            Some(row) => f.pad(row.name),
            None => f.pad(&format!("Event{}", self.0)),
        }
    }
}

/// The categories that have types, in order.
pub fn categories() -> Vec<&'static str> {
    let mut all: Vec<&'static str> = EventType::ALL.iter().map(|row| row.category).collect();
    all.sort_unstable();
    all.dedup();
    all
}

/// Something that happened.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Event {
    /// Counts up in the host that keeps it; 0: nobody does yet.
    pub id: u64,
    /// When, milliseconds since 1970, by the clock of that host.
    pub at_ms: u64,
    /// What it is.
    #[serde(rename = "type")]
    pub kind: EventType,
    /// How much it matters.
    pub severity: Severity,
    /// How often it happened: more than once if it stands for repeats of one just before.
    pub count: u64,
    /// One sentence.
    pub text: String,
    /// What it is about, such as `filesystem`, `object_store`, `object`, `host`, with names.
    pub about: BTreeMap<String, String>,
}

/// Longest sentence of an event, and longest name in it, bytes.
pub const TEXT_MAX: usize = 1_024;

impl Event {
    /// One that just happened, once, with the severity that its type has.
    pub fn new(kind: EventType, text: impl Into<String>) -> Self {
        let severity = kind.row().map_or(Severity::Info, |row| row.severity);
        Self { kind, severity, count: 1, text: cut(text.into()), ..Self::default() }
    }

    /// The same about `value` of `name` as well.
    #[must_use]
    pub fn about(mut self, name: &str, value: impl fmt::Display) -> Self {
        self.about.insert(name.to_owned(), cut(value.to_string()));
        self
    }

    /// The same, but it matters as much as `severity` says.
    #[must_use]
    pub fn of_severity(self, severity: Severity) -> Self {
        Self { severity, ..self }
    }
}

/// What of a text is kept.
fn cut(mut text: String) -> String {
    text.truncate(text.floor_char_boundary(TEXT_MAX));
    text
}

/// Which events are wanted.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct EventFilter {
    /// Those that matter so much, and more.
    pub severity: Severity,
    /// Of these types; none: of all, those that are not known included.
    pub types: Option<Vec<EventType>>,
    /// But not of these.
    pub exclude: Vec<EventType>,
    /// From then on, milliseconds since 1970.
    pub from_ms: u64,
    /// Until then, likewise.
    pub until_ms: u64,
    /// About this file system; none: about anything.
    pub filesystem: Option<String>,
    /// At most so many: the newest, or the oldest.
    pub most: u32,
    /// The oldest instead of the newest.
    pub oldest: bool,
}

impl EventFilter {
    /// True if `event` is wanted.
    pub fn wants(&self, event: &Event) -> bool {
        event.severity >= self.severity
            && self.types.as_ref().is_none_or(|types| types.contains(&event.kind))
            && !self.exclude.contains(&event.kind)
            && (self.from_ms..=self.until_ms).contains(&event.at_ms)
            && self.filesystem.as_ref().is_none_or(|name| event.about.get("filesystem") == Some(name))
    }

    /// Of `events` that are wanted, those that are shown: as many as may be, in the order that was asked for. What else
    /// is known of each (`T`) goes with it.
    pub fn pick<T: Ord>(&self, mut events: Vec<(T, Event)>) -> Vec<(T, Event)> {
        // Of one moment those of one host stay in their order.
        events.sort_by(|(a, one), (b, two)| (one.at_ms, a, one.id).cmp(&(two.at_ms, b, two.id)));
        if !self.oldest {
            events.reverse();
        }
        events.truncate(usize::try_from(self.most).unwrap_or(usize::MAX));
        events
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::{Event, EventFilter, EventType, Severity, TEXT_MAX, categories};

    #[test]
    fn numbers_and_names_are_given_once() {
        let (rows, of) = (EventType::ALL, |part: fn(&super::TypeRow) -> String| -> BTreeSet<String> {
            EventType::ALL.iter().map(part).collect()
        });
        assert_eq!(of(|row| row.kind.0.to_string()).len(), rows.len());
        assert_eq!(of(|row| row.name.to_ascii_lowercase()).len(), rows.len());
        assert!(rows.is_sorted_by_key(|row| row.category), "as they are listed");
        for row in rows {
            assert_eq!(EventType::named(&row.name.to_ascii_lowercase()), Some(row.kind));
            assert_eq!((row.kind.to_string().as_str(), row.kind.category()), (row.name, row.category));
            assert!(row.words.ends_with('.') && row.kind.0 != 0, "{}", row.name);
        }
        assert!(categories().contains(&"ObjectStorage") && categories().is_sorted());
        // On disk: they never mean anything else.
        assert_eq!((EventType::STORE_DOWN.0, EventType::BREAKING_POLICY.0, EventType::CUSTOM.0), (5, 29, 80));
        assert!(Severity::ALL.is_sorted() && Severity::ALL[5] == Severity::Critical);
    }

    #[test]
    fn what_a_newer_release_tells_can_be_shown() {
        let newer = EventType(60_000);
        assert_eq!((newer.to_string().as_str(), newer.category(), newer.row()), ("Event60000", "Unknown", None));
        let filter = EventFilter { until_ms: 9, severity: Severity::Major, ..EventFilter::default() };
        assert!(filter.wants(&Event::new(newer, "x").of_severity(Severity::Critical)));
    }

    #[test]
    fn texts_are_bounded_at_a_letter() {
        let event = Event::new(EventType::CUSTOM, "ä".repeat(TEXT_MAX)).about("host", "x".repeat(9_999));
        assert_eq!((event.text.len(), event.about["host"].len()), (TEXT_MAX, TEXT_MAX));
        assert_eq!(Event::new(EventType::CUSTOM, "x".to_owned() + &"ä".repeat(TEXT_MAX)).text.len(), TEXT_MAX - 1);
    }

    #[test]
    fn filters() {
        let all = EventFilter { until_ms: 100, ..EventFilter::default() };
        let event = |kind, at_ms| Event { at_ms, ..Event::new(kind, "x").about("filesystem", "one") };
        let (down, served) = (event(EventType::STORE_DOWN, 50), event(EventType::PARTITION_SERVED, 50));
        assert!(all.wants(&down) && !all.wants(&served), "what is internal is to be asked for");
        assert!(EventFilter { severity: Severity::Debug, ..all.clone() }.wants(&served));
        let wanted = |filter: EventFilter| filter.wants(&down);
        assert!(wanted(EventFilter { severity: Severity::Major, ..all.clone() }));
        assert!(!wanted(EventFilter { severity: Severity::Critical, ..all.clone() }));
        assert!(wanted(EventFilter { types: Some(vec![EventType::STORE_DOWN]), ..all.clone() }));
        assert!(!wanted(EventFilter { types: Some(vec![EventType::STORE_UP]), ..all.clone() }));
        assert!(!wanted(EventFilter { exclude: vec![EventType::STORE_DOWN], ..all.clone() }));
        assert!(wanted(EventFilter { from_ms: 50, until_ms: 50, ..all.clone() }));
        assert!(
            !wanted(EventFilter { from_ms: 51, ..all.clone() }) && !wanted(EventFilter { until_ms: 49, ..all.clone() })
        );
        assert!(wanted(EventFilter { filesystem: Some("one".to_owned()), ..all.clone() }));
        assert!(!wanted(EventFilter { filesystem: Some("two".to_owned()), ..all }));
    }

    #[test]
    fn the_newest_or_the_oldest_of_all_hosts_are_picked() {
        let event = |id, at_ms| Event { id, at_ms, ..Event::new(EventType::CUSTOM, "x") };
        let told =
            vec![("b", event(1, 5)), ("a", event(7, 5)), ("a", event(8, 5)), ("a", event(9, 3)), ("b", event(2, 9))];
        let ids = |oldest, most| -> Vec<u64> {
            let filter = EventFilter { oldest, most, ..EventFilter::default() };
            filter.pick(told.clone()).iter().map(|(_, event)| event.id).collect()
        };
        assert_eq!((ids(true, 9), ids(false, 9)), (vec![9, 7, 8, 1, 2], vec![2, 1, 8, 7, 9]));
        assert_eq!((ids(true, 2), ids(false, 2)), (vec![9, 7], vec![2, 1]));
    }
}
