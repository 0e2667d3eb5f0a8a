//! A byte stream to the other side: a socket, or TLS over one, which differ in nothing but how they are made.

use std::fmt;
use std::fs::{self, File};
use std::io::{self, IoSlice};
use std::net::SocketAddr;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use braid_base::ids::{Guid, HostId};
use braid_base::{Error, ErrorKind, Result};
use braid_io::buf::AlignedBuf;
use tokio::net::{TcpListener, UnixListener, UnixStream};

use crate::limits::HELLO_MS;
use crate::socket::{self, Socket};
use crate::tls::{Channel, Client, Peer, Server};

/// Longest path of a socket, bytes: `sun_path` less the NUL.
const PATH_MAX: usize = 107;

/// Longest record of TLS with its head and tag, bytes (RFC 8446, 5.2).
const RECORD_MAX: usize = (16 << 10) + 261;

/// Where a server listens.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Address {
    /// A socket in the file system.
    Unix(PathBuf),
    /// A host and port.
    Tcp(SocketAddr),
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unix(path) => write!(f, "{}", path.display()),
            Self::Tcp(at) => write!(f, "{at}"),
        }
    }
}

/// What accepts connections.
pub enum Listener {
    /// At a path.
    Unix(UnixListener),
    /// At a port, in clear.
    Tcp(TcpListener),
    /// At a port, with TLS.
    Tls(TcpListener, Server),
}

/// One connection.
pub enum Stream {
    /// In clear; `proves`: nothing can happen to the bytes on their way.
    Plain { socket: Socket, proves: bool },
    /// Secured.
    Tls(Box<Channel>),
}

/// A connection that came in, after what had to be done to secure it.
pub(crate) enum Arrived {
    /// As it should be, and who it is.
    As(Stream, Peer),
    /// In clear, where TLS is asked for.
    InClear(Stream),
}

impl Listener {
    /// Listens at `path`, which only the owner may use; what an earlier server left there is replaced.
    pub fn unix(path: &Path) -> Result<Self> {
        let failed = |error: io::Error| Error::os(path.display(), &error);
        match fs::remove_file(path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(failed(error)),
            _ => {}
        }
        let (_dir, short) = shortened(path).map_err(failed)?;
        let listener = UnixListener::bind(&short).map_err(failed)?;
        fs::set_permissions(path, fs::Permissions::from_mode(0o600)).map_err(failed)?;
        Ok(Self::Unix(listener))
    }

    /// The next connection. One over a Unix socket must come from root or the server's own user: others are closed.
    pub(crate) async fn accept(&self) -> io::Result<Stream> {
        match self {
            Self::Unix(listener) => loop {
                let (stream, _) = listener.accept().await?;
                let (peer, own) = (stream.peer_cred()?.uid(), rustix::process::geteuid().as_raw());
                if peer == 0 || peer == own {
                    return Ok(Stream::Plain { socket: Socket::Unix(stream), proves: true });
                }
                tracing::warn!("a process of user {peer} was turned away from the client socket");
            },
            Self::Tcp(listener) | Self::Tls(listener, _) => {
                let (stream, _) = listener.accept().await?;
                stream.set_nodelay(true)?;
                Ok(Stream::Plain { socket: Socket::Tcp(stream), proves: false })
            }
        }
    }

    /// Its connections send without timers, where it is one of a network.
    pub(crate) fn unpaced(&self) {
        if let Self::Tcp(listener) | Self::Tls(listener, _) = self {
            socket::unpaced(listener);
        }
    }

    /// What its connections have to be secured with, each in a task of its own: a handshake takes its time.
    pub(crate) fn tls(&self) -> Option<Server> {
        match self {
            Self::Tls(_, server) => Some(server.clone()),
            Self::Unix(_) | Self::Tcp(_) => None,
        }
    }
}

impl Stream {
    /// What goes over `socket` goes over networks further on.
    pub(crate) fn through(socket: UnixStream) -> Self {
        Self::Plain { socket: Socket::Unix(socket), proves: false }
    }

    /// True if what comes out is what went in, or an error: the kernel copies it within this machine, or TLS signs it. A
    /// checksum of bulk data beside that would only be another pass over memory.
    pub(crate) fn proves(&self) -> bool {
        match self {
            Self::Plain { proves, .. } => *proves,
            Self::Tls(_) => true,
        }
    }

    /// Connects to `address`.
    pub(crate) async fn connect(address: &Address) -> Result<Self> {
        let socket = dial(address).await?;
        let proves = matches!(socket, Socket::Unix(_));
        Ok(Self::Plain { socket, proves })
    }

    /// The server's handshake, where there is one.
    pub(crate) async fn arrived(self, tls: Option<&Server>) -> Result<Arrived> {
        let (socket, tls) = match (self, tls) {
            (Self::Plain { socket: Socket::Tcp(socket), .. }, Some(tls)) => (socket, tls),
            (stream, _) => return Ok(Arrived::As(stream, Peer::Anonymous)),
        };
        let failed = |error: io::Error| Error::os("the TLS handshake", &error);
        let from = socket.peer_addr().map_err(failed)?;
        let secured = async {
            let mut first = [0];
            // Frames begin with the B of Braid, no handshake of TLS does.
            if socket.peek(&mut first).await.map_err(failed)? == 1 && first == *b"B" {
                return Ok(Arrived::InClear(Self::Plain { socket: Socket::Tcp(socket), proves: false }));
            }
            let (channel, peer) = Channel::server(Socket::Tcp(socket), tls).await?;
            Ok(Arrived::As(Self::Tls(Box::new(channel)), peer))
        };
        within(secured).await.map_err(|error| error.within(from))
    }

    /// The client's handshake with `host` of `cluster`, or any of its hosts.
    pub(crate) async fn secure(self, tls: &Client, cluster: Guid, host: Option<HostId>) -> Result<Self> {
        let Self::Plain { socket, proves: false } = self else {
            return Err(Error::new(ErrorKind::Invalid, "TLS is for networks: a Unix socket does without"));
        };
        Ok(Self::Tls(Box::new(within(Channel::client(socket, tls, cluster, host)).await?)))
    }

    pub(crate) async fn readable(&self) -> io::Result<()> {
        match self {
            Self::Plain { socket, .. } => socket.readable().await,
            Self::Tls(channel) => channel.readable().await,
        }
    }

    pub(crate) async fn writable(&self) -> io::Result<()> {
        match self {
            Self::Plain { socket, .. } => socket.writable().await,
            Self::Tls(channel) => channel.writable().await,
        }
    }

    /// Counts as readable only when so many bytes of a message are there.
    pub(crate) fn wake_from(&self, bytes: usize) -> io::Result<()> {
        match self {
            Self::Plain { socket, .. } => socket.wake_from(bytes),
            // Up to a record of it was taken in already.
            Self::Tls(channel) => channel.wake_from(bytes.saturating_sub(RECORD_MAX).max(1)),
        }
    }

    /// Reads into `buf`, at most `most` bytes. `WouldBlock`: ask again when readable.
    pub(crate) fn try_read(&self, buf: &mut AlignedBuf, most: usize) -> io::Result<usize> {
        match self {
            Self::Plain { socket, .. } => socket.try_read(most, |fd| buf.read_from(fd, most)),
            Self::Tls(channel) => channel.try_read(buf, most),
        }
    }

    /// Writes some of `pieces`. `WouldBlock`: ask again when writable.
    pub(crate) fn try_write(&self, pieces: &[IoSlice<'_>]) -> io::Result<usize> {
        match self {
            Self::Plain { socket, .. } => socket.try_write(pieces),
            Self::Tls(channel) => channel.try_write(pieces),
        }
    }

    /// Writes what [`Self::try_write`] took and the kernel has not: TLS has records, which may be half written.
    /// `WouldBlock`: ask again when writable.
    pub(crate) fn flush(&self) -> io::Result<()> {
        match self {
            Self::Plain { .. } => Ok(()),
            Self::Tls(channel) => channel.flush(),
        }
    }

    /// Ends both directions: whoever reads or writes hears of it.
    pub(crate) fn shut_down(&self) {
        if let Self::Tls(channel) = self {
            channel.say_end();
        }
        // Closed already is just as well.
        let _ = rustix::net::shutdown(self.as_fd(), rustix::net::Shutdown::Both);
    }
}

/// Connects to `address`.
pub(crate) async fn dial(address: &Address) -> Result<Socket> {
    let connected = async {
        Ok(match address {
            Address::Unix(path) => {
                let (_dir, short) = shortened(path)?;
                Socket::Unix(UnixStream::connect(&short).await?)
            }
            Address::Tcp(at) => Socket::Tcp(socket::connect(*at).await?),
        })
    };
    connected.await.map_err(|error: io::Error| Error::os(format_args!("connecting to {address}"), &error))
}

/// Nobody may hold up a handshake.
async fn within<T>(handshake: impl Future<Output = Result<T>>) -> Result<T> {
    let late = |_| Error::new(ErrorKind::TimedOut, format!("the TLS handshake was not done within {HELLO_MS} ms"));
    tokio::time::timeout(Duration::from_millis(HELLO_MS), handshake).await.map_err(late)?
}

/// The kernel takes at most 107 bytes as the path of a socket: a longer one is named through its open directory, which
/// must stay open while the name is used.
fn shortened(path: &Path) -> io::Result<(Option<File>, PathBuf)> {
    let (Some(dir), Some(name)) = (path.parent(), path.file_name()) else { return Ok((None, path.to_owned())) };
    if path.as_os_str().len() <= PATH_MAX {
        return Ok((None, path.to_owned()));
    }
    let dir = File::open(dir)?;
    let short = Path::new("/proc/self/fd").join(dir.as_raw_fd().to_string()).join(name);
    Ok((Some(dir), short))
}

impl AsFd for Stream {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            Self::Plain { socket, .. } => socket.as_fd(),
            Self::Tls(channel) => channel.as_fd(),
        }
    }
}
