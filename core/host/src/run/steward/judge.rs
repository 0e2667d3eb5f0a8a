//! What a host finds of the others: which drives and hosts have failed, are back, or are emptied and go.

use std::collections::BTreeSet;

use braid_base::Result;
use braid_base::ids::{DriveId, HostId};
use braid_base::msg::event::{Event, EventType};
use braid_cluster::coordinator::Coordinator;
use braid_cluster::facts::{Drive, DriveState, Host as HostRecord, HostState};
use braid_cluster::snapshot::Snapshot;
use braid_cluster::stores::seen;
use braid_cluster::{health, removal, setup};

use super::Work;
use crate::run::events::Events;

/// How long a drive or a host may be away until what it holds is made anew elsewhere, milliseconds (design O3).
const FAILED_MS: u64 = 60_000;

pub(super) type DriveChange = (DriveId, DriveState, DriveState);
pub(super) type HostChange = (HostId, HostState, HostState);

pub(super) fn set_drives(coordinator: &dyn Coordinator, events: &Events, changes: Vec<DriveChange>) -> Result<()> {
    for (drive, from, to) in changes {
        if from == to {
            removal::answers(coordinator, drive)?;
            let text = format!("drive {drive} was abandoned and answers: what is on it counts, and moves away first");
            events.tell(Event::new(EventType::DRIVE_RECOVERED, text).about("drive", drive));
            continue;
        }
        setup::set_drive_state(coordinator, drive, from, to)?;
        let kind = match to {
            DriveState::Failed => EventType::DRIVE_FAILED,
            DriveState::Removed => EventType::DRIVE_REMOVED,
            _ => EventType::DRIVE_RECOVERED,
        };
        let text = format!("drive {drive} was {} and is {} from now on", from.word(), to.word());
        events.tell(Event::new(kind, text).about("drive", drive));
    }
    Ok(())
}

pub(super) fn set_hosts(
    coordinator: &dyn Coordinator,
    (events, now): (&Events, &Snapshot),
    changes: Vec<HostChange>,
) -> Result<()> {
    for (host, from, to) in changes {
        setup::set_host_state(coordinator, host, from, to)?;
        let kind = match to {
            HostState::Failed => EventType::HOST_FAILED,
            HostState::Removed => EventType::HOST_REMOVED,
            _ => EventType::HOST_RECOVERED,
        };
        let name = seen::host_name(now, host);
        let text = format!("host {name} was {} and is {} from now on", from.word(), to.word());
        events.tell(Event::new(kind, text).about("host", name));
    }
    Ok(())
}

impl Work {
    /// Hosts whose state is to change: one that has not lived for long has failed, unless more have than the data
    /// survives; one that lives again is back; one that is emptied and holds nothing any more goes.
    pub(super) fn judge_hosts(&mut self, now_ms: u64) -> Vec<HostChange> {
        let now = &self.duties.now;
        let Some(cluster) = &now.cluster else { return Vec::new() };
        let away: BTreeSet<HostId> =
            now.hosts.iter().map(|host| host.id).filter(|host| !now.live.contains(host)).collect();
        self.away_ms.retain(|host, _| away.contains(host));
        away.iter().for_each(|host| _ = self.away_ms.entry(*host).or_insert(now_ms));
        // Those that have failed and were made up for do not count: nothing needs what they hold any more.
        let is_empty = |drive: &&Drive| drive.state == DriveState::Failed && self.duties.host.is_empty_of(drive.id);
        let made_up = |host: &&HostRecord| {
            host.state == HostState::Failed
                && !now.stores.iter().any(|store| store.host == host.id && now.is_member(store))
                && now.drives.iter().filter(|drive| drive.host == host.id).all(|drive| is_empty(&drive))
        };
        let long = |host: &HostId| self.away_ms.get(host).is_some_and(|since| now_ms >= since + FAILED_MS);
        // All partitions are asked for it: only when there is something to judge.
        let due = now.hosts.iter().any(|host| host.state == HostState::Active && long(&host.id));
        let lost = || now.hosts.iter().filter(|host| away.contains(&host.id) && !made_up(host)).count();
        let survives = due && lost() <= usize::from(cluster.protection.parity);
        let change = |host: &HostRecord| match host.state {
            HostState::Active if long(&host.id) && survives => Some(HostState::Failed),
            HostState::Failed if !away.contains(&host.id) => Some(HostState::Active),
            HostState::Draining if now.holds(host.id) == 0 => Some(HostState::Removed),
            _ => None,
        };
        now.hosts.iter().filter_map(|host| Some((host.id, host.state, change(host)?))).collect()
    }

    /// Drives whose state is to change: one that has not answered, or fails all that it is asked, for long has failed, unless most
    /// hosts do not find that, or more have than the data survives: then they are waited for; one that answers again is back, with what is still valid on it; one that is
    /// emptied goes when nothing lies on it any more, and is not abandoned any more when it answers after all.
    pub(super) fn judge_drives(&mut self, now_ms: u64) -> Vec<DriveChange> {
        let Some(absent) = self.duties.host.switch().absent() else { return Vec::new() };
        self.absent_ms.retain(|drive, _| absent.contains(drive));
        absent.iter().for_each(|drive| _ = self.absent_ms.entry(*drive).or_insert(now_ms));
        let now = &self.duties.now;
        let Some(cluster) = &now.cluster else { return Vec::new() };
        let is_absent = |drive: &Drive| absent.contains(&drive.id);
        let silent = self.duties.host.switch().drive_set().absent.clone();
        // One that fails what it is asked is not gone.
        let answers = |drive: &Drive| !silent.contains(&drive.id);
        let long = |drive: &Drive| self.absent_ms.get(&drive.id).is_some_and(|since| now_ms >= since + FAILED_MS);
        // Those that have failed and were made up for do not count.
        let due = now.drives.iter().any(|drive| drive.state == DriveState::Active && long(drive));
        let lacks = |drive: &&Drive| {
            let made_up = || drive.state == DriveState::Failed && self.duties.host.is_empty_of(drive.id);
            is_absent(drive) && due && !made_up()
        };
        let gone: BTreeSet<u16> = now.drives.iter().filter(lacks).map(|drive| drive.domain.0).collect();
        let survives = gone.len() <= usize::from(cluster.protection.parity);
        let change = |drive: &Drive| match drive.state {
            DriveState::Active if long(drive) && survives => Some(DriveState::Failed),
            DriveState::Failed if !is_absent(drive) => Some(DriveState::Active),
            DriveState::Draining if drive.abandoned && answers(drive) => Some(DriveState::Draining),
            DriveState::Draining if self.duties.host.is_empty_of(drive.id) => Some(DriveState::Removed),
            _ => None,
        };
        let mut changes: Vec<DriveChange> =
            now.drives.iter().filter_map(|drive| Some((drive.id, drive.state, change(drive)?))).collect();
        let fails = |(_, _, to): &DriveChange| *to == DriveState::Failed;
        if changes.iter().any(fails) {
            // Perhaps only the way from here to it is broken.
            let (host, living) = (&self.duties.host, now.live.len());
            let others = host.runtime().block_on(host.switch().absent_elsewhere());
            changes.retain(|change| !fails(change) || health::is_lost(change.0, &others, living));
        }
        changes
    }
}
