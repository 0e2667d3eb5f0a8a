//! Samples as Prometheus text (exposition format 0.0.4).

use std::collections::BTreeMap;
use std::fmt::Write;

use braid_cluster::view::Status;

use crate::control::{Sample, SampleKind};

/// The text for `samples`, with those that follow from `status`.
pub(crate) fn render(status: &Status, samples: Vec<Sample>) -> String {
    let mut by_name: BTreeMap<&str, Vec<Sample>> = BTreeMap::new();
    for sample in of_status(status).into_iter().chain(samples) {
        by_name.entry(sample.name).or_default().push(sample);
    }
    let mut text = String::new();
    for (name, samples) in by_name {
        let kind = match samples[0].kind {
            SampleKind::Counter => "counter",
            SampleKind::Gauge => "gauge",
        };
        // Writing to a String cannot fail.
        let _ = writeln!(text, "# HELP braid_{name} {}\n# TYPE braid_{name} {kind}", samples[0].help);
        for sample in samples {
            let labels: Vec<String> =
                sample.labels.iter().map(|(label, value)| format!("{label}=\"{}\"", escape(value))).collect();
            let labels = if labels.is_empty() { String::new() } else { format!("{{{}}}", labels.join(",")) };
            let _ = writeln!(text, "braid_{name}{labels} {}", sample.value);
        }
    }
    text
}

fn of_status(status: &Status) -> Vec<Sample> {
    let gauge =
        |name, help, value: u64| Sample { name, help, kind: SampleKind::Gauge, labels: vec![], value: value as f64 };
    let capacity = &status.capacity;
    let mut samples = vec![
        gauge("up", "1 while the process runs.", 1),
        gauge("state", "0 ok, 1 degraded, 2 unavailable.", status.state as u64),
        gauge("uptime_seconds", "How long the process has run.", status.uptime_s),
        gauge("capacity_raw_bytes", "Sum of the drives.", capacity.raw_bytes),
        gauge("capacity_net_bytes", "What users can store.", capacity.net_bytes),
        gauge("capacity_used_bytes", "What users have stored.", capacity.used_bytes),
        gauge("filesystems", "Number of file systems.", status.filesystems),
        gauge("mounts", "Number of mounts of this process.", status.mounts.len() as u64),
    ];
    let healing = &status.healing;
    for (name, help, value) in [
        ("lost_packs", "Packs with data that cannot be read: too few shards are left.", healing.lost_packs),
        ("damaged_shards", "Shards with damage that is not made good yet.", healing.damaged_shards),
        ("scrub_packs", "Packs of the present or last pass of checks.", healing.scrub_packs),
        ("scrub_packs_done", "Those of them that were checked.", healing.scrub_packs_done),
        ("rebuild_bytes_left", "Bytes to be made anew on other drives.", healing.rebuild_bytes_left),
        (
            "rebuild_bytes_per_second",
            "Bytes made anew per second, during the last minute.",
            healing.rebuild_bytes_per_s,
        ),
        ("rebalance_bytes_left", "Bytes to be moved until drives are evenly full.", healing.rebalance_bytes_left),
        (
            "rebalance_bytes_per_second",
            "Bytes moved for that per second, during the last minute.",
            healing.rebalance_bytes_per_s,
        ),
    ] {
        samples.push(gauge(name, help, value));
    }
    for drive in &status.drives {
        let labels = vec![("drive", drive.id.to_string()), ("state", drive.state.clone())];
        let with = |sample: Sample| Sample { labels: labels.clone(), ..sample };
        samples.push(with(gauge(
            "drive_lost",
            "1 if the drive's shards are out of reach.",
            u64::from(drive.is_lost()),
        )));
        samples.push(with(gauge("drive_used_bytes", "Bytes taken by shards.", drive.used_bytes)));
        samples.push(with(gauge("drive_errors", "Errors met on the drive since the process started.", drive.errors)));
    }
    for partition in &status.partitions {
        let labels = vec![("partition", partition.id.to_string())];
        let with = |sample: Sample| Sample { labels: labels.clone(), ..sample };
        samples.push(with(gauge("partition_serving", "1 if it answers.", u64::from(partition.is_serving()))));
        samples.push(with(gauge("partition_term", "Term of its configuration.", partition.term)));
        samples.push(with(gauge("partition_applied", "Last log entry applied.", partition.applied)));
        samples.push(with(gauge("partition_staged_bytes", "Small writes waiting in the log.", partition.staged_bytes)));
        samples.push(with(gauge("partition_log_bytes", "Size of the log on disk.", partition.log_bytes)));
    }
    samples
}

fn escape(value: &str) -> String {
    value.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}
