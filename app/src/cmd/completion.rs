//! `braid completion`: the completion script for a shell.

use clap::Args;
use clap_complete::Shell;

use crate::cli;
use crate::exit::Outcome;
use crate::out;

#[derive(Args, Debug)]
pub struct Completion {
    /// Which shell
    shell: Shell,
}

pub fn run(completion: &Completion) -> Outcome {
    let mut script = Vec::new();
    clap_complete::generate(completion.shell, &mut cli::tree(), "braid", &mut script);
    out::lines(&[String::from_utf8_lossy(&script).trim_end().to_owned()])
}
