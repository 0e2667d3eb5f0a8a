//! An atomic set of changes, in order, with its bytes on wire and disk.

use std::collections::HashSet;

use braid_base::codec::{Reader, Writer};
use braid_base::{Error, ErrorKind, Result};

const VERSION: u8 = 1;
const TAG_DELETE: u8 = 0;
const TAG_PUT: u8 = 1;

/// One change of the key-value view.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Change {
    /// The key has this value from now on.
    Put(Vec<u8>, Vec<u8>),
    /// The key is gone; it need not have existed.
    Delete(Vec<u8>),
}

/// Changes that happen together; a later one wins over an earlier one of the same key.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Batch {
    changes: Vec<Change>,
}

impl Batch {
    /// No changes.
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets `key` to `value`.
    pub fn put(&mut self, key: Vec<u8>, value: Vec<u8>) -> &mut Self {
        self.changes.push(Change::Put(key, value));
        self
    }

    /// Removes `key`.
    pub fn delete(&mut self, key: Vec<u8>) -> &mut Self {
        self.changes.push(Change::Delete(key));
        self
    }

    /// Adds the changes of `other` after these.
    pub fn append(&mut self, mut other: Batch) -> &mut Self {
        self.changes.append(&mut other.changes);
        self
    }

    /// Drops the changes that a later one of the same key makes void.
    pub fn keep_last(&mut self) -> &mut Self {
        let mut seen = HashSet::with_capacity(self.changes.len());
        let last: Vec<bool> = self.changes.iter().rev().map(|change| seen.insert(change.key())).collect();
        let mut last = last.into_iter().rev();
        self.changes.retain(|_| last.next().is_some_and(|keep| keep));
        self
    }

    /// The changes in order.
    pub fn changes(&self) -> &[Change] {
        &self.changes
    }

    /// Number of changes.
    pub fn len(&self) -> usize {
        self.changes.len()
    }

    /// True if nothing changes.
    pub fn is_empty(&self) -> bool {
        self.changes.is_empty()
    }

    /// Bytes that [`Batch::encode`] will append.
    pub fn encoded_len(&self) -> usize {
        5 + self.changes.iter().map(Change::encoded_len).sum::<usize>()
    }

    /// Appends `version u8 | count u32 | count x (tag u8 | key len u32 | key | put: value len u32 | value)`.
    pub fn encode(&self, out: &mut Writer) {
        let count = u32::try_from(self.changes.len()).expect("a batch is bounded by RECORD_META_MAX bytes");
        out.put_u8(VERSION).put_u32(count);
        for change in &self.changes {
            match change {
                Change::Put(key, value) => out.put_u8(TAG_PUT).put_bytes(key).put_bytes(value),
                Change::Delete(key) => out.put_u8(TAG_DELETE).put_bytes(key),
            };
        }
    }

    /// Takes a batch off `from`; `Corrupt` if it is none.
    pub fn decode(from: &mut Reader<'_>) -> Result<Self> {
        from.version(VERSION, "a batch of changes")?;
        let count = from.u32()? as usize;
        // The count is foreign: trust it for no more memory than the bytes could fill.
        let mut changes = Vec::with_capacity(count.min(from.remaining() / 5));
        for _ in 0..count {
            changes.push(Change::decode(from)?);
        }
        Ok(Self { changes })
    }

    /// The state hash after this batch: a fold over every batch of the log, equal on all members (I5).
    /// It is part of the log format, so its arithmetic must never change.
    pub fn fold_hash(&self, before: u64) -> u64 {
        let mut hash = mix(before ^ (self.changes.len() as u64));
        for change in &self.changes {
            hash = match change {
                Change::Put(key, value) => fold_bytes(fold_bytes(mix(hash ^ 1), key), value),
                Change::Delete(key) => fold_bytes(mix(hash ^ 2), key),
            };
        }
        hash
    }
}

impl Change {
    /// The key that changes.
    pub fn key(&self) -> &[u8] {
        match self {
            Self::Put(key, _) | Self::Delete(key) => key,
        }
    }

    fn encoded_len(&self) -> usize {
        match self {
            Self::Put(key, value) => 9 + key.len() + value.len(),
            Self::Delete(key) => 5 + key.len(),
        }
    }

    fn decode(from: &mut Reader<'_>) -> Result<Self> {
        match from.u8()? {
            TAG_PUT => {
                let key = from.bytes()?.to_vec();
                Ok(Self::Put(key, from.bytes()?.to_vec()))
            }
            TAG_DELETE => Ok(Self::Delete(from.bytes()?.to_vec())),
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
        batch.put(b"alpha".to_vec(), b"one".to_vec()).delete(b"beta".to_vec()).put(vec![], vec![0; 20]);
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
        batch.put(b"a".to_vec(), b"1".to_vec()).put(b"b".to_vec(), b"2".to_vec()).delete(b"a".to_vec());
        batch.put(b"c".to_vec(), b"3".to_vec()).put(b"b".to_vec(), b"4".to_vec()).keep_last();
        let mut last = Batch::new();
        last.delete(b"a".to_vec()).put(b"c".to_vec(), b"3".to_vec()).put(b"b".to_vec(), b"4".to_vec());
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
        ab.put(b"a".to_vec(), b"bc".to_vec());
        ba.put(b"ab".to_vec(), b"c".to_vec());
        assert_ne!(ab.fold_hash(0), ba.fold_hash(0));
    }
}
