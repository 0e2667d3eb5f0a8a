//! `braid up`: create or continue a cluster and run it.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use braid_base::ids::DriveId;
use braid_cluster::embedded::CHECKER;
use braid_cluster::facts::Protection;
use braid_cluster::setup::Wish;
use clap::Args;
use tracing_subscriber::EnvFilter;

use crate::cmd::cluster_drive_remove::number;
use crate::detach::{self, Line, Ready, WAITING};
use crate::exit::{Failure, Outcome};
use crate::measure::{parse_protection, parse_size};
use crate::node::{Options, Say};
use crate::out::{self, paint, tone_of};
use crate::progress::Progress;
use crate::serve::{self, Order, What};
use crate::whole::Whole;

#[derive(Args, Debug)]
pub struct Up {
    /// Directory of the cluster: an empty one for a new cluster, its own to continue one
    #[arg(value_name = "DIR")]
    cluster_dir: Option<PathBuf>,
    /// Number of drive files to make in DIR [default for a new cluster: 6]
    #[arg(long, value_name = "N", conflicts_with = "drive")]
    drives: Option<usize>,
    /// Size of each drive file [default for a new cluster: 4GiB]
    #[arg(long, value_name = "SIZE", value_parser = parse_size, conflicts_with = "drive")]
    drive_size: Option<u64>,
    /// Existing file or device to use as a drive instead (repeat for each)
    #[arg(long, value_name = "PATH")]
    drive: Vec<PathBuf>,
    /// A drive that never comes back, such as d3: what only it has is lost (repeat for each)
    #[arg(long, value_name = "DRIVE")]
    abandon: Vec<String>,
    /// Data and parity shards of new data [default for a new cluster: 4+2, narrower with fewer drives]
    #[arg(long, value_name = "D+P", value_parser = parse_protection)]
    protection: Option<Protection>,
    /// Partitions of the namespace [default for a new cluster: one per core, at most 4]
    #[arg(long, value_name = "N")]
    partitions: Option<u16>,
    /// Name of a new cluster [default: braid]
    #[arg(long)]
    name: Option<String>,
    /// Empty directory to mount the file system on
    #[arg(long, value_name = "PATH")]
    mount: Option<PathBuf>,
    /// File system to mount; made when the cluster has none
    #[arg(long, value_name = "NAME", default_value = "default")]
    fs: String,
    /// Port of the REST interface on this machine; 0 takes a free one
    #[arg(long, value_name = "PORT", default_value_t = 14000)]
    admin_port: u16,
    /// Return once the cluster and its mount answer; it goes on in the background
    #[arg(long, short)]
    detach: bool,
    /// Rebuild the coordinator from its backup, after its damaged file was moved away
    #[arg(long)]
    recover: bool,
    /// Tell the parent process on stdout (internal)
    #[arg(long, hide = true)]
    announce: bool,
}

pub fn run(whole: &Whole, up: &Up) -> Outcome {
    begin(whole, order(whole, up)?, (up.announce, up.detach))
}

/// Runs `order` here, or in the background: as the one that was started for it, or by starting that.
pub fn begin(whole: &Whole, order: Order, (announce, detach): (bool, bool)) -> Outcome {
    if announce {
        return background(order);
    }
    if detach {
        // Most refusals come from here, straight and without a log.
        serve::check(&order)?;
        return print(whole, &detach::start(&detach::log_path(order.what.dir()), &detach::own_words())?);
    }
    foreground(whole, order)
}

fn order(whole: &Whole, up: &Up) -> Result<Order, Failure> {
    let said = up
        .cluster_dir
        .clone()
        .or_else(|| whole.dir.clone())
        .or_else(|| std::env::var_os("BRAID_DIR").map(PathBuf::from));
    let dir = absolute(&said.ok_or_else(|| Failure::usage("which directory? say `braid up DIR`"))?)?;
    // Links are resolved as far as the directory exists, so that a cluster has one name.
    let dir = dir.canonicalize().unwrap_or(dir);
    let given = up.drive.iter().map(|path| {
        let whole = absolute(path)?;
        Ok(whole.canonicalize().unwrap_or(whole))
    });
    let wish = Wish {
        name: up.name.clone(),
        drives: up.drives,
        drive_bytes: up.drive_size,
        given: given.collect::<Result<Vec<_>, Failure>>()?,
        abandon: up.abandon.iter().map(|drive| number(drive).map(DriveId)).collect::<Result<Vec<_>, Failure>>()?,
        protection: up.protection,
        partitions: up.partitions,
        cores: thread::available_parallelism().map_or(1, usize::from),
        host: rustix::system::uname().nodename().to_string_lossy().into_owned(),
    };
    let mount = up.mount.as_deref().map(absolute).transpose()?;
    let options = Options { dir, wish, recover: up.recover };
    Ok(Order { what: What::Up(options), mount, filesystem: up.fs.clone(), port: up.admin_port })
}

/// `path`, said in full.
pub fn absolute(path: &Path) -> Result<PathBuf, Failure> {
    std::path::absolute(path).map_err(|error| Failure::usage(format!("{}: {error}", path.display())))
}

/// Runs here until a signal comes.
fn foreground(whole: &Whole, order: Order) -> Outcome {
    start_log();
    let progress = Arc::new(Progress::new("starting"));
    let heard = progress.clone();
    let say: Say = Arc::new(move |step: &str| heard.say(step));
    let json = whole.json;
    let ready = move |ready: Ready| {
        drop(progress);
        let whole = Whole { dir: None, json };
        print(&whole, &ready).map_err(|failure| io::Error::other(failure.message))
    };
    Ok(serve::run(order, say, ready)?)
}

/// Runs as the child of `up --detach`.
fn background(order: Order) -> Outcome {
    detach::leave_session();
    start_log();
    let told = Arc::new(AtomicBool::new(false));
    let hung_up = Arc::clone(&told);
    let say: Say = Arc::new(move |step: &str| {
        tracing::info!("{step}");
        // A parent that is gone is noticed when all is ready; one that was told goes.
        if !hung_up.load(Ordering::Relaxed) {
            let _ = detach::tell(&Line::Step(step.to_owned()));
        }
    });
    let ready = move |ready: Ready| {
        detach::tell(&Line::Ready(Box::new(ready)))?;
        told.store(true, Ordering::Relaxed);
        detach::hang_up();
        Ok(())
    };
    let done = serve::run(order, say, ready).map_err(Failure::from);
    if let Err(failure) = &done {
        tracing::error!("{failure}");
        // After `ready` this goes to the log, and before that to the parent; if that is gone, nobody asks.
        let _ = detach::tell(&Line::Failed { code: failure.code, message: failure.message.clone() });
        return Err(Failure { code: failure.code, message: String::new() });
    }
    done
}

fn print(whole: &Whole, ready: &Ready) -> Outcome {
    if whole.json {
        return out::json(ready);
    }
    if ready.state == WAITING {
        let dir = ready.dir.display();
        if !ready.problems.is_empty() {
            return out::lines(&[format!("host in {dir} waits, pid {}: {}", ready.pid, ready.problems.join("; "))]);
        }
        return out::lines(&[
            format!("host in {dir} waits to be taken into a cluster, pid {}", ready.pid),
            "`braid cluster create HOST... --etcd URL` makes one of all that wait".to_owned(),
        ]);
    }
    let state = paint(&ready.state, tone_of(&ready.state));
    let mut lines =
        vec![format!("cluster in {} is up: {state}, pid {}, admin {}", ready.dir.display(), ready.pid, ready.admin)];
    lines.extend(ready.problems.iter().map(|problem| format!("  {problem}")));
    if let (Some(filesystem), Some(mount)) = (&ready.filesystem, &ready.mount) {
        lines.push(format!("file system {filesystem} is mounted on {}", mount.display()));
    } else {
        lines.push("nothing is mounted: `braid mount default PATH` does that".to_owned());
    }
    out::lines(&lines)
}

/// Log lines on stderr, at level info or as BRAID_LOG says; one kind of panic is reported as an error instead.
pub fn start_log() {
    let filter = EnvFilter::try_from_env("BRAID_LOG").unwrap_or_else(|_| EnvFilter::new("info"));
    // A line that the log has no room for is lost. To say so on stderr too, which is the log, would end the thread.
    let log = tracing_subscriber::fmt().with_env_filter(filter).with_writer(io::stderr).log_internal_errors(false);
    // Set already means that a test did so.
    let _ = log.with_ansi(io::IsTerminal::is_terminal(&io::stderr())).try_init();
    let usual = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |info| {
        if thread::current().name() != Some(CHECKER) {
            usual(info);
        }
    }));
}
