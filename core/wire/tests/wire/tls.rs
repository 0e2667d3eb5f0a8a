//! Clients and servers over TLS on real sockets, strangers among them, and what goes wrong in handshakes.

use std::io::{Read, Write};
use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use crate::strangers::{Stranger, frame, raw_listener};
use braid_base::ids::{ClientId, DriveId, FsId, Guid, HostId, Ino, OpId, PartitionId, Term};
use braid_base::msg::drive::{DriveOp, DriveReply, DriveResult};
use braid_base::msg::fs::{Op, Reply, Request};
use braid_base::msg::host::{HostOp, HostReply, HostResult, Map};
use braid_base::msg::lease::Answer;
use braid_base::msg::peer::PeerMsg;
use braid_base::{Error, ErrorKind, Result};
use braid_client::Wire;
use braid_io::chance::Rng;
use braid_io::clock::mono_ms;
use braid_replica::Msg;
use braid_wire::frame::HEADER;
use braid_wire::tls::{Authority, Client, Identity, Peer, client_config, server_config};
use braid_wire::{Address, Caller, Find, Handler, Hello, Listener, Pusher, RemoteWire, ReplyTo, Target, Who, serve};
use bytes::Bytes;
use tokio::net::TcpListener;
use tokio::runtime::Runtime;

pub const CLUSTER: Guid = Guid([3; 16]);
pub const HOST: HostId = HostId(2);
/// Time for a handshake; `limits::HELLO_MS`.
const HELLO: Duration = Duration::from_secs(5);

/// A server whose partitions answer `ReadStage` with noise, `Write` with a sum and `GetAttr` with the inode's number.
#[derive(Default)]
struct Fake {
    peers: Mutex<Vec<Peer>>,
    written: AtomicU64,
}

impl Handler for Fake {
    fn admit(&self, peer: Peer, hello: &Hello) -> Result<u16> {
        self.peers.lock().expect("no panic").push(peer);
        hello.check(CLUSTER, "secret").map(|()| 7)
    }

    fn joined(&self, _who: &Who, _push: Pusher) {}

    fn left(&self, _who: &Who, _push: &Pusher) {}

    fn partition(&self, _from: ClientId, _p: PartitionId, _term: Term, request: Request, answer: ReplyTo<Answer>) {
        match request.body {
            Op::GetAttr { ino } => answer.send(&Reply::Value(ino.0.to_le_bytes().to_vec()).into()),
            Op::ReadStage { len, .. } => answer.send(&Reply::Data(noise(len as usize)).into()),
            Op::Write { parts, .. } => {
                let bytes: usize = parts.iter().map(|(_, bytes)| bytes.len()).sum();
                self.written.fetch_add(bytes as u64, Ordering::Relaxed);
                let right = parts.iter().all(|(_, bytes)| *bytes == noise(bytes.len()));
                answer.send(&Reply::Value(vec![u8::from(right)]).into());
            }
            other => answer.send(&Error::new(ErrorKind::Unsupported, format!("{other:?}")).into()),
        }
    }

    fn drive(&self, _from: &Caller, _d: DriveId, op: DriveOp, answer: ReplyTo<DriveResult>) {
        let DriveOp::Read { count, .. } = op else { return answer.send(&Ok(DriveReply::Done)) };
        let data = noise(usize::from(count) * 4096);
        let crcs = braid_base::crc::block_crcs(&data);
        answer.send(&Ok(DriveReply::Data { data, crcs }));
    }

    fn host(&self, _from: &Caller, op: HostOp, answer: ReplyTo<HostResult>) {
        let HostOp::Map = op else { return };
        answer.send(&Ok(HostReply::Map(map())));
    }

    fn replica(&self, _from: HostId, _message: Msg) {}

    fn peer(&self, _from: PartitionId, _to: PartitionId, _message: PeerMsg) {}

    fn way(&self, _to: HostId) -> Result<Address> {
        Err(Error::new(ErrorKind::Unsupported, "this host is alone"))
    }
}

/// All is on this host.
pub fn map() -> Map {
    let drives = vec![(DriveId(1), HOST), (DriveId(3), HOST)];
    Map { version: 1, hosts: vec![(HOST, Vec::new())], primaries: vec![Some(HOST); 7], drives }
}

/// Bytes that differ with their length and their place.
fn noise(len: usize) -> Bytes {
    (0..len).map(|at| (at ^ (at >> 8) ^ (at >> 16) ^ len) as u8).collect::<Vec<u8>>().into()
}

fn runtime() -> Runtime {
    tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().expect("a runtime")
}

fn authority() -> Authority {
    Authority::new(CLUSTER).expect("an authority")
}

async fn listen(own: Option<&Identity>, fake: &Arc<Fake>) -> SocketAddr {
    let tcp = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let at = tcp.local_addr().expect("bound");
    let listener = match own {
        Some(own) => Listener::Tls(tcp, server_config(own).expect("an identity")),
        None => Listener::Tcp(tcp),
    };
    tokio::spawn(serve(listener, fake.clone()));
    at
}

fn find(at: SocketAddr, tls: Option<Client>) -> Find {
    let tls = tls.map(|client| (client, Some(HOST)));
    Box::new(move || {
        let (address, secret) = (Address::Tcp(at), "secret".to_owned());
        Ok(Target { address, cluster: CLUSTER, secret, tls: tls.clone() })
    })
}

fn who(client: u64) -> Who {
    let (client, fs) = (ClientId(client), FsId(1));
    Who { client, pid: 1, fs, filesystem: "f".into(), point: "/m".into(), since_s: 0 }
}

async fn connect(at: SocketAddr, tls: Option<Client>) -> Result<RemoteWire> {
    let again = tls.clone();
    RemoteWire::connect(find(at, tls), Box::new(move |_, _| find(at, again.clone())), who(9)).await
}

/// A client that trusts `authority` and has no certificate.
fn anonymous(authority: &Authority) -> Option<Client> {
    Some(client_config(&authority.ca(), None).expect("an authority"))
}

fn request(body: Op) -> Request {
    let op = OpId { client: ClientId(9), seq: 1 };
    Request { op, session: 0, done_upto: 0, fs: FsId(1), cred: Default::default(), early: false, body }
}

fn read_op(len: u32) -> Op {
    Op::ReadStage { at: Default::default(), poff: 0, len }
}

fn write_op(len: usize) -> Op {
    let parts = vec![(0, noise(len)), (9, noise(100))];
    Op::Write { ino: Ino(1), parts, append: false, kill_suid_sgid: false, at: None }
}

async fn ask(wire: &RemoteWire, body: Op) -> Result<Reply> {
    wire.partition(PartitionId(5), request(body)).await.result
}

async fn works(wire: &RemoteWire) {
    let Ok(Reply::Value(value)) = ask(wire, Op::GetAttr { ino: Ino(77) }).await else { panic!("no answer") };
    assert_eq!(value, 77_u64.to_le_bytes());
}

#[test]
fn messages_of_all_sizes_go_both_ways_at_once() {
    runtime().block_on(async {
        let (authority, fake) = (authority(), Arc::new(Fake::default()));
        let at = listen(Some(&authority.issue(HOST).expect("issued")), &fake).await;
        let wire = Arc::new(connect(at, anonymous(&authority)).await.expect("connects"));
        let all: Vec<_> = (0..600_u64)
            .map(|n| {
                let wire = Arc::clone(&wire);
                tokio::spawn(async move {
                    let size = Rng::new(n).below(if n % 20 < 4 { 8 << 20 } else { 40_000 }) as usize;
                    match n % 4 {
                        0 => {
                            let len = size as u32;
                            let Ok(Reply::Data(data)) = ask(&wire, read_op(len)).await else { panic!("no data") };
                            assert_eq!(data, noise(size));
                        }
                        1 => {
                            let Ok(Reply::Value(right)) = ask(&wire, write_op(size)).await else { panic!("no sum") };
                            assert_eq!(right, [1]);
                        }
                        2 => {
                            let id = braid_base::msg::drive::ShardId { pack: Default::default(), shard: 0 };
                            let op = DriveOp::Read { id, block: 0, count: (size / 4096) as u16 };
                            let Ok(DriveReply::Data { data, crcs }) = wire.drive(DriveId(3), op).await else {
                                panic!("no blocks")
                            };
                            assert!(data == noise(size / 4096 * 4096) && crcs == braid_base::crc::block_crcs(&data));
                        }
                        _ => works(&wire).await,
                    }
                })
            })
            .collect();
        for one in all {
            one.await.expect("no panic");
        }
        assert!(fake.written.load(Ordering::Relaxed) > 50 << 20);
    });
}

#[test]
fn hosts_are_known_by_their_certificates_and_others_by_none() {
    runtime().block_on(async {
        let (authority, fake) = (authority(), Arc::new(Fake::default()));
        let own = authority.issue(HOST).expect("issued");
        let at = listen(Some(&own), &fake).await;
        let other = authority.issue(HostId(3)).expect("issued");
        let as_host = client_config(&authority.ca(), Some(&other)).expect("an identity");
        let host = connect(at, Some(as_host)).await.expect("connects");
        works(&host).await;
        let last = || fake.peers.lock().expect("no panic").pop();
        assert_eq!(last(), Some(Peer::Host(HostId(3))));
        drop(host);
        fake.peers.lock().expect("no panic").clear();
        let nobody = connect(at, anonymous(&authority)).await.expect("connects");
        works(&nobody).await;
        assert!(last() == Some(Peer::Anonymous));
    });
}

fn since(begun_ms: u64) -> Duration {
    Duration::from_millis(mono_ms() - begun_ms)
}

/// What a client hears, and that it does not take long.
async fn refused(at: SocketAddr, tls: Option<Client>) -> Error {
    let begun = mono_ms();
    let error = connect(at, tls).await.err().expect("not let in");
    assert!(since(begun) < HELLO + Duration::from_secs(3), "{:?}", since(begun));
    error
}

#[track_caller]
fn says(error: &Error, kind: ErrorKind, words: &str) {
    assert!(error.kind() == kind && error.message().contains(words), "{:?}: {error}", error.kind());
}

#[test]
fn certificates_that_are_not_right_are_refused_in_words() {
    runtime().block_on(async {
        let (authority, fake) = (authority(), Arc::new(Fake::default()));
        let now = braid_io::clock::now().wall.sec;
        let serves = async |own: Identity| listen(Some(&own), &fake).await;
        let client = || anonymous(&authority);

        let at = serves(authority.issue_for(HOST, now - 1000, now - 10).expect("issued")).await;
        says(&refused(at, client()).await, ErrorKind::Refused, "has expired");
        // It is replaced while the host runs, by one of its own only.
        let own = authority.issue_for(HOST, now - 1000, now - 10).expect("issued");
        let at = listen(Some(&own), &Arc::new(Fake::default())).await;
        says(&refused(at, client()).await, ErrorKind::Refused, "has expired");
        let another = authority.issue(HostId(8)).expect("issued");
        assert_eq!(own.renew(&another).err().map(|error| error.kind()), Some(ErrorKind::Invalid));
        says(&refused(at, client()).await, ErrorKind::Refused, "has expired");
        own.renew(&authority.issue(HOST).expect("issued")).expect("its own");
        assert!(own.expires_s() > now + 1000);
        connect(at, client()).await.expect("the newer one is shown");
        let asks = authority.issue_for(HostId(4), now - 1000, now - 10).expect("issued");
        let tls = client_config(&authority.ca(), Some(&asks)).expect("an identity");
        asks.renew(&authority.issue(HostId(4)).expect("issued")).expect("its own");
        connect(at, Some(tls)).await.expect("the newer one is shown here, too");

        let at = serves(authority.issue_for(HOST, now + 1000, now + 2000).expect("issued")).await;
        says(&refused(at, client()).await, ErrorKind::Refused, "not valid yet");
        let at = serves(authority.issue(HostId(8)).expect("issued")).await;
        says(&refused(at, client()).await, ErrorKind::Refused, "is another host: expected h2.0303");
        let foreign = Authority::new(Guid([4; 16])).expect("an authority");
        let at = serves(foreign.issue(HOST).expect("issued")).await;
        says(&refused(at, client()).await, ErrorKind::Refused, "not from this cluster's authority");
        let made_anew = self::authority();
        let at = serves(made_anew.issue(HOST).expect("issued")).await;
        says(&refused(at, client()).await, ErrorKind::Refused, "not from this cluster's authority");

        // Those of clients: the server tells them.
        let at = serves(authority.issue(HOST).expect("issued")).await;
        for _ in 0..10 {
            let with = |own: Identity| Some(client_config(&authority.ca(), Some(&own)).expect("an identity"));
            let old = with(authority.issue_for(HostId(3), now - 1000, now - 10).expect("issued"));
            says(&refused(at, old).await, ErrorKind::Refused, "certificate of this one has expired");
            for authority in [&foreign, &made_anew] {
                let other = with(authority.issue(HostId(3)).expect("issued"));
                says(&refused(at, other).await, ErrorKind::Refused, "of this one is not from its cluster's");
            }
        }
        assert!(fake.peers.lock().expect("no panic").is_empty(), "nobody of them was asked in");
        connect(at, client()).await.expect("others are let in");
    });
}

#[test]
fn tls_and_none_at_the_two_ends_is_said_in_words() {
    runtime().block_on(async {
        let (authority, fake) = (authority(), Arc::new(Fake::default()));
        let secured = listen(Some(&authority.issue(HOST).expect("issued")), &fake).await;
        let clear = listen(None, &fake).await;
        says(&refused(secured, None).await, ErrorKind::Refused, "this port is served with TLS");
        says(&refused(clear, anonymous(&authority)).await, ErrorKind::Refused, "served without");
        works(&connect(secured, anonymous(&authority)).await.expect("connects")).await;
        works(&connect(clear, None).await.expect("connects")).await;
    });
}

#[test]
fn servers_that_talk_nonsense_hang_up_or_stay_silent_hold_up_nobody() {
    runtime().block_on(async {
        let authority = authority();
        let nonsense = raw_listener(|mut stream| {
            let _ = stream.read(&mut [0; 4096]);
            let _ = stream.write_all(b"HTTP/1.1 400 Bad Request\r\nConnection: close\r\n\r\n");
        });
        says(&refused(nonsense, anonymous(&authority)).await, ErrorKind::Refused, "is not TLS");
        let hangs_up = raw_listener(|mut stream| {
            let _ = stream.read(&mut [0; 4096]);
            // The beginning of a server's hello.
            let _ = stream.write_all(&[0x16, 3, 3, 0, 90, 2, 0, 0]);
        });
        says(&refused(hangs_up, anonymous(&authority)).await, ErrorKind::Stopped, "in the middle of the TLS handshake");
        let silent = raw_listener(|mut stream| {
            let _ = stream.read(&mut [0; 4096]);
            std::thread::park_timeout(3 * HELLO);
        });
        assert_eq!(refused(silent, anonymous(&authority)).await.kind(), ErrorKind::TimedOut);
    });
}

#[test]
fn clients_that_talk_nonsense_hang_up_or_stay_silent_hold_up_nobody() {
    let (runtime, authority, fake) = (runtime(), authority(), Arc::new(Fake::default()));
    let at = runtime.block_on(listen(Some(&authority.issue(HOST).expect("issued")), &fake));
    let connects = || {
        let begun = mono_ms();
        runtime.block_on(async { works(&connect(at, anonymous(&authority)).await.expect("connects")).await });
        assert!(since(begun) < HELLO - Duration::from_secs(1), "{:?}", since(begun));
    };
    let dial = || std::net::TcpStream::connect(at).expect("it listens");
    let began = mono_ms();
    // Silent ones, silent ones after half a hello, and some that go.
    let mut silent: Vec<_> = (0..20).map(|_| dial()).collect();
    let half = crate::strangers::client_hello(&authority);
    for (n, stream) in silent.iter_mut().enumerate().skip(5) {
        stream.write_all(&half[..1 + n * half.len() / 20]).expect("it listens");
    }
    silent.truncate(15);
    connects();
    let mut rng = Rng::new(5);
    for n in 0..20 {
        let mut noise: Vec<u8> = (0..300).map(|_| rng.next_u64() as u8).collect();
        // Some that look like records.
        if n % 2 == 0 {
            noise[..5].copy_from_slice(&[0x16, 3, 1, 0, 200]);
        }
        let mut stream = dial();
        let _ = stream.write_all(&noise);
        stream.set_read_timeout(Some(HELLO)).expect("a timeout");
        let mut answer = Vec::new();
        // At most an alert.
        let _ = stream.shutdown(std::net::Shutdown::Write);
        let _ = stream.read_to_end(&mut answer);
        assert!(answer.len() <= 7, "{answer:?}");
    }
    connects();
    for mut stream in silent {
        stream.set_read_timeout(Some(2 * HELLO)).expect("a timeout");
        let _ = stream.read_to_end(&mut Vec::new());
    }
    assert!(since(began) < HELLO + Duration::from_secs(3), "{:?}", since(began));
    connects();
}

#[test]
fn bytes_that_trickle_in_and_new_keys_every_so_often_are_the_same_stream() {
    let (runtime, authority, fake) = (runtime(), authority(), Arc::new(Fake::default()));
    let at = runtime.block_on(listen(Some(&authority.issue(HOST).expect("issued")), &fake));
    let mut rng = Rng::new(9);
    let mut stranger = Stranger::connect(at, &authority);
    let mut expected = Vec::new();
    let hello = frame::hello("secret", who(5));
    stranger.send(&hello);
    stranger.welcome();
    for round in 0..150_u64 {
        let (id, size) = (round + 1, rng.below(if round % 10 == 0 { 400_000 } else { 3_000 }) as usize);
        let body = if round % 3 == 0 { write_op(size) } else { read_op(size as u32) };
        let mut request = request(body);
        request.op.client = ClientId(5);
        let bytes = frame::request(id, &request);
        expected.push((id, round % 3 == 0, size));
        // In records of any length, in pieces of any length.
        let mut rest = &bytes[..];
        while !rest.is_empty() {
            let now = rest.len().min(1 + rng.below(if round % 10 == 0 { 20_000 } else { 400 }) as usize);
            stranger.send_in_pieces(&rest[..now], 1 + rng.below(5_000) as usize);
            rest = &rest[now..];
        }
        // More often than rustls allows in a row would end the connection.
        if round % 4 == 0 {
            stranger.new_keys();
        }
    }
    for _ in 0..expected.len() {
        let (id, data) = stranger.answer();
        let (_, write, size) = expected[id as usize - 1];
        assert!(if write { data.is_empty() } else { data == noise(size) }, "answer {id}");
    }
    assert!(fake.written.load(Ordering::Relaxed) > 1 << 20);
}

#[test]
fn who_is_cut_off_for_nonsense_hears_that_nothing_more_comes() {
    let (runtime, authority, fake) = (runtime(), authority(), Arc::new(Fake::default()));
    let at = runtime.block_on(listen(Some(&authority.issue(HOST).expect("issued")), &fake));
    let mut stranger = Stranger::connect(at, &authority);
    stranger.send(&frame::hello("secret", who(5)));
    stranger.welcome();
    stranger.send(&[7; HEADER]);
    assert!(stranger.hears_the_end());
}

#[test]
fn a_client_that_stops_reading_gets_all_of_it_later_and_holds_up_nobody() {
    let (runtime, authority, fake) = (runtime(), authority(), Arc::new(Fake::default()));
    let at = runtime.block_on(listen(Some(&authority.issue(HOST).expect("issued")), &fake));
    let mut stranger = Stranger::connect(at, &authority);
    stranger.send(&frame::hello("secret", who(5)));
    stranger.welcome();
    let sizes: Vec<u32> = (0..60).map(|n| (1 << 20) - n).collect();
    for (size, id) in sizes.iter().zip(1..) {
        let mut request = request(read_op(*size));
        request.op.client = ClientId(5);
        stranger.send(&frame::request(id, &request));
    }
    runtime.block_on(async {
        tokio::time::sleep(Duration::from_millis(300)).await;
        works(&connect(at, anonymous(&authority)).await.expect("connects")).await;
    });
    for _ in 0..sizes.len() {
        let (id, data) = stranger.answer();
        assert_eq!(data, noise(sizes[id as usize - 1] as usize));
    }
}

#[test]
fn a_server_that_stops_reading_gets_all_of_it_later() {
    let (runtime, authority) = (runtime(), authority());
    let own = authority.issue(HOST).expect("issued");
    let at = crate::strangers::server(&own, Duration::from_millis(500));
    runtime.block_on(async {
        let wire = Arc::new(connect(at, anonymous(&authority)).await.expect("connects"));
        let all: Vec<_> = (0..40)
            .map(|n| {
                let wire = Arc::clone(&wire);
                tokio::spawn(async move { ask(&wire, write_op((1 << 20) - n)).await })
            })
            .collect();
        for one in all {
            let answer = tokio::time::timeout(Duration::from_secs(20), one).await.expect("in time").expect("no panic");
            assert!(matches!(answer, Ok(Reply::Done)), "{answer:?}");
        }
    });
}
