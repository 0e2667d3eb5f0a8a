//! TLS over a socket: the handshake, then reads and writes as those of a plain socket.
//!
//! Reader and writer use the connection at once. The state of TLS has a lock of its own, which is held to encrypt or
//! decrypt a batch and neither over a call of the kernel nor over an await.

use std::io::{self, IoSlice};
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use braid_base::ids::{Guid, HostId};
use braid_base::{Error, ErrorKind, Result};
use braid_io::buf::AlignedBuf;
use rustls::client::UnbufferedClientConnection;
use rustls::server::UnbufferedServerConnection;

use super::config::{Client, Peer, Server, explain, server_name};
use super::conn::{Buffer, Conn, Output, Side, Turn};
use crate::socket::Socket;

/// A connection after its handshake.
pub(crate) struct Channel {
    socket: Socket,
    /// Locked before `conn` where both are. One writer holds it at a time; who ends the connection only tries.
    out: Mutex<Output>,
    conn: Mutex<Conn>,
    /// A read has something to tell although the socket may have nothing.
    here: AtomicBool,
}

impl Channel {
    /// The client's handshake with `host` of `cluster`.
    pub(crate) async fn client(socket: Socket, tls: &Client, cluster: Guid, host: Option<HostId>) -> Result<Self> {
        let name = server_name(host, cluster)?;
        let side = UnbufferedClientConnection::new(tls.config.clone(), name).map_err(|error| explain(&error))?;
        let mut conn = Conn::new(Side::Client(side));
        shake(&socket, &mut conn).await?;
        Ok(Self::new(socket, conn))
    }

    /// The server's handshake, and who came.
    pub(crate) async fn server(socket: Socket, tls: &Server) -> Result<(Self, Peer)> {
        let side = UnbufferedServerConnection::new(tls.config.clone()).map_err(|error| explain(&error))?;
        let mut conn = Conn::new(Side::Server(side));
        shake(&socket, &mut conn).await?;
        let peer = tls.peer(conn.common().peer_certificates())?;
        Ok((Self::new(socket, conn), peer))
    }

    fn new(socket: Socket, conn: Conn) -> Self {
        // What came behind the handshake was read with it.
        Self { socket, out: Mutex::default(), conn: Mutex::new(conn), here: AtomicBool::new(true) }
    }

    /// Ready when a read may find something.
    pub(crate) async fn readable(&self) -> io::Result<()> {
        if self.here.load(Ordering::Acquire) { Ok(()) } else { self.socket.readable().await }
    }

    /// Ready when the socket takes more.
    pub(crate) async fn writable(&self) -> io::Result<()> {
        self.socket.writable().await
    }

    /// Counts as readable only when so many bytes are there.
    pub(crate) fn wake_from(&self, bytes: usize) -> io::Result<()> {
        self.socket.wake_from(bytes)
    }

    /// Reads into `buf`, at most `most` bytes. 0: the other side has closed, with a word or without: frames tell
    /// whether something is missing. `WouldBlock`: ask again when readable.
    pub(crate) fn try_read(&self, buf: &mut AlignedBuf, most: usize) -> io::Result<usize> {
        if self.here.load(Ordering::Acquire)
            && let Some(got) = self.decrypt(&mut self.conn(), buf, most)?
        {
            return Ok(got);
        }
        let mut raw = Buffer::take();
        let got = read(&self.socket, raw.room())?;
        if got == 0 {
            return Ok(0);
        }
        let mut conn = self.conn();
        conn.take_in(raw, got).map_err(said)?;
        self.decrypt(&mut conn, buf, most)?.ok_or_else(|| io::ErrorKind::WouldBlock.into())
    }

    /// `None`: the socket has to say more first.
    fn decrypt(&self, conn: &mut Conn, buf: &mut AlignedBuf, most: usize) -> io::Result<Option<usize>> {
        let got = conn.read(buf, most).map_err(said)?;
        self.here.store(conn.has_more(), Ordering::Release);
        Ok((got > 0 || conn.has_ended()).then_some(got))
    }

    /// Writes some of `pieces`; what the socket does not take of it now, [`Self::flush`] writes. `WouldBlock`: the
    /// socket has not taken yet what was written before.
    pub(crate) fn try_write(&self, pieces: &[IoSlice<'_>]) -> io::Result<usize> {
        let mut out = self.out.lock().unwrap_or_else(PoisonError::into_inner);
        self.flush_out(&mut out)?;
        // What this decrypts on its way the reader had left for later, so `here` says so already.
        let taken = self.conn().seal(pieces, &mut out).map_err(said)?;
        match self.flush_out(&mut out) {
            Err(error) if error.kind() != io::ErrorKind::WouldBlock => Err(error),
            _ => Ok(taken),
        }
    }

    /// Writes what was encrypted and the socket had not taken. `WouldBlock`: it still does not take all.
    pub(crate) fn flush(&self) -> io::Result<()> {
        self.flush_out(&mut self.out.lock().unwrap_or_else(PoisonError::into_inner))
    }

    fn flush_out(&self, out: &mut Output) -> io::Result<()> {
        while !out.is_empty() {
            match self.socket.try_write(&[IoSlice::new(out.bytes())]) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(written) => out.written(written),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Says goodbye if the socket takes it at once.
    pub(crate) fn say_end(&self) {
        // Whoever writes now finds the socket closed; half a record cannot be followed by a word either.
        let Ok(mut out) = self.out.try_lock() else { return };
        if self.flush_out(&mut out).is_ok() {
            // After a failure this is the alert that says which.
            let mut conn = self.conn();
            if conn.seal_end(&mut out).is_err() {
                conn.say(&mut out);
            }
            drop(conn);
            let _ = self.flush_out(&mut out);
        }
    }

    fn conn(&self) -> MutexGuard<'_, Conn> {
        self.conn.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl AsFd for Channel {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

/// Both sides' handshake. Whoever calls sets the time for it.
async fn shake(socket: &Socket, conn: &mut Conn) -> Result<()> {
    let broken = |error: io::Error| Error::os("the TLS handshake", &error);
    let (mut out, mut heard) = (Output::default(), false);
    loop {
        let turn = match conn.step() {
            Ok(Turn::Moved) => continue,
            Ok(turn) => turn,
            Err(error) => {
                // The alert that tells the other side.
                conn.say(&mut out);
                let _ = socket.try_write(&[IoSlice::new(out.bytes())]);
                return Err(explain(&error));
            }
        };
        conn.say(&mut out);
        while !out.is_empty() {
            socket.writable().await.map_err(broken)?;
            match socket.try_write(&[IoSlice::new(out.bytes())]) {
                Ok(written) => out.written(written),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(error) => return Err(broken(error)),
            }
        }
        if turn == Turn::Ready && !conn.common().is_handshaking() {
            return Ok(());
        }
        socket.readable().await.map_err(broken)?;
        let mut raw = Buffer::take();
        match read(socket, raw.room()) {
            Ok(0) => return Err(hung_up(heard)),
            Ok(got) => conn.take_in(raw, got).map_err(|error| explain(&error))?,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => continue,
            Err(error) if error.kind() == io::ErrorKind::ConnectionReset => return Err(hung_up(heard)),
            Err(error) => return Err(broken(error)),
        }
        heard = true;
    }
}

fn hung_up(heard: bool) -> Error {
    let words = if heard {
        "the other side ended the connection in the middle of the TLS handshake"
    } else {
        "the other side ended the connection instead of answering the TLS handshake: is that port served without TLS?"
    };
    Error::new(ErrorKind::Stopped, words)
}

fn read(socket: &Socket, buf: &mut [u8]) -> io::Result<usize> {
    socket.try_read(buf.len(), |fd| Ok(rustix::io::read(fd, buf)?))
}

/// As an error of the socket, with the sentence inside.
fn said(error: rustls::Error) -> io::Error {
    io::Error::other(explain(&error))
}
