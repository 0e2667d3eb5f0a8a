//! The two clocks of the machine. Cores get a [`Now`] as a parameter and never ask themselves.
//!
//! They are read through the C library, so that a test can show one process other clocks than the rest (`LD_PRELOAD`).

use braid_base::attr::Time;

/// One moment, on both clocks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Now {
    /// Milliseconds of CLOCK_BOOTTIME: never goes back, counts sleep; for leases, ages and timers.
    pub mono_ms: u64,
    /// The same in microseconds.
    pub mono_us: u64,
    /// CLOCK_REALTIME: may jump; for timestamps that people see, never for decisions.
    pub wall: Time,
}

/// The present moment.
pub fn now() -> Now {
    let wall = read(libc::CLOCK_REALTIME);
    // The kernel keeps nanoseconds in 0..1e9, so the conversion always fits.
    let nsec = u32::try_from(wall.tv_nsec).unwrap_or(0);
    let mono_us = mono_us();
    Now { mono_ms: mono_us / 1000, mono_us, wall: Time { sec: wall.tv_sec, nsec } }
}

/// Milliseconds of CLOCK_BOOTTIME alone.
pub fn mono_ms() -> u64 {
    mono_us() / 1000
}

/// The same in microseconds: for what is shorter than a message takes, and never to be compared with another machine's.
pub fn mono_us() -> u64 {
    let at = read(libc::CLOCK_BOOTTIME);
    u64::try_from(at.tv_sec).unwrap_or(0) * 1_000_000 + u64::try_from(at.tv_nsec).unwrap_or(0) / 1000
}

fn read(clock: libc::clockid_t) -> libc::timespec {
    let mut at = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the pointer is to a timespec that lives until after the call.
    let done = unsafe { libc::clock_gettime(clock, &raw mut at) };
    assert!(done == 0, "every Linux that runs this has both clocks");
    at
}

#[cfg(test)]
mod tests {
    #[test]
    fn mono_does_not_go_back_and_wall_is_of_this_century() {
        let (a, b) = (super::now(), super::now());
        assert!(b.mono_ms >= a.mono_ms);
        assert!(a.wall.sec > 1_700_000_000 && a.wall.nsec < 1_000_000_000);
    }
}
