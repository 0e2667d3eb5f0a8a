//! What goes wrong: power, processes, drives, clocks.

use braid_base::ids::DriveId;
use braid_base::{Error, ErrorKind};
use braid_replica::Kv;

use super::World;
use super::damage::Findings;
use crate::board::Node;
use crate::broken::Broken;
use crate::config::Net;
use crate::points::Point;
use crate::queue::{Event, Trouble};

impl World {
    /// From now on things go wrong as planned.
    pub fn begin_trouble(&mut self) {
        self.calm = false;
        self.net = self.config.net;
        let f = &self.config.faults;
        let means = [
            (Trouble::Crash, f.crash_every_us),
            (Trouble::Kill, f.kill_every_us),
            (Trouble::DriveDeath, f.drive_death_every_us),
            (Trouble::Flip, f.flip_every_us),
            (Trouble::LogFull, f.log_full_every_us),
            (Trouble::ViewFull, f.view_full_every_us),
            (Trouble::WallJump, f.wall_jump_every_us),
            (Trouble::Cut, f.cut_every_us),
            (Trouble::Hang, f.hang_every_us),
            (Trouble::Wipe, f.wipe_every_us),
            (Trouble::Leave, f.leave_every_us),
            (Trouble::StoreDown, self.config.store.down_every_us),
            (Trouble::StoreLoses, self.config.store.lose_every_us),
            (Trouble::Plans, self.config.store.change_every_us),
        ];
        for (trouble, mean_us) in means {
            self.schedule_trouble(trouble, mean_us);
        }
    }

    /// Nothing goes wrong any more: power, drives and room come back. Damage done stays.
    pub fn end_trouble(&mut self) {
        self.note(|| "trouble ends".to_owned());
        self.calm = true;
        self.bucket.heal();
        self.last_plans();
        self.net = Net::CALM;
        self.cuts.clear();
        self.seats.clear();
        for host in 0..self.config.hosts {
            self.hosts[host as usize].disk.set_capacity(None);
            self.hosts[host as usize].kv.set_full(false);
            self.disk_goes_on(host);
            if self.hosts[host as usize].leaves {
                self.crash(host);
            }
            if !self.hosts[host as usize].is_up() {
                self.restart(host);
            }
        }
        // All at once: what is told of one that comes back must not be late news of the others.
        self.drives.iter_mut().for_each(|drive| drive.dead = false);
        for drive in 0..self.config.drives {
            self.drive_back(drive);
        }
        self.drives_change((0..self.config.drives).map(DriveId).collect());
    }

    /// The view of a host has no room, or has it again.
    pub fn set_view_full(&mut self, host: u32, is_full: bool) {
        self.hosts[host as usize].kv.set_full(is_full);
    }

    fn schedule_trouble(&mut self, trouble: Trouble, mean_us: u64) {
        if mean_us > 0 {
            let at = self.soon(2 * mean_us);
            self.queue.put(at, Event::Trouble(trouble));
        }
    }

    pub(super) fn trouble(&mut self, trouble: Trouble) {
        if self.calm {
            return;
        }
        if self.board.is_quiet() {
            let at = self.soon(1_000_000);
            return self.queue.put(at, Event::Trouble(trouble));
        }
        let f = self.config.faults.clone();
        let mean_us = match trouble {
            Trouble::Crash => {
                let host = self.rng.below(u64::from(self.config.hosts)) as u32;
                if self.hosts[host as usize].is_up() {
                    self.crash(host);
                }
                f.crash_every_us
            }
            Trouble::Kill => {
                self.kill_some_client();
                f.kill_every_us
            }
            Trouble::DriveDeath => {
                if let Some(drive) = self.some_bad_drive().filter(|drive| !self.drives[*drive as usize].dead) {
                    self.kill_drive(drive);
                    self.tell_usable();
                    let at = self.soon(10_000_000);
                    self.queue.put(at, Event::DriveBack { drive });
                }
                f.drive_death_every_us
            }
            Trouble::Flip => {
                self.flip_a_bit();
                f.flip_every_us
            }
            Trouble::LogFull => {
                let host = self.rng.below(u64::from(self.config.hosts)) as u32;
                self.note(|| format!("h{host}: the metadata disk is full"));
                self.hosts[host as usize].disk.set_capacity(Some(0));
                let at = self.soon(3_000_000);
                self.queue.put(at, Event::LogRoom { host });
                f.log_full_every_us
            }
            Trouble::ViewFull => {
                let host = self.rng.below(u64::from(self.config.hosts)) as u32;
                if self.hosts[host as usize].is_up() {
                    self.note(|| format!("h{host}: its view has no room"));
                    self.hosts[host as usize].kv.set_full(true);
                    let at = self.soon(3_000_000);
                    self.queue.put(at, Event::ViewRoom { host });
                }
                f.view_full_every_us
            }
            Trouble::WallJump => {
                let host = self.rng.index(self.hosts.len());
                self.hosts[host].wall_us = self.rng.below(1 << 40) as i64 - (1 << 39);
                f.wall_jump_every_us
            }
            Trouble::Cut => {
                self.cut();
                f.cut_every_us
            }
            Trouble::Hang => {
                self.hang();
                f.hang_every_us
            }
            Trouble::Wipe => {
                self.wipe_some_host();
                f.wipe_every_us
            }
            Trouble::Leave => {
                if self.rng.chance(1, 2) {
                    let host = self.rng.below(u64::from(self.config.hosts)) as u32;
                    self.leave(host);
                } else {
                    self.move_seats();
                }
                f.leave_every_us
            }
            Trouble::StoreDown | Trouble::StoreLoses | Trouble::Plans => self.store_trouble(trouble),
        };
        self.schedule_trouble(trouble, mean_us);
    }

    /// The same of object stores; how often it comes.
    fn store_trouble(&mut self, trouble: Trouble) -> u64 {
        let plan = self.config.store.clone();
        match trouble {
            Trouble::StoreDown => {
                let (store, mood) = self.bucket.upset();
                self.note(|| format!("object store {store}: {mood:?}"));
                let up_us = self.soon(plan.down_max_us);
                self.queue.put(up_us, Event::StoreUp { store });
                plan.down_every_us
            }
            Trouble::StoreLoses => {
                if let Some(what) = self.bucket.lose() {
                    self.note(|| what);
                    if self.rng.chance(1, 2) {
                        self.find_all_lost(plan.is_old);
                    }
                }
                plan.lose_every_us
            }
            _ => {
                self.change_plans();
                plan.change_every_us
            }
        }
    }

    /// A host loses power, or only its process dies: then caches keep what they hold, for a while.
    pub(super) fn crash(&mut self, host: u32) {
        let power = self.rng.chance(2, 3);
        self.note(|| format!("h{host} {}", if power { "is off" } else { "is killed" }));
        self.board.power_lost();
        self.life += 1;
        self.flushes_itself(host);
        let h = &mut self.hosts[host as usize];
        h.life = self.life;
        h.set_up(false);
        h.leaves = false;
        h.hung_until_us = 0;
        h.findings = Findings::default();
        if power {
            h.disk.crash(&mut self.rng);
        } else {
            h.disk.kill(&mut self.rng);
        }
        h.kv.crash();
        h.kv.set_full(false); // a start without room is refused, and tried again when there is some
        self.drop_seats(host);
        self.exec.kill(Node::Host(host));
        for drive in 0..self.config.drives {
            if self.drives[drive as usize].host == host {
                self.stop_drive(drive, power);
            }
        }
        let at = self.soon(self.config.faults.down_max_us);
        self.queue.put(at, Event::Restart { host });
    }

    /// In one run of five: an engine writes its buffers out when it likes, told of or not; and now and then the views are as
    /// a release before had them.
    fn flushes_itself(&self, host: u32) {
        if self.config.seed % 5 != 3 || self.config.broken == Some(Broken::FlushUntrue) {
            return;
        }
        match self.life % 4 {
            1 => self.put_back(host),
            2 => self.hosts[host as usize].kv.flush().expect("a view in memory does not fail"),
            _ => {}
        }
    }

    /// Power comes back.
    pub(super) fn restart(&mut self, host: u32) {
        if self.hosts[host as usize].is_up() {
            return;
        }
        self.note(|| format!("h{host} starts"));
        self.hosts[host as usize].set_up(true);
        for drive in 0..self.config.drives {
            if self.drives[drive as usize].host == host {
                self.start_drive(drive);
            }
        }
        if let Err(error) = self.start_seats(host) {
            return self.not_started(host, &error);
        }
        if !self.pass(Point::RecoveredNotServing, host) {
            self.schedule_flush(host);
        }
    }

    /// A partition did not start: because power was lost, as planned, or for no good reason.
    pub(super) fn not_started(&mut self, host: u32, error: &Error) {
        if error.kind() == ErrorKind::Stopped && !self.calm {
            self.coverage.pass(Point::ElectionUnfinished);
            self.config.faults.at_points.retain(|(point, _)| *point != Point::ElectionUnfinished);
            return self.lose_power_at(Point::ElectionUnfinished, host);
        }
        self.board.violation(format!("h{host} does not start: {error}"));
    }

    fn some_bad_drive(&mut self) -> Option<u32> {
        let bad = &self.config.faults.bad_drives;
        if bad.is_empty() { None } else { Some(bad[self.rng.index(bad.len())]) }
    }

    /// Anywhere in the slots of a bad drive: data, checksums or headers.
    fn flip_a_bit(&mut self) {
        let Some(drive) = self.some_bad_drive() else { return };
        let slots = self.config.slots * self.config.shard_bytes;
        let (byte, bit) = (4096 + self.rng.below(slots), self.rng.below(8) as u8);
        let d = &mut self.drives[drive as usize];
        d.disk.flip(d.file, byte, bit);
    }

    fn kill_some_client(&mut self) {
        if self.killable.is_empty() {
            return;
        }
        let client = self.killable[self.rng.index(self.killable.len())];
        if self.exec.count(Node::Client(client)) > 0 {
            self.note(|| format!("client {client} is killed"));
            self.exec.kill(Node::Client(client));
            self.dying.push(client);
            // Everything that it sent arrives, or never will, before the next one looks.
            let at = self.now_us() + self.net.late_us + self.net.max_us + 1_000_000;
            self.queue.put(at, Event::Revive { client });
        }
    }
}
