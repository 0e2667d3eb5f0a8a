//! What carries bytes below TLS: a socket of this machine, or TCP.

use std::io::{self, IoSlice};
use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd};

use braid_io::socket;
use rustix::net::sockopt;
use tokio::io::Interest;
use tokio::net::{TcpSocket, TcpStream, UnixStream};

/// A connected socket.
pub enum Socket {
    /// Within this machine.
    Unix(UnixStream),
    /// Over a network.
    Tcp(TcpStream),
}

/// Ways of the kernel to say how fast a connection may send which set a timer for what they send, and what is taken in
/// place of them.
const PACED: [&str; 2] = ["bbr", "bbr1"];
const UNPACED: &str = "cubic";

/// A connection to `at`.
pub(crate) async fn connect(at: SocketAddr) -> io::Result<TcpStream> {
    let socket = if at.is_ipv4() { TcpSocket::new_v4()? } else { TcpSocket::new_v6()? };
    unpaced(&socket);
    let stream = socket.connect(at).await?;
    stream.set_nodelay(true)?;
    Ok(stream)
}

/// What `socket` connects to or accepts from now on sends as fast as its window lets it (decision 56). To be said
/// before there is a connection: one that began with timers keeps them.
pub(crate) fn unpaced(socket: impl AsFd) {
    let Ok(way) = sockopt::tcp_congestion(&socket) else { return };
    if PACED.contains(&way.as_str())
        && let Err(error) = sockopt::set_tcp_congestion(&socket, UNPACED)
    {
        tracing::debug!("connections send by {way}, with a timer each: {UNPACED} is not to be had: {error}");
    }
}

impl Socket {
    pub(crate) async fn readable(&self) -> io::Result<()> {
        match self {
            Self::Unix(socket) => socket.readable().await,
            Self::Tcp(socket) => socket.readable().await,
        }
    }

    pub(crate) async fn writable(&self) -> io::Result<()> {
        match self {
            Self::Unix(socket) => socket.writable().await,
            Self::Tcp(socket) => socket.writable().await,
        }
    }

    /// Reads by `read`, which says how many bytes it got. Less than `room`, and it is empty: known without another call
    /// of the kernel. `WouldBlock`: ask again when readable.
    pub(crate) fn try_read(
        &self,
        room: usize,
        read: impl FnOnce(BorrowedFd<'_>) -> io::Result<usize>,
    ) -> io::Result<usize> {
        let mut got = 0;
        let once = || {
            got = read(self.as_fd())?;
            if (1..room).contains(&got) { Err(io::ErrorKind::WouldBlock.into()) } else { Ok(got) }
        };
        let result = match self {
            Self::Unix(socket) => socket.try_io(Interest::READABLE, once),
            Self::Tcp(socket) => socket.try_io(Interest::READABLE, once),
        };
        if got > 0 { Ok(got) } else { result }
    }

    /// Writes some of `pieces`. `WouldBlock`: ask again when writable.
    pub(crate) fn try_write(&self, pieces: &[IoSlice<'_>]) -> io::Result<usize> {
        match self {
            Self::Unix(socket) => socket.try_write_vectored(pieces),
            Self::Tcp(socket) => socket.try_write_vectored(pieces),
        }
    }

    /// Counts as readable only when so many bytes are there. (A Unix socket is woken for each write of the other side.)
    pub(crate) fn wake_from(&self, bytes: usize) -> io::Result<()> {
        match self {
            Self::Unix(_) => Ok(()),
            Self::Tcp(tcp) => socket::set_receive_low_water(tcp, bytes),
        }
    }
}

impl AsFd for Socket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            Self::Unix(socket) => socket.as_fd(),
            Self::Tcp(socket) => socket.as_fd(),
        }
    }
}
