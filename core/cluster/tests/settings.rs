//! Settings of the whole cluster, and what spare failure domains leave.

use std::sync::Arc;

use braid_base::ErrorKind;
use braid_base::ids::{DomainId, DriveId, Guid, HostId};
use braid_base::limits::SCRUB_BYTES_PER_S;
use braid_cluster::capacity::OnDrives;
use braid_cluster::facts::{Cluster, Drive, DriveState, Protection, Settings};
use braid_cluster::snapshot::Snapshot;
use braid_cluster::view::SettingsChange;
use braid_cluster::{Embedded, records, settings};

const DRIVE_BYTES: u64 = 1_000_000;

/// Eight hosts with one drive each, 5+2.
fn coordinator() -> Embedded {
    let coordinator = Embedded::in_memory(Arc::new(|| 0)).expect("memory");
    let cluster = Cluster {
        guid: Guid([1; 16]),
        name: "n".to_owned(),
        created_s: 1,
        protection: Protection { data: 5, parity: 2 },
        shard_bytes: 8 << 20,
        partitions: 2,
        feature_level: 1,
        copies: 3,
        client_secret: String::new(),
        host_secret: String::new(),
        authority: String::new(),
    };
    records::create(&coordinator, &cluster).expect("cluster");
    for id in 1..=8 {
        let (host, uuid, domain) = (HostId(id), Guid([id as u8; 16]), DomainId(id as u16));
        let (path, state) = ("/d".into(), DriveState::Active);
        let drive =
            Drive { id: DriveId(id), uuid, host, path, size_bytes: DRIVE_BYTES, domain, state, abandoned: false };
        records::create(&coordinator, &drive).expect("drive");
    }
    coordinator
}

fn set(coordinator: &Embedded, change: &SettingsChange, used: u64) -> braid_base::Result<Settings> {
    settings::update(coordinator, change, OnDrives { bytes: used, silent: 0 }, |size| size)
}

#[test]
fn spares_are_not_kept_while_nobody_knows_what_is_stored() {
    let (coordinator, silent) = (coordinator(), OnDrives { bytes: 0, silent: 2 });
    let spares = |count, force| {
        let hot_spares = Some(count);
        let change = SettingsChange { hot_spares, skip_resource_validation: force, ..SettingsChange::default() };
        settings::update(&coordinator, &change, silent, |size| size).map(|settings| settings.spares)
    };
    let refused = spares(1, false).expect_err("two partitions do not say");
    assert!(refused.kind() == ErrorKind::Refused && refused.message().contains("2 partitions do not say"), "{refused}");
    assert_eq!((spares(0, false).expect("none need room"), spares(1, true).expect("put up with")), (0, 1));
}

#[test]
fn what_is_not_named_stays() {
    let coordinator = coordinator();
    assert_eq!(settings::read(&coordinator).expect("read").scrub_rate(), SCRUB_BYTES_PER_S);
    let rebuild = SettingsChange { rebuild_bytes_per_s: Some(5), ..SettingsChange::default() };
    set(&coordinator, &rebuild, 0).expect("set");
    let scrub = SettingsChange { scrubber_bytes_per_s: Some(0), ..SettingsChange::default() };
    let both = set(&coordinator, &scrub, 0).expect("set");
    assert_eq!(both, Settings { rebuild_bytes_per_s: Some(5), scrub_bytes_per_s: Some(0), spares: 0 });
    assert_eq!(both.scrub_rate(), 0);
    let any = SettingsChange { rebuild_bytes_per_s: Some(0), ..SettingsChange::default() };
    assert_eq!(set(&coordinator, &any, 0).expect("set").rebuild_bytes_per_s, None);
    assert_eq!(Snapshot::read(&coordinator).expect("read").settings, settings::read(&coordinator).expect("read"));
}

#[test]
fn spares_take_their_share_and_never_what_is_used() {
    let coordinator = coordinator();
    let net = || Snapshot::read(&coordinator).expect("read").net_bytes(|size| size);
    let all = 8 * DRIVE_BYTES * 5 / 7 * 9 / 10;
    assert!(net().abs_diff(all) < 10, "{}", net());
    let spares = |count| SettingsChange { hot_spares: Some(count), ..SettingsChange::default() };
    set(&coordinator, &spares(1), all / 2).expect("there is room");
    assert!(net().abs_diff(all * 7 / 8) < 10, "{}", net());
    let refused = set(&coordinator, &spares(5), all / 2).expect_err("three of eight are less than a half");
    assert_eq!(refused.kind(), ErrorKind::Refused);
    assert!(refused.message().contains(&(all / 2).to_string()), "{refused}");
    assert!(net().abs_diff(all * 7 / 8) < 10, "nothing changed");
    assert_eq!(set(&coordinator, &spares(8), 0).expect_err("all of them").kind(), ErrorKind::Invalid);
    let anyway = SettingsChange { skip_resource_validation: true, ..spares(5) };
    set(&coordinator, &anyway, all / 2).expect("it was said so");
    assert!(net().abs_diff(all * 3 / 8) < 10, "{}", net());
}
