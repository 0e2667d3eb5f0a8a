//! Records of the coordinator are as `docs/formats.md` shows them, and nothing there is missing.

use std::collections::BTreeMap;

use braid_base::ids::{DomainId, DriveId, FsId, Guid, HostId, PartitionId, StoreId, Term, Vp};
use braid_base::store::{Endpoint, Place, S3, S3Auth, Secret, StoreSpec};
use braid_cluster::facts::{
    Attachment, Candidate, Cluster, Drive, DriveState, Fence, Filesystem, Group, Host, HostState, Incarnation, Live,
    Member, Mode, ObjectStore, Offer, Partition, Protection, Seats, Settings, Store,
};
use braid_cluster::records::{Record, encode};
use serde_json::Value;

/// Key and record of each line of the page's block of records.
fn drawn() -> BTreeMap<String, Value> {
    let page = include_str!("../../../docs/formats.md");
    let block = page.split("```records\n").nth(1).and_then(|rest| rest.split("```").next()).expect("a block");
    let line = |line: &str| {
        let (key, json) = line.split_once(' ').expect("key and record");
        (key.to_owned(), serde_json::from_str(json).expect("JSON"))
    };
    block.lines().map(line).collect()
}

fn written<T: Record>(record: &T) -> (String, Value) {
    let bytes = encode(record).expect("encodes");
    (record.key(), serde_json::from_slice(&bytes).expect("JSON"))
}

#[test]
fn records_are_as_drawn() {
    let cluster = Cluster {
        guid: Guid([1; 16]),
        name: "n".to_owned(),
        created_s: 1,
        protection: Protection { data: 4, parity: 2 },
        shard_bytes: 8 << 20,
        partitions: 2,
        feature_level: 1,
        copies: 3,
        client_secret: "c".to_owned(),
        host_secret: "h".to_owned(),
        authority: "YQ==".to_owned(),
    };
    let drive = Drive {
        id: DriveId(2),
        uuid: Guid([2; 16]),
        host: HostId(1),
        path: "/d".into(),
        size_bytes: 4,
        domain: DomainId(3),
        state: DriveState::Active,
        abandoned: false,
    };
    let partition = Partition {
        id: PartitionId(3),
        term: Term(5),
        primary: Some(HostId(1)),
        members: vec![Member { host: HostId(1), store: Guid([3; 16]) }],
        learners: vec![],
    };
    let fs = Filesystem {
        id: FsId(4),
        uuid: Guid([4; 16]),
        name: "default".to_owned(),
        group: "default".to_owned(),
        total_bytes: None,
        root_vp: Vp(4),
        created_s: 6,
        removing: false,
        ssd_bytes: Some(7),
        object_mib: 64,
        stores: vec![Attachment {
            store: StoreId(5),
            mode: Mode::ReadOnly,
            detaching: false,
            attached_s: 8,
            yielded: true,
            give_up: false,
        }],
    };
    let bucket = S3 {
        endpoint: Endpoint { hostname: "s".to_owned(), ..Endpoint::default() },
        bucket: "b".to_owned(),
        prefix: "p".to_owned(),
        region: "r".to_owned(),
        auth: S3Auth::AWSSignature4,
        access_key_id: "i".to_owned(),
        secret_key: Secret("k".to_owned()),
        storage_class: None,
        upload_tags: true,
    };
    let store = ObjectStore { id: StoreId(5), name: "cold".to_owned(), spec: StoreSpec::at(Place::S3(bucket)) };
    let (addresses, domain) = (vec!["10.0.0.1:14001".to_owned()], "rack".to_owned());
    let host = Host { id: HostId(1), name: "h".to_owned(), joined_s: 2, addresses, domain, state: HostState::Active };
    let candidate = Candidate {
        name: "h2".to_owned(),
        addresses: vec!["10.0.0.2:14001".to_owned()],
        domain: "rack".to_owned(),
        drives: vec![Offer { path: "/d".into(), size_bytes: 4 }],
    };
    let group = Group { name: "default".to_owned(), target_ssd_retention_s: 7, start_demote_s: 8 };
    let code = BTreeMap::from([
        written(&cluster),
        written(&host),
        written(&candidate),
        written(&Live { host: HostId(1), since_s: 9 }),
        written(&Seats { partition: PartitionId(3), hosts: vec![1, 2, 3] }),
        written(&Store { partition: PartitionId(3), host: HostId(1), store: Guid([3; 16]) }),
        written(&drive),
        written(&partition),
        written(&fs),
        written(&store),
        written(&group),
        written(&Settings { rebuild_bytes_per_s: Some(9), scrub_bytes_per_s: None, spares: 1 }),
        written(&Incarnation { number: 2, by: Guid([5; 16]) }),
        written(&Fence { reason: "r".to_owned(), by: "h".to_owned() }),
    ]);
    assert_eq!(drawn(), code);
}
