//! Header and descriptor are as `docs/formats.md` draws them, what is built is read back, and no bytes are too odd.

use braid_base::ErrorKind;
use braid_base::crc::crc32c;
use braid_base::ids::{BlobId, FsId, Guid, Ino, PartitionId, Term};
use braid_base::limits::BLOCK;
use bytes::Bytes;
use layout::{Value, b, bytes, n};
use proptest::prelude::{ProptestConfig, any, prop, prop_assert, prop_assert_eq, proptest};

use super::{BLOCK_MAX, Block, DATA_MAX, Descriptor, Head, Header, INO_MAX, PIECE, Span, build, object_len};

#[path = "../../../base/tests/layout/mod.rs"]
mod layout;

fn header(blocks: u64) -> Header {
    let blob = BlobId::new(PartitionId(0x0708), 0x0000_1112_1314_1516);
    let (cluster, fs_uuid) = (Guid([1; 16]), Guid([2; 16]));
    let data_len = blocks * BLOCK as u64;
    Header { cluster, fs_uuid, fs: FsId(3), blob, term: Term(5), data_len, created_s: 6 }
}

/// Blocks 10.. of one file, then 0.. of the next, 100 each.
fn blocks(count: u64) -> Vec<Block> {
    (0..count).map(|at| Block { ino: Ino(77 + at / 100), block: if at < 100 { 10 + at } else { at % 100 } }).collect()
}

fn data(blocks: u64) -> Bytes {
    (0..blocks * BLOCK as u64).map(|at| (at.wrapping_mul(0x9E37_79B9) >> 13) as u8).collect()
}

fn object(count: u64) -> Bytes {
    build(&header(count), &blocks(count), &[data(count)]).concat().into()
}

fn get(object: &Bytes, span: &Span) -> Bytes {
    let range = span.object();
    object.slice(range.start as usize..range.end as usize)
}

#[test]
fn header_and_descriptor_are_as_drawn() {
    let two =
        [Block { ino: Ino(INO_MAX), block: BLOCK_MAX }, Block { ino: Ino(0x0123), block: 0x0A_0B0C_0D0E & BLOCK_MAX }];
    let data = data(2);
    let object = build(&header(2), &two, std::slice::from_ref(&data)).concat();
    let entry = |block: Block, data: &[u8]| -> Vec<(String, Value)> {
        let file = block.ino.0 << 4 | block.block >> 32;
        vec![n("file", file), n("block", block.block & 0xFFFF_FFFF), n("block_crc", crc32c(data))]
    };
    let fields = [entry(two[0], &data[..BLOCK]), entry(two[1], &data[BLOCK..])].concat();
    let descriptor = bytes("object-descriptor", &fields);
    assert_eq!(descriptor, object[BLOCK..2 * BLOCK]);
    let mut fields = vec![b("cluster", &[1; 16]), b("fs_uuid", &[2; 16]), n("fs", 3u8), n("partition", 0x0708u16)];
    fields.extend([n("serial", 0x1112_1314_1516_u64), n("term", 5u8), n("data_len", 8192u16), n("created_s", 6u8)]);
    fields.extend([n("ino_min", 0x0123u16), n("ino_max", INO_MAX)]);
    fields.extend([n("files", 2u8), n("pieces", 1u8), n("descriptor_crc", crc32c(&descriptor)), n("crc", 0u8)]);
    let crc = crc32c(&bytes("object-header", &fields));
    *fields.last_mut().expect("not empty") = n("crc", crc);
    let header = bytes("object-header", &fields);
    assert_eq!(header, object[..BLOCK]);
    assert_eq!(header, object[object.len() - BLOCK..], "the footer is the header again");
    assert_eq!(object[2 * BLOCK..4 * BLOCK], data);
}

#[test]
fn golden_bytes() {
    let object = object(257);
    assert_eq!(&object[..18], b"BRAIDOBJ\x01\0\0\0\0\0\0\0\x01\x01");
    assert_eq!(&object[48..64], b"\x03\0\0\0\x08\x07\0\0\x16\x15\x14\x13\x12\x11\0\0");
    assert_eq!(&object[BLOCK..BLOCK + 12], b"\xD0\x04\0\0\0\0\0\0\x0A\0\0\0");
    assert_eq!(crc32c(&object), 0x839B_6152, "the format may change with its number only");
}

#[test]
fn sizes_are_those_of_the_design() {
    assert_eq!(object_len(8 << 20), (8 << 20) + 9 * 4096 + 4096);
    assert_eq!(object_len(DATA_MAX), 67_375_104 + 4096);
    assert_eq!(object_len(4096), 4 * 4096);
    for count in [1, 255, 256, 257, 512, 600] {
        assert_eq!(object(count).len() as u64, object_len(count * BLOCK as u64), "{count} blocks");
        assert_eq!(super::data_len(object_len(count * BLOCK as u64)), count * BLOCK as u64, "{count} blocks");
    }
    for odd in [0, 1, 4096, 8192, 8193, 12_288, 16_383] {
        assert_eq!(super::data_len(odd), 0, "{odd} bytes");
    }
}

#[test]
fn data_is_not_copied() {
    let data = data(300);
    let parts = build(&header(300), &blocks(300), std::slice::from_ref(&data));
    assert_eq!(parts.len(), 6);
    assert_eq!((parts[2].as_ptr(), parts[2].len()), (data.as_ptr(), 1 << 20));
    assert_eq!(parts[4].as_ptr(), data[1 << 20..].as_ptr());
    let object: Bytes = parts.concat().into();
    let span = Span::new(5..9000);
    let got = get(&object, &span);
    let read = span.whole(&got, None).expect("sound");
    assert_eq!((read.len(), read[0].as_ptr()), (1, got[BLOCK + 5..].as_ptr()));
}

#[test]
fn a_header_comes_back_and_every_flip_is_seen() {
    let object = object(600);
    let head = Head::decode(&object[..BLOCK]).expect("sound");
    assert_eq!((head.header, head.inos, head.files), (header(600), Ino(77)..=Ino(82), 6));
    let crcs: Vec<u32> = (0..3).map(|piece| crc32c(&object[4096 + piece * 1_052_672..][..BLOCK])).collect();
    assert_eq!(head.descriptors, crcs);
    for at in 0..BLOCK {
        let mut bad = object[..BLOCK].to_vec();
        bad[at] ^= 0x10;
        assert_eq!(Head::decode(&bad).expect_err("flipped").kind(), ErrorKind::Corrupt, "flip at {at}");
    }
    assert_eq!(Head::decode(&object[..BLOCK - 1]).expect_err("short").kind(), ErrorKind::Corrupt);
}

/// A header with `change` made to it, and a checksum that matches again.
fn changed(change: impl Fn(&mut [u8])) -> braid_base::Error {
    let mut block = object(1)[..BLOCK].to_vec();
    change(&mut block);
    block[BLOCK - 4..].fill(0);
    let crc = crc32c(&block);
    block[BLOCK - 4..].copy_from_slice(&crc.to_le_bytes());
    Head::decode(&block).expect_err("changed")
}

#[test]
fn what_this_release_does_not_know_is_refused() {
    let newer = changed(|block| block[8] = 2);
    assert_eq!(newer.kind(), ErrorKind::Unsupported);
    assert!(newer.message().contains("expected format 1, found 2"), "{newer}");
    let sealed = changed(|block| block[12] = 9);
    assert_eq!(sealed.kind(), ErrorKind::Unsupported);
    assert!(sealed.message().contains("found key 9"), "{sealed}");
    // A serial of more than 48 bits, half a block of data, more data than an object has, another number of pieces.
    for at in [56 + 7, 72 + 1, 72 + 7, 108] {
        assert_eq!(changed(|block| block[at] = 0x55).kind(), ErrorKind::Corrupt, "byte {at}");
    }
    assert_eq!(changed(|block| block[56..64].fill(0)).kind(), ErrorKind::Corrupt, "no serial");
}

#[test]
fn a_read_is_one_piece_or_all_between() {
    let piece = PIECE + 4096;
    assert_eq!(Span::new(0..1).object(), 4096..3 * 4096);
    assert_eq!(Span::new(0..PIECE).object(), 4096..4096 + piece);
    assert_eq!(Span::new(PIECE - 1..PIECE).object(), 4096..4096 + piece);
    assert_eq!(Span::new(PIECE..PIECE + 4096).object(), 4096 + piece..4096 + piece + 8192);
    assert_eq!(Span::new(PIECE - 1..PIECE + 1).object(), 4096..4096 + piece + 8192);
    assert_eq!(Span::new(2 * PIECE + 4096..2 * PIECE + 4097).object(), 4096 + 2 * piece..4096 + 2 * piece + 3 * 4096);
}

#[test]
fn damage_is_found_where_it_is() {
    let mut bad = object(300).to_vec();
    bad[4096 + 4096 + 2 * 4096 + 17] ^= 1;
    let bad: Bytes = bad.into();
    let span = Span::new(0..PIECE + 4096);
    let got = get(&bad, &span);
    let error = span.whole(&got, None).expect_err("damaged");
    assert_eq!(error.kind(), ErrorKind::Corrupt);
    assert!(error.message().starts_with("byte 16384 of the object: expected checksum "), "{error}");
    assert!(span.extract(&got, 0..8192, None).is_ok(), "blocks that are not wanted are not checked");
    assert!(span.extract(&got, 8191..8193, None).is_err(), "a part of a block is checked with all of it");
}

#[test]
fn another_block_than_the_wanted_is_found() {
    let object = object(600);
    let span = Span::new(0..100 * 4096);
    let got = get(&object, &span);
    assert!(span.whole(&got, Some(Block { ino: Ino(77), block: 10 })).is_ok());
    assert!(span.extract(&got, 3 * 4096 + 1..100 * 4096, Some(Block { ino: Ino(77), block: 13 })).is_ok());
    let error = span.whole(&got, Some(Block { ino: Ino(77), block: 11 })).expect_err("another");
    assert_eq!(error.message(), "byte 8192 of the object: expected block 11 of ino77, found block 10 of ino77");
    let span = Span::new(0..101 * 4096);
    let error = span.whole(&get(&object, &span), Some(Block { ino: Ino(77), block: 10 })).expect_err("next file");
    assert!(error.message().ends_with("expected block 110 of ino77, found block 0 of ino78"), "{error}");
    // Blocks 200..300 of the object are one file, over the border of two pieces.
    let span = Span::new(200 * 4096..300 * 4096);
    assert!(span.whole(&get(&object, &span), Some(Block { ino: Ino(79), block: 0 })).is_ok());
}

#[test]
fn a_short_answer_is_refused() {
    let span = Span::new(0..4096);
    let got = get(&object(1), &span);
    assert_eq!(span.whole(&got.slice(..8191), None).expect_err("short").kind(), ErrorKind::Range);
}

#[test]
#[should_panic(expected = "2 blocks for 4096 bytes")]
fn blocks_without_data_are_no_object() {
    build(&header(1), &blocks(2), &[data(1)]);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn any_range_of_any_object_comes_back(
        count in 1u64..700, cuts in prop::collection::vec(any::<u32>(), 0..6), from in any::<u32>(), len in any::<u32>(),
    ) {
        let data = data(count);
        let mut cuts: Vec<usize> = cuts.iter().map(|cut| *cut as usize % data.len()).collect();
        cuts.extend([0, data.len()]);
        cuts.sort_unstable();
        let parts: Vec<Bytes> = cuts.windows(2).map(|cut| data.slice(cut[0]..cut[1])).collect();
        let object: Bytes = build(&header(count), &blocks(count), &parts).concat().into();
        prop_assert_eq!(object.len() as u64, object_len(data.len() as u64));
        let from = u64::from(from) % data.len() as u64;
        let to = from + 1 + u64::from(len) % (data.len() as u64 - from);
        let span = Span::new(from..to);
        let read = span.whole(&get(&object, &span), None).expect("sound").concat();
        prop_assert!(read == data[from as usize..to as usize]);
    }

    #[test]
    fn no_bytes_are_too_odd(
        noise in prop::collection::vec(any::<u8>(), 0..3 * BLOCK), from in 0u64..8192, len in 1u64..8192,
    ) {
        prop_assert!(Head::decode(&noise).is_err());
        let known = [b"BRAIDOBJ".as_slice(), &noise].concat();
        prop_assert!(Head::decode(&known[..known.len().min(BLOCK)]).is_err());
        prop_assert!(Descriptor::decode(&noise).entries().len() <= 256);
        let span = Span::new(from..from + len);
        let range = span.object();
        let mut got = noise;
        prop_assert!(span.whole(&got.clone().into(), None).is_err());
        got.resize((range.end - range.start) as usize, 0xA5);
        prop_assert!(span.whole(&got.into(), None).is_err());
    }

    #[test]
    fn any_fields_under_a_right_checksum_are_read_or_refused(noise in prop::collection::vec(any::<u8>(), 100)) {
        let mut block = object(1)[..BLOCK].to_vec();
        block[12..112].copy_from_slice(&noise);
        block[12..16].fill(0);
        block[BLOCK - 4..].fill(0);
        let crc = crc32c(&block);
        block[BLOCK - 4..].copy_from_slice(&crc.to_le_bytes());
        if let Ok(head) = Head::decode(&block) {
            prop_assert_eq!(head.descriptors.len() as u64, head.header.data_len.div_ceil(PIECE));
        }
    }
}
