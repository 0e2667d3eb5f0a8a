//! Several mounts of one file system, and on each the same programs: they make, move, look up and remove the same few
//! names, write, append to, cut and read the same file, and take the same lock. What they were told must be
//! linearizable (`braid-linear`), and no call may meet an error or take longer than `--longest` seconds.
//!
//! 1. A round has folders and files of its own. On each mount there is one thread for names, one for contents, one for
//!    locks: what programs of one kernel see of each other's pages is not the question here.
//! 2. When its time is over each thread ends what it has begun, and looks at everything once.
//! 3. The histories are judged, a line is printed, and the next round begins.

mod content;
mod locks;
mod names;

use crate::arguments::Arguments;
use crate::chance::Chance;
use crate::{Outcome, clock};
use braid_linear::{History, State, check};
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard};

/// Longest pause between two calls of a thread, microseconds: it keeps histories short.
const PAUSE_US_MAX: u64 = 3_000;

const KINDS: [&str; 3] = ["names", "content", "locks"];

/// What is fought over; one for each mount, kind and round.
trait Player: Send {
    type State: State + Default + Send;

    /// The next call.
    fn choose(&mut self, chance: &mut Chance) -> <Self::State as State>::Call;

    /// Calls that leave nothing begun, and show what there is.
    fn last(&self) -> Vec<<Self::State as State>::Call>;

    /// Does it. Errors: what no program should meet.
    fn perform(&mut self, call: &<Self::State as State>::Call) -> std::io::Result<<Self::State as State>::Answer>;

    /// What is known of all of it, beyond the answers.
    fn judge(_: &mut History<Self::State>) {}

    /// Notes the answer to call `number`, which took `seconds`.
    fn note(
        &self,
        history: &mut History<Self::State>,
        number: usize,
        answer: <Self::State as State>::Answer,
        (now_us, _seconds): (u64, f64),
    ) {
        history.end(number, answer, now_us);
    }
}

/// What a round is of.
struct Round<'a> {
    /// Its folder, on each mount.
    dirs: &'a [PathBuf],
    number: u64,
    seed: u64,
    /// In [`clock::seconds`].
    end: f64,
    start: f64,
    /// Kinds whose name has that in it.
    only: &'a str,
    /// Contents through the page cache, too.
    cached: bool,
    /// Where a history goes that is not linearizable.
    history: Option<&'a Path>,
}

/// What came of one kind.
#[derive(Default)]
struct Tally {
    calls: usize,
    overlapped: bool,
    longest_s: f64,
}

/// `--seconds S`, `--until PATH` (ends when it is there), `--round MS`, `--longest S`, `--only KIND`, `--history FILE`,
/// `--cached`, and the folders.
pub fn run(arguments: &Arguments) -> Outcome<()> {
    let dirs: Vec<PathBuf> = arguments.bare.iter().map(PathBuf::from).collect();
    if dirs.len() < 2 {
        return Err("expected two or more folders, each a mount of the same file system".to_owned());
    }
    let (seed, longest) = (arguments.number("seed", 1)?, arguments.number("longest", 40)? as f64);
    let round_s = arguments.number("round", 2_000)? as f64 / 1e3;
    let only = arguments.text("only").unwrap_or_default();
    if !KINDS.iter().any(|kind| kind.contains(only)) {
        return Err(format!("--only {only}: expected {}", KINDS.join(", ")));
    }
    let history = arguments.text("history").map(Path::new);
    let until = arguments.text("until").map(PathBuf::from);
    let start = clock::seconds();
    let end = start + arguments.number("seconds", 10)? as f64;
    let (mut number, mut calls, mut overlapped, mut longest_s) = (0, [0; 3], [false; 3], 0.0_f64);
    while clock::seconds() < end && !until.as_ref().is_some_and(|path| path.exists()) {
        number += 1;
        let folder = format!("round-{number}");
        let here: Vec<PathBuf> = dirs.iter().map(|dir| dir.join(&folder)).collect();
        let now = clock::seconds();
        let round = Round {
            dirs: &here,
            number,
            seed: seed << 32 | number,
            end: now + round_s,
            start,
            only,
            cached: arguments.flag("cached"),
            history,
        };
        let tallies = play(&round).map_err(|error| format!("round {number}: {error}"))?;
        tallies.iter().zip(&mut overlapped).for_each(|(tally, some)| *some |= tally.overlapped);
        longest_s = tallies.iter().fold(longest_s, |longest, tally| longest.max(tally.longest_s));
        let words = KINDS.iter().zip(&tallies).zip(&mut calls).map(|((kind, tally), sum)| {
            *sum += tally.calls;
            let alone = if tally.overlapped { "" } else { " (none at once)" };
            format!("{kind} {} calls{alone}, longest {:.1} s", tally.calls, tally.longest_s)
        });
        println!("round {number}: {}", words.collect::<Vec<_>>().join("; "));
        if longest_s > longest {
            return Err(format!("round {number}: a call took {longest_s:.1} s, more than {longest}"));
        }
        // Now by this mount, now by that.
        let by = &here[number as usize % here.len()];
        fs::remove_dir_all(by).map_err(|error| format!("removing {}: {error}", by.display()))?;
    }
    let alone = KINDS.iter().zip(overlapped).find(|(kind, overlapped)| kind.contains(only) && !overlapped);
    if let Some((kind, _)) = alone {
        return Err(format!(
            "{number} rounds, and of {kind} no two mounts ever had a call under way at once: that shows nothing"
        ));
    }
    println!(
        "{number} rounds, {} calls on names, {} on contents, {} on locks, the longest {longest_s:.1} s: linearizable",
        calls[0], calls[1], calls[2]
    );
    Ok(())
}

fn play(round: &Round<'_>) -> Outcome<[Tally; 3]> {
    prepare(&round.dirs[0], round.dirs.len()).map_err(|error| format!("preparing it: {error}"))?;
    let counted = locks::Counted::default();
    let all = || round.dirs.iter().zip(0..);
    std::thread::scope(|scope| {
        let names =
            scope.spawn(|| contest(round, 0, all().map(|(dir, who)| names::Names::new(dir, who, round.dirs.len()))));
        let contents = scope.spawn(|| {
            contest(round, 1, all().map(|(dir, who)| content::Bytes::new(dir, who + round.number, round.cached)))
        });
        let locks = scope
            .spawn(|| contest(round, 2, all().map(|(dir, who)| locks::Locker::new(dir, who, round.number, &counted))));
        let result =
            |joined: std::thread::Result<Outcome<Tally>>| joined.unwrap_or(Err("a thread panicked".to_owned()));
        Ok([result(names.join())?, result(contents.join())?, result(locks.join())?])
    })
}

fn prepare(dir: &Path, players: usize) -> std::io::Result<()> {
    fs::create_dir(dir)?;
    names::prepare(dir, players)?;
    fs::write(content::path(dir), "")?;
    locks::prepare(dir)
}

/// One kind of a round: all its players at once, then the verdict.
fn contest<P: Player>(
    round: &Round<'_>,
    kind: u64,
    players: impl Iterator<Item = std::io::Result<P>>,
) -> Outcome<Tally> {
    if !KINDS[kind as usize].contains(round.only) {
        return Ok(Tally::default());
    }
    let history = Mutex::new(History::<P::State>::default());
    let players = players.collect::<std::io::Result<Vec<P>>>().map_err(|error| error.to_string())?;
    let longest_s = std::thread::scope(|scope| {
        let threads: Vec<_> = players
            .into_iter()
            .zip(0..)
            .map(|(player, who)| {
                let (history, seed) = (&history, round.seed << 8 | kind << 4 | who);
                scope.spawn(move || take_part(player, round, who, Chance::new(seed), history))
            })
            .collect();
        let mut longest = 0.0_f64;
        for thread in threads {
            longest = longest.max(thread.join().unwrap_or(Err("a thread panicked".to_owned()))?);
        }
        Ok::<f64, String>(longest)
    })?;
    let mut history = history.into_inner().map_err(|_| "a thread panicked")?;
    P::judge(&mut history);
    check(&P::State::default(), &history).map_err(|words| {
        let kept = round.history.map(|path| std::fs::write(path, history.lines()));
        let lost =
            kept.and_then(Result::err).map_or(String::new(), |error| format!("\n    (history not written: {error})"));
        format!("{words}{lost}")
    })?;
    Ok(Tally { calls: history.entries().len(), overlapped: history.overlaps(), longest_s })
}

/// Plays until the round is over; the longest call, seconds.
fn take_part<P: Player>(
    mut player: P,
    round: &Round<'_>,
    who: u64,
    mut chance: Chance,
    history: &Mutex<History<P::State>>,
) -> Outcome<f64> {
    let mut longest = 0.0_f64;
    let mut one = |player: &mut P, call: <P::State as State>::Call| {
        let begin = clock::seconds();
        let now_us = |seconds: f64| ((seconds - round.start) * 1e6) as u64;
        let number = lock(history).begin(who, call.clone(), now_us(begin));
        let answer = player
            .perform(&call)
            .map_err(|error| format!("{call:?} on {}: {error}", round.dirs[who as usize].display()))?;
        let end = clock::seconds();
        player.note(&mut lock(history), number, answer, (now_us(end), end - begin));
        longest = longest.max(end - begin);
        Ok::<(), String>(())
    };
    while clock::seconds() < round.end {
        let call = player.choose(&mut chance);
        one(&mut player, call)?;
        clock::pause(chance.below(PAUSE_US_MAX));
    }
    for call in player.last() {
        one(&mut player, call)?;
    }
    Ok(longest)
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn round(dirs: &[PathBuf]) -> Round<'_> {
        let start = clock::seconds();
        Round { dirs, number: 1, seed: 1, end: start + 0.3, start, only: "", cached: false, history: None }
    }

    #[test]
    fn one_folder_seen_twice_is_one_object() {
        let dir = tempfile::tempdir().expect("a directory");
        let enough = |number: u64| {
            let here = dir.path().join(number.to_string());
            let (dirs, counted) = ([here.clone(), here], locks::Counted::default());
            prepare(&dirs[0], 2).expect("prepared");
            // Not of the content: a local file system tears reads of pages that are written meanwhile.
            let who = || dirs.iter().zip(0..);
            let names = contest(&round(&dirs), 0, who().map(|(dir, who)| names::Names::new(dir, who, 2)));
            let locks = contest(&round(&dirs), 2, who().map(|(dir, who)| locks::Locker::new(dir, who, 1, &counted)));
            let (names, locks) = (names.expect("one object"), locks.expect("one lock"));
            names.overlapped && names.calls > 100 && locks.calls > 20
        };
        // Calls of a local file system are short, so that a round in which no two were at once is not rare.
        assert!((0..100).any(enough), "a hundred rounds, and none in which two calls were at once");
    }

    #[test]
    fn two_folders_are_not_one_object() {
        let dirs = [tempfile::tempdir().expect("a directory"), tempfile::tempdir().expect("another")];
        let here: Vec<PathBuf> = dirs.iter().map(|dir| dir.path().join("round-1")).collect();
        prepare(&here[1], 2).expect("prepared");
        let error = play(&round(&here)).err().expect("what one does the other does not see");
        assert!(error.contains("no order of these calls explains their answers"), "{error}");
    }
}
