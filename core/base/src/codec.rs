//! Little-endian writing and bounds-checked reading of records: the one way bytes become values.
//!
//! Readers never panic on foreign bytes: every shortage is [`ErrorKind::Corrupt`].

use crate::error::{Error, ErrorKind, Result};

/// Appends values to a byte vector.
#[derive(Default)]
pub struct Writer {
    bytes: Vec<u8>,
}

/// Takes values off the front of a byte slice.
#[derive(Clone)]
pub struct Reader<'a> {
    rest: &'a [u8],
}

macro_rules! numbers {
    ($($put:ident $get:ident $type:ty),*) => {
        impl Writer { $(
            /// Appends the number, little-endian.
            pub fn $put(&mut self, value: $type) -> &mut Self {
                self.bytes.extend_from_slice(&value.to_le_bytes());
                self
            }
        )* }
        impl<'a> Reader<'a> { $(
            /// Takes the number, little-endian; `Corrupt` if too few bytes are left.
            pub fn $get(&mut self) -> Result<$type> {
                let (head, rest) = self.rest.split_first_chunk().ok_or_else(short)?;
                self.rest = rest;
                Ok(<$type>::from_le_bytes(*head))
            }
        )* }
    };
}
numbers!(put_u8 u8 u8, put_u16 u16 u16, put_u32 u32 u32, put_u64 u64 u64, put_i64 i64 i64);

fn short() -> Error {
    Error::new(ErrorKind::Corrupt, "a record ends before its last field")
}

impl Writer {
    /// An empty writer.
    pub fn new() -> Self {
        Self::default()
    }

    /// An empty writer with room for `bytes`.
    pub fn with_capacity(bytes: usize) -> Self {
        Self { bytes: Vec::with_capacity(bytes) }
    }

    /// Makes room for `bytes` more at once.
    pub fn reserve(&mut self, bytes: usize) {
        self.bytes.reserve(bytes);
    }

    /// Appends raw bytes (fixed size, known to the reader).
    pub fn put_raw(&mut self, bytes: &[u8]) -> &mut Self {
        self.bytes.extend_from_slice(bytes);
        self
    }

    /// Appends a 32-bit length and the bytes.
    pub fn put_bytes(&mut self, bytes: &[u8]) -> &mut Self {
        let len = u32::try_from(bytes.len()).expect("a field is bounded far below 4 GiB");
        self.put_u32(len).put_raw(bytes)
    }

    /// What was written.
    pub fn finish(self) -> Vec<u8> {
        self.bytes
    }

    /// Bytes written so far.
    pub fn len(&self) -> usize {
        self.bytes.len()
    }

    /// True if nothing was written.
    pub fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }
}

impl<'a> Reader<'a> {
    /// Reads from the front of `bytes`.
    pub fn new(bytes: &'a [u8]) -> Self {
        Self { rest: bytes }
    }

    /// Takes `len` raw bytes.
    pub fn raw(&mut self, len: usize) -> Result<&'a [u8]> {
        let (head, rest) = self.rest.split_at_checked(len).ok_or_else(short)?;
        self.rest = rest;
        Ok(head)
    }

    /// Takes an array of fixed size.
    pub fn array<const N: usize>(&mut self) -> Result<[u8; N]> {
        let (head, rest) = self.rest.split_first_chunk().ok_or_else(short)?;
        self.rest = rest;
        Ok(*head)
    }

    /// Takes a 32-bit length and that many bytes.
    pub fn bytes(&mut self) -> Result<&'a [u8]> {
        let len = self.u32()? as usize;
        self.raw(len)
    }

    /// Bytes not yet taken.
    pub fn remaining(&self) -> usize {
        self.rest.len()
    }

    /// Takes a version byte and refuses any other than `known`.
    pub fn version(&mut self, known: u8, what: &'static str) -> Result<()> {
        let found = self.u8()?;
        if found == known {
            return Ok(());
        }
        Err(Error::new(
            ErrorKind::Corrupt,
            format!("{what}: expected version {known}, found {found}; it was written by another release of braid"),
        ))
    }
}
