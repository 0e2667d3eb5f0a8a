//! The bytes of a base. A chunk that is overwritten block by block has hundreds of extents in a few stripes, and its
//! base is written with every move: so each stripe and each object is named once, and whole blocks are counted and not
//! measured.

use super::{BaseRec, Extent, ObjectAt, Place, Record, StripeAt};
use crate::codec::{Reader, Writer};
use crate::error::{Error, ErrorKind, Result};
use crate::ids::{BlobId, Index, PackId};
use crate::limits::{BLOCK, CHUNK};

const B: u32 = BLOCK as u32;
/// Bits that say how extents are written: all of them are whole blocks; some of them are in objects.
const BLOCKS: u8 = 1;
const OBJECTS: u8 = 2;
/// Bits that say where an extent is, if some are in objects.
const FLASH: u8 = 1;
const OBJECT: u8 = 2;
const STRIPE_LEN: usize = 12;
const BLOB_LEN: usize = 8;
// Offset and length less one, in blocks, are 8 bits.
const _: () = assert!(CHUNK as usize / BLOCK <= 1 << 8);

/// An extent whose places have the numbers of their stripe and object.
struct Numbered {
    off: u32,
    len: u32,
    /// Stripe and byte in it.
    flash: Option<(u32, u32)>,
    /// Object and byte in it.
    object: Option<(u32, u32)>,
}

impl Numbered {
    fn is_whole(&self) -> bool {
        let fits = |(number, at): (u32, u32)| {
            at.is_multiple_of(B) && at / B <= u32::from(u16::MAX) && number <= u32::from(u16::MAX)
        };
        self.off.is_multiple_of(B)
            && self.len.is_multiple_of(B)
            && u64::from(self.off) + u64::from(self.len) <= CHUNK
            && self.len > 0
            && self.flash.is_none_or(fits)
            && self.object.is_none_or(fits)
    }
}

impl Record for BaseRec {
    fn encode(&self) -> Vec<u8> {
        let flash = |extent: &Extent| match extent.place {
            Place::Flash { stripe, delta, .. } => Some((stripe, delta)),
            Place::Object(_) => None,
            Place::Stage { at, .. } => panic!("a base never names the log, this one {at}"),
        };
        let mut stripes: Vec<StripeAt> = self.extents.iter().filter_map(flash).map(|(stripe, _)| stripe).collect();
        stripes.sort_unstable();
        stripes.dedup();
        let mut blobs: Vec<BlobId> = self.extents.iter().filter_map(|e| e.place.object()).map(|at| at.blob).collect();
        blobs.sort_unstable();
        blobs.dedup();
        let numbered = |extent: &Extent| Numbered {
            off: extent.off,
            len: extent.len,
            flash: flash(extent).map(|(at, delta)| (stripes.partition_point(|other| *other < at) as u32, delta)),
            object: extent.place.object().map(|at| (blobs.partition_point(|other| *other < at.blob) as u32, at.off)),
        };
        let extents: Vec<Numbered> = self.extents.iter().map(numbered).collect();
        let whole = extents.iter().all(Numbered::is_whole);
        let capacity = 26 + STRIPE_LEN * stripes.len() + BLOB_LEN * blobs.len() + 16 * extents.len();
        let mut w = Writer::with_capacity(capacity);
        w.put_u8(3).put_u64(self.upto.0).put_u32(self.since_s).put_u32(stripes.len() as u32);
        for at in &stripes {
            w.put_u64(at.pack.0).put_u16(at.sb).put_u16(at.ul);
        }
        let kinds = if blobs.is_empty() { 0 } else { OBJECTS };
        w.put_u8(kinds | if whole { BLOCKS } else { 0 });
        if kinds == OBJECTS {
            w.put_u32(blobs.len() as u32);
            for blob in &blobs {
                w.put_u64(blob.0);
            }
        }
        w.put_u32(extents.len() as u32);
        for Numbered { off, len, flash, object } in extents {
            if whole {
                w.put_u8((off / B) as u8).put_u8((len / B - 1) as u8);
            } else {
                w.put_u32(off).put_u32(len);
            }
            if kinds == OBJECTS {
                w.put_u8(if flash.is_some() { FLASH } else { 0 } | if object.is_some() { OBJECT } else { 0 });
            }
            for (number, at) in flash.into_iter().chain(object) {
                if whole {
                    w.put_u16(number as u16).put_u16((at / B) as u16);
                } else {
                    w.put_u32(number).put_u32(at);
                }
            }
        }
        w.finish()
    }

    fn decode(bytes: &[u8]) -> Result<Self> {
        let r = &mut Reader::new(bytes);
        r.version(3, "base")?;
        let (upto, since_s, count) = (Index(r.u64()?), r.u32()?, r.u32()?);
        let stripe = |r: &mut Reader<'_>| Ok(StripeAt { pack: PackId(r.u64()?), sb: r.u16()?, ul: r.u16()? });
        let stripes: Vec<StripeAt> = (0..count).map(|_| stripe(r)).collect::<Result<_>>()?;
        let kinds = r.u8()?;
        if kinds & !(BLOCKS | OBJECTS) != 0 {
            let text = format!("base: expected extents of kind 0 to 3, found {kinds}");
            return Err(Error::new(ErrorKind::Corrupt, text));
        }
        let count = if kinds & OBJECTS != 0 { r.u32()? } else { 0 };
        let blobs: Vec<BlobId> = (0..count).map(|_| Ok(BlobId(r.u64()?))).collect::<Result<_>>()?;
        let count = r.u32()?;
        let extents = (0..count).map(|_| {
            let Numbered { off, len, flash, object } = numbered(r, kinds)?;
            let object = match object {
                Some((blob, off)) => Some(ObjectAt { blob: nth(&blobs, blob, "objects")?, off }),
                None => None,
            };
            let place = match (flash, object) {
                (Some((at, delta)), copy) => Place::Flash { stripe: nth(&stripes, at, "stripes")?, delta, copy },
                (None, Some(at)) => Place::Object(at),
                (None, None) => return Err(Error::new(ErrorKind::Corrupt, "base: an extent that is nowhere")),
            };
            Ok(Extent { off, len, place })
        });
        Ok(Self { upto, since_s, extents: extents.collect::<Result<_>>()? })
    }
}

fn nth<T: Copy>(of: &[T], number: u32, what: &str) -> Result<T> {
    of.get(number as usize).copied().ok_or_else(|| {
        let text = format!("base: expected one of {} {what}, found number {number}", of.len());
        Error::new(ErrorKind::Corrupt, text)
    })
}

fn numbered(r: &mut Reader<'_>, kinds: u8) -> Result<Numbered> {
    let whole = kinds & BLOCKS != 0;
    let (off, len) = if whole { (u32::from(r.u8()?) * B, (u32::from(r.u8()?) + 1) * B) } else { (r.u32()?, r.u32()?) };
    let places = if kinds & OBJECTS != 0 { r.u8()? } else { FLASH };
    let mut place = |bit| -> Result<Option<(u32, u32)>> {
        Ok(match (places & bit != 0, whole) {
            (false, _) => None,
            (true, true) => Some((u32::from(r.u16()?), u32::from(r.u16()?) * B)),
            (true, false) => Some((r.u32()?, r.u32()?)),
        })
    };
    let flash = place(FLASH)?;
    Ok(Numbered { off, len, flash, object: place(OBJECT)? })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ids::PartitionId;

    fn flash(off: u32, len: u32, (seq, sb): (u64, u16), delta: u32) -> Extent {
        let stripe = StripeAt { pack: PackId::new(PartitionId(3), seq), sb, ul: 64 };
        Extent { off, len, place: Place::Flash { stripe, delta, copy: None } }
    }

    fn same(extents: Vec<Extent>) -> usize {
        let base = BaseRec { upto: Index(77), since_s: 1_700_000_000, extents };
        let bytes = base.encode();
        assert_eq!(BaseRec::decode(&bytes).as_ref(), Ok(&base));
        for cut in 0..bytes.len() {
            assert_eq!(BaseRec::decode(&bytes[..cut]).map_err(|e| e.kind()), Err(ErrorKind::Corrupt), "{cut}");
        }
        bytes.len()
    }

    #[test]
    fn blocks_take_a_few_bytes_and_crumbs_are_exact() {
        let blocks: Vec<Extent> =
            (0..256).map(|i| flash(i * B, B, (u64::from(i % 20) + 1, 5), (i * 7 % 256) * B)).collect();
        assert_eq!(same(blocks.clone()), 22 + 20 * 12 + 256 * 6);
        let mut crumbs = blocks;
        crumbs[9].len -= 1;
        assert_eq!(same(crumbs), 22 + 20 * 12 + 256 * 16);
        let far = flash(0, B, (1, 1), (u32::from(u16::MAX) + 1) * B);
        assert_eq!(same(vec![far]), 22 + 12 + 16);
        assert_eq!(same(vec![flash(0, CHUNK as u32, (1, 1), 0)]), 22 + 12 + 6);
        assert_eq!(same(Vec::new()), 22);
    }

    #[test]
    fn what_is_in_objects_keeps_both_places() {
        let at = |serial, off| ObjectAt { blob: BlobId::new(PartitionId(3), serial), off };
        let with = |mut extent: Extent, object| {
            if let Place::Flash { copy, .. } = &mut extent.place {
                *copy = Some(object);
            }
            extent
        };
        let only = |off, len, object| Extent { off, len, place: Place::Object(object) };
        let flash = |off, sb| flash(off, B, (1, sb), 0);
        let extents = vec![flash(0, 7), with(flash(B, 7), at(9, 64 << 20)), only(2 * B, B, at(8, B)), flash(3 * B, 8)];
        assert_eq!(same(extents.clone()), 22 + 2 * 12 + 4 + 2 * 8 + 4 * 3 + 5 * 4);
        let mut crumbs = extents;
        crumbs[2] = only(2 * B + 1, 5, at(8, 3));
        assert_eq!(same(crumbs), 22 + 2 * 12 + 4 + 2 * 8 + 4 * 9 + 5 * 8);
        assert_eq!(same(vec![only(0, CHUNK as u32, at(1, 0))]), 22 + 4 + 8 + 3 + 4);
    }

    #[test]
    fn a_stripe_that_is_not_there_is_corrupt() {
        let mut bytes = BaseRec { upto: Index(1), since_s: 0, extents: vec![flash(0, B, (1, 1), 0)] }.encode();
        let stripe = bytes.len() - 4;
        bytes[stripe] = 1;
        assert_eq!(BaseRec::decode(&bytes).map_err(|e| e.kind()), Err(ErrorKind::Corrupt));
    }
}
