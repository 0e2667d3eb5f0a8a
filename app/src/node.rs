//! The one place where the command line meets the running cluster: starts a host and gives its [`Control`].

use std::path::PathBuf;
use std::sync::Arc;

use braid_admin::Control;
use braid_base::{Error, ErrorKind, Result};
use braid_cluster::setup::Wish;

/// What to start.
#[derive(Clone, Debug)]
pub struct Options {
    /// The cluster's directory; it exists and holds a cluster or nothing.
    pub dir: PathBuf,
    /// What was asked for.
    pub wish: Wish,
    /// Rebuild a damaged coordinator from its backup.
    pub recover: bool,
}

/// Says what is being done, for people who wait.
pub type Say = Arc<dyn Fn(&str) + Send + Sync>;

/// Creates the cluster in `options.dir` or continues it. Blocks until it serves; `say` hears each step.
///
/// Runs inside the tokio runtime's blocking pool. A failure is one line; whatever was started has stopped then.
pub fn start(options: Options, say: Say) -> Result<Arc<dyn Control>> {
    say("starting the host");
    let dir = options.dir.display();
    Err(Error::new(ErrorKind::Unsupported, format!("{dir}: host not connected yet")))
}
