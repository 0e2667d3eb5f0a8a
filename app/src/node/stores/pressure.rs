//! File systems whose object store is slower than what is written to them, and those that are full: people are told.

use std::collections::{BTreeMap, BTreeSet};

use braid_base::ids::{FsId, Term};
use braid_base::msg::event::{Event, EventType};
use braid_base::msg::host::{SeatReport, Tiering};
use braid_cluster::facts::{Filesystem, Mode};
use braid_cluster::snapshot::Snapshot;
use braid_host::run::Host;

use crate::node::views::now_s;

/// How often it is looked at, milliseconds: partitions of all hosts are asked.
const LOOK_MS: u64 = 10_000;
/// How long a store has to be too slow before that is told, milliseconds.
const LONG_MS: u64 = 60_000;
/// What is ripe may be found, and go, so much later than it should, seconds.
const LATE_S: u64 = 60;
/// A file system is full when less than this is free, bytes, or a tenth of a per cent of what it may hold if that is less; and
/// not any more below so many per cent.
const FULL_BYTES: u64 = 4 << 20;
const ROOM_PERCENT: u64 = 95;

/// What was seen.
#[derive(Default)]
pub(super) struct Pressure {
    looked_ms: u64,
    /// Those whose store is too slow: since when, and whether it was told.
    slow: BTreeMap<FsId, (u64, bool)>,
    full: BTreeSet<FsId>,
}

impl Pressure {
    /// Looks, if it is time to, and tells what is new.
    pub(super) async fn look(&mut self, host: &Host, now: &Snapshot) {
        let now_ms = braid_io::clock::mono_ms();
        let matters = |fs: &Filesystem| !fs.stores.is_empty() || fs.total_bytes.is_some();
        if now_ms < self.looked_ms + LOOK_MS || !now.filesystems.iter().any(matters) {
            return;
        }
        self.looked_ms = now_ms;
        let reports = host.partitions().await;
        self.seen(now, &reports, (now_ms, now_s())).into_iter().for_each(|event| host.event_log().tell(event));
    }

    /// What is to be told of what partitions say.
    fn seen(&mut self, now: &Snapshot, reports: &[SeatReport], (now_ms, now_s): (u64, u64)) -> Vec<Event> {
        let served: Vec<&SeatReport> = reports.iter().filter(|report| report.term != Term(0)).collect();
        let mut news = Vec::new();
        self.slow.retain(|fs, _| now.filesystems.iter().any(|known| known.id == *fs));
        self.full.retain(|fs| now.filesystems.iter().any(|known| known.id == *fs));
        for fs in &now.filesystems {
            let used = served.iter().filter_map(|report| report.data.used_by_fs.get(&fs.id)).sum();
            news.extend(self.holds(fs, used));
            let parts: Vec<Tiering> =
                served.iter().filter_map(|report| report.data.tiering.get(&fs.id)).copied().collect();
            if !is_slow(now, fs, &parts, now_s) {
                self.slow.remove(&fs.id);
                continue;
            }
            let (since_ms, told) = self.slow.entry(fs.id).or_insert((now_ms, false));
            if now_ms >= *since_ms + LONG_MS && !std::mem::replace(told, true) {
                news.push(slow(now, fs, &parts));
            }
        }
        news
    }

    /// The file system holds so many bytes.
    fn holds(&mut self, fs: &Filesystem, used: u64) -> Option<Event> {
        let most = fs.total_bytes?;
        if u128::from(used) * 100 < u128::from(most) * u128::from(ROOM_PERCENT) {
            self.full.remove(&fs.id);
        }
        if most.saturating_sub(used) >= FULL_BYTES.min(most / 1_000) || !self.full.insert(fs.id) {
            return None;
        }
        let text = format!(
            "file system {} is full: it may hold {most} bytes and holds {used}; delete something, or give it more with \
             `braid fs update --total-capacity`",
            fs.name
        );
        Some(Event::new(EventType::CAPACITY_REACHED, text).about("filesystem", &fs.name))
    }
}

/// True if data waits for the object store of `fs` that should have gone there.
fn is_slow(now: &Snapshot, fs: &Filesystem, parts: &[Tiering], now_s: u64) -> bool {
    if !fs.stores.iter().any(|store| store.mode == Mode::Writable && !store.detaching) {
        return false;
    }
    let cue_s = now.groups.iter().find(|group| group.name == fs.group).map_or(0, |group| group.start_demote_s);
    // What does not fill an object waits as long again for more.
    let late = |due_s: u32| now_s > u64::from(due_s) + 2 * cue_s + LATE_S;
    parts.iter().any(|part| part.waiting > 0 || (part.short && part.due > 0) || part.due_s.is_some_and(late))
}

fn slow(now: &Snapshot, fs: &Filesystem, parts: &[Tiering]) -> Event {
    let to = fs.stores.iter().find(|store| store.mode == Mode::Writable && !store.detaching).map(|store| store.store);
    let known = now.object_stores.iter().find(|store| Some(store.id) == to).map_or("?", |store| store.name.as_str());
    let due: u64 = parts.iter().map(|part| part.due).sum();
    let what = match (parts.iter().map(|part| part.waiting).sum::<u64>(), parts.iter().any(|part| part.short)) {
        (0, false) => "what is due waits for long".to_owned(),
        (0, true) => "its flash is short".to_owned(),
        (writes, _) => format!("{writes} writes wait for room on flash"),
    };
    let text = format!(
        "file system {}: {what}, because less goes into object store {known} than is written; {due} bytes are due: see \
         `braid fs tier` and `braid fs tier ops`",
        fs.name
    );
    Event::new(EventType::BOTTLENECK, text).about("filesystem", &fs.name).about("object_store", known)
}

#[cfg(test)]
mod tests {
    use braid_base::ids::{FsId, Guid, StoreId, Term, Vp};
    use braid_base::msg::event::{Event, EventType};
    use braid_base::msg::host::{SeatData, SeatReport, Tiering};
    use braid_cluster::facts::{Attachment, Filesystem, Group, Mode};
    use braid_cluster::snapshot::Snapshot;

    use super::{LATE_S, LONG_MS, Pressure};

    const FS: FsId = FsId(7);
    const GIB: u64 = 1 << 30;

    fn now(total_bytes: Option<u64>) -> Snapshot {
        let text = r#"{"store":1,"mode":"writable","detaching":false,"attached_s":0}"#;
        let attached: Attachment = serde_json::from_str(text).expect("an attachment");
        assert_eq!((attached.store, attached.mode), (StoreId(1), Mode::Writable));
        let fs = Filesystem {
            id: FS,
            uuid: Guid([1; 16]),
            name: "one".to_owned(),
            group: "g".to_owned(),
            total_bytes,
            root_vp: Vp(0),
            created_s: 0,
            removing: false,
            ssd_bytes: None,
            object_mib: 64,
            stores: vec![attached],
        };
        let group = Group { name: "g".to_owned(), target_ssd_retention_s: 1_000, start_demote_s: 100 };
        Snapshot { filesystems: vec![fs], groups: vec![group], ..Snapshot::default() }
    }

    fn report(used: u64, tiering: Tiering) -> SeatReport {
        let data = SeatData { used_by_fs: [(FS, used)].into(), tiering: [(FS, tiering)].into(), ..SeatData::default() };
        SeatReport { term: Term(1), data, ..SeatReport::default() }
    }

    fn kinds(events: &[Event]) -> Vec<EventType> {
        events.iter().map(|event| event.kind).collect()
    }

    #[test]
    fn a_store_that_is_too_slow_is_told_once_after_a_while() {
        let (mut seen, now) = (Pressure::default(), now(None));
        let mut told = |part, at_ms, at_s| seen.seen(&now, &[report(0, part)], (at_ms, at_s));
        let due = Tiering { due: 5, due_s: Some(1_000), ..Tiering::default() };
        assert!(told(due, 0, 1_200 + LATE_S).is_empty() && told(due, 2 * LONG_MS, 1_200 + LATE_S).is_empty());
        assert!(told(due, 2 * LONG_MS, 1_201 + LATE_S).is_empty() && told(due, 3 * LONG_MS - 1, 9_999).is_empty());
        let events = told(due, 3 * LONG_MS, 9_999);
        assert_eq!(kinds(&events), [EventType::BOTTLENECK]);
        assert!(events[0].text.contains("what is due waits for long") && events[0].about["filesystem"] == "one");
        assert!(told(due, 9 * LONG_MS, 9_999).is_empty(), "once");
        assert!(told(Tiering::default(), 10 * LONG_MS, 9_999).is_empty());
        let short = Tiering { short: true, due: 5, ..Tiering::default() };
        assert!(told(short, 11 * LONG_MS, 1).is_empty());
        assert!(told(short, 12 * LONG_MS, 1)[0].text.contains("its flash is short"));
        // What is read fills flash as well: no store is too slow for that.
        let cached = Tiering { short: true, ..Tiering::default() };
        assert!(told(cached, 13 * LONG_MS, 1).is_empty() && told(cached, 15 * LONG_MS, 1).is_empty());
        let waits = Tiering { waiting: 3, ..Tiering::default() };
        assert!(told(waits, 16 * LONG_MS, 1).is_empty());
        assert!(told(waits, 17 * LONG_MS, 1)[0].text.contains("3 writes wait"));
    }

    #[test]
    fn a_file_system_is_full_once_until_it_has_room() {
        let (mut seen, now) = (Pressure::default(), now(Some(GIB)));
        let mut told = |used| kinds(&seen.seen(&now, &[report(used, Tiering::default())], (0, 0)));
        assert!(told(GIB - GIB / 1_000).is_empty());
        assert_eq!(told(GIB - GIB / 1_000 + 1), [EventType::CAPACITY_REACHED]);
        assert!(told(GIB).is_empty() && told(GIB * 96 / 100).is_empty() && told(GIB + 5).is_empty(), "once");
        assert!(told(GIB * 94 / 100).is_empty());
        assert_eq!(told(GIB), [EventType::CAPACITY_REACHED]);
    }
}
