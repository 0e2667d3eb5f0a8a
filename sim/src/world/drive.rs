//! A drive: a target over a simulated medium.

use std::collections::BTreeMap;

use braid_base::ids::{DomainId, DriveId, Guid};
use braid_base::msg::drive::{DriveOp, DriveReply};
use braid_base::{Error, ErrorKind, Result};
use braid_drive::{Effect, Event as DriveEvent, FormatParams, OpToken, Target};
use braid_io::clock::Now;
use braid_io::file::OpenMode;
use braid_io::reactor::{FileId, IoOp};
use braid_io::sim::{Faults, SimDisk};

use super::{CLUSTER, World};
use crate::board::Node;
use crate::broken::{Aliases, Broken, lazy_zero};
use crate::points::Point;
use crate::queue::{Back, Event};
use crate::trace;

/// A medium ends some of its work within this time, microseconds.
const MEDIUM_US: u64 = 600;

/// A drive.
pub struct DriveNode {
    /// The medium.
    pub disk: SimDisk,
    /// Its only file.
    pub file: FileId,
    /// The host that it hangs on.
    pub host: u32,
    /// Its state machine, while it runs.
    pub target: Option<Target>,
    /// It answers nothing until it comes back.
    pub dead: bool,
    life: u64,
    busy: bool,
    tick_ms: Option<u64>,
    waiting: BTreeMap<OpToken, (DriveOp, Back)>,
    aliases: Aliases,
    next: u64,
}

/// An operation without its bytes is enough to know what was acknowledged.
fn gist(op: &DriveOp) -> DriveOp {
    match op {
        DriveOp::Put { id, block, .. } => {
            DriveOp::Put { id: *id, block: *block, crcs: Vec::new(), data: bytes::Bytes::new() }
        }
        other => other.clone(),
    }
}

impl World {
    /// A freshly formatted drive, not running.
    pub(super) fn make_drive(config: &crate::config::SimConfig, id: u32, host: u32) -> Result<DriveNode> {
        let layout = |slots: u64| -> Result<u64> {
            // Headers and checksum pages: at most 16 KiB and two pages per 960 blocks.
            Ok(2 * 4096 + slots * (config.shard_bytes + 8192 + 2 * 4096 * config.shard_bytes.div_ceil(960 * 4096)))
        };
        let size = layout(config.slots)?;
        let mut disk = SimDisk::new();
        let file = disk.open("drive", OpenMode::new_file(size))?;
        let params = FormatParams {
            cluster: CLUSTER,
            drive: Guid([id as u8 + 100; 16]),
            id: DriveId(id),
            domain: DomainId(id as u16),
            shard_bytes: config.shard_bytes,
            force: false,
        };
        let (_, writes) = braid_drive::format(&disk.view(file), &params, Now::default())?;
        for (off, data) in writes {
            disk.write_now(file, off, &data);
        }
        let (target, dead, life, busy, tick_ms) = (None, false, 0, false, None);
        Ok(DriveNode {
            disk,
            file,
            host,
            target,
            dead,
            life,
            busy,
            tick_ms,
            waiting: BTreeMap::new(),
            aliases: Aliases::default(),
            next: 0,
        })
    }

    fn drive_now(&mut self, drive: u32) -> Now {
        let clock = self.wire(Node::Drive(drive)).clock;
        Now { mono_ms: clock.ms(self.now_us()), ..Now::default() }
    }

    /// Opens the target from its medium. A drive that may lie may also be beyond opening.
    pub(super) fn start_drive(&mut self, drive: u32) {
        let now = self.drive_now(drive);
        let d = &mut self.drives[drive as usize];
        if d.dead || d.target.is_some() {
            return;
        }
        d.disk.settle(d.file);
        match braid_drive::open(&d.disk.view(d.file), Some(CLUSTER), true, now) {
            Ok(opened) => {
                for (off, data) in opened.repairs {
                    d.disk.write_now(d.file, off, &data);
                }
                d.target = Some(opened.target);
                self.set_drive_timer(drive);
            }
            Err(error) if self.config.faults.bad_drives.contains(&drive) => {
                self.note(|| format!("d{drive} does not open: {error}"));
            }
            Err(error) => self.board.violation(format!("d{drive} does not open: {error}")),
        }
    }

    /// The target and all its work in flight are gone; the medium keeps what the loss of `power` leaves, or its
    /// cache as well.
    pub(super) fn stop_drive(&mut self, drive: u32, power: bool) {
        let d = &mut self.drives[drive as usize];
        d.life += 1;
        d.busy = false;
        d.target = None;
        d.tick_ms = None;
        if power {
            d.disk.crash(&mut self.rng);
        } else {
            d.disk.kill(&mut self.rng);
        }
        for (_, back) in std::mem::take(&mut d.waiting).into_values() {
            if self.rng.chance(1, 2) {
                self.send_drive_answer(back, Err(ErrorKind::Stopped.into()));
            }
        }
    }

    pub(super) fn drive_op(&mut self, to: DriveId, op: DriveOp, back: Back) {
        let d = &mut self.drives[to.0 as usize];
        if d.target.is_none() {
            // A drive that is not there: some ways to it say so, others keep silent.
            if self.rng.chance(1, 2) {
                self.send_drive_answer(back, Err(Error::new(ErrorKind::Stopped, format!("{to} does not answer"))));
            }
            return;
        }
        let op = if self.config.broken == Some(Broken::SlotAddress) { d.aliases.of(op) } else { op };
        d.next += 1;
        let token = OpToken(d.next);
        d.waiting.insert(token, (gist(&op), back));
        self.drive_step(to.0, DriveEvent::Op { token, op });
    }

    fn drive_step(&mut self, drive: u32, event: DriveEvent) {
        let now = self.drive_now(drive);
        let d = &mut self.drives[drive as usize];
        let Some(target) = &mut d.target else { return };
        let mut out = Vec::new();
        target.step(now, event, &mut out);
        let (host, file) = (d.host, d.file);
        for effect in out {
            let lost_power = match effect {
                Effect::Read { token, off, len } => self.drive_io(drive, token, IoOp::Read { file, off, len }),
                Effect::Sync { token } => self.drive_io(drive, token, IoOp::Sync { file }),
                Effect::Write { token, off, data, durable } => {
                    self.drive_io(drive, token, IoOp::Write { file, off, data: vec![data], durable });
                    self.pass(Point::DriveWriteSubmitted, host)
                }
                Effect::Discard { token, off, len } => self.drive_io(drive, token, IoOp::Discard { file, off, len }),
                Effect::Reply { token, result } => self.drive_reply(drive, token, result),
            };
            if lost_power {
                return;
            }
        }
        self.set_drive_timer(drive);
    }

    fn drive_io(&mut self, drive: u32, token: braid_io::reactor::Token, op: IoOp) -> bool {
        self.drives[drive as usize].disk.submit(token, op);
        self.wake_medium(drive);
        false
    }

    fn drive_reply(&mut self, drive: u32, token: OpToken, result: Result<DriveReply>) -> bool {
        let d = &mut self.drives[drive as usize];
        let host = d.host;
        let Some((op, back)) = d.waiting.remove(&token) else {
            self.board.violation(format!("d{drive} answered {token:?} twice"));
            return true;
        };
        self.note(|| match &result {
            Ok(_) => format!("d{drive} did {}", trace::drive_op(&op)),
            Err(error) => format!("d{drive} {}: {error}", trace::drive_op(&op)),
        });
        let point = match (&op, &result) {
            (DriveOp::Create { .. }, Ok(_)) => Some(Point::ShardsCreated),
            (DriveOp::Drop { .. }, Ok(_)) => Some(Point::ShardDropped),
            (DriveOp::Put { .. }, Ok(_)) => Some(Point::StripePartlyWritten),
            _ => None,
        };
        let lazy = self.config.broken == Some(Broken::LazyZero);
        let result = if lazy { lazy_zero(&op, result) } else { result };
        if matches!((&op, &result), (DriveOp::Put { .. }, Ok(_))) && self.pass(Point::DriveWriteNotAcked, host) {
            return true;
        }
        if point.is_some_and(|point| self.pass(point, host)) {
            return true;
        }
        self.send_drive_answer(back, result);
        false
    }

    fn wake_medium(&mut self, drive: u32) {
        let d = &mut self.drives[drive as usize];
        if !d.busy {
            d.busy = true;
            let life = d.life;
            let at = self.soon(MEDIUM_US);
            self.queue.put(at, Event::DriveDisk { drive, life });
        }
    }

    pub(super) fn drive_disk(&mut self, drive: u32, life: u64) {
        if self.drives[drive as usize].life != life {
            return;
        }
        let bad = !self.calm && self.config.faults.bad_drives.contains(&drive);
        let errors = if bad { self.config.faults.drive_errors } else { 0 };
        let d = &mut self.drives[drive as usize];
        d.disk.faults = Faults { read_errors: errors, write_errors: errors };
        d.busy = false;
        let done = d.disk.complete_some(&mut self.rng);
        if d.disk.in_flight() > 0 {
            self.wake_medium(drive);
        }
        for (token, result) in done {
            if self.drives[drive as usize].life == life {
                self.drive_step(drive, DriveEvent::Io { token, result });
            }
        }
    }

    fn set_drive_timer(&mut self, drive: u32) {
        let d = &mut self.drives[drive as usize];
        let next = d.target.as_ref().and_then(Target::next_tick_ms);
        if next.is_none() || next == d.tick_ms {
            return;
        }
        d.tick_ms = next;
        let life = d.life;
        let clock = self.wire(Node::Drive(drive)).clock;
        let left = next.unwrap_or(0).saturating_sub(clock.ms(self.now_us()));
        self.queue.put(clock.after(self.now_us(), left), Event::DriveTick { drive, life });
    }

    pub(super) fn drive_tick(&mut self, drive: u32, life: u64) {
        if self.drives[drive as usize].life == life {
            self.drives[drive as usize].tick_ms = None;
            self.drive_step(drive, DriveEvent::Tick);
        }
    }

    pub(super) fn drive_back(&mut self, drive: u32) {
        self.drives[drive as usize].dead = false;
        self.tell_usable();
        if self.hosts[self.drives[drive as usize].host as usize].is_up() {
            self.note(|| format!("d{drive} is back"));
            self.start_drive(drive);
        }
    }

    /// Takes a drive away until [`World::drive_back`].
    pub(super) fn kill_drive(&mut self, drive: u32) {
        self.note(|| format!("d{drive} dies"));
        self.drives[drive as usize].dead = true;
        self.stop_drive(drive, true);
    }
}
