//! `braid status`: the cluster at a glance.

use braid_cluster::view::Status;
use serde_json::json;

use crate::client::Client;
use crate::exit::{NOT_RUNNING, Outcome};
use crate::measure::{duration, size};
use crate::out::{self, paint, tone_of};
use crate::whole::Whole;

pub fn run(whole: &Whole) -> Outcome {
    let client = match Client::find(whole.dir.as_deref()) {
        Ok(client) => client,
        Err(failure) => {
            if whole.json && failure.code == NOT_RUNNING {
                out::json(&json!({ "state": "stopped" }))?;
            }
            return Err(failure);
        }
    };
    let status: Status = client.get("/status")?;
    if whole.json { out::json(&status) } else { out::lines(&sentences(&status, &client.dir.display().to_string())) }
}

fn sentences(status: &Status, dir: &str) -> Vec<String> {
    let counts = |words: Vec<&str>| {
        let mut seen: Vec<(&str, usize)> = Vec::new();
        for word in words {
            match seen.iter_mut().find(|(known, _)| *known == word) {
                Some((_, count)) => *count += 1,
                None => seen.push((word, 1)),
            }
        }
        let shown: Vec<String> =
            seen.iter().map(|(word, count)| paint(&format!("{count} {word}"), tone_of(word))).collect();
        shown.join(", ")
    };
    let hosts = counts(status.hosts.iter().map(|host| host.state.as_str()).collect());
    let drives = counts(status.drives.iter().map(|drive| drive.state.as_str()).collect());
    let partitions = counts(status.partitions.iter().map(|partition| partition.state.as_str()).collect());
    let capacity = &status.capacity;
    let state = status.state.word();
    let mut lines = vec![
        format!("Braid v{}", status.version),
        row("cluster", &format!("{} ({})", status.name, status.guid)),
        row("status", &paint(&state.to_uppercase(), tone_of(state))),
        row("protection", &status.protection),
        row("hosts", &hosts),
        row("drives", &drives),
        row("partitions", &partitions),
        row("raw", &size(capacity.raw_bytes)),
        row(
            "capacity",
            &format!(
                "{} net, {} used, {} free",
                size(capacity.net_bytes),
                size(capacity.used_bytes),
                size(capacity.free_bytes)
            ),
        ),
        row("hot spare", &format!("{} failure domains", capacity.hot_spares)),
        row("filesystems", &status.filesystems.to_string()),
        row("process", &format!("pid {}, up {}, in {dir}", status.pid, duration(status.uptime_s))),
    ];
    lines.extend(status.mounts.iter().map(|mount| row("mount", &format!("{} on {}", mount.filesystem, mount.path))));
    lines.extend(status.problems.iter().map(|problem| row("problem", &paint(problem, tone_of(state)))));
    lines
}

fn row(title: &str, text: &str) -> String {
    format!("{title:>12}: {text}")
}
