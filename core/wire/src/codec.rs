//! Messages as bytes. A message has two parts: `meta` (numbers, names) and `data` (bulk bytes, as they are).
//!
//! Numbers are little-endian; a list is a u32 count and its items; `Option` is a byte 0 or 1 and the value; a choice is
//! a byte, its number in the tables of the modules below, and the fields in the order given there. A
//! [`Bytes`] is a u32 length in `meta`; the bytes themselves follow each other in `data` and are never copied: the
//! writer hands them to the socket, and the reader gets slices of the buffer they were received in.
//!
//! A new variant or field is one word in a table; whoever forgets it gets a compile error. Numbers are never used
//! again for something else. Foreign bytes lead to `Corrupt`, never to a panic or to more memory than they take.

mod drive;
pub(crate) mod fs;
mod host;
mod lease;
mod peer;
mod replica;
mod words;

use std::fmt::Display;

use braid_base::codec::{Reader, Writer};
use braid_base::{Error, ErrorKind, Result};
use bytes::Bytes;

/// A message that can be sent: `encode` and `decode` are each other's inverse.
pub trait Message: Sized {
    /// Its two parts.
    fn encode(&self) -> Encoded;
    /// The message of two parts. `Corrupt` if they are not one, or more than one.
    fn decode(meta: &[u8], data: Bytes) -> Result<Self>;
}

/// A message as bytes.
#[derive(Clone, Debug, Default)]
pub struct Encoded {
    /// The numbers and names.
    pub meta: Vec<u8>,
    /// The bulk bytes, in order.
    pub data: Vec<Bytes>,
}

impl Encoded {
    /// Length of the data part.
    pub fn data_len(&self) -> usize {
        self.data.iter().map(Bytes::len).sum()
    }
}

/// Collects a message.
pub(crate) struct Out {
    pub(crate) meta: Writer,
    pub(crate) data: Vec<Bytes>,
}

impl Out {
    fn new() -> Self {
        // An answer with attributes, and a lease with them.
        Self { meta: Writer::with_capacity(320), data: Vec::new() }
    }

    fn finish(self) -> Encoded {
        Encoded { meta: self.meta.finish(), data: self.data }
    }
}

/// Takes a message apart.
pub(crate) struct In<'a> {
    pub(crate) meta: Reader<'a>,
    pub(crate) data: Bytes,
}

/// A value inside a message.
pub(crate) trait Field: Sized {
    fn put(&self, out: &mut Out);
    fn take(from: &mut In<'_>) -> Result<Self>;

    /// A list of them; bytes do it faster.
    fn put_list(list: &[Self], out: &mut Out) {
        put_count(list.len(), out);
        list.iter().for_each(|item| item.put(out));
    }

    fn take_list(from: &mut In<'_>) -> Result<Vec<Self>> {
        let count = from.meta.u32()? as usize;
        // No item takes no bytes, so a count beyond what is left is a lie; memory grows with what is really there.
        let mut list = Vec::with_capacity(count.min(from.meta.remaining()).min(1024));
        for _ in 0..count {
            list.push(Self::take(from)?);
        }
        Ok(list)
    }

    /// Any value, for tests; `depth` is counted down so that it ends.
    #[cfg(test)]
    fn any(rng: &mut braid_io::chance::Rng) -> Self;
}

impl<T: Field> Message for T {
    fn encode(&self) -> Encoded {
        let mut out = Out::new();
        self.put(&mut out);
        out.finish()
    }

    fn decode(meta: &[u8], data: Bytes) -> Result<Self> {
        let mut from = In { meta: Reader::new(meta), data };
        let value = Self::take(&mut from)?;
        if from.meta.remaining() > 0 || !from.data.is_empty() {
            let (meta, data) = (from.meta.remaining(), from.data.len());
            let words = format!("a message ends before its frame: {meta} bytes and {data} bytes of data are left over");
            return Err(Error::new(ErrorKind::Corrupt, words));
        }
        Ok(value)
    }
}

fn put_count(count: usize, out: &mut Out) {
    out.meta.put_u32(u32::try_from(count).expect("a message is bounded far below 4 GiB"));
}

pub(crate) fn unknown(what: &'static str, found: impl Display) -> Error {
    Error::new(ErrorKind::Corrupt, format!("{what}: unknown number {found}; is the other side of another release?"))
}

/// `struct`s: the fields in their order on the wire.
macro_rules! wire_struct {
    ($type:ident { $($field:ident),* $(,)? }) => {
        impl crate::codec::Field for $type {
            fn put(&self, out: &mut crate::codec::Out) {
                let Self { $($field),* } = self;
                $(crate::codec::Field::put($field, out);)*
            }
            fn take(from: &mut crate::codec::In<'_>) -> braid_base::Result<Self> {
                $(let $field = crate::codec::Field::take(from)?;)*
                Ok(Self { $($field),* })
            }
            #[cfg(test)]
            fn any(rng: &mut braid_io::chance::Rng) -> Self {
                $(let $field = crate::codec::Field::any(rng);)*
                Self { $($field),* }
            }
        }
    };
}

/// `enum`s: number, variant and its fields in their order on the wire.
macro_rules! wire_enum {
    ($type:ident, $what:literal { $($number:literal = $variant:ident
        $({ $($field:ident),* $(,)? })? $(( $($item:ident),* ))?),* $(,)? }) => {
        impl crate::codec::Field for $type {
            fn put(&self, out: &mut crate::codec::Out) {
                match self {
                    $(Self::$variant $({ $($field),* })? $(( $($item),* ))? => {
                        out.meta.put_u8($number);
                        $($(crate::codec::Field::put($field, out);)*)?
                        $($(crate::codec::Field::put($item, out);)*)?
                    })*
                }
            }
            fn take(from: &mut crate::codec::In<'_>) -> braid_base::Result<Self> {
                match from.meta.u8()? {
                    $($number => {
                        $($(let $field = crate::codec::Field::take(from)?;)*)?
                        $($(let $item = crate::codec::Field::take(from)?;)*)?
                        Ok(Self::$variant $({ $($field),* })? $(( $($item),* ))?)
                    })*
                    other => Err(crate::codec::unknown($what, other)),
                }
            }
            #[cfg(test)]
            fn any(rng: &mut braid_io::chance::Rng) -> Self {
                let numbers = [$($number as u8),*];
                match numbers[rng.below(numbers.len() as u64) as usize] {
                    $($number => {
                        $($(let $field = crate::codec::Field::any(rng);)*)?
                        $($(let $item = crate::codec::Field::any(rng);)*)?
                        Self::$variant $({ $($field),* })? $(( $($item),* ))?
                    })*
                    _ => unreachable!("one of the numbers above"),
                }
            }
        }
        #[cfg(test)]
        impl crate::codec::tests::Variants for $type {
            const NUMBERS: &'static [u8] = &[$($number),*];
        }
    };
}

pub(crate) use {wire_enum, wire_struct};

#[cfg(test)]
pub(crate) mod tests {
    use super::{Field, Message};
    use braid_base::ErrorKind;
    use braid_base::attr::FileType;
    use braid_base::msg::drive::{DriveOp, DriveReply, DriveResult};
    use braid_base::msg::event::Severity;
    use braid_base::msg::fs::{FsResult, LockSpec, Op, Reply, Request};
    use braid_base::msg::host::{HostOp, HostReply, HostResult};
    use braid_base::msg::lease::{Answer, Push, PushBody};
    use braid_base::msg::peer::{Intent, PeerMsg};
    use braid_io::chance::Rng;
    use braid_replica::replica::event::{Body, Msg};
    use bytes::{Bytes, BytesMut};
    use std::collections::BTreeSet;
    use std::fmt::Debug;

    /// The numbers of an enum's variants.
    pub(crate) trait Variants {
        const NUMBERS: &'static [u8];
    }

    fn joined(parts: &[Bytes]) -> Bytes {
        let mut all = BytesMut::new();
        parts.iter().for_each(|part| all.extend_from_slice(part));
        all.freeze()
    }

    fn round_trip<M: Field + Debug>(rng: &mut Rng) -> u8 {
        let value = M::any(rng);
        let encoded = value.encode();
        let data = joined(&encoded.data);
        let back = M::decode(&encoded.meta, data.clone()).expect("own bytes decode");
        assert_eq!(format!("{back:?}"), format!("{value:?}"));
        // Cut anywhere: an error, never a panic, never a value.
        for _ in 0..8 {
            let cut = rng.below(encoded.meta.len() as u64) as usize;
            let kind = M::decode(&encoded.meta[..cut], data.clone()).map_err(|e| e.kind()).err();
            assert_eq!(kind, Some(ErrorKind::Corrupt), "cut at {cut} of {value:?}");
        }
        if !data.is_empty() {
            let short = data.slice(..data.len() - 1);
            assert_eq!(M::decode(&encoded.meta, short).map_err(|e| e.kind()).err(), Some(ErrorKind::Corrupt));
        }
        // Changed anywhere: whatever it gives, it is no panic.
        let mut wrong = encoded.meta.clone();
        for _ in 0..8 {
            let at = rng.below(wrong.len() as u64) as usize;
            wrong[at] = rng.next_u64() as u8;
            let _ = M::decode(&wrong, data.clone());
        }
        encoded.meta[0]
    }

    fn all_variants<M: Field + Variants + Debug>() {
        let mut rng = Rng::new(7);
        let mut met = BTreeSet::new();
        for _ in 0..400 * M::NUMBERS.len() {
            met.insert(round_trip::<M>(&mut rng));
        }
        assert_eq!(met, M::NUMBERS.iter().copied().collect(), "every variant was met, and no number twice");
        assert_eq!(met.len(), M::NUMBERS.len());
    }

    #[test]
    fn every_variant_goes_there_and_back() {
        all_variants::<Op>();
        all_variants::<Reply>();
        all_variants::<DriveOp>();
        all_variants::<DriveReply>();
        all_variants::<PushBody>();
        all_variants::<HostOp>();
        all_variants::<HostReply>();
        all_variants::<Severity>();
        all_variants::<PeerMsg>();
        all_variants::<Intent>();
        all_variants::<Body>();
        all_variants::<ErrorKind>();
        all_variants::<FileType>();
    }

    #[test]
    fn whole_messages_go_there_and_back() {
        let mut rng = Rng::new(8);
        for _ in 0..2_000 {
            round_trip::<Request>(&mut rng);
            round_trip::<FsResult>(&mut rng);
            round_trip::<DriveResult>(&mut rng);
            round_trip::<LockSpec>(&mut rng);
            round_trip::<Answer>(&mut rng);
            round_trip::<Push>(&mut rng);
            round_trip::<HostResult>(&mut rng);
            round_trip::<Msg>(&mut rng);
        }
    }

    #[test]
    fn who_asks_over_a_socket_asks_for_lasting_answers() {
        let early = Request { early: true, ..Request::any(&mut Rng::new(10)) };
        let encoded = early.encode();
        let back = Request::decode(&encoded.meta, joined(&encoded.data)).expect("own bytes decode");
        assert_eq!((back.op, back.early), (early.op, false));
    }

    #[test]
    fn noise_is_corrupt_and_takes_no_memory() {
        let mut rng = Rng::new(9);
        for _ in 0..20_000 {
            let len = rng.below(64) as usize;
            let noise: Vec<u8> = (0..len).map(|_| rng.next_u64() as u8).collect();
            let _ = Request::decode(&noise, Bytes::new());
            let _ = FsResult::decode(&noise, Bytes::new());
            let _ = DriveOp::decode(&noise, Bytes::from_static(&[0; 100]));
            let _ = PeerMsg::decode(&noise, Bytes::new());
            let _ = HostResult::decode(&noise, Bytes::new());
            let _ = Body::decode(&noise, Bytes::from_static(&[0; 100]));
        }
        // A list that says it has 4 billion items.
        let lie = [0, 6, 255, 255, 255, 255];
        assert_eq!(FsResult::decode(&lie, Bytes::new()).map_err(|e| e.kind()).err(), Some(ErrorKind::Corrupt));
    }

    #[test]
    fn bulk_bytes_are_slices_of_what_was_received() {
        let whole = Bytes::from(vec![7; 8192]);
        let reply: FsResult = Ok(Reply::Data(whole.clone()));
        let encoded = reply.encode();
        assert_eq!(encoded.data[0].as_ptr(), whole.as_ptr());
        let Ok(Reply::Data(back)) = FsResult::decode(&encoded.meta, whole.clone()).expect("own bytes") else {
            panic!("another reply came back");
        };
        assert_eq!(back.as_ptr(), whole.as_ptr());
        assert!(FsResult::decode(&encoded.meta, Bytes::from(vec![7; 8193])).is_err(), "bytes that nobody asked for");
    }
}
