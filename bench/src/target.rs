//! What is measured: a folder of some mounted file system, and the server behind it if there is one.

use crate::Outcome;
use crate::arguments::Arguments;
use crate::clock;
use serde_json::Value;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// One column of the table.
pub struct Target {
    /// The column's head.
    pub name: String,
    /// An empty folder to work in.
    pub dir: PathBuf,
    server: Option<Server>,
    /// A shell command that empties the caches of a server that is not ours.
    cold: Option<String>,
    /// A folder of `*.pid` files: the processes behind a file system that is mounted already.
    pids: Option<PathBuf>,
}

/// CPU seconds by process.
pub type Usage = BTreeMap<String, f64>;

/// A Braid cluster of one process that this program starts, restarts and stops.
struct Server {
    program: PathBuf,
    state: PathBuf,
    mount: PathBuf,
    pid: u32,
}

/// Longest wait for a server to move what it has staged, in seconds.
const SETTLE_SECONDS_MAX: f64 = 30.0;

impl Target {
    /// A folder of a file system that is mounted already. `cold` is a command that makes its servers forget; in the
    /// folder `pids` are the numbers of its processes.
    pub fn folder(name: &str, dir: &Path, cold: Option<&str>, pids: Option<&str>) -> Target {
        let (cold, pids) = (cold.map(str::to_owned), pids.map(PathBuf::from));
        Target { name: name.to_owned(), dir: dir.to_owned(), server: None, cold, pids }
    }

    /// A new 4+2 cluster of `program` on six drive files: state in `--state DIR`, mounted on `--mount DIR`, with
    /// `ending` added to both.
    pub fn braid(arguments: &Arguments, name: &str, program: &str, ending: &str, drive: &str) -> Outcome<Target> {
        let place = |option: &str| -> Outcome<PathBuf> {
            let mut path = arguments.path(option)?.into_os_string();
            path.push(ending);
            Ok(PathBuf::from(path))
        };
        let (state, mount) = (place("state")?, place("mount")?);
        std::fs::create_dir_all(&mount).map_err(|error| format!("{}: {error}", mount.display()))?;
        let mut server = Server { program: PathBuf::from(program), state, mount, pid: 0 };
        server.up(&["--drives", "6", "--drive-size", drive, "--protection", "4+2"])?;
        Ok(Target {
            name: name.to_owned(),
            dir: server.mount.join("bench"),
            server: Some(server),
            cold: None,
            pids: None,
        })
    }

    /// Makes what was written durable and forgets every cached byte: the kernel's, and the server's by a restart.
    pub fn cold(&mut self) -> Outcome<()> {
        rustix::fs::sync();
        if let Some(server) = &mut self.server {
            server.down()?;
            server.up(&[])?;
        }
        if let Some(command) = &self.cold {
            run(Command::new("sh").args(["-c", command]))?;
        }
        rustix::fs::sync();
        let path = "/proc/sys/vm/drop_caches";
        std::fs::write(path, "3\n").map_err(|error| format!("{path}: {error} (cold reads need root)"))
    }

    /// Waits until the server has moved what it was given to where it stays.
    pub fn settle(&self) -> Outcome<()> {
        let Some(server) = &self.server else { return Ok(()) };
        let start = clock::seconds();
        while server.staged_bytes()? > 0 && clock::seconds() - start < SETTLE_SECONDS_MAX {
            clock::wait(200);
        }
        Ok(())
    }

    /// CPU seconds used so far: by this program and those it ran (`program`), and by the servers. Of processes with a
    /// file of their own in the folder of numbers those count as one whose names differ by a number only.
    pub fn cpu_seconds(&self) -> Outcome<Usage> {
        let mut usage = Usage::from([("program".to_owned(), clock::own_cpu_seconds()?)]);
        if let Some(server) = &self.server {
            usage.insert("server".to_owned(), clock::process_cpu_seconds(server.pid)?);
        }
        for (name, pid) in self.others()? {
            *usage.entry(name).or_default() += clock::process_cpu_seconds(pid)?;
        }
        Ok(usage)
    }

    fn others(&self) -> Outcome<Vec<(String, u32)>> {
        let Some(folder) = &self.pids else { return Ok(Vec::new()) };
        let broken = |error: &dyn std::fmt::Display| format!("{}: {error}", folder.display());
        let mut others = Vec::new();
        for entry in std::fs::read_dir(folder).map_err(|error| broken(&error))? {
            let path = entry.map_err(|error| broken(&error))?.path();
            if path.extension().is_some_and(|end| end == "pid") {
                let text = std::fs::read_to_string(&path).map_err(|error| broken(&error))?;
                let pid = text.trim().parse().map_err(|error| format!("{}: {error}", path.display()))?;
                let stem = path.file_stem().unwrap_or_default().to_string_lossy();
                others.push((stem.trim_end_matches(|char: char| char.is_ascii_digit()).to_owned(), pid));
            }
        }
        Ok(others)
    }

    /// Are the processes behind it of several kinds? Then it is worth telling what each kind uses.
    pub fn is_of_many(&self) -> bool {
        self.pids.is_some()
    }

    /// Is there a server that this program starts and stops?
    pub fn is_served(&self) -> bool {
        self.server.is_some()
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
        let pid = self.status()?["pid"].as_u64().and_then(|pid| u32::try_from(pid).ok());
        self.pid = pid.ok_or("braid status --json has no pid")?;
        Ok(())
    }

    fn down(&self) -> Outcome<()> {
        run(self.command().arg("down").arg(&self.state)).map(drop)
    }

    fn status(&self) -> Outcome<Value> {
        let status = run(self.command().args(["status", "--json"]))?;
        serde_json::from_str(&status).map_err(|error| format!("braid status: {error}"))
    }

    fn staged_bytes(&self) -> Outcome<u64> {
        let status = self.status()?;
        let partitions = status["partitions"].as_array().ok_or("braid status --json has no partitions")?;
        Ok(partitions.iter().filter_map(|partition| partition["staged_bytes"].as_u64()).sum())
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
