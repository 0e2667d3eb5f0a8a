//! The guard of a mount: a process beside ours that ends the mount's connection once ours was killed.
//!
//! By itself the kernel ends it when the last `/dev/fuse` of it is closed, and that can be never. A thread that has the
//! kernel forget a name waits, and cannot be killed meanwhile, for the lock of the directory; a request of a program
//! has the lock; and that request waits for an answer of the process that was killed, whose files stay open as long as it
//! has a thread. Both then wait for ever. So the guard looks once a second whether we live, and if not it writes to
//! `abort` of the connection (`fusectl`): every request fails, the thread ends, and with it the process.
//!
//! The mount itself stays, dead, as without this: programs get ENOTCONN, and do not write below it.

use std::fs;
use std::fs::File;
use std::io::{self, Write, stderr};
use std::os::fd::OwnedFd;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use rustix::fs::{Mode, OFlags};
use rustix::mount::{FsMountFlags, FsOpenFlags, MountAttrFlags};
use rustix::process::{getppid, setsid};
use tokio::signal::unix::{SignalKind, signal};
use tokio::time::sleep;

use crate::holders;

/// How often it is looked.
const LOOK: Duration = Duration::from_secs(1);

/// A guard that runs; dropped, it is gone.
pub(crate) struct Guard(Child);

impl Guard {
    /// Starts `program` with this process's number as its last word, for the mount whose device is called
    /// `MAJOR:MINOR`; it has to call [`guard`]. Errors: of the system; Linux 5.2 is needed.
    pub(crate) fn start(mut program: Command, device: &str) -> io::Result<Self> {
        let minor = device.split_once(':').map_or(device, |(_, minor)| minor);
        let program = program.arg(std::process::id().to_string()).stdin(abort_file(minor)?).stdout(Stdio::null());
        program.spawn().map(Self)
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        // If it has ended by itself there is nothing to do.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Writing to it ends connection `number`, and no other that has this number later. Not every host has `fusectl`
/// mounted, so it is opened without that.
fn abort_file(number: &str) -> io::Result<OwnedFd> {
    let control = rustix::mount::fsopen("fusectl", FsOpenFlags::FSOPEN_CLOEXEC)?;
    rustix::mount::fsconfig_create(&control)?;
    let root = rustix::mount::fsmount(&control, FsMountFlags::FSMOUNT_CLOEXEC, MountAttrFlags::empty())?;
    let flags = OFlags::WRONLY | OFlags::CLOEXEC;
    Ok(rustix::fs::openat(&root, format!("{number}/abort"), flags, Mode::empty())?)
}

/// What a guard of a mount of process `pid`, its parent, does: returns when that has ended and the connection, which is
/// its stdin, with it. Errors: of the system.
pub fn guard(pid: u32) -> io::Result<()> {
    let _ = rustix::thread::set_name(c"braid-guard");
    // The directory that it was started in may be on any mount.
    std::env::set_current_dir("/")?;
    let _ = setsid();
    tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(watch(pid))?;
    File::from(rustix::io::dup(io::stdin())?).write_all(b"1")?;
    // Nobody may listen.
    let _ = writeln!(stderr(), "the process {pid} was killed: the mount that it served fails all calls from now on");
    Ok(())
}

/// Returns when process `pid` has ended. What ends a session or a service ends that process, which then unmounts: until
/// then it is guarded.
async fn watch(pid: u32) -> io::Result<()> {
    let _heard_and_no_more = (signal(SignalKind::terminate())?, signal(SignalKind::hangup())?);
    while lives(pid) {
        sleep(LOOK).await;
    }
    Ok(())
}

/// Whether our parent is still process `pid`, and not killed.
fn lives(pid: u32) -> bool {
    // What cannot be read says nothing; of a process that is gone we are no child any more.
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    // Looked at after that: then it was that process.
    let parent = getppid().is_some_and(|parent| parent.as_raw_pid().cast_unsigned() == pid);
    parent && !has_ended(&stat)
}

/// Whether a `/proc/PID/stat` is of a process whose first thread has ended: only those that cannot be killed now are
/// left.
fn has_ended(stat: &str) -> bool {
    holders::stat_field(stat, 0).is_some_and(|state| matches!(state, "Z" | "X"))
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::{abort_file, has_ended, lives};

    #[test]
    fn who_was_killed_has_ended() {
        let stat = |name: &str, state: &str| format!("77 ({name}) {state} 1 77 77 0 -1 4194308 102 0 0");
        assert!(has_ended(&stat("braid", "Z")) && has_ended(&stat("a) S 1 (b", "X")));
        assert!(!has_ended("") && !has_ended(&stat("braid", "D")) && !has_ended(&stat("Z) Z (b", "S")));
    }

    #[test]
    fn only_a_parent_is_guarded() {
        let parent = std::os::unix::process::parent_id();
        assert!(lives(parent) && !lives(std::process::id()) && !lives(u32::MAX));
        let mut ends = Command::new("true").spawn().expect("started");
        assert!(!lives(ends.id()));
        ends.wait().expect("ended");
    }

    #[test]
    fn there_is_no_connection_that_nobody_made() {
        assert!(abort_file("none").is_err());
    }
}
