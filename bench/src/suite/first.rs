//! The first touch and the second: five things people wait for, cold and warm, done by the programs they use.

use super::goal::NONE;
use super::row::{Per, Task};
use super::{Done, Suite};
use crate::chance::pattern;
use crate::{Outcome, clock};
use std::fs::{self, File, OpenOptions};
use std::io::Write;
use std::os::unix::fs::{FileExt, PermissionsExt};
use std::path::Path;
use std::process::{Command, Stdio};

/// Copies of what takes so little time that one alone says nothing.
const COPIES: u64 = 8;
/// The last bytes of a file: an index, a trailer, the end of a log.
const TAIL_BYTES: u64 = 160;
const PROGRAM_BYTES: u64 = 6 << 20;
const SMALL_BYTES: u64 = 128 << 10;

/// md5sum, tail of a short and of a long file, start of a program, cat.
pub fn run(suite: &mut Suite) -> Outcome<()> {
    let (long_mib, cat_mib) = (suite.scale.long_mib, suite.scale.cat_mib);
    let own = std::env::current_exe().map_err(|error| format!("own path: {error}"))?;
    suite.each(|target| {
        fill(&target.dir.join("first-long"), long_mib)?;
        (0..COPIES).try_for_each(|copy| {
            small(&target.dir.join(format!("first-small-{copy}")))?;
            program(&own, &target.dir.join(format!("first-program-{copy}")))
        })
    })?;
    let gib = long_mib as f64 / 1024.0;
    suite.twice("md5", &format!("md5sum of {long_mib} MiB"), Per::Gib, |dir| {
        command("md5sum", &[], &dir.join("first-long")).map(|()| gib)
    })?;
    suite.twice("tail-small", "last 160 bytes of 128 KiB", Per::Operation, |dir| {
        (0..COPIES).try_for_each(|copy| tail(&dir.join(format!("first-small-{copy}"))))?;
        Ok(COPIES as f64)
    })?;
    suite.twice("tail-long", &format!("last 160 bytes of {long_mib} MiB"), Per::Operation, |dir| {
        tail(&dir.join("first-long")).map(|()| 1.0)
    })?;
    suite.twice("start", "start of a program of 6 MiB", Per::Operation, |dir| {
        let start = |copy| command(&dir.join(format!("first-program-{copy}")).to_string_lossy(), &["help"], dir);
        (0..COPIES).try_for_each(start)?;
        Ok(COPIES as f64)
    })?;
    suite.each(|target| remove(&target.dir))?;

    suite.each(|target| fill(&target.dir.join("first-cat"), cat_mib))?;
    suite.twice("cat", &format!("cat of {cat_mib} MiB"), Per::Gib, |dir| {
        command("cat", &[], &dir.join("first-cat")).map(|()| cat_mib as f64 / 1024.0)
    })?;
    suite.each(|target| remove(&target.dir))
}

impl Suite {
    /// Cold, then again with everything the first time left in memory. The action returns how much it did.
    fn twice(&mut self, id: &str, title: &str, per: Per, action: impl Fn(&Path) -> Outcome<f64> + Copy) -> Outcome<()> {
        let [first, second] = ["cold", "warm"].map(|word| (format!("{id}-{word}"), format!("{title}, {word}")));
        let cold = Task { id: &first.0, title: &first.1, per, goal: NONE, cold: true, settles: false };
        let warm = Task { id: &second.0, title: &second.1, cold: false, ..cold };
        self.in_turn(&[cold, warm], |target| {
            let start = clock::seconds();
            let amount = action(&target.dir)?;
            Ok(Done { amount, seconds: clock::seconds() - start })
        })
    }
}

/// Runs a program on a file; what it prints is of no interest, but it must be there to be printed.
fn command(program: &str, words: &[&str], path: &Path) -> Outcome<()> {
    let mut command = Command::new(program);
    command.args(words).arg(path).stdin(Stdio::null()).stdout(Stdio::null());
    let status = command.status().map_err(|error| format!("{program}: {error}"))?;
    if status.success() { Ok(()) } else { Err(format!("{program} {}: {status}", path.display())) }
}

fn tail(path: &Path) -> Outcome<()> {
    let say = |error: std::io::Error| format!("{}: {error}", path.display());
    let file = File::open(path).map_err(say)?;
    let len = file.metadata().map_err(say)?.len();
    let mut found = [0; TAIL_BYTES as usize];
    file.read_exact_at(&mut found, len - TAIL_BYTES).map_err(say)?;
    let expected = pattern(0, (len - TAIL_BYTES) % (1 << 20), TAIL_BYTES);
    if found[..] == expected[..] { Ok(()) } else { Err(format!("{}: its tail reads wrong", path.display())) }
}

/// A durable file of `mib` times the same MiB.
fn fill(path: &Path, mib: u64) -> Outcome<()> {
    let say = |error: std::io::Error| format!("{}: {error}", path.display());
    let piece = pattern(0, 0, 1 << 20);
    let mut file = File::create(path).map_err(say)?;
    (0..mib).try_for_each(|_| file.write_all(&piece)).map_err(say)?;
    file.sync_all().map_err(say)
}

fn small(path: &Path) -> Outcome<()> {
    let write = || {
        fs::write(path, pattern(0, 0, SMALL_BYTES))?;
        File::open(path)?.sync_all()
    };
    write().map_err(|error| format!("{}: {error}", path.display()))
}

/// This program, cut or filled up to the wanted size: what is loaded of it stands far in front.
fn program(own: &Path, path: &Path) -> Outcome<()> {
    let make = || {
        fs::copy(own, path)?;
        let file = OpenOptions::new().write(true).open(path)?;
        file.set_len(PROGRAM_BYTES)?;
        file.sync_all()?;
        fs::set_permissions(path, fs::Permissions::from_mode(0o755))
    };
    make().map_err(|error| format!("{}: {error}", path.display()))
}

fn remove(dir: &Path) -> Outcome<()> {
    let say = |error: std::io::Error| format!("{}: {error}", dir.display());
    for entry in fs::read_dir(dir).map_err(say)? {
        let entry = entry.map_err(say)?;
        if entry.file_name().to_string_lossy().starts_with("first-") {
            fs::remove_file(entry.path()).map_err(say)?;
        }
    }
    Ok(())
}
