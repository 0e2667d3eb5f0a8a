//! A connection to a store: found by name, dialled, wrapped in TLS, and given up when nothing moves on it.

use std::io::{self, IoSlice};
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use braid_base::ErrorKind;
use http::Uri;
use hyper_util::client::legacy::connect::{Connected, Connection};
use hyper_util::rt::TokioIo;
use rustls::ClientConfig;
use rustls::pki_types::ServerName;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio::time::{Instant, Sleep, timeout};
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use super::failure::Failure;
use super::tls;

/// Longest wait for one address to answer, and for its TLS handshake.
pub(super) const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// Longest time that nothing moves on a connection with a request under way.
const STALL_TIMEOUT: Duration = Duration::from_secs(30);

/// Makes connections to one server.
#[derive(Clone)]
pub(super) struct Dialer {
    tls: Option<Arc<ClientConfig>>,
    server: Arc<str>,
    stall: Duration,
    /// Which address of several comes first, so that connections spread over all of them.
    turn: Arc<AtomicUsize>,
}

impl Dialer {
    /// A dialer for `server` (protocol, host and port, for messages), which nobody waits for longer than `patience`.
    pub fn new(tls: Option<Arc<ClientConfig>>, server: &str, patience: Duration) -> Self {
        Self { tls, server: server.into(), stall: patience.min(STALL_TIMEOUT), turn: Arc::default() }
    }

    async fn dial(self, uri: Uri) -> Result<TokioIo<Line>, Failure> {
        let host = uri.host().unwrap_or_default().trim_matches(['[', ']']).to_owned();
        let port = uri.port_u16().unwrap_or(if self.tls.is_some() { 443 } else { 80 });
        let stream = self.reach(&host, port).await?;
        // Requests are written whole; waiting to fill a packet only delays them. Without it all still works.
        let _ = stream.set_nodelay(true);
        let stream = match &self.tls {
            None => Stream::Clear(stream),
            Some(config) => Stream::Tls(Box::new(self.handshake(config, &host, stream).await?)),
        };
        Ok(TokioIo::new(Line { stream, limit: self.stall, stall: Box::pin(tokio::time::sleep(self.stall)) }))
    }

    async fn reach(&self, host: &str, port: u16) -> Result<TcpStream, Failure> {
        let found = tokio::net::lookup_host((host, port)).await;
        let mut addresses: Vec<SocketAddr> = match found {
            Ok(found) => found.collect(),
            Err(error) => return Err(unknown(host, &error)),
        };
        let count = addresses.len().max(1);
        addresses.rotate_left(self.turn.fetch_add(1, Ordering::Relaxed) % count);
        let mut last = unknown(host, &io::Error::other("the name has no address"));
        for address in addresses {
            match timeout(CONNECT_TIMEOUT, TcpStream::connect(address)).await {
                Ok(Ok(stream)) => return Ok(stream),
                Ok(Err(error)) => last = unreachable(&self.server, address, &error),
                Err(_) => last = silent(&self.server, address),
            }
        }
        Err(last)
    }

    async fn handshake(
        &self,
        config: &Arc<ClientConfig>,
        host: &str,
        stream: TcpStream,
    ) -> Result<TlsStream<TcpStream>, Failure> {
        let name = ServerName::try_from(host.to_owned()).map_err(|_| {
            Failure::of_line(ErrorKind::Refused, format!("'{host}' is no host name: certificates cannot name it"))
        })?;
        let work = TlsConnector::from(Arc::clone(config)).connect(name, stream);
        match timeout(CONNECT_TIMEOUT, work).await {
            Ok(done) => done.map_err(|error| tls::failure(host, &self.server, &error)),
            Err(_) => {
                let message = format!("{} is silent: does it speak TLS at this port?", self.server);
                Err(Failure::of_line(ErrorKind::TimedOut, message))
            }
        }
    }
}

impl tower_service::Service<Uri> for Dialer {
    type Response = TokioIo<Line>;
    type Error = Failure;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, Failure>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Failure>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, uri: Uri) -> Self::Future {
        Box::pin(self.clone().dial(uri))
    }
}

fn unknown(host: &str, error: &io::Error) -> Failure {
    let advice = "correct the host name, or the DNS of this host";
    Failure::of_line(ErrorKind::Io, format!("the name {host} cannot be resolved ({error}): {advice}"))
}

fn unreachable(server: &str, address: SocketAddr, error: &io::Error) -> Failure {
    let advice = match error.kind() {
        io::ErrorKind::ConnectionRefused => "no server listens there: is it running, is the port right?",
        _ => "is the network between here and there up?",
    };
    Failure::of_line(ErrorKind::Io, format!("{server} cannot be reached at {address} ({error}): {advice}"))
}

fn silent(server: &str, address: SocketAddr) -> Failure {
    let seconds = CONNECT_TIMEOUT.as_secs();
    let advice = "is the address right, does a firewall stand between?";
    Failure::of_line(ErrorKind::TimedOut, format!("{server} did not answer at {address} within {seconds} s: {advice}"))
}

/// A connection that fails when it should move and does not.
pub(super) struct Line {
    stream: Stream,
    limit: Duration,
    stall: Pin<Box<Sleep>>,
}

enum Stream {
    Clear(TcpStream),
    Tls(Box<TlsStream<TcpStream>>),
}

impl Line {
    /// Something moved: begin to wait anew. Nothing did: fail if that has been so for too long.
    fn moved<T>(&mut self, context: &mut Context<'_>, polled: Poll<io::Result<T>>) -> Poll<io::Result<T>> {
        if polled.is_ready() {
            let at = Instant::now() + self.limit;
            self.stall.as_mut().reset(at);
            return polled;
        }
        match self.stall.as_mut().poll(context) {
            Poll::Ready(()) => Poll::Ready(Err(io::ErrorKind::TimedOut.into())),
            Poll::Pending => Poll::Pending,
        }
    }
}

impl AsyncRead for Line {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let polled = match &mut self.stream {
            Stream::Clear(stream) => Pin::new(stream).poll_read(cx, buf),
            Stream::Tls(stream) => Pin::new(stream).poll_read(cx, buf),
        };
        self.moved(cx, polled)
    }
}

impl AsyncWrite for Line {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        let polled = match &mut self.stream {
            Stream::Clear(stream) => Pin::new(stream).poll_write(cx, buf),
            Stream::Tls(stream) => Pin::new(stream).poll_write(cx, buf),
        };
        self.moved(cx, polled)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let polled = match &mut self.stream {
            Stream::Clear(stream) => Pin::new(stream).poll_write_vectored(cx, bufs),
            Stream::Tls(stream) => Pin::new(stream).poll_write_vectored(cx, bufs),
        };
        self.moved(cx, polled)
    }

    fn is_write_vectored(&self) -> bool {
        match &self.stream {
            Stream::Clear(stream) => stream.is_write_vectored(),
            Stream::Tls(stream) => stream.is_write_vectored(),
        }
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match &mut self.stream {
            Stream::Clear(stream) => Pin::new(stream).poll_flush(cx),
            Stream::Tls(stream) => Pin::new(stream).poll_flush(cx),
        }
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match &mut self.stream {
            Stream::Clear(stream) => Pin::new(stream).poll_shutdown(cx),
            Stream::Tls(stream) => Pin::new(stream).poll_shutdown(cx),
        }
    }
}

impl Connection for Line {
    fn connected(&self) -> Connected {
        Connected::new()
    }
}
