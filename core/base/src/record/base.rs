//! The bytes of a base. A chunk that is overwritten block by block has hundreds of extents in a few stripes, and its
//! base is written with every move: so each stripe is named once, and whole blocks are counted and not measured.

use super::{BaseRec, Extent, Place, Record, StripeAt};
use crate::codec::{Reader, Writer};
use crate::error::{Error, ErrorKind, Result};
use crate::ids::{Index, PackId};
use crate::limits::{BLOCK, CHUNK};

const B: u32 = BLOCK as u32;
/// Extents of any offset and length follow.
const BYTES: u8 = 0;
/// All extents are whole blocks.
const BLOCKS: u8 = 1;
const STRIPE_LEN: usize = 12;
// Offset and length less one, in blocks, are 8 bits.
const _: () = assert!(CHUNK as usize / BLOCK <= 1 << 8);

/// An extent with the number of its stripe.
struct Numbered {
    off: u32,
    len: u32,
    stripe: u32,
    delta: u32,
}

impl Numbered {
    fn is_whole(&self) -> bool {
        [self.off, self.len, self.delta].iter().all(|value| value.is_multiple_of(B))
            && u64::from(self.off) + u64::from(self.len) <= CHUNK
            && self.len > 0
            && self.delta / B <= u32::from(u16::MAX)
            && self.stripe <= u32::from(u16::MAX)
    }
}

impl Record for BaseRec {
    fn encode(&self) -> Vec<u8> {
        let place = |extent: &Extent| match extent.place {
            Place::Flash { stripe, delta } => (stripe, delta),
            Place::Stage { at, .. } => panic!("a base never names the log, this one {at}"),
        };
        let mut stripes: Vec<StripeAt> = self.extents.iter().map(|extent| place(extent).0).collect();
        stripes.sort_unstable();
        stripes.dedup();
        let numbered = |extent: &Extent| {
            let (stripe, delta) = place(extent);
            let stripe = stripes.partition_point(|other| *other < stripe) as u32;
            Numbered { off: extent.off, len: extent.len, stripe, delta }
        };
        let extents: Vec<Numbered> = self.extents.iter().map(numbered).collect();
        let whole = extents.iter().all(Numbered::is_whole);
        let mut w = Writer::with_capacity(18 + STRIPE_LEN * stripes.len() + 16 * extents.len());
        w.put_u8(2).put_u64(self.upto.0).put_u32(stripes.len() as u32);
        for at in &stripes {
            w.put_u64(at.pack.0).put_u16(at.sb).put_u16(at.ul);
        }
        w.put_u8(if whole { BLOCKS } else { BYTES }).put_u32(extents.len() as u32);
        for Numbered { off, len, stripe, delta } in extents {
            if whole {
                w.put_u8((off / B) as u8)
                    .put_u8((len / B - 1) as u8)
                    .put_u16(stripe as u16)
                    .put_u16((delta / B) as u16);
            } else {
                w.put_u32(off).put_u32(len).put_u32(stripe).put_u32(delta);
            }
        }
        w.finish()
    }

    fn decode(bytes: &[u8]) -> Result<Self> {
        let r = &mut Reader::new(bytes);
        r.version(2, "base")?;
        let upto = Index(r.u64()?);
        let count = r.u32()?;
        let stripe = |r: &mut Reader<'_>| Ok(StripeAt { pack: PackId(r.u64()?), sb: r.u16()?, ul: r.u16()? });
        let stripes: Vec<StripeAt> = (0..count).map(|_| stripe(r)).collect::<Result<_>>()?;
        let unit = r.u8()?;
        let count = r.u32()?;
        let extents = (0..count).map(|_| {
            let Numbered { off, len, stripe, delta } = numbered(r, unit)?;
            let stripe = stripes.get(stripe as usize).copied().ok_or_else(|| {
                let text = format!("base: expected one of {} stripes, found number {stripe}", stripes.len());
                Error::new(ErrorKind::Corrupt, text)
            })?;
            Ok(Extent { off, len, place: Place::Flash { stripe, delta } })
        });
        Ok(Self { upto, extents: extents.collect::<Result<_>>()? })
    }
}

fn numbered(r: &mut Reader<'_>, unit: u8) -> Result<Numbered> {
    match unit {
        BYTES => Ok(Numbered { off: r.u32()?, len: r.u32()?, stripe: r.u32()?, delta: r.u32()? }),
        BLOCKS => Ok(Numbered {
            off: u32::from(r.u8()?) * B,
            len: (u32::from(r.u8()?) + 1) * B,
            stripe: u32::from(r.u16()?),
            delta: u32::from(r.u16()?) * B,
        }),
        other => Err(Error::new(ErrorKind::Corrupt, format!("base: expected extents of kind 0 or 1, found {other}"))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ids::PartitionId;

    fn flash(off: u32, len: u32, (seq, sb): (u64, u16), delta: u32) -> Extent {
        let stripe = StripeAt { pack: PackId::new(PartitionId(3), seq), sb, ul: 64 };
        Extent { off, len, place: Place::Flash { stripe, delta } }
    }

    fn same(extents: Vec<Extent>) -> usize {
        let base = BaseRec { upto: Index(77), extents };
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
        assert_eq!(same(blocks.clone()), 18 + 20 * 12 + 256 * 6);
        let mut crumbs = blocks;
        crumbs[9].len -= 1;
        assert_eq!(same(crumbs), 18 + 20 * 12 + 256 * 16);
        let far = flash(0, B, (1, 1), (u32::from(u16::MAX) + 1) * B);
        assert_eq!(same(vec![far]), 18 + 12 + 16);
        assert_eq!(same(vec![flash(0, CHUNK as u32, (1, 1), 0)]), 18 + 12 + 6);
        assert_eq!(same(Vec::new()), 18);
    }

    #[test]
    fn a_stripe_that_is_not_there_is_corrupt() {
        let mut bytes = BaseRec { upto: Index(1), extents: vec![flash(0, B, (1, 1), 0)] }.encode();
        let stripe = bytes.len() - 4;
        bytes[stripe] = 1;
        assert_eq!(BaseRec::decode(&bytes).map_err(|e| e.kind()), Err(ErrorKind::Corrupt));
    }
}
