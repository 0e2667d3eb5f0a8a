//! The threads of a process that mostly does what its sockets bring.

use std::time::Duration;

use braid_base::{Error, Result};
use tokio::runtime::{Builder, Runtime};

/// With so many processors or fewer there is one worker: several would wake each other for what one of them takes in one
/// turn, on processors that the programs and other hosts of the machine want (decision 45).
const FEW: usize = 2;

/// Longer than a drive may take for anything.
const KEEP: Duration = Duration::from_secs(600);

/// A runtime with as many workers as this machine has use for. `TOKIO_WORKER_THREADS` says otherwise.
pub(crate) fn runtime() -> Result<Runtime> {
    let few = std::thread::available_parallelism().is_ok_and(|processors| processors.get() <= FEW);
    let mut builder = Builder::new_multi_thread();
    if few && std::env::var_os("TOKIO_WORKER_THREADS").is_none() {
        builder.worker_threads(1);
    }
    // One that waits for something leaves its work to another, and is not needed then; but what it handed to the kernel
    // for a drive is given up with it.
    builder.thread_keep_alive(KEEP);
    build(&mut builder)
}

/// The runtime that `builder` makes.
pub(crate) fn build(builder: &mut Builder) -> Result<Runtime> {
    builder.enable_all().build().map_err(|error| Error::os("starting threads", &error))
}
