//! Two ends of TLS on sockets that take little at once, with keys that wear out soon.

use std::io::IoSlice;
use std::sync::Arc;
use std::time::Duration;

use braid_base::ErrorKind;
use braid_base::ids::{Guid, HostId};
use braid_io::buf::AlignedBuf;
use bytes::Bytes;
use rustls::crypto::CryptoProvider;
use rustls::crypto::ring::{cipher_suite, default_provider};
use rustls::{ClientConfig, ServerConfig, SupportedCipherSuite, Tls13CipherSuite};
use tokio::net::{TcpListener, TcpStream};

use super::{Authority, Channel, Client, Server, client_config, server_config};
use crate::codec::Encoded;
use crate::frame::Kind;
use crate::intake::Intake;
use crate::link::{Link, Parcel};
use crate::socket::Socket;
use crate::stream::Stream;

const CLUSTER: Guid = Guid([5; 16]);
const HOST: HostId = HostId(1);
/// Records under one key, where keys wear out soon.
const WORN_AFTER: u64 = 20;

/// Client and server, connected; the buffers of their sockets are as small as the kernel makes them.
async fn pair(worn_soon: bool) -> (Channel, Channel) {
    let authority = Authority::new(CLUSTER).expect("an authority");
    let mut client = client_config(&authority.ca(), None).expect("an authority");
    let mut server = server_config(&authority.issue(HOST).expect("issued")).expect("an identity");
    if worn_soon {
        wear_soon(&mut client, &mut server, &authority);
    }
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let there = TcpStream::connect(listener.local_addr().expect("bound")).await.expect("it listens");
    let (here, _) = listener.accept().await.expect("a connection");
    for socket in [&there, &here] {
        socket.set_nodelay(true).expect("a socket");
        rustix::net::sockopt::set_socket_send_buffer_size(socket, 1).expect("a socket");
    }
    let (there, here) = (Socket::Tcp(there), Socket::Tcp(here));
    let (there, here) =
        tokio::join!(Channel::client(there, &client, CLUSTER, Some(HOST)), Channel::server(here, &server));
    (there.expect("a handshake"), here.expect("a handshake").0)
}

fn wear_soon(client: &mut Client, server: &mut Server, authority: &Authority) {
    let suite = cipher_suite::TLS13_AES_256_GCM_SHA384.tls13().expect("as its name says");
    let common = rustls::crypto::CipherSuiteCommon { confidentiality_limit: WORN_AFTER, ..suite.common };
    let suite: &'static Tls13CipherSuite = Box::leak(Box::new(Tls13CipherSuite { common, ..*suite }));
    let cipher_suites = vec![SupportedCipherSuite::Tls13(suite)];
    let provider = Arc::new(CryptoProvider { cipher_suites, ..default_provider() });
    let own = authority.issue(HOST).expect("issued");
    let mut roots = rustls::RootCertStore::empty();
    roots.add(own.ca().0.clone()).expect("an authority");
    let versions = &[&rustls::version::TLS13];
    let config = ClientConfig::builder_with_provider(provider.clone()).with_protocol_versions(versions);
    let config = config.expect("known").with_root_certificates(roots).with_no_client_auth();
    client.config = Arc::new(config);
    let config = ServerConfig::builder_with_provider(provider).with_protocol_versions(versions);
    let shown = own.shown().expect("an identity");
    server.config = Arc::new(config.expect("known").with_no_client_auth().with_cert_resolver(shown));
}

fn link(channel: Channel) -> Arc<Link> {
    let link = Link::new(Stream::Tls(Box::new(channel)));
    let writer = Arc::clone(&link);
    tokio::spawn(async move { writer.write_on().await });
    link
}

fn bytes(id: u64, len: usize) -> Bytes {
    (0..len).map(|at| (at ^ (at >> 8)) as u8 ^ id as u8).collect::<Vec<u8>>().into()
}

fn send(link: &Arc<Link>, id: u64, len: usize) -> bool {
    let message = Encoded { meta: vec![1; 100], data: vec![bytes(id, len)] };
    link.send(Parcel { kind: Kind::Answer, id, target: 0, message, check_data: true }, true)
}

async fn expect(link: &Link, intake: &mut Intake, id: u64, len: usize) {
    let frame = link.frame_within(intake, 20_000).await.expect("a frame");
    assert!(frame.header.id == id && frame.data == bytes(id, len), "frame {id}");
}

fn trusting() -> Intake {
    let mut intake = Intake::new();
    intake.trust();
    intake
}

fn block_on(test: impl Future<Output = ()>) {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
    runtime.expect("a runtime").block_on(test);
}

#[test]
fn what_the_socket_does_not_take_at_once_follows_without_more_being_sent() {
    block_on(async {
        // From end to end, and the other way round.
        for swap in [false, true] {
            let (a, b) = pair(false).await;
            let (from, to) = if swap { (link(b), link(a)) } else { (link(a), link(b)) };
            let mut intake = trusting();
            for (id, len) in [3 << 20, 1000, 200_000, 0, 16 << 10].into_iter().enumerate() {
                assert!(send(&from, id as u64, len));
                tokio::time::sleep(Duration::from_millis(10)).await;
                expect(&to, &mut intake, id as u64, len).await;
            }
            from.close();
            assert_eq!(to.frame(&mut intake).await.err().map(|e| e.kind()), Some(ErrorKind::Stopped));
        }
    });
}

#[test]
fn both_ends_change_their_keys_under_way() {
    block_on(async {
        let (a, b) = pair(true).await;
        let (a, b) = (link(a), link(b));
        let sizes = |id: u64| [100_000, 10, 40_000, 2_000_000][id as usize % 4];
        let run = |from: Arc<Link>| async move {
            let sender = Arc::clone(&from);
            let sending = tokio::spawn(async move {
                for id in 0..60 {
                    assert!(send(&sender, id, sizes(id)));
                    sender.room(1 << 20).await;
                }
            });
            let mut intake = trusting();
            for id in 0..60 {
                expect(&from, &mut intake, id, sizes(id)).await;
            }
            sending.await.expect("no panic");
        };
        tokio::join!(run(a), run(b));
    });
}

#[test]
fn what_is_decrypted_is_read_though_the_socket_says_no_more() {
    block_on(async {
        let (a, b) = pair(false).await;
        let all = bytes(1, 50_000);
        assert_eq!(a.try_write(&[IoSlice::new(&all)]).expect("written"), all.len());
        let mut got = Vec::new();
        while got.len() < all.len() {
            tokio::time::timeout(Duration::from_secs(5), b.readable()).await.expect("in time").expect("a socket");
            let _ = a.flush();
            let mut buf = AlignedBuf::with_capacity(4096);
            match b.try_read(&mut buf, 77) {
                Ok(read) => assert!(read == buf.len() && (1..=77).contains(&read)),
                Err(error) => assert_eq!(error.kind(), std::io::ErrorKind::WouldBlock),
            }
            got.extend_from_slice(&buf);
            // Encrypting looks at everything that has come in.
            if got.len() % 5 == 0 {
                let _ = b.try_write(&[IoSlice::new(b"x")]);
            }
        }
        assert_eq!(got, all);
    });
}
