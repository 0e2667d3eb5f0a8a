//! The log of a replica on the metadata disk of its host.

use braid_base::{Error, ErrorKind, Result};
use braid_host::seat::SeatEvent;
use braid_io::file::{Create, OpenMode, ReadAt};
use braid_io::reactor::{FileId, IoDone, IoOp, Token as IoToken};
use braid_io::sim::Faults;
use braid_replica::log::Segment;
use bytes::Bytes;

use super::World;
use super::host::{Flight, SeatNode};
use super::store::segment_name;
use crate::board::At;
use crate::broken::Broken;
use crate::points::Point;
use crate::queue::Event;

/// A disk ends some of its work within this time, microseconds.
const DISK_US: u64 = 400;
/// Bytes of a removed segment that show up in the next new one, as in a recycled file.
const STALE_BYTES: u64 = 256 << 10;

impl World {
    pub(super) fn log_write(&mut self, at: At, id: u64, segment: Segment, off: u64, data: Bytes) -> bool {
        self.counts.log_writes += 1;
        let host = at.host;
        self.note(|| format!("{at} log write {id} {segment} at {off} {} bytes", data.len()));
        let file = match self.segment_file(at, segment) {
            Ok(file) => file,
            Err(error) => {
                self.step(at, SeatEvent::LogWritten(id, Err(error)));
                return true;
            }
        };
        let token = self.host_io(at, |node| {
            let marks = std::mem::take(&mut node.marks);
            Flight::Write { id, marks }
        });
        let op = IoOp::Write { file, off, data: vec![data], durable: true };
        self.hosts[host as usize].disk.submit(token, op);
        let point = if off == 0 { Point::SegmentOpened } else { Point::LogWriteSubmitted };
        if self.config.broken == Some(Broken::ReplyEarly) {
            self.step(at, SeatEvent::LogWritten(id, Ok(())));
        }
        self.pass(point, host)
    }

    fn segment_file(&mut self, at: At, segment: Segment) -> Result<FileId> {
        let bytes = self.config.segment_bytes;
        let (h, p) = (&mut self.hosts[at.host as usize], at.p);
        if let Some(file) = h.files.get(&(p, segment)) {
            return Ok(*file);
        }
        let mode = OpenMode { create: Create::IfMissing(bytes), ..OpenMode::WRITE };
        let file = h.disk.open(&segment_name(p, segment), mode)?;
        h.files.insert((p, segment), file);
        if let Some(stale) = h.stale.remove(&p) {
            h.disk.write_now(file, 0, &stale);
        }
        Ok(file)
    }

    pub(super) fn log_read(&mut self, at: At, id: u64, segment: Segment, off: u64, len: usize) {
        self.counts.log_reads += 1;
        let At { host, p } = at;
        let Some(file) = self.hosts[host as usize].files.get(&(p, segment)).copied() else {
            self.board.violation(format!("{at} reads {segment}, which does not exist"));
            return;
        };
        let token = self.host_io(at, |_| Flight::Read { id });
        self.hosts[host as usize].disk.submit(token, IoOp::Read { file, off, len });
    }

    pub(super) fn log_remove(&mut self, at: At, segment: Segment) -> bool {
        let At { host, p } = at;
        self.note(|| format!("{at} removes {segment}"));
        let recycle = self.rng.chance(1, 2);
        let h = &mut self.hosts[host as usize];
        if let Some(file) = h.files.remove(&(p, segment)) {
            let view = h.disk.view(file);
            let bytes = view.size().unwrap_or(0).min(STALE_BYTES) as usize;
            if let Some(stale) = view.read_at(0, bytes).ok().filter(|_| recycle) {
                h.stale.insert(p, stale);
            }
            h.disk.remove(&segment_name(p, segment));
        }
        self.pass(Point::SegmentRemoved, host)
    }

    /// A number for a disk I/O; the disk will end it before long.
    fn host_io(&mut self, at: At, flight: impl FnOnce(&mut SeatNode) -> Flight) -> IoToken {
        self.life += 1;
        let token = IoToken(self.life);
        let Some(node) = self.seat(at) else { return token };
        let flight = flight(node);
        node.flights.insert(token, flight);
        self.wake_host_disk(at.host);
        token
    }

    pub(super) fn wake_host_disk(&mut self, host: u32) {
        let h = &mut self.hosts[host as usize];
        if !h.disk_busy {
            h.disk_busy = true;
            let life = h.life;
            let at = self.soon(DISK_US);
            self.queue.put(at, Event::HostDisk { host, life });
        }
    }

    pub(super) fn host_disk(&mut self, host: u32, life: u64) {
        if self.hosts[host as usize].life != life {
            return;
        }
        let hung_until_us = self.hosts[host as usize].hung_until_us;
        if self.now_us() < hung_until_us {
            return self.queue.put(hung_until_us, Event::HostDisk { host, life });
        }
        let errors = if self.calm { 0 } else { self.config.faults.log_errors };
        let h = &mut self.hosts[host as usize];
        h.disk.faults = Faults { read_errors: 0, write_errors: errors };
        h.disk_busy = false;
        let done = h.disk.complete_some(&mut self.rng);
        if h.disk.in_flight() > 0 {
            self.wake_host_disk(host);
        }
        for (token, result) in done {
            if self.hosts[host as usize].life != life {
                return;
            }
            self.io_done(host, token, result);
        }
    }

    fn io_done(&mut self, host: u32, token: IoToken, result: Result<IoDone>) {
        let seats = &mut self.hosts[host as usize].seats;
        let found = seats.iter_mut().find_map(|(p, node)| Some((At { host, p: *p }, node.flights.remove(&token)?)));
        match found {
            Some((at, Flight::Write { id, mut marks })) => {
                self.note(|| format!("{at} log write {id} done {}", result.is_ok()));
                marks.sort_unstable();
                marks.dedup();
                for point in marks.into_iter().filter(|_| result.is_ok()) {
                    if self.pass(point, host) {
                        return;
                    }
                }
                if result.is_ok() && self.pass(Point::LogDurableNotApplied, host) {
                    return;
                }
                if self.config.broken != Some(Broken::ReplyEarly) {
                    self.step(at, SeatEvent::LogWritten(id, result.map(drop)));
                }
            }
            Some((at, Flight::Read { id })) => {
                let bytes = result.and_then(|done| match done {
                    IoDone::Read(bytes) => Ok(bytes),
                    IoDone::Done => Err(Error::from(ErrorKind::Io)),
                });
                self.step(at, SeatEvent::LogRead(id, bytes));
            }
            None => {}
        }
    }
}
