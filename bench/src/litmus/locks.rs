//! Locks: two processes chase each other round a ring of three files, each on its mount.
//!
//! A process holds one file and waits for the next, then gives the first back; with one place more than
//! processes nobody passes anybody, and every lock is a hand-over. Once for the speed, and once adding one to a
//! number in the file under each lock: a lock that both held, or a number read too old, shows in the sum.

use super::{Check, Found, Pair, same};
use crate::arguments::Arguments;
use crate::{Outcome, clock};
use rustix::fs::FlockOperation;
use std::error::Error;
use std::fs::{self, File, OpenOptions};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

pub const CHECKS: &[Check] = &[
    ("fcntl lock ping-pong", |pair| ping_pong(pair, "fcntl")),
    ("flock ping-pong", |pair| ping_pong(pair, "flock")),
    ("counting under fcntl locks", |pair| counted(pair, "fcntl")),
    ("counting under flocks", |pair| counted(pair, "flock")),
];

const FILES: usize = 3;
const SECONDS: f64 = 2.0;
/// Locks that are asked for again and again would be slower than that, on a busy machine too. The figure itself is shown:
/// 1,000 is the goal.
const HAND_OVERS_PER_S_MIN: f64 = 100.0;

type Lock = fn(&File, FlockOperation) -> rustix::io::Result<()>;

fn lock_of(kind: &str) -> Lock {
    if kind == "flock" {
        |file, how| rustix::fs::flock(file, how)
    } else {
        |file, how| rustix::fs::fcntl_lock(file, how)
    }
}

fn path_of(dir: &Path, number: usize) -> PathBuf {
    dir.join(format!("ring-{}", number % FILES))
}

fn open(path: &Path) -> std::io::Result<File> {
    OpenOptions::new().read(true).write(true).open(path)
}

/// One process: `--lock DIR --kind KIND --from PLACE [--count]`, or `--try` for one attempt on the first file.
pub fn child(dir: &Path, arguments: &Arguments) -> Outcome<()> {
    let lock = lock_of(arguments.text("kind").unwrap_or_default());
    let from = usize::try_from(arguments.number("from", 0)?).unwrap_or(0);
    if arguments.flag("try") {
        let file = open(&path_of(dir, 0)).map_err(|error| error.to_string())?;
        let free = lock(&file, FlockOperation::NonBlockingLockExclusive).is_ok();
        println!("{}", u64::from(free));
        return Ok(());
    }
    let count =
        chase(dir, lock, from, arguments.flag("count")).map_err(|error| format!("{}: {error}", dir.display()))?;
    println!("{count}");
    Ok(())
}

fn chase(dir: &Path, lock: Lock, from: usize, counts: bool) -> std::io::Result<u64> {
    let ring = (0..FILES).map(|number| open(&path_of(dir, number))).collect::<std::io::Result<Vec<_>>>()?;
    let take = |file: &File| -> std::io::Result<()> {
        lock(file, FlockOperation::LockExclusive)?;
        if !counts {
            return Ok(());
        }
        let mut number = [0; 8];
        file.read_exact_at(&mut number, 0)?;
        file.write_all_at(&(u64::from_le_bytes(number) + 1).to_le_bytes(), 0)
    };
    let (start, mut at, mut count) = (clock::seconds(), from, 1);
    take(&ring[at % FILES])?;
    while clock::seconds() - start < SECONDS {
        take(&ring[(at + 1) % FILES])?;
        lock(&ring[at % FILES], FlockOperation::Unlock)?;
        at += 1;
        count += 1;
    }
    lock(&ring[at % FILES], FlockOperation::Unlock)?;
    Ok(count)
}

fn start(dir: &Path, kind: &str, more: &[&str]) -> std::io::Result<Child> {
    let mut command = Command::new(std::env::current_exe()?);
    command.args(["litmus", "--kind", kind, "--lock"]).arg(dir).args(more).stdout(Stdio::piped()).spawn()
}

fn number(child: Child) -> Result<u64, Box<dyn Error>> {
    let output = child.wait_with_output()?;
    Ok(String::from_utf8(output.stdout)?.trim().parse().map_err(|_| "the other process failed")?)
}

/// Lays the ring and lets both run round it; the locks taken and the seconds.
fn both(pair: &Pair, kind: &str, more: &[&str]) -> Result<(u64, f64), Box<dyn Error>> {
    for number in 0..FILES {
        fs::write(path_of(&pair.here, number), 0_u64.to_le_bytes())?;
    }
    let begin = clock::seconds();
    let one = start(&pair.here, kind, &[&["--from", "0"], more].concat())?;
    let two = start(&pair.there, kind, &[&["--from", "1"], more].concat())?;
    let taken = number(one)? + number(two)?;
    Ok((taken, clock::seconds() - begin))
}

fn ping_pong(pair: &Pair, kind: &str) -> Found {
    // First the plain question: does a lock here keep there out?
    fs::write(path_of(&pair.here, 0), "")?;
    let (file, lock) = (open(&path_of(&pair.here, 0))?, lock_of(kind));
    lock(&file, FlockOperation::LockExclusive)?;
    same("taken there while held here", number(start(&pair.there, kind, &["--try"])?)?, 0)?;
    lock(&file, FlockOperation::Unlock)?;
    same("taken there when free here", number(start(&pair.there, kind, &["--try"])?)?, 1)?;

    let (taken, seconds) = both(pair, kind, &[])?;
    let per_s = taken as f64 / seconds;
    if per_s < HAND_OVERS_PER_S_MIN {
        return Err(format!("{per_s:.0} hand-overs per second, at least {HAND_OVERS_PER_S_MIN}").into());
    }
    Ok(Some(format!("{per_s:.0} hand-overs per second")))
}

fn counted(pair: &Pair, kind: &str) -> Found {
    let (taken, seconds) = both(pair, kind, &["--count"])?;
    for dir in [&pair.here, &pair.there] {
        let mut sum = 0;
        for number in 0..FILES {
            let bytes = fs::read(path_of(dir, number))?;
            sum += u64::from_le_bytes(*bytes.first_chunk().ok_or("a number is gone")?);
        }
        same("sum of the numbers counted under the lock", sum, taken)?;
    }
    Ok(Some(format!("{:.0} per second", taken as f64 / seconds)))
}
