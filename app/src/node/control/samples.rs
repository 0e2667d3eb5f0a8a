//! The numbers of this process, for `/metrics`; and what partitions of all hosts hold.

use braid_admin::control::{Sample, SampleKind};
use braid_base::Result;
use braid_base::msg::host::SeatReport;
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
        for (filesystem, bytes) in self.flash_of(&reports)? {
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
        }
        let partitions = self.partition_views(&reports)?;
        for partition in &partitions {
            let label = || vec![("partition", partition.id.to_string())];
            gauge("partition_staged_bytes", "Bytes that wait in the log for a pack.", label(), partition.staged_bytes);
            gauge("partition_log_bytes", "Bytes of log segments on disk.", label(), partition.log_bytes);
            gauge("partition_serving", "1 if it answers.", label(), u64::from(partition.is_serving()));
        }
        samples.extend(self.counters()?);
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
        let (host, now) = (self.host()?, self.recorded()?.0);
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
            }
        }
        Ok(samples)
    }

    fn held_of(&self, reports: &[SeatReport]) -> Result<Vec<HeldView>> {
        let (now, served) = (self.recorded()?.0, reports.iter().map(|report| &report.data));
        Ok(stores::held((&now.filesystems, &now.object_stores), None, served))
    }

    /// Bytes on flash by the name of the file system.
    fn flash_of(&self, reports: &[SeatReport]) -> Result<Vec<(String, u64)>> {
        let on_flash = |fs| reports.iter().filter_map(|report| report.data.flash_by_fs.get(&fs)).sum();
        Ok(self.recorded()?.0.filesystems.iter().map(|fs| (fs.name.clone(), on_flash(fs.id))).collect())
    }
}
