//! Segments, records and `replica.meta` are as `docs/formats.md` draws them.

#[path = "../../base/tests/layout/mod.rs"]
mod layout;

use braid_base::codec::Writer;
use braid_base::crc::{block_crcs, crc32c};
use braid_base::ids::{ClientId, Guid, HostId, Index, OpId, PartitionId, Term};
use braid_base::keys;
use braid_replica::log::buffer::AlignedBuffer;
use braid_replica::log::format::{Place, SegmentHeader, encode_record};
use braid_replica::{Applied, Batch, Change, Config, Entry, Kv, LogIdent, MapKv, Member, Record, ReplicaMeta, Segment};
use layout::{Value, b, bytes, n};

const IDENT: LogIdent = LogIdent { cluster: Guid([1; 16]), partition: PartitionId(2), store: Guid([3; 16]) };

fn ident() -> Vec<(String, Value)> {
    vec![b("cluster", &[1; 16]), n("partition", 2u8), b("store", &[3; 16])]
}

/// The bytes that the page draws, `crc` over all before it.
fn sealed(name: &str, fields: &[(String, Value)]) -> Vec<u8> {
    let mut fields = fields.to_vec();
    fields.push(n("crc", 0u8));
    let drawn = bytes(name, &fields);
    let used = drawn.iter().rposition(|byte| *byte != 0).expect("not empty") + 1;
    let mut sealed = drawn.clone();
    sealed[used..used + 4].copy_from_slice(&crc32c(&drawn[..used]).to_le_bytes());
    sealed
}

#[test]
fn segment_header_is_as_drawn() {
    let header =
        SegmentHeader { ident: IDENT, segment: Segment(4), first_index: Index(5), first_term: Term(u64::MAX - 1) };
    let mut fields = ident();
    fields.extend([n("segment", 4u8), n("first_index", 5u8), n("first_term", u64::MAX - 1)]);
    assert_eq!(sealed("segment-header", &fields), header.encode());
}

fn batch() -> (Batch, Vec<u8>) {
    let mut batch = Batch::new();
    batch.put(b"key", b"value").delete(b"gone");
    let put = bytes("batch-put", &[b("key", b"key"), b("value", b"value")]);
    let changes = [put, bytes("batch-delete", &[b("key", b"gone")])].concat();
    (batch, bytes("batch", &[n("count", 2u8), b("changes", &changes)]))
}

#[test]
fn record_is_as_drawn() {
    let payload: Vec<u8> = (0..5000u32).map(|at| at as u8).collect();
    let (batch, batch_bytes) = batch();
    let ops = vec![OpId { client: ClientId(21), seq: 22 }, OpId { client: ClientId(23), seq: 24 }];
    for state_hash in [None, Some(25)] {
        let entry = Entry::new(ops.clone(), batch.clone(), payload.clone().into());
        let record = Record { term: Term(12), index: Index(13), entry, state_hash };
        let place = Place { ident: &IDENT, segment: Segment(14), prev_crc: 15, flags: 1, durable: Index(11) };
        let mut group = AlignedBuffer::new(8192);
        encode_record(&record, &place, &mut group);

        let mut meta = vec![n("durable", 11u8), n("client", 21u8), n("seq", 22u8), n("client", 23u8), n("seq", 24u8)];
        meta.push(b("batch", &batch_bytes));
        meta.extend(block_crcs(&payload).into_iter().map(|crc| n("block_crc", crc)));
        meta.push(n("hashed", u8::from(state_hash.is_some())));
        meta.extend(state_hash.map(|hash| n("state_hash", hash)));
        let meta = bytes("record-meta", &meta);
        let drawn = |crc: u32| {
            let len = (40 + meta.len() + payload.len()) as u64;
            let mut fields = vec![n("len", len), n("crc", crc), n("prev_crc", 15u8), n("flags", 1u8), n("nops", 2u8)];
            fields.extend([n("term", 12u8), n("index", 13u8), n("meta_len", meta.len() as u64)]);
            fields.extend([n("payload_len", 5000u16), b("meta", &meta), b("payload", &payload)]);
            bytes("record", &fields)
        };
        let plain = drawn(0);
        let head = &plain[..plain.len() - payload.len()];
        let covered = [&IDENT.store.0[..], &14u64.to_le_bytes(), &head[..4], &head[8..]].concat();
        let group = group.finish();
        let drawn = drawn(crc32c(&covered));
        assert_eq!(drawn, group[..drawn.len()]);
        assert!(group[drawn.len()..].iter().all(|byte| *byte == 0), "padded with zeros");
    }
}

#[test]
fn replica_meta_and_configuration_are_as_drawn() {
    let member = |n: u8| Member { host: HostId(u32::from(n)), store: Guid([n; 16]) };
    let config =
        Config { term: Term(7), primary: member(1), members: vec![member(1), member(2)], learners: vec![member(9)] };
    let mut fields = vec![n("term", 7u8), n("host", 1u8), b("store", &[1; 16]), n("members", 2u8)];
    for id in [1u8, 2] {
        fields.extend([n("member_host", id), b("member_store", &[id; 16])]);
    }
    fields.extend([n("learners", 1u8), n("learner_host", 9u8), b("learner_store", &[9; 16])]);
    let configuration = bytes("configuration", &fields);
    let mut encoded = Writer::new();
    config.encode(&mut encoded);
    assert_eq!(configuration, encoded.finish());

    let mut meta = ReplicaMeta {
        ident: IDENT,
        term: Term(31),
        config,
        log_start: (Term(32), Index(33)),
        importing: false,
        cut: (Term(0), Index(0)),
        clean: Some(Index(34)),
        seq: 34,
    };
    let (offset, block) = meta.write();
    let mut fields = vec![n("seq", 35u8)];
    fields.extend(ident());
    fields.extend([n("term", 31u8), n("start_term", 32u8), n("start_index", 33u8), n("clean", 1u8)]);
    fields.extend([n("last_index", 34u8), b("configuration", &configuration)]);
    assert_eq!((offset, sealed("replica-meta", &fields)), (4096, block.to_vec()));

    // Its last byte is none of the zeros that fill the block.
    meta.cut = (Term(36), Index(u64::MAX));
    let (offset, block) = meta.write();
    fields[0] = n("seq", 36u8);
    fields.extend([n("cut_term", 36u8), n("cut_index", u64::MAX)]);
    assert_eq!((offset, sealed("replica-meta-cut", &fields)), (0, block.to_vec()));
    assert_eq!(ReplicaMeta::read(&block), Ok(Some(meta)));
}

#[test]
fn applied_index_is_as_drawn() {
    let mut batch = Batch::new();
    let applied = Applied { term: Term(1), index: Index(2), hash: 3, staged: Index(4) };
    applied.put(PartitionId(4), &mut batch);
    let fields = [n("term", 1u8), n("index", 2u8), n("hash", 3u8)];
    let drawn = bytes("applied", &[&fields[..], &[n("staged", 4u8)]].concat());
    let key = keys::meta(PartitionId(4), "applied");
    assert_eq!(batch.changes().collect::<Vec<_>>(), [Change::Put(&key, &drawn)]);

    let (kv, mut of_release_before) = (MapKv::new(), Batch::new());
    of_release_before.put(&key, bytes("applied-1", &fields));
    kv.apply(&of_release_before).expect("memory");
    assert_eq!(Applied::read(&kv, PartitionId(4)), Ok(Applied { staged: Index(0), ..applied }));
}
