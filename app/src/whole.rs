//! What may stand behind every command.

use std::path::PathBuf;

use clap::Args;

/// Options of every command.
#[derive(Args, Clone, Debug)]
pub struct Whole {
    /// Directory of the cluster to talk to
    #[arg(long, global = true, value_name = "DIR", help_heading = "Global options")]
    pub dir: Option<PathBuf>,
    /// Print JSON
    #[arg(long, short = 'J', global = true, help_heading = "Global options")]
    pub json: bool,
}
