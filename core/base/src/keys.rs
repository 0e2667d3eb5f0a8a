//! Keys of the key-value view (design 4.3): big-endian, prefix `partition u16 | table u8`.
//!
//! One engine holds all partitions of a host, so every key starts with its partition. A layer is
//! stored as its complement: the newest sorts first.

use crate::ids::{BlobId, Chunk, ClientId, FsId, Index, Ino, Layer, OpId, PackId, PartitionId};

/// Table codes, as on disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Table {
    /// Partition-wide values by name.
    Meta = 0x01,
    /// Inodes.
    Inode = 0x10,
    /// Directory entries.
    Dentry = 0x11,
    /// Extended attributes.
    Xattr = 0x12,
    /// Merged extents of a chunk.
    Base = 0x13,
    /// One write into a chunk, not yet merged.
    Slice = 0x14,
    /// A range of a file that was cut away.
    Punch = 0x15,
    /// Inodes and chunk groups touched in a layer.
    Touched = 0x16,
    /// Packs.
    Pack = 0x20,
    /// Committed stripes of packs.
    Stripe = 0x21,
    /// Which chunks may point into a stripe.
    Hint = 0x22,
    /// Objects.
    Blob = 0x23,
    /// Which chunks may point into an object.
    BlobHint = 0x24,
    /// Packs that may have lost data.
    Suspect = 0x25,
    /// Participant's intents of operations that another partition decides.
    Pending = 0x30,
    /// Decisions of operations coordinated here.
    Outcome = 0x31,
    /// Messages to other partitions, in order.
    Outbox = 0x32,
    /// Last message taken from each other partition.
    Inbox = 0x33,
    /// Inodes without a name: removed when nobody holds them open.
    Orphan = 0x34,
    /// Usage by file system and quota id.
    Usage = 0x40,
    /// Results of operations that must not run twice.
    Dedup = 0x41,
    /// Clients that have state here.
    Active = 0x42,
    /// File-system-wide records, home partition only.
    FsRoot = 0x50,
}

/// A key under construction: bytes in order.
#[derive(Clone)]
pub struct Key(Vec<u8>);

impl Key {
    /// Starts a key in `table` of `partition`.
    pub fn new(partition: PartitionId, table: Table) -> Self {
        let mut bytes = Vec::with_capacity(40);
        bytes.extend_from_slice(&partition.0.to_be_bytes());
        bytes.push(table as u8);
        Self(bytes)
    }

    fn u64(mut self, value: u64) -> Self {
        self.0.extend_from_slice(&value.to_be_bytes());
        self
    }

    fn u32(mut self, value: u32) -> Self {
        self.0.extend_from_slice(&value.to_be_bytes());
        self
    }

    fn u16(mut self, value: u16) -> Self {
        self.0.extend_from_slice(&value.to_be_bytes());
        self
    }

    fn u48(mut self, value: u64) -> Self {
        self.0.extend_from_slice(&value.to_be_bytes()[2..]);
        self
    }

    fn raw(mut self, bytes: &[u8]) -> Self {
        self.0.extend_from_slice(bytes);
        self
    }

    fn layer(self, layer: Layer) -> Self {
        self.u32(!layer.0)
    }

    /// The bytes.
    pub fn done(self) -> Vec<u8> {
        self.0
    }
}

/// Exclusive upper end of all keys that start with `prefix`.
pub fn prefix_end(prefix: &[u8]) -> Vec<u8> {
    let mut end = prefix.to_vec();
    while let Some(last) = end.pop() {
        if last < u8::MAX {
            end.push(last + 1);
            return end;
        }
    }
    vec![u8::MAX; prefix.len() + 1]
}

/// True for rows that are listed or written over and hardly ever got by their key: slices, hints, stripes, answers.
pub fn is_hardly_got(key: &[u8]) -> bool {
    const HARDLY: [Table; 5] = [Table::Slice, Table::Hint, Table::BlobHint, Table::Stripe, Table::Dedup];
    key.get(2).is_some_and(|code| HARDLY.iter().any(|table| *table as u8 == *code))
}

/// True for the key of a slice.
pub fn is_slice(key: &[u8]) -> bool {
    key.get(2) == Some(&(Table::Slice as u8))
}

/// What all keys of a partition begin with.
pub fn partition(p: PartitionId) -> Vec<u8> {
    p.0.to_be_bytes().to_vec()
}

/// A partition-wide value.
pub fn meta(p: PartitionId, name: &str) -> Vec<u8> {
    Key::new(p, Table::Meta).raw(name.as_bytes()).done()
}

/// An inode of a layer.
pub fn inode(p: PartitionId, fs: FsId, ino: Ino, layer: Layer) -> Vec<u8> {
    Key::new(p, Table::Inode).u32(fs.0).u64(ino.0).layer(layer).done()
}

/// All inodes of a file system: prefix.
pub fn inodes(p: PartitionId, fs: FsId) -> Vec<u8> {
    Key::new(p, Table::Inode).u32(fs.0).done()
}

/// The entry of `dir` at `cookie` (`hash55 << 8 | disc`, see [`name_cookie`]).
pub fn dentry(p: PartitionId, fs: FsId, dir: Ino, cookie: u64, layer: Layer) -> Vec<u8> {
    Key::new(p, Table::Dentry).u32(fs.0).u64(dir.0).u64(cookie).layer(layer).done()
}

/// All entries of `dir`: prefix.
pub fn dentries(p: PartitionId, fs: FsId, dir: Ino) -> Vec<u8> {
    Key::new(p, Table::Dentry).u32(fs.0).u64(dir.0).done()
}

/// The cookie in a key made by [`dentry`]; `None` if it is none.
pub fn dentry_cookie(key: &[u8]) -> Option<u64> {
    let bytes = key.get(15..23)?;
    Some(u64::from_be_bytes(bytes.try_into().ok()?))
}

/// First cookie of `name`: 55 bits of hash (never 0), then 8 bits that tell colliding names apart.
///
/// 55 and not 56 bits, because directory offsets are signed 64-bit numbers for programs. Cookies
/// below 256 are free for `.` and `..`. The hash is FNV-1a 64 with the finaliser of MurmurHash3.
pub fn name_cookie(name: &[u8]) -> u64 {
    let mut hash = 0xcbf2_9ce4_8422_2325u64;
    for byte in name {
        hash = (hash ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01b3);
    }
    hash = (hash ^ (hash >> 33)).wrapping_mul(0xff51_afd7_ed55_8ccd);
    hash = (hash ^ (hash >> 33)).wrapping_mul(0xc4ce_b9fe_1a85_ec53);
    hash ^= hash >> 33;
    (hash >> 9).max(1) << 8
}

/// An extended attribute.
pub fn xattr(p: PartitionId, fs: FsId, ino: Ino, name: &[u8], layer: Layer) -> Vec<u8> {
    Key::new(p, Table::Xattr).u32(fs.0).u64(ino.0).raw(name).raw(&[0]).layer(layer).done()
}

/// All extended attributes of `ino`: prefix (15 bytes; the name follows, then 00 and the layer).
pub fn xattrs(p: PartitionId, fs: FsId, ino: Ino) -> Vec<u8> {
    Key::new(p, Table::Xattr).u32(fs.0).u64(ino.0).done()
}

/// The merged extents of a chunk.
pub fn base(p: PartitionId, fs: FsId, ino: Ino, chunk: Chunk, layer: Layer) -> Vec<u8> {
    Key::new(p, Table::Base).u32(fs.0).u64(ino.0).u32(chunk.0).layer(layer).done()
}

/// All merged extents of `ino`: prefix (the chunk follows at byte 15).
pub fn bases(p: PartitionId, fs: FsId, ino: Ino) -> Vec<u8> {
    Key::new(p, Table::Base).u32(fs.0).u64(ino.0).done()
}

/// All bases of a file system: prefix.
pub fn bases_of(p: PartitionId, fs: FsId) -> Vec<u8> {
    Key::new(p, Table::Base).u32(fs.0).done()
}

/// One write into a chunk; `sub` tells the slices of one log entry in one chunk apart.
pub fn slice(p: PartitionId, fs: FsId, ino: Ino, chunk: Chunk, layer: Layer, at: Index, sub: u16) -> Vec<u8> {
    Key::new(p, Table::Slice).u32(fs.0).u64(ino.0).u32(chunk.0).layer(layer).u64(at.0).u16(sub).done()
}

/// All slices of a chunk in one layer: prefix.
pub fn slices(p: PartitionId, fs: FsId, ino: Ino, chunk: Chunk, layer: Layer) -> Vec<u8> {
    Key::new(p, Table::Slice).u32(fs.0).u64(ino.0).u32(chunk.0).layer(layer).done()
}

/// All slices of a file: prefix (the chunk follows at byte 15).
pub fn slices_of_file(p: PartitionId, fs: FsId, ino: Ino) -> Vec<u8> {
    Key::new(p, Table::Slice).u32(fs.0).u64(ino.0).done()
}

/// Bytes of the key of a slice.
pub const SLICE_KEY_BYTES: usize = 33;

/// What a slice key says: file system, inode, chunk, layer, index, sub. `None` if it is no slice key.
pub fn parse_slice(key: &[u8]) -> Option<(FsId, Ino, Chunk, Layer, Index, u16)> {
    if key.len() != SLICE_KEY_BYTES || !is_slice(key) {
        return None;
    }
    Some((
        FsId(u32::from_be_bytes(key[3..7].try_into().ok()?)),
        Ino(u64::from_be_bytes(key[7..15].try_into().ok()?)),
        Chunk(u32::from_be_bytes(key[15..19].try_into().ok()?)),
        Layer(!u32::from_be_bytes(key[19..23].try_into().ok()?)),
        Index(u64::from_be_bytes(key[23..31].try_into().ok()?)),
        u16::from_be_bytes(key[31..33].try_into().ok()?),
    ))
}

/// The chunk in a key of table Base or Slice. `None` if the key is too short.
pub fn chunk_of(key: &[u8]) -> Option<Chunk> {
    Some(Chunk(u32::from_be_bytes(key.get(15..19)?.try_into().ok()?)))
}

/// The file system in a key of the tables Inode to Punch, Orphan, Usage. `None` if too short.
pub fn fs_of(key: &[u8]) -> Option<FsId> {
    Some(FsId(u32::from_be_bytes(key.get(3..7)?.try_into().ok()?)))
}

/// The layer in a key of the tables Base and Slice. `None` if too short.
pub fn chunk_layer(key: &[u8]) -> Option<Layer> {
    Some(Layer(!u32::from_be_bytes(key.get(19..23)?.try_into().ok()?)))
}

/// The layer in a key of the tables Punch and Orphan. `None` if too short.
pub fn file_layer(key: &[u8]) -> Option<Layer> {
    Some(Layer(!u32::from_be_bytes(key.get(15..19)?.try_into().ok()?)))
}

/// The inode in a key of the tables Inode, Dentry, Xattr, Base, Slice, Punch, Orphan. `None` if too short.
pub fn ino_of(key: &[u8]) -> Option<(FsId, Ino)> {
    let fs = u32::from_be_bytes(key.get(3..7)?.try_into().ok()?);
    Some((FsId(fs), Ino(u64::from_be_bytes(key.get(7..15)?.try_into().ok()?))))
}

/// A cut of a file at log position `at`.
pub fn punch(p: PartitionId, fs: FsId, ino: Ino, layer: Layer, at: Index) -> Vec<u8> {
    Key::new(p, Table::Punch).u32(fs.0).u64(ino.0).layer(layer).u64(at.0).done()
}

/// All cuts of a file in one layer: prefix.
pub fn punches(p: PartitionId, fs: FsId, ino: Ino, layer: Layer) -> Vec<u8> {
    Key::new(p, Table::Punch).u32(fs.0).u64(ino.0).layer(layer).done()
}

/// The log position in a punch key. `None` if too short.
pub fn punch_index(key: &[u8]) -> Option<Index> {
    Some(Index(u64::from_be_bytes(key.get(19..27)?.try_into().ok()?)))
}

/// Group of 1,024 chunks touched in a layer.
pub fn touched(p: PartitionId, fs: FsId, layer: Layer, ino: Ino, chunk: Chunk) -> Vec<u8> {
    Key::new(p, Table::Touched).u32(fs.0).u32(layer.0).u64(ino.0).u32(chunk.0 >> 10).done()
}

/// A pack of this partition.
pub fn pack(p: PartitionId, pack: PackId) -> Vec<u8> {
    Key::new(p, Table::Pack).u48(pack.seq()).done()
}

/// All packs of this partition: prefix.
pub fn packs(p: PartitionId) -> Vec<u8> {
    Key::new(p, Table::Pack).done()
}

/// A committed stripe.
pub fn stripe(p: PartitionId, pack: PackId, sb: u16) -> Vec<u8> {
    Key::new(p, Table::Stripe).u48(pack.seq()).u16(sb).done()
}

/// All committed stripes of a pack: prefix (the start block follows at byte 9).
pub fn stripes(p: PartitionId, pack: PackId) -> Vec<u8> {
    Key::new(p, Table::Stripe).u48(pack.seq()).done()
}

/// `(ino, chunk)` may point into a stripe.
pub fn hint(p: PartitionId, pack: PackId, sb: u16, fs: FsId, ino: Ino, chunk: Chunk) -> Vec<u8> {
    Key::new(p, Table::Hint).u48(pack.seq()).u16(sb).u32(fs.0).u64(ino.0).u32(chunk.0).done()
}

/// A pack that may have lost data.
pub fn suspect(p: PartitionId, pack: PackId) -> Vec<u8> {
    Key::new(p, Table::Suspect).u48(pack.seq()).done()
}

/// The pack in a key of the tables Pack, Stripe, Hint, Suspect of partition `p`. `None` if too short.
pub fn pack_of(p: PartitionId, key: &[u8]) -> Option<PackId> {
    match seq48(key)? {
        0 => None,
        seq => Some(PackId::new(p, seq)),
    }
}

/// All hints of a pack: prefix (start block at 9, fs at 11, ino at 15, chunk at 23).
pub fn hints(p: PartitionId, pack: PackId) -> Vec<u8> {
    Key::new(p, Table::Hint).u48(pack.seq()).done()
}

/// What a hint key says: start block, file system, inode, chunk. `None` if it is no hint key.
pub fn parse_hint(key: &[u8]) -> Option<(u16, FsId, Ino, Chunk)> {
    if key.len() != 27 || key[2] != Table::Hint as u8 {
        return None;
    }
    Some((
        u16::from_be_bytes(key[9..11].try_into().ok()?),
        FsId(u32::from_be_bytes(key[11..15].try_into().ok()?)),
        Ino(u64::from_be_bytes(key[15..23].try_into().ok()?)),
        Chunk(u32::from_be_bytes(key[23..27].try_into().ok()?)),
    ))
}

/// An object of this partition.
pub fn blob(p: PartitionId, blob: BlobId) -> Vec<u8> {
    Key::new(p, Table::Blob).u48(blob.serial()).done()
}

/// `(ino, chunk)` may point into an object.
pub fn blob_hint(p: PartitionId, blob: BlobId, fs: FsId, ino: Ino, chunk: Chunk) -> Vec<u8> {
    Key::new(p, Table::BlobHint).u48(blob.serial()).u32(fs.0).u64(ino.0).u32(chunk.0).done()
}

/// All hints of an object: prefix (fs at 9, ino at 13, chunk at 21).
pub fn blob_hints(p: PartitionId, blob: BlobId) -> Vec<u8> {
    Key::new(p, Table::BlobHint).u48(blob.serial()).done()
}

/// The object in a key of the tables Blob and BlobHint of partition `p`. `None` if too short.
pub fn blob_of(p: PartitionId, key: &[u8]) -> Option<BlobId> {
    match seq48(key)? {
        0 => None,
        serial => Some(BlobId::new(p, serial)),
    }
}

/// What a key of table BlobHint says: file system, inode, chunk. `None` if it is none.
pub fn parse_blob_hint(key: &[u8]) -> Option<(FsId, Ino, Chunk)> {
    if key.len() != 25 || key[2] != Table::BlobHint as u8 {
        return None;
    }
    Some((
        FsId(u32::from_be_bytes(key[9..13].try_into().ok()?)),
        Ino(u64::from_be_bytes(key[13..21].try_into().ok()?)),
        Chunk(u32::from_be_bytes(key[21..25].try_into().ok()?)),
    ))
}

/// The 48-bit number behind the table of a key. `None` if the key is too short.
fn seq48(key: &[u8]) -> Option<u64> {
    let mut seq = [0; 8];
    seq[2..].copy_from_slice(key.get(3..9)?);
    Some(u64::from_be_bytes(seq))
}

/// A participant's intent.
pub fn pending(p: PartitionId, op: OpId) -> Vec<u8> {
    Key::new(p, Table::Pending).u64(op.client.0).u64(op.seq).done()
}

/// A decision.
pub fn outcome(p: PartitionId, op: OpId) -> Vec<u8> {
    Key::new(p, Table::Outcome).u64(op.client.0).u64(op.seq).done()
}

/// Message number `seq` to `to`.
pub fn outbox(p: PartitionId, to: PartitionId, seq: u64) -> Vec<u8> {
    Key::new(p, Table::Outbox).u16(to.0).u64(seq).done()
}

/// Last message taken from `from`.
pub fn inbox(p: PartitionId, from: PartitionId) -> Vec<u8> {
    Key::new(p, Table::Inbox).u16(from.0).done()
}

/// An inode without a name.
pub fn orphan(p: PartitionId, fs: FsId, ino: Ino, layer: Layer) -> Vec<u8> {
    Key::new(p, Table::Orphan).u32(fs.0).u64(ino.0).layer(layer).done()
}

/// Usage of a quota id (0 = the whole file system's share of this partition).
pub fn usage(p: PartitionId, fs: FsId, quota: u64) -> Vec<u8> {
    Key::new(p, Table::Usage).u32(fs.0).u64(quota).done()
}

/// A result of an operation of `client` that must not run twice; row 0: which ones are answered.
pub fn dedup(p: PartitionId, client: ClientId, row: u64) -> Vec<u8> {
    Key::new(p, Table::Dedup).u64(client.0).u64(row).done()
}

/// A client has state here.
pub fn active(p: PartitionId, client: ClientId) -> Vec<u8> {
    Key::new(p, Table::Active).u64(client.0).done()
}

/// Everything in one table of a partition: prefix.
pub fn table(p: PartitionId, table: Table) -> Vec<u8> {
    Key::new(p, table).done()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ids::Vp;

    const P: PartitionId = PartitionId(0x0102);

    #[test]
    fn newest_layer_sorts_first_and_index_ascends() {
        let (fs, ino) = (FsId(1), Ino::new(Vp(3), 9));
        assert!(inode(P, fs, ino, Layer(2)) < inode(P, fs, ino, Layer(1)));
        let at = |i| slice(P, fs, ino, Chunk(4), Layer(1), Index(i), 0);
        assert!(at(9) < at(300));
        assert_eq!(parse_slice(&at(300)), Some((fs, ino, Chunk(4), Layer(1), Index(300), 0)));
        assert_eq!(chunk_of(&at(1)), Some(Chunk(4)));
        assert_eq!(ino_of(&at(1)), Some((fs, ino)));
        let cut = punch(P, fs, ino, Layer(6), Index(77));
        assert_eq!((punch_index(&cut), file_layer(&cut), fs_of(&cut)), (Some(Index(77)), Some(Layer(6)), Some(fs)));
        assert_eq!(chunk_layer(&at(1)), Some(Layer(1)));
    }

    #[test]
    fn hints_round_trip_and_prefixes_hold() {
        let pack = PackId::new(P, 5);
        let key = hint(P, pack, 64, FsId(1), Ino(12), Chunk(3));
        assert_eq!(parse_hint(&key), Some((64, FsId(1), Ino(12), Chunk(3))));
        assert_eq!(pack_of(P, &key), Some(pack));
        assert!(key.starts_with(&hints(P, pack)) && key < prefix_end(&hints(P, pack)));
        assert_eq!(prefix_end(&[1, 0xFF]), vec![2]);
        assert_eq!(prefix_end(&[0xFF]), vec![0xFF, 0xFF]);
    }

    #[test]
    fn cookies_fit_a_signed_offset_and_leave_room_for_dots() {
        for i in 0..10_000u32 {
            let cookie = name_cookie(format!("file-{i}").as_bytes());
            assert!(cookie >= 256 && cookie <= i64::MAX as u64 && cookie & 0xFF == 0);
        }
        let key = dentry(P, FsId(1), Ino(1), name_cookie(b"a") | 3, Layer(1));
        assert_eq!(dentry_cookie(&key), Some(name_cookie(b"a") | 3));
        // The hash is an on-disk format: this value must never change.
        assert_eq!(name_cookie(b"braid"), 2_404_462_850_277_891_840);
    }
}
