//! Values of the key-value view (design 4.3). Each starts with its version byte.

use crate::attr::{Attr, FileType, Time};
use crate::codec::{Reader, Writer};
use crate::error::{Error, ErrorKind, Result};
use crate::ids::{BlobId, DriveId, Epoch, FsId, Index, Ino, PackId, StoreId, Term};
use crate::limits::whole_blocks;

mod base;

/// A value that knows its bytes.
pub trait Record: Sized {
    /// The bytes to store.
    fn encode(&self) -> Vec<u8>;
    /// The value of stored bytes; `Corrupt` if they are not one.
    fn decode(bytes: &[u8]) -> Result<Self>;
}

/// An inode.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct InodeRec {
    /// What stat shows (its `ino` is not stored: the key has it).
    pub attr: Attr,
    /// Directories: the parent. Others: 0.
    pub parent: Ino,
    /// Quota id (inode of the nearest quota root), 0 = none.
    pub quota: u64,
    /// Bit set of the constants of this type.
    pub flags: u32,
    /// Symlinks: the target.
    pub target: Vec<u8>,
    /// Room that is kept for a file beside what it holds; part of what it uses.
    pub reserved: Reserved,
}

/// Bytes of a file that are still to be written and for which room is kept.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Reserved {
    /// They lie from here...
    pub from: u64,
    /// ...to here (exclusive).
    pub to: u64,
    /// How many they are; 0: none.
    pub bytes: u64,
}

impl InodeRec {
    /// Created for an operation that another partition has not decided yet: invisible.
    pub const PENDING: u32 = 1;
    /// A directory about to be removed: takes no new entries.
    pub const DYING: u32 = 2;
    /// Bytes were written once: there may be bases, slices and punches.
    pub const DATA: u32 = 4;
    /// On disk only: an extended attribute was set once ([`Attr::xattrs`]).
    pub const XATTR: u32 = 8;
    /// On disk only: `reserved` follows the target.
    pub const RESERVED: u32 = 16;

    /// What the file counts for in usage and capacity: what it holds, in whole blocks. A byte takes a block.
    pub fn charged(&self) -> u64 {
        whole_blocks(self.attr.used)
    }
}

fn put_time(w: &mut Writer, time: Time) {
    w.put_i64(time.sec).put_u32(time.nsec);
}

fn time(r: &mut Reader<'_>) -> Result<Time> {
    Ok(Time { sec: r.i64()?, nsec: r.u32()? })
}

fn file_type(r: &mut Reader<'_>) -> Result<FileType> {
    let number = r.u8()?;
    FileType::from_u8(number)
        .ok_or_else(|| Error::new(ErrorKind::Corrupt, format!("inode: expected a file type 1..7, found {number}")))
}

impl Record for InodeRec {
    fn encode(&self) -> Vec<u8> {
        let a = &self.attr;
        let mut w = Writer::with_capacity(128 + self.target.len());
        w.put_u8(1).put_u8(a.kind as u8).put_u16(a.mode).put_u32(a.uid).put_u32(a.gid).put_u32(a.nlink);
        w.put_u64(a.size).put_u64(a.used).put_u32(a.rdev);
        for t in [a.atime, a.mtime, a.ctime, a.btime] {
            put_time(&mut w, t);
        }
        w.put_u32(a.generation).put_u64(a.change).put_u64(self.parent.0).put_u64(self.quota);
        let Reserved { from, to, bytes } = self.reserved;
        let xattrs = if a.xattrs { Self::XATTR } else { 0 };
        let reserved = if bytes > 0 { Self::RESERVED } else { 0 };
        w.put_u32(self.flags | xattrs | reserved).put_bytes(&self.target);
        if bytes > 0 {
            w.put_u64(from).put_u64(to).put_u64(bytes);
        }
        w.finish()
    }

    fn decode(bytes: &[u8]) -> Result<Self> {
        let r = &mut Reader::new(bytes);
        r.version(1, "inode")?;
        let mut attr = Attr {
            ino: Ino(0),
            kind: file_type(r)?,
            mode: r.u16()?,
            uid: r.u32()?,
            gid: r.u32()?,
            nlink: r.u32()?,
            size: r.u64()?,
            used: r.u64()?,
            rdev: r.u32()?,
            atime: time(r)?,
            mtime: time(r)?,
            ctime: time(r)?,
            btime: time(r)?,
            generation: r.u32()?,
            change: r.u64()?,
            xattrs: false,
        };
        let (parent, quota, flags, target) = (Ino(r.u64()?), r.u64()?, r.u32()?, r.bytes()?.to_vec());
        let reserved = match flags & Self::RESERVED {
            0 => Reserved::default(),
            _ => Reserved { from: r.u64()?, to: r.u64()?, bytes: r.u64()? },
        };
        attr.xattrs = flags & Self::XATTR != 0;
        Ok(Self { attr, parent, quota, flags: flags & !(Self::RESERVED | Self::XATTR), target, reserved })
    }
}

/// A directory entry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DentryRec {
    /// The inode.
    pub ino: Ino,
    /// Its type, so that readdir need not ask the inode.
    pub kind: FileType,
    /// The name, 1..=255 bytes without `/` and NUL.
    pub name: Vec<u8>,
    /// Names of the same hash may stand behind this one (said at the first place of a hash only).
    pub crowded: bool,
}

impl Record for DentryRec {
    fn encode(&self) -> Vec<u8> {
        let mut w = Writer::with_capacity(16 + self.name.len());
        w.put_u8(2).put_u8(self.kind as u8).put_u64(self.ino.0).put_bytes(&self.name).put_u8(u8::from(self.crowded));
        w.finish()
    }

    fn decode(bytes: &[u8]) -> Result<Self> {
        let r = &mut Reader::new(bytes);
        r.version(2, "directory entry")?;
        let kind = file_type(r)?;
        Ok(Self { kind, ino: Ino(r.u64()?), name: r.bytes()?.to_vec(), crowded: r.u8()? != 0 })
    }
}

/// A stripe's place: every shard of `pack` holds its blocks `[sb, sb+ul)`.
///
/// Logical byte L of the stripe is in data shard `L / (ul*4096)`, at block `sb + (L mod (ul*4096)) / 4096`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct StripeAt {
    /// The pack.
    pub pack: PackId,
    /// First block in every shard.
    pub sb: u16,
    /// Blocks in every shard.
    pub ul: u16,
}

/// A place in the data of an object: byte `off` of it, descriptors not counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ObjectAt {
    /// The object.
    pub blob: BlobId,
    /// Byte offset in its data.
    pub off: u32,
}

impl ObjectAt {
    /// The place `by` bytes further on.
    pub fn advanced(self, by: u32) -> Self {
        Self { off: self.off + by, ..self }
    }
}

/// Where bytes of a file are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Place {
    /// In the payload of a log entry, from byte `poff` of it.
    Stage {
        /// The entry.
        at: Index,
        /// Byte offset in its payload.
        poff: u32,
    },
    /// In a stripe, from logical byte `delta` of it.
    Flash {
        /// The stripe.
        stripe: StripeAt,
        /// Byte offset in its logical data.
        delta: u32,
        /// The same bytes in an object, if they are in one, too.
        copy: Option<ObjectAt>,
    },
    /// In an object only.
    Object(ObjectAt),
}

impl Place {
    /// The place `by` bytes further on.
    pub fn advanced(self, by: u32) -> Self {
        match self {
            Self::Stage { at, poff } => Self::Stage { at, poff: poff + by },
            Self::Flash { stripe, delta, copy } => {
                Self::Flash { stripe, delta: delta + by, copy: copy.map(|copy| copy.advanced(by)) }
            }
            Self::Object(at) => Self::Object(at.advanced(by)),
        }
    }

    /// Where the bytes are in an object, alone or beside flash.
    pub fn object(self) -> Option<ObjectAt> {
        match self {
            Self::Stage { .. } => None,
            Self::Flash { copy, .. } => copy,
            Self::Object(at) => Some(at),
        }
    }
}

/// One run of bytes of a chunk; what no run covers is a hole.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Extent {
    /// First byte within the chunk.
    pub off: u32,
    /// Bytes.
    pub len: u32,
    /// Where they are.
    pub place: Place,
}

/// Kind of an extent whose bytes lie in the log.
const IN_LOG: u8 = 1;

fn put_extent(w: &mut Writer, extent: &Extent) {
    w.put_u32(extent.off).put_u32(extent.len);
    match extent.place {
        Place::Stage { at, poff } => w.put_u8(IN_LOG).put_u64(at.0).put_u32(poff),
        Place::Flash { stripe, delta, copy: None } => {
            w.put_u8(2).put_u64(stripe.pack.0).put_u16(stripe.sb).put_u16(stripe.ul).put_u32(delta)
        }
        Place::Flash { copy: Some(_), .. } | Place::Object(_) => {
            panic!("what is written is in no object yet: {extent:?}")
        }
    };
}

fn extent(r: &mut Reader<'_>) -> Result<Extent> {
    let (off, len) = (r.u32()?, r.u32()?);
    let place = match r.u8()? {
        IN_LOG => Place::Stage { at: Index(r.u64()?), poff: r.u32()? },
        2 => {
            let stripe = StripeAt { pack: PackId(r.u64()?), sb: r.u16()?, ul: r.u16()? };
            Place::Flash { stripe, delta: r.u32()?, copy: None }
        }
        other => return Err(Error::new(ErrorKind::Corrupt, format!("extent: expected kind 1 or 2, found {other}"))),
    };
    Ok(Extent { off, len, place })
}

/// The merged content of a chunk as of log position `upto`: sorted, disjoint extents, none of them in the log.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct BaseRec {
    /// Slices and punches up to and including this position are merged in.
    pub upto: Index,
    /// When bytes were last written, brought back from an object, or put into one; or read, as far as that was noted
    /// since: seconds since 1970. Ages of a tiered file system count from here.
    pub since_s: u32,
    /// Sorted by offset, disjoint.
    pub extents: Vec<Extent>,
}

/// One write into a chunk (its log position is in the key).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SliceRec(pub Extent);

/// Bytes of the record of a slice whose bytes lie in the log.
pub const STAGED_SLICE_BYTES: usize = 1 + 4 + 4 + 1 + 8 + 4;

impl SliceRec {
    /// True if `record` is a slice whose bytes lie in the log: told by its kind, without a look at all of it.
    pub fn is_staged(record: &[u8]) -> bool {
        const KIND_AT: usize = 1 + 4 + 4; // behind version, offset and length
        record.get(KIND_AT) == Some(&IN_LOG)
    }
}

impl Record for SliceRec {
    fn encode(&self) -> Vec<u8> {
        let mut w = Writer::with_capacity(32);
        w.put_u8(1);
        put_extent(&mut w, &self.0);
        w.finish()
    }

    fn decode(bytes: &[u8]) -> Result<Self> {
        let r = &mut Reader::new(bytes);
        r.version(1, "slice")?;
        Ok(Self(extent(r)?))
    }
}

/// A cut: bytes `[from, to)` of the file read as zero unless written later.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PunchRec {
    /// First byte.
    pub from: u64,
    /// End, exclusive; `u64::MAX` for a truncate.
    pub to: u64,
    /// The bytes it hides are still counted as used; whoever merges it into a base subtracts them.
    pub owed: bool,
}

impl Record for PunchRec {
    fn encode(&self) -> Vec<u8> {
        let mut w = Writer::new();
        w.put_u8(1).put_u64(self.from).put_u64(self.to).put_u8(u8::from(self.owed));
        w.finish()
    }

    fn decode(bytes: &[u8]) -> Result<Self> {
        let r = &mut Reader::new(bytes);
        r.version(1, "punch")?;
        Ok(Self { from: r.u64()?, to: r.u64()?, owed: r.u8()? != 0 })
    }
}

/// What a pack is for; packs of one class share their fate.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum PackClass {
    /// Written by clients directly.
    User = 1,
    /// Written by destage.
    Destage = 2,
    /// Written by garbage collection.
    Gc = 3,
    /// Copies of what is in objects, without parity.
    Cache = 4,
}

/// Where a pack stands in its life: open, sealed, dead (shards being dropped), then the record goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum PackState {
    /// Ranges are lent.
    Open = 1,
    /// Nothing is lent any more and no grant is outstanding.
    Sealed = 2,
    /// No reference is left; its shards are being dropped.
    Dead = 3,
}

/// Where a pack's shards are and how they are coded: what a reader or writer of it needs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Placement {
    /// Data shards D.
    pub data: u8,
    /// Parity shards P.
    pub parity: u8,
    /// Changes whenever a drive of it does.
    pub epoch: Epoch,
    /// The drive of each shard, D+P of them.
    pub drives: Vec<DriveId>,
}

/// A pack.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PackRec {
    /// Where it stands in its life.
    pub state: PackState,
    /// What it is for.
    pub class: PackClass,
    /// Where its shards are.
    pub place: Placement,
    /// Term in which it was opened.
    pub term: u64,
    /// Logical bytes in committed stripes that may still be referenced (never too low).
    pub live_upper: u64,
}

impl Record for PackRec {
    fn encode(&self) -> Vec<u8> {
        let mut w = Writer::with_capacity(64);
        w.put_u8(1).put_u8(self.state as u8).put_u8(self.class as u8);
        w.put_u8(self.place.data).put_u8(self.place.parity).put_u32(self.place.epoch.0);
        w.put_u64(self.term).put_u64(self.live_upper).put_u8(self.place.drives.len() as u8);
        for drive in &self.place.drives {
            w.put_u32(drive.0);
        }
        w.finish()
    }

    fn decode(bytes: &[u8]) -> Result<Self> {
        let r = &mut Reader::new(bytes);
        r.version(1, "pack")?;
        let bad = |what: &str, found: u8| Error::new(ErrorKind::Corrupt, format!("pack: unknown {what} {found}"));
        let state = match r.u8()? {
            1 => PackState::Open,
            2 => PackState::Sealed,
            3 => PackState::Dead,
            other => return Err(bad("state", other)),
        };
        let class = match r.u8()? {
            1 => PackClass::User,
            2 => PackClass::Destage,
            3 => PackClass::Gc,
            4 => PackClass::Cache,
            other => return Err(bad("class", other)),
        };
        let (data, parity, epoch) = (r.u8()?, r.u8()?, Epoch(r.u32()?));
        let (term, live_upper) = (r.u64()?, r.u64()?);
        let count = r.u8()?;
        let drives = (0..count).map(|_| Ok(DriveId(r.u32()?))).collect::<Result<_>>()?;
        Ok(Self { state, class, place: Placement { data, parity, epoch, drives }, term, live_upper })
    }
}

/// A committed stripe (pack and start block are in the key).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StripeRec {
    /// Blocks per shard.
    pub ul: u16,
    /// Logical bytes that are file data (the rest is padding).
    pub len: u32,
}

impl Record for StripeRec {
    fn encode(&self) -> Vec<u8> {
        let mut w = Writer::new();
        w.put_u8(1).put_u16(self.ul).put_u32(self.len);
        w.finish()
    }

    fn decode(bytes: &[u8]) -> Result<Self> {
        let r = &mut Reader::new(bytes);
        r.version(1, "stripe")?;
        Ok(Self { ul: r.u16()?, len: r.u32()? })
    }
}

/// Where an object stands in its life: it is logged before it is sent, so that none is ever forgotten.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum BlobState {
    /// It is being sent. After its sender failed, nobody knows whether it arrived.
    Uploading = 1,
    /// It is whole in its store.
    Present = 2,
    /// Nothing refers to it; it is being removed from its store.
    Dead = 3,
}

/// An object in an object store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BlobRec {
    /// Where it stands in its life.
    pub state: BlobState,
    /// The file system whose data it holds.
    pub fs: FsId,
    /// Where it is.
    pub store: StoreId,
    /// Term in which it was sent: part of its key, so that no two senders ever write one key.
    pub term: Term,
    /// Bytes of data: whole blocks.
    pub size: u32,
    /// Bytes of files in it, without what fills their blocks up.
    pub held: u32,
    /// Bytes of these that are referred to (never too low).
    pub live_upper: u64,
}

impl Record for BlobRec {
    fn encode(&self) -> Vec<u8> {
        let mut w = Writer::with_capacity(32);
        w.put_u8(1).put_u8(self.state as u8).put_u32(self.fs.0).put_u32(self.store.0);
        w.put_u64(self.term.0).put_u32(self.size).put_u32(self.held).put_u64(self.live_upper);
        w.finish()
    }

    fn decode(bytes: &[u8]) -> Result<Self> {
        let r = &mut Reader::new(bytes);
        r.version(1, "object")?;
        let state = match r.u8()? {
            1 => BlobState::Uploading,
            2 => BlobState::Present,
            3 => BlobState::Dead,
            other => return Err(Error::new(ErrorKind::Corrupt, format!("object: unknown state {other}"))),
        };
        let (fs, store, term) = (FsId(r.u32()?), StoreId(r.u32()?), Term(r.u64()?));
        Ok(Self { state, fs, store, term, size: r.u32()?, held: r.u32()?, live_upper: r.u64()? })
    }
}

/// Usage of a file system or quota id in one partition.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct UsageRec {
    /// What the files hold, each in whole blocks ([`InodeRec::charged`]), bytes.
    pub bytes: u64,
    /// Inodes.
    pub inodes: u64,
    /// Bytes in packs that its bases and slices refer to, hidden or not.
    pub flash: u64,
}

impl Record for UsageRec {
    fn encode(&self) -> Vec<u8> {
        let mut w = Writer::new();
        w.put_u8(3).put_u64(self.bytes).put_u64(self.inodes).put_u64(self.flash);
        w.finish()
    }

    fn decode(bytes: &[u8]) -> Result<Self> {
        let r = &mut Reader::new(bytes);
        r.version(3, "usage")?;
        Ok(Self { bytes: r.u64()?, inodes: r.u64()?, flash: r.u64()? })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn round_trip<R: Record + PartialEq + std::fmt::Debug>(record: &R) {
        let bytes = record.encode();
        assert_eq!(&R::decode(&bytes).expect("own bytes decode"), record);
        for cut in 0..bytes.len() {
            assert_eq!(R::decode(&bytes[..cut]).map_err(|e| e.kind()), Err(ErrorKind::Corrupt), "cut at {cut}");
        }
    }

    #[test]
    fn every_record_round_trips_and_refuses_cut_bytes() {
        let stripe = StripeAt { pack: PackId(77), sb: 64, ul: 64 };
        let flash = Extent { off: 4096, len: 8192, place: Place::Flash { stripe, delta: 12, copy: None } };
        let stage = Extent { off: 1, len: 3, place: Place::Stage { at: Index(9), poff: 5 } };
        let attr = Attr { mode: 0o644, nlink: 2, size: 5, mtime: Time { sec: -1, nsec: 999 }, ..Attr::default() };
        let reserved = Reserved { from: 10, to: 30, bytes: 15 };
        for reserved in [Reserved::default(), reserved] {
            let attr = attr.clone();
            round_trip(&InodeRec { attr, parent: Ino(4), quota: 3, flags: 1, target: b"to".to_vec(), reserved });
        }
        round_trip(&DentryRec { ino: Ino(5), kind: FileType::Fifo, name: b"name".to_vec(), crowded: true });
        round_trip(&BaseRec { upto: Index(8), since_s: 77, extents: vec![flash] });
        round_trip(&SliceRec(stage));
        assert!(SliceRec::is_staged(&SliceRec(stage).encode()) && !SliceRec::is_staged(&SliceRec(flash).encode()));
        assert_eq!(SliceRec(stage).encode().len(), STAGED_SLICE_BYTES);
        round_trip(&SliceRec(flash));
        round_trip(&PunchRec { from: 3, to: u64::MAX, owed: true });
        let place = Placement { data: 4, parity: 2, epoch: Epoch(1), drives: (0..6).map(DriveId).collect() };
        round_trip(&PackRec { state: PackState::Open, class: PackClass::Destage, place, term: 2, live_upper: 9 });
        round_trip(&StripeRec { ul: 64, len: 1000 });
        round_trip(&UsageRec { bytes: 1, inodes: 2, flash: 3 });
        let (state, fs) = (BlobState::Present, FsId(1));
        round_trip(&BlobRec { state, fs, store: StoreId(2), term: Term(3), size: 4, held: 6, live_upper: 5 });
    }

    #[test]
    fn unknown_version_is_refused_with_both_numbers() {
        let error = StripeRec::decode(&[9, 0, 0]).expect_err("version 9 is unknown");
        assert!(error.message().contains("expected version 1, found 9"));
    }
}
