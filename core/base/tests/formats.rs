//! Keys and values of the view are as `docs/formats.md` draws them.

mod layout;

use braid_base::attr::{Attr, FileType, Time};
use braid_base::ids::{
    BlobId, Chunk, ClientId, DriveId, Epoch, FsId, Index, Ino, Layer, OpId, PackId, PartitionId, StoreId, Term,
};
use braid_base::keys::{self, Table};
use braid_base::record::{
    BaseRec, BlobRec, BlobState, DentryRec, Extent, InodeRec, ObjectAt, PackClass, PackRec, PackState, Place,
    Placement, PunchRec, Record, Reserved, SliceRec, StripeAt, StripeRec, UsageRec,
};
use layout::{Value, b, bytes, n};

const P: PartitionId = PartitionId(0x0102);
const FS: FsId = FsId(0x0304_0506);
const INO: Ino = Ino(0x0708_090a_0b0c_0d0e);
const LAYER: Layer = Layer(0x1112_1314);
const CHUNK: Chunk = Chunk(0x1516_1718);
const SB: u16 = 0x191a;
const AT: Index = Index(0x2122_2324_2526_2728);
const OP: OpId = OpId { client: ClientId(0x3132_3334_3536_3738), seq: 0x4142_4344_4546_4748 };

#[track_caller]
fn same_key(name: &str, fields: &[(String, Value)], key: &[u8]) {
    let page = [&P.0.to_be_bytes()[..], &bytes(name, fields)].concat();
    assert_eq!(page, key, "{name}");
}

#[test]
fn keys_are_as_drawn() {
    let (fs, ino, layer, chunk) = (n("fs", FS.0), n("ino", INO.0), n("~layer", !LAYER.0), n("chunk", CHUNK.0));
    let (pack_id, at) = (PackId::new(P, 0x5152_5354_5556), n("index", AT.0));
    let (pack, sb) = (n("pack", pack_id.seq()), n("sb", SB));
    let op = [n("client", OP.client.0), n("seq", OP.seq)];
    let four = |a: &(_, _), b: &(_, _), c: &(_, _), d: &(_, _)| vec![a.clone(), b.clone(), c.clone(), d.clone()];
    same_key("key.meta", &[b("name", b"applied")], &keys::meta(P, "applied"));
    same_key("key.inode", &[fs.clone(), ino.clone(), layer.clone()], &keys::inode(P, FS, INO, LAYER));
    let dentry = four(&fs, &n("dir", INO.0), &n("cookie", 99u64), &layer);
    same_key("key.dentry", &dentry, &keys::dentry(P, FS, INO, 99, LAYER));
    same_key("key.xattr", &four(&fs, &ino, &b("name", b"user.a"), &layer), &keys::xattr(P, FS, INO, b"user.a", LAYER));
    same_key("key.base", &four(&fs, &ino, &chunk, &layer), &keys::base(P, FS, INO, CHUNK, LAYER));
    let slice = [four(&fs, &ino, &chunk, &layer), vec![at.clone(), n("sub", 7u16)]].concat();
    same_key("key.slice", &slice, &keys::slice(P, FS, INO, CHUNK, LAYER, AT, 7));
    same_key("key.punch", &four(&fs, &ino, &layer, &at), &keys::punch(P, FS, INO, LAYER, AT));
    let touched = four(&fs, &n("layer", LAYER.0), &ino, &n("chunk/1024", CHUNK.0 >> 10));
    same_key("key.touched", &touched, &keys::touched(P, FS, LAYER, INO, CHUNK));
    same_key("key.pack", std::slice::from_ref(&pack), &keys::pack(P, pack_id));
    same_key("key.suspect", std::slice::from_ref(&pack), &keys::suspect(P, pack_id));
    same_key("key.stripe", &[pack.clone(), sb.clone()], &keys::stripe(P, pack_id, SB));
    let blob_id = BlobId::new(P, 0x5152_5354_5556);
    let serial = n("serial", blob_id.serial());
    same_key("key.blob", std::slice::from_ref(&serial), &keys::blob(P, blob_id));
    let blob_hint = four(&serial, &fs, &ino, &chunk);
    same_key("key.blob-hint", &blob_hint, &keys::blob_hint(P, blob_id, FS, INO, CHUNK));
    let hint = [vec![pack, sb, fs.clone()], vec![ino.clone(), chunk]].concat();
    same_key("key.hint", &hint, &keys::hint(P, pack_id, SB, FS, INO, CHUNK));
    same_key("key.pending", &op, &keys::pending(P, OP));
    same_key("key.outcome", &op, &keys::outcome(P, OP));
    same_key("key.outbox", &[n("to", 9u16), n("seq", 10u64)], &keys::outbox(P, PartitionId(9), 10));
    same_key("key.inbox", &[n("from", 9u16)], &keys::inbox(P, PartitionId(9)));
    same_key("key.orphan", &[fs.clone(), ino, layer], &keys::orphan(P, FS, INO, LAYER));
    same_key("key.usage", &[fs, n("quota", 11u64)], &keys::usage(P, FS, 11));
    same_key("key.dedup", &[op[0].clone(), n("row", 12u64)], &keys::dedup(P, OP.client, 12));
    same_key("key.active", &op[..1], &keys::active(P, OP.client));
    same_key("key.fsroot", &[], &keys::table(P, Table::FsRoot));
}

#[track_caller]
fn same<R: Record>(name: &str, fields: &[(String, Value)], record: &R) {
    assert_eq!(bytes(name, fields), record.encode(), "{name}");
}

#[test]
fn inodes_and_entries_are_as_drawn() {
    let time = |sec: i64| Time { sec, nsec: 100 + sec.unsigned_abs() as u32 };
    let attr = Attr {
        ino: INO,
        kind: FileType::Socket,
        mode: 0o4751,
        uid: 2,
        gid: 3,
        nlink: 4,
        size: 5,
        used: 6,
        rdev: 7,
        atime: time(-8),
        mtime: time(9),
        ctime: time(10),
        btime: time(11),
        generation: 12,
        change: 13,
        xattrs: true,
    };
    let mut fields = vec![n("type", 7u8), n("mode", 0o4751u16), n("uid", 2u8), n("gid", 3u8), n("nlink", 4u8)];
    fields.extend([n("size", 5u8), n("used", 6u8), n("rdev", 7u8), n("atime_s", -8i64 as u64), n("atime_ns", 108u8)]);
    for (name, sec) in [("mtime", 9u8), ("ctime", 10), ("btime", 11)] {
        fields.extend([n(&format!("{name}_s"), sec), n(&format!("{name}_ns"), 100 + sec)]);
    }
    fields.extend([n("generation", 12u8), n("change", 13u8), n("parent", 14u8), n("quota", 15u8), n("flags", 10u8)]);
    fields.push(b("target", b"to"));
    let (flags, target) = (InodeRec::DYING, b"to".to_vec());
    let mut inode = InodeRec { attr, parent: Ino(14), quota: 15, flags, target, reserved: Reserved::default() };
    same("inode", &fields, &inode);
    inode.reserved = Reserved { from: 16, to: 19, bytes: 2 };
    let flags_at = fields.len() - 2;
    fields[flags_at] = n("flags", 26u8);
    let mut drawn = bytes("inode", &fields);
    drawn.extend(bytes("inode-reserved", &[n("from", 16u8), n("to", 19u8), n("bytes", 2u8)]));
    assert_eq!(drawn, inode.encode());
    assert_eq!((InodeRec::PENDING, InodeRec::DYING, InodeRec::DATA, InodeRec::XATTR), (1, 2, 4, 8));
    let kinds = [FileType::File, FileType::Directory, FileType::Symlink, FileType::Fifo, FileType::CharDevice];
    assert_eq!(kinds.map(|kind| kind as u8), [1, 2, 3, 4, 5]);
    assert_eq!((FileType::BlockDevice as u8, FileType::Socket as u8), (6, 7));
    let drawn = bytes("dentry", &[n("type", 3u8), n("ino", INO.0), b("name", b"name"), n("crowded", 1u8)]);
    let entry = DentryRec::decode(&drawn).expect("the page draws an entry");
    assert_eq!(
        (entry.ino, entry.kind, entry.name.as_slice(), entry.crowded),
        (INO, FileType::Symlink, &b"name"[..], true)
    );
    assert_eq!(entry.encode(), drawn);
}

#[test]
fn records_of_data_are_as_drawn() {
    let stripe = StripeAt { pack: PackId(77), sb: 64, ul: 32 };
    let flash = Extent { off: 4096, len: 8192, place: Place::Flash { stripe, delta: 12, copy: None } };
    let stage = Extent { off: 1, len: 3, place: Place::Stage { at: AT, poff: 5 } };
    let mut fields = vec![n("off", 4096u16), n("len", 8192u16), n("pack", 77u8)];
    fields.extend([n("sb", 64u8), n("ul", 32u8), n("delta", 12u8)]);
    let flash_bytes = bytes("extent-flash", &fields);
    let fields = [n("off", 1u8), n("len", 3u8), n("index", AT.0), n("payload_off", 5u8)];
    let stage_bytes = bytes("extent-staged", &fields);
    same("slice", &[b("extent", &flash_bytes)], &SliceRec(flash));
    same("slice", &[b("extent", &stage_bytes)], &SliceRec(stage));
    let listed = [n("pack", 77u8), n("sb", 64u8), n("ul", 32u8)];
    let base = |kinds: u8, objects: &[u8], extents: &[&[u8]]| {
        let mut fields = vec![n("upto", AT.0), n("since_s", 77u8), n("stripes", 1u8)];
        fields.extend(listed.clone());
        fields.extend([n("kinds", kinds), b("objects", objects), n("count", extents.len() as u8)]);
        fields.push(b("extents", &extents.concat()));
        fields
    };
    let rec = |extents| BaseRec { upto: AT, since_s: 77, extents };
    let extent = [n("off", 4096u16), n("len", 8192u16), n("stripe", 0u8), n("delta", 12u8)];
    let extent = bytes("base-extent-bytes", &extent);
    same("base", &base(0, &[], &[&extent]), &rec(vec![flash]));
    let whole = Extent { place: Place::Flash { stripe, delta: 3 * 4096, copy: None }, ..flash };
    let extent = [n("off", 1u8), n("more_blocks", 1u8), n("stripe", 0u8), n("delta", 3u8)];
    let extent = bytes("base-extent-blocks", &extent);
    same("base", &base(1, &[], &[&extent]), &rec(vec![whole]));
    let at = ObjectAt { blob: BlobId::new(P, 5), off: 7 * 4096 };
    let both = Extent { place: Place::Flash { stripe, delta: 3 * 4096, copy: Some(at) }, ..flash };
    let gone = Extent { off: 5 * 4096, len: 4096, place: Place::Object(at.advanced(8192)) };
    let objects = bytes("base-objects", &[n("count", 1u8), n("blob", at.blob.0)]);
    let fields =
        [n("off", 1u8), n("more_blocks", 1u8), n("stripe", 0u8), n("delta", 3u8), n("object", 0u8), n("at", 7u8)];
    let first = bytes("base-extent-both", &fields);
    let second = [n("off", 5u8), n("more_blocks", 0u8), n("object", 0u8), n("at", 9u8)];
    let second = bytes("base-extent-object", &second);
    same("base", &base(3, &objects, &[&first, &second]), &rec(vec![both, gone]));
    let blob = BlobRec {
        state: BlobState::Present,
        fs: FS,
        store: StoreId(3),
        term: Term(9),
        size: 4096,
        held: 100,
        live_upper: 12,
    };
    let fields = [
        n("state", 2u8),
        n("fs", FS.0),
        n("store", 3u8),
        n("term", 9u8),
        n("size", 4096u16),
        n("held", 100u8),
        n("live_upper", 12u8),
    ];
    same("blob", &fields, &blob);
    let punch = PunchRec { from: 3, to: u64::MAX, owed: true };
    same("punch", &[n("from", 3u8), n("to", u64::MAX), n("owed", 1u8)], &punch);
    same("stripe", &[n("ul", 64u8), n("len", 1000u16)], &StripeRec { ul: 64, len: 1000 });
    same("usage", &[n("bytes", 1u8), n("inodes", 2u8), n("flash", 3u8)], &UsageRec { bytes: 1, inodes: 2, flash: 3 });
}

#[test]
fn packs_are_as_drawn() {
    let place = Placement { data: 2, parity: 1, epoch: Epoch(6), drives: vec![DriveId(7), DriveId(8), DriveId(9)] };
    let pack = PackRec { state: PackState::Sealed, class: PackClass::Gc, place, term: 10, live_upper: 11 };
    let mut fields = vec![n("state", 2u8), n("class", 3u8), n("D", 2u8), n("P", 1u8), n("epoch", 6u8)];
    fields.extend([n("term", 10u8), n("live_upper", 11u8), n("count", 3u8)]);
    fields.extend([7u8, 8, 9].map(|drive| n("drive", drive)));
    same("pack", &fields, &pack);
    assert_eq!((PackState::Open as u8, PackState::Dead as u8), (1, 3));
    assert_eq!((PackClass::User as u8, PackClass::Destage as u8, PackClass::Cache as u8), (1, 2, 4));
}
