//! `braid man`: the manual page, or all pages into a directory.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use clap::{Args, Command};

use crate::exit::{FAILURE, Failure, Outcome};
use crate::out;

#[derive(Args, Debug)]
pub struct Man {
    /// Directory to write one page per command into
    #[arg(value_name = "DIR")]
    pages: Option<PathBuf>,
}

/// `tree` is the whole command line.
pub fn run(man: &Man, tree: Command) -> Outcome {
    let place = man.pages.as_deref().unwrap_or(Path::new("stdout"));
    let written = match &man.pages {
        None => print(tree),
        Some(dir) => fs::create_dir_all(dir).and_then(|()| clap_mangen::generate_to(tree, dir)),
    };
    written.map_err(|error| Failure { code: FAILURE, message: format!("{}: {error}", place.display()) })
}

fn print(tree: Command) -> io::Result<()> {
    let mut page = Vec::new();
    clap_mangen::Man::new(tree).render(&mut page)?;
    out::lines(&[String::from_utf8_lossy(&page).trim_end().to_owned()])
        .map_err(|failure| io::Error::other(failure.message))
}
