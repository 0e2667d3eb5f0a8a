//! `braid completion`: the completion script for a shell.

use clap::{Args, Command};
use clap_complete::Shell;

use crate::exit::Outcome;
use crate::out;

#[derive(Args, Debug)]
pub struct Completion {
    /// Which shell
    shell: Shell,
}

/// `tree` is the whole command line.
pub fn run(completion: &Completion, mut tree: Command) -> Outcome {
    let mut script = Vec::new();
    clap_complete::generate(completion.shell, &mut tree, "braid", &mut script);
    out::lines(&[String::from_utf8_lossy(&script).trim_end().to_owned()])
}
