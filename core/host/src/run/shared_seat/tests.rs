use std::sync::{Arc, Mutex, mpsc};
use std::thread;
use std::time::Duration;

use braid_base::attr::FileType;
use braid_base::ids::{ClientId, FsId, Guid, HostId, Index, Ino, OpId, PartitionId, Term};
use braid_base::msg::fs::{Op, Reply, Request};
use braid_base::{ErrorKind, Result};
use braid_cluster::coordinator::Coordinator;
use braid_cluster::embedded::Embedded;
use braid_cluster::facts::Partition;
use braid_cluster::records;
use braid_replica::Member;
use braid_replica::replica::event::{Body, Msg};

use super::{SeatDoor, UNHEARD_MAX, burst};
use crate::run::seat_actor::SeatMsg;
use crate::run::{Host, HostConfig};

const WAIT: Duration = Duration::from_secs(20);

/// A host of one partition without drives: names need none.
struct World {
    dir: tempfile::TempDir,
    coordinator: Arc<dyn Coordinator>,
    runtime: tokio::runtime::Runtime,
    host: Host,
    /// What the requests that were answered were called, in the order of their answers.
    said: Arc<Mutex<Vec<&'static str>>>,
}

fn start(dir: &tempfile::TempDir, coordinator: &Arc<dyn Coordinator>, runtime: &tokio::runtime::Runtime) -> Host {
    let config = HostConfig {
        dir: dir.path().to_owned(),
        cluster: Guid([5; 16]),
        data: 1,
        parity: 1,
        shard_bytes: 1 << 20,
        host: HostId(1),
        partitions: 1,
        drives: Vec::new(),
        awaited: Vec::new(),
        absent: Vec::new(),
        replicas: vec![PartitionId(0)],
        capacity_bytes: 1 << 30,
    };
    Host::start(config, coordinator, None, runtime.handle().clone()).expect("an empty folder becomes a host")
}

impl World {
    fn new() -> Self {
        let dir = tempfile::tempdir().expect("dir");
        let coordinator: Arc<dyn Coordinator> = Arc::new(Embedded::in_memory(Arc::new(|| 0)).expect("memory"));
        let (id, term) = (PartitionId(0), Term(0));
        let partition = Partition { id, term, primary: None, members: Vec::new(), learners: Vec::new() };
        records::create(coordinator.as_ref(), &partition).expect("its first record");
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build();
        let runtime = runtime.expect("a runtime");
        let host = start(&dir, &coordinator, &runtime);
        let world = Self { dir, coordinator, runtime, host, said: Arc::default() };
        let root = Op::MakeRoot { ino: Ino::root(FsId(1)), mode: 0o755 };
        answer_of(&world.door(), 1, root).expect("a root");
        world
    }

    fn door(&self) -> SeatDoor {
        self.host.switch.seat(PartitionId(0)).expect("it runs")
    }

    fn says(&self, what: &'static str) -> super::Waits {
        let said = Arc::clone(&self.said);
        Box::new(move |_| said.lock().expect("no panic").push(what))
    }

    fn said(&self) -> Vec<&'static str> {
        self.said.lock().expect("no panic").clone()
    }

    fn inodes(&self) -> u64 {
        match answer_of(&self.door(), 1 << 40, Op::Statfs) {
            Ok(Reply::Usage { inodes, .. }) => inodes,
            other => panic!("{other:?}"),
        }
    }

    /// Keeps the seat's thread at something else, without the seat, until the sender is used or gone.
    fn keep_away(&self) -> mpsc::Sender<()> {
        let ((entered, away), (back, wait)) = (mpsc::channel(), mpsc::channel());
        let keeps = move |_| {
            let _ = entered.send(());
            let _ = wait.recv_timeout(WAIT);
        };
        self.door().send(SeatMsg::Report(Box::new(keeps))).expect("it runs");
        away.recv_timeout(WAIT).expect("it is there");
        back
    }
}

fn request(client: u64, seq: u64, body: Op) -> Request {
    let op = OpId { client: ClientId(client), seq };
    Request { op, session: 0, done_upto: 0, fs: FsId(1), cred: Default::default(), early: true, body }
}

fn create(name: String) -> Op {
    let (dir, name, kind, target) = (Ino::root(FsId(1)), name.into_bytes(), FileType::File, Vec::new());
    Op::Create { dir, name, kind, mode: 0o644, umask: 0, rdev: 0, target, open: false, told: None, want: 0 }
}

fn answer_of(door: &SeatDoor, seq: u64, body: Op) -> Result<Reply> {
    let (tx, rx) = mpsc::channel();
    door.request(door.term(), request(1, seq, body), Box::new(move |answer| drop(tx.send(answer.result))))?;
    rx.recv_timeout(WAIT).map_err(|_| ErrorKind::TimedOut)?
}

#[test]
fn what_many_threads_ask_is_answered_once_and_reaches_the_log() {
    const EACH: u64 = 300;
    let world = World::new();
    let (tx, answers) = mpsc::channel();
    thread::scope(|scope| {
        for client in 2..8 {
            let (door, tx) = (world.door(), tx.clone());
            scope.spawn(move || {
                for seq in 1..=EACH {
                    let tx = tx.clone();
                    let waits = Box::new(move |answer: super::Answer| drop(tx.send((client, seq, answer.result))));
                    door.request(door.term(), request(client, seq, create(format!("{client}-{seq}"))), waits)
                        .expect("it runs");
                    if seq % 50 == 0 {
                        // A setting: its thread has to come.
                        door.send(SeatMsg::With(Box::new(|_| {}))).expect("it runs");
                    }
                }
            });
        }
    });
    drop(tx);
    let mut answered = Vec::new();
    while let Ok((client, seq, result)) = answers.recv_timeout(WAIT) {
        assert!(matches!(result, Ok(Reply::Entry { .. })), "{result:?}");
        answered.push((client, seq));
    }
    answered.sort_unstable();
    let all: Vec<_> = (2..8).flat_map(|client| (1..=EACH).map(move |seq| (client, seq))).collect();
    assert_eq!(answered, all);
    assert_eq!(world.inodes(), 6 * EACH + 1);

    answer_of(&world.door(), 1 << 41, Op::Sync { ino: Ino::root(FsId(1)) }).expect("all of it is durable");
    let World { dir, coordinator, runtime, host, said } = world;
    host.stop();
    drop(host);
    std::fs::remove_dir_all(dir.path().join("kv")).expect("the view is made from the log again");
    let host = start(&dir, &coordinator, &runtime);
    assert_eq!(World { dir, coordinator, runtime, host, said }.inodes(), 6 * EACH + 1);
}

#[test]
fn a_free_seat_is_stepped_by_who_asks_but_never_before_what_was_sent_to_it() {
    let world = World::new();
    let (door, back) = (world.door(), world.keep_away());
    door.request(door.term(), request(1, 10, Op::Statfs), world.says("here")).expect("it runs");
    assert_eq!(world.said(), ["here"], "its thread is away, and the seat is free");
    door.request(door.term(), request(1, 11, create("f".to_owned())), world.says("created")).expect("it runs");
    let before = world.said();
    door.send_request(door.term(), request(1, 12, Op::Statfs), world.says("sent")).expect("it runs");
    door.request(door.term(), request(1, 13, Op::Statfs), world.says("asked after it")).expect("it runs");
    assert_eq!(world.said(), before, "nobody overtakes what was sent");
    drop(back);
    assert_eq!(world.inodes(), 2);
    let said: Vec<_> = world.said().into_iter().filter(|what| *what != "created").collect();
    assert_eq!(said, ["here", "sent", "asked after it"]);
    // With nothing on its way it goes on at the seat.
    let back = world.keep_away();
    door.request(door.term(), request(1, 14, Op::Statfs), world.says("here again")).expect("it runs");
    assert_eq!(world.said().last(), Some(&"here again"));
    drop(back);
}

#[test]
fn what_comes_in_one_burst_goes_to_the_log_as_one_group() {
    let world = World::new();
    let (door, back) = (world.door(), world.keep_away());
    let left = || door.0.seat.upgrade().expect("it runs").hold().core.left.len();
    burst::run(|| {
        for seq in 31..39 {
            let request = Request { early: false, ..request(1, seq, create(format!("f{seq}"))) };
            door.request(door.term(), request, Box::new(|_| {})).expect("it runs");
        }
        assert_eq!(left(), 0, "more may come");
    });
    assert_eq!(left(), 1, "one write of the log");
    drop(back);
    assert_eq!(world.inodes(), 9);
}

#[test]
fn what_another_replica_says_is_heard_by_who_has_the_seat_next() {
    let world = World::new();
    let (door, back) = (world.door(), world.keep_away());
    let seat = door.0.seat.upgrade().expect("it runs");
    // Of a store that is none of its own: nothing comes of it.
    let says = || {
        let from = Member { host: HostId(7), store: Guid([7; 16]) };
        let body = Body::Ack { held: Index(1), echo_ms: 1 };
        door.replica(Msg { partition: PartitionId(0), term: Term(1), from, to_store: Guid([9; 16]), body })
    };
    let held = seat.hold();
    thread::scope(|scope| scope.spawn(says).join().expect("no panic")).expect("it runs");
    assert_eq!(seat.unheard().len(), 1);
    drop(held);
    says().expect("it runs");
    assert_eq!(seat.unheard().len(), 0, "its thread is away, and who came next took both");
    let held = seat.hold();
    thread::scope(|scope| scope.spawn(says).join().expect("no panic")).expect("it runs");
    let many = || (0..2 * UNHEARD_MAX).try_for_each(|_| says());
    thread::scope(|scope| scope.spawn(many).join().expect("no panic")).expect("it runs");
    assert_eq!(seat.unheard().len(), UNHEARD_MAX, "one that is held for long does not gather for ever");
    drop((held, back));
    // A request that is sent stands behind the word that there is something to hear; one that steps here need not.
    let (tx, rx) = mpsc::channel();
    let waits = Box::new(move |answer: super::Answer| drop(tx.send(answer.result)));
    door.send_request(door.term(), request(1, 10, Op::Statfs), waits).expect("it runs");
    assert!(matches!(rx.recv_timeout(WAIT), Ok(Ok(Reply::Usage { inodes: 1, .. }))));
    assert_eq!(seat.unheard().len(), 0, "its thread took it before it answered");
}

#[test]
fn a_step_that_panics_ends_the_partition_for_everybody() {
    let world = World::new();
    let (door, back) = (world.door(), world.keep_away());
    door.request(door.term(), request(1, 21, Op::Statfs), Box::new(|_| panic!("on purpose"))).expect("taken");
    let (tx, rx) = mpsc::channel();
    // Sent to a seat that nobody can hold any more: dropped with its mailbox.
    let late = door.request(door.term(), request(1, 22, Op::Statfs), Box::new(move |answer| drop(tx.send(answer))));
    drop(back);
    let heard = late.map(|()| rx.recv_timeout(WAIT));
    assert!(!matches!(heard, Ok(Ok(_) | Err(mpsc::RecvTimeoutError::Timeout))), "{heard:?}");
    let mut tries = 0;
    while door.request(door.term(), request(1, 23, Op::Statfs), Box::new(|_| {})).is_ok() {
        tries += 1;
        assert!(tries < 2_000, "its mailbox stays open");
        world.runtime.block_on(async { tokio::time::sleep(Duration::from_millis(10)).await });
    }
}
