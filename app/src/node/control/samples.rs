//! The numbers of this process, for `/metrics`.

use braid_admin::control::{Sample, SampleKind};
use braid_base::Result;
use braid_cluster::stores::{self, seen::Seen};

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
        let partitions = self.partition_views(&reports)?;
        for partition in &partitions {
            let label = || vec![("partition", partition.id.to_string())];
            gauge("partition_staged_bytes", "Bytes that wait in the log for a pack.", label(), partition.staged_bytes);
            gauge("partition_log_bytes", "Bytes of log segments on disk.", label(), partition.log_bytes);
            gauge("partition_serving", "1 if it answers.", label(), u64::from(partition.is_serving()));
        }
        for partition in partitions {
            let labels = vec![("partition", partition.id.to_string())];
            let (kind, help, value) = (SampleKind::Counter, "Log entries applied.", partition.applied as f64);
            samples.push(Sample { name: "partition_applied_total", help, kind, labels, value });
        }
        Ok(samples)
    }
}
