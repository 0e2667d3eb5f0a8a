//! The threads of a process that mostly does what its sockets bring.

use std::time::Duration;

use braid_base::{Error, Result};
use tokio::runtime::{Builder, Runtime};

/// Longer than a drive may take for anything.
const KEEP: Duration = Duration::from_secs(600);

/// Most workers that can be asked for.
pub(crate) const CORES_MAX: u16 = 1024;

/// A runtime with `cores` workers, or if none are asked for one for each processor, or as many as `TOKIO_WORKER_THREADS`
/// says. A single one takes the work of drives and of FUSE, too (decision 45).
pub(crate) fn runtime(cores: Option<u16>) -> Result<Runtime> {
    // A worker that waits for something leaves its work to another, and is not needed then; but what it handed to the
    // kernel for a drive is given up with it.
    let mut builder = Builder::new_multi_thread();
    builder.thread_keep_alive(KEEP).enable_all();
    if let Some(cores) = cores {
        builder.worker_threads(usize::from(cores));
    }
    builder.build().map_err(|error| Error::os("starting threads", &error))
}
