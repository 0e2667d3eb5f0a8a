//! What TLS costs: answers of 1 MiB over TCP on this machine, plain and with TLS, and the processor time of both sides.
//!
//! `cargo run --release -p braid-wire --example speed [GiB]`

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use braid_base::ids::Term;
use braid_base::ids::{ClientId, DriveId, FsId, Guid, HostId, PartitionId};
use braid_base::msg::drive::{DriveOp, DriveReply, DriveResult, ShardId};
use braid_base::msg::fs::Request;
use braid_base::msg::host::{HostOp, HostReply, HostResult, Map};
use braid_base::msg::lease::Answer;
use braid_base::msg::peer::PeerMsg;
use braid_base::{Error, ErrorKind, Result};
use braid_client::Wire;
use braid_replica::Msg;
use braid_wire::tls::{Authority, Client, Peer, client_config, server_config};
use braid_wire::{Address, Caller, Find, Handler, Hello, Listener, Pusher, RemoteWire, ReplyTo, Target, Who, serve};
use bytes::Bytes;
use rustix::time::{ClockId, clock_gettime};
use tokio::net::TcpListener;

const CLUSTER: Guid = Guid([3; 16]);
const HOST: HostId = HostId(1);
const ANSWER: usize = 1 << 20;
const QUESTIONS: u32 = 20_000;

/// Answers all questions to drives with the same blocks.
struct Blocks {
    data: Bytes,
    crcs: Vec<u32>,
}

impl Handler for Blocks {
    fn admit(&self, _peer: Peer, _hello: &Hello) -> Result<u16> {
        Ok(1)
    }

    fn joined(&self, _who: &Who, _push: Pusher) {}

    fn left(&self, _who: &Who, _push: &Pusher) {}

    fn partition(&self, _from: ClientId, _p: PartitionId, _term: Term, _request: Request, _answer: ReplyTo<Answer>) {}

    fn drive(&self, _from: &Caller, _d: DriveId, op: DriveOp, answer: ReplyTo<DriveResult>) {
        let DriveOp::Read { .. } = op else { return answer.send(&Ok(DriveReply::Done)) };
        answer.send(&Ok(DriveReply::Data { data: self.data.clone(), crcs: self.crcs.clone() }));
    }

    fn host(&self, _from: &Caller, op: HostOp, answer: ReplyTo<HostResult>) {
        let HostOp::Map = op else { return };
        let hosts = vec![(HOST, Vec::new())];
        let drives = vec![(DriveId(1), HOST), (DriveId(3), HOST)];
        answer.send(&Ok(HostReply::Map(Map { version: 1, hosts, primaries: vec![Some(HOST); 7], drives })));
    }

    fn replica(&self, _from: HostId, _message: Msg) {}

    fn peer(&self, _from: PartitionId, _to: PartitionId, _message: PeerMsg) {}

    fn way(&self, _to: HostId) -> Result<Address> {
        Err(Error::new(ErrorKind::Unsupported, "this host is alone"))
    }
}

fn main() {
    let gib = std::env::args().nth(1).and_then(|text| text.parse().ok()).unwrap_or(4);
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().expect("a runtime");
    let authority = Authority::new(CLUSTER).expect("an authority");
    let tls = client_config(&authority.ca(), None).expect("an authority");
    runtime.block_on(async {
        let data = Bytes::from(vec![7; ANSWER]);
        let crcs = braid_base::crc::block_crcs(&data);
        let blocks = Arc::new(Blocks { data, crcs });
        for at_once in [1, 16] {
            for tls in [None, Some(tls.clone())] {
                let own = authority.issue(HOST).expect("issued");
                let tcp = TcpListener::bind("127.0.0.1:0").await.expect("a port");
                let at = tcp.local_addr().expect("bound");
                let listener = match &tls {
                    Some(_) => Listener::Tls(tcp, server_config(&own).expect("an identity")),
                    None => Listener::Tcp(tcp),
                };
                let served = tokio::spawn(serve(listener, Arc::<Blocks>::clone(&blocks)));
                measure(at, tls, at_once, gib).await;
                served.abort();
            }
        }
    });
}

async fn measure(at: SocketAddr, tls: Option<Client>, at_once: usize, gib: u64) {
    let name = if tls.is_some() { "TLS" } else { "plain" };
    let tls = tls.map(|client| (client, Some(HOST)));
    let find = move || -> Find {
        let tls = tls.clone();
        Box::new(move || {
            Ok(Target { address: Address::Tcp(at), cluster: CLUSTER, secret: String::new(), tls: tls.clone() })
        })
    };
    let (client, fs) = (ClientId(1), FsId(1));
    let who = Who { client, pid: 1, fs, filesystem: String::new(), point: String::new(), since_s: 0 };
    let wire = Arc::new(RemoteWire::connect(find(), Box::new(move |_, _| find()), who).await.expect("connects"));
    let left = Arc::new(AtomicU64::new(gib << 10));
    let clock = |id| {
        let at = clock_gettime(id);
        at.tv_sec as f64 + at.tv_nsec as f64 / 1e9
    };
    let began = (clock(ClockId::Monotonic), clock(ClockId::ProcessCPUTime));
    let readers: Vec<_> = (0..at_once)
        .map(|_| {
            let (wire, left) = (Arc::clone(&wire), Arc::clone(&left));
            tokio::spawn(async move {
                while left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(1)).is_ok() {
                    let id = ShardId { pack: Default::default(), shard: 0 };
                    let op = DriveOp::Read { id, block: 0, count: (ANSWER / 4096) as u16 };
                    let answer = wire.drive(DriveId(1), op).await;
                    assert!(matches!(answer, Ok(DriveReply::Data { data, .. }) if data.len() == ANSWER));
                }
            })
        })
        .collect();
    for reader in readers {
        reader.await.expect("no panic");
    }
    let (took, cpu) = (clock(ClockId::Monotonic) - began.0, clock(ClockId::ProcessCPUTime) - began.1);
    let (speed, cost) = (gib as f64 / took, cpu / gib as f64);
    let began = clock(ClockId::Monotonic);
    for _ in 0..QUESTIONS {
        assert!(matches!(wire.drive(DriveId(1), DriveOp::Stat).await, Ok(DriveReply::Done)));
    }
    let small = (clock(ClockId::Monotonic) - began) * 1e6 / f64::from(QUESTIONS);
    println!("{name:>5}: a small question and its answer take {small:.0} us");
    println!("{name:>5}, {at_once:>2} at once: {speed:.2} GiB/s, {cost:.3} s of processor time per GiB");
}
