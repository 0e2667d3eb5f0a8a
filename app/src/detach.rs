//! `up --detach`: the same command again in a session of its own, and the line between the two.
//!
//! 1. The parent starts the child: stdin empty, stdout a pipe to the parent, stderr appended to `DIR/braid.log`.
//! 2. The child leaves the parent's session and tells its steps as lines of JSON on stdout.
//! 3. Its last line is `ready` or `failed`; then its stdout becomes the log too.
//! 4. The parent prints what it heard and ends with the code. If the parent is gone, the child stops again.

use std::ffi::OsString;
use std::fs::{self, File, OpenOptions};
use std::io::{self, BufRead, BufReader, Read, Seek, SeekFrom, Write, stdout};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use serde::{Deserialize, Serialize};

use crate::exit::{FAILURE, Failure};
use crate::progress::Progress;

/// Option by which the parent marks the child.
pub const CHILD_OPTION: &str = "--announce";
/// A log larger than this is put aside at the next start, bytes.
const LOG_BYTES_MAX: u64 = 16 << 20;

/// The state of a host that is in no cluster yet, or does not start before etcd was recovered.
pub const WAITING: &str = "waiting";

/// A cluster that came up.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ready {
    /// The process.
    pub pid: u32,
    /// The cluster's directory.
    pub dir: PathBuf,
    /// Where REST is.
    pub admin: String,
    /// `ok`, `degraded` or `unavailable`; `waiting`: a host that is in no cluster yet, or whose etcd
    /// has gone back.
    pub state: String,
    /// What is wrong, if anything.
    pub problems: Vec<String>,
    /// The file system that was mounted.
    pub filesystem: Option<String>,
    /// Where.
    pub mount: Option<PathBuf>,
}

/// A line from the child.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Line {
    Step(String),
    Ready(Box<Ready>),
    Failed { code: u8, message: String },
}

/// Where the child's log is.
pub fn log_path(dir: &Path) -> PathBuf {
    dir.join("braid.log")
}

/// The words of this process for its child.
pub fn own_words() -> Vec<OsString> {
    let words = std::env::args_os().skip(1).filter(|word| word != "--detach" && word != "-d");
    words.chain([OsString::from(CHILD_OPTION)]).collect()
}

/// Starts the child with these words, [`CHILD_OPTION`] among them, its log at `log`, and waits until it is ready.
pub fn start(log: &Path, words: &[OsString]) -> Result<Ready, Failure> {
    let failed = |what: &str, error: io::Error| Failure { code: FAILURE, message: format!("{what}: {error}") };
    let mut child = spawn(log, words).map_err(|error| failed(&log.display().to_string(), error))?;
    let progress = Progress::new("starting");
    let heard = child.stdout.take().map(|pipe| listen(pipe, &progress)).unwrap_or(Ok(None));
    drop(progress);
    match heard.map_err(|error| failed("listening to the new process", error))? {
        Some(Line::Ready(ready)) => Ok(*ready),
        Some(Line::Failed { code, message }) => {
            // It has said why, so how it ends adds nothing.
            let _ = child.wait();
            Err(Failure { code, message })
        }
        Some(Line::Step(_)) | None => {
            let status = child.wait().map_err(|error| failed("waiting for the new process", error))?;
            let last = last_line(log).map(|line| format!(": {line}")).unwrap_or_default();
            Err(Failure {
                code: FAILURE,
                message: format!("braid ended while starting ({status}), see {}{last}", log.display()),
            })
        }
    }
}

/// The child's side: leaves the parent's session, and is called `braid` by `ps` and `pgrep`, not `exe`.
pub fn leave_session() {
    let _ = rustix::thread::set_name(c"braid");
    // Fails only if this process leads a session already, which is what is wanted.
    let _ = rustix::process::setsid();
}

/// Tells the parent. An error means that it is gone.
pub fn tell(line: &Line) -> io::Result<()> {
    let text = serde_json::to_string(line)?;
    let mut out = stdout().lock();
    writeln!(out, "{text}").and_then(|()| out.flush())
}

/// After the last line: what is printed from now on goes to the log, and the parent sees the end of the pipe.
pub fn hang_up() {
    // If this fails, the pipe stays open to a parent that no longer reads; nothing is printed there anyway.
    let _ = rustix::stdio::dup2_stdout(io::stderr());
}

fn spawn(log: &Path, words: &[OsString]) -> io::Result<Child> {
    if fs::metadata(log).is_ok_and(|metadata| metadata.len() > LOG_BYTES_MAX) {
        fs::rename(log, log.with_extension("log.1"))?;
    }
    let log = OpenOptions::new().create(true).append(true).open(log)?;
    Command::new("/proc/self/exe")
        .arg0("braid")
        .args(words)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(log)
        .spawn()
}

/// The last line of the child that matters; shows its steps.
fn listen(pipe: impl Read, progress: &Progress) -> io::Result<Option<Line>> {
    for line in BufReader::new(pipe).lines() {
        match serde_json::from_str(&line?) {
            Ok(Line::Step(step)) => progress.say(&step),
            Ok(last) => return Ok(Some(last)),
            // Something printed by a library: not for us.
            Err(_) => {}
        }
    }
    Ok(None)
}

/// The last line of the log that is not blank.
fn last_line(log: &Path) -> Option<String> {
    let mut file = File::open(log).ok()?;
    let len = file.metadata().ok()?.len();
    file.seek(SeekFrom::Start(len.saturating_sub(4096))).ok()?;
    let mut bytes = Vec::new();
    file.read_to_end(&mut bytes).ok()?;
    let text = String::from_utf8_lossy(&bytes);
    text.lines().rev().map(str::trim).find(|line| !line.is_empty()).map(str::to_owned)
}
