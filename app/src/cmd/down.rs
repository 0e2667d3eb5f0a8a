//! `braid down`: stop cleanly and wait until the process is gone.

use std::path::PathBuf;

use clap::Args;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, Signal, kill_process, pidfd_open};
use serde_json::json;

use crate::client::Client;
use crate::exit::{FAILURE, Failure, Outcome};
use crate::whole::Whole;
use crate::{out, progress};

/// A clean stop takes 5 s at most; after twice that something is wrong.
const GONE_MAX_S: i64 = 10;

#[derive(Args, Debug)]
pub struct Down {
    /// Directory of the cluster; may be left out if only one runs
    #[arg(value_name = "DIR")]
    cluster_dir: Option<PathBuf>,
}

pub fn run(whole: &Whole, down: &Down) -> Outcome {
    let client = Client::find(down.cluster_dir.as_deref().or(whole.dir.as_deref()))?;
    let (number, dir) = (client.access.pid, client.dir.display().to_string());
    let failed =
        |what: &str, error: Errno| Failure { code: FAILURE, message: format!("{what} process {number}: {error}") };
    let pid = i32::try_from(number).ok().and_then(Pid::from_raw);
    let pid = pid.ok_or_else(|| Failure { code: FAILURE, message: format!("{number} is no process number") })?;
    // Held from before the request on: the number may be given to another process once this one is gone.
    let process = match pidfd_open(pid, PidfdFlags::empty()) {
        Ok(process) => process,
        Err(Errno::SRCH) => return report(whole, &dir, number),
        Err(error) => return Err(failed("watching", error)),
    };
    if client.call("POST", "/shutdown").is_err() {
        // It does not answer, but a signal still reaches it.
        match kill_process(pid, Signal::TERM) {
            Ok(()) | Err(Errno::SRCH) => {}
            Err(error) => return Err(failed("stopping", error)),
        }
    }
    let wait = Timespec { tv_sec: GONE_MAX_S, tv_nsec: 0 };
    let gone = progress::during(&format!("stopping the cluster in {dir}"), || {
        poll(&mut [PollFd::new(&process, PollFlags::IN)], Some(&wait))
    });
    match gone {
        Ok(0) => {
            let message = format!(
                "process {number} did not stop within {GONE_MAX_S} s: kill -9 {number}; what was synced is durable"
            );
            Err(Failure { code: FAILURE, message })
        }
        Ok(_) => report(whole, &dir, number),
        Err(error) => Err(failed("waiting for", error)),
    }
}

fn report(whole: &Whole, dir: &str, pid: u32) -> Outcome {
    if whole.json {
        return out::json(&json!({ "dir": dir, "pid": pid, "state": "stopped" }));
    }
    out::lines(&[format!("cluster in {dir} is stopped")])
}
