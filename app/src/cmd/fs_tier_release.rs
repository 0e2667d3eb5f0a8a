//! `braid fs tier release`: give up the place of files on flash; their data is in objects then, their names stay.

use std::path::{Path, PathBuf};

use clap::Args;

use super::fs_tier_fetch::{NonExisting, tell, told, trees};
use crate::errands::{self, Errand};
use crate::exit::Outcome;
use crate::residence::Goal;
use crate::whole::Whole;

#[derive(Args, Debug)]
pub struct Release {
    /// Files and directories with all that is below; links are not followed, other file systems not entered
    #[arg(required = true, value_name = "PATH")]
    paths: Vec<PathBuf>,
    /// Name each file when it is in objects only
    #[arg(short, long)]
    verbose: bool,
    /// What a path that is not there is
    #[arg(long, value_enum, value_name = "WHAT", default_value = "error")]
    non_existing: NonExisting,
}

pub fn run(whole: &Whole, release: &Release) -> Outcome {
    let place = "in objects only";
    let each = |path: &Path, bytes: u64| told(release.verbose && !whole.json, path, place, bytes);
    let errand = Errand { goal: Goal::Objects, each: &each };
    let ended = errands::run(&errand, trees(&release.paths));
    tell(whole, &release.non_existing.settle(ended), place, "released")
}
