//! The records of one partition, decoded.

use std::collections::{BTreeMap, BTreeSet};

use braid_base::ids::{BlobId, Chunk, FsId, Index, Ino, PackId, PartitionId};
use braid_base::keys::{self, Table};
use braid_base::record::{
    BaseRec, BlobRec, DentryRec, Extent, InodeRec, PackRec, PunchRec, Record, SliceRec, StripeRec, UsageRec,
};
use braid_base::{Error, ErrorKind, Result};
use braid_replica::kv::Kv;

/// The slices of a chunk: log position, number within the entry, what they hold.
pub type Slices = Vec<(Index, u16, Extent)>;

/// All of a partition that belongs to one file system, and its packs.
pub struct Tables {
    /// The partition.
    pub id: PartitionId,
    /// Table 10.
    pub inodes: BTreeMap<Ino, InodeRec>,
    /// Table 11: directory, cookie.
    pub dentries: BTreeMap<(Ino, u64), DentryRec>,
    /// Table 12: number of attributes of an inode.
    pub xattrs: BTreeMap<Ino, usize>,
    /// Table 13.
    pub bases: BTreeMap<(Ino, Chunk), BaseRec>,
    /// Table 14.
    pub slices: BTreeMap<(Ino, Chunk), Slices>,
    /// Table 15.
    pub punches: BTreeMap<Ino, Vec<(Index, PunchRec)>>,
    /// Table 20.
    pub packs: BTreeMap<PackId, PackRec>,
    /// Table 21.
    pub stripes: BTreeMap<(PackId, u16), StripeRec>,
    /// Table 22.
    pub hints: BTreeMap<(PackId, u16, Ino, Chunk), ()>,
    /// Table 23.
    pub blobs: BTreeMap<BlobId, BlobRec>,
    /// Table 24.
    pub blob_hints: BTreeSet<(BlobId, Ino, Chunk)>,
    /// Table 25.
    pub suspects: BTreeSet<PackId>,
    /// Table 34.
    pub orphans: BTreeMap<Ino, ()>,
    /// Tables 30 to 32: operations and notes that are not finished.
    pub unfinished: usize,
    /// Table 40, quota id 0.
    pub usage: UsageRec,
}

fn corrupt(what: &str, key: &[u8]) -> Error {
    Error::new(ErrorKind::Corrupt, format!("{what}: the key {key:02x?} cannot be read"))
}

fn pack_of(p: PartitionId, key: &[u8]) -> Option<PackId> {
    let mut seq = [0; 8];
    seq[2..].copy_from_slice(key.get(3..9)?);
    let seq = u64::from_be_bytes(seq);
    (seq > 0).then(|| PackId::new(p, seq))
}

fn sb_of(key: &[u8]) -> Option<u16> {
    Some(u16::from_be_bytes(key.get(9..11)?.try_into().ok()?))
}

/// Shows each pair of a table; stops at the first that cannot be read.
fn each(kv: &dyn Kv, prefix: &[u8], mut visit: impl FnMut(&[u8], &[u8]) -> Result<()>) -> Result<()> {
    let mut result = Ok(());
    kv.scan(prefix, &keys::prefix_end(prefix), &mut |key, value| {
        result = visit(key, value);
        result.is_ok()
    })?;
    result
}

impl Tables {
    /// Reads everything of `fs` in partition `p`. Errors: `Corrupt`, and what the engine says.
    pub fn load(kv: &dyn Kv, p: PartitionId, fs: FsId) -> Result<Self> {
        let mut tables = Self {
            id: p,
            inodes: BTreeMap::new(),
            dentries: BTreeMap::new(),
            xattrs: BTreeMap::new(),
            bases: BTreeMap::new(),
            slices: BTreeMap::new(),
            punches: BTreeMap::new(),
            packs: BTreeMap::new(),
            stripes: BTreeMap::new(),
            hints: BTreeMap::new(),
            blobs: BTreeMap::new(),
            blob_hints: BTreeSet::new(),
            suspects: BTreeSet::new(),
            orphans: BTreeMap::new(),
            unfinished: 0,
            usage: UsageRec::default(),
        };
        tables.load_names(kv, p, fs)?;
        tables.load_data(kv, p, fs)?;
        tables.load_packs(kv, p)?;
        tables.load_blobs(kv, p, fs)?;
        Ok(tables)
    }

    fn load_names(&mut self, kv: &dyn Kv, p: PartitionId, fs: FsId) -> Result<()> {
        let of_fs = |key: &[u8]| keys::ino_of(key).filter(|(of, _)| *of == fs).map(|(_, ino)| ino);
        each(kv, &keys::table(p, Table::Inode), |key, value| {
            if let Some(ino) = of_fs(key) {
                let mut rec = InodeRec::decode(value)?;
                rec.attr.ino = ino;
                self.inodes.insert(ino, rec);
            }
            Ok(())
        })?;
        each(kv, &keys::table(p, Table::Dentry), |key, value| {
            if let Some(dir) = of_fs(key) {
                let cookie = keys::dentry_cookie(key).ok_or_else(|| corrupt("dentry", key))?;
                self.dentries.insert((dir, cookie), DentryRec::decode(value)?);
            }
            Ok(())
        })?;
        each(kv, &keys::table(p, Table::Xattr), |key, _| {
            if let Some(ino) = of_fs(key) {
                *self.xattrs.entry(ino).or_default() += 1;
            }
            Ok(())
        })?;
        each(kv, &keys::table(p, Table::Orphan), |key, _| {
            self.orphans.extend(of_fs(key).map(|ino| (ino, ())));
            Ok(())
        })?;
        for table in [Table::Pending, Table::Outcome, Table::Outbox] {
            each(kv, &keys::table(p, table), |_, _| {
                self.unfinished += 1;
                Ok(())
            })?;
        }
        if let Some(value) = kv.get(&keys::usage(p, fs, 0))? {
            self.usage = UsageRec::decode(&value)?;
        }
        Ok(())
    }

    fn load_data(&mut self, kv: &dyn Kv, p: PartitionId, fs: FsId) -> Result<()> {
        each(kv, &keys::table(p, Table::Base), |key, value| {
            let (of, ino) = keys::ino_of(key).ok_or_else(|| corrupt("base", key))?;
            let chunk = keys::chunk_of(key).ok_or_else(|| corrupt("base", key))?;
            if of == fs {
                self.bases.insert((ino, chunk), BaseRec::decode(value)?);
            }
            Ok(())
        })?;
        each(kv, &keys::table(p, Table::Slice), |key, value| {
            let (of, ino, chunk, _, at, sub) = keys::parse_slice(key).ok_or_else(|| corrupt("slice", key))?;
            if of == fs {
                self.slices.entry((ino, chunk)).or_default().push((at, sub, SliceRec::decode(value)?.0));
            }
            Ok(())
        })?;
        each(kv, &keys::table(p, Table::Punch), |key, value| {
            let (of, ino) = keys::ino_of(key).ok_or_else(|| corrupt("punch", key))?;
            let at = keys::punch_index(key).ok_or_else(|| corrupt("punch", key))?;
            if of == fs {
                self.punches.entry(ino).or_default().push((at, PunchRec::decode(value)?));
            }
            Ok(())
        })
    }

    fn load_packs(&mut self, kv: &dyn Kv, p: PartitionId) -> Result<()> {
        each(kv, &keys::table(p, Table::Pack), |key, value| {
            let pack = pack_of(p, key).ok_or_else(|| corrupt("pack", key))?;
            self.packs.insert(pack, PackRec::decode(value)?);
            Ok(())
        })?;
        each(kv, &keys::table(p, Table::Stripe), |key, value| {
            let pack = pack_of(p, key).ok_or_else(|| corrupt("stripe", key))?;
            let sb = sb_of(key).ok_or_else(|| corrupt("stripe", key))?;
            self.stripes.insert((pack, sb), StripeRec::decode(value)?);
            Ok(())
        })?;
        each(kv, &keys::table(p, Table::Hint), |key, _| {
            let pack = pack_of(p, key).ok_or_else(|| corrupt("hint", key))?;
            let (sb, _, ino, chunk) = keys::parse_hint(key).ok_or_else(|| corrupt("hint", key))?;
            self.hints.insert((pack, sb, ino, chunk), ());
            Ok(())
        })?;
        each(kv, &keys::table(p, Table::Suspect), |key, _| {
            self.suspects.insert(keys::pack_of(p, key).ok_or_else(|| corrupt("suspect", key))?);
            Ok(())
        })
    }

    fn load_blobs(&mut self, kv: &dyn Kv, p: PartitionId, fs: FsId) -> Result<()> {
        each(kv, &keys::table(p, Table::Blob), |key, value| {
            let blob = keys::blob_of(p, key).ok_or_else(|| corrupt("object", key))?;
            self.blobs.insert(blob, BlobRec::decode(value)?);
            Ok(())
        })?;
        each(kv, &keys::table(p, Table::BlobHint), |key, _| {
            let blob = keys::blob_of(p, key).ok_or_else(|| corrupt("hint of an object", key))?;
            let (of, ino, chunk) = keys::parse_blob_hint(key).ok_or_else(|| corrupt("hint of an object", key))?;
            if of == fs {
                self.blob_hints.insert((blob, ino, chunk));
            }
            Ok(())
        })
    }

    /// Every extent of a chunk, merged or not: (inode, chunk, extent).
    pub fn extents(&self) -> impl Iterator<Item = (Ino, Chunk, &Extent)> {
        let merged = self.bases.iter().flat_map(|((ino, chunk), base)| base.extents.iter().map(|e| (*ino, *chunk, e)));
        let fresh = self
            .slices
            .iter()
            .flat_map(|((ino, chunk), slices)| slices.iter().map(|(_, _, extent)| (*ino, *chunk, extent)));
        merged.chain(fresh)
    }
}
