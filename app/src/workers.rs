//! The threads of a process that mostly does what its sockets bring.

use std::time::Duration;

use braid_base::{Error, Result};
use tokio::runtime::{Builder, Runtime};

/// Longer than a drive may take for anything.
const KEEP: Duration = Duration::from_secs(600);

/// A runtime with a worker for each processor, or as many as `TOKIO_WORKER_THREADS` says; a single one takes the work of
/// drives and of FUSE, too (decision 45).
pub(crate) fn runtime() -> Result<Runtime> {
    // A worker that waits for something leaves its work to another, and is not needed then; but what it handed to the
    // kernel for a drive is given up with it.
    let runtime = Builder::new_multi_thread().thread_keep_alive(KEEP).enable_all().build();
    runtime.map_err(|error| Error::os("starting threads", &error))
}
