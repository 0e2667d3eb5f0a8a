//! Work that computes for long while nobody waits for its end at once: it gives way to all else.

use braid_base::{Error, ErrorKind, Result};

/// How much such a thread gives way (`nice`): of a processor that others want, it gets a tenth beside each of them.
const NICE: libc::c_int = 10;

/// Runs `work` on a thread of its own, named `name`, that gives way to others. Errors: `Io`: there can be no more threads.
pub fn spawn(name: &str, work: impl FnOnce() + Send + 'static) -> Result<()> {
    let yields = move || {
        // SAFETY: no pointers. On Linux it is said of the thread that says it, and anybody may give way; if not, it
        // computes as all do.
        let _ = unsafe { libc::setpriority(libc::PRIO_PROCESS, 0, NICE) };
        work();
    };
    let started = std::thread::Builder::new().name(name.to_owned()).spawn(yields);
    started.map(drop).map_err(|error| Error::new(ErrorKind::Io, format!("thread '{name}' does not start: {error}")))
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    #[test]
    fn a_thread_gives_way_and_no_other_does() {
        // SAFETY: no pointers.
        let nice = || unsafe { libc::getpriority(libc::PRIO_PROCESS, 0) };
        let (tell, hear) = mpsc::channel();
        let before = nice();
        super::spawn("test", move || tell.send(nice()).expect("somebody hears")).expect("it starts");
        assert_eq!(hear.recv().expect("it runs"), super::NICE);
        assert_eq!(nice(), before);
    }
}
