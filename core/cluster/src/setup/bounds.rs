//! Bounds and defaults of a cluster on one machine.

use std::path::Path;

use braid_base::limits::{DATA_SHARDS_MAX, PARITY_SHARDS_MAX, PARTITIONS_MAX, SHARD_BYTES, SHARD_BYTES_TOY};
use braid_base::{Error, ErrorKind, Result};

use crate::facts::{Cluster, FEATURE_LEVEL, Protection};

/// Smallest drive, bytes: some sixty shards of the toy size.
pub const DRIVE_BYTES_MIN: u64 = 64 << 20;
/// Drive files that are made when no number is asked for: as many as the default protection is wide.
pub(crate) const DRIVES_DEFAULT: usize = 6;
/// Size of a drive file when none is asked for, bytes.
pub(crate) const DRIVE_BYTES_DEFAULT: u64 = 4 << 30;
/// Most drives of one host.
const DRIVES_MAX: usize = 256;
/// Drives smaller than this get toy shards, bytes.
const TOY_BELOW_BYTES: u64 = 1 << 30;
/// Room beside the drive files for logs, key-value view and coordinator, per mille of the flash (design: 5 %).
const METADATA_PER_MILLE: u64 = 50;
const METADATA_BYTES_MIN: u64 = 256 << 20;

/// The coding for `drives` drives when none is asked for: 4+2, or as wide as they allow.
pub fn default_protection(drives: usize) -> Protection {
    let (data, parity) = match drives {
        0 | 1 => (1, 0),
        2 => (1, 1),
        3 => (2, 1),
        4 => (2, 2),
        5 => (3, 2),
        _ => (4, 2),
    };
    Protection { data, parity }
}

/// The number of partitions when none is asked for: one per core, 1 to 4 on one machine.
pub fn default_partitions(cores: usize) -> u16 {
    cores.clamp(1, 4) as u16
}

/// Free bytes that `file_bytes` of new drive files need on their disk, metadata included.
pub fn space_needed_bytes(file_bytes: u64) -> u64 {
    file_bytes.saturating_add((file_bytes / 1000 * METADATA_PER_MILLE).max(METADATA_BYTES_MIN))
}

/// The shard size for drives of at least `smallest_bytes`.
pub(crate) fn shard_bytes(smallest_bytes: u64) -> u64 {
    if smallest_bytes < TOY_BELOW_BYTES { SHARD_BYTES_TOY } else { SHARD_BYTES }
}

/// Refuses codings outside 1..16 + 0..4, and such that need more drives than there are.
pub(crate) fn protection(asked: Protection, drives: usize) -> Result<()> {
    let (data, parity) = (usize::from(asked.data), usize::from(asked.parity));
    if !(1..=DATA_SHARDS_MAX).contains(&data) || parity > PARITY_SHARDS_MAX {
        let message = format!(
            "protection {asked}: 1 to {DATA_SHARDS_MAX} data and 0 to {PARITY_SHARDS_MAX} parity shards expected"
        );
        return Err(Error::new(ErrorKind::Invalid, message));
    }
    if asked.width() > drives {
        let (width, fits) = (asked.width(), default_protection(drives));
        let message =
            format!("protection {asked} needs {width} drives, found {drives}: add drives or use --protection {fits}");
        return Err(Error::new(ErrorKind::Refused, message));
    }
    Ok(())
}

/// Refuses no drives and too many.
pub(crate) fn drive_count(drives: usize) -> Result<()> {
    if (1..=DRIVES_MAX).contains(&drives) {
        return Ok(());
    }
    Err(Error::new(
        ErrorKind::Invalid,
        format!("1 to {DRIVES_MAX} drives expected, found {drives}: see --drives and --drive"),
    ))
}

/// Refuses a drive that is too small to be of use.
pub fn drive_bytes(path: &Path, size_bytes: u64) -> Result<()> {
    if size_bytes >= DRIVE_BYTES_MIN {
        return Ok(());
    }
    let path = path.display();
    let message =
        format!("drive {path}: at least {DRIVE_BYTES_MIN} bytes expected, found {size_bytes}: give a larger one");
    Err(Error::new(ErrorKind::Refused, message))
}

/// Fewest shards of a drive: each partition has a pack open of each class and one that is being emptied, and garbage
/// collection begins with slots that nobody else may take.
pub const fn slots_min(partitions: u16) -> u64 {
    4 * partitions as u64 + 2
}

/// Refuses drives of at least `smallest_bytes` that are too small for so many partitions.
pub(crate) fn slots(smallest_bytes: u64, partitions: u16) -> Result<()> {
    // With headers and checksums a shard takes up to a 64th more; the last one is for the drive's own records.
    let (slot_bytes, needed) = (shard_bytes(smallest_bytes) / 64 * 65, slots_min(partitions));
    let found = (smallest_bytes / slot_bytes).saturating_sub(1);
    if found >= needed {
        return Ok(());
    }
    let needed_mib = ((needed + 1) * slot_bytes).div_ceil(1 << 20);
    let most = found.saturating_sub(2) / 4;
    let message = format!(
        "{partitions} partitions need drives of at least {needed_mib} MiB each ({needed} shards), found {} MiB: give larger ones or use --partitions {most}",
        smallest_bytes >> 20
    );
    Err(Error::new(ErrorKind::Refused, message))
}

/// Refuses a number of partitions outside 1..4096.
pub(crate) fn partitions(count: u16) -> Result<()> {
    if (1..=PARTITIONS_MAX).contains(&count) {
        return Ok(());
    }
    Err(Error::new(ErrorKind::Invalid, format!("1 to {PARTITIONS_MAX} partitions expected, found {count}")))
}

/// Refuses a cluster of newer software.
pub(crate) fn feature_level(cluster: &Cluster) -> Result<()> {
    if cluster.feature_level <= FEATURE_LEVEL {
        return Ok(());
    }
    let (name, found) = (&cluster.name, cluster.feature_level);
    let message =
        format!("cluster {name}: feature level up to {FEATURE_LEVEL} expected, found {found}: use a newer braid");
    Err(Error::new(ErrorKind::Unsupported, message))
}
