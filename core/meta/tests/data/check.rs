//! Invariants over the raw view, computed anew by the simplest means.

use std::collections::{BTreeMap, BTreeSet};

use braid_base::ids::{BlobId, Chunk, FsId, Index, Ino, PackId};
use braid_base::keys::{self, Table};
use braid_base::limits::{BLOCK, CHUNK};
use braid_base::record::{
    BaseRec, BlobRec, BlobState, Extent, InodeRec, PackRec, PackState, Place, PunchRec, Record, SliceRec, StripeRec,
    UsageRec,
};
use braid_replica::Kv;

use crate::world::{FS, P, World};

type ChunkKey = (FsId, Ino, Chunk);

/// The tables of the view, decoded.
#[derive(Default)]
pub struct Tables {
    inodes: BTreeMap<Ino, InodeRec>,
    orphans: BTreeSet<Ino>,
    bases: BTreeMap<ChunkKey, BaseRec>,
    slices: BTreeMap<ChunkKey, Vec<(Index, Extent)>>,
    cuts: BTreeMap<Ino, Vec<(Index, PunchRec)>>,
    pub packs: BTreeMap<PackId, PackRec>,
    stripes: BTreeMap<(PackId, u16), StripeRec>,
    hints: BTreeSet<(PackId, u16, ChunkKey)>,
    pub blobs: BTreeMap<BlobId, BlobRec>,
    blob_hints: BTreeSet<(BlobId, ChunkKey)>,
    usage: UsageRec,
}

fn bad(error: braid_base::Error) -> String {
    error.to_string()
}

impl Tables {
    fn read(kv: &dyn Kv) -> Result<Self, String> {
        let mut tables = Self::default();
        let mut result = Ok(());
        kv.scan(&[], &[0xFF; 3], &mut |key, value| {
            result = tables.take(key, value);
            result.is_ok()
        })
        .map_err(bad)?;
        result.map(|()| tables)
    }

    fn take(&mut self, key: &[u8], value: &[u8]) -> Result<(), String> {
        let table = key[2];
        let ino = || keys::ino_of(key).map(|(_, ino)| ino).ok_or("a short key");
        let chunk = || {
            let (file, chunk) = (keys::ino_of(key), keys::chunk_of(key));
            file.zip(chunk).map(|((fs, ino), chunk)| (fs, ino, chunk)).ok_or("a short key")
        };
        let pack = || keys::pack_of(P, key).ok_or("a short key");
        if table == Table::Inode as u8 {
            self.inodes.insert(ino()?, InodeRec::decode(value).map_err(bad)?);
        } else if table == Table::Orphan as u8 {
            self.orphans.insert(ino()?);
        } else if table == Table::Base as u8 {
            self.bases.insert(chunk()?, BaseRec::decode(value).map_err(bad)?);
        } else if table == Table::Slice as u8 {
            let (.., at, _) = keys::parse_slice(key).ok_or("a short key")?;
            let SliceRec(extent) = SliceRec::decode(value).map_err(bad)?;
            self.slices.entry(chunk()?).or_default().push((at, extent));
        } else if table == Table::Punch as u8 {
            let at = keys::punch_index(key).ok_or("a short key")?;
            self.cuts.entry(ino()?).or_default().push((at, PunchRec::decode(value).map_err(bad)?));
        } else if table == Table::Pack as u8 {
            self.packs.insert(pack()?, PackRec::decode(value).map_err(bad)?);
        } else if table == Table::Stripe as u8 {
            let sb = u16::from_be_bytes([key[9], key[10]]);
            self.stripes.insert((pack()?, sb), StripeRec::decode(value).map_err(bad)?);
        } else if table == Table::Hint as u8 {
            let (sb, fs, ino, chunk) = keys::parse_hint(key).ok_or("a short key")?;
            self.hints.insert((pack()?, sb, (fs, ino, chunk)));
        } else if table == Table::Blob as u8 {
            let blob = keys::blob_of(P, key).ok_or("a short key")?;
            self.blobs.insert(blob, BlobRec::decode(value).map_err(bad)?);
        } else if table == Table::BlobHint as u8 {
            let blob = keys::blob_of(P, key).ok_or("a short key")?;
            self.blob_hints.insert((blob, keys::parse_blob_hint(key).ok_or("no hint")?));
        } else if table == Table::Usage as u8 && key == keys::usage(P, FS, 0) {
            self.usage = UsageRec::decode(value).map_err(bad)?;
        }
        Ok(())
    }

    /// Held bytes of a chunk, and bytes that cuts with open accounts took: interval by interval, event by event.
    fn held(&self, key: &ChunkKey) -> (u64, u64) {
        let none = (Vec::new(), Vec::new());
        let base = self.bases.get(key);
        let upto = base.map_or(Index(0), |base| base.upto);
        let slices = self.slices.get(key).unwrap_or(&none.0);
        let cuts = self.cuts.get(&key.1).unwrap_or(&none.1);
        let start = u64::from(key.2.0) * CHUNK;
        // Position, from, end, and what it does: Some(owed) cuts.
        let mut events: Vec<(Index, u64, u64, Option<bool>)> = Vec::new();
        for extent in base.iter().flat_map(|base| &base.extents) {
            events.push((Index(0), u64::from(extent.off), u64::from(extent.off + extent.len), None));
        }
        for (at, extent) in slices.iter().filter(|(at, _)| *at > upto) {
            events.push((*at, u64::from(extent.off), u64::from(extent.off + extent.len), None));
        }
        for (at, cut) in cuts.iter().filter(|(at, _)| *at > upto) {
            let (from, to) = (cut.from.clamp(start, start + CHUNK), cut.to.clamp(start, start + CHUNK));
            events.push((*at, from - start, to - start, Some(cut.owed)));
        }
        events.sort_by_key(|(at, ..)| *at);
        let borders: BTreeSet<u64> = events.iter().flat_map(|(_, from, to, _)| [*from, *to]).collect();
        let borders: Vec<u64> = borders.into_iter().collect();
        let (mut held, mut owed) = (0, 0);
        for pair in borders.windows(2) {
            let mut there = false;
            for (_, from, to, cut) in &events {
                if *from <= pair[0] && pair[1] <= *to {
                    owed += if there && *cut == Some(true) { pair[1] - pair[0] } else { 0 };
                    there = cut.is_none();
                }
            }
            held += if there { pair[1] - pair[0] } else { 0 };
        }
        (held, owed)
    }
}

impl Tables {
    /// A pointer to an object is into one that is whole, and has a hint.
    fn check_object(&self, key: &ChunkKey, extent: &Extent) -> Result<(), String> {
        let Some(at) = extent.place.object() else { return Ok(()) };
        match self.blobs.get(&at.blob) {
            Some(rec) if rec.state == BlobState::Present && at.off + extent.len <= rec.size => {}
            other => return Err(format!("{key:?}: {extent:?} is in no object: {other:?}")),
        }
        if !self.blob_hints.contains(&(at.blob, *key)) {
            return Err(format!("{key:?}: {extent:?} has no hint of its object"));
        }
        Ok(())
    }

    /// A pointer to flash is into a committed stripe of a living pack, and has a hint.
    fn check_pointer(&self, key: &ChunkKey, extent: &Extent) -> Result<(), String> {
        let Place::Flash { stripe, delta, .. } = extent.place else { return Ok(()) };
        let pack = self.packs.get(&stripe.pack).ok_or(format!("{key:?} names {}: gone", stripe.pack))?;
        if pack.state == PackState::Dead {
            return Err(format!("{key:?} names {}: dead", stripe.pack));
        }
        let known = self.stripes.get(&(stripe.pack, stripe.sb));
        let fits = known.is_some_and(|known| known.ul == stripe.ul && delta + extent.len <= known.len);
        let room = usize::from(pack.place.data) * usize::from(stripe.ul) * BLOCK;
        if !fits || (delta + extent.len) as usize > room {
            return Err(format!("{key:?}: {extent:?} is not in its stripe {known:?}"));
        }
        if !self.hints.contains(&(stripe.pack, stripe.sb, *key)) {
            return Err(format!("{key:?}: {extent:?} has no hint"));
        }
        if pack.place.parity == 0 && extent.place.object().is_none() {
            return Err(format!("{key:?}: {extent:?} has neither parity nor a copy"));
        }
        Ok(())
    }
}

impl World {
    /// True if no cut, and no pack without content, is left to clean up.
    pub fn tidy(&self) -> bool {
        Tables::read(self.kv.as_ref()).is_ok_and(|tables| {
            let empty = |pack: &PackRec| pack.state != PackState::Open && pack.live_upper == 0;
            let unused = |blob: &BlobRec| blob.state != BlobState::Present || blob.live_upper == 0;
            tables.cuts.is_empty() && !tables.packs.values().any(empty) && !tables.blobs.values().any(unused)
        })
    }

    /// The tables as they are.
    pub fn tables(&self) -> Result<Tables, String> {
        Tables::read(self.kv.as_ref())
    }

    /// All invariants; everything must be committed.
    pub fn check_all(&self) -> Result<(), String> {
        let tables = Tables::read(self.kv.as_ref())?;
        self.check_pointers(&tables)?;
        self.check_counts(&tables)?;
        self.check_shards(&tables)?;
        self.check_suspects(&tables)?;
        self.check_usage(&tables)
    }

    /// What may have lost data is a pack.
    fn check_suspects(&self, tables: &Tables) -> Result<(), String> {
        let (prefix, mut strange) = (keys::table(P, Table::Suspect), Vec::new());
        let scanned = self.kv.scan(&prefix, &keys::prefix_end(&prefix), &mut |key, _| {
            strange.extend(keys::pack_of(P, key).filter(|pack| !tables.packs.contains_key(pack)));
            true
        });
        scanned.map_err(|e| e.to_string())?;
        if strange.is_empty() { Ok(()) } else { Err(format!("suspects that are no packs: {strange:?}")) }
    }

    /// I9, I10: every pointer resolves and has a hint, no base names the log or a dead pack.
    fn check_pointers(&self, tables: &Tables) -> Result<(), String> {
        for (key, base) in &tables.bases {
            let mut end = 0;
            for extent in &base.extents {
                if extent.off < end || extent.len == 0 || u64::from(extent.off + extent.len) > CHUNK {
                    return Err(format!("base of {key:?}: {extent:?} is out of order"));
                }
                end = extent.off + extent.len;
                if matches!(extent.place, Place::Stage { .. }) {
                    return Err(format!("base of {key:?} names the log"));
                }
                tables.check_pointer(key, extent)?;
                tables.check_object(key, extent)?;
                let bytes = self.bytes_at(&extent.place, extent.len).map_err(|e| format!("base of {key:?}: {e}"))?;
                if let Some(at) = extent.place.object() {
                    let copy = self.bytes_at(&Place::Object(at), extent.len);
                    if copy.map_err(|e| format!("base of {key:?}: {e}"))? != bytes {
                        return Err(format!("{key:?}: {extent:?} has other bytes in its object"));
                    }
                }
            }
        }
        for (key, slices) in &tables.slices {
            let upto = tables.bases.get(key).map_or(Index(0), |base| base.upto);
            for (at, extent) in slices {
                if *at <= upto {
                    return Err(format!("{key:?}: slice {at} outlived the base up to {upto}"));
                }
                tables.check_pointer(key, extent)?;
                self.bytes_at(&extent.place, extent.len).map_err(|e| format!("slice {at} of {key:?}: {e}"))?;
            }
        }
        let named = tables.bases.keys().chain(tables.slices.keys()).map(|(_, ino, _)| ino);
        match named.chain(tables.cuts.keys()).chain(&tables.orphans).find(|ino| !tables.inodes.contains_key(ino)) {
            Some(ino) => Err(format!("{ino} has records and no inode")),
            None => Ok(()),
        }
    }

    /// What is kept in memory and in counters equals what the records say.
    fn check_counts(&self, tables: &Tables) -> Result<(), String> {
        let mut live: BTreeMap<PackId, u64> = BTreeMap::new();
        let slices = || tables.slices.values().flatten();
        let bases = tables.bases.values().flat_map(|base| &base.extents);
        for extent in bases.chain(slices().map(|(_, extent)| extent)) {
            if let Place::Flash { stripe, .. } = extent.place {
                *live.entry(stripe.pack).or_default() += u64::from(extent.len);
            }
        }
        for (id, pack) in &tables.packs {
            let found = live.get(id).copied().unwrap_or(0);
            if pack.live_upper != found {
                return Err(format!("{id} counts {}, its references are {found}", pack.live_upper));
            }
        }
        let mut live: BTreeMap<BlobId, u64> = BTreeMap::new();
        for extent in tables.bases.values().flat_map(|base| &base.extents) {
            if let Some(at) = extent.place.object() {
                *live.entry(at.blob).or_default() += u64::from(extent.len);
            }
        }
        for (id, blob) in &tables.blobs {
            let found = live.get(id).copied().unwrap_or(0);
            if blob.live_upper != found {
                return Err(format!("{id} counts {}, its references are {found}", blob.live_upper));
            }
        }
        let all = tables.bases.values().flat_map(|base| &base.extents).chain(slices().map(|(_, extent)| extent));
        let flash = all.filter(|extent| matches!(extent.place, Place::Flash { .. }));
        let flash: u64 = flash.map(|extent| u64::from(extent.len)).sum();
        if tables.usage.flash != flash {
            return Err(format!("{flash} bytes are in packs, the record says {:?}", tables.usage));
        }
        let oldest = slices().map(|(at, _)| *at).min();
        if self.part.oldest_stage() != oldest {
            return Err(format!("oldest stage {:?}, expected {oldest:?}", self.part.oldest_stage()));
        }
        let staged = slices().filter(|(_, extent)| matches!(extent.place, Place::Stage { .. }));
        let staged: u64 = staged.map(|(_, extent)| u64::from(extent.len)).sum();
        let status = self.part.state().data_status();
        if status.staged_bytes != staged || status.orphans != tables.orphans.len() {
            return Err(format!("{status:?}: expected {staged} staged, {} orphans", tables.orphans.len()));
        }
        if status.used_bytes != tables.usage.bytes {
            return Err(format!("{status:?}: the record says {:?}", tables.usage));
        }
        Ok(())
    }

    /// I21: usage by walk equals the record, and every file holds what its inode says.
    fn check_usage(&self, tables: &Tables) -> Result<(), String> {
        let bytes: u64 = tables.inodes.values().map(InodeRec::charged).sum();
        let walked = UsageRec { bytes, inodes: tables.inodes.len() as u64, flash: tables.usage.flash };
        let with_root = tables.inodes.keys().any(|ino| ino.seq() == 1);
        if walked != tables.usage && with_root {
            return Err(format!("usage {:?}, by walk {walked:?}", tables.usage));
        }
        let mut held: BTreeMap<Ino, u64> = BTreeMap::new();
        for key in tables.bases.keys().chain(tables.slices.keys()).collect::<BTreeSet<_>>() {
            let (bytes, owed) = tables.held(key);
            *held.entry(key.1).or_default() += bytes + owed;
        }
        for (ino, inode) in tables.inodes.iter().filter(|(ino, _)| !tables.orphans.contains(ino)) {
            let held = held.get(ino).copied().unwrap_or(0) + inode.reserved.bytes;
            if inode.attr.used != held {
                return Err(format!("{ino} holds {held} bytes, its inode says {}", inode.attr.used));
            }
        }
        Ok(())
    }
}
