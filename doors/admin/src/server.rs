//! The listener, the token check, and the end.

use std::future::Future;
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::extract::{Request, State};
use axum::http::{StatusCode, header};
use axum::middleware::{self, Next};
use axum::response::{IntoResponse, Response};
use braid_base::{Error, ErrorKind, Result};
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use tokio::net::TcpStream;
use tokio::sync::{Notify, Semaphore, watch};
use tokio::task::JoinSet;

use crate::control::Control;
use crate::desk::Desk;
use crate::failure::Failure;
use crate::routes;

/// Requests served at once; more are told to come again.
const REQUESTS_MAX: usize = 64;
/// Connections at once; more wait until one has ended.
const CALLERS_MAX: usize = 256;
/// Time to send the head of a request, the first or the next.
const HEAD_MAX: Duration = Duration::from_secs(10);
/// Time to rest when the system gives no more connections.
const ACCEPT_REST: Duration = Duration::from_millis(100);

/// The REST server of one process.
pub struct Server {
    listener: TcpListener,
    port: u16,
    stop: Arc<Notify>,
}

impl Server {
    /// Takes `port` of this machine's own address; 0 takes a free one. `Refused` if it is in use.
    pub fn bind(port: u16) -> Result<Self> {
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
        let listener = TcpListener::bind(address).map_err(|error| match error.kind() {
            std::io::ErrorKind::AddrInUse => {
                let message = format!(
                    "port {port} is in use by another process: choose another with --admin-port (0 = any free one)"
                );
                Error::new(ErrorKind::Refused, message)
            }
            _ => Error::os(format_args!("listening on {address}"), &error),
        })?;
        let failed = |error: std::io::Error| Error::os(format_args!("listening on {address}"), &error);
        listener.set_nonblocking(true).map_err(failed)?;
        let port = listener.local_addr().map_err(failed)?.port();
        Ok(Self { listener, port, stop: Arc::new(Notify::new()) })
    }

    /// The port it has.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// Resolves when somebody asks over REST that the process stops.
    pub fn stop_asked(&self) -> impl Future<Output = ()> + Send + use<> {
        let stop = self.stop.clone();
        async move { stop.notified().await }
    }

    /// Answers requests that carry `token` until `until` resolves, then ends those under way.
    pub async fn run(
        self,
        control: Arc<dyn Control>,
        token: String,
        until: impl Future<Output = ()> + Send + 'static,
    ) -> Result<()> {
        let desk = Arc::new(Desk { control, stop: self.stop, token, slots: Semaphore::new(REQUESTS_MAX) });
        let failed = |error: std::io::Error| Error::os("serving REST", &error);
        let listener = tokio::net::TcpListener::from_std(self.listener).map_err(failed)?;
        let service = TowerToHyperService::new(router(desk));
        let (end, ends) = watch::channel(());
        let (mut callers, slots) = (JoinSet::new(), Arc::new(Semaphore::new(CALLERS_MAX)));
        tokio::pin!(until);
        loop {
            let next = async {
                let slot = Arc::clone(&slots).acquire_owned().await;
                (slot, listener.accept().await)
            };
            tokio::select! {
                () = &mut until => break,
                (slot, accepted) = next => match accepted {
                    Ok((stream, _)) => {
                        let talk = converse(stream, service.clone(), ends.clone());
                        callers.spawn(async move {
                            talk.await;
                            drop(slot);
                        });
                    }
                    Err(error) => {
                        tracing::warn!("no more callers of REST for the moment: {error}");
                        tokio::time::sleep(ACCEPT_REST).await;
                    }
                },
                Some(_) = callers.join_next() => {}
            }
        }
        drop((listener, end));
        while callers.join_next().await.is_some() {}
        Ok(())
    }
}

/// One connection, until its caller leaves it, says nothing for too long, or `end` ends it after the answer under way.
async fn converse(stream: TcpStream, service: TowerToHyperService<Router>, mut end: watch::Receiver<()>) {
    let mut http = http1::Builder::new();
    http.timer(TokioTimer::new()).header_read_timeout(HEAD_MAX);
    let talk = http.serve_connection(TokioIo::new(stream), service);
    tokio::pin!(talk);
    let done = tokio::select! {
        done = &mut talk => done,
        _ = end.changed() => {
            talk.as_mut().graceful_shutdown();
            talk.await
        }
    };
    if let Err(error) = done {
        tracing::debug!("a caller of REST is given up: {error}");
    }
}

fn router(desk: Arc<Desk>) -> Router {
    routes::all()
        .fallback(|| async { Failure(Error::new(ErrorKind::NotFound, "no such path: see /api/v1/openapi.json")) })
        .method_not_allowed_fallback(|| async {
            let error = Error::new(ErrorKind::Unsupported, "no such method here: see /api/v1/openapi.json");
            with_status(StatusCode::METHOD_NOT_ALLOWED, error)
        })
        .layer(middleware::from_fn_with_state(desk.clone(), guard))
        .with_state(desk)
}

/// An error with another status than that of its kind.
fn with_status(status: StatusCode, error: Error) -> Response {
    let mut response = Failure(error).into_response();
    *response.status_mut() = status;
    response
}

/// Lets a request in if it carries the token and there is room.
async fn guard(State(desk): State<Arc<Desk>>, request: Request, next: Next) -> Response {
    let given = request.headers().get(header::AUTHORIZATION).and_then(|value| value.to_str().ok());
    if !given.and_then(|value| value.strip_prefix("Bearer ")).is_some_and(|token| same(token, &desk.token)) {
        let error = Error::new(
            ErrorKind::NotPermitted,
            "a bearer token expected: it is in admin.json of the cluster's directory",
        );
        return with_status(StatusCode::UNAUTHORIZED, error);
    }
    let Ok(_slot) = desk.slots.try_acquire() else {
        let message = format!("more than {REQUESTS_MAX} requests at once: try again");
        return Failure(Error::new(ErrorKind::Busy, message)).into_response();
    };
    next.run(request).await
}

/// Compares without telling by its time how much was right.
fn same(given: &str, token: &str) -> bool {
    let differences = given.bytes().zip(token.bytes()).fold(0, |acc, (a, b)| acc | (a ^ b));
    given.len() == token.len() && differences == 0
}
