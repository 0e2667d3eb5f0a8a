//! A server that stands in for a host, and clients of it.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use braid_base::ids::{ClientId, DriveId, FsId, Guid, HostId, Ino, OpId, PackId, PartitionId, Term};
use braid_base::msg::drive::{DriveOp, DriveReply, DriveResult, ShardId};
use braid_base::msg::fs::{Op, Reply, Request};
use braid_base::msg::host::{HostOp, HostReply, HostResult, Map};
use braid_base::msg::lease::{Answer, Push};
use braid_base::msg::peer::PeerMsg;
use braid_base::{Error, ErrorKind, Result};
use braid_client::Wire;
use braid_client::wire::PushSink;
use braid_io::chance::Rng;
use braid_replica::Msg;
use braid_wire::tls::Peer;
use braid_wire::{Address, Caller, Handler, Hello, Pusher, RemoteWire, ReplyTo, Who};
use bytes::Bytes;
use tokio::runtime::Runtime;
use tokio::sync::mpsc::UnboundedSender;

pub const CLUSTER: Guid = Guid([3; 16]);
pub const PARTITIONS: u16 = 7;
/// In which its partitions are served at first.
pub const TERM: u64 = 3;

/// Hands pushes on.
pub struct Told(pub UnboundedSender<Push>);

impl PushSink for Told {
    fn pushed(&self, push: Push) {
        let _ = self.0.send(push);
    }
}

/// A server whose partitions answer `GetAttr` with the inode's number as bytes, and `ReadStage` with that many bytes.
#[derive(Default)]
pub struct Fake {
    pub asked: AtomicUsize,
    /// Requests are kept and not answered.
    pub silent: AtomicBool,
    pub kept: Mutex<Vec<ReplyTo<Answer>>>,
    pub pushers: Mutex<BTreeMap<ClientId, Pusher>>,
    /// Lets nobody in.
    pub closed: AtomicBool,
    /// Inodes of `Close` requests in the order they came; a server holds the first of them up until this is unlocked.
    pub order: Mutex<Vec<u64>>,
    pub gate: Mutex<()>,
    /// Terms that its partitions went through since.
    pub terms: AtomicUsize,
    /// Where it says that partitions are; 0: on host 1.
    pub primary: AtomicUsize,
    /// Which of two it is.
    pub host: usize,
    /// Messages of other hosts.
    pub told: Mutex<Vec<String>>,
    /// Hosts: number and address.
    pub others: Mutex<Vec<(HostId, Vec<String>)>>,
    /// Where it relays to.
    pub ways: Mutex<BTreeMap<HostId, Address>>,
    /// How often it was to.
    pub relayed: AtomicUsize,
}

impl Fake {
    pub fn term(&self) -> Term {
        Term(TERM + self.terms.load(Ordering::Relaxed) as u64)
    }

    /// The way to `client`, which is let in a little before it has joined.
    pub async fn pusher(&self, client: ClientId) -> Pusher {
        loop {
            let found = self.pushers.lock().expect("no panic").get(&client).cloned();
            match found {
                Some(push) => return push,
                None => tokio::time::sleep(Duration::from_millis(1)).await,
            }
        }
    }

    pub fn map(&self) -> Map {
        let primary = HostId(self.primary.load(Ordering::Relaxed).max(1) as u32);
        let mut hosts = self.others.lock().expect("no panic").clone();
        if hosts.is_empty() {
            hosts.push((HostId(1), Vec::new()));
        }
        let drives = (0..10).map(|d| (DriveId(d), hosts[0].0)).collect();
        let version = primary.0.into();
        Map { version, hosts, primaries: vec![Some(primary); usize::from(PARTITIONS)], drives }
    }
}

impl Handler for Fake {
    fn admit(&self, _peer: Peer, hello: &Hello) -> Result<u16> {
        if self.closed.load(Ordering::Relaxed) {
            return Err(Error::new(ErrorKind::Refused, "closed today"));
        }
        hello.check(CLUSTER, "secret").map(|()| PARTITIONS)
    }

    fn joined(&self, who: &Who, push: Pusher) {
        self.pushers.lock().expect("no panic").insert(who.client, push);
    }

    fn left(&self, who: &Who, push: &Pusher) {
        let mut pushers = self.pushers.lock().expect("no panic");
        if pushers.get(&who.client).is_some_and(|known| known.is_same(push)) {
            pushers.remove(&who.client);
        }
    }

    fn partition(&self, from: ClientId, p: PartitionId, term: Term, request: Request, answer: ReplyTo<Answer>) {
        assert_eq!((from, p), (request.op.client, PartitionId(5)));
        let away = self.primary.load(Ordering::Relaxed).max(1) != self.host.max(1);
        if away || term != self.term() {
            let moved = Error::new(ErrorKind::Moved, "another term, or host");
            return answer.send(&Answer::plain(if away { Term(0) } else { self.term() }, Err(moved)));
        }
        self.asked.fetch_add(1, Ordering::Relaxed);
        if self.silent.load(Ordering::Relaxed) {
            return self.kept.lock().expect("no panic").push(answer);
        }
        match request.body {
            Op::GetAttr { ino } => answer.send(&Reply::Value(ino.0.to_le_bytes().to_vec()).into()),
            Op::ReadStage { len, .. } => answer.send(&Reply::Data(Bytes::from(vec![len as u8; len as usize])).into()),
            Op::Write { parts, .. } => {
                let sum: usize =
                    parts.iter().map(|(_, bytes)| bytes.iter().map(|b| usize::from(*b)).sum::<usize>()).sum();
                answer.send(&Reply::Value(sum.to_le_bytes().to_vec()).into());
            }
            Op::Statfs => drop(answer),
            Op::Close { inos } => {
                self.order.lock().expect("no panic").push(inos[0].0);
                tokio::task::block_in_place(|| drop(self.gate.lock().expect("no panic")));
            }
            other => answer.send(&Error::new(ErrorKind::Unsupported, format!("{other:?}")).into()),
        }
    }

    fn drive(&self, _from: &Caller, d: DriveId, op: DriveOp, answer: ReplyTo<DriveResult>) {
        match op {
            DriveOp::Read { count, .. } => {
                let data = Bytes::from(vec![d.0 as u8; usize::from(count) * 4096]);
                let crcs = braid_base::crc::block_crcs(&data);
                // From a thread of its own, as a drive does.
                std::thread::spawn(move || answer.send(&Ok(DriveReply::Data { data, crcs })));
            }
            _ => answer.send(&Ok(DriveReply::Done)),
        }
    }

    fn host(&self, _from: &Caller, op: HostOp, answer: ReplyTo<HostResult>) {
        match op {
            HostOp::Map => answer.send(&Ok(HostReply::Map(self.map()))),
            HostOp::Seats => drop(answer),
            other => answer.send(&Err(Error::new(ErrorKind::Unsupported, format!("{other:?}")))),
        }
    }

    fn replica(&self, from: HostId, message: Msg) {
        self.told.lock().expect("no panic").push(format!("{from}: {message:?}"));
    }

    fn peer(&self, from: PartitionId, to: PartitionId, message: PeerMsg) {
        self.told.lock().expect("no panic").push(format!("{from} to {to}: {message:?}"));
    }

    fn way(&self, to: HostId) -> Result<Address> {
        self.relayed.fetch_add(1, Ordering::Relaxed);
        let way = self.ways.lock().expect("no panic").get(&to).cloned();
        way.ok_or_else(|| Error::new(ErrorKind::NotFound, "no way"))
    }
}

pub fn runtime() -> Runtime {
    tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().expect("a runtime")
}

pub fn who() -> Who {
    Who { client: ClientId(9), pid: 1, fs: FsId(1), filesystem: "f".into(), point: "/m".into(), since_s: 0 }
}

pub fn request(body: Op) -> Request {
    Request {
        op: OpId { client: ClientId(9), seq: 1 },
        session: 0,
        done_upto: 0,
        fs: FsId(1),
        cred: Default::default(),
        early: false,
        body,
    }
}

pub async fn ask(wire: &RemoteWire, body: Op) -> Result<Reply> {
    wire.partition(PartitionId(5), request(body)).await.result
}

pub async fn number(wire: &RemoteWire, n: u64) -> Result<u64> {
    match ask(wire, Op::GetAttr { ino: Ino(n) }).await? {
        Reply::Value(bytes) => Ok(u64::from_le_bytes(bytes.try_into().expect("eight bytes"))),
        other => panic!("{other:?}"),
    }
}

/// Asks all kinds of things at once and checks each answer.
pub async fn exercise(wire: Arc<RemoteWire>) {
    assert_eq!(wire.partitions(), PARTITIONS);
    let mut all = Vec::new();
    for n in 0..400_u64 {
        let wire = Arc::clone(&wire);
        all.push(tokio::spawn(async move {
            let size = Rng::new(n).below(1 << 20) as u32;
            match n % 5 {
                0 => {
                    let Ok(Reply::Data(data)) =
                        ask(&wire, Op::ReadStage { at: Default::default(), poff: 0, len: size }).await
                    else {
                        panic!("no data")
                    };
                    assert!(data.len() == size as usize && data.iter().all(|b| *b == size as u8));
                }
                1 => {
                    let parts = vec![(0, Bytes::from(vec![1; size as usize])), (9, Bytes::from(vec![2; 100]))];
                    let body = Op::Write { ino: Ino(1), parts, append: false, kill_suid_sgid: false, at: None };
                    let Ok(Reply::Value(sum)) = ask(&wire, body).await else { panic!("no sum") };
                    assert_eq!(sum, (size as usize + 200).to_le_bytes());
                }
                2 => {
                    let id = ShardId { pack: PackId(1), shard: 0 };
                    let op = DriveOp::Read { id, block: 0, count: (size / 4096) as u16 };
                    let Ok(DriveReply::Data { data, crcs }) = wire.drive(DriveId(3), op).await else {
                        panic!("no blocks")
                    };
                    assert_eq!(crcs, braid_base::crc::block_crcs(&data));
                    assert!(data.len() == (size as usize / 4096) * 4096 && data.iter().all(|b| *b == 3));
                }
                _ => assert_eq!(number(&wire, n).await, Ok(n)),
            }
        }));
    }
    for one in all {
        one.await.expect("no panic");
    }
    let refused = ask(&wire, Op::EndSession).await.expect_err("not offered");
    assert_eq!((refused.kind(), refused.message()), (ErrorKind::Unsupported, "EndSession"));
    assert_eq!(
        ask(&wire, Op::Statfs).await.map_err(|e| e.kind()).err(),
        Some(ErrorKind::Stopped),
        "dropped unanswered"
    );
}
