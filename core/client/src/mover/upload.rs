//! Gathers what goes into an object. Its parts may be as small as a file, and lie side by side where they come from: so
//! parts of one stripe, or of one object, that are close to each other there are read together.

use braid_base::ids::{BlobId, Index};
use braid_base::limits::{BLOCK, CHUNK};
use braid_base::msg::job::{Part, Source, UploadJob};
use braid_base::record::{Place, Placement, StripeAt};
use braid_base::{Error, ErrorKind, Result};
use bytes::{Bytes, BytesMut};

use crate::join::join_bounded;
use crate::objects::Objects;
use crate::reader::{Reader, StageSource};

/// Reads of one object under way: together they are about as much as a client reads ahead.
const LOADS_AT_ONCE: usize = 8;
/// Bytes that are read with one load at most, unless one part alone has more.
const LOAD_MAX: u64 = 4 * CHUNK;
/// Bytes between two parts that are read and not needed, at most: another read would cost more.
const GAP_MAX: u64 = 32 << 10;
/// Bytes of a part from which on it is passed on as it is; smaller ones are put together.
const LARGE: usize = 64 << 10;

/// Carries out `job`. When it returns, the object is whole in its store. Errors: the first one met; nothing must refer to
/// the object then.
pub(super) async fn upload(
    reader: &Reader,
    stage: &dyn StageSource,
    objects: &dyn Objects,
    job: &UploadJob,
) -> Result<()> {
    let blocks: u64 = job.runs.iter().map(|run| u64::from(run.blocks)).sum();
    let bytes: u64 = job.parts.iter().map(|part| u64::from(part.len)).sum();
    if blocks == 0 || blocks * BLOCK as u64 != bytes {
        let text = format!("object {}: {blocks} blocks were planned, with {bytes} bytes", job.key.blob);
        return Err(Error::new(ErrorKind::Invalid, text));
    }
    let data = gather(reader, stage, &job.parts).await?;
    objects.put(job.key, job.fs, job.runs.clone(), data).await
}

/// What lies side by side.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Home {
    Entry(Index),
    Stripe(StripeAt),
    Object(BlobId),
}

/// A part that has to be read.
struct Wanted<'a> {
    /// Its number among all parts.
    part: usize,
    place: Place,
    placement: Option<&'a Placement>,
    len: u32,
    home: Home,
    /// Where it begins there.
    off: u32,
}

impl<'a> Wanted<'a> {
    fn new(part: usize, len: u32, place: Place, placement: Option<&'a Placement>) -> Self {
        let (home, off) = match place {
            Place::Stage { at, poff } => (Home::Entry(at), poff),
            Place::Flash { stripe, delta, .. } => (Home::Stripe(stripe), delta),
            Place::Object(at) => (Home::Object(at.blob), at.off),
        };
        Self { part, place, placement, len, home, off }
    }

    fn end(&self) -> u64 {
        u64::from(self.off) + u64::from(self.len)
    }
}

/// The bytes of `parts` one after another: whole blocks in each piece.
async fn gather(reader: &Reader, stage: &dyn StageSource, parts: &[Part]) -> Result<Vec<Bytes>> {
    let mut wanted: Vec<Wanted<'_>> = parts
        .iter()
        .enumerate()
        .filter_map(|(at, part)| match &part.from {
            Source::Zero => None,
            Source::At(place, placement) => Some(Wanted::new(at, part.len, *place, placement.as_ref())),
        })
        .collect();
    wanted.sort_by_key(|wanted| (wanted.home, wanted.off, wanted.part));
    let mut loads: Vec<&[Wanted<'_>]> = Vec::new();
    let mut rest = &wanted[..];
    while !rest.is_empty() {
        let (load, others) = rest.split_at(together(rest));
        loads.push(load);
        rest = others;
    }
    let loaded = join_bounded(LOADS_AT_ONCE, loads.iter().map(|load| read(reader, stage, load)).collect()).await;
    let mut found: Vec<Option<Bytes>> = vec![None; parts.len()];
    for (load, bytes) in loads.iter().zip(loaded) {
        for (wanted, bytes) in load.iter().zip(bytes?) {
            found[wanted.part] = Some(bytes);
        }
    }
    Ok(put_together(parts, found))
}

/// How many of the first of `wanted` are read together.
fn together(wanted: &[Wanted<'_>]) -> usize {
    let first = &wanted[0];
    let (mut count, mut end) = (1, first.end());
    for next in &wanted[1..] {
        let near = next.home == first.home && u64::from(next.off) <= end + GAP_MAX;
        end = end.max(next.end());
        if !near || end - u64::from(first.off) > LOAD_MAX {
            break;
        }
        count += 1;
    }
    count
}

/// The bytes of each of `load`, which lie side by side.
async fn read(reader: &Reader, stage: &dyn StageSource, load: &[Wanted<'_>]) -> Result<Vec<Bytes>> {
    let first = &load[0];
    if load.len() > 1 {
        let end = load.iter().map(Wanted::end).fold(0, u64::max);
        // What lies between them need not be in one object: the place of all of them has no copy.
        let place = match first.place {
            Place::Flash { stripe, delta, .. } => Place::Flash { stripe, delta, copy: None },
            other => other,
        };
        let len = (end - u64::from(first.off)) as u32;
        // What cannot be read may be of something else that lies between: then each is read alone.
        if let Ok(bytes) = reader.read_place(place, first.placement, stage, len).await {
            let part = |wanted: &Wanted<'_>| {
                let from = (wanted.off - first.off) as usize;
                bytes.slice(from..from + wanted.len as usize)
            };
            return Ok(load.iter().map(part).collect());
        }
    }
    let mut found = Vec::with_capacity(load.len());
    for wanted in load {
        found.push(reader.read_place(wanted.place, wanted.placement, stage, wanted.len).await?);
    }
    Ok(found)
}

/// The bytes of all parts, those without any as zeros.
fn put_together(parts: &[Part], found: Vec<Option<Bytes>>) -> Vec<Bytes> {
    let (mut out, mut small, mut at) = (Vec::new(), BytesMut::new(), 0_u64);
    let flush = |small: &mut BytesMut, out: &mut Vec<Bytes>| {
        if !small.is_empty() {
            out.push(small.split().freeze());
        }
    };
    for (part, bytes) in parts.iter().zip(found) {
        let at_border = at.is_multiple_of(BLOCK as u64);
        if at_border && small.len() as u64 >= CHUNK {
            flush(&mut small, &mut out);
        }
        match bytes {
            Some(bytes) if at_border && bytes.len() >= LARGE && bytes.len().is_multiple_of(BLOCK) => {
                flush(&mut small, &mut out);
                out.push(bytes);
            }
            Some(bytes) => small.extend_from_slice(&bytes),
            None => small.resize(small.len() + part.len as usize, 0),
        }
        at += u64::from(part.len);
    }
    flush(&mut small, &mut out);
    out
}
