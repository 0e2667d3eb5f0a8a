//! `braid fs tier explain`: where a file is, what a read of it costs, and when it moves next.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use braid_base::limits::OBJECT_READ_MAX;
use braid_cluster::facts::Mode;
use braid_cluster::view::{FilesystemView, GroupView};
use braid_io::clock;
use clap::Args;
use serde::Serialize;

use crate::attach::Server;
use crate::client::Client;
use crate::exit::{FAILURE, Failure, Outcome};
use crate::measure::{duration, size};
use crate::residence::{self, Location};
use crate::whole::Whole;
use crate::{mountpoint, out};

#[derive(Args, Debug)]
pub struct Explain {
    /// A file on a mount of Braid; a link is not followed
    path: PathBuf,
}

/// By what rules a file moves.
#[derive(Debug, Serialize)]
struct Rules {
    filesystem: String,
    group: String,
    /// The store that takes data, if there is one.
    store: Option<String>,
    /// Some store holds data of the file system.
    has_store: bool,
    start_demote_s: u64,
    target_ssd_retention_s: u64,
}

/// What is known, for programs.
#[derive(Serialize)]
struct Known<'a> {
    path: &'a Path,
    #[serde(flatten)]
    found: &'a Location,
    /// Bytes that a read of the whole file brings back.
    recall_bytes: u64,
    /// Requests of at most 1 MiB to the store for that; at least so many.
    recall_requests: u64,
    /// Seconds since its content was changed.
    changed_s_ago: u64,
    rules: Option<&'a Rules>,
}

pub fn run(whole: &Whole, explain: &Explain) -> Outcome {
    let path = &explain.path;
    let failed =
        |reason: &dyn std::fmt::Display| Failure { code: FAILURE, message: format!("{}: {reason}", path.display()) };
    let found = residence::location(path).map_err(|reason| failed(&reason))?;
    let metadata = fs::symlink_metadata(path).map_err(|error| failed(&error))?;
    let changed_s_ago = u64::try_from(clock::now().wall.sec.saturating_sub(metadata.mtime())).unwrap_or(0);
    // Without a word from the cluster what is known from the mount is said all the same.
    let rules = rules(whole, path);
    if whole.json {
        let recall_bytes = found.far_bytes();
        return out::json(&Known {
            path,
            found: &found,
            recall_bytes,
            recall_requests: requests(recall_bytes),
            changed_s_ago,
            rules: rules.as_ref(),
        });
    }
    let mut lines = vec![format!("{}: {}", path.display(), what(&found))];
    if found.file_type == "file" {
        lines.extend(places(&found));
        lines.push(cost(&found));
        lines.extend(moves(&found, changed_s_ago, rules.as_ref()));
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
fn places(found: &Location) -> Vec<String> {
    let Location { ssd_write_cache_bytes: fresh, ssd_read_cache_bytes: cached, .. } = *found;
    let far = found.far_bytes();
    let said = |bytes: u64, words: &str| (bytes > 0).then(|| format!("{} {words}", size(bytes)));
    let lines: Vec<String> = [
        said(fresh, "are on flash only."),
        said(cached, "are on flash, and in objects as well: their place on flash can be given up at any time."),
        said(far, "are in objects only."),
    ]
    .into_iter()
    .flatten()
    .collect();
    if lines.is_empty() { vec!["It holds no data.".to_owned()] } else { lines }
}

/// What a read costs.
fn cost(found: &Location) -> String {
    match found.far_bytes() {
        0 => "A read needs nothing from an object store.".to_owned(),
        far => {
            let count = requests(far);
            let word = if count == 1 { "request" } else { "requests" };
            format!(
                "A read of all of it waits for {} from the object store: {count} GET {word} of up to 4 MiB, or more if it \
                 lies scattered. What is read comes back to flash, unless the mount has obs_direct.",
                size(far)
            )
        }
    }
}

/// When it moves next, as far as that is known.
fn moves(found: &Location, changed_s_ago: u64, rules: Option<&Rules>) -> Vec<String> {
    let Some(rules) = rules else { return Vec::new() };
    let group = &rules.group;
    if !rules.has_store {
        return vec![format!("File system {} has no object store: all of it stays on flash.", rules.filesystem)];
    }
    let mut lines = Vec::new();
    if found.ssd_write_cache_bytes > 0 {
        lines.push(match &rules.store {
            None => "What is on flash only stays there: no object store of the file system takes data.".to_owned(),
            Some(store) => {
                let cue = rules.start_demote_s;
                let when = match cue.saturating_sub(changed_s_ago) {
                    0 => "that is due now".to_owned(),
                    left => format!("in {}, unless it is changed before", duration(left)),
                };
                format!(
                    "What is on flash only is copied to object store {store} {} after it was changed (group {group}): {when}.",
                    duration(cue)
                )
            }
        });
    }
    if found.ssd_read_cache_bytes > 0 || (found.ssd_write_cache_bytes > 0 && rules.store.is_some()) {
        lines.push(format!(
            "What is in objects as well leaves flash {} after its last use (group {group}), or before if flash runs short.",
            duration(rules.target_ssd_retention_s)
        ));
    }
    lines
}

/// The rules of the file system that `path` is on, if its cluster can be asked.
fn rules(whole: &Whole, path: &Path) -> Option<Rules> {
    // The link itself is meant, if it is one: what it points to may be on another file system.
    let place = std::path::absolute(path).ok()?;
    let place = place.parent()?.canonicalize().ok()?.join(place.file_name()?);
    let mounts = mountpoint::list().ok()?;
    // Later mounts hide earlier ones.
    let mount = mounts.iter().rev().filter(|mount| place.starts_with(&mount.path));
    let source = &mount.max_by_key(|mount| mount.path.components().count())?.source;
    let (server, filesystem) = served(source);
    let client = match (whole.dir.as_deref(), server) {
        (None, Some(Server::Dir(dir))) => Client::at(&dir),
        (dir, _) => Client::find(dir),
    };
    let client = client.ok()?;
    let filesystems: Vec<FilesystemView> = client.get("/filesystems").ok()?;
    let groups: Vec<GroupView> = client.get("/groups").ok()?;
    let found = filesystems.into_iter().find(|found| found.name == filesystem)?;
    let group = groups.into_iter().find(|group| group.name == found.group)?;
    let takes = found.stores.iter().find(|store| store.mode == Mode::Writable && !store.detaching);
    Some(Rules {
        filesystem: found.name,
        group: group.name,
        store: takes.map(|store| store.store.clone()),
        has_store: !found.stores.is_empty(),
        start_demote_s: group.start_demote_s,
        target_ssd_retention_s: group.target_ssd_retention_s,
    })
}

/// Cluster and file system that the source of a mount names: `braid:FS`, `DIR/FS`, `HOST[,HOST...]/FS` or `FS`.
fn served(source: &str) -> (Option<Server>, &str) {
    match source.strip_prefix("braid:") {
        Some(filesystem) => (None, filesystem),
        None => match source.rsplit_once('/') {
            Some((server, filesystem)) => (Some(Server::parse(server)), filesystem),
            None => (None, source),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::{Rules, cost, moves, places, served};
    use crate::attach::Server;
    use crate::residence::Location;

    fn found(write: u64, read: u64, object: u64) -> Location {
        Location {
            file_type: "file".to_owned(),
            file_size: 9 << 20,
            ssd_write_cache_bytes: write,
            ssd_read_cache_bytes: read,
            object_storage_bytes: object,
        }
    }

    fn rules(store: Option<&str>, has_store: bool) -> Rules {
        Rules {
            filesystem: "f".to_owned(),
            group: "g".to_owned(),
            store: store.map(str::to_owned),
            has_store,
            start_demote_s: 900,
            target_ssd_retention_s: 86_400,
        }
    }

    #[test]
    fn where_and_at_what_cost() {
        assert_eq!(places(&found(0, 0, 0)), ["It holds no data."]);
        let lines = places(&found(1 << 20, 2 << 20, 5 << 20));
        assert_eq!(lines.len(), 3);
        assert!(lines[2].starts_with("3.00 MiB are in objects only"), "{lines:?}");
        assert!(cost(&found(9, 9, 9)).contains("nothing from an object store"));
        assert!(cost(&found(0, 0, (7 << 20) + 1)).contains(": 2 GET requests of up to 4 MiB"));
    }

    #[test]
    fn when_it_moves() {
        assert!(moves(&found(9, 0, 0), 0, None).is_empty(), "what is not known is left out");
        assert!(moves(&found(9, 0, 0), 0, Some(&rules(None, false)))[0].contains("has no object store"));
        assert!(moves(&found(9, 0, 0), 0, Some(&rules(None, true)))[0].contains("stays there"));
        let lines = moves(&found(9, 0, 0), 300, Some(&rules(Some("s"), true)));
        assert!(lines[0].contains("15m after it was changed (group g): in 10m,"), "{lines:?}");
        assert!(lines[1].contains("1d after its last use"), "{lines:?}");
        assert!(moves(&found(9, 0, 0), 900, Some(&rules(Some("s"), true)))[0].contains("due now"));
        assert_eq!(moves(&found(0, 9, 9), 0, Some(&rules(Some("s"), true))).len(), 1);
        assert!(moves(&found(0, 0, 9), 0, Some(&rules(Some("s"), true))).is_empty());
    }

    #[test]
    fn sources_of_mounts() {
        assert_eq!(served("braid:my fs"), (None, "my fs"));
        assert_eq!(served("/var/c/fs"), (Some(Server::Dir("/var/c".into())), "fs"));
        assert_eq!(served("fs"), (None, "fs"));
        assert!(matches!(served("h1,h2/fs"), (Some(Server::Hosts(hosts)), "fs") if hosts.len() == 2));
    }
}
