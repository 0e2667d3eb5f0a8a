//! Finding everything again: superblocks, then the header of every slot.

use braid_base::ids::Guid;
use braid_base::limits::BLOCK;
use braid_base::{Error, ErrorKind, Result};
use braid_io::clock::Now;
use braid_io::file::ReadAt;
use bytes::Bytes;

use crate::format::header::{self, Header};
use crate::format::superblock::{Copy, Superblock};
use crate::layout::{Layout, Side, SlotNo};
use crate::target::{Slot, Target};

/// Slots whose headers are read at a time.
const SCAN: u32 = 4096;

/// A drive that was found sound.
pub struct Opened {
    /// The target, ready for its first event.
    pub target: Target,
    /// What to write before anything else (a superblock copy to mend), durable.
    pub repairs: Vec<(u64, Bytes)>,
    /// Sentences for the person who looks after the drive.
    pub notes: Vec<String>,
}

/// Opens a formatted drive. `cluster`: refuse drives of others. `discard`: tell the device about freed slots.
///
/// Before this, the caller makes durable what an earlier process may have left in a volatile cache; so all that
/// is read here is on the medium.
///
/// Errors: `Corrupt` (both superblock copies are bad), `Refused` (another cluster's, no Braid drive, or shrunk).
pub fn open(disk: &dyn ReadAt, cluster: Option<Guid>, discard: bool, now: Now) -> Result<Opened> {
    let mut notes = Vec::new();
    let (superblock, repairs) = superblocks(disk, &mut notes)?;
    if let Some(ours) = cluster.filter(|ours| *ours != superblock.cluster) {
        return Err(foreign(&superblock, ours));
    }
    let slots = scan(disk, &superblock, &mut notes);
    let target = Target::assemble(superblock, slots, discard, now);
    Ok(Opened { target, repairs, notes })
}

/// A drive of cluster `theirs` where `ours` was expected.
pub(crate) fn foreign(theirs: &Superblock, ours: Guid) -> Error {
    let words = format!(
        "the drive belongs to another cluster: expected {ours}, found {} (drive {} there); \
         if that cluster is gone, wipe the drive first",
        theirs.cluster, theirs.id
    );
    Error::new(ErrorKind::Refused, words)
}

/// The valid superblock with the highest `seq`, and the writes that make both copies alike again.
pub(crate) fn superblocks(disk: &dyn ReadAt, notes: &mut Vec<String>) -> Result<(Superblock, Vec<(u64, Bytes)>)> {
    let size = disk.size()?;
    let first = copy_at(disk, 0, size);
    // The first copy knows where the second is, even if the device has grown since.
    let end = match &first {
        Copy::Good(found) => found.layout.size,
        _ => size - size % BLOCK as u64,
    };
    if end > size {
        let words = format!("the drive shrank: expected {end} bytes, found {size}");
        return Err(Error::new(ErrorKind::Refused, words));
    }
    let second = copy_at(disk, end.saturating_sub(BLOCK as u64), size);
    let (winner, stale) = match (first, second) {
        (Copy::Good(a), Copy::Good(b)) if a == b => (a, None),
        (Copy::Good(a), Copy::Good(b)) if b.seq > a.seq => (b, Some((Side::A, "is older".to_owned()))),
        (Copy::Good(a), Copy::Good(_)) => (a, Some((Side::B, "is older".to_owned()))),
        (Copy::Good(a), bad) => (a, Some((Side::B, why(&bad)))),
        (bad, Copy::Good(b)) if b.layout.size == end => (b, Some((Side::A, why(&bad)))),
        (Copy::Absent, Copy::Absent) => {
            return Err(Error::new(ErrorKind::Refused, "no Braid drive: expected a superblock, found none; format it"));
        }
        (a, b) => {
            let words = format!(
                "both superblocks are bad: the first: {}; the second: {}. The shards cannot be used; let the cluster \
                 rebuild them elsewhere and format the drive anew",
                why(&a),
                why(&b)
            );
            return Err(Error::new(ErrorKind::Corrupt, words));
        }
    };
    let repairs = stale.map(|(side, why)| {
        let at = winner.layout.superblock(side);
        notes.push(format!("the superblock at {at} {why}; it is written anew from the other copy"));
        (at, winner.encode())
    });
    Ok((winner, repairs.into_iter().collect()))
}

fn copy_at(disk: &dyn ReadAt, at: u64, size: u64) -> Copy {
    if at + BLOCK as u64 > size {
        return Copy::Absent;
    }
    match disk.read_at(at, BLOCK) {
        Ok(block) => Superblock::decode(&block),
        Err(error) => Copy::Damaged(error.message().to_owned()),
    }
}

fn why(copy: &Copy) -> String {
    match copy {
        Copy::Damaged(why) => format!("is damaged ({why})"),
        Copy::Absent | Copy::Good(_) => "is missing".into(),
    }
}

fn scan(disk: &dyn ReadAt, superblock: &Superblock, notes: &mut Vec<String>) -> Vec<Slot> {
    let layout = &superblock.layout;
    let mut slots = Vec::with_capacity(layout.slots as usize);
    let (mut torn, mut unreadable) = (0u32, 0u32);
    for first in (0..layout.slots).step_by(SCAN as usize) {
        let last = layout.slots.min(first.saturating_add(SCAN));
        for read in disk.read_many(&header_ranges(layout, first..last)) {
            slots.push(match read {
                Ok(pair) => newest(&pair, superblock.guid_lo(), &mut torn),
                Err(_) => {
                    unreadable += 1;
                    Slot::unreadable()
                }
            });
        }
    }
    if torn > 0 {
        notes.push(format!("{torn} slots have one damaged header copy, as a power loss leaves them"));
    }
    if unreadable > 0 {
        notes.push(format!("{unreadable} slots cannot be read and are not used; replace the drive soon"));
    }
    slots
}

fn header_ranges(layout: &Layout, slots: std::ops::Range<u32>) -> Vec<(u64, usize)> {
    slots.map(|slot| (layout.header(SlotNo(slot), Side::A), 2 * BLOCK)).collect()
}

fn newest(pair: &Bytes, guid_lo: u64, torn: &mut u32) -> Slot {
    let copies = [Header::decode(&pair[..BLOCK], guid_lo), Header::decode(&pair[BLOCK..], guid_lo)];
    *torn += u32::from(copies.contains(&header::Copy::Damaged));
    match copies {
        [header::Copy::Good(a), header::Copy::Good(b)] if b.seq > a.seq => Slot::found(b, Side::B),
        [header::Copy::Good(a), _] => Slot::found(a, Side::A),
        [_, header::Copy::Good(b)] => Slot::found(b, Side::B),
        _ => Slot::unused(),
    }
}
