//! Superblock, slot header and checksum page are as `docs/formats.md` draws them.

use braid_base::crc::crc32c;
use braid_base::ids::{DomainId, DriveId, FsId, Guid, PackId, Term};
use braid_base::msg::drive::ShardId;
use braid_base::record::PackClass;

use super::header::{Header, State};
use super::page::{Life, Page};
use super::superblock::Superblock;
use layout::{Value, b, bytes, n};

#[path = "../../../base/tests/layout/mod.rs"]
mod layout;

use crate::layout::Layout;

/// The block that the page draws: with the checksum of itself where `crc` stands.
fn sealed(name: &str, fields: &[(String, Value)]) -> Vec<u8> {
    let at = fields.iter().position(|(name, _)| name == "crc").expect("it has a checksum");
    let mut fields = fields.to_vec();
    let crc = crc32c(&bytes(name, &fields));
    fields[at] = n("crc", crc);
    bytes(name, &fields)
}

#[test]
fn superblock_is_as_drawn() {
    let layout = Layout { shard_blocks: 256, stride: 11, first_slot: 12, slots: 13, size: 14 };
    let (cluster, drive) = (Guid([1; 16]), Guid([2; 16]));
    let block = Superblock { cluster, drive, id: DriveId(7), domain: DomainId(3), layout, seq: 5, created: 6 };
    let mut fields = vec![b("cluster", &[1; 16]), b("drive", &[2; 16]), n("number", 7u8), n("domain", 3u8)];
    fields.extend([n("shard_blocks", 256u16), n("slot_stride", 11u8), n("first_slot", 12u8), n("slots", 13u8)]);
    fields.extend([n("seq", 5u8), n("created_s", 6u8), n("size", 14u8), n("crc", 0u8)]);
    assert_eq!(sealed("superblock", &fields), block.encode());
    let halves = Superblock { drive: Guid([0, 0, 0, 0, 0, 0, 0, 0, 1, 2, 3, 4, 5, 6, 7, 8]), ..block };
    assert_eq!(halves.guid_lo(), 0x0807_0605_0403_0201);
}

#[test]
fn slot_header_is_as_drawn() {
    let id = ShardId { pack: PackId(0x0007_0000_0000_0009), shard: 3 };
    let (state, class, term) = (State::Live, PackClass::Gc, Term(11));
    let header = Header { seq: 9, state, id, data: 4, parity: 2, class, term, fs: FsId(12), created: 13 };
    let mut fields = vec![n("slot_seq", 9u8), n("state", 2u8), n("pack", id.pack.0), n("shard", 3u8), n("D", 4u8)];
    fields.extend([n("P", 2u8), n("class", 3u8), n("term", 11u8), n("fs", 12u8), n("created_s", 13u8)]);
    fields.extend([n("drive_lo", 77u8), n("crc", 0u8)]);
    assert_eq!(sealed("slot-header", &fields), header.encode(77));
    assert_eq!((State::Free as u8, State::Quarantine as u8), (1, 3));
}

#[test]
fn checksum_page_is_as_drawn() {
    let life = Life { slot_seq: 3, id: ShardId { pack: PackId(4), shard: 1 }, guid_lo: 5 };
    let mut page = Page::empty();
    (page.seq, page.suspect) = (8, true);
    let (mut written, mut crcs) = ([0; 120], vec![0u32; 960]);
    for block in [0, 9, 64, 959] {
        page.set(block, 0x1000 + block as u32);
        // Words are little-endian, so bit b of the set is bit b mod 8 of byte b / 8.
        written[block / 8] |= 1 << (block % 8);
        crcs[block] = 0x1000 + block as u32;
    }
    let mut fields = vec![n("page", 2u8), n("slot_seq", 3u8), n("page_seq", 8u8), b("written", &written)];
    fields.extend([n("pack", 4u8), n("shard", 1u8), n("drive_lo", 5u8), n("suspect", 1u8), n("crc", 0u8)]);
    fields.extend(crcs.into_iter().map(|crc| n("block_crc", crc)));
    assert_eq!(sealed("page", &fields), page.encode(2, &life));
}
