//! Names: made, moved and taken away here, looked up there.

use super::{Check, Found, Pair, same, same_bytes};
use crate::chance::pattern;
use std::error::Error;
use std::fs::{self, File, OpenOptions};
use std::io::{self, ErrorKind};
use std::os::unix::fs::{FileExt, symlink};
use std::path::Path;
use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, Ordering};

pub const CHECKS: &[Check] = &[
    ("names come and go", come_and_go),
    ("O_EXCL from both: one wins", exclusive),
    ("rename over a name is seen as one step", renamed),
    ("unlinked here, open there", unlinked),
    ("a lock file is there or not", lock_file),
    ("a lock of another kind is there or not", other_locks),
    ("a name that is replaced is always there", replaced),
];

fn names(dir: &Path) -> std::io::Result<usize> {
    Ok(fs::read_dir(dir)?.count())
}

/// There, the name was looked up in vain before it was made, and found before it was taken away.
fn come_and_go(pair: &Pair) -> Found {
    for round in 0..pair.rounds {
        let (here, there) = pair.paths(&format!("name-{round}"));
        same(format!("before, round {round}"), there.exists(), false)?;
        File::create_new(&here)?;
        same(format!("made, round {round}"), there.exists(), true)?;
        same(format!("listed, round {round}"), names(&pair.there)?, 1)?;
        let (_, moved) = pair.paths("moved");
        fs::rename(&here, pair.here.join("moved"))?;
        same(format!("old name after a rename, round {round}"), there.exists(), false)?;
        same(format!("new name after a rename, round {round}"), moved.exists(), true)?;
        fs::remove_file(pair.here.join("moved"))?;
        same(format!("taken away, round {round}"), moved.exists(), false)?;
        same(format!("listed when gone, round {round}"), names(&pair.there)?, 0)?;
    }
    Ok(None)
}

fn exclusive(pair: &Pair) -> Found {
    let start = Barrier::new(2);
    let work = |dir: &Path| -> Result<Vec<u64>, String> {
        let mut won = Vec::new();
        let mut error = None;
        for round in 0..pair.rounds {
            // Both come to every start, or the other would wait for ever.
            start.wait();
            match File::create_new(dir.join(format!("name-{round}"))) {
                Ok(_) => won.push(round),
                Err(other) if other.kind() == ErrorKind::AlreadyExists => {}
                Err(other) => error = Some(format!("round {round}: {other}")),
            }
        }
        error.map_or(Ok(won), Err)
    };
    let (here, there) = std::thread::scope(|scope| {
        let other = scope.spawn(|| work(&pair.there));
        (work(&pair.here), other.join().unwrap_or(Err("the other panicked".to_owned())))
    });
    let (here, there) = (here?, there?);
    let mut all = [here.clone(), there.clone()].concat();
    all.sort_unstable();
    let expected: Vec<u64> = (0..pair.rounds).collect();
    if all != expected {
        let odd = expected.iter().find(|round| all.iter().filter(|won| won == round).count() != 1);
        return Err(format!("round {}: not exactly one made the name", odd.unwrap_or(&0)).into());
    }
    Ok(Some(format!("{} of {} made here", here.len(), pair.rounds)))
}

/// A reader meets one of the versions, whole, at any time, and never one older than it has met.
fn renamed(pair: &Pair) -> Found {
    const LEN: u64 = 5_000;
    let (name, there) = pair.paths("name");
    let version = |number: u64| [&number.to_le_bytes()[..], &pattern(number, 8, LEN - 8)].concat();
    fs::write(&name, version(0))?;
    let stop = AtomicBool::new(false);
    let read = || -> Result<u64, String> {
        let (mut reads, mut newest) = (0, 0);
        while !stop.load(Ordering::Relaxed) {
            let found = fs::read(&there).map_err(|error| format!("read {reads}: {error}"))?;
            let head = found.first_chunk().ok_or_else(|| format!("read {reads}: {} bytes", found.len()))?;
            let number = u64::from_le_bytes(*head);
            same_bytes(format!("read {reads}, version {number}"), &found, &version(number))
                .map_err(|error| error.to_string())?;
            if number < newest {
                return Err(format!("read {reads}: version {number} after version {newest}"));
            }
            (reads, newest) = (reads + 1, number);
        }
        Ok(reads)
    };
    let write = || -> Result<(), Box<dyn Error>> {
        for number in 1..=pair.rounds * 5 {
            let new = pair.here.join("new");
            fs::write(&new, version(number))?;
            fs::rename(&new, &name)?;
        }
        Ok(())
    };
    let (written, reads) = std::thread::scope(|scope| {
        let reader = scope.spawn(read);
        let written = write();
        stop.store(true, Ordering::Relaxed);
        (written, reader.join().unwrap_or(Err("the reader panicked".to_owned())))
    });
    written?;
    Ok(Some(format!("{} reads of {} versions", reads?, pair.rounds * 5)))
}

fn unlinked(pair: &Pair) -> Found {
    const LEN: u64 = 100_000;
    for round in 0..pair.rounds {
        let (here, there) = pair.paths(&format!("name-{round}"));
        let bytes = pattern(round, 0, LEN);
        fs::write(&here, &bytes)?;
        let open = OpenOptions::new().read(true).write(true).open(&there)?;
        fs::remove_file(&here)?;
        same(format!("the name there, round {round}"), there.exists(), false)?;
        let mut found = vec![0; usize::try_from(LEN)?];
        open.read_exact_at(&mut found, 0)?;
        same_bytes(format!("the open file, round {round}"), &found, &bytes)?;
        open.write_all_at(b"after", 10)?;
        open.read_exact_at(&mut found[..5], 10)?;
        same_bytes(format!("written after that, round {round}"), &found[..5], b"after")?;
    }
    Ok(None)
}

/// Made with a word in it and taken away again and again here; whoever opens it, there or here, is told that it is not
/// there, or finds the word or nothing yet.
fn lock_file(pair: &Pair) -> Found {
    let churn = |lock: &Path, rounds: u64| {
        for _ in 0..rounds {
            fs::write(lock, b"mine")?;
            fs::remove_file(lock)?;
        }
        Ok(())
    };
    let look = |lock: &Path| match fs::read(lock)? {
        word if word.is_empty() || word == b"mine" => Ok(()),
        word => Err(io::Error::other(format!("it says {word:?}"))),
    };
    looks_beside(pair, churn, look)
}

/// The same for a link, a symbolic link and a directory as locks, which are only asked about.
///
/// Each link is one of a new file, as of programs that lock so: the kernel may count the names of a file that stays down
/// to none (docs/semantics.md).
fn other_locks(pair: &Pair) -> Found {
    let churn = |lock: &Path, rounds: u64| {
        let unique = lock.with_file_name("unique");
        for round in 0..rounds {
            let (kind, made) = match round % 3 {
                0 => ("link", File::create_new(&unique).and_then(|_| fs::hard_link(&unique, lock))),
                1 => ("symbolic link", symlink("me@here:1", lock)),
                _ => ("directory", fs::create_dir(lock)),
            };
            let told = |what: &str, error| io::Error::other(format!("round {round}: {what} a {kind}: {error}"));
            made.map_err(|error| told("making", error))?;
            let removed = match round % 3 {
                0 => fs::remove_file(lock).and_then(|()| fs::remove_file(&unique)),
                1 => fs::remove_file(lock),
                _ => fs::remove_dir(lock),
            };
            removed.map_err(|error| told("removing", error))?;
        }
        Ok(())
    };
    looks_beside(pair, churn, |lock| fs::symlink_metadata(lock).map(drop))
}

/// Whoever looks in turn for a lock file that comes and goes and for a name that is replaced again and again always finds
/// the second, whatever he was told of the first a moment ago.
fn replaced(pair: &Pair) -> Found {
    fs::write(pair.here.join("name"), "0")?;
    let churn = |lock: &Path, rounds: u64| {
        let (name, new) = (lock.with_file_name("name"), lock.with_file_name("new"));
        for round in 0..rounds {
            fs::write(lock, b"mine")?;
            fs::write(&new, round.to_string())?;
            fs::rename(&new, &name)?;
            fs::remove_file(lock)?;
        }
        Ok(())
    };
    let look = |lock: &Path| {
        let found = fs::read(lock);
        let name = fs::symlink_metadata(lock.with_file_name("name"));
        name.map_err(|error| io::Error::other(format!("the name that is replaced: {error}")))?;
        found.map(drop)
    };
    looks_beside(pair, churn, look)
}

/// `churn` makes and removes `lock` here, so often; `look`, there and then here, finds it or is told that it is not there.
fn looks_beside(
    pair: &Pair,
    churn: impl Fn(&Path, u64) -> io::Result<()>,
    look: impl Fn(&Path) -> io::Result<()> + Sync,
) -> Found {
    let (here, there) = pair.paths("lock");
    let mut counts = [0, 0];
    for path in [&there, &here] {
        let done = AtomicBool::new(false);
        let look_on = || -> io::Result<[u64; 2]> {
            let mut counts = [0, 0];
            while !done.load(Ordering::Relaxed) {
                match look(path) {
                    Ok(()) => counts[0] += 1,
                    Err(error) if error.kind() == ErrorKind::NotFound => counts[1] += 1,
                    Err(error) => return Err(error),
                }
            }
            Ok(counts)
        };
        let (churned, looked) = std::thread::scope(|scope| {
            let looks = scope.spawn(look_on);
            let churned = churn(&here, pair.rounds * 4);
            done.store(true, Ordering::Relaxed);
            (churned, looks.join())
        });
        churned?;
        let looked = looked.map_err(|_| "the thread that looks panicked")?;
        let looked = looked.map_err(|error| format!("looking for {}: {error}", path.display()))?;
        counts = [counts[0] + looked[0], counts[1] + looked[1]];
    }
    Ok(Some(format!("{} times there, {} times not", counts[0], counts[1])))
}
