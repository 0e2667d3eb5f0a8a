//! A way to a host by way of another one, for whoever cannot connect to it itself.
//!
//! Who relays carries bytes and learns nothing from them: both ends do their TLS and their greeting with each other,
//! through what is carried. Between who asked for it and who relays it goes in frames, over a connection with a greeting
//! and TLS of its own: nobody else is relayed anywhere. From there on it is a connection like any other.

use std::convert::Infallible;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use braid_base::ids::HostId;
use braid_base::{Error, ErrorKind, Result};
use braid_io::buf::AlignedBuf;
use braid_io::clock::mono_ms;
use bytes::Bytes;
use tokio::net::UnixStream;

use crate::codec::Encoded;
use crate::entry::{Target, greet};
use crate::frame::{HEADER, Kind};
use crate::hello::Caller;
use crate::intake::Intake;
use crate::limits::{
    CARRIED_AT_ONCE, CARRIED_MAX, CHANNEL_BESIDE, CONNECT_MS, RELAY_PAUSE_FIRST_MS, RELAY_PAUSE_MAX_MS, RELAYS_TRIED,
    SILENCE_MS,
};
use crate::link::{Link, Parcel};
use crate::socket::Socket;
use crate::stream::{Address, Stream};

/// Reads of fewer bytes are copied: the buffer is worth more than they are.
const COPIED_BELOW: usize = CARRIED_AT_ONCE / 4;

/// Who may relay to a host.
pub(crate) struct Relays {
    to: HostId,
    others: Others,
    turn: AtomicUsize,
    /// None of them reached it: they are not asked before this time,
    not_before_ms: AtomicU64,
    /// after this pause.
    pause_ms: AtomicU64,
}

/// Those that are reached themselves now.
pub(crate) type Others = Box<dyn Fn() -> Vec<Target> + Send + Sync>;

impl Relays {
    /// To host `to`; `seed`: which of the others is asked first, not the same for everybody.
    pub(crate) fn new(to: HostId, seed: usize, others: Others) -> Self {
        let (turn, not_before_ms, pause_ms) = (AtomicUsize::new(seed), AtomicU64::new(0), AtomicU64::new(0));
        Self { to, others, turn, not_before_ms, pause_ms }
    }

    /// The host.
    pub(crate) fn to(&self) -> HostId {
        self.to
    }

    /// The others, the one whose turn it is first; none while there is no use in asking them.
    pub(crate) fn candidates(&self) -> Vec<Target> {
        if mono_ms() < self.not_before_ms.load(Ordering::Relaxed) {
            return Vec::new();
        }
        let mut others = (self.others)();
        let first = self.turn.load(Ordering::Relaxed) % others.len().max(1);
        others.rotate_left(first);
        others.truncate(RELAYS_TRIED);
        others
    }

    /// Connects to the host by way of the first of `candidates` that reaches it, and says which. Must be called in a tokio
    /// runtime, which then carries the bytes. Errors: what the last of them says; all are left in peace for a while.
    pub(crate) async fn connect(&self, candidates: Vec<Target>) -> Result<(Stream, Address)> {
        let mut why = Error::new(ErrorKind::Stopped, "no other host is reached");
        for by in candidates {
            self.turn.fetch_add(1, Ordering::Relaxed);
            match self.through(&by).await {
                Ok(stream) => return Ok((stream, by.address)),
                Err(error) => why = error.within(&by.address),
            }
        }
        let pause_ms = 2 * self.pause_ms.load(Ordering::Relaxed);
        let pause_ms = pause_ms.clamp(RELAY_PAUSE_FIRST_MS, RELAY_PAUSE_MAX_MS);
        self.pause_ms.store(pause_ms, Ordering::Relaxed);
        self.not_before_ms.store(mono_ms() + pause_ms, Ordering::Relaxed);
        Err(why)
    }

    async fn through(&self, by: &Target) -> Result<Stream> {
        let (near, far) = UnixStream::pair().map_err(|error| Error::os("a pair of sockets", &error))?;
        let stream = connect_in_time(&by.address, Stream::connect(&by.address)).await?;
        let (link, mut intake) = greet(stream, by, Caller::Relay(self.to), CHANNEL_BESIDE).await?;
        tokio::spawn(async move { carry(&link, &mut intake, Socket::Unix(far)).await });
        Ok(Stream::through(near))
    }

    /// The host is reached, this way or that.
    pub(crate) fn reached(&self) {
        self.pause_ms.store(0, Ordering::Relaxed);
    }
}

/// What connects to `address`, if it does soon.
pub(crate) async fn connect_in_time<T>(address: &Address, connecting: impl Future<Output = Result<T>>) -> Result<T> {
    let late = |_| Error::new(ErrorKind::TimedOut, format!("{address} took no connection within {CONNECT_MS} ms"));
    tokio::time::timeout(Duration::from_millis(CONNECT_MS), connecting).await.map_err(late)?
}

/// Carries bytes between `link`, where they go in frames, and `socket`, until either ends.
pub(crate) async fn carry(link: &Arc<Link>, intake: &mut Intake, socket: Socket) {
    intake.trust_up_to(HEADER + CARRIED_AT_ONCE);
    let why = tokio::select! {
        Err(why) = there(link, intake, &socket) => why,
        Err(why) = back(link, &socket) => why,
    };
    tracing::debug!("what was relayed has ended: {why}");
    link.close();
}

async fn there(link: &Link, intake: &mut Intake, socket: &Socket) -> Result<Infallible> {
    loop {
        let frame = link.heard(intake).await?;
        match frame.header.kind {
            Kind::Carried => write_all(socket, frame.data).await?,
            other => return Err(Error::new(ErrorKind::Corrupt, format!("what is relayed does not go as {other:?}"))),
        }
    }
}

/// An end that takes nothing for long is not waited for: nobody else would find out that the other end has gone.
async fn write_all(socket: &Socket, mut data: Bytes) -> Result<()> {
    let late = |_| Error::new(ErrorKind::TimedOut, format!("the other side took nothing for {SILENCE_MS} ms"));
    while !data.is_empty() {
        let writable = tokio::time::timeout(Duration::from_millis(SILENCE_MS), socket.writable()).await;
        match writable.map_err(late)?.and_then(|()| socket.try_write(&[io::IoSlice::new(&data)])) {
            Ok(written) => drop(data.split_to(written)),
            Err(error) => again(error)?,
        }
    }
    Ok(())
}

async fn back(link: &Arc<Link>, socket: &Socket) -> Result<Infallible> {
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
            Ok(got) => {
                let data = if got < COPIED_BELOW { Bytes::copy_from_slice(&buf[..got]) } else { buf.into_bytes() };
                let message = Encoded { meta: Vec::new(), data: vec![data] };
                link.send(Parcel { kind: Kind::Carried, id: 0, target: 0, message, check_data: true }, true);
            }
            Err(error) => again(error)?,
        }
    }
}

/// Nothing is wrong if the socket only has, or takes, nothing now.
fn again(error: io::Error) -> Result<()> {
    match error.kind() {
        io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted => Ok(()),
        _ => Err(broken(&error)),
    }
}

fn broken(error: &io::Error) -> Error {
    Error::os("a relayed connection", error)
}
