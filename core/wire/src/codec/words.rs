//! Plain values, ids, attributes, extents and errors.

use std::collections::BTreeMap;
use std::sync::Arc;

use braid_base::attr::{Attr, FileType, SetAttr, SetTime, Time};
use braid_base::ids::{
    BlobId, Chunk, ClientId, DriveId, Epoch, FsId, Guid, HostId, Index, Ino, OpId, PackId, PartitionId, StoreId, Term,
};
use braid_base::msg::event::EventType;
use braid_base::record::{Extent, ObjectAt, PackClass, Place, Placement, StripeAt};
use braid_base::{Error, ErrorKind, Result};
use bytes::Bytes;

use super::{Field, In, Out, put_count, unknown, wire_enum, wire_struct};

/// Longest sentence of an error that is sent, bytes.
const WORDS_MAX: usize = 4096;

macro_rules! numbers {
    ($($type:ident $put:ident),*) => { $(
        impl Field for $type {
            fn put(&self, out: &mut Out) {
                out.meta.$put(*self);
            }
            fn take(from: &mut In<'_>) -> Result<Self> {
                from.meta.$type()
            }
            #[cfg(test)]
            fn any(rng: &mut braid_io::chance::Rng) -> Self {
                rng.next_u64() as Self
            }
        }
    )* };
}
numbers!(u16 put_u16, u32 put_u32, u64 put_u64, i64 put_i64);

macro_rules! ids {
    ($($type:ident),*) => { $(
        impl Field for $type {
            fn put(&self, out: &mut Out) {
                self.0.put(out);
            }
            fn take(from: &mut In<'_>) -> Result<Self> {
                Ok(Self(Field::take(from)?))
            }
            #[cfg(test)]
            fn any(rng: &mut braid_io::chance::Rng) -> Self {
                Self(Field::any(rng))
            }
        }
    )* };
}
ids!(BlobId, Chunk, ClientId, DriveId, Epoch, EventType, FsId, HostId, Index, Ino, PackId, PartitionId, StoreId, Term);

impl Field for u8 {
    fn put(&self, out: &mut Out) {
        out.meta.put_u8(*self);
    }

    fn take(from: &mut In<'_>) -> Result<Self> {
        from.meta.u8()
    }

    fn put_list(list: &[Self], out: &mut Out) {
        out.meta.put_bytes(list);
    }

    fn take_list(from: &mut In<'_>) -> Result<Vec<Self>> {
        Ok(from.meta.bytes()?.to_vec())
    }

    #[cfg(test)]
    fn any(rng: &mut braid_io::chance::Rng) -> Self {
        rng.next_u64() as Self
    }
}

impl Field for bool {
    fn put(&self, out: &mut Out) {
        out.meta.put_u8(u8::from(*self));
    }

    fn take(from: &mut In<'_>) -> Result<Self> {
        match from.meta.u8()? {
            0 => Ok(false),
            1 => Ok(true),
            other => Err(unknown("yes or no", other)),
        }
    }

    #[cfg(test)]
    fn any(rng: &mut braid_io::chance::Rng) -> Self {
        rng.below(2) == 1
    }
}

impl Field for Guid {
    fn put(&self, out: &mut Out) {
        out.meta.put_raw(&self.0);
    }

    fn take(from: &mut In<'_>) -> Result<Self> {
        Ok(Self(from.meta.array()?))
    }

    #[cfg(test)]
    fn any(rng: &mut braid_io::chance::Rng) -> Self {
        Self([rng.next_u64() as u8; 16])
    }
}

impl Field for Bytes {
    fn put(&self, out: &mut Out) {
        put_count(self.len(), out);
        if !self.is_empty() {
            out.data.push(self.clone());
        }
    }

    fn take(from: &mut In<'_>) -> Result<Self> {
        let len = from.meta.u32()? as usize;
        if len > from.data.len() {
            let words = format!("a message says {len} bytes of data, {} are there", from.data.len());
            return Err(Error::new(ErrorKind::Corrupt, words));
        }
        Ok(from.data.split_to(len))
    }

    #[cfg(test)]
    fn any(rng: &mut braid_io::chance::Rng) -> Self {
        Bytes::from(vec![rng.next_u64() as u8; rng.below(5000) as usize])
    }
}

impl Field for String {
    fn put(&self, out: &mut Out) {
        out.meta.put_bytes(self.as_bytes());
    }

    fn take(from: &mut In<'_>) -> Result<Self> {
        let bytes = from.meta.bytes()?;
        String::from_utf8(bytes.to_vec()).map_err(|_| Error::new(ErrorKind::Corrupt, "a text is not UTF-8"))
    }

    #[cfg(test)]
    fn any(rng: &mut braid_io::chance::Rng) -> Self {
        "ä".repeat(rng.below(20) as usize)
    }
}

impl<T: Field> Field for Vec<T> {
    fn put(&self, out: &mut Out) {
        T::put_list(self, out);
    }

    fn take(from: &mut In<'_>) -> Result<Self> {
        T::take_list(from)
    }

    #[cfg(test)]
    fn any(rng: &mut braid_io::chance::Rng) -> Self {
        (0..rng.below(6)).map(|_| T::any(rng)).collect()
    }
}

impl<T: Field> Field for Option<T> {
    fn put(&self, out: &mut Out) {
        self.is_some().put(out);
        if let Some(value) = self {
            value.put(out);
        }
    }

    fn take(from: &mut In<'_>) -> Result<Self> {
        Ok(if bool::take(from)? { Some(T::take(from)?) } else { None })
    }

    #[cfg(test)]
    fn any(rng: &mut braid_io::chance::Rng) -> Self {
        (rng.below(2) == 1).then(|| T::any(rng))
    }
}

impl<T: Field> Field for Box<T> {
    fn put(&self, out: &mut Out) {
        self.as_ref().put(out);
    }

    fn take(from: &mut In<'_>) -> Result<Self> {
        Ok(Self::new(T::take(from)?))
    }

    #[cfg(test)]
    fn any(rng: &mut braid_io::chance::Rng) -> Self {
        Self::new(T::any(rng))
    }
}

impl<T: Field> Field for Arc<T> {
    fn put(&self, out: &mut Out) {
        self.as_ref().put(out);
    }

    fn take(from: &mut In<'_>) -> Result<Self> {
        Ok(Self::new(T::take(from)?))
    }

    #[cfg(test)]
    fn any(rng: &mut braid_io::chance::Rng) -> Self {
        Self::new(T::any(rng))
    }
}

/// Like a list of pairs; a key that comes twice counts once.
impl<K: Field + Ord, V: Field> Field for BTreeMap<K, V> {
    fn put(&self, out: &mut Out) {
        put_count(self.len(), out);
        for (key, value) in self {
            key.put(out);
            value.put(out);
        }
    }

    fn take(from: &mut In<'_>) -> Result<Self> {
        Ok(Vec::<(K, V)>::take(from)?.into_iter().collect())
    }

    #[cfg(test)]
    fn any(rng: &mut braid_io::chance::Rng) -> Self {
        Vec::<(K, V)>::any(rng).into_iter().collect()
    }
}

impl<A: Field, B: Field> Field for (A, B) {
    fn put(&self, out: &mut Out) {
        self.0.put(out);
        self.1.put(out);
    }

    fn take(from: &mut In<'_>) -> Result<Self> {
        Ok((A::take(from)?, B::take(from)?))
    }

    #[cfg(test)]
    fn any(rng: &mut braid_io::chance::Rng) -> Self {
        (A::any(rng), B::any(rng))
    }
}

impl<A: Field, B: Field, C: Field> Field for (A, B, C) {
    fn put(&self, out: &mut Out) {
        self.0.put(out);
        self.1.put(out);
        self.2.put(out);
    }

    fn take(from: &mut In<'_>) -> Result<Self> {
        Ok((A::take(from)?, B::take(from)?, C::take(from)?))
    }

    #[cfg(test)]
    fn any(rng: &mut braid_io::chance::Rng) -> Self {
        (A::any(rng), B::any(rng), C::any(rng))
    }
}

impl Field for Error {
    fn put(&self, out: &mut Out) {
        let words = self.message();
        let end = (0..=WORDS_MAX.min(words.len())).rev().find(|at| words.is_char_boundary(*at)).unwrap_or(0);
        self.kind().put(out);
        out.meta.put_bytes(&words.as_bytes()[..end]);
    }

    fn take(from: &mut In<'_>) -> Result<Self> {
        Ok(Self::new(ErrorKind::take(from)?, String::take(from)?))
    }

    #[cfg(test)]
    fn any(rng: &mut braid_io::chance::Rng) -> Self {
        Self::new(ErrorKind::any(rng), String::any(rng))
    }
}

/// Answers: 0 and the value, or 1 and the error.
impl<T: Field> Field for Result<T> {
    fn put(&self, out: &mut Out) {
        self.is_err().put(out);
        match self {
            Ok(value) => value.put(out),
            Err(error) => error.put(out),
        }
    }

    fn take(from: &mut In<'_>) -> Result<Self> {
        Ok(if bool::take(from)? { Err(Error::take(from)?) } else { Ok(T::take(from)?) })
    }

    #[cfg(test)]
    fn any(rng: &mut braid_io::chance::Rng) -> Self {
        if rng.below(4) == 0 { Err(Error::any(rng)) } else { Ok(T::any(rng)) }
    }
}

wire_enum!(ErrorKind, "kind of error" {
    1 = NotFound, 2 = Exists, 3 = NotDirectory, 4 = IsDirectory, 5 = NotEmpty, 6 = Invalid, 7 = NotPermitted,
    8 = AccessDenied, 9 = NoSpace, 10 = Quota, 11 = CrossDevice, 12 = TooManyLinks, 13 = NameTooLong,
    14 = NoAttribute, 15 = Range, 16 = FileTooBig, 17 = WouldBlock, 18 = Deadlock, 19 = Busy, 20 = Stale, 21 = Io,
    22 = Corrupt, 23 = Unsupported, 24 = TimedOut, 25 = ReadOnly, 26 = Stopped, 27 = Refused, 28 = Moved, 29 = SessionLost,
    30 = Held,
});
wire_enum!(FileType, "file type" {
    1 = File, 2 = Directory, 3 = Symlink, 4 = Fifo, 5 = CharDevice, 6 = BlockDevice, 7 = Socket,
});
wire_enum!(SetTime, "time to set" { 1 = To(time), 2 = Now });
wire_enum!(Place, "place" { 1 = Stage { at, poff }, 2 = Flash { stripe, delta, copy }, 3 = Object(at) });
wire_enum!(PackClass, "pack class" { 1 = User, 2 = Destage, 3 = Gc, 4 = Cache });
wire_struct!(OpId { client, seq });
wire_struct!(Time { sec, nsec });
wire_struct!(Attr {
    ino,
    kind,
    mode,
    uid,
    gid,
    nlink,
    size,
    used,
    rdev,
    atime,
    mtime,
    ctime,
    btime,
    generation,
    change,
    xattrs
});
wire_struct!(SetAttr { mode, uid, gid, size, atime, mtime, kill_suid_sgid, access_only });
wire_struct!(StripeAt { pack, sb, ul });
wire_struct!(ObjectAt { blob, off });
wire_struct!(Extent { off, len, place });
wire_struct!(Placement { data, parity, epoch, drives });
