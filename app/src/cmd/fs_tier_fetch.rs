//! `braid fs tier fetch`: bring files back to flash, whole trees, or what a job will read just before it does.

use std::io::{Write, stderr};
use std::path::{Path, PathBuf};

use clap::Args;

use crate::errands::{self, Ended, Errand, Piece};
use crate::exit::{FAILURE, Failure, Outcome};
use crate::measure::{parse_size, size};
use crate::residence::{self, Goal};
use crate::tree::{Tree, Trouble};
use crate::whole::Whole;
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
    /// Bring back what FILE lists, in that order
    #[arg(long, value_name = "FILE", conflicts_with = "paths")]
    plan: Option<PathBuf>,
    /// With --plan: ask for so much that is not on flash yet
    #[arg(long, value_name = "SIZE", value_parser = parse_size, default_value = "8GiB", requires = "plan", conflicts_with = "paths")]
    ahead: u64,
}

const PLAN: &str = "\
A plan has one line for each file that a job will read, in the order in which it will: `PATH`, or `PATH OFFSET LENGTH` (bytes) \
for a part of one.";

pub fn run(whole: &Whole, fetch: &Fetch) -> Outcome {
    let each = |path: &Path, bytes: u64| told(fetch.verbose && !whole.json, path, "on flash", bytes);
    let errand = Errand { goal: Goal::Flash, ahead: u64::MAX, each: &each };
    let ended = match &fetch.plan {
        Some(file) => {
            let pieces = plan::read(file).map_err(Failure::usage)?;
            errands::run(&Errand { ahead: fetch.ahead, ..errand }, pieces)
        }
        None => errands::run(&errand, trees(&fetch.paths)),
    };
    tell(whole, &ended, "on flash", "fetched")
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
