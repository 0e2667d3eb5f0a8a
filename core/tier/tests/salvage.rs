//! Files and damage are found in objects alone, whatever was done to them.

mod memory;

use std::sync::Arc;

use braid_base::ErrorKind;
use braid_base::ids::{BlobId, FsId, Guid, Ino, PartitionId, Term};
use braid_base::limits::BLOCK;
use braid_tier::blob::{self, Block, Header, keys};
use braid_tier::salvage::{Damage, File, Part, Salvage, Seen};
use bytes::Bytes;
use memory::Memory;

const CLUSTER: Guid = Guid([1; 16]);
const FS: Guid = Guid([2; 16]);
const OTHER: Guid = Guid([3; 16]);

/// What a block holds: another pattern for each file, block and version.
fn content(ino: u64, block: u64, version: u8) -> Vec<u8> {
    (0..BLOCK as u64).map(|at| (ino * 31 + block * 7 + at * at % 251) as u8 ^ version).collect()
}

/// Puts an object with `blocks` of (inode, block), all of one version; its key.
fn put(
    memory: &Memory,
    fs_uuid: Guid,
    (partition, serial, term): (u16, u64, u64),
    version: u8,
    blocks: &[(u64, u64)],
) -> String {
    let blob = BlobId::new(PartitionId(partition), serial);
    let data_len = (blocks.len() * BLOCK) as u64;
    let header =
        Header { cluster: CLUSTER, fs_uuid, fs: FsId(9), blob, term: Term(term), data_len, created_s: 1_700_000_000 };
    let data: Vec<Bytes> = blocks.iter().map(|(ino, block)| content(*ino, *block, version).into()).collect();
    let blocks: Vec<Block> = blocks.iter().map(|(ino, block)| Block { ino: Ino(*ino), block: *block }).collect();
    let key = keys::data(CLUSTER, blob, Term(term));
    memory.insert(&key, blob::build(&header, &blocks, &data).concat());
    key
}

fn blocks(ino: u64, range: std::ops::Range<u64>) -> Vec<(u64, u64)> {
    range.map(|block| (ino, block)).collect()
}

fn salvage(memory: &Arc<Memory>) -> Salvage {
    Salvage::new(memory.clone())
}

async fn seen(memory: &Arc<Memory>, runs: bool) -> Vec<Seen> {
    let mut all = Vec::new();
    salvage(memory)
        .list(runs, |seen| {
            all.push(seen);
            Ok(())
        })
        .await
        .expect("listed");
    all
}

/// The bytes of a file, holes and losses as zeros, and what was told of them.
async fn bytes_of(file: &File) -> (Vec<u8>, Vec<(u64, u64)>, Vec<Damage>) {
    let (mut bytes, mut holes, mut lost) = (Vec::new(), Vec::new(), Vec::new());
    let take = |at: u64, part: Part| {
        assert_eq!(at, bytes.len() as u64, "parts follow each other");
        match &part {
            Part::Data(data) => bytes.extend_from_slice(data),
            Part::Hole(len) => holes.push((at, *len)),
            Part::Lost(_, damage) => lost.push(damage.clone()),
        }
        bytes.resize((at + part.bytes()) as usize, 0);
        Ok(())
    };
    file.read(take).await.expect("read");
    assert_eq!(bytes.len() as u64, file.bytes());
    (bytes, holes, lost)
}

async fn find(memory: &Arc<Memory>, ino: u64) -> File {
    salvage(memory).find(Ino(ino), None, |damage| panic!("{damage}")).await.expect("found")
}

async fn verify(memory: &Arc<Memory>) -> (braid_tier::salvage::Verified, Vec<Damage>) {
    let mut damages = Vec::new();
    let verified = salvage(memory)
        .verify(|damage| {
            damages.push(damage);
            Ok(())
        })
        .await
        .expect("verified");
    (verified, damages)
}

#[tokio::test]
async fn objects_are_listed_with_what_they_hold() {
    let memory = Arc::new(Memory::default());
    let first =
        put(&memory, FS, (145, 12, 3), 0, &[blocks(70, 0..300), blocks(71, 5..7), blocks(70, 300..301)].concat());
    put(&memory, OTHER, (700, 1, 1), 0, &blocks(1, 0..1));
    memory.insert(&format!("B_541/{CLUSTER}/m/I_1/1"), b"a manifest".to_vec());
    memory.insert("B_541/notes.txt", b"something else".to_vec());
    let all = seen(&memory, true).await;
    assert_eq!(all.len(), 2);
    let one = all.iter().find(|seen| seen.object.key == first).expect("listed");
    let head = one.head.as_ref().expect("a header");
    assert_eq!((head.files, head.header.fs_uuid, head.header.data_len), (2, FS, 303 * 4096));
    let runs: Vec<_> = one.runs.iter().map(|run| (run.ino.0, run.block, run.blocks, run.at / 4096)).collect();
    assert_eq!(runs, [(70, 0, 300, 0), (71, 5, 2, 300), (70, 300, 1, 302)]);
    assert!(all.iter().all(|seen| seen.damages.is_empty()));
    assert!(seen(&memory, false).await.iter().all(|seen| seen.runs.is_empty()));
}

#[tokio::test]
async fn more_objects_than_one_listing_shows() {
    let memory = Arc::new(Memory::default());
    for serial in 1..=57 {
        put(&memory, FS, (2, serial, 1), 0, &blocks(5, serial..serial + 1));
    }
    assert_eq!(seen(&memory, false).await.len(), 57);
    let (bytes, holes, _) = bytes_of(&find(&memory, 5).await).await;
    assert_eq!((bytes.len(), holes), (58 * 4096, vec![(0, 4096)]));
}

#[tokio::test]
async fn the_newest_serial_and_term_win() {
    let memory = Arc::new(Memory::default());
    put(&memory, FS, (2, 9, 50), 1, &blocks(5, 0..600));
    // Keys of 10 sort before those of 9: digits are backwards.
    put(&memory, FS, (2, 10, 7), 2, &[blocks(4, 0..250), blocks(5, 100..200)].concat());
    put(&memory, FS, (2, 10, 8), 3, &blocks(5, 150..160));
    let file = find(&memory, 5).await;
    let (bytes, holes, lost) = bytes_of(&file).await;
    assert!(holes.is_empty() && lost.is_empty());
    for (block, bytes) in (0..).zip(bytes.chunks(BLOCK)) {
        let version = if (150..160).contains(&block) {
            3
        } else if (100..200).contains(&block) {
            2
        } else {
            1
        };
        assert!(bytes == content(5, block, version), "block {block}");
    }
}

#[tokio::test]
async fn a_file_system_must_be_chosen_among_several() {
    let memory = Arc::new(Memory::default());
    put(&memory, FS, (2, 1, 1), 1, &blocks(5, 0..2));
    put(&memory, OTHER, (2, 2, 1), 2, &blocks(5, 0..1));
    let error = salvage(&memory).find(Ino(5), None, |_| ()).await.err().expect("two have it");
    assert_eq!(error.kind(), ErrorKind::Invalid);
    assert!(error.message().contains(&FS.to_string()) && error.message().contains(&OTHER.to_string()), "{error}");
    let file = salvage(&memory).find(Ino(5), Some(OTHER), |_| ()).await.expect("chosen");
    assert_eq!(bytes_of(&file).await.0, content(5, 0, 2));
    let error = salvage(&memory).find(Ino(6), None, |_| ()).await.err().expect("nobody has it");
    assert_eq!(error.kind(), ErrorKind::NotFound);
}

#[tokio::test]
async fn a_damaged_block_is_zeros_and_told() {
    let memory = Arc::new(Memory::default());
    let key = put(&memory, FS, (2, 1, 1), 1, &blocks(5, 0..10));
    for block in [0, 3, 4, 9] {
        memory.flip(&key, 8192 + block * 4096 + 100);
    }
    let (bytes, _, lost) = bytes_of(&find(&memory, 5).await).await;
    for (block, bytes) in (0..).zip(bytes.chunks(BLOCK)) {
        let expected = if [0, 3, 4, 9].contains(&block) { vec![0; BLOCK] } else { content(5, block, 1) };
        assert!(bytes == expected, "block {block}");
    }
    assert_eq!(lost.iter().map(|damage| damage.at).collect::<Vec<_>>(), [8192, 20_480, 24_576, 45_056]);
}

#[tokio::test]
async fn a_damaged_descriptor_does_not_put_bytes_into_another_file() {
    let memory = Arc::new(Memory::default());
    let key = put(&memory, FS, (2, 1, 1), 1, &[blocks(5, 0..256), blocks(6, 0..4)].concat());
    // The lowest bit of the inode number of the first block.
    memory.flip_bit(&key, 4096, 0x10);
    let mut told = Vec::new();
    let file = salvage(&memory).find(Ino(6), None, |damage| told.push(damage)).await.expect("found");
    assert_eq!(file.bytes(), 4 * 4096);
    assert_eq!(bytes_of(&file).await.0, (0..4).flat_map(|block| content(6, block, 1)).collect::<Vec<_>>());
    assert_eq!(told.iter().map(|damage| damage.at).collect::<Vec<_>>(), [4096]);
    let (verified, damages) = verify(&memory).await;
    assert_eq!((verified.objects, verified.damaged, damages.len(), damages[0].at), (1, 1, 1, 4096));
}

#[tokio::test]
async fn the_footer_stands_in_for_the_header() {
    let memory = Arc::new(Memory::default());
    let key = put(&memory, FS, (2, 1, 1), 1, &blocks(5, 0..2));
    memory.flip(&key, 20);
    let mut told = Vec::new();
    let file = salvage(&memory).find(Ino(5), None, |damage| told.push(damage)).await.expect("found");
    assert_eq!((file.fs, file.bytes(), told.len()), (FS, 8192, 1));
    let (_, damages) = verify(&memory).await;
    assert_eq!(damages.iter().map(|damage| damage.at).collect::<Vec<_>>(), [0]);
    memory.flip(&key, 4096 * 5 - 1);
    let (verified, damages) = verify(&memory).await;
    assert_eq!(damages.iter().map(|damage| damage.at).collect::<Vec<_>>(), [0, 16_384], "all else is sound");
    assert_eq!((verified.objects, verified.damaged, verified.bytes), (1, 1, 20_480));
    memory.flip(&key, 8192);
    assert_eq!(verify(&memory).await.1[2].at, 8192, "data is checked without header");
}

#[tokio::test]
async fn every_byte_is_verified() {
    let memory = Arc::new(Memory::default());
    let key = put(&memory, FS, (2, 1, 1), 1, &blocks(5, 0..257));
    assert_eq!(verify(&memory).await.1, []);
    let len = memory.len(&key);
    for at in (0..len).step_by(997).chain([len - 1]) {
        memory.flip(&key, at);
        let (verified, damages) = verify(&memory).await;
        assert_eq!(verified.damaged, 1, "a flip at byte {at}");
        assert!(damages.iter().any(|damage| damage.at / 4096 == at as u64 / 4096), "byte {at}: {damages:?}");
        memory.flip(&key, at);
    }
}

#[tokio::test]
async fn an_object_cut_short_or_under_a_wrong_key_is_damaged() {
    let memory = Arc::new(Memory::default());
    let key = put(&memory, FS, (2, 1, 1), 1, &blocks(5, 0..600));
    for len in [0, 1, 4096, 5000, 8192, 1_000_000, 2_000_000, memory.len(&key) - 1] {
        let other = Arc::new(Memory::default());
        other.insert(&key, memory.bytes(&key)[..len].to_vec());
        let (verified, damages) = verify(&other).await;
        assert_eq!(verified.damaged, 1, "cut to {len}");
        assert!(damages.iter().any(|damage| damage.words.contains("expected ")), "{damages:?}");
        assert_eq!(seen(&other, true).await.len(), 1, "cut to {len}");
    }
    let other = Arc::new(Memory::default());
    let wrong = keys::data(CLUSTER, BlobId::new(PartitionId(2), 2), Term(1));
    other.insert(&wrong, memory.bytes(&key));
    let (_, damages) = verify(&other).await;
    assert!(damages[0].words.contains(&key), "{damages:?}");
}

#[tokio::test]
async fn an_object_that_only_the_listing_has_is_damaged() {
    let memory = Arc::new(Memory::default());
    put(&memory, FS, (2, 1, 1), 1, &blocks(5, 0..600));
    let key = put(&memory, FS, (2, 2, 1), 2, &blocks(5, 7..8));
    memory.lose(&key);
    let mut told = Vec::new();
    salvage(&memory).find(Ino(5), None, |damage| told.push(damage)).await.expect("in the other");
    assert!(told.iter().all(|damage| damage.key == key && damage.words.contains("there is none")), "{told:?}");
    assert!(!told.is_empty(), "the newest bytes of block 7 are not there");
    let (verified, damages) = verify(&memory).await;
    assert_eq!((verified.objects, verified.damaged, damages.is_empty()), (2, 1, false));
}

#[tokio::test]
async fn a_later_format_is_not_guessed_at() {
    let memory = Arc::new(Memory::default());
    let key = put(&memory, FS, (2, 1, 1), 1, &blocks(5, 0..1));
    let mut bytes = memory.bytes(&key);
    for at in [0, 3 * 4096] {
        bytes[at + 8] = 2;
        bytes[at + 4092..at + 4096].fill(0);
        let crc = braid_base::crc::crc32c(&bytes[at..at + 4096]);
        bytes[at + 4092..at + 4096].copy_from_slice(&crc.to_le_bytes());
    }
    memory.insert(&key, bytes);
    let (_, damages) = verify(&memory).await;
    assert_eq!(damages.len(), 2);
    assert!(damages[0].words.contains("expected format 1, found 2"), "{damages:?}");
}

#[tokio::test(start_paused = true)]
async fn a_store_that_fails_for_a_moment_is_asked_again() {
    let memory = Arc::new(Memory::default());
    put(&memory, FS, (2, 1, 1), 1, &blocks(5, 0..300));
    memory.fail_next(3, ErrorKind::Io);
    let (bytes, ..) = bytes_of(&find(&memory, 5).await).await;
    assert_eq!(bytes.len(), 300 * 4096);
    memory.fail_next(1, ErrorKind::AccessDenied);
    let error = salvage(&memory).find(Ino(5), None, |_| ()).await.err().expect("denied");
    assert_eq!(error.kind(), ErrorKind::AccessDenied);
    memory.fail_next(1_000, ErrorKind::TimedOut);
    let error = salvage(&memory).verify(|_| Ok(())).await.expect_err("down for good");
    assert_eq!(error.kind(), ErrorKind::TimedOut, "a store that is down is no damage");
}

#[tokio::test]
async fn whoever_takes_may_end_it() {
    let memory = Arc::new(Memory::default());
    put(&memory, FS, (2, 1, 1), 1, &blocks(5, 0..600));
    let mut parts = 0;
    let stop = |_, _| {
        parts += 1;
        Err(ErrorKind::Stopped.into())
    };
    assert_eq!(find(&memory, 5).await.read(stop).await.expect_err("ended").kind(), ErrorKind::Stopped);
    assert_eq!(parts, 1);
}
