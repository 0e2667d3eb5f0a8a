//! Time for people: how long something took, how much CPU it used.

use crate::Outcome;
use rustix::time::{ClockId, Timespec, clock_gettime};

/// Seconds since some fixed moment; only differences mean something.
pub fn seconds() -> f64 {
    let now = clock_gettime(ClockId::Monotonic);
    now.tv_sec as f64 + now.tv_nsec as f64 / 1e9
}

/// Waits `milliseconds`.
pub fn wait(milliseconds: u64) {
    pause(1000 * milliseconds);
}

/// Waits `microseconds`.
pub fn pause(microseconds: u64) {
    let (seconds, rest) = (microseconds / 1_000_000, microseconds % 1_000_000);
    let time = Timespec { tv_sec: seconds as i64, tv_nsec: 1000 * rest as i64 };
    // An early end by a signal is harmless: every caller checks its condition again.
    let _ = rustix::thread::nanosleep(&time);
}

/// CPU seconds (user and system) that this process and the children it waited for have used.
pub fn own_cpu_seconds() -> Outcome<f64> {
    cpu_seconds("self", true)
}

/// CPU seconds that process `pid` has used, without its children.
pub fn process_cpu_seconds(pid: u32) -> Outcome<f64> {
    cpu_seconds(&pid.to_string(), false)
}

fn cpu_seconds(pid: &str, with_children: bool) -> Outcome<f64> {
    let path = format!("/proc/{pid}/stat");
    let stat = std::fs::read_to_string(&path).map_err(|error| format!("{path}: {error}"))?;
    // Field 2 is the name in parentheses and may hold spaces; fields 14..=17 are utime, stime, cutime, cstime.
    let (_, after_name) = stat.rsplit_once(')').ok_or_else(|| format!("{path}: no name in it"))?;
    let fields: Vec<&str> = after_name.split_whitespace().collect();
    let wanted = if with_children { 11..15 } else { 11..13 };
    let ticks = fields.get(wanted).ok_or_else(|| format!("{path}: too short"))?;
    let ticks: u64 = ticks.iter().filter_map(|field| field.parse::<u64>().ok()).sum();
    Ok(ticks as f64 / rustix::param::clock_ticks_per_second() as f64)
}

/// CPU seconds that the whole machine has been busy since it started, kernel workers and interrupts included;
/// waiting for a disk is not busy, nor is time that a host took away.
pub fn busy_seconds() -> Outcome<f64> {
    let path = "/proc/stat";
    let stat = std::fs::read_to_string(path).map_err(|error| format!("{path}: {error}"))?;
    let ticks = busy_ticks(&stat).ok_or_else(|| format!("{path}: no line of all processors"))?;
    Ok(ticks as f64 / rustix::param::clock_ticks_per_second() as f64)
}

/// The first line: user, nice, system, idle, iowait, irq, softirq, ... (guests are counted in user already).
fn busy_ticks(stat: &str) -> Option<u64> {
    let fields: Vec<u64> =
        stat.lines().next()?.strip_prefix("cpu ")?.split_whitespace().filter_map(|field| field.parse().ok()).collect();
    let [user, nice, system, _, _, irq, softirq, ..] = fields[..] else { return None };
    Some(user + nice + system + irq + softirq)
}

#[cfg(test)]
mod tests {
    use super::busy_ticks;

    #[test]
    fn waiting_is_not_busy() {
        assert_eq!(busy_ticks("cpu  1 2 4 100 200 8 16 400 0 0\ncpu0 9 9 9 9\n"), Some(31));
        assert_eq!(busy_ticks("intr 5\n"), None);
    }
}
