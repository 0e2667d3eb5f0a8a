//! Drives that are to leave the cluster, and those that are kept after all.

use std::collections::BTreeSet;

use braid_base::ids::DriveId;
use braid_base::{Error, ErrorKind, Result};

use crate::capacity::OnDrives;
use crate::coordinator::Coordinator;
use crate::facts::{Drive, DriveState, HostState};
use crate::setup::set_drive_state;
use crate::snapshot::Snapshot;

/// What stands against taking `drive` out of the cluster, one line each, most serious first. With all others it holds what is
/// `stored`; `on_bytes` lie on it, garbage included, if that is known.
pub fn objections(
    now: &Snapshot,
    drive: &Drive,
    (stored, on_bytes): (OnDrives, Option<u64>),
    raw_of: impl Fn(u64) -> u64,
) -> Vec<String> {
    let Some(cluster) = &now.cluster else { return Vec::new() };
    let mut after = now.clone();
    after.drives.retain(|other| other.id != drive.id);
    let (used_bytes, mut against) = (stored.bytes, Vec::from_iter(stored.objection()));
    let (before, net) = (now.net_bytes(&raw_of), after.net_bytes(&raw_of));
    // One that has failed has no part in it already.
    if net < used_bytes.min(before) {
        let on = on_bytes.map_or(String::new(), |bytes| format!(", and up to {bytes} lie on it"));
        against.push(format!("{used_bytes} bytes are stored{on}; the other drives would have room for {net}"));
    }
    let active = after.drives.iter().filter(|drive| drive.state == DriveState::Active);
    let left = active.map(|drive| drive.domain).collect::<BTreeSet<_>>().len();
    let all = now.drives.iter().map(|drive| drive.domain).collect::<BTreeSet<_>>().len();
    let width = cluster.protection.width();
    if left < width.min(all) {
        against.push(format!("{left} failure domains would be left, {} wants {width}", cluster.protection));
    }
    against
}

/// Drive `id`, as far as it is a part of the cluster.
pub fn find(now: &Snapshot, id: DriveId) -> Result<&Drive> {
    let missing = || Error::new(ErrorKind::NotFound, format!("no drive {id}: `braid cluster drive` lists them"));
    now.drives.iter().find(|drive| drive.id == id).ok_or_else(missing)
}

/// Keeps drive `id`, which is being emptied: what is on it still stays there. `Refused` if there is nothing to take back.
pub fn keep(coordinator: &dyn Coordinator, id: DriveId) -> Result<()> {
    let now = Snapshot::read(coordinator)?;
    let drive = find(&now, id)?;
    let refuse = |words: &str| Err(Error::new(ErrorKind::Refused, format!("drive {id} {words}")));
    let host = now.hosts.iter().find(|host| host.id == drive.host);
    match drive.state {
        DriveState::Active => Ok(()),
        DriveState::Draining if host.is_some_and(|host| host.state == HostState::Draining) => {
            refuse("goes with its host, which is being emptied")
        }
        DriveState::Draining => set_drive_state(coordinator, id, DriveState::Draining, DriveState::Active),
        DriveState::Failed => refuse("has failed: it is used again as soon as it answers"),
        DriveState::Adding | DriveState::Removed => refuse("is not being emptied"),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use braid_base::ids::{DomainId, Guid, HostId};

    use super::*;
    use crate::coordinator::Txn;
    use crate::embedded::Embedded;
    use crate::facts::{Cluster, Host};
    use crate::records::{self, Record};
    use crate::removal::{answers, drain};
    use crate::setup::set_host_state;

    /// Seven drives of a GiB, 4+2, each a domain of its own.
    fn cluster() -> Embedded {
        let store = Embedded::in_memory(Arc::new(|| 0)).expect("memory");
        let text = r#"{"guid":"01010101-0101-0101-0101-010101010101","name":"c","protection":{"data":4,"parity":2},
            "partitions":1,"feature_level":1,"shard_bytes":1048576,"created_s":0}"#;
        let cluster: Cluster = serde_json::from_str(text).expect("a cluster");
        let host = Host {
            id: HostId(1),
            name: "h".to_owned(),
            joined_s: 0,
            addresses: Vec::new(),
            domain: "h".to_owned(),
            state: HostState::Active,
        };
        let mut txn = Txn::new()
            .put(&cluster.key(), records::encode(&cluster).expect("JSON"))
            .put(&host.key(), records::encode(&host).expect("JSON"));
        for n in 1..=7 {
            let drive = Drive {
                id: DriveId(n),
                uuid: Guid([n as u8; 16]),
                host: HostId(1),
                path: format!("/dev/{n}").into(),
                size_bytes: 1 << 30,
                domain: DomainId(n as u16),
                state: DriveState::Active,
                abandoned: false,
            };
            txn = txn.put(&drive.key(), records::encode(&drive).expect("JSON"));
        }
        store.txn(&txn).expect("written");
        store
    }

    fn state(store: &Embedded, id: u32) -> DriveState {
        find(&Snapshot::read(store).expect("read"), DriveId(id)).expect("there").state
    }

    #[test]
    fn what_is_stored_must_have_room_on_the_others() {
        let store = cluster();
        let silent_of = |silent, used, on| {
            let now = Snapshot::read(&store).expect("read");
            let stored = OnDrives { bytes: used, silent };
            objections(&now, find(&now, DriveId(3)).expect("there"), (stored, on), |bytes| bytes)
        };
        let of = |used, on| silent_of(0, used, on);
        let now = Snapshot::read(&store).expect("read");
        let mut without = now.clone();
        without.drives.retain(|drive| drive.id != DriveId(3));
        let (all, six) = (now.net_bytes(|bytes| bytes), without.net_bytes(|bytes| bytes));
        assert_eq!(of(six - 10, None), [""; 0]);
        assert_eq!(silent_of(2, six - 10, None), ["2 partitions do not say what they hold: see `braid status`"]);
        let against = of(all - 10, Some(77));
        assert!(against.len() == 1 && against[0].contains("up to 77 lie on it"), "{against:?}");
        set_drive_state(&store, DriveId(3), DriveState::Active, DriveState::Failed).expect("written");
        assert_eq!(of(all - 10, None), [""; 0], "it has no part in what there is room for");
        set_drive_state(&store, DriveId(4), DriveState::Active, DriveState::Draining).expect("written");
        let against = of(0, None);
        assert!(against.len() == 1 && against[0].contains("5 failure domains"), "{against:?}");
    }

    #[test]
    fn a_drive_that_is_being_emptied_can_be_kept() {
        let store = cluster();
        let kind = |id| keep(&store, DriveId(id)).map_err(|error| error.kind());
        let drive = || find(&Snapshot::read(&store).expect("read"), DriveId(2)).expect("there").clone();
        drain(&store, &drive(), true).expect("written");
        drain(&store, &drive(), false).expect("written");
        assert_eq!((drive().state, drive().abandoned), (DriveState::Draining, true), "it stays so");
        answers(&store, DriveId(2)).expect("written");
        assert_eq!((drive().state, drive().abandoned), (DriveState::Draining, false), "it is back");
        drain(&store, &drive(), true).expect("written");
        assert_eq!((kind(2), state(&store, 2)), (Ok(()), DriveState::Active));
        assert!(!drive().abandoned, "it is kept");
        assert_eq!((kind(2), kind(9)), (Ok(()), Err(ErrorKind::NotFound)));
        set_drive_state(&store, DriveId(3), DriveState::Active, DriveState::Failed).expect("written");
        assert_eq!((kind(3), state(&store, 3)), (Err(ErrorKind::Refused), DriveState::Failed));
        set_drive_state(&store, DriveId(2), DriveState::Active, DriveState::Draining).expect("written");
        set_host_state(&store, HostId(1), HostState::Active, HostState::Draining).expect("written");
        assert_eq!(kind(2), Err(ErrorKind::Refused), "its host leaves");
    }
}
