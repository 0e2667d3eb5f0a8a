//! `braid backend`: this host's part of a cluster of several.

use std::net::{SocketAddr, TcpListener, UdpSocket};
use std::path::{Path, PathBuf};

use clap::Args;

use crate::cmd::up;
use crate::exit::{Failure, Outcome};
use crate::measure::parse_size;
use crate::node::backend::{MARK, Options};
use crate::node::certificate::join_secret;
use crate::reach::PORT;
use crate::serve::{Order, What};
use crate::whole::Whole;
use crate::workers::CORES_MAX;

/// Size of a drive file when none is asked for, bytes.
const DRIVE_BYTES: u64 = 4 << 30;

#[derive(Args, Debug)]
pub struct Backend {
    /// Directory of this host: logs, metadata, and drive files if any are made
    #[arg(value_name = "DIR")]
    host_dir: PathBuf,
    /// Members of etcd, such as http://10.0.0.1:2379 (repeat, or separate by commas)
    #[arg(long, value_name = "URL", value_delimiter = ',')]
    etcd: Vec<String>,
    /// Which of the clusters at that etcd [default: braid]
    #[arg(long, value_name = "NAME")]
    cluster: Option<String>,
    /// Name of this host [default: its name in the network]
    #[arg(long, value_name = "NAME")]
    host: Option<String>,
    /// What fails together with this host, such as its rack [default: this host alone]
    #[arg(long, value_name = "NAME")]
    failure_domain: Option<String>,
    /// Address and port for clients and other hosts [default: the address that faces etcd, port 14001]
    #[arg(long, value_name = "IP[:PORT]")]
    listen: Option<String>,
    /// Number of drive files to make in DIR
    #[arg(long, value_name = "N", conflicts_with = "drive")]
    drives: Option<usize>,
    /// Size of each drive file [default: 4GiB]
    #[arg(long, value_name = "SIZE", value_parser = parse_size, conflicts_with = "drive")]
    drive_size: Option<u64>,
    /// File or device to use as a drive (repeat for each)
    #[arg(long, value_name = "PATH")]
    drive: Vec<PathBuf>,
    /// File with the join secret, for a cluster whose hosts and clients talk over TLS (`braid cluster join-secret`)
    #[arg(long, value_name = "FILE")]
    join_secret_file: Option<PathBuf>,
    /// Processors to work with, as threads for network and drives; 1 where many processes share few processors
    /// [default: all]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=i64::from(CORES_MAX)))]
    cores: Option<u16>,
    /// Port of the REST interface on this machine; 0 takes a free one
    #[arg(long, value_name = "PORT", default_value_t = 14000)]
    admin_port: u16,
    /// Return once it serves, or waits to be taken into a cluster; it goes on in the background
    #[arg(long, short)]
    detach: bool,
    /// Tell the parent process on stdout (internal)
    #[arg(long, hide = true)]
    announce: bool,
}

pub fn run(whole: &Whole, backend: &Backend) -> Outcome {
    let dir = up::absolute(&backend.host_dir)?;
    let dir = dir.canonicalize().unwrap_or(dir);
    let remembered = Options::remembered(&dir)?;
    let options = merged(backend, &dir, remembered)?;
    let order =
        Order { what: What::Backend(options), mount: None, filesystem: String::new(), port: backend.admin_port };
    up::begin(whole, order, (backend.announce, backend.detach))
}

/// What is said now, else what was said when the host first started, else the usual.
fn merged(backend: &Backend, dir: &Path, remembered: Option<Options>) -> Result<Options, Failure> {
    let own = || rustix::system::uname().nodename().to_string_lossy().into_owned();
    let before = remembered.as_ref();
    let fixed =
        |option: &str, asked: &Option<String>, known: Option<&String>, usual: &dyn Fn() -> String| match (asked, known)
        {
            (Some(asked), Some(known)) if asked != known => {
                let (shown, message) = (dir.join(MARK), format!("{option} {asked}: this directory is that of {known}"));
                Err(Failure { code: crate::exit::REFUSED, message: format!("{message} (see {})", shown.display()) })
            }
            (Some(name), _) | (None, Some(name)) => Ok(name.clone()),
            (None, None) => Ok(usual()),
        };
    let etcd = match (&backend.etcd[..], before) {
        ([], None) => return Err(Failure::usage("which etcd? say --etcd http://HOST:2379")),
        ([], Some(before)) => before.etcd.clone(),
        (said, _) => said.to_vec(),
    };
    let name = fixed("--host", &backend.host, before.map(|b| &b.name), &own)?;
    let cluster = fixed("--cluster", &backend.cluster, before.map(|b| &b.cluster), &|| "braid".to_owned())?;
    let domain = fixed("--failure-domain", &backend.failure_domain, before.map(|b| &b.domain), &|| name.clone())?;
    let listen = match (&backend.listen, before) {
        (Some(said), _) => listen_at(said)?,
        (None, Some(before)) => before.listen.clone(),
        (None, None) => SocketAddr::new(facing(&etcd)?, PORT).to_string(),
    };
    let mut given = Vec::new();
    for path in &backend.drive {
        let path = up::absolute(path)?;
        given.push(path.canonicalize().unwrap_or(path));
    }
    let files = backend.drives.map(|count| (count, backend.drive_size.unwrap_or(DRIVE_BYTES)));
    let (given, files) = match before {
        Some(before) if given.is_empty() && files.is_none() => (before.given.clone(), before.files),
        _ => (given, files),
    };
    let join_secret = match &backend.join_secret_file {
        Some(file) => {
            let file = up::absolute(file)?;
            join_secret(&file)?;
            Some(file)
        }
        None => before.and_then(|before| before.join_secret.clone()),
    };
    let member = before.and_then(|before| before.member.clone());
    let cores = backend.cores.or_else(|| before.and_then(|before| before.cores));
    Ok(Options { dir: dir.to_owned(), member, join_secret, etcd, cluster, name, domain, listen, given, files, cores })
}

/// An address to listen at: others are told it, so it must be one that they can reach.
fn listen_at(said: &str) -> Result<String, Failure> {
    let at = crate::reach::resolve(said)?;
    if at.ip().is_unspecified() {
        return Err(Failure::usage(format!(
            "--listen {said}: other hosts must know where: say an address of this host"
        )));
    }
    // Port 0: whatever is free, and remembered.
    let free =
        |_| Failure::usage(format!("--listen {said}: nothing on this host has that address, or the port is taken"));
    match at.port() {
        0 => Ok(TcpListener::bind(at).and_then(|listener| listener.local_addr()).map_err(free)?.to_string()),
        _ => Ok(at.to_string()),
    }
}

/// The address of this host that faces etcd.
fn facing(etcd: &[String]) -> Result<std::net::IpAddr, Failure> {
    let place = etcd.first().map(|url| url.trim_start_matches("http://").trim_end_matches('/')).unwrap_or_default();
    let nowhere = |error: std::io::Error| Failure::usage(format!("etcd at {place}: {error}; see --etcd and --listen"));
    let to = crate::reach::resolve(place)?;
    let any: SocketAddr = if to.is_ipv4() { ([0, 0, 0, 0], 0).into() } else { ([0_u16; 8], 0).into() };
    // Nothing is sent: the system only says which way it would go.
    let socket = UdpSocket::bind(any).and_then(|socket| socket.connect(to).map(|()| socket)).map_err(nowhere)?;
    Ok(socket.local_addr().map_err(nowhere)?.ip())
}
