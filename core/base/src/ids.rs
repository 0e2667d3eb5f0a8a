//! A newtype for every id, count and position that crosses a function (design section 3).

use std::fmt;

macro_rules! id {
    ($(#[$doc:meta])* $name:ident($inner:ty), $short:literal) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(pub $inner);
        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, concat!($short, "{}"), self.0)
            }
        }
    };
}

id!(/// A host of the cluster; from a counter in the coordinator, never reused.
    HostId(u32), "h");
id!(/// A drive; from a counter in the coordinator, never reused.
    DriveId(u32), "d");
id!(/// A file system; from a counter in the coordinator, never reused.
    FsId(u32), "fs");
id!(/// A failure domain.
    DomainId(u16), "fd");
id!(/// A partition of the namespace, 0..4095.
    PartitionId(u16), "p");
id!(/// A virtual partition, 12 bits: where an inode lives, independent of the number of partitions.
    Vp(u16), "vp");
id!(/// A layer of a file system; 1 is the first. Keys store its complement so that the newest sorts first.
    Layer(u32), "layer");
id!(/// A term of a partition: +1 on every configuration change.
    Term(u64), "t");
id!(/// A position in a partition's log; also the total order of its writes. The first entry has index 1.
    Index(u64), "i");
id!(/// The epoch of a pack's placement: +1 whenever a drive of it changes.
    Epoch(u32), "e");
id!(/// A mount's identity; from a counter in the coordinator, never reused.
    ClientId(u64), "c");
id!(/// A 1 MiB piece of a file.
    Chunk(u32), "chunk");
id!(/// An inode number: `[63:60]=0 | [59:48]=vp | [47:0]=seq`. Unique per file system, never reused.
    Ino(u64), "ino");
id!(/// A pack: `[63:48]=partition | [47:0]=seq`; never reused; 0 = none.
    PackId(u64), "pack");
id!(/// An object in an object store: `[63:48]=partition | [47:0]=serial`; never reused; 0 = none.
    BlobId(u64), "blob");
id!(/// An object store; from a counter in the coordinator, never reused.
    StoreId(u32), "store");

const SEQ_MASK: u64 = (1 << 48) - 1;

impl Ino {
    /// The inode number of `vp` and `seq`. `seq` must fit 48 bits.
    pub fn new(vp: Vp, seq: u64) -> Self {
        assert!(vp.0 < crate::limits::VP_COUNT && seq <= SEQ_MASK, "inode {vp} {seq} out of range");
        Self((u64::from(vp.0) << 48) | seq)
    }

    /// The root directory of a file system: number 1 of the virtual partition that the file system's id names.
    pub fn root(fs: FsId) -> Self {
        Self::new(Vp((fs.0 % u32::from(crate::limits::VP_COUNT)) as u16), 1)
    }

    /// The virtual partition this inode lives in.
    pub fn vp(self) -> Vp {
        Vp(((self.0 >> 48) & 0xFFF) as u16)
    }

    /// The number within its virtual partition.
    pub fn seq(self) -> u64 {
        self.0 & SEQ_MASK
    }

    /// The partition that holds this inode in a cluster of `partitions` (static map: vp mod B).
    pub fn partition(self, partitions: u16) -> PartitionId {
        PartitionId(self.vp().0 % partitions.max(1))
    }
}

impl PackId {
    /// The pack of `partition` and `seq`. `seq` must fit 48 bits and not be 0.
    pub fn new(partition: PartitionId, seq: u64) -> Self {
        assert!(seq > 0 && seq <= SEQ_MASK, "pack sequence {seq} out of range");
        Self((u64::from(partition.0) << 48) | seq)
    }

    /// The partition that owns this pack and every reference to it (I11).
    pub fn partition(self) -> PartitionId {
        PartitionId((self.0 >> 48) as u16)
    }

    /// The number within its partition.
    pub fn seq(self) -> u64 {
        self.0 & SEQ_MASK
    }
}

impl BlobId {
    /// The object of `partition` and `serial`. `serial` must fit 48 bits and not be 0.
    pub fn new(partition: PartitionId, serial: u64) -> Self {
        assert!(serial > 0 && serial <= SEQ_MASK, "object serial {serial} out of range");
        Self((u64::from(partition.0) << 48) | serial)
    }

    /// The partition that owns it and every reference to it.
    pub fn partition(self) -> PartitionId {
        PartitionId((self.0 >> 48) as u16)
    }

    /// The number within its partition.
    pub fn serial(self) -> u64 {
        self.0 & SEQ_MASK
    }
}

impl Layer {
    /// The only layer of a file system that never had a snapshot.
    pub const FIRST: Layer = Layer(1);
}

impl Index {
    /// The index after this one.
    pub fn next(self) -> Self {
        Self(self.0 + 1)
    }
}

/// Exactly-once key of one request: a client and its running number.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct OpId {
    /// Who asked.
    pub client: ClientId,
    /// The client's running number, from 1.
    pub seq: u64,
}

impl fmt::Display for OpId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.client, self.seq)
    }
}

/// A random 128-bit identity (cluster, drive, store, file system), shown as a UUID.
#[derive(Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Guid(pub [u8; 16]);

impl fmt::Display for Guid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, byte) in self.0.iter().enumerate() {
            if matches!(i, 4 | 6 | 8 | 10) {
                f.write_str("-")?;
            }
            write!(f, "{byte:02x}")?;
        }
        Ok(())
    }
}

impl fmt::Debug for Guid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl Guid {
    /// Reads the form that [`fmt::Display`] prints; `None` if it is not 32 hex digits with optional dashes.
    pub fn parse(text: &str) -> Option<Self> {
        let digits: Vec<u8> = text.bytes().filter(|b| *b != b'-').collect();
        if digits.len() != 32 {
            return None;
        }
        let mut out = [0; 16];
        for (i, pair) in digits.chunks(2).enumerate() {
            let high = (pair[0] as char).to_digit(16)?;
            let low = (pair[1] as char).to_digit(16)?;
            out[i] = (high * 16 + low) as u8;
        }
        Some(Self(out))
    }
}

#[cfg(test)]
mod tests {
    use super::{Guid, Ino, PackId, PartitionId, Vp};

    #[test]
    fn bit_layouts_of_the_design() {
        let ino = Ino::new(Vp(0xABC), 0x1234_5678_9ABC);
        assert_eq!(ino.0, 0x0ABC_1234_5678_9ABC);
        assert_eq!((ino.vp(), ino.seq()), (Vp(0xABC), 0x1234_5678_9ABC));
        assert_eq!(ino.partition(3), PartitionId(0xABC % 3));
        let pack = PackId::new(PartitionId(7), 9);
        assert_eq!(pack.0, 0x0007_0000_0000_0009);
        assert_eq!((pack.partition(), pack.seq()), (PartitionId(7), 9));
    }

    #[test]
    fn guid_prints_and_parses() {
        let guid = Guid([1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 255]);
        assert_eq!(guid.to_string(), "01020304-0506-0708-090a-0b0c0d0e0fff");
        assert_eq!(Guid::parse(&guid.to_string()), Some(guid));
        assert_eq!(Guid::parse("nonsense"), None);
    }
}
