//! Orphans: inodes without a name, removed when nobody holds them open.
//!
//! What nobody has open and holds little goes with its name, in one entry. Life of any other orphan:
//! 1. The entry that takes the last name writes its record (table 34); the inode stays with `nlink` 0.
//! 2. When nobody holds it open (after a restart: at once), its records go, at most 1,000 keys per entry.
//! 3. The last of these entries removes the inode, the orphan record and its share of the usage.

use std::collections::{BTreeMap, BTreeSet};

use braid_base::Result;
use braid_base::ids::{FsId, Ino, PartitionId};
use braid_base::keys::{self, Table};
use braid_base::limits::CLEANUP_KEYS_MAX;
use braid_base::record::{BaseRec, InodeRec, Record};
use braid_replica::kv::Kv;

use crate::data::chunk::FileId;
use crate::data::{self, space};
use crate::ops::inode;
use crate::state::State;
use crate::txn::Txn;

/// Who looked a name up before it was taken away may still open what it stood for, for so long, milliseconds: a file
/// that is replaced again and again would otherwise be gone each time it is opened.
const FRESH_MS: u64 = 100;
/// Records of a file that go with its name: many small files are removed in one entry, and each waits for it.
const AT_ONCE_KEYS: usize = 64;

/// How an inode lost its last name.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Loss {
    /// The name is gone: who looked it up before finds none any more, and is told so.
    Removed,
    /// The name stands for something else, or nobody here knows.
    Replaced,
}

/// Orphans, and which of them may be ready to go.
#[derive(Default)]
pub(crate) struct Orphans {
    all: BTreeSet<FileId>,
    ready: BTreeSet<FileId>,
    /// Those that lost their name a moment ago, and when, milliseconds.
    fresh: BTreeMap<FileId, u64>,
}

impl Orphans {
    /// Reads table 34.
    pub fn load(p: PartitionId, kv: &dyn Kv) -> Result<Self> {
        let mut orphans = Self::default();
        let prefix = keys::table(p, Table::Orphan);
        kv.scan(&prefix, &keys::prefix_end(&prefix), &mut |key, _| {
            if let (Some((fs, ino)), Some(layer)) = (keys::ino_of(key), keys::file_layer(key)) {
                orphans.all.insert(FileId { fs, ino, layer });
            }
            true
        })?;
        orphans.ready = orphans.all.clone();
        Ok(orphans)
    }

    /// Orphans in all.
    pub fn len(&self) -> usize {
        self.all.len()
    }

    /// True if the inode lost its last name a moment ago.
    pub fn is_fresh(&self, fs: FsId, ino: Ino) -> bool {
        self.fresh.contains_key(&FileId::first(fs, ino))
    }

    /// True if none of them waits for its time.
    pub fn has_no_fresh(&self) -> bool {
        self.fresh.is_empty()
    }

    /// Nobody holds the inode open any more: if it is an orphan, it goes.
    pub fn closed(&mut self, fs: FsId, ino: Ino) {
        let file = FileId::first(fs, ino);
        // A fresh one waits for its time all the same: it can still be opened, and must be whole then.
        if self.all.contains(&file) && !self.fresh.contains_key(&file) {
            self.ready.insert(file);
        }
    }
}

/// See [`crate::data::dropped`].
pub(crate) fn dropped(
    t: &mut Txn<'_>,
    s: &mut State,
    (fs, ino): (FsId, Ino),
    inode: &mut InodeRec,
    loss: Loss,
) -> Result<()> {
    let file = FileId::first(fs, ino);
    let open = s.opens.is_open(fs, ino);
    let holds_nothing = inode.flags & InodeRec::DATA == 0 && !inode.attr.xattrs;
    // After a restart somebody may have it open and has not said so yet.
    let begins = loss == Loss::Removed && s.leases.is_settled() && s.data.fault.is_none();
    if !open && holds_nothing {
        return gone(t, s, file, inode);
    }
    if !open && begins {
        // If it fails, what it had counted in memory is not to be trusted any more.
        let all = at_once(t, s, file, inode);
        if all.inspect_err(|error| s.data.failed(error.clone(), false))? {
            return Ok(());
        }
    }
    inode::store(t, fs, ino, inode);
    t.put(keys::orphan(t.partition, fs, ino, file.layer), vec![1]);
    s.data.orphans.all.insert(file);
    if !open && begins {
        // A part of it is gone: it cannot be opened any more.
        s.data.orphans.ready.insert(file);
    } else if !open {
        s.data.orphans.fresh.insert(file, t.now.mono_ms);
    }
    Ok(())
}

/// Removes what the file holds as far as that is little, and then the inode; true if that was all.
fn at_once(t: &mut Txn<'_>, s: &mut State, file: FileId, inode: &InodeRec) -> Result<bool> {
    let all = empty(t, s, file, Some(inode), AT_ONCE_KEYS)?;
    if all {
        gone(t, s, file, inode)?;
    }
    Ok(all)
}

/// Removes an inode that holds nothing any more.
fn gone(t: &mut Txn<'_>, s: &mut State, file: FileId, inode: &InodeRec) -> Result<()> {
    space::settle(t, s, file.fs, -(inode.charged() as i64), -1)?;
    t.delete(keys::inode(t.partition, file.fs, file.ino, file.layer));
    s.leases.gone(file.fs, file.ino);
    Ok(())
}

/// One bounded step: as many orphans as fit one entry.
pub(crate) fn reap(t: &mut Txn<'_>, s: &mut State) -> Result<()> {
    if !s.leases.is_settled() {
        // Someone may hold it open and has not said so yet.
        return Ok(());
    }
    let ripe = |since: &u64| t.now.mono_ms >= since + FRESH_MS;
    let Orphans { fresh, ready, .. } = &mut s.data.orphans;
    ready.extend(fresh.extract_if(.., |_, since| ripe(since)).map(|(file, _)| file));
    while !t.is_full() {
        let Some(file) = s.data.orphans.ready.first().copied() else { return Ok(()) };
        let key = keys::orphan(t.partition, file.fs, file.ino, file.layer);
        let inode = inode::find(t, file.fs, file.ino)?;
        let named = inode.as_ref().is_some_and(|inode| inode.attr.nlink > 0);
        // Whoever announced it may have failed afterwards: only the records count.
        if t.get(&key)?.is_none() || named {
            s.data.orphans.all.remove(&file);
            s.data.orphans.ready.remove(&file);
            continue;
        }
        if s.opens.is_open(file.fs, file.ino) {
            s.data.orphans.ready.remove(&file);
            continue;
        }
        let room = CLEANUP_KEYS_MAX.saturating_sub(t.writes_len());
        if !empty(t, s, file, inode.as_ref(), room)? {
            return Ok(());
        }
        if let Some(inode) = &inode {
            gone(t, s, file, inode)?;
        }
        t.delete(key);
        s.data.orphans.all.remove(&file);
        s.data.orphans.ready.remove(&file);
    }
    Ok(())
}

/// Removes at most `most` records of the file; true if none is left. What `inode` says it never had is not looked for.
fn empty(t: &mut Txn<'_>, s: &mut State, file: FileId, inode: Option<&InodeRec>, most: usize) -> Result<bool> {
    let (p, FileId { fs, ino, layer }) = (t.partition, file);
    let has_data = inode.is_none_or(|inode| inode.flags & InodeRec::DATA != 0);
    let mut room = most;
    if has_data {
        // No scan: a few rows in memory, and a table where most have been deleted.
        let slices: Vec<_> = s.data.stage.slices_of(file).take(room + 1).collect();
        for (chunk, (at, sub, extent)) in slices.iter().copied().take(room) {
            s.data.stage.remove(chunk, (at, sub), t.index);
            data::recount(t, s, fs, &[extent], &[])?;
            let key = chunk.slice_key(t, at, sub);
            t.delete(key);
        }
        if slices.len() > room {
            return Ok(false);
        }
        room -= slices.len();
    }
    let tables = [
        (inode.is_none_or(|inode| inode.attr.xattrs), keys::xattrs(p, fs, ino)),
        (has_data, keys::bases(p, fs, ino)),
        (s.data.cutting.first(file).is_some(), keys::punches(p, fs, ino, layer)),
    ];
    for (_, prefix) in tables.iter().filter(|(may_have, _)| *may_have) {
        let mut found: Vec<(Vec<u8>, Vec<u8>)> = Vec::new();
        t.scan_prefix(prefix, &mut |key, value| {
            if found.len() <= room {
                found.push((key.to_vec(), value.to_vec()));
            }
            found.len() <= room
        })?;
        let more = found.len() > room;
        for (key, value) in found.into_iter().take(room) {
            // A base names many packs, and their records are in the entry, too.
            if t.is_full() {
                return Ok(false);
            }
            forget(t, s, &key, &value)?;
            t.delete(key);
            room -= 1;
        }
        if more {
            return Ok(false);
        }
    }
    s.data.cutting.remove(file);
    Ok(true)
}

/// Keeps the counts of the packs in step with a record that goes.
fn forget(t: &mut Txn<'_>, s: &mut State, key: &[u8], value: &[u8]) -> Result<()> {
    if key.get(2) == Some(&(Table::Base as u8)) {
        let base = BaseRec::decode(value)?;
        let fs = keys::fs_of(key).unwrap_or_default();
        data::recount(t, s, fs, &base.extents, &[])?;
    }
    Ok(())
}
