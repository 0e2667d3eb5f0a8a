//! Clients and servers over real sockets, and what goes wrong between them.

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use crate::fake::{CLUSTER, Fake, TERM, Told, exercise, number, request, runtime, who};
use braid_base::ids::{ClientId, DriveId, Guid, HostId, Index, Ino, PartitionId, Term};
use braid_base::msg::drive::{DriveOp, DriveReply};
use braid_base::msg::fs::{Op, Reply};
use braid_base::msg::host::{HostOp, HostReply, Map};
use braid_base::msg::lease::{Push, PushBody};
use braid_base::msg::peer::PeerMsg;
use braid_base::{ErrorKind, Result};
use braid_client::Wire;
use braid_client::wire::PushSink;
use braid_io::chance::Rng;
use braid_replica::{Body, Member, Msg};
use braid_wire::codec::{Encoded, Message};
use braid_wire::frame::{HEADER, Header, Kind};
use braid_wire::{Address, Caller, Find, Finder, Hello, Listener, RemoteWire, Routes, Target, Visit, serve};
use tokio::net::TcpListener;
use tokio::task::AbortHandle;

fn listen(path: &Path, fake: &Arc<Fake>) -> AbortHandle {
    let listener = Listener::unix(path).expect("a socket");
    tokio::spawn(serve(listener, fake.clone())).abort_handle()
}

fn find(address: Address, secret: &'static str) -> Find {
    Box::new(move || Ok(Target { address: address.clone(), cluster: CLUSTER, secret: secret.to_owned(), tls: None }))
}

fn finder(address: Address) -> Finder {
    Box::new(move |_, _| find(address.clone(), "secret"))
}

async fn connect(address: Address) -> Result<RemoteWire> {
    RemoteWire::connect(find(address.clone(), "secret"), finder(address), who()).await
}

#[test]
fn answers_find_who_asked_over_both_kinds_of_socket() {
    runtime().block_on(async {
        let dir = tempfile::tempdir().expect("dir");
        let long = dir.path().join("l".repeat(200));
        std::fs::create_dir(&long).expect("mkdir");
        let (path, fake) = (long.join("s"), Arc::new(Fake::default()));
        listen(&path, &fake);
        let unix = connect(Address::Unix(path)).await.expect("connects");
        exercise(Arc::new(unix)).await;

        let tcp = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let at = tcp.local_addr().expect("bound");
        tokio::spawn(serve(Listener::Tcp(tcp), fake));
        let wire = connect(Address::Tcp(at)).await.expect("connects");
        exercise(Arc::new(wire)).await;
    });
}

#[test]
fn who_is_not_let_in_hears_why() {
    runtime().block_on(async {
        let dir = tempfile::tempdir().expect("dir");
        let (path, fake) = (dir.path().join("s"), Arc::new(Fake::default()));
        listen(&path, &fake);
        let address = || Address::Unix(path.clone());
        let refused = |secret| RemoteWire::connect(find(address(), secret), finder(address()), who());
        let error = refused("guess").await.err().expect("a wrong secret");
        assert_eq!(error.kind(), ErrorKind::NotPermitted);
        fake.closed.store(true, Ordering::Relaxed);
        assert_eq!(refused("secret").await.err().map(|e| e.message().to_owned()).as_deref(), Some("closed today"));
        let nobody = connect(Address::Unix(dir.path().join("none"))).await;
        assert_eq!(nobody.err().map(|e| e.kind()), Some(ErrorKind::NotFound));
    });
}

#[test]
fn a_server_that_goes_fails_what_is_outstanding_and_is_found_again() {
    runtime().block_on(async {
        let dir = tempfile::tempdir().expect("dir");
        let (path, fake) = (dir.path().join("s"), Arc::new(Fake::default()));
        let first = listen(&path, &fake);
        let wire = Arc::new(connect(Address::Unix(path.clone())).await.expect("connects"));
        fake.silent.store(true, Ordering::Relaxed);
        let waiting: Vec<_> = (0..50)
            .map(|n| {
                let wire = Arc::clone(&wire);
                tokio::spawn(async move { number(&wire, n).await })
            })
            .collect();
        while fake.asked.load(Ordering::Relaxed) < 50 {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        first.abort();
        for one in waiting {
            let error = one.await.expect("no panic").expect_err("nobody answers");
            assert!(error.kind().is_passing(), "{error:?}");
        }
        // Answers to a connection that has ended go nowhere.
        for answer in fake.kept.lock().expect("no panic").drain(..) {
            answer.send(&Reply::Done.into());
        }
        let away = number(&wire, 1).await.expect_err("no server");
        assert!(away.kind().is_passing(), "{away:?}");
        // A question to a drive outlives the break.
        let drive = wire.drive(DriveId(1), DriveOp::Stat);
        fake.silent.store(false, Ordering::Relaxed);
        let second = async {
            tokio::time::sleep(Duration::from_millis(100)).await;
            listen(&path, &fake)
        };
        let (answer, _) = tokio::join!(drive, second);
        assert!(matches!(answer, Ok(DriveReply::Done)), "{answer:?}");
        // The small connection comes back as well.
        let mut tries = 0;
        while number(&wire, 8).await != Ok(8) {
            tries += 1;
            assert!(tries < 500, "the server is not found again");
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    });
}

#[test]
fn a_given_up_request_is_forgotten_and_its_late_answer_hurts_nobody() {
    runtime().block_on(async {
        let dir = tempfile::tempdir().expect("dir");
        let (path, fake) = (dir.path().join("s"), Arc::new(Fake::default()));
        listen(&path, &fake);
        let wire = connect(Address::Unix(path)).await.expect("connects");
        fake.silent.store(true, Ordering::Relaxed);
        let late = tokio::time::timeout(Duration::from_millis(50), number(&wire, 1)).await;
        assert!(late.is_err());
        fake.silent.store(false, Ordering::Relaxed);
        for answer in fake.kept.lock().expect("no panic").drain(..) {
            answer.send(&Reply::Value(vec![0; 8]).into());
        }
        assert_eq!(number(&wire, 2).await, Ok(2));
    });
}

#[test]
fn unasked_messages_reach_the_client() {
    runtime().block_on(async {
        let dir = tempfile::tempdir().expect("dir");
        let (path, fake) = (dir.path().join("s"), Arc::new(Fake::default()));
        listen(&path, &fake);
        let wire = connect(Address::Unix(path)).await.expect("connects");
        let (told, mut heard) = tokio::sync::mpsc::unbounded_channel();
        let sink: Arc<dyn PushSink> = Arc::new(Told(told));
        assert!(wire.listen(ClientId(9), Arc::clone(&sink)));
        assert!(!wire.listen(ClientId(8), Arc::clone(&sink)), "the server knows it as client 9");
        let push = fake.pusher(ClientId(9)).await;
        let numbered =
            |n| Push { to: ClientId(9), session: n, from: PartitionId(1), term: Term(2), body: PushBody::Reassert };
        assert!((0..100).all(|n| push.push(&numbered(n))));
        for n in 0..100 {
            assert_eq!(heard.recv().await, Some(numbered(n)));
        }
        drop(wire);
        while !fake.pushers.lock().expect("no panic").is_empty() {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        // It is closed right after that was said.
        while push.push(&numbered(0)) {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    });
}

/// A client that does as it likes: greets as channel 0 of client 9, then closes inodes.
fn raw_client(path: &Path, inos: impl Iterator<Item = u64>) -> UnixStream {
    let hello = Hello { cluster: CLUSTER, secret: "secret".to_owned(), caller: Caller::Client(who()), channel: 0 };
    let mut stream = UnixStream::connect(path).expect("connects");
    stream.set_read_timeout(Some(Duration::from_secs(10))).expect("a timeout");
    let frame = |kind, id, target, message: &Encoded| {
        let mut bytes = Header::of(kind, id, target, message, true).encode().to_vec();
        bytes.extend_from_slice(&message.meta);
        bytes
    };
    stream.write_all(&frame(Kind::Hello, 0, 0, &hello.encode())).expect("it listens");
    let mut head = [0; HEADER];
    stream.read_exact(&mut head).expect("a welcome");
    let welcome = Header::decode(&head).expect("a header");
    assert_eq!(welcome.kind, Kind::Welcome);
    stream.read_exact(&mut vec![0; welcome.frame_len() - HEADER]).expect("all of it");
    let all = inos.flat_map(|ino| {
        frame(Kind::AskPartition, ino, 5, &(Term(TERM), request(Op::Close { inos: vec![Ino(ino)] })).encode())
    });
    stream.write_all(&all.collect::<Vec<u8>>()).expect("it listens");
    stream
}

#[test]
fn what_lies_unread_in_an_old_connection_comes_before_the_new_one_or_never() {
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(4).enable_all().build().expect("a runtime");
    let dir = tempfile::tempdir().expect("dir");
    let (path, fake) = (dir.path().join("s"), Arc::new(Fake::default()));
    runtime.block_on(async { listen(&path, &fake) });
    let order = || fake.order.lock().expect("no panic").clone();
    let rest = |ms| runtime.block_on(async move { tokio::time::sleep(Duration::from_millis(ms)).await });
    let until = |what: &dyn Fn() -> bool| {
        let mut tries = 0;
        while !what() {
            tries += 1;
            assert!(tries < 5_000, "it does not come about: {:?}", order());
            rest(1);
        }
    };
    for round in 0..10 {
        fake.order.lock().expect("no panic").clear();
        let gate = fake.gate.lock().expect("no panic");
        let old = raw_client(&path, 1..=500);
        until(&|| order() == [1]);
        if round % 2 == 0 {
            drop(old);
        }
        let new = raw_client(&path, 1000..=1000);
        rest(20);
        assert_eq!(order(), [1], "the new one is read while the old one is");
        drop(gate);
        until(&|| order().last() == Some(&1000));
        rest(20);
        let all = order();
        let old_ones = all.len() as u64 - 1;
        assert_eq!(all, (1..=old_ones).chain([1000]).collect::<Vec<u64>>());
        drop(new);
        until(&|| fake.pushers.lock().expect("no panic").is_empty());
    }
}

#[test]
fn noise_on_the_socket_ends_that_connection_and_no_other() {
    let runtime = runtime();
    let dir = tempfile::tempdir().expect("dir");
    let (path, fake) = (dir.path().join("s"), Arc::new(Fake::default()));
    let wire = runtime.block_on(async {
        listen(&path, &fake);
        connect(Address::Unix(path.clone())).await.expect("connects")
    });
    let mut rng = Rng::new(1);
    for _ in 0..20 {
        let mut noise = UnixStream::connect(&path).expect("connects");
        let bytes: Vec<u8> = (0..200).map(|_| rng.next_u64() as u8).collect();
        let _ = noise.write_all(&bytes);
        noise.shutdown(std::net::Shutdown::Write).expect("a socket");
        let mut answer = Vec::new();
        // Closed by the server, after a word.
        noise.read_to_end(&mut answer).expect("the end of it");
        assert!(String::from_utf8_lossy(&answer).contains("this is not Braid's protocol"));
    }
    assert_eq!(runtime.block_on(number(&wire, 3)), Ok(3));
}

#[test]
fn of_too_many_who_do_not_say_who_they_are_those_go_that_have_waited_longest() {
    let runtime = runtime();
    let dir = tempfile::tempdir().expect("dir");
    let (path, fake) = (dir.path().join("s"), Arc::new(Fake::default()));
    runtime.block_on(async { listen(&path, &fake) });
    // `limits::STRANGERS_MAX`, and some.
    let mut silent: Vec<UnixStream> = Vec::new();
    for _ in 0..512 + 20 {
        silent.push(UnixStream::connect(&path).expect("connects"));
    }
    let wire = runtime.block_on(connect(Address::Unix(path.clone()))).expect("connects");
    assert_eq!(runtime.block_on(number(&wire, 4)), Ok(4));
    for (at, stream) in silent.iter_mut().enumerate() {
        stream.set_read_timeout(Some(Duration::from_millis(if at < 20 { 2_000 } else { 1 }))).expect("a socket");
        let ended = matches!(stream.read(&mut [0]), Ok(0));
        // Those who came in meanwhile took places, too.
        assert!(ended || at >= 20, "connection {at}");
        assert!(!ended || at < 20 + 8, "connection {at}");
    }
}

#[test]
fn a_request_names_its_term_and_follows_its_partition() {
    runtime().block_on(async {
        let dir = tempfile::tempdir().expect("dir");
        let paths = [dir.path().join("1"), dir.path().join("2")];
        let fakes = [1, 2].map(|host| Arc::new(Fake { host, ..Fake::default() }));
        for (path, fake) in paths.iter().zip(&fakes) {
            let hosts = (1..=2).map(|n| (HostId(n), vec![paths[n as usize - 1].display().to_string()]));
            *fake.others.lock().expect("no panic") = hosts.collect();
            listen(path, fake);
        }
        let finder: Finder = Box::new(|_, at| find(Address::Unix(at[0].clone().into()), "secret"));
        let entry = find(Address::Unix(paths[0].clone()), "secret");
        let wire = RemoteWire::connect(entry, finder, who()).await.expect("connects");
        let asked = || [0, 1].map(|n: usize| fakes[n].asked.swap(0, Ordering::Relaxed));
        assert_eq!(number(&wire, 1).await, Ok(1), "the first refusal names the term");
        assert_eq!(number(&wire, 2).await, Ok(2));
        fakes[0].terms.store(4, Ordering::Relaxed);
        assert_eq!(number(&wire, 3).await, Ok(3));
        assert_eq!(asked(), [3, 0]);
        // It moves; who asks in vain hears so, and looks where it is.
        fakes[1].terms.store(5, Ordering::Relaxed);
        fakes.iter().for_each(|fake| fake.primary.store(2, Ordering::Relaxed));
        let moved = number(&wire, 4).await.expect_err("not there any more");
        assert_eq!(moved.kind(), ErrorKind::Moved);
        let mut tries = 0;
        while number(&wire, 4).await != Ok(4) {
            tries += 1;
            assert!(tries < 1_000, "it is not found");
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        assert_eq!(asked(), [0, 1]);
    });
}

#[test]
fn hosts_tell_each_other_and_visitors_only_ask_the_host() {
    runtime().block_on(async {
        let dir = tempfile::tempdir().expect("dir");
        let (path, fake) = (dir.path().join("s"), Arc::new(Fake::default()));
        let server = listen(&path, &fake);
        let address = Address::Unix(path.clone());
        let routes = Routes::new(Caller::Host(HostId(2)), finder(address.clone()));
        routes.follow(fake.map());
        let msg = |ms| Msg {
            partition: PartitionId(3),
            term: Term(1),
            from: Member { host: HostId(2), store: Guid([1; 16]) },
            to_store: Guid([2; 16]),
            body: Body::Ack { held: Index(7), echo_ms: ms },
        };
        let told = |last: String| {
            let fake = Arc::clone(&fake);
            async move {
                while fake.told.lock().expect("no panic").last() != Some(&last) {
                    tokio::time::sleep(Duration::from_millis(1)).await;
                }
                std::mem::take(&mut *fake.told.lock().expect("no panic"))
            }
        };
        let words = |ms| format!("h2: {:?}", msg(ms));
        routes.replica(HostId(1), &msg(0)); // lost, unless the connection stands already
        while routes.reached().is_empty() {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        (1..=100).for_each(|ms| routes.replica(HostId(1), &msg(ms)));
        let all = told(words(100)).await;
        let all = all.strip_prefix(&[words(0)]).unwrap_or(&all);
        assert!(all.len() == 100 && all.iter().zip(1..).all(|(one, ms)| *one == words(ms)), "{all:?}");
        let noted = PeerMsg::Noted { upto: 5 };
        routes.peer(PartitionId(1), PartitionId(4), noted.clone());
        let words = format!("p1 to p4: {noted:?}");
        assert_eq!(told(words.clone()).await, [words]);
        assert_eq!(routes.ask(HostId(1), HostOp::Seats).await.map_err(|e| e.kind()).err(), Some(ErrorKind::Stopped));
        assert!(matches!(routes.drive(DriveId(1), DriveOp::Stat).await, Ok(DriveReply::Done)));

        // Others know where partitions are by now; one that knows less is not followed.
        for (theirs, then) in [(4, 4), (3, 4)] {
            fake.primary.store(theirs, Ordering::Relaxed);
            routes.catch_up().await;
            assert_eq!(routes.map().version, then);
        }
        // A host that is alone always says the same version.
        let more = |drives| Map { drives, ..(*routes.map()).clone() };
        routes.follow(more(vec![(DriveId(1), HostId(1))]));
        fake.primary.store(4, Ordering::Relaxed);
        routes.catch_up().await;
        assert_eq!(routes.map().drives, fake.map().drives);

        let visit = Visit::begin(find(address.clone(), "secret")).await.expect("connects");
        assert_eq!(visit.ask(HostOp::Map).await, Ok(HostReply::Map(fake.map())));
        // With one server a question to a drive waits for it; with several it fails, there are other shards.
        let two = |version| Map { version, hosts: vec![(HostId(1), vec![]), (HostId(2), vec![])], ..fake.map() };
        routes.follow(two(5));
        server.abort();
        while !routes.reached().is_empty() {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        // The other connections end a moment later; what goes out on one of them is lost with it.
        let away = loop {
            match routes.drive(DriveId(1), DriveOp::Stat).await.map_err(|e| e.kind()) {
                Err(ErrorKind::TimedOut) => {}
                away => break away,
            }
        };
        assert_eq!(away.err(), Some(ErrorKind::Stopped));
    });
}
