//! The cluster at a glance.

use braid_base::ids::DriveId;
use braid_base::msg::host::SeatReport;
use braid_base::{ErrorKind, Result};
use braid_cluster::facts::{Drive, Partition};
use braid_cluster::health;
use braid_cluster::records::Stored;
use braid_cluster::view::{Capacity, DriveView, PartitionView, State, Status};
use braid_host::run::Host;

use super::super::certificate::Certificate;
use super::super::filesystems::Way;
use super::super::{problems, views};
use super::Node;

impl Node {
    pub(super) async fn summary(&self) -> Result<Status> {
        let host = self.host()?;
        let (recorded, silent) = self.recorded()?;
        let (replicas, ahead, ways, stores) =
            tokio::join!(host.reports(), host.clocks(), host.ways(), self.store_views_of(&recorded, false));
        let reports = Host::served(&replicas);
        let (drives, partitions) = (self.drive_views(&reports).await?, self.partition_views(&reports)?);
        let cluster = &self.cluster;
        let (mut state, mut problems) = health::judge(cluster.protection, &drives, &partitions);
        let hosts = views::hosts(&recorded, &partitions, ahead);
        let worse =
            problems::hosts(&hosts, &mut problems) | problems::replicas(&hosts, &replicas, &reports, &mut problems);
        if worse {
            state = state.max(State::Degraded);
        }
        let left: u64 = drives.iter().filter_map(|drive| drive.leaving_shards).sum();
        if left > 0 {
            state = state.max(State::Degraded);
            problems.push(format!("{left} shards are to be made anew on other drives: see `braid status rebuild`"));
            problems.extend(problems::too_few(&drives, cluster.protection));
        }
        let close: u64 = reports.iter().map(|report| report.data.close).sum();
        if close > 0 {
            state = state.max(State::Degraded);
            problems.push(format!("{close} packs lie closer together than they should: they are moved apart"));
        }
        let healing = views::healing(&reports, recorded.partitions.len(), left * cluster.shard_bytes);
        if healing.lost_packs > 0 {
            state = state.max(State::Degraded);
            let words = "packs hold data that cannot be read, because too few of their shards are left";
            problems.push(format!("{} {words}: see `braid status lost`", healing.lost_packs));
        }
        if healing.damaged_shards > 0 {
            state = state.max(State::Degraded);
            problems.push(format!("{} shards are damaged, and are being made whole", healing.damaged_shards));
        }
        if healing.mismatched_blocks > 0 {
            state = state.max(State::Degraded);
            let words = "blocks match their checksums but not the others of their row; see the log";
            problems.push(format!("{} {words}", healing.mismatched_blocks));
        }
        if reports.iter().any(|report| report.data.forced) {
            state = state.max(State::Degraded);
            let words = "does not fit over so few failure domains: the loss of one may lose data";
            problems.push(format!("protection {} {words}", cluster.protection));
        }
        if let Some(error) = silent.as_ref().filter(|error| error.kind() == ErrorKind::Refused) {
            state = state.max(State::Degraded);
            problems.insert(0, error.message().to_owned());
        } else if let Some(error) = silent {
            state = state.max(State::Degraded);
            let words = "etcd does not answer: what is served goes on, but nothing takes the place of what fails";
            problems.insert(0, format!("{words}: {}", error.message()));
        }
        problems::ways(&hosts, &ways, &mut problems);
        problems::flash(&recorded.filesystems, &reports, &mut problems);
        if problems::stores(&stores?, &mut problems) | problems::objects(&reports, &mut problems) {
            state = state.max(State::Degraded);
        }
        if let Some(damage) = self.host()?.view_damage() {
            // What lies there cannot be read, everything else can.
            state = state.max(State::Degraded);
            problems.push(damage.message().to_owned());
        }
        if let Some(words) = self.certificate().and_then(|own| own.problem(views::now_s())) {
            state = state.max(State::Degraded);
            problems.push(words);
        }
        let net_bytes = self.host()?.capacity();
        let used_bytes = reports.iter().map(|report| report.data.used_bytes).sum();
        Ok(Status {
            state,
            problems,
            name: cluster.name.clone(),
            guid: cluster.guid.to_string(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            pid: std::process::id(),
            uptime_s: (braid_io::clock::mono_ms() - self.started_ms) / 1000,
            close_packs: close,
            protection: cluster.protection.to_string(),
            shard_bytes: cluster.shard_bytes,
            healing,
            capacity: Capacity {
                raw_bytes: drives.iter().map(|drive| drive.size_bytes).sum(),
                hot_spares: recorded.settings.spares,
                net_bytes,
                used_bytes,
                free_bytes: net_bytes.saturating_sub(used_bytes),
            },
            hosts,
            drives,
            partitions,
            filesystems: recorded.filesystems.len() as u64,
            mounts: self.all_mounts(),
        })
    }

    fn certificate(&self) -> Option<&Certificate> {
        let Way::Network(network) = &self.way else { return None };
        network.certificate.as_deref()
    }

    /// The drives, ordered by number.
    pub(super) async fn drive_views(&self, reports: &[SeatReport]) -> Result<Vec<DriveView>> {
        let leaving = |id: u32| Host::shards_left(reports, self.cluster.partitions, DriveId(id));
        let stats = self.host()?.drives().await;
        let why = |id| self.lost.iter().find(|(drive, _)| drive.id == id).map(|(_, why)| why.as_str());
        let view = |drive: &Drive| views::drive(drive, &stats, why(drive.id));
        let views = self.recorded()?.0.drives.iter().map(view).collect::<Vec<_>>().into_iter();
        Ok(views.map(|view| DriveView { leaving_shards: leaving(view.id), ..view }).collect())
    }

    /// The partitions, in order.
    pub(super) fn partition_views(&self, reports: &[SeatReport]) -> Result<Vec<PartitionView>> {
        let report = |id| reports.iter().find(|report| report.partition == id);
        let recorded = self.recorded()?.0;
        let copies = recorded.copies();
        let view = |record: &Stored<Partition>| views::partition(&record.value, copies, report(record.value.id));
        Ok(recorded.partitions.iter().map(view).collect())
    }
}
