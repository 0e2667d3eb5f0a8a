//! Threads without which a host is none: it would go on to say that it lives, and nobody would make up for it.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::process::abort;
use std::thread::{Builder, JoinHandle};

use braid_base::{Error, Result};

/// Runs `work` on a thread called `name`. If it panics the process ends at once, as by a loss of power: others take over
/// what it had, and whoever started it starts it again.
///
/// Errors: the thread cannot be started.
pub(super) fn spawn(name: &'static str, work: impl FnOnce() + Send + 'static) -> Result<JoinHandle<()>> {
    let guarded = move || {
        if catch_unwind(AssertUnwindSafe(work)).is_err() {
            tracing::error!("thread {name} panicked, see above: this host ends, because it could not go on without");
            abort();
        }
    };
    Builder::new().name(name.into()).spawn(guarded).map_err(|e| Error::os(format!("start the thread {name}"), &e))
}

#[cfg(test)]
mod tests {
    use std::os::unix::process::ExitStatusExt;
    use std::process::Command;

    use super::spawn;

    const INSIDE: &str = "BRAID_TEST_VITAL";

    #[test]
    fn a_panic_ends_the_process() {
        if std::env::var_os(INSIDE).is_some() {
            spawn("vital", || panic!("on purpose")).expect("started").join().expect("the process is over before");
            return;
        }
        let name = "run::vital::tests::a_panic_ends_the_process";
        let inside = Command::new(std::env::current_exe().expect("a program"))
            .args(["--exact", name, "--nocapture"])
            .env(INSIDE, "1")
            .output()
            .expect("runs");
        assert_eq!(inside.status.signal(), Some(6), "{}", String::from_utf8_lossy(&inside.stderr));
    }

    #[test]
    fn work_ends_in_order() {
        spawn("vital", || ()).expect("started").join().expect("in order");
    }
}
