//! Events: what an administrator asks for, and the answers of all hosts as one list.

use braid_base::ids::HostId;
use braid_base::limits::EVENTS_MAX;
use braid_base::msg::event::{self, Event, EventFilter, EventType, Severity};
use braid_base::{Error, ErrorKind, Result};

use crate::snapshot::Snapshot;
use crate::stores::seen;
use crate::view::events::{EventQuery, EventTypeView, EventView, EventsView};

mod moment;

/// Events that are shown if nothing else is said.
const USUAL: u32 = 50;

/// What `query` asks for at `now_ms`, milliseconds since 1970.
///
/// Errors: `Invalid`, with what there is where something else was asked for.
pub fn filter(query: &EventQuery, now_ms: u64) -> Result<EventFilter> {
    let severity = match &query.severity {
        Some(word) => severity(word)?,
        None if query.show_internal => Severity::Debug,
        None => Severity::Info,
    };
    let (categories, types) = (categories(query.category.as_deref())?, types(query.kind.as_deref())?);
    let of = |category: &str| categories.is_empty() || categories.contains(&category);
    let narrowed = !categories.is_empty() || !types.is_empty();
    let chosen = EventType::ALL.iter().filter(|row| of(row.category)).map(|row| row.kind);
    let chosen = chosen.filter(|kind| types.is_empty() || types.contains(kind)).collect();
    let at = |text: &Option<String>| text.as_ref().map(|text| moment::parse(text, now_ms)).transpose();
    let (from_ms, until_ms) = (at(&query.start_time)?.unwrap_or(0), at(&query.end_time)?.unwrap_or(u64::MAX));
    if from_ms > until_ms {
        return Err(invalid("the start time is after the end time: nothing can be between them".to_owned()));
    }
    let most = query.num_results.unwrap_or(USUAL);
    if !(1..=EVENTS_MAX).contains(&most) {
        return Err(invalid(format!("1 to {EVENTS_MAX} events are shown at a time, not {most}")));
    }
    Ok(EventFilter {
        severity,
        types: narrowed.then_some(chosen),
        exclude: self::types(query.exclude_type.as_deref())?,
        from_ms,
        until_ms,
        filesystem: query.filesystem.clone(),
        most,
        oldest: oldest(query.direction.as_deref().unwrap_or("desc"))?,
    })
}

/// What the hosts answered to `filter`, as one list; `now` tells what they are called. Those that live and did not answer
/// are named, unless only one was asked (`local`).
pub fn view(
    now: &Snapshot,
    filter: &EventFilter,
    told: Vec<(HostId, Result<Vec<Event>>)>,
    local: bool,
) -> Result<EventsView> {
    let (mut events, mut answered) = (Vec::new(), Vec::new());
    for (host, answer) in told {
        match answer {
            Ok(its) => {
                answered.push(host);
                events.extend(its.into_iter().map(|event| (host, event)));
            }
            Err(error) if local => return Err(error),
            Err(error) => tracing::warn!("host {host} tells of no events: {error}"),
        }
    }
    // Those that are down, too: what one wants to know may be theirs.
    let silent = now.hosts.iter().filter(|host| !local && !answered.contains(&host.id));
    let silent_hosts = silent.map(|host| host.name.clone()).collect();
    let shown = filter.pick(events).into_iter().map(|(host, event)| one(seen::host_name(now, host), event));
    Ok(EventsView { events: shown.collect(), silent_hosts })
}

/// The types of events that there are, ordered by category.
pub fn known() -> Vec<EventTypeView> {
    let view = |row: &event::TypeRow| EventTypeView {
        name: row.name.to_owned(),
        category: row.category.to_owned(),
        severity: row.severity.word().to_owned(),
        description: row.words.to_owned(),
    };
    EventType::ALL.iter().map(view).collect()
}

/// An event that somebody tells in his own words.
///
/// Errors: `Invalid`: there are none, or too many.
pub fn custom(text: &str) -> Result<Event> {
    let text = text.trim();
    if text.is_empty() || text.len() > event::TEXT_MAX {
        let (most, found) = (event::TEXT_MAX, text.len());
        return Err(invalid(format!("a text of 1 to {most} bytes expected, found {found}")));
    }
    if text.chars().any(char::is_control) {
        return Err(invalid("a text in one line expected, found control characters in it".to_owned()));
    }
    Ok(Event::new(EventType::CUSTOM, text))
}

fn one(host: String, event: Event) -> EventView {
    EventView {
        id: event.id,
        at_ms: event.at_ms,
        severity: event.severity.word().to_owned(),
        category: event.kind.category().to_owned(),
        kind: event.kind.to_string(),
        host,
        count: event.count,
        text: event.text,
        about: event.about,
    }
}

fn severity(word: &str) -> Result<Severity> {
    let found = Severity::ALL.into_iter().find(|severity| severity.word().eq_ignore_ascii_case(word));
    found.ok_or_else(|| no_such("severity", word, Severity::ALL.map(Severity::word).to_vec()))
}

fn categories(list: Option<&str>) -> Result<Vec<&'static str>> {
    let known = event::categories();
    let find = |word| {
        let found = known.iter().find(|category| category.eq_ignore_ascii_case(word));
        found.copied().ok_or_else(|| no_such("category", word, known.clone()))
    };
    words(list).map(find).collect()
}

fn types(list: Option<&str>) -> Result<Vec<EventType>> {
    let names = || EventType::ALL.iter().map(|row| row.name).collect();
    words(list).map(|word| EventType::named(word).ok_or_else(|| no_such("type of events", word, names()))).collect()
}

fn oldest(direction: &str) -> Result<bool> {
    match direction.to_ascii_lowercase().as_str() {
        "asc" => Ok(true),
        "desc" | "dsc" => Ok(false),
        _ => Err(no_such("direction", direction, vec!["asc", "desc"])),
    }
}

fn words(list: Option<&str>) -> impl Iterator<Item = &str> {
    list.unwrap_or_default().split(',').map(str::trim).filter(|word| !word.is_empty())
}

/// There is no such word: what there is, the most similar first.
fn no_such(what: &str, word: &str, mut known: Vec<&'static str>) -> Error {
    known.sort_by_key(|known| (distance(&known.to_ascii_lowercase(), &word.to_ascii_lowercase()), *known));
    invalid(format!("there is no {what} {word:?}; there are {}", known.join(", ")))
}

/// How many letters must be changed, added or taken away to make one word of the other.
fn distance(one: &str, other: &str) -> usize {
    let mut row: Vec<usize> = (0..=other.chars().count()).collect();
    for (at, a) in one.chars().enumerate() {
        let mut before = std::mem::replace(&mut row[0], at + 1);
        for (column, b) in other.chars().enumerate() {
            let changed = before + usize::from(a != b);
            before = row[column + 1];
            row[column + 1] = changed.min(before + 1).min(row[column] + 1);
        }
    }
    row[row.len() - 1]
}

fn invalid(text: String) -> Error {
    Error::new(ErrorKind::Invalid, text)
}

#[cfg(test)]
mod tests {
    use braid_base::ErrorKind;
    use braid_base::ids::HostId;
    use braid_base::msg::event::{Event, EventType, Severity};

    use super::{custom, distance, filter, known, view};
    use crate::facts::Host;
    use crate::records;
    use crate::snapshot::Snapshot;
    use crate::view::events::EventQuery;

    const NOW_MS: u64 = 1_700_000_000_000;

    fn text(text: &str) -> Option<String> {
        Some(text.to_owned())
    }

    fn refused(query: EventQuery) -> String {
        let error = filter(&query, NOW_MS).expect_err("it makes no sense");
        assert_eq!(error.kind(), ErrorKind::Invalid);
        error.message().to_owned()
    }

    #[test]
    fn queries() {
        let usual = filter(&EventQuery::default(), NOW_MS).expect("all of it");
        assert_eq!((usual.severity, usual.most, usual.oldest, usual.types), (Severity::Info, 50, false, None));
        assert_eq!((usual.from_ms, usual.until_ms), (0, u64::MAX));
        let internal = EventQuery { show_internal: true, ..EventQuery::default() };
        assert_eq!(filter(&internal, NOW_MS).expect("all").severity, Severity::Debug);
        let some = EventQuery {
            severity: text("Major"),
            category: text("objectstorage, Drive"),
            kind: text("ObjectStoreStatusDown,DriveFailed,Custom"),
            exclude_type: text("drivefailed"),
            start_time: text("1h"),
            num_results: Some(7),
            direction: text("asc"),
            ..EventQuery::default()
        };
        let some = filter(&some, NOW_MS).expect("some");
        let mut types = some.types.expect("named");
        types.sort();
        assert_eq!(types, [EventType::STORE_DOWN, EventType::DRIVE_FAILED]);
        assert_eq!((some.severity, some.most, some.oldest), (Severity::Major, 7, true));
        assert_eq!((some.exclude, some.from_ms), (vec![EventType::DRIVE_FAILED], NOW_MS - 3_600_000));
        let none = EventQuery { category: text("Drive"), kind: text("Custom"), ..EventQuery::default() };
        assert_eq!(filter(&none, NOW_MS).expect("nothing").types, Some(Vec::new()), "not all");
    }

    #[test]
    fn mistakes_are_told_with_what_there_is() {
        let said = refused(EventQuery { kind: text("ObjectStoreDown"), ..EventQuery::default() });
        assert!(said.contains("no type of events \"ObjectStoreDown\"; there are ObjectStore"), "{said}");
        let said = refused(EventQuery { kind: text("FilesystemAded"), ..EventQuery::default() });
        assert!(said.contains("there are FilesystemAdded, "), "{said}");
        let said = refused(EventQuery { category: text("Drives"), ..EventQuery::default() });
        assert!(said.contains("there are Drive, "), "{said}");
        let said = refused(EventQuery { severity: text("mayor"), ..EventQuery::default() });
        assert!(said.contains("there are major, minor, "), "{said}");
        let said = refused(EventQuery { direction: text("up"), ..EventQuery::default() });
        assert!(said.contains("asc") && said.contains("desc"), "{said}");
        let said = refused(EventQuery { num_results: Some(0), ..EventQuery::default() });
        assert!(said.contains("1 to 1000"), "{said}");
        let said = refused(EventQuery { start_time: text("1h"), end_time: text("2h"), ..EventQuery::default() });
        assert!(said.contains("after the end"), "{said}");
        refused(EventQuery { end_time: text("yesterday"), ..EventQuery::default() });
        assert_eq!((distance("", "abc"), distance("abc", "abc"), distance("kitten", "sitting")), (3, 0, 3));
    }

    #[test]
    fn hosts_are_one_list_and_the_silent_are_named() {
        let host = |id: u32, name: &str| -> Host {
            let text = format!(
                r#"{{"version":1,"id":{id},"name":"{name}","addresses":[],"domain":"","state":"active","joined_s":0}}"#
            );
            records::decode(name, text.as_bytes()).expect("a host")
        };
        // The last one is down.
        let (live, hosts) = (vec![HostId(1), HostId(2)], vec![host(1, "a"), host(2, "b"), host(3, "c")]);
        let now = Snapshot { live, hosts, ..Snapshot::default() };
        let event = |id, at_ms, kind| Event { id, at_ms, ..Event::new(kind, "x").about("drive", "d1") };
        let told = || {
            let failed = braid_base::Error::from(ErrorKind::Unsupported);
            let (one, two) = (event(1, 10, EventType::DRIVE_FAILED), event(7, 20, EventType(60_000)));
            vec![(HostId(1), Ok(vec![one])), (HostId(2), Ok(vec![two])), (HostId(3), Err(failed))]
        };
        let all = filter(&EventQuery::default(), NOW_MS).expect("all");
        let both = view(&now, &all, told(), false).expect("told");
        assert_eq!(both.silent_hosts, ["c"]);
        let rows: Vec<(&str, &str, &str, &str)> = both
            .events
            .iter()
            .map(|e| (e.host.as_str(), e.kind.as_str(), e.category.as_str(), e.severity.as_str()))
            .collect();
        assert_eq!(rows, [("b", "Event60000", "Unknown", "info"), ("a", "DriveFailed", "Drive", "major")]);
        assert_eq!(both.events[1].about["drive"], "d1");
        assert!(view(&now, &all, told(), true).is_err(), "who asks one host hears why it tells nothing");
    }

    #[test]
    fn types_and_custom_events() {
        assert_eq!(known().len(), EventType::ALL.len());
        assert_eq!(custom(" hello ").expect("a text").text, "hello");
        assert!(custom(" ").is_err() && custom(&"x".repeat(2_000)).is_err());
    }
}
