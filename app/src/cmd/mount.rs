//! `braid mount`: one more mount of the running cluster, in its process or in one of its own.

use std::ffi::OsString;
use std::io::{Write, stderr};
use std::path::PathBuf;

use braid_cluster::view::{MountSpec, MountView};
use clap::Args;
use serde_json::json;

use crate::attach::{self, Order, Server};
use crate::client::Client;
use crate::cmd::up::start_log;
use crate::detach::{self, Line, Ready};
use crate::exit::{Failure, Outcome};
use crate::mount_options::MountOptions;
use crate::whole::Whole;
use crate::{mountpoint, out, progress};

#[derive(Args, Debug)]
#[command(after_help = OPTIONS)]
pub struct Mount {
    /// Name of the file system, or HOST[,HOST...]/FS for one of a cluster in the network
    fs: String,
    /// Empty directory to mount it on
    path: PathBuf,
    /// Serve the mount from a process of its own and not from that of the cluster
    #[arg(long)]
    own_process: bool,
    /// Stay in the foreground until it is unmounted (a process of its own)
    #[arg(long)]
    foreground: bool,
    /// Options, separated by commas; see below (a process of its own, but for `io_uring`)
    #[arg(short, value_name = "OPTIONS", default_value = "")]
    options: Vec<String>,
    /// Pass over unknown options (internal)
    #[arg(long, hide = true)]
    sloppy: bool,
    /// Source in the table of mounts (internal)
    #[arg(long, hide = true)]
    source: Option<String>,
    /// Tell the parent process on stdout (internal)
    #[arg(long, hide = true)]
    announce: bool,
}

/// The one option that a mount in the process of the cluster takes.
const IO_URING: &str = "io_uring";

const OPTIONS: &str = "\
Options (-o):
  ro, rw                        refuse changes, or not
  nosuid, nodev, noexec         as for every file system
  noatime, relatime             move access times only when set, or by the usual rule
  writecache                    reads and writes may be cached (default)
  readcache                     writes are durable when they return
  forcedirect                   nothing is cached
  sync_on_close                 close returns when everything is durable
  obs_direct                    what is in an object store only is read from there and does not come back to flash;
                                what is written leaves flash first
  dirsync                       names are durable when the call that made or removed them returns
  readahead_kb=N                the kernel reads ahead so much
  io_uring, noio_uring          take the kernel's requests over io_uring, or over /dev/fuse (default); the host must
                                allow it: echo 1 > /sys/module/fuse/parameters/enable_uring
  dentry_max_age_positive=MS    attributes are believed so long, names too, but 1000 at most (1000)
  dentry_max_age_negative=MS    that a name is missing is believed so long (0)
  qos_max_throughput_mbps=N     megabytes per second, read and written
  qos_max_ops=N                 reads and writes per second
  num_cores=N                   processors to work with (all): one does the same random reads and streams with less of
                                the processor, and fewer names and small files a second
  auth_token_path=FILE          what lets the client in over the network (/etc/braid/client.json): a copy of
                                client.json in the directory of any host
Generic options of mount(8), such as _netdev, nofail and x-systemd.*, are passed over.
The same as `mount -t braid HOST[,HOST...]/FS PATH -o ...`, or CLUSTERDIR/FS, and in /etc/fstab.";

/// A mount in a process of its own.
pub struct Wish {
    /// Of which cluster.
    pub server: Server,
    /// The file system.
    pub filesystem: String,
    /// Where; checked.
    pub path: PathBuf,
    /// How.
    pub options: MountOptions,
    /// The same as it was said.
    pub words: String,
    /// Unknown words were passed over.
    pub sloppy: bool,
    /// The source in the table of mounts, if not the usual one.
    pub source: Option<String>,
}

pub fn run(whole: &Whole, mount: &Mount) -> Outcome {
    let (server, filesystem) = match mount.fs.rsplit_once('/') {
        Some((server, filesystem)) => (Server::parse(server), filesystem.to_owned()),
        None => (Server::Dir(Client::find(whole.dir.as_deref())?.dir), mount.fs.clone()),
    };
    // The process has another working directory, so it gets the whole path.
    let path = mountpoint::check(&mount.path, server.dir())?;
    let words: Vec<&str> = mount.options.iter().map(String::as_str).filter(|word| !word.is_empty()).collect();
    let words = words.join(",");
    if mount.own_process || mount.foreground || mount.fs.contains('/') {
        let options = MountOptions::parse(&words, mount.sloppy).map_err(Failure::usage)?;
        if !mount.announce {
            warn_of(&options);
        }
        let sloppy = mount.sloppy;
        let wish = Wish { server, filesystem, path, options, words, sloppy, source: mount.source.clone() };
        return match (mount.announce, mount.foreground) {
            (true, _) => as_child(wish),
            (false, true) => in_foreground(whole, wish),
            (false, false) => print(whole, &in_background(&wish)?),
        };
    }
    if !matches!(words.as_str(), "" | IO_URING) {
        let only = "-o: a mount in the cluster's process takes no option but io_uring: say --own-process";
        return Err(Failure::usage(only));
    }
    warn_of(&MountOptions { io_uring: words == IO_URING, ..MountOptions::default() });
    let path = path.to_string_lossy().into_owned();
    let spec = MountSpec { filesystem: mount.fs.clone(), path, io_uring: words == IO_URING };
    let client = Client::at(server.dir())?;
    let made: MountView = progress::during("mounting", || client.send("POST", "/mounts", &spec))?;
    if whole.json {
        return out::json(&made);
    }
    out::lines(&[format!("file system {} is mounted on {}", made.filesystem, made.path)])
}

/// Tells on stderr what this host will not do of what is asked; the mount goes on without.
pub fn warn_of(options: &MountOptions) {
    if let Some(why) = options.io_uring.then(braid_fuse::io_uring_refused).flatten() {
        // Whoever closed stderr does not want to know.
        let _ = writeln!(stderr(), "warning: io_uring: {why}; the mount goes on over /dev/fuse");
    }
}

/// Starts the process and waits until the mount answers.
pub fn in_background(wish: &Wish) -> Result<Ready, Failure> {
    let mut words: Vec<OsString> = ["mount", "--own-process", detach::CHILD_OPTION].map(OsString::from).to_vec();
    let filesystem = match &wish.server {
        Server::Dir(dir) => {
            words.extend([OsString::from("--dir"), dir.into()]);
            wish.filesystem.clone()
        }
        Server::Hosts(hosts) => format!("{}/{}", hosts.join(","), wish.filesystem),
    };
    if !wish.words.is_empty() {
        words.extend([OsString::from("-o"), wish.words.clone().into()]);
    }
    if wish.sloppy {
        words.push("--sloppy".into());
    }
    if let Some(source) = &wish.source {
        words.extend([OsString::from("--source"), source.into()]);
    }
    words.extend([OsString::from("--"), filesystem.into(), wish.path.clone().into()]);
    detach::start(&wish.server.log_path(), &words)
}

fn as_child(wish: Wish) -> Outcome {
    detach::leave_session();
    start_log();
    let ready = |ready: Ready| {
        detach::tell(&Line::Ready(Box::new(ready)))?;
        detach::hang_up();
        Ok(())
    };
    let done = attach::run(&order(wish), ready);
    if let Err(failure) = &done {
        tracing::error!("{failure}");
        // After `ready` this goes to the log, and before that to the parent; if that is gone, nobody asks.
        let _ = detach::tell(&Line::Failed { code: failure.code, message: failure.message.clone() });
    }
    done.map_err(|failure| Failure { code: failure.code, message: String::new() })
}

fn in_foreground(whole: &Whole, wish: Wish) -> Outcome {
    start_log();
    attach::run(&order(wish), |ready| print(whole, &ready).map_err(|failure| std::io::Error::other(failure.message)))
}

fn order(wish: Wish) -> Order {
    let Wish { server, filesystem, path, options, source, .. } = wish;
    Order { server, filesystem, path, options, source }
}

fn print(whole: &Whole, ready: &Ready) -> Outcome {
    let (filesystem, mount) =
        (ready.filesystem.as_deref().unwrap_or_default(), ready.mount.clone().unwrap_or_default());
    if whole.json {
        return out::json(&json!({ "filesystem": filesystem, "path": mount, "pid": ready.pid }));
    }
    out::lines(&[format!("file system {filesystem} is mounted on {} by process {}", mount.display(), ready.pid)])
}
