//! Content of the model: staged payloads, extents per file, and a destage that makes real jobs for the mover.

use std::collections::BTreeMap;

use braid_base::attr::{Attr, Time};
use braid_base::ids::{BlobId, DriveId, Epoch, Index, Ino, PackId, PartitionId};
use braid_base::limits::{BLOCK, CHUNK, LAYOUT_BYTES_MAX};
use braid_base::msg::fs::{FallocMode, FsResult, Laid, Layout, Reply};
use braid_base::msg::job::{MoveJob, Part, Source, StripePlan};
use braid_base::record::{Extent, ObjectAt, Place, Placement, StripeAt};
use braid_base::{ErrorKind, Result};
use bytes::Bytes;

use super::server::State;

/// The log payloads, and where the packs are.
#[derive(Default)]
pub struct Stage {
    payloads: BTreeMap<u64, Bytes>,
    next: u64,
    pub inline: bool,
    pub packs: Vec<(PackId, Placement)>,
    /// Pack that is lent from, and its first block that was not lent yet.
    lent: Option<(PackId, Placement, u16)>,
}

/// Blocks of each shard.
const SHARD_BLOCKS: u16 = 2048;

impl Stage {
    pub fn read(&self, at: Index, poff: u32, len: u32) -> Result<Bytes> {
        let bytes = self.payloads.get(&at.0).ok_or(ErrorKind::Stale)?;
        Ok(bytes.slice(poff as usize..(poff + len) as usize))
    }

    /// Forgets all payloads, as after a destage.
    pub fn clear(&mut self) {
        self.payloads.clear();
    }
}

/// A code of `data`+`parity` over the first drives.
pub fn placement(data: u8, parity: u8) -> Placement {
    Placement { data, parity, epoch: Epoch(1), drives: (0..u32::from(data + parity)).map(DriveId).collect() }
}

/// What a write does to attributes besides the size.
fn settle(attr: &mut Attr, kill: bool, time: Option<Time>) {
    attr.mtime = time.unwrap_or(attr.mtime);
    if kill {
        attr.mode &= !0o6000;
    }
}

impl State {
    /// Makes `[from, to)` a hole.
    fn cut_range(&mut self, ino: Ino, from: u64, to: u64) -> Result<()> {
        let extents = std::mem::take(&mut self.node(ino)?.extents);
        let mut kept = Vec::new();
        for (at, e) in extents {
            let end = at + u64::from(e.len);
            if end <= from || to <= at {
                kept.push((at, e));
                continue;
            }
            if at < from {
                kept.push((at, Extent { len: (from - at) as u32, ..e }));
            }
            if to < end {
                let skip = (to - at) as u32;
                kept.push((to, Extent { off: (to % CHUNK) as u32, len: e.len - skip, place: e.place.advanced(skip) }));
            }
        }
        self.node(ino)?.extents = kept;
        Ok(())
    }

    fn put(&mut self, ino: Ino, off: u64, len: u64, place: Place) -> Result<()> {
        self.cut_range(ino, off, off + len)?;
        let mut at = off;
        while at < off + len {
            let next = ((at / CHUNK + 1) * CHUNK).min(off + len);
            let e =
                Extent { off: (at % CHUNK) as u32, len: (next - at) as u32, place: place.advanced((at - off) as u32) };
            self.node(ino)?.extents.push((at, e));
            at = next;
        }
        self.node(ino)?.extents.sort_by_key(|(at, _)| *at);
        Ok(())
    }

    pub fn cut(&mut self, ino: Ino, size: u64) -> Result<()> {
        self.cut_range(ino, size, u64::MAX)?;
        self.touch(ino)?.size = size;
        Ok(())
    }

    pub fn write(
        &mut self,
        ino: Ino,
        parts: Vec<(u64, Bytes)>,
        append: bool,
        (kill, time): (bool, Option<Time>),
    ) -> FsResult {
        let size = self.node(ino)?.attr.size;
        let first = if append { size } else { parts.first().map_or(0, |(off, _)| *off) };
        for (off, data) in parts {
            let off = if append { first } else { off };
            let len = data.len() as u64;
            self.stage.next += 1;
            let at = Index(self.stage.next);
            self.stage.payloads.insert(at.0, data);
            self.put(ino, off, len, Place::Stage { at, poff: 0 })?;
            let attr = self.touch(ino)?;
            attr.size = attr.size.max(off + len);
            settle(attr, kill, time);
        }
        Ok(Reply::Wrote { off: first, attr: self.node(ino)?.attr.clone() })
    }

    pub fn lend_from_new_pack(&mut self) -> (PackId, Placement) {
        let pack = PackId::new(PartitionId(0), 1000 + self.stage.packs.len() as u64);
        let place = placement(4, 2);
        self.stage.packs.push((pack, place.clone()));
        self.stage.lent = Some((pack, place.clone(), 0));
        (pack, place)
    }

    pub fn stop_lending(&mut self) {
        self.stage.lent = None;
    }

    pub fn space(&mut self, bytes: u64) -> Reply {
        let Some((pack, place, next)) = &mut self.stage.lent else { return Reply::Space(Vec::new()) };
        let ul = (bytes.div_ceil(4 * BLOCK as u64) as u16).min(SHARD_BLOCKS - *next);
        let range = StripeAt { pack: *pack, sb: *next, ul };
        *next += ul;
        Reply::Space(if ul > 0 { vec![(range, place.clone())] } else { Vec::new() })
    }

    pub fn commit(&mut self, ino: Ino, off: u64, stripes: Vec<Laid>, (kill, time): (bool, Option<Time>)) -> FsResult {
        let mut end = off;
        for laid in stripes {
            self.put(ino, end, u64::from(laid.len), Place::Flash { stripe: laid.at, delta: 0, copy: None })?;
            end += u64::from(laid.len);
        }
        let attr = self.touch(ino)?;
        attr.size = attr.size.max(end);
        settle(attr, kill, time);
        Ok(Reply::Wrote { off, attr: attr.clone() })
    }

    pub fn fallocate(&mut self, ino: Ino, off: u64, len: u64, mode: FallocMode, keep: bool) -> Result<Attr> {
        if mode != FallocMode::Allocate {
            self.cut_range(ino, off, off + len)?;
        }
        let grow = !keep && mode != FallocMode::Punch;
        let attr = self.touch(ino)?;
        if grow {
            attr.size = attr.size.max(off + len);
        }
        Ok(attr.clone())
    }

    pub fn next_data(&mut self, ino: Ino, off: u64) -> Result<Layout> {
        let node = self.node(ino)?;
        let next = node.extents.iter().find(|(at, e)| at + u64::from(e.len) > off).map(|(at, _)| (*at).max(off));
        match next {
            Some(at) => self.layout(ino, at, CHUNK - at % CHUNK),
            None => self.layout(ino, off, 0),
        }
    }

    pub fn layout(&mut self, ino: Ino, off: u64, len: u64) -> Result<Layout> {
        if len > LAYOUT_BYTES_MAX {
            return Err(ErrorKind::Invalid.into());
        }
        let node = self.node(ino)?;
        let size = node.attr.size;
        let end = off.saturating_add(len).min(size);
        let mut extents = Vec::new();
        for (at, e) in &node.extents {
            let (from, to) = ((*at).max(off), (at + u64::from(e.len)).min(end));
            if from < to {
                let place = e.place.advanced((from - at) as u32);
                extents.push((from, Extent { off: (from % CHUNK) as u32, len: (to - from) as u32, place }));
            }
        }
        let mut inline = Vec::new();
        for (at, e) in &extents {
            if let (true, Place::Stage { at: index, poff }) = (self.stage.inline, e.place) {
                inline.push((*at, self.stage.read(index, poff, e.len)?));
            }
        }
        Ok(Layout { size, extents, packs: self.stage.packs.clone(), inline, fresh_ms: self.fresh_ms })
    }

    /// A job that moves all of `ino` into stripes of a new pack, and the extents to set once it is done.
    pub fn plan_destage(
        &mut self,
        ino: Ino,
        place: &Placement,
        stripe_bytes: u32,
    ) -> (MoveJob, Vec<(u64, u32, Place)>) {
        let size = self.nodes[&ino].attr.size;
        let pack = PackId::new(PartitionId(0), self.stage.packs.len() as u64 + 1);
        let (mut stripes, mut moved, mut sb) = (Vec::new(), Vec::new(), 0);
        let mut from = 0;
        while from < size {
            let to = (from + u64::from(stripe_bytes)).min(size);
            let ul = ((to - from) as usize).div_ceil(usize::from(place.data)).div_ceil(BLOCK) as u16;
            let stripe = StripeAt { pack, sb, ul };
            let layout = self.layout(ino, from, to - from).expect("the file is there");
            let (mut parts, mut at) = (Vec::new(), from);
            for (start, e) in layout.extents {
                if at < start {
                    parts.push(Part { len: (start - at) as u32, from: Source::Zero });
                }
                let packs = &self.stage.packs;
                let old = match e.place {
                    Place::Flash { stripe, .. } => {
                        packs.iter().find(|(p, _)| *p == stripe.pack).map(|(_, p)| p.clone())
                    }
                    Place::Stage { .. } | Place::Object(_) => None,
                };
                parts.push(Part { len: e.len, from: Source::At(e.place, old) });
                moved.push((start, e.len, Place::Flash { stripe, delta: (start - from) as u32, copy: None }));
                at = start + u64::from(e.len);
            }
            stripes.push(StripePlan { at: stripe, place: place.clone(), parts });
            sb += ul;
            from = to;
        }
        self.stage.packs.push((pack, place.clone()));
        (MoveJob { id: 1, stripes }, moved)
    }

    /// The content of `ino` is also in object `blob` from byte `off` of it on; and only there unless it stays on flash.
    pub fn name_object(&mut self, ino: Ino, blob: BlobId, off: u32, stays: bool) {
        for (at, extent) in &mut self.node(ino).expect("the file is there").extents {
            let object = ObjectAt { blob, off: off + *at as u32 };
            extent.place = match extent.place {
                Place::Flash { stripe, delta, .. } if stays => Place::Flash { stripe, delta, copy: Some(object) },
                _ => Place::Object(object),
            };
        }
    }

    /// Commits a destage: the content is the same, only elsewhere.
    pub fn commit_destage(&mut self, ino: Ino, moved: &[(u64, u32, Place)]) {
        for (at, len, place) in moved {
            self.put(ino, *at, u64::from(*len), *place).expect("the file is there");
        }
        self.stage.clear();
    }
}
