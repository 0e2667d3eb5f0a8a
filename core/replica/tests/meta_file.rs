//! `replica.meta`: the newer valid block counts, whatever happens to the other.

use braid_base::ErrorKind;
use braid_base::ids::{Guid, HostId, Index, PartitionId, Term};
use braid_replica::{Config, LogIdent, Member, ReplicaMeta};

fn member(n: u8) -> Member {
    Member { host: HostId(u32::from(n)), store: Guid([n; 16]) }
}

fn put(file: &mut [u8], (offset, block): (u64, bytes::Bytes)) {
    file[offset as usize..][..block.len()].copy_from_slice(&block);
}

#[test]
fn versions_alternate_and_any_torn_write_leaves_the_one_before() {
    let ident = LogIdent { cluster: Guid([1; 16]), partition: PartitionId(2), store: Guid([3; 16]) };
    let mut file = vec![0; 8192];
    assert_eq!(ReplicaMeta::read(&file), Ok(None));
    assert_eq!(ReplicaMeta::read(&[]), Ok(None));
    let mut meta = ReplicaMeta::new(ident);
    meta.config =
        Config { term: Term(7), primary: member(1), members: (1..8).map(member).collect(), learners: vec![member(9)] };
    for round in 1..6 {
        let before = file.clone();
        let old = ReplicaMeta::read(&before).expect("readable");
        meta.term = Term(round);
        meta.clean = (round % 2 == 0).then_some(Index(round));
        let (offset, block) = meta.write();
        for cut in (0..block.len()).step_by(13) {
            let mut torn = before.clone();
            put(&mut torn, (offset, block.slice(..cut)));
            let found = ReplicaMeta::read(&torn);
            let used = block.iter().rposition(|b| *b != 0).expect("not empty") + 1;
            if cut >= used {
                assert_eq!(found, Ok(Some(meta.clone())));
            } else if round > 1 {
                assert_eq!(found, Ok(old.clone()), "round {round} cut {cut}");
            }
        }
        put(&mut file, (offset, block));
        assert_eq!(ReplicaMeta::read(&file), Ok(Some(meta.clone())));
    }
}

#[test]
fn both_blocks_damaged_is_no_fresh_store() {
    let mut meta = ReplicaMeta::new(LogIdent::default());
    let mut file = vec![0; 8192];
    put(&mut file, meta.write());
    put(&mut file, meta.write());
    file[30] ^= 1;
    assert_eq!(ReplicaMeta::read(&file).expect("the other block").map(|m| m.seq), Some(1));
    file[4096 + 30] ^= 1;
    assert_eq!(ReplicaMeta::read(&file).map_err(|e| e.kind()), Err(ErrorKind::Corrupt));
}

#[test]
fn the_bytes_on_disk_are_a_format() {
    let mut meta =
        ReplicaMeta::new(LogIdent { cluster: Guid([1; 16]), partition: PartitionId(2), store: Guid([3; 16]) });
    meta.config = Config { term: Term(7), primary: member(1), members: vec![member(1), member(2)], learners: vec![] };
    let (offset, block) = meta.write();
    assert_eq!((offset, &block[..12]), (4096, &b"BRAIDREP\x01\0\0\0"[..]));
    assert_eq!(braid_base::crc::crc32c(&block), 320_644_078, "a change here needs a new format number");
    meta.importing = true;
    let (offset, block) = meta.write();
    assert_eq!((offset, &block[..12]), (0, &b"BRAIDREP\x02\0\0\0"[..]), "earlier releases refuse it");
    assert_eq!(ReplicaMeta::read(&block), Ok(Some(meta)));
}
