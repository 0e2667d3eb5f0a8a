//! What is measured: a folder of some mounted file system, and the server behind it if there is one.

use crate::Outcome;
use crate::arguments::Arguments;
use crate::clock;
use serde_json::Value;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// One column of the table.
pub struct Target {
    /// The column's head.
    pub name: String,
    /// An empty folder to work in.
    pub dir: PathBuf,
    server: Option<Server>,
}

/// A Braid cluster of one process that this program starts, restarts and stops.
struct Server {
    program: PathBuf,
    state: PathBuf,
    mount: PathBuf,
    pid: u32,
}

/// Size of each of the six drive files of a Braid target.
const DRIVE_SIZE: &str = "2GiB";

impl Target {
    /// A folder of a file system that is mounted already.
    pub fn folder(name: &str, dir: &Path) -> Target {
        Target { name: name.to_owned(), dir: dir.to_owned(), server: None }
    }

    /// A new cluster: `--braid PROGRAM --state DIR --mount DIR`.
    pub fn braid(arguments: &Arguments) -> Outcome<Target> {
        let (program, state) = (arguments.path("braid")?, arguments.path("state")?);
        let mut server = Server { program, state, mount: arguments.path("mount")?, pid: 0 };
        server.up(&["--drives", "6", "--drive-size", DRIVE_SIZE, "--protection", "4+2"])?;
        Ok(Target { name: "braid".to_owned(), dir: server.mount.join("bench"), server: Some(server) })
    }

    /// Makes what was written durable and forgets every cached byte: the kernel's, and the server's by a restart.
    pub fn cold(&mut self) -> Outcome<()> {
        rustix::fs::sync();
        if let Some(server) = &mut self.server {
            server.down()?;
            server.up(&[])?;
        }
        rustix::fs::sync();
        let path = "/proc/sys/vm/drop_caches";
        std::fs::write(path, "3\n").map_err(|error| format!("{path}: {error} (cold reads need root)"))
    }

    /// CPU seconds used so far by this program, the programs it ran and the server.
    pub fn cpu_seconds(&self) -> Outcome<f64> {
        let server = self.server.as_ref().map_or(Ok(0.0), |server| clock::process_cpu_seconds(server.pid))?;
        Ok(clock::own_cpu_seconds()? + server)
    }
}

impl Drop for Target {
    fn drop(&mut self) {
        if let Some(server) = &self.server
            && let Err(error) = server.down()
        {
            eprintln!("braid-bench: {error}");
        }
    }
}

impl Server {
    /// The program, told which cluster is meant, whatever else runs on this machine.
    fn command(&self) -> Command {
        let mut command = Command::new(&self.program);
        command.env("BRAID_DIR", &self.state);
        command
    }

    fn up(&mut self, how: &[&str]) -> Outcome<()> {
        let mut command = self.command();
        command.arg("up").arg(&self.state).args(how).arg("--mount").arg(&self.mount);
        command.args(["--admin-port", "0", "--detach"]);
        run(&mut command)?;
        let status = run(self.command().args(["status", "--json"]))?;
        let status: Value = serde_json::from_str(&status).map_err(|error| format!("braid status: {error}"))?;
        let pid = status["pid"].as_u64().and_then(|pid| u32::try_from(pid).ok());
        self.pid = pid.ok_or("braid status --json has no pid")?;
        Ok(())
    }

    fn down(&self) -> Outcome<()> {
        run(self.command().arg("down").arg(&self.state)).map(drop)
    }
}

/// Runs a program to its end and returns what it printed.
fn run(command: &mut Command) -> Outcome<String> {
    let output = command.stdin(Stdio::null()).output().map_err(|error| format!("{command:?}: {error}"))?;
    if output.status.success() {
        return String::from_utf8(output.stdout).map_err(|_| format!("{command:?}: output is not UTF-8"));
    }
    Err(format!("{command:?} failed: {}", String::from_utf8_lossy(&output.stderr).trim()))
}
