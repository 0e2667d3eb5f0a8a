//! HTTP to a store: every request of the S3 and Azure clients passes here, and every failure gets its cause here.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use braid_base::ErrorKind;
use braid_io::buf::AlignedBuf;
use bytes::Bytes;
use http::header::{CONTENT_LENGTH, HeaderMap, HeaderValue, RANGE, USER_AGENT};
use http::{Method, StatusCode};
use http_body_util::{BodyExt as _, Limited};
use hyper::body::Incoming;
use hyper_util::client::legacy::Client;
use hyper_util::rt::{TokioExecutor, TokioTimer};
use object_store::ClientOptions;
use object_store::client::{
    HttpClient, HttpConnector, HttpError, HttpErrorKind, HttpRequest, HttpRequestBody, HttpResponse, HttpResponseBody,
    HttpService,
};

use super::failure::{Failure, Target};
use super::line::Dialer;
use super::sign2::Signer;

/// What a store sees as the program that speaks to it.
const PROGRAM: &str = concat!("Braid/", env!("CARGO_PKG_VERSION"));
/// How long a connection without a request is kept. Shorter than the time after which a silent one fails.
const IDLE_TIMEOUT: Duration = Duration::from_secs(20);
/// Most bytes of an answer that says what is wrong.
const COMPLAINT_BYTES_MAX: usize = 64 * 1024;
/// Longest part of an object whose bytes are gathered as they come, bytes: as much as fits a buffer that is used again.
const GATHERED_MAX: usize = 8 << 20;
/// Connections kept without a request: as many as may be under way, of all three kinds.
const IDLE_MAX: usize = 192;

/// The store said that the bytes which reached it have the checksum that was sent.
#[derive(Clone, Copy, Debug)]
pub(super) struct Echoed;

/// Sends requests to one server.
#[derive(Clone)]
pub(super) struct Wire {
    client: Client<Dialer, HttpRequestBody>,
    signer: Option<Arc<Signer>>,
    target: Arc<Target>,
}

impl Wire {
    /// Requests for `target` over connections of `dialer`; `signer` signs them in the old way.
    pub fn new(dialer: Dialer, signer: Option<Signer>, target: Target) -> Self {
        let client = Client::builder(TokioExecutor::new())
            .pool_timer(TokioTimer::new())
            .pool_idle_timeout(IDLE_TIMEOUT)
            .pool_max_idle_per_host(IDLE_MAX)
            .build(dialer);
        Self { client, signer: signer.map(Arc::new), target: Arc::new(target) }
    }

    /// Sends a request; an answer that is no success is a failure.
    pub async fn send(&self, mut request: HttpRequest) -> Result<HttpResponse, Failure> {
        request.headers_mut().insert(USER_AGENT, HeaderValue::from_static(PROGRAM));
        if let Some(signer) = &self.signer {
            let (method, uri) = (request.method().clone(), request.uri().clone());
            signer.sign(&method, &uri, request.headers_mut(), braid_io::clock::now().wall.sec);
        }
        // Never the query: it may hold a signature.
        let what = format!("{} {}", request.method(), request.uri().path());
        let ranged = request.method() == Method::GET && request.headers().contains_key(RANGE);
        let sums = Sums::sent(&request);
        let answer = self.client.request(request).await.map_err(|error| self.broken(&what, &error))?;
        let (mut parts, body) = answer.into_parts();
        if !parts.status.is_success() {
            let body = Limited::new(body, COMPLAINT_BYTES_MAX).collect().await.map(http_body_util::Collected::to_bytes);
            let body = body.unwrap_or_default();
            return Err(Failure::of_answer(&self.target, &what, parts.status.as_u16(), &parts.headers, &body));
        }
        if ranged && parts.status != StatusCode::PARTIAL_CONTENT {
            let server = &self.target.server;
            let message =
                format!("{what}: {server} sent the whole object where a range was asked for: it must serve ranges");
            return Err(Failure::of_line(ErrorKind::Refused, message));
        }
        match sums.compare(&parts.headers) {
            Some(true) => drop(parts.extensions.insert(Echoed)),
            Some(false) => {
                let message = format!("{what}: {} has other bytes than were sent: send again", self.target);
                return Err(Failure::of_line(ErrorKind::Io, message));
            }
            None => {}
        }
        let length = parts.headers.get(CONTENT_LENGTH).and_then(|length| length.to_str().ok()?.parse().ok());
        if let Some(length) = length.filter(|length| ranged && *length <= GATHERED_MAX) {
            let body = self.gather(&what, body, length).await?;
            return Ok(HttpResponse::from_parts(parts, HttpResponseBody::from(body)));
        }
        let wire = self.clone();
        let body = HttpResponseBody::new(body.map_err(move |error| failed(wire.broken(&what, &error))));
        Ok(HttpResponse::from_parts(parts, body))
    }

    /// All of a body of `length` bytes, in memory from which a drive writes without another copy.
    async fn gather(&self, what: &str, mut body: Incoming, length: usize) -> Result<Bytes, Failure> {
        let mut got = AlignedBuf::with_capacity(length);
        while let Some(frame) = body.frame().await {
            let frame = frame.map_err(|error| self.broken(what, &error))?;
            let Ok(data) = frame.into_data() else { continue };
            if data.len() > length - got.len() {
                let message = format!("{what}: {} sent more than the {length} bytes it announced", self.target.server);
                return Err(Failure::of_line(ErrorKind::Io, message));
            }
            got.extend(&data);
        }
        Ok(got.into_bytes())
    }

    /// No answer came, or half of one.
    fn broken(&self, what: &str, error: &(dyn std::error::Error + 'static)) -> Failure {
        if let Some(found) = Failure::inside(error) {
            return Failure { error: found.error.clone().within(what), answer: found.answer.clone() };
        }
        let server = &self.target.server;
        let (mut at, mut last) = (Some(error), String::new());
        while let Some(error) = at {
            let timed_out =
                error.downcast_ref::<std::io::Error>().is_some_and(|e| e.kind() == std::io::ErrorKind::TimedOut);
            let hyper = error.downcast_ref::<hyper::Error>();
            if timed_out || hyper.is_some_and(hyper::Error::is_timeout) {
                let message = format!("{what}: {server} is silent in the middle of a request");
                return Failure::of_line(ErrorKind::TimedOut, message);
            }
            if hyper.is_some_and(hyper::Error::is_parse) {
                let message = format!(
                    "{what}: {server} does not answer in HTTP ({error}): is the port right, does it want HTTPS?"
                );
                return Failure::of_line(ErrorKind::Io, message);
            }
            last = error.to_string();
            at = error.source();
        }
        Failure::of_line(ErrorKind::Io, format!("{what}: the connection to {server} broke off ({last})"))
    }
}

/// Checksums that went with a put: the store compares what it gets, and says so by sending them back.
struct Sums {
    /// Header of S3 and its value.
    amazon: Option<(&'static str, HeaderValue)>,
    /// CRC-64/NVME, when the store is Azure's: it sends it back without having been asked.
    azure: Option<u64>,
}

impl Sums {
    const AMAZON: [&str; 2] = ["x-amz-checksum-crc64nvme", "x-amz-checksum-sha256"];
    const AZURE: &str = "x-ms-content-crc64";

    fn sent(request: &HttpRequest) -> Self {
        let headers = request.headers();
        let put = request.method() == Method::PUT;
        let mut amazon = Self::AMAZON.iter().filter_map(|name| Some((*name, headers.get(*name)?.clone())));
        Self { amazon: amazon.next().filter(|_| put), azure: request.extensions().get::<Crc64>().map(|crc| crc.0) }
    }

    /// Did the store get what was sent? None: it does not say.
    fn compare(&self, answer: &HeaderMap) -> Option<bool> {
        let amazon = self.amazon.as_ref().and_then(|(name, value)| Some(answer.get(*name)? == value));
        let azure = self.azure.and_then(|crc| {
            let value = STANDARD.decode(answer.get(Self::AZURE)?.as_bytes()).ok()?;
            Some(value == crc.to_le_bytes())
        });
        amazon.or(azure)
    }
}

/// CRC-64/NVME of the bytes of a put.
#[derive(Clone, Copy, Debug)]
pub(super) struct Crc64(pub u64);

impl Crc64 {
    /// That of `parts`, one after another.
    pub fn of(parts: &[Bytes]) -> Self {
        let mut digest = crc_fast::Digest::new(crc_fast::CrcAlgorithm::Crc64Nvme);
        parts.iter().for_each(|part| digest.update(part));
        Self(digest.finalize())
    }
}

#[async_trait]
impl HttpService for Wire {
    async fn call(&self, request: HttpRequest) -> Result<HttpResponse, HttpError> {
        self.send(request).await.map_err(failed)
    }
}

impl HttpConnector for Wire {
    fn connect(&self, _: &ClientOptions) -> object_store::Result<HttpClient> {
        Ok(HttpClient::new(self.clone()))
    }
}

impl fmt::Debug for Wire {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Wire({})", self.target)
    }
}

/// For the client above: of a kind that it does not repeat.
fn failed(failure: Failure) -> HttpError {
    HttpError::new(HttpErrorKind::Decode, failure)
}
