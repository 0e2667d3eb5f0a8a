//! Metadata disks that hang: what is under way on them ends much later, or never.

use braid_io::reactor::Token as IoToken;

use super::World;
use super::host::Flight;
use crate::board::At;
use crate::deeds::Deed;
use crate::queue::Event;

/// Longest time for which a metadata disk hangs and then goes on, microseconds.
const HANG_US: u64 = 45_000_000;
/// A write that has been under way for so long holds nobody else up, microseconds.
const LOOK_US: u64 = 15_000_000;

impl World {
    /// The metadata disk of a host ends nothing for a while, or until the host is switched off. One at a time: with two
    /// nobody could go on.
    pub(super) fn hang(&mut self) {
        let (host, now_us) = (self.rng.below(u64::from(self.config.hosts)) as u32, self.now_us());
        if !self.hosts[host as usize].is_up() || self.hosts.iter().any(|host| host.hung_until_us > now_us) {
            return;
        }
        let us = if self.rng.chance(1, 3) { u64::MAX / 2 } else { self.rng.below(HANG_US) };
        self.note(|| format!("h{host}: its metadata disk hangs for {} s", us / 1_000_000));
        self.coverage.did(Deed::LogHung);
        let life = self.hosts[host as usize].life;
        self.hosts[host as usize].hung_until_us = now_us + us;
        self.queue.put(now_us + LOOK_US, Event::Hangs { host, life, before: Vec::new() });
        if us > HANG_US {
            let off_us = now_us + HANG_US + self.rng.below(HANG_US);
            self.queue.put(off_us, Event::Unhang { host });
        }
    }

    /// Nobody waits for a member on whose disk a write has been under way for long.
    pub(super) fn hangs(&mut self, host: u32, life: u64, before: &[(At, IoToken)]) {
        let h = &self.hosts[host as usize];
        if self.calm || h.life != life || h.hung_until_us <= self.now_us() {
            return;
        }
        let mut writes = Vec::new();
        for (p, node) in &h.seats {
            let under_way = node.flights.iter().filter(|(_, flight)| matches!(flight, Flight::Write { .. }));
            writes.extend(under_way.map(|(token, _)| (At { host, p: *p }, *token)));
        }
        for (at, _) in writes.iter().filter(|write| before.contains(write)) {
            let register = &self.registers[&at.p];
            if register.members.len() > 1 && register.has(self.member(*at).store) {
                self.board.violation(format!("{at} has not ended a write for {LOOK_US} us, and is waited for"));
            }
        }
        let next_us = self.now_us() + LOOK_US;
        self.queue.put(next_us, Event::Hangs { host, life, before: writes });
    }

    /// The host whose disk hangs is switched off, and on again.
    pub(super) fn unhang(&mut self, host: u32) {
        let h = &self.hosts[host as usize];
        if !self.calm && h.is_up() && h.hung_until_us > self.now_us() {
            self.crash(host);
        }
    }

    /// The disk of `host` goes on, if it hangs.
    pub(super) fn disk_goes_on(&mut self, host: u32) {
        let h = &mut self.hosts[host as usize];
        if std::mem::take(&mut h.hung_until_us) > 0 {
            h.disk_busy = false;
            self.wake_host_disk(host);
        }
    }
}
