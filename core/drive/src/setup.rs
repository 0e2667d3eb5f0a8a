//! Making a drive: what is looked at first, so that nobody's data is lost, and what is written.

use braid_base::ids::{DomainId, DriveId, Guid};
use braid_base::limits::BLOCK;
use braid_base::{Error, ErrorKind, Result};
use braid_io::clock::Now;
use braid_io::file::ReadAt;
use bytes::Bytes;

use crate::format::superblock::{self, Superblock};
use crate::layout::{Layout, Side};
use crate::open::{foreign, open, superblocks};

/// What a new drive is to be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FormatParams {
    /// The cluster it joins.
    pub cluster: Guid,
    /// Its own identity: random.
    pub drive: Guid,
    /// Its number in the cluster.
    pub id: DriveId,
    /// Its failure domain.
    pub domain: DomainId,
    /// Data bytes of a shard (S), fixed for the cluster.
    pub shard_bytes: u64,
    /// Format even if something is on it. What it was is lost.
    pub force: bool,
}

/// Looked at for known signatures at the beginning of a device, bytes; wiped by format.
const HEAD: usize = 128 << 10;

/// Where other formats put their signatures: offset, bytes, name.
const SIGNATURES: &[(usize, &[u8], &str)] = &[
    (0, &superblock::MAGIC, "a Braid drive"),
    (0x438, &[0x53, 0xEF], "an ext2, ext3 or ext4 file system"),
    (0, b"XFSB", "an XFS file system"),
    (0x1_0040, b"_BHRfS_M", "a btrfs file system"),
    (0, b"LUKS\xBA\xBE", "a LUKS volume"),
    (512, b"LABELONE", "an LVM volume"),
    (4096, &[0xFC, 0x4E, 0x2B, 0xA9], "a member of a software RAID"),
    (4096 - 10, b"SWAPSPACE2", "a swap area"),
    (3, b"NTFS    ", "an NTFS file system"),
    (3, b"EXFAT   ", "an exFAT file system"),
    (54, b"FAT", "a FAT file system"),
    (82, b"FAT32", "a FAT file system"),
    (1024, &[0x10, 0x20, 0xF5, 0xF2], "an F2FS file system"),
    (0, b"bluestore block device", "a Ceph BlueStore device"),
    (0x8001, b"CD001", "an ISO 9660 image"),
    (0, b"hsqs", "a SquashFS image"),
    (512, b"EFI PART", "a GPT partition table"),
    (510, &[0x55, 0xAA], "an MBR partition table"),
];

/// The superblock of the new drive, and what to write, in this order and durable, to make it one. Fails without
/// a write if something is on the device (`Refused`; says what), if it is too small (`Refused`; says needed and found).
pub fn format(disk: &dyn ReadAt, params: &FormatParams, now: Now) -> Result<(Superblock, Vec<(u64, Bytes)>)> {
    let layout = Layout::plan(disk.size()?, params.shard_bytes)?;
    if !params.force {
        check_unused(disk, params.cluster, now)?;
    }
    let superblock = Superblock {
        cluster: params.cluster,
        drive: params.drive,
        id: params.id,
        domain: params.domain,
        layout,
        seq: 1,
        created: u64::try_from(now.wall.sec).unwrap_or(0),
    };
    let wipe = HEAD.min(layout.size as usize - BLOCK);
    let zeros = Bytes::from(vec![0; wipe]);
    // The first superblock comes last: before it is there, the drive is none, and formatting may be repeated.
    let writes = vec![
        (0, zeros),
        (layout.superblock(Side::B), superblock.encode()),
        (layout.superblock(Side::A), superblock.encode()),
    ];
    Ok((superblock, writes))
}

/// What a look at a device finds, without changing it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Look {
    /// Nothing: zeros where any known format would be.
    Blank,
    /// A Braid drive.
    Drive(Superblock),
    /// Something else; a few words about it, such as `an ext4 file system`.
    Foreign(String),
    /// A Braid drive whose superblocks are broken; why.
    Broken(String),
}

/// Looks at a device. Errors: the device cannot be read.
pub fn look(disk: &dyn ReadAt) -> Result<Look> {
    let size = disk.size()?;
    if size < 2 * BLOCK as u64 {
        return Ok(Look::Blank);
    }
    let (head, tail) = ends(disk, size)?;
    if head.starts_with(&superblock::MAGIC) || tail.starts_with(&superblock::MAGIC) {
        return Ok(match superblocks(disk, &mut Vec::new()) {
            Ok((found, _)) => Look::Drive(found),
            Err(error) => Look::Broken(error.message().to_owned()),
        });
    }
    Ok(foreign_data(size, &head, &tail).map_or(Look::Blank, Look::Foreign))
}

/// The first [`HEAD`] bytes and the last block.
fn ends(disk: &dyn ReadAt, size: u64) -> Result<(Bytes, Bytes)> {
    let head = disk.read_at(0, HEAD.min(size as usize))?;
    Ok((head, disk.read_at(size - size % BLOCK as u64 - BLOCK as u64, BLOCK)?))
}

/// What is on a device that is no Braid drive; none if it is blank.
fn foreign_data(size: u64, head: &[u8], tail: &[u8]) -> Option<String> {
    for (at, magic, name) in SIGNATURES {
        if head.get(*at..at + magic.len()) == Some(*magic) {
            return Some((*name).to_owned());
        }
    }
    let first = |bytes: &[u8]| bytes.iter().position(|byte| *byte != 0);
    let end = size - size % BLOCK as u64 - BLOCK as u64;
    let at = first(&head[..BLOCK.min(head.len())]).or_else(|| first(tail).map(|at| end as usize + at))?;
    Some(format!("unknown data (byte {at} is not zero)"))
}

/// Fails unless the device is blank, or a drive of this cluster without shards (a format that is repeated).
fn check_unused(disk: &dyn ReadAt, cluster: Guid, now: Now) -> Result<()> {
    let size = disk.size()?;
    let refuse = |found: &str| {
        let words = format!("the device is in use: expected it blank, found {found}; take another, or force it");
        Err(Error::new(ErrorKind::Refused, words))
    };
    let (head, tail) = ends(disk, size)?;
    if head.starts_with(&superblock::MAGIC) || tail.starts_with(&superblock::MAGIC) {
        let opened = match open(disk, None, false, now) {
            Ok(opened) => opened,
            Err(error) => return refuse(&format!("a Braid drive that cannot be opened ({error})")),
        };
        let found = opened.target.superblock();
        if found.cluster != cluster {
            return Err(foreign(found, cluster));
        }
        return match opened.target.shards() {
            0 => Ok(()),
            shards => refuse(&format!("drive {} of this cluster with {shards} shards", found.id)),
        };
    }
    foreign_data(size, &head, &tail).map_or(Ok(()), |found| refuse(&found))
}
