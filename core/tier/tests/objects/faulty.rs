//! An HTTP server that answers as a test wants it to, not as it should.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

/// A request that came.
#[derive(Clone, Debug)]
pub struct Asked {
    pub method: String,
    pub target: String,
    /// Header lines, their names in lower case.
    pub headers: Vec<(String, String)>,
    pub body: Vec<u8>,
}

/// What is done with it.
pub enum Reply {
    /// An answer without faults: status, headers, body.
    Send(u16, Vec<(&'static str, String)>, Vec<u8>),
    /// An error of S3: status, code.
    Code(u16, &'static str),
    /// Announces so many bytes, sends a few, and closes the connection.
    Cut(usize),
    /// Announces so many bytes, sends a few, and is silent.
    Stall(usize),
    /// Sends no HTTP.
    Noise,
    /// Closes the connection.
    Close,
}

pub struct Faulty {
    pub port: u16,
    seen: Arc<Mutex<Vec<Asked>>>,
}

impl Asked {
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(found, _)| found == name).map(|(_, value)| value.as_str())
    }
}

impl Faulty {
    /// Answers the n-th request (from 0) with `reply(request, n)`.
    pub async fn start(reply: impl Fn(&Asked, usize) -> Reply + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let seen = Arc::new(Mutex::new(Vec::new()));
        let (seen_there, reply) = (Arc::clone(&seen), Arc::new(reply));
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                tokio::spawn(serve(stream, Arc::clone(&seen_there), Arc::clone(&reply)));
            }
        });
        Self { port, seen }
    }

    pub fn seen(&self) -> Vec<Asked> {
        self.seen.lock().unwrap().clone()
    }
}

async fn serve(
    mut stream: TcpStream,
    seen: Arc<Mutex<Vec<Asked>>>,
    reply: Arc<impl Fn(&Asked, usize) -> Reply + Send + Sync>,
) {
    while let Some(asked) = read(&mut stream).await {
        let number = seen.lock().unwrap().len();
        seen.lock().unwrap().push(asked.clone());
        let done = match reply(&asked, number) {
            Reply::Send(status, headers, body) => {
                let body = if asked.method == "HEAD" { Vec::new() } else { body };
                send(&mut stream, status, &headers, &body).await
            }
            Reply::Code(status, code) => {
                let body = format!("<Error><Code>{code}</Code><Message>as the test wants it</Message></Error>");
                send(&mut stream, status, &[], body.as_bytes()).await
            }
            Reply::Cut(length) => {
                let _ = start(&mut stream, length).await;
                return;
            }
            Reply::Stall(length) => {
                let _ = start(&mut stream, length).await;
                tokio::time::sleep(Duration::from_secs(60)).await;
                return;
            }
            Reply::Noise => {
                let _ = stream.write_all(b"\x15\x03\x03 this is not HTTP\r\n\r\n").await;
                return;
            }
            Reply::Close => return,
        };
        if done.is_err() {
            return;
        }
    }
}

async fn start(stream: &mut TcpStream, length: usize) -> std::io::Result<()> {
    let head = format!("HTTP/1.1 200 OK\r\nContent-Length: {length}\r\nETag: \"e\"\r\n\r\nsome");
    stream.write_all(head.as_bytes()).await
}

async fn send(stream: &mut TcpStream, status: u16, headers: &[(&str, String)], body: &[u8]) -> std::io::Result<()> {
    let mut head = format!("HTTP/1.1 {status} As It Is\r\nETag: \"e\"\r\n");
    if !headers.iter().any(|(name, _)| *name == "Content-Length") {
        head.push_str(&format!("Content-Length: {}\r\n", body.len()));
    }
    headers.iter().for_each(|(name, value)| head.push_str(&format!("{name}: {value}\r\n")));
    head.push_str("\r\n");
    stream.write_all(head.as_bytes()).await?;
    stream.write_all(body).await
}

async fn read(stream: &mut TcpStream) -> Option<Asked> {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.push(stream.read_u8().await.ok()?);
    }
    let head = String::from_utf8(head).ok()?;
    let mut lines = head.lines();
    let mut first = lines.next()?.split(' ');
    let (method, target) = (first.next()?.to_owned(), first.next()?.to_owned());
    let headers: Vec<(String, String)> = lines
        .filter_map(|line| line.split_once(": "))
        .map(|(name, value)| (name.to_ascii_lowercase(), value.to_owned()))
        .collect();
    let length =
        headers.iter().find(|(name, _)| name == "content-length").map_or(0, |(_, value)| value.parse().unwrap());
    let mut body = vec![0; length];
    stream.read_exact(&mut body).await.ok()?;
    Some(Asked { method, target, headers, body })
}
