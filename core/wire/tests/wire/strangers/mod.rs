//! Peers that are not ours: rustls over blocking sockets, and sockets without any.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::time::Duration;

use braid_base::ids::HostId;
use braid_base::msg::host::{HostReply, HostResult};
use braid_wire::codec::Message;
use braid_wire::frame::{HEADER, Header, Kind};
use braid_wire::tls::{Authority, Identity};
use rustls::crypto::ring::default_provider;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, ClientConnection, RootCertStore, ServerConfig, ServerConnection, StreamOwned};

/// A client with another TLS loop than ours.
pub struct Stranger {
    tls: ClientConnection,
    socket: TcpStream,
}

/// Frames, made by hand.
pub mod frame {
    use braid_base::msg::fs::Request;
    use braid_wire::codec::{Encoded, Message};
    use braid_wire::frame::{Header, Kind};
    use braid_wire::{Caller, Hello, Who};

    pub fn hello(secret: &str, who: Who) -> Vec<u8> {
        let hello =
            Hello { cluster: crate::tls::CLUSTER, secret: secret.to_owned(), caller: Caller::Client(who), channel: 0 };
        of(Kind::Hello, 0, 0, &hello.encode())
    }

    pub fn request(id: u64, request: &Request) -> Vec<u8> {
        let mut message = request.encode();
        // It is meant for term 0.
        message.meta.splice(0..0, [0; 8]);
        of(Kind::AskPartition, id, 5, &message)
    }

    pub fn of(kind: Kind, id: u64, target: u32, message: &Encoded) -> Vec<u8> {
        let mut bytes = Header::of(kind, id, target, message, true).encode().to_vec();
        bytes.extend_from_slice(&message.meta);
        message.data.iter().for_each(|part| bytes.extend_from_slice(part));
        bytes
    }
}

fn connection(authority: &Authority) -> ClientConnection {
    let mut roots = RootCertStore::empty();
    let ca = CertificateDer::from_pem_slice(authority.ca().to_pem().as_bytes()).expect("a certificate");
    roots.add(ca).expect("an authority");
    let config = ClientConfig::builder_with_provider(Arc::new(default_provider()))
        .with_protocol_versions(&[&rustls::version::TLS13])
        .expect("rustls knows it")
        .with_root_certificates(roots)
        .with_no_client_auth();
    let HostId(host) = crate::tls::HOST;
    let name = ServerName::try_from(format!("h{host}.{}.braid", "03".repeat(16))).expect("a name");
    ClientConnection::new(Arc::new(config), name).expect("a connection")
}

/// The first message of a client.
pub fn client_hello(authority: &Authority) -> Vec<u8> {
    let mut bytes = Vec::new();
    connection(authority).write_tls(&mut bytes).expect("a vector takes it");
    bytes
}

impl Stranger {
    pub fn connect(at: SocketAddr, authority: &Authority) -> Self {
        let mut socket = TcpStream::connect(at).expect("it listens");
        socket.set_nodelay(true).expect("a socket");
        socket.set_read_timeout(Some(Duration::from_secs(20))).expect("a timeout");
        let mut tls = connection(authority);
        while tls.is_handshaking() {
            tls.complete_io(&mut socket).expect("a handshake");
        }
        Self { tls, socket }
    }

    pub fn send(&mut self, bytes: &[u8]) {
        self.send_in_pieces(bytes, usize::MAX);
    }

    /// Sends in pieces of `most` bytes, which need not be whole records; reads meanwhile.
    pub fn send_in_pieces(&mut self, mut bytes: &[u8], most: usize) {
        while !bytes.is_empty() {
            let taken = self.tls.writer().write(bytes).expect("rustls takes it");
            bytes = &bytes[taken..];
            let mut records = Vec::new();
            while self.tls.wants_write() {
                self.tls.write_tls(&mut records).expect("a vector takes it");
            }
            for piece in records.chunks(most) {
                self.socket.write_all(piece).expect("the server reads");
            }
        }
    }

    /// New keys for what it sends; the other side has to answer with the same.
    pub fn new_keys(&mut self) {
        self.tls.refresh_traffic_keys().expect("after the handshake");
    }

    /// Whether the other side says that it has finished, and does not just go.
    pub fn hears_the_end(&mut self) -> bool {
        let mut stream = rustls::Stream::new(&mut self.tls, &mut self.socket);
        matches!(stream.read(&mut [0]), Ok(0))
    }

    pub fn welcome(&mut self) {
        let (header, _) = self.frame();
        assert_eq!(header.kind, Kind::Welcome);
    }

    /// Number and bulk bytes of the next answer.
    pub fn answer(&mut self) -> (u64, Vec<u8>) {
        let (header, bytes) = self.frame();
        assert_eq!(header.kind, Kind::Answer);
        header.check(&bytes[..header.meta_len as usize], &bytes[header.meta_len as usize..]).expect("as it was sent");
        (header.id, bytes[header.meta_len as usize..].to_vec())
    }

    fn frame(&mut self) -> (Header, Vec<u8>) {
        let mut head = [0; HEADER];
        let mut stream = rustls::Stream::new(&mut self.tls, &mut self.socket);
        stream.read_exact(&mut head).expect("an answer");
        let header = Header::decode(&head).expect("a header");
        let mut rest = vec![0; header.frame_len() - HEADER];
        stream.read_exact(&mut rest).expect("all of it");
        (header, rest)
    }
}

/// Lets `serve` have each connection, in a thread.
pub fn raw_listener(serve: impl Fn(TcpStream) + Send + Sync + 'static) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let at = listener.local_addr().expect("bound");
    let serve = Arc::new(serve);
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let serve = Arc::clone(&serve);
            std::thread::spawn(move || serve(stream.expect("a connection")));
        }
    });
    at
}

/// A server that welcomes everybody, reads nothing for a while, and then answers each request with `Done`.
pub fn server(own: &Identity, rest: Duration) -> SocketAddr {
    let chain = CertificateDer::pem_slice_iter(own.certificate_pem().as_bytes()).map(|one| one.expect("PEM")).collect();
    let key = PrivateKeyDer::from_pem_slice(own.key_pem().as_bytes()).expect("PEM");
    // With tickets, as rustls sends them unless told otherwise.
    let config = ServerConfig::builder_with_provider(Arc::new(default_provider()))
        .with_protocol_versions(&[&rustls::version::TLS13])
        .expect("rustls knows it")
        .with_no_client_auth()
        .with_single_cert(chain, key)
        .expect("an identity");
    let config = Arc::new(config);
    raw_listener(move |socket| {
        let tls = ServerConnection::new(Arc::clone(&config)).expect("a connection");
        let mut stream = StreamOwned::new(tls, socket);
        let mut first = true;
        loop {
            let mut head = [0; HEADER];
            if stream.read_exact(&mut head).is_err() {
                return;
            }
            let header = Header::decode(&head).expect("a header");
            let mut body = vec![0; header.frame_len() - HEADER];
            stream.read_exact(&mut body).expect("all of it");
            let (meta, data) = body.split_at(header.meta_len as usize);
            header.check(meta, data).expect("as it was sent");
            let answer = match header.kind {
                Kind::Hello => {
                    // In { partitions: 7 }
                    let message = braid_wire::codec::Encoded { meta: vec![1, 7, 0], data: Vec::new() };
                    frame::of(Kind::Welcome, 0, 0, &message)
                }
                Kind::AskHost => {
                    let answer: HostResult = Ok(HostReply::Map(crate::tls::map()));
                    frame::of(Kind::Answer, header.id, 0, &answer.encode())
                }
                Kind::Ping => frame::of(Kind::Pong, header.id, 0, &Default::default()),
                _ => {
                    if std::mem::take(&mut first) {
                        std::thread::park_timeout(rest);
                    }
                    let answer = braid_base::msg::lease::Answer::from(braid_base::msg::fs::Reply::Done);
                    frame::of(Kind::Answer, header.id, 0, &answer.encode())
                }
            };
            stream.write_all(&answer).expect("the client reads");
        }
    })
}
