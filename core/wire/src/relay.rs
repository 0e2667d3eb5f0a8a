//! A way to a host by way of another one, for whoever cannot connect to it itself.
//!
//! Who relays carries bytes and learns nothing from them: both ends do their TLS and their greeting with each other,
//! through what is carried. Between who asked for it and who relays it goes in frames, over a connection with a greeting
//! and TLS of its own: nobody else is relayed anywhere. From there on it is a connection like any other.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use braid_base::ids::HostId;
use braid_base::{Error, ErrorKind, Result};
use braid_io::buf::AlignedBuf;
use bytes::Bytes;
use tokio::net::UnixStream;

use crate::codec::Encoded;
use crate::frame::Kind;
use crate::hello::Caller;
use crate::intake::Intake;
use crate::limits::{CARRIED_AT_ONCE, CARRIED_MAX, CHANNEL_BESIDE, CONNECT_MS};
use crate::link::{Link, Parcel};
use crate::socket::Socket;
use crate::stream::{Address, Stream, dial};
use crate::trunk::{Target, greet};

/// Who may relay to a host.
pub(crate) struct Relays {
    to: HostId,
    others: Box<dyn Fn() -> Vec<Target> + Send + Sync>,
    turn: AtomicUsize,
}

impl Relays {
    /// The host.
    pub(crate) fn to(&self) -> HostId {
        self.to
    }

    /// To host `to`; `others`: those that are reached themselves now.
    pub(crate) fn new(to: HostId, others: Box<dyn Fn() -> Vec<Target> + Send + Sync>) -> Self {
        Self { to, others, turn: AtomicUsize::new(0) }
    }

    /// Connects to the host by way of one of the others, each time another; `why` it is not reached itself. Must be called
    /// in a tokio runtime, which then carries the bytes. Errors: that nobody else is reached, or does not reach it either.
    pub(crate) async fn connect(&self, why: &Error) -> Result<Stream> {
        let mut others = (self.others)();
        if others.is_empty() {
            return Err(Error::new(ErrorKind::Stopped, "no other host is reached"));
        }
        let by = others.swap_remove(self.turn.fetch_add(1, Ordering::Relaxed) % others.len());
        let stream = Stream::connect(&by.address).await?;
        let (link, mut intake, _) = greet(stream, &by, Caller::Relay(self.to), CHANNEL_BESIDE).await?;
        let (near, far) = UnixStream::pair().map_err(|error| Error::os("a pair of sockets", &error))?;
        tokio::spawn(async move { carry(&link, &mut intake, Socket::Unix(far)).await });
        tracing::warn!(
            "host {} is not reached from here ({why}): what is for it goes by way of {}",
            self.to,
            by.address
        );
        Ok(Stream::through(near))
    }
}

/// Connects to where somebody wants to be relayed.
pub(crate) async fn reach(address: &Address) -> Result<Socket> {
    connect_in_time(address, dial(address)).await
}

/// What connects to `address`, if it does soon.
pub(crate) async fn connect_in_time<T>(address: &Address, connecting: impl Future<Output = Result<T>>) -> Result<T> {
    let late = |_| Error::new(ErrorKind::TimedOut, format!("{address} took no connection within {CONNECT_MS} ms"));
    tokio::time::timeout(Duration::from_millis(CONNECT_MS), connecting).await.map_err(late)?
}

/// Carries bytes between `link`, where they go in frames, and `socket`, until either ends.
pub(crate) async fn carry(link: &Arc<Link>, intake: &mut Intake, socket: Socket) {
    let why = tokio::select! {
        Err(why) = there(link, intake, &socket) => why,
        Err(why) = back(link, &socket) => why,
    };
    tracing::debug!("what was relayed has ended: {why}");
    link.close();
}

async fn there(link: &Link, intake: &mut Intake, socket: &Socket) -> Result<std::convert::Infallible> {
    loop {
        let frame = link.heard(intake).await?;
        match frame.header.kind {
            Kind::Carried => write_all(socket, frame.data).await?,
            other => return Err(Error::new(ErrorKind::Corrupt, format!("what is relayed does not go as {other:?}"))),
        }
    }
}

async fn write_all(socket: &Socket, mut data: Bytes) -> Result<()> {
    while !data.is_empty() {
        let written = async {
            socket.writable().await?;
            socket.try_write(&[std::io::IoSlice::new(&data)])
        };
        match written.await {
            Ok(written) => drop(data.split_to(written)),
            Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {}
            Err(error) => return Err(broken(&error)),
        }
    }
    Ok(())
}

async fn back(link: &Arc<Link>, socket: &Socket) -> Result<std::convert::Infallible> {
    loop {
        link.room(CARRIED_MAX).await;
        socket.readable().await.map_err(|error| broken(&error))?;
        let mut buf = AlignedBuf::with_capacity(CARRIED_AT_ONCE);
        match socket.try_read(CARRIED_AT_ONCE, |fd| buf.read_from(fd, CARRIED_AT_ONCE)) {
            Ok(0) => {
                // Its last word, which may say why.
                link.room(1).await;
                return Err(Error::new(ErrorKind::Stopped, "the other side has closed the connection"));
            }
            Ok(_) => {
                let message = Encoded { meta: Vec::new(), data: vec![buf.into_bytes()] };
                link.send(Parcel { kind: Kind::Carried, id: 0, target: 0, message, check_data: true }, false);
            }
            Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {}
            Err(error) => return Err(broken(&error)),
        }
    }
}

fn broken(error: &std::io::Error) -> Error {
    Error::os("a relayed connection", error)
}
