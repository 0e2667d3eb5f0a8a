//! What the parts say of themselves, in the words of the administrator.

use braid_base::Result;
use braid_base::ids::{DriveId, HostId, Term};
use braid_base::msg::drive::{DriveStat, Trouble};
use braid_base::msg::host::{Healing, SeatReport};
use braid_client::fs::Space;
use braid_cluster::facts::{Drive, DriveState, Filesystem, Host, HostState, ObjectStore, Partition};
use braid_cluster::snapshot::Snapshot;
use braid_cluster::view::{DriveView, FilesystemView, HealingView, HostView, MountView, PartitionView};
use braid_cluster::{attachments, health};
use braid_wire::Who;

/// Milliseconds since 1970.
pub fn now_ms() -> u64 {
    let wall = braid_io::clock::now().wall;
    u64::try_from(wall.sec).unwrap_or(0) * 1_000 + u64::from(wall.nsec) / 1_000_000
}

/// Seconds since 1970.
pub fn now_s() -> u64 {
    u64::try_from(braid_io::clock::now().wall.sec).unwrap_or(0)
}

/// A mount that another process serves.
pub fn mount(who: Who) -> MountView {
    let (client, since_s, pid) = (who.client.0, who.since_s, who.pid);
    MountView { filesystem: who.filesystem, path: who.point, client, since_s, pid }
}

/// So long a host that was taken in may take to prepare its drives until it counts as down, seconds.
const ADDING_S: u64 = 120;

/// The hosts that the coordinator knew at `now`; one that is alone is up, or nobody would ask.
/// `ahead`: by how much their clocks are ahead of some clock, as far as they say so.
pub fn hosts(now: &Snapshot, partitions: &[PartitionView], ahead: Vec<(HostId, i64)>) -> Vec<HostView> {
    let clocks = health::clocks(ahead);
    let alone = now.cluster.as_ref().is_none_or(|cluster| cluster.copies == 1 && now.hosts.len() == 1);
    let count = |which: &dyn Fn(&PartitionView) -> bool| partitions.iter().filter(|p| which(p)).count() as u64;
    // It was taken in, and has not prepared its drives yet.
    let is_new = |host: &Host| {
        let mut own = now.drives.iter().filter(|drive| drive.host == host.id).peekable();
        own.peek().is_some() && own.all(|drive| drive.state == DriveState::Adding)
    };
    let view = |host: &Host| HostView {
        id: host.id.0,
        name: host.name.clone(),
        addresses: host.addresses.clone(),
        failure_domain: if host.domain.is_empty() { host.name.clone() } else { host.domain.clone() },
        state: match host.state {
            HostState::Active if is_new(host) && now_s() < host.joined_s + ADDING_S => "adding",
            HostState::Active if alone || now.live.contains(&host.id) => "up",
            HostState::Active => "down",
            other => other.word(),
        }
        .to_owned(),
        drives: now.drives.iter().filter(|drive| drive.host == host.id).count() as u64,
        leads: count(&|p| p.primary == Some(host.id.0)),
        copies: count(&|p| p.members.contains(&host.id.0)),
        clock_ahead_ms: clocks.get(&host.id).copied(),
    };
    now.hosts.iter().map(view).collect()
}

/// A drive with what its thread says, if it has one; `lost` says why it has none.
pub fn drive(record: &Drive, stats: &[(DriveId, Result<DriveStat>)], lost: Option<&str>) -> DriveView {
    let stat = stats.iter().find(|(id, _)| *id == record.id).map(|(_, stat)| stat);
    let answers = matches!(stat, Some(Ok(_)));
    let known = stat.and_then(|stat| stat.as_ref().ok()).copied().unwrap_or_default();
    let problem = match stat {
        Some(Ok(DriveStat { trouble: Some(trouble), errors, corrupt, .. })) => {
            let errors = match errors + corrupt {
                0 => String::new(),
                _ => format!(" ({errors} I/O errors, {corrupt} checksum errors since start)"),
            };
            Some(health::trouble_words(*trouble).to_owned() + &errors)
        }
        Some(Ok(stat)) if stat.errors + stat.corrupt > 0 => {
            Some(format!("{} I/O errors, {} checksum errors since start", stat.errors, stat.corrupt))
        }
        Some(Ok(_)) => None,
        _ if record.abandoned => Some("it was abandoned: what others do not make up for is lost".to_owned()),
        Some(Err(error)) => Some(error.message().to_owned()),
        None => Some(
            lost.unwrap_or("it does not answer: it could not be opened, or what was there is gone; see the log")
                .to_owned(),
        ),
    };
    let state = match (record.state, known.trouble) {
        (DriveState::Active, _) if !answers => "missing",
        (DriveState::Active, Some(Trouble::Slow)) => "slow",
        (DriveState::Active, Some(Trouble::Failing)) => "failing",
        (DriveState::Active, Some(Trouble::Full)) => "full",
        (recorded, _) => recorded.word(),
    };
    DriveView {
        id: record.id.0,
        host: record.host.0,
        uuid: record.uuid.to_string(),
        path: record.path.display().to_string(),
        size_bytes: record.size_bytes,
        used_bytes: u64::from(known.slots - known.free) * known.shard_bytes,
        domain: record.domain.0,
        state: state.to_owned(),
        problem,
        errors: known.errors + known.corrupt,
        leaving_shards: None,
    }
}

/// A partition that should have so many `copies`, with what its seat says; none if it does not answer.
pub fn partition(record: &Partition, copies: usize, report: Option<&SeatReport>) -> PartitionView {
    let state = match report {
        Some(SeatReport { failed: None, term: Term(0), .. }) => "recovering",
        Some(SeatReport { failed: None, waits: None, .. }) => "serving",
        Some(SeatReport { failed: None, .. }) => "waiting",
        _ => "stopped",
    };
    let problem = report.and_then(|report| report.failed.as_ref().or(report.waits.as_ref()));
    PartitionView {
        id: record.id.0,
        term: record.term.0,
        primary: record.primary.map(|host| host.0),
        members: record.members.iter().map(|member| member.host.0).collect(),
        learners: record.learners.iter().map(|member| member.host.0).collect(),
        copies: copies as u64,
        state: state.to_owned(),
        problem: problem.map(|error| error.message().to_owned()),
        applied: report.map_or(0, |report| report.applied),
        staged_bytes: report.map_or(0, |report| report.data.staged_bytes),
        log_bytes: report.map_or(0, |report| report.log_bytes),
    }
}

/// What the `partitions` of the cluster do to keep data whole; `left`: bytes to be made anew elsewhere.
pub fn healing(reports: &[SeatReport], partitions: usize, left: u64) -> HealingView {
    let all = || reports.iter().filter(|report| report.term != Term(0)).map(|report| report.data.healing);
    let sum = |of: fn(Healing) -> u64| all().map(of).sum();
    let speed: u64 = sum(|healing| healing.rebuild_bytes_per_s);
    // Each partition tells of all drives.
    let uneven = all().map(|healing| healing.uneven_bytes).max().unwrap_or(0);
    let moves: u64 = sum(|healing| healing.balance_bytes_per_s);
    let eta_s = |left: u64, speed: u64| (left > 0 && speed > 0).then(|| left.div_ceil(speed));
    HealingView {
        scrub_running: all().any(|healing| healing.scrub_runs),
        scrub_packs_done: sum(|healing| healing.scrub_done),
        scrub_packs: sum(|healing| healing.scrub_packs),
        // One that does not answer has not said that it checked anything.
        scrub_passes: all().map(|healing| healing.passes).min().filter(|_| all().count() == partitions).unwrap_or(0),
        scrubbed_bytes: sum(|healing| healing.scrubbed_bytes),
        damaged_shards: sum(|healing| healing.damaged),
        mended_shards: sum(|healing| healing.mended),
        mismatched_blocks: sum(|healing| healing.odd),
        lost_packs: sum(|healing| healing.beyond),
        rebuild_bytes_left: left,
        rebuild_bytes_per_s: speed,
        rebuild_eta_s: eta_s(left, speed),
        rebalance_bytes_left: uneven,
        rebalanced_bytes: sum(|healing| healing.balanced_bytes),
        rebalance_bytes_per_s: moves,
        rebalance_eta_s: eta_s(uneven, moves),
    }
}

/// A file system with its usage; `stores` are all those of the cluster, or none if it uses none, `reports` of all partitions
/// that are served.
pub fn filesystem(record: &Filesystem, space: Space, stores: &[ObjectStore], reports: &[SeatReport]) -> FilesystemView {
    let parts = || reports.iter().filter_map(|report| report.data.tiering.get(&record.id));
    FilesystemView {
        id: record.id.0,
        uuid: record.uuid.to_string(),
        name: record.name.clone(),
        group: record.group.clone(),
        used_bytes: space.used_bytes,
        total_bytes: space.total_bytes,
        limited: record.total_bytes.is_some(),
        inodes: space.used_inodes,
        state: if record.removing { "removing".to_owned() } else { "ready".to_owned() },
        created_s: record.created_s,
        ssd_bytes: record.ssd_bytes,
        object_mib: record.object_mib,
        stores: attachments::views(record, stores),
        flash_bytes: parts().map(|part| part.flash).sum(),
        flash_short: parts().any(|part| part.short),
        waiting_writes: parts().map(|part| part.waiting).sum(),
        due_bytes: parts().map(|part| part.due).sum(),
        due_since_s: parts().filter_map(|part| part.due_s).min().map(u64::from),
    }
}

#[cfg(test)]
mod tests {
    use braid_base::ids::PartitionId;
    use braid_base::msg::host::SeatData;

    use super::*;

    #[test]
    fn a_partition_that_does_not_answer_has_checked_nothing() {
        let report = |id: u16, passes: u64| {
            let data = SeatData { healing: Healing { passes, ..Healing::default() }, ..SeatData::default() };
            SeatReport { partition: PartitionId(id), term: Term(1), data, ..SeatReport::default() }
        };
        let passes = |reports: &[SeatReport]| healing(reports, 2, 0).scrub_passes;
        assert_eq!(passes(&[report(0, 3), report(1, 2)]), 2);
        assert_eq!(passes(&[report(0, 3)]), 0);
        // One that follows, and has heard of nobody who serves it.
        assert_eq!(passes(&[report(0, 3), SeatReport { term: Term(0), ..report(1, 2) }]), 0);
    }
}
