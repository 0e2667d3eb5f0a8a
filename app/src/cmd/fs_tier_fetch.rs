//! `braid fs tier fetch`: bring files back to flash, whole trees, or what a job will read just before it does.

use std::fs;
use std::io::{ErrorKind, Write, stderr};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use braid_base::attr::Time;
use braid_base::limits::CHUNK;
use braid_io::clock;
use clap::{Args, ValueEnum};

use crate::errands::{self, Ended, Errand, Piece};
use crate::exit::{FAILURE, Failure, Outcome};
use crate::follow::{Follow, Ground, Read};
use crate::measure::{parse_size, size};
use crate::residence::{self, Goal};
use crate::tree::{Tree, Trouble};
use crate::whole::Whole;
use crate::whose::Whose;
use crate::{out, plan};

#[derive(Args, Debug)]
#[command(after_help = PLAN)]
pub struct Fetch {
    /// Files and directories with all that is below; links are not followed, other file systems not entered
    #[arg(required_unless_present = "plan", value_name = "PATH")]
    paths: Vec<PathBuf>,
    /// Name each file when it is on flash
    #[arg(short, long)]
    verbose: bool,
    /// What a path that is not there is
    #[arg(long, value_enum, value_name = "WHAT", default_value = "error")]
    non_existing: NonExisting,
    /// Bring back what FILE lists, in that order, just ahead of the job that reads it
    #[arg(long, value_name = "FILE", conflicts_with = "paths")]
    plan: Option<PathBuf>,
    /// With --plan: bring back so much that the job has not read yet [default: a quarter of the flash that the file system
    /// may fill, at most 8 GiB; 1 GiB if its cluster cannot be asked]
    #[arg(long, value_name = "SIZE", value_parser = parse_size, requires = "plan", conflicts_with = "paths")]
    ahead: Option<u64>,
    /// With --plan: what the job has read leaves flash again, some seconds later; ends when it has read all, or nothing for
    /// five minutes
    #[arg(long, requires = "plan", conflicts_with = "paths")]
    drop: bool,
}

const PLAN: &str = "\
A plan has one line for each file that a job will read, in the order in which it will: `PATH`, or `PATH OFFSET LENGTH` (bytes) \
for a part of one. How far the job is, is seen by the reads of the mount that the paths are on; of a job on another machine by \
access times, as far as they move. While it reads nothing, no more comes than --ahead says. The command ends when all that is \
left is on flash; to end it before does no harm.";

/// Room on flash that is used to be ahead of a job, if it is not said, bytes: at most, and where it is not known.
const AHEAD_MAX: u64 = 8 << 30;
const AHEAD_UNKNOWN: u64 = 1 << 30;
/// Longest piece of a plan, bytes: where the job is, is known that exactly.
const PIECE_MAX: u64 = 64 << 20;

/// What is done about a path that is not there.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum NonExisting {
    /// A failure
    #[value(alias = "fail")]
    Error,
    /// Worth a word on stderr
    Warn,
    /// Nothing
    Ignore,
}

impl NonExisting {
    /// What of `ended` is left to complain about, after what this says was done.
    pub fn settle(self, mut ended: Ended) -> Ended {
        if self == Self::Error {
            return ended;
        }
        let (missing, failed) = ended.failed.into_iter().partition(Trouble::is_missing);
        let missing: Vec<Trouble> = missing;
        ended.failed = failed;
        for Trouble { path, reason } in missing.iter().filter(|_| self == Self::Warn) {
            out::warn(&format!("{}: {reason}", path.display()));
        }
        ended
    }
}

pub fn run(whole: &Whole, fetch: &Fetch) -> Outcome {
    let each = |path: &Path, bytes: u64| told(fetch.verbose && !whole.json, path, "on flash", bytes);
    let errand = Errand { goal: Goal::Flash, each: &each };
    let ended = match &fetch.plan {
        Some(file) => follow(whole, fetch, &errand, file)?,
        None => errands::run(&errand, trees(&fetch.paths)),
    };
    tell(whole, &fetch.non_existing.settle(ended), "on flash", "fetched")
}

/// Stays ahead of a job that reads what the plan in `file` names.
fn follow(whole: &Whole, fetch: &Fetch, errand: &Errand<'_>, file: &Path) -> Result<Ended, Failure> {
    let first = plan::read(file).map_err(Failure::usage)?.find_map(Result::ok);
    let room = first.and_then(|piece| Whose::of(whole, &piece.path)).and_then(|whose| {
        let fs = whose.filesystem;
        // Without a bound its total says nothing of flash.
        let most = [fs.ssd_bytes, fs.limited.then_some(fs.total_bytes)].into_iter().flatten().min();
        Some((most?, fs.name))
    });
    let ahead = ahead(fetch.ahead, room).map_err(Failure::usage)?;
    // Several pieces are under way while one is read.
    let step = (ahead / 8 / CHUNK * CHUNK).clamp(CHUNK, PIECE_MAX);
    let lines = plan::cut(plan::read(file).map_err(Failure::usage)?, step);
    let mounts = Mounts { begun_ms: clock::mono_ms(), begun: clock::now().wall };
    let (follow, over) = (Follow::new(mounts, lines, ahead, fetch.drop), AtomicBool::new(false));
    Ok(thread::scope(|scope| {
        let tends = scope.spawn(|| follow.tend(&over));
        let ended = errands::run(errand, &follow);
        over.store(true, Ordering::Release);
        tends.thread().unpark();
        ended
    }))
}

/// How much is to be ahead of the job, if `asked` is what was said, and the file system may fill so much of flash.
fn ahead(asked: Option<u64>, room: Option<(u64, String)>) -> Result<u64, String> {
    match (asked, room) {
        (Some(asked), Some((room, name))) if asked > room => Err(format!(
            "--ahead {} is more than file system {name} may have on flash ({}): what comes first would leave before it is \
             read",
            size(asked),
            size(room)
        )),
        (Some(asked), _) => Ok(asked),
        (None, Some((room, _))) => Ok((room / 4).clamp(CHUNK, AHEAD_MAX)),
        (None, None) => Ok(AHEAD_UNKNOWN),
    }
}

/// The mounts that the files of a plan are on.
struct Mounts {
    begun_ms: u64,
    begun: Time,
}

impl Ground for Mounts {
    fn last_read(&self, path: &Path) -> Option<Read> {
        let now_ms = clock::mono_ms();
        if let Ok(Some((end, ago_ms))) = residence::last_read(path) {
            let at_ms = now_ms.saturating_sub(ago_ms);
            return (at_ms >= self.begun_ms).then_some(Read { at_ms, end: Some(end) });
        }
        // Whoever reads it on another machine moves its access time.
        let at = residence::accessed(path).filter(|at| *at > self.begun)?;
        let after_ms =
            (at.sec - self.begun.sec) * 1_000 + (i64::from(at.nsec) - i64::from(self.begun.nsec)) / 1_000_000;
        Some(Read { at_ms: self.begun_ms + u64::try_from(after_ms).unwrap_or(0), end: None })
    }

    fn is_gone(&self, path: &Path) -> bool {
        use ErrorKind::{NotADirectory, NotConnected, NotFound, StaleNetworkFileHandle};
        // Other errors may pass: a cluster that has lost a host answers late.
        fs::symlink_metadata(path).is_err_and(|error| {
            matches!(error.kind(), NotFound | NotADirectory | NotConnected | StaleNetworkFileHandle)
        })
    }

    fn release(&self, path: &Path, part: Option<(u64, u64)>) {
        // It leaves by its age then.
        let _ = residence::ask(path, Goal::Objects, part);
    }
}

/// The files of trees that are on Braid.
pub fn trees(paths: &[PathBuf]) -> impl Iterator<Item = Result<Piece, Trouble>> + Send + use<> {
    let is_ours = |path: &Path| residence::location(path).map(|_| ());
    Tree::new(paths.to_vec(), is_ours).map(|found| found.map(Piece::whole))
}

/// Names a file that is where it should be.
pub fn told(verbose: bool, path: &Path, place: &str, bytes: u64) {
    if verbose {
        // That nobody listens is noticed at the end.
        let _ = out::lines(&[format!("{}: {place}, {} moved", path.display(), size(bytes))]);
    }
}

/// Says how it ended.
pub fn tell(whole: &Whole, ended: &Ended, place: &str, verb: &str) -> Outcome {
    if whole.json {
        out::json(ended)?;
    } else {
        let files = if ended.files == 1 { "1 file is".to_owned() } else { format!("{} files are", ended.files) };
        out::lines(&[format!("{files} {place}, {} {verb}", size(ended.bytes))])?;
    }
    let all = ended.files + ended.failed.len() as u64;
    missed(&ended.failed, all, &format!("not {place}"))
}

/// Lists what failed, of `all`, on stderr; `why` is what they are.
pub fn missed(failed: &[Trouble], all: u64, why: &str) -> Outcome {
    let line = |Trouble { path, reason }: &Trouble| format!("{}: {reason}", path.display());
    let message = match failed {
        [] => return Ok(()),
        [only] => line(only),
        several => {
            for trouble in several {
                // Without stderr there is nobody to tell.
                let _ = writeln!(stderr(), "{}", line(trouble));
            }
            format!("{} of {all} paths: {why}; they are listed above", several.len())
        }
    };
    Err(Failure { code: FAILURE, message })
}

#[cfg(test)]
mod tests {
    use super::{AHEAD_MAX, AHEAD_UNKNOWN, NonExisting, ahead};
    use crate::errands::Ended;
    use crate::tree::Trouble;

    #[test]
    fn no_more_is_ahead_than_flash_holds() {
        let room = |bytes| Some((bytes, "one".to_owned()));
        assert_eq!((ahead(None, None), ahead(Some(7), None)), (Ok(AHEAD_UNKNOWN), Ok(7)));
        assert_eq!((ahead(None, room(4 << 30)), ahead(None, room(1 << 50))), (Ok(1 << 30), Ok(AHEAD_MAX)));
        assert_eq!(ahead(Some(4 << 30), room(4 << 30)), Ok(4 << 30));
        let error = ahead(Some(5 << 30), room(4 << 30)).expect_err("it does not fit");
        assert!(error.contains("5.00 GiB") && error.contains("one") && error.contains("4.00 GiB"), "{error}");
    }

    #[test]
    fn what_is_not_there_may_be_left_out() {
        let missing = std::fs::metadata("/none/at/all").expect_err("it is not there");
        let failed = vec![Trouble::new("a".as_ref(), missing), Trouble::new("b".as_ref(), "not a file")];
        let left = |what: NonExisting| what.settle(Ended { failed: failed.clone(), ..Ended::default() }).failed.len();
        assert_eq!([NonExisting::Error, NonExisting::Warn, NonExisting::Ignore].map(left), [2, 1, 1]);
    }
}
