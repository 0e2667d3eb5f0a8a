//! Write: bytes of one request become slices of one log entry; the bytes travel in its payload.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;

use braid_base::attr::FileType;
use braid_base::ids::{FsId, Ino};
use braid_base::limits::{FILE_MAX, WRITE_MAX, WRITE_PARTS_MAX};
use braid_base::msg::fs::{Op, Reply, Request};
use braid_base::record::{Extent, InodeRec, Place, SliceRec};
use braid_base::{Error, ErrorKind, Result};
use bytes::Bytes;

use crate::data::chunk::{ChunkId, FileId, pieces};
use crate::data::cover::Ranges;
use crate::data::{held, remap, space};
use crate::event::Token;
use crate::ops::{Verdict, inode};
use crate::state::State;
use crate::txn::Txn;

/// The regular file `ino`, if its content may be touched: `Stale` if it lost its last name and nobody holds it open,
/// because then it is being removed.
pub(crate) fn load_file(t: &Txn<'_>, s: &State, fs: FsId, ino: Ino) -> Result<InodeRec> {
    let file = inode::load(t, fs, ino)?;
    match file.attr.kind {
        FileType::File => {}
        FileType::Directory => return Err(ErrorKind::IsDirectory.into()),
        _ => return Err(Error::new(ErrorKind::Invalid, format!("{ino} is no regular file: it holds no bytes"))),
    }
    alive(s, fs, ino, &file)?;
    Ok(file)
}

/// `Stale` if the inode is an orphan that nobody holds open.
pub(crate) fn alive(s: &State, fs: FsId, ino: Ino, inode: &InodeRec) -> Result<()> {
    if inode.attr.nlink > 0 || s.opens.is_open(fs, ino) {
        return Ok(());
    }
    Err(Error::new(ErrorKind::Stale, format!("{ino} of {fs} has no name and is not open: it is being removed")))
}

/// `Op::Write`.
pub(crate) fn write(t: &mut Txn<'_>, s: &mut State, token: Token, request: &Request) -> Result<Verdict> {
    let Op::Write { ino, parts, append, kill_suid_sgid } = &request.body else {
        return Err(ErrorKind::Invalid.into());
    };
    s.check_fault()?;
    let (fs, ino) = (request.fs, *ino);
    let mut file = load_file(t, s, fs, ino)?;
    let parts = placed(parts, append.then_some(file.attr.size))?;
    let Some(first) = parts.first().map(|(off, _)| *off) else {
        // Nothing to write is no change.
        let off = if *append { file.attr.size } else { 0 };
        return Ok(Reply::Wrote { off, attr: file.attr }.into());
    };
    if held::hold(t, s, token, request)? {
        return Ok(Verdict::Later);
    }
    let id = FileId::first(fs, ino);
    let (fresh, covers) = fresh_bytes(t, s, id, file.attr.size, &parts)?;
    s.data.space.check(fs, fresh, s.config.capacity_bytes)?;

    space::charge(t, s, fs, &mut file, fresh as i64)?;
    file.attr.size = parts.iter().map(|(off, bytes)| off + bytes.len() as u64).fold(file.attr.size, u64::max);
    file.flags |= InodeRec::DATA;
    if *kill_suid_sgid {
        file.attr.mode = without_set_id(file.attr.mode);
    }
    inode::touch(&mut file, t.now.wall);
    put_slices(t, s, id, parts);
    for (chunk, ranges) in covers {
        s.data.cover.set(chunk, ranges);
    }
    inode::store(t, fs, ino, &mut file);
    Ok(Reply::Wrote { off: first, attr: file.attr }.into())
}

/// The parts that hold bytes, at their final offsets. With `end` (append) the first one is moved there and the
/// others with it.
fn placed(parts: &[(u64, Bytes)], end: Option<u64>) -> Result<Vec<(u64, Bytes)>> {
    let total: usize = parts.iter().map(|(_, bytes)| bytes.len()).sum();
    if total > WRITE_MAX || parts.len() > WRITE_PARTS_MAX {
        let message = format!(
            "a write has at most {WRITE_MAX} bytes in {WRITE_PARTS_MAX} parts, this one {total} in {}: split it",
            parts.len()
        );
        return Err(Error::new(ErrorKind::Invalid, message));
    }
    let first = parts.first().map_or(0, |(off, _)| *off);
    let mut placed = Vec::with_capacity(parts.len());
    for (off, bytes) in parts.iter().filter(|(_, bytes)| !bytes.is_empty()) {
        let at = match end {
            Some(end) => off.checked_sub(first).and_then(|ahead| end.checked_add(ahead)),
            None => Some(*off),
        };
        let fits = |at: &u64| at.checked_add(bytes.len() as u64).is_some_and(|end| end <= FILE_MAX);
        let at = at.filter(fits).ok_or(ErrorKind::FileTooBig)?;
        placed.push((at, bytes.clone()));
    }
    Ok(placed)
}

/// How many bytes of the parts the file does not hold yet, and what the touched chunks hold afterwards.
fn fresh_bytes(
    t: &Txn<'_>,
    s: &State,
    file: FileId,
    size: u64,
    parts: &[(u64, Bytes)],
) -> Result<(u64, BTreeMap<ChunkId, Ranges>)> {
    let (mut covers, mut fresh) = (BTreeMap::new(), 0);
    for (off, bytes) in parts {
        for (chunk, within, len) in pieces(*off, bytes.len() as u64) {
            let chunk = file.chunk(chunk);
            let cover = match covers.entry(chunk) {
                Entry::Occupied(known) => known.into_mut(),
                Entry::Vacant(place) => place.insert(held_of(t, s, chunk, size)?),
            };
            fresh += cover.add(within, within + len);
        }
    }
    Ok((fresh, covers))
}

/// What a chunk holds before the write.
fn held_of(t: &Txn<'_>, s: &State, chunk: ChunkId, size: u64) -> Result<Ranges> {
    if let Some(known) = s.data.cover.get(chunk) {
        return Ok(known.clone());
    }
    let mut ranges = Ranges::default();
    // Beyond the end of the file nothing is held: a chunk that begins there needs no look.
    if chunk.start() < size {
        let cuts = remap::cuts(t, s, chunk.file)?;
        for extent in remap::history(t, s, chunk, &cuts)?.now().extents {
            ranges.add(extent.off, extent.off + extent.len);
        }
    }
    Ok(ranges)
}

/// Writes the slices. Later parts lie above earlier ones: their sub-numbers are higher.
fn put_slices(t: &mut Txn<'_>, s: &mut State, file: FileId, parts: Vec<(u64, Bytes)>) {
    let mut sub = 0;
    for (off, bytes) in parts {
        let len = bytes.len() as u64;
        let mut poff = t.stage(bytes);
        for (chunk, within, len) in pieces(off, len) {
            let chunk = file.chunk(chunk);
            let extent = Extent { off: within, len, place: Place::Stage { at: t.index, poff } };
            t.write(chunk.slice_key(t, t.index, sub), &SliceRec(extent));
            s.data.stage.add(chunk, t.index, &extent, t.now.mono_ms);
            poff += len;
            sub += 1;
        }
    }
}

/// The mode after a write by somebody else than the owner: no set-uid; no set-gid if the group may execute.
fn without_set_id(mode: u16) -> u16 {
    let set_gid = if mode & 0o010 != 0 { 0o2000 } else { 0 };
    mode & !(0o4000 | set_gid)
}
