//! What people say of object stores, for all commands that ask for it.

use std::io::{Read, stdin};
use std::path::Path;

use braid_base::store::{Protocol, S3Auth};
use braid_base::{Error, Result};

use crate::exit::Failure;

/// A server, as far as it was named.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Server {
    /// Its name or address.
    pub hostname: String,
    /// The port, if that was said.
    pub port: Option<u16>,
    /// How it is spoken to, if that was said.
    pub protocol: Option<Protocol>,
}

/// Reads `HOST`, `HOST:PORT` or `http(s)://HOST[:PORT]`.
pub fn server(text: &str) -> std::result::Result<Server, Failure> {
    let (protocol, named) = match text.split_once("://") {
        Some(("http", rest)) => (Some(Protocol::Http), rest),
        Some(("https", rest)) => (Some(Protocol::Https), rest),
        Some((other, _)) => return Err(Failure::usage(format!("http:// or https:// expected, found {other}://"))),
        None => (None, text),
    };
    let (hostname, port) = split_port(named.trim_end_matches('/'))?;
    Ok(Server { hostname: hostname.to_owned(), port, protocol })
}

/// Host and port of `HOST`, `HOST:PORT`, `[V6]:PORT`.
fn split_port(text: &str) -> std::result::Result<(&str, Option<u16>), Failure> {
    let bare_v6 = text.matches(':').count() > 1 && !text.starts_with('[');
    let split = text.rsplit_once(':').filter(|(_, port)| !bare_v6 && !port.ends_with(']'));
    let Some((host, port)) = split else { return Ok((text, None)) };
    let port = port.parse().map_err(|_| Failure::usage(format!("a port of 1 to 65535 expected, found {port:?}")))?;
    Ok((host, Some(port)))
}

/// What a file, or stdin, says.
pub fn text_of(file: &Path) -> Result<String> {
    let mut text = String::new();
    let read = if file == Path::new("-") {
        stdin().read_to_string(&mut text).map(drop)
    } else {
        std::fs::read_to_string(file).map(|read| text = read)
    };
    read.map_err(|error| Error::os(file.display(), &error))?;
    Ok(text)
}

/// Reads `HTTP`, `HTTPS` or `HTTPS_UNVERIFIED`, in either case.
pub fn protocol(text: &str) -> std::result::Result<Protocol, String> {
    match text.to_ascii_uppercase().as_str() {
        "HTTP" => Ok(Protocol::Http),
        "HTTPS" => Ok(Protocol::Https),
        "HTTPS_UNVERIFIED" => Ok(Protocol::HttpsUnverified),
        _ => Err(format!("HTTP, HTTPS or HTTPS_UNVERIFIED expected, found {text:?}")),
    }
}

/// Reads how requests to S3 are signed.
pub fn auth_method(text: &str) -> std::result::Result<S3Auth, String> {
    match text.to_ascii_lowercase().as_str() {
        "none" => Ok(S3Auth::None),
        "awssignature2" => Ok(S3Auth::AWSSignature2),
        "awssignature4" => Ok(S3Auth::AWSSignature4),
        _ => Err(format!("AWSSignature4, AWSSignature2 or None expected, found {text:?}")),
    }
}
