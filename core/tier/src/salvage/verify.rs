//! Whether objects are as they were written.

use std::ops::Range;

use braid_base::limits::BLOCK;
use braid_base::{ErrorKind, Result};

use super::{Damage, Object, Salvage, descriptor};
use crate::blob::{Head, PIECE, Span, data_len, descriptor_at, object_len};

/// What was verified.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Verified {
    /// Objects.
    pub objects: u64,
    /// Bytes of all of them.
    pub bytes: u64,
    /// How many of the objects are damaged.
    pub damaged: u64,
}

impl Salvage {
    /// Reads all objects with data and checks header, footer, every descriptor and every block; what is not as it was
    /// written is given to `tell`. Errors: those of the store, and those that `tell` gives.
    pub async fn verify(&self, mut tell: impl FnMut(Damage) -> Result<()>) -> Result<Verified> {
        let mut verified = Verified::default();
        let take = |(bytes, damages): (u64, Vec<Damage>)| {
            verified.objects += 1;
            verified.bytes += bytes;
            verified.damaged += u64::from(!damages.is_empty());
            damages.into_iter().try_for_each(&mut tell)
        };
        self.each(check, take).await?;
        Ok(verified)
    }
}

/// How many bytes an object has, and what is wrong with them.
async fn check(salvage: Salvage, object: Object) -> Result<(u64, Vec<Damage>)> {
    let mut damages = Vec::new();
    let head = heads(&salvage, &object, &mut damages).await?;
    let data = match &head {
        Heads::Known(head) => head.header.data_len,
        Heads::Lost => data_len(object.size),
        Heads::Foreign => 0,
    };
    let mut from = 0;
    while from < data {
        let piece = from..data.min(from + PIECE);
        let expected = match &head {
            Heads::Known(head) => head.descriptors.get((from / PIECE) as usize).copied(),
            Heads::Lost | Heads::Foreign => None,
        };
        match check_piece(&salvage, &object, piece, expected).await {
            Ok(found) => damages.extend(found),
            Err(error) => {
                let ends_before = error.kind() == ErrorKind::Range;
                damages.push(object.damage(descriptor_at(from), error)?);
                if ends_before {
                    break;
                }
            }
        }
        from += PIECE;
    }
    Ok((object.size, damages))
}

/// What header and footer turned out to be.
enum Heads {
    /// One of them can be read.
    Known(Head),
    /// None can: what lies where is told by the size.
    Lost,
    /// Another release wrote it: what lies where is unknown.
    Foreign,
}

async fn heads(salvage: &Salvage, object: &Object, damages: &mut Vec<Damage>) -> Result<Heads> {
    let (mut known, mut foreign) = (None, false);
    for at in object.heads_at() {
        match (salvage.head_at(object, at).await, &known) {
            (Ok(head), None) => known = Some(head),
            (Ok(head), Some(first)) if head == *first => {}
            (Ok(_), Some(_)) => {
                let words = "expected the header again, found another one of this object".to_owned();
                damages.push(Damage { key: object.key.clone(), at, words });
            }
            (Err(error), _) => {
                foreign |= error.kind() == ErrorKind::Unsupported;
                damages.push(object.damage(at, error)?);
            }
        }
    }
    let Some(head) = known else { return Ok(if foreign { Heads::Foreign } else { Heads::Lost }) };
    let expected = object_len(head.header.data_len);
    if expected != object.size {
        let words = format!("expected {expected} bytes by the header, found {}", object.size);
        damages.push(Damage { key: object.key.clone(), at: object.size.min(expected), words });
    }
    Ok(Heads::Known(head))
}

/// What is wrong with the piece that holds bytes `data` of the object's data, and whose descriptor has the checksum
/// `expected`, if that is known.
async fn check_piece(
    salvage: &Salvage,
    object: &Object,
    data: Range<u64>,
    expected: Option<u32>,
) -> Result<Vec<Damage>> {
    let span = Span::new(data.clone());
    let got = salvage.get(&object.key, span.object()).await?;
    let mut damages = Vec::new();
    if let Some(Err(error)) = expected.map(|expected| descriptor(&got[..BLOCK], expected)) {
        damages.push(object.damage(span.object().start, error)?);
    }
    damages.extend(span.faults(&got, &data, None).map(|(at, words)| Damage { key: object.key.clone(), at, words }));
    Ok(damages)
}
