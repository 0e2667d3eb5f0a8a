//! `braid fs tier explain`: where a file is and why, what a read of it costs, and when it moves next.

use std::path::{Path, PathBuf};

use braid_base::limits::OBJECT_READ_MAX;
use braid_cluster::facts::Mode;
use braid_cluster::view::GroupView;
use braid_cluster::view::stores::{LinkView, ObjectStoreView};
use clap::Args;
use serde::Serialize;

use crate::exit::{FAILURE, Failure, Outcome};
use crate::measure::size;
use crate::out;
use crate::residence::{self, Ages, Location};
use crate::whole::Whole;
use crate::whose::Whose;

mod moves;

#[derive(Args, Debug)]
pub struct Explain {
    /// A file on a mount of Braid; a link is not followed
    path: PathBuf,
}

/// By what rules a file moves, and what is in their way.
#[derive(Clone, Debug, Default, Serialize)]
struct Rules {
    filesystem: String,
    group: String,
    /// The store that takes data, if there is one.
    store: Option<String>,
    /// Some store holds data of the file system.
    has_store: bool,
    /// Those that are being detached.
    detaching: Vec<String>,
    start_demote_s: u64,
    target_ssd_retention_s: u64,
    /// Flash of the file system is short.
    flash_short: bool,
    /// Since when data of the file system is due that has not gone into an object, seconds since 1970: the oldest of it.
    due_since_s: Option<u64>,
    /// Why the store takes nothing now.
    uploads_stopped: Option<String>,
    /// Which stores cannot be read now, and why.
    downloads_stopped: Vec<String>,
}

/// What is known, for programs.
#[derive(Serialize)]
struct Known<'a> {
    path: &'a Path,
    #[serde(flatten)]
    found: &'a Location,
    /// Bytes that a read of the whole file brings back.
    recall_bytes: u64,
    /// Requests of at most 4 MiB to the store for that; at least so many.
    recall_requests: u64,
    /// From when its bytes count; none: the mount does not say.
    ages: Option<&'a Ages>,
    rules: Option<&'a Rules>,
    /// Seconds until something of it is copied into an object: at the earliest and at the latest.
    demote_in_s: Option<(u64, u64)>,
    /// Seconds until something of it that is in objects, too, leaves flash, if flash does not run short.
    release_in_s: Option<u64>,
}

pub fn run(whole: &Whole, explain: &Explain) -> Outcome {
    let path = &explain.path;
    let failed = |reason: String| Failure { code: FAILURE, message: format!("{}: {reason}", path.display()) };
    let found = residence::location(path).map_err(failed)?;
    // Without a word from the cluster what is known from the mount is said all the same.
    let (ages, rules) = (residence::ages(path).ok(), rules(whole, path));
    let when = |of: fn(&Ages, &Rules) -> Option<(u64, u64)>| of(ages.as_ref()?, rules.as_ref()?);
    if whole.json {
        let recall_bytes = found.far_bytes();
        return out::json(&Known {
            path,
            found: &found,
            recall_bytes,
            recall_requests: requests(recall_bytes),
            ages: ages.as_ref(),
            rules: rules.as_ref(),
            demote_in_s: when(moves::demotes),
            release_in_s: when(moves::leaves).map(|(first, _)| first),
        });
    }
    let mut lines = vec![format!("{}: {}", path.display(), what(&found))];
    if found.file_type == "file" {
        lines.extend(places(&found, ages.as_ref()));
        lines.extend(cost(&found, rules.as_ref()));
        if let Some(rules) = &rules {
            lines.extend(moves::words(&found, ages.as_ref(), rules));
        }
    }
    out::lines(&lines)
}

fn requests(bytes: u64) -> u64 {
    bytes.div_ceil(OBJECT_READ_MAX)
}

fn what(found: &Location) -> String {
    match found.file_type.as_str() {
        "file" => format!("a file of {}", size(found.file_size)),
        other => format!("a {other}: names and attributes are always on flash, there is nothing else to it"),
    }
}

/// Where its bytes are.
fn places(found: &Location, ages: Option<&Ages>) -> Vec<String> {
    let Location { ssd_write_cache_bytes: fresh, ssd_read_cache_bytes: cached, .. } = *found;
    let (far, lost) = (found.far_bytes(), ages.map_or(0, |ages| ages.lost_bytes));
    let said = |bytes: u64, words: &str| (bytes > 0).then(|| format!("{} {words}", size(bytes)));
    let lines: Vec<String> = [
        said(fresh, "are on flash only."),
        said(cached, "are on flash, and in objects as well: their place on flash can be given up at any time."),
        said(far, "are in objects only."),
        said(lost, "of that lie where an object is missing or damaged, and cannot be read: see `braid status lost`."),
    ]
    .into_iter()
    .flatten()
    .collect();
    if lines.is_empty() { vec!["It holds no data.".to_owned()] } else { lines }
}

/// What a read costs.
fn cost(found: &Location, rules: Option<&Rules>) -> Vec<String> {
    let far = found.far_bytes();
    if far == 0 {
        return vec!["A read needs nothing from an object store.".to_owned()];
    }
    let count = requests(far);
    let word = if count == 1 { "request" } else { "requests" };
    let stays = match rules {
        Some(rules) if rules.flash_short => {
            "Flash is short: what is read is read from there each time, until there is room."
        }
        _ => "What is read comes back to flash, unless the mount has obs_direct.",
    };
    let mut lines = vec![format!(
        "A read of all of it waits for {} from the object store: {count} GET {word} of up to 4 MiB, or more if it lies \
         scattered. {stays}",
        size(far)
    )];
    let stopped = rules.into_iter().flat_map(|rules| &rules.downloads_stopped);
    lines.extend(stopped.map(|why| format!("Such a read may wait, or fail, now: {why}.")));
    lines
}

/// The rules of the file system that `path` is on, if its cluster can be asked.
fn rules(whole: &Whole, path: &Path) -> Option<Rules> {
    let Whose { filesystem: found, client } = Whose::of(whole, path)?;
    let groups: Vec<GroupView> = client.get("/groups").ok()?;
    let group = groups.into_iter().find(|group| group.name == found.group)?;
    let takes = found.stores.iter().find(|store| store.mode == Mode::Writable && !store.detaching);
    let stores: Vec<ObjectStoreView> =
        if found.stores.is_empty() { Vec::new() } else { client.get("/object-stores").unwrap_or_default() };
    let store = takes.map(|store| store.store.clone());
    let mine = stores.iter().filter(|known| found.stores.iter().any(|attached| attached.store == known.name));
    Some(Rules {
        filesystem: found.name,
        group: group.name,
        has_store: !found.stores.is_empty(),
        detaching: found.stores.iter().filter(|store| store.detaching).map(|store| store.store.clone()).collect(),
        start_demote_s: group.start_demote_s,
        target_ssd_retention_s: group.target_ssd_retention_s,
        flash_short: found.flash_short || found.waiting_writes > 0,
        due_since_s: found.due_since_s,
        uploads_stopped: stores.iter().find(|known| Some(&known.name) == store.as_ref()).and_then(uploads_stopped),
        downloads_stopped: mine.filter_map(|store| stopped(&store.name, "downloads", &store.download)).collect(),
        store,
    })
}

/// Why `store` takes nothing, if so.
fn uploads_stopped(store: &ObjectStoreView) -> Option<String> {
    if store.full {
        return Some(format!("object store {} is full", store.name));
    }
    stopped(&store.name, "uploads", &store.upload)
}

fn stopped(store: &str, what: &str, link: &LinkView) -> Option<String> {
    let why = || link.last_error.as_deref().unwrap_or("it does not answer");
    (link.state == "down").then(|| format!("object store {store} is down, {what} fail: {}", why()))
}

#[cfg(test)]
mod tests {
    use super::{Rules, cost, places};
    use crate::residence::{Ages, Location};

    fn found(write: u64, read: u64, object: u64) -> Location {
        Location {
            file_type: "file".to_owned(),
            file_size: 9 << 20,
            ssd_write_cache_bytes: write,
            ssd_read_cache_bytes: read,
            object_storage_bytes: object,
        }
    }

    #[test]
    fn where_and_at_what_cost() {
        assert_eq!(places(&found(0, 0, 0), None), ["It holds no data."]);
        let lost = Ages { lost_bytes: 1 << 20, ..Ages::default() };
        let lines = places(&found(1 << 20, 2 << 20, 5 << 20), Some(&lost));
        assert!(lines[2].starts_with("3.00 MiB are in objects only"), "{lines:?}");
        assert!(lines[3].starts_with("1.00 MiB of that") && lines[3].contains("braid status lost"), "{lines:?}");
        assert!(cost(&found(9, 9, 9), None)[0].contains("nothing from an object store"));
        let far = found(0, 0, (7 << 20) + 1);
        assert!(cost(&far, None)[0].contains(": 2 GET requests of up to 4 MiB"));
        assert!(cost(&far, None)[0].contains("comes back to flash"));
        let rules = Rules { flash_short: true, downloads_stopped: vec!["s is down".to_owned()], ..Rules::default() };
        let lines = cost(&far, Some(&rules));
        assert!(lines[0].contains("Flash is short") && lines[1].contains("now: s is down."), "{lines:?}");
    }
}
