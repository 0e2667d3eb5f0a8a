//! etcd as the coordinator: the conformance suite against three real members, and what only many members can do.

#![allow(clippy::disallowed_methods)] // Real servers take real time.

mod suite;

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use braid_base::ErrorKind;
use braid_base::ids::{PartitionId, Term};
use braid_cluster::Etcd;
use braid_cluster::coordinator::{Check, Coordinator, Outcome, Revision, Txn};
use braid_cluster::facts::Partition;
use braid_cluster::records::{self, Record};
use suite::Subject;

/// Three members on free ports of this machine.
struct Members {
    _dir: tempfile::TempDir,
    commands: Vec<Command>,
    running: Vec<Option<Child>>,
    endpoints: Vec<String>,
}

/// Where the set-up put etcd.
fn etcd() -> PathBuf {
    let cache = || {
        let home = || std::env::var_os("HOME").map(|home| PathBuf::from(home).join(".cache"));
        std::env::var_os("XDG_CACHE_HOME").map(PathBuf::from).or_else(home).map(|cache| cache.join("braid/tools"))
    };
    let tools = std::env::var_os("BRAID_TOOLS").map(PathBuf::from).or_else(cache).expect("a home");
    let found = tools.join("etcd/usr/bin/etcd");
    assert!(found.exists(), "{} is not there: run 'make setup'", found.display());
    found
}

fn free_ports(count: usize) -> Vec<u16> {
    let held: Vec<TcpListener> =
        (0..count).map(|_| TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a free port")).collect();
    held.iter().map(|listener| listener.local_addr().expect("it is bound").port()).collect()
}

impl Members {
    fn start() -> Self {
        let dir = tempfile::tempdir().expect("dir");
        let ports = free_ports(6);
        let url = |port: u16| format!("http://127.0.0.1:{port}");
        let cluster: Vec<String> = (0..3).map(|i| format!("m{i}={}", url(ports[3 + i]))).collect();
        let commands = (0..3).map(|i| {
            let mut command = Command::new(etcd());
            let (client, peer) = (url(ports[i]), url(ports[3 + i]));
            let data = dir.path().join(format!("m{i}"));
            command.args(["--name", &format!("m{i}"), "--data-dir"]).arg(data);
            command.args(["--listen-client-urls", &client, "--advertise-client-urls", &client]);
            command.args(["--listen-peer-urls", &peer, "--initial-advertise-peer-urls", &peer]);
            command.args(["--initial-cluster", &cluster.join(","), "--log-level", "error"]);
            command.stdout(Stdio::null()).stderr(Stdio::null());
            command
        });
        let endpoints = ports[..3].iter().map(|port| url(*port)).collect();
        let mut members = Self { commands: commands.collect(), running: vec![None, None, None], endpoints, _dir: dir };
        (0..3).for_each(|which| members.run(which));
        members.wait();
        members
    }

    fn run(&mut self, which: usize) {
        self.running[which] = Some(self.commands[which].spawn().expect("etcd starts"));
    }

    fn kill(&mut self, which: usize) {
        if let Some(mut child) = self.running[which].take() {
            let _ = child.kill();
            let _ = child.wait();
        }
    }

    /// Waits until they have a leader.
    fn wait(&self) {
        let client = self.client("wait/");
        for _ in 0..600 {
            if client.get("a").is_ok() {
                return;
            }
            thread::sleep(Duration::from_millis(50));
        }
        panic!("etcd does not come up");
    }

    fn client(&self, root: &str) -> Etcd {
        Etcd::new(&self.endpoints, root).expect("good addresses")
    }
}

impl Drop for Members {
    fn drop(&mut self) {
        (0..3).for_each(|which| self.kill(which));
    }
}

/// A put that is tried until it is known to have been made.
fn put(client: &Etcd, key: &str, value: &str) -> Revision {
    for _ in 0..100 {
        match client.txn(&Txn::new().put(key, value)) {
            Ok(Outcome::Done(revision)) => return revision,
            Ok(Outcome::Conflict) => panic!("nothing was compared"),
            Err(error) => assert!(matches!(error.kind(), ErrorKind::TimedOut | ErrorKind::Io), "{error}"),
        }
        thread::sleep(Duration::from_millis(100));
    }
    panic!("{key} cannot be put");
}

#[test]
fn conforms() {
    let members = Members::start();
    let number = AtomicU64::new(0);
    suite::conform(&|| {
        let root = format!("braid/{}/", number.fetch_add(1, Ordering::Relaxed));
        let pass_ms = Box::new(|ms| thread::sleep(Duration::from_millis(ms)));
        Subject { one: Arc::new(members.client(&root)), two: Arc::new(members.client(&root)), pass_ms }
    });
}

#[test]
fn two_clusters_on_one_etcd_do_not_see_each_other() {
    let members = Members::start();
    let (one, two) = (members.client("one/"), members.client("two/"));
    put(&one, "k", "1");
    assert_eq!(two.get("k").expect("get"), None);
    assert_eq!(two.range("").expect("range").items, []);
    assert_eq!(one.range("").expect("range").items[0].key, "k");
}

#[test]
fn a_member_may_go_and_when_all_went_calls_end() {
    let mut members = Members::start();
    let client = members.client("c/");
    let start = put(&client, "w/0", "").next();
    let mut watch = client.watch("w/", start).expect("watch");
    let mut told = Vec::new();
    for round in 0..3 {
        members.kill(round);
        put(&client, &format!("w/{round}"), "x");
        assert_eq!(client.get(&format!("w/{round}")).expect("two of three answer").expect("there").value, b"x");
        members.run(round);
        members.wait();
    }
    (0..3).for_each(|which| members.kill(which));
    let error = client.get("w/0").expect_err("nobody is there");
    assert!(error.kind() == ErrorKind::Io && error.to_string().contains("etcd does not answer"), "{error}");
    let error = client.txn(&Txn::new().put("w/4", "y")).expect_err("nobody is there");
    assert_eq!(error.kind(), ErrorKind::Io, "it was not taken: {error}");
    (0..3).for_each(|which| members.run(which));
    members.wait();
    put(&client, "w/last", "z");
    while told.last().is_none_or(|key| key != "w/last") {
        let events = watch.next(20_000).expect("the watch goes on at another member");
        assert!(!events.is_empty(), "{told:?}");
        told.extend(events.into_iter().map(|event| event.key));
    }
    told.dedup();
    assert_eq!(told, ["w/0", "w/1", "w/2", "w/last"], "each change once, in order");
}

#[test]
fn who_reaches_no_member_asks_by_way_of_another() {
    let members = Members::start();
    let other = members.client("c/");
    let nobody = format!("http://127.0.0.1:{}", free_ports(1)[0]);
    let client = Etcd::new(&[nobody], "c/").expect("a client");
    assert_eq!(client.get("k").expect_err("nobody is there").kind(), ErrorKind::Io);
    let asked = Arc::new(AtomicU64::new(0));
    let (relay, count) = (other.clone(), Arc::clone(&asked));
    client.detour(Box::new(move |path, body, again| {
        count.fetch_add(1, Ordering::Relaxed);
        assert_eq!(again, path != "kv/txn", "what may have been taken is not asked again");
        relay.ask_for_another(path, body)
    }));
    let put_at = put(&client, "k", "1");
    assert_eq!(other.get("k").expect("get").expect("there").modified, put_at);
    let txn = Txn::new().when("k", Check::Absent).put("k", "2");
    assert_eq!(client.txn(&txn).expect("txn"), Outcome::Conflict);
    // The words of etcd count as if they were heard directly.
    let session = client.session(60_000).expect("session");
    client.keep_alive(session).expect("it lives");
    client.end_session(session).expect("ended");
    assert_eq!(client.keep_alive(session).expect_err("it has ended").kind(), ErrorKind::Stale);
    client.end_session(session).expect("twice is no error");
    // Again and again the members are tried: here in vain, and nobody notices.
    for _ in 0..50 {
        assert_eq!(client.range("").expect("range").items.len(), 1);
    }
    assert!(asked.load(Ordering::Relaxed) > 50);
    let refused = other.ask_for_another("maintenance/snapshot", "{}").expect_err("not for hosts");
    assert_eq!(refused.kind(), ErrorKind::NotPermitted);
}

/// So many changes never reach a member, and then so many answers of it are lost.
#[derive(Default)]
struct Losses {
    asked: AtomicU64,
    answers: AtomicU64,
}

/// A way to one member that loses that.
fn forgetful(member: &str, losses: Arc<Losses>) -> String {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a free port");
    let at = format!("http://{}", listener.local_addr().expect("it is bound"));
    let member = member.strip_prefix("http://").expect("an address").to_owned();
    thread::spawn(move || {
        for asker in listener.incoming() {
            // Whoever asked is gone, or the test is over: the next one.
            let _ = asker.and_then(|asker| forward(asker, &member, &losses));
        }
    });
    at
}

/// One question and its answer; the connection ends with it.
fn forward(asker: TcpStream, member: &str, losses: &Losses) -> std::io::Result<()> {
    let mut asked = BufReader::new(&asker);
    let (mut head, mut length) = (String::new(), 0);
    loop {
        let mut line = String::new();
        asked.read_line(&mut line)?;
        if let Some(count) = line.to_ascii_lowercase().strip_prefix("content-length:") {
            length = count.trim().parse().expect("a number");
        }
        if line == "\r\n" || line.is_empty() {
            break;
        }
        head += &line;
    }
    let mut body = vec![0; length];
    asked.read_exact(&mut body)?;
    let lost = |of: &AtomicU64| {
        let one_less = |left: u64| left.checked_sub(1);
        head.contains("/kv/txn") && of.fetch_update(Ordering::Relaxed, Ordering::Relaxed, one_less).is_ok()
    };
    if lost(&losses.asked) {
        return Ok(());
    }
    let mut to = TcpStream::connect(member)?;
    to.write_all(format!("{head}connection: close\r\n\r\n").as_bytes())?;
    to.write_all(&body)?;
    let mut answer = Vec::new();
    to.read_to_end(&mut answer)?;
    if lost(&losses.answers) {
        return Ok(());
    }
    (&asker).write_all(&answer)
}

#[test]
fn a_change_whose_answer_is_lost_is_made_once() {
    let members = Members::start();
    let losses = Arc::new(Losses::default());
    let lose = |asked, answers| {
        losses.asked.store(asked, Ordering::Relaxed);
        losses.answers.store(answers, Ordering::Relaxed);
    };
    let client = Etcd::new(&[forgetful(&members.endpoints[0], Arc::clone(&losses))], "c/").expect("a client");
    lose(0, 1);
    let error = client.txn(&Txn::new().put("k", "1")).expect_err("nobody said what became of it");
    assert_eq!(error.kind(), ErrorKind::TimedOut, "{error}");
    assert_eq!(client.get("k").expect("get").expect("it was made").value, b"1");
    let (id, term) = (PartitionId(3), Term(5));
    let partition = Partition { id, term, primary: None, members: Vec::new(), learners: Vec::new() };
    lose(1, 2);
    let made = records::create(&client, &partition).expect("it is looked for");
    assert_eq!(records::create(&client, &partition).map(|_| ()).map_err(|e| e.kind()), Err(ErrorKind::Exists));
    for lost in [(0, 0), (0, 1), (2, 0), (2, 1)] {
        lose(lost.0, lost.1);
        let before = records::must::<Partition>(&client, &made.value.key()).expect("it is there").value.term;
        let change = |partition: &mut Partition| {
            partition.term.0 += 1;
            Ok(())
        };
        let after = records::modify(&client, &made.value.key(), change).expect("it is looked for");
        let found = records::must::<Partition>(&client, &made.value.key()).expect("it is there");
        assert_eq!((after.value.term, found.value.term), (Term(before.0 + 1), Term(before.0 + 1)), "{lost:?} lost");
        assert_eq!(after.revision, found.revision, "{lost:?} lost");
        assert_eq!(losses.answers.load(Ordering::Relaxed) + losses.asked.load(Ordering::Relaxed), 0, "{lost:?}");
    }
    lose(9, 0);
    let change = |partition: &mut Partition| {
        partition.term.0 += 1;
        Ok(())
    };
    let error = records::modify(&client, &made.value.key(), change).expect_err("nobody ever says it");
    assert_eq!(error.kind(), ErrorKind::TimedOut, "{error}");
}

#[test]
fn who_reaches_the_members_asks_nobody_else() {
    let members = Members::start();
    put(&members.client("c/"), "k", "1");
    let asked = Arc::new(AtomicU64::new(0));
    let client = members.client("c/");
    let count = Arc::clone(&asked);
    client.detour(Box::new(move |_, _, _| {
        count.fetch_add(1, Ordering::Relaxed);
        Err(ErrorKind::Io.into())
    }));
    assert_eq!(client.get("k").expect("get").expect("there").value, b"1");
    assert_eq!(asked.load(Ordering::Relaxed), 0);
}

#[test]
fn a_member_that_hangs_holds_nobody_up_for_long() {
    let members = Members::start();
    let signal = |which: usize, name: &str| {
        let id = members.running[which].as_ref().expect("it runs").id().to_string();
        assert!(Command::new("kill").args([name, &id]).status().expect("kill runs").success());
    };
    let client = members.client("c/");
    let start = put(&client, "w/0", "").next();
    let mut watch = client.watch("w/", start).expect("watch");
    put(&client, "w/1", "");
    assert_eq!(watch.next(20_000).expect("events").len(), 1, "it listens");
    // The one that answered last, perhaps the leader.
    signal(0, "-STOP");
    assert_eq!(client.get("w/1").expect("another one answers").expect("there").value, b"");
    put(&client, "w/2", "x");
    let told = watch.next(20_000).expect("another stream tells");
    assert_eq!(told.first().map(|event| event.key.as_str()), Some("w/2"));
    signal(0, "-CONT");
}

#[test]
fn a_watch_from_dropped_history_says_so() {
    let members = Members::start();
    let client = members.client("c/");
    let first = put(&client, "k", "1");
    let last = put(&client, "k", "2");
    let endpoint = &members.endpoints[0];
    let request = ureq::post(format!("{endpoint}/v3/kv/compaction"));
    request.send(format!(r#"{{"revision":"{}"}}"#, last.0)).expect("etcd drops history");
    let mut watch = client.watch("", first).expect("watch");
    assert_eq!(watch.next(20_000).expect_err("it is gone").kind(), ErrorKind::Stale);
    assert_eq!(watch.next(0).expect_err("and stays so").kind(), ErrorKind::Stale);
    let mut watch = client.watch("", last.next()).expect("watch");
    put(&client, "k", "3");
    assert_eq!(watch.next(20_000).expect("events").len(), 1);
}

#[test]
fn addresses_that_make_no_sense_are_refused() {
    for bad in ["", "127.0.0.1:2379", "https://h:2379", "http://", "http://h:2379/v3"] {
        let error = Etcd::new(&[bad.to_owned()], "c/").map(drop).expect_err(bad);
        assert_eq!(error.kind(), ErrorKind::Invalid, "{error}");
    }
    assert!(Etcd::new(&[], "c/").is_err());
}
