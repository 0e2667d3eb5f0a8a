//! What a starting partition finds: its log and its `replica.meta` on the metadata disk, its record in the
//! coordinator.

use braid_base::ids::{Guid, HostId, PartitionId};
use braid_base::limits::BLOCK;
use braid_base::{Error, ErrorKind, Result};
use braid_host::seat::Outside;
use braid_io::file::{Create, OpenMode, ReadAt};
use braid_io::reactor::FileId;
use braid_io::sim::SimDisk;
use braid_replica::config::{Config, Member};
use braid_replica::log::{LogReader, Segment};
use bytes::Bytes;

use crate::board::At;

/// The log segments of one partition on a simulated disk.
pub(super) struct SimLog<'a> {
    pub(super) disk: &'a SimDisk,
    pub(super) files: Vec<(Segment, FileId)>,
}

/// All that a partition needs to start.
pub(super) struct SimStore<'a> {
    pub(super) disk: &'a mut SimDisk,
    pub(super) files: Vec<(Segment, FileId)>,
    pub(super) p: PartitionId,
    /// The partition's record in the coordinator.
    pub(super) register: &'a mut Config,
    /// The rule [`Broken::Unsettled`](crate::broken::Broken::Unsettled) is left out.
    pub(super) unsettled: bool,
    /// Power fails when so many steps are done.
    pub(super) steps_left: Option<u64>,
}

/// What the replica at `at` is called: its store is the one of this number there.
pub(super) fn member(at: At, generation: u8) -> Member {
    let mut store = [at.p.0 as u8 + 1; 16];
    (store[0], store[1]) = (at.host as u8, generation);
    Member { host: HostId(at.host), store: Guid(store) }
}

/// The name of a segment's file.
pub(super) fn segment_name(p: PartitionId, segment: Segment) -> String {
    format!("{}/{}", p.0, segment.0)
}

/// What such a name says; `None` for other files.
pub(super) fn parse_segment(name: &str) -> Option<(PartitionId, Segment)> {
    let (p, segment) = name.split_once('/')?;
    Some((PartitionId(p.parse().ok()?), Segment(segment.parse().ok()?)))
}

pub(super) fn meta_name(p: PartitionId) -> String {
    format!("meta {}", p.0)
}

/// The file `replica.meta` of `p`; empty if it was never written.
pub(super) fn read_meta(disk: &SimDisk, p: PartitionId) -> Result<Vec<u8>> {
    let name = meta_name(p);
    match disk.names().find(|(known, _)| *known == name) {
        Some((_, file)) => Ok(disk.view(file).read_at(0, 2 * BLOCK)?.to_vec()),
        None => Ok(Vec::new()),
    }
}

/// Writes a block of it, durably.
pub(super) fn write_meta(disk: &mut SimDisk, p: PartitionId, off: u64, block: &Bytes) -> Result<()> {
    let mode = OpenMode { create: Create::IfMissing(2 * BLOCK as u64), ..OpenMode::WRITE };
    let file = disk.open(&meta_name(p), mode)?;
    disk.write_now(file, off, block);
    Ok(())
}

impl LogReader for SimLog<'_> {
    fn segments(&self) -> Result<Vec<Segment>> {
        Ok(self.files.iter().map(|(segment, _)| *segment).collect())
    }

    fn read(&self, segment: Segment, offset: u64, len: usize) -> Result<Vec<u8>> {
        let found = self.files.iter().find(|(known, _)| *known == segment);
        let view = self.disk.view(found.ok_or(ErrorKind::NotFound)?.1);
        let len = (len as u64).min(view.size()?.saturating_sub(offset)) as usize;
        if len == 0 { Ok(Vec::new()) } else { Ok(view.read_at(offset, len)?.to_vec()) }
    }
}

impl LogReader for SimStore<'_> {
    fn segments(&self) -> Result<Vec<Segment>> {
        Ok(self.files.iter().map(|(segment, _)| *segment).collect())
    }

    fn read(&self, segment: Segment, offset: u64, len: usize) -> Result<Vec<u8>> {
        SimLog { disk: self.disk, files: self.files.clone() }.read(segment, offset, len)
    }
}

impl SimStore<'_> {
    /// One more step is done; the last one that the power lasts for ends the start.
    fn step(&mut self) -> Result<()> {
        match &mut self.steps_left {
            Some(0) => Err(Error::new(ErrorKind::Stopped, "power is lost")),
            Some(left) => {
                *left -= 1;
                Ok(())
            }
            None => Ok(()),
        }
    }
}

impl Outside for SimStore<'_> {
    fn settle(&mut self) -> Result<()> {
        if !self.unsettled {
            self.files.iter().for_each(|(_, file)| self.disk.settle(*file));
        }
        Ok(())
    }

    fn read_meta(&self) -> Result<Vec<u8>> {
        read_meta(self.disk, self.p)
    }

    fn write_meta(&mut self, off: u64, block: Bytes) -> Result<()> {
        write_meta(self.disk, self.p, off, &block)?;
        self.step()
    }

    fn discard_log(&mut self) -> Result<()> {
        for (segment, _) in self.files.drain(..) {
            self.disk.remove(&segment_name(self.p, segment));
        }
        Ok(())
    }

    fn config(&mut self) -> Result<Config> {
        Ok(self.register.clone())
    }

    fn compare_and_set(&mut self, expect: &Config, new: &Config) -> Result<Config> {
        if *self.register == *expect {
            *self.register = new.clone();
        }
        self.step()?;
        Ok(self.register.clone())
    }
}
