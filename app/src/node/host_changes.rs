//! Hosts that join the cluster, or leave it for good.

use braid_base::ids::{Guid, HostId};
use braid_base::{Error, ErrorKind, Result};
use braid_cluster::capacity::OnDrives;
use braid_cluster::coordinator::Coordinator;
use braid_cluster::facts::{Host, HostState};
use braid_cluster::join;
use braid_cluster::removal::{Removal, WHOM_TO_ABANDON};
use braid_cluster::setup::World;
use braid_cluster::snapshot::Snapshot;

use super::{drives, views};

/// Takes the hosts called `names` in, which wait for it. Blocks.
pub fn add(coordinator: &dyn Coordinator, names: &[String]) -> Result<Vec<Host>> {
    let now = Snapshot::read(coordinator)?;
    let count = now.candidates.iter().map(|candidate| candidate.drives.len()).sum::<usize>();
    let mut identities = (0..count).map(|_| braid_io::chance::guid()).collect::<Result<Vec<Guid>>>()?;
    let mut identity = || identities.pop().unwrap_or_default();
    let hosts = join::plan(&now, names, World { identity: &mut identity, now_s: views::now_s() })?;
    join::record(coordinator, &hosts)
}

/// Begins to empty the host called `name`, on which it is removed; with all others it holds what is `stored`. Blocks.
/// `Refused` if what it holds would be less protected, or would have no place, and nobody forces it; or if one is
/// abandoned that lives.
pub fn remove(coordinator: &dyn Coordinator, name: &str, stored: OnDrives, how: Removal) -> Result<HostId> {
    let now = Snapshot::read(coordinator)?;
    let host = join::find(&now, name)?;
    if how == Removal::Abandoned {
        if now.live.contains(&host.id) {
            let words = format!("host {} runs: {}", host.name, WHOM_TO_ABANDON);
            return Err(Error::new(ErrorKind::Refused, words));
        }
        join::drain(coordinator, &now, host, true)?;
        return Ok(host.id);
    }
    if host.state == HostState::Draining {
        return Ok(host.id);
    }
    let against = join::objections(&now, host.id, stored, drives::raw_of(join::cluster(&now)?.shard_bytes));
    if !against.is_empty() && how == Removal::Safe {
        let words = format!("without host {}: {}; add a host first, or say --force", host.name, against.join("; "));
        return Err(Error::new(ErrorKind::Refused, words));
    }
    join::drain(coordinator, &now, host, false)?;
    Ok(host.id)
}
