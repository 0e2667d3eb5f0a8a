//! The numbers of this process, for `/metrics`; and what partitions of all hosts hold.

use braid_admin::control::{Sample, SampleKind};
use braid_base::Result;
use braid_base::msg::host::{SeatReport, Tiering};
use braid_cluster::facts::Filesystem;
use braid_cluster::stores::{self, seen::Seen};
use braid_cluster::view::stores::HeldView;

use super::Node;

impl Node {
    pub(super) async fn numbers(&self) -> Result<Vec<Sample>> {
        let mut samples = Vec::new();
        let mut gauge = |name, help, labels, value: u64| {
            samples.push(Sample { name, help, kind: SampleKind::Gauge, labels, value: value as f64 });
        };
        let reports = self.host()?.partitions().await;
        for drive in self.drive_views(&reports).await? {
            let label = || vec![("drive", drive.id.to_string())];
            gauge("drive_size_bytes", "Size of the drive.", label(), drive.size_bytes);
            gauge("drive_used_bytes", "Bytes taken by shards.", label(), drive.used_bytes);
            gauge("drive_lost", "1 if the drive does not serve.", label(), u64::from(drive.is_lost()));
        }
        let here = Seen { reports: vec![(String::new(), self.host()?.stores_here())], silent: Vec::new() };
        for store in &self.recorded()?.0.object_stores {
            let store = here.show(stores::view(store, []));
            let links = [("upload", &store.upload), ("download", &store.download), ("remove", &store.remove)];
            for (direction, link) in links.into_iter().filter(|(_, link)| link.state != "unknown") {
                let label = vec![("store", store.name.clone()), ("direction", direction.to_owned())];
                gauge("object_store_up", "1 if it answers this host.", label, u64::from(link.state == "up"));
            }
            let label = vec![("store", store.name)];
            gauge("object_store_full", "1 if it takes no uploads.", label, u64::from(store.full));
        }
        for held in self.held_of(&reports)? {
            let label = || vec![("filesystem", held.filesystem.clone()), ("store", held.store.clone())];
            gauge("tier_objects", "Objects in the store.", label(), held.objects);
            gauge("tier_consumed_bytes", "Bytes of files in objects.", label(), held.consumed_bytes);
            gauge("tier_used_bytes", "Those of them that are in use.", label(), held.used_bytes);
        }
        for (name, view) in self.tiering_of(&reports)? {
            let label = || vec![("filesystem", name.clone())];
            gauge("filesystem_flash_short", "1 if data leaves flash before its time.", label(), u64::from(view.short));
            gauge("filesystem_waiting_writes", "Writes that wait for room on flash.", label(), view.waiting);
            gauge("tier_due_bytes", "Bytes that are due to go into an object.", label(), view.due);
        }
        for (filesystem, bytes) in self.flash_by_name(&reports)? {
            let label = vec![("filesystem", filesystem)];
            gauge(
                "filesystem_flash_bytes",
                "Bytes on flash, with what was overwritten and is there still.",
                label,
                bytes,
            );
        }
        for report in &reports {
            let (label, help) = (vec![("partition", report.partition.0.to_string())], "Writes that wait for room.");
            gauge("partition_held_writes", help, label, report.data.held_writes);
            let (label, help) =
                (vec![("partition", report.partition.0.to_string())], "Objects with lost parts of files.");
            gauge("partition_lost_objects", help, label, report.data.damaged_objects);
        }
        let partitions = self.partition_views(&reports)?;
        for partition in &partitions {
            let label = || vec![("partition", partition.id.to_string())];
            gauge("partition_staged_bytes", "Bytes that wait in the log for a pack.", label(), partition.staged_bytes);
            gauge("partition_log_bytes", "Bytes of log segments on disk.", label(), partition.log_bytes);
            gauge("partition_serving", "1 if it answers.", label(), u64::from(partition.is_serving()));
        }
        samples.extend(self.counters()?);
        samples.extend(self.moves(&reports)?);
        samples.extend(self.reclaimable(&reports)?);
        for partition in partitions {
            let labels = vec![("partition", partition.id.to_string())];
            let (kind, help, value) = (SampleKind::Counter, "Log entries applied.", partition.applied as f64);
            samples.push(Sample { name: "partition_applied_total", help, kind, labels, value });
        }
        Ok(samples)
    }

    /// What only grows: events, and what was done at object stores.
    fn counters(&self) -> Result<Vec<Sample>> {
        let mut samples = Vec::new();
        let mut counter = |name, help, labels, value: u64| {
            samples.push(Sample { name, help, kind: SampleKind::Counter, labels, value: value as f64 });
        };
        let (host, now, mut took) = (self.host()?, self.recorded()?.0, Vec::new());
        for (kind, count) in host.event_log().counts() {
            counter("events_total", "Events that this host told.", vec![("type", kind.to_string())], count);
        }
        for (id, link) in host.links().all() {
            let Some(store) = now.object_stores.iter().find(|store| store.id == id) else { continue };
            for (kind, total) in link.totals() {
                let label = || vec![("store", store.name.clone()), ("operation", kind.word().to_lowercase())];
                let ended = |result: &str| [label(), vec![("result", result.to_owned())]].concat();
                let (name, help) = ("object_store_operations_total", "Operations of this host that have ended.");
                counter(name, help, ended("done"), total.done);
                counter(name, help, ended("failed"), total.failed);
                counter("object_store_bytes_total", "Bytes that this host moved.", label(), total.bytes);
                counter("object_store_requests_total", "Requests of this host, all attempts.", label(), total.requests);
                took.push((label(), total.took));
            }
            for (kind, status, count) in link.failures() {
                let status = status.map_or("none".to_owned(), |status| status.to_string());
                let label =
                    vec![("store", store.name.clone()), ("operation", kind.word().to_lowercase()), ("status", status)];
                let help = "Requests of this host that failed, by HTTP status; none: there was no answer.";
                counter("object_store_request_failures_total", help, label, count);
            }
        }
        for (labels, took) in took {
            let (name, help) = ("object_store_request_seconds_total", "How long these requests took.");
            samples.push(Sample { name, help, kind: SampleKind::Counter, labels, value: took.as_secs_f64() });
        }
        Ok(samples)
    }

    /// What has moved between flash and objects. With the partition, whose counts begin anew where it is served next.
    fn moves(&self, reports: &[SeatReport]) -> Result<Vec<Sample>> {
        let (now, mut samples) = (self.recorded()?.0, Vec::new());
        for report in reports {
            for (fs, Tiering { moved, .. }) in &report.data.tiering {
                let Some(fs) = now.filesystems.iter().find(|known| known.id == *fs && !known.stores.is_empty()) else {
                    continue;
                };
                for (name, help, value) in [
                    ("tier_demoted_bytes_total", "Bytes of files that were put into objects.", moved.demoted),
                    ("tier_released_bytes_total", "Bytes of files that left flash for objects.", moved.released),
                    ("tier_fetched_bytes_total", "Bytes of files that came back to flash.", moved.fetched),
                    ("tier_rewritten_bytes_total", "Bytes of files moved into other objects.", moved.rewritten),
                    ("tier_reclaimed_bytes_total", "Bytes of objects that were removed.", moved.reclaimed),
                    ("tier_cold_reads_total", "Reads that needed an object.", moved.cold_reads),
                    ("tier_cold_read_bytes_total", "Bytes that these asked for.", moved.cold_bytes),
                ] {
                    let labels = vec![("filesystem", fs.name.clone()), ("partition", report.partition.0.to_string())];
                    samples.push(Sample { name, help, kind: SampleKind::Counter, labels, value: value as f64 });
                }
            }
        }
        Ok(samples)
    }

    /// How much of what objects hold is free, of those that are in use.
    fn reclaimable(&self, reports: &[SeatReport]) -> Result<Vec<Sample>> {
        let sample = |held: HeldView| {
            let labels = vec![("filesystem", held.filesystem), ("store", held.store)];
            let (name, help) = ("tier_reclaimable_ratio", "What is free in objects, of what is in use.");
            let value = held.reclaimable_percent? / 100.0;
            Some(Sample { name, help, kind: SampleKind::Gauge, labels, value })
        };
        Ok(self.held_of(reports)?.into_iter().filter_map(sample).collect())
    }

    /// What all partitions say of file systems with object stores, together, by name.
    fn tiering_of(&self, reports: &[SeatReport]) -> Result<Vec<(String, Tiering)>> {
        let tiered = |fs: &Filesystem| {
            let parts = || reports.iter().filter_map(|report| report.data.tiering.get(&fs.id));
            let sum = |of: fn(&Tiering) -> u64| parts().map(of).sum();
            let (waiting, due) = (sum(|part| part.waiting), sum(|part| part.due));
            (fs.name.clone(), Tiering { short: parts().any(|part| part.short), waiting, due, ..Tiering::default() })
        };
        Ok(self.recorded()?.0.filesystems.iter().filter(|fs| !fs.stores.is_empty()).map(tiered).collect())
    }

    fn held_of(&self, reports: &[SeatReport]) -> Result<Vec<HeldView>> {
        let (now, served) = (self.recorded()?.0, reports.iter().map(|report| &report.data));
        Ok(stores::held((&now.filesystems, &now.object_stores), None, served))
    }

    /// Bytes on flash by the name of the file system.
    fn flash_by_name(&self, reports: &[SeatReport]) -> Result<Vec<(String, u64)>> {
        let on_flash = |fs| reports.iter().filter_map(|report| report.data.flash_by_fs.get(&fs)).sum();
        Ok(self.recorded()?.0.filesystems.iter().map(|fs| (fs.name.clone(), on_flash(fs.id))).collect())
    }
}
