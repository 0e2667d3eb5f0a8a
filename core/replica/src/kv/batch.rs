//! An atomic set of changes, in order, with its bytes on wire and disk.

use std::fmt;

use braid_base::codec::{Reader, Writer};
use braid_base::{Error, ErrorKind, Result};

const VERSION: u8 = 1;
const TAG_DELETE: u8 = 0;
const TAG_PUT: u8 = 1;

/// One change of the key-value view.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change<'a> {
    /// The key has this value from now on.
    Put(&'a [u8], &'a [u8]),
    /// The key is gone; it need not have existed.
    Delete(&'a [u8]),
}

/// Changes that happen together; a later one wins over an earlier one of the same key.
///
/// Kept as its bytes: it is made once and then only copied, to the log, to other members and to the view.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Batch {
    count: u32,
    /// The changes as they are encoded.
    bytes: Vec<u8>,
}

impl Batch {
    /// No changes.
    pub fn new() -> Self {
        Self::default()
    }

    /// No changes, with room for `bytes` of them; see [`Change::BYTES`].
    pub fn with_capacity(bytes: usize) -> Self {
        Self { count: 0, bytes: Vec::with_capacity(bytes) }
    }

    /// Sets `key` to `value`.
    pub fn put(&mut self, key: impl AsRef<[u8]>, value: impl AsRef<[u8]>) -> &mut Self {
        self.push(Change::Put(key.as_ref(), value.as_ref()))
    }

    /// Removes `key`.
    pub fn delete(&mut self, key: impl AsRef<[u8]>) -> &mut Self {
        self.push(Change::Delete(key.as_ref()))
    }

    /// Adds the changes of `other` after these.
    pub fn append(&mut self, other: &Batch) -> &mut Self {
        self.count += other.count;
        self.bytes.extend_from_slice(&other.bytes);
        self
    }

    /// Drops the changes that a later one of the same key makes void, and puts the others in order of their keys: the
    /// engine finds the place of a row from that of the row before.
    pub fn keep_last(&mut self) -> &mut Self {
        let mut changes: Vec<Change<'_>> = self.changes().collect();
        changes.sort_by(|one, other| one.key().cmp(other.key()));
        let mut kept = Self::with_capacity(self.bytes.len());
        for (at, change) in changes.iter().enumerate() {
            // Those of one key stand in their order.
            if changes.get(at + 1).is_none_or(|next| next.key() != change.key()) {
                kept.push(*change);
            }
        }
        *self = kept;
        self
    }

    /// The changes in order.
    pub fn changes(&self) -> impl Iterator<Item = Change<'_>> {
        let mut rest = Reader::new(&self.bytes);
        (0..self.count).map(move |_| Change::decode(&mut rest).expect("checked when it came here"))
    }

    /// Number of changes.
    pub fn len(&self) -> usize {
        self.count as usize
    }

    /// True if nothing changes.
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Bytes that [`Batch::encode`] will append.
    pub fn encoded_len(&self) -> usize {
        5 + self.bytes.len()
    }

    /// Appends `version u8 | count u32 | count x (tag u8 | key len u32 | key | put: value len u32 | value)`.
    pub fn encode(&self, out: &mut Writer) {
        out.put_u8(VERSION).put_u32(self.count).put_raw(&self.bytes);
    }

    /// Takes a batch off `from`; `Corrupt` if it is none.
    pub fn decode(from: &mut Reader<'_>) -> Result<Self> {
        from.version(VERSION, "a batch of changes")?;
        let count = from.u32()?;
        let mut rest = from.clone();
        for _ in 0..count {
            Change::decode(&mut rest)?;
        }
        let bytes = from.raw(from.remaining() - rest.remaining())?.to_vec();
        Ok(Self { count, bytes })
    }

    /// The state hash after this batch: a fold over every batch of the log, equal on all members (I5).
    /// It is part of the log format, so its arithmetic must never change.
    pub fn fold_hash(&self, before: u64) -> u64 {
        let mut hash = mix(before ^ u64::from(self.count));
        for change in self.changes() {
            hash = match change {
                Change::Put(key, value) => fold_bytes(fold_bytes(mix(hash ^ 1), key), value),
                Change::Delete(key) => fold_bytes(mix(hash ^ 2), key),
            };
        }
        hash
    }

    fn push(&mut self, change: Change<'_>) -> &mut Self {
        let len = |bytes: &[u8]| u32::try_from(bytes.len()).expect("rows are bounded by RECORD_META_MAX").to_le_bytes();
        let (tag, key, value) = match change {
            Change::Put(key, value) => (TAG_PUT, key, Some(value)),
            Change::Delete(key) => (TAG_DELETE, key, None),
        };
        self.bytes.push(tag);
        for part in [Some(key), value].into_iter().flatten() {
            self.bytes.extend_from_slice(&len(part));
            self.bytes.extend_from_slice(part);
        }
        self.count = self.count.checked_add(1).expect("a batch is bounded by RECORD_META_MAX bytes");
        self
    }
}

impl fmt::Debug for Batch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.changes()).finish()
    }
}

impl<'a> Change<'a> {
    /// Bytes of a change beside its key and value, at most.
    pub const BYTES: usize = 9;

    /// The key that changes.
    pub fn key(&self) -> &'a [u8] {
        match self {
            Self::Put(key, _) | Self::Delete(key) => key,
        }
    }

    fn decode(from: &mut Reader<'a>) -> Result<Self> {
        match from.u8()? {
            TAG_PUT => Ok(Self::Put(from.bytes()?, from.bytes()?)),
            TAG_DELETE => Ok(Self::Delete(from.bytes()?)),
            other => Err(Error::new(
                ErrorKind::Corrupt,
                format!("a batch of changes: expected tag {TAG_DELETE} or {TAG_PUT}, found {other}"),
            )),
        }
    }
}

/// Finaliser of MurmurHash3: every input bit reaches every output bit.
fn mix(value: u64) -> u64 {
    let mut hash = value.wrapping_add(0x9e37_79b9_7f4a_7c15);
    hash = (hash ^ (hash >> 33)).wrapping_mul(0xff51_afd7_ed55_8ccd);
    hash = (hash ^ (hash >> 33)).wrapping_mul(0xc4ce_b9fe_1a85_ec53);
    hash ^ (hash >> 33)
}

fn fold_bytes(before: u64, bytes: &[u8]) -> u64 {
    let mut hash = mix(before ^ bytes.len() as u64);
    let (words, rest) = bytes.as_chunks::<8>();
    for word in words {
        hash = mix(hash ^ u64::from_le_bytes(*word));
    }
    if rest.is_empty() {
        return hash;
    }
    // Zeros behind it make the last one whole.
    let last = rest.iter().rev().fold(0, |word, byte| word << 8 | u64::from(*byte));
    mix(hash ^ last)
}

#[cfg(test)]
mod tests {
    use super::Batch;
    use braid_base::ErrorKind;
    use braid_base::codec::{Reader, Writer};

    fn sample() -> Batch {
        let mut batch = Batch::new();
        batch.put(b"alpha", b"one").delete(b"beta").put(vec![], vec![0; 20]);
        batch
    }

    #[test]
    fn bytes_round_trip_and_every_cut_is_refused() {
        let mut out = Writer::new();
        sample().encode(&mut out);
        let bytes = out.finish();
        assert_eq!(bytes.len(), sample().encoded_len());
        assert_eq!(Batch::decode(&mut Reader::new(&bytes)), Ok(sample()));
        for cut in 0..bytes.len() {
            let error = Batch::decode(&mut Reader::new(&bytes[..cut])).expect_err("a cut batch");
            assert_eq!(error.kind(), ErrorKind::Corrupt);
        }
    }

    #[test]
    fn of_several_changes_of_a_key_the_last_one_stays() {
        let mut batch = Batch::new();
        batch.put(b"a", b"1").put(b"b", b"2").delete(b"a");
        batch.put(b"c", b"3").put(b"b", b"4").keep_last();
        let mut last = Batch::new();
        last.delete(b"a").put(b"b", b"4").put(b"c", b"3");
        assert_eq!(batch, last);
    }

    #[test]
    fn state_hash_is_a_format_and_sees_every_difference() {
        assert_eq!(Batch::new().fold_hash(0), 11_286_133_854_226_296_554, "format");
        assert_eq!(sample().fold_hash(0), 6_244_238_357_180_769_689, "format");
        let hash = sample().fold_hash(7);
        assert_ne!(hash, sample().fold_hash(8));
        let mut other = sample();
        other.delete(vec![]);
        assert_ne!(hash, other.fold_hash(7));
        let (mut ab, mut ba) = (Batch::new(), Batch::new());
        ab.put(b"a", b"bc");
        ba.put(b"ab", b"c");
        assert_ne!(ab.fold_hash(0), ba.fold_hash(0));
    }
}
