//! Write: bytes of one request become slices of one log entry. Those of a `Write` travel in its payload; those of a
//! `CommitWrite` are on the drives already, and the entry only names them.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;

use braid_base::attr::{FileType, Time, without_set_id};
use braid_base::ids::{ClientId, FsId, Ino};
use braid_base::keys;
use braid_base::limits::{FILE_MAX, ROUNDED_BYTES_MAX, WRITE_MAX, WRITE_PARTS_MAX};
use braid_base::msg::fs::{Laid, Op, Reply, Request};
use braid_base::record::{Extent, InodeRec, Place, Reserved, SliceRec, StripeAt, StripeRec};
use braid_base::{Error, ErrorKind, Result};
use bytes::Bytes;

use crate::data::chunk::{ChunkId, FileId, pieces};
use crate::data::cover::Ranges;
use crate::data::{Mutation, grants, held, remap, reserve, space};
use crate::event::Token;
use crate::ops::{Verdict, inode};
use crate::state::State;
use crate::txn::Txn;

/// The regular file `ino`, if its content may be touched: `Stale` if it lost its last name and nobody holds it open,
/// because then it is being removed.
pub(crate) fn load_file(t: &Txn<'_>, s: &State, fs: FsId, ino: Ino) -> Result<InodeRec> {
    s.check_content()?;
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

/// Bytes of a write and where they are.
struct Part {
    /// Offset in the file.
    off: u64,
    len: u32,
    from: Content,
}

enum Content {
    /// They travel in the log entry.
    Bytes(Bytes),
    /// They are on the drives.
    Stripe(StripeAt),
}

impl Part {
    fn end(&self) -> u64 {
        self.off + u64::from(self.len)
    }
}

/// `Op::Write`.
pub(crate) fn write(t: &mut Txn<'_>, s: &mut State, token: Token, request: &Request) -> Result<Verdict> {
    let Op::Write { ino, parts, append, kill_suid_sgid, at } = &request.body else {
        return Err(ErrorKind::Invalid.into());
    };
    s.check_fault()?;
    let file = load_file(t, s, request.fs, *ino)?;
    let parts = placed(parts, append.then_some(file.attr.size))?;
    if parts.is_empty() {
        // Nothing to write is no change.
        let off = if *append { file.attr.size } else { 0 };
        return Ok(Reply::Wrote { off, attr: file.attr }.into());
    }
    if held::hold(t, s, token, request)? {
        return Ok(Verdict::Later);
    }
    let promised_to = at.map(|_| request.op.client);
    Ok(put(t, s, (request.fs, *ino), file, parts, (*kill_suid_sgid, *at), promised_to)?.into())
}

/// `Op::GetSpace`.
pub(crate) fn space(t: &Txn<'_>, s: &mut State, request: &Request, (bytes, back): (u64, &[StripeAt])) -> Result<Reply> {
    s.check_fault()?;
    grants::give_up(s, request.op.client, back);
    Ok(grants::lend(s, (request.fs, request.op.client), bytes, t.now.mono_ms))
}

/// `Op::CommitWrite`.
pub(crate) fn commit(t: &mut Txn<'_>, s: &mut State, request: &Request) -> Result<Reply> {
    let Op::CommitWrite { ino, off, stripes, kill_suid_sgid, at: written } = &request.body else {
        return Err(ErrorKind::Invalid.into());
    };
    s.check_fault()?;
    if stripes.is_empty() || stripes.len() > WRITE_PARTS_MAX {
        let message = format!("a commit names 1 to {WRITE_PARTS_MAX} stripes, this one {}", stripes.len());
        return Err(Error::new(ErrorKind::Invalid, message));
    }
    grants::check(s, request.op.client, stripes)?;
    let file = load_file(t, s, request.fs, *ino)?;
    let (mut parts, mut at) = (Vec::with_capacity(stripes.len()), *off);
    for laid in stripes {
        let part = Part { off: at, len: laid.len, from: Content::Stripe(laid.at) };
        at = at.checked_add(u64::from(laid.len)).filter(|end| *end <= FILE_MAX).ok_or(ErrorKind::FileTooBig)?;
        parts.push(part);
    }
    let client = request.op.client;
    let reply = put(t, s, (request.fs, *ino), file, parts, (*kill_suid_sgid, *written), Some(client))?;
    for Laid { at, len, .. } in stripes {
        t.write(keys::stripe(t.partition, at.pack, at.sb), &StripeRec { ul: at.ul, len: *len });
    }
    grants::named(s, request.op.client, stripes);
    Ok(reply)
}

/// Makes `parts` (at least one) content of the file. Room was lent to `promised_to` for them: it was kept free.
fn put(
    t: &mut Txn<'_>,
    s: &mut State,
    (fs, ino): (FsId, Ino),
    mut file: InodeRec,
    parts: Vec<Part>,
    (kill_suid_sgid, at): (bool, Option<Time>),
    promised_to: Option<ClientId>,
) -> Result<Reply> {
    let id = FileId::first(fs, ino);
    let (added, covers) = fresh_bytes(t, s, id, &file, &parts)?;
    let fresh = added.all - reserve::take(&mut file, added.reserved);
    let growth = space::growth(&file, fresh);
    // It was promised by the byte, and its last block need not be full.
    let spare = if promised_to.is_some() { ROUNDED_BYTES_MAX } else { 0 };
    let lent = s.data.grants.outstanding(promised_to);
    s.data.space.check(fs, growth, s.config.capacity_bytes.saturating_sub(lent), spare)?;

    space::charge(t, s, fs, &mut file, fresh as i64)?;
    file.attr.size = parts.iter().map(Part::end).fold(file.attr.size, u64::max);
    file.flags |= InodeRec::DATA;
    if kill_suid_sgid {
        file.attr.mode = without_set_id(file.attr.mode);
    }
    let at = stamp(file.attr.mtime, at, t.now.wall);
    inode::touch(&mut file, at);
    let off = parts.first().map_or(0, |part| part.off);
    put_slices(t, s, id, parts)?;
    for (chunk, ranges) in covers {
        s.data.cover.set(chunk, ranges);
    }
    inode::store(t, fs, ino, &mut file);
    Ok(Reply::Wrote { off, attr: file.attr })
}

/// The parts that hold bytes, at their final offsets. With `end` (append) the first one is moved there and the
/// others with it.
fn placed(parts: &[(u64, Bytes)], end: Option<u64>) -> Result<Vec<Part>> {
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
        let off = at.filter(fits).ok_or(ErrorKind::FileTooBig)?;
        placed.push(Part { off, len: bytes.len() as u32, from: Content::Bytes(bytes.clone()) });
    }
    Ok(placed)
}

/// What a write adds to what a file holds, bytes.
#[derive(Default)]
struct Added {
    all: u64,
    /// Where room is kept for them.
    reserved: u64,
}

/// How many bytes of the parts the file does not hold yet, and what the touched chunks hold afterwards.
fn fresh_bytes(
    t: &Txn<'_>,
    s: &State,
    id: FileId,
    file: &InodeRec,
    parts: &[Part],
) -> Result<(Added, BTreeMap<ChunkId, Ranges>)> {
    let (mut covers, mut added) = (BTreeMap::new(), Added::default());
    let Reserved { from, to, bytes } = file.reserved;
    for part in parts {
        for (chunk, within, len) in pieces(part.off, u64::from(part.len)) {
            let chunk = id.chunk(chunk);
            let cover: &mut Ranges = match covers.entry(chunk) {
                Entry::Occupied(known) => known.into_mut(),
                Entry::Vacant(place) => place.insert(held_of(t, s, chunk, file.attr.size)?),
            };
            if bytes > 0
                && let Some((from, to)) = chunk.clip(from, to)
            {
                added.reserved += cover.add(within.max(from), (within + len).min(to));
            }
            added.all += cover.add(within, within + len);
        }
    }
    added.all += added.reserved;
    Ok((added, covers))
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
fn put_slices(t: &mut Txn<'_>, s: &mut State, file: FileId, parts: Vec<Part>) -> Result<()> {
    let mut on_flash = Vec::new();
    for Part { off, len, from } in parts {
        let mut place = match from {
            Content::Bytes(bytes) => Place::Stage { at: t.index, poff: t.stage(bytes) },
            Content::Stripe(stripe) => Place::Flash { stripe, delta: 0, copy: None },
        };
        for (chunk, within, len) in pieces(off, u64::from(len)) {
            let chunk = file.chunk(chunk);
            let extent = Extent { off: within, len, place };
            let sub = t.next_slice();
            t.write(chunk.slice_key(t, t.index, sub), &SliceRec(extent));
            s.data.stage.add(chunk, (t.index, sub, extent), t.now.mono_ms);
            if let Place::Flash { stripe, .. } = place {
                if s.data.mutation != Some(Mutation::NoHint) {
                    t.put(keys::hint(t.partition, stripe.pack, stripe.sb, file.fs, file.ino, chunk.chunk), Vec::new());
                }
                on_flash.push(extent);
            }
            place = place.advanced(len);
        }
    }
    crate::data::recount(t, s, file.fs, &[], &on_flash)
}

/// The time of a write that a program made `at`, if not `now`. Writes may arrive in another order than they were made:
/// a time that was set by a later one stays.
fn stamp(mtime: Time, at: Option<Time>, now: Time) -> Time {
    match at {
        Some(at) if mtime <= now => at.max(mtime),
        Some(at) => at,
        None => now,
    }
}
