//! A byte stream to the other side: a Unix socket or TCP, which differ in nothing but how they are made.

use std::fmt;
use std::fs::{self, File};
use std::io::{self, IoSlice};
use std::net::SocketAddr;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use braid_base::{Error, Result};
use braid_io::buf::AlignedBuf;
use tokio::io::Interest;
use tokio::net::{TcpListener, TcpStream, UnixListener, UnixStream};

/// Longest path of a socket, bytes: `sun_path` less the NUL.
const PATH_MAX: usize = 107;

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
    /// At a port.
    Tcp(TcpListener),
}

/// One connection.
pub enum Stream {
    Unix(UnixStream),
    Tcp(TcpStream),
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
                    return Ok(Stream::Unix(stream));
                }
                tracing::warn!("a process of user {peer} was turned away from the client socket");
            },
            Self::Tcp(listener) => {
                let (stream, _) = listener.accept().await?;
                stream.set_nodelay(true)?;
                Ok(Stream::Tcp(stream))
            }
        }
    }
}

impl Stream {
    /// Connects to `address`.
    pub(crate) async fn connect(address: &Address) -> Result<Self> {
        let connected = async {
            Ok(match address {
                Address::Unix(path) => {
                    let (_dir, short) = shortened(path)?;
                    Self::Unix(UnixStream::connect(&short).await?)
                }
                Address::Tcp(at) => {
                    let stream = TcpStream::connect(at).await?;
                    stream.set_nodelay(true)?;
                    Self::Tcp(stream)
                }
            })
        };
        connected.await.map_err(|error: io::Error| Error::os(format_args!("connecting to {address}"), &error))
    }

    pub(crate) async fn readable(&self) -> io::Result<()> {
        match self {
            Self::Unix(stream) => stream.readable().await,
            Self::Tcp(stream) => stream.readable().await,
        }
    }

    pub(crate) async fn writable(&self) -> io::Result<()> {
        match self {
            Self::Unix(stream) => stream.writable().await,
            Self::Tcp(stream) => stream.writable().await,
        }
    }

    /// Reads into `buf`, at most `most` bytes. `WouldBlock`: ask again when readable.
    pub(crate) fn try_read(&self, buf: &mut AlignedBuf, most: usize) -> io::Result<usize> {
        let mut got = 0;
        let read = || {
            got = buf.read_from(self.as_fd(), most)?;
            // Less than there was room for: the socket is empty. Saying so saves the call that would find it out.
            if (1..most).contains(&got) { Err(io::ErrorKind::WouldBlock.into()) } else { Ok(got) }
        };
        let result = match self {
            Self::Unix(stream) => stream.try_io(Interest::READABLE, read),
            Self::Tcp(stream) => stream.try_io(Interest::READABLE, read),
        };
        if got > 0 { Ok(got) } else { result }
    }

    /// Writes some of `pieces`. `WouldBlock`: ask again when writable.
    pub(crate) fn try_write(&self, pieces: &[IoSlice<'_>]) -> io::Result<usize> {
        match self {
            Self::Unix(stream) => stream.try_write_vectored(pieces),
            Self::Tcp(stream) => stream.try_write_vectored(pieces),
        }
    }

    /// Ends both directions: whoever reads or writes hears of it.
    pub(crate) fn shut_down(&self) {
        // Closed already is just as well.
        let _ = rustix::net::shutdown(self.as_fd(), rustix::net::Shutdown::Both);
    }
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
            Self::Unix(stream) => stream.as_fd(),
            Self::Tcp(stream) => stream.as_fd(),
        }
    }
}
